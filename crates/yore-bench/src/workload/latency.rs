//! `latency`: how long a create takes while generations are written, when creates arrive at a steady rate.
//!
//! First the rate that the file system sustains is measured: as many creates as possible for some seconds.
//! Then creates arrive at half of that rate, by the clock, whether or not the one before has ended. Each
//! latency counts from when the create was *due*. So a stall delays all creates that fall due during it, as
//! it would delay their users. (A loop that waits for each answer would count the stall once: coordinated
//! omission.) One thread serves them in order. An unlink of the oldest file follows each create beyond the
//! first [`Latency::alive`], so that the volume does not grow; the sustained rate is measured with the same
//! pairs.

use crate::compare::{Benchmark, Subject};
use crate::report::{Column, Unit};
use crate::rival::OnTarget;
use crate::stats::percentile;
use crate::{Result, Target};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Latencies of creates at a steady rate.
#[derive(Clone, Debug)]
pub struct Latency {
    /// How long creates arrive.
    pub duration: Duration,
    /// How long the sustained rate is measured.
    pub probe: Duration,
    /// The share of the sustained rate at which they arrive.
    pub load: f64,
    /// Files that exist at once.
    pub alive: usize,
    /// Directories they are spread over.
    pub directories: usize,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            duration: Duration::from_secs(60),
            probe: Duration::from_secs(10),
            load: 0.5,
            alive: 50_000,
            directories: 100,
        }
    }
}

impl Benchmark for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn about(&self) -> String {
        "Latency of creates that arrive at a steady rate, from when each was due.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![
            ("seconds".into(), self.duration.as_secs_f64().to_string()),
            ("seconds to find the sustained rate".into(), self.probe.as_secs_f64().to_string()),
            ("share of the sustained rate".into(), self.load.to_string()),
            ("files alive".into(), self.alive.to_string()),
            ("directories".into(), self.directories.to_string()),
        ]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = vec![
            Column::rate("sustained"),
            Column::fact("arriving", Unit::PerSecond),
            Column::time("p50"),
            Column::time("p99"),
            Column::time("p99.9"),
            Column::time("max"),
        ];
        vec![(String::new(), columns)]
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        subject.0.measure(Run { latency: self, round }).map(|samples| vec![samples])
    }
}

struct Run<'l> {
    latency: &'l Latency,
    round: usize,
}

/// Files that come and go.
struct Files<'f, T: Target> {
    target: &'f T,
    dirs: Vec<T::Dir>,
    /// The names' numbers, oldest first.
    alive: VecDeque<usize>,
    next: usize,
}

impl<T: Target> Files<'_, T> {
    fn create(&mut self) -> Result<()> {
        let number = self.next;
        self.next += 1;
        drop(self.target.create(&self.dirs[number % self.dirs.len()], &number.to_string())?);
        self.alive.push_back(number);
        Ok(())
    }

    /// Removes the oldest until `most` are left.
    fn trim(&mut self, most: usize) -> Result<()> {
        while self.alive.len() > most {
            if let Some(number) = self.alive.pop_front() {
                self.target.unlink(&self.dirs[number % self.dirs.len()], &number.to_string())?;
            }
        }
        Ok(())
    }
}

impl OnTarget for Run<'_> {
    type Output = Vec<f64>;

    fn on<T: Target>(self, target: &T) -> Result<Vec<f64>> {
        let latency = self.latency;
        let root = target.root()?;
        let names: Vec<String> =
            (0..latency.directories.max(1)).map(|d| format!("l{}-{d}", self.round)).collect();
        let dirs = target.new_dirs(&root, &names)?;
        let mut files = Files { target, dirs, alive: VecDeque::new(), next: 0 };
        for _ in 0..latency.alive {
            files.create()?;
        }
        let sustained = probe(&mut files, latency)?;
        let arriving = sustained * latency.load;
        let mut latencies = arrivals(&mut files, latency, arriving)?;
        files.trim(0)?;
        drop(files);
        for name in &names {
            target.rmdir(&root, name)?;
        }
        latencies.sort_unstable();
        let seconds = |quantile| percentile(&latencies, quantile) as f64 / 1e9;
        Ok(vec![sustained, arriving, seconds(0.5), seconds(0.99), seconds(0.999), seconds(1.0)])
    }
}

/// Creates (and unlinks) a second, one after the other.
fn probe<T: Target>(files: &mut Files<'_, T>, latency: &Latency) -> Result<f64> {
    let start = Instant::now();
    let mut count = 0;
    while count == 0 || start.elapsed() < latency.probe {
        files.create()?;
        files.trim(latency.alive)?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Nanoseconds that each create ended after it was due.
fn arrivals<T: Target>(files: &mut Files<'_, T>, latency: &Latency, per_second: f64) -> Result<Vec<u64>> {
    let count = (per_second * latency.duration.as_secs_f64()).ceil().max(1.0) as u64;
    // Written once before, so that none of its pages has to be allocated while the clock runs: a huge page
    // takes milliseconds.
    let mut latencies = vec![u64::MAX; count as usize];
    let start = Instant::now();
    for (i, nanoseconds) in latencies.iter_mut().enumerate() {
        let due = Duration::from_secs_f64(i as f64 / per_second);
        wait_until(start, due);
        files.create()?;
        let late = start.elapsed().saturating_sub(due);
        *nanoseconds = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        files.trim(latency.alive)?;
    }
    Ok(latencies)
}

/// Sleeps while there is time for it, and spins over the last stretch: the system wakes sleepers late.
fn wait_until(start: Instant, due: Duration) {
    const LATE: Duration = Duration::from_micros(200);
    loop {
        let now = start.elapsed();
        match due.checked_sub(now) {
            None | Some(Duration::ZERO) => return,
            Some(left) if left > LATE => std::thread::sleep(left - LATE),
            Some(_) => std::hint::spin_loop(),
        }
    }
}
