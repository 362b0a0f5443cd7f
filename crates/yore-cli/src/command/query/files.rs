//! The comparison of two states of a file, which reads both.

use crate::content::{same_content, sorted_xattrs};
use crate::output::bytes_of;
use crate::side::{Facts, Side};
use anyhow::Context as _;
use std::path::Path;
use yore_fs::{Change, Difference, Incarnation, InodeNo, What};

/// How two files differ, if they do: two states of one file, or one file and another that took its name.
/// Set-id bits, which the past does not show, and access times do not count.
pub fn difference(side: &dyn Side, first: &Path, second: &Path) -> anyhow::Result<Option<Difference>> {
    let (was, is) = (facts(side, first)?, facts(side, second)?);
    anyhow::ensure!(
        was.kind == is.kind,
        "{} and {} are of different types; there is nothing to compare",
        side.name(first),
        side.name(second)
    );
    let what = what_differs(side, (first, &was), (second, &is))?;
    Ok((!what.is_empty()).then(|| Difference {
        change: Change::Modified,
        kind: is.kind,
        inode: InodeNo(is.identity.1),
        incarnation: Incarnation(0),
        path: bytes_of(second).to_vec(),
        old_path: None,
        what,
        before: Some(told(&was)),
        after: Some(told(&is)),
    }))
}

/// Which aspects differ between two states of a file, or between two files of one type.
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

fn facts(side: &dyn Side, path: &Path) -> anyhow::Result<Facts> {
    let found = side.facts(path)?;
    found.with_context(|| format!("cannot compare {}: no such file or directory", side.name(path)))
}

fn told(facts: &Facts) -> yore_fs::Facts {
    let Facts { kind, permissions, uid, gid, size, links, mtime, .. } = *facts;
    let links = u32::try_from(links).unwrap_or(u32::MAX);
    yore_fs::Facts { mode: kind.mode() | permissions, uid, gid, links, size, mtime }
}
