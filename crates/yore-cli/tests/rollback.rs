//! `rollback` as one operation of the process that has the volume open: the daemon is killed during it, the
//! volume is full, others wait.

use crate::common;

use common::{error_text, ok, run, text, Mount, Scratch};
use rustix::process::{kill_process, Signal};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Which of two states a directory of many files is in; panics if it is in between.
fn state(root: &Path, files: usize) -> usize {
    let mut found = [0, 0];
    for i in 0..files {
        let path = root.join(format!("many{}", i % 10)).join(format!("f{i}"));
        match fs::read_to_string(&path) {
            Ok(content) if content == "one" => found[0] += 1,
            // A third was changed, a third removed, a third renamed.
            Ok(content) if content == "two" => found[1] += 1,
            Err(_) => found[1] += 1,
            Ok(content) => panic!("{}: {content}", path.display()),
        }
    }
    match found {
        [n, 0] if n == files => 0,
        [0, n] if n == files => 1,
        _ => panic!("between: {found:?}"),
    }
}

fn fill(root: &Path, files: usize) {
    for i in 0..files {
        let directory = root.join(format!("many{}", i % 10));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{i}")), "one").unwrap();
    }
}

fn change(root: &Path, files: usize) {
    for i in 0..files {
        let directory = root.join(format!("many{}", i % 10));
        let file = directory.join(format!("f{i}"));
        match i % 3 {
            0 => fs::write(file, "two").unwrap(),
            1 => fs::remove_file(file).unwrap(),
            _ => fs::rename(file, directory.join(format!("moved{i}"))).unwrap(),
        }
    }
}

/// A mounted volume of a size with a directory that was filled, snapshotted as `then`, and changed; and the
/// directory.
fn changed_since<'s>(scratch: &'s Scratch, size: &str, files: usize) -> Option<(Mount<'s>, PathBuf)> {
    ok(["mkfs", text(&scratch.volume), "--size", size, "--policy", "none"]);
    let mount = Mount::new(scratch, &[])?;
    let root = mount.directory.join("d");
    fs::create_dir(&root).unwrap();
    fill(&root, files);
    ok(["snapshot", text(&root), "-n", "then"]);
    change(&root, files);
    Some((mount, root))
}

/// The daemon is killed during a rollback of 10,000 files. The next mount shows it finished, or, if it had
/// not begun, the state before.
#[test]
fn a_killed_daemon_leaves_nothing_between() {
    const FILES: usize = 10_000;
    let scratch = Scratch::empty();
    let Some((mount, root)) = changed_since(&scratch, "256M", FILES) else { return };
    mount.umount();
    let saved = scratch.path("saved");
    fs::copy(&scratch.volume, &saved).unwrap();
    let then = format!("{}@then", text(&root));
    mount.again(&[]);
    let start = Instant::now();
    ok(["rollback", &then]);
    let mut whole = start.elapsed();
    assert_eq!(state(&root, FILES), 0);
    mount.umount();
    let mut seen = [0, 0];
    // On a machine that is busier now than before, none of the rollbacks may have begun when it was killed:
    // then they get more time.
    for (round, part) in (1..8).cycle().take(28).enumerate() {
        if round >= 7 && seen[0] > 0 {
            break;
        }
        if part == 1 && round > 0 {
            whole *= 2;
        }
        fs::copy(&saved, &scratch.volume).unwrap();
        mount.again(&[]);
        let pid = mount.pid();
        let mut child = common::yore().args(["rollback", &then]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * part / 8);
        kill_process(pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        run(["umount", "--lazy", text(&mount.directory)]);
        ok(["check", text(&scratch.volume)]);
        let info: serde_json::Value =
            serde_json::from_str(&ok(["info", "--json", text(&scratch.volume)])).unwrap();
        let is_begun = !info["unfinished"].as_array().unwrap().is_empty();
        assert!(!is_begun || info["unfinished"][0]["stopped"] == false, "{info}");
        mount.again(&[]);
        let found = state(&root, FILES);
        assert!(found == 0 || !is_begun, "what had begun is finished");
        seen[found] += 1;
        assert_eq!(mount.info()["unfinished"], serde_json::json!([]));
        mount.umount();
        ok(["check", text(&scratch.volume)]);
    }
    println!("finished {}, not begun {}", seen[0], seen[1]);
    assert!(seen[0] > 0, "{seen:?}");
}

/// Others go on meanwhile. A reader of the directory waits, and sees it as before or as after.
#[test]
fn others_wait_or_go_on() {
    const FILES: usize = 2_000;
    let scratch = Scratch::empty();
    let Some((mount, root)) = changed_since(&scratch, "128M", FILES) else { return };
    fs::write(root.join("new"), "new").unwrap();
    let mut child = common::yore()
        .args(["rollback", &format!("{}@then", text(&root))])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut beside, mut lookups) = (0, 0);
    while child.try_wait().unwrap().is_none() {
        let outside = mount.directory.join(format!("outside{}", beside % 50));
        fs::write(&outside, "goes on").unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "goes on");
        beside += 1;
        // A name that nobody has asked for before.
        let _ = fs::metadata(root.join(format!("never{lookups}")));
        lookups += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", error_text(&output));
    assert_eq!(state(&root, FILES), 0);
    assert!(!root.join("new").exists(), "what the kernel knew is not believed any more");
    assert!(beside > 0 && lookups > 0);
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// The restored data does not fit beside the present data, as on a nearly full volume: the files are too
/// small to share blocks with the past. The rollback is not begun, because it could be neither finished nor
/// undone there. The command says that nothing was changed, and when there is room it works.
#[test]
fn what_does_not_fit() {
    const FILES: usize = 500;
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "32M", "--policy", "none"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    fs::create_dir(&root).unwrap();
    let file = |n: usize| root.join(format!("f{n}"));
    (0..FILES).for_each(|n| fs::write(file(n), vec![1; 12 << 10]).unwrap());
    ok(["snapshot", text(&root), "-n", "then"]);
    (0..FILES).for_each(|n| fs::write(file(n), "small").unwrap());
    let filler = mount.directory.join("fill");
    let is_full = |n: usize| fs::write(&filler, vec![1; n << 20]).is_err();
    let fits = (1..32).rev().find(|n| !is_full(*n)).unwrap();
    let then = format!("{}@then", text(&root));
    let output = run(["rollback", &then]);
    let told = error_text(&output);
    assert!(!output.status.success() && told.contains("nothing was changed"), "{told}");
    assert!(told.contains("makes room") && !told.contains("did not end"), "{told}");
    assert!(told.contains("bytes are missing") && told.contains("yore forget"), "{told}");
    assert_eq!(fs::read_to_string(file(0)).unwrap(), "small");
    assert_eq!(mount.info()["unfinished"], serde_json::json!([]));
    fs::write(&filler, vec![1; fits.saturating_sub(8) << 20]).unwrap();
    ok(["rollback", &then]);
    assert!((0..FILES).all(|n| fs::read(file(n)).unwrap() == vec![1; 12 << 10]));
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// A rollback makes files anew whose other names are outside the directory. Their data was not counted in the
/// check for room, and the rollback stopped half way. Now it is not begun, and ends when there is room. A
/// name that is a link of another file inside takes no room, nor does a file that is large enough to share
/// the blocks of the past.
#[test]
fn files_with_names_elsewhere_need_room() {
    const FILES: usize = 400;
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "32M", "--policy", "none"]);
    let Some(mount) = Mount::new(&scratch, &["-o", "keep_history"]) else { return };
    let root = mount.directory.join("d");
    fs::create_dir_all(root.join("sub")).unwrap();
    let (outside, inside) = (mount.directory.join("outside"), root.join("sub/inside"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&inside).unwrap();
    let names = |directory: &Path, n: usize| directory.join(format!("f{n}"));
    let mut files = Vec::new();
    for other in [&outside, &inside] {
        for n in 0..FILES {
            let file = root.join(format!("f{}", files.len()));
            fs::write(&file, vec![7; 12 << 10]).unwrap();
            fs::hard_link(&file, names(other, n)).unwrap();
            files.push(file);
        }
    }
    let large = root.join("large");
    fs::write(&large, vec![8; 2 << 20]).unwrap();
    fs::hard_link(&large, mount.directory.join("large")).unwrap();
    ok(["snapshot", text(&root), "-n", "then"]);
    files.iter().chain([&large]).for_each(|file| fs::remove_file(file).unwrap());
    let fill = |n: usize| mount.directory.join(format!("fill{n}"));
    let filled = (0..64).find(|n| fs::write(fill(*n), vec![1; 1 << 20]).is_err()).unwrap();
    (0..3).for_each(|n| fs::remove_file(fill(n)).unwrap());
    let then = format!("{}@then", text(&root));
    let told = error_text(&run(["rollback", &then]));
    assert!(told.contains("nothing was changed") && told.contains("bytes are missing"), "{told}");
    assert!(!files[0].exists() && !files[FILES].exists());
    assert_eq!(mount.info()["unfinished"], serde_json::json!([]));
    // Enough for the half that has no name inside.
    (3..filled.min(8)).for_each(|n| fs::remove_file(fill(n)).unwrap());
    ok(["rollback", &then]);
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&files[FILES]), inode(&names(&inside, 0)));
    assert_ne!(inode(&files[0]), inode(&names(&outside, 0)));
    assert!(files.iter().all(|file| fs::read(file).unwrap() == vec![7; 12 << 10]));
    assert!(fs::read(&large).unwrap() == vec![8; 2 << 20]);
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// On a full volume it may not end, because only data is counted beforehand, and here attributes take the
/// room. The command, `info` and `check` say so, and what to do; nothing is lost, and repeating it when there
/// is room finishes it.
#[test]
fn a_full_volume() {
    const FILES: u8 = 50;
    let scratch = Scratch::empty();
    ok(["mkfs", text(&scratch.volume), "--size", "32M", "--policy", "none"]);
    let Some(mount) = Mount::new(&scratch, &["-o", "keep_history"]) else { return };
    let root = mount.directory.join("d");
    fs::create_dir(&root).unwrap();
    let value = vec![b'x'; 60_000];
    for i in 0..FILES {
        let file = root.join(format!("f{i}"));
        fs::write(&file, [i]).unwrap();
        rustix::fs::setxattr(&file, "user.large", &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    ok(["snapshot", text(&root), "-n", "then"]);
    for i in 0..FILES {
        fs::remove_file(root.join(format!("f{i}"))).unwrap();
    }
    fs::write(root.join("g0"), "small").unwrap();
    let fill = |n: usize| mount.directory.join(format!("fill{n}"));
    let filled = (0..64).find(|n| fs::write(fill(*n), vec![1; 1 << 20]).is_err()).unwrap();
    fs::remove_file(fill(0)).unwrap();
    let then = format!("{}@then", text(&root));
    let output = run(["rollback", &then]);
    let told = error_text(&output);
    assert!(!output.status.success() && told.contains("did not end"), "{told}");
    assert!(told.contains("makes room") && told.contains("@before-rollback-1"), "{told}");
    let info = ok(["info", text(&mount.directory)]);
    assert!(info.contains("rollback-1 in /d did not end"), "{info}");
    mount.umount();
    let check = ok(["check", text(&scratch.volume)]);
    assert!(check.contains("a rollback is not finished, which is no damage"), "{check}");
    assert!(ok(["info", text(&scratch.volume)]).contains("rollback-1 in /d did not end"));
    mount.again(&["-o", "keep_history"]);
    assert_eq!(mount.info()["unfinished"][0]["stopped"], true);
    (1..filled).for_each(|n| fs::remove_file(fill(n)).unwrap());
    let output = run(["rollback", &then]);
    let told = error_text(&output);
    assert!(output.status.success() && told.contains("rollback-1 in"), "{told}");
    for i in 0..FILES {
        let file = root.join(format!("f{i}"));
        assert_eq!(fs::read(&file).unwrap(), [i]);
        let mut found = vec![0; 65_536];
        let length = rustix::fs::getxattr(&file, "user.large", &mut found[..]).unwrap();
        assert_eq!(found[..length], value);
    }
    assert_eq!(mount.info()["unfinished"], serde_json::json!([]));
    assert_eq!(fs::read_to_string(format!("{}@before-rollback-1/g0", text(&root))).unwrap(), "small");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}
