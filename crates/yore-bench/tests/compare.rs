//! Small comparisons: they run on every file system this machine has, leave nothing behind, and report each.

use yore_bench::{compare, CompareOptions, HistoryPart, Micro, MicroStep, PostMark, Report, RivalKind};

fn tiny() -> Micro {
    Micro { files: 60, directories: 7, threads: vec![1, 2], ..Micro::default() }
}

fn on(targets: &[RivalKind], dir: &std::path::Path) -> CompareOptions {
    CompareOptions {
        targets: targets.to_vec(),
        rounds: 2,
        volume_bytes: 512 << 20,
        work_dir: dir.to_path_buf(),
        ..CompareOptions::default()
    }
}

/// Nothing failed, and every cell of every row has a figure above zero from each round.
fn assert_whole(report: &Report, rounds: usize) {
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    for table in &report.tables {
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len());
            for (cell, column) in row.cells.iter().zip(&table.columns) {
                let name = format!("{} {} {}", table.title, row.target, column.name);
                assert_eq!(cell.samples.len(), rounds, "{name}");
                assert!(cell.samples.iter().all(|sample| *sample > 0.0), "{name}: {:?}", cell.samples);
            }
        }
    }
}

/// Every target is measured, or listed as left out with the reason; nothing is left behind. On a machine that
/// can mount, only targets whose program is missing are left out.
#[test]
fn every_target_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let report = compare(&tiny(), &on(RivalKind::ALL, dir.path())).unwrap();
    let can_mount = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    if !can_mount {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI");
    }
    assert_eq!(report.targets.len() + report.left_out.len(), RivalKind::ALL.len(), "{:?}", report.left_out);
    assert_eq!(report.tables.len(), 2, "1 thread, 2 threads");
    assert_whole(&report, 2);
    for left_out in &report.left_out {
        let missing = left_out.reason.contains("not installed");
        assert!(!can_mount || missing, "{}: {}", left_out.target, left_out.reason);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    let (table, page) = (report.to_markdown(), report.to_html());
    for target in &report.targets {
        assert!(table.contains(&format!("| {} ", target.name)), "{table}");
        assert!(page.contains(&format!("<td>{}</td>", target.name)), "{page}");
    }
    assert!(Report::from_json(&report.to_json()).unwrap() == report, "JSON is read back the same");
}

/// A report names no path of the machine it was made on.
#[test]
fn a_report_has_no_paths() {
    let dir = tempfile::tempdir().unwrap();
    let report = compare(&tiny(), &on(&[RivalKind::Library], dir.path())).unwrap();
    let path = dir.path().display().to_string();
    assert!(!report.to_json().contains(&path) && !report.to_html().contains(&path));
}

/// Only the requested steps are reported, and steps that they need run all the same.
#[test]
fn steps_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let steps = vec![MicroStep::Read, MicroStep::Stat];
    let micro = Micro { steps, threads: vec![2], shared: true, ..tiny() };
    let report = compare(&micro, &on(&[RivalKind::Library, RivalKind::LibraryNone], dir.path())).unwrap();
    let names: Vec<&str> = report.tables[0].columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["stat", "read"]);
    assert_whole(&report, 2);
}

/// When time is up, what had no turn has none, and the report says so.
#[test]
fn what_has_no_time_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let targets = [RivalKind::Library, RivalKind::LibraryNone];
    let options = CompareOptions { until: Some(std::time::Instant::now()), ..on(&targets, dir.path()) };
    let report = compare(&tiny(), &options).unwrap();
    assert!(report.targets.is_empty() && report.tables.iter().all(|table| table.rows.is_empty()));
    let names: Vec<&str> = report.left_out.iter().map(|left_out| left_out.target.as_str()).collect();
    assert_eq!(names, ["library", "library-none"]);
    assert!(
        report.left_out.iter().all(|left_out| left_out.reason.contains("no time")),
        "{:?}",
        report.left_out
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    assert!(report.to_markdown().contains("no time") && report.to_html().contains("no time"));
}

/// PostMark runs to its end on fresh volumes, and on one that is used again: it leaves an empty tree, because
/// otherwise the second round would find its names taken.
#[test]
fn postmark_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let postmark = PostMark { transactions: 300, files: 100, directories: 5, ..PostMark::default() };
    for fresh in [false, true] {
        let options = CompareOptions { fresh, ..on(&[RivalKind::Library], dir.path()) };
        assert_whole(&compare(&postmark, &options).unwrap(), 2);
    }
}

/// The names are those that reports and command lines have always had.
#[test]
fn names_stay() {
    let names: Vec<&str> = RivalKind::ALL.iter().map(|kind| kind.name()).collect();
    let expected = "library library-none library-journal library-journal-group library-journal-sync \
                    library-soft-updates library-sync library-checksums mount mount-checksums mount-none \
                    mount-journal mount-journal-group mount-journal-sync mount-soft-updates mount-sync memory-fuse \
                    ext2 ext3 ext3-journal ext3-writeback ext4 xfs btrfs fuse2fs";
    assert_eq!(names.join(" "), expected);
    let names: Vec<&str> = MicroStep::ALL.iter().map(|step| step.name()).collect();
    let expected = "mkdir create readdir stat rename unlink write read unlink-written create-unlink durable";
    assert_eq!(names.join(" "), expected);
    let names: Vec<&str> = HistoryPart::ALL.iter().map(|part| part.name()).collect();
    let expected =
        "take meanwhile behind back large forget postmark metadata diff scattered mount beside usual \
                    restore record cold tree mixed";
    assert_eq!(names.join(" "), expected);
    assert_eq!(RivalKind::from_name("fuse2fs"), Some(RivalKind::Fuse2fs));
    assert_eq!(RivalKind::from_name("Fuse2fs"), None);
}
