//! Which blocks of a group somebody is about to free, and how many are.

use std::collections::BTreeMap;

/// Claims on runs of a group, of which some may lie over each other.
///
/// Kept as steps: from each place in the map on, up to the next one, each block has so many claims. Before
/// the first there are none. Neighbours have different numbers, so runs that follow each other are one step.
/// Entering and ending a claim take time logarithmic in the steps, and linear in those that lie within its
/// run.
#[derive(Debug, Default)]
pub(super) struct Claims {
    steps: BTreeMap<u32, u32>,
}

impl Claims {
    /// Claims the `len` blocks from `bit` on, unless one of them has as many claims as `most` allows: then
    /// nothing changes, and the error is the first of these. `most` is asked about blocks with claims alone.
    pub(super) fn claim(&mut self, (bit, len): (u32, u32), most: impl Fn(u32) -> u32) -> Result<(), u32> {
        let end = bit + len;
        let (mut at, mut claims) = (bit, self.at(bit));
        let next = self.steps.range(bit + 1..end).map(|(at, n)| (*at, *n));
        for (to, then) in next.chain([(end, 0)]) {
            let over = (at..to).filter(|_| claims > 0).find(|bit| claims >= most(*bit));
            over.map_or(Ok(()), Err)?;
            (at, claims) = (to, then);
        }
        self.change((bit, len), |claims| claims + 1);
        Ok(())
    }

    /// Ends a claim that was made for exactly this run.
    pub(super) fn end(&mut self, run: (u32, u32)) {
        self.change(run, |claims| claims.checked_sub(1).expect("a claim lasts until it is ended"));
    }

    fn at(&self, bit: u32) -> u32 {
        self.steps.range(..=bit).next_back().map_or(0, |(_, claims)| *claims)
    }

    fn change(&mut self, (bit, len): (u32, u32), to: impl Fn(u32) -> u32) {
        if len == 0 {
            return;
        }
        for place in [bit, bit + len] {
            let claims = self.at(place);
            self.steps.entry(place).or_insert(claims);
        }
        self.steps.range_mut(bit..bit + len).for_each(|(_, claims)| *claims = to(*claims));
        for place in [bit, bit + len] {
            let before = place.checked_sub(1).map_or(0, |before| self.at(before));
            if self.at(place) == before {
                self.steps.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Compared with a counter for each block.
    #[test]
    fn steps_say_what_counters_would() {
        const BLOCKS: u32 = 300;
        for seed in 1..=20 {
            let mut random = Random(seed);
            let mut claims = Claims::default();
            let (mut counters, mut known) = ([0; BLOCKS as usize], Vec::new());
            let most = |bit: u32| 1 + bit % 4;
            for _ in 0..2000 {
                let bit = random.below(BLOCKS.into()) as u32;
                let run = (bit, 1 + random.below((BLOCKS - bit).min(24).into()) as u32);
                let of = |(bit, len): (u32, u32)| bit as usize..(bit + len) as usize;
                match known.len() > 40 || random.below(5) < 2 {
                    true if !known.is_empty() => {
                        let run = known.swap_remove(random.below(known.len() as u64) as usize);
                        claims.end(run);
                        counters[of(run)].iter_mut().for_each(|n| *n -= 1);
                    }
                    _ => {
                        let over = (run.0..run.0 + run.1)
                            .find(|bit| counters[*bit as usize] > 0 && counters[*bit as usize] >= most(*bit));
                        assert_eq!(claims.claim(run, most).err(), over);
                        if over.is_none() {
                            counters[of(run)].iter_mut().for_each(|n| *n += 1);
                            known.push(run);
                        }
                    }
                }
                assert!((0..BLOCKS).all(|bit| claims.at(bit) == counters[bit as usize]));
                let steps: Vec<_> = claims.steps.values().collect();
                assert!(steps.windows(2).all(|two| two[0] != two[1]), "neighbours are one step");
            }
            known.drain(..).for_each(|run| claims.end(run));
            assert!(claims.steps.is_empty());
        }
    }

    /// A version of a file of scattered blocks claims thousands of runs of a group, in any order. Each claim
    /// used to look at all others.
    #[test]
    fn runs_that_follow_each_other_are_one_step() {
        let mut claims = Claims::default();
        let order = || (0..32_000).map(|i| (i * 7919) % 32_000);
        for bit in order() {
            claims.claim((bit, 1), |_| 1).unwrap();
        }
        assert_eq!(claims.steps.len(), 2);
        assert_eq!(claims.claim((31_999, 2), |_| 1), Err(31_999));
        order().for_each(|bit| claims.end((bit, 1)));
        assert!(claims.steps.is_empty());
    }
}
