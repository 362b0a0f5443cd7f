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
//! is corrected.
//!
//! - **L4** *What a snapshot has shown of names stays.* A change of links, of a parent or of a name keeps
//!   what an event has seen, like any other change: an event is durable behind all that was done before it,
//!   so it has seen the right count, and the change that a crash has left half done came later. But what an
//!   inode says of its own content (how many blocks and entries it has, which attributes) follows from what
//!   its versions share with it. It records no version, and is put right in them, too.
//!
//! Counts and nodes are here, names in `recount/names.rs`.

mod names;

use crate::history::reclaim::alone::give_up_double;
use crate::history::reclaim::unended::end_state;
use crate::history::record::Ended;
use crate::store::Store;
use crate::{dir, xattr, Error, InodeNo, Result, View};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::alloc::Run;
use yore_core::inode::{store_inode, InodeCell};
use yore_core::{extent, retained};
use yore_format::{
    BlockCount, BlockKind, BlockNo, ContentKind, EventNo, Expect, HistoryGrowth, Incarnation, InodeFlags,
    MetaAddr,
};
use yore_meta::{Reserved, TotalsGrowth};

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

    /// Adds what the volume's totals lack: of free data blocks, inodes, and metadata blocks. Free blocks that
    /// nobody counted can be promised from now on.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn correct_totals(&self, free_blocks: i64, inodes: i64, metadata_blocks: i64) -> Result<()> {
        let store = self.writable()?;
        store.alloc.correct_totals(&store.meta, TotalsGrowth { free_blocks, inodes, metadata_blocks })
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
        // Of a file, extents change under io, which comes before the state: this look at it ends here.
        let is_directory = cell.state.read().inode.is_directory();
        let _io = (!is_directory).then(|| cell.io.lock());
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

    /// Ends the state of a version whose end has not come: the inode in use begins where the version ends. If
    /// a later version is of the same birth, what this one says, that one says, too, and it is given up.
    /// False if that is not so, or it is not there.
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
            None => return end_state(store, inode, &version),
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

    /// Makes the flags of an inode, which repeat which attributes it has, and these agree: attributes that it
    /// does not know go, and of others that are not there it knows nothing any more.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`]; damage and device errors.
    pub fn correct_flags(&self, inode: InodeNo, incarnation: Incarnation) -> Result<bool> {
        let store = self.writable()?;
        let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(false) };
        match xattr::remove_unseen(store, &cell) {
            Err(Error::Stale) => return Ok(false),
            removed => removed?,
        }
        let reserved = store.reserve_freely(store.near(inode), 0)?;
        let mut state = cell.state.write();
        if state.gone {
            return Ok(false);
        }
        let flags = (state.inode.flags & InodeFlags::CHOSEN) | xattr::flags(store, &state, inode)?;
        if flags != state.inode.flags {
            if state.inode.flags.contains(InodeFlags::ACCESS_ACL) && !flags.contains(InodeFlags::ACCESS_ACL) {
                // What was the mask of the ACL is no right of the owning group.
                state.inode.mode &= !0o070;
            }
            state.inode.flags = flags;
            store_inode(&mut store.meta.begin(reserved), &cell, &state);
        }
        Ok(true)
    }

    fn writable(&self) -> Result<&Arc<Store>> {
        let store = self.live()?;
        store.check_writable()?;
        Ok(store)
    }
}

/// An inode in use, if it is of this incarnation (L3).
fn cell_of(store: &Store, inode: InodeNo, incarnation: Incarnation) -> Result<Option<Arc<InodeCell>>> {
    Ok(store.cell_if_used(inode)?.filter(|cell| cell.incarnation == incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Volume};

    /// A recount waited for a file's io while it looked at the file's state. Whoever had io, as write-back
    /// has, waited for the state: both for ever, and then everybody who used the file. Debug builds assert
    /// the order.
    #[test]
    fn a_recount_takes_io_before_the_state() {
        let volume = Volume::memory(64 << 20).unwrap();
        volume.write("f", "").unwrap();
        let file = OpenOptions::new().write(true).open(&volume, "f").unwrap();
        for n in 0..20 {
            file.write_at(&[1; 100], n * 8192).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        let (node, view) = (volume.node("f").unwrap(), volume.view());
        let (no, incarnation) = (node.inode(), Incarnation(node.attr().incarnation));
        let cell = view.store().cell(no).unwrap();
        assert_eq!(cell.state.read().inode.content_kind, ContentKind::Tree);
        let key = 7u64.to_be_bytes();
        assert!(!view.trim_nodes(BlockKind::Extents, (no, incarnation), &key).unwrap());
        // Nobody has kept a lock.
        assert!(cell.io.try_lock().is_some() && cell.state.try_write().is_some());
    }

    /// A call that removes an attribute, or sets one, had come through by half: the flags did not know the
    /// attribute, and its cells were there. A recount computed the flags from what can be seen, so it changed
    /// nothing, and the volume said for ever that leaks are pending.
    #[test]
    fn an_attribute_that_is_not_known_goes() {
        let volume = Volume::memory(64 << 20).unwrap();
        volume.write("f", "").unwrap();
        let (node, view) = (volume.node("f").unwrap(), volume.view());
        let (no, incarnation) = (node.inode(), Incarnation(node.attr().incarnation));
        for name in [&b"security.capability"[..], b"user.stays"] {
            view.setxattr(no, name, b"value", crate::SetXattrMode::Any).unwrap();
        }
        let store = view.store();
        let cell = store.cell(no).unwrap();
        {
            let reserved = store.reserve_freely(store.near(no), 0).unwrap();
            let mut state = cell.state.write();
            state.inode.flags.remove(InodeFlags::CAPABILITY);
            store_inode(&mut store.meta.begin(reserved), &cell, &state);
        }
        let before = view.getattr(no).unwrap();
        assert!(view.correct_flags(no, incarnation).unwrap());
        assert_eq!(view.getattr(no).unwrap(), before);
        // Were the cells there, the flag would show them.
        {
            let reserved = store.reserve_freely(store.near(no), 0).unwrap();
            let mut state = cell.state.write();
            state.inode.flags.insert(InodeFlags::CAPABILITY);
            store_inode(&mut store.meta.begin(reserved), &cell, &state);
        }
        assert_eq!(view.listxattr(no).unwrap(), [b"user.stays".to_vec()]);
        assert!(view.correct_flags(no, incarnation).unwrap());
        assert_eq!(cell.state.read().inode.flags, InodeFlags::empty());
    }
}
