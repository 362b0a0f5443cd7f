//! A FUSE file system in memory with nothing behind it: the **transport bound**.
//!
//! No file system that is served through the same connection can be faster than this one, so whatever a
//! mounted volume needs beyond it is the volume's own cost. It keeps just enough to run the workloads
//! truthfully: names, attributes and contents, in vectors and hash maps under one lock. It repeats none of
//! the kernel's checks, and nothing survives the process.

use fuser::*;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use yore_fuse::{no_attr, Granted, MountConfig};

struct MemoryInode {
    attr: FileAttr,
    content: Vec<u8>,
    /// Cookie and inode of each name.
    names: HashMap<Vec<u8>, (u64, u64)>,
    /// Names by cookie, for listings.
    order: BTreeMap<u64, Vec<u8>>,
    lookups: u64,
}

#[derive(Default)]
struct Tree {
    inodes: HashMap<u64, MemoryInode>,
    next_inode: u64,
    next_cookie: u64,
}

/// The file system; mount it with [`yore_fuse::mount_filesystem`].
pub struct MemoryFuse {
    tree: Mutex<Tree>,
    config: MountConfig,
    granted: Granted,
}

type Outcome<T> = Result<T, Errno>;

impl MemoryFuse {
    /// An empty one, whose root belongs to the superuser, served as `config` says.
    pub fn new(config: &MountConfig) -> MemoryFuse {
        let mut tree = Tree { next_inode: 1, next_cookie: 1, ..Tree::default() };
        tree.add(FileType::Directory, 0o755, (0, 0), 0);
        MemoryFuse { tree: Mutex::new(tree), config: config.clone(), granted: Granted::default() }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // A panic elsewhere leaves at worst a half-made file; the measurement is over anyway.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, made: Outcome<FileAttr>, reply: ReplyEntry) {
        match made {
            Ok(attr) => reply.entry(&self.config.timeout, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn attr(&self, outcome: Outcome<FileAttr>, reply: ReplyAttr) {
        match outcome {
            Ok(attr) => reply.attr(&self.config.timeout, &attr),
            Err(errno) => reply.error(errno),
        }
    }
}

fn done(outcome: Outcome<()>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Tree {
    fn add(&mut self, kind: FileType, permissions: u16, owner: (u32, u32), rdev: u32) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        let now = SystemTime::now();
        let attr = FileAttr {
            ino: INodeNo(number),
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: permissions,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            rdev,
            blksize: 4096,
            ..no_attr()
        };
        let inode = MemoryInode {
            attr,
            content: Vec::new(),
            names: HashMap::new(),
            order: BTreeMap::new(),
            lookups: 0,
        };
        self.inodes.insert(number, inode);
        number
    }

    fn inode(&mut self, number: u64) -> Outcome<&mut MemoryInode> {
        self.inodes.get_mut(&number).ok_or(Errno::ESTALE)
    }

    fn find(&mut self, directory: u64, name: &[u8]) -> Outcome<u64> {
        self.inode(directory)?.names.get(name).map(|(_, inode)| *inode).ok_or(Errno::ENOENT)
    }

    /// The names of a directory behind a cookie, more than fit into any one reply.
    fn names_behind(&mut self, directory: u64, cookie: u64) -> Outcome<Vec<(u64, Vec<u8>)>> {
        let behind = self.inode(directory)?.order.range(cookie + 1..).take(8192);
        Ok(behind.map(|(cookie, name)| (*cookie, name.clone())).collect())
    }

    fn put_name(&mut self, directory: u64, name: &[u8], inode: u64) -> Outcome<()> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let directory = self.inode(directory)?;
        directory.names.insert(name.to_vec(), (cookie, inode));
        directory.order.insert(cookie, name.to_vec());
        directory.attr.mtime = SystemTime::now();
        Ok(())
    }

    fn take_name(&mut self, directory: u64, name: &[u8]) -> Outcome<u64> {
        let directory = self.inode(directory)?;
        let (cookie, inode) = directory.names.remove(name).ok_or(Errno::ENOENT)?;
        directory.order.remove(&cookie);
        directory.attr.mtime = SystemTime::now();
        Ok(inode)
    }

    fn make(
        &mut self,
        request: &Request,
        directory: u64,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        rdev: u32,
    ) -> Outcome<FileAttr> {
        if self.inode(directory)?.names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let number = self.add(kind, permissions as u16, (request.uid(), request.gid()), rdev);
        self.put_name(directory, name, number)?;
        if kind == FileType::Directory {
            self.inode(directory)?.attr.nlink += 1;
        }
        let inode = self.inode(number)?;
        inode.lookups += 1;
        Ok(inode.attr)
    }

    fn drop_link(&mut self, number: u64) -> Outcome<()> {
        let inode = self.inode(number)?;
        inode.attr.nlink = inode.attr.nlink.saturating_sub(1);
        self.reap(number);
        Ok(())
    }

    fn reap(&mut self, number: u64) {
        if self.inodes.get(&number).is_some_and(|i| i.attr.nlink == 0 && i.lookups == 0) {
            self.inodes.remove(&number);
        }
    }

    fn remove_directory(&mut self, parent: u64, name: &[u8]) -> Outcome<()> {
        let number = self.find(parent, name)?;
        if !self.inode(number)?.names.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.take_name(parent, name)?;
        self.inode(parent)?.attr.nlink -= 1;
        self.inode(number)?.attr.nlink = 0;
        self.reap(number);
        Ok(())
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Outcome<()> {
        let moved = self.find(from.0, from.1)?;
        match self.find(to.0, to.1) {
            Ok(there) if there == moved => return Ok(()),
            Ok(there) if self.inode(there)?.attr.kind == FileType::Directory => {
                self.remove_directory(to.0, to.1)?;
            }
            Ok(_) => {
                let replaced = self.take_name(to.0, to.1)?;
                self.drop_link(replaced)?;
            }
            Err(_) => {}
        }
        self.take_name(from.0, from.1)?;
        self.put_name(to.0, to.1, moved)?;
        if self.inode(moved)?.attr.kind == FileType::Directory && from.0 != to.0 {
            self.inode(from.0)?.attr.nlink -= 1;
            self.inode(to.0)?.attr.nlink += 1;
        }
        Ok(())
    }

    fn resize(&mut self, number: u64, size: u64) -> Outcome<()> {
        let inode = self.inode(number)?;
        inode.content.resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
        inode.attr.size = size;
        inode.attr.blocks = size.div_ceil(512);
        Ok(())
    }
}

impl Filesystem for MemoryFuse {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> std::io::Result<()> {
        self.granted = self.config.negotiate(kernel);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut tree = self.tree();
        let found = tree.find(parent.0, name.as_bytes()).and_then(|number| {
            let inode = tree.inode(number)?;
            inode.lookups += 1;
            Ok(inode.attr)
        });
        drop(tree);
        match found {
            Err(errno) if errno == Errno::ENOENT && self.config.negative_timeout > Duration::ZERO => {
                reply.entry(&self.config.negative_timeout, &no_attr(), Generation(0));
            }
            found => self.entry(found, reply),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        let mut tree = self.tree();
        if let Ok(inode) = tree.inode(node.0) {
            inode.lookups = inode.lookups.saturating_sub(count);
            tree.reap(node.0);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attr = self.tree().inode(node.0).map(|i| i.attr);
        self.attr(attr, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let when = |t: TimeOrNow| match t {
            TimeOrNow::Now => SystemTime::now(),
            TimeOrNow::SpecificTime(t) => t,
        };
        let mut tree = self.tree();
        let set = size.map_or(Ok(()), |size| tree.resize(node.0, size));
        let attr = set.and_then(|()| tree.inode(node.0)).map(|inode| {
            let attr = &mut inode.attr;
            attr.perm = mode.map_or(attr.perm, |m| (m & 0o7777) as u16);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.atime = atime.map_or(attr.atime, when);
            attr.mtime = mtime.map_or(attr.mtime, when);
            attr.ctime = SystemTime::now();
            *attr
        });
        drop(tree);
        self.attr(attr, reply);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.tree().inode(node.0) {
            Ok(inode) => reply.data(&inode.content),
            Err(errno) => reply.error(errno),
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
        let kind = match mode & libc::S_IFMT {
            libc::S_IFIFO => FileType::NamedPipe,
            libc::S_IFCHR => FileType::CharDevice,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFSOCK => FileType::Socket,
            _ => FileType::RegularFile,
        };
        let permissions = mode & 0o7777 & !umask;
        let made = self.tree().make(request, parent.0, name.as_bytes(), kind, permissions, rdev);
        self.entry(made, reply);
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
        let permissions = mode & 0o7777 & !umask;
        let made = self.tree().make(request, parent.0, name.as_bytes(), FileType::Directory, permissions, 0);
        self.entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.tree();
        let outcome = tree.take_name(parent.0, name.as_bytes()).and_then(|number| tree.drop_link(number));
        drop(tree);
        done(outcome, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.tree().remove_directory(parent.0, name.as_bytes());
        done(outcome, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut tree = self.tree();
        let made =
            tree.make(request, parent.0, name.as_bytes(), FileType::Symlink, 0o777, 0).and_then(|attr| {
                let inode = tree.inode(attr.ino.0)?;
                inode.content = target.as_os_str().as_bytes().to_vec();
                inode.attr.size = inode.content.len() as u64;
                Ok(inode.attr)
            });
        drop(tree);
        self.entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let outcome = self.tree().rename((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        done(outcome, reply);
    }

    fn link(&self, _: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let mut tree = self.tree();
        let linked = tree.put_name(new_parent.0, new_name.as_bytes(), node.0).and_then(|()| {
            let inode = tree.inode(node.0)?;
            inode.attr.nlink += 1;
            inode.lookups += 1;
            Ok(inode.attr)
        });
        drop(tree);
        self.entry(linked, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.granted.no_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
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
            return reply.error(Errno::ENOSYS);
        }
        let permissions = mode & 0o7777 & !umask;
        let made =
            self.tree().make(request, parent.0, name.as_bytes(), FileType::RegularFile, permissions, 0);
        match made {
            Ok(attr) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&self.config.timeout, &attr, Generation(0), FileHandle(0), flags)
            }
            Err(errno) => reply.error(errno),
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
        match self.tree().inode(node.0) {
            Ok(inode) => {
                let len = inode.content.len();
                let start = usize::try_from(offset).unwrap_or(len).min(len);
                let end = start.saturating_add(size as usize).min(len);
                reply.data(&inode.content[start..end]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.tree();
        let end = offset.saturating_add(data.len() as u64);
        let outcome = match tree.inode(node.0).map(|i| i.attr.size) {
            Ok(size) if size < end => tree.resize(node.0, end),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        let outcome = outcome.and_then(|()| tree.inode(node.0)).map(|inode| {
            // Within memory's reach, or the resize would have failed.
            inode.content[offset as usize..end as usize].copy_from_slice(data);
            inode.attr.mtime = SystemTime::now();
        });
        drop(tree);
        match outcome {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut tree = self.tree();
        let names = match tree.names_behind(node.0, offset) {
            Ok(names) => names,
            Err(errno) => return reply.error(errno),
        };
        for (cookie, name) in names {
            let Ok(number) = tree.find(node.0, &name) else { continue };
            let Ok(kind) = tree.inode(number).map(|i| i.attr.kind) else { continue };
            if reply.add(INodeNo(number), cookie, kind, OsStr::from_bytes(&name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut tree = self.tree();
        let names = match tree.names_behind(node.0, offset) {
            Ok(names) => names,
            Err(errno) => return reply.error(errno),
        };
        for (cookie, name) in names {
            let Ok(number) = tree.find(node.0, &name) else { continue };
            let Ok(inode) = tree.inode(number) else { continue };
            let name = OsStr::from_bytes(&name);
            if reply.add(inode.attr.ino, cookie, name, &self.config.timeout, &inode.attr, Generation(0)) {
                break;
            }
            inode.lookups += 1;
        }
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let many = 1 << 24;
        reply.statfs(many, many, many, many, many, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }
}
