//! Attributes that change without a request to change them: the time of access, and set-id bits that are
//! dropped.
//!
//! # Reads that the daemon does not see
//! The kernel serves reads from its cache and tells nobody, and pages that a program has written are in that
//! cache. So a file that is written and then read has a time of access before its change, as if nobody had
//! read it since. The kernel gives one sign. If a read reaches the end of the file and the kernel does not
//! believe its own size, it asks for the size, and that request carries the open file, which no `stat` does.
//! After each write it does not believe its size. So GETATTR with a handle is a read, and costs nothing that
//! was not sent before. (A seek to the end looks the same, and counts as a read.)
//!
//! A `stat` between the write and the read would hide the read: after it the kernel believes its size. So the
//! kernel may not believe the answer to a `stat` for any time, if the next read is to be noted and might be
//! served from the cache. That is so if the file has been read since it was created, or consists of whole
//! pages. Each further `stat` of such a file is then a round trip until somebody reads it. This does not
//! affect files just created, which a build or a checkout looks at again and again.
//!
//! The daemon misses reads of cached pages that stop before the end of the file, and stores and loads through
//! mappings.

use super::server::Server;
use crate::privilege;
use fuser::{INodeNo, OpenAccMode, OpenFlags, Request};
use std::time::Duration;
use yore_fs::{Attr, Error, FileKind, InodeFlags, InodeNo, View};

/// The unit of the kernel's cache.
const PAGE: u64 = 4096;

/// Whether an inode has a bit that may be dropped.
pub(super) fn has_set_id(view: &View, inode: InodeNo) -> bool {
    view.getattr(inode).is_ok_and(|attr| privilege::has_set_id(&attr))
}

/// Whether the next read is to be noted, and the kernel might serve it without a request.
fn read_may_hide(attr: &Attr) -> bool {
    let unread = attr.atime <= attr.mtime || attr.atime <= attr.ctime;
    let cached = attr.atime > attr.btime || (attr.size > 0 && attr.size.is_multiple_of(PAGE));
    let is_noted = attr.kind == FileKind::Regular && !attr.flags.contains(InodeFlags::NO_ACCESS_TIMES);
    is_noted && unread && cached
}

impl Server {
    /// An inode's attributes, and how long the kernel may believe them. `by_read`: the kernel asks because of
    /// a read.
    pub(super) fn attributes(
        &self,
        view: &View,
        inode: InodeNo,
        by_read: bool,
    ) -> yore_fs::Result<(Attr, Duration)> {
        if by_read {
            view.note_read(inode)?;
        }
        let attr = view.getattr(inode)?;
        let hides = view.notes_reads() && read_may_hide(&attr);
        Ok((attr, if hides { Duration::ZERO } else { self.config.timeout }))
    }

    /// Checks an open if the kernel asks before it opens: a file of the past may not be opened for writing; a
    /// protected file not either, or only for appending. If the kernel does not ask, the write fails instead.
    pub(super) fn check_open(&self, node: INodeNo, flags: OpenFlags) -> yore_fs::Result<()> {
        if flags.acc_mode() == OpenAccMode::O_RDONLY && flags.0 & libc::O_TRUNC == 0 {
            return Ok(());
        }
        let (view, inode) = self.seen(node)?;
        if view.event().is_some() {
            return Err(Error::ReadOnly);
        }
        let is = view.getattr(inode)?.flags;
        let appends = flags.0 & libc::O_APPEND != 0 && flags.0 & libc::O_TRUNC == 0;
        if is.contains(InodeFlags::IMMUTABLE) || (is.contains(InodeFlags::APPEND_ONLY) && !appends) {
            return Err(Error::NotPermitted { what: "it is immutable, or can only be appended to" });
        }
        Ok(())
    }

    /// See `privilege`: for requests that change content and cannot say whether to drop set-id bits.
    pub(super) fn drop_set_id_for(
        &self,
        request: &Request,
        view: &View,
        inode: InodeNo,
    ) -> yore_fs::Result<()> {
        if self.granted.kill_set_id
            && request.uid() != 0
            && privilege::drop_set_id(view, &self.caller(request, 0), inode)?
        {
            self.tell_attributes(inode);
        }
        Ok(())
    }

    /// Notifies the kernel that an inode's attributes have changed without a request to change them.
    pub(super) fn tell_attributes(&self, inode: InodeNo) {
        let Some(notices) = self.notices.get() else { return };
        if let Err(error) = notices.attributes_changed(inode) {
            tracing::error!(inode = inode.0, %error, "the kernel may still believe attributes that have changed");
        }
    }
}
