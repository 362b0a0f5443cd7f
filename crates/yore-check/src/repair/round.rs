//! One round of a repair: what a check learned, and the volume that the rules change.

use super::volume::Volume;
use crate::checker::Checker;
use crate::finding::{PastRow, Value};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{Block, BlockNo, EventNo, GroupNo, Inode, InodeFlags, InodeNo, Timestamp};

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
    /// How many data blocks are free, once somebody wanted more than there are.
    pub(super) free_left: Option<usize>,
    /// Blocks that files have as well as others, by what was found: of each file, how often each block.
    pub(super) twice: BTreeMap<InodeNo, BTreeMap<BlockNo, u32>>,
    /// What files got copies of, by the first block of it.
    pub(super) copies: BTreeMap<(InodeNo, BlockNo), Vec<Copied>>,
    /// Indexes of the past were made anew because of a node that does not say of which it is.
    pub(super) has_new_indexes: bool,
    /// What is to be done about rows of the past when the findings are through.
    pub(super) edits: BTreeMap<PastRow, Edit>,
    /// What was lost with rows.
    pub(super) lost_rows: BTreeMap<PastRow, Vec<Loss>>,
    /// What names rows of the past, once it was needed.
    pub(super) guide: Option<Guide>,
}

/// Bytes of a file of which it got copies, because another one has their blocks.
pub(super) struct Copied {
    pub(super) from: u64,
    pub(super) to: u64,
    /// There was room for all of them.
    pub(super) is_whole: bool,
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

/// The places of the names that an inode had, by their births.
#[derive(Default)]
pub(super) struct Places {
    all: Vec<Place>,
    /// For each of them which one lived longest, of it and those before it.
    longest: Vec<usize>,
}

impl Places {
    pub(super) fn new(mut all: Vec<Place>) -> Places {
        all.sort_by_key(|place| place.birth);
        let mut longest: Vec<usize> = Vec::with_capacity(all.len());
        for (i, place) in all.iter().enumerate() {
            let before = longest.last().copied().filter(|before| all[*before].death >= place.death);
            longest.push(before.unwrap_or(i));
        }
        Places { all, longest }
    }

    /// One that the inode had at a time. An inode may have as many names as one likes, so this is no walk.
    pub(super) fn at(&self, when: EventNo) -> Option<&Place> {
        let born = self.all.partition_point(|place| place.birth <= when);
        let longest = born.checked_sub(1).and_then(|last| self.longest.get(last));
        longest.and_then(|at| self.all.get(*at)).filter(|place| when < place.death)
    }
}

/// What names rows of the past by path and time.
#[derive(Default)]
pub(super) struct Guide {
    pub(super) places: BTreeMap<InodeNo, Places>,
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

/// What is done about the rows of the past.
#[derive(Default)]
pub(super) struct Edits {
    pub(super) rows: BTreeMap<PastRow, Edit>,
    /// The names that are given up, by cookie and by themselves. Many names may have one life in one
    /// directory.
    cookies: BTreeSet<(InodeNo, EventNo, EventNo, u64)>,
    names: BTreeSet<(InodeNo, EventNo, EventNo, Vec<u8>)>,
}

impl Edits {
    pub(super) fn new(rows: BTreeMap<PastRow, Edit>) -> Edits {
        let mut edits = Edits { rows, ..Edits::default() };
        for row in edits.rows.keys() {
            if let PastRow::Name { directory, birth, death, cookie, name } = row {
                edits.cookies.insert((*directory, *birth, *death, *cookie));
                edits.names.insert((*directory, *birth, *death, name.clone()));
            }
        }
        edits
    }

    /// The row of a name that is given up, of a directory, from birth to death: by its cookie or by itself,
    /// for it may have been found by the name of another one under its cookie.
    pub(super) fn dropped_name(
        &self,
        (directory, birth, death): (InodeNo, EventNo, EventNo),
        cookie: u64,
        name: &[u8],
    ) -> Option<PastRow> {
        let is_dropped = self.cookies.contains(&(directory, birth, death, cookie))
            || self.names.contains(&(directory, birth, death, name.to_vec()));
        is_dropped.then(|| PastRow::Name { directory, birth, death, cookie, name: name.to_vec() })
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
            free_left: None,
            twice: BTreeMap::new(),
            copies: BTreeMap::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a place is found in which the inode was, whatever names it had before and beside that.
    #[test]
    fn a_place_is_found_among_many() {
        let lives = [(1, 3), (3, 9), (4, 5), (5, 6), (12, 14), (12, 13)];
        let place = |(birth, death): (u64, u64)| Place {
            directory: InodeNo(birth),
            birth: EventNo(birth),
            death: EventNo(death),
            name: Vec::new(),
        };
        let places = Places::new(lives.into_iter().rev().map(place).collect());
        for when in 0..16 {
            let is_there = |(birth, death): &(u64, u64)| (*birth..*death).contains(&when);
            let found = places.at(EventNo(when)).map(|place| (place.birth.0, place.death.0));
            assert_eq!(found.is_some(), lives.iter().any(is_there), "{when}");
            assert!(found.is_none_or(|found| is_there(&found)), "{when}: {found:?}");
        }
        assert!(Places::default().at(EventNo(1)).is_none());
    }

    /// Promises that of names with one life in one directory those are given up that were found, by cookie or
    /// by name, and no others.
    #[test]
    fn names_are_given_up_by_cookie_or_by_name() {
        let (directory, birth, death) = (InodeNo(9), EventNo(2), EventNo(5));
        let row =
            |cookie, name: &[u8]| PastRow::Name { directory, birth, death, cookie, name: name.to_vec() };
        let rows = [(row(7, b"a"), Edit::default()), (row(8, b"b"), Edit::default())];
        let edits = Edits::new(rows.into_iter().collect());
        let of = (directory, birth, death);
        assert_eq!(edits.dropped_name(of, 7, b"other"), Some(row(7, b"other")));
        assert_eq!(edits.dropped_name(of, 1, b"b"), Some(row(1, b"b")));
        assert_eq!(edits.dropped_name(of, 1, b"c"), None);
        assert_eq!(edits.dropped_name((directory, birth, EventNo(6)), 7, b"a"), None);
    }
}
