//! Whom a command asks about a directory, or about a file in one: the daemon of a mount, or the library on a
//! volume opened here. A command asks the same in both cases.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use yore_control::{Client, Here, Mounted};
use yore_fs::{Error, EventNo, FileKind, ListedEvent, Result, Volume};

/// A directory that can be asked, and perhaps a file in it that is meant.
pub struct Asked<'a> {
    client: Box<dyn Client + 'a>,
    file: Option<Vec<u8>>,
}

impl<'a> Asked<'a> {
    /// An open directory of a mount, or a file in it.
    pub fn on_mount(dir: impl AsFd + 'a, file: Option<&OsStr>) -> Asked<'a> {
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

    /// Whether a file is meant, or what is gone, and not the directory.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// All snapshots that concern the directory, or all versions of the file.
    ///
    /// # Errors
    /// As [`Client::snapshots`] and [`Client::versions`]; so for all here.
    pub fn list(&self) -> Result<Vec<ListedEvent>> {
        match &self.file {
            None => self.client.all_snapshots(),
            Some(file) => self.client.all_versions(file),
        }
    }

    /// The snapshot of the list that has a number.
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
/// There is nothing of the path.
pub fn here(volume: &Volume, directory: &Path) -> Result<Here> {
    let node = volume.node(directory)?;
    Ok(Here::new(&volume.view().of(&node), node.inode()))
}
