//! The values that calls take and return.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;
pub use yore_core::Attr;
use yore_format::{Engine, FileKind, InodeNo, Policy, SpaceRules, Timestamp};
use yore_meta::{Durability, LogDevice, LogPlace};

/// What a call needs to know about its caller: the owner of what it creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Owner of new files.
    pub uid: u32,
    /// Group of new files, unless the directory is set-group-id.
    pub gid: u32,
    /// Permission bits to leave out of new files, unless the directory has a default ACL.
    pub umask: u32,
    /// Whether the caller may set set-group-id bits for groups it is not in (CAP_FSETID); also keeps set-id
    /// bits on write.
    pub keeps_set_id: bool,
}

impl Caller {
    /// User and group 0, umask 022.
    pub fn superuser() -> Caller {
        Caller { uid: 0, gid: 0, umask: 0o022, keeps_set_id: true }
    }
}

/// On whose behalf a request is made. A full volume gives up history for it only as far as that user could
/// forget it by a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Behalf {
    /// Somebody who may forget all of it: the process that has opened the volume, root, the user who mounted
    /// it.
    #[default]
    Owner,
    /// A user who may forget snapshots of his own directories, and versions of his own files.
    User(u32),
    /// Nobody in particular: nothing is given up.
    Nobody,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This time.
    To(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits (12 bits).
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend to this many bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode: set only by clients that keep times themselves; otherwise it is the present.
    pub ctime: Option<SetTime>,
    /// Drop set-id bits and the capability, as a write by an ordinary user does. With `size` this is for a
    /// server whose client asks for it. Alone it is for a caller that is about to change the content of a
    /// regular file by other calls. A change of owner drops them anyway.
    pub kill_set_id: bool,
}

/// What rename does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it atomically.
    Replace,
    /// Fails with `Exists` (RENAME_NOREPLACE).
    NoReplace,
    /// Swaps the two names (RENAME_EXCHANGE).
    Exchange,
}

/// What setting an extended attribute does with an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattrMode {
    /// Creates or replaces.
    Any,
    /// Fails with `Exists` if there (XATTR_CREATE).
    Create,
    /// Fails with `NoAttribute` if not there (XATTR_REPLACE).
    Replace,
}

/// The kinds of fallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocate the range; `keep_size`: do not grow the file.
    Allocate {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Free the range; it reads as zeros; the size stays.
    PunchHole,
    /// Make the range read as zeros and keep it allocated.
    ZeroRange {
        /// Leave the size as it is.
        keep_size: bool,
    },
}

/// SEEK_DATA and SEEK_HOLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that is data.
    Data,
    /// The next byte that is in a hole; the end of the file is one.
    Hole,
}

/// Where and how a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMode {
    /// Write at the end, whatever offset is given, atomically.
    pub append: bool,
    /// Drop set-user-id and (if group-executable) set-group-id bits, and `security.capability`.
    pub kill_set_id: bool,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirItem<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// Its type.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Use this to go on after this entry; below 2^63, stable while the entry exists.
    pub cookie: u64,
}

/// Space on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks that can still be written as file data. What is reported here can really be written.
    pub blocks_available: u64,
    /// Inodes in use and still possible.
    pub inodes: u64,
    /// Inodes still possible, an estimate from free space.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Data blocks that would be free if there were no history: versions refer to them, and no file in use
    /// does.
    pub history_data_blocks: u64,
    /// Nodes of files' trees to which the same applies.
    pub history_metadata_blocks: u64,
    /// Blocks of the trees that say what history keeps.
    pub history_index_blocks: u64,
}

impl Statfs {
    /// Blocks that only history holds. They do not count as free: `blocks - blocks_free` consists of live
    /// blocks and these.
    pub fn history_blocks(&self) -> u64 {
        let metadata = self.history_metadata_blocks.saturating_add(self.history_index_blocks);
        self.history_data_blocks.saturating_add(metadata)
    }
}

/// Facts about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Identity.
    pub uuid: [u8; 16],
    /// A name for people.
    pub label: String,
    /// Format version, major and minor.
    pub format: (u32, u32),
    /// Engine in use (mounted) or recorded.
    pub engine: Engine,
    /// Bytes of the volume.
    pub size: u64,
    /// Allocation groups.
    pub groups: u32,
    /// Zones in use.
    pub zones: u32,
    /// Metadata blocks in use.
    pub metadata_blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Free data blocks.
    pub free_blocks: u64,
    /// The last completed generation.
    pub generation: u64,
    /// How many times it has been mounted for writing.
    pub mount_id: u64,
    /// "clean", "in use", "must be checked", "leaks pending": as found when it was opened.
    pub state: &'static str,
    /// Seconds since 1970.
    pub created_seconds: u64,
    /// When the superblock was last written, seconds since 1970.
    pub written_seconds: u64,
    /// Bytes of the log that makes fsync cheap, 0 for none.
    pub log_size: u64,
    /// If the log has a device of its own: where that was when the volume was last opened with another or
    /// made. Empty if the volume does not say where.
    pub log_path: Option<PathBuf>,
}

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Identity; random by default.
    pub uuid: [u8; 16],
    /// Key of the hash of names; random by default.
    pub hash_seed: [u8; 16],
    /// A name for people, at most 64 bytes.
    pub label: String,
    /// The engine to record.
    pub engine: Engine,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Permissions of the root directory.
    pub permissions: u32,
    /// Bytes of the log that makes fsync cheap, rounded up to whole blocks; 0 for none. By default a 128th of
    /// the volume, at least 256 KiB and at most 32 MiB.
    pub log_size: Option<u64>,
    /// The policy of the root directory from the beginning; the default, which says nothing, means none: a
    /// program that keeps its own files on a volume decides itself which of them need versions. `yore mkfs`
    /// gives volumes for people [`MkfsOptions::usual_policy`].
    pub policy: Policy,
    /// The device that has the log, over its whole length, if that is not in the volume. The size of the log
    /// is then that of the device.
    pub journal: Option<LogDevice>,
    /// Keep a checksum of each block of file data, and verify what is read. File data is then never
    /// overwritten in place, and the engine cannot be `none`.
    pub data_checksums: bool,
    /// Make it even where a volume already is, and the log even where a volume or the log of another one is.
    pub force: bool,
}

/// The shortest run of blocks that mounts discard.
pub const DISCARD_BLOCKS: u32 = 16;

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Change nothing on the medium.
    pub read_only: bool,
    /// Use this engine instead of the one recorded.
    pub engine: Option<Engine>,
    /// The longest time until a change is on the medium: in a generation, or in the log.
    pub commit_interval: Duration,
    /// When calls that change metadata return: at once, or when the change is durable. The latter is for
    /// engines that log changes first (`journal`); others refuse it.
    pub durability: Durability,
    /// Where the log is, if it has a device of its own: by default where the volume says.
    pub journal: LogPlace,
    /// Bytes for the metadata cache; default 192 MiB.
    pub metadata_cache: u64,
    /// Bytes for the cache of file data, which it uses as data comes; by default an eighth of the machine's
    /// memory (or of the process's share of it), at least 64 MiB and at most 1 GiB.
    pub data_cache: u64,
    /// Update access times as `relatime` does; otherwise not at all.
    pub access_times: bool,
    /// Refuse writes that there is no room for, rather than give up history as the volume's rules allow.
    pub keep_history: bool,
    /// For how long after somebody has read as of a snapshot a full volume does not give it up.
    pub reading_lasts: Duration,
    /// Tell the device about blocks that have become free, in runs of at least so many: so an image file gets
    /// smaller, and a solid-state disk has less to keep. `None`: the device is told nothing.
    pub discard: Option<u32>,
    /// For how long nobody must have asked for anything before files that are scattered over the volume, and
    /// metadata that lies apart, are laid together in the background; `None`: they never are.
    pub defragment_after: Option<Duration>,
    /// With so many rows of history that the indexes do not have yet, a call that may add one waits until
    /// some are indexed; with a quarter of it, it indexes some if nobody else does. Only for tests: programs
    /// leave it as it is.
    pub backlog: u64,
    /// Under an engine that orders changes (`soft-updates`), an fsync leaves to the next generation what its
    /// file does not need, if that is at least so many blocks of metadata. Only for tests: 0 has each fsync
    /// write no more than its file needs.
    pub part_leaves: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            engine: None,
            commit_interval: Duration::from_secs(5),
            durability: Durability::Async,
            journal: LogPlace::Recorded,
            metadata_cache: 192 << 20,
            data_cache: crate::machine::default_data_cache(),
            access_times: true,
            keep_history: false,
            reading_lasts: Duration::from_secs(60),
            discard: None,
            defragment_after: Some(Duration::from_secs(2)),
            backlog: 65_536,
            part_leaves: yore_meta::PART_LEAVES,
        }
    }
}

/// Why an event is pinned. It stays in either case; lists show which events are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinnedBy {
    /// It is mounted by itself.
    Mount,
    /// Something under way needs it.
    Work,
}

/// The rules of a volume that has none of its own: a day, and half of the volume.
pub const DEFAULT_RULES: SpaceRules = SpaceRules { floor_seconds: 24 * 60 * 60, share_percent: 50 };

/// The user who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// The user; 0 may do everything.
    pub uid: u32,
    /// The group and the supplementary groups.
    pub groups: Vec<u32>,
    /// Whether `groups` are all of them. If not, only what the user may do both in every group and in none
    /// counts.
    pub knows_groups: bool,
}

/// Why, and since when, nothing is written to a volume any more.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The error that came first.
    pub first: crate::Error,
    /// When it came, in seconds since 1970.
    pub since_seconds: u64,
}

/// The path of these names from the root.
pub(crate) fn absolute(names: &[Vec<u8>]) -> PathBuf {
    let mut bytes = Vec::new();
    for name in names {
        bytes.push(b'/');
        bytes.extend_from_slice(name);
    }
    if bytes.is_empty() {
        bytes.push(b'/');
    }
    PathBuf::from(OsString::from_vec(bytes))
}
