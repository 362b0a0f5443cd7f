//! Has the kernel write what programs have stored through mappings.

use crate::connection::Shared;
use crate::mapped::mapped_files;
use crate::notices::Notices;
use crate::past::PastNodes;
use yore_fs::InodeNo;

/// Has the kernel write what programs have stored through mappings, and waits for that: the write requests
/// arrive before this returns. A thread that serves must not call this.
pub(crate) fn write_stores(shared: &Shared, notices: Option<&Notices>) {
    let Some(notices) = notices else { return };
    let found = match mapped_files(shared.device()) {
        Ok(found) => found,
        Err(error) => {
            return tracing::warn!(
                %error,
                "what is mapped is not known: what programs stored through mappings just before may be missing"
            )
        }
    };
    if !found.unread.is_empty() {
        tracing::warn!(
            processes = ?found.unread,
            "these processes do not tell what they have mapped: what they stored through mappings just before may be missing"
        );
    }
    for file in found.files.into_iter().filter(|file| !PastNodes::is_past(*file)) {
        if let Err(error) = notices.inode_changed(InodeNo(file)) {
            tracing::debug!(file, %error, "a notice was not taken");
        }
    }
}
