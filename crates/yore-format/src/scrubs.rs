//! How far a scrub is, and how the last one ended: the record of scrubs.
//!
//! It lies in the same two blocks as the record of findings, in 256 bytes before the spare superblock. It is
//! written to the block that does not have the newest findings, so those are whole at any time. Programs that
//! do not know it neither read nor write it, unless they record findings; so it takes no feature, and may be
//! missing: then a scrub begins anew.
//!
//! It also has the blocks of file data that are known to be damaged, by a scrub or by reading them, as many
//! as there is room for.
//!
//! Nothing relies on it but a scrub that goes on. A record of an earlier version counts as none.

use crate::findings::{clear_findings, SCRUBS_AT, SPARE_AT};
use crate::{checksum_except, Block};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"YORE\x89SC\n";
const VERSION: u32 = 2;
const CRC_AT: usize = 12;
const BYTES: usize = SPARE_AT - SCRUBS_AT;
/// In a position: it is a zone, and not a block of data.
const IN_METADATA: u64 = 1 << 63;
/// In a count: nobody knows it.
const UNKNOWN: u64 = u64::MAX;
/// So many blocks that seem damaged are recorded.
pub const SCRUB_CANDIDATES: usize = 13;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawScrubs {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    sequence: U64,
    began: U64,
    position: U64,
    metadata_blocks: U64,
    data_blocks: U64,
    damaged_metadata: U64,
    candidate_count: U64,
    last_began: U64,
    last_ended: U64,
    last_metadata_blocks: U64,
    last_data_blocks: U64,
    last_damaged_metadata: U64,
    last_damaged_data: U64,
    last_without_blocks: U64,
    last_without_files: U64,
    candidates: [U64; SCRUB_CANDIDATES],
}

const _: () = assert!(size_of::<RawScrubs>() == BYTES);
const _: () = assert!(std::mem::offset_of!(RawScrubs, crc) == CRC_AT);

/// Where a scrub goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubPosition {
    /// With the metadata, at the zone of this number.
    Metadata(u32),
    /// With the data, at this block, which is not 0.
    Data(u64),
}

/// A scrub that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubUnderWay {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// Where it goes on.
    pub position: ScrubPosition,
    /// Metadata blocks that were read.
    pub metadata_blocks: u64,
    /// Data blocks that were read.
    pub data_blocks: u64,
    /// Metadata that is damaged. What it is stands nowhere, so whoever goes on reads the metadata again.
    pub damaged_metadata: u64,
    /// Blocks of data that seem damaged, up to [`SCRUB_CANDIDATES`]. The position is not beyond the last one
    /// for which there was room.
    pub candidates: Vec<u64>,
}

/// A scrub that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubEnded {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it ended, in seconds since 1970.
    pub ended: u64,
    /// Metadata blocks that were read.
    pub metadata_blocks: u64,
    /// Data blocks that were read.
    pub data_blocks: u64,
    /// How much metadata was damaged.
    pub damaged_metadata: u64,
    /// How much data of files was damaged, in blocks.
    pub damaged_data: u64,
    /// The data that no checksum was known of, and so was not verified; `None`: damage kept the scrub from
    /// counting it.
    pub without: Option<WithoutChecksums>,
}

/// File data of which no checksum is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithoutChecksums {
    /// Its blocks, those of the past included. One that several files and versions have counts once.
    pub blocks: u64,
    /// The files that have some of it now.
    pub files: u64,
}

/// What a volume says of scrubs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    /// Counts the records of the volume; the greater one counts.
    pub sequence: u64,
    /// The one that has not come to its end.
    pub under_way: Option<ScrubUnderWay>,
    /// The last one that has.
    pub last: Option<ScrubEnded>,
    /// Blocks of data that are known to be damaged, up to [`SCRUB_CANDIDATES`]: those that the last scrub has
    /// found, and those that were met by reading since. A scrub that is under way has them among its
    /// candidates, so there are none beside it.
    pub damaged: Vec<u64>,
}

impl ScrubRecord {
    /// Blocks of data that are known to be damaged, or seem to be.
    pub fn known_damaged(&self) -> &[u64] {
        self.under_way.as_ref().map_or(&self.damaged, |at| &at.candidates)
    }

    /// Adds blocks of data that were met damaged, as many as there is room for: what is recorded stays.
    /// Returns whether any was added.
    pub fn add_damaged(&mut self, met: impl IntoIterator<Item = u64>) -> bool {
        let known = self.under_way.as_mut().map_or(&mut self.damaged, |at| &mut at.candidates);
        let before = known.len();
        for block in met {
            if known.len() >= SCRUB_CANDIDATES {
                break;
            }
            if !known.contains(&block) {
                known.push(block);
            }
        }
        known.len() > before
    }

    /// Writes the record into a block, and keeps a spare superblock that is there. Findings that are there
    /// are removed.
    pub fn put(&self, block: &mut Block, uuid: [u8; 16]) {
        let none = RawScrubs::read_from_bytes(&[0; BYTES]).expect("it has so many bytes");
        let mut raw =
            RawScrubs { magic: MAGIC, version: VERSION.into(), uuid, sequence: self.sequence.into(), ..none };
        if let Some(at) = &self.under_way {
            raw.began = at.began.into();
            raw.position = match at.position {
                ScrubPosition::Metadata(zone) => IN_METADATA | u64::from(zone),
                ScrubPosition::Data(block) => block & !IN_METADATA,
            }
            .into();
            raw.metadata_blocks = at.metadata_blocks.into();
            raw.data_blocks = at.data_blocks.into();
            raw.damaged_metadata = at.damaged_metadata.into();
        }
        let damaged = self.known_damaged();
        raw.candidate_count = (damaged.len().min(SCRUB_CANDIDATES) as u64).into();
        for (place, block) in raw.candidates.iter_mut().zip(damaged) {
            *place = (*block).into();
        }
        if let Some(last) = &self.last {
            raw.last_began = last.began.into();
            raw.last_ended = last.ended.into();
            raw.last_metadata_blocks = last.metadata_blocks.into();
            raw.last_data_blocks = last.data_blocks.into();
            raw.last_damaged_metadata = last.damaged_metadata.into();
            raw.last_damaged_data = last.damaged_data.into();
            raw.last_without_blocks = last.without.map_or(UNKNOWN, |without| without.blocks).into();
            raw.last_without_files = last.without.map_or(UNKNOWN, |without| without.files).into();
        }
        clear_findings(block);
        let place = &mut block[SCRUBS_AT..SPARE_AT];
        place.copy_from_slice(raw.as_bytes());
        let crc = checksum_except(place, CRC_AT);
        place[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The record in a block; `None` if there is none of the volume with this `uuid`.
    pub fn find(block: &Block, uuid: [u8; 16]) -> Option<ScrubRecord> {
        let place = &block[SCRUBS_AT..SPARE_AT];
        let raw = RawScrubs::ref_from_bytes(place).ok()?;
        let is_one = raw.magic == MAGIC
            && raw.version.get() == VERSION
            && raw.uuid == uuid
            && raw.crc.get() == checksum_except(place, CRC_AT);
        if !is_one {
            return None;
        }
        let position = match raw.position.get() {
            0 => None,
            at if at & IN_METADATA != 0 => {
                Some(ScrubPosition::Metadata(u32::try_from(at & !IN_METADATA).ok()?))
            }
            at => Some(ScrubPosition::Data(at)),
        };
        let candidates = raw.candidates.get(..usize::try_from(raw.candidate_count.get()).ok()?)?;
        let mut damaged: Vec<u64> = candidates.iter().map(|block| block.get()).collect();
        let under_way = position.map(|position| ScrubUnderWay {
            began: raw.began.get(),
            position,
            metadata_blocks: raw.metadata_blocks.get(),
            data_blocks: raw.data_blocks.get(),
            damaged_metadata: raw.damaged_metadata.get(),
            candidates: std::mem::take(&mut damaged),
        });
        let without = match (raw.last_without_blocks.get(), raw.last_without_files.get()) {
            (UNKNOWN, _) | (_, UNKNOWN) => None,
            (blocks, files) => Some(WithoutChecksums { blocks, files }),
        };
        let last = ScrubEnded {
            began: raw.last_began.get(),
            ended: raw.last_ended.get(),
            metadata_blocks: raw.last_metadata_blocks.get(),
            data_blocks: raw.last_data_blocks.get(),
            damaged_metadata: raw.last_damaged_metadata.get(),
            damaged_data: raw.last_damaged_data.get(),
            without,
        };
        let last = (last.ended != 0).then_some(last);
        Some(ScrubRecord { sequence: raw.sequence.get(), under_way, last, damaged })
    }
}

/// The layout of a record of scrubs.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Record of scrubs", RawScrubs: magic, version, crc, uuid, sequence, began, position, metadata_blocks, data_blocks, damaged_metadata, candidate_count, last_began, last_ended, last_metadata_blocks, last_data_blocks, last_damaged_metadata, last_damaged_data, last_without_blocks, last_without_files, candidates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FindingsRecord, RecordedFinding, Spare, ZERO_BLOCK};

    fn sample(position: ScrubPosition, candidates: usize) -> ScrubRecord {
        ScrubRecord {
            sequence: 7,
            under_way: Some(ScrubUnderWay {
                began: 1_800_000_000,
                position,
                metadata_blocks: 5,
                data_blocks: 1 << 40,
                damaged_metadata: 3,
                candidates: (0..candidates as u64).map(|n| 7000 + n).collect(),
            }),
            last: Some(ScrubEnded {
                began: 1,
                ended: 2,
                metadata_blocks: 3,
                data_blocks: 4,
                damaged_metadata: 5,
                damaged_data: 6,
                without: Some(WithoutChecksums { blocks: 7, files: 8 }),
            }),
            damaged: Vec::new(),
        }
    }

    /// A record comes back as it was, and a copy of the superblock beside it stays.
    #[test]
    fn records_come_back() {
        let uuid = [7; 16];
        let records = [
            ScrubRecord::default(),
            sample(ScrubPosition::Metadata(0), 0),
            sample(ScrubPosition::Metadata(u32::MAX), 1),
            sample(ScrubPosition::Data(1), SCRUB_CANDIDATES),
            ScrubRecord { under_way: None, damaged: vec![9, 8], ..sample(ScrubPosition::Data(9), 0) },
            ScrubRecord {
                last: sample(ScrubPosition::Data(9), 0).last.map(|last| ScrubEnded { without: None, ..last }),
                ..sample(ScrubPosition::Data(9), 0)
            },
            ScrubRecord { last: None, ..sample(ScrubPosition::Data(1 << 50), 2) },
        ];
        for record in records {
            let mut block = Box::new(ZERO_BLOCK);
            record.put(&mut block, uuid);
            assert_eq!(ScrubRecord::find(&block, uuid), Some(record));
            assert_eq!(ScrubRecord::find(&block, [8; 16]), None);
        }
        assert_eq!(ScrubRecord::find(&ZERO_BLOCK, uuid), None);
        let many = sample(ScrubPosition::Data(1), 40);
        let mut block = Box::new(ZERO_BLOCK);
        many.put(&mut block, uuid);
        let back = ScrubRecord::find(&block, uuid).unwrap().under_way.unwrap();
        assert_eq!(back.candidates, many.under_way.unwrap().candidates[..SCRUB_CANDIDATES]);
    }

    /// What was met damaged is added behind what is recorded, once, and takes no other's place; beside a
    /// scrub that is under way it is one of its candidates.
    #[test]
    fn damage_that_was_met_is_added() {
        let first = 7000..7000 + SCRUB_CANDIDATES as u64;
        for mut record in [ScrubRecord::default(), sample(ScrubPosition::Data(1), 0)] {
            assert!(record.add_damaged([7001, 7000, 7001]));
            assert_eq!(record.known_damaged(), [7001, 7000]);
            assert!(!record.add_damaged([7000]) && record.add_damaged(first.clone()));
            assert!(!record.add_damaged([1]));
            assert_eq!(record.known_damaged().len(), SCRUB_CANDIDATES);
            assert!(first.clone().all(|block| record.known_damaged().contains(&block)));
            assert_eq!(record.damaged.is_empty(), record.under_way.is_some());
        }
    }

    /// New findings take a record of scrubs along, as many as there are; a record of scrubs removes findings.
    #[test]
    fn findings_and_scrubs_share_a_block() {
        let uuid = [7; 16];
        let scrubs = sample(ScrubPosition::Data(77), 3);
        let mut before = Box::new(ZERO_BLOCK);
        scrubs.put(&mut before, uuid);
        let one = RecordedFinding { code: "space-leaked".into(), ..RecordedFinding::default() };
        let findings = FindingsRecord { count: 500, findings: vec![one; 500], ..FindingsRecord::default() };
        let mut block = findings.encode(uuid);
        Spare::carry(&before, &mut block);
        assert_eq!(ScrubRecord::find(&block, uuid), Some(scrubs.clone()));
        assert_eq!(FindingsRecord::decode(&block, uuid).unwrap().count, 500);
        scrubs.put(&mut block, uuid);
        assert_eq!(ScrubRecord::find(&block, uuid), Some(scrubs));
        assert_eq!(FindingsRecord::decode(&block, uuid), None);
    }

    /// Any bytes are a record or none.
    #[test]
    fn any_bytes_are_safe() {
        let uuid = [7; 16];
        let mut whole = Box::new(ZERO_BLOCK);
        sample(ScrubPosition::Data(77), 3).put(&mut whole, uuid);
        for at in SCRUBS_AT..SPARE_AT {
            let mut block = whole.clone();
            block[at] ^= 0xc1;
            assert_eq!(ScrubRecord::find(&block, uuid), None, "byte {at}");
            let crc = checksum_except(&block[SCRUBS_AT..SPARE_AT], CRC_AT);
            block[SCRUBS_AT + CRC_AT..SCRUBS_AT + CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            if let Some(record) = ScrubRecord::find(&block, uuid) {
                record.put(&mut block, uuid);
            }
        }
    }
}
