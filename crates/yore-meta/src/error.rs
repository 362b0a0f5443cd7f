//! Errors of the metadata layer.

use yore_device::{DeviceError, Operation};
use yore_format::{Corruption, GroupNo};

/// What Linux says of a device that is not there any more: ENXIO, ENODEV.
const GONE: [i32; 2] = [6, 19];

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
            // Nothing is damaged, so nobody may empty it.
            newer @ yore_log::LogError::UnknownVersion { .. } => MetaError::Refused(newer.to_string()),
            other => MetaError::Log(other),
        }
    }
}

/// Whether an error is of reading a place of the device, so that other places may be readable all the same.
pub fn is_of_place(error: &DeviceError) -> bool {
    // Without a number the device has ended before the block did.
    let may_be_bad = |errno: i32| errno != 0 && !GONE.contains(&errno);
    matches!(error, DeviceError::Io { operation: Operation::Read, source, .. } if may_be_bad(source.errno))
}
