//! The inodes that the two names of a rename mean.

use super::super::create::name_at;
use super::super::remove::PreparedRemoval;
use crate::dir::Found;
use crate::store::Store;
use crate::InodeNo;
use std::sync::Arc;
use std::time::Duration;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::locks::{Locked, Writing};
use yore_format::{DirEntry, EventNo, Incarnation, Timestamp};

/// An inode that one of the names means, with its state locked.
pub(super) struct Child<'a> {
    pub(super) name: Found,
    pub(super) cell: &'a Arc<InodeCell>,
    pub(super) state: Writing<'a, InodeState>,
    /// Held if no other thread had it.
    pub(super) io: Option<Locked<'a>>,
    /// What covers the name, and whether that is excluded.
    pub(super) covered: (EventNo, bool),
    /// Its version ends with the call, and is kept in the Op of the call.
    pub(super) ends: bool,
}

impl<'a> Child<'a> {
    pub(super) fn new(
        store: &Store,
        name: Found,
        cell: &'a Arc<InodeCell>,
        state: Writing<'a, InodeState>,
    ) -> Child<'a> {
        // This lock is only tried, so it may come after the states. If it came before, it would be held while
        // this waits for the state of another directory.
        let io = cell.io.try_lock();
        Child { name: name.detach(store), cell, state, io, covered: (EventNo(0), false), ends: false }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.state.inode.is_directory()
    }

    /// The entry that means the inode from now on.
    pub(super) fn entry<'n>(&self, birth: EventNo, name: &'n [u8]) -> DirEntry<'n> {
        let (inode, incarnation) = (self.cell.no, self.cell.incarnation);
        DirEntry { inode, incarnation, birth, kind: self.name.kind, name }
    }

    /// Notes in the inode that its name is in another place. The caller stores the inode.
    pub(super) fn change_parent(
        &mut self,
        directory: InodeNo,
        incarnation: Incarnation,
        cookie: u64,
        now: Timestamp,
    ) {
        name_at(&mut self.state.inode, directory, incarnation, cookie);
        self.cell.cover.follow(&self.state.inode);
        self.state.inode.ctime = now;
    }
}

/// Intervals that wait for the call.
pub(super) type Waits = Vec<(InodeNo, Duration)>;

/// An inode that loses the new name, and how its removal ends.
pub(super) type Replaced<'a> = (Child<'a>, PreparedRemoval<'a>);
