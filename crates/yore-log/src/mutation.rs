//! A switch that makes recovery wrong, for the tests which prove that crash tests find that. It exists only
//! with the feature `mutations`, which no released program has.

use std::sync::atomic::AtomicBool;

/// Batches are believed by their header alone.
pub static ACCEPT_TORN: AtomicBool = AtomicBool::new(false);
