//! `check`: what the checker must reach, measured in one run.
//!
//! Each part makes volumes of its own, and removes them. The rows, and what each shows:
//!
//! - `whole`: the check of a whole volume takes less time than e2fsck's of the same files, and reads metadata
//!   as fast as the disk can.
//! - `past`: what a past adds to that.
//! - `slow`: the same on a slow disk, however old the volume is.
//! - `data`: the time does not depend on how much data there is.
//! - `memory`: a check remembers little for each inode.
//! - `claims`: a block with two owners costs no second reading of the whole volume.
//! - `live`: work beside a check of the volume in use is hardly slower.
//! - `checksums`: checksums of file data cost little.
//! - `layout`: what keeping metadata together gives and costs otherwise.

mod ageing;
mod checker;
mod checksums;
mod claims;
mod data;
mod layout;
mod live;
mod memory;
mod past;
mod recorded;
mod run;
mod slow;
mod whole;

pub use run::{CheckPart, Checks};

use crate::report::{LeftOut, Report};
use crate::rival::check_can_drop_caches;
use crate::workload::lines;
use crate::{BenchError, CompareOptions, Result, RivalKind};
use run::{Found, Run};

impl Checks {
    /// The file systems whose checkers are measured.
    pub const TARGETS: [RivalKind; 3] = [RivalKind::Library, RivalKind::Ext3, RivalKind::Ext4];

    /// Measures. `progress` is told what begins. A part that cannot be measured here is left out, and the
    /// report says why.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`]; nothing can be created in the work directory.
    pub fn run(&self, options: &CompareOptions, progress: &dyn Fn(&str)) -> Result<Report> {
        let work = options.make_work_dir()?;
        let cold = check_can_drop_caches().is_ok();
        let run = Run { checks: self, options, dir: work.path(), cold };
        let about = "What the checker must reach: time, bytes, memory, and what it costs others.";
        let (targets, bases) = (vec![RivalKind::Library.info(None)], Vec::new());
        let mut report =
            options.report(("check", about.into()), self.describe(options), (targets, bases), Vec::new(), vec![
                "A ratio is how many times as good the first is as the second; the median of the rounds' ratios. \
                 A goal is the least ratio, or the most that the first figure may be."
                    .to_string(),
            ]);
        let from_cache = [CheckPart::Data, CheckPart::Past];
        if !cold && from_cache.iter().any(|part| self.parts.contains(part)) {
            report.notes.push("Volumes were checked from the host's cache: root could drop it.".into());
        }
        let mut all = Vec::new();
        for part in CheckPart::ALL.iter().copied().filter(|part| self.parts.contains(part)) {
            options.check_stop()?;
            progress(part.name());
            let found = match part {
                CheckPart::Whole => self.whole(&run, &mut report),
                CheckPart::Past => past::measure(&run),
                CheckPart::Slow => slow::measure(&run),
                CheckPart::Data => data::measure(&run),
                CheckPart::Memory => memory::measure(&run),
                CheckPart::Claims => claims::measure(&run),
                CheckPart::Live => live::measure(&run),
                CheckPart::Checksums => checksums::measure(&run),
                CheckPart::Layout => layout::measure(&run),
            };
            let path = work.path().display().to_string();
            match found {
                Ok(Found { lines, tables, left_out, notes }) => {
                    all.extend(lines);
                    report.tables.extend(tables);
                    report.left_out.extend(left_out.into_iter().map(|mut one| {
                        one.reason = one.reason.replace(&path, "…");
                        one
                    }));
                    report.notes.extend(notes);
                }
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => report.failed.push(LeftOut {
                    target: part.name().into(),
                    reason: error.to_string().replace(&path, "…"),
                }),
            }
        }
        report.tables.insert(0, lines::table("All rows", ["first", "second"], all));
        Ok(report)
    }

    /// The part whose targets are those of the options.
    fn whole(&self, run: &Run<'_>, report: &mut Report) -> Result<Found> {
        let options = CompareOptions { work_dir: run.dir.to_path_buf(), ..run.options.clone() };
        let (lines, measured) = whole::measure(&self.tree(), &options)?;
        report.targets = measured.targets;
        report.bases = measured.bases;
        report.failed.extend(measured.failed);
        let left_out = measured.left_out.into_iter().map(|mut one| {
            one.target = format!("whole on {}", one.target);
            one
        });
        Ok(Found { lines, tables: measured.tables, left_out: left_out.collect(), notes: measured.notes })
    }

    fn describe(&self, options: &CompareOptions) -> Vec<(String, String)> {
        let number = |name: &str, value: usize| (name.to_string(), value.to_string());
        let mut described = vec![
            number("files", self.files),
            number("larger files", self.large),
            number("levels of ageing", self.levels),
            number("inodes for memory", self.inodes),
            number("blocks with two owners", self.claims),
            number("transactions of PostMark", self.postmark.transactions),
            ("bytes of the large file".into(), self.stream_bytes.to_string()),
            ("share of the paper's sizes".into(), self.layout.to_string()),
        ];
        described.extend(options.describe());
        described
    }
}
