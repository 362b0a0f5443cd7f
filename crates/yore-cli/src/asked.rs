//! Where a command asks about a directory, or about a file in one: the daemon of a mount, or the library on a
//! volume opened here. The questions are the same in both cases.

use crate::opened;
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use yore_control::{Client, Here, Mounted};
use yore_fs::{Error, EventNo, FileKind, ListedEvent, Result, Volume};

/// This bit is set in the inode numbers that a mount shows for files of the past.
const PAST: u64 = 1 << 63;

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
}
