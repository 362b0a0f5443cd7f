//! What the history knows of files, and which part of it to give up.

use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
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

/// Which files a user has been shown: a digest, because the list of them may be too long for a request.
/// Whoever could make two lists with the same digest could show one and have the other one expunged. So it
/// has 128 bits.
///
/// std may have another hash in another release. Then a command and a daemon that were not built together
/// refuse to expunge, and destroy nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// How many there are.
    pub files: u64,
    /// Two hashes of their inodes and incarnations in ascending order.
    pub hashes: [u64; 2],
}

impl Shown {
    /// The digest of these files. Their order does not matter.
    pub fn of(files: &[KnownFile]) -> Shown {
        Shown::of_all(files.iter().map(|file| (file.inode, file.incarnation)))
    }

    /// The same of files as the library found them.
    pub(crate) fn of_remembered(files: &[Remembered]) -> Shown {
        Shown::of_all(files.iter().map(|file| (file.inode, Incarnation(file.incarnation))))
    }

    fn of_all(files: impl Iterator<Item = (InodeNo, Incarnation)>) -> Shown {
        let mut all: Vec<_> = files.collect();
        all.sort_unstable();
        // A list that came in parts may have a file twice if something changed between two of them.
        all.dedup();
        let hash = |which: u8| {
            let mut hasher = DefaultHasher::new();
            (which, &all).hash(&mut hasher);
            hasher.finish()
        };
        Shown { files: all.len() as u64, hashes: [hash(0), hash(1)] }
    }
}

impl From<Remembered> for KnownFile {
    fn from(of: Remembered) -> KnownFile {
        let Remembered { path, inode, incarnation, kind, versions, bytes, in_use, .. } = of;
        let incarnation = Incarnation(incarnation);
        KnownFile { path, inode, incarnation, kind, versions, bytes, in_use }
    }
}
