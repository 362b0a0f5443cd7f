//! What the checker can find: one typed problem for each rule of the format, with the place where it was
//! broken.
//!
//! A finding says *which* rule (the [`Problem`], from which its [`Class`] follows), *where* (metadata
//! address, physical block, inode: as many as are known) and *what* (expected and found, as numbers where
//! they are numbers, so that a repair need not parse sentences).

use serde::{Serialize, Serializer};
use std::fmt;
use yore_format::{BlockKind, BlockNo, Corruption, EventNo, HistoryGrowth, Incarnation, InodeNo, MetaAddr};

/// Which part of the volume a problem concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The superblock and what it says beside totals.
    Superblock,
    /// Zones: headers, table, counts.
    Zone,
    /// Single metadata blocks.
    Block,
    /// The shape of trees.
    Tree,
    /// Inodes and their contents.
    Inode,
    /// Entries of directories.
    Directory,
    /// Names and counts of names.
    Link,
    /// The tree of orphans.
    Orphan,
    /// Data blocks and their owners.
    Space,
    /// The history.
    History,
    /// The totals in the superblock.
    Total,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It wastes space and loses nothing.
    Leak,
    /// Anything else.
    Damage,
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident, $class:ident, $text:literal;)*) => {
        /// The rule that is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Problem {
            $($(#[$doc])* $name,)*
        }

        impl Problem {
            /// Every problem there is, in the order of the check.
            pub const ALL: &'static [Problem] = &[$(Problem::$name,)*];

            /// The part of the volume that it concerns.
            pub fn class(self) -> Class {
                match self { $(Problem::$name => Class::$class,)* }
            }

            /// A sentence's worth of what is wrong.
            pub fn text(self) -> &'static str {
                match self { $(Problem::$name => $text,)* }
            }
        }
    };
}

problems! {
    /// Neither superblock can be used, or the one that counts is damaged. What else is found was found with
    /// another one, made of what identifies itself.
    SuperblockDamaged, Superblock, "no superblock can be used";
    /// The superblock slot not in use holds neither a superblock of this volume, nor a torn one, nor zeros.
    OtherSuperblock, Superblock, "the other superblock slot does not belong to this volume";
    /// The device ends before the volume does.
    DeviceTooShort, Superblock, "the device is shorter than the volume";
    /// A root that this version of the format does not use is set.
    ReservedRoot, Superblock, "a root that this version does not use is set";
    /// The log's range is not a run of blocks.
    LogRange, Superblock, "the log's range is impossible";
    /// The log cannot be read to its end, or holds what does not follow the generation.
    LogDamaged, Superblock, "the log is damaged";
    /// Root zone 0 is absent or elsewhere than at the start of the volume.
    RootZoneZero, Superblock, "root zone 0 is not at the start of the volume";
    /// A zone lies where it cannot, or has a number that it cannot have.
    ZonePlace, Zone, "a zone lies where no such zone can";
    /// A zone's header does not verify.
    ZoneHeaderDamaged, Zone, "a zone header does not verify";
    /// A zone's header is whole but not the one that the table or superblock names.
    ZoneHeaderStale, Zone, "a zone header is not the one recorded for its zone";
    /// A zone's header contradicts the superblock or its table entry.
    ZoneHeaderField, Zone, "a field of a zone header is wrong";
    /// A further zone is not listed exactly once by its group's first zone.
    ZoneListing, Zone, "a further zone is not listed once by its group";
    /// A list of further zones names something that is not a further zone of the group.
    ZoneExtras, Zone, "a zone lists a further zone that is not its group's";
    /// A zone table block does not verify or is something else.
    ZoneTableDamaged, Zone, "a zone table block does not verify";
    /// A count in a zone's table entry is not what the zone holds.
    ZoneCounts, Zone, "a count in the zone table is wrong";
    /// The header's count of free inodes of an index is not what the block there holds.
    InodeFree, Zone, "a zone header's count of free inodes is wrong";
    /// A group's first zone has no bitmap.
    BitmapMissing, Zone, "a group's first zone has no bitmap";
    /// A metadata block that exists cannot be read from the device, which ends before it.
    BlockBeyondDevice, Block, "a metadata block lies beyond the device";
    /// A metadata block does not verify.
    BlockDamaged, Block, "a metadata block does not verify";
    /// A metadata block is sound but not the version that its zone's header records: a write was lost.
    BlockStale, Block, "a metadata block is not the copy recorded for its place";
    /// A metadata block is sound but not what its referrer takes it for.
    BlockWrong, Block, "a metadata block is not what refers to it expects";
    /// A block of a generation later than the superblock's.
    FutureGeneration, Block, "a block is newer than the superblock";
    /// A reference to an address at which no block exists.
    BlockMissing, Block, "a metadata block that is referred to does not exist";
    /// Two references to one metadata block.
    BlockReachedTwice, Block, "a metadata block is referred to twice";
    /// A metadata block exists that nothing refers to.
    BlockUnreachable, Block, "nothing refers to a metadata block that exists";
    /// A birth, or another number, later than the next to be given.
    FutureNumber, Block, "a number later than the next to be given";
    /// A tree of keys of the wrong width.
    TreeKeyWidth, Tree, "a tree node has keys of the wrong width";
    /// A node holds keys outside the bounds that its parent gives.
    TreeBounds, Tree, "a tree node holds keys outside its bounds";
    /// A leaf that is not a root is empty.
    TreeEmptyLeaf, Tree, "a leaf below a branch is empty";
    /// A root of a level that no tree of its kind comes to.
    TreeLevel, Tree, "a tree has too many levels";
    /// A cell's value cannot be decoded.
    CellDamaged, Tree, "a cell of a tree cannot be decoded";
    /// An incarnation not given yet.
    FutureIncarnation, Inode, "an incarnation that was not given yet";
    /// The content is of a kind that the file's type cannot have.
    ContentKind, Inode, "content of a kind that this type of file cannot have";
    /// The size contradicts the content.
    InodeSize, Inode, "the size contradicts the content";
    /// The count of blocks is not the number of blocks that the inode has.
    InodeBlocks, Inode, "the count of blocks is wrong";
    /// A device number on a file that is no device.
    DeviceNumber, Inode, "a device number on a file that is no device";
    /// Chunks of a long symbolic link are missing, short or too many.
    SymlinkChunk, Inode, "the chunks of a symbolic link do not fit together";
    /// An attribute's key is not the hash of its name.
    XattrKey, Inode, "an extended attribute has the wrong key";
    /// Chunks of an attribute are missing, short or too many.
    XattrChunk, Inode, "the chunks of an extended attribute do not fit together";
    /// Two attributes of one name, or a name that cannot be.
    XattrName, Inode, "an extended attribute's name is impossible or not the only one";
    /// The inode's flags disagree with the attributes that it has.
    XattrFlags, Inode, "the inode's flags disagree with its extended attributes";
    /// Something that is neither file nor directory has flags that only those have.
    ChosenFlags, Inode, "what is neither file nor directory has flags of `chattr`";
    /// The root directory is missing or no directory.
    RootMissing, Directory, "there is no root directory";
    /// Entries in an inode cannot be decoded or are out of order.
    EntryInline, Directory, "the entries in a directory's inode do not fit together";
    /// An entry's key is not the hash of its name.
    EntryKey, Directory, "a directory entry has the wrong key";
    /// Two entries of one name in one directory.
    EntryDuplicate, Directory, "a name occurs twice in a directory";
    /// An entry names an inode that does not exist.
    EntryDangling, Directory, "a directory entry names an inode that does not exist";
    /// An entry names another incarnation of its inode.
    EntryIncarnation, Directory, "a directory entry names another incarnation of its inode";
    /// An entry says another type than its inode.
    EntryKind, Directory, "a directory entry says another type than its inode";
    /// A directory's size is not the number of its entries.
    DirectorySize, Directory, "a directory's size is not its number of entries";
    /// A directory has several names, or the root has one.
    DirectoryNamedTwice, Link, "a directory has a name too many";
    /// A directory cannot be reached from the root: it is below itself.
    DirectoryCycle, Link, "a directory is below itself and not below the root";
    /// An inode has links but no name.
    InodeUnnamed, Link, "an inode with links has no name";
    /// Fewer links than names.
    LinksTooFew, Link, "an inode has fewer links than names";
    /// More links than names.
    LinksTooMany, Link, "an inode has more links than names";
    /// The inode's parent is not the directory that names it.
    Parent, Link, "an inode's parent is not where its name is";
    /// The tree of orphans names an inode that does not exist, or another incarnation, or one that is no
    /// orphan.
    OrphanEntry, Orphan, "an entry among the orphans names no orphan";
    /// An inode without links is not among the orphans.
    OrphanUnlisted, Orphan, "an inode without links is not among the orphans";
    /// An orphaned directory is not empty.
    OrphanNotEmpty, Orphan, "a removed directory is not empty";
    /// Extents out of order, overlapping, or beyond the largest file.
    ExtentOrder, Space, "extents of a file overlap or are out of order";
    /// Blocks that cannot be data, or belong to no group in use.
    SpacePlace, Space, "blocks lie where none can be had";
    /// A block has two owners.
    SpaceOwnedTwice, Space, "blocks have two owners";
    /// The number of references to a shared block, or of those in use, is not what its group's table says.
    SharedCount, Space, "the count of who shares a block is wrong";
    /// A block has an owner and is marked free.
    SpaceMarkedFree, Space, "blocks that have an owner are marked free";
    /// A block is marked used and has no owner.
    SpaceLeaked, Space, "blocks are marked used and have no owner";
    /// An event's number is 0, or not given yet.
    EventNumber, History, "an event has a number that no event has";
    /// Two events have one number: one in the tree of events, and a forgotten one.
    EventTwice, History, "two events have one number";
    /// A forgotten event is not in the tree of forgotten events, or another event is.
    EventState, History, "an event is in the tree of another state";
    /// An event is not later than the one with the number before, forgotten or not.
    EventTime, History, "an event is not later than the one before it";
    /// Two events that are kept have one name.
    EventName, History, "two events that are kept have one name";
    /// The history of a file is being expunged, and something that the file still uses began before that.
    Expunged, History, "what is being expunged is still in use";
    /// An unfinished rollback needs an event that is not kept, or was not taken before it.
    RollbackEvent, History, "a rollback that is not finished needs an event that is not there";
    /// The root of an unfinished rollback is no directory.
    RollbackRoot, History, "a rollback that is not finished is of no directory";
    /// The index of events lacks an event, or has one that does not exist or was forgotten.
    EventIndex, History, "the index of events is not that of the events";
    /// A cell is in the tree of another shard.
    HistoryShard, History, "a cell of the past is in the tree of another shard";
    /// Versions of an inode overlap, or one is not older than the inode in use, or of an incarnation that had
    /// ended.
    VersionOrder, History, "versions of an inode overlap or are out of order";
    /// States of one incarnation are of different types.
    VersionKind, History, "a version is of another type than its inode";
    /// A version names something that was born at its end or later.
    VersionBirth, History, "a version names what was born after it";
    /// A version does not name what its inode had then.
    VersionGap, History, "a version lacks what its inode had then";
    /// The tree of changes lacks the end of a version or of a past name, or has one that does not exist.
    ChangeIndex, History, "the changes are not the ends of versions and past names";
    /// A row of the annals is in the tree of another shard, or ended at a number that was not given yet.
    AnnalsRow, History, "a row of the annals is where it cannot be";
    /// Something in an old tree ended since the annals began.
    AnnalsBegin, History, "something ended since the annals began and is not in them";
    /// A watermark of the annals lies beyond what was recorded.
    Watermark, History, "the annals are said to be indexed further than they go";
    /// The index by inode lacks the key of a row, or has one that is not that of a row.
    InodeIndex, History, "the index of the annals by inode is not that of the rows";
    /// The index by name lacks the key of a row, or has one that is not that of a row.
    NameIndex, History, "the index of the annals by name is not that of the rows";
    /// The hint of what each event holds, which the next mount would believe, is damaged, or is of more than
    /// there is. Nothing is lost by it: a mount that is closed again writes another one.
    Hint, History, "the hint of what snapshots hold cannot be";
    /// Past names of one directory and name, or of one directory and cookie, overlap, or one reaches into the
    /// life of the entry in use under that name or cookie.
    PastNameOrder, History, "lives of a name in a directory overlap";
    /// An inode has a policy and does not say so, or says so and has none.
    Policy, History, "an inode and the tree of policies disagree";
    /// There is something that a program without a feature takes for damage, and the superblock does not name
    /// that feature.
    Feature, History, "there is something that needs a feature the superblock does not have";
    /// The counts of blocks that the past alone holds.
    HistorySpace, History, "the count of blocks that only the past holds is wrong";
    /// Free data blocks.
    TotalFreeBlocks, Total, "the superblock's count of free blocks is wrong";
    /// Inodes in use.
    TotalInodes, Total, "the superblock's count of inodes is wrong";
    /// Metadata blocks in use.
    TotalMetadataBlocks, Total, "the superblock's count of metadata blocks is wrong";
    /// Zones in use.
    TotalZones, Total, "the superblock's count of zones is wrong";
    /// The limit of zone numbers.
    ZoneNumberLimit, Total, "a zone number at or above the superblock's limit";
}

impl Problem {
    /// Its code, as in `--json` and in docs/CHECK.md.
    pub fn code(self) -> String {
        let name = format!("{self:?}");
        let mut code = String::with_capacity(name.len() + 4);
        for (i, letter) in name.chars().enumerate() {
            if letter.is_ascii_uppercase() && i > 0 {
                code.push('-');
            }
            code.push(letter.to_ascii_lowercase());
        }
        code
    }

    /// Whether a crash may leave it under an engine that orders changes, `sync` or `soft-updates`: it is a
    /// hint, or is recounted (docs/EDGES.md, "What an ordered engine may leave"). [`Problem::TreeBounds`] may
    /// be left above the bounds of a node, [`Problem::SharedCount`] where the count is too high, and
    /// [`Problem::VersionOrder`] and [`Problem::PastNameOrder`] where the present has not ended yet what a
    /// row says: [`Finding::is_tolerated`] knows.
    pub fn tolerated(self) -> bool {
        self.is_leak()
            || self.class() == Class::Total
            || matches!(
                self,
                Problem::OrphanEntry
                    | Problem::DirectorySize
                    | Problem::InodeBlocks
                    | Problem::Parent
                    | Problem::DirectoryNamedTwice
                    | Problem::TreeEmptyLeaf
                    | Problem::XattrFlags
                    | Problem::InodeFree
                    | Problem::ZoneCounts
                    | Problem::HistorySpace
            )
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self.is_leak() {
            true => Severity::Leak,
            false => Severity::Damage,
        }
    }

    /// Whether it loses only space (blocks, inodes, counts of names) and endangers no file's content: the
    /// engines `sync` and `soft-updates` may leave such problems after a crash.
    pub fn is_leak(self) -> bool {
        matches!(
            self,
            Problem::SpaceLeaked
                | Problem::BlockUnreachable
                | Problem::InodeUnnamed
                | Problem::OrphanUnlisted
                | Problem::LinksTooMany
        )
    }
}

/// What was expected or found: a number, if that says it all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count, address or size.
    EventNo(u64),
    /// Anything else, in words.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::EventNo(n) => n.fmt(f),
            Value::Text(t) => t.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::EventNo(n)
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Value {
        Value::EventNo(n.into())
    }
}

impl From<&str> for Value {
    fn from(t: &str) -> Value {
        Value::Text(t.to_string())
    }
}

impl From<String> for Value {
    fn from(t: String) -> Value {
        Value::Text(t)
    }
}

/// Whose the blocks are that somebody else has, too: the one that the check met first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstOwner {
    /// What it is: a file, a zone, the log.
    pub what: String,
    /// The inode, if it is a file. Serialised as a number.
    #[serde(serialize_with = "inode_number", skip_serializing_if = "Option::is_none")]
    pub inode: Option<InodeNo>,
    /// A path of that inode, where names lead to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A row of the past that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PastRow {
    /// An event, in one of the two trees of them.
    Event {
        number: EventNo,
        is_forgotten: bool,
    },
    Version {
        inode: InodeNo,
        born: EventNo,
        end: EventNo,
    },
    /// The name or the cookie may be that of another one.
    Name {
        directory: InodeNo,
        birth: EventNo,
        death: EventNo,
        cookie: u64,
        name: Vec<u8>,
    },
}

/// What an engine that orders changes may have left behind a crash, as a check has counted it. Calls change
/// both sides of each difference together, so it stays until somebody puts it right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recount {
    /// These blocks are marked used, and nobody has them.
    Blocks {
        /// The first of them.
        start: BlockNo,
        /// How many they are.
        len: u32,
    },
    /// An inode has so many links more than names.
    Links {
        /// The inode.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// By how many they are too many.
        by: u32,
        /// Whether one of its names is where it says that its name is.
        is_remembered: bool,
    },
    /// An inode has no name, and is not among the orphans.
    Unnamed {
        /// The inode.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// How many links it has nevertheless.
        links: u32,
    },
    /// An inode has one name, and says that its name is elsewhere.
    Parent {
        /// The inode.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The directory with its name.
        directory: InodeNo,
        /// The cookie of the name there.
        cookie: u64,
    },
    /// A directory has several names.
    NamedTwice {
        /// The directory.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The name that it keeps: the directory that has it, and the cookie there.
        kept: (InodeNo, u64),
        /// Its other names.
        others: Vec<(InodeNo, u64)>,
    },
    /// The flags of an inode are not those of the attributes that it has.
    Flags {
        /// The inode.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// What an inode says of itself differs from what it has.
    Counts {
        /// The inode.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// By how many entries a directory has more than it says.
        size: i64,
        /// By how many blocks it has more than it says.
        blocks: i64,
    },
    /// There is more of what the superblock counts than it says.
    Totals {
        /// Free data blocks.
        free_blocks: i64,
        /// Inodes in use.
        inodes: i64,
        /// Metadata blocks in use.
        metadata_blocks: i64,
    },
    /// A block of a table of counts counts more references than there are.
    References {
        /// The block.
        block: BlockNo,
        /// How many are too many.
        references: u16,
        /// How many of those in use are too many.
        in_use: u16,
    },
    /// The past alone holds so much more than is counted.
    PastSpace(HistoryGrowth),
    /// Nothing leads to a node of a tree.
    Node {
        /// Where it is.
        addr: MetaAddr,
        /// Of what kind of tree.
        kind: BlockKind,
        /// Whose tree it was.
        owner: InodeNo,
        /// The incarnation of the owner.
        incarnation: Incarnation,
    },
    /// A node of a tree has keys above its bounds.
    Beyond {
        /// Of what kind of tree.
        kind: BlockKind,
        /// Whose tree it is.
        owner: InodeNo,
        /// The incarnation of the owner.
        incarnation: Incarnation,
        /// The least key that can be in the node.
        low: Vec<u8>,
    },
    /// A version is of the state that the inode still has.
    Version {
        /// The inode.
        inode: InodeNo,
        /// Since when it has that state.
        born: EventNo,
        /// The end that the version says, and that has not come.
        end: EventNo,
    },
    /// A past name is of the life of an entry that is in use.
    PastName {
        /// The directory.
        directory: InodeNo,
        /// The cookie of the entry.
        cookie: u64,
        /// Since when the name means its inode.
        birth: EventNo,
        /// The end that the past name says, and that has not come.
        end: EventNo,
    },
}

/// What a finding is told by, whatever else is found with it.
pub(crate) type FindingPlace<'f> =
    (Problem, Option<MetaAddr>, Option<BlockNo>, Option<InodeNo>, Option<&'f PastRow>);

/// One broken rule, in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part of the volume.
    pub class: Class,
    /// How bad it is.
    pub severity: Severity,
    /// Readers pass over what is wrong, keys above the bounds of a node, or a row of the past for an end that
    /// has not come; or it is recounted, a count of references that is too high.
    #[serde(skip)]
    may_be_left: bool,
    /// What was counted, where a recount puts it right.
    #[serde(skip)]
    recount: Option<Recount>,
    /// The row of the past that cannot be right, where it is one.
    #[serde(skip)]
    pub(crate) row: Option<PastRow>,
    /// The rule.
    pub problem: Problem,
    /// The metadata block, where one is concerned. Serialised as `zone:index`.
    #[serde(rename = "place", serialize_with = "address", skip_serializing_if = "Option::is_none")]
    pub addr: Option<MetaAddr>,
    /// The physical block, where known. Serialised as a number.
    #[serde(serialize_with = "block_number", skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockNo>,
    /// The inode that is concerned, or to which the blocks belong. Serialised as a number.
    #[serde(serialize_with = "inode_number", skip_serializing_if = "Option::is_none")]
    pub inode: Option<InodeNo>,
    /// How many blocks, where it is of several from `block` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// A path of that inode, where names lead to it. What is not UTF-8 in it is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of blocks with two owners: the first one. The finding is about the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstOwner>,
    /// What a sound volume would hold.
    pub expected: Value,
    /// What is there.
    pub found: Value,
}

impl Finding {
    /// Whether it is about the past: about its rules, or about a block of its trees.
    pub fn is_of_past(&self) -> bool {
        let is_tree = |owner: InodeNo| matches!(owner, InodeNo::HISTORY | InodeNo::EVENTS);
        self.class == Class::History || self.inode.is_some_and(is_tree)
    }

    /// A finding without a place.
    pub(crate) fn new(problem: Problem, expected: impl Into<Value>, found: impl Into<Value>) -> Finding {
        Finding {
            class: problem.class(),
            severity: problem.severity(),
            may_be_left: false,
            recount: None,
            row: None,
            problem,
            addr: None,
            block: None,
            inode: None,
            blocks: None,
            path: None,
            first: None,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// What the format's own verifiers found.
    pub(crate) fn corruption(problem: Problem, c: &Corruption) -> Finding {
        let mut finding = Finding::new(
            problem,
            format!("{} with {} {}", c.structure, c.field, c.expected),
            c.found.clone(),
        );
        (finding.addr, finding.block) = (c.addr, c.block);
        finding.of(c.owner.unwrap_or(InodeNo::NONE))
    }

    /// An engine that orders changes may leave it, though not all that its problem means.
    pub(crate) fn may_be_left(mut self) -> Finding {
        self.may_be_left = true;
        self
    }

    /// What a recount puts right, as the check has counted it; `None` for what nobody recounts.
    pub fn recount(&self) -> Option<Recount> {
        let row = match self.row.as_ref().filter(|_| self.may_be_left) {
            Some(PastRow::Version { inode, born, end }) => {
                Some(Recount::Version { inode: *inode, born: *born, end: *end })
            }
            Some(PastRow::Name { directory, birth, death, cookie, .. }) => {
                Some(Recount::PastName { directory: *directory, cookie: *cookie, birth: *birth, end: *death })
            }
            _ => None,
        };
        match self.problem {
            Problem::VersionOrder | Problem::PastNameOrder => row,
            Problem::SpaceLeaked => {
                self.block.zip(self.blocks).map(|(start, len)| Recount::Blocks { start, len })
            }
            // A row of the past is wrong, which nobody recounts.
            _ if self.row.is_some() => None,
            _ => self.recount.clone(),
        }
    }

    /// Whether a crash may leave this under an engine that orders changes.
    pub fn is_tolerated(&self) -> bool {
        self.problem.tolerated() || self.may_be_left
    }

    /// Says what was counted.
    pub(crate) fn recounted(mut self, recount: Recount) -> Finding {
        self.recount = Some(recount);
        self
    }

    /// The rule and where it is broken: two findings of which this is the same are about the same.
    pub(crate) fn place(&self) -> FindingPlace<'_> {
        (self.problem, self.addr, self.block, self.inode, self.row.as_ref())
    }

    /// Says which row of the past cannot be right.
    pub(crate) fn of_row(mut self, row: Option<PastRow>) -> Finding {
        self.row = self.row.or(row);
        self
    }

    pub(crate) fn at(mut self, addr: MetaAddr) -> Finding {
        self.addr = Some(addr);
        self
    }

    pub(crate) fn on(mut self, block: BlockNo) -> Finding {
        self.block = Some(block);
        self
    }

    pub(crate) fn blocks(mut self, len: u32) -> Finding {
        self.blocks = Some(len);
        self
    }

    pub(crate) fn of(mut self, inode: InodeNo) -> Finding {
        self.inode = (inode != InodeNo::NONE).then_some(inode);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.problem.text())?;
        if let Some(inode) = self.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(path) = &self.path {
            write!(f, " ({path:?})")?;
        }
        if let Some(addr) = self.addr {
            write!(f, ", at {addr}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)?;
        match &self.first {
            None => Ok(()),
            Some(FirstOwner { what, inode: None, .. }) => write!(f, "; the first owner is {what}"),
            Some(FirstOwner { inode: Some(inode), path: None, .. }) => {
                write!(f, "; the first owner is inode {inode}")
            }
            Some(FirstOwner { inode: Some(inode), path: Some(path), .. }) => {
                write!(f, "; the first owner is inode {inode} ({path:?})")
            }
        }
    }
}

fn address<S: Serializer>(addr: &Option<MetaAddr>, s: S) -> Result<S::Ok, S::Error> {
    match addr {
        Some(addr) => s.collect_str(addr),
        None => s.serialize_none(),
    }
}

fn block_number<S: Serializer>(block: &Option<BlockNo>, s: S) -> Result<S::Ok, S::Error> {
    block.map(|b| b.0).serialize(s)
}

fn inode_number<S: Serializer>(inode: &Option<InodeNo>, s: S) -> Result<S::Ok, S::Error> {
    inode.map(|i| i.0).serialize(s)
}
