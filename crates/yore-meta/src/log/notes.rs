//! File data noted in the log. [`NotedFiles`] is what replaying notes leaves. Both sides use it: while a
//! volume is open it says what is outstanding, and a mount builds it from the records. [`Notes`] adds the
//! notes that no record has yet.

use std::collections::BTreeMap;
use yore_device::SharedBuf;
use yore_format::{encode_note, Incarnation, InodeNo, IntentNote, BLOCK_SIZE};

/// An inode, and which use of its number is meant.
pub(crate) type File = (InodeNo, Incarnation);

/// Bytes of a page that can be truncated.
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
    /// Notes a page of a file that has this size.
    pub(crate) fn data(&mut self, file: File, size: u64, page: u32, bytes: B) {
        let is_new = self.size(file, size).pages.insert(page, bytes).is_none();
        self.pages += usize::from(is_new);
    }

    /// Notes that the file has this size.
    pub(crate) fn size(&mut self, file: File, size: u64) -> &mut NotedFile<B> {
        let noted = self.files.entry(file).or_insert_with(|| NotedFile { size, pages: BTreeMap::new() });
        noted.size = size;
        noted
    }

    /// Notes that the file was truncated to `size`, or (0) that nothing of it is outstanding.
    pub(crate) fn truncate(&mut self, file: File, size: u64) {
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

    /// Counts noted pages, and the files that they are of.
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

/// Bytes that a page of outstanding data takes in the log: itself, its note, and its share of heads and
/// frames.
const PAGE_RECORD_BYTES: usize = BLOCK_SIZE + 96;
/// Bytes that a file takes if only its size is outstanding.
const FILE_RECORD_BYTES: usize = 64;

/// Notes of an open volume.
#[derive(Default)]
pub(crate) struct Notes {
    /// Those that no record has yet.
    bytes: Vec<u8>,
    count: u32,
    /// What would be lost with the log: a replay of all notes made so far leaves this.
    outstanding: NotedFiles<NotedBytes>,
}

/// A page's memory, and how many of its bytes count.
#[derive(Clone)]
pub(crate) struct NotedBytes(SharedBuf, usize);

impl NotedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Trim for NotedBytes {
    fn trim(&mut self, len: usize) {
        self.1 = self.1.min(len);
    }
}

impl Notes {
    /// Whether something was noted that no record has.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Notes pages of a file, unless more than `most` bytes would be outstanding then.
    pub(crate) fn data(
        &mut self,
        (inode, incarnation): File,
        size: u64,
        pages: &[(u32, SharedBuf)],
        most: usize,
    ) -> bool {
        if self.outstanding_bytes() + FILE_RECORD_BYTES + pages.len() * PAGE_RECORD_BYTES > most {
            return false;
        }
        for (page, bytes) in pages {
            let valid =
                size.saturating_sub(u64::from(*page) * BLOCK_SIZE as u64).min(BLOCK_SIZE as u64) as usize;
            self.encode(&IntentNote::Data { inode, incarnation, size, page: *page, bytes: &bytes[..valid] });
            self.outstanding.data((inode, incarnation), size, *page, NotedBytes(bytes.clone(), valid));
        }
        true
    }

    /// Calls `f` with the notes that no record has: their number, and their bytes. They count as logged then.
    pub(crate) fn log(&mut self, f: impl FnOnce(u32, &[u8])) {
        f(self.count, &self.bytes);
        self.bytes.clear();
        self.count = 0;
    }

    /// The running generation is frozen. No record need have the notes that none has yet: their data is in
    /// the generation, or outstanding. Returns what is outstanding.
    pub(crate) fn freeze(&mut self) -> NotedFiles<NotedBytes> {
        self.bytes.clear();
        self.count = 0;
        self.outstanding.clone()
    }

    fn encode(&mut self, note: &IntentNote<'_>) {
        encode_note(note, &mut self.bytes);
        self.count += 1;
    }

    /// Bytes that outstanding data takes in records. A file counts beside its pages: it stays when all of
    /// them were truncated, for its size may be nowhere else.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        let (pages, files) = self.outstanding.count();
        pages * PAGE_RECORD_BYTES + files * FILE_RECORD_BYTES
    }

    /// Notes that something is no longer outstanding.
    pub(crate) fn take_back(&mut self, note: &IntentNote<'_>) {
        match *note {
            IntentNote::Truncated { inode, incarnation, size } => {
                self.outstanding.truncate((inode, incarnation), size)
            }
            IntentNote::Data { .. } => unreachable!("data is noted with its memory"),
        }
        self.encode(note);
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
        noted.truncate(file, 9_000);
        let (_, left) = noted.iter().next().unwrap();
        assert_eq!((left.size, left.pages[&2].len()), (9_000, 808));
        noted.truncate(file, 8_192);
        assert_eq!(noted.iter().next().unwrap().1.size, 8_192);
        assert_eq!(noted.count(), (1, 1));
        noted.truncate(file, 0);
        assert!(noted.is_empty());
        assert_eq!(noted.count(), (0, 0));
    }
}
