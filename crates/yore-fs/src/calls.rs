//! What programs ask of a volume: the calls of a [`crate::View`] that change it, or are about its past.

mod open;
mod past;
mod present;

pub use past::NewSnapshot;
