//! Programs that other users can start, wherever the tests were built: in a home directory that is closed to
//! others, for one.

use std::fs::{copy, metadata, set_permissions, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static COPY: OnceLock<Option<PathBuf>> = OnceLock::new();

/// A program of these tests, or a copy of it if directories above it are closed to others and root runs the
/// tests. It is always the same program. The copy is removed when the tests end.
pub fn reachable(program: &Path) -> &Path {
    let is_closed = |above: &Path| metadata(above).is_ok_and(|found| found.mode() & 1 == 0);
    let copied = COPY.get_or_init(|| {
        if !rustix::process::geteuid().is_root() || !program.ancestors().skip(1).any(is_closed) {
            return None;
        }
        let home = tempfile::Builder::new().prefix("yore-tests-").tempdir().expect("a directory").keep();
        let path = home.join(program.file_name().expect("it is a file"));
        copy(program, &path).expect("room for a copy of the program");
        set_permissions(&home, Permissions::from_mode(0o755)).expect("the directory is ours");
        // SAFETY: the function is there as long as the process, and needs nothing that ends before it.
        unsafe { libc::atexit(remove) };
        Some(path)
    });
    copied.as_deref().unwrap_or(program)
}

extern "C" fn remove() {
    if let Some(Some(path)) = COPY.get() {
        // Nobody is left to be told.
        let _ = path.parent().map(std::fs::remove_dir_all);
    }
}
