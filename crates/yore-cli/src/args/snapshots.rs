//! The arguments of commands that make, list, keep and give up history.

use super::shared::{Listing, Progress};
use clap::Args;
use std::ffi::OsString;

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
    // This must be the last field: in the help, later ones would come under its heading.
    #[command(flatten)]
    pub retention: Retention,
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
