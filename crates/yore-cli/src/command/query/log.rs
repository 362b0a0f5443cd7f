//! `log` and `deleted`.

use super::{json_facts, no_answer, words};
use crate::args;
use crate::asked::Paths;
use crate::command::files::on_volume;
use crate::command::found::json_finding;
use crate::command::operand::find;
use crate::live;
use crate::opened::directory_of;
use crate::output::{
    bytes_of, human, json_name, json_name_or_null, json_seconds, json_time, kind_name, printable, shell,
    Clock, List,
};
use crate::progress::{until_stopped, while_searching};
use crate::status::{self, Outcome};
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client, Watch};
use yore_format::RECORDED_PATH_MAX;
use yore_fs::{
    DataState, Deleted, Error, FindingsRecord, Gone, InodeNo, Logged, RecordedFinding, SeenBy, VerifyStates,
    What,
};

/// What progress says during the search for what is gone.
const SEARCHING: &str = "looking for what is gone";
/// What it says while states are read.
const VERIFYING: &str = "verifying";

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;

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
    let verify = if args.verify { VerifyStates::Yes } else { VerifyStates::WhereDamaged };
    let (found, record) = ask_about(&args.path, false, |client, name| {
        let found = until_stopped(client, |client| {
            let log = |watch: Watch<'_>| client.verified_log(name, args.most, verify, watch);
            match args.verify {
                true => while_searching(args.progress, VERIFYING, log),
                false => Ok(log(None)),
            }
        })??;
        let found = found.map_err(|error| match error.root() {
            Error::NotFound => never_seen(&shown),
            _ => no_answer(error).context(format!("cannot print the log of {shown}")),
        })?;
        let record = match client.findings() {
            Ok(record) => record,
            // Not everybody is told.
            Err(error) if matches!(error.root(), Error::NotPermitted { .. }) => None,
            // The log has its use without them.
            Err(error) => {
                status::warn(&format!("cannot tell what a check found on the volume of {shown}: {error}"));
                None
            }
        };
        Ok((found, record))
    })?;
    let clock = Clock::new(args.listing.utc);
    let findings = record.map(|record| Findings { record, found: &found });
    let mut list = List::new(args.listing);
    if let Some(line) = findings.as_ref().and_then(|findings| findings.line(&clock)) {
        list.heading(line.as_bytes())?;
    }
    if let Some(line) = data_line(args, &found, &clock) {
        list.heading(line.as_bytes())?;
    }
    let width = found.iter().map(|logged| log_time(logged, &clock).len()).max().unwrap_or(0);
    for logged in &found {
        if let Some(gone) = &logged.gone {
            list.heading(gone_line(gone, logged, &clock, width).as_bytes())?;
        }
        log_line(&mut list, logged, findings.as_ref(), &clock, width)?;
    }
    list.done()?;
    let latest = found.iter().find_map(|logged| logged.data);
    Ok(match latest {
        Some(DataState::Damaged { .. }) if args.verify => status::FINDINGS,
        _ => status::OK,
    })
}

/// How many findings a line has.
const FINDINGS_SHOWN: usize = 5;

/// What the last check of the volume in use found and left, and a log.
struct Findings<'a> {
    record: FindingsRecord,
    found: &'a [Logged],
}

impl Findings<'_> {
    /// Whether the log is that of the root directory, which has all findings.
    fn are_of_volume(&self) -> bool {
        self.found.iter().any(|logged| logged.inode == InodeNo::ROOT)
    }

    /// Whether a finding is about the file of a state. The number of an inode that is gone may have been
    /// given to another file. A file that is still there and was there when it was checked is the one that
    /// was found, whatever its names are by now. Of others, the name must be one that the log has.
    fn is_of(&self, finding: &RecordedFinding, logged: &Logged) -> bool {
        if finding.inode != Some(logged.inode) {
            return false;
        }
        let file = (logged.inode, logged.incarnation);
        let is_there = self.found.iter().any(|of| of.current && (of.inode, of.incarnation) == file);
        let was_there = self.record.next_incarnation.is_some_and(|next| logged.incarnation < next);
        is_there && was_there || finding.path.as_deref().is_none_or(|path| has_name(logged, path))
    }

    /// A line for people; of the root directory, all of it.
    fn line(&self, clock: &Clock) -> Option<String> {
        let is_of_volume = self.are_of_volume();
        let concerns = |finding: &&RecordedFinding| {
            is_of_volume || self.found.iter().any(|logged| self.is_of(finding, logged))
        };
        let of: Vec<&RecordedFinding> = self.record.findings.iter().filter(concerns).collect();
        let count = if is_of_volume { self.record.count } else { of.len() as u64 };
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
            clock.seconds(self.record.seconds),
            shown.join(", ")
        ))
    }

    fn json_of(&self, logged: &Logged) -> Value {
        let one = |finding: &RecordedFinding| {
            let mut value = json_finding(finding);
            value["time"] = json_seconds(self.record.seconds);
            value
        };
        let is_root = logged.inode == InodeNo::ROOT;
        let of = self.record.findings.iter().filter(|finding| is_root || self.is_of(finding, logged));
        of.map(one).collect()
    }
}

/// Whether a state has the name under which a check found the file.
fn has_name(logged: &Logged, recorded: &str) -> bool {
    let path = String::from_utf8_lossy(logged.path.as_deref().unwrap_or_default());
    let bare = |path: &str| path.strip_prefix('/').unwrap_or(path).to_owned();
    // Of a long path the end is recorded, from the beginning of a character.
    let is_truncated = recorded.len() + 4 > RECORDED_PATH_MAX;
    bare(&path) == bare(recorded) || (is_truncated && path.ends_with(recorded))
}

/// What was found of the data: where it is damaged, and which state before is whole.
fn data_line(args: &args::Log, found: &[Logged], clock: &Clock) -> Option<String> {
    let damaged = found.iter().enumerate().find_map(|(at, logged)| match logged.data? {
        DataState::Damaged { offset, block } => Some((at, logged, offset, block)),
        DataState::Whole | DataState::Unknown { .. } => None,
    });
    let Some((at, damaged, offset, block)) = damaged else {
        let latest = found.iter().find_map(|logged| logged.data);
        return args.verify.then(|| match latest {
            Some(DataState::Unknown { blocks }) => format!(
                "nothing is damaged, but {} of the data has no checksum (yore checksums --enable)",
                human(blocks * BLOCK)
            ),
            Some(_) => "the data is whole".into(),
            None => "nothing was verified: only regular files have data".into(),
        });
    };
    let as_of = match damaged.current {
        true => String::new(),
        false => format!(" as of {}", log_time(damaged, clock)),
    };
    let damage = format!("the data{as_of} is damaged at offset {offset} of the file (block {block})");
    let earlier = &found[at + 1..];
    let Some(whole) = earlier.iter().find(|logged| logged.data == Some(DataState::Whole)) else {
        let is_unknown = |logged: &Logged| matches!(logged.data, Some(DataState::Unknown { .. }));
        return Some(match (earlier.iter().any(is_unknown), args.most) {
            (true, _) => format!("{damage}; of earlier states not all data has checksums"),
            (false, Some(_)) => format!("{damage}; none of the states that are listed is whole"),
            (false, None) => format!("{damage}; no state that a snapshot has is whole"),
        });
    };
    let time = log_time(whole, clock);
    // The path as it was given leads there if the file had that name then.
    let given = &args.path;
    let is_same = Path::new(given).file_name().is_some_and(|name| name.as_bytes() == whole.name);
    let path = match (is_same, &whole.path) {
        (false, Some(path)) => [front(given).as_slice(), path.as_slice()].concat(),
        _ => given.as_bytes().to_vec(),
    };
    let state = shell([path.as_slice(), b"@", time.as_bytes()].concat());
    Some(format!("{damage}; the state of {time} is whole: yore restore {state}"))
}

/// What stands before a path of the volume that an operand is on: the volume and a colon, or the mount point.
fn front(operand: &OsStr) -> Vec<u8> {
    if let Some(on) = OnVolume::split_unless_there(operand) {
        return [bytes_of(&on.volume), b":"].concat();
    }
    let mount = live::mount_at(directory_of(Path::new(operand)));
    mount.map_or_else(Vec::new, |mount| bytes_of(&mount.directory).to_vec())
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

fn log_line(
    list: &mut List,
    logged: &Logged,
    findings: Option<&Findings<'_>>,
    clock: &Clock,
    width: usize,
) -> anyhow::Result<()> {
    let time = log_time(logged, clock);
    let path = logged.path.as_deref().unwrap_or(&logged.name);
    let first = match (&logged.first, &logged.last) {
        (Some(first), Some(last)) if first != last => format!("  since {}", at(first, clock)),
        _ => String::new(),
    };
    let mode = logged.facts.mode & 0o7777;
    let data = match logged.data {
        None => String::new(),
        Some(DataState::Whole) => "  whole".into(),
        Some(DataState::Damaged { offset, .. }) => format!("  damaged at offset {offset}"),
        Some(DataState::Unknown { blocks }) => format!("  {} without checksums", human(blocks * BLOCK)),
    };
    let after = format!(
        "{:pad$}  {:<3} {mode:04o} {:>10}  {}{first}{data}",
        "",
        letters(logged),
        logged.facts.size,
        printable(path),
        pad = width.saturating_sub(time.len())
    );
    list.entry("", time.as_bytes(), &after, || {
        let mut value = json_logged(logged, clock);
        value["data"] = json_data(logged.data);
        // Null: nothing is recorded, or this user is not told.
        value["findings"] = findings.map_or(Value::Null, |findings| findings.json_of(logged));
        value
    })
}

/// What was found of the data of a state; null if nobody has verified it.
fn json_data(data: Option<DataState>) -> Value {
    match data {
        None => Value::Null,
        Some(DataState::Whole) => json!({ "state": "whole" }),
        Some(DataState::Damaged { offset, block }) => {
            json!({ "state": "damaged", "offset": offset, "block": block })
        }
        Some(DataState::Unknown { blocks }) => {
            json!({ "state": "unknown", "bytes_without_checksums": blocks * BLOCK })
        }
    }
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
        let found = until_stopped(client, |client| {
            while_searching(args.progress, SEARCHING, |watch| client.deleted(args.recursive, watch))
        })??;
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
