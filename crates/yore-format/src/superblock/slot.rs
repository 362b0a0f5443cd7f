//! The two slots of the superblock: sectors with stamps, the checksum, and the choice between the slots.

use super::fields::{RootZone, Superblock, LOG_PATH_MAX, ROOT_ZONES_MAX};
use super::raw::{bad, RawRootZone, RawSuperblock, CRC_OFFSET, MAGIC, MINOR, ROOTS_PER_SECTOR, STAMP};
use crate::layout::Geometry;
use crate::{checksum_except, Block, BlockNo, Corruption, Features, Generation, ZERO_BLOCK};
use zerocopy::{FromBytes, IntoBytes};

const SECTOR: usize = 512;
const SECTORS: usize = crate::BLOCK_SIZE / SECTOR;
/// Where the path of the log's device stands: all of the last sector but its stamp.
const LOG_PATH: std::ops::Range<usize> = (SECTORS - 1) * SECTOR..(SECTORS - 1) * SECTOR + LOG_PATH_MAX;
const _: () = assert!(LOG_PATH_MAX == STAMP && ROOT_ZONES_MAX <= (SECTORS - 2) * ROOTS_PER_SECTOR);

/// What a slot's bytes turn out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Complete and verified.
    Valid(Box<Superblock>),
    /// The sectors carry different generations: a crash interrupted the write. The greatest stamp is given.
    Torn(Generation),
    /// Complete, with this generation, and wrong.
    Corrupt(Generation, Box<Corruption>),
    /// No superblock of ours.
    Foreign,
}

impl Superblock {
    /// The bytes for slot 0 or 1.
    ///
    /// # Panics
    /// If the label is longer than 64 bytes or contains a NUL, the path of the log's device is longer than
    /// [`LOG_PATH_MAX`] or contains one, or there are more than [`ROOT_ZONES_MAX`] root zones: such a
    /// superblock could not be read back.
    pub fn encode(&self, slot: u32) -> Box<Block> {
        assert!(
            self.label.len() <= 64 && !self.label.contains('\0'),
            "an impossible label: {:?}",
            self.label
        );
        assert!(self.root_zones.len() <= ROOT_ZONES_MAX, "{} root zones", self.root_zones.len());
        let mut block = Box::new(ZERO_BLOCK);
        block[..STAMP].copy_from_slice(RawSuperblock::of(self, slot).as_bytes());
        for (i, root) in self.root_zones.iter().enumerate() {
            if let Some(root) = root {
                block[root_zone_range(i)].copy_from_slice(RawRootZone::of(root).as_bytes());
            }
        }
        if let Some(log) = &self.external_log {
            assert!(!log.path.contains(&0), "an impossible path: {:?}", log.path);
            block[LOG_PATH][..log.path.len()].copy_from_slice(&log.path);
        }
        for sector in 0..SECTORS {
            block[stamp_range(sector)].copy_from_slice(&self.generation.0.to_le_bytes());
        }
        let crc = checksum_except(&block[..], CRC_OFFSET);
        block[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// What the bytes of `slot` are.
    pub fn decode(block: &Block, slot: u32) -> SlotState {
        Superblock::decode_with(block, slot, Features::SUPPORTED)
    }

    /// The same for a reader who knows these features: a superblock with another one is corrupt for him.
    pub fn decode_with(block: &Block, slot: u32, known: Features) -> SlotState {
        let stamps: [u64; SECTORS] = std::array::from_fn(|sector| {
            u64::from_le_bytes(block[stamp_range(sector)].try_into().expect("eight bytes"))
        });
        let newest = Generation(stamps.iter().copied().max().unwrap_or(0));
        let magic = block[..MAGIC.len()] == MAGIC;
        if stamps.iter().any(|s| *s != newest.0) {
            // A torn first sector still holds the older superblock's magic: the slots never hold anything
            // else.
            return if magic { SlotState::Torn(newest) } else { SlotState::Foreign };
        }
        if !magic {
            return SlotState::Foreign;
        }
        match decode_complete(block, slot, newest, known) {
            Ok(sb) => SlotState::Valid(Box::new(sb)),
            Err(c) => SlotState::Corrupt(newest, c.on(BlockNo(u64::from(slot)))),
        }
    }
}

/// Where the generation stands in a sector.
fn stamp_range(sector: usize) -> std::ops::Range<usize> {
    let at = sector * SECTOR + STAMP;
    at..at + 8
}

/// Where the entry of root zone `i` stands.
fn root_zone_range(i: usize) -> std::ops::Range<usize> {
    let at = SECTOR * (1 + i / ROOTS_PER_SECTOR) + (i % ROOTS_PER_SECTOR) * size_of::<RawRootZone>();
    at..at + size_of::<RawRootZone>()
}

/// Decodes a slot whose sectors all carry `generation`.
fn decode_complete(
    block: &Block,
    slot: u32,
    generation: Generation,
    known: Features,
) -> Result<Superblock, Box<Corruption>> {
    let raw = RawSuperblock::ref_from_bytes(&block[..STAMP]).expect("the sizes are equal");
    // The version comes before the checksum: another version may compute the checksum in another way.
    raw.check_version()?;
    raw.check_crc(checksum_except(&block[..], CRC_OFFSET))?;
    let root_zones = |count, geometry| decode_root_zones(block, count, geometry);
    let superblock = raw.superblock(slot, generation, known, &block[LOG_PATH], root_zones)?;
    // Everything that means nothing is zero, so encoding gives the same bytes. Only the minor version may be
    // another program's, and the checksum with it.
    let mut again = superblock.encode(slot);
    again[MINOR].copy_from_slice(&block[MINOR]);
    again[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&block[CRC_OFFSET..CRC_OFFSET + 4]);
    if again[..] != block[..] {
        return bad("reserved bytes", "zero", "something else");
    }
    Ok(superblock)
}

fn decode_root_zones(
    block: &Block,
    count: usize,
    geometry: Geometry,
) -> Result<Vec<Option<RootZone>>, Box<Corruption>> {
    (0..count)
        .map(|i| {
            let raw = RawRootZone::ref_from_bytes(&block[root_zone_range(i)]).expect("the sizes are equal");
            raw.root_zone(i, geometry)
        })
        .collect()
}

/// Chooses between the two slots: the newer valid one; the older only if the newer is torn. Of two of the
/// same generation the later [`Superblock::step`] counts. A wrong one may be the second step, if there can be
/// one: under an engine that orders changes.
///
/// Returns the superblock, the slot it is in, and the greatest generation stamped anywhere in either.
///
/// # Errors
/// [`Corruption`] if the newer slot is complete but wrong, or neither is a superblock.
pub fn decode_slots(slots: [&Block; 2]) -> Result<(Superblock, u32, Generation), Box<Corruption>> {
    let states = [Superblock::decode(slots[0], 0), Superblock::decode(slots[1], 1)];
    let stamp = |s: &SlotState| match s {
        SlotState::Valid(sb) => sb.generation,
        SlotState::Torn(g) | SlotState::Corrupt(g, _) => *g,
        SlotState::Foreign => Generation(0),
    };
    let newest = states.iter().map(stamp).max().unwrap_or_default();
    let has_steps = |s: &SlotState| matches!(s, SlotState::Valid(sb) if sb.in_place_since.0 != 0);
    let wrong = u8::from(states.iter().any(has_steps));
    let step = |s: &SlotState| match s {
        SlotState::Valid(sb) => 2 * sb.step,
        _ => wrong,
    };
    let rank = |s: &SlotState| (stamp(s), step(s));
    let order = if rank(&states[1]) > rank(&states[0]) { [1, 0] } else { [0, 1] };
    for slot in order {
        match &states[slot] {
            SlotState::Valid(sb) => return Ok(((**sb).clone(), slot as u32, newest)),
            SlotState::Corrupt(_, c) => return Err(c.clone()),
            SlotState::Torn(_) | SlotState::Foreign => {}
        }
    }
    bad("magic", "a Yore volume", "no superblock in either slot")
}
