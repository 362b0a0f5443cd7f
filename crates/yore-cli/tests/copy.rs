//! Copies that would write over what they read, and what a copy of somebody else's file may not have.

use crate::common;

use common::trees::{both, read, write};
use common::{error_text, fails, ok, put, scratch, take, text, yore, Scratch, NOBODY};
use std::fs;
use std::os::unix::fs::{chown, symlink, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

/// A directory of the host with a file and its second name, a link to it, and a directory.
fn host_tree() -> Scratch {
    let scratch = Scratch::empty();
    let a = scratch.file("a", "content");
    fs::hard_link(&a, scratch.path("b")).unwrap();
    symlink("a", scratch.path("link")).unwrap();
    fs::create_dir_all(scratch.path("d/sub")).unwrap();
    scratch.file("d/sub/letter", "letter");
    scratch
}

#[track_caller]
fn must_be(path: &Path, content: &str) {
    assert_eq!(fs::read_to_string(path).unwrap(), content, "{}", path.display());
}

/// `yore cp a .` emptied the file before it read it: a file of zeros was left, and the status was 0. Paths
/// were compared, not files. The same happened through `..`, through a second name, and to all files of a
/// tree.
#[test]
fn a_file_is_not_copied_onto_itself() {
    let scratch = host_tree();
    let path = |name: &str| text(&scratch.path(name)).to_string();
    for (from, to) in [("a", ""), ("a", "a"), ("a", "d/../a"), ("a", "b"), ("d/../b", ""), ("link", "")] {
        let message = fails(3, ["cp", &path(from), &path(to)]);
        assert!(message.contains("are the same file"), "{from} {to}: {message}");
    }
    must_be(&scratch.path("a"), "content");
    assert_eq!(fs::read_link(scratch.path("link")).unwrap(), Path::new("a"), "a link is not removed, either");
    let message = fails(3, ["cp", "-r", &path("d"), &path("")]);
    assert!(message.contains("itself"), "{message}");
    must_be(&scratch.path("d/sub/letter"), "letter");
    let here = yore().args(["cp", "a", "."]).current_dir(scratch.path("")).output().unwrap();
    assert_eq!(here.status.code(), Some(3), "{}", error_text(&here));
    must_be(&scratch.path("a"), "content");

    // A link in the place of the copy is replaced: nothing is written through it.
    ok(["cp", &path("a"), &path("link")]);
    assert!(fs::symlink_metadata(scratch.path("link")).unwrap().is_file());
    // Of another file with two names, both get the content, as with cp(1).
    fs::write(scratch.path("link"), "other").unwrap();
    ok(["cp", &path("link"), &path("b")]);
    must_be(&scratch.path("a"), "other");
}

/// A tree that was copied to a place within it, by a way that the path did not show, was copied into itself
/// without end.
#[test]
fn a_directory_is_not_copied_into_itself() {
    let scratch = host_tree();
    let path = |name: &str| text(&scratch.path(name)).to_string();
    let here = yore().args(["cp", "-r", ".", "new"]).current_dir(scratch.path("d")).output().unwrap();
    assert_eq!(here.status.code(), Some(3), "{}", error_text(&here));
    assert!(error_text(&here).contains("itself"), "{}", error_text(&here));
    assert!(!scratch.path("d/new").exists(), "nothing is made");

    symlink("d/sub", scratch.path("into")).unwrap();
    assert!(fails(3, ["cp", "-r", &path("d"), &path("into")]).contains("itself"));
    // The link is not where the copy begins, but lies in the target.
    fs::create_dir_all(scratch.path("t/d")).unwrap();
    fs::create_dir(scratch.path("d/sub/inner")).unwrap();
    symlink("../../d/sub/inner", scratch.path("t/d/sub")).unwrap();
    assert!(fails(3, ["cp", "-r", &path("d"), &path("t")]).contains("itself"));
    assert_eq!(fs::read_dir(scratch.path("d/sub/inner")).unwrap().count(), 0);
    must_be(&scratch.path("d/sub/letter"), "letter");

    // The path of this target begins with that of the source, and does not lie in it.
    ok(["cp", "-r", &path("d"), &path("d/../e")]);
    must_be(&scratch.path("e/sub/letter"), "letter");
}

/// The same on a volume, where names, links and `..` are the volume's own.
#[test]
fn on_a_volume() {
    let (host, scratch) = (host_tree(), Scratch::new());
    fs::create_dir_all(host.path("home/anna")).unwrap();
    host.file("home/anna/letter", "letter");
    symlink("home", host.path("users")).unwrap();
    symlink("d", host.path("e")).unwrap();
    ok(["put", "-r", text(&host.path("")), &scratch.on("/t")]);
    let on = |path: &str| scratch.on(&format!("/t/{path}"));
    for (from, to) in [("a", "b"), ("a", "a"), ("d/../a", ""), ("link", "")] {
        let message = fails(3, ["cp", &on(from), &on(to)]);
        assert!(message.contains("are the same file"), "{from} {to}: {message}");
    }
    assert_eq!(ok(["cat", &on("a")]), "content");
    for (from, to) in [("home/anna", "users/"), ("d", "e"), ("d", "d/new"), ("", "new")] {
        let message = fails(3, ["cp", "-r", &on(from), &on(to)]);
        assert!(message.contains("itself"), "{from} {to}: {message}");
    }
    assert_eq!(ok(["cat", &on("home/anna/letter")]), "letter");
    assert_eq!(ok(["ls", &on("d")]), "sub\n");

    // A file of another volume may have the same inode number.
    let other = Scratch::new();
    ok(["put", "-r", text(&host.path("")), &other.on("/t")]);
    ok(["cp", "-r", &other.on("/t"), &scratch.on("/")]);
    ok(["check", text(&scratch.volume)]);
}

/// A file of the past is not the file of the present, though it is the same inode: it can be copied over it.
#[test]
fn what_was_is_copied_over_what_is() {
    both(&[], |scratch, on| {
        take(&on("/d"), "then");
        write(scratch, "/d/file", "two");
        assert!(fails(3, ["cp", &on("/d/file"), &on("/d/sub/../")]).contains("are the same file"));
        assert!(fails(3, ["cp", "-r", &on("/d"), &on("/d/sub")]).contains("itself"));
        assert_eq!(read(scratch, "/d/file"), "two");
        ok(["cp", &on("/d@then/file"), &on("/d/file")]);
        assert_eq!(read(scratch, "/d/file"), "one");
        ok(["cp", "-r", &on("/d@then"), &on("/d/copy")]);
        assert_eq!(read(scratch, "/d/copy/file"), "one");
    });
}

/// `yore cp notes.yore:/letter notes.yore`, with the `:/` forgotten, made the letter of the volume's file,
/// and all else that was in it was lost.
#[test]
fn the_volume_is_not_written_over() {
    let scratch = Scratch::new();
    put(&scratch, "/v.yore", "no volume");
    for command in [
        ["cp", &scratch.on("/v.yore"), text(&scratch.volume)],
        ["get", &scratch.on("/v.yore"), text(&scratch.path(""))],
    ] {
        let message = fails(3, command);
        assert!(message.contains("is the volume that is copied from"), "{message}");
    }
    assert_eq!(ok(["cat", &scratch.on("/v.yore")]), "no volume");
    ok(["check", text(&scratch.volume)]);
}

/// Root took a tree from a volume to a user's home, where the user had put a symbolic link to a directory of
/// root's in the place of one that was to come. What was in that went to root's directory, which got other
/// permissions. Promises that such a link is refused, and the rest copied; and that links are followed that
/// lead to the target itself.
#[test]
fn a_link_in_the_place_of_a_directory() {
    let (host, scratch) = (host_tree(), scratch());
    ok(["put", "-r", text(&host.path("d")), &scratch.on("/tree")]);
    put(&scratch, "/tree/file", "file");
    let (of_root, home, other) = (scratch.path("of-root"), scratch.path("home"), scratch.path("other"));
    for directory in [&of_root, &home, &other.join("tree")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::set_permissions(&of_root, fs::Permissions::from_mode(0o711)).unwrap();
    symlink(&of_root, home.join("tree")).unwrap();
    symlink(&of_root, other.join("tree/sub")).unwrap();
    let message = fails(3, ["get", "-r", &scratch.on("/tree"), text(&home)]);
    assert!(message.contains("home/tree is a symbolic link"), "{message}");
    let message = fails(3, ["get", "-r", &scratch.on("/tree"), text(&other)]);
    assert!(message.contains("other/tree/sub is a symbolic link"), "{message}");
    must_be(&other.join("tree/file"), "file");
    assert_eq!(fs::read_dir(&of_root).unwrap().count(), 0);
    assert_eq!(fs::metadata(&of_root).unwrap().mode() & 0o7777, 0o711);

    fs::remove_file(other.join("tree/sub")).unwrap();
    let named = scratch.path("named");
    symlink("other", &named).unwrap();
    ok(["get", "-r", &scratch.on("/tree"), text(&named)]);
    must_be(&other.join("tree/sub/letter"), "letter");
    ok(["get", "-r", &scratch.on("/"), text(&named)]);
    must_be(&other.join("d/file"), "one");
    assert_eq!(fs::read_link(&named).unwrap(), Path::new("other"));
}

/// An ordinary user who took a set-user-id program of root's from a volume got a set-user-id program of his
/// own, which anybody could run with his rights. And where a link was to be replaced by a file that he could
/// not read, the link was gone.
#[test]
fn copies_by_an_ordinary_user() {
    let can_play = yore().arg("--version").uid(NOBODY).current_dir("/").output();
    if !rustix::process::geteuid().is_root() || !can_play.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: needs root, and a program that others can start");
        return;
    }
    let scratch = scratch();
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for (name, owner) in [("theirs", 0), ("own", NOBODY)] {
        let file = scratch.file(&format!("tree/{name}"), "#!/bin/sh\n");
        chown(&file, Some(owner), Some(owner)).unwrap();
        mode(&file, 0o4755);
    }
    ok(["put", "-r", text(&tree), &scratch.on("/tree")]);
    ok(["get", "-r", &scratch.on("/tree"), text(&scratch.path("of-root"))]);
    let bits = |path: &str| {
        let found = fs::metadata(scratch.path(path)).unwrap();
        (found.uid(), found.mode() & 0o7777)
    };
    assert_eq!([bits("of-root/theirs"), bits("of-root/own")], [(0, 0o4755), (NOBODY, 0o4755)]);

    let home = scratch.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    mode(&scratch.path(""), 0o755);
    mode(&scratch.volume, 0o644);
    let by_user =
        |args: &[&str]| yore().args(args).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    let output = by_user(&["get", "-r", &scratch.on("/tree"), text(&home)]);
    assert!(output.status.success(), "{}", error_text(&output));
    assert_eq!([bits("home/tree/theirs"), bits("home/tree/own")], [(NOBODY, 0o755), (NOBODY, 0o4755)]);

    let secret = scratch.file("secret", "secret");
    mode(&secret, 0o600);
    symlink("nowhere", home.join("dangling")).unwrap();
    let output = by_user(&["cp", text(&secret), text(&home.join("dangling"))]);
    assert_eq!(output.status.code(), Some(3), "{}", error_text(&output));
    assert_eq!(fs::read_link(home.join("dangling")).unwrap(), Path::new("nowhere"));
}
