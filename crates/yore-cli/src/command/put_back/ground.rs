//! The mount or volume on which a command puts the past back: its files as a [`Side`], and its answers about
//! history.

use crate::args;
use crate::asked::Paths;
use crate::command::copy::Copy;
use crate::command::files::on_volume;
use crate::command::operand::split_root;
use crate::command::query::{cannot_compare, no_answer, not_both};
use crate::live;
use crate::opened;
use crate::side::anchored::Anchored;
use crate::side::{OnVolume as VolumeSide, Side};
use crate::timed_path::root_of;
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client, Here, Identity, Mounted, Take};
use yore_fs::rollback::{Plan, RolledBack};
use yore_fs::{Difference, Error, EventNo, ListedEvent, Logged, Volume};

/// A mount, or a volume that this process has opened.
pub struct Ground {
    side: Box<dyn Side>,
    volume: Option<Volume>,
}

/// Keeps the snapshot that a command reads from, or to which `undo` goes back. It is not forgotten while this
/// value lives; on a mount, not while the process lives.
#[must_use]
pub struct Pinned(#[expect(dead_code, reason = "it is kept as long as it lives")] Option<Box<dyn Client>>);

/// Where an operand leads: to a path of a mount, or to a path on a volume that is not mounted.
pub enum Where {
    Mounted(PathBuf),
    Free(OnVolume),
}

impl Where {
    /// Finds what an operand names, with a time or without.
    pub fn find(operand: &OsStr) -> anyhow::Result<Where> {
        let path = Path::new(operand);
        if fs::symlink_metadata(path).is_err() {
            if let Some(on) = OnVolume::split(operand) {
                return Ok(Where::Free(on));
            }
            if let Some((root, past)) = split_root(path) {
                return Ok(match fs::metadata(&root)?.is_dir() {
                    true => Where::Mounted(root.join(past)),
                    false => Where::Free(OnVolume { volume: root, path: Path::new("/").join(past) }),
                });
            }
        } else if !fs::metadata(path).is_ok_and(|found| found.is_dir()) && !is_on_mount(path) {
            return Ok(Where::Free(OnVolume { volume: path.into(), path: "/".into() }));
        }
        let absolute =
            std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
        anyhow::ensure!(
            is_on_mount(&absolute),
            "{} is not on a mounted volume; name what is, or a path on a volume (volume.yore:/letters)",
            path.display()
        );
        Ok(Where::Mounted(absolute))
    }

    /// Does some work there, and closes the volume whether or not that succeeds.
    pub fn with<T>(
        &self,
        access: Access,
        work: impl FnOnce(&Ground, &Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match self {
            Where::Mounted(path) => {
                // The kernel's table names the mount; a path to it may lead elsewhere the next time.
                let device = mount_of(path).map(|mount| rustix::fs::makedev(0, mount.connection));
                work(&Ground { side: Box::new(Anchored::new(device)), volume: None }, path)
            }
            Where::Free(on) => on_volume(&on.volume, access, |volume| {
                let side = Box::new(VolumeSide::new(volume, &on.volume));
                work(&Ground { side, volume: Some(volume.clone()) }, &on.path)
            }),
        }
    }
}

/// Whether a path is on a mount; if it does not exist, whether the nearest directory above it is.
fn is_on_mount(path: &Path) -> bool {
    mount_of(path).is_some()
}

/// Whether two paths are on one mount. The nearest directory above counts for a path that does not exist.
pub fn is_same_mount(a: &Path, b: &Path) -> bool {
    mount_of(a).is_some_and(|of| mount_of(b).is_some_and(|other| other.directory == of.directory))
}

fn mount_of(path: &Path) -> Option<live::Mount> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    absolute.ancestors().find(|above| above.is_dir()).and_then(live::mount_at)
}

impl Ground {
    /// Any directories of the host in place of a mount.
    #[cfg(test)]
    pub fn of_host() -> Ground {
        Ground { side: Box::new(Anchored::new(None)), volume: None }
    }

    /// The files of the mount or volume.
    pub fn side(&self) -> &dyn Side {
        self.side.as_ref()
    }

    /// A path as messages name it.
    pub fn name(&self, path: &Path) -> String {
        self.side.name(path)
    }

    /// Makes copies here.
    pub fn copy(&self, progress: args::Progress) -> anyhow::Result<Copy> {
        Copy::of_the_past(self.sets_owners(), progress)
    }

    /// Whether the command can set owners: as root, or because it may write to the file of a volume.
    pub fn sets_owners(&self) -> bool {
        self.volume.is_some() || rustix::process::geteuid().is_root()
    }

    /// Where paths of the mount or volume lead.
    fn paths(&self) -> Paths<'_> {
        Paths::on(self.volume.as_ref())
    }

    /// Whether a path leads into the past.
    pub fn is_past(&self, path: &Path) -> bool {
        self.paths().is_past(path)
    }

    /// A path without the times in it.
    pub fn present(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let plain = self.paths().without_times(path)?;
        // `.@TIME` is the directory itself.
        Ok(plain.components().filter(|part| *part != std::path::Component::CurDir).collect())
    }

    /// The client that answers questions about a directory.
    fn client(&self, dir: &Path) -> anyhow::Result<Box<dyn Client>> {
        self.paths().client(dir)
    }

    /// The identity of the directory that a path leads to.
    pub fn identity(&self, path: &Path) -> anyhow::Result<Identity> {
        self.client(path)?.identity().map_err(|error| match error.root() {
            Error::NotADirectory => anyhow::anyhow!("{} is not a directory", self.name(path)),
            _ => no_answer(error),
        })
    }

    /// The differences below a directory between two times.
    pub fn diff(
        &self,
        dir: &Path,
        from: Option<EventNo>,
        to: Option<EventNo>,
    ) -> anyhow::Result<Vec<Difference>> {
        self.client(dir)?.diff(from, to).map_err(|error| cannot_compare(error, &self.name(dir)))
    }

    /// The last state of a path from a directory, which `yore log` lists first. `None` if no snapshot has
    /// seen it.
    pub fn newest(&self, dir: &Path, path: &[u8]) -> anyhow::Result<Option<Logged>> {
        match self.client(dir)?.log(path, Some(1)) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if matches!(error.root(), Error::NotFound) => Ok(None),
            Err(error) => {
                Err(no_answer(error).context(format!("cannot find out what {} was", self.name(dir))))
            }
        }
    }

    /// All snapshots that concern a directory.
    pub fn events(&self, dir: &Path) -> anyhow::Result<Vec<ListedEvent>> {
        Ok(self.client(dir)?.all_snapshots()?)
    }

    /// Keeps the snapshot as of which a path is seen.
    pub fn pin_source(&self, then: &Path) -> anyhow::Result<Pinned> {
        let name = || format!("cannot keep the snapshot of {}", self.name(then));
        let client: Box<dyn Client> = match &self.volume {
            None => match self.open_source(then)? {
                Some(opened) => Box::new(Mounted(opened)),
                None => return Ok(Pinned(None)),
            },
            Some(volume) => {
                let node = volume.symlink_node(then).with_context(name)?;
                Box::new(Here::new(&volume.view().of(&node), node.inode()))
            }
        };
        // If the daemon cannot watch one more process, the snapshot is not pinned, and the command goes on.
        client.pin().with_context(name)?;
        Ok(Pinned(Some(client)))
    }

    /// Opens a file or directory of the past on a mount. For anything else it opens the directory above: a
    /// daemon is not asked through a pipe, and a device is not opened to put it back. `None` if this user may
    /// not open it: such a file cannot be put back, and a later check reports that.
    fn open_source(&self, then: &Path) -> anyhow::Result<Option<File>> {
        let opened = match opened::itself(then) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => opened::file_or_directory(&self.directory_then(then)?),
            Err(error) => Err(error),
        };
        Ok(opened.ok())
    }

    /// The directory that a name of the past is in, as of the same time.
    fn directory_then(&self, then: &Path) -> anyhow::Result<PathBuf> {
        let dir = opened::directory_of(then);
        let Some(name) = then.file_name() else { return Ok(then.to_path_buf()) };
        let time = match yore_fs::split_time(name.as_bytes()) {
            Some((of, _)) if self.paths().is_at_time(dir, name)? => &name.as_bytes()[of.len()..],
            _ => return Ok(dir.to_path_buf()),
        };
        Ok(dir.join(OsStr::from_bytes(&[b".", time].concat())))
    }

    /// Fails if there is not enough room below a directory, before anything is changed.
    pub fn check_room(&self, dir: &Path, wanted: u64) -> anyhow::Result<()> {
        let available = match self.side.room() {
            Some(room) => room,
            None => {
                let there = dir.ancestors().find(|above| above.is_dir()).unwrap_or(dir);
                let found = rustix::fs::statvfs(there)
                    .with_context(|| format!("cannot ask how much room {} has", self.name(there)))?;
                found.f_bavail.saturating_mul(found.f_frsize)
            }
        };
        match wanted.saturating_sub(available) {
            0 => Ok(()),
            missing => Err(anyhow::Error::new(Error::NeverFits { missing }).context("nothing was changed")),
        }
    }

    /// Takes an undo point of a directory, durable when this returns. `None` if another event has the name.
    /// If it `stays`, it is not forgotten while the returned value lives; on a mount, not while this process
    /// lives.
    pub fn undo_point(&self, dir: &Path, name: &str, stays: bool) -> anyhow::Result<Option<Pinned>> {
        let client = self.client(dir)?;
        match client.take(Take { name: name.into(), undo: true, wait: true, stays, ..Take::default() }) {
            Ok(_) => Ok(Some(Pinned(Some(client)))),
            Err(Error::Exists) => Ok(None),
            Err(error) => Err(anyhow::Error::new(error)
                .context(format!("cannot take a snapshot of {} to be able to undo it", self.name(dir)))),
        }
    }

    /// Rolls a directory back, in one operation of the process that has the volume open.
    pub fn rollback(&self, dir: &Path, plan: &Plan) -> anyhow::Result<RolledBack> {
        let shown = self.name(dir);
        self.client(dir)?.roll_back(plan).map_err(|error| match error {
            Error::Unfinished { name, source } => anyhow::Error::new(*source).context(format!(
                "{} did not end; what was done so far stays. Do it again to finish it, or go back with `yore rollback \
                 {shown}/.@before-{name}`",
                plan.verb.text()
            )),
            Error::NotFound => not_both(&shown),
            error => not_begun(error.into(), &shown),
        })
    }

    /// Rollbacks of a directory that did not end.
    pub fn unfinished(&self, dir: &Path) -> anyhow::Result<Vec<String>> {
        let Identity { inode, incarnation, .. } = self.identity(dir)?;
        let all = self.client(dir)?.unfinished_rollbacks()?.into_iter().map(|(one, _)| one);
        let here = all.filter(|one| (one.directory, one.incarnation) == (inode, incarnation.0));
        Ok(here.map(|one| one.name).collect())
    }

    /// The directory above on the same mount or volume.
    pub fn above(&self, dir: &Path) -> anyhow::Result<Option<PathBuf>> {
        if let Some(volume) = &self.volume {
            return Ok(volume.canonicalize(dir)?.parent().map(Path::to_path_buf));
        }
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        Ok(if live::is_mounted(&dir) { None } else { dir.parent().map(Path::to_path_buf) })
    }

    /// Refuses a directory below which something else is mounted, since that is not part of the volume.
    pub fn check_nothing_mounted_below(&self, dir: &Path) -> anyhow::Result<()> {
        if self.volume.is_some() {
            return Ok(());
        }
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        let below = live::mount_points().into_iter().find(|at| *at != dir && at.starts_with(&dir));
        match below {
            None => Ok(()),
            Some(at) => {
                anyhow::bail!("{} is mounted below {}; unmount it first", at.display(), dir.display())
            }
        }
    }

    /// Refuses a directory in which the user may not change names.
    pub fn check_writable(&self, dir: &Path) -> anyhow::Result<()> {
        if self.volume.is_some() {
            return Ok(());
        }
        let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::accessat(rustix::fs::CWD, dir, wanted, rustix::fs::AtFlags::EACCESS)
            .with_context(|| format!("nothing was changed: cannot change {}", self.name(dir)))
    }
}

/// The message about a rollback that changed nothing.
fn not_begun(error: anyhow::Error, shown: &str) -> anyhow::Error {
    let is_full = matches!(root_of(&error), Some(Error::NoSpace | Error::NeverFits { .. }));
    error.context(match is_full {
        true => format!(
            "nothing was changed: what comes back to {shown} needs room of its own, for all that is there now stays in the snapshot before"
        ),
        false => format!("cannot roll back {shown}"),
    })
}
