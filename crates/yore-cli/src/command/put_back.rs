//! `restore`, `undelete`, `rollback`, `undo` and `redo`: they put the past back, and keep all that came since
//! in history. The first two are ordinary operations on files. The others are one operation of the process
//! that has the volume open ([`yore_fs::rollback`]).
//!
//! Each takes an event before it changes anything, and another one when it is done; see [`operation`].

mod directory;
mod elsewhere;
mod ground;
mod one;
mod operation;
mod paths;

use super::query::log::from_what_is_there;
use crate::args;
use crate::output::{bytes_of, printable, List};
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use elsewhere::free_name;
use ground::{is_same_mount, Ground, Where};
use one::{Done, Putter};
use paths::{as_of, below, is_listed, name_of, tell, tell_all, with_time};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use yore_fs::rollback::{leave_alone, next, real, until, Back, Plan, Verb};
use yore_fs::{Difference, EventNo, FileKind};

/// Whether a path is a directory. A symbolic link to one is not.
fn is_directory(ground: &Ground, path: &Path) -> anyhow::Result<bool> {
    Ok(ground.side().facts(path)?.is_some_and(|facts| facts.kind == FileKind::Directory))
}

/// The present path of an operand with a time.
fn split(ground: &Ground, then: &Path) -> anyhow::Result<PathBuf> {
    let name = ground.name(then);
    if ground.side().facts(then)?.is_none() {
        return Err(status::absent(&name, || {
            anyhow::anyhow!(
            "{name}: no snapshot has that; `yore log` lists what a file was, `yore deleted` what is gone, `yore snapshots` the times"
        )
        }));
    }
    let now = ground.present(then)?;
    if !ground.is_past(then) || now == then {
        return Err(status::usage(format!(
            "{name}: as of when? Name a time, as {name}@2026-11-20_14.05 or {name}@yesterday (`yore snapshots` lists them)"
        )));
    }
    Ok(now)
}

/// Puts files and directories back.
pub fn restore(args: &args::Restore) -> Outcome {
    for_each(&args.paths, args.listing, |operand, list| {
        let from = Where::find(operand)?;
        from.with(Access::of(!args.dry_run), |ground, then| match &args.to {
            None => restore_one(ground, then, args, list),
            Some(to) => restore_to(ground, &from, then, to, args, list),
        })
    })
}

/// Does some work for one operand after the other, and lists all that is done. If one of them fails, what was
/// done before it stays, and the list is whole.
fn for_each(
    operands: &[OsString],
    listing: args::Listing,
    work: impl Fn(&OsStr, &mut List) -> anyhow::Result<()>,
) -> Outcome {
    let mut list = List::new(listing);
    let done = operands.iter().try_for_each(|operand| work(operand, &mut list));
    list.end(done)?;
    Ok(status::OK)
}

fn restore_one(ground: &Ground, then: &Path, args: &args::Restore, list: &mut List) -> anyhow::Result<()> {
    let now = split(ground, then)?;
    if is_directory(ground, then)? && is_directory(ground, &now)? {
        let (was, is) = (ground.identity(then)?, ground.identity(&now)?);
        if was.is_same_directory(&is) {
            return directory::restore(ground, then, &now, was.event, args, list);
        }
    }
    put(ground, Verb::Restore, then, &now, (args.dry_run, args.progress), list)
}

/// Puts one name back, with everything that was below it.
fn put(
    ground: &Ground,
    verb: Verb,
    then: &Path,
    now: &Path,
    (dry_run, progress): (bool, args::Progress),
    list: &mut List,
) -> anyhow::Result<()> {
    let mut putter = Putter::new(ground, progress)?;
    let done = putter.compare(then, now)?;
    if done == Done::Nothing && !is_directory(ground, then)? {
        status::tell(format_args!("{} is already as it was then", ground.name(now)));
        return Ok(());
    }
    if is_listed(dry_run, list) {
        let (letters, change) = if done == Done::Made { ("+  ", "added") } else { ("M  ", "modified") };
        tell(list, letters, change, bytes_of(now))?;
        if dry_run {
            return Ok(());
        }
    }
    let parent = now.parent().with_context(|| format!("{} is the root directory", ground.name(now)))?;
    let concerned = match is_directory(ground, now)? {
        true => now,
        false => parent.ancestors().find(|dir| ground.side().is_directory(dir)).unwrap_or(parent),
    };
    ground.check_writable(concerned)?;
    ground.check_nothing_mounted_below(concerned)?;
    let _source = ground.pin_source(then)?;
    ground.check_room(concerned, putter.room(then, now)?)?;
    operation::run(ground, concerned, verb, || {
        putter.expect(&[then]);
        putter.directories(then.parent(), parent)?;
        putter.tree(then, now)?;
        putter.finish()
    })
}

/// Puts a copy elsewhere.
fn restore_to(
    ground: &Ground,
    from: &Where,
    then: &Path,
    to: &OsStr,
    args: &args::Restore,
    list: &mut List,
) -> anyhow::Result<()> {
    let now = split(ground, then)?;
    let here = match (from, Where::find(to)) {
        (Where::Mounted(from), Ok(Where::Mounted(dest))) if is_same_mount(from, &dest) => dest,
        (Where::Free(on), Ok(Where::Free(dest))) if on.volume == dest.volume => dest.path,
        _ => return elsewhere::put(ground, then, name_of(&now)?, to, args, list),
    };
    let dest = free_name(ground.side(), here, name_of(&now)?)?;
    put(ground, Verb::Restore, then, &dest, (args.dry_run, args.progress), list)
}

/// Brings back what is gone.
pub fn undelete(args: &args::Undelete) -> Outcome {
    for_each(&args.paths, args.listing, |operand, list| {
        Where::find(operand)?
            .with(Access::Write, |ground, path| undelete_one(ground, path, args.progress, list))
    })
}

fn undelete_one(
    ground: &Ground,
    path: &Path,
    progress: args::Progress,
    list: &mut List,
) -> anyhow::Result<()> {
    let name = ground.name(path);
    if ground.side().facts(path)?.is_some() {
        anyhow::bail!(
            "{name} is there; for what it was before see `yore log {name}` and `yore restore {name}@TIME`"
        );
    }
    let (there, rest) = from_what_is_there(path, |dir| ground.side().is_directory(dir));
    anyhow::ensure!(!rest.is_empty(), "{name} does not end in a name");
    anyhow::ensure!(ground.side().is_directory(&there), "{name}: no such directory");
    let nobody_has = || {
        anyhow::anyhow!(
            "no snapshot or version has {name}; what is gone from there and can be brought back lists `yore deleted {}`",
            ground.name(&there)
        )
    };
    let mut then = there.clone();
    let ends = rest.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    for end in ends.chain([rest.len()]) {
        // The state that `log` lists first comes back: each name as of when it was last seen.
        let newest = ground.newest(&there, &rest[..end])?.ok_or_else(nobody_has)?;
        if let Some(gone) = newest.gone.as_ref().filter(|gone| gone.moved && end == rest.len()) {
            let now = gone.path.as_deref().map(|path| format!("; it is {} now", printable(path)));
            anyhow::bail!(
                "{name} is not gone, but was renamed{}; `yore log {name}` lists the times at which it can be seen under this name, and \
                 `yore restore {name}@TIME` puts a copy back",
                now.unwrap_or_default()
            );
        }
        let time = newest.last.ok_or_else(nobody_has)?.event.row.time;
        let of = rest[..end].rsplit(|b| *b == b'/').next().unwrap_or(&rest[..end]);
        then = with_time(&then, of, &format!("@{}.{:09}", time.seconds, time.nanos));
    }
    if ground.side().facts(&then)?.is_none() {
        return Err(nobody_has());
    }
    put(ground, Verb::Undelete, &then, path, (false, progress), list)
}

/// Makes a directory as it was.
pub fn rollback(args: &args::Rollback) -> Outcome {
    Where::find(&args.path)?.with(Access::of(!args.dry_run), |ground, then| {
        let now = split(ground, then)?;
        let was = ground.identity(then)?;
        let is = ground.identity(&now).ok().filter(|is| was.is_same_directory(is));
        anyhow::ensure!(
            is.is_some(),
            "{} is not the directory that it was then; `yore restore {}` puts back what was in it",
            ground.name(&now),
            ground.name(then)
        );
        let target = was.event.with_context(|| format!("{} is of the present", ground.name(then)))?;
        let wanted = differences(ground, &now, then, target)?;
        let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
        finish(ground, &now, &plan, &wanted, (args.dry_run, args.listing), &Back::new(&wanted))
    })?;
    Ok(status::OK)
}

/// How a directory differs from what it was, without differences that nobody could see.
fn differences(ground: &Ground, now: &Path, then: &Path, target: EventNo) -> anyhow::Result<Vec<Difference>> {
    let putter = Putter::dry_run_only(ground)?;
    real(&ground.diff(now, Some(target), None)?, |path| {
        Ok(putter.compare(&below(then, path), &below(now, path))? == Done::Nothing)
    })
}

fn finish(
    ground: &Ground,
    dir: &Path,
    plan: &Plan,
    wanted: &[Difference],
    (dry_run, listing): (bool, args::Listing),
    back: &Back,
) -> anyhow::Result<()> {
    let mut list = List::new(listing);
    if is_listed(dry_run, &list) {
        tell_all(&mut list, wanted, back)?;
        list.done()?;
    }
    if dry_run {
        return Ok(());
    }
    ground.check_nothing_mounted_below(dir)?;
    let shown = ground.name(dir);
    for one in ground.unfinished(dir)? {
        status::tell(format_args!("{one} in {shown} had not ended; this counts in its place"));
    }
    let done = ground.rollback(dir, plan)?;
    if done.name.is_empty() {
        status::tell(format_args!("{shown}: nothing differs"));
        return Ok(());
    }
    let verb = plan.verb;
    anyhow::ensure!(
        done.has_end,
        "{} is done, but cannot be undone by itself: another snapshot is named after-{}",
        verb.text(),
        done.name
    );
    let again = if verb == Verb::Undo { "redo" } else { "undo" };
    status::tell(format_args!("undo: yore {again} {shown}"));
    Ok(())
}

/// Undoes the last operation.
pub fn undo(args: &args::Undo) -> Outcome {
    back_and_forth(args, false)
}

/// Undoes the last undo.
pub fn redo(args: &args::Redo) -> Outcome {
    back_and_forth(&args.undo, true)
}

fn back_and_forth(args: &args::Undo, redo: bool) -> Outcome {
    Where::find(&args.path)?.with(Access::of(!args.dry_run), |ground, dir| {
        let verb = if redo { Verb::Redo } else { Verb::Undo };
        let name = ground.name(dir);
        let Some((dir, all)) = operation::find(ground, dir, redo)? else {
            anyhow::bail!("nothing to {} in {name}, or in a directory above", verb.text())
        };
        let one = next(&all, redo).context("it was found")?;
        let before = one.before.as_ref().context("an operation that is undone has a beginning")?;
        let shown = ground.name(&dir);
        let until = until(&all, one);
        if until.is_none() && !args.force {
            anyhow::bail!(
                "{} in {shown} did not end, or its end was forgotten: what it did is not known. With --force all that changed since it \
                 began is put back (`yore diff {shown}/.@before-{}` lists it)",
                one.name(),
                one.name()
            );
        }
        status::tell(format_args!("{}: {} in {shown}", verb.text(), one.name()));
        let then = as_of(&dir, &before.row.name);
        let differences = differences(ground, &dir, &then, before.number)?;
        let (wanted, alone) = match until {
            Some((after, end)) if !args.force => leave_alone(&differences, &ground.diff(&dir, Some(after), end)?),
            _ => (differences.clone(), HashSet::new()),
        };
        let mut told: Vec<&Vec<u8>> = alone.iter().collect();
        told.sort();
        for path in told {
            status::tell(format_args!("changed since, left alone: {}", printable(path)));
        }
        let others = until.filter(|_| !args.force);
        let plan = Plan { verb, of: Some(one.number), target: before.number, others };
        finish(ground, &dir, &plan, &wanted, (args.dry_run, args.listing), &Back::new(&differences))
    })?;
    Ok(status::OK)
}
