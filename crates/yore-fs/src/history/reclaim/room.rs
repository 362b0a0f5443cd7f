//! Making room: which history a full volume gives up, for whom, and how little of it.
//!
//! **The rule** ([`Rule`]) is here and nowhere else. A full volume gives up whole events, the oldest first.
//! It gives up no event that somebody holds, has named, has mounted, or is reading
//! ([`crate::history::record::Past::note_reading`]), and no event that the request's user could not forget by
//! a command ([`Behalf`]). Names that undo points get by themselves do not count as names here; work under
//! way pins the events that it needs. An event younger than the volume's *floor* is given up only while all
//! history takes more than its *share* of the volume.
//!
//! **H1 Nothing is given up in vain.** A caller that wants room says how much it wants in all ([`Want`]), as
//! far as it knows. A survey ([`survey`]) says how much space the volume would free if it gave up all that
//! the rule allows. If that is too little, the request fails, and everything stays.
//!
//! **H2 Little is given up.** Events go in batches. A batch ends before it could free more than is wanted, or
//! more than a 64th of the volume ([`LOW_WATER`]), whichever is more. The 64th is there because each batch
//! ends with a generation: without it, small writes to a full volume would wait for one generation each. A
//! single event that can free more goes alone. Which events may go is found out once for all batches
//! ([`Plan`]); each event is asked again when its turn comes.
//!
//! **H3 What was promised needs no history.** A write takes its room before its data is accepted
//! ([`yore_core::alloc`]), so writing back accepted data gives nothing up. Nor does anything that the
//! volume does by itself, like the events of intervals, because nobody asked for that.
//!
//! **H4 Leaks come before history.** While a recount behind a crash is under way ([`crate::recounts`]), a
//! caller waits for what it frees, and gives history up only if that is not enough.
//!
//! Locks: a caller takes `making_room` before all others, and holds it while it gives events up. A survey
//! holds forgetting back.

mod rule;
mod survey;

use rule::{Rule, Sorted, LOW_WATER};
pub use rule::{Stays, WouldFree};
pub(crate) use survey::{quick, what_would_free};

use crate::clock::now;
use crate::history::reclaim::forget;
use crate::history::record::Event;
use crate::recounts::LONGEST;
use crate::store::Store;
use crate::time::{print, TimeZone};
use crate::types::Behalf;
use crate::{Error, InodeNo, Result};
use hashbrown::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;
use survey::Gone;
use yore_format::{
    EventKind, EventNo, EventState, Incarnation, OperationKind, OperationRow, RowClass, BLOCK_SIZE,
};

/// The largest number of events in a batch, unless there are very many.
const EVENTS: usize = 256;
/// So many batches are enough for all events that may go, unless blocks limit them. Each batch looks at all
/// events once, for what the others need.
const BATCHES: usize = 128;
/// How many events are marked at a time: others cannot look up events meanwhile.
const MARKED: usize = 1024;
/// How many blocks the trees of the past must have before it pays to give up history for a little metadata.
const TREES: u64 = 64;

/// What a caller wants room for.
pub(crate) struct Want<'w> {
    /// What it is, in words for people.
    pub what: &'static str,
    /// Whose request it is.
    pub behalf: Behalf,
    /// How many data blocks it wants in all, as far as it knows. Called only when the volume is full.
    pub blocks: &'w dyn Fn() -> Result<u64>,
}

impl Want<'_> {
    /// Room for a few blocks of metadata.
    pub(crate) fn little(behalf: Behalf) -> Want<'static> {
        Want { what: "names and metadata", behalf, blocks: &|| Ok(0) }
    }
}

/// Whether a caller can get so many data blocks, by giving up history if need be. This gives nothing up. For
/// callers that write much in pieces, and must know before the first piece.
///
/// # Errors
/// [`Error::NeverFits`] if not, with the amount that would still be missing if all history went that may go;
/// damage and device errors.
pub(crate) fn check(store: &Arc<Store>, behalf: Behalf, blocks: u64) -> Result<()> {
    let has = |more| store.alloc.available(&store.meta, more) >= blocks;
    let mut until = None;
    loop {
        let freed = store.recounts.times_freed();
        if has(0) {
            return Ok(());
        }
        if !wait_for_recount(store, behalf, freed, &mut until) {
            break;
        }
    }
    {
        let _alone = store.past.making_room.lock();
        what_is_dying(store)?;
        // Freed blocks can be used when the generation is complete.
        store.meta.sync()?;
    }
    if has(0) {
        return Ok(());
    }
    let most = match store.keep_history || !store.past.is_any() {
        true => 0,
        false => survey::whole(store, behalf)?.data,
    };
    match blocks.saturating_sub(store.alloc.available(&store.meta, most)) {
        0 => Ok(()),
        missing => Err(Error::NeverFits { missing: missing.saturating_mul(BLOCK_SIZE as u64) }),
    }
}

/// Waits for a recount that is under way and may free what a caller needs that has found no room; `freed` is
/// how often one had freed something before the caller looked. `until` is how long this caller waits in all,
/// which the first call of this sets. False if there is nothing to wait for, or the caller may not wait any
/// longer. The caller holds no lock.
pub(crate) fn wait_for_recount(
    store: &Store,
    behalf: Behalf,
    freed: u64,
    until: &mut Option<Instant>,
) -> bool {
    if behalf == Behalf::Nobody {
        return false;
    }
    let until = *until.get_or_insert_with(|| Instant::now() + LONGEST);
    let may_wait = || !store.gate.is_closed() && !store.closed.load(Ordering::Acquire);
    store.recounts.wait(freed, until, &may_wait)
}

/// Gives up what [`Rule`] allows until there is room for what the caller wants. The call has found no room;
/// `made_before` is the count of rooms made before it began.
///
/// # Errors
/// [`Error::NoSpace`] and [`Error::NeverFits`] if nothing was given up; damage and device errors.
pub(crate) fn make_room(store: &Arc<Store>, want: &Want<'_>, made_before: u64) -> Result<()> {
    if store.keep_history || !store.past.is_any() {
        return Err(Error::NoSpace);
    }
    let made = &store.past.rooms_made;
    let _alone = store.past.making_room.lock();
    if made.load(Ordering::Acquire) != made_before {
        return Ok(()); // Somebody else did, meanwhile.
    }
    let freed = match what_is_dying(store)? {
        0 => give_up(store, want)?,
        freed => freed,
    };
    // Freed blocks can be used when the generation is complete.
    store.meta.sync()?;
    made.fetch_add(1, Ordering::AcqRel);
    tracing::debug!(freed, "room was made");
    Ok(())
}

/// Finishes the forgetting that others have begun, and returns the number of blocks freed.
fn what_is_dying(store: &Arc<Store>) -> Result<u64> {
    match store.past.is_forgetting() {
        true => finish(store).map(|(freed, _)| freed),
        false => Ok(0),
    }
}

/// Gives up what dying events have seen, as far as damage allows it. Returns the number of blocks freed, and
/// the damage.
fn finish(store: &Arc<Store>) -> Result<(u64, Option<Error>)> {
    let before = store.past.space().blocks();
    let (freed, damage) = match forget::finish(store, &mut |_| ControlFlow::Continue(())) {
        Ok(freed) => (freed.blocks, None),
        Err(error) if error.is_damage() => {
            store.check_writable()?;
            tracing::warn!("some of what was forgotten still takes room: {error}");
            (0, Some(error))
        }
        Err(e) => return Err(e),
    };
    Ok((freed.max(before.saturating_sub(store.past.space().blocks())), damage))
}

/// Gives up as much as is wanted, in batches. Returns the number of blocks freed.
fn give_up(store: &Arc<Store>, want: &Want<'_>) -> Result<u64> {
    let blocks = (want.blocks)()?;
    // H1.
    let most = survey::whole(store, want.behalf)?;
    let missing = blocks.saturating_sub(store.alloc.available(&store.meta, most.data));
    if missing > 0 {
        return Err(Error::NeverFits { missing: missing.saturating_mul(BLOCK_SIZE as u64) });
    }
    if !most.any || (most.data == 0 && store.past.space().trees < TREES) {
        return Err(Error::NoSpace);
    }
    let rule = Rule::new(store, want.behalf);
    let mut plan = Plan::new(store, &rule)?;
    let (mut freed, mut is_full) = (0, true);
    while is_full {
        let short = blocks.saturating_sub(store.alloc.available(&store.meta, 0));
        let batch = plan.next_batch(short.max(store.meta.geometry().blocks / LOW_WATER))?;
        if batch.is_empty() {
            break;
        }
        let (more, is_whole) = give_up_batch(store, want, blocks, &batch)?;
        freed += more;
        if !is_whole {
            plan = Plan::new(store, &rule)?;
        }
        is_full = freed == 0 || store.alloc.available(&store.meta, 0) < blocks;
    }
    match freed {
        0 => Err(Error::NoSpace),
        freed => Ok(freed),
    }
}

/// Gives up a batch. Returns the number of blocks freed, and false if somebody has held, pinned or forgotten
/// one of the events since the batch was chosen: then that one stays, and some of the others.
fn give_up_batch(store: &Arc<Store>, want: &Want<'_>, blocks: u64, batch: &[Event]) -> Result<(u64, bool)> {
    let mut marked = 0;
    for some in batch.chunks(MARKED) {
        let numbers: Vec<EventNo> = some.iter().map(|event| event.number).collect();
        match forget::begin(store, &numbers) {
            Ok(()) => marked += some.len(),
            Err(Error::Held { .. } | Error::HeldUntil { .. } | Error::Pinned { .. } | Error::NotFound) => {
                break
            }
            Err(e) => return Err(e),
        }
    }
    let is_whole = marked == batch.len();
    if marked == 0 {
        return Ok((0, is_whole));
    }
    let (freed, damage) = finish(store)?;
    tell(store, want, blocks, &batch[..marked], freed);
    match damage {
        // Nor would a further batch free anything, so it must not be given up.
        Some(damage) if freed == 0 => Err(damage),
        _ => Ok((freed, is_whole)),
    }
}

/// Writes what people read about this, in the log and on the volume.
fn tell(store: &Arc<Store>, want: &Want<'_>, blocks: u64, batch: &[Event], freed: u64) {
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
    let kib = |blocks: u64| blocks * (BLOCK_SIZE as u64 / 1024);
    let need = match blocks {
        0 => want.what.to_string(),
        blocks => format!("{} of {} KiB", want.what, kib(blocks)),
    };
    let zone = TimeZone::system();
    let time = |event: &Event| print(event.row.time, None, &zone);
    let which = match batch.len() {
        1 => format!("the snapshot or version of {}", time(first)),
        n => format!("{n} snapshots and versions, from {} to {}", time(first), time(last)),
    };
    tracing::warn!("the volume is full: gave up {which} for {need}; that freed {} KiB", kib(freed));
    let row = OperationRow {
        time: now(),
        kind: OperationKind::GaveUp,
        uid: match want.behalf {
            Behalf::User(uid) => uid,
            Behalf::Owner | Behalf::Nobody => u32::MAX,
        },
        first: first.number,
        last: last.number,
        count: batch.len() as u64,
        bytes: freed * BLOCK_SIZE as u64,
        path: Vec::new(),
        note: format!("{which}; for {need}"),
    };
    // The history is gone, whether or not that can be recorded.
    if let Err(error) = store.past.note_operation(store, RowClass::GivenUp, &row) {
        tracing::warn!("what was given up could not be recorded on the volume: {error}");
    }
}

/// The largest number of events in a batch, of so many that may go.
fn most_events(may_go: usize) -> usize {
    EVENTS.max(may_go / BATCHES)
}

/// The events that may go, the oldest first, and how far they have gone. All events are read once for it, and
/// not once for each batch.
struct Plan<'s> {
    store: &'s Arc<Store>,
    rule: &'s Rule<'s>,
    /// Each with whether it is young.
    may_go: Vec<(EventNo, bool)>,
    /// How many of these are behind.
    passed: usize,
    gone: Gone<'s>,
    /// Files of which a version has come to stay since.
    stay: HashSet<(InodeNo, Incarnation)>,
}

impl<'s> Plan<'s> {
    fn new(store: &'s Arc<Store>, rule: &'s Rule<'s>) -> Result<Plan<'s>> {
        let Sorted { old, young, stay } = rule.sort()?;
        let mut may_go: Vec<(EventNo, bool)> = old.iter().map(|event| (event.number, false)).collect();
        may_go.extend(young.iter().map(|event| (event.number, true)));
        may_go.sort_unstable();
        let kept: HashSet<EventNo> = stay.iter().map(|(event, _)| event.number).collect();
        let goes: HashSet<EventNo> = may_go.iter().map(|(event, _)| *event).collect();
        let gone = Gone::new(store, &kept, &goes)?;
        Ok(Plan { store, rule, may_go, passed: 0, gone, stay: HashSet::new() })
    }

    /// The events to give up next: as many as free no more than this, or a single one. Those that were in a
    /// batch before are in none again.
    fn next_batch(&mut self, most: u64) -> Result<Vec<Event>> {
        let most_events = most_events(self.may_go.len());
        let mut over = self.store.past.space().blocks().saturating_sub(self.rule.share);
        let (mut batch, mut sum) = (Vec::new(), 0u64);
        while let Some((number, is_young)) = self.may_go.get(self.passed).copied() {
            let event = match is_young && over == 0 {
                true => None,
                false => self.still_goes(number)?,
            };
            let Some(event) = event else {
                self.passed += 1;
                continue;
            };
            let frees = self.gone.with(&event, most.saturating_sub(sum))?;
            if !batch.is_empty() && sum.saturating_add(frees) > most {
                break;
            }
            self.passed += 1;
            sum = sum.saturating_add(frees);
            over = over.saturating_sub(frees);
            batch.push(event);
            if sum >= most || batch.len() >= most_events {
                break;
            }
        }
        Ok(batch)
    }

    /// The event, if it may still go: others may have named, held, read or forgotten it meanwhile.
    fn still_goes(&mut self, number: EventNo) -> Result<Option<Event>> {
        let event = match self.store.past.in_state(&self.store.meta, number, EventState::Kept) {
            Err(Error::NotFound) => return Ok(None),
            found => found?,
        };
        let root = (event.row.root, event.row.root_incarnation);
        let is_removal = event.row.kind == EventKind::Removed;
        if is_removal && self.stay.contains(&root) {
            return Ok(None);
        }
        if self.rule.stays(&event)?.is_some() {
            if event.row.kind.is_of_file() && !is_removal {
                self.stay.insert(root);
            }
            return Ok(None);
        }
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests;
