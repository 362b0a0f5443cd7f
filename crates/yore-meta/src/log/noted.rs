//! File data noted in the log, as replaying the notes leaves it. One account for both sides: while a volume is open it says
//! what is outstanding, and a mount makes it from the records.

use std::collections::BTreeMap;
use yore_format::{Incarnation, InodeNo, BLOCK_SIZE};

/// An inode, and which use of its number is meant.
pub(crate) type File = (InodeNo, Incarnation);

/// Bytes of a page that can be cut short.
pub(crate) trait Trim {
    /// Keeps at most the first `len` bytes.
    fn trim(&mut self, len: usize);
}

impl Trim for Vec<u8> {
    fn trim(&mut self, len: usize) {
        self.truncate(len);
    }
}

/// What is noted of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedFile<B> {
    /// The file has at least this size.
    pub size: u64,
    /// Pages, by index: their first bytes; the rest is zeros.
    pub pages: BTreeMap<u32, B>,
}

/// What is noted of all files.
#[derive(Clone)]
pub(crate) struct NotedFiles<B> {
    files: BTreeMap<File, NotedFile<B>>,
    /// Pages of all of them.
    pages: usize,
}

impl<B> Default for NotedFiles<B> {
    fn default() -> Self {
        NotedFiles { files: BTreeMap::new(), pages: 0 }
    }
}

impl<B: Trim> NotedFiles<B> {
    /// A page of a file that has this size.
    pub(crate) fn data(&mut self, file: File, size: u64, page: u32, bytes: B) {
        let is_new = self.size(file, size).pages.insert(page, bytes).is_none();
        self.pages += usize::from(is_new);
    }

    /// The file has this size.
    pub(crate) fn size(&mut self, file: File, size: u64) -> &mut NotedFile<B> {
        let noted = self.files.entry(file).or_insert_with(|| NotedFile { size, pages: BTreeMap::new() });
        noted.size = size;
        noted
    }

    /// The file was cut to `size`, or (0) nothing of it is outstanding.
    pub(crate) fn cut(&mut self, file: File, size: u64) {
        if size == 0 {
            self.pages -= self.files.remove(&file).map_or(0, |noted| noted.pages.len());
            return;
        }
        let Some(noted) = self.files.get_mut(&file) else { return };
        let block = BLOCK_SIZE as u64;
        noted.size = noted.size.min(size);
        if let Ok(end) = u32::try_from(size.div_ceil(block)) {
            self.pages -= noted.pages.split_off(&end).len();
        }
        if let Some(bytes) = u32::try_from(size / block).ok().and_then(|last| noted.pages.get_mut(&last)) {
            bytes.trim((size % block) as usize);
        }
    }

    /// How many pages are noted, and of how many files.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.pages, self.files.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&File, &NotedFile<B>)> {
        self.files.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn into_map(self) -> BTreeMap<File, NotedFile<B>> {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_take_back_what_they_say_and_no_more() {
        let file = (InodeNo::ROOT, Incarnation(1));
        let mut noted = NotedFiles::default();
        noted.data(file, 12_000, 0, vec![1; 4096]);
        noted.data(file, 12_000, 2, vec![3; 3808]);
        noted.data(file, 12_000, 2, vec![4; 3808]);
        assert_eq!(noted.count(), (2, 1));
        noted.cut(file, 9_000);
        let (_, left) = noted.iter().next().unwrap();
        assert_eq!((left.size, left.pages[&2].len()), (9_000, 808));
        noted.cut(file, 8_192);
        assert_eq!(noted.iter().next().unwrap().1.size, 8_192);
        assert_eq!(noted.count(), (1, 1));
        noted.cut(file, 0);
        assert!(noted.is_empty());
        assert_eq!(noted.count(), (0, 0));
    }
}
