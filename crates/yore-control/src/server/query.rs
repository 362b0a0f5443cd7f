//! Answers questions about the past of a directory: differences, logs, what is gone, and the space it takes.

use super::told::Told;
use super::who::Who;
use crate::{HistoryBytes, Identity, Query, QueryResult};
use std::ops::ControlFlow;
use yore_fs::{
    Difference, Error, EventNo, Facts, Incarnation, InodeNo, Logged, Progress, Result, StateUsage,
    UsageTotals, View,
};

const NOT_TOLD: Error = Error::NotPermitted {
    what: "what has changed in a directory is told to its owner, to root, and to the user who mounted the volume; what you may \
           read you can compare with `diff -r`",
};

/// Answers a question about a directory. It decides whether the user may ask before it reads anything.
pub(super) fn answer(view: &View, directory: InodeNo, who: &Who<'_>, query: &Query) -> Result<QueryResult> {
    match query {
        Query::Identity => {
            let incarnation = Incarnation(view.getattr(directory)?.incarnation);
            Ok(QueryResult::Identity(Identity { inode: directory, incarnation, event: view.event() }))
        }
        Query::Diff { from, to } => differences(view, directory, who, (*from, *to), None),
        Query::Compare { from, to, question } => {
            let asked = who.host.ongoing().begin(who.uid, *question);
            differences(view, directory, who, (*from, *to), Some(&asked.progress))
        }
        Query::Log { name, most, verify, question } => {
            let mut rows = log(view, directory, who, name, *most)?;
            let asked = who.host.ongoing().begin(who.uid, *question);
            let mut ask = || match who.host.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            view.verify_states(&mut rows, *verify, &asked.progress, &mut ask)?;
            Ok(QueryResult::Log(rows))
        }
        Query::Deleted { recursive, question } => {
            let asked = who.host.ongoing().begin(who.uid, *question);
            deleted(view, directory, who, *recursive, &asked.progress)
        }
        Query::HistoryBytes => Ok(QueryResult::HistoryBytes(HistoryBytes::of(&view.statfs()))),
        Query::Usage => {
            check(view, directory, who)?;
            let mut rows = who.host.ongoing().rows();
            let totals = view.usage(directory, &mut |found| rows.push(found))?;
            Ok(QueryResult::Usage(totals, rows.all()?))
        }
        Query::UsageOf { name } => {
            check(view, directory, who)?;
            let (totals, states) = usage_of(view, directory, who, name)?;
            Ok(QueryResult::UsageOf(totals, states))
        }
    }
}

/// Refuses a user who may not ask about a directory as a view has it.
fn check(view: &View, directory: InodeNo, who: &Who<'_>) -> Result<()> {
    match who.may_take(view, directory, None)? {
        true => Ok(()),
        false => Err(NOT_TOLD),
    }
}

/// The differences. With a progress, it compares files that replaced others of the same name.
fn differences(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    (from, to): (Option<EventNo>, Option<EventNo>),
    compared: Option<&Progress>,
) -> Result<QueryResult> {
    for side in [from, to] {
        match check(&side.map_or(view.present(), |event| view.as_of(event)), directory, who) {
            // A caller who may not ask does not learn which snapshots exist.
            Err(Error::Stale) if check(&view.present(), directory, who).is_err() => return Err(NOT_TOLD),
            checked => checked?,
        }
    }
    let mut all = Vec::new();
    let each = &mut |found: Difference| {
        all.push(found);
        ControlFlow::Continue(())
    };
    match compared {
        Some(progress) => view.compare(directory, from, to, progress, each)?,
        None => view.diff(directory, from, to, each)?,
    }
    let (mut told, mut rows) = (Told::new(view, who.access, directory), who.host.ongoing().rows());
    for found in all {
        if let Some(found) = told.difference(found, (from, to))? {
            if rows.push(found).is_break() {
                break;
            }
        }
    }
    Ok(QueryResult::Differences(rows.all()?))
}

fn log(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    name: &[u8],
    most: Option<u32>,
) -> Result<Vec<Logged>> {
    check(view, directory, who)?;
    let most = most.map_or(usize::MAX, |most| most as usize);
    let (told, mut rows) = (Told::new(view, who.access, directory), who.host.ongoing().rows());
    // A directory that is gone has no permissions to check, so an owner learns nothing below those of others.
    let mut pass = |above: &Facts| match who.may_all || above.uid == who.uid {
        true => Ok(()),
        false => Err(NOT_TOLD),
    };
    let mut failed = None;
    view.log_below(directory, name, &mut pass, &mut |found| {
        let found = match told.logged(found, name) {
            Ok(Some(found)) => found,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        };
        match rows.push(found) {
            ControlFlow::Continue(()) if rows.len() < most => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    let rows = rows.all()?;
    match rows.is_empty() {
        true => Err(Error::NotFound),
        false => Ok(rows),
    }
}

fn deleted(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    recursive: bool,
    progress: &Progress,
) -> Result<QueryResult> {
    check(view, directory, who)?;
    let mut all = Vec::new();
    view.deleted_in_steps(directory, recursive, progress, &mut |found| {
        all.push(found);
        ControlFlow::Continue(())
    })?;
    let (mut told, mut rows) = (Told::new(view, who.access, directory), who.host.ongoing().rows());
    for found in all {
        if told.deleted(&found)? && rows.push(found).is_break() {
            break;
        }
    }
    Ok(QueryResult::Deleted(rows.all()?))
}

/// The space that the states of a name hold, as far as the user may learn of them. If he may learn of none,
/// the answer is that there never was such a name.
fn usage_of(
    view: &View,
    directory: InodeNo,
    who: &Who<'_>,
    name: &[u8],
) -> Result<(UsageTotals, Vec<StateUsage>)> {
    let mut all = Vec::new();
    let totals = view.usage_of(directory, name, &mut |found| {
        all.push(found);
        ControlFlow::Continue(())
    })?;
    let (told, mut rows, had) =
        (Told::new(view, who.access, directory), who.host.ongoing().rows(), !all.is_empty());
    for found in all {
        let Some(state) = told.logged(found.state, name)? else { continue };
        if rows.push(StateUsage { state, ..found }).is_break() {
            break;
        }
    }
    match had && rows.len() == 0 {
        true => Err(Error::NotFound),
        false => Ok((totals, rows.all()?)),
    }
}
