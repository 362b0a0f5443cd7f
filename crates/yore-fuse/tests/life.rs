//! The life of a mount: refused, started, in use, ended in every way, found dead and replaced.

mod common;

use common::reachable::reachable;
use common::{can_mount, errno_of, new_device, skipped, Mounted, NOBODY};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use yore_fs::{Caller, FileKind, MountOptions, RenameMode, View, WriteMode};
use yore_fuse::{mount, mounted_at, unmount_at, End, MountConfig, MountError, UnmountError, UnmountHow};

fn view() -> View {
    View::open(new_device(128 << 20), &MountOptions::default()).unwrap()
}

/// The table of mounts shows what is mounted, with its awkward name, and the mount's options.
#[test]
fn it_shows_in_the_table_of_mounts() {
    let Some(m) = Mounted::new() else { return };
    let found = mounted_at(&m.root()).unwrap().unwrap();
    assert!(found.is_yore());
    assert_eq!(found.source_name, "memory, \\tested");
    assert_eq!(fs::metadata(m.root()).unwrap().dev(), rustix::fs::makedev(found.device.0, found.device.1));
    m.end();
}

/// Each kind of unusable mount point gets an error of its own, and the view stays open.
#[test]
fn refusals_leave_the_view_open() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let view = view();
    let at = |path: &Path| mount(view.clone(), &MountConfig::new(path, "v")).err().unwrap();
    assert!(matches!(at(&dir.path().join("none")), MountError::NoMountpoint { .. }));
    File::create(dir.path().join("file")).unwrap();
    assert!(matches!(at(&dir.path().join("file")), MountError::NotADirectory { .. }));
    assert!(matches!(at(dir.path()), MountError::NotEmpty { .. }));
    view.mkdir(&Caller::superuser(), view.root(), b"still open", 0o755).unwrap();
    view.close().unwrap();
}

/// One mount on top of another is refused, and the error names what is there.
#[test]
fn a_mounted_directory_is_refused() {
    let Some(m) = Mounted::new() else { return };
    match mount(view(), &MountConfig::new(m.root(), "second")).err().unwrap() {
        MountError::AlreadyMounted { source_name, .. } => assert_eq!(source_name, "memory, \\tested"),
        other => panic!("{other}"),
    }
    m.end();
}

/// A mount in use stays unless the unmount is lazy or aborts.
#[test]
fn unmounting_while_in_use() {
    let Some(mut m) = Mounted::new() else { return };
    let mut file = File::create(m.path("f")).unwrap();
    file.write_all(b"before").unwrap();
    let session = m.take_session();
    let (session, error) = session.unmount(UnmountHow::Idle).err().unwrap();
    assert!(matches!(error, UnmountError::Busy { .. }), "{error}");
    // Lazy: the mount leaves the tree at once, while the open file goes on.
    session.handle().unmount(UnmountHow::Lazy).unwrap();
    assert_eq!(mounted_at(&m.root()).unwrap(), None);
    file.write_all(b" and after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(session.wait().unwrap(), End::Unmounted);
    let m = Mounted::on(m.device.clone(), |_| {});
    assert_eq!(fs::read(m.path("f")).unwrap(), b"before and after");
    m.end();
}

/// Aborting ends the session at once. Its users get errors, and earlier writes are kept.
#[test]
fn aborting() {
    let Some(mut m) = Mounted::new() else { return };
    let mut file = File::create(m.path("f")).unwrap();
    file.write_all(b"before").unwrap();
    let session = m.take_session();
    let ended = session.unmount(UnmountHow::Abort).map_err(|(_, e)| e).unwrap().unwrap();
    assert_eq!(ended, End::Aborted);
    assert_eq!(mounted_at(&m.root()).unwrap(), None);
    let error = errno_of(file.write_all(b"after"));
    assert!([libc::ENOTCONN, libc::ECONNABORTED, libc::EIO].contains(&error), "{error}");
    drop(file);
    let m = Mounted::on(m.device.clone(), |_| {});
    assert_eq!(fs::read(m.path("f")).unwrap(), b"before");
    m.end();
}

/// Unmounts. A program that looks at all mounts of the machine may be in this one at the moment, and the
/// kernel has no event for its leaving. Nobody is in it for a minute.
fn unmount_when_idle(mountpoint: &Path) {
    let begun = std::time::Instant::now();
    loop {
        match unmount_at(mountpoint, false) {
            Err(UnmountError::Busy { .. }) if begun.elapsed().as_secs() < 60 => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

/// Whoever unmounts it, the session ends in good order; a second unmount is no error.
#[test]
fn unmounted_from_outside() {
    let Some(mut m) = Mounted::new() else { return };
    fs::write(m.path("f"), b"x").unwrap();
    let session = m.take_session();
    let handle = session.handle();
    unmount_when_idle(&m.root());
    assert_eq!(session.wait().unwrap(), End::Unmounted);
    for how in [UnmountHow::Idle, UnmountHow::Lazy, UnmountHow::Abort] {
        handle.unmount(how).unwrap();
    }
    assert!(matches!(unmount_at(&m.root(), false), Err(UnmountError::NotMounted { .. })));
    let m = Mounted::on(m.device.clone(), |_| {});
    assert_eq!(fs::read(m.path("f")).unwrap(), b"x");
    m.end();
}

/// Binds a mount over itself twice, as containers and service managers do. The volume is then at the mount
/// point three times.
fn bind_over_itself(mountpoint: &Path) {
    for _ in 0..2 {
        rustix::mount::mount_bind(mountpoint, mountpoint).unwrap();
    }
}

/// A mount that had been bound over itself was taken for somebody else's: a daemon that was told to end left
/// a dead mount there, and an unmount removed only the uppermost, and waited for a daemon that went on.
#[test]
fn a_mount_bound_over_itself() {
    for how in [UnmountHow::Idle, UnmountHow::Lazy, UnmountHow::Abort] {
        let Some(mut m) = Mounted::new() else { return };
        fs::write(m.path("f"), b"x").unwrap();
        bind_over_itself(&m.root());
        let ended = m.take_session().unmount(how).map_err(|(_, error)| error).unwrap().unwrap();
        assert_eq!(ended, if how == UnmountHow::Abort { End::Aborted } else { End::Unmounted });
        assert_eq!(mounted_at(&m.root()).unwrap(), None, "{how:?}");
        let m = Mounted::on(m.device.clone(), |_| {});
        assert_eq!(fs::read(m.path("f")).unwrap(), b"x");
        m.end();
    }
    for lazy in [false, true] {
        let Some(mut m) = Mounted::new() else { return };
        bind_over_itself(&m.root());
        let session = m.take_session();
        match lazy {
            true => unmount_at(&m.root(), true).unwrap(),
            false => unmount_when_idle(&m.root()),
        }
        assert_eq!(mounted_at(&m.root()).unwrap(), None);
        assert_eq!(session.wait().unwrap(), End::Unmounted);
    }
}

/// What somebody else has mounted over a volume stays, and so does the volume below it.
#[test]
fn what_others_mount_over_it_stays() {
    let Some(mut m) = Mounted::new() else { return };
    let session = m.take_session();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("theirs", m.root(), "tmpfs", flags, c"").unwrap();
    for how in [UnmountHow::Idle, UnmountHow::Lazy] {
        session.handle().unmount(how).unwrap();
    }
    assert!(matches!(unmount_at(&m.root(), true), Err(UnmountError::Failed { .. })));
    assert_eq!(mounted_at(&m.root()).unwrap().unwrap().source_name, "theirs");
    rustix::mount::unmount(m.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(mounted_at(&m.root()).unwrap().unwrap().is_yore());
    assert_eq!(session.unmount(UnmountHow::Idle).map_err(|(_, e)| e).unwrap().unwrap(), End::Unmounted);
}

/// A session that is dropped removes its mount and closes the view.
#[test]
fn dropped_sessions_leave_nothing() {
    let Some(mut m) = Mounted::new() else { return };
    fs::write(m.path("f"), b"x").unwrap();
    drop(m.take_session());
    assert_eq!(mounted_at(&m.root()).unwrap(), None);
    let m = Mounted::on(m.device.clone(), |_| {});
    assert_eq!(fs::read(m.path("f")).unwrap(), b"x");
    m.end();
}

/// Not a test: this is the daemon that `daemon` starts in a process of its own. It does nothing without its
/// variable.
#[test]
fn daemon_process() {
    let Some(mountpoint) = std::env::var_os("YORE_TEST_DAEMON") else { return };
    let mut config = MountConfig::new(mountpoint, "daemon");
    config.auto_unmount = std::env::var_os("YORE_TEST_AUTO_UNMOUNT").is_some();
    config.allow_other = std::env::var_os("YORE_TEST_ALLOW_OTHER").is_some();
    match mount(view(), &config) {
        Ok(session) => {
            println!("MOUNTED");
            println!("ENDED {:?}", session.wait());
        }
        Err(error) => println!("REFUSED {error:?}"),
    }
}

/// Starts a daemon on `mountpoint` as `uid`; returns it with its first line of output.
fn daemon(
    mountpoint: &Path,
    uid: u32,
    variables: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut command = Command::new(reachable(&std::env::current_exe().unwrap()));
    command
        .args(["--exact", "daemon_process", "--nocapture", "--test-threads=1"])
        .env("YORE_TEST_DAEMON", mountpoint)
        .envs(variables.iter().map(|v| (v, "1")))
        .current_dir("/")
        .stdout(Stdio::piped());
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // The test harness prints some lines before the daemon's own.
    while !["MOUNTED", "REFUSED"].iter().any(|w| line.contains(w)) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the daemon said nothing");
    }
    (child, output, line)
}

/// A killed daemon leaves a dead mount point, which the next mount removes.
#[test]
fn a_killed_daemon_is_replaced() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _, said) = daemon(dir.path(), 0, &[]);
    assert!(said.contains("MOUNTED"), "{said}");
    fs::write(dir.path().join("f"), b"lost with its volume, which was in memory").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(errno_of(fs::metadata(dir.path())), libc::ENOTCONN);
    let session = mount(view(), &MountConfig::new(dir.path(), "next")).unwrap();
    assert_eq!(mounted_at(dir.path()).unwrap().unwrap().source_name, "next");
    fs::write(dir.path().join("g"), b"x").unwrap();
    session.unmount(UnmountHow::Idle).map_err(|(_, e)| e).unwrap().unwrap();
    assert_eq!(mounted_at(dir.path()).unwrap(), None, "the dead one is gone too");
}

/// We may not remove the dead mount of another file system.
#[test]
fn a_dead_stranger_is_left_alone() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", std::os::fd::AsRawFd::as_raw_fd(&device));
    let data = std::ffi::CString::new(data).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("them", dir.path(), "fuse.other", flags, data.as_c_str()).unwrap();
    drop(device);
    match mount(view(), &MountConfig::new(dir.path(), "ours")).err().unwrap() {
        MountError::DeadMountOfAnother { fs_type, .. } => assert_eq!(fs_type, "fuse.other"),
        other => panic!("{other}"),
    }
    rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// /dev/fuse open to all, as every system with udev has it, until this is dropped.
struct OpenedDevice(fs::Permissions);

impl OpenedDevice {
    fn new() -> OpenedDevice {
        let before = fs::metadata("/dev/fuse").unwrap().permissions();
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).unwrap();
        OpenedDevice(before)
    }
}

impl Drop for OpenedDevice {
    fn drop(&mut self) {
        fs::set_permissions("/dev/fuse", self.0.clone()).unwrap();
    }
}

/// An ordinary user mounts, uses and unmounts through fusermount3, and learns why `allow_other` is refused.
#[test]
fn ordinary_users() {
    if !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skipped("fusermount3 is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mountpoint = dir.path().join("m");
    fs::DirBuilder::new().mode(0o755).create(&mountpoint).unwrap();
    std::os::unix::fs::chown(&mountpoint, Some(NOBODY), Some(NOBODY)).unwrap();
    // The volume's root belongs to root, so the user nobody may only look there.
    let (mut child, mut output, mut said) = daemon(&mountpoint, NOBODY, &[]);
    let closed = fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006;
    let _restore = closed.then(|| {
        child.wait().unwrap();
        assert!(said.contains("FuseDeviceClosed"), "{said}");
        let opened = OpenedDevice::new();
        (child, output, said) = daemon(&mountpoint, NOBODY, &[]);
        opened
    });
    assert!(said.contains("MOUNTED"), "{said}");
    let (ok, seen) = common::shell_as(NOBODY, &format!("ls -la {mountpoint:?} && df {mountpoint:?}"));
    assert!(ok, "{seen}");
    assert!(fs::metadata(&mountpoint).is_err(), "not even root, without allow_other");
    let (ok, seen) = common::shell_as(NOBODY, &format!("fusermount3 -u {mountpoint:?}"));
    assert!(ok, "{seen}");
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(rest.contains("ENDED Ok(Unmounted)"), "{rest}");

    let conf = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if conf.lines().any(|l| l.trim() == "user_allow_other") {
        return skipped("this machine lets users give allow_other");
    }
    let (mut child, _, said) = daemon(&mountpoint, NOBODY, &["YORE_TEST_ALLOW_OTHER"]);
    child.wait().unwrap();
    assert!(said.contains("AllowOtherForbidden"), "{said}");
}

/// With automatic unmounting not even a killed daemon leaves a dead mount point. On a busy machine one in
/// twenty did: the helper was told of the end before the kernel had closed the daemon's device.
#[test]
fn automatic_unmounting() {
    if !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skipped("fusermount3 is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _, said) = daemon(dir.path(), 0, &["YORE_TEST_AUTO_UNMOUNT"]);
    assert!(said.contains("MOUNTED"), "{said}");
    fs::write(dir.path().join("f"), b"x").unwrap();
    let table = File::open("/proc/self/mountinfo").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Other tests change the table, too. The wait is bounded as a whole, so that a mount that stays fails
    // below.
    let begun = std::time::Instant::now();
    while mounted_at(dir.path()).unwrap().is_some() && begun.elapsed().as_secs() < 60 {
        // The table becomes "exceptional" when it changes.
        use rustix::event::{poll, PollFd, PollFlags, Timespec};
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&table, PollFlags::PRI)], Some(&limit)).unwrap() == 0 {
            break;
        }
        let mut text = String::new();
        (&table).read_to_string(&mut text).unwrap();
    }
    assert_eq!(mounted_at(dir.path()).unwrap(), None);
}

/// After a notice, programs see a change made behind the kernel's back, and also a name that was missing.
#[test]
fn notices_reach_the_kernel() {
    let Some(m) = Mounted::new() else { return };
    let notices = m.session().notices().unwrap();
    let (view, root) = (&m.view, m.view.root());
    fs::write(m.path("f"), b"one").unwrap();
    assert_eq!(errno_of(fs::metadata(m.path("new"))), libc::ENOENT);
    assert_eq!(fs::read(m.path("f")).unwrap(), b"one");

    let inode = view.lookup(root, b"f").unwrap().inode();
    view.write(inode, 0, b"three", WriteMode { append: false, kill_set_id: false }).unwrap();
    view.create(&Caller::superuser(), root, b"new", FileKind::Regular, 0o644, 0).unwrap();
    notices.inode_changed(inode).unwrap();
    notices.entry_changed(root, b"new").unwrap();
    assert_eq!(fs::read(m.path("f")).unwrap(), b"three");
    assert!(fs::metadata(m.path("new")).is_ok());

    view.rename(root, b"f", root, b"g", RenameMode::Replace).unwrap();
    for name in [b"f", b"g"] {
        notices.entry_changed(root, name).unwrap();
    }
    notices.inode_changed(root).unwrap();
    assert_eq!(errno_of(fs::metadata(m.path("f"))), libc::ENOENT);
    assert_eq!(fs::read(m.path("g")).unwrap(), b"three");
    // A notice about something that the kernel does not know is no error.
    notices.entry_changed(root, b"never seen").unwrap();
    m.end();
}
