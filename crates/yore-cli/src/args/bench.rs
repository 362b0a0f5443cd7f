//! What can be measured, and how.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use yore_bench::{MicroStep, RivalKind};

/// `bench`
#[derive(Debug, Args)]
#[command(
    after_help = "Every workload runs on all targets in one run, in rounds that take turns; compare figures within a run only. \
                  All images are files of the same size in the same directory."
)]
pub struct Bench {
    /// Which measurement
    #[command(subcommand)]
    pub which: BenchWhich,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub enum BenchWhich {
    /// The first question about any build: `micro` with five steps on library, mount, memory-fuse and ext4
    First {
        #[command(flatten)]
        size: MicroSize,
        #[command(flatten)]
        common: Common,
    },
    /// What each basic call costs
    Micro {
        #[command(flatten)]
        size: MicroSize,
        /// Bytes of each file that is written and read
        #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = crate::output::parse_size)]
        file_size: u64,
        /// A table for each of these numbers of threads
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
        threads: Vec<usize>,
        /// All threads in the same directories
        #[arg(long)]
        shared: bool,
        /// Only these steps: mkdir, create, readdir, stat, rename, unlink, write, read, unlink-written, create-unlink, durable
        #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = step)]
        steps: Vec<MicroStep>,
        #[command(flatten)]
        common: Common,
    },
    /// Many small files with short lives
    Postmark {
        #[command(flatten)]
        size: PostMarkSize,
        #[command(flatten)]
        common: Common,
    },
    /// Internal: serves the in-memory FUSE file system on a directory, for the other measurements
    #[command(hide = true)]
    ServeMemory {
        /// An empty directory
        directory: PathBuf,
    },
}

/// How large `micro` is.
#[derive(Debug, Args)]
pub struct MicroSize {
    /// Files per step; a tenth of them for mkdir and durable files
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
    pub files: usize,
    /// Directories they are spread over
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    pub directories: usize,
}

/// The sizes that papers have used for PostMark.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Preset {
    /// 100,000 transactions, 20,000 files of 500 B to 16 KiB, 400 directories
    Snapshotting,
    /// 20,000 transactions, 10,000 files of 512 B to 16 KiB, one directory
    Small,
    /// The same with 150,000 files
    Large,
}

/// How large `postmark` is.
#[derive(Debug, Args)]
pub struct PostMarkSize {
    /// Where the other parameters begin
    #[arg(long, default_value = "snapshotting")]
    pub preset: Preset,
    /// Transactions
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub transactions: Option<usize>,
    /// Files at the start
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub files: Option<usize>,
    /// Directories they are spread over
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub directories: Option<usize>,
    /// Bytes of each read and write
    #[arg(long, value_name = "SIZE", value_parser = crate::output::parse_size)]
    pub block_size: Option<u64>,
    /// Decides all random choices
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// What all comparisons have in common.
#[derive(Debug, Args)]
pub struct Common {
    /// On what: library, library-none, mount, memory-fuse and, as root, ext3, ext4, xfs, btrfs, fuse2fs; or all
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "library,mount,memory-fuse,ext4",
        value_parser = targets
    )]
    pub targets: Vec<Targets>,
    /// The targets that Yore is compared with
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "ext4,memory-fuse", value_parser = targets)]
    pub base: Vec<Targets>,
    /// Rounds, each of which runs every target once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub rounds: usize,
    /// Fresh file systems for each round, instead of the same ones
    #[arg(long)]
    pub fresh: bool,
    /// Size of each volume and image
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = crate::output::parse_size)]
    pub volume_size: u64,
    /// Allocate the images on the host beforehand; otherwise they are sparse
    #[arg(long)]
    pub preallocate: bool,
    /// Options for `yore mount -o`
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    pub mount_options: String,
    #[command(flatten)]
    pub output: Output,
}

/// Where it is measured, and where the report goes.
#[derive(Debug, Args)]
pub struct Output {
    /// Where volumes and images are made, which decides which disk is measured
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// Write every sample as JSON; - for standard output, instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// One target, or all.
#[derive(Clone, Debug)]
pub struct Targets(pub Vec<RivalKind>);

fn targets(name: &str) -> Result<Targets, String> {
    if name == "all" {
        return Ok(Targets(RivalKind::ALL.to_vec()));
    }
    let names = || RivalKind::ALL.map(RivalKind::name).join(", ");
    RivalKind::from_name(name)
        .map(|kind| Targets(vec![kind]))
        .ok_or_else(|| format!("there is no target {name:?}; choose of {}, all", names()))
}

fn step(name: &str) -> Result<MicroStep, String> {
    let names = || MicroStep::ALL.map(MicroStep::name).join(", ");
    MicroStep::from_name(name).ok_or_else(|| format!("there is no step {name:?}; choose of {}", names()))
}

/// A number above zero.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{text:?} is not a whole number above zero")),
        Ok(number) => Ok(number),
    }
}
