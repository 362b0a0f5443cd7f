//! The arguments of `bench`: what to measure, and how.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use yore_bench::{CheckPart, Experiment, HistoryPart, MicroStep, RivalKind};

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
        #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = crate::parse::parse_size)]
        file_size: u64,
        /// A table for each of these numbers of threads
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
        threads: Vec<usize>,
        /// All threads in the same directories
        #[arg(long)]
        shared: bool,
        /// Only these steps: mkdir, create, readdir, stat, rename, unlink, write, read, unlink-written,
        /// create-unlink, durable
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
    /// One large file: sequential and random, reads with cold caches; as root
    Stream {
        /// Size of the file
        #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = crate::parse::parse_size)]
        size: u64,
        /// Random reads of 4 KiB, and as many overwrites
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        random: usize,
        /// Decides the random places
        #[arg(long, value_name = "N", default_value_t = 42)]
        seed: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Real source trees: git clone, checkout, status, untar, build, rm -rf; on mounts
    Tree {
        /// Where scripts/fetch-sources.sh has put the source trees
        #[arg(long, value_name = "DIR")]
        sources: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// What the engines' I/O costs on disks whose time is computed: exact, and the same on every machine
    Simulated {
        /// What is done on them
        #[arg(value_enum)]
        workload: SimulatedKind,
        /// Files per step of micro, files at the start of postmark, files of each thread of durable
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        files: Option<usize>,
        /// Directories they are spread over
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
        directories: usize,
        /// Transactions of postmark
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        transactions: usize,
        /// Operations between two syncs
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
        batch: usize,
        /// Decides all random choices
        #[arg(long, value_name = "N", default_value_t = 42)]
        seed: u64,
        #[command(flatten)]
        output: Output,
    },
    /// The papers' experiments over all engines, on simulated disks and on the real one beside other file
    /// systems
    Papers {
        /// A sample of each: a twentieth of the sizes, in less than ten minutes
        #[arg(long)]
        quick: bool,
        /// After so many minutes, leave out what the real disk had no time for. Default: no limit; 9 with
        /// --quick
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        minutes: Option<usize>,
        /// Only these: curves, empty, files, postmark-small, postmark-medium, postmark-large, dbench, ssh,
        /// netnews, sdet, andrew, streams, fileserver, webserver, varmail
        #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = experiment)]
        experiments: Vec<Experiment>,
        /// Only on simulated disks
        #[arg(long, conflicts_with = "real")]
        simulated: bool,
        /// Only on the real disk
        #[arg(long)]
        real: bool,
        /// The share of the papers' sizes. Default: 1; 0.05 with --quick
        #[arg(long, value_name = "SHARE", value_parser = share)]
        share: Option<f64>,
        /// Files of netnews. Default: 520000; 5000 with --quick
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        news: Option<usize>,
        #[command(flatten)]
        common: Common,
    },
    /// Latency of creates that arrive at a steady rate, from when each was due
    Latency {
        /// How long they arrive, in seconds
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = at_least_one)]
        seconds: usize,
        /// How long the sustained rate is looked for, in seconds
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
        probe_seconds: usize,
        /// The share of the sustained rate at which they arrive
        #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
        load: f64,
        /// Files that exist at once
        #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = at_least_one)]
        alive: usize,
        #[command(flatten)]
        common: Common,
    },
    /// How long opening a volume takes after a crash, with cold caches; as root
    MountTime {
        /// Files on the volume
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = at_least_one)]
        files: usize,
        /// Files created after the last sync before each crash
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
        unsynced: usize,
        #[command(flatten)]
        common: Common,
    },
    /// What the checker must reach: time beside e2fsck, on the real disk and a slow one, memory, and what it
    /// costs others
    Check {
        /// A sample of each row, in a few minutes on two processors
        #[arg(long)]
        quick: bool,
        /// Only these rows: whole, past, slow, data, memory, claims, live, checksums, layout. Whole, slow,
        /// and cold reads need root
        #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = check_part)]
        parts: Vec<CheckPart>,
        /// Files of 500 bytes to 16 KiB. Default: 200000; 20000 with --quick
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        files: Option<usize>,
        /// Files of 4 KiB to 2 MiB. Default: 15 for each 1000 of the others
        #[arg(long, value_name = "N")]
        large: Option<usize>,
        /// Levels of ageing, each a call for every second file. Default: 3
        #[arg(long, value_name = "N")]
        levels: Option<usize>,
        /// Files of the volume whose checker's memory is measured. Default: 1000000; 100000 with --quick
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        inodes: Option<usize>,
        /// Transactions of PostMark; its files and directories are in proportion. Default: 100000; 20000 with
        /// --quick
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        transactions: Option<usize>,
        /// Size of the large file with checksums of data. Default: 1G; 128M with --quick
        #[arg(long, value_name = "SIZE", value_parser = crate::parse::parse_size)]
        stream_size: Option<u64>,
        /// The share of the paper's sizes for layout. Default: 1; 0.1 with --quick
        #[arg(long, value_name = "SHARE", value_parser = share)]
        layout: Option<f64>,
        #[command(flatten)]
        common: Common,
    },
    /// Memory of the process that serves a mount, after many files were created through it; as root
    Memory {
        /// Files created
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
        files: usize,
        /// Directories they are spread over
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
        directories: usize,
        #[command(flatten)]
        common: Common,
    },
    /// What it costs to have a past: the same in the library with snapshots and without
    History {
        #[command(flatten)]
        size: HistorySize,
        /// Only these rows: take, meanwhile, behind, back, large, forget, postmark, metadata, diff,
        /// scattered, mount, beside, usual, restore, record, cold, tree, mixed
        #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = part)]
        parts: Vec<HistoryPart>,
        /// Rounds, each of which makes every measure with and without
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
        rounds: usize,
        /// Size of each volume; they are sparse, but for that on which the large file is overwritten, which
        /// has its own size
        #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = crate::parse::parse_size)]
        volume_size: u64,
        #[command(flatten)]
        output: Output,
    },
    /// Internal: fills a volume and waits to be killed, for mount-time
    #[command(hide = true)]
    Fill {
        /// The image
        image: PathBuf,
        /// Keeps names apart
        round: usize,
        /// Files before the sync; without the next one, directories over which fsynced files are spread until
        /// the log is full
        files: usize,
        /// Files after it
        unsynced: Option<usize>,
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

/// How large `history` is.
#[derive(Debug, Args)]
pub struct HistorySize {
    /// Files on the volume of which snapshots are taken
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
    pub files: usize,
    /// Snapshots taken of it per round; a twentieth of them durably
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = at_least_one)]
    pub takes: usize,
    /// How long each step goes on while a snapshot is taken every second, or with many behind it
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pub seconds: usize,
    /// Files of 4 KiB that these steps read, overwrite and rename
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
    pub live: usize,
    /// Snapshots behind the steps, and versions of the small file that is looked back at
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one)]
    pub snapshots: usize,
    /// Size of the large file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = crate::parse::parse_size)]
    pub large_size: u64,
    /// Snapshots forgotten while files come and go
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub forgotten: usize,
    /// Transactions of PostMark; its files and directories are in proportion
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
    pub transactions: usize,
    /// For how long a volume with a scattered file is left alone before the file is read again
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub idle: u64,
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
    #[arg(long, value_name = "SIZE", value_parser = crate::parse::parse_size)]
    pub block_size: Option<u64>,
    /// Decides all random choices
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// What is done on simulated disks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SimulatedKind {
    /// Basic calls
    Micro,
    /// Many small files with short lives
    Postmark,
    /// Files that must be durable one by one, created by 1, 4 and 16 threads on a disk whose time passes
    Durable,
}

/// What all comparisons have in common.
#[derive(Debug, Args)]
pub struct Common {
    /// On what: library, mount, each with other engines (library-none, mount-soft-updates, mount-journal-sync
    /// and so on), memory-fuse and, as root, ext2, ext3, ext3-journal, ext3-writeback, ext4, xfs, btrfs,
    /// fuse2fs; or all. Default: library, mount, memory-fuse and ext4, as far as the measurement can be made
    /// on them; for latency library
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = targets)]
    pub targets: Vec<Targets>,
    /// The targets that Yore is compared with
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "ext4,memory-fuse", value_parser = targets)]
    pub base: Vec<Targets>,
    /// Rounds, each of which runs every target once. Default: 5; 1 for latency and memory
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub rounds: Option<usize>,
    /// Fresh file systems for each round, instead of the same ones
    #[arg(long)]
    pub fresh: bool,
    /// Size of each volume and image
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = crate::parse::parse_size)]
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
    let names = || RivalKind::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    RivalKind::from_name(name)
        .map(|kind| Targets(vec![kind]))
        .ok_or_else(|| format!("there is no target {name:?}; choose of {}, all", names()))
}

fn step(name: &str) -> Result<MicroStep, String> {
    let names = || MicroStep::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    MicroStep::from_name(name).ok_or_else(|| format!("there is no step {name:?}; choose of {}", names()))
}

fn experiment(name: &str) -> Result<Experiment, String> {
    let names = || Experiment::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    Experiment::from_name(name)
        .ok_or_else(|| format!("there is no experiment {name:?}; choose of {}", names()))
}

fn part(name: &str) -> Result<HistoryPart, String> {
    let names = || HistoryPart::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    HistoryPart::from_name(name).ok_or_else(|| format!("there is no part {name:?}; choose of {}", names()))
}

fn check_part(name: &str) -> Result<CheckPart, String> {
    let names = || CheckPart::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    CheckPart::from_name(name).ok_or_else(|| format!("there is no part {name:?}; choose of {}", names()))
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 10.0 => Ok(share),
        _ => Err(format!("{text:?} is no share; write 0.5 for half")),
    }
}

/// A number above zero.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{text:?} is not a whole number above zero")),
        Ok(number) => Ok(number),
    }
}
