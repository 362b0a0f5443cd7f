//! What can go wrong while measuring.

use std::io;

/// The result of measuring.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// The reason.
        source: io::Error,
    },
    /// The library failed.
    #[error("{doing}: {source}")]
    Library {
        /// What was being done.
        doing: String,
        /// The reason.
        source: yore_fs::Error,
    },
    /// The volume's file could not be made or opened.
    #[error("the volume for measuring: {0}")]
    Device(#[from] yore_device::DeviceError),
    /// A mount for measuring could not be made.
    #[error(transparent)]
    Mount(#[from] yore_fuse::MountError),
    /// A mount for measuring ended badly.
    #[error(transparent)]
    Session(#[from] yore_fuse::SessionError),
    /// A mount for measuring could not be removed.
    #[error(transparent)]
    Unmount(#[from] yore_fuse::UnmountError),
    /// A program that measuring needs failed.
    #[error("{command} failed: {said}")]
    Command {
        /// The command.
        command: String,
        /// What it printed.
        said: String,
    },
    /// A program that measuring needs is not installed.
    #[error("{program} is not installed: install the package {package}")]
    NotInstalled {
        /// The program.
        program: String,
        /// The Debian package that has it.
        package: String,
    },
    /// The circumstances do not allow the measurement.
    #[error("{what}; {remedy}")]
    Impossible {
        /// What is in the way.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// A file system did not give back what was put into it.
    #[error("{found}, but {expected} was expected: this file system lost something")]
    Wrong {
        /// What was seen.
        found: String,
        /// What should have been.
        expected: String,
    },
    /// The user asked for the end.
    #[error("interrupted; everything made for the measurement has been taken away")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let doing = doing.into();
        move |source| BenchError::System { doing, source }
    }

    pub(crate) fn library(doing: impl Into<String>) -> impl FnOnce(yore_fs::Error) -> BenchError {
        let doing = doing.into();
        move |source| BenchError::Library { doing, source }
    }

    /// A check of a volume that was made for measuring has no result.
    pub(crate) fn checking(error: impl std::fmt::Display) -> BenchError {
        BenchError::Command { command: "the check of a volume".into(), said: error.to_string() }
    }

    pub(crate) fn impossible(what: impl Into<String>, remedy: impl Into<String>) -> BenchError {
        BenchError::Impossible { what: what.into(), remedy: remedy.into() }
    }
}
