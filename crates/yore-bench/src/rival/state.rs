//! A file system of a run: where it is, and what keeps it there.

use super::kind::{Environment, RivalKind};
use crate::target::{LibraryTarget, SystemTarget};
use std::path::PathBuf;
use std::process::Child;

pub(super) enum Measured {
    Library(LibraryTarget),
    System(SystemTarget),
    /// The state between unmounting and mounting.
    Nothing,
}

/// What keeps a file system available.
pub(super) enum ServedBy {
    Library,
    Session(yore_fuse::Session),
    Daemon,
    Child(Child),
    Kernel,
    Nothing,
}

/// A file system under measurement, and what keeps it available.
pub(crate) struct Rival {
    pub(super) kind: RivalKind,
    pub(super) env: Environment,
    /// For this rival alone: the image and the mount point are in it.
    pub(super) dir: PathBuf,
    pub(super) measured: Measured,
    pub(super) served_by: ServedBy,
    pub(super) version: Option<String>,
}

impl Rival {
    pub(super) fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    pub(super) fn mountpoint(&self) -> PathBuf {
        self.dir.join("mnt")
    }
}
