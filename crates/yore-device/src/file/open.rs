//! Opening and creating: what is refused, in which order, and why.
//!
//! 1. The kind is checked before opening, since opening a pipe would wait for its other end.
//! 2. The lock is taken before anything is changed: creating over a volume that is in use must not truncate
//!    it.
//! 3. Direct I/O is switched on last, with the lock held, and tried with one read.

use std::fs::{File, FileType, Metadata};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::device::FileDevice;
use super::failure::{creating, failed};
use super::{host, lock, ring};
use crate::travel::kinds;
use crate::{AlignedBuf, DeviceError, BLOCK_SIZE};

/// Whether to go around the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// If the host allows it there; buffered otherwise. [`FileDevice::direct_io`] says which it became.
    #[default]
    Auto,
    /// Or fail to open with [`DeviceError::DirectUnsupported`].
    Always,
    /// Always through the page cache.
    Never,
}

/// How to open a device that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Open for reading only; several such opens may coexist.
    pub read_only: bool,
    /// Whether to go around the page cache.
    pub direct: Direct,
    /// Lock the device against other openers: shared if `read_only`, exclusive otherwise. Without it a writer
    /// of a block device still claims it from the host.
    pub lock: bool,
}

impl Default for OpenOptions {
    /// For writing, locked, direct where the host allows it.
    fn default() -> Self {
        OpenOptions { read_only: false, direct: Direct::Auto, lock: true }
    }
}

/// How to create an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Replace a file that exists, and allow a block device to be used; its contents are lost.
    pub overwrite: bool,
    /// Whether to go around the page cache.
    pub direct: Direct,
    /// Lock the device against other openers.
    pub lock: bool,
    /// The mode of a new file, of which the host takes away what its umask says.
    pub mode: u32,
}

impl Default for CreateOptions {
    /// Refuses what exists; locked, direct where the host allows it, with the usual mode.
    fn default() -> Self {
        CreateOptions { overwrite: false, direct: Direct::Auto, lock: true, mode: 0o666 }
    }
}

impl FileDevice {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// - [`DeviceError::NotFound`], [`DeviceError::PermissionDenied`], [`DeviceError::OpenFailed`]: the host
    ///   does not open or lock it.
    /// - [`DeviceError::NotADevice`], [`DeviceError::TooSmall`] (less than one block),
    ///   [`DeviceError::SectorTooLarge`], [`DeviceError::DirectUnsupported`]: it cannot be used.
    /// - [`DeviceError::Busy`], [`DeviceError::Mounted`]: somebody else uses it.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let found = std::fs::metadata(path).map_err(|error| failed(&name, &error))?;
        check_kind(&name, found.file_type())?;
        let file = open_existing(path, &name, &found, options.read_only)?;
        if options.lock {
            lock::take(&file, &name, !options.read_only)?;
        }
        let metadata = file.metadata().map_err(|error| failed(&name, &error))?;
        check_kind(&name, metadata.file_type())?;
        let size = size_of(&file, &name, &metadata)?;
        Self::finish_open(file, name, size, options.read_only, options.direct)
    }

    /// Creates a sparse image file of `size` bytes of zeros and opens it for writing. With
    /// [`CreateOptions::overwrite`] a file that exists is emptied and resized (and keeps its owner, mode and
    /// links), and the first `size` bytes of a block device are used as they are. The new file is durable
    /// after the first flush.
    ///
    /// # Errors
    /// [`DeviceError::AlreadyExists`] unless told to overwrite; [`DeviceError::TooSmall`] for a block device
    /// with less than `size` bytes; otherwise as [`FileDevice::open`]. A file that could not be given its
    /// size is removed again if it is new.
    ///
    /// # Panics
    /// If `size` is not a multiple of [`BLOCK_SIZE`].
    pub fn create(path: impl AsRef<Path>, size: u64, options: CreateOptions) -> Result<Self, DeviceError> {
        assert!(
            size.is_multiple_of(BLOCK_SIZE as u64),
            "a device of {size} bytes is not a whole number of {BLOCK_SIZE}-byte blocks"
        );
        let path = path.as_ref();
        let name = path.display().to_string();
        check_size(&name, size, BLOCK_SIZE as u64)?;
        let (file, found) = match create_new(path, options.mode) {
            Ok(file) => (file, None),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && options.overwrite => {
                let found = std::fs::metadata(path).map_err(|error| failed(&name, &error))?;
                check_kind(&name, found.file_type())?;
                (open_existing(path, &name, &found, false)?, Some(found))
            }
            Err(error) => return Err(creating(&name, &error)),
        };
        if options.lock {
            lock::take(&file, &name, true)?;
        }
        let is_new = found.is_none();
        if found.is_some_and(|found| found.file_type().is_block_device()) {
            let metadata = file.metadata().map_err(|error| failed(&name, &error))?;
            check_size(&name, size_of(&file, &name, &metadata)?, size)?;
            return Self::finish_open(file, name, size, false, options.direct);
        }
        let directory = prepare_file(path, &file, size).map_err(|error| {
            if is_new {
                // The first error matters. A file that cannot be removed is merely empty.
                let _ = std::fs::remove_file(path);
            }
            creating(&name, &error)
        })?;
        let device = Self::finish_open(file, name, size, false, options.direct)?;
        *device.created_in.lock() = Some(directory);
        Ok(device)
    }

    /// The last steps that opening and creating share.
    fn finish_open(
        file: File,
        path: String,
        size: u64,
        read_only: bool,
        direct: Direct,
    ) -> Result<Self, DeviceError> {
        check_size(&path, size, BLOCK_SIZE as u64)?;
        let metadata = file.metadata().map_err(|error| failed(&path, &error))?;
        let is_block_device = metadata.file_type().is_block_device();
        let direct_io = direct != Direct::Never && try_direct(&file, &path)?;
        if direct == Direct::Always && !direct_io {
            return Err(DeviceError::DirectUnsupported { device: path });
        }
        Ok(FileDevice {
            file,
            path,
            size: AtomicU64::new(size - size % BLOCK_SIZE as u64),
            used: AtomicU64::new(0),
            is_block_device,
            turns: crate::platters::turns(&metadata),
            read_only,
            direct_io,
            discard_unsupported: AtomicBool::new(false),
            created_in: Mutex::new(None),
            failed: OnceLock::new(),
            rings: ring::RingPool::new(),
        })
    }
}

/// Opens what exists. A writer claims a block device from the host (`O_EXCL` without `O_CREAT`, a meaning
/// that it has for block devices only); readers do not, since they may share it.
fn open_existing(path: &Path, name: &str, found: &Metadata, read_only: bool) -> Result<File, DeviceError> {
    let claims = found.file_type().is_block_device() && !read_only;
    let flags = if claims { libc::O_EXCL } else { 0 };
    File::options().read(true).write(!read_only).custom_flags(flags).open(path).map_err(|error| {
        match error.kind() {
            io::ErrorKind::ResourceBusy if claims => lock::claimed(name, found),
            _ => failed(name, &error),
        }
    })
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Gives a new or emptied file its size; returns its directory.
fn prepare_file(path: &Path, file: &File, size: u64) -> io::Result<File> {
    file.set_len(0)?;
    file.set_len(size)?;
    // A relative path without a directory has the empty path as its parent.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
}

/// Switches to direct I/O if the host really does it there; switches back otherwise.
fn try_direct(file: &File, path: &str) -> Result<bool, DeviceError> {
    if lock::set_direct(file, true).is_err() {
        return Ok(false);
    }
    let mut block = AlignedBuf::zeroed(1);
    match host::read_fully(file, 0, &mut [IoSliceMut::new(&mut block)], true) {
        Err(error) if error.errno == libc::EINVAL => {
            lock::set_direct(file, false).map_err(|errno| failed(path, &errno.into()))?;
            Ok(false)
        }
        // If the block cannot be read, its reader will find out.
        _ => Ok(true),
    }
}

/// The size in bytes of what was opened.
fn size_of(file: &File, path: &str, metadata: &Metadata) -> Result<u64, DeviceError> {
    if !metadata.file_type().is_block_device() {
        return Ok(metadata.len());
    }
    let host_failed = |errno: rustix::io::Errno| failed(path, &errno.into());
    let sector_size = host::logical_sector_size(file).map_err(host_failed)?;
    if sector_size > BLOCK_SIZE as u64 {
        return Err(DeviceError::SectorTooLarge { device: path.to_string(), sector_size });
    }
    host::block_device_size(file).map_err(host_failed)
}

fn check_size(path: &str, size: u64, needed: u64) -> Result<(), DeviceError> {
    match size < needed {
        false => Ok(()),
        true => Err(DeviceError::TooSmall { device: path.to_string(), size, needed }),
    }
}

fn check_kind(path: &str, kind: FileType) -> Result<(), DeviceError> {
    let found = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        kinds::DIRECTORY
    } else if kind.is_char_device() {
        kinds::CHARACTER_DEVICE
    } else if kind.is_fifo() {
        kinds::PIPE
    } else {
        kinds::SOCKET
    };
    Err(DeviceError::NotADevice { device: path.to_string(), found })
}
