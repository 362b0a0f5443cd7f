//! `umount`: removes the mount and waits until the daemon has closed the volume, so that the next command can
//! open it. It does not wait for ever (`patience.rs`).

use super::patience::{Patience, SLICE};
use super::plan::absolute_directory;
use super::requests;
use crate::args;
use crate::command::stopped;
use crate::live::{self, Daemon, Mount};
use crate::status::{self, Ended, Outcome};
use crate::volume::holder;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use yore_control::Stopped;
use yore_fuse::UnmountError;

/// Unmounts.
pub fn run(args: &args::Umount) -> Outcome {
    // Snapshots come first, so that one command can name them together with the mount of the present.
    let is_snapshot =
        |target: &PathBuf| find(target).is_ok_and(|directory| served(&directory).is_some_and(|(_, of)| of));
    let (snapshots, others): (Vec<_>, Vec<_>) =
        args.directories.iter().partition(|target| is_snapshot(target));
    for target in snapshots.into_iter().chain(others) {
        one(target, args.lazy)?;
    }
    Ok(status::OK)
}

/// The daemon that serves a mount, and whether the mount is of a snapshot.
fn served(directory: &Path) -> Option<(Daemon, bool)> {
    let daemon = live::daemon_at(directory)?;
    let is_snapshot = daemon.snapshot_at(directory).is_some();
    Some((daemon, is_snapshot))
}

fn one(target: &Path, lazy: bool) -> anyhow::Result<()> {
    let directory = find(target)?;
    let served = served(&directory);
    if let Some((daemon, false)) = served.as_ref().filter(|(daemon, _)| !lazy && !daemon.snapshots.is_empty())
    {
        anyhow::bail!(
            "snapshots of {} are mounted beside {}, and would keep the volume in use: unmount them first, or together (yore \
             umount {} {})",
            daemon.volume.display(),
            directory.display(),
            daemon.snapshot_directories(),
            directory.display()
        );
    }
    // Nobody waits for the daemon of a mount that goes lazily.
    let daemon = if lazy { None } else { process_of(&directory, served.as_ref()) };
    let held = match daemon {
        None => None,
        Some(pid) => live::Process::hold(pid).with_context(|| format!("cannot wait for process {pid}"))?,
    };
    // These are read before the unmount: afterwards the daemon serves nothing here, and may be gone.
    let words = served.as_ref().map(|(daemon, _)| daemon.clone());
    let mount = live::mounts().into_iter().find(|mount| mount.directory == directory);
    let stopped = words.as_ref().zip(mount.as_ref()).and_then(|(daemon, mount)| has_stopped(daemon, mount));
    unmount(&directory, lazy, words.as_ref()).map_err(|error| match error {
        UnmountError::Busy { mountpoint } => {
            let name = mountpoint.display();
            anyhow::anyhow!(
                "{name} is busy: programs use it (fuser -vm {name} lists them); end them, or unmount lazily (yore umount \
                 --lazy {name})"
            )
        }
        error => error.into(),
    })?;
    // If the daemon left last words, they say more.
    let not_closed = |message| Err(Ended { message, status: status::NOT_CLOSED }.into());
    let bad_end = || stopped.as_ref().map_or(Ok(()), |of| not_closed(stopped::message(&directory, of)));
    let (Some(process), Some(pid), Some(mount), false) = (held, daemon, mount, lazy) else {
        return bad_end();
    };
    let mut patience = Patience::new(&mount, pid);
    if let Some((daemon, _)) =
        served.filter(|(daemon, _)| daemon.snapshots.len() + usize::from(daemon.has_present) > 1)
    {
        if !requests::wait_for(&daemon, &directory, &mut patience)? {
            return bad_end();
        }
    }
    while !process.wait(Some(SLICE)).with_context(|| format!("cannot wait for process {pid}"))? {
        patience.wait_on()?;
    }
    match words.and_then(|daemon| daemon.last_words()) {
        None => bad_end(),
        Some(message) => not_closed(message),
    }
}

/// Whether writing to the volume has stopped, if the daemon says so. One that hangs is not waited for,
/// because people unmount just to be rid of it.
fn has_stopped(daemon: &Daemon, mount: &Mount) -> Option<Stopped> {
    let user = rustix::process::geteuid().as_raw();
    // It listens to nobody else.
    let listens = daemon.socket.is_some() && (user == 0 || user == mount.user);
    if !listens {
        return None;
    }
    requests::stopped(daemon).unwrap_or_else(|error| {
        let name = mount.directory.display();
        status::warn(&format!("cannot tell whether writing to {name} has stopped after an error: {error:#}"));
        None
    })
}

/// How often, and how far apart, to try a busy mount again. A file that was closed a moment ago, or a program
/// that just read the mount (`df`), keeps it busy for some milliseconds, and the kernel does not report when
/// that ends.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// How long a check, a scrub or other work that was broken off may take to end.
const BREAKING_OFF: Duration = Duration::from_secs(20);

/// Unmounts. A check, a scrub or the like that was asked for through the mount keeps it busy. So the daemon
/// breaks off all such work on its volume if the mount stays busy.
fn unmount(directory: &Path, lazy: bool, daemon: Option<&Daemon>) -> Result<(), UnmountError> {
    let mut done = try_to_unmount(directory, lazy);
    // A daemon that takes no requests breaks nothing off. Then the mount is busy, for whatever reason.
    let Some(daemon) = daemon.filter(|daemon| daemon.socket.is_some()) else { return done };
    let (begun, mut before) = (Instant::now(), 0);
    while matches!(done, Err(UnmountError::Busy { .. })) && begun.elapsed() < BREAKING_OFF {
        let under_way = requests::break_off(daemon).unwrap_or_else(|error| {
            status::warn(&format!("cannot break off the work on {}: {error:#}", directory.display()));
            0
        });
        if under_way == 0 && before == 0 {
            break;
        }
        // Once more when the last one has ended: whoever asked for it closes the mount a moment later.
        before = under_way;
        done = try_to_unmount(directory, lazy);
    }
    done
}

fn try_to_unmount(directory: &Path, lazy: bool) -> Result<(), UnmountError> {
    for _ in 1..TRIES {
        match yore_fuse::unmount_at(directory, lazy) {
            Err(UnmountError::Busy { .. }) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    yore_fuse::unmount_at(directory, lazy)
}

/// Where a volume is mounted.
fn find(target: &Path) -> anyhow::Result<PathBuf> {
    let name = target.display();
    let path = absolute_directory(target)?;
    if live::is_mounted(&path) {
        return Ok(path);
    }
    // A volume may be named instead of the directory.
    let Some(mount) = live::mount_of(target).filter(|_| !target.is_dir()) else {
        anyhow::bail!("no volume is mounted on {name}; `yore df` lists what is mounted")
    };
    match served(&mount.directory) {
        Some((daemon, true)) => anyhow::bail!(
            "{name} itself is not mounted, only snapshots of it: name where (yore umount {})",
            daemon.snapshot_directories()
        ),
        _ => Ok(mount.directory),
    }
}

/// The process that serves a mount. The daemon's own word comes first. Without it, the process that holds the
/// volume counts, if its user made the mount: the mount may be dead, and the volume's name in the table of
/// mounts may be that of another volume.
fn process_of(directory: &Path, served: Option<&(Daemon, bool)>) -> Option<u32> {
    if let Some((daemon, _)) = served {
        return Some(daemon.pid);
    }
    let mount = live::mount_at(directory).filter(Mount::is_trusted)?;
    std::fs::metadata(directory).ok()?;
    holder(&mount.volume).filter(|pid| live::user_of(*pid) == Some(mount.user))
}
