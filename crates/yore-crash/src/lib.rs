//! Model file system, operation generator and crash-state enumeration for Yore.
//!
//! This crate holds the file system against two things: a model that is written to be obviously right, and
//! the promises of what survives a crash. It has no way into the file system but [`yore_fs::View`], and none
//! to the medium but the simulated device and the checker. [`edges`] is apart from all that: it records the
//! order of changes, and puts on a medium what an engine may leave that orders them.
//!
//! # How the parts fit
//!
//! ```text
//!  generate ── ops ──▶ runner ──▶ subject: a View, or the model itself
//!                        │  └───▶ model   (results compared after each operation, trees from time to time)
//!                        ▼
//!       compare      history of models, trace of the device        threads
//!    (no crashes)        │                  │                   (several at once)
//!                        ▼                  ▼
//!                      judge ◀── tree ◀── crash states: checked, mounted, walked
//! ```
//!
//! # Replaying
//!
//! Everything follows from a seed, but where another thread disturbs (`disturb` in the line). A failure
//! prints one line, `yore-crash replay "seed=42 ops=60 crash=117:seed=9"`, with the sequence shortened if
//! that was possible; [`case`] says what its words mean. `cargo run -p yore-crash -- replay "…"` prints the
//! operations and tries it.
//!
//! # Snapshots
//!
//! Where a line says `events`, a sequence takes snapshots of the volume ([`past`]). They are no part of the
//! model: what one must show is the model as it was.
//!
//! # Faults of the medium
//!
//! They are those of [`yore_device::simulated`]: what was not flushed may be there or not, write by write, in
//! any order, torn between sectors. Every other sampled state is torn between blocks only, so that the
//! promise about content (old or new by block) is judged in both ways.

#![warn(missing_docs)]

pub mod campaign;
pub mod case;
pub mod compare;
pub mod crash;
pub mod edges;
pub mod fill;
pub mod generate;
pub mod judge;
mod marks;
pub mod model;
pub mod mutant;
pub mod op;
pub mod outcome;
pub mod past;
pub mod record;
pub mod recorded;
mod recount;
pub mod runner;
mod stalled;
pub mod subject;
pub mod systematic;
pub mod threads;
pub mod together;
pub mod totals;
pub mod tree;
pub mod trial;
pub mod volume;
