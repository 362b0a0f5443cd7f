//! What can go wrong with a device.
//!
//! Every error can be cloned and compared, because one failure is often reported to many waiters (everyone
//! who shares a flush) and kept as the reason why a volume stopped accepting writes. The host's errors are
//! therefore kept as numbers, not as `std::io::Error`. Classes: the caller's mistake (`OutOfRange`,
//! `ReadOnly`, and everything from opening), no space (`NoSpace`), and the device itself (`Io`,
//! `WrittenAfterError`).

use crate::travel::{self, Text};
use crate::HostError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// What the caller was doing to a device when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operation {
    /// Opening or locking an existing device.
    Open,
    /// Creating an image file.
    Create,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making earlier writes durable.
    Flush,
    /// Telling the device that a range is no longer needed.
    Discard,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Create => "create",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        })
    }
}

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id, as seen from this process.
    pub pid: u32,
    /// The name of its command; empty if it cannot be found.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command.as_str() {
            "" => write!(f, "process {}", self.pid),
            command => write!(f, "process {} ({command})", self.pid),
        }
    }
}

/// A holder in a sentence, known or not.
fn holder_name(holder: &Option<Holder>) -> String {
    match holder {
        Some(holder) => holder.to_string(),
        None => "another process".to_string(),
    }
}

/// What went wrong, with which device, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeviceError {
    /// The host failed to do what it was asked.
    #[error("cannot {operation} {len} bytes at offset {offset} of {device}: {source}; check the host's log for errors of the disk below it")]
    Io {
        /// What was being done.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes; with `offset` 0 the whole device for a flush.
        len: u64,
        /// The device, for people.
        device: String,
        /// What the host said.
        source: HostError,
    },
    /// The host has no room for a block of a sparse image (or the simulated device was told to be full).
    #[error("no space left on the host to {operation} {len} bytes at offset {offset} of {device}; free some space there, then open the volume again")]
    NoSpace {
        /// What was being done.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
        /// The device, for people.
        device: String,
    },
    /// The range ends beyond the device. Nothing was done.
    #[error("cannot {operation} {len} bytes at offset {offset} of {device}: it has only {size} bytes; the volume may be damaged or its image truncated: run the checker")]
    OutOfRange {
        /// What was asked for.
        operation: Operation,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
        /// The device, for people.
        device: String,
        /// Its size in bytes.
        size: u64,
    },
    /// The device was opened for reading only. Nothing was done.
    #[error("cannot {operation} {device}: it is open for reading only; open it for writing")]
    ReadOnly {
        /// What was asked for.
        operation: Operation,
        /// The device, for people.
        device: String,
    },
    /// Somebody else has the device open in a way that excludes this one.
    #[error("{device} is in use by {}; stop that first, or open it read-only when nobody writes to it", holder_name(.holder))]
    Busy {
        /// The device, for people.
        device: String,
        /// Who holds it, if that can be found out.
        holder: Option<Holder>,
    },
    /// The block device is mounted, or belongs to a mounted file system of the host.
    #[error("{device} is mounted on {mount_point}; unmount it first if it is the right device")]
    Mounted {
        /// The device, for people.
        device: String,
        /// Where it is mounted.
        mount_point: String,
    },
    /// There is nothing of that name.
    #[error("there is no file or device {device}; check the path, or create a volume there first")]
    NotFound {
        /// The path that was given.
        device: String,
    },
    /// The host does not let this user open it.
    #[error("no permission to {operation} {device}; check its owner and mode, or open it read-only")]
    PermissionDenied {
        /// What was asked for.
        operation: Operation,
        /// The path that was given.
        device: String,
    },
    /// The host failed to open, lock or create it for another reason.
    #[error("cannot {operation} {device}: {source}")]
    OpenFailed {
        /// What was asked for.
        operation: Operation,
        /// The path that was given.
        device: String,
        /// What the host said.
        source: HostError,
    },
    /// Direct I/O was required and the host does not do it there.
    #[error("{device} is on a file system that does not support direct I/O; allow buffered I/O, or move it")]
    DirectUnsupported {
        /// The path that was given.
        device: String,
    },
    /// There is something of that name and the caller did not say that it may be replaced.
    #[error("{device} exists already; choose another name, or ask for it to be overwritten")]
    AlreadyExists {
        /// The path that was given.
        device: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{device} is a {found}; a volume needs a regular file or a block device")]
    NotADevice {
        /// The path that was given.
        device: String,
        /// What it is instead.
        #[serde(deserialize_with = "travel::kind_of_file")]
        found: Text,
    },
    /// It has less room than asked for, or less than one block.
    #[error("{device} has {size} bytes but at least {needed} are needed; use a larger one")]
    TooSmall {
        /// The device, for people.
        device: String,
        /// Its size in bytes.
        size: u64,
        /// The least size that would do, in bytes.
        needed: u64,
    },
    /// Somebody shortened the file or device while it was in use. Nothing was done.
    #[error("{device} has only {size} bytes left, and {used} are in use: it was shortened while it was open, and what was behind is lost; nothing more is written to it. Close the volume, restore the file from a copy or make it as long as it was, then run the checker")]
    Shortened {
        /// The device, for people.
        device: String,
        /// Its size now, in bytes.
        size: u64,
        /// What is in use, in bytes from its start.
        used: u64,
    },
    /// Its smallest unit of writing is larger than a block, so a block could not be written alone.
    #[error("{device} has sectors of {sector_size} bytes; at most {} are supported: use another device, or an image file on it", crate::BLOCK_SIZE)]
    SectorTooLarge {
        /// The device, for people.
        device: String,
        /// The size of its logical sectors in bytes.
        sector_size: u64,
    },
    /// An earlier write or flush failed, so what is on the medium is not known and nothing is added to it.
    #[error("cannot {operation} {device} after an earlier error ({first}); close the volume, mend the device, then open it again")]
    WrittenAfterError {
        /// What was asked for.
        operation: Operation,
        /// The device, for people.
        device: String,
        /// The error that came first.
        #[serde(deserialize_with = "travel::nested")]
        first: Box<DeviceError>,
    },
}

impl DeviceError {
    /// The typed error for a failure of the host on a range of an open device.
    pub(crate) fn from_host(
        operation: Operation,
        offset: u64,
        len: u64,
        device: &str,
        source: HostError,
    ) -> Self {
        let device = device.to_string();
        match source.kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                DeviceError::NoSpace { operation, offset, len, device }
            }
            _ => DeviceError::Io { operation, offset, len, device, source },
        }
    }
}
