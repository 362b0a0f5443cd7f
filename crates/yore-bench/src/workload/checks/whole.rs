//! How long checking a whole volume takes, with cold caches, how much memory, and how much of what the disk
//! can give.
//!
//! Each file system gets the same tree once: many small files, some larger ones, in directories of up to a
//! thousand. Then each round unmounts it, drops the host's caches, and runs its checker on the image file:
//! `yore check`, or `e2fsck -fn`. Time is that of the process, from its start to its end; bytes are those
//! that the disk had to give. Memory is the most that it had at once, seen in a run after that. Before that,
//! a file is read as fast as one thread can read it in requests of 1 MiB. The metadata that there is (of
//! e2fsck: what it read), for the time the check took, is a share of that bandwidth.
//!
//! Yore's checker also says while it runs when it will end. Another run, after the one that is timed, notes
//! what it says; the table has how far the worst of it was off, of what was said between the tenth part of
//! the time and the end.

use super::ageing::Tree;
use super::checker::{e2fsck, peak_memory, yore, Bandwidth, Told, Used};
use crate::compare::{compare, Benchmark, Subject};
use crate::report::{Column, Report, Row, Unit};
use crate::rival::{check_can_drop_caches, drop_caches, OnTarget, RivalKind};
use crate::workload::lines::{Goal, Line};
use crate::workload::player::Player;
use crate::{BenchError, CompareOptions, Result, Target};
use std::cell::OnceCell;

/// How many times as fast as e2fsck's check of each it is to be.
const GOALS: [(RivalKind, f64); 2] = [(RivalKind::Ext3, 8.0), (RivalKind::Ext4, 4.0)];
/// Which share of the disk's bandwidth it is to have.
const SHARE: f64 = 0.8;

/// Checking whole volumes.
struct Whole<'t> {
    tree: &'t Tree,
    bandwidth: OnceCell<Bandwidth>,
}

/// The columns.
const CHECK: usize = 0;
const METADATA: usize = 4;
const BANDWIDTH: usize = 5;

/// Measures on the targets of `options`.
pub(super) fn measure(tree: &Tree, options: &CompareOptions) -> Result<(Vec<Line>, Report)> {
    let whole = Whole { tree, bandwidth: OnceCell::new() };
    let report = compare(&whole, options)?;
    let rows = &report.tables[0].rows;
    let row = |kind: RivalKind| rows.iter().find(|row| row.target == kind.name());
    let samples = |row: &Row, column: usize| row.cells[column].samples.clone();
    let mut lines = Vec::new();
    for mine in rows.iter().filter(|row| report.targets.iter().any(|t| t.ours && t.name == row.target)) {
        for (kind, goal) in GOALS {
            let Some(theirs) = row(kind) else { continue };
            let name = format!("check of a whole volume, {} / e2fsck on {}", mine.target, kind.name());
            let mut line = Line::new(name, Unit::Seconds, Goal::Ratio(goal));
            line.samples = [mine, theirs].map(|row| samples(row, CHECK));
            lines.push(line);
        }
        let rates = samples(mine, METADATA).iter().zip(samples(mine, CHECK)).map(|(m, s)| m / s).collect();
        let mut line = Line::new(
            format!("metadata in use for the time of a check, {} / what the disk gives", mine.target),
            Unit::BytesPerSecond,
            Goal::Ratio(SHARE),
        );
        line.samples = [rates, samples(mine, BANDWIDTH)];
        lines.push(line);
    }
    Ok((lines, report))
}

impl Benchmark for Whole<'_> {
    fn name(&self) -> &'static str {
        "check"
    }

    fn about(&self) -> String {
        "Checking a whole volume, with cold caches: yore check, e2fsck -fn.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = vec![
            Column::time("check"),
            Column::fact("processor", Unit::Seconds),
            Column::bytes("memory"),
            Column::fact("read", Unit::Bytes),
            Column::fact("metadata", Unit::Bytes),
            Column::fact("the disk gives", Unit::BytesPerSecond),
            Column::fact("share of it, %", Unit::Count),
            Column::fact("end said, off by at most, % (0: none said)", Unit::Count),
        ];
        vec![("Whole volumes".into(), columns)]
    }

    fn check(&self, kind: RivalKind) -> Result<()> {
        check_can_drop_caches()?;
        let has_checker = matches!(kind, RivalKind::Ext2 | RivalKind::Ext3 | RivalKind::Ext4);
        match kind.is_ours() || has_checker {
            true => Ok(()),
            false => Err(BenchError::impossible(
                "its checker is not measured",
                "choose of the targets library, ext2, ext3 and ext4",
            )),
        }
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        if round == 0 {
            subject.0.measure(Fill { tree: self.tree })?;
        }
        let is_ours = subject.0.kind().is_ours();
        let serving = subject.0.serving().clone();
        subject.0.with_image(|image| {
            let checker = |more: &[&str]| match is_ours {
                true => yore(&serving, more, image),
                false => Ok(e2fsck(image)),
            };
            let bandwidth = match (self.bandwidth.get(), image.parent().and_then(|dir| dir.parent())) {
                (Some(bandwidth), _) => bandwidth,
                (None, directory) => {
                    let made = Bandwidth::new(directory.unwrap_or(image))?;
                    self.bandwidth.get_or_init(|| made)
                }
            };
            let gives = bandwidth.measure()?;
            drop_caches()?;
            let used = Used::by(checker(&[])?)?;
            let told = match is_ours {
                true => {
                    drop_caches()?;
                    Told::by(checker(&["--progress-fd", "1", "--json"])?)?
                }
                false => Told { off: 0.0, metadata: used.read },
            };
            let memory = peak_memory(checker(&[])?)?;
            let share = 100.0 * told.metadata / used.seconds / gives;
            let Used { seconds, processor, read } = used;
            Ok(vec![vec![seconds, processor, memory, read, told.metadata, gives, share, told.off]])
        })
    }
}

/// Makes the tree.
struct Fill<'t> {
    tree: &'t Tree,
}

impl OnTarget for Fill<'_> {
    type Output = ();

    fn on<T: Target>(self, target: &T) -> Result<()> {
        let script = self.tree.script();
        let player = Player::new(&script, target);
        script.phases.iter().try_for_each(|phase| player.with_threads(phase).map(drop))?;
        target.sync()
    }
}
