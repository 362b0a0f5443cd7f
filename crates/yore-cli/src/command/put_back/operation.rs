//! What can be undone: each operation is between two cuts of kind undo of its directory, whose names say what they are.
//!
//! `before-rollback-12` and `after-rollback-12` are a pair; `before-undo-13-of-12` began what undid it. All is in the names, so that nothing
//! has to be kept in step with the cuts: without the first one an operation cannot be undone and is passed over; without the second one
//! nobody knows what it did, as after a crash, and it counts as not ended. Numbers are the directory's own and ascend.

use super::ground::Ground;
use anyhow::Context as _;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use yore_fs::{Cut, CutKind, ListedCut};

/// Names tried if others have them.
const TRIES: u64 = 10_000;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Restore,
    Undelete,
    Rollback,
    Undo,
    Redo,
}

impl Verb {
    const ALL: [Verb; 5] = [Verb::Restore, Verb::Undelete, Verb::Rollback, Verb::Undo, Verb::Redo];

    /// As in names.
    pub fn text(self) -> &'static str {
        match self {
            Verb::Restore => "restore",
            Verb::Undelete => "undelete",
            Verb::Rollback => "rollback",
            Verb::Undo => "undo",
            Verb::Redo => "redo",
        }
    }
}

/// An operation on a directory, by its cuts that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub number: u64,
    pub verb: Verb,
    /// The one that it undid.
    pub of: Option<u64>,
    pub before: Option<Cut>,
    pub after: Option<Cut>,
}

impl Operation {
    /// As messages name it.
    pub fn name(&self) -> String {
        name(self.verb, self.number, self.of)
    }
}

fn name(verb: Verb, number: u64, of: Option<u64>) -> String {
    let of = of.map(|of| format!("-of-{of}")).unwrap_or_default();
    format!("{}-{number}{of}", verb.text())
}

/// Whether it is the end, what was done, the number, and the number of what was undone.
fn parse(name: &str) -> Option<(bool, Verb, u64, Option<u64>)> {
    let mut parts = name.split('-');
    let is_end = match parts.next()? {
        "before" => false,
        "after" => true,
        _ => return None,
    };
    let verb = parts.next()?;
    let verb = Verb::ALL.into_iter().find(|one| one.text() == verb)?;
    let number = parts.next()?.parse().ok()?;
    let of = match (parts.next(), parts.next(), parts.next()) {
        (None, None, None) => None,
        (Some("of"), Some(of), None) => Some(of.parse().ok()?),
        _ => return None,
    };
    Some((is_end, verb, number, of))
}

/// The operations on a directory, the first one first.
pub fn all(cuts: &[ListedCut]) -> Vec<Operation> {
    let mut found: BTreeMap<u64, Operation> = BTreeMap::new();
    for listed in cuts.iter().filter(|listed| listed.own && listed.cut.row.kind == CutKind::Undo) {
        let Some((is_end, verb, number, of)) = parse(&listed.cut.row.name) else { continue };
        let new = Operation { number, verb, of, before: None, after: None };
        let one = found.entry(number).or_insert(new);
        *if is_end { &mut one.after } else { &mut one.before } = Some(listed.cut.clone());
    }
    found.into_values().collect()
}

/// Which one is undone next, or with `redo`, which undo: of those in force the last one that can be. An operation is in force if
/// nothing in force has undone it; one that did not end has undone nothing.
pub fn next(all: &[Operation], redo: bool) -> Option<&Operation> {
    let mut undone = HashSet::new();
    for one in all.iter().rev() {
        if undone.contains(&one.number) {
            continue;
        }
        if let Some(of) = one.of {
            if one.after.is_none() {
                continue;
            }
            undone.insert(of);
        }
        match (redo, one.verb) {
            (true, Verb::Undo) if one.before.is_some() => return Some(one),
            (true, Verb::Redo) | (false, Verb::Undo) => {}
            (true, _) => return None,
            (false, _) if one.before.is_some() => return Some(one),
            (false, _) => {}
        }
    }
    None
}

/// The directory, or the nearest above, in which something can be undone, with its operations.
pub fn find(ground: &Ground, dir: &Path, redo: bool) -> anyhow::Result<Option<(PathBuf, Vec<Operation>)>> {
    let mut at = Some(dir.to_path_buf());
    while let Some(dir) = at {
        let found = all(&ground.cuts(&dir)?);
        if next(&found, redo).is_some() {
            return Ok(Some((dir, found)));
        }
        at = ground.above(&dir)?;
    }
    Ok(None)
}

/// Does something that can be undone. What can be known to fail should have failed before.
pub fn run(
    ground: &Ground,
    dir: &Path,
    (verb, of): (Verb, Option<u64>),
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cuts = ground.cuts(dir)?;
    let last =
        cuts.iter().filter_map(|listed| parse(&listed.cut.row.name)).map(|(_, _, number, _)| number).max();
    let first = last.unwrap_or(0) + 1;
    let mut taken = None;
    for number in first..first + TRIES {
        if ground.undo_point(dir, &format!("before-{}", name(verb, number, of)))?.is_some() {
            taken = Some(number);
            break;
        }
    }
    let number = taken.context(
        "all names for what can be undone are taken; forget some (`yore snapshots`, `yore forget`)",
    )?;
    let shown = ground.name(dir);
    let again = if verb == Verb::Undo { "redo" } else { "undo" };
    work().with_context(|| {
        let begin = format!("before-{}", name(verb, number, of));
        // A full volume forgets the oldest snapshots, and in the end this one. Who cannot be asked is not known to have it.
        let is_there = |cuts: Vec<ListedCut>| cuts.iter().any(|listed| listed.own && listed.cut.row.name == begin);
        let back = match ground.cuts(dir).is_ok_and(is_there) {
            true => format!("Do it again to finish it, or go back with `yore rollback {shown}/.@{begin}`"),
            false => format!(
                "Do it again to finish it. There is no way back: the snapshot {begin} was forgotten to make room, or cannot be read"
            ),
        };
        format!("{} did not end; what was done so far stays. {back}", verb.text())
    })?;
    let end = format!("after-{}", name(verb, number, of));
    anyhow::ensure!(
        ground.undo_point(dir, &end)?.is_some(),
        "it is done, but cannot be undone by itself: another snapshot is named {end}"
    );
    eprintln!("undo: yore {again} {shown}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::{CutRow, CutState, Incarnation, InodeNo, Number, Timestamp};

    fn cut() -> Option<Cut> {
        let row = CutRow {
            time: Timestamp { seconds: 0, nanos: 0 },
            kind: CutKind::Undo,
            state: CutState::Kept,
            held: false,
            root: InodeNo(1),
            root_incarnation: Incarnation(0),
            name: String::new(),
        };
        Some(Cut { number: Number(1), row })
    }

    fn one(number: u64, verb: Verb, of: Option<u64>) -> Operation {
        Operation { number, verb, of, before: cut(), after: cut() }
    }

    fn numbers(all: &[Operation]) -> [Option<u64>; 2] {
        [false, true].map(|redo| next(all, redo).map(|one| one.number))
    }

    #[test]
    fn names_return() {
        for verb in Verb::ALL {
            for of in [None, Some(3)] {
                assert_eq!(parse(&format!("before-{}", name(verb, 7, of))), Some((false, verb, 7, of)));
                assert_eq!(parse(&format!("after-{}", name(verb, 7, of))), Some((true, verb, 7, of)));
            }
        }
        for other in
            ["before-upgrade", "after-undo", "before-undo-x", "before-undo-1-of", "before-undo-1-of-2-3"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    /// Undo goes back step by step, redo forth, and something new ends what can be done again.
    #[test]
    fn which_is_next() {
        use Verb::{Redo, Restore, Rollback, Undo};
        let mut all = vec![one(1, Restore, None), one(2, Rollback, None)];
        assert_eq!(numbers(&all), [Some(2), None]);
        all.push(one(3, Undo, Some(2)));
        assert_eq!(numbers(&all), [Some(1), Some(3)]);
        all.push(one(4, Undo, Some(1)));
        assert_eq!(numbers(&all), [None, Some(4)]);
        all.push(one(5, Redo, Some(4)));
        assert_eq!(numbers(&all), [Some(5), Some(3)]);
        all.push(one(6, Undo, Some(5)));
        assert_eq!(numbers(&all), [None, Some(6)]);
        all.push(one(7, Restore, None));
        assert_eq!(numbers(&all), [Some(7), None]);
    }

    /// An undo that did not end has undone nothing; what has no beginning is passed over.
    #[test]
    fn halves() {
        use Verb::{Restore, Undo};
        let mut all = vec![one(1, Restore, None), one(2, Restore, None)];
        all.push(Operation { after: None, ..one(3, Undo, Some(2)) });
        assert_eq!(numbers(&all), [Some(2), None]);
        all[1].before = None;
        assert_eq!(numbers(&all), [Some(1), None]);
    }
}
