//! The spare superblock: what only a superblock says and nobody could find out again, once more.
//!
//! Zones, trees and the log identify themselves, so a volume without superblocks could be put together from
//! them, but for a few things: the key of the hash of names above all. They change rarely. A copy of them is
//! the last eighth of each of the two blocks that the record of findings has, 4 MiB behind the superblocks.
//! Programs that do not know it neither read nor write it, unless they write a record there; so it takes no
//! feature, and may be missing.
//!
//! Nothing relies on it as long as a superblock can be used.

use crate::features::Features;
use crate::findings::{reseal, SCRUBS_AT, SPARE_AT};
use crate::layout::{Geometry, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN, ZONE_BLOCKS};
use crate::{
    checksum_except, Block, BlockNo, Corruption, Engine, EventNo, ExternalLog, Generation, InodeNo, MetaAddr,
    RootZone, Scrub, SpaceRules, Superblock, VolumeState, WriteFeatures, ROOT_ZONES_MAX,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"YORE\x89SP\n";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
const BYTES: usize = crate::BLOCK_SIZE - SPARE_AT;
/// In `root_zones`: there is none.
const NO_ZONE: u32 = u32::MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSpare {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    generation: U64,
    features: U64,
    features_read_only: U64,
    volume_blocks: U64,
    hash_seed: [u8; 16],
    created_seconds: U64,
    log_start: U64,
    log_blocks: U64,
    log_id: U64,
    history_floor: U64,
    next_number: U64,
    mount_id: U64,
    next_incarnation: U32,
    incarnation_rounds: U16,
    engine: u8,
    history_share: u8,
    label: [u8; 64],
    root_zones: [U32; ROOT_ZONES_MAX],
    reserved: [u8; 176],
}

const _: () = assert!(size_of::<RawSpare>() == BYTES);
const _: () = assert!(std::mem::offset_of!(RawSpare, crc) == CRC_AT);

/// A spare superblock that verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// A superblock with what the copy has. Everything else in it says that there is nothing.
    superblock: Superblock,
}

impl Spare {
    /// What a spare superblock has of this one.
    pub fn of(superblock: &Superblock) -> Spare {
        let sb = superblock;
        let bare = |zone: &Option<RootZone>| zone.map(|zone| bare_zone(zone.start));
        let mut features = sb.write_features() - WriteFeatures::HISTORY - WriteFeatures::IN_PLACE;
        features.set(WriteFeatures::EXTERNAL_LOG, false);
        Spare {
            superblock: Superblock {
                uuid: sb.uuid,
                volume_blocks: sb.volume_blocks,
                generation: sb.generation,
                mount_id: sb.mount_id,
                engine: sb.engine,
                next_incarnation: sb.next_incarnation,
                next_number: sb.next_number,
                hash_seed: sb.hash_seed,
                created_seconds: sb.created_seconds,
                log_start: sb.log_start,
                log_blocks: sb.log_blocks,
                log_id: sb.log_id,
                external_log: sb.external_log.as_ref().map(|_| ExternalLog::default()),
                label: sb.label.clone(),
                features: features.stored(),
                space_rules: sb.space_rules,
                root_zones: sb.root_zones.iter().map(bare).collect(),
                ..nothing()
            },
        }
    }

    /// A superblock with what the copy has. Roots, totals and the log's position say that there is nothing;
    /// of a log elsewhere neither session nor path are known; the checksums of root zones are 0.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether nothing has changed since but what changes all the time: generation, number of the mount, and
    /// the numbers to give next.
    pub fn says_the_same(&self, newer: &Spare) -> bool {
        let (old, new) = (&self.superblock, &newer.superblock);
        let mut as_old = new.clone();
        (as_old.generation, as_old.next_number) = (old.generation, old.next_number);
        as_old.mount_id = old.mount_id;
        as_old.next_incarnation =
            new.next_incarnation >> 32 << 32 | (old.next_incarnation & u64::from(u32::MAX));
        as_old == *old
    }

    /// Writes the copy into a block, and keeps a record of findings that is there.
    pub fn put(&self, block: &mut Block) {
        let sb = &self.superblock;
        let mut label = [0; 64];
        let named = sb.label.len().min(label.len());
        label[..named].copy_from_slice(&sb.label.as_bytes()[..named]);
        let rules = sb.space_rules.unwrap_or(SpaceRules { floor_seconds: 0, share_percent: 0 });
        let mut root_zones = [U32::new(NO_ZONE); ROOT_ZONES_MAX];
        for (place, zone) in root_zones.iter_mut().zip(&sb.root_zones) {
            *place = zone.map_or(NO_ZONE, |zone| (zone.start.0 / ZONE_BLOCKS) as u32).into();
        }
        let (features, features_read_only) = sb.write_features().split();
        let raw = RawSpare {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            uuid: sb.uuid,
            generation: sb.generation.0.into(),
            features: features.bits().into(),
            features_read_only: features_read_only.bits().into(),
            volume_blocks: sb.volume_blocks.into(),
            hash_seed: sb.hash_seed,
            created_seconds: sb.created_seconds.into(),
            log_start: sb.log_start.0.into(),
            log_blocks: sb.log_blocks.into(),
            log_id: sb.log_id.into(),
            history_floor: rules.floor_seconds.into(),
            next_number: sb.next_number.0.into(),
            mount_id: sb.mount_id.into(),
            next_incarnation: (sb.next_incarnation as u32).into(),
            incarnation_rounds: sb.incarnation_rounds().into(),
            engine: sb.engine as u8,
            history_share: rules.share_percent,
            label,
            root_zones,
            reserved: [0; 176],
        };
        let place = &mut block[SPARE_AT..];
        place.copy_from_slice(raw.as_bytes());
        let crc = checksum_except(place, CRC_AT);
        place[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        reseal(block);
    }

    /// Copies whatever is where a record of scrubs and a spare superblock would be, from one block to
    /// another.
    pub fn carry(from: &Block, to: &mut Block) {
        to[SCRUBS_AT..].copy_from_slice(&from[SCRUBS_AT..]);
        reseal(to);
    }

    /// The spare superblock in a block; `None` if there is none.
    ///
    /// # Errors
    /// [`Corruption`] if there is one that is whole, and this program does not know what it says.
    pub fn find(block: &Block) -> Result<Option<Spare>, Box<Corruption>> {
        let place = &block[SPARE_AT..];
        let Ok(raw) = RawSpare::ref_from_bytes(place) else { return Ok(None) };
        if raw.magic != MAGIC || raw.crc.get() != checksum_except(place, CRC_AT) {
            return Ok(None);
        }
        if raw.version.get() != VERSION {
            return bad("version", VERSION, raw.version);
        }
        raw.decode().map(|superblock| Some(Spare { superblock }))
    }
}

fn bad<T>(field: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("spare superblock", field, expected, found))
}

/// A superblock that says that there is nothing, for what a copy does not have.
fn nothing() -> Superblock {
    Superblock {
        uuid: [0; 16],
        volume_blocks: 0,
        generation: Generation(0),
        mount_id: 0,
        engine: Engine::Snapshot,
        state: VolumeState::InUse,
        next_incarnation: 0,
        next_number: EventNo(0),
        hash_seed: [0; 16],
        created_seconds: 0,
        written_seconds: 0,
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
        log_number: 0,
        log_chain: 0,
        log_sequence: 0,
        log_generation: Generation(0),
        external_log: None,
        label: String::new(),
        features: WriteFeatures::empty().stored(),
        space_rules: None,
        in_place_since: Generation(0),
        step: 0,
        findings_root: MetaAddr::NONE,
        findings_level: 0,
        scrub: Scrub::default(),
        root_zones: Vec::new(),
    }
}

/// A root zone of which only the place is known.
fn bare_zone(start: BlockNo) -> RootZone {
    RootZone { start, generation: Generation(0), crc: 0, header_slot: 0 }
}

impl RawSpare {
    fn decode(&self) -> Result<Superblock, Box<Corruption>> {
        let features = Features::from_bits_retain(self.features.get());
        if !Features::SUPPORTED.contains(features) {
            let unknown = features - Features::SUPPORTED;
            return bad("features", "features this program knows", unknown);
        }
        let of_writers = WriteFeatures::all() - WriteFeatures::of(Features::all());
        let unknown = self.features_read_only.get() & !of_writers.bits();
        if unknown != 0 {
            return bad(
                "features",
                "features this program knows",
                format!("unknown write-feature bits {unknown:#x}"),
            );
        }
        let features =
            WriteFeatures::from_bits_truncate(self.features_read_only.get()) | WriteFeatures::of(features);
        let Some(engine) = Engine::from_repr(self.engine) else {
            return bad("engine", "1 to 5", self.engine);
        };
        let blocks = self.volume_blocks.get();
        let geometry = Geometry::new(blocks);
        if !(VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&blocks) || geometry.blocks != blocks {
            return bad("volume size", "a possible number of blocks", blocks);
        }
        if self.history_share > 100 {
            return bad("share of the history", "0 to 100 percent", self.history_share);
        }
        if self.reserved != [0; 176] {
            return bad("reserved bytes", "zero", "something else");
        }
        let end = self.label.iter().position(|b| *b == 0).unwrap_or(self.label.len());
        let Ok(label) = std::str::from_utf8(&self.label[..end]) else {
            return bad("label", "UTF-8", format!("{:02x?}", &self.label[..end]));
        };
        let count = self.root_zones.iter().rposition(|zone| zone.get() != NO_ZONE).map_or(0, |last| last + 1);
        let mut root_zones = Vec::with_capacity(count);
        for (n, zone) in self.root_zones[..count].iter().enumerate() {
            let start = BlockNo(u64::from(zone.get()) * ZONE_BLOCKS);
            root_zones.push(match zone.get() {
                NO_ZONE => None,
                _ if geometry.is_zone_start(start) || (n == 0 && start.0 == 0) => Some(bare_zone(start)),
                _ => return bad("root zone", "a place for a zone", start),
            });
        }
        let is_external = features.contains(WriteFeatures::EXTERNAL_LOG);
        let rules = SpaceRules { floor_seconds: self.history_floor.get(), share_percent: self.history_share };
        Ok(Superblock {
            uuid: self.uuid,
            volume_blocks: blocks,
            generation: Generation(self.generation.get()),
            mount_id: self.mount_id.get(),
            engine,
            next_incarnation: u64::from(self.incarnation_rounds.get()) << 32
                | u64::from(self.next_incarnation.get()),
            next_number: EventNo(self.next_number.get()),
            hash_seed: self.hash_seed,
            created_seconds: self.created_seconds.get(),
            log_start: BlockNo(self.log_start.get()),
            log_blocks: self.log_blocks.get(),
            log_id: self.log_id.get(),
            external_log: is_external.then(ExternalLog::default),
            label: label.to_string(),
            features: features.stored(),
            space_rules: features.contains(WriteFeatures::SPACE_RULES).then_some(rules),
            root_zones,
            ..nothing()
        })
    }
}

/// The layout of a spare superblock.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Spare superblock", RawSpare: magic, version, crc, uuid, generation, features, features_read_only, volume_blocks, hash_seed, created_seconds, log_start, log_blocks, log_id, history_floor, next_number, mount_id, next_incarnation, incarnation_rounds, engine, history_share, label, root_zones, reserved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FindingsRecord, RecordedFinding, BLOCK_SIZE, ZERO_BLOCK};

    fn sample() -> Superblock {
        let spare = Spare::of(&RawSpare::new_zeroed_for_tests().decode().unwrap());
        spare.superblock
    }

    impl RawSpare {
        fn new_zeroed_for_tests() -> RawSpare {
            let mut raw = RawSpare::read_from_bytes(&[0; BYTES]).unwrap();
            raw.engine = Engine::Snapshot as u8;
            raw.volume_blocks = 8192.into();
            raw.hash_seed = *b"sixteen bytes!!!";
            raw.root_zones = [U32::new(NO_ZONE); ROOT_ZONES_MAX];
            raw.root_zones[0] = 0.into();
            raw
        }
    }

    /// A copy comes back, whether the block has a record of findings or not; and the record comes back, too.
    #[test]
    fn copies_and_records_share_a_block() {
        let mut sb = sample();
        sb.label = "x".repeat(64);
        sb.next_incarnation = 3 << 32 | 77;
        sb.space_rules = Some(SpaceRules { floor_seconds: 9, share_percent: 30 });
        sb.root_zones.push(None);
        sb.root_zones.push(Some(bare_zone(BlockNo(5 * ZONE_BLOCKS))));
        sb.features = WriteFeatures::ANNALS | WriteFeatures::INODE_FLAGS;
        let spare = Spare::of(&sb);
        let one = RecordedFinding { code: "space-leaked".into(), ..RecordedFinding::default() };
        let record = FindingsRecord { count: 500, findings: vec![one; 500], ..FindingsRecord::default() };
        let mut alone = Box::new(ZERO_BLOCK);
        let mut beside = record.encode(sb.uuid);
        for block in [&mut alone, &mut beside] {
            assert_eq!(Spare::find(block), Ok(None));
            spare.put(block);
            assert_eq!(Spare::find(block), Ok(Some(spare.clone())));
        }
        assert_eq!(FindingsRecord::decode(&alone, sb.uuid), None);
        let back = FindingsRecord::decode(&beside, sb.uuid).unwrap();
        assert!(back.count == 500 && back.findings.len() > 50, "{}", back.findings.len());
        let mut next = record.encode(sb.uuid);
        Spare::carry(&beside, &mut next);
        assert_eq!(Spare::find(&next), Ok(Some(spare.clone())));
        assert!(FindingsRecord::decode(&next, sb.uuid).is_some());
        assert!(spare.says_the_same(&Spare::of(&Superblock { generation: Generation(9), ..sb.clone() })));
        assert!(!spare.says_the_same(&Spare::of(&Superblock { volume_blocks: 16384, ..sb })));
    }

    /// Any bytes are none, a copy, or one that this program does not know.
    #[test]
    fn any_bytes_are_safe() {
        let mut whole = Box::new(ZERO_BLOCK);
        Spare::of(&sample()).put(&mut whole);
        for at in SPARE_AT..BLOCK_SIZE {
            let mut block = whole.clone();
            block[at] ^= 0x41;
            assert_eq!(Spare::find(&block), Ok(None), "byte {at}");
            let crc = checksum_except(&block[SPARE_AT..], CRC_AT);
            block[SPARE_AT + CRC_AT..SPARE_AT + CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            if let Ok(Some(spare)) = Spare::find(&block) {
                let mut again = Box::new(ZERO_BLOCK);
                spare.put(&mut again);
            }
        }
    }
}
