//! Tables of a group: four bytes for each block of its data area, made where there is something to say.
//!
//! A group has up to 32 *count tables* and 32 *checksum tables*, of 1,008 blocks each. A table lies in any
//! zone of its group; the header of the group's first zone says where ([`TablePlace`]), and the table says in
//! its own header which one it is ([`TableNo`]). A table that does not exist is one of zeros, and zero means
//! the usual: no more than one reference, no checksum known.

use crate::header::HEADER_BYTES;
use crate::layout::{EXTRA_ZONES_PER_GROUP, GROUP_BLOCKS, ZONE_BLOCKS, ZONE_INDEXES};
use crate::{
    checksum, Block, BlockHeader, BlockKind, Corruption, GroupNo, InodeNo, TableNo, Touched, BLOCK_SIZE,
};
use std::num::NonZeroU32;

/// Blocks that one table describes.
pub const TABLE_ENTRIES: usize = (BLOCK_SIZE - HEADER_BYTES) / ENTRY;
/// Tables of each kind that a group can have.
pub const TABLES_PER_GROUP: usize = DATA_BLOCKS.div_ceil(TABLE_ENTRIES);
/// Places of tables in the header of a group's first zone: count tables, then checksum tables.
pub const TABLE_PLACES: usize = 2 * TABLES_PER_GROUP;
const ENTRY: usize = 4;
const DATA_BLOCKS: usize = (GROUP_BLOCKS - ZONE_BLOCKS) as usize;

const _: () = assert!(TABLES_PER_GROUP == 1 << TableNo::NUMBER_BITS);

/// Where a table lies: in which of the group's zones, and at which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TablePlace {
    /// 0: the group's first zone; i + 1: the i-th of its further zones.
    pub zone: u8,
    /// The index in that zone. 0 of the first zone is the bitmap.
    pub index: u16,
}

impl TablePlace {
    const INDEX_BITS: u32 = 9;

    /// The place as the header has it.
    pub fn encode(self) -> u16 {
        u16::from(self.zone) << Self::INDEX_BITS | self.index
    }

    /// The place in a header; `None` for 0, which is no place, and for what cannot be one.
    pub fn decode(start: u16) -> Option<TablePlace> {
        let (zone, index) = ((start >> Self::INDEX_BITS) as u8, start & ((1 << Self::INDEX_BITS) - 1));
        let is_place = usize::from(zone) <= EXTRA_ZONES_PER_GROUP && u32::from(index) < ZONE_INDEXES;
        (start != 0 && is_place).then_some(TablePlace { zone, index })
    }

    /// Where the header has the place of a table of this kind and number.
    ///
    /// # Panics
    /// For a kind that is no table.
    pub fn position(kind: BlockKind, number: u8) -> usize {
        assert!(kind.is_table(), "{} is not a table", kind.name());
        usize::from(number) + if kind == BlockKind::ChecksumTable { TABLES_PER_GROUP } else { 0 }
    }
}

/// How many blocks a table describes: the last one of a group fewer than the others.
pub fn table_entries(number: u8) -> usize {
    DATA_BLOCKS.saturating_sub(usize::from(number) * TABLE_ENTRIES).min(TABLE_ENTRIES)
}

/// The table that describes block `bit` of a group's data area, and the entry in it.
pub fn table_of(group: GroupNo, bit: u32) -> (TableNo, usize) {
    let bit = bit as usize;
    (TableNo::new(group, (bit / TABLE_ENTRIES) as u8), bit % TABLE_ENTRIES)
}

fn entry(block: &Block, i: usize) -> u32 {
    let at = HEADER_BYTES + i * ENTRY;
    u32::from_le_bytes(block[at..at + ENTRY].try_into().expect("four bytes"))
}

fn set_entry(block: &mut Block, i: usize, entry: u32) -> Touched {
    let at = HEADER_BYTES + i * ENTRY;
    block[at..at + ENTRY].copy_from_slice(&entry.to_le_bytes());
    (at..at + ENTRY).into()
}

fn is_zero(block: &Block) -> bool {
    block[HEADER_BYTES..].iter().all(|byte| *byte == 0)
}

/// Checks which table it is, and that it says nothing of blocks that it does not describe.
fn verify_place(block: &Block, what: &'static str) -> Result<TableNo, Box<Corruption>> {
    let header = BlockHeader::of(block);
    let owner = header.owner.get();
    let Some(table) = TableNo::from_owner(InodeNo(owner)) else {
        return Err(Corruption::new(what, "owner", "a table of a group", format!("{owner:#x}")));
    };
    let incarnation = header.owner_incarnation.get();
    if incarnation != 0 {
        return Err(Corruption::new(what, "incarnation of its owner", 0, incarnation));
    }
    let beyond = table_entries(table.number())..TABLE_ENTRIES;
    match beyond.into_iter().find(|i| entry(block, *i) != 0) {
        Some(i) => Err(Corruption::new(what, "entry behind the group's end", "0", format!("entry {i}"))),
        None => Ok(table),
    }
}

/// How often a block is named, if more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCount {
    /// References: places in files, present and past, at which incarnations of inodes name the block.
    pub references: u16,
    /// Those of them that the inodes in use have.
    pub in_use: u16,
}

/// A count table to read.
#[derive(Clone, Copy)]
pub struct CountTableRef<'a>(&'a Block);

impl<'a> CountTableRef<'a> {
    /// `block` as a count table.
    pub fn new(block: &'a Block) -> Self {
        CountTableRef(block)
    }

    /// The counts of entry `i`. `None`: the block is free, or has one reference.
    pub fn get(self, i: usize) -> Option<BlockCount> {
        match entry(self.0, i) {
            0 => None,
            n => Some(BlockCount { references: n as u16, in_use: (n >> 16) as u16 }),
        }
    }

    /// Whether it says nothing, so that it need not be there.
    pub fn is_empty(self) -> bool {
        is_zero(self.0)
    }

    /// Checks which table it is, and each entry: one reference is not written, and no more of them are in use
    /// than there are.
    ///
    /// # Errors
    /// [`Corruption`] naming the field or the entry.
    pub fn verify(self) -> Result<(), Box<Corruption>> {
        verify_place(self.0, "count table")?;
        for i in 0..TABLE_ENTRIES {
            if let Some(BlockCount { references, in_use }) = self.get(i) {
                if references < 2 || in_use > references {
                    let found = format!("entry {i}: {references} references, {in_use} in use");
                    let expected = "0, or at least 2 references and no more in use";
                    return Err(Corruption::new("count table", "entry", expected, found));
                }
            }
        }
        Ok(())
    }
}

/// A count table to change.
pub struct CountTableMut<'a>(&'a mut Block);

impl<'a> CountTableMut<'a> {
    /// `block`, already a count table, to change.
    pub fn new(block: &'a mut Block) -> Self {
        CountTableMut(block)
    }

    /// Makes `block`, whose header is in place, a table of zeros.
    pub fn init(block: &'a mut Block) -> Self {
        block[HEADER_BYTES..].fill(0);
        CountTableMut(block)
    }

    /// Makes of each of these entries what `new` makes of it, in ascending order.
    pub fn update(
        &mut self,
        entries: std::ops::Range<usize>,
        mut new: impl FnMut(usize, Option<BlockCount>) -> Option<BlockCount>,
    ) -> Touched {
        for i in entries.clone() {
            let count = new(i, CountTableRef(self.0).get(i));
            self.set(i, count);
        }
        (HEADER_BYTES + entries.start * ENTRY..HEADER_BYTES + entries.end * ENTRY).into()
    }

    /// Sets entry `i`. A single reference is not counted: the entry becomes 0.
    pub fn set(&mut self, i: usize, count: Option<BlockCount>) -> Touched {
        let count = count.filter(|count| count.references > 1);
        set_entry(self.0, i, count.map_or(0, |c| u32::from(c.in_use) << 16 | u32::from(c.references)))
    }
}

/// The checksum of a block of file data as a checksum table has it. It is never 0, which stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataChecksum(NonZeroU32);

impl DataChecksum {
    /// The checksum of these bytes: their crc32c, or all ones if that is 0.
    pub fn of(bytes: &[u8]) -> DataChecksum {
        DataChecksum(NonZeroU32::new(checksum(bytes)).unwrap_or(NonZeroU32::MAX))
    }

    /// The number that a table has for it.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// A checksum table to read.
#[derive(Clone, Copy)]
pub struct ChecksumTableRef<'a>(&'a Block);

impl<'a> ChecksumTableRef<'a> {
    /// `block` as a checksum table.
    pub fn new(block: &'a Block) -> Self {
        ChecksumTableRef(block)
    }

    /// The checksum of the block that entry `i` describes; `None` if none is known.
    pub fn get(self, i: usize) -> Option<DataChecksum> {
        NonZeroU32::new(entry(self.0, i)).map(DataChecksum)
    }

    /// Whether it says nothing, so that it need not be there.
    pub fn is_empty(self) -> bool {
        is_zero(self.0)
    }

    /// Checks which table it is.
    ///
    /// # Errors
    /// [`Corruption`] naming the field or the entry.
    pub fn verify(self) -> Result<(), Box<Corruption>> {
        verify_place(self.0, "checksum table").map(|_| ())
    }
}

/// A checksum table to change.
pub struct ChecksumTableMut<'a>(&'a mut Block);

impl<'a> ChecksumTableMut<'a> {
    /// `block`, already a checksum table, to change.
    pub fn new(block: &'a mut Block) -> Self {
        ChecksumTableMut(block)
    }

    /// Makes `block`, whose header is in place, a table of zeros.
    pub fn init(block: &'a mut Block) -> Self {
        block[HEADER_BYTES..].fill(0);
        ChecksumTableMut(block)
    }

    /// Sets the entries from `first` on.
    pub fn set(
        &mut self,
        first: usize,
        checksums: impl IntoIterator<Item = Option<DataChecksum>>,
    ) -> Touched {
        let mut end = first;
        for checksum in checksums {
            set_entry(self.0, end, checksum.map_or(0, DataChecksum::get));
            end += 1;
        }
        (HEADER_BYTES + first * ENTRY..HEADER_BYTES + end * ENTRY).into()
    }
}

/// The layouts of both kinds, the block header included.
pub(crate) fn layouts() -> [crate::StructLayout; 2] {
    let of = |name, entries| {
        crate::tables::layout_of_offsets(name, BLOCK_SIZE, &[("header", 0), (entries, HEADER_BYTES)])
    };
    [of("Count table", "counts"), of("Checksum table", "checksums")]
}
