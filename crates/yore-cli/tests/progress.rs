//! Progress: a bar with the time left on a terminal, JSON lines on request, and nothing else.

use crate::common;

use common::{fails, ok, run, text, yore, Mount, Scratch};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Stdio;

/// Both ends of a new terminal: ours, and that of the program on it.
fn terminal() -> (File, OwnedFd) {
    let (mut own, mut programs) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both numbers are written before the call returns 0; it asks for no name or settings; the size
    // is only read.
    let opened = unsafe {
        libc::openpty(
            &mut own,
            &mut programs,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw const size).cast_mut(),
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: they were opened just now, and nobody else has them.
    unsafe { (File::from_raw_fd(own), OwnedFd::from_raw_fd(programs)) }
}

/// The output on a terminal of a command that succeeds.
fn shows(args: &[&str]) -> String {
    let (mut own, programs) = terminal();
    // The parent's copy of the other end must be closed before the end of the output can be read.
    let mut child =
        yore().args(args).stderr(programs).stdout(Stdio::null()).env("TERM", "xterm").spawn().unwrap();
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    // EIO: nobody has the other end any more.
    while let Ok(count) = own.read(&mut part) {
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&part[..count]);
    }
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
}

/// A large copy on a terminal shows how much is done and how long the rest takes; with `--quiet`, or without
/// a terminal, it does not. The bar disappears at the end.
#[test]
fn a_bar_on_a_terminal() {
    let scratch = Scratch::new();
    let file = scratch.file("file", vec![7; 20 << 20]);
    let dest = scratch.on("/file");
    let shown = shows(&["put", text(&file), &dest]);
    assert!(shown.contains("/20.00 MiB") && shown.contains(" left"), "{shown:?}");
    assert!(shown.ends_with("\r\u{1b}[2K") || shown.trim_end().ends_with("\u{1b}[2K"), "{shown:?}");
    assert_eq!(shows(&["put", "--quiet", text(&file), &dest]), "");
    let output = run(["put", text(&file), &dest]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(fails(3, ["put", "--progress-fd", "99", text(&file), &dest]).contains("99"));
}

/// `forget` on a mount showed how much space the daemon has freed so far, and `expunge` did not. With a
/// descriptor both wait until that is done.
#[test]
fn a_daemon_is_watched() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = text(&mount.directory);
    let write =
        || (0..200).for_each(|n| fs::write(mount.directory.join(format!("f{n}")), [7; 9000]).unwrap());
    let watched = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<serde_json::Value> =
            told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(
            lines.iter().any(|line| line["done"].is_u64() && line.get("total").is_some()),
            "{args:?}: {told}"
        );
    };
    write();
    ok(["snapshot", root, "-n", "first"]);
    write();
    ok(["snapshot", root, "-n", "second"]);
    (0..200).for_each(|n| fs::remove_file(mount.directory.join(format!("f{n}"))).unwrap());
    watched(&["forget", "--progress-fd", "1", &format!("{root}@first")]);
    watched(&[
        "expunge",
        "-y",
        "--progress-fd",
        "1",
        &format!("{root}/.@second/f0"),
        &format!("{root}/.@second/f1"),
    ]);
    // On a terminal it ends, too.
    shows(&["expunge", "-y", &format!("{root}/.@second/f2")]);
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}
