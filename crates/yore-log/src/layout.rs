//! Every byte that a log puts on the medium: headers of batches and records, positions, anchors.
//!
//! No I/O here. `docs/FORMAT.md`, "The log", is the prose; the test below compares its tables with the
//! structures.
//!
//! A header read from the medium is bytes until [`BatchHeader::find`] has returned it. A header that it
//! returns was written as a whole, by this log, for this very block, and nothing in it changed. That says
//! nothing about the rest of the batch ([`BatchHeader::body_is_whole`]), nor whether the batch belongs to the
//! log as it is now (`recover.rs`). The header lies within the first 512 bytes of a block, so no crash can
//! tear it.

use yore_device::BLOCK_SIZE;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{LogId, LogOwner, Lsn, Record};

/// First bytes of a batch.
pub(crate) const BATCH_MAGIC: [u8; 8] = *b"YORE\x89LB\n";
/// First bytes of an anchor.
pub(crate) const ANCHOR_MAGIC: [u8; 8] = *b"YORE\x89LA\n";
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The version of a batch with a gap behind it.
pub(crate) const GAP_VERSION: u32 = 2;
/// The version of an anchor that says whose the log is.
pub(crate) const OWNED_VERSION: u32 = 2;
/// The version of an anchor of a log whose owner keeps the position, in his own superblock.
pub(crate) const KEPT_VERSION: u32 = 3;
/// Bytes of the header of a batch.
pub(crate) const BATCH_HEADER_BYTES: usize = size_of::<BatchHeader>();
/// Bytes of the header of a record. Each record takes them beside its contents, rounded up to a multiple
/// of 8.
pub const RECORD_HEADER_BYTES: usize = size_of::<RecordHeader>();
/// Most bytes of a batch, its header included: what recovery may have to hold in memory.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most blocks of a gap behind a batch.
pub(crate) const GAP_BLOCKS_MAX: u64 = 192;

/// The beginning of a batch.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct BatchHeader {
    /// [`BATCH_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`], or [`GAP_VERSION`] with a gap.
    pub version: U32,
    /// crc32c of the header with this field as zero.
    pub header_crc: U32,
    /// crc32c of all bytes of the batch's blocks after the header.
    pub body_crc: U32,
    /// Records; 0 in the batch that starts a session.
    pub count: U32,
    /// Bytes up to the end of the last record, this header included.
    pub length: U32,
    /// Blocks of the ring that are left out behind it, before the next batch.
    pub gap: U32,
    /// Identity of the log.
    pub log: U64,
    /// The session that wrote it.
    pub session: U64,
    /// Batches before it since the log was made, plus 1.
    pub sequence: U64,
    /// Number of the first record; without records, of the next.
    pub number: U64,
    /// Chain value of the batch before it.
    pub previous: U64,
    /// Its block, counted from the region's first.
    pub block: U64,
}

const _: () = assert!(BATCH_HEADER_BYTES == 80 && BATCH_HEADER_BYTES.is_multiple_of(8));

/// The beginning of a record. Records follow each other at multiples of 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RecordHeader {
    /// The record's number.
    pub number: U64,
    /// When it was appended: nanoseconds since 1970.
    pub time: U64,
    /// Bytes of its contents, which follow.
    pub length: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(RECORD_HEADER_BYTES == 24);

/// A [`Position`] on the medium.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawPosition {
    /// The first record to give.
    pub number: U64,
    /// Sequence number of the batch at `block`.
    pub sequence: U64,
    /// Where to begin reading, counted from the region's first block.
    pub block: U64,
    /// Chain value of the batch before it.
    pub chain: U64,
}

/// One of the two anchors of a stand-alone log; zeros follow to the end of its block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Anchor {
    /// [`ANCHOR_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`], [`OWNED_VERSION`] with an owner, or [`KEPT_VERSION`].
    pub version: U32,
    /// crc32c of the block with this field as zero.
    pub crc: U32,
    /// Counts anchors written; the greater one counts.
    pub generation: U64,
    /// Identity of the log.
    pub log: U64,
    /// Blocks of the log's ring.
    pub blocks: U64,
    /// The last session begun.
    pub session: U64,
    /// All batches with a smaller sequence number were durable when this was written.
    pub durable: U64,
    /// Position of the oldest record kept.
    pub oldest: RawPosition,
    /// Whose log it is; zeros: nobody's.
    pub owner: [u8; 16],
}

/// crc32c of `bytes` with the four at `at` taken as zero.
fn crc_without(bytes: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c(&bytes[..at]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[at + 4..])
}

/// The step of the SplitMix64 generator: spreads every bit of `x` over all bits of the result.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What stands at the start of a block.
#[derive(Debug)]
pub(crate) enum Found {
    /// No batch of this log begins here.
    Nothing,
    /// A batch in a format that this program does not know.
    UnknownVersion(u32),
    /// A batch of this log was written here. Its body says whether all of it was.
    Batch(BatchHeader),
}

impl BatchHeader {
    /// The header at the start of `bytes`, if it is whole, of this log, and was written for this block.
    pub fn find(bytes: &[u8], id: LogId, block: u64) -> Found {
        let Ok((header, _)) = BatchHeader::read_from_prefix(bytes) else { return Found::Nothing };
        if header.magic != BATCH_MAGIC
            || header.header_crc.get() != header.own_crc()
            || header.log.get() != id.0
            || header.block.get() != block
        {
            return Found::Nothing;
        }
        let version = header.version.get();
        if !(VERSION..=GAP_VERSION).contains(&version) {
            return Found::UnknownVersion(version);
        }
        let (length, count) = (header.length.get() as usize, header.count.get() as usize);
        let sane = version == BatchHeader::version_with(header.gap())
            && header.gap() <= GAP_BLOCKS_MAX
            && (header.gap() == 0 || count > 0)
            && (BATCH_HEADER_BYTES..=BATCH_BYTES_MAX).contains(&length)
            && count <= (length - BATCH_HEADER_BYTES) / RECORD_HEADER_BYTES
            && header.number.get().checked_add(count as u64).is_some()
            && header.sequence.get() < u64::MAX;
        if sane {
            Found::Batch(header)
        } else {
            Found::Nothing
        }
    }

    fn own_crc(&self) -> u32 {
        crc_without(self.as_bytes(), std::mem::offset_of!(BatchHeader, header_crc))
    }

    /// Computes both checksums and stores the header at the start of `bytes`, the whole blocks of the batch.
    pub fn seal(mut self, bytes: &mut [u8]) -> u64 {
        self.body_crc = crc32c::crc32c(&bytes[BATCH_HEADER_BYTES..]).into();
        self.header_crc = self.own_crc().into();
        bytes[..BATCH_HEADER_BYTES].copy_from_slice(self.as_bytes());
        self.chain()
    }

    /// The version of a batch with such a gap behind it.
    pub fn version_with(gap: u64) -> u32 {
        match gap {
            0 => VERSION,
            _ => GAP_VERSION,
        }
    }

    /// Blocks of the batch.
    pub fn blocks(&self) -> u64 {
        u64::from(self.length.get()).div_ceil(BLOCK_SIZE as u64)
    }

    /// Blocks that are left out behind it.
    pub fn gap(&self) -> u64 {
        self.gap.get().into()
    }

    /// Blocks from its first to the first of the next batch.
    pub fn span(&self) -> u64 {
        self.blocks() + self.gap()
    }

    /// Whether this batch starts a session and has no records.
    pub fn is_start(&self) -> bool {
        self.count.get() == 0
    }

    /// The number after that of the last record.
    pub fn end_number(&self) -> u64 {
        // `find` and `append` both made sure that this fits.
        self.number.get() + u64::from(self.count.get())
    }

    /// Whether everything after the header arrived. `bytes` are the whole blocks of the batch.
    pub fn body_is_whole(&self, bytes: &[u8]) -> bool {
        #[cfg(feature = "mutations")]
        if crate::mutation::ACCEPT_TORN.load(std::sync::atomic::Ordering::SeqCst) {
            return true;
        }
        let tail = &bytes[self.length.get() as usize..];
        crc32c::crc32c(&bytes[BATCH_HEADER_BYTES..]) == self.body_crc.get()
            && tail.iter().all(|&byte| byte == 0)
    }

    /// The chain value that the next batch must carry: it stands for this batch and all before it.
    pub fn chain(&self) -> u64 {
        let crcs = u64::from(self.header_crc.get()) << 32 | u64::from(self.body_crc.get());
        mix(self.previous.get() ^ mix(crcs))
    }
}

/// A record within a batch: where its contents are, and where the next record begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSpan {
    pub number: u64,
    pub time: u64,
    pub start: usize,
    pub length: usize,
    pub next: usize,
}

impl RecordSpan {
    /// The record `number` at `at` of a batch whose records end at `end`; `None` if what is there is
    /// something else.
    pub fn find(batch: &[u8], at: usize, end: usize, number: u64) -> Option<RecordSpan> {
        let rest = batch.get(at..end)?;
        let (header, contents) = RecordHeader::read_from_prefix(rest).ok()?;
        let length = header.length.get() as usize;
        let padded = length.checked_next_multiple_of(8)?;
        if header.number.get() != number || header.reserved.get() != 0 || padded > contents.len() {
            return None;
        }
        if contents[length..padded].iter().any(|&byte| byte != 0) {
            return None;
        }
        let start = at + RECORD_HEADER_BYTES;
        Some(RecordSpan { number, time: header.time.get(), start, length, next: start + padded })
    }

    /// The record, in the batch that it was found in.
    pub fn record<'b>(&self, batch: &'b [u8]) -> Record<'b> {
        Record {
            number: Lsn(self.number),
            time_ns: self.time,
            contents: &batch[self.start..self.start + self.length],
        }
    }
}

/// Where to read a log from: the anchor that its owner keeps, in its own superblock for example. It says
/// where to begin, and how to recognise what was written there since. Plain old data, 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The first record to give. It may lie in the middle of the batch at `block`.
    pub number: Lsn,
    /// The sequence number of the batch at `block`: batches are counted from 1 and never again from the
    /// start.
    pub sequence: u64,
    /// The block at which that batch begins or will begin, counted from the region's first.
    pub block: u64,
    /// The chain value of the batch before it.
    pub chain: u64,
}

impl Position {
    /// Bytes of a position on the medium.
    pub const BYTES: usize = size_of::<RawPosition>();

    /// The position of a log in which nothing was ever appended. The first record is number 1.
    pub fn start(id: LogId) -> Position {
        Position { number: Lsn(1), sequence: 1, block: 0, chain: mix(id.0) }
    }

    /// The position as bytes for a medium. It has no checksum of its own, because the structure that holds it
    /// has one.
    pub fn to_bytes(self) -> [u8; Position::BYTES] {
        let mut bytes = [0; Position::BYTES];
        bytes.copy_from_slice(RawPosition::from(self).as_bytes());
        bytes
    }

    /// The position that [`Position::to_bytes`] encoded. Any bytes are accepted here. An impossible position
    /// is refused when it is used.
    pub fn from_bytes(bytes: &[u8; Position::BYTES]) -> Position {
        let field = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * n + i]));
        Position { number: Lsn(field(0)), sequence: field(1), block: field(2), chain: field(3) }
    }
}

impl From<Position> for RawPosition {
    fn from(p: Position) -> RawPosition {
        RawPosition {
            number: p.number.0.into(),
            sequence: p.sequence.into(),
            block: p.block.into(),
            chain: p.chain.into(),
        }
    }
}

impl From<RawPosition> for Position {
    fn from(raw: RawPosition) -> Position {
        Position {
            number: Lsn(raw.number.get()),
            sequence: raw.sequence.get(),
            block: raw.block.get(),
            chain: raw.chain.get(),
        }
    }
}

impl Anchor {
    /// The anchor in `block`, if it is valid. `Err` is a version that this program does not know.
    pub fn find(block: &[u8]) -> Result<Option<Anchor>, u32> {
        let Ok((anchor, rest)) = Anchor::read_from_prefix(block) else { return Ok(None) };
        let crc = crc_without(block, std::mem::offset_of!(Anchor, crc));
        if anchor.magic != ANCHOR_MAGIC || anchor.crc.get() != crc {
            return Ok(None);
        }
        let version = anchor.version.get();
        if !(VERSION..=KEPT_VERSION).contains(&version) {
            return Err(version);
        }
        let fits = match version {
            VERSION => anchor.owner().is_none(),
            OWNED_VERSION => true,
            _ => {
                let position = anchor.oldest.as_bytes().iter().all(|&byte| byte == 0);
                anchor.owner().is_some() && anchor.durable.get() == 0 && position
            }
        };
        let is_whole = fits && rest.iter().all(|&byte| byte == 0);
        Ok(is_whole.then_some(anchor))
    }

    /// Whether the owner keeps the position: the anchor says nothing of what the log holds.
    pub fn is_kept(&self) -> bool {
        self.version.get() == KEPT_VERSION
    }

    /// Whose log it is.
    pub fn owner(&self) -> Option<LogOwner> {
        Some(LogOwner(self.owner)).filter(LogOwner::is_any)
    }

    /// Stores it in `block`, with its checksum.
    pub fn seal(mut self, block: &mut [u8]) {
        block.fill(0);
        self.crc = 0.into();
        block[..size_of::<Anchor>()].copy_from_slice(self.as_bytes());
        let crc = crc_without(block, std::mem::offset_of!(Anchor, crc));
        let at = std::mem::offset_of!(Anchor, crc);
        block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
