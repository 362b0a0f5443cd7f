//! How far a check is, and how long it will still take.
//!
//! A check has two parts. The *scan* reads zones: each takes a time for itself (finding it, reading its
//! header) and a time for each of its blocks, and the table says before the scan how many there are of both.
//! Both times are those of the line that fits the zones read so far best (least squares). Workers overlap:
//! what the zones took, divided by what has passed, says by how much. Then what was read is *compared*. That
//! takes processor time alone, in proportion to the blocks: before it begins, by experience, so much for each
//! block, and little after the fast pass, which sums blocks up as they arrive; then what it has taken so far.
//!
//! Files and names do not count, and neither does how full or how old the volume is, beyond what zones and
//! blocks say of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a check says how far it is, at most.
const EVERY: Duration = Duration::from_millis(100);
/// Work between two looks at the clock while comparing.
const CLOCK_EACH: u64 = 256;
/// What comparing takes for each block, before any was compared: when they are walked ...
const WALK_PRIOR: Duration = Duration::from_micros(10);
/// ... and when they were summed up as they arrived.
const PROOF_PRIOR: Duration = Duration::from_nanos(300);
/// Zones that are read before what they took says anything.
const ZONES_MIN: f64 = 3.0;

/// How what was read is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By sums and summaries.
    Proof,
    /// From inode to inode and from node to node.
    Walk,
}

impl How {
    /// What comparing a block takes, before any was compared.
    fn each(self) -> Duration {
        match self {
            How::Proof => PROOF_PRIOR,
            How::Walk => WALK_PRIOR,
        }
    }

    /// The same of so many blocks.
    pub(crate) fn time(self, blocks: u64) -> Duration {
        self.each().saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX))
    }
}

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Reading all metadata.
    Scan,
    /// Comparing what was read.
    Compare,
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What it is doing.
    pub part: Part,
    /// Metadata blocks that this part is done with.
    pub done: u64,
    /// Of how many.
    pub total: u64,
    /// Since the check began.
    pub elapsed: Duration,
    /// Until it ends, both parts together; `None` as long as too little was read to say.
    pub left: Option<Duration>,
}

impl Progress {
    /// The share of its time that the check has had: 0 to 1, and 0 as long as nobody knows.
    pub fn share(&self) -> f64 {
        let (elapsed, left) = (self.elapsed.as_secs_f64(), self.left.map(|left| left.as_secs_f64()));
        left.map_or(0.0, |left| elapsed / (elapsed + left).max(f64::MIN_POSITIVE))
    }
}

/// Receives the progress of a check. Any thread of the check may call it; calls never overlap.
pub type Watcher<'w> = &'w mut (dyn FnMut(&Progress) + Send);

/// Times of zones, in seconds, as the line *zone + block · blocks*.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    zones: f64,
    blocks: f64,
    squares: f64,
    times: f64,
    products: f64,
}

impl Line {
    pub(crate) fn add(&mut self, blocks: u64, took: Duration) {
        let (blocks, took) = (blocks as f64, took.as_secs_f64());
        self.zones += 1.0;
        self.blocks += blocks;
        self.squares += blocks * blocks;
        self.times += took;
        self.products += blocks * took;
    }

    /// What so many zones with so many blocks would take, one after the other. `None` before enough is known.
    pub(crate) fn of(&self, zones: u64, blocks: u64) -> Option<f64> {
        if self.zones < ZONES_MIN {
            return None;
        }
        let (zones, blocks) = (zones as f64, blocks as f64);
        // The variance of the blocks of a zone, and how the times follow them.
        let spread = self.zones * self.squares - self.blocks * self.blocks;
        let slope = (self.zones * self.products - self.blocks * self.times) / spread;
        let base = (self.times - slope * self.blocks) / self.zones;
        let fits = spread > 1e-6 * self.zones * self.squares && slope >= 0.0 && base >= 0.0;
        Some(match fits {
            true => base * zones + slope * blocks,
            // All zones are alike, or differ by what has nothing to do with their blocks.
            false if self.blocks > 0.0 => self.times * 0.5 * (zones / self.zones + blocks / self.blocks),
            false => self.times * zones / self.zones,
        })
    }
}

struct State<'w> {
    watcher: Option<Watcher<'w>>,
    told: Instant,
    zones: u64,
    blocks: u64,
    line: Line,
    scanned: (u64, u64),
    scan_began: Instant,
    compare_began: Option<Instant>,
    compared: u64,
    /// Of which so many were not yet looked at the clock for.
    pending: u64,
}

/// The clock of one check.
pub(crate) struct Pace<'w> {
    began: Instant,
    is_watched: bool,
    /// Whether somebody will ask what the zones took.
    pub(crate) is_measured: bool,
    /// How what is read will be compared.
    pub(crate) how: How,
    state: Mutex<State<'w>>,
}

impl<'w> Pace<'w> {
    pub(crate) fn new(watcher: Option<Watcher<'w>>) -> Pace<'w> {
        let began = Instant::now();
        Pace {
            began,
            is_watched: watcher.is_some(),
            is_measured: false,
            how: How::Walk,
            state: Mutex::new(State {
                watcher,
                told: began,
                zones: 0,
                blocks: 0,
                line: Line::default(),
                scanned: (0, 0),
                scan_began: began,
                compare_began: None,
                compared: 0,
                pending: 0,
            }),
        }
    }

    /// The scan of so many zones with so many blocks begins.
    pub(crate) fn begin_scan(&mut self, zones: u64, blocks: u64) {
        let mut state = self.state();
        (state.zones, state.blocks, state.scan_began) = (zones, blocks, Instant::now());
        (state.scanned, state.line) = ((0, 0), Line::default());
        (state.compare_began, state.compared, state.pending) = (None, 0, 0);
    }

    /// A zone with so many blocks was read.
    pub(crate) fn zone_done(&self, blocks: u64, took: Duration) {
        if self.is_watched || self.is_measured {
            let mut state = self.state();
            state.line.add(blocks, took);
            state.scanned.0 += 1;
            state.scanned.1 += blocks;
            self.tell(&mut state, false);
        }
    }

    /// All that was wanted was read, and is compared from now on.
    pub(crate) fn begin_compare(&self) {
        if self.is_watched {
            let mut state = self.state();
            state.compare_began = Some(Instant::now());
            self.tell(&mut state, true);
        }
    }

    /// A block was compared.
    pub(crate) fn compared(&mut self) {
        if self.is_watched {
            let mut state = self.state();
            state.compared += 1;
            state.pending += 1;
            if state.pending >= CLOCK_EACH {
                state.pending = 0;
                self.tell(&mut state, false);
            }
        }
    }

    /// The check is done.
    pub(crate) fn end(&self) {
        if self.is_watched {
            let mut state = self.state();
            state.compared = state.blocks;
            self.tell(&mut state, true);
        }
    }

    /// What is known of the zones that were read, and how long ago that began.
    pub(crate) fn scanned(&self) -> (Line, Duration) {
        let state = self.state();
        (state.line, state.scan_began.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State<'w>> {
        // A watcher that panicked has left nothing here in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: &mut State<'w>, at_once: bool) {
        let now = Instant::now();
        if !at_once && now - state.told < EVERY {
            return;
        }
        state.told = now;
        let progress = state.progress(self.how, self.began, now);
        if let Some(watcher) = &mut state.watcher {
            watcher(&progress);
        }
    }
}

impl State<'_> {
    fn progress(&self, how: How, began: Instant, now: Instant) -> Progress {
        let elapsed = now - began;
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).ok();
        match self.compare_began {
            None => {
                let (zones, blocks) = self.scanned;
                let passed = (now - self.scan_began).as_secs_f64();
                let scan = self.line.scan_left(
                    self.zones - zones.min(self.zones),
                    self.blocks.saturating_sub(blocks),
                    passed,
                );
                let compare = how.time(self.blocks).as_secs_f64();
                let left = scan.and_then(|scan| seconds(scan + compare));
                Progress { part: Part::Scan, done: blocks, total: self.blocks, elapsed, left }
            }
            Some(since) => {
                let done = self.compared.min(self.blocks);
                let passed = (now - since).as_secs_f64();
                let each = match done {
                    0 => how.each().as_secs_f64(),
                    _ => passed / done as f64,
                };
                let left = seconds(each * (self.blocks - done) as f64);
                Progress { part: Part::Compare, done, total: self.blocks, elapsed, left }
            }
        }
    }
}

impl Line {
    /// What is left of a scan, on the clock, when these zones took so many seconds.
    fn scan_left(&self, zones: u64, blocks: u64, passed: f64) -> Option<f64> {
        let together = if passed > 0.0 { (self.times / passed).max(1.0) } else { 1.0 };
        Some(self.of(zones, blocks)? / together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that zones that take a time each and a time for each block are predicted exactly, whether
    /// they differ or not.
    #[test]
    fn lines_are_found() {
        let took = |blocks: u64| Duration::from_micros(8000 + 27 * blocks);
        let mut line = Line::default();
        for blocks in [10, 500, 300] {
            line.add(blocks, took(blocks));
        }
        let expected = 100.0 * 8e-3 + 20_000.0 * 27e-6;
        assert!((line.of(100, 20_000).unwrap() / expected - 1.0).abs() < 1e-6);
        let mut alike = Line::default();
        assert!(alike.of(10, 10).is_none());
        for _ in 0..5 {
            alike.add(400, took(400));
        }
        let expected = 100.0 * took(400).as_secs_f64();
        assert!((alike.of(100, 40_000).unwrap() / expected - 1.0).abs() < 1e-6);
    }

    /// Promises that a zone for which nothing was needed, and one that waited, do not lead to times below 0.
    #[test]
    fn odd_times_are_no_prediction_below_zero() {
        let mut line = Line::default();
        for (blocks, micros) in [(10, 9000), (500, 10), (0, 4000)] {
            line.add(blocks, Duration::from_micros(micros));
        }
        assert!(line.of(10, 5000).unwrap() > 0.0);
        assert!(line.of(0, 0).unwrap() == 0.0);
    }
}
