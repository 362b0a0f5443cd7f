//! Finds which metadata block is where on a volume, and which fields it has.
//!
//! The way down is that of [`crate::mend`]: superblock, root zones, table, zone headers, and the blocks that
//! they map. Blocks that cannot be reached are left out.

use yore_device::Device;
use yore_format::layout::{FIRST_SLOT, HEADER_SLOTS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{
    decode_slots, layout_tables, Block, BlockHeader, BlockKind, BlockNo, Inode, NodeRef, ZoneHeader,
    ZoneTableRef, BLOCK_SIZE, HEADER_BYTES, HISTORY_ROOTS, INODES_PER_BLOCK, INODE_BYTES, ZERO_BLOCK,
};

/// A metadata block on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where it is.
    pub block: BlockNo,
    /// What it is; `None` for a superblock slot.
    pub kind: Option<BlockKind>,
}

impl Site {
    /// The name of its kind.
    pub fn name(&self) -> &'static str {
        self.kind.map_or("superblock", BlockKind::name)
    }
}

/// Some bytes of a block that have a meaning together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What they are.
    pub name: String,
    /// Bytes before them in the block.
    pub offset: usize,
    /// How many: 1, 2, 4 or 8.
    pub size: usize,
}

/// A block of a device; zeros if there is none.
pub fn read(device: &dyn Device, block: BlockNo) -> Box<Block> {
    let mut bytes = Box::new(ZERO_BLOCK);
    let offset = block.0.saturating_mul(BLOCK_SIZE as u64);
    if device.read_at(offset, &mut bytes[..]).is_err() {
        bytes.fill(0);
    }
    bytes
}

/// All metadata blocks that the newest superblock leads to, and the superblock slots.
pub fn sites(device: &dyn Device) -> Vec<Site> {
    let mut sites = [0, 1].map(|slot| Site { block: BlockNo(slot), kind: None }).to_vec();
    let slots = [0, 1].map(|slot| read(device, BlockNo(slot)));
    let Ok((superblock, ..)) = decode_slots([&slots[0], &slots[1]]) else { return sites };
    let mut tables = Vec::new();
    for root in superblock.root_zones.iter().flatten() {
        tables.extend(zone(device, root.start, root.header_slot, &mut sites));
    }
    for table in tables {
        let table = read(device, table);
        for i in 0..ZONE_TABLE_ENTRIES {
            let entry = ZoneTableRef::new(&table).entry(i);
            if entry.is_present() {
                zone(device, BlockNo(entry.start.get()), entry.header_slot, &mut sites);
            }
        }
    }
    sites
}

/// Enters a zone's header and blocks; returns its blocks.
fn zone(device: &dyn Device, start: BlockNo, header_slot: u8, sites: &mut Vec<Site>) -> Vec<BlockNo> {
    let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(header_slot & 1)]);
    sites.push(Site { block: at, kind: Some(BlockKind::ZoneHeader) });
    let Ok(header) = ZoneHeader::decode(&read(device, at)) else { return Vec::new() };
    let mapped = |index: usize| u64::from(header.map[index]);
    let slots = (0..ZONE_INDEXES as usize).map(mapped).filter(|slot| *slot >= FIRST_SLOT);
    let blocks: Vec<BlockNo> = slots.map(|slot| BlockNo(start.0 + slot)).collect();
    for block in &blocks {
        let kind = BlockKind::from_repr(BlockHeader::of(&read(device, *block)).kind);
        sites.extend(kind.map(|kind| Site { block: *block, kind: Some(kind) }));
    }
    blocks
}

/// Every field of a block, by the tables of the format; for arrays and trees some at the beginning and at the
/// end.
pub fn fields(site: &Site, block: &Block) -> Vec<Field> {
    let mut fields = Vec::new();
    let Some(kind) = site.kind else {
        table("Superblock", 0, &mut fields);
        for entry in [0, 1, 17, 18] {
            table("Root zone entry", 512 * (1 + entry / 18) + 28 * (entry % 18), &mut fields);
        }
        return fields;
    };
    table("Block header", 0, &mut fields);
    match kind {
        BlockKind::ZoneHeader => table("Zone header", 0, &mut fields),
        BlockKind::Bitmap => table("Bitmap", 0, &mut fields),
        BlockKind::ZoneTable => {
            for entry in (0..5).chain([ZONE_TABLE_ENTRIES - 1]) {
                table("Zone table entry", HEADER_BYTES + 28 * entry, &mut fields);
            }
        }
        BlockKind::Inodes => {
            for slot in 0..INODES_PER_BLOCK {
                let bytes = Inode::slot(block, slot);
                // All free inodes are alike.
                if slot < INODES_PER_BLOCK - 1 && bytes[..4] == [0; 4] {
                    continue;
                }
                table("Inode", HEADER_BYTES + slot * INODE_BYTES, &mut fields);
            }
        }
        BlockKind::HistoryRoots => {
            for tree in [0, 1, 2, HISTORY_ROOTS / 2, HISTORY_ROOTS - 2, HISTORY_ROOTS - 1] {
                table("History root", HEADER_BYTES + 16 * tree, &mut fields);
            }
        }
        _ => node(block, &mut fields),
    }
    fields
}

/// The index, cells and first bytes of values of a tree's node.
fn node(block: &Block, fields: &mut Vec<Field>) {
    table("Tree node", 0, fields);
    let start = yore_format::NODE_HEADER_BYTES;
    if NodeRef::new(block).verify().is_err() {
        return;
    }
    let count = NodeRef::new(block).count();
    for i in (0..count).filter(|i| *i < 2 || *i == count / 2 || *i + 1 == count) {
        let entry = start + 2 * i;
        let cell = usize::from(u16::from_le_bytes([block[entry], block[entry + 1]]));
        let size = usize::from(u16::from_le_bytes([block[cell], block[cell + 1]]));
        let mut add = |name: &str, offset, size| {
            fields.push(Field { name: format!("cell {i} {name}"), offset, size });
        };
        add("index", entry, 2);
        add("size", cell, 2);
        add("flags", cell + 2, 1);
        add("reserved", cell + 3, 1);
        let width = NodeRef::new(block).key_width();
        for part in (0..width).step_by(8) {
            add(&format!("key at {part}"), cell + 4 + part, (width - part).min(8));
        }
        let value = cell + 4 + width;
        let len = size.saturating_sub(4 + width);
        // For rows of the annals and keys of their indexes, any byte: numbers there have no fixed places.
        for at in (0..len.min(64)).filter(|_| !width.is_multiple_of(8)) {
            add(&format!("value byte {at}"), value + at, 1);
        }
        // For versions, the words of the inode; two words may be one field.
        for word in (0..len.min(268)).step_by(4).filter(|at| len > 80 && at + 8 <= len) {
            add(&format!("value at {word}"), value + word, 8);
        }
        // The layouts of all values: directory entries, extents, attributes, orphans, addresses, events, past
        // names.
        for (offset, size) in
            [(0, 8), (8, 4), (12, 8), (20, 1), (21, 1), (22, 1), (0, 1), (1, 1), (2, 1), (4, 4)]
        {
            if offset + size <= len {
                add(&format!("value at {offset}"), value + offset, size);
            }
        }
    }
}

/// Adds the fields of a table of FORMAT.md, at `base` in the block; long ones in pieces.
fn table(name: &str, base: usize, fields: &mut Vec<Field>) {
    let tables = layout_tables();
    let table = tables.iter().find(|table| table.name.starts_with(name)).expect("a table of the format");
    for field in &table.fields {
        if matches!(field.name, "header" | "crc" | "index_and_cells") {
            // These are fields of their own, or are repaired anyway.
            continue;
        }
        let pieces = pieces(field.size);
        let single = pieces.len() == 1;
        for (offset, size) in pieces {
            let element = if single { String::new() } else { format!("+{offset}") };
            let name = format!("{name} {}{element} at {}", field.name, base);
            fields.push(Field { name, offset: base + field.offset + offset, size });
        }
    }
}

/// A field as numbers: whole if it is one number, else its first words and its last.
fn pieces(size: usize) -> Vec<(usize, usize)> {
    match size {
        1 | 2 | 4 | 8 => vec![(0, size)],
        // Times, and fields of less than a few words.
        _ if size <= 16 => {
            (0..size).step_by(4).map(|at| (at, 4.min(size - at))).filter(|p| p.1 == 4).collect()
        }
        _ if size <= 128 => {
            (0..size / 4).map(|i| (4 * i, 4)).chain((0..size / 8).map(|i| (8 * i, 8))).collect()
        }
        _ => {
            let mut pieces: Vec<_> = (0..4).flat_map(|i| [(2 * i, 2), (8 * i, 8)]).collect();
            pieces.extend([(0, 1), (1, 1), (size - 8, 8), (size - 2, 2), (size - 1, 1)]);
            pieces
        }
    }
}
