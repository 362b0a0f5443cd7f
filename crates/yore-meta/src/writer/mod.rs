//! Writing generations.
//!
//! One thread writes one generation at a time:
//!
//! ```text
//! running G ──freeze──► frozen G (running G+1) ──capture, write──► written ──flush──► superblock ──flush──► complete
//! ```
//!
//! *Freeze* takes the gate alone: no Op is open, so no Op is split across two generations. It copies which
//! blocks the zones say exist, takes their lists of dirty frames, copies totals and roots, and lets Ops go on
//! in G+1. *Capture* takes each frame's bytes as of G without copying; the first change in G+1 copies.
//!
//! **Crash argument (`snapshot`; R11: the medium holds a whole file system at every instant).** Until
//! superblock G is on the medium, the newest whole one is G−1 (or what this mount found). What it reaches is
//! untouched: blocks of G, and those that go along (`along.rs`), go to slots that the map of G−1 does not use
//! (each zone has twice as many slots as indexes, so there always are enough), headers go to the header slot
//! that G−1's table does not name, table blocks to free slots of root zones, root headers to their other
//! slots. Data blocks freed in G, and the part of the log that it makes superfluous, are given back only
//! after the flush behind superblock G (R2, R3). All of G, and all file data it names, is flushed before
//! superblock G is written (R1), so whichever superblock survives, everything it reaches is there. Without
//! the first flush, superblock G could be on the medium before a block of G: exactly the crash that a
//! reordering device makes.
//!
//! A superblock also relies on what it leaves to the intent log (`log/intent.rs`). Superblock G says that
//! replay starts where the log ended when G was frozen, so file data that is noted and not at home lies
//! before that place. The writer appends that data again, behind the place, and forces it before it writes
//! superblock G; else a crash right after superblock G would lose data whose fsync had returned. Nobody
//! appends anything else meanwhile. A replay from G−1 finds everything where it was. It meets the repeated
//! notes last; they belong to the generation after G, and replay leaves them out.
//!
//! **A device that loses a write without saying so** is found out by the next reader: each header has the
//! checksums of the blocks in its slots, computed once when the writer seals them into the batch, and the
//! table names the header itself by checksum.
//!
//! **Other engines** use the same writer and decide otherwise where a [`Plan`](crate::engine::Plan) says so:
//! where blocks go, whether the log has them first, whether the generation *closes* (headers, table and
//! superblock are written, too), and whether the device is flushed. `engine/journal.rs` has the argument of
//! `journal`; `none` has none.
//!
//! After an error the writer writes nothing more; the frames of the failed generation stay in memory for
//! readers (R16). A panic, which is a bug, has the same effect: whoever waits for the generation gets an
//! error (`StopAtPanic`).

mod along;
pub(crate) mod beside;
mod ceilings;
mod files;
mod gather;
mod generation;
mod part;
mod passing;
mod room;
mod rounds;

use crate::base::gate::assert_no_op;
use crate::base::medium::now_seconds;
use crate::base::pending::PutOff;
use crate::base::progress::Task;
use crate::engine::{Backlog, Due};
use crate::error::{MetaError, Result};
use crate::log::place::{LogDevice, LogPlace};
use crate::log::region::{position_of, set_position};
use crate::rooms::Rooms;
use crate::zones::zone::FrozenZone;
use beside::{Beside, Closing};
use files::Callers;
use generation::{freeze, medium_state, write, Frozen, Unclosed};
use parking_lot::{Mutex, MutexGuard};
use part::{Outcome, Rounds};
pub(crate) use rounds::FLUSH_BLOCKS;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Weak;
use std::thread::JoinHandle;
use std::time::Duration;
use yore_format::{ExternalLog, Generation, InodeNo, Superblock, VolumeState};
use yore_log::{KeptLog, Position};

/// The writer of an open volume.
pub(crate) struct Writer {
    /// The superblock last written, and its slot. Held for the length of a commit.
    superblock: Mutex<(Superblock, u32)>,
    unclosed: Mutex<Unclosed>,
    /// The last complete generation, whose rounds the next part goes on with. Locked by whoever has locked
    /// the superblock.
    rounds: Mutex<Rounds>,
    /// The callers that wait for a part.
    callers: Callers<Result<Outcome>>,
    /// The frames of a generation that could not be written: kept in memory, so that reads go on (R16).
    unwritten: Mutex<Vec<FrozenZone>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The longest time between two generations while there are changes.
    interval: Duration,
    /// Blocks that a part of a generation leaves to the rest of it, at least.
    leaves: usize,
}

/// What has a writer, and the rooms that it writes.
pub(crate) trait Written: Send + Sync + 'static {
    fn writer(&self) -> &Writer;
    fn rooms(&self) -> &Rooms;
}

/// Proves that no generation is being written, and none will be while it lives.
pub(crate) struct Pause<'m>(MutexGuard<'m, (Superblock, u32)>);

impl Pause<'_> {
    /// The superblock last written.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.0 .0
    }
}

impl Writer {
    /// For a volume of which `found` was read, from `slot`. A part leaves at least so many blocks.
    pub(crate) fn new(found: Superblock, slot: u32, interval: Duration, leaves: usize) -> Writer {
        Writer {
            superblock: Mutex::new((found, slot)),
            unclosed: Mutex::default(),
            rounds: Mutex::default(),
            callers: Callers::default(),
            unwritten: Mutex::default(),
            thread: Mutex::default(),
            interval,
            leaves,
        }
    }

    /// Waits for a commit under way, and keeps the next one from beginning.
    pub(crate) fn pause(&self) -> Pause<'_> {
        Pause(self.superblock.lock())
    }

    /// Whether no header, table or superblock of some generation is missing on the medium. Asked while none
    /// is being written.
    pub(crate) fn is_closed(&self, _: &Pause<'_>) -> bool {
        self.unclosed.lock().is_empty()
    }

    /// Starts the thread that writes generations.
    pub(crate) fn start(&self, of: Weak<impl Written>) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name("yore-commit".into())
            .spawn(move || run(&of))
            .map_err(|e| MetaError::Refused(format!("cannot start the commit thread: {e}")))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Whether the thread was started and not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// Ends the thread, writes the last generation and marks the volume clean. Does nothing if no thread was
    /// started. `prepare` says what is written beside that generation. If a zone cannot be read that a crash
    /// has left, the generation is written all the same, and the volume stays in use.
    pub(crate) fn close<'b>(
        &self,
        rooms: &Rooms,
        prepare: &mut dyn FnMut(Closing) -> Option<Beside<'b>>,
    ) -> Result<()> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        let progress = &rooms.blocks.base.progress;
        progress.ask_to_stop();
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            progress.stop(MetaError::Refused("the commit thread panicked".into()));
        }
        let result = match progress.check_writable() {
            Ok(()) => {
                // Nobody else advances the gate from here on.
                let last = self.superblock.lock().0.clone();
                // What a crash has left in places that nobody has read since is to be in the headers, too.
                let settled = rooms.blocks.zones.settle_all(&rooms.blocks.base);
                match settled {
                    Ok(()) => {
                        let generation = ceilings::number(&last, rooms.blocks.base.gate.running());
                        let beside = prepare(Closing { generation, mount_id: last.mount_id });
                        self.commit(rooms, VolumeState::Clean, beside)
                    }
                    // It stays in use, so the next mount goes on with that. What was changed is kept.
                    Err(e) => self.commit(rooms, VolumeState::InUse, None).and(Err(e)),
                }
            }
            Err(e) => Err(e),
        };
        progress.close();
        result
    }

    /// Begins a session of a log that has a device of its own: says so in a superblock of the generation
    /// `taken`, and in the log. Returns what the mount's superblock says of the log then.
    pub(crate) fn begin_session(
        &self,
        rooms: &Rooms,
        taken: Generation,
        kept: &mut KeptLog,
        place: &LogPlace,
    ) -> Result<ExternalLog> {
        let medium = &rooms.blocks.base.medium;
        let mut guard = self.superblock.lock();
        let (superblock, slot) = &mut *guard;
        let external = superblock.external_log.as_mut().expect("the log was found by what this says");
        external.begins = true;
        if let LogPlace::On(LogDevice { path, .. }) = place {
            external.path.clone_from(path);
        }
        let begun = ExternalLog { session: external.session + 1, begins: false, path: external.path.clone() };
        superblock.generation = taken;
        superblock.written_seconds = now_seconds();
        *slot = 1 - *slot;
        // What this superblock is written over may be needed until the other one is durable.
        medium.device().flush()?;
        medium.write_superblock(superblock, *slot)?;
        medium.device().flush()?;
        kept.begin(begun.session)?;
        Ok(begun)
    }

    /// Says on the medium that the volume is in use, under this engine and a mount id never used before (R5).
    /// `newest` is the newest generation found, and `begun` what it says of a log elsewhere.
    ///
    /// If the log has nothing to replay (`log_is_empty`), it may still hold what was carried over for a
    /// superblock that never arrived; this mount's first generation has the number that those records are
    /// for, so the next mount must begin behind them, at `empty_from`.
    pub(crate) fn begin_mount(
        &self,
        rooms: &Rooms,
        newest: Generation,
        (log_is_empty, empty_from): (bool, Option<Position>),
        begun: Option<ExternalLog>,
    ) -> Result<()> {
        let medium = &rooms.blocks.base.medium;
        let mut guard = self.superblock.lock();
        let (superblock, slot) = &mut *guard;
        if begun.is_some() {
            superblock.external_log = begun;
        }
        superblock.mount_id += 1;
        superblock.generation = Generation(newest.0 + 1);
        let strategy = medium.strategy();
        superblock.state = medium_state(medium.has_leaks(), strategy, VolumeState::InUse);
        superblock.set_in_place_since(match strategy.orders() && superblock.in_place_since.0 == 0 {
            true => Generation(newest.0 + 2),
            false => superblock.in_place_since,
        });
        if log_is_empty {
            // Else the next mount must still believe the records there.
            let position = empty_from.unwrap_or_else(|| position_of(superblock));
            set_position(superblock, position, Generation(newest.0 + 2));
        }
        let changes_engine = superblock.engine != medium.engine();
        superblock.engine = medium.engine();
        superblock.written_seconds = now_seconds();
        // What this superblock is written over may be needed until the other one is durable.
        medium.device().flush()?;
        // An in-place engine must be known from either slot before it overwrites anything.
        let begins = medium.found().in_place_since != superblock.in_place_since;
        let writes = if (changes_engine && strategy.in_place()) || begins { 2 } else { 1 };
        for _ in 0..writes {
            *slot = 1 - *slot;
            medium.write_superblock(superblock, *slot)?;
            medium.device().flush()?;
        }
        Ok(())
    }

    /// What it is time for when the oldest change is so old, and the log has got none for so long.
    fn due(&self, rooms: &Rooms, age: Duration, since_record: Duration) -> Due {
        let unlogged = rooms.blocks.zones.changes.unlogged_frames() > 0;
        rooms.blocks.base.medium.strategy().due(Backlog {
            age,
            unlogged_age: unlogged.then_some(since_record),
            interval: self.interval,
            log_presses: rooms.log.presses(),
        })
    }

    /// Has done what is due when changes are `intervals` commit intervals old and one has passed since the
    /// last record. Returns whether a generation was written, when that is done.
    pub(crate) fn pass_intervals(&self, rooms: &Rooms, intervals: u32) -> Result<bool> {
        let base = &rooms.blocks.base;
        base.progress.check_writable()?;
        if !rooms.blocks.has_changes() {
            return Ok(false);
        }
        match self.due(rooms, self.interval.saturating_mul(intervals), self.interval) {
            Due::Generation => base.progress.await_background(base.gate.running()).map(|()| true),
            Due::Record => rooms.log.record(&rooms.blocks).map(|_| false),
            Due::Nothing(_) => Ok(false),
        }
    }

    /// Makes durable all that these files need, under an engine that orders changes: their attributes, names
    /// and extents, the entries of those that are directories, and new directories above them. By a part of
    /// the running generation, which concurrent callers share, or by all of it.
    pub(crate) fn force_files(&self, rooms: &Rooms, files: &[InodeNo]) -> Result<()> {
        assert_no_op();
        rooms.blocks.base.progress.check_writable()?;
        let batch = self.callers.join(files);
        let right = self.superblock.lock();
        let write =
            |files: &[InodeNo]| part::write(rooms, &right.0, files, &mut self.rounds.lock(), self.leaves);
        let outcome = self.callers.serve(&batch, write);
        drop(right);
        match outcome? {
            Outcome::Durable => Ok(()),
            Outcome::Generation => rooms.log.force(&rooms.blocks),
        }
    }

    /// Freezes the running generation, writes it, completes it.
    fn commit(&self, rooms: &Rooms, state: VolumeState, beside: Option<Beside<'_>>) -> Result<()> {
        let base = &rooms.blocks.base;
        let _stop = base.progress.stop_at_panic("writing a generation");
        let mut held = self.superblock.lock();
        let (mut leader, served) = rooms.log.lead();
        let mut unclosed = self.unclosed.lock();
        let (mut frozen, appended) = freeze(rooms, &held.0, (state, beside), &mut leader, &mut unclosed);
        drop(leader);
        let slot = 1 - held.1;
        #[cfg(feature = "mutations")]
        wrong_before_writing(rooms, &mut frozen)?;
        let write = || appended.and_then(|()| write(rooms, &mut frozen, (&held.0, slot), &mut unclosed));
        let result = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
            // Maps name slots that were not written: what belongs there stays in memory.
            self.unwritten.lock().append(&mut frozen.zones);
            resume_unwind(panic)
        });
        match result {
            Ok((slot, last)) => {
                *self.rounds.lock() = Rounds { generation: frozen.generation, last };
                if frozen.plan.is_durable() {
                    *held = (frozen.superblock.clone(), slot);
                }
                // With the right to write: a part must find what this generation has put off.
                complete(rooms, frozen, served)
            }
            Err(e) => {
                self.unwritten.lock().append(&mut frozen.zones);
                base.progress.fail(e.clone());
                Err(e)
            }
        }
    }
}

/// The commit thread: waits for a reason to write a generation, writes it, says so.
fn run(of: &Weak<impl Written>) {
    loop {
        let Some(of) = of.upgrade() else { return };
        let (writer, rooms) = (of.writer(), of.rooms());
        let base = &rooms.blocks.base;
        let due = |age, since_record| writer.due(rooms, age, since_record);
        match base.progress.await_task(writer.interval, due) {
            Task::Stop => return,
            Task::Wait => {}
            // As below.
            Task::Record => drop(rooms.log.record(&rooms.blocks)),
            Task::Write => {
                // An error is kept in the progress and reported to whoever waits.
                let _ = writer.commit(rooms, VolumeState::InUse, None);
            }
        }
    }
}

/// Gives back before the superblock what must be given back behind it.
#[cfg(feature = "mutations")]
fn wrong_before_writing(rooms: &Rooms, frozen: &mut Frozen) -> Result<()> {
    use crate::mutation::{is, Mutation};
    use yore_format::BLOCK_SIZE;
    if is(Mutation::BlocksReusedEarly) {
        rooms.blocks.base.freed.reclaim(&std::mem::take(&mut frozen.freed));
    }
    if is(Mutation::DiscardedEarly) {
        for (start, len) in &frozen.freed {
            let (start, block) = (start.0 * BLOCK_SIZE as u64, BLOCK_SIZE as u64);
            rooms.blocks.base.medium.device().discard(start, u64::from(*len) * block)?;
        }
    }
    if is(Mutation::LogReusedEarly) {
        rooms.log.complete(frozen.log, 0)?;
    }
    Ok(())
}

/// The generation is on the medium: what it freed may be used again, and whoever waits goes on.
fn complete(rooms: &Rooms, mut frozen: Frozen, served: u64) -> Result<()> {
    let (blocks, base) = (&rooms.blocks, &rooms.blocks.base);
    // Before anybody is told: who finds no generation being written may append at once.
    let released = rooms.log.complete(frozen.log, served);
    // Before the freed blocks become reusable, so that each bit is cleared before it is set again.
    let what = std::mem::take(&mut frozen.put_off);
    put_off(rooms, &frozen, what);
    for zone in &frozen.zones {
        zone.zone.release(&blocks.zones.changes);
    }
    for zone in frozen.zones.iter().filter(|z| z.removed && frozen.plan.closes) {
        blocks.zones.forget(zone.zone.no);
    }
    if !frozen.freed.is_empty() {
        base.freed.reclaim(&frozen.freed);
    }
    // Whoever waits for it may want blocks to leave memory.
    frozen.zones.clear();
    base.progress.complete(frozen.generation, frozen.plan.is_durable(), || blocks.has_changes());
    released
}

/// The running generation takes over what this one has put off.
fn put_off(rooms: &Rooms, frozen: &Frozen, what: Vec<PutOff>) {
    if what.is_empty() {
        return;
    }
    let blocks = &rooms.blocks;
    // A block that an Op is about to free would not be there any more.
    let gate = blocks.base.gate.hold();
    for of_block in what {
        let frames = frozen.zones.iter().filter(|zone| zone.zone.no == of_block.addr.zone());
        let frame = frames.flat_map(|zone| &zone.dirty).find(|frame| frame.addr() == of_block.addr);
        let frame = frame.expect("a block that the generation has changed");
        if frame.is_dead() {
            // Its group is gone, in a generation that goes aside.
            continue;
        }
        let take_over = |_: &mut _| (blocks.base.order.pending.put_off(of_block), 0);
        let ((), news) = frame.modify(gate.running(), take_over);
        blocks.note_changed(frame.home(), gate.running(), frame, news);
    }
}
