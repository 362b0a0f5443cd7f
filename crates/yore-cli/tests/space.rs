//! A full volume as its users meet it: what putting back does if there is no room, what stays, who makes a
//! volume forget, how that is reported, and the rules.

use crate::common;

use common::{error_text, fails, ok, text, yore, Mount, Scratch, NOBODY};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::path::Path;

const MIB: usize = 1 << 20;

/// A volume of 64 MiB.
fn volume(mkfs: &[&str]) -> Scratch {
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "64M", "--policy", "none"].iter().chain(mkfs));
    scratch
}

fn thesis() -> Vec<u8> {
    (0..30 * MIB).map(|i| (i / 4099) as u8).collect()
}

fn names(path: &Path) -> Vec<String> {
    let all: Value = serde_json::from_str(&ok(["snapshots", "--json", text(path)])).unwrap();
    all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap_or("-").to_string()).collect()
}

fn free(directory: &Path) -> u64 {
    let facts = rustix::fs::statvfs(directory).unwrap();
    facts.f_bavail * facts.f_frsize
}

/// 64 MiB, a thesis of 30, a snapshot, and then the thesis is removed. `undelete`, `restore` and `cp` filled
/// the volume. The oldest snapshot, which had the only copy, was given up for that, and "do it again" could
/// not work. Now it comes back in the blocks that the snapshot has, on a full volume, too.
#[test]
fn what_is_large_comes_back_without_room() {
    let scratch = volume(&["--history-floor", "0", "--history-share", "0"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = mount.directory.join("thesis");
    fs::write(&file, thesis()).unwrap();
    ok(["snapshot", text(&mount.directory), "-n", "keep"]);
    let then = format!("{}@keep", text(&file));
    let filler = mount.directory.join("filler");
    fs::remove_file(&file).unwrap();
    fs::write(&filler, vec![7; (free(&mount.directory) - (1 << 20)) as usize]).unwrap();
    ok(["undelete", text(&file)]);
    assert!(fs::read(&file).unwrap() == thesis());
    fs::write(&file, "a mistake").unwrap();
    ok(["restore", &then]);
    assert!(fs::read(&file).unwrap() == thesis());
    fs::remove_file(&file).unwrap();
    fs::copy(&then, &file).unwrap();
    assert!(fs::read(&file).unwrap() == thesis());
    fs::remove_file(&file).unwrap();
    mount.umount();
    ok(["undelete", &scratch.on("/thesis")]);
    ok(["cp", &scratch.on("/thesis"), &scratch.on("/copy")]);
    let got = scratch.path("got");
    ok(["get", &scratch.on("/copy"), text(&got)]);
    assert!(fs::read(got).unwrap() == thesis());
    ok(["check", text(&scratch.volume)]);
}

/// The same with a thesis of many small chapters, which share no blocks: `undelete` and `restore` say before
/// they begin how many bytes are missing, nothing has changed, and the copy is still there. When there is
/// room, they work.
#[test]
fn putting_back_never_loses_its_source() {
    const CHAPTERS: usize = 2500;
    let chapter = |n: usize| vec![(n / 7) as u8; 12 << 10];
    let is_whole = |thesis: &Path| {
        (0..CHAPTERS).all(|n| fs::read(thesis.join(n.to_string())).is_ok_and(|found| found == chapter(n)))
    };
    for name in ["keep", ""] {
        let scratch = volume(&["--history-floor", "0", "--history-share", "0"]);
        let Some(mount) = Mount::new(&scratch, &[]) else { return };
        let thesis = mount.directory.join("thesis");
        fs::create_dir(&thesis).unwrap();
        (0..CHAPTERS).for_each(|n| fs::write(thesis.join(n.to_string()), chapter(n)).unwrap());
        let snapshot = match name {
            "" => ok(["snapshot", text(&mount.directory)]).trim().to_string(),
            name => {
                ok(["snapshot", text(&mount.directory), "-n", name]);
                name.to_string()
            }
        };
        fs::remove_dir_all(&thesis).unwrap();
        let then = format!("{}@{snapshot}", text(&thesis));
        for command in [["undelete", text(&thesis)], ["restore", &then]] {
            let said = fails(3, command);
            for words in
                ["nothing was changed", "bytes are missing", "yore forget", "yore resize VOLUME SIZE"]
            {
                assert!(said.contains(words), "{said}");
            }
            assert!(!thesis.exists());
        }
        assert_eq!(
            names(&mount.directory),
            [if name.is_empty() { "-" } else { name }],
            "no undo point either"
        );
        fs::create_dir(&thesis).unwrap();
        let copy = |n: usize| fs::copy(Path::new(&then).join(n.to_string()), thesis.join(n.to_string()));
        assert!((0..CHAPTERS).any(|n| copy(n).is_err()), "cp finds out when the volume is full");
        assert!(is_whole(Path::new(&then)), "the source is what it was");
        fs::remove_dir_all(&thesis).unwrap();
        mount.umount();
        // The same without a mount, and then with room.
        let on = scratch.on("/thesis");
        assert!(fails(3, ["undelete", &on]).contains("bytes are missing"));
        ok(["resize", text(&scratch.volume), "128M"]);
        ok(["undelete", &on]);
        let Some(mount) = Mount::new(&scratch, &[]) else { return };
        assert!(is_whole(&mount.directory.join("thesis")));
        mount.umount();
    }
}

/// A write of 500 MiB to that volume failed, as it must, but had first erased every snapshot, including named
/// ones. Neither a stream nor `put`, which knows what it needs, may take snapshots that are young or named.
#[test]
fn a_write_that_is_too_large_erases_nothing() {
    let scratch = volume(&[]);
    let large = scratch.path("large");
    fs::File::create(&large).unwrap().set_len(500 << 20).unwrap();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = mount.directory.join("file");
    for name in ["one", "two", "three"] {
        fs::write(&file, name.repeat(100_000)).unwrap();
        ok(["snapshot", text(&mount.directory), "-n", name]);
        ok(["snapshot", text(&mount.directory)]);
    }
    let before = names(&mount.directory);
    let stream = mount.directory.join("stream");
    assert!(fs::write(&stream, vec![7; 100 * MIB]).is_err());
    fs::remove_file(&stream).unwrap();
    assert_eq!(names(&mount.directory), before);
    let info = mount.info();
    assert_eq!(info["when_full"]["gives_up"], 0, "{info}");
    let stays = info["when_full"]["stays"].as_array().unwrap();
    assert!(stays.iter().any(|one| one["why"] == "named" && one["count"] == 3), "{info}");
    let told = ok(["info", text(&mount.directory)]);
    assert!(told.contains("forgetting the") && told.contains("named would free"), "{told}");
    mount.umount();
    fs::write(&large, vec![7; 100 * MIB]).unwrap();
    // Nothing is written of a file whose size is known.
    ok(["history", text(&scratch.volume), "--floor", "0", "--share", "0"]);
    let said = fails(3, ["put", text(&large), &scratch.on("/large")]);
    assert!(said.contains("bytes are missing") && said.contains("yore resize"), "{said}");
    assert!(said.len() < 300 && said.matches("missing").count() == 1, "said once, and short: {said}");
    assert_eq!(names(&scratch.volume), before);
}

/// The history that a full volume gives up is recorded, listed, and described in words; the rules are shown
/// and changed.
#[test]
fn what_was_given_up_is_told() {
    let scratch = volume(&["--history-floor", "12h"]);
    assert_eq!(ok(["history", text(&scratch.volume)]), "floor=12h\nshare=50%\n");
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    assert_eq!(ok(["snapshots", "--forgotten", text(&mount.directory)]), "");
    let file = mount.directory.join("file");
    fs::write(&file, vec![1; 20 * MIB]).unwrap();
    ok(["snapshot", text(&mount.directory)]);
    fs::write(&file, vec![2; 20 * MIB]).unwrap();
    assert!(fs::write(mount.directory.join("more"), vec![3; 20 * MIB]).is_err(), "it is young");
    assert_eq!(names(&mount.directory).len(), 1);
    assert_eq!(ok(["history", text(&mount.directory), "--floor", "0"]), "floor=0\nshare=50%\n");
    fs::write(mount.directory.join("more"), vec![3; 20 * MIB]).unwrap();
    assert!(names(&mount.directory).is_empty());
    let listed = ok(["snapshots", "--forgotten", text(&mount.directory)]);
    assert!(listed.contains("the snapshot or version of") && listed.contains("for a write of"), "{listed}");
    assert!(ok(["info", text(&mount.directory)]).contains("Given up:"));
    let log = fs::read_to_string(scratch.path("daemon.log")).unwrap();
    assert!(log.contains("gave up the snapshot or version of 20") && !log.contains("Timestamp"), "{log}");
    mount.umount();
    let json = ok(["snapshots", "--forgotten", "--json", text(&scratch.volume)]);
    let rows: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(rows[0]["count"], 1, "{json}");
    assert!(ok(["history", text(&scratch.volume), "--json"]).contains("\"floor_seconds\": 0"));
    assert!(fails(2, ["history", text(&scratch.volume), "--floor", "yesterday"])
        .contains("a floor is a duration"));
    assert!(fails(2, ["history", text(&scratch.volume), "--share", "101"]).contains("101"));
}

/// On root's mount with `allow_other` B allocated all free space, and everything that A and root had kept was
/// gone, within nine milliseconds, even if the file did not stay. Now B learns that there is no room, also by
/// statfs, unless the mount says otherwise. Nor may B change the rules.
#[test]
fn other_users_do_not_make_a_volume_forget() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root mounts for others");
        return;
    }
    let scratch = volume(&["--history-floor", "0", "--history-share", "0"]);
    for allowed in [false, true] {
        let options = if allowed { "allow_other,others_give_up_history" } else { "allow_other" };
        let Some(mount) = Mount::new(&scratch, &["-o", options]) else { return };
        for path in [scratch.path(""), mount.directory.clone()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let (of_a, of_b) = (mount.directory.join("a"), mount.directory.join("b"));
        if !allowed {
            fs::create_dir(&of_b).unwrap();
            chown(&of_b, Some(NOBODY), Some(NOBODY)).unwrap();
            fs::write(&of_a, vec![1; 20 * MIB]).unwrap();
            ok(["snapshot", text(&mount.directory)]);
            fs::write(&of_a, "").unwrap();
            rustix::fs::syncfs(fs::File::open(&mount.directory).unwrap()).unwrap();
        }
        let as_b = |program: &str, args: &[&str]| {
            use std::os::unix::process::CommandExt as _;
            std::process::Command::new(program)
                .args(args)
                .uid(NOBODY)
                .gid(NOBODY)
                .current_dir("/")
                .output()
                .unwrap()
        };
        let large = of_b.join("large");
        let size = (free(&mount.directory) - (4 << 20)).to_string();
        let output = as_b("fallocate", &["-l", &size, text(&large)]);
        assert_eq!(output.status.success(), allowed, "{output:?}");
        assert_eq!(names(&mount.directory).is_empty(), allowed);
        if !allowed {
            let seen = as_b("df", &["-B1", "--output=avail", text(&mount.directory)]);
            let seen: u64 = error_or_out(&seen).lines().last().unwrap().trim().parse().unwrap();
            assert!(seen + (20 << 20) <= free(&mount.directory), "{seen}");
            let binary = yore();
            let output = as_b(
                text(Path::new(binary.get_program())),
                &["history", text(&mount.directory), "--floor", "0"],
            );
            assert!(!output.status.success(), "{output:?}");
        }
        drop(fs::remove_file(&large));
        mount.umount();
    }
}

/// On a mount that is told about closes, the kernel creates files by another request, which was carried out
/// as if it were root's: somebody else who filled the volume made it give up root's history by creating
/// files.
#[test]
fn other_users_do_not_make_a_volume_forget_by_creating_files() {
    const MOST: usize = 200_000;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root mounts for others");
        return;
    }
    let scratch = Scratch::empty();
    let rules = ["--policy", "none", "--history-floor", "0", "--history-share", "0"];
    ok(["mkfs", text(&scratch.volume), "--size", "16M"].iter().chain(&rules));
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other,closes"]) else { return };
    for path in [scratch.path(""), mount.directory.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (of_a, of_b) = (mount.directory.join("a"), mount.directory.join("b"));
    fs::create_dir(&of_b).unwrap();
    chown(&of_b, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(&of_a, vec![1; 4 * MIB]).unwrap();
    ok(["snapshot", text(&mount.directory)]);
    fs::write(&of_a, "").unwrap();
    rustix::fs::syncfs(fs::File::open(&mount.directory).unwrap()).unwrap();
    let created = std::thread::scope(|scope| {
        let as_b = || {
            let id = rustix::fs::Uid::from_raw(NOBODY);
            // This changes the ids of this thread only.
            rustix::thread::set_thread_res_uid(id, id, id).expect("another user");
            assert!(fs::write(of_b.join("large"), vec![1; 16 * MIB]).is_err());
            (0..MOST).take_while(|n| fs::File::create(of_b.join(n.to_string())).is_ok()).count()
        };
        scope.spawn(as_b).join().unwrap()
    });
    assert!(created < MOST, "it never was full");
    assert_eq!(names(&mount.directory).len(), 1);
    mount.umount();
}

/// With `version=close` a full volume logged an error for each close. Now it logs once that versions are
/// missing, `info` says how many, and it logs once that they are made again.
#[test]
fn missing_versions_are_told_once() {
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "16M", "--policy", "none"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (file, full) = (mount.directory.join("file"), mount.directory.join("full"));
    fs::create_dir(&full).unwrap();
    fs::write(&file, "0").unwrap();
    ok(["policy", text(&file), "version=close"]);
    assert!(fs::write(mount.directory.join("large"), vec![1; 32 * MIB]).is_err());
    assert!((0..100_000).any(|n| fs::write(full.join(n.to_string()), "").is_err()), "it never was full");
    let missed = || mount.info()["when_full"]["missed"]["count"].as_u64().unwrap_or(0);
    let is_missing = (0..1000).any(|n| {
        drop(fs::write(&file, n.to_string()));
        let told = ok(["info", text(&mount.directory)]);
        missed() >= 3 && told.contains("versions that policies ask for were not made since")
    });
    assert!(is_missing);
    assert!(
        ok(["info", text(&mount.directory)]).contains("versions that policies ask for were not made since")
    );
    fs::remove_file(mount.directory.join("large")).unwrap();
    fs::remove_dir_all(&full).unwrap();
    rustix::fs::syncfs(fs::File::open(&mount.directory).unwrap()).unwrap();
    fs::write(&file, "there is room").unwrap();
    // The thread that detects closes may be working on it just now.
    common::until("the version is made", || missed() == 0);
    let log = fs::read_to_string(scratch.path("daemon.log")).unwrap();
    assert!(!log.contains("ERROR"), "{log}");
    // A volume may have room for a moment, but nothing is said twice in a row.
    let states = |line: &str| {
        let is_full = line.contains("versions that policies ask for are not made");
        (is_full || line.contains("there is room again")).then_some(is_full)
    };
    let states: Vec<bool> = log.lines().filter_map(states).collect();
    assert!(!states.is_empty() && states.chunks(2).all(|pair| pair == [true, false]), "{log}");
    mount.umount();
}

fn error_or_out(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", error_text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}
