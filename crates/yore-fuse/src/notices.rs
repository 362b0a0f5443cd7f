//! Notifies the kernel that something changed behind its back.
//!
//! The kernel believes names and attributes for hours, so whatever changes the volume without a request must
//! say so here: a restore, a switch of branch, a name of the past whose meaning moves on. A thread must never
//! do this while it serves a request: the kernel may hold the directory's lock until the request is answered,
//! and the notice waits for that lock. The threads that serve are marked, and a notice from one is refused
//! instead of hanging. A notice of attributes alone waits for nothing.

use crate::convert::node_of;
use crate::NoticeError;
use fuser::{INodeNo, Notifier};
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use yore_fs::InodeNo;

thread_local! {
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Marks or unmarks this thread as one that is serving a request.
pub(crate) fn set_serving(serving: bool) {
    SERVING.with(|s| s.set(serving));
}

/// Sends notices of changes to the kernel. Cheap to clone, for any thread except those that serve requests.
/// It is no error if the kernel does not remember what a notice names.
#[derive(Clone, Debug)]
pub struct Notices {
    notifier: Notifier,
    root: InodeNo,
}

impl Notices {
    pub(crate) fn new(notifier: Notifier, root: InodeNo) -> Notices {
        Notices { notifier, root }
    }

    /// The inode's attributes and all its cached content are no longer true.
    pub fn inode_changed(&self, inode: InodeNo) -> Result<(), NoticeError> {
        self.node_changed(node_of(inode, self.root))
    }

    /// The inode's attributes are no longer true; its content is. This is the only notice that may be sent
    /// while a request is served: the kernel marks the attributes and waits for no lock.
    pub(crate) fn attributes_changed(&self, inode: InodeNo) -> Result<(), NoticeError> {
        let node = node_of(inode, self.root);
        // A negative offset means: no content.
        self.notifier.inval_inode(node, -1, 0).map_err(|source| NoticeError::Refused { source })
    }

    /// As [`Notices::inode_changed`], for a node of any time.
    pub(crate) fn node_changed(&self, node: INodeNo) -> Result<(), NoticeError> {
        self.send(|| self.notifier.inval_inode(node, 0, 0))
    }

    /// The meaning of `name` in `directory` has changed. This also covers names that did not exist.
    pub fn entry_changed(&self, directory: InodeNo, name: &[u8]) -> Result<(), NoticeError> {
        let node = node_of(directory, self.root);
        self.send(|| self.notifier.inval_entry(node, OsStr::from_bytes(name)))
    }

    fn send(&self, notice: impl FnOnce() -> std::io::Result<()>) -> Result<(), NoticeError> {
        if SERVING.with(Cell::get) {
            return Err(NoticeError::WhileServing);
        }
        notice().map_err(|source| NoticeError::Refused { source })
    }
}
