//! Image files and block devices of the host.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use crate::{
    check_range, check_writable, checked_len, Device, DeviceError, HostError, Operation, BLOCK_SIZE,
};

/// Whether to go around the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// If the host allows it there; buffered otherwise.
    #[default]
    Auto,
    /// Or fail to open.
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
    /// Lock the device against other openers: shared if `read_only`, exclusive otherwise.
    pub lock: bool,
}

impl Default for OpenOptions {
    /// For writing, locked, direct where the host allows it.
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            direct: Direct::Auto,
            lock: true,
        }
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
}

impl Default for CreateOptions {
    /// Refuses what exists; locked, direct where the host allows it.
    fn default() -> Self {
        CreateOptions {
            overwrite: false,
            direct: Direct::Auto,
            lock: true,
        }
    }
}

/// A regular file or a block device of the host.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: String,
    size: u64,
    read_only: bool,
}

impl FileDevice {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`], [`DeviceError::PermissionDenied`], [`DeviceError::NotADevice`],
    /// [`DeviceError::Busy`], [`DeviceError::TooSmall`], [`DeviceError::Io`].
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = File::options()
            .read(true)
            .write(!options.read_only)
            .open(path)
            .map_err(|error| opening(Operation::Open, &name, &error))?;
        Self::from_file(file, name, options.read_only)
    }

    /// Creates a sparse image file of `size` bytes.
    ///
    /// # Errors
    /// [`DeviceError::AlreadyExists`] unless told to overwrite; otherwise as [`FileDevice::open`].
    ///
    /// # Panics
    /// If `size` is not a multiple of [`BLOCK_SIZE`].
    pub fn create(
        path: impl AsRef<Path>,
        size: u64,
        options: CreateOptions,
    ) -> Result<Self, DeviceError> {
        assert!(
            size.is_multiple_of(BLOCK_SIZE as u64),
            "a device of {size} bytes is not a whole number of {BLOCK_SIZE}-byte blocks"
        );
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(!options.overwrite)
            .create(options.overwrite)
            .truncate(false)
            .open(path)
            .map_err(|error| opening(Operation::Create, &name, &error))?;
        file.set_len(0)
            .and_then(|()| file.set_len(size))
            .map_err(|error| opening(Operation::Create, &name, &error))?;
        Self::from_file(file, name, false)
    }

    fn from_file(file: File, path: String, read_only: bool) -> Result<Self, DeviceError> {
        let metadata = file
            .metadata()
            .map_err(|error| opening(Operation::Open, &path, &error))?;
        let kind = metadata.file_type();
        let size = if kind.is_file() {
            metadata.len()
        } else if kind.is_block_device() {
            io::Seek::seek(&mut &file, io::SeekFrom::End(0))
                .map_err(|error| opening(Operation::Open, &path, &error))?
        } else {
            return Err(DeviceError::NotADevice {
                device: path,
                found: "directory or special file",
            });
        };
        Ok(FileDevice {
            file,
            path,
            size: size - size % BLOCK_SIZE as u64,
            read_only,
        })
    }

    fn failed(
        &self,
        operation: Operation,
        offset: u64,
        len: u64,
        error: &io::Error,
    ) -> DeviceError {
        DeviceError::from_host(operation, offset, len, &self.path, HostError::from(error))
    }
}

/// The typed error for a failure to open.
fn opening(operation: Operation, path: &str, error: &io::Error) -> DeviceError {
    let device = path.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => DeviceError::NotFound { device },
        io::ErrorKind::AlreadyExists => DeviceError::AlreadyExists { device },
        io::ErrorKind::PermissionDenied => DeviceError::PermissionDenied { operation, device },
        _ => DeviceError::from_host(operation, 0, 0, path, HostError::from(error)),
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = checked_len(buf);
        check_range(self, Operation::Read, offset, len)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|error| self.failed(Operation::Read, offset, len, &error))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let len = checked_len(buf);
        check_writable(self, Operation::Write)?;
        check_range(self, Operation::Write, offset, len)?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|error| self.failed(Operation::Write, offset, len, &error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file
            .sync_data()
            .map_err(|error| self.failed(Operation::Flush, 0, self.size, &error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_writable(self, Operation::Discard)?;
        check_range(self, Operation::Discard, offset, len)
    }
}
