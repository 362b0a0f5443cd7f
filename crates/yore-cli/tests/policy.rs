//! Promises of `policy`: it shows what was set, on mounts and on volumes, and the policy works when programs
//! that know nothing of it save files.

use crate::common;

use common::{fails, ok, put, run, scratch, text, Mount, Scratch};
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// The present to the nanosecond, in the form that follows an `@`: the next save may be in the same
/// millisecond.
fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{}.{:09}", now.as_secs(), now.subsec_nanos())
}

/// Waits until a version of a file has this content, because the last close is reported a moment later;
/// returns a time at which it can be seen.
#[track_caller]
fn when_seen(file: &Path, content: &str) -> String {
    let mut time = now();
    common::until("the version of what was saved", || {
        time = now();
        fs::read_to_string(format!("{}@{time}", file.display())).is_ok_and(|seen| seen == content)
    });
    time
}

/// What applies, and from where.
fn shown(path: &str) -> String {
    ok(["policy", path]).lines().collect::<Vec<_>>().join("; ")
}

/// A policy is set, inherited, listed and removed, on a volume that is not mounted.
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
    ok(["policy", &directory, "version=close"]);
    // The volume is mounted again: from then on the kernel reports closes of files.
    mount.umount();
    mount.again(&[]);
    let said = run(["policy", &directory]);
    assert!(said.stderr.is_empty(), "{said:?}");
    let (doc, swap) = (mount.directory.join("doc"), mount.directory.join(".doc.swp"));
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
        saved.push((when_seen(&doc, &text), text));
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
    common::until("the end of the file's last version", || then(&now()).is_err());
    assert_eq!(then(&saved[5].0).unwrap(), saved[5].1);
    let deleted = ok(["deleted", &directory]);
    assert!(deleted.contains("doc@") && !deleted.contains("swp"), "{deleted}");
    // Versions are no snapshots.
    assert_eq!(ok(["snapshots", &directory]), "");
}

/// A shell that redirects to a file closes it once before the program has written anything. That made an
/// empty version for each save.
#[test]
fn what_shells_write_is_one_version_each() {
    let scratch = scratch();
    ok(["policy", text(&scratch.volume), "version=close"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = mount.directory.join("note");
    for text in ["one", "two", "three"] {
        let script = format!("echo {text} > {}", file.display());
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        when_seen(&file, &format!("{text}\n"));
    }
    let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", text(&file)])).unwrap();
    let sizes: Vec<u64> =
        log.as_array().unwrap().iter().map(|row| row["facts"]["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [6, 4, 4], "{log:#}");
    // If a file is left empty, its last version is empty.
    let script = format!(": > {}", file.display());
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let newest = || -> u64 {
        let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", text(&file)])).unwrap();
        let seen =
            log.as_array().unwrap().iter().find(|row| row["current"] == false || !row["last"].is_null());
        seen.and_then(|row| row["facts"]["size"].as_u64()).unwrap()
    };
    common::until("the version of the empty file", || newest() == 0);
}

/// A pipe in the place of a directory made `snapshot`, `policy`, `undo` and `rollback` wait for somebody to
/// write to it; the owner of the directory above can put one there.
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
        // A command that waits is killed, and then has no status.
        let output = std::process::Command::new("timeout")
            .args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_yore")])
            .args(&command)
            .output()
            .unwrap();
        // `forget` has nothing to choose from there.
        assert!(matches!(output.status.code(), Some(0 | 2 | 3)), "{command:?}: {output:?}");
    }
}

/// A new volume used to keep nothing until somebody took a snapshot: a file that was written and removed
/// before that was lost. Now it has a policy, and a first snapshot, when `mkfs` returns.
#[test]
fn a_new_volume_has_history() {
    let usual =
        "version=1min  (set here); keep=hourly:48,daily:30,weekly:13,monthly:all,within:2h  (set here)";
    let scratch = Scratch::with_policy(None);
    assert_eq!(shown(text(&scratch.volume)), usual);
    let listed = ok(["snapshots", text(&scratch.volume)]);
    assert!(listed.lines().count() == 1 && listed.contains("interval"), "{listed}");
    ok(["check", text(&scratch.volume)]);

    let hourly = Scratch::with_policy(Some("version=1h keep=daily:30"));
    assert_eq!(shown(text(&hourly.volume)), "version=1h  (set here); keep=daily:30  (set here)");
    let none = Scratch::with_policy(Some("none"));
    assert_eq!(shown(text(&none.volume)), "version=snapshot  (nothing is said); keep=all  (nothing is said)");
    assert_eq!(ok(["snapshots", text(&none.volume)]), "");

    let refused = Scratch::empty();
    for settings in ["often", "version=5m", ""] {
        let message = fails(2, ["mkfs", text(&refused.volume), "--size", "64M", "--policy", settings]);
        assert!(message.contains("version=DURATION"), "{message}");
        assert!(!refused.volume.exists());
    }
}

/// A plan is written, and removed after the interval of the volume's policy. It can be put back, and nobody
/// had to prepare that.
#[test]
fn what_was_written_a_while_ago_is_undeletable() {
    let scratch = Scratch::with_policy(Some("version=1s keep=within:2h"));
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let plan = mount.directory.join("plan.md");
    fs::write(&plan, "important\n").unwrap();
    let seen = || {
        let list: serde_json::Value =
            serde_json::from_str(&ok(["snapshots", "--json", text(&mount.directory)])).unwrap();
        list.as_array().unwrap().iter().any(|row| {
            let at = format!("{}@{}", plan.display(), row["at"].as_str().unwrap());
            fs::exists(at).unwrap_or(false)
        })
    };
    common::until("a snapshot with the plan", seen);
    fs::remove_file(&plan).unwrap();
    let deleted = ok(["deleted", text(&mount.directory)]);
    assert!(deleted.contains("plan.md@"), "{deleted}");
    ok(["undelete", text(&plan)]);
    assert_eq!(fs::read_to_string(&plan).unwrap(), "important\n");
}

/// The kernel does not report closes to a mount of a volume without such a policy. `version=close` did
/// nothing there except print that the volume should be mounted again; what was saved and removed before
/// somebody did that was lost. Now the daemon detects closes.
#[test]
fn closes_are_noticed_on_a_mount_that_is_there() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory).to_string();
    let said = run(["policy", &directory, "version=close"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let (doc, swap) = (mount.directory.join("doc"), mount.directory.join(".doc.swp"));
    let texts = ["one", "second", "the third", "the fourth one", "number five"];
    for (i, text) in texts.iter().enumerate() {
        match i {
            0..3 => fs::write(&doc, text).unwrap(),
            3 => {
                fs::write(&swap, text).unwrap();
                fs::rename(&swap, &doc).unwrap();
            }
            _ => {
                let script = format!("printf '{text}' > '{}'", doc.display());
                assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
            }
        }
    }
    // The state as soon as somebody asks.
    let sizes = |path: &Path| -> Vec<u64> {
        let log: serde_json::Value =
            serde_json::from_str(&ok(["log", "--json", common::text(path)])).unwrap();
        let rows = log.as_array().unwrap().iter().filter(|row| !row["last"].is_null());
        let mut sizes: Vec<u64> = rows.map(|row| row["facts"]["size"].as_u64().unwrap()).collect();
        // A rename is a state of its own.
        sizes.dedup();
        sizes
    };
    let expected: Vec<u64> = texts.iter().rev().map(|text| text.len() as u64).collect();
    assert_eq!(sizes(&doc), expected, "{}", ok(["log", text(&doc)]));

    // A file that stays open gets no version before its close.
    let open = mount.directory.join("open");
    let mut file = fs::File::create(&open).unwrap();
    file.write_all(b"begun").unwrap();
    assert!(sizes(&open).is_empty());
    file.write_all(b" and done").unwrap();
    drop(file);
    assert_eq!(sizes(&open), [14]);

    fs::remove_file(&doc).unwrap();
    let deleted = ok(["deleted", &directory]);
    let last = deleted.lines().find_map(|line| line.split_whitespace().find(|word| word.starts_with("doc@")));
    assert_eq!(fs::read_to_string(mount.directory.join(last.unwrap())).unwrap(), texts[4]);
    // The end of the mount is a close, too.
    fs::write(&doc, "at last").unwrap();
    mount.umount();
    let log = ok(["log", &scratch.on("/doc")]);
    assert!(log.lines().filter(|line| line.contains(" 7 ")).count() >= 1, "{log}");
    ok(["check", text(&scratch.volume)]);
}

/// A user's editor rewrote its swap file all day, and each interval kept a version of it. With a pattern the
/// policy keeps none; a snapshot that somebody takes has the file all the same. The setting is shown,
/// explained if it is wrong, and can be removed.
#[test]
fn swap_files_are_excluded() {
    let scratch = scratch();
    let (volume, swap) = (text(&scratch.volume), scratch.on("/d/x.swp"));
    ok(["policy", &scratch.on("/d"), "version=close", "exclude=*.swp", "exclude=target/"]);
    let usual =
        "version=close  (from /d); keep=all  (nothing is said); exclude='*.swp' exclude=target/  (from /d)";
    assert_eq!(shown(&scratch.on("/d/file")), usual);
    put(&scratch, "/d/x.swp", "one");
    assert_eq!(shown(&swap), format!("{usual}: it is excluded itself"));
    let json: serde_json::Value = serde_json::from_str(&ok(["policy", "--json", &swap])).unwrap();
    assert_eq!(json["exclude"], serde_json::json!(["*.swp", "target/"]));
    assert_eq!((&json["excluded"], json["exclude_set_on"].as_str()), (&true.into(), Some("/d")));
    assert_eq!(ok(["policy", "--all", volume]), "/d  version=close  exclude='*.swp'  exclude=target/\n");
    let versions = |path: &str| {
        let log: serde_json::Value = serde_json::from_str(&ok(["log", "--json", path])).unwrap();
        log.as_array().unwrap().len()
    };
    for text in ["two", "three"] {
        put(&scratch, "/d/x.swp", text);
        put(&scratch, "/d/file", text);
    }
    assert!(versions(&scratch.on("/d/file")) >= 2);
    assert_eq!(versions(&swap), 1);
    ok(["snapshot", volume, "-n", "asked"]);
    put(&scratch, "/d/x.swp", "four");
    assert_eq!(ok(["cat", &scratch.on("/d/x.swp@asked")]), "three");
    // An interval begins with a snapshot.
    ok(["policy", &scratch.on("/d"), "version=1h"]);
    put(&scratch, "/d/x.swp", "five");
    let gone = fails(3, ["cat", &scratch.on("/d/x.swp@last")]);
    assert!(gone.contains("x.swp"), "{gone}");
    assert_eq!(ok(["ls", &scratch.on("/d@last")]).trim(), "file\nsub");
    assert!(!ok(["diff", &scratch.on("/d@last")]).contains("x.swp"));
    let wrong = fails(2, ["policy", &scratch.on("/d"), "exclude=[a"]);
    assert!(wrong.contains("exclude=[a") && wrong.contains("unclosed"), "{wrong}");
    fails(2, ["policy", &scratch.on("/d"), "exclude=none", "exclude=a"]);
    ok(["policy", &scratch.on("/d"), "exclude=none"]);
    assert!(
        shown(&swap).ends_with("exclude=none  (set here)")
            || shown(&swap).ends_with("exclude=none  (from /d)")
    );
    let operations = ok(["operations", volume]);
    assert!(operations.contains("exclude='*.swp' exclude='target/'"), "{operations}");
    ok(["policy", &scratch.on("/d"), "exclude=inherit"]);
    assert!(!shown(&swap).contains("exclude"));
    ok(["check", volume]);

    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory).to_string();
    ok(["policy", &directory, "exclude=*.o"]);
    fs::write(mount.directory.join("x.o"), "o").unwrap();
    let shown = shown(text(&mount.directory.join("x.o")));
    assert!(shown.ends_with("exclude='*.o'  (from /): it is excluded itself"), "{shown}");
}
