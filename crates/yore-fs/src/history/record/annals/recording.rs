//! Appending rows. The indexer gives them their keys later.

use super::indexer::INDEX_FROM;
use super::trees::Annals;
use crate::history::record::backlog::FreshRow;
use crate::history::record::old::{OldName, OldVersion};
use crate::history::record::past::{Past, CELL_BLOCKS};
use crate::history::record::shard::Shard;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;
use std::borrow::Cow;
use yore_core::btree::{InsertPosition, Pins};
use yore_format::{
    version_shard, AnnalsKey, AnnalsRow, Corruption, EventNo, HistoryRoots, HistoryTree, RowName, RowValue,
};
use yore_meta::{Change, EdgeKind, Meta, Op};

/// What comes of preparing rows.
#[expect(
    clippy::large_enum_variant,
    reason = "made once a call and taken apart at once: a box would be an allocation"
)]
pub(in crate::history::record) enum PreparedRows<'p> {
    Ready(AnnalsRecording<'p>),
    /// The number is earlier than the end of a row that is there (A2).
    Late,
    /// No more rows can have this end.
    Full,
}

/// What ends of one inode: a version, a name, or both.
struct Ending<'a> {
    shard: usize,
    version: Option<OldVersion<'a>>,
    name: Option<&'a OldName<'a>>,
}

/// A row that is ready to be appended.
struct Row {
    shard: usize,
    key: AnnalsKey,
    /// Which of the values of the shard is its.
    value: usize,
    /// The inode whose state it has, with the birth of that.
    state: Option<(InodeNo, EventNo)>,
    /// The directory of its name, the cookie there, and the birth.
    name: Option<(InodeNo, u64, EventNo)>,
    /// Where it goes, if the last leaf has no room.
    position: Option<Box<InsertPosition>>,
    /// The change that appended it.
    appended: Option<Change>,
}

/// Rows of one call: hardly ever more than two.
type Few<T> = SmallVec<[T; 2]>;

/// Rows that are ready to be appended.
pub(in crate::history::record) struct AnnalsRecording<'p> {
    past: &'p Past,
    /// When what they say ends.
    number: EventNo,
    /// In the order of shards and keys.
    rows: Few<Row>,
    shards: Few<RwLockWriteGuard<'p, Shard>>,
    pins: Pins,
}

impl<'p> AnnalsRecording<'p> {
    /// Makes ready to append the rows for versions and names that end at `number`: a version and a name of
    /// one inode are one row. Locks the shards, gives the rows their keys, and finds out where they go.
    pub(crate) fn prepare(
        past: &'p Past,
        meta: &Meta,
        number: EventNo,
        versions: &[OldVersion<'_>],
        names: &[&OldName<'_>],
    ) -> Result<PreparedRows<'p>> {
        let endings = endings(versions, names);
        let mut all =
            AnnalsRecording { past, number, rows: Few::new(), shards: Few::new(), pins: Pins::new() };
        for of_shard in endings.chunk_by(|a, b| a.shard == b.shard) {
            let shard = of_shard[0].shard;
            let mut guard = past.shards[shard].write();
            let greatest = past.greatest_key(meta, shard, &mut guard)?;
            if greatest.end > number {
                return Ok(PreparedRows::Late);
            }
            let mut sequence = match greatest.end == number {
                true => greatest.sequence.checked_add(1),
                false => Some(0),
            };
            for (value, ending) in of_shard.iter().enumerate() {
                let Some(next) = sequence else { return Ok(PreparedRows::Full) };
                sequence = next.checked_add(1);
                let key = AnnalsKey { end: number, sequence: next };
                all.rows.push(ending.row(key, value, &mut guard.values));
            }
            let rows = all.rows.len() - of_shard.len()..;
            past.find_places(meta, shard, &guard, &mut all.rows[rows], &mut all.pins)?;
            all.shards.push(guard);
        }
        Ok(PreparedRows::Ready(all))
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
        let mut guards = self.shards.iter_mut();
        for rows in self.rows.chunk_by_mut(|a, b| a.shard == b.shard) {
            let guard: &mut Shard = guards.next().expect("locked when it was prepared");
            for row in rows {
                #[cfg(feature = "mutations")]
                if crate::mutation::is(crate::mutation::Mutation::RowDropped) {
                    row.appended = Some(op.change(past.roots(), |_| ()).1);
                    continue;
                }
                let (key, value) = (row.key.encode(), &guard.values[row.value]);
                row.appended = Some(match row.position.take() {
                    None => guard.last.append(op, &key, value),
                    Some(position) => {
                        let which = HistoryTree::Annals(row.shard);
                        let mut tree = past.tree(which);
                        let delta = tree.append(op, &mut guard.last, *position, (&key, value), number);
                        past.store_cell(op, which, &tree, delta)
                    }
                });
                if let (Some((no, _)), Some(appended)) = (row.state, row.appended) {
                    // What the row says of the inode waits with it: blocks that are marked used, a tree's
                    // root.
                    op.all_before(EdgeKind::Recorded, no.addr(), appended);
                }
                row.appended.iter().for_each(|appended| op.recorded(*appended));
                guard.greatest = Some(row.key);
                let unindexed = guard.unindexed.as_mut().expect("learnt when it was prepared");
                let fresh = FreshRow { key: row.key, state: row.state, name: row.name };
                let rows = past.backlog.add(row.shard, unindexed, fresh);
                if rows % INDEX_FROM == 0 {
                    past.backlog.wake();
                }
            }
        }
    }
}

/// Puts versions and names of one inode together, in the order of shards.
fn endings<'a>(versions: &[OldVersion<'a>], names: &[&'a OldName<'a>]) -> Few<Ending<'a>> {
    let mut left: Few<&OldName<'_>> = names.iter().copied().collect();
    let mut endings: Few<Ending<'_>> = Few::new();
    for version in versions {
        let of_version = (version.no, version.inode.incarnation);
        let is_of_version = |name: &&OldName<'_>| (name.entry.inode, name.entry.incarnation) == of_version;
        let name = left.iter().position(is_of_version).map(|at| left.remove(at));
        endings.push(Ending { shard: version_shard(version.no), version: Some(*version), name });
    }
    let alone = |name: &'a OldName<'a>| Ending {
        shard: version_shard(name.entry.inode),
        version: None,
        name: Some(name),
    };
    endings.extend(left.into_iter().map(alone));
    endings.sort_by_key(|ending| ending.shard);
    endings
}

impl Ending<'_> {
    /// The row with this key. Its value goes to this place among the values.
    fn row(&self, key: AnnalsKey, value: usize, values: &mut Vec<RowValue>) -> Row {
        let Ending { shard, version, name } = self;
        let of_name = name.map(|name| (name.entry.inode, name.entry.incarnation));
        let of_version = version.map(|version| (version.no, version.inode.incarnation));
        let (inode, incarnation) = of_version.or(of_name).expect("a version or a name");
        let row = AnnalsRow {
            end: key.end,
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
            version: version.map(|version| Cow::Borrowed(version.inode)),
        };
        if values.len() == value {
            values.push(RowValue::default());
        }
        row.encode_to(&mut values[value]);
        Row {
            shard: *shard,
            key,
            value,
            state: version.map(|version| (version.no, version.inode.born)),
            name: name.map(|name| (name.directory.no, name.cookie, name.entry.birth)),
            position: None,
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

    /// Keeps in memory what appending rows to a shard touches: the last leaf, if they have room there.
    /// Otherwise a single row gets its place, and of several each is looked for when it is appended.
    fn find_places(
        &self,
        meta: &Meta,
        shard: usize,
        locked: &Shard,
        rows: &mut [Row],
        pins: &mut Pins,
    ) -> Result<()> {
        let bytes = rows.iter().map(|row| locked.values[row.value].len());
        if locked.last.has_room(AnnalsKey::BYTES, bytes) {
            return Ok(());
        }
        let tree = self.tree_with_room(HistoryTree::Annals(shard), CELL_BLOCKS)?;
        let is_alone = rows.len() == 1;
        for row in rows {
            let key = row.key.encode();
            let position = match is_alone {
                true => tree.append_position(meta, &key)?,
                false => {
                    tree.prepare(meta, &key, &key, pins)?;
                    InsertPosition::unknown()
                }
            };
            row.position = Some(Box::new(position));
        }
        Ok(())
    }
}
