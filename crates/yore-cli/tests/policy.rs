//! Promises of `policy`: what is set is shown, on mounts and on volumes, and does what it says when programs that know nothing of it
//! save files.

mod common;

use common::{fails, ok, put, run, scratch, text, Mount};
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// What applies, with whence.
fn shown(path: &str) -> String {
    ok(["policy", path]).lines().collect::<Vec<_>>().join("; ")
}

/// Set, inherited, listed, taken back; on a volume that is not mounted.
#[test]
fn policies_are_shown_where_they_apply() {
    let scratch = scratch();
    let (volume, file) = (text(&scratch.volume), scratch.on("/d/file"));
    assert_eq!(shown(&file), "version=snapshot  (nothing is said); keep=all  (nothing is said)");
    ok(["policy", volume, "version=close", "keep=last:3,within:2d"]);
    assert_eq!(shown(&file), "version=close  (from /); keep=last:3,within:2d  (from /)");
    ok(["policy", &scratch.on("/d"), "version=10min"]);
    assert_eq!(shown(&file), "version=10min  (from /d); keep=last:3,within:2d  (from /)");
    assert_eq!(
        ok(["policy", "--all", volume]),
        "/  version=close  keep=last:3,within:2d\n/d  version=10min\n"
    );
    let json: serde_json::Value = serde_json::from_str(&ok(["policy", "--json", &file])).unwrap();
    assert_eq!((json["version"].as_str(), json["version_set_on"].as_str()), (Some("10min"), Some("/d")));
    ok(["policy", &scratch.on("/d"), "version=inherit"]);
    put(&scratch, "/d/file", "again");
    put(&scratch, "/d/file", "and again");
    let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", &file])).unwrap();
    assert!(log.as_array().is_some_and(|log| log.len() >= 2), "{log}");
    ok(["check", volume]);
}

#[test]
fn what_is_refused() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    for setting in ["version=often", "version=5m", "keep=sometimes", "close"] {
        assert!(fails(2, ["policy", volume, setting]).contains("version=DURATION"), "{setting}");
    }
    fails(2, ["policy", "--all", volume, "version=close"]);
    assert!(fails(3, ["policy", &scratch.on("/nothing"), "version=close"]).contains("nothing"));
    ok(["snapshot", volume, "-n", "then"]);
    assert!(fails(3, ["policy", &scratch.on("/d@then"), "version=close"]).contains("the past"));
    assert!(fails(3, ["policy", "/"]).contains("not on a mounted volume"));
}

/// Programs write, rename and map files; each close is a version, under the name that was saved.
#[test]
fn each_save_on_a_mount_is_a_version() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory).to_string();
    // The mount is made anew: the kernel says only then when files are closed.
    let said = run(["policy", &directory, "version=close"]);
    assert!(said.status.success() && common::error_text(&said).contains("mount it again"), "{said:?}");
    mount.umount();
    mount.again(&[]);
    let said = run(["policy", &directory]);
    assert!(said.stderr.is_empty(), "{said:?}");
    let (doc, swap) = (mount.directory.join("doc"), mount.directory.join(".doc.swp"));
    let now = || {
        std::thread::sleep(Duration::from_millis(20));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        // To the nanosecond: the next save may be in the same millisecond.
        format!("{}.{:09}", now.as_secs(), now.subsec_nanos())
    };
    let then = |time: &str| fs::read_to_string(mount.directory.join(format!("doc@{time}")));
    let mut saved = Vec::new();
    for i in 0..6 {
        let text = format!("draft {i}\n");
        if i % 2 == 0 {
            fs::write(&doc, &text).unwrap();
        } else {
            let mut file = fs::File::create(&swap).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.sync_all().unwrap();
            drop(file);
            fs::rename(&swap, &doc).unwrap();
        }
        saved.push((now(), text));
    }
    for (time, text) in &saved {
        assert_eq!(then(time).unwrap(), *text, "at {time}");
    }
    // Nothing was changed: no version.
    let count = || ok(["log", "--json", text(&doc)]).matches("\"current\"").count();
    let before = count();
    drop(fs::File::options().write(true).open(&doc).unwrap());
    assert_eq!(count(), before);
    fs::remove_file(&doc).unwrap();
    assert!(then(&now()).is_err(), "it was gone by then");
    assert_eq!(then(&saved[5].0).unwrap(), saved[5].1);
    let deleted = ok(["deleted", &directory]);
    assert!(deleted.contains("doc@") && !deleted.contains("swp"), "{deleted}");
    // They are no snapshots.
    assert_eq!(ok(["snapshots", &directory]), "");
}

/// A shell that redirects to a file closes it once before the program has written anything. That made a version without content
/// of each save.
#[test]
fn what_shells_write_is_one_version_each() {
    let scratch = scratch();
    ok(["policy", text(&scratch.volume), "version=close"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = mount.directory.join("note");
    for text in ["one", "two", "three"] {
        let script = format!("echo {text} > {}", file.display());
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        // The last close is told a moment after it.
        std::thread::sleep(Duration::from_millis(100));
    }
    let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", text(&file)])).unwrap();
    let sizes: Vec<u64> =
        log.as_array().unwrap().iter().map(|row| row["facts"]["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [6, 4, 4], "{log:#}");
    // One that is left empty has that as its last version.
    let script = format!(": > {}", file.display());
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let newest = || -> u64 {
        let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", text(&file)])).unwrap();
        let seen =
            log.as_array().unwrap().iter().find(|row| row["current"] == false || !row["last"].is_null());
        seen.and_then(|row| row["facts"]["size"].as_u64()).unwrap()
    };
    for _ in 0..100 {
        if newest() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the empty file has no version: {}", ok(["log", text(&file)]));
}

/// A pipe in the place of a directory kept `snapshot`, `policy`, `undo` and `rollback` waiting for somebody to write to it; who owns the
/// directory above can put one there.
#[test]
fn pipes_keep_nobody_waiting() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let pipe = mount.directory.join("d/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let pipe = text(&pipe);
    for command in [
        vec!["snapshot", pipe],
        vec!["policy", pipe, "version=close"],
        vec!["status", pipe],
        vec!["undo", pipe],
        vec!["redo", pipe],
        vec!["forget", pipe, "--keep-last", "1"],
    ] {
        // One that waits is ended, and has no status then.
        let output = std::process::Command::new("timeout")
            .args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_yore")])
            .args(&command)
            .output()
            .unwrap();
        assert!(matches!(output.status.code(), Some(2 | 3)), "{command:?}: {output:?}");
    }
}
