//! Groups in memory, and how their bitmaps are made ready for Ops.
//!
//! **A group in memory** is an [`Availability`]: it is loaded from its bitmap when it is first needed, and
//! dropped again when many groups are loaded. A1: bits in a bitmap change only while its group is loaded and
//! `outstanding` (taken and pending blocks) is not zero, and a group with outstanding blocks is never
//! dropped; so what is loaded from the bitmap is the truth. Groups that were never used have no bitmap;
//! whoever first needs one makes the group's first zone, which holds it.
//!
//! **Damage.** A bitmap from the medium may contradict its group's summary, or the extents that name its
//! blocks. A change of bits in an Op asserts that they were the opposite, and an Op cannot fail. So a group
//! is loaded only if bitmap and summary count the same, and before an Op [`Alloc::prepare_commit`] and
//! [`Alloc::prepare_free`] check every bit that it will change. If two extents name the same block, both
//! would pass that check as long as neither has freed it. Therefore a run that is about to be freed is
//! *claimed* until the [`PinnedGroups`] that prepared it goes, and a block has at most as many claims as it
//! has references (`shared.rs`).
//!
//! **C1** *Claims end in the Op that they are for*: when the bits have changed, and in one step with a count
//! that becomes lower. A claim that ended later could meet the next owner of the block, who may free it, too,
//! as soon as the generation is complete; or the last one who shares it. Both would take it for damage.

use super::claims::Claims;
use super::counts::{owned_twice, parts, PinnedTables};
use super::runs::Availability;
use super::space::{Alloc, Group, Run, REGION, SHARDS};
use crate::Result;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_format::layout::Geometry;
use yore_format::{
    BitmapMut, BitmapRef, BlockKind, BlockNo, Corruption, Expect, GroupNo, Incarnation, MetaAddr, TableNo,
    WriteFeatures, ZoneNo, BITS_PER_GROUP,
};
use yore_meta::{Change, Frame, Meta, MetaError, Op, Reserved};

/// When a shard has more loaded groups than this, those without outstanding blocks are dropped (4 KiB each,
/// 16 MiB in all).
const LOADED_PER_SHARD: usize = 256;

/// Groups and their bitmaps kept in memory for an Op, and the claims on what it frees
/// (`Alloc::prepare_commit`, [`Alloc::prepare_free`]). If it has claims, it goes at the end of the Op (C1).
#[derive(Default)]
pub struct PinnedGroups {
    pub(super) groups: BTreeMap<GroupNo, PinnedGroup>,
    pub(super) tables: PinnedTables,
}

impl PinnedGroups {
    /// All claims have ended.
    pub(super) fn forget_claims(&mut self) {
        self.groups.values_mut().for_each(|group| group.claims.clear());
    }
}

/// A group that is kept in memory.
pub(super) struct PinnedGroup {
    pub(super) group: Arc<Group>,
    /// Its bitmap.
    pub(super) frame: Frame,
    /// What is claimed of it: places in the group and lengths.
    claims: Vec<(u32, u32)>,
}

impl Drop for PinnedGroup {
    fn drop(&mut self) {
        if !self.claims.is_empty() {
            let mut claims = self.group.claims.lock();
            self.claims.iter().for_each(|run| claims.end(*run));
        }
    }
}

impl Alloc {
    /// Keeps in memory what entering a taken run changes, and checks that the run is free in the bitmap.
    ///
    /// # Errors
    /// `Corruption` if it is not free; reading the bitmap may fail.
    pub(crate) fn prepare_commit(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        let (no, bit) = self.group_and_bit(run)?;
        let pinned = self.pin_group(meta, no, &mut pinned.groups)?;
        Ok(check_bits(&self.geometry(), no, &pinned.frame, bit, run.len, false)?)
    }

    /// Keeps in memory what freeing a run changes, and claims it.
    ///
    /// # Errors
    /// `Corruption` if data cannot have such a run, if some of it is free in the bitmap, or if somebody else
    /// is about to free it; reading the bitmap may fail.
    pub fn prepare_free(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        let (no, bit) = self.group_and_bit(run)?;
        let PinnedGroups { groups, tables } = pinned;
        let pinned = self.pin_group(meta, no, groups)?;
        self.pin_tables(meta, (no, bit, run.len), tables)?;
        let claimed = pinned.group.claims.lock().claim((bit, run.len), |bit| tables.references(no, bit));
        claimed.map_err(|bit| owned_twice(self.geometry().block_of(no, bit), bitmap(no)))?;
        pinned.claims.push((bit, run.len));
        // In this order: whoever freed them before had claims until the bits had changed.
        Ok(check_bits(&self.geometry(), no, &pinned.frame, bit, run.len, true)?)
    }

    /// Keeps the tables of a run in memory for an Op.
    pub(super) fn pin_tables(
        &self,
        meta: &Meta,
        (no, bit, len): (GroupNo, u32, u32),
        pinned: &mut PinnedTables,
    ) -> Result<()> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok(());
        }
        self.join_users(pinned);
        for (table, _, _) in parts(no, bit, len) {
            if let Entry::Vacant(place) = pinned.tables.entry(table) {
                if let Some(frame) = self.read_table(meta, table)? {
                    place.insert(frame);
                }
            }
        }
        Ok(())
    }

    /// No table is given back from now on, until the preparation ends.
    pub(super) fn join_users(&self, pinned: &mut PinnedTables) {
        if pinned.users.is_none() {
            let users = &self.shared.users;
            let _joining = users.joining.lock();
            users.count.fetch_add(1, Ordering::AcqRel);
            pinned.users = Some(users.clone());
        }
    }

    /// The count table, in memory; `None` if the group has none.
    pub(super) fn read_table(&self, meta: &Meta, table: TableNo) -> Result<Option<Frame>> {
        self.read_table_of(meta, BlockKind::CountTable, table)
    }

    /// A table of this kind, in memory; `None` if the group has none.
    pub(super) fn read_table_of(
        &self,
        meta: &Meta,
        kind: BlockKind,
        table: TableNo,
    ) -> Result<Option<Frame>> {
        let Some(addr) = meta.table(kind, table)? else { return Ok(None) };
        let (owner, incarnation) = (table.owner(), Incarnation(0));
        let expect = Expect { kind, owner, incarnation, level: Some(0) };
        Ok(Some(meta.read(addr, &expect)?))
    }

    /// Fails unless these blocks are in use according to the bitmap.
    pub(super) fn check_used(&self, meta: &Meta, run: Run, pinned: &mut PinnedGroups) -> Result<()> {
        let (no, bit) = self.group_and_bit(run)?;
        let pinned = self.pin_group(meta, no, &mut pinned.groups)?;
        Ok(check_bits(&self.geometry(), no, &pinned.frame, bit, run.len, true)?)
    }

    /// Keeps a group and its bitmap in memory for an Op.
    pub(super) fn pin_group<'p>(
        &self,
        meta: &Meta,
        no: GroupNo,
        pinned: &'p mut BTreeMap<GroupNo, PinnedGroup>,
    ) -> Result<&'p mut PinnedGroup> {
        match pinned.entry(no) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let (group, frame) = self.load(meta, no)?;
                Ok(place.insert(PinnedGroup { group, frame, claims: Vec::new() }))
            }
        }
    }

    pub(super) fn known_available(&self, group: GroupNo) -> Option<u32> {
        match self.known.get(group.0).load(Ordering::Relaxed) {
            0 => None,
            n => Some(u32::from(n) - 1),
        }
    }

    pub(super) fn note_available(&self, no: GroupNo, group: &Group) {
        self.note_state(no, &group.state.lock());
    }

    fn note_state(&self, no: GroupNo, state: &Availability) {
        self.known.get(no.0).store(state.available() as u16 + 1, Ordering::Relaxed);
    }

    fn shard(&self, no: GroupNo) -> &Mutex<HashMap<u32, Arc<Group>>> {
        &self.shards[no.0 as usize % SHARDS]
    }

    /// Forgets a group that the volume no longer has.
    pub(super) fn drop_group(&self, no: GroupNo) {
        self.shard(no).lock().remove(&no.0);
        self.known.get(no.0).store(0, Ordering::Relaxed);
        self.used_groups.forget();
    }

    pub(super) fn loaded(&self, no: GroupNo) -> Arc<Group> {
        self.shard(no).lock().get(&no.0).expect("a group with blocks under way is loaded").clone()
    }

    /// The group, with its bitmap kept in memory. The group was used before.
    ///
    /// Bits and summary of a group that is not loaded do not change (A1). One exception: between the two
    /// reads here the group may have been loaded, changed and dropped again; `drops` tells.
    pub(super) fn load(&self, meta: &Meta, no: GroupNo) -> Result<(Arc<Group>, Frame)> {
        loop {
            let drops = self.drops.load(Ordering::Acquire);
            let summary = meta.group_summary(no)?;
            let frame = meta.read(bitmap(no), &Expect::volume(BlockKind::Bitmap))?;
            let mut shard = self.shard(no).lock();
            if let Some(group) = shard.get(&no.0) {
                return Ok((group.clone(), frame));
            }
            let usable = self.geometry().data_blocks(no) as u32;
            let (state, used) = {
                let page = frame.read();
                let map = BitmapRef::new(&page);
                (Availability::of(map, usable), map.used())
            };
            let free = state.available();
            if free != summary.free_blocks || used != BITS_PER_GROUP - free {
                if self.drops.load(Ordering::Acquire) != drops {
                    continue;
                }
                let expected =
                    format!("{} free of {usable}, as the group's summary says", summary.free_blocks);
                let found = format!("{free} free, {used} in use");
                return Err(Corruption::new("bitmap", "counts", expected, found).at(bitmap(no)).into());
            }
            if shard.len() >= LOADED_PER_SHARD {
                self.drops.fetch_add(1, Ordering::AcqRel);
                shard.retain(|_, g| Arc::strong_count(g) > 1 || g.state.lock().is_busy());
            }
            let group = Arc::new(Group { state: Mutex::new(state), claims: Mutex::new(Claims::default()) });
            shard.insert(no.0, group.clone());
            return Ok((group, frame));
        }
    }

    pub(super) fn initialise(&self, meta: &Meta, no: GroupNo) -> Result<bool> {
        let _grow = self.grow.lock();
        if meta.group_summary(no)?.initialised {
            return Ok(true);
        }
        self.initialise_locked(meta, no)
    }

    pub(super) fn initialise_locked(&self, meta: &Meta, no: GroupNo) -> Result<bool> {
        if self.geometry().primary_zone_start(no).0 >= self.closed_from.load(Ordering::Acquire) {
            return Ok(false);
        }
        match meta.prepare_group(no) {
            Err(MetaError::NeedZone { .. }) => return Ok(false),
            other => other?,
        }
        let mut op = meta.begin(Reserved::none());
        let frame = op.create_primary_zone(no);
        drop(op);
        self.used_groups.note_first_zone();
        let usable = self.geometry().data_blocks(no) as u32;
        let used = BitmapRef::new(&frame.read()).used() - (BITS_PER_GROUP - usable);
        // A root zone may have come with it.
        self.unpromised.fetch_sub(i64::from(used), Ordering::Relaxed);
        Ok(true)
    }

    /// Makes blocks available that were taken, or that a complete generation freed; but not those beyond an
    /// end that is closed.
    pub(super) fn make_available(&self, run: Run) {
        let left = self.closed_from.load(Ordering::Acquire).saturating_sub(run.start.0);
        let stays = u64::from(run.len).min(left) as u32;
        if stays > 0 {
            self.hand_out(&[Run { len: stays, ..run }]);
        }
        if stays < run.len {
            let start = BlockNo(run.start.0 + u64::from(stays));
            self.beyond.lock().push(Run { start, len: run.len - stays });
            self.unpromised.fetch_sub(i64::from(run.len - stays), Ordering::Relaxed);
        }
    }

    /// Makes runs of one group available.
    pub(super) fn hand_out(&self, runs: &[Run]) {
        let bit_of = |run: &Run| self.group_and_bit(*run).expect("blocks given back are data blocks");
        let Some((no, _)) = runs.first().map(bit_of) else { return };
        let group = self.loaded(no);
        let mut state = group.state.lock();
        for run in runs {
            state.put_back(bit_of(run).1, run.len);
            state.settle(run.len);
        }
        self.note_state(no, &state);
        drop(state);
        self.regions.get(no.0 / REGION).reclaimed.fetch_add(1, Ordering::Release);
    }

    /// Makes runs available that were pending. Each group is changed once, if they are sorted.
    pub(super) fn end_pending(&self, runs: &[Run]) {
        let closed_from = self.closed_from.load(Ordering::Acquire);
        let geometry = self.geometry();
        for of_group in runs.chunk_by(|a, b| geometry.group_of(a.start) == geometry.group_of(b.start)) {
            match of_group.iter().any(|run| run.end() > closed_from) {
                true => of_group.iter().for_each(|run| self.make_available(*run)),
                false => self.hand_out(of_group),
            }
        }
        let blocks: i64 = runs.iter().map(|run| i64::from(run.len)).sum();
        self.pending.fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// The first block of a run whose bit in the bitmap is not `used`, as damage.
pub(super) fn check_bits(
    geometry: &Geometry,
    no: GroupNo,
    frame: &Frame,
    bit: u32,
    len: u32,
    used: bool,
) -> std::result::Result<(), Box<Corruption>> {
    let page = frame.read();
    let map = BitmapRef::new(&page);
    let Some(wrong) = (bit..bit + len).find(|b| map.get(*b) != used) else { return Ok(()) };
    let (expected, found) = match used {
        true => ("in use, as an extent or a zone has it", "free"),
        false => ("free, as it was when it was taken", "in use"),
    };
    Err(Corruption::new("bitmap", "block", expected, found).at(bitmap(no)).on(geometry.block_of(no, wrong)))
}

pub(super) fn bitmap(group: GroupNo) -> MetaAddr {
    MetaAddr::new(ZoneNo::primary(group), 0)
}

/// Changes the bits of runs in a bitmap in an Op.
pub(super) fn mark(op: &mut Op<'_>, frame: &Frame, runs: &[(u32, u32)], used: bool) -> Change {
    let ((), change) = op.change(frame, |page| {
        for (bit, len) in runs {
            page.apply(|b| BitmapMut::new(b).set(*bit, *len, used));
        }
    });
    change
}
