//! Promises of `scrub` and `checksums`: what is damaged on the medium is told with the file and the offset,
//! on a volume and on a mount; reading it is an error and no other byte; and a volume that has no checksums
//! of its data says so, and can get them.

use crate::common;

use common::{fails, ok, run, take, text, until, Mount, Scratch};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// A volume with checksums of file data, on which only the test takes snapshots.
fn with_checksums() -> Scratch {
    let scratch = Scratch::empty();
    ok(["mkfs", "--policy", "none", "--data-checksums", text(&scratch.volume), "--size", "64M"]);
    scratch
}

/// The same with a file of so many blocks.
fn with_big_file(count: usize) -> Scratch {
    let scratch = with_checksums();
    ok(["put", text(&scratch.file("big", blocks(count))), &scratch.on("/big")]);
    scratch
}

#[test]
fn a_damaged_block_is_found() {
    let scratch = with_big_file(300);
    let volume = text(&scratch.volume);
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

/// Whether a line of progress says that so many blocks are read.
fn has_read(line: &str, blocks: u64) -> bool {
    serde_json::from_str::<Value>(line).unwrap()["done"].as_u64().is_some_and(|done| done >= blocks)
}

/// Starts a slow scrub, interrupts it once so many blocks are read, and returns its status and what it said.
fn interrupted(target: &str, blocks: u64) -> (i32, Value) {
    let args = ["scrub", "--json", "--rate", "4M", "--progress-fd", "2", target];
    let mut scrub = common::yore().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(scrub.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap).skip_while(|line| !has_read(line, blocks));
    assert!(lines.next().is_some(), "it was not interrupted");
    kill_process(Pid::from_child(&scrub), Signal::INT).unwrap();
    // It goes on saying how far it is.
    lines.for_each(drop);
    let output = scrub.wait_with_output().unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// Promises that `yore umount` does not find a mount busy because of a scrub of it: the scrub is broken off,
/// says so, and goes on with the volume.
#[test]
fn an_unmount_breaks_a_scrub_off() {
    let scratch = with_big_file(1000);
    let volume = text(&scratch.volume);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let args = ["scrub", "--json", "--rate", "100K", text(&mount.directory)];
    let scrub = common::yore().args(args).stdout(Stdio::piped()).spawn().unwrap();
    until("it is being scrubbed", || mount.info()["scrub"]["under_way"]["running"] == true);
    assert!(fails(3, ["scrub", text(&mount.directory)]).contains("is being scrubbed already"));
    ok(["umount", text(&mount.directory)]);
    let output = scrub.wait_with_output().unwrap();
    let part: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &part["position_recorded"]), (Some(6), &true.into()), "{part}");
    assert!(json(0, &["scrub", "--json", volume])["went_on_since"].is_string());
}

/// Promises that a scrub which was interrupted, of a volume as well as of a mount, says so with a status of
/// its own, that `info` shows how far it is, that the next one goes on, whether mounted or not, and tells at
/// its end what was found before, and that `info` then says how it ended. `--restart` begins anew.
#[test]
fn an_interrupted_scrub_goes_on() {
    let scratch = with_big_file(3000);
    let volume = text(&scratch.volume);
    damage(&scratch, 12);
    let (status, part) = interrupted(volume, 600);
    assert_eq!((status, &part["position_recorded"]), (6, &true.into()), "{part}");
    assert_eq!((&part["further_findings"], &part["went_on_since"]), (&1.into(), &Value::Null), "{part}");
    let info = json(0, &["info", "--json", volume]);
    let at = &info["scrub"]["under_way"];
    assert_eq!(
        (&at["running"], &at["damaged"], &info["scrub"]["last"]),
        (&false.into(), &1.into(), &Value::Null)
    );
    assert!(ok(["info", volume]).contains("did not come to its end: `yore scrub` goes on"));
    let first = part["data_bytes"].as_u64().unwrap();
    let mut second = first;
    if let Some(mount) = Mount::new(&scratch, &[]) {
        let directory = text(&mount.directory);
        let (status, part) = interrupted(directory, 1300);
        second = part["data_bytes"].as_u64().unwrap();
        assert_eq!((status, &part["position_recorded"]), (6, &true.into()), "{part}");
        assert!(part["went_on_since"].is_string() && second > first, "{part}");
        assert!(ok(["info", directory]).contains("did not come to its end: `yore scrub` goes on"));
    }
    let whole = json(1, &["scrub", "--json", volume]);
    assert!(whole["went_on_since"].is_string(), "{whole}");
    assert!(second < 3000 * 4096);
    assert_eq!(whole["data_bytes"].as_u64(), Some(3000 * 4096), "{whole}");
    assert_eq!(whole["damaged_data"][0]["offset"].as_u64(), Some(12 * 4096));
    let info = json(0, &["info", "--json", volume]);
    assert_eq!(
        (&info["scrub"]["under_way"], &info["scrub"]["last"]["damaged_data"]),
        (&Value::Null, &1.into())
    );
    assert!(ok(["info", volume]).contains("0 blocks of metadata and 1 of data were damaged"));
    assert_eq!(interrupted(volume, 500).0, 6);
    let anew = json(1, &["scrub", "--json", "--restart", volume]);
    assert_eq!(
        (&anew["went_on_since"], &anew["damaged_data"][0]["offset"]),
        (&Value::Null, &(12 * 4096).into())
    );
    ok(["check", volume]);
}

/// Promises that a scrub says how much data has no checksum and so was not verified, in how many files, and
/// in plain words when all has one; that `info` says it of the last scrub; and that both are so on a mount.
#[test]
fn a_scrub_says_what_has_no_checksum() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    for (name, count) in [("/big", 300), ("/small", 1)] {
        let file = scratch.file("file", blocks(count));
        ok(["put", text(&file), &scratch.on(name)]);
    }
    let of = |bytes: u64, files: u64| serde_json::json!({ "bytes": bytes, "files": files });
    assert_eq!(json(0, &["scrub", "--json", volume])["without_checksums"], of(301 * 4096, 2));
    let said = ok(["scrub", volume]);
    assert!(said.contains("of data in 2 files has no checksum and was not verified"), "{said}");
    let info = json(0, &["info", "--json", volume]);
    assert_eq!(info["scrub"]["last"]["without_checksums"], of(301 * 4096, 2));
    assert!(ok(["info", volume]).contains("in 2 files has no checksum"));
    ok(["snapshot", volume]);
    ok(["rm", &scratch.on("/big")]);
    ok(["rm", &scratch.on("/small")]);
    let said = ok(["scrub", volume]);
    assert!(said.contains("of data of the past alone has no checksum"), "{said}");
    ok(["checksums", "--enable", volume]);
    assert_eq!(json(0, &["scrub", "--json", volume])["without_checksums"], of(0, 0));
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let said = ok(["scrub", text(&mount.directory)]);
    assert!(said.contains("all file data has checksums"), "{said}");
    assert_eq!(mount.info()["scrub"]["last"]["without_checksums"], of(0, 0));
}

/// A volume with checksums and the file `/d/big`, of which a snapshot has one state; the present one has
/// another block 3, and that is damaged.
fn damaged_since_a_snapshot() -> Scratch {
    let scratch = with_checksums();
    let mut content = blocks(300);
    content[3 * BLOCK..4 * BLOCK].fill(7);
    ok(["mkdir", &scratch.on("/d")]);
    ok(["put", text(&scratch.file("was", &content)), &scratch.on("/d/big")]);
    take(text(&scratch.volume), "before");
    ok(["put", text(&scratch.file("is", blocks(300))), &scratch.on("/d/big")]);
    damage(&scratch, 3);
    scratch
}

/// What the log of a file must say of the damage.
#[track_caller]
fn says_what_is_whole(path: &str) {
    let said = ok(["log", path]);
    let line = said.lines().next().unwrap();
    assert!(line.starts_with("the data is damaged at offset 12288 of the file (block "), "{said}");
    assert!(line.contains(" is whole: yore restore ") && line.contains(&format!("{path}@")), "{said}");
    let rows = json(0, &["log", "--json", path]);
    assert_eq!((&rows[0]["data"]["state"], &rows[0]["data"]["offset"]), (&"damaged".into(), &12288.into()));
    assert_eq!(rows[1]["data"]["state"], "whole", "{rows}");
}

/// Promises that the log of a file with a damaged block names the last state that is whole, and how to bring
/// it back: on request; by itself once a scrub has found it, or somebody has read it, on a mount and at rest;
/// that the error points there; and that it says nothing of the kind when all is whole again.
#[test]
fn the_log_names_the_last_state_that_is_whole() {
    let scratch = damaged_since_a_snapshot();
    let path = scratch.on("/d/big");
    assert!(!ok(["log", &path]).contains("damaged"), "nobody knows of it yet");
    let verified = run(["log", "--verify", &path]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&verified.stdout).contains(" is whole: yore restore "));
    let error = fails(4, ["cat", &path]);
    assert!(error.contains("`yore log --verify FILE` names the last state that is whole"), "{error}");
    if let Some(mount) = Mount::new(&scratch, &[]) {
        let file = mount.directory.join("d/big");
        assert!(!ok(["log", text(&file)]).contains("damaged"));
        assert!(fs::read(&file).is_err());
        says_what_is_whole(text(&file));
        let log = fs::read_to_string(scratch.path("daemon.log")).unwrap();
        assert!(log.contains("`yore log --verify FILE`"), "{log}");
        // Under another name the command names the one that it had then.
        let renamed = mount.directory.join("an other");
        fs::rename(&file, &renamed).unwrap();
        assert!(ok(["log", text(&renamed)]).contains(&format!(" is whole: yore restore {}@", text(&file))));
        fs::rename(&renamed, &file).unwrap();
        mount.umount();
        // What reading has met is known behind the unmount.
        says_what_is_whole(&path);
    }
    assert_eq!(run(["scrub", text(&scratch.volume)]).status.code(), Some(1));
    says_what_is_whole(&path);
    let said = ok(["log", &path]);
    let command = said.lines().next().unwrap().split("yore ").last().unwrap();
    ok(command.split(' '));
    ok(["get", &path, text(&scratch.path("back"))]);
    assert_eq!(fs::read(scratch.path("back")).unwrap(), fs::read(scratch.path("was")).unwrap());
    assert!(ok(["log", "--verify", &path]).starts_with("the data is whole\n"));
    // The damage is still in the past, which a scrub finds there, and the log says so.
    assert_eq!(run(["scrub", text(&scratch.volume)]).status.code(), Some(1));
}

/// Promises that the log says so where no state is whole, where there are no checksums, and of what has no
/// data; and that a scrub which finds a block whole again takes it off what is known to be damaged.
#[test]
fn the_log_says_what_it_cannot_verify() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    ok(["put", text(&scratch.file("file", blocks(30))), &scratch.on("/f")]);
    let said = ok(["log", "--verify", &scratch.on("/f")]);
    assert!(said.starts_with("nothing is damaged, but 120 KiB of the data has no checksum"), "{said}");
    assert!(ok(["log", "--verify", &scratch.on("/")]).starts_with("nothing was verified"));
    ok(["checksums", "--enable", volume]);
    damage(&scratch, 2);
    assert_eq!(run(["scrub", volume]).status.code(), Some(1));
    let said = ok(["log", &scratch.on("/f")]);
    assert!(said.contains("; no state that a snapshot has is whole\n"), "{said}");
    assert_eq!(json(0, &["info", "--json", volume])["scrub"]["damaged_blocks"].as_array().unwrap().len(), 1);
    ok(["put", text(&scratch.file("file", blocks(30))), &scratch.on("/f")]);
    ok(["scrub", volume]);
    assert_eq!(json(0, &["info", "--json", volume])["scrub"]["damaged_blocks"].as_array().unwrap().len(), 0);
    assert!(!ok(["log", &scratch.on("/f")]).contains("damaged"));
}

/// A scrub of a mount that takes long.
fn slow_scrub(mount: &Mount<'_>) -> Child {
    let args = ["scrub", "--json", "--rate", "100K", text(&mount.directory)];
    let scrub = common::yore().args(args).stdout(Stdio::piped()).spawn().unwrap();
    until("it is being scrubbed", || mount.info()["scrub"]["under_way"]["running"] == true);
    scrub
}

/// A mount was busy for umount(8) as long as a scrub of it ran, because the command had its directory open to
/// ask the daemon. Promises that it is not: nothing of the mount is open, so the first umount(8) succeeds,
/// and the scrub is broken off, says so, and goes on with the volume.
#[test]
fn a_plain_umount_breaks_a_scrub_off() {
    let scratch = with_big_file(1000);
    let volume = text(&scratch.volume);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (scrub, pid) = (slow_scrub(&mount), mount.pid());
    // `info` has just closed the directory.
    let unmounted = || match rustix::process::geteuid().is_root() {
        true => Command::new("umount").arg(&mount.directory).status().unwrap().success(),
        false => Command::new("fusermount3").arg("-u").arg(&mount.directory).status().unwrap().success(),
    };
    assert!(unmounted());
    let output = scrub.wait_with_output().unwrap();
    let part: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &part["position_recorded"]), (Some(6), &true.into()), "{part}");
    common::wait_for_end(pid);
    assert!(json(0, &["scrub", "--json", volume])["went_on_since"].is_string());
    ok(["check", volume]);
}

/// A daemon that had only snapshots mounted went on with a scrub when the last of them was unmounted, and
/// ended with it, for nobody closes the volume before. Promises that the scrub is broken off with the last
/// mount.
#[test]
fn a_scrub_ends_with_the_last_mounted_snapshot() {
    let scratch = with_big_file(1000);
    let volume = text(&scratch.volume);
    take(volume, "then");
    let Some(mount) = Mount::new(&scratch, &["--at", "then"]) else { return };
    let args = ["scrub", "--json", "--rate", "100K", "--progress-fd", "2", text(&mount.directory)];
    let mut scrub = common::yore().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(scrub.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut lines = lines.skip_while(|line| !has_read(line, 1));
    assert!(lines.next().is_some(), "it is being scrubbed");
    let pid = mount.pid();
    mount.umount();
    lines.for_each(drop);
    let output = scrub.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    common::wait_for_end(pid);
    ok(["check", volume]);
}

/// A daemon waited at its end for whoever had connected to its socket, although nothing had been asked there.
/// Promises that it ends with its mount.
#[test]
fn a_daemon_does_not_wait_for_who_asks_nothing() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let pid = mount.pid();
    let socket = socket_of(pid);
    let mut stream = UnixStream::connect(&socket).unwrap();
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    until("somebody hears", || {
        let all = fs::read_dir(&tasks).unwrap().flatten();
        all.into_iter().any(|of| {
            fs::read_to_string(of.path().join("comm")).is_ok_and(|name| name.trim() == "yore-request")
        })
    });
    // It goes on and on, and says nothing.
    let talker = std::thread::spawn(move || {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    mount.umount();
    common::wait_for_end(pid);
    talker.join().unwrap();
    ok(["check", text(&scratch.volume)]);
}

/// The socket on which a daemon takes requests.
fn socket_of(pid: Pid) -> PathBuf {
    let end = format!("/{}.sock", pid.as_raw_nonzero());
    let all = fs::read_to_string("/proc/net/unix").unwrap();
    let mut paths = all.lines().filter_map(|line| line.split_whitespace().last());
    paths.find(|path| path.ends_with(&end)).expect("the daemon has a socket").into()
}

/// Promises that `--due` goes on with what was broken off, does nothing as long as the last scrub is younger
/// than that, and begins another one when it is older.
#[test]
fn a_scrub_runs_when_it_is_due() {
    let scratch = with_big_file(3000);
    let volume = text(&scratch.volume);
    assert_eq!(interrupted(volume, 600).0, 6);
    let whole = json(0, &["scrub", "--json", "--due", "30d", volume]);
    assert!(whole["went_on_since"].is_string(), "{whole}");
    assert_eq!(json(0, &["scrub", "--json", "--due", "30d", volume])["due"], false);
    assert!(ok(["scrub", "--due", "30d", volume]).contains("no scrub is due, the last one ended "));
    until("it is due", || json(0, &["scrub", "--json", "--due", "1s", volume])["clean"] == true);
    let error = fails(2, ["scrub", "--due", "soon", volume]);
    assert!(error.contains("--due soon"), "{error}");
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    assert_eq!(json(0, &["scrub", "--json", "--due", "30d", text(&mount.directory)])["due"], false);
}
