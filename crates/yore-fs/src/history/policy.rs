//! Policies: which versions are made beside the snapshots that somebody asks for, and how long they are kept.
//!
//! A directory or a file may have a policy of its own. What that leaves open, the policy of the directory
//! above says, and so on up to the root directory. Where no policy says anything, versions are made at
//! snapshots only, and everything is kept. A file of several names obeys the directory of its latest name, or
//! the root directory if that name is gone.
//!
//! **At each close** ([`closed`]). When a program that could write to a file closes it, and the file was
//! changed, it is versioned. So that names have their history too, a change of the names of such a file takes
//! events of it ([`NameChange`], V3): one before, if the file was changed since its last event, and one
//! after. A file that has lost all its names gets no more versions, but a tombstone says that it was removed.
//!
//! **At intervals** ([`Due`]). The first change after an event must keep a version. That change also makes a
//! directory or file due one interval later: the one whose policy covers the changed inode, which is the
//! nearest policy that says anything but *at each close*. (A policy *at each close* is about single files,
//! and leaves it to the directories above when they get events.) A thread takes the events that are due. What
//! was due and got no event before the volume was closed gets it when the volume is opened again, before
//! anything changes.
//!
//! **Held for a time** ([`take`]). An event taken under a policy with `hold` says itself until when nobody
//! gives it up. So a later change of the policy does not affect it.
//!
//! **How long** ([`retain`]). Every few minutes the events of each directory and file that a policy with
//! rules covers are checked, and forgotten if no rule keeps them. Events with a name and held events are
//! never forgotten so. The policy of a user other than root says only how long that user's own events are
//! kept ([`place`], [`crate::history::reclaim::whose`]). What is gone is judged where it was last.
//!
//! **Damage** of one directory or file concerns that one alone: all its events stay, and the log says so.
//!
//! **The clock** may have been ahead, and times never descend. So events may have times that have not come
//! yet. Nobody knows when they were taken; no rule judges them until then ([`let_go`]). A hold counts from
//! the event's own time, which is not before the last event's ([`held_until`]). Nobody can tell a clock that
//! is behind from one that was ahead, so a hold that begins then may be too long.

mod place;
#[cfg(test)]
pub(super) mod tests;

use crate::api::room::with_room;
use crate::api::view::is_around;
use crate::history::exclude;
use crate::history::reclaim::forget;
use yore_core::inode::InodeCell;

use crate::history::reclaim::retention::{self, Reason, Taken};
use crate::history::reclaim::room::Want;
use crate::history::reclaim::whose;
use crate::history::record::{check_patterns, is_full, is_held, Event, User};
use crate::history::versioning;
use crate::ops::{self, InUse};
use crate::store::Store;
use crate::time::nanoseconds;
use crate::types::Behalf;
use crate::{Error, InodeNo, Result};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_format::{
    Corruption, EventKind, EventMore, EventNo, EventState, Incarnation, Policy, PolicyRow, Retention,
    Timestamp, Versioning, WriteFeatures, WITHIN_MAX,
};

/// How much later an event is tried again that cannot be taken when it is due.
const POSTPONED: Duration = Duration::from_secs(1);
/// How much later an event is tried again that damage or an error of the device prevented.
const AFTER_AN_ERROR: Duration = Duration::from_secs(60);
/// The longest hold of a policy, in nanoseconds: about a hundred years.
const HOLD_MAX: u64 = 36_525 * 86_400 * 1_000_000_000;
/// How often the rules are applied.
const RETAIN_EVERY: Duration = Duration::from_secs(300);
/// After so many new events the rules are applied at once.
const RETAIN_AFTER: u64 = 4096;
/// How many events are forgotten at a time.
const FORGET_AT_A_TIME: usize = 1024;

/// What applies to an inode, and whose policy says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInForce {
    /// When versions are made.
    pub versioning: Versioning,
    /// Whose policy says so; `None`: no policy does.
    pub versioning_by: Option<InodeNo>,
    /// How long they are kept.
    pub retention: Retention,
    /// Whose policy says so; `None`: no policy does.
    pub retention_by: Option<InodeNo>,
    /// For how long events that policies take are held, in nanoseconds; 0: not at all.
    pub hold: u64,
    /// Whose policy says so; `None`: no policy does.
    pub hold_by: Option<InodeNo>,
    /// Patterns of what policies make no versions of, for paths from the directory whose policy says so.
    pub exclude: Vec<String>,
    /// Whose policy says so; `None`: no policy does.
    pub exclude_by: Option<InodeNo>,
    /// Whether the inode itself is excluded.
    pub excluded: bool,
}

/// What applies to an inode.
///
/// # Errors
/// `Stale`; damage and device errors.
pub(crate) fn in_force(store: &Store, no: InodeNo) -> Result<PolicyInForce> {
    let (mut versioning, mut retention, mut hold, mut exclude) = (None, None, None, None);
    let cell = store.cell(no)?;
    let owner = cell.state.read().inode.uid;
    versioning::upwards(store, &cell, &mut |at, own| {
        if let Some(own) = own {
            versioning = versioning.or(own.versioning.map(|v| (v, at.no)));
            let is_everything = own.retention == Some(Retention::Everything);
            let governs = is_everything || place::governs(at.state.read().inode.uid, || Ok(Some(owner)))?;
            if retention.is_none() && governs {
                retention = own.retention.map(|r| (r, at.no));
            }
            hold = hold.or(own.hold.map(|h| (h, at.no)));
            exclude = exclude.take().or(own.exclude.map(|e| (e, at.no)));
        }
        Ok(versioning.is_none() || retention.is_none() || hold.is_none() || exclude.is_none())
    })?;
    let (versioning, versioning_by) = versioning.unzip();
    let (retention, retention_by) = retention.unzip();
    let (hold, hold_by) = hold.unzip();
    let (exclude, exclude_by) = exclude.unzip();
    Ok(PolicyInForce {
        versioning: versioning.unwrap_or(Versioning::Snapshots),
        versioning_by,
        retention: retention.unwrap_or(Retention::Everything),
        retention_by,
        hold: hold.unwrap_or(0),
        hold_by,
        exclude: exclude.unwrap_or_default(),
        exclude_by,
        excluded: exclude::is_excluded(store, &cell)?,
    })
}

/// For how long events that policies take of an inode are held, in nanoseconds: as if its own policy were
/// `own`, or by its actual policy if `own` is `None`.
fn hold_of(store: &Store, cell: &Arc<InodeCell>, own: Option<&Policy>) -> Result<u64> {
    let mut hold = None;
    versioning::upwards(store, cell, &mut |at, found| {
        let found = match own.filter(|_| at.no == cell.no) {
            Some(own) => own.hold,
            None => found.and_then(|found| found.hold),
        };
        hold = found;
        Ok(hold.is_none())
    })?;
    Ok(hold.unwrap_or(0))
}

/// Whether this policy, as the inode's own, would hold events taken of it for a shorter time than now.
///
/// # Errors
/// `Stale`; damage and device errors.
pub(crate) fn shortens_hold(store: &Store, no: InodeNo, policy: &Policy) -> Result<bool> {
    let cell = store.cell(no)?;
    Ok(hold_of(store, &cell, Some(policy))? < hold_of(store, &cell, None)?)
}

/// Takes an event because a policy says so, and holds it as long as a policy says.
///
/// # Errors
/// `NotFound`, `NoSpace`; damage and device errors.
fn take(store: &Arc<Store>, cell: &Arc<InodeCell>, kind: EventKind) -> Result<Event> {
    take_held(store, cell, kind, hold_of(store, cell, None)?)
}

/// As [`take`], held for so many nanoseconds.
fn take_held(store: &Arc<Store>, cell: &Arc<InodeCell>, kind: EventKind, hold: u64) -> Result<Event> {
    // When a policy with `hold` was set, the volume got the feature that such rows need.
    let until = (hold > 0).then(|| held_until(hold, crate::clock::now(), store.past.last_time()));
    let more = EventMore { held_until: until, ..EventMore::default() };
    store.past.event(store, cell, kind, ("", false), more, None)
}

/// Until when an event is held that is taken now, in seconds since 1970. A clock that is behind the last
/// event will be put forward, so the hold begins with that event: otherwise it would end too early.
fn held_until(hold: u64, now: Timestamp, last: Timestamp) -> i64 {
    let begin = now.max(last);
    let seconds = i64::try_from(hold.div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
    begin.seconds.saturating_add(seconds).saturating_add(i64::from(begin.nanos > 0))
}

/// An inode's own policy.
///
/// # Errors
/// `Stale`; damage and device errors.
pub(crate) fn own(store: &Store, no: InodeNo) -> Result<Policy> {
    let cell = store.cell(no)?;
    cell.state.read().check_alive()?;
    match cell.cover.has_policy.load(Ordering::Relaxed) {
        true => Ok(store.past.policy(&store.meta, no, cell.incarnation)?.unwrap_or_default()),
        false => Ok(Policy::default()),
    }
}

/// What has become of an inode that got a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// It is in use, and this user owns it.
    InUse(u32),
    /// It is gone, or another inode has its number.
    Gone,
    /// It is damaged.
    Unknown,
}

/// A row of the tree of policies, with what has become of its inode.
type Row = (InodeNo, PolicyRow, Holder);

/// All rows of the tree of policies.
fn rows(store: &Store) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    store.past.each_policy(&store.meta, &mut |no, row| {
        rows.push((no, row, Holder::Unknown));
        Ok(true)
    })?;
    for (no, row, holder) in &mut rows {
        *holder = match store.cell_if_used(*no) {
            Ok(Some(cell)) if cell.incarnation == row.incarnation => {
                Holder::InUse(cell.state.read().inode.uid)
            }
            Ok(_) => Holder::Gone,
            Err(error) if error.is_damage() => {
                tracing::warn!("the policy of inode {no} is left alone: {error}");
                Holder::Unknown
            }
            Err(e) => return Err(e),
        };
    }
    Ok(rows)
}

/// The policies of inodes in use among these, with the numbers of the inodes.
fn in_use(rows: &[Row]) -> impl Iterator<Item = (InodeNo, &Policy)> {
    let rows = rows.iter().filter(|(.., holder)| matches!(holder, Holder::InUse(_)));
    rows.map(|(no, row, _)| (*no, &row.policy))
}

/// All policies of inodes in use, with the numbers of these inodes.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn all(store: &Store) -> Result<Vec<(InodeNo, Policy)>> {
    let rows = rows(store)?;
    Ok(in_use(&rows).map(|(no, policy)| (no, policy.clone())).collect())
}

/// Says whether somebody may do something, or why not.
pub(crate) type May<'m> = &'m dyn Fn() -> Result<()>;

/// Gives an inode a policy, on behalf of a user. It is durable on return. A policy with an interval begins
/// with an event. `may` is asked right before the policy is set; all policies are still the same when that
/// is done.
///
/// # Errors
/// `Invalid` if the inode is neither a directory nor a regular file, and for impossible rules;
/// `LimitReached`; `NotFound`, `NoSpace`, `ReadOnly`; those of `may`.
pub(crate) fn set(
    store: &Arc<Store>,
    no: InodeNo,
    policy: &Policy,
    user: Option<&User>,
    may: Option<May<'_>>,
) -> Result<()> {
    store.check_writable()?;
    check(policy)?;
    if policy.is_extended() {
        store.meta.extend(WriteFeatures::EXTENDED_PAST)?;
    }
    let cell = store.cell(no)?;
    {
        let state = cell.state.read();
        if !state.inode.is_directory() && !state.inode.is_regular() {
            return Err(Error::Invalid { what: "only directories and regular files have policies" });
        }
        if state.inode.is_regular() && policy.exclude.as_ref().is_some_and(|patterns| !patterns.is_empty()) {
            return Err(Error::Invalid {
                what: "patterns are of paths below a directory; of a file it can be said that it is not excluded",
            });
        }
    }
    store.past.extend_for_annals(&store.meta)?;
    loop {
        let epoch = store.past.epoch();
        exclude::before_change_of(store, &cell, policy)?;
        let policies = may.map(|_| store.past.policy_epoch());
        may.map_or(Ok(()), |may| may())?;
        if store.past.set_policy(store, &cell, policy, user, (epoch, policies))? {
            break;
        }
    }
    if let Some(Versioning::Interval(_)) = policy.versioning {
        take(store, &cell, EventKind::Interval)?;
    }
    *store.due.retained.lock() = None;
    store.wake();
    store.force()
}

fn check(policy: &Policy) -> Result<()> {
    if let Some(Versioning::Interval(nanos)) = policy.versioning {
        if nanos < yore_format::INTERVAL_MIN {
            return Err(Error::Invalid { what: "an interval is at least one second" });
        }
    }
    check_patterns(policy.exclude.as_deref().unwrap_or_default()).map_err(Error::Refused)?;
    if policy.hold.is_some_and(|nanos| nanos > HOLD_MAX) {
        return Err(Error::Invalid { what: "what a policy takes is held for at most a hundred years" });
    }
    if let Some(Retention::Rules(rules)) = &policy.retention {
        let within = &rules.within;
        let zone = jiff::tz::TimeZone::UTC;
        if !within.is_empty()
            && (within.len() > WITHIN_MAX
                || within.contains(char::is_control)
                || crate::time::parse_ago(within, crate::clock::now(), &zone).is_err())
        {
            return Err(Error::Invalid { what: "not a duration, or too long a one" });
        }
    }
    Ok(())
}

/// From which event on a change of a file counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// The last event of the file itself. An event of a directory does not count, even if it has seen the
    /// change: it may be forgotten before the events that the file's policy keeps.
    OwnEvent,
    /// The last event that covers it.
    AnyEvent,
}

/// Whether a file was changed.
fn is_changed(store: &Store, cell: &Arc<InodeCell>, since: Since) -> Result<bool> {
    let state = cell.state.read();
    let inode = &state.inode;
    if state.gone || inode.links == 0 {
        return Ok(false);
    }
    match since {
        Since::OwnEvent => Ok(inode.born > store.past.round_own(cell.no, inode.own_event)),
        Since::AnyEvent => Ok(!store.past.must_preserve(store, cell, inode)?),
    }
}

/// Whether closing a file makes a version of it. Constant time.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn is_versioned_at_close(store: &Store, cell: &Arc<InodeCell>) -> Result<bool> {
    Ok(obeys_closes(store, cell)? && !exclude::is_excluded(store, cell)?)
}

/// As [`is_versioned_at_close`], regardless of whether the file's name is excluded.
fn obeys_closes(store: &Store, cell: &Arc<InodeCell>) -> Result<bool> {
    Ok(store.past.has_policies()
        && cell.state.read().inode.is_regular()
        && versioning::versioning(store, cell)?.at_close)
}

/// A program that could write to a file has closed it. Takes an event of the file if a policy versions it at
/// each close, and the file was changed since its last event.
///
/// # Errors
/// `NoSpace`; damage and device errors.
pub(crate) fn closed(store: &Arc<Store>, cell: &Arc<InodeCell>, behalf: Behalf) -> Result<Option<Event>> {
    event_if_changed(store, cell, Since::OwnEvent, behalf)
}

/// Records whether a version could be made, and returns the result unchanged.
fn noted<R>(store: &Store, made: Result<R>) -> Result<R> {
    store.missed.note(&made, || (store.alloc.available(&store.meta, 0), store.meta.geometry().blocks));
    made
}

fn event_if_changed(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    since: Since,
    behalf: Behalf,
) -> Result<Option<Event>> {
    if store.read_only || !is_versioned_at_close(store, cell)? || !is_changed(store, cell, since)? {
        return Ok(None);
    }
    let want = Want::little(behalf);
    match noted(store, with_room(store, &want, |store| take(store, cell, EventKind::Close))) {
        Ok(event) => Ok(Some(event)),
        // The file has lost its last name meanwhile.
        Err(Error::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A file whose names are about to change, if a policy versions it at each close, and on whose behalf they
/// change. The file stays in use while this lives.
pub(crate) struct NameChange {
    file: Option<InUse>,
    behalf: Behalf,
    /// The old name is excluded; the new one may not be.
    excluded: bool,
    /// How long it is held, in nanoseconds, that the file was removed: as the policies say where it is. When
    /// it is gone nobody knows where it was.
    hold: u64,
}

impl NameChange {
    fn nothing(behalf: Behalf) -> NameChange {
        NameChange { file: None, behalf, excluded: false, hold: 0 }
    }

    /// The file of a name, before that name changes.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors. That there is no such name is an error of the caller's own call,
    /// which comes next.
    pub(crate) fn of(
        store: &Arc<Store>,
        directory: InodeNo,
        name: &[u8],
        behalf: Behalf,
    ) -> Result<NameChange> {
        if !store.past.has_policies() {
            return Ok(NameChange::nothing(behalf));
        }
        match ops::lookup(store, directory, name) {
            Ok(found) => NameChange::of_file(store, &found, behalf),
            Err(Error::NotFound | Error::NotADirectory | Error::Stale | Error::NameTooLong) => {
                Ok(NameChange::nothing(behalf))
            }
            Err(e) => Err(e),
        }
    }

    /// As [`NameChange::of`], for a file that is known.
    ///
    /// # Errors
    /// As [`NameChange::of`].
    pub(crate) fn of_file(store: &Arc<Store>, file: &InUse, behalf: Behalf) -> Result<NameChange> {
        if !obeys_closes(store, &file.cell)? {
            return Ok(NameChange::nothing(behalf));
        }
        let excluded = exclude::is_excluded(store, &file.cell)?;
        // Nothing tells that an excluded file was removed, so nothing of that is held.
        let hold = if excluded { 0 } else { hold_of(store, &file.cell, None)? };
        // The state at the last close is a version already.
        event_if_changed(store, &file.cell, Since::AnyEvent, behalf)?;
        let file = Some(InUse::new(store, file.cell.clone(), file.attr));
        Ok(NameChange { file, behalf, excluded, hold })
    }

    /// The file lost a name to the file of `other`, whose event tells when.
    ///
    /// # Errors
    /// As [`NameChange::changed`].
    pub(crate) fn replaced_by(self, store: &Arc<Store>, other: &NameChange) -> Result<()> {
        let is_gone = |file: &InUse| file.cell.unlinked.load(Ordering::Acquire);
        match other.file.is_some() && self.file.as_ref().is_some_and(is_gone) {
            true => Ok(()),
            false => self.changed(store),
        }
    }

    /// The names have changed, and an event is taken of it. If there is no room for the event, it is left
    /// out: the change itself was made.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn changed(self, store: &Arc<Store>) -> Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let is_gone = {
            let state = file.cell.state.read();
            state.gone || state.inode.links == 0
        };
        let made = match is_gone {
            false => closed(store, &file.cell, self.behalf).map(|_| ()),
            true if self.excluded => Ok(()),
            true => noted(store, take_held(store, &file.cell, EventKind::Removed, self.hold)).map(|_| ()),
        };
        match made {
            Err(error) if is_full(&error) => Ok(()),
            made => made,
        }
    }
}

/// At opening: takes the events that are overdue, before anything changes, and makes the rest due at their
/// times. O(policies); nothing if there are none. A directory or file that is damaged has to wait.
///
/// # Errors
/// Damage of the tree of policies; that nothing can be written.
pub(crate) fn start(store: &Arc<Store>) -> Result<()> {
    if !store.past.has_policies() {
        return Ok(());
    }
    let rows = rows(store)?;
    count(store, &rows);
    for (no, policy) in in_use(&rows) {
        let Some(Versioning::Interval(nanos)) = policy.versioning else { continue };
        match due_in(store, no, nanos) {
            Ok(None) => {}
            Ok(Some(left)) => store.due.put(no, left),
            Err(error) => wait_for_repair(store, no, error)?,
        }
    }
    match take_due_events(store) {
        // It is due again, and the volume is of use without it.
        Err(error) if error.is_damage() => {
            store.check_writable()?;
            tracing::warn!("a snapshot that is due cannot be taken: {error}");
            Ok(())
        }
        taken => taken,
    }
}

/// Makes a directory or file due some time later, if damage is the reason why it is not known when it is.
fn wait_for_repair(store: &Store, no: InodeNo, error: Error) -> Result<()> {
    if !error.is_damage() {
        return Err(error);
    }
    tracing::warn!("when the next snapshot of inode {no} is due is not known: {error}");
    store.due.put(no, AFTER_AN_ERROR);
    Ok(())
}

/// After how long the event of an interval is due; `None` if nothing has changed since the last one.
fn due_in(store: &Store, no: InodeNo, interval: u64) -> Result<Option<Duration>> {
    let last = store.past.last_of(&store.meta, no, EventNo(u64::MAX))?;
    let since = last.as_ref().map_or(EventNo(0), |event| event.number);
    if !store.past.is_changed_since(&store.meta, since)? {
        return Ok(None);
    }
    let left = last.map_or(0, |event| {
        let due = nanoseconds(event.row.time) + i128::from(interval);
        (due - nanoseconds(crate::clock::now())).clamp(0, interval.into()) as u64
    });
    Ok(Some(Duration::from_nanos(left)))
}

/// Takes the events that are due. One that cannot be taken is due again later, and the others are taken.
///
/// # Errors
/// Damage and device errors: the first one that came.
pub(crate) fn take_due_events(store: &Arc<Store>) -> Result<()> {
    let mut all = Ok(());
    for no in store.due.take(Instant::now()) {
        let taken = take_due_event(store, no);
        if taken.is_err() {
            store.due.note(no, AFTER_AN_ERROR);
        }
        all = all.and(taken);
    }
    all
}

/// Takes the event that is due of an inode. If a full volume has no room for it, it is soon due again.
fn take_due_event(store: &Arc<Store>, no: InodeNo) -> Result<()> {
    let Some(cell) = store.cell_if_used(no)? else { return Ok(()) };
    let own = store.past.policy(&store.meta, no, cell.incarnation)?;
    if !matches!(own.and_then(|own| own.versioning), Some(Versioning::Interval(_))) {
        return Ok(());
    }
    // A directory that is being rolled back gets its event when the rollback is done.
    let concerns = |at| is_around(store, no, at);
    let Some(_passage) = store.gate.try_enter(concerns)? else {
        store.due.note(no, POSTPONED);
        return Ok(());
    };
    // Nobody asked for this event, so no history is given up for it.
    let nobody = Want::little(Behalf::Nobody);
    let made = with_room(store, &nobody, |store| take(store, &cell, EventKind::Interval));
    match noted(store, made) {
        Ok(_) | Err(Error::NotFound) => Ok(()),
        // A full volume can still be opened, and emptied; the event is taken when there is room.
        Err(error) if is_full(&error) => {
            store.due.note(no, POSTPONED);
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// Forgets what policies no longer keep, if it is time to look. The background frees what only those events
/// have seen. O(events), if a policy has rules.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn retain_in_time(store: &Arc<Store>) -> Result<()> {
    if !store.past.has_policies() {
        return Ok(());
    }
    let now = (Instant::now(), store.number());
    let checked_at = *store.due.retained.lock();
    let is_early = |(at, number): (Instant, EventNo)| {
        now.0 < at + RETAIN_EVERY && now.1 .0 < number.0.saturating_add(RETAIN_AFTER)
    };
    if checked_at.is_some_and(is_early) {
        return Ok(());
    }
    *store.due.retained.lock() = Some(now);
    let rows = rows(store)?;
    let swept = sweep(store, &rows);
    let kept = retain_by(store, &rows).map(drop);
    swept.and(kept)
}

/// Counts again how many policies each user's directories and files have: owners may have changed, and inodes
/// may be gone.
fn count(store: &Store, rows: &[Row]) {
    let owners = rows.iter().filter_map(|(.., holder)| match holder {
        Holder::InUse(uid) => Some(*uid),
        Holder::Gone | Holder::Unknown => None,
    });
    store.past.users.set_policies(owners);
}

/// Removes the policies of inodes that are gone.
fn sweep(store: &Arc<Store>, rows: &[Row]) -> Result<()> {
    count(store, rows);
    let mut gone = rows.iter().filter(|(.., holder)| *holder == Holder::Gone);
    gone.try_for_each(|(no, row, _)| store.past.sweep_policy(store, *no, row.incarnation))
}

/// Forgets what policies no longer keep, and returns how many events that were.
///
/// # Errors
/// Damage and device errors, unless they are of a single directory or file.
pub(crate) fn retain(store: &Arc<Store>) -> Result<usize> {
    retain_by(store, &rows(store)?)
}

/// As [`retain`], if these are the policies.
fn retain_by(store: &Arc<Store>, rows: &[Row]) -> Result<usize> {
    store.check_writable()?;
    if !in_use(rows).any(|(_, policy)| matches!(policy.retention, Some(Retention::Rules(_)))) {
        return Ok(0);
    }
    // Different files may have had one inode number.
    let mut by_root: BTreeMap<(InodeNo, Incarnation), Vec<Event>> = BTreeMap::new();
    store.past.each_event(&store.meta, EventNo(0), &mut |event| {
        if event.row.state == EventState::Kept {
            by_root.entry((event.row.root, event.row.root_incarnation)).or_default().push(event);
        }
        Ok(true)
    })?;
    let (now, zone) = (crate::clock::now(), jiff::tz::TimeZone::system());
    let (mut to_forget, mut removals) = (Vec::new(), Vec::new());
    let mut damaged: Option<(usize, Error)> = None;
    for (root, events) in by_root {
        match let_go(store, root, events, (now, &zone)) {
            Ok(goes) => {
                to_forget.extend(goes.versions);
                removals.extend(goes.removals);
            }
            Err(error) if error.is_damage() => {
                let (count, _) = damaged.get_or_insert((0, error));
                *count += 1;
            }
            Err(e) => return Err(e),
        }
    }
    if let Some((count, error)) = damaged {
        tracing::warn!("all versions of {count} directories and files stay, whatever policies say: {error}");
    }
    match forget_some(store, &to_forget)? {
        true => drop(forget_some(store, &removals)?),
        // Some version stays for now, and so does what tells that it ended.
        false => removals.clear(),
    }
    Ok(to_forget.len() + removals.len())
}

/// The events of one directory or file that no rule keeps.
#[derive(Default)]
struct Goes {
    versions: Vec<EventNo>,
    /// That it was removed.
    removals: Vec<EventNo>,
}

/// Which of the kept events of a directory or file no rule keeps. They are in ascending order.
fn let_go(
    store: &Store,
    root: (InodeNo, Incarnation),
    events: Vec<Event>,
    (now, zone): (Timestamp, &jiff::tz::TimeZone),
) -> Result<Goes> {
    let Some(place::Ruling { rules, by }) = place::ruling_of(store, root)? else {
        return Ok(Goes::default());
    };
    // The removal of a file is remembered as long as any version of it.
    let (removed, versions): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| event.row.kind == EventKind::Removed);
    // A clock that was ahead gave times that have not come yet, also to what was taken since. Of these events
    // no hour or day is known: they stay, and none of the others goes because of them.
    let (versions, ahead): (Vec<Event>, Vec<Event>) =
        versions.into_iter().partition(|event| event.row.time <= now);
    let taken: Vec<Taken<'_>> =
        versions.iter().map(|event| Taken::of(event, store.past.is_pinned(event.number))).collect();
    let mut reasons = vec![Vec::new(); versions.len()];
    for rules in &rules {
        let kept = retention::reasons(rules, false, &taken, zone)
            .map_err(|_| Corruption::new("policy", "duration", "one that can be read", &rules.within))?;
        reasons.iter_mut().zip(kept).for_each(|(all, more)| all.extend(more));
    }
    for (event, reasons) in versions.iter().zip(&mut reasons) {
        // As by a command, a user gives up nothing that somebody else took. Root may. What the events are of
        // is the user's own, or his policy would not apply to it.
        let is_others = by != 0 && !whose::is_of(by, &event.row, || Ok(Some(by)))?;
        reasons.extend(is_others.then_some(Reason::Others));
    }
    let goes = versions.iter().zip(reasons).filter(|(_, why)| why.is_empty());
    let mut goes = Goes { versions: goes.map(|(event, _)| event.number).collect(), removals: Vec::new() };
    if goes.versions.len() == versions.len() && ahead.is_empty() {
        goes.removals =
            removed.iter().filter(|event| !is_held(&event.row)).map(|event| event.number).collect();
    }
    Ok(goes)
}

/// Forgets events. Returns whether all are forgotten: those with which somebody held, mounted or forgot one
/// meanwhile wait for the next time.
fn forget_some(store: &Arc<Store>, events: &[EventNo]) -> Result<bool> {
    let mut are_all = true;
    for some in events.chunks(FORGET_AT_A_TIME) {
        match forget::begin(store, some) {
            Ok(()) => {}
            Err(Error::NotFound | Error::Held { .. } | Error::HeldUntil { .. } | Error::Pinned { .. }) => {
                are_all = false;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(are_all)
}
