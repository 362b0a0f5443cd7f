//! Policies: which versions are made beside the snapshots that somebody asks for, and how long they are kept.
//!
//! A directory or a file may have a policy of its own; what it leaves open is said by the directory above,
//! and so on up to the root directory. Where nothing is said, versions are made at snapshots only, and
//! everything is kept. A file of several names obeys the directory of its latest one, or the root directory
//! if that name is gone.
//!
//! **At each close** ([`closed`]). When a file that was changed is closed by who could write to it, it is
//! cut. So that a name, too, has its history, what changes the names of such a file events it
//! ([`NameChange`], V3): before, if it was changed since its last event, and after; a file without names is
//! cut no more, but that it was removed is noted.
//!
//! **At intervals** ([`Due`]). The first change after an event must keep a version; there it is noted that
//! the directory (or file) whose policy covers it is to be versioned so much later: the nearest that says
//! anything but *at each close*, for that is of single files, and leaves it to the directories above whether
//! they are cut. A thread does so. What was not cut before the volume was closed is cut when it is opened
//! again, before anything changes, if its time has come.
//!
//! **Held for a time** ([`take`]). What is taken under a policy with `hold` says until when nobody gives it
//! up; that it says itself, so another policy changes nothing of it.
//!
//! **How long** ([`retain`]). The events of each directory and file that a policy with rules covers are
//! looked at every few minutes, and forgotten if no rule keeps them; those with a name and those held never.

use crate::api::room::with_room;
use crate::api::view::is_below;
use crate::core::inode::InodeCell;
use crate::history::exclude;
use crate::history::reclaim::forget;

use crate::history::reclaim::retention::{self, Taken};
use crate::history::reclaim::room::Want;
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
    Corruption, EventKind, EventMore, EventNo, EventState, Policy, PolicyRow, Retention, Versioning,
    WriteFeatures, WITHIN_MAX,
};

/// How much later something is cut that cannot be when it is due.
const POSTPONED: Duration = Duration::from_secs(1);
/// The longest hold of a policy, in nanoseconds: about a hundred years.
const HOLD_MAX: u64 = 36_525 * 86_400 * 1_000_000_000;
/// How often it is looked what is kept.
const RETAIN_EVERY: Duration = Duration::from_secs(300);
/// After so many events it is looked at once.
const RETAIN_AFTER: u64 = 4096;
/// Events forgotten at a time.
const FORGET_AT_A_TIME: usize = 1024;

/// What applies to an inode, and whose policy says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInForce {
    /// When versions are made.
    pub versioning: Versioning,
    /// By whose policy; `None`: nobody says anything.
    pub versioning_by: Option<InodeNo>,
    /// How long they are kept.
    pub retention: Retention,
    /// By whose policy; `None`: nobody says anything.
    pub retention_by: Option<InodeNo>,
    /// For how long what policies take is held, in nanoseconds; 0: not at all.
    pub hold: u64,
    /// By whose policy; `None`: nobody says anything.
    pub hold_by: Option<InodeNo>,
    /// What is excluded from versions that policies make, of paths from the directory that says so.
    pub exclude: Vec<String>,
    /// By whose policy; `None`: nobody says anything.
    pub exclude_by: Option<InodeNo>,
    /// It is excluded itself.
    pub excluded: bool,
}

/// What applies to an inode.
///
/// # Errors
/// `Stale`; damage and device errors.
pub(crate) fn in_force(store: &Store, no: InodeNo) -> Result<PolicyInForce> {
    let (mut versioning, mut retention, mut hold, mut exclude) = (None, None, None, None);
    let cell = store.cell(no)?;
    versioning::upwards(store, &cell, &mut |at, own| {
        if let Some(own) = own {
            versioning = versioning.or(own.versioning.map(|v| (v, at.no)));
            if retention.is_none() {
                retention = own.retention.map(|r| (r, at.no));
            }
            hold = hold.or(own.hold.map(|h| (h, at.no)));
            exclude = exclude.take().or(own.exclude.map(|e| (e, at.no)));
        }
        Ok(versioning.is_none() || retention.is_none() || hold.is_none())
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

/// For how long what policies take of an inode is held, in nanoseconds, if its own policy is `own`; else by
/// what it is.
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

/// Whether another policy of its own would hold what is taken of an inode for a shorter time than now.
///
/// # Errors
/// `Stale`; damage and device errors.
pub(crate) fn shortens_hold(store: &Store, no: InodeNo, policy: &Policy) -> Result<bool> {
    let cell = store.cell(no)?;
    Ok(hold_of(store, &cell, Some(policy))? < hold_of(store, &cell, None)?)
}

/// Takes an event because a policy says so, and holds it for as long as one says.
///
/// # Errors
/// `NotFound`, `NoSpace`; damage and device errors.
fn take(store: &Arc<Store>, cell: &Arc<InodeCell>, kind: EventKind) -> Result<Event> {
    let mut more = EventMore::default();
    let hold = hold_of(store, cell, None)?;
    if hold > 0 {
        // A policy that holds has given the volume what such rows need.
        let seconds = i64::try_from(hold.div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
        more.held_until = Some(crate::clock::now().seconds.saturating_add(seconds));
    }
    store.past.event(store, cell, kind, ("", false), more, None)
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

/// All rows of the tree of policies, each with whether its inode is in use.
fn rows(store: &Store) -> Result<Vec<(InodeNo, PolicyRow, bool)>> {
    let mut rows = Vec::new();
    store.past.each_policy(&store.meta, &mut |no, row| {
        rows.push((no, row, false));
        Ok(true)
    })?;
    for (no, row, in_use) in &mut rows {
        *in_use = match store.cell(*no) {
            Ok(cell) => cell.incarnation == row.incarnation,
            Err(Error::Stale) => false,
            Err(e) => return Err(e),
        };
    }
    Ok(rows)
}

/// All policies of inodes in use, by their numbers.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn all(store: &Store) -> Result<Vec<(InodeNo, Policy)>> {
    let in_use = rows(store)?.into_iter().filter(|(.., in_use)| *in_use);
    Ok(in_use.map(|(no, row, _)| (no, row.policy)).collect())
}

/// Gives an inode a policy, on behalf of a user. Durable when it returns. One with an interval begins with an
/// event.
///
/// # Errors
/// `Invalid` for what is neither directory nor regular file, and for rules that cannot be; `LimitReached`;
/// `NotFound`, `NoSpace`, `ReadOnly`.
pub(crate) fn set(store: &Arc<Store>, no: InodeNo, policy: &Policy, user: Option<&User>) -> Result<()> {
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
    loop {
        let epoch = store.past.epoch();
        exclude::before_change_of(store, &cell, policy)?;
        if store.past.set_policy(store, &cell, policy, user, epoch)? {
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

/// Since when a change of a file counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// The last event of its own. That a directory's has seen it does not do: that may be forgotten before
    /// what the policy of the file keeps.
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
        Since::AnyEvent => Ok(!store.past.must_keep(store, cell, inode)?),
    }
}

/// Whether a version is made of a file when it is closed. Constant time.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn is_versioned_at_close(store: &Store, cell: &Arc<InodeCell>) -> Result<bool> {
    Ok(obeys_closes(store, cell)? && !exclude::is_excluded(store, cell)?)
}

/// The same of a file whatever name it has in its directory.
fn obeys_closes(store: &Store, cell: &Arc<InodeCell>) -> Result<bool> {
    Ok(store.past.has_policies()
        && cell.state.read().inode.is_regular()
        && versioning::versioning(store, cell)?.at_close)
}

/// A file was closed by somebody who could write to it. If that is to make a version, and it was changed
/// since the last one, it is cut.
///
/// # Errors
/// `NoSpace`; damage and device errors.
pub(crate) fn closed(store: &Arc<Store>, cell: &Arc<InodeCell>, behalf: Behalf) -> Result<Option<Event>> {
    event_if_changed(store, cell, Since::OwnEvent, behalf)
}

/// Takes note of how making a version went, and hands it on.
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
        // Its last name went meanwhile.
        Err(Error::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A file whose names are about to change, if versions of it are made when it is closed; and whose request
/// that is. It stays while this lives.
pub(crate) struct NameChange {
    file: Option<InUse>,
    behalf: Behalf,
    /// Under its old name it is excluded; the new one may not be.
    excluded: bool,
}

impl NameChange {
    fn nothing(behalf: Behalf) -> NameChange {
        NameChange { file: None, behalf, excluded: false }
    }

    /// The file of a name, before something happens to that.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors. That there is no such name is left to who changes it.
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

    /// The same for a file that is known.
    ///
    /// # Errors
    /// As [`NameChange::of`].
    pub(crate) fn of_file(store: &Arc<Store>, file: &InUse, behalf: Behalf) -> Result<NameChange> {
        if !obeys_closes(store, &file.cell)? {
            return Ok(NameChange::nothing(behalf));
        }
        let excluded = exclude::is_excluded(store, &file.cell)?;
        // What it had when it was closed is a version already.
        event_if_changed(store, &file.cell, Since::AnyEvent, behalf)?;
        let file = Some(InUse::new(store, file.cell.clone(), file.attr));
        Ok(NameChange { file, behalf, excluded })
    }

    /// It lost a name to this one, which tells when that was.
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

    /// Its names have changed. What cannot be noted of that, for want of room, is not: the change was made.
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
            true => noted(store, take(store, &file.cell, EventKind::Removed)).map(|_| ()),
        };
        match made {
            Err(error) if is_full(&error) => Ok(()),
            made => made,
        }
    }
}

/// At opening: what should have been versioned by now is, before anything changes; the rest when its time
/// comes. O(policies), and nothing without them.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn start(store: &Arc<Store>) -> Result<()> {
    if !store.past.has_policies() {
        return Ok(());
    }
    count(store, &rows(store)?)?;
    for (no, policy) in all(store)? {
        let Some(Versioning::Interval(nanos)) = policy.versioning else { continue };
        let last = store.past.last_of(&store.meta, no, EventNo(u64::MAX))?;
        let since = last.as_ref().map_or(EventNo(0), |event| event.number);
        if !store.past.is_changed_since(&store.meta, since)? {
            continue;
        }
        let left = last.map_or(0, |event| {
            let due = nanoseconds(event.row.time) + i128::from(nanos);
            (due - nanoseconds(crate::clock::now())).clamp(0, nanos.into()) as u64
        });
        let left = Duration::from_nanos(left);
        store.due.put(no, left);
    }
    event_due(store)
}

/// Events what is due. What a full volume has no room for is due again soon.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn event_due(store: &Arc<Store>) -> Result<()> {
    for no in store.due.take(Instant::now()) {
        let cell = match store.cell(no) {
            Ok(cell) => cell,
            Err(Error::Stale) => continue,
            Err(e) => return Err(e),
        };
        let own = store.past.policy(&store.meta, no, cell.incarnation)?;
        if !matches!(own.and_then(|own| own.versioning), Some(Versioning::Interval(_))) {
            continue;
        }
        // What is being made what it was is cut when it is that.
        let concerns = |at| Ok(is_below(store, no, at)? || is_below(store, at, no)?);
        let Some(_passage) = store.gate.try_enter(concerns)? else {
            store.due.note(no, POSTPONED);
            continue;
        };
        // Nobody has asked for it, so nothing is given up for it.
        let nobody = Want::little(Behalf::Nobody);
        let made = with_room(store, &nobody, |store| take(store, &cell, EventKind::Interval));
        match noted(store, made) {
            Ok(_) | Err(Error::NotFound) => {}
            // A full volume can be opened all the same, and emptied; the event is made when there is room.
            Err(error) if is_full(&error) => {
                store.due.note(no, POSTPONED);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Forgets what policies keep no longer, if it is time to look; what only such events have seen is given up
/// in the background. O(events), with a policy that has rules.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn retain_in_time(store: &Arc<Store>) -> Result<()> {
    if !store.past.has_policies() {
        return Ok(());
    }
    let now = (Instant::now(), store.number());
    let looked = *store.due.retained.lock();
    let is_early = |(at, number): (Instant, EventNo)| {
        now.0 < at + RETAIN_EVERY && now.1 .0 < number.0.saturating_add(RETAIN_AFTER)
    };
    if looked.is_some_and(is_early) {
        return Ok(());
    }
    *store.due.retained.lock() = Some(now);
    sweep(store)?;
    retain(store).map(|_| ())
}

/// Counts anew whose directories and files have policies: their owners may have changed, or they may be gone.
fn count(store: &Store, rows: &[(InodeNo, PolicyRow, bool)]) -> Result<()> {
    let mut owners = Vec::new();
    for (no, ..) in rows.iter().filter(|(.., in_use)| *in_use) {
        match store.cell(*no) {
            Ok(cell) => owners.push(cell.state.read().inode.uid),
            Err(Error::Stale) => {}
            Err(e) => return Err(e),
        }
    }
    store.past.users.set_policies(owners.into_iter());
    Ok(())
}

/// Gives up the policies of inodes that are gone.
fn sweep(store: &Arc<Store>) -> Result<()> {
    let rows = rows(store)?;
    count(store, &rows)?;
    let gone = rows.into_iter().filter(|(.., in_use)| !in_use);
    gone.into_iter().try_for_each(|(no, row, _)| store.past.sweep_policy(store, no, row.incarnation))
}

/// Forgets what policies keep no longer; how many events.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn retain(store: &Arc<Store>) -> Result<usize> {
    store.check_writable()?;
    let has_rules = |(_, policy): &(InodeNo, Policy)| matches!(policy.retention, Some(Retention::Rules(_)));
    if !all(store)?.iter().any(has_rules) {
        return Ok(0);
    }
    let mut by_root: BTreeMap<InodeNo, Vec<Event>> = BTreeMap::new();
    store.past.each_event(&store.meta, EventNo(0), &mut |event| {
        if event.row.state == EventState::Kept {
            by_root.entry(event.row.root).or_default().push(event);
        }
        Ok(true)
    })?;
    let zone = jiff::tz::TimeZone::system();
    let mut going = Vec::new();
    for (root, events) in by_root {
        let in_force = match in_force(store, root) {
            // Nobody is left to say something else.
            Err(Error::Stale) => in_force(store, InodeNo::ROOT),
            other => other,
        }?;
        let Retention::Rules(rules) = in_force.retention else { continue };
        // That a file was removed is remembered as long as anything of it.
        let (removed, versions): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.row.kind == EventKind::Removed);
        let taken: Vec<Taken<'_>> =
            versions.iter().map(|event| Taken::of(event, store.past.is_pinned(event.number))).collect();
        let reasons = retention::reasons(&rules, false, &taken, &zone)
            .map_err(|_| Corruption::new("policy", "duration", "one that can be read", &rules.within))?;
        let before = going.len();
        going.extend(
            versions.iter().zip(reasons).filter(|(_, why)| why.is_empty()).map(|(event, _)| event.number),
        );
        if going.len() - before == versions.len() {
            going.extend(removed.iter().filter(|event| !is_held(&event.row)).map(|event| event.number));
        }
    }
    for some in going.chunks(FORGET_AT_A_TIME) {
        match forget::begin(store, some) {
            // Somebody held, mounted or forgot one of them meanwhile: next time.
            Ok(())
            | Err(Error::NotFound | Error::Held { .. } | Error::HeldUntil { .. } | Error::Pinned { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(going.len())
}
