//! `cat`, `mkdir`, `rm`.

use super::copy;
use crate::args;
use crate::nearest;
use crate::output::{bytes_of, printable, Out};
use crate::status::{self, Outcome};
use crate::timed_path::root_of;
use crate::volume::{self, Access, OnVolume};
use anyhow::Context as _;
use std::path::Path;
use yore_fs::{Error, Volume};

/// Does something on a volume, then closes it, whatever the outcome: work done before an error stays.
pub fn on_volume<T>(
    name: &Path,
    access: Access,
    work: impl FnOnce(&Volume) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let volume = volume::open(name, access)?;
    let done = work(&volume).map_err(|error| nearest::with_names(error, &volume));
    let closed = volume.close().with_context(|| format!("cannot close {}", name.display()));
    match (done, closed) {
        (Ok(value), Ok(())) => Ok(value),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// Writes files to standard output.
pub fn cat(args: &args::Cat) -> Outcome {
    let mut buffer = Vec::new();
    for operand in &args.paths {
        let on = OnVolume::parse(operand)?;
        on_volume(&on.volume, Access::Read, |volume| copy::to_output(volume, &on.path, &mut buffer))?;
    }
    Ok(status::OK)
}

/// Makes directories.
pub fn mkdir(args: &args::Mkdir) -> Outcome {
    let (name, paths) = OnVolume::parse_all(&args.paths)?;
    on_volume(&name, Access::Write, |volume| {
        for path in &paths {
            let existed = args.parents && volume.exists(path)?;
            if args.parents {
                volume.create_dir_all(path)?;
            } else {
                volume.create_dir(path).map_err(with_parents)?;
            }
            if let Some(mode) = args.mode.filter(|_| !existed) {
                volume.set_permissions(path, mode)?;
            }
        }
        Ok(())
    })?;
    Ok(status::OK)
}

/// Says how to make missing directories above.
fn with_parents(error: Error) -> anyhow::Error {
    let is_missing = matches!(error.root(), Error::NotFound);
    let error = anyhow::Error::from(error);
    match is_missing {
        true => anyhow::anyhow!("{}; -p makes those above, too", status::message(&error)),
        false => error,
    }
}

/// Removes files.
pub fn rm(args: &args::Rm) -> Outcome {
    let (name, paths) = OnVolume::parse_all(&args.paths)?;
    on_volume(&name, Access::Write, |volume| {
        let mut out = Out::new();
        let mut told = Ok(());
        for path in &paths {
            let mut tell = |path: &Path| {
                if args.verbose && told.is_ok() {
                    told = out.line(printable(bytes_of(path)));
                }
            };
            match remove(volume, args, path, &mut tell) {
                Err(error) if args.force && matches!(root_of(&error), Some(Error::NotFound)) => {}
                other => other?,
            }
        }
        told?;
        out.done()
    })?;
    Ok(status::OK)
}

fn remove(volume: &Volume, args: &args::Rm, path: &Path, tell: &mut dyn FnMut(&Path)) -> anyhow::Result<()> {
    if args.recursive {
        return Ok(volume.remove_dir_all_with(path, tell)?);
    }
    if volume.symlink_metadata(path)?.is_dir() {
        if !args.dir {
            return Err(status::usage(format!(
                "{} is a directory; remove it with -r (and all that is in it) or -d (if it is empty)",
                path.display()
            )));
        }
        volume.remove_dir(path)?;
    } else {
        volume.remove_file(path)?;
    }
    tell(path);
    Ok(())
}
