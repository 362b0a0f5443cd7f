//! `-o remount`: changes flags of an existing mount, which are the kernel's business alone. The daemon is not
//! asked: what it has read when it began stays. So an option that says something else of that is refused, and
//! so is `rw` where the daemon has the volume open for reading only. What is not named stays as it is.
//!
//! mount(8) names options that nobody wrote: it adds those of the table of mounts, or of fstab. They may be
//! named if they change nothing.

use super::options::Options;
use super::plan::absolute_directory;
use crate::live;
use anyhow::Context as _;
use rustix::fs::{statvfs, StatVfsMountFlags};
use rustix::mount::{mount_remount, MountFlags};
use std::ffi::OsString;
use std::path::Path;
use yore_device::mounts;

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

/// The options of flags that a mount has.
fn of_flags(flags: StatVfsMountFlags) -> String {
    let all = [
        (StatVfsMountFlags::RDONLY, "ro", "rw"),
        (StatVfsMountFlags::NOSUID, "nosuid", "suid"),
        (StatVfsMountFlags::NODEV, "nodev", "dev"),
        (StatVfsMountFlags::NOEXEC, "noexec", "exec"),
    ];
    let named = all.map(|(flag, set, unset)| if flags.contains(flag) { set } else { unset }).join(",");
    // The daemon knows whether it records times of access; the flag may be missing where a user mounted.
    named + if flags.contains(StatVfsMountFlags::NOATIME) { ",noatime" } else { "" }
}

/// Changes the flags of a mount: `given` are the options as they were given, of which all are known.
pub fn run(directory: &Path, given: &[OsString]) -> anyhow::Result<()> {
    let name = directory.display();
    let path = absolute_directory(directory)?;
    anyhow::ensure!(
        live::is_mounted(&path),
        "no volume is mounted on {name}, so there is nothing to remount"
    );
    let cannot = || format!("cannot remount {name}");
    let found = statvfs(&path).with_context(cannot)?.f_flag;
    let daemon = live::daemon_at(&path);
    let is_snapshot = daemon.as_ref().is_some_and(|daemon| daemon.snapshot_at(&path).is_some());
    // What the daemon was given for one mount says nothing of the others that it serves.
    let own = daemon.as_ref().filter(|daemon| daemon.directory == path);
    let mut now: Vec<OsString> = own.map(|daemon| OsString::from(&daemon.options)).into_iter().collect();
    now.extend(of_table(&path).with_context(cannot)?);
    now.push(of_flags(found).into());
    let there = Options::parse(&now, true)?;
    now.extend_from_slice(given);
    let wanted = Options::parse(&now, true)?;
    let mut refused = wanted.fixed_that_differ(&there);
    let only_reads = is_snapshot || daemon.is_some_and(|daemon| daemon.read_only);
    if only_reads && !wanted.read_only {
        refused.push("rw");
    }
    anyhow::ensure!(
        refused.is_empty(),
        "cannot remount {name} with {}: a remount changes ro and rw (unless it was mounted with ro), dev, suid and exec; for \
         anything else unmount it, and mount it anew",
        refused.join(", ")
    );
    let mut flags = flags(&wanted);
    // Yore gives it no meaning, but somebody may have set it.
    flags.set(MountFlags::NODIRATIME, found.contains(StatVfsMountFlags::NODIRATIME));
    mount_remount(&path, flags, c"").with_context(cannot)
}

/// The options that the table of mounts has for the uppermost mount there.
fn of_table(directory: &Path) -> std::io::Result<Option<OsString>> {
    use std::os::unix::ffi::OsStringExt as _;
    let mount = mounts::mounts()?.into_iter().rfind(|mount| mount.directory == directory);
    Ok(mount.map(|mount| OsString::from_vec(mount.options)))
}
