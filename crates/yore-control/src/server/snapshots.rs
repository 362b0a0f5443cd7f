//! Snapshots: who takes, describes, holds and forgets them, and which of them a user learns of.

use super::names::check_name;
use super::pins::past_pins;
use super::rows::{fits, fitting};
use super::told::leave_reachable;
use super::who::Who;
use crate::{Answer, Page, Saying, Take, FORGET_MAX};
use std::collections::BTreeSet;
use yore_fs::{Error, Event, EventNo, EventRow, InodeNo, ListedEvent, NewSnapshot, PinnedBy, Result, View};

const NOT_YOURS: Error = Error::NotPermitted {
    what: "snapshots of a directory are taken, held and forgotten by its owner, by root, or by the user who mounted the volume; what \
           another user took is not the owner's to forget or to rename, nor what another user holds to release: ask that user, or root",
};

impl Who<'_> {
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

pub(super) fn take(view: &View, directory: InodeNo, who: &Who<'_>, new: &Take) -> Result<Event> {
    if !who.may_take(view, directory, None)? {
        return Err(NOT_YOURS);
    }
    who.check_writable()?;
    let room = if new.stays { Some(who.host.room()?) } else { None };
    let user = who.user();
    let event = view.take_snapshot(directory, &NewSnapshot { user: Some(&user), ..new.new_snapshot() })?;
    if let Some(pin_it) = room {
        pin_it(view.pin(event.number, PinnedBy::Work)?)?;
    }
    let doing = who.doing(view);
    doing.note(doing.taking(&event)?);
    Ok(event)
}

/// Changes the description of a snapshot, and records who did it.
pub(super) fn describe(view: &View, who: &Who<'_>, number: EventNo, saying: &Saying) -> Result<Answer> {
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
        let to = if reason.is_some() { To::Hold } else { To::Release };
        // Somebody else may have come to hold it since it was looked at.
        let may = |row: &EventRow| match who.may_all || to.is_allowed(row, who.uid) {
            true => Ok(()),
            false => Err(NOT_YOURS),
        };
        match reason {
            // What a policy holds for a time, too.
            None if who.as_root => view.hold_because(None, number, false, "")?,
            _ => view.hold_if(&who.user(), number, (reason.is_some(), reason.unwrap_or_default()), &may)?,
        }
        doing.note([doing.holding(&was, reason)?]);
    }
    Ok(Answer::Done)
}

pub(super) fn forget(view: &View, who: &Who<'_>, numbers: &[EventNo]) -> Result<Answer> {
    if !(1..=FORGET_MAX).contains(&numbers.len()) {
        return Err(Error::Invalid { what: "1 to 256 snapshots are forgotten by one request" });
    }
    let numbers: Vec<EventNo> = numbers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let view = who.changing(view, &numbers, &[To::ForgetOrRename])?;
    let doing = who.doing(&view);
    let rows = doing.forgetting(&numbers)?;
    past_pins(who, &|| view.forget(&numbers))?;
    doing.note(rows);
    Ok(Answer::Done)
}

/// A part of the list of snapshots that concern a directory.
pub(super) fn list(view: &View, directory: InodeNo, who: &Who<'_>, from: EventNo) -> Result<Answer> {
    let (rows, next) = view.list_events(directory, from)?;
    page(view, who, rows, next)
}

/// That snapshot of a directory's list, if there is one.
pub(super) fn one(view: &View, directory: InodeNo, who: &Who<'_>, event: Option<EventNo>) -> Result<Answer> {
    let mut rows = Vec::new();
    if let Some(event) = event {
        (rows, _) = view.list_events(directory, event)?;
        rows.retain(|row| row.event.number == event);
    }
    page(view, who, rows, None)
}

/// The last snapshot that has seen a directory.
pub(super) fn last(view: &View, directory: InodeNo, who: &Who<'_>) -> Result<Answer> {
    match view.last_event(directory) {
        Ok(event) => one(view, directory, who, Some(event)),
        Err(Error::NotFound) => one(view, directory, who, None),
        Err(error) => Err(error),
    }
}

/// A part of the list of versions of a file.
pub(super) fn versions(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    (name, from): (&[u8], EventNo),
) -> Result<Answer> {
    check_name(name)?;
    let (mut rows, next) = view.list_versions(directory, name, from)?;
    leave_reachable(view, directory, who.access, name, &mut rows)?;
    page(view, who, rows, next)
}

/// The version as of which a file is seen.
pub(super) fn version_seen(view: &View, directory: InodeNo, who: &Who<'_>, name: &[u8]) -> Result<Answer> {
    check_name(name)?;
    let mut rows = view.version_seen(directory, name)?.into_iter().collect();
    leave_reachable(view, directory, who.access, name, &mut rows)?;
    page(view, who, rows, None)
}

/// As many rows as the user may learn and as fit.
pub(super) fn page(
    view: &View,
    who: &Who<'_>,
    rows: Vec<ListedEvent>,
    mut next: Option<EventNo>,
) -> Result<Answer> {
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
