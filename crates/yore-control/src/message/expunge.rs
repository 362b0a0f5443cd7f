//! What the history knows of files, and which part of it to give up.

use serde::{Deserialize, Serialize};
use yore_fs::{FileKind, Incarnation, InodeNo, Remembered};

/// A name in the directory that is asked, and which other files the request covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The name, which may have a time.
    pub name: Vec<u8>,
    /// For a directory, also everything that was ever named in it, and so on below.
    pub below: bool,
    /// Also the other files to which the name has led.
    pub others: bool,
}

/// What the history knows of the files that the request covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// How many there are.
    pub files: u64,
    /// Their versions.
    pub versions: u64,
    /// The sum of the sizes of these versions.
    pub bytes: u64,
    /// How many others the name has led to that are not among them.
    pub others: u64,
}

impl Known {
    /// The totals of these files, and this many others.
    pub(crate) fn of(files: &[Remembered], others: usize) -> Known {
        let mut known = Known { files: files.len() as u64, others: others as u64, ..Known::default() };
        for file in files {
            known.versions += file.versions;
            known.bytes = known.bytes.saturating_add(file.bytes);
        }
        known
    }
}

/// A file that the request covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    /// Its path from the named one; empty for that one itself.
    pub path: Vec<u8>,
    /// Its inode.
    pub inode: InodeNo,
    /// Its incarnation among the files that have had this inode number.
    pub incarnation: Incarnation,
    /// What it is.
    pub kind: FileKind,
    /// Its versions.
    pub versions: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// Whether it still exists.
    pub in_use: bool,
}

impl From<Remembered> for KnownFile {
    fn from(of: Remembered) -> KnownFile {
        let Remembered { path, inode, incarnation, kind, versions, bytes, in_use, .. } = of;
        let incarnation = Incarnation(incarnation);
        KnownFile { path, inode, incarnation, kind, versions, bytes, in_use }
    }
}
