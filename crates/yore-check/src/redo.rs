//! What the log says has become of the blocks that a mount would find, under an engine that overwrites them
//! once the log has the change.
//!
//! Such an engine was stopped somewhere between a superblock and the next: blocks that the log names may be
//! as that superblock's generation has them, as the next one has them, or torn. A mount puts the log's chunks
//! in place before it looks at any of them, and so does a check, in memory. It does that by the format's
//! definitions alone, and not by the code that mounts. Blocks that the log does not name are read from the
//! medium, and must be exactly what their zone's header records.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{
    seal, BitmapRef, Block, BlockHeader, BlockKind, Corruption, Engine, Inode, Intent, MetaAddr,
    BITS_PER_GROUP, INODES_PER_BLOCK, NOT_INODES, ZERO_BLOCK,
};

/// The slot that memory gives to blocks that have none on the medium yet.
const NO_SLOT: u16 = u16::MAX;

impl Checker<'_> {
    /// Puts the records of the log in place, if the engine needs that before anything is believed.
    pub(crate) fn redo(&mut self) -> Result<(), CheckError> {
        let records = std::mem::take(&mut self.records);
        if self.sb.engine != Engine::Journal {
            return Ok(());
        }
        if self.log_is_damaged {
            self.incomplete = true;
            return Ok(());
        }
        let mut intents = Vec::with_capacity(records.len());
        for record in &records {
            match Intent::decode(record) {
                Ok(intent) => intents.push(intent),
                Err(c) => {
                    self.add_incomplete(Finding::corruption(Problem::LogDamaged, &c));
                    return Ok(());
                }
            }
        }
        let Some(head) = intents.last().map(|intent| intent.head) else { return Ok(()) };
        self.redo_blocks(&intents)?;
        self.redo_zones(&intents);
        head.enter(&mut self.sb);
        Ok(())
    }

    /// Puts the chunks of all records in place. What a block is then, its last record says.
    fn redo_blocks(&mut self, intents: &[Intent<'_>]) -> Result<(), CheckError> {
        let mut last = BTreeMap::new();
        for change in intents.iter().flat_map(|intent| &intent.blocks) {
            if !self.redone.contains_key(&change.addr) {
                let Some(base) = self.base_of(change.addr, change.chunks == u64::MAX)? else { continue };
                self.redone.insert(change.addr, base);
            }
            if let Some(block) = self.redone.get_mut(&change.addr) {
                change.put(Arc::make_mut(block));
                last.insert(change.addr, *change);
            }
        }
        let generation = self.sb.generation;
        for (addr, change) in last {
            let Some(block) = self.redone.get_mut(&addr) else { continue };
            if let Err(c) = change.verify(block) {
                self.add_incomplete(Finding::corruption(Problem::LogDamaged, &c));
                continue;
            }
            seal(Arc::make_mut(block), generation);
        }
        Ok(())
    }

    /// What lies where a block starts from: nothing for one of which the first record has all.
    fn base_of(&mut self, addr: MetaAddr, is_whole: bool) -> Result<Option<Arc<Block>>, CheckError> {
        if is_whole {
            return Ok(Some(Arc::new(ZERO_BLOCK)));
        }
        let place = self.locate(addr);
        if let Some(block) = place.map_or(Ok(None), |(_, copy)| self.read(copy.block))? {
            return Ok(Some(block));
        }
        let c = Corruption::new("intent record", "block", "one that exists", "none").at(addr);
        self.add_incomplete(Finding::corruption(Problem::LogDamaged, &c));
        Ok(None)
    }

    /// Takes over which blocks exist, and counts again what records do not say.
    fn redo_zones(&mut self, intents: &[Intent<'_>]) {
        let zones: BTreeMap<_, _> =
            intents.iter().flat_map(|i| &i.zones).map(|zone| (zone.zone, zone.exists)).collect();
        for zone in &mut self.zones {
            let Some(exists) = zones.get(&zone.number) else { continue };
            self.counts.metadata_blocks -= zone.indexes().len() as u64;
            zone.header.exists = *exists;
            for index in 0..ZONE_INDEXES as u16 {
                let at = usize::from(index);
                if !zone.header.has(index) {
                    zone.header.map[at] = 0;
                    zone.header.checks[at] = 0;
                    zone.header.inode_free[at] = NOT_INODES;
                    continue;
                }
                let Some(block) = self.redone.get(&MetaAddr::new(zone.number, index)) else { continue };
                if zone.header.map[at] == 0 {
                    zone.header.map[at] = NO_SLOT;
                }
                zone.header.inode_free[at] = NOT_INODES;
                match BlockKind::from_repr(BlockHeader::of(block).kind) {
                    Some(BlockKind::Inodes) => {
                        let free = |slot: &usize| Inode::slot_is_free(block, *slot);
                        zone.header.inode_free[at] = (0..INODES_PER_BLOCK).filter(free).count() as u8;
                    }
                    Some(BlockKind::Bitmap) => {
                        let usable = self.geometry.data_blocks(zone.header.group) as u32;
                        let used = BitmapRef::new(block).used().saturating_sub(BITS_PER_GROUP - usable);
                        zone.entry.free_blocks = (usable.saturating_sub(used) as u16).into();
                    }
                    _ => {}
                }
            }
            let used = zone.indexes().len();
            self.counts.metadata_blocks += used as u64;
            zone.entry.free_indexes = ((ZONE_INDEXES as usize - used) as u16).into();
            let inodes = zone.header.inode_free.iter().filter(|free| **free != NOT_INODES);
            zone.entry.free_inodes = (inodes.map(|free| u32::from(*free)).sum::<u32>() as u16).into();
        }
        // What was changed and then freed is nobody's.
        let zones = &self.zones;
        self.redone.retain(|addr, _| {
            let zone = zones.binary_search_by_key(&addr.zone(), |z| z.number);
            zone.is_ok_and(|zone| zones[zone].header.has(addr.index()))
        });
    }
}
