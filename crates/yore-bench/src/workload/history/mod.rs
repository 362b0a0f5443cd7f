//! `history`: what it costs to have a past.
//!
//! Each measure is made with a past and without one, by turns in the same run, in the library. What is
//! compared with each other is on volumes that were made and filled alike; where the past of an earlier round
//! would disturb, every round has volumes of its own. The rows, and what they are held against:
//!
//! - `takes`: a snapshot of many files is taken in the time of one of a single file.
//! - `live`: what is done to the present is not slowed down, neither by snapshots taken meanwhile nor by many
//!   behind it.
//! - `back`: what was is opened and read as fast as what is, however far back.
//! - `large`: so is a large file; and the first overwrite after a snapshot, which must leave the old content
//!   alone, costs little more than another.
//! - `forget`: others hardly notice when snapshots are forgotten.
//! - `mail`: so does PostMark.
//! - `months`: what snapshots each hour and each minute add to the metadata is little.
//! - `changes`: what changed is found in the time of what changed, among however many files.
//! - `scattered`: a file with many versions of random blocks is read in sequence, and so is its first
//!   version.
//! - `mounted`: a snapshot is taken through a mount in little more time than the request takes.
//! - `beside`: a mount of the present is as fast with mounts of snapshots beside it.
//! - `usual`: what the policy of new volumes costs.

mod back;
mod beside;
mod changes;
mod forget;
mod large;
mod live;
mod mail;
mod months;
mod mounted;
mod scattered;
mod takes;
mod usual;
mod volume;

use crate::report::{Cell, Column, Report, Row, Table, Unit};
use crate::rival::check_can_drop_caches;
use crate::stats::paired_ratio;
use crate::{CompareOptions, Result, RivalKind};
use std::path::Path;
use std::time::Duration;

/// Rows of [`History`] that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryPart {
    /// Taking snapshots.
    Take,
    /// What is done to the present while snapshots are taken.
    Meanwhile,
    /// The same with many snapshots behind it.
    Behind,
    /// Opening and reading what was.
    Back,
    /// Reading and overwriting a large file.
    Large,
    /// What is done while snapshots are forgotten.
    Forget,
    /// Small files with short lives while snapshots are taken.
    PostMark,
    /// Blocks of metadata with snapshots.
    Metadata,
    /// Differences of two snapshots.
    Diff,
    /// Reading a file with many versions.
    Scattered,
    /// Taking snapshots through a mount.
    Mount,
    /// What is done on a mount while snapshots are mounted beside it.
    Beside,
    /// Work with the policy of new volumes.
    Usual,
}

impl HistoryPart {
    /// All, in the order in which they run.
    pub const ALL: [HistoryPart; 13] = [
        HistoryPart::Take,
        HistoryPart::Meanwhile,
        HistoryPart::Behind,
        HistoryPart::Back,
        HistoryPart::Large,
        HistoryPart::Forget,
        HistoryPart::PostMark,
        HistoryPart::Metadata,
        HistoryPart::Diff,
        HistoryPart::Scattered,
        HistoryPart::Mount,
        HistoryPart::Beside,
        HistoryPart::Usual,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            HistoryPart::Take => "take",
            HistoryPart::Meanwhile => "meanwhile",
            HistoryPart::Behind => "behind",
            HistoryPart::Back => "back",
            HistoryPart::Large => "large",
            HistoryPart::Forget => "forget",
            HistoryPart::PostMark => "postmark",
            HistoryPart::Metadata => "metadata",
            HistoryPart::Diff => "diff",
            HistoryPart::Scattered => "scattered",
            HistoryPart::Mount => "mount",
            HistoryPart::Beside => "beside",
            HistoryPart::Usual => "usual",
        }
    }

    /// The part of that name.
    pub fn from_name(name: &str) -> Option<HistoryPart> {
        HistoryPart::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// What it costs to have a past.
#[derive(Clone, Debug)]
pub struct History {
    /// What is measured.
    pub parts: Vec<HistoryPart>,
    /// Files on the volume of which snapshots are taken; on the other there is one.
    pub files: usize,
    /// Snapshots taken of each per round; a twentieth of them durably.
    pub takes: usize,
    /// How long each step on the present goes on.
    pub step: Duration,
    /// Files of 4 KiB that the steps read, overwrite and rename.
    pub live: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Snapshots behind the steps, and versions of the small file that is looked back at.
    pub snapshots: usize,
    /// Times that each version of it is opened and read per round.
    pub reads: usize,
    /// Bytes of the large file, rounded up to whole MiB.
    pub large_bytes: u64,
    /// Snapshots forgotten while others work.
    pub forgotten: usize,
    /// Files overwritten before each of those, and between two snapshots that are compared; and random blocks
    /// of the file with many versions, before each.
    pub changes: usize,
    /// PostMark's transactions; its files and directories are in proportion.
    pub transactions: usize,
}

impl Default for History {
    fn default() -> History {
        History {
            parts: HistoryPart::ALL.to_vec(),
            files: 100_000,
            takes: 2000,
            step: Duration::from_secs(4),
            live: 20_000,
            directories: 100,
            snapshots: 10_000,
            reads: 10_000,
            large_bytes: 256 << 20,
            forgotten: 1000,
            changes: 100,
            transactions: 100_000,
        }
    }
}

/// What a measure's part needs to know of the run.
struct Run<'r> {
    history: &'r History,
    options: &'r CompareOptions,
    dir: &'r Path,
    /// Whether the host's caches can be dropped.
    cold: bool,
}

/// What a figure should be.
#[derive(Clone, Copy)]
enum Goal {
    /// The ratio, at least.
    Ratio(f64),
    /// The time with a past, at most.
    Seconds(f64),
    /// Nothing was set.
    None,
}

/// A row: samples with and without a past, one of each per round.
struct Line {
    measure: String,
    unit: Unit,
    goal: Goal,
    /// With, without.
    samples: [Vec<f64>; 2],
}

impl Line {
    fn new(measure: impl Into<String>, unit: Unit, goal: Goal) -> Line {
        Line { measure: measure.into(), unit, goal, samples: Default::default() }
    }

    /// Rates are the better the higher, times the lower.
    fn higher_is_better(&self) -> bool {
        matches!(self.unit, Unit::PerSecond | Unit::BytesPerSecond)
    }

    fn into_row(self) -> Row {
        let higher = self.higher_is_better();
        let [with, without] = self.samples;
        let ratio = |(with, without): (&f64, &f64)| paired_ratio(&[*with], &[*without], higher);
        let ratios = with.iter().zip(&without).filter_map(ratio).collect();
        let goal = match self.goal {
            Goal::Ratio(ratio) => Cell::new(vec![ratio]),
            Goal::Seconds(seconds) => Cell::in_unit(vec![seconds], Unit::Seconds),
            Goal::None => Cell::new(Vec::new()),
        };
        let [with, without] = [with, without].map(|samples| Cell::in_unit(samples, self.unit));
        Row { target: self.measure, cells: vec![with, without, Cell::new(ratios), goal] }
    }
}

/// With (0) and without (1), in the order of this turn.
fn turns(turn: usize) -> [usize; 2] {
    match turn % 2 {
        0 => [0, 1],
        _ => [1, 0],
    }
}

impl History {
    /// Measures.
    ///
    /// # Errors
    /// What failed; [`crate::BenchError::Interrupted`].
    pub fn run(&self, options: &CompareOptions) -> Result<Report> {
        let work = options.make_work_dir()?;
        let cold = check_can_drop_caches().is_ok();
        let run = Run { history: self, options, dir: work.path(), cold };
        let mut notes = vec![
            "A ratio is how many times as good it is with a past as without; the median of the rounds' ratios. A goal is the \
             least ratio, or the longest time with a past."
                .to_string(),
        ];
        let reads_cold = [HistoryPart::Large, HistoryPart::Scattered];
        if !cold && self.parts.iter().any(|part| reads_cold.contains(part)) {
            notes.push("The large file was read after the volume was opened anew, but from the host's cache: root could drop it.".into());
        }
        let mut lines = Vec::new();
        for part in HistoryPart::ALL.into_iter().filter(|part| self.parts.contains(part)) {
            lines.extend(match part {
                HistoryPart::Take => takes::measure(&run)?,
                HistoryPart::Meanwhile => live::measure(&run, live::Past::Meanwhile)?,
                HistoryPart::Behind => live::measure(&run, live::Past::Behind)?,
                HistoryPart::Back => back::measure(&run)?,
                HistoryPart::Large => large::measure(&run)?,
                HistoryPart::Forget => {
                    let (line, note) = forget::measure(&run)?;
                    notes.push(note);
                    vec![line]
                }
                HistoryPart::PostMark => mail::speed(&run)?,
                HistoryPart::Metadata => months::measure(&run)?,
                HistoryPart::Diff => changes::measure(&run)?,
                HistoryPart::Scattered => scattered::measure(&run)?,
                HistoryPart::Mount => match mounted::measure(&run)? {
                    Ok(line) => vec![line],
                    Err(why) => {
                        notes.push(why);
                        Vec::new()
                    }
                },
                HistoryPart::Usual => {
                    let (lines, note) = usual::measure(&run)?;
                    notes.extend(note);
                    lines
                }
                HistoryPart::Beside => beside::measure(&run)?.unwrap_or_else(|why| {
                    notes.push(why);
                    Vec::new()
                }),
            });
        }
        let ratio = |name: &str| Column::fact(name, Unit::Count);
        let table = Table {
            title: String::new(),
            columns: vec![ratio("with"), ratio("without"), ratio("ratio"), ratio("goal")],
            rows: lines.into_iter().map(Line::into_row).collect(),
        };
        let about = "What it costs to have a past: the same with snapshots and without.";
        let (targets, bases) = (vec![RivalKind::Library.info(None)], Vec::new());
        Ok(options.report(
            ("history", about.into()),
            self.describe(options),
            (targets, bases),
            vec![table],
            notes,
        ))
    }

    fn describe(&self, options: &CompareOptions) -> Vec<(String, String)> {
        let number = |name: &str, value: usize| (name.to_string(), value.to_string());
        vec![
            number("rounds", options.rounds),
            number("files", self.files),
            number("snapshots taken", self.takes),
            ("seconds of a step".into(), self.step.as_secs_f64().to_string()),
            number("files of the steps", self.live),
            number("directories", self.directories),
            number("snapshots behind", self.snapshots),
            ("bytes of the large file".into(), self.large_bytes.to_string()),
            number("snapshots forgotten", self.forgotten),
            number("changes before each", self.changes),
            number("transactions", self.transactions),
            ("image bytes".into(), options.volume_bytes.to_string()),
        ]
    }
}

impl Run<'_> {
    /// The rounds, until somebody wants the end.
    fn rounds(&self) -> impl Iterator<Item = Result<usize>> + '_ {
        (0..self.options.rounds).map(|round| self.options.check_stop().map(|()| round))
    }
}
