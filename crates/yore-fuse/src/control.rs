//! What a mount can be asked for beside files, by ioctl(2) on any directory of it: who asks comes from the
//! kernel.
//!
//! Everything but looking at history is asked for in the protocol that [`yore_control`] describes, and
//! answered there; `serve/asked.rs` brings requests to it. What [`look`] answers is not yet part of it:
//! requests of their own numbers, whose buffers have a fixed layout. They are *restricted* ioctls, too: the
//! number says how many bytes go in and come back. One buffer holds first the request and then the answer.
//! All numbers in it are little-endian; bytes without a meaning are zero, and a request in which they are not
//! is EINVAL.
//!
//! Any other number, and these on what is no directory, are ENOTTY, as the kernel answers for file systems
//! that have none.

pub mod look;
mod record;

use fuser::Errno;
use record::{decode_record, encode_record};
use rustix::ioctl::{ioctl, Opcode, Updater};
use std::fs::File;
use std::io;
use yore_fs::{Incarnation, InodeNo, Timestamp, View};

fn call<const OPCODE: Opcode, const BYTES: usize>(dir: &File, buffer: &mut [u8; BYTES]) -> io::Result<()> {
    // SAFETY: this number has the size of the buffer in it. By the kernel's rules for such numbers whoever
    // knows it reads and writes no more, and any bytes are a valid buffer afterwards.
    unsafe { ioctl(dir, Updater::<OPCODE, [u8; BYTES]>::new(buffer)) }?;
    Ok(())
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the mount's answer is not understood; is its daemon of another version?",
    )
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request's own fault.
    EventNo(Errno),
    /// The view's.
    View(yore_fs::Error),
}

impl From<yore_fs::Error> for Failure {
    fn from(error: yore_fs::Error) -> Failure {
        Failure::View(error)
    }
}

#[cfg(test)]
impl Failure {
    /// As the caller is told it.
    fn errno(&self) -> Errno {
        match self {
            Failure::EventNo(number) => *number,
            Failure::View(error) => crate::errno::errno(error),
        }
    }
}

/// Whether a user may do what is anybody's: root and the daemon's user.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a user may take snapshots of a directory: root, the daemon's user, its owner. With an incarnation,
/// of that one only, and not of what is gone.
fn may_snapshot(
    view: &View,
    inode: InodeNo,
    incarnation: Option<Incarnation>,
    uid: u32,
) -> Result<bool, Failure> {
    if may_all(uid) {
        return Ok(true);
    }
    match view.getattr(inode) {
        Ok(attr) => Ok(attr.uid == uid && incarnation.is_none_or(|i| i.0 == attr.incarnation)),
        Err(yore_fs::Error::Stale) if incarnation.is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn put_time(bytes: &mut [u8], at: usize, time: Timestamp) {
    put(bytes, at, &time.seconds.to_le_bytes());
    put(bytes, at + 8, &time.nanos.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn time_at(bytes: &[u8], at: usize) -> Option<Timestamp> {
    let seconds = i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
    let nanos = u32_at(bytes, at + 8).filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Timestamp { seconds, nanos })
}
