//! Times on the command line: unreadable times, times counted from the last snapshot, and mistyped ones.

use crate::common;

use common::{fails, ok, put, scratch, text, Mount, Scratch};

/// `5m` may be minutes or months, and every command says so with the status of a mistake on the command line.
/// In a path it had the status of a failed operation, and `find -newermt` had a grammar of its own.
#[test]
fn times_that_cannot_be_read_are_explained_everywhere() {
    let scratch = scratch();
    ok(["snapshot", text(&scratch.volume)]);
    let volume = text(&scratch.volume);
    let (file, directory) = (scratch.on("/d/file@5m"), scratch.on("/d@5m"));
    let to = text(&scratch.path("to")).to_string();
    let at = scratch.path("then");
    std::fs::create_dir(&at).unwrap();
    let whole = format!("{volume}@5m");
    let commands: &[&[&str]] = &[
        &["ls", &directory],
        &["cat", &file],
        &["stat", &file],
        &["find", &directory],
        &["find", &scratch.on("/"), "-newermt", "5m"],
        &["cp", &file, &scratch.on("/copy")],
        &["get", &file, &to],
        &["diff", &file],
        &["diff", &directory],
        &["diff", &whole],
        &["log", &file],
        &["restore", &file],
        &["restore", &directory],
        &["rollback", &directory],
        &["hold", &directory],
        &["release", &directory],
        &["forget", &directory],
        &["forget", &file],
        &["forget", &whole],
        &["forget", volume, "--before", "5m"],
        &["forget", volume, "--keep-last", "1", "--after", "5m"],
        &["forget", volume, "--keep-within", "5m"],
        &["expunge", "-y", &file],
        &["policy", &scratch.on("/d"), "version=5m"],
        &["policy", &scratch.on("/d"), "keep=within:5m"],
        &["mount", volume, text(&at), "--at", "5m"],
        &["snapshot", volume, "-n", "5m"],
    ];
    for command in commands {
        let message = fails(2, *command);
        match command.contains(&"-n") {
            true => assert!(message.contains("taken for a time"), "{command:?}: {message}"),
            false => assert!(message.contains("5min or 5mon"), "{command:?}: {message}"),
        }
    }
    // A readable time at which nothing existed is no such mistake.
    fails(3, ["cat", &scratch.on("/d/file@2000-01-01")]);
    fails(3, ["cat", &scratch.on("/d/file@nobody")]);
    assert!(fails(2, ["cat", &scratch.on("/d/file@-0")]).contains("counted from -1"));
    assert!(fails(2, ["find", &scratch.on("/"), "-newermt", "last"]).contains("no time but a snapshot"));
}

/// The same on a mount, where the kernel only says that there is nothing.
#[test]
fn times_that_cannot_be_read_are_explained_on_a_mount() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = format!("{}/d", text(&mount.directory));
    ok(["snapshot", &directory, "-n", "before-upgrade"]);
    let (whole, at, file) =
        (format!("{}@5m", text(&mount.directory)), format!("{directory}@5m"), format!("{directory}/file@5m"));
    let commands: &[&[&str]] = &[
        &["diff", &at],
        &["diff", &file],
        &["diff", &whole],
        &["log", &file],
        &["restore", &file],
        &["restore", &at],
        &["rollback", &at],
        &["hold", &at],
        &["forget", &at],
        &["forget", &file],
        &["forget", &whole],
        &["expunge", "-y", &file],
        &["forget", &directory, "--before", "5m"],
        &["policy", &directory, "keep=within:5m"],
    ];
    for command in commands {
        let message = fails(2, *command);
        assert!(message.contains("5min or 5mon"), "{command:?}: {message}");
    }
    // A name without one of its letters.
    for command in ["diff", "hold", "forget", "restore", "rollback"] {
        let message = fails(3, [command, &format!("{directory}@before-upgrde")]);
        assert!(message.contains("did you mean `before-upgrade`?"), "{command}: {message}");
    }
}

/// `@last` is the last snapshot and `@-2` the one before, in every command that takes a time, so that nobody
/// has to list them first.
#[test]
fn snapshots_are_counted_from_the_last() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    for content in ["one", "two", "three"] {
        put(&scratch, "/d/file", content);
        ok(["snapshot", volume]);
    }
    put(&scratch, "/d/file", "now");
    for (time, content) in [("last", "three"), ("-1", "three"), ("-2", "two"), ("-3", "one")] {
        assert_eq!(ok(["cat", &scratch.on(&format!("/d/file@{time}"))]), content);
        assert_eq!(ok(["cat", &scratch.on(&format!("/d@{time}/file"))]), content);
        assert_eq!(ok(["cat", &scratch.on(&format!("/.@{time}/d/file"))]), content);
    }
    assert!(fails(3, ["cat", &scratch.on("/d/file@-4")]).contains("not so many"));
    ok(["restore", &scratch.on("/d/file@-2")]);
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "two");
    // Undo points are not counted.
    assert_eq!(ok(["cat", &scratch.on("/d/file@last")]), "three");
    ok(["forget", &format!("{volume}@last")]);
    assert_eq!(ok(["cat", &scratch.on("/d/file@last")]), "two");
    ok(["forget", volume, "--before", "last"]);
    assert!(fails(3, ["cat", &scratch.on("/d/file@-2")]).contains("not so many"));
    assert!(fails(2, ["snapshot", volume, "-n", "last"]).contains("taken for a time"));
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let path = |name: &str| format!("{}/{name}", text(&mount.directory));
    assert_eq!(std::fs::read(path("d/file@last")).unwrap(), b"two");
    assert_eq!(std::fs::read(path(".@-1/d/file")).unwrap(), b"two");
    assert!(std::fs::read(path("d/file@-2")).is_err());
    let at = scratch.path("then");
    std::fs::create_dir(&at).unwrap();
    let then = Mount { scratch: &scratch, directory: at };
    ok(["mount", volume, text(&then.directory), "--at", "last"]);
    assert_eq!(std::fs::read(then.directory.join("d/file")).unwrap(), b"two");
    then.umount();
    assert!(fails(3, ["mount", volume, text(&then.directory), "--at", "-2"]).contains("not so many"));
}

/// If no snapshot has a name, the message offers the nearest one.
#[test]
fn a_mistyped_name_gets_the_nearest() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    ok(["snapshot", volume, "-n", "before-upgrade"]);
    ok(["snapshot", &scratch.on("/d"), "-n", "step-1"]);
    let suggestion = "did you mean `before-upgrade`?";
    let at = scratch.path("then");
    std::fs::create_dir(&at).unwrap();
    let to = text(&scratch.path("to")).to_string();
    let (file, directory) = (scratch.on("/d/file@before-upgrad"), scratch.on("/d@before-upgrad"));
    let whole = format!("{volume}@before-upgrad");
    let commands: &[&[&str]] = &[
        &["ls", &directory],
        &["cat", &file],
        &["get", &file, &to],
        &["diff", &directory],
        &["diff", &whole],
        &["restore", &file],
        &["rollback", &directory],
        &["hold", &whole],
        &["forget", &whole],
        &["forget", volume, "--before", "before-upgrad"],
        &["mount", volume, text(&at), "--at", "before-upgrad"],
    ];
    for command in commands {
        let message = fails(3, *command);
        assert!(message.contains(suggestion), "{command:?}: {message}");
    }
    assert!(fails(3, ["ls", &scratch.on("/d@step1")]).contains("did you mean `step-1`?"));
    assert!(!fails(3, ["ls", &scratch.on("/d@release")]).contains("did you mean"));
    let other = Scratch::new();
    assert!(!fails(3, ["ls", &other.on("/x@release")]).contains("did you mean"));
}
