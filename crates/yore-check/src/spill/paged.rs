//! Records of one size in ascending order of their keys. They are found by key and changed in place.
//!
//! Records are in pages. As many pages are in memory as the share has room for. The clock algorithm chooses
//! the page that leaves memory: its hand skips a page that was used since the hand last passed it. Page `n`
//! is at byte `n` · [`PAGE`] of the file. Of a page that is not in memory, its first key and a null pointer
//! stay there.

use super::overflow::Overflow;
use crate::CheckError;
use std::cell::{Cell, RefCell};

/// Bytes of a page in the file at most.
const PAGE: usize = 4 << 10;
/// The least share: pages.
const LEAST: usize = 2;

/// A record of a list.
pub(crate) trait Record: Clone {
    /// Bytes in a file.
    const BYTES: usize;

    /// The key. No two records have the same.
    fn key(&self) -> u64;

    /// Encodes it into exactly [`Record::BYTES`] bytes.
    fn put(&self, to: &mut [u8]);

    /// Decodes what `put` has written.
    fn get(from: &[u8]) -> Self;
}

/// A list of records.
pub(crate) struct Paged<R> {
    most: usize,
    len: usize,
    /// The first key of each page.
    first: Vec<u64>,
    /// The page in which a key was found last.
    last: Cell<usize>,
    pages: RefCell<Pages<R>>,
}

struct Pages<R> {
    all: Vec<Option<Box<Page<R>>>>,
    resident: usize,
    hand: usize,
    file: Option<Overflow>,
}

struct Page<R> {
    records: Vec<R>,
    is_changed: bool,
    is_used: bool,
}

impl<R: Record> Paged<R> {
    const PER_PAGE: usize = PAGE / R::BYTES;

    /// An empty list that may use so many bytes.
    pub(crate) fn new(share: usize) -> Paged<R> {
        let most = (share / (Self::PER_PAGE * size_of::<R>())).max(LEAST);
        let pages = Pages { all: Vec::new(), resident: 0, hand: 0, file: None };
        Paged { most, len: 0, first: Vec::new(), last: Cell::new(0), pages: RefCell::new(pages) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a record whose key is greater than all others.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], as for all that follow.
    pub(crate) fn push(&mut self, record: R) -> Result<(), CheckError> {
        let pages = self.pages.get_mut();
        if self.len.is_multiple_of(Self::PER_PAGE) {
            pages.make_room(self.most)?;
            self.first.push(record.key());
            let records = Vec::with_capacity(Self::PER_PAGE);
            pages.all.push(Some(Box::new(Page { records, is_changed: true, is_used: true })));
            pages.resident += 1;
        }
        let page = pages.page(self.len / Self::PER_PAGE, self.len, self.most)?;
        page.records.push(record);
        page.is_changed = true;
        self.len += 1;
        Ok(())
    }

    /// The record at a place below [`Paged::len`].
    pub(crate) fn get(&self, at: usize) -> Result<R, CheckError> {
        let mut pages = self.pages.borrow_mut();
        let page = pages.page(at / Self::PER_PAGE, self.len, self.most)?;
        Ok(page.records[at % Self::PER_PAGE].clone())
    }

    /// Changes the record at a place. Its key stays.
    pub(crate) fn update<T>(&self, at: usize, change: impl FnOnce(&mut R) -> T) -> Result<T, CheckError> {
        let mut pages = self.pages.borrow_mut();
        let page = pages.page(at / Self::PER_PAGE, self.len, self.most)?;
        page.is_changed = true;
        Ok(change(&mut page.records[at % Self::PER_PAGE]))
    }

    /// How many records have lesser keys.
    pub(crate) fn count_below(&self, key: u64) -> Result<usize, CheckError> {
        let Some(at) = self.first.partition_point(|first| *first < key).checked_sub(1) else {
            return Ok(0);
        };
        let mut pages = self.pages.borrow_mut();
        let page = pages.page(at, self.len, self.most)?;
        Ok(at * Self::PER_PAGE + page.records.partition_point(|record| record.key() < key))
    }

    /// Where the record of this key is.
    pub(crate) fn find(&self, key: u64) -> Result<Option<usize>, CheckError> {
        let mut at = self.last.get();
        let begins_by = |page: usize| self.first.get(page).is_some_and(|first| *first <= key);
        if !begins_by(at) || begins_by(at + 1) {
            let Some(page) = self.first.partition_point(|first| *first <= key).checked_sub(1) else {
                return Ok(None);
            };
            at = page;
            self.last.set(at);
        }
        let mut pages = self.pages.borrow_mut();
        let page = pages.page(at, self.len, self.most)?;
        let found = page.records.binary_search_by_key(&key, R::key).ok();
        Ok(found.map(|i| at * Self::PER_PAGE + i))
    }

    /// Calls `each` with all records, in order.
    pub(crate) fn each(&self, mut each: impl FnMut(&R)) -> Result<(), CheckError> {
        for at in 0..self.len {
            each(&self.get(at)?);
        }
        Ok(())
    }
}

impl<R: Record> Pages<R> {
    /// A page of a list of `len` records.
    fn page(&mut self, number: usize, len: usize, most: usize) -> Result<&mut Page<R>, CheckError> {
        if self.all[number].is_none() {
            self.make_room(most)?;
            let count = Paged::<R>::PER_PAGE.min(len - number * Paged::<R>::PER_PAGE);
            let mut bytes = [0; PAGE];
            let bytes = &mut bytes[..count * R::BYTES];
            let file = self.file.as_ref().expect("a page that is not in memory was written");
            file.read((number * PAGE) as u64, bytes)?;
            let mut records = Vec::with_capacity(Paged::<R>::PER_PAGE);
            records.extend(bytes.chunks_exact(R::BYTES).map(R::get));
            self.all[number] = Some(Box::new(Page { records, is_changed: false, is_used: true }));
            self.resident += 1;
        }
        let page = self.all[number].as_mut().expect("it is here");
        page.is_used = true;
        Ok(page)
    }

    /// Makes room for one more page.
    fn make_room(&mut self, most: usize) -> Result<(), CheckError> {
        while self.resident >= most {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.all.len();
            let Some(page) = &mut self.all[number] else { continue };
            if std::mem::take(&mut page.is_used) {
                continue;
            }
            if page.is_changed {
                let mut bytes = [0; PAGE];
                for (record, to) in page.records.iter().zip(bytes.chunks_exact_mut(R::BYTES)) {
                    record.put(to);
                }
                let file = Overflow::of(&mut self.file)?;
                file.write((number * PAGE) as u64, &bytes[..page.records.len() * R::BYTES])?;
            }
            self.all[number] = None;
            self.resident -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Pair(u64, u64);

    impl Record for Pair {
        const BYTES: usize = 16;

        fn key(&self) -> u64 {
            self.0
        }

        fn put(&self, to: &mut [u8]) {
            to[..8].copy_from_slice(&self.0.to_le_bytes());
            to[8..].copy_from_slice(&self.1.to_le_bytes());
        }

        fn get(from: &[u8]) -> Pair {
            let number = |at: usize| u64::from_le_bytes(from[at..at + 8].try_into().unwrap());
            Pair(number(0), number(8))
        }
    }

    /// Promises that a list with hardly any memory is as one with all: what was changed is so when it comes
    /// back, and keys are found or not.
    #[test]
    fn pages_come_back_as_they_were() {
        const COUNT: u64 = 5000;
        for share in [0, usize::MAX] {
            let mut list = Paged::new(share);
            for i in 0..COUNT {
                list.push(Pair(i * 3 + 10, 0)).unwrap();
            }
            // In an order that jumps back and forth.
            for i in (0..COUNT).map(|i| i * 1237 % COUNT) {
                let at = list.find(i * 3 + 10).unwrap().expect("it is there");
                assert_eq!(at as u64, i);
                list.update(at, |pair| pair.1 += i * i).unwrap();
                assert_eq!(list.find(i * 3 + 11).unwrap(), None);
                assert_eq!(list.count_below(i * 3 + 10).unwrap() as u64, i);
                assert_eq!(list.count_below(i * 3 + 11).unwrap() as u64, i + 1);
            }
            assert_eq!(list.count_below(u64::MAX).unwrap() as u64, COUNT);
            assert_eq!((list.find(9).unwrap(), list.count_below(10).unwrap()), (None, 0));
            let mut next = 0;
            list.each(|pair| {
                assert_eq!(*pair, Pair(next * 3 + 10, next * next));
                next += 1;
            })
            .unwrap();
            assert_eq!((next, list.len() as u64), (COUNT, COUNT));
            let pages = list.pages.borrow();
            assert_eq!(pages.file.is_some(), share == 0);
            assert!(share > 0 || pages.resident <= LEAST);
        }
    }
}
