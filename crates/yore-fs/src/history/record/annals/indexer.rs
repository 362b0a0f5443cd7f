//! The indexer: gives rows their keys, a batch of one shard at a time, oldest first.
//!
//! **A4 Keys and watermark are one Op.** A batch is planned first ([`Tree::plan_inserts`]), so the blocks
//! that it needs are known exactly, and the Op only carries the plan out. Nobody else changes the indexes
//! meanwhile, for all who do hold *annals work*.

use super::backlog::name_of;
use super::trees::Annals;
use crate::history::record::backlog::{AnnalsWork, FreshRow};
use crate::history::record::past::Past;
use crate::{Error, Result};
use yore_core::btree::{BatchInsert, Tree};
use yore_core::Core;
use yore_format::{
    AnnalsKey, BlockKind, Corruption, GroupNo, HistoryRoots, HistoryTree, IndexValue, InodeIndexCell,
    NameIndexCell, HISTORY_SHARDS,
};
use yore_meta::{Meta, Op};

/// Rows in a batch, at most.
const BATCH_ROWS: usize = 64;
/// With so many rows the thread that indexes begins.
pub(super) const INDEX_FROM: u64 = 1_024;
/// If damage keeps rows from being indexed, rows go on up to so many times the bound.
const DAMAGE_FACTOR: u64 = 16;

/// Rows of a shard with the keys that they are to get.
#[derive(Default)]
struct Batch {
    rows: u64,
    last: AnnalsKey,
    states: Vec<InodeIndexCell>,
    names: Vec<NameIndexCell>,
}

/// A plan for an index.
struct Planned {
    which: HistoryTree,
    tree: Tree,
    plan: BatchInsert,
}

impl Past {
    /// Gives the next rows of a shard their keys, at most `most`, and returns how many got them.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors. Then nothing has changed.
    pub(crate) fn index_batch(
        &self,
        store: &Core,
        _work: &AnnalsWork<'_>,
        shard: usize,
        most: usize,
    ) -> Result<u64> {
        let (Some(annals), meta) = (self.annals(), &store.meta) else { return Ok(0) };
        let mut most = most.min(BATCH_ROWS);
        loop {
            let batch = annals.batch(meta, shard, most)?;
            if batch.rows == 0 {
                return Ok(0);
            }
            #[cfg(feature = "mutations")]
            let batch = batch.mutated();
            let by_inode =
                batch.states.iter().map(|cell| (InodeIndexCell::key(cell.inode, cell.end), cell.value()));
            let by_inode = self.plan(meta, HistoryTree::InodeIndex, by_inode.collect())?;
            let by_name = batch
                .names
                .iter()
                .map(|cell| (NameIndexCell::key(cell.directory, cell.cookie, cell.death), cell.value()));
            let by_name = self.plan(meta, HistoryTree::NameIndex, by_name.collect())?;
            let need = by_inode.plan.blocks() + by_name.plan.blocks();
            // What deleting needs is touched only if there is no other way to get on.
            let reserved = match store.reserve(GroupNo(0), need) {
                Err(Error::NoSpace) if most > 1 => {
                    most /= 2;
                    continue;
                }
                Err(Error::NoSpace) if self.backlog() >= self.backlog.bound() / 2 => {
                    store.reserve_freely(GroupNo(0), need)?
                }
                other => other?,
            };
            {
                let (_states, _names) = (self.inode_index.write(), self.name_index.write());
                let mut op = meta.begin(reserved);
                op.be_whole();
                by_inode.carry_out(self, &mut op, batch.last);
                by_name.carry_out(self, &mut op, batch.last);
                op.change(self.roots(), |page| {
                    page.apply(|b| HistoryRoots::set_watermark(b, shard, batch.last));
                });
            }
            let mut locked = self.shards[shard].write();
            let unindexed = self.learn(meta, shard, &mut locked)?;
            let left = (batch.rows, &batch.states[..], &batch.names[..]);
            self.backlog.leave(shard, unindexed, batch.last, left);
            return Ok(batch.rows);
        }
    }

    fn plan<const N: usize>(
        &self,
        meta: &Meta,
        which: HistoryTree,
        mut cells: Vec<([u8; N], IndexValue)>,
    ) -> Result<Planned> {
        cells.sort_unstable_by_key(|(key, _)| *key);
        if let Some(pair) = cells.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let found = format!("{:02x?}", pair[0].0);
            return Err(Corruption::new(BlockKind::Annals.name(), "rows", "one for each key", found).into());
        }
        let tree = self.tree(which);
        Ok(Planned { which, tree, plan: tree.plan_inserts(meta, &cells)? })
    }

    /// Gives all rows of the volume their keys, until `stop`.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors: those of the first shard that has one, after the others.
    pub(crate) fn index_all(&self, store: &Core, stop: &dyn Fn() -> bool) -> Result<()> {
        let mut result = Ok(());
        for shard in 0..HISTORY_SHARDS {
            loop {
                if stop() {
                    return result;
                }
                let work = self.annals_work();
                match self.index_batch(store, &work, shard, BATCH_ROWS) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) => {
                        result = result.and(Err(e));
                        break;
                    }
                }
            }
        }
        result
    }

    /// Gives rows their keys, at most so many, and returns how many got them.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors.
    pub(crate) fn index_some(&self, store: &Core, most: u64) -> Result<u64> {
        let (mut done, mut shard) = (0, 0);
        while shard < HISTORY_SHARDS && done < most {
            let left = usize::try_from(most - done).unwrap_or(BATCH_ROWS);
            let work = self.annals_work();
            match self.index_batch(store, &work, shard, left)? {
                0 => shard += 1,
                rows => done += rows,
            }
        }
        Ok(done)
    }

    /// Called before a call that may record, with no lock: at its bounds the backlog is made shorter first.
    ///
    /// # Errors
    /// At the hard bound, those of indexing.
    pub(crate) fn bound_backlog(&self, store: &Core) -> Result<()> {
        let (rows, bound) = (self.backlog(), self.backlog.bound());
        if rows < bound / 4 {
            return Ok(());
        }
        let work = match rows < bound {
            // If it is taken, somebody is at work.
            true => self.try_annals_work(),
            false => Some(self.annals_work()),
        };
        let Some(work) = work else { return Ok(()) };
        let (mut shard, mut most) = (0, 0);
        for (no, locked) in self.shards.iter().enumerate() {
            let rows = locked.read().unindexed.as_ref().map_or(0, |unindexed| unindexed.rows);
            if rows > most {
                (shard, most) = (no, rows);
            }
        }
        match self.index_batch(store, &work, shard, BATCH_ROWS) {
            Err(Error::NoSpace) if rows >= bound => Err(Error::NoSpace),
            Err(e) if rows >= bound.saturating_mul(DAMAGE_FACTOR) => Err(e),
            // The thread that indexes tells of it.
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "mutations")]
impl Batch {
    /// What a wrong indexer makes of it.
    fn mutated(mut self) -> Batch {
        if crate::mutation::is(crate::mutation::Mutation::WatermarkAhead) {
            let AnnalsKey { end, sequence } = self.last;
            self.states.retain(|cell| (cell.end, cell.sequence) != (end, sequence));
            self.names.retain(|cell| (cell.death, cell.sequence) != (end, sequence));
        }
        self
    }
}

impl Planned {
    /// Inserts the keys, inside the Op, with the index locked for writing.
    fn carry_out(mut self, past: &Past, op: &mut Op<'_>, last: AnnalsKey) {
        if let Some(delta) = self.tree.insert_planned(op, self.plan, last.end) {
            let _ = past.store(op, self.which, &self.tree, delta);
        }
    }
}

impl Annals<'_> {
    /// The next rows without keys of a shard: those that memory has, if it has all of them as they were
    /// appended; otherwise they are read.
    fn batch(self, meta: &Meta, shard: usize, most: usize) -> Result<Batch> {
        let mut locked = self.past.shards[shard].read();
        if locked.unindexed.is_none() {
            // Rows are counted from here on.
            drop(locked);
            locked = self.read_shard(meta, shard)?;
        }
        let mut batch = Batch::default();
        if let Some(unindexed) = locked.unindexed.as_ref().filter(|unindexed| unindexed.are_fresh()) {
            for FreshRow { key, state, name } in unindexed.fresh.iter().take(most) {
                let AnnalsKey { end, sequence } = *key;
                (batch.rows, batch.last) = (batch.rows + 1, *key);
                batch.states.extend(state.map(|(inode, born)| InodeIndexCell { inode, end, born, sequence }));
                batch.names.extend(name.map(|(directory, cookie, birth)| NameIndexCell {
                    directory,
                    cookie,
                    death: end,
                    birth,
                    sequence,
                    shard,
                }));
            }
            return Ok(batch);
        }
        let watermark = HistoryRoots::watermark(&self.past.roots().read(), shard);
        self.rows_behind(meta, shard, watermark, &mut |key, row| {
            batch.rows += 1;
            batch.last = key;
            if let Some(inode) = &row.version {
                let (inode, born) = (row.inode, inode.born);
                batch.states.push(InodeIndexCell { inode, end: row.end, born, sequence: key.sequence });
            }
            batch.names.extend(name_of(shard, key, row));
            batch.rows < most as u64
        })?;
        drop(locked);
        Ok(batch)
    }
}
