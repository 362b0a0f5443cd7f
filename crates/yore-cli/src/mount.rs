//! `mount`: from the command line to a daemon that serves the volume.
//!
//! ```text
//! yore mount VOL DIR ── checks ── starts itself again, in a session of its own ──► opens the device (takes its lock),
//!      │                                                                         opens the volume, mounts, announces
//!      └── waits for one line on a pipe ◄── "ready", or the error and its exit status ──┘        │
//!      exits                                                                              serves until unmounted
//! ```
//! The process that keeps the device also opens it, so the lock names that process and lasts as long as it
//! lives. The parent first checks what can be checked without opening the volume: opening a volume for
//! writing already changes it, and a mount that is refused must leave no trace. If the parent is gone when
//! the mount is ready, somebody has given up on it, and the daemon unmounts it again.
//!
//! `--foreground` is the same without the second process.
//!
//! `--at TIME` mounts a snapshot by itself. If a daemon has the volume, it is asked to serve the snapshot,
//! too. If none has it, one is started, which opens the volume for reading only.

pub mod beside;
mod conversation;
pub mod helper;
mod log;
mod options;
mod patience;
mod plan;
mod remount;
mod requests;
mod serve;
mod sessions;
mod snapshot;
pub mod umount;

use crate::args;
use crate::command::resize;
use crate::live;
use crate::status::{self, Ended, Outcome};
use anyhow::Context as _;
use options::Options;
use plan::{absolute_directory, Plan, Word};
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Mounts a volume.
pub fn run(args: &args::Mount) -> Outcome {
    let options = Options::parse(&args.options, args.sloppy)?;
    if let Some(kind) = args.fs_type.as_deref().filter(|kind| !matches!(*kind, "yore" | "fuse.yore")) {
        return Err(status::usage(format!("{kind}: only file systems of type fuse.yore are mounted here")));
    }
    if options.remount {
        remount::run(&args.directory, &args.options)?;
        return Ok(status::OK);
    }
    if args.daemon {
        return serve::daemon(Plan::of(args, options)?);
    }
    check_fuse()?;
    check_directory(&args.directory)?;
    let plan = Plan::of(args, options)?;
    match &plan.at {
        None => check_volume(&plan.volume)?,
        Some(at) => {
            if args.foreground && live::daemon_of_volume(&plan.volume).is_some() {
                return Err(status::usage(format!(
                    "{} is mounted already, and its daemon would serve the snapshot; leave --foreground out",
                    plan.volume.display()
                )));
            }
            if requests::mount_beside(&plan, at)? {
                return Ok(status::OK);
            }
        }
    }
    match args.foreground {
        true => serve::foreground(plan),
        false => start(&plan, args),
    }
}

/// Checks that this process can mount at all.
fn check_fuse() -> anyhow::Result<()> {
    match fs::metadata("/dev/fuse") {
        Ok(found) => {
            let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            anyhow::ensure!(
                found.file_type().is_char_device() && (major, minor) == (10, 229),
                "/dev/fuse is not the kernel's FUSE device; load the module (modprobe fuse), or give the container the \
                 device; `yore ls`, `put` and `get` work without"
            );
        }
        Err(_) => anyhow::bail!(
            "there is no /dev/fuse: load the kernel's FUSE module (modprobe fuse), or give the container that device; \
             `yore ls`, `put` and `get` work without"
        ),
    }
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usable = |directory: PathBuf| {
        let helper = directory.join("fusermount3");
        helper.is_file() && rustix::fs::access(&helper, rustix::fs::Access::EXEC_OK).is_ok()
    };
    anyhow::ensure!(
        std::env::split_paths(&path).any(usable),
        "users other than root need the helper fusermount3 to mount, and it is not installed: install the package fuse3"
    );
    Ok(())
}

/// Removes the mounts that killed daemons left on the directory. The kernel may still answer some calls on a
/// dead mount from its memory. So this asks for something that the kernel must pass on to the daemon: how
/// much space there is.
fn clear_dead_mounts(directory: &Path) -> anyhow::Result<()> {
    use rustix::io::Errno;
    let Ok(path) = absolute_directory(directory) else { return Ok(()) };
    while live::is_mounted(&path)
        && matches!(rustix::fs::statvfs(&path), Err(Errno::NOTCONN | Errno::CONNABORTED))
    {
        yore_fuse::unmount_at(&path, true).with_context(|| {
            format!("{} is the mount of a dead daemon and cannot be cleared away", path.display())
        })?;
    }
    Ok(())
}

/// Checks that a volume can be mounted on the directory.
fn check_directory(directory: &Path) -> anyhow::Result<()> {
    let name = directory.display();
    clear_dead_mounts(directory)?;
    let found = match fs::metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            anyhow::bail!("cannot mount on {name}: there is no such directory; make it first (mkdir {name})")
        }
        Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(()),
        Err(error) => anyhow::bail!("cannot mount on {name}: {error}"),
    };
    anyhow::ensure!(found.is_dir(), "cannot mount on {name}: it is not a directory");
    let path = absolute_directory(directory)?;
    if let Some(mount) = live::mounts().into_iter().find(|mount| mount.directory == path) {
        anyhow::bail!(
            "{} is already mounted on {name}; unmount it first (yore umount {name})",
            mount.volume.display()
        );
    }
    let mut entries = fs::read_dir(directory).with_context(|| format!("cannot mount on {name}"))?;
    if let Some(entry) = entries.next() {
        let entry = entry.with_context(|| format!("cannot mount on {name}"))?.file_name();
        anyhow::bail!(
            "cannot mount on {name}: it is not empty (it holds {:?}), and the mount would hide that; choose an empty \
             directory",
            entry.to_string_lossy()
        );
    }
    Ok(())
}

/// Checks that no daemon has the volume already; the error says where it is mounted.
fn check_volume(volume: &Path) -> anyhow::Result<()> {
    match live::daemon_of_volume(volume) {
        None => Ok(()),
        // The daemon is closing the volume, or serves processes that still use a mount that was unmounted
        // lazily. Opening the volume waits for it.
        Some(daemon) if !daemon.is_mounted() => Ok(()),
        Some(daemon) if !daemon.has_present => anyhow::bail!(
            "{} is in use by process {}, which has snapshots of it mounted; unmount them first (yore umount {})",
            volume.display(),
            daemon.pid,
            daemon.snapshot_directories()
        ),
        Some(daemon) => anyhow::bail!(
            "{} is already mounted on {}, by process {}; unmount it there first (yore umount {})",
            volume.display(),
            daemon.directory.display(),
            daemon.pid,
            daemon.directory.display()
        ),
    }
}

/// Starts the daemon and waits until it serves, or says why not.
fn start(plan: &Plan, args: &args::Mount) -> Outcome {
    close_on_exec()?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    // The daemon is called by the same name as this process, so that lists of processes show what people
    // typed. A helper's name is left out, because it would be taken for another call by mount(8).
    if let Some(name) = std::env::args_os().next().filter(|name| !helper::is_helper(name)) {
        command.arg0(name);
    }
    let mut volume = plan.volume.clone().into_os_string();
    if let Some(at) = &plan.at {
        volume.push(":");
        volume.push(at.path());
        command.arg("mount").arg(format!("--at={}", at.text)).arg(volume).arg(&plan.directory);
    } else {
        command.arg("mount").arg(volume).arg(&plan.directory);
    }
    // Paths in them may be relative: the daemon still has this working directory when it reads them. Absolute
    // ones could not be passed on as options, for commas in them would end these.
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if args.sloppy {
        command.arg("-s");
    }
    let daemon = command.arg("--daemon").stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut daemon = daemon.context("cannot start the daemon")?;
    let output = daemon.stdout.take().context("the daemon has a standard output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("cannot hear from the daemon")?;
    match serde_json::from_str(&line) {
        Ok(Word::Ready { warning }) => {
            if let Some(warning) = warning {
                status::warn(&warning);
            }
            if plan.at.is_none() && !plan.options.read_only {
                if let Ok(found) = rustix::fs::statvfs(&plan.directory) {
                    resize::tell_room(&plan.volume, found.f_blocks * found.f_frsize);
                }
            }
            Ok(status::OK)
        }
        Ok(Word::Failed { message, status }) => Err(Ended { message, status }.into()),
        Err(_) => {
            let ended = daemon.wait().context("cannot wait for the daemon")?;
            anyhow::bail!("the daemon ended before the volume was mounted ({ended}); its log may say why")
        }
    }
}

/// Keeps the daemon from inheriting the files that this process was given. It would hold them open for its
/// whole life, and some of them may be on the very mount.
fn close_on_exec() -> anyhow::Result<()> {
    let open = fs::read_dir("/proc/self/fd").context("cannot list this process's open files")?;
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // SAFETY: the number was just listed as open. The descriptor that the listing itself used is closed
        // by now: for that one the call fails with EBADF and does nothing. There is no other thread that
        // could give the number to another file.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        match rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC) {
            Ok(()) | Err(rustix::io::Errno::BADF) => {}
            Err(error) => return Err(error).context("cannot set a file to be closed in the daemon"),
        }
    }
    Ok(())
}
