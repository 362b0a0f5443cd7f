//! Requests that are answered by a thread of their own, because they wait for what other requests do: the threads that serve may all
//! come to wait for them.

use super::Server;
use crate::control::{self, Asker, Failure};
use crate::errno::{errno, worth_logging};
use crate::mapped::mapped_files;
use crate::notices::Notices;
use crate::past::PastNodes;
use crate::session::Shared;
use fuser::{ReplyIoctl, Request};
use std::sync::Arc;
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

/// Answers an ioctl.
pub(super) fn answer(inode: InodeNo, answer: Result<Vec<u8>, Failure>, reply: ReplyIoctl) {
    match answer {
        Ok(answer) => reply.ioctl(0, &answer),
        Err(Failure::Number(number)) => reply.error(number),
        Err(Failure::View(error)) => {
            if worth_logging(&error) {
                tracing::error!(call = "ioctl", inode = inode.0, %error, "a request failed");
            }
            reply.error(errno(&error))
        }
    }
}

/// Has the kernel write what programs have stored through mappings, and waits for that: the requests to write come before this returns.
pub(super) fn write_stores(shared: &Shared, notices: Option<&Notices>) {
    let Some(notices) = notices else { return };
    match mapped_files(shared.device()) {
        Ok(files) => {
            for file in files.into_iter().filter(|file| !PastNodes::is_past(*file)) {
                if let Err(error) = notices.inode_changed(InodeNo(file)) {
                    tracing::debug!(file, %error, "a notice was not taken");
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, "what is mapped is not known: stores may be missing in a snapshot")
        }
    }
}

impl Server {
    /// Takes a snapshot, with what was stored through mappings before.
    pub(super) fn take_snapshot(
        &self,
        request: &Request,
        (view, inode): (View, InodeNo),
        (number, data): (u32, &[u8]),
        reply: ReplyIoctl,
    ) {
        let (uid, thread, data, read_only) =
            (request.uid(), request.pid(), data.to_vec(), self.config.read_only);
        let (shared, notices) = (self.shared.clone(), self.notices.get().cloned());
        let (keeper, limits, access) =
            (self.keeper.clone(), self.config.limits, self.access_to_history(request));
        self.in_background("yore-snapshot", move || {
            let _watched = Watched(shared.clone());
            // Who may not is told so without anybody being disturbed.
            if !read_only && control::may_take(&view, inode, uid) {
                write_stores(&shared, notices.as_ref());
            }
            let asker = Asker { uid, access: &access, thread, read_only, keeper: &keeper, limits };
            answer(inode, control::answer(&view, inode, &asker, number, &data), reply);
        });
    }

    /// Does what no thread that serves may do. Without a thread there is nobody left to answer, and a request ends with EIO.
    pub(super) fn in_background(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            tracing::error!(%error, name, "cannot start a thread");
        }
    }
}
