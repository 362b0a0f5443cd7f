//! What the last check found that is not repaired: the record of findings.
//!
//! It lies in two blocks that every volume has and that nothing else uses, the first two of the first zone of
//! group 0. They are written by turns, so one of them is whole at any time. Recording takes no room on a full
//! volume. Programs that do not know the record neither read nor write these blocks, so it takes no feature.
//!
//! The last 512 bytes of each block are those of the spare superblock (`spare.rs`), the 256 before them those
//! of the record of scrubs (`scrubs.rs`).
//!
//! It is advice for people, and nothing relies on it. A block that does not verify counts as none.

use crate::{
    checksum_except, Block, BlockNo, Generation, Incarnation, InodeNo, MetaAddr, BLOCK_SIZE, ZERO_BLOCK,
};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"YORE\x89FN\n";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
/// Where the findings begin.
const FIRST: usize = 72;
/// Bytes of a finding without its code and its path.
const FIXED: usize = 28;
/// The longest path that is recorded whole, in bytes. Of a longer one the end is.
pub const RECORDED_PATH_MAX: usize = 255;

/// Where the spare superblock begins in each of the two blocks.
pub(crate) const SPARE_AT: usize = BLOCK_SIZE - 512;

/// Where the record of scrubs begins in each of the two blocks; findings end before it.
pub(crate) const SCRUBS_AT: usize = SPARE_AT - 256;

/// The blocks of the record.
pub const FINDINGS_BLOCKS: [BlockNo; 2] =
    [BlockNo(crate::layout::ZONE_BLOCKS), BlockNo(crate::layout::ZONE_BLOCKS + 1)];

/// A finding as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFinding {
    /// The code, 1 to 255 bytes.
    pub code: String,
    /// It is damage; otherwise it only wastes space.
    pub is_damage: bool,
    /// The metadata block.
    pub addr: Option<MetaAddr>,
    /// The block of the device.
    pub block: Option<BlockNo>,
    /// The inode.
    pub inode: Option<InodeNo>,
    /// A path of that inode; of a long one the end.
    pub path: Option<String>,
}

/// What a check found and left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingsRecord {
    /// Counts the records of the volume; the greater one counts.
    pub sequence: u64,
    /// The generation that was checked.
    pub generation: Generation,
    /// When, in seconds since 1970.
    pub seconds: u64,
    /// How many findings there were; 0: a check has found nothing since.
    pub count: u64,
    /// The first incarnation that was not given yet when it was checked: an inode of an earlier one is the
    /// file that a finding is about, whatever its names are by now. `None` if nobody says.
    pub next_incarnation: Option<Incarnation>,
    /// Some of them, as many as there is room for.
    pub findings: Vec<RecordedFinding>,
}

impl FindingsRecord {
    /// The bytes of a block. Findings for which there is no room are left out.
    pub fn encode(&self, uuid: [u8; 16]) -> Box<Block> {
        let mut block = Box::new(ZERO_BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&uuid);
        for (i, number) in [self.sequence, self.generation.0, self.seconds, self.count].iter().enumerate() {
            block[32 + 8 * i..40 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        let (mut at, mut kept) = (FIRST, 0u16);
        for finding in &self.findings {
            let Some(bytes) = finding.encode() else { continue };
            let Some(place) = block[..SCRUBS_AT].get_mut(at..at + bytes.len()) else { break };
            place.copy_from_slice(&bytes);
            at += bytes.len();
            kept += 1;
        }
        block[64..66].copy_from_slice(&kept.to_le_bytes());
        block[68..72].copy_from_slice(&self.next_incarnation.map_or(0, |next| next.0).to_le_bytes());
        reseal(&mut block);
        block
    }

    /// What a block has; `None` if it is no record of the volume with this `uuid`.
    pub fn decode(block: &Block, uuid: [u8; 16]) -> Option<FindingsRecord> {
        let number = |at: usize| block[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
        let stored = u32::from_le_bytes([block[12], block[13], block[14], block[15]]);
        let is_one = block[..8] == MAGIC
            && block[8..12] == VERSION.to_le_bytes()
            && block[16..32] == uuid
            && stored == checksum_except(&block[..], CRC_AT);
        if !is_one {
            return None;
        }
        let mut rest = &block[FIRST..];
        let kept = u16::from_le_bytes([block[64], block[65]]);
        let next = u32::from_le_bytes([block[68], block[69], block[70], block[71]]);
        let mut findings = Vec::new();
        for _ in 0..kept {
            findings.push(RecordedFinding::take(&mut rest)?);
        }
        Some(FindingsRecord {
            sequence: number(32),
            generation: Generation(number(40)),
            seconds: number(48),
            count: number(56),
            next_incarnation: (next != 0).then_some(Incarnation(next)),
            findings,
        })
    }
}

/// Removes the findings that a block has.
pub(crate) fn clear_findings(block: &mut Block) {
    block[..SCRUBS_AT].fill(0);
}

/// Computes the checksum of a block anew, if it has a record. The checksum is that of the whole block, the
/// record of scrubs and the spare superblock included.
pub(crate) fn reseal(block: &mut Block) {
    if block[..8] == MAGIC {
        let crc = checksum_except(&block[..], CRC_AT);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

impl RecordedFinding {
    /// `None` for a code that cannot be recorded.
    fn encode(&self) -> Option<Vec<u8>> {
        let code_len = u8::try_from(self.code.len()).ok().filter(|len| *len > 0)?;
        let mut path = self.path.as_deref().unwrap_or("");
        if path.len() > RECORDED_PATH_MAX {
            let from = (path.len() - RECORDED_PATH_MAX..path.len()).find(|at| path.is_char_boundary(*at));
            path = &path[from.unwrap_or(path.len())..];
        }
        let mut bytes = Vec::with_capacity(FIXED + self.code.len() + path.len());
        bytes.extend([u8::from(self.is_damage), code_len, path.len() as u8, 0]);
        let numbers = [self.addr.map(|addr| addr.0), self.block.map(|b| b.0), self.inode.map(|i| i.0)];
        numbers.iter().for_each(|n| bytes.extend(n.unwrap_or(u64::MAX).to_le_bytes()));
        bytes.extend(self.code.as_bytes());
        bytes.extend(path.as_bytes());
        Some(bytes)
    }

    /// Takes one off the bytes.
    fn take(bytes: &mut &[u8]) -> Option<RecordedFinding> {
        let fixed = bytes.get(..FIXED)?;
        let (code_len, path_len) = (usize::from(fixed[1]), usize::from(fixed[2]));
        let number = |at: usize| {
            let number = fixed[at..at + 8].try_into().map(u64::from_le_bytes).ok()?;
            (number != u64::MAX).then_some(number)
        };
        let texts = bytes.get(FIXED..FIXED + code_len + path_len)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let found = RecordedFinding {
            code: text(&texts[..code_len])?,
            is_damage: fixed[0] & 1 != 0,
            addr: number(4).map(MetaAddr),
            block: number(12).map(BlockNo),
            inode: number(20).map(InodeNo),
            path: (path_len > 0)
                .then(|| text(&texts[code_len..]))
                .map_or(Some(None), |path| path.map(Some))?,
        };
        *bytes = &bytes[FIXED + code_len + path_len..];
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(findings: usize) -> FindingsRecord {
        let one = |i: usize| RecordedFinding {
            code: "space-leaked".into(),
            is_damage: i.is_multiple_of(2),
            addr: i.is_multiple_of(3).then_some(MetaAddr(i as u64)),
            block: Some(BlockNo(7000 + i as u64)),
            inode: (i % 3 == 1).then_some(InodeNo(16)),
            path: (!i.is_multiple_of(4)).then(|| format!("/a/{i}/ß")),
        };
        FindingsRecord {
            sequence: 3,
            generation: Generation(12),
            seconds: 1_800_000_000,
            count: findings as u64,
            next_incarnation: (findings > 0).then_some(Incarnation(99)),
            findings: (0..findings).map(one).collect(),
        }
    }

    /// A record comes back as it was; findings without room are only counted; the end of a long path stays.
    #[test]
    fn records_come_back() {
        let uuid = [7; 16];
        for count in [0, 1, 40] {
            let record = sample(count);
            assert_eq!(FindingsRecord::decode(&record.encode(uuid), uuid), Some(record));
        }
        let many = FindingsRecord::decode(&sample(1000).encode(uuid), uuid).unwrap();
        assert!(many.findings.len() > 50 && many.count == 1000, "{}", many.findings.len());
        let mut long = sample(2);
        long.findings[1].path = Some("ß".repeat(300));
        let back = FindingsRecord::decode(&long.encode(uuid), uuid).unwrap();
        assert_eq!(back.findings[1].path, Some("ß".repeat(127)));
        assert_eq!(FindingsRecord::decode(&sample(1).encode(uuid), [8; 16]), None);
    }

    /// Any bytes behind a right checksum are read or refused, and a wrong bit is refused.
    #[test]
    fn any_bytes_are_refused_or_read() {
        let uuid = [7; 16];
        let whole = sample(20).encode(uuid);
        for at in 0..600 {
            let mut block = whole.clone();
            block[at] ^= 0x41;
            assert_eq!(FindingsRecord::decode(&block, uuid), None, "byte {at}");
            let crc = checksum_except(&block[..], CRC_AT);
            block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            let _ = FindingsRecord::decode(&block, uuid);
        }
    }
}
