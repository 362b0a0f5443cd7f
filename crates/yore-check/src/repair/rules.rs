//! The rules: what a repair does about each finding, in words and as a function.
//!
//! A rule changes the volume in memory and says whether it did. It may rely on what the check found to be
//! complete: what would follow only from something unreadable is not reported. It returns false where it
//! cannot help, and the finding remains. Problems that are not in the table have no repair yet.

use super::round::Round;
use crate::{CheckError, Finding, Problem};

type Mend = fn(&mut Round<'_>, &Finding) -> Result<bool, CheckError>;

/// What is done about a problem.
pub(super) struct Rule {
    pub(super) problem: Problem,
    pub(super) words: &'static str,
    pub(super) mend: Mend,
}

macro_rules! rules {
    ($($problem:ident: $words:literal, $mend:ident;)*) => {
        const RULES: &[Rule] = &[$(Rule {
            problem: Problem::$problem,
            words: $words,
            mend: |round, finding| round.$mend(finding),
        },)*];
    };
}

/// The rule of a problem.
pub(super) fn of(problem: Problem) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.problem == problem)
}

/// Whether the rule of a problem is about the volume, whichever row of the past shows it.
pub(super) fn is_of_volume(problem: Problem) -> bool {
    matches!(
        problem,
        Problem::FutureGeneration
            | Problem::FutureNumber
            | Problem::FutureIncarnation
            | Problem::Feature
            | Problem::SharedCount
    )
}

rules! {
    SuperblockDamaged: "a superblock is made of the spare superblock, zones, trees and the log", new_superblock;
    OtherSuperblock: "the slot gets the superblock of the repair", new_superblock;
    DeviceTooShort: "with --shorten the volume ends where its device does; what lay beyond is lost, and named", wait_for_shorten;
    ReservedRoot: "the root is set to none", clear_reserved;
    LogRange: "the volume has no log any more; what only the log had is lost", forget_log;
    LogDamaged: "records before the damage are put in place, and the log is empty; what is behind it is lost", wait_for_log;
    RootZoneZero: "the zone is found at the start of the volume", wait_for_zones;
    ZonePlace: "the zone is found by its header, or the entry removed if no group lists it and nothing of it is there", wait_for_zones;
    ZoneHeaderDamaged: "the header is made of the zone's blocks and its older header", wait_for_zones;
    ZoneTableDamaged: "the entries are made of the headers of the zones", wait_for_zones;
    ZoneHeaderStale: "a header that is as new as recorded, or newer, is recorded as it is", record_header;
    ZoneHeaderField: "the field is set to what the zone's place and the superblock say", mend_header;
    ZoneListing: "the lists of further zones are made anew", mend_zone_lists;
    ZoneExtras: "the lists of further zones are made anew", mend_zone_lists;
    ZoneCounts: "the counts are set to what the zone holds", recount_zone;
    InodeFree: "the count is set to what the block holds", recount_inodes;
    BitmapMissing: "the bitmap is made anew from the owners of the blocks", new_bitmap;
    BlockBeyondDevice: "with --shorten it is given up with the end of the volume", wait_for_shorten;
    BlockDamaged: "bitmaps, trees and inodes are made anew from what can be read, checksum tables without checksums; what is lost is named", mend_block;
    BlockStale: "bitmaps, trees and inodes are made anew from what can be read, checksum tables without checksums; what is lost is named", mend_block;
    BlockWrong: "a bitmap or a tree is made anew, and a header is told which blocks have inodes", mend_block;
    BlockMissing: "the tree is made anew from the nodes that can be found", mend_content;
    BlockReachedTwice: "the tree is made anew, with the block in one place", mend_content;
    TreeKeyWidth: "the tree is made anew from its sound nodes", mend_content;
    TreeBounds: "the tree is made anew from the cells that count", mend_content;
    TreeEmptyLeaf: "the tree is made anew without empty leaves", mend_content;
    TreeLevel: "the tree is made anew", mend_content;
    CellDamaged: "the tree is made anew from its sound cells; what is lost is named", mend_content;
    ContentKind: "content of the wrong kind is removed and named", mend_content;
    SymlinkChunk: "the symbolic link is removed, and what is left of its target named", mend_content;
    XattrKey: "the attribute is put under its name's key", mend_content;
    XattrChunk: "the attribute is removed and named", mend_content;
    XattrName: "the attribute is removed and named", mend_content;
    RootMissing: "the root is made anew from the nodes that are its own", new_root;
    ExtentOrder: "extents that can be are kept, the first of two that overlap; what is lost is named", mend_content;
    SpacePlace: "the extent is removed, and the bytes that it held named", mend_content;
    FutureGeneration: "the superblock gets a generation that is not earlier", raise_generation;
    BlockUnreachable: "the block is freed", free_unreachable;
    FutureNumber: "the number to give next is raised", raise_number;
    FutureIncarnation: "the incarnation to give next is raised", raise_incarnation;
    InodeSize: "the size is set to what is in the inode", mend_size;
    InodeBlocks: "the count is set to the blocks that the inode has", mend_blocks;
    DeviceNumber: "the number is removed", mend_device_number;
    XattrFlags: "the flags are set to what the attributes say", mend_xattr_flags;
    ChosenFlags: "the flags are removed", mend_chosen_flags;
    EntryInline: "entries that can be read are kept, in order", mend_directory;
    EntryKey: "the entry is put under its name's key", mend_directory;
    EntryDuplicate: "the second entry is removed, or renamed if it names another inode", mend_directory;
    EntryDangling: "the entry is removed", mend_directory;
    EntryIncarnation: "the entry is corrected if the inode says that its name is there, and removed if not", mend_directory;
    EntryKind: "the entry's type is set to the inode's", mend_directory;
    DirectorySize: "the size is set to the number of entries", mend_directory_size;
    DirectoryNamedTwice: "the name that the directory remembers is kept, the others are removed", mend_named_twice;
    DirectoryCycle: "the directory's name is removed, and it goes to lost+found", break_cycle;
    InodeUnnamed: "the inode gets a name in lost+found", rescue;
    LinksTooFew: "the links are set to the number of names", mend_links;
    LinksTooMany: "the links are set to the number of names", mend_links;
    Parent: "the parent is set to the directory that has the name", mend_parent;
    OrphanEntry: "the tree of orphans is made anew", new_orphans;
    OrphanUnlisted: "the tree of orphans is made anew", new_orphans;
    OrphanNotEmpty: "the directory gets a name in lost+found", keep_removed_directory;
    SpaceOwnedTwice: "the second file gets copies of the blocks, or loses them, and is named", share_out;
    SharedCount: "the count is set to the references that were found", mend_shared_count;
    SpaceMarkedFree: "the blocks are marked used", mend_bitmap;
    SpaceLeaked: "the blocks are marked free", mend_bitmap;
    EventNumber: "the number to give next is raised; an event without a number is removed and named", wait_for_rows;
    EventTwice: "the forgotten one is removed", wait_for_rows;
    EventState: "the event gets the state of its tree; work under way that cannot be is given up and named", wait_for_rows;
    EventTime: "an event whose time cannot be gets one between those around it, and is named", mend_event_times;
    EventName: "the second event gets its number behind its name", wait_for_rows;
    Expunged: "the expunge is given up, and named", give_up_expunge;
    RollbackEvent: "the rollback is given up, and named", wait_for_rows;
    RollbackRoot: "the rollback is given up, and named", wait_for_rows;
    HistoryShard: "the cell is moved to its shard", move_rows;
    VersionOrder: "the older version is given up, and named; of one that goes on in use the present begins at its end", end_version;
    VersionKind: "the older version is given up, and named", wait_for_rows;
    VersionBirth: "the version is given up, and named", wait_for_rows;
    VersionGap: "the version that lacks it is given up, and named", wait_for_rows;
    AnnalsRow: "the row is moved to its shard, and the number to give next raised", move_rows;
    AnnalsBegin: "the begin of the annals is set behind it", begin_annals_later;
    PastNameOrder: "the past name is given up, and named", wait_for_rows;
    EventIndex: "the index is made anew from the events", mend_index;
    ChangeIndex: "the index is made anew from the versions and past names", mend_index;
    InodeIndex: "the index is made anew from the rows", mend_index;
    NameIndex: "the index is made anew from the rows", mend_index;
    Watermark: "the watermark is set back, and the next mount gives the rows keys", mend_watermark;
    HistorySpace: "the count is set to what was counted", mend_history_space;
    Policy: "the inode is told whether it has one", mend_policy;
    Feature: "the superblock gets the feature", mend_feature;
    Hint: "the generation of the repair voids the hint", new_superblock;
    TotalFreeBlocks: "the total is set to what was counted", mend_total;
    TotalInodes: "the total is set to what was counted", mend_total;
    TotalMetadataBlocks: "the total is set to what was counted", mend_total;
    TotalZones: "the total is set to what was counted", mend_total;
    ZoneNumberLimit: "the limit is raised", mend_total;
}
