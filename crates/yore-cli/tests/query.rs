//! `diff`, `status`, `log`, `deleted` and `du --history`, on volumes and on mounts.

use crate::common;

use common::{fails, ok, put, run, scratch, text, Mount, Scratch};
use serde_json::Value;
use std::fs;

fn json(args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ok([args, &["--json"]].concat())).unwrap()
}

/// `/d` of the scratch volume as of `first`, then changed; the paths are those of a mount or of the volume.
fn differences(first: &str, now: &str) {
    let forth = "M  file\nR  sub -> moved/\n+  new/\n+  new/below\n";
    assert_eq!(ok(["diff", first]), forth);
    assert_eq!(ok(["diff", first, now]), forth);
    assert_eq!(ok(["diff", now, first]), "M  file\n-  new/\n-  new/below\nR  moved -> sub/\n");
    assert_eq!(ok(["diff", now, now]), "");
    assert_eq!(ok(["diff", "-0", first]), "file\0moved\0new\0new/below\0");
    let stat = ok(["diff", "--stat", first]);
    assert_eq!(stat, "2 added, 0 removed, 1 modified, 1 renamed; 10 B more, 0 B less\n");
    let stat: Value = serde_json::from_str(&ok(["diff", "--stat", "--json", first])).unwrap();
    assert_eq!((&stat["added"], &stat["bytes_more"]), (&2.into(), &10.into()));
    let patch = ok(["diff", "-p", first]);
    assert!(patch.contains("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n"), "{patch}");
    assert!(patch.contains("+one and two\n"), "{patch}");
    assert!(patch.contains("--- /dev/null\n+++ b/new/below\n"), "{patch}");
    assert!(!patch.contains("moved"), "directories have no lines: {patch}");
    assert_eq!(run(["diff", "--exit-code", first]).status.code(), Some(1));
    assert_eq!(run(["diff", "--exit-code", now, now]).status.code(), Some(0));
    let rows = json(&["diff", first]);
    let brief: Vec<String> =
        rows.iter().map(|row| format!("{} {} {}", row["change"], row["path"], row["old_path"])).collect();
    assert_eq!(brief[0], r#""modified" "file" null"#);
    assert_eq!(brief[1], r#""renamed" "moved" "sub""#);
    assert_eq!((&rows[0]["before"]["size"], &rows[0]["after"]["size"]), (&3.into(), &11.into()));
    assert!(rows[0]["what"].as_array().unwrap().contains(&"content".into()));
    assert_eq!((&rows[2]["type"], &rows[2]["before"]), (&"directory".into(), &Value::Null));
    // The test compares files by reading them, so they may be different files.
    let file = |directory: &str| format!("{directory}/file");
    assert_eq!(ok(["diff", &file(first), &file(now)]).split_whitespace().next(), Some("M"));
    assert!(ok(["diff", "-p", &file(first)]).contains("-one\n"));
    assert_eq!(ok(["diff", &file(first), &file(first)]), "");
    // A senseless request is refused, and the message says what to do.
    let message = fails(2, ["diff", now]);
    assert!(message.contains("since when?") && message.contains("yore status"), "{message}");
    let message = fails(3, ["diff", first, &format!("{now}/new")]);
    assert!(message.contains("not the same directory") && message.contains("diff -r"), "{message}");
    fails(3, ["diff", &format!("{now}@never-named")]);
    let message = fails(2, ["diff", &format!("{now}@5m")]);
    assert!(message.contains("5min or 5mon"), "{message}");
    let message = fails(3, ["diff", now, &file(now)]);
    assert!(message.contains("directories and files cannot be compared"), "{message}");
    fails(2, ["diff", "--stat", "-p", first]);
    fails(2, ["diff"]);

    let status = ok(["status", now]);
    let (heading, lines) = status.split_once('\n').unwrap();
    assert!(heading.starts_with("since 20") && heading.ends_with("(first)"), "{heading}");
    assert_eq!(lines, forth);
    assert_eq!(json(&["status", now]), rows);
    let message = fails(2, ["status", first]);
    assert!(message.contains("yore diff"), "{message}");
}

fn change(directory: &std::path::Path) {
    fs::write(directory.join("file"), "one and two").unwrap();
    fs::create_dir(directory.join("new")).unwrap();
    fs::write(directory.join("new/below"), "x\n").unwrap();
    fs::rename(directory.join("sub"), directory.join("moved")).unwrap();
}

#[test]
fn differences_on_a_mount_and_on_a_volume() {
    let scratch = scratch();
    ok(["snapshot", &scratch.on("/d"), "-n", "first"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    change(&directory);
    let now = text(&directory).to_string();
    differences(&format!("{now}@first"), &now);
    // The mount point itself, and a directory below one with a time.
    ok(["snapshot", text(&mount.directory), "-n", "second"]);
    fs::write(directory.join("moved/late"), "").unwrap();
    assert_eq!(ok(["diff", &format!("{}@second", text(&mount.directory))]), "+  d/moved/late\n");
    assert_eq!(ok(["diff", &format!("{now}@second/moved")]), "+  late\n");
    fs::remove_file(directory.join("moved/late")).unwrap();
    ok(["forget", &format!("{}@second", text(&mount.directory))]);
    mount.umount();
    differences(&scratch.on("/d@first"), &scratch.on("/d"));
    let message = fails(3, ["status", &scratch.on("/")]);
    assert!(message.contains("take one"), "{message}");
}

/// A file that was saved by putting another in its place, or that was restored, is compared with the file
/// that had its name. An equal file is no difference.
#[test]
fn a_file_in_the_place_of_another_is_one_line() {
    let scratch = scratch();
    put(&scratch, "/d/same", "same");
    put(&scratch, "/d/saved", "one\ntwo\n");
    ok(["snapshot", &scratch.on("/d"), "-n", "then"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    fs::write(directory.join("tmp"), "one\n2\n").unwrap();
    fs::rename(directory.join("tmp"), directory.join("saved")).unwrap();
    fs::write(directory.join("same"), "changed").unwrap();
    let now = text(&directory).to_string();
    ok(["restore", &format!("{now}@then/same")]);
    // A directory in its place is not another state of it.
    fs::remove_file(directory.join("file")).unwrap();
    fs::create_dir(directory.join("file")).unwrap();
    let check = |then: &str, now: &str| {
        let forth = "-  file\n+  file/\nM  saved\n";
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(ok(["diff", then])), sorted(forth.to_string()));
        assert_eq!(sorted(ok(["diff", now, then])), sorted("+  file\n-  file/\nM  saved\n".to_string()));
        let patch = ok(["diff", "-p", then]);
        assert!(patch.contains("--- a/saved\n+++ b/saved\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"), "{patch}");
        assert_eq!(
            ok(["diff", "--stat", then]).split(';').next(),
            Some("1 added, 1 removed, 1 modified, 0 renamed")
        );
        let rows = json(&["diff", then]);
        let saved = rows.iter().find(|row| row["path"] == "saved").unwrap();
        assert_eq!((&saved["before"]["size"], &saved["after"]["size"]), (&8.into(), &6.into()));
    };
    check(&format!("{now}@then"), &now);
    ok(["snapshot", &now, "-n", "later"]);
    fs::write(directory.join("tmp"), "three\n").unwrap();
    fs::rename(directory.join("tmp"), directory.join("saved")).unwrap();
    let status = ok(["status", &now]);
    assert!(status.ends_with("(later)\nM  saved\n"), "{status}");
    ok(["rollback", &format!("{now}@later")]);
    assert_eq!(run(["diff", "--exit-code", &format!("{now}@later")]).status.code(), Some(0));
    mount.umount();
    check(&scratch.on("/d@then"), &scratch.on("/d"));
}

/// Files that are nearly all hole are compared by their data.
#[test]
fn holes_are_not_read() {
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    let make = |name: &str, more: &[u64]| {
        let file = fs::File::create(directory.join(name)).unwrap();
        for at in [&[0, 8 << 40], more].concat() {
            std::os::unix::fs::FileExt::write_all_at(&file, b"data", at).unwrap();
        }
        fs::rename(directory.join(name), directory.join("sparse")).unwrap();
    };
    make("first", &[]);
    ok(["snapshot", text(&directory), "-n", "then"]);
    let then = format!("{}@then", text(&directory));
    make("second", &[]);
    assert_eq!(ok(["diff", &then]), "M  sparse  (time)\n");
    make("third", &[4 << 40]);
    assert_eq!(ok(["diff", &then]), "M  sparse\n");
    ok(["restore", &then]);
    assert_eq!(ok(["diff", &then]), "");
}

/// If a path leads to nothing at any time, the message says so; a file of a mount is never taken for a
/// volume. On the mount point itself, times also work before paths.
#[test]
fn times_that_nothing_has() {
    let scratch = scratch();
    ok(["snapshot", &scratch.on("/"), "-n", "then"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = text(&mount.directory).to_string();
    let file = format!("{root}/d/file");
    for command in ["diff", "restore", "rollback", "deleted"] {
        for path in [format!("{file}@3days"), format!("{root}@3days"), format!("{root}@3days/d")] {
            let message = fails(3, [command, &path]);
            assert!(!message.contains("mkfs") && !message.contains("mounted volume"), "{command}: {message}");
            assert!(message.contains("no snapshot") && !message.contains("3days/\""), "{command}: {message}");
        }
    }
    fs::write(&file, "other").unwrap();
    ok(["restore", &format!("{root}@then/d/file")]);
    assert_eq!(fs::read(&file).unwrap(), b"one");
    assert!(fails(2, ["expunge", "-n", "-r", &root]).contains("yore forget"));
}

/// Every request to a mount whose daemon is dead says so.
#[test]
fn a_dead_daemon() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    rustix::process::kill_process(mount.pid(), rustix::process::Signal::KILL).unwrap();
    common::until("the mount is dead", || rustix::fs::statvfs(&mount.directory).is_err());
    for command in ["snapshot", "snapshots", "status", "log", "deleted", "policy", "undo", "info"] {
        let message = fails(3, [command, text(&mount.directory)]);
        assert!(message.contains("is dead") && message.contains("yore umount"), "{command}: {message}");
    }
}

/// Logs follow renames and editors' saves, whichever way the command names the file.
#[test]
fn logs() {
    let scratch = scratch();
    ok(["snapshot", text(&scratch.volume), "-n", "a"]);
    put(&scratch, "/d/file", "longer");
    ok(["snapshot", text(&scratch.volume), "-n", "b"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    fs::rename(directory.join("file"), directory.join("sub/named")).unwrap();
    ok(["snapshot", text(&mount.directory), "-n", "c"]);
    fs::write(directory.join("tmp"), "saved anew").unwrap();
    fs::rename(directory.join("tmp"), directory.join("sub/named")).unwrap();
    let check = |path: &str| {
        let rows = json(&["log", path]);
        let brief: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {}", row["path"], row["facts"]["size"], row["last"]["name"]))
            .collect();
        let expected = [
            r#""/d/sub/named" 10 null"#,
            r#""/d/sub/named" 6 "c""#,
            r#""/d/file" 6 "b""#,
            r#""/d/file" 3 "a""#,
        ];
        assert_eq!(brief, expected);
        assert_eq!((&rows[0]["replaced"], &rows[1]["renamed"]), (&true.into(), &true.into()));
        assert_eq!((&rows[0]["current"], &rows[3]["oldest"]), (&true.into(), &true.into()));
        let lines = ok(["log", path]);
        let letters: Vec<&str> = lines.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        assert_eq!(letters, ["N", "R", "M", "+"], "{lines}");
        assert!(lines.starts_with("now "), "{lines}");
        assert_eq!(ok(["log", "-n", "2", path]).lines().count(), 2);
        let zeros = ok(["log", "-0", "--utc", path]);
        assert_eq!(zeros.matches('\0').count(), 4);
    };
    check(text(&directory.join("sub/named")));
    // A name that is gone from here has the log of the file to which it led.
    let gone = ok(["log", text(&directory.join("file"))]);
    assert_eq!(gone.lines().count(), 3, "{gone}");
    assert!(gone.starts_with("moved "), "another file took the place that it was moved to: {gone}");
    assert_eq!(json(&["log", &format!("{}@b/file", text(&directory))]).len(), 2);
    assert!(!ok(["log", text(&mount.directory)]).is_empty());
    let message = fails(3, ["log", text(&directory.join("never"))]);
    assert!(message.contains("no snapshot has seen it"), "{message}");
    mount.umount();
    check(&scratch.on("/d/sub/named"));
    assert_eq!(ok(["log", &scratch.on("/d/file@a")]).lines().count(), 1);
    assert!(!ok(["log", text(&scratch.volume)]).is_empty());
    fails(3, ["log", &scratch.on("/d/never")]);
}

/// A removed file is listed under a name that leads to it.
#[test]
fn what_is_gone() {
    let scratch = scratch();
    put(&scratch, "/d/sub/below", "content");
    ok(["snapshot", text(&scratch.volume), "-n", "before"]);
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = mount.directory.join("d");
    fs::remove_file(directory.join("file")).unwrap();
    fs::remove_file(directory.join("sub/below")).unwrap();
    let check = |path: &str| {
        let names = |args: &[&str]| -> Vec<String> {
            ok([&["deleted", "-0"], args].concat()).split_terminator('\0').map(str::to_string).collect()
        };
        let found = names(&[path]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("file@20"), "{found:?}");
        let below = names(&["-r", path]);
        assert_eq!(below.len(), 2);
        let rows = json(&["deleted", "-r", path]);
        assert!(rows.iter().any(|row| row["path"] == "sub/below" && row["facts"]["size"] == 7));
        assert!(rows.iter().all(|row| row["last"]["name"] == "before"));
        assert!(ok(["deleted", path]).starts_with("file "), "the type");
        let message = fails(2, ["deleted", &format!("{path}@before")]);
        assert!(message.contains("without a time"), "{message}");
        found[0].clone()
    };
    let name = check(text(&directory));
    assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), "one");
    mount.umount();
    let name = check(&scratch.on("/d"));
    assert_eq!(ok(["cat", &scratch.on(&format!("/d/{name}"))]), "one");
}

/// Users who could take no snapshot of a directory learn what they can do instead; the owner gets the answer.
#[test]
fn others_are_refused() {
    use std::os::unix::process::CommandExt as _;
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    let directory = mount.directory.join("d");
    ok(["snapshot", text(&directory), "-n", "first"]);
    fs::write(directory.join("file"), "two").unwrap();
    for path in [scratch.path(""), mount.directory.clone(), directory.clone()] {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let ask = |args: &[&str]| {
        let output = common::yore().args(args).uid(4711).gid(4711).output().unwrap();
        (output.status.code(), common::error_text(&output))
    };
    let now = text(&directory);
    for args in [&["status", now][..], &["diff", &format!("{now}@first")], &["deleted", now]] {
        let (status, message) = ask(args);
        assert_eq!(status, Some(3), "{message}");
        assert!(message.contains("diff -r"), "{message}");
    }
    let (_, message) = ask(&["log", text(&directory.join("file"))]);
    assert!(message.contains("owner"), "{message}");
    std::os::unix::fs::chown(&directory, Some(4711), None).unwrap();
    // The owner gets answers about the times at which the directory belonged to the owner.
    assert_eq!(ask(&["diff", &format!("{now}@first")]).0, Some(3));
    ok(["snapshot", now, "-n", "second"]);
    fs::write(directory.join("file"), "three").unwrap();
    for args in [
        &["status", now][..],
        &["diff", &format!("{now}@second")],
        &["deleted", now],
        &["log", &format!("{now}/file")],
    ] {
        let (status, message) = ask(args);
        assert_eq!(status, Some(0), "{args:?}: {message}");
    }
    mount.umount();
}

/// Names of any bytes come through.
#[test]
fn odd_names() {
    use std::os::unix::ffi::OsStrExt as _;
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    ok(["snapshot", text(&mount.directory), "-n", "first"]);
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff\nname");
    fs::write(mount.directory.join(odd), "x").unwrap();
    let past = format!("{}@first", text(&mount.directory));
    let output = run(["diff", "-0", &past]);
    assert_eq!(output.stdout, b"odd\xff\nname\0");
    assert_eq!(json(&["diff", &past])[0]["path_bytes"].as_array().unwrap().len(), 9);
    mount.umount();
}

/// `du --history` reports the space that only snapshots use in a directory or a file, on a mount and on the
/// volume alike; `info` and `df` separate live data from history.
#[test]
fn what_history_takes() {
    let scratch = scratch();
    let block = |n: u64| n * 4096;
    put(&scratch, "/d/f", vec![1; 100 * 4096]);
    for (of, byte) in [("/", 2), ("/d", 3)] {
        ok(["snapshot", &scratch.on(of), "-n", &format!("before-{byte}")]);
        put(&scratch, "/d/f", vec![byte; 100 * 4096]);
    }
    let check = |path: &dyn Fn(&str) -> String, top: &str| {
        let found = json(&["du", "--history", &path("/d"), &path("/d/f"), &path("/")]);
        let [directory, file, root] = &found[..] else { panic!("{found:?}") };
        let rows = directory["snapshots"].as_array().unwrap();
        let brief: Vec<_> = rows.iter().map(|row| (&row["name"], &row["exclusive"]["data"])).collect();
        assert_eq!(
            brief,
            [(&"before-2".into(), &block(100).into()), (&"before-3".into(), &block(100).into())]
        );
        assert_eq!((&root["snapshots"].as_array().unwrap().len(), &root["path"]), (&1, &path("/").into()));
        for all in [directory, file, root] {
            assert_eq!(all["history"]["data"], block(200), "{all}");
        }
        assert_eq!((&file["live"], &file["states"][0]["current"]), (&block(100).into(), &true.into()));
        assert_eq!(file["exclusive"]["data"], block(200));
        let text = ok(["du", "--history", &path("/d")]);
        assert!(text.contains("before-3") && text.lines().count() == 4, "{text}");
        assert_eq!(ok(["du", "--history", "-0", &path("/d")]).matches('\0').count(), 2);
        for command in [&["info", "--json", top][..], &["df", "--json", top]] {
            let value: Value = serde_json::from_str(&ok(command)).unwrap();
            let space = if value.is_array() { &value[0] } else { &value["space"] };
            assert_eq!(space["history"]["data"], block(200), "{value}");
            let number = |value: &Value| value.as_u64().unwrap();
            assert_eq!(number(&space["live"]) + number(&space["history"]["total"]), number(&space["used"]));
        }
        assert!(ok(["info", top]).contains("History:    ") && ok(["df", top]).contains("History"));
        let message = fails(3, ["du", "--history", &path("/never")]);
        assert!(message.contains("no snapshot has seen it"), "{message}");
        let message = fails(2, ["du", &path("/d")]);
        assert!(message.contains("du(1)") && message.contains("--history"), "{message}");
    };
    check(&|path| scratch.on(path), text(&scratch.volume));
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    check(&|path| format!("{}{path}", mount.directory.display()), text(&mount.directory));
}
