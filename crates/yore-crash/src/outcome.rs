//! The results of operations, as the file system answers, and the kinds of errors among them.

use crate::op::Name;
use std::fmt;
use strum::VariantArray;
use yore_fs::{Attr, Error, FileKind};

/// The kinds of errors that an operation can fail with, as far as a caller can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
#[repr(u8)]
#[allow(missing_docs)] // As in `yore_fs::Error`.
pub enum Kind {
    NotFound,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    NameTooLong,
    Invalid,
    NotPermitted,
    NoSpace,
    TooManyLinks,
    FileTooLarge,
    ReadOnly,
    Unsupported,
    NoAttribute,
    AttributeTooLarge,
    NoDataThere,
    Loop,
    Stale,
    /// Corruption, device errors and refusals: never expected.
    Broken,
}

impl Kind {
    /// The kind of an error.
    pub fn of(error: &Error) -> Kind {
        match error.root() {
            Error::NotFound => Kind::NotFound,
            Error::Exists => Kind::Exists,
            Error::NotADirectory => Kind::NotADirectory,
            Error::IsADirectory => Kind::IsADirectory,
            Error::NotEmpty => Kind::NotEmpty,
            Error::NameTooLong => Kind::NameTooLong,
            Error::Invalid { .. } => Kind::Invalid,
            Error::NotPermitted { .. } => Kind::NotPermitted,
            Error::NoSpace | Error::NeverFits { .. } | Error::HashFull { .. } => Kind::NoSpace,
            Error::TooManyLinks => Kind::TooManyLinks,
            Error::FileTooLarge => Kind::FileTooLarge,
            Error::ReadOnly => Kind::ReadOnly,
            Error::Unsupported { .. } => Kind::Unsupported,
            Error::NoAttribute => Kind::NoAttribute,
            Error::AttributeTooLarge => Kind::AttributeTooLarge,
            Error::NoDataThere => Kind::NoDataThere,
            Error::Loop => Kind::Loop,
            Error::Stale => Kind::Stale,
            _ => Kind::Broken,
        }
    }
}

/// A set of kinds. POSIX does not order the errors of a call that can fail for several reasons, so the model
/// lists all of them and accepts each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// The set of these.
    pub fn of(kinds: &[Kind]) -> Kinds {
        Kinds(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u8))
    }

    /// Adds one if there is a reason for it.
    pub fn add_if(&mut self, reason: bool, kind: Kind) {
        if reason {
            self.0 |= 1 << kind as u8;
        }
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: Kinds) {
        self.0 |= other.0;
    }

    /// Whether it is among them.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One of them, if there are any.
    pub fn first(self) -> Option<Kind> {
        Kind::VARIANTS.iter().copied().find(|kind| self.contains(*kind))
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Kind::VARIANTS.iter().filter(|kind| self.contains(**kind))).finish()
    }
}

/// What an operation gave back.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It failed.
    Failed(Kind, String),
    /// It succeeded; nothing came back.
    Done,
    /// An inode came back.
    Node(Attr),
    /// Bytes came back.
    Bytes(Vec<u8>),
    /// An offset or a count came back.
    Number(u64),
    /// Names came back.
    Names(Vec<Name>),
    /// Entries came back: names, inode numbers, types.
    Entries(Vec<(Name, u64, FileKind)>),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome::Failed(Kind::of(&error), error.to_string())
    }
}
