//! What happened to a simulated device, in order.

use std::sync::Arc;

use crate::MemoryDevice;

/// One entry of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEntry {
    /// A write was stored.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A flush completed.
    Flush,
    /// A flush of what was written to a range completed.
    FlushRange {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// A range was discarded.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// The client's annotation. It changes nothing on the medium.
    Mark(u64),
}

/// The contents that a device began with, and everything that happened to it since. Cloning costs one
/// reference count per entry.
#[derive(Debug)]
pub struct Trace {
    initial: MemoryDevice,
    entries: Vec<TraceEntry>,
}

impl Clone for Trace {
    fn clone(&self) -> Self {
        Trace { initial: self.initial.snapshot(), entries: self.entries.clone() }
    }
}

impl Trace {
    pub(super) fn new(initial: MemoryDevice) -> Self {
        Trace { initial, entries: Vec::new() }
    }

    pub(super) fn push(&mut self, entry: TraceEntry) {
        self.entries.push(entry);
    }

    /// What the medium held before the first entry.
    pub fn initial(&self) -> &MemoryDevice {
        &self.initial
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[TraceEntry] {
        &self.entries
    }

    /// The number of entries. A crash can happen after each number of them from 0 to this one.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The marks among the first `after_entry` entries, in order: what the client had announced by then.
    pub fn marks_before(&self, after_entry: usize) -> impl Iterator<Item = u64> + '_ {
        let end = after_entry.min(self.entries.len());
        self.entries[..end].iter().filter_map(|entry| match entry {
            TraceEntry::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}
