//! Slots of one zone: which hold a copy that counts, and which is taken next.

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

    /// Adds a free slot and returns it. The search goes round the zone from `rotor`, so that runs are
    /// contiguous and an old copy stays readable as long as possible.
    pub(crate) fn take_next(&mut self, rotor: &mut usize) -> u16 {
        let count = (Self::ALL.end - Self::ALL.start) as usize;
        for i in 0..count {
            let slot = Self::ALL.start + ((*rotor + i) % count) as u64;
            if !self.has(slot) {
                self.0[slot as usize / 64] |= 1 << (slot % 64);
                *rotor = (*rotor + i + 1) % count;
                return slot as u16;
            }
        }
        panic!("a zone has twice as many slots as indexes and one generation in flight");
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

    /// The search for a slot goes round the zone and never takes a used one; the gaps are the slots that are
    /// left. So the slots of a full generation and of the one before it fit beside each other.
    #[test]
    fn slots_are_taken_in_turn_and_the_gaps_are_the_rest() {
        let (first, end) = (FIRST_SLOT, ZONE_BLOCKS);
        let gaps = |slots: &Slots| slots.gaps().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>();
        assert_eq!(gaps(&Slots::default()), [(first, end)]);
        let old: Vec<u16> = (first..first + 510).map(|slot| slot as u16).chain([0, 0]).collect();
        let mut used = Slots::of(&old);
        assert_eq!(gaps(&used), [(first + 510, end)]);
        let mut rotor = 509;
        let taken: Vec<u64> = (0..510).map(|_| u64::from(used.take_next(&mut rotor))).collect();
        assert_eq!(taken, (first + 510..end).collect::<Vec<_>>());
        assert_eq!((rotor, used.gaps().count()), (0, 0));
        let mut used = Slots::of(&[first as u16 + 1, end as u16 - 1]);
        assert_eq!(gaps(&used), [(first, first + 1), (first + 2, end - 1)]);
        let mut rotor = (end - first) as usize - 1;
        assert_eq!(u64::from(used.take_next(&mut rotor)), first, "from the last slot on to the first");
    }
}
