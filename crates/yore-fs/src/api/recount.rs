//! Putting right, while the volume is in use, what a crash has left under an engine that orders changes
//! (docs/EDGES.md, docs/CHECK.md).
//!
//! A check has found it in a generation that is older than now. What it says is true all the same, because of
//! how calls change things:
//!
//! - **L1** *Both sides of a count change together.* A count that a check found to differ from what it counts
//!   differs by as much until somebody corrects it here. So a correction adds the difference.
//! - **L2** *What nothing leads to is nobody's.* Calls come to blocks, nodes and inodes from what names them.
//! - **L3** *An inode is told by its incarnation.* Where a number is in use again, nothing is changed.
//!
//! What of it can be seen at the moment of the correction is looked at again, under the locks under which it
//! is corrected. A correction records no version: what an event has seen is as it was, and the count was
//! wrong then, too.

use crate::file::Room;
use crate::history::preserve;
use crate::history::reclaim::alone::give_up_double;
use crate::history::record::Ended;
use crate::ops::name_at;
use crate::store::Store;
use crate::{dir, xattr, Error, InodeNo, RenameMode, Result, View};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::alloc::Run;
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::{extent, orphan, retained};
use yore_format::{
    BlockCount, BlockKind, BlockNo, ContentKind, EventNo, Expect, HistoryGrowth, Incarnation, MetaAddr,
};
use yore_meta::{EdgeKind, Reserved, TotalsGrowth};

/// A recount that is under way ([`View::begin_recount`]).
pub struct RecountUnderWay(View);

impl RecountUnderWay {
    /// It has given blocks back, and a generation without them is complete: calls that wait for room try
    /// again.
    pub fn freed(&self) {
        self.0.store().recounts.freed();
    }
}

impl Drop for RecountUnderWay {
    fn drop(&mut self) {
        self.0.store().recounts.end();
    }
}

impl View {
    /// Whether the volume may have what a crash has left under an engine that orders changes, as far as no
    /// recount has shown that it has not.
    pub fn leaks_pending(&self) -> bool {
        self.store().meta.may_have_leaks()
    }

    /// How far the recount in the background is, in percent; `None` if none is under way.
    pub fn recounting(&self) -> Option<u8> {
        self.store().recounts.percent()
    }

    /// Puts right what the first change of the present puts right: rows of the past whose end has not come. A
    /// check behind it meets none that goes while it looks.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn end_rows(&self) -> Result<()> {
        self.writable().map(|_| ())
    }

    /// Says how far a recount is, in percent, or that none is under way.
    pub fn tell_recounting(&self, percent: Option<u8>) {
        self.store().recounts.set_percent(percent);
    }

    /// Says that a recount is under way, as long as what this returns lives: calls that find no room wait for
    /// it. What the recount itself does is to be done on behalf of nobody ([`crate::Behalf::Nobody`]), so
    /// that it does not wait for itself.
    pub fn begin_recount(&self) -> RecountUnderWay {
        self.store().recounts.begin();
        RecountUnderWay(self.present())
    }

    /// Has `end` called before the volume is closed, while everything still works: it ends what works beside
    /// calls, and waits for that. False, and it is dropped, if the volume is closed or about to be.
    pub fn before_close(&self, end: Box<dyn FnOnce() + Send>) -> bool {
        let store = self.store();
        let mut before = store.before_close.lock();
        // Whoever closes says so first, and takes these then.
        if store.closed.load(Ordering::Acquire) {
            return false;
        }
        before.push(end);
        true
    }

    /// A check of a generation that was written since the volume was opened has found nothing at all. The
    /// volume says on the medium that no leaks are pending any more, when this returns.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; device errors.
    pub fn leaks_are_gone(&self) -> Result<()> {
        Ok(self.store().meta.leaks_are_gone()?)
    }

    /// Frees those of `len` blocks from `start` that are still marked used. A check has found that they
    /// belong to nobody, and no call can have changed that (L2). Returns how many were freed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn free_leaked(&self, start: BlockNo, len: u32) -> Result<u64> {
        let store = self.writable()?;
        store.alloc.free_leaked(&store.meta, Run { start, len })
    }

    /// Lowers the links of an inode by so many more than it has names. False, and nothing is changed, if no
    /// link would be left: it has lost all its names since.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn lower_links(&self, inode: InodeNo, incarnation: Incarnation, by: u32) -> Result<bool> {
        self.writable()?;
        let _passage = self.enter(inode)?;
        self.change(|store| lower_links(store, (inode, incarnation), by))
    }

    /// Adds to what an inode says of itself: to the number of entries, of a directory, and to that of its
    /// blocks.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn correct_counts(
        &self,
        inode: InodeNo,
        incarnation: Incarnation,
        (size, blocks): (i64, i64),
    ) -> Result<bool> {
        let store = self.writable()?;
        let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(false) };
        let reserved = store.reserve_freely(store.near(inode), 0)?;
        let mut state = cell.state.write();
        if state.gone || (size != 0 && !state.inode.is_directory()) {
            return Ok(false);
        }
        let new_size = state.inode.size.checked_add_signed(size);
        let new_blocks = state.inode.blocks.checked_add_signed(blocks);
        let (Some(new_size), Some(new_blocks)) = (new_size, new_blocks) else { return Ok(false) };
        (state.inode.size, state.inode.blocks) = (new_size, new_blocks);
        store_inode(&mut store.meta.begin(reserved), &cell, &state);
        Ok(true)
    }

    /// Adds what the volume's totals lack: of free data blocks, inodes, and metadata blocks.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn correct_totals(&self, free_blocks: i64, inodes: i64, metadata_blocks: i64) -> Result<()> {
        let store = self.writable()?;
        Ok(store.meta.correct_totals(TotalsGrowth { free_blocks, inodes, metadata_blocks })?)
    }

    /// Adds what the count of blocks lacks that only the past has.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Stopped`].
    pub fn correct_past_space(&self, by: HistoryGrowth) -> Result<()> {
        let store = self.writable()?;
        retained::correct(&mut store.meta.begin(Reserved::none()), by);
        Ok(())
    }

    /// Lowers the count of references to a block, and of those in use. False, and nothing is changed, if the
    /// count is not so high any more.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn lower_references(&self, block: BlockNo, references: u16, in_use: u16) -> Result<bool> {
        let store = self.writable()?;
        store.alloc.lower_references(&store.meta, block, BlockCount { references, in_use })
    }

    /// Frees a node of a tree of this kind and owner, to which nothing leads. False if it is not there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; device errors.
    pub fn free_unreachable(
        &self,
        addr: MetaAddr,
        kind: BlockKind,
        (owner, incarnation): (InodeNo, Incarnation),
    ) -> Result<bool> {
        let store = self.writable()?;
        let expect = Expect { kind, owner, incarnation, level: None };
        Ok(store.meta.free_unreachable(addr, &expect)?)
    }

    /// Removes what nodes of an inode's tree have above their bounds, on the way to a key. Readers pass over
    /// it. False if nothing is removed; what versions have, too, stays.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn trim_nodes(
        &self,
        kind: BlockKind,
        (owner, incarnation): (InodeNo, Incarnation),
        key: &[u8],
    ) -> Result<bool> {
        let store = self.writable()?;
        let Some(cell) = cell_of(store, owner, incarnation)? else { return Ok(false) };
        let reserved = store.reserve_freely(store.near(owner), 0)?;
        // Of a file, extents change under this lock.
        let _io = (!cell.state.read().inode.is_directory()).then(|| cell.io.lock());
        let state = cell.state.write();
        if state.gone {
            return Ok(false);
        }
        let recorded = store.recorded_until(&state, owner)?;
        let is_in_tree = state.inode.content_kind == ContentKind::Tree;
        let tree = match kind {
            BlockKind::Directory if state.inode.is_directory() && is_in_tree => {
                dir::tree(&state.inode, owner)
            }
            BlockKind::Extents if state.inode.is_regular() && is_in_tree => {
                extent::tree(owner, &state.inode, recorded)
            }
            BlockKind::Xattrs => xattr::tree(&store.meta, &state.inode, owner)?.with_recorded(recorded),
            _ => return Ok(false),
        };
        let beyond = tree.beyond_bounds(&store.meta, key)?;
        if beyond.is_empty() {
            return Ok(false);
        }
        beyond.remove(&mut store.meta.begin(reserved));
        Ok(true)
    }

    /// Gives up a version whose end has not come, because the state after it is of the same birth: what it
    /// says, that one says, too. False if that is not so, or it is not there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn give_up_double_version(&self, inode: InodeNo, born: EventNo, end: EventNo) -> Result<bool> {
        let store = self.writable()?;
        let Some(version) = store.past.version_ending_at(&store.meta, inode, end)? else { return Ok(false) };
        if version.inode.born != born {
            return Ok(false);
        }
        let is_double = match store.past.version_ending_behind(&store.meta, inode, end)? {
            Some(later) => (later.inode.born, later.inode.incarnation) == (born, version.inode.incarnation),
            None => cell_of(store, inode, version.inode.incarnation)?
                .is_some_and(|cell| cell.state.read().inode.born == born),
        };
        if is_double {
            give_up_double(store, inode, &version)?;
        }
        Ok(is_double)
    }

    /// Gives up a past name whose end has not come: the same life of the name goes on, or has ended later. A
    /// check has found that, and no call begins a life before now. False if it is not there.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn give_up_double_name(
        &self,
        directory: InodeNo,
        cookie: u64,
        birth: EventNo,
        end: EventNo,
    ) -> Result<bool> {
        let store = self.writable()?;
        let _work = store.past.annals_work();
        let ended = Ended { end, inode: directory, cookie };
        match store.past.remove_name(store, &ended, birth) {
            Ok(()) => Ok(true),
            // It is not what the check has met. If that is damage, the next check says so.
            Err(Error::Corruption(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What becomes of an inode without a name, that has `links` all the same: it gets back the name that
    /// half an exchange has taken from it, or else it goes. False, and nothing is changed, for a directory
    /// with entries, and if somebody has changed its links.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn end_unnamed(&self, inode: InodeNo, incarnation: Incarnation, links: u32) -> Result<bool> {
        let store = self.writable()?;
        if let Some(taken) = taken_name(store, inode, incarnation)? {
            return self.give_back(inode, taken);
        }
        let _passage = self.enter(inode)?;
        let ended = self.change(|store| orphan_unnamed(store, (inode, incarnation), links))?;
        if let Some(cell) = &ended {
            store.let_go(cell);
        }
        Ok(ended.is_some())
    }

    /// Gives an inode the name that another one has taken. At each instant it keeps the name that it has by
    /// then.
    fn give_back(&self, inode: InodeNo, (directory, name): (InodeNo, Vec<u8>)) -> Result<bool> {
        for number in 0..100 {
            let between = format!(".exchanged-{inode}-{number}").into_bytes();
            match self.link(inode, directory, &between) {
                Err(Error::Exists) => continue,
                linked => linked?,
            };
            self.rename(directory, &between, directory, &name, RenameMode::Replace)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn writable(&self) -> Result<&Arc<Store>> {
        let store = self.live()?;
        store.check_writable()?;
        Ok(store)
    }
}

/// An inode in use, if it is of this incarnation (L3).
fn cell_of(store: &Store, inode: InodeNo, incarnation: Incarnation) -> Result<Option<Arc<InodeCell>>> {
    match store.cell(inode) {
        Ok(cell) => Ok(Some(cell).filter(|cell| cell.incarnation == incarnation)),
        Err(Error::Stale) => Ok(None),
        Err(error) => Err(error),
    }
}

fn lower_links(store: &Arc<Store>, (inode, incarnation): (InodeNo, Incarnation), by: u32) -> Result<bool> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(false) };
    let reserved = store.reserve_freely(store.near(inode), 0)?;
    let mut state = cell.state.write();
    let least = if state.inode.is_directory() { 2 } else { 1 };
    if state.gone || state.inode.links < by.saturating_add(least) {
        return Ok(false);
    }
    state.inode.links -= by;
    if state.inode.links == 1 && !state.inode.is_directory() {
        // Where several links were counted, nobody has checked that its one name is where it says.
        name_at(&mut state.inode, InodeNo::NONE, Incarnation(0), 0);
        cell.cover.follow(&state.inode);
    }
    store_inode(&mut store.meta.begin(reserved), &cell, &state);
    Ok(true)
}

/// Where a name is of which an exchange has made another inode's: directory and name. That is the place
/// where the inode says that its name is, if the entry there means an inode that has a name elsewhere, at the
/// place where it says so.
fn taken_name(
    store: &Arc<Store>,
    inode: InodeNo,
    incarnation: Incarnation,
) -> Result<Option<(InodeNo, Vec<u8>)>> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(None) };
    let Some((directory, cookie)) = place_of(&cell.state.read()) else { return Ok(None) };
    let Some((other, other_incarnation, name)) = entry_at(store, directory, cookie)? else {
        return Ok(None);
    };
    let Some(other_cell) = cell_of(store, other, other_incarnation)? else { return Ok(None) };
    let (place, links) = {
        let state = other_cell.state.read();
        (place_of(&state), state.inode.links)
    };
    let Some(place) = place.filter(|place| *place != (directory, cookie) && links > 1) else {
        return Ok(None);
    };
    let is_there = entry_at(store, place.0, place.1)?.is_some_and(|(of, ..)| of == other);
    Ok((other != inode && is_there).then_some((directory, name)))
}

/// Where an inode says that its name is.
fn place_of(state: &InodeState) -> Option<(InodeNo, u64)> {
    let inode = &state.inode;
    (!state.gone && inode.parent != InodeNo::NONE).then_some((inode.parent, inode.parent_cookie))
}

/// The entry with this cookie: what it means, and its name.
fn entry_at(
    store: &Arc<Store>,
    directory: InodeNo,
    cookie: u64,
) -> Result<Option<(InodeNo, Incarnation, Vec<u8>)>> {
    let cell = match store.cell(directory) {
        Err(Error::Stale) => return Ok(None),
        other => other?,
    };
    let state = cell.state.read();
    if state.gone || !state.inode.is_directory() {
        return Ok(None);
    }
    let (Some(before), mut found) = (cookie.checked_sub(1), None) else { return Ok(None) };
    dir::list(store, &state, directory, before, &mut |at, entry| {
        found = (at == cookie).then(|| (entry.inode, entry.incarnation, entry.name.to_vec()));
        Ok(false)
    })?;
    Ok(found)
}

/// Makes an inode without a name an orphan, if it has so many links.
fn orphan_unnamed(
    store: &Arc<Store>,
    (inode, incarnation): (InodeNo, Incarnation),
    links: u32,
) -> Result<Option<Arc<InodeCell>>> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(None) };
    let mut blocks = orphan::blocks_to_add(&store.meta);
    loop {
        let reserved = store.reserve_freely(store.near(inode), blocks)?;
        let orphans = store.orphans.lock();
        let mut state = cell.state.write();
        let is_as_found = !state.gone && !state.data.listed && state.inode.links == links;
        if !is_as_found || (state.inode.is_directory() && !dir::is_empty(&state)) {
            return Ok(None);
        }
        if links > 0 && preserve::must_preserve(store, &cell, &state)? {
            drop((state, orphans, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        let mut pins = Pins::new();
        let (position, needed) = orphans.prepare_add(&store.meta, inode, &mut pins)?;
        if needed > blocks {
            blocks = needed;
            continue;
        }
        let mut op = store.meta.begin(reserved);
        let listed = orphans.add(&mut op, &store.meta, position, inode, incarnation).counts;
        state.inode.links = 0;
        name_at(&mut state.inode, InodeNo::NONE, Incarnation(0), 0);
        cell.cover.follow(&state.inode);
        cell.unlinked.store(true, Ordering::Release);
        let counted = store_inode(&mut op, &cell, &state);
        op.edge(EdgeKind::Listed, listed, counted);
        drop(op);
        drop(state);
        return Ok(Some(cell));
    }
}
