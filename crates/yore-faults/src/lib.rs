//! What can happen to a volume besides a power cut: faults of the device, damage with right checksums, bytes
//! of an enemy.
//!
//! Crashes are the business of `yore-crash`. This crate has the code that tests of rules 15 and 16 and the
//! fuzzers share:
//!
//! - [`sample`]: small volumes with something of everything on them;
//! - [`survey`]: which metadata block is where on a volume, and which fields it has;
//! - [`damage`]: changes of those fields. It repairs the chain of checksums, so that the tests reach
//!   verifiers and comparisons instead of failing at checksums;
//! - [`exercise`]: everything a program can do with a volume, on one that may be damaged anywhere;
//! - [`workload`]: a sequence of all kinds of operations, with a small model of what must be there and of
//!   what was promised;
//! - [`targets`]: the bodies of the fuzzers in `fuzz/`, which also run as ordinary tests;
//! - [`watch`]: fails a test that panics in any thread, hangs, or takes too much memory.
//!
//! Everything follows from given bytes or a given seed; nothing here asks the clock or the system for
//! randomness.

mod chance;
pub mod damage;
pub mod exercise;
pub mod sample;
pub mod survey;
pub mod targets;
pub mod watch;
pub mod workload;

#[path = "../../yore-check/tests/common/chain.rs"]
mod chain;

pub use chain::mend;
pub use chance::Chance;
