//! Small measurements of the checker: every row that needs no root has figures, what needs it is named, and
//! nothing is left behind.

use yore_bench::{CheckPart, Checks, CompareOptions, PostMark, Report};

fn tiny(parts: &[CheckPart]) -> Checks {
    Checks {
        parts: parts.to_vec(),
        files: 600,
        large: 6,
        levels: 1,
        inodes: 500,
        claims: 5,
        postmark: PostMark { transactions: 200, files: 100, directories: 5, ..PostMark::default() },
        stream_bytes: 2 << 20,
        layout: 0.001,
        seed: 1,
    }
}

fn run(checks: &Checks) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let options = CompareOptions {
        targets: Checks::TARGETS.to_vec(),
        rounds: 1,
        volume_bytes: 256 << 20,
        work_dir: dir.path().to_path_buf(),
        ..CompareOptions::default()
    };
    let report = checks.run(&options, &|_| ()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "everything is removed");
    report
}

fn rows(report: &Report) -> Vec<&str> {
    report.tables[0].rows.iter().map(|row| row.target.as_str()).collect()
}

/// Rows that need neither root nor a process of their own have figures of each round; what cannot be measured
/// in this process is left out with a reason.
#[test]
fn rows_have_figures() {
    use CheckPart::{Claims, Data, Layout, Live, Memory};
    let report = run(&tiny(&[Data, Memory, Claims, Live, Layout]));
    assert_eq!(report.failed, []);
    let rows = rows(&report);
    for (start, count) in [
        ("check with ", 3),
        ("blocks read for ", 2),
        ("PostMark beside checks / alone, library", 1),
        ("sequential read (figure 12), ", 6),
        ("sequential write (figure 13), ", 6),
        ("random read (figure 14), ", 6),
        ("strided read (figures 15 and 16), ", 1),
        ("PostMark (figure 17), ", 3),
    ] {
        assert_eq!(rows.iter().filter(|row| row.starts_with(start)).count(), count, "{start}: {rows:#?}");
    }
    for row in &report.tables[0].rows {
        for cell in &row.cells[..2] {
            let whole = cell.samples.iter().all(|sample| sample.is_finite() && *sample >= 0.0);
            assert!(whole && cell.samples.len() == 1, "{}: {:?}", row.target, cell.samples);
        }
    }
    let left_out: Vec<&str> = report.left_out.iter().map(|one| one.target.as_str()).collect();
    assert!(left_out.starts_with(&["memory", "live on mount"]), "{left_out:?}");
    assert!(report.left_out.iter().all(|one| !one.reason.is_empty()));
    Report::from_json(&report.to_json()).unwrap();
}

/// On a slow disk the volume is checked fresh and at each level of ageing, with snapshots and without, and
/// after its metadata was laid together; it has more metadata with snapshots.
#[test]
fn an_aged_volume_is_checked() {
    let checks = tiny(&[CheckPart::Slow]);
    let dir = tempfile::tempdir().unwrap();
    let options = CompareOptions {
        targets: vec![yore_bench::RivalKind::Library],
        rounds: 1,
        volume_bytes: 256 << 20,
        work_dir: dir.path().to_path_buf(),
        ..CompareOptions::default()
    };
    let report = checks.run(&options, &|_| ()).unwrap();
    assert_eq!((report.failed.len(), report.left_out.len()), (0, 0), "{:?}", report.failed);
    let table = report.tables.iter().find(|table| table.title.contains("metadata in use")).unwrap();
    let [with, with_idle, without, without_idle] = &table.rows[..] else { panic!("{:?}", table.rows) };
    let metadata = |row: &yore_bench::Row, level: usize| row.cells[level].median;
    assert!(metadata(with, 1) > metadata(without, 1) && metadata(without, 0) > 0.0, "{table:?}");
    // Laying metadata together makes it neither more nor less, and who reads it does not read more.
    let read = report.tables.iter().find(|table| table.title.contains("bytes read")).unwrap();
    for (as_is, idle, rows) in [(with, with_idle, 0), (without, without_idle, 2)] {
        assert_eq!(idle.target, format!("{}, then idle", as_is.target));
        assert!((0..2).all(|level| metadata(as_is, level) == metadata(idle, level)), "{table:?}");
        assert!(metadata(&read.rows[rows + 1], 1) <= metadata(&read.rows[rows], 1), "{read:?}");
    }
}
