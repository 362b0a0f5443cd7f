//! Refused commands: the message names the problem, and not a byte is changed.

use crate::common;

use common::{fails, ok, text, Scratch};
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

/// `mkfs` overwrites nothing that somebody may want to keep, unless forced.
#[test]
fn mkfs_over_something() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume).to_string();
    let file = scratch.file("f", "kept");
    ok(["put", text(&file), &scratch.on("/f")]);
    let before = fs::read(&scratch.volume).unwrap();
    assert!(fails(3, ["mkfs", &volume, "--size", "64M"]).contains("--force"));
    assert!(fs::read(&scratch.volume).unwrap() == before, "a refused mkfs changes nothing");
    ok(["mkfs", &volume, "--size", "32M", "--force"]);
    fails(3, ["cat", &scratch.on("/f")]);

    let letter = scratch.file("letter.txt", "Dear reader");
    assert!(fails(3, ["mkfs", text(&letter), "--size", "64M"]).contains("content"));
    assert_eq!(fs::read(&letter).unwrap(), b"Dear reader");

    let ext4 = scratch.file("ext4", "");
    let image = fs::File::options().write(true).open(&ext4).unwrap();
    image.set_len(64 << 20).unwrap();
    image.write_all_at(&[0x53, 0xef], 1080).unwrap();
    assert!(fails(3, ["mkfs", text(&ext4)]).contains("ext4"));
    // A file of zeros may be overwritten, whatever its size.
    let zeros = scratch.file("zeros", "");
    fs::File::options().write(true).open(&zeros).unwrap().set_len(48 << 20).unwrap();
    ok(["mkfs", text(&zeros)]);
    assert!(ok(["info", text(&zeros)]).contains("48 MiB"));
}

/// Impossible sizes and places are refused, and leave nothing behind.
#[test]
fn mkfs_of_the_impossible() {
    let scratch = Scratch::empty();
    let volume = text(&scratch.volume).to_string();
    assert!(fails(3, ["mkfs", &volume, "--size", "15M"]).contains("16 MiB"));
    assert!(!scratch.volume.exists());
    assert!(fails(2, ["mkfs", &volume, "--size", "banana"]).contains("banana"));
    assert!(fails(2, ["mkfs", &volume]).contains("--size"));
    let below = scratch.path("none/v.yore");
    assert!(fails(3, ["mkfs", text(&below), "--size", "64M"]).contains("does not exist"));
    assert!(fails(3, ["mkfs", text(&scratch.path("")), "--size", "64M"]).contains("directory"));
    assert!(fails(3, ["mkfs", "/dev/null", "--size", "64M"]).contains("/dev/null"));
}

/// If a file is no volume, every command says so.
#[test]
fn files_that_are_no_volumes() {
    let scratch = Scratch::empty();
    let noise = scratch.file(
        "noise",
        (0..40_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
    );
    let empty = scratch.file("empty", "");
    for file in [&noise, &empty] {
        let name = file.file_name().unwrap().to_str().unwrap();
        let before = fs::read(file).unwrap();
        for command in ["info", "check", "df"] {
            let message = fails(3, [command, text(file)]);
            assert!(message.contains(name), "{message}");
        }
        let message = fails(3, ["ls", &format!("{}:/", text(file))]);
        assert!(message.contains(name) && message.contains("no Yore volume"), "{message}");
        assert!(fs::read(file).unwrap() == before);
    }
    let absent = scratch.path("absent");
    assert!(fails(3, ["info", text(&absent)]).contains("absent"));
    assert!(fails(3, ["ls", &format!("{}:/", text(&absent))]).contains("absent"));
}

/// A truncated volume, or one of a format that this program does not know, is refused for that reason.
#[test]
fn volumes_that_cannot_be_used() {
    let scratch = Scratch::new();
    let image = |name: &str| {
        let copy = scratch.path(name);
        fs::copy(&scratch.volume, &copy).unwrap();
        copy
    };
    for event in [1u64, 4 << 20, 60 << 20] {
        let short = image("short");
        fs::File::options().write(true).open(&short).unwrap().set_len((64 << 20) - event).unwrap();
        for command in [["ls", &format!("{}:/", text(&short))], ["info", text(&short)]] {
            let message = fails(3, command);
            assert!(
                message.contains("truncated") && message.contains("check --repair --shorten"),
                "{message}"
            );
        }
    }
    let newer = image("newer");
    let file = fs::File::options().write(true).open(&newer).unwrap();
    for slot in [0, 4096] {
        file.write_all_at(&99u32.to_le_bytes(), slot + 8).unwrap();
    }
    let message = fails(3, ["ls", &format!("{}:/", text(&newer))]);
    assert!(message.contains("newer") && message.contains("99"), "{message}");
    let damaged = image("damaged");
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    for slot in [0, 4096] {
        file.write_all_at(&[0xff; 4], slot + 100).unwrap();
    }
    let message = fails(4, ["ls", &format!("{}:/", text(&damaged))]);
    assert!(message.contains("damaged") && message.contains("yore check --repair"), "{message}");
}

/// A new volume could be read by everybody, with all that anybody keeps in it, and so could its log.
#[test]
fn what_mkfs_makes_is_private() {
    let scratch = Scratch::empty();
    let mode = |name: &str| fs::metadata(scratch.path(name)).unwrap().permissions().mode() & 0o777;
    ok(["mkfs", text(&scratch.volume), "--size", "64M", "--journal", text(&scratch.path("log"))]);
    assert_eq!((mode("v.yore"), mode("log")), (0o600, 0o600));
    // Whoever made the file has said who may read it.
    let there = scratch.file("there", "");
    fs::File::options().write(true).open(&there).unwrap().set_len(48 << 20).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o640)).unwrap();
    ok(["mkfs", text(&there)]);
    assert_eq!(mode("there"), 0o640);
}

/// An impossible mount is refused before the volume is opened.
#[test]
fn mounts_that_cannot_be() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume).to_string();
    let before = fs::read(&scratch.volume).unwrap();
    let file = scratch.file("file", "x");
    let full = scratch.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("entry"), "").unwrap();
    let mount_point = scratch.path("mnt");
    fs::create_dir(&mount_point).unwrap();
    fails(3, ["mount", &volume, text(&scratch.path("none"))]);
    fails(3, ["mount", &volume, text(&file)]);
    fails(3, ["mount", &volume, text(&full)]);
    assert!(fails(2, ["mount", &volume, text(&mount_point), "-o", "nonsense"]).contains("nonsense"));
    assert!(fails(2, ["mount", &volume, text(&mount_point), "-o", "engine=nonsense"]).contains("nonsense"));
    assert!(fails(3, ["umount", text(&mount_point)]).contains("mnt"));
    assert!(fs::read(&scratch.volume).unwrap() == before, "refused mounts change nothing");
}
