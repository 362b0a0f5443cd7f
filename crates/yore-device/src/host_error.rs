//! Errors of the host, as numbers that can be compared and sent to another process.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// An error number of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i32, Kind)", into = "(i32, Kind)")]
pub struct HostError {
    /// The raw error number; 0 if the host gave none (a read that ended before the device did).
    pub errno: i32,
    /// The portable kind.
    pub kind: io::ErrorKind,
}

impl HostError {
    /// From a raw error number.
    pub fn from_errno(errno: i32) -> Self {
        HostError { errno, kind: io::Error::from_raw_os_error(errno).kind() }
    }
}

impl From<&io::Error> for HostError {
    fn from(error: &io::Error) -> Self {
        HostError { errno: error.raw_os_error().unwrap_or(0), kind: error.kind() }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            0 => write!(f, "{}", self.kind),
            errno => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        }
    }
}

impl std::error::Error for HostError {}

/// The kinds of host errors that have no number. Where there is a number, the kind follows from it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Kind {
    Other,
    UnexpectedEof,
    WriteZero,
    InvalidData,
    InvalidInput,
    Interrupted,
}

impl From<(i32, Kind)> for HostError {
    fn from((errno, kind): (i32, Kind)) -> HostError {
        if errno != 0 {
            return HostError::from_errno(errno);
        }
        let kind = match kind {
            Kind::Other => io::ErrorKind::Other,
            Kind::UnexpectedEof => io::ErrorKind::UnexpectedEof,
            Kind::WriteZero => io::ErrorKind::WriteZero,
            Kind::InvalidData => io::ErrorKind::InvalidData,
            Kind::InvalidInput => io::ErrorKind::InvalidInput,
            Kind::Interrupted => io::ErrorKind::Interrupted,
        };
        HostError { errno, kind }
    }
}

impl From<HostError> for (i32, Kind) {
    fn from(error: HostError) -> (i32, Kind) {
        let kind = match error.kind {
            io::ErrorKind::UnexpectedEof => Kind::UnexpectedEof,
            io::ErrorKind::WriteZero => Kind::WriteZero,
            io::ErrorKind::InvalidData => Kind::InvalidData,
            io::ErrorKind::InvalidInput => Kind::InvalidInput,
            io::ErrorKind::Interrupted => Kind::Interrupted,
            _ => Kind::Other,
        };
        (error.errno, kind)
    }
}
