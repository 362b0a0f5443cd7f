//! The superblock: what everything else is found from. Two slots, written alternately.
//!
//! Each 512-byte sector of a slot ends with the generation, so a slot that a crash tore shows mixed stamps,
//! and the slot carries a checksum. The older slot is believed only if the newer one is *torn*; a newer one
//! that is complete but fails its checksum is corruption, and mount says so: going back silently would lose
//! what was promised.

use crate::layout::{Geometry, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use crate::{checksum_except, Block, BlockNo, Corruption, Generation, InodeNo, MetaAddr, Number, ZERO_BLOCK};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First half of the version: a change that no older program understands.
pub const FORMAT_MAJOR: u32 = 2;
/// Second half of the version.
pub const FORMAT_MINOR: u32 = 2;
/// Root zones that a superblock can name.
pub const ROOT_ZONES_MAX: usize = 32;
const MAGIC: [u8; 8] = *b"YORE\x89V\r\n";
const CRC_OFFSET: usize = 16;
const MINOR: std::ops::Range<usize> = 12..16;
const SECTOR: usize = 512;
const STAMP: usize = 504;
const ROOTS_PER_SECTOR: usize = 18;

/// How metadata is kept consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Engine {
    None = 1,
    Sync = 2,
    Journal = 3,
    SoftUpdates = 4,
    Snapshot = 5,
}

impl Engine {
    /// The name as written in options and shown by `info`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::None => "none",
            Engine::Sync => "sync",
            Engine::Journal => "journal",
            Engine::SoftUpdates => "soft-updates",
            Engine::Snapshot => "snapshot",
        }
    }

    /// The engine with this name.
    pub fn from_name(name: &str) -> Option<Engine> {
        Self::ALL.into_iter().find(|e| e.name() == name)
    }

    fn from_u8(n: u8) -> Option<Engine> {
        Self::ALL.into_iter().find(|e| *e as u8 == n)
    }

    const ALL: [Engine; 5] =
        [Engine::None, Engine::Sync, Engine::Journal, Engine::SoftUpdates, Engine::Snapshot];

    /// Whether it overwrites metadata where it lies.
    pub fn in_place(self) -> bool {
        self != Engine::Snapshot
    }
}

/// What the volume's last user left it as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VolumeState {
    /// Unmounted.
    Clean = 1,
    /// Mounted, or not unmounted.
    InUse = 2,
    /// Its engine promised nothing and it was not unmounted.
    MustBeChecked = 3,
    /// Blocks may be marked used that nothing uses.
    LeaksPending = 4,
}

bitflags::bitflags! {
    /// Features that a program must know to use the volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// The volume was resized: `volume_blocks` in the headers of zones may be other lengths, and the
        /// superblock's counts.
        const RESIZED = 1;
    }
}

bitflags::bitflags! {
    /// Features that a program must know to write to the volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct WriteFeatures: u64 {
        /// It has a past: blocks that the present does not name are in use, and some that it names are not
        /// its own.
        const HISTORY = 1;
        /// Rows of the past may have further fields, snapshots of different directories may have the same
        /// name, and there may be a tree of operations.
        const EXTENDED_PAST = 2;
        /// Inodes may have the flags that `chattr` sets.
        const INODE_FLAGS = 4;
        /// The superblock says how much history a full volume keeps ([`SpaceRules`]).
        const SPACE_RULES = 8;
        /// [`Features::RESIZED`]. A volume gets it as it gets the others, so it is among them in memory; on
        /// the medium it is a bit of the other field, for who only reads must know it, too.
        const RESIZED = 1 << 63;
    }
}

impl WriteFeatures {
    /// Those that are a bit of the superblock and nothing else; the others follow from its fields.
    pub fn stored(self) -> WriteFeatures {
        self & (WriteFeatures::EXTENDED_PAST | WriteFeatures::INODE_FLAGS | WriteFeatures::RESIZED)
    }

    /// As the two fields of the superblock have them.
    fn split(self) -> (Features, WriteFeatures) {
        let mut features = Features::empty();
        features.set(Features::RESIZED, self.contains(WriteFeatures::RESIZED));
        (features, self - WriteFeatures::RESIZED)
    }
}

/// How much history a full volume keeps before it refuses to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SpaceRules {
    /// History younger than so many seconds is kept, as long as all history takes no more than its share.
    pub floor_seconds: u64,
    /// The share of the volume that history may take, in percent, up to 100.
    pub share_percent: u8,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
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
    cuts_root: U64,
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
    reserved2: [u8; 175],
}

const _: () = assert!(size_of::<RawSuperblock>() == STAMP);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, crc) == CRC_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, minor) == MINOR.start);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRootZone {
    place: U64,
    generation: U64,
    crc: U32,
    header_slot: u8,
    present: u8,
    reserved: [u8; 6],
}

const _: () = assert!(size_of::<RawRootZone>() * ROOTS_PER_SECTOR == STAMP);

/// What the superblock holds for a root zone: what the zone table holds for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootZone {
    /// First block of the zone.
    pub place: BlockNo,
    /// Generation in the current header.
    pub generation: Generation,
    /// Checksum of the current header.
    pub crc: u32,
    /// Which header slot is current: 0 or 1.
    pub header_slot: u8,
}

/// A verified superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// Length of the volume in blocks.
    pub volume_blocks: u64,
    /// The generation that this superblock completes.
    pub generation: Generation,
    /// Counts mounts; each takes one never used before.
    pub mount_id: u64,
    /// The engine under which the volume was last written, and must be recovered.
    pub engine: Engine,
    /// Clean, in use, …
    pub state: VolumeState,
    /// The next incarnation to give, in the lower 32 bits; above, how often all of them have been given.
    /// Their order says when something was made in the first round only.
    pub next_incarnation: u64,
    /// The next number to give (VERSIONING).
    pub next_number: Number,
    /// Key of the hash of names in directories.
    pub hash_seed: [u8; 16],
    /// When the volume was made, seconds since 1970.
    pub created_seconds: u64,
    /// When this superblock was written, seconds since 1970.
    pub written_seconds: u64,
    /// The root directory.
    pub root_directory: InodeNo,
    /// Root of the tree of orphans, or none.
    pub orphan_root: MetaAddr,
    /// Level of that root.
    pub orphan_level: u8,
    /// Root of the table of cuts, or none.
    pub cuts_root: MetaAddr,
    /// Root of the history trees, or none.
    pub history_root: MetaAddr,
    /// Free data blocks in all groups, including groups never used.
    pub free_blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Metadata blocks in use, beside zone table and headers.
    pub metadata_blocks: u64,
    /// Zones in use, root zones included.
    pub zones: u32,
    /// Above every zone number ever used (root zones aside).
    pub zone_number_limit: u32,
    /// First block of the log, 0 for none.
    pub log_start: BlockNo,
    /// Length of the log in blocks.
    pub log_blocks: u64,
    /// Identity of the log.
    pub log_id: u64,
    /// Where replay starts: the block of the log at which its next batch stands.
    pub log_position: u64,
    /// The number of the record that replay starts with.
    pub log_number: u64,
    /// The chain value of the batch before it.
    pub log_chain: u64,
    /// The sequence number of that batch.
    pub log_sequence: u64,
    /// The generation that was running when the records were made.
    pub log_generation: Generation,
    /// A name for people, UTF-8, at most 64 bytes.
    pub label: String,
    /// The features that a program must know to write, of those that only a bit tells
    /// ([`WriteFeatures::stored`]).
    pub features: WriteFeatures,
    /// How much history a full volume keeps; `None`: as the program does by default.
    pub space_rules: Option<SpaceRules>,
    /// Root zones; `None` for those not made yet.
    pub root_zones: Vec<Option<RootZone>>,
}

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

/// What two fields say of incarnations ([`Superblock::next_incarnation`]).
pub(crate) fn rounds_and_next(rounds: U16, next: U32) -> u64 {
    u64::from(rounds.get()) << 32 | u64::from(next.get())
}

/// The two fields.
pub(crate) fn of_rounds_and_next(both: u64) -> (U16, U32) {
    (((both >> 32) as u16).into(), (both as u32).into())
}

impl Superblock {
    /// How often all incarnations have been given. If ever, they say no more what was made before what.
    pub fn incarnation_rounds(&self) -> u16 {
        of_rounds_and_next(self.next_incarnation).0.get()
    }

    /// The volume's geometry.
    pub fn geometry(&self) -> Geometry {
        Geometry::new(self.volume_blocks)
    }

    /// The part of the uuid that every metadata block repeats.
    pub fn volume_tag(&self) -> u32 {
        u32::from_le_bytes(self.uuid[..4].try_into().expect("four bytes"))
    }

    /// What a program must know to write to the volume.
    pub fn write_features(&self) -> WriteFeatures {
        let mut features = self.features.stored();
        features.set(WriteFeatures::HISTORY, !self.history_root.is_none());
        features.set(WriteFeatures::SPACE_RULES, self.space_rules.is_some());
        features
    }

    /// The bytes for slot 0 or 1.
    ///
    /// # Panics
    /// If the label is longer than 64 bytes or contains a NUL, or there are more than [`ROOT_ZONES_MAX`] root
    /// zones: such a superblock could not be read back.
    pub fn encode(&self, slot: u32) -> Box<Block> {
        assert!(
            self.label.len() <= 64 && !self.label.contains('\0'),
            "an impossible label: {:?}",
            self.label
        );
        assert!(self.root_zones.len() <= ROOT_ZONES_MAX, "{} root zones", self.root_zones.len());
        let mut block = Box::new(ZERO_BLOCK);
        let mut label = [0; 64];
        label[..self.label.len()].copy_from_slice(self.label.as_bytes());
        let (incarnation_rounds, next_incarnation) = of_rounds_and_next(self.next_incarnation);
        let rules = self.space_rules.unwrap_or(SpaceRules { floor_seconds: 0, share_percent: 0 });
        let (features, write_features) = self.write_features().split();
        let raw = RawSuperblock {
            magic: MAGIC,
            major: FORMAT_MAJOR.into(),
            minor: FORMAT_MINOR.into(),
            crc: 0.into(),
            slot: slot.into(),
            uuid: self.uuid,
            features: features.bits().into(),
            features_read_only: write_features.bits().into(),
            volume_blocks: self.volume_blocks.into(),
            mount_id: self.mount_id.into(),
            engine: self.engine as u8,
            state: self.state as u8,
            incarnation_rounds,
            next_incarnation,
            next_number: self.next_number.0.into(),
            hash_seed: self.hash_seed,
            created_seconds: self.created_seconds.into(),
            written_seconds: self.written_seconds.into(),
            root_directory: self.root_directory.0.into(),
            orphan_root: self.orphan_root.0.into(),
            cuts_root: self.cuts_root.0.into(),
            history_root: self.history_root.0.into(),
            free_blocks: self.free_blocks.into(),
            inodes: self.inodes.into(),
            metadata_blocks: self.metadata_blocks.into(),
            zones: self.zones.into(),
            zone_number_limit: self.zone_number_limit.into(),
            root_zone_count: (self.root_zones.len() as u32).into(),
            orphan_level: self.orphan_level,
            reserved1: [0; 3],
            log_start: self.log_start.0.into(),
            log_blocks: self.log_blocks.into(),
            log_id: self.log_id.into(),
            log_position: self.log_position.into(),
            label,
            log_number: self.log_number.into(),
            log_chain: self.log_chain.into(),
            log_sequence: self.log_sequence.into(),
            log_generation: self.log_generation.0.into(),
            history_floor: rules.floor_seconds.into(),
            history_share: rules.share_percent,
            reserved2: [0; 175],
        };
        block[..STAMP].copy_from_slice(raw.as_bytes());
        for (i, root) in self.root_zones.iter().enumerate() {
            if let Some(root) = root {
                let raw = RawRootZone {
                    place: root.place.0.into(),
                    generation: root.generation.0.into(),
                    crc: root.crc.into(),
                    header_slot: root.header_slot,
                    present: 1,
                    reserved: [0; 6],
                };
                let at = root_zone_offset(i);
                block[at..at + size_of::<RawRootZone>()].copy_from_slice(raw.as_bytes());
            }
        }
        for sector in 0..8 {
            let at = sector * SECTOR + STAMP;
            block[at..at + 8].copy_from_slice(&self.generation.0.to_le_bytes());
        }
        let crc = checksum_except(&block[..], CRC_OFFSET);
        block[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// What the bytes of `slot` are.
    pub fn decode(block: &Block, slot: u32) -> SlotState {
        let stamps: Vec<u64> = (0..8)
            .map(|s| {
                let at = s * SECTOR + STAMP;
                u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
            })
            .collect();
        let newest = Generation(stamps.iter().copied().max().unwrap_or(0));
        let magic = block[..8] == MAGIC;
        if stamps.iter().any(|s| *s != newest.0) {
            // A torn first sector still holds the older superblock's magic: the slots never hold anything
            // else.
            return if magic { SlotState::Torn(newest) } else { SlotState::Foreign };
        }
        if !magic {
            return SlotState::Foreign;
        }
        match decode_complete(block, slot, newest) {
            Ok(sb) => SlotState::Valid(Box::new(sb)),
            Err(c) => SlotState::Corrupt(newest, c.on(BlockNo(u64::from(slot)))),
        }
    }
}

/// The layout of a slot's first sector.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Superblock", RawSuperblock: magic, major, minor, crc, slot, uuid, features, features_read_only, volume_blocks, mount_id, engine, state, incarnation_rounds, next_incarnation, next_number, hash_seed, created_seconds, written_seconds, root_directory, orphan_root, cuts_root, history_root, free_blocks, inodes, metadata_blocks, zones, zone_number_limit, root_zone_count, orphan_level, reserved1, log_start, log_blocks, log_id, log_position, label, log_number, log_chain, log_sequence, log_generation, history_floor, history_share, reserved2)
}

/// The layout of a root zone's entry.
pub(crate) fn root_zone_layout() -> crate::StructLayout {
    crate::tables::layout!("Root zone entry", RawRootZone: place, generation, crc, header_slot, present, reserved)
}

fn root_zone_offset(i: usize) -> usize {
    SECTOR * (1 + i / ROOTS_PER_SECTOR) + (i % ROOTS_PER_SECTOR) * size_of::<RawRootZone>()
}

fn bad<T>(field: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("superblock", field, expected, found))
}

fn decode_complete(block: &Block, slot: u32, generation: Generation) -> Result<Superblock, Box<Corruption>> {
    let raw = RawSuperblock::ref_from_bytes(&block[..STAMP]).expect("the sizes are equal");
    // The version comes before the checksum: another version may well compute it otherwise.
    if raw.major.get() != FORMAT_MAJOR {
        return bad("format version", format!("{FORMAT_MAJOR}.x"), format!("{}.{}", raw.major, raw.minor));
    }
    let crc = checksum_except(&block[..], CRC_OFFSET);
    if crc != raw.crc.get() {
        return bad(
            "checksum",
            format!("{:#010x} (stored)", raw.crc.get()),
            format!("{crc:#010x} (computed)"),
        );
    }
    let unknown = raw.features.get() & !Features::all().bits();
    if unknown != 0 {
        return bad("features", "features this program knows", format!("unknown feature bits {unknown:#x}"));
    }
    let known = WriteFeatures::all() - WriteFeatures::RESIZED;
    let unknown = raw.features_read_only.get() & !known.bits();
    if unknown != 0 {
        return bad(
            "features",
            "features this program knows",
            format!("unknown write-feature bits {unknown:#x}"),
        );
    }
    let mut write_features = WriteFeatures::from_bits_truncate(raw.features_read_only.get());
    let resized = Features::from_bits_truncate(raw.features.get()).contains(Features::RESIZED);
    write_features.set(WriteFeatures::RESIZED, resized);
    if write_features.contains(WriteFeatures::HISTORY) == (raw.history_root.get() == 0) {
        return bad("history root", "one if the feature bit says so, else none", raw.history_root);
    }
    if raw.slot.get() != slot {
        return bad("slot", slot, raw.slot);
    }
    let Some(engine) = Engine::from_u8(raw.engine) else {
        return bad("engine", "1 to 5", raw.engine);
    };
    let state = match raw.state {
        1 => VolumeState::Clean,
        2 => VolumeState::InUse,
        3 => VolumeState::MustBeChecked,
        4 => VolumeState::LeaksPending,
        n => return bad("state", "1 to 4", n),
    };
    if raw.reserved1 != [0; 3] || raw.reserved2 != [0; 175] {
        return bad("reserved bytes", "zero", "something else");
    }
    let blocks = raw.volume_blocks.get();
    if !(VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&blocks) || Geometry::new(blocks).blocks != blocks {
        return bad("volume size", "a possible number of blocks", blocks);
    }
    let root_directory = InodeNo(raw.root_directory.get());
    if root_directory != InodeNo::ROOT {
        return bad("root directory", InodeNo::ROOT, root_directory);
    }
    for (field, root) in
        [("orphan root", raw.orphan_root), ("cuts root", raw.cuts_root), ("history root", raw.history_root)]
    {
        let addr = MetaAddr(root.get());
        if !addr.is_plausible() || addr.zone().is_root() {
            return bad(field, "a metadata address", addr);
        }
    }
    let count = raw.root_zone_count.get() as usize;
    if count == 0 || count > ROOT_ZONES_MAX {
        return bad("number of root zones", format!("1 to {ROOT_ZONES_MAX}"), count);
    }
    let end = raw.label.iter().position(|b| *b == 0).unwrap_or(64);
    let Ok(label) = std::str::from_utf8(&raw.label[..end]) else {
        return bad("label", "UTF-8", format!("{:02x?}", &raw.label[..end]));
    };
    let superblock = Superblock {
        uuid: raw.uuid,
        volume_blocks: blocks,
        generation,
        mount_id: raw.mount_id.get(),
        engine,
        state,
        next_incarnation: rounds_and_next(raw.incarnation_rounds, raw.next_incarnation),
        next_number: Number(raw.next_number.get()),
        hash_seed: raw.hash_seed,
        created_seconds: raw.created_seconds.get(),
        written_seconds: raw.written_seconds.get(),
        root_directory,
        orphan_root: MetaAddr(raw.orphan_root.get()),
        orphan_level: raw.orphan_level,
        cuts_root: MetaAddr(raw.cuts_root.get()),
        history_root: MetaAddr(raw.history_root.get()),
        free_blocks: raw.free_blocks.get(),
        inodes: raw.inodes.get(),
        metadata_blocks: raw.metadata_blocks.get(),
        zones: raw.zones.get(),
        zone_number_limit: raw.zone_number_limit.get(),
        log_start: BlockNo(raw.log_start.get()),
        log_blocks: raw.log_blocks.get(),
        log_id: raw.log_id.get(),
        log_position: raw.log_position.get(),
        log_number: raw.log_number.get(),
        log_chain: raw.log_chain.get(),
        log_sequence: raw.log_sequence.get(),
        log_generation: Generation(raw.log_generation.get()),
        label: label.to_string(),
        features: write_features.stored(),
        space_rules: decode_space_rules(raw, write_features)?,
        root_zones: decode_root_zones(block, count, Geometry::new(blocks))?,
    };
    // Everything that means nothing is zero: encoding gives the same bytes. Only the minor version, and with
    // it the checksum, may be another's.
    let mut again = superblock.encode(slot);
    again[MINOR].copy_from_slice(&block[MINOR]);
    again[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&block[CRC_OFFSET..CRC_OFFSET + 4]);
    if again[..] != block[..] {
        return bad("reserved bytes", "zero", "something else");
    }
    Ok(superblock)
}

fn decode_space_rules(
    raw: &RawSuperblock,
    features: WriteFeatures,
) -> Result<Option<SpaceRules>, Box<Corruption>> {
    if !features.contains(WriteFeatures::SPACE_RULES) {
        // Bytes that mean nothing are compared with zeros later.
        return Ok(None);
    }
    match raw.history_share {
        share_percent @ 0..=100 => {
            Ok(Some(SpaceRules { floor_seconds: raw.history_floor.get(), share_percent }))
        }
        share => bad("share of the history", "0 to 100 percent", share),
    }
}

fn decode_root_zones(
    block: &Block,
    count: usize,
    g: Geometry,
) -> Result<Vec<Option<RootZone>>, Box<Corruption>> {
    (0..count)
        .map(|i| {
            let at = root_zone_offset(i);
            let raw = RawRootZone::ref_from_bytes(&block[at..at + size_of::<RawRootZone>()])
                .expect("sizes are equal");
            let place = BlockNo(raw.place.get());
            match (raw.present, raw.header_slot) {
                (0, _) => Ok(None),
                (1, 0 | 1) if g.is_zone_place(place) || (i == 0 && place.0 == 0) => Ok(Some(RootZone {
                    place,
                    generation: Generation(raw.generation.get()),
                    crc: raw.crc.get(),
                    header_slot: raw.header_slot,
                })),
                _ => bad(
                    "root zone",
                    "absent, or a place and a header slot",
                    format!("zone {i}: place {place}, present {}, slot {}", raw.present, raw.header_slot),
                ),
            }
        })
        .collect()
}

/// Chooses between the two slots: the newer valid one; the older only if the newer is torn.
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
    let order = if stamp(&states[1]) > stamp(&states[0]) { [1, 0] } else { [0, 1] };
    for slot in order {
        match &states[slot] {
            SlotState::Valid(sb) => return Ok(((**sb).clone(), slot as u32, newest)),
            SlotState::Corrupt(_, c) => return Err(c.clone()),
            SlotState::Torn(_) | SlotState::Foreign => {}
        }
    }
    bad("magic", "a Yore volume", "no superblock in either slot")
}
