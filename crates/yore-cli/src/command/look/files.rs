//! Two states of a file, compared by reading them.

use super::print;
use crate::args;
use crate::command::Outcome;
use crate::output::bytes_of;
use crate::side::{same_content, sorted_xattrs, Facts, Side};
use anyhow::Context as _;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use yore_fs::{Change, Difference, FileKind, Incarnation, InodeNo, What};

/// Prints in what two files differ: two states of one, or one that took the other's name. Set-id bits, which the past does not show, and
/// times of access do not count.
pub fn diff(args: &args::Diff, side: &dyn Side, first: &Path, second: &Path) -> Outcome {
    let (was, is) = (facts(side, first)?, facts(side, second)?);
    anyhow::ensure!(
        was.kind == is.kind,
        "{} and {} are of different types; there is nothing to compare",
        side.name(first),
        side.name(second)
    );
    let what = what_differs(side, (first, &was), (second, &is))?;
    let found = Difference {
        change: Change::Modified,
        kind: is.kind,
        inode: InodeNo(is.identity.1),
        incarnation: Incarnation(0),
        path: bytes_of(second).to_vec(),
        old_path: None,
        what,
        before: Some(told(&was)),
        after: Some(told(&is)),
    };
    let found = if what.is_empty() { Vec::new() } else { vec![found] };
    print(args, &found, side, &|patch, difference| {
        patch.pair(
            difference.what,
            Some((bytes_of(first), first.to_path_buf(), was.size)),
            Some((bytes_of(second), second.to_path_buf(), is.size)),
        )
    })
}

/// What of a file differs between two states of it, or from another one of its type.
fn what_differs(
    side: &dyn Side,
    (first, was): (&Path, &Facts),
    (second, is): (&Path, &Facts),
) -> anyhow::Result<What> {
    let mut what = What::empty();
    what.set(What::CONTENT, was.size != is.size || !same_content(side, was.kind, first, second)?);
    let metadata = |facts: &Facts| (facts.permissions & 0o1777, facts.uid, facts.gid, facts.rdev);
    what.set(What::METADATA, metadata(was) != metadata(is));
    what.set(What::XATTRS, sorted_xattrs(side, first)? != sorted_xattrs(side, second)?);
    what.set(What::TIME, was.mtime != is.mtime);
    Ok(what)
}

/// Makes one difference, or none, of a file that is gone and another one that has its name now: so programs save, and so is restored.
/// What differs between the two is read. Where that is not allowed they stay what the history says, one gone and one new.
pub fn join_replaced(
    found: Vec<Difference>,
    side: &dyn Side,
    from: &Path,
    to: &Path,
) -> anyhow::Result<Vec<Difference>> {
    let has_content = |one: &Difference| matches!(one.kind, FileKind::Regular | FileKind::Symlink);
    let gone = found.iter().filter(|one| one.change == Change::Removed && has_content(one));
    let gone: HashMap<&[u8], &Difference> = gone.map(|one| (&one.path[..], one)).collect();
    let mut joined = HashMap::new();
    for new in found.iter().filter(|one| one.change == Change::Added) {
        let Some(old) = gone.get(&new.path[..]).filter(|old| old.kind == new.kind) else { continue };
        let path = OsStr::from_bytes(&new.path);
        let (first, second) = (from.join(path), to.join(path));
        // Nothing, or of another type: it was changed meanwhile.
        let (Some(was), Some(is)) = (side.facts(&first)?, side.facts(&second)?) else { continue };
        if (was.kind, is.kind) != (old.kind, new.kind) {
            continue;
        }
        let what = match what_differs(side, (&first, &was), (&second, &is)) {
            Err(error) if is_denied(&error) => continue,
            what => what?,
        };
        let one = Difference { change: Change::Modified, what, before: old.before, ..new.clone() };
        joined.insert(new.path.clone(), (!what.is_empty()).then_some(one));
    }
    let of = |one: Difference| match (one.change, joined.get_mut(&one.path)) {
        (Change::Added, Some(joined)) => joined.take(),
        (Change::Removed, Some(_)) => None,
        _ => Some(one),
    };
    Ok(found.into_iter().filter_map(of).collect())
}

fn is_denied(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn facts(side: &dyn Side, path: &Path) -> anyhow::Result<Facts> {
    let found = side.facts(path)?;
    found.with_context(|| format!("cannot compare {}: no such file or directory", side.name(path)))
}

fn told(facts: &Facts) -> yore_fs::Facts {
    let Facts { kind, permissions, uid, gid, size, links, mtime, .. } = *facts;
    let links = u32::try_from(links).unwrap_or(u32::MAX);
    yore_fs::Facts { mode: kind.mode() | permissions, uid, gid, links, size, mtime }
}
