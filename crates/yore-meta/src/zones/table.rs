//! The zone table: where each zone is, as of the last commit. Its blocks live in root zones, of which the
//! superblock says where they are.

use super::header::read_header;
use super::slots::Slots;
use crate::base::medium::Medium;
use crate::base::Base;
use crate::engine::Place;
use crate::error::Result;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use yore_format::layout::{HEADER_SLOTS, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{
    seal, Block, BlockHeader, BlockKind, BlockNo, EventNo, Expect, Generation, Incarnation, InodeNo,
    MetaAddr, RootZone, Superblock, ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableMut, ZoneTableRef,
    ROOT_ZONES_MAX, ZERO_BLOCK,
};

/// A root zone.
struct Root {
    start: BlockNo,
    exists: [u64; 8],
    map: Box<[u16; ZONE_INDEXES as usize]>,
    /// The checksum of the copy in each index's slot.
    checks: Box<[u32; ZONE_INDEXES as usize]>,
    /// `None` until its first header is written.
    current: Option<RootZone>,
}

/// The zone table of an open volume.
pub(crate) struct Table {
    /// Blocks in memory. Only the writer changes them.
    blocks: Mutex<HashMap<u32, Box<Block>>>,
    roots: Mutex<Vec<Option<Root>>>,
    /// How many of them there are.
    root_count: AtomicU32,
}

/// What the writer is to write of the table.
pub(crate) struct TableWrite {
    /// Blocks, sealed, and where they go.
    pub(crate) blocks: Vec<(BlockNo, Box<Block>)>,
    /// What the superblock says of the root zones.
    pub(crate) roots: Vec<Option<RootZone>>,
}

impl Table {
    pub(crate) fn new(found: &Superblock) -> Table {
        Table {
            blocks: Mutex::default(),
            roots: Mutex::default(),
            root_count: AtomicU32::new(found.root_zones.iter().flatten().count() as u32),
        }
    }

    /// Reads the headers of the root zones that the superblock names.
    pub(crate) fn load_roots(&self, base: &Base) -> Result<()> {
        let mut roots = Vec::new();
        for (i, root) in base.medium.found().root_zones.iter().enumerate() {
            let Some(root) = root else {
                roots.push(None);
                continue;
            };
            let mut entry = ZoneTableEntry::ABSENT;
            entry.start = root.start.0.into();
            entry.generation = root.generation.0.into();
            entry.crc = root.crc.into();
            entry.header_slot = root.header_slot;
            entry.present = 1;
            let ZoneHeader { exists, map, checks, .. } = read_header(base, ZoneNo::root(i as u32), &entry)?;
            roots.push(Some(Root { start: root.start, exists, map, checks, current: Some(*root) }));
        }
        *self.roots.lock() = roots;
        Ok(())
    }

    /// What the table says of a zone.
    pub(crate) fn entry(&self, medium: &Medium, no: ZoneNo) -> Result<ZoneTableEntry> {
        let (t, i) = medium.geometry().table_position(no);
        if let Some(block) = self.blocks.lock().get(&t) {
            return Ok(ZoneTableRef::new(block).entry(i));
        }
        let (r, index) = medium.geometry().table_home(t);
        let copy = {
            let roots = self.roots.lock();
            match roots.get(r as usize) {
                Some(Some(root)) if root.map[usize::from(index)] != 0 => {
                    let at = BlockNo(root.start.0 + u64::from(root.map[usize::from(index)]));
                    Some((at, root.checks[usize::from(index)]))
                }
                _ => None,
            }
        };
        let addr = MetaAddr::new(ZoneNo::root(r), index);
        let block = match copy {
            Some((at, check)) => {
                let block = medium.read_block(at)?;
                let verified = medium
                    .verify_copy(&block, check, addr, at)
                    .and_then(|()| Expect::volume(BlockKind::ZoneTable).check(&block));
                if let Err(c) = verified {
                    // Only the writer changes the table, and what it changes it keeps in memory from before
                    // the change.
                    return match self.blocks.lock().get(&t) {
                        Some(block) => Ok(ZoneTableRef::new(block).entry(i)),
                        None => Err(c.into()),
                    };
                }
                block
            }
            None => {
                let mut block = Box::new(ZERO_BLOCK);
                let (kind, tag) = (BlockKind::ZoneTable, medium.volume_tag());
                BlockHeader::init(&mut block, kind, 0, addr, InodeNo::NONE, Incarnation(0), tag, EventNo(0));
                block
            }
        };
        let mut blocks = self.blocks.lock();
        Ok(ZoneTableRef::new(blocks.entry(t).or_insert(block)).entry(i))
    }

    /// Root zones that exist.
    pub(crate) fn root_count(&self) -> u32 {
        self.root_count.load(Ordering::Relaxed)
    }

    /// Root zones from the first one on without a gap: those whose table blocks have a home.
    pub(crate) fn roots_in_a_row(&self) -> u32 {
        self.roots.lock().iter().take_while(|r| r.is_some()).count() as u32
    }

    /// Calls `f` with the first blocks of the root zones until it gives something.
    pub(crate) fn find_root<R>(&self, f: impl FnMut(BlockNo) -> Option<R>) -> Option<R> {
        self.roots.lock().iter().flatten().map(|root| root.start).find_map(f)
    }

    /// Whether the superblock could name the root zone that a zone's table entry needs.
    pub(crate) fn may_have_root_for(&self, medium: &Medium, zone: ZoneNo) -> bool {
        let (t, _) = medium.geometry().table_position(zone);
        (medium.geometry().table_home(t).0 as usize) < ROOT_ZONES_MAX
    }

    /// Makes a root zone at `start` if the table entry of `zone` has no home. In an Op.
    pub(crate) fn make_root_for(&self, medium: &Medium, zone: ZoneNo, start: BlockNo) -> bool {
        let (t, _) = medium.geometry().table_position(zone);
        let (r, _) = medium.geometry().table_home(t);
        let mut roots = self.roots.lock();
        if roots.get(r as usize).is_some_and(Option::is_some) {
            return false;
        }
        assert!((r as usize) < ROOT_ZONES_MAX, "prepare_group has checked it");
        while roots.len() <= r as usize {
            roots.push(None);
        }
        let (map, checks) = (Box::new([0; ZONE_INDEXES as usize]), Box::new([0; ZONE_INDEXES as usize]));
        self.root_count.fetch_add(1, Ordering::Relaxed);
        roots[r as usize] = Some(Root { start, exists: [0; 8], map, checks, current: None });
        true
    }

    /// Enters what the writer says of zones; returns the table blocks that changed and the headers of their
    /// root zones, and where they go by `place`. They are current from now on.
    pub(crate) fn update(
        &self,
        medium: &Medium,
        entries: &[(ZoneNo, ZoneTableEntry)],
        generation: Generation,
        place: Place,
    ) -> Result<TableWrite> {
        let mut changed: BTreeMap<u32, Vec<(usize, ZoneTableEntry)>> = BTreeMap::new();
        for (no, entry) in entries {
            let (t, i) = medium.geometry().table_position(*no);
            self.entry(medium, *no)?; // Brings the table block into memory.
            changed.entry(t).or_default().push((i, *entry));
        }
        // Readers of the table share this lock, so nothing goes to the device while it is held.
        let mut ready: Vec<(BlockNo, Box<Block>)> = Vec::new();
        let mut roots = self.roots.lock();
        let mut root_used: BTreeMap<u32, Slots> = BTreeMap::new();
        let mut headers: BTreeSet<u32> = BTreeSet::new();
        for (t, changes) in changed {
            let mut block = self.change_block(t, &changes);
            let (r, index) = medium.geometry().table_home(t);
            let root = roots[r as usize].as_mut().expect("an Op that makes a zone sees to its root zone");
            let used = root_used.entry(r).or_insert_with(|| Slots::of(&root.map[..]));
            let at = usize::from(index);
            if place == Place::Aside || root.map[at] == 0 {
                root.map[at] = used.take_first();
            }
            root.checks[at] = seal(&mut block, generation);
            root.exists[at / 64] |= 1 << (at % 64);
            ready.push((BlockNo(root.start.0 + u64::from(root.map[at])), block));
            headers.insert(r);
        }
        for r in headers {
            let root = roots[r as usize].as_mut().expect("written above");
            ready.push(root.next_header(medium, r, generation, place));
        }
        let current = roots.iter().map(|r| r.as_ref().and_then(|r| r.current)).collect();
        Ok(TableWrite { blocks: ready, roots: current })
    }

    /// Changes entries of a table block that is in memory; returns a copy of it.
    fn change_block(&self, t: u32, changes: &[(usize, ZoneTableEntry)]) -> Box<Block> {
        let mut blocks = self.blocks.lock();
        let block = blocks.get_mut(&t).expect("just brought into memory");
        let mut writer = ZoneTableMut::new(block);
        for (i, entry) in changes {
            writer.set(*i, *entry);
        }
        block.clone()
    }
}

impl Root {
    /// Makes the next header current; returns it and its place.
    fn next_header(
        &mut self,
        medium: &Medium,
        r: u32,
        generation: Generation,
        place: Place,
    ) -> (BlockNo, Box<Block>) {
        let no = ZoneNo::root(r);
        let geometry = medium.geometry();
        let group = geometry.group_of(self.start);
        let mut header = ZoneHeader::empty(medium.uuid(), geometry.blocks, self.start, no, group);
        header.exists = self.exists;
        header.map = self.map.clone();
        header.checks = self.checks.clone();
        let header_slot = match self.current {
            Some(current) if place == Place::Same => current.header_slot,
            Some(current) => 1 - current.header_slot,
            None => 0,
        };
        let (block, crc) = header.encode(generation);
        let at = BlockNo(self.start.0 + HEADER_SLOTS[usize::from(header_slot)]);
        debug_assert!(at.0 < self.start.0 + ZONE_BLOCKS);
        self.current = Some(RootZone { start: self.start, generation, crc, header_slot });
        (at, block)
    }
}
