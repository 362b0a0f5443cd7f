//! `check --repair` and `check --undo`, as people call them.

use crate::common;

use common::{error_text, fails, ok, put, run, text, yore, Scratch};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{symlink, FileExt as _};
use std::path::PathBuf;
use std::process::Stdio;
use yore_format::{SlotState, Superblock, BLOCK_SIZE};

/// Makes a total of the newest superblock wrong.
fn damage(scratch: &Scratch) {
    change(scratch, |sb| sb.free_blocks += 1);
}

fn change(scratch: &Scratch, change: fn(&mut Superblock)) {
    let image = fs::File::options().read(true).write(true).open(&scratch.volume).unwrap();
    let superblocks = (0..2u32).filter_map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        image.read_exact_at(&mut block, u64::from(slot) * BLOCK_SIZE as u64).unwrap();
        match Superblock::decode(&block, slot) {
            SlotState::Valid(sb) => Some((slot, sb)),
            _ => None,
        }
    });
    let (slot, mut sb) = superblocks.max_by_key(|(_, sb)| sb.generation).unwrap();
    change(&mut sb);
    image.write_all_at(&sb.encode(slot)[..], u64::from(slot) * BLOCK_SIZE as u64).unwrap();
}

fn undo_file(scratch: &Scratch) -> PathBuf {
    PathBuf::from(format!("{}.undo", text(&scratch.volume)))
}

/// Promises that a repair is shown, written, told as JSON, and taken back byte for byte; that a second one
/// does not write over the undo file of the first; and that nothing is taken back from under a later change.
#[test]
fn a_repair_is_made_and_taken_back() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    damage(&scratch);
    let before = fs::read(&scratch.volume).unwrap();
    assert_eq!(run(["check", volume]).status.code(), Some(1));
    let asked = yore().args(["check", "--repair=ask", volume]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(asked.status.code(), Some(1), "{}", error_text(&asked));
    assert!(String::from_utf8_lossy(&asked.stdout)
        .contains("repair: 1 times the superblock's count of free blocks"));
    assert!(fs::read(&scratch.volume).unwrap() == before && !undo_file(&scratch).exists());

    let report: Value = serde_json::from_str(&ok(["check", "--repair", "--json", volume])).unwrap();
    assert_eq!(report["findings"][0]["problem"], "total-free-blocks");
    assert_eq!(report["findings"][0]["repair"], "the total is set to what was counted");
    assert_eq!(report["findings"][0]["effect"]["repair"], "the total is set to what was counted");
    assert_eq!(report["findings"][0]["effect"]["lost"].as_array().map(Vec::len), Some(0));
    let repair = &report["repair"];
    assert_eq!(
        (&repair["complete"], &repair["done"][0]["problem"]),
        (&true.into(), &"total-free-blocks".into())
    );
    assert_eq!(repair["undo_file"], text(&undo_file(&scratch)));
    ok(["check", volume]);
    ok(["check", "--repair", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]), "content");
    ok(["check", "--undo", volume]);
    assert!(fs::read(&scratch.volume).unwrap() == before, "as before, byte for byte");

    assert!(fails(3, ["check", "--repair", volume]).contains("it exists, of another repair"));
    let other = scratch.path("other.undo");
    ok(["check", "--repair", "--undo-file", text(&other), volume]);
    put(&scratch, "/g", "a later change");
    assert!(fails(3, ["check", "--undo", "--undo-file", text(&other), volume]).contains("since the repair"));
    ok(["check", volume]);
}

/// Calls `check --repair=ask` and gives these answers.
fn asked(scratch: &Scratch, answers: &str) -> std::process::Output {
    asked_with(scratch, &[], answers)
}

fn asked_with(scratch: &Scratch, options: &[&str], answers: &str) -> std::process::Output {
    let mut command = yore();
    command.args(["check", "--repair=ask"]).args(options).arg(text(&scratch.volume)).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Promises that people are asked about each finding: what they leave stays, the rest is repaired; `a` stands
/// for all that follow, and with `q` nothing is written.
#[test]
fn people_are_asked_about_each_finding() {
    let found = |scratch: &Scratch| -> Vec<String> {
        let output = run(["check", "--json", text(&scratch.volume)]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["problem"].as_str().unwrap().to_string()).collect()
    };
    let scratch = Scratch::new();
    put(&scratch, "/f", "content");
    change(&scratch, |sb| (sb.free_blocks, sb.inodes) = (sb.free_blocks + 1, sb.inodes + 1));
    let before = fs::read(&scratch.volume).unwrap();
    let output = asked(&scratch, "y\nwhat?\nq\n");
    let said = error_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(1 of 2)? [y/n/a/q]") && said.contains("y: repair it, n: leave it"), "{said}");
    assert!(fs::read(&scratch.volume).unwrap() == before && !undo_file(&scratch).exists());
    let output = asked(&scratch, "n\nn\n");
    assert!(output.status.code() == Some(1) && fs::read(&scratch.volume).unwrap() == before);
    let output = asked(&scratch, "n\ny\n");
    assert_eq!(output.status.code(), Some(1), "something is left: {}", error_text(&output));
    assert_eq!(found(&scratch), ["total-free-blocks"]);
    ok(["check", "--undo", text(&scratch.volume)]);
    assert!(fs::read(&scratch.volume).unwrap() == before);
    fs::remove_file(undo_file(&scratch)).unwrap();
    assert_eq!(asked(&scratch, "a\n").status.code(), Some(0));
    assert!(found(&scratch).is_empty());
}

/// People were asked about as many findings as `--max-findings` shows, and the others were repaired without a
/// question. Promises that they are asked about all.
#[test]
fn people_are_asked_about_findings_that_are_not_shown() {
    let scratch = Scratch::new();
    put(&scratch, "/f", "content");
    change(&scratch, |sb| (sb.free_blocks, sb.inodes) = (sb.free_blocks + 1, sb.inodes + 1));
    let before = fs::read(&scratch.volume).unwrap();
    let output = asked_with(&scratch, &["--max-findings", "1"], "n\nn\n");
    let said = error_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(1 of 2)?") && said.contains("(2 of 2)?"), "{said}");
    assert!(fs::read(&scratch.volume).unwrap() == before && !undo_file(&scratch).exists());
    let output = asked_with(&scratch, &["--max-findings", "1"], "n\ny\n");
    assert_eq!(output.status.code(), Some(1), "something is left: {}", error_text(&output));
    let report: Value =
        serde_json::from_slice(&run(["check", "--json", text(&scratch.volume)]).stdout).unwrap();
    assert_eq!(report["findings_count"], 1, "{report}");
    assert_eq!(report["findings"][0]["problem"], "total-free-blocks");
}

/// Promises that a volume that is longer than its device is left as it is, though other findings have a
/// repair; the advice names an option, and with it all is repaired.
#[test]
fn what_cannot_be_repaired_is_left_alone() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    change(&scratch, |sb| {
        sb.free_blocks += 1;
        // The device is too short for that.
        sb.volume_blocks += 1;
    });
    let before = fs::read(&scratch.volume).unwrap();
    let output = run(["check", "--repair", volume]);
    assert_eq!(output.status.code(), Some(1), "{}", error_text(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("cannot be repaired here") && said.contains("nothing was written"), "{said}");
    assert!(said.contains("--shorten gives up what lay there"), "{said}");
    assert!(fs::read(&scratch.volume).unwrap() == before && !undo_file(&scratch).exists());
    ok(["check", "--repair", "--shorten", volume]);
    ok(["check", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]), "content");
}

/// Promises that a damaged block of inodes is repaired, and what may be lost is said.
#[test]
fn a_damaged_block_of_inodes_is_repaired() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    let shown = ok(["inspect", volume, "inode", "16"]);
    let block: u64 = shown.split(" at ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let image = fs::File::options().write(true).open(&scratch.volume).unwrap();
    image.write_all_at(&[0xff; 8], block * 4096 + 4000).unwrap();
    assert_eq!(run(["check", volume]).status.code(), Some(1));
    let said = ok(["check", "--repair", volume]);
    assert!(said.contains("lost: /f:") && said.contains("may be wrong"), "{said}");
    ok(["check", volume]);
    assert_eq!(ok(["cat", &scratch.on("/f")]), "content");
}

/// Promises fsck(8)'s codes: at boot damage is reported, with -y it is repaired.
#[test]
fn fsck_repairs_with_y() {
    let scratch = Scratch::new();
    let volume = text(&scratch.volume);
    put(&scratch, "/f", "content");
    damage(&scratch);
    let fsck = scratch.path("fsck.yore");
    symlink(yore().get_program(), &fsck).unwrap();
    let status = |options: &[&str]| {
        std::process::Command::new(&fsck).args(options).arg(volume).output().unwrap().status.code()
    };
    assert_eq!(status(&["-a", "-f"]), Some(4));
    assert_eq!(status(&["-y"]), Some(1));
    assert_eq!(status(&["-f", "-a"]), Some(0));
}
