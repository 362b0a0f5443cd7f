//! Which cuts there are of a directory and of those above it, and what they show.

use super::tree::{directory_in_use, parent, place, with};
use crate::core::inode::DEPTH_MAX;
use crate::history::record::Cut;
use crate::store::Store;
use crate::{dir, Error, InodeNo, Result};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_format::{CutState, Number};

/// All cuts that are kept, in ascending order.
pub(crate) fn cuts(store: &Arc<Store>) -> Result<Vec<Cut>> {
    kept_from(store, Number(0), usize::MAX)
}

/// The kept cuts from this number on in ascending order, at most so many.
pub(crate) fn kept_from(store: &Arc<Store>, from: Number, most: usize) -> Result<Vec<Cut>> {
    let mut cuts = Vec::new();
    store.past.each_cut(&store.meta, from, &mut |cut| {
        if cut.row.state == CutState::Kept {
            cuts.push(cut);
        }
        Ok(cuts.len() < most)
    })?;
    Ok(cuts)
}

/// A directory and those above it, the nearest first: as of a cut, or as they are now.
pub(super) fn above(store: &Arc<Store>, directory: InodeNo, from: Option<Number>) -> Result<Vec<InodeNo>> {
    let (mut all, mut at) = (vec![directory], directory);
    while all.len() <= DEPTH_MAX {
        let up = match from {
            Some(number) => parent(store, at, number),
            None => store.cell(at).map(|cell| cell.state.read().inode.parent),
        };
        match up {
            Ok(up) if up != at && up != InodeNo::NONE => at = up,
            Ok(_) | Err(Error::NotFound | Error::Stale | Error::NotADirectory) => break,
            Err(e) => return Err(e),
        }
        all.push(at);
    }
    Ok(all)
}

/// A directory and those above it as of a number, as far as they are known; then as they are now.
pub(super) fn above_then_and_now(
    store: &Arc<Store>,
    directory: InodeNo,
    number: Number,
) -> Result<HashSet<InodeNo>> {
    let mut all: HashSet<InodeNo> = above(store, directory, Some(number))?.into_iter().collect();
    all.extend(above(store, directory, None)?);
    Ok(all)
}

/// The last kept cut of `root` itself up to `most` that is `wanted`.
pub(super) fn last_kept(
    store: &Arc<Store>,
    root: InodeNo,
    mut most: Number,
    wanted: &mut dyn FnMut(&Cut) -> Result<bool>,
) -> Result<Option<Cut>> {
    while let Some(cut) = store.past.last_of(&store.meta, root, most)? {
        if cut.row.state == CutState::Kept && wanted(&cut)? {
            return Ok(Some(cut));
        }
        most = Number(cut.number.0 - 1);
    }
    Ok(None)
}

/// Whether a directory was the one that was cut, or below it. O(depth · log).
pub(crate) fn covers(store: &Arc<Store>, cut: &Cut, directory: InodeNo) -> Result<bool> {
    if matches!(parent(store, directory, cut.number), Err(Error::NotFound | Error::NotADirectory)) {
        return Ok(false);
    }
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == cut.row.root {
            return Ok(true);
        }
        match place(store, at, cut.number)? {
            Some(place) => at = place.directory,
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// What a name means now in a directory that is seen as of `from`: under the number of one that is gone another one may live.
pub(super) fn live(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<Number>,
    name: &[u8],
) -> Result<Option<dir::Found>> {
    match from {
        Some(from) if !is_alive(store, directory, from)? => Ok(None),
        _ => in_use(store, directory, name),
    }
}

/// Whether the directory of a number as of a cut is the one that has the number now.
fn is_alive(store: &Arc<Store>, directory: InodeNo, cut: Number) -> Result<bool> {
    let then = with(store, directory, cut, |_, state| Ok(state.inode.incarnation));
    match (directory_in_use(store, directory)?, then) {
        (Some(cell), Ok(then)) => Ok(cell.incarnation == then),
        (None, _) | (_, Err(Error::NotFound)) => Ok(false),
        (_, Err(e)) => Err(e),
    }
}

/// What a name means now.
fn in_use(store: &Arc<Store>, directory: InodeNo, name: &[u8]) -> Result<Option<dir::Found>> {
    let Some(cell) = directory_in_use(store, directory)? else { return Ok(None) };
    let state = cell.state.read();
    if state.check_directory().is_err() {
        return Ok(None);
    }
    dir::find(store, &state, directory, name)
}
