//! Small measurements of the cost of a past: every measure has figures, and nothing is left behind.

use std::time::Duration;
use yore_bench::{BenchError, CompareOptions, History, HistoryPart, Report, Unit};

fn tiny() -> History {
    History {
        parts: HistoryPart::ALL.to_vec(),
        files: 60,
        takes: 40,
        step: Duration::from_millis(30),
        live: 50,
        directories: 3,
        snapshots: 30,
        reads: 40,
        large_bytes: 3 << 20,
        forgotten: 10,
        changes: 7,
        transactions: 100,
        idle: Duration::from_millis(1),
    }
}

fn options(dir: &std::path::Path) -> CompareOptions {
    CompareOptions {
        rounds: 2,
        volume_bytes: 512 << 20,
        work_dir: dir.to_path_buf(),
        ..CompareOptions::default()
    }
}

/// Every row has figures from each round: with, without and their ratio. They are finite and above zero, have
/// a unit, and if there is a goal it can be met. The distances back that exist are measured.
#[test]
fn every_measure_has_figures() {
    let dir = tempfile::tempdir().unwrap();
    let report = tiny().run(&options(dir.path())).unwrap();
    assert_eq!(report.tables.len(), 1);
    let table = &report.tables[0];
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["with", "without", "ratio", "goal"]);
    // Of 30 snapshots, 1 and 10 versions back are measured. Btrfs needs root and its programs.
    let without_btrfs = report.notes.iter().filter(|note| note.starts_with("btrfs was not measured")).count();
    let of_first_parts = 3 + 5 + 5 + 2 + 1 + 2 + 1 + 8 + 17 + 3;
    assert_eq!(table.rows.len(), of_first_parts + 1 + 2 + 2 + 1 + 2 - without_btrfs);
    for row in &table.rows {
        let [with, without, ratio, goal] = &row.cells[..] else { panic!("{}", row.target) };
        for cell in [with, without, ratio] {
            assert_eq!(cell.samples.len(), 2, "{}", row.target);
            let whole = cell.samples.iter().all(|sample| sample.is_finite() && *sample > 0.0);
            assert!(whole, "{}: {:?}", row.target, cell.samples);
        }
        assert!(with.unit.is_some() && with.unit == without.unit, "{}", row.target);
        for round in 0..2 {
            let quotient = with.samples[round] / without.samples[round];
            let is_cost = matches!(with.unit, Some(Unit::Seconds | Unit::Bytes | Unit::Count));
            let as_good = if is_cost { 1.0 / quotient } else { quotient };
            assert!((ratio.samples[round] / as_good - 1.0).abs() < 1e-9, "{}", row.target);
        }
        // A ratio below one, or a figure of this unit.
        let most = if goal.unit.is_some() { f64::INFINITY } else { 1.0 };
        assert!(goal.samples.iter().all(|goal| *goal > 0.0 && *goal < most), "{}", row.target);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(Report::from_json(&report.to_json()).unwrap(), report, "JSON is read back the same");
    assert!(!report.to_json().contains(&dir.path().display().to_string()), "no paths");
}

/// Only the requested parts are measured.
#[test]
fn parts_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let history = History { parts: vec![HistoryPart::Back], ..tiny() };
    let report = history.run(&options(dir.path())).unwrap();
    assert_eq!(report.tables[0].rows.len(), 2);
    for &part in HistoryPart::ALL {
        assert_eq!(HistoryPart::from_name(part.name()), Some(part));
    }
    assert_eq!(HistoryPart::from_name("other"), None);
}

/// A stop request ends the run, and nothing is left behind.
#[test]
fn it_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    options.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(tiny().run(&options), Err(BenchError::Interrupted)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
