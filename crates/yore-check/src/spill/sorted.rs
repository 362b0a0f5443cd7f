//! Sorted lists of records. A record has a key and a value, which may be any bytes.
//!
//! A [`Sorter`] takes records in any order. When its share is used up, it sorts the records that it has and
//! writes them to a file as a *run*. In the end it merges runs until one is left. It merges as many at a time
//! as its share has blocks for, but no fewer than 8 and no more than 16. So a list of any length takes the
//! memory of its share, or of nine blocks if that is more. Its files take at most twice the bytes of the
//! list. Records are in the order of their keys, and records of one key in the order of their values.
//!
//! A file has blocks of one size with whole records in each. So a binary search that reads the beginnings of
//! blocks needs no index in memory. Searches for ascending keys mostly stay in one block. In memory there is
//! an index with the beginnings of keys, and a search begins where the last one ended. Several threads may
//! search one list.

use super::overflow::{failed, Overflow};
use crate::CheckError;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// Bytes of a block in a file. A record fits into one.
const BLOCK: usize = 8 << 10;
/// Bytes in front of the records of a block, which say how many bytes the records have.
const BLOCK_HEAD: usize = 2;
/// Bytes in front of a record, which say how many bytes its key and its value have.
const HEAD: usize = 4;
/// The most bytes of a key, and of key and value together.
const KEY_MAX: usize = 500;
const RECORD_MAX: usize = BLOCK - BLOCK_HEAD - HEAD;
/// Bytes of memory that are allocated at a time.
const CHUNK: usize = 16 << 10;
/// The least share.
const LEAST: usize = 4 << 10;
/// How many runs are merged at a time: the least, and the most.
const MERGED: std::ops::RangeInclusive<usize> = 8..=16;

/// Key and value.
type Pair<'b> = (&'b [u8], &'b [u8]);

/// Where a record begins in memory, and how its key begins: two keys that begin differently need not be
/// looked at to be compared.
#[derive(Clone, Copy)]
struct Spot {
    /// The first eight bytes of the key, filled up with zeros.
    beginning: u64,
    chunk: u32,
    byte: u32,
}

/// Records in memory.
#[derive(Default)]
pub(crate) struct Records {
    chunks: Vec<Vec<u8>>,
    at: Vec<Spot>,
    bytes: usize,
    /// Where the last search ended, of whichever thread.
    last: AtomicUsize,
}

impl Records {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        let need = HEAD + key.len() + value.len();
        if self.chunks.last().is_none_or(|chunk| chunk.len() + need > CHUNK) {
            // Most lists are short, so the first chunk grows as it is filled.
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        self.at.push(Spot { beginning: beginning(key), chunk: number as u32, byte: chunk.len() as u32 });
        chunk.extend((key.len() as u16).to_le_bytes());
        chunk.extend((value.len() as u16).to_le_bytes());
        chunk.extend(key);
        chunk.extend(value);
        self.bytes += need + size_of::<Spot>();
    }

    fn get(&self, i: usize) -> Pair<'_> {
        Self::at(&self.chunks, self.at[i])
    }

    fn at(chunks: &[Vec<u8>], spot: Spot) -> Pair<'_> {
        record(&chunks[spot.chunk as usize][spot.byte as usize..])
    }

    fn sort(&mut self) {
        let chunks = &self.chunks;
        self.at.sort_unstable_by(|a, b| {
            let beginnings = a.beginning.cmp(&b.beginning);
            beginnings.then_with(|| Self::at(chunks, *a).cmp(&Self::at(chunks, *b)))
        });
    }

    /// Where the first record of this key or a greater one is. Looks near the place where the last search
    /// ended first, so that a search for the next key or the same one is short.
    fn position(&self, key: &[u8]) -> usize {
        let begins = beginning(key);
        let is_below = |spot: &Spot| match spot.beginning.cmp(&begins) {
            Ordering::Equal => Self::at(&self.chunks, *spot).0 < key,
            beginnings => beginnings.is_lt(),
        };
        // Invariant: what is before `low` is below, and what is from `high` on is not.
        let (mut low, mut high) = (0, self.at.len());
        let (mut step, mut next) = (1, self.last.load(Relaxed).min(high.saturating_sub(1)));
        while low <= next && next < high {
            match is_below(&self.at[next]) {
                true => (low, next) = (next + 1, next + step),
                false => (high, next) = (next, next.wrapping_sub(step)),
            }
            step *= 2;
        }
        let at = low + self.at[low..high].partition_point(is_below);
        self.last.store(at, Relaxed);
        at
    }

    fn append(&mut self, other: Records) {
        let before = self.chunks.len() as u32;
        self.chunks.extend(other.chunks);
        self.at.extend(other.at.into_iter().map(|spot| Spot { chunk: before + spot.chunk, ..spot }));
        self.bytes += other.bytes;
    }
}

/// The first eight bytes of a key, so that they compare as it does.
fn beginning(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// The record that begins here.
fn record(bytes: &[u8]) -> Pair<'_> {
    let length = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    bytes[HEAD..HEAD + length(0) + length(2)].split_at(length(0))
}

/// A list that is being filled.
pub(crate) struct Sorter {
    share: usize,
    records: Records,
    runs: VecDeque<Run>,
    file: Option<Overflow>,
}

impl Sorter {
    /// An empty one that may use so much memory.
    pub(crate) fn new(share: usize) -> Sorter {
        Sorter { share: share.max(LEAST), records: Records::default(), runs: VecDeque::new(), file: None }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], as for all that follow.
    ///
    /// # Panics
    /// For a record that does not fit into a block. The format has none.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), CheckError> {
        assert!(key.len() <= KEY_MAX && key.len() + value.len() <= RECORD_MAX, "a record fits into a block");
        self.records.push(key, value);
        if self.records.bytes > self.share {
            self.end_run()?;
        }
        Ok(())
    }

    /// Takes all records of another one, and its share.
    pub(crate) fn append(&mut self, other: Sorter) {
        self.share = self.share.saturating_add(other.share);
        self.records.append(other.records);
        // Each run keeps its own file open.
        self.runs.extend(other.runs);
    }

    fn end_run(&mut self) -> Result<(), CheckError> {
        let mut records = std::mem::take(&mut self.records);
        records.sort();
        let mut writer = RunWriter::new(Overflow::of(&mut self.file)?);
        for i in 0..records.at.len() {
            writer.push(records.get(i))?;
        }
        self.runs.push_back(writer.end()?);
        Ok(())
    }

    /// Puts all in order.
    pub(crate) fn into_sorted(mut self) -> Result<Sorted, CheckError> {
        if self.runs.is_empty() {
            self.records.sort();
            return Ok(Sorted::Memory(self.records));
        }
        if !self.records.at.is_empty() {
            self.end_run()?;
        }
        drop(self.file);
        // Each run that is merged has a block in memory, and so has the merged one.
        let most = (self.share / BLOCK).saturating_sub(1).clamp(*MERGED.start(), *MERGED.end());
        while self.runs.len() > 1 {
            // One pass merges all runs into a new file. The old one goes with the last of its runs.
            let (mut file, mut merged) = (Overflow::new()?, VecDeque::new());
            while !self.runs.is_empty() {
                let some: Vec<Run> = self.runs.drain(..most.min(self.runs.len())).collect();
                merged.push_back(merge(&some, &mut file)?);
            }
            self.runs = merged;
        }
        Ok(self.runs.pop_front().map_or(Sorted::Memory(Records::default()), Sorted::File))
    }
}

/// Merges runs into one.
fn merge(runs: &[Run], file: &mut Overflow) -> Result<Run, CheckError> {
    let mut writer = RunWriter::new(file);
    let mut cursors = Vec::with_capacity(runs.len());
    for run in runs {
        cursors.push(RunCursor::at_block(run, 0)?);
    }
    loop {
        let least = cursors.iter().enumerate().filter_map(|(i, cursor)| Some((cursor.get()?, i))).min();
        let Some((pair, i)) = least else { break };
        writer.push(pair)?;
        cursors[i].advance()?;
    }
    writer.end()
}

/// Records in order, in blocks of a file.
pub(crate) struct Run {
    file: Arc<File>,
    /// Where the first block begins.
    from: u64,
    blocks: u64,
    /// The block in which the last search ended, of whichever thread.
    last: AtomicU64,
}

/// Writes a run.
struct RunWriter<'f> {
    file: &'f mut Overflow,
    from: u64,
    block: Vec<u8>,
}

impl<'f> RunWriter<'f> {
    fn new(file: &'f mut Overflow) -> RunWriter<'f> {
        let from = file.end;
        RunWriter { file, from, block: vec![0; BLOCK_HEAD] }
    }

    fn push(&mut self, (key, value): Pair<'_>) -> Result<(), CheckError> {
        if self.block.len() + HEAD + key.len() + value.len() > BLOCK {
            self.end_block()?;
        }
        self.block.extend((key.len() as u16).to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend(key);
        self.block.extend(value);
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), CheckError> {
        let used = (self.block.len() - BLOCK_HEAD) as u16;
        self.block[..BLOCK_HEAD].copy_from_slice(&used.to_le_bytes());
        self.block.resize(BLOCK, 0);
        self.file.append(&self.block)?;
        self.block.truncate(BLOCK_HEAD);
        Ok(())
    }

    fn end(mut self) -> Result<Run, CheckError> {
        if self.block.len() > BLOCK_HEAD {
            self.end_block()?;
        }
        let blocks = (self.file.end - self.from) / BLOCK as u64;
        Ok(Run { file: self.file.file.clone(), from: self.from, blocks, last: AtomicU64::new(0) })
    }
}

impl Run {
    fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), CheckError> {
        self.file.read_exact_at(bytes, self.from + block * BLOCK as u64).map_err(failed)
    }

    /// Compares the first key of a block with another one.
    fn compare_first(&self, block: u64, key: &[u8]) -> Result<Ordering, CheckError> {
        let mut bytes = [0; BLOCK_HEAD + HEAD + KEY_MAX];
        self.read(block, &mut bytes)?;
        let bytes = &bytes[BLOCK_HEAD..];
        let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        Ok(bytes[HEAD..HEAD + length].cmp(key))
    }

    /// The block in which the first record of this key or a greater one is, unless it begins the next block.
    fn block_of(&self, key: &[u8]) -> Result<u64, CheckError> {
        let is_below = |block: u64| Ok::<bool, CheckError>(self.compare_first(block, key)?.is_lt());
        let last = self.last.load(Relaxed);
        if is_below(last)? && (last + 1 == self.blocks || !is_below(last + 1)?) {
            return Ok(last);
        }
        // Invariant: block `low` is below, or is block 0. Block `high` is not, or is behind the last one.
        let (mut low, mut high) = (0, self.blocks);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match is_below(middle)? {
                true => low = middle,
                false => high = middle,
            }
        }
        self.last.store(low, Relaxed);
        Ok(low)
    }
}

/// A place in a run.
struct RunCursor<'r> {
    run: &'r Run,
    number: u64,
    /// The records of the block.
    block: Vec<u8>,
    at: usize,
}

impl<'r> RunCursor<'r> {
    fn at_block(run: &'r Run, number: u64) -> Result<RunCursor<'r>, CheckError> {
        let mut cursor = RunCursor { run, number, block: Vec::new(), at: 0 };
        cursor.load()?;
        Ok(cursor)
    }

    fn load(&mut self) -> Result<(), CheckError> {
        self.at = 0;
        self.block.clear();
        if self.number < self.run.blocks {
            self.block.resize(BLOCK, 0);
            self.run.read(self.number, &mut self.block)?;
            let used = usize::from(u16::from_le_bytes([self.block[0], self.block[1]]));
            self.block.truncate(BLOCK_HEAD + used);
            self.at = BLOCK_HEAD;
        }
        Ok(())
    }

    fn get(&self) -> Option<Pair<'_>> {
        (self.at < self.block.len()).then(|| record(&self.block[self.at..]))
    }

    fn advance(&mut self) -> Result<(), CheckError> {
        let Some((key, value)) = self.get() else { return Ok(()) };
        self.at += HEAD + key.len() + value.len();
        if self.at == self.block.len() {
            self.number += 1;
            self.load()?;
        }
        Ok(())
    }
}

/// A list in order.
pub(crate) enum Sorted {
    Memory(Records),
    File(Run),
}

impl Default for Sorted {
    fn default() -> Sorted {
        Sorted::Memory(Records::default())
    }
}

impl Sorted {
    /// A cursor at the first record.
    pub(crate) fn all(&self) -> Result<Cursor<'_>, CheckError> {
        Ok(Cursor(match self {
            Sorted::Memory(records) => Place::Memory(records, 0),
            Sorted::File(run) => Place::File(RunCursor::at_block(run, 0)?),
        }))
    }

    /// A cursor at the first record of this key or a greater one.
    pub(crate) fn from(&self, key: &[u8]) -> Result<Cursor<'_>, CheckError> {
        match self {
            Sorted::Memory(records) => Ok(Cursor(Place::Memory(records, records.position(key)))),
            Sorted::File(run) => {
                let mut cursor = RunCursor::at_block(run, run.block_of(key)?)?;
                while cursor.get().is_some_and(|(of, _)| of < key) {
                    cursor.advance()?;
                }
                Ok(Cursor(Place::File(cursor)))
            }
        }
    }

    /// The last of the values under a key.
    pub(crate) fn last_of(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CheckError> {
        self.from(key)?.last_of(key)
    }
}

/// A place in a list.
pub(crate) struct Cursor<'s>(Place<'s>);

enum Place<'s> {
    Memory(&'s Records, usize),
    File(RunCursor<'s>),
}

impl Cursor<'_> {
    /// Key and value of the record here; `None` behind the last one.
    pub(crate) fn get(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            Place::Memory(records, at) => (*at < records.at.len()).then(|| records.get(*at)),
            Place::File(cursor) => cursor.get(),
        }
    }

    /// The last of the values under a key of which the first is here, if there is any.
    pub(crate) fn last_of(mut self, key: &[u8]) -> Result<Option<Vec<u8>>, CheckError> {
        let mut last = None;
        while let Some((_, value)) = self.get().filter(|(of, _)| *of == key) {
            last = Some(value.to_vec());
            self.advance()?;
        }
        Ok(last)
    }

    /// Goes on to the next one.
    pub(crate) fn advance(&mut self) -> Result<(), CheckError> {
        match &mut self.0 {
            Place::Memory(_, at) => {
                *at += 1;
                Ok(())
            }
            Place::File(cursor) => cursor.advance(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> Vec<u8> {
        (i * 2).to_be_bytes().to_vec()
    }

    fn value(i: u64) -> Vec<u8> {
        vec![i as u8; (i % 300) as usize]
    }

    /// `count` keys with two records each. Two sorters take them in an order that jumps back and forth, and
    /// one then takes over what the other has.
    fn list(count: u64, share: usize) -> Sorted {
        let mut sorters = [Sorter::new(share), Sorter::new(share)];
        for i in (0..count).map(|i| i * 7919 % count.max(1)) {
            sorters[(i % 2) as usize].push(&key(i), &value(i + 1)).unwrap();
            sorters[(i % 3 % 2) as usize].push(&key(i), &value(i)).unwrap();
        }
        let [mut sorter, other] = sorters;
        sorter.append(other);
        sorter.into_sorted().unwrap()
    }

    /// Promises that a list has all records in order, and that each key is found, whether it is in memory or,
    /// after several passes over its runs, in a file.
    #[test]
    fn records_are_in_order() {
        for (count, share, in_file) in [(0, 0, false), (1, 0, false), (9000, 0, true), (9000, 1 << 30, false)]
        {
            let list = list(count, share);
            assert_eq!(matches!(list, Sorted::File(_)), in_file);
            let mut cursor = list.all().unwrap();
            for i in 0..count {
                let mut values = [value(i), value(i + 1)];
                values.sort();
                for value in values {
                    assert_eq!(cursor.get(), Some((&key(i)[..], &value[..])));
                    cursor.advance().unwrap();
                }
            }
            assert_eq!(cursor.get(), None);
            // From here to there, upwards and downwards.
            let jumps = (0..count).map(|i| i * 1237 % count);
            for i in jumps.chain(0..count).chain((0..count).rev()) {
                let between = (i * 2 + 1).to_be_bytes();
                assert_eq!(list.from(&key(i)).unwrap().get().map(|(of, _)| of.to_vec()), Some(key(i)));
                let next = list.from(&between).unwrap().get().map(|(of, _)| of.to_vec());
                assert_eq!(next, (i + 1 < count).then(|| key(i + 1)));
                assert_eq!(list.last_of(&key(i)).unwrap(), Some(value(i).max(value(i + 1))));
                assert_eq!(list.last_of(&between).unwrap(), None);
            }
        }
    }
}
