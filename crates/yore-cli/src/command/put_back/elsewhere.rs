//! Copies of an earlier state outside of the mount or volume: on the host, on another mount, or on another
//! volume.

use super::ground::Ground;
use super::paths::{is_listed, tell};
use crate::args;
use crate::command::copy::Copy;
use crate::command::files::on_volume;
use crate::opened::directory_of;
use crate::output::{bytes_of, List};
use crate::side::anchored::Anchored;
use crate::side::{OnVolume as VolumeSide, Side};
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Copies an earlier state to a name that does not exist yet, or into a directory.
pub fn put(
    ground: &Ground,
    then: &Path,
    name: &[u8],
    to: &OsStr,
    args: &args::Restore,
    list: &mut List,
) -> anyhow::Result<()> {
    let Some(other) = OnVolume::split_unless_there(to) else {
        let owners = rustix::process::geteuid().is_root();
        let host = Anchored::new(None);
        let dest = free_name(&host, PathBuf::from(to), name)?;
        return copy(ground, then, (&host, dest), owners, args, list);
    };
    on_volume(&other.volume, Access::of(!args.dry_run), |volume| {
        let side = VolumeSide::new(volume, &other.volume);
        let dest = free_name(&side, other.path, name)?;
        copy(ground, then, (&side, dest), true, args, list)
    })
}

fn copy(
    ground: &Ground,
    then: &Path,
    (target, dest): (&dyn Side, PathBuf),
    owners: bool,
    args: &args::Restore,
    list: &mut List,
) -> anyhow::Result<()> {
    if is_listed(args.dry_run, list) {
        tell(list, "+  ", "added", bytes_of(&dest))?;
    }
    if args.dry_run {
        return Ok(());
    }
    let mut copy = Copy::of_the_past(owners, args.progress)?;
    copy.expect(ground.side(), &[then]);
    let shown = target.name(&dest);
    let done = copy.tree(ground.side(), then.to_path_buf(), target, dest);
    copy.finish();
    done.with_context(|| {
        format!("{} could not be copied; what was copied so far stays in {shown}", ground.name(then))
    })
}

/// The name of a copy: the wanted path, or a name in it if it is a directory.
pub fn free_name(side: &dyn Side, wanted: PathBuf, name: &[u8]) -> anyhow::Result<PathBuf> {
    let dest = match side.is_directory(&wanted) {
        true => wanted.join(OsStr::from_bytes(name)),
        false => wanted,
    };
    side.start_from(directory_of(&dest))?;
    anyhow::ensure!(
        side.facts(&dest)?.is_none(),
        "{} is there already; name what is not, or a directory to put it into",
        side.name(&dest)
    );
    let above = directory_of(&dest);
    anyhow::ensure!(side.is_directory(above), "{} is not a directory; make it first", side.name(above));
    Ok(dest)
}
