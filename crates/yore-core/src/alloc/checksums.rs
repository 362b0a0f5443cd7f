//! Checksums of file data, on volumes with [`yore_format::WriteFeatures::CHECKSUMS`].
//!
//! Each group has tables with an entry for each block ([`yore_format::ChecksumTableRef`]). An entry counts
//! where a file, as it is or as it was, has the block in an extent that is written; elsewhere it means
//! nothing, so whoever frees a block leaves its entry as it is.
//!
//! **K1 Together.** The entry is set in the Op that makes the extent name the block as written: the data was
//! written before (R4), the entry and the extent are in one generation and in one record of the log, and so
//! a crash brings back both or neither.
//!
//! **K2 Never over.** Nobody writes to a block that any state which a crash may bring back has as written. So
//! [`Alloc::in_place_part`] says that no block may be written over, and what becomes unwritten loses its
//! blocks. A block that is freed is available when the generation that freed it is complete (R3). With K1,
//! the bytes of a block and its entry agree in each of these states.
//!
//! **K3 Moved as it is.** Who copies blocks to others copies their entries, too. If it made new ones of what
//! it reads, damage would get a checksum that is right.
//!
//! **K4 None is known** where there is no table. Tables of a group are made when it gets its first data, all
//! at once, in an Op of its own that changes no meaning. If the zones of the group have no room for them, the
//! group gets another zone; if it has no room for that either, data that comes there has no checksum, rather
//! than that write-back fails. And a volume that got the
//! feature in its life has blocks from before that.
//!
//! A reader takes the entries while it holds the lock under which it looks up the blocks. As long as it holds
//! that, the blocks are the file's. A reader that lets go before the data has come drops what does not match.

use super::counts::parts;
use super::groups::PinnedGroups;
use super::space::{Alloc, Run};
use crate::Result;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use yore_format::layout::{GROUP_BLOCKS, ZONE_BLOCKS};
use yore_format::{
    BitmapRef, BlockKind, BlockNo, ChecksumTableMut, ChecksumTableRef, DataChecksum, GroupNo, TableNo,
    WriteFeatures, BITS_PER_GROUP, TABLES_PER_GROUP, TABLE_ENTRIES,
};
#[cfg(feature = "mutations")]
use yore_meta::mutation::{is, Mutation};
use yore_meta::{Change, EdgeKind, Frame, Meta, Op};

/// The checksums of blocks that follow one another, as far as they are known. Empty where no table has any.
#[derive(Clone, Debug, Default)]
pub struct Checksums(Vec<Option<DataChecksum>>);

impl Checksums {
    /// The checksum of the i-th block, if it is known.
    #[inline]
    pub fn get(&self, i: usize) -> Option<DataChecksum> {
        self.0.get(i).copied().flatten()
    }

    /// The first block whose bytes are not what its checksum says.
    pub fn first_wrong<'a>(&self, blocks: impl IntoIterator<Item = &'a [u8]>) -> Option<Mismatch> {
        self.all_wrong(blocks).next()
    }

    /// All such blocks.
    pub fn all_wrong<'a, B: IntoIterator<Item = &'a [u8]>>(
        &self,
        blocks: B,
    ) -> impl Iterator<Item = Mismatch> + use<'_, 'a, B> {
        let known = self.0.iter().zip(blocks).enumerate();
        known.filter_map(|(at, (expected, bytes))| {
            let (expected, found) = ((*expected)?, DataChecksum::of(bytes));
            (expected != found).then_some(Mismatch { at, expected, found })
        })
    }
}

/// A block whose bytes are not what its checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Which one of those that were read.
    pub at: usize,
    /// The checksum in the table.
    pub expected: DataChecksum,
    /// The one of the bytes.
    pub found: DataChecksum,
}

/// Whether data of the volume has checksums.
#[inline]
fn are_kept(meta: &Meta) -> bool {
    meta.has_features(WriteFeatures::CHECKSUMS)
}

impl Alloc {
    /// Whether data that is written gets a checksum, and so is never written over in place.
    #[inline]
    pub fn keeps_checksums(&self, meta: &Meta) -> bool {
        are_kept(meta)
    }

    /// Whether the first of these blocks may be written over by its owner, and for how many blocks that
    /// holds: [`Alloc::sole_part`], and none where data has checksums (K2).
    ///
    /// # Errors
    /// As [`Alloc::sole_part`].
    pub fn in_place_part(&self, meta: &Meta, run: Run) -> Result<(bool, u32)> {
        #[cfg(feature = "mutations")]
        if is(Mutation::ChecksummedInPlace) {
            return self.sole_part(meta, run);
        }
        match are_kept(meta) {
            true => Ok((false, run.len)),
            false => self.sole_part(meta, run),
        }
    }

    /// Makes the checksum tables of the groups of blocks that are about to get data, as far as the zones of
    /// these groups have room (K4). Before all locks of files' states, and outside of Ops.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn make_checksum_tables(&self, meta: &Meta, run: Run) -> Result<()> {
        if !are_kept(meta) {
            return Ok(());
        }
        let (no, bit) = self.group_and_bit(run)?;
        if !self.lacks_checksum_tables(meta, (no, bit, run.len))? {
            return Ok(());
        }
        // Where the zones of the group are full, it gets another one, as long as it has room for that.
        let made = self.make_all_checksum_tables(meta, (no, bit, run.len))?
            || (!self.is_short_of(2 * ZONE_BLOCKS)
                && self.make_zone_in(meta, no)?
                && self.make_all_checksum_tables(meta, (no, bit, run.len))?);
        let mut roomless = self.shared.roomless.lock();
        match made {
            true => {
                roomless.remove(&no);
            }
            false if roomless.insert(no) => {
                tracing::warn!(
                    group = no.0,
                    "no room for checksums of the data of this group: some has none; `yore checksums --enable` \
                     enters them when there is room"
                );
            }
            false => {}
        }
        Ok(())
    }

    /// Makes the tables of all of the group, for the next fsync waits for a generation, or those of these
    /// blocks. False: the zones of the group have no room for them.
    fn make_all_checksum_tables(&self, meta: &Meta, (no, bit, len): (GroupNo, u32, u32)) -> Result<bool> {
        let _making = self.shared.making.lock();
        let all = (0..self.geometry().data_blocks(no).div_ceil(TABLE_ENTRIES as u64)).map(|t| t as u8);
        let here = parts(no, bit, len).map(|(table, _, _)| table.number());
        for numbers in [all.collect::<Vec<u8>>(), here.collect()] {
            let mut missing = Vec::new();
            for table in numbers.into_iter().map(|number| TableNo::new(no, number)) {
                if meta.table(BlockKind::ChecksumTable, table)?.is_none() {
                    missing.push(table);
                }
            }
            if missing.is_empty() {
                return Ok(true);
            }
            if let Some(reserved) = meta.reserve_in_group(no, missing.len() as u32)? {
                let mut op = meta.begin(reserved);
                for table in missing {
                    op.create_table(BlockKind::ChecksumTable, table);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lacks_checksum_tables(&self, meta: &Meta, (no, bit, len): (GroupNo, u32, u32)) -> Result<bool> {
        for (table, _, _) in parts(no, bit, len) {
            if meta.table(BlockKind::ChecksumTable, table)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps in memory what [`Alloc::enter_checksums`] changes.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading a table may fail.
    pub(crate) fn prepare_checksums(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        if !are_kept(meta) {
            return Ok(());
        }
        let (no, bit) = self.group_and_bit(run)?;
        self.join_users(&mut pinned.tables);
        for (table, _, _) in parts(no, bit, run.len) {
            if let Entry::Vacant(place) = pinned.tables.checksums.entry(table) {
                if let Some(frame) = self.read_table_of(meta, BlockKind::ChecksumTable, table)? {
                    place.insert(frame);
                }
            }
        }
        Ok(())
    }

    /// Inside an Op, after [`Alloc::prepare_checksums`]: sets the entries of blocks. Returns the last change.
    pub(crate) fn enter_checksums(
        &self,
        op: &mut Op<'_>,
        run: Run,
        checksums: &[Option<DataChecksum>],
    ) -> Option<Change> {
        #[cfg(feature = "mutations")]
        match () {
            () if is(Mutation::ChecksumNotEntered) => return None,
            // Instead of these, those that the Op before should have entered.
            () if is(Mutation::ChecksumLate) => {
                let now = (run.start, checksums.to_vec());
                let (start, checksums) = self.shared.late_checksums.lock().replace(now)?;
                return self.set_entries(op, Run { start, len: checksums.len() as u32 }, &checksums);
            }
            () => {}
        }
        self.set_entries(op, run, checksums)
    }

    fn set_entries(&self, op: &mut Op<'_>, run: Run, checksums: &[Option<DataChecksum>]) -> Option<Change> {
        let (no, bit) = self.group_and_bit(run).expect("prepared blocks are data blocks");
        let (mut last, mut at) = (None, 0);
        for (table, entry, n) in parts(no, bit, run.len) {
            let these = &checksums[at..at + n as usize];
            at += n as usize;
            // A table that is not in memory was made after this Op was prepared: none is known there.
            let addr = op.table(BlockKind::ChecksumTable, table);
            let Some(frame) = addr.and_then(|addr| op.cached(addr)) else { continue };
            let ((), change) = op.change(&frame, |page| {
                page.apply(|block| ChecksumTableMut::new(block).set(entry, these.iter().copied()));
            });
            if let Some(earlier) = last {
                op.edge(EdgeKind::Taken, earlier, change);
            }
            last = Some(change);
        }
        last
    }

    /// Keeps in memory what [`Alloc::enter_known`] changes.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading a table may fail.
    pub fn prepare_known(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        self.prepare_checksums(meta, run, pinned)
    }

    /// Inside an Op, after [`Alloc::prepare_known`]: enters checksums of blocks that some file has as
    /// written, and that nobody writes over.
    pub fn enter_known(&self, op: &mut Op<'_>, run: Run, checksums: &[Option<DataChecksum>]) {
        self.enter_checksums(op, run, checksums);
    }

    /// The checksums of blocks that a file has in an extent that is written.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading a table may fail.
    pub fn checksums(&self, meta: &Meta, run: Run) -> Result<Checksums> {
        if !are_kept(meta) {
            return Ok(Checksums::default());
        }
        let (no, bit) = self.group_and_bit(run)?;
        let mut found = Vec::with_capacity(run.len as usize);
        for (table, entry, n) in parts(no, bit, run.len) {
            let frame = self.read_table_of(meta, BlockKind::ChecksumTable, table)?;
            let page = frame.as_ref().map(Frame::read);
            let get = |i: usize| page.as_ref().and_then(|page| ChecksumTableRef::new(page).get(i));
            found.extend((entry..entry + n as usize).map(get));
        }
        Ok(Checksums(found))
    }

    /// For a reader that goes through the blocks of groups one after the other: if one of the tables for
    /// these blocks is not in memory, reads it and those that follow in its group together. They lie near
    /// each other, as they were made and for the most part written together.
    pub fn read_checksums_ahead(&self, meta: &Meta, run: Run) {
        if !are_kept(meta) {
            return;
        }
        // What is wrong here is told to whoever wants the checksums of these blocks.
        let Ok((no, bit)) = self.group_and_bit(run) else { return };
        let place = |number: u8| {
            let table = TableNo::new(no, number);
            meta.table(BlockKind::ChecksumTable, table).ok().flatten()
        };
        let lacks = |number: &u8| place(*number).is_some_and(|addr| !meta.is_in_memory(addr));
        let first = parts(no, bit, run.len).map(|(table, _, _)| table.number()).find(lacks);
        if let Some(first) = first {
            meta.read_together((first..TABLES_PER_GROUP as u8).filter_map(place));
        }
    }

    /// Gives back the checksum tables of those groups that a shorter volume does not have, and that hold
    /// nothing else any more. False: somebody has prepared a change of some.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn give_back_checksum_tables(&self, meta: &Meta, from: BlockNo) -> Result<bool> {
        if !are_kept(meta) {
            return Ok(true);
        }
        // The group in which the volume ends stays, unless it ends before the first block of it.
        let first = from.0.div_ceil(GROUP_BLOCKS) as u32;
        for group in (first..self.geometry().groups()).map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                continue;
            }
            // What moves away takes its checksums with it.
            let (_, frame) = self.load(meta, group)?;
            let used = BitmapRef::new(&frame.read()).used();
            let usable = self.geometry().data_blocks(group) as u32;
            let in_use = u64::from(used - (BITS_PER_GROUP - usable));
            if in_use > meta.table_blocks_from(group, self.geometry().data_start(group))? {
                continue;
            }
            for table in meta.tables(BlockKind::ChecksumTable, group)? {
                let Some(frame) = self.read_table_of(meta, BlockKind::ChecksumTable, table)? else {
                    continue;
                };
                let _making = self.shared.making.lock();
                let _joining = self.shared.users.joining.lock();
                if self.shared.users.count.load(Ordering::Acquire) > 0 {
                    return Ok(false);
                }
                if meta.table(BlockKind::ChecksumTable, table)? == Some(frame.addr()) {
                    let mut op = meta.begin(yore_meta::Reserved::none());
                    op.remove_table(BlockKind::ChecksumTable, table, frame);
                }
            }
        }
        Ok(true)
    }
}
