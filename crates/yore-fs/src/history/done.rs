//! Who did what to the past: the rows that a program records after it has taken, named, held, forgotten or
//! put back something for a user.
//!
//! A row says what was done and where, names the events concerned, and has a note ([`OperationRow::note`]):
//!
//! | kind | note | first, last, count |
//! |---|---|---|
//! | snapshot | its name | it |
//! | restore, undelete, rollback, undo, redo | what it is called, as `rollback-3` | the event before it |
//! | forget | the name, of one | the first and the last, how many |
//! | expunge | nothing | how many files |
//! | policy | what was said before | nothing |
//! | hold, release | the reason | the event |
//! | rename | the name before and the one since, with a `/` between | the event |
//! | resize | the length before, in bytes | nothing; the row's `bytes` are the length since |
//!
//! If a row cannot be recorded, the operation stands; a warning is logged.

use crate::history::reclaim::retention::retention_text;
use crate::history::record::Event;
use crate::history::rollback::begun;
use crate::{Error, InodeNo, Result, View};
use std::os::unix::ffi::OsStrExt as _;
use yore_format::{
    EventKind, EventNo, OperationKind, OperationRow, Policy, RowClass, Versioning, OPERATION_NOTE_MAX,
    OPERATION_PATH_MAX,
};

/// The user and the view of a change, for the rows that record it.
#[derive(Clone, Copy)]
pub struct Doing<'a> {
    /// The volume's present, which can be changed.
    pub view: &'a View,
    /// The user.
    pub uid: u32,
}

impl Doing<'_> {
    fn row(
        &self,
        kind: OperationKind,
        on: InodeNo,
        events: (EventNo, EventNo, u64),
        note: &str,
    ) -> Result<OperationRow> {
        let path = self.view.path_now(on)?.map(|path| path.as_os_str().as_bytes().to_vec());
        // The end of a path that is too long says more than its beginning.
        let path = path.unwrap_or_default();
        let path = path[path.len().saturating_sub(OPERATION_PATH_MAX)..].to_vec();
        let end = (0..=note.len().min(OPERATION_NOTE_MAX)).rev().find(|at| note.is_char_boundary(*at));
        let note = note[..end.unwrap_or(0)].replace(char::is_control, "?");
        let (time, uid, (first, last, count)) = (crate::clock::now(), self.uid, events);
        Ok(OperationRow { time, kind, uid, first, last, count, bytes: 0, path, note })
    }

    fn of_event(&self, kind: OperationKind, event: &Event, note: &str) -> Result<OperationRow> {
        self.row(kind, event.row.root, (event.number, event.number, 1), note)
    }

    /// The row for a snapshot that was taken, or for a restore or undelete that begins with this event.
    /// `None` if the event is part of something else.
    ///
    /// # Errors
    /// Damage and device errors; the same for all functions here.
    pub fn taking(&self, event: &Event) -> Result<Option<OperationRow>> {
        match event.row.kind {
            EventKind::Undo => match begun(&event.row.name) {
                Some((kind, name)) => self.of_event(kind, event, name).map(Some),
                None => Ok(None),
            },
            _ => self.of_event(OperationKind::Snapshot, event, &event.row.name).map(Some),
        }
    }

    /// The rows for events that are about to be forgotten: one for each directory or file that has any of
    /// them. Leaves out events that are not kept.
    pub fn forgetting(&self, numbers: &[EventNo]) -> Result<Vec<OperationRow>> {
        let mut of_each: std::collections::BTreeMap<InodeNo, Vec<Event>> = std::collections::BTreeMap::new();
        for number in numbers {
            match self.view.kept_event(*number) {
                Ok(event) => of_each.entry(event.row.root).or_default().push(event),
                Err(Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        let rows = of_each.into_iter().filter_map(|(root, events)| {
            let (first, last) = (events.first()?.number, events.last()?.number);
            let note = if events.len() == 1 { events.first()?.row.name.as_str() } else { "" };
            Some(self.row(OperationKind::Forget, root, (first, last, events.len() as u64), note))
        });
        rows.collect()
    }

    /// The row for an event, as it was before, that got this name, or only another description (`None`).
    pub fn renaming(&self, was: &Event, name: Option<&str>) -> Result<OperationRow> {
        let old = &was.row.name;
        self.of_event(OperationKind::Rename, was, &format!("{old}/{}", name.unwrap_or(old)))
    }

    /// The row for an event that was held for a reason, or released (`None`).
    pub fn holding(&self, event: &Event, reason: Option<&str>) -> Result<OperationRow> {
        match reason {
            Some(reason) => self.of_event(OperationKind::Hold, event, reason),
            None => self.of_event(OperationKind::Release, event, &event.row.more.hold_reason),
        }
    }

    /// The row for a directory that was rolled back, undone or redone; `name` is what that operation is
    /// called.
    pub fn rolling(&self, directory: InodeNo, name: &str) -> Result<Option<OperationRow>> {
        let before = format!("before-{name}");
        let Some((kind, _)) = begun(&before) else { return Ok(None) };
        let event = self.view.event_for(directory, &crate::time::When::Named(before));
        let first = match event {
            Ok(number) => number,
            Err(Error::NotFound) => EventNo(0),
            Err(e) => return Err(e),
        };
        self.row(kind, directory, (first, first, 1), name).map(Some)
    }

    /// The row for so many files in a directory whose history is being given up.
    pub fn expunging(&self, directory: InodeNo, files: usize) -> Result<OperationRow> {
        self.row(OperationKind::Expunge, directory, (EventNo(0), EventNo(0), files as u64), "")
    }

    /// The row for a directory or file that is about to get this policy.
    pub fn setting(&self, inode: InodeNo, policy: &Policy) -> Result<OperationRow> {
        let before = policy_text(&self.view.policy(inode)?, policy);
        self.row(OperationKind::Policy, inode, (EventNo(0), EventNo(0), 0), &before)
    }

    /// The row for a volume that was resized; `before` is its old length in bytes.
    pub fn resizing(&self, before: u64) -> Result<OperationRow> {
        let note = before.to_string();
        let row = self.row(OperationKind::Resize, InodeNo::ROOT, (EventNo(0), EventNo(0), 0), &note)?;
        Ok(OperationRow { bytes: self.view.info().size, ..row })
    }

    /// Records these rows.
    pub fn note(&self, rows: impl IntoIterator<Item = OperationRow>) {
        for row in rows {
            if let Err(error) = self.view.note_operation(RowClass::Done, &row) {
                tracing::warn!("what {} did ({}) was not recorded: {error}", row.uid, row.kind.name());
            }
        }
    }
}

/// What a policy says before `next` replaces it, in the syntax of commands, so that a user can set it again.
/// Empty if the text is too long.
fn policy_text(policy: &Policy, next: &Policy) -> String {
    let Policy { versioning, retention, exclude, hold } = policy;
    let version = match versioning {
        None => "inherit".to_string(),
        Some(Versioning::Snapshots) => "snapshot".to_string(),
        Some(Versioning::Close) => "close".to_string(),
        Some(Versioning::Interval(nanos)) if nanos % 1_000_000_000 == 0 => {
            format!("{}s", nanos / 1_000_000_000)
        }
        Some(Versioning::Interval(nanos)) => format!("{nanos}ns"),
    };
    let keep = match retention {
        None => "inherit".to_string(),
        Some(retention) => retention_text(retention),
    };
    let hold = match hold {
        None => "inherit".to_string(),
        Some(0) => "none".to_string(),
        Some(nanos) => format!("{}s", nanos.div_ceil(1_000_000_000)),
    };
    let mut text = format!("version={version} keep={keep} hold={hold}");
    match exclude {
        Some(patterns) if patterns.is_empty() => text += " exclude=none",
        Some(patterns) => {
            for pattern in patterns {
                text += &format!(" exclude='{}'", pattern.replace('\'', "'\\''"));
            }
        }
        None if next.exclude.is_some() => text += " exclude=inherit",
        None => {}
    }
    if text.len() > OPERATION_NOTE_MAX {
        text.clear();
    }
    text
}

impl View {
    /// The recorded operations, the latest first. A user sees his own, and those of others only where they
    /// concern directories and files that he owns now; `None` sees all. O(rows · log).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn done(&self, seen_by: Option<u32>) -> Result<Vec<(u64, OperationRow)>> {
        let mut rows = self.operations(RowClass::Done)?;
        rows.reverse();
        let Some(uid) = seen_by else { return Ok(rows) };
        let mut seen = Vec::new();
        for (sequence, row) in rows {
            if row.uid == uid || self.concerns(&row, uid)? {
                seen.push((sequence, row));
            }
        }
        Ok(seen)
    }

    /// Whether the directory or file of the row's event still exists and belongs to a user.
    fn concerns(&self, row: &OperationRow, uid: u32) -> Result<bool> {
        let Some(event) = self.store().past.ever(&self.store().meta, row.first)? else { return Ok(false) };
        match self.present().node(event.row.root, Some(event.row.root_incarnation.0)) {
            Ok(node) => Ok(node.attr().uid == uid),
            Err(Error::Stale | Error::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_format::{Retention, RetentionRules};

    /// `monthly:all` was noted as `monthly:4294967295`, and `yore operations` told people to write that.
    #[test]
    fn policies_are_noted_as_commands_write_them() {
        let rules = RetentionRules { monthly: RetentionRules::ALL, last: 3, ..RetentionRules::default() };
        let was = Policy { retention: Some(Retention::Rules(rules)), ..Policy::default() };
        let text = policy_text(&was, &Policy::default());
        assert_eq!(text, "version=inherit keep=last:3,monthly:all hold=inherit");
    }
}
