//! Zones.

pub(crate) mod zone;
