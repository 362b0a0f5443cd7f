//! Reservations in a zone: indexes by count, inodes by slot, and closing a zone that is to go. They exist
//! in memory only.

use super::zone::{Frame, State, Zone};
use yore_format::layout::ZONE_INDEXES;
use yore_format::{Inode, InodeNo, INODES_PER_BLOCK, NOT_INODES};

const INDEXES: usize = ZONE_INDEXES as usize;

/// What reserving an inode in a block came to.
pub(crate) enum Marked {
    /// The inode in this slot.
    Slot(usize),
    /// The block is another by now, others took its inodes, or the zone is about to go: look again.
    Again,
    /// The zone counts so many free inodes in the block, and there are fewer.
    Wrong(u8),
}

impl State {
    /// An inode block with a free inode that nobody has reserved. O(1) while the last one found has room.
    fn find_inode_block(&mut self) -> Option<u16> {
        if self.free_inodes == 0 || self.closed {
            return None;
        }
        for index in (self.inode_hint..INDEXES).chain(0..self.inode_hint) {
            let free = self.free_inode_count(index);
            if free > 0 && free > self.unavailable(index as u16).count_ones() {
                self.inode_hint = index;
                return Some(index as u16);
            }
        }
        None
    }

    /// Closes the zone against reservations. Whoever has found an inode block in it looks again.
    fn close_if(&mut self, closes: bool) {
        if closes {
            self.closed = true;
            self.inode_blocks_changed += 1;
        }
    }
}

impl Zone {
    /// Sets `blocks` indexes aside if the zone has as many beside `spare` ones.
    pub(crate) fn reserve(&self, blocks: u32, spare: u32) -> bool {
        let mut s = self.state.lock();
        if s.closed || s.free_indexes < s.reserved + blocks + spare {
            return false;
        }
        s.reserved += blocks;
        true
    }

    /// Sets as many indexes aside as the zone has beside `spare` ones, `most` of them at most; returns how
    /// many.
    pub(crate) fn reserve_most(&self, most: u32, spare: u32) -> u32 {
        let mut s = self.state.lock();
        let free = if s.closed { 0 } else { s.free_indexes.saturating_sub(s.reserved + spare) };
        let taken = free.min(most);
        s.reserved += taken;
        taken
    }

    /// Gives back what was set aside.
    pub(crate) fn unreserve(&self, blocks: u32) {
        self.state.lock().reserved -= blocks;
    }

    /// An inode block with a free inode that nobody has reserved, and the state of the zone's inode blocks in
    /// which it was found.
    pub(crate) fn find_inode_block(&self) -> Option<(u16, u64)> {
        let mut s = self.state.lock();
        let index = s.find_inode_block()?;
        Some((index, s.inode_blocks_changed))
    }

    /// Whether the zone's inode blocks are in this state no more: what was read may be freed by now, or
    /// another block under the same address.
    pub(crate) fn inode_blocks_moved(&self, state: u64) -> bool {
        self.state.lock().inode_blocks_changed != state
    }

    /// Reserves a free inode of the block at `index`, which was found in this state of the zone's inode
    /// blocks.
    pub(crate) fn mark_inode(&self, index: u16, state: u64, frame: &Frame) -> Marked {
        let mut s = self.state.lock();
        if s.closed || s.inode_blocks_changed != state {
            return Marked::Again;
        }
        let taken = s.unavailable(index);
        let free = s.inode_free[usize::from(index)];
        if free == NOT_INODES || u32::from(free) <= taken.count_ones() {
            return Marked::Again; // Taken by somebody else meanwhile.
        }
        let block = frame.read();
        let is_free = |slot: &usize| taken & (1 << slot) == 0 && Inode::slot_is_free(&block, *slot);
        let Some(slot) = (0..INODES_PER_BLOCK).find(is_free) else { return Marked::Wrong(free) };
        *s.taken.entry(index).or_insert(0) |= 1 << slot;
        Marked::Slot(slot)
    }

    /// No inode of the block at `index`, which was found in this state of the zone's inode blocks, is
    /// reserved any more until the volume is opened again, for the block is damaged.
    pub(crate) fn pass_over_inodes(&self, index: u16, state: u64) {
        let mut s = self.state.lock();
        if s.inode_blocks_changed == state {
            s.passed_over[usize::from(index) / 64] |= 1 << (index % 64);
        }
    }

    /// Gives back a reserved inode.
    pub(crate) fn unmark_inode(&self, inode: InodeNo) {
        self.state.lock().clear_mark(inode);
    }

    /// Closes the zone against reservations if it holds nothing.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut s = self.state.lock();
        let closes = s.holds_nothing().is_some() && s.reserved == 0 && !s.closed;
        s.close_if(closes);
        closes
    }

    /// First zones only: closes the zone against reservations if it and its group hold nothing but the
    /// bitmap, and perhaps a block of free inodes.
    pub(crate) fn close_if_only_bitmap(&self) -> bool {
        let mut s = self.state.lock();
        let closes = s.only_bitmap().is_some() && s.extras.iter().all(|e| *e == 0) && s.reserved == 0;
        s.close_if(closes);
        closes
    }

    /// First zones only: whether the group's zones hold nothing but the bitmap, and perhaps a block of free
    /// inodes.
    pub(crate) fn is_only_bitmap(&self) -> bool {
        let s = self.state.lock();
        s.only_bitmap().is_some() && s.extras.iter().all(|e| *e == 0)
    }

    /// The zone may be used again, unless it was removed.
    pub(crate) fn reopen(&self) {
        let mut s = self.state.lock();
        if !s.removed {
            s.closed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::new_frame;
    use crate::zones::zone::Changes;
    use std::sync::Arc;
    use yore_format::{BlockNo, Generation, GroupNo, MetaAddr, ZoneHeader, ZoneNo, ZERO_BLOCK};

    const RUNNING: Generation = Generation(2);

    /// A further zone with nothing but an inode block, which is empty; and the index of that.
    fn with_inodes(changes: &Changes) -> (Arc<Zone>, u16, Frame) {
        let header = ZoneHeader::empty([0; 16], 100_000, BlockNo(4096), ZoneNo(1), GroupNo(0));
        let zone = Zone::new(&header, 0, 1);
        let index = zone.allocate_index(changes, RUNNING);
        zone.appear(index);
        zone.offer_inodes(changes, RUNNING, index);
        let frame = new_frame(MetaAddr::new(zone.no, index), zone.clone(), ZERO_BLOCK, RUNNING);
        (zone, index, frame)
    }

    /// An inode block was found, then its zone was closed to be removed, then an inode of the block was
    /// reserved: the Op that removed the zone panicked, for the zone was not empty any more.
    #[test]
    fn no_inode_is_reserved_in_a_zone_that_was_closed() {
        let changes = Changes::default();
        let (zone, index, frame) = with_inodes(&changes);
        let (found, state) = zone.find_inode_block().unwrap();
        assert_eq!(found, index);
        assert!(zone.close_if_empty());
        assert!(zone.inode_blocks_moved(state));
        assert!(matches!(zone.mark_inode(index, state, &frame), Marked::Again));
        let now = zone.state.lock().inode_blocks_changed;
        assert!(matches!(zone.mark_inode(index, now, &frame), Marked::Again));
        assert_eq!(zone.find_inode_block(), None);
        assert_eq!(zone.last_block(), Some(index), "nothing is reserved");
        // It was not removed after all.
        zone.reopen();
        let (index, state) = zone.find_inode_block().unwrap();
        assert!(matches!(zone.mark_inode(index, state, &frame), Marked::Slot(0)));
        assert!(!zone.close_if_empty());
    }

    /// An inode block was found, then its zone was removed, then the block was read, which is not there any
    /// more: that was reported as damage.
    #[test]
    fn who_has_found_an_inode_block_sees_that_its_zone_goes() {
        let changes = Changes::default();
        let (zone, index, _) = with_inodes(&changes);
        assert!(zone.close_if_empty());
        let state = zone.state.lock().inode_blocks_changed;
        zone.clear_free_inodes(&changes, RUNNING);
        zone.free_index(&changes, RUNNING, index);
        zone.remove(&changes, RUNNING);
        assert!(zone.is_removed() && zone.inode_blocks_moved(state));
    }

    /// As above, of the first zone of a group that goes.
    #[test]
    fn closing_a_first_zone_is_seen_as_well() {
        let header = ZoneHeader::empty([0; 16], 100_000, BlockNo(0), ZoneNo::primary(GroupNo(1)), GroupNo(1));
        let (zone, changes) = (Zone::new(&header, 0, 1), Changes::default());
        zone.appear(zone.allocate_index(&changes, RUNNING));
        let index = zone.allocate_index(&changes, RUNNING);
        zone.appear(index);
        zone.offer_inodes(&changes, RUNNING, index);
        let (_, state) = zone.find_inode_block().unwrap();
        assert!(zone.close_if_only_bitmap() && zone.inode_blocks_moved(state));
        assert_eq!(zone.find_inode_block(), None);
    }

    /// A damaged block of inodes was found again and again. It is passed over, also by whoever has found it
    /// before; a block that comes to be in its place later is not.
    #[test]
    fn a_block_of_inodes_is_passed_over() {
        let changes = Changes::default();
        let (zone, index, frame) = with_inodes(&changes);
        let (found, state) = zone.find_inode_block().unwrap();
        zone.pass_over_inodes(index, state + 1);
        assert_eq!(zone.find_inode_block(), Some((index, state)), "that was another block");
        zone.pass_over_inodes(found, state);
        assert_eq!(zone.find_inode_block(), None);
        assert!(matches!(zone.mark_inode(index, state, &frame), Marked::Again));
        zone.free_index(&changes, RUNNING, index);
        assert_eq!(zone.allocate_index(&changes, RUNNING), index);
        zone.appear(index);
        zone.offer_inodes(&changes, RUNNING, index);
        assert!(zone.find_inode_block().is_some_and(|(found, _)| found == index));
    }
}
