//! An open volume, and the way from paths to inodes on it.

use super::options::process_caller;
use super::path::{self, bytes_of, Links, Located};
use crate::{
    Attr, Caller, Error, LogPlace, MkfsOptions, MountOptions, Node, Result, SetAttr, Statfs, View, VolumeInfo,
};
use std::path::Path;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};

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
    pub(super) view: View,
    pub(super) caller: Caller,
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
    /// [`Error::Refused`] if a volume is there and `options.force` is not set, or if the device is too small
    /// or read-only; [`Error::Device`].
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
        let journal = options.journal.clone().map_or(LogPlace::Recorded, LogPlace::On);
        Volume::open(device, &MountOptions { journal, ..MountOptions::default() })
    }

    /// Opens the volume on `device`.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none that this program can use, [`Error::Corruption`],
    /// [`Error::Device`].
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

    /// A new volume of `size` bytes in memory, for tests and scratch work; it goes with its last handle.
    ///
    /// # Errors
    /// [`Error::Refused`] if `size` is below the smallest volume (16 MiB).
    pub fn memory(size: u64) -> Result<Volume> {
        let size = size - size % yore_device::BLOCK_SIZE as u64;
        Volume::create(Arc::new(MemoryDevice::new(size)), &MkfsOptions::default())
    }

    /// Paths on top of a view that is already open.
    pub fn from_view(view: View) -> Volume {
        Volume { view, caller: process_caller() }
    }

    /// The view on which all of this is built: operations on inodes and names.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The same volume, where `caller` owns new files and its umask masks their permissions.
    pub fn as_caller(&self, caller: Caller) -> Volume {
        Volume { view: self.view.clone(), caller }
    }

    /// The owner of the files that this handle creates.
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

    /// Puts everything that was done before on the medium before it returns.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Stopped`]: then it is not known what is on the medium.
    pub fn sync(&self) -> Result<()> {
        self.view.sync()
    }

    /// Writes everything, marks the volume clean, and stops: all clones of this handle are useless
    /// afterwards.
    ///
    /// # Errors
    /// As [`Volume::sync`]. Dropping the last handle closes too, but can report nothing.
    pub fn close(&self) -> Result<()> {
        self.view.close()
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

    /// As [`Volume::node`], but does not follow a symbolic link in the last place.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn symlink_node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.find(path.as_ref(), Links::NoFollow)
    }

    pub(super) fn find(&self, path: &Path, links: Links) -> Result<Node> {
        self.locate(path, links)
            .and_then(|located| located.found.ok_or(Error::NotFound))
            .map_err(|e| e.on_path("cannot find", bytes_of(path)))
    }

    pub(super) fn locate(&self, path: &Path, links: Links) -> Result<Located> {
        path::locate(&self.view, bytes_of(path), links)
    }

    /// The directory and the name of a path that must exist.
    pub(super) fn named(&self, path: &Path, root: &'static str) -> Result<(Located, Vec<u8>)> {
        let located = self.locate(path, Links::NoFollow)?;
        let name = located.name(root)?.to_vec();
        match located.found {
            Some(_) => Ok((located, name)),
            None => Err(Error::NotFound),
        }
    }

    /// The directory and the name of a path that is to be removed.
    pub(super) fn removable(&self, path: &Path) -> Result<(Located, Vec<u8>)> {
        let (located, name) = self.named(path, "the root directory cannot be removed")?;
        match &located.found {
            Some(node) if node.event().is_some() => Err(Error::ReadOnly),
            _ => Ok((located, name)),
        }
    }

    /// The directory and the name of a path that must not exist yet.
    pub(super) fn vacant(&self, path: &Path) -> Result<(Node, Vec<u8>)> {
        let located = self.locate(path, Links::NoFollow)?;
        match located.found {
            Some(_) => Err(Error::Exists),
            None => located.into_named("it exists"),
        }
    }

    /// As `vacant`, for anything but a directory: the path must not end in a slash.
    pub(super) fn vacant_file(&self, path: &Path) -> Result<(Node, Vec<u8>)> {
        let located = self.locate(path, Links::NoFollow)?;
        match located {
            Located { found: Some(_), .. } => Err(Error::Exists),
            Located { slash: true, .. } => Err(Error::NotFound),
            located => located.into_named("it exists"),
        }
    }

    pub(super) fn set(
        &self,
        path: &Path,
        links: Links,
        set: &SetAttr,
        operation: &'static str,
    ) -> Result<()> {
        let node = self.find(path, links)?;
        self.view
            .of(&node)
            .setattr(&self.caller, node.inode(), set)
            .map(|_: Attr| ())
            .map_err(|e| e.on_path(operation, bytes_of(path)))
    }
}
