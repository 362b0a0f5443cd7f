//! Where a command asks about a directory, or about a file in one: the daemon of a mount, or the library on a
//! volume opened here. The questions are the same in both cases.

use crate::opened;
use crate::output::bytes_of;
use crate::timed_path::{NAMED, PAST};
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client, Here, Mounted};
use yore_fs::{resolve_name, split_time, Error, EventNo, FileKind, ListedEvent, Resolved, Result, Volume};

/// A directory that a command asks about, or a file in that directory.
pub struct Asked<'a> {
    client: Box<dyn Client + 'a>,
    file: Option<Vec<u8>>,
}

impl<'a> Asked<'a> {
    /// An open directory of a mount, or a file in it.
    pub fn on_mount(dir: impl AsFd + Sync + 'a, file: Option<&OsStr>) -> Asked<'a> {
        Asked { client: Box::new(Mounted(dir)), file: file.map(|file| file.as_bytes().to_vec()) }
    }

    /// A path of a volume that is open here. For anything but a directory, or for a path that is gone, the
    /// directory above is asked.
    ///
    /// # Errors
    /// Nothing of the path exists.
    pub fn here(volume: &Volume, path: &Path) -> Result<Asked<'a>> {
        let (node, file) = match (volume.node(path), path.parent(), path.file_name()) {
            (Ok(node), _, _) if node.attr().kind == FileKind::Directory => (node, None),
            (_, Some(above), Some(name)) => (volume.node(above)?, Some(name.as_bytes().to_vec())),
            (Ok(_), _, _) => return Err(Error::NotADirectory),
            (Err(error), _, _) => return Err(error),
        };
        let client = Here::new(&volume.view().of(&node), node.inode());
        Ok(Asked { client: Box::new(client), file })
    }

    /// Whom to ask.
    pub fn client(&self) -> &dyn Client {
        self.client.as_ref()
    }

    /// Whether the command asks about a file, or about a name that is gone, and not about the directory.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// All snapshots that concern the directory, or all versions of the file.
    ///
    /// # Errors
    /// As [`Client::snapshots`] and [`Client::versions`]. This holds for all methods here.
    pub fn list(&self) -> Result<Vec<ListedEvent>> {
        match &self.file {
            None => self.client.all_snapshots(),
            Some(file) => self.client.all_versions(file),
        }
    }

    /// The snapshot in the list that has this number.
    pub fn numbered(&self, number: EventNo) -> Result<Option<ListedEvent>> {
        let page = match &self.file {
            None => self.client.snapshots(number)?,
            Some(file) => self.client.versions(file, number)?,
        };
        Ok(page.rows.into_iter().find(|row| row.event.number == number))
    }

    /// The snapshot as of which it is seen; `None` if it is of the present.
    pub fn seen(&self) -> Result<Option<ListedEvent>> {
        match &self.file {
            None => self.client.seen(),
            Some(file) => self.client.version_seen(file),
        }
    }
}

/// Asks about a directory of a volume that is open here.
///
/// # Errors
/// Nothing of the path exists.
pub fn here(volume: &Volume, directory: &Path) -> Result<Here> {
    let node = volume.node(directory)?;
    Ok(Here::new(&volume.view().of(&node), node.inode()))
}

/// Where paths lead: on mounts, or on one volume that is open here.
#[derive(Clone, Copy)]
pub struct Paths<'a>(Option<&'a Volume>);

impl<'a> Paths<'a> {
    /// Paths of the host.
    pub const ON_MOUNTS: Paths<'static> = Paths(None);

    /// Paths of a volume, if there is one; otherwise of the host.
    pub fn on(volume: Option<&'a Volume>) -> Paths<'a> {
        Paths(volume)
    }

    /// Whom to ask about a directory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn client(self, dir: &Path) -> anyhow::Result<Box<dyn Client>> {
        Ok(match self.0 {
            Some(volume) => Box::new(here(volume, dir)?),
            None => {
                let opened = opened::file_or_directory(dir);
                Box::new(Mounted(opened.with_context(|| format!("cannot open {}", dir.display()))?))
            }
        })
    }

    /// Whether a path leads to a directory.
    pub fn is_directory(self, path: &Path) -> bool {
        match self.0 {
            Some(volume) => volume.metadata(path).is_ok_and(|found| found.is_dir()),
            None => path.is_dir(),
        }
    }

    /// Whether a path leads to the past.
    pub fn is_past(self, path: &Path) -> bool {
        match self.0 {
            Some(volume) => volume.symlink_node(path).is_ok_and(|node| node.event().is_some()),
            None => fs::symlink_metadata(path).is_ok_and(|found| found.ino() & PAST != 0),
        }
    }

    /// A path without the times in it. A name that exists wins over a time, in the past, too: it stays as it
    /// is, whatever follows its `@`.
    ///
    /// # Errors
    /// As [`Paths::is_at_time`].
    pub fn without_times(self, path: &Path) -> anyhow::Result<PathBuf> {
        let (mut given, mut plain) = (PathBuf::new(), PathBuf::new());
        for component in path.components() {
            let name = component.as_os_str();
            match split_time(name.as_bytes()) {
                Some((of, _)) if self.is_at_time(&given, name)? => plain.push(OsStr::from_bytes(of)),
                _ => plain.push(name),
            }
            given.push(name);
        }
        Ok(plain)
    }

    /// Whether a name in a directory means what stands before its `@` at another time, since the whole name
    /// is not there.
    ///
    /// # Errors
    /// The directory cannot be searched; or it is of the past and cannot be listed, and the name is that of
    /// no directory.
    pub fn is_at_time(self, dir: &Path, name: &OsStr) -> anyhow::Result<bool> {
        if !self.is_past(&dir.join(name)) {
            return Ok(false);
        }
        match self.0 {
            Some(volume) => {
                let found = is_at_time_here(volume, dir, name);
                found.map_err(|error| error.on_path("cannot look in", bytes_of(dir)).into())
            }
            None => {
                let found = is_at_time_on_mount(dir, name);
                found.with_context(|| format!("cannot look in {}", dir.display()))
            }
        }
    }
}

fn is_at_time_here(volume: &Volume, dir: &Path, name: &OsStr) -> Result<bool> {
    let (dir, name) = (volume.node(dir)?, name.as_bytes());
    let seen = volume.view().of(&dir);
    let literal = || seen.lookup(dir.inode(), name);
    let found = resolve_name(name, literal, |of, when| seen.lookup_at(dir.inode(), of, when))?;
    Ok(matches!(found, Resolved::AtTime(_)))
}

/// A look-up does not tell whether a name in the past is there as it stands, or has a time: both lead to the
/// past. A listing tells it, because it has no names with times. Few names have an `@`, so its length does
/// not matter. If the user may search the directory, and not list it, the number of what was found tells it;
/// but only the numbers of directories do, and these are what most ways lead through.
fn is_at_time_on_mount(dir: &Path, name: &OsStr) -> io::Result<bool> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    if fs::metadata(dir)?.ino() & PAST == 0 {
        // A name that is there in the present is of the present.
        return Ok(true);
    }
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let found = fs::symlink_metadata(dir.join(name))?;
            return if found.is_dir() { Ok(found.ino() & NAMED != 0) } else { Err(error) };
        }
        entries => entries?,
    };
    for entry in entries {
        if entry?.file_name() == name {
            return Ok(false);
        }
    }
    Ok(true)
}
