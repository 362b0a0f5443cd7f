//! Makes the volume longer or shorter, while others use it.
//!
//! One Op changes the medium (`yore-meta`'s `resize.rs`). In memory the length changes first, then the
//! blocks. So a caller that gets a block beyond the old end finds it within the volume. `grow` is held, so
//! nobody makes a zone or begins to use a group by the old length meanwhile; the last group stays loaded, so
//! nobody compares its bitmap with an old summary.
//!
//! **Shorter** takes two steps, between which `yore-fs`'s `api/shrink.rs` moves what can move.
//! [`Alloc::close_end`] takes all free blocks beyond the new end; blocks that are freed there later are taken
//! when they come back. These blocks do not count as free when room is promised, so every promise is of
//! blocks before the end. [`ClosedEnd::truncate`] checks that every block beyond is taken, and makes the Op.

use super::groups::{check_bits, mark, PinnedGroups};
use super::promise::{index_room, nodes_for, NODES_SPARE};
use super::space::{Alloc, Run, REGION};
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MIN, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{BitmapRef, BlockKind, BlockNo, GroupNo, BLOCK_SIZE};
use yore_meta::{Meta, Reserved};

impl Alloc {
    /// Makes the volume `bytes` long, or as long as its groups allow. The change is durable when this
    /// returns. Returns whether the volume was shorter.
    ///
    /// # Errors
    /// Those of [`Meta::prepare_growth`]; damage in the last group's bitmap; device errors.
    pub fn lengthen(&self, meta: &Meta, bytes: u64) -> Result<bool> {
        let new = meta.prepare_growth(bytes)?;
        let _grow = self.grow.lock();
        // Another thread may have been faster.
        let old = meta.geometry();
        if new.blocks <= old.blocks {
            return Ok(false);
        }
        let last = GroupNo(old.groups() - 1);
        let (end, new_end) = (old.data_blocks(last) as u32, new.data_blocks(last) as u32);
        let added = new_end - end;
        let unused: u64 = (old.groups()..new.groups()).map(|group| new.data_blocks(GroupNo(group))).sum();
        let is_used = meta.group_summary(last)?.initialised;
        let mut pinned = PinnedGroups::default();
        let loaded = match is_used && added > 0 {
            true => {
                let pinned = self.pin_group(meta, last, &mut pinned.groups)?;
                check_bits(&new, last, &pinned.frame, end, added, true)?;
                Some((pinned.group.clone(), pinned.frame.clone()))
            }
            false => None,
        };
        let more = if loaded.is_some() { unused } else { unused + u64::from(added) };
        {
            let mut op = meta.begin_alone(Reserved::none());
            op.lengthen(new, more);
            if let Some((_, frame)) = &loaded {
                mark(&mut op, frame, &[(end, added)], false);
                op.count_free_blocks(last, i64::from(added));
            }
        }
        self.volume_blocks.store(new.blocks, Ordering::Release);
        if let Some((group, _)) = &loaded {
            group.state.lock().put_back(end, added);
            self.note_available(last, group);
        }
        self.unpromised.fetch_add((unused + u64::from(added)) as i64, Ordering::Relaxed);
        for region in [last.0 / REGION, (new.groups() - 1) / REGION] {
            self.regions.get(region).reclaimed.fetch_add(1, Ordering::Release);
        }
        meta.sync()?;
        Ok(true)
    }

    /// Takes all that is free where the volume is about to end, so that nothing more is put there. The caller
    /// has made sure that no block is on its way, and that nobody else changes the volume.
    ///
    /// # Errors
    /// [`Error::Refused`] if the volume would be too short, or if somebody else is making it shorter;
    /// `NoSpace` if somebody was promised what is free there; damage and device errors.
    pub fn close_end<'a>(&'a self, meta: &'a Meta, new: Geometry) -> Result<ClosedEnd<'a>> {
        let old = meta.geometry();
        if new.blocks < VOLUME_BLOCKS_MIN {
            let least = VOLUME_BLOCKS_MIN * BLOCK_SIZE as u64;
            return Err(Error::Refused(format!("a volume has at least {least} bytes")));
        }
        let _grow = self.grow.lock();
        // What moves may go to the group in which the volume is to end. It must have its bitmap now: whoever
        // made it later would get the blocks beyond the end with it.
        let last = GroupNo(new.groups() - 1);
        if new.data_blocks(last) < old.data_blocks(last) && !meta.is_initialised(last)? {
            self.initialise_locked(meta, last)?;
        }
        let from = &self.closed_from;
        if from.compare_exchange(u64::MAX, new.blocks, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(Error::Refused("the volume is being made shorter already".into()));
        }
        self.recall();
        let mut end = ClosedEnd { alloc: self, meta, old, new, unused: 0 };
        for group in end.groups() {
            let (from, to) = end.part(group);
            if from >= to {
                continue;
            }
            if !meta.group_summary(group)?.initialised {
                end.unused += u64::from(to - from);
                self.unpromised.fetch_sub(i64::from(to - from), Ordering::Relaxed);
                continue;
            }
            let (loaded, _) = self.load(meta, group)?;
            let mut state = loaded.state.lock();
            let mut at = from;
            while let Some((bit, _)) = state.next_run(at, 1).filter(|(bit, _)| *bit < to) {
                let len = state.take(bit, to - bit, true);
                self.beyond.lock().push(Run { start: old.block_of(group, bit), len });
                self.unpromised.fetch_sub(i64::from(len), Ordering::Relaxed);
                at = bit + len;
            }
            drop(state);
            self.note_available(group, &loaded);
        }
        // What was promised must also find room before the end.
        if self.unpromised.load(Ordering::Relaxed) < 0 {
            return Err(Error::NoSpace);
        }
        Ok(end)
    }

    /// The fewest blocks that the volume could have now, if everything in `own` may move.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn least(&self, meta: &Meta, own: &mut [Run]) -> Result<u64> {
        let old = meta.geometry();
        own.sort_unstable_by_key(|run| run.start.0);
        let moves = |block: u64| {
            let at = own.partition_point(|run| run.end() <= block);
            own.get(at).is_some_and(|run| run.start.0 <= block)
        };
        let data = |group: u32| old.data_blocks(GroupNo(group));
        let in_use = (0..old.groups()).map(data).sum::<u64>().saturating_sub(self.free_blocks());
        // Room for all that is in use, and for the zones that the metadata naming it may need.
        let nodes = nodes_for(in_use as i64) + NODES_SPARE - index_room(meta);
        let zones = (nodes.max(0) as u64).div_ceil(u64::from(ZONE_INDEXES));
        let (mut least, mut left) = (0, in_use + zones * ZONE_BLOCKS);
        for group in 0..old.groups() {
            if left <= data(group) {
                least = old.data_start(GroupNo(group)).0 + left;
                break;
            }
            left -= data(group);
        }
        for group in (0..old.groups()).rev().map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                continue;
            }
            let (_, frame) = self.load(meta, group)?;
            let page = frame.read();
            let map = BitmapRef::new(&page);
            let stays = |bit: &u32| map.get(*bit) && !moves(old.block_of(group, *bit).0);
            let last = (0..old.data_blocks(group) as u32).rev().find(stays);
            // Tables go when the group has nothing else.
            let tables = tables_of(meta, group)?;
            if last.is_some() || meta.metadata_beyond(group)? > tables || group.0 == 0 {
                least = least.max(last.map_or(0, |bit| old.block_of(group, bit).0 + 1));
                least = least.max(old.data_start(group).0);
                break;
            }
        }
        let shortest = old.data_start(old.group_of(BlockNo(least))).0 + ZONE_BLOCKS;
        Ok(least.max(shortest).max(VOLUME_BLOCKS_MIN).min(old.blocks))
    }
}

/// How many tables a group has that go when nothing else is in it.
fn tables_of(meta: &Meta, group: GroupNo) -> Result<u64> {
    let of = |kind| Ok::<_, crate::Error>(meta.tables(kind, group)?.len() as u64);
    Ok(of(BlockKind::CountTable)? + of(BlockKind::ChecksumTable)?)
}

/// The end of a volume that is about to be truncated: nobody gets a block of it. Dropping this opens the end
/// again, unless the volume was truncated.
pub struct ClosedEnd<'a> {
    alloc: &'a Alloc,
    meta: &'a Meta,
    old: Geometry,
    new: Geometry,
    /// Free blocks beyond the end, in groups that were never used.
    unused: u64,
}

/// What lies beyond the new end of the volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beyond {
    /// Blocks of files and of their history.
    pub data: u64,
    /// Blocks of inodes, of trees, and of the volume's tables.
    pub metadata: u64,
    /// Of these, how many go when nothing of their groups is shared any more.
    pub count_tables: u64,
}

impl ClosedEnd<'_> {
    /// The groups that lie in it wholly or in part.
    fn groups(&self) -> impl Iterator<Item = GroupNo> {
        (self.new.groups() - 1..self.old.groups()).map(GroupNo)
    }

    /// The first bit of a group that goes, and how many go.
    fn part(&self, group: GroupNo) -> (u32, u32) {
        let stays = group.0 < self.new.groups();
        let from = if stays { self.new.data_blocks(group) as u32 } else { 0 };
        (from, self.old.data_blocks(group) as u32)
    }

    /// The blocks that [`Alloc::close_end`] did not take, and the groups that cannot go because their zones
    /// are in use.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn beyond(&self) -> Result<Beyond> {
        let mut found = Beyond::default();
        for group in self.groups() {
            let (from, to) = self.part(group);
            if from >= to || !self.meta.group_summary(group)?.initialised {
                continue;
            }
            let (_, frame) = self.alloc.load(self.meta, group)?;
            let page = frame.read();
            let map = BitmapRef::new(&page);
            let used = (from..to).filter(|bit| map.get(*bit)).count() as u64;
            drop(page);
            let tables = self.meta.table_blocks_from(group, self.old.block_of(group, from))?;
            found.data += used.saturating_sub(tables);
            if group.0 >= self.new.groups() && !self.meta.close_if_empty(group)? {
                found.metadata += self.meta.metadata_beyond(group)?.max(1);
                found.count_tables += tables_of(self.meta, group)?;
            } else if tables > 0 {
                found.metadata += tables;
            }
        }
        Ok(found)
    }

    /// How many blocks could be promised before the end.
    pub fn room(&self) -> u64 {
        self.alloc.unpromised.load(Ordering::Relaxed).max(0) as u64
    }

    /// Makes the Op, then the changes in memory. Everything beyond has moved before, and a complete
    /// generation has freed it. The change is durable with the next generation.
    ///
    /// # Errors
    /// [`Error::Refused`] if something lies beyond after all; damage and device errors. Then nothing was
    /// changed.
    pub fn truncate(self) -> Result<()> {
        let (alloc, meta, new) = (self.alloc, self.meta, self.new);
        let _grow = alloc.grow.lock();
        let last = GroupNo(new.groups() - 1);
        let mut pinned = PinnedGroups::default();
        let mut tail = None;
        for group in self.groups() {
            let (from, to) = self.part(group);
            if from >= to || !meta.group_summary(group)?.initialised {
                continue;
            }
            self.check_taken(group, to - from)?;
            let pinned = alloc.pin_group(meta, group, &mut pinned.groups)?;
            check_bits(&self.old, group, &pinned.frame, from, to - from, false)?;
            if group == last {
                tail = Some((pinned.group.clone(), pinned.frame.clone(), from, to - from));
            } else if !meta.close_if_empty(group)? {
                return Err(Error::Refused(format!("group {} beyond the new end is in use", group.0)));
            }
        }
        {
            let mut op = meta.begin_alone(Reserved::none());
            if let Some((_, frame, bit, len)) = &tail {
                mark(&mut op, frame, &[(*bit, *len)], true);
                op.count_free_blocks(last, -i64::from(*len));
            }
            for group in (new.groups()..self.old.groups()).map(GroupNo) {
                op.remove_primary_zone(group);
            }
            op.shorten(new, self.unused);
        }
        if let Some((group, _, _, len)) = &tail {
            group.state.lock().settle(*len);
        }
        alloc.volume_blocks.store(new.blocks, Ordering::Release);
        alloc.beyond.lock().clear();
        (new.groups()..self.old.groups()).for_each(|group| alloc.drop_group(GroupNo(group)));
        alloc.closed_from.store(u64::MAX, Ordering::Release);
        std::mem::forget(self);
        Ok(())
    }

    /// Fails unless all blocks of a group that go are free, and taken.
    fn check_taken(&self, group: GroupNo, blocks: u32) -> Result<()> {
        let of_group = |run: &&Run| self.old.group_of(run.start) == group;
        let taken: u64 = self.alloc.beyond.lock().iter().filter(of_group).map(|run| u64::from(run.len)).sum();
        match taken == u64::from(blocks) {
            true => Ok(()),
            false => Err(Error::Refused(format!(
                "{} blocks beyond the new end are in use; nobody else may change the volume meanwhile",
                u64::from(blocks).saturating_sub(taken)
            ))),
        }
    }
}

impl Drop for ClosedEnd<'_> {
    fn drop(&mut self) {
        let alloc = self.alloc;
        alloc.closed_from.store(u64::MAX, Ordering::Release);
        let beyond = std::mem::take(&mut *alloc.beyond.lock());
        for run in beyond {
            alloc.hand_out(&[run]);
            alloc.unpromised.fetch_add(i64::from(run.len), Ordering::Relaxed);
        }
        alloc.unpromised.fetch_add(self.unused as i64, Ordering::Relaxed);
        (self.new.groups()..self.old.groups()).for_each(|group| self.meta.reopen(GroupNo(group)));
    }
}
