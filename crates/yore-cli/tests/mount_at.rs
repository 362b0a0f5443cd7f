//! Promises of `mount --at`: a snapshot is mounted by itself, beside the present by the same daemon or alone.
//! It stays as long as it is mounted. If it cannot be mounted, the message explains why. Everything ends in
//! good order.

use crate::common;

use common::{fails, is_mounted, ok, put, scratch, text, wait_for_end, Mount, Scratch};
use rustix::process::{kill_process, Signal};
use std::fs;
use std::path::PathBuf;

/// A directory that is unmounted in the end.
struct Mountpoint(PathBuf);

impl Mountpoint {
    fn new(scratch: &Scratch, name: &str) -> Mountpoint {
        let path = scratch.path(name);
        fs::create_dir_all(&path).unwrap();
        Mountpoint(path)
    }

    fn text(&self) -> &str {
        text(&self.0)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            common::run(["umount", "--lazy", self.text()]);
        }
    }
}

/// Beside the present: there is one daemon, a mounted snapshot is not forgotten, by name or by rule, and each
/// is unmounted by itself.
#[test]
fn beside_the_present() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (vol, mnt) = (text(&scratch.volume), text(&mount.directory));
    let file = mount.directory.join("d/file");
    ok(["snapshot", mnt, "-n", "first"]);
    fs::write(&file, "two").unwrap();
    let second = ok(["snapshot", mnt]).trim().to_string();
    fs::write(&file, "three").unwrap();
    let (one, two) = (Mountpoint::new(&scratch, "one"), Mountpoint::new(&scratch, "two"));
    ok(["mount", vol, one.text(), "--at", "first"]);
    ok(["mount", vol, two.text(), "--at", &second, "-o", "past=owner,noexec"]);
    assert_eq!((one.read("d/file"), two.read("d/file")), ("one".into(), "two".into()));
    assert_eq!(fs::read(&file).unwrap(), b"three");
    assert_eq!(fs::write(one.0.join("x"), "").unwrap_err().raw_os_error(), Some(30));
    let info = mount.info();
    assert_eq!(info["mounted_snapshots"][0]["at"], "first");
    assert_eq!(info["mounted_snapshots"][1]["directory"], two.text());
    let info: serde_json::Value = serde_json::from_str(&ok(["info", "--json", one.text()])).unwrap();
    assert_eq!(
        (&info["at"], &info["read_only"], &info["pid"]),
        (&"first".into(), &true.into(), &mount.info()["pid"])
    );
    assert!(ok(["info", one.text()]).contains("As of:      first"));
    assert!(ok(["df"]).contains(&format!("{}@first", scratch.volume.file_name().unwrap().display())));
    // It stays.
    let message = fails(3, ["forget", &format!("{mnt}/.@first")]);
    assert!(message.contains(one.text()) && message.contains("umount"), "{message}");
    let kept = ok(["forget", mnt, "--keep-last", "1", "--names", "--dry-run"]);
    assert!(kept.contains("mounted") && !kept.contains("forget  "), "{kept}");
    // The present cannot be unmounted while the snapshot is mounted, unless both are.
    let message = fails(3, ["umount", mnt]);
    assert!(message.contains(one.text()) && message.contains(two.text()), "{message}");
    let open = fs::File::open(one.0.join("d/file")).unwrap();
    assert!(fails(3, ["umount", one.text()]).contains("busy"));
    drop(open);
    ok(["umount", one.text()]);
    assert!(!is_mounted(&one.0) && is_mounted(&two.0));
    ok(["forget", &format!("{mnt}/.@first")]);
    assert!(fails(3, ["mount", vol, one.text(), "--at", "first"]).contains("no snapshot of that name"));
    ok(["umount", mnt, two.text()]);
    assert!(!is_mounted(&mount.directory) && !is_mounted(&two.0));
    ok(["check", vol]);
}

/// Without the present the volume is opened for reading only. Several mounts share a daemon, which ends with
/// the last; meanwhile others learn who has the volume.
#[test]
fn without_the_present() {
    if !common::can_mount() {
        return;
    }
    let scratch = scratch();
    let vol = text(&scratch.volume);
    ok(["snapshot", vol, "-n", "first"]);
    put(&scratch, "/d/file", "two");
    ok(["snapshot", &scratch.on("/d"), "-n", "of-d"]);
    let before = fs::read(&scratch.volume).unwrap();
    let mountpoints = [
        Mountpoint::new(&scratch, "one"),
        Mountpoint::new(&scratch, "two"),
        Mountpoint::new(&scratch, "three"),
    ];
    let [one, two, three] = &mountpoints;
    ok(["mount", "--at", "first", vol, one.text()]);
    ok(["mount", "--at=now", &scratch.on("/d"), two.text()]);
    assert_eq!((one.read("d/file"), two.read("file")), ("one".into(), "two".into()));
    assert_eq!(fs::canonicalize(two.0.join("sub/..")).unwrap(), two.0.canonicalize().unwrap());
    for refused in [&["mount", vol, three.text()][..], &["snapshot", vol], &["umount", vol]] {
        let message = fails(3, refused);
        assert!(refused[0] == "snapshot" || message.contains(one.text()), "{refused:?}: {message}");
    }
    assert!(ok(["snapshots", vol]).contains("first"));
    ok(["umount", one.text()]);
    assert_eq!(two.read("file"), "two");
    ok(["mount", vol, three.text(), "--at", "first"]);
    assert_eq!(three.read("d/file"), "one");
    ok(["umount", two.text(), three.text()]);
    assert!(fs::read(&scratch.volume).unwrap() == before, "nothing was written");
    ok(["check", vol]);
}

/// If a snapshot cannot be mounted, the message explains why, and nothing is left behind.
#[test]
fn what_cannot_be_mounted() {
    if !common::can_mount() {
        return;
    }
    let scratch = scratch();
    let vol = text(&scratch.volume);
    let mountpoint = Mountpoint::new(&scratch, "place");
    let refused = |status: i32, vol: &str, options: &[&str], says: &str| {
        let message = fails(status, ["mount", vol, mountpoint.text()].iter().chain(options));
        assert!(message.contains(says), "{options:?}: {message}");
        assert!(!is_mounted(&mountpoint.0));
    };
    refused(3, vol, &["--at", "now"], "there are no snapshots");
    ok(["snapshot", &scratch.on("/d"), "-n", "of-d"]);
    refused(3, vol, &["--at", "now"], "of other directories, as /d");
    refused(3, vol, &["--at", "of-d"], "that snapshot is of /d");
    ok(["snapshot", vol, "-n", "all"]);
    let check = || {
        refused(2, vol, &["--at", "5m"], "Accepted are");
        refused(3, vol, &["--at", "1990-01-01"], "the first snapshot that shows it is of");
        refused(3, vol, &["--at", "nothing"], "no snapshot of that name");
        refused(3, &scratch.on("/nothing"), &["--at", "all"], "does not show /nothing");
        refused(3, &scratch.on("/d/file"), &["--at", "all"], "no directory");
        refused(2, vol, &["--at", "all", "-o", "snapdir=.yore"], "snapdir");
        refused(2, &scratch.on("/d"), &[], "--at TIME");
    };
    check();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    check();
    let message = fails(3, ["mount", vol, text(&mount.directory), "--at", "all"]);
    assert!(message.contains("already mounted"), "{message}");
    assert!(
        fails(3, ["mount", vol, text(&scratch.path("none")), "--at", "all"]).contains("no such directory")
    );
    mount.umount();
}

/// When the daemon dies all its mounts are dead, and are replaced one by one; a signal ends all in good
/// order.
#[test]
fn the_end_of_the_daemon() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (vol, mountpoint) = (text(&scratch.volume), Mountpoint::new(&scratch, "place"));
    ok(["snapshot", text(&mount.directory), "-n", "then"]);
    ok(["mount", vol, mountpoint.text(), "--at", "then"]);
    let pid = mount.pid();
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_end(pid);
    ok(["mount", vol, mountpoint.text(), "--at", "then"]);
    assert_eq!(mountpoint.read("d/file"), "one");
    ok(["umount", mountpoint.text()]);
    mount.again(&[]);
    ok(["mount", vol, mountpoint.text(), "--at", "then"]);
    let open = fs::File::open(mountpoint.0.join("d/file")).unwrap();
    let pid = mount.pid();
    kill_process(pid, Signal::TERM).unwrap();
    wait_for_end(pid);
    assert!(!is_mounted(&mount.directory) && !is_mounted(&mountpoint.0));
    drop(open);
    ok(["check", vol]);
}

/// The present may be unmounted by others while a snapshot is mounted: the volume is closed then, and the
/// snapshot stays.
#[test]
fn the_present_taken_away_by_others() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let (vol, mountpoint) = (text(&scratch.volume), Mountpoint::new(&scratch, "place"));
    ok(["snapshot", text(&mount.directory), "-n", "then"]);
    fs::write(mount.directory.join("d/file"), "two").unwrap();
    ok(["mount", vol, mountpoint.text(), "--at", "then"]);
    let pid = mount.pid();
    rustix::mount::unmount(&mount.directory, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(mountpoint.read("d/file"), "one");
    let busy = fails(3, ["mount", vol, text(&mount.directory)]);
    assert!(busy.contains(mountpoint.text()), "{busy}");
    ok(["umount", mountpoint.text()]);
    wait_for_end(pid);
    ok(["check", vol]);
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "two");
}

/// An option sets the directory of snapshots; if a file has its name, a message says so.
#[test]
fn a_directory_of_snapshots() {
    let scratch = scratch();
    ok(["snapshot", text(&scratch.volume), "-n", "then"]);
    put(&scratch, "/d/file", "two");
    let Some(mount) = Mount::new(&scratch, &["-o", "snapdir=.old"]) else { return };
    assert_eq!(fs::read(mount.directory.join(".old/then/d/file")).unwrap(), b"one");
    mount.umount();
    let output = common::run(["mount", text(&scratch.volume), text(&mount.directory), "-o", "snapdir=d"]);
    let said = common::error_text(&output);
    assert!(output.status.success() && said.contains("named d"), "{said}");
    assert_eq!(fs::read(mount.directory.join("d/file")).unwrap(), b"two");
    mount.umount();
    for wrong in ["snapdir=a/b", "snapdir=", "past=me"] {
        let message = fails(2, ["mount", text(&scratch.volume), text(&mount.directory), "-o", wrong]);
        assert!(message.contains(wrong.split('=').next().unwrap()), "{message}");
    }
}
