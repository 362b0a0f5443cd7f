//! Promises that commands are alike: where one takes the directory one is in, its siblings do; what says with its exit status whether
//! something differs; and failures as JSON.

mod common;

use common::{ok, put, run, scratch, text, yore, Mount};
use serde_json::Value;
use std::fs;
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

/// `yore snapshot` wanted a path and `yore snapshots` did not; `yore info` wanted the mount point where `yore status` did with any
/// directory below.
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
