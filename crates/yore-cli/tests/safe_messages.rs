//! Promises of what commands say to people: no name in it sends commands to a terminal or makes a line of its
//! own, a command that is shown can be run, and nobody need read any of it.

use crate::common;

use common::trees::both;
use common::{error_text, ok, program, put, rows, run, scratch, text, yore, Scratch};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A name that a user might choose to lead root astray.
const NAME: &str = "/d/it's\x1b[31m\nroot  undo: yore forget";

fn make(scratch: &Scratch, path: &str) {
    match scratch.path("mnt").exists() {
        true => fs::create_dir(scratch.path("mnt").join(&path[1..])).unwrap(),
        false => drop(ok(["mkdir", &scratch.on(path)])),
    }
}

/// `operations` printed such a name with each command that undoes something: the line that followed looked
/// like another operation, and a sequence for the terminal went there. The command could not be copied into a
/// shell either.
#[test]
fn commands_that_undo() {
    both(&[], |scratch, on| {
        make(scratch, NAME);
        ok(["snapshot", &on(NAME), "-n", "first"]);
        let lines = ok(["operations", &on(NAME)]);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(!lines.contains('\x1b'), "{lines}");
        let row = &rows(&["operations", "--json", &on(NAME)])[0];
        let undo = row["undo"].as_str().unwrap();
        assert!(lines.trim_end().ends_with(undo) && undo.contains(r"it\'s\033[31m\nroot"), "{lines}");
        let script = undo.replacen("yore", "\"$0\"", 1);
        let Ok(done) = Command::new("bash").args(["-c", &script]).arg(program()).output() else {
            eprintln!("SKIPPED: needs bash");
            return;
        };
        assert!(done.status.success(), "{script}: {}", error_text(&done));
        assert_eq!(ok(["snapshots", "--json", &on(NAME)]).trim(), "[]");
    });
}

/// Messages of commands had names as they are.
#[test]
fn messages() {
    both(&[], |scratch, on| {
        make(scratch, NAME);
        ok(["snapshot", &on(NAME), "-n", "first"]);
        for args in [["restore", &on(NAME)], ["restore", &on(&format!("{NAME}@first"))], ["diff", &on(NAME)]]
        {
            let told = error_text(&run(args));
            assert!(!told.contains('\x1b') && told.contains(r"\x1b[31m\nroot"), "{args:?}: {told}");
            assert_eq!(told.lines().count(), 1, "{args:?}: {told}");
        }
        // For programs the name is as it is.
        let told = error_text(&run(["diff", "--json", &on(NAME)]));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert!(told["error"].as_str().unwrap().contains(NAME), "{told}");
    });
}

/// Where nothing read its messages, a command panicked, with a status of its own, after it had done its work
/// or in the middle.
#[test]
fn nobody_reads_them() {
    let scratch = scratch();
    let directory = scratch.on("/d");
    ok(["snapshot", &directory, "-n", "then"]);
    put(&scratch, "/d/file", "two");
    let unread = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let status = |args: &[&str]| yore().args(args).stderr(unread()).status().unwrap().code();
    assert_eq!(status(&["restore", &scratch.on("/d@then/file")]), Some(0));
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "one");
    assert_eq!(status(&["undo", &directory]), Some(0));
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "two");
    assert_eq!(status(&["restore", &directory]), Some(2), "the status is that of the failure");
    assert_eq!(status(&["resize", text(&scratch.volume)]), Some(0));

    let checker = |args: &[&str], volume: Option<&Path>| {
        let mut command = yore();
        command.arg0("fsck.yore").args(args).args(volume).stdout(unread()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        (output.status.code(), error_text(&output))
    };
    assert_eq!(checker(&["-V"], None), (Some(0), String::new()));
    assert_eq!(checker(&["-a"], Some(scratch.volume.as_path())), (Some(0), String::new()));
}
