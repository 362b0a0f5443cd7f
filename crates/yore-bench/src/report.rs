//! The outcome of a run, as a table for people and as JSON for programs.

use serde::Serialize;
use std::fmt::Write;

/// The figures of one run. Comparable within the run only.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Files per round.
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Rounds, each of which ran every target once.
    pub rounds: usize,
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub processors: usize,
    /// One per file system, in the order of the table.
    pub targets: Vec<TargetResult>,
    /// What could not be measured, and why.
    pub skipped: Vec<Skipped>,
}

/// One file system's figures.
#[derive(Clone, Debug, Serialize)]
pub struct TargetResult {
    /// Its name in the table.
    pub name: String,
    /// One per workload, in the same order for all targets.
    pub workloads: Vec<WorkloadResult>,
}

/// One workload's figures on one file system.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadResult {
    /// Its name.
    pub name: String,
    /// Operations per second, one figure per round.
    pub per_second: Vec<f64>,
    /// Their median.
    pub median: f64,
}

/// A file system that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// The middle of `values`; of an even number of them the mean of the middle two; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

impl Report {
    /// The report as JSON, on several lines.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: nothing in it can fail to be written. A figure that is not a number
        // (a clock that stood still) becomes null.
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\": {:?}}}", e.to_string()))
    }

    /// The report as Markdown: medians in operations per second, the spread over the rounds, ratios.
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        self.write_markdown(&mut out);
        out
    }

    fn write_markdown(&self, out: &mut String) {
        // Writing to a string cannot fail; the results are ignored for that reason.
        let _ = writeln!(
            out,
            "{} files in {} directories, {} rounds in turn, operations per second (median; in brackets how far the \
             rounds lie apart), Linux {}, {} processors\n",
            self.files, self.directories, self.rounds, self.kernel, self.processors
        );
        self.write_heading(out);
        for target in &self.targets {
            let _ = write!(out, "| {} |", target.name);
            for workload in &target.workloads {
                let _ = write!(out, " {} ({:.0} %) |", thousands(workload.median), spread(workload));
            }
            out.push('\n');
        }
        let bases: Vec<&TargetResult> = self
            .targets
            .iter()
            .filter(|t| t.name == crate::places::EXT4 || t.name == crate::places::BOUND)
            .collect();
        if !bases.is_empty() {
            let _ = writeln!(out, "\nRatios of the medians:\n");
            self.write_heading(out);
        }
        for base in bases {
            for target in self.targets.iter().filter(|t| t.name.starts_with("yore")) {
                let _ = write!(out, "| {} / {} |", target.name, base.name);
                for (mine, theirs) in target.workloads.iter().zip(&base.workloads) {
                    let _ = write!(out, " {:.2} |", mine.median / theirs.median);
                }
                out.push('\n');
            }
        }
        for skipped in &self.skipped {
            let _ = writeln!(out, "\nNot measured: {} ({}).", skipped.name, skipped.reason);
        }
    }

    fn write_heading(&self, out: &mut String) {
        let names = self.targets.first().map(|t| &t.workloads[..]).unwrap_or_default();
        let _ = write!(out, "| |");
        for workload in names {
            let _ = write!(out, " {} |", workload.name);
        }
        let _ = write!(out, "\n|---|{}\n", "---|".repeat(names.len()));
    }
}

/// How far the slowest and the fastest round lie apart, in percent of the median.
fn spread(workload: &WorkloadResult) -> f64 {
    let lowest = workload.per_second.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = workload.per_second.iter().copied().fold(0.0, f64::max);
    100.0 * (highest - lowest) / workload.median
}

fn thousands(per_second: f64) -> String {
    if per_second >= 10_000.0 {
        format!("{:.0} k", per_second / 1000.0)
    } else if per_second >= 1000.0 {
        format!("{:.1} k", per_second / 1000.0)
    } else {
        format!("{per_second:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Odd, even and no rounds.
    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    /// The table has a row for each target and a ratio for each of ours to each base.
    #[test]
    fn markdown_has_rows_and_ratios() {
        let target = |name: &str, figure: f64| TargetResult {
            name: name.into(),
            workloads: vec![WorkloadResult { name: "stat".into(), per_second: vec![figure], median: figure }],
        };
        let report = Report {
            files: 1,
            directories: 1,
            rounds: 1,
            kernel: "6".into(),
            processors: 2,
            targets: vec![target("yore, mounted", 500.0), target(crate::places::EXT4, 20_000.0)],
            skipped: vec![Skipped { name: "x".into(), reason: "y".into() }],
        };
        let text = report.to_markdown();
        assert!(text.contains("| yore, mounted | 500 (0 %) |"), "{text}");
        assert!(text.contains("| 20 k (0 %) |"), "{text}");
        assert!(text.contains("| 0.03 |") || text.contains("| 0.02 |"), "{text}");
        assert!(text.contains("Not measured: x (y)."), "{text}");
        assert!(report.to_json().contains("\"median\": 500.0"));
    }
}
