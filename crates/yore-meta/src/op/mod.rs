//! Operations: one file-system call's set of metadata changes, belonging to exactly one generation.
//!
//! An open `Op` holds the generation gate shared, so the writer freezes a generation only between Ops. An Op
//! must be short: it does not use the device, takes no inode lock and does not wait for memory (R7).
//! Everything that can fail was done before it opened.
//!
//! Every change says which bytes of which block it means ([`Page::apply`] records the range) and gives back a
//! [`Change`]. [`Op::edge`], [`Op::linked`] and [`Op::moved`] say which change waits for which
//! (docs/EDGES.md). An Op asks once, when it opens, whether anybody wants the order; the engines `none`,
//! `snapshot` and `journal` do not. The calls exist so that the store says the order once, for all engines.

pub(crate) mod logs;
mod resize;
pub(crate) mod zones;

use crate::base::gate::{op_closed, op_opened, GateGuard};
use crate::base::left::LeftNotes;
use crate::base::order::{Change, Did, EdgeKind, KeepsOrder};
use crate::base::units::{self, Piece};
use crate::cache::{new_frame, News};
use crate::error::MetaError;
use crate::rooms::Rooms;
use crate::space::{Reserved, ReservedInode};
use crate::zones::zone::{Frame, Zone};
use std::sync::Arc;
use yore_format::{
    Block, BlockHeader, BlockKind, BlockNo, EventNo, Generation, GroupNo, Incarnation, InodeNo, IntentNote,
    MetaAddr, NodeMut, Touched, WriteFeatures,
};

/// A block under change.
pub struct Page<'a> {
    block: &'a mut Block,
    /// The chunks that were touched: what the intent log has to repeat.
    chunks: u64,
    /// The units that were changed, where somebody wants the order of changes.
    told: Option<&'a mut Vec<Piece>>,
}

impl Page<'_> {
    /// Its bytes.
    pub fn block(&self) -> &Block {
        self.block
    }

    /// Changes the block; `f` returns what it touched, with the units that the change *means* (a cell, an
    /// inode's slot, some bits). Debug builds compare: a replay of the log would lose a byte that changes
    /// outside.
    pub fn apply<T: Into<Touched>>(&mut self, f: impl FnOnce(&mut Block) -> T) {
        #[cfg(debug_assertions)]
        let before = *self.block;
        let touched: Touched = f(self.block).into();
        #[cfg(debug_assertions)]
        for i in (0..64).filter(|i| touched.chunks & (1 << i) == 0) {
            let chunk = i * yore_format::CHUNK_BYTES..(i + 1) * yore_format::CHUNK_BYTES;
            assert_eq!(self.block[chunk.clone()], before[chunk], "chunk {i} changed and was not reported");
        }
        if let Some(pieces) = self.told.as_deref_mut() {
            units::tell(self.block, &touched.meaning, pieces);
        }
        self.chunks |= touched.chunks;
    }

    /// Gives a cell of a node another key of the same width. The caller keeps the order.
    pub fn set_key(&mut self, cell: usize, key: &[u8]) {
        if let Some(pieces) = self.told.as_deref_mut() {
            units::tell_gone(self.block, cell, pieces);
        }
        self.apply(|block| NodeMut::new(block).set_key(cell, key));
    }
}

/// What a new block is.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock {
    /// Its kind.
    pub kind: BlockKind,
    /// Its level in a tree, 0 for leaves.
    pub level: u8,
    /// Whom it belongs to.
    pub owner: InodeNo,
    /// The owner's incarnation.
    pub incarnation: Incarnation,
    /// The number at which it is born (tree nodes).
    pub birth: EventNo,
}

/// An open operation. Dropping it ends it.
pub struct Op<'m> {
    rooms: &'m Rooms,
    generation: Generation,
    reserved: Reserved,
    /// The number of the last change. It counts by itself as long as nobody wants the order of changes.
    changes: u64,
    /// The number that it has from what keeps the order of changes; 0: nothing does.
    number: u64,
    gate: GateGuard<'m>,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop();
        }
        op_closed();
    }
}

impl<'m> Op<'m> {
    /// Opens an Op with what was reserved for it. Waits only for the instant in which a generation is frozen.
    #[inline]
    pub(crate) fn begin(rooms: &'m Rooms, reserved: Reserved) -> Op<'m> {
        let (gate, generation) = rooms.blocks.base.gate.share();
        op_opened();
        Op { rooms, generation, reserved, changes: 0, number: number(rooms, false), gate }
    }

    /// As [`Op::begin`], with no other Op open until this one ends. Waits for those that are open.
    pub(crate) fn begin_alone(rooms: &'m Rooms, reserved: Reserved) -> Op<'m> {
        let (gate, generation) = rooms.blocks.base.gate.enter_alone();
        op_opened();
        Op { rooms, generation, reserved, changes: 0, number: number(rooms, true), gate }
    }

    /// It panicked, so its changes are there by half. The gate is still held: whoever freezes a generation or
    /// gathers a record finds that nothing may be written any more.
    #[cold]
    fn stop(&self) {
        let error = MetaError::Refused("a change of metadata panicked, which is a bug".into());
        self.rooms.blocks.base.progress.stop(error);
    }

    /// The generation that the Op belongs to.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of a change of which nobody wants to know more.
    #[inline]
    fn next_change(&mut self) -> Change {
        self.changes += 1;
        Change::from_number(self.changes)
    }

    /// What keeps the order of changes, if anything does, and this Op's number.
    #[inline]
    fn order(&self) -> Option<(&'m dyn KeepsOrder, u64)> {
        match self.number {
            0 => None,
            _ => self.kept(),
        }
    }

    #[cold]
    fn kept(&self) -> Option<(&'m dyn KeepsOrder, u64)> {
        self.rooms.blocks.base.order.wanted().map(|order| (order, self.number))
    }

    /// What this Op does has no order in which a crash may stop anywhere: it is done as a whole and by
    /// itself.
    pub fn be_whole(&self) {
        if let Some((order, op)) = self.order() {
            order.be_whole(op);
        }
    }

    /// Everything that is pending reaches the medium before what this Op does.
    pub fn drain(&mut self) {
        if let Some((order, _)) = self.order() {
            order.drain();
        }
    }

    /// A block that is in memory; `None` if it is not (the caller should have kept it there, or can do
    /// without).
    pub fn cached(&self, addr: MetaAddr) -> Option<Frame> {
        self.rooms.blocks.cache.get(addr)
    }

    /// Whether the volume has these features, durably.
    #[inline]
    pub fn has_features(&self, features: WriteFeatures) -> bool {
        self.rooms.blocks.base.features.has(features)
    }

    /// The block of the roots of the history; `None`: the volume has no past.
    pub fn history_root(&self) -> Option<MetaAddr> {
        Some(self.rooms.blocks.base.ledger.history_root()).filter(|root| !root.is_none())
    }

    /// What inodes in use have left to their versions lately.
    #[inline]
    pub fn left(&self) -> &LeftNotes {
        &self.rooms.blocks.base.left
    }

    /// Changes a block. Copies it in memory first if the frozen generation still needs the old bytes.
    #[inline]
    pub fn change<R>(&mut self, frame: &Frame, f: impl FnOnce(&mut Page<'_>) -> R) -> (R, Change) {
        if self.number != 0 {
            return self.change_ordered(frame, f);
        }
        let (result, news) = frame.modify(self.generation, |block| {
            let mut page = Page { block, chunks: 0, told: None };
            let result = f(&mut page);
            (result, page.chunks)
        });
        if news != News::None {
            self.rooms.blocks.note_changed(frame.home(), self.generation, frame, news);
        }
        (result, self.next_change())
    }

    /// As [`Op::change`], where somebody wants the order of changes.
    #[cold]
    #[inline(never)]
    fn change_ordered<R>(&mut self, frame: &Frame, f: impl FnOnce(&mut Page<'_>) -> R) -> (R, Change) {
        let (order, op) = self.kept().expect("an Op with a number");
        let ((result, change), news) = frame.modify(self.generation, |block| {
            #[cfg(debug_assertions)]
            let before = *block;
            order.before(frame.addr(), block);
            let mut pieces = Vec::new();
            let mut page = Page { block, chunks: 0, told: Some(&mut pieces) };
            let result = f(&mut page);
            let chunks = page.chunks;
            #[cfg(debug_assertions)]
            assert!(units::is_all(&before, block, &pieces), "a change of {} tells {pieces:?}", frame.addr());
            let did = Did::Block { addr: frame.addr(), after: block, pieces };
            let change = order.change(op, did);
            ((result, change), chunks)
        });
        if news != News::None {
            self.rooms.blocks.note_changed(frame.home(), self.generation, frame, news);
        }
        (result, change)
    }

    /// `then` must not be on the medium before `first`, which is the earlier change. If both are one change,
    /// this says nothing.
    #[inline]
    pub fn edge(&mut self, kind: EdgeKind, first: Change, then: Change) {
        debug_assert!(first <= then, "an edge {kind:?} points backward, from {first:?} to {then:?}");
        if let Some((order, _)) = self.order() {
            order.edge(kind, first, then);
        }
    }

    /// What `block` has counts from the change `by` on: all its changes so far come before `by`, and all
    /// later ones behind it. If `by` itself lies in a block that does not count yet, the later ones come
    /// behind what makes that one count, too.
    #[inline]
    pub fn linked(&mut self, block: MetaAddr, by: Change) {
        if let Some((order, _)) = self.order() {
            order.linked(block, by);
        }
    }

    /// What `block` had counts in another place from the change `by` on: all its changes so far come before
    /// `by`.
    #[inline]
    pub fn moved(&mut self, block: MetaAddr, by: Change) {
        self.all_before(EdgeKind::Moved, block, by);
    }

    /// A name of an inode, in this directory, counts from the change `by` on.
    #[inline]
    pub fn named(&mut self, inode: InodeNo, directory: InodeNo, by: Change) {
        if let Some((order, _)) = self.order() {
            order.named(inode, directory, by);
        }
    }

    /// What is below a directory loses a name elsewhere with the change `gone`: names of the directory, and
    /// of those above it, that still wait come first.
    #[inline]
    pub fn leads_to(&mut self, directory: InodeNo, gone: Change) {
        self.unnamed(directory, gone);
    }

    /// A name of an inode goes with the change `gone`: names that it got before, and that still wait, come
    /// first, and so do those of the directories that lead to them.
    #[inline]
    pub fn unnamed(&mut self, inode: InodeNo, gone: Change) {
        if let Some((order, _)) = self.order() {
            order.unnamed(inode, gone);
        }
    }

    /// An inode that an event has seen is born anew with the change `by`, and its version has a row: what
    /// changes of it from now on does not show in the past.
    #[inline]
    pub fn reborn(&mut self, inode: InodeNo, by: Change) {
        if let Some((order, _)) = self.order() {
            order.reborn(inode, by);
        }
    }

    /// This Op changes names of an inode, or its entries if it is a directory. If an earlier Op has born it
    /// anew, and that still waits, all that this one changes later comes behind that. A crash between would
    /// leave an inode that an event has seen, and whose counts do not agree with its names: whatever puts
    /// these right would show in the past.
    #[inline]
    pub fn behind_birth(&mut self, inode: InodeNo) {
        if let Some((order, op)) = self.order() {
            order.behind_birth(op, inode);
        }
    }

    /// Extents of an inode go with the change `gone`, or get shorter: others come into their place later.
    #[inline]
    pub fn vacated(&mut self, inode: InodeNo, gone: Change) {
        if let Some((order, _)) = self.order() {
            order.vacated(inode, gone);
        }
    }

    /// Blocks come to a place in an inode with the change `by`, behind what was there before.
    #[inline]
    pub fn occupied(&mut self, inode: InodeNo, by: Change) {
        if let Some((order, _)) = self.order() {
            order.occupied(inode, by);
        }
    }

    /// The past has a row from the change `row` on. All that this Op changes later comes behind that.
    #[inline]
    pub fn recorded(&mut self, row: Change) {
        self.ahead(EdgeKind::Recorded, row);
    }

    /// All that this Op changes later comes behind `first`.
    #[inline]
    pub fn ahead(&mut self, kind: EdgeKind, first: Change) {
        if let Some((order, op)) = self.order() {
            order.ahead(kind, op, first);
        }
    }

    /// Whether somebody wants the order of changes. If not, changes that only make a crash between two others
    /// harmless can be left out.
    #[inline]
    pub fn wants_order(&self) -> bool {
        self.number != 0
    }

    /// All changes of `block` so far come before `by`.
    #[inline]
    pub fn all_before(&mut self, kind: EdgeKind, block: MetaAddr, by: Change) {
        if let Some((order, _)) = self.order() {
            order.all_before(kind, block, by);
        }
    }

    /// A new block from the reservation, all zero behind its header.
    ///
    /// # Panics
    /// If more blocks are taken than were reserved: a bug in the store's bound (R6).
    pub fn allocate(&mut self, new: NewBlock) -> (Frame, Change) {
        let zone = self.reserved.take_block();
        let index = zone.allocate_index(&self.rooms.blocks.zones.changes, self.generation);
        self.install(&zone, index, new)
    }

    fn install(&mut self, zone: &Arc<Zone>, index: u16, new: NewBlock) -> (Frame, Change) {
        let addr = MetaAddr::new(zone.no, index);
        let mut block = yore_format::ZERO_BLOCK;
        let tag = self.rooms.blocks.base.medium.volume_tag();
        BlockHeader::init(&mut block, new.kind, new.level, addr, new.owner, new.incarnation, tag, new.birth);
        let frame = new_frame(addr, zone.clone(), block, self.generation);
        let change = match self.order() {
            Some((order, op)) => order.change(op, Did::Made { addr, block: &frame.read() }),
            None => self.next_change(),
        };
        self.rooms.blocks.insert_new(zone, self.generation, &frame);
        self.rooms.blocks.base.ledger.totals().metadata_blocks.add(1);
        (frame, change)
    }

    /// Gives a block back. It is never written if it was born in this generation; what it held on the medium
    /// stays readable until the generation is complete (R2).
    pub fn free(&mut self, frame: Frame) -> Change {
        let addr = frame.addr();
        frame.kill(self.generation);
        let change = match self.order() {
            Some((order, op)) => order.change(op, Did::Freed { addr }),
            None => self.next_change(),
        };
        self.rooms.blocks.remove(frame.home(), self.generation, addr);
        change
    }

    /// The reserved inode is in use from now on. Its slot must have been written, by [`Op::change`], before:
    /// until then only the reservation keeps others from it.
    pub fn take_inode(&mut self, inode: ReservedInode) {
        let free = yore_format::Inode::slot_is_free(&inode.frame().read(), inode.inode().slot());
        assert!(!free, "inode {} counted before it is written", inode.inode());
        inode.take(&self.rooms.blocks, self.generation);
        self.rooms.blocks.base.ledger.totals().inodes.add(1);
    }

    /// An inode's slot is free from now on; [`Op::change`] on `frame`, its inode block, has cleared it. Gives
    /// the block back when it is empty and the zone has another empty one.
    pub fn free_inode(&mut self, inode: InodeNo, frame: Frame) {
        assert_eq!(inode.addr(), frame.addr());
        self.rooms.blocks.base.ledger.totals().inodes.add(-1);
        let changes = &self.rooms.blocks.zones.changes;
        if frame.home().free_inode(changes, self.generation, inode) {
            let addr = frame.addr();
            let freed = self.free(frame);
            self.all_before(EdgeKind::Freed, addr, freed);
        }
    }

    /// A new inode block from the reservation, so that inodes can be reserved in it.
    pub fn add_inode_block(&mut self) {
        let zone = self.reserved.take_block();
        let index = zone.allocate_index(&self.rooms.blocks.zones.changes, self.generation);
        let new = NewBlock {
            kind: BlockKind::Inodes,
            level: 0,
            owner: InodeNo::NONE,
            incarnation: Incarnation(0),
            birth: EventNo(0),
        };
        self.install(&zone, index, new);
        // Only now: a thread that finds inodes offered reads their block, which must be there.
        zone.offer_inodes(&self.rooms.blocks.zones.changes, self.generation, index);
    }

    /// Frees data blocks once this generation is complete (R2, R3); the reclaimer learns of them then. The
    /// caller clears their bits in the bitmap, in this Op.
    pub fn free_after_commit(&mut self, start: BlockNo, len: u32) {
        self.rooms.blocks.base.freed.add(start, len);
    }

    /// Counts data blocks of a group as taken (negative) or freed in the volume's totals and the group's
    /// summary.
    pub fn count_free_blocks(&mut self, group: GroupNo, by: i64) {
        self.rooms.blocks.base.ledger.totals().free_blocks.add(by);
        self.rooms.blocks.zones.count_free_blocks(self.generation, group, by);
    }

    /// The volume has a past from now on; `roots` is the block of its roots. Records of the log do not say
    /// so, so the next fsync completes a generation.
    pub fn set_history_root(&mut self, roots: MetaAddr) {
        self.be_whole();
        self.rooms.blocks.base.ledger.set_history_root(roots);
        self.rooms.blocks.zones.changes.lose();
    }

    /// Takes the next number. [`crate::Meta::begin_alone`] must have opened the Op: Ops before it and after
    /// it work with different numbers.
    ///
    /// # Panics
    /// If other Ops may be open.
    pub fn take_number(&mut self) -> EventNo {
        self.assert_alone();
        self.take_number_beside_others()
    }

    /// # Panics
    /// If other Ops may be open.
    pub(crate) fn assert_alone(&self) {
        assert!(matches!(self.gate, GateGuard::Alone { .. }), "an Op that is not alone");
    }

    /// Takes the next number while other Ops may be open, for a caller to whom it makes no difference.
    pub fn take_number_beside_others(&mut self) -> EventNo {
        self.rooms.blocks.base.ledger.take_number()
    }

    /// Changes the root of the tree of orphans.
    pub fn set_orphan_root(&mut self, root: MetaAddr, level: u8) -> Change {
        self.rooms.blocks.base.ledger.set_orphan_root(root, level);
        match self.order() {
            Some((order, op)) => order.change(op, Did::Orphans { root, level }),
            None => self.next_change(),
        }
    }

    /// Notes in the log what this Op does to data noted earlier: it makes data at home count, or events data
    /// off. A flush comes before the record that says so. Does nothing without a log.
    pub fn note(&mut self, note: &IntentNote<'_>) {
        self.rooms.log.note(note);
    }
}

/// The number of an Op that opens; 0: nothing keeps the order of changes.
#[inline]
fn number(rooms: &Rooms, alone: bool) -> u64 {
    match rooms.blocks.base.order.is_kept() {
        false => 0,
        true => number_kept(rooms, alone),
    }
}

#[cold]
fn number_kept(rooms: &Rooms, alone: bool) -> u64 {
    rooms.blocks.base.order.wanted().map_or(0, |order| order.begin(alone))
}
