//! Holds, releases and forgets snapshots by command, on volumes and on mounts: by name, and by rules.
//! Versions of files are in `forget_versions.rs`.

use crate::common;

use common::{fails, ok, put, rows, run, scratch, take, text, yore, Mount, Scratch, NOBODY};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

/// The names of all remaining snapshots.
#[track_caller]
fn left(path: &str) -> String {
    let rows = rows(&["snapshots", "--json", path]);
    rows.iter().map(|row| row["name"].as_str().unwrap_or("-")).collect::<Vec<_>>().join(" ")
}

/// When a snapshot is forgotten, the space that only it used is freed, and the snapshot is gone from lists
/// and paths; others stay as they are.
#[test]
fn a_snapshot_is_forgotten() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    take(volume, "before");
    put(&scratch, "/large", vec![7; 5 << 20]);
    take(volume, "first");
    ok(["rm", &scratch.on("/large")]);
    put(&scratch, "/d/file", "two");
    take(volume, "second");
    let free = || -> u64 {
        let facts: Value = serde_json::from_str(&ok(["info", "--json", volume])).unwrap();
        facts["space"]["free"].as_u64().unwrap_or_else(|| panic!("{facts:#}"))
    };
    let full = free();
    let found = ok(["forget", "--dry-run", &scratch.on("/.@first")]);
    assert!(found.starts_with("forget  ") && found.trim_end().ends_with(" first  /"), "{found}");
    assert_eq!(left(volume), "before first second");

    let listed = ok(["snapshots", volume]);
    let said = ok(["forget", &scratch.on("/.@first")]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), words(listed.lines().nth(1).unwrap()), "as `snapshots` has it");
    assert!(lines[1].ends_with("MiB freed"), "{said}");
    assert!(free() >= full + (5 << 20), "{} free of {full}", free());
    assert_eq!(left(volume), "before second");
    assert!(fails(3, ["cat", &scratch.on("/d/file@first")]).contains("no snapshot named `first`"));
    assert_eq!(ok(["cat", &scratch.on("/d/file@before")]), "one");
    assert_eq!(ok(["cat", &scratch.on("/d/file@second")]), "two");
    ok(["check", volume]);
    // Another snapshot may get its name.
    take(volume, "first");

    // A volume or mount point stands for its root directory. Several snapshots are forgotten at once, each
    // once.
    let by_volume = format!("{volume}@before");
    let said = rows(&["forget", "--json", &by_volume, &scratch.on("/.@second"), &scratch.on("/.@before")]);
    assert_eq!(said.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["before", "second"]);
    assert_eq!(left(volume), "first");
    ok(["check", volume]);
}

/// A volume whose image lies on a mounted volume is a volume like others. `forget` took the image for a file
/// that is no volume, and refused it.
#[test]
fn a_volume_on_a_mounted_volume() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let inner = mount.directory.join("inner.yore");
    let inner = text(&inner);
    ok(["mkfs", inner, "--size", "16M", "--policy=none"]);
    take(inner, "first");
    assert_eq!(left(inner), "first");
    ok(["forget", &format!("{inner}:/.@first")]);
    assert_eq!(left(inner), "");
    let message = fails(3, ["forget", &format!("{}:/.@first", text(&mount.directory.join("d/file")))]);
    assert!(message.contains("is not a directory; name the one that it is in"), "{message}");
    mount.umount();
}

/// A snapshot is forgotten by the name of the directory that it is of, and by no other.
#[test]
fn a_snapshot_is_named_by_its_own_directory() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    let time = ok(["snapshot", &scratch.on("/d")]).trim().to_string();
    take(volume, "all");
    for (verb, more) in [("forget", &["--dry-run"][..]), ("forget", &[]), ("hold", &[]), ("release", &[])] {
        let on = scratch.on("/d@all");
        let message = fails(3, [&[verb, &on], more].concat());
        let named = message.split_whitespace().find(|word| word.contains("/.@")).expect("a name");
        assert!(message.contains(&format!("cannot {verb} ")), "{message}");
        assert!(named.starts_with(&scratch.on("/.@")), "{message}");
        ok(["forget", "--dry-run", named]);
        let message = fails(3, [verb, &scratch.on(&format!("/d/sub@{time}"))]);
        assert!(message.contains(&format!("of /d; to {verb} that one, with all that is in it")), "{message}");
        let message = fails(3, [verb, &scratch.on(&format!("/d@{time}/sub"))]);
        assert!(message.contains("of /d; "), "{message}");
    }
    assert_eq!(left(volume), "- all");
    // The present, a name with an @ of its own, and a name that does not exist.
    ok(["mkdir", &scratch.on("/d@time")]);
    for (verb, path) in [("forget", "/d@time"), ("forget", "/d"), ("hold", "/d"), ("release", "/")] {
        let message = fails(2, [verb, &scratch.on(path)]);
        assert!(message.contains("which snapshot?") && message.contains("@NAME"), "{message}");
        assert_eq!(message.contains("--keep-daily"), verb == "forget", "{message}");
    }
    for verb in ["forget", "hold", "release"] {
        assert!(fails(3, [verb, &scratch.on("/d@yesterday")]).contains("no snapshot up to `yesterday`"));
        assert!(fails(2, [verb, &scratch.on("/d@5m")]).contains("5min or 5mon"));
        assert!(fails(3, [verb, &scratch.on("/d@absent")]).contains("no snapshot named `absent`"));
        let message = fails(3, [verb, &scratch.on("/d/file@all")]);
        assert!(message.contains("no version of that file itself, but a snapshot of /; "), "{message}");
        assert!(message.contains("/.@") && message.contains("yore expunge"), "{message}");
        let message = fails(3, [verb, &format!("{}@all", text(&scratch.file("letter", "Dear reader")))]);
        assert!(message.contains("letter") && message.contains("no Yore volume"), "{message}");
        let message = fails(3, [verb, &format!("{}@all", text(&scratch.path("")))]);
        assert!(message.contains("cannot find"), "{message}");
    }
    let elsewhere = Scratch::new();
    take(text(&elsewhere.volume), "all");
    let message = fails(2, ["forget", &scratch.on("/.@all"), &elsewhere.on("/.@all")]);
    assert!(message.contains("different volumes"), "{message}");
    assert_eq!((left(volume), left(text(&elsewhere.volume))), ("- all".into(), "all".into()));
    ok(["forget", &scratch.on(&format!("/d@{time}"))]);
    assert_eq!(left(volume), "all");
}

/// A held snapshot is kept, whatever the request, until it is released.
#[test]
fn what_is_held_is_not_forgotten() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    for name in ["a", "b", "c"] {
        take(&scratch.on("/d"), name);
    }
    let held = |name: &str| {
        rows(&["snapshots", "--json", volume]).iter().any(|r| r["name"] == name && r["held"] == true)
    };
    for _ in 0..2 {
        ok(["hold", &scratch.on("/d@b")]);
        assert!(held("b") && !held("a"));
    }
    let message = fails(3, ["forget", &scratch.on("/d@a"), &scratch.on("/d@b")]);
    assert!(message.contains("/d@b: it is held; release it first (yore release "), "{message}");
    assert_eq!(left(volume), "a b c", "all or none");
    let said = ok(["forget", &scratch.on("/d"), "--keep-last", "1", "--names", "--dry-run"]);
    let words: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["forget", words[0][1], "snapshot", "-", "a", "/d"]);
    assert_eq!(words[1], ["keep", words[1][1], "snapshot", "held", "b", "/d", "(held)"]);
    assert_eq!(words[2], ["keep", words[2][1], "snapshot", "-", "c", "/d", "(last)"]);
    ok(["forget", &scratch.on("/d"), "--keep-last", "1", "--names"]);
    assert_eq!(left(volume), "b c");
    for _ in 0..2 {
        ok(["release", &scratch.on("/d@b")]);
        assert!(!held("b"));
    }
    ok(["forget", &scratch.on("/d@b")]);
    assert_eq!(left(volume), "c");
}

/// Rules choose among the snapshots of that very directory, with an option also of directories below, and
/// spare those with a name.
#[test]
fn rules_choose() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    for _ in 0..3 {
        ok(["snapshot", volume]);
        ok(["snapshot", &scratch.on("/d")]);
        ok(["snapshot", &scratch.on("/d/sub")]);
    }
    take(&scratch.on("/d"), "named");
    let paths = || -> String {
        let rows = rows(&["snapshots", "--json", volume]);
        rows.iter()
            .map(|row| row["path"].as_str().unwrap_or("gone").rsplit('/').next().unwrap().to_string() + ",")
            .collect()
    };
    assert_eq!(paths(), ",d,sub,,d,sub,,d,sub,d,");
    let judged =
        rows(&["forget", "--dry-run", "--json", "--keep-last=2", "--keep-yearly=1", &scratch.on("/d")]);
    let reasons: Vec<String> = judged.iter().map(|row| row["reasons"].to_string()).collect();
    assert_eq!(reasons, ["[]", "[]", r#"["last"]"#, r#"["last","yearly","named"]"#]);
    assert_eq!(judged.iter().map(|row| row["kept"] == true).collect::<Vec<_>>(), [false, false, true, true]);

    let said = ok(["forget", "--keep-within", "1h", volume]);
    assert_eq!(said, "", "all are of this hour");
    ok(["forget", "--keep-last", "2", &scratch.on("/d")]);
    assert_eq!(paths(), ",sub,,sub,,d,sub,d,");
    let said = rows(&["forget", "--keep-last", "1", "--below", &scratch.on("/d"), "--json"]);
    assert_eq!(said.len(), 3);
    assert!(said.iter().all(|row| row["reasons"].is_null()), "as `snapshots` has them");
    assert_eq!(paths(), ",,,sub,d,");
    // Of a volume, also those of directories that are gone.
    ok(["rm", "-r", &scratch.on("/d/sub")]);
    ok(["forget", volume, "--below", "--keep-last", "2"]);
    assert_eq!(paths(), ",,gone,d,");
    ok(["forget", volume, "--below", "--before", "now"]);
    assert_eq!(left(volume), "named");
    ok(["check", volume]);
}

/// `--before` takes the beginning of the time that it names, or a snapshot by its name. Together with rules,
/// only those snapshots are considered.
#[test]
fn what_is_before_is_forgotten() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    for _ in 0..4 {
        ok(["snapshot", volume]);
    }
    take(&scratch.on("/d"), "here");
    ok(["snapshot", volume]);
    for time in ["today", "yesterday", "1h", "2003-07-10"] {
        assert_eq!(ok(["forget", "--dry-run", "--before", time, volume]), "", "{time}: nothing is older");
    }
    let judged = rows(&["forget", "--dry-run", "--json", "--before", "here", "--keep-last", "1", volume]);
    assert_eq!(judged.iter().map(|row| row["kept"] == true).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(ok(["forget", "--before", "here", volume]).lines().count(), 5);
    assert_eq!(left(volume), "here -");
    assert!(fails(3, ["forget", "--before", "nowhere", volume]).contains("no snapshot named `nowhere`"));
    assert!(fails(2, ["forget", "--before", "5m", volume]).contains("5min or 5mon"));
}

/// All snapshots between two times become one: `--after` with `--before`.
#[test]
fn what_lies_between_is_merged() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    take(volume, "first");
    for _ in 0..4 {
        ok(["snapshot", volume]);
    }
    take(volume, "third");
    ok(["snapshot", volume]);
    let merge = ["forget", "--after", "first", "--before", "third", "--keep-last", "1", "--json", volume];
    assert_eq!(rows(&merge).len(), 3);
    assert_eq!(left(volume), "first - third -");
    assert_eq!(ok(["forget", "--dry-run", "--after", "1h", "--before", "yesterday", volume]), "");
    assert_eq!(
        rows(&["forget", "--dry-run", "--json", "--after", "today", "--keep-last", "9", volume]).len(),
        4
    );
    assert!(fails(2, ["forget", "--after", "first", volume]).contains("--after"));
    assert!(
        fails(3, ["forget", "--after", "nothing", "--keep-last", "1", volume]).contains("no snapshot named")
    );
}

/// A snapshot of a directory that is gone can be held, released and forgotten by the directory's last name,
/// or by number.
#[test]
fn numbers_name_what_is_gone() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    take(&scratch.on("/d/sub"), "gone");
    take(&scratch.on("/d"), "there");
    ok(["hold", &scratch.on("/d/sub@gone")]);
    ok(["rm", "-r", &scratch.on("/d/sub")]);
    ok(["release", &scratch.on("/d/sub@gone")]);
    ok(["hold", &scratch.on("/d/sub@gone")]);
    assert_eq!(ok(["ls", &scratch.on("/d/sub@gone")]), "");
    let listed = rows(&["snapshots", "--json", volume]);
    let [gone, there] = [0, 1].map(|i: usize| listed[i]["number"].to_string());
    let message = fails(3, ["forget", volume, "--number", &gone, "--number", &there]);
    assert!(message.contains(&format!("yore release {volume}:/ --number {gone}")), "{message}");
    ok(["release", &scratch.on("/"), "--number", &gone]);
    ok(["hold", volume, "--number", &there]);
    ok(["release", volume, "--number", &there]);
    for verb in ["hold", "release", "forget"] {
        let message = fails(3, [verb, volume, "--number", "4711"]);
        assert!(message.contains("none of that number"), "{message}");
    }
    fails(2, ["forget", volume, &scratch.on("/d"), "--number", &gone]);
    fails(2, ["forget", volume, "--keep-last", "1", "--number", &gone]);
    assert_eq!(left(volume), "gone there");
    ok(["forget", volume, "--number", &gone, "--number", &there, "--number", &gone]);
    assert_eq!(left(volume), "");
}

/// Nothing is forgotten by accident: options that choose nothing are refused, and the message says what to
/// give.
#[test]
fn nothing_is_forgotten_by_accident() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    take(volume, "a");
    for args in [&[volume][..], &[&scratch.on("/d")], &[volume, "--dry-run"]] {
        let message = fails(2, [&["forget"], args].concat());
        assert!(message.contains("@NAME") && message.contains("--keep-daily N"), "{message}");
    }
    for option in ["--below", "--names"] {
        let message = fails(2, ["forget", volume, option]);
        assert!(message.contains(option) && message.contains("--keep-last N"), "{message}");
    }
    for bad in [
        &["--keep-last", "0"][..],
        &["--keep-daily", "-1"],
        &["--keep-hourly", "x"],
        &["--keep-within", "5m"],
    ] {
        fails(2, [&["forget", volume], bad].concat());
    }
    for duration in ["yesterday", "2026-11-20", "a"] {
        let message = fails(2, ["forget", volume, "--keep-within", duration]);
        assert!(message.contains("a duration is wanted"), "{message}");
    }
    let message = fails(2, ["forget", &scratch.on("/.@a"), "--keep-last", "1"]);
    assert!(message.contains("name that without a time"), "{message}");
    assert_eq!(
        ok(["forget", &scratch.on("/d/file"), "--keep-last", "1"]),
        "",
        "it has no versions of its own"
    );
    let message = fails(2, ["forget", &scratch.on("/d/file"), "--keep-last", "1", "--below"]);
    assert!(message.contains("is not a directory"), "{message}");
    let message = fails(3, ["forget", &scratch.on("/absent"), "--keep-last", "1"]);
    assert!(message.contains("no such file"), "{message}");
    fails(2, ["forget"]);
    assert_eq!(left(volume), "a");
}

/// Whoever asks for progress gets it, as space is freed.
#[test]
fn progress_is_told() {
    let scratch = scratch();
    put(&scratch, "/large", vec![7; 4 << 20]);
    take(text(&scratch.volume), "a");
    ok(["rm", &scratch.on("/large")]);
    // The shell opens the descriptor.
    let lines = scratch.path("lines");
    let script = format!(
        "exec {} forget --progress-fd 3 '{}' 3>'{}'",
        env!("CARGO_BIN_EXE_yore"),
        scratch.on("/.@a"),
        text(&lines)
    );
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let lines = fs::read_to_string(lines).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().expect("a line")).unwrap();
    assert!(last["total"].is_null(), "{last}");
}

/// On a mount the daemon frees space in the background, and nobody knew when that was done. Now a command
/// that asks for progress gets it, and ends when that is done.
#[test]
fn progress_of_a_mount_is_told() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let directory = text(&mount.directory);
    fs::write(mount.directory.join("large"), vec![7; 4 << 20]).unwrap();
    take(directory, "a");
    fs::remove_file(mount.directory.join("large")).unwrap();
    let lines = scratch.path("lines");
    let script = format!(
        "exec {} forget --progress-fd 3 '{directory}@a' 3>'{}'",
        env!("CARGO_BIN_EXE_yore"),
        text(&lines)
    );
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let lines = fs::read_to_string(lines).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().expect("a line")).unwrap();
    assert!(last["done"].as_u64() <= last["total"].as_u64(), "{last}");
    let totals: Vec<Value> = serde_json::from_str(&ok(["du", "--history", "--json", directory])).unwrap();
    assert_eq!(totals[0]["history"]["data"], 0, "{totals:?}");
    mount.umount();
}

/// A command that was killed while it freed space has forgotten the snapshot all the same, and the next
/// command frees the rest.
#[test]
fn a_kill_loses_nothing() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    let tree = scratch.path("tree");
    for i in 0..40 {
        fs::create_dir_all(tree.join(i.to_string())).unwrap();
        for j in 0..50 {
            fs::write(tree.join(format!("{i}/{j}")), "x".repeat(5000)).unwrap();
        }
    }
    ok(["put", "-r", text(&tree), &scratch.on("/tree")]);
    take(volume, "a");
    ok(["rm", "-r", &scratch.on("/tree")]);
    take(volume, "b");
    let named = scratch.on("/.@a");
    for (signal, wait) in [(rustix::process::Signal::KILL, 15), (rustix::process::Signal::INT, 25)] {
        let mut child = yore().args(["forget", &named]).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let pid = rustix::process::Pid::from_child(&child);
        // The process may have ended before.
        let _ = rustix::process::kill_process(pid, signal);
        child.wait().unwrap();
        let left = left(volume);
        assert!(left == "b" || left == "a b", "{left}");
    }
    if left(volume) == "a b" {
        ok(["forget", &named]);
    }
    // Whatever was left.
    ok(["forget", volume, "--keep-last", "1"]);
    assert_eq!(left(volume), "b");
    let facts: Value = serde_json::from_str(&ok(["info", "--json", volume])).unwrap();
    assert_eq!(facts["snapshots"]["count"], 1);
    ok(["check", volume]);
    assert_eq!(ok(["ls", &scratch.on("/.@b")]), "d\n");
}

/// On a mount the command asks the daemon: by paths on it, by the mount point, by the volume. The daemon
/// frees space in the background.
#[test]
fn on_a_mount() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (root, volume) = (text(&mount.directory).to_string(), text(&scratch.volume));
    let directory = format!("{root}/d");
    fs::write(mount.directory.join("large"), vec![7; 5 << 20]).unwrap();
    take(&root, "all");
    take(&directory, "first");
    ok(["snapshot", &directory]);
    take(&directory, "final");
    fs::remove_file(mount.directory.join("large")).unwrap();

    let message = fails(3, ["forget", &format!("{directory}@all")]);
    let named = message.split_whitespace().find(|word| word.contains("/.@")).expect("a name");
    assert!(named.starts_with(&root), "{message}");
    assert!(ok(["forget", "--dry-run", named]).contains("all"));
    for (verb, status, path, part) in [
        ("forget", 3, format!("{directory}/sub@first"), "name "),
        ("forget", 3, format!("{directory}@first/sub"), "name "),
        ("forget", 3, format!("{directory}@yesterday"), "no snapshot up to"),
        ("hold", 3, format!("{directory}@absent"), "no snapshot named"),
        ("hold", 2, directory.clone(), "which snapshot?"),
        ("forget", 3, format!("{root}/d/file@first"), "no version of that file itself"),
        ("forget", 3, format!("{root}/d@first/file"), "no version of that file itself"),
        ("forget", 3, format!("{root}/d/file@yesterday"), "no snapshot up to"),
        ("forget", 2, format!("{root}/d/file"), "yore log"),
        ("forget", 2, root.clone(), "--keep-last N"),
    ] {
        let message = fails(status, [verb, &path]);
        assert!(message.contains(part), "{verb} {path}: {message}");
    }
    let message = fails(2, ["forget", &format!("{directory}@first"), "--keep-last", "1"]);
    assert!(message.contains("without a time"), "{message}");

    ok(["hold", &format!("{directory}@first")]);
    let message = fails(3, ["forget", &format!("{root}@all"), &format!("{directory}@first")]);
    assert!(message.contains("it is held"), "{message}");
    assert_eq!(left(&root), "all first - final");
    let said = ok(["forget", &directory, "--keep-last", "1", "--names"]);
    assert!(said.ends_with("their space is given back in the background\n"), "{said}");
    assert_eq!(left(&root), "all first final");
    ok(["release", &format!("{directory}@first")]);
    ok(["forget", volume, "--below", "--keep-last", "1"]);
    assert_eq!(left(&root), "all first final", "they have names");

    let free = || rustix::fs::statvfs(&mount.directory).unwrap().f_bfree;
    let full = free();
    let said = ok(["forget", &format!("{volume}@all"), &format!("{directory}@first")]);
    assert_eq!(said.lines().count(), 3, "{said}");
    common::until("space is given back", || free() >= full + 1200);
    assert_eq!(left(&root), "final");
    assert!(!mount.directory.join("d@first").exists());
    mount.umount();
    ok(["check", volume]);
    assert_eq!(left(volume), "final");

    mount.again(&["-o", "ro"]);
    for verb in ["forget", "hold", "release"] {
        let message = fails(3, [verb, &format!("{directory}@final")]);
        assert!(message.contains("read-only; mount the volume for writing"), "{message}");
    }
    assert!(ok(["forget", "--dry-run", &format!("{directory}@final")]).starts_with("forget"));
    mount.umount();
    assert_eq!(left(volume), "final");
}

/// An owner forgets snapshots of the owner's directories, and nobody those of another's.
#[test]
fn owners_forget() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this is not root");
        return;
    }
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    let world = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(scratch.path(""), world).unwrap();
    let (root, mine) = (text(&mount.directory).to_string(), mount.directory.join("d"));
    std::os::unix::fs::chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    let mine = text(&mine);
    take(mine, "roots");
    take(&root, "all");
    let as_user = |uid, args: &[&str]| yore().args(args).uid(uid).gid(uid).current_dir("/").output().unwrap();
    if as_user(NOBODY, &["--version"]).status.code() != Some(0) {
        eprintln!("SKIPPED: others cannot start this program");
        return;
    }
    for name in ["mine", "again"] {
        assert!(as_user(NOBODY, &["snapshot", mine, "-n", name]).status.success());
    }
    for (uid, args) in [
        (NOBODY, ["forget", &format!("{mine}@roots")]),
        (4711, ["forget", &format!("{mine}@mine")]),
        (4711, ["hold", &format!("{mine}@mine")]),
        (NOBODY, ["forget", &format!("{root}@all")]),
        (NOBODY, ["release", &format!("{root}@all")]),
    ] {
        let output = as_user(uid, &args);
        let message = common::error_text(&output);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {message}");
        assert!(message.contains("by its owner, by root, or by the user who mounted"), "{message}");
    }
    assert_eq!(left(&root), "roots all mine again");
    for args in [&["hold", &format!("{mine}@again")][..], &["forget", mine, "--before", "now", "--names"]] {
        let output = as_user(NOBODY, args);
        assert!(output.status.success(), "{args:?}: {}", common::error_text(&output));
    }
    // Root's snapshot stays, and the rest of the request is done.
    assert_eq!(left(&root), "roots all again");
    assert!(run(["snapshots", &root]).status.success());
    mount.umount();
}
