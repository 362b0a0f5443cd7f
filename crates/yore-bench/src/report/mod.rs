//! The outcome of a run: every sample and how it was measured, for people ([`Report::to_markdown`],
//! [`Report::to_html`]) and for programs ([`Report::to_json`], which [`Report::from_json`] reads back).
//!
//! A report says on what kind of machine it was made and with which parameters, so that readers can judge and
//! repeat it. It has no host names and no paths: those identify somebody's machine and explain nothing.

mod html;
mod machine;
mod markdown;

pub use machine::Machine;

use crate::stats;
use serde::{Deserialize, Serialize};

/// The version of the JSON.
pub const SCHEMA: u32 = 1;

/// The figures of one run. They are comparable within the run only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The benchmark's name.
    pub benchmark: String,
    /// What it does, in a sentence.
    pub about: String,
    /// The parameters, in the order in which they are shown.
    pub options: Vec<(String, String)>,
    /// What it ran on.
    pub machine: Machine,
    /// The file systems measured.
    pub targets: Vec<TargetInfo>,
    /// The targets that the others are compared with.
    pub bases: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// What could not be measured, and why.
    pub left_out: Vec<LeftOut>,
    /// Targets that failed during the measurement; their figures are those of earlier rounds.
    pub failed: Vec<LeftOut>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A file system that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// As in the rows.
    pub name: String,
    /// What it is.
    pub description: String,
    /// What made or serves it.
    pub version: Option<String>,
    /// Whether it is the one that is compared with the bases.
    pub ours: bool,
}

/// Figures that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What distinguishes it from the others of the report; empty if it is the only one.
    pub title: String,
    /// What was measured.
    pub columns: Vec<Column>,
    /// One per target.
    pub rows: Vec<Row>,
}

/// One kind of figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Which end is good.
    pub better: Better,
}

/// Which end of a scale is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A rate.
    Higher,
    /// A time, a size.
    Lower,
    /// A fact.
    Neither,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Operations (files, transactions, names) per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A number of something.
    Count,
}

/// One target's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The target.
    pub target: String,
    /// One per column.
    pub cells: Vec<Cell>,
}

/// One figure: a sample per round, and the values derived from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// One per round.
    pub samples: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
    /// The unit, if it is not that of the column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

/// A file system without figures, or without all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The target.
    pub target: String,
    /// Why.
    pub reason: String,
}

impl Column {
    /// Operations per second.
    pub fn rate(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: Unit::PerSecond, better: Better::Higher }
    }

    /// Bytes per second.
    pub fn throughput(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: Unit::BytesPerSecond, better: Better::Higher }
    }

    /// Seconds.
    pub fn time(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: Unit::Seconds, better: Better::Lower }
    }

    /// Bytes, the fewer the better.
    pub fn bytes(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: Unit::Bytes, better: Better::Lower }
    }

    /// How many of something, the fewer the better.
    pub fn count(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: Unit::Count, better: Better::Lower }
    }

    /// A fact that is neither good nor bad.
    pub fn fact(name: impl Into<String>, unit: Unit) -> Column {
        Column { name: name.into(), unit, better: Better::Neither }
    }
}

impl Cell {
    /// Of samples, one per round.
    pub fn new(samples: Vec<f64>) -> Cell {
        let (median, lowest, highest) =
            (stats::median(&samples), stats::lowest(&samples), stats::highest(&samples));
        Cell { samples, median, lowest, highest, unit: None }
    }

    /// Of samples that count something else than the column.
    pub fn in_unit(samples: Vec<f64>, unit: Unit) -> Cell {
        Cell { unit: Some(unit), ..Cell::new(samples) }
    }

    /// One of its figures for people, with what the column's heading cannot say.
    fn show(&self, value: f64, column: &Column) -> String {
        match self.unit {
            None => column.unit.show(value),
            Some(unit) => format!("{}{}", unit.show(value), unit.suffix()),
        }
    }

    /// How far the lowest and the highest lie apart, in percent of the median.
    pub fn spread(&self) -> f64 {
        match self.median > 0.0 {
            true => 100.0 * (self.highest - self.lowest) / self.median,
            false => 0.0,
        }
    }
}

impl Unit {
    /// A figure for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond | Unit::Count => decimal(value, ""),
            Unit::BytesPerSecond => format!("{}B/s", decimal(value, " ")),
            Unit::Bytes => format!("{}B", decimal(value, " ")),
            Unit::Seconds => match value {
                v if v >= 100.0 => format!("{v:.0} s"),
                v if v >= 1.0 => format!("{v:.2} s"),
                v if v >= 1e-3 => format!("{:.3} ms", v * 1e3),
                v if v > 0.0 => format!("{:.1} µs", v * 1e6),
                _ => "0 s".to_string(),
            },
        }
    }

    /// What a column's heading adds to its name.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::PerSecond => " /s",
            _ => "",
        }
    }
}

/// Three digits and a decimal prefix.
fn decimal(value: f64, gap: &str) -> String {
    let (scaled, prefix) = match value {
        v if v >= 9.995e8 => (v / 1e9, "G"),
        v if v >= 9.995e5 => (v / 1e6, "M"),
        v if v >= 9.995e2 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let gap = if prefix.is_empty() { gap } else { " " };
    match scaled {
        s if s >= 99.95 || s.fract() == 0.0 => format!("{s:.0}{gap}{prefix}"),
        s if s >= 9.995 => format!("{s:.1}{gap}{prefix}"),
        s if s < 0.995 => {
            let zeros = (-s.log10()).floor().clamp(0.0, 6.0) as usize;
            format!("{s:.*}{gap}{prefix}", zeros + 3)
        }
        s => format!("{s:.2}{gap}{prefix}"),
    }
}

impl Report {
    /// The report as JSON, on several lines.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: writing them cannot fail. A figure that is not a number becomes
        // null.
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\": {:?}}}", e.to_string()))
    }

    /// Reads a report back.
    ///
    /// # Errors
    /// What is wrong with the text; if it has another [`SCHEMA`], which one.
    pub fn from_json(text: &str) -> Result<Report, String> {
        let report: Report = serde_json::from_str(text).map_err(|e| e.to_string())?;
        match report.schema {
            SCHEMA => Ok(report),
            other => Err(format!("the report has schema {other}, this program reads schema {SCHEMA}")),
        }
    }

    /// Our rows against each base that has one in `table`: names, and per column how many times as good.
    fn ratios(&self, table: &Table) -> Vec<(String, Vec<Option<f64>>)> {
        let mut ratios = Vec::new();
        for base in &self.bases {
            let Some(theirs) = table.rows.iter().find(|row| row.target == *base) else { continue };
            for mine in table.rows.iter().filter(|row| row.target != *base && self.is_ours(&row.target)) {
                let ratio = |((mine, theirs), column): ((&Cell, &Cell), &Column)| match column.better {
                    Better::Neither => None,
                    better => stats::paired_ratio(&mine.samples, &theirs.samples, better == Better::Higher),
                };
                let row = mine.cells.iter().zip(&theirs.cells).zip(&table.columns).map(ratio).collect();
                ratios.push((format!("{} / {base}", mine.target), row));
            }
        }
        ratios
    }

    fn is_ours(&self, target: &str) -> bool {
        self.targets.iter().any(|t| t.name == target && t.ours)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Report {
        let info = |name: &str, ours| TargetInfo {
            name: name.into(),
            description: format!("what {name} is"),
            version: Some("1 <2>".into()),
            ours,
        };
        let row = |target: &str, samples: &[f64]| Row {
            target: target.into(),
            cells: vec![Cell::new(samples.to_vec()), Cell::new(samples.to_vec())],
        };
        Report {
            schema: SCHEMA,
            benchmark: "micro".into(),
            about: "About & so on.".into(),
            options: vec![("files".into(), "20".into())],
            machine: Machine {
                kernel: "6.1".into(),
                processors: 2,
                processor: "x".into(),
                memory_bytes: 1 << 30,
                host_file_system: "ext4".into(),
                yore: "0".into(),
                debug_build: false,
            },
            targets: vec![info("mount", true), info("ext4", false)],
            bases: vec!["ext4".into()],
            tables: vec![Table {
                title: "1 thread".into(),
                columns: vec![Column::rate("stat"), Column::time("mount")],
                rows: vec![row("mount", &[500.0, 600.0, 700.0]), row("ext4", &[20e3, 30e3, 28e3])],
            }],
            left_out: vec![LeftOut { target: "xfs".into(), reason: "no mkfs.xfs".into() }],
            failed: vec![LeftOut { target: "btrfs".into(), reason: "it broke".into() }],
            notes: vec!["a note".into()],
        }
    }

    /// JSON reads back unchanged; another schema is refused by number.
    #[test]
    fn json_round_trip() {
        let report = sample();
        assert_eq!(Report::from_json(&report.to_json()).unwrap(), report);
        assert!(
            !report.to_json().contains("\"unit\": null"),
            "a cell in its column's unit does not repeat it"
        );
        let other = Report { schema: 99, ..report };
        assert!(Report::from_json(&other.to_json()).unwrap_err().contains("99"));
        assert!(Report::from_json("{}").is_err());
    }

    /// Figures have three digits and a unit.
    #[test]
    fn figures() {
        assert_eq!(Unit::PerSecond.show(999.0), "999");
        assert_eq!(Unit::PerSecond.show(1234.0), "1.23 k");
        assert_eq!(Unit::PerSecond.show(999_700.0), "1.00 M");
        assert_eq!(Unit::BytesPerSecond.show(512e6), "512 MB/s");
        assert_eq!(Unit::Bytes.show(12.0), "12 B");
        assert_eq!(Unit::Seconds.show(0.0123), "12.300 ms");
        assert_eq!(Unit::Seconds.show(2.5e-6), "2.5 µs");
        assert_eq!(Unit::Seconds.show(3.0), "3.00 s");
        assert_eq!(Unit::Count.show(3.0), "3");
        assert_eq!(Unit::Count.show(0.002), "0.00200");
        assert_eq!(Unit::Count.show(0.0), "0");
    }

    /// A cell may count something else than its column, also after it was read back.
    #[test]
    fn a_cell_can_have_a_unit_of_its_own() {
        let mut report = sample();
        report.tables[0].rows[0].cells[0] = Cell::in_unit(vec![1500.0], Unit::PerSecond);
        report.tables[0].rows[0].cells[1] = Cell::in_unit(vec![2.5e6], Unit::BytesPerSecond);
        let report = Report::from_json(&report.to_json()).unwrap();
        for text in [report.to_markdown(), report.to_html()] {
            assert!(text.contains("1.50 k /s") && text.contains("2.50 MB/s"), "{text}");
        }
    }

    /// There is a ratio for each of our targets against each base, above 1 for better, whichever end is good.
    #[test]
    fn ratios_go_both_ways() {
        let report = sample();
        let ratios = report.ratios(&report.tables[0]);
        assert_eq!(ratios.len(), 1);
        assert_eq!(ratios[0].0, "mount / ext4");
        assert_eq!(ratios[0].1, vec![Some(0.025), Some(40.0)]);
    }
}
