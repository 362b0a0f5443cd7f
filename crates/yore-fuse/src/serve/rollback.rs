//! A directory becomes what it was: in a thread of its own, for the threads that serve may all come to wait for it, and the kernel is told
//! afterwards what has changed behind its back, which no thread that serves may do.

use super::Server;
use crate::control::{rollback, Failure};
use crate::errno::{errno, worth_logging};
use crate::notices::Notices;
use crate::privilege::groups_of;
use crate::session::Shared;
use fuser::{ReplyIoctl, Request};
use std::sync::Arc;
use yore_fs::rollback::Changed;
use yore_fs::{InodeNo, View};

/// A contradiction in memory ends all sessions, wherever it is found.
pub(super) struct Watched(pub(super) Arc<Shared>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panic();
        }
    }
}

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
        let mut groups = groups_of(pid);
        groups.push(gid);
        let access = self.access_to_history(request);
        let (data, read_only) = (data.to_vec(), self.config.read_only);
        let (shared, notices) = (self.shared.clone(), self.notices.get().cloned());
        let work = move || {
            let _watched = Watched(shared);
            let mut changed = |changed: Changed| tell(notices.as_ref(), &changed);
            let caller = (uid, &groups[..], &access);
            match rollback::answer(&view, inode, caller, read_only, &data, &mut changed) {
                Ok(answer) => reply.ioctl(0, &answer),
                Err(Failure::Number(number)) => reply.error(number),
                Err(Failure::View(error)) => {
                    if worth_logging(&error) {
                        tracing::error!(call = "ioctl", inode = inode.0, %error, "a request failed");
                    }
                    reply.error(errno(&error))
                }
            }
        };
        // Without a thread there is nobody left to answer, and the request ends with EIO.
        if let Err(error) = std::thread::Builder::new().name("yore-rollback".into()).spawn(work) {
            tracing::error!(%error, "cannot start a thread to roll back");
        }
    }
}
