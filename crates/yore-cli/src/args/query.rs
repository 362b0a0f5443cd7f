//! The arguments of queries.

use super::shared::{Listing, Progress};
use clap::Args;
use std::ffi::OsString;

/// `diff`
#[derive(Debug, Args)]
#[command(
    after_help = "Of each name that differs one line: + added, - removed, M modified, R renamed, RM both. Below a renamed directory \
                  only what changed itself is listed, below an added or removed one all. Directories must be one and the same at both \
                  times, under whatever names; files may be different ones."
)]
pub struct Diff {
    /// A directory or file as of a time, on a mount or on a volume that is not mounted (VOL:/PATH@TIME)
    #[arg(value_name = "PATH@TIME")]
    pub first: OsString,
    /// The same at another time; by default as it is now
    #[arg(value_name = "PATH[@TIME]")]
    pub second: Option<OsString>,
    /// Only how many, and by how many bytes files grew and shrank
    #[arg(long, conflicts_with = "patch")]
    pub stat: bool,
    /// The lines that differ, of text files up to 16 MiB
    #[arg(short, long, conflicts_with_all = ["json", "null"])]
    pub patch: bool,
    /// Exit with status 1 if there are differences
    #[arg(long)]
    pub exit_code: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `status`
#[derive(Debug, Args)]
#[command(after_help = "The letters are those of `yore diff`.")]
pub struct Status {
    /// A directory on a mount; or a volume, or VOL:/PATH, that is not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// Exit with 1 if something changed
    #[arg(long)]
    pub exit_code: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `log`
#[derive(Debug, Args)]
#[command(
    after_help = "Each state that a snapshot has seen, and the present one: the time of the last snapshot that has it, what differs from \
                  the state before (M content, A permissions, owner, attributes or times, R renamed, N a new file took the name, + nothing \
                  before), permissions, size, path, and the first snapshot that has it. Renames are followed. Of a name that means nothing any more the \
                  first line says that it is gone or moved, and by when. What the last check of the volume in use found and left of \
                  the file, whatever names it has by now, comes first (of the root directory: what it found on the volume). Root and the user who mounted \
                  the volume are told.\n\nOn a volume that keeps checksums of file data, a file of which a block is known to be damaged is \
                  verified, because a scrub has found it or because somebody read it on this mount or the one before: its states are read, the latest \
                  first, up to one that is whole. That is named, and `yore restore` brings it back. --verify reads them in any case.\n\n\
                  Exit status with --verify: 0 if the latest state is not damaged, 1 if it is."
)]
pub struct Log {
    /// A file or directory, also one that is gone, on a mount; or VOL:/PATH on a volume that is not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// The latest N only
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub most: Option<u32>,
    /// Read the data of the states, the latest first, up to one that is what was written
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `deleted`
#[derive(Debug, Args)]
#[command(
    after_help = "Of each: the type, the size, and the path with the time behind an @ at which it can be seen, copied and read. Names that \
                  no snapshot has seen, that are there again, or whose file was renamed are not listed."
)]
pub struct Deleted {
    /// A directory on a mount; or a volume, or VOL:/PATH, that is not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: OsString,
    /// All directories below as well, as far as they are there still
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `du`
#[derive(Debug, Args)]
#[command(
    after_help = "Of a directory one line for each snapshot that has seen it: what forgetting this one alone would free of what was below \
                  it, what forgetting it and all before it would, and what other snapshots or the present have, too. Of a file the same for each state that `yore log` lists. What has \
                  not changed since takes nothing. What programs have written counts once it has been written back, at the latest \
                  after sync(1). Live is what files below have, as du(1) counts it, without what the volume needs for itself."
)]
pub struct Du {
    /// Directories or files, on a mount; or volumes, or VOL:/PATH, that are not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub paths: Vec<OsString>,
    /// What history holds (what is in use is for du(1) to tell)
    #[arg(long)]
    pub history: bool,
    #[command(flatten)]
    pub listing: Listing,
}
