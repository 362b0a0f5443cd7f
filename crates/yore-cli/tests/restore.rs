//! `restore`, `undelete`, `rollback`, `undo` and `redo`, on mounts and on volumes that are not mounted.

use crate::common;

use common::trees::{both, read, remove, tree, write};
use common::{error_text, fails, ok, put, rows, run, scratch, text, Mount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

fn says<const N: usize>(args: [&str; N]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", error_text(&output));
    error_text(&output)
}

#[test]
fn a_file_is_restored_and_the_restore_undone() {
    both(&[], |scratch, on| {
        ok(["snapshot", &on("/d"), "-n", "first"]);
        write(scratch, "/d/file", "two");
        let then = on("/d@first/file");
        assert!(ok(["restore", "-n", &then]).starts_with("M  "));
        assert_eq!(read(scratch, "/d/file"), "two", "it was only asked what would be done");
        let told = says(["restore", &then]);
        assert!(told.contains(&format!("undo: yore undo {}", on("/d"))), "{told}");
        assert_eq!(read(scratch, "/d/file"), "one");
        assert!(says(["restore", &then]).contains("already"));
        let kinds: Vec<Value> =
            serde_json::from_str(&ok(["snapshots", "--all", "--json", &on("/d")])).unwrap();
        let kinds: Vec<&str> = kinds.iter().map(|row| row["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["snapshot", "undo", "undo"], "what changes nothing takes none");
        let told = says(["undo", &on("/d")]);
        assert!(told.contains("yore redo"), "{told}");
        assert_eq!(read(scratch, "/d/file"), "two");
        ok(["redo", &on("/d")]);
        assert_eq!(read(scratch, "/d/file"), "one");
        // Elsewhere: a copy.
        ok(["restore", &then, "--to", &on("/d/sub")]);
        assert_eq!(read(scratch, "/d/sub/file"), "one");
        assert!(fails(3, ["restore", &then, "--to", &on("/d/sub/file")]).contains("there already"));
        assert!(fails(2, ["restore", &on("/d/file")]).contains("as of when?"));
        fails(3, ["restore", &on("/d@first/never")]);
        fails(3, ["restore", &on("/d/file@never")]);
        // Together with the removed directories above it.
        write(scratch, "/d/sub/deep", "deep");
        ok(["snapshot", &on("/d"), "-n", "second"]);
        remove(scratch, "/d/sub");
        ok(["restore", &on("/d@second/sub/deep")]);
        assert_eq!(read(scratch, "/d/sub/deep"), "deep");
        ok(["undo", &on("/d")]);
        assert!(
            run(["stat", &scratch.on("/d/sub")]).status.code() != Some(0) || scratch.path("mnt").exists()
        );
        assert!(!scratch.path("mnt/d/sub").exists());
    });
}

/// What comes back from the past, and a copy within the volume, take no room for data: they share blocks, and
/// each keeps its content when the other changes.
#[test]
fn copies_share_blocks() {
    both(&[], |scratch, on| {
        let content = "a line of the file\n".repeat(500_000);
        write(scratch, "/d/file", &content);
        ok(["snapshot", &on("/d"), "-n", "first"]);
        let available = || {
            let rows: Vec<Value> =
                serde_json::from_str(&ok(["df", "--json", text(&scratch.volume)])).unwrap();
            rows[0]["available"].as_u64().unwrap()
        };
        remove(scratch, "/d/file");
        let before = available();
        ok(["restore", &on("/d@first/file")]);
        match scratch.path("mnt").exists() {
            // By copy_file_range, as `cp --reflink=auto` does it.
            true => drop(fs::copy(on("/d/file"), on("/d/copy")).unwrap()),
            false => drop(ok(["cp", &on("/d/file"), &on("/d/copy")])),
        }
        let taken = before.saturating_sub(available());
        assert!(taken < 1 << 20, "{taken} bytes for {} and a copy", content.len());
        assert_eq!(read(scratch, "/d/file"), content);
        write(scratch, "/d/file", "other");
        assert_eq!(read(scratch, "/d/copy"), content);
        assert_eq!(read(scratch, "/d@first/file"), content);
    });
}

/// What is done for several operands is one array, and it is whole if one of them fails. There was an array
/// for each operand, so no program could read the output of two.
#[test]
fn several_operands_make_one_array() {
    both(&[], |scratch, on| {
        write(scratch, "/d/other", "one");
        ok(["snapshot", &on("/d"), "-n", "first"]);
        write(scratch, "/d/file", "two");
        write(scratch, "/d/other", "two");
        let (file, other) = (on("/d@first/file"), on("/d@first/other"));
        let names = |rows: Vec<Value>| -> Vec<String> {
            let path = |row: &Value| row["path"].as_str().unwrap().rsplit('/').next().unwrap().to_string();
            rows.iter().map(path).collect()
        };
        assert_eq!(names(rows(&["restore", "--json", "--dry-run", &file, &other])), ["file", "other"]);
        let output = run(["restore", "--json", &file, &on("/d@first/never"), &other]);
        assert_eq!(output.status.code(), Some(3), "{}", error_text(&output));
        assert_eq!(names(serde_json::from_slice(&output.stdout).unwrap()), ["file"]);
        assert_eq!(["/d/file", "/d/other"].map(|path| read(scratch, path)), ["one", "two"]);
        assert_eq!(names(rows(&["restore", "--json", &file, &on("/d@first")])), ["other"]);
        assert_eq!(names(rows(&["restore", "--json", &file, &other])), [""; 0], "all is as it was");
        let output = run(["restore", "--json", &on("/d@first/never")]);
        assert_eq!((output.status.code(), output.stdout), (Some(3), Vec::new()));
        remove(scratch, "/d/file");
        remove(scratch, "/d/other");
        assert_eq!(names(rows(&["undelete", "--json", &on("/d/file"), &on("/d/other")])), ["file", "other"]);
    });
}

/// `--to` asks of each operand whether it is on the volume of the copies. It asked that of the first one
/// only, so the copy of a file on another volume went to that other volume.
#[test]
fn copies_of_files_on_several_volumes() {
    let (here, there) = (scratch(), scratch());
    put(&there, "/d/letter", "from there");
    for volume in [&here, &there] {
        ok(["snapshot", &volume.on("/d"), "-n", "first"]);
    }
    let (file, letter) = (here.on("/d@first/file"), there.on("/d@first/letter"));
    for (first, second, name) in [(&file, &letter, "copies"), (&letter, &file, "again")] {
        let to = here.on(&format!("/{name}"));
        ok(["mkdir", &to]);
        ok(["restore", first, second, "--to", &to]);
        assert_eq!(read(&here, &format!("/{name}/file")), "one");
        assert_eq!(read(&here, &format!("/{name}/letter")), "from there");
    }
}

#[test]
fn a_directory_is_restored_and_what_came_since_left() {
    both(&[], |scratch, on| {
        write(scratch, "/d/sub/a", "a");
        write(scratch, "/d/gone", "gone");
        ok(["snapshot", &on("/d"), "-n", "first"]);
        write(scratch, "/d/new", "new");
        write(scratch, "/d/file", "changed");
        remove(scratch, "/d/gone");
        remove(scratch, "/d/sub");
        let plan = ok(["restore", "--dry-run", &on("/d@first")]);
        assert_eq!(plan.lines().map(|line| &line[..1]).collect::<String>(), "M+++", "{plan}");
        ok(["restore", &on("/d@first")]);
        let all = ["/d/new", "/d/file", "/d/gone", "/d/sub/a"].map(|path| read(scratch, path));
        assert_eq!(all, ["new", "one", "gone", "a"]);
        assert!(says(["restore", &on("/d@first")]).contains("as it was"));
        ok(["undo", &on("/d")]);
        assert_eq!(read(scratch, "/d/file"), "changed");
        assert!(!ok(["deleted", "-r", &on("/d")]).is_empty());
    });
}

#[test]
fn what_was_deleted_comes_back() {
    both(&[], |scratch, on| {
        write(scratch, "/d/sub/a", "a");
        ok(["snapshot", &on("/d")]);
        remove(scratch, "/d/sub");
        remove(scratch, "/d/file");
        ok(["undelete", &on("/d/file"), &on("/d/sub")]);
        assert_eq!([read(scratch, "/d/file"), read(scratch, "/d/sub/a")], ["one", "a"]);
        assert!(fails(3, ["undelete", &on("/d/file")]).contains("is there"));
        assert!(fails(3, ["undelete", &on("/d/never")]).contains("yore deleted"));
        remove(scratch, "/d/sub");
        ok(["undelete", &on("/d/sub/a")]);
        assert_eq!(read(scratch, "/d/sub/a"), "a");
    });
}

#[test]
fn a_directory_is_rolled_back_and_forth() {
    both(&[], |scratch, on| {
        ok(["snapshot", &on("/"), "-n", "first"]);
        write(scratch, "/d/new", "new");
        write(scratch, "/d/file", "changed");
        remove(scratch, "/d/sub");
        ok(["snapshot", &on("/"), "-n", "second"]);
        let plan = ok(["rollback", "-n", &on("/d@first")]);
        assert_eq!(plan, "M  file\n-  new\n+  sub/\n");
        ok(["rollback", &on("/d@first")]);
        assert_eq!(ok(["rollback", "-n", &on("/d@first")]), "");
        assert!(says(["rollback", &on("/d@first")]).contains("nothing differs"));
        ok(["undo", &on("/d")]);
        assert_eq!(ok(["rollback", "-n", &on("/d@second")]), "");
        assert_eq!([read(scratch, "/d/file"), read(scratch, "/d/new")], ["changed", "new"]);
        assert!(fails(3, ["undo", &on("/d")]).contains("nothing to undo"));
        ok(["redo", &on("/d")]);
        assert_eq!(read(scratch, "/d/file"), "one");
        assert!(fails(3, ["redo", &on("/d")]).contains("nothing to redo"));
        // The root directory, and from below it.
        ok(["rollback", &on("/.@second")]);
        assert_eq!(read(scratch, "/d/file"), "changed");
        remove(scratch, "/d/new");
        assert!(fails(2, ["rollback", &on("/d")]).contains("as of when?"));
        fails(3, ["rollback", &on("/d@never")]);
    });
}

/// Later changes by others survive an undo, and are listed; with `--force` they do not.
#[test]
fn undo_leaves_what_others_changed() {
    both(&[], |scratch, on| {
        for name in ["a", "b", "c"] {
            write(scratch, &format!("/d/{name}"), "then");
        }
        ok(["snapshot", &on("/d"), "-n", "first"]);
        for name in ["a", "b", "new"] {
            write(scratch, &format!("/d/{name}"), "later");
        }
        ok(["rollback", &on("/d@first")]);
        write(scratch, "/d/a", "by others");
        write(scratch, "/d/other", "by others");
        remove(scratch, "/d/c");
        let told = says(["undo", &on("/d")]);
        for name in ["a", "c", "other"] {
            assert!(told.contains(&format!("changed since, left alone: {name}\n")), "{told}");
        }
        assert!(!told.contains("alone: b"), "{told}");
        let all = ["a", "b", "new", "other"].map(|name| read(scratch, &format!("/d/{name}")));
        assert_eq!(all, ["by others", "later", "later", "by others"]);
        ok(["redo", &on("/d")]);
        ok(["undo", "--force", &on("/d")]);
        let all = ["a", "b", "new", "other"].map(|name| read(scratch, &format!("/d/{name}")));
        assert_eq!(all, ["by others", "later", "later", "by others"]);
        // If the end of an operation was forgotten, nothing is guessed.
        ok(["rollback", &on("/d@first")]);
        let rows: Vec<Value> =
            serde_json::from_str(&ok(["snapshots", "--all", "--json", &on("/d")])).unwrap();
        let end = rows.last().unwrap()["name"].as_str().unwrap().to_string();
        assert!(end.starts_with("after-rollback-"), "{end}");
        ok(["forget", &on(&format!("/d@{end}"))]);
        assert!(fails(3, ["undo", &on("/d")]).contains("--force"));
        ok(["undo", "--force", &on("/d")]);
        assert_eq!(read(scratch, "/d/a"), "by others");
    });
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Everything below a directory, with its own kind.
fn paths(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut dirs, mut files, mut at) = (vec![root.to_path_buf()], Vec::new(), 0);
    while at < dirs.len() {
        let mut entries: Vec<PathBuf> = fs::read_dir(&dirs[at]).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => dirs.push(path),
                false => files.push(path),
            }
        }
        at += 1;
    }
    (dirs, files)
}

/// Changes something at random; skips what is impossible.
fn change(root: &Path, random: &mut Random, step: usize) {
    let (dirs, files) = paths(root);
    let dir = dirs[random.below(dirs.len())].clone();
    let name = dir.join(format!("n{}", random.below(8)));
    let file = (!files.is_empty()).then(|| files[random.below(files.len())].clone());
    let other = dirs[random.below(dirs.len())].clone();
    match (random.below(12), file) {
        (0 | 1, _) if !name.is_dir() => drop(fs::write(&name, format!("{step}"))),
        (2, _) => drop(fs::create_dir(&name)),
        (3, Some(file)) => drop(fs::rename(file, &name)),
        (4, _) if other != root => drop(fs::rename(other, &name)),
        (5, Some(file)) => drop(fs::hard_link(file, &name)),
        (6, Some(file)) => drop(fs::remove_file(file)),
        (7, _) if other != root && random.below(3) == 0 => drop(fs::remove_dir_all(other)),
        (8, Some(file)) if file.is_file() => {
            fs::set_permissions(file, fs::Permissions::from_mode(0o600 + random.below(64) as u32)).unwrap();
        }
        (9, _) => {
            let value = [b'0' + (step % 10) as u8];
            let name = if random.below(2) == 0 { "user.a" } else { "user.b" };
            match random.below(3) {
                0 => drop(rustix::fs::lremovexattr(&other, name)),
                _ => drop(rustix::fs::lsetxattr(&other, name, &value, rustix::fs::XattrFlags::empty())),
            }
        }
        (10, _) => drop(std::os::unix::fs::symlink(format!("to {step}"), &name)),
        (11, Some(file)) => {
            // Exchanged: each has the other's name.
            if let Some(with) = files.get(random.below(files.len())).filter(|with| **with != file) {
                let (a, b, flags) = (&file, with, rustix::fs::RenameFlags::EXCHANGE);
                let _ = rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags);
            }
        }
        _ => {}
    }
}

/// Asserts that two trees are the same; reports the differences.
#[track_caller]
fn same(found: &BTreeMap<PathBuf, String>, expected: &BTreeMap<PathBuf, String>, when: &str) {
    let names: std::collections::BTreeSet<&PathBuf> = found.keys().chain(expected.keys()).collect();
    let differ = names.into_iter().filter(|name| found.get(*name) != expected.get(*name));
    let told: Vec<String> =
        differ.map(|name| format!("{name:?}: {:?}, not {:?}", found.get(name), expected.get(name))).collect();
    assert!(told.is_empty(), "{when}: {told:#?}");
}

/// Random trees, changed at random, are rolled back exactly, and forward again.
#[test]
fn random_trees_return() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    let now = text(&root).to_string();
    for seed in 0..24u64 {
        let mut random = Random(seed * 7919 + 1);
        for step in 0..40 {
            change(&root, &mut random, step);
        }
        let snapshot = format!("s{seed}");
        ok(["snapshot", &now, "-n", &snapshot]);
        let then = tree(&root, false);
        for step in 40..40 + 5 * (seed as usize % 20 + 1) {
            change(&root, &mut random, step);
        }
        let after = tree(&root, false);
        assert_eq!(tree(Path::new(&format!("{now}@{snapshot}")), false).len(), then.len());
        ok(["rollback", &format!("{now}@{snapshot}")]);
        same(&tree(&root, false), &then, &format!("seed {seed}"));
        if after != then {
            let plan = ok(["undo", "-n", &now]);
            ok(["undo", &now]);
            same(&tree(&root, false), &after, &format!("seed {seed}: undone\n{plan}"));
            ok(["redo", &now]);
            same(&tree(&root, false), &then, &format!("seed {seed}: done again"));
            ok(["rollback", &format!("{now}@{snapshot}")]);
            same(&tree(&root, false), &then, &format!("seed {seed}: rolled back once more"));
        }
    }
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// A rollback is killed at any moment: the result is sound, and the same command finishes it.
#[test]
fn a_killed_rollback_is_finished_by_the_same_command() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    let mut random = Random(77);
    let fill = |round: usize| {
        for i in 0..400 {
            let directory = root.join(format!("many{}", i % 7));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(format!("f{}", i * (1 + round % 2))), format!("{round} of {i}"))
                .unwrap();
        }
    };
    fill(0);
    (0..150).for_each(|step| change(&root, &mut random, step));
    ok(["snapshot", text(&root), "-n", "then"]);
    let then = tree(&root, false);
    fill(1);
    (0..300).for_each(|step| change(&root, &mut random, step));
    mount.umount();
    let saved = scratch.path("saved");
    fs::copy(&scratch.volume, &saved).unwrap();
    let (of_volume, of_mount) = (scratch.on("/d@then"), format!("{}@then", text(&root)));
    let start = std::time::Instant::now();
    ok(["rollback", &of_volume]);
    let mut whole = start.elapsed();
    let mut killed = 0;
    // On a machine that is now busy and now idle, some end before they are killed: then others are killed
    // earlier.
    for (round, part) in (0..14).cycle().take(56).enumerate() {
        if round >= 14 && killed > 3 {
            break;
        }
        fs::copy(&saved, &scratch.volume).unwrap();
        // With the volume that it has opened; or alone, and the mount keeps what it has done.
        let rollback = ["rollback", if part % 2 == 0 { &of_volume } else { &of_mount }];
        if part % 2 == 1 {
            mount.again(&[]);
        }
        let mut child = common::yore().args(rollback).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * part / 14);
        child.kill().unwrap();
        match child.wait().unwrap().success() {
            true => whole /= 2,
            false => killed += 1,
        }
        if part % 2 == 0 {
            ok(["check", text(&scratch.volume)]);
        }
        ok(rollback);
        if part % 2 == 0 {
            mount.again(&[]);
        }
        same(&tree(&root, false), &then, &format!("killed after {part} parts of 14"));
        mount.umount();
        ok(["check", text(&scratch.volume)]);
    }
    assert!(killed > 3, "killed {killed} times");
}

/// A directory that was only renamed stays the same directory, in cycles too; and its earlier times return.
#[test]
fn renames_are_renamed_back() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("d");
    for name in ["a", "b", "c"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join(name), name).unwrap();
    }
    ok(["snapshot", text(&root), "-n", "first"]);
    let inode = |name: &str| fs::metadata(root.join(name)).unwrap().ino();
    let (inodes, then) = (["a", "b", "c", "a/a"].map(inode), tree(&root, true));
    for (from, to) in [("a", "x"), ("b", "a"), ("c", "b"), ("x", "c"), ("c/a", "b/a"), ("b", "a/d")] {
        fs::rename(root.join(from), root.join(to)).unwrap();
    }
    let now = text(&root);
    ok(["rollback", &format!("{now}@first")]);
    assert_eq!(["a", "b", "c", "a/a"].map(inode), inodes);
    assert_eq!(tree(&root, true), then);
    mount.umount();
}

/// Ordinary users put back their own files; a request that needs changes of other files is not begun.
#[test]
fn owners_only() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = mount.directory.join("d");
    std::os::unix::fs::chown(&root, Some(4711), Some(4711)).unwrap();
    std::os::unix::fs::chown(root.join("file"), Some(4711), Some(4711)).unwrap();
    ok(["snapshot", text(&root), "-n", "first"]);
    fs::write(root.join("file"), "two").unwrap();
    let as_user = |uid: u32, args: &[&str]| {
        use std::os::unix::process::CommandExt as _;
        common::yore().args(args).uid(uid).gid(uid).output().unwrap()
    };
    let then = format!("{}@first", text(&root));
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let output = as_user(5, &["rollback", &then]);
    assert_eq!(output.status.code(), Some(3), "{}", error_text(&output));
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "two");
    let output = as_user(4711, &["rollback", &then]);
    assert!(output.status.success(), "{}", error_text(&output));
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "one");
    let output = as_user(4711, &["undo", text(&root)]);
    assert!(output.status.success(), "{}", error_text(&output));
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "two");
    mount.umount();
}

/// Whoever could write to a file could store into it as it was, through a mapping: the kernel asks nobody
/// before it writes the page. `restore` compared the present with that forgery, and found nothing to do; what
/// it could not have copied in the kernel, it read from the forgery.
#[test]
fn stores_into_the_past_are_not_restored() {
    use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (file, then) = (mount.directory.join("d/file"), mount.directory.join("d/file@then"));
    let (was, is) = ([b'-'; 4096], [b'x'; 4096]);
    fs::write(&file, was).unwrap();
    ok(["snapshot", text(&mount.directory), "-n", "then"]);
    fs::write(&file, is).unwrap();
    let time = fs::metadata(&then).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();

    let past = fs::File::options().read(true).write(true).open(&then).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates.
    let bytes: &mut [u8] = unsafe {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, &past, 0).unwrap();
        std::slice::from_raw_parts_mut(at.cast(), 4096)
    };
    bytes.copy_from_slice(&is);
    ok(["restore", text(&then)]);
    assert_eq!(fs::read(&file).unwrap(), was);
    // The same for what is copied elsewhere.
    bytes.copy_from_slice(&is);
    ok(["restore", text(&then), "--to", text(&mount.directory.join("copy"))]);
    assert_eq!(fs::read(mount.directory.join("copy")).unwrap(), was);
    // SAFETY: the mapping made above, which nobody uses any more.
    unsafe { munmap(bytes.as_mut_ptr().cast(), 4096) }.unwrap();
    drop(past);
    common::until("the kernel forgets what was stored", || fs::read(&then).unwrap() == was);
    mount.umount();
}
