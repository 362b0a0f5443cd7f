//! `restore`, `undelete`, `rollback`, `undo` and `redo`: what was is put back, on top of all that came since. The first two are ordinary
//! operations on files; the others are one operation of whoever has the volume open ([`yore_fs::rollback`]).
//!
//! Each takes a cut before it changes anything and another one when it is done; see [`operation`].

mod ground;
mod one;
mod operation;
mod paths;

use super::Outcome;
use crate::args;
use crate::output::{bytes_of, json_name, List};
use crate::status;
use crate::volume::Access;
use anyhow::Context as _;
use ground::{Ground, Where};
use one::{Done, Putter};
use paths::{as_of, below, name_of};
use serde_json::json;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_fs::rollback::{ancestors, leave_alone, next, real, until, Back, Plan, Verb};
use yore_fs::{Change, Difference, FileKind, Number};

fn access(dry_run: bool) -> Access {
    if dry_run {
        Access::Read
    } else {
        Access::Write
    }
}

fn is_listed(dry_run: bool, listing: args::Listing) -> bool {
    dry_run || listing.json || listing.null
}

/// Whether something is a directory, and a symbolic link none.
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
    let now = ground.present(then);
    if !ground.is_past(then) || now == then {
        return Err(status::usage(format!(
            "{name}: as of when? Name a time, as {name}@2026-11-20_14.05 or {name}@yesterday (`yore snapshots` lists them)"
        )));
    }
    Ok(now)
}

/// Puts files and directories back.
pub fn restore(args: &args::Restore) -> Outcome {
    for operand in &args.paths {
        let place = Where::find(operand)?;
        place.with(access(args.dry_run), |ground, then| match &args.to {
            None => restore_one(ground, then, args),
            Some(to) => restore_to(ground, then, to, args),
        })?;
    }
    Ok(status::OK)
}

fn restore_one(ground: &Ground, then: &Path, args: &args::Restore) -> anyhow::Result<()> {
    let now = split(ground, then)?;
    if is_directory(ground, then)? && is_directory(ground, &now)? {
        let (was, is) = (ground.identity(then)?, ground.identity(&now)?);
        if (was.0, was.1) == (is.0, is.1) {
            return restore_directory(ground, then, &now, was.2, args);
        }
    }
    put(ground, Verb::Restore, then, &now, (args.dry_run, args.listing))
}

/// Puts one name back, with all that was below it.
fn put(
    ground: &Ground,
    verb: Verb,
    then: &Path,
    now: &Path,
    (dry_run, listing): (bool, args::Listing),
) -> anyhow::Result<()> {
    let mut putter = Putter::new(ground)?;
    let done = putter.compare(then, now)?;
    if done == Done::Nothing && !is_directory(ground, then)? {
        eprintln!("{} is already as it was then", ground.name(now));
        return Ok(());
    }
    if is_listed(dry_run, listing) {
        let (letters, change) = if done == Done::Made { ("+  ", "added") } else { ("M  ", "modified") };
        let mut list = List::new(listing);
        list.entry(letters, bytes_of(now), "", || {
            let mut value = json!({ "change": change });
            json_name(&mut value, "path", bytes_of(now));
            value
        })?;
        list.done()?;
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
    operation::run(ground, concerned, verb, || {
        putter.directories(then.parent(), parent)?;
        putter.tree(then, now)
    })
}

/// Puts the names of a directory back that are gone or were changed or renamed; others are left alone.
fn restore_directory(
    ground: &Ground,
    then: &Path,
    now: &Path,
    cut: Option<Number>,
    args: &args::Restore,
) -> anyhow::Result<()> {
    let all = ground.diff(now, cut, None)?;
    let back = Back::new(&all);
    let mut wanted: Vec<Difference> = Vec::new();
    let mut whole: HashSet<Vec<u8>> = HashSet::new();
    for one in &all {
        let (Some(path), change) = (back.of(one), one.change) else { continue };
        let mut one = one.clone();
        if change == Change::Renamed {
            // Its new name came since, and stays: what it was becomes another one.
            (one.change, one.old_path, one.after) = (Change::Removed, None, None);
            if one.kind == FileKind::Directory {
                whole.insert(path.clone());
            }
        }
        one.path = path;
        wanted.push(one);
    }
    wanted.retain(|one| !ancestors(&one.path).skip(1).any(|above| whole.contains(above)));
    wanted.sort_by(|a, b| a.path.split(|b| *b == b'/').cmp(b.path.split(|b| *b == b'/')));
    let mut putter = Putter::new(ground)?;
    let mut differs = Vec::new();
    for one in &wanted {
        let done = putter.compare(&below(then, &one.path), &below(now, &one.path))?;
        differs.push(done != Done::Nothing || whole.contains(&one.path));
    }
    let mut differs = differs.into_iter();
    wanted.retain(|_| differs.next().unwrap_or(true));
    if is_listed(args.dry_run, args.listing) {
        paths::print(args.listing, &wanted, &Back::new(&[]))?;
        if args.dry_run {
            return Ok(());
        }
    }
    if wanted.is_empty() {
        eprintln!("{}: all that was there then is there, as it was", ground.name(now));
        return Ok(());
    }
    ground.check_nothing_mounted_below(now)?;
    ground.check_writable(now)?;
    operation::run(ground, now, Verb::Restore, || {
        let mut directories = Vec::new();
        for one in &wanted {
            let (then, now) = (below(then, &one.path), below(now, &one.path));
            match one.kind {
                FileKind::Directory if !whole.contains(&one.path) => {
                    if ground.side().facts(&now)?.is_none() {
                        ground.side().make_directory(&now)?;
                    }
                    directories.push((then, now));
                }
                _ => putter.tree(&then, &now)?,
            }
        }
        for (then, now) in directories.iter().rev() {
            putter.attributes(then, now, true)?;
        }
        Ok(())
    })
}

/// Puts a copy elsewhere on the same mount or volume.
fn restore_to(ground: &Ground, then: &Path, to: &OsStr, args: &args::Restore) -> anyhow::Result<()> {
    let now = split(ground, then)?;
    let (place, elsewhere) = (Where::find(&args.paths[0])?, Where::find(to));
    let dest = match (place, elsewhere) {
        (Where::Mounted(_), Ok(Where::Mounted(dest))) => dest,
        (Where::Free(on), Ok(Where::Free(dest))) if on.volume == dest.volume => dest.path,
        _ => {
            return Err(status::usage(format!(
                "{}: not on the same mount or volume; copy it there with cp, or `yore get`",
                to.to_string_lossy()
            )))
        }
    };
    let dest = match ground.side().is_directory(&dest) {
        true => dest.join(OsStr::from_bytes(name_of(&now)?)),
        false => dest,
    };
    anyhow::ensure!(
        ground.side().facts(&dest)?.is_none(),
        "{} is there already; name what is not, or a directory to put it into",
        ground.name(&dest)
    );
    let above = dest.parent().unwrap_or(Path::new("/"));
    anyhow::ensure!(
        ground.side().is_directory(above),
        "{} is not a directory; make it first",
        ground.name(above)
    );
    put(ground, Verb::Restore, then, &dest, (args.dry_run, args.listing))
}

/// Brings back what is gone.
pub fn undelete(args: &args::Undelete) -> Outcome {
    for operand in &args.paths {
        Where::find(operand)?.with(Access::Write, undelete_one)?;
    }
    Ok(status::OK)
}

fn undelete_one(ground: &Ground, path: &Path) -> anyhow::Result<()> {
    let name = ground.name(path);
    if ground.side().facts(path)?.is_some() {
        anyhow::bail!(
            "{name} is there; for what it was before see `yore log {name}` and `yore restore {name}@TIME`"
        );
    }
    let there = path.ancestors().skip(1).find(|dir| ground.side().is_directory(dir));
    let there = there.with_context(|| format!("{name}: no such directory"))?;
    let rest = path.strip_prefix(there)?;
    let first = rest.iter().next().with_context(|| format!("{name} does not end in a name"))?;
    let deleted = ground.deleted(there)?.into_iter().find(|one| one.path == first.as_bytes());
    let then = deleted.map(|one| {
        let time = one.last.cut.row.time;
        as_of(there, &format!("@{}.{:09}", time.seconds, time.nanos)).join(rest)
    });
    let then = match then {
        Some(then) if ground.side().facts(&then)?.is_some() => then,
        _ => anyhow::bail!(
            "no snapshot has {name}; what is gone from there and can be brought back lists `yore deleted {}`",
            ground.name(there)
        ),
    };
    put(ground, Verb::Undelete, &then, path, (false, args::Listing::default()))
}

/// Makes a directory as it was.
pub fn rollback(args: &args::Rollback) -> Outcome {
    Where::find(&args.path)?.with(access(args.dry_run), |ground, then| {
        let now = split(ground, then)?;
        let was = ground.identity(then)?;
        let is = ground.identity(&now).ok().filter(|is| (is.0, is.1) == (was.0, was.1));
        anyhow::ensure!(
            is.is_some(),
            "{} is not the directory that it was then; `yore restore {}` puts back what was in it",
            ground.name(&now),
            ground.name(then)
        );
        let target = was.2.with_context(|| format!("{} is of the present", ground.name(then)))?;
        let wanted = differences(ground, &now, then, target)?;
        let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
        finish(ground, &now, &plan, &wanted, (args.dry_run, args.listing), &Back::new(&wanted))
    })?;
    Ok(status::OK)
}

/// What differs below a directory from what it was, and is to be seen.
fn differences(ground: &Ground, now: &Path, then: &Path, target: Number) -> anyhow::Result<Vec<Difference>> {
    let putter = Putter::new(ground)?;
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
    if is_listed(dry_run, listing) {
        paths::print(listing, wanted, back)?;
    }
    if dry_run {
        return Ok(());
    }
    ground.check_nothing_mounted_below(dir)?;
    let shown = ground.name(dir);
    for one in ground.unfinished(dir)? {
        eprintln!("{one} in {shown} had not ended; this counts in its place");
    }
    let done = ground.rollback(dir, plan)?;
    if done.name.is_empty() {
        eprintln!("{shown}: nothing differs");
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
    eprintln!("undo: yore {again} {shown}");
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
    Where::find(&args.path)?.with(access(args.dry_run), |ground, dir| {
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
        eprintln!("{}: {} in {shown}", verb.text(), one.name());
        let then = as_of(&dir, &before.row.name);
        let differences = differences(ground, &dir, &then, before.number)?;
        let (wanted, alone) = match until {
            Some((after, end)) if !args.force => leave_alone(&differences, &ground.diff(&dir, Some(after), end)?),
            _ => (differences.clone(), HashSet::new()),
        };
        let mut told: Vec<&Vec<u8>> = alone.iter().collect();
        told.sort();
        for path in told {
            eprintln!("changed since, left alone: {}", crate::output::printable(path));
        }
        let others = until.filter(|_| !args.force);
        let plan = Plan { verb, of: Some(one.number), target: before.number, others };
        finish(ground, &dir, &plan, &wanted, (args.dry_run, args.listing), &Back::new(&differences))
    })?;
    Ok(status::OK)
}
