//! What a daemon leaves for other commands: a file in memory that says what it serves, a second one for its
//! last words, and a directory for its socket and its log.
//!
//! The files in memory have no place in any directory: others find them among the daemon's descriptors, which
//! the kernel shows to its user and to root. Nobody else can put anything there. Root's daemons also leave a
//! copy below `/run/yore`, where only root writes, so that other users may know of them.
//!
//! The directory for socket and log is `/run/yore` for root, and for others `$XDG_RUNTIME_DIR/yore`, or else
//! `/tmp/yore-UID`. If somebody else has taken that last name, the daemon uses one that nobody can guess.

use super::daemon::Daemon;
use super::process::{self, process_start};
use anyhow::Context as _;
use rustix::fs::{Mode, OFlags, SealFlags};
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The name of the file in memory in which a daemon says what it serves.
pub const MOUNTED: &str = "yore-mounted";
/// The name of the file in memory for its last words.
pub const LAST_WORDS: &str = "yore-last-words";
/// The directory where root's daemons tell everybody what they serve.
pub const OF_ROOT: &str = "/run/yore";

/// How long the log of a dead daemon is kept for whoever asks why it died.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a daemon tells others, until this is dropped.
#[derive(Debug)]
pub struct Announcement {
    mounted: OwnedFd,
    last_words: File,
    /// Root's copy.
    copy: Option<PathBuf>,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let Some(copy) = &self.copy else { return };
        if let Err(error) = fs::remove_file(copy) {
            tracing::warn!(path = %copy.display(), %error, "cannot remove the file that announces this mount");
        }
    }
}

/// Announces a mount, and removes what dead daemons left.
///
/// # Errors
/// There is no memory for it.
pub fn announce(daemon: &Daemon) -> anyhow::Result<Announcement> {
    let directory = runtime_directory();
    if let Ok(directory) = directory {
        clear_away(directory);
    }
    let copy = match directory {
        Ok(directory) if rustix::process::geteuid().is_root() => {
            Some(directory.join(format!("{}.json", daemon.pid)))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!("only this user will know of the mount: {error:#}");
            None
        }
    };
    let mut announcement = Announcement {
        mounted: process::new_memory_file(MOUNTED).context("cannot make a file in memory")?,
        last_words: process::new_memory_file(LAST_WORDS).context("cannot make a file in memory")?.into(),
        copy,
    };
    announcement.renew(daemon)?;
    Ok(announcement)
}

impl Announcement {
    /// Replaces what is announced.
    ///
    /// # Errors
    /// There is no memory for it, or the copy cannot be written.
    pub fn renew(&mut self, daemon: &Daemon) -> anyhow::Result<()> {
        // Not pretty: bytes would each have a line, and the whole has a limit ([`process::read`]).
        let text = serde_json::to_string(daemon)?;
        // A new file replaces the old one in one step, so that nobody reads half of each.
        let mut new = File::from(process::new_memory_file(MOUNTED).context("cannot make a file in memory")?);
        new.write_all(text.as_bytes()).context("cannot write a file in memory")?;
        rustix::fs::fcntl_add_seals(&new, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
        rustix::io::dup3(&new, &mut self.mounted, rustix::io::DupFlags::CLOEXEC)?;
        match &self.copy {
            Some(copy) => write_copy(copy, &text).with_context(|| format!("cannot write {}", copy.display())),
            None => Ok(()),
        }
    }

    /// Leaves word of a bad end for whoever waits for it.
    pub fn leave_word(&mut self, message: &str) {
        if let Err(error) = self.last_words.write_all(message.as_bytes()) {
            tracing::warn!("whoever unmounted is not told of the error: {error:#}");
        }
    }
}

fn write_copy(path: &Path, text: &str) -> std::io::Result<()> {
    let partial = path.with_extension("new");
    // An earlier process with this number may have left one.
    let _ = fs::remove_file(&partial);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::open(&partial, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(text.as_bytes())?;
    fs::rename(&partial, path)
}

/// What root's daemons say in files, for callers who may not look into root's processes.
pub fn of_root() -> Vec<Daemon> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(OF_ROOT, flags, Mode::empty()) else { return Vec::new() };
    let is_roots = |found: &fs::Metadata| found.uid() == 0 && found.mode() & 0o022 == 0;
    let directory = File::from(directory);
    if !directory.metadata().is_ok_and(|found| is_roots(&found)) {
        return Vec::new();
    }
    let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return Vec::new() };
    let one = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
        let entry = entry.ok()?;
        entry.file_name().to_bytes().ends_with(b".json").then_some(())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&directory, entry.file_name(), flags, Mode::empty()).ok()?);
        let is_sound = file.metadata().is_ok_and(|found| found.is_file() && is_roots(&found));
        let text = is_sound.then(|| process::read(file)).flatten()?;
        let daemon: Daemon = serde_json::from_str(&text).ok()?;
        (process_start(daemon.pid) == Some(daemon.process_start)).then_some(daemon)
    };
    entries.filter_map(one).collect()
}

/// The directory for this process's socket and log, which is created if it does not exist. It stays the same
/// as long as the process lives.
///
/// # Errors
/// No such directory can be made anywhere.
pub fn runtime_directory() -> anyhow::Result<&'static Path> {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(directory) = DIRECTORY.get() {
        return Ok(directory);
    }
    let directory = find_directory()?;
    Ok(DIRECTORY.get_or_init(|| directory))
}

fn find_directory() -> anyhow::Result<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        make(Path::new(OF_ROOT), 0o755).with_context(|| format!("cannot make {OF_ROOT}"))?;
        return Ok(OF_ROOT.into());
    }
    let user = user.as_raw();
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_session = of_session.into_iter().chain([PathBuf::from(format!("/run/user/{user}"))]);
    let usual = of_session
        .filter(|runtime| runtime.is_absolute() && is_own(runtime))
        .map(|runtime| runtime.join("yore"))
        .chain([PathBuf::from(format!("/tmp/yore-{user}"))]);
    for directory in usual {
        if make(&directory, 0o700).is_ok() {
            return Ok(directory);
        }
    }
    let random = uuid::Uuid::new_v4().simple().to_string();
    let directory = PathBuf::from(format!("/tmp/yore-{user}-{}", &random[..12]));
    make(&directory, 0o700).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// Makes a directory, unless it exists and really is this user's.
fn make(directory: &Path, mode: u32) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_own(directory) => Ok(()),
        other => other,
    }
}

/// Whether this is a directory, and not a link to one, in which only this user can make files.
fn is_own(directory: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let found = fs::symlink_metadata(directory);
    found.is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// Where this process takes requests.
pub fn own_socket(directory: &Path) -> PathBuf {
    directory.join(format!("{}.sock", std::process::id()))
}

/// Where this process logs if there is nowhere else to log.
pub fn own_log(directory: &Path) -> PathBuf {
    directory.join(format!("{}.log", std::process::id()))
}

/// Removes that log, when nobody needs anything in it.
pub fn remove_own_log() {
    if let Ok(directory) = runtime_directory() {
        // Mostly there is none.
        let _ = fs::remove_file(own_log(directory));
    }
}

/// Removes the directory if it is this process's alone and nothing is left in it.
pub fn leave_directory() {
    let Ok(directory) = runtime_directory() else { return };
    let shared = ["yore".to_string(), format!("yore-{}", rustix::process::geteuid().as_raw())];
    if !shared.iter().any(|name| directory.file_name() == Some(name.as_ref())) {
        // A log that tells of an error stays, and its directory with it.
        let _ = fs::remove_dir(directory);
    }
}

/// Removes what dead daemons left in a directory of this user.
fn clear_away(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.extension().and_then(|e| e.to_str());
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let dead = pid.is_some_and(|pid| pid == std::process::id() || process_start(pid).is_none());
        let age = entry.metadata().ok().and_then(|found| found.modified().ok()?.elapsed().ok());
        let old = age.is_some_and(|age| age > KEPT);
        let is_left = matches!(kind, Some("json" | "new" | "failed"))
            || kind == Some("sock") && pid != Some(std::process::id())
            || kind == Some("log") && old;
        if dead && is_left {
            // Another daemon may be doing the same.
            let _ = fs::remove_file(path);
        }
    }
}
