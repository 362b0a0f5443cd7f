//! Blocks that several files share: how many references each has.
//!
//! A *reference* is (chain, place, birth, block): the states of one incarnation name a block at one place of
//! the file, from its birth there until the last of these states is gone. Within a chain, births say which
//! states have a block, and nothing is counted. What several chains have is counted in tables of the block's
//! group ([`yore_format::BlockCount`]): an entry of 0 means no more than one reference.
//!
//! **S1** The counts are the truth, and extents have no mark. A block may be written over, or freed, only if
//! its entry is 0: [`Alloc::sole_part`] asks before, [`Alloc::let_go`] decides in the Op.
//!
//! **S2** *Raising cannot be missed.* A block is gained from a source that cannot let go of it meanwhile: the
//! caller holds the io of the inode in use, or keeps the version from being given up. So what the entry says
//! in the Op counts every reference.
//!
//! **S3** *Lowered lately.* The generation in which an entry goes to 0 is not complete yet: a crash brings
//! the other reference back. Until then the block counts as shared, so that nobody writes over it in place.
//! A block that is freed waits for its generation, too (R3). After a replay nothing is remembered: what its
//! records lowered stays lowered at every mount that follows.
//!
//! **S4** Who prepares an Op keeps the tables that the Op may change in memory and on the volume
//! ([`PinnedGroups`]). A table of zeros is given back only when nobody has any.

use super::counts::{parts, Gone, LetGo, Sole};
use super::groups::PinnedGroups;
use super::space::{Alloc, Run};
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::{
    BlockCount, BlockKind, BlockNo, CountTableMut, CountTableRef, GroupNo, MetaAddr, TableNo, WriteFeatures,
    TABLE_ENTRIES,
};
use yore_meta::{Change, EdgeKind, Frame, Meta, Op};

/// A block with so many references gets no further one: it is copied.
const REFERENCES_MOST: u16 = 60_000;
/// How many blocks [`Alloc::sole_part`] examines.
const EXAMINED: u32 = 256;

impl Alloc {
    /// Whether the first of these blocks has one reference in every state that a crash may bring back, and
    /// for how many blocks that holds: only then may its owner write over it. Without shared blocks on the
    /// volume this costs an atomic load.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading a table may fail.
    pub fn sole_part(&self, meta: &Meta, run: Run) -> Result<(bool, u32)> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok((true, run.len));
        }
        #[cfg(feature = "mutations")]
        if yore_meta::mutation::is(yore_meta::mutation::Mutation::SharedWrittenOver) {
            return Ok((true, run.len));
        }
        let len = run.len.min(EXAMINED);
        let (no, bit) = self.group_and_bit(Run { len, ..run })?;
        let lately = self.lately(meta, Run { len, ..run });
        let (mut first, mut at) = (None, 0);
        for (table, entry, n) in parts(no, bit, len) {
            let frame = self.read_table(meta, table)?;
            let page = frame.as_ref().map(Frame::read);
            for i in 0..n {
                let counted = page
                    .as_ref()
                    .is_some_and(|page| CountTableRef::new(page).get(entry + i as usize).is_some());
                let block = run.start.0 + u64::from(at);
                let is_sole = !counted && !lately.iter().any(|(from, to)| (*from..*to).contains(&block));
                if *first.get_or_insert(is_sole) != is_sole {
                    return Ok((!is_sole, at));
                }
                at += 1;
            }
        }
        Ok((first.unwrap_or(true), len))
    }

    /// The parts of a run that were lowered by a generation that is not complete (S3).
    fn lately(&self, meta: &Meta, run: Run) -> Vec<(u64, u64)> {
        #[cfg(feature = "mutations")]
        if yore_meta::mutation::is(yore_meta::mutation::Mutation::LoweredForgotten) {
            return Vec::new();
        }
        let complete = meta.completed_generation();
        if self.shared.last_lowered.load(Ordering::Acquire) <= complete {
            return Vec::new();
        }
        let lowered = self.shared.lowered.lock();
        let from = run.start.0.saturating_sub(TABLE_ENTRIES as u64);
        let near = lowered.range((from, 0)..(run.end(), 0));
        let open = near.filter(|((_, generation), _)| *generation > complete);
        let parts = open.map(|((start, _), len)| (*start, start + u64::from(*len)));
        parts.filter(|(_, end)| *end > run.start.0).collect()
    }

    /// A table may have become a table of zeros.
    pub(super) fn note_emptied(&self, table: TableNo) {
        self.shared.emptied.lock().insert(table);
    }

    pub(super) fn note_lowered(&self, run: Run, generation: u64) {
        let mut lowered = self.shared.lowered.lock();
        // What is older than the generation before is complete.
        if self.shared.last_lowered.fetch_max(generation, Ordering::AcqRel) < generation {
            lowered.retain(|(_, of), _| *of + 1 >= generation);
        }
        // A longer run of an earlier generation stays by itself: what is only in that one has one reference
        // when it is complete, and somebody may have accepted data for it.
        let len = lowered.entry((run.start.0, generation)).or_default();
        *len = (*len).max(run.len);
    }

    /// Keeps in memory what an inode in use changes when it lets go of blocks that a version has.
    ///
    /// # Errors
    /// As [`Alloc::prepare_free`], but for claims.
    pub(crate) fn prepare_to_past(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok(());
        }
        let (no, bit) = self.group_and_bit(run)?;
        self.pin_tables(meta, (no, bit, run.len), &mut pinned.tables)
    }

    /// Makes the tables of a run, as far as they do not exist, with an Op of its own. False: there is no room
    /// for them in the run's group. The volume has the feature durably ([`WriteFeatures::TABLES`]).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn make_tables(&self, meta: &Meta, run: Run) -> Result<bool> {
        let (no, bit) = self.group_and_bit(run)?;
        let missing = || -> Result<Vec<TableNo>> {
            let mut missing = Vec::new();
            for (table, _, _) in parts(no, bit, run.len) {
                if meta.table(BlockKind::CountTable, table)?.is_none() {
                    missing.push(table);
                }
            }
            Ok(missing)
        };
        if missing()?.is_empty() {
            return Ok(true);
        }
        let _making = self.shared.making.lock();
        let tables = missing()?;
        let Some(reserved) = meta.reserve_in_group(no, tables.len() as u32)? else { return Ok(false) };
        let mut op = meta.begin(reserved);
        for table in tables {
            op.create_table(BlockKind::CountTable, table);
        }
        Ok(true)
    }

    /// Keeps in memory what gaining a run changes. False: a table is missing, or a block has too many
    /// references; then it must be copied. The caller keeps the source from letting go until the Op has ended
    /// (S2).
    ///
    /// # Errors
    /// `Corruption` if some of it is free according to the bitmap; damage and device errors.
    pub fn prepare_gain(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<bool> {
        let (no, bit) = self.group_and_bit(run)?;
        self.check_used(meta, run, pinned)?;
        self.pin_tables(meta, (no, bit, run.len), &mut pinned.tables)?;
        for (table, entry, n) in parts(no, bit, run.len) {
            let Some(frame) = pinned.tables.tables.get(&table) else { return Ok(false) };
            let page = frame.read();
            let mut counts = (entry..entry + n as usize).filter_map(|i| CountTableRef::new(&page).get(i));
            if counts.any(|count| count.references >= REFERENCES_MOST) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Inside an Op, after [`Alloc::prepare_gain`]: an inode in use gains blocks that another chain has, or
    /// another place of the same. Returns by how many blocks what only the past holds has grown, which is 0
    /// or less, and the last change, behind all others.
    ///
    /// A block with one reference is in use already, unless only versions have it. Then `left_by` is where
    /// their inode lies, which may have let go of it lately. Nobody counts that where there is one reference,
    /// but what is counted from here on relies on it.
    pub fn gain(&self, op: &mut Op<'_>, run: Run, left_by: Option<MetaAddr>) -> (i64, Option<Change>) {
        let (no, bit) = self.group_and_bit(run).expect("prepared blocks are data blocks");
        let (mut retained, mut last) = (0, None);
        for (table, entry, n) in parts(no, bit, run.len) {
            let addr = op.table(BlockKind::CountTable, table).expect("a prepared table stays");
            let frame = op.cached(addr).expect("a prepared table stays in memory");
            #[cfg(feature = "mutations")]
            if yore_meta::mutation::is(yore_meta::mutation::Mutation::CountNotRaised) {
                continue;
            }
            let ((), change) = op.change(&frame, |page| {
                page.apply(|block| {
                    CountTableMut::new(block).update(entry..entry + n as usize, |_, count| {
                        let was =
                            count.unwrap_or(BlockCount { references: 1, in_use: left_by.is_none().into() });
                        retained -= i64::from(was.in_use == 0);
                        Some(BlockCount { references: was.references + 1, in_use: was.in_use + 1 })
                    })
                })
            });
            match (last, left_by) {
                (Some(earlier), _) => op.edge(EdgeKind::Taken, earlier, change),
                (None, Some(block)) => op.all_before(EdgeKind::Returned, block, change),
                (None, None) => {}
            }
            last = Some(change);
        }
        (retained, last)
    }

    /// Inside an Op, after [`Alloc::prepare_free`] for exactly these runs: some state lets go of blocks. What
    /// nobody has any more is freed, and available once the Op's generation is complete. The bitmap of a
    /// group is changed once, whatever the order of the runs. All that comes behind the change `last`, by
    /// which the state has them no longer. The claims on the blocks end (C1).
    pub fn let_go(
        &self,
        op: &mut Op<'_>,
        runs: Vec<Run>,
        how: LetGo,
        last: Change,
        mut groups: PinnedGroups,
    ) -> Gone {
        debug_assert_ne!(how, LetGo::ToPast, "nobody claims these");
        let gone = self.let_go_runs(op, runs, how, last);
        groups.forget_claims();
        gone
    }

    /// Inside an Op, after `prepare_to_past`: an inode in use lets go of blocks that a version has, behind
    /// the change `last`.
    pub(crate) fn leave_to_past(&self, op: &mut Op<'_>, runs: Vec<Run>, last: Change) -> Gone {
        self.let_go_runs(op, runs, LetGo::ToPast, last)
    }

    fn let_go_runs(&self, op: &mut Op<'_>, mut runs: Vec<Run>, how: LetGo, last: Change) -> Gone {
        runs.sort_unstable_by_key(|run| run.start.0);
        let (mut gone, mut sole) = (Gone::behind(last), Sole::default());
        for run in runs {
            self.let_go_run(op, run, how, &mut sole, &mut gone);
        }
        self.end_sole(op, &mut sole, &mut gone);
        gone
    }

    fn let_go_run(&self, op: &mut Op<'_>, run: Run, how: LetGo, sole: &mut Sole, gone: &mut Gone) {
        let Ok((no, bit)) = self.group_and_bit(run) else {
            // A damaged extent of a version, which the file leaves to it. All others were checked.
            assert_eq!(how, LetGo::ToPast, "prepared blocks are data blocks");
            gone.retained += i64::from(run.len);
            gone.references += i64::from(run.len);
            return;
        };
        gone.references += match how {
            LetGo::InUse => 0,
            LetGo::ToPast => i64::from(run.len),
            LetGo::Past => -i64::from(run.len),
        };
        if sole.group != no {
            self.end_sole(op, sole, gone);
            sole.group = no;
        }
        let mut at = bit;
        if !op.has_features(WriteFeatures::TABLES) {
            sole.let_go((bit, run.len), how, gone);
            return;
        }
        for (table, entry, n) in parts(no, bit, run.len) {
            // A table that is not in memory was made after this Op was prepared, and says nothing of its
            // blocks: who gains them waits for whoever lets go (S2).
            let addr = op.table(BlockKind::CountTable, table);
            let Some(frame) = addr.and_then(|addr| op.cached(addr)) else {
                sole.let_go((at, n), how, gone);
                at += n;
                continue;
            };
            let mut i = 0;
            while i < n {
                let first = entry + i as usize;
                let (is_counted, len) = {
                    let page = frame.read();
                    let is_counted = |k: u32| CountTableRef::new(&page).get(entry + k as usize).is_some();
                    let end = (i..n).find(|k| is_counted(*k) != is_counted(i)).unwrap_or(n);
                    (is_counted(i), end - i)
                };
                match is_counted {
                    true => {
                        for run in self.lower(op, &frame, (no, at + i), (first, len), how, gone) {
                            sole.let_go_counted(run, how, gone, (op, &frame));
                        }
                    }
                    false => sole.let_go_counted((at + i, len), how, gone, (op, &frame)),
                }
                i += len;
            }
            self.shared.emptied.lock().insert(table);
            at += n;
        }
    }

    /// Frees what was noted of a group.
    fn end_sole(&self, op: &mut Op<'_>, sole: &mut Sole, gone: &mut Gone) {
        let runs = std::mem::take(&mut sole.runs);
        let tables = std::mem::take(&mut sole.tables);
        if runs.is_empty() {
            return;
        }
        let freed: u64 = runs.iter().map(|(_, len)| u64::from(*len)).sum();
        let change = self.free(op, sole.group, &runs);
        let group = self.loaded(sole.group);
        runs.iter().for_each(|run| group.claims.lock().end(*run));
        op.edge(EdgeKind::Returned, gone.behind, change);
        // The last owner is gone, and so must be those before.
        tables.into_iter().for_each(|table| op.all_before(EdgeKind::Returned, table, change));
        gone.freed += freed;
    }

    /// Blocks with several references: each has one fewer, or one fewer in use. Returns those of which the
    /// other references have ended since somebody looked, so that they have one.
    fn lower(
        &self,
        op: &mut Op<'_>,
        frame: &Frame,
        (no, bit): (GroupNo, u32),
        (first, len): (usize, u32),
        how: LetGo,
        gone: &mut Gone,
    ) -> Vec<(u32, u32)> {
        let mut retained = 0;
        let (mut lowered, mut ended, mut sole) = (Vec::new(), Vec::new(), Vec::new());
        // A lower count and the end of the claim are one step for whoever claims the block (C1).
        let group = (how != LetGo::ToPast).then(|| self.loaded(no));
        let mut claims = group.as_ref().map(|group| group.claims.lock());
        let ((), change) = op.change(frame, |page| {
            page.apply(|block| {
                CountTableMut::new(block).update(first..first + len as usize, |i, count| {
                    let at = bit + (i - first) as u32;
                    let Some(was) = count else {
                        append(&mut sole, at);
                        return None;
                    };
                    append(&mut ended, at);
                    let ends = u16::from(how != LetGo::ToPast);
                    let was_in_use = u16::from(how != LetGo::Past);
                    #[cfg(feature = "mutations")]
                    let ends = ends * (1 + u16::from(is_twice(was.references)));
                    let is = BlockCount {
                        references: was.references - ends,
                        in_use: was.in_use.saturating_sub(was_in_use),
                    };
                    retained += i64::from(was.in_use > 0 && is.in_use == 0);
                    if is.references <= 1 {
                        append(&mut lowered, at);
                    }
                    Some(is)
                })
            })
        });
        if let Some(claims) = &mut claims {
            ended.into_iter().for_each(|run| claims.end(run));
        }
        drop(claims);
        for (bit, len) in lowered {
            let run = Run { start: self.geometry().block_of(no, bit), len };
            self.note_lowered(run, op.generation().0);
        }
        op.edge(EdgeKind::Returned, gone.behind, change);
        gone.retained += retained;
        gone.shared = true;
        sole
    }

    /// How many references each of these blocks has, if it is in use.
    ///
    /// # Errors
    /// As [`Alloc::sole_part`].
    pub fn references(&self, meta: &Meta, run: Run) -> Result<Vec<u32>> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok(vec![1; run.len as usize]);
        }
        let (no, bit) = self.group_and_bit(run)?;
        let mut references = Vec::with_capacity(run.len as usize);
        for (table, entry, n) in parts(no, bit, run.len) {
            let frame = self.read_table(meta, table)?;
            let page = frame.as_ref().map(Frame::read);
            let count = |i: usize| page.as_ref().and_then(|page| CountTableRef::new(page).get(i));
            let each = entry..entry + n as usize;
            references.extend(each.map(|i| count(i).map_or(1, |count| u32::from(count.references))));
        }
        Ok(references)
    }

    /// How many of these blocks have one reference.
    ///
    /// # Errors
    /// As [`Alloc::sole_part`].
    pub fn count_sole(&self, meta: &Meta, run: Run) -> Result<u64> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok(u64::from(run.len));
        }
        let (no, bit) = self.group_and_bit(run)?;
        let mut sole = u64::from(run.len);
        for (table, entry, n) in parts(no, bit, run.len) {
            if let Some(frame) = self.read_table(meta, table)? {
                let page = frame.read();
                let entries = entry..entry + n as usize;
                sole -= entries.filter(|i| CountTableRef::new(&page).get(*i).is_some()).count() as u64;
            }
        }
        Ok(sole)
    }

    /// Gives back tables that have become tables of zeros, unless somebody has prepared a change of some.
    /// With `beyond`, also looks at all tables of the groups from there on.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn give_back_tables(&self, meta: &Meta, beyond: Option<BlockNo>) -> Result<()> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok(());
        }
        let mut tables = std::mem::take(&mut *self.shared.emptied.lock());
        if let Some(from) = beyond {
            for group in (self.geometry().group_of(from).0..self.geometry().groups()).map(GroupNo) {
                if meta.group_summary(group)?.initialised {
                    tables.extend(meta.tables(BlockKind::CountTable, group)?);
                }
            }
        }
        while let Some(table) = tables.pop_first() {
            let Some(frame) = self.read_table(meta, table)? else { continue };
            if !CountTableRef::new(&frame.read()).is_empty() {
                continue;
            }
            let making = self.shared.making.lock();
            let joining = self.shared.users.joining.lock();
            if self.shared.users.count.load(Ordering::Acquire) > 0 {
                drop((joining, making));
                tables.insert(table);
                self.shared.emptied.lock().append(&mut tables);
                return Ok(());
            }
            // Nobody changes it meanwhile, and another thread may have given it back before.
            let is_there = meta.table(BlockKind::CountTable, table)? == Some(frame.addr());
            if is_there && CountTableRef::new(&frame.read()).is_empty() {
                let mut op = meta.begin(yore_meta::Reserved::none());
                op.remove_table(BlockKind::CountTable, table, frame);
            }
        }
        Ok(())
    }
}

/// Adds a block to runs of a group.
fn append(runs: &mut Vec<(u32, u32)>, at: u32) {
    match runs.last_mut() {
        Some((from, n)) if *from + *n == at => *n += 1,
        _ => runs.push((at, 1)),
    }
}

/// With a mutation, an entry with more than two references is lowered twice.
#[cfg(feature = "mutations")]
fn is_twice(references: u16) -> bool {
    references > 2 && yore_meta::mutation::is(yore_meta::mutation::Mutation::CountLoweredTwice)
}
