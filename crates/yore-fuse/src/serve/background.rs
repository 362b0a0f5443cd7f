//! Requests that wait for the effect of other requests. A thread of its own answers each of them, because
//! otherwise all threads that serve might end up waiting.

use super::server::Server;
use crate::connection::Shared;
use crate::errno::{errno, worth_logging};
use crate::mapped::mapped_files;
use crate::notices::Notices;
use crate::past::PastNodes;
use fuser::ReplyIoctl;
use yore_fs::{InodeNo, Result};

/// Answers an ioctl that gives nothing back.
pub(super) fn answer(inode: InodeNo, outcome: Result<()>, reply: ReplyIoctl) {
    match outcome {
        Ok(()) => reply.ioctl(0, &[]),
        Err(error) => {
            if worth_logging(&error) {
                tracing::error!(call = "ioctl", inode = inode.0, %error, "a request failed");
            }
            reply.error(errno(&error))
        }
    }
}

/// Has the kernel write what programs have stored through mappings, and waits for that: the write requests
/// arrive before this returns.
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
    /// Does work that no thread that serves may do. If no thread can be started, nobody is left to answer,
    /// and the request ends with EIO.
    pub(super) fn in_background(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            tracing::error!(%error, name, "cannot start a thread");
        }
    }
}
