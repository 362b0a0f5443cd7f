//! The Yore file system: open a [`Volume`] in your own process and use it like `std::fs`.
//!
//! There are three levels; a program uses the highest one that serves it:
//! - [`Volume`] with paths, in the manner of `std::fs`, and [`File`];
//! - [`View`], operations on inodes and names, one method per file-system call, as a FUSE or NFS server needs
//!   them;
//! - the modules below, which are private: `api → history → ops → {file, dir, xattr} → history/record → core`
//!   (docs/DESIGN.md, "The rooms of `yore-fs`").
//!
//! Beside them are [`retention`], the rules by which snapshots are kept, and [`time`], which reads and writes
//! the TIME of `name@TIME`.

mod api;
mod dir;
mod file;
mod go_on;
mod history;
mod idle;
mod machine;
mod ops;
mod progress;
mod recounts;
mod store;
mod symlink;
pub mod time;
mod travel;
mod types;
mod xattr;

pub use api::checksums::ChecksumsEntered;
pub use api::copy::SHARED_LEAST;
pub use api::defrag::{Defragmented, Scattered, PIECES_MOST};
pub use api::online::Inspection;
pub use api::recount::RecountUnderWay;
pub use api::scrub::{DamagedBlock, Scrub, ScrubFrom, Scrubbed};
pub use api::together::MetadataLaid;
pub use api::verify::VerifyStates;
pub use api::view::{Node, View};
pub use api::volume::{DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, Volume, Walk, WalkEntry};
pub use history::done::Doing;
pub use history::pin::Pin;
pub use history::policy::PolicyInForce;
pub use history::read::access::Access;
pub use history::read::at_time::{resolve_name, split_time, NewSnapshot, Resolved};
pub use history::read::listing::ListedEvent;
pub use history::read::query::{Change, DataState, Deleted, Difference, Facts, Gone, Logged, SeenBy, What};
pub use history::read::usage::{EventUsage, Retained, StateUsage, UsageTotals};
pub use history::reclaim::expunge::{HistoryScope, Remembered};
pub use history::reclaim::retention;
pub use history::reclaim::room::{Stays, WouldFree};
pub use history::reclaim::shred::Shredded;
pub use history::record::{check_patterns, Event, Forgetting, MissedVersions, User, UserLimits};
pub use history::rollback;
pub use progress::Progress;
pub use types::{
    Asking, Attr, Behalf, Caller, DirItem, FallocateMode, MkfsOptions, MountOptions, PinnedBy, RenameMode,
    SeekTo, SetAttr, SetTime, SetXattrMode, Statfs, Stopped, VolumeInfo, WriteMode, DEFAULT_RULES,
    DISCARD_BLOCKS,
};
pub use yore_core::alloc::MoveLog;
pub(crate) use yore_core::clock;
pub use yore_core::{Error, Result};
pub use yore_device::mounts;
pub use yore_format::{
    BlockNo, FindingsRecord, Generation, MetaAddr, RecordedFinding, ScrubEnded, ScrubPosition, ScrubRecord,
    ScrubUnderWay, WithoutChecksums,
};
pub use yore_format::{
    Engine, EventKind, EventMore, EventNo, EventRow, EventState, FileKind, ForgottenFor, Incarnation,
    InodeFlags, InodeNo, OperationKind, OperationRow, Policy, PolicyRow, Retention, RetentionRules, RowClass,
    SpaceRules, Timestamp, Versioning, EXCLUDE_MAX, NAME_MAX,
};
#[cfg(feature = "mutations")]
pub use yore_meta::mutation;
pub use yore_meta::{
    Durability, EdgeKind, LogDevice, LogPlace, LogStatus, PassCounts, Piece, Place, Recording, Saved, Shadow,
};
