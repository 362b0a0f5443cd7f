//! Completion in shells: snapshots, keys and values of policies, and otherwise files.

use crate::common;

use common::{can_mount, ok, scratch, text, Mount, Scratch};
use std::process::Command;

/// The completions that yore prints.
fn following(words: &[&str]) -> Vec<String> {
    ok([&["complete", "--"], words].concat()).lines().map(String::from).collect()
}

/// After an `@`, completion offers the snapshots that show the path, by name and time, on a volume and on a
/// mount. It does the same where an option takes a time. Scripts that knew only commands and options offered
/// none.
#[test]
fn snapshots_are_offered() {
    let scratch = scratch();
    let volume = text(&scratch.volume).to_string();
    ok(["snapshot", &volume, "-n", "before-upgrade"]);
    ok(["snapshot", &scratch.on("/d/sub"), "-n", "of-sub"]);
    let file = scratch.on("/d/file");
    let offered = following(&["cat", &format!("{file}@")]);
    assert_eq!(offered[0], format!("{file}@before-upgrade"));
    assert!(
        offered.contains(&format!("{file}@last")) && offered[1].starts_with(&format!("{file}@20")),
        "{offered:?}"
    );
    assert!(!offered.iter().any(|one| one.contains("of-sub")), "it does not show the file: {offered:?}");
    assert_eq!(
        following(&["ls", &format!("{}@of", scratch.on("/d/sub"))]),
        [format!("{}@of-sub", scratch.on("/d/sub"))]
    );
    assert_eq!(following(&["ls", &format!("{volume}@before-u")]), [format!("{volume}@before-upgrade")]);
    assert_eq!(following(&["forget", &volume, "--before", "bef"]), ["before-upgrade"]);
    assert_eq!(following(&["mount", &volume, "/then", "--at", "bef"]), ["before-upgrade"]);
    assert_eq!(following(&["ls", &scratch.on("/d/")]), [scratch.on("/d/file"), scratch.on("/d/sub/")]);
    assert_eq!(following(&["ls", "/nowhere@x"]), Vec::<String>::new());
    if !can_mount() {
        return;
    }
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let path = |name: &str| format!("{}{name}", text(&mount.directory));
    for name in ["", "/d", "/d/file"] {
        assert_eq!(
            following(&["diff", &format!("{}@before-", path(name))]),
            [path(&format!("{name}@before-upgrade"))]
        );
    }
    // Of a file that is gone, too. Those were offered on a volume only.
    std::fs::remove_file(path("/d/file")).unwrap();
    assert_eq!(following(&["cat", &path("/d/file@before-")]), [path("/d/file@before-upgrade")]);
}

/// The script for bash joins words again that bash splits at `@`, `:` and `=`, and replaces only the part
/// after these.
#[test]
fn bash_completes() {
    let Ok(found) = Command::new("bash").arg("--version").output() else {
        eprintln!("SKIPPED: there is no bash");
        return;
    };
    assert!(found.status.success());
    let scratch = Scratch::new();
    ok(["snapshot", text(&scratch.volume), "-n", "before-upgrade"]);
    ok(["snapshot", text(&scratch.volume), "-n", "two words"]);
    let script = scratch.file("completion", ok(["completions", "bash"]));
    let yore = env!("CARGO_BIN_EXE_yore");
    let complete = |words: &[&str]| -> Vec<String> {
        // As bash splits a line.
        let line = words.concat();
        let split = words.iter().filter(|word| !word.trim().is_empty() || word.is_empty());
        let quoted: Vec<String> = split.map(|word| format!("'{word}'")).collect();
        let commands = format!(
            "source '{}'; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({}); COMP_CWORD={}; _yore; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            quoted.join(" "),
            quoted.len() - 1
        );
        let output = Command::new("bash").args(["--norc", "-c", &commands]).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.lines().filter(|line| !line.is_empty()).map(String::from).collect()
    };
    let volume = text(&scratch.volume);
    assert_eq!(complete(&[yore, " ", "snapsh"]), ["snapshot", "snapshots"]);
    assert_eq!(complete(&[yore, " ", "policy", " ", volume, " ", "version", "=", "cl"]), ["close"]);
    assert_eq!(complete(&[yore, " ", "ls", " ", volume, "@", "bef"]), ["before-upgrade"]);
    assert!(complete(&[yore, " ", "ls", " ", volume, "@"]).contains(&"before-upgrade".to_string()));
    assert_eq!(
        complete(&[yore, " ", "ls", " ", volume, ":", "/.", "@", "bef"]),
        ["/.@before-upgrade".replace("/.@", "")]
    );
    assert_eq!(complete(&[yore, " ", "forget", " ", volume, " ", "--bef"]), ["--before"]);
    // A blank in a name gets a backslash, because there would otherwise be two words; a name that already has
    // one can be continued.
    assert_eq!(complete(&[yore, " ", "ls", " ", volume, "@", "two"]), [r"two\ words"]);
    assert_eq!(complete(&[yore, " ", "ls", " ", volume, "@", r"two\ w"]), [r"two\ words"]);
    assert_eq!(
        complete(&[yore, " ", "ls", " ", &format!("\"{volume}@two w")]),
        [format!("{volume}@two words")]
    );
}

/// Each script asks yore for completions.
#[test]
fn each_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(["completions", shell]).contains(" complete -- "), "{shell}");
    }
    assert!(ok(["completions", "elvish"]).contains("inspect"));
}
