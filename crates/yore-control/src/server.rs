//! The answering half: what a request does to a volume, and on whose behalf.

mod expunge;
mod look;
mod policies;
mod rollback;
mod told;

use crate::wire::{size, ROWS};
use crate::{Answer, Ongoing, Page, Request, Saying, Stopped, Take, FORGET_MAX};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use yore_fs::rollback::Changed;
use yore_fs::{
    Access, Doing, Error, Event, EventNo, EventRow, FileKind, Incarnation, InodeNo, ListedEvent, NewSnapshot,
    OperationRow, Pin, PinnedBy, Remembered, Result, RowClass, User, UserLimits, View, NAME_MAX,
};

/// The user who asks, and the properties of the mount that matter to the answer.
pub struct Who<'a> {
    /// The user.
    pub uid: u32,
    /// The user may do everything: root, the daemon's user, and whoever opened the volume directly.
    pub may_all: bool,
    /// The user may also do what only root may do on a mount: shorten holds, and change what is immutable.
    /// Root, and whoever opened the volume directly.
    pub as_root: bool,
    /// The groups of a user who may not do everything.
    pub groups: &'a [u32],
    /// How much of the history the user may learn.
    pub access: &'a Access,
    /// Nothing can be changed on the mount.
    pub read_only: bool,
    /// Limits for each user who may not do everything.
    pub limits: UserLimits,
    /// Owners may also give up history that others' snapshots have seen.
    pub expunges_others: bool,
    /// Services that only the serving process can provide.
    pub host: &'a dyn Host,
}

/// Pins a snapshot when it is taken.
pub type Kept<'a> = Box<dyn FnOnce(Pin) -> Result<()> + 'a>;

/// Services that only the serving process can provide.
pub trait Host {
    /// Reserves room to pin one more snapshot as long as the asking process lives.
    ///
    /// # Errors
    /// There is no room. Then nothing has been taken yet.
    fn room(&self) -> Result<Kept<'_>>;

    /// Whether the host is about to end, so that long work is broken off.
    fn is_over(&self) -> bool;

    /// What is remembered between requests.
    fn ongoing(&self) -> &Ongoing;

    /// Detects closes of files from now on, if the host does not yet.
    ///
    /// # Errors
    /// The host cannot detect closes.
    fn want_closes(&self) -> Result<()> {
        Ok(())
    }

    /// Tells all who cache the volume's contents that these have changed.
    fn changed(&self, _changed: Changed) {}

    /// The same for files whose history was given up in these events, which ascend.
    fn gone(&self, _files: &[Remembered], _events: &[EventNo]) {}
}

const NOT_YOURS: Error = Error::NotPermitted {
    what: "snapshots of a directory are taken, held and forgotten by its owner, by root, or by the user who mounted the volume; what \
           another user took is not the owner's to forget or to rename, nor what another user holds to release: ask that user, or root",
};

impl Who<'_> {
    fn user(&self) -> User {
        User { uid: self.uid, limits: (!self.may_all).then_some(self.limits) }
    }

    fn doing<'a>(&self, view: &'a View) -> Doing<'a> {
        Doing { view, uid: self.uid }
    }

    /// Whether the user may take snapshots of a directory. With `incarnation`, the answer is for that one
    /// only, and it is no if that one is gone.
    fn may_take(&self, view: &View, inode: InodeNo, incarnation: Option<Incarnation>) -> Result<bool> {
        if self.may_all {
            return Ok(true);
        }
        match view.getattr(inode) {
            Ok(attr) => Ok(attr.uid == self.uid && incarnation.is_none_or(|i| i.0 == attr.incarnation)),
            Err(Error::Stale) if incarnation.is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn check_everything(&self) -> Result<()> {
        match self.may_all {
            true => Ok(()),
            false => {
                Err(Error::NotPermitted { what: "only root and the user who mounted the volume may do that" })
            }
        }
    }

    fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }

    /// The view through which to change these snapshots, if the user may. Root and the daemon's user may do
    /// everything. The owner of the directory may hold its snapshots, release those that nobody else holds,
    /// and forget and rename those that nobody else took. So the snapshots that root keeps are safe from
    /// programs that run with the owner's rights.
    fn changing(&self, view: &View, numbers: &[EventNo], to: &[To]) -> Result<View> {
        // Snapshots belong to the volume, whatever time the directory is of.
        let view = view.present();
        for number in numbers {
            let row = view.kept_event(*number)?.row;
            let may_take = self.may_take(&view, row.root, Some(row.root_incarnation))?;
            if !may_take || !(self.may_all || to.iter().all(|to| to.is_allowed(&row, self.uid))) {
                return Err(NOT_YOURS);
            }
        }
        self.check_writable()?;
        Ok(view)
    }
}

/// What is to be done with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// It stays from now on.
    Hold,
    /// It need not stay any longer.
    Release,
    /// It goes, or loses its name; a full volume may give up a snapshot without a name.
    ForgetOrRename,
}

impl To {
    /// Whether the directory's owner may do that to a snapshot. The users who took it and who hold it decide.
    /// Snapshots that earlier versions of Yore took do not record these users.
    fn is_allowed(self, row: &EventRow, uid: u32) -> bool {
        let is_own = |by: Option<u32>| by.is_none_or(|by| by == uid);
        match self {
            To::Hold => !row.held || is_own(row.more.held_by),
            To::Release => is_own(row.more.held_by.or(row.more.by)),
            To::ForgetOrRename => is_own(row.more.by),
        }
    }
}

/// Whether a user may take a snapshot of a directory, so that it is worth preparing.
pub fn may_take(view: &View, directory: InodeNo, who: &Who<'_>) -> bool {
    !who.read_only && matches!(who.may_take(view, directory, None), Ok(true))
}

/// Answers a request about a directory as a view sees it.
///
/// # Errors
/// [`Error::NotADirectory`]; [`Error::NotPermitted`] for what the asker may not do; else those of the
/// request.
pub fn answer(view: &View, directory: InodeNo, who: &Who<'_>, request: &Request) -> Result<Answer> {
    check_kind(view, directory, request)?;
    match request {
        Request::Take(new) => {
            let Event { number, row } = take(view, directory, who, new)?;
            Ok(Answer::Taken { number, time: row.time })
        }
        Request::Describe { number, saying } => describe(view, who, *number, saying),
        Request::Forget { numbers } => forget(view, who, numbers),
        Request::List { from } => {
            let (rows, next) = view.list_events(directory, *from)?;
            page(view, who, rows, next)
        }
        Request::Seen => one(view, directory, who, view.event()),
        Request::Versions { name, from } => {
            check_name(name)?;
            let (mut rows, next) = view.list_versions(directory, name, *from)?;
            leave_reachable(view, directory, who.access, name, &mut rows)?;
            page(view, who, rows, next)
        }
        Request::VersionSeen { name } => {
            check_name(name)?;
            let mut rows = view.version_seen(directory, name)?.into_iter().collect();
            leave_reachable(view, directory, who.access, name, &mut rows)?;
            page(view, who, rows, None)
        }
        Request::Last => last(view, directory, who),
        Request::Look(look) => look::answer(view, directory, who, look).map(Answer::Looked),
        Request::HowFar { question } => Ok(Answer::HowFar(match question {
            Some(question) => who.host.ongoing().how_far(who.uid, *question),
            None => view.forgetting(),
        })),
        Request::Rest { key, at } => who.host.ongoing().part(who.uid, *key, *at),
        Request::Operations { before } => operations(view, who, *before),
        Request::Pin => keep(view, who),
        Request::SpaceRules => Ok(Answer::SpaceRules(view.space_rules())),
        Request::SetSpaceRules(rules) => {
            who.check_everything()?;
            who.check_writable()?;
            view.present().set_space_rules(*rules).map(|()| Answer::Done)
        }
        Request::GivenUp { from } => {
            let rows = if who.may_all { view.operations(RowClass::GivenUp)? } else { Vec::new() };
            let (rows, left) = fitting(rows.into_iter().filter(|(place, _)| place >= from));
            Ok(Answer::Operations { rows, next: left.map(|(place, _)| place) })
        }
        Request::WouldFree => {
            who.check_everything()?;
            view.present().what_would_free().map(Answer::WouldFree)
        }
        Request::MissedVersions => Ok(Answer::MissedVersions(view.missed_versions())),
        Request::Lengthen { bytes } => lengthen(view, who, *bytes),
        Request::Shred => shred(view, who),
        Request::Policy => policies::policy(view, directory),
        Request::SetPolicy(policy) => policies::set(view, directory, who, policy),
        Request::RollBack(plan) => rollback::roll_back(view, directory, who, plan),
        Request::UnfinishedRollbacks { from } => rollback::unfinished(view, who, *from),
        Request::HistoryOf { of, from } => expunge::history_of(view, directory, who, (of, *from)),
        Request::Expunge(of) => expunge::expunge(view, directory, who, of),
        Request::Stopped => Ok(stopped(view)),
    }
}

/// Refuses a request to anything but a directory, unless the request works there.
fn check_kind(view: &View, inode: InodeNo, request: &Request) -> Result<()> {
    // This must be answered even if nothing can be read any more.
    if matches!(request, Request::Stopped) {
        return Ok(());
    }
    match view.getattr(inode)?.kind {
        FileKind::Directory => Ok(()),
        FileKind::Regular if request.is_of_files() => Ok(()),
        // A command that reads from a volume opened here meets links and pipes, too.
        _ if matches!(request, Request::Pin | Request::Policy | Request::SetPolicy(_)) => Ok(()),
        _ => Err(Error::NotADirectory),
    }
}

fn keep(view: &View, who: &Who<'_>) -> Result<Answer> {
    let Some(event) = view.event() else { return Ok(Answer::Pinned(false)) };
    let pin = view.pin(event, PinnedBy::Work)?;
    Ok(Answer::Pinned(who.host.room().and_then(|keep| keep(pin)).is_ok()))
}

/// Whether an error has stopped all writing.
fn stopped(view: &View) -> Answer {
    Answer::Stopped(view.stopped().map(|stopped| Stopped {
        // The text is for people, and a long one would not fit.
        why: stopped.first.to_string().chars().take(1024).collect(),
        since_seconds: stopped.since_seconds,
    }))
}

fn check_name(name: &[u8]) -> Result<()> {
    match (1..=NAME_MAX).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0) {
        true => Ok(()),
        false => {
            Err(Error::Invalid { what: "a file in a directory has a name of 1 to 255 bytes without `/`" })
        }
    }
}

fn take(view: &View, directory: InodeNo, who: &Who<'_>, new: &Take) -> Result<Event> {
    if !who.may_take(view, directory, None)? {
        return Err(NOT_YOURS);
    }
    who.check_writable()?;
    let room = if new.stays { Some(who.host.room()?) } else { None };
    let user = who.user();
    let event = view.take_snapshot(directory, &NewSnapshot { user: Some(&user), ..new.new_snapshot() })?;
    if let Some(keep) = room {
        keep(view.pin(event.number, PinnedBy::Work)?)?;
    }
    let doing = who.doing(view);
    doing.note(doing.taking(&event)?);
    Ok(event)
}

/// Changes the description of a snapshot, and records who did it.
fn describe(view: &View, who: &Who<'_>, number: EventNo, saying: &Saying) -> Result<Answer> {
    let says = (saying.name.is_some() || saying.description.is_some()).then_some(To::ForgetOrRename);
    let holds = saying.hold.as_ref().map(|hold| if hold.is_some() { To::Hold } else { To::Release });
    let all = says.into_iter().chain(holds).collect::<Vec<_>>();
    let view = who.changing(view, &[number], &all)?;
    let was = view.kept_event(number)?;
    let doing = who.doing(&view);
    let (name, description) = (saying.name.as_deref(), saying.description.as_deref());
    if name.is_some() || description.is_some() {
        view.describe(number, name, description)?;
        doing.note([doing.renaming(&was, name)?]);
    }
    if let Some(hold) = &saying.hold {
        let reason = hold.as_deref();
        view.hold_because(Some(&who.user()), number, reason.is_some(), reason.unwrap_or_default())?;
        doing.note([doing.holding(&was, reason)?]);
    }
    Ok(Answer::Done)
}

fn forget(view: &View, who: &Who<'_>, numbers: &[EventNo]) -> Result<Answer> {
    if !(1..=FORGET_MAX).contains(&numbers.len()) {
        return Err(Error::Invalid { what: "1 to 256 snapshots are forgotten by one request" });
    }
    let numbers: Vec<EventNo> = numbers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let view = who.changing(view, &numbers, &[To::ForgetOrRename])?;
    let doing = who.doing(&view);
    let rows = doing.forgetting(&numbers)?;
    view.forget(&numbers)?;
    doing.note(rows);
    Ok(Answer::Done)
}

/// That snapshot of a directory's list, if there is one.
fn one(view: &View, directory: InodeNo, who: &Who<'_>, event: Option<EventNo>) -> Result<Answer> {
    let mut rows = Vec::new();
    if let Some(event) = event {
        (rows, _) = view.list_events(directory, event)?;
        rows.retain(|row| row.event.number == event);
    }
    page(view, who, rows, None)
}

/// The last snapshot that has seen a directory.
fn last(view: &View, directory: InodeNo, who: &Who<'_>) -> Result<Answer> {
    match view.last_event(directory) {
        Ok(event) => one(view, directory, who, Some(event)),
        Err(Error::NotFound) => one(view, directory, who, None),
        Err(error) => Err(error),
    }
}

/// Keeps those rows of a file's list that the user may learn: all if the user may look the name up, otherwise
/// those as of which the user might have done so. If none are left, the answer is as if the name had never
/// existed.
fn leave_reachable(
    view: &View,
    directory: InodeNo,
    access: &Access,
    name: &[u8],
    rows: &mut Vec<ListedEvent>,
) -> Result<()> {
    if access.is_all() {
        return Ok(());
    }
    match view.lookup(directory, name) {
        Ok(_) if access.reaches(directory, view.event())? => return Ok(()),
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    let mut told = Vec::new();
    for row in rows.drain(..) {
        if access.reaches(directory, Some(row.event.number))? {
            told.push(row);
        }
    }
    *rows = told;
    match rows.is_empty() {
        true => Err(Error::NotFound),
        false => Ok(()),
    }
}

/// As many rows as the user may learn and as fit.
fn page(view: &View, who: &Who<'_>, rows: Vec<ListedEvent>, mut next: Option<EventNo>) -> Result<Answer> {
    let present = view.present();
    let mut told = Vec::new();
    for mut row in rows {
        let EventRow { root, root_incarnation, .. } = row.event.row;
        if !row.covers && !who.may_take(&present, root, Some(root_incarnation))? {
            continue;
        }
        // Leaves out a path that would not fit into any answer. Such a path is four times as long as any that
        // a call takes.
        if !fits(&row) {
            row.path = None;
        }
        told.push(row);
    }
    let (rows, left) = fitting(told.into_iter());
    next = left.map(|row| row.event.number).or(next);
    Ok(Answer::Page(Page { rows, next }))
}

fn operations(view: &View, who: &Who<'_>, before: Option<u64>) -> Result<Answer> {
    let all = view.present().done((!who.may_all).then_some(who.uid))?;
    let wanted = |(place, _): &(u64, OperationRow)| before.is_none_or(|before| *place < before);
    let (rows, left) = fitting(all.into_iter().filter(wanted));
    let next = left.and(rows.last().map(|(place, _)| *place));
    Ok(Answer::Operations { rows, next })
}

/// Whether an answer has room for a row.
fn fits<T: Serialize>(row: &T) -> bool {
    size(row).is_some_and(|size| size <= ROWS)
}

/// As many rows as fit, and the first that is left over.
fn fitting<T: Serialize>(rows: impl Iterator<Item = T>) -> (Vec<T>, Option<T>) {
    let (mut fitting, mut bytes) = (Vec::new(), 0);
    for row in rows {
        bytes += size(&row).unwrap_or(ROWS + 1);
        if bytes > ROWS {
            return (fitting, Some(row));
        }
        fitting.push(row);
    }
    (fitting, None)
}

fn lengthen(view: &View, who: &Who<'_>, bytes: u64) -> Result<Answer> {
    who.check_everything()?;
    who.check_writable()?;
    let view = view.present();
    let before = view.info().size;
    let longer = view.lengthen(bytes)?;
    if longer {
        let doing = who.doing(&view);
        doing.note([doing.resizing(before)?]);
    }
    Ok(Answer::Length { bytes: view.info().size, longer })
}

fn shred(view: &View, who: &Who<'_>) -> Result<Answer> {
    who.check_everything()?;
    who.check_writable()?;
    let mut ask = || match who.host.is_over() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let done = view.present().shred(&mut ask)?;
    match done.broken_off {
        true => Err(Error::Refused("it was broken off before it was done; do it again".into())),
        false => Ok(Answer::Shredded { blocks_left_out: done.blocks_left_out }),
    }
}

#[cfg(test)]
mod tests;
