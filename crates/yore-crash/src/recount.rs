//! Puts right what a crash has left, while the volume is in use: afterwards nothing may be left of it.

use crate::op::{show_name, Name};
use crate::tree::Tree;
use crate::volume::Wrong;
use std::ops::ControlFlow;
use yore_fs::{FileKind, View};
use yore_online::OnlineOptions;

/// The directory that a recount or a repair makes for inodes without a name.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Puts right what a crash has left: the volume must say then that no leaks are pending.
pub(crate) fn recount(view: &View) -> Result<(), Wrong> {
    let wrong = |what: String| Wrong::new("recount", what);
    let once = || {
        let done = yore_online::recount(view, &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
        done.map_err(|error| wrong(error.to_string()))
    };
    once()?;
    if !view.leaks_pending() {
        return Ok(());
    }
    let left: Vec<String> = once()?.report.findings.iter().take(4).map(ToString::to_string).collect();
    Err(wrong(format!("leaks are still pending: {}", left.join("; "))))
}

/// What a recount has added to that directory are directories alone. `before`: what there was before it.
pub(crate) fn must_rescue_directories_alone(before: &Tree, now: &Tree) -> Result<(), Wrong> {
    let rescued = |tree: &Tree| {
        let found = tree.entries(tree.root).and_then(|entries| tree.entries(entries.get(LOST_AND_FOUND)?.0));
        found.cloned().unwrap_or_default()
    };
    let (before, now) = (rescued(before), rescued(now));
    let is_wrong = |(name, (_, kind)): &(&Name, &(u64, FileKind))| {
        *kind != FileKind::Directory && !before.contains_key(*name)
    };
    match now.iter().find(is_wrong) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Wrong::new("recount", format!("{} in lost+found is no directory", show_name(name))))
        }
    }
}
