//! Promises of `defrag`: it says what it takes, and lays files together, mounted or not; what files hold, and
//! what they were, stays. Where there is no room it changes nothing, and says what to do.

use crate::common;

use common::{fails, ok, stopped_when, text, wait_for_end, Mount, Scratch};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{FileDevice, OpenOptions};
use yore_fs::{File, MountOptions, NewSnapshot, Volume};

const BLOCK: usize = 4096;
const BLOCKS: usize = 1500;
const ROUNDS: usize = 4;

/// What a block of the file holds after so many rounds.
fn block(i: usize, round: usize) -> [u8; BLOCK] {
    let last = (1..=round).rev().find(|r| i.is_multiple_of(5 + r)).unwrap_or(0);
    [(i % 50 + last * 50) as u8; BLOCK]
}

fn content(round: usize) -> Vec<u8> {
    (0..BLOCKS).flat_map(|i| block(i, round)).collect()
}

fn open(volume: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(volume, OpenOptions::default()).unwrap());
    Volume::open(device, &MountOptions::default()).unwrap()
}

/// A volume with a file of which blocks here and there were overwritten behind snapshots.
fn scattered(size: &str) -> Scratch {
    let scratch = Scratch::empty();
    ok(["mkfs", "--policy", "none", text(&scratch.volume), "--size", size]);
    let volume = open(&scratch.volume);
    volume.create_dir("/d").unwrap();
    volume.write("/d/whole", vec![7; 3 << 20]).unwrap();
    let file = File::create(&volume, "/d/db").unwrap();
    file.write_at(&content(0), 0).unwrap();
    for round in 1..=ROUNDS {
        volume.sync().unwrap();
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot::named(&format!("round-{round}"))).unwrap();
        for i in (0..BLOCKS).filter(|i| i.is_multiple_of(5 + round)) {
            file.write_at(&block(i, round), (i * BLOCK) as u64).unwrap();
        }
    }
    drop(file);
    volume.close().unwrap();
    scratch
}

fn row(args: &[&str]) -> Value {
    let rows: Value = serde_json::from_str(&ok(args)).unwrap();
    rows[0].clone()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Lays the directory together, and compares what it was before and after.
fn lay(directory: &str, read: &dyn Fn(&str) -> Vec<u8>) {
    let told = row(&["defrag", "--dry-run", "--json", directory]);
    assert_eq!((number(&told, "files"), number(&told, "scattered")), (2, 1));
    assert!(number(&told, "pieces_before") > 400 && told["pieces"].is_null());
    assert_eq!(number(&told, "takes"), (BLOCKS * BLOCK) as u64);
    let grows = number(&told, "history_grows");
    assert!(grows > 0 && grows < number(&told, "takes"), "{told}");
    let done = row(&["defrag", "--json", &format!("{directory}/db")]);
    assert_eq!(number(&done, "pieces_before"), number(&told, "pieces_before"));
    assert!(number(&done, "pieces") <= 2, "{done}");
    assert_eq!((number(&done, "moved"), number(&done, "still_scattered")), (number(&told, "takes"), 0));
    assert_eq!(number(&row(&["defrag", "--json", directory]), "scattered"), 0);
    assert!(read("/d/db") == content(ROUNDS));
    for round in 1..=ROUNDS {
        assert!(read(&format!("/d@round-{round}/db")) == content(round - 1), "round {round}");
    }
}

/// A volume that is not mounted.
#[test]
fn not_mounted() {
    let scratch = scattered("128M");
    let before = ok(["df", "--json", text(&scratch.volume)]);
    lay(&scratch.on("/d"), &|path| {
        let to = scratch.path("copy");
        let _ = fs::remove_file(&to);
        ok(["get", &scratch.on(path), text(&to)]);
        fs::read(&to).unwrap()
    });
    ok(["check", text(&scratch.volume)]);
    let history = |text: &str| -> u64 {
        let value: Value = serde_json::from_str(text).unwrap();
        value
            .pointer("/0/history/data")
            .or(value.pointer("/history/data"))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    };
    let after = ok(["df", "--json", text(&scratch.volume)]);
    assert!(history(&after) > history(&before), "{before} {after}");
    fails(3, ["defrag", &scratch.on("/none")]);
    fails(2, ["defrag"]);
}

/// A volume that is mounted.
#[test]
fn mounted() {
    let scratch = scattered("128M");
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    lay(text(&directory), &|path| fs::read(mount.directory.join(&path[1..])).unwrap());
    let message = fails(3, ["defrag", text(&mount.directory.join("d@round-1"))]);
    assert!(message.contains("past"), "{message}");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// A mount was busy for umount(8) as long as files were laid together, because the command had the file or
/// the directory open to ask the daemon. Promises that nothing of the mount is open while the daemon is
/// asked: the command is stopped then, umount(8) succeeds, and files hold what they held.
#[test]
fn a_plain_umount_breaks_it_off() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can call umount(8)");
    }
    for name in ["d", "d/db"] {
        let scratch = scattered("128M");
        let Some(mount) = Mount::new(&scratch, &[]) else { return };
        let (pid, path) = (mount.pid(), mount.directory.join(name));
        let command = stopped_when(&["defrag", text(&path)], |open| {
            open.iter().any(|of| of.to_string_lossy().starts_with("socket:"))
        });
        assert!(Command::new("umount").arg(&mount.directory).status().unwrap().success(), "{name}");
        wait_for_end(pid);
        kill_process(Pid::from_child(&command), Signal::CONT).unwrap();
        let output = command.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        // It may have had all its answers by then, or have been about to ask once more.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{name}: {:?}: {told}", output.status);
        assert!(!told.contains("panicked"), "{name}: {told}");
        ok(["check", text(&scratch.volume)]);
        let copy = scratch.path("copy");
        ok(["get", &scratch.on("/d/db"), text(&copy)]);
        assert!(fs::read(&copy).unwrap() == content(ROUNDS), "{name}");
    }
}

/// A read-only mount changes nothing, also one that became so later: then only the kernel knows of it.
#[test]
fn a_read_only_mount_stays_as_it_is() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can remount");
    }
    let scratch = scattered("128M");
    let Some(mount) = Mount::new(&scratch, &["-o", "nodefrag"]) else { return };
    let (directory, file) = (text(&mount.directory), mount.directory.join("d/db"));
    ok(["mount", text(&scratch.volume), directory, "-o", "remount,ro"]);
    let message = fails(3, ["defrag", text(&file)]);
    assert!(message.contains("read-only"), "{message}");
    assert_eq!(number(&row(&["defrag", "--dry-run", "--json", text(&file)]), "scattered"), 1);
    fails(3, ["checksums", "--enable", directory]);
    mount.umount();
}

/// A mount of which nobody asks anything lays together by itself what it has found scattered; one with
/// `nodefrag` does not.
#[test]
fn in_the_background() {
    let scratch = scattered("128M");
    let Some(mount) = Mount::new(&scratch, &["-o", "nodefrag"]) else { return };
    let file = mount.directory.join("d/db");
    let asked = || number(&row(&["defrag", "--dry-run", "--json", text(&file)]), "scattered");
    // Each question is a request, so it is asked more seldom than the mount waits.
    let idle = Duration::from_secs(4);
    assert!(fs::read(&file).unwrap() == content(ROUNDS));
    std::thread::sleep(2 * idle);
    assert_eq!(asked(), 1);
    mount.umount();
    mount.again(&[]);
    let deadline = Instant::now() + Duration::from_secs(240);
    // The kernel reads ahead with several requests, and on a busy machine they may come in any order. Then
    // nobody notes the file, until it is read from the medium again.
    'found: loop {
        assert!(fs::read(&file).unwrap() == content(ROUNDS));
        for _ in 0..5 {
            std::thread::sleep(idle);
            if asked() == 0 {
                break 'found;
            }
        }
        assert!(Instant::now() < deadline, "it is scattered still");
        mount.umount();
        mount.again(&[]);
    }
    assert!(fs::read(&file).unwrap() == content(ROUNDS));
    assert!(fs::read(mount.directory.join("d@round-2/db")).unwrap() == content(1));
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// Where there is no room for it, nothing moves, and the message says what makes room.
#[test]
fn no_room() {
    let scratch = scattered("32M");
    let volume = open(&scratch.volume);
    let free = volume.view().statfs().blocks_free;
    volume.write("/filler", vec![1; (free as usize).saturating_sub(1100) * BLOCK]).unwrap();
    volume.close().unwrap();
    drop(volume);
    let message = fails(3, ["defrag", &scratch.on("/d")]);
    assert!(message.contains("yore forget") && message.contains("bytes"), "{message}");
    ok(["check", text(&scratch.volume)]);
}
