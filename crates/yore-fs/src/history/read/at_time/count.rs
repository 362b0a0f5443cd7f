//! The last cut, the one before it, and so on, of those that show a directory or a name in it.
//!
//! Counted are the cuts that people take and that policies make. Not counted are the points that something can be undone by, which nobody
//! asked for, and what says that a file was removed, which shows nothing. A name is shown by what covers its directory, and by cuts
//! of the very file or directory that it meant at that time.

use super::cuts::{above_then_and_now, covers, last_kept, live};
use super::tree::PRESENT;
use crate::history::record::Cut;
use crate::store::Store;
use crate::{dir, Error, InodeNo, Result};
use std::num::NonZeroU32;
use std::sync::Arc;
use yore_format::{CutKind, Number};

/// A cut that shows what was asked for.
pub(super) struct Shown {
    pub cut: Cut,
    /// It is one of what the name meant itself, and not one that covers the directory.
    pub own: bool,
}

fn is_counted(kind: CutKind) -> bool {
    match kind {
        CutKind::Snapshot | CutKind::Close | CutKind::Interval => true,
        CutKind::Undo | CutKind::Removed | CutKind::Expunge | CutKind::Rollback => false,
    }
}

/// The cut that is `count`-th from the last, of those up to `from` that show a directory, or a name in it. O(count · depth · log
/// history), and as much again for each meaning of the name that no cut has seen.
///
/// # Errors
/// `NotFound` if there are fewer; damage and device errors.
pub(super) fn counted(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<Number>,
    name: Option<&[u8]>,
    count: NonZeroU32,
) -> Result<Shown> {
    let live = match name {
        Some(name) => live(store, directory, from, name)?,
        None => None,
    };
    let mut most = from.unwrap_or(PRESENT);
    let mut left = count.get();
    loop {
        let covering = covering(store, directory, most)?;
        let least = covering.as_ref().map_or(Number(0), |cut| cut.number);
        let own = match name {
            Some(name) => own(store, directory, (name, live.as_ref()), least, most)?,
            None => None,
        };
        let shown = match (own, covering) {
            (Some(cut), _) => Shown { cut, own: true },
            (None, Some(cut)) => Shown { cut, own: false },
            (None, None) => return Err(Error::NotFound),
        };
        left -= 1;
        if left == 0 {
            return Ok(shown);
        }
        most = Number(shown.cut.number.0 - 1);
    }
}

/// The last cut up to `most` that covers a directory.
fn covering(store: &Arc<Store>, directory: InodeNo, most: Number) -> Result<Option<Cut>> {
    let mut last: Option<Cut> = None;
    for root in above_then_and_now(store, directory, most)? {
        let found = last_kept(store, root, most, &mut |cut| {
            Ok(is_counted(cut.row.kind) && covers(store, cut, directory)?)
        })?;
        last = match (last, found) {
            (Some(last), Some(found)) if found.number <= last.number => Some(last),
            (last, None) => last,
            (_, found) => found,
        };
    }
    Ok(last)
}

/// The last cut behind `least` and up to `most` of what the name meant at that time itself.
fn own(
    store: &Arc<Store>,
    directory: InodeNo,
    (name, live): (&[u8], Option<&dir::Found>),
    least: Number,
    mut most: Number,
) -> Result<Option<Cut>> {
    loop {
        let (inode, incarnation, birth, last) = match live {
            Some(found) if found.birth <= most => (found.inode, found.incarnation, found.birth, most),
            _ => match store.past.last_meaning(store, directory, name, most)? {
                Some(e) => (e.inode, e.incarnation, e.birth, Number(e.death.0.saturating_sub(1)).min(most)),
                None => return Ok(None),
            },
        };
        let found = last_kept(store, inode, last, &mut |cut| {
            Ok(cut.row.root_incarnation == incarnation && is_counted(cut.row.kind))
        })?;
        if let Some(cut) = found.filter(|cut| cut.number >= birth && cut.number > least) {
            return Ok(Some(cut));
        }
        match birth.0.checked_sub(1) {
            Some(before) if before > least.0 => most = Number(before),
            _ => return Ok(None),
        }
    }
}
