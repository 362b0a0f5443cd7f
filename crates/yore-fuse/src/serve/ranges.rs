//! Requests about ranges of a file: to allocate or empty one, to find data or a hole, to copy from another
//! file.

use super::server::Server;
use crate::errno::errno;
use fuser::{Errno, INodeNo, ReplyEmpty, ReplyLseek, ReplyWrite, Request};
use yore_fs::{FallocateMode, SeekTo};

/// Longest stretch that one copy_file_range request copies; callers go on with the rest. This bounds how long
/// a thread that serves is busy.
const COPY_MAX: u64 = 64 << 20;
/// The most bytes that an answer can tell, in whole blocks.
const REPLY_MAX: u64 = (u32::MAX - 4095) as u64;

fn fallocate_mode(mode: i32) -> Option<FallocateMode> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Some(FallocateMode::Allocate { keep_size }),
        // fallocate(2): a hole must not change the size.
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(FallocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Some(FallocateMode::ZeroRange { keep_size }),
        _ => None,
    }
}

impl Server {
    /// Does what fallocate(2) calls `mode` to a range.
    pub(super) fn allocate(
        &self,
        request: &Request,
        node: INodeNo,
        (offset, len): (u64, u64),
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (view, inode) = match self.seen(node) {
            Ok((view, inode)) => (self.for_request(view, request), inode),
            Err(error) => return reply.error(errno(&error)),
        };
        let Some(mode) = fallocate_mode(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        self.before_change(&view, inode, request.pid(), false);
        let outcome = view
            .fallocate(inode, offset, len, mode)
            .and_then(|()| self.drop_set_id_for(request, &view, inode));
        if outcome.is_ok() {
            self.saves.changed(inode, request.pid());
        }
        self.done("fallocate", inode, outcome, reply);
    }

    /// Finds data or a hole, as lseek(2).
    pub(super) fn seek(&self, node: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        let (view, inode) = match self.seen(node) {
            Ok(seen) => seen,
            Err(error) => return reply.error(errno(&error)),
        };
        let to = match whence {
            libc::SEEK_DATA => SeekTo::Data,
            libc::SEEK_HOLE => SeekTo::Hole,
            // The kernel handles the others itself.
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match view.seek(inode, offset, to).map(i64::try_from) {
            Ok(Ok(offset)) => reply.offset(offset),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(self.number("lseek", inode, error)),
        }
    }

    /// Copies from one file to another; each is given with the offset in it.
    pub(super) fn copy(
        &self,
        request: &Request,
        (from, from_offset): (INodeNo, u64),
        (to, to_offset): (INodeNo, u64),
        len: u64,
        reply: ReplyWrite,
    ) {
        let (other, from, view, to) = match (self.seen(from), self.seen(to)) {
            (Ok((other, from)), Ok((view, to))) => (other, from, self.for_request(view, request), to),
            (Err(error), _) | (_, Err(error)) => return reply.error(errno(&error)),
        };
        if view.event().is_some() {
            return reply.error(Errno::EROFS);
        }
        self.before_change(&view, to, request.pid(), false);
        let copied = view
            .copy_from(&other, (from, from_offset), (to, to_offset), (len.min(REPLY_MAX), COPY_MAX))
            .and_then(|count| self.drop_set_id_for(request, &view, to).map(|()| count));
        match copied {
            Ok(count) => {
                self.saves.changed(to, request.pid());
                reply.written(count as u32)
            }
            Err(error) => reply.error(self.number("copy_file_range", to, error)),
        }
    }
}
