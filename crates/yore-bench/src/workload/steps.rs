//! What workloads consist of: steps in a row under the clock, and bytes to write.

use crate::{BenchError, Result};
use std::fmt::Arguments;
use std::time::Instant;

/// Seconds that `step` takes for 0, 1, …, `count` − 1, one after the other.
pub(crate) fn timed(count: usize, mut step: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for i in 0..count {
        step(i)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// An error that says what was found and what was expected, unless it is right.
pub(crate) fn check(is_right: bool, found: Arguments<'_>, expected: Arguments<'_>) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(BenchError::Wrong { found: found.to_string(), expected: expected.to_string() }),
    }
}

/// Likewise for the size of a file.
pub(crate) fn check_size(found: u64, expected: u64) -> Result<()> {
    check(found == expected, format_args!("a file of {found} bytes"), format_args!("one of {expected} bytes"))
}

/// Bytes that do not compress, from a seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; len];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}
