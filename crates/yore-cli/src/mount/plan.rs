//! What to mount and where, and what the daemon tells the process that started it.

use super::options::Options;
use super::snapshot::At;
use crate::args;
use crate::status;
use crate::volume::OnVolume;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What to mount and where, with absolute paths.
#[derive(Clone, Debug)]
pub struct Plan {
    pub volume: PathBuf,
    pub directory: PathBuf,
    /// The snapshot to mount instead of the present.
    pub at: Option<At>,
    pub options: Options,
}

/// What the daemon tells the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// It is mounted, perhaps with a warning.
    Ready {
        warning: Option<String>,
    },
    Failed {
        message: String,
        status: u8,
    },
}

impl Plan {
    /// What the command line asks for.
    pub fn of(args: &args::Mount, mut options: Options) -> anyhow::Result<Plan> {
        let (volume, at) = what(args)?;
        if at.is_some() {
            if options.snapdir.is_some() {
                return Err(status::usage(
                    "mount option snapdir: a snapshot has no snapshots; leave it or --at out",
                ));
            }
            options.read_only = true;
        }
        let volume = volume.canonicalize().map_err(|error| {
            let name = volume.display();
            match error.kind() {
                ErrorKind::NotFound => anyhow::anyhow!(
                    "{name} does not exist; check the path, or make a volume there with `yore mkfs {name} --size 10G`"
                ),
                _ => anyhow::anyhow!("cannot look at {name}: {error}"),
            }
        })?;
        let directory = absolute_directory(&args.directory)?;
        if let Some(log) = options.log.take() {
            let absolute = std::path::absolute(&log);
            options.log = Some(absolute.with_context(|| format!("cannot find {}", log.display()))?);
        }
        Ok(Plan { volume, directory, at, options })
    }
}

/// The volume, and which snapshot of it is wanted, if one is.
fn what(args: &args::Mount) -> anyhow::Result<(PathBuf, Option<At>)> {
    let on = OnVolume::split(args.volume.as_os_str()).filter(|_| !args.volume.exists());
    match (on, &args.at) {
        (None, None) => Ok((args.volume.clone(), None)),
        (None, Some(text)) => Ok((args.volume.clone(), Some(At::parse(Path::new("/"), text)?))),
        (Some(on), Some(text)) => Ok((on.volume, Some(At::parse(&on.path, text)?))),
        (Some(on), None) => Err(status::usage(format!(
            "{} names a directory on a volume: that can be mounted as of a time (--at TIME); of the present the whole volume \
             is (yore mount {})",
            args.volume.display(),
            on.volume.display()
        ))),
    }
}

/// The directory's absolute path. The directory itself may be a dead mount, on which every call fails.
pub fn absolute_directory(directory: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(path) = directory.canonicalize() {
        return Ok(path);
    }
    let cannot = || format!("cannot find {}", directory.display());
    let path = std::path::absolute(directory).with_context(cannot)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().with_context(cannot)?.join(name)),
        _ => Ok(path),
    }
}
