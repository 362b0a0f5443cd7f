//! One round of a repair: what a check learned, and the volume that the rules change.

use super::volume::Volume;
use crate::checker::Checker;
use crate::finding::{PastRow, Value};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{Block, EventNo, GroupNo, Inode, InodeFlags, InodeNo, Timestamp};

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
    /// What was said of files so far: path, and what is lost.
    pub(super) said: BTreeSet<(String, String)>,
    /// How far the search for free data blocks has come.
    pub(super) search: Search,
    /// Whether some block is marked used that nobody has, once it was asked for.
    pub(super) has_leaks: Option<bool>,
    /// Indexes of the past were made anew because of a node that does not say of which it is.
    pub(super) has_new_indexes: bool,
    /// What is to be done about rows of the past when the findings are through.
    pub(super) edits: BTreeMap<PastRow, Edit>,
    /// What was lost with rows.
    pub(super) lost_rows: BTreeMap<PastRow, Vec<Loss>>,
    /// What names rows of the past, once it was needed.
    pub(super) guide: Option<Guide>,
}

/// How far the search for free data blocks has come: what lies before has none.
#[derive(Default)]
pub(super) struct Search {
    pub(super) group: u32,
    pub(super) bit: u32,
    /// The bitmap of the group, if it was read and can be used.
    pub(super) bitmap: Option<Box<Block>>,
}

/// A past name's place.
pub(super) struct Place {
    pub(super) directory: InodeNo,
    pub(super) birth: EventNo,
    pub(super) death: EventNo,
    pub(super) name: Vec<u8>,
}

/// What names rows of the past by path and time.
#[derive(Default)]
pub(super) struct Guide {
    pub(super) places: BTreeMap<InodeNo, Vec<Place>>,
    /// The times of events that are kept.
    pub(super) times: BTreeMap<EventNo, Timestamp>,
}

/// What is done about a row of the past.
#[derive(Default)]
pub(super) struct Edit {
    /// It is given up.
    pub(super) is_dropped: bool,
    /// Of a version: what it says of itself.
    pub(super) blocks: Option<u64>,
    pub(super) size: Option<u64>,
    /// Those that follow from the attributes.
    pub(super) flags: Option<InodeFlags>,
    pub(super) is_no_device: bool,
    pub(super) is_not_chosen: bool,
    /// An event gets the state of those in its tree.
    pub(super) is_of_tree: bool,
    /// An event gets another name.
    pub(super) is_renamed: bool,
    /// An event gets another time.
    pub(super) time: Option<Timestamp>,
}

impl Edit {
    /// Adds what another finding asks for.
    pub(super) fn add(&mut self, other: Edit) {
        self.is_dropped |= other.is_dropped;
        self.blocks = other.blocks.or(self.blocks);
        self.size = other.size.or(self.size);
        self.flags = other.flags.or(self.flags);
        self.is_no_device |= other.is_no_device;
        self.is_not_chosen |= other.is_not_chosen;
        self.is_of_tree |= other.is_of_tree;
        self.is_renamed |= other.is_renamed;
        self.time = other.time.or(self.time);
    }

    /// Changes a version.
    pub(super) fn put_into(&self, inode: &mut Inode) {
        inode.blocks = self.blocks.unwrap_or(inode.blocks);
        inode.size = self.size.unwrap_or(inode.size);
        if let Some(flags) = self.flags {
            inode.flags = (inode.flags & InodeFlags::CHOSEN) | flags;
        }
        if self.is_no_device {
            inode.rdev = 0;
        }
        if self.is_not_chosen {
            inode.flags -= InodeFlags::CHOSEN;
        }
    }
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
    /// The rows of an inode's past, or of the names of a directory under a cookie.
    PastOf(InodeNo, u64),
    EventTimes,
    Shards,
}

impl<'r> Round<'r> {
    /// A round of which nothing was done yet.
    pub(super) fn new(volume: Volume<'r>, seen: Checker<'r>) -> Self {
        Round {
            volume,
            seen,
            once: BTreeSet::new(),
            lost: Vec::new(),
            said: BTreeSet::new(),
            search: Search::default(),
            has_leaks: None,
            has_new_indexes: false,
            edits: BTreeMap::new(),
            lost_rows: BTreeMap::new(),
            guide: None,
        }
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
