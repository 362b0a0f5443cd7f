//! A directory of any mounted file system, used with system calls.

use super::interface::Target;
use crate::{BenchError, Result};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A directory of any mounted file system, used with system calls.
pub struct SystemTarget {
    root: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn failed(call: &str, name: &str) -> impl FnOnce(Errno) -> BenchError {
    let doing = format!("{call} {name}");
    move |e| BenchError::System { doing, source: e.into() }
}

impl SystemTarget {
    /// Measures in `path`, which must exist.
    ///
    /// # Errors
    /// [`BenchError::System`] if it cannot be opened.
    pub fn new(path: impl AsRef<Path>) -> Result<SystemTarget> {
        let path = path.as_ref();
        let root = rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map_err(|e| failed("opening", &path.display().to_string())(e))?;
        Ok(SystemTarget { root })
    }

    /// Removes libfuse's hidden files.
    fn remove_hidden(&self, dir: &OwnedFd) -> Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut hidden = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| failed("listing", "a directory")(e))?;
            if entry.file_name().to_bytes().starts_with(b".fuse_hidden") {
                hidden.push(entry.file_name().to_owned());
            }
        }
        for name in hidden {
            match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
                // Removed meanwhile, by its server.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("unlinking", &name.to_string_lossy())(error)),
            }
        }
        Ok(())
    }
}

impl Target for SystemTarget {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn root(&self) -> Result<OwnedFd> {
        self.open_dir(&self.root, ".")
    }

    fn mkdir(&self, parent: &OwnedFd, name: &str) -> Result<()> {
        rustix::fs::mkdirat(parent, name, Mode::from(0o755)).map_err(|e| failed("mkdir", name)(e))
    }

    fn open_dir(&self, parent: &OwnedFd, name: &str) -> Result<OwnedFd> {
        rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).map_err(|e| failed("opening", name)(e))
    }

    /// Servers built on libfuse's path interface (fuse2fs) may see a removal before the close of the file.
    /// They then keep the file under a hidden name, and do not always remove it later. This removes what they
    /// left.
    fn rmdir(&self, parent: &OwnedFd, name: &str) -> Result<()> {
        let remove = || rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        let mut outcome = remove();
        if outcome == Err(Errno::NOTEMPTY) {
            self.remove_hidden(&self.open_dir(parent, name)?)?;
            outcome = remove();
        }
        outcome.map_err(|e| failed("rmdir", name)(e))
    }

    fn list(&self, dir: &OwnedFd) -> Result<usize> {
        // A separate handle, as a program that lists has: the position of `dir` stays where it is.
        let listed = self.open_dir(dir, ".")?;
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&listed, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| failed("listing", "a directory")(e))?;
            count += usize::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(count)
    }

    fn create(&self, dir: &OwnedFd, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::from(0o644)).map_err(|e| failed("creating", name)(e))
    }

    fn open(&self, dir: &OwnedFd, name: &str) -> Result<OwnedFd> {
        rustix::fs::openat(dir, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed("opening", name)(e))
    }

    fn stat(&self, dir: &OwnedFd, name: &str) -> Result<u64> {
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|s| s.st_size as u64)
            .map_err(|e| failed("stat", name)(e))
    }

    fn exists(&self, dir: &OwnedFd, name: &str) -> Result<bool> {
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed("stat", name)(error)),
        }
    }

    fn rename(&self, from: &OwnedFd, name: &str, to: &OwnedFd, new_name: &str) -> Result<()> {
        rustix::fs::renameat(from, name, to, new_name).map_err(|e| failed("renaming", name)(e))
    }

    fn unlink(&self, dir: &OwnedFd, name: &str) -> Result<()> {
        rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(|e| failed("unlinking", name)(e))
    }

    fn read_at(&self, file: &OwnedFd, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            match rustix::io::pread(file, &mut buf[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed("reading", "a file")(error)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, file: &OwnedFd, offset: u64, data: &[u8]) -> Result<()> {
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(file, &data[written..], offset + written as u64) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed("writing", "a file")(error)),
            }
        }
        Ok(())
    }

    fn truncate(&self, file: &OwnedFd, size: u64) -> Result<()> {
        rustix::fs::ftruncate(file, size).map_err(|e| failed("truncating", "a file")(e))
    }

    fn fsync(&self, file: &OwnedFd) -> Result<()> {
        rustix::fs::fsync(file).map_err(|e| failed("fsync of", "a file")(e))
    }

    fn sync(&self) -> Result<()> {
        // syncfs does not reach a FUSE file system; an fsync of the root directory does, and is only a commit
        // to the others.
        rustix::fs::syncfs(&self.root).map_err(|e| failed("syncfs of", "the file system")(e))?;
        rustix::fs::fsync(&self.root).map_err(|e| failed("fsync of", "the root directory")(e))
    }
}
