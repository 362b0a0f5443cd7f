//! `restore`, `undelete` and `rollback` of files and directories with flags (`chattr`), on mounts and on
//! volumes that are not mounted.

mod common;

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
trait Place {
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

impl Place for Mount<'_> {
    fn on(&self, path: &str) -> String {
        format!("{}{path}", text(&self.directory))
    }
    fn flags(&self, path: &str) -> IFlags {
        ioctl_getflags(File::open(Place::on(self, path)).unwrap()).unwrap()
    }
    fn set(&self, path: &str, flags: IFlags) {
        ioctl_setflags(File::open(Place::on(self, path)).unwrap(), flags).unwrap();
    }
    fn write(&self, path: &str, content: &str) {
        fs::write(Place::on(self, path), content).unwrap();
    }
    fn read(&self, path: &str) -> String {
        fs::read_to_string(Place::on(self, path)).unwrap()
    }
    fn remove(&self, path: &str) {
        let path = Place::on(self, path);
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

impl Place for Scratch {
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

fn both(work: impl Fn(&dyn Place)) {
    work(&scratch());
    let of_mount = scratch();
    let Some(mount) = Mount::new(&of_mount, &[]) else { return };
    work(&mount);
    mount.umount();
    ok(["check", text(&of_mount.volume)]);
}

/// The number of snapshots, including undo points.
fn events(place: &dyn Place) -> usize {
    let all = ok(["snapshots", "--all", "--json", &place.on("/d")]);
    serde_json::from_str::<Vec<Value>>(&all).unwrap().len()
}

/// An append-only log and an immutable file came back as files that anybody could empty.
#[test]
fn flags_come_back() {
    both(|place| {
        let wanted = IFlags::IMMUTABLE | IFlags::NODUMP;
        place.write("/d/sub/log", "log");
        place.write("/d/plain", "plain");
        place.set("/d/file", wanted);
        place.set("/d/sub/log", IFlags::APPEND);
        place.set("/d/sub", IFlags::APPEND | IFlags::NOATIME);
        ok(["snapshot", &place.on("/d"), "-n", "then"]);
        for path in ["/d/file", "/d/sub", "/d/sub/log"] {
            place.set(path, IFlags::empty());
        }
        // Nothing but the flags differs.
        assert!(ok(["restore", "-n", &place.on("/d@then/file")]).starts_with("M  "));
        ok(["restore", &place.on("/d@then/file")]);
        assert_eq!(place.flags("/d/file"), wanted);
        let output = run(["restore", &place.on("/d@then/file")]);
        assert!(error_text(&output).contains("already as it was"), "{}", error_text(&output));
        // A file that was changed; one that is gone; a directory with what was in it.
        place.set("/d/file", IFlags::empty());
        place.write("/d/file", "two");
        ok(["restore", &place.on("/d@then/file")]);
        assert_eq!((place.read("/d/file").as_str(), place.flags("/d/file")), ("one", wanted));
        place.set("/d/file", IFlags::empty());
        place.remove("/d/file");
        ok(["undelete", &place.on("/d/file")]);
        // As it was seen last: at the end of that restore.
        assert_eq!((place.read("/d/file").as_str(), place.flags("/d/file")), ("one", wanted));
        place.remove("/d/sub");
        ok(["restore", &place.on("/d@then")]);
        assert_eq!(place.flags("/d/file"), wanted);
        assert_eq!(place.flags("/d/sub"), IFlags::APPEND | IFlags::NOATIME);
        assert_eq!((place.read("/d/sub/log").as_str(), place.flags("/d/sub/log")), ("log", IFlags::APPEND));
        assert_eq!(place.flags("/d/plain"), IFlags::empty());
        let output = run(["restore", &place.on("/d@then")]);
        assert!(error_text(&output).contains("as it was"), "{}", error_text(&output));
    });
}

/// A file that is immutable now stopped a restore in the middle, with a useless undo point. The command now
/// says so before it begins; a rollback by root succeeds.
#[test]
fn what_is_protected_now() {
    both(|place| {
        place.write("/d/other", "one");
        ok(["snapshot", &place.on("/d"), "-n", "then"]);
        for path in ["/d/file", "/d/other"] {
            place.write(path, "two");
        }
        for protected in ["/d/other", "/d"] {
            place.set(protected, IFlags::IMMUTABLE);
            let before = events(place);
            for what in ["/d@then/other", "/d@then"] {
                let message = fails(3, ["restore", &place.on(what)]);
                assert!(message.contains(&place.on(protected)) && message.contains("chattr -i"), "{message}");
            }
            assert_eq!((events(place), place.read("/d/file").as_str()), (before, "two"), "nothing was begun");
            place.set("/d", IFlags::empty());
        }
        place.set("/d", IFlags::APPEND);
        if rustix::process::geteuid().is_root() {
            ok(["rollback", &place.on("/d@then")]);
            assert_eq!((place.read("/d/file"), place.read("/d/other")), ("one".into(), "one".into()));
            let now = ["/d/file", "/d/other", "/d"].map(|path| place.flags(path));
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
        chown(Place::on(&mount, path), Some(OWNER), Some(OWNER)).unwrap();
    }
    mount.set("/d/file", IFlags::IMMUTABLE | IFlags::NODUMP);
    ok(["snapshot", &Place::on(&mount, "/d"), "-n", "then"]);
    mount.set("/d/file", IFlags::empty());
    mount.write("/d/file", "two");
    let restore = || {
        let then = Place::on(&mount, "/d@then/file");
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
