//! How long a check would take, said before it begins.
//!
//! A sample of zones is read as the scan reads them: a few at a time that are neighbours, in places spread
//! over the volume. What they took says what all would take ([`crate::pace`]).

use crate::checker::Checker;
use crate::pace::How;
use crate::scan::Job;
use std::time::Duration;

/// Places from which the sample is taken.
const PLACES: usize = 8;
/// Neighbours that are read at each of them.
const NEIGHBOURS: usize = 4;

/// What a check would read, and how long it would take.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Estimate {
    /// Zones to read.
    pub zones: u64,
    /// Metadata blocks in them.
    pub blocks: u64,
    /// Zones that were read for the estimate.
    pub sampled: u64,
    /// How long the check would take, in seconds.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(time.as_secs_f64())
}

impl Checker<'_> {
    /// Reads a sample.
    pub(crate) fn estimate(&mut self) -> Estimate {
        let how = match self.may_be_proved() {
            Ok(()) => How::Proof,
            Err(doubt) if Checker::needs_to_know(doubt) => How::ProofWithPast,
            Err(_) => How::walk(&self.sb),
        };
        let mut jobs = self.jobs();
        jobs.sort_unstable_by_key(|job| job.start);
        let (zones, blocks) = (jobs.len() as u64, jobs.iter().map(|job| job.blocks).sum());
        let sample = sample(&jobs);
        let sampled = sample.len() as u64;
        let of_sample: u64 = sample.iter().map(|job| job.blocks).sum();
        self.run_scan(sample);
        let (line, took) = self.pace.scanned();
        let share = match (line.of(zones, blocks), line.of(sampled, of_sample)) {
            (Some(all), Some(part)) if part > 0.0 => all / part,
            // So few zones that they are all of them.
            _ => 1.0,
        };
        let scan = Duration::try_from_secs_f64(took.as_secs_f64() * share).unwrap_or(Duration::MAX);
        Estimate { zones, blocks, sampled, time: scan.saturating_add(how.time(blocks)) }
    }
}

/// Neighbouring zones from places that are spread evenly; all zones if there are few.
fn sample(jobs: &[Job]) -> Vec<Job> {
    if jobs.len() <= PLACES * NEIGHBOURS {
        return jobs.to_vec();
    }
    let last = jobs.len() - NEIGHBOURS;
    (0..PLACES)
        .map(|place| last * place / (PLACES - 1))
        .flat_map(|first| jobs[first..first + NEIGHBOURS].iter().copied())
        .collect()
}
