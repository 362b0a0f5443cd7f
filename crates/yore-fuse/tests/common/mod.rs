//! A volume in memory, mounted in a temporary directory.
//!
//! Mounting needs /dev/fuse and root (or fusermount3). Without these a test prints SKIPPED and passes. If the
//! environment has CI=true it fails instead, because nobody would notice a skip there.

#![allow(dead_code)] // Each test binary uses its own part.

pub mod asking;
pub mod reachable;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{MkfsOptions, MountOptions, View};
use yore_fuse::{mount, End, MountConfig, Session, UnmountHow};

/// A user with no rights anywhere.
pub const NOBODY: u32 = 65534;

/// Whether this machine and user can mount as root can; prints a warning if not.
pub fn can_mount() -> bool {
    let reason = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse"
    } else if !rustix::process::geteuid().is_root() {
        "this is not root"
    } else {
        return true;
    };
    skipped(reason);
    false
}

/// Prints that a test (or a part of it) was skipped.
pub fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI: {reason}");
}

pub fn mkfs_options() -> MkfsOptions {
    MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        owner: (0, 0),
        ..MkfsOptions::default()
    }
}

/// A new volume on a memory device.
pub fn new_device(bytes: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    View::mkfs(&device, &mkfs_options()).expect("mkfs");
    device
}

/// A mounted volume; its mount point is `m` in its temporary directory.
pub struct Mounted {
    pub view: View,
    pub device: Arc<dyn Device>,
    session: Option<Session>,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// A new volume mounted with the defaults; `None` if mounting is impossible.
    pub fn new() -> Option<Mounted> {
        Mounted::with(|_| {})
    }

    /// A new volume mounted with the defaults after `change`.
    pub fn with(change: impl FnOnce(&mut MountConfig)) -> Option<Mounted> {
        can_mount().then(|| Mounted::on(new_device(512 << 20), change))
    }

    /// The volume on `device`, mounted.
    pub fn on(device: Arc<dyn Device>, change: impl FnOnce(&mut MountConfig)) -> Mounted {
        let view = View::open(device.clone(), &MountOptions::default()).expect("open");
        let dir = tempfile::tempdir().unwrap();
        // Others must be able to pass through to the mount.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mountpoint = dir.path().join("m");
        std::fs::create_dir(&mountpoint).unwrap();
        let mut config = MountConfig::new(mountpoint, "memory, \\tested");
        change(&mut config);
        let session = mount(view.clone(), &config).expect("mount");
        Mounted { view, device, session: Some(session), dir }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("m")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// Unmounts in good order and gives the device back.
    pub fn end(mut self) -> Arc<dyn Device> {
        let ended = self.session.take().unwrap().unmount(UnmountHow::Idle);
        assert_eq!(ended.map_err(|(_, e)| e).expect("unmount").expect("end"), End::Unmounted);
        assert_eq!(std::fs::read_dir(self.root()).unwrap().count(), 0, "the mount point is free again");
        self.device.clone()
    }

    /// Gives up the session to the caller.
    pub fn take_session(&mut self) -> Session {
        self.session.take().unwrap()
    }
}

/// The errno of a failed call.
#[track_caller]
pub fn errno_of<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("expected an error").raw_os_error().expect("an errno")
}

/// A path for the C library.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Runs a shell command as `uid` with no other groups; returns whether it succeeded, and what it printed.
pub fn shell_as(uid: u32, command: &str) -> (bool, String) {
    use std::os::unix::process::CommandExt;
    let output = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir("/")
        .uid(uid)
        .gid(uid)
        .output()
        .expect("sh");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Runs a function as another user, on a thread of its own.
pub fn as_user<R: Send>(uid: u32, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let id = rustix::fs::Uid::from_raw(uid);
            // This changes the ids of this thread only, which ends with `work`.
            rustix::thread::set_thread_res_uid(id, id, id).expect("another user");
            work()
        });
        thread.join().expect("no panic")
    })
}
