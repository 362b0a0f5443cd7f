//! What the history knows of files, and what of it is to be given up.

use serde::{Deserialize, Serialize};
use yore_fs::{FileKind, Incarnation, InodeNo, Remembered};

/// A name in the directory that is asked, and what else is meant with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The name, which may have a time.
    pub name: Vec<u8>,
    /// Of a directory also all that was ever named in it, and so on.
    pub below: bool,
    /// Also the other files that the name has meant.
    pub others: bool,
}

/// What the history knows of the files that are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// How many there are.
    pub files: u64,
    /// Their versions.
    pub versions: u64,
    /// The sizes of these, added up.
    pub bytes: u64,
    /// How many others the name has meant, which are not among them.
    pub others: u64,
}

impl Known {
    /// Of these, and so many others.
    pub(crate) fn of(files: &[Remembered], others: usize) -> Known {
        let mut known = Known { files: files.len() as u64, others: others as u64, ..Known::default() };
        for file in files {
            known.versions += file.versions;
            known.bytes = known.bytes.saturating_add(file.bytes);
        }
        known
    }
}

/// A file that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    /// Its path from the one that was named; empty for itself.
    pub path: Vec<u8>,
    /// Its inode.
    pub inode: InodeNo,
    /// Which of those that have had the number.
    pub incarnation: Incarnation,
    /// What it is.
    pub kind: FileKind,
    /// Its versions.
    pub versions: u64,
    /// Their sizes, added up.
    pub bytes: u64,
    /// It is still there.
    pub in_use: bool,
}

impl From<Remembered> for KnownFile {
    fn from(of: Remembered) -> KnownFile {
        let Remembered { path, inode, incarnation, kind, versions, bytes, in_use, .. } = of;
        let incarnation = Incarnation(incarnation);
        KnownFile { path, inode, incarnation, kind, versions, bytes, in_use }
    }
}
