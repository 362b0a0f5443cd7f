//! What the history knows of a name, and how it is given up.

use super::long::Long;
use super::names::check_name;
use super::pins::past_pins;
use super::rows::{fits, fitting};
use super::who::Who;
use crate::{Answer, Known, KnownFile, Named, Shown};
use std::ops::ControlFlow;
use yore_fs::{Error, EventNo, HistoryScope, InodeNo, Remembered, Result, View};

const NOT_YOURS: Error = Error::NotPermitted {
    what: "only root, the user who mounted the volume, and who owned all of it in every version may do that",
};

/// What the history knows of a name, if the user may give it up. Other users do not learn whether any name
/// existed, unless the directory is theirs and they may list it. Nothing is searched below a directory that
/// is not the user's.
fn of_owner(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    named: &Named,
    question: u64,
) -> Result<(Vec<Remembered>, usize)> {
    check_name(&named.name)?;
    let scope = HistoryScope { below: named.below, others: named.others };
    // What is below a directory may be all of the volume.
    let long = named.below.then(|| Long::begin(view, who, question)).transpose()?;
    let query = || {
        let collects = |bytes| long.as_ref().map_or(ControlFlow::Continue(()), |long| long.collects(bytes));
        let found = view.history_of_while(directory, &named.name, scope, &collects);
        match &long {
            Some(long) => long.outcome(found),
            None => found,
        }
    };
    if who.may_all {
        return query();
    }
    let is_owner = |found: &(Vec<Remembered>, usize)| found.0.iter().all(|file| file.owners == [who.uid]);
    let is_mine = |node: &yore_fs::Node| node.attr().uid == who.uid;
    let found = match (named.below, view.named(directory, &named.name)) {
        (true, Ok(node)) if !is_mine(&node) => return Err(NOT_YOURS),
        (_, Ok(_)) => query(),
        (_, Err(error)) => Err(error),
    };
    match found {
        Ok(found) if is_owner(&found) => Ok(found),
        Ok(_) => Err(NOT_YOURS),
        // It is the user's, and the search was broken off.
        Err(error @ Error::Refused(_)) => Err(error),
        Err(error) => {
            let is_theirs = view.getattr(directory)?.uid == who.uid;
            match is_theirs && who.access.lists(directory, view.event())? {
                true => Err(error),
                false => Err(NOT_YOURS),
            }
        }
    }
}

/// What the history knows of a name.
pub(super) fn history_of(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    (of, from): (&Named, u64),
    question: u64,
) -> Result<Answer> {
    let (files, others) = of_owner(view, directory, who, of, question)?;
    let known = Known::of(&files, others);
    let rows = (0u64..).zip(files).filter(|(index, _)| *index >= from).map(|(index, file)| {
        let file = KnownFile::from(file);
        // Leaves out a path that would not fit into any answer.
        (index, if fits(&file) { file } else { KnownFile { path: Vec::new(), ..file } })
    });
    let (rows, left) = fitting(rows);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Ok(Answer::HistoryOf { known, rows, next: left.map(|(index, _)| index) })
}

/// Gives that history up, if it is that of the files that the user was shown. A program may have put another
/// file in the place of one of them since, and a time may mean another snapshot.
pub(super) fn expunge(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    (of, shown): (&Named, Shown),
) -> Result<Answer> {
    let (files, others) = of_owner(view, directory, who, of, 0)?;
    who.check_writable()?;
    if Shown::of_remembered(&files) != shown {
        return Ok(Answer::OtherFiles);
    }
    let numbers: Vec<_> = files.iter().map(|file| (file.inode, file.incarnation)).collect();
    let view = view.present();
    let events: Vec<EventNo> = view.events()?.iter().map(|event| event.number).collect();
    past_pins(who, &|| match who.may_all || who.expunges_others {
        true => view.expunge(&numbers),
        false => view.expunge_taken_by(&numbers, who.uid),
    })?;
    let doing = who.doing(&view);
    doing.note([doing.expunging(directory, numbers.len())?]);
    who.host.gone(&files, &events);
    Ok(Answer::Expunged(Known::of(&files, others)))
}
