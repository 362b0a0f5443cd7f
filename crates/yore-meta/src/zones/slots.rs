//! Slots of one zone: which hold a copy that counts, and which are taken next.

use std::ops::Range;
use yore_format::layout::{FIRST_SLOT, ZONE_BLOCKS};

/// A set of slots of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots([u64; 16]);

impl Slots {
    /// The slots that blocks may be in.
    const ALL: Range<u64> = FIRST_SLOT..ZONE_BLOCKS;

    /// Those that a map names.
    pub(crate) fn of(map: &[u16]) -> Slots {
        let mut slots = Slots::default();
        for slot in map.iter().filter(|slot| **slot != 0) {
            slots.0[usize::from(*slot) / 64] |= 1 << (slot % 64);
        }
        slots
    }

    fn has(&self, slot: u64) -> bool {
        self.0[slot as usize / 64] & (1 << (slot % 64)) != 0
    }

    /// Adds the first free slot and returns it.
    pub(crate) fn take_first(&mut self) -> u16 {
        let slot = self.free_for(1)[0];
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
        slot
    }

    /// Free slots, in ascending order, for so many blocks that are written together: those of the shortest
    /// stretch of slots that has as many, the first one of several. So they are the beginning of the first
    /// gap that holds all, if there is one: what a zone has lies in its beginning while there is room. If
    /// there is none, they are as few runs, and as near each other, as the zone allows.
    pub(crate) fn free_for(&self, count: usize) -> Vec<u16> {
        let free: Vec<u16> = self.gaps().flatten().map(|slot| slot as u16).collect();
        assert!(
            free.len() >= count,
            "a zone has twice as many slots as indexes and one generation in flight"
        );
        if count == 0 {
            return Vec::new();
        }
        let stretches = free.windows(count);
        let shortest = stretches.min_by_key(|slots| slots[count - 1] - slots[0]);
        shortest.expect("there are enough slots").to_vec()
    }

    /// Runs of slots that are not in the set.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = Self::ALL.start;
        std::iter::from_fn(move || {
            let start = (at..Self::ALL.end).find(|slot| !self.has(*slot))?;
            at = (start..Self::ALL.end).find(|slot| self.has(*slot)).unwrap_or(Self::ALL.end);
            Some(start..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots for a generation come from the first gap that holds them all, else from the shortest stretch
    /// that does, and never from the slots in use; the gaps are the slots that are left. So the slots of a
    /// full generation and of the one before it fit beside each other.
    #[test]
    fn slots_are_taken_from_the_shortest_stretch_and_the_gaps_are_the_rest() {
        let (first, end) = (FIRST_SLOT, ZONE_BLOCKS);
        let gaps = |slots: &Slots| slots.gaps().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>();
        let slots = |from: u64, to: u64| (from..to).map(|slot| slot as u16);
        assert_eq!(gaps(&Slots::default()), [(first, end)]);
        let old: Vec<u16> = slots(first, first + 510).chain([0, 0]).collect();
        let mut used = Slots::of(&old);
        assert_eq!(gaps(&used), [(first + 510, end)]);
        assert!(used.free_for(510).into_iter().eq(slots(first + 510, end)));
        assert_eq!(u64::from(used.take_first()), first + 510);
        assert_eq!(gaps(&used), [(first + 511, end)]);
        // Gaps of 3, of 8, of 10, and of 20 slots, with 1, 9, and 1 slot between them.
        let starts = [0, 4, 21, 32].map(|at| first + at);
        let gap = |n: usize, from: u64, to: u64| slots(starts[n] + from, starts[n] + to);
        let in_use =
            [3..4, 12..21, 31..32, 52..end - first].map(|part| slots(first + part.start, first + part.end));
        let used = Slots::of(&in_use.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(gaps(&used).len(), 4);
        let take = |count: usize| used.free_for(count).into_iter();
        assert!(take(0).eq([]));
        assert!(take(3).eq(gap(0, 0, 3)));
        assert!(take(4).eq(gap(1, 0, 4)));
        assert!(take(11).eq(gap(3, 0, 11)), "the first that is long enough");
        assert!(
            take(21).eq(gap(2, 0, 10).chain(gap(3, 0, 11))),
            "the shortest stretch, and the first of ten"
        );
        assert!(take(41).eq(gap(0, 0, 3).chain(gap(1, 0, 8)).chain(gap(2, 0, 10)).chain(gap(3, 0, 20))));
    }
}
