//! The arguments of `journal`.

use clap::{ArgGroup, Args};
use std::path::PathBuf;

/// `journal`
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("where").args(["to", "inside", "give_up"])),
    after_help = "The log has what was fsynced since metadata was last written, and under the engine journal all changes. Without \
                  an option that changes something, the command says where it is. The volume must not be mounted. A log moves \
                  in one step: a crash leaves the old or the new one, and all that was durable. Programs before Yore's format \
                  2.3 cannot use a volume whose log is elsewhere."
)]
pub struct Journal {
    /// The image file or block device
    #[arg(value_name = "VOL")]
    pub volume: PathBuf,
    /// How long the log shall be, as 4M, 64M. Default: the usual length, or that of what exists there
    #[arg(long, value_parser = crate::parse::parse_size, conflicts_with = "give_up")]
    pub size: Option<u64>,
    /// Move it to this file (made if it is not there) or block device
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,
    /// Move it into the volume
    #[arg(long)]
    pub inside: bool,
    /// Forget a log elsewhere that is gone. What it alone had is lost: what was fsynced since metadata was
    /// last written, and under the engine journal all changes since then. The volume has no log then
    #[arg(long)]
    pub give_up: bool,
    /// Where the log is now, if not where the volume says
    #[arg(long, value_name = "PATH", conflicts_with = "give_up")]
    pub journal: Option<PathBuf>,
    /// With --to: overwrite what is there
    #[arg(long, short, requires = "to")]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
