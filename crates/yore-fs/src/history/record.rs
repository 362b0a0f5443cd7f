//! Keeping what was: events, versions of inodes, and names that mean something else now.
//!
//! Taking an event takes a number and does nothing else ([`Past::event`]). What the event covers is kept at
//! its first change afterwards. The inode as it was goes to the tree of versions, and the inode in use is
//! *born* anew, with the number that the next event will take ([`Recording::inode`]). A name that is removed
//! or comes to mean something else goes to the tree of past names ([`Recording::name`]). So a version or past
//! name with birth b and end e shows the state as of every event n with b ≤ n < e.
//!
//! **P1 Cover** ([`Past::cover`], V4). The cover of an inode is the greatest among its own events
//! and those of the directory that has its name, and so on upwards. Each inode in memory remembers its cover
//! until an event of a directory is taken or a directory is moved ([`Past::epoch`]). For a file of several
//! names, not all of whose directories are known, the cover is the volume's last event. For a file without a
//! name, it is what it was when the file lost its last name. Too great a cover costs space; too small a one
//! would lose what was.
//!
//! **P2 No event between the look and the change.** A caller that is about to change an inode takes the
//! epoch, and then looks, with the state of the inode locked, whether the version that it is about to change
//! has been kept. The Op opens only if the epoch is still the same ([`Past::begin`]); otherwise the caller
//! looks at everything again. Events are taken in an Op that runs alone. For a change in memory only (a
//! write), the look under the state lock is enough: the change belongs before an event that comes in between,
//! because a reader as of that event waits for the lock.
//!
//! Whatever is stamped with the present number (entries, new inodes and their nodes) is made in Ops that are
//! opened so. Everything that an inode gains later is stamped with the first number after its newest version:
//! on whichever side of an event it lies, the next version, which ends after that event, has it.
//!
//! **P3 What is shared** (V8). A version keeps the blocks and nodes that it refers to. The inode in use
//! refers to most of them, too: to all of its own that were born before its newest version ended
//! ([`InodeState::kept`]). It neither overwrites nor frees these.
//!
//! **P4 Data first.** A version says what its blocks hold, so the file is written back before the version is
//! kept; `history/preserve.rs` sees to that.
//!
//! **P5 Dead events cover nothing.** The cover of an inode is rounded down to the last event, of whatever
//! directory, that is kept, or is dying and not so on the medium ([`Past::round`], V4): an event remembered
//! here may be gone, and one before it may have covered the same. Events that die change the epoch like those
//! that are taken, so a caller that is about to keep something for them looks again.
//! [`crate::history::reclaim::forget`] says how what only they have seen is given up.
//!
//! **P6 Nobody reads what goes.** A reader as of an event holds a lock ([`Past::see`]) that is needed to make
//! an event invisible.
//!
//! **P7 Events of single files** (close policies, V1) cover nothing else, so they need not be alone: they are
//! taken with the file's state locked, and leave the epoch as it is. They do not cover other changes that
//! were prepared with the same number; the event after them sees these. Each Op has one number for everything
//! that it ends and begins. A file's own events also keep the names that it had then (V7): a name goes to the
//! past if an event of its directory, or one that covers the inode, has seen it.
//!
//! All roots are in one block, which is made with the first event or policy and stays in memory. The trees of
//! versions, names and changes are in sixteen shards by inode and by directory (`first.rs`). A shard's lock
//! is taken after all states. A writer holds it from the search for a place until the Op has ended, and a
//! reader while it walks a tree. Callers know none of these trees: they ask what an inode was (`states.rs`),
//! what a name meant (`past_names.rs`), and what ended when (`ends.rs`).

mod annals;
mod backlog;
mod cover;
mod due;
mod ended;
mod ends;
mod entry;
mod estimates;
mod event;
mod exclude;
mod exclusions;
mod expunge;
mod expunging;
mod first;
mod forget;
mod forgotten;
mod kept;
mod lately;
mod missed;
mod names;
mod numbers;
mod old;
mod open;
mod operations;
mod past;
mod past_names;
mod pinned;
mod policies;
mod recording;
mod rollback;
mod shard;
mod slot;
mod space;
mod spans;
mod states;
mod table;
mod take;
#[cfg(test)]
mod tests;
mod unfinished;
mod users;
mod versions;

pub(crate) use due::Due;
pub(crate) use ended::{Ended, EndedRow, LeavingRow};
pub(crate) use ends::{EndedBatch, EndsWalk};
pub(crate) use entry::PastEntry;
pub(crate) use estimates::{Answer, Estimates, Most};
pub use event::Event;
pub(crate) use event::{held, is_held};
pub use exclusions::check_patterns;
pub(crate) use expunge::ROW_BLOCKS;
pub(crate) use expunging::Expunge;
pub(crate) use forget::Ask;
pub use forget::Forgetting;
pub(crate) use kept::{Kept, Seers, Span, ELSEWHERE};
pub use missed::MissedVersions;
pub(crate) use missed::{is_full, Missed};
pub(crate) use old::{OldName, OldVersion};
pub(crate) use past::{Past, Seeing};
pub(crate) use past_names::NamesWalk;
pub(crate) use recording::{Prepared, Recording};
pub(crate) use spans::{Chain, Events, Making, SpanTable, Spans, Table};
pub(crate) use states::VersionsWalk;
pub(crate) use take::Taking;
pub(crate) use unfinished::Unfinished;
pub(crate) use users::Counted;
pub use users::{User, UserLimits};
pub(crate) use versions::Versions;
