//! Promises of `resize`: an image file grows, mounted or not, and a block device that was enlarged is used. A
//! volume shrinks if it is not mounted and nothing lies beyond its new end. `info` and `mount` say if there
//! is room to grow.

use crate::common;

use common::{error_text, fails, ok, run, text, Mount, Scratch};
use serde_json::Value;
use std::fs;
use std::process::Command;

const MIB: u64 = 1 << 20;

fn made(size: &str) -> Scratch {
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", size]);
    scratch
}

fn info(what: &str) -> Value {
    serde_json::from_str(&ok(["info", "--json", what])).unwrap()
}

/// The file gets the requested length, in both directions, and the content stays.
#[test]
fn not_mounted() {
    let scratch = made("32M");
    let volume = text(&scratch.volume);
    let file = scratch.file("f", "content ".repeat(100_000));
    ok(["put", text(&file), &scratch.on("/f")]);
    ok(["resize", volume, "200M"]);
    assert_eq!(fs::metadata(volume).unwrap().len(), 200 * MIB);
    assert_eq!((info(volume)["size"].as_u64(), &info(volume)["could_be"]), (Some(200 * MIB), &Value::Null));
    ok(["check", volume]);
    ok(["resize", volume, "100M"]);
    assert_eq!(fs::metadata(volume).unwrap().len(), 100 * MIB);
    // Enlarged by other means.
    fs::File::options().write(true).open(volume).unwrap().set_len(150 * MIB).unwrap();
    assert_eq!(info(volume)["could_be"].as_u64(), Some(136 * MIB + 14 * MIB));
    assert!(ok(["info", volume]).contains("yore resize"));
    ok(["resize", volume]);
    assert_eq!(info(volume)["size"].as_u64(), Some(150 * MIB));
    assert!(error_text(&run(["resize", volume])).contains("as it was"));
    ok(["check", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]), "content ".repeat(100_000));
    assert!(fails(3, ["resize", volume, "1M"]).contains("at least"));
    fails(2, ["resize", volume, "much"]);
}

/// `operations` lists who changed the length of a volume, with both lengths and the command that reverses it;
/// mounted or not.
#[test]
fn stands_in_operations() {
    let scratch = made("32M");
    let volume = text(&scratch.volume);
    ok(["resize", volume, "64M"]);
    ok(["resize", volume, "48M"]);
    ok(["resize", volume, "48M"]);
    let rows = |operand: &str| -> Vec<Value> {
        let rows: Value = serde_json::from_str(&ok(["operations", "--json", operand])).unwrap();
        rows.as_array().unwrap().iter().filter(|row| row["operation"] == "resize").cloned().collect()
    };
    let found = rows(volume);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (&found[0]["bytes"], &found[0]["note"]),
        (&Value::from(48 * MIB), &Value::from((64 * MIB).to_string()))
    );
    assert_eq!(
        (&found[1]["bytes"], &found[1]["note"]),
        (&Value::from(64 * MIB), &Value::from((32 * MIB).to_string()))
    );
    assert_eq!(found[0]["undo"], format!("yore resize {volume} {}", 64 * MIB));
    assert_eq!(found[1]["undo"], Value::Null);
    let lines = ok(["operations", volume]);
    assert!(lines.contains("64 MiB -> 48 MiB") && lines.contains("32 MiB -> 64 MiB"), "{lines}");
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    ok(["resize", volume, "80M"]);
    let found = rows(text(&mount.directory));
    assert_eq!(
        (found.len(), &found[0]["bytes"], &found[0]["undo"]),
        (3, &Value::from(80 * MIB), &Value::Null)
    );
    assert_eq!(found[0]["uid"], 0);
}

/// Data beyond the new end prevents it: nothing changes, and the message says how short the volume can be.
#[test]
fn in_the_way() {
    let scratch = made("64M");
    let volume = text(&scratch.volume);
    let file = scratch.file("f", "x".repeat(40 << 20));
    ok(["put", text(&file), &scratch.on("/f")]);
    let message = fails(3, ["resize", volume, "20M"]);
    assert!(message.contains("beyond the new end") && message.contains("stays as it is"), "{message}");
    assert_eq!(fs::metadata(volume).unwrap().len(), 64 * MIB);
    let least: u64 =
        message.split("can be made ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((40 * MIB..64 * MIB).contains(&least), "{message}");
    ok(["check", volume]);
    ok(["resize", volume, &least.to_string()]);
    ok(["check", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]).len(), 40 << 20);
}

/// A full volume whose first half is removed shrinks to half its length, and every file is unchanged. Blocks
/// of a snapshot prevent it, and the message says so with the command that frees them. Before, any data
/// beyond the new end prevented it.
#[test]
fn files_make_room() {
    let scratch = Scratch::empty();
    let volume = text(&scratch.volume);
    ok(["mkfs", volume, "--size", "256M", "--policy", "none"]);
    let content = |n: usize| format!("{n:07}\n").repeat(9 << 17);
    let name = |n: usize| scratch.on(&format!("/f{n}"));
    for n in 0..25 {
        let file = scratch.file(&format!("f{n}"), content(n));
        ok(["put", text(&file), &name(n)]);
    }
    let why = fails(3, ["resize", volume, "128M"]);
    assert!(why.contains("bytes are missing") && why.contains("stays as it is"), "{why}");
    ok(["snapshot", volume, "-n", "before"]);
    for n in 0..14 {
        ok(["rm", &name(n)]);
    }
    let why = fails(3, ["resize", volume, "128M"]);
    assert!(why.contains("bytes of history alone") || why.contains("bytes are missing"), "{why}");
    assert!(why.contains("yore forget") && why.contains("can be made"), "{why}");
    ok(["forget", &scratch.on("/.@before")]);
    ok(["resize", volume, "128M"]);
    assert_eq!(fs::metadata(volume).unwrap().len(), 128 * MIB);
    ok(["check", volume]);
    for n in 14..25 {
        assert!(ok(["cat", &name(n)]) == content(n), "f{n}");
    }
}

/// A mount grows while a file on it is open; it does not shrink.
#[test]
fn mounted() {
    let scratch = made("32M");
    let volume = text(&scratch.volume);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let path = mount.directory.join("f");
    fs::write(&path, vec![1; 20 << 20]).unwrap();
    assert!(fs::write(mount.directory.join("large"), vec![2; 60 << 20]).is_err());
    ok(["resize", volume, "200M"]);
    assert_eq!(fs::metadata(volume).unwrap().len(), 200 * MIB);
    fs::write(mount.directory.join("large"), vec![2; 60 << 20]).unwrap();
    let directory = text(&mount.directory);
    assert!(fails(3, ["resize", directory, "64M"]).contains("yore umount"));
    // Enlarged by other means: both say so, and either name works.
    fs::File::options().write(true).open(volume).unwrap().set_len(256 * MIB).unwrap();
    assert_eq!(info(directory)["could_be"].as_u64(), Some(256 * MIB));
    mount.umount();
    let again = run(["mount", volume, directory]);
    assert!(error_text(&again).contains("yore resize"), "{}", error_text(&again));
    ok(["resize", directory]);
    let space = rustix::fs::statvfs(directory).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, 256 * MIB);
    assert_eq!(fs::read(&path).unwrap(), vec![1; 20 << 20]);
    ok(["umount", directory]);
    ok(["check", volume]);
    assert_eq!(info(volume)["size"].as_u64(), Some(256 * MIB));
}

/// A block device that was enlarged under a mount, as by lvextend, is used to its end.
#[test]
fn block_devices() {
    let scratch = Scratch::empty();
    let backing = scratch.path("backing");
    fs::File::create(&backing).unwrap().set_len(32 * MIB).unwrap();
    let losetup =
        |args: &[&str]| Command::new("losetup").args(args).output().ok().filter(|out| out.status.success());
    let Some(made) = losetup(&["--find", "--show", text(&backing)]) else {
        eprintln!("SKIPPED: no loop device can be had here");
        return;
    };
    let device = String::from_utf8_lossy(&made.stdout).trim().to_string();
    struct Detach(String);
    impl Drop for Detach {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["-d", &self.0]).status();
        }
    }
    let _detach = Detach(device.clone());
    ok(["mkfs", &device]);
    assert!(fails(3, ["resize", &device, "64M"]).contains("make the device longer first"));
    fs::File::options().write(true).open(&backing).unwrap().set_len(64 * MIB).unwrap();
    losetup(&["-c", &device]).expect("the loop device is told");
    assert_eq!(info(&device)["could_be"].as_u64(), Some(64 * MIB));
    ok(["resize", &device]);
    assert_eq!(info(&device)["size"].as_u64(), Some(64 * MIB));
    let message = error_text(&run(["resize", &device, "48M"]));
    assert!(message.contains("the device may be made as short"), "{message}");
    assert_eq!(info(&device)["size"].as_u64(), Some(48 * MIB));
    ok(["check", &device]);
}
