//! Requests to a mount that do not concern the content of files. They arrive by ioctl(2) on any directory of
//! it; the kernel says who asks.
//!
//! All requests except those that look at history use the protocol that [`yore_control`] describes, which
//! also answers them; `serve/asked.rs` brings requests to it. The requests that [`look`] answers are not yet
//! part of that protocol: they have numbers of their own, and buffers with a fixed layout. They are
//! *restricted* ioctls too: the number says how many bytes go in and come back. One buffer holds first the
//! request and then the answer. All numbers in it are little-endian. Bytes without a meaning are zero, and a
//! request in which they are not is EINVAL.
//!
//! Any other number is ENOTTY, and so are these numbers on anything but a directory. The kernel answers the
//! same for file systems that have no ioctls.

pub mod look;
mod record;

use fuser::Errno;
use record::{decode_record, encode_record};
use rustix::ioctl::{ioctl, Opcode, Updater};
use std::fs::File;
use std::io;
use yore_fs::{Incarnation, InodeNo, Timestamp, View};

fn call<const OPCODE: Opcode, const BYTES: usize>(dir: &File, buffer: &mut [u8; BYTES]) -> io::Result<()> {
    // SAFETY: this number includes the size of the buffer. By the kernel's rules for such numbers, whoever
    // answers it reads and writes no more than that, and any bytes are a valid buffer afterwards.
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
    /// The request itself is wrong.
    EventNo(Errno),
    /// The view failed.
    View(yore_fs::Error),
}

impl From<yore_fs::Error> for Failure {
    fn from(error: yore_fs::Error) -> Failure {
        Failure::View(error)
    }
}

#[cfg(test)]
impl Failure {
    /// The number that the caller gets.
    fn errno(&self) -> Errno {
        match self {
            Failure::EventNo(number) => *number,
            Failure::View(error) => crate::errno::errno(error),
        }
    }
}

/// Whether a user may do everything: root and the daemon's user may.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a user may take snapshots of a directory: root, the daemon's user and its owner may. If
/// `incarnation` is given, the answer is for that one only, and it is no if that one is gone.
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
