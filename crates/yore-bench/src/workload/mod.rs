//! The workloads, one per file.

mod history;
mod latency;
mod micro;
mod postmark;
mod resident;
mod simulated;
mod startup;
mod stream;
mod tree;

pub use history::{History, HistoryPart};
pub use latency::Latency;
pub use micro::{Micro, MicroStep};
pub use postmark::PostMark;
pub use resident::Resident;
pub use simulated::{Simulated, SimulatedWorkload};
pub use startup::{fill, Fill, Startup};
pub use stream::Stream;
pub use tree::Tree;

use crate::Result;
use std::time::Instant;

/// Seconds that `step` takes for 0, 1, …, `count` − 1, one after the other.
fn timed(count: usize, mut step: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for i in 0..count {
        step(i)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes that do not compress, from a seed.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; len];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}
