//! `restore` and `undelete` of pipes and devices on a mount.

use crate::common;

use common::{error_text, ok, run, scratch, text, Mount};
use rustix::fs::{makedev, mknodat, FileType, Mode, CWD};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

/// No pipe of the past could be put back on a mount: the snapshot was pinned through the pipe itself, which
/// no daemon hears of. And a device was opened for that.
#[test]
fn they_come_back() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", "dev"]) else { return };
    let dir = mount.directory.join("d");
    let (pipe, device) = (dir.join("pipe"), dir.join("device"));
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    if rustix::process::geteuid().is_root() {
        // No driver has this number: it cannot be opened.
        mknodat(CWD, &device, FileType::CharacterDevice, mode, makedev(240, 77)).unwrap();
    }
    ok(["snapshot", text(&dir), "-n", "then"]);
    let (past, past_device) = (format!("{}@then/pipe", text(&dir)), format!("{}@then/device", text(&dir)));
    for then in [&past, &format!("{}@then", text(&pipe)), &format!("{}/.@then/pipe", text(&dir))] {
        fs::remove_file(&pipe).unwrap();
        ok(["restore", then]);
        let found = fs::symlink_metadata(&pipe).unwrap();
        assert!(found.file_type().is_fifo() && found.mode() & 0o7777 == 0o640, "{found:?}");
    }
    fs::remove_file(&pipe).unwrap();
    ok(["undelete", text(&pipe)]);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    ok(["restore", &past, "--to", text(&dir.join("sub"))]);
    assert!(fs::symlink_metadata(dir.join("sub/pipe")).unwrap().file_type().is_fifo());
    // What is neither a file nor a directory has no history of its own to ask for.
    let refused = run(["rollback", &past]);
    assert!(
        !refused.status.success() && error_text(&refused).contains("neither"),
        "{}",
        error_text(&refused)
    );
    if device.exists() {
        fs::remove_file(&device).unwrap();
        ok(["restore", &past_device]);
        let found = fs::symlink_metadata(&device).unwrap();
        assert!(found.file_type().is_char_device() && found.rdev() == makedev(240, 77), "{found:?}");
    }
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}
