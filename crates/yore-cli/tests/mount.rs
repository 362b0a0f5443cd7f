//! The life of a mount. Without FUSE these tests say so and pass; the system tests insist on it.

use crate::common;

use common::{
    can_mount, error_text, fails, is_mounted, ok, run, text, until, wait_for_end, yore, Mount, Scratch,
};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;

/// What is written through a mount is on the volume after `umount` returns, and the other way round.
#[test]
fn mount_and_umount() {
    let scratch = Scratch::new();
    let file = scratch.file("f", "by command");
    ok(["put", text(&file), &scratch.on("/before")]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    assert_eq!(fs::read(mount.directory.join("before")).unwrap(), b"by command");
    fs::write(mount.directory.join("after"), "by mount").unwrap();
    mount.umount();
    assert_eq!(ok(["cat", &scratch.on("/after")]), "by mount");
    ok(["check", text(&scratch.volume)]);
}

/// While a volume is mounted, everybody else who wants it learns who has it and where.
#[test]
fn a_volume_in_use() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let info = mount.info();
    let pid = info["pid"].to_string();
    assert_eq!(info["volume"], text(&scratch.volume.canonicalize().unwrap()));
    assert_eq!(info["engine"], "snapshot");
    let by_volume: Value = serde_json::from_str(&ok(["info", "--json", text(&scratch.volume)])).unwrap();
    assert_eq!(by_volume["pid"].to_string(), pid);
    assert!(ok(["info", text(&mount.directory)]).contains(&pid));
    assert!(ok(["df", text(&mount.directory)]).contains('%'));
    assert!(ok(["df"]).contains(text(&mount.directory)));
    let other = scratch.path("other");
    fs::create_dir(&other).unwrap();
    for command in [
        &["mount", text(&scratch.volume), text(&other)][..],
        &["ls", &scratch.on("/")],
        &["mkfs", text(&scratch.volume), "--size", "64M", "--force"],
        &["check", text(&scratch.volume)],
    ] {
        let message = fails(3, command);
        assert!(message.contains(&pid) && message.contains(text(&mount.directory)), "{message}");
    }
    assert!(fails(3, ["mount", text(&scratch.path("f2")), text(&mount.directory)]).contains("already"));
    mount.umount();
}

/// A mount in use is not unmounted except lazily, and still works.
#[test]
fn a_busy_mount() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let open = fs::File::create(mount.directory.join("open")).unwrap();
    assert!(fails(3, ["umount", text(&mount.directory)]).contains("busy"));
    fs::write(mount.directory.join("still"), "there").unwrap();
    let pid = mount.pid();
    ok(["umount", "--lazy", text(&mount.directory)]);
    drop(open);
    wait_for_end(pid);
    assert_eq!(ok(["cat", &scratch.on("/still")]), "there");
}

/// A killed daemon's mount is replaced by the next one, or removed.
#[test]
fn a_dead_daemon() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let content = fs::File::create(mount.directory.join("kept")).unwrap();
    content.sync_all().unwrap();
    drop(content);
    let pid = mount.pid();
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_end(pid);
    assert!(fails(3, ["info", text(&mount.directory)]).contains("dead"));
    mount.again(&[]);
    assert!(mount.directory.join("kept").exists());
    let pid = mount.pid();
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_end(pid);
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// A signal unmounts and closes, also while the mount is in use.
#[test]
fn signals() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    for (signal, busy) in [(Signal::TERM, false), (Signal::INT, false), (Signal::HUP, true)] {
        let file = fs::File::create(mount.directory.join("file")).unwrap();
        let held = busy.then_some(file);
        let pid = mount.pid();
        kill_process(pid, signal).unwrap();
        wait_for_end(pid);
        assert!(!is_mounted(&mount.directory));
        drop(held);
        ok(["check", text(&scratch.volume)]);
        mount.again(&[]);
    }
    mount.umount();
}

/// `--foreground` serves until a signal and ends with status 0.
#[test]
fn foreground() {
    let scratch = Scratch::new();
    if !can_mount() {
        return;
    }
    let directory = scratch.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mut daemon = yore()
        .args(["mount", "--foreground", text(&scratch.volume), text(&directory)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The log reports when it is mounted.
    let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines();
    assert!(log.by_ref().map_while(Result::ok).any(|line| line.contains("mounted")));
    fs::write(directory.join("file"), "content").unwrap();
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    for line in log {
        line.unwrap();
    }
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert_eq!(ok(["cat", &scratch.on("/file")]), "content");
}

/// A read-only mount takes no writes and leaves the image as it was; the forms of mount(8) mount as well.
#[test]
fn read_only_and_called_by_mount() {
    let scratch = Scratch::new();
    let before = fs::read(&scratch.volume).unwrap();
    let Some(mount) = Mount::new(&scratch, &["-o", "ro"]) else { return };
    assert!(fs::write(mount.directory.join("x"), "").is_err());
    mount.umount();
    assert!(fs::read(&scratch.volume).unwrap() == before, "a read-only mount changes nothing");

    // As mount.fuse3 calls: no command, and options that only fstab needs.
    let log = format!("rw,nodev,nosuid,log={}", text(&scratch.path("daemon.log")));
    let output = run([text(&scratch.volume), text(&mount.directory), "-o", &log]);
    assert!(output.status.success(), "{}", error_text(&output));
    fs::write(mount.directory.join("x"), "").unwrap();
    mount.umount();
}

/// A mount with `discard` gives blocks back to the host: while it is mounted, and when it is unmounted.
#[test]
fn a_mounted_image_gets_smaller() {
    use std::os::unix::fs::MetadataExt as _;
    const SIZE: u64 = 24 << 20;
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "64M", "--policy", "none"]);
    let Some(mount) = Mount::new(&scratch, &["-o", "discard,commit=1"]) else { return };
    let allocated = || fs::metadata(&scratch.volume).unwrap().blocks() * 512;
    let (first, second) = (mount.directory.join("first"), mount.directory.join("second"));
    for file in [&first, &second] {
        fs::write(file, vec![7; SIZE as usize]).unwrap();
    }
    until("both files are written", || allocated() >= 2 * SIZE);
    fs::remove_file(first).unwrap();
    until("the host has the blocks of the first file back", || allocated() < 2 * SIZE);
    assert!(allocated() >= SIZE);
    fs::remove_file(second).unwrap();
    mount.umount();
    assert!(allocated() < SIZE);
    ok(["check", text(&scratch.volume)]);
}

/// A volume and a directory may have names that are no text. Such a mount could not be announced, so commands
/// knew little of it, and `umount` did not wait for the volume.
#[test]
fn names_that_are_no_text() {
    if !can_mount() {
        return;
    }
    let mut scratch = Scratch::new();
    let odd = |name: &[u8]| scratch.path("").join(OsStr::from_bytes(name));
    let (volume, directory, at) = (odd(b"v\xff.yore"), odd(b"m\xff"), odd(b"a\xfft"));
    fs::rename(&scratch.volume, &volume).unwrap();
    scratch.volume = volume.clone();
    for directory in [&directory, &at] {
        fs::create_dir(directory).unwrap();
    }
    let (present, past) =
        (Mount { scratch: &scratch, directory }, Mount { scratch: &scratch, directory: at });
    // Words, then the volume, then perhaps a directory.
    let does = |words: &[&str], directory: Option<&Path>| {
        let words = words.iter().map(OsStr::new);
        ok(words.chain([volume.as_os_str()]).chain(directory.map(Path::as_os_str)))
    };
    let log = format!("log={}", text(&scratch.path("daemon.log")));
    does(&["mount", "-o", &log], Some(&present.directory));
    does(&["snapshot", "-n", "first"], None);
    does(&["mount", "--at", "first"], Some(&past.directory));
    let info: Value = serde_json::from_str(&does(&["info", "--json"], None)).unwrap();
    assert!(info["pid"].as_u64().is_some(), "{info}");
    assert!(info["mounted_snapshots"][0]["directory"].as_str().unwrap().ends_with("a\u{fffd}t"), "{info}");
    past.umount();
    present.umount();
    // It waited until the volume was closed.
    does(&["check"], None);
}
