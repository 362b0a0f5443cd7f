//! Volumes built by hand through `yore-format`. A test can change a model of zones, inodes and trees before
//! it is written. Hooks change single structures while it is written, and everything above them (checksums,
//! counts, totals) is kept right. So a test plants exactly one damage.

#![allow(dead_code)]

pub mod chain;
pub mod past;
mod sample;
pub mod shared;

use std::collections::BTreeMap;
use yore_device::{Device, MemoryDevice};
use yore_format::layout::*;
use yore_format::*;

pub use sample::*;

pub const SEED: [u8; 16] = *b"seed of the hash";
pub const UUID: [u8; 16] = *b"a volume's uuid.";
pub const GENERATION: Generation = Generation(7);
/// Two whole groups and a short one.
pub const BLOCKS: u64 = 2 * GROUP_BLOCKS + 4 * ZONE_BLOCKS;

type Hook<T> = Box<dyn Fn(&mut T)>;
type After = Box<dyn Fn(&MemoryDevice)>;

pub struct ZoneModel {
    pub start: BlockNo,
    pub group: GroupNo,
    pub blocks: BTreeMap<u16, Box<Block>>,
    pub extras: [u32; EXTRA_ZONES_PER_GROUP],
}

pub struct Builder {
    pub sb: Superblock,
    pub zones: BTreeMap<u32, ZoneModel>,
    pub inodes: BTreeMap<InodeNo, Inode>,
    /// Incarnations kept in free slots.
    pub left_incarnations: BTreeMap<InodeNo, u32>,
    /// Runs of data blocks to mark used.
    pub used: Vec<(BlockNo, u64)>,
    next_data: u64,
    pub on_inode_slot: Vec<(InodeNo, Hook<[u8; INODE_BYTES]>)>,
    pub on_block: Vec<(MetaAddr, Hook<Block>)>,
    pub on_header: Vec<(u32, Hook<ZoneHeader>)>,
    pub on_entry: Vec<(u32, Hook<ZoneTableEntry>)>,
    pub on_table: Vec<Hook<Block>>,
    pub on_superblock: Vec<Hook<Superblock>>,
    /// The past, which is written if there is any.
    pub past: past::PastModel,
    /// These change bytes of the finished device; nothing is put right afterwards.
    pub after: Vec<After>,
}

pub fn read(device: &dyn Device, block: u64) -> Box<Block> {
    let mut bytes = Box::new(ZERO_BLOCK);
    device.read_at(block * BLOCK_SIZE as u64, &mut bytes[..]).unwrap();
    bytes
}

pub fn write(device: &dyn Device, block: u64, bytes: &Block) {
    device.write_at(block * BLOCK_SIZE as u64, bytes).unwrap();
}

pub fn tag() -> u32 {
    u32::from_le_bytes(UUID[..4].try_into().unwrap())
}

/// A metadata block that is sealed later. A node of a tree was born at number 1.
pub fn block(kind: BlockKind, level: u8, addr: MetaAddr, owner: InodeNo, incarnation: u32) -> Box<Block> {
    born(EventNo(u64::from(kind.is_tree())), kind, level, addr, (owner, incarnation))
}

/// The same block with any birth.
pub fn born(
    birth: EventNo,
    kind: BlockKind,
    level: u8,
    addr: MetaAddr,
    (owner, incarnation): (InodeNo, u32),
) -> Box<Block> {
    let mut block = Box::new(ZERO_BLOCK);
    BlockHeader::init(&mut block, kind, level, addr, owner, Incarnation(incarnation), tag(), birth);
    block
}

pub fn empty_inode(mode: u32, links: u32, incarnation: u32) -> Inode {
    let mut inode = Inode::free();
    inode.mode = mode;
    inode.links = links;
    inode.incarnation = Incarnation(incarnation);
    inode.born = EventNo(1);
    inode
}

impl Builder {
    pub fn empty(blocks: u64) -> Builder {
        let sb = Superblock {
            uuid: UUID,
            volume_blocks: blocks,
            generation: GENERATION,
            mount_id: 3,
            engine: Engine::Snapshot,
            state: VolumeState::Clean,
            next_incarnation: 100,
            next_number: EventNo(5),
            hash_seed: SEED,
            created_seconds: 1,
            written_seconds: 2,
            root_directory: InodeNo::ROOT,
            orphan_root: MetaAddr::NONE,
            orphan_level: 0,
            events_root: MetaAddr::NONE,
            history_root: MetaAddr::NONE,
            free_blocks: 0,
            inodes: 0,
            metadata_blocks: 0,
            zones: 0,
            zone_number_limit: 0,
            log_start: BlockNo(0),
            log_blocks: 0,
            log_id: 0,
            log_position: 0,
            log_number: 1,
            log_sequence: 1,
            log_chain: 0,
            log_generation: Generation(0),
            external_log: None,
            label: "built by hand".into(),
            features: WriteFeatures::empty(),
            space_rules: None,
            in_place_since: Generation(0),
            step: 0,
            findings_root: MetaAddr::NONE,
            findings_level: 0,
            scrub: Scrub::default(),
            root_zones: vec![None],
        };
        Builder {
            sb,
            zones: BTreeMap::new(),
            inodes: BTreeMap::new(),
            left_incarnations: BTreeMap::new(),
            used: vec![(BlockNo(ZONE_BLOCKS), ZONE_BLOCKS)],
            next_data: 4 * ZONE_BLOCKS,
            on_inode_slot: vec![],
            on_block: vec![],
            on_header: vec![],
            on_entry: vec![],
            on_table: vec![],
            on_superblock: vec![],
            past: past::PastModel::default(),
            after: vec![],
        }
    }

    pub fn add_zone(&mut self, number: u32, start: u64, group: u32) {
        if number & 1 == 1 {
            self.used.push((BlockNo(start), ZONE_BLOCKS));
            let extras = &mut self.zones.get_mut(&(group * 2)).unwrap().extras;
            *extras.iter_mut().find(|e| **e == 0).unwrap() = number;
        }
        let (start, group) = (BlockNo(start), GroupNo(group));
        let mut blocks = BTreeMap::new();
        if number & 1 == 0 {
            // The bits of the bitmap are filled in at the end.
            let addr = MetaAddr::new(ZoneNo(number), 0);
            blocks.insert(0, block(BlockKind::Bitmap, 0, addr, InodeNo::NONE, 0));
        }
        self.zones.insert(number, ZoneModel { start, group, blocks, extras: [0; EXTRA_ZONES_PER_GROUP] });
    }

    /// Takes `len` data blocks of group 0.
    pub fn data(&mut self, len: u64) -> BlockNo {
        let start = BlockNo(self.next_data);
        self.next_data += len + 3;
        self.used.push((start, len));
        start
    }

    /// An unused address in the zone.
    pub fn address(&self, zone: u32) -> MetaAddr {
        let blocks = &self.zones[&zone].blocks;
        let index = (2..510).find(|i| !blocks.contains_key(i)).unwrap();
        MetaAddr::new(ZoneNo(zone), index)
    }

    pub fn node(&mut self, addr: MetaAddr, node: Box<Block>, cells: &[(u64, Vec<u8>)]) {
        let cells: Vec<past::Cell> =
            cells.iter().map(|(k, v)| (k.to_be_bytes().to_vec(), v.clone())).collect();
        self.wide_node(addr, node, 8, &cells);
    }

    pub fn wide_node(&mut self, addr: MetaAddr, mut node: Box<Block>, width: usize, cells: &[past::Cell]) {
        let mut n = NodeMut::init(&mut node, width);
        for (i, (key, value)) in cells.iter().enumerate() {
            n.insert(i, key, value);
        }
        self.zones.get_mut(&addr.zone().0).unwrap().blocks.insert(addr.index(), node);
    }

    /// Makes a tree with these leaves, under one branch if there are several. Returns root, level and number
    /// of nodes.
    pub fn tree(
        &mut self,
        zone: u32,
        kind: BlockKind,
        (owner, incarnation): (InodeNo, u32),
        leaves: &[Vec<(u64, Vec<u8>)>],
    ) -> (MetaAddr, u8, u64) {
        let mut children = vec![];
        for leaf in leaves {
            let addr = self.address(zone);
            self.node(addr, block(kind, 0, addr, owner, incarnation), leaf);
            children.push((leaf.first().map_or(0, |c| c.0), addr.0.to_le_bytes().to_vec()));
        }
        if let [(_, root)] = &children[..] {
            return (MetaAddr(u64::from_le_bytes(root[..].try_into().unwrap())), 0, 1);
        }
        let addr = self.address(zone);
        self.node(addr, block(kind, 1, addr, owner, incarnation), &children);
        (addr, 1, leaves.len() as u64 + 1)
    }

    /// The cell of an entry, under its first cookie.
    pub fn entry(&self, name: &str, inode: u64) -> (u64, Vec<u8>) {
        let target = &self.inodes[&InodeNo(inode)];
        let mut value = vec![];
        DirEntry {
            inode: InodeNo(inode),
            incarnation: target.incarnation,
            birth: EventNo(1),
            kind: FileKind::from_mode(target.mode).unwrap(),
            name: name.as_bytes(),
        }
        .encode(&mut value);
        (name_cookie(&SEED, name.as_bytes()), value)
    }

    /// Stores in the named inodes where their name is.
    pub fn set_parents(&mut self, parent: u64, cells: &[(u64, Vec<u8>)]) {
        let incarnation = self.inodes[&InodeNo(parent)].incarnation;
        for (cookie, value) in cells {
            let target = DirEntry::decode(value).unwrap().inode;
            let inode = self.inodes.get_mut(&target).unwrap();
            (inode.parent, inode.parent_incarnation, inode.parent_cookie) =
                (InodeNo(parent), incarnation, *cookie);
        }
    }

    pub fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes.get_mut(&InodeNo(number)).unwrap()
    }

    fn fill_inodes(&mut self) {
        let mut numbers: Vec<InodeNo> = self.inodes.keys().copied().collect();
        numbers.extend(self.left_incarnations.keys());
        for number in numbers {
            let addr = number.addr();
            let zone = self.zones.get_mut(&addr.zone().0).unwrap();
            let block = zone
                .blocks
                .entry(addr.index())
                .or_insert_with(|| block(BlockKind::Inodes, 0, addr, InodeNo::NONE, 0));
            let (slot, _) = Inode::slot_mut(block, number.slot());
            if let Some(inode) = self.inodes.get(&number) {
                inode.encode(slot);
            }
            if let Some(incarnation) = self.left_incarnations.get(&number) {
                slot[32..36].copy_from_slice(&incarnation.to_le_bytes());
            }
            for (_, hook) in self.on_inode_slot.iter().filter(|(n, _)| *n == number) {
                hook(slot);
            }
        }
    }

    fn fill_bitmaps(&mut self) {
        let g = Geometry::new(self.sb.volume_blocks);
        for (number, zone) in &mut self.zones {
            let Some(bitmap) = zone.blocks.get_mut(&0).filter(|_| number & 1 == 0) else { continue };
            let mut bits = BitmapMut::init(bitmap, g.data_blocks(zone.group) as u32);
            for (start, len) in &self.used {
                for b in start.0..start.0 + len {
                    if let Some((group, bit)) = g.bit_of(BlockNo(b)) {
                        if group == zone.group {
                            bits.set(bit, 1, true);
                        }
                    }
                }
            }
        }
    }

    /// The header of a zone, made from its blocks.
    fn header(&self, number: u32, zone: &ZoneModel) -> ZoneHeader {
        let mut h = ZoneHeader::empty(UUID, self.sb.volume_blocks, zone.start, ZoneNo(number), zone.group);
        h.extras = zone.extras;
        for (nth, (index, block)) in zone.blocks.iter().enumerate() {
            let i = usize::from(*index);
            h.exists[i / 64] |= 1 << (i % 64);
            h.map[i] = FIRST_SLOT as u16 + 2 * nth as u16;
            if BlockHeader::of(block).kind == BlockKind::Inodes as u8 {
                let free = (0..INODES_PER_BLOCK).filter(|s| Inode::slot_is_free(block, *s)).count();
                h.inode_free[i] = free as u8;
            }
        }
        h
    }

    fn entry_of(&self, number: u32, zone: &ZoneModel, header: &ZoneHeader) -> ZoneTableEntry {
        let existing: u32 = header.exists.iter().map(|w| w.count_ones()).sum();
        let inodes: u32 = header.inode_free.iter().filter(|f| **f != NOT_INODES).map(|f| u32::from(*f)).sum();
        let free = match zone.blocks.get(&0) {
            Some(bitmap) if number & 1 == 0 => BITS_PER_GROUP - BitmapRef::new(bitmap).used(),
            _ => 0,
        };
        ZoneTableEntry {
            start: zone.start.0.into(),
            generation: GENERATION.0.into(),
            crc: 0.into(),
            header_slot: 1,
            present: 1,
            free_blocks: (free as u16).into(),
            free_indexes: ((ZONE_INDEXES - existing) as u16).into(),
            free_inodes: (inodes as u16).into(),
        }
    }

    /// Removes the tree of an inode's content from the volume.
    pub fn forget(&mut self, inode: u64) {
        let root = self.inodes[&InodeNo(inode)].tree_root();
        self.forget_tree(root);
    }

    /// Removes a tree of at most two levels from the volume.
    pub fn forget_tree(&mut self, root: MetaAddr) {
        let block = self.zones.get_mut(&root.zone().0).unwrap().blocks.remove(&root.index()).unwrap();
        let node = NodeRef::new(&block);
        for i in 0..if node.level() > 0 { node.count() } else { 0 } {
            let child = node.child(i).unwrap();
            self.zones.get_mut(&child.zone().0).unwrap().blocks.remove(&child.index()).unwrap();
        }
    }

    /// Writes the volume.
    pub fn finish(self) -> MemoryDevice {
        self.finish_with_written().0
    }

    /// Writes the volume. Also returns the physical blocks in use: superblocks, current headers, table, and
    /// every existing block.
    pub fn finish_with_written(mut self) -> (MemoryDevice, Vec<u64>) {
        self.fill_past();
        let mut written = vec![0, 1, 2, 10];
        for root in self.sb.root_zones.iter().skip(1).flatten() {
            written.push(root.start.0 + HEADER_SLOTS[usize::from(root.header_slot)]);
        }
        self.fill_inodes();
        self.fill_bitmaps();
        let device = MemoryDevice::new(self.sb.volume_blocks * BLOCK_SIZE as u64);
        let g = Geometry::new(self.sb.volume_blocks);
        let mut table = block(BlockKind::ZoneTable, 0, MetaAddr::new(ZoneNo::root(0), 0), InodeNo::NONE, 0);
        let mut sb = self.sb.clone();
        sb.inodes = self.inodes.len() as u64;
        sb.zone_number_limit = self.zones.keys().max().map_or(0, |m| m + 1);
        sb.free_blocks = (0..g.groups())
            .map(GroupNo)
            .filter(|g| !self.zones.contains_key(&(g.0 * 2)))
            .map(|group| g.data_blocks(group))
            .sum();
        let numbers: Vec<u32> = self.zones.keys().copied().collect();
        for number in numbers {
            let zone = &self.zones[&number];
            let mut header = self.header(number, zone);
            let mut entry = self.entry_of(number, zone, &header);
            sb.free_blocks += u64::from(entry.free_blocks.get());
            sb.metadata_blocks += zone.blocks.len() as u64;
            for (index, block) in &zone.blocks {
                let mut block = block.clone();
                let addr = MetaAddr::new(ZoneNo(number), *index);
                let mut check = seal(&mut block, GENERATION);
                for (_, hook) in self.on_block.iter().filter(|(a, _)| *a == addr) {
                    let generation = Generation(BlockHeader::of(&block).generation.get());
                    hook(&mut block);
                    let changed = Generation(BlockHeader::of(&block).generation.get());
                    check = seal(&mut block, if changed == generation { GENERATION } else { changed });
                }
                header.checks[usize::from(*index)] = check;
                write(&device, zone.start.0 + u64::from(header.map[usize::from(*index)]), &block);
            }
            for (_, hook) in self.on_header.iter().filter(|(n, _)| *n == number) {
                hook(&mut header);
            }
            let (bytes, crc) = header.encode(GENERATION);
            entry.crc = crc.into();
            write(&device, zone.start.0 + HEADER_SLOTS[1], &bytes);
            for (_, hook) in self.on_entry.iter().filter(|(n, _)| *n == number) {
                hook(&mut entry);
            }
            ZoneTableMut::new(&mut table).set(number as usize, entry);
            written.push(zone.start.0 + HEADER_SLOTS[1]);
            let slots = (0..zone.blocks.len() as u64).map(|nth| FIRST_SLOT + 2 * nth);
            written.extend(slots.map(|slot| zone.start.0 + slot));
        }
        self.finish_roots(&device, &mut table, &mut sb);
        for hook in &self.after {
            hook(&device);
        }
        (device, written)
    }

    /// Root zones: number 0 with the table; others, whose places the superblock already has, are empty.
    fn finish_roots(&self, device: &MemoryDevice, table: &mut Block, sb: &mut Superblock) {
        for hook in &self.on_table {
            hook(table);
        }
        let check = seal(table, GENERATION);
        write(device, 10, table);
        sb.root_zones[0] =
            Some(RootZone { start: BlockNo(0), generation: GENERATION, crc: 0, header_slot: 0 });
        for n in 0..sb.root_zones.len() as u32 {
            let Some(root) = &mut sb.root_zones[n as usize] else { continue };
            let number = ZoneNo::root(n);
            let mut header = ZoneHeader::empty(UUID, self.sb.volume_blocks, root.start, number, GroupNo(0));
            if n == 0 {
                header.exists[0] = 1;
                header.map[0] = 10;
                header.checks[0] = check;
            }
            for (_, hook) in self.on_header.iter().filter(|(h, _)| *h == number.0) {
                hook(&mut header);
            }
            let (bytes, crc) = header.encode(GENERATION);
            (root.crc, root.generation) = (crc, GENERATION);
            if root.start.0 + ZONE_BLOCKS <= self.sb.volume_blocks {
                write(device, root.start.0 + HEADER_SLOTS[usize::from(root.header_slot)], &bytes);
            }
        }
        sb.zones = (self.zones.len() + sb.root_zones.iter().flatten().count()) as u32;
        for hook in &self.on_superblock {
            hook(sb);
        }
        let older = Superblock { generation: Generation(GENERATION.0 - 1), ..sb.clone() };
        write(device, 0, &older.encode(0));
        write(device, 1, &sb.encode(1));
    }
}

pub fn extent(start: BlockNo, len: u32, unwritten: bool) -> ExtentValue {
    ExtentValue { start, len, unwritten, shared: false, birth: EventNo(1) }
}
