//! Forgetting: events are given up, together with what no other event has seen.
//!
//! An event that is to be forgotten becomes *dying*: nobody sees it any more. But it still counts among the
//! events that cover an inode ([`crate::history::record`]), because the medium may not know yet that it is
//! dying. Once the medium does, nothing more is kept for it (P5), and what only dying events have seen is
//! given up, with everything that it alone holds: rows of the annals together, several in one Op (`rows.rs`),
//! and what is in the old trees, one version or name in each. When nothing of that is left, the event is
//! *forgotten*: its row moves to a tree of its own and holds nothing. All this can stop at any point, even in
//! a crash, and goes on where it stopped: what was given up is not found again.
//!
//! `needed.rs` tells what is needed, and `alone.rs`, with rule F1, what a version holds alone.
//!
//! **F2 What others do meanwhile does not count.** Events that are taken during this have the number that was
//! the next one at its beginning, or greater ones. So this looks at nothing that ended later, because those
//! events may have seen it. Nothing that ends earlier is added for the dying events. A directory that becomes
//! a version after its present state was looked at is looked at again as that version.
//!
//! **F3 Which versions and names are looked at.** The tree of changes has an entry at the end of each version
//! and name. What a dying event has seen ended after it. What ended after the next kept event of the same
//! directory, or of the volume, that next event has seen, too, unless something above was moved in between.
//! Such leftovers are found when the later event is forgotten.
//!
//! **F4 Versions beside those that go.** Some versions are needed by nobody from the beginning: what covers
//! an inode is rounded down to an event of any directory (P5), and leftovers of F3 wait. Their blocks are
//! often those of the version before or behind. So whoever gives up a version also gives up its neighbours in
//! its chain as far as nothing needs them, and what an event is said to hold alone is freed with it.

use crate::history::reclaim::alone::give_up_version;
use crate::history::reclaim::expunge;
use crate::history::reclaim::needed::{has_one_name, Needed};
use crate::history::reclaim::rows::give_up_rows;
use crate::history::record::{Ask, Ended, EndedBatch, EndedRow, EndsWalk, Forgetting, LeavingRow, PastEntry};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_format::{EventNo, EventState, Inode, Version, HISTORY_SHARDS};

/// Ends of versions and names looked up at a time, and rows given up together.
const BATCH: usize = 64;

/// Marks events as dying, unless one of them must stay. Durable on return. [`finish`] does the rest.
///
/// # Errors
/// `NotFound` if one is not kept, `Held`, `Pinned`; damage and device errors.
pub(crate) fn begin(store: &Arc<Store>, events: &[EventNo]) -> Result<()> {
    store.check_writable()?;
    let events: BTreeSet<EventNo> = events.iter().copied().collect();
    store.past.mark_dying(store, &events.into_iter().collect::<Vec<_>>())?;
    force(store)
}

/// On return the marks are on the medium, too.
fn force(store: &Store) -> Result<()> {
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::ForgottenUnforced) {
        return Ok(());
    }
    Ok(store.meta.force_all()?)
}

/// Gives up what only dying events have seen, until nothing is left or `ask` breaks. One caller at a time;
/// others wait.
///
/// # Errors
/// Damage and device errors, after everything is given up that they do not concern. The next call gives up
/// what this one did not.
pub(crate) fn finish(store: &Arc<Store>, ask: Ask<'_>) -> Result<Forgetting> {
    store.check_writable()?;
    let _alone = store.past.forgetting.lock();
    let mut so_far = Forgetting::default();
    loop {
        let dying = store.past.dying();
        so_far.dying = dying.len() as u64;
        so_far.expunging = store.past.expunging.count() as u64;
        if (so_far.dying, so_far.expunging) == (0, 0) || ask(&so_far).is_break() {
            return Ok(so_far);
        }
        let expunging = match expunge::go_on(store, &mut so_far, ask) {
            Ok(ControlFlow::Break(())) => return Ok(so_far),
            Ok(ControlFlow::Continue(())) => None,
            // It does not concern what events have seen.
            Err(damage) if damage.is_damage() => {
                store.check_writable()?;
                Some(damage)
            }
            Err(e) => return Err(e),
        };
        // Some of them may have been marked by a caller that could not wait for the medium.
        force(store)?;
        store.past.note_dead(&dying);
        let mut work = Work { store, needed: Needed::load(store)?, so_far };
        let (done, damage) = match work.give_up(&dying, ask) {
            Ok(ControlFlow::Continue(())) => (dying, None),
            Ok(ControlFlow::Break(())) => return Ok(work.so_far),
            Err(error) if error.is_damage() => work.one_by_one(&dying, ask)?,
            Err(e) => return Err(e),
        };
        so_far = work.so_far;
        for event in done {
            store.past.mark_forgotten(store, event)?;
            so_far.forgotten += 1;
            so_far.dying -= 1;
        }
        if let Some(damage) = damage.or(expunging) {
            return Err(damage);
        }
    }
}

struct Work<'s> {
    store: &'s Arc<Store>,
    needed: Needed<'s>,
    so_far: Forgetting,
}

impl Work<'_> {
    fn give_up(&mut self, dying: &[EventNo], ask: Ask<'_>) -> Result<ControlFlow<()>> {
        let mut others = Vec::new();
        let progress = &self.store.giving_up;
        progress.restart(dying.len() as u64);
        for (i, event) in dying.iter().enumerate() {
            let found = self.store.past.in_state(&self.store.meta, *event, EventState::Dying)?;
            if !found.row.kind.is_of_file() || !self.seen_by(found.row.root, *event)? {
                others.push(*event);
            }
            progress.add(1);
            if i % BATCH == BATCH - 1 && ask(&self.so_far).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let spans = self.needed.spans(&others)?;
        // The estimate takes ends of versions and names as evenly spread over the numbers.
        let numbers = |(after, last): &(EventNo, EventNo)| last.0.saturating_sub(after.0);
        progress.expect(spans.iter().map(numbers).sum::<u64>().saturating_mul(HISTORY_SHARDS as u64));
        for (after, last) in spans {
            let mut walk = EndsWalk::of(after, last);
            let mut passed = 0;
            while let Some(batch) = self.store.past.next_batch(&self.store.meta, &mut walk, BATCH)? {
                let is_full = match batch {
                    EndedBatch::Ends(ended) => {
                        for one in &ended {
                            self.examine(one)?;
                            self.so_far.examined += 1;
                        }
                        ended.len() >= BATCH
                    }
                    EndedBatch::Rows(rows) => {
                        let is_full = rows.len() == BATCH;
                        self.rows(rows)?;
                        is_full
                    }
                };
                progress.add(walk.passed().saturating_sub(passed));
                passed = walk.passed().max(passed);
                if is_full && ask(&self.so_far).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            progress.add(walk.passed().saturating_sub(passed));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As [`Work::give_up`], for one event after the other, since a damaged inode concerns only those that
    /// have seen it. Returns the events that have nothing left, and the first damage that kept others from
    /// that.
    fn one_by_one(&mut self, dying: &[EventNo], ask: Ask<'_>) -> Result<(Vec<EventNo>, Option<Error>)> {
        let (mut done, mut damage) = (Vec::new(), None);
        for event in dying {
            match self.give_up(&[*event], ask) {
                Ok(ControlFlow::Continue(())) => done.push(*event),
                Ok(ControlFlow::Break(())) => break,
                Err(error) if error.is_damage() => damage = damage.or(Some(error)),
                Err(e) => return Err(e),
            }
        }
        Ok((done, damage))
    }

    /// Gives up what nothing needs of rows of one shard, in ascending order.
    fn rows(&mut self, rows: Vec<EndedRow>) -> Result<()> {
        let mut leaving: Vec<LeavingRow> = Vec::new();
        for row in rows {
            let facts = u64::from(row.version.is_some()) + u64::from(row.name.is_some());
            self.so_far.examined += facts;
            let version_goes = match &row.version {
                Some((no, version)) => !self.needs_version(*no, version)?,
                None => false,
            };
            let name_goes = match &row.name {
                Some(name) => !self.needs_name(name)?,
                None => false,
            };
            if version_goes || name_goes {
                leaving.push(LeavingRow { row, version_goes, name_goes });
            }
        }
        self.so_far.blocks += give_up_rows(self.store, &leaving)?;
        for leaving in leaving.iter().filter(|leaving| leaving.version_goes) {
            if let Some((no, version)) = &leaving.row.version {
                self.neighbours(*no, version)?;
            }
        }
        let facts = |leaving: &LeavingRow| u64::from(leaving.version_goes) + u64::from(leaving.name_goes);
        self.so_far.given_up += leaving.iter().map(facts).sum::<u64>();
        Ok(())
    }

    /// Looks at what an event of a single file has seen: one version, and its name. False if it may have had
    /// other names, or if nothing is known.
    fn seen_by(&mut self, file: InodeNo, event: EventNo) -> Result<bool> {
        let (past, meta) = (&self.store.past, &self.store.meta);
        let version = past.version(meta, file, event)?.filter(|version| event < version.end);
        let name_of = |inode: &Inode| has_one_name(inode).then_some((inode.parent, inode.parent_cookie));
        let name = match &version {
            Some(version) => name_of(&version.inode),
            None => self.store.cell_if_used(file)?.and_then(|cell| {
                Some(cell.state.read()).filter(|s| s.inode.born <= event).and_then(|s| name_of(&s.inode))
            }),
        };
        let death = match name {
            Some((directory, cookie)) => {
                past.name_as_of(meta, directory, cookie, event)?.map(|name| name.death)
            }
            None => None,
        };
        let ended = version.map(|version| Ended { end: version.end, inode: file, cookie: 0 });
        let named = name.zip(death).map(|((inode, cookie), end)| Ended { end, inode, cookie });
        let next = self.needed.next();
        for ended in ended.into_iter().chain(named).filter(|ended| ended.end <= next) {
            self.examine(&ended)?;
            self.so_far.examined += 1;
        }
        Ok(name.is_some())
    }

    fn examine(&mut self, ended: &Ended) -> Result<()> {
        let freed = match ended.cookie {
            0 => self.version(ended)?,
            _ => self.name(ended)?,
        };
        if let Some(blocks) = freed {
            self.so_far.given_up += 1;
            self.so_far.blocks += blocks;
        }
        Ok(())
    }

    /// Gives up a name if nothing needs it.
    fn name(&mut self, ended: &Ended) -> Result<Option<u64>> {
        let Some(name) = self.store.past.name_that_ended(&self.store.meta, ended)? else { return Ok(None) };
        if self.needs_name(&name)? {
            return Ok(None);
        }
        let _work = self.store.past.annals_work();
        self.store.past.remove_name(self.store, ended, name.birth)?;
        Ok(Some(0))
    }

    fn needs_name(&self, name: &PastEntry) -> Result<bool> {
        let PastEntry { inode, directory, birth, death, .. } = *name;
        Ok(self.needed.has_event(inode, birth, death) || self.needed.in_directory(directory, birth, death)?)
    }

    fn needs_version(&self, no: InodeNo, version: &Version) -> Result<bool> {
        let is_needed = self.needed.version(no, version)?;
        #[cfg(feature = "mutations")]
        let is_needed = is_needed && !crate::mutation::is(crate::mutation::Mutation::ForgottenNeeded);
        Ok(is_needed)
    }

    /// Gives up a version if nothing needs it, and returns the number of blocks freed.
    fn version(&mut self, ended: &Ended) -> Result<Option<u64>> {
        let store = self.store;
        let version = store.past.version(&store.meta, ended.inode, EventNo(ended.end.0 - 1))?;
        let Some(version) = version.filter(|version| version.end == ended.end) else { return Ok(None) };
        if self.needs_version(ended.inode, &version)? {
            return Ok(None);
        }
        let freed = give_up_version(store, ended.inode, &version)?;
        self.neighbours(ended.inode, &version)?;
        Ok(Some(freed))
    }

    /// Gives up versions beside one that is gone, as far as nothing needs them (F4).
    fn neighbours(&mut self, no: InodeNo, version: &Version) -> Result<()> {
        let (past, meta) = (&self.store.past, &self.store.meta);
        // Where all events are of the root directory, what covers an inode is exact.
        if past.has_only_root() {
            return Ok(());
        }
        loop {
            let before = past.version_before(meta, no, version)?;
            if !self.give_up_neighbour(no, version, before)? {
                break;
            }
        }
        loop {
            let behind = past.version_after(meta, no, version.end)?;
            if !self.give_up_neighbour(no, version, behind)? {
                return Ok(());
            }
        }
    }

    fn give_up_neighbour(&mut self, no: InodeNo, of: &Version, found: Option<Version>) -> Result<bool> {
        let (incarnation, next) = (of.inode.incarnation, self.needed.next());
        let found = found.filter(|found| found.inode.incarnation == incarnation && found.end <= next);
        let Some(found) = found else { return Ok(false) };
        if self.needs_version(no, &found)? {
            return Ok(false);
        }
        self.so_far.blocks += give_up_version(self.store, no, &found)?;
        self.so_far.given_up += 1;
        Ok(true)
    }
}
