//! Forgets single versions of files by command, on a volume and on a mount: by name, and by rules.

use crate::common;

use common::{fails, ok, put, rows, run, scratch, take, text, yore, Mount, NOBODY};
use std::fs;
use std::os::unix::process::CommandExt as _;

/// The versions of a file itself, oldest first, each as a time to put after an `@`.
#[track_caller]
fn versions(file: &str) -> Vec<String> {
    let rows = rows(&["forget", "--dry-run", "--json", "--keep-last", "99", file]);
    rows.iter().map(|row| row["at"].as_str().unwrap().to_string()).collect()
}

/// Single versions, by name and by rules, of a file that exists and of one that is gone; `at` makes a path.
/// `save` writes a file, `remove` removes it, `read` reads it as of a time.
fn forget_versions(
    at: &dyn Fn(&str) -> String,
    save: &dyn Fn(&str, &str),
    remove: &dyn Fn(&str),
    read: &dyn Fn(&str) -> Option<String>,
) {
    let (file, root) = (at("/d/letter"), at("/"));
    for draft in ["one", "two", "three", "four"] {
        save("/d/letter", draft);
    }
    save("/d/beside", "beside");
    let times = versions(&file);
    assert_eq!(times.len(), 4, "{times:?}");
    let then = |time: &str| read(&format!("/d/letter@{time}"));
    assert_eq!(then(&times[1]).as_deref(), Some("two"));

    // By name, and only that one; for a state that a snapshot has seen, the message names the snapshot.
    take(&root, "all");
    let second = format!("{file}@{}", times[1]);
    assert!(ok(["forget", "--dry-run", &second]).contains("close"));
    let said = rows(&["forget", "--json", &second]);
    assert_eq!((said.len(), &said[0]["kind"], &said[0]["path"]), (1, &"close".into(), &"/d/letter".into()));
    assert_eq!(then(&times[1]), None, "and never an older one");
    for (time, text) in [(&times[0], "one"), (&times[2], "three"), (&times[3], "four")] {
        assert_eq!(then(time).as_deref(), Some(text));
    }
    assert_eq!(versions(&file), [times[0].clone(), times[2].clone(), times[3].clone()]);
    let message = fails(3, ["forget", &second]);
    assert!(message.contains("cannot find"), "{message}");
    let message = fails(3, ["forget", &format!("{file}@all")]);
    let named = message.split_whitespace().find(|word| word.contains("/.@")).expect("a name");
    assert!(message.contains("yore expunge"), "{message}");
    assert!(ok(["forget", "--dry-run", named.trim_end_matches(';')]).contains("all"), "{message}");

    // A version is held like a snapshot.
    let first = format!("{file}@{}", times[0]);
    ok(["hold", &first]);
    assert!(fails(3, ["forget", &first]).contains(&format!("yore release {first}")));
    ok(["forget", &file, "--keep-last", "1"]);
    assert_eq!(versions(&file), [times[0].clone(), times[3].clone()]);
    ok(["release", &first]);
    assert_eq!(ok(["forget", "--dry-run", &file, "--before", "yesterday"]), "");
    let message = fails(2, ["forget", &file]);
    assert!(message.contains("--keep-daily N"), "{message}");
    let message = fails(2, ["forget", &first, "--keep-last", "1"]);
    assert!(message.contains("without a time"), "{message}");

    // Versions of a removed file, by a name with a time, and by rules. Others are not affected.
    save("/d/letter", "five");
    remove("/d/letter");
    let gone = versions(&file);
    let last = gone.last().unwrap();
    assert!(gone.len() > 2, "{gone:?}");
    ok(["forget", &first]);
    assert_eq!((then(&times[0]), then(last).as_deref()), (None, Some("five")));
    assert_eq!(then("now"), None);
    ok(["forget", &file, "--before", "now"]);
    assert_eq!((versions(&file), versions(&at("/d/beside")).len()), (vec![], 1));
    assert_eq!(then(last), None);
    assert_eq!(then("now"), None, "that it was removed is still known");
    assert_eq!(read("/d/letter@all").as_deref(), Some("four"), "the snapshot stays as it was");
    assert!(fails(3, ["forget", &at("/d/never"), "--keep-last", "1"]).contains("cannot find"));
}

/// On a volume that is not mounted.
#[test]
fn versions_of_a_file_are_forgotten() {
    let scratch = scratch();
    ok(["policy", text(&scratch.volume), "version=close"]);
    let read = |path: &str| {
        let output = run(["cat", &scratch.on(path)]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let remove = |path: &str| drop(ok(["rm", &scratch.on(path)]));
    forget_versions(&|path| scratch.on(path), &|path, draft| put(&scratch, path, draft), &remove, &read);
    ok(["check", text(&scratch.volume)]);
}

/// On a mount; the owner of a file may do this as the owner of a directory may.
#[test]
fn versions_of_a_file_are_forgotten_on_a_mount() {
    let scratch = scratch();
    ok(["policy", text(&scratch.volume), "version=close"]);
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    let path = |path: &str| mount.directory.join(path.trim_start_matches('/'));
    let at = |of: &str| text(&path(of)).to_string();
    // A process of its own saves: a test beside this one that starts a program would have a copy of this
    // process's descriptors until the program runs, and closing the copy of an emptied file makes a version.
    let save = |of: &str, draft: &str| {
        let line = ["-c", r#"printf %s "$2" >"$1""#, "sh"];
        let saved = std::process::Command::new("sh").args(line).arg(path(of)).arg(draft).status();
        assert!(saved.unwrap().success());
    };
    let remove = |of: &str| fs::remove_file(path(of)).unwrap();
    forget_versions(&at, &save, &remove, &|of| fs::read_to_string(path(of)).ok());

    let world = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(scratch.path(""), world()).unwrap();
    let as_nobody =
        |args: &[&str]| yore().args(args).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    if rustix::process::geteuid().is_root() && as_nobody(&["--version"]).status.success() {
        let file = at("/d/beside");
        save("/d/beside", "again");
        let time = &versions(&file)[0];
        let output = as_nobody(&["forget", &format!("{file}@{time}")]);
        assert_eq!(output.status.code(), Some(3));
        assert!(common::error_text(&output).contains("by its owner, by root"), "{output:?}");
        std::os::unix::fs::chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        let output = as_nobody(&["forget", &format!("{file}@{time}")]);
        assert!(output.status.success(), "{}", common::error_text(&output));
        assert_eq!(versions(&file).len(), 1);
    }
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}
