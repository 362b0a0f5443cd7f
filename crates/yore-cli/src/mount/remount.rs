//! `-o remount`: changes flags of an existing mount, which are the kernel's business alone. The daemon is not
//! asked: if it has the volume open read-only, it goes on refusing writes, whatever the kernel would allow.

use super::options::Options;
use super::plan::absolute_directory;
use crate::live;
use anyhow::Context as _;
use rustix::mount::{mount_remount, MountFlags};
use std::path::Path;

/// The kernel's flags for the options.
pub fn flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(MountFlags::NOATIME, !options.access_times);
    flags
}

/// Changes the flags of a mount.
pub fn run(directory: &Path, options: &Options) -> anyhow::Result<()> {
    let name = directory.display();
    let path = absolute_directory(directory)?;
    anyhow::ensure!(
        live::mounts().iter().any(|mount| mount.directory == path),
        "no volume is mounted on {name}, so there is nothing to remount"
    );
    mount_remount(&path, flags(options), c"").with_context(|| format!("cannot remount {name}"))
}
