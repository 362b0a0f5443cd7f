//! What history knows of files before it is given up: how much, whose it is, and what else a directory or a
//! name has meant.

use super::states::{each_version, in_use_as};
use crate::go_on::{goes_on, GoOn, ROW_COST};
use crate::history::read::at_time::{self, each_state, PRESENT};
use crate::history::record::PastEntry;
use crate::store::Store;
use crate::time::When;
use crate::{Error, FileKind, InodeNo, Result, View};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_format::{EventNo, Incarnation};

/// What history knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remembered {
    /// Its inode.
    pub inode: InodeNo,
    /// Which inode of those that have had the number.
    pub incarnation: u32,
    /// What it is.
    pub kind: FileKind,
    /// The path by which the directory of the query led to it: names with slashes between them. Empty for
    /// that directory itself.
    pub path: Vec<u8>,
    /// How many past states of it are kept.
    pub versions: u64,
    /// Their sizes, added up; the states may share much, with each other and with the present.
    pub bytes: u64,
    /// Who owned it in any of these states, or owns it now; in ascending order.
    pub owners: Vec<u32>,
    /// It still exists.
    pub in_use: bool,
}

/// What history knows of one file. O(versions).
///
/// # Errors
/// `NotFound` if there is and was no such file; damage and device errors.
pub(crate) fn remembered(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<Remembered> {
    let (mut kind, mut versions, mut bytes, mut owners, mut in_use) = (None, 0, 0u64, Vec::new(), false);
    if let Some(inode) = in_use_as(store, no, incarnation)? {
        in_use = inode.links > 0;
        kind = FileKind::from_mode(inode.mode);
        owners.push(inode.uid);
    }
    each_version(store, no, incarnation, &mut |version| {
        versions += 1;
        if !version.inode.is_directory() {
            bytes = bytes.saturating_add(version.inode.size);
        }
        kind = kind.or(FileKind::from_mode(version.inode.mode));
        owners.push(version.inode.uid);
        Ok(())
    })?;
    owners.sort_unstable();
    owners.dedup();
    let kind = kind.ok_or(Error::NotFound)?;
    let incarnation = incarnation.0;
    Ok(Remembered { inode: no, incarnation, kind, path: Vec::new(), versions, bytes, owners, in_use })
}

/// What history knows of a directory and all that was ever named in it, and so on downwards, each once.
/// O(names and versions).
///
/// # Errors
/// As [`remembered`]; `Refused` if `go_on` breaks.
pub(crate) fn remembered_below(
    store: &Arc<Store>,
    no: InodeNo,
    incarnation: Incarnation,
    go_on: GoOn<'_>,
) -> Result<Vec<Remembered>> {
    let (mut all, mut met) = (Vec::new(), HashSet::new());
    met.insert((no, incarnation));
    let mut left = vec![(no, incarnation, Vec::new())];
    while let Some((no, incarnation, path)) = left.pop() {
        goes_on(go_on, ROW_COST + path.len())?;
        let found = match remembered(store, no, incarnation) {
            // It has vanished meanwhile, or only a name that no event has seen is left of it.
            Err(Error::NotFound) if !path.is_empty() => continue,
            found => found?,
        };
        if found.kind == FileKind::Directory {
            for entry in ever_named(store, no, incarnation)? {
                if met.insert((entry.inode, entry.incarnation)) {
                    let below = match path.is_empty() {
                        true => entry.name,
                        false => [&path[..], b"/", &entry.name].concat(),
                    };
                    left.push((entry.inode, entry.incarnation, below));
                }
            }
        }
        all.push(Remembered { path, ..found });
    }
    Ok(all)
}

/// What [`View::history_of`] covers apart from the file that the name means.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryScope {
    /// For a directory, all that was ever named in it.
    pub below: bool,
    /// All other files that the name has meant.
    pub others: bool,
}

/// As [`View::history_of_while`].
pub(crate) fn history_of(
    view: &View,
    directory: InodeNo,
    name: &[u8],
    scope: HistoryScope,
    go_on: GoOn<'_>,
) -> Result<(Vec<Remembered>, usize)> {
    let store = view.store();
    let literal = || Ok((name, view.lookup(directory, name)?));
    let then = |of, when: &When| Ok((of, view.lookup_at(directory, of, when)?));
    let (of, found) = at_time::resolve_name(name, literal, then)?.found()?;
    let file = (found.inode(), Incarnation(found.attr().incarnation));
    let more = others_named(store, directory, of, file)?;
    let (wanted, left_out) = if scope.others { (&more[..], 0) } else { (&[][..], more.len()) };
    let (mut all, mut met) = (Vec::new(), HashSet::new());
    for (no, incarnation) in [file].iter().chain(wanted) {
        let found = match remembered(store, *no, *incarnation) {
            Err(Error::NotFound) if (*no, *incarnation) != file => continue,
            found => found?,
        };
        let found = match found.kind {
            FileKind::Directory if scope.below => remembered_below(store, *no, *incarnation, go_on)?,
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => vec![found],
        };
        all.extend(found.into_iter().filter(|one| met.insert((one.inode, one.incarnation))));
    }
    Ok((all, left_out))
}

/// The files that a name has meant in a directory, the one that it means now included, except the given one.
/// O(meanings of the name).
fn others_named(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    but: (InodeNo, Incarnation),
) -> Result<Vec<(InodeNo, Incarnation)>> {
    let mut others = Vec::new();
    let mut add = |other| {
        if other != but && !others.contains(&other) {
            others.push(other);
        }
    };
    if let Some(entry) = at_time::entry_named(store, directory, name, PRESENT)? {
        add((entry.inode, entry.incarnation));
    }
    let mut before = PRESENT;
    while let Some(entry) = store.past.name_before(store, directory, name, before)? {
        add((entry.inode, entry.incarnation));
        before = entry.birth;
    }
    Ok(others)
}

/// All entries that a directory has and had.
fn ever_named(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<Vec<PastEntry>> {
    // Names of other directories that had the number, before and after, do not belong to this one.
    let (mut states, mut since) = (Vec::new(), None);
    each_state(store, no, EventNo(0), PRESENT, &mut |inode, born, end| {
        match inode.incarnation == incarnation {
            true => since = Some(since.map_or(born, |since: EventNo| since.min(born))),
            false => states.push((inode.incarnation, born, end)),
        }
        true
    })?;
    let (mut from, mut to) = (EventNo(0), PRESENT);
    for (other, born, end) in states {
        // If nothing is left of this one, the order of incarnations has to decide. It does, unless they began
        // anew.
        let is_later = since.map_or(other > incarnation, |since| born > since);
        match is_later {
            true => to = to.min(born),
            false => from = from.max(end),
        }
    }
    let mut all = match in_use_as(store, no, incarnation)?.is_some() {
        true => at_time::entries(store, no, PRESENT)?,
        false => Vec::new(),
    };
    store.past.each_past_name(&store.meta, no, &mut |entry| {
        if from <= entry.birth && entry.birth < to {
            all.push(entry);
        }
        Ok(true)
    })?;
    Ok(all)
}
