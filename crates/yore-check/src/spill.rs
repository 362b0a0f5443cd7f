//! Lists that may outgrow memory. Each list has a share of the memory that a check may use. What does not fit
//! into the share goes to an unnamed temporary file.
//!
//! There are three kinds of lists, by how they are used. [`Paged`] has records of one size, which are found
//! by key and changed in place. [`Sorter`] takes records of any size and becomes a [`Sorted`] list, which is
//! iterated over or searched. [`Stream`] is written once and read from its beginning.
//!
//! A list works with any share, however small: it uses at least a few pages. A list that fits into its share
//! creates no file. Temporary files are in the directory that `TMPDIR` names, or in `/tmp`. They have no
//! names, so nothing is left of them, however the check ends.

mod overflow;
mod paged;
mod sorted;
mod stream;

pub(crate) use paged::{Paged, Record};
pub(crate) use sorted::{Cursor, Sorted, Sorter};
pub(crate) use stream::Stream;

/// The memory that a check may use, and its parts.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    all: u64,
}

impl Room {
    /// For a check that may use so many bytes.
    pub(crate) fn new(all: u64) -> Room {
        Room { all }
    }

    /// For blocks that are held: a half.
    pub(crate) fn blocks(self) -> u64 {
        self.all / 2
    }

    /// For the inodes in use: five thirty-seconds.
    pub(crate) fn inodes(self) -> usize {
        bytes(self.all / 32 * 5)
    }

    /// For the versions of all inodes, which are most of the past: an eighth.
    pub(crate) fn versions(self) -> usize {
        bytes(self.all / 8)
    }

    /// For each other list, of which no more than seven grow at a time.
    pub(crate) fn list(self) -> usize {
        bytes(self.all / 32)
    }

    /// For each list of one of so many workers of the fast pass, where all blocks are held: eight lists have
    /// a sixteenth, which is what the blocks, the past and the list of directories leave.
    pub(crate) fn list_beside_held(self, workers: usize) -> usize {
        bytes(self.all / 128 / workers.max(1) as u64)
    }

    /// For each list of one of so many workers of the fast pass. It may be more than [`Room::list`], because
    /// the fast pass holds hardly any blocks.
    pub(crate) fn list_of_worker(self, workers: usize) -> usize {
        bytes(self.all / 8 / workers.max(1) as u64)
    }
}

fn bytes(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
