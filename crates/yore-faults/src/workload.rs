//! A sequence of all kinds of operations on a [`sample`](crate::sample) volume, and a small model of what
//! must be there.
//!
//! The model keeps its state after every step, so that the volume after a fault can be compared with the two
//! promises of SEMANTICS.md. First, names and attributes are those after one step, no earlier than the last
//! completed sync or fsync. Second, a file that was not touched since its last sync or fsync has the content
//! of that time. Content touched since is not judged, nor are times.

mod history;
mod model;
mod observe;
mod step;

pub use history::History;
pub use model::{Inode, Model};
pub use observe::{observe, observe_snapshots, Observed};
pub use step::{steps, Step};

use crate::sample::content;
use model::target;
use observe::read_all;
use std::ops::ControlFlow;
use yore_fs::time::When;
use yore_fs::{Caller, FallocateMode, File, FileKind, NewSnapshot, RenameMode, Result, SetXattrMode, Volume};

/// Carries out one step.
///
/// # Errors
/// Those of the call.
///
/// # Panics
/// If there is a `model`, and a read returns other bytes than it has.
pub fn run(volume: &Volume, step: &Step, model: Option<&Model>) -> Result<()> {
    let (view, caller) = (volume.view(), Caller::superuser());
    let find = |path: &str| volume.symlink_node(path);
    match *step {
        Step::Create { path } => {
            let (directory, name) = split(volume, path)?;
            view.create(&caller, directory, name, FileKind::Regular, 0o644, 0).map(drop)
        }
        Step::Mkdir { path } => {
            let (directory, name) = split(volume, path)?;
            view.mkdir(&caller, directory, name, 0o755).map(drop)
        }
        Step::Write { path, offset, len, tag } => {
            let mode = yore_fs::WriteMode { append: false, kill_set_id: false };
            view.write(find(path)?.inode(), offset, &content(tag, len), mode).map(drop)
        }
        Step::Truncate { path, size } => volume.truncate(path, size),
        Step::Punch { path, offset, len } => {
            view.fallocate(find(path)?.inode(), offset, len, FallocateMode::PunchHole)
        }
        Step::Allocate { path, offset, len } => {
            view.fallocate(find(path)?.inode(), offset, len, FallocateMode::Allocate { keep_size: false })
        }
        Step::Symlink { path, len } => {
            let (directory, name) = split(volume, path)?;
            view.symlink(&caller, directory, name, &target(len)).map(drop)
        }
        Step::Link { from, to } => volume.hard_link(from, to),
        Step::Unlink { path } => volume.remove_file(path),
        Step::Rmdir { path } => volume.remove_dir(path),
        Step::Rename { from, to } => volume.rename(from, to),
        Step::Exchange { from, to } => volume.rename_with(from, to, RenameMode::Exchange),
        Step::SetXattr { path, name, len } => {
            let value = content(len as u64, len);
            view.setxattr(find(path)?.inode(), name.as_bytes(), &value, SetXattrMode::Any)
        }
        Step::RemoveXattr { path, name } => view.removexattr(find(path)?.inode(), name.as_bytes()),
        Step::Chmod { path, permissions } => volume.set_permissions(path, permissions),
        Step::Read { path } => {
            let found = File::open(volume, path).and_then(|file| {
                let size = file.metadata()?.attr().size;
                read_all(view, file.inode(), size)
            })?;
            let expected = model.and_then(|model| model.get(path));
            assert!(expected.is_none_or(|inode| inode.content == found), "{path} reads as something else");
            Ok(())
        }
        Step::Fsync { path } => view.fsync(find(path)?.inode(), false),
        Step::Sync => volume.sync(),
        Step::Snapshot { name } => {
            view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) }).map(drop)
        }
        Step::Forget { name } => {
            view.forget(&[view.event_for(view.root(), &When::Named(name.into()))?])?;
            view.finish_forgetting(&mut |_| ControlFlow::Continue(())).map(drop)
        }
    }
}

fn split<'p>(volume: &Volume, path: &'p str) -> Result<(yore_fs::InodeNo, &'p [u8])> {
    match path.rsplit_once('/') {
        Some((directory, name)) => Ok((volume.symlink_node(directory)?.inode(), name.as_bytes())),
        None => Ok((volume.view().root(), path.as_bytes())),
    }
}
