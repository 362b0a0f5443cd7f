//! The arguments of `scrub` and `checksums`.

use super::shared::Progress;
use clap::Args;
use std::ffi::OsString;

/// `scrub`
#[derive(Debug, Args)]
#[command(
    after_help = "All metadata is read and verified, and all file data of a volume that keeps checksums (yore mkfs --data-checksums, \
                  yore checksums): the present and the past, whatever memory has of it. No file is changed. Each damaged block is \
                  told with its file and the offset in it; if the file had another block there before, with the last event until \
                  which it did: yore log names that state, and yore restore brings it back.\n\nHow far it is stands on the volume. \
                  A scrub that was interrupted, or that a crash has ended, goes on there when it is called again, and tells \
                  at its end what it had found before; yore info shows how far it is and how the last one ended. On a mount for \
                  reading only, and on a volume to which the user may not write, nothing is recorded; then --from goes on. \
                  yore-scrub@NAME.timer asks once a day, and after each boot, whether a scrub is due.\n\n\
                  At the end it is told how much data has no checksum, and so was not verified (yore checksums --enable gives it one).\n\n\
                  Exit status: 0 if nothing is damaged, or none is due, 1 if something is damaged, 6 if it was broken off."
)]
pub struct ScrubArgs {
    /// A mount, or a volume that is not mounted
    #[arg(value_name = "VOLUME")]
    pub path: OsString,
    /// Read no more than this in a second (as 50M)
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::parse_size)]
    pub rate: Option<u64>,
    /// Begin anew, and do not go on where the last scrub was broken off
    #[arg(long, conflicts_with = "from")]
    pub restart: bool,
    /// Go on with a scrub that was broken off, or begin one if the last ended longer ago than this (as 30d);
    /// otherwise do nothing
    #[arg(long, value_name = "AGE", conflicts_with_all = ["restart", "from"])]
    pub due: Option<String>,
    /// Read the data from this block on only, and record nothing (0: read everything)
    #[arg(long, value_name = "BLOCK")]
    pub from: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
}

/// `checksums`
#[derive(Debug, Args)]
#[command(
    after_help = "With --enable the volume keeps a checksum of each block of file data from then on, and what is read is verified. All \
                  data that has none gets one, while the volume is used; that of the past, too. If this is interrupted, do it \
                  again: it goes on where it was. Older versions of yore cannot use the volume any more. File data is not \
                  overwritten in place any more, so overwriting needs room. Not under the engine none."
)]
pub struct ChecksumsArgs {
    /// A mount, or a volume that is not mounted
    #[arg(value_name = "VOLUME")]
    pub path: OsString,
    /// Keep checksums from now on
    #[arg(long)]
    pub enable: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: Progress,
}
