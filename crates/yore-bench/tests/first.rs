//! The first measurement, made small: it runs on every file system this machine has, leaves nothing behind, and reports each.

use yore_bench::{first, FirstOptions};

/// Every target is measured or named as skipped, with a figure per round and workload.
#[test]
fn every_target_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let options = FirstOptions { files: 60, directories: 7, rounds: 2, work_dir: dir.path().to_path_buf() };
    let report = first(&options).unwrap();
    let can_mount = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    if !can_mount {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI");
    }
    assert_eq!(report.targets.len() + report.skipped.len(), 4, "{:?}", report.skipped);
    for target in &report.targets {
        assert_eq!(target.workloads.len(), 5);
        for workload in &target.workloads {
            assert_eq!(workload.per_second.len(), 2, "{} {}", target.name, workload.name);
            assert!(workload.per_second.iter().all(|f| *f > 0.0));
        }
    }
    if can_mount {
        assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    let table = report.to_markdown();
    assert!(report.targets.iter().all(|t| table.contains(&t.name)), "{table}");
}
