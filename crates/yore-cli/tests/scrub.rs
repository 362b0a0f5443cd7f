//! Promises of `scrub` and `checksums`: what is damaged on the medium is told with the file and the offset,
//! on a volume and on a mount; reading it is an error and no other byte; and a volume that has no checksums
//! of its data says so, and can get them.

mod common;

use common::{fails, ok, run, text, Mount, Scratch};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt as _;

const BLOCK: usize = 4096;

fn blocks(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|n| (n | 0x5a5a_0000_0000).to_le_bytes().repeat(BLOCK / 8)).collect()
}

/// Flips a bit of block `n` of the file, wherever it is on the volume.
fn damage(scratch: &Scratch, n: usize) {
    let wanted = &blocks(n + 1)[n * BLOCK..];
    let bytes = fs::read(&scratch.volume).unwrap();
    let at = bytes.chunks(BLOCK).position(|block| block == wanted).expect("some block has the bytes") * BLOCK;
    let volume = fs::OpenOptions::new().write(true).open(&scratch.volume).unwrap();
    volume.write_all_at(&[bytes[at + 99] ^ 8], at as u64 + 99).unwrap();
}

fn json(status: i32, args: &[&str]) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_damaged_block_is_found() {
    let scratch = Scratch::empty();
    let volume = text(&scratch.volume);
    ok(["mkfs", "--policy", "none", "--data-checksums", volume, "--size", "64M"]);
    let file = scratch.file("big", blocks(300));
    ok(["put", text(&file), &scratch.on("/big")]);
    let sound = json(0, &["scrub", "--json", volume]);
    assert_eq!((sound["clean"].as_bool(), sound["data_bytes"].as_u64()), (Some(true), Some(300 * 4096)));
    damage(&scratch, 123);
    let found = json(1, &["scrub", "--json", volume]);
    assert_eq!(found["damaged_data"].as_array().unwrap().len(), 1, "{found}");
    let row = &found["damaged_data"][0];
    assert_eq!((row["path"].as_str(), row["offset"].as_u64()), (Some("/big"), Some(123 * 4096)));
    let message = fails(4, ["cat", &scratch.on("/big")]);
    assert!(message.contains("offset 503808 of the file"), "{message}");
    ok(["check", volume]);

    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory);
    let found = json(1, &["scrub", "--json", "--rate", "100M", directory]);
    assert_eq!(found["damaged_data"][0]["offset"].as_u64(), Some(123 * 4096));
    let file = fs::File::open(mount.directory.join("big")).unwrap();
    let mut bytes = vec![0; BLOCK];
    let error = file.read_at(&mut bytes, 123 * 4096 + 10).unwrap_err();
    assert!([5, 117].contains(&error.raw_os_error().unwrap()), "{error}");
    assert_eq!(file.read_at(&mut bytes, 200 * 4096).unwrap(), BLOCK);
    assert!(bytes == blocks(201)[200 * BLOCK..]);
}

#[test]
fn a_volume_gets_checksums() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    let file = scratch.file("big", blocks(300));
    ok(["put", text(&file), &scratch.on("/big")]);
    assert!(ok(["scrub", volume]).contains("has no checksums"));
    assert_eq!(json(0, &["checksums", "--json", volume])["data_checksums"].as_bool(), Some(false));
    if let Some(mount) = Mount::new(&scratch, &[]) {
        let done = json(0, &["checksums", "--enable", "--json", text(&mount.directory)]);
        assert_eq!(
            (done["entered"].as_u64(), done["without"].as_u64()),
            (Some(300 * 4096), Some(0)),
            "{done}"
        );
    }
    ok(["checksums", "--enable", volume]);
    assert_eq!(json(0, &["checksums", "--json", volume])["data_checksums"].as_bool(), Some(true));
    assert_eq!(json(0, &["scrub", "--json", volume])["data_bytes"].as_u64(), Some(300 * 4096));
    ok(["check", volume]);
    damage(&scratch, 7);
    assert_eq!(json(1, &["scrub", "--json", volume])["damaged_data"][0]["offset"].as_u64(), Some(7 * 4096));
    let refused =
        fails(3, ["mkfs", "--data-checksums", "--engine", "none", text(&scratch.path("n")), "--size", "64M"]);
    assert!(refused.contains("engine"), "{refused}");
}
