//! Snapshots by command, on volumes and on mounts, and the past by `name@TIME`.

use crate::common;

use common::{fails, ok, put, scratch, text, Mount, Scratch};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{symlink, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Takes a snapshot; returns the time that was printed.
#[track_caller]
fn snapshot(args: &[&str]) -> String {
    let printed = ok([&["snapshot"], args].concat());
    let time = printed.strip_suffix('\n').expect("a line");
    assert!(!time.is_empty() && !time.contains(['\n', '/', ':', ' ']), "{printed:?} can stand behind an @");
    time.to_string()
}

#[track_caller]
fn list(args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ok([&["snapshots", "--json"], args].concat())).unwrap()
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["name"].as_str().unwrap_or("-")).collect()
}

/// Each printed time means its snapshot, also for snapshots taken one right after the other; so does each
/// name, and each time in the list.
#[test]
fn what_was_printed_names_the_snapshot() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    let mut times = Vec::new();
    for (i, flags) in [&[][..], &["-n", "named"], &["--utc"], &["--no-wait"], &["--hold"]].iter().enumerate()
    {
        put(&scratch, "/d/file", format!("content {i}"));
        times.push(snapshot(&[&[volume], *flags].concat()));
    }
    put(&scratch, "/d/file", "now");
    let rows = list(&[volume]);
    assert_eq!(rows.len(), times.len());
    for (i, time) in times.iter().enumerate() {
        let content = format!("content {i}");
        assert_eq!(ok(["cat", &scratch.on(&format!("/d/file@{time}"))]), content, "{time}");
        assert_eq!(ok(["cat", &scratch.on(&format!("/d@{time}/file"))]), content, "{time}");
        assert_eq!(ok(["cat", &scratch.on(&format!("/.@{time}/d/file"))]), content, "{time}");
        let at = rows[i]["at"].as_str().unwrap();
        assert_eq!(ok(["cat", &scratch.on(&format!("/d@{at}/file"))]), content, "{at}");
    }
    assert!(times[2].ends_with('Z'), "{}", times[2]);
    assert_eq!(ok(["cat", &scratch.on("/d@named/file")]), "content 1");
    assert_eq!(ok(["cat", &scratch.on("/d/file@named")]), "content 1");
    assert_eq!(ok(["cat", &scratch.on("/d/file@now")]), "content 4");
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "now");
}

/// The list shows for each snapshot its directory and its name, in lines, JSON and with zero bytes; for a
/// directory it has those that concern it.
#[test]
fn lists() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    assert_eq!(ok(["snapshots", volume]), "");
    assert_eq!(list(&[volume]), Vec::<Value>::new());
    let first = snapshot(&[&scratch.on("/d"), "-n", "first", "--hold"]);
    snapshot(&[&scratch.on("/"), "--name", "all"]);
    snapshot(&[&scratch.on("/d/sub")]);
    ok(["mkdir", &scratch.on("/other")]);
    snapshot(&[&scratch.on("/other"), "-n", "other"]);

    let rows = list(&[volume]);
    assert_eq!(names(&rows), ["first", "all", "-", "other"]);
    let facts = |row: &Value| [&row["path"], &row["held"], &row["kind"]].map(Value::to_string).join(" ");
    assert_eq!(facts(&rows[0]), r#""/d" true "snapshot""#);
    assert_eq!(facts(&rows[2]), r#""/d/sub" false "snapshot""#);
    assert!(rows[0]["number"].as_u64() < rows[1]["number"].as_u64());
    assert!(rows[0]["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(names(&list(&[&scratch.on("/d")])), ["first", "all", "-"]);
    assert_eq!(names(&list(&[&scratch.on("/d/sub")])), ["first", "all", "-"]);
    assert_eq!(names(&list(&[&scratch.on("/other")])), ["other"]);

    let lines = ok(["snapshots", volume]);
    let words: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0][1..], ["snapshot", "held", "first", "/d"]);
    assert_eq!(words[2][1..], ["snapshot", "-", "-", "/d/sub"]);
    let zeros = ok(["snapshots", "-0", volume]);
    let mut zeros: Vec<&str> = zeros.split_terminator('\0').collect();
    let mut times: Vec<&str> = words.iter().map(|w| w[0]).collect();
    // The last one's time gets shorter as time goes by.
    assert!(times.pop().unwrap().starts_with(zeros.pop().unwrap()));
    assert_eq!(zeros, times);
    // Rows have the shortest time that is unambiguous, so it is the beginning of the time printed at the
    // snapshot.
    assert!(first.starts_with(words[0][0]), "{first} {}", words[0][0]);
    for line in ok(["snapshots", "--utc", volume]).lines() {
        assert!(line.split(' ').next().unwrap().ends_with('Z'), "{line}");
    }

    // The list shows the present path of an event's directory, or its number.
    let inode = rows[0]["inode"].to_string();
    ok(["cp", "-r", &scratch.on("/d"), &scratch.on("/e")]);
    ok(["rm", "-r", &scratch.on("/d")]);
    assert!(ok(["snapshots", volume]).lines().next().unwrap().ends_with(&format!(" inode {inode}")));
    assert_eq!(list(&[volume])[0]["path"], Value::Null);

    let info: Value = serde_json::from_str(&ok(["info", "--json", volume])).unwrap();
    assert_eq!(info["snapshots"]["count"], 4);
    assert_eq!(info["snapshots"]["oldest"], rows[0]["time"]);
    assert_eq!(info["snapshots"]["newest"], rows[3]["time"]);
    assert!(ok(["info", volume]).contains("Snapshots:  4, from "));
}

/// A past tree is listed, searched, shown and copied as one of the present, to the host and within the
/// volume: content, links, attributes.
#[test]
fn a_past_tree_is_copied() {
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::write(tree.join("sub/script"), "old script").unwrap();
    fs::set_permissions(tree.join("sub/script"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("sub/script", tree.join("link")).unwrap();
    fs::hard_link(tree.join("sub/script"), tree.join("second")).unwrap();
    fs::write(tree.join("sub/deep/large"), vec![7; 3 << 20]).unwrap();
    let attribute =
        rustix::fs::setxattr(tree.join("sub/script"), "user.note", b"old", rustix::fs::XattrFlags::empty())
            .is_ok();
    ok(["put", "-r", text(&tree), &scratch.on("/tree")]);
    let time = snapshot(&[&scratch.on("/tree")]);

    // Everything changes: content in place, attributes, names, and which files exist.
    fs::write(tree.join("sub/script"), "a new script, longer").unwrap();
    fs::set_permissions(tree.join("sub/script"), fs::Permissions::from_mode(0o600)).unwrap();
    if attribute {
        rustix::fs::setxattr(tree.join("sub/script"), "user.note", b"new", rustix::fs::XattrFlags::empty())
            .unwrap();
    }
    fs::write(tree.join("added"), "").unwrap();
    ok(["rm", "-r", &scratch.on("/tree/sub/deep"), &scratch.on("/tree/link")]);
    ok(["put", "-r", text(&tree.join("sub")), text(&tree.join("added")), &scratch.on("/tree")]);

    let past = scratch.on(&format!("/tree@{time}"));
    assert_eq!(ok(["ls", &past]), "link\nsecond\nsub\n");
    assert_eq!(ok(["ls", &scratch.on("/tree")]), "added\nsecond\nsub\n");
    assert!(ok(["ls", "-lR", &past]).contains("link -> sub/script"));
    let found = ok(["find", &past, "-type", "f", "-size", "+1M"]);
    assert_eq!(found, format!("/tree@{time}/sub/deep/large\n"));
    assert_eq!(ok(["cat", &format!("{past}/link")]), "old script");
    let shown: Vec<Value> =
        serde_json::from_str(&ok(["stat", "--json", &format!("{past}/sub/script")])).unwrap();
    assert_eq!((&shown[0]["mode"], &shown[0]["size"]), (&"0751".into(), &10.into()));

    let back = scratch.path("back");
    ok(["get", "-r", &past, text(&back)]);
    let check = |back: &Path| {
        assert_eq!(fs::read(back.join("sub/script")).unwrap(), b"old script");
        assert_eq!(fs::metadata(back.join("sub/script")).unwrap().mode() & 0o7777, 0o751);
        assert_eq!(fs::read_link(back.join("link")).unwrap(), Path::new("sub/script"));
        assert!(fs::read(back.join("sub/deep/large")).unwrap() == vec![7; 3 << 20]);
        assert!(!back.join("added").exists());
        let inode = |name: &str| fs::metadata(back.join(name)).unwrap().ino();
        assert_eq!(inode("sub/script"), inode("second"));
        if attribute {
            let mut value = [0; 16];
            let len = rustix::fs::getxattr(back.join("sub/script"), "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"old");
        }
    };
    check(&back);
    ok(["cp", "-r", &past, &scratch.on("/restored")]);
    let restored = scratch.path("restored");
    ok(["get", "-r", &scratch.on("/restored"), text(&restored)]);
    check(&restored);
}

/// If a time cannot be read, the message says so and what is accepted; it also says if nothing existed at
/// that time.
#[test]
fn times_that_lead_nowhere() {
    let scratch = scratch();
    for command in [&["ls"][..], &["cat"], &["stat"], &["find"], &["cp", "-r"]] {
        let run = |status: i32, path: &str| {
            let mut args = command.to_vec();
            let path = scratch.on(path);
            args.push(&path);
            let target = scratch.on("/target");
            if command[0] == "cp" {
                args.push(&target);
            }
            fails(status, args)
        };
        let message = run(2, "/d@5m/file");
        assert!(message.contains("no such file or directory"), "{message}");
        assert!(message.contains("5min or 5mon") && message.contains("2026-11-20_14.05"), "{message}");
        assert!(run(3, "/d@yesterday").contains("no snapshot up to `yesterday`"));
        assert!(run(3, "/d/file@release").contains("no snapshot named `release`"));
        assert!(!run(3, "/d/absent").contains("snapshot"));
    }
}

/// Nobody writes to the past, and the message to whoever tries says that it is the past.
#[test]
fn the_past_is_not_changed() {
    let scratch = scratch();
    let file = scratch.file("new", "new");
    snapshot(&[&scratch.on("/d"), "-n", "then"]);
    let old = scratch.on("/d@then/file");
    for command in [
        &["put", text(&file), &old][..],
        &["put", text(&file), &scratch.on("/d@then/other")],
        &["cp", &old, &scratch.on("/d@then/copy")],
        &["mkdir", &scratch.on("/d@then/new")],
        &["rm", &old],
        &["rm", "-r", &scratch.on("/d@then")],
        &["rm", "-r", &scratch.on("/d@then/sub")],
    ] {
        let message = fails(3, command);
        assert!(message.contains("the past cannot be changed"), "{command:?}: {message}");
    }
    let message = fails(3, ["snapshot", &scratch.on("/d@then")]);
    assert!(message.contains("of the past"), "{message}");
    assert_eq!(ok(["cat", &old]), "one");
}

/// An impossible snapshot is refused with the reason and the next step, and nothing is taken.
#[test]
fn snapshots_that_cannot_be() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    snapshot(&[volume, "-n", "taken"]);
    let message = fails(3, ["snapshot", volume, "-n", "taken"]);
    assert!(message.contains("`taken`") && message.contains("another name"), "{message}");
    for name in ["yesterday", "2nd", "a/b", "a@b", "", "2.days.ago"] {
        let message = fails(2, ["snapshot", volume, "-n", name]);
        assert!(message.contains("cannot be the name of a snapshot"), "{message}");
    }
    assert!(fails(2, ["snapshot", volume, "-n", "monday"]).contains("taken for a time"));
    for command in ["snapshot", "snapshots"] {
        let message = fails(3, [command, &scratch.on("/d/file")]);
        assert!(message.contains("/d/file") && message.contains("not a directory"), "{message}");
        let message = fails(3, [command, &scratch.on("/absent")]);
        assert!(message.contains("/absent") && message.contains("no such file"), "{message}");
        let message = fails(3, [command, text(&scratch.path("absent"))]);
        assert!(message.contains("absent"), "{message}");
        let message = fails(3, [command, text(&scratch.path(""))]);
        assert!(message.contains("not on a mounted volume"), "{message}");
        let message = fails(3, [command, text(&scratch.file("letter", "Dear reader"))]);
        assert!(message.contains("letter") && message.contains("no Yore volume"), "{message}");
    }
    assert_eq!(names(&list(&[volume])), ["taken"]);
}

/// On a mount the same commands ask the daemon: by the mount point, a directory in it, or the volume.
#[test]
fn on_a_mount() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (root, volume) = (text(&mount.directory).to_string(), text(&scratch.volume));
    let directory = format!("{root}/d");
    let by_directory = snapshot(&[&directory, "-n", "first"]);
    fs::write(mount.directory.join("d/file"), "two").unwrap();
    let by_root = snapshot(&[&root, "--hold"]);
    fs::write(mount.directory.join("d/file"), "three").unwrap();
    let by_volume = snapshot(&[volume, "--no-wait"]);
    fs::write(mount.directory.join("d/file"), "four").unwrap();

    let rows = list(&[&root]);
    assert_eq!(names(&rows), ["first", "-", "-"]);
    // The last one's time gets shorter as time goes by.
    let without_times = |rows: &[Value]| -> Vec<Value> {
        let mut rows = rows.to_vec();
        rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("at")));
        rows
    };
    assert_eq!(without_times(&rows), without_times(&list(&[volume])));
    assert_eq!(
        rows.iter().map(|row| &row["path"]).collect::<Vec<_>>(),
        [&Value::from("/d"), &"/".into(), &"/".into()]
    );
    assert_eq!(rows[1]["held"], true);
    assert_eq!(names(&list(&[&directory])), ["first", "-", "-"]);
    assert_eq!(names(&list(&[&format!("{directory}/sub")])), ["first", "-", "-"]);
    assert_eq!(mount.info()["snapshots"]["count"], 3);

    let message = fails(3, ["snapshot", &directory, "-n", "first"]);
    assert!(message.contains("`first`") && message.contains("another name"), "{message}");
    let message = fails(3, ["snapshot", &format!("{directory}/file")]);
    assert!(message.contains("not a directory"), "{message}");
    let message = fails(3, ["snapshots", &format!("{directory}/absent")]);
    assert!(message.contains("no such file"), "{message}");

    mount.umount();
    for (time, content) in [(&by_directory, "one"), (&by_root, "two"), (&by_volume, "three")] {
        assert_eq!(ok(["cat", &scratch.on(&format!("/d@{time}/file"))]), content, "{time}");
    }

    mount.again(&["-o", "ro"]);
    let message = fails(3, ["snapshot", &root]);
    assert!(message.contains("read-only"), "{message}");
    assert_eq!(list(&[&root]).len(), 3);
    mount.umount();
}

/// A snapshot of a mount that is durable when the command returns is still there after the daemon was killed.
#[test]
fn a_snapshot_is_durable() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    fs::write(mount.directory.join("d/file"), "unsynced").unwrap();
    let time = snapshot(&[text(&mount.directory)]);
    let pid = mount.pid();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    mount.umount();
    assert_eq!(ok(["cat", &scratch.on(&format!("/d@{time}/file"))]), "unsynced");
}
