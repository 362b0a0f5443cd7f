//! The arguments of commands that read and change files on a volume.

use super::shared::{Listing, Progress};
use clap::Args;
use std::ffi::OsString;

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
                  preserved; owners only by root, and set-id bits only with owner and group. Of an existing directory as the \
                  last operand the files are put into it. Nothing is copied onto itself or into itself. A symbolic link in \
                  the place of a directory is not followed. What cannot be copied is named, and the rest is copied: exit \
                  status 4 if something is damaged, otherwise 3. `-` is standard input (put) or output (get)."
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
