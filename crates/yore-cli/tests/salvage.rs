//! Promises about damaged volumes: what is not damaged can be copied off, the copies that are there already
//! stay, and a volume that has lost its superblocks is neither called a stranger's file nor overwritten.

use crate::common;

use common::{fails, ok, put, run, text, Scratch};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const BLOCK: usize = 4096;

/// Three blocks that no other file has.
fn content(n: u8) -> Vec<u8> {
    (0..3).flat_map(|block| [n, block, 0x5a, 0xa5].repeat(BLOCK / 4)).collect()
}

/// A volume with `/d/a`, `/d/b`, which is also `/d/second`, `/d/sub/c` and `/d/z`. The middle of `b` is
/// damaged.
fn damaged() -> Scratch {
    let scratch = Scratch::empty();
    ok(["mkfs", "--policy", "none", "--data-checksums", text(&scratch.volume), "--size", "64M"]);
    fs::create_dir_all(scratch.path("tree/sub")).unwrap();
    for (n, name) in (1..).zip(["a", "b", "sub/c", "z"]) {
        scratch.file(&format!("tree/{name}"), content(n));
    }
    fs::hard_link(scratch.path("tree/b"), scratch.path("tree/second")).unwrap();
    ok(["put", "-r", text(&scratch.path("tree")), &scratch.on("/d")]);
    let bytes = fs::read(&scratch.volume).unwrap();
    let wanted = &content(2)[BLOCK..2 * BLOCK];
    let image = fs::File::options().write(true).open(&scratch.volume).unwrap();
    let mut places = (0..).zip(bytes.chunks(BLOCK)).filter(|(_, block)| *block == wanted).peekable();
    assert!(places.peek().is_some(), "some block has it");
    places.for_each(|(n, block)| image.write_all_at(&[block[0] ^ 8], n * BLOCK as u64).unwrap());
    scratch
}

/// What is not damaged.
const WHOLE: [(u8, &str); 3] = [(1, "a"), (3, "sub/c"), (4, "z")];

#[track_caller]
fn has_what_is_whole(directory: &Path) {
    for (n, name) in WHOLE {
        assert!(fs::read(directory.join(name)).unwrap() == content(n), "{name}");
    }
}

fn cat(path: &str) -> Vec<u8> {
    let output = run(["cat", path]);
    assert!(output.status.success(), "{path}: {}", common::error_text(&output));
    output.stdout
}

/// Of a damaged volume people copy off what is there, as `yore check` says: `get -r` and `cp -r` ended at the
/// first bad file, and what came behind it could not be had. They name each file that cannot be read, and
/// copy the rest, from a directory and from many operands, with a bar as without.
#[test]
fn what_is_damaged_is_left_out() {
    let scratch = damaged();
    let named = |message: &str| ["/d/b", "/d/second"].iter().all(|name| message.contains(name));
    let back = scratch.path("back");
    let message = fails(4, ["get", "-r", &scratch.on("/d"), text(&back)]);
    assert!(named(&message) && message.lines().count() == 2, "{message}");
    has_what_is_whole(&back);

    let other = Scratch::new();
    let message = fails(4, ["cp", "-r", "--progress-fd", "1", &scratch.on("/d"), &other.on("/d")]);
    assert!(named(&message), "{message}");
    for (n, name) in WHOLE {
        assert!(cat(&other.on(&format!("/d/{name}"))) == content(n), "{name}");
    }
    ok(["check", text(&other.volume)]);

    let some = scratch.path("some");
    fs::create_dir(&some).unwrap();
    let (b, none, z) = (scratch.on("/d/b"), scratch.on("/d/none"), scratch.on("/d/z"));
    let message = fails(4, ["get", &b, &none, &z, text(&some)]);
    assert!(message.contains("/d/b") && message.contains("/d/none"), "{message}");
    assert!(fs::read(some.join("z")).unwrap() == content(4));
    // Nothing of these is damaged.
    fails(3, ["get", &none, &z, text(&some)]);
}

/// Where there was an older copy, it was emptied before it showed that the file on the volume cannot be read:
/// neither of the two was left. The second name of such a file was removed for a link to the first.
#[test]
fn an_older_copy_stays() {
    let scratch = damaged();
    let older = scratch.path("older");
    fs::create_dir_all(older.join("d")).unwrap();
    for name in ["a", "b", "second"] {
        fs::write(older.join("d").join(name), name).unwrap();
    }
    fails(4, ["get", "-r", &scratch.on("/d"), text(&older)]);
    has_what_is_whole(&older.join("d"));
    for name in ["b", "second"] {
        assert_eq!(fs::read_to_string(older.join("d").join(name)).unwrap(), name);
    }

    let other = Scratch::new();
    put(&other, "/b", "older");
    fails(4, ["cp", &scratch.on("/d/b"), &other.on("/b")]);
    assert_eq!(cat(&other.on("/b")), b"older");
    fails(4, ["cp", &scratch.on("/d/b"), &scratch.on("/d/a")]);
    assert!(cat(&scratch.on("/d/a")) == content(1));
}

/// One name that cannot be written ended the copy of all others.
#[test]
fn what_cannot_be_written_is_left_out() {
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    for name in ["a", "b", "c"] {
        put(&scratch, &format!("/d/{name}"), name);
    }
    let back = scratch.path("back");
    fs::create_dir_all(back.join("d/b")).unwrap();
    let message = fails(3, ["get", "-r", &scratch.on("/d"), text(&back)]);
    assert!(message.contains("back/d/b is a directory"), "{message}");
    for name in ["a", "c"] {
        assert_eq!(fs::read_to_string(back.join("d").join(name)).unwrap(), name);
    }
}

/// A volume that had lost both superblocks was "no Yore volume": make one with `yore mkfs`. And that did,
/// although `yore check --repair` brings such a volume back.
#[test]
fn a_volume_without_superblocks() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    let lose = |bytes: usize| {
        let image = fs::File::options().write(true).open(&scratch.volume).unwrap();
        image.write_all_at(&vec![0; bytes], 0).unwrap();
    };
    let is_spared = || {
        for command in [["ls", &scratch.on("/")], ["info", volume]] {
            let message = fails(4, command);
            assert!(message.contains(&format!("`yore check --repair {volume}`")), "{message}");
        }
        let before = fs::read(&scratch.volume).unwrap();
        let message = fails(3, ["mkfs", volume, "--size", "64M"]);
        assert!(
            message.contains("a Yore volume without superblocks") && message.contains("--force"),
            "{message}"
        );
        assert!(fs::read(&scratch.volume).unwrap() == before);
    };
    lose(2 * BLOCK);
    is_spared();
    ok(["check", "--repair", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]), "content");
    // All that is looked at for others' magic numbers is zeros; the spare superblock lies behind that.
    lose(1 << 20);
    is_spared();
    ok(["mkfs", volume, "--size", "64M", "--force"]);
    assert_eq!(ok(["ls", &scratch.on("/")]), "");
}
