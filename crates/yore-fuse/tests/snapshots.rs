//! Promises: a snapshot can be mounted by itself, beside the present, and stays while it is mounted; the
//! directory of snapshots contains all snapshots, under each of their names; `past=owner` shows the past only
//! to its owner; handles of the past are good.

mod common;

use common::{c_path, errno_of, shell_as, Mounted, NOBODY};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use yore_fs::{Error, EventNo, NewSnapshot, PinnedBy};
use yore_fuse::{mount_snapshot, End, MountConfig, PastAccess, Session, UnmountHow};

fn ok(directory: &Path, command: &str) -> String {
    let out = Command::new("sh").current_dir(directory).args(["-c", command]).output().unwrap();
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{command}: {text}");
    text
}

fn snapshot(mounted: &Mounted, name: &str) -> EventNo {
    mounted.view.take_snapshot(mounted.view.root(), &NewSnapshot::named(name)).unwrap().number
}

/// A snapshot mounted by itself.
struct Beside {
    session: Session,
    dir: tempfile::TempDir,
}

impl Beside {
    fn new(mounted: &Mounted, event: EventNo, change: impl FnOnce(&mut MountConfig)) -> Beside {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut config = MountConfig::new(dir.path(), "memory@then");
        change(&mut config);
        let pin = mounted.view.pin(event, PinnedBy::Mount).unwrap();
        let handle = mounted.session().handle();
        let session = mount_snapshot(pin, mounted.view.root(), &config, Some(&handle)).unwrap();
        Beside { session, dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    fn end(self) {
        assert_eq!(
            self.session.unmount(UnmountHow::Idle).map_err(|(_, e)| e).unwrap().unwrap(),
            End::Unmounted
        );
    }
}

/// Programs compare a tree as of two snapshots and as of now, each under a mount of its own. A mounted
/// snapshot is not forgotten, and may outlive the mount of the present.
#[test]
fn snapshots_beside_the_present() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(
        &dir,
        "mkdir -p a/b && echo one > a/b/f && ln a/b/f a/hard && ln -s b/f a/link && cp -r a copy-of-then",
    );
    let first = snapshot(&mounted, "first");
    ok(&dir, "echo two > a/b/f && rm a/hard && mv a/b a/c && echo new > a/new");
    let second = snapshot(&mounted, "second");
    ok(&dir, "rm -r a && echo now > now");
    let (one, two) = (Beside::new(&mounted, first, |_| {}), Beside::new(&mounted, second, |_| {}));
    ok(&one.root(), "diff -r a copy-of-then");
    assert_eq!(ok(&one.root(), "cat a/b/f a/hard a/link && ls"), "one\none\none\na\ncopy-of-then\n");
    assert_eq!(ok(&two.root(), "cat a/c/f a/new && ls a"), "two\nnew\nc\nlink\nnew\n");
    assert_eq!(ok(&dir, "ls"), "copy-of-then\nnow\n");
    // Inode numbers are those of the present, and hard links share one.
    let number = |path: PathBuf| fs::metadata(path).unwrap().ino();
    assert_eq!(number(one.root().join("a/b/f")), number(one.root().join("a/hard")));
    assert_eq!(number(one.root().join("a/b/f")), number(two.root().join("a/c/f")));
    assert_eq!(number(one.root()), number(dir.clone()));
    // A time inside a time.
    assert_eq!(ok(&two.root(), "cat a@first/b/f"), "one\n");
    for refused in [fs::write(one.root().join("x"), ""), fs::remove_file(one.root().join("a/hard"))] {
        assert_eq!(errno_of(refused), libc::EROFS);
    }
    assert!(matches!(mounted.view.forget(&[first]), Err(Error::Pinned { .. })));
    one.end();
    mounted.view.forget(&[first]).unwrap();
    // The present is unmounted, and its view closed, while a snapshot is still in use.
    let open = File::open(two.root().join("a/new")).unwrap();
    let view = mounted.view.clone();
    mounted.end();
    assert!(view.take_snapshot(view.root(), &NewSnapshot::default()).is_err(), "it is closed");
    assert_eq!(ok(&two.root(), "cat a/c/f a/new"), "two\nnew\n");
    let mut found = [0; 4];
    open.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"new\n");
    drop(open);
    two.end();
}

/// Copying from one file of the past into another of the same time used to change the present.
#[test]
fn copies_within_the_past_change_nothing() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/a"), "from").unwrap();
    fs::write(mounted.path("d/b"), "into").unwrap();
    snapshot(&mounted, "then");
    let from = File::open(mounted.path("d@then/a")).unwrap();
    let into = File::options().write(true).open(mounted.path("d@then/b")).unwrap();
    let copied = rustix::fs::copy_file_range(&from, None, &into, None, 4);
    assert_eq!(copied, Err(rustix::io::Errno::ROFS));
    assert_eq!(fs::read(mounted.path("d/b")).unwrap(), b"into");
    assert_eq!(fs::read(mounted.path("d@then/b")).unwrap(), b"into");
}

#[test]
fn the_directory_of_snapshots() {
    let Some(mounted) = Mounted::with(|config| config.snapdir = Some(".yore".into())) else { return };
    let dir = mounted.root();
    let list = || -> Vec<String> {
        let entries = fs::read_dir(dir.join(".yore")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(list().is_empty());
    ok(&dir, "mkdir src && echo one > src/f");
    snapshot(&mounted, "first");
    ok(&dir, "echo two > src/f");
    let second = snapshot(&mounted, "");
    assert_eq!(ok(&dir, "ls -A"), "src\n", "it is not listed");
    let names = list();
    assert_eq!(names.iter().filter(|name| *name == "first").count(), 1);
    assert!(names.iter().any(|name| name.starts_with("@GMT-20")), "{names:?}");
    assert!((4..=5).contains(&names.len()), "{names:?}");
    for name in &names {
        let content = ok(&dir, &format!("cat '.yore/{name}/src/f'"));
        assert!(content == "two\n" || names.iter().position(|n| n == name) < Some(3), "{name}: {content}");
    }
    assert_eq!(ok(&dir, "cat .yore/first/src/f .yore/now/src/f"), "one\ntwo\n");
    // With attributes, which another request fetches, and from inside the directory.
    assert_eq!(ok(&dir, "cd .yore && ls -l | grep -c ^dr").trim(), names.len().to_string());
    assert_eq!(
        ok(&dir, "stat -c '%a %F' .yore && cd .yore/first && cd ../.. && ls").trim(),
        "555 directory\nsrc"
    );
    assert_eq!(ok(&dir, "find .yore -name f | wc -l").trim(), names.len().to_string());
    // A forgotten snapshot is not there, although the kernel had the list.
    mounted.view.forget(&[second]).unwrap();
    let left = list();
    // If both were taken in one second, that second meant the forgotten one.
    assert!(left.len() < names.len() && left.contains(&"first".to_string()), "{left:?}");
    for i in 0..300 {
        snapshot(&mounted, &format!("many{i}"));
    }
    let names = list();
    assert_eq!(names.iter().filter(|name| name.starts_with("many")).count(), 300);
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert_eq!(ok(&dir, "ls -l .yore | grep -c many").trim(), "300");
    assert_eq!(errno_of(fs::metadata(dir.join(".yore/nothing"))), libc::ENOENT);
    assert_eq!(errno_of(fs::metadata(dir.join(".yore/1990-01-01"))), libc::ENOENT);
    // Neither the directory nor its content can be changed.
    assert_eq!(errno_of(fs::create_dir(dir.join(".yore"))), libc::EEXIST);
    assert_eq!(errno_of(fs::create_dir(dir.join(".yore/x"))), libc::EROFS);
    assert_eq!(errno_of(fs::remove_dir(dir.join(".yore"))), libc::EROFS);
    assert_eq!(errno_of(fs::rename(dir.join(".yore"), dir.join("x"))), libc::EROFS);
    assert_eq!(errno_of(fs::rename(dir.join("src"), dir.join(".yore"))), libc::EROFS);
    assert_eq!(errno_of(fs::write(dir.join(".yore/first/src/f"), "")), libc::EROFS);
    assert_eq!(
        errno_of(fs::set_permissions(dir.join(".yore"), fs::Permissions::from_mode(0o700))),
        libc::EROFS
    );
    assert_eq!(fs::read_dir(dir.join("src")).unwrap().count(), 1);
    assert_eq!(errno_of(fs::metadata(dir.join("src/.yore"))), libc::ENOENT, "only in the root");
}

/// A file that has the name takes precedence, and is like any other.
#[test]
fn a_file_with_the_name_of_the_directory_of_snapshots() {
    let Some(mounted) = Mounted::with(|config| config.snapdir = Some("old".into())) else { return };
    let dir = mounted.root();
    snapshot(&mounted, "s");
    let caller = yore_fs::Caller { uid: 0, gid: 0, umask: 0, keeps_set_id: false };
    mounted.view.mkdir(&caller, mounted.view.root(), b"old", 0o755).unwrap();
    ok(&dir, "touch old/mine && ls old");
    assert_eq!(
        ok(
            &dir,
            "ls && mv old other && ! rmdir old 2>&1 >/dev/null | grep -v only; rm -r other && ls old/s && ls"
        ),
        "old\n"
    );
}

#[test]
fn the_past_of_owners() {
    let change = |config: &mut MountConfig| {
        config.allow_other = true;
        config.past = PastAccess::Owner;
    };
    let Some(mounted) = Mounted::with(change) else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir -m 777 d && echo x > d/f && chmod 666 d/f && setfacl -m u:4711:rwx d/f && ln -s f d/l");
    ok(&dir, &format!("echo mine > d/mine && chmod 755 d/mine && chown {NOBODY} d d/mine"));
    let event = snapshot(&mounted, "then");
    let beside = Beside::new(&mounted, event, change);
    for directory in [dir.join("d@then"), beside.root().join("d")] {
        let directory = directory.display();
        assert_eq!(ok(&dir, &format!("cd {directory} && stat -c %a . f mine")), "700\n600\n700\n");
        assert_eq!(ok(&dir, &format!("ls -l {directory} | grep -c +; true")).trim(), "0");
        assert_eq!(ok(&dir, &format!("getfattr -d -m - {directory}/f 2>&1")).trim(), "");
        assert!(ok(&dir, &format!("getfacl -cp {directory}/f 2>&1"))
            .starts_with("user::rw-\ngroup::---\nother::---"));
        assert!(!shell_as(NOBODY, &format!("cat {directory}/f")).0);
        assert!(!shell_as(4711, &format!("cat {directory}/mine {directory}/f")).0);
    }
    assert!(shell_as(4711, &format!("cat {}/d/f", dir.display())).0, "the present is as it is");
    assert_eq!(shell_as(NOBODY, &format!("cat {}/d@then/mine", dir.display())).1, "mine\n");
    let root = beside.root();
    assert!(!shell_as(NOBODY, &format!("cat {}/d/mine", root.display())).0, "the way there is root's");
    beside.end();

    let Some(mounted) = Mounted::with(|config| config.allow_other = true) else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir d && echo x > d/f && chmod 600 d/f && setfacl -m u:4711:r d/f");
    snapshot(&mounted, "then");
    ok(&dir, "setfacl -b d/f");
    assert!(shell_as(4711, &format!("cat {}/d@then/f", dir.display())).0, "as it was");
    assert!(!shell_as(4711, &format!("cat {}/d/f", dir.display())).0);
}

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    opaque: [u8; 128],
}

impl Handle {
    fn of(path: &Path) -> Handle {
        let mut handle = Handle { bytes: 128, kind: 0, opaque: [0; 128] };
        let (mut mount, path) = (0i32, c_path(path));
        // SAFETY: a path that ends with a null byte, a buffer with its length in front, an integer to fill.
        let made = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &mut handle,
                &mut mount,
                0,
            )
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        handle
    }

    fn open(&self, root: &File) -> std::io::Result<File> {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: an open descriptor of the mount, and a handle that the kernel made.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), self, libc::O_RDONLY) };
        match i32::try_from(fd).ok().filter(|fd| *fd >= 0) {
            None => Err(std::io::Error::last_os_error()),
            // SAFETY: a descriptor the kernel just made for us.
            Some(fd) => Ok(unsafe { File::from_raw_fd(fd) }),
        }
    }
}

/// A handle of a file of the past is good after everybody has forgotten the file, as long as its snapshot is
/// kept. On a mount of a snapshot a handle of a directory is good, too.
#[test]
fn handles_of_the_past() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir -p d/sub && echo one > d/sub/f && echo one > changed");
    let event = snapshot(&mounted, "then");
    ok(&dir, "echo two > changed && rm -r d");
    let beside = Beside::new(&mounted, event, |_| {});
    let handles = [
        (Handle::of(&dir.join("d@then/sub/f")), File::open(&dir).unwrap()),
        (Handle::of(&dir.join("changed@then")), File::open(&dir).unwrap()),
        (Handle::of(&beside.root().join("d/sub/f")), File::open(beside.root()).unwrap()),
    ];
    let directory = Handle::of(&beside.root().join("d/sub"));
    let forget = || fs::write("/proc/sys/vm/drop_caches", b"3").unwrap();
    for _ in 0..3 {
        forget();
        for (handle, root) in &handles {
            let mut text = String::new();
            handle.open(root).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "one\n");
        }
        forget();
        let sub = directory.open(&handles[2].1).unwrap();
        assert!(sub.metadata().unwrap().is_dir());
    }
    let [live, changed, beside_file] = handles;
    drop(beside_file);
    beside.end();
    mounted.view.forget(&[event]).unwrap();
    // The kernel forgets a file at a time of its own; until then it opens what it knows.
    let begin = std::time::Instant::now();
    for (handle, root) in [live, changed] {
        let error = loop {
            forget();
            match handle.open(&root) {
                Ok(mut file) if begin.elapsed() < std::time::Duration::from_secs(120) => {
                    let mut text = String::new();
                    match file.read_to_string(&mut text) {
                        Ok(_) => assert_eq!(text, "one\n", "another file"),
                        error => assert_eq!(errno_of(error), libc::ESTALE),
                    }
                }
                other => break errno_of(other),
            }
        };
        assert_eq!(error, libc::ESTALE);
    }
}

/// Hard links of the past are one file, whichever name led there.
#[test]
fn files_of_the_past_have_one_number() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir a b && echo x > a/f && ln a/f b/f");
    snapshot(&mounted, "then");
    let number = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    assert_eq!(number("a@then/f"), number("b@then/f"));
    assert_eq!(number("a@then/f"), number("a/f@then"));
    assert_ne!(number("a@then/f"), number("a/f"));
    let listed = fs::read_dir(dir.join("a@then")).unwrap().next().unwrap().unwrap();
    assert_eq!(std::os::unix::fs::DirEntryExt::ino(&listed), number("a@then/f"));
    assert_eq!(ok(&dir, "du -s --inodes .@then").split_whitespace().next(), Some("4"));
}
