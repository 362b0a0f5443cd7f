//! Pages of file data in memory: what an inode in memory holds of its file, and the limit on all pages
//! together.
//!
//! A page belongs to a file (`FilePages`), which finds it by its index. A page can be *clean* (as on the
//! medium; may be evicted), *dirty* (newer than the medium), or *writing* (a write-back under way has its
//! bytes; the page may be dirty again at the same time). A dirty page is *fresh* if the log has its bytes as
//! they are: it need not be logged again, but must still be written back. A page's memory is shared: a
//! write-back holds its own reference, so a writer that comes meanwhile gets a copy, and the bytes under way
//! stay as they were.
//!
//! Who may do what: the map's mutex alone is enough to enter and to evict pages. To change a page's bytes, or
//! to make it dirty, a thread needs the inode's state write lock *and* the mutex. So a reader that holds the
//! state lock shared may copy from a page outside the mutex.
//!
//! **Eviction** is second chance over files, then over each file's pages from where the last sweep of it
//! stopped: there is no list of pages, and a cached page costs its map entry. Files are registered in shards
//! by weak reference, as long as they have a page; a file that goes takes its pages with it.
//!
//! **Arriving** pages are being read from the medium by a thread that holds no lock of the file. A caller
//! that wants one of them waits. A caller that changes one makes the arriving data be dropped. The argument
//! is in `file/ahead.rs`.
//!
//! This module knows neither inodes nor extents. `file` has the rules for the fields of [`FileData`], and all
//! code that changes them; [`crate::datacache`] knows which files are dirty.
//!
//! Locks: the shards are leaves; a thread that holds a file's map mutex takes no other lock but the file's
//! shard.

use crate::alloc::{Spared, LEAF_EXTENTS};
use crate::Error;
use hashbrown::HashSet;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use yore_device::{AlignedBuf, SharedBuf};
use yore_format::{ContentKind, MetaAddr, BLOCK_SIZE, INLINE_BYTES};

mod ahead;
mod set;

pub use ahead::ReadAhead;
use set::PageSet;

const SHARDS: usize = 16;
/// The smallest cache, in pages.
const PAGES_MIN: usize = 256;
/// How many pages of one file a sweep looks at before it lets go of the file's mutex.
const SWEEP: usize = 256;

/// What a regular file's inode has in memory in addition to the inode.
#[derive(Default)]
pub struct FileData {
    /// Up to where the medium has this file's bytes (F1).
    pub medium_size: u64,
    /// The size that the stored inode has: a size that the file had at some time (F7).
    pub stored_size: u64,
    /// The size that the log has, while it has data of the file that is not at home (F8).
    pub logged_size: Option<u64>,
    /// The inode is in the list of orphans because blocks beyond its size are being freed.
    pub listed: bool,
    pages: OnceLock<Arc<FilePages>>,
    /// File blocks that count as holes (F5).
    pub doomed: Option<Range<u64>>,
    /// The content must not go back into the inode, because somebody asked for blocks.
    pub in_blocks: bool,
    /// There may be written extents beyond the size: they must be looked for before the file grows (F9).
    pub unsure_beyond: bool,
    /// The cache has noted the file as dirty.
    pub noted: bool,
    /// The error of background write-back, for the next fsync.
    pub error: Option<Error>,
    /// How the file is being read.
    pub ahead: ReadAhead,
}

impl FileData {
    /// Blocks that are promised to data in memory, beyond those in `inode.blocks`.
    pub fn delayed_blocks(&self) -> u64 {
        self.pages.get().map_or(0, |p| p.lock().promised())
    }

    /// Whether there is data in memory that is newer than the medium.
    pub fn is_busy(&self) -> bool {
        self.noted || self.pages.get().is_some_and(|p| p.lock().is_busy())
    }

    /// Whether memory knows something that the medium does not: newer data, or a truncation that has stopped
    /// half-way.
    pub(crate) fn must_stay(&self) -> bool {
        self.is_busy() || self.listed || self.doomed.is_some()
    }

    /// The pages, if the file has any in memory.
    pub fn cached(&self) -> Option<Pages<'_>> {
        self.pages.get().map(|p| p.lock())
    }

    /// The pages, for a caller that enters some.
    pub fn pages(&self, cache: &Arc<PageCache>) -> Pages<'_> {
        self.pages.get_or_init(|| cache.new_pages()).lock()
    }

    /// Announces that the pages `range` are being read from the medium. `None` if one of them is here, or is
    /// announced already.
    pub fn arriving(&self, cache: &Arc<PageCache>, range: Range<u32>) -> Option<Arriving> {
        let file = self.pages.get_or_init(|| cache.new_pages());
        let mut map = file.map.lock();
        if map.gap(range.start, range.end) != Some(range.clone()) {
            return None;
        }
        map.last_arriving += 1;
        let id = map.last_arriving;
        map.arriving.push((id, range.clone()));
        drop(map);
        Some(Arriving { file: file.clone(), id, range })
    }

    /// Waits while somebody else reads the page from the medium. Returns true if somebody did.
    pub fn await_arrival(&self, index: u32) -> bool {
        let Some(file) = self.pages.get() else { return false };
        let mut map = file.map.lock();
        let mut waited = false;
        while map.arriving.iter().any(|(_, range)| range.contains(&index)) {
            waited = true;
            file.arrived.wait(&mut map);
        }
        waited
    }

    /// Whether the content will be in the inode when the file has this size.
    pub fn fits_inode(&self, kind: ContentKind, size: u64) -> bool {
        size <= INLINE_BYTES as u64
            && !self.in_blocks
            && matches!(kind, ContentKind::Empty | ContentKind::Inline)
    }
}

/// The pages of all files of a volume, and how many there may be.
pub struct PageCache {
    limit: usize,
    pages: AtomicUsize,
    dirty: AtomicUsize,
    next_id: AtomicU64,
    cursor: AtomicUsize,
    shards: [Mutex<Shard>; SHARDS],
}

impl PageCache {
    /// A cache with room for `bytes` (and no less than 1 MiB).
    pub(crate) fn new(bytes: u64) -> PageCache {
        let limit = usize::try_from(bytes / BLOCK_SIZE as u64).unwrap_or(usize::MAX);
        PageCache {
            limit: limit.max(PAGES_MIN),
            pages: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            next_id: AtomicU64::new(0),
            cursor: AtomicUsize::new(0),
            shards: Default::default(),
        }
    }

    /// Pages for a file that has none yet.
    fn new_pages(self: &Arc<Self>) -> Arc<FilePages> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (shared, map, arrived) = (self.clone(), Mutex::default(), Condvar::new());
        Arc::new_cyclic(|this| FilePages { shared, id, this: this.clone(), map, arrived })
    }

    /// The shard of the file with this number.
    fn shard(&self, id: u64) -> &Mutex<Shard> {
        &self.shards[id as usize % SHARDS]
    }

    /// Evicts pages until `pages` more fit, as far as there is something to evict. It takes map mutexes:
    /// callers hold none.
    pub fn make_room(&self, pages: usize) {
        let target = self.limit.saturating_sub(pages);
        if self.pages.load(Ordering::Relaxed) <= target {
            return;
        }
        // Goes around twice: the first time clears the marks of use. A file takes one visit for each part of
        // it that is swept.
        let files: usize = self.shards.iter().map(|s| s.lock().files.len()).sum();
        let visits_most = 2 * (files + self.pages.load(Ordering::Relaxed) / SWEEP + SHARDS);
        let (mut visits, mut empty) = (0, 0);
        while self.pages.load(Ordering::Relaxed) > target && visits < visits_most && empty < SHARDS {
            let over = self.pages.load(Ordering::Relaxed).saturating_sub(target).max(1);
            match self.next_file() {
                None => empty += 1,
                Some(file) => {
                    empty = 0;
                    visits = if file.is_some_and(|f| f.sweep(over) > 0) { 0 } else { visits + 1 };
                }
            }
        }
    }

    /// The file that eviction visits next, if its shard has any; `Some(None)` if that file is just going.
    fn next_file(&self) -> Option<Option<Arc<FilePages>>> {
        let at = self.cursor.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[at].lock();
        let hand = shard.hand;
        let (id, file) = shard.files.range(hand..).next().or_else(|| shard.files.iter().next())?;
        let (id, file) = (*id, file.upgrade());
        shard.hand = id + 1;
        Some(file)
    }

    /// How many pages may be read ahead of one reader: `most`, or a sixteenth of the cache.
    pub fn window_most(&self, most: u32) -> u32 {
        most.min((self.limit / 16) as u32)
    }

    /// Whether writers must write back before they go on.
    pub fn is_over(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.limit / 2
    }

    /// Whether so much is dirty that the background thread should write back.
    pub fn wants_write_back(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.limit / 4
    }
}

/// The extents that a page may make beyond the one that its promise counts: it splits another, in a leaf that
/// must be copied first.
const PAGE_EXTENTS: u64 = 2 + LEAF_EXTENTS;
/// And all pages of a file together: the nodes above their leaves, or the first leaf.
const PATH_EXTENTS: u64 = 8 * LEAF_EXTENTS;

/// What the extents of a file may grow by when its dirty pages are written back, beyond one for each promised
/// block.
#[derive(Default)]
pub struct Growth {
    /// For how many extents there is room; [`LEAF_EXTENTS`] for a node.
    pub extents: u64,
    /// Nodes that must be copied first, for which there is room.
    pub nodes: HashSet<MetaAddr>,
    /// While extents are in the inode: how many these pages may make.
    pub stretches: u64,
    /// There is room for the first leaf.
    pub makes_tree: bool,
}

/// A page's bytes.
pub type Bytes = SharedBuf;

/// A page of a file.
pub struct Page {
    /// What it holds.
    pub bytes: Bytes,
    /// Newer than the medium, and not yet on its way there.
    dirty: bool,
    /// Dirty, and the log has these bytes.
    fresh: bool,
    /// Dirty, and the log has these bytes or earlier ones.
    logged: bool,
    /// A write-back has the page's bytes as they were.
    pub writing: bool,
    /// A data block is promised for it.
    pub promised: bool,
    referenced: bool,
}

/// The pages of a file by index.
#[derive(Default)]
struct PageMap {
    pages: BTreeMap<u32, Page>,
    /// Dirty pages that are not fresh.
    dirty: PageSet,
    /// Dirty pages that are fresh.
    fresh: PageSet,
    writing: PageSet,
    /// Pages with a promise.
    promised: u64,
    growth: Growth,
    /// Where eviction goes on.
    hand: u32,
    /// What is being read from the medium, by number; none of it is in `pages` unless it came there since.
    arriving: Vec<(u64, Range<u32>)>,
    last_arriving: u64,
}

impl PageMap {
    /// The first pages in `from..to` that are neither here nor arriving.
    fn gap(&self, mut from: u32, to: u32) -> Option<Range<u32>> {
        let mut here = self.pages.range(from..to.max(from)).map(|(index, _)| *index).peekable();
        loop {
            if here.next_if(|index| *index <= from).is_some_and(|index| index == from) {
                from += 1;
            } else if let Some((_, range)) = self.arriving.iter().find(|(_, r)| r.contains(&from)) {
                from = range.end;
            } else if here.peek().is_none_or(|index| *index > from) {
                break;
            }
        }
        let coming = self.arriving.iter().map(|(_, r)| r.start).filter(|start| *start > from);
        let end = coming.chain(here.next()).min().unwrap_or(to).min(to);
        (from < end).then_some(from..end)
    }
}

/// Files that have pages.
#[derive(Default)]
struct Shard {
    files: BTreeMap<u64, Weak<FilePages>>,
    hand: u64,
}

/// The cached pages of one file.
struct FilePages {
    shared: Arc<PageCache>,
    id: u64,
    this: Weak<FilePages>,
    map: Mutex<PageMap>,
    /// Signalled when pages have arrived, or are not being read any more.
    arrived: Condvar,
}

/// Pages that are being read from the medium, announced until this is dropped.
pub struct Arriving {
    file: Arc<FilePages>,
    id: u64,
    range: Range<u32>,
}

impl Arriving {
    /// The pages that are announced.
    pub(crate) fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Enters the pages that were read, unless one of them has changed since they were announced.
    pub fn arrive(self, bytes: Vec<AlignedBuf>) {
        let mut pages = self.file.lock();
        if pages.map.arriving.iter().any(|(id, _)| *id == self.id) {
            for (index, bytes) in self.range.clone().zip(bytes) {
                pages.enter(index, Bytes::new(bytes));
            }
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.file.map.lock().arriving.retain(|(id, _)| *id != self.id);
        self.file.arrived.notify_all();
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        let map = self.map.get_mut();
        self.shared.pages.fetch_sub(map.pages.len(), Ordering::Relaxed);
        self.shared.dirty.fetch_sub(map.dirty.len() + map.fresh.len(), Ordering::Relaxed);
        self.leave();
    }
}

/// The map of a file's pages, locked.
pub struct Pages<'a> {
    file: &'a FilePages,
    map: MutexGuard<'a, PageMap>,
}

impl FilePages {
    fn lock(&self) -> Pages<'_> {
        Pages { file: self, map: self.map.lock() }
    }

    /// Eviction visits the file from now on. The caller holds the map, which gets its first page.
    fn join(&self) {
        self.shared.shard(self.id).lock().files.insert(self.id, self.this.clone());
    }

    /// Eviction does not visit the file any more. The caller holds the map, which has no page any more.
    fn leave(&self) {
        self.shared.shard(self.id).lock().files.remove(&self.id);
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
        if map.pages.is_empty() {
            self.leave();
        }
        self.shared.pages.fetch_sub(gone.len(), Ordering::Relaxed);
        gone.len()
    }
}

impl Pages<'_> {
    /// The page, which counts as used from now on.
    pub fn get(&mut self, index: u32) -> Option<&Page> {
        let page = self.map.pages.get_mut(&index)?;
        page.referenced = true;
        Some(page)
    }

    /// The first pages in `from..to` that are neither here nor being read.
    pub fn gap(&self, from: u32, to: u32) -> Option<Range<u32>> {
        self.map.gap(from, to)
    }

    /// Cancels arriving pages in the range: what is being read is not what they hold any more, or the blocks
    /// that are being read are about to be another's.
    pub fn cancel_arriving(&mut self, from: u32, to: u32) {
        if !self.map.arriving.is_empty() {
            self.map.arriving.retain(|(_, range)| range.end <= from || range.start >= to);
            self.file.arrived.notify_all();
        }
    }

    /// Whether no page is here.
    pub fn is_empty(&self) -> bool {
        self.map.pages.is_empty()
    }

    /// Whether the page is newer than the medium.
    pub fn is_unstable(&self, index: u32) -> bool {
        let map = &*self.map;
        map.dirty.contains(index) || map.fresh.contains(index) || map.writing.contains(index)
    }

    /// The first page at or after `from` that is newer than the medium.
    pub fn next_unstable(&self, from: u32) -> Option<u32> {
        let writing = self.map.writing.next(from);
        self.next_dirty(from).into_iter().chain(writing).min()
    }

    /// The first page at or after `from` that is newer than the medium and not on its way there.
    pub fn next_dirty(&self, from: u32) -> Option<u32> {
        let dirty = self.map.dirty.next(from);
        let fresh = self.map.fresh.next(from);
        dirty.into_iter().chain(fresh).min()
    }

    /// Up to `most` dirty pages that the log does not have as they are.
    pub fn unlogged(&self, most: usize) -> Vec<u32> {
        self.map.dirty.range(0..u32::MAX).take(most).collect()
    }

    /// Whether the log has some version of the page that is not at home.
    pub fn is_logged(&self, index: u32) -> bool {
        self.map.pages.get(&index).is_some_and(|p| p.logged)
    }

    /// Notes that the log has a dirty page as it is.
    pub fn set_fresh(&mut self, index: u32) {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("dirty pages are cached");
        assert!(page.dirty, "only what is newer than the medium is logged");
        if !std::mem::replace(&mut page.fresh, true) {
            map.dirty.remove(index);
            map.fresh.insert(index);
        }
        page.logged = true;
    }

    /// Up to `most` dirty pages in `from..to`.
    pub fn dirty_in(&self, from: u32, to: u32, most: usize) -> Vec<u32> {
        let to = to.max(from);
        let mut dirty: Vec<u32> = self.map.dirty.range(from..to).take(most).collect();
        if !self.map.fresh.is_empty() {
            dirty.extend(self.map.fresh.range(from..to).take(most));
            dirty.sort_unstable();
            dirty.truncate(most);
        }
        dirty
    }

    /// Whether a page is newer than the medium and not on its way there.
    pub fn has_dirty(&self) -> bool {
        !self.map.dirty.is_empty() || !self.map.fresh.is_empty()
    }

    /// How many pages are newer than the medium and not on their way there.
    pub fn dirty_count(&self) -> usize {
        self.map.dirty.len() + self.map.fresh.len()
    }

    /// Whether a page is newer than the medium.
    pub fn is_busy(&self) -> bool {
        self.has_dirty() || !self.map.writing.is_empty()
    }

    pub(crate) fn promised(&self) -> u64 {
        self.map.promised
    }

    /// Whether a block is promised for the page.
    pub fn is_promised(&self, index: u32) -> bool {
        self.map.pages.get(&index).is_some_and(|page| page.promised)
    }

    /// For how many pages in `from..to` a block is promised. O(cached pages there).
    pub fn promised_in(&self, from: u32, to: u32) -> u64 {
        match self.map.promised {
            0 => 0,
            _ => self.map.pages.range(from..to.max(from)).filter(|(_, page)| page.promised).count() as u64,
        }
    }

    /// Enters a page that was read from the medium, unless the page is there; returns the one that is there.
    pub fn enter(&mut self, index: u32, bytes: Bytes) -> Bytes {
        let file = self.file;
        if self.map.pages.is_empty() {
            file.join();
        }
        let page = self.map.pages.entry(index).or_insert_with(|| {
            file.shared.pages.fetch_add(1, Ordering::Relaxed);
            Page {
                bytes,
                dirty: false,
                fresh: false,
                logged: false,
                writing: false,
                promised: false,
                referenced: true,
            }
        });
        page.bytes.clone()
    }

    /// The bytes of a page that is there, for a caller that changes them; the page becomes dirty.
    pub fn dirty_bytes(&mut self, index: u32) -> &mut [u8] {
        self.cancel_arriving(index, index + 1);
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("the page was entered");
        if !page.dirty {
            page.dirty = true;
            map.dirty.insert(index);
            self.file.shared.dirty.fetch_add(1, Ordering::Relaxed);
        } else if std::mem::take(&mut page.fresh) {
            map.fresh.remove(index);
            map.dirty.insert(index);
        }
        page.referenced = true;
        page.bytes.make_mut()
    }

    /// Zeroes the bytes of a cached page from `at` on, which the file no longer has.
    pub fn zero_tail(&mut self, index: u32, at: usize) {
        self.cancel_arriving(index, index + 1);
        if let Some(page) = self.map.pages.get_mut(&index) {
            page.bytes.make_mut()[at..].fill(0);
        }
    }

    /// Notes that a block is promised for the page.
    pub fn set_promised(&mut self, index: u32) {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("the page was entered");
        if !std::mem::replace(&mut page.promised, true) {
            map.promised += 1;
        }
    }

    /// What the file's extents may grow by.
    pub fn growth(&self) -> &Growth {
        &self.map.growth
    }

    /// Notes by how much more they may grow, and that there is room for that.
    pub fn add_growth(&mut self, more: Growth) {
        let growth = &mut self.map.growth;
        growth.extents += more.extents;
        growth.stretches += more.stretches;
        growth.makes_tree |= more.makes_tree;
        growth.nodes.extend(more.nodes);
    }

    /// Of the room for more extents, that of nodes which the file has no longer: an Op has copied these
    /// `nodes`, which the past has, too. `has_tree`: and that of the first leaf, which is there.
    pub fn spare_nodes(&mut self, nodes: &[MetaAddr], has_tree: bool) -> u64 {
        let growth = &mut self.map.growth;
        let mut copied = nodes.iter().filter(|node| growth.nodes.remove(*node)).count() as u64;
        if has_tree {
            copied += u64::from(std::mem::take(&mut growth.makes_tree));
        }
        let spare = (copied * LEAF_EXTENTS).min(growth.extents);
        growth.extents -= spare;
        spare
    }

    /// Of the room for more extents, what no page can need any more.
    pub fn spare_extents(&mut self) -> u64 {
        let map = &mut *self.map;
        let unstable = (map.dirty.len() + map.fresh.len() + map.writing.len()) as u64;
        if unstable == 0 {
            return std::mem::take(&mut map.growth).extents;
        }
        let most = unstable * PAGE_EXTENTS + PATH_EXTENTS;
        let spare = map.growth.extents.saturating_sub(most);
        if spare > 0 {
            map.growth.extents = most;
            // Their room may be among what is given back.
            map.growth.nodes.clear();
        }
        spare
    }

    /// Takes the page's bytes for a write-back, and its promise if it has one.
    pub fn start_writing(&mut self, index: u32) -> (Bytes, bool) {
        let map = &mut *self.map;
        let page = map.pages.get_mut(&index).expect("dirty pages are cached");
        if std::mem::take(&mut page.dirty) {
            let set = if std::mem::take(&mut page.fresh) { &mut map.fresh } else { &mut map.dirty };
            set.remove(index);
            self.file.shared.dirty.fetch_sub(1, Ordering::Relaxed);
        }
        page.logged = false;
        page.writing = true;
        map.writing.insert(index);
        let promised = std::mem::take(&mut page.promised);
        map.promised -= u64::from(promised);
        (page.bytes.clone(), promised)
    }

    /// Notes that a write-back of the page has succeeded.
    pub fn end_writing(&mut self, index: u32) {
        let map = &mut *self.map;
        map.writing.remove(index);
        let page = map.pages.get_mut(&index).expect("pages under write-back are cached");
        page.writing = false;
    }

    /// Notes that a write-back failed: the page is as dirty as before. Returns true if the page keeps the
    /// promise, false if it has one already.
    pub fn undo_writing(&mut self, index: u32, promised: bool) -> bool {
        self.end_writing(index);
        self.dirty_bytes(index);
        if promised && !self.map.pages[&index].promised {
            self.set_promised(index);
            return true;
        }
        false
    }

    /// Drops the pages in `from..to`; returns what was promised for them.
    #[must_use]
    pub fn discard(&mut self, from: u32, to: u32) -> Spared {
        self.cancel_arriving(from, to);
        let map = &mut *self.map;
        let gone: Vec<u32> = map.pages.range(from..to.max(from)).map(|(i, _)| *i).collect();
        let mut promised = 0;
        for index in &gone {
            let page = map.pages.remove(index).expect("just found");
            debug_assert!(!page.writing, "io is held: nothing is being written");
            promised += u64::from(page.promised);
            if page.dirty {
                let set = if page.fresh { &mut map.fresh } else { &mut map.dirty };
                set.remove(*index);
                self.file.shared.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        map.promised -= promised;
        if !gone.is_empty() && map.pages.is_empty() {
            self.file.leave();
        }
        self.file.shared.pages.fetch_sub(gone.len(), Ordering::Relaxed);
        Spared { blocks: promised, extents: self.spare_extents() }
    }
}

#[cfg(test)]
mod tests;
