//! Arguments that many commands have.

use clap::Args;

/// How lists are printed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Listing {
    /// Print JSON
    #[arg(long, conflicts_with = "null")]
    pub json: bool,
    /// Print names as they are, each ended by a zero byte; in lines control characters, and what is no text,
    /// are written as \x1b
    #[arg(short = '0', long = "null")]
    pub null: bool,
    /// Print times in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
}

/// How progress is told.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Progress {
    /// Write progress as JSON lines to this open file descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub progress_fd: Option<i32>,
    /// Show no progress bar
    #[arg(short, long)]
    pub quiet: bool,
}
