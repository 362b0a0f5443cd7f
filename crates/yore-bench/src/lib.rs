//! Workloads that compare Yore with other file systems in one run.
//!
//! Figures drift from machine to machine and from hour to hour, so nothing here reports a figure alone: every
//! workload runs on all [`Target`]s in the same run, in rounds that take turns, and what is reported are medians and ratios.
//!
//! - [`Target`] is what a workload needs of a file system, so that one text of the workload runs through a mount, through the
//!   library in this process, or on a rival.
//! - [`first`] is the first question about any build: what do the basic calls cost, in the library, through FUSE, against ext4,
//!   and against FUSE with nothing behind it.

mod error;
mod first;
mod memory;
mod places;
mod report;
mod target;

pub use error::{BenchError, Result};
pub use first::{first, FirstOptions};
pub use memory::MemoryFuse;
pub use report::{Report, Skipped, TargetResult, WorkloadResult};
pub use target::{DirectoryTarget, LibraryTarget, Target};
