//! A switch that makes recovery wrong, for the tests that prove that crash tests find it. Only with the
//! feature `mutations`, which nothing that is released has.

use std::sync::atomic::AtomicBool;

/// Batches are believed by their header alone.
pub static ACCEPT_TORN: AtomicBool = AtomicBool::new(false);
