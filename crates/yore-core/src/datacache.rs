//! The cache of file data of a volume: its pages, the lists of dirty and of logged files, and the threads
//! that write back and read ahead.
//!
//! **Dirty data** is limited to a part of the cache of pages ([`PageCache`]). Above a quarter the write-back
//! thread writes back the oldest files, many at a time, until less is dirty again; above half, writers wait
//! for it. Data that has been dirty for five seconds is written however little there is of it.
//!
//! The thread works in *rounds*. A round looks once at each of the files that were dirty when it began. A
//! waiting writer has waited long enough when a round is over that began after the writer came. If that round
//! made no room, its error becomes the writer's error. Where no thread runs (while a volume is opened or
//! closed), writers write back files themselves. The layer above knows how files are written back
//! ([`WriteBack`]).
//!
//! Locks: `dirty_files`, `logged`, `turn` and what is noted as scattered are leaves.

mod readers;
mod scattered;

pub use readers::{damaged, read_run, Job};
pub use scattered::{Noted, ScatteredFiles};

use crate::inode::InodeCell;
use crate::pages::PageCache;
use crate::{Error, Result};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use readers::Readers;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use yore_format::InodeNo;

/// How often the write-back thread looks for data that is old.
const WAKE: Duration = Duration::from_secs(1);
/// The most files that are written back together.
pub const FILES: usize = 256;

/// Writes back files. The write-back thread calls this.
pub trait WriteBack: Send + Sync {
    /// Looks once at each file that is dirty now, unless `stop` ends it.
    ///
    /// # Errors
    /// Errors of writing back. Data that could not be written stays dirty.
    fn round(&self, stop: &dyn Fn() -> bool) -> Result<()>;
}

/// The files with data to be written, in the order in which they came here or were last looked at. Each step
/// costs O(log n), however many files there are: they are taken one by one. A file knows its own turn
/// ([`InodeCell::turn`]).
#[derive(Default)]
struct DirtyFiles {
    by_turn: BTreeMap<u64, DirtyFile>,
    last_turn: u64,
}

#[derive(Clone)]
struct DirtyFile {
    cell: Arc<InodeCell>,
    since: Instant,
}

impl DirtyFiles {
    /// Puts a file last, unless it is here.
    fn add(&mut self, cell: &Arc<InodeCell>) {
        if cell.turn.load(Ordering::Relaxed) == 0 {
            self.last_turn += 1;
            cell.turn.store(self.last_turn, Ordering::Relaxed);
            self.by_turn.insert(self.last_turn, DirtyFile { cell: cell.clone(), since: Instant::now() });
        }
    }

    /// Takes out exactly this file, not another one that has its number now.
    fn remove(&mut self, cell: &InodeCell) -> Option<DirtyFile> {
        match cell.turn.swap(0, Ordering::Relaxed) {
            0 => None,
            turn => self.by_turn.remove(&turn),
        }
    }

    /// The first files with this turn or a later one, and with one before `end`, that have been dirty since
    /// `before`.
    fn some(&self, turn: u64, end: u64, before: Instant) -> Vec<(u64, Arc<InodeCell>)> {
        let files = self.by_turn.range(turn..end.max(turn)).take_while(|(_, file)| file.since <= before);
        files.take(FILES).map(|(turn, file)| (*turn, file.cell.clone())).collect()
    }
}

/// What the write-back thread is doing, and is to do.
#[derive(Default)]
struct Turn {
    /// The thread runs.
    alive: bool,
    stop: bool,
    wanted: bool,
    /// Rounds that have begun, and rounds that are over.
    begun: u64,
    over: u64,
    /// What failed in the last round.
    failed: Option<Error>,
}

#[derive(Default)]
struct Turns {
    turn: Mutex<Turn>,
    /// For the thread: there is something to do.
    wake: Condvar,
    /// For waiting writers: there may be room.
    progress: Condvar,
}

/// The cache of file data of a volume.
pub struct FileCache {
    /// The pages of all files.
    pub pages: Arc<PageCache>,
    dirty_files: Mutex<DirtyFiles>,
    /// Files for which the log may have data that is not at home.
    logged: Mutex<HashMap<InodeNo, Arc<InodeCell>>>,
    turns: Arc<Turns>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// The threads that read ahead.
    pub readers: Readers,
    /// Files that are perhaps scattered.
    pub scattered: ScatteredFiles,
}

impl FileCache {
    /// A cache of at most `bytes` (and no less than 1 MiB).
    pub fn new(bytes: u64) -> FileCache {
        FileCache {
            pages: Arc::new(PageCache::new(bytes)),
            dirty_files: Mutex::default(),
            logged: Mutex::default(),
            turns: Arc::default(),
            thread: Mutex::new(None),
            readers: Readers::default(),
            scattered: ScatteredFiles::default(),
        }
    }

    /// Waits until there is room, or until a whole round is over; then returns that round's error. `None`: no
    /// thread runs.
    pub fn wait_for_room(&self) -> Option<Result<()>> {
        let mut turn = self.turns.turn.lock();
        let enough = turn.begun + 1;
        while turn.alive && turn.over < enough {
            if !self.pages.is_over() {
                return Some(Ok(()));
            }
            turn.wanted = true;
            self.turns.wake.notify_one();
            self.turns.progress.wait(&mut turn);
        }
        turn.alive.then(|| turn.failed.clone().map_or(Ok(()), Err))
    }

    /// Some pages are no longer dirty: wakes waiting writers, who look again.
    pub fn note_progress(&self) {
        if !self.pages.is_over() {
            // Takes the lock, so that no thread is between its look and its wait.
            drop(self.turns.turn.lock());
            self.turns.progress.notify_all();
        }
    }

    /// Notes that the file has data to be written.
    pub fn note_dirty(&self, cell: &Arc<InodeCell>) {
        self.dirty_files.lock().add(cell);
    }

    /// Notes that the file has just been looked at. `clean`: it has no data to be written any more.
    pub fn note_flushed(&self, cell: &InodeCell, clean: bool) {
        let mut files = self.dirty_files.lock();
        let gone = files.remove(cell);
        if let (Some(file), false) = (&gone, clean) {
            files.add(&file.cell);
        }
        drop(files);
        drop(gone);
    }

    /// The write-back thread has something to do.
    pub fn wake_write_back(&self) {
        let mut turn = self.turns.turn.lock();
        if !std::mem::replace(&mut turn.wanted, true) {
            self.turns.wake.notify_one();
        }
    }

    /// Notes that the log may have data of the file that is not at home.
    pub fn note_logged(&self, cell: &Arc<InodeCell>) {
        self.logged.lock().insert(cell.no, cell.clone());
    }

    /// Takes the files for which the log may have such data, by number; they are no longer noted.
    pub fn take_logged(&self) -> Vec<Arc<InodeCell>> {
        let mut cells: Vec<Arc<InodeCell>> = std::mem::take(&mut *self.logged.lock()).into_values().collect();
        cells.sort_unstable_by_key(|c| c.no);
        cells
    }

    /// At most `most` files with data to be written, those first that have been dirty longest.
    pub fn oldest_dirty(&self, most: usize) -> Vec<Arc<InodeCell>> {
        let files = self.dirty_files.lock();
        files.by_turn.values().take(most).map(|file| file.cell.clone()).collect()
    }

    /// Files with data to be written that have been dirty since `before`, in the order of their turns: those
    /// after the turn `after`, and before `end`.
    pub fn dirty_since(&self, before: Instant, after: u64, end: u64) -> Vec<(u64, Arc<InodeCell>)> {
        self.dirty_files.lock().some(after + 1, end, before)
    }

    /// The turn that the next dirty file will get.
    pub fn next_turn(&self) -> u64 {
        self.dirty_files.lock().last_turn + 1
    }

    /// Starts the thread that writes back.
    ///
    /// # Errors
    /// `Refused` if the system gives no thread.
    pub fn start(&self, by: Weak<dyn WriteBack>) -> Result<()> {
        let turns = self.turns.clone();
        self.turns.turn.lock().alive = true;
        let started = std::thread::Builder::new().name("yore-writeback".into()).spawn(move || {
            let _alive = Alive(&turns);
            run(&by, &turns);
        });
        match started {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(e) => {
                self.turns.turn.lock().alive = false;
                return Err(Error::Refused(format!("cannot start the write-back thread: {e}")));
            }
        }
        Ok(())
    }

    /// Stops the threads. Dirty data stays dirty; callers that want it written do that before.
    pub fn stop(&self) {
        self.readers.stop();
        self.turns.turn.lock().stop = true;
        self.turns.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            if thread.join().is_err() {
                tracing::error!("the write-back thread panicked");
            }
        }
    }
}

/// The thread counts as running as long as this lives. However the thread ends, nobody waits for it
/// afterwards.
struct Alive<'a>(&'a Turns);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.turn.lock().alive = false;
        self.0.progress.notify_all();
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The write-back thread. It holds the volume only while it works.
fn run(by: &Weak<dyn WriteBack>, turns: &Turns) {
    loop {
        {
            let mut turn = turns.turn.lock();
            if !turn.stop && !turn.wanted {
                turns.wake.wait_for(&mut turn, WAKE);
            }
            if turn.stop {
                return;
            }
            turn.wanted = false;
            turn.begun += 1;
        }
        let Some(by) = by.upgrade() else { return };
        let result = by.round(&|| turns.turn.lock().stop);
        if let Err(e) = &result {
            tracing::warn!("writing back: {e}");
        }
        let mut turn = turns.turn.lock();
        turn.over = turn.begun;
        turn.failed = result.err();
        drop(turn);
        turns.progress.notify_all();
    }
}
