//! The superblock: what everything else is found from. Two slots, written alternately.
//!
//! Each 512-byte sector of a slot ends with the generation, so a slot that a crash tore shows mixed stamps,
//! and the slot carries a checksum. The older slot is believed only if the newer one is *torn*; a newer one
//! that is complete but fails its checksum is corruption, and mount says so: going back silently would lose
//! what was promised.

mod fields;
mod raw;
mod slot;

pub(crate) use fields::{of_rounds_and_next, rounds_and_next};
pub use fields::{
    Engine, ExternalLog, RootZone, Scrub, SpaceRules, Superblock, VolumeState, WriteFeatures, FORMAT_MAJOR,
    FORMAT_MINOR, LOG_PATH_MAX, ROOT_ZONES_MAX,
};
pub(crate) use raw::{layout, root_zone_layout};
pub use slot::{decode_slots, SlotState};
