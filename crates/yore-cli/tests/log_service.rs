//! Promises of `log-service`: records come back as they were appended, under the numbers that were printed,
//! in whatever form the input has them; nothing that somebody wants is overwritten; a log has one owner and
//! one writer; damage is told from the end; and no bytes on the medium make a command panic or hang.

use crate::common;

use common::{error_text, fails, ok, text, yore, Scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Output, Stdio};

const FAILED: i32 = 3;
const DAMAGED: i32 = 4;
const OWNER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const OTHER: &str = "6ba7b811-9dad-11d1-80b4-00c04fd430c8";

fn log(scratch: &Scratch, size: &str) -> PathBuf {
    let path = scratch.path("records.log");
    ok(["log-service", "create", text(&path), "--size", size]);
    path
}

/// Runs `append` with this input.
fn append(args: &[&str], input: &[u8]) -> Output {
    let mut child = yore()
        .args(["log-service", "append"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails does not read its input.
    drop(child.stdin.take().unwrap().write_all(input));
    child.wait_with_output().unwrap()
}

fn appended(args: &[&str], input: &[u8]) -> String {
    let output = append(args, input);
    assert!(output.status.success(), "{}", error_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The records of `list --json`: number, length, content in hexadecimal digits.
fn listed(path: &str, more: &[&str]) -> Vec<(u64, u64, String)> {
    let lines = ok(["log-service", "list", path, "--json", "--content=hex"].iter().chain(more));
    let one = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["checksum"], "good");
        assert!(value["time"].as_str().unwrap().starts_with("20"));
        let content = value["content_hex"].as_str().unwrap().to_string();
        (value["number"].as_u64().unwrap(), value["length"].as_u64().unwrap(), content)
    };
    lines.lines().map(one).collect()
}

fn verified(path: &str) -> Value {
    serde_json::from_str(&ok(["log-service", "verify", path, "--json"])).unwrap()
}

/// Lines, the whole input, and lengths: each gives the records that it says, and their numbers go on.
#[test]
fn records_come_back() {
    let scratch = Scratch::empty();
    let path = log(&scratch, "1M");
    let path = text(&path);
    assert_eq!(appended(&[path], b"one\n\nthree without an end"), "1\n2\n3\n");
    assert_eq!(appended(&[path, "--whole"], b"two\nlines\n"), "4\n");
    let lengths = [&5u32.to_le_bytes()[..], b"\0\n\xff\x1bz", &0u32.to_le_bytes(), &1u32.to_le_bytes(), b"x"];
    assert_eq!(appended(&[path, "--lengths", "--no-force"], &lengths.concat()), "5\n6\n7\n");
    let file = scratch.file("input", "from a file\n");
    assert_eq!(appended(&[path, "--file", text(&file)], b"not this"), "8\n");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected: Vec<(u64, u64, String)> = [
        &b"one"[..],
        b"",
        b"three without an end",
        b"two\nlines\n",
        b"\0\n\xff\x1bz",
        b"",
        b"x",
        b"from a file",
    ]
    .iter()
    .zip(1..)
    .map(|(content, number)| (number, content.len() as u64, hex(content)))
    .collect();
    assert_eq!(listed(path, &[]), expected);
    assert_eq!(listed(path, &["--from", "6"]), expected[5..]);
    let lines = ok(["log-service", "list", path, "--content"]);
    assert!(lines.contains("two\\nlines\\n") && lines.contains("\\x00\\n\\xff\\x1bz"), "{lines}");
    assert!(!ok(["log-service", "list", path]).contains("three"), "contents only if asked for");
    let sound = verified(path);
    assert_eq!((sound["records"].as_u64(), sound["next"].as_u64()), (Some(8), Some(9)));
    assert!(ok(["log-service", "verify", path]).contains("the next record gets number 9"));
    // What nobody needs goes; numbers go on.
    ok(["log-service", "trim", path, "8"]);
    assert_eq!(listed(path, &[]), expected[7..]);
    ok(["log-service", "trim", path, "9"]);
    assert_eq!(listed(path, &[]), []);
    assert_eq!(appended(&[path], b"nine"), "9\n");
    assert!(fails(FAILED, ["log-service", "trim", path, "11"]).contains("was never appended"));
}

/// A number that was printed is that of a durable record, also if the process is killed then; who waits for a
/// number has it although the input goes on.
#[test]
fn a_printed_number_is_kept() {
    let scratch = Scratch::empty();
    let path = log(&scratch, "1M");
    let mut child = yore()
        .args(["log-service", "append", text(&path)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut numbers) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    for n in 1..=3 {
        writeln!(input, "record {n}").unwrap();
        input.flush().unwrap();
        assert_eq!(numbers.next().unwrap().unwrap(), n.to_string());
    }
    // A second process is refused, and told by whom the log is held.
    let message = error_text(&append(&[text(&path)], b"x"));
    assert!(message.contains("in use by") && message.contains(&child.id().to_string()), "{message}");
    assert!(fails(FAILED, ["log-service", "list", text(&path)]).contains("in use by"));
    input.write_all(b"begun").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(listed(text(&path), &[]).len(), 3);
    assert_eq!(verified(text(&path))["damaged"], Value::Null);
    assert_eq!(appended(&[text(&path)], b"next"), "4\n");
}

/// A log that is made for one owner takes no records of another one, and the message names both.
#[test]
fn a_log_has_one_owner() {
    let scratch = Scratch::empty();
    let path = scratch.path("records.log");
    let path = text(&path);
    assert!(ok(["log-service", "create", path, "--size", "1M", "--owner", OWNER]).contains(OWNER));
    assert_eq!(appended(&[path, "--owner", OWNER], b"one"), "1\n");
    let refused = append(&[path, "--owner", OTHER], b"two");
    assert_eq!(refused.status.code(), Some(FAILED));
    let message = error_text(&refused);
    assert!(message.contains(OWNER) && message.contains(OTHER), "{message}");
    let message = error_text(&append(&[path], b"two"));
    assert!(message.contains(OWNER) && message.contains("nobody"), "{message}");
    assert!(fails(FAILED, ["log-service", "trim", path, "2", "--owner", OTHER]).contains(OWNER));
    // Everybody may look.
    assert_eq!(listed(path, &[]).len(), 1);
    assert_eq!(verified(path)["owner"], OWNER);
    assert!(fails(2, ["log-service", "append", path, "--owner", "me"]).contains("write a UUID, or none"));
}

/// What somebody may want is not overwritten without `--force`, by a log as by a volume.
#[test]
fn nothing_is_overwritten() {
    let scratch = Scratch::new();
    let path = log(&scratch, "64M");
    let (path, volume) = (text(&path), text(&scratch.volume));
    appended(&[path], b"kept");
    let something = scratch.file("something", "content");
    for (what, there) in [(path, "holds a log"), (volume, "a Yore volume"), (text(&something), "content")] {
        let before = fs::read(what).unwrap();
        let message = fails(FAILED, ["log-service", "create", what, "--size", "64M"]);
        assert!(message.contains(there) && message.contains("--force"), "{message}");
        assert!(fs::read(what).unwrap() == before, "{what} changed");
    }
    assert!(fails(FAILED, ["mkfs", path, "--size", "64M"]).contains("holds a log"));
    for (args, message) in [
        (["create", "/nowhere/at/all", "--size", "1M"], "does not exist"),
        (["create", text(&scratch.path("new")), "--size", "4K"], "too small for a log"),
    ] {
        assert!(fails(FAILED, ["log-service"].iter().chain(&args)).contains(message));
    }
    assert!(!scratch.path("new").exists());
    assert!(fails(FAILED, ["log-service", "list", volume]).contains("there is no log on"));
    ok(["log-service", "create", path, "--size", "1M", "--force"]);
    assert_eq!(listed(path, &[]), []);
}

/// A full log refuses what does not fit, and keeps what it has; a record that never fits is refused as such;
/// input that ends too early is told.
#[test]
fn what_does_not_fit_is_refused() {
    let scratch = Scratch::empty();
    let path = log(&scratch, "64K");
    let path = text(&path);
    let lines: Vec<u8> = (0..40).flat_map(|n| format!("{n:01999}\n").into_bytes()).collect();
    let output = append(&[path], &lines);
    assert_eq!(output.status.code(), Some(FAILED));
    assert!(error_text(&output).contains("the log is full"), "{}", error_text(&output));
    let printed = String::from_utf8(output.stdout).unwrap().lines().count();
    assert!(printed > 3 && listed(path, &[]).len() == printed, "{printed}");
    ok(["log-service", "trim", path, &(printed + 1).to_string()]);
    let output = append(&[path, "--whole"], &[b'x'; 70_000]);
    assert!(error_text(&output).contains("longer than"), "{}", error_text(&output));
    let output = append(&[path, "--lengths"], &[&u32::MAX.to_le_bytes()[..], b"x"].concat());
    assert!(error_text(&output).contains("longer than"), "{}", error_text(&output));
    let output = append(&[path, "--lengths"], &[&9u32.to_le_bytes()[..], b"x"].concat());
    assert_eq!(output.status.code(), Some(FAILED));
    assert!(error_text(&output).contains("ends within a record, after 1 of 9 bytes"));
    assert_eq!(appended(&[path], b"fits"), format!("{}\n", printed + 1));
}

/// Damage before the end is told from the end: the records before it are listed, and the status says it. A
/// last batch that is not there ends the log, unless the log was closed behind it.
#[test]
fn damage_is_told_from_the_end() {
    let scratch = Scratch::empty();
    let path = log(&scratch, "1M");
    for n in 0..5 {
        appended(&[text(&path), "--whole"], &[n; 5000]);
    }
    let sound = fs::read(&path).unwrap();
    // Of each record, only its own bytes look like this.
    for n in 0..5u8 {
        let at = sound.windows(100).position(|bytes| bytes == [n; 100]).filter(|_| n > 0);
        let Some(at) = at else { continue };
        let mut bytes = sound.clone();
        bytes[at + 50] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let output = yore().args(["log-service", "list", text(&path)]).output().unwrap();
        assert_eq!(output.status.code(), Some(DAMAGED), "{}", error_text(&output));
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), usize::from(n));
        let message = fails(DAMAGED, ["log-service", "verify", text(&path)]);
        assert!(message.contains(&format!("where record {} belongs", n + 1)), "{message}");
        let output = yore().args(["log-service", "verify", text(&path), "--json"]).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), found["records"].as_u64()), (Some(DAMAGED), Some(n.into())));
        assert_eq!(append(&[text(&path)], b"x").status.code(), Some(DAMAGED));
        assert!(fs::read(&path).unwrap() == bytes, "nobody wrote to it");
    }
}

/// Random bytes in random places: each command ends, with a status that is one of its own and no panic.
#[test]
fn no_bytes_make_it_panic() {
    let seed: u64 = std::env::var("YORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("YORE_SEED={seed}");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let scratch = Scratch::empty();
    let path = log(&scratch, "128K");
    for n in 0..6 {
        appended(&[text(&path)], format!("{}\n{n}\n", "x".repeat(3000 * n)).as_bytes());
    }
    let sound = fs::read(&path).unwrap();
    for round in 0..40 {
        let mut bytes = sound.clone();
        match round % 4 {
            // Noise alone, or behind a right magic.
            0 => bytes
                .iter_mut()
                .skip(if round % 8 == 0 { 0 } else { 8 })
                .for_each(|byte| *byte = random(256) as u8),
            // A shorter file.
            1 => bytes.truncate(random(sound.len() / 4096) * 4096),
            _ => {
                for _ in 0..=random(20) {
                    let at = random(if round % 4 == 2 { 8192 } else { bytes.len() });
                    bytes[at] = random(256) as u8;
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
        let commands: [&[&str]; 3] = [&["list", "--content"], &["verify"], &["trim"]];
        for command in commands {
            let mut run = yore();
            run.args(["log-service", command[0], text(&path)]).args(&command[1..]);
            if command[0] == "trim" {
                run.arg("1");
            }
            let output = run.output().unwrap();
            let status = output.status.code();
            assert!(matches!(status, Some(0 | FAILED | DAMAGED)), "round {round}: {status:?}");
            assert!(!error_text(&output).contains("panicked"), "round {round}: {}", error_text(&output));
        }
        let output = append(&[text(&path)], b"after the damage\n");
        assert!(matches!(output.status.code(), Some(0 | FAILED | DAMAGED)), "round {round}");
        assert!(!error_text(&output).contains("panicked"), "round {round}: {}", error_text(&output));
    }
}
