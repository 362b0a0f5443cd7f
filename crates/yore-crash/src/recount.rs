//! Puts right what a crash has left, while the volume is in use: afterwards nothing may be left of it.

use crate::volume::Wrong;
use std::ops::ControlFlow;
use yore_fs::View;
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
