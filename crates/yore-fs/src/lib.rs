//! The Yore file system: open a [`Volume`] in your own process and use it like `std::fs`.
//!
//! Three levels, of which a program takes the highest that serves it:
//! - [`Volume`] with paths, in the manner of `std::fs`, and [`File`];
//! - [`View`], operations on inodes and names, one method per file-system call, as a FUSE or NFS server needs them;
//! - the modules below, which are private: `usage → {ops, look} → history → {dir, file} → {inode, past} → {extent, alloc, pages} → btree → held`.
//!
//! Beside them [`keep`], the rules by which snapshots are kept, and [`time`], which reads and writes the TIME of `name@TIME` for whoever meets one.

mod access;
mod acl;
mod alloc;
mod alone;
mod btree;
mod calls;
mod clock;
mod core;
mod datacache;
mod dir;
mod done;
mod error;
mod exclude;
mod expunge;
mod extent;
mod file;
mod forget;
mod gate;
mod held;
mod history;
mod inode;
pub mod keep;
mod listing;
mod locks;
mod look;
mod machine;
mod needed;
mod opened;
mod ops;
mod orphan;
mod pages;
mod past;
mod pin;
mod policy;
mod progress;
mod reap;
pub mod rollback;
mod room;
mod shred;
mod shrink;
mod store;
mod symlink;
pub mod time;
mod travel;
mod types;
mod usage;
mod view;
mod volume;
mod xattr;

pub use access::Access;
pub use calls::NewSnapshot;
pub use done::Doing;
pub use error::{Error, Result};
pub use expunge::Remembered;
pub use history::split_time;
pub use listing::ListedCut;
pub use look::{Change, Deleted, Difference, Facts, Gone, Logged, SeenBy, What};
pub use past::{check_patterns, Cut, Forgetting, MissedVersions, User, UserLimits};
pub use pin::Pin;
pub use policy::PolicyInForce;
pub use progress::Progress;
pub use room::{Stays, WouldFree};
pub use shred::Shredded;
pub use types::{
    Asking, Attr, Behalf, Caller, DirItem, FallocateMode, MkfsOptions, MountOptions, PinnedBy, RenameMode,
    SeekTo, SetAttr, SetTime, SetXattrMode, Statfs, Stopped, VolumeInfo, WriteMode, DEFAULT_RULES,
};
pub use usage::{CutUsage, Held, StateUsage, UsageTotals};
pub use view::{Node, View};
pub use volume::{DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, Volume, Walk, WalkEntry};
pub use yore_format::{
    CutKind, CutMore, CutRow, CutState, Engine, FileKind, ForgottenFor, Incarnation, InodeFlags, InodeNo,
    KeepRules, Number, OperationKind, OperationRow, Policy, PolicyRow, Retention, RowClass, SpaceRules,
    Timestamp, Versioning, EXCLUDE_MAX, NAME_MAX,
};
#[cfg(feature = "mutations")]
pub use yore_meta::mutation;
pub use yore_meta::LogStatus;
