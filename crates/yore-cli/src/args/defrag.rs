//! The arguments of `defrag`.

use super::shared::Progress;
use clap::Args;
use std::ffi::OsString;

/// `defrag`
#[derive(Debug, Args)]
#[command(
    after_help = "4 MiB of a file are scattered if they lie in more than eight pieces; what is shorter, if its pieces are shorter than \
                  512 KiB and more than four. They are copied to where there is room for them in one piece. Neither content nor times \
                  change, and the past stays as it is. What snapshots have, too, becomes theirs alone: by that much history grows. \
                  Blocks that files share stay where they are. The daemon of a mount does all this by itself when nobody works, as \
                  far as there is plenty of room (mount option nodefrag: never)."
)]
pub struct Defrag {
    /// Files or directories, with all that is below them, on a mount; or volumes, or VOL:/PATH, that are not
    /// mounted
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
    /// Only say in how many pieces files lie, and what it would take
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
}
