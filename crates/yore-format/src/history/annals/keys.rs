//! The keys of the annals, of their indexes and of the span table, and the short values of all but the
//! annals.
//!
//! Keys are big-endian, so that they sort as bytes. They are shorter than those of the other trees of the
//! past: the number of an event has 6 bytes, that of an inode 5.

use crate::header::{ANNALS_KEY_BYTES, INODE_INDEX_KEY_BYTES, NAME_INDEX_KEY_BYTES, SPAN_KEY_BYTES};
use crate::history::trees::HISTORY_SHARDS;
use crate::varint::{Reader, ShortBytes};
use crate::{Corruption, EventNo, InodeNo, EVENT_LIMIT, INODE_LIMIT};

const EVENT: usize = 6;
const INODE: usize = 5;
const SHARD_BITS: u32 = HISTORY_SHARDS.ilog2();

/// The value of a key of an index or of the span table.
pub type IndexValue = ShortBytes<20>;

fn put_event(to: &mut [u8], number: EventNo) {
    assert!(number.0 < EVENT_LIMIT, "number {number} of an event in a key of {EVENT} bytes");
    to.copy_from_slice(&number.0.to_be_bytes()[8 - EVENT..]);
}

fn put_inode(to: &mut [u8], inode: InodeNo) {
    assert!(inode.0 < INODE_LIMIT, "inode {inode} in a key of {INODE} bytes");
    to.copy_from_slice(&inode.0.to_be_bytes()[8 - INODE..]);
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn key<const N: usize>(what: &'static str, bytes: &[u8]) -> Result<[u8; N], Box<Corruption>> {
    bytes.try_into().map_err(|_| Corruption::new(what, "length of the key", N, bytes.len()))
}

/// How long before `end` something began, as values have it: at least 1.
pub(super) fn put_age<const N: usize>(out: &mut ShortBytes<N>, end: EventNo, began: EventNo) {
    out.number(end.0.wrapping_sub(began.0));
}

/// What began so long before `end`.
pub(super) fn take_age(
    reader: &mut Reader<'_>,
    field: &'static str,
    end: EventNo,
) -> Result<EventNo, Box<Corruption>> {
    match reader.number(field)? {
        age if (1..=end.0).contains(&age) => Ok(EventNo(end.0 - age)),
        age => reader.bad(field, format!("1 to {end} before the end"), age),
    }
}

/// The key of a row of the annals in its shard. Keys ascend in the order in which rows were appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnnalsKey {
    /// The number from which on what the row says no longer held.
    pub end: EventNo,
    /// Counts the rows of the shard with this end, from 0.
    pub sequence: u32,
}

impl AnnalsKey {
    /// Bytes of a key.
    pub const BYTES: usize = ANNALS_KEY_BYTES;
    /// No key is greater.
    pub const MAX: AnnalsKey = AnnalsKey { end: EventNo(u64::MAX), sequence: u32::MAX };

    /// The key as bytes.
    ///
    /// # Panics
    /// For a number from [`EVENT_LIMIT`] on.
    pub fn encode(self) -> [u8; ANNALS_KEY_BYTES] {
        let mut key = [0; ANNALS_KEY_BYTES];
        put_event(&mut key[..EVENT], self.end);
        key[EVENT..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// Decodes a key.
    ///
    /// # Errors
    /// [`Corruption`] for another length.
    pub fn decode(bytes: &[u8]) -> Result<AnnalsKey, Box<Corruption>> {
        let bytes: [u8; ANNALS_KEY_BYTES] = key("annals", bytes)?;
        Ok(AnnalsKey { end: EventNo(number(&bytes[..EVENT])), sequence: number(&bytes[EVENT..]) as u32 })
    }
}

/// A cell of the index by inode: a row that has a state of this inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeIndexCell {
    /// The inode. Its shard has the row.
    pub inode: InodeNo,
    /// The end of the row.
    pub end: EventNo,
    /// The birth of the state.
    pub born: EventNo,
    /// The row among those of its shard with its end.
    pub sequence: u32,
}

impl InodeIndexCell {
    /// The key of the row of `inode` that ended at `end`.
    ///
    /// # Panics
    /// For a number from [`EVENT_LIMIT`] or [`INODE_LIMIT`] on.
    pub fn key(inode: InodeNo, end: EventNo) -> [u8; INODE_INDEX_KEY_BYTES] {
        let mut key = [0; INODE_INDEX_KEY_BYTES];
        put_inode(&mut key[..INODE], inode);
        put_event(&mut key[INODE..], end);
        key
    }

    /// The value.
    pub fn value(&self) -> IndexValue {
        let mut value = ShortBytes::new();
        put_age(&mut value, self.end, self.born);
        value.number(self.sequence.into());
        value
    }

    /// Decodes a cell.
    ///
    /// # Errors
    /// [`Corruption`] for impossible bytes.
    pub fn decode(bytes: &[u8], value: &[u8]) -> Result<InodeIndexCell, Box<Corruption>> {
        const WHAT: &str = "index by inode";
        let bytes: [u8; INODE_INDEX_KEY_BYTES] = key(WHAT, bytes)?;
        let (inode, end) = (InodeNo(number(&bytes[..INODE])), EventNo(number(&bytes[INODE..])));
        let mut reader = Reader::new(WHAT, value);
        let born = take_age(&mut reader, "birth", end)?;
        let sequence = reader.number32("sequence")?;
        reader.end()?;
        Ok(InodeIndexCell { inode, end, born, sequence })
    }
}

/// A cell of the index by name: a row that has a name of this directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameIndexCell {
    /// The directory.
    pub directory: InodeNo,
    /// The cookie that the name had there.
    pub cookie: u64,
    /// The end of the row.
    pub death: EventNo,
    /// The birth of the entry.
    pub birth: EventNo,
    /// The row among those of its shard with its end.
    pub sequence: u32,
    /// The shard that has the row: that of the inode which the name meant.
    pub shard: usize,
}

impl NameIndexCell {
    /// The key of the row of the name with `cookie` in `directory` that ended at `death`.
    ///
    /// # Panics
    /// For a number from [`EVENT_LIMIT`] or [`INODE_LIMIT`] on.
    pub fn key(directory: InodeNo, cookie: u64, death: EventNo) -> [u8; NAME_INDEX_KEY_BYTES] {
        let mut key = [0; NAME_INDEX_KEY_BYTES];
        put_inode(&mut key[..INODE], directory);
        key[INODE..INODE + 8].copy_from_slice(&cookie.to_be_bytes());
        put_event(&mut key[INODE + 8..], death);
        key
    }

    /// The value.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn value(&self) -> IndexValue {
        assert!(
            self.shard < HISTORY_SHARDS,
            "a shard of the history below {HISTORY_SHARDS}, not {}",
            self.shard
        );
        let mut value = ShortBytes::new();
        put_age(&mut value, self.death, self.birth);
        value.number(u64::from(self.sequence) << SHARD_BITS | self.shard as u64);
        value
    }

    /// Decodes a cell.
    ///
    /// # Errors
    /// [`Corruption`] for impossible bytes.
    pub fn decode(bytes: &[u8], value: &[u8]) -> Result<NameIndexCell, Box<Corruption>> {
        const WHAT: &str = "index by name";
        let bytes: [u8; NAME_INDEX_KEY_BYTES] = key(WHAT, bytes)?;
        let (directory, rest) = bytes.split_at(INODE);
        let (cookie, death) = rest.split_at(8);
        let death = EventNo(number(death));
        let mut reader = Reader::new(WHAT, value);
        let birth = take_age(&mut reader, "birth", death)?;
        let start = reader.number("sequence and shard")?;
        let Ok(sequence) = u32::try_from(start >> SHARD_BITS) else {
            return reader.bad("sequence", "a number of 32 bits", start >> SHARD_BITS);
        };
        reader.end()?;
        Ok(NameIndexCell {
            directory: InodeNo(number(directory)),
            cookie: number(cookie),
            death,
            birth,
            sequence,
            shard: start as usize % HISTORY_SHARDS,
        })
    }
}

/// A cell of the span table: what the events from one to another, and no others, have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanCell {
    /// The nearest directory above the files concerned that events are of.
    pub class: InodeNo,
    /// The first event that sees the blocks.
    pub first: EventNo,
    /// The last one.
    pub last: EventNo,
    /// Data blocks: references to them.
    pub data: u64,
    /// Nodes of inodes' trees.
    pub nodes: u64,
}

impl SpanCell {
    /// The key of the span from `first` to `last` in a class.
    ///
    /// # Panics
    /// For a number from [`EVENT_LIMIT`] or [`INODE_LIMIT`] on.
    pub fn key(class: InodeNo, first: EventNo, last: EventNo) -> [u8; SPAN_KEY_BYTES] {
        let mut key = [0; SPAN_KEY_BYTES];
        put_inode(&mut key[..INODE], class);
        put_event(&mut key[INODE..INODE + EVENT], first);
        put_event(&mut key[INODE + EVENT..], last);
        key
    }

    /// The value.
    pub fn value(&self) -> IndexValue {
        let mut value = ShortBytes::new();
        value.number(self.data);
        value.number(self.nodes);
        value
    }

    /// Decodes a cell.
    ///
    /// # Errors
    /// [`Corruption`] for impossible bytes.
    pub fn decode(bytes: &[u8], value: &[u8]) -> Result<SpanCell, Box<Corruption>> {
        const WHAT: &str = "span";
        let bytes: [u8; SPAN_KEY_BYTES] = key(WHAT, bytes)?;
        let (class, events) = bytes.split_at(INODE);
        let (first, last) = events.split_at(EVENT);
        let (first, last) = (EventNo(number(first)), EventNo(number(last)));
        if first > last {
            return Err(Corruption::new(WHAT, "last event", format!("{first} or later"), last));
        }
        let mut reader = Reader::new(WHAT, value);
        let (data, nodes) = (reader.number("data blocks")?, reader.number("nodes")?);
        reader.end()?;
        Ok(SpanCell { class: InodeNo(number(class)), first, last, data, nodes })
    }
}
