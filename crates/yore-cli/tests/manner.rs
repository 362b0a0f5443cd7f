//! Promises that commands are alike: if one takes the current directory, its siblings do; commands that can
//! find differences report them by exit status; and failures as JSON.

use crate::common;

use common::{ok, put, run, scratch, text, yore, Mount};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Output;

fn run_in(directory: &Path, args: &[&str]) -> Output {
    yore().args(args).current_dir(directory).output().unwrap()
}

#[track_caller]
fn ok_in(directory: &Path, args: &[&str]) -> String {
    let output = run_in(directory, args);
    assert!(output.status.success(), "yore {args:?}: {}", common::error_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// `yore snapshot` wanted a path and `yore snapshots` did not; `yore info` wanted the mount point where
/// `yore status` did with any directory below.
#[test]
fn without_a_path_it_is_the_directory_one_is_in() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let here = mount.directory.join("d");
    ok_in(&here, &["snapshot", "-n", "first"]);
    fs::write(here.join("file"), "two").unwrap();
    for command in ["snapshots", "status", "log", "deleted", "policy", "info", "df"] {
        ok_in(&here, &[command]);
    }
    ok_in(&here, &["du", "--history"]);
    assert!(ok_in(&here, &["status"]).contains("M  file"));
    // The first word of `policy` may be a setting.
    ok_in(&here, &["policy", "version=1h"]);
    assert!(ok_in(&here, &["policy"]).contains("version=1h  (set here)"));
    let info: Value = serde_json::from_str(&ok_in(&here.join("sub"), &["info", "--json"])).unwrap();
    assert_eq!(info["directory"], text(&mount.directory));
    let message = common::error_text(&run_in(scratch.path(".").as_path(), &["info"]));
    assert!(message.contains("no volume is mounted"), "{message}");
}

/// `diff` had `--exit-code`, `status` had not.
#[test]
fn status_says_by_its_exit_status_whether_something_changed() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    ok(["snapshot", volume]);
    for args in [&["status", "--exit-code", volume][..], &["status", volume]] {
        assert_eq!(run(args).status.code(), Some(0), "nothing changed");
    }
    put(&scratch, "/d/file", "two");
    assert_eq!(run(["status", "--exit-code", volume]).status.code(), Some(1));
    assert_eq!(run(["status", volume]).status.code(), Some(0));
}

/// A command with `--json` printed a sentence when something went wrong.
#[test]
fn failures_are_json_where_json_is_asked_for() {
    let scratch = scratch();
    let missing = scratch.on("/d/nothing@yesterday");
    let cases: [(&[&str], i32, &str); 4] = [
        (&["ls", "--json", &missing], 3, "nothing@yesterday"),
        (&["snapshots", "--json", "/no/such/volume"], 3, "/no/such/volume"),
        (&["log", "--json", "--nonsense"], 2, "--nonsense"),
        (&["info", "--json", "/"], 3, "no volume is mounted"),
    ];
    for (args, status, part) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", common::error_text(&output));
        let said: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|error| {
            panic!("{args:?}: {error}: {}", common::error_text(&output));
        });
        assert_eq!(said["status"], status, "{said}");
        assert!(said["error"].as_str().unwrap().contains(part), "{said}");
    }
    let output = run(["ls", "--json", &missing]);
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(said["hint"].as_str().unwrap().contains("no snapshot up to"), "{said}");
    // Without it a sentence, as ever.
    assert!(common::error_text(&run(["ls", &missing])).starts_with("yore: "));
}

/// A name can contain the end of a line, or something that a terminal takes for a command. `ls`, `find`,
/// `diff`, `status` and `deleted` passed it on into a pipe unchanged; `log` wrote it in another way. All
/// lines write it in one way now; `-0` and JSON have the bytes.
#[test]
fn names_in_lines_are_printable() {
    let scratch = scratch();
    let name = b"a\x1b[31mb\nc\xff";
    let (shown, lossy) = (r"a\x1b[31mb\nc\xff", "a\u{1b}[31mb\nc\u{fffd}");
    ok(["snapshot", text(&scratch.volume), "-n", "empty"]);
    let content = scratch.file("content", "one");
    let on = [scratch.on("/d/").as_bytes(), name].concat();
    ok([OsStr::new("put"), content.as_os_str(), OsStr::from_bytes(&on)]);
    let (volume, directory) = (scratch.on("/"), scratch.on("/d"));
    let since = format!("{}.@empty", scratch.on("/"));
    let all = |more: &'static str| {
        let commands: [&[&str]; 4] =
            [&["ls", &directory], &["find", &volume], &["diff", &since], &["status", &volume]];
        commands.map(|command| {
            let mut args: Vec<&str> = command.to_vec();
            args.extend(Some(more).filter(|more| !more.is_empty()));
            let output = run(&args);
            assert!(output.status.success(), "{args:?}: {}", common::error_text(&output));
            (args.join(" "), output.stdout)
        })
    };
    let has = |output: &[u8], part: &[u8]| output.windows(part.len()).any(|window| window == part);
    for (command, output) in all("") {
        assert!(has(&output, shown.as_bytes()), "{command}: {}", String::from_utf8_lossy(&output));
        assert!(!output.contains(&0x1b), "{command}");
    }
    for (command, output) in all("-0") {
        assert!(
            has(&output, &[name, &b"\0"[..]].concat()),
            "{command}: {}",
            String::from_utf8_lossy(&output)
        );
    }
    for (command, output) in all("--json") {
        let value: Value = serde_json::from_slice(&output).unwrap();
        let paths = value.as_array().unwrap().iter().filter_map(|one| one["path"].as_str());
        assert!(paths.into_iter().any(|path| path.ends_with(lossy)), "{command}: {value}");
    }
    ok(["snapshot", text(&scratch.volume), "-n", "full"]);
    ok([OsStr::new("rm"), OsStr::from_bytes(&on)]);
    for (command, path) in [("deleted", directory.as_bytes()), ("log", &on)] {
        let output = run([OsStr::new(command), OsStr::from_bytes(path)]).stdout;
        assert!(has(&output, shown.as_bytes()), "{command}: {}", String::from_utf8_lossy(&output));
    }
    let patch = run(["diff", "-p", &since, &scratch.on("/.@full")]).stdout;
    assert!(has(&patch, shown.as_bytes()), "{}", String::from_utf8_lossy(&patch));
}

/// `yore diff -- -dash@-2` in the directory itself said "no such file or directory" without the reason, which
/// it gives for a path.
#[test]
fn relative_names_are_explained_as_others_are() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    fs::write(mount.directory.join("-dash"), "one").unwrap();
    ok(["snapshot", text(&mount.directory)]);
    for (name, words) in
        [("-dash@-2", "2 from the last"), ("-dash@frist", "no snapshot named `frist`"), ("-dash@5m", "5min")]
    {
        let message = common::error_text(&run_in(&mount.directory, &["diff", "--", name]));
        assert!(message.contains(words), "{message}");
    }
    let path = mount.directory.join(".@frist/d@other");
    let message = common::error_text(&run(["diff", text(&path)]));
    assert!(message.contains("no snapshot named `frist`"), "{message}");
}

/// `hold`, `release`, `describe`, `undelete` and `resize` had no `--json`, where their siblings have.
#[test]
fn what_changes_something_tells_it_as_json() {
    for is_mounted in [false, true] {
        let scratch = scratch();
        let mount = match is_mounted {
            true => Some(Mount::new(&scratch, &[])),
            false => None,
        };
        let root = match &mount {
            Some(None) => return,
            Some(Some(mount)) => text(&mount.directory).to_string(),
            None => scratch.on(""),
        };
        let (volume, directory) = (root.trim_end_matches(':'), format!("{root}/d"));
        let json = |args: &[&str]| -> Value { serde_json::from_str(&ok(args)).unwrap() };
        let taken = json(&["snapshot", "--json", &directory, "-n", "then"]);
        let then = format!("{directory}@then");
        let held = json(&["hold", "--json", &then, "-m", "proof"]);
        assert_eq!((&held["number"], &held["held"]), (&taken["number"], &Value::Bool(true)), "{held}");
        let free = json(&["release", "--json", &then]);
        assert_eq!((&free["number"], &free["held"]), (&taken["number"], &Value::Bool(false)), "{free}");
        let described = json(&["describe", "--json", &then, "-n", "later", "-m", "what it is"]);
        assert_eq!((&described["name"], &described["description"]), (&"later".into(), &"what it is".into()));
        match &mount {
            Some(Some(mount)) => fs::remove_file(mount.directory.join("d/file")).unwrap(),
            _ => drop(ok(["rm", &scratch.on("/d/file")])),
        }
        let back = json(&["undelete", "--json", &format!("{directory}/file")]);
        assert_eq!(back[0]["change"], "added", "{back}");
        let longer = json(&["resize", "--json", volume, "96M"]);
        assert_eq!((&longer["size"], &longer["size_before"]), (&(96 << 20).into(), &(64 << 20).into()));
    }
}

/// An image that one may only read was "not to be opened for writing". The message now names the way to read
/// it.
#[test]
fn an_image_that_may_only_be_read() {
    let scratch = scratch();
    fs::set_permissions(&scratch.volume, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(scratch.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = yore();
    command.args(["mkdir", &scratch.on("/new")]).current_dir("/");
    if rustix::process::geteuid().is_root() {
        let nobody = yore().arg("--version").uid(65_534).current_dir("/").status();
        if !nobody.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: another user cannot run the command here");
            return;
        }
        command.uid(65_534).gid(65_534);
    }
    let message = common::error_text(&command.output().unwrap());
    assert!(message.contains("for writing") && message.contains("yore mount -o ro"), "{message}");
}
