//! Intent records: what the log says happened since the last generation.
//!
//! A record holds what changed in metadata since the record before it (or since the generation that it
//! follows), taken at an instant at which no Op was open, and the file data that was made durable with it.
//! Applied in order to the generation that they follow, records give the state of that instant. A record has
//! a fixed [`IntentHead`], then as many zones, blocks and notes as the head says, each a multiple of 8 bytes
//! long:
//!
//! - a **zone** that was touched: which blocks exist in it. Free inodes of inode blocks and free blocks of
//!   groups are not here: they are counted again from the blocks themselves. Zones that come or go are not
//!   logged at all: whoever wants that durable commits the generation.
//! - a **block** that changed: a set of 64-byte chunks, their bytes, and the checksum of the whole body after
//!   the change. A block that is new, or takes the place of a freed one, has all chunks.
//! - a **note** on file data ([`IntentNote`]): bytes that are not at home yet, or that bytes noted earlier no
//!   longer count.
//!
//! The log's own frame (number, chain, checksum) is not part of this; see the log's crate.

use crate::layout::ZONE_INDEXES;
use crate::superblock::{of_rounds_and_next, rounds_and_next, Superblock};
use crate::{
    Block, Corruption, EventNo, Generation, Incarnation, InodeNo, MetaAddr, ZoneNo, CHUNK_BYTES, HEADER_BYTES,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"YOREint1";
const DATA: u32 = 1;
const TRUNCATED: u32 = 3;
/// Bytes of file data that one note may carry: a block.
pub const INTENT_DATA_MAX: usize = crate::BLOCK_SIZE;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIntentHead {
    magic: [u8; 8],
    generation: U64,
    orphan_root: U64,
    free_blocks: U64,
    inodes: U64,
    metadata_blocks: U64,
    next_number: U64,
    next_incarnation: U32,
    zone_number_limit: U32,
    orphan_level: u8,
    continues: u8,
    incarnation_rounds: U16,
    zones: U32,
    blocks: U32,
    notes: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIntentZone {
    zone: U32,
    reserved: U32,
    exists: [U64; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIntentBlock {
    addr: U64,
    chunks: U64,
    body_crc: U32,
    reserved: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIntentNote {
    kind: U32,
    incarnation: U32,
    inode: U64,
    size: U64,
    page: U32,
    length: U32,
}

/// The state of the volume beside its zones and blocks, as of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentHead {
    /// The generation that was running: the one after that which the record is applied to.
    pub generation: Generation,
    /// Root of the tree of orphans, or none.
    pub orphan_root: MetaAddr,
    /// Level of that root.
    pub orphan_level: u8,
    /// Free data blocks in all groups.
    pub free_blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Metadata blocks in use.
    pub metadata_blocks: u64,
    /// The next number to give.
    pub next_number: EventNo,
    /// The next incarnation to give, and how often all have been given, as in the superblock.
    pub next_incarnation: u64,
    /// Above every zone number ever used.
    pub zone_number_limit: u32,
    /// All that the generation before `generation` changed is in records before this one. So the record
    /// counts also if the superblock of that generation never arrived.
    pub continues: bool,
}

impl IntentHead {
    /// Enters in a superblock what the volume has behind the record.
    pub fn enter(&self, superblock: &mut Superblock) {
        superblock.orphan_root = self.orphan_root;
        superblock.orphan_level = self.orphan_level;
        superblock.free_blocks = self.free_blocks;
        superblock.inodes = self.inodes;
        superblock.metadata_blocks = self.metadata_blocks;
        superblock.next_number = self.next_number;
        superblock.next_incarnation = self.next_incarnation;
        superblock.zone_number_limit = self.zone_number_limit;
    }
}

/// What a record says of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentZone {
    /// Its number.
    pub zone: ZoneNo,
    /// Bit i set if index i is in use.
    pub exists: [u64; 8],
}

/// What a record says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentBlock<'a> {
    /// The block.
    pub addr: MetaAddr,
    /// Which of its chunks follow.
    pub chunks: u64,
    /// Checksum of the block behind its header when they are in place.
    pub body_crc: u32,
    /// The chunks' bytes.
    pub bytes: &'a [u8],
}

/// What a record says of file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentNote<'a> {
    /// The page's content, to be written when all records have been applied. The file's size is at least
    /// `size`.
    Data {
        /// The file.
        inode: InodeNo,
        /// Its incarnation: another use of the number is not meant.
        incarnation: Incarnation,
        /// The file's size.
        size: u64,
        /// Which page of 4 KiB; with no bytes, only the size is noted.
        page: u32,
        /// Its first bytes; the rest is zeros.
        bytes: &'a [u8],
    },
    /// The file was truncated to `size`: what was noted earlier beyond it is gone. With 0, nothing noted
    /// earlier counts any more: it was truncated, or is in the file's blocks.
    Truncated {
        /// The file.
        inode: InodeNo,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The size it was truncated to.
        size: u64,
    },
}

/// The body's checksum, as records give it.
pub fn body_crc(block: &Block) -> u32 {
    crate::checksum(&block[HEADER_BYTES..])
}

impl IntentBlock<'_> {
    /// Puts the chunks into `block`.
    pub fn put(&self, block: &mut Block) {
        for (n, i) in ones(self.chunks).enumerate() {
            let from = &self.bytes[n * CHUNK_BYTES..(n + 1) * CHUNK_BYTES];
            block[i * CHUNK_BYTES..(i + 1) * CHUNK_BYTES].copy_from_slice(from);
        }
    }

    /// Compares a block with what the record says of it.
    ///
    /// # Errors
    /// [`Corruption`] if it is another: the record was applied to another block than it was made from.
    pub fn verify(&self, block: &Block) -> Result<(), Box<Corruption>> {
        let found = body_crc(block);
        if found != self.body_crc {
            let (expected, found) = (format!("{:#010x}", self.body_crc), format!("{found:#010x}"));
            return Err(
                Corruption::new("intent record", "block after the change", expected, found).at(self.addr)
            );
        }
        Ok(())
    }
}

/// The indexes of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let i = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            i
        })
    })
}

/// Builds a record in memory that is used again for the next. Zones come first, then blocks, then notes.
#[derive(Default)]
pub struct IntentWriter {
    bytes: Vec<u8>,
    zones: u32,
    blocks: u32,
    notes: u32,
}

impl IntentWriter {
    /// Begins a record; what was here is forgotten.
    pub fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(size_of::<RawIntentHead>(), 0);
        (self.zones, self.blocks, self.notes) = (0, 0, 0);
    }

    /// Adds a zone.
    pub fn zone(&mut self, zone: ZoneNo, exists: &[u64; 8]) {
        assert!(self.blocks == 0 && self.notes == 0, "zones come first");
        let raw = RawIntentZone { zone: zone.0.into(), reserved: 0.into(), exists: exists.map(Into::into) };
        self.bytes.extend_from_slice(raw.as_bytes());
        self.zones += 1;
    }

    /// Adds the chunks of a block that changed.
    pub fn block(&mut self, addr: MetaAddr, chunks: u64, block: &Block) {
        assert!(self.notes == 0, "blocks come before notes");
        let raw = RawIntentBlock {
            addr: addr.0.into(),
            chunks: chunks.into(),
            body_crc: body_crc(block).into(),
            reserved: 0.into(),
        };
        self.bytes.extend_from_slice(raw.as_bytes());
        for i in ones(chunks) {
            self.bytes.extend_from_slice(&block[i * CHUNK_BYTES..(i + 1) * CHUNK_BYTES]);
        }
        self.blocks += 1;
    }

    /// Adds notes that [`encode_note`] has made.
    pub fn notes(&mut self, count: u32, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.notes += count;
    }

    /// Ends the record and gives its bytes.
    pub fn end(&mut self, head: &IntentHead) -> &[u8] {
        let (incarnation_rounds, next_incarnation) = of_rounds_and_next(head.next_incarnation);
        let raw = RawIntentHead {
            magic: MAGIC,
            generation: head.generation.0.into(),
            orphan_root: head.orphan_root.0.into(),
            free_blocks: head.free_blocks.into(),
            inodes: head.inodes.into(),
            metadata_blocks: head.metadata_blocks.into(),
            next_number: head.next_number.0.into(),
            next_incarnation,
            zone_number_limit: head.zone_number_limit.into(),
            orphan_level: head.orphan_level,
            continues: head.continues.into(),
            incarnation_rounds,
            zones: self.zones.into(),
            blocks: self.blocks.into(),
            notes: self.notes.into(),
        };
        self.bytes[..size_of::<RawIntentHead>()].copy_from_slice(raw.as_bytes());
        &self.bytes
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it but the head.
    pub fn is_empty(&self) -> bool {
        self.zones == 0 && self.blocks == 0 && self.notes == 0
    }
}

/// Appends a note's bytes to `to`.
pub fn encode_note(note: &IntentNote<'_>, to: &mut Vec<u8>) {
    let (kind, inode, incarnation, size, page, length, bytes): (_, _, _, _, _, _, &[u8]) = match *note {
        IntentNote::Data { inode, incarnation, size, page, bytes } => {
            assert!(bytes.len() <= INTENT_DATA_MAX, "a page at a time");
            (DATA, inode, incarnation, size, page, bytes.len() as u32, bytes)
        }
        IntentNote::Truncated { inode, incarnation, size } => {
            (TRUNCATED, inode, incarnation, size, 0, 0, &[])
        }
    };
    let raw = RawIntentNote {
        kind: kind.into(),
        incarnation: incarnation.0.into(),
        inode: inode.0.into(),
        size: size.into(),
        page: page.into(),
        length: length.into(),
    };
    to.extend_from_slice(raw.as_bytes());
    to.extend_from_slice(bytes);
    to.resize(to.len().next_multiple_of(8), 0);
}

/// A record, decoded. Blocks and notes refer to its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent<'a> {
    /// The state beside zones and blocks.
    pub head: IntentHead,
    /// Zones touched.
    pub zones: Vec<IntentZone>,
    /// Blocks changed.
    pub blocks: Vec<IntentBlock<'a>>,
    /// Notes on file data, in order.
    pub notes: Vec<IntentNote<'a>>,
}

fn bad<T>(field: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("intent record", field, expected, found))
}

/// Takes a structure off the front of `bytes`.
fn take<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &mut &'a [u8],
    field: &'static str,
) -> Result<&'a T, Box<Corruption>> {
    match T::ref_from_prefix(bytes) {
        Ok((value, rest)) => {
            *bytes = rest;
            Ok(value)
        }
        Err(_) => bad(field, format!("{} bytes", size_of::<T>()), format!("{} bytes", bytes.len())),
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8], n: usize, field: &'static str) -> Result<&'a [u8], Box<Corruption>> {
    if bytes.len() < n {
        return bad(field, format!("{n} bytes"), format!("{} bytes", bytes.len()));
    }
    let (taken, rest) = bytes.split_at(n);
    *bytes = rest;
    Ok(taken)
}

impl<'a> Intent<'a> {
    /// Decodes and verifies a record. What it allocates is bounded by its length.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible field.
    pub fn decode(record: &'a [u8]) -> Result<Intent<'a>, Box<Corruption>> {
        let mut rest = record;
        let raw: &RawIntentHead = take(&mut rest, "length")?;
        if raw.magic != MAGIC {
            return bad("magic", format!("{MAGIC:02x?}"), format!("{:02x?}", raw.magic));
        }
        if raw.continues > 1 {
            return bad("continues", "0 or 1", raw.continues);
        }
        let orphan_root = MetaAddr(raw.orphan_root.get());
        if !orphan_root.is_plausible() || orphan_root.zone().is_root() {
            return bad("orphan root", "a metadata address", orphan_root);
        }
        let head = IntentHead {
            generation: Generation(raw.generation.get()),
            orphan_root,
            orphan_level: raw.orphan_level,
            free_blocks: raw.free_blocks.get(),
            inodes: raw.inodes.get(),
            metadata_blocks: raw.metadata_blocks.get(),
            next_number: EventNo(raw.next_number.get()),
            next_incarnation: rounds_and_next(raw.incarnation_rounds, raw.next_incarnation),
            zone_number_limit: raw.zone_number_limit.get(),
            continues: raw.continues == 1,
        };
        let zones = (0..raw.zones.get()).map(|_| decode_zone(&mut rest)).collect::<Result<_, _>>()?;
        let blocks = (0..raw.blocks.get()).map(|_| decode_block(&mut rest)).collect::<Result<_, _>>()?;
        let notes = (0..raw.notes.get()).map(|_| decode_note(&mut rest)).collect::<Result<_, _>>()?;
        match rest.is_empty() {
            true => Ok(Intent { head, zones, blocks, notes }),
            false => bad("length", record.len() - rest.len(), record.len()),
        }
    }
}

fn decode_zone(rest: &mut &[u8]) -> Result<IntentZone, Box<Corruption>> {
    let raw: &RawIntentZone = take(rest, "zone")?;
    let zone = ZoneNo(raw.zone.get());
    if zone.is_root() || !MetaAddr::new(zone, 0).is_plausible() {
        return bad("zone", "a zone's number", zone);
    }
    let exists = raw.exists.map(|w| w.get());
    if exists[7] >> (ZONE_INDEXES - 448) != 0 {
        return bad("blocks of a zone", format!("{ZONE_INDEXES} indexes"), "more");
    }
    if raw.reserved.get() != 0 {
        return bad("reserved bytes", "zero", raw.reserved);
    }
    Ok(IntentZone { zone, exists })
}

fn decode_block<'a>(rest: &mut &'a [u8]) -> Result<IntentBlock<'a>, Box<Corruption>> {
    let raw: &RawIntentBlock = take(rest, "block")?;
    let (addr, chunks) = (MetaAddr(raw.addr.get()), raw.chunks.get());
    // Address 0 is a block, too: the bitmap of group 0.
    if !addr.is_plausible() || addr.zone().is_root() {
        return bad("block", "a metadata address", addr);
    }
    if chunks == 0 || raw.reserved.get() != 0 {
        return bad("block", "at least one chunk and zero", format!("{chunks:#x}, {}", raw.reserved));
    }
    let bytes = take_bytes(rest, chunks.count_ones() as usize * CHUNK_BYTES, "chunks")?;
    Ok(IntentBlock { addr, chunks, body_crc: raw.body_crc.get(), bytes })
}

fn decode_note<'a>(rest: &mut &'a [u8]) -> Result<IntentNote<'a>, Box<Corruption>> {
    let raw: &RawIntentNote = take(rest, "note")?;
    let (inode, incarnation) = (InodeNo(raw.inode.get()), Incarnation(raw.incarnation.get()));
    let (size, page, length) = (raw.size.get(), raw.page.get(), raw.length.get());
    if !inode.addr().is_plausible() || inode.addr().is_none() {
        return bad("inode of a note", "an inode's number", inode);
    }
    if size > crate::layout::FILE_SIZE_MAX {
        return bad("size in a note", "a possible size", size);
    }
    match raw.kind.get() {
        DATA => {
            let length = length as usize;
            let end = u64::from(page) * crate::BLOCK_SIZE as u64 + length as u64;
            if length > INTENT_DATA_MAX || (length > 0 && end > size) {
                return bad(
                    "data",
                    "within a page and the file's size",
                    format!("{length} bytes in page {page}"),
                );
            }
            let bytes = &take_bytes(rest, length.next_multiple_of(8), "data")?[..length];
            Ok(IntentNote::Data { inode, incarnation, size, page, bytes })
        }
        TRUNCATED if page == 0 && length == 0 => Ok(IntentNote::Truncated { inode, incarnation, size }),
        kind => bad("kind of a note", "1 or 3, and zero where nothing is meant", kind),
    }
}

/// The layouts of a record's structures.
pub(crate) fn layouts() -> [crate::StructLayout; 4] {
    [
        crate::tables::layout!("Intent record", RawIntentHead: magic, generation, orphan_root, free_blocks, inodes, metadata_blocks, next_number, next_incarnation, zone_number_limit, orphan_level, continues, incarnation_rounds, zones, blocks, notes),
        crate::tables::layout!("Intent zone", RawIntentZone: zone, reserved, exists),
        crate::tables::layout!("Intent block", RawIntentBlock: addr, chunks, body_crc, reserved),
        crate::tables::layout!("Intent note", RawIntentNote: kind, incarnation, inode, size, page, length),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZERO_BLOCK;

    fn head() -> IntentHead {
        IntentHead {
            generation: Generation(9),
            orphan_root: MetaAddr::NONE,
            orphan_level: 0,
            free_blocks: 5,
            inodes: 6,
            metadata_blocks: 7,
            next_number: EventNo(1),
            next_incarnation: 3,
            zone_number_limit: 1,
            continues: true,
        }
    }

    #[test]
    fn what_is_written_is_read_and_any_damage_is_an_error_or_another_record() {
        let mut block = ZERO_BLOCK;
        block[100] = 7;
        block[4095] = 9;
        let addr = MetaAddr::new(ZoneNo(0), 3);
        let inode = InodeNo::ROOT;
        let notes = [
            IntentNote::Data { inode, incarnation: Incarnation(2), size: 5000, page: 1, bytes: &[1; 904] },
            IntentNote::Truncated { inode, incarnation: Incarnation(2), size: 100 },
        ];
        let mut bytes = Vec::new();
        notes.iter().for_each(|n| encode_note(n, &mut bytes));
        let mut writer = IntentWriter::default();
        writer.begin();
        writer.zone(ZoneNo(0), &[1; 8]);
        writer.zone(ZoneNo(3), &[2; 8]);
        writer.block(addr, 1 << 63 | 0b10, &block);
        writer.notes(2, &bytes);
        let record = writer.end(&head()).to_vec();
        assert_eq!(record.len() % 8, 0);
        let intent = Intent::decode(&record).unwrap();
        assert_eq!(intent.head, head());
        assert_eq!(intent.zones.len(), 2);
        assert_eq!(intent.notes, notes);
        let mut again = ZERO_BLOCK;
        intent.blocks[0].put(&mut again);
        intent.blocks[0].verify(&again).unwrap();
        assert_eq!(again, block);
        let mut other = ZERO_BLOCK;
        other[2000] = 1;
        intent.blocks[0].put(&mut other);
        intent.blocks[0].verify(&other).unwrap_err();
        for len in 0..record.len() {
            Intent::decode(&record[..len]).unwrap_err();
        }
        // No changed byte makes the decoder panic.
        for at in 0..record.len() {
            for to in [0, 1, 0x7f, 0xff] {
                let mut damaged = record.clone();
                damaged[at] = to;
                let _ = Intent::decode(&damaged);
            }
        }
    }
}
