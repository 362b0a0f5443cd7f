//! How many snapshots, holds and policies each user has, and how many he may have.
//!
//! A snapshot costs its owner one request, but it costs everybody else room on the volume, memory of the
//! daemon and time for each list. So a program that serves others gives each [`User`] limits. The counts are
//! kept in memory, by the user that the rows of the events note, and are computed when the volume is opened.
//! What policies take counts for nobody.

use crate::{Error, Result};
use hashbrown::HashMap;
use parking_lot::Mutex;
use yore_format::{EventKind, EventRow, EventState};

/// How much of the past one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Snapshots that he took, including those by which something can be undone.
    pub snapshots: u32,
    /// Snapshots and versions that he holds.
    pub holds: u32,
    /// Directories and files of his that have policies.
    pub policies: u32,
}

impl Default for UserLimits {
    fn default() -> UserLimits {
        UserLimits { snapshots: 10_000, holds: 1_000, policies: 1_000 }
    }
}

/// On whose behalf something is done to the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// His number, which rows note.
    pub uid: u32,
    /// What he may have; `None`: no limits.
    pub limits: Option<UserLimits>,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counted {
    Snapshots = 0,
    Holds = 1,
    Policies = 2,
}

impl Counted {
    fn limit(self, limits: &UserLimits) -> u32 {
        match self {
            Counted::Snapshots => limits.snapshots,
            Counted::Holds => limits.holds,
            Counted::Policies => limits.policies,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Counted::Snapshots => "snapshots",
            Counted::Holds => "holds",
            Counted::Policies => "policies",
        }
    }
}

/// How many of each kind every user has. Lock order: after all others.
#[derive(Default)]
pub(crate) struct Users(Mutex<HashMap<u32, [u32; 3]>>);

/// Who took an event, if it counts.
fn taken_by(row: &EventRow) -> Option<u32> {
    let is_counted =
        row.state == EventState::Kept && matches!(row.kind, EventKind::Snapshot | EventKind::Undo);
    row.more.by.filter(|_| is_counted)
}

/// The user who holds an event.
fn held_by(row: &EventRow) -> Option<u32> {
    row.more.held_by.filter(|_| row.state == EventState::Kept && row.held)
}

impl Users {
    fn change(&self, uid: Option<u32>, what: Counted, more: bool) {
        let Some(uid) = uid else { return };
        let mut all = self.0.lock();
        let of = all.entry(uid).or_default();
        let count = &mut of[what as usize];
        *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *of == [0; 3] {
            all.remove(&uid);
        }
    }

    /// A row was added.
    pub(crate) fn add(&self, row: &EventRow) {
        self.change(taken_by(row), Counted::Snapshots, true);
        self.change(held_by(row), Counted::Holds, true);
    }

    /// A row was replaced.
    pub(crate) fn replace(&self, was: &EventRow, is: &EventRow) {
        self.change(taken_by(was), Counted::Snapshots, false);
        self.change(held_by(was), Counted::Holds, false);
        self.add(is);
    }

    /// A user's directory or file got a policy (`more`), or lost it.
    pub(crate) fn policy(&self, uid: u32, more: bool) {
        self.change(Some(uid), Counted::Policies, more);
    }

    /// Sets the counts of policies, given the owners of all inodes that have one.
    pub(crate) fn set_policies(&self, owners: impl Iterator<Item = u32>) {
        let mut all = self.0.lock();
        all.values_mut().for_each(|of| of[Counted::Policies as usize] = 0);
        for uid in owners {
            let count = &mut all.entry(uid).or_default()[Counted::Policies as usize];
            *count = count.saturating_add(1);
        }
    }

    /// Checks whether a user may have so many more. The caller holds the lock under which they are counted.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn check(&self, user: Option<&User>, what: Counted, more: u32) -> Result<()> {
        let Some(User { uid, limits: Some(limits) }) = user else { return Ok(()) };
        let has = self.0.lock().get(uid).map_or(0, |of| of[what as usize]);
        match has.saturating_add(more) <= what.limit(limits) {
            true => Ok(()),
            false => Err(Error::LimitReached { what: what.name(), most: what.limit(limits) }),
        }
    }
}
