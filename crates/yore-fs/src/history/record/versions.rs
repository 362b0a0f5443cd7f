//! Versions in memory, as cells of their own: a version never changes.

use super::past::Past;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_core::Core;
use yore_format::{EventNo, Inode, Version};

/// How many versions are kept in memory per shard, unless more are in use.
const CELLS_PER_SHARD: usize = 256;
const SHARDS: usize = 16;
/// Versions in memory.
#[derive(Default)]
pub(crate) struct Versions {
    shards: [Mutex<VersionShard>; SHARDS],
}

#[derive(Default)]
struct VersionShard {
    /// By inode and birth.
    cells: HashMap<(InodeNo, EventNo), Arc<InodeCell>>,
    /// By inode and an event that has seen the version, which saves walking a tree. What an inode was as of
    /// an event never changes; the reader checks that the event is kept ([`crate::history::record`], P6).
    seen: HashMap<(InodeNo, EventNo), Arc<InodeCell>>,
}

impl VersionShard {
    /// Drops half of the versions that nobody uses: rarely, and then many at once.
    fn make_room(&mut self) {
        if self.seen.len() < CELLS_PER_SHARD && self.cells.len() < CELLS_PER_SHARD {
            return;
        }
        self.seen.clear();
        if self.cells.len() >= CELLS_PER_SHARD {
            let mut every_other = false;
            self.cells.retain(|_, cell| {
                every_other = !every_other;
                Arc::strong_count(cell) > 1 || every_other
            });
        }
    }
}

impl Versions {
    fn shard(&self, no: InodeNo) -> &Mutex<VersionShard> {
        &self.shards[no.0 as usize % SHARDS]
    }

    /// As [`Versions::get`], if memory has the answer.
    pub(crate) fn known(&self, no: InodeNo, event: EventNo) -> Option<Arc<InodeCell>> {
        self.shard(no).lock().seen.get(&(no, event)).cloned()
    }

    /// The cell of the version that an inode was as of a kept event; `None` if there is none.
    pub(crate) fn get(
        &self,
        core: &Core,
        past: &Past,
        no: InodeNo,
        event: EventNo,
    ) -> Result<Option<Arc<InodeCell>>> {
        let version = past.version(&core.meta, no, event)?;
        Ok(self.enter(past, no, event, version))
    }

    /// As [`Versions::get`], if the index of the annals leads to it. `None` tells nothing.
    pub(crate) fn indexed(
        &self,
        core: &Core,
        past: &Past,
        no: InodeNo,
        event: EventNo,
    ) -> Result<Option<Arc<InodeCell>>> {
        let version =
            past.annals().map(|annals| annals.indexed_version(&core.meta, no, event)).transpose()?;
        Ok(self.enter(past, no, event, version.flatten()))
    }

    /// The cell of a version, if that is what the inode was as of the event.
    fn enter(
        &self,
        past: &Past,
        no: InodeNo,
        event: EventNo,
        version: Option<Version>,
    ) -> Option<Arc<InodeCell>> {
        let is_there = |inode: &Inode| !past.expunging.has(no, inode.incarnation, event);
        let version = version.filter(|v| event < v.end && is_there(&v.inode))?;
        let key = (no, version.inode.born);
        let mut shard = self.shard(no).lock();
        shard.make_room();
        let new = || Arc::new(InodeCell::of_version(no, version.inode));
        let cell = shard.cells.entry(key).or_insert_with(new).clone();
        shard.seen.insert((no, event), cell.clone());
        Some(cell)
    }

    /// Drops all versions of an inode number. Later look-ups search for them again, also for callers that
    /// have one at hand. Nobody reads them meanwhile.
    pub(crate) fn forget_all(&self, no: InodeNo) {
        let mut shard = self.shard(no).lock();
        shard.seen.retain(|(of, _), _| *of != no);
        let gone: Vec<_> = shard.cells.extract_if(|(of, _), _| *of == no).collect();
        drop(shard);
        for (_, cell) in gone {
            cell.state.write().gone = true;
        }
    }

    /// The version with this birth was given up: nobody looks for it any more.
    pub(crate) fn forget(&self, no: InodeNo, born: EventNo) {
        let mut shard = self.shard(no).lock();
        if let Some(cell) = shard.cells.remove(&(no, born)) {
            shard.seen.retain(|_, seen| !Arc::ptr_eq(seen, &cell));
        }
    }
}
