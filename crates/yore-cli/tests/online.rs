//! `check --online`, as people call it: a mounted volume is checked while it is in use, what is found is
//! recorded and shown by `info`, and repaired when the volume is not mounted.

use crate::common;

use common::{fails, ok, put, run, stopped_when, text, until, wait_for_end, yore, Mount, Scratch};
use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_device::{FileDevice, OpenOptions};
use yore_format::{FindingsRecord, Incarnation, InodeNo, RecordedFinding, SlotState, Superblock, BLOCK_SIZE};
use yore_fs::{MountOptions, View};

/// Makes a total of the newest superblock wrong.
fn damage(scratch: &Scratch) {
    let image = fs::File::options().read(true).write(true).open(&scratch.volume).unwrap();
    let superblocks = (0..2u32).filter_map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        image.read_exact_at(&mut block, u64::from(slot) * BLOCK_SIZE as u64).unwrap();
        match Superblock::decode(&block, slot) {
            SlotState::Valid(sb) => Some((slot, sb)),
            _ => None,
        }
    });
    let (slot, mut sb) = superblocks.max_by_key(|(_, sb)| sb.generation).unwrap();
    sb.inodes += 3;
    image.write_all_at(&sb.encode(slot)[..], u64::from(slot) * BLOCK_SIZE as u64).unwrap();
}

fn json(args: &[&str]) -> Value {
    let out = run(args.iter().copied());
    assert!(matches!(out.status.code(), Some(0 | 1)), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn info(target: &Path) -> Value {
    json(&["info", "--json", text(target)])
}

/// Promises that a mount is checked under its own name and that of its volume, while programs work on it, for
/// people and as JSON, and that a volume which is not mounted is refused with what to do.
#[test]
fn a_mounted_volume_is_checked() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    let error = fails(3, ["check", "--online", volume]);
    assert!(error.contains("is not mounted; check it without --online"), "{error}");
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (directory, stop) = (text(&mount.directory), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let path = mount.directory.join(format!("{}", i % 50));
                match i % 3 {
                    0 => drop(fs::remove_file(path)),
                    _ => fs::write(path, vec![1; i % 30_000]).unwrap(),
                }
            }
        });
        for target in [volume, directory] {
            let report = json(&["check", "--online", "--json", target]);
            assert_eq!((&report["clean"], &report["online"]), (&true.into(), &true.into()), "{report}");
            assert_eq!(report["findings"].as_array().map(Vec::len), Some(0));
            assert_eq!(report["recorded"], true);
        }
        let shown = ok(["check", "--online", directory]);
        assert!(shown.contains("0 findings, 0 of them leaks"), "{shown}");
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(mount.info()["findings"], Value::Null);
    let error = fails(3, ["check", volume]);
    assert!(error.contains("in use"), "{error}");
    mount.umount();
    ok(["check", volume]);
}

/// Promises that damage is found with the code of a check at rest, exit code 1, recorded, shown by `info` on
/// the mount and later of the volume, and gone after the repair; and that a mount for reading only is
/// checked, and nothing recorded.
#[test]
fn findings_are_recorded_and_shown() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    damage(&scratch);
    let Some(mount) = Mount::new(&scratch, &["-o", "ro"]) else { return };
    let directory = text(&mount.directory);
    let report = json(&["check", "--online", "--json", directory]);
    assert_eq!(report["findings"][0]["problem"], "total-inodes", "{report}");
    assert_eq!((&report["recorded"], &report["left_count"]), (&false.into(), &1.into()));
    assert_eq!(mount.info()["findings"], Value::Null);
    mount.umount();
    mount.again(&[]);
    let out = run(["check", "--online", directory]);
    let shown = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(shown.contains("1 findings are recorded on the volume"), "{shown}");
    for _ in 0..2 {
        let found =
            info(if common::is_mounted(&mount.directory) { &mount.directory } else { &scratch.volume });
        assert_eq!((&found["findings"]["count"], &found["mounted"]), (&1.into(), &found["mounted"]));
        let first = &found["findings"]["findings"][0];
        assert_eq!((&first["problem"], &first["severity"]), (&"total-inodes".into(), &"damage".into()));
        if common::is_mounted(&mount.directory) {
            mount.umount();
        }
    }
    let shown = ok(["log", volume]);
    assert!(
        shown.starts_with("the check of ") && shown.contains(" found total-inodes (yore info)"),
        "{shown}"
    );
    let shown = ok(["log", &scratch.on("/f")]);
    assert!(!shown.contains("check of"), "{shown}");
    let shown = ok(["info", volume]);
    assert!(shown.contains("Findings:   1 of the check of"), "{shown}");
    assert_eq!(run(["check", volume]).status.code(), Some(1));
    ok(["check", "--repair", volume]);
    assert_eq!(info(&scratch.volume)["findings"], Value::Null);
    ok(["check", "--undo", volume]);
    assert_eq!(info(&scratch.volume)["findings"]["count"], 1);
}

/// Records findings on a volume.
fn record(scratch: &Scratch, findings: Vec<RecordedFinding>, next_incarnation: Option<Incarnation>) {
    let (seconds, count) = (1_700_000_000, findings.len() as u64);
    let record = FindingsRecord { seconds, count, next_incarnation, findings, ..FindingsRecord::default() };
    let device = Arc::new(FileDevice::open(&scratch.volume, OpenOptions::default()).unwrap());
    let view = View::open(device, &MountOptions::default()).unwrap();
    view.record_findings(&record).unwrap();
    view.close().unwrap();
}

fn finding(code: &str, inode: Option<InodeNo>, path: Option<&str>) -> RecordedFinding {
    RecordedFinding {
        code: code.into(),
        is_damage: true,
        inode,
        path: path.map(Into::into),
        ..RecordedFinding::default()
    }
}

/// Inode and incarnation of a file.
fn file_of(path: &str) -> (InodeNo, Incarnation) {
    let log = json(&["log", "--json", path]);
    let number = |key: &str| log[0][key].as_u64().unwrap();
    (InodeNo(number("inode")), Incarnation(number("incarnation") as u32))
}

/// The codes that the JSON of a log has.
fn codes(path: &str) -> Vec<String> {
    let log = json(&["log", "--json", path]);
    let all = log[0]["findings"].as_array().unwrap();
    all.iter().map(|found| found["problem"].as_str().unwrap().into()).collect()
}

/// Promises that the log of a file says what a check found of it, and of no other file, for people and as
/// JSON; if the record does not say which files there were, as long as the file has the name under which it
/// was found; and that the log of the root directory says all.
#[test]
fn the_log_of_a_file_says_what_was_found_of_it() {
    let scratch = Scratch::new();
    put(&scratch, "/f", "content");
    put(&scratch, "/g", "content");
    let inode = Some(file_of(&scratch.on("/f")).0);
    let before = json(&["log", "--json", &scratch.on("/f")]);
    assert_eq!(before[0]["findings"], Value::Null);
    let findings = vec![
        finding("size", inode, Some("/f")),
        finding("links", inode, Some("/another")),
        finding("total-inodes", None, None),
    ];
    record(&scratch, findings, None);
    let first = |path: &str| ok(["log", "--utc", path]).lines().next().unwrap().to_owned();
    let check = "the check of 2023-11-14 22:13:20";
    let of_file = first(&scratch.on("/f"));
    assert!(of_file.starts_with(check) && of_file.ends_with("found size (yore info)"), "{of_file}");
    let of_all = first(&scratch.on("/"));
    assert!(of_all.ends_with("found size /f, links /another, total-inodes (yore info)"), "{of_all}");
    assert!(!ok(["log", &scratch.on("/g")]).contains("the check of"));
    assert_eq!(codes(&scratch.on("/f")), ["size"]);
    assert_eq!(codes(&scratch.on("/")), ["size", "links", "total-inodes"]);
    assert!(codes(&scratch.on("/g")).is_empty());
    let mut log = json(&["log", "--json", &scratch.on("/f")]);
    let found = &log[0]["findings"][0];
    assert_eq!((&found["severity"], &found["path"]), (&"damage".into(), &"/f".into()));
    assert!(found["time"].as_str().unwrap().starts_with("2023-11-14T22:13:20"), "{found}");
    log[0]["findings"] = Value::Null;
    assert_eq!(log, before, "nothing else has changed");
}

/// A finding was told only under the name that the check had met. Promises that it is told of the file under
/// each of its names, after it was renamed, and whatever path leads there, on a mount and at rest; and not of
/// a file that was made since, which may have the number of one that is gone.
#[test]
fn findings_are_told_under_every_name() {
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    put(&scratch, "/d/f", "content");
    let (inode, incarnation) = file_of(&scratch.on("/d/f"));
    let next = Some(Incarnation(incarnation.0 + 1));
    record(&scratch, vec![finding("size", Some(inode), Some("/d/f"))], next);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let at = |path: &str| text(&mount.directory.join(path)).to_owned();
    fs::hard_link(at("d/f"), at("link")).unwrap();
    fs::rename(at("d/f"), at("renamed")).unwrap();
    for path in ["link", "renamed", "d/../renamed", "./link"] {
        assert_eq!(codes(&at(path)), ["size"], "{path}");
        assert!(ok(["log", &at(path)]).starts_with("the check of "), "{path}");
    }
    let relative = yore().args(["log", "renamed"]).current_dir(&mount.directory).output().unwrap();
    assert!(String::from_utf8_lossy(&relative.stdout).starts_with("the check of "), "{relative:?}");
    std::os::unix::fs::symlink("renamed", at("symlink")).unwrap();
    assert!(codes(&at("symlink")).is_empty(), "the log is that of the symbolic link");
    mount.umount();
    assert_eq!(codes(&scratch.on("/renamed")), ["size"]);
    // The next file with that number is another one.
    record(&scratch, vec![finding("size", Some(inode), Some("/d/f"))], Some(incarnation));
    assert!(codes(&scratch.on("/link")).is_empty());
}

/// A mount was busy for umount(8) as long as it was checked, because the command had its directory open to
/// ask the daemon. Promises that nothing of the mount is open while the daemon is asked: the command is
/// stopped then, and umount(8) succeeds.
#[test]
fn a_check_does_not_keep_the_mount_busy() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can call umount(8)");
    }
    for i in 0..3000 {
        fs::write(mount.directory.join(format!("{i}")), b"x").unwrap();
    }
    let (directory, pid) = (text(&mount.directory), mount.pid());
    let check = stopped_when(&["check", "--online", directory], |open| {
        open.iter().any(|of| of == &mount.directory || of.to_string_lossy().starts_with("socket:"))
    });
    assert!(Command::new("umount").arg(directory).status().unwrap().success());
    wait_for_end(pid);
    kill_process(Pid::from_child(&check), Signal::CONT).unwrap();
    let output = check.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    // It may have had its answer by then, or not have said what it wants.
    let is_told = match output.status.code() {
        Some(0 | 6) => true,
        Some(3) => told.contains("the daemon of the mount has ended"),
        _ => false,
    };
    assert!(is_told, "{:?}: {told}", output.status);
    ok(["check", text(&scratch.volume)]);
}

/// Promises that after a crash under an engine that orders changes a mount recounts by itself: `info` says
/// that leaks are pending, then that none are, and the volume is sound. A mount that is removed before the
/// recount has ended leaves the volume as well as it was, and the next one recounts.
#[test]
fn a_mount_recounts_after_a_crash() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    let Some(mount) = Mount::new(&scratch, &["-o", "engine=soft-updates,commit=1"]) else { return };
    for round in 0..3 {
        let work = |from: usize| {
            for i in from..from + 300 {
                let path = mount.directory.join(format!("{}", i % 250));
                match i % 3 {
                    0 => drop(fs::remove_file(path)),
                    1 => drop(fs::rename(path, mount.directory.join(format!("{}", i % 70)))),
                    _ => fs::write(path, vec![1; i * 40]).unwrap(),
                }
            }
        };
        work(round);
        rustix::fs::syncfs(fs::File::open(&mount.directory).unwrap()).unwrap();
        work(round + 7);
        let pid = mount.pid();
        kill_process(pid, Signal::KILL).unwrap();
        wait_for_end(pid);
        mount.again(&[]);
        // The recount may have ended, or not.
        mount.umount();
        let found = info(&scratch.volume);
        assert!(["clean", "leaks pending"].contains(&found["state"].as_str().unwrap()), "{found}");
        mount.again(&[]);
        until("the recount ends", || mount.info()["leaks"]["pending"] == false);
        assert_eq!(mount.info()["leaks"]["recounting"], Value::Null);
        if round < 2 {
            continue;
        }
        mount.umount();
        assert_eq!(info(&scratch.volume)["state"], "clean");
        ok(["check", volume]);
    }
}
