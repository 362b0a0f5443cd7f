//! The metadata of an open volume, as the store above sees it. [`Meta`] owns the rooms and hands each call to
//! the one that it is for.

mod extend;
mod findings;
pub(crate) mod give_up;
mod logs;
pub(crate) mod open;
mod recorded;
pub(crate) mod recount;
mod resize;
pub(crate) mod scrub;
mod shadow;
pub(crate) mod shred;
pub(crate) mod together;

use crate::base::freed::Reclaimer;
use crate::base::late::Late;
use crate::base::ledger::Totals;
use crate::base::left::LeftNotes;
use crate::base::pending::PassCounts;
use crate::base::progress::StopAtPanic;
use crate::base::Base;
use crate::engine::Durability;
use crate::error::{MetaError, Result};
use crate::log::intent::LogStatus;
use crate::log::place::LogPlace;
use crate::log::replay::Recovered;
use crate::op::zones::EmptyZone;
use crate::op::Op;
use crate::rooms::Rooms;
use crate::space::{self, GroupSummary, Reserved, ReservedInode, Room, Space};
use crate::writer::beside::{Beside, Closing};
use crate::writer::{Writer, Written};
use crate::zones::zone::Frame;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use yore_device::{Device, SharedBuf};
use yore_format::layout::{Geometry, EXTRA_ZONES_PER_GROUP, ZONE_INDEXES};
use yore_format::{
    BlockKind, BlockNo, Engine, EventNo, Expect, GroupNo, Incarnation, InodeNo, IntentNote, MetaAddr,
    Superblock, TableNo, ZoneNo,
};

/// The metadata of an open volume.
pub struct Meta {
    rooms: Rooms,
    space: Space,
    writer: Writer,
    /// The device that everybody uses, with the data that the one below gets later.
    late: Arc<Late>,
    durability: Durability,
    /// What the superblock counts.
    pub totals: Arc<Totals>,
    /// What replay left for the store to do.
    recovered: Mutex<Option<Recovered>>,
    /// Open for reading only: where the log is, as whoever opened the volume said.
    log_place: LogPlace,
}

impl Written for Meta {
    fn writer(&self) -> &Writer {
        &self.writer
    }

    fn rooms(&self) -> &Rooms {
        &self.rooms
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        if self.writer.is_running() {
            if let Err(e) = self.close() {
                tracing::error!("closing the volume: {e}");
            }
        }
    }
}

/// What the volume is.
impl Meta {
    #[inline]
    fn base(&self) -> &Base {
        &self.rooms.blocks.base
    }

    /// Sets who learns of freed data blocks. Once, right after opening.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaimer>) {
        self.base().freed.set_reclaimer(reclaimer);
    }

    /// What inodes in use have left to their versions lately.
    pub fn left(&self) -> &LeftNotes {
        &self.base().left
    }

    /// The volume's geometry. It changes when the volume is resized; an Op sees one and the same.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.base().medium.geometry()
    }

    /// The device underneath, for file data.
    #[inline]
    pub fn device(&self) -> &Arc<dyn Device> {
        self.base().medium.device()
    }

    /// The engine in use.
    pub fn engine(&self) -> Engine {
        self.base().medium.engine()
    }

    /// Whether nothing may be changed.
    #[inline]
    pub fn read_only(&self) -> bool {
        self.base().progress.read_only()
    }

    /// The superblock as it was found when the volume was opened.
    #[inline]
    pub fn found(&self) -> &Superblock {
        self.base().medium.found()
    }

    /// Whether the volume may have what a crash leaves under an engine that orders changes (docs/EDGES.md).
    pub fn may_have_leaks(&self) -> bool {
        self.base().medium.has_leaks()
    }

    /// The superblock last written. Waits for a commit under way.
    pub fn superblock(&self) -> Superblock {
        self.writer.pause().superblock().clone()
    }

    /// A fresh incarnation.
    #[inline]
    pub fn next_incarnation(&self) -> Incarnation {
        self.base().ledger.take_incarnation()
    }

    /// The first incarnation that is not given yet: inodes of earlier ones are there, or have been there.
    /// `None` if their numbers have begun anew, so that nothing can be told from them.
    pub fn incarnations_end(&self) -> Option<Incarnation> {
        self.base().ledger.incarnations_end()
    }

    /// The number that births take now (VERSIONING).
    #[inline]
    pub fn number(&self) -> EventNo {
        self.base().ledger.number()
    }

    /// Root and level of the tree of orphans.
    #[inline]
    pub fn orphan_root(&self) -> (MetaAddr, u8) {
        self.base().ledger.orphan_root()
    }

    /// The block with the roots of the history, if the volume has ever had an event.
    #[inline]
    pub fn history_root(&self) -> MetaAddr {
        self.base().ledger.history_root()
    }
}

/// Reading, reserving, and opening Ops.
impl Meta {
    /// The block at `addr`, from memory or the device, verified to be what `expect` says.
    ///
    /// # Errors
    /// [`MetaError::Corruption`] and [`MetaError::Device`].
    ///
    /// # Panics
    /// In debug builds, if an Op is open on this thread (R7).
    #[inline]
    pub fn read(&self, addr: MetaAddr, expect: &Expect) -> Result<Frame> {
        self.rooms.blocks.read(addr, expect)
    }

    /// As [`Meta::read`], for a caller that checks itself what the block is, when it looks at it anyway: with
    /// [`Expect::check`], before anything else.
    ///
    /// # Errors
    /// As [`Meta::read`], but for what [`Expect::check`] finds.
    ///
    /// # Panics
    /// As [`Meta::read`].
    #[inline]
    pub fn read_any(&self, addr: MetaAddr) -> Result<Frame> {
        self.rooms.blocks.read_any(addr)
    }

    /// Reads blocks into memory that are not there, those that lie near each other with one request. What
    /// cannot be read is left for whoever wants it, who is told why.
    ///
    /// # Panics
    /// As [`Meta::read`].
    pub fn read_together(&self, addrs: impl IntoIterator<Item = MetaAddr>) {
        self.rooms.blocks.read_together(addrs);
    }

    /// Whether the cache has the block at `addr` at this moment, so that reading it takes no request.
    pub fn is_in_memory(&self, addr: MetaAddr) -> bool {
        !self.rooms.blocks.cache.lacks(addr, || true)
    }

    /// Sets `blocks` metadata blocks aside, in a zone of group `near` or wherever those of that group went
    /// last. Slows the caller down while too much is dirty. Not to be called with an Op open.
    ///
    /// # Errors
    /// [`MetaError::NeedZone`] if there is no room (the store then makes a zone, or calls
    /// [`Meta::reserve_elsewhere`]); [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    #[inline]
    pub fn reserve(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.space.reserve(&self.rooms.blocks, near, blocks)
    }

    /// As [`Meta::reserve`], in whichever zone has as much room as `room` says; unless that is plenty, in
    /// several zones when none has so much. Looks at all zones, from where it found room last, so it is for
    /// when the near ones are full.
    ///
    /// # Errors
    /// [`MetaError::NeedZone`] if there is no such room.
    pub fn reserve_elsewhere(&self, near: GroupNo, blocks: u32, room: Room) -> Result<Reserved> {
        self.space.reserve_elsewhere(&self.rooms.blocks, near, blocks, room)
    }

    /// As [`Meta::reserve`], in a zone of this group only; `None` if none of them has room.
    ///
    /// # Errors
    /// Reading a zone's header may fail; [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    pub fn reserve_in_group(&self, group: GroupNo, blocks: u32) -> Result<Option<Reserved>> {
        self.space.reserve_in(&self.rooms.blocks, group, blocks)
    }

    /// Sets a free inode aside, near the inode block or directory at `near`. `Ok(None)`: no inode block there
    /// that can be read has room; the caller opens an Op with one reserved block, calls
    /// [`crate::Op::add_inode_block`] and tries again.
    ///
    /// # Errors
    /// Reading a zone's header may fail; [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    #[inline]
    pub fn reserve_inode(&self, near: GroupNo) -> Result<Option<ReservedInode>> {
        self.space.reserve_inode(&self.rooms.blocks, near)
    }

    /// Opens an Op with what was reserved for it. Waits only for the instant in which a generation is frozen.
    #[inline]
    pub fn begin(&self, reserved: Reserved) -> Op<'_> {
        Op::begin(&self.rooms, reserved)
    }

    /// As [`Meta::begin`], with no other Op open until this one ends: for what must lie wholly before or
    /// wholly behind each of them. Waits for those that are open.
    pub fn begin_alone(&self, reserved: Reserved) -> Op<'_> {
        Op::begin_alone(&self.rooms, reserved)
    }
}

/// Groups and their zones.
impl Meta {
    /// The first of these blocks that cannot be data although they lie in the group's data area: a zone's, or
    /// the log's.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn taken_block(&self, group: GroupNo, start: BlockNo, len: u32) -> Result<Option<BlockNo>> {
        space::taken_block(&self.rooms.blocks, group, start, len)
    }

    /// What is known about a group without reading its bitmap.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn group_summary(&self, group: GroupNo) -> Result<GroupSummary> {
        space::group_summary(&self.rooms.blocks, group)
    }

    /// The group that a zone in memory serves; group 0 if it is not in memory (a place to start looking, no
    /// more).
    #[inline]
    pub fn zone_group(&self, zone: ZoneNo) -> GroupNo {
        self.rooms.blocks.zones.loaded(zone).map_or(GroupNo(0), |z| z.group)
    }

    /// Metadata blocks that fit the zones there are, roughly.
    pub fn free_index_estimate(&self) -> u64 {
        let root_zones = u64::from(self.root_zone_count());
        let zones = self.totals.zones.get().saturating_sub(root_zones);
        (zones * u64::from(ZONE_INDEXES)).saturating_sub(self.totals.metadata_blocks.get())
    }

    /// How many blocks of the volume the log has; 0 if it is elsewhere, or there is none.
    pub fn log_blocks_inside(&self) -> u64 {
        let log = self.base().medium.log_blocks();
        log.end.saturating_sub(log.start)
    }

    /// Root zones that exist.
    pub fn root_zone_count(&self) -> u32 {
        self.rooms.blocks.zones.table.root_count()
    }

    /// Reads what an Op needs that makes a group's first zone.
    ///
    /// # Errors
    /// Reading the zone table may fail; [`MetaError::NeedZone`] if the superblock can name no further root
    /// zone.
    pub fn prepare_group(&self, group: GroupNo) -> Result<()> {
        let (table, medium) = (&self.rooms.blocks.zones.table, &self.base().medium);
        let no = ZoneNo::primary(group);
        if !table.may_have_root_for(medium, no) {
            return Err(MetaError::NeedZone { near: group });
        }
        table.entry(medium, no).map(|_| ())
    }

    /// Finds a number for a further zone of `group` and keeps the group's first zone in memory. Before each
    /// Op that calls [`Op::create_zone`]; false if no number is left or the group has all its zones.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn prepare_zone(&self, group: GroupNo) -> Result<bool> {
        let zones = &self.rooms.blocks.zones;
        match zones.get(self.base(), ZoneNo::primary(group))? {
            Some(primary) if primary.extras().count() < EXTRA_ZONES_PER_GROUP => {
                zones.prepare_number(self.base())
            }
            _ => Ok(false),
        }
    }

    /// Where a group has its table of this kind and number; `None` if it has none.
    ///
    /// # Errors
    /// Reading the header of the group's first zone may fail.
    #[inline]
    pub fn table(&self, kind: BlockKind, table: TableNo) -> Result<Option<MetaAddr>> {
        let primary = self.rooms.blocks.zones.get(self.base(), ZoneNo::primary(table.group()))?;
        Ok(primary.and_then(|primary| primary.table(kind, table.number())))
    }

    /// The tables of a kind that a group has.
    ///
    /// # Errors
    /// As [`Meta::table`].
    pub fn tables(&self, kind: BlockKind, group: GroupNo) -> Result<Vec<TableNo>> {
        let primary = self.rooms.blocks.zones.get(self.base(), ZoneNo::primary(group))?;
        let numbers = primary.map_or(Vec::new(), |primary| primary.tables(kind));
        Ok(numbers.into_iter().map(|number| TableNo::new(group, number)).collect())
    }

    /// An empty further zone that can be taken out of its group, by [`Op::remove_zone`].
    pub fn take_empty_zone(&self) -> Option<EmptyZone> {
        EmptyZone::take(&self.rooms.blocks)
    }
}

/// Writing, and waiting for it.
impl Meta {
    /// Whether blocks were freed that become available only with the next generation.
    pub fn has_pending_frees(&self) -> bool {
        !self.base().freed.is_empty()
            || self.rooms.blocks.zones.changes.has_held()
            || self.base().progress.is_writing()
    }

    /// Fails if nothing may be changed (any more).
    ///
    /// # Errors
    /// [`MetaError::ReadOnly`]; [`MetaError::Stopped`] after a write error, and once the volume is closed.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.base().progress.check_writable()
    }

    /// Stops all writing for good after an error of the device (R16). The first error is kept.
    pub fn stop(&self, error: MetaError) {
        self.base().progress.stop(error);
    }

    /// The error that stopped all writing, if one did, and when that was, in seconds since 1970.
    pub fn first_error(&self) -> Option<(MetaError, u64)> {
        self.base().progress.first_error()
    }

    /// For whoever writes to the device past this layer: if `what` panics, all writing stops as after an
    /// error.
    pub fn stop_at_panic(&self, what: &'static str) -> StopAtPanic<'_> {
        self.base().progress.stop_at_panic(what)
    }

    /// All changes made before are on the medium when this returns, where they belong: by a generation.
    /// Concurrent callers share one.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn sync(&self) -> Result<()> {
        self.rooms.log.sync(&self.rooms.blocks)
    }

    /// All changes made before, and data noted or written before, are durable when this returns. Under an
    /// engine that logs all changes a record does it; else a generation.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn make_durable(&self) -> Result<()> {
        match self.base().medium.strategy().logs_first() {
            true => self.force(),
            false => self.sync(),
        }
    }

    /// Behind [`Meta::make_durable`]: everything is where it belongs, too, when this returns. Does nothing
    /// where a generation has just done it.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn checkpoint(&self) -> Result<()> {
        match self.base().medium.strategy().logs_first() {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Does what the background does when changes are `intervals` commit intervals old, on a clock that the
    /// caller has: measurements that must not depend on a machine's. Nothing is durable for having been
    /// called. Returns whether a generation was written.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn pass_intervals(&self, intervals: u32) -> Result<bool> {
        self.writer.pass_intervals(&self.rooms, intervals)
    }

    /// All changes made before, and data noted or written before, are durable when this returns: by a record
    /// in the log, or by a generation. Concurrent callers share one. Costs one write and one flush; a second
    /// flush if metadata names data that was written since the last.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn force(&self) -> Result<()> {
        self.rooms.log.force(&self.rooms.blocks)
    }

    /// As [`Meta::force`], but under an engine that orders changes only for what these files need: their
    /// attributes, names and extents, the entries of those that are directories, and new directories above
    /// them. Takes time in proportion to what waits in the blocks that these have changed, while no Op can
    /// be open.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn force_files(&self, files: &[InodeNo]) -> Result<()> {
        let strategy = self.base().medium.strategy();
        // Where calls wait, little waits besides.
        match strategy.orders() && !strategy.calls_wait() {
            true => self.writer.force_files(&self.rooms, files),
            false => self.force(),
        }
    }

    /// As [`Meta::force`], for a caller whose later changes rely on it: under an engine that orders changes
    /// all so far come before all that follow, but for bits to be cleared, for which nobody waits.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn force_all(&self) -> Result<()> {
        self.force()?;
        self.base().order.all_durable();
        Ok(())
    }

    /// A call that changed metadata has ended, and holds no lock. Returns when its change is as durable as
    /// the volume's [`Durability`] says. Without a wait for any other than those of an engine that logs
    /// first.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    #[inline]
    pub fn settle(&self) -> Result<()> {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::Unsettled) {
            return Ok(());
        }
        match self.durability {
            Durability::Async => Ok(()),
            Durability::Group => self.rooms.log.force(&self.rooms.blocks),
            Durability::Sync => self.rooms.log.force_alone(&self.rooms.blocks),
        }
    }

    /// Whether one may wait for a generation: none is written while the volume is being recovered.
    #[inline]
    pub fn may_wait(&self) -> bool {
        self.base().progress.may_wait()
    }

    /// What generations have cost since the volume was opened; all 0 under an engine that does not order
    /// changes.
    pub fn pass_counts(&self) -> PassCounts {
        self.base().order.pending.counts()
    }

    /// How many threads wait for generations to be complete.
    pub fn threads_waiting(&self) -> usize {
        self.base().progress.waiting()
    }

    /// The last generation that is complete on the medium (counting those in which nothing changed).
    pub fn completed_generation(&self) -> u64 {
        self.base().progress.completed().0
    }

    /// Writes the last generation, marks the volume clean and stops the writer. Further changes are refused.
    ///
    /// # Errors
    /// The error that stopped writing, now or earlier; the volume is then left as its last generation says.
    /// That of reading a zone that a crash has left; then the last generation is written, and the volume is
    /// left in use.
    pub fn close(&self) -> Result<()> {
        self.close_with(&mut |_| None)
    }

    /// As [`Meta::close`]. What `prepare` gives is written beside the last generation; it may make Ops.
    ///
    /// # Errors
    /// As [`Meta::close`].
    pub fn close_with<'b>(&self, prepare: &mut dyn FnMut(Closing) -> Option<Beside<'b>>) -> Result<()> {
        self.writer.close(&self.rooms, prepare)
    }
}

/// Late data: file data that the device gets later (`base/late.rs`).
impl Meta {
    /// Sets the most blocks of file data that may be late; never more than 8 MiB of them.
    pub fn set_late_most(&self, blocks: usize) {
        self.late.set_most(blocks);
    }

    /// Whether so many more blocks may be late now, unless others come first.
    pub fn has_late_room(&self, blocks: usize) -> bool {
        self.late.has_room(blocks)
    }

    /// Whether so much is late that the background should write it.
    pub fn late_presses(&self) -> bool {
        self.late.is_pressing()
    }

    /// Accepts blocks of file data, each under its number, as if they were written: reads see them, and each
    /// flush of the device makes them durable. False if too much is late already: then it has accepted
    /// nothing, and the caller writes.
    ///
    /// # Errors
    /// The error of writing late data, now or earlier. It stops all writing to the volume (R16).
    pub fn write_later(&self, blocks: &[(u64, &SharedBuf)]) -> Result<bool> {
        self.late.accept(blocks).map_err(|e| {
            self.stop(MetaError::Device(e.clone()));
            e.into()
        })
    }

    /// Writes some of what is late, if there is any. Returns whether there was. For a thread in the
    /// background.
    ///
    /// # Errors
    /// As [`Meta::write_later`].
    pub fn write_late(&self) -> Result<bool> {
        // After a panic nobody knows what is on the medium.
        let _stop = self.stop_at_panic("writing late data");
        self.late.write_some().inspect_err(|e| self.stop(e.clone()))
    }
}

/// The log: notes of file data, and what must be on the medium first.
impl Meta {
    /// Whether there is a log that data can be noted in.
    #[inline]
    pub fn has_log(&self) -> bool {
        self.rooms.log.is_on()
    }

    /// How many pages may be noted at once; 0 if there is no log.
    pub fn noted_most(&self) -> usize {
        self.rooms.log.noted_most()
    }

    /// Notes pages of a file, by index with their memory, for the next record. They count up to the file's
    /// `size`. False if too much is outstanding, or there is no log: the data must be written to its blocks
    /// then.
    pub fn note_data(&self, file: (InodeNo, Incarnation), size: u64, pages: &[(u32, SharedBuf)]) -> bool {
        self.rooms.log.note_data(file, size, pages)
    }

    /// Whether so much is outstanding that some of it should be brought home soon.
    pub fn notes_press(&self) -> bool {
        self.rooms.log.notes_press()
    }

    /// Notes that data noted earlier is at home and counts without an Op, for it was written over blocks that
    /// metadata has named before; or that nobody needs it any more. A flush comes before the record that says
    /// so.
    pub fn note(&self, note: &IntentNote<'_>) {
        self.rooms.log.note(note);
    }

    /// Data was written over blocks that metadata has named before.
    pub fn note_data_written(&self) {
        self.rooms.log.note_data_written();
    }

    /// The Op about to be opened names blocks that were just written (R4).
    pub fn note_data_named(&self) {
        self.rooms.log.note_data_named();
    }

    /// What the Op about to be opened changes must not be durable before data that was written over blocks
    /// named before.
    pub fn note_data_written_first(&self) {
        self.rooms.log.note_data_written_first();
    }

    /// What the log is doing.
    pub fn log_status(&self) -> LogStatus {
        let status = self.rooms.log.status(self.found().log_blocks);
        match self.rooms.log.is_on() || self.read_only() {
            true => status,
            // No log is open, and it may have moved.
            false => LogStatus { blocks: self.superblock().log_blocks, ..status },
        }
    }
}
