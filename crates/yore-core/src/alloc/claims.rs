//! Which blocks of a group somebody is about to free, and how many are.

use std::collections::BTreeMap;

/// Claims on runs of a group, of which some may lie over each other.
///
/// Kept as parts that do not overlap: by first block, where each ends, and how many claims each of its blocks
/// has. A run on which nobody has a claim, which is the rule, is one part. Entering and ending a claim take
/// time logarithmic in the parts, and linear in those that it lies over.
#[derive(Debug, Default)]
pub(super) struct Claims {
    parts: BTreeMap<u32, (u32, u32)>,
}

impl Claims {
    /// Claims the `len` blocks from `bit` on, unless one of them has as many claims as `most` allows: then
    /// nothing changes, and the error is the first of these. `most` is asked about blocks with claims alone.
    pub(super) fn claim(&mut self, (bit, len): (u32, u32), most: impl Fn(u32) -> u32) -> Result<(), u32> {
        let end = bit + len;
        let last = self.parts.range(..end).next_back();
        if last.is_none_or(|(_, (to, _))| *to <= bit) {
            if len > 0 {
                self.parts.insert(bit, (end, 1));
            }
            return Ok(());
        }
        let before = self.parts.range(..bit).next_back();
        for (from, (to, claims)) in before.into_iter().chain(self.parts.range(bit..end)) {
            let over = (bit.max(*from)..end.min(*to)).find(|bit| *claims >= most(*bit));
            over.map_or(Ok(()), Err)?;
        }
        self.split(bit);
        self.split(end);
        let (mut at, mut gaps) = (bit, Vec::new());
        for (from, (to, claims)) in self.parts.range_mut(bit..end) {
            gaps.extend((at < *from).then_some((at, (*from, 1))));
            (at, *claims) = (*to, *claims + 1);
        }
        gaps.extend((at < end).then_some((at, (end, 1))));
        self.parts.extend(gaps);
        Ok(())
    }

    /// Ends a claim that was made for exactly this run.
    pub(super) fn end(&mut self, (bit, len): (u32, u32)) {
        let end = bit + len;
        if self.parts.get(&bit) == Some(&(end, 1)) {
            self.parts.remove(&bit);
            return;
        }
        self.split(bit);
        self.split(end);
        let mut over = Vec::new();
        for (from, (_, claims)) in self.parts.range_mut(bit..end) {
            *claims -= 1;
            over.extend((*claims == 0).then_some(*from));
        }
        for from in over {
            self.parts.remove(&from);
        }
    }

    /// Lets no part lie across this place.
    fn split(&mut self, at: u32) {
        let Some((_, (end, claims))) = self.parts.range_mut(..at).next_back() else { return };
        if *end > at {
            let behind = (*end, *claims);
            *end = at;
            self.parts.insert(at, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Compared with a counter for each block.
    #[test]
    fn parts_say_what_counters_would() {
        const BLOCKS: u32 = 300;
        for seed in 1..=20 {
            let mut random = Random(seed);
            let mut claims = Claims::default();
            let (mut counters, mut known) = ([0u32; BLOCKS as usize], Vec::new());
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
                let mut said = [0; BLOCKS as usize];
                for (from, (to, claims)) in &claims.parts {
                    said[of((*from, to - from))].iter_mut().for_each(|n: &mut u32| *n += claims);
                }
                assert_eq!(said, counters);
            }
            known.drain(..).for_each(|run| claims.end(run));
            assert!(claims.parts.is_empty());
        }
    }

    /// A version of a file of scattered blocks claims thousands of runs of a group, in any order. Each claim
    /// used to look at all others.
    #[test]
    fn many_runs_are_claimed_in_any_order() {
        let mut claims = Claims::default();
        let order = || (0..32_000).map(|i| (i * 7919) % 32_000);
        for bit in order() {
            claims.claim((bit, 1), |_| 1).unwrap();
        }
        assert_eq!(claims.parts.len(), 32_000);
        assert_eq!(claims.claim((31_999, 2), |_| 1), Err(31_999));
        order().for_each(|bit| claims.end((bit, 1)));
        assert!(claims.parts.is_empty());
    }
}
