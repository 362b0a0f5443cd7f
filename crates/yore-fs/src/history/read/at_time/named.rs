//! Which cut a name means: the nearest, of those that were taken under it, of what is named itself or of the directories above.
//!
//! Above are the directories that a directory is in, and if none of these was cut under the name, those that it was in when something was:
//! a snapshot of a directory shows what was below it also if that was moved out since.

use super::cuts::{above, covers, live};
use super::tree::entry;
use crate::history::record::Cut;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::Number;

/// The cut that a name means in a directory, which is seen as of `from` itself (`None`: the present). O(depth · log cuts), if one of the
/// directories above was cut so; otherwise as much for each cut of that name.
///
/// # Errors
/// `NotFound` if there is none; damage and device errors.
pub(super) fn covering(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<Number>,
    name: &str,
) -> Result<Cut> {
    if store.past.span_of_name(store, name)?.is_none() {
        return Err(Error::NotFound);
    }
    for root in above(store, directory, from)? {
        for cut in store.past.named_of(store, root, name)?.into_iter().rev() {
            if covers(store, &cut, directory)? {
                return Ok(cut);
            }
        }
    }
    let mut nearest: Option<(usize, Cut)> = None;
    for cut in store.past.named(store, name)?.into_iter().rev() {
        if !covers(store, &cut, directory)? {
            continue;
        }
        let depth = depth(store, &cut, directory)?;
        if nearest.as_ref().is_none_or(|(least, _)| depth < *least) {
            nearest = Some((depth, cut));
        }
    }
    nearest.map(|(_, cut)| cut).ok_or(Error::NotFound)
}

/// The cut with this name of the very directory that a name of a directory means, or meant when it was taken; `None` if there is none.
/// O(log history), and as much again for each meaning between the first and the last cut of that name.
///
/// # Errors
/// Damage and device errors.
pub(super) fn own(
    store: &Arc<Store>,
    (directory, entry_name): (InodeNo, &[u8]),
    from: Option<Number>,
    name: &str,
) -> Result<Option<Cut>> {
    let Some((first, last)) = store.past.span_of_name(store, name)? else { return Ok(None) };
    let live = live(store, directory, from, entry_name)?;
    let mut most = last;
    loop {
        let (inode, incarnation, birth, death) = match &live {
            Some(found) if found.birth <= most => {
                (found.inode, found.incarnation, found.birth, Number(u64::MAX))
            }
            _ => match store.past.last_meaning(store, directory, entry_name, most)? {
                Some(e) => (e.inode, e.incarnation, e.birth, e.death),
                None => break,
            },
        };
        let found =
            store.past.named_of(store, inode, name)?.into_iter().rev().find(|cut| {
                cut.row.root_incarnation == incarnation && cut.number >= birth && cut.number < death
            });
        if found.is_some() {
            return Ok(found);
        }
        match birth.0.checked_sub(1) {
            Some(before) if before >= first.0 => most = Number(before),
            _ => break,
        }
    }
    // What has the name now, or had it as of `from`, may have been cut under another one.
    let inode_of_name = match from {
        Some(from) => entry(store, directory, entry_name, from)?,
        None => live.map(|found| (found.inode, found.incarnation)),
    };
    let Some((inode, incarnation)) = inode_of_name else { return Ok(None) };
    let found = store.past.named_of(store, inode, name)?;
    Ok(found.into_iter().rev().find(|cut| cut.row.root_incarnation == incarnation))
}

/// How far a directory was below the one that was cut.
fn depth(store: &Arc<Store>, cut: &Cut, directory: InodeNo) -> Result<usize> {
    let all = above(store, directory, Some(cut.number))?;
    Ok(all.iter().position(|at| *at == cut.row.root).unwrap_or(usize::MAX))
}
