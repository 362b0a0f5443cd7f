//! Which cuts cover whom: P1 and P5 of [`super`]. What is remembered of the answers is in `core/memo.rs`.

use super::past::Past;
use crate::core::inode::{InodeCell, DEPTH_MAX};
use crate::core::Core;
use crate::{Error, InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_format::{Corruption, Inode, Number};
use yore_meta::Meta;

impl Past {
    /// The greatest cut that covers the inode (P1). O(1) unless a directory was cut or moved since it was asked last.
    ///
    /// # Errors
    /// Reading what is above it may fail.
    pub(crate) fn cover(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<Number> {
        let last = Number(self.last.load(Ordering::Acquire));
        if last.0 == 0 {
            return Ok(last);
        }
        let epoch = self.epoch();
        if let Some(cut) = cell.cover.get(epoch) {
            return Ok(cut);
        }
        let above = self.cover_above(store, cell, inode, epoch)?;
        let cut = self.round_own(cell.no, inode.own_cut).max(self.round(above));
        cell.cover.set(epoch, cut);
        Ok(cut)
    }

    /// What covers an inode with all that is below a directory above it, not yet rounded.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(super) fn cover_above(
        &self,
        store: &Core,
        cell: &InodeCell,
        inode: &Inode,
        epoch: u64,
    ) -> Result<Number> {
        Ok(if inode.links == 0 {
            Number(0)
        } else if self.only_root.load(Ordering::Acquire) {
            Number(self.root_cut.load(Ordering::Acquire))
        } else if !inode.is_directory() && (inode.links > 1 || inode.parent == InodeNo::NONE) {
            Number(self.last_of_directories.load(Ordering::Acquire))
        } else if cell.no == InodeNo::ROOT {
            Number(0)
        } else {
            self.cover_of_directory(store, inode.parent, epoch)?
        })
    }

    /// The cover of a directory, without its lock; who asks may hold one that comes later.
    fn cover_of_directory(&self, store: &Core, no: InodeNo, epoch: u64) -> Result<Number> {
        let (mut path, mut at) = (Vec::new(), no);
        let mut cut = loop {
            let cell = match store.cell(at) {
                Ok(cell) => cell,
                // Damage, which others will tell. Whatever was cut last may have covered it.
                Err(Error::Stale) => break Number(self.last.load(Ordering::Acquire)),
                Err(e) => return Err(e),
            };
            if let Some(cut) = cell.cover.get(epoch) {
                break cut;
            }
            let up = InodeNo(cell.cover.parent.load(Ordering::Relaxed));
            path.push(cell);
            if up == at || up == InodeNo::NONE {
                break Number(0);
            }
            if path.len() > DEPTH_MAX {
                let c = Corruption::new("directory", "parent", "a way to the root", "a circle");
                return Err(c.of(no).into());
            }
            at = up;
        };
        for cell in path.iter().rev() {
            cut = self.round(cut.max(Number(cell.cover.own_cut.load(Ordering::Relaxed))));
            cell.cover.set(epoch, cut);
        }
        Ok(cut)
    }

    /// Before the set of an inode's names changes: what covers it now goes on to (V4). What covers its name is returned, which is less for
    /// one that is excluded.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn hold_cover(
        &self,
        store: &Core,
        cell: &InodeCell,
        inode: &mut Inode,
        excluded: bool,
    ) -> Result<Number> {
        if !self.is_any() {
            return Ok(inode.own_cut);
        }
        let of_name = match excluded {
            true => Some(self.cover_asked(store, cell, inode)?),
            false => None,
        };
        inode.own_cut = self.cover(store, cell, inode)?;
        Ok(of_name.unwrap_or(inode.own_cut))
    }

    /// The last cut of a directory up to a number that is kept, or may yet be after a crash; 0 if there is none (P5).
    fn round(&self, cut: Number) -> Number {
        self.numbers.read().directories.range(..=cut).next_back().copied().unwrap_or_default()
    }

    /// The same of a cut of the inode itself: one of a directory, which it took along when it was moved, or one of its own.
    pub(crate) fn round_own(&self, no: InodeNo, cut: Number) -> Number {
        let numbers = self.numbers.read();
        let of_directory = numbers.directories.range(..=cut).next_back().copied();
        let own = numbers.files.range((no, Number(0))..=(no, cut)).next_back().map(|(_, cut)| *cut);
        of_directory.max(own).unwrap_or_default()
    }

    /// The last kept cut up to this one that sees what is excluded, too: one that somebody asked for, or of before it was excluded.
    fn round_asked(&self, cut: Number) -> Number {
        let since = self.exclusions.since.load(Ordering::Acquire);
        let numbers = self.numbers.read();
        let asked = numbers.asked.range(..=cut).next_back().copied();
        let before = since.checked_sub(1).map(|last| Number(last).min(cut));
        let before = before.and_then(|last| numbers.directories.range(..=last).next_back().copied());
        asked.max(before).unwrap_or_default()
    }

    /// What covers an inode that is excluded: as [`Past::cover`], but of the cuts that cover it with all that is below a directory only those
    /// that see what is excluded.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn cover_asked(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<Number> {
        if !self.is_any() {
            return Ok(Number(0));
        }
        let above = self.cover_above(store, cell, inode, self.epoch())?;
        Ok(self.round_own(cell.no, inode.own_cut).max(self.round_asked(above)))
    }

    /// The same of a name in a directory.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(super) fn cover_of_names(
        &self,
        store: &Core,
        directory: &InodeCell,
        inode: &Inode,
    ) -> Result<Number> {
        Ok(self.round_asked(self.cover(store, directory, inode)?))
    }

    /// Whether inodes and names may be missing as of a kept cut, though directories name them: a policy took it, and one may have excluded
    /// them.
    pub(crate) fn may_miss(&self, meta: &Meta, cut: Number) -> bool {
        // Who gives a policy patterns gives the volume this before.
        if !meta.has_features(yore_format::WriteFeatures::EXTENDED_PAST) {
            return false;
        }
        let numbers = self.numbers.read();
        numbers.directories.contains(&cut) && !numbers.asked.contains(&cut)
    }

    /// Whether policies have taken a cut of a directory at this number or later.
    pub(super) fn any_unasked_since(&self, number: Number) -> bool {
        let numbers = self.numbers.read();
        numbers.directories.range(number..).any(|cut| !numbers.asked.contains(cut))
    }

    /// Whether the inode is as a cut saw it, and no version says so yet.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn must_keep(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<bool> {
        Ok(self.is_any() && inode.born <= self.cover(store, cell, inode)?)
    }
}
