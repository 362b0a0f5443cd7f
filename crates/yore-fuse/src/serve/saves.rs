//! Versions at each close on a mount to which the kernel does not report closes.
//!
//! The kernel asks once in the life of a connection whether it is to report opens and closes. Those reports
//! cost every program two or three requests for each file, for good. So a mount of a volume without a policy
//! that makes versions at closes does without them. If such a policy is set later, the daemon detects closes
//! in another way, and only from then on: before that, nothing described here happens.
//!
//! **Closes.** Each change of a file says which process made it. A moment after the last change ([`QUIET`]) a
//! thread checks whether that process still has the file open for writing (`/proc/PID/fdinfo`). If not, or if
//! the process is gone, or may not be examined, the file counts as closed and gets its version; otherwise the
//! thread checks again later.
//!
//! **Saves that follow at once.** If a file is truncated to nothing and its last change has no version yet,
//! it has been saved before, so the version is made first. The same holds if another process changes a file
//! and the earlier process is gone. Changes of names make their versions themselves
//! ([`yore_fs::View::rename`] and others).
//!
//! **Whoever asks for the past** finds every file that is closed by then: the files that wait are checked
//! first.
//!
//! One case stays undetected: a program adds to a file, or writes in its middle, and closes it, and does so
//! again within [`QUIET`]. Both saves become one version.

use crate::connection::{Shared, Watched};
use crate::privilege::process_of;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use yore_fs::{Error, InodeNo, View};

/// How long a file must not change before the thread checks whether it is closed.
const QUIET: Duration = Duration::from_millis(100);
/// The longest time between two checks of a file that stays open.
const SELDOM: Duration = Duration::from_secs(5);

/// A file with changes that have no version yet.
struct Changed {
    /// The process that made the last change; 0 if it cannot be seen, or is the kernel itself.
    by: u32,
    /// The thread that made the last change.
    thread: u32,
    /// When the next check is due, and how long to wait after that.
    next: Instant,
    wait: Duration,
}

#[derive(Default)]
struct Waiting {
    files: HashMap<InodeNo, Changed>,
    ended: bool,
}

/// State that the thread shares with those that serve.
struct Inner {
    view: View,
    shared: Arc<Shared>,
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

/// Detects closes of files, once a policy needs that.
pub(super) struct Saves {
    inner: Arc<Inner>,
    wanted: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Whether a process has a file open for writing, by the number that the file has on this mount. This sends
/// no request to the mount. A process that may not be examined counts as not having it open.
fn has_open(process: u32, inode: InodeNo) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.into_iter().any(|text| is_writer(&text, inode.0))
}

/// Whether this fdinfo describes an open file of this number that can be written to.
fn is_writer(text: &str, node: u64) -> bool {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = value("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
    value("ino:").and_then(|no| no.parse().ok()) == Some(node)
        && flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

fn is_gone(process: u32) -> bool {
    process != 0 && !Path::new(&format!("/proc/{process}")).exists()
}

impl Inner {
    /// The file was closed: makes its version.
    fn closed(&self, inode: InodeNo) {
        if let Err(error) = self.view.closed(inode) {
            // The library counts versions for which a full volume has no room, and its log says so once.
            if matches!(error.root(), Error::NoSpace | Error::NeverFits { .. }) {
                return;
            }
            tracing::error!(call = "close", inode = inode.0, %error, "no version was made of a file that was closed");
        }
    }

    /// Makes versions of those among `files` that are closed; the others wait again, each time longer.
    fn check_files(&self, files: Vec<(InodeNo, Changed)>) {
        for (inode, mut file) in files {
            if file.by == 0 || !has_open(file.by, inode) {
                self.closed(inode);
                continue;
            }
            file.wait = (file.wait * 2).min(SELDOM);
            file.next = Instant::now() + file.wait;
            // If somebody has changed the file meanwhile, that entry is newer.
            self.waiting.lock().files.entry(inode).or_insert(file);
        }
    }

    /// The body of the thread: checks the files that are due, until the end.
    fn attend(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.ended {
            let now = Instant::now();
            let due: Vec<InodeNo> =
                waiting.files.iter().filter(|(_, file)| file.next <= now).map(|(no, _)| *no).collect();
            let due: Vec<_> =
                due.into_iter().filter_map(|no| Some((no, waiting.files.remove(&no)?))).collect();
            if !due.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut waiting, || self.check_files(due));
                continue;
            }
            match waiting.files.values().map(|file| file.next).min() {
                Some(next) => drop(self.woken.wait_until(&mut waiting, next)),
                None => self.woken.wait(&mut waiting),
            }
        }
    }
}

impl Saves {
    pub(super) fn new(view: View, shared: Arc<Shared>) -> Saves {
        let inner = Inner { view, shared, waiting: Mutex::default(), woken: Condvar::new() };
        Saves { inner: Arc::new(inner), wanted: AtomicBool::new(false), thread: Mutex::new(None) }
    }

    /// There is now a policy that makes versions at closes.
    ///
    /// # Errors
    /// The thread for this cannot be started.
    pub(super) fn want(&self) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let inner = self.inner.clone();
            let work = move || {
                let shared = inner.shared.clone();
                let _watched = Watched(shared);
                inner.attend();
            };
            *thread = Some(std::thread::Builder::new().name("yore-saves".into()).spawn(work)?);
        }
        self.wanted.store(true, Ordering::Release);
        Ok(())
    }

    fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Somebody asks for the past: files that wait and are closed get their versions now.
    pub(super) fn settle(&self) {
        if self.are_wanted() {
            let files = std::mem::take(&mut self.inner.waiting.lock().files);
            self.inner.check_files(files.into_iter().collect());
        }
    }

    /// This thread is about to change a file; `is_emptied`: all its content goes.
    pub(super) fn before(&self, inode: InodeNo, thread: u32, is_emptied: bool) {
        if !self.are_wanted() {
            return;
        }
        let is_saved = {
            let mut waiting = self.inner.waiting.lock();
            let Some(file) = waiting.files.get(&inode) else { return };
            let is_saved = is_emptied || file.thread != thread && is_gone(file.by);
            if is_saved {
                waiting.files.remove(&inode);
            }
            is_saved
        };
        if is_saved {
            self.inner.closed(inode);
        }
    }

    /// This thread has changed a file.
    pub(super) fn changed(&self, inode: InodeNo, thread: u32) {
        if !self.are_wanted() || !self.inner.view.makes_versions_at_close(inode).unwrap_or(false) {
            return;
        }
        let mut waiting = self.inner.waiting.lock();
        let next = Instant::now() + QUIET;
        if let Some(file) = waiting.files.get_mut(&inode).filter(|file| file.thread == thread) {
            (file.next, file.wait) = (next, QUIET);
            return;
        }
        drop(waiting);
        let by = process_of(thread).unwrap_or(0);
        let mut waiting = self.inner.waiting.lock();
        waiting.files.insert(inode, Changed { by, thread, next, wait: QUIET });
        // The thread may sleep until much later.
        self.inner.woken.notify_one();
    }
}

impl Drop for Saves {
    /// The mount has ended, so everything is closed.
    fn drop(&mut self) {
        self.inner.waiting.lock().ended = true;
        self.inner.woken.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            if thread.join().is_err() {
                tracing::error!("the thread that looks for files that were closed panicked");
            }
        }
        let files = std::mem::take(&mut self.inner.waiting.lock().files);
        if !self.inner.shared.is_in_doubt() && !std::thread::panicking() {
            files.into_keys().for_each(|inode| self.inner.closed(inode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    /// A file that this process has open is detected as such, by the mode of the open, and no longer after
    /// its close.
    #[test]
    fn who_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = fs::File::create(&path).unwrap();
        let number = InodeNo(file.metadata().unwrap().ino());
        assert!(has_open(std::process::id(), number));
        drop(file);
        assert!(!has_open(std::process::id(), number));
        let reader = fs::File::open(&path).unwrap();
        assert!(!has_open(std::process::id(), number), "to read only");
        drop(reader);
        assert!(!has_open(u32::MAX, number) && is_gone(u32::MAX) && !is_gone(std::process::id()));
        assert!(is_writer("pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t17\n", 17));
        assert!(!is_writer("pos:\t0\nflags:\t0100002\nino:\t170\n", 17));
        assert!(!is_writer("", 0));
    }
}
