//! File data: cached pages, delayed allocation, write-back, and everything that changes which blocks a file
//! has.
//!
//! A write goes to memory. What it will need on the medium is promised then ([`crate::core::alloc`]), so that
//! `NoSpace` is said to the writer and never later. Write-back takes blocks, writes the data, and *then* an
//! Op enters extents and size (rule 4: metadata names only data that has been written). Blocks that belong to
//! the present alone are overwritten in place without any Op. A file of up to 108 bytes without extents goes
//! into its inode.
//!
//! Invariants of a file (state lock unless said otherwise):
//! - **F1** `stored_size <= medium_size <= inode.size`. What lies beyond `medium_size` in a block on the
//!   medium is stale (a crash can leave there what was written before its size was), and reads of the block
//!   show zeros.
//! - **F2** Bytes of cached pages beyond `inode.size` are zero.
//! - **F3** If the size lies beyond the page in which `medium_size` ends, that page is dirty or being
//!   written, or the medium has nothing for it. So stale bytes are overwritten before the size passes them.
//! - **F4** A dirty page has a promise, or a block that its data may go to, or it is page 0 of a file that
//!   fits the inode.
//! - **F5** Extents in `doomed` are on their way out: their blocks count as holes.
//! - **F6** Extents, `medium_size` and `stored_size` change only with io held (io mutex, then state).
//! - **F7** `stored_size`, which stored inodes have, is a size that the file had. So a pass of write-back
//!   stores one size, at its end, however many Ops it takes to enter what was written.
//! - **F8** `logged_size` is set while the intent log may have data of the file that is not at home: then the
//!   file is among those that the cache knows as logged. `logged_size <= inode.size`, and no pass of
//!   write-back ends before it. An Op that truncates the file says so in the log; what a pass brought home is
//!   taken back from the log in the Op that stores its size. So no Op stores a size beyond what the log has
//!   of the file.
//! - **F9** No written extent begins beyond the page in which `medium_size` ends, or `unsure_beyond` is set.
//!   A pass enters extents before it stores the size that covers them, so a crash in the middle leaves some
//!   with what was to be there. Nobody sees them as long as the file does not grow; before it does they
//!   become unwritten ([`extents::settle_beyond`]).
//!
//! **Truncating** a file with many extents is a chain of Ops. The first sets the size and lists the inode
//! among the orphans, the last takes it off the list; a crash between them is finished by the next mount.
//! Meanwhile F5 hides what is left. `listed` says that the inode is in that list on behalf of such a chain:
//! whoever takes its last name must not list it again.
//!
//! What is in memory of a file, [`crate::core::pages::FileData`] with its pages, lies below inodes; this
//! module is what changes it.
//!
//! Locks: io → orphans → state → Op. Reservations are made with io held and state free; nobody a reservation
//! waits for takes io. Callers hold no lock and no reservation. No state lock is held across a device write;
//! a read from the device holds it, so that blocks do not change their meaning under the reader.

mod ahead;
mod batch;
mod extents;
mod flush;
mod group;
mod history;
mod hole;
mod logged;
mod map;
mod needs;
mod noted;
mod read;
mod relocate;
mod seek;
mod truncate;
mod write;
mod writeback;

#[cfg(test)]
mod tests;

pub(crate) use flush::{flush_file, is_written};
pub(crate) use group::{flush_all, flush_among_others};
pub(crate) use history::{History, Room};
pub(crate) use hole::fallocate;
pub(crate) use logged::{make_ready, restore};
pub(crate) use needs::{holes, missing};
pub(crate) use read::read;
pub(crate) use relocate::{blocks, relocate};
pub(crate) use seek::{copy_range, seek};
pub(crate) use truncate::{forget, free_step, truncate, GoesWithEvent};
pub(crate) use write::write;
pub(crate) use writeback::round;
