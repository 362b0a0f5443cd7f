//! The rules of paths, and what calls promise that consist of several other calls.

use super::*;
use crate::{Caller, Error, RenameMode, Result};
use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_format::FileKind;

fn volume() -> Volume {
    let caller = Caller { uid: 7, gid: 8, umask: 0o022, keeps_set_id: false };
    Volume::memory(64 << 20).expect("a volume in memory").as_caller(caller)
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T>) -> Error {
    result.expect_err("it must fail").root().clone()
}

/// Promises that `.`, `..`, repeated and trailing slashes mean what they mean to the system calls.
#[test]
fn dots_and_slashes() {
    let v = volume();
    v.create_dir_all("/a/b/").unwrap();
    v.write("a/file", "x").unwrap();
    for path in ["a/file", "/a/file", "//a///file", "./a/./file", "a/b/../file", "a/b/../../../a/file"] {
        assert_eq!(v.read(path).unwrap(), b"x", "{path}");
    }
    assert!(matches!(fails(v.metadata("a/file/")), Error::NotADirectory));
    assert!(matches!(fails(v.metadata("a/file/.")), Error::NotADirectory));
    assert!(matches!(fails(v.metadata("a/absent/../file")), Error::NotFound));
    assert!(matches!(fails(v.metadata("")), Error::NotFound));
    assert!(matches!(fails(v.metadata("a\0b")), Error::Invalid { .. }));
    assert!(v.metadata("a/b/").unwrap().is_dir());
    assert!(matches!(fails(v.write("new/", "")), Error::IsADirectory));
    assert!(matches!(fails(v.symlink("x", "new/")), Error::NotFound));
    assert!(matches!(fails(v.create_dir("a")), Error::Exists));
    assert!(matches!(fails(v.create_dir("/")), Error::Exists));
    assert!(matches!(fails(v.remove_dir("/")), Error::NotPermitted { .. }));
    assert!(matches!(fails(v.remove_dir("a/b/.")), Error::Invalid { .. }));
    assert!(matches!(fails(v.rename("a/file", "b/")), Error::NotADirectory));
    v.rename("a/b", "c/").unwrap();
    assert_eq!(v.canonicalize("a/../c/.").unwrap(), Path::new("/c"));
    assert_eq!(v.canonicalize("..").unwrap(), Path::new("/"));
}

/// Promises that symbolic links are followed where they must be, and that a ring of them ends.
#[test]
fn symbolic_links() {
    let v = volume();
    v.create_dir_all("real/sub").unwrap();
    v.symlink("real", "relative").unwrap();
    v.symlink("/real/sub", "real/absolute").unwrap();
    v.write("relative/absolute/file", "x").unwrap();
    assert_eq!(v.read("real/sub/file").unwrap(), b"x");
    assert_eq!(v.canonicalize("relative/absolute/..").unwrap(), Path::new("/real"));
    assert!(v.symlink_metadata("relative").unwrap().is_symlink());
    assert!(v.symlink_metadata("relative/").unwrap().is_dir());
    v.symlink("ring2", "ring1").unwrap();
    v.symlink("ring1", "ring2").unwrap();
    assert!(matches!(fails(v.metadata("ring1")), Error::Loop));
    assert!(v.symlink_metadata("ring1").is_ok());
    // Forty in a row are followed, one more is not.
    v.write("end", "reached").unwrap();
    v.symlink("end", "link0").unwrap();
    for i in 1..41 {
        v.symlink(format!("link{}", i - 1), format!("link{i}")).unwrap();
    }
    assert_eq!(v.read("link39").unwrap(), b"reached");
    assert!(matches!(fails(v.read("link40")), Error::Loop));
    // A file is created where a dangling link leads; `create_new` does not follow.
    v.symlink("real/made", "dangling").unwrap();
    assert!(!v.exists("dangling").unwrap());
    let new = OpenOptions::new().write(true).create_new(true).open(&v, "dangling");
    assert!(matches!(fails(new), Error::Exists));
    v.write("dangling", "here").unwrap();
    assert_eq!(v.read("real/made").unwrap(), b"here");
    // Removing, linking and renaming apply to links themselves.
    v.hard_link("relative", "again").unwrap();
    assert!(v.symlink_metadata("again").unwrap().is_symlink());
    v.remove_dir_all("relative").unwrap();
    assert!(v.exists("real/sub/file").unwrap());
    assert!(matches!(fails(v.read_link("real")), Error::Invalid { .. }));
}

/// Promises that errors name the call that failed and its path.
#[test]
fn errors_name_the_path() {
    let v = volume();
    let message = v.read("no/such").unwrap_err().to_string();
    assert!(message.contains("no/such") && message.contains("open"), "{message}");
    let message = v.remove_file("absent").unwrap_err().to_string();
    assert_eq!(message, "cannot remove \"absent\": no such file or directory");
}

/// Promises the rules of opening, and that new files belong to the caller.
#[test]
fn files_are_opened_as_asked() {
    let v = volume();
    let open =
        |f: fn(&mut OpenOptions) -> &mut OpenOptions, path: &str| f(&mut OpenOptions::new()).open(&v, path);
    assert!(matches!(fails(open(|o| o, "x")), Error::Invalid { .. }));
    assert!(matches!(fails(open(|o| o.read(true).create(true), "x")), Error::Invalid { .. }));
    assert!(matches!(fails(open(|o| o.append(true).truncate(true), "x")), Error::Invalid { .. }));
    assert!(matches!(fails(open(|o| o.write(true), "x")), Error::NotFound));
    let file = OpenOptions::new().write(true).create(true).mode(0o666).open(&v, "x").unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.uid(), found.gid(), found.permissions()), (7, 8, 0o644));
    assert!(matches!(fails(file.read_at(&mut [0], 0)), Error::NotPermitted { .. }));
    assert!(matches!(fails(open(|o| o.write(true), "/")), Error::IsADirectory));
    v.create_special("pipe", FileKind::Fifo, 0o644, 0).unwrap();
    assert!(matches!(fails(v.read("pipe")), Error::Unsupported { .. }));
}

/// Promises the position of a file, appending, and that a file outlives its name.
#[test]
fn files() {
    let v = volume();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&v, "f").unwrap();
    file.write_all(b"0123456789").unwrap();
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 7);
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "789");
    assert!(file.seek(SeekFrom::Current(-11)).is_err());
    let mut log = OpenOptions::new().append(true).open(&v, "f").unwrap();
    log.write_all(b"ab").unwrap();
    assert_eq!(log.stream_position().unwrap(), 12);
    v.remove_file("f").unwrap();
    let mut all = [0; 20];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), 12);
    assert_eq!(&all[..12], b"0123456789ab");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

/// Promises that a copy has the content and permissions, and that holes stay holes.
#[test]
fn copying() {
    let v = volume();
    let file = OpenOptions::new().write(true).create(true).open(&v, "sparse").unwrap();
    file.write_at(b"start", 0).unwrap();
    file.write_at(b"end", 20 << 20).unwrap();
    file.set_len(30 << 20).unwrap();
    drop(file);
    v.set_permissions("sparse", 0o751).unwrap();
    assert_eq!(v.copy("sparse", "copy").unwrap(), 30 << 20);
    let copied = v.metadata("copy").unwrap();
    assert_eq!((copied.len(), copied.permissions()), (30 << 20, 0o751));
    assert!(copied.blocks() * 512 < 1 << 20, "{} blocks", copied.blocks());
    assert!(v.read("sparse").unwrap() == v.read("copy").unwrap());
    assert!(matches!(fails(v.copy("sparse", "sparse")), Error::Invalid { .. }));
    assert_eq!(v.metadata("sparse").unwrap().len(), 30 << 20);
    assert!(v.copy("/", "x").is_err());
}

/// Promises that a deep and a wide tree are walked and removed, whatever their depth.
#[test]
fn trees() {
    let v = volume();
    let mut path = PathBuf::from("deep");
    for _ in 0..300 {
        v.create_dir(&path).unwrap();
        path.push("d");
    }
    v.create_dir("deep/wide").unwrap();
    for i in 0..1500 {
        v.write(format!("deep/wide/{i}"), "").unwrap();
    }
    let names: Vec<_> = v.read_dir("deep/wide").unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1500);
    assert_eq!(v.walk("deep").filter(|e| e.is_ok()).count(), 300 + 1 + 1500);
    assert_eq!(v.walk("deep").max_depth(1).count(), 3);
    let mut removed = 0;
    v.remove_dir_all_with("deep", &mut |_| removed += 1).unwrap();
    assert_eq!(removed, 300 + 1 + 1500);
    assert!(!v.exists("deep").unwrap());
    assert!(matches!(fails(v.remove_dir_all("deep")), Error::NotFound));
    assert!(matches!(fails(v.remove_dir_all("/")), Error::NotPermitted { .. }));
    assert_eq!(v.info().inodes, 1, "only the root is left");
}

/// Promises the three ways of renaming.
#[test]
fn renaming() {
    let v = volume();
    v.write("a", "A").unwrap();
    v.write("b", "B").unwrap();
    assert!(matches!(fails(v.rename_with("a", "b", RenameMode::NoReplace)), Error::Exists));
    v.rename_with("a", "b", RenameMode::Exchange).unwrap();
    assert_eq!((v.read("a").unwrap(), v.read("b").unwrap()), (b"B".to_vec(), b"A".to_vec()));
    assert!(matches!(fails(v.rename_with("a", "absent", RenameMode::Exchange)), Error::NotFound));
    v.create_dir("dir").unwrap();
    assert!(matches!(fails(v.rename("dir", "dir/below")), Error::Invalid { .. }));
    assert!(matches!(fails(v.rename("a", "dir")), Error::IsADirectory));
    assert!(matches!(fails(v.rename("absent", "x")), Error::NotFound));
}

/// Promises that attributes are kept as set, to the nanosecond.
#[test]
fn attributes() {
    let v = volume();
    v.write("f", "x").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    v.set_times("f", None, Some(time)).unwrap();
    v.chown("f", Some(1), Some(2)).unwrap();
    v.set_permissions("f", 0o640).unwrap();
    v.truncate("f", 5).unwrap();
    v.set_times("f", Some(time), Some(time)).unwrap();
    let found = v.metadata("f").unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode(), found.len()), (1, 2, 0o100640, 5));
    assert_eq!((found.modified(), found.accessed()), (time, time));
    let odd = OsStr::from_bytes(b"na\xffme");
    v.write(odd, "odd").unwrap();
    assert!(v.read_dir("/").unwrap().any(|entry| entry.unwrap().file_name() == odd));
    assert!(matches!(fails(v.remove_xattr("f", "user.none")), Error::NoAttribute));
}

/// Others move a directory below itself. A walk or a removal of the tree that sees this meanwhile must not
/// take it for a loop.
#[test]
fn moving_a_tree_meanwhile_makes_no_loop() {
    let v = volume();
    let turn = |v: &Volume| {
        v.rename("x/a/b", "x/b").unwrap();
        v.rename("x/a", "x/b/a").unwrap();
    };
    v.create_dir_all("x/a/b").unwrap();
    v.write("x/a/b/file", "").unwrap();
    let mut walk = v.walk("x");
    for expected in ["x", "x/a", "x/a/b"] {
        assert_eq!(walk.next().unwrap().unwrap().path(), Path::new(expected));
    }
    turn(&v);
    let shown: Vec<PathBuf> = walk.map(|entry| entry.unwrap().path().to_path_buf()).collect();
    for expected in ["x/a/b/a", "x/a/b/file"] {
        assert!(shown.contains(&PathBuf::from(expected)), "{shown:?}");
    }
    v.remove_dir_all("x").unwrap();

    v.create_dir_all("x/a/b").unwrap();
    v.write("x/a/b/file", "").unwrap();
    let mut turned = false;
    let each = &mut |_: &Path| {
        if !std::mem::replace(&mut turned, true) {
            turn(&v);
        }
    };
    // It finds that what it removed through the other path is gone, and goes on.
    v.remove_dir_all_with("x", each).unwrap();
    assert!(turned);
    assert!(!v.exists("x").unwrap());
}

/// Promises that removing a tree ends well when others remove parts of it, or move them away, meanwhile.
#[test]
fn trees_that_others_remove_too() {
    let v = volume();
    for name in ["one", "two", "three", "four"] {
        v.create_dir_all(format!("tree/{name}/below")).unwrap();
        v.write(format!("tree/{name}/below/file"), "x").unwrap();
        v.write(format!("tree/{name}/file"), "x").unwrap();
    }
    v.create_dir_all("elsewhere/full").unwrap();
    let mut removed = Vec::new();
    let mut others = Some(|| {
        // All four directories have been seen by now, and one file was removed.
        let left: Vec<String> = ["one", "two", "three", "four"]
            .iter()
            .map(|name| format!("tree/{name}"))
            .filter(|path| v.exists(format!("{path}/file")).unwrap())
            .collect();
        let [gone, moved, ..] = &left[..] else { panic!("only {left:?} are left") };
        v.remove_dir_all(gone).unwrap();
        v.rename(moved, "moved").unwrap();
        v.rename("elsewhere", moved).unwrap();
    });
    v.remove_dir_all_with("tree", &mut |path| {
        removed.push(path.to_path_buf());
        if path.ends_with("file") {
            if let Some(act) = others.take() {
                act();
            }
        }
    })
    .unwrap();
    assert!(!v.exists("tree").unwrap());
    assert!(v.exists("moved").unwrap(), "what was moved away is not looked for there");
    assert_eq!(removed.last().map(PathBuf::as_path), Some(Path::new("tree")));
}
