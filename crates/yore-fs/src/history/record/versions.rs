//! Versions in memory, as cells of their own: what has once been a version never changes.

use super::past::Past;
use crate::core::inode::InodeCell;
use crate::core::Core;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use yore_format::{EventNo, Inode};

/// Versions kept in memory per shard, unless more are in use.
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
    /// By inode and an event that has seen it so, which spares the walk of a tree. What a version was as of
    /// an event it will always have been; that the event is kept is looked at by who reads
    /// ([`crate::history::record`], P6).
    seen: HashMap<(InodeNo, EventNo), Arc<InodeCell>>,
}

impl VersionShard {
    /// Lets go of half of those that nobody uses: seldom, and then many at once.
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

    /// The same as [`Versions::get`], if it was asked for before.
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
        let is_there = |inode: &Inode| !past.expunging.has(no, inode.incarnation, event);
        let version = past.version(&core.meta, no, event)?;
        let Some(version) = version.filter(|v| event < v.end && is_there(&v.inode)) else {
            return Ok(None);
        };
        let key = (no, version.inode.born);
        let mut shard = self.shard(no).lock();
        shard.make_room();
        let new = || Arc::new(InodeCell::of_version(no, version.inode));
        let cell = shard.cells.entry(key).or_insert_with(new).clone();
        shard.seen.insert((no, event), cell.clone());
        Ok(Some(cell))
    }

    /// All versions of an inode number are to be looked for anew, also by who has one in hand. Nobody reads
    /// of them meanwhile.
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
