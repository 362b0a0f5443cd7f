//! `history`: the cost of having a past.
//!
//! Each measure is taken with a past and without one, by turns in the same run, in the library. The volumes
//! that are compared were created and filled alike; if the past of an earlier round would disturb, every
//! round has volumes of its own. The rows, and what each shows:
//!
//! - `takes`: a snapshot of many files takes as long as one of a single file.
//! - `live`: work on the present is not slowed down, neither by snapshots taken meanwhile nor by many behind
//!   it.
//! - `back`: the past is opened and read as fast as the present, however far back.
//! - `large`: so is a large file; and the first overwrite after a snapshot, which must leave the old content
//!   alone, costs little more than another.
//! - `forget`: other work is hardly affected when snapshots are forgotten.
//! - `mail`: PostMark is hardly affected by snapshots.
//! - `months`: snapshots each hour and each minute add little to the metadata.
//! - `changes`: finding changes takes time for what changed, among however many files.
//! - `scattered`: a file with many versions of random blocks can be read in sequence, the faster after an
//!   idle minute, and so can its first version.
//! - `mounted`: a snapshot through a mount takes little more time than the request.
//! - `beside`: a mount of the present is as fast with mounts of snapshots beside it.
//! - `usual`: the cost of the policy of new volumes.
//! - `restored`: a large file comes back in milliseconds, without its bytes being copied.
//! - `recorded`: the bytes of history for one unlink or rename.
//! - `cold`: how many requests a look back takes on a cold disk, and how long a whole tree.
//! - `mixed`: a mount is hardly slower with snapshots, beside another file system that has them.

mod back;
mod beside;
mod changes;
mod cold;
mod forget;
mod large;
mod live;
mod mail;
mod mixed;
mod months;
mod mounted;
mod recorded;
mod restored;
mod run;
mod scattered;
mod takes;
mod usual;
mod volume;

pub use run::{History, HistoryPart};

use crate::report::Report;
use crate::rival::check_can_drop_caches;
use crate::workload::lines;
use crate::{CompareOptions, Result, RivalKind};
use run::Run;

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
             least ratio, or the most that the figure with a past may be."
                .to_string(),
        ];
        let reads_cold = [HistoryPart::Large, HistoryPart::Scattered];
        if !cold && self.parts.iter().any(|part| reads_cold.contains(part)) {
            notes.push("The large file was read after the volume was opened anew, but from the host's cache: root could drop it.".into());
        }
        let mut lines = Vec::new();
        for part in HistoryPart::ALL.iter().copied().filter(|part| self.parts.contains(part)) {
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
                HistoryPart::Restore => match restored::measure(&run)? {
                    Ok(line) => vec![line],
                    Err(why) => {
                        notes.push(why);
                        Vec::new()
                    }
                },
                HistoryPart::Record => recorded::measure(&run)?,
                HistoryPart::Cold => cold::requests(&run)?,
                HistoryPart::Tree => vec![cold::tree(&run)?],
                HistoryPart::Mixed => {
                    let (lines, why) = mixed::measure(&run)?;
                    notes.extend(why);
                    lines
                }
                HistoryPart::Beside => beside::measure(&run)?.unwrap_or_else(|why| {
                    notes.push(why);
                    Vec::new()
                }),
            });
        }
        let table = lines::table("", ["with", "without"], lines);
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
            ("seconds idle".into(), self.idle.as_secs_f64().to_string()),
            ("image bytes".into(), options.volume_bytes.to_string()),
        ]
    }
}
