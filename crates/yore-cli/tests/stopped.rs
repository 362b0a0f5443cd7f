//! A volume to which nothing is written any more after an error, as its users meet it: each command that
//! reports its state says so.

use crate::common;

use common::{error_text, fails, is_mounted, ok, run, text, wait_for_end, yore, Mount, Scratch};
use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};
use rustix::process::{kill_process, Signal};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Writes to a file and syncs it, until that fails.
fn write_until_it_fails(mount: &Mount<'_>) {
    let mut file = File::create(mount.directory.join("file")).unwrap();
    let failed = (0..64).any(|n| file.write_all(&vec![n; 1 << 20]).and_then(|()| file.sync_all()).is_err());
    assert!(failed, "nothing failed");
}

/// The messages of commands about a mount whose volume has stopped writing for this reason, to the end of the
/// mount.
fn says_so(mount: &Mount<'_>, why: &str) {
    let info = mount.info();
    assert_eq!(info["state"], "stopped writing", "{info}");
    assert_eq!(info["state_found"], "clean");
    let since: jiff::Timestamp = info["stopped"]["since"].as_str().unwrap().parse().unwrap();
    let mounted: jiff::Timestamp = info["mounted_at"].as_str().unwrap().parse().unwrap();
    assert!(since >= mounted, "{since} {mounted}");
    assert!(info["stopped"]["error"].as_str().unwrap().contains(why), "{info}");
    let lines = ok(["info", text(&mount.directory)]);
    assert!(lines.contains("State:      stopped writing\n"), "{lines}");
    let line = lines.lines().find(|line| line.starts_with("Stopped:")).unwrap();
    assert!(line.contains(why) && line.contains("unmount"), "{line}");
    assert!(!lines.contains("State:      clean"), "{lines}");
    let df = run(["df", text(&mount.directory)]);
    let warning = error_text(&df);
    assert!(warning.contains("nothing is written to the volume since") && warning.contains(why), "{warning}");
    let df: Value = serde_json::from_str(&ok(["df", "--json", text(&mount.directory)])).unwrap();
    assert!(df[0]["stopped"]["error"].as_str().unwrap().contains(why), "{df}");
    let message = fails(5, ["umount", text(&mount.directory)]);
    assert!(message.contains(why), "{message}");
}

/// A small tmpfs that is unmounted in the end; `None` if this process may not mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: PathBuf) -> Option<SmallDisk> {
        fs::create_dir(&at).unwrap();
        match mount("none", &at, "tmpfs", MountFlags::empty(), Some(c"size=12m")) {
            Ok(()) => Some(SmallDisk(at)),
            Err(error) => {
                eprintln!("SKIPPED: no tmpfs can be mounted here: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The disk below a sparse image gets full. Each write to the mount gave EIO, and `info` called the state
/// clean, because that was the state of the volume at mounting.
#[test]
fn the_disk_below_is_full() {
    let mut scratch = Scratch::empty();
    let Some(disk) = SmallDisk::new(scratch.path("disk")) else { return };
    scratch.volume = disk.0.join("v.yore");
    ok(["mkfs", text(&scratch.volume), "--size", "64M", "--policy=none"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    assert_eq!(mount.info()["state"], "in use");
    assert_eq!(mount.info()["stopped"], Value::Null);
    write_until_it_fails(&mount);
    says_so(&mount, "no space left on the host");
}

/// Somebody truncates the image of a mount. Reads went on from memory, writes made the file longer again,
/// `snapshot` worked, and `umount` ended without an error. Now the next write detects it, and at the latest
/// the end of the mount.
#[test]
fn the_image_is_truncated() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let shorten = || File::options().write(true).open(&scratch.volume).unwrap().set_len(24 << 20).unwrap();
    shorten();
    let message = fails(5, ["umount", text(&mount.directory)]);
    assert!(message.contains("bytes left") && message.contains("shortened"), "{message}");
    let length = fs::metadata(&scratch.volume).unwrap().len();
    assert_eq!(length, 24 << 20, "nothing made it longer again");

    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = File::options().write(true).open(&scratch.volume).unwrap();
    file.set_len(24 << 20).unwrap();
    let message = fails(3, ["snapshot", text(&mount.directory)]);
    assert!(!message.is_empty());
    says_so(&mount, "shortened");
}

/// Nobody waits for the end of a lazily unmounted volume: the command that unmounts it reports what it knows.
#[test]
fn a_lazy_unmount_says_so() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    File::options().write(true).open(&scratch.volume).unwrap().set_len(24 << 20).unwrap();
    write_until_it_fails(&mount);
    let message = fails(5, ["umount", "--lazy", text(&mount.directory)]);
    assert!(message.contains("shortened"), "{message}");
}

/// A daemon that hangs is gone from the tree of mounts when it is unmounted lazily. Before that, the command
/// opened the mount to ask whether writing had stopped, and hung with it.
#[test]
fn a_daemon_that_hangs_is_unmounted_lazily() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let pid = mount.pid();
    kill_process(pid, Signal::STOP).unwrap();
    let mut umount = yore();
    umount.args(["umount", "--lazy", text(&mount.directory)]).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while umount.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let has_ended = umount.try_wait().unwrap().is_some();
    // Otherwise nothing here would ever end.
    kill_process(pid, Signal::CONT).unwrap();
    let output = umount.wait_with_output().unwrap();
    assert!(has_ended && output.status.success(), "{}", error_text(&output));
    assert!(error_text(&output).contains("does not answer"), "{}", error_text(&output));
    assert!(!is_mounted(&mount.directory));
    wait_for_end(pid);
    ok(["check", text(&scratch.volume)]);
}
