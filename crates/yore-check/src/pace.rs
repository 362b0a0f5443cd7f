//! How far a check is, and how long it will still take.
//!
//! A check has two parts. The *scan* reads zones: each takes a time for itself (finding it, reading its
//! header) and a time for each of its blocks, and the table says before the scan how many there are of both.
//! Both times are those of the line that fits the zones read so far best (least squares). Workers overlap:
//! what the zones took, divided by what has passed, says by how much. Then what was read is *compared*. That
//! takes processor time alone, in proportion to the blocks: before it begins, by experience, so much for each
//! block, more of a volume with a past, and little after the fast pass, which sums blocks up as they arrive.
//!
//! The comparison from inode to inode goes in [`Step`]s, and a block of inodes counts otherwise in each of
//! them than a node. By experience one counts as much more as it takes longer ([`Work`]). Where memory does
//! not suffice, one step may take much longer than the others, as measured by that. So from the time when
//! some of a step is done, what it has taken so far says what is left.
//!
//! Files and names do not count, and neither does how full or how old the volume is, beyond what zones and
//! blocks say of it.

mod with_past;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use with_past::WithPast;
use yore_format::Superblock;

/// How often a check says how far it is, at most.
const EVERY: Duration = Duration::from_millis(100);
/// Work between two looks at the clock while comparing.
const CLOCK_EACH: u64 = 256;
/// What comparing takes for each block, before any was compared: when they are walked ...
const WALK_PRIOR: Duration = Duration::from_micros(10);
/// ... on a volume with a past ...
const PAST_PRIOR: Duration = Duration::from_micros(40);
/// ... when they were summed up as they arrived ...
const PROOF_PRIOR: Duration = Duration::from_nanos(300);
/// ... and when they are summed up after the past was compared with itself.
const PROOF_WITH_PAST_PRIOR: Duration = Duration::from_micros(20);
/// What a block of inodes takes in the census is 1. So much takes a node of a tree, wherever it is met ...
const NODE: f64 = 20.0;
/// ... a block of inodes, when what they hold is gone through ...
const CONTENTS: f64 = 11.0;
/// ... and when their links are counted.
const LINKS: f64 = 2.0;
/// What has been done of a step says how fast it is from this part of all work on.
const TELLING: f64 = 0.01;
/// Zones that are read before what they took says anything.
const ZONES_MIN: f64 = 3.0;

/// How what was read is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By sums and summaries.
    Proof,
    /// The same, on a volume with a past or with shared blocks.
    ProofWithPast,
    /// From inode to inode and from node to node.
    Walk,
    /// The same, on a volume with a past.
    WalkOfPast,
}

impl How {
    /// From inode to inode, of this volume.
    pub(crate) fn walk(sb: &Superblock) -> How {
        match sb.history_root.is_none() {
            true => How::Walk,
            false => How::WalkOfPast,
        }
    }

    /// What comparing a block takes, before any was compared.
    fn each(self) -> Duration {
        match self {
            How::Proof => PROOF_PRIOR,
            How::ProofWithPast => PROOF_WITH_PAST_PRIOR,
            How::Walk => WALK_PRIOR,
            How::WalkOfPast => PAST_PRIOR,
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

/// What the comparison from inode to inode does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Blocks of inodes are read.
    Census,
    /// The past is compared with itself.
    Past,
    /// What inodes and their versions hold is gone through.
    Contents,
    /// Links are counted, and all that is left.
    Links,
}

/// The work of the comparison from inode to inode, as far as it is left.
#[derive(Clone, Copy, Debug)]
struct Work {
    step: Step,
    /// Blocks of inodes that the census, and what follows it, have before them.
    census: f64,
    contents: f64,
    links: f64,
    /// Nodes that were not read yet, of whatever trees.
    nodes: f64,
    /// All that there was in the beginning, and what of it was left when the step began.
    all: f64,
    at_step: f64,
}

impl Work {
    fn new(inode_blocks: u64, others: u64) -> Work {
        let (inodes, nodes) = (inode_blocks as f64, others as f64);
        let mut work = Work {
            step: Step::Census,
            census: inodes,
            contents: inodes,
            links: inodes,
            nodes,
            all: 0.0,
            at_step: 0.0,
        };
        (work.all, work.at_step) = (work.left(), work.left());
        work
    }

    fn left(&self) -> f64 {
        self.census + NODE * self.nodes + CONTENTS * self.contents + LINKS * self.links
    }

    fn begin(&mut self, step: Step) {
        self.step = step;
        if step > Step::Census {
            self.census = 0.0;
        }
        if step > Step::Contents {
            (self.contents, self.nodes) = (0.0, 0.0);
        }
        self.at_step = self.left();
    }

    /// A block was read for the first time.
    fn read(&mut self) {
        let of = match self.step {
            Step::Census => &mut self.census,
            _ => &mut self.nodes,
        };
        *of = (*of - 1.0).max(0.0);
    }

    /// What is left, in seconds, if the comparison has taken `passed` and the step `in_step` of them.
    fn time_left(&self, passed: f64, in_step: f64) -> f64 {
        let (left, of_step) = (self.left(), self.at_step - self.left());
        let rate = match (of_step >= TELLING * self.all, self.all - left) {
            (true, _) => in_step / of_step,
            (false, done) if done > 0.0 => passed / done,
            _ => PAST_PRIOR.as_secs_f64() / NODE,
        };
        // Links are not slow because the contents were.
        let before = self.all - self.at_step;
        let of_links = if before > 0.0 { rate.min((passed - in_step) / before) } else { rate };
        let links = LINKS * self.links;
        rate * (left - links) + of_links * links
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
    /// Zones that were settled before the scan.
    settled: u64,
    compare_began: Option<Instant>,
    compared: u64,
    /// If it goes from inode to inode: what is left, and when the step began.
    work: Option<(Work, Instant)>,
    /// If it is the fast pass of a volume with a past: what is left.
    with_past: Option<WithPast>,
    /// What was done since somebody looked at the clock.
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
                settled: 0,
                compare_began: None,
                compared: 0,
                work: None,
                with_past: None,
                pending: 0,
            }),
        }
    }

    /// The scan of so many zones with so many blocks begins.
    pub(crate) fn begin_scan(&mut self, zones: u64, blocks: u64) {
        let mut state = self.state();
        (state.zones, state.blocks, state.scan_began) = (zones, blocks, Instant::now());
        (state.scanned, state.line) = ((0, 0), Line::default());
        (state.compare_began, state.compared, state.work, state.pending) = (None, 0, None, 0);
        state.with_past = None;
    }

    /// A zone of a volume that was not closed is settled next, before the scan. Says so at once of the first
    /// one: whoever watches may want the check to end.
    pub(crate) fn settles_zone(&self) {
        if self.is_watched {
            let mut state = self.state();
            state.settled += 1;
            let is_first = state.settled == 1;
            self.tell(&mut state, is_first);
        }
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
            (state.compared, state.work, state.pending) = (0, None, 0);
            let blocks = state.blocks;
            let has_past = self.how == How::ProofWithPast;
            state.with_past = has_past.then(|| WithPast::new(blocks, PROOF_WITH_PAST_PRIOR / 2));
            self.tell(&mut state, true);
        }
    }

    /// The comparison from inode to inode begins, of so many blocks of inodes and other blocks.
    pub(crate) fn begin_walk(&self, inode_blocks: u64, others: u64) {
        if self.is_watched {
            self.state().work = Some((Work::new(inode_blocks, others), Instant::now()));
        }
    }

    /// It goes on with this step.
    pub(crate) fn begin_step(&self, step: Step) {
        if self.is_watched {
            let mut state = self.state();
            if let Some((work, began)) = &mut state.work {
                work.begin(step);
                *began = Instant::now();
            }
            self.tell(&mut state, false);
        }
    }

    /// The trees of the past have so many nodes.
    pub(crate) fn has_past(&self, nodes: u64) {
        self.note_past(|work| work.has_trees(nodes));
    }

    /// The fast pass has compared the trees of the past, which name so many versions, and sums up blocks.
    pub(crate) fn sums_up(&self, versions: u64) {
        self.note_past(|work| work.sums_up(versions));
    }

    /// It has summed up all blocks, and walks the versions.
    pub(crate) fn walks_versions(&self) {
        self.note_past(WithPast::walks);
    }

    /// So many versions were walked.
    pub(crate) fn walked(&self, versions: usize) {
        self.note_past(|work| work.note(versions as u64, true));
    }

    fn note_past(&self, note: impl FnOnce(&mut WithPast)) {
        self.note(|state| {
            if let Some(work) = &mut state.with_past {
                note(work);
            }
        });
    }

    /// A block was read for the first time, and compared or summed up.
    pub(crate) fn compared(&self) {
        self.note(|state| {
            state.compared += 1;
            if let Some(work) = &mut state.with_past {
                work.note(1, false);
            }
            if let Some((work, _)) = &mut state.work {
                work.read();
            }
        });
    }

    /// What the inodes of a block hold was gone through.
    pub(crate) fn gone_through(&self) {
        self.note(|state| {
            if let Some((work, _)) = &mut state.work {
                work.contents = (work.contents - 1.0).max(0.0);
            }
        });
    }

    fn note(&self, note: impl FnOnce(&mut State<'w>)) {
        if self.is_watched {
            let mut state = self.state();
            note(&mut state);
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
            (state.compared, state.work, state.with_past) = (state.blocks, None, None);
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
                if let Some((work, began)) = &self.work {
                    let (passed, in_step) = ((now - since).as_secs_f64(), (now - *began).as_secs_f64());
                    let share = 1.0 - work.left() / work.all.max(1.0);
                    let done = (share * self.blocks as f64) as u64;
                    let left = seconds(work.time_left(passed, in_step));
                    return Progress { part: Part::Compare, done, total: self.blocks, elapsed, left };
                }
                if let Some(work) = &self.with_past {
                    let (passed, left) = ((now - since).as_secs_f64(), work.left(now));
                    let share = passed / (passed + left).max(f64::MIN_POSITIVE);
                    let done = (share * self.blocks as f64) as u64;
                    return Progress {
                        part: Part::Compare,
                        done: done.min(self.blocks),
                        total: self.blocks,
                        elapsed,
                        left: seconds(left),
                    };
                }
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

    /// Promises that a walk whose steps take as long as by experience is predicted from its beginning on, and
    /// one of which the contents take ten times as long, for want of memory, as soon as they have begun.
    #[test]
    fn steps_of_a_walk_are_predicted() {
        for slower in [1.0, 10.0] {
            let (inodes, nodes_of_past, nodes) = (7000, 2000, 1000);
            let mut work = Work::new(inodes, nodes_of_past + nodes);
            let unit = 2e-6;
            let contents = (inodes as f64 * CONTENTS + nodes as f64 * NODE) * unit * slower;
            let end = (inodes as f64 + NODE * nodes_of_past as f64 + LINKS * inodes as f64) * unit + contents;
            let (mut passed, mut in_step) = (0.0, 0.0);
            let check = |work: &Work, passed: f64, in_step: f64, tells: bool| {
                let predicted = passed + work.time_left(passed, in_step);
                assert!(
                    !tells || (predicted / end - 1.0).abs() < 0.1,
                    "{predicted} and not {end} at {passed}"
                );
            };
            for _ in 0..inodes {
                work.read();
                passed += unit;
                check(&work, passed, passed, slower == 1.0);
            }
            work.begin(Step::Past);
            for _ in 0..nodes_of_past {
                work.read();
                (passed, in_step) = (passed + NODE * unit, in_step + NODE * unit);
                check(&work, passed, in_step, slower == 1.0);
            }
            work.begin(Step::Contents);
            in_step = 0.0;
            for i in 0..inodes {
                if i % (inodes / nodes) == 0 {
                    work.read();
                    (passed, in_step) = (passed + NODE * unit * slower, in_step + NODE * unit * slower);
                }
                work.contents -= 1.0;
                (passed, in_step) = (passed + CONTENTS * unit * slower, in_step + CONTENTS * unit * slower);
                // Links are few, and counted as fast as before.
                check(&work, passed, in_step, slower == 1.0 || i > inodes / 50 && i < inodes / 2);
            }
            work.begin(Step::Links);
            assert!(work.left() < 0.1 * work.all && work.nodes == 0.0);
        }
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
