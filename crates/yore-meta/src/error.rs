//! Errors of the metadata layer.

use yore_device::DeviceError;
use yore_format::{Corruption, GroupNo};

/// The result of calls that may read the device or reserve.
pub type Result<T> = std::result::Result<T, MetaError>;

/// Why a call of the metadata layer failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Bytes on the medium are wrong.
    #[error("{0}")]
    Corruption(#[from] Box<Corruption>),
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// No zone has room for a reservation: the store must make one ([`crate::Op::create_zone`]), nearest to
    /// this group.
    #[error("no zone has room for more metadata near group {near}")]
    NeedZone {
        /// The group asked for.
        near: GroupNo,
    },
    /// The log failed, or is damaged.
    #[error("{0}")]
    Log(yore_log::LogError),
    /// The volume was opened read-only.
    #[error("the volume is opened read-only")]
    ReadOnly,
    /// A write failed earlier; nothing more is written (R16).
    #[error("writing stopped after an error: {first}")]
    Stopped {
        /// The error that stopped it.
        first: Box<MetaError>,
    },
    /// The volume was in use under another engine than the one asked for. It must be recovered first: opened
    /// under the engine recorded, and closed.
    #[error("the volume must be recovered under its engine `{}` first", recorded.name())]
    RecoverFirst {
        /// The engine recorded.
        recorded: yore_format::Engine,
    },
    /// The volume cannot be made or opened as asked; the text says why, and what to do.
    #[error("{0}")]
    Refused(String),
}

impl From<yore_log::LogError> for MetaError {
    fn from(e: yore_log::LogError) -> MetaError {
        match e {
            yore_log::LogError::Device(e) => MetaError::Device(e),
            other => MetaError::Log(other),
        }
    }
}
