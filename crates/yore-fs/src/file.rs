//! File data: cached pages, delayed allocation, write-back, and everything that changes which blocks a file
//! has.
//!
//! A write goes to memory. At that time it gets a promise of what it will need on the medium
//! ([`yore_core::alloc`]), so that the writer gets `NoSpace`, and nobody gets it later. Write-back takes
//! blocks, writes the data, and *then* an Op enters extents and size (rule 4: metadata names only data that
//! has been written). Blocks that belong to the present alone are overwritten in place without any Op. A file
//! of up to 108 bytes without extents goes into its inode.
//!
//! Invariants of a file (state lock unless said otherwise):
//! - **F1** `stored_size <= medium_size <= inode.size`. Bytes of a block on the medium beyond `medium_size`
//!   are stale (a crash can leave there what was written before its size was), and reads of the block show
//!   zeros.
//! - **F2** Bytes of cached pages beyond `inode.size` are zero.
//! - **F3** If the size lies beyond the page in which `medium_size` ends, that page is dirty or being
//!   written, or the medium has nothing for it. So stale bytes are overwritten before the size passes them.
//! - **F4** A dirty page has a promise, or a block to which its data may go, or it is page 0 of a file that
//!   fits the inode.
//! - **F5** Extents in `doomed` are on their way out: their blocks count as holes.
//! - **F6** Extents, `medium_size` and `stored_size` change only with io held (io mutex, then state).
//! - **F7** `stored_size`, which stored inodes have, is a size that the file had. So a pass of write-back
//!   stores one size, at its end, however many Ops it takes to enter what was written.
//! - **F8** `logged_size` is set while the intent log may have data of the file that is not at home: then the
//!   file is among those that the cache knows as logged. `logged_size <= inode.size`, and no pass of
//!   write-back ends before it. An Op that truncates the file says so in the log. What a pass brought home is
//!   taken back from the log in the Op that stores the size of the pass. So no Op stores a size beyond what
//!   the log has of the file.
//! - **F9** No written extent begins beyond the page in which `medium_size` ends, or `unsure_beyond` is set.
//!   A pass enters extents before it stores the size that covers them, so a crash in the middle leaves some
//!   extents with the data that was to be there. Nobody sees them as long as the file does not grow; before
//!   it grows they become unwritten ([`extents::settle_beyond`]).
//!
//! **Truncating** a file with many extents is a chain of Ops. The first sets the size and lists the inode
//! among the orphans, the last takes it off the list; the next mount finishes the chain if a crash comes
//! between them. Meanwhile F5 hides the extents that are left. `listed` says that the inode is in that list
//! because of such a chain, also one that a mount could not finish: whoever removes its last name, or begins
//! another chain, must not list it again.
//!
//! What memory has of a file, [`yore_core::pages::FileData`] with its pages, lies below inodes; this module
//! changes it.
//!
//! Locks: io → orphans → state → Op. Reservations are made with io held and state free; no thread for which a
//! reservation waits takes io. Callers hold no lock and no reservation. No state lock is held across a device
//! write. A read from the device holds it, so that blocks do not change their meaning under the reader.

mod ahead;
mod batch;
mod checksum;
mod clone;
mod defrag;
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
mod tidy;
mod truncate;
mod write;
mod writeback;

#[cfg(test)]
mod tests;

pub(crate) use checksum::{each_missing, enter_missing, enter_missing_of_version, Entered};
pub(crate) use clone::{clone_step, is_in_blocks, make_tables, prepare_clone, Cloned, Source};
pub(crate) use defrag::{lay_together, stretch, Laid, PIECES, STRETCH};
pub(crate) use flush::{flush_file, is_written};
pub(crate) use group::{flush_all, flush_late};
pub(crate) use history::{History, Room};
pub(crate) use hole::fallocate;
pub(crate) use logged::{make_ready, restore, try_make_ready};
pub(crate) use needs::{holes, missing};
pub(crate) use read::read;
pub(crate) use relocate::{blocks, relocate, Copies, Owner};
pub(crate) use seek::seek;
pub(crate) use tidy::{tidy, Tidied, Tidying};
pub(crate) use truncate::{forget, free_step, truncate, GoesWithTruncation};
pub(crate) use write::write;
pub(crate) use writeback::round;
