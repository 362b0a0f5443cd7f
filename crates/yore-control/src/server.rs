//! The answering half: what a request does to a volume, and on whose behalf.

mod check;
mod expunge;
mod long;
mod names;
mod pins;
mod policies;
mod query;
mod rollback;
mod rows;
mod snapshots;
mod told;
mod who;

use self::long::Long;
use self::rows::fitting;
use crate::{Answer, Request, Stopped};
use yore_fs::{
    ChecksumsEntered, Defragmented, Error, Event, FileKind, InodeNo, OperationRow, Result, RowClass, Scrub,
    View, PIECES_MOST,
};

pub use who::{Host, Pinning, Who};

/// Whether a user may take a snapshot of a directory, so that it is worth preparing.
pub fn may_take(view: &View, directory: InodeNo, who: &Who<'_>) -> bool {
    !who.read_only && matches!(who.may_take(view, directory, None), Ok(true))
}

/// Answers a request about a directory as a view sees it.
///
/// # Errors
/// [`Error::NotADirectory`]; [`Error::NotPermitted`] for what the asker may not do; otherwise those of the
/// request.
pub fn answer(view: &View, directory: InodeNo, who: &Who<'_>, request: &Request) -> Result<Answer> {
    check_kind(view, directory, request)?;
    match request {
        Request::Take(new) => {
            let Event { number, row } = snapshots::take(view, directory, who, new)?;
            Ok(Answer::Taken { number, time: row.time })
        }
        Request::Describe { number, saying } => snapshots::describe(view, who, *number, saying),
        Request::Forget { numbers } => snapshots::forget(view, who, numbers),
        Request::List { from } => snapshots::list(view, directory, who, *from),
        Request::Seen => snapshots::one(view, directory, who, view.event()),
        Request::Versions { name, from } => snapshots::versions(view, directory, who, (name, *from)),
        Request::VersionSeen { name } => snapshots::version_seen(view, directory, who, name),
        Request::Last => snapshots::last(view, directory, who),
        Request::Query(query) => query::answer(view, directory, who, query).map(Answer::QueryResult),
        Request::HowFar { question } => Ok(Answer::HowFar(match question {
            Some(question) => who.host.ongoing().how_far(who.uid, *question),
            None => view.forgetting(),
        })),
        Request::Rest { key, at } => who.host.ongoing().part(who.uid, *key, *at),
        Request::Operations { before } => operations(view, who, *before),
        Request::Pin => pins::pin(view, who),
        Request::SpaceRules => Ok(Answer::SpaceRules(view.space_rules())),
        Request::SetSpaceRules(rules) => {
            who.check_everything()?;
            who.check_writable()?;
            view.present().set_space_rules(*rules).map(|()| Answer::Done)
        }
        Request::GivenUp { from } => {
            let rows = if who.may_all { view.operations(RowClass::GivenUp)? } else { Vec::new() };
            let (rows, left) = fitting(rows.into_iter().filter(|(index, _)| index >= from));
            Ok(Answer::Operations { rows, next: left.map(|(index, _)| index) })
        }
        Request::WouldFree => {
            who.check_everything()?;
            view.present().what_would_free().map(Answer::WouldFree)
        }
        Request::MissedVersions => Ok(Answer::MissedVersions(view.missed_versions())),
        Request::Lengthen { bytes } => lengthen(view, who, *bytes),
        Request::Shred { question } => shred(view, who, *question),
        Request::Policy => policies::policy(view, directory),
        Request::SetPolicy(policy) => policies::set(view, directory, who, policy),
        Request::RollBack(plan) => rollback::roll_back(view, directory, who, plan),
        Request::UnfinishedRollbacks { from } => rollback::unfinished(view, who, *from),
        Request::HistoryOf { of, from, question } => {
            expunge::history_of(view, directory, who, (of, *from), *question)
        }
        Request::Expunge { of, shown } => expunge::expunge(view, directory, who, (of, *shown)),
        Request::Stopped => Ok(stopped(view)),
        Request::Check { findings_max, memory, question } => {
            check::check(view, who, (*findings_max, *memory), *question)
        }
        Request::Findings => {
            who.check_everything()?;
            view.findings().map(Answer::Findings)
        }
        Request::Leaks => Ok(Answer::Leaks { pending: view.leaks_pending(), percent: view.recounting() }),
        Request::Scrub { how, question } => scrub(view, who, *how, *question),
        Request::BreakOff { question } => {
            who.host.ongoing().break_off(who.uid, *question);
            Ok(Answer::Done)
        }
        Request::Scrubs => {
            who.check_everything()?;
            let view = view.present();
            Ok(Answer::Scrubs { record: view.scrubs()?, is_under_way: view.is_scrubbing() })
        }
        Request::Checksums { enable, question } => checksums(view, who, *enable, *question),
        Request::Defragment { dry_run, question } => defragment(view, directory, who, (*dry_run, *question)),
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

/// Whether an error has stopped all writing.
fn stopped(view: &View) -> Answer {
    Answer::Stopped(view.stopped().map(|stopped| Stopped {
        // The text is for people, and a long one would not fit.
        why: stopped.first.to_string().chars().take(1024).collect(),
        since_seconds: stopped.since_seconds,
    }))
}

fn operations(view: &View, who: &Who<'_>, before: Option<u64>) -> Result<Answer> {
    let all = view.present().done((!who.may_all).then_some(who.uid))?;
    let wanted = |(index, _): &(u64, OperationRow)| before.is_none_or(|before| *index < before);
    let (rows, left) = fitting(all.into_iter().filter(wanted));
    let next = left.and(rows.last().map(|(index, _)| *index));
    Ok(Answer::Operations { rows, next })
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

fn defragment(
    view: &View,
    inode: InodeNo,
    who: &Who<'_>,
    (dry_run, question): (bool, u64),
) -> Result<Answer> {
    who.check_everything()?;
    if dry_run {
        let long = Long::begin(view, who, question)?;
        let before = view.scattered(inode, PIECES_MOST, &mut || long.goes_on())?;
        return Ok(Answer::Defragmented(Defragmented { before, ..Defragmented::default() }));
    }
    who.check_writable()?;
    let long = Long::begin(view, who, question)?;
    let done = view.defragment(inode, PIECES_MOST, long.progress(), &mut || long.goes_on())?;
    Ok(Answer::Defragmented(done))
}

fn scrub(view: &View, who: &Who<'_>, how: Scrub, question: u64) -> Result<Answer> {
    who.check_everything()?;
    let long = Long::begin(view, who, question)?;
    let found = view.present().scrub(how, long.progress(), &mut || long.goes_on())?;
    Ok(Answer::Scrubbed(Box::new(found)))
}

fn checksums(view: &View, who: &Who<'_>, enable: bool, question: u64) -> Result<Answer> {
    let view = view.present();
    let mut entered = ChecksumsEntered::default();
    if enable {
        who.check_everything()?;
        who.check_writable()?;
        let long = Long::begin(&view, who, question)?;
        entered = view.enable_data_checksums(long.progress(), &mut || long.goes_on())?;
    }
    Ok(Answer::Checksums { kept: view.keeps_data_checksums(), entered })
}

fn shred(view: &View, who: &Who<'_>, question: u64) -> Result<Answer> {
    who.check_everything()?;
    who.check_writable()?;
    let long = Long::begin(view, who, question)?;
    let done = view.present().shred(&mut || long.goes_on())?;
    match done.broken_off {
        true => Err(Error::Refused("it was broken off before it was done; do it again".into())),
        false => Ok(Answer::Shredded { blocks_left_out: done.blocks_left_out }),
    }
}

#[cfg(test)]
mod tests;
