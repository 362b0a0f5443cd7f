//! Names and descriptions of snapshots, reasons of holds, imported dates, and the list of operations.

use crate::common;

use common::{fails, ok, put, scratch, text, Mount, Scratch};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

fn list(command: &str, path: &str) -> Vec<Value> {
    serde_json::from_str(&ok([command, "--json", path])).unwrap()
}

/// Two directories each have a `step-1`. One is renamed and described, and the list shows that, on a mount as
/// on a volume. Names were unique on the volume, and could not be changed.
#[test]
fn snapshots_are_named_by_directory_and_renamed() {
    let scratch = Scratch::new();
    for agent in ["agent1", "agent2"] {
        ok(["mkdir", &scratch.on(&format!("/{agent}"))]);
        put(&scratch, &format!("/{agent}/file"), agent);
    }
    let there = |path: &str| scratch.on(path);
    name_and_rename(&there);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let there = |path: &str| format!("{}{path}", text(&mount.directory));
    for agent in ["agent1", "agent2"] {
        ok(["describe", &there(&format!("/{agent}@step-1")), "-n", &format!("old-{agent}")]);
    }
    name_and_rename(&there);
    assert_eq!(std::fs::read(there("/agent2/file@step-1")).unwrap(), b"agent2");
}

fn name_and_rename(there: &dyn Fn(&str) -> String) {
    let of = |path: &str, name: &str| {
        let rows = list("snapshots", &there(path));
        rows.into_iter().find(|row| row["name"] == *name).unwrap_or_default()
    };
    ok(["snapshot", &there("/agent1"), "-n", "first", "-m", "before the test"]);
    ok(["snapshot", &there("/agent2"), "-n", "step-1"]);
    assert_eq!(of("/agent1", "first")["description"], "before the test");
    assert_eq!(of("/agent1", "first")["by"], 0);
    ok(["describe", &there("/agent1@first"), "-n", "step-1", "-m", "renamed"]);
    assert_eq!(of("/agent1", "step-1")["description"], "renamed");
    assert_eq!(of("/agent1", "first"), Value::Null);
    assert!(ok(["snapshots", &there("/agent1")]).contains("renamed"));
    let message = fails(3, ["snapshot", &there("/agent1"), "-n", "step-1"]);
    assert!(message.contains("has a snapshot named `step-1`"), "{message}");
    ok(["snapshot", &there("/agent1"), "-n", "again"]);
    let message = fails(3, ["describe", &there("/agent1@again"), "-n", "step-1"]);
    assert!(message.contains("another snapshot of that directory is named `step-1`"), "{message}");
    assert!(fails(2, ["describe", &there("/agent1@again"), "-n", "monday"]).contains("taken for a time"));
    assert!(fails(2, ["describe", &there("/agent1@again")]).contains("-n NAME"));
    ok(["describe", &there("/agent1@again"), "-n", ""]);
    assert_eq!(of("/agent1", "again"), Value::Null);
    ok(["hold", &there("/agent1@step-1"), "-m", "for the audit"]);
    let row = of("/agent1", "step-1");
    assert_eq!((&row["held"], &row["hold_reason"]), (&Value::Bool(true), &Value::from("for the audit")));
    assert!(ok(["snapshots", &there("/agent1")]).contains("(held: for the audit)"));
    ok(["release", &there("/agent1@step-1")]);
    assert_eq!(of("/agent1", "step-1")["hold_reason"], Value::Null);
}

/// Imported snapshots get their dates, in their order; the message says how to make a volume for that.
#[test]
fn snapshots_are_imported() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    for (time, content) in [("2001-09-09", "first"), ("2004-11-09T11:33:20Z", "second")] {
        put(&scratch, "/file", content);
        ok(["snapshot", volume, "--time", time]);
    }
    put(&scratch, "/file", "now");
    assert_eq!(ok(["cat", &scratch.on("/file@2001-12-31")]), "first");
    assert_eq!(ok(["cat", &scratch.on("/file@last")]), "second");
    for time in ["2003-01-01", "9000-01-01"] {
        let message = fails(3, ["snapshot", volume, "--time", time]);
        assert!(message.contains("--policy none"), "{message}");
    }
    assert!(fails(2, ["snapshot", volume, "--time", "5m"]).contains("5min or 5mon"));
    ok(["mkdir", &scratch.on("/d")]);
    assert!(fails(3, ["snapshot", &scratch.on("/d"), "--time", "2020-01-01"]).contains("whole volume"));
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory);
    ok(["snapshot", directory, "--time", "2010-01-01"]);
    assert!(fails(3, ["snapshot", directory, "--time", "2003-01-01"]).contains("--policy none"));
    assert_eq!(std::fs::read(mount.directory.join("file@last")).unwrap(), b"now");
}

/// All operations are recorded with their users. Each that can be undone has a command that undoes it, and
/// that command works.
#[test]
fn operations_are_recorded() {
    let scratch = scratch();
    let there = |path: &str| scratch.on(path);
    record(&there);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let there = |path: &str| format!("{}{path}", text(&mount.directory));
    ok(["describe", &there("/d@later"), "-n", "before"]);
    record(&there);
}

fn record(there: &dyn Fn(&str) -> String) {
    let directory = there("/d");
    let done = |what: &str| -> Value {
        let rows = list("operations", &directory);
        assert_eq!(rows[0]["operation"], what, "{rows:#?}");
        assert_eq!((&rows[0]["uid"], &rows[0]["path"]), (&Value::from(0), &Value::from("/d")), "{rows:#?}");
        rows[0].clone()
    };
    let undo = |row: &Value| {
        let command = row["undo"].as_str().unwrap_or_else(|| panic!("nothing undoes {row:#}"));
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "yore");
        ok(&words[1..]);
    };
    ok(["snapshot", &directory, "-n", "a-name"]);
    assert_eq!(done("snapshot")["note"], "a-name");
    ok(["hold", &there("/d@a-name"), "-m", "why"]);
    let hold = done("hold");
    assert_eq!(hold["note"], "why");
    undo(&hold);
    undo(&done("release"));
    assert_eq!(done("hold")["note"], "");
    undo(&done("hold"));
    ok(["describe", &there("/d@a-name"), "-n", "later"]);
    let rename = done("rename");
    undo(&rename);
    assert_eq!(done("rename")["note"], "later/a-name");
    ok(["policy", &directory, "version=1h"]);
    let policy = done("policy");
    assert_eq!(policy["note"], "version=inherit keep=inherit hold=inherit");
    undo(&policy);
    // A policy that holds its snapshots had no command that undoes it.
    ok(["policy", &directory, "keep=last:3", "hold=90min"]);
    ok(["policy", &directory, "keep=inherit", "hold=inherit"]);
    let policy = done("policy");
    assert_eq!(policy["note"], "version=inherit keep=last:3 hold=5400s");
    undo(&policy);
    assert!(ok(["policy", &directory]).contains("hold=1h30min"));
    undo(&done("policy"));
    assert!(
        ok(["policy", &directory]).starts_with("version=snapshot")
            || ok(["policy", &directory]).contains("from")
    );
    ok(["forget", &there("/d@a-name")]);
    let forget = done("forget");
    assert_eq!((&forget["note"], &forget["undo"]), (&Value::from("a-name"), &Value::Null));
    ok(["snapshot", &directory, "-n", "later"]);
    let lines = ok(["operations", "-n", "3", &directory]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().next().unwrap().contains("undo: yore forget --number"), "{lines}");
}

/// A restore is in the list once, with the command that undoes it, and that works.
#[test]
fn what_was_put_back_is_recorded_once() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    ok(["snapshot", volume, "-n", "then"]);
    put(&scratch, "/d/file", "two");
    ok(["restore", &scratch.on("/d/file@then")]);
    let rows = list("operations", volume);
    assert_eq!(rows.iter().filter(|row| row["operation"] == "restore").count(), 1, "{rows:#?}");
    assert_eq!((&rows[0]["operation"], &rows[0]["note"]), (&"restore".into(), &"restore-1".into()));
    assert_eq!(rows[0]["undo"], format!("yore undo {}", scratch.on("/d")));
    ok(["undo", &scratch.on("/d")]);
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "two");
    let rows = list("operations", volume);
    assert_eq!(
        (&rows[0]["operation"], &rows[0]["undo"]),
        (&"undo".into(), &format!("yore redo {}", scratch.on("/d")).into())
    );
    put(&scratch, "/d/file", "three");
    ok(["rollback", &scratch.on("/d@then")]);
    let rows = list("operations", &scratch.on("/d"));
    assert_eq!(rows[0]["operation"], "rollback");
    // To undo an earlier one, go back to before it.
    let restore = rows.iter().find(|row| row["operation"] == "restore").unwrap();
    assert_eq!(restore["undo"], format!("yore rollback {}", scratch.on("/d/.@before-restore-1")));
    assert!(list("operations", &scratch.on("/d/sub")).is_empty(), "nothing was done there");
}

/// On a mount users see what they did and what concerns their directories; root sees everything.
#[test]
fn others_see_what_concerns_them() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    let path = |name: &str| format!("{}/{name}", text(&mount.directory));
    for (name, owner) in [("hers", 4711), ("mine", 0)] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(path(name), Some(owner), Some(owner)).unwrap();
        ok(["snapshot", &path(name), "-n", "roots"]);
    }
    // Another user need see nothing but the directory of the mount.
    for above in mount.directory.ancestors().take(2) {
        std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_her = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=4711", "--regid=4711", "--clear-groups"]);
        let output = command.arg(common::program()).args(args).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    as_her(&["snapshot", &path("hers"), "-n", "her-own"]);
    let rows: Vec<Value> =
        serde_json::from_str(&as_her(&["operations", "--json", text(&mount.directory)])).unwrap();
    let seen: Vec<_> =
        rows.iter().map(|row| (row["path"].as_str().unwrap(), row["uid"].as_u64().unwrap())).collect();
    assert_eq!(seen, [("/hers", 4711), ("/hers", 0)]);
    assert_eq!(list("operations", text(&mount.directory)).len(), 3);
}
