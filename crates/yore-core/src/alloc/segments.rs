//! An array of which the length changes while others use it: parts of it are made when they are first looked
//! at.

use std::sync::OnceLock;

/// Elements of a part.
const PART: u32 = 1024;

/// Elements that begin as their defaults, at most as many as was said.
pub(super) struct Segments<T> {
    parts: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Segments<T> {
    /// None of them takes memory yet.
    pub(super) fn new(most: u32) -> Segments<T> {
        Segments { parts: (0..most.div_ceil(PART)).map(|_| OnceLock::new()).collect() }
    }

    /// The element with this number.
    ///
    /// # Panics
    /// If there may not be so many.
    pub(super) fn get(&self, at: u32) -> &T {
        let part = self.parts[(at / PART) as usize].get_or_init(|| (0..PART).map(|_| T::default()).collect());
        &part[(at % PART) as usize]
    }
}
