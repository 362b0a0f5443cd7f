//! Finds operations that can be undone, and carries out new ones. An operation lies between two events whose
//! names say what it was ([`yore_fs::rollback`]).

use super::ground::Ground;
use crate::status;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use yore_fs::rollback::{name, next, next_number, operations, Operation, Verb};
use yore_fs::ListedEvent;

/// How many names to try if others are taken.
const TRIES: u64 = 10_000;

/// The nearest directory, from this one upwards, in which something can be undone, with its operations.
pub fn find(ground: &Ground, dir: &Path, redo: bool) -> anyhow::Result<Option<(PathBuf, Vec<Operation>)>> {
    let mut at = Some(dir.to_path_buf());
    while let Some(dir) = at {
        let events = ground.events(&dir)?;
        let found = operations(events.iter().filter(|listed| listed.own).map(|listed| &listed.event));
        if next(&found, redo).is_some() {
            return Ok(Some((dir, found)));
        }
        at = ground.above(&dir)?;
    }
    Ok(None)
}

/// Does some work that can be undone. The caller has already checked all that can be checked before.
pub fn run(
    ground: &Ground,
    dir: &Path,
    verb: Verb,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let events = ground.events(dir)?;
    let first = next_number(events.iter().map(|listed| &listed.event));
    let mut taken = None;
    for number in first..first + TRIES {
        let point = ground.undo_point(dir, &format!("before-{}", name(verb, number, None)), true)?;
        taken = point.map(|point| (number, point));
        if taken.is_some() {
            break;
        }
    }
    let (number, _stays) = taken.context(
        "all names for what can be undone are taken; forget some (`yore snapshots --all`, `yore forget`)",
    )?;
    let shown = ground.name(dir);
    work().with_context(|| {
        let begin = format!("before-{}", name(verb, number, None));
        // A full volume forgets the oldest snapshots, and in the end this one. If the volume cannot be asked,
        // nobody knows whether it still has this one.
        let is_there = |events: Vec<ListedEvent>| events.iter().any(|listed| listed.own && listed.event.row.name == begin);
        let back = match ground.events(dir).is_ok_and(is_there) {
            true => format!("Do it again to finish it, or go back with `yore rollback {shown}/.@{begin}`"),
            false => format!(
                "Do it again to finish it. There is no way back: the snapshot {begin} was forgotten to make room, or cannot be read"
            ),
        };
        format!("{} did not end; what was done so far stays. {back}", verb.text())
    })?;
    let end = format!("after-{}", name(verb, number, None));
    anyhow::ensure!(
        ground.undo_point(dir, &end, false)?.is_some(),
        "it is done, but cannot be undone by itself: another snapshot is named {end}"
    );
    status::tell(format_args!("undo: yore undo {shown}"));
    Ok(())
}
