//! A `restore` that does not end, because the disk is full or somebody presses Ctrl-C: what was done stays,
//! each file whole, nothing else is lost, and the same command again finishes it.

use crate::common;

use common::{error_text, ok, run, text, Mount, Scratch};
use rustix::process::{kill_process, Pid, Signal};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The name under which restore writes beside a file before it renames it.
const TEMPORARY: &str = ".yore-";

/// Permissions, time of the last change, and content of all files below a directory.
type Tree = BTreeMap<PathBuf, (u32, (i64, i64), Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let (mut found, mut left) = (Tree::new(), vec![root.to_path_buf()]);
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        if facts.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let what = (facts.mode(), (facts.mtime(), facts.mtime_nsec()), fs::read(&path).unwrap());
        found.insert(path.strip_prefix(root).unwrap().to_path_buf(), what);
    }
    found
}

/// Removes from a tree the files that an interrupted restore was just writing.
fn without_temporaries(mut tree: Tree) -> (Tree, Vec<PathBuf>) {
    let is_temporary = |path: &PathBuf| text(path.file_name().unwrap().as_ref()).starts_with(TEMPORARY);
    let temporaries: Vec<PathBuf> = tree.keys().filter(|path| is_temporary(path)).cloned().collect();
    tree.retain(|path, _| !temporaries.contains(path));
    (tree, temporaries)
}

/// Asserts that each file is as before the restore or as after it; returns how many are as after it.
#[track_caller]
fn must_be_between(found: &Tree, before: &Tree, after: &Tree) -> usize {
    let mut done = 0;
    let names: std::collections::BTreeSet<&PathBuf> =
        found.keys().chain(before.keys()).chain(after.keys()).collect();
    for name in names {
        let [found, before, after] = [found, before, after].map(|tree| tree.get(name));
        assert!(found == before || found == after, "{name:?} is neither what it was nor what it should be");
        done += usize::from(found == after && found != before);
    }
    done
}

/// A directory with this many files of this many bytes in seven directories, all in a held snapshot `then`.
/// After that a third of them is changed, a third is removed, and one is new. Returns the earlier and the
/// present tree.
fn changed_since(mount: &Mount<'_>, files: usize, bytes: usize) -> (Tree, Tree) {
    let root = mount.directory.join("d");
    for i in 0..files {
        let path = root.join(format!("many{}", i % 7)).join(format!("f{i}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{i} of then, ").repeat(bytes / 14)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + i as u32 % 64)).unwrap();
    }
    ok(["snapshot", text(&root), "-n", "then", "--hold"]);
    let then = tree(&root);
    for i in 0..files {
        let path = root.join(format!("many{}", i % 7)).join(format!("f{i}"));
        match i % 3 {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::write(path, "since").unwrap(),
            _ => {}
        }
    }
    fs::write(root.join("new"), "came since").unwrap();
    (then, tree(&root))
}

/// The tree after a restore: the earlier tree, and the files that came since.
fn restored(then: &Tree, now: &Tree) -> Tree {
    let mut all = now.clone();
    all.extend(then.clone());
    all
}

fn free(mount: &Mount<'_>) -> u64 {
    let facts = rustix::fs::statvfs(&mount.directory).unwrap();
    facts.f_bavail * facts.f_frsize
}

/// The volume has room for only a part of what is to be restored, and its history cannot give way: it is
/// held, or the mount keeps it. The command says so before it does anything. It used to begin, and a full
/// volume gave up the snapshot from before it, and with it the only copy of the overwritten files.
#[test]
fn there_is_room_for_a_part_only() {
    for (options, is_mounted) in [(&[][..], true), (&[][..], false), (&["-o", "keep_history"][..], true)] {
        let scratch = Scratch::new();
        ok(["mkdir", &scratch.on("/d")]);
        let Some(mount) = Mount::new(&scratch, options) else { return };
        let root = mount.directory.join("d");
        // Larger files would share blocks with the past, and need no room.
        let (then, before) = changed_since(&mount, 1000, 12_000);
        // A file outside the directory that keeps it from ending.
        let filler = mount.directory.join("filler");
        rustix::fs::sync();
        fs::write(&filler, vec![7; (free(&mount) - (5 << 20)) as usize]).unwrap();
        if !is_mounted {
            mount.umount();
        }
        let operand = match is_mounted {
            true => format!("{}@then", text(&root)),
            false => scratch.on("/d@then"),
        };
        let output = run(["restore", &operand]);
        let said = error_text(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        for words in ["nothing was changed", "bytes are missing", "yore forget", "yore resize"] {
            assert!(said.contains(words), "{said}");
        }
        assert!(said.to_lowercase().contains("no space"), "{said}");
        if !is_mounted {
            ok(["check", text(&scratch.volume)]);
            mount.again(options);
        }
        must_be(&tree(&root), &before);
        let listed = ok(["snapshots", "--json", text(&root)]);
        assert!(!listed.contains("before-restore"), "there is nothing to undo: {listed}");
        fs::remove_file(&filler).unwrap();
        ok(["restore", &format!("{}@then", text(&root))]);
        must_be(&tree(&root), &restored(&then, &before));
        mount.umount();
        ok(["check", text(&scratch.volume)]);
    }
}

#[track_caller]
fn must_be(found: &Tree, expected: &Tree) {
    let names: std::collections::BTreeSet<&PathBuf> = found.keys().chain(expected.keys()).collect();
    let differ: Vec<&PathBuf> =
        names.into_iter().filter(|name| found.get(*name) != expected.get(*name)).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

/// Runs a restore until `is_time` says so, and then sends the signal of Ctrl-C. The restore yields to
/// everybody else, so that the test, which watches it, is not too late on a busy machine.
fn interrupt(operand: &str, mut is_time: impl FnMut() -> bool) -> (ExitStatus, String) {
    // A process that a shell has started in the background ignores Ctrl-C, and so would all its children.
    let mut child: Child = std::process::Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_yore"), "restore", operand])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    rustix::process::setpriority_process(Some(pid), 5).unwrap();
    while child.try_wait().unwrap().is_none() && !is_time() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if child.try_wait().unwrap().is_none() {
        kill_process(pid, Signal::INT).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    (output.status, error_text(&output))
}

/// Ctrl-C ends it as it ends other programs, and says nothing of its own.
#[track_caller]
fn must_be_interrupted(status: ExitStatus, said: &str) {
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}: {said}");
    assert_eq!(said, "");
}

/// On a mount, where each restored file is there at once: when a quarter, half and three quarters of the
/// files are back.
#[test]
fn it_is_interrupted_on_a_mount() {
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    let (then, before) = changed_since(&mount, 3000, 100);
    let (after, operand) = (restored(&then, &before), format!("{}@then", text(&root)));
    let there =
        || (0..7).map(|d| fs::read_dir(root.join(format!("many{d}"))).unwrap().count()).sum::<usize>();
    let mut found = before.clone();
    for part in 1..4 {
        let wanted = 2000 + part * 250;
        let (status, said) = interrupt(&operand, || there() >= wanted);
        must_be_interrupted(status, &said);
        let now = tree(&root);
        let (now, temporaries) = without_temporaries(now);
        must_be_between(&now, &found, &after);
        assert!(temporaries.len() <= part, "{temporaries:?}");
        let done = must_be_between(&now, &before, &after);
        assert!(done >= part * 250 && done < 2000, "{done} files in part {part}");
        found = now;
    }
    ok(["restore", &operand]);
    // The file that it was just writing when it was interrupted belongs to nobody, and can be removed.
    let (now, temporaries) = without_temporaries(tree(&root));
    must_be(&now, &after);
    assert!(temporaries.len() <= 3, "{temporaries:?}");
    temporaries.iter().for_each(|path| fs::remove_file(root.join(path)).unwrap());
    must_be(&tree(&root), &after);
    assert!(tree(Path::new(&operand)) == then, "the snapshot is what it was");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// On a volume that is not mounted, which the command has opened itself.
#[test]
fn it_is_interrupted_on_a_volume() {
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    let (then, before) = changed_since(&mount, 2000, 100);
    mount.umount();
    let after = restored(&then, &before);
    let saved = scratch.path("saved");
    fs::copy(&scratch.volume, &saved).unwrap();
    let start = Instant::now();
    ok(["restore", &scratch.on("/d@then")]);
    let (mut whole, mut interrupted) = (start.elapsed(), 0);
    // If some end before their time has come, the others' time comes earlier.
    for (round, part) in (0..6).cycle().take(30).enumerate() {
        if round >= 6 && interrupted > 2 {
            break;
        }
        fs::copy(&saved, &scratch.volume).unwrap();
        let start = Instant::now();
        let (status, said) = interrupt(&scratch.on("/d@then"), || start.elapsed() >= whole * part / 6);
        // The signal may come when all is done and said, and the volume is being closed.
        let is_done = said.starts_with("undo: yore undo ") && said.lines().count() == 1;
        match status.success() || (is_done && status.signal() == Some(Signal::INT.as_raw())) {
            true => whole /= 2,
            false => {
                must_be_interrupted(status, &said);
                interrupted += 1;
            }
        }
        ok(["check", text(&scratch.volume)]);
        mount.again(&[]);
        let (now, temporaries) = without_temporaries(tree(&root));
        must_be_between(&now, &before, &after);
        assert!(temporaries.len() <= 1, "{temporaries:?}");
        mount.umount();
        ok(["restore", &scratch.on("/d@then")]);
        mount.again(&[]);
        let (now, left) = without_temporaries(tree(&root));
        must_be(&now, &after);
        assert!(left == temporaries, "{left:?}");
        mount.umount();
        ok(["check", text(&scratch.volume)]);
    }
    assert!(interrupted > 2, "interrupted {interrupted} times");
}
