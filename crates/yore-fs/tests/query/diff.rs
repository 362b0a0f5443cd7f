//! Differences, kind by kind.

use super::*;
use yore_fs::{Error, FallocateMode, InodeNo, OpenOptions, SetAttr, SetTime, SetXattrMode, Timestamp};

/// What [`each_kind_of_change`] has changed.
const FORTH: [&str; 15] = [
    "M content CONTENT",
    "- gone",
    "+ inside",
    "+ link",
    "- link",
    "+ linked-too",
    "M mode METADATA",
    "R sub moved",
    "M moved/deep/f CONTENT",
    "+ new",
    "+ new/er",
    "+ new/er/file",
    "R old-name new-name",
    "M touched",
    "M xattr XATTRS",
];
/// The same in the other direction.
const BACK: [&str; 15] = [
    "M content CONTENT",
    "+ gone",
    "- inside",
    "+ link",
    "- link",
    "- linked-too",
    "M mode METADATA",
    "- new",
    "- new/er",
    "- new/er/file",
    "R new-name old-name",
    "R moved sub",
    "M sub/deep/f CONTENT",
    "M touched",
    "M xattr XATTRS",
];

/// Each kind of change between two snapshots is one line, and in the other direction its opposite.
#[test]
fn each_kind_of_change() {
    let volume = small();
    volume.create_dir_all("d/sub/deep").unwrap();
    for name in ["same", "content", "mode", "xattr", "gone", "old-name", "touched", "linked", "sub/deep/f"] {
        volume.write(format!("d/{name}"), vec![1; 10_000]).unwrap();
    }
    volume.symlink("x", "d/link").unwrap();
    volume.write("outside", "o").unwrap();
    let first = event(&volume, "d");
    let file = OpenOptions::new().write(true).open(&volume, "d/content").unwrap();
    file.write_at(&[2; 100], 5000).unwrap();
    volume.set_permissions("d/mode", 0o600).unwrap();
    volume.set_xattr("d/xattr", "user.a", "a", SetXattrMode::Any).unwrap();
    volume.remove_file("d/gone").unwrap();
    volume.rename("d/old-name", "d/new-name").unwrap();
    volume.rename("d/sub", "d/moved").unwrap();
    volume.write("d/moved/deep/f", "changed").unwrap();
    volume.hard_link("d/linked", "d/linked-too").unwrap();
    volume.rename("outside", "d/inside").unwrap();
    volume.create_dir_all("d/new/er").unwrap();
    volume.write("d/new/er/file", "new").unwrap();
    volume.remove_file("d/link").unwrap();
    volume.symlink("y", "d/link").unwrap();
    let then = SetTime::To(Timestamp { seconds: 5, nanos: 0 });
    let touched = SetAttr { mtime: Some(then), ..SetAttr::default() };
    volume.set_symlink_attributes("d/touched", &touched).unwrap();
    let present = diff_of(&volume, "d", Some(first), None).unwrap();
    let second = event(&volume, "/");
    same(lines(&diff_of(&volume, "d", Some(first), Some(second)).unwrap()), &FORTH);
    same(lines(&present), &FORTH);
    same(lines(&diff_of(&volume, "d", Some(second), Some(first)).unwrap()), &BACK);
    same(lines(&diff_of(&volume, "d", Some(second), None).unwrap()), &[]);
    same(lines(&diff_of(&volume, "d", Some(second), Some(second)).unwrap()), &[]);
    let sizes = |d: &Difference| (d.before.map(|f| f.size), d.after.map(|f| f.size));
    assert_eq!(sizes(&present[0]), (Some(10_000), Some(10_000)));
    assert_eq!(sizes(&present[1]), (Some(10_000), None));
    assert_eq!(sizes(&present[2]), (None, Some(1)));
}

/// Contents that changed while size and time were set back differ all the same. A change that is only in
/// memory is a difference, too.
#[test]
fn no_change_of_content_is_missed() {
    let volume = small();
    for name in ["small", "large", "dirty", "hole"] {
        volume.write(name, vec![1; if name == "small" { 20 } else { 300_000 }]).unwrap();
    }
    let attr = |name: &str| *volume.symlink_metadata(name).unwrap().attr();
    let first = event(&volume, "/");
    let again = |name: &str| {
        let set = SetAttr { mtime: Some(SetTime::To(attr(name).mtime)), ..SetAttr::default() };
        let file = OpenOptions::new().write(true).open(&volume, name).unwrap();
        match name {
            "hole" => {
                let inode = volume.node(name).unwrap().inode();
                volume.view().fallocate(inode, 8192, 4096, FallocateMode::PunchHole).unwrap();
            }
            _ => {
                file.write_at(&[2], 10).unwrap();
            }
        }
        if name != "dirty" {
            file.sync_all().unwrap();
        }
        volume.set_symlink_attributes(name, &set).unwrap();
    };
    ["small", "large", "dirty", "hole"].into_iter().for_each(again);
    let expected = ["M dirty CONTENT", "M hole CONTENT", "M large CONTENT", "M small CONTENT"];
    same(lines(&diff_of(&volume, "/", Some(first), None).unwrap()), &expected);
    let second = event(&volume, "/");
    volume.sync().unwrap();
    same(lines(&diff_of(&volume, "/", Some(first), Some(second)).unwrap()), &expected);
    // Names that come and go, and attributes that are set to what they were, are no difference.
    volume.write("a", "a").unwrap();
    volume.remove_file("a").unwrap();
    volume.set_permissions("large", attr("large").permissions).unwrap();
    same(lines(&diff_of(&volume, "/", Some(second), None).unwrap()), &[]);
}

/// A changed file is listed under all its names below the directory, also under those in directories that
/// have not changed.
#[test]
fn files_of_several_names() {
    let volume = small();
    volume.create_dir_all("d/a/b").unwrap();
    volume.create_dir("out").unwrap();
    volume.write("d/one", "1").unwrap();
    for name in ["d/a/b/two", "out/three", "d/four"] {
        volume.hard_link("d/one", name).unwrap();
    }
    let first = event(&volume, "/");
    volume.append("out/three", "2").unwrap();
    volume.rename("d/four", "d/five").unwrap();
    volume.remove_file("out/three").unwrap();
    let expected = ["M a/b/two CONTENT", "R four five CONTENT", "M one CONTENT"];
    same(lines(&diff_of(&volume, "d", Some(first), None).unwrap()), &expected);
}

/// A directory that was moved in from outside is listed as added, with everything below it, although
/// snapshots of the volume know it; a directory that was moved out is listed as removed in the same way.
#[test]
fn directories_that_come_and_go() {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.create_dir_all("tree/below").unwrap();
    volume.write("tree/below/f", "f").unwrap();
    let first = event(&volume, "/");
    volume.rename("tree", "d/in").unwrap();
    let second = event(&volume, "/");
    let (into, out) = (["+ in", "+ in/below", "+ in/below/f"], ["- in", "- in/below", "- in/below/f"]);
    same(lines(&diff_of(&volume, "d", Some(first), Some(second)).unwrap()), &into);
    same(lines(&diff_of(&volume, "d", Some(second), Some(first)).unwrap()), &out);
    volume.rename("d/in", "out").unwrap();
    same(lines(&diff_of(&volume, "d", Some(second), None).unwrap()), &out);
    same(lines(&diff_of(&volume, "/", Some(first), None).unwrap()), &["R tree out"]);
}

/// A comparison that is impossible is refused: of a directory that a snapshot has not seen, of one that is
/// gone, and of anything but a directory.
#[test]
fn what_cannot_be_compared() {
    let volume = small();
    volume.create_dir_all("a").unwrap();
    volume.create_dir_all("b").unwrap();
    volume.write("f", "f").unwrap();
    let of_a = event(&volume, "a");
    let is_absent = |result: Result<Vec<Difference>>| matches!(result.unwrap_err().root(), Error::NotFound);
    assert!(is_absent(diff_of(&volume, "b", Some(of_a), None)));
    assert!(is_absent(diff_of(&volume, "/", Some(of_a), None)));
    let node = volume.node("a").unwrap().inode();
    let file = volume.node("f").unwrap().inode();
    let all = event(&volume, "/");
    let ask = |no: InodeNo, from, to| volume.view().diff(no, from, to, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(ask(file, Some(all), None), Err(Error::NotADirectory)));
    volume.remove_dir("a").unwrap();
    assert!(matches!(ask(node, Some(of_a), None), Err(Error::NotFound)));
    assert!(ask(node, Some(of_a), Some(all)).is_ok());
    volume.view().forget(&[all]).unwrap();
    assert!(matches!(ask(node, Some(of_a), Some(all)), Err(Error::Stale | Error::NotFound)));
    // A directory that was moved into one that a snapshot has seen was not there then.
    volume.create_dir("late").unwrap();
    let of_b = event(&volume, "b");
    volume.rename("late", "b/late").unwrap();
    assert!(is_absent(diff_of(&volume, "b/late", Some(of_b), None)));
    assert!(!volume.exists("b/late@now/x").unwrap());
    same(lines(&diff_of(&volume, "b", Some(of_b), None).unwrap()), &["+ late"]);
}
