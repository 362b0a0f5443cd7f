//! Root's commands and users' mounts beside a malicious user, called the stranger (`NOBODY`): files in
//! directories that everybody may write to, files held open, false claims. Needs root and FUSE; says so if it
//! has not got them.

use crate::common;

use common::{can_mount, error_text, have_own_mounts, is_mounted, ok, text, yore, Mount, Scratch, NOBODY};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A user with a mount of his own, unknown to everybody else.
const SOMEBODY: u32 = 61_234;
/// A user whose directory below /tmp a stranger has taken. Only one test uses it, because a daemon leaves its
/// directory there.
const ROBBED: u32 = 61_235;

/// Whether the tests can act as other users here.
fn can_play() -> bool {
    let can = rustix::process::geteuid().is_root() && can_mount();
    let started = yore().arg("--version").uid(NOBODY).current_dir("/").output();
    let can = can && started.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("SKIPPED: needs root, FUSE, and a program that others can start");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
    }
    can
}

/// Runs a command that must not hang. It is killed if it does, so that the test ends.
#[track_caller]
fn ends(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let limit = Timespec { tv_sec: 120, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap() == 0 {
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).unwrap();
        panic!("{command:?} hangs: {}", error_text(&child.wait_with_output().unwrap()));
    }
    child.wait_with_output().unwrap()
}

#[track_caller]
fn root_does(args: &[&str]) -> String {
    let mut command = yore();
    command.args(args);
    let output = ends(command);
    assert!(output.status.success(), "yore {args:?}: {}", error_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn may_pass(scratch: &Scratch) {
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory of the stranger's in a place where daemons' files were looked for; removed in the end.
struct Lair(PathBuf);

impl Lair {
    fn new(name: &str) -> Lair {
        let path = PathBuf::from(format!("/tmp/yore-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        Lair(path)
    }
}

impl Drop for Lair {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program of the stranger's, killed at the end.
struct Stranger(Child);

impl Stranger {
    /// Runs Python and waits until it prints a line; `None` if there is no Python.
    fn runs(script: &str, args: &[&str]) -> Option<Stranger> {
        let python = Command::new("python3")
            .args(["-c", script])
            .args(args)
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = python else {
            eprintln!("SKIPPED: needs python3");
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Stranger(child))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stranger leaves pipes in the temporary directory, where root's commands looked for daemons: `info`, `df`
/// and `umount` waited for ever for somebody to write to them. Now they never open them.
#[test]
fn pipes_in_the_temporary_directory() {
    if !can_play() {
        return;
    }
    let scratch = Scratch::new();
    let mount = Mount::new(&scratch, &[]).unwrap();
    let lair = Lair::new("pipes");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    for name in ["1.json".to_string(), format!("{}.failed", mount.pid().as_raw_pid())] {
        rustix::fs::mknodat(rustix::fs::CWD, lair.0.join(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", lair.0.join("2.json")).unwrap();
    root_does(&["info", text(&mount.directory)]);
    root_does(&["info", text(&scratch.volume)]);
    root_does(&["df", text(&mount.directory)]);
    root_does(&["umount", text(&mount.directory)]);
    assert!(!is_mounted(&mount.directory));
    root_does(&["info", text(&scratch.volume)]);
}

/// How a stranger pretends to be the daemon of `argv[1]`, mounted on `argv[2]`: takes its lock if told to,
/// claims so in a file in `argv[3]` and in one in memory, and answers requests.
const PRETENDER: &str = r#"
import fcntl, json, os, socket, sys, time
volume, directory, lair, lock = sys.argv[1:]
file = open(volume, "rb")
if lock: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
found, pid = os.stat(volume), os.getpid()
path = f"{lair}/{pid}.sock"
listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen()
text = json.dumps(dict(
    pid=pid, process_start=int(open("/proc/self/stat").read().rsplit(")")[1].split()[19]), volume=volume,
    identity=[found.st_dev, found.st_ino], directory=directory, has_present=True, snapshots=[], socket=path,
    engine="snapshot", read_only=False, uuid="", label="", options="", log="", mounted_seconds=0,
    state_found="", format=[2, 1], mount_id=1)).encode()
open(f"{lair}/{pid}.json", "wb").write(text)
memory = os.memfd_create("yore-mounted"); os.write(memory, text)
print("ready", flush=True)
while True:
    stream, _ = listener.accept()
    stream.recv(65536); stream.sendall(b'"Mounted"\n'); stream.close()
"#;

/// A stranger's process claims to serve root's volume, and names the mount of another volume. `snapshot`,
/// `info`, `mount --at` and `umount` of the volume went there, or got answers from that process, which is
/// older than the daemon. Now they go to the daemon, even if the stranger may share the lock of a volume that
/// is open for reading only.
#[test]
fn forged_entries() {
    if !can_play() {
        return;
    }
    let (scratch, other) = (Scratch::new(), Scratch::new());
    may_pass(&scratch);
    fs::set_permissions(&scratch.volume, fs::Permissions::from_mode(0o644)).unwrap();
    let volume = text(&scratch.volume);
    let elsewhere = Mount::new(&other, &[]).unwrap();
    ok(["snapshot", volume, "-n", "before"]);
    let at = scratch.path("at");
    fs::create_dir(&at).unwrap();
    for (lock, options) in [("", &[][..]), ("lock", &["-o", "ro"])] {
        let lair = Lair::new("forged");
        let args = [volume, text(&elsewhere.directory), text(&lair.0), lock];
        let Some(_stranger) = Stranger::runs(PRETENDER, &args) else { return };
        let mount = Mount::new(&scratch, options).unwrap();
        let info: serde_json::Value = serde_json::from_str(&root_does(&["info", "--json", volume])).unwrap();
        assert_eq!(info["directory"], text(&mount.directory));
        if lock.is_empty() {
            root_does(&["snapshot", volume, "-n", "during"]);
            assert!(root_does(&["snapshots", text(&mount.directory)]).contains("during"));
        }
        root_does(&["mount", "--at", "before", volume, text(&at)]);
        assert!(is_mounted(&at));
        root_does(&["umount", text(&at)]);
        root_does(&["umount", volume]);
        assert!(!is_mounted(&mount.directory) && is_mounted(&elsewhere.directory));
    }
    elsewhere.umount();
}

/// Keeps the mount on `$1` in a namespace of its own, and reads the file there when told to.
const STAYING: &str = r#"
while read -r _ _ _ _ place rest; do case "$rest" in *" - fuse.yore "*) [ "$place" = "$1" ] || umount -l "$place";; esac
done </proc/self/mountinfo
echo ready; read line; cat "$1/file" 2>&1"#;

/// Somebody has a copy of the tree of mounts: `umount` waited for ever, and so did a daemon that got SIGTERM.
/// Now `umount` says who keeps the mount. A daemon that is told to end closes the volume and ends the
/// connection.
#[test]
fn a_mount_kept_in_another_namespace() {
    if !can_play() {
        return;
    }
    let scratch = Scratch::new();
    may_pass(&scratch);
    let mount = Mount::new(&scratch, &["-o", "allow_other"]).unwrap();
    fs::write(mount.directory.join("file"), "kept").unwrap();
    let pid = mount.pid();
    let daemon = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    // Everybody can make such a namespace together with one of users, from which single mounts cannot be
    // removed. This one gives up all other mounts, so that it does not disturb anybody else.
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", STAYING, "sh", text(&mount.directory)]).current_dir("/");
    let mut other = Stranger(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(other.0.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");

    let mut umount = yore();
    umount.args(["umount", text(&mount.directory)]);
    let output = ends(umount);
    let message = error_text(&output);
    assert!(!output.status.success() && !is_mounted(&mount.directory), "{message}");
    assert!(message.contains("another namespace of mounts"), "{message}");
    assert!(message.contains(&format!("{} (sh)", other.0.id())), "{message}");
    assert!(message.contains(&format!("kill {}", pid.as_raw_pid())), "{message}");

    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let limit = Timespec { tv_sec: 120, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&limit)).unwrap(), 1, "it does not end");
    assert_eq!(ok(["cat", &scratch.on("/file")]), "kept");
    ok(["check", text(&scratch.volume)]);
    drop(other.0.stdin.take());
    assert!(said.next().unwrap().unwrap().contains("not connected"));
}

/// From here on this thread, and what it starts, sees a `/dev/fuse` that everybody may open, and the users
/// [`SOMEBODY`] and [`ROBBED`].
fn have_a_user_who_mounts(scratch: &Scratch) {
    use rustix::mount::{mount, mount_bind, MountFlags};
    have_own_mounts();
    let (devices, none) = (scratch.path("dev"), None::<&std::ffi::CStr>);
    fs::create_dir(&devices).unwrap();
    mount("none", &devices, "tmpfs", MountFlags::empty(), none).unwrap();
    let (node, kind) = (devices.join("fuse"), rustix::fs::FileType::CharacterDevice);
    let (mode, number) = (rustix::fs::Mode::from_raw_mode(0o666), rustix::fs::makedev(10, 229));
    rustix::fs::mknodat(rustix::fs::CWD, &node, kind, mode, number).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    mount_bind(&node, "/dev/fuse").unwrap();
    // fusermount3 wants a name for the mounting user.
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str, uid: u32| format!("yore-tests-{name}:x:{uid}:{uid}::/:/bin/false\n");
    let users = users + &of("somebody", SOMEBODY) + &of("robbed", ROBBED);
    mount_bind(scratch.file("passwd", users), "/etc/passwd").unwrap();
}

fn as_somebody(args: &[&str]) -> Command {
    as_user(SOMEBODY, args)
}

fn as_user(uid: u32, args: &[&str]) -> Command {
    let mut command = yore();
    command.args(args).uid(uid).gid(uid).current_dir("/");
    command.env_remove("XDG_RUNTIME_DIR");
    command
}

/// Whether users can mount here.
fn users_can_mount() -> bool {
    let can = Command::new("fusermount3").arg("--version").output().is_ok();
    if !can {
        eprintln!("SKIPPED: users mount by fusermount3, which is not installed");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
    }
    can
}

/// A user's daemon cannot abort its connection if the control files of FUSE are not mounted. Told to end
/// while somebody kept the mount elsewhere, it waited for ever; now it closes the volume and ends.
#[test]
fn a_connection_that_cannot_be_aborted() {
    if !can_play() || !users_can_mount() {
        return;
    }
    let scratch = Scratch::new();
    have_a_user_who_mounts(&scratch);
    // It is not mounted everywhere.
    let _ = rustix::mount::unmount("/sys/fs/fuse/connections", rustix::mount::UnmountFlags::DETACH);
    let directory = scratch.path("mnt");
    fs::create_dir(&directory).unwrap();
    for path in [scratch.path(""), scratch.volume.clone(), directory.clone()] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    let output = ends(as_somebody(&["mount", text(&scratch.volume), text(&directory)]));
    assert!(output.status.success(), "{}", error_text(&output));
    let output = ends(as_somebody(&["snapshot", text(&directory), "-n", "kept"]));
    assert!(output.status.success(), "{}", error_text(&output));
    let info = ends(as_somebody(&["info", "--json", text(&directory)]));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let pid = Pid::from_raw(i32::try_from(info["pid"].as_i64().unwrap()).unwrap()).unwrap();
    let daemon = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let mut other = Command::new("unshare");
    other.args(["--mount", "sh", "-c", STAYING, "sh", text(&directory)]).current_dir("/");
    let mut other = Stranger(other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(other.0.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let limit = Timespec { tv_sec: 120, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&limit)).unwrap(), 1, "it does not end");
    assert!(!is_mounted(&directory));
    assert!(ok(["snapshots", text(&scratch.volume)]).contains("kept"));
    assert!(ok(["check", text(&scratch.volume)]).contains("clean"), "it was closed in order");
}

/// A stranger takes the name `/tmp/yore-UID` of the directory that a user's daemon needs: the user's mounts
/// failed, or others knew nothing of them. They go elsewhere, and root's commands find them there.
#[test]
fn a_directory_that_is_taken() {
    if !can_play() || !users_can_mount() {
        return;
    }
    let taken = Path::new("/tmp").join(format!("yore-{ROBBED}"));
    // Left over from an earlier run that was killed.
    match fs::remove_dir_all(&taken) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", taken.display()),
        _ => fs::create_dir(&taken).unwrap(),
    }
    let lair = Lair(taken);
    chown(&lair.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let scratch = Scratch::new();
    have_a_user_who_mounts(&scratch);
    let directory = scratch.path("mnt");
    fs::create_dir(&directory).unwrap();
    for path in [scratch.path(""), scratch.volume.clone(), directory.clone()] {
        chown(path, Some(ROBBED), Some(ROBBED)).unwrap();
    }
    let output = ends(as_user(ROBBED, &["mount", text(&scratch.volume), text(&directory)]));
    assert!(output.status.success(), "{}", error_text(&output));
    let at = scratch.path("at");
    fs::create_dir(&at).unwrap();
    chown(&at, Some(ROBBED), Some(ROBBED)).unwrap();
    let output = ends(as_user(ROBBED, &["snapshot", text(&directory), "-n", "one"]));
    assert!(output.status.success(), "{}", error_text(&output));
    let output = ends(as_user(ROBBED, &["mount", "--at", "one", text(&scratch.volume), text(&at)]));
    assert!(output.status.success(), "{}", error_text(&output));
    let of_user = ends(as_user(ROBBED, &["info", "--json", text(&scratch.volume)]));
    let of_user: serde_json::Value = serde_json::from_slice(&of_user.stdout).unwrap();
    assert_eq!(of_user["mounted_snapshots"][0]["directory"], text(&at));
    let of_root: serde_json::Value =
        serde_json::from_str(&root_does(&["info", "--json", text(&scratch.volume)])).unwrap();
    assert_eq!(of_root["pid"], of_user["pid"]);
    root_does(&["umount", text(&at), text(&directory)]);
    assert!(!is_mounted(&directory) && !is_mounted(&at));
    ok(["check", text(&scratch.volume)]);
}

/// On root's mount for everybody a user makes no more snapshots than the mount allows, learns which limit
/// that is, and cannot shorten what root's policy holds, by any command.
#[test]
fn limits_and_holds_of_policies() {
    if !can_play() {
        return;
    }
    let scratch = Scratch::new();
    may_pass(&scratch);
    let Some(mount) =
        Mount::new(&scratch, &["-o", "allow_other,user_snapshots=3,user_holds=1,user_policies=1"])
    else {
        return;
    };
    let mine = mount.directory.join("mine");
    fs::create_dir(&mine).unwrap();
    chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    let path = text(&mine);
    let nobody = |args: &[&str]| {
        let mut command = yore();
        command.args(args).uid(NOBODY).gid(NOBODY).current_dir("/");
        ends(command)
    };
    for name in ["a", "b", "c"] {
        assert!(nobody(&["snapshot", path, "-n", name]).status.success());
    }
    let says = |over: &Output, which: &str| {
        let (text, all) = (error_text(over), ["snapshots", "holds", "policies"]);
        assert!(!over.status.success(), "{over:?}");
        let named: Vec<&str> =
            all.into_iter().filter(|one| text.contains(&format!("user_{one}=N"))).collect();
        assert_eq!(named, [which], "{text}");
    };
    says(&nobody(&["snapshot", path]), "snapshots");
    says(&nobody(&["snapshot", path, "--hold"]), "snapshots");
    root_does(&["snapshot", path]);
    assert!(nobody(&["forget", &format!("{path}@a")]).status.success());
    assert!(nobody(&["snapshot", path, "--hold", "-n", "held"]).status.success());
    says(&nobody(&["hold", &format!("{path}@b")]), "holds");
    assert!(nobody(&["forget", &format!("{path}@b")]).status.success());
    says(&nobody(&["snapshot", path, "--hold", "-n", "b"]), "holds");

    root_does(&["policy", text(&mount.directory), "version=close", "hold=1h"]);
    let file = mine.join("file");
    fs::write(&file, "precious").unwrap();
    let log = root_does(&["log", "--json", text(&file)]);
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let at = log.as_array().unwrap().iter().find_map(|row| row["last"]["at"].as_str()).unwrap().to_string();
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    let version = format!("{}@{at}", file.display());
    for refused in [
        &["policy", path, "hold=none"][..],
        &["policy", path, "hold=2h"],
        &["policy", text(&mount.directory), "hold=inherit"],
        &["release", &version],
        &["forget", &version],
    ] {
        let output = nobody(refused);
        assert!(!output.status.success(), "{refused:?}");
    }
    assert!(nobody(&["policy", path, "keep=last:1"]).status.success());
    let again = mine.join("again");
    fs::create_dir(&again).unwrap();
    chown(&again, Some(NOBODY), Some(NOBODY)).unwrap();
    says(&nobody(&["policy", text(&again), "keep=last:1"]), "policies");
    let mut forget = yore();
    forget.args(["forget", &version]);
    assert!(!ends(forget).status.success(), "not even root, before it is released");
    root_does(&["release", &version]);
    root_does(&["forget", &version]);
}

/// A directory to mount on, which belongs to somebody, as the volume does.
fn somebodys_directory(scratch: &Scratch) -> std::path::PathBuf {
    let directory = scratch.path("mnt");
    fs::create_dir(&directory).unwrap();
    for path in [scratch.path(""), scratch.volume.clone(), directory.clone()] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    directory
}

fn somebody_does(args: &[&str]) {
    let output = ends(as_somebody(args));
    assert!(output.status.success(), "{args:?}: {}", error_text(&output));
}

/// A user who mounts a volume may do there what root may do elsewhere: forget what others took, and give up
/// what others own.
#[test]
fn who_mounts_gives_up_anybodys_history() {
    if !can_play() || !users_can_mount() {
        return;
    }
    let scratch = Scratch::new();
    ok(["mkdir", &scratch.on("/d")]);
    common::put(&scratch, "/d/file", "roots");
    ok(["snapshot", &scratch.on("/d"), "-n", "roots"]);
    ok(["snapshot", &scratch.on("/d"), "-n", "more"]);
    have_a_user_who_mounts(&scratch);
    let directory = somebodys_directory(&scratch);
    somebody_does(&["mount", text(&scratch.volume), text(&directory)]);
    let file = directory.join("d/file");
    somebody_does(&["forget", &format!("{}@more", text(&directory.join("d")))]);
    somebody_does(&["expunge", "--yes", text(&file)]);
    somebody_does(&["umount", text(&directory)]);
    assert!(!fs::exists(&file).unwrap());
    assert_eq!(ok(["ls", &scratch.on("/d@roots")]), "");
}

/// `resize` of a directory opened whatever the table of mounts names as its volume, also where a stranger had
/// written that. Now it wants the length, and opens nothing.
#[test]
fn the_volume_of_a_strangers_mount_is_not_opened() {
    let allowed = "/etc/fuse.conf";
    if !can_play() || !users_can_mount() || !fs::exists(allowed).unwrap() {
        return;
    }
    let scratch = Scratch::new();
    have_a_user_who_mounts(&scratch);
    rustix::mount::mount_bind(scratch.file("fuse.conf", "user_allow_other\n"), allowed).unwrap();
    let directory = somebodys_directory(&scratch);
    let (volume, mounted) = (text(&scratch.volume), text(&directory));
    somebody_does(&["mount", "-o", "allow_other", volume, mounted]);
    fs::File::options().write(true).open(volume).unwrap().set_len(96 << 20).unwrap();
    let mut resize = yore();
    resize.args(["resize", mounted]);
    let refused = ends(resize);
    assert_eq!(refused.status.code(), Some(2), "{}", error_text(&refused));
    assert!(error_text(&refused).contains("say how long"), "{}", error_text(&refused));
    root_does(&["resize", mounted, "80M"]);
    somebody_does(&["resize", mounted]);
    somebody_does(&["umount", mounted]);
    assert!(ok(["info", volume]).contains("96 MiB"));
}
