//! What giving up history would free, before anything is given up: everything that may go ([`most`]), and one
//! event after the other ([`Gone`]).
//!
//! **The answer never promises too much.** The versions that no remaining event needs go. Each run of such
//! versions frees what was born since the end of the version before the run, and what the next state of the
//! inode does not have ([`let_go`]). Only data blocks count, because only these are certain to become usable
//! as data. A walk that stops early has counted less.
//!
//! Where it is known what each event holds ([`spans`]), nobody walks.
//!
//! **It stays true.** The present never gets back what it let go of, and later events do not see what ended
//! before them. So the amount that giving up certain events would free only grows, until one of these events
//! has to stay or is gone. Both are counted ([`crate::history::record::Past::rule_epoch`]). An answer is
//! valid as long as that count is the same, and is computed again when history has grown. That makes `statfs`
//! cheap.

use super::rule::{Rule, Stays, WouldFree, BATCH, LOW_WATER};
use crate::history::reclaim::alone::let_go;
use crate::history::reclaim::needed::Needed;
use crate::history::reclaim::spans::{self, Patience};
use crate::history::record::{Answer, EndsWalk, Event, Most, VersionsWalk};
use crate::store::Store;
use crate::types::Behalf;
use crate::Result;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_format::{EventNo, Incarnation, InodeNo, Version};
use yore_meta::LeftBlocks;

/// How many versions a caller of `statfs` waits for.
const QUICK: usize = 4096;
/// How much of the time new surveys may take: one part of so many.
const SELDOM: u32 = 20;
/// How long an answer is valid: events come of age.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// How long a survey may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Budget {
    /// As long as it takes.
    All,
    /// So many versions, and no waiting for the `forgetting` lock.
    Versions(usize),
}

impl Budget {
    fn patience(self) -> Patience {
        match self {
            Budget::All => Patience::Walk,
            Budget::Versions(_) => Patience::None,
        }
    }
}

/// How much the volume would free if it gave up all that the rule allows.
fn most(store: &Arc<Store>, rule: &Rule<'_>, budget: Budget) -> Result<Most> {
    let sorted = rule.sort()?;
    let space = store.past.space();
    // Young events go until all history has no more than its share, or none of them is left. Then its data
    // has no more either: at least what the data has beyond the share is freed. How much of the rest is data
    // is not known before.
    let is_over = space.blocks() > rule.share;
    let any = !sorted.old.is_empty() || (is_over && !sorted.young.is_empty());
    let history = space.data;
    let beyond = history.saturating_sub(rule.share);
    let numbers =
        |events: &[Event]| -> HashSet<EventNo> { events.iter().map(|event| event.number).collect() };
    let young = numbers(&sorted.young);
    let stay: HashSet<EventNo> = sorted.stay.iter().map(|(event, _)| event.number).collect();
    let data = match (stay.is_empty(), young.is_empty()) {
        _ if !any => 0,
        (true, true) => history,
        (true, false) if sorted.old.is_empty() => beyond,
        _ => {
            let seen = spans::seen(store, budget.patience())?;
            let may_go = numbers(&sorted.old);
            let of_old = match &seen {
                Some(seen) => seen.freed(|event| may_go.contains(&event)).data,
                None => {
                    let of_old =
                        |event: &Event| stay.contains(&event.number) || young.contains(&event.number);
                    freed(store, Needed::of(store, of_old)?, budget)?
                }
            };
            let all = match (beyond > of_old && !young.is_empty(), stay.is_empty(), &seen) {
                (false, ..) => of_old,
                (true, true, _) => history,
                (true, false, Some(seen)) => {
                    seen.freed(|event| may_go.contains(&event) || young.contains(&event)).data
                }
                (true, false, None) => {
                    freed(store, Needed::of(store, |event| stay.contains(&event.number))?, budget)?
                }
            };
            of_old.max(all.min(beyond))
        }
    };
    Ok(Most { data, any })
}

/// What a full volume gives up for this user's requests, and what would free more. One walk over the versions
/// for all reasons.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn what_would_free(store: &Arc<Store>, behalf: Behalf) -> Result<WouldFree> {
    let rule = Rule::new(store, behalf);
    let sorted = rule.sort()?;
    let now = most(store, &rule, Budget::All)?.data;
    let mut why: HashMap<EventNo, Option<Stays>> =
        sorted.young.iter().map(|event| (event.number, None)).collect();
    why.extend(sorted.stay.iter().map(|(event, why)| (event.number, Some(*why))));
    let mut counts: BTreeMap<Option<Stays>, u64> = BTreeMap::new();
    for reason in why.values() {
        *counts.entry(*reason).or_default() += 1;
    }
    if let Some(seen) = spans::seen(store, Patience::Walk)? {
        let may_go: HashSet<EventNo> = sorted.old.iter().map(|event| event.number).collect();
        let more = counts.into_iter().map(|(reason, count)| {
            let goes = |event: EventNo| may_go.contains(&event) || why.get(&event) == Some(&reason);
            (reason, count, seen.freed(goes).data.saturating_sub(now))
        });
        return Ok(WouldFree { by_itself: now, more: more.collect() });
    }
    let but = |reason: &Option<Stays>| {
        Needed::of(store, |event| why.get(&event.number).is_some_and(|other| other != reason))
    };
    let without = counts.keys().map(but).collect::<Result<Vec<Needed<'_>>>>()?;
    let freed = Walk::new(store, without, Budget::All).run()?;
    let found = counts.into_iter().zip(freed);
    let more = found.map(|((reason, count), freed)| (reason, count, freed.saturating_sub(now))).collect();
    Ok(WouldFree { by_itself: now, more })
}

/// How much all versions that nobody needs would free.
fn freed(store: &Arc<Store>, needed: Needed<'_>, budget: Budget) -> Result<u64> {
    Ok(Walk::new(store, vec![needed], budget).run()?.into_iter().sum())
}

/// A walk over all versions: how much those that nobody needs would free, for several notions of what is
/// needed.
struct Walk<'s> {
    store: &'s Arc<Store>,
    each: Vec<Answers<'s>>,
    budget: Budget,
    examined: usize,
}

/// One notion of what is needed, and how much is freed by it.
struct Answers<'s> {
    needed: Needed<'s>,
    freed: u64,
    before: Option<Before>,
}

/// The version that the walk met last.
#[derive(Clone, Copy)]
struct Before {
    of: (InodeNo, Incarnation),
    end: EventNo,
    /// If the version goes: whatever was born since this number goes with it.
    goes_from: Option<EventNo>,
}

impl<'s> Walk<'s> {
    fn new(store: &'s Arc<Store>, needed: Vec<Needed<'s>>, budget: Budget) -> Walk<'s> {
        let each = needed.into_iter().map(|needed| Answers { needed, freed: 0, before: None }).collect();
        Walk { store, each, budget, examined: 0 }
    }

    /// How much is freed by each notion, in their order.
    fn run(mut self) -> Result<Vec<u64>> {
        let (past, mut walk) = (&self.store.past, VersionsWalk::default());
        loop {
            let still = match self.budget {
                Budget::All => Some(past.forgetting.lock()),
                Budget::Versions(most) if self.examined >= most => None,
                Budget::Versions(_) => past.forgetting.try_lock(),
            };
            if still.is_none() {
                break;
            }
            let Some(found) = past.next_versions(&self.store.meta, &mut walk, BATCH)? else { break };
            self.examined += found.len();
            for (no, version) in &found {
                self.version(*no, version)?;
            }
        }
        Ok(self.each.into_iter().map(|one| one.freed).collect())
    }

    fn version(&mut self, no: InodeNo, version: &Version) -> Result<()> {
        // How much goes with this version, by the number from which it counts; for most of the notions that
        // is the same.
        let mut known: Vec<(EventNo, u64)> = Vec::new();
        for one in &mut self.each {
            let Some(from) = one.goes_from(no, version)? else { continue };
            one.freed += match known.iter().find(|(other, _)| *other == from) {
                Some((_, blocks)) => *blocks,
                None => {
                    let (blocks, _) = let_go(self.store, no, version, Some(from))?;
                    known.push((from, blocks));
                    blocks
                }
            };
        }
        Ok(())
    }
}

impl Answers<'_> {
    /// If this version, the next one of the walk, goes: the number since which whatever was born goes with
    /// it.
    fn goes_from(&mut self, no: InodeNo, version: &Version) -> Result<Option<EventNo>> {
        let of = (no, version.inode.incarnation);
        let before = self.before.filter(|before| before.of == of);
        // The events that were loaded cannot tell about what ended later.
        let goes = version.end <= self.needed.next() && !self.needed.version(no, version)?;
        let from = before.map_or(EventNo(0), |before| before.goes_from.unwrap_or(before.end));
        let goes_from = goes.then_some(from);
        self.before = Some(Before { of, end: version.end, goes_from });
        Ok(goes_from)
    }
}

/// What one event after the other frees, at most, when those before it are gone.
pub(super) struct Gone<'s> {
    store: &'s Arc<Store>,
    /// What the events that stay need.
    needed: Needed<'s>,
    /// What all kept events need.
    all: Needed<'s>,
    /// What goes with each event, if the sums can tell: it is exact if all events that may go do, up to this
    /// one.
    known: Option<HashMap<EventNo, LeftBlocks>>,
}

impl<'s> Gone<'s> {
    /// The case that only the first of these events stay, and the others may go.
    pub(super) fn new(
        store: &'s Arc<Store>,
        stay: &HashSet<EventNo>,
        may_go: &HashSet<EventNo>,
    ) -> Result<Gone<'s>> {
        let known = spans::seen(store, Patience::Walk)?;
        let known = known.map(|seen| seen.freed_with(|event| may_go.contains(&event)));
        let needed = Needed::of(store, |event| stay.contains(&event.number))?;
        Ok(Gone { store, needed, all: Needed::load(store)?, known })
    }

    /// How many blocks giving up this event frees. If they are more than `most`, perhaps not all are counted.
    pub(super) fn with(&mut self, event: &Event, most: u64) -> Result<u64> {
        if let Some(known) = &self.known {
            let goes = known.get(&event.number).copied().unwrap_or_default();
            return Ok(goes.data.saturating_add(goes.nodes));
        }
        let (past, meta) = (&self.store.past, &self.store.meta);
        if event.row.kind.is_of_file() {
            let version = past.version(meta, event.row.root, event.number)?;
            return match version.filter(|version| event.number < version.end) {
                Some(version) => self.version(event.row.root, &version),
                None => Ok(0),
            };
        }
        let (mut sum, last) = (0u64, self.all.next_of(event));
        let mut walk = EndsWalk::of(event.number, last);
        while let Some(ended) = past.next_ended(meta, &mut walk, BATCH)? {
            for one in ended.iter().filter(|one| one.cookie == 0) {
                let version = past.version(meta, one.inode, EventNo(one.end.0 - 1))?;
                if let Some(version) = version.filter(|version| version.end == one.end) {
                    sum = sum.saturating_add(self.version(one.inode, &version)?);
                }
                if sum > most {
                    return Ok(sum);
                }
            }
        }
        Ok(sum)
    }

    fn version(&self, no: InodeNo, version: &Version) -> Result<u64> {
        if self.needed.version(no, version)? {
            return Ok(0);
        }
        let (data, nodes) = let_go(self.store, no, version, Some(EventNo(0)))?;
        Ok(data.saturating_add(nodes))
    }
}

/// How many data blocks giving up history for this user's request would free, at least. Quick.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn quick(store: &Arc<Store>, behalf: Behalf) -> Result<Most> {
    if let Some(answer) = known(store, behalf) {
        let history = store.past.space().data;
        let grown = history.abs_diff(answer.history);
        let soon = answer.asked.elapsed() < answer.took * SELDOM;
        let little = grown < store.meta.geometry().blocks / LOW_WATER;
        if answer.asked.elapsed() < GOOD_FOR && (grown == 0 || (soon && little)) {
            return Ok(answer.most);
        }
    }
    ask(store, behalf, Budget::Versions(QUICK))
}

/// The same as [`quick`], as exactly as it can be known.
///
/// # Errors
/// Damage and device errors.
pub(super) fn whole(store: &Arc<Store>, behalf: Behalf) -> Result<Most> {
    match known(store, behalf) {
        Some(answer)
            if answer.is_whole
                && answer.asked.elapsed() < GOOD_FOR
                && answer.history == store.past.space().data =>
        {
            Ok(answer.most)
        }
        _ => ask(store, behalf, Budget::All),
    }
}

fn known(store: &Arc<Store>, behalf: Behalf) -> Option<Answer> {
    store.estimates.known(behalf, store.past.rule_epoch.load(Ordering::Acquire))
}

fn ask(store: &Arc<Store>, behalf: Behalf, budget: Budget) -> Result<Most> {
    let (asked, history) = (Instant::now(), store.past.space().data);
    let epoch = store.past.rule_epoch.load(Ordering::Acquire);
    let most = most(store, &Rule::new(store, behalf), budget)?;
    let (is_whole, took) = (budget == Budget::All, asked.elapsed());
    store.estimates.put(behalf, Answer { most, is_whole, epoch, history, asked, took });
    Ok(most)
}

#[cfg(test)]
mod tests;
