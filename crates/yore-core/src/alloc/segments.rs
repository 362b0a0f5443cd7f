//! An array whose length changes while others use it: each part of it is made when somebody first uses it.

use std::sync::OnceLock;

/// Elements in one part.
const PART: u32 = 1024;

/// Elements that begin with their default values. The constructor limits how many there can be.
pub(super) struct Segments<T> {
    parts: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Segments<T> {
    /// An array of at most `most` elements. None of them takes memory yet.
    pub(super) fn new(most: u32) -> Segments<T> {
        Segments { parts: (0..most.div_ceil(PART)).map(|_| OnceLock::new()).collect() }
    }

    /// The element with this number.
    ///
    /// # Panics
    /// If the number is beyond the most that there may be.
    pub(super) fn get(&self, at: u32) -> &T {
        let part = self.parts[(at / PART) as usize].get_or_init(|| (0..PART).map(|_| T::default()).collect());
        &part[(at % PART) as usize]
    }
}
