//! What inodes in use have left to their versions lately, for whoever sums up what each event holds. Notes
//! are made only while somebody wants them, and are lost with the process.

use hashbrown::hash_map::Entry;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use yore_format::{EventNo, Incarnation, InodeNo};

const PARTS: usize = 16;
/// How many notes there are at most: about 8 MiB.
const NOTES_MOST: usize = 1 << 16;

/// Blocks that an inode in use had, and that its versions have now alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left {
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// When its newest version had ended, which has the blocks.
    pub end: EventNo,
    /// When the blocks were born.
    pub birth: EventNo,
}

/// How many blocks of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftBlocks {
    /// References to data blocks.
    pub data: u64,
    /// Nodes of the inode's trees.
    pub nodes: u64,
}

impl std::ops::AddAssign for LeftBlocks {
    fn add_assign(&mut self, more: LeftBlocks) {
        self.data = self.data.saturating_add(more.data);
        self.nodes = self.nodes.saturating_add(more.nodes);
    }
}

/// Notes by what was left.
pub type Notes = BTreeMap<Left, LeftBlocks>;

/// Inodes whose versions may have blocks alone, as far as their own chain goes, that another chain has, too.
pub type Sharing = BTreeSet<(InodeNo, Incarnation)>;

/// When the newest version ended, and when the blocks were born.
type EndAndBirth = (EventNo, EventNo);

/// The notes about one inode. Most have one or two.
struct OfOne {
    first: (EndAndBirth, LeftBlocks),
    more: BTreeMap<EndAndBirth, LeftBlocks>,
}

impl OfOne {
    /// Adds blocks. False: that would be a further note, and there is no room for one.
    fn add(&mut self, key: EndAndBirth, blocks: LeftBlocks, count: &AtomicUsize) -> bool {
        if self.first.0 == key {
            self.first.1 += blocks;
            return true;
        }
        match self.more.get_mut(&key) {
            Some(sum) => *sum += blocks,
            None if !has_room(count) => return false,
            None => drop(self.more.insert(key, blocks)),
        }
        true
    }

    fn all(&self) -> impl Iterator<Item = (EndAndBirth, LeftBlocks)> + '_ {
        std::iter::once(self.first).chain(self.more.iter().map(|(key, blocks)| (*key, *blocks)))
    }
}

/// Counts one more note, if there is room for it.
fn has_room(count: &AtomicUsize) -> bool {
    let has_room = count.load(Ordering::Relaxed) < NOTES_MOST;
    count.fetch_add(usize::from(has_room), Ordering::Relaxed);
    has_room
}

type Part = HashMap<(InodeNo, Incarnation), OfOne>;

/// The notes. All locks are leaves.
#[derive(Default)]
pub struct LeftNotes {
    is_noting: AtomicBool,
    /// Something was not noted.
    is_lost: AtomicBool,
    count: AtomicUsize,
    parts: [Mutex<Part>; PARTS],
    sharing: Mutex<Sharing>,
}

impl LeftNotes {
    /// Whether anybody wants notes.
    #[inline]
    pub fn is_noting(&self) -> bool {
        self.is_noting.load(Ordering::Acquire)
    }

    /// From here on notes are made, beginning with none. Who calls this and [`LeftNotes::end`] sees to it
    /// that one caller does so at a time.
    pub fn begin(&self) {
        self.clear();
        self.is_lost.store(false, Ordering::Release);
        self.is_noting.store(true, Ordering::Release);
    }

    /// No more notes are made.
    pub fn end(&self) {
        self.is_noting.store(false, Ordering::Release);
        self.clear();
    }

    fn clear(&self) {
        self.take();
        self.take_sharing();
    }

    /// Inside an Op, with the inode locked: makes a note, if anybody wants it.
    pub fn note(&self, left: Left, blocks: LeftBlocks) {
        if !self.is_noting() || blocks == LeftBlocks::default() {
            return;
        }
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::SpanLeftOut) && blocks.data == 1 {
            return;
        }
        let mut part = self.parts[part_of(left.inode)].lock();
        let key = (left.end, left.birth);
        let is_noted = match part.entry((left.inode, left.incarnation)) {
            Entry::Occupied(mut of_one) => of_one.get_mut().add(key, blocks, &self.count),
            Entry::Vacant(_) if !has_room(&self.count) => false,
            Entry::Vacant(place) => {
                place.insert(OfOne { first: (key, blocks), more: BTreeMap::new() });
                true
            }
        };
        if !is_noted {
            self.lose();
        }
    }

    /// Makes a note, if anybody wants it, that some block which only versions of this inode have in its chain
    /// may have further references. Called behind the change that makes it so.
    pub fn note_sharing(&self, inode: InodeNo, incarnation: Incarnation) {
        if !self.is_noting() {
            return;
        }
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::SharingUnnoted) {
            return;
        }
        let mut sharing = self.sharing.lock();
        match sharing.len() >= NOTES_MOST && !sharing.contains(&(inode, incarnation)) {
            true => self.lose(),
            false => drop(sharing.insert((inode, incarnation))),
        }
    }

    /// Takes out which inodes have been noted so.
    pub fn take_sharing(&self) -> Sharing {
        std::mem::take(&mut *self.sharing.lock())
    }

    /// Something cannot be noted: the notes no longer say everything.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// Whether something was not noted.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// How many notes there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is nothing that somebody who adds the notes up has not seen.
    pub fn is_empty(&self) -> bool {
        !self.is_lost() && self.count() == 0 && self.sharing.lock().is_empty()
    }

    /// Takes all notes out.
    pub fn take(&self) -> Notes {
        let mut all = Notes::new();
        for part in &self.parts {
            let part = std::mem::take(&mut *part.lock());
            let before = all.len();
            for ((inode, incarnation), of_one) in &part {
                let notes = of_one.all().map(|((end, birth), blocks)| {
                    (Left { inode: *inode, incarnation: *incarnation, end, birth }, blocks)
                });
                all.extend(notes);
            }
            self.count.fetch_sub(all.len() - before, Ordering::Relaxed);
        }
        all
    }

    /// Drops the notes of what versions of an inode have that ended in `from..to`.
    pub fn forget(&self, inode: InodeNo, incarnation: Incarnation, from: EventNo, to: EventNo) {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::SpanTwice) {
            return;
        }
        self.take_of(inode, incarnation, from, to);
    }

    /// Takes out the notes of what versions of an inode have that ended in `from..to`.
    pub fn take_of(&self, inode: InodeNo, incarnation: Incarnation, from: EventNo, to: EventNo) -> Notes {
        if from >= to {
            return Notes::new();
        }
        let mut part = self.parts[part_of(inode)].lock();
        let Some(of_one) = part.get_mut(&(inode, incarnation)) else { return Notes::new() };
        let at = |end: EventNo| (end, EventNo(0));
        let is_found = |(end, _): EndAndBirth| (from..to).contains(&end);
        let mut found: Vec<_> = of_one.more.range(at(from)..at(to)).map(|(key, sum)| (*key, *sum)).collect();
        found.iter().for_each(|(key, _)| {
            of_one.more.remove(key);
        });
        if is_found(of_one.first.0) {
            found.push(of_one.first);
            match of_one.more.pop_first() {
                Some(next) => of_one.first = next,
                None => drop(part.remove(&(inode, incarnation))),
            }
        }
        drop(part);
        self.count.fetch_sub(found.len(), Ordering::Relaxed);
        let left = |(end, birth)| Left { inode, incarnation, end, birth };
        found.into_iter().map(|(key, blocks)| (left(key), blocks)).collect()
    }
}

fn part_of(inode: InodeNo) -> usize {
    (inode.0 / 16) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(inode: u64, end: u64, birth: u64) -> Left {
        Left { inode: InodeNo(inode), incarnation: Incarnation(1), end: EventNo(end), birth: EventNo(birth) }
    }

    const ONE: LeftBlocks = LeftBlocks { data: 1, nodes: 0 };

    #[test]
    fn notes_are_made_while_somebody_wants_them() {
        let notes = LeftNotes::default();
        notes.note(left(7, 3, 1), ONE);
        assert_eq!(notes.count(), 0);
        notes.begin();
        notes.note(left(7, 3, 1), ONE);
        notes.note(left(7, 3, 1), LeftBlocks { data: 2, nodes: 5 });
        notes.note(left(7, 4, 1), ONE);
        notes.note(left(8, 3, 1), ONE);
        notes.forget(InodeNo(7), Incarnation(1), EventNo(4), EventNo(u64::MAX));
        notes.forget(InodeNo(8), Incarnation(2), EventNo(0), EventNo(u64::MAX));
        assert_eq!(notes.count(), 2);
        let taken: Vec<_> = notes.take().into_iter().collect();
        assert_eq!(taken, [(left(7, 3, 1), LeftBlocks { data: 3, nodes: 5 }), (left(8, 3, 1), ONE)]);
        assert_eq!((notes.count(), notes.is_lost()), (0, false));
        notes.end();
        notes.note(left(7, 3, 1), ONE);
        assert_eq!(notes.count(), 0);
    }

    #[test]
    fn which_inodes_share_is_noted_once_each() {
        let notes = LeftNotes::default();
        notes.note_sharing(InodeNo(7), Incarnation(1));
        assert!(notes.take_sharing().is_empty());
        notes.begin();
        notes.note_sharing(InodeNo(7), Incarnation(1));
        notes.note_sharing(InodeNo(7), Incarnation(1));
        notes.note_sharing(InodeNo(7), Incarnation(2));
        assert_eq!(notes.take_sharing().len(), 2);
        for inode in 0..=NOTES_MOST as u64 {
            assert!(!notes.is_lost());
            notes.note_sharing(InodeNo(inode), Incarnation(1));
        }
        assert!(notes.is_lost());
        notes.begin();
        assert!(notes.take_sharing().is_empty());
    }

    #[test]
    fn notes_of_one_chain_are_taken() {
        let notes = LeftNotes::default();
        notes.begin();
        for (inode, end) in [(7, 3), (7, 4), (7, 9), (8, 4)] {
            notes.note(left(inode, end, 1), ONE);
        }
        let taken = notes.take_of(InodeNo(7), Incarnation(1), EventNo(3), EventNo(9));
        assert_eq!(taken.into_keys().collect::<Vec<_>>(), [left(7, 3, 1), left(7, 4, 1)]);
        assert_eq!(notes.take().into_keys().collect::<Vec<_>>(), [left(7, 9, 1), left(8, 4, 1)]);
        assert_eq!(notes.count(), 0);
    }

    #[test]
    fn notes_beyond_the_bound_are_lost() {
        let notes = LeftNotes::default();
        notes.begin();
        for inode in 0..NOTES_MOST as u64 {
            notes.note(left(inode, 3, 1), ONE);
        }
        assert!(!notes.is_lost());
        notes.note(left(7, 3, 1), ONE);
        assert!(!notes.is_lost(), "one more of the same");
        notes.note(left(7, 3, 2), ONE);
        assert!(notes.is_lost() && notes.count() == NOTES_MOST);
        notes.begin();
        assert!(!notes.is_lost() && notes.count() == 0);
    }
}
