//! What a write request needs beyond the call of the view: on whose behalf it is made, and what becomes of
//! pages that the view refuses.

use super::server::Server;
use crate::errno::{becomes_eio, worth_logging};
use fuser::{Errno, INodeNo, Request};
use std::borrow::Cow;
use yore_fs::{Error, InodeNo, View};

impl Server {
    /// The view for a write, and the inode there. `cached`: the kernel writes by itself.
    pub(super) fn seen_to_write(
        &self,
        request: &Request,
        node: INodeNo,
        cached: bool,
    ) -> yore_fs::Result<(Cow<'_, View>, InodeNo)> {
        let (view, inode) = self.seen(node)?;
        let view = match cached {
            true => self.for_kernel(view, inode)?,
            false => self.for_request(view, request),
        };
        Ok((view, inode))
    }

    /// The number for a write that failed. If the kernel has sent a page by itself, it keeps the page. So the
    /// kernel must drop it, unless there is no room for it, or the volume fails: then it may be the last copy
    /// of what the owner has stored.
    pub(super) fn write_failed(&self, node: INodeNo, cached: bool, error: Error) -> Errno {
        let inode = self.seen(node).map_or(InodeNo(node.0), |(_, inode)| inode);
        if cached && becomes_eio(&error) && !worth_logging(&error) {
            tracing::warn!(
                inode = inode.0,
                %error,
                "what a program stored through a mapping is lost; the next fsync or close of the file says EIO"
            );
            self.drop_refused_pages(node);
        }
        self.number("write", inode, error)
    }

    /// The kernel has pages of a node that the view has refused to take.
    fn drop_refused_pages(&self, node: INodeNo) {
        let Some(notices) = self.notices.get().cloned() else { return };
        if let Some(dropping) = self.refused.add(node) {
            self.in_background("yore-notices", move || dropping.run(&notices));
        }
    }
}
