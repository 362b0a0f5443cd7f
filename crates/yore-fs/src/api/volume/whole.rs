//! Whole files: reading, writing and copying them in one call.

use super::file::{File, OpenOptions};
use super::handle::Volume;
use super::path::{bytes_of, Links};
use crate::api::copy::{self, SHARED_LEAST};
use crate::{Error, Result, SetAttr};
use std::io::Read as _;
use std::path::Path;
use yore_format::FileKind;

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

    /// Adds `content` to the end of a file, atomically with respect to other appends; creates the file if it
    /// is not there.
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

    /// Truncates a file to `size` bytes, or extends it to that with a hole.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::FileTooLarge`].
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), kill_set_id: !self.caller.keeps_set_id, ..SetAttr::default() };
        self.set(path.as_ref(), Links::Follow, &set, "cannot truncate")
    }

    /// Copies the content and permissions of a file to another name on the volume, and replaces what is
    /// there; holes stay holes. Returns how many bytes the file has.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `from` is not a regular file, or is the same file as `to`; otherwise as
    /// [`Volume::read`] and [`Volume::write`]. A copy that fails half-way leaves what it wrote.
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
        let is_present = source.view().event().is_none();
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

    /// Whether an open file is one of this volume, so that a copy can share its blocks.
    pub fn has(&self, file: &File) -> bool {
        self.view.is_of_same_volume(file.view())
    }

    /// Refuses a copy for which there is no room, before the target is truncated.
    fn check_room(&self, source: &File, to: &Path) -> Result<()> {
        let block = yore_format::BLOCK_SIZE as u64;
        let attr = *source.metadata()?.attr();
        let wanted = match attr.size < SHARED_LEAST {
            true => attr.blocks_512.saturating_mul(512),
            // The rest is shared.
            false if copy::needs_no_data(self.view.store(), attr.inode, source.view().event())? => 0,
            false => attr.blocks_512.saturating_mul(512),
        };
        // The file that is replaced makes room, unless a snapshot has it.
        let replaced = self.metadata(to).map_or(0, |found| found.attr().blocks_512.saturating_mul(512));
        let room = self.view.statfs().blocks_available.saturating_mul(block);
        match wanted.saturating_sub(room.saturating_add(replaced)) {
            0 => Ok(()),
            missing => Err(Error::NeverFits { missing }.on_path("cannot copy to", bytes_of(to))),
        }
    }

    /// Copies the stretches of data below `size` and sets the size.
    fn copy_content(&self, source: &File, target: &File, size: u64) -> Result<u64> {
        let mut at = 0;
        while let Some(data) = source.data_from(at)? {
            at = data.start;
            while at < data.end {
                match target.copy_from(source, at, data.end - at)? {
                    0 => break, // truncated by somebody else
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
