//! What workloads consist of: steps in a row under the clock, and bytes to write.

use crate::Result;
use std::time::Instant;

/// Seconds that `step` takes for 0, 1, …, `count` − 1, one after the other.
pub(crate) fn timed(count: usize, mut step: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for i in 0..count {
        step(i)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes that do not compress, from a seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; len];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}
