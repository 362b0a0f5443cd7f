//! Commands that look at history and commands that put back agree: `deleted`, `log`, `diff`, `status`,
//! `undelete`, `rollback`.

use crate::common;

use common::trees::{both, read, remove, write as save};
use common::{error_text, fails, ok, run, scratch, text, Mount};
use serde_json::Value;
use std::fs;

fn json(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// Under `version=close` a file was saved, seen by a snapshot, saved twice more and removed. `deleted` showed
/// the last state, and `undelete` brought back the one of the snapshot.
#[test]
fn undelete_brings_back_what_deleted_shows() {
    both(&["-o", "closes"], |scratch, on| {
        ok(["policy", &on("/d"), "version=close"]);
        save(scratch, "/d/plan", "1");
        ok(["snapshot", &on("/d"), "-n", "B1"]);
        save(scratch, "/d/plan", "22");
        save(scratch, "/d/plan", "333");
        remove(scratch, "/d/plan");
        let shown = json(&ok(["deleted", "--json", &on("/d")]));
        assert_eq!((&shown[0]["path"], &shown[0]["facts"]["size"]), (&"plan".into(), &3.into()));
        let log = json(&ok(["log", "--json", &on("/d/plan")]));
        assert_eq!((&log[0]["facts"]["size"], &log[0]["last"]), (&3.into(), &shown[0]["last"]));
        ok(["undelete", &on("/d/plan")]);
        assert_eq!(read(scratch, "/d/plan"), "333");
    });
}

/// Under `version=close`, and without any snapshot, `deleted` listed files of which `undelete` said that no
/// version exists.
#[test]
fn undelete_finds_what_only_a_close_has_kept() {
    both(&["-o", "closes"], |scratch, on| {
        ok(["policy", &on("/d"), "version=close"]);
        save(scratch, "/d/plan", "important");
        remove(scratch, "/d/plan");
        // The printed name leads there, too.
        let line = ok(["deleted", "-0", &on("/d")]);
        let name = line.trim_end_matches('\0');
        assert!(name.starts_with("plan@"), "{name}");
        assert_eq!(read(scratch, &format!("/d/{name}")), "important");
        ok(["undelete", &on("/d/plan")]);
        assert_eq!(read(scratch, "/d/plan"), "important");
        assert_eq!(ok(["deleted", &on("/d")]), "", "it is there again");
    });
}

/// A directory got files after the last snapshot, and was removed with everything in it. Its files were
/// versions, which nobody found because the directory was gone.
#[test]
fn versions_below_a_removed_directory_are_found() {
    both(&["-o", "closes"], |scratch, on| {
        ok(["policy", &on("/d"), "version=close"]);
        save(scratch, "/d/sub/f", "first");
        ok(["snapshot", &on("/d"), "-n", "base"]);
        save(scratch, "/d/sub/f", "the last");
        remove(scratch, "/d/sub");
        let log = json(&ok(["log", "--json", &on("/d/sub/f")]));
        assert_eq!(log[0]["facts"]["size"], 8);
        ok(["undelete", &on("/d/sub/f")]);
        assert_eq!(read(scratch, "/d/sub/f"), "the last");
    });
}

/// After `snapshot p -n base; rm -r p/d; rollback p@base` the directory is exactly what it was, but `diff`
/// printed `+ d/` and `- d/`, because the directory was created anew.
#[test]
fn nothing_differs_after_a_rollback() {
    both(&["-o", "closes"], |scratch, on| {
        save(scratch, "/d/sub/f", "content");
        ok(["snapshot", &on("/d"), "-n", "base"]);
        remove(scratch, "/d/sub");
        save(scratch, "/d/other", "new");
        ok(["rollback", &on("/d@base")]);
        assert_eq!(ok(["diff", "--exit-code", &on("/d@base")]), "");
        let again = run(["rollback", &on("/d@base")]);
        assert!(error_text(&again).contains("nothing differs"), "{}", error_text(&again));
        // Undo points are listed on request only.
        assert_eq!(ok(["snapshots", &on("/d")]).lines().count(), 1);
        assert_eq!(ok(["snapshots", "--all", &on("/d")]).lines().count(), 3);
        // If another directory of that name has other content, the differences are listed.
        remove(scratch, "/d/sub");
        match scratch.path("mnt").exists() {
            true => fs::create_dir(scratch.path("mnt/d/sub")).unwrap(),
            false => drop(ok(["mkdir", &on("/d/sub")])),
        }
        save(scratch, "/d/sub/g", "");
        assert_eq!(ok(["diff", &on("/d@base")]), "-  sub/f\n+  sub/g\n");
    });
}

/// A file that was moved elsewhere is not gone: `undelete` says where it is.
#[test]
fn what_was_renamed_is_not_undeleted() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let on = |path: &str| format!("{}{path}", text(&mount.directory));
    save(&scratch, "/d/old", "x");
    ok(["snapshot", &on("/d"), "-n", "base"]);
    fs::rename(on("/d/old"), on("/d/new")).unwrap();
    let message = fails(3, ["undelete", &on("/d/old")]);
    assert!(message.contains("/d/new"), "{message}");
    assert_eq!(json(&ok(["log", "--json", &on("/d/old")]))[0]["gone"]["path"], "/d/new");
    fails(3, ["undelete", &on("/d/never")]);
    // A name that leads to something again is not gone.
    assert!(json(&ok(["log", "--json", &on("/d/new")]))[0]["gone"].is_null());
}

/// The log says that a file is gone once for all its states. A file that is put back has a temporary name for
/// a moment, which is in no list.
#[test]
fn lists_leave_out_what_nobody_asks_for() {
    both(&["-o", "closes"], |scratch, on| {
        ok(["policy", &on("/d"), "version=close"]);
        save(scratch, "/d/plan", "1");
        ok(["snapshot", &on("/d"), "-n", "base"]);
        save(scratch, "/d/plan", "22");
        ok(["restore", &on("/d@base/plan")]);
        let all = ok(["log", "--json", &on("/d/plan")]) + &ok(["deleted", "--json", &on("/d")]);
        assert!(!all.contains(".yore-"), "{all}");
        assert!(!ok(["log", &on("/d/plan")]).contains("gone"));
        remove(scratch, "/d/plan");
        let log = ok(["log", &on("/d/plan")]);
        let (first, rest) = log.split_once('\n').unwrap();
        assert!(first.starts_with("gone ") && first.contains("/d/plan"), "{log}");
        assert!(!rest.contains("gone") && rest.lines().count() >= 3, "{log}");
        let log = json(&ok(["log", "--json", &on("/d/plan")]));
        assert_eq!(log[0]["gone"]["moved"], false);
        assert!(log[1..].iter().all(|state| state["gone"].is_null()), "{log:?}");
    });
}

/// `restore --to` copies out of the mount or volume: the past is copied with its attributes, and nothing
/// changes in its place.
#[test]
fn a_copy_is_put_elsewhere() {
    both(&["-o", "closes"], |scratch, on| {
        ok(["snapshot", &on("/d"), "-n", "base"]);
        save(scratch, "/d/file", "two");
        let outside = scratch.path("outside");
        ok(["restore", "-n", &on("/d@base/file"), "--to", text(&outside)]);
        assert!(!outside.exists(), "it was only asked what would be done");
        ok(["restore", &on("/d@base/file"), "--to", text(&outside)]);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "one");
        assert!(fails(3, ["restore", &on("/d@base/file"), "--to", text(&outside)]).contains("there already"));
        fs::create_dir(scratch.path("into")).unwrap();
        ok(["restore", &on("/d@base"), "--to", text(&scratch.path("into"))]);
        assert_eq!(fs::read_to_string(scratch.path("into/d/file")).unwrap(), "one");
        let other = scratch.path("other.yore");
        ok(["mkfs", text(&other), "--size", "64M"]);
        ok(["restore", &on("/d@base/file"), "--to", &format!("{}:/copy", text(&other))]);
        assert_eq!(ok(["cat", &format!("{}:/copy", text(&other))]), "one");
        assert_eq!(read(scratch, "/d/file"), "two");
        assert_eq!(ok(["snapshots", "--all", &on("/d")]).lines().count(), 1);
    });
}
