//! What checksums of file data cost: PostMark, and one large file, on volumes with them and without.

use super::run::{Found, Run};
use crate::compare::compare;
use crate::report::{LeftOut, Report, Unit};
use crate::rival::RivalKind;
use crate::workload::lines::{Goal, Line};
use crate::workload::stream::Stream;
use crate::{CompareOptions, Result};

/// The columns of PostMark and of the large file that there are goals for.
const TRANSACTIONS: (usize, &str, Unit, f64) = (0, "PostMark", Unit::PerSecond, 0.97);
const STREAM: [(usize, &str, Unit, f64); 2] = [
    (0, "write of a large file", Unit::BytesPerSecond, 0.9),
    (1, "cold read of it", Unit::BytesPerSecond, 0.95),
];

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let options = CompareOptions {
        targets: vec![RivalKind::LibraryChecksums, RivalKind::Library],
        bases: vec![RivalKind::Library],
        volume_bytes: run.options.volume_bytes.max(4 * run.checks.stream_bytes),
        work_dir: run.dir.to_path_buf(),
        ..run.options.clone()
    };
    let mut found = Found::default();
    found.take(compare(&run.checks.postmark, &options)?, &[TRANSACTIONS], "PostMark, with checksums of data");
    let stream = Stream { bytes: run.checks.stream_bytes, seed: run.checks.seed, ..Stream::default() };
    found.take(compare(&stream, &options)?, &STREAM, "A large file, with checksums of data");
    Ok(found)
}

impl Found {
    fn take(&mut self, report: Report, columns: &[(usize, &str, Unit, f64)], title: &str) {
        for one in report.failed.into_iter().chain(report.left_out) {
            self.left_out.push(LeftOut { target: format!("{title}, {}", one.target), reason: one.reason });
        }
        for mut table in report.tables {
            let row = |kind: RivalKind| table.rows.iter().find(|row| row.target == kind.name());
            if let (Some(with), Some(without)) = (row(RivalKind::LibraryChecksums), row(RivalKind::Library)) {
                for (column, name, unit, goal) in columns {
                    let mut line = Line::new(
                        format!("{name}, with checksums of data / without"),
                        *unit,
                        Goal::Ratio(*goal),
                    );
                    line.samples = [with, without].map(|row| row.cells[*column].samples.clone());
                    self.lines.push(line);
                }
                table.title = title.into();
                self.tables.push(table);
            }
        }
    }
}
