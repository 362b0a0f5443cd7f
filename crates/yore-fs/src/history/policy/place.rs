//! By which rules the events of a directory or file are kept, also when it is gone.
//!
//! What has no name any more is judged at the place of its last name, which its versions know, and a
//! directory above that is gone as well at its own last place. A kept event of a file has seen a version of
//! it, so its place is known as long as there is anything to judge.
//!
//! **Whose policy.** What root says of a directory applies to all that is below it. What another user says
//! applies to what is that user's, wherever it came from: files of others lie there, were moved there, or got
//! a further name there. Of these the next policy upwards decides ([`governs`]). But nobody's policy makes
//! others keep less: what the policies in between keep stays, too.

use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::{EventNo, Incarnation, Inode, Retention, RetentionRules};

/// The rules by which the events of a directory or file are kept.
pub(super) struct Ruling {
    /// What any of these keeps stays. The last ones are those of the policy that decides. Those before are of
    /// policies below it, which only keep, as the inode is not their owners'.
    pub rules: Vec<RetentionRules>,
    /// The user who owns the directory or file whose policy decides.
    pub by: u32,
}

/// Whether the policy of this user's directory or file decides how long events are kept of what `owner` owns
/// (`None`: nobody knows who does).
///
/// # Errors
/// Those of `owner`.
pub(super) fn governs(policy_of: u32, owner: impl FnOnce() -> Result<Option<u32>>) -> Result<bool> {
    Ok(policy_of == 0 || owner()? == Some(policy_of))
}

/// The rules by which events of an inode are kept. `None`: everything stays. That is also so if a directory
/// above is gone and no version of it is left: nobody knows then where it was. An inode of which no place was
/// ever known obeys the root directory.
///
/// # Errors
/// Damage and device errors.
pub(super) fn ruling_of(store: &Store, of: (InodeNo, Incarnation)) -> Result<Option<Ruling>> {
    let (mut at, mut met, mut rules) = (of, HashSet::new(), Vec::new());
    // Last places may lead round in a circle: directories were moved below each other one after the other.
    while met.insert(at) {
        let (no, incarnation) = at;
        let is_root = no == InodeNo::ROOT;
        let cell = cell_of(store, at)?;
        let mut place = None;
        if let Some(cell) = cell {
            let (uid, has_policy) = {
                let state = cell.state.read();
                let inode = &state.inode;
                if !state.gone && inode.links > 0 {
                    place = Some((inode.parent, inode.parent_incarnation));
                }
                (inode.uid, inode.has_policy && !state.gone)
            };
            let own = match has_policy {
                true => store.past.policy(&store.meta, no, cell.incarnation)?,
                false => None,
            };
            match own.and_then(|own| own.retention) {
                Some(Retention::Everything) => return Ok(None),
                Some(Retention::Rules(own)) => {
                    rules.push(own);
                    if governs(uid, || owner_of(store, of))? {
                        return Ok(Some(Ruling { rules, by: uid }));
                    }
                }
                None => {}
            }
        }
        if is_root {
            return Ok(None);
        }
        if place.is_none() {
            place = last_place(store, no, incarnation)?;
        }
        at = match place {
            Some((InodeNo::NONE, _)) => (InodeNo::ROOT, Incarnation(0)),
            Some(up) => up,
            None if at == of => (InodeNo::ROOT, Incarnation(0)),
            None => return Ok(None),
        };
    }
    Ok(None)
}

/// The cell of an inode in use. The root directory is that whatever its incarnation.
fn cell_of(store: &Store, (no, incarnation): (InodeNo, Incarnation)) -> Result<Option<Arc<InodeCell>>> {
    let cell = store.cell_if_used(no)?;
    Ok(cell.filter(|cell| no == InodeNo::ROOT || cell.incarnation == incarnation))
}

/// The user who owns an inode, or owned it last. `None`: no version is left that says so.
fn owner_of(store: &Store, of: (InodeNo, Incarnation)) -> Result<Option<u32>> {
    match cell_of(store, of)? {
        Some(cell) => Ok(Some(cell.state.read().inode.uid)),
        None => Ok(newest(store, of.0, of.1, |_| true)?.map(|inode| inode.uid)),
    }
}

/// The directory of the last name that an inode had, as its newest version with a name knows it. `None`:
/// there is no such version.
fn last_place(
    store: &Store,
    no: InodeNo,
    incarnation: Incarnation,
) -> Result<Option<(InodeNo, Incarnation)>> {
    // What is removed while it is in use may have a later version without a name.
    let inode = newest(store, no, incarnation, |inode| inode.links > 0)?;
    Ok(inode.map(|inode| (inode.parent, inode.parent_incarnation)))
}

/// An inode as its newest version has it that is `wanted`. O(log² events).
fn newest(
    store: &Store,
    no: InodeNo,
    incarnation: Incarnation,
    wanted: impl Fn(&Inode) -> bool,
) -> Result<Option<Inode>> {
    let version = |most: u64| store.past.version(&store.meta, no, EventNo(most));
    let mut most = u64::MAX;
    if let Some(later) = version(most)?.filter(|version| version.inode.incarnation > incarnation) {
        // Another inode has had the number since; all its versions were born later.
        let (mut low, mut high) = (0, later.inode.born.0);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match version(middle)?.filter(|version| version.inode.incarnation > incarnation) {
                Some(later) => high = later.inode.born.0,
                None => low = middle,
            }
        }
        most = low;
    }
    while let Some(version) = version(most)?.filter(|version| version.inode.incarnation == incarnation) {
        if wanted(&version.inode) {
            return Ok(Some(version.inode));
        }
        match version.inode.born.0.checked_sub(1) {
            Some(before) => most = before,
            None => break,
        }
    }
    Ok(None)
}
