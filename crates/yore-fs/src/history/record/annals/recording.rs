//! Appending rows. The indexer gives them their keys later.

use super::indexer::INDEX_FROM;
use super::trees::Annals;
use crate::history::record::backlog::FreshRow;
use crate::history::record::old::{OldName, OldVersion, Was};
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::history::record::slot::Slot;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use std::borrow::Cow;
use yore_core::btree::{LeafHints, Pins};
use yore_format::{
    version_shard, AnnalsKey, AnnalsRow, Corruption, EventNo, HistoryRoots, HistoryTree, RowName,
};
use yore_meta::{Change, Meta, Op};

/// What comes of preparing rows.
pub(in crate::history::record) enum PreparedRows<'p> {
    Ready(AnnalsRecording<'p>),
    /// The number is earlier than the end of a row that is there (A2).
    Late,
    /// No more rows can have this end.
    Full,
}

/// A row as a cell, and where it goes; `None`: the insert has to search for that.
struct Cell {
    key: AnnalsKey,
    value: Vec<u8>,
    slot: Option<Slot>,
}

/// A row that is ready to be appended.
struct Row {
    shard: usize,
    row: Cell,
    /// The inode whose state it has, with the birth of that.
    state: Option<(InodeNo, EventNo)>,
    /// The directory of its name, the cookie there, and the birth.
    name: Option<(InodeNo, u64, EventNo)>,
    /// The change that appended it.
    appended: Option<Change>,
}

/// Rows that are ready to be appended.
pub(in crate::history::record) struct AnnalsRecording<'p> {
    past: &'p Past,
    /// When what they say ends.
    number: EventNo,
    /// In the order of shards and keys.
    rows: Vec<Row>,
    shards: Vec<RwLockWriteGuard<'p, Shard>>,
    pins: Pins,
}

impl<'p> AnnalsRecording<'p> {
    /// The rows for versions and names that end at `number`: a version and a name of one inode are one row.
    /// `None` if a version was made for the first edition.
    pub(crate) fn new(
        past: &'p Past,
        number: EventNo,
        versions: Vec<OldVersion>,
        mut names: Vec<&OldName<'_>>,
    ) -> Option<AnnalsRecording<'p>> {
        let mut rows: Vec<Row> = Vec::with_capacity(versions.len().max(names.len()));
        for OldVersion { no, was, .. } in versions {
            let Was::Inode(inode) = was else { return None };
            let is_of_version =
                |name: &&OldName<'_>| (name.entry.inode, name.entry.incarnation) == (no, inode.incarnation);
            let name = names.iter().position(is_of_version).map(|at| names.remove(at));
            rows.push(Row::new(number, Some((no, &*inode)), name));
        }
        rows.extend(names.into_iter().map(|name| Row::new(number, None, Some(name))));
        rows.sort_by_key(|row| row.shard);
        Some(AnnalsRecording { past, number, rows, shards: Vec::new(), pins: Pins::new() })
    }

    /// Locks what they go to, gives them their keys, and finds their insert positions.
    pub(crate) fn prepare(mut self, meta: &Meta) -> Result<PreparedRows<'p>> {
        let (past, number) = (self.past, self.number);
        let mut first = 0;
        while let Some(shard) = self.rows.get(first).map(|row| row.shard) {
            let mut guard = past.shards[shard].write();
            let greatest = past.greatest_key(meta, shard, &mut guard)?;
            if greatest.end > number {
                return Ok(PreparedRows::Late);
            }
            let mut sequence = match greatest.end == number {
                true => greatest.sequence.checked_add(1),
                false => Some(0),
            };
            let end = first + self.rows[first..].iter().take_while(|row| row.shard == shard).count();
            for row in &mut self.rows[first..end] {
                let Some(next) = sequence else { return Ok(PreparedRows::Full) };
                row.row.key = AnnalsKey { end: number, sequence: next };
                sequence = next.checked_add(1);
            }
            let (which, alone) = (HistoryTree::Annals(shard), end - first == 1);
            for Row { row, .. } in &mut self.rows[first..end] {
                let (key, bytes) = (row.key.encode(), row.value.len());
                row.slot =
                    past.cell_slot(meta, which, &mut guard.rows, (&key, bytes), alone, &mut self.pins)?;
            }
            self.shards.push(guard);
            first = end;
        }
        Ok(PreparedRows::Ready(self))
    }

    /// Called inside an Op, before the inode changes: the change that keeps its state, if that was prepared.
    /// The first of these calls appends all rows.
    pub(crate) fn state(&mut self, op: &mut Op<'_>, no: InodeNo, born: EventNo) -> Option<Change> {
        let at = self.rows.iter().position(|row| row.state == Some((no, born)))?;
        self.append(op);
        self.rows[at].appended
    }

    /// Called inside an Op, before the entry changes. The first of these calls appends all rows.
    pub(crate) fn name(&mut self, op: &mut Op<'_>, directory: InodeNo, cookie: u64, birth: EventNo) {
        if self.rows.iter().any(|row| row.name == Some((directory, cookie, birth))) {
            self.append(op);
        }
    }

    /// Appends all rows, unless that was done, and notes that they have no keys (A3).
    fn append(&mut self, op: &mut Op<'_>) {
        let (past, number) = (self.past, self.number);
        if self.rows.iter().all(|row| row.appended.is_some()) {
            return;
        }
        let (mut shards, mut before) = (self.shards.iter_mut(), None);
        let mut shard = None;
        for Row { shard: no, row, state, name, appended } in &mut self.rows {
            if before != Some(*no) {
                (shard, before) = (shards.next(), Some(*no));
            }
            let shard = shard.as_deref_mut().expect("locked when it was prepared");
            let which = HistoryTree::Annals(*no);
            let slot = row.slot.take().unwrap_or_else(|| Slot::unknown(past, which));
            #[cfg(feature = "mutations")]
            if crate::mutation::is(crate::mutation::Mutation::RowDropped) {
                *appended = Some(op.change(past.roots(), |_| ()).1);
                continue;
            }
            let cell = (&row.key.encode()[..], &row.value[..]);
            *appended = Some(slot.insert_near(past, op, Some(&mut shard.rows), cell, number));
            shard.greatest = Some(row.key);
            let unindexed = shard.unindexed.as_mut().expect("learnt when it was prepared");
            let fresh = FreshRow { key: row.key, state: *state, name: *name };
            let rows = past.backlog.add(*no, unindexed, fresh);
            if rows % INDEX_FROM == 0 {
                past.backlog.wake();
            }
        }
    }
}

impl Row {
    /// The row of what ends at `number`, without its key.
    fn new(
        number: EventNo,
        state: Option<(InodeNo, &yore_format::Inode)>,
        name: Option<&OldName<'_>>,
    ) -> Row {
        let of_name = name.map(|name| (name.entry.inode, name.entry.incarnation));
        let of_state = state.map(|(no, inode)| (no, inode.incarnation));
        let (inode, incarnation) = of_state.or(of_name).expect("a state or a name");
        let value = AnnalsRow {
            end: number,
            inode,
            incarnation,
            name: name.map(|OldName { directory, cookie, entry, .. }| RowName {
                directory: directory.no,
                birth: entry.birth,
                cookie: *cookie,
                kind: entry.kind,
                name: entry.name,
            }),
            name_is_reclaimed: false,
            version: state.map(|(_, inode)| Cow::Borrowed(inode)),
        };
        Row {
            shard: version_shard(inode),
            row: Cell { key: AnnalsKey::default(), value: value.encode().to_vec(), slot: None },
            state: state.map(|(no, inode)| (no, inode.born)),
            name: name.map(|name| (name.directory.no, name.cookie, name.entry.birth)),
            appended: None,
        }
    }
}

impl Past {
    /// The greatest key that a row of a shard has had (A2), whose lock the caller holds.
    fn greatest_key(&self, meta: &Meta, shard: usize, locked: &mut Shard) -> Result<AnnalsKey> {
        self.learn(meta, shard, locked)?;
        let greatest = match locked.greatest {
            Some(greatest) => greatest,
            None => {
                let watermark = HistoryRoots::watermark(&self.roots().read(), shard);
                Annals { past: self }.last_row(meta, shard)?.map_or(watermark, |last| last.max(watermark))
            }
        };
        locked.greatest = Some(greatest);
        let next = meta.number();
        if greatest.end > next {
            return Err(Corruption::new("annals", "last end", format!("at most {next}"), greatest.end).into());
        }
        Ok(greatest)
    }

    /// Keeps in memory what inserting a key touches, and returns where it goes if it is `alone`: otherwise
    /// the other ones that are inserted with it change that.
    fn cell_slot(
        &self,
        meta: &Meta,
        which: HistoryTree,
        hints: &mut LeafHints,
        (key, bytes): (&[u8], usize),
        alone: bool,
        pins: &mut Pins,
    ) -> Result<Option<Slot>> {
        let slot = self.slot_near(meta, which, hints, (key, bytes))?;
        if alone {
            return Ok(Some(slot));
        }
        slot.tree.prepare(meta, key, key, pins)?;
        Ok(None)
    }
}
