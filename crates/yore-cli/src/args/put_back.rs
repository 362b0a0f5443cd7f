//! The arguments of commands that put the past back.

use super::shared::{Listing, Progress};
use clap::Args;
use std::ffi::OsString;

/// `restore`
#[derive(Debug, Args)]
#[command(
    after_help = "What has these names now is replaced, names that came since are left alone. What was done can be undone: `yore undo`."
)]
pub struct Restore {
    /// Files or directories as of a time, on a mount or on a volume that is not mounted (VOL:/PATH@TIME)
    #[arg(value_name = "PATH@TIME", required = true)]
    pub paths: Vec<OsString>,
    /// Put a copy there instead, on this volume or elsewhere: a name that nothing has, or a directory to put
    /// it into
    #[arg(long, value_name = "DEST")]
    pub to: Option<OsString>,
    /// Only print what would be done, in the letters of `yore diff`
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `undelete`
#[derive(Debug, Args)]
#[command(after_help = "`yore deleted DIR` lists what is gone.")]
pub struct Undelete {
    /// Names that are gone, on a mount or on a volume that is not mounted (VOL:/PATH)
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub listing: Listing,
    #[command(flatten)]
    pub progress: Progress,
}

/// `rollback`
#[derive(Debug, Args)]
#[command(
    after_help = "What was added since is removed, what was removed is back, what was changed or renamed is as it was. Snapshots taken \
                  since are kept, and `yore undo` undoes it."
)]
pub struct Rollback {
    /// A directory as of a time, on a mount or on a volume that is not mounted (VOL:/PATH@TIME)
    #[arg(value_name = "DIR@TIME")]
    pub path: OsString,
    /// Only print what would be done, in the letters of `yore diff`
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `undo`
#[derive(Debug, Args)]
#[command(
    after_help = "Of DIR itself, or else of the nearest directory above in which something can be undone. What was changed since by others \
                  is left alone, and listed."
)]
pub struct Undo {
    /// A directory on a mount; or a volume, or VOL:/PATH, that is not mounted
    #[arg(value_name = "DIR", default_value = ".")]
    pub path: OsString,
    /// Also what was changed since: all is as it was before
    #[arg(long)]
    pub force: bool,
    /// Only print what would be done, in the letters of `yore diff`
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `redo`
#[derive(Debug, Args)]
pub struct Redo {
    #[command(flatten)]
    pub undo: Undo,
}
