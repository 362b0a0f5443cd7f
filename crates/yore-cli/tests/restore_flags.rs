//! `restore`, `undelete` and `rollback` of files and directories with flags (`chattr`), on mounts and on
//! volumes that are not mounted.

use crate::common;

use common::{error_text, fails, ok, run, scratch, text, yore, Mount, Scratch};
use rustix::fs::{ioctl_getflags, ioctl_setflags, IFlags};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::sync::Arc;
use yore_device::{FileDevice, OpenOptions};
use yore_fs::{InodeFlags, MountOptions, Volume};

/// Works on files, wherever the volume is.
trait Files {
    fn on(&self, path: &str) -> String;
    fn flags(&self, path: &str) -> IFlags;
    fn set(&self, path: &str, flags: IFlags);
    fn write(&self, path: &str, content: &str);
    fn read(&self, path: &str) -> String {
        ok(["cat", &self.on(path)])
    }
    fn remove(&self, path: &str) {
        ok(["rm", "-r", &self.on(path)]);
    }
}

impl Files for Mount<'_> {
    fn on(&self, path: &str) -> String {
        format!("{}{path}", text(&self.directory))
    }
    fn flags(&self, path: &str) -> IFlags {
        ioctl_getflags(File::open(Files::on(self, path)).unwrap()).unwrap()
    }
    fn set(&self, path: &str, flags: IFlags) {
        ioctl_setflags(File::open(Files::on(self, path)).unwrap(), flags).unwrap();
    }
    fn write(&self, path: &str, content: &str) {
        fs::write(Files::on(self, path), content).unwrap();
    }
    fn read(&self, path: &str) -> String {
        fs::read_to_string(Files::on(self, path)).unwrap()
    }
    fn remove(&self, path: &str) {
        let path = Files::on(self, path);
        match fs::symlink_metadata(&path).unwrap().is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

const FLAGS: [(InodeFlags, IFlags); 4] = [
    (InodeFlags::IMMUTABLE, IFlags::IMMUTABLE),
    (InodeFlags::APPEND_ONLY, IFlags::APPEND),
    (InodeFlags::NO_DUMP, IFlags::NODUMP),
    (InodeFlags::NO_ACCESS_TIMES, IFlags::NOATIME),
];

fn with_volume<T>(scratch: &Scratch, work: impl FnOnce(&Volume) -> T) -> T {
    let device = FileDevice::open(&scratch.volume, OpenOptions::default()).unwrap();
    let volume = Volume::open(Arc::new(device), &MountOptions::default()).unwrap();
    let done = work(&volume);
    volume.close().unwrap();
    done
}

impl Files for Scratch {
    fn on(&self, path: &str) -> String {
        Scratch::on(self, path)
    }
    fn flags(&self, path: &str) -> IFlags {
        let found = with_volume(self, |volume| volume.node(path).unwrap().attr().flags);
        let set = FLAGS.iter().filter(|(flag, _)| found.contains(*flag));
        set.fold(IFlags::empty(), |flags, (_, flag)| flags | *flag)
    }
    fn set(&self, path: &str, flags: IFlags) {
        let set = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
        let flags = set.fold(InodeFlags::empty(), |flags, (flag, _)| flags | *flag);
        with_volume(self, |volume| {
            volume.view().set_flags(volume.node(path).unwrap().inode(), flags).unwrap();
        });
    }
    fn write(&self, path: &str, content: &str) {
        common::put(self, path, content);
    }
}

fn both(work: impl Fn(&dyn Files)) {
    work(&scratch());
    let of_mount = scratch();
    let Some(mount) = Mount::new(&of_mount, &[]) else { return };
    work(&mount);
    mount.umount();
    ok(["check", text(&of_mount.volume)]);
}

/// The number of snapshots, including undo points.
fn events(files: &dyn Files) -> usize {
    let all = ok(["snapshots", "--all", "--json", &files.on("/d")]);
    serde_json::from_str::<Vec<Value>>(&all).unwrap().len()
}

/// An append-only log and an immutable file came back as files that anybody could empty.
#[test]
fn flags_come_back() {
    both(|files| {
        let wanted = IFlags::IMMUTABLE | IFlags::NODUMP;
        files.write("/d/sub/log", "log");
        files.write("/d/plain", "plain");
        files.set("/d/file", wanted);
        files.set("/d/sub/log", IFlags::APPEND);
        files.set("/d/sub", IFlags::APPEND | IFlags::NOATIME);
        ok(["snapshot", &files.on("/d"), "-n", "then"]);
        for path in ["/d/file", "/d/sub", "/d/sub/log"] {
            files.set(path, IFlags::empty());
        }
        // Nothing but the flags differs.
        assert!(ok(["restore", "-n", &files.on("/d@then/file")]).starts_with("M  "));
        ok(["restore", &files.on("/d@then/file")]);
        assert_eq!(files.flags("/d/file"), wanted);
        let output = run(["restore", &files.on("/d@then/file")]);
        assert!(error_text(&output).contains("already as it was"), "{}", error_text(&output));
        // A file that was changed; one that is gone; a directory with what was in it.
        files.set("/d/file", IFlags::empty());
        files.write("/d/file", "two");
        ok(["restore", &files.on("/d@then/file")]);
        assert_eq!((files.read("/d/file").as_str(), files.flags("/d/file")), ("one", wanted));
        files.set("/d/file", IFlags::empty());
        files.remove("/d/file");
        ok(["undelete", &files.on("/d/file")]);
        // As it was seen last: at the end of that restore.
        assert_eq!((files.read("/d/file").as_str(), files.flags("/d/file")), ("one", wanted));
        files.remove("/d/sub");
        ok(["restore", &files.on("/d@then")]);
        assert_eq!(files.flags("/d/file"), wanted);
        assert_eq!(files.flags("/d/sub"), IFlags::APPEND | IFlags::NOATIME);
        assert_eq!((files.read("/d/sub/log").as_str(), files.flags("/d/sub/log")), ("log", IFlags::APPEND));
        assert_eq!(files.flags("/d/plain"), IFlags::empty());
        let output = run(["restore", &files.on("/d@then")]);
        assert!(error_text(&output).contains("as it was"), "{}", error_text(&output));
    });
}

/// A file that is immutable now stopped a restore in the middle, with a useless undo point. The command now
/// says so before it begins; a rollback by root succeeds.
#[test]
fn what_is_protected_now() {
    both(|files| {
        files.write("/d/other", "one");
        ok(["snapshot", &files.on("/d"), "-n", "then"]);
        for path in ["/d/file", "/d/other"] {
            files.write(path, "two");
        }
        for protected in ["/d/other", "/d"] {
            files.set(protected, IFlags::IMMUTABLE);
            let before = events(files);
            for what in ["/d@then/other", "/d@then"] {
                let message = fails(3, ["restore", &files.on(what)]);
                assert!(message.contains(&files.on(protected)) && message.contains("chattr -i"), "{message}");
            }
            assert_eq!((events(files), files.read("/d/file").as_str()), (before, "two"), "nothing was begun");
            files.set("/d", IFlags::empty());
        }
        files.set("/d", IFlags::APPEND);
        if rustix::process::geteuid().is_root() {
            ok(["rollback", &files.on("/d@then")]);
            assert_eq!((files.read("/d/file"), files.read("/d/other")), ("one".into(), "one".into()));
            let now = ["/d/file", "/d/other", "/d"].map(|path| files.flags(path));
            assert_eq!(now, [IFlags::empty(); 3]);
        }
    });
}

/// Only root may make a file immutable. A user who restores a file gets the flags that the user may set, and
/// learns of the others.
#[test]
fn flags_of_root_are_left_out() {
    const OWNER: u32 = 4711;
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    if yore().arg("--version").uid(OWNER).current_dir("/").status().ok().and_then(|s| s.code()) != Some(0) {
        eprintln!("SKIPPED: needs root, and a program that others can start");
        return;
    }
    for path in [scratch.path(""), mount.directory.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for path in ["/d", "/d/file"] {
        chown(Files::on(&mount, path), Some(OWNER), Some(OWNER)).unwrap();
    }
    mount.set("/d/file", IFlags::IMMUTABLE | IFlags::NODUMP);
    ok(["snapshot", &Files::on(&mount, "/d"), "-n", "then"]);
    mount.set("/d/file", IFlags::empty());
    mount.write("/d/file", "two");
    let restore = || {
        let then = Files::on(&mount, "/d@then/file");
        let output = yore().args(["restore", &then]).uid(OWNER).gid(OWNER).current_dir("/").output().unwrap();
        assert!(output.status.success(), "{}", error_text(&output));
        error_text(&output)
    };
    let told = restore();
    assert!(told.contains("immutable") && told.contains("only root"), "{told}");
    assert_eq!((mount.read("/d/file").as_str(), mount.flags("/d/file")), ("one", IFlags::NODUMP));
    assert!(restore().contains("already"), "nothing else can be done");
    mount.umount();
}
