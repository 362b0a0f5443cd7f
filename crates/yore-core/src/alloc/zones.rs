//! Room for metadata: reserves it for Ops, and makes zones where it is short.

use super::groups::{check_bits, mark};
use super::promise::{index_room, Promise, NODES_SPARE};
use super::space::{Alloc, Run, GROUPS_TRIED};
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{GroupNo, BLOCK_SIZE};
use yore_meta::{Meta, MetaError, Reserved, Room};

impl Alloc {
    /// Promises `blocks` data blocks, and the metadata to name them. Makes zones if the metadata needs them.
    ///
    /// # Errors
    /// `NoSpace` if not all of them can be promised; `NeverFits` if not even an empty volume could.
    pub fn promise(&self, meta: &Meta, near: GroupNo, blocks: u64) -> Result<Promise<'_>> {
        let most = self.geometry().blocks - u64::from(self.geometry().groups()) * ZONE_BLOCKS;
        if blocks > most {
            let missing = blocks.saturating_sub(self.available(meta, 0)).saturating_mul(BLOCK_SIZE as u64);
            return Err(Error::NeverFits { missing });
        }
        loop {
            match self.try_promise(meta, blocks, 0) {
                Some(promise) => return Ok(promise),
                None if self.is_short_of(blocks) => return Err(Error::NoSpace),
                None => self.make_index_room(meta, near)?,
            }
        }
    }

    /// Reserves metadata blocks for an Op near a group, and makes zones when the near ones are full. With
    /// `for_deleting` (and for promised data) it may also use the room that is set aside for that.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for metadata.
    pub(crate) fn reserve(
        &self,
        meta: &Meta,
        near: GroupNo,
        blocks: u32,
        for_deleting: bool,
    ) -> Result<Reserved> {
        if !for_deleting {
            self.admit(meta, near, blocks)?;
        }
        // A deletion makes zones only for what history keeps of what is deleted, and while zones are cheap.
        let may_grow = !for_deleting || (blocks > 0 && !self.is_short_of(2 * ZONE_BLOCKS));
        let tried = |result: yore_meta::Result<Reserved>| match result {
            Err(MetaError::NeedZone { .. }) => Ok(None),
            other => Ok::<_, Error>(Some(other?)),
        };
        if let Some(reserved) = tried(meta.reserve(near, blocks))? {
            return Ok(reserved);
        }
        // First try another zone right here; then an existing zone elsewhere with plenty of room, which the
        // next callers will share; then a new zone elsewhere; then the last room there is. A zone is made
        // only when no other zone has room: each costs data 4 MiB.
        if may_grow && self.make_zone_in(meta, near)? {
            if let Some(reserved) = tried(meta.reserve(near, blocks))? {
                return Ok(reserved);
            }
        }
        if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Plenty))? {
            return Ok(reserved);
        }
        let grown = may_grow
            && match self.grow_metadata(meta, near) {
                Ok(()) => true,
                Err(Error::NoSpace) => false,
                Err(e) => return Err(e),
            };
        if grown {
            if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Plenty))? {
                return Ok(reserved);
            }
        }
        if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Ordinary))? {
            return Ok(reserved);
        }
        if !for_deleting {
            return Err(Error::NoSpace);
        }
        tried(meta.reserve_elsewhere(near, blocks, Room::Deleting))?.ok_or(Error::NoSpace)
    }

    /// Makes a zone in exactly this group, if the group has room for one.
    pub(super) fn make_zone_in(&self, meta: &Meta, group: GroupNo) -> Result<bool> {
        let _grow = self.grow.lock();
        self.make_zone(meta, group)
    }

    /// Keeps ordinary metadata off the room that promised data needs.
    fn admit(&self, meta: &Meta, near: GroupNo, blocks: u32) -> Result<()> {
        let needed = self.promised_nodes(0) + NODES_SPARE + i64::from(blocks);
        while blocks > 0 && index_room(meta) < needed {
            self.make_index_room(meta, near)?;
        }
        Ok(())
    }

    /// Makes a zone: the first one of `near` if `near` was never used, else a further one there, else the
    /// same elsewhere.
    ///
    /// # Errors
    /// `NoSpace` if no group has room for one.
    pub(crate) fn grow_metadata(&self, meta: &Meta, near: GroupNo) -> Result<()> {
        self.grow(meta, near, false)
    }

    /// Makes a zone wherever it costs least: promised data must have room for the metadata that names it, but
    /// not near. Groups that were never used have room for their first zone set aside; other groups give up
    /// data blocks.
    ///
    /// # Errors
    /// `NoSpace` if no group has room for one.
    pub fn make_index_room(&self, meta: &Meta, near: GroupNo) -> Result<()> {
        self.grow(meta, near, true)
    }

    fn grow(&self, meta: &Meta, near: GroupNo, unused_first: bool) -> Result<()> {
        let room = index_room(meta);
        let mut guard = self.grow.lock();
        if index_room(meta) > room {
            return Ok(()); // Somebody else has just made one.
        }
        if unused_first && self.unused_groups(meta) > 0 {
            for group in self.groups_to_grow(near) {
                let known = self.known_available(group).is_some();
                if !known && !meta.is_initialised(group)? && self.initialise_locked(meta, group)? {
                    self.grown.store(group.0, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        for retry in [false, true] {
            loop {
                for group in self.groups_to_grow(near) {
                    if self.make_zone(meta, group)? {
                        self.grown.store(group.0, Ordering::Relaxed);
                        return Ok(());
                    }
                }
                if !MutexGuard::unlocked(&mut guard, || self.recall()) {
                    break;
                }
            }
            if retry || self.pending.load(Ordering::Relaxed) == 0 || !meta.may_wait() {
                break;
            }
            MutexGuard::unlocked(&mut guard, || meta.sync())?;
        }
        Err(Error::NoSpace)
    }

    /// A few groups near, then all groups from where the last zone was made.
    fn groups_to_grow(&self, near: GroupNo) -> impl Iterator<Item = GroupNo> {
        let last = GroupNo(self.grown.load(Ordering::Relaxed));
        self.groups_from(near).take(GROUPS_TRIED as usize).chain(self.groups_from(last))
    }

    fn groups_from(&self, near: GroupNo) -> impl Iterator<Item = GroupNo> {
        let groups = self.geometry().groups();
        (0..groups).map(move |i| GroupNo(((u64::from(near.0) + u64::from(i)) % u64::from(groups)) as u32))
    }

    fn make_zone(&self, meta: &Meta, group: GroupNo) -> Result<bool> {
        if self.known_available(group).is_some_and(|known| u64::from(known) < ZONE_BLOCKS) {
            return Ok(false);
        }
        let summary = meta.group_summary(group)?;
        if !summary.initialised {
            return self.initialise_locked(meta, group);
        }
        if u64::from(summary.free_blocks) < ZONE_BLOCKS || !meta.prepare_zone(group)? {
            return Ok(false);
        }
        let (loaded, frame) = self.load(meta, group)?;
        let blocks = ZONE_BLOCKS as i64;
        let paid = self.unpromised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            free.checked_sub(blocks).filter(|left| *left >= 0)
        });
        if paid.is_err() {
            return Ok(false);
        }
        let Some(bit) = loaded.state.lock().take_zone() else {
            self.unpromised.fetch_add(blocks, Ordering::Relaxed);
            return Ok(false);
        };
        self.note_available(group, &loaded);
        if let Err(e) = check_bits(&self.geometry(), group, &frame, bit, ZONE_BLOCKS as u32, false) {
            self.unpromised.fetch_add(blocks, Ordering::Relaxed);
            self.make_available(Run { start: self.geometry().block_of(group, bit), len: ZONE_BLOCKS as u32 });
            return Err(e.into());
        }
        let mut op = meta.begin(Reserved::none());
        mark(&mut op, &frame, &[(bit, ZONE_BLOCKS as u32)], true);
        op.count_free_blocks(group, -blocks);
        op.create_zone(group, self.geometry().block_of(group, bit));
        loaded.state.lock().settle(ZONE_BLOCKS as u32);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::tests::open;
    use yore_format::{BlockKind, EventNo, GroupNo, Incarnation, InodeNo};
    use yore_meta::{Meta, NewBlock, Reserved, Room};

    /// Sets all metadata blocks aside that zones have for ordinary Ops.
    fn all(meta: &Meta) -> Vec<Reserved> {
        let near = GroupNo(0);
        std::iter::from_fn(|| meta.reserve_elsewhere(near, 1, Room::Ordinary).ok()).collect()
    }

    fn index_block(number: u32) -> NewBlock {
        NewBlock {
            kind: BlockKind::Extents,
            level: 0,
            owner: InodeNo(u64::from(number)),
            incarnation: Incarnation(1),
            birth: EventNo(0),
        }
    }

    /// No zone had room for all blocks of an Op, but several together had: that was said to be a full volume.
    #[test]
    fn an_op_takes_its_blocks_from_several_zones() {
        let (meta, alloc) = open(300 << 20);
        let near = GroupNo(0);
        alloc.grow_metadata(&meta, near).unwrap();
        let mut full = all(&meta);
        let total = full.len() as u32;
        assert!(meta.reserve_elsewhere(near, 2, Room::Ordinary).is_err());
        // What was found first is of the first zone, and what was found last of the last one.
        full.drain(..20);
        full.truncate(full.len() - 20);
        assert!(meta.reserve_elsewhere(near, 41, Room::Ordinary).is_err(), "there are 40");
        assert!(meta.reserve_elsewhere(near, 30, Room::Plenty).is_err());
        drop(meta.reserve_elsewhere(near, 40, Room::Ordinary).unwrap());
        let reserved = meta.reserve_elsewhere(near, 40, Room::Ordinary).unwrap();
        assert!(meta.reserve_elsewhere(near, 1, Room::Ordinary).is_err());
        let mut op = meta.begin(reserved);
        let zones: std::collections::BTreeSet<_> =
            (0..30).map(|n| op.allocate(index_block(n)).0.addr().zone()).collect();
        drop(op);
        assert_eq!(zones.len(), 2);
        // Ten were not taken.
        drop(full);
        assert_eq!(all(&meta).len() as u32, total - 30);
    }
}
