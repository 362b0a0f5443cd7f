//! A directory becomes what it was: in a thread of its own, for the threads that serve may all come to wait for it, and the kernel is told
//! afterwards what has changed behind its back, which no thread that serves may do.

use super::background::{answer, write_stores, Watched};
use super::Server;
use crate::control::{self, rollback};
use crate::notices::Notices;
use crate::privilege::groups_of;
use fuser::{ReplyIoctl, Request};
use yore_fs::rollback::Changed;
use yore_fs::{InodeNo, View};

/// The kernel believes nothing any more of what has changed. Nobody waits for the volume meanwhile, so it can wait for locks that
/// requests hold.
fn tell(notices: Option<&Notices>, changed: &Changed) {
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

impl Server {
    /// Does it, and answers when it is done.
    pub(super) fn roll_back(
        &self,
        request: &Request,
        (view, inode): (View, InodeNo),
        data: &[u8],
        reply: ReplyIoctl,
    ) {
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let user = control::user(uid, self.config.limits);
        let mut groups = groups_of(pid);
        groups.push(gid);
        let access = self.access_to_history(request);
        let (data, read_only) = (data.to_vec(), self.config.read_only);
        let (shared, notices) = (self.shared.clone(), self.notices.get().cloned());
        self.in_background("yore-rollback", move || {
            let _watched = Watched(shared.clone());
            if !read_only && control::may_take(&view, inode, uid) {
                write_stores(&shared, notices.as_ref());
            }
            let mut changed = |changed: Changed| tell(notices.as_ref(), &changed);
            let caller = (&user, &groups[..], &access);
            let answered = rollback::answer(&view, inode, caller, read_only, &data, &mut changed);
            answer(inode, answered, reply);
        });
    }
}
