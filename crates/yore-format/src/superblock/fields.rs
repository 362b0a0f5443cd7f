//! What a superblock says, decoded.

use crate::layout::Geometry;
use crate::{BlockNo, EventNo, Features, Generation, InodeNo, MetaAddr};
use zerocopy::little_endian::{U16, U32};

/// First half of the version: a change that no older program understands.
pub const FORMAT_MAJOR: u32 = 2;
/// Second half of the version.
pub const FORMAT_MINOR: u32 = 3;
/// Root zones that a superblock can name.
pub const ROOT_ZONES_MAX: usize = 32;
/// Bytes of the path of a log's device.
pub const LOG_PATH_MAX: usize = 504;

/// How metadata is kept consistent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::FromRepr, strum::IntoStaticStr,
)]
#[repr(u8)]
#[allow(missing_docs)]
#[strum(serialize_all = "kebab-case")]
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
        self.into()
    }

    /// The engine with this name.
    pub fn from_name(name: &str) -> Option<Engine> {
        name.parse().ok()
    }

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
    /// Not unmounted, under an engine that promises nothing.
    MustBeChecked = 3,
    /// Blocks may be marked used that nothing uses.
    LeaksPending = 4,
}

bitflags::bitflags! {
    /// Features that a program must know to write to the volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct WriteFeatures: u64 {
        /// It has a past: some blocks in use are named only by the past, and some that the present names
        /// belong to the past too.
        const HISTORY = 1;
        /// Rows of the past may have further fields, snapshots of different directories may have the same
        /// name, and there may be a tree of operations.
        const EXTENDED_PAST = 2;
        /// Inodes may have the flags that `chattr` sets.
        const INODE_FLAGS = 4;
        /// The superblock says how much history a full volume keeps ([`SpaceRules`]).
        const SPACE_RULES = 8;
        /// [`Features::RESIZED`]. A volume gets it in the same way as the others, so in memory it is among
        /// them. On the medium it is a bit of the other field, because programs that only read must know it
        /// too. So are the following ones; bit i of that field is bit 63 − i here.
        const RESIZED = 1 << 63;
        /// [`Features::ANNALS`].
        const ANNALS = 1 << 62;
        /// [`Features::TABLES`].
        const TABLES = 1 << 61;
        /// [`Features::IN_PLACE`].
        const IN_PLACE = 1 << 60;
        /// [`Features::FINDINGS`].
        const FINDINGS = 1 << 59;
        /// [`Features::CHECKSUMS`].
        const CHECKSUMS = 1 << 58;
        /// [`Features::EXTERNAL_LOG`].
        const EXTERNAL_LOG = 1 << 57;
        /// [`Features::LOG_GAPS`].
        const LOG_GAPS = 1 << 56;
    }
}

impl WriteFeatures {
    /// The features of which the superblock stores nothing but the bit. The others follow from its fields.
    pub fn stored(self) -> WriteFeatures {
        let on_their_own = WriteFeatures::EXTENDED_PAST | WriteFeatures::INODE_FLAGS;
        let of_the_other = WriteFeatures::of(Features::all() - Features::EXTERNAL_LOG);
        self & (on_their_own | of_the_other)
    }

    /// Those that are bits of the other field.
    pub fn of(features: Features) -> WriteFeatures {
        WriteFeatures::from_bits_truncate(features.bits().reverse_bits())
    }

    /// The features as the two fields of the superblock hold them.
    pub(crate) fn split(self) -> (Features, WriteFeatures) {
        let features = Features::from_bits_truncate(self.bits().reverse_bits());
        (features, self - WriteFeatures::of(features))
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

/// How far a scrub came, which reads all blocks that are in use, and when scrubs were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// The block that the scrub under way reads next; 0: none is under way.
    pub position: BlockNo,
    /// When the last one began, seconds since 1970.
    pub began: i64,
    /// When the last one that came to its end did so, seconds since 1970; 0: none did.
    pub ended: i64,
}

/// What the superblock holds for a root zone: what the zone table holds for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootZone {
    /// First block of the zone.
    pub start: BlockNo,
    /// Generation in the current header.
    pub generation: Generation,
    /// Checksum of the current header.
    pub crc: u32,
    /// Which header slot is current: 0 or 1.
    pub header_slot: u8,
}

/// What a superblock says of a log on a device of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalLog {
    /// The session of the log that the volume has begun last. Its anchor names it, too: an older copy of the
    /// log has a smaller one there, and so has an older copy of the volume here.
    pub session: u64,
    /// The volume is about to begin the session after it.
    pub begins: bool,
    /// Where the device was when the log was made: a path, at most [`LOG_PATH_MAX`] bytes without a NUL, or
    /// nothing. Whoever moves the device says so to the next mount.
    pub path: Vec<u8>,
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
    /// Counts mounts: each mount takes a number that none had before.
    pub mount_id: u64,
    /// The engine under which the volume was last written, and must be recovered.
    pub engine: Engine,
    /// Clean, in use, …
    pub state: VolumeState,
    /// The next incarnation to give, in the lower 32 bits; above them, how often all incarnations have been
    /// given. Only in the first round does their order say what was made before what.
    pub next_incarnation: u64,
    /// The next number to give (VERSIONING).
    pub next_number: EventNo,
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
    /// Root of the table of events, or none.
    pub events_root: MetaAddr,
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
    /// First block of the log within the volume, 0 for none.
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
    /// The log is on a device of its own; the fields above are about its ring.
    pub external_log: Option<ExternalLog>,
    /// A name for people, UTF-8, at most 64 bytes.
    pub label: String,
    /// The features that a program must know to write, as far as only a bit says so
    /// ([`WriteFeatures::stored`]).
    pub features: WriteFeatures,
    /// How much history a full volume keeps; `None`: as the program does by default.
    pub space_rules: Option<SpaceRules>,
    /// The first generation of this run of mounts under an engine that writes in place; 0 without one. Blocks
    /// of this generation and later ones may be newer than what their zone's header says of them.
    pub in_place_since: Generation,
    /// 1: this copy counts over that of the same generation in the other slot. Only volumes that have
    /// `in_place_since` have such copies.
    pub step: u8,
    /// Root of the tree of findings, or none.
    pub findings_root: MetaAddr,
    /// Level of that root.
    pub findings_level: u8,
    /// How far a scrub came.
    pub scrub: Scrub,
    /// Root zones; `None` for those not made yet.
    pub root_zones: Vec<Option<RootZone>>,
}

/// Joins the two fields about incarnations ([`Superblock::next_incarnation`]).
pub(crate) fn rounds_and_next(rounds: U16, next: U32) -> u64 {
    u64::from(rounds.get()) << 32 | u64::from(next.get())
}

/// The two fields of [`rounds_and_next`].
pub(crate) fn of_rounds_and_next(both: u64) -> (U16, U32) {
    (((both >> 32) as u16).into(), (both as u32).into())
}

impl Superblock {
    /// How often all incarnations have been given. After the first time, their order no longer says what was
    /// made before what.
    pub fn incarnation_rounds(&self) -> u16 {
        of_rounds_and_next(self.next_incarnation).0.get()
    }

    /// Enters from which generation on blocks may be newer than their headers say; 0: none is.
    pub fn set_in_place_since(&mut self, since: Generation) {
        self.in_place_since = since;
        self.step = 0;
        self.features.set(WriteFeatures::IN_PLACE, since.0 != 0);
    }

    /// Whether the volume may have what a crash leaves under an engine that orders changes.
    pub fn may_have_leaks(&self) -> bool {
        self.state == VolumeState::LeaksPending
            || (self.state == VolumeState::InUse && self.in_place_since.0 != 0)
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
        features.set(WriteFeatures::EXTERNAL_LOG, self.external_log.is_some());
        features
    }
}
