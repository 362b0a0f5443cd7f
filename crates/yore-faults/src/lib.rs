//! What can be done to a volume beside cutting its power: faults of the device, damage with right checksums,
//! bytes of an enemy.
//!
//! Crashes are `yore-crash`'s. This crate holds what tests of rules 15 and 16 and the fuzzers have in common:
//!
//! - [`sample`]: small volumes with something of everything on them;
//! - [`survey`]: where on a volume which metadata block is, and which fields it has;
//! - [`damage`]: changes of those fields, with the chain of checksums put right, so that verifiers and
//!   comparisons are what is tested and not checksums;
//! - [`exercise`]: everything a program can do with a volume, on one that may be damaged anywhere;
//! - [`workload`]: a sequence of all kinds of operations with a small model of what must be there, and of
//!   what was promised;
//! - [`targets`]: the bodies of the fuzzers in `fuzz/`, which are also run as ordinary tests;
//! - [`watch`]: what fails a test that panics in any thread, hangs, or takes too much memory.
//!
//! Everything follows from bytes or a seed that is given; nothing here asks the clock or the system for
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
