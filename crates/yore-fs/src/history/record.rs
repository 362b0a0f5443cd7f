//! Keeping what was: events, versions of inodes, and names that mean something else now.
//!
//! An event takes a number and nothing else ([`Past::event`]). What it covers is kept at its first change
//! afterwards: the inode as it was goes to the tree of versions, and the inode in use is *born* anew, at the
//! number that the next event will take ([`Keep::inode`]); a name that is removed or comes to mean something
//! else goes to the tree of past names ([`Keep::name`]). So what has birth b and end e is what was as of
//! every event n with b ≤ n < e.
//!
//! **P1 Who is covered** ([`Past::cover`], V4). The greatest event of an inode is that of its own or of the
//! directory that has its name, and so on upwards. Each inode in memory remembers it, until an event of a
//! directory is taken or one is moved ([`Past::epoch`]). For a file of several names, whose directories are
//! not all known, it is the volume's last event; for one without, what it was when it lost the last. Too
//! great an event costs space, one too small would lose what was.
//!
//! **P2 No event between looking and changing.** Whoever changes an inode looks, with its state locked,
//! whether the version that it is about to change has been kept; and takes the epoch before. The Op is opened
//! only if the epoch is still that one ([`Past::begin`]); events are taken in an Op that is alone. Otherwise
//! all is looked at again. What changes in memory only (a write) is looked at under the state lock: it
//! belongs before an event that comes between, for whoever reads as of that event waits for the lock.
//!
//! What is stamped with the present number (entries, new inodes and their nodes) is made in Ops that are
//! opened so. All that an inode gains later is stamped with the first number after its newest version:
//! whichever side of an event it lies on, the next version, which ends behind that event, has it.
//!
//! **P3 What is shared** (V8). A version keeps the blocks and nodes that it names. The inode in use names
//! most of them, too: all of its own that were born before its newest version ended ([`InodeState::kept`]).
//! These it neither overwrites nor frees.
//!
//! **P4 Data first.** A version says what its blocks hold, so the file is written back before it is kept;
//! `history/preserve.rs` sees to that.
//!
//! **P5 Dead events cover nothing.** What covers an inode is rounded down to the last event that is kept, or
//! dying and not so on the medium ([`Past::round`], V4), whatever it is of: an event remembered here may be
//! gone, and one before it may have covered the same. Events that die change the epoch like those that are
//! taken, so who was about to keep something for them looks again. How what they alone have seen is given up
//! is in [`crate::history::reclaim::forget`].
//!
//! **P6 Nobody reads what goes.** Who reads as of an event holds a lock ([`Past::see`]) that an event needs
//! to become invisible.
//!
//! **P7 Events of single files** (close policies, V1) cover nobody else, so they need not be alone: they are
//! taken with the file's state locked, and leave the epoch as it is. Others that had made ready with the
//! number that it takes are not covered by it, and the event after that sees what they make. Each Op has one
//! number for all that it ends and begins. A file's own events also keep the names that it had then (V7): a
//! name goes to the past if an event of its directory has seen it, or one that covers the inode.
//!
//! All roots are in one block, which is made with the first event or policy and stays in memory. The trees of
//! versions, names and changes are in sixteen shards by inode and by directory; a shard's lock is taken after
//! all states, and held for writing from looking for a place until the Op has ended, for reading as long as a
//! tree is walked.

mod cover;
mod due;
mod entry;
mod estimates;
mod event;
mod exclude;
mod exclusions;
mod expunge;
mod expunging;
mod forget;
mod keep;
mod lately;
mod missed;
mod names;
mod numbers;
mod open;
mod operations;
mod past;
mod past_names;
mod pinned;
mod policies;
mod rollback;
mod shard;
mod slot;
mod space;
mod table;
mod take;
#[cfg(test)]
mod tests;
mod unfinished;
mod users;
mod versions;

pub(crate) use due::Due;
pub(crate) use entry::PastEntry;
pub(crate) use estimates::{Answer, Estimates, Most};
pub use event::Event;
pub(crate) use event::{held, is_held};
pub use exclusions::check_patterns;
pub(crate) use expunge::ROW_BLOCKS;
pub(crate) use expunging::Expunge;
pub use forget::Forgetting;
pub(crate) use forget::{Ask, Ended};
pub(crate) use keep::{Keep, OldName, OldVersion};
pub use missed::MissedVersions;
pub(crate) use missed::{is_full, Missed};
pub(crate) use past::{Past, Seeing, VERSION_BLOCKS};
pub(crate) use take::Taking;
pub(crate) use unfinished::Unfinished;
pub(crate) use users::Counted;
pub use users::{User, UserLimits};
pub(crate) use versions::Versions;
