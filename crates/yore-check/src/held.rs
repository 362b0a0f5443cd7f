//! The blocks that the scan has read and found sound, until the steps after it ask for them.
//!
//! Invariant: a block that is held has passed the format's verifier for its address, and its checksum is the
//! one that the header of its zone, as the scan read it, records. Whoever asks says which physical block and
//! which checksum it means, and gets nothing if that is not what is held. So nothing but the speed of a check
//! depends on what is held: what is not is read from the device, and everything wrong is found there.

use crate::known::CurrentCopy;
use std::collections::HashMap;
use std::sync::Arc;
use yore_format::{Block, BlockNo, MetaAddr, ZoneNo};

/// A block with its place and checksum.
pub(crate) struct HeldBlock {
    pub(crate) index: u16,
    pub(crate) check: u32,
    pub(crate) block: BlockNo,
    pub(crate) bytes: Arc<Block>,
}

/// All blocks that are held.
#[derive(Default)]
pub(crate) struct Held {
    /// Those of each zone in ascending order of their indexes.
    zones: HashMap<ZoneNo, Vec<HeldBlock>>,
    /// The inode blocks of one zone, if memory does not suffice for those of all.
    window: Option<(ZoneNo, Vec<HeldBlock>)>,
}

impl Held {
    /// Takes what was read of a zone, beside what it has of it.
    pub(crate) fn insert(&mut self, zone: ZoneNo, blocks: Vec<HeldBlock>) {
        let of_zone = self.zones.entry(zone).or_default();
        of_zone.extend(blocks);
        of_zone.sort_unstable_by_key(|held| held.index);
    }

    /// Holds the inode blocks of this zone, and of no other.
    pub(crate) fn set_window(&mut self, zone: ZoneNo, mut blocks: Vec<HeldBlock>) {
        blocks.sort_unstable_by_key(|held| held.index);
        self.window = Some((zone, blocks));
    }

    /// Whether the inode blocks of this zone are held apart, as far as they are sound.
    pub(crate) fn is_window(&self, zone: ZoneNo) -> bool {
        self.window.as_ref().is_some_and(|(number, _)| *number == zone)
    }

    /// The block at `addr`, if exactly this copy of it is held.
    pub(crate) fn get(&self, addr: MetaAddr, copy: CurrentCopy) -> Option<Arc<Block>> {
        let window = self.window.as_ref().filter(|(number, _)| *number == addr.zone());
        let zones = self.zones.get(&addr.zone()).into_iter().chain(window.map(|(_, blocks)| blocks));
        zones.filter_map(|blocks| find(blocks, addr.index(), copy)).next()
    }
}

fn find(blocks: &[HeldBlock], index: u16, copy: CurrentCopy) -> Option<Arc<Block>> {
    let held = &blocks[blocks.binary_search_by_key(&index, |held| held.index).ok()?];
    let same = held.block == copy.block && copy.check.is_none_or(|check| check == held.check);
    same.then(|| held.bytes.clone())
}
