//! What happened to a simulated device, in order.

use std::sync::Arc;

use crate::MemoryDevice;

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write was stored.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A flush completed.
    Flush,
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
/// reference count per event.
#[derive(Debug)]
pub struct Trace {
    initial: MemoryDevice,
    events: Vec<Event>,
}

impl Clone for Trace {
    fn clone(&self) -> Self {
        Trace { initial: self.initial.snapshot(), events: self.events.clone() }
    }
}

impl Trace {
    pub(super) fn new(initial: MemoryDevice) -> Self {
        Trace { initial, events: Vec::new() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// What the medium held before the first event.
    pub fn initial(&self) -> &MemoryDevice {
        &self.initial
    }

    /// The events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number of events. A crash can happen after each number of them from 0 to this one.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The marks among the first `after_event` events, in order: what the client had announced by then.
    pub fn marks_before(&self, after_event: usize) -> impl Iterator<Item = u64> + '_ {
        let end = after_event.min(self.events.len());
        self.events[..end].iter().filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}
