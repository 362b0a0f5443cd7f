//! Promises of `journal` and of the options about it: a log on a file of its own serves a volume, mounted or
//! not; it moves, and gets another length; a log that is missing or another volume's is refused by name, and
//! can be given up.

use crate::common;

use common::{can_mount, error_text, fails, ok, run, text, yore, Mount, Scratch};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

struct Pair {
    scratch: Scratch,
    log: PathBuf,
}

fn made(more: &[&str]) -> Pair {
    let scratch = Scratch::empty();
    let log = scratch.volume.with_extension("log");
    let args = ["mkfs", text(&scratch.volume), "--size", "64M", "--journal", text(&log)];
    ok(args.iter().chain(more));
    Pair { scratch, log }
}

fn shown(volume: &str) -> Value {
    serde_json::from_str(&ok(["journal", "--json", volume])).unwrap()
}

/// The file is made, as long as it is usual or as was said, and every command finds the log there.
#[test]
fn a_log_on_a_file() {
    for (more, size) in [(&["--log-size", "2M"][..], 2 << 20), (&["--engine", "journal"], 4 << 20)] {
        let Pair { scratch, log } = made(more);
        let volume = text(&scratch.volume);
        assert_eq!(fs::metadata(&log).unwrap().len(), size);
        let value = shown(volume);
        assert_eq!(value["size"].as_u64(), Some(size - 8192));
        assert_eq!((value["elsewhere"].as_bool(), value["path"].as_str()), (Some(true), Some(text(&log))));
        let file = scratch.file("f", "content ".repeat(1000));
        ok(["put", text(&file), &scratch.on("/f")]);
        assert_eq!(ok(["cat", &scratch.on("/f")]), "content ".repeat(1000));
        ok(["check", volume]);
        ok(["check", volume, "--journal", text(&log)]);
        ok(["check", volume, "--without-journal"]);
        let info: Value = serde_json::from_str(&ok(["info", "--json", volume])).unwrap();
        assert_eq!(info["intent_log"]["path"].as_str(), Some(text(&log)));
        assert!(ok(["info", volume]).contains(text(&log)));
        let superblock = ok(["inspect", volume]);
        assert!(superblock.contains("session ") && superblock.contains(text(&log)), "{superblock}");
        // Nobody else reads it.
        assert!(error_text(&run(["log-service", "verify", text(&log)])).contains("ask the volume"));
    }
}

#[test]
fn it_moves_and_changes_its_length() {
    let scratch = Scratch::empty();
    let volume = text(&scratch.volume);
    ok(["mkfs", volume, "--size", "64M"]);
    let file = scratch.file("f", "content");
    ok(["put", text(&file), &scratch.on("/f")]);
    let log = scratch.volume.with_extension("log");
    let steps: [(&[&str], u64, bool); 5] = [
        (&["--size", "4M"], 4 << 20, false),
        (&["--to", text(&log), "--size", "1M"], (1 << 20) - 8192, true),
        (&["--inside"], 512 << 10, false),
        (&["--to", text(&log)], (1 << 20) - 8192, true),
        (&["--inside", "--size", "8M"], 8 << 20, false),
    ];
    for (step, size, elsewhere) in steps {
        ok(["journal", volume].iter().chain(step));
        let value = shown(volume);
        assert_eq!(
            (value["size"].as_u64(), value["elsewhere"].as_bool()),
            (Some(size), Some(elsewhere)),
            "{step:?}"
        );
        ok(["check", volume]);
        assert_eq!(ok(["cat", &scratch.on("/f")]), "content");
        if elsewhere {
            fails(2, ["journal", volume, "--size", "4M"]);
        }
    }
    assert!(fails(3, ["journal", volume, "--size", "200M"]).contains("stays where it is"));
    fails(2, ["journal", volume, "--inside", "--give-up"]);
    assert!(fails(3, ["journal", volume, "--give-up"]).contains("no log on a device of its own"));
    // A volume without a log gets one, and can then use the engine that needs it.
    ok(["mkfs", volume, "--size", "64M", "--log-size", "0", "--force"]);
    ok(["journal", volume, "--size", "4M"]);
    assert_eq!(shown(volume)["size"].as_u64(), Some(4 << 20));
}

#[test]
fn what_is_there_is_kept() {
    let Pair { scratch, log } = made(&[]);
    let other = Scratch::empty();
    let volume = text(&other.volume);
    let refusal = fails(3, ["mkfs", volume, "--size", "64M", "--journal", text(&log)]);
    assert!(refusal.contains("holds a log"), "{refusal}");
    assert!(!other.volume.exists(), "no half a volume stays");
    ok(["mkfs", volume, "--size", "64M"]);
    fails(3, ["journal", volume, "--to", text(&log)]);
    fails(3, ["journal", volume, "--to", text(&scratch.volume)]);
    fails(3, ["journal", volume, "--to", text(&other.volume)]);
    ok(["check", volume]);
    ok(["check", text(&scratch.volume)]);
}

#[test]
fn a_log_that_is_gone() {
    let Pair { scratch, log } = made(&[]);
    let volume = text(&scratch.volume);
    let moved = log.with_extension("moved");
    fs::rename(&log, &moved).unwrap();
    for command in [&["ls", &scratch.on("/")][..], &["check", volume], &["journal", volume]] {
        let refusal = fails(3, command);
        assert!(refusal.contains(text(&log)) && refusal.contains("--give-up"), "{refusal}");
    }
    ok(["check", volume, "--journal", text(&moved)]);
    ok(["check", volume, "--without-journal"]);
    // Another volume's.
    let other = made(&[]);
    let refusal = fails(3, ["check", volume, "--journal", text(&other.log)]);
    assert!(refusal.contains("has the log of the volume"), "{refusal}");
    // From where it is now, it moves.
    ok(["journal", volume, "--journal", text(&moved), "--to", text(&log)]);
    ok(["check", volume]);
    fs::remove_file(&log).unwrap();
    let told = error_text(&run(["journal", volume, "--give-up"]));
    assert!(told.contains("nothing is lost"), "{told}");
    ok(["check", volume]);
    assert_eq!(shown(volume)["size"].as_u64(), Some(0));
    ok(["journal", volume, "--size", "4M"]);
    ok(["ls", &scratch.on("/")]);
}

/// A mount uses the log, says so if it is not there, and finds it where it is told; what was fsynced survives
/// the end of the daemon.
#[test]
fn mounted() {
    let Pair { scratch, log } = made(&["--engine", "journal"]);
    let volume = text(&scratch.volume);
    {
        let Some(mount) = Mount::new(&scratch, &[]) else { return };
        let file = mount.directory.join("f");
        fs::write(&file, "content").unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let refusal = fails(3, ["journal", volume, "--inside"]);
        assert!(refusal.contains("mounted"), "{refusal}");
        mount.umount();
    }
    let moved = log.with_extension("moved");
    fs::rename(&log, &moved).unwrap();
    let directory = scratch.path("mnt");
    let mount = |options: &str| run(["mount", "-o", options, volume, text(&directory)]);
    assert!(error_text(&mount("rw")).contains(text(&log)));
    assert!(error_text(&mount("journal=none")).contains("only for reading"));
    assert!(error_text(&mount("journal=internal")).contains("--inside"));
    for options in [format!("journal={}", text(&moved)), "rw".into(), "ro,journal=none".into()] {
        let output = mount(&options);
        assert!(output.status.success(), "{options}: {}", error_text(&output));
        assert_eq!(fs::read_to_string(directory.join("f")).unwrap(), "content");
        ok(["umount", text(&directory)]);
    }
    // The mount that was told where the log is has written that down.
    assert_eq!(shown(volume)["path"].as_str(), Some(text(&moved)));
}

/// Paths in options may be relative, also in a directory whose name has a comma. They were handed on to the
/// daemon as absolute ones, which ended at the comma, and what followed was an unknown option.
#[test]
fn relative_paths_in_a_directory_with_a_comma() {
    let Pair { scratch, log } = made(&[]);
    if !can_mount() {
        return;
    }
    let (here, directory) = (scratch.path("a,b"), scratch.path("mnt"));
    for made in [&here, &directory] {
        fs::create_dir(made).unwrap();
    }
    fs::rename(&log, here.join("journal")).unwrap();
    let mount = Mount { scratch: &scratch, directory };
    let mut command = yore();
    command.args([
        "mount",
        text(&scratch.volume),
        text(&mount.directory),
        "-o",
        "journal=journal,log=messages",
    ]);
    let output = command.current_dir(&here).output().unwrap();
    assert!(output.status.success(), "{}", error_text(&output));
    let info = mount.info();
    assert!(
        info["log"].as_str().unwrap().ends_with("/a,b/messages") && here.join("messages").exists(),
        "{info}"
    );
    mount.umount();
    assert!(shown(text(&scratch.volume))["path"].as_str().unwrap().ends_with("/a,b/journal"));
}
