//! Open files.

use super::handle::Volume;
use super::metadata::Metadata;
use super::path::{self, bytes_of, Links};
use crate::history::record::is_full;
use crate::{Caller, Error, InodeNo, Node, Result, SeekTo, SetAttr, View, WriteMode};
use parking_lot::Mutex;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use yore_format::FileKind;

/// How to open a file; the same rules as `std::fs::OpenOptions`.
///
/// ```
/// use yore_fs::{OpenOptions, Volume};
///
/// # fn main() -> yore_fs::Result<()> {
/// let volume = Volume::memory(32 << 20)?;
/// let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&volume, "secret")?;
/// file.write_at(b"x", 0)?;
/// assert!(OpenOptions::new().write(true).create_new(true).open(&volume, "secret").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing set; permissions 0666 for a file that is created.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// For reading.
    pub fn read(&mut self, yes: bool) -> &mut OpenOptions {
        self.read = yes;
        self
    }

    /// For writing.
    pub fn write(&mut self, yes: bool) -> &mut OpenOptions {
        self.write = yes;
        self
    }

    /// For writing, every write at the end.
    pub fn append(&mut self, yes: bool) -> &mut OpenOptions {
        self.append = yes;
        self
    }

    /// Truncates the file to nothing when it is opened; needs `write`.
    pub fn truncate(&mut self, yes: bool) -> &mut OpenOptions {
        self.truncate = yes;
        self
    }

    /// Creates the file if it does not exist; needs `write` or `append`.
    pub fn create(&mut self, yes: bool) -> &mut OpenOptions {
        self.create = yes;
        self
    }

    /// Creates the file, and fails if it exists; needs `write` or `append`.
    pub fn create_new(&mut self, yes: bool) -> &mut OpenOptions {
        self.create_new = yes;
        self
    }

    /// Permissions of a file that is created, before the umask.
    pub fn mode(&mut self, permissions: u32) -> &mut OpenOptions {
        self.mode = permissions;
        self
    }

    /// Opens `path`. A directory can be opened for reading, to read its metadata or to sync it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] with `create_new`, [`Error::IsADirectory`] for writing,
    /// [`Error::Invalid`] for combinations without meaning, [`Error::Unsupported`] for pipes, sockets and
    /// devices.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.open_inner(volume, path).map_err(|error| error.on_path("cannot open", bytes_of(path)))
    }

    fn open_inner(&self, volume: &Volume, path: &Path) -> Result<File> {
        let writes = self.write || self.append;
        if !writes && !self.read {
            return Err(Error::Invalid { what: "open for reading, writing or appending" });
        }
        if (self.create || self.create_new || self.truncate) && !writes {
            return Err(Error::Invalid { what: "creating and truncating need write access" });
        }
        if self.truncate && self.append && !self.create_new {
            return Err(Error::Invalid { what: "appending and truncating exclude each other" });
        }
        let node = self.node(volume, path)?;
        match node.attr().kind {
            FileKind::Regular => {}
            FileKind::Directory if writes => return Err(Error::IsADirectory),
            FileKind::Directory => {}
            FileKind::Symlink => return Err(Error::Loop),
            _ => return Err(Error::Unsupported { what: "pipes, sockets and devices have no content here" }),
        }
        let view = volume.view().of(&node).into_owned();
        if writes && view.read_only() {
            return Err(Error::ReadOnly);
        }
        let file = File {
            view,
            caller: *volume.caller(),
            node,
            readable: self.read,
            writable: writes,
            append: self.append,
            position: Mutex::new(0),
        };
        if self.truncate && file.node.attr().size > 0 {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Finds or creates the inode. If somebody else creates it in the meantime, looks it up again.
    fn node(&self, volume: &Volume, path: &Path) -> Result<Node> {
        let view = volume.view();
        let links = if self.create_new { Links::NoFollow } else { Links::Follow };
        loop {
            let located = path::locate(view, bytes_of(path), links)?;
            if located.found.is_some() && self.create_new {
                return Err(Error::Exists);
            }
            if let Some(node) = located.found {
                return Ok(node);
            }
            if !self.create && !self.create_new {
                return Err(Error::NotFound);
            }
            if located.slash {
                return Err(Error::IsADirectory);
            }
            let (directory, name) = located.into_named("it is the root directory")?;
            let made = view.of(&directory).create(
                volume.caller(),
                directory.inode(),
                &name,
                FileKind::Regular,
                self.mode & 0o7777,
                0,
            );
            match made {
                Err(Error::Exists) if !self.create_new => continue,
                other => return other,
            }
        }
    }
}

/// An open file on a volume, with a position. Dropping it closes it; [`View::closed`] says what went wrong
/// then. It stays usable after its last name was removed.
///
/// Implements [`Read`], [`Write`] and [`Seek`], also for `&File`; `read_at` and `write_at` leave the position
/// alone.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
/// use yore_fs::{File, OpenOptions, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Volume::memory(32 << 20)?;
/// let mut file = OpenOptions::new().read(true).write(true).create(true).open(&volume, "poem")?;
/// file.write_all(b"roses are red")?;
/// file.seek(SeekFrom::Start(6))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "are red");
/// file.sync_all()?; // from here on no crash can take it
/// # Ok(())
/// # }
/// ```
pub struct File {
    view: View,
    caller: Caller,
    node: Node,
    readable: bool,
    writable: bool,
    append: bool,
    /// Held across a read or write that uses the position, so that threads that share the file do not see
    /// half a step.
    position: Mutex<u64>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("inode", &self.node.inode()).finish_non_exhaustive()
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(volume, path)
    }

    /// Opens a file for writing, and creates it or truncates it to nothing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(volume, path)
    }

    /// The inode, for use with [`View`].
    pub fn inode(&self) -> InodeNo {
        self.node.inode()
    }

    /// The attributes now.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Corruption`].
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata::new(self.view.getattr(self.inode())?))
    }

    /// Reads from `offset` into `buf`; reads fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file was not opened for reading, [`Error::IsADirectory`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.check_readable()?;
        if self.node.attr().kind == FileKind::Directory {
            return Err(Error::IsADirectory);
        }
        self.node.read(offset, buf)
    }

    /// Copies up to `len` bytes from an offset of another file of the volume, which may be one of the past,
    /// to the same offset of this one. Blocks are shared where that can be. Returns how many bytes were
    /// copied: fewer at the end of `source`, and none from another volume or to a file that was opened for
    /// appending.
    ///
    /// # Errors
    /// As [`File::read_at`] of `source` and [`File::write_at`].
    pub fn copy_from(&self, source: &File, offset: u64, len: u64) -> Result<u64> {
        if self.append || !self.view.is_of_same_volume(&source.view) {
            return Ok(0);
        }
        self.check_writable()?;
        source.check_readable()?;
        if !self.caller.keeps_set_id && len > 0 && offset < source.metadata()?.len() {
            // As with a write, before the content changes: a crash between the two must not show new content
            // under old privileges.
            let set = SetAttr { kill_set_id: true, ..SetAttr::default() };
            self.view.setattr(&self.caller, self.inode(), &set)?;
        }
        let range = ((source.inode(), offset), (self.inode(), offset));
        self.view.copy_from(&source.view, range.0, range.1, (len, u64::MAX))
    }

    fn check_readable(&self) -> Result<()> {
        match self.readable {
            true => Ok(()),
            false => Err(Error::NotPermitted { what: "the file was not opened for reading" }),
        }
    }

    fn check_writable(&self) -> Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(Error::NotPermitted { what: "the file was not opened for writing" }),
        }
    }

    /// Writes all of `data` at `offset`, or at the end if the file was opened for appending. Returns where it
    /// was written.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file was not opened for writing, [`Error::NoSpace`],
    /// [`Error::FileTooLarge`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<u64> {
        self.check_writable()?;
        let mode = WriteMode { append: self.append, kill_set_id: !self.caller.keeps_set_id };
        self.node.write(offset, data, mode)
    }

    /// The next stretch of data (not a hole) at or after `offset`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Corruption`].
    pub fn data_from(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let start = match self.view.seek(self.inode(), offset, SeekTo::Data) {
            Ok(start) => start,
            Err(Error::NoDataThere) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.view.seek(self.inode(), start, SeekTo::Hole) {
            Ok(end) => Ok(Some(start..end)),
            // Somebody else truncated the file in the meantime.
            Err(Error::NoDataThere) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Truncates the file to `size` bytes or extends it with a hole.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file was not opened for writing, [`Error::FileTooLarge`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.check_writable()?;
        let set = SetAttr { size: Some(size), kill_set_id: !self.caller.keeps_set_id, ..SetAttr::default() };
        self.view.setattr(&self.caller, self.inode(), &set).map(|_| ())
    }

    /// The view in which it was opened.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Puts the content, the attributes, and the name under which the file was created on the medium before
    /// it returns.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`]: then it is not known what is on the medium.
    pub fn sync_all(&self) -> Result<()> {
        self.view.fsync(self.inode(), false)
    }

    /// As [`File::sync_all`], without attributes that are not needed to read the content.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.view.fsync(self.inode(), true)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.writable {
            return;
        }
        // A full volume reports missing versions once, and not for each file.
        match self.view.closed(self.inode()) {
            Err(error) if !is_full(&error) => {
                tracing::error!("no version of inode {} was made when it was closed: {error}", self.inode());
            }
            _ => {}
        }
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let count = self.read_at(buf, *position)?;
        *position += count as u64;
        Ok(count)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let start = self.write_at(data, *position)?;
        *position = start + data.len() as u64;
        Ok(data.len())
    }

    /// This type holds nothing back; use [`File::sync_all`] to wait for the medium.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let (base, offset) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(offset) => (*position, offset),
            SeekFrom::End(offset) => (self.view.getattr(self.inode())?.size, offset),
        };
        let target = base.checked_add_signed(offset);
        *position = target.ok_or(Error::Invalid { what: "a position before the start of the file" })?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
