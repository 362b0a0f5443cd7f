//! Reading the past of a volume that is opened.

use super::backlog::Backlog;
use super::event::Event;
use super::exclusions::Exclusions;
use super::expunging::Expunging;
use super::forgotten::UNCOUNTED;
use super::lately::Lately;
use super::numbers::Numbers;
use super::past::Past;
use super::unfinished::Rollbacks;
use super::users::Users;
use crate::{InodeNo, MountOptions, Result};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use yore_format::{
    BlockKind, Corruption, EventKind, EventNo, EventState, Expect, HistoryRoots, HistoryTree, Incarnation,
    Timestamp,
};
use yore_meta::Meta;

impl Past {
    /// The past of a volume that is being opened. If the trees that list it cannot be read, a volume opened
    /// read-only has as much of it as could be read, because the present is complete without it.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn open(meta: &Meta, options: &MountOptions) -> Result<Past> {
        let past = Past {
            roots: OnceLock::new(),
            events: RwLock::new(Timestamp { seconds: i64::MIN, nanos: 0 }),
            shards: Default::default(),
            annals_from: AtomicU64::new(0),
            inode_index: RwLock::default(),
            name_index: RwLock::default(),
            backlog: Backlog::new(options.backlog),
            epoch: AtomicU64::new(0),
            last: AtomicU64::new(0),
            last_of_directories: AtomicU64::new(0),
            root_event: AtomicU64::new(0),
            only_root: AtomicBool::new(true),
            given_up: AtomicU64::new(0),
            forgotten_rows: AtomicU64::new(UNCOUNTED),
            policies: RwLock::new(()),
            any_policy: AtomicBool::new(false),
            policy_epoch: AtomicU64::new(0),
            operations: RwLock::new(()),
            numbers: RwLock::default(),
            pinned: Mutex::default(),
            reading: RwLock::new(()),
            lately: Default::default(),
            being_read: Lately::new(options.reading_lasts),
            rule_epoch: AtomicU64::new(0),
            forgetting: Mutex::new(()),
            making_room: Mutex::new(()),
            rooms_made: AtomicU64::new(0),
            may_have_unended: AtomicBool::new(meta.may_have_leaks() && !meta.read_only()),
            ending: Mutex::new(()),
            expunging: Expunging::default(),
            rollbacks: Rollbacks::default(),
            users: Users::default(),
            exclusions: Exclusions::default(),
        };
        if meta.history_root().is_none() {
            return Ok(past);
        }
        match past.load(meta) {
            Err(error) if meta.read_only() => {
                tracing::error!(%error, "a part of the history cannot be read: snapshots are missing");
            }
            loaded => loaded?,
        }
        Ok(past)
    }

    fn load(&self, meta: &Meta) -> Result<()> {
        let expect = Expect {
            kind: BlockKind::HistoryRoots,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            level: Some(0),
        };
        let roots = meta.read(meta.history_root(), &expect)?;
        let annals_from = HistoryRoots::annals_counts(&roots.read()).annals_from;
        self.annals_from.store(annals_from.0, Ordering::Release);
        let _ = self.roots.set(roots);
        self.any_policy.store(!self.tree(HistoryTree::Policies).is_empty(), Ordering::Relaxed);
        // The numbers, as far as they can be read.
        let last = self.load_last(meta);
        let numbers = self.load_numbers(meta);
        let root = self.last_of(meta, InodeNo::ROOT, EventNo(u64::MAX));
        let root = root
            .map(|event| self.root_event.store(event.map_or(0, |event| event.number.0), Ordering::Relaxed));
        last.and(numbers).and(root).and(self.load_exclusions(meta))
    }

    fn load_last(&self, meta: &Meta) -> Result<()> {
        for tree in [HistoryTree::Events, HistoryTree::Forgotten] {
            if let Some(last) = self.floor_in(meta, tree, EventNo(u64::MAX))? {
                if !meta.read_only() {
                    check_last(&last, meta.number())?;
                }
                self.last.fetch_max(last.number.0, Ordering::Relaxed);
                let mut time = self.events.write();
                *time = last.row.time.max(*time);
            }
        }
        Ok(())
    }

    fn load_numbers(&self, meta: &Meta) -> Result<()> {
        let mut numbers = Numbers::default();
        let loaded = self.each_event(meta, EventNo(0), &mut |event| {
            self.last.fetch_max(event.number.0, Ordering::Relaxed);
            if event.row.kind == EventKind::Expunge {
                self.expunging.load(event.number, &event.row)?;
                return Ok(true);
            }
            if event.row.kind == EventKind::Rollback {
                self.hold_for(&self.rollbacks.load(event.number, &event.row)?);
                return Ok(true);
            }
            if !event.row.kind.is_of_file() {
                self.last_of_directories.store(event.number.0, Ordering::Relaxed);
                if event.row.root != InodeNo::ROOT {
                    self.only_root.store(false, Ordering::Relaxed);
                }
            }
            match event.row.state {
                EventState::Kept => {
                    self.users.add(&event.row);
                    numbers.insert(event.number, &event.row);
                }
                EventState::Dying => drop(numbers.dying_on_medium.insert(event.number)),
                EventState::Forgotten => {
                    return Err(Corruption::new("event", "state", "kept or dying", "forgotten").into());
                }
            }
            Ok(true)
        });
        *self.numbers.write() = numbers;
        loaded
    }
}

/// The next event must get a greater number and a later time.
fn check_last(last: &Event, next: EventNo) -> std::result::Result<(), Box<Corruption>> {
    if last.number >= next {
        return Err(Corruption::new("event", "number", format!("below {next}, the next one"), last.number));
    }
    match last.row.time.seconds {
        i64::MAX => {
            Err(Corruption::new("event", "time", "one that others can follow", "the last that there is"))
        }
        _ => Ok(()),
    }
}
