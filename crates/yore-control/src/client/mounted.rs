//! The client of a mount.

use super::methods::{misunderstood, Client};
use crate::ongoing::ANSWER_MOST;
use crate::wire::{decode_answer, decode_parts, encode_request, Wrong, BYTES, OPCODE};
use crate::{Answer, Request};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, Updater};
use std::os::fd::AsFd;
use yore_fs::{Error, Result};

/// How often something is asked whose answer is lost.
const TRIES: usize = 5;

/// An open directory of a mount, asked through its daemon.
pub struct Mounted<Dir: AsFd>(pub Dir);

/// Refuses what would change a mount of which the kernel says that it is read-only: the daemon does not know
/// all the ways in which one can be.
///
/// # Errors
/// [`Error::ReadOnly`].
pub fn check_writable(mount: &StatVfs) -> Result<()> {
    match mount.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Error::ReadOnly),
        false => Ok(()),
    }
}

impl<Dir: AsFd> Mounted<Dir> {
    fn check_writable(&self) -> Result<()> {
        check_writable(&rustix::fs::fstatvfs(&self.0).map_err(of_number)?)
    }

    /// Hands a request over, and takes what comes back.
    fn exchange(&self, bytes: &[u8]) -> Result<Answer> {
        let mut buffer = Box::new([0; BYTES]);
        buffer[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: this number includes the size of the buffer. By the kernel's rules for such numbers,
        // whoever answers it reads and writes no more than that, and any bytes are a valid buffer afterwards.
        unsafe { ioctl(&self.0, Updater::<OPCODE, [u8; BYTES]>::new(&mut buffer)) }.map_err(of_number)?;
        decode_answer(&*buffer).unwrap_or_else(|wrong| match wrong {
            Wrong::Version(_) => Err(other_version()),
            Wrong::Meaning => Err(misunderstood()),
        })
    }

    /// All of an answer of which the first part is here; `None` if the daemon does not have the rest any
    /// more.
    fn whole(&self, (key, length): (u64, u64), mut bytes: Vec<u8>) -> Result<Option<Answer>> {
        let most = usize::try_from(length).ok().filter(|length| *length <= ANSWER_MOST);
        let length_here = most.filter(|length| bytes.len() <= *length).ok_or_else(misunderstood)?;
        while bytes.len() < length_here {
            let rest = Request::Rest { key, at: bytes.len() as u64 };
            match self.exchange(&encode_request(&rest)?) {
                Ok(Answer::Part { key: of, length: all, bytes: more })
                    if (of, all) == (key, length)
                        && (1..=length_here - bytes.len()).contains(&more.len()) =>
                {
                    bytes.extend(more);
                }
                Ok(_) => return Err(misunderstood()),
                // Others asked so much meanwhile that it was pushed out.
                Err(Error::Stale) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        match decode_parts(&bytes) {
            Ok(answer) => answer.map(Some),
            Err(_) => Err(misunderstood()),
        }
    }
}

impl<Dir: AsFd + Sync> Client for Mounted<Dir> {
    fn ask(&self, request: &Request) -> Result<Answer> {
        if request.changes() {
            self.check_writable()?;
        }
        let bytes = encode_request(request)?;
        if request.needs_what_was_written() {
            // The kernel first hands stores through mappings to the daemon. The daemon itself sees to that
            // for the processes that it can see; a kernel that waits here does it for all. syncfs does not
            // reach the daemon, so this makes nothing durable. It may tell of stores that were refused, for
            // example into a file of the past; whoever stored them learns of that by himself, and may be
            // anybody. If the daemon is dead, the request says so.
            let _ = rustix::fs::syncfs(&self.0);
        }
        for _ in 0..TRIES {
            match self.exchange(&bytes)? {
                Answer::Part { key, length, bytes } => {
                    if let Some(whole) = self.whole((key, length), bytes)? {
                        return Ok(whole);
                    }
                }
                answer => return Ok(answer),
            }
        }
        Err(Error::Refused("others ask this mount for so much that the answer was lost: try again".into()))
    }
}

/// The error for a number that the kernel returns when no answer comes.
fn of_number(number: Errno) -> Error {
    match number {
        Errno::NOENT => Error::NotFound,
        Errno::STALE => Error::Stale,
        Errno::ROFS => Error::ReadOnly,
        Errno::NOTCONN | Errno::CONNABORTED => Error::Refused(
            "the daemon that served this mount is dead; mount the volume again, or unmount it (yore umount)"
                .into(),
        ),
        Errno::NOTTY => Error::Refused(
            "it is not on a mount that yore serves, or another version of yore serves it: unmount the volume and mount it again".into(),
        ),
        number => Error::Refused(format!("the mount cannot be asked: {number}")),
    }
}

fn other_version() -> Error {
    Error::Refused(
        "the mount is served by another version of yore: unmount the volume and mount it again".into(),
    )
}
