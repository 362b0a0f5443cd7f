//! What each event holds of the past, known without a walk: the sums of
//! [`crate::history::record::SpanTable`], made by one walk and exact from then on. The walk is made in the
//! background when nobody asks for anything, or by whoever asks first.
//!
//! **For which volumes.** For all, but those of which nobody has counted the references of history
//! ([`crate::history::record::Past::references`]). Sums are of references; S5 says what of them is shared.
//!
//! **S1 What a sum is of.** Blocks that no inode in use has any more are held by some states of one chain: by
//! those that ended after the birth of the blocks, up to the newest one when the inode in use let go of them.
//! The events that see one of these states see the blocks, as [`crate::history::reclaim::seers`] finds them:
//! events of the root directory, of directories above the inode at that time, and of the inode itself. What
//! an event sees never becomes more, and an event that goes is not in the sums: who asks looks at the events
//! that are kept then. So neither taking nor forgetting events changes a sum.
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
//! It goes in steps, and anybody may go on with it: housekeeping while nobody asks for anything, a little at
//! a time; who wants the answer, to the end.
//!
//! **S4 What the sums cannot follow** ends them, and they are made anew: expunging, which takes versions that
//! kept events see; nodes whose birth is not known; more notes or sums than there is room for.
//!
//! **S5 Shared blocks.** Of a block with further references nobody can say whose reference is the last, so it
//! is not counted as freed by anybody. Whether a block has some changes with what others do, and nothing
//! leads from a block to its files. So which of the references are shared is not summed up: inodes whose
//! versions may have some are remembered ([`yore_meta::Sharing`]), and who asks looks at the versions of
//! these alone. None is missed: a reference that an inode in use leaves to its versions, with an entry in the
//! count table, is noted in the Op that finds the entry; and a block with one reference, which versions have,
//! gets a second one only from a file that gains it from one of these versions, which is noted behind the
//! change of the count. Those from before are found by the walk. Who asks takes out the set before it looks,
//! and puts back what it has found to share, so that what is noted meanwhile stays. It adds the notes of what
//! it looks at with the inode locked, as the walk drops them, so that sums and shared parts are of one
//! moment.
//!
//! **S6 Over a mount.** A volume that is closed while there are sums gets them as a hint, and the next mount
//! begins with them ([`hint`]).
//!
//! **How long they are kept up.** Looking a note up costs about what a version costs the walk, and gets in
//! the way of calls that record. So notes wait until nobody asks the volume for anything, or somebody asks
//! for the sums. Sums that nobody asks for are given up when more was noted than there is room for meanwhile,
//! or than a new walk would look at; and made again when the volume is idle.

use crate::history::reclaim::alone::{let_go_by_birth, LetGoBlocks};
use crate::history::reclaim::seers;
use crate::history::record::{Chain, Events, Kept, Making, Seers, SpanTable, Table};
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_format::{EventNo, Incarnation};
use yore_meta::{Left, LeftBlocks, Notes};

pub(crate) mod hint;

/// How many versions are looked at under one hold of the lock that keeps forgetting back.
const BATCH: usize = 64;
/// How long sums are kept up after the last question, whatever it takes.
const UNASKED: Duration = Duration::from_secs(600);
/// So many notes are looked up between two questions at least.
const NOTES_FEW: u64 = 1 << 16;
/// So many notes wait for a moment in which nobody asks the volume for anything.
const NOTES_MANY: usize = 1 << 15;
/// So many notes are looked up for a caller that does not wait.
const QUICK: usize = 4096;
/// When a walk had no result that is no use trying again soon: for so long nobody makes one in the
/// background.
const LATER: Duration = Duration::from_secs(600);

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
    /// The kept events.
    pub kept: Kept,
    /// Sums by the events that see the blocks; none is empty.
    pub cells: HashMap<Vec<Events>, LetGoBlocks>,
}

impl Seen {
    /// What is freed if of the kept events exactly those go for which `goes` says so.
    pub(crate) fn freed(&self, goes: impl Fn(EventNo) -> bool) -> LeftBlocks {
        let stay = self.kept.staying(goes);
        let mut freed = LeftBlocks::default();
        let goes = self.cells.iter().filter(|(seen, _)| is_free(&stay, seen));
        goes.for_each(|(_, blocks)| freed += blocks.goes());
        freed
    }

    /// The same, by the last event that sees it.
    pub(crate) fn freed_with(&self, goes: impl Fn(EventNo) -> bool) -> HashMap<EventNo, LeftBlocks> {
        let stay = self.kept.staying(goes);
        let mut freed: HashMap<EventNo, LeftBlocks> = HashMap::new();
        for (seen, blocks) in self.cells.iter().filter(|(seen, _)| is_free(&stay, seen)) {
            let last = seen.iter().map(|(root, range)| self.kept.of(*root)[range.end - 1]).max();
            *freed.entry(last.unwrap_or_default()).or_default() += blocks.goes();
        }
        freed
    }
}

fn is_free(stay: &HashMap<InodeNo, Vec<usize>>, seen: &[Events]) -> bool {
    seen.iter().all(|(root, range)| stay.get(root).is_none_or(|stay| stay[range.start] == stay[range.end]))
}

/// Whether the references that history has are counted, and nobody wants a walk.
fn can_follow(store: &Store) -> bool {
    !store.spans.is_unused() && store.past.is_any() && store.past.references(&store.meta).is_some()
}

/// What is seen by which events, if the sums can tell, or a walk can make them.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn seen(store: &Arc<Store>, patience: Patience) -> Result<Option<Seen>> {
    let (spans, past, left) = (&store.spans, &store.past, store.meta.left());
    if !can_follow(store) {
        return Ok(None);
    }
    let mut table = match patience {
        Patience::Walk => spans.table.lock(),
        Patience::None => match spans.table.try_lock() {
            Some(table) => table,
            None => return Ok(None),
        },
    };
    drop_if_wrong(store, &mut table);
    if patience == Patience::Walk {
        // What was begun may come to nothing because of what happened before the question.
        let was_begun = matches!(*table, Table::Begun(_));
        make(store, &mut table, None)?;
        if was_begun && matches!(*table, Table::None { .. }) {
            make(store, &mut table, None)?;
        }
    }
    let Table::Known(sums) = &mut *table else { return Ok(None) };
    sums.note_asked();
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
        if patience == Patience::None && !sums.sharing.is_empty() {
            return Ok((true, None));
        }
        let shared = shared_parts(store, sums)?;
        let seen = sum_up(store, sums, &shared);
        let is_sound = seen.is_some() && sums.merge(past) && !left.is_lost() && !spans.is_to_drop();
        Ok((is_sound, seen.filter(|_| is_sound)))
    })();
    match seen {
        Ok((true, seen)) => Ok(seen),
        other => {
            end(store, &mut table, Duration::ZERO);
            other.map(|_| None)
        }
    }
}

/// What is seen by which of the kept events. `None`: it is more than there is. The caller holds forgetting
/// back.
fn sum_up(store: &Store, sums: &SpanTable, shared: &SpanTable) -> Option<Seen> {
    let kept = store.past.kept();
    let (mut cells, mut all) = (HashMap::new(), LeftBlocks::default());
    for (seen, left) in sums.by_events(&kept) {
        all += left;
        cells.insert(seen, LetGoBlocks { left, shared: 0 });
    }
    for (seen, blocks) in shared.by_events(&kept) {
        cells.entry(seen).or_default().shared = blocks.data;
    }
    let references = store.past.references(&store.meta)?;
    let nodes = store.past.space().nodes;
    if all.data <= references && all.nodes <= nodes {
        return Some(Seen { kept, cells });
    }
    tracing::warn!(
        "snapshots seem to hold {} and {} blocks, and history has {references} and {nodes}: it is counted anew",
        all.data,
        all.nodes,
    );
    store.spans.refute();
    None
}

/// Of what the sums have, the references to blocks with further ones (S5). O(versions of the inodes that may
/// have some). The caller holds forgetting back.
fn shared_parts(store: &Arc<Store>, sums: &mut SpanTable) -> Result<SpanTable> {
    let (mut shared, mut seers) = (SpanTable::default(), Seers::default());
    for of in std::mem::take(&mut sums.sharing) {
        if shared_parts_of(store, of, sums, (&mut shared, &mut seers))? {
            sums.sharing.insert(of);
        }
    }
    Ok(shared)
}

/// The same for one inode. Returns whether there are any.
fn shared_parts_of(
    store: &Arc<Store>,
    (no, incarnation): (InodeNo, Incarnation),
    sums: &mut SpanTable,
    (shared, seers): (&mut SpanTable, &mut Seers),
) -> Result<bool> {
    let (past, left) = (&store.past, store.meta.left());
    let (mut chain, mut is_any) = (Chain::default(), false);
    for version in past.versions_of(&store.meta, no, EventNo(0), EventNo(u64::MAX))? {
        if version.inode.incarnation != incarnation {
            continue;
        }
        let end = version.end;
        chain.next((no, incarnation), end, seers::of(store, seers, no, &version)?);
        let mut notes = Notes::new();
        let found = let_go_by_birth(store, no, &version, |later| {
            notes = left.take_of(no, incarnation, end, later.unwrap_or(EventNo(u64::MAX)));
        })?;
        sums.added += notes.len() as u64;
        for (note, blocks) in notes {
            sums.add(chain.that_have(note.birth, note.end), blocks, &seers.kept);
        }
        for (birth, blocks) in found.by_birth.into_iter().filter(|(_, blocks)| blocks.shared > 0) {
            let blocks = LeftBlocks { data: blocks.shared, nodes: 0 };
            shared.add(chain.that_have(birth, end), blocks, &seers.kept);
            is_any = true;
        }
    }
    Ok(is_any)
}

/// Whether the next question needs no walk.
pub(crate) fn is_known(store: &Store) -> bool {
    let is_known = matches!(*store.spans.table.lock(), Table::Known(_));
    is_known && !store.spans.is_to_drop() && !store.meta.left().is_lost()
}

/// Looks up what was noted: while nobody asks the volume for anything, or before there is too much of it for
/// who asks for the sums.
///
/// # Errors
/// Damage and device errors; then there are no sums any more.
pub(crate) fn keep_up(store: &Arc<Store>, is_idle: bool) -> Result<()> {
    let Some(mut table) = store.spans.table.try_lock() else { return Ok(()) };
    drop_if_wrong(store, &mut table);
    let Table::Known(sums) = &mut *table else { return Ok(()) };
    let is_asked = sums.asked.is_some_and(|asked| asked.elapsed() < UNASKED);
    if !is_idle && (!is_asked || store.meta.left().count() < NOTES_MANY) {
        return Ok(());
    }
    let is_worth = is_asked || sums.added <= sums.versions.max(NOTES_FEW);
    let is_sound = match (is_worth, store.past.forgetting.try_lock()) {
        (true, Some(_still)) => add_noted(store, sums),
        (true, None) => Ok(true),
        (false, _) => Ok(false),
    };
    if !matches!(is_sound, Ok(true)) {
        end(store, &mut table, Duration::ZERO);
    }
    is_sound.map(drop)
}

/// Goes on with making the sums for so long, if there are none and they can be made. Returns whether there is
/// more to do.
///
/// # Errors
/// Damage and device errors; then nobody tries again for a while.
pub(crate) fn make_ahead(store: &Arc<Store>, budget: Duration) -> Result<bool> {
    if !can_follow(store) || store.past.is_forgetting() {
        return Ok(false);
    }
    let Some(mut table) = store.spans.table.try_lock() else { return Ok(true) };
    drop_if_wrong(store, &mut table);
    match &*table {
        Table::Known(_) => return Ok(false),
        Table::None { not_before } if not_before.is_some_and(|then| Instant::now() < then) => {
            return Ok(false)
        }
        Table::None { .. } | Table::Begun(_) => {}
    }
    make(store, &mut table, Some(budget))?;
    Ok(matches!(*table, Table::Begun(_)))
}

/// Ends sums that are wrong, or that nobody can tell to be right.
fn drop_if_wrong(store: &Store, table: &mut Table) {
    let is_wrong = store.spans.is_to_drop() || store.meta.left().is_lost();
    if is_wrong && !matches!(table, Table::None { .. }) {
        end(store, table, Duration::ZERO);
    }
}

/// Ends the sums. In the background they are not made anew for so long.
fn end(store: &Store, table: &mut Table, wait: Duration) {
    *table = Table::None { not_before: Some(Instant::now() + wait) };
    store.meta.left().end();
}

/// Makes the sums, if there are none, for so long; `None`: to the end. Something may happen meanwhile that
/// they cannot follow; then there are none.
fn make(store: &Arc<Store>, table: &mut Table, budget: Option<Duration>) -> Result<()> {
    let left = store.meta.left();
    if matches!(table, Table::None { .. }) {
        store.spans.begin();
        left.begin();
        *table = Table::Begun(Box::new(Making { given_up: store.past.given_up(), ..Making::default() }));
    }
    let (Table::Begun(making), began) = (&mut *table, Instant::now()) else { return Ok(()) };
    let made = loop {
        match step(store, making) {
            Ok(Step::More) if budget.is_some_and(|budget| began.elapsed() >= budget) => return Ok(()),
            Ok(Step::More) => {}
            Ok(Step::Done) => break Ok(Duration::ZERO),
            Ok(Step::Overtaken) => break Err((Duration::ZERO, Ok(()))),
            Ok(Step::TooMuch) => break Err((LATER, Ok(()))),
            Err(error) => break Err((LATER, Err(error))),
        }
    };
    match made {
        Ok(_) => {
            *table = Table::Known(Box::new(std::mem::take(&mut making.sums)));
            Ok(())
        }
        Err((wait, result)) => {
            end(store, table, wait);
            result
        }
    }
}

/// What has become of a walk.
enum Step {
    More,
    Done,
    /// Something happened that it could not follow.
    Overtaken,
    /// There are too many sums.
    TooMuch,
}

/// Looks at some more versions (S3).
fn step(store: &Arc<Store>, making: &mut Making) -> Result<Step> {
    let (past, left) = (&store.past, store.meta.left());
    let _still = past.forgetting.lock();
    if past.given_up() != making.given_up || left.is_lost() || store.spans.is_to_drop() {
        return Ok(Step::Overtaken);
    }
    let Making { walk, chain, seers, sums, .. } = making;
    let Some(found) = past.next_versions(&store.meta, walk, BATCH)? else { return Ok(Step::Done) };
    sums.versions += found.len() as u64;
    for (no, version) in &found {
        let (incarnation, end) = (version.inode.incarnation, version.end);
        chain.next((*no, incarnation), end, seers::of(store, seers, *no, version)?);
        let found = let_go_by_birth(store, *no, version, |later| {
            left.forget(*no, incarnation, end, later.unwrap_or(EventNo(u64::MAX)));
        })?;
        for (birth, blocks) in found.by_birth {
            sums.add(chain.that_have(birth, end), blocks.left, &seers.kept);
            if blocks.shared > 0 {
                sums.sharing.insert((*no, incarnation));
            }
        }
    }
    Ok(if sums.merge(past) { Step::More } else { Step::TooMuch })
}

/// Adds what was noted (S2). False: the sums are wrong now. The caller holds forgetting back.
fn add_noted(store: &Arc<Store>, sums: &mut SpanTable) -> Result<bool> {
    let (past, left) = (&store.past, store.meta.left());
    let notes: Vec<(Left, LeftBlocks)> = left.take().into_iter().collect();
    sums.added += notes.len() as u64;
    sums.sharing.append(&mut left.take_sharing());
    let mut seers = Seers::default();
    for of_one in notes.chunk_by(|(a, _), (b, _)| (a.inode, a.incarnation) == (b.inode, b.incarnation)) {
        let (inode, incarnation) = (of_one[0].0.inode, of_one[0].0.incarnation);
        let oldest = of_one.iter().map(|(note, _)| note.birth).min().unwrap_or_default();
        let mut chain = Chain::default();
        for version in past.versions_of(&store.meta, inode, oldest, EventNo(u64::MAX))? {
            if version.inode.incarnation == incarnation {
                chain.next((inode, incarnation), version.end, seers::of(store, &mut seers, inode, &version)?);
            }
        }
        for (note, blocks) in of_one {
            sums.add(chain.that_have(note.birth, note.end), *blocks, &seers.kept);
        }
    }
    Ok(sums.merge(past) && !left.is_lost())
}

#[cfg(test)]
mod tests;
