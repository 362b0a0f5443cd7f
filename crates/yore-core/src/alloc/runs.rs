//! What is available in one group: a bitmap in memory, searched word by word.
//!
//! A set bit is an available block, the opposite of the bitmap on the medium. Invariants: `available` counts
//! the set bits; `withheld`, if any, is the first bit of an aligned run of 1,024 of which all are set; bits
//! beyond the group's end are never set.

use std::ops::Range;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{BitmapRef, BITS_PER_GROUP};

const WORDS: usize = BITS_PER_GROUP as usize / 64;
const ZONE_BITS: u32 = ZONE_BLOCKS as u32;
/// A run right after the goal that is this long is taken even if longer runs may be elsewhere: it makes an
/// extent longer.
const CONTINUATION_GOOD: u32 = 8;

/// The blocks of a group that may be handed out.
pub(super) struct Availability {
    words: Box<[u64; WORDS]>,
    available: u32,
    withheld: Option<u32>,
    /// Blocks taken and not yet in the bitmap, or freed and not yet reclaimed.
    outstanding: u32,
    /// Where the next search without a goal starts.
    cursor: u32,
}

impl Availability {
    /// What a group's bitmap leaves, with nothing outstanding.
    pub(super) fn of(bitmap: BitmapRef<'_>, usable: u32) -> Availability {
        let mut words = Box::new([0; WORDS]);
        for (i, word) in words.iter_mut().enumerate() {
            let first = i as u32 * 64;
            // The bitmap marks what is beyond the end as used. A damaged bitmap must not make us write there.
            let inside = match usable.saturating_sub(first) {
                n @ 0..=63 => (1 << n) - 1,
                _ => u64::MAX,
            };
            *word = !bitmap.word(i) & inside;
        }
        let available = words.iter().map(|w| w.count_ones()).sum();
        let mut new = Availability { words, available, withheld: None, outstanding: 0, cursor: 0 };
        new.withheld = new.find_zone_start(0..BITS_PER_GROUP);
        new
    }

    /// Blocks that may be handed out, including the withheld ones.
    pub(super) fn available(&self) -> u32 {
        self.available
    }

    /// Whether some blocks are taken and not in the bitmap yet, or freed and not reclaimed yet.
    pub(super) fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// The first run of `want` available blocks at or after `goal` (wrapping). If there is none, the longest
    /// shorter one. A longer run is shortened to `want`. A run right at the goal is preferred. O(words of the
    /// bitmap).
    pub(super) fn find(&self, goal: Option<u32>, want: u32, withheld: bool) -> Option<(u32, u32)> {
        let start = goal.unwrap_or(self.cursor).min(BITS_PER_GROUP - 1);
        if goal.is_some() {
            let len = self.run_at(start, want, withheld);
            if len >= want.min(CONTINUATION_GOOD) {
                return Some((start, len));
            }
        }
        self.find_from(start, want, withheld)
    }

    /// The first run of `want` available blocks at or after `start` (wrapping). If there is none, the longest
    /// shorter one. A longer run is shortened to `want`. O(words of the bitmap).
    pub(super) fn find_from(&self, start: u32, want: u32, withheld: bool) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        for part in [start..BITS_PER_GROUP, 0..start] {
            for piece in self.open_parts(part, withheld) {
                let mut at = piece.start;
                while let Some(bit) = self.next(at, piece.end, true) {
                    let end = self.next(bit, piece.end.min(bit.saturating_add(want)), false);
                    let end = end.unwrap_or(piece.end.min(bit + want));
                    let len = end - bit;
                    if len == want {
                        return Some((bit, len));
                    }
                    if best.is_none_or(|(_, longest)| len > longest) {
                        best = Some((bit, len));
                    }
                    at = end;
                }
            }
        }
        best
    }

    /// The first run of available blocks at or after `from`, at most `most` of them.
    pub(super) fn next_run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let bit = self.next(from, BITS_PER_GROUP, true)?;
        let end = BITS_PER_GROUP.min(bit.saturating_add(most));
        Some((bit, self.next(bit, end, false).unwrap_or(end) - bit))
    }

    /// Takes the available blocks among the `len` at `bit`, up to the first that is not available.
    pub(super) fn take(&mut self, bit: u32, len: u32, withheld: bool) -> u32 {
        let len = self.run_at(bit, len, withheld);
        self.set(bit, len, false);
        self.outstanding += len;
        self.cursor = bit + len;
        len
    }

    /// Takes 1,024 aligned blocks for a zone.
    pub(super) fn take_zone(&mut self) -> Option<u32> {
        let bit = self.withheld.or_else(|| self.find_zone_start(0..BITS_PER_GROUP))?;
        self.set(bit, ZONE_BITS, false);
        self.outstanding += ZONE_BITS;
        Some(bit)
    }

    /// Makes taken or pending blocks available again.
    pub(super) fn put_back(&mut self, bit: u32, len: u32) {
        self.set(bit, len, true);
        if self.withheld.is_none() {
            self.withheld = self.find_zone_start(bit..bit + len);
        }
    }

    /// Counts blocks that an Op frees: they come back by [`Availability::put_back`].
    pub(super) fn owe(&mut self, len: u32) {
        self.outstanding += len;
    }

    /// Taken blocks have been entered in the bitmap, or owed blocks were put back.
    pub(super) fn settle(&mut self, len: u32) {
        self.outstanding = self.outstanding.checked_sub(len).expect("outstanding blocks are counted");
    }

    fn set(&mut self, bit: u32, len: u32, available: bool) {
        let mut at = bit;
        while at < bit + len {
            let n = (64 - at % 64).min(bit + len - at);
            let mask = if n == 64 { u64::MAX } else { ((1 << n) - 1) << (at % 64) };
            let word = &mut self.words[at as usize / 64];
            let expected = if available { 0 } else { mask };
            assert_eq!(*word & mask, expected, "blocks {at} to {} handed out or given back twice", at + n);
            *word ^= mask;
            at += n;
        }
        if available {
            self.available += len;
        } else {
            self.available -= len;
            if self.withheld.is_some_and(|w| bit < w + ZONE_BITS && w < bit + len) {
                self.withheld = None;
                self.withheld = self.find_zone_start(0..BITS_PER_GROUP);
            }
        }
    }

    /// The parts of a range that may be handed out.
    fn open_parts(&self, part: Range<u32>, withheld: bool) -> [Range<u32>; 2] {
        match self.withheld {
            Some(w) if !withheld => [part.start..part.end.min(w), part.start.max(w + ZONE_BITS)..part.end],
            _ => [part.clone(), part.end..part.end],
        }
    }

    fn run_at(&self, bit: u32, most: u32, withheld: bool) -> u32 {
        let mut end = BITS_PER_GROUP.min(bit.saturating_add(most));
        if let (Some(w), false) = (self.withheld, withheld) {
            if bit >= w && bit < w + ZONE_BITS {
                return 0;
            }
            if bit < w {
                end = end.min(w);
            }
        }
        self.next(bit, end, false).unwrap_or(end.max(bit)) - bit
    }

    /// The first bit in `from..end` that is set (or clear).
    fn next(&self, from: u32, end: u32, set: bool) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.words[at as usize / 64];
            let word = if set { word } else { !word } >> (at % 64);
            if word != 0 {
                let bit = at + word.trailing_zeros();
                return (bit < end).then_some(bit);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The last aligned, wholly available run of 1,024 that touches `within`.
    fn find_zone_start(&self, within: Range<u32>) -> Option<u32> {
        let (first, last) = (within.start / ZONE_BITS, within.end.div_ceil(ZONE_BITS));
        (first..last).rev().map(|z| z * ZONE_BITS).find(|bit| {
            let words = *bit as usize / 64..(*bit + ZONE_BITS) as usize / 64;
            self.words[words].iter().all(|w| *w == u64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_format::{BitmapMut, ZERO_BLOCK};

    fn group(usable: u32) -> Availability {
        let mut block = ZERO_BLOCK;
        BitmapMut::init(&mut block, usable);
        Availability::of(BitmapRef::new(&block), usable)
    }

    /// A fresh group offers everything but one aligned run, and offers that run, too, if asked for it.
    #[test]
    fn one_zone_is_withheld_until_nothing_else_is_left() {
        let mut g = group(BITS_PER_GROUP);
        let mut taken = 0;
        while let Some((bit, len)) = g.find(None, 4096, false) {
            assert_eq!(g.take(bit, len, false), len);
            taken += len;
        }
        assert_eq!(taken, BITS_PER_GROUP - ZONE_BITS);
        assert_eq!(g.find(None, 5000, true), Some((BITS_PER_GROUP - ZONE_BITS, ZONE_BITS)));
        assert_eq!(g.take_zone(), Some(BITS_PER_GROUP - ZONE_BITS));
        assert_eq!((g.available(), g.take_zone()), (0, None));
    }

    /// A search goes on after the goal, wraps around, and prefers a run that is long enough.
    #[test]
    fn runs_are_found_after_the_goal() {
        let mut g = group(4096);
        assert_eq!(g.take(0, 100, true), 100);
        assert_eq!(g.find(Some(50), 10, false), Some((100, 10)));
        assert_eq!(g.take(110, 10, true), 10);
        assert_eq!(g.find(Some(100), 500, false), Some((100, 10)), "a good continuation");
        assert_eq!(g.find(Some(99), 500, false), Some((120, 500)));
        assert_eq!(g.find(Some(3071), 3, false), Some((100, 3)), "wraps before the withheld run");
        g.put_back(40, 5);
        assert_eq!(g.find(Some(0), 6, false), Some((100, 6)));
        g.settle(110);
        assert!(!g.is_busy());
    }

    /// Random takes and returns agree with a plain vector of flags.
    #[test]
    fn agrees_with_a_plain_model() {
        let seed = 0x5eed_a110_c000_0001u64;
        println!("seed {seed:#x} (fixed in the test)");
        let mut rng = seed;
        let mut next = |n: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) % n
        };
        let usable = 20_000;
        let mut g = group(usable);
        let mut model = vec![true; usable as usize];
        let mut held: Vec<(u32, u32)> = Vec::new();
        for _ in 0..5_000 {
            if next(3) > 0 {
                let want = 1 + next(300) as u32;
                let goal = (next(2) == 0).then(|| next(u64::from(usable)) as u32);
                let Some((bit, len)) = g.find(goal, want, true) else {
                    assert!(model.iter().all(|a| !a));
                    continue;
                };
                assert!(len <= want && g.take(bit, len, true) == len);
                let blocks = &mut model[bit as usize..(bit + len) as usize];
                assert!(blocks.iter().all(|a| *a));
                blocks.fill(false);
                held.push((bit, len));
            } else if !held.is_empty() {
                let (bit, len) = held.swap_remove(next(held.len() as u64) as usize);
                g.put_back(bit, len);
                g.settle(len);
                model[bit as usize..(bit + len) as usize].fill(true);
            }
            assert_eq!(g.available() as usize, model.iter().filter(|a| **a).count());
        }
    }
}
