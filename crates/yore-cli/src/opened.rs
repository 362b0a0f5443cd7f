//! Opens what people name, before anybody knows what it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The directory that the last name of a path is in: `.` for a name alone.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a directory or a regular file to ask about it. Anything else is refused. A pipe would keep the
/// caller waiting until somebody writes to it, and the owner of a directory can put one there at any time.
///
/// # Errors
/// What open(2) says; and that it is neither a directory nor a regular file.
pub fn file_or_directory(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_dir() || kind.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is neither a directory nor a regular file")),
    }
}
