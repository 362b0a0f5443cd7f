//! Inodes in memory: one [`InodeCell`] per inode in use, found by number.
//!
//! Lock order, over everything in this crate (each lock's field says it again):
//!
//! ```text
//! rename lock → orphans lock → directories' state, parents before children (unrelated ones by number)
//!   → a file's io → files' state, by number → table shard → meta (Op) → group → block
//! ```
//! A thread that holds a file's io or state never waits for a directory. The orphans lock may be taken after
//! a file's io as long as no state is held. Debug builds assert this order ([`crate::locks`]).
//!
//! A cell stays while somebody uses it (a `Node`, a lookup count, dirty data, pending attributes); others are
//! evicted by second chance. An inode without names lives on while it has a lookup count or nodes. The tree
//! of orphans lists it, and whoever lets go of it last frees it.

use crate::locks::{OrderedMutex, OrderedRwLock, Rank};
use crate::memo::CoverMemo;
use crate::pages::FileData;
use crate::{Error, Result};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{
    BlockKind, ContentKind, Corruption, EventNo, Expect, FileKind, Incarnation, Inode, InodeFlags, InodeNo,
    Timestamp,
};
use yore_meta::{Change, Frame, Meta, Op};

/// Deeper than any tree that paths can reach, so that a damaged tree does not keep a walk upwards going for
/// ever.
pub const DEPTH_MAX: usize = 1 << 20;

/// An inode in memory. The fields that every look-up reads come first, in the cache line of the reference
/// count.
#[repr(C)]
pub struct InodeCell {
    /// Its number.
    pub no: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Nodes in use.
    nodes: AtomicU32,
    /// It has no name any more: whoever lets go of it last frees it.
    pub unlinked: AtomicBool,
    referenced: AtomicBool,
    /// When its data is written back: its place among the dirty files, or 0 if it is not one of them. Only
    /// [`crate::datacache`] changes this.
    pub turn: AtomicU64,
    /// Serialises write-back, truncation and freeing of one file's data; held across device writes. Taken
    /// before `state`.
    pub io: OrderedMutex,
    /// Everything else.
    pub state: OrderedRwLock<InodeState>,
    /// What covers it; `yore-fs`'s `history/record.rs` uses this.
    pub cover: CoverMemo,
    /// Its inode block, kept in memory so that an Op can always write it. A version has none.
    frame: Option<Frame>,
}

/// The part of an inode that [`InodeCell::state`] guards.
pub struct InodeState {
    /// The inode as users see it now: size and times are current, the content is what the medium has.
    pub inode: Inode,
    /// Cached data and delayed allocation of a regular file.
    pub data: FileData,
    /// Times or size differ from the inode block.
    pub dirty: bool,
    /// It is freed, or about to be: the number may already belong to another inode.
    pub gone: bool,
    /// A rollback that has the right to do so is changing it: for that moment its flags forbid nothing.
    pub unbound: bool,
    /// Content that was born at this number or before belongs to the past, too. Looked up when somebody needs
    /// it.
    recorded_until: Recorded,
}

/// A number that is looked up when somebody needs it. A word and not a `OnceLock`: each call that records a
/// version sets it anew.
struct Recorded(AtomicU64);

impl Recorded {
    /// Stands for a number that nobody has looked up. Should damage lead to it, it is looked up each time.
    const UNKNOWN: u64 = u64::MAX - 1;

    fn unknown() -> Recorded {
        Recorded(AtomicU64::new(Recorded::UNKNOWN))
    }

    fn up_to(number: EventNo) -> Recorded {
        Recorded(AtomicU64::new(number.0))
    }

    fn known(&self) -> Option<EventNo> {
        let number = self.0.load(Ordering::Acquire);
        (number != Recorded::UNKNOWN).then_some(EventNo(number))
    }

    /// Remembers the number, unless one is known; returns what is known then.
    fn learn(&self, number: EventNo) -> EventNo {
        let was = self.0.compare_exchange(Recorded::UNKNOWN, number.0, Ordering::AcqRel, Ordering::Acquire);
        was.map_or_else(EventNo, |_| number)
    }
}

/// An inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub inode: InodeNo,
    /// Tells the uses of one number apart (the "generation" of NFS handles).
    pub incarnation: u32,
    /// Its type.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (12 bits).
    pub permissions: u32,
    /// Number of names; directories: 2 + subdirectories.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device files (Linux `dev_t`, 32 bits).
    pub rdev: u32,
    /// Bytes; for directories a number that grows with their entries.
    pub size: u64,
    /// Space used, in units of 512 bytes, including delayed allocations.
    pub blocks_512: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The flags that people choose ([`InodeFlags::CHOSEN`]), and no others.
    pub flags: InodeFlags,
}

impl InodeCell {
    /// The cell of an inode that was just reserved: nothing that it will have is older than itself.
    pub fn new(no: InodeNo, inode: Inode, frame: Frame) -> InodeCell {
        let recorded_until = Recorded::up_to(EventNo(inode.born.0.saturating_sub(1)));
        InodeCell::with(no, inode, Some(frame), recorded_until)
    }

    /// The cell of a version, for reading only: it is never stored.
    pub fn of_version(no: InodeNo, inode: Inode) -> InodeCell {
        InodeCell::with(no, inode, None, Recorded::up_to(EventNo(u64::MAX)))
    }

    fn with(no: InodeNo, inode: Inode, frame: Option<Frame>, recorded_until: Recorded) -> InodeCell {
        let mut data = FileData::default();
        data.medium_size = inode.size;
        data.stored_size = inode.size;
        data.unsure_beyond =
            inode.is_regular() && matches!(inode.content_kind, ContentKind::Extents | ContentKind::Tree);
        let rank = if inode.is_directory() { Rank::Directory(no) } else { Rank::File(no) };
        let cover = CoverMemo::default();
        cover.follow(&inode);
        InodeCell {
            no,
            incarnation: inode.incarnation,
            nodes: AtomicU32::new(0),
            unlinked: AtomicBool::new(inode.links == 0),
            referenced: AtomicBool::new(true),
            turn: AtomicU64::new(0),
            io: OrderedMutex::new(Rank::Io(no)),
            state: OrderedRwLock::new(
                rank,
                InodeState { inode, data, dirty: false, gone: false, unbound: false, recorded_until },
            ),
            cover,
            frame,
        }
    }

    /// Whether it is a version, which cannot change.
    pub fn is_version(&self) -> bool {
        self.frame.is_none()
    }

    fn frame(&self) -> &Frame {
        self.frame.as_ref().expect("a version does not change")
    }

    /// Counts one more node in use.
    pub fn add_node(&self) {
        self.nodes.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one node less; returns whether it was the last.
    pub fn drop_node(&self) -> bool {
        self.nodes.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn has_nodes(&self) -> bool {
        self.nodes.load(Ordering::Acquire) > 0
    }
}

impl InodeState {
    /// The attributes as callers see them.
    pub fn attr(&self, no: InodeNo) -> Attr {
        let i = &self.inode;
        Attr {
            inode: no,
            incarnation: i.incarnation.0,
            kind: FileKind::from_mode(i.mode).expect("a verified inode has one of the seven types"),
            permissions: i.mode & 0o7777,
            links: i.links,
            uid: i.uid,
            gid: i.gid,
            rdev: i.rdev,
            size: i.size,
            blocks_512: i.blocks.saturating_add(self.data.delayed_blocks()).saturating_mul(8),
            atime: i.atime,
            mtime: i.mtime,
            ctime: i.ctime,
            btime: i.btime,
            flags: i.flags & InodeFlags::CHOSEN,
        }
    }

    /// The number up to which its content belongs to the past, too, if that is known.
    pub fn known_recorded(&self) -> Option<EventNo> {
        self.recorded_until.known()
    }

    /// Remembers the number, unless another thread was faster.
    pub fn learn_recorded(&self, recorded_until: EventNo) -> EventNo {
        self.recorded_until.learn(recorded_until)
    }

    /// Notes that a version was recorded.
    pub fn set_recorded(&mut self, recorded_until: EventNo) {
        self.recorded_until = Recorded::up_to(recorded_until);
    }

    /// Notes that a version went: less of the content belongs to the past.
    pub fn ask_recorded_anew(&mut self) {
        self.recorded_until = Recorded::unknown();
    }

    /// Notes that content and inode change now.
    pub fn touch_mtime(&mut self) {
        self.change_content(crate::clock::now());
    }

    /// Notes that the inode changes now.
    pub fn touch_ctime(&mut self) {
        self.inode.ctime = crate::clock::now();
    }

    /// Notes that content and inode change at `now`: one call has one time, for all inodes that it changes.
    pub fn change_content(&mut self, now: Timestamp) {
        (self.inode.mtime, self.inode.ctime) = (now, now);
    }

    /// Fails unless this is a directory that still exists.
    pub fn check_directory(&self) -> Result<()> {
        if self.gone || self.inode.links == 0 {
            return Err(Error::NotFound);
        }
        if !self.inode.is_directory() {
            return Err(Error::NotADirectory);
        }
        Ok(())
    }

    /// Fails unless this is a regular file that still exists.
    pub fn check_regular(&self) -> Result<()> {
        self.check_alive()?;
        if self.inode.is_directory() {
            return Err(Error::IsADirectory);
        }
        if !self.inode.is_regular() {
            return Err(Error::Invalid { what: "not a regular file" });
        }
        Ok(())
    }

    /// Fails if the inode was freed.
    pub fn check_alive(&self) -> Result<()> {
        if self.gone {
            return Err(Error::Stale);
        }
        Ok(())
    }
}

/// Inside an Op: writes the inode to its block. For a regular file it writes a size up to which the data is
/// on the medium (R4); the rest follows with the data.
pub fn store_inode(op: &mut Op<'_>, cell: &InodeCell, state: &InodeState) -> Change {
    let write = |inode: &Inode, op: &mut Op<'_>| {
        let ((), change) = op.change(cell.frame(), |page| {
            page.apply(|block| {
                let (slot, range) = Inode::slot_mut(block, cell.no.slot());
                inode.encode(slot);
                range
            });
        });
        change
    };
    if state.inode.is_regular() && state.data.stored_size != state.inode.size {
        let mut inode = state.inode.clone();
        inode.size = state.data.stored_size;
        return write(&inode, op);
    }
    write(&state.inode, op)
}

/// Inside an Op: clears the inode's slot and frees its number. Only its incarnation stays behind.
pub fn free_inode(op: &mut Op<'_>, cell: &InodeCell, state: &mut InodeState) -> Change {
    let ((), cleared) = op.change(cell.frame(), |page| {
        page.apply(|block| {
            let (slot, range) = Inode::slot_mut(block, cell.no.slot());
            Inode::encode_free(cell.incarnation, slot);
            range
        });
    });
    state.gone = true;
    state.dirty = false;
    op.free_inode(cell.no, cell.frame().clone());
    cleared
}

const SHARDS: usize = 64;
/// Cells kept in memory although nobody uses them.
const CELLS_PER_SHARD: usize = 512;
const EVICTION_TRIES: usize = 8;
/// How many entries of cells that are gone a shard's clock may have, in addition to one for each of its
/// cells.
const CLOCK_SLACK: usize = 64;

#[derive(Default)]
struct Shard {
    cells: HashMap<InodeNo, Arc<InodeCell>>,
    /// For eviction, oldest first. Entries of cells that went otherwise are skipped, and swept out in time.
    clock: VecDeque<(InodeNo, Incarnation)>,
    /// Lookup counts (of FUSE). There may be far more of them than cells.
    lookups: HashMap<InodeNo, u64>,
    /// Counts removals, so that a load that overlapped one is repeated.
    removals: u64,
}

/// All inodes in memory.
pub struct InodeTable {
    shards: Vec<Mutex<Shard>>,
    /// There have been lookup counts.
    served: AtomicBool,
}

impl InodeTable {
    pub(crate) fn new() -> InodeTable {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        InodeTable { shards, served: AtomicBool::new(false) }
    }

    fn shard(&self, no: InodeNo) -> &Mutex<Shard> {
        let hash = no.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[hash as usize % SHARDS]
    }

    /// The cell of an inode, loaded if need be.
    ///
    /// # Errors
    /// `Stale` if the number names no inode; damage and device errors.
    pub(crate) fn get(&self, meta: &Meta, no: InodeNo) -> Result<Arc<InodeCell>> {
        loop {
            let removals = {
                let shard = self.shard(no).lock();
                if let Some(cell) = shard.cells.get(&no) {
                    if !cell.referenced.load(Ordering::Relaxed) {
                        cell.referenced.store(true, Ordering::Relaxed);
                    }
                    return Ok(cell.clone());
                }
                shard.removals
            };
            let cell = Arc::new(load(meta, no)?);
            let mut shard = self.shard(no).lock();
            if shard.removals == removals && !shard.cells.contains_key(&no) {
                enter(&mut shard, &cell);
                return Ok(cell);
            }
        }
    }

    /// As [`InodeTable::get`], if memory has the inode.
    pub(crate) fn in_memory(&self, meta: &Meta, no: InodeNo) -> Option<Result<Arc<InodeCell>>> {
        let is_there = self.shard(no).lock().cells.contains_key(&no) || meta.is_in_memory(no.addr());
        is_there.then(|| self.get(meta, no))
    }

    /// As `InodeTable::get`, for an entry that says which incarnation it means.
    ///
    /// # Errors
    /// Also `Corruption` if the inode is another one.
    pub fn get_entry(&self, meta: &Meta, no: InodeNo, incarnation: Incarnation) -> Result<Arc<InodeCell>> {
        let dangling = |found: String| {
            Error::from(
                Corruption::new("directory entry", "inode", format!("incarnation {incarnation}"), found)
                    .of(no),
            )
        };
        match self.get(meta, no) {
            Ok(cell) if cell.incarnation == incarnation => Ok(cell),
            Ok(cell) => Err(dangling(format!("incarnation {}", cell.incarnation))),
            Err(Error::Stale) => Err(dangling("a free inode".into())),
            Err(e) => Err(e),
        }
    }

    /// Enters the cell of an inode that was just created. The cell of the number's last owner may still be
    /// there: the Op that clears the slot frees the number, and the cell goes a moment later.
    pub fn insert(&self, cell: &Arc<InodeCell>) {
        let mut shard = self.shard(cell.no).lock();
        let last = shard.cells.get(&cell.no).map(|c| c.incarnation);
        assert_ne!(last, Some(cell.incarnation), "inode {} created twice", cell.no);
        enter(&mut shard, cell);
    }

    /// Removes the cell of an inode that was freed, unless its number already belongs to another inode.
    /// Called inside the Op, after the slot was cleared: whoever looks at the block from then on finds a free
    /// slot.
    pub fn remove(&self, cell: &InodeCell) {
        let mut shard = self.shard(cell.no).lock();
        shard.removals += 1;
        if shard.cells.get(&cell.no).is_some_and(|c| c.incarnation == cell.incarnation) {
            shard.cells.remove(&cell.no);
        }
    }

    /// Adds one to the inode's lookup count.
    pub fn count_lookup(&self, no: InodeNo) {
        if !self.served.load(Ordering::Relaxed) {
            self.served.store(true, Ordering::Relaxed);
        }
        *self.shard(no).lock().lookups.entry(no).or_insert(0) += 1;
    }

    /// Whether a server counts look-ups for its clients.
    pub fn has_lookups(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Takes `count` off the inode's lookup count. Returns the cell if the count is now zero and the cell is
    /// in memory.
    pub fn forget_lookups(&self, no: InodeNo, count: u64) -> Option<Arc<InodeCell>> {
        let mut shard = self.shard(no).lock();
        let held = shard.lookups.get_mut(&no)?;
        *held = held.saturating_sub(count);
        if *held > 0 {
            return None;
        }
        shard.lookups.remove(&no);
        shard.cells.get(&no).cloned()
    }

    /// Whether a server's client or a `Node` uses the inode.
    pub fn in_use(&self, cell: &InodeCell) -> bool {
        cell.has_nodes() || self.shard(cell.no).lock().lookups.contains_key(&cell.no)
    }

    /// The cells for which `which` is true.
    pub fn select(&self, which: impl Fn(&InodeCell) -> bool) -> Vec<Arc<InodeCell>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().cells.values().filter(|c| which(c)).cloned());
        }
        found
    }
}

fn enter(shard: &mut Shard, cell: &Arc<InodeCell>) {
    shard.cells.insert(cell.no, cell.clone());
    if shard.clock.len() > 2 * shard.cells.len() + CLOCK_SLACK {
        let Shard { cells, clock, .. } = shard;
        clock.retain(|(no, incarnation)| cells.get(no).is_some_and(|c| c.incarnation == *incarnation));
    }
    shard.clock.push_back((cell.no, cell.incarnation));
    let mut tries = 0;
    while shard.cells.len() > CELLS_PER_SHARD && tries < EVICTION_TRIES {
        tries += 1;
        let Some((no, incarnation)) = shard.clock.pop_front() else { break };
        let Some(candidate) = shard.cells.get(&no).filter(|c| c.incarnation == incarnation) else { continue };
        let keep = Arc::strong_count(candidate) > 1
            || candidate.referenced.swap(false, Ordering::Relaxed)
            || candidate.unlinked.load(Ordering::Relaxed)
            || candidate.has_nodes()
            || candidate.state.try_read().is_none_or(|s| s.dirty || s.data.must_stay());
        if keep {
            shard.clock.push_back((no, incarnation));
        } else {
            shard.cells.remove(&no);
        }
    }
}

fn load(meta: &Meta, no: InodeNo) -> Result<InodeCell> {
    if !no.is_file() {
        return Err(Error::Stale);
    }
    let frame = match meta.read(no.addr(), &Expect::volume(BlockKind::Inodes)) {
        Ok(frame) => frame,
        // There is no such block, or it is something else now: the number belongs to an inode that is gone.
        Err(yore_meta::MetaError::Corruption(c))
            if c.structure == "metadata pointer" || c.field == "kind" =>
        {
            return Err(Error::Stale)
        }
        Err(e) => return Err(e.into()),
    };
    let inode = Inode::decode(Inode::slot(&frame.read(), no.slot()))?;
    if inode.mode == 0 {
        return Err(Error::Stale);
    }
    let cell = InodeCell::with(no, inode, Some(frame), Recorded::unknown());
    // Only the call that removes the last name sets this, and lists the inode. An inode that is found without
    // names is damage (or it is listed: `orphan` knows).
    cell.unlinked.store(false, Ordering::Relaxed);
    Ok(cell)
}
