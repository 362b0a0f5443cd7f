//! What the tests of the command share: running it, and a directory to work in.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command.
pub fn yore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yore"));
    command.stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    yore().args(args).output().expect("the command can be started")
}

/// Runs a command that must succeed; what it printed.
#[track_caller]
pub fn ok<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_os_string()).collect();
    let output = run(&args);
    assert!(output.status.success(), "yore {args:?}: {}: {}", output.status, error_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail with this status; its message, which must say who speaks and be no panic.
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

/// A directory that goes away, with a volume in it.
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

    /// With a volume of 64 MiB.
    #[track_caller]
    pub fn new() -> Scratch {
        let scratch = Scratch::empty();
        ok([OsStr::new("mkfs"), scratch.volume.as_os_str(), "--size".as_ref(), "64M".as_ref()]);
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

/// A path as text; the tests' own paths are.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the tests is text")
}
