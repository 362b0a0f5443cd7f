//! Numbers that decide what is done.

/// Numbers from a seed (SplitMix64), or from the bytes of a fuzzer as long as they last, and zeros after
/// them.
#[derive(Clone, Debug)]
pub struct Chance<'a> {
    state: u64,
    bytes: Option<&'a [u8]>,
}

impl<'a> Chance<'a> {
    /// Numbers that follow from `seed`.
    pub fn seeded(seed: u64) -> Chance<'static> {
        Chance { state: seed, bytes: None }
    }

    /// Numbers made of `bytes`: a fuzzer that changes one of them changes one decision.
    pub fn of(bytes: &'a [u8]) -> Chance<'a> {
        Chance { state: 0, bytes: Some(bytes) }
    }

    /// Whether the bytes are used up; never with a seed.
    pub fn is_spent(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes.is_empty())
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        if self.bytes.is_some() {
            return self.take(8);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let raw = match self.bytes {
            // Takes as few bytes as possible, so that mutations stay local.
            Some(_) => self.take(if limit <= 256 {
                1
            } else if limit <= 1 << 16 {
                2
            } else {
                4
            }),
            None => self.number(),
        };
        (raw % limit as u64) as usize
    }

    /// One of several.
    pub fn pick<'p, T>(&mut self, from: &'p [T]) -> &'p T {
        &from[self.below(from.len())]
    }

    fn take(&mut self, count: usize) -> u64 {
        let bytes = self.bytes.as_mut().expect("called for bytes only");
        let (taken, rest) = bytes.split_at(count.min(bytes.len()));
        *bytes = rest;
        taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
