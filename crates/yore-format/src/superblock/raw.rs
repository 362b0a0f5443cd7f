//! The superblock as it stands in a slot's first sector, and the entries of root zones in the others.

use super::fields::{
    of_rounds_and_next, rounds_and_next, Engine, ExternalLog, RootZone, Scrub, SpaceRules, Superblock,
    VolumeState, WriteFeatures, FORMAT_MAJOR, FORMAT_MINOR, ROOT_ZONES_MAX,
};
use crate::layout::{Geometry, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use crate::{
    BlockNo, Corruption, EventNo, Features, Generation, InodeNo, MetaAddr, StructLayout, EVENT_LIMIT,
};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The offset of the generation in each sector of a slot. The sector's fields end there.
pub(super) const STAMP: usize = 504;
pub(super) const MAGIC: [u8; 8] = *b"YORE\x89V\r\n";
pub(super) const CRC_OFFSET: usize = 16;
pub(super) const MINOR: std::ops::Range<usize> = 12..16;
pub(super) const ROOTS_PER_SECTOR: usize = 18;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    magic: [u8; 8],
    major: U32,
    minor: U32,
    crc: U32,
    slot: U32,
    uuid: [u8; 16],
    features: U64,
    features_read_only: U64,
    volume_blocks: U64,
    mount_id: U64,
    engine: u8,
    state: u8,
    incarnation_rounds: U16,
    next_incarnation: U32,
    next_number: U64,
    hash_seed: [u8; 16],
    created_seconds: U64,
    written_seconds: U64,
    root_directory: U64,
    orphan_root: U64,
    events_root: U64,
    history_root: U64,
    free_blocks: U64,
    inodes: U64,
    metadata_blocks: U64,
    zones: U32,
    zone_number_limit: U32,
    root_zone_count: U32,
    orphan_level: u8,
    reserved1: [u8; 3],
    log_start: U64,
    log_blocks: U64,
    log_id: U64,
    log_position: U64,
    label: [u8; 64],
    log_number: U64,
    log_chain: U64,
    log_sequence: U64,
    log_generation: U64,
    history_floor: U64,
    history_share: u8,
    in_place_since: U64,
    findings_root: U64,
    findings_level: u8,
    scrub_position: U64,
    scrub_began: I64,
    scrub_ended: I64,
    log_session: U64,
    log_begins: u8,
    step: u8,
    reserved2: [u8; 124],
}

const _: () = assert!(size_of::<RawSuperblock>() == STAMP);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, crc) == CRC_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, minor) == MINOR.start);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRootZone {
    start: U64,
    generation: U64,
    crc: U32,
    header_slot: u8,
    present: u8,
    reserved: [u8; 6],
}

const _: () = assert!(size_of::<RawRootZone>() * ROOTS_PER_SECTOR == STAMP);

pub(super) fn bad<T>(
    field: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("superblock", field, expected, found))
}

impl RawSuperblock {
    /// The fields for `superblock` in slot `slot`, with a checksum of 0.
    pub(super) fn of(superblock: &Superblock, slot: u32) -> RawSuperblock {
        let sb = superblock;
        let mut label = [0; 64];
        label[..sb.label.len()].copy_from_slice(sb.label.as_bytes());
        let (incarnation_rounds, next_incarnation) = of_rounds_and_next(sb.next_incarnation);
        let rules = sb.space_rules.unwrap_or(SpaceRules { floor_seconds: 0, share_percent: 0 });
        let (features, write_features) = sb.write_features().split();
        let external = sb.external_log.as_ref();
        RawSuperblock {
            magic: MAGIC,
            major: FORMAT_MAJOR.into(),
            minor: FORMAT_MINOR.into(),
            crc: 0.into(),
            slot: slot.into(),
            uuid: sb.uuid,
            features: features.bits().into(),
            features_read_only: write_features.bits().into(),
            volume_blocks: sb.volume_blocks.into(),
            mount_id: sb.mount_id.into(),
            engine: sb.engine as u8,
            state: sb.state as u8,
            incarnation_rounds,
            next_incarnation,
            next_number: sb.next_number.0.into(),
            hash_seed: sb.hash_seed,
            created_seconds: sb.created_seconds.into(),
            written_seconds: sb.written_seconds.into(),
            root_directory: sb.root_directory.0.into(),
            orphan_root: sb.orphan_root.0.into(),
            events_root: sb.events_root.0.into(),
            history_root: sb.history_root.0.into(),
            free_blocks: sb.free_blocks.into(),
            inodes: sb.inodes.into(),
            metadata_blocks: sb.metadata_blocks.into(),
            zones: sb.zones.into(),
            zone_number_limit: sb.zone_number_limit.into(),
            root_zone_count: (sb.root_zones.len() as u32).into(),
            orphan_level: sb.orphan_level,
            reserved1: [0; 3],
            log_start: sb.log_start.0.into(),
            log_blocks: sb.log_blocks.into(),
            log_id: sb.log_id.into(),
            log_position: sb.log_position.into(),
            label,
            log_number: sb.log_number.into(),
            log_chain: sb.log_chain.into(),
            log_sequence: sb.log_sequence.into(),
            log_generation: sb.log_generation.0.into(),
            history_floor: rules.floor_seconds.into(),
            history_share: rules.share_percent,
            in_place_since: sb.in_place_since.0.into(),
            findings_root: sb.findings_root.0.into(),
            findings_level: sb.findings_level,
            scrub_position: sb.scrub.position.0.into(),
            scrub_began: sb.scrub.began.into(),
            scrub_ended: sb.scrub.ended.into(),
            log_session: external.map_or(0, |log| log.session).into(),
            log_begins: external.is_some_and(|log| log.begins).into(),
            step: sb.step,
            reserved2: [0; 124],
        }
    }

    /// Decodes the fields of slot `slot`, which carries `generation`, if it has no features but `known`.
    /// `log_path` is the sector for a path, and `root_zones` decodes as many root zones as it is told.
    pub(super) fn superblock(
        &self,
        slot: u32,
        generation: Generation,
        known: Features,
        log_path: &[u8],
        root_zones: impl FnOnce(usize, Geometry) -> Result<Vec<Option<RootZone>>, Box<Corruption>>,
    ) -> Result<Superblock, Box<Corruption>> {
        let features = self.known_features(known)?;
        self.check_slot(slot)?;
        let (engine, state) = self.engine_and_state()?;
        let geometry = self.geometry()?;
        self.check_roots()?;
        let count = self.root_zone_count.get() as usize;
        if count == 0 || count > ROOT_ZONES_MAX {
            return bad("number of root zones", format!("1 to {ROOT_ZONES_MAX}"), count);
        }
        let in_place_since = self.in_place_since(features, engine)?;
        let (findings_root, findings_level, scrub) = self.findings(features, geometry)?;
        Ok(Superblock {
            uuid: self.uuid,
            volume_blocks: geometry.blocks,
            generation,
            mount_id: self.mount_id.get(),
            engine,
            state,
            next_incarnation: rounds_and_next(self.incarnation_rounds, self.next_incarnation),
            next_number: EventNo(self.next_number.get()),
            hash_seed: self.hash_seed,
            created_seconds: self.created_seconds.get(),
            written_seconds: self.written_seconds.get(),
            root_directory: InodeNo(self.root_directory.get()),
            orphan_root: MetaAddr(self.orphan_root.get()),
            orphan_level: self.orphan_level,
            events_root: MetaAddr(self.events_root.get()),
            history_root: MetaAddr(self.history_root.get()),
            free_blocks: self.free_blocks.get(),
            inodes: self.inodes.get(),
            metadata_blocks: self.metadata_blocks.get(),
            zones: self.zones.get(),
            zone_number_limit: self.zone_number_limit.get(),
            log_start: BlockNo(self.log_start.get()),
            log_blocks: self.log_blocks.get(),
            log_id: self.log_id.get(),
            log_position: self.log_position.get(),
            log_number: self.log_number.get(),
            log_chain: self.log_chain.get(),
            log_sequence: self.log_sequence.get(),
            log_generation: Generation(self.log_generation.get()),
            external_log: self.external_log(features, log_path)?,
            label: self.label()?,
            features: features.stored(),
            space_rules: self.space_rules(features)?,
            in_place_since,
            step: if in_place_since.0 == 0 { 0 } else { self.step },
            findings_root,
            findings_level,
            scrub,
            root_zones: root_zones(count, geometry)?,
        })
    }

    /// Checks the major version.
    pub(super) fn check_version(&self) -> Result<(), Box<Corruption>> {
        if self.major.get() != FORMAT_MAJOR {
            return bad(
                "format version",
                format!("{FORMAT_MAJOR}.x"),
                format!("{}.{}", self.major, self.minor),
            );
        }
        Ok(())
    }

    /// Compares the checksum with the one that the slot's bytes have.
    pub(super) fn check_crc(&self, computed: u32) -> Result<(), Box<Corruption>> {
        let stored = self.crc.get();
        if computed != stored {
            return bad(
                "checksum",
                format!("{stored:#010x} (stored)"),
                format!("{computed:#010x} (computed)"),
            );
        }
        Ok(())
    }

    /// The features, if they are among `known`, and all of the others that a program must know to write.
    fn known_features(&self, known: Features) -> Result<WriteFeatures, Box<Corruption>> {
        let expected = "features this program knows";
        let features = Features::from_bits_retain(self.features.get());
        if !known.contains(features) {
            return bad(
                "features",
                expected,
                format!("{}, which a newer program may know", features - known),
            );
        }
        let write_features = WriteFeatures::all() - WriteFeatures::of(Features::all());
        let unknown = self.features_read_only.get() & !write_features.bits();
        if unknown != 0 {
            return bad("features", expected, format!("unknown write-feature bits {unknown:#x}"));
        }
        let write_features = WriteFeatures::from_bits_truncate(self.features_read_only.get());
        if write_features.contains(WriteFeatures::HISTORY) == (self.history_root.get() == 0) {
            return bad("history root", "one if the feature bit says so, else none", self.history_root);
        }
        if features.contains(Features::ANNALS) && self.next_number.get() >= EVENT_LIMIT {
            return bad("next event number", format!("below {EVENT_LIMIT} with annals"), self.next_number);
        }
        Ok(write_features | WriteFeatures::of(features))
    }

    /// Checks that the superblock was written to this slot.
    fn check_slot(&self, slot: u32) -> Result<(), Box<Corruption>> {
        if self.slot.get() != slot {
            return bad("slot", slot, self.slot);
        }
        Ok(())
    }

    fn engine_and_state(&self) -> Result<(Engine, VolumeState), Box<Corruption>> {
        let Some(engine) = Engine::from_repr(self.engine) else {
            return bad("engine", "1 to 5", self.engine);
        };
        let state = match self.state {
            1 => VolumeState::Clean,
            2 => VolumeState::InUse,
            3 => VolumeState::MustBeChecked,
            4 => VolumeState::LeaksPending,
            n => return bad("state", "1 to 4", n),
        };
        Ok((engine, state))
    }

    /// The volume's geometry, if its length is possible. The reserved bytes come before it.
    fn geometry(&self) -> Result<Geometry, Box<Corruption>> {
        if self.reserved1 != [0; 3] || self.reserved2 != [0; 124] {
            return bad("reserved bytes", "zero", "something else");
        }
        let blocks = self.volume_blocks.get();
        let geometry = Geometry::new(blocks);
        if !(VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&blocks) || geometry.blocks != blocks {
            return bad("volume size", "a possible number of blocks", blocks);
        }
        Ok(geometry)
    }

    /// Checks the root directory, and that the roots of trees are possible addresses.
    fn check_roots(&self) -> Result<(), Box<Corruption>> {
        let root_directory = InodeNo(self.root_directory.get());
        if root_directory != InodeNo::ROOT {
            return bad("root directory", InodeNo::ROOT, root_directory);
        }
        for (field, root) in [
            ("orphan root", self.orphan_root),
            ("events root", self.events_root),
            ("history root", self.history_root),
        ] {
            let addr = MetaAddr(root.get());
            if !addr.is_plausible() || addr.zone().is_root() {
                return bad(field, "a metadata address", addr);
            }
        }
        Ok(())
    }

    /// The label up to its first NUL.
    fn label(&self) -> Result<String, Box<Corruption>> {
        let end = self.label.iter().position(|b| *b == 0).unwrap_or(self.label.len());
        match std::str::from_utf8(&self.label[..end]) {
            Ok(label) => Ok(label.to_string()),
            Err(_) => bad("label", "UTF-8", format!("{:02x?}", &self.label[..end])),
        }
    }

    fn space_rules(&self, features: WriteFeatures) -> Result<Option<SpaceRules>, Box<Corruption>> {
        if !features.contains(WriteFeatures::SPACE_RULES) {
            // The caller compares the bytes with zeros later.
            return Ok(None);
        }
        match self.history_share {
            share_percent @ 0..=100 => {
                Ok(Some(SpaceRules { floor_seconds: self.history_floor.get(), share_percent }))
            }
            share => bad("share of the history", "0 to 100 percent", share),
        }
    }
}

/// What comes with features. Without them the caller compares the bytes with zeros later.
impl RawSuperblock {
    fn in_place_since(&self, features: WriteFeatures, engine: Engine) -> Result<Generation, Box<Corruption>> {
        let since = self.in_place_since.get();
        if !features.contains(WriteFeatures::IN_PLACE) {
            return Ok(Generation(0));
        }
        // Both keep the chain of checksums: what it names counts, and nothing newer.
        if matches!(engine, Engine::Snapshot | Engine::Journal) && since != 0 {
            return bad("first generation in place", "0 under this engine", since);
        }
        if self.step > 1 || (self.step == 1 && since == 0) {
            return bad("step", "0, or 1 with a first generation in place", self.step);
        }
        Ok(Generation(since))
    }

    fn external_log(
        &self,
        features: WriteFeatures,
        path: &[u8],
    ) -> Result<Option<ExternalLog>, Box<Corruption>> {
        if !features.contains(WriteFeatures::EXTERNAL_LOG) {
            return Ok(None);
        }
        if self.log_start.get() != 0 || self.log_blocks.get() == 0 {
            let found = format!("{} blocks from {}", self.log_blocks, self.log_start);
            return bad("log", "blocks, and not of the volume, as it lies elsewhere", found);
        }
        if self.log_session.get() == 0 || self.log_session.get() > u64::MAX / 2 {
            return bad("session of the log", "1 or more", self.log_session);
        }
        if self.log_begins > 1 {
            return bad("whether a session begins", "0 or 1", self.log_begins);
        }
        let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
        Ok(Some(ExternalLog {
            session: self.log_session.get(),
            begins: self.log_begins == 1,
            path: path[..end].to_vec(),
        }))
    }

    fn findings(
        &self,
        features: WriteFeatures,
        geometry: Geometry,
    ) -> Result<(MetaAddr, u8, Scrub), Box<Corruption>> {
        if !features.contains(WriteFeatures::FINDINGS) {
            return Ok((MetaAddr::NONE, 0, Scrub::default()));
        }
        let root = MetaAddr(self.findings_root.get());
        if !root.is_plausible() || root.zone().is_root() {
            return bad("root of the findings", "a metadata address", root);
        }
        if root.is_none() && self.findings_level != 0 {
            return bad("level of the findings", "0 without a root", self.findings_level);
        }
        let position = BlockNo(self.scrub_position.get());
        if position.0 >= geometry.blocks {
            return bad("position of the scrub", format!("below {}", geometry.blocks), position);
        }
        let scrub = Scrub { position, began: self.scrub_began.get(), ended: self.scrub_ended.get() };
        Ok((root, self.findings_level, scrub))
    }
}

impl RawRootZone {
    /// The entry of a root zone that exists.
    pub(super) fn of(root: &RootZone) -> RawRootZone {
        RawRootZone {
            start: root.start.0.into(),
            generation: root.generation.0.into(),
            crc: root.crc.into(),
            header_slot: root.header_slot,
            present: 1,
            reserved: [0; 6],
        }
    }

    /// Root zone `i` of a volume; `None` if it does not exist.
    pub(super) fn root_zone(
        &self,
        i: usize,
        geometry: Geometry,
    ) -> Result<Option<RootZone>, Box<Corruption>> {
        let start = BlockNo(self.start.get());
        match (self.present, self.header_slot) {
            (0, _) => Ok(None),
            (1, 0 | 1) if geometry.is_zone_start(start) || (i == 0 && start.0 == 0) => Ok(Some(RootZone {
                start,
                generation: Generation(self.generation.get()),
                crc: self.crc.get(),
                header_slot: self.header_slot,
            })),
            _ => bad(
                "root zone",
                "absent, or a place and a header slot",
                format!("zone {i}: place {start}, present {}, slot {}", self.present, self.header_slot),
            ),
        }
    }
}

/// The layout of a slot's first sector.
pub(crate) fn layout() -> StructLayout {
    crate::tables::layout!("Superblock", RawSuperblock: magic, major, minor, crc, slot, uuid, features, features_read_only, volume_blocks, mount_id, engine, state, incarnation_rounds, next_incarnation, next_number, hash_seed, created_seconds, written_seconds, root_directory, orphan_root, events_root, history_root, free_blocks, inodes, metadata_blocks, zones, zone_number_limit, root_zone_count, orphan_level, reserved1, log_start, log_blocks, log_id, log_position, label, log_number, log_chain, log_sequence, log_generation, history_floor, history_share, in_place_since, findings_root, findings_level, scrub_position, scrub_began, scrub_ended, log_session, log_begins, step, reserved2)
}

/// The layout of a root zone's entry.
pub(crate) fn root_zone_layout() -> StructLayout {
    crate::tables::layout!("Root zone entry", RawRootZone: start, generation, crc, header_slot, present, reserved)
}
