//! Slots of one zone: which hold a copy that counts, and which are taken next.

use std::ops::Range;
use yore_format::layout::{FIRST_SLOT, ZONE_BLOCKS};

/// Where blocks that are written together go.
pub(crate) struct Placement {
    /// In ascending order: for each block that must be written, and for each that goes along.
    pub(crate) slots: Vec<u16>,
    /// The other blocks of the zone that do not lie among these slots go along.
    pub(crate) among: Range<u64>,
}

/// Slots by which a zone must get shorter: what lies between its blocks is read with them, and fewer than
/// these hardly take any time.
const WORTH: usize = 64;

/// A zone lies apart if among its blocks, from the first slot on, are more free slots than one for so many
/// blocks ...
const APART: usize = 4;
/// ... and more than these, which take a reader about as long as another request.
const APART_LEAST: usize = 16;

/// From the first of these slots, which ascend, to the last one.
fn length(slots: &[u16]) -> usize {
    slots.first().zip(slots.last()).map_or(0, |(first, last)| usize::from(last - first) + 1)
}

/// How many slots these are.
fn length_of(among: &Range<u64>) -> usize {
    among.end.saturating_sub(among.start) as usize
}

/// Each so many free slots that follow one another.
fn stretches(free: &[u16], count: usize) -> impl Iterator<Item = &[u16]> {
    assert!(free.len() >= count, "a zone has twice as many slots as indexes and one generation in flight");
    (0..=free.len() - count).map(move |from| &free[from..from + count])
}

/// The shortest of them, the first one of several.
fn shortest(free: &[u16], count: usize) -> &[u16] {
    stretches(free, count).min_by_key(|slots| length(slots)).expect("there are enough slots")
}

/// A set of slots of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots([u64; 16]);

impl Slots {
    /// The slots that blocks may be in.
    const ALL: Range<u64> = FIRST_SLOT..ZONE_BLOCKS;

    /// Those that a map names.
    pub(crate) fn of(map: &[u16]) -> Slots {
        let mut slots = Slots::default();
        map.iter().filter(|slot| **slot != 0).for_each(|slot| slots.add(&[*slot]));
        slots
    }

    fn has(&self, slot: u64) -> bool {
        self.0[slot as usize / 64] & (1 << (slot % 64)) != 0
    }

    /// Adds the first free slot and returns it.
    pub(crate) fn take_first(&mut self) -> u16 {
        let first = { Self::ALL }.find(|slot| !self.has(*slot));
        let slot = first.expect("there are enough slots") as u16;
        self.add(&[slot]);
        slot
    }

    /// Free slots, in ascending order, for so many blocks that are written together: those of the first
    /// stretch of slots in which at most every second one is in use, else of the shortest stretch that has as
    /// many. So a zone fills the holes in its beginning before it grows at its end, and what is written
    /// together lies in few runs near each other.
    pub(crate) fn free_for(&self, count: usize) -> Vec<u16> {
        let free = self.free();
        let stretches = || stretches(&free, count);
        let dense = stretches().find(|slots| length(slots) <= 2 * count);
        dense.unwrap_or_else(|| shortest(&free, count)).to_vec()
    }

    /// Where so many blocks go that must be written, and which of the others of the zone, which lie in
    /// `others`, go along. If two fifths of the zone are written, it gets as short as it can with at most as
    /// many blocks that go along, if that is shorter by a fifth than it would be otherwise, and by [`WORTH`]
    /// slots. So at most twice as much is written, and a zone of which every generation writes a good part
    /// does not come to lie all over its slots.
    pub(crate) fn place(&self, must: usize, others: &Slots) -> Placement {
        let alone = self.free_for(must);
        // Where less is written, blocks would go along again and again for what little they make of it.
        if must == 0 || others.count() * 2 > must * 3 {
            return Placement { slots: alone, among: 0..ZONE_BLOCKS };
        }
        let mut both = *others;
        both.add(&alone);
        let before = both.spread();
        let is_shorter =
            |among: &Range<u64>| length_of(among) * 5 <= before * 4 && length_of(among) + WORTH <= before;
        let Some(among) = self.shortest_with(must, others).filter(is_shorter) else {
            return Placement { slots: alone, among: 0..ZONE_BLOCKS };
        };
        let along = others.count() - others.within(&among);
        let mut free = self.free();
        free.retain(|slot| among.contains(&u64::from(*slot)));
        Placement { slots: shortest(&free, must + along).to_vec(), among }
    }

    /// Whether blocks that lie in these slots lie apart: who reads them all, from the header on, reads much
    /// that is none of them.
    pub(crate) fn is_apart(&self) -> bool {
        let (count, until) = (self.count(), self.until());
        let free = (until - Self::ALL.start) as usize - count;
        free > APART_LEAST && free * APART > count
    }

    /// The zone gets as short as it can, from the first slot on, behind its headers: what of `others` lies
    /// beyond goes along, into the free slots before. If nothing must be written, nothing stays apart.
    pub(crate) fn together(&self, must: usize, others: &Slots) -> Placement {
        let (mut free, mut beyond, mut end) = (0, others.count(), Self::ALL.start);
        while free < must + beyond {
            assert!(end < Self::ALL.end, "a zone has twice as many slots as indexes");
            beyond -= usize::from(others.has(end));
            free += usize::from(!self.has(end));
            end += 1;
        }
        let among = Self::ALL.start..end;
        let slots = among.clone().filter(|slot| !self.has(*slot)).map(|slot| slot as u16);
        Placement { slots: slots.take(must + beyond).collect(), among }
    }

    /// Behind the last slot in the set, or the first slot that there is.
    fn until(&self) -> u64 {
        let last = self.0.iter().rposition(|word| *word != 0);
        last.map_or(Self::ALL.start, |word| word as u64 * 64 + 64 - u64::from(self.0[word].leading_zeros()))
    }

    /// The shortest stretch of slots in which all blocks of the zone can lie if so many are written and at
    /// most as many of the `others` go along. Some are written, so each such stretch has a slot.
    fn shortest_with(&self, must: usize, others: &Slots) -> Option<Range<u64>> {
        let count = others.count();
        // What the stretch from `at` to `end` has of both, while its ends go up.
        let (mut at, mut end, mut there, mut free) = (Self::ALL.start, Self::ALL.start, 0, 0);
        let mut best: Option<Range<u64>> = None;
        loop {
            let along = count - there;
            if along <= must && free >= must + along {
                if best.as_ref().is_none_or(|best| end - at < length_of(best) as u64) {
                    best = Some(at..end);
                }
                there -= usize::from(others.has(at));
                free -= usize::from(!self.has(at));
                at += 1;
            } else if end < Self::ALL.end {
                there += usize::from(others.has(end));
                free += usize::from(!self.has(end));
                end += 1;
            } else {
                return best;
            }
        }
    }

    /// How many slots of the set are among these.
    fn within(&self, among: &Range<u64>) -> usize {
        among.clone().filter(|slot| self.has(*slot)).count()
    }

    fn add(&mut self, slots: &[u16]) {
        for slot in slots {
            self.0[usize::from(*slot) / 64] |= 1 << (slot % 64);
        }
    }

    /// How many slots are in the set.
    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// From the first slot in the set to the last one.
    fn spread(&self) -> usize {
        let all = 0..ZONE_BLOCKS;
        let first = all.clone().find(|slot| self.has(*slot));
        let last = all.rev().find(|slot| self.has(*slot));
        first.zip(last).map_or(0, |(first, last)| (last - first) as usize + 1)
    }

    /// Slots that are not in the set, in ascending order.
    fn free(&self) -> Vec<u16> {
        self.gaps().flatten().map(|slot| slot as u16).collect()
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
    use rand::seq::index::sample;
    use rand::{Rng, SeedableRng};

    /// Slots for a generation come from the first stretch half of which is free, else from the shortest one
    /// that has as many, and never from the slots in use; the gaps are the slots that are left. So the slots
    /// of a full generation and of the one before it fit beside each other.
    #[test]
    fn slots_are_taken_in_the_beginning_and_the_gaps_are_the_rest() {
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
        // Gaps of 3, of 8, of 10, and of 20 slots, with 1, 9, and 30 slots between them.
        let starts = [0, 4, 21, 61].map(|at| first + at);
        let gap = |n: usize, from: u64, to: u64| slots(starts[n] + from, starts[n] + to);
        let in_use =
            [3..4, 12..21, 31..61, 81..end - first].map(|part| slots(first + part.start, first + part.end));
        let used = Slots::of(&in_use.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(gaps(&used).len(), 4);
        let take = |count: usize| used.free_for(count).into_iter();
        assert!(take(0).eq([]));
        assert!(take(3).eq(gap(0, 0, 3)));
        assert!(take(4).eq(gap(0, 0, 3).chain(gap(1, 0, 1))), "the first gap, and what follows near by");
        assert!(take(20).eq(gap(0, 0, 3).chain(gap(1, 0, 8)).chain(gap(2, 0, 9))));
        assert!(take(21).eq(gap(0, 0, 3).chain(gap(1, 0, 8)).chain(gap(2, 0, 10))), "31 slots");
        assert!(
            take(22).eq(gap(2, 0, 10).chain(gap(3, 0, 12))),
            "the shortest stretch, the first of several"
        );
        assert!(take(41).eq(gap(0, 0, 3).chain(gap(1, 0, 8)).chain(gap(2, 0, 10)).chain(gap(3, 0, 20))));
    }

    /// The story: a zone of which a generation only frees blocks, the last one among them, has nothing to
    /// place and nothing that could go along, and the search for a stretch went on beyond its end.
    #[test]
    fn nothing_goes_along_where_nothing_is_written() {
        let some = Slots::of(&[10, 500, 900]);
        for (used, others) in [(Slots::default(), Slots::default()), (some, Slots::default()), (some, some)] {
            let placement = used.place(0, &others);
            assert!(placement.slots.is_empty() && placement.among == (0..ZONE_BLOCKS));
        }
        let all = Slots::of(&(0..510).map(|slot| FIRST_SLOT as u16 + 2 * slot).collect::<Vec<_>>());
        assert_eq!(all.place(510, &Slots::default()).slots.len(), 510);
        assert_eq!(all.place(1, &Slots::default()).slots, [FIRST_SLOT as u16 + 1]);
    }

    /// However a zone lies, one generation lays it together, right behind its headers: it takes no slot that
    /// is in use, writes only what lies beyond, and leaves nothing that lies apart. What the generation has
    /// changed itself needs slots beside those in use, so there the zone gets as short as that allows.
    #[test]
    fn a_zone_is_laid_together_behind_its_headers() {
        let seed = std::env::var("YORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("YORE_SEED={seed}");
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let (first, all) = (FIRST_SLOT as u16, (ZONE_BLOCKS - FIRST_SLOT) as usize);
        assert!(!Slots::default().is_apart());
        for blocks in [1, 2, 17, 60, 250, 509, 510] {
            for _ in 0..50 {
                let lie = sample(&mut random, all, blocks).into_vec();
                let lie: Vec<u16> = lie.into_iter().map(|slot| slot as u16 + first).collect();
                let used = Slots::of(&lie);
                let placement = used.together(0, &used);
                assert_eq!(placement.among, FIRST_SLOT..FIRST_SLOT + blocks as u64);
                let (stay, go): (Vec<u16>, _) =
                    lie.iter().partition(|slot| placement.among.contains(&u64::from(**slot)));
                assert_eq!(placement.slots.len(), go.len());
                assert!(placement.slots.iter().all(|slot| !used.has((*slot).into())));
                let now = Slots::of(&[stay, placement.slots].concat());
                assert_eq!((now.count(), now.until()), (blocks, placement.among.end));
                assert!(!now.is_apart());
                assert!(now.together(0, &now).slots.is_empty(), "it would go on for ever");

                let must = random.random_range(0..=blocks);
                let others = Slots::of(&lie[must..]);
                let placement = used.together(must, &others);
                let beyond = others.count() - others.within(&placement.among);
                assert_eq!(placement.slots.len(), must + beyond);
                assert!(placement.slots.iter().all(|slot| !used.has((*slot).into())));
            }
        }
        let runs = |runs: &[(u16, u16)]| {
            Slots::of(&runs.iter().flat_map(|(at, count)| first + at..first + at + count).collect::<Vec<_>>())
        };
        assert!(!runs(&[(0, 100), (116, 4)]).is_apart(), "16 free slots are fewer than a request takes");
        assert!(runs(&[(0, 10), (30, 4)]).is_apart());
        assert!(!runs(&[(0, 100), (125, 1)]).is_apart(), "a quarter");
        assert!(runs(&[(0, 100), (126, 1)]).is_apart());
        assert!(runs(&[(300, 100)]).is_apart(), "far from the header");
    }

    /// Over many generations, of whatever sizes, in zones that grow and shrink: no slot in use is taken, none
    /// twice, at most twice as much is written as must be, what is written lies in runs of two and more on an
    /// average wherever there is room, and a zone lies in at most so many slots for each of its blocks as the
    /// model says for the part of it that each generation writes.
    #[test]
    fn a_zone_stays_together_while_it_ages() {
        let seed = std::env::var("YORE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        println!("YORE_SEED={seed}");
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        // Share that a generation writes, and slots for a block in the mean.
        for (share, bound) in
            [(0.02, 1.45), (0.1, 1.6), (0.2, 1.7), (0.35, 1.8), (0.45, 1.4), (0.55, 1.2), (0.8, 1.2)]
        {
            for blocks in [60, 250, 510] {
                let mut map: Vec<u16> = (0..blocks).map(|index| FIRST_SLOT as u16 + index).collect();
                let (mut spread, mut requests, mut written) = (0.0, 0, 0);
                let rounds = 400;
                for _ in 0..rounds {
                    let used = Slots::of(&map);
                    let must = ((share * map.len() as f64) as usize).max(1);
                    let dirty = sample(&mut random, map.len(), must).into_vec();
                    let mut others = map.clone();
                    dirty.iter().for_each(|index| others[*index] = 0);
                    let placement = used.place(must, &Slots::of(&others));
                    let mut indexes = dirty;
                    let goes = |slot: u16| slot != 0 && !placement.among.contains(&u64::from(slot));
                    indexes.extend((0..map.len()).filter(|index| goes(others[*index])));
                    assert!(indexes.len() <= 2 * must);
                    assert_eq!(placement.slots.len(), indexes.len());
                    assert!(placement.slots.is_sorted());
                    for (index, slot) in indexes.iter().zip(&placement.slots) {
                        assert!(!used.has((*slot).into()), "a slot in use was taken");
                        map[*index] = *slot;
                    }
                    requests += placement.slots.chunk_by(|a, b| a + 1 == *b).count();
                    written += placement.slots.len();
                    let now = Slots::of(&map);
                    assert_eq!(now.count(), map.len(), "two blocks have one slot");
                    spread += now.spread() as f64 / map.len() as f64 / f64::from(rounds);
                    // A few blocks come and go.
                    match random.random_range(0..20) {
                        0 if map.len() > 20 => drop(map.pop()),
                        1 if map.len() < 510 => map.push(Slots::of(&map).free_for(1)[0]),
                        _ => {}
                    }
                }
                println!("{share} of {blocks}: {spread:.2} slots a block, {written} in {requests} runs");
                let bound = if blocks < 100 { 2.5 } else { bound };
                assert!(spread <= bound, "{share} of {blocks}: {spread}");
                assert!(requests == rounds as usize || written * 2 >= requests * 3, "{share} of {blocks}");
            }
        }
    }
}
