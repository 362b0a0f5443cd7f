//! The commands and their arguments. Help texts, man page and completions all come from here.

pub mod bench;
mod defrag;
mod files;
pub mod help;
mod journal;
mod log_service;
mod put_back;
mod query;
mod scrub;
mod shared;
mod snapshots;

pub use defrag::Defrag;
pub use files::{Cat, Cp, Find, Ls, Mkdir, Rm, Stat};
pub use journal::Journal;
pub use log_service::{
    Content, LogAppend, LogCreate, LogList, LogService, LogServiceWhich, LogTrim, LogVerify, Owner,
};
pub use put_back::{Redo, Restore, Rollback, Undelete, Undo};
pub use query::{Deleted, Diff, Du, Log, Status};
pub use scrub::{ChecksumsArgs, ScrubArgs};
pub use shared::{Listing, Progress};
pub use snapshots::{Describe, Expunge, Forget, History, Hold, Operations, Policy, Snapshot, Snapshots};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// A file system that never loses the past.
#[derive(Debug, Parser)]
#[command(
    name = "yore",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "A volume is an image file or a block device. VOL:/PATH names a file on a volume that is not mounted.\n\
                  Exit codes: `yore help exit-codes`."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume
    Mkfs(Mkfs),
    /// Mount a volume on a directory
    Mount(Mount),
    /// Unmount a volume and wait until it is closed
    #[command(
        visible_alias = "unmount",
        after_help = "Checks and scrubs of a volume whose mount is busy are broken off (exit status 6 of theirs)."
    )]
    Umount(Umount),
    /// Make a volume longer, mounted or not, or shorter, if it is not mounted
    Resize(Resize),
    /// Lay the pieces of scattered files together, mounted or not
    Defrag(Defrag),
    /// Read everything on a volume, mounted or not, and tell what is damaged
    Scrub(ScrubArgs),
    /// Whether a volume keeps checksums of file data: show it, or begin to
    Checksums(ChecksumsArgs),
    /// Facts about a volume or a mount
    Info(Info),
    /// Space on volumes
    Df(Df),
    /// List files on a volume
    Ls(Ls),
    /// Write files from a volume to standard output
    Cat(Cat),
    /// Copy files on a volume, or between volumes
    #[command(override_usage = "yore cp [OPTIONS] VOL:/FROM... VOL:/TO")]
    Cp(Cp),
    /// Copy files from the host to a volume
    #[command(override_usage = "yore put [OPTIONS] FROM... VOL:/TO")]
    Put(Cp),
    /// Copy files from a volume to the host
    #[command(override_usage = "yore get [OPTIONS] VOL:/FROM... TO")]
    Get(Cp),
    /// Make directories on a volume
    Mkdir(Mkdir),
    /// Remove files on a volume
    Rm(Rm),
    /// Find files on a volume
    Find(Find),
    /// All attributes of files on a volume
    Stat(Stat),
    /// Take a snapshot of a directory with all that is below it; prints the time to put behind an @
    Snapshot(Snapshot),
    /// List snapshots
    Snapshots(Snapshots),
    /// Hold a snapshot, so that it is not forgotten
    Hold(Hold),
    /// Release a snapshot that is held
    Release(Hold),
    /// Give a snapshot another name, or say what it is
    Describe(Describe),
    /// Who did what to the past, and what undoes it
    Operations(Operations),
    /// Forget snapshots, and give back the space that they alone hold
    Forget(Forget),
    /// Give up all history of a file, in every snapshot; what it is now stays
    Expunge(Expunge),
    /// When versions are made, and how long they are kept: show it, or set it
    Policy(Policy),
    /// How much history a full volume keeps: show it, or set it
    History(History),
    /// What differs between two times of a directory or file
    Diff(Diff),
    /// What changed in a directory since its last snapshot
    Status(Status),
    /// What a file or directory was over time, latest first
    Log(Log),
    /// What is gone from a directory, and the time at which it can still be seen
    Deleted(Deleted),
    /// What history takes, by snapshot or by state of a file
    Du(Du),
    /// Put a file or directory back as it was; what came since is left alone
    Restore(Restore),
    /// Bring back what is gone, as the last snapshot has it
    Undelete(Undelete),
    /// Make a directory, with all that is below it, as it was
    Rollback(Rollback),
    /// Undo the last restore, undelete or rollback in a directory
    Undo(Undo),
    /// Undo the last undo
    Redo(Redo),
    /// Print any structure on the medium, also of a damaged volume
    Inspect(Inspect),
    /// Check a volume that is not mounted; exit status 1 if something is wrong
    Check(Check),
    /// Where a volume has its log, and how long that is: show it, or change it
    Journal(Journal),
    /// A log of records for other programs, on a file or a block device
    LogService(LogService),
    /// Measure Yore and other file systems side by side
    Bench(bench::Bench),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh or fish
        shell: clap_complete::Shell,
    },
    /// Internal: what can follow these words, of which the last one is being written
    #[command(hide = true)]
    Complete {
        /// The words behind `yore`, up to the cursor
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Print the man page, or write a page for each command
    Man {
        /// Write the pages of all commands into this directory
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// What the exit codes mean
    #[command(name = "exit-codes", long_about = help::EXIT_CODES)]
    ExitCodes,
}

/// `mkfs`
#[derive(Debug, Args)]
pub struct Mkfs {
    /// The image file (made if it is not there) or block device
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// Size, as 10G, 512M, 1.5T or bytes; at least 16M. Default: all of what exists
    #[arg(long, value_parser = crate::parse::parse_size)]
    pub size: Option<u64>,
    /// A name for people, at most 64 bytes
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
    /// How metadata is kept consistent
    #[arg(long, default_value = "snapshot")]
    pub engine: EngineName,
    /// Size of the log that makes fsync cheap; 0 for none. Longer: more fsyncs between two generations;
    /// shorter: less to replay after a crash. Default: a 128th of the volume, at least 256K, at most 32M; for
    /// the engine journal a hundredth, at least 4M, at most 48M
    #[arg(long, value_parser = crate::parse::parse_size)]
    pub log_size: Option<u64>,
    /// Have the log in this file (made, as long as --log-size says) or on this block device, and not in the
    /// volume. One log serves one volume. `yore journal` moves it
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Keep a checksum of each block of file data, and verify what is read. File data is then never
    /// overwritten in place. Not with the engine none
    #[arg(long)]
    pub data_checksums: bool,
    /// When versions are made and how long they are kept, as the settings of `yore policy`: "version=1h
    /// keep=daily:30", or none. Default: a snapshot a minute after something has changed; all of two hours
    /// stay, then one for each hour of two days, each day of a month, each week of a quarter, and each month
    #[arg(long, value_name = "SETTINGS")]
    pub policy: Option<String>,
    /// History younger than this (as 1d, 12h) is kept when the volume is full, as long as history takes less
    /// than its share. `yore history` changes it. Default: 1d
    #[arg(long, value_name = "DURATION")]
    pub history_floor: Option<String>,
    /// The share of the volume that history may take before young history is given up, too. Default: 50
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub history_share: Option<u8>,
    /// Overwrite what is there
    #[arg(long, short)]
    pub force: bool,
    /// The volume's identity; random by default
    #[arg(long)]
    pub uuid: Option<uuid::Uuid>,
}

/// `resize`.
#[derive(Debug, Args)]
#[command(
    after_help = "An image file gets the same length. A block device is as long as it is: lengthen it before, and shorten it afterwards. \
                        A mounted volume only gets longer. When it gets shorter, files make room: their data moves. Directories, inodes and \
                        what snapshots have do not move; what is in the way of the new end, and how short the volume can be made, a refusal says. \
                        Programs before Yore's format 2.2 cannot use a volume that was resized."
)]
pub struct Resize {
    /// The volume, or the directory that it is mounted on
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// How long it shall be, as 10G, 512M, 1.5T or bytes. Default: all of its file or device
    #[arg(value_parser = crate::parse::parse_size)]
    pub size: Option<u64>,
    /// Print JSON: how many bytes the volume has, and had
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
}

/// The engines by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineName {
    /// Metadata in place, in any order; after a crash the volume must be checked
    None,
    /// Metadata in place, in order, before each call returns
    Sync,
    /// A redo log
    Journal,
    /// Metadata in place, in an order that is always consistent
    SoftUpdates,
    /// Never overwrites: nothing to do after a crash
    Snapshot,
}

impl From<EngineName> for yore_fs::Engine {
    fn from(name: EngineName) -> yore_fs::Engine {
        match name {
            EngineName::None => yore_fs::Engine::None,
            EngineName::Sync => yore_fs::Engine::Sync,
            EngineName::Journal => yore_fs::Engine::Journal,
            EngineName::SoftUpdates => yore_fs::Engine::SoftUpdates,
            EngineName::Snapshot => yore_fs::Engine::Snapshot,
        }
    }
}

/// `mount`
#[derive(Debug, Args)]
#[command(after_help = help::MOUNT_OPTIONS)]
pub struct Mount {
    /// The image file or block device; with --at also VOL:/PATH, a directory on it
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// An empty directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Mount the snapshot as of then, by itself and read-only; also while the volume is mounted
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub at: Option<String>,
    /// Options, separated by commas (see below)
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<OsString>,
    /// Stay in the foreground and log to standard error
    #[arg(long, short = 'f')]
    pub foreground: bool,
    /// Internal: tell the process that started this one, over standard output, how it went
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// As mount(8) passes them on: verbose, sloppy, no mtab, fake
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    #[arg(short = 's', hide = true)]
    pub sloppy: bool,
    #[arg(short = 'n', hide = true)]
    pub no_mtab: bool,
    /// The type, as mount(8) may pass it on
    #[arg(short = 't', hide = true)]
    pub fs_type: Option<String>,
}

/// `umount`
#[derive(Debug, Args)]
pub struct Umount {
    /// Where a volume is mounted
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    /// Unmount for new users now, and for those who use it when they are done; do not wait
    #[arg(long, short)]
    pub lazy: bool,
}

/// `info`
#[derive(Debug, Args)]
pub struct Info {
    /// A volume, or a directory of a mounted one
    #[arg(value_name = "VOL|DIR", default_value = ".")]
    pub target: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print times in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
}

/// `df`
#[derive(Debug, Args)]
#[command(
    after_help = "Live is all that is used and not history: files, and what the volume needs for itself. `yore info` counts the same; \
                  `yore du --history` counts files alone, as du(1) does."
)]
pub struct Df {
    /// Volumes, or directories where one is mounted; all mounted ones by default
    #[arg(value_name = "VOL|DIR")]
    pub targets: Vec<PathBuf>,
    /// Print inodes instead of bytes
    #[arg(short, long)]
    pub inodes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `inspect`
#[derive(Debug, Args)]
#[command(after_help = help::INSPECT_ADDRESSES)]
pub struct Inspect {
    /// The image file or block device; may be mounted, and may change while it is looked at
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// What to print (see below); the superblocks by default
    #[arg(value_name = "ADDR")]
    pub address: Vec<String>,
    /// The bytes of the block as well
    #[arg(long)]
    pub raw: bool,
}

/// What `check --repair` may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Everything that is found
    All,
    /// The same, after a question for each of it: y(es), n(o, it is left), a(ll that follow too), q(uit)
    Ask,
    /// The state of a volume in which nothing is found
    #[value(skip)]
    Mark,
}

/// `check`
#[derive(Debug, Args)]
#[command(
    after_help = "The check changes nothing, but --online repairs leaks at once, and records the rest (yore info shows it). With --repair all findings are repaired, or none: a volume with a finding that has no \
                  repair yet is left as it is. What a repair overwrites is kept in an undo file, from which --undo takes \
                  it back, until the volume is mounted for writing. A volume that must be checked after a crash, and in \
                  which nothing is found, is marked clean."
)]
pub struct Check {
    /// The image file or block device; with --online also the mount point
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Repair what is found, or with =ask show first what would be done
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub repair: Option<Repair>,
    /// Where a repair keeps what it overwrites. Default: beside an image file, with .undo behind its name
    #[arg(long, value_name = "PATH")]
    pub undo_file: Option<PathBuf>,
    /// If the repair cannot be made otherwise, give up all of the past (snapshots, versions, policies) for
    /// the present
    #[arg(long, requires = "repair")]
    pub give_up_past: bool,
    /// If the device ends before the volume does, shorten the volume: what lay beyond the end is given up
    #[arg(long, requires = "repair")]
    pub shorten: bool,
    /// Take the last repair back, from its undo file
    #[arg(long, conflicts_with_all = ["repair", "estimate"])]
    pub undo: bool,
    /// Where the log is, if it has a device of its own. Default: where the volume says
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Check the volume as it is without its log: what is in the log alone does not count
    #[arg(long, conflicts_with_all = ["journal", "repair"])]
    pub without_journal: bool,
    /// Print at most this many findings
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_findings: usize,
    /// Use so much memory for what grows with the volume; the rest is read again, or goes to a temporary file
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = crate::parse::parse_size)]
    pub memory: u64,
    /// Say how long a check would take, and do not check
    #[arg(long, conflicts_with = "repair")]
    pub estimate: bool,
    /// Check a mounted volume while it is in use: VOL is the volume or its mount point. Leaks are repaired at
    /// once; other findings are recorded on the volume
    #[arg(long, conflicts_with_all = ["repair", "undo", "estimate", "journal", "without_journal"])]
    pub online: bool,
    #[command(flatten)]
    pub progress: Progress,
}

/// Single dashes before the tests of `find`, as find(1) has them.
pub fn single_dash_find(mut argv: Vec<OsString>) -> Vec<OsString> {
    const TESTS: [&str; 9] =
        ["-name", "-path", "-type", "-size", "-newer", "-newermt", "-maxdepth", "-mindepth", "-print0"];
    if argv.get(1).is_some_and(|command| command == "find") {
        for arg in argv.iter_mut().skip(2) {
            if arg == "--" {
                break;
            }
            if TESTS.iter().any(|test| arg == test) {
                let mut long = OsString::from("-");
                long.push(&*arg);
                *arg = long;
            }
        }
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// Promises that the definitions contradict nothing, as clap can tell.
    #[test]
    fn definitions_are_sound() {
        Arguments::command().debug_assert();
    }

    /// Promises that the tests of `find` may be written as find(1) has them.
    #[test]
    fn find_takes_single_dashes() {
        let argv = ["yore", "find", "v:/", "-name", "*.c", "-size", "-10k", "-maxdepth", "3", "-print0"];
        let argv = single_dash_find(argv.iter().map(Into::into).collect());
        let Command::Find(find) = Arguments::try_parse_from(argv).unwrap().command else {
            panic!("it is a find");
        };
        assert_eq!(find.name.unwrap(), "*.c");
        assert_eq!(find.size.unwrap(), "-10k");
        assert_eq!(find.maxdepth, Some(3));
        assert!(find.print0);
    }
}
