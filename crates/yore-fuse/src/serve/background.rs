//! Requests that wait for the effect of other requests. A thread of its own answers each of them, because
//! otherwise all threads that serve might end up waiting.

use super::server::Server;
use crate::errno::{errno, worth_logging};
pub(super) use crate::stores::write_stores;
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

impl Server {
    /// Does work that no thread that serves may do. If no thread can be started, nobody is left to answer,
    /// and the request ends with EIO.
    pub(super) fn in_background(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            tracing::error!(%error, name, "cannot start a thread");
        }
    }
}
