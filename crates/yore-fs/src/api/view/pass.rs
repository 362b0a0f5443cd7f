//! How calls on the present pass the gate ([`crate::history::gate`]): which inodes each of them concerns.

use super::below::{inode_named, is_below};
use super::handle::View;
use crate::history::gate::Passage;
use crate::store::Store;
use crate::{InodeNo, Result};
use std::sync::Arc;

impl View {
    #[inline]
    fn pass(&self, concerns: impl Fn(&Arc<Store>, InodeNo) -> Result<bool>) -> Result<Option<Passage>> {
        match self.at.is_some() || self.inside {
            true => Ok(None),
            false => self.store().gate.enter(|directory| concerns(self.store(), directory)).map(Some),
        }
    }

    /// For a call on an inode: waits while the inode is rolled back.
    #[inline]
    pub(crate) fn enter(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| is_below(store, no, directory))
    }

    /// For a call on two inodes.
    #[inline]
    pub(crate) fn enter_both(&self, a: InodeNo, b: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| Ok(is_below(store, a, directory)? || is_below(store, b, directory)?))
    }

    /// For a call on names, which also concerns the inodes that they mean.
    #[inline]
    pub(crate) fn enter_names(&self, names: &[(InodeNo, &[u8])]) -> Result<Option<Passage>> {
        self.pass(|store, directory| {
            for (no, name) in names {
                if is_below(store, *no, directory)? {
                    return Ok(true);
                }
                if let Some(found) = inode_named(store, *no, name)? {
                    if is_below(store, found, directory)? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
    }

    /// For a call on the names of a directory and on all that they mean.
    #[inline]
    pub(crate) fn enter_listing(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| {
            // A file with several names may be in any directory, so nothing more is known than that the
            // entries of this directory may change.
            Ok(is_below(store, no, directory)? || store.cell(directory)?.state.read().inode.parent == no)
        })
    }

    /// For a call on an inode and everything below it.
    #[inline]
    pub(crate) fn enter_around(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| Ok(is_below(store, no, directory)? || is_below(store, directory, no)?))
    }
}
