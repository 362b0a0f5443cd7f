//! One round of a repair: what a check learned, and the volume that the rules change.

use super::volume::Volume;
use crate::checker::Checker;
use crate::finding::Value;
use serde::Serialize;
use std::collections::BTreeSet;
use yore_format::{GroupNo, InodeNo};

/// Something that a repair cannot keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The file, by its path if it has one that could be read, else by its number.
    pub path: String,
    /// What of it is lost.
    pub what: String,
    /// The file, if it had no path when the loss was found.
    #[serde(skip)]
    pub(super) unnamed: Option<InodeNo>,
}

/// One round: what a check learned, and the volume that the rules change.
pub(super) struct Round<'r> {
    pub(super) volume: Volume<'r>,
    pub(super) seen: Checker<'r>,
    /// Steps that are done once for all findings of a round.
    pub(super) once: BTreeSet<Once>,
    pub(super) lost: Vec<Loss>,
    /// Indexes of the past were made anew because of a node that does not say of which it is.
    pub(super) has_new_indexes: bool,
}

/// A step that is done once in a round, whichever finding calls for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Once {
    Orphans,
    Rescue,
    ZoneLists,
    Bitmap(GroupNo),
    Directory(InodeNo),
    Content(InodeNo),
    /// By the place of the root.
    Index(usize),
}

impl<'r> Round<'r> {
    /// A round of which nothing was done yet.
    pub(super) fn new(volume: Volume<'r>, seen: Checker<'r>) -> Self {
        Round { volume, seen, once: BTreeSet::new(), lost: Vec::new(), has_new_indexes: false }
    }

    /// Whether a step is still to be done; from now on it is not.
    pub(super) fn is_first(&mut self, step: Once) -> bool {
        self.once.insert(step)
    }
}

/// The numbers in a text; none in a value that is no text.
pub(super) fn numbers(value: &Value) -> impl Iterator<Item = u64> + '_ {
    let text = match value {
        Value::Text(text) => &text[..],
        Value::EventNo(_) => "",
    };
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok())
}

/// The number that a value is or begins with.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::EventNo(n) => Some(*n),
        Value::Text(text) => {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        }
    }
}
