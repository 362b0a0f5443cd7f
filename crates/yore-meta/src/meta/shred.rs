//! Erasing what is left on the medium of metadata that is gone.
//!
//! **H1 What is left where.** Cells that were removed from tree nodes stay in the nodes as dead bytes. Slots
//! that a zone's current map does not name hold older copies of blocks. The log's ring holds records that
//! were replayed or committed long ago. Inodes that are gone leave zeros.
//!
//! **H2 In this order.** Ops wipe the nodes, like any change, and a generation is completed: so their older
//! copies are stale. Then stale slots and released records are overwritten, while no generation is being
//! written: no crash brings back what is stale under the superblock on the medium (R2), and the writer does
//! not use those slots just then.

use super::Meta;
use crate::error::Result;
use crate::zones::slots::Slots;
use crate::zones::zone::Zone;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{Block, BlockKind, GroupNo, MetaAddr, NodeMut, NodeRef, ZoneNo, BLOCK_SIZE};

/// A long job calls this between two zones, to ask whether to go on.
pub type AskZone<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

impl Meta {
    /// Wipes dead cells out of all tree nodes. Durable, and done, with the next generation.
    ///
    /// # Errors
    /// Damage and device errors; what was wiped stays so.
    pub fn wipe_dead_cells(&self, ask: AskZone<'_>) -> Result<ControlFlow<()>> {
        let blocks = &self.rooms.blocks;
        for no in 0..blocks.zones.limit() {
            let Some(zone) = blocks.zones.get(&blocks.base, ZoneNo(no))? else { continue };
            for index in 0..ZONE_INDEXES as u16 {
                if zone.has(index) {
                    self.wipe_node(MetaAddr::new(zone.no, index), zone.group)?;
                }
            }
            blocks.throttle();
            if ask().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn wipe_node(&self, addr: MetaAddr, near: GroupNo) -> Result<()> {
        let frame = match self.read_any(addr) {
            Ok(frame) => frame,
            // It went meanwhile.
            Err(_) if !self.rooms.blocks.exists(addr)? => return Ok(()),
            Err(e) => return Err(e),
        };
        let needs = |block: &Block| is_node(block) && NodeMut::has_remains(NodeRef::new(block));
        if !needs(&frame.read()) {
            return Ok(());
        }
        let reserved = self.reserve(near, 0)?;
        // No other Op is open: what is there is whole, and stays.
        let mut op = self.begin_alone(reserved);
        let Some(frame) = op.cached(addr) else { return Ok(()) };
        let still = needs(&frame.read());
        if still {
            op.change(&frame, |page| page.apply(|block| NodeMut::new(block).wipe()));
        }
        Ok(())
    }

    /// Overwrites what is stale in zones, and in the log. Call this once a generation is complete in which
    /// all that was to go is gone.
    ///
    /// # Errors
    /// Damage and device errors; what was overwritten stays so.
    pub fn erase_stale(&self, ask: AskZone<'_>) -> Result<ControlFlow<()>> {
        let blocks = &self.rooms.blocks;
        for no in 0..blocks.zones.limit() {
            let Some(zone) = blocks.zones.get(&blocks.base, ZoneNo(no))? else { continue };
            self.erase_slots(&zone)?;
            if ask().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        {
            let _no_generation = self.writer.pause();
            self.check_writable()?;
            self.rooms.log.erase_released()?;
        }
        blocks.base.flush()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Overwrites what is stale in a zone, unless that was removed: its blocks may have file data by now. A
    /// removal is complete only behind the commit of its generation, and none begins during the pause. So the
    /// blocks of a zone that is not removed by now stay the zone's until the pause ends.
    fn erase_slots(&self, zone: &Arc<Zone>) -> Result<()> {
        let _no_generation = self.writer.pause();
        self.check_writable()?;
        let is_there = |loaded: Arc<Zone>| Arc::ptr_eq(&loaded, zone);
        if zone.is_removed() || !self.rooms.blocks.zones.loaded(zone.no).is_some_and(is_there) {
            return Ok(());
        }
        for slots in Slots::of(&zone.copies().map[..]).gaps() {
            let offset = (zone.start.0 + slots.start) * BLOCK_SIZE as u64;
            self.device().erase(offset, (slots.end - slots.start) * BLOCK_SIZE as u64)?;
        }
        Ok(())
    }
}

/// Whether a block is a node of a tree.
fn is_node(block: &Block) -> bool {
    BlockKind::from_repr(block[4]).is_some_and(BlockKind::is_tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Durability;
    use crate::log::place::LogPlace;
    use crate::meta::open::MetaOptions;
    use crate::mkfs::{mkfs, MkfsOptions};
    use crate::space::Reserved;
    use std::time::Duration;
    use yore_device::{Device, MemoryDevice};
    use yore_format::layout::FIRST_SLOT;
    use yore_format::{BlockNo, Engine, Timestamp};

    fn open(device: Arc<dyn Device>) -> Arc<Meta> {
        let options = MkfsOptions {
            uuid: [7; 16],
            hash_seed: [9; 16],
            label: "test".into(),
            engine: Engine::Snapshot,
            owner: (0, 0),
            permissions: 0o755,
            now: Timestamp::default(),
            log_blocks: 64,
            log_device: None,
            data_checksums: false,
            force: false,
        };
        mkfs(&*device, &options).unwrap();
        let options = MetaOptions {
            read_only: false,
            engine: None,
            cache_bytes: 8 << 20,
            commit_interval: Duration::from_secs(3600),
            durability: Durability::Async,
            log: LogPlace::Recorded,
            part_leaves: 0,
        };
        Meta::open(device, options).unwrap()
    }

    /// Erasing what is stale in a zone waited for a commit that completed the zone's removal. Then it erased
    /// the zone's blocks, which had file data by then.
    #[test]
    fn nothing_is_erased_in_a_zone_that_was_given_back() {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let meta = open(device.clone());
        let (start, group) = (BlockNo(8192), GroupNo(0));
        assert!(meta.prepare_zone(group).unwrap());
        meta.begin(Reserved::none()).create_zone(group, start);
        meta.sync().unwrap();
        let blocks = &meta.rooms.blocks;
        let primary = blocks.zones.get(&blocks.base, ZoneNo::primary(group)).unwrap().unwrap();
        let no = primary.extras().next().unwrap();
        let zone = blocks.zones.loaded(no).unwrap();
        let at = (start.0 + FIRST_SLOT + 10) * BLOCK_SIZE as u64;
        let is_erased_now = || {
            let mut found = [0u8; BLOCK_SIZE];
            device.write_at(at, &[5; BLOCK_SIZE]).unwrap();
            meta.erase_slots(&zone).unwrap();
            device.read_at(at, &mut found).unwrap();
            assert!(found == [0; BLOCK_SIZE] || found == [5; BLOCK_SIZE]);
            found == [0; BLOCK_SIZE]
        };
        assert!(is_erased_now());
        assert!(zone.close_if_empty());
        let op = meta.begin(Reserved::none());
        blocks.zones.remove_extra(&blocks.base, op.generation(), &zone);
        drop(op);
        assert!(!is_erased_now(), "the removal may be complete at any moment");
        meta.sync().unwrap();
        assert!(blocks.zones.loaded(no).is_none());
        assert!(!is_erased_now());
        // Another zone has the number.
        assert!(meta.prepare_zone(group).unwrap());
        meta.begin(Reserved::none()).create_zone(group, BlockNo(start.0 + 1024));
        assert!(blocks.zones.loaded(no).is_some());
        assert!(!is_erased_now());
    }
}
