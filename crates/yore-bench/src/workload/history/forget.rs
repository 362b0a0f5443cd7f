//! Creates and unlinks while snapshots are forgotten, against the same while nothing is forgotten.
//!
//! Both volumes have the same snapshots. On one of them a second thread forgets them, and files are created
//! and removed until that ends; on the other for as long.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::stats::median;
use crate::workload::steps::noise;
use crate::{Result, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use yore_fs::EventNo;

/// Bytes of each file that was changed before the snapshots.
const BYTES: usize = 4096;
/// How long creates go on without forgetting, in seconds, in the round in which the time of forgetting is not
/// known yet.
const UNKNOWN: f64 = 1.0;

/// A volume with snapshots.
struct Past {
    volume: Volume,
    events: Vec<EventNo>,
}

/// The row, and a note for the report.
pub(super) fn measure(run: &Run<'_>) -> Result<(Line, String)> {
    let history = run.history;
    let measure = format!("create + unlink, {} snapshots being forgotten / none", history.forgotten);
    let mut line = Line::new(measure, Unit::PerSecond, Goal::Ratio(0.9));
    let mut took = Vec::new();
    for round in run.rounds() {
        let pasts = [Past::new(run, "with")?, Past::new(run, "without")?];
        for side in turns(round?) {
            run.options.check_stop()?;
            let past = &pasts[side];
            let rate = match side {
                0 => {
                    let (count, seconds) = past.while_forgetting()?;
                    took.push(seconds);
                    count as f64 / seconds
                }
                _ => {
                    let most = took.last().copied().unwrap_or(UNKNOWN);
                    let (count, seconds) = past.create_and_unlink(|seconds| seconds >= most)?;
                    count as f64 / seconds
                }
            };
            line.samples[side].push(rate);
            past.volume.target.sync()?;
        }
        for past in pasts {
            past.volume.end()?;
        }
    }
    let note = format!(
        "Forgetting {} snapshots, each with {} files of 4 KiB overwritten before it, took {} beside the creates and unlinks.",
        history.forgotten,
        history.changes,
        Unit::Seconds.show(median(&took))
    );
    Ok((line, note))
}

impl Past {
    fn new(run: &Run<'_>, name: &str) -> Result<Past> {
        let history = run.history;
        let volume = Volume::make(run.options, run.dir, name)?.with_dirs(history.directories.max(1))?;
        let data = noise(BYTES, 1);
        let mut files = Vec::new();
        for i in 0..history.live.max(1) {
            let file = volume.target.create(&volume.dirs[i % volume.dirs.len()], &format!("file{i}"))?;
            volume.target.write_at(&file, 0, &data)?;
            files.push(file);
        }
        let mut events = Vec::new();
        for i in 0..history.forgotten.max(1) {
            for change in 0..history.changes {
                let file = &files[(i * history.changes + change) % files.len()];
                volume.target.write_at(file, 0, &data)?;
            }
            events.push(volume.snapshot(false)?);
        }
        volume.target.sync()?;
        Ok(Past { volume, events })
    }

    /// Creates and at once removes files while another thread forgets all events. Returns how many files, and
    /// the seconds that took.
    fn while_forgetting(&self) -> Result<(usize, f64)> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let forgotten = self.volume.forget(&self.events);
                done.store(true, Ordering::Release);
                forgotten
            });
            let worked = self.create_and_unlink(|_| done.load(Ordering::Acquire));
            // A panic in the thread becomes this program's.
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            worked
        })
    }

    /// The same until `done` of the seconds that have passed.
    fn create_and_unlink(&self, done: impl Fn(f64) -> bool) -> Result<(usize, f64)> {
        let (Volume { target, dirs, .. }, start) = (&self.volume, Instant::now());
        let mut count = 0;
        loop {
            let dir = &dirs[count % dirs.len()];
            let name = format!("new{count}");
            drop(target.create(dir, &name)?);
            target.unlink(dir, &name)?;
            count += 1;
            let seconds = start.elapsed().as_secs_f64();
            if done(seconds) {
                return Ok((count, seconds));
            }
        }
    }
}
