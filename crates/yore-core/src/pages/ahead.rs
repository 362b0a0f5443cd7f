//! How a file is being read, and how far ahead of its reader it is to be read.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pages of the first window of a sequential reader.
const WINDOW_LEAST: u32 = 8;

/// What is known about how a file is being read, in pages. It is a hint: it is updated without a lock.
#[derive(Default)]
pub struct ReadAhead {
    /// The page behind the last access.
    next: AtomicU32,
    window: AtomicU32,
    /// Up to where somebody has asked for reading ahead.
    pub until: AtomicU32,
}

impl ReadAhead {
    /// The window for an access to the pages `first..end`; 0 if the access is not part of a sequence. Learns
    /// from the access.
    pub fn learn(&self, first: u32, end: u32, most: u32) -> u32 {
        let window = self.window.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        // Several threads may serve one reader, so accesses may be slightly out of order; a page may be read
        // in parts.
        let is_next = first == next || first + 1 == next || (window > 0 && first.abs_diff(next) <= window);
        self.next.store(if is_next { next.max(end) } else { end }, Ordering::Relaxed);
        let window = match is_next {
            true => (window * 2).max((end - first).min(most)).clamp(WINDOW_LEAST, most.max(WINDOW_LEAST)),
            false => 0,
        };
        self.window.store(window, Ordering::Relaxed);
        window
    }
}
