//! Shared by the tests of the command: running it, and a directory to work in.

#[path = "../../../yore-fuse/tests/common/reachable.rs"]
mod reachable;
pub mod trees;

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use yore_device::mounts::mounts_of_thread;

/// A user with no rights anywhere.
pub const NOBODY: u32 = 65534;

/// The program, which other users can start, too.
pub fn program() -> &'static Path {
    reachable::reachable(Path::new(env!("CARGO_BIN_EXE_yore")))
}

/// The command.
pub fn yore() -> Command {
    let mut command = Command::new(program());
    command.stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    yore().args(args).output().expect("the command can be started")
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
pub fn ok<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_os_string()).collect();
    let output = run(&args);
    assert!(output.status.success(), "yore {args:?}: {}: {}", output.status, error_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail with this status; returns its message, which must begin with the program's
/// name and be no panic.
#[track_caller]
pub fn fails<S: AsRef<OsStr>>(status: i32, args: impl IntoIterator<Item = S>) -> String {
    let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_os_string()).collect();
    let output = run(&args);
    let message = error_text(&output);
    assert_eq!(output.status.code(), Some(status), "yore {args:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    assert!(!message.trim().is_empty(), "yore {args:?} said nothing");
    message
}

/// What went to standard error.
pub fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A temporary directory with a volume in it.
pub struct Scratch {
    dir: tempfile::TempDir,
    /// Its volume, whether it exists or not.
    pub volume: PathBuf,
}

impl Scratch {
    /// Without a volume yet.
    pub fn empty() -> Scratch {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let volume = dir.path().join("v.yore");
        Scratch { dir, volume }
    }

    /// With a volume of 64 MiB, on which only the test takes snapshots.
    #[track_caller]
    pub fn new() -> Scratch {
        Scratch::with_policy(Some("none"))
    }

    /// With a volume of 64 MiB and this policy; `None`: the policy that all volumes get.
    #[track_caller]
    pub fn with_policy(policy: Option<&str>) -> Scratch {
        let scratch = Scratch::empty();
        let policy = policy.map(|policy| format!("--policy={policy}"));
        let fixed = ["mkfs", text(&scratch.volume), "--size", "64M"];
        ok(fixed.into_iter().chain(policy.as_deref()));
        scratch
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path on the volume, as the command wants it.
    pub fn on(&self, path: &str) -> String {
        format!("{}:{path}", self.volume.display())
    }

    /// A file in the directory.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }
}

/// Waits until another process has done something; `what` names it. The limit is for a test that hangs, not a
/// promise: a busy machine may take long.
#[track_caller]
pub fn until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !has_happened() {
        assert!(Instant::now() < end, "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a command, again and again, until one was stopped (SIGSTOP) at a moment that the test waits for;
/// `is_now` tells it from what the command has open. The standard error of the one that is stopped can be
/// read.
#[track_caller]
pub fn stopped_when(args: &[&str], is_now: impl Fn(&[PathBuf]) -> bool) -> Child {
    let is_now = |command: &Child| {
        let all = fs::read_dir(format!("/proc/{}/fd", command.id())).into_iter().flatten().flatten();
        is_now(&all.filter_map(|of| fs::read_link(of.path()).ok()).collect::<Vec<_>>())
    };
    let mut stopped = None;
    until(&format!("yore {args:?} was stopped"), || {
        let mut command = yore()
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        while command.try_wait().expect("it is a child").is_none() {
            if is_now(&command) {
                kill_process(Pid::from_child(&command), Signal::STOP).unwrap();
                if is_now(&command) {
                    stopped = Some(command);
                    return true;
                }
                kill_process(Pid::from_child(&command), Signal::CONT).unwrap();
            }
        }
        false
    });
    stopped.expect("it was stopped")
}

/// A mount that is unmounted in every case.
pub struct Mount<'a> {
    /// What is mounted.
    pub scratch: &'a Scratch,
    /// Where.
    pub directory: PathBuf,
}

impl Mount<'_> {
    /// Mounts a volume; `None` if there is no FUSE.
    pub fn new<'a>(scratch: &'a Scratch, options: &[&str]) -> Option<Mount<'a>> {
        if !can_mount() {
            return None;
        }
        let directory = scratch.path("mnt");
        fs::create_dir_all(&directory).unwrap();
        let mount = Mount { scratch, directory };
        mount.again(options);
        Some(mount)
    }

    /// Mounts it again, after it was unmounted.
    #[track_caller]
    pub fn again(&self, options: &[&str]) {
        let log = format!("log={}", text(&self.scratch.path("daemon.log")));
        let fixed = ["mount", text(&self.scratch.volume), text(&self.directory), "-o", &log];
        ok(fixed.iter().chain(options));
    }

    /// The output of `info`.
    pub fn info(&self) -> Value {
        serde_json::from_str(&ok(["info", "--json", text(&self.directory)])).unwrap()
    }

    /// Its daemon.
    pub fn pid(&self) -> Pid {
        let pid = self.info()["pid"].as_i64().expect("a daemon has a process id");
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    /// Unmounts it.
    #[track_caller]
    pub fn umount(&self) {
        ok([OsStr::new("umount"), self.directory.as_os_str()]);
        assert!(!is_mounted(&self.directory));
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.directory) {
            run([OsStr::new("umount"), OsStr::new("--lazy"), self.directory.as_os_str()]);
        }
    }
}

/// Whether this machine can mount; prints a note if not.
pub fn can_mount() -> bool {
    let can = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: there is no usable /dev/fuse here");
    }
    can
}

/// Whether something is mounted there, as this thread sees it.
pub fn is_mounted(directory: &Path) -> bool {
    mounts_of_thread().unwrap().iter().any(|mount| mount.directory == directory)
}

/// From here on this thread, and every process it starts, has a tree of mounts of its own. Volumes that other
/// tests have mounted are not in it: they must end when those tests end them.
pub fn have_own_mounts() {
    use rustix::mount::{mount_change, unmount, MountPropagationFlags, UnmountFlags};
    // SAFETY: the thread gets a copy of the tree; it relied on sharing nothing through it.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    for mount in mounts_of_thread().unwrap().iter().filter(|mount| mount.fs_type == "fuse.yore") {
        unmount(&mount.directory, UnmountFlags::DETACH).unwrap();
    }
}

/// Waits for a process that is not a child.
pub fn wait_for_end(pid: Pid) {
    use rustix::event::{poll, PollFd, PollFlags};
    if let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
    }
}

/// A path as text; the tests' own paths are.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the tests is text")
}

/// A volume with the directory `/d/sub` and the file `/d/file`, of content "one".
pub fn scratch() -> Scratch {
    let scratch = Scratch::new();
    ok(["mkdir", "-p", &scratch.on("/d/sub")]);
    put(&scratch, "/d/file", "one");
    scratch
}

/// Puts a file on a volume.
#[track_caller]
pub fn put(scratch: &Scratch, path: &str, content: impl AsRef<[u8]>) {
    let file = scratch.file("content", content);
    ok(["put", text(&file), &scratch.on(path)]);
}

/// Takes a snapshot with a name.
#[track_caller]
pub fn take(path: &str, name: &str) {
    ok(["snapshot", path, "-n", name]);
}

/// Runs a command that prints a JSON array.
#[track_caller]
pub fn rows(args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ok(args)).unwrap()
}
