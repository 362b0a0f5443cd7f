//! What each event holds of the past, known without a walk: the sums of
//! [`crate::history::record::SpanTable`], made by one walk when somebody first asks and exact from then on.
//!
//! **For which volumes.** All kept events are of the root directory, so each sees whatever there was then.
//! And no block that history has is shared: of a shared block nobody can say whose reference is the last.
//! Elsewhere who asks walks through the versions.
//!
//! **S1 What a sum is of.** Blocks that no inode in use has any more are held by some states of one chain: by
//! those that ended after the birth of the blocks, up to the newest one when the inode in use let go of them.
//! The events that see one of these states see the blocks. What an event sees never becomes more, and an
//! event that goes is not in the sums: who asks looks at the events that are kept then. So neither taking nor
//! forgetting events changes a sum.
//!
//! **S2 Notes.** Each Op by which an inode in use leaves blocks to its versions notes whose they are, their
//! birth, and the end of the newest version ([`yore_meta::LeftNotes`]). Which states have them is looked up
//! later, with forgetting held back, in the versions that are there then: states that were given up since
//! were seen by no kept event. So nothing is taken from births alone: an inode may have been born anew
//! without a version, and older events do not see it.
//!
//! **S3 The walk** asks of each version what the next state does not have. It does so with the inode locked,
//! and removes the notes of the same: they say what the walk has just counted. Notes that are made later, or
//! of versions that are made later, stay. Versions that are given up during the walk end it without a result.
//!
//! **S4 What the sums cannot follow** ends them, and the next one who asks walks again: expunging, which
//! takes versions that kept events see; nodes whose birth is not known; more notes or sums than there is room
//! for. They are in memory alone, so a crash leaves nothing that could be wrong.

use crate::history::reclaim::alone::let_go_by_birth;
use crate::history::record::{SpanTable, VersionsWalk};
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_format::{EventNo, Incarnation};
use yore_meta::{Left, LeftBlocks};

/// How many versions are looked at under one hold of the lock that keeps forgetting back.
const BATCH: usize = 64;
/// How long sums are kept up after the last question.
const UNASKED: Duration = Duration::from_secs(600);
/// So many notes are looked up for a caller that does not wait.
const QUICK: usize = 4096;

/// How long the answer may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as a walk through all versions takes.
    Walk,
    /// No walk, and no waiting for locks.
    None,
}

/// What is seen by which events.
pub(crate) struct Seen {
    /// The kept events, in ascending order.
    pub kept: Vec<EventNo>,
    /// Sums by ranges of their indexes; none is empty.
    pub cells: HashMap<Vec<Range<usize>>, LeftBlocks>,
}

impl Seen {
    /// What is freed if of the kept events exactly those go for which `goes` says so.
    pub(crate) fn freed(&self, goes: impl Fn(EventNo) -> bool) -> LeftBlocks {
        let stay = self.staying(goes);
        let mut freed = LeftBlocks::default();
        self.cells.iter().filter(|(seen, _)| is_free(&stay, seen)).for_each(|(_, blocks)| freed += *blocks);
        freed
    }

    /// The same, by the last event that sees it.
    pub(crate) fn freed_with(&self, goes: impl Fn(EventNo) -> bool) -> HashMap<EventNo, LeftBlocks> {
        let stay = self.staying(goes);
        let mut freed: HashMap<EventNo, LeftBlocks> = HashMap::new();
        for (seen, blocks) in self.cells.iter().filter(|(seen, _)| is_free(&stay, seen)) {
            let last = seen.last().map_or(0, |range| range.end - 1);
            *freed.entry(self.kept[last]).or_default() += *blocks;
        }
        freed
    }

    /// How many of the events before each one stay.
    fn staying(&self, goes: impl Fn(EventNo) -> bool) -> Vec<usize> {
        let mut stay = vec![0];
        stay.extend(self.kept.iter().scan(0, |count, event| {
            *count += usize::from(!goes(*event));
            Some(*count)
        }));
        stay
    }
}

fn is_free(stay: &[usize], seen: &[Range<usize>]) -> bool {
    seen.iter().all(|range| stay[range.start] == stay[range.end])
}

/// What is seen by which events, if the sums can tell, or a walk can make them.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn seen(store: &Arc<Store>, patience: Patience) -> Result<Option<Seen>> {
    let (spans, past, left) = (&store.spans, &store.past, store.meta.left());
    if spans.is_unused() {
        return Ok(None);
    }
    let mut table = match patience {
        Patience::Walk => spans.table.lock(),
        Patience::None => match spans.table.try_lock() {
            Some(table) => table,
            None => return Ok(None),
        },
    };
    let can_follow = past.has_one_class();
    if table.is_some() && (spans.is_to_drop() || left.is_lost() || !can_follow) {
        end(store, &mut table);
    }
    if !can_follow || past.shares_blocks(&store.meta) {
        return Ok(None);
    }
    if table.is_none() {
        if patience == Patience::None {
            return Ok(None);
        }
        *table = begin(store)?;
    }
    let Some(sums) = table.as_mut() else { return Ok(None) };
    sums.asked = Instant::now();
    let seen = (|| {
        let still = match patience {
            Patience::Walk => Some(past.forgetting.lock()),
            Patience::None if left.count() > QUICK => None,
            Patience::None => past.forgetting.try_lock(),
        };
        if still.is_none() {
            return Ok((true, None));
        }
        if !add_noted(store, sums)? {
            return Ok((false, None));
        }
        let kept = past.kept_numbers();
        let cells = sums.by_events(&kept);
        let mut all = LeftBlocks::default();
        cells.values().for_each(|blocks| all += *blocks);
        let space = past.space();
        if all.data > space.data || all.nodes > space.nodes {
            tracing::warn!(
                "snapshots seem to hold {} and {} blocks, and history has {} and {}: it is counted anew",
                all.data,
                all.nodes,
                space.data,
                space.nodes
            );
            spans.refute();
            return Ok((false, None));
        }
        Ok((!spans.is_to_drop(), Some(Seen { kept, cells })))
    })();
    match seen {
        Ok((true, seen)) => Ok(seen),
        other => {
            end(store, &mut table);
            other.map(|_| None)
        }
    }
}

/// Whether the next question needs no walk.
pub(crate) fn is_known(store: &Store) -> bool {
    store.spans.table.lock().is_some() && !store.spans.is_to_drop() && !store.meta.left().is_lost()
}

/// Looks up what was noted, before there is too much of it. Nobody keeps sums up that nobody asks for.
///
/// # Errors
/// Damage and device errors; then there are no sums any more.
pub(crate) fn keep_up(store: &Arc<Store>) -> Result<()> {
    let Some(mut table) = store.spans.table.try_lock() else { return Ok(()) };
    let Some(sums) = table.as_mut() else { return Ok(()) };
    let is_sound = match (sums.asked.elapsed() < UNASKED, store.past.forgetting.try_lock()) {
        (true, Some(_still)) => add_noted(store, sums),
        (true, None) => Ok(true),
        (false, _) => Ok(false),
    };
    if !matches!(is_sound, Ok(true)) {
        end(store, &mut table);
    }
    is_sound.map(drop)
}

fn end(store: &Store, table: &mut Option<SpanTable>) {
    *table = None;
    store.meta.left().end();
}

/// Makes the sums by a walk (S3). `None`: something happened meanwhile that they could not follow.
fn begin(store: &Arc<Store>) -> Result<Option<SpanTable>> {
    let left = store.meta.left();
    store.spans.begin();
    left.begin();
    let made = walk(store);
    if !matches!(made, Ok(Some(_))) {
        left.end();
    }
    made
}

fn walk(store: &Arc<Store>) -> Result<Option<SpanTable>> {
    let (past, left) = (&store.past, store.meta.left());
    let given_up = past.given_up();
    let mut sums = SpanTable::default();
    let mut chain = Chain::default();
    let mut walk = VersionsWalk::default();
    loop {
        let _still = past.forgetting.lock();
        if past.given_up() != given_up || left.is_lost() || store.spans.is_to_drop() {
            return Ok(None);
        }
        let Some(found) = past.next_versions(&store.meta, &mut walk, BATCH)? else { return Ok(Some(sums)) };
        for (no, version) in &found {
            let (incarnation, end) = (version.inode.incarnation, version.end);
            chain.next((*no, incarnation), (version.inode.born, end));
            let found = let_go_by_birth(store, *no, version, |later| {
                left.forget(*no, incarnation, end, later.unwrap_or(EventNo(u64::MAX)));
            })?;
            for (birth, blocks) in found.by_birth {
                sums.add(chain.that_have(birth, end), blocks, |from, to| past.any_kept_in(from, to));
            }
        }
        if !sums.merge(&past.kept_numbers()) {
            return Ok(None);
        }
    }
}

/// Adds what was noted (S2). False: the sums are wrong now. The caller holds forgetting back.
fn add_noted(store: &Store, sums: &mut SpanTable) -> Result<bool> {
    let (past, left) = (&store.past, store.meta.left());
    let notes: Vec<(Left, LeftBlocks)> = left.take().into_iter().collect();
    for of_one in notes.chunk_by(|(a, _), (b, _)| (a.inode, a.incarnation) == (b.inode, b.incarnation)) {
        let (inode, incarnation) = (of_one[0].0.inode, of_one[0].0.incarnation);
        let oldest = of_one.iter().map(|(note, _)| note.birth).min().unwrap_or_default();
        let mut chain = Chain::default();
        for version in past.versions_of(&store.meta, inode, oldest, EventNo(u64::MAX))? {
            if version.inode.incarnation == incarnation {
                chain.next((inode, incarnation), (version.inode.born, version.end));
            }
        }
        for (note, blocks) in of_one {
            let states = chain.that_have(note.birth, note.end);
            sums.add(states, *blocks, |from, to| past.any_kept_in(from, to));
        }
    }
    Ok(sums.merge(&past.kept_numbers()) && !left.is_lost())
}

/// The states of one incarnation of an inode, the oldest first.
#[derive(Default)]
struct Chain {
    of: (InodeNo, Incarnation),
    states: Vec<(EventNo, EventNo)>,
}

impl Chain {
    /// The next state of the walk: one of this chain, or the first of another one.
    fn next(&mut self, of: (InodeNo, Incarnation), state: (EventNo, EventNo)) {
        if self.of != of {
            *self = Chain { of, states: Vec::new() };
        }
        self.states.push(state);
    }

    /// Those that have what was born then, up to the one that ended at `last` (S1).
    fn that_have(&self, birth: EventNo, last: EventNo) -> impl Iterator<Item = (EventNo, EventNo)> + '_ {
        let first = self.states.partition_point(|(_, end)| *end <= birth);
        self.states[first..].iter().copied().take_while(move |(_, end)| *end <= last)
    }
}
