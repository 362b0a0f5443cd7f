//! Names that are gone from directories.

use super::kept::{join_spans, KeptCuts};
use super::tree::{join, order};
use super::{Deleted, Each, Facts};
use crate::history::{self, with, PRESENT};
use crate::past::PastEntry;
use crate::{Error, FileKind, InodeNo, Result, View};
use hashbrown::{HashMap, HashSet};
use yore_format::Number;

/// Calls `each` with what is gone, the latest first.
///
/// # Errors
/// As [`View::deleted`].
pub(super) fn deleted(
    view: &View,
    directory: InodeNo,
    recursive: bool,
    each: Each<'_, Deleted>,
) -> Result<()> {
    if view.getattr(directory)?.kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    let kept = KeptCuts::load(view.store())?;
    let (mut left, mut met, mut found) = (vec![(directory, Vec::new())], HashSet::new(), Vec::new());
    while let Some((directory, path)) = left.pop() {
        if !met.insert(directory) {
            continue;
        }
        match in_directory(view, &kept, directory, &path, &mut found) {
            Err(Error::NotFound | Error::NotADirectory) if !path.is_empty() => continue, // Gone just now.
            result => result?,
        }
        if recursive {
            view.readdir(directory, 0, &mut |item| {
                if item.kind == FileKind::Directory && !matches!(item.name, b"." | b"..") {
                    left.push((item.inode, join(&path, item.name)));
                }
                true
            })
            .or_else(|e| match e {
                Error::NotFound | Error::NotADirectory | Error::Stale => Ok(()),
                e => Err(e),
            })?;
        }
    }
    found.sort_by_cached_key(|(death, deleted): &(Number, Deleted)| {
        (std::cmp::Reverse(*death), order(&deleted.path))
    });
    for (_, deleted) in found {
        if each(deleted).is_break() {
            break;
        }
    }
    Ok(())
}

/// Adds the names that are gone from one directory, each as what it meant last, with when it went.
fn in_directory(
    view: &View,
    kept: &KeptCuts<'_>,
    directory: InodeNo,
    path: &[u8],
    found: &mut Vec<(Number, Deleted)>,
) -> Result<()> {
    let store = view.store();
    let incarnation = with(store, directory, PRESENT, |_, state| Ok(state.inode.incarnation))?;
    let mut by_name: HashMap<Vec<u8>, Vec<PastEntry>> = HashMap::new();
    store.past.each_past_name(&store.meta, directory, 0, &mut |entry| {
        by_name.entry(entry.name.clone()).or_default().push(entry);
        Ok(true)
    })?;
    if by_name.is_empty() {
        return Ok(());
    }
    for entry in history::entries(store, directory, PRESENT)? {
        by_name.remove(&entry.name);
    }
    for (name, mut meanings) in by_name {
        meanings.sort_by_key(|entry| std::cmp::Reverse(entry.birth));
        for entry in meanings {
            // What is being expunged was never there, though its names are until the background has come to them.
            let birth = store.past.expunging.began(entry.inode, entry.incarnation, entry.birth);
            if birth >= entry.death {
                continue;
            }
            let span = kept.of_directory((directory, incarnation), birth, entry.death)?;
            let own = kept.own((entry.inode, entry.incarnation), birth, entry.death);
            let Some((_, last)) = join_spans(span, own) else { continue };
            if !lived_on(view, &entry)? {
                if let Some(deleted) = describe(view, kept, &entry, last, join(path, &name))? {
                    found.push((entry.death, deleted));
                }
            }
            break;
        }
    }
    Ok(())
}

/// Whether what a name meant had another one when that was gone: then it was renamed, whatever has become of it since.
fn lived_on(view: &View, entry: &PastEntry) -> Result<bool> {
    let mut lived_on = false;
    history::each_state(view.store(), entry.inode, entry.death, PRESENT, &mut |inode, _, _| {
        lived_on = inode.incarnation == entry.incarnation && inode.links > 0;
        !lived_on
    })?;
    Ok(lived_on)
}

/// `None` if the cut was forgotten meanwhile, or the file expunged.
fn describe(
    view: &View,
    kept: &KeptCuts<'_>,
    entry: &PastEntry,
    last: Number,
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
