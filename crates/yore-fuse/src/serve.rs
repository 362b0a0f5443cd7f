//! One method per request: it turns the arguments into a call of the view, and the outcome into a reply.
//!
//! The methods of a trait stand in one `impl`, so this file is long. What is more than a translation is in
//! the files of `serve/`.
//!
//! The thread that read a request answers it: a hand-over would cost as much as the round trip itself. Every
//! request is answered exactly once; fuser's reply types see to that.
//!
//! The kernel remembers some answers: ENOSYS means "never ask again on this connection" for open, opendir,
//! create, flush, access, lseek, fallocate and others. The daemon answers it on purpose for *opening*, unless
//! it has to see closes: the kernel then opens without asking, keeps the cached pages and listings, and
//! `create` becomes MKNOD. It must not answer it anywhere by accident: see `errno`. fuser itself answers
//! ENOSYS to requests that it does not know (TMPFILE, STATX, SYNCFS), and to INTERRUPT.
//!
//! The daemon never checks the caller's right to set-group-id bits: before it sends a request, the kernel
//! removes them from modes where they are not allowed. So callers `keep` them ([`Caller::keeps_set_id`]).

mod asked;
mod attributes;
mod background;
mod behalf;
mod flags;
mod flushers;
mod fsync;
mod gone;
mod listings;
mod nodes;
mod opened;
mod ranges;
mod refused;
mod rollback;
mod saves;
mod server;
mod snapshots;
mod syncs;
mod waiting;
mod writers;
mod writing;
mod xattrs;

use crate::convert::set_time;
use crate::errno::errno;
use crate::past::PastNodes;
use crate::snapdir;
use fuser::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use yore_fs::time::When;
use yore_fs::{Error, FileKind, RenameMode, Resolved, SetAttr, WriteMode};

use waiting::{Answer, Waiting};

pub(crate) use server::Server;

/// Handles of an open file that can only be read, and of one that can be written to.
const READS: FileHandle = FileHandle(0);
const WRITES: FileHandle = FileHandle(1);

thread_local! {
    /// The buffer for reads of this thread, as large as its largest read so far.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The view and the inode of a node; otherwise replies that the node is gone.
macro_rules! seen {
    ($server:ident, $node:expr, $reply:ident) => {
        match $server.seen($node) {
            Ok(seen) => seen,
            Err(error) => return $reply.error(errno(&error)),
        }
    };
    // For a change on behalf of this request's user.
    ($server:ident, $node:expr, $reply:ident, $request:ident) => {{
        let (view, inode) = seen!($server, $node, $reply);
        ($server.for_request(view, $request), inode)
    }};
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        self.granted = self.config.negotiate(kernel);
        tracing::debug!(granted = ?self.granted, abi = %kernel.kernel_abi(), "FUSE connection");
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _serving = self.serving();
        let name = name.as_bytes();
        if parent == snapdir::NODE {
            return self.lookup_snapshot(request, name, reply);
        }
        let (view, directory) = seen!(self, parent, reply);
        let literal = || match self.find(parent, &view, directory, name) {
            Err(Error::NotFound) if self.is_snapdir(parent, name) => Ok(None),
            found => found.map(Some),
        };
        let then = |of: &[u8], when: &When| self.lookup_when(request, &view, directory, of, when);
        match yore_fs::resolve_name(name, literal, then) {
            Ok(Resolved::Literal(None)) => self.snapdir_entry(reply),
            Ok(Resolved::Literal(Some(node))) if PastNodes::is_past(parent.0) => {
                self.past_lookup(request, (parent, directory), name, &node, reply)
            }
            Ok(Resolved::Literal(Some(node))) => self.entry("lookup", directory, Ok(node), reply),
            Ok(Resolved::AtTime(node)) => self.entry_at_time(parent, name, node.as_ref(), reply),
            // A moment later there may be something at that time.
            Ok(Resolved::NothingThen) => reply.error(Errno::ENOENT),
            Ok(Resolved::Nothing) => self.no_entry(reply),
            Err(error) => self.entry("lookup", directory, Err(error), reply),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        let _serving = self.serving();
        if PastNodes::is_past(node.0) {
            return self.past.forget_lookups(node.0, count);
        }
        // The kernel cannot forget the root: no counted lookup ever gave it out. Lookups of the directory of
        // snapshots are not counted either.
        if node != INodeNo::ROOT && node != snapdir::NODE {
            self.view.forget_lookups(self.inode(node), count);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let _serving = self.serving();
        if node == snapdir::NODE {
            return match self.snapdir_attr() {
                Ok(attr) => reply.attr(&Duration::ZERO, &attr),
                Err(error) => reply.error(self.number("getattr", self.root, error)),
            };
        }
        let (view, inode) = seen!(self, node, reply);
        match self.attributes(&view, inode, handle.is_some()) {
            Ok((attr, timeout)) => reply.attr(&timeout, &self.shown(node, &attr)),
            Err(error) => reply.error(self.number("getattr", inode, error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply, request);
        let set = SetAttr {
            permissions: mode.map(|m| m & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(|t| set_time(TimeOrNow::SpecificTime(t))),
            kill_set_id: size.is_some() && self.granted.kill_set_id && request.uid() != 0,
        };
        if size.is_some() {
            self.before_change(&view, inode, request.pid(), size == Some(0));
        }
        match view.setattr(&self.caller(request, 0), inode, &set) {
            Ok(attr) => {
                if size.is_some() {
                    self.saves.changed(inode, request.pid());
                }
                reply.attr(&self.config.timeout, &self.shown(node, &attr))
            }
            Err(error) => reply.error(self.number("setattr", inode, error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply);
        match view.readlink(inode) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.number("readlink", inode, error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _serving = self.serving();
        if let Some(refused) = self.taken(parent, name) {
            return reply.error(refused);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        let Some(kind) = FileKind::from_mode(if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode })
        else {
            return reply.error(Errno::EINVAL);
        };
        let caller = self.caller(request, umask);
        let made = view.create(&caller, directory, name.as_bytes(), kind, mode & 0o7777, rdev);
        if let Ok(made) = &made {
            self.saves.changed(made.inode(), request.pid());
        }
        self.entry("mknod", directory, made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _serving = self.serving();
        if let Some(refused) = self.taken(parent, name) {
            return reply.error(refused);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        let caller = self.caller(request, umask);
        let made = view.mkdir(&caller, directory, name.as_bytes(), mode & 0o7777);
        self.entry("mkdir", directory, made, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.serving();
        if self.is_snapdir_there(parent, name) {
            return reply.error(Errno::EROFS);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        if let Some(refused) = self.of_past("unlink", (&view, directory), name, Errno::EROFS) {
            return reply.error(refused);
        }
        self.done("unlink", directory, view.unlink(directory, name.as_bytes()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.serving();
        if self.is_snapdir_there(parent, name) {
            return reply.error(Errno::EROFS);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        if let Some(refused) = self.of_past("rmdir", (&view, directory), name, Errno::EROFS) {
            return reply.error(refused);
        }
        self.done("rmdir", directory, view.rmdir(directory, name.as_bytes()), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _serving = self.serving();
        if let Some(refused) = self.taken(parent, name) {
            return reply.error(refused);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        let caller = self.caller(request, 0);
        let made = view.symlink(&caller, directory, name.as_bytes(), target.as_os_str().as_bytes());
        self.entry("symlink", directory, made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _serving = self.serving();
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            // RENAME_WHITEOUT is for upper layers of overlayfs; all other flags are unknown.
            return reply.error(Errno::EINVAL);
        };
        if self.is_snapdir_there(parent, name) || self.is_snapdir_there(new_parent, new_name) {
            return reply.error(Errno::EROFS);
        }
        let (view, from) = seen!(self, parent, reply, request);
        let (other, to) = seen!(self, new_parent, reply);
        if view.event() != other.event() {
            return reply.error(Errno::EXDEV);
        }
        for (directory, name) in [(from, name), (to, new_name)] {
            if let Some(refused) = self.of_past("rename", (&view, directory), name, Errno::EXDEV) {
                return reply.error(refused);
            }
        }
        let outcome = view.rename(from, name.as_bytes(), to, new_name.as_bytes(), mode);
        self.done("rename", from, outcome, reply);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply, request);
        let (other, directory) = seen!(self, new_parent, reply);
        if view.event() != other.event() {
            return reply.error(Errno::EXDEV);
        }
        if let Some(refused) = self.taken(new_parent, new_name) {
            return reply.error(refused);
        }
        let linked = view.link(inode, directory, new_name.as_bytes());
        self.entry("link", inode, linked, reply);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.granted.no_open {
            return reply.error(Errno::ENOSYS);
        }
        if let Err(error) = self.check_open(node, flags) {
            return reply.error(self.number("open", self.inode(node), error));
        }
        match flags.acc_mode() {
            OpenAccMode::O_RDONLY => {
                reply.opened(READS, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            _ => {
                self.writers.enter(node);
                reply.opened(WRITES, FopenFlags::FOPEN_KEEP_CACHE)
            }
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        if self.granted.no_open {
            // The kernel goes on with MKNOD and an open without a request, so there is no RELEASE at the end.
            return reply.error(Errno::ENOSYS);
        }
        let _serving = self.serving();
        if let Some(refused) = self.taken(parent, name) {
            return reply.error(refused);
        }
        let (view, directory) = seen!(self, parent, reply, request);
        let caller = self.caller(request, umask);
        match view.create(&caller, directory, name.as_bytes(), FileKind::Regular, mode & 0o7777, 0) {
            Ok(node) => {
                let attr = node.into_counted();
                let generation = Generation(u64::from(attr.incarnation));
                let attr = self.entry_attr(&attr);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                self.writers.enter(attr.ino);
                reply.created(&self.config.timeout, &attr, generation, WRITES, flags);
            }
            Err(error) => reply.error(self.number("create", directory, error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply);
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match view.read(inode, offset, &mut buffer[..size]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(self.number("read", inode, error)),
            }
        })
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _serving = self.serving();
        let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let (view, inode) = match self.seen_to_write(request, node, cached) {
            Ok(seen) => seen,
            Err(error) => return reply.error(self.write_failed(node, cached, error)),
        };
        // The kernel chooses the offset of an O_APPEND write, under its lock of the inode: all writers wait
        // for that lock.
        let kill_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let falls = kill_set_id && attributes::has_set_id(&view, inode);
        self.before_change(&view, inode, request.pid(), false);
        let outcome = view.write(inode, offset, data, WriteMode { append: false, kill_set_id });
        if outcome.is_ok() {
            self.saves.changed(inode, request.pid());
        }
        if falls {
            self.tell_attributes(inode);
        }
        // O_SYNC is two bits, and O_DSYNC is one of them. The kernel sends a separate FSYNC after it writes
        // back cached pages.
        if outcome.is_ok() && !self.granted.syncs_after_write && !cached && flags.0 & libc::O_DSYNC != 0 {
            let data_only = flags.0 & libc::O_SYNC != libc::O_SYNC;
            let answer = Answer::Written(reply, data.len() as u32);
            return self.make_durable(&view, data_only, Waiting { call: "write", inode, answer });
        }
        match outcome {
            // A request's length is 32 bits.
            Ok(_) => reply.written(data.len() as u32),
            Err(error) => reply.error(self.write_failed(node, cached, error)),
        }
    }

    fn flush(&self, request: &Request, node: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        match self.config.close_events {
            true if handle != WRITES => reply.ok(),
            true => {
                // A program has closed the file: it may get a version.
                let _serving = self.serving();
                let (view, inode) = seen!(self, node, reply, request);
                // A shell that redirects to a file has truncated it to nothing, and closes a copy of the
                // descriptor before the program begins to write.
                let closed = match view.getattr(inode) {
                    Ok(attr) if attr.size == 0 => Ok(None),
                    _ => view.closed(inode),
                };
                self.done("close", inode, closed.map(|_| ()), reply)
            }
            false => reply.error(Errno::ENOSYS),
        }
    }

    /// The last user of an open file is gone, and so are its mappings, whose stores come after the last
    /// close.
    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if handle != WRITES {
            return reply.ok();
        }
        // This request comes some time after the close. Whatever others have begun to write meanwhile, they
        // will close themselves.
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply);
        let outcome =
            self.writers.leave(node, || self.for_kernel(view, inode).and_then(|view| view.closed(inode)));
        self.done("release", inode, outcome.unwrap_or(Ok(None)).map(|_| ()), reply)
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply);
        self.make_durable(&view, data_only, Waiting { call: "fsync", inode, answer: Answer::Done(reply) });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.granted.no_opendir {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        let _serving = self.serving();
        self.list(node, offset, reply)
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let _serving = self.serving();
        self.list_with_nodes(node, offset, reply)
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _serving = self.serving();
        if node == snapdir::NODE {
            return reply.ok();
        }
        let (view, inode) = seen!(self, node, reply);
        // sync(2) and syncfs(2) send nothing to a FUSE daemon, so `sync MOUNTPOINT`, which is an fsync of the
        // root directory, stands in for them: everything is durable when it returns.
        let waiting = Waiting { call: "fsyncdir", inode, answer: Answer::Done(reply) };
        match inode == view.root() {
            true => self.make_all_durable(&view, waiting),
            false => self.make_durable(&view, data_only, waiting),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let _serving = self.serving();
        let s = self.for_request(Cow::Borrowed(&self.view), request).statfs();
        reply.statfs(
            s.blocks,
            s.blocks_free,
            s.blocks_available,
            s.inodes,
            s.inodes_free,
            s.block_size,
            s.name_max,
            s.block_size,
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _serving = self.serving();
        self.set_xattr(request, node, (name, value), flags, reply)
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _serving = self.serving();
        self.get_xattr(node, name, size, reply)
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let _serving = self.serving();
        self.list_xattrs(request, node, size, reply)
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _serving = self.serving();
        let (view, inode) = seen!(self, node, reply, request);
        self.done("removexattr", inode, view.removexattr(inode, name.as_bytes()), reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel does not ask this under default_permissions. If it ever does, ENOSYS leaves the decision
        // to the kernel for good.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        number: u32,
        data: &[u8],
        size: u32,
        reply: ReplyIoctl,
    ) {
        let _serving = self.serving();
        if node == snapdir::NODE {
            return reply.error(Errno::ENOTTY);
        }
        let (view, inode) = seen!(self, node, reply);
        self.saves.settle();
        let view = self.for_request(view, request);
        if number == yore_control::OPCODE {
            return self.asked(request, (view.into_owned(), inode), data, reply);
        }
        if flags::is_ours(number) {
            return self.flags(request, (view.into_owned(), inode), (number, data, size), reply);
        }
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Files are always ready, and the kernel concludes that from ENOSYS.
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        // Blocks move at every write, so nobody may bypass the daemon.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _serving = self.serving();
        self.allocate(request, node, (offset, len), mode, reply)
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let _serving = self.serving();
        self.seek(node, offset, whence, reply)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _serving = self.serving();
        self.copy(request, (from, from_offset), (to, to_offset), len, reply)
    }
}
