//! How many blocks of metadata three months of work leave, with a snapshot each hour and each minute in which
//! something changed, and with none.
//!
//! The trace behind the figures of ext3cow is not available (Peterson and Burns, "Ext3cow: A Time-Shifting
//! File System for Regulatory Compliance", 2005, table 2: three months of system calls; 78,625 inodes
//! allocated, 1,386 of them directories; snapshots each day, hour and minute added 3,233, 3,311 and 3,810, of
//! which 878, 963 and 1,062 for directories). So this is a trace with its proportions. Each day 15
//! directories come with 46 files each, and 10 older directories get 17 more files. In these 10, 26 older
//! files change, most of them once a day: they are overwritten, appended to, renamed and removed, by turns.
//! Four change again in another minute of the same hour, and one of the directories sees more work hours
//! later.
//!
//! With *the policy of new volumes* a snapshot is taken each minute, and at the end of each day those are
//! forgotten that the rules of the policy do not keep: by the trace's own clock, in which each day has 24
//! hours.
//!
//! As with an interval policy, no snapshot is taken if nothing has changed. A row for each of the 129,600
//! minutes would weigh more than all the versions.

use super::run::{Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::noise;
use crate::{BenchError, Result, Target as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use yore_fs::retention::{reasons, Taken};
use yore_fs::{EventNo, MkfsOptions, Node, Retention, Timestamp};

const DAYS: usize = 90;
/// Directories that come each day, in as many minutes, and files in each.
const NEW_DIRECTORIES: usize = 15;
const NEW_MINUTES: usize = 5;
const FILES_OF_NEW: usize = 46;
/// Older directories with work each day, files that come to each, and changes of older files in total.
const WORKED_IN: usize = 10;
const FILES_OF_OLD: usize = 17;
const CHANGES: usize = 26;
/// Files of them that change again a little later.
const AGAIN: usize = 4;
/// Bytes of a file, and of what is appended.
const BYTES: usize = 4096;
const BLOCK: f64 = 4096.0;
/// When the trace begins: a Monday at eight, in seconds.
const BEGIN: i64 = 1_767_600_000;

/// When snapshots are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Every {
    Never,
    Hour,
    Minute,
    /// Each minute, thinned as the policy of new volumes says.
    Usual,
}

/// The intervals, each with its name and its goal, a ratio: history may add 2 or 3 % to the metadata.
const SNAPSHOTS: [(Every, &str, f64); 3] = [
    (Every::Hour, "each hour", 1.0 / 1.02),
    (Every::Minute, "each minute", 1.0 / 1.03),
    (Every::Usual, "by the policy of new volumes", 1.0 / 1.03),
];

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let measure = |how: &str| format!("metadata after three months of work, a snapshot {how} / none");
    let mut lines = SNAPSHOTS.map(|(_, how, goal)| Line::new(measure(how), Unit::Bytes, Goal::Ratio(goal)));
    for round in run.rounds() {
        round?;
        let without = Work::all(run, Every::Never)?;
        for ((every, ..), line) in SNAPSHOTS.into_iter().zip(&mut lines) {
            line.samples[0].push(Work::all(run, every)?);
            line.samples[1].push(without);
        }
    }
    Ok(lines.into())
}

/// A directory with the numbers of the files in it.
struct Directory {
    node: Node,
    files: Vec<usize>,
}

struct Work {
    volume: Volume,
    every: Every,
    random: StdRng,
    directories: Vec<Directory>,
    data: Vec<u8>,
    /// Files and names that have come.
    files: usize,
    changes: usize,
    /// The trace's time, in seconds, and the snapshots that are kept with theirs.
    clock: i64,
    kept: Vec<(EventNo, i64)>,
}

impl Work {
    /// Bytes of metadata after all days.
    fn all(run: &Run<'_>, every: Every) -> Result<f64> {
        let volume = Volume::make(run.options, run.dir, "months")?;
        let (random, data) = (StdRng::seed_from_u64(42), noise(BYTES, 1));
        let mut work = Work {
            volume,
            every,
            random,
            directories: Vec::new(),
            data,
            files: 0,
            changes: 0,
            clock: 0,
            kept: Vec::new(),
        };
        for day in 0..DAYS {
            run.options.check_stop()?;
            work.clock = BEGIN + day as i64 * 86_400;
            work.day()?;
            work.thin()?;
        }
        work.volume.target.sync()?;
        let blocks = work.volume.target.view().info().metadata_blocks;
        work.directories.clear();
        work.volume.end()?;
        Ok(blocks as f64 * BLOCK)
    }

    fn day(&mut self) -> Result<()> {
        let older = self.directories.len();
        for _ in 0..NEW_MINUTES {
            for _ in 0..NEW_DIRECTORIES / NEW_MINUTES {
                self.directory()?;
            }
            self.minute_ends()?;
            self.hour_ends()?;
        }
        if older == 0 {
            return Ok(());
        }
        let mut last = 0;
        for i in 0..WORKED_IN {
            last = self.random.random_range(0..older);
            for _ in 0..FILES_OF_OLD {
                self.create(last)?;
            }
            let changes = CHANGES * (i + 1) / WORKED_IN - CHANGES * i / WORKED_IN;
            let changed: Vec<_> = (0..changes).map(|_| self.change(last)).collect::<Result<_>>()?;
            self.minute_ends()?;
            let mut still_there =
                changed.into_iter().flatten().filter(|n| self.directories[last].files.contains(n));
            if let Some(number) = still_there.next().filter(|_| i < AGAIN) {
                self.write(last, number, 0)?;
                self.minute_ends()?;
            }
            self.hour_ends()?;
        }
        self.create(last)?;
        self.minute_ends()?;
        self.hour_ends()
    }

    fn minute_ends(&mut self) -> Result<()> {
        self.clock += 60;
        if matches!(self.every, Every::Minute | Every::Usual) {
            let number = self.volume.snapshot(false)?;
            self.kept.push((number, self.clock));
        }
        Ok(())
    }

    fn hour_ends(&mut self) -> Result<()> {
        self.clock += 3600 - self.clock.rem_euclid(3600);
        if self.every == Every::Hour {
            self.volume.snapshot(false)?;
        }
        Ok(())
    }

    /// A day is over: forgets the snapshots that no rule keeps.
    fn thin(&mut self) -> Result<()> {
        let Some(Retention::Rules(rules)) = MkfsOptions::usual_policy().retention else { return Ok(()) };
        if self.every != Every::Usual {
            return Ok(());
        }
        let at = |&(number, seconds): &(EventNo, i64)| Taken {
            number,
            time: Timestamp { seconds, nanos: 0 },
            name: "",
            undo: false,
            held: false,
            mounted: false,
        };
        let taken: Vec<Taken<'_>> = self.kept.iter().map(at).collect();
        let wrong =
            |error| BenchError::impossible(format!("the rules of the usual policy: {error}"), "report it");
        let reasons = reasons(&rules, false, &taken, &jiff::tz::TimeZone::UTC).map_err(wrong)?;
        let judged: Vec<(bool, (EventNo, i64))> =
            reasons.iter().map(|why| !why.is_empty()).zip(self.kept.iter().copied()).collect();
        let to_forget: Vec<EventNo> =
            judged.iter().filter(|(stays, _)| !stays).map(|(_, (number, _))| *number).collect();
        self.kept = judged.into_iter().filter(|(stays, _)| *stays).map(|(_, one)| one).collect();
        if to_forget.is_empty() {
            return Ok(());
        }
        self.volume.forget(&to_forget)
    }

    fn directory(&mut self) -> Result<()> {
        let (target, name) = (&self.volume.target, format!("d{}", self.directories.len()));
        let root = target.root()?;
        target.mkdir(&root, &name)?;
        self.directories.push(Directory { node: target.open_dir(&root, &name)?, files: Vec::new() });
        (0..FILES_OF_NEW).try_for_each(|_| self.create(self.directories.len() - 1))
    }

    fn create(&mut self, directory: usize) -> Result<()> {
        let target = &self.volume.target;
        let file = target.create(&self.directories[directory].node, &name(self.files))?;
        target.write_at(&file, 0, &self.data)?;
        self.directories[directory].files.push(self.files);
        self.files += 1;
        Ok(())
    }

    fn write(&self, directory: usize, number: usize, offset: u64) -> Result<()> {
        let target = &self.volume.target;
        let file = target.open(&self.directories[directory].node, &name(number))?;
        target.write_at(&file, offset, &self.data)
    }

    /// Changes some file; returns its number, if it was written to.
    fn change(&mut self, directory: usize) -> Result<Option<usize>> {
        let Directory { node, files } = &mut self.directories[directory];
        if files.is_empty() {
            return Ok(None);
        }
        let at = self.random.random_range(0..files.len());
        let old = files[at];
        self.changes += 1;
        match self.changes % 4 {
            2 => {
                self.volume.target.rename(node, &name(old), node, &name(self.files))?;
                files[at] = self.files;
                self.files += 1;
                Ok(None)
            }
            3 => {
                self.volume.target.unlink(node, &name(old))?;
                files.swap_remove(at);
                Ok(None)
            }
            appends => self.write(directory, old, (appends * BYTES) as u64).map(|()| Some(old)),
        }
    }
}

fn name(number: usize) -> String {
    format!("file {number}")
}
