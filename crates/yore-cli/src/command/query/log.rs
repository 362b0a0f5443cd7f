//! `log` and `deleted`.

use super::{json_facts, no_answer, words};
use crate::args;
use crate::asked::Paths;
use crate::command::files::on_volume;
use crate::command::operand::find;
use crate::live;
use crate::opened::directory_of;
use crate::output::{bytes_of, json_name, json_name_or_null, json_time, kind_name, printable, Clock, List};
use crate::progress::while_searching;
use crate::status::{self, Outcome};
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use yore_control::Client;
use yore_format::RECORDED_PATH_MAX;
use yore_fs::{Deleted, Error, FindingsRecord, Gone, InodeNo, Logged, RecordedFinding, SeenBy, What};

/// What progress says during the search for what is gone.
const SEARCHING: &str = "looking for what is gone";

/// The directory of a path's last name, and that name. The name is empty if the path does not end in one.
fn split(path: &Path) -> (PathBuf, Vec<u8>) {
    match (path.file_name(), path.parent()) {
        (Some(name), Some(_)) => (directory_of(path).into(), bytes_of(Path::new(name)).to_vec()),
        _ => (path.into(), Vec::new()),
    }
}

/// The nearest existing directory above the end of a path, and the names from there to the end, separated by
/// slashes.
pub fn from_what_is_there(path: &Path, is_directory: impl Fn(&Path) -> bool) -> (PathBuf, Vec<u8>) {
    let (mut above, mut name) = split(path);
    while !name.is_empty() && !is_directory(&above) {
        let (higher, before) = split(&above);
        if before.is_empty() {
            break;
        }
        (above, name) = (higher, [&before[..], b"/", &name].concat());
    }
    (above, name)
}

/// Asks about a name in the nearest existing directory above it. The name is empty if the query is about the
/// directory itself. That is so for the root, and with `itself` for every directory.
pub(super) fn ask_about<T>(
    operand: &OsStr,
    itself: bool,
    work: impl FnOnce(&dyn Client, &[u8]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let path = Path::new(operand);
    let split = |paths: Paths<'_>, path: &Path| match itself && paths.is_directory(path) {
        true => (path.to_path_buf(), Vec::new()),
        false => from_what_is_there(path, |path| paths.is_directory(path)),
    };
    if let Some(on) = OnVolume::split_unless_there(operand) {
        return on_volume(&on.volume, Access::Read, |volume| {
            let paths = Paths::on(Some(volume));
            let (above, name) = split(paths, &on.path);
            work(&*paths.client(&above)?, &name)
        });
    }
    let is_root = path.canonicalize().is_ok_and(|path| live::is_mounted(&path));
    let (above, name) = split(Paths::ON_MOUNTS, path);
    if !is_root && live::mount_at(&above).is_some() {
        return work(&*Paths::ON_MOUNTS.client(&above)?, &name);
    }
    // A volume or a mount point, with a time or without.
    find(operand)?.ask(Access::Read, |client| work(client, b""))
}

/// Prints what a file or directory was over time.
pub fn log(args: &args::Log) -> Outcome {
    let shown = args.path.to_string_lossy().into_owned();
    let (found, record) = ask_about(&args.path, false, |client, name| {
        let found = client.log(name, args.most).map_err(|error| match error.root() {
            Error::NotFound => never_seen(&shown),
            _ => no_answer(error).context(format!("cannot print the log of {shown}")),
        })?;
        let record = match client.findings() {
            Ok(record) => record,
            // Not everybody is told.
            Err(error) if matches!(error.root(), Error::NotPermitted { .. }) => None,
            // The log has its use without them.
            Err(error) => {
                eprintln!("yore: cannot tell what a check found on the volume of {shown}: {error}");
                None
            }
        };
        Ok((found, record))
    })?;
    let clock = Clock::new(args.listing.utc);
    let mut list = List::new(args.listing);
    if let Some(line) = record.and_then(|record| findings_line(&record, &found, &clock)) {
        list.heading(line.as_bytes())?;
    }
    let width = found.iter().map(|logged| log_time(logged, &clock).len()).max().unwrap_or(0);
    for logged in &found {
        if let Some(gone) = &logged.gone {
            list.heading(gone_line(gone, logged, &clock, width).as_bytes())?;
        }
        log_line(&mut list, logged, &clock, width)?;
    }
    list.done()?;
    Ok(status::OK)
}

/// How many findings a line has.
const FINDINGS_SHOWN: usize = 5;

/// What the last check of the volume in use found and left of this file; of the root directory, all of it.
fn findings_line(record: &FindingsRecord, found: &[Logged], clock: &Clock) -> Option<String> {
    let is_of_volume = found.iter().any(|logged| logged.inode == InodeNo::ROOT);
    // The number of an inode that is gone may have been given to another file, so the name must be one that
    // the log has.
    let has_name = |logged: &Logged, recorded: &str| {
        let path = String::from_utf8_lossy(logged.path.as_deref().unwrap_or_default());
        let bare = |path: &str| path.strip_prefix('/').unwrap_or(path).to_owned();
        // Of a long path the end is recorded, from the beginning of a character.
        let is_truncated = recorded.len() + 4 > RECORDED_PATH_MAX;
        bare(&path) == bare(recorded) || (is_truncated && path.ends_with(recorded))
    };
    let concerns = |finding: &RecordedFinding| {
        let path = finding.path.as_deref();
        let is_it = |logged: &Logged| {
            finding.inode == Some(logged.inode) && path.is_none_or(|path| has_name(logged, path))
        };
        is_of_volume || found.iter().any(is_it)
    };
    let of: Vec<&RecordedFinding> = record.findings.iter().filter(|finding| concerns(finding)).collect();
    let count = if is_of_volume { record.count } else { of.len() as u64 };
    if count == 0 {
        return None;
    }
    let one = |finding: &&RecordedFinding| match &finding.path {
        Some(path) if is_of_volume => format!("{} {path}", finding.code),
        _ => finding.code.clone(),
    };
    let shown: Vec<String> = of.iter().take(FINDINGS_SHOWN).map(one).collect();
    let more = if count > shown.len() as u64 { ", …" } else { "" };
    Some(format!(
        "the check of {} found {}{more} (yore info)",
        clock.seconds(record.seconds),
        shown.join(", ")
    ))
}

pub(super) fn never_seen(name: &str) -> anyhow::Error {
    crate::status::absent(name, || {
        anyhow::anyhow!(
            "{name} is not there, and no snapshot has seen it under that name; `yore snapshots` lists those that there are, and \
             `yore deleted` what is gone"
        )
    })
}

/// Letters that say how a state differs from the one before: `+` there is none before, `N` a new file took
/// the name, `R` renamed or moved, `M` other content, `A` other attributes or times.
fn letters(logged: &Logged) -> String {
    let attributes = What::METADATA | What::XATTRS;
    let only_time = !logged.what.contains(What::CONTENT) && logged.what.contains(What::TIME);
    let of = [
        (logged.oldest, '+'),
        (logged.replaced, 'N'),
        (logged.renamed, 'R'),
        (logged.what.contains(What::CONTENT), 'M'),
        (logged.what.intersects(attributes) || only_time, 'A'),
    ];
    of.into_iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect()
}

pub(super) fn at(seen: &SeenBy, clock: &Clock) -> String {
    clock.name(seen.event.row.time, seen.next)
}

/// When a state was seen last.
pub(super) fn log_time(logged: &Logged, clock: &Clock) -> String {
    match &logged.last {
        _ if logged.current && logged.first.is_none() => "now".to_string(),
        Some(last) => at(last, clock),
        None => "now".to_string(),
    }
}

/// The line that says that a name means nothing any more, in the columns of the states below it.
fn gone_line(gone: &Gone, logged: &Logged, clock: &Clock, width: usize) -> String {
    let what = if gone.moved { "moved" } else { "gone" };
    let path = logged.path.as_deref().unwrap_or(&logged.name);
    let to = gone.path.as_ref().map(|path| format!(" -> {}", printable(path))).unwrap_or_default();
    let by = gone.by.as_ref().map(|by| format!("  by {}", at(by, clock))).unwrap_or_default();
    format!("{what:<width$}  -   {:4} {:>10}  {}{to}{by}", "", "", printable(path))
}

fn log_line(list: &mut List, logged: &Logged, clock: &Clock, width: usize) -> anyhow::Result<()> {
    let time = log_time(logged, clock);
    let path = logged.path.as_deref().unwrap_or(&logged.name);
    let first = match (&logged.first, &logged.last) {
        (Some(first), Some(last)) if first != last => format!("  since {}", at(first, clock)),
        _ => String::new(),
    };
    let mode = logged.facts.mode & 0o7777;
    let after = format!(
        "{:pad$}  {:<3} {mode:04o} {:>10}  {}{first}",
        "",
        letters(logged),
        logged.facts.size,
        printable(path),
        pad = width.saturating_sub(time.len())
    );
    list.entry("", time.as_bytes(), &after, || json_logged(logged, clock))
}

pub(super) fn json_seen(seen: Option<&SeenBy>, clock: &Clock) -> Value {
    match seen {
        None => Value::Null,
        Some(seen) => json!({
            "number": seen.event.number.0,
            "time": json_time(seen.event.row.time),
            "at": at(seen, clock),
            "name": if seen.event.row.name.is_empty() { Value::Null } else { json!(seen.event.row.name) },
        }),
    }
}

pub(super) fn json_logged(logged: &Logged, clock: &Clock) -> Value {
    let mut value = json!({
        "first": json_seen(logged.first.as_ref(), clock),
        "last": json_seen(logged.last.as_ref(), clock),
        "current": logged.current,
        "type": kind_name(logged.kind),
        "inode": logged.inode.0,
        "incarnation": logged.incarnation.0,
        "facts": json_facts(&logged.facts),
        "what": words(logged.what),
        "renamed": logged.renamed,
        "replaced": logged.replaced,
        "oldest": logged.oldest,
        "gone": logged.gone.as_ref().map(|gone| json_gone(gone, clock)),
    });
    json_name(&mut value, "name", &logged.name);
    json_name_or_null(&mut value, "path", logged.path.as_deref());
    value
}

fn json_gone(gone: &Gone, clock: &Clock) -> Value {
    let mut value = json!({ "by": json_seen(gone.by.as_ref(), clock), "moved": gone.moved });
    json_name_or_null(&mut value, "path", gone.path.as_deref());
    value
}

/// Lists what is gone from a directory.
pub fn deleted(args: &args::Deleted) -> Outcome {
    let location = find(&args.path)?;
    let name = location.name();
    let found = location.ask(Access::Read, |client| {
        if client.identity().map_err(no_answer)?.event.is_some() {
            return Err(status::usage(format!(
                "{name} is of the past: what is gone is gone from the present; name the directory without a time"
            )));
        }
        let found = while_searching(args.progress, SEARCHING, |watch| client.deleted(args.recursive, watch))?;
        found.map_err(no_answer).with_context(|| format!("cannot list what is gone from {name}"))
    })?;
    let clock = Clock::new(args.listing.utc);
    let mut list = List::new(args.listing);
    for deleted in &found {
        deleted_line(&mut list, deleted, &clock)?;
    }
    list.done()?;
    Ok(status::OK)
}

fn deleted_line(list: &mut List, deleted: &Deleted, clock: &Clock) -> anyhow::Result<()> {
    let Deleted { path, last, kind, facts, .. } = deleted;
    let at = at(last, clock);
    let before = format!("{:<9}  {:>10}  ", kind_name(*kind), facts.size);
    // With the time, the path leads to what is gone.
    let name = [&path[..], b"@", at.as_bytes()].concat();
    list.entry(&before, &name, "", || {
        let mut value = json!({
            "last": json_seen(Some(last), clock),
            "type": kind_name(*kind),
            "inode": deleted.inode.0,
            "incarnation": deleted.incarnation.0,
            "facts": json_facts(facts),
        });
        json_name(&mut value, "path", path);
        value
    })
}
