//! Which files are dirty, and who writes them back: a thread in the background, or writers who are too fast.
//!
//! **Dirty data** is limited to a part of the cache of pages ([`PageCache`]). Above a quarter the write-back thread starts;
//! above half, writers write back files themselves before they go on. What has been dirty for five seconds is written
//! whatever there is of it.
//!
//! Locks: `dirty_files`, `logged` and `wake` are leaves.

use super::flush;
use crate::inode::InodeCell;
use crate::pages::PageCache;
use crate::store::Store;
use crate::{Error, Result};
use hashbrown::hash_map::Entry;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use yore_format::InodeNo;

/// How long data may stay dirty, and how often that is looked at.
const DIRTY_AGE: Duration = Duration::from_secs(5);
const WAKE: Duration = Duration::from_secs(1);

/// The files with data to be written, in the order in which they came here or were looked at last. Each step costs
/// O(log n), however many there are: they are taken one by one.
#[derive(Default)]
struct DirtyFiles {
    by_turn: BTreeMap<u64, DirtyFile>,
    turns: HashMap<InodeNo, u64>,
    next_turn: u64,
}

#[derive(Clone)]
struct DirtyFile {
    cell: Arc<InodeCell>,
    since: Instant,
}

impl DirtyFiles {
    fn len(&self) -> usize {
        self.by_turn.len()
    }

    /// Puts a file last, unless it is here. A number may be here for a file that is gone: what uses it now takes its place.
    fn add(&mut self, cell: &Arc<InodeCell>) {
        let file = DirtyFile { cell: cell.clone(), since: Instant::now() };
        match self.turns.entry(cell.no) {
            Entry::Vacant(entry) => {
                entry.insert(self.next_turn);
                self.by_turn.insert(self.next_turn, file);
                self.next_turn += 1;
            }
            Entry::Occupied(entry) => {
                let here = self.by_turn.get_mut(entry.get()).expect("a file's turn has the file");
                if !Arc::ptr_eq(&here.cell, cell) {
                    *here = file;
                }
            }
        }
    }

    /// Takes out this very file. Whoever still writes back one that is gone must not take out what has its number now.
    fn remove(&mut self, cell: &InodeCell) -> Option<DirtyFile> {
        let turn = *self.turns.get(&cell.no)?;
        if !std::ptr::eq(Arc::as_ptr(&self.by_turn.get(&turn)?.cell), cell) {
            return None;
        }
        self.turns.remove(&cell.no);
        self.by_turn.remove(&turn)
    }

    /// The first file with this turn or a later one.
    fn first_since_turn(&self, turn: u64) -> Option<(u64, DirtyFile)> {
        self.by_turn.range(turn..).next().map(|(turn, file)| (*turn, file.clone()))
    }
}

#[derive(Default)]
struct Wake {
    stop: bool,
    wanted: bool,
}

/// The cache of file data of a volume.
pub(crate) struct FileCache {
    pub(super) pages: Arc<PageCache>,
    dirty_files: Mutex<DirtyFiles>,
    /// Files of which the log may have data that is not at home.
    logged: Mutex<HashMap<InodeNo, Arc<InodeCell>>>,
    wake: Arc<(Mutex<Wake>, Condvar)>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl FileCache {
    /// A cache of at most `bytes` (and no less than 1 MiB).
    pub(crate) fn new(bytes: u64) -> FileCache {
        FileCache {
            pages: Arc::new(PageCache::new(bytes)),
            dirty_files: Mutex::default(),
            logged: Mutex::default(),
            wake: Arc::default(),
            thread: Mutex::new(None),
        }
    }

    /// Slows a writer down while too much is dirty: it writes back the oldest files itself. Hold nothing.
    ///
    /// # Errors
    /// Those of writing back, if it makes no room.
    pub(super) fn throttle(&self, store: &Store) -> Result<()> {
        if self.pages.wants_write_back() {
            self.wake_write_back();
        }
        let mut failed = Ok(());
        let mut tries = 1 + if self.pages.is_over() { self.dirty_files.lock().len() } else { 0 };
        while self.pages.is_over() && tries > 0 {
            let Some((_, DirtyFile { cell, .. })) = self.dirty_files.lock().first_since_turn(0) else {
                break;
            };
            // What fails here is remembered for that file's fsync; it is the writer's trouble only if nothing helps.
            if let Err(e) = flush::write_back(store, &cell) {
                failed = Err(e);
                tries -= 1;
            }
        }
        match self.pages.is_over() {
            true => failed,
            false => Ok(()),
        }
    }

    /// The file has data to be written.
    pub(super) fn note_dirty(&self, cell: &Arc<InodeCell>) {
        self.dirty_files.lock().add(cell);
    }

    /// The file has been looked at now; `clean`: it has nothing to be written any more.
    pub(super) fn note_flushed(&self, cell: &InodeCell, clean: bool) {
        let mut files = self.dirty_files.lock();
        let gone = files.remove(cell);
        if let (Some(file), false) = (&gone, clean) {
            files.add(&file.cell);
        }
        drop(files);
        drop(gone);
    }

    /// The write-back thread has something to do.
    pub(super) fn wake_write_back(&self) {
        self.wake.0.lock().wanted = true;
        self.wake.1.notify_one();
    }

    /// The log may have data of the file that is not at home.
    pub(super) fn note_logged(&self, cell: &Arc<InodeCell>) {
        self.logged.lock().insert(cell.no, cell.clone());
    }

    /// The files of which the log may have such data, by number; they are no longer noted.
    pub(super) fn take_logged(&self) -> Vec<Arc<InodeCell>> {
        let mut cells: Vec<Arc<InodeCell>> = std::mem::take(&mut *self.logged.lock()).into_values().collect();
        cells.sort_unstable_by_key(|c| c.no);
        cells
    }

    /// The files with data to be written.
    pub(super) fn dirty_cells(&self) -> Vec<Arc<InodeCell>> {
        self.dirty_files.lock().by_turn.values().map(|f| f.cell.clone()).collect()
    }

    /// Starts the thread that writes back.
    ///
    /// # Errors
    /// `Refused` if the system gives no thread.
    pub(crate) fn start(&self, store: &Arc<Store>) -> Result<()> {
        let (store, wake) = (Arc::downgrade(store), self.wake.clone());
        let thread = std::thread::Builder::new()
            .name("yore-writeback".into())
            .spawn(move || run(&store, &wake))
            .map_err(|e| Error::Refused(format!("cannot start the write-back thread: {e}")))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread. What is dirty stays so; see [`super::flush_all`].
    pub(crate) fn stop(&self) {
        self.wake.0.lock().stop = true;
        self.wake.1.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            if thread.join().is_err() {
                tracing::error!("the write-back thread panicked");
            }
        }
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The write-back thread. It holds the store only while it works.
fn run(store: &Weak<Store>, wake: &(Mutex<Wake>, Condvar)) {
    loop {
        {
            let mut state = wake.0.lock();
            if !state.stop && !state.wanted {
                wake.1.wait_for(&mut state, WAKE);
            }
            if state.stop {
                return;
            }
            state.wanted = false;
        }
        let Some(store) = store.upgrade() else { return };
        if store.meta.notes_press() {
            if let Err(e) = super::logged::bring_home(&store) {
                tracing::warn!("bringing home data from the log: {e}");
            }
        }
        // Each file that is here now once; those that stay dirty come again next time.
        let (mut turn, end) = (0, store.files.dirty_files.lock().next_turn);
        loop {
            let next = store.files.dirty_files.lock().first_since_turn(turn);
            let Some((this, DirtyFile { cell, since })) = next.filter(|(this, _)| *this < end) else { break };
            turn = this + 1;
            if since.elapsed() < DIRTY_AGE && !store.files.pages.wants_write_back() || wake.0.lock().stop {
                break;
            }
            if let Err(e) = flush::write_back(&store, &cell) {
                tracing::warn!("writing back inode {}: {e}", cell.no);
            }
        }
    }
}
