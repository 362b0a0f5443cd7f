//! After a rollback of a directory: notifies the kernel of what has changed behind its back, which no thread
//! that serves may do.

use crate::notices::Notices;
use yore_fs::rollback::Changed;

/// The kernel must forget everything that has changed. Nobody waits for the volume meanwhile, so this can
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
