//! What rivals need of the host: images, directories, cold caches, rights.

use super::kind::Environment;
use crate::{program, BenchError, Result};
use std::path::Path;

pub(crate) fn make_directory(path: &Path) -> Result<()> {
    std::fs::create_dir(path).map_err(BenchError::system(format!("making {}", path.display())))
}

/// An image file of `env.volume_bytes`, created the same way for all.
pub(crate) fn make_image(path: &Path, env: &Environment) -> Result<()> {
    let failed = || BenchError::system(format!("making {}", path.display()));
    let file = std::fs::File::create_new(path).map_err(failed())?;
    file.set_len(env.volume_bytes).map_err(failed())?;
    if env.preallocate {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, env.volume_bytes).map_err(|e| failed()(e.into()))?;
    }
    Ok(())
}

/// Whether the host's page cache can be dropped.
pub(crate) fn check_can_drop_caches() -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(BenchError::impossible(
            "cold caches need root, to drop the host's page cache",
            "run it as root",
        )),
    }
}

/// Drops the host's clean pages, names and inodes.
pub(crate) fn drop_caches() -> Result<()> {
    check_can_drop_caches()?;
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3\n")
        .map_err(BenchError::system("dropping the host's caches"))
}

/// Root, or why not.
pub(crate) fn need_root(what: &str) -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(BenchError::impossible(format!("{what} needs root"), "run it as root")),
    }
}

/// The first line of what a program says of its version.
pub(super) fn version_of(program: &str, argument: &str, package: &str) -> Option<String> {
    let said = program::run(program::command(program).arg(argument), package).ok()?;
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_string)
}
