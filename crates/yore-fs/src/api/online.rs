//! What a check of a volume in use needs: the metadata as it was at one instant, a place for what it finds,
//! and repairs of what calls cannot change.

use crate::file::Room;
use crate::history::preserve;
use crate::store::Store;
use crate::{Error, InodeNo, Result, View};
use std::sync::Arc;
use yore_core::alloc::Run;
use yore_core::inode::store_inode;
use yore_format::{BlockNo, FindingsRecord, Incarnation};
use yore_meta::Shadow;

impl View {
    /// The metadata of the volume as it is now, to be read as a device while work goes on. No call waits for
    /// it, but the first one to need the next generation for an instant. What is overwritten meanwhile is
    /// kept in up to `memory` bytes, and beyond that in a temporary file. There can be one at a time.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is another one; damage and device errors.
    pub fn shadow(&self, memory: u64) -> Result<Shadow> {
        let store = self.store();
        if !store.read_only {
            // What was set aside has no name, and goes as soon as somebody counts.
            crate::ops::reap::free_set_aside(store)?;
        }
        Ok(store.meta.shadow(memory)?)
    }

    /// Whether the volume can be changed: it is open for writing, and no error has stopped that.
    pub fn may_write(&self) -> bool {
        self.store().check_writable().is_ok()
    }

    /// What the last check found and left as it is; `None` if nothing is recorded.
    ///
    /// # Errors
    /// Those of the device.
    pub fn findings(&self) -> Result<Option<FindingsRecord>> {
        Ok(self.store().meta.findings()?)
    }

    /// Records what a check found and left as it is, in place of what was recorded. Takes no room. Durable
    /// when it returns. Only whoever has the [`Shadow`] calls this.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; device errors.
    pub fn record_findings(&self, record: &FindingsRecord) -> Result<()> {
        Ok(self.store().meta.record_findings(record)?)
    }

    /// Frees those of `len` blocks from `start` that are still marked used. A check has found that they
    /// belong to nobody, and no call can have changed that. Returns how many were freed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn free_leaked(&self, start: BlockNo, len: u32) -> Result<u64> {
        let store = self.live()?;
        store.check_writable()?;
        store.alloc.free_leaked(&store.meta, Run { start, len })
    }

    /// Lowers the links of an inode by so many more than it has names. A check has found that there are so
    /// many too many. Calls change links and names together, so this difference holds until somebody lowers
    /// it. False, and nothing is changed, if no link would be left: it has lost all its names since.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn lower_links(&self, inode: InodeNo, by: u32) -> Result<bool> {
        self.live()?.check_writable()?;
        let _passage = self.enter(inode)?;
        self.change(|store| lower_links(store, inode, by))
    }
}

fn lower_links(store: &Arc<Store>, inode: InodeNo, by: u32) -> Result<bool> {
    let cell = match store.cell(inode) {
        Err(Error::Stale) => return Ok(false),
        other => other?,
    };
    loop {
        let reserved = store.reserve_freely(store.near(inode), 0)?;
        let mut state = cell.state.write();
        let least = if state.inode.is_directory() { 2 } else { 1 };
        if state.gone || state.inode.links < by.saturating_add(least) {
            return Ok(false);
        }
        if preserve::must_preserve(store, &cell, &state)? {
            drop((state, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        state.inode.links -= by;
        if state.inode.links == 1 && !state.inode.is_directory() {
            // Where several links were counted, nobody has checked that its one name is where it says.
            let inode = &mut state.inode;
            (inode.parent, inode.parent_incarnation, inode.parent_cookie) =
                (InodeNo::NONE, Incarnation(0), 0);
        }
        let mut op = store.meta.begin(reserved);
        store_inode(&mut op, &cell, &state);
        return Ok(true);
    }
}
