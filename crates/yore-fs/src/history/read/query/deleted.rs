//! Names that are gone from directories.

use super::answer::{Deleted, Each, Facts};
use super::kept::KeptEvents;
use super::last::{is_temporary, lived_on};
use super::tree::{join, order};
use crate::go_on::{goes_on, GoOn, ROW_COST};
use crate::history::read::at_time::{self, with, PRESENT};
use crate::history::record::PastEntry;
use crate::progress::Progress;
use crate::{Error, FileKind, InodeNo, Result, View};
use hashbrown::{HashMap, HashSet};
use yore_format::EventNo;

/// Calls `each` with the deleted names, the latest first.
///
/// # Errors
/// As [`View::deleted_while`].
pub(super) fn deleted(
    view: &View,
    (directory, recursive): (InodeNo, bool),
    progress: &Progress,
    go_on: GoOn<'_>,
    each: Each<'_, Deleted>,
) -> Result<()> {
    if view.getattr(directory)?.kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    let kept = KeptEvents::load(view.store())?;
    let directories = match recursive {
        true => directories_below(view, directory, go_on)?,
        false => vec![(directory, Vec::new())],
    };
    progress.expect(directories.len() as u64);
    let mut found = Vec::new();
    for (directory, path) in directories {
        match in_directory(view, &kept, (directory, &path), go_on, &mut found) {
            Err(Error::NotFound | Error::NotADirectory) if !path.is_empty() => {} // Gone just now.
            result => result?,
        }
        progress.add(1);
    }
    found.sort_by_cached_key(|(death, deleted): &(EventNo, Deleted)| {
        (std::cmp::Reverse(*death), order(&deleted.path))
    });
    for (_, deleted) in found {
        if each(deleted).is_break() {
            break;
        }
    }
    Ok(())
}

/// A directory and all below it as they are now, with their paths.
fn directories_below(view: &View, directory: InodeNo, go_on: GoOn<'_>) -> Result<Vec<(InodeNo, Vec<u8>)>> {
    let mut met: HashSet<InodeNo> = HashSet::from_iter([directory]);
    let (mut all, mut next) = (vec![(directory, Vec::new())], 0);
    while let Some((directory, path)) = all.get(next).cloned() {
        next += 1;
        goes_on(go_on, ROW_COST + path.len())?;
        let listed = view.readdir(directory, 0, &mut |item| {
            let is_below = item.kind == FileKind::Directory && !matches!(item.name, b"." | b"..");
            // In the present a directory may be moved while others are listed, and be met again.
            if is_below && met.insert(item.inode) {
                all.push((item.inode, join(&path, item.name)));
            }
            true
        });
        match listed {
            Err(Error::NotFound | Error::NotADirectory | Error::Stale) if !path.is_empty() => {}
            listed => listed?,
        }
    }
    Ok(all)
}

/// Adds the names that are gone from one directory, each with what it meant last and when it went.
fn in_directory(
    view: &View,
    kept: &KeptEvents<'_>,
    (directory, path): (InodeNo, &[u8]),
    go_on: GoOn<'_>,
    found: &mut Vec<(EventNo, Deleted)>,
) -> Result<()> {
    goes_on(go_on, 0)?;
    let store = view.store();
    let incarnation = with(store, directory, PRESENT, |_, state| Ok(state.inode.incarnation))?;
    let mut by_name: HashMap<Vec<u8>, Vec<PastEntry>> = HashMap::new();
    store.past.each_past_name(&store.meta, directory, &mut |entry| {
        if !is_temporary(&entry.name) {
            by_name.entry(entry.name.clone()).or_default().push(entry);
        }
        Ok(true)
    })?;
    if by_name.is_empty() {
        return Ok(());
    }
    for entry in at_time::entries(store, directory, PRESENT)? {
        by_name.remove(&entry.name);
    }
    for (name, mut meanings) in by_name {
        goes_on(go_on, 0)?;
        meanings.sort_by_key(|entry| std::cmp::Reverse(entry.birth));
        let last = kept.last_seen((directory, incarnation), meanings.into_iter().map(Ok))?;
        let Some(last) = last else { continue };
        if !lived_on(kept, &last.entry)? {
            if let Some(deleted) = describe(view, kept, &last.entry, last.event, join(path, &name))? {
                goes_on(go_on, cost_of(&deleted))?;
                found.push((last.entry.death, deleted));
            }
        }
    }
    Ok(())
}

/// How much a row counts. It has the texts of the event that has seen it.
fn cost_of(row: &Deleted) -> usize {
    let of_event = &row.last.event.row;
    let texts = of_event.name.len() + of_event.more.description.len() + of_event.more.hold_reason.len();
    ROW_COST + row.path.len() + texts
}

/// `None` if the event was forgotten meanwhile, or if the file was expunged.
fn describe(
    view: &View,
    kept: &KeptEvents<'_>,
    entry: &PastEntry,
    last: EventNo,
    path: Vec<u8>,
) -> Result<Option<Deleted>> {
    let store = view.store();
    let facts = {
        let _seeing = match store.past.see(last) {
            Err(Error::Stale) => return Ok(None),
            seeing => seeing?,
        };
        match with(store, entry.inode, last, |_, state| Ok(Facts::of(&state.inode))) {
            Err(Error::NotFound) => return Ok(None),
            facts => facts?,
        }
    };
    let PastEntry { kind, inode, incarnation, .. } = *entry;
    Ok(Some(Deleted { path, last: kept.seen_by(last)?, kind, inode, incarnation, facts }))
}
