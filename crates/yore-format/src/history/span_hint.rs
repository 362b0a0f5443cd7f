//! What each event held of the past when the volume was closed: a hint, in blocks that the bitmap has as
//! free, written beside the last generation of a mount.
//!
//! The roots of the history say where it begins, how long it is and of which generation
//! ([`super::AnnalsCounts`]). It counts only if the superblock is clean and has that generation and the mount
//! that the hint itself names. Any mount for writing ends that, also one by a program that knows nothing of
//! it: such a program keeps the place as it is, has a generation of its own, and may use the blocks.
//!
//! A first block of zeros says that there is no hint after all: something changed while it was being written.
//!
//! The bytes come from blocks that nothing protects, so decoding takes any bytes, and allocates no more than
//! in proportion to them.

use crate::units::checksum;
use crate::varint::{Reader, ShortBytes};
use crate::{BlockNo, Corruption, EventNo, Generation, Incarnation, InodeNo, BLOCK_SIZE, EVENT_LIMIT};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How many blocks a hint has at most.
pub const HINT_BLOCKS_MOST: usize = 256;

const MAGIC: [u8; 8] = *b"YORE\x89S1\n";
const HEADER: usize = size_of::<RawHint>();
/// Where that begins which the checksum is of.
const CHECKED_FROM: usize = 12;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHint {
    magic: [u8; 8],
    crc: U32,
    bytes: U32,
    uuid: [u8; 16],
    generation: U64,
    mount_id: U64,
    versions: U64,
    sharing: U32,
    sums: U32,
}

/// Where a hint lies, and of which generation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintPlace {
    /// Its first block.
    pub start: BlockNo,
    /// How many there are; not 0.
    pub blocks: u16,
    /// The generation with which the volume was closed.
    pub generation: Generation,
}

impl HintPlace {
    /// The place in one number, without the generation.
    pub(super) fn packed(self) -> u64 {
        self.start.0 & ((1 << 48) - 1) | u64::from(self.blocks) << 48
    }

    /// The place that two numbers give. `None`: there is no hint.
    pub(super) fn of(packed: u64, generation: u64) -> Option<HintPlace> {
        let (start, blocks) = (BlockNo(packed & ((1 << 48) - 1)), (packed >> 48) as u16);
        (blocks > 0).then_some(HintPlace { start, blocks, generation: Generation(generation) })
    }
}

/// Between these numbers, events of one directory or file see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HintSpan {
    /// What the events are of; 0: any directory but the root.
    pub root: InodeNo,
    /// The first number.
    pub from: EventNo,
    /// The first number behind it.
    pub to: EventNo,
}

/// What the states of some spans have, and no inode in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintSum {
    /// The spans, in ascending order; not empty.
    pub spans: Vec<HintSpan>,
    /// References to data blocks.
    pub data: u64,
    /// Nodes of inodes' trees.
    pub nodes: u64,
}

/// The hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanHint {
    /// The volume's.
    pub uuid: [u8; 16],
    /// The generation with which the volume was closed.
    pub generation: Generation,
    /// The mount that closed it.
    pub mount_id: u64,
    /// How many versions a walk had looked at.
    pub versions: u64,
    /// Inodes whose versions may share blocks with others, in ascending order.
    pub sharing: Vec<(InodeNo, Incarnation)>,
    /// The sums.
    pub sums: Vec<HintSum>,
}

impl SpanHint {
    /// The bytes of the hint, with zeros up to the end of the last block. `None`: there is too much of it.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut all = vec![0; HEADER];
        let put = |all: &mut Vec<u8>, numbers: &[u64]| {
            for n in numbers {
                let mut short = ShortBytes::<10>::new();
                short.number(*n);
                all.extend_from_slice(&short);
            }
            all.len() <= HINT_BLOCKS_MOST * BLOCK_SIZE
        };
        for (inode, incarnation) in &self.sharing {
            if !put(&mut all, &[inode.0, incarnation.0.into()]) {
                return None;
            }
        }
        for sum in &self.sums {
            put(&mut all, &[sum.spans.len() as u64]);
            for span in &sum.spans {
                put(&mut all, &[span.root.0, span.from.0, span.to.0.saturating_sub(span.from.0)]);
            }
            if !put(&mut all, &[sum.data, sum.nodes]) {
                return None;
            }
        }
        let raw = RawHint {
            magic: MAGIC,
            crc: 0.into(),
            bytes: (all.len() as u32).into(),
            uuid: self.uuid,
            generation: self.generation.0.into(),
            mount_id: self.mount_id.into(),
            versions: self.versions.into(),
            sharing: u32::try_from(self.sharing.len()).ok()?.into(),
            sums: u32::try_from(self.sums.len()).ok()?.into(),
        };
        all[..HEADER].copy_from_slice(raw.as_bytes());
        let sum = checksum(&all[CHECKED_FROM..]);
        all[8..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
        all.resize(all.len().next_multiple_of(BLOCK_SIZE), 0);
        Some(all)
    }

    /// What the blocks of a hint say. `None`: there is no hint.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible field.
    pub fn decode(blocks: &[u8]) -> Result<Option<SpanHint>, Box<Corruption>> {
        let Some((header, _)) = blocks.split_at_checked(HEADER) else {
            return bad_hint("length", format!("{HEADER} bytes"), blocks.len());
        };
        if blocks.iter().take(BLOCK_SIZE).all(|byte| *byte == 0) {
            return Ok(None);
        }
        let raw = RawHint::ref_from_bytes(header).expect("the sizes are equal");
        if raw.magic != MAGIC {
            return bad_hint("magic", format!("{MAGIC:02x?}"), format!("{:02x?}", raw.magic));
        }
        let bytes = raw.bytes.get() as usize;
        if bytes < HEADER || bytes > blocks.len() {
            return bad_hint("bytes", format!("{HEADER} to {}", blocks.len()), bytes);
        }
        let found = checksum(&blocks[CHECKED_FROM..bytes]);
        if found != raw.crc.get() {
            return bad_hint("crc", raw.crc, found);
        }
        if blocks[bytes..].iter().any(|byte| *byte != 0) {
            return bad_hint("rest", "zeros", "something else");
        }
        let mut reader = Reader::new("hint", &blocks[HEADER..bytes]);
        let mut hint = SpanHint {
            uuid: raw.uuid,
            generation: Generation(raw.generation.get()),
            mount_id: raw.mount_id.get(),
            versions: raw.versions.get(),
            ..SpanHint::default()
        };
        for _ in 0..raw.sharing.get() {
            let inode = InodeNo(reader.number("inode")?);
            let incarnation = Incarnation(reader.number32("incarnation")?);
            if !inode.is_file() || hint.sharing.last().is_some_and(|last| *last >= (inode, incarnation)) {
                return bad_hint("inodes that share", "files in ascending order", inode);
            }
            hint.sharing.push((inode, incarnation));
        }
        for _ in 0..raw.sums.get() {
            hint.sums.push(decode_sum(&mut reader)?);
        }
        reader.end()?;
        Ok(Some(hint))
    }

    /// What all sums have together: references and nodes.
    pub fn all(&self) -> (u64, u64) {
        let add = |(data, nodes): (u64, u64), sum: &HintSum| {
            (data.saturating_add(sum.data), nodes.saturating_add(sum.nodes))
        };
        self.sums.iter().fold((0, 0), add)
    }
}

fn bad_hint<T>(
    field: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("hint of what snapshots hold", field, expected, found))
}

fn decode_sum(reader: &mut Reader<'_>) -> Result<HintSum, Box<Corruption>> {
    let count = reader.number("spans")?;
    let mut spans: Vec<HintSpan> = Vec::new();
    for _ in 0..count {
        let (root, from) = (InodeNo(reader.number("root")?), reader.number("from")?);
        let to = from.saturating_add(reader.number("length")?);
        let span = HintSpan { root, from: EventNo(from), to: EventNo(to) };
        let is_root = root == InodeNo::NONE || root.is_file();
        if !is_root || from >= to || to > EVENT_LIMIT || spans.last().is_some_and(|last| *last >= span) {
            let found = format!("{root} from {from} to before {to}");
            return bad_hint("spans", "of files and directories, in ascending order, none empty", found);
        }
        spans.push(span);
    }
    let (data, nodes) = (reader.number("data")?, reader.number("nodes")?);
    match spans.is_empty() {
        true => bad_hint("spans", "at least one", 0),
        false => Ok(HintSum { spans, data, nodes }),
    }
}

/// The layout of the hint's first bytes.
pub(super) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Hint", RawHint: magic, crc, bytes, uuid, generation, mount_id, versions, sharing, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(root: u64, from: u64, to: u64) -> HintSpan {
        HintSpan { root: InodeNo(root), from: EventNo(from), to: EventNo(to) }
    }

    fn sample() -> SpanHint {
        SpanHint {
            uuid: [7; 16],
            generation: Generation(1 << 40),
            mount_id: 3,
            versions: 1000,
            sharing: vec![(InodeNo(17), Incarnation(u32::MAX)), (InodeNo(1 << 20), Incarnation(1))],
            sums: vec![
                HintSum { spans: vec![span(16, 1, 9)], data: 300, nodes: 0 },
                HintSum { spans: vec![span(0, 2, 3), span(16, 1, 4), span(16, 8, 9)], data: 0, nodes: 1 },
            ],
        }
    }

    #[test]
    fn hints_come_back() {
        for hint in [SpanHint::default(), sample()] {
            let bytes = hint.encode().unwrap();
            assert_eq!(bytes.len(), BLOCK_SIZE);
            assert_eq!(SpanHint::decode(&bytes).unwrap(), Some(hint));
        }
        assert_eq!(SpanHint::decode(&[0; 2 * BLOCK_SIZE]).unwrap(), None);
        assert_eq!(sample().all(), (300, 1));
        let place = HintPlace { start: BlockNo((1 << 48) - 1), blocks: 256, generation: Generation(5) };
        assert_eq!(HintPlace::of(place.packed(), 5), Some(place));
        assert_eq!(HintPlace::of(0, 5), None);
    }

    #[test]
    fn there_is_a_most() {
        let one = HintSum { spans: vec![span(16, 1, 9)], data: 300, nodes: 0 };
        let of = |count: usize| SpanHint { sums: vec![one.clone(); count], ..SpanHint::default() };
        let most = (HINT_BLOCKS_MOST * BLOCK_SIZE - HEADER) / 7;
        assert_eq!(of(most).encode().unwrap().len(), HINT_BLOCKS_MOST * BLOCK_SIZE);
        assert_eq!(of(most + 1).encode(), None);
    }

    /// Promises that each changed byte is found, and that one that no program writes is, even if the checksum
    /// is right.
    #[test]
    fn damage_is_found() {
        let bytes = sample().encode().unwrap();
        for at in (0..120).chain([BLOCK_SIZE - 1]) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(SpanHint::decode(&bytes).is_err(), "byte {at}");
        }
        assert!(SpanHint::decode(&bytes[..HEADER - 1]).is_err());
        let wrong = |change: fn(&mut SpanHint)| {
            let mut hint = sample();
            change(&mut hint);
            SpanHint::decode(&hint.encode().unwrap()).unwrap_err().field
        };
        assert_eq!(wrong(|hint| hint.sharing.reverse()), "inodes that share");
        assert_eq!(wrong(|hint| hint.sharing[0].0 = InodeNo(0)), "inodes that share");
        assert_eq!(wrong(|hint| hint.sums[1].spans.reverse()), "spans");
        assert_eq!(wrong(|hint| hint.sums[0].spans[0].to = EventNo(1)), "spans");
        assert_eq!(wrong(|hint| hint.sums[0].spans[0].to = EventNo(u64::MAX)), "spans");
        assert_eq!(wrong(|hint| hint.sums[0].spans[0].root = InodeNo(1)), "spans");
        assert_eq!(wrong(|hint| hint.sums[0].spans.clear()), "spans");
    }

    proptest! {
        /// Promises that no bytes make the decoder panic, whatever their checksum.
        #[test]
        fn any_bytes_are_taken(noise in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..200) {
            let mut bytes = sample().encode().unwrap();
            bytes[at..at + noise.len()].copy_from_slice(&noise);
            bytes[..8].copy_from_slice(&MAGIC);
            let len = usize::from_le_bytes([bytes[12], bytes[13] & 1, 0, 0, 0, 0, 0, 0]).max(HEADER);
            bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
            let sum = checksum(&bytes[CHECKED_FROM..len]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            bytes[len..].fill(0);
            if let Ok(Some(hint)) = SpanHint::decode(&bytes) {
                prop_assert_eq!(hint.encode().unwrap(), bytes);
            }
            let _ = SpanHint::decode(&noise);
        }
    }
}
