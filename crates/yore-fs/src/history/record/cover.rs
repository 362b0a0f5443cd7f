//! Which events cover which inodes: P1 and P5 of [`super`]. The memory for the answers is in `core/memo.rs`.

use super::past::Past;
use crate::{InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_core::inode::{InodeCell, DEPTH_MAX};
use yore_core::Core;
use yore_format::{Corruption, EventNo, Inode};
use yore_meta::Meta;

impl Past {
    /// The greatest event that covers the inode (P1). O(1) unless an event of a directory was taken, or a
    /// directory was moved, since the last call.
    ///
    /// # Errors
    /// Damage and device errors, from reading what is above the inode.
    pub(crate) fn cover(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<EventNo> {
        let last = EventNo(self.last.load(Ordering::Acquire));
        if last.0 == 0 {
            return Ok(last);
        }
        let epoch = self.epoch();
        if let Some(event) = cell.cover.get(epoch) {
            return Ok(event);
        }
        let above = self.cover_above(store, cell, inode, epoch)?;
        let above = self.round(above);
        // What is rounded down from an earlier event is no later one.
        let event = match inode.own_event <= above {
            true => above,
            false => self.round_own(cell.no, inode.own_event).max(above),
        };
        cell.cover.set(epoch, event);
        Ok(event)
    }

    /// What covers an inode by events of the directories above it, not yet rounded.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(super) fn cover_above(
        &self,
        store: &Core,
        cell: &InodeCell,
        inode: &Inode,
        epoch: u64,
    ) -> Result<EventNo> {
        Ok(if inode.links == 0 {
            EventNo(0)
        } else if self.only_root.load(Ordering::Acquire) {
            EventNo(self.root_event.load(Ordering::Acquire))
        } else if !inode.is_directory() && (inode.links > 1 || inode.parent == InodeNo::NONE) {
            EventNo(self.last_of_directories.load(Ordering::Acquire))
        } else if cell.no == InodeNo::ROOT {
            EventNo(0)
        } else {
            self.cover_of_directory(store, inode.parent, epoch)?
        })
    }

    /// The cover of a directory, without its lock; the caller may hold a lock that comes later.
    fn cover_of_directory(&self, store: &Core, no: InodeNo, epoch: u64) -> Result<EventNo> {
        let (mut path, mut at) = (Vec::new(), no);
        let mut event = loop {
            let Some(cell) = store.cell_if_used(at)? else {
                // This is damage, which other checks report. The last event of all may have covered it.
                break EventNo(self.last.load(Ordering::Acquire));
            };
            if let Some(event) = cell.cover.get(epoch) {
                break event;
            }
            // Before its own event, which may have come with the parent.
            let up = InodeNo(cell.cover.parent.load(Ordering::Acquire));
            path.push(cell);
            if up == at || up == InodeNo::NONE {
                break EventNo(0);
            }
            if path.len() > DEPTH_MAX {
                let c = Corruption::new("directory", "parent", "a way to the root", "a circle");
                return Err(c.of(no).into());
            }
            at = up;
        };
        for cell in path.iter().rev() {
            event = self.round(event.max(EventNo(cell.cover.own_event.load(Ordering::Relaxed))));
            cell.cover.set(epoch, event);
        }
        Ok(event)
    }

    /// Before the set of an inode's names changes: what covers the inode now goes on covering it (V4).
    /// Returns what covers its name, which is less for an excluded one.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn hold_cover(
        &self,
        store: &Core,
        cell: &InodeCell,
        inode: &mut Inode,
        excluded: bool,
    ) -> Result<EventNo> {
        if !self.is_any() {
            return Ok(inode.own_event);
        }
        let of_name = match excluded {
            true => Some(self.cover_asked(store, cell, inode)?),
            false => None,
        };
        inode.own_event = self.cover(store, cell, inode)?;
        Ok(of_name.unwrap_or(inode.own_event))
    }

    /// The last event of a directory up to a number that is kept, or may still be kept after a crash; 0 if
    /// there is none (P5).
    fn round(&self, event: EventNo) -> EventNo {
        self.numbers.read().directories.range(..=event).next_back().copied().unwrap_or_default()
    }

    /// As [`Past::round`], for an event of the inode itself: one of its own, or one of a directory, which the
    /// inode took along when it was moved.
    pub(crate) fn round_own(&self, no: InodeNo, event: EventNo) -> EventNo {
        let numbers = self.numbers.read();
        let of_directory = numbers.directories.range(..=event).next_back().copied();
        let own = numbers.files.range((no, EventNo(0))..=(no, event)).next_back().map(|(_, event)| *event);
        of_directory.max(own).unwrap_or_default()
    }

    /// The last event up to this one that also sees excluded files: one that somebody asked for, or one taken
    /// before the patterns began to exclude.
    fn round_asked(&self, event: EventNo) -> EventNo {
        let since = self.exclusions.since.load(Ordering::Acquire);
        let numbers = self.numbers.read();
        let asked = numbers.asked.range(..=event).next_back().copied();
        let before = since.checked_sub(1).map(|last| EventNo(last).min(event));
        let before = before.and_then(|last| numbers.directories.range(..=last).next_back().copied());
        asked.max(before).unwrap_or_default()
    }

    /// What covers an excluded inode: as [`Past::cover`], but among the events of directories above it only
    /// those that also see excluded files.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn cover_asked(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<EventNo> {
        if !self.is_any() {
            return Ok(EventNo(0));
        }
        let above = self.cover_above(store, cell, inode, self.epoch())?;
        Ok(self.round_own(cell.no, inode.own_event).max(self.round_asked(above)))
    }

    /// As [`Past::cover_asked`], for the names in a directory.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(super) fn cover_of_names(
        &self,
        store: &Core,
        directory: &InodeCell,
        inode: &Inode,
    ) -> Result<EventNo> {
        Ok(self.round_asked(self.cover(store, directory, inode)?))
    }

    /// Whether inodes and names may be missing as of a kept event, though directories name them: a policy
    /// took it, and a policy may have excluded them.
    pub(crate) fn may_miss(&self, meta: &Meta, event: EventNo) -> bool {
        // Giving a policy patterns gives the volume this feature first.
        if !meta.has_features(yore_format::WriteFeatures::EXTENDED_PAST) {
            return false;
        }
        let numbers = self.numbers.read();
        numbers.directories.contains(&event) && !numbers.asked.contains(&event)
    }

    /// Whether policies have taken an event of a directory at this number or later.
    pub(super) fn any_unasked_since(&self, number: EventNo) -> bool {
        let numbers = self.numbers.read();
        numbers.directories.range(number..).any(|event| !numbers.asked.contains(event))
    }

    /// Whether the inode is still as an event saw it, and no version of that state is kept yet.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn must_preserve(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<bool> {
        Ok(self.is_any() && inode.born <= self.cover(store, cell, inode)?)
    }
}
