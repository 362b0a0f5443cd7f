//! A request that waits until something is durable: all that its answer needs.

use crate::errno::{errno, worth_logging};
use fuser::{ReplyEmpty, ReplyWrite};
use yore_fs::{InodeNo, Result};

/// The answer when all went well.
pub(super) enum Answer {
    Done(ReplyEmpty),
    /// So many bytes are written.
    Written(ReplyWrite, u32),
}

/// A request that waits.
pub(super) struct Waiting {
    pub(super) call: &'static str,
    pub(super) inode: InodeNo,
    pub(super) answer: Answer,
}

impl Waiting {
    pub(super) fn end(self, outcome: Result<()>) {
        let number = outcome.err().map(|error| {
            if worth_logging(&error) {
                tracing::error!(call = self.call, inode = self.inode.0, %error, "a request failed");
            }
            errno(&error)
        });
        match (self.answer, number) {
            (Answer::Done(reply), None) => reply.ok(),
            (Answer::Done(reply), Some(number)) => reply.error(number),
            (Answer::Written(reply, count), None) => reply.written(count),
            (Answer::Written(reply, _), Some(number)) => reply.error(number),
        }
    }
}
