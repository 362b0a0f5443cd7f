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

    fn erase_slots(&self, zone: &Zone) -> Result<()> {
        let _no_generation = self.writer.pause();
        self.check_writable()?;
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
