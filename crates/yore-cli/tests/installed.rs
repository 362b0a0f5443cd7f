//! The installed Yore, called by mount(8) and by fsck(8).

use crate::common;

use common::{
    can_mount, error_text, fails, have_own_mounts, is_mounted, ok, text, until, wait_for_end, Mount, Scratch,
};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{unmount, UnmountFlags};
use rustix::process::{kill_process, Pid, Signal};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program under another name.
fn called(scratch: &Scratch, name: &str) -> PathBuf {
    let link = scratch.path(name);
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_yore"), &link).unwrap();
    }
    link
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, error_text(output));
}

/// Whether mounts here work as root's do.
fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root() && can_mount();
    if !is {
        eprintln!("SKIPPED: needs root and FUSE");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
    }
    is
}

/// However mount(8) calls the helper, a volume's device files and set-id programs are honoured only if the
/// administrator wrote so. libfuse's helper adds `dev,suid` to the options, so that root's
/// `mount -t fuse.yore` of a foreign image honoured them.
#[test]
fn only_what_the_administrator_wrote() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.path("mnt");
    fs::create_dir(&directory).unwrap();
    let own = called(&scratch, "mount.fuse.yore");
    let generic = PathBuf::from(env!("CARGO_BIN_EXE_yore"));
    for (program, options, honoured) in [
        (&own, "rw", false),
        (&own, "rw,noatime,user,x-any", false),
        (&own, "rw,dev,suid", true),
        // The call of libfuse's helper.
        (&generic, "rw,dev,suid", false),
        (&generic, "rw,dev,suid,dev,suid", true),
    ] {
        let (volume, log) = (text(&scratch.volume), format!("log={},", text(&scratch.path("log"))));
        let mut command = Command::new(program);
        command.args([volume, text(&directory), "-o", &(log + options)]);
        succeeds(&command.output().unwrap());
        let found = rustix::fs::statvfs(&directory).unwrap().f_flag;
        for flag in [StatVfsMountFlags::NOSUID, StatVfsMountFlags::NODEV] {
            assert_eq!(!found.contains(flag), honoured, "{options}: {found:?}");
        }
        ok(["umount", text(&directory)]);
    }
}

/// `mount -t fuse.yore` itself runs `mount.fuse.yore`, and honours nothing that the administrator did not
/// write.
#[test]
fn by_mount_itself() {
    use rustix::mount::mount_bind;
    if !is_root() {
        return;
    }
    // In a tree of mounts where the directory that mount(8) searches has only our helper.
    have_own_mounts();
    let scratch = Scratch::new();
    let (directory, helpers) = (scratch.path("mnt"), scratch.path("sbin"));
    fs::create_dir(&directory).unwrap();
    fs::create_dir(&helpers).unwrap();
    symlink(env!("CARGO_BIN_EXE_yore"), helpers.join("mount.fuse.yore")).unwrap();
    mount_bind(&helpers, fs::canonicalize("/sbin").unwrap()).unwrap();
    let log = format!("noatime,log={}", text(&scratch.path("log")));
    let mut mount = Command::new("mount");
    mount.args(["-t", "fuse.yore", "-o", &log, text(&scratch.volume), text(&directory)]);
    succeeds(&mount.output().unwrap());
    let found = rustix::fs::statvfs(&directory).unwrap().f_flag;
    assert!(found.contains(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV), "{found:?}");
    ok(["umount", text(&directory)]);
}

/// `remount,ro` let programs be run on a mount with `noexec`, for it took all flags that it did not name from
/// a mount without options. Options that only a new daemon can change (`commit=9`), and `rw` where the daemon
/// only reads, were accepted and did nothing. Promises that what is not named stays, that what is so already
/// may be named, and that the rest is refused by name and changes nothing.
#[test]
fn a_remount_keeps_what_it_does_not_name() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mount = Mount::new(&scratch, &["-o", "noexec,noatime,commit=7"]).unwrap();
    let (volume, directory) = (text(&scratch.volume), text(&mount.directory));
    let flags = || rustix::fs::statvfs(&mount.directory).unwrap().f_flag;
    const KEPT: StatVfsMountFlags = StatVfsMountFlags::NOEXEC
        .union(StatVfsMountFlags::NOATIME)
        .union(StatVfsMountFlags::NOSUID)
        .union(StatVfsMountFlags::NODEV);
    for (options, only_read) in [("remount,ro", true), ("remount,rw,commit=7,noatime", false)] {
        ok(["mount", volume, directory, "-o", options]);
        let found = flags();
        assert!(found.contains(KEPT), "{options}: {found:?}");
        assert_eq!(found.contains(StatVfsMountFlags::RDONLY), only_read, "{options}");
    }
    for (options, named) in [
        ("remount,ro,commit=9", "commit"),
        ("remount,ro,allow_other", "allow_other"),
        ("remount,ro,atime", "atime"),
    ] {
        let message = fails(3, ["mount", volume, directory, "-o", options]);
        assert!(message.contains(named), "{options}: {message}");
        assert!(!flags().contains(StatVfsMountFlags::RDONLY), "{options}");
    }
    ok(["mount", volume, directory, "-o", "remount,exec"]);
    assert!(!flags().contains(StatVfsMountFlags::NOEXEC));
    mount.umount();
    mount.again(&["-o", "ro"]);
    assert!(fails(3, ["mount", volume, directory, "-o", "remount,rw"]).contains("with rw"));
    ok(["mount", volume, directory, "-o", "remount,ro,noexec"]);
    assert!(flags().contains(StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY));
    mount.umount();
}

/// The monthly check left a mounted volume out while anybody used it, and failed where something else than
/// its unit had mounted it. Promises that a mounted volume is checked as it is, and stays mounted.
#[test]
fn the_monthly_check_of_what_is_mounted() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/check-volume.in");
    let programs = Path::new(env!("CARGO_BIN_EXE_yore")).parent().unwrap();
    let script = fs::read_to_string(script).unwrap().replace("@BINDIR@", text(programs));
    let scratch = Scratch::new();
    let check = || {
        let mut sh = Command::new("sh");
        sh.args(["-c", &script, "check-volume", "name"]).env("VOLUME", &scratch.volume).output().unwrap()
    };
    succeeds(&check());
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let open = fs::File::create(mount.directory.join("open")).unwrap();
    let output = check();
    succeeds(&output);
    assert!(!output.stdout.is_empty() && is_mounted(&mount.directory), "{}", error_text(&output));
    drop(open);
    mount.umount();
}

/// A process that is stopped, and goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Stopped {
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// umount(8) returns as soon as the mount is gone, while the daemon closes the volume. Promises that a check
/// can follow at once, because it waits for that.
#[test]
fn fsck_waits_for_what_umount_leaves() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mount = Mount::new(&scratch, &[]).unwrap();
    fs::write(mount.directory.join("file"), "content").unwrap();
    let pid = mount.pid();
    let daemon = Stopped::new(pid);
    // As umount(8) does it, which first asks the mount how full it is.
    until("the mount is gone", || unmount(&mount.directory, UnmountFlags::empty()).is_ok());
    let mut fsck = Command::new(called(&scratch, "fsck.yore"));
    fsck.args(["-f", text(&scratch.volume)]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut fsck = fsck.spawn().unwrap();
    let open = format!("/proc/{}/fd", fsck.id());
    until("the check waits for the daemon", || {
        let all = fs::read_dir(&open).into_iter().flatten().flatten();
        let mut open = all.filter_map(|of| fs::read_link(of.path()).ok());
        open.any(|of| of.to_string_lossy().contains("pidfd")) || fsck.try_wait().unwrap().is_some()
    });
    drop(daemon);
    succeeds(&fsck.wait_with_output().unwrap());
    wait_for_end(pid);
    assert_eq!(ok(["cat", &scratch.on("/file")]), "content");
}

/// fsck(8) gets the exit codes that it knows: 0, 4 for damage, 8 for what cannot be checked, 16 for a wrong
/// command line.
#[test]
fn called_by_fsck() {
    let scratch = Scratch::new();
    let fsck = called(&scratch, "fsck.yore");
    let run = |args: &[&str]| {
        let output = Command::new(&fsck).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &error_text(&output);
        (output.status.code().unwrap(), said)
    };
    let volume = text(&scratch.volume);
    assert_eq!(run(&["-a", "-C0", volume]), (0, format!("{volume}: clean\n")));
    for options in [&["-f", "-p"][..], &["-n"], &["-y", "-v"], &[]] {
        let (status, said) = run(&[options, &[volume]].concat());
        assert!(status == 0 && !said.is_empty(), "{options:?}: {said}");
    }
    assert_eq!(run(&["-x", volume]).0, 16);
    assert_eq!(run(&["-a"]).0, 16);
    assert_eq!(run(&["-a", text(&scratch.path("absent"))]).0, 8);
    let no_volume = scratch.file("none", vec![b'x'; 1 << 20]);
    assert_eq!(run(&["-a", text(&no_volume)]).0, 8);

    // Most of the metadata is gone; the superblock is not.
    let mut image = fs::read(&scratch.volume).unwrap();
    let from = 64 << 10;
    image[from..32 << 20].fill(0xa5);
    fs::write(&scratch.volume, image).unwrap();
    let (status, said) = run(&["-f", volume]);
    assert_eq!(status, 4, "{said}");
}
