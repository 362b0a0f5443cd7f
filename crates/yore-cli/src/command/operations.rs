//! `operations`: who did what to the past, and what undoes it.

use super::snapshot::Location;
use crate::args;
use crate::output::{human, json_name, json_time, printable, shell, Clock, List, Names};
use crate::status::{self, Outcome};
use crate::volume::Access;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_fs::{EventRow, OperationKind, OperationRow};

/// The operations that were asked for, and what is needed to say what undoes them.
struct Found {
    rows: Vec<(u64, OperationRow)>,
    /// The kept snapshots by number.
    kept: BTreeMap<u64, EventRow>,
    /// What comes before a path of the volume.
    front: Vec<u8>,
    /// The path on the volume that was asked for.
    below: PathBuf,
}

/// Lists them, the latest first.
pub fn run(args: &args::Operations) -> Outcome {
    let location = Location::find(&args.path)?;
    let found = location.ask_with(Access::Read, |client, volume| {
        let below = match volume {
            Some(volume) => volume.view().path_now(volume.node(location.path())?.inode())?,
            None => {
                let path = location.path().canonicalize()?;
                path.strip_prefix(location.root()).ok().map(|below| Path::new("/").join(below))
            }
        };
        let kept = client.all_snapshots()?.into_iter().map(|row| (row.event.number.0, row.event.row));
        Ok(Found {
            kept: kept.collect(),
            rows: client.operations()?,
            front: location.front(),
            below: below.unwrap_or_else(|| location.path().into()),
        })
    })?;
    let lines = found.lines(args.most.map_or(usize::MAX, |most| most as usize));
    print(args.listing, &lines)?;
    Ok(status::OK)
}

/// An operation in the list.
struct Line {
    row: OperationRow,
    /// Where, as commands name it.
    full_path: Vec<u8>,
    undo: Option<String>,
}

impl Found {
    fn lines(self, most: usize) -> Vec<Line> {
        let Found { rows, kept, front, below } = self;
        // `undo` or `redo` means the last operation of a directory that put something back.
        let mut put_back = HashSet::new();
        let mut resized = false;
        let mut lines = Vec::new();
        for (_, row) in rows {
            let path = PathBuf::from(OsStr::from_bytes(&row.path));
            let full_path = match front.ends_with(b":") || row.path != b"/" {
                true => [front.as_slice(), row.path.as_slice()].concat(),
                false => front.clone(),
            };
            let is_last = is_put_back(row.kind) && put_back.insert(row.path.clone());
            if path.starts_with(&below) || (row.path.is_empty() && below == Path::new("/")) {
                let undo = match row.kind {
                    OperationKind::Resize if std::mem::replace(&mut resized, true) => None,
                    OperationKind::Resize => resize_back(&row, &front),
                    _ if row.path.is_empty() => None,
                    _ => undo(&row, &full_path, &kept, is_last),
                };
                lines.push(Line { row, full_path, undo });
            }
            if lines.len() == most {
                break;
            }
        }
        lines
    }
}

fn is_put_back(kind: OperationKind) -> bool {
    use OperationKind::{Redo, Restore, Rollback, Undelete, Undo};
    matches!(kind, Restore | Undelete | Rollback | Undo | Redo)
}

/// The command that undoes an operation, if one does.
fn undo(
    row: &OperationRow,
    full_path: &[u8],
    kept: &BTreeMap<u64, EventRow>,
    is_last: bool,
) -> Option<String> {
    let (shown, number) = (shell(full_path), row.first.0);
    let event = kept.get(&number);
    match row.kind {
        OperationKind::Snapshot => event.map(|_| format!("yore forget --number {number} {shown}")),
        OperationKind::Hold => {
            event.filter(|event| event.held).map(|_| format!("yore release --number {number} {shown}"))
        }
        OperationKind::Release => {
            event.filter(|event| !event.held).map(|_| format!("yore hold --number {number} {shown}"))
        }
        OperationKind::Rename => {
            let (old, new) = row.note.split_once('/')?;
            let renamed = event.is_some_and(|event| event.name == new && old != new);
            renamed.then(|| format!("yore describe --number {number} -n {} {shown}", shell(old)))
        }
        OperationKind::Policy if !row.note.is_empty() => Some(format!("yore policy {shown} {}", row.note)),
        OperationKind::Undo if is_last => Some(format!("yore redo {shown}")),
        kind if is_put_back(kind) && is_last => Some(format!("yore undo {shown}")),
        kind if is_put_back(kind) => {
            let slash = if full_path.ends_with(b"/") { "" } else { "/" };
            let before = [full_path, slash.as_bytes(), b".@before-", row.note.as_bytes()].concat();
            event.map(|_| format!("yore rollback {}", shell(before)))
        }
        _ => None,
    }
}

/// The command that gives a volume its former length. A mounted volume cannot be made shorter.
fn resize_back(row: &OperationRow, front: &[u8]) -> Option<String> {
    let before: u64 = row.note.parse().ok()?;
    match front.strip_suffix(b":") {
        Some(volume) => Some(format!("yore resize {} {before}", shell(volume))),
        None => (before > row.bytes).then(|| format!("yore resize {} {before}", shell(front))),
    }
}

/// The note of an operation as people read it.
fn note(row: &OperationRow) -> String {
    match row.kind {
        OperationKind::Rename => match row.note.split_once('/') {
            Some((old, new)) if old == new => "described anew".to_string(),
            Some((old, new)) => format!("{} -> {}", or_none(old), or_none(new)),
            None => row.note.clone(),
        },
        OperationKind::Policy if !row.note.is_empty() => format!("was {}", row.note),
        OperationKind::Forget if row.count > 1 => format!("{} of them", row.count),
        OperationKind::Expunge => format!("{} files", row.count),
        OperationKind::Resize => match row.note.parse() {
            Ok(before) => format!("{} -> {}", human(before), human(row.bytes)),
            Err(_) => format!("to {}", human(row.bytes)),
        },
        _ => row.note.clone(),
    }
}

fn or_none(name: &str) -> &str {
    if name.is_empty() {
        "-"
    } else {
        name
    }
}

fn print(listing: args::Listing, lines: &[Line]) -> anyhow::Result<()> {
    let (clock, names) = (Clock::new(listing.utc), Names::load());
    let user = |row: &OperationRow| match row.uid {
        u32::MAX => "yore".to_string(),
        uid => names.user(uid),
    };
    let width = lines.iter().map(|line| user(&line.row).chars().count()).max().unwrap_or(0);
    let mut list = List::new(listing);
    for line in lines {
        let row = &line.row;
        let time = clock.text(row.time, crate::output::Precision::Minutes);
        let before = format!("{time}  {:<width$}  {:<8}  ", user(row), row.kind.name());
        let note = Some(note(row)).filter(|note| !note.is_empty());
        let note = note.map(|note| format!("  {}", printable(note.as_bytes()))).unwrap_or_default();
        let undo = line.undo.as_ref().map(|undo| format!("  undo: {undo}")).unwrap_or_default();
        list.entry(&before, &line.full_path, &format!("{note}{undo}"), || {
            let mut value = json!({
                "time": json_time(row.time),
                "uid": if row.uid == u32::MAX { serde_json::Value::Null } else { json!(row.uid) },
                "user": user(row),
                "operation": row.kind.name(),
                "number": if row.first.0 == 0 { serde_json::Value::Null } else { json!(row.first.0) },
                "count": row.count,
                "bytes": if row.bytes == 0 { serde_json::Value::Null } else { json!(row.bytes) },
                "note": row.note,
                "undo": line.undo,
            });
            json_name(&mut value, "path", &row.path);
            value
        })?;
    }
    list.done()
}
