//! Files of which some part is perhaps scattered over the medium, and which are to be looked at when nobody
//! works. Whoever enters new extents, or reads ahead over many, notes them. There are not many: what is not
//! noted because there was no room is noted again when it is written or read the next time.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use yore_format::{Incarnation, InodeNo};

/// How many files are noted at most.
const FILES_MOST: usize = 1024;

/// A file, and which of its blocks are to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its number.
    pub no: InodeNo,
    /// Which of the files that have had this number it is.
    pub incarnation: Incarnation,
    /// The blocks.
    pub blocks: Range<u64>,
}

/// The noted files. Its lock is a leaf.
#[derive(Default)]
pub struct ScatteredFiles {
    files: Mutex<BTreeMap<InodeNo, (Incarnation, Range<u64>)>>,
    count: AtomicUsize,
}

impl ScatteredFiles {
    /// Notes blocks of a file.
    pub fn note(&self, no: InodeNo, incarnation: Incarnation, blocks: Range<u64>) {
        let mut files = self.files.lock();
        let is_room = files.len() < FILES_MOST;
        match files.get_mut(&no) {
            Some((noted, of)) if *noted == incarnation => {
                *of = of.start.min(blocks.start)..of.end.max(blocks.end);
            }
            Some(other) => *other = (incarnation, blocks),
            None if is_room => drop(files.insert(no, (incarnation, blocks))),
            None => {}
        }
        self.count.store(files.len(), Ordering::Relaxed);
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The first file whose number is greater than `after`, or else the first of all.
    pub fn next(&self, after: InodeNo) -> Option<Noted> {
        let files = self.files.lock();
        let behind = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let (no, (incarnation, blocks)) = files.range(behind).next().or_else(|| files.iter().next())?;
        Some(Noted { no: *no, incarnation: *incarnation, blocks: blocks.clone() })
    }

    /// The blocks before `until` were looked at. What was noted before them meanwhile stays noted.
    pub fn done(&self, examined: &mut Noted, until: u64) {
        let mut files = self.files.lock();
        let Some((incarnation, blocks)) = files.get_mut(&examined.no) else { return };
        if *incarnation != examined.incarnation || blocks.start < examined.blocks.start {
            return;
        }
        blocks.start = blocks.start.max(until);
        examined.blocks.start = blocks.start;
        if blocks.is_empty() {
            files.remove(&examined.no);
        }
        self.count.store(files.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is noted is handed out until it was looked at; what is noted meanwhile is not lost; there is a
    /// limit.
    #[test]
    fn what_is_noted_is_handed_out() {
        let files = ScatteredFiles::default();
        assert!(files.is_empty() && files.next(InodeNo(0)).is_none());
        files.note(InodeNo(7), Incarnation(1), 10..20);
        files.note(InodeNo(9), Incarnation(1), 0..5);
        files.note(InodeNo(7), Incarnation(1), 15..30);
        let mut seven = files.next(InodeNo(0)).unwrap();
        assert_eq!((seven.no, seven.blocks.clone()), (InodeNo(7), 10..30));
        assert_eq!(files.next(seven.no).unwrap().no, InodeNo(9));
        assert_eq!(files.next(InodeNo(9)).unwrap().no, InodeNo(7));
        files.done(&mut seven, 18);
        assert_eq!(files.next(InodeNo(0)).unwrap().blocks, 18..30);
        files.note(InodeNo(7), Incarnation(1), 2..3);
        files.done(&mut seven, 30);
        assert_eq!(files.next(InodeNo(0)).unwrap().blocks, 2..30, "noted meanwhile");
        files.note(InodeNo(7), Incarnation(2), 1..2);
        files.done(&mut seven, 99);
        let mut another = files.next(InodeNo(0)).unwrap();
        assert_eq!((another.incarnation, another.blocks.clone()), (Incarnation(2), 1..2));
        files.done(&mut another, 2);
        assert_eq!(files.next(InodeNo(0)).unwrap().no, InodeNo(9));
        for no in 100..100 + 2 * FILES_MOST as u64 {
            files.note(InodeNo(no), Incarnation(1), 0..1);
        }
        assert_eq!(files.files.lock().len(), FILES_MOST);
    }
}
