//! What can go wrong, by class: a mistake of the caller, no space, corruption, the device.

use serde::{Deserialize, Serialize};
use std::io;
use yore_device::travel::nested;
use yore_device::DeviceError;
use yore_format::travel::{text, Text};
use yore_format::Corruption;
use yore_meta::MetaError;

/// The result of file-system calls.
pub type Result<T> = std::result::Result<T, Error>;

/// What makes room on a full volume. It ends every message that says that there is no space.
const MAKES_ROOM: &str =
    "Deleting files that no snapshot has, `yore forget`, or `yore resize VOLUME SIZE` makes room";

/// Why a call failed. Nothing was changed by a call that failed, unless its documentation says so.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("it already exists")]
    Exists,
    /// A component that must be a directory is not one.
    #[error("not a directory")]
    NotADirectory,
    /// The call does not apply to directories.
    #[error("it is a directory")]
    IsADirectory,
    /// The directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name above 255 bytes, or a symbolic link's target above 4,095.
    #[error("the name is too long (names: 255 bytes, link targets: 4095)")]
    NameTooLong,
    /// An argument that no such call accepts; says which.
    #[error("invalid argument: {what}")]
    Invalid {
        /// The argument, and what is accepted.
        #[serde(deserialize_with = "text")]
        what: Text,
    },
    /// Not allowed on this kind of file, whoever the caller is.
    #[error("operation not permitted: {what}")]
    NotPermitted {
        /// What is not permitted, on what.
        #[serde(deserialize_with = "text")]
        what: Text,
    },
    /// The volume is full (blocks or room for metadata).
    #[error("no space left on the volume. {MAKES_ROOM}")]
    NoSpace,
    /// More than the volume has room for, even if it gave up all the history that it may give up for this.
    #[error("no space left on the volume: {missing} bytes are missing. {MAKES_ROOM}")]
    NeverFits {
        /// How many bytes are missing beyond all that can be freed.
        missing: u64,
    },
    /// A directory takes 256 names with the same hash, and a file 256 attributes.
    #[error("there are too many {what} with the same hash: choose another name")]
    HashFull {
        /// Of what: names or attributes.
        #[serde(deserialize_with = "text")]
        what: Text,
    },
    /// More than 4,294,967,295 names for one file, or as many subdirectories of one directory, less two.
    #[error("too many links to one file")]
    TooManyLinks,
    /// Beyond the largest file, 16 TiB less 4 KiB.
    #[error("the file would be larger than 16 TiB less 4 KiB")]
    FileTooLarge,
    /// The volume or view is read-only.
    #[error("the volume is mounted read-only, or the file is of the past")]
    ReadOnly,
    /// A snapshot is given its own time, and that time is in the future, or not later than the last snapshot
    /// or version.
    #[error("that time is not behind the last snapshot's, or in the future: times ascend")]
    OutOfOrder {
        /// When the last one was taken.
        last: yore_format::Timestamp,
    },
    /// The snapshot is held, so it cannot be forgotten.
    #[error("snapshot {event} is held: release it first")]
    Held {
        /// Its number.
        event: u64,
    },
    /// A policy holds the event, so nobody can give it up before that hold ends.
    #[error("snapshot {event} is held by the policy that it was taken under until {until}: it goes then, or when root releases it")]
    HeldUntil {
        /// Its number.
        event: u64,
        /// The time, in UTC.
        until: String,
    },
    /// A user has as much history as one user may have.
    #[error(
        "you have {most} {what} on this volume, and one user may have no more: forget or release some, or ask root for a mount \
         with a higher limit (-o user_{what}=N)"
    )]
    LimitReached {
        /// Of what: snapshots, holds or policies.
        #[serde(deserialize_with = "text")]
        what: Text,
        /// How many.
        most: u32,
    },
    /// The snapshot is pinned, so it cannot be forgotten.
    #[error("snapshot {event} is in use: it is mounted, and must be unmounted first; or a restore at work, or a rollback that is not finished, needs it")]
    Pinned {
        /// Its number.
        event: u64,
    },
    /// An event that somebody else took has seen the file to be expunged.
    #[error(
        "snapshot {event} has seen it, and somebody else took that; ask root, or mount with -o expunge_others"
    )]
    TakenByOthers {
        /// The number of one such event.
        event: u64,
    },
    /// Rolling back would change, remove or bring back files that are not the caller's. Nothing was changed.
    #[error("{path}: not yours; nothing was changed. Ask root to do it, or put back what is yours with `yore restore`")]
    NotYours {
        /// The first such path, from the directory; lossily decoded.
        path: String,
    },
    /// Rolling back would change files that are immutable or append-only. Nothing was changed.
    #[error("{path}: immutable or append-only (`lsattr` shows it); nothing was changed. Take the flag away first: `chattr -i -a`")]
    Protected {
        /// The first such path, from the directory; lossily decoded.
        path: String,
    },
    /// A rollback ended before it was done. An event of this name keeps the state before it.
    #[error("{name} did not end ({source}); what was done so far stays")]
    Unfinished {
        /// The name of the rollback, as in `rollback-3`: the event before it is `before-rollback-3`.
        name: String,
        /// Why.
        #[serde(deserialize_with = "nested")]
        source: Box<Error>,
    },
    /// A rename or a link between files of different times.
    #[error("the two names are of different times: copy the file instead")]
    AcrossTimes,
    /// This kind of file has no such operation.
    #[error("operation not supported: {what}")]
    Unsupported {
        /// What is not supported.
        #[serde(deserialize_with = "text")]
        what: Text,
    },
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute's value is above 65,536 bytes, or its name above 255.
    #[error("the attribute is too large (values: 65536 bytes, names: 255)")]
    AttributeTooLarge,
    /// SEEK_DATA or SEEK_HOLE beyond the end, or with no data left.
    #[error("no data at or after that offset")]
    NoDataThere,
    /// Too many symbolic links on the way.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The inode number does not name an inode (any more).
    #[error("the file is gone (stale handle)")]
    Stale,
    /// Bytes on the medium are not what they should be.
    #[error("the volume is damaged: {0}; run `yore check` on it")]
    Corruption(#[from] Box<Corruption>),
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// After a write error nothing more is written until the volume is opened again.
    #[error(
        "the volume stopped writing after an error ({first}); reads go on; unmount it and check the device"
    )]
    Stopped {
        /// The error that stopped it.
        #[serde(deserialize_with = "nested")]
        first: Box<Error>,
    },
    /// The volume cannot be opened as the caller asked; says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// A call by path failed: which call, on which path.
    #[error("{operation} {path:?}: {source}")]
    Path {
        /// The call's name, as in "cannot create".
        #[serde(deserialize_with = "text")]
        operation: Text,
        /// The path as given, lossily decoded.
        path: String,
        /// The reason.
        #[serde(deserialize_with = "nested")]
        source: Box<Error>,
    },
}

impl Error {
    /// The error without the path around it.
    pub fn root(&self) -> &Error {
        match self {
            Error::Path { source, .. } => source.root(),
            other => other,
        }
    }

    /// Whether the medium is wrong or cannot be read. That may concern one file alone, so others can go on.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Corruption(_) | Error::Device(_))
    }

    /// The error, with the call that failed and its path.
    pub fn on_path(self, operation: &'static str, path: &[u8]) -> Error {
        Error::Path { operation, path: String::from_utf8_lossy(path).into_owned(), source: Box::new(self) }
    }
}

impl From<MetaError> for Error {
    fn from(e: MetaError) -> Error {
        match e {
            MetaError::Corruption(c) => Error::Corruption(c),
            MetaError::Device(e) => Error::Device(e),
            MetaError::NeedZone { .. } => Error::NoSpace,
            MetaError::ReadOnly => Error::ReadOnly,
            MetaError::Stopped { first } => Error::Stopped { first: Box::new((*first).into()) },
            other => Error::Refused(other.to_string()),
        }
    }
}

impl From<Error> for io::Error {
    /// The kind is the nearest one that `std` has; the whole error is inside.
    fn from(error: Error) -> io::Error {
        use io::ErrorKind;
        let kind = match error.root() {
            Error::NotFound | Error::NoAttribute => ErrorKind::NotFound,
            Error::Exists => ErrorKind::AlreadyExists,
            Error::NotADirectory => ErrorKind::NotADirectory,
            Error::IsADirectory => ErrorKind::IsADirectory,
            Error::NotEmpty => ErrorKind::DirectoryNotEmpty,
            Error::NameTooLong | Error::Invalid { .. } | Error::AttributeTooLarge => ErrorKind::InvalidInput,
            Error::NotPermitted { .. } => ErrorKind::PermissionDenied,
            Error::NoSpace | Error::NeverFits { .. } | Error::HashFull { .. } => ErrorKind::StorageFull,
            Error::TooManyLinks => ErrorKind::TooManyLinks,
            Error::FileTooLarge => ErrorKind::FileTooLarge,
            Error::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Stale => ErrorKind::StaleNetworkFileHandle,
            Error::Corruption(_) => ErrorKind::InvalidData,
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
