//! What must be done to make a directory what it was, given the differences between then and now.

use super::operation::Verb;
use crate::{Change, Difference, FileKind, InodeNo};
use std::collections::{BTreeMap, HashSet};
use yore_format::EventNo;

/// What to do with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// The kind of operation.
    pub verb: Verb,
    /// The number of the operation that it undoes.
    pub of: Option<u64>,
    /// The event as of which the directory becomes what it was.
    pub target: EventNo,
    /// Leaves alone what others changed between these events, or since the first.
    pub others: Option<(EventNo, Option<EventNo>)>,
}

/// Whose files may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// All files, also immutable and append-only ones: for callers that could take these flags away.
    All,
    /// All but immutable and append-only files.
    Unprotected,
    /// Files with this owner and one of these groups, except immutable and append-only ones. Devices do not
    /// come back, nor set-group-id bits of other groups.
    Owner {
        /// The owner.
        uid: u32,
        /// His groups.
        groups: Vec<u32>,
    },
}

/// Names and inodes that a rollback changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Directories, with the names in them that now mean something else, or nothing.
    pub names: hashbrown::HashSet<(InodeNo, Vec<u8>)>,
    /// Inodes whose attributes changed, or, for directories, whose names changed.
    pub inodes: hashbrown::HashSet<InodeNo>,
}

/// Maps present paths to past ones and back, by the directories that were renamed since.
pub struct Back {
    to_then: BTreeMap<Vec<u8>, Vec<u8>>,
    to_now: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn follow(renamed: &BTreeMap<Vec<u8>, Vec<u8>>, path: &[u8]) -> Vec<u8> {
    for above in ancestors(path) {
        if let Some(other) = renamed.get(above) {
            return [&other[..], &path[above.len()..]].concat();
        }
    }
    path.to_vec()
}

impl Back {
    /// From all differences.
    pub fn new(differences: &[Difference]) -> Back {
        let renamed = differences.iter().filter(|one| one.kind == FileKind::Directory);
        let to_then: BTreeMap<_, _> =
            renamed.filter_map(|one| Some((one.path.clone(), one.old_path.clone()?))).collect();
        let to_now = to_then.iter().map(|(now, then)| (then.clone(), now.clone())).collect();
        Back { to_then, to_now }
    }

    /// Where this was then, if the last name in the path existed then.
    pub fn then(&self, now: &[u8]) -> Vec<u8> {
        follow(&self.to_then, now)
    }

    /// The present path of a past directory, or the path that it would have.
    pub(super) fn now(&self, then: &[u8]) -> Vec<u8> {
        follow(&self.to_now, then)
    }

    /// The past path of a difference; `None` for something that was added.
    pub fn of(&self, one: &Difference) -> Option<Vec<u8>> {
        match one.change {
            Change::Added => None,
            Change::Removed => Some(one.path.clone()),
            Change::Renamed => one.old_path.clone(),
            Change::Modified => Some(self.then(&one.path)),
        }
    }
}

/// A path and those above it, the longest first, without the empty one.
pub fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = (!path.is_empty()).then_some(path);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.iter().rposition(|b| *b == b'/').map(|at| &this[..at]);
        Some(this)
    })
}

pub(super) fn depth(path: &[u8]) -> usize {
    path.iter().filter(|b| **b == b'/').count()
}

/// Splits a path into the directory above and the last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The path of a name in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}

pub(super) fn parent(path: &[u8]) -> &[u8] {
    split(path).0
}

/// The differences without those that nobody can see: where another file with the same content and attributes
/// (`is_same` of the path) took a name, as after putting it back. Files of several names stay in the list,
/// because this does not check which names belong to one file.
///
/// # Errors
/// Those of `is_same`.
pub fn real<E>(
    all: &[Difference],
    mut is_same: impl FnMut(&[u8]) -> Result<bool, E>,
) -> Result<Vec<Difference>, E> {
    let back = Back::new(all);
    let one_name = |one: &Difference| {
        one.kind == FileKind::Directory || one.before.or(one.after).is_some_and(|facts| facts.links == 1)
    };
    let of = |change: Change| {
        let those = all.iter().filter(move |one| one.change == change && one_name(one));
        those.map(|one| (one.path.as_slice(), one.kind)).collect::<HashSet<_>>()
    };
    let (added, mut same) = (of(Change::Added), HashSet::new());
    for (path, kind) in of(Change::Removed).intersection(&added) {
        if back.then(path) == *path && is_same(path)? {
            same.insert((path.to_vec(), *kind));
        }
    }
    let is_none = |one: &Difference| {
        matches!(one.change, Change::Added | Change::Removed) && same.contains(&(one.path.clone(), one.kind))
    };
    Ok(all.iter().filter(|one| !is_none(one)).cloned().collect())
}

/// An inode that moved to another directory of the same path counts as moved only if that directory has to
/// leave its place. Otherwise the inode is where it was, and at most modified.
pub(super) fn without_still(all: Vec<Difference>) -> Vec<Difference> {
    let is_moved = |one: &Difference| one.old_path.as_ref() == Some(&one.path);
    let goes = |one: &&Difference| match one.change {
        Change::Added => one.kind == FileKind::Directory,
        Change::Renamed => one.kind == FileKind::Directory && !is_moved(one),
        Change::Removed | Change::Modified => false,
    };
    let leaving: HashSet<Vec<u8>> = all.iter().filter(goes).map(|one| one.path.clone()).collect();
    let still = |mut one: Difference| {
        if is_moved(&one) && !leaving.contains(parent(&one.path)) {
            (one.change, one.old_path) = (Change::Modified, None);
            return (!one.what.is_empty()).then_some(one);
        }
        Some(one)
    };
    all.into_iter().filter_map(still).collect()
}

/// If the changes of others are left alone: the differences that are still to be put back, and the paths that
/// are left alone.
pub fn leave_alone(all: &[Difference], others: &[Difference]) -> (Vec<Difference>, HashSet<Vec<u8>>) {
    let back = Back::new(all);
    let inodes: HashSet<_> = others.iter().map(|one| (one.inode, one.incarnation)).collect();
    let mut paths: HashSet<Vec<u8>> =
        others.iter().flat_map(|one| [Some(one.path.clone()), one.old_path.clone()]).flatten().collect();
    let mut is_left: Vec<bool> =
        all.iter().map(|one| inodes.contains(&(one.inode, one.incarnation))).collect();
    loop {
        // Past directories that are not put back: what was below them is left alone, too.
        let mut not_back: HashSet<Vec<u8>> = HashSet::new();
        // Present directories that are needed for what is left alone in them.
        let mut needed: HashSet<Vec<u8>> = HashSet::new();
        for (one, _) in all.iter().zip(&is_left).filter(|(_, left)| **left) {
            paths.insert(one.path.clone());
            let then = back.of(one);
            if one.kind == FileKind::Directory && matches!(one.change, Change::Removed | Change::Renamed) {
                not_back.extend(then.clone());
            }
            paths.extend(then);
            if one.change != Change::Removed {
                // Where it will be if the directory above goes back to its past name.
                paths.insert(back.then(&one.path));
                let (above, name) = split(&one.path);
                paths.insert(join(&back.then(above), name));
                needed.extend(ancestors(&one.path).skip(1).map(<[u8]>::to_vec));
            }
        }
        let mut changed = false;
        for (one, left) in all.iter().zip(&mut is_left).filter(|(_, left)| !**left) {
            let then = back.of(one);
            let is_of = |path: &Vec<u8>| paths.contains(path);
            let has_no_parent = then
                .as_ref()
                .is_some_and(|then| ancestors(then).skip(1).any(|above| not_back.contains(above)));
            let is_needed = one.change == Change::Added && needed.contains(&one.path);
            if is_of(&one.path) || then.as_ref().is_some_and(is_of) || has_no_parent || is_needed {
                *left = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let wanted = all.iter().zip(&is_left).filter(|(_, left)| !**left).map(|(one, _)| one.clone()).collect();
    let alone =
        all.iter().zip(&is_left).filter(|(_, left)| **left).map(|(one, _)| one.path.clone()).collect();
    (wanted, alone)
}

/// The reverse of a difference: what has to be done to get from now to then.
pub fn reversed(one: &Difference, back: &Back) -> Difference {
    let mut one = one.clone();
    std::mem::swap(&mut one.before, &mut one.after);
    match one.change {
        Change::Added => one.change = Change::Removed,
        Change::Removed => one.change = Change::Added,
        Change::Renamed => {
            if let Some(old) = one.old_path.take() {
                one.old_path = Some(std::mem::replace(&mut one.path, old));
            }
        }
        Change::Modified => one.path = back.then(&one.path),
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Facts, InodeNo, What};
    use yore_format::{Incarnation, Timestamp};

    fn one(change: Change, kind: FileKind, inode: u64, path: &str, old: Option<&str>) -> Difference {
        let mtime = Timestamp::default();
        let facts = Some(Facts { mode: kind.mode(), uid: 0, gid: 0, links: 1, size: 0, mtime });
        Difference {
            change,
            kind,
            inode: InodeNo(inode),
            incarnation: Incarnation(1),
            path: path.into(),
            old_path: old.map(|old| old.as_bytes().to_vec()),
            what: What::empty(),
            before: facts.filter(|_| change != Change::Added),
            after: facts.filter(|_| change != Change::Removed),
        }
    }

    /// A directory goes back to its old name together with what others have put into it since. If one of
    /// these then takes the path to which another file should go back, that file is left alone, too. Rolling
    /// back used to try to rename it to that path, and failed.
    #[test]
    fn what_goes_along_is_in_the_way() {
        let all = [
            one(Change::Renamed, FileKind::Directory, 20, "new", Some("old")),
            one(Change::Added, FileKind::Directory, 21, "new/j", None),
            one(Change::Renamed, FileKind::Regular, 22, "h", Some("old/j")),
            one(Change::Renamed, FileKind::Regular, 23, "i", Some("old/k")),
        ];
        let (wanted, alone) = leave_alone(&all, &all[1..2]);
        let inodes: Vec<u64> = wanted.iter().map(|one| one.inode.0).collect();
        assert_eq!(inodes, [20, 23]);
        assert_eq!(alone, HashSet::from([b"new/j".to_vec(), b"h".to_vec()]));
    }
}
