//! The typed errors for failures to open and to create.

use std::io;

use crate::{DeviceError, HostError, Operation};

/// The typed error for a failure to open.
pub(super) fn failed(path: &str, error: &io::Error) -> DeviceError {
    typed(Operation::Open, path, error)
}

/// The typed error for a failure to create.
pub(super) fn creating(path: &str, error: &io::Error) -> DeviceError {
    typed(Operation::Create, path, error)
}

fn typed(operation: Operation, path: &str, error: &io::Error) -> DeviceError {
    let device = path.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => DeviceError::NotFound { device },
        io::ErrorKind::AlreadyExists => DeviceError::AlreadyExists { device },
        io::ErrorKind::PermissionDenied => DeviceError::PermissionDenied { operation, device },
        _ => DeviceError::OpenFailed { operation, device, source: HostError::from(error) },
    }
}
