//! Opens what people name, before anybody knows what it is.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// The directory that the last name of a path is in: `.` for a name alone.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a directory or a regular file to ask about it. Anything else is refused, and not opened: a pipe
/// would keep the caller waiting until somebody writes to it, a device may do something, and the owner of a
/// directory can put one there at any time.
///
/// # Errors
/// What open(2) says; and that it is neither a directory nor a regular file.
pub fn file_or_directory(path: &Path) -> io::Result<File> {
    let opened = if_file_or_directory(path, OFlags::empty())?;
    opened.ok_or_else(|| io::Error::other("it is neither a directory nor a regular file"))
}

/// The same, but a symbolic link in the last place is not followed; `None` if it is neither.
///
/// # Errors
/// What open(2) says.
pub fn itself(path: &Path) -> io::Result<Option<File>> {
    if_file_or_directory(path, OFlags::NOFOLLOW)
}

fn if_file_or_directory(path: &Path, flags: OFlags) -> io::Result<Option<File>> {
    // This holds it without opening it, so it stays the same thing until its kind is known.
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let held = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = held.metadata()?.file_type();
    match kind.is_dir() || kind.is_file() {
        true => File::open(format!("/proc/self/fd/{}", held.as_raw_fd())).map(Some),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Promises that only directories and regular files are opened. Once a pipe was opened before its kind
    /// was known.
    #[test]
    fn files_and_directories_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("file"), "content").unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();

        for found in [path("file"), path("link"), scratch.path().to_path_buf()] {
            file_or_directory(&found).unwrap();
        }
        assert!(file_or_directory(&path("pipe")).unwrap_err().to_string().contains("neither"));
        assert_eq!(file_or_directory(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(itself(&path("file")).unwrap().is_some());
        assert!(itself(&path("link")).unwrap().is_none() && itself(&path("pipe")).unwrap().is_none());
    }
}
