//! Pages of file data in memory, and the limits on them.
//!
//! A page belongs to a file ([`FilePages`]) and is found by its index. States: *clean* (as on the medium; may be evicted),
//! *dirty* (newer than the medium), *writing* (a write-back under way has its bytes; it may be dirty again beside that).
//! A page's memory is shared by `Arc`: a write-back holds its own reference, so a writer who comes meanwhile gets a copy
//! and the bytes under way stay what they were.
//!
//! Who may do what: pages are entered and evicted under the map's mutex alone; their bytes change, and they become
//! dirty, only under the inode's state write lock *and* the mutex. So a reader who holds the state lock shared may copy
//! from a page outside the mutex.
//!
//! **Eviction** is second chance over files, then over each file's pages from where the last sweep of it stopped: no list
//! of pages exists, a cached page costs its map entry. Files are registered in shards by weak reference; a file that goes
//! takes its pages with it.
//!
//! **Dirty data** is limited to a part of the cache. Above a quarter the write-back thread starts; above half, writers
//! write back files themselves before they go on.
//!
//! Locks: `dirty_files` and the shards are leaves; a file's map mutex comes before nothing.

use super::flush;
use crate::inode::InodeCell;
use crate::store::Store;
use crate::{Error, Result};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use yore_device::AlignedBuf;
use yore_format::InodeNo;

const SHARDS: usize = 16;
/// The smallest cache, in pages.
const PAGES_MIN: usize = 256;
/// Pages a sweep looks at in one file before it lets go of the file's mutex.
const SWEEP: usize = 256;
/// How long data may stay dirty, and how often that is looked at.
const DIRTY_AGE: Duration = Duration::from_secs(5);
const WAKE: Duration = Duration::from_secs(1);

/// A page's bytes.
pub(super) type Bytes = Arc<AlignedBuf>;

/// A page of a file.
pub(super) struct Page {
    pub bytes: Bytes,
    pub dirty: bool,
    pub writing: bool,
    /// A data block is promised for it.
    pub promised: bool,
    referenced: bool,
}

/// The pages of a file by index.
#[derive(Default)]
pub(super) struct PageMap {
    pages: BTreeMap<u32, Page>,
    dirty: BTreeSet<u32>,
    writing: BTreeSet<u32>,
    /// Pages with a promise.
    promised: u64,
    /// Where eviction goes on.
    hand: u32,
}

/// What all files share.
pub(super) struct Shared {
    limit: usize,
    pages: AtomicUsize,
    dirty: AtomicUsize,
    next_id: AtomicU64,
    cursor: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    files: BTreeMap<u64, Weak<FilePages>>,
    hand: u64,
}

/// The cached pages of one file.
pub(crate) struct FilePages {
    shared: Arc<Shared>,
    id: u64,
    map: Mutex<PageMap>,
}

impl Drop for FilePages {
    fn drop(&mut self) {
        let map = self.map.get_mut();
        self.shared.pages.fetch_sub(map.pages.len(), Ordering::Relaxed);
        self.shared.dirty.fetch_sub(map.dirty.len(), Ordering::Relaxed);
        self.shared.shards[self.id as usize % SHARDS].lock().files.remove(&self.id);
    }
}

/// The map of a file's pages, locked.
pub(super) struct Pages<'a> {
    shared: &'a Shared,
    map: parking_lot::MutexGuard<'a, PageMap>,
}

impl FilePages {
    pub(super) fn lock(&self) -> Pages<'_> {
        Pages { shared: &self.shared, map: self.map.lock() }
    }

    /// Evicts up to `most` clean pages that were not used since the last sweep.
    fn sweep(&self, most: usize) -> usize {
        let mut guard = self.map.lock();
        let map = &mut *guard;
        let mut gone = Vec::new();
        let mut last = None;
        for (index, page) in map.pages.range_mut(map.hand..).take(SWEEP) {
            last = Some(*index);
            if page.dirty || page.writing {
                continue;
            }
            if std::mem::take(&mut page.referenced) {
                continue;
            }
            gone.push(*index);
            if gone.len() == most {
                break;
            }
        }
        map.hand = last.map_or(0, |i| i.wrapping_add(1));
        for index in &gone {
            map.pages.remove(index);
        }
        self.shared.pages.fetch_sub(gone.len(), Ordering::Relaxed);
        gone.len()
    }
}

impl Pages<'_> {
    pub(super) fn get(&mut self, index: u32) -> Option<&Page> {
        let page = self.map.pages.get_mut(&index)?;
        page.referenced = true;
        Some(page)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.pages.is_empty()
    }

    /// Whether the page is newer than the medium.
    pub(super) fn is_unstable(&self, index: u32) -> bool {
        self.map.dirty.contains(&index) || self.map.writing.contains(&index)
    }

    /// The first page at or after `from` that is newer than the medium.
    pub(super) fn next_unstable(&self, from: u32) -> Option<u32> {
        let dirty = self.map.dirty.range(from..).next();
        let writing = self.map.writing.range(from..).next();
        dirty.into_iter().chain(writing).min().copied()
    }

    pub(super) fn next_dirty(&self, from: u32) -> Option<u32> {
        self.map.dirty.range(from..).next().copied()
    }

    /// The first cached page in `from..to`.
    pub(super) fn next_cached(&self, from: u32, to: u32) -> Option<u32> {
        self.map.pages.range(from..to).next().map(|(i, _)| *i)
    }

    /// Up to `most` dirty pages in `from..to`.
    pub(super) fn dirty_in(&self, from: u32, to: u32, most: usize) -> Vec<u32> {
        self.map.dirty.range(from..to.max(from)).take(most).copied().collect()
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.map.dirty.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.map.dirty.is_empty() || !self.map.writing.is_empty()
    }

    pub(super) fn promised(&self) -> u64 {
        self.map.promised
    }

    /// Enters a page read from the medium unless it is there; returns the one that is.
    pub(super) fn enter(&mut self, index: u32, bytes: Bytes) -> Bytes {
        let shared = self.shared;
        let page = self.map.pages.entry(index).or_insert_with(|| {
            shared.pages.fetch_add(1, Ordering::Relaxed);
            Page { bytes, dirty: false, writing: false, promised: false, referenced: true }
        });
        page.bytes.clone()
    }

    /// The bytes of a page that is there, to change; it becomes dirty.
    pub(super) fn dirty_bytes(&mut self, index: u32) -> &mut [u8] {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("the page was entered");
        if !page.dirty {
            page.dirty = true;
            map.dirty.insert(index);
            self.shared.dirty.fetch_add(1, Ordering::Relaxed);
        }
        page.referenced = true;
        &mut Arc::make_mut(&mut page.bytes)[..]
    }

    /// Zeroes the bytes of a cached page from `at` on, which the file does not have any more.
    pub(super) fn zero_tail(&mut self, index: u32, at: usize) {
        if let Some(page) = self.map.pages.get_mut(&index) {
            Arc::make_mut(&mut page.bytes)[at..].fill(0);
        }
    }

    /// Notes that a block is promised for the page.
    pub(super) fn set_promised(&mut self, index: u32) {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("the page was entered");
        if !std::mem::replace(&mut page.promised, true) {
            map.promised += 1;
        }
    }

    /// A write-back takes the page's bytes, and its promise if it has one.
    pub(super) fn start_writing(&mut self, index: u32) -> (Bytes, bool) {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("dirty pages are cached");
        if std::mem::take(&mut page.dirty) {
            map.dirty.remove(&index);
            self.shared.dirty.fetch_sub(1, Ordering::Relaxed);
        }
        page.writing = true;
        map.writing.insert(index);
        let promised = std::mem::take(&mut page.promised);
        map.promised -= u64::from(promised);
        (page.bytes.clone(), promised)
    }

    pub(super) fn end_writing(&mut self, index: u32) {
        let map = &mut *self.map;
        map.writing.remove(&index);
        let page = map.pages.get_mut(&index).expect("pages under write-back are cached");
        page.writing = false;
    }

    /// A write-back failed: the page is as dirty as before. True if its promise is kept here; false if it has one already.
    pub(super) fn undo_writing(&mut self, index: u32, promised: bool) -> bool {
        self.end_writing(index);
        self.dirty_bytes(index);
        if promised && !self.map.pages[&index].promised {
            self.set_promised(index);
            return true;
        }
        false
    }

    /// Drops the pages in `from..to`; returns how many blocks were promised for them.
    pub(super) fn discard(&mut self, from: u32, to: u32) -> u64 {
        let map = &mut *self.map;
        let gone: Vec<u32> = map.pages.range(from..to.max(from)).map(|(i, _)| *i).collect();
        let mut promised = 0;
        for index in &gone {
            let page = map.pages.remove(index).expect("just found");
            debug_assert!(!page.writing, "io is held: nothing is being written");
            promised += u64::from(page.promised);
            if page.dirty {
                map.dirty.remove(index);
                self.shared.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        map.promised -= promised;
        self.shared.pages.fetch_sub(gone.len(), Ordering::Relaxed);
        promised
    }
}

struct DirtyFile {
    cell: Arc<InodeCell>,
    since: Instant,
}

#[derive(Default)]
struct Wake {
    stop: bool,
    wanted: bool,
}

/// The cache of file data of a volume.
pub(crate) struct FileCache {
    shared: Arc<Shared>,
    dirty_files: Mutex<HashMap<InodeNo, DirtyFile>>,
    wake: Arc<(Mutex<Wake>, Condvar)>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl FileCache {
    /// A cache of at most `bytes` (and no less than 1 MiB).
    pub(crate) fn new(bytes: u64) -> FileCache {
        let limit = usize::try_from(bytes / yore_format::BLOCK_SIZE as u64).unwrap_or(usize::MAX);
        FileCache {
            shared: Arc::new(Shared {
                limit: limit.max(PAGES_MIN),
                pages: AtomicUsize::new(0),
                dirty: AtomicUsize::new(0),
                next_id: AtomicU64::new(0),
                cursor: AtomicUsize::new(0),
                shards: Default::default(),
            }),
            dirty_files: Mutex::default(),
            wake: Arc::default(),
            thread: Mutex::new(None),
        }
    }

    /// Pages for a file that has none yet.
    pub(super) fn new_pages(&self) -> Arc<FilePages> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let pages = Arc::new(FilePages { shared: self.shared.clone(), id, map: Mutex::default() });
        self.shared.shards[id as usize % SHARDS].lock().files.insert(id, Arc::downgrade(&pages));
        pages
    }

    /// Evicts until `pages` more fit, as far as there is something to evict. Takes map mutexes: hold none.
    pub(super) fn make_room(&self, pages: usize) {
        let shared = &*self.shared;
        let target = shared.limit.saturating_sub(pages);
        if shared.pages.load(Ordering::Relaxed) <= target {
            return;
        }
        let mut idle = 0;
        // Twice around: the first time clears the marks of use.
        let turns: usize = shared.shards.iter().map(|s| s.lock().files.len()).sum();
        let idle_most = 2 * turns + shared.pages.load(Ordering::Relaxed) / SWEEP * 2 + 2 * SHARDS;
        while shared.pages.load(Ordering::Relaxed) > target && idle < idle_most {
            let over = shared.pages.load(Ordering::Relaxed).saturating_sub(target).max(1);
            let at = shared.cursor.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let file = {
                let mut shard = shared.shards[at].lock();
                let hand = shard.hand;
                let next = shard.files.range(hand..).next().or_else(|| shard.files.iter().next());
                let next = next.map(|(id, file)| (*id, file.upgrade()));
                match next {
                    Some((id, file)) => {
                        shard.hand = id + 1;
                        file
                    }
                    None => None,
                }
            };
            match file.map_or(0, |f| f.sweep(over)) {
                0 => idle += 1,
                _ => idle = 0,
            }
        }
    }

    /// Whether writers must write back before they go on.
    fn is_over(&self) -> bool {
        self.shared.dirty.load(Ordering::Relaxed) > self.shared.limit / 2
    }

    fn wants_write_back(&self) -> bool {
        self.shared.dirty.load(Ordering::Relaxed) > self.shared.limit / 4
    }

    /// Slows a writer down while too much is dirty: it writes back the oldest files itself. Hold nothing.
    ///
    /// # Errors
    /// Those of writing back, if it makes no room.
    pub(super) fn throttle(&self, store: &Store) -> Result<()> {
        if self.wants_write_back() {
            self.wake.0.lock().wanted = true;
            self.wake.1.notify_one();
        }
        let mut failed = Ok(());
        let mut tries = 1 + if self.is_over() { self.dirty_files.lock().len() } else { 0 };
        while self.is_over() && tries > 0 {
            let Some(cell) = self.oldest() else { break };
            // What fails here is remembered for that file's fsync; it is the writer's trouble only if nothing helps.
            if let Err(e) = flush::write_back(store, &cell) {
                failed = Err(e);
                tries -= 1;
            }
        }
        match self.is_over() {
            true => failed,
            false => Ok(()),
        }
    }

    fn oldest(&self) -> Option<Arc<InodeCell>> {
        let files = self.dirty_files.lock();
        files.values().min_by_key(|f| f.since).map(|f| f.cell.clone())
    }

    /// The file has data to be written.
    pub(super) fn note_dirty(&self, cell: &Arc<InodeCell>) {
        let file = DirtyFile { cell: cell.clone(), since: Instant::now() };
        self.dirty_files.lock().entry(cell.no).or_insert(file);
    }

    /// The file has been looked at now; `clean`: it has nothing to be written any more.
    pub(super) fn note_flushed(&self, cell: &InodeCell, clean: bool) {
        let mut files = self.dirty_files.lock();
        let gone = if clean {
            files.remove(&cell.no)
        } else {
            if let Some(file) = files.get_mut(&cell.no) {
                file.since = Instant::now();
            }
            None
        };
        drop(files);
        drop(gone);
    }

    /// The files with data to be written.
    pub(super) fn dirty_cells(&self) -> Vec<Arc<InodeCell>> {
        self.dirty_files.lock().values().map(|f| f.cell.clone()).collect()
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
        let mut old: Vec<(Instant, Arc<InodeCell>)> = {
            let files = store.files.dirty_files.lock();
            files.values().map(|f| (f.since, f.cell.clone())).collect()
        };
        old.sort_by_key(|(since, _)| *since);
        for (since, cell) in old {
            if since.elapsed() < DIRTY_AGE && !store.files.wants_write_back() || wake.0.lock().stop {
                break;
            }
            if let Err(e) = flush::write_back(&store, &cell) {
                tracing::warn!("writing back inode {}: {e}", cell.no);
            }
        }
    }
}
