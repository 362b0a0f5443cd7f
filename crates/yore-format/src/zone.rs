//! Zone headers and the zone table.
//!
//! A header has two sections: *which blocks exist* (logical: indexes in use, free inodes of each inode block,
//! further zones of the group) and *where they are* (physical: index → slot, and the checksum of the copy
//! that the slot holds). It is at once shadow page table and metadata allocator of its 4 MiB.
//!
//! The checksums close the chain superblock → root header → table block → zone header → block: each names
//! *which version* of the next it means. Without the last link a slot in which a write was lost would pass
//! with an older copy of the same block, which has the right address and owner and is sound in itself.

use crate::header::HEADER_BYTES;
use crate::layout::{EXTRA_ZONES_PER_GROUP, FIRST_SLOT, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use crate::{
    Block, BlockHeader, BlockKind, BlockNo, Corruption, EventNo, Features, Generation, GroupNo, Incarnation,
    InodeNo, MetaAddr, TablePlace, ZoneNo, TABLES_PER_GROUP, TABLE_PLACES, ZERO_BLOCK,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// In `inode_free`: the index holds no inode block.
pub const NOT_INODES: u8 = 0xff;
const INDEXES: usize = ZONE_INDEXES as usize;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawZoneHeader {
    header: [u8; HEADER_BYTES],
    uuid: [u8; 16],
    volume_blocks: U64,
    start: U64,
    zone: U32,
    group: U32,
    exists: [U64; 8],
    inode_free: [u8; INDEXES],
    round: U16,
    extras: [U32; EXTRA_ZONES_PER_GROUP],
    map: [U16; INDEXES],
    checks: [U32; INDEXES],
    tables: [U16; TABLE_PLACES],
    reserved1: [u8; 104],
}

const _: () = assert!(size_of::<RawZoneHeader>() == crate::BLOCK_SIZE);

/// A zone's header, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneHeader {
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// The volume's length in blocks.
    pub volume_blocks: u64,
    /// First block of the zone.
    pub start: BlockNo,
    /// The zone's number.
    pub zone: ZoneNo,
    /// The group it serves.
    pub group: GroupNo,
    /// Generation of this copy.
    pub generation: Generation,
    /// The round of a pass in which an engine that orders changes wrote this copy. No table entry names it:
    /// it counts if it is later than what the table names. 0: a table entry names it, or it never counted.
    pub round: u16,
    /// Logical: bit i set if index i is in use.
    pub exists: [u64; 8],
    /// Logical: free inodes in the inode block at each index, or [`NOT_INODES`].
    pub inode_free: Box<[u8; INDEXES]>,
    /// Logical, first zones only: the group's further zones, 0 for none (zone 0 is never a further one).
    pub extras: [u32; EXTRA_ZONES_PER_GROUP],
    /// Logical, first zones only: where the group's tables lie, as [`TablePlace`] encodes it, 0 for none. All
    /// are 0 without [`Features::TABLES`] and [`Features::CHECKSUMS`].
    pub tables: [u16; TABLE_PLACES],
    /// Physical: the slot (block within the zone) of each index, 0 for none.
    pub map: Box<[u16; INDEXES]>,
    /// Physical: the checksum in the block header of each index's current copy, 0 where there is no slot.
    pub checks: Box<[u32; INDEXES]>,
}

impl ZoneHeader {
    /// The index in the header's own [`MetaAddr`].
    pub const INDEX: u16 = 511;

    /// The header of a zone in which nothing exists.
    pub fn empty(
        uuid: [u8; 16],
        volume_blocks: u64,
        start: BlockNo,
        zone: ZoneNo,
        group: GroupNo,
    ) -> ZoneHeader {
        ZoneHeader {
            uuid,
            volume_blocks,
            start,
            zone,
            group,
            generation: Generation(0),
            round: 0,
            exists: [0; 8],
            inode_free: Box::new([NOT_INODES; INDEXES]),
            extras: [0; EXTRA_ZONES_PER_GROUP],
            tables: [0; TABLE_PLACES],
            map: Box::new([0; INDEXES]),
            checks: Box::new([0; INDEXES]),
        }
    }

    /// The header's own address.
    pub fn addr(zone: ZoneNo) -> MetaAddr {
        MetaAddr::new(zone, Self::INDEX)
    }

    /// Encodes and seals; returns the block and its checksum.
    pub fn encode(&self, generation: Generation) -> (Box<Block>, u32) {
        let mut block = Box::new(ZERO_BLOCK);
        let volume = u32::from_le_bytes(self.uuid[..4].try_into().expect("four bytes"));
        let raw = RawZoneHeader {
            header: [0; HEADER_BYTES],
            uuid: self.uuid,
            volume_blocks: self.volume_blocks.into(),
            start: self.start.0.into(),
            zone: self.zone.0.into(),
            group: self.group.0.into(),
            exists: self.exists.map(Into::into),
            inode_free: *self.inode_free,
            round: self.round.into(),
            extras: self.extras.map(Into::into),
            map: self.map.map(Into::into),
            checks: self.checks.map(Into::into),
            tables: self.tables.map(Into::into),
            reserved1: [0; 104],
        };
        block.copy_from_slice(raw.as_bytes());
        let addr = Self::addr(self.zone);
        BlockHeader::init(
            &mut block,
            BlockKind::ZoneHeader,
            0,
            addr,
            InodeNo::NONE,
            Incarnation(0),
            volume,
            EventNo(0),
        );
        let crc = crate::seal(&mut block, generation);
        (block, crc)
    }

    /// Whether this header counts in place of one of generation `than`, which a table entry names, or of
    /// another one that does: an engine that orders changes wrote it later. `since` is the superblock's
    /// `in_place_since`.
    pub fn replaces(&self, than: (Generation, u16), since: Generation) -> bool {
        self.round != 0 && since.0 != 0 && self.generation >= since && (self.generation, self.round) > than
    }

    /// Whether a block counts that was read from the slot of an index of this zone and verifies as the block
    /// with that address: it is the copy that the header means, or, under an engine that orders changes, one
    /// that was written over it since. `since` is the superblock's `in_place_since`; 0: nothing is written
    /// over.
    pub fn means(&self, index: u16, block: &Block, since: Generation) -> bool {
        let header = BlockHeader::of(block);
        let generation = header.generation.get();
        header.crc.get() == self.checks[usize::from(index)]
            || (since.0 != 0 && generation >= self.generation.0.max(since.0))
    }

    /// Decodes and verifies the content: reserved bytes, counts, and that existing indexes have distinct
    /// slots. A header in which an index exists without a slot, or the reverse, is never written; nor is a
    /// checksum without a slot. The caller verifies the block header.
    ///
    /// # Errors
    /// [`Corruption`] naming the field.
    pub fn decode(block: &Block) -> Result<ZoneHeader, Box<Corruption>> {
        ZoneHeader::decode_with(block, Features::SUPPORTED)
    }

    /// The same for a volume that has at most these features: what comes with another one is zero.
    ///
    /// # Errors
    /// As [`ZoneHeader::decode`].
    pub fn decode_with(block: &Block, features: Features) -> Result<ZoneHeader, Box<Corruption>> {
        let raw = RawZoneHeader::ref_from_bytes(&block[..]).expect("the sizes are equal");
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("zone header", field, expected, found))
        };
        if raw.reserved1.iter().any(|b| *b != 0)
            || (raw.round.get() != 0 && !features.contains(Features::IN_PLACE))
        {
            return bad("reserved bytes", "zero", "something else".into());
        }
        let header = ZoneHeader {
            uuid: raw.uuid,
            volume_blocks: raw.volume_blocks.get(),
            start: BlockNo(raw.start.get()),
            zone: ZoneNo(raw.zone.get()),
            group: GroupNo(raw.group.get()),
            generation: Generation(BlockHeader::of(block).generation.get()),
            round: raw.round.get(),
            exists: raw.exists.map(|w| w.get()),
            inode_free: Box::new(raw.inode_free),
            extras: raw.extras.map(|e| e.get()),
            tables: raw.tables.map(|start| start.get()),
            map: Box::new(raw.map.map(|s| s.get())),
            checks: Box::new(raw.checks.map(|c| c.get())),
        };
        header.verify_indexes()?;
        header.verify_tables(features)?;
        Ok(header)
    }

    fn verify_indexes(&self) -> Result<(), Box<Corruption>> {
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("zone header", field, expected, found))
        };
        let mut slots = [0u64; 16];
        for index in 0..INDEXES {
            let slot = self.map[index];
            if self.has(index as u16) != (slot != 0) {
                return bad(
                    "map",
                    "a slot for each existing index and no other",
                    format!("index {index}, slot {slot}"),
                );
            }
            if slot == 0 {
                let check = self.checks[index];
                if check != 0 {
                    return bad("checks", "0 without a slot", format!("index {index}: {check:#010x}"));
                }
                continue;
            }
            let slot = u64::from(slot);
            if !(FIRST_SLOT..ZONE_BLOCKS).contains(&slot)
                || slots[slot as usize / 64] & (1 << (slot % 64)) != 0
            {
                return bad("map", "distinct slots within the zone", format!("index {index}, slot {slot}"));
            }
            slots[slot as usize / 64] |= 1 << (slot % 64);
            let free = self.inode_free[index];
            if free != NOT_INODES && usize::from(free) > crate::INODES_PER_BLOCK {
                return bad("free inodes", "at most 16", format!("index {index}: {free}"));
            }
        }
        if self.exists[7] >> (INDEXES - 448) != 0 {
            return bad("existing indexes", "510 of them", format!("{:#x}", self.exists[7]));
        }
        Ok(())
    }

    /// Checks the places of the group's tables: in the group's zones, each once, and in this zone at indexes
    /// that exist and have no inodes.
    fn verify_tables(&self, features: Features) -> Result<(), Box<Corruption>> {
        if self.tables == [0; TABLE_PLACES] {
            return Ok(());
        }
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("zone header", field, expected, found))
        };
        let (counts, checksums) = self.tables.split_at(TABLES_PER_GROUP);
        for (places, feature) in [(counts, Features::TABLES), (checksums, Features::CHECKSUMS)] {
            if !features.contains(feature) && places.iter().any(|start| *start != 0) {
                return bad("reserved bytes", "zero", "something else".into());
            }
        }
        if !self.zone.is_primary() {
            return bad("tables", "none, but in first zones", "some".into());
        }
        let mut places = self.tables;
        places.sort_unstable();
        if let Some(two) = places.windows(2).find(|two| two[0] == two[1] && two[0] != 0) {
            return bad("tables", "each at a place of its own", format!("two at {:#x}", two[0]));
        }
        for start in self.tables.into_iter().filter(|start| *start != 0) {
            let is_table = TablePlace::decode(start).is_some_and(|TablePlace { zone, index }| match zone {
                0 => index != 0 && self.has(index) && self.inode_free[usize::from(index)] == NOT_INODES,
                further => self.extras[usize::from(further) - 1] != 0,
            });
            if !is_table {
                return bad("tables", "places in zones of the group", format!("{start:#x}"));
            }
        }
        Ok(())
    }

    /// The table of this kind and number, if the group of this first zone has it.
    ///
    /// # Panics
    /// For a kind that is no table.
    pub fn table(&self, kind: BlockKind, number: u8) -> Option<MetaAddr> {
        let TablePlace { zone, index } = TablePlace::decode(self.tables[TablePlace::position(kind, number)])?;
        let zone = match zone {
            0 => self.zone,
            further => ZoneNo(self.extras[usize::from(further) - 1]),
        };
        Some(MetaAddr::new(zone, index))
    }

    /// Whether `index` exists.
    pub fn has(&self, index: u16) -> bool {
        self.exists[usize::from(index) / 64] & (1 << (index % 64)) != 0
    }
}

/// The layout of a zone header, the block header included.
pub(crate) fn header_layout() -> crate::StructLayout {
    crate::tables::layout!("Zone header", RawZoneHeader: header, uuid, volume_blocks, start, zone, group, exists, inode_free, round, extras, map, checks, tables, reserved1)
}

/// The layout of an entry of the zone table.
pub(crate) fn entry_layout() -> crate::StructLayout {
    crate::tables::layout!("Zone table entry", ZoneTableEntry: start, generation, crc, header_slot, present, free_blocks, free_indexes, free_inodes)
}

/// What the table holds for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneTableEntry {
    /// First block of the zone.
    pub start: U64,
    /// Generation of the current header.
    pub generation: U64,
    /// Its checksum.
    pub crc: U32,
    /// Which header slot is current: 0 or 1.
    pub header_slot: u8,
    /// 1: the zone exists. 0: it does not, and the whole entry is zero.
    pub present: u8,
    /// First zones only: free blocks in the group's bitmap.
    pub free_blocks: U16,
    /// Indexes that do not exist.
    pub free_indexes: U16,
    /// Free inodes in the zone's inode blocks.
    pub free_inodes: U16,
}

const _: () = assert!(HEADER_BYTES + ZONE_TABLE_ENTRIES * size_of::<ZoneTableEntry>() == crate::BLOCK_SIZE);

impl ZoneTableEntry {
    /// The entry of a zone that does not exist.
    pub const ABSENT: ZoneTableEntry = ZoneTableEntry {
        start: U64::ZERO,
        generation: U64::ZERO,
        crc: U32::ZERO,
        header_slot: 0,
        present: 0,
        free_blocks: U16::ZERO,
        free_indexes: U16::ZERO,
        free_inodes: U16::ZERO,
    };

    /// Whether the zone exists.
    pub fn is_present(&self) -> bool {
        self.present != 0
    }
}

/// A zone table block to read.
#[derive(Clone, Copy)]
pub struct ZoneTableRef<'a>(&'a Block);

impl<'a> ZoneTableRef<'a> {
    /// `block` as part of the zone table.
    pub fn new(block: &'a Block) -> Self {
        ZoneTableRef(block)
    }

    /// Entry `i` of 144.
    pub fn entry(self, i: usize) -> ZoneTableEntry {
        let at = HEADER_BYTES + i * size_of::<ZoneTableEntry>();
        let (entry, _) = ZoneTableEntry::read_from_prefix(&self.0[at..]).expect("144 entries fill the block");
        entry
    }

    /// Checks every entry's flags.
    ///
    /// # Errors
    /// [`Corruption`] naming the entry.
    pub fn verify(self) -> Result<(), Box<Corruption>> {
        for i in 0..ZONE_TABLE_ENTRIES {
            let e = self.entry(i);
            let sound = match e.present {
                0 => e == ZoneTableEntry::ABSENT,
                1 => {
                    e.header_slot <= 1
                        && e.start.get().is_multiple_of(ZONE_BLOCKS)
                        && u32::from(e.free_indexes.get()) <= ZONE_INDEXES
                }
                _ => false,
            };
            if !sound {
                return Err(Corruption::new(
                    "zone table block",
                    "entry",
                    "absent or sound",
                    format!("entry {i}: {e:?}"),
                ));
            }
        }
        Ok(())
    }
}

/// A zone table block to change.
pub struct ZoneTableMut<'a>(&'a mut Block);

impl<'a> ZoneTableMut<'a> {
    /// `block`, already part of the zone table, to change.
    pub fn new(block: &'a mut Block) -> Self {
        ZoneTableMut(block)
    }

    /// Writes entry `i`.
    pub fn set(&mut self, i: usize, entry: ZoneTableEntry) {
        let at = HEADER_BYTES + i * size_of::<ZoneTableEntry>();
        self.0[at..at + size_of::<ZoneTableEntry>()].copy_from_slice(entry.as_bytes());
    }
}
