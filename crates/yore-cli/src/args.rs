//! What can be asked for. Help texts, man page and completions all come from here.

pub mod bench;
pub mod help;
mod look;
mod put_back;
mod shared;

pub use look::{Deleted, Diff, Du, Log, Status};
pub use put_back::{Redo, Restore, Rollback, Undelete, Undo};
pub use shared::{Listing, Progress};

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
    #[command(visible_alias = "unmount")]
    Umount(Umount),
    /// Make a volume longer, mounted or not, or shorter, if it is not mounted
    Resize(Resize),
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
    /// shorter: less to replay after a crash. Default: a 128th of the volume, at least 256K, at most 32M
    #[arg(long, value_parser = crate::parse::parse_size)]
    pub log_size: Option<u64>,
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

/// `ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// What to list
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Permissions, links, owner, size and time as well
    #[arg(short)]
    pub long: bool,
    /// Names that begin with a dot as well
    #[arg(short)]
    pub all: bool,
    /// Directories themselves, not their content
    #[arg(short)]
    pub directory: bool,
    /// Everything below
    #[arg(short = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `cat`
#[derive(Debug, Args)]
pub struct Cat {
    /// Files
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// `cp`, `put`, `get`
#[derive(Debug, Args)]
#[command(
    after_help = "Permissions, times, symbolic links, hard links among the files copied, extended attributes and holes are \
                  preserved; owners only by root. Of an existing directory as the last operand the files are put into it. \
                  `-` is standard input (put) or output (get)."
)]
pub struct Cp {
    /// What to copy, and at the end where to: paths of the host, or VOL:/PATH
    #[arg(value_name = "FROM... TO", required = true, num_args = 2..)]
    pub operands: Vec<OsString>,
    /// Directories with their content
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub progress: Progress,
}

/// `mkdir`
#[derive(Debug, Args)]
pub struct Mkdir {
    /// Directories to make
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Those above that are missing as well; fine if it exists
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions, octal
    #[arg(short, long, value_parser = crate::parse::parse_mode)]
    pub mode: Option<u32>,
}

/// `rm`
#[derive(Debug, Args)]
pub struct Rm {
    /// What to remove
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Directories with everything in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Empty directories
    #[arg(short, long)]
    pub dir: bool,
    /// No error if there is nothing
    #[arg(short, long)]
    pub force: bool,
    /// Print what was removed
    #[arg(short, long)]
    pub verbose: bool,
}

/// `find`
#[derive(Debug, Args)]
#[command(
    after_help = "The tests may be written with one dash as well, as in find(1). All given tests must hold."
)]
pub struct Find {
    /// Where to begin
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
    /// The name matches a pattern with * ? [a-z]
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<OsString>,
    /// The whole path matches a pattern (* matches / too)
    #[arg(long, value_name = "PATTERN")]
    pub path: Option<OsString>,
    /// f file, d directory, l symbolic link, p pipe, s socket, b or c device; several with commas
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Exactly, above (+) or below (-) this size, as +10M, -4k, 0
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Content changed after that of this file on the volume
    #[arg(long, value_name = "/PATH")]
    pub newer: Option<OsString>,
    /// Content changed after this time, as 2026-11-20 or 2026-11-20T14:05
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub newermt: Option<String>,
    /// Go no deeper than this
    #[arg(long, value_name = "N")]
    pub maxdepth: Option<usize>,
    /// Nothing above this depth
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mindepth: usize,
    /// End each path with a zero byte, as -0
    #[arg(long)]
    pub print0: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `stat`
#[derive(Debug, Args)]
pub struct Stat {
    /// Files; symbolic links are not followed
    #[arg(value_name = "VOL:/PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `snapshot`
#[derive(Debug, Args)]
#[command(
    after_help = "PATH@TIME is the directory as of the snapshot, PATH@NAME too; on volumes and mounts, in every command. The \
                  time that is printed means this snapshot for ever, whatever is taken later."
)]
pub struct Snapshot {
    /// A directory on a mount; or a volume, or VOL:/PATH, that is not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// A name for it, of which the directory has one; not one that could be a time
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// A description, which lists show
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Keep it until it is released, whatever else is forgotten
    #[arg(long)]
    pub hold: bool,
    /// Why it is held
    #[arg(long, value_name = "TEXT", requires = "hold")]
    pub reason: Option<String>,
    /// When an imported snapshot was taken: of the whole volume alone, later than the last one, and not in
    /// the future. The volume should be made with `mkfs --policy none`, so that none is taken by itself
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub time: Option<String>,
    /// Return before it is durable; it will be with everything else that was done before
    #[arg(long)]
    pub no_wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the time in UTC (with a Z) instead of local time
    #[arg(long)]
    pub utc: bool,
}

/// `snapshots`
#[derive(Debug, Args)]
#[command(
    after_help = "Of each: the time to put behind an @, the kind, whether it is held, the name, and the directory where it is \
                  now (or its inode, if it is gone). Of a directory those are listed in which it can be seen, and those of \
                  directories below that you could take a snapshot of."
)]
pub struct Snapshots {
    /// A directory on a mount; or a volume, or VOL:/PATH, that is not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// Also those that restore, undelete, rollback, undo and redo have taken (kind undo)
    #[arg(short, long)]
    pub all: bool,
    /// List what the volume gave up because it was full: when, what, and for what
    #[arg(long)]
    pub forgotten: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `history`
#[derive(Debug, Args)]
#[command(
    after_help = "When the volume is full it gives up the oldest history for what is written: never what is held, named, mounted or being read, \
                  and what is younger than the floor only while history takes more than its share."
)]
pub struct History {
    /// A directory on a mount, or a volume that is not mounted
    #[arg(value_name = "VOL|MOUNT", default_value = ".")]
    pub path: OsString,
    /// From now on what is younger (as 1d, 12h) stays
    #[arg(long, value_name = "DURATION")]
    pub floor: Option<String>,
    /// As long as history takes less than this part of the volume
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub share: Option<u8>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `hold`, `release`
#[derive(Debug, Args)]
pub struct Hold {
    /// A directory as of a snapshot that was taken of it, or a file as of a version of its own, on a mount or
    /// on a volume that is not mounted (VOL:/PATH@TIME)
    #[arg(value_name = "PATH@TIME")]
    pub path: OsString,
    /// The snapshot of this number in the list of PATH (`yore snapshots --json`), which then has no time:
    /// also of a directory that is gone
    #[arg(long, value_name = "N")]
    pub number: Option<u64>,
    /// Why it is held
    #[arg(short, long, visible_alias = "reason", value_name = "TEXT")]
    pub message: Option<String>,
    /// Print JSON: the snapshot as it is then, with the keys of `yore snapshots --json`
    #[arg(long)]
    pub json: bool,
}

/// `describe`
#[derive(Debug, Args)]
#[command(after_help = "What is not given stays. An empty NAME or TEXT takes away what there is.")]
pub struct Describe {
    /// A directory as of a snapshot that was taken of it, on a mount or on a volume that is not mounted
    /// (VOL:/PATH@TIME)
    #[arg(value_name = "PATH@TIME")]
    pub path: OsString,
    /// The snapshot of this number in the list of PATH (`yore snapshots --json`), which then has no time:
    /// also of a directory that is gone
    #[arg(long, value_name = "N")]
    pub number: Option<u64>,
    /// The name that it gets, of which the directory has one; not one that could be a time
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// A description, which lists show
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Print JSON: the snapshot as it is then, with the keys of `yore snapshots --json`
    #[arg(long)]
    pub json: bool,
}

/// `operations`
#[derive(Debug, Args)]
#[command(
    after_help = "Of each: when, who, what, where, and the command that undoes it, if one does. Of a mount, root and the user who mounted the \
                  volume see all, others what they did and what concerns their directories. The last 4096 are kept."
)]
pub struct Operations {
    /// A directory or mount point; or a volume, or VOL:/PATH, that is not mounted: what was done there and
    /// below
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// The latest N only
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub most: Option<u32>,
    #[command(flatten)]
    pub listing: Listing,
}

/// `policy`
#[derive(Clone, Debug, Args)]
#[command(after_help = "Settings:\n  \
                  version=snapshot  only when somebody takes a snapshot\n  \
                  version=close     when a file that was changed is closed, renamed or removed\n  \
                  version=DURATION  a snapshot of the directory so long (as 10min) after the first change since the last one\n  \
                  keep=RULES        last:N hourly:N daily:N weekly:N monthly:N yearly:N within:DURATION, with commas between: what none \
                  keeps is forgotten, but names and holds\n  \
                  keep=all          everything, until somebody forgets it or the volume is full\n  \
                  hold=DURATION     what the policy takes is given up by nobody for so long (as 30d); only root releases it before\n  \
                  hold=none         nothing is held, whatever the directory above says\n  \
                  exclude=PATTERN   intervals and closes make no versions of what matches, as in .gitignore ('*.swp', target/, /build, \
                  '!keep.swp'); once for each pattern, all of them replace those of before\n  \
                  exclude=none      nothing is excluded, whatever the directory above says\n  \
                  version=inherit, keep=inherit, hold=inherit, exclude=inherit  as the directory above says\n\
                  Without settings, what applies is shown.")]
pub struct Policy {
    /// A directory or file on a mount, or a volume or VOL:/PATH that is not mounted; where the first word is
    /// a setting, the directory one is in
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// What to set
    #[arg(value_name = "SETTING")]
    pub settings: Vec<String>,
    /// List all policies of a volume that is not mounted
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `forget`
#[derive(Debug, Args)]
#[command(
    after_help = "Either snapshots are named, each as PATH@TIME of the very directory that it was taken of, or of the very file \
                  if it is a version that a policy made (`yore log` lists those); or options choose among those of a directory or file. Of each hour, day and so on the last snapshot is kept, for the N latest of them that \
                  have one; days and weeks are local, and weeks begin on Monday. What one option keeps is kept, whatever others say. \
                  Those that are held are kept always; unless --names is given those with a name, and for 30 days those that something can be undone by, too. Nothing brings back what was \
                  forgotten: look first with --dry-run."
)]
pub struct Forget {
    /// Snapshots, or versions of files; or directories and files from whose own the options choose: on a
    /// mount, or a volume or VOL:/PATH that is not mounted
    #[arg(value_name = "PATH[@TIME]", required = true)]
    pub paths: Vec<OsString>,
    /// The snapshot of this number in the list of PATH (`yore snapshots --json`), which then has no time:
    /// also of a directory that is gone. May be given several times
    #[arg(long = "number", value_name = "N")]
    pub numbers: Vec<u64>,
    /// Only those taken before this time (before the day begins, if it is a day), or before the snapshot of
    /// this name; without other options, all of them
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub before: Option<String>,
    /// Only those taken from this time on (that day too, if it is a day), or after the snapshot of this name;
    /// with `--before` and `--keep-last 1` those between two times become one
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub after: Option<String>,
    /// The same for each directory below that snapshots were taken of, each by itself; of a whole volume also
    /// for those that are gone
    #[arg(long)]
    pub below: bool,
    /// Forget snapshots with a name, too
    #[arg(long)]
    pub names: bool,
    /// Print what would be kept, and why, and what would be forgotten; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print times in UTC (with a Z) instead of local time
    #[arg(long)]
    pub utc: bool,
    #[command(flatten)]
    pub progress: Progress,
    // The last one: what follows would come under its heading.
    #[command(flatten)]
    pub keep: Retention,
}

/// `expunge`
#[derive(Debug, Args)]
#[command(
    after_help = "All versions of the file go, and all names that it had, from every snapshot; what the file is now stays, as if it had \
                  been made now. One that is gone is named with a time: secret@yesterday. Copies are other files, and stay. Nothing \
                  brings back what was expunged: look first with --dry-run."
)]
pub struct Expunge {
    /// Files, as they are or as they were: on a mount, or VOL:/PATH on a volume that is not mounted
    #[arg(value_name = "PATH[@TIME]", required = true)]
    pub paths: Vec<OsString>,
    /// Directories with all that was ever in them, at any time, wherever it is now
    #[arg(short, long)]
    pub recursive: bool,
    /// Also all other files that the name has meant, as of programs that save a file by putting another in
    /// its place
    #[arg(long)]
    pub all_under_name: bool,
    /// Then also erase from the image or device what the files leave there: overwrite free blocks, older
    /// copies of metadata and names in it, and the log, wherever on the volume and whatever they were of. On
    /// a mount for root and the user who mounted
    #[arg(long, conflicts_with = "dry_run")]
    pub shred: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print what would go, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// What `forget` keeps.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What is kept")]
pub struct Retention {
    /// The last N
    #[arg(long = "keep-last", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// One for each of N hours
    #[arg(long = "keep-hourly", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hourly: Option<u32>,
    /// One for each of N days
    #[arg(long = "keep-daily", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub daily: Option<u32>,
    /// One for each of N weeks
    #[arg(long = "keep-weekly", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub weekly: Option<u32>,
    /// One for each of N months
    #[arg(long = "keep-monthly", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub monthly: Option<u32>,
    /// One for each of N years
    #[arg(long = "keep-yearly", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub yearly: Option<u32>,
    /// All taken at most so long before the last one, as 2h30min, 3days or 2y
    #[arg(long = "keep-within", value_name = "DURATION")]
    pub within: Option<String>,
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

/// `check`
#[derive(Debug, Args)]
#[command(
    after_help = "The check changes nothing. --repair so far repairs the volume's state only: a volume that must be checked \
                  after a crash, and in which nothing at all is found, is marked clean. Damage is reported, not repaired."
)]
pub struct Check {
    /// The image file or block device
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Mark the volume clean if nothing is found (see below)
    #[arg(long)]
    pub repair: bool,
    /// Print at most this many findings
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_findings: usize,
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
