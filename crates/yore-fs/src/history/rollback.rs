//! Rolling back: a directory becomes what it was as of an event, with all that is below it, in one operation.
//!
//! **B1 Nobody sees it half done.** Calls that concern the directory wait at the gate (`gate.rs`) from before
//! the first change until everything is done and durable.
//!
//! **B2 It can be undone.** It takes an event before its first change ([`EventKind::Undo`]), and one at its
//! end; their names say what the operation was (`rollback/operation.rs`).
//!
//! **B3 It is finished.** Before the first change the intent is durable (`record/rollback.rs`): the
//! directory, and the event as of which it becomes what it was. The single steps are written nowhere. They
//! follow from the differences, which are computed again by whoever goes on, and each Op leaves fewer of them
//! (`rollback/roll.rs`). So after a crash, opening the volume for writing finishes the rollback before
//! anybody else sees the directory (`finish_all`). The row with the intent goes when all data is written and
//! the second event exists.
//!
//! **B4 Nothing is lost.** It does not begin if there is no room for the data that it brings back. It may
//! still be impossible to finish, because others filled the volume meanwhile or metadata did not fit. Then it
//! is *stopped*: that becomes durable, and only then the gate opens. What was done stays. The event before it
//! has everything that was, the target has everything that was to come, and both stay as long as the row.
//! Changes that others make meanwhile may be in no event, so nothing goes on by itself: the next rollback of
//! the directory, or of one above it, begins something new, with an event of its own, and ends what was
//! stopped.
//!
//! A volume has one rollback at a time; another one waits.

mod operation;
mod plan;
mod roll;
mod trees;

pub(crate) use operation::begun;
pub use operation::{name, next, next_number, operations, until, Operation, Verb};
pub use plan::{ancestors, leave_alone, real, reversed, Back, Changed, Plan, Rights};

use crate::api::room::with_room;
use crate::api::view::{is_around, is_below};
use crate::history::read::at_time::NewSnapshot;
use crate::history::reclaim::forget;
use crate::history::reclaim::room::{self, Want};
use crate::history::record::{Counted, Event, Unfinished, User};
use crate::store::Store;
use crate::types::PinnedBy;
use crate::{file, Error, InodeNo, Result, View};
use roll::Roll;
use std::sync::Arc;
use yore_format::{Corruption, EventKind, EventNo, EventState, Incarnation, RollbackIntent};

/// How many names are tried if others have them.
const TRIES: u64 = 10_000;

/// The result of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RolledBack {
    /// The name of the operation, as in `rollback-3`; empty: nothing differed, and nothing was done.
    pub name: String,
    /// The operation can be undone by itself. It cannot if something else has the name of its second event.
    pub has_end: bool,
}

/// A rollback that is not finished.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnfinishedRollback {
    /// The name of the operation, as in `rollback-3`; empty if it is not known.
    pub name: String,
    /// The directory.
    pub directory: InodeNo,
    /// Which inode of those that have had the number.
    pub incarnation: u32,
    /// The event as of which the directory is to become what it was.
    pub target: EventNo,
    /// The event before it.
    pub before: EventNo,
    /// It was stopped, and is not finished unless somebody asks for it. Otherwise, opening the volume for
    /// writing finishes it.
    pub stopped: bool,
}

impl View {
    /// Makes a directory what it was as of an event that has seen it, with all that is below it. With
    /// [`Plan::others`] it leaves alone what others have changed. Nobody sees it half done: calls that
    /// concern the directory wait. After a crash, opening the volume finishes it. Durable on return. Whatever
    /// the outcome, `changed` is called with the names and inodes that changed, once others can see them.
    ///
    /// Takes time and memory for what differs ([`View::diff`]).
    ///
    /// ```
    /// use yore_fs::rollback::{Plan, Rights, Verb};
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// volume.write("a", "once")?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::named("then"))?;
    /// volume.rename("a", "b")?;
    /// volume.write("c", "new")?;
    ///
    /// let plan = Plan { verb: Verb::Rollback, of: None, target: event.number, others: None };
    /// let done = view.rollback(&Rights::All, view.root(), &plan, &mut |_| ())?;
    /// assert_eq!(done.name, "rollback-1");
    /// assert_eq!(volume.read_to_string("a")?, "once");
    /// assert!(!volume.exists("c")?);
    /// assert_eq!(volume.read_to_string(".@before-rollback-1/c")?, "new");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotYours`] and [`Error::Protected`] for lack of rights, [`Error::NotFound`] if an event is
    /// not kept or has not seen the directory, [`Error::NoSpace`] if there is no room to begin,
    /// [`Error::NeverFits`] if there is none for all that is to come back, [`Error::Refused`] if a rollback
    /// of a directory above is not finished: then nothing was changed. [`Error::Unfinished`] if it began and
    /// could not be finished.
    pub fn rollback(
        &self,
        rights: &Rights,
        directory: InodeNo,
        plan: &Plan,
        changed: &mut dyn FnMut(Changed),
    ) -> Result<RolledBack> {
        self.rollback_for(None, rights, directory, plan, changed)
    }

    /// As [`View::rollback`], on behalf of a user: its two events note him, and count towards his limits. For
    /// servers.
    ///
    /// # Errors
    /// As [`View::rollback`]; [`Error::LimitReached`] if the user may not have two more events: then nothing
    /// was changed.
    pub fn rollback_for(
        &self,
        user: Option<&User>,
        rights: &Rights,
        directory: InodeNo,
        plan: &Plan,
        changed: &mut dyn FnMut(Changed),
    ) -> Result<RolledBack> {
        let store = self.live()?;
        store.check_writable()?;
        // The directory stays in use as long as this lives.
        let node = self.node(directory, None)?;
        if node.attr().kind != crate::FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let directory = (directory, Incarnation(node.attr().incarnation));
        let mut done = Changed::default();
        let result = {
            let turn = store.gate.turn();
            let _pins = Pins::new(store, plan)?;
            check_above(store, directory.0)?;
            // Where damage keeps it from being known whether a question is concerned, it is.
            let concerns = |no| is_around(store, no, directory.0).unwrap_or(true);
            let _closing = turn.close(directory.0, concerns);
            begin(self, (user, rights), directory, plan, &mut done)
        };
        if !(done.names.is_empty() && done.inodes.is_empty()) {
            changed(done);
        }
        result
    }

    /// The rollbacks that are not finished, the oldest first.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn unfinished_rollbacks(&self) -> Result<Vec<UnfinishedRollback>> {
        let all = self.store().past.rollbacks.all().into_iter();
        all.map(|one| {
            let Unfinished { directory, incarnation, intent, stopped, .. } = one;
            let name = match before_of(self.store(), &intent) {
                Ok((_, verb, number, of)) => name(verb, number, of),
                Err(Error::Corruption(_)) => String::new(),
                Err(e) => return Err(e),
            };
            let (target, before) = (intent.target, intent.before);
            Ok(UnfinishedRollback { name, directory, incarnation: incarnation.0, target, before, stopped })
        })
        .collect()
    }
}

/// Keeps the events of a plan until the rollback has begun.
struct Pins<'s> {
    store: &'s Store,
    events: Vec<EventNo>,
}

impl<'s> Pins<'s> {
    fn new(store: &'s Store, plan: &Plan) -> Result<Pins<'s>> {
        let mut pins = Pins { store, events: Vec::new() };
        let others = plan.others.into_iter().flat_map(|(from, to)| [Some(from), to]).flatten();
        for event in [plan.target].into_iter().chain(others) {
            pins.add(event)?;
        }
        Ok(pins)
    }

    fn add(&mut self, event: EventNo) -> Result<()> {
        self.store.past.pin(&self.store.meta, event, PinnedBy::Work)?;
        self.events.push(event);
        Ok(())
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        self.events.iter().for_each(|event| self.store.past.unpin(*event, PinnedBy::Work));
    }
}

/// What an operation is, according to the event before it.
fn before_of(store: &Store, intent: &RollbackIntent) -> Result<(Event, Verb, u64, Option<u64>)> {
    let bad = |found: String| {
        Error::from(Corruption::new("event", "rollback", "an event before it that says what it is", found))
    };
    let before = match store.past.in_state(&store.meta, intent.before, EventState::Kept) {
        Ok(before) => before,
        Err(Error::NotFound) => return Err(bad(format!("{}, which is not kept", intent.before))),
        Err(e) => return Err(e),
    };
    match operation::parse(&before.row.name) {
        Some((false, verb, number, of)) => Ok((before, verb, number, of)),
        _ => Err(bad(format!("{:?}", before.row.name))),
    }
}

/// Fails if a rollback of a directory above is not finished: nothing is built upon that.
fn check_above(store: &Arc<Store>, directory: InodeNo) -> Result<()> {
    for one in store.past.rollbacks.all() {
        if one.directory != directory && is_below(store, directory, one.directory)? {
            let (_, verb, number, of) = before_of(store, &one.intent)?;
            let name = name(verb, number, of);
            return Err(Error::Refused(format!(
                "{name} of a directory above did not end: do it again to finish it, or go back there to before-{name}"
            )));
        }
    }
    Ok(())
}

/// Rolls back, with the gate closed. Fills in what was changed.
fn begin(
    view: &View,
    (user, rights): (Option<&User>, &Rights),
    directory: (InodeNo, Incarnation),
    plan: &Plan,
    changed: &mut Changed,
) -> Result<RolledBack> {
    let store = view.store();
    let mut roll = Roll::new(view, directory.0, plan)?;
    roll.check(rights)?;
    let older: Vec<Unfinished> = store.past.rollbacks.all();
    if roll.is_empty() && plan.of.is_none() {
        // The directory is already as wanted, so nobody has to go on with what was stopped. What it has may
        // not be durable yet.
        end_older(store, &older, directory.0)?;
        make_durable(store)?;
        return Ok(RolledBack::default());
    }
    store.past.users.check(user, Counted::Snapshots, 2)?;
    // B4.
    room::check(store, view.behalf(), roll.data_blocks()?)?;
    let (before, number) = undo_point(view, user, directory.0, plan)?;
    let mut pins = Pins { store, events: Vec::new() };
    pins.add(before)?;
    let others = plan.others.map(|(from, to)| (from, to.unwrap_or(before)));
    let intent = RollbackIntent { before, target: plan.target, others };
    let want = Want::little(view.behalf());
    let entered = with_room(store, &want, |store| store.past.begin_rollback(store, directory, intent));
    drop(pins);
    let unfinished = match entered {
        Ok(unfinished) => unfinished,
        Err(e) => {
            // Nothing was done, so there is nothing to undo.
            forget::begin(store, &[before])?;
            return Err(e);
        }
    };
    let result =
        make_durable(store).and_then(|()| end_older(store, &older, directory.0)).and_then(|()| roll.run());
    let has_end = result.and_then(|()| end(view, &unfinished));
    *changed = roll.into_changed();
    let name = name(plan.verb, number, plan.of);
    match has_end {
        Ok(has_end) => Ok(RolledBack { name, has_end }),
        Err(source) => {
            stop(store, &unfinished);
            Err(Error::Unfinished { name, source: Box::new(source) })
        }
    }
}

/// Removes the unfinished rollbacks of a directory and of those below it: a new one replaces them.
fn end_older(store: &Arc<Store>, older: &[Unfinished], directory: InodeNo) -> Result<()> {
    for one in older {
        if replaces(store, one, directory)? {
            store.past.end_rollback(store, one)?;
        }
    }
    Ok(())
}

/// Whether a later rollback of a directory replaces this one: it is of the same directory, or of one below.
/// Where damage keeps that from being known, it stays.
fn replaces(store: &Arc<Store>, one: &Unfinished, directory: InodeNo) -> Result<bool> {
    match is_below(store, one.directory, directory) {
        Err(error) if error.is_damage() => {
            stays(store, one, error)?;
            Ok(false)
        }
        known => known,
    }
}

/// Tells that an unfinished rollback stays because something is wrong with its directory; fails if something
/// is wrong with more than that.
fn stays(store: &Store, one: &Unfinished, error: Error) -> Result<()> {
    if store.check_writable().is_err() {
        return Err(error);
    }
    tracing::error!("a rollback of directory {} stays unfinished: {error}", one.directory);
    Ok(())
}

/// Takes the event before the rollback, with a name that no event has. Returns its number, and that of the
/// operation.
fn undo_point(view: &View, user: Option<&User>, directory: InodeNo, plan: &Plan) -> Result<(EventNo, u64)> {
    let store = view.store();
    let mut own = Vec::new();
    store.past.each_of(&store.meta, directory, EventNo(0), &mut |event| {
        own.push(event);
        Ok(true)
    })?;
    let first = next_number(&own);
    for number in first..first.saturating_add(TRIES) {
        let name = format!("before-{}", name(plan.verb, number, plan.of));
        match take_undo_point(view, user, directory, &name) {
            Ok(event) => return Ok((event.number, number)),
            Err(Error::Exists) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::Refused("all names for what can be undone are taken: forget some snapshots".into()))
}

fn take_undo_point(view: &View, user: Option<&User>, directory: InodeNo, name: &str) -> Result<Event> {
    view.inside().take_snapshot(directory, &NewSnapshot { user, undo: true, ..NewSnapshot::named(name) })
}

/// On return everything that was done is durable, the data of files included.
fn make_durable(store: &Arc<Store>) -> Result<()> {
    file::flush_all(&**store)?;
    store.force()
}

/// Makes the end of a rollback durable. Returns whether its second event could get its name.
fn end(view: &View, unfinished: &Unfinished) -> Result<bool> {
    let store = view.store();
    make_durable(store)?;
    let (before, verb, number, of) = before_of(store, &unfinished.intent)?;
    let name = format!("after-{}", name(verb, number, of));
    // The user's limit was checked for this event at the beginning.
    let user = before.row.more.by.map(|uid| User { uid, limits: None });
    let has_end = match take_undo_point(view, user.as_ref(), unfinished.directory, &name) {
        Ok(_) => true,
        Err(Error::Exists) => false,
        Err(e) => return Err(e),
    };
    store.past.end_rollback(store, unfinished)?;
    store.force()?;
    Ok(has_end)
}

/// Stops a rollback, durably, before others see what was done.
fn stop(store: &Arc<Store>, unfinished: &Unfinished) {
    let stopped = store.past.stop_rollback(store, unfinished).and_then(|()| store.force());
    if let Err(e) = stopped {
        tracing::error!("a rollback that was given up may be finished when the volume is opened next: {e}");
    }
}

/// When a volume is opened: finishes the rollbacks that were interrupted, and opens the gate. A rollback that
/// cannot be finished is stopped, and one that was stopped stays as it is, even if its directory is damaged.
///
/// # Errors
/// Damage and device errors that concern more than the one directory.
pub(crate) fn finish_all(view: &View) -> Result<()> {
    let store = view.store();
    let all = store.past.rollbacks.all();
    if store.read_only || all.is_empty() {
        return Ok(());
    }
    let result = all.iter().enumerate().try_for_each(|(at, one)| {
        // A later rollback of the same directory, or of one above, replaces it.
        for later in &all[at + 1..] {
            if replaces(store, one, later.directory)? {
                store.past.end_rollback(store, one)?;
                return store.force();
            }
        }
        match view.inside().node(one.directory, Some(one.incarnation.0)) {
            // The directory was removed since the rollback was stopped.
            Err(Error::Stale) if one.stopped => {
                store.past.end_rollback(store, one)?;
                store.force()
            }
            Err(e) if one.stopped => stays(store, one, e),
            Ok(_) if one.stopped => Ok(()),
            _ => finish(view, one),
        }
    });
    store.gate.open();
    result
}

fn finish(view: &View, unfinished: &Unfinished) -> Result<()> {
    let store = view.store();
    let Unfinished { directory, incarnation, intent, .. } = unfinished;
    let finished = before_of(store, intent).and_then(|(_, verb, number, of)| {
        let name = name(verb, number, of);
        tracing::warn!("{name} of directory {directory} was interrupted: finishing it");
        if has_ended(store, *directory, &format!("after-{name}"), unfinished.number)? {
            store.past.end_rollback(store, unfinished)?;
            return store.force();
        }
        let found = view.inside().node(*directory, Some(incarnation.0))?;
        let others = intent.others.map(|(from, to)| (from, Some(to)));
        let plan = Plan { verb, of, target: intent.target, others };
        Roll::new(view, found.inode(), &plan)?.run()?;
        end(view, unfinished).map(|_| ())
    });
    let Err(e) = finished else { return Ok(()) };
    match store.check_writable() {
        Ok(()) => {
            tracing::error!("it could not be finished, and is not tried again: {e}");
            stop(store, unfinished);
            Ok(())
        }
        Err(_) => Err(e),
    }
}

/// Whether the event at the end exists already.
fn has_ended(store: &Arc<Store>, directory: InodeNo, name: &str, since: EventNo) -> Result<bool> {
    let is_it = |event: &Event| {
        event.row.root == directory && event.row.kind == EventKind::Undo && event.number > since
    };
    Ok(store.past.named(store, name)?.iter().any(is_it))
}
