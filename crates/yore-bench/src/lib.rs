//! Workloads that compare Yore with other file systems in one run.
//!
//! Figures drift from machine to machine and from hour to hour, so nothing here reports a figure alone. Every
//! workload runs on all file systems in the same run, in rounds that take turns, and reports give medians,
//! and ratios of the same round.
//!
//! - [`Target`] is what a workload needs of a file system, so that one text of the workload runs through a
//!   mount, through the library in this process, or on a rival.
//! - [`RivalKind`] are the file systems; [`compare`] creates them, runs a [`Benchmark`] on them in turns, and
//!   removes them.
//! - The benchmarks: [`Micro`], [`PostMark`], [`Stream`], [`Tree`]; on Yore alone [`Latency`], [`Startup`],
//!   [`Checks`] of its checker beside e2fsck, [`Resident`], [`History`]; and [`Simulated`], whose figures
//!   come from a disk's model ([`HardDisk`], [`SolidState`]) and are the same on every machine; [`Waited`]
//!   waits for such a disk.
//! - [`Report`] is the outcome.

mod compare;
mod error;
mod memory;
mod program;
mod report;
mod rival;
mod simulated;
mod stats;
mod target;
mod workload;

pub use compare::{compare, Benchmark, CompareOptions};
pub use error::{BenchError, Result};
pub use memory::MemoryFuse;
pub use report::{Better, Cell, Column, LeftOut, Machine, Report, Row, Table, TargetInfo, Unit, SCHEMA};
pub use rival::{serve_memory, RivalKind, Serving};
pub use simulated::{HardDisk, Model, Nanos, Range, SolidState, TimedDevice, Usage};
pub use stats::{highest, lowest, median, paired_ratio, percentile};
pub use target::{LibraryTarget, SystemTarget, Target};
pub use workload::{
    fill, CheckPart, Checks, Experiment, Fill, History, HistoryPart, Latency, Mechanism, Micro, MicroStep,
    Papers, PostMark, Resident, Scale, Simulated, SimulatedWorkload, Startup, Stream, Tree, Waited,
};
