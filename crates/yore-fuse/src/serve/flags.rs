//! The flags of files that `chattr` sets and `lsattr` shows. The kernel passes on both kinds of its requests:
//! FS_IOC_GETFLAGS and FS_IOC_SETFLAGS with 32 bits, FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR with a
//! `struct fsxattr`.
//!
//! Since Linux 5.13 the kernel checks who may set which flag. Older kernels pass on every request, so the
//! daemon checks too. The kernel does not know what the flags forbid: the view refuses. The kernel does hold
//! the file's pages, and some of them may have been stored to through mappings and not written yet. They are
//! written before a file becomes immutable. Later stores are refused when the kernel writes them, and dropped
//! ([`super::refused`]).

use super::background::answer;
use super::server::Server;
use crate::connection::Watched;
use crate::errno::errno;
use fuser::{Errno, ReplyIoctl, Request};
use rustix::ioctl::{opcode, Opcode};
use yore_fs::{Attr, Error, FileKind, InodeFlags, InodeNo, View};

/// Bytes of a `struct fsxattr`.
const FSX_BYTES: usize = 28;

const GET: Opcode = opcode::read::<libc::c_long>(b'f', 1);
const SET: Opcode = opcode::write::<libc::c_long>(b'f', 2);
const GET_FSX: Opcode = opcode::read::<[u8; FSX_BYTES]>(b'X', 31);
const SET_FSX: Opcode = opcode::write::<[u8; FSX_BYTES]>(b'X', 32);

/// Each flag, with its bit in the first kind of requests and in the second.
const FLAGS: [(InodeFlags, u32, u32); 4] = [
    (InodeFlags::IMMUTABLE, 0x10, 0x08),
    (InodeFlags::APPEND_ONLY, 0x20, 0x10),
    (InodeFlags::NO_DUMP, 0x40, 0x80),
    (InodeFlags::NO_ACCESS_TIMES, 0x80, 0x40),
];

/// Whether a request is one of these.
pub(super) fn is_ours(number: u32) -> bool {
    [GET, SET, GET_FSX, SET_FSX].contains(&number)
}

fn told(flags: InodeFlags, fsx: bool) -> u32 {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag));
    set.fold(0, |bits, (_, first, second)| bits | if fsx { *second } else { *first })
}

/// The flags in `bits`; `None` if there are unknown ones among them.
fn understood(bits: u32, fsx: bool) -> Option<InodeFlags> {
    let all = FLAGS.iter().filter(|(_, first, second)| bits & if fsx { *second } else { *first } != 0);
    let flags = all.fold(InodeFlags::empty(), |flags, (flag, ..)| flags | *flag);
    (told(flags, fsx) == bits).then_some(flags)
}

/// The flags that a request wants to set.
fn asked(fsx: bool, data: &[u8]) -> Result<InodeFlags, Errno> {
    let bits = data.first_chunk().map(|bits| u32::from_le_bytes(*bits)).ok_or(Errno::EINVAL)?;
    // Sizes of extents and projects, neither of which exist here.
    if fsx && data.iter().skip(4).any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    understood(bits, fsx).ok_or(Errno::EOPNOTSUPP)
}

/// The answer, as long as the request wants it.
fn encode(flags: InodeFlags, fsx: bool, size: u32) -> Vec<u8> {
    let mut bytes = told(flags, fsx).to_le_bytes().to_vec();
    bytes.resize((size as usize).min(FSX_BYTES), 0);
    bytes
}

fn check_caller(uid: u32, attr: &Attr, wanted: InodeFlags) -> Result<(), Errno> {
    let protects = (attr.flags ^ wanted).intersects(InodeFlags::PROTECTED);
    match uid == 0 || (uid == attr.uid && !protects) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

impl Server {
    /// Answers a request about flags.
    pub(super) fn flags(
        &self,
        request: &Request,
        (view, inode): (View, InodeNo),
        (number, data, size): (u32, &[u8], u32),
        reply: ReplyIoctl,
    ) {
        let attr = match view.getattr(inode) {
            Ok(attr) if matches!(attr.kind, FileKind::Regular | FileKind::Directory) => attr,
            Ok(_) => return reply.error(Errno::ENOTTY),
            Err(error) => return reply.error(self.number("ioctl", inode, error)),
        };
        let fsx = matches!(number, GET_FSX | SET_FSX);
        if matches!(number, GET | GET_FSX) {
            return reply.ioctl(0, &encode(attr.flags, fsx, size));
        }
        let wanted = match asked(fsx, data).and_then(|flags| {
            check_caller(request.uid(), &attr, flags)?;
            Ok(flags)
        }) {
            Ok(flags) => flags,
            Err(number) => return reply.error(number),
        };
        if self.config.read_only {
            return reply.error(errno(&Error::ReadOnly));
        }
        let protects = (wanted - attr.flags).intersects(InodeFlags::PROTECTED);
        if protects && attr.kind == FileKind::Regular && view.event().is_none() {
            return self.protect(view, inode, wanted, reply);
        }
        answer(inode, self.set_flags(&view, inode, wanted), reply);
    }

    fn set_flags(&self, view: &View, inode: InodeNo, flags: InodeFlags) -> yore_fs::Result<()> {
        view.set_flags(inode, flags)?;
        self.tell_attributes(inode);
        Ok(())
    }

    /// Sets flags that protect a file, after everything that the kernel has of it is written. This runs in a
    /// thread of its own, because it may have to wait for threads that serve.
    fn protect(&self, view: View, inode: InodeNo, flags: InodeFlags, reply: ReplyIoctl) {
        let (shared, notices) = (self.shared.clone(), self.notices.get().cloned());
        let work = move || {
            let _watched = Watched(shared);
            if let Some(Err(error)) = notices.map(|notices| notices.inode_changed(inode)) {
                tracing::debug!(inode = inode.0, %error, "a notice was not taken");
            }
            answer(inode, view.set_flags(inode, flags), reply);
        };
        self.in_background("yore-flags", work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags are those of <linux/fs.h>. Others are refused, and so are projects and sizes of extents.
    #[test]
    fn flags_and_bits() {
        for fsx in [false, true] {
            for flags in (0..16u32).map(|n| InodeFlags::from_bits_truncate(n << 3)) {
                assert_eq!(understood(told(flags, fsx), fsx), Some(flags));
                let bytes = encode(flags, fsx, if fsx { 28 } else { 4 });
                assert_eq!(asked(fsx, &bytes), Ok(flags));
            }
        }
        assert_eq!(told(InodeFlags::IMMUTABLE | InodeFlags::NO_DUMP, false), 0x50);
        assert_eq!(told(InodeFlags::APPEND_ONLY | InodeFlags::NO_ACCESS_TIMES, true), 0x50);
        assert_eq!(understood(0x8_0000, false), None);
        assert!(asked(true, &[&[0; 12][..], &[1], &[0; 15]].concat()).is_err());
        assert!(asked(false, &[0; 3]).is_err());
        assert_eq!(encode(InodeFlags::IMMUTABLE, false, 8), [0x10, 0, 0, 0, 0, 0, 0, 0]);
    }
}
