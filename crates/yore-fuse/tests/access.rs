//! Promises: a user who could not reach a file then cannot reach its state of then, whatever the directories
//! on the way are now and however the name is spelled; nor does the user learn whether there was such a file.

mod common;

use common::{as_user, c_path, shell_as, skipped, Mounted, NOBODY};
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::Path;
use std::process::Command;
use yore_fs::{EventNo, NewSnapshot};

/// The owner of the files that others want to read.
const OWNER: u32 = 1000;

fn mounted() -> Option<Mounted> {
    Mounted::with(|config| {
        config.allow_other = true;
        config.snapdir = Some(".snapshots".into());
    })
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn make(m: &Mounted, name: &str, content: Option<&str>, mode: u32) {
    let path = m.path(name);
    match content {
        Some(content) => fs::write(&path, content).unwrap(),
        None => fs::create_dir(&path).unwrap(),
    }
    chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    chmod(&path, mode);
}

fn snapshot(m: &Mounted, name: &str) -> EventNo {
    m.view.take_snapshot(m.view.root(), &NewSnapshot::named(name)).unwrap().number
}

fn cat(m: &Mounted, uid: u32, path: &str) -> Result<String, String> {
    let (done, said) = shell_as(uid, &format!("cat '{}'", m.path(path).display()));
    if done {
        Ok(said)
    } else {
        Err(said)
    }
}

#[track_caller]
fn refused(m: &Mounted, path: &str) {
    let said = cat(m, NOBODY, path).expect_err(path);
    assert!(said.contains("Permission denied"), "{path}: {said}");
}

/// `proj` and `proj/sub`, each with a file that everybody may read. The directories are closed in `closed`,
/// and open in `opened` and now.
fn project() -> Option<Mounted> {
    let m = mounted()?;
    make(&m, "proj", None, 0o700);
    make(&m, "proj/config", Some("secret"), 0o644);
    make(&m, "proj/sub", None, 0o755);
    make(&m, "proj/sub/deep", Some("secret"), 0o644);
    snapshot(&m, "closed");
    chmod(&m.path("proj"), 0o755);
    snapshot(&m, "opened");
    fs::write(m.path("proj/config"), "public").unwrap();
    fs::remove_file(m.path("proj/sub/deep")).unwrap();
    Some(m)
}

/// Paths into the closed past, and what is there.
const CLOSED: [&str; 14] = [
    "proj/config@closed",
    "proj/.@closed/config",
    ".@closed/proj/config",
    "proj@closed/config",
    "proj/sub/deep@closed",
    "proj/sub/.@closed/deep",
    "proj/sub@closed/deep",
    "proj/.@closed/sub/deep",
    ".@opened/proj/config@closed",
    "proj/.@opened/sub/.@closed/deep",
    "proj@opened/sub@closed/deep",
    ".snapshots/closed/proj/config",
    ".snapshots/closed/proj/sub/deep",
    ".snapshots/opened/proj/sub/deep@closed",
];

/// `proj` was 0700 when `closed` was taken, and is 0755 now. The kernel checks live directories on the way to
/// `proj/config@closed`, so another user could read what that user could not read then.
#[test]
fn the_way_is_checked_as_it_was() {
    let Some(m) = project() else { return };
    // Whether or not the owner's access has filled the kernel's caches.
    for _ in 0..2 {
        for path in CLOSED {
            refused(&m, path);
        }
        for path in CLOSED {
            for uid in [OWNER, 0] {
                assert_eq!(cat(&m, uid, path).as_deref(), Ok("secret"), "{path} for {uid}");
            }
        }
    }
    for path in ["proj/config@opened", ".@opened/proj/config", "proj/.@closed/.@opened/config"] {
        let expected = if path.contains("closed") { None } else { Some("secret".to_string()) };
        assert_eq!(cat(&m, NOBODY, path).ok(), expected, "{path}");
    }
    assert_eq!(cat(&m, NOBODY, "proj/config").as_deref(), Ok("public"));
    // The same holds for attributes, listings and link targets.
    for command in ["stat", "ls", "readlink", "test -e"] {
        for path in ["proj/config@closed", "proj/sub@closed", "proj/sub/.@closed"] {
            let (done, _) = shell_as(NOBODY, &format!("{command} '{}'", m.path(path).display()));
            assert!(!done, "{command} {path}");
        }
    }
    m.end();
}

/// Whether a name existed is as secret as what it led to.
#[test]
fn what_was_not_there_is_refused_alike() {
    let Some(m) = project() else { return };
    for path in
        ["proj/nothing@closed", "proj/sub/nothing@closed", "proj/.@closed/nothing", "proj@closed/nothing"]
    {
        refused(&m, path);
    }
    let said = cat(&m, NOBODY, "proj/nothing@opened").unwrap_err();
    assert!(said.contains("No such file"), "{said}");
    let said = cat(&m, OWNER, "proj/nothing@closed").unwrap_err();
    assert!(said.contains("No such file"), "{said}");
    m.end();
}

/// A directory was moved out of a closed one: the permissions that count are those of its place at that time.
#[test]
fn what_was_elsewhere() {
    let Some(m) = mounted() else { return };
    make(&m, "vault", None, 0o700);
    make(&m, "vault/box", None, 0o755);
    make(&m, "vault/box/paper", Some("secret"), 0o644);
    make(&m, "vault/letter", Some("secret"), 0o644);
    make(&m, "hall", None, 0o755);
    let whole = snapshot(&m, "whole");
    let inode =
        m.view.lookup(m.view.lookup(m.view.root(), b"vault").unwrap().inode(), b"box").unwrap().inode();
    m.view.take_snapshot(inode, &NewSnapshot::named("box")).unwrap();
    fs::rename(m.path("vault/box"), m.path("hall/box")).unwrap();
    fs::rename(m.path("vault/letter"), m.path("hall/letter")).unwrap();
    let _ = whole;
    for path in
        ["hall/box/paper@whole", "hall/box/.@whole/paper", "hall/box/.@box/paper", "hall/box/paper@box"]
    {
        assert!(cat(&m, NOBODY, path).is_err(), "{path}");
        assert_eq!(cat(&m, OWNER, path).as_deref(), Ok("secret"), "{path}");
    }
    assert_eq!(cat(&m, NOBODY, "hall/box/paper").as_deref(), Ok("secret"));
    m.end();
}

/// Groups, including supplementary ones, and ACLs count as they were.
#[test]
fn groups_and_acls_of_then() {
    let Some(m) = mounted() else { return };
    make(&m, "team", None, 0o750);
    chown(m.path("team"), None, Some(4711)).unwrap();
    make(&m, "team/plan", Some("plan"), 0o644);
    make(&m, "guests", None, 0o700);
    make(&m, "guests/list", Some("list"), 0o644);
    let acl: Vec<u8> = [(1u16, 7u16, u32::MAX), (2, 5, NOBODY), (4, 0, !0), (16, 5, !0), (32, 0, !0)]
        .iter()
        .flat_map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat())
        .collect();
    let acl = [&2u32.to_le_bytes()[..], &acl].concat();
    let attribute = "system.posix_acl_access";
    rustix::fs::setxattr(m.path("guests"), attribute, &acl, rustix::fs::XattrFlags::empty()).unwrap();
    snapshot(&m, "then");
    rustix::fs::removexattr(m.path("guests"), attribute).unwrap();
    for name in ["team", "guests"] {
        chmod(&m.path(name), 0o755);
    }
    snapshot(&m, "later");
    assert_eq!(cat(&m, NOBODY, "guests/list@then").as_deref(), Ok("list"));
    assert!(cat(&m, 1234, "guests/list@then").is_err());
    assert_eq!(cat(&m, 1234, "guests/list@later").as_deref(), Ok("list"));
    refused(&m, "team/plan@then");
    let (plan, nobody) = (m.path("team/plan@then"), NOBODY.to_string());
    let ids = [format!("--reuid={nobody}"), format!("--regid={nobody}"), "--groups=4711".to_string()];
    match Command::new("setpriv").args(ids).arg("cat").arg(&plan).output() {
        Ok(out) => assert_eq!(String::from_utf8_lossy(&out.stdout), "plan", "{out:?}"),
        Err(error) => skipped(&format!("setpriv: {error}")),
    }
    m.end();
}

/// A user can neither construct nor open a handle of the past.
#[test]
fn handles_are_for_administrators() {
    let Some(m) = project() else { return };
    #[repr(C)]
    struct Handle {
        head: libc::file_handle,
        bytes: [u8; 128],
    }
    // SAFETY: all bytes zero are a valid value of these integers.
    let mut handle: Handle = unsafe { std::mem::zeroed() };
    handle.head.handle_bytes = 128;
    let (path, mut mount) = (c_path(&m.path("proj/config@closed")), 0);
    // SAFETY: the path ends with a zero byte, and there are as many bytes behind the head as it says.
    let made = unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), &raw mut handle.head, &raw mut mount, 0)
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    let root = fs::File::open(m.root()).unwrap();
    let mut open = || {
        // SAFETY: the handle was made above.
        let fd = unsafe {
            let of = std::os::fd::AsRawFd::as_raw_fd(&root);
            libc::open_by_handle_at(of, &raw mut handle.head, libc::O_RDONLY)
        };
        if fd < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        // SAFETY: it was opened just now, and nobody else has it.
        drop(unsafe { <fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) });
        Ok(())
    };
    assert_eq!(open(), Ok(()));
    assert_eq!(as_user(NOBODY, &mut open), Err(libc::EPERM));
    drop(root);
    m.end();
}
