//! The temporary file of a list.

use crate::CheckError;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A file for what does not fit into memory. It has no name.
pub(super) struct Overflow {
    pub(super) file: Arc<File>,
    pub(super) end: u64,
}

impl Overflow {
    pub(super) fn new() -> Result<Overflow, CheckError> {
        let file = tempfile::tempfile().map_err(failed)?;
        Ok(Overflow { file: Arc::new(file), end: 0 })
    }

    /// The file of a list, which is created when it is first needed.
    pub(super) fn of(list: &mut Option<Overflow>) -> Result<&mut Overflow, CheckError> {
        match list {
            Some(file) => Ok(file),
            None => Ok(list.insert(Overflow::new()?)),
        }
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), CheckError> {
        self.write(self.end, bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), CheckError> {
        self.file.write_all_at(bytes, at).map_err(failed)
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), CheckError> {
        self.file.read_exact_at(bytes, at).map_err(failed)
    }
}

/// The error of a temporary file.
pub(super) fn failed(error: std::io::Error) -> CheckError {
    let directory = std::env::temp_dir().display().to_string();
    CheckError::TemporaryFile { directory, reason: error.to_string() }
}
