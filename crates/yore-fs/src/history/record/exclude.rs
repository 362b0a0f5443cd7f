//! Patterns of policies, compiled, and what memory knows of whom they exclude. [`crate::history::exclude`]
//! says what that means.

use super::past::Past;
use crate::{Error, Result};
use hashbrown::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_core::memo::Patterns;
use yore_core::Core;
use yore_meta::Meta;

impl Past {
    /// Whether any policy excludes anything.
    pub(crate) fn has_exclusions(&self) -> bool {
        self.exclusions.any.load(Ordering::Acquire)
    }

    /// Changes whenever the inodes that policies exclude may change, except for renames of non-directories.
    pub(crate) fn exclusion_epoch(&self) -> u64 {
        self.exclusions.epoch.load(Ordering::Acquire)
    }

    /// A directory gets another name. Called inside the Op that renames it.
    pub(crate) fn note_renamed_directory(&self) {
        if self.has_exclusions() {
            self.exclusions.changed();
        }
    }

    /// The patterns of this inode's own policy; `None` if it does not say `exclude`.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn patterns(&self, meta: &Meta, cell: &InodeCell) -> Result<Option<Arc<Patterns>>> {
        if !cell.cover.has_policy.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let epoch = self.policy_epoch();
        {
            let mut compiled = self.exclusions.compiled.lock();
            if compiled.0 != epoch {
                *compiled = (epoch, HashMap::new());
            }
            if let Some(known) = compiled.1.get(&cell.no) {
                return Ok(Some(known.clone()));
            }
        }
        let Some(own) = self.policy(meta, cell.no, cell.incarnation)?.and_then(|own| own.exclude) else {
            return Ok(None);
        };
        let patterns = Arc::new(Patterns::new(cell.no, &own));
        let mut compiled = self.exclusions.compiled.lock();
        if compiled.0 == epoch {
            compiled.1.insert(cell.no, patterns.clone());
        }
        Ok(Some(patterns))
    }

    /// Reads which policies exclude something.
    pub(super) fn load_exclusions(&self, meta: &Meta) -> Result<()> {
        self.each_policy(meta, &mut |no, row| {
            self.exclusions.note(no, Some(&row));
            Ok(true)
        })
    }

    /// Called before the patterns of a directory's policy come to exclude more than they did: events that
    /// policies took until now also see what the patterns will exclude. Does nothing if there is no such
    /// event since the policy's `excluding_since`.
    ///
    /// # Errors
    /// As [`Past::set_policy`].
    pub(crate) fn exclude_anew(&self, store: &Core, cell: &InodeCell) -> Result<()> {
        let row = self.policy_row(&store.meta, cell.no, cell.incarnation)?;
        let Some(row) = row.filter(|row| row.policy.exclude.is_some()) else { return Ok(()) };
        if !self.any_unasked_since(row.excluding_since) {
            return Ok(());
        }
        match self.set_policy_anew(store, cell, &row.policy, None, None) {
            // The inode is gone, and what it excluded with it.
            Err(Error::NotFound) => Ok(()),
            set => set.map(drop),
        }
    }

    /// Called inside the Op in which an inode is born anew without a version.
    pub(crate) fn note_renewed(&self, cell: &InodeCell) {
        let renewed = self.exclusions.renewed.fetch_add(1, Ordering::AcqRel) + 1;
        cell.cover.excluded.renewed.store(renewed, Ordering::Release);
    }

    /// Called before blocks of such inodes are overwritten; `newest` is their greatest position
    /// ([`ExcludedMemo::renewed`]). Makes it durable that these inodes were born anew. Otherwise a crash
    /// could leave an inode that claims to be as it was as of an event, with later data.
    ///
    /// # Errors
    /// Those of writing to the medium.
    pub(crate) fn settle_renewed(&self, meta: &Meta, newest: u64) -> Result<()> {
        if newest <= self.exclusions.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let upto = self.exclusions.renewed.load(Ordering::Acquire);
        meta.force()?;
        self.exclusions.durable.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }
}
