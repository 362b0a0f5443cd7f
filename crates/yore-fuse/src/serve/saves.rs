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
//!
//! # While a file is checked
//! - **V1** A file waits until its version is there. So all who ask at the same time check it, and whoever is
//!   about to change it finds it.
//! - **V2** A version is made of what was found closed: whoever is about to empty the file, or to change it
//!   after another process, first says so, which voids every check that has begun, and makes the version
//!   itself.
//! - **V3** One thread at a time makes a version of a file; others who want it wait for that one.
//! - **V4** What a process has open is read once for all of its files. Checks fall due at multiples of
//!   [`STEP`], and of the time that a file waits, so those of a process come together.

use super::opened::open_for_writing;
use crate::connection::{Shared, Watched};
use crate::privilege::process_of;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
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
/// The shortest time between two rounds of checks.
const STEP: Duration = Duration::from_millis(50);

/// A file with changes that have no version yet.
#[derive(Clone, Copy)]
struct Changed {
    /// The process that made the last change; 0 if it cannot be seen, or is the kernel itself.
    by: u32,
    /// The thread that made the last change.
    thread: u32,
    /// When the next check is due, and how long to wait after that.
    next: Instant,
    wait: Duration,
    /// Another one for each change, and whenever somebody is about to change the file.
    serial: u64,
}

/// A file that is checked, as it was when the check began.
#[derive(Clone, Copy)]
struct Checked {
    inode: InodeNo,
    by: u32,
    serial: u64,
}

#[derive(Default)]
struct Waiting {
    files: HashMap<InodeNo, Changed>,
    /// The last serial number given.
    serial: u64,
    /// Files of which a thread is making a version.
    closing: HashSet<InodeNo>,
    ended: bool,
}

impl Waiting {
    fn new_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether nothing has happened to a file since its check began.
    fn is_still(&self, file: &Checked) -> bool {
        self.files.get(&file.inode).is_some_and(|now| now.serial == file.serial)
    }

    fn to_check(&self, is_wanted: impl Fn(&Changed) -> bool) -> Vec<Checked> {
        let wanted = self.files.iter().filter(|(_, file)| is_wanted(file));
        wanted.map(|(inode, file)| Checked { inode: *inode, by: file.by, serial: file.serial }).collect()
    }
}

/// Finds which of some files a process has open for writing.
type Opened = Box<dyn Fn(u32, &HashSet<InodeNo>) -> HashSet<InodeNo> + Send + Sync>;

/// State that the thread shares with those that serve.
struct Inner {
    view: View,
    shared: Arc<Shared>,
    opened: Opened,
    /// Checks are due at multiples of a time after this.
    begun: Instant,
    waiting: Mutex<Waiting>,
    woken: Condvar,
    /// A version was made.
    made: Condvar,
}

/// Detects closes of files, once a policy needs that.
pub(super) struct Saves {
    inner: Arc<Inner>,
    wanted: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The right to make a version of a file.
struct Closing<'a>(&'a Inner, InodeNo);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().closing.remove(&self.1);
        self.0.made.notify_all();
    }
}

fn is_gone(process: u32) -> bool {
    process != 0 && !Path::new(&format!("/proc/{process}")).exists()
}

impl Inner {
    /// The first multiple of `step` after this time.
    fn multiple_after(&self, time: Instant, step: Duration) -> Instant {
        let step = step.as_millis() as u64;
        let past = time.saturating_duration_since(self.begun).as_millis() as u64 / step;
        self.begun + Duration::from_millis((past + 1) * step)
    }

    /// When a file is due that changes now.
    fn next_check(&self) -> Instant {
        self.multiple_after(Instant::now() + QUIET, STEP)
    }

    fn make_version(&self, inode: InodeNo) {
        if let Err(error) = self.view.closed(inode) {
            // The library counts versions for which a full volume has no room, and its log says so once.
            if matches!(error.root(), Error::NoSpace | Error::NeverFits { .. }) {
                return;
            }
            tracing::error!(call = "close", inode = inode.0, %error, "no version was made of a file that was closed");
        }
    }

    /// Waits until nobody else makes a version of a file. `None`: a check says that it is closed, and that is
    /// no longer true, or its version is there.
    fn begin_to_close(&self, inode: InodeNo, found: Option<&Checked>) -> Option<Closing<'_>> {
        let mut waiting = self.waiting.lock();
        while waiting.closing.contains(&inode) {
            self.made.wait(&mut waiting);
        }
        if found.is_some_and(|found| !waiting.is_still(found)) {
            return None;
        }
        waiting.closing.insert(inode);
        Some(Closing(self, inode))
    }

    /// A file was found closed.
    fn found_closed(&self, file: &Checked) {
        let Some(_closing) = self.begin_to_close(file.inode, Some(file)) else { return };
        self.make_version(file.inode);
        let mut waiting = self.waiting.lock();
        if waiting.is_still(file) {
            waiting.files.remove(&file.inode);
        }
    }

    /// A file was found open: if its check was due, it waits longer for the next one.
    fn found_open(&self, file: &Checked) {
        let mut waiting = self.waiting.lock();
        let now = Instant::now();
        let same = |waits: &&mut Changed| waits.serial == file.serial && waits.next <= now;
        if let Some(waits) = waiting.files.get_mut(&file.inode).filter(same) {
            waits.wait = (waits.wait * 2).min(SELDOM);
            waits.next = self.multiple_after(now, waits.wait);
        }
    }

    /// Makes versions of those among `files` that are closed.
    fn check_files(&self, mut files: Vec<Checked>) {
        files.sort_unstable_by_key(|file| file.by);
        for of_one in files.chunk_by(|a, b| a.by == b.by) {
            let inodes: HashSet<InodeNo> = of_one.iter().map(|file| file.inode).collect();
            let open = match of_one.first().map_or(0, |file| file.by) {
                0 => HashSet::new(),
                by => (self.opened)(by, &inodes),
            };
            for file in of_one {
                match open.contains(&file.inode) {
                    true => self.found_open(file),
                    false => self.found_closed(file),
                }
            }
        }
    }

    /// The body of the thread: checks the files that are due, until the end.
    fn attend(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.ended {
            let now = Instant::now();
            let due = waiting.to_check(|file| file.next <= now);
            if !due.is_empty() {
                MutexGuard::unlocked(&mut waiting, || self.check_files(due));
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
        let device = shared.device();
        Saves::with(view, shared, Box::new(move |process, files| open_for_writing(process, device, files)))
    }

    fn with(view: View, shared: Arc<Shared>, opened: Opened) -> Saves {
        let (waiting, woken, made) = (Mutex::default(), Condvar::new(), Condvar::new());
        let inner = Inner { view, shared, opened, begun: Instant::now(), waiting, woken, made };
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

    /// Somebody asks for the past: when this returns, files that wait and are closed have their versions.
    pub(super) fn settle(&self) {
        if self.are_wanted() {
            let files = self.inner.waiting.lock().to_check(|_| true);
            self.inner.check_files(files);
        }
    }

    /// This thread is about to change a file; `is_emptied`: all its content goes. Then what has been saved
    /// gets its version, whether or not the file still waits.
    pub(super) fn before(&self, inode: InodeNo, thread: u32, is_emptied: bool) {
        if !self.are_wanted() {
            return;
        }
        let file = self.inner.waiting.lock().files.get(&inode).copied();
        let is_left = |file: Changed| file.thread != thread && is_gone(file.by);
        if !is_emptied && !file.is_some_and(is_left) {
            return;
        }
        let next = self.inner.next_check();
        let mut waiting = self.inner.waiting.lock();
        let serial = waiting.new_serial();
        if let Some(file) = waiting.files.get_mut(&inode) {
            (file.serial, file.next) = (serial, next);
        }
        drop(waiting);
        let _closing = self.inner.begin_to_close(inode, None);
        self.inner.make_version(inode);
    }

    /// This thread has changed a file.
    pub(super) fn changed(&self, inode: InodeNo, thread: u32) {
        if !self.are_wanted() || !self.inner.view.makes_versions_at_close(inode).unwrap_or(false) {
            return;
        }
        let next = self.inner.next_check();
        let mut waiting = self.inner.waiting.lock();
        let serial = waiting.new_serial();
        if let Some(file) = waiting.files.get_mut(&inode).filter(|file| file.thread == thread) {
            (file.next, file.wait, file.serial) = (next, QUIET, serial);
            return;
        }
        drop(waiting);
        let by = process_of(thread).unwrap_or(0);
        let mut waiting = self.inner.waiting.lock();
        waiting.files.insert(inode, Changed { by, thread, next, wait: QUIET, serial });
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
            files.into_keys().for_each(|inode| self.inner.make_version(inode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountpoint::Identity;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;
    use yore_fs::{Caller, EventNo, FileKind, Policy, SetAttr, Versioning, Volume, WriteMode};

    /// A volume with a version at each close, and what detects closes on it by `opened`.
    fn saves(opened: Opened) -> (Volume, Saves) {
        let volume = Volume::memory(64 << 20).unwrap();
        let policy = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
        volume.view().set_policy(volume.view().root(), &policy).unwrap();
        let mount = Identity { device: (0, 0), source_name: "none".into(), number: None };
        let shared = Arc::new(Shared::new("/nowhere".into(), mount, Arc::default()));
        let saves = Saves::with(volume.view().clone(), shared, opened);
        saves.wanted.store(true, Ordering::Release);
        (volume, saves)
    }

    fn made(view: &View, name: &str) -> InodeNo {
        let caller = Caller::superuser();
        view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap().inode()
    }

    fn write(view: &View, inode: InodeNo, data: &[u8]) {
        view.write(inode, 0, data, WriteMode { append: false, kill_set_id: false }).unwrap();
    }

    /// The sizes of a file's versions.
    fn sizes(view: &View, inode: InodeNo) -> Vec<u64> {
        let events = view.events().unwrap();
        let of_file = |event: &EventNo| view.as_of(*event).getattr(inode).unwrap().size;
        events.iter().map(|event| of_file(&event.number)).collect()
    }

    /// While a file was checked, it waited nowhere: if it was emptied then, nothing was its last version, and
    /// what had been saved was in none. And whoever asked for the past meanwhile did not find the save.
    #[test]
    fn what_was_saved_has_its_version_while_it_is_checked() {
        let (begun, begins) = channel();
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        // Finds everything closed, as soon as it may go on.
        let (volume, saves) = saves(Box::new(move |_, _| {
            begun.send(()).unwrap();
            gate.lock().recv().unwrap();
            HashSet::new()
        }));
        let (view, me) = (volume.view().clone(), std::process::id());
        let inode = made(&view, "a");
        write(&view, inode, b"saved");
        saves.changed(inode, me);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| saves.settle());
                begins.recv().expect("the second one who asks checks the file, too");
            }
            saves.before(inode, me, true);
            assert_eq!(sizes(&view, inode), [5]);
            let emptied = SetAttr { size: Some(0), ..SetAttr::default() };
            view.setattr(&Caller::superuser(), inode, &emptied).unwrap();
            saves.changed(inode, me);
            (0..2).for_each(|_| go.send(()).unwrap());
        });
        assert_eq!(sizes(&view, inode), [5], "nothing was found closed after it was emptied");
        write(&view, inode, b"again");
        saves.changed(inode, me);
        (0..2).for_each(|_| go.send(()).unwrap());
        saves.settle();
        assert_eq!(sizes(&view, inode), [5, 5]);
        assert!(saves.inner.waiting.lock().files.is_empty());
        // A file that waits no longer, because its version is there, gets no other one.
        saves.before(inode, me, true);
        assert_eq!(sizes(&view, inode), [5, 5]);
    }

    /// One process had thousands of files open, and for each of them all were read: each look at the past
    /// kept a thread that serves busy for minutes. They are read once. And when the checks come due by
    /// themselves, they come together.
    #[test]
    fn what_a_process_has_open_is_read_once() {
        const FILES: usize = 2000;
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let (volume, saves) = saves(Box::new(move |_, files| {
            counted.fetch_add(1, Ordering::SeqCst);
            files.clone()
        }));
        let view = volume.view();
        for n in 0..FILES {
            saves.changed(made(view, &n.to_string()), std::process::id());
        }
        saves.settle();
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        assert_eq!(saves.inner.waiting.lock().files.len(), FILES, "all are open");

        saves.want().unwrap();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let rounds = reads.load(Ordering::SeqCst) - 1;
        let steps = begun.elapsed().as_millis() / STEP.as_millis() + 2;
        assert!(rounds as u128 <= steps, "{rounds} in {steps} steps");
        assert!(view.events().unwrap().is_empty());
    }

    /// Checks are due together, and not much later than they would be alone.
    #[test]
    fn checks_come_together() {
        let (_volume, saves) = saves(Box::new(|_, files| files.clone()));
        let inner = &saves.inner;
        let at = |millis| inner.begun + Duration::from_millis(millis);
        let table = [(0, 50, 50), (1, 50, 50), (49, 50, 50), (50, 50, 100), (5001, 5000, 10_000)];
        for (time, step, due) in table {
            assert_eq!(inner.multiple_after(at(time), Duration::from_millis(step)), at(due));
        }
        assert!(is_gone(u32::MAX) && !is_gone(std::process::id()) && !is_gone(0));
    }
}
