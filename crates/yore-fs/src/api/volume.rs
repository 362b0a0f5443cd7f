//! Paths: a [`Volume`] is used like `std::fs`, in the process that opened it.
//!
//! Every method takes a path on the volume (any bytes but NUL; a leading `/` may be left out), resolves it to inodes
//! with [`View`], and names the path in its errors. The rules of resolution are those of the system calls:
//! symbolic links are followed (40 of them, then [`Error::Loop`]) except in the last place of calls that say so, `..`
//! is the real parent of the directory reached, and a trailing `/` insists on a directory.
//!
//! **Rights.** Whoever opened the volume may do everything to it: no permission is checked, just as whoever can
//! write to a disk can change any file on it. New files belong to the process's effective user and group and
//! have its umask applied ([`Volume::as_caller`] changes that). Programs that serve several users check before they call.
//!
//! **Several threads** may share a volume, and each call is as atomic as the same call of [`View`]; what is made of
//! several of them (`create_dir_all`, `remove_dir_all`, `copy`, walking) is not.
//!
//! **Durability.** What a call changed is visible at once and on the medium some seconds later; [`File::sync_all`] and
//! [`Volume::sync`] wait for it. [`Volume::close`] reports errors that dropping the volume could not.

mod attributes;
mod dir;
mod file;
mod metadata;
mod names;
mod options;
mod path;
#[cfg(test)]
mod tests;
mod tree;

use crate::{
    Attr, Caller, Error, MkfsOptions, MountOptions, Node, Result, SetAttr, Statfs, View, VolumeInfo,
    WriteMode,
};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_format::FileKind;

pub use dir::{DirEntry, ReadDir};
pub use file::{File, OpenOptions};
pub use metadata::{FileType, Metadata};
pub use tree::{Walk, WalkEntry};

use path::{bytes_of, Links, Place};

/// Bytes copied at a time between a file of the past and one of the present.
const COPY_BYTES: u64 = 1 << 20;

/// An open volume, used by paths in the manner of `std::fs`. Cheap to clone; clones are the same open volume.
///
/// ```
/// use yore_fs::Volume;
///
/// # fn main() -> yore_fs::Result<()> {
/// let volume = Volume::memory(64 << 20)?;
/// volume.create_dir_all("letters/2026")?;
/// volume.write("letters/2026/march.txt", "Dear reader,\n")?;
/// volume.append("letters/2026/march.txt", "nothing is lost.\n")?;
/// assert_eq!(volume.read_to_string("letters/2026/march.txt")?, "Dear reader,\nnothing is lost.\n");
///
/// let names: Vec<_> =
///     volume.read_dir("letters")?.map(|entry| Ok(entry?.file_name())).collect::<yore_fs::Result<_>>()?;
/// assert_eq!(names, ["2026"]);
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Volume {
    view: View,
    caller: Caller,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// # Opening and closing
impl Volume {
    /// Makes a volume on `device` and opens it with default options.
    ///
    /// # Errors
    /// [`Error::Refused`] if a volume is there and `options.force` is not set, or if the device is too small or
    /// read-only; [`Error::Device`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use yore_device::{Device, MemoryDevice};
    /// use yore_fs::{MkfsOptions, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    /// let volume = Volume::create(device.clone(), &MkfsOptions { label: "scratch".into(), ..Default::default() })?;
    /// assert_eq!(volume.info().label, "scratch");
    /// volume.close()?;
    /// assert!(Volume::create(device, &MkfsOptions::default()).is_err(), "it would overwrite a volume");
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(device: Arc<dyn Device>, options: &MkfsOptions) -> Result<Volume> {
        View::mkfs(&device, options)?;
        Volume::open(device, &MountOptions::default())
    }

    /// Opens the volume on `device`.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none that this program can use, [`Error::Corruption`], [`Error::Device`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use yore_device::{Device, MemoryDevice};
    /// use yore_fs::{MkfsOptions, MountOptions, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    /// let volume = Volume::create(device.clone(), &MkfsOptions::default())?;
    /// volume.write("kept", "across opening and closing")?;
    /// volume.close()?;
    ///
    /// let again = Volume::open(device, &MountOptions { read_only: true, ..Default::default() })?;
    /// assert_eq!(again.read("kept")?, b"across opening and closing");
    /// assert!(again.write("kept", "no").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<Volume> {
        Ok(Volume::from_view(View::open(device, options)?))
    }

    /// A new volume of `size` bytes in memory, for tests and scratch work; it is gone with the last handle.
    ///
    /// # Errors
    /// [`Error::Refused`] if `size` is below the smallest volume (16 MiB).
    pub fn memory(size: u64) -> Result<Volume> {
        let size = size - size % yore_device::BLOCK_SIZE as u64;
        Volume::create(Arc::new(MemoryDevice::new(size)), &MkfsOptions::default())
    }

    /// Paths on top of a view that is open already.
    pub fn from_view(view: View) -> Volume {
        Volume { view, caller: options::process_caller() }
    }

    /// The operations on inodes and names that all of this is made of.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The same volume, with new files owned by, and their permissions masked for, `caller`.
    pub fn as_caller(&self, caller: Caller) -> Volume {
        Volume { view: self.view.clone(), caller }
    }

    /// Who owns what this handle creates.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Facts about the volume.
    pub fn info(&self) -> VolumeInfo {
        self.view.info()
    }

    /// Space on the volume.
    pub fn statfs(&self) -> Statfs {
        self.view.statfs()
    }

    /// All that was done before is on the medium when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Stopped`]: it is not known what is on the medium.
    pub fn sync(&self) -> Result<()> {
        self.view.sync()
    }

    /// Writes everything, marks the volume clean, and stops: all clones of this handle are of no more use.
    ///
    /// # Errors
    /// As [`Volume::sync`]. Dropping the last handle closes too, but can report nothing.
    pub fn close(&self) -> Result<()> {
        self.view.close()
    }
}

/// # Whole files
impl Volume {
    /// The whole content of a file.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut file = File::open(self, path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|e| unwrap_io(e, "cannot read", path))?;
        Ok(content)
    }

    /// The whole content of a file of UTF-8 text.
    ///
    /// # Errors
    /// As [`Volume::read`]; [`Error::Invalid`] if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| {
            Error::Invalid { what: "the file is not UTF-8 text: read its bytes" }
                .on_path("cannot read", bytes_of(path))
        })
    }

    /// Makes `content` the whole content of a file, which is created if it is not there.
    ///
    /// # Errors
    /// [`Error::NotFound`] (no such directory), [`Error::IsADirectory`], [`Error::NoSpace`].
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(self, path)?;
        file.write_at(content.as_ref(), 0).map(|_| ()).map_err(|e| e.on_path("cannot write", bytes_of(path)))
    }

    /// Adds `content` to the end of a file, atomically with respect to other appends; creates the file if it is not there.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn append(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = OpenOptions::new().append(true).create(true).open(self, path)?;
        file.write_at(content.as_ref(), 0)
            .map(|_| ())
            .map_err(|e| e.on_path("cannot append to", bytes_of(path)))
    }

    /// Cuts a file to `size` bytes, or extends it to that with a hole.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::FileTooLarge`].
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), kill_set_id: !self.caller.keeps_set_id, ..SetAttr::default() };
        self.set(path.as_ref(), Links::Follow, &set, "cannot truncate")
    }

    /// Copies the content and permissions of a file to another name on the volume, replacing what is there; holes stay
    /// holes. Returns the bytes of the file.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `from` is not a regular file, or is the same file as `to`; otherwise as [`Volume::read`] and
    /// [`Volume::write`]. A copy that failed half-way leaves what it wrote.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.write("a", "content")?;
    /// assert_eq!(volume.copy("a", "b")?, 7);
    /// assert_eq!(volume.read("b")?, b"content");
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = File::open(self, from)?;
        let attr = *source.metadata()?.attr();
        if attr.kind != FileKind::Regular {
            let error = Error::Invalid { what: "only regular files can be copied" };
            return Err(error.on_path("cannot copy", bytes_of(from)));
        }
        let is_present = source.view().cut().is_none();
        if is_present && self.metadata(to).is_ok_and(|existing| existing.ino() == attr.inode.0) {
            let error = Error::Invalid { what: "source and destination are the same file" };
            return Err(error.on_path("cannot copy to", bytes_of(to)));
        }
        self.check_room(&source, to)?;
        let mut options = OpenOptions::new();
        let target =
            options.write(true).create(true).truncate(true).mode(attr.permissions & 0o777).open(self, to)?;
        let copied = self
            .copy_content(&source, &target, attr.size)
            .map_err(|e| e.on_path("cannot copy to", bytes_of(to)))?;
        let set = SetAttr { permissions: Some(attr.permissions & 0o777), ..SetAttr::default() };
        self.view
            .setattr(&self.caller, target.inode(), &set)
            .map_err(|e| e.on_path("cannot copy to", bytes_of(to)))?;
        Ok(copied)
    }

    /// Copies the stretches of data below `size` and sets the size.
    /// Refuses a copy for which there is no room, before what is there is cut.
    fn check_room(&self, source: &File, to: &Path) -> Result<()> {
        let block = yore_format::BLOCK_SIZE as u64;
        let wanted = source.metadata()?.attr().blocks_512.saturating_mul(512);
        // What is replaced makes room, unless a snapshot has it.
        let replaced = self.metadata(to).map_or(0, |found| found.attr().blocks_512.saturating_mul(512));
        let room = self.view.statfs().blocks_available.saturating_mul(block);
        match wanted.saturating_sub(room.saturating_add(replaced)) {
            0 => Ok(()),
            missing => Err(Error::NeverFits { missing }.on_path("cannot copy to", bytes_of(to))),
        }
    }

    fn copy_content(&self, source: &File, target: &File, size: u64) -> Result<u64> {
        let mut at = 0;
        while let Some(data) = source.data_from(at)? {
            at = data.start;
            while at < data.end {
                match self.copy_some(source, target, at, data.end - at)? {
                    0 => break, // cut shorter by somebody else
                    copied => at += copied,
                }
            }
            if at < data.end {
                break;
            }
        }
        target.set_len(size)?;
        Ok(size)
    }

    /// Copies up to `len` bytes at an offset; returns how many.
    fn copy_some(&self, source: &File, target: &File, at: u64, len: u64) -> Result<u64> {
        let (from, to) = (source.view(), target.view());
        if from.cut() == to.cut() {
            return to.copy_file_range(source.inode(), at, target.inode(), at, len);
        }
        let mut buf = vec![0; len.min(COPY_BYTES) as usize];
        let count = from.read(source.inode(), at, &mut buf)?;
        to.write(target.inode(), at, &buf[..count], WriteMode { append: false, kill_set_id: false })?;
        Ok(count as u64)
    }
}

/// # Directories
impl Volume {
    /// Creates a directory with permissions 0777 less the umask.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] (no such parent), [`Error::NoSpace`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_mode(path, 0o777)
    }

    /// As [`Volume::create_dir`] with other permissions (12 bits, before the umask).
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn create_dir_mode(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let path = path.as_ref();
        self.vacant(path)
            .and_then(|(parent, name)| {
                self.view.of(&parent).mkdir(&self.caller, parent.inode(), &name, permissions)
            })
            .map(|_| ())
            .map_err(|e| e.on_path("cannot create directory", bytes_of(path)))
    }

    /// Creates a directory and those above it that are missing; one that exists is fine.
    ///
    /// # Errors
    /// [`Error::NotADirectory`] or [`Error::Exists`] if something else is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        for ancestor in path.ancestors().filter(|a| !a.as_os_str().is_empty()) {
            match self.metadata(ancestor) {
                Ok(found) if found.is_dir() => break,
                Ok(_) if missing.is_empty() => {
                    return Err(Error::Exists.on_path("cannot create directory", bytes_of(ancestor)))
                }
                Ok(_) => {
                    return Err(
                        Error::NotADirectory.on_path("cannot create a directory in", bytes_of(ancestor))
                    )
                }
                Err(error) if matches!(error.root(), Error::NotFound) => missing.push(ancestor),
                Err(error) => return Err(error),
            }
        }
        for directory in missing.into_iter().rev() {
            match self.create_dir(directory) {
                // Somebody else made it in between.
                Err(error)
                    if matches!(error.root(), Error::Exists)
                        && self.metadata(directory).is_ok_and(|found| found.is_dir()) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The entries of a directory, without `.` and `..`, in no particular order. Entries created or removed while
    /// reading may or may not be seen; all others are seen once.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let node = self.node(path)?;
        if node.attr().kind != FileKind::Directory {
            return Err(Error::NotADirectory.on_path("cannot list", bytes_of(path)));
        }
        Ok(ReadDir::new(self.view.of(&node).into_owned(), node, path.to_path_buf()))
    }

    /// Everything below (and including) `path`, parents before their content, symbolic links not followed. A directory that
    /// damage shows below itself is an [`Error::Corruption`] in its place.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.create_dir_all("a/b")?;
    /// volume.write("a/b/c", "12345")?;
    /// let mut bytes = 0;
    /// for entry in volume.walk("a") {
    ///     let entry = entry?;
    ///     if entry.metadata().is_file() {
    ///         bytes += entry.metadata().len();
    ///     }
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.clone(), path.as_ref().to_path_buf())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotADirectory`], [`Error::NotFound`], [`Error::NotPermitted`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.removable(path)
            .and_then(|(place, name)| self.view.rmdir(place.directory.inode(), &name))
            .map_err(|e| e.on_path("cannot remove directory", bytes_of(path)))
    }

    /// Removes a directory with everything in it, or a single file; symbolic links are removed, not followed. Needs
    /// memory for the path to the deepest directory and a batch of names at each level, whatever the size.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Corruption`] also where damage shows a directory below itself; the first error met, which
    /// names the path. What was removed before stays removed.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.create_dir_all("a/b/c")?;
    /// volume.write("a/b/file", "")?;
    /// volume.remove_dir_all("a")?;
    /// assert!(!volume.exists("a")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        tree::remove_all(self, path.as_ref(), &mut |_| {})
    }

    /// As [`Volume::remove_dir_all`], telling `each` the path of everything removed, after it was.
    ///
    /// # Errors
    /// As [`Volume::remove_dir_all`].
    pub fn remove_dir_all_with(&self, path: impl AsRef<Path>, each: &mut dyn FnMut(&Path)) -> Result<()> {
        tree::remove_all(self, path.as_ref(), each)
    }
}

/// # Down to inodes
impl Volume {
    /// The inode that `path` leads to, for use with [`Volume::view`].
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.find(path.as_ref(), Links::Follow)
    }

    /// The same, without following a symbolic link in the last place.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn symlink_node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.find(path.as_ref(), Links::Keep)
    }

    fn find(&self, path: &Path, links: Links) -> Result<Node> {
        self.locate(path, links)
            .and_then(|place| place.found.ok_or(Error::NotFound))
            .map_err(|e| e.on_path("cannot find", bytes_of(path)))
    }

    fn locate(&self, path: &Path, links: Links) -> Result<Place> {
        path::locate(&self.view, bytes_of(path), links)
    }

    /// A name that must exist, in its directory.
    fn named(&self, path: &Path, root: &'static str) -> Result<(Place, Vec<u8>)> {
        let place = self.locate(path, Links::Keep)?;
        let name = place.name(root)?.to_vec();
        match place.found {
            Some(_) => Ok((place, name)),
            None => Err(Error::NotFound),
        }
    }

    /// A name that is to go, in its directory.
    fn removable(&self, path: &Path) -> Result<(Place, Vec<u8>)> {
        let (place, name) = self.named(path, "the root directory cannot be removed")?;
        match &place.found {
            Some(node) if node.cut().is_some() => Err(Error::ReadOnly),
            _ => Ok((place, name)),
        }
    }

    /// A name that must not exist yet, in its directory.
    fn vacant(&self, path: &Path) -> Result<(Node, Vec<u8>)> {
        let place = self.locate(path, Links::Keep)?;
        match place.found {
            Some(_) => Err(Error::Exists),
            None => place.into_named("it exists"),
        }
    }

    /// The same for what is not a directory, whose path must not end in a slash.
    fn vacant_file(&self, path: &Path) -> Result<(Node, Vec<u8>)> {
        let place = self.locate(path, Links::Keep)?;
        match place {
            Place { found: Some(_), .. } => Err(Error::Exists),
            Place { slash: true, .. } => Err(Error::NotFound),
            place => place.into_named("it exists"),
        }
    }

    fn set(&self, path: &Path, links: Links, set: &SetAttr, operation: &'static str) -> Result<()> {
        let node = self.find(path, links)?;
        self.view
            .of(&node)
            .setattr(&self.caller, node.inode(), set)
            .map(|_: Attr| ())
            .map_err(|e| e.on_path(operation, bytes_of(path)))
    }
}

/// The file-system error inside an I/O error that this crate made.
fn unwrap_io(error: std::io::Error, operation: &'static str, path: &Path) -> Error {
    let inner = match error.downcast::<Error>() {
        Ok(inner) => inner,
        // `read_to_end` itself fails only when the vector cannot grow.
        Err(_) => Error::Invalid { what: "the file does not fit into memory: read it in pieces" },
    };
    inner.on_path(operation, bytes_of(path))
}
