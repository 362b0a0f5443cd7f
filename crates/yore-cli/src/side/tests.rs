//! What others have put at a name, or put there meanwhile, is not written to.

use super::anchored::Anchored;
use super::*;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with a file that nothing may happen to, and its attributes.
struct Scratch {
    directory: TempDir,
    victim: (PathBuf, (u32, u32, i64, i64)),
}

fn attributes(path: &Path) -> (u32, u32, i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.mode(), found.uid(), found.mtime(), found.ctime_nsec())
}

impl Scratch {
    fn new() -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "victim").unwrap();
        let before = attributes(&victim);
        Scratch { directory, victim: (victim, before) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[track_caller]
    fn must_be_untouched(&self) {
        let (victim, before) = &self.victim;
        assert_eq!(fs::read_to_string(victim).unwrap(), "victim");
        assert_eq!(attributes(victim), *before);
    }
}

/// The attributes of a file, but with other permissions and times.
fn others(path: &Path) -> Facts {
    let found = Host.facts(path).unwrap().unwrap();
    let mtime = Timestamp { seconds: 77, nanos: 5 };
    Facts { permissions: 0o640, atime: mtime, mtime, ..found }
}

/// Promises that a file is created under a new name only, and that a symbolic link is not followed to empty a
/// file.
#[test]
fn create_is_exclusive() {
    let scratch = Scratch::new();
    let (dangling, absent) = (scratch.path("dangling"), scratch.path("absent"));
    symlink(&absent, &dangling).unwrap();
    let link = scratch.path("link");
    symlink(&scratch.victim.0, &link).unwrap();
    for side in [&Host as &dyn Side, &Anchored::new(None)] {
        for path in [&dangling, &link, &scratch.victim.0] {
            let error = side.create(path).err().unwrap();
            let error = error.downcast_ref::<io::Error>().unwrap().kind();
            assert_eq!(error, io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        assert!(side.empty(&dangling).is_err());
        assert!(side.empty(&link).is_err());
        assert!(!absent.exists());
        scratch.must_be_untouched();
    }
    let new = scratch.path("new");
    Host.create(&new).unwrap().write_at(b"long", 0).unwrap();
    Host.empty(&new).unwrap().write_at(b"new", 0).unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"new");
}

/// Promises that a symbolic link in the place of a file is refused, and that the attributes of a link are its
/// own.
#[test]
fn attributes_of_a_link() {
    let scratch = Scratch::new();
    let link = scratch.path("link");
    symlink(&scratch.victim.0, &link).unwrap();
    let error = Host.hold(&link, FileKind::Regular).err().unwrap().to_string();
    assert!(error.contains("something else has taken its place"), "{error}");

    let wanted = others(&link);
    let held = Host.hold(&link, FileKind::Symlink).unwrap();
    Host.set_owner(&held, &wanted).unwrap();
    Host.set_facts(&held, &wanted).unwrap();
    assert!(Host.set_xattr(&held, OsStr::new("user.note"), b"x").is_err());
    assert_eq!(Host.facts(&link).unwrap().unwrap().mtime, wanted.mtime);
    scratch.must_be_untouched();
}

/// Promises that attributes go to the file that is held, whatever gets its name.
#[test]
fn attributes_of_what_is_held() {
    let scratch = Scratch::new();
    let swap = |path: &Path, away: &Path| {
        fs::rename(path, away).unwrap();
        symlink(&scratch.victim.0, path).unwrap();
    };
    let (file, away) = (scratch.path("file"), scratch.path("away"));
    let target = Host.create(&file).unwrap();
    swap(&file, &away);
    target.write_at(b"content", 0).unwrap();
    let held = target.written(&file);
    let wanted = others(&away);
    Host.set_owner(&held, &wanted).unwrap();
    Host.set_facts(&held, &wanted).unwrap();
    let found = Host.facts(&away).unwrap().unwrap();
    assert_eq!((found.permissions, found.mtime), (wanted.permissions, wanted.mtime));

    let (directory, away) = (scratch.path("directory"), scratch.path("elsewhere"));
    Host.make_directory(&directory).unwrap();
    let held = Host.hold(&directory, FileKind::Directory).unwrap();
    swap(&directory, &away);
    Host.set_facts(&held, &others(&away)).unwrap();
    assert_eq!(Host.facts(&away).unwrap().unwrap().permissions, 0o640);
    assert!(Host.hold(&directory, FileKind::Directory).is_err());
    scratch.must_be_untouched();
}

/// Promises that a directory swapped for a symbolic link leads nowhere, while links that the user named are
/// followed.
#[test]
fn directories_are_not_swapped() {
    let scratch = Scratch::new();
    let (real, named) = (scratch.path("real"), scratch.path("named"));
    fs::create_dir_all(real.join("sub/below")).unwrap();
    symlink(&real, &named).unwrap();
    let side = Anchored::new(None);
    let of = |name: &str| named.join("sub").join(name);
    assert!(side.facts(&named.join("sub")).unwrap().is_some());
    side.create(&of("before")).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(fs::read(real.join("sub/before")).unwrap(), b"x");

    let outside = scratch.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("before"), "outside").unwrap();
    fs::rename(real.join("sub"), scratch.path("away")).unwrap();
    symlink(&outside, real.join("sub")).unwrap();
    assert!(side.facts(&of("before")).unwrap().is_none());
    for refused in [
        side.create(&of("after")).map(drop),
        side.empty(&of("before")).map(drop),
        side.make_directory(&of("after")),
        side.make_link(&real, &of("after")),
        side.hard_link(&scratch.victim.0, &of("after")),
        side.rename(&scratch.victim.0, &of("after"), true),
        side.remove(&of("before")),
        side.hold(&of("before"), FileKind::Regular).map(drop),
        side.hold(&named.join("sub"), FileKind::Directory).map(drop),
    ] {
        refused.unwrap_err();
    }
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["before"]);
    assert_eq!(fs::read(outside.join("before")).unwrap(), b"outside");
    scratch.must_be_untouched();

    // If the named directory itself is swapped, what it was is still written to.
    fs::remove_file(&named).unwrap();
    symlink(&outside, &named).unwrap();
    side.create(&named.join("after")).unwrap();
    assert!(real.join("after").exists());
    // The user names this one.
    side.start_from(&real.join("sub")).unwrap();
    side.create(&real.join("sub/new")).unwrap();
    assert!(outside.join("new").exists());
}

/// Promises that a path to another device is refused.
#[test]
fn other_devices() {
    let scratch = Scratch::new();
    let device = fs::metadata(&scratch.victim.0).unwrap().dev();
    let (here, elsewhere) = (Anchored::new(Some(device)), Anchored::new(Some(device + 1)));
    assert!(here.facts(&scratch.victim.0).unwrap().is_some());
    for refused in
        [elsewhere.facts(&scratch.victim.0).map(drop), elsewhere.create(&scratch.path("new")).map(drop)]
    {
        assert!(format!("{:#}", refused.unwrap_err()).ends_with("it is not on the mounted volume"));
    }
    assert!(!scratch.path("new").exists());
}

/// Promises that everything that a directory lies in is found up to the root, also through a link.
#[test]
fn lineage_reaches_the_root() {
    let scratch = Scratch::new();
    let (inner, link) = (scratch.path("outer/inner"), scratch.path("link"));
    fs::create_dir_all(&inner).unwrap();
    symlink(&inner, &link).unwrap();
    let identity = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.dev(), found.ino())
    };
    let real = inner.canonicalize().unwrap();
    let expected: Vec<Identity> = real.ancestors().map(identity).collect();
    for side in [&Host as &dyn Side, &Anchored::new(None)] {
        assert_eq!(side.lineage(&link).unwrap(), expected);
        assert!(side.lineage(&scratch.path("absent")).is_err());
    }
}

/// Promises that set-id bits stay only with the owner and the group whose they were. With another owner, the
/// program of whoever wrote it would run with the rights of whoever copied it.
#[test]
fn set_id_bits_need_owner_and_group() {
    let scratch = Scratch::new();
    let found = Host.facts(&scratch.victim.0).unwrap().unwrap();
    let program = Facts { uid: 7, gid: 8, permissions: 0o7751, ..found };
    assert_eq!(program.permissions_for((7, 8)), 0o7751);
    assert_eq!(program.permissions_for((9, 8)), 0o1751);
    assert_eq!(program.permissions_for((7, 9)), 0o1751);
    let held = Host.hold(&scratch.victim.0, FileKind::Regular).unwrap();
    assert_eq!(Host.owner(&held).unwrap(), (found.uid, found.gid));
}

/// A program of root's was overwritten with another user's, and kept its set-user-id bit until the owner was
/// set: for good, if the copy was broken off, or if that owner was refused. Promises that the bits are gone
/// before anything is written.
#[test]
fn what_is_written_over_has_no_set_id_bits() {
    let scratch = Scratch::new();
    let program = scratch.path("program");
    fs::write(&program, "program").unwrap();
    for side in [&Host as &dyn Side, &Anchored::new(None)] {
        let set_id = std::os::unix::fs::PermissionsExt::from_mode(0o6755);
        fs::set_permissions(&program, set_id).unwrap();
        side.empty(&program).unwrap();
        let found = side.facts(&program).unwrap().unwrap();
        assert_eq!((found.permissions, found.size), (0o755, 0));
    }

    let device = Arc::new(yore_device::MemoryDevice::new(32 << 20));
    let volume = Volume::create(device, &yore_fs::MkfsOptions::default()).unwrap();
    volume.write("/program", "program").unwrap();
    volume.set_permissions("/program", 0o6755).unwrap();
    let side = OnVolume::new(&volume, Path::new("v.yore"));
    side.empty(Path::new("/program")).unwrap();
    let found = side.facts(Path::new("/program")).unwrap().unwrap();
    assert_eq!((found.permissions, found.size), (0o755, 0));
}
