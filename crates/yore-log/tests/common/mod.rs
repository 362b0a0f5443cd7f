//! Contents that can be recognised, and a small generator of reproducible numbers.
#![allow(dead_code)]

/// `length` bytes that depend on `number` only.
pub fn contents(number: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A small generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}
