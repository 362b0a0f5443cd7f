//! Notifies the kernel when the history of files is given up. The kernel believes attributes, content and
//! listings of the past for hours, because nothing there changes; this is the one exception.

use crate::notices::Notices;
use crate::past::PastNodes;
use fuser::INodeNo;
use std::collections::HashSet;
use yore_fs::{EventNo, InodeNo, Remembered};

/// Nothing of these files can be seen any more as of these events, which ascend. Returns at once: a thread
/// must not wait for notices while it serves a request. The kernel asks anew for each name that leads to a
/// node of which it knows nothing.
pub(super) fn tell_gone(
    notices: Option<&Notices>,
    past: &PastNodes,
    files: &[Remembered],
    events: &[EventNo],
) {
    let Some(notices) = notices.cloned() else { return };
    let files: HashSet<InodeNo> = files.iter().map(|file| file.inode).collect();
    let nodes = past.showing(&files, events);
    let tell = move || {
        for node in nodes {
            if let Err(error) = notices.node_changed(INodeNo(node)) {
                tracing::debug!(node, %error, "a notice was not taken");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("yore-notices".into()).spawn(tell) {
        tracing::warn!(%error, "the kernel may show for a while what is gone");
    }
}
