//! A directory became what it was: the kernel is told afterwards what has changed behind its back, which no
//! thread that serves may do.

use crate::notices::Notices;
use yore_fs::rollback::Changed;

/// The kernel believes nothing any more of what has changed. Nobody waits for the volume meanwhile, so it can
/// wait for locks that requests hold.
pub(super) fn tell(notices: Option<&Notices>, changed: &Changed) {
    let Some(notices) = notices else { return };
    for (directory, name) in &changed.names {
        if let Err(error) = notices.entry_changed(*directory, name) {
            tracing::debug!(directory = directory.0, %error, "a notice was not taken");
        }
    }
    for inode in &changed.inodes {
        if let Err(error) = notices.inode_changed(*inode) {
            tracing::debug!(inode = inode.0, %error, "a notice was not taken");
        }
    }
}
