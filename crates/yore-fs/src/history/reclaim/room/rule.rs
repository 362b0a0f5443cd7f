//! Which events a full volume may give up now ([`super`]).

use crate::clock::now;
use crate::history::reclaim::whose::Owners;
use crate::history::record::{is_held, Event};
use crate::store::Store;
use crate::types::Behalf;
use crate::Result;
use hashbrown::HashMap;
use std::sync::Arc;
use yore_format::EventKind;

/// A batch may free this part of the volume even if less is wanted: one of so many.
pub(super) const LOW_WATER: u64 = 64;

/// How many ends of versions are looked up at a time.
pub(super) const BATCH: usize = 256;

/// Why a full volume does not give up an event, whatever its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Stays {
    /// Somebody holds it.
    Held,
    /// Somebody gave it a name.
    Named,
    /// It is mounted, or something under way needs it.
    Pinned,
    /// Somebody reads it, or did so lately.
    Read,
    /// The user of the request may not forget it.
    Others,
}

/// What a full volume gives up by itself, and what would free more.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WouldFree {
    /// Data blocks that the volume gives up by itself when they are needed.
    pub by_itself: u64,
    /// For each reason why more events stay (`None`: they are too young): how many snapshots and versions
    /// stay for it, and how many more data blocks forgetting these would free.
    pub more: Vec<(Option<Stays>, u64, u64)>,
}

/// Which events may be given up now, for one user's request.
pub(crate) struct Rule<'s> {
    store: &'s Arc<Store>,
    owners: Owners<'s>,
    behalf: Behalf,
    /// An event whose time is later is young.
    floor: i64,
    /// The blocks that history may take before young events go.
    pub share: u64,
}

/// The kept events, sorted by what the rule says of them, each list in ascending order.
#[derive(Default)]
pub(crate) struct Sorted {
    /// May go.
    pub old: Vec<Event>,
    /// May go while history takes more than its share.
    pub young: Vec<Event>,
    /// Stay, and why.
    pub stay: Vec<(Event, Stays)>,
}

impl<'s> Rule<'s> {
    pub(crate) fn new(store: &'s Arc<Store>, behalf: Behalf) -> Rule<'s> {
        let rules = store.space_rules();
        let floor = now().seconds.saturating_sub_unsigned(rules.floor_seconds);
        let blocks = store.meta.geometry().blocks;
        let share = u128::from(blocks) * u128::from(rules.share_percent.min(100)) / 100;
        Rule { store, owners: Owners::new(store), behalf, floor, share: share as u64 }
    }

    /// Why an event stays whatever its age; `None` if it need not.
    pub(super) fn stays(&self, event: &Event) -> Result<Option<Stays>> {
        let past = &self.store.past;
        Ok(if is_held(&event.row) {
            Some(Stays::Held)
        } else if !event.row.name.is_empty() && event.row.kind != EventKind::Undo {
            Some(Stays::Named)
        } else if past.is_pinned(event.number) {
            Some(Stays::Pinned)
        } else if past.being_read.is_read(event.number) {
            Some(Stays::Read)
        } else if !self.is_theirs(event)? {
            Some(Stays::Others)
        } else {
            None
        })
    }

    /// Whether the user could forget the event by a command.
    fn is_theirs(&self, event: &Event) -> Result<bool> {
        let uid = match self.behalf {
            Behalf::Owner => return Ok(true),
            Behalf::Nobody => return Ok(false),
            Behalf::User(uid) => uid,
        };
        // A command also asks who owns what the event is of now.
        Ok(self.owners.is_of(uid, &event.row)? && self.owners.of(&event.row)? == Some(uid))
    }

    /// Sorts all kept events. O(events).
    pub(crate) fn sort(&self) -> Result<Sorted> {
        let mut sorted = Sorted::default();
        if self.store.keep_history || !self.store.past.is_any() {
            return Ok(sorted);
        }
        let events = self.store.past.kept_events(&self.store.meta)?;
        let mut whys = events.iter().map(|event| self.stays(event)).collect::<Result<Vec<_>>>()?;
        // The removal of a file is remembered as long as any version of it. A version that only may go is
        // older than the removal, and goes first.
        let is_removal = |event: &Event| event.row.kind == EventKind::Removed;
        let root = |event: &Event| (event.row.root, event.row.root_incarnation);
        let mut files = HashMap::new();
        for (event, why) in events.iter().zip(&whys) {
            if let Some(why) = why.filter(|_| event.row.kind.is_of_file() && !is_removal(event)) {
                files.insert(root(event), why);
            }
        }
        for (event, why) in events.iter().zip(&mut whys).filter(|(event, _)| is_removal(event)) {
            *why = why.or_else(|| files.get(&root(event)).copied());
        }
        for (event, why) in events.into_iter().zip(whys) {
            match why {
                Some(why) => sorted.stay.push((event, why)),
                None if event.row.time.seconds <= self.floor => sorted.old.push(event),
                None => sorted.young.push(event),
            }
        }
        Ok(sorted)
    }
}
