//! `diff` and `status`; the modules below have `log`, `deleted` and `du`. Each asks a [`Client`] of a mount,
//! or of a volume that the command opens.
//!
//! **What is compared.** A directory is compared as one inode at two times: the file system knows what
//! changed in between, and reads only files that took the place of others. So both operands must be the same
//! directory, under whatever names. Files are compared by reading them, because programs that save a file
//! often put another one in its place.

mod files;
pub mod log;
mod patch;
pub mod usage;

use super::operand::{find, find_file_too};
use super::snapshot::Location;
use crate::args;
use crate::asked::Paths;
use crate::output::{
    bytes_of, human, json_name, json_name_or_null, json_time, kind_name, print_json, print_line, printable,
    Clock, List,
};
use crate::progress::{until_stopped, while_searching};
use crate::side::Side;
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use patch::Patch;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use yore_control::{Client, Identity};
use yore_fs::{Change, Difference, Error, EventNo, Facts, FileKind, What};

/// What progress says while differences are being found.
const COMPARING: &str = "comparing";

/// Why a query has no answer.
pub(super) fn no_answer(error: Error) -> anyhow::Error {
    match error.root() {
        Error::Stale => {
            anyhow::anyhow!("somebody forgot the snapshot meanwhile; look again with `yore snapshots`")
        }
        _ => error.into(),
    }
}

fn no_time(name: &str) -> anyhow::Error {
    status::usage(format!(
        "{name}: since when? Name a time, as {name}@2026-11-20_14.05 or {name}@yesterday, or two (`yore snapshots` lists them; \
         `yore status` compares with the last)"
    ))
}

fn not_the_same(a: &str, b: &str) -> anyhow::Error {
    anyhow::anyhow!("{a} and {b} are not the same directory at two times; compare what is in them with diff(1): diff -r {a} {b}")
}

pub(super) fn not_both(name: &str) -> anyhow::Error {
    anyhow::anyhow!("cannot compare {name}: it was not there at both times, or is gone; `yore snapshots` lists when it can be seen")
}

/// Which directory a path leads to; `None` if it leads to something else.
fn identity(paths: Paths<'_>, path: &Path) -> anyhow::Result<Option<Identity>> {
    match paths.client(path)?.identity() {
        Ok(identity) => Ok(Some(identity)),
        Err(error) if matches!(error.root(), Error::NotADirectory) => Ok(None),
        Err(error) => Err(no_answer(error)),
    }
}

/// The path of a directory without times, if the same directory is there now.
fn present(paths: Paths<'_>, path: &Path, of: &Identity) -> anyhow::Result<Option<PathBuf>> {
    let plain = paths.without_times(path)?;
    let found = identity(paths, &plain).ok().flatten();
    let is_there = found.is_some_and(|found| found.is_same_directory(of) && found.event.is_none());
    Ok(is_there.then_some(plain))
}

/// What differs below a directory; `name` names it in messages.
fn compare(
    client: &dyn Client,
    name: &str,
    (from, to): (Option<EventNo>, Option<EventNo>),
    wanted: args::Progress,
) -> anyhow::Result<Vec<Difference>> {
    let found = until_stopped(client, |client| {
        while_searching(wanted, COMPARING, |watch| client.compare(from, to, watch))
    })??;
    found.map_err(|error| cannot_compare(error, name))
}

/// Why a directory cannot be compared.
pub(super) fn cannot_compare(error: Error, name: &str) -> anyhow::Error {
    match error.root() {
        Error::NotFound => not_both(name),
        _ => no_answer(error).context(format!("cannot compare {name}")),
    }
}

/// Prints what differs between two times.
pub fn diff(args: &args::Diff) -> Outcome {
    let first = find_file_too(&args.first)?;
    let second = args.second.as_deref().map(find_file_too).transpose()?;
    if let Some(second) = second.as_ref().filter(|second| !first.is_beside(second)) {
        return Err(status::usage(format!(
            "{} and {} are on different volumes; compare them with diff(1)",
            first.name(),
            second.name()
        )));
    }
    first.with_paths(Access::Read, |paths, side| locations(args, (paths, side), &first, second.as_ref()))
}

/// Compares a file with another one, or with the same name as it is now.
fn files(
    args: &args::Diff,
    (paths, side): (Paths<'_>, &dyn Side),
    first: &Path,
    second: Option<&Path>,
) -> Outcome {
    match second {
        Some(second) => two_files(args, side, first, second),
        None => match paths.without_times(first)? {
            present if present == first => Err(no_time(&side.name(first))),
            present => two_files(args, side, first, &present),
        },
    }
}

fn locations(
    args: &args::Diff,
    (paths, side): (Paths<'_>, &dyn Side),
    a: &Location,
    b: Option<&Location>,
) -> Outcome {
    let Some(of) = identity(paths, a.path())? else {
        return files(args, (paths, side), a.path(), b.map(Location::path));
    };
    let (to, to_path) = match b {
        Some(b) => {
            let other = identity(paths, b.path())?.with_context(|| {
                format!("{} is not a directory; directories and files cannot be compared", b.path().display())
            })?;
            if !other.is_same_directory(&of) {
                return Err(not_the_same(&a.name(), &b.name()));
            }
            (other.event, Some(b.path().to_path_buf()))
        }
        None if of.event.is_none() => return Err(no_time(&a.name())),
        None => (None, present(paths, a.path(), &of)?),
    };
    let found = compare(&*paths.client(a.path())?, &a.name(), (of.event, to), args.progress)?;
    print(args, &found, side, &|patch, difference| {
        let to = to_path.as_deref().with_context(|| {
            format!(
                "{}: its content now is not under that name; give the new one as the second operand",
                a.name()
            )
        })?;
        patch.difference(difference, a.path(), to)
    })
}

/// Adds a difference to a patch.
type AddTo<'a> = dyn Fn(&mut Patch<'_>, &Difference) -> anyhow::Result<()> + 'a;

/// Prints differences as the options say; returns the exit status.
fn print(args: &args::Diff, found: &[Difference], side: &dyn Side, add: &AddTo<'_>) -> Outcome {
    if args.stat {
        stat(args.listing, found)?;
    } else if args.patch {
        let mut patch = Patch::new(side);
        for difference in found {
            add(&mut patch, difference)?;
        }
        patch.done()?;
    } else {
        let mut list = List::new(args.listing);
        for difference in found {
            line(&mut list, difference)?;
        }
        list.done()?;
    }
    Ok(if args.exit_code && !found.is_empty() { status::FINDINGS } else { status::OK })
}

/// Prints how two files differ.
fn two_files(args: &args::Diff, side: &dyn Side, first: &Path, second: &Path) -> Outcome {
    let found = files::difference(side, first, second)?;
    print(args, found.as_slice(), side, &|patch, difference| {
        let size = |facts: Option<yore_fs::Facts>| facts.map_or(0, |facts| facts.size);
        patch.pair(
            difference.what,
            Some((bytes_of(first), first.to_path_buf(), size(difference.before))),
            Some((bytes_of(second), second.to_path_buf(), size(difference.after))),
        )
    })
}

/// The letters of a difference.
fn letters(difference: &Difference) -> &'static str {
    match (difference.change, difference.what.is_empty()) {
        (Change::Added, _) => "+",
        (Change::Removed, _) => "-",
        (Change::Modified, _) => "M",
        (Change::Renamed, true) => "R",
        (Change::Renamed, false) => "RM",
    }
}

/// Which aspects of a file changed, in words.
fn words(what: What) -> Vec<&'static str> {
    let mut words = Vec::new();
    for (flag, word) in [
        (What::CONTENT, "content"),
        (What::METADATA, "metadata"),
        (What::XATTRS, "attributes"),
        (What::TIME, "time"),
        (What::LINKS, "links"),
    ] {
        if what.contains(flag) {
            words.push(word);
        }
    }
    words
}

/// A path below the directory that was asked about; `.` for the directory itself.
fn shown(path: &[u8]) -> &[u8] {
    match path {
        b"" => b".",
        path => path,
    }
}

pub(super) fn line(list: &mut List, difference: &Difference) -> anyhow::Result<()> {
    let old = difference.old_path.as_deref().map(|old| format!("{} -> ", printable(old))).unwrap_or_default();
    let before = format!("{:<3}{old}", letters(difference));
    let slash = if difference.kind == FileKind::Directory && !difference.path.is_empty() { "/" } else { "" };
    // If the content changed, so did the times, and nobody asks about those.
    let told = match difference.what.contains(What::CONTENT) {
        true => difference.what - What::CONTENT - What::TIME - What::LINKS,
        false if (difference.what - What::TIME).is_empty() => difference.what,
        false => difference.what - What::TIME - What::LINKS,
    };
    let after = match words(told).join(", ") {
        told if told.is_empty() => slash.to_string(),
        told => format!("{slash}  ({told})"),
    };
    list.entry(&before, shown(&difference.path), &after, || json_difference(difference))
}

fn json_facts(facts: &Facts) -> Value {
    json!({
        "mode": format!("{:04o}", facts.mode & 0o7777),
        "uid": facts.uid,
        "gid": facts.gid,
        "links": facts.links,
        "size": facts.size,
        "modified": json_time(facts.mtime),
    })
}

fn json_difference(difference: &Difference) -> Value {
    let mut value = json!({
        "change": match difference.change {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Modified => "modified",
            Change::Renamed => "renamed",
        },
        "type": kind_name(difference.kind),
        "inode": difference.inode.0,
        "incarnation": difference.incarnation.0,
        "what": words(difference.what),
        "before": difference.before.as_ref().map(json_facts),
        "after": difference.after.as_ref().map(json_facts),
    });
    json_name(&mut value, "path", shown(&difference.path));
    json_name_or_null(&mut value, "old_path", difference.old_path.as_deref());
    value
}

/// Prints how many changes there are of each kind, and by how many bytes files grew and shrank.
fn stat(listing: args::Listing, found: &[Difference]) -> anyhow::Result<()> {
    let count = |change: Change| found.iter().filter(|found| found.change == change).count();
    let size = |facts: &Option<Facts>, kind: FileKind| match (facts, kind) {
        (Some(facts), FileKind::Regular) => facts.size,
        _ => 0,
    };
    let (mut more, mut less) = (0u64, 0u64);
    for one in found {
        let (before, after) = (size(&one.before, one.kind), size(&one.after, one.kind));
        more = more.saturating_add(after.saturating_sub(before));
        less = less.saturating_add(before.saturating_sub(after));
    }
    let [added, removed, modified, renamed] =
        [Change::Added, Change::Removed, Change::Modified, Change::Renamed].map(count);
    match listing.json {
        true => print_json(&json!({
            "added": added, "removed": removed, "modified": modified, "renamed": renamed,
            "bytes_more": more, "bytes_less": less,
        })),
        false => print_line(format_args!(
            "{added} added, {removed} removed, {modified} modified, {renamed} renamed; {} more, {} less",
            human(more),
            human(less)
        )),
    }
}

/// Prints what changed since the last snapshot.
pub fn status(args: &args::Status) -> Outcome {
    let location = find(&args.path)?;
    let name = location.name();
    let (last, found) = location.ask(Access::Read, |client| {
        if client.identity().map_err(no_answer)?.event.is_some() {
            return Err(status::usage(format!(
                "{name} is of the past, which does not change; for what changed since then: yore diff {name}"
            )));
        }
        let Some(last) = client.last().with_context(|| format!("cannot compare {name}"))? else {
            anyhow::bail!("no snapshot has seen {name}; take one with `yore snapshot {name}`")
        };
        let found = compare(client, &name, (Some(last.event.number), None), args.progress)?;
        Ok((last, found))
    })?;
    let time = Clock::new(args.listing.utc).name(last.event.row.time, last.next);
    let mut list = List::new(args.listing);
    let named = match last.event.row.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    list.heading(format!("since {time}{named}").as_bytes())?;
    for difference in &found {
        line(&mut list, difference)?;
    }
    list.done()?;
    Ok(if args.exit_code && !found.is_empty() { status::FINDINGS } else { status::OK })
}
