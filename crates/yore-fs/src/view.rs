//! A view of the volume's tree: operations on inodes and names, one method per file-system call.

use crate::*;
use std::sync::Arc;
use yore_device::Device;

/// Opens and closes volumes; see `Volume` for paths. Cheap to clone; all methods take `&self` and may be called from
/// any number of threads.
#[derive(Clone)]
pub struct View {}

/// An inode in use. While a `Node` lives its inode stays, also without a name; dropping the last one of an unlinked
/// inode frees it.
pub struct Node {}

impl Node {
    /// Its number.
    pub fn inode(&self) -> InodeNo {
        todo!()
    }
    /// Its attributes when the node was obtained.
    pub fn attr(&self) -> &Attr {
        todo!()
    }
    /// Keeps the hold beyond this value's life, until [`View::release`]: what a FUSE "lookup count" is.
    pub fn into_held(self) -> Attr {
        todo!()
    }
}

#[allow(unused_variables)]
impl View {
    /// Makes a volume on `device`. Errors: `Refused` if one is there and not `force`, if the device is too small or read-only.
    pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<VolumeInfo> {
        todo!()
    }
    /// Opens the volume on `device`.
    pub fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<View> {
        todo!()
    }
    /// Writes everything, marks the volume clean, and stops. Called again or by the last drop: nothing more to do.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    pub fn read_only(&self) -> bool {
        todo!()
    }
    pub fn info(&self) -> VolumeInfo {
        todo!()
    }
    pub fn statfs(&self) -> Statfs {
        todo!()
    }
    /// All that was done before is on the medium when this returns.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// The root directory's number.
    pub fn root(&self) -> InodeNo {
        todo!()
    }

    /// The node for a number obtained earlier (NFS handle, held inode). `Stale` if gone, or incarnation differs when given.
    pub fn node(&self, inode: InodeNo, incarnation: Option<u32>) -> Result<Node> {
        todo!()
    }
    /// Gives back `count` holds taken by `into_held`.
    pub fn release(&self, inode: InodeNo, count: u64) {
        todo!()
    }

    pub fn lookup(&self, directory: InodeNo, name: &[u8]) -> Result<Node> {
        todo!()
    }
    pub fn getattr(&self, inode: InodeNo) -> Result<Attr> {
        todo!()
    }
    pub fn setattr(&self, caller: &Caller, inode: InodeNo, set: &SetAttr) -> Result<Attr> {
        todo!()
    }
    /// The directory's parent (`..`); the root's is itself.
    pub fn parent(&self, directory: InodeNo) -> Result<InodeNo> {
        todo!()
    }
    /// Calls `each` for the entries after `cookie` (0: from the start) until it returns false. `.` and `..` come first.
    pub fn readdir(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> Result<()> {
        todo!()
    }
    /// As `readdir`, with each entry's node (for `.` and `..`: none).
    pub fn readdir_plus(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirItem<'_>, Option<Node>) -> bool,
    ) -> Result<()> {
        todo!()
    }

    /// Creates a file of any kind but directory and symlink. `permissions` before umask and default ACL; `rdev` for devices.
    pub fn create(
        &self,
        caller: &Caller,
        directory: InodeNo,
        name: &[u8],
        kind: FileKind,
        permissions: u32,
        rdev: u32,
    ) -> Result<Node> {
        todo!()
    }
    pub fn mkdir(&self, caller: &Caller, directory: InodeNo, name: &[u8], permissions: u32) -> Result<Node> {
        todo!()
    }
    pub fn symlink(&self, caller: &Caller, directory: InodeNo, name: &[u8], target: &[u8]) -> Result<Node> {
        todo!()
    }
    pub fn readlink(&self, inode: InodeNo) -> Result<Vec<u8>> {
        todo!()
    }
    pub fn link(&self, inode: InodeNo, directory: InodeNo, name: &[u8]) -> Result<Node> {
        todo!()
    }
    pub fn unlink(&self, directory: InodeNo, name: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn rmdir(&self, directory: InodeNo, name: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn rename(
        &self,
        from: InodeNo,
        name: &[u8],
        to: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        todo!()
    }

    /// Fills `buf` from `offset`; fewer bytes only at the end of the file. Returns the count.
    pub fn read(&self, inode: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        todo!()
    }
    /// Writes all of `data`; returns the offset it went to.
    pub fn write(&self, inode: InodeNo, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
        todo!()
    }
    pub fn fallocate(&self, inode: InodeNo, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
        todo!()
    }
    pub fn seek(&self, inode: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        todo!()
    }
    /// Copies within the volume; returns the bytes copied (fewer at the source's end).
    pub fn copy_file_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        todo!()
    }
    /// Durable when it returns: content and, unless `data_only`, all attributes; and the name it was created under.
    pub fn fsync(&self, inode: InodeNo, data_only: bool) -> Result<()> {
        todo!()
    }

    pub fn getxattr(&self, inode: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }
    pub fn setxattr(&self, inode: InodeNo, name: &[u8], value: &[u8], mode: SetXattrMode) -> Result<()> {
        todo!()
    }
    pub fn listxattr(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        todo!()
    }
    pub fn removexattr(&self, inode: InodeNo, name: &[u8]) -> Result<()> {
        todo!()
    }
}
