//! Each measurement in miniature, through the command, which also serves the mounts and fills the volumes. It
//! ends well, reports every figure, and leaves nothing behind.

use crate::common;

use common::{fails, ok, run, text, Scratch};
use serde_json::Value;
use std::path::Path;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn can_mount() -> bool {
    is_root() && Path::new("/dev/fuse").exists()
}

/// Prints that something cannot be tested here; it fails instead if nobody would read that.
fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "skipped in CI: {what}");
}

/// Runs `yore bench` with these arguments and a directory of its own; returns the report.
#[track_caller]
fn bench(args: &[&str]) -> Value {
    let scratch = Scratch::empty();
    let work = scratch.path("work");
    std::fs::create_dir(&work).unwrap();
    let args = ["bench"].into_iter().chain(args.iter().copied());
    let said = ok(args.chain(["--work-dir", text(&work), "--json"]));
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["failed"], Value::Array(Vec::new()), "{said}");
    assert_eq!(report["left_out"], Value::Array(Vec::new()), "{said}");
    for table in report["tables"].as_array().unwrap() {
        let columns = table["columns"].as_array().unwrap().len();
        let rows = table["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && columns > 0, "{table}");
        for row in rows {
            let cells = row["cells"].as_array().unwrap();
            assert_eq!(cells.len(), columns, "{row}");
            assert!(cells.iter().all(|cell| cell["median"].as_f64().is_some()), "{row}");
        }
    }
    report
}

/// The measurements that any user can make on the library.
#[test]
fn on_the_library() {
    const SIZE: [&str; 6] = ["--targets", "library,library-none", "--rounds", "2", "--volume-size", "256M"];
    let with = |args: &[&'static str]| [args, &SIZE[..]].concat();
    bench(&with(&["micro", "--files", "50", "--directories", "5", "--threads", "1,2"]));
    bench(&with(&["first", "--files", "50", "--directories", "5"]));
    bench(&with(&["postmark", "--transactions", "100", "--files", "50", "--directories", "5"]));
    let small = ["--files", "50", "--takes", "40", "--seconds", "1", "--live", "40", "--snapshots", "20"];
    let sizes = [
        "--large-size",
        "4M",
        "--forgotten",
        "10",
        "--transactions",
        "500",
        "--idle",
        "0",
        "--rounds",
        "1",
        "--volume-size",
        "1G",
    ];
    // All parts are measured in `yore-bench/tests/history.rs`.
    let report = bench(&[&["history", "--parts", "take,back,forget,diff"], &small[..], &sizes[..]].concat());
    assert_eq!(report["tables"].as_array().unwrap().len(), 1, "one table of all measures");
    let latency = ["latency", "--seconds", "1", "--probe-seconds", "1", "--alive", "100"];
    let report = bench(&[&latency[..], &["--volume-size", "256M"]].concat());
    let cells = &report["tables"][0]["rows"][0]["cells"];
    let seconds: Vec<f64> = (2..6).map(|i| cells[i]["median"].as_f64().unwrap()).collect();
    assert!(seconds.is_sorted(), "p50, p99, p99.9, max: {seconds:?}");
}

/// Simulated figures are the same in every run: each run is a process of its own, with its own random state.
#[test]
fn simulated_figures_are_those_of_every_run() {
    let run = || bench(&["simulated", "micro", "--files", "200", "--batch", "50"])["tables"].clone();
    assert!(run() == run(), "two runs differ");
    bench(&["simulated", "postmark", "--files", "100", "--transactions", "100", "--batch", "50"]);
    bench(&["simulated", "durable", "--files", "2"]);
}

/// The papers' experiments: each in miniature on simulated disks, under every engine.
#[test]
fn the_papers_on_simulated_disks() {
    let report = bench(&["papers", "--simulated", "--share", "0.001", "--news", "300"]);
    let tables = report["tables"].as_array().unwrap();
    for experiment in EXPERIMENTS {
        let mine = tables.iter().filter(|table| {
            let title = table["title"].as_str().unwrap();
            title.starts_with(experiment) && title.contains("simulated")
        });
        let rows: Vec<usize> = mine.map(|table| table["rows"].as_array().unwrap().len()).collect();
        assert!(rows.len() >= 4, "{experiment}: a table for each disk, and one of its requests");
        assert!(
            rows.iter().all(|count| *count == 10),
            "{experiment}: five engines, of which one returns in three ways, with its log inside or not"
        );
    }
}

const EXPERIMENTS: [&str; 15] = [
    "curves",
    "empty",
    "files",
    "postmark-small",
    "postmark-medium",
    "postmark-large",
    "dbench",
    "ssh",
    "netnews",
    "sdet",
    "andrew",
    "streams",
    "fileserver",
    "webserver",
    "varmail",
];

/// The papers' experiments with threads, on a mount and on another file system.
#[test]
fn the_papers_on_the_real_disk() {
    if !can_mount() {
        return skipped("mounts need root and /dev/fuse");
    }
    let small = ["papers", "--real", "--share", "0.001", "--news", "300", "--rounds", "1"];
    let on = ["--targets", "library-journal-group,mount-none,mount-journal,ext2"];
    let some = ["--experiments", "curves,postmark-small,ssh,sdet,varmail", "--volume-size", "1G"];
    let report = bench(&[&small[..], &on, &some].concat());
    let rows = |title: &str| {
        let tables = report["tables"].as_array().unwrap();
        let table = tables.iter().find(|table| table["title"] == title).expect(title);
        table["rows"].as_array().unwrap().len()
    };
    assert_eq!(rows("varmail: real disk"), 4);
    assert_eq!(rows("curves, create: real disk"), 4);
}

/// Those that need root, for cold caches, and a server of their own.
#[test]
fn with_cold_caches_and_servers() {
    if !can_mount() {
        return skipped("cold caches and mounts need root and /dev/fuse");
    }
    const SIZE: [&str; 4] = ["--rounds", "2", "--volume-size", "256M"];
    let with = |args: &[&'static str]| [args, &SIZE[..]].concat();
    bench(&with(&["stream", "--size", "4M", "--random", "50", "--targets", "library,mount,memory-fuse"]));
    bench(&with(&["memory", "--files", "200", "--directories", "5"]));
    let check = ["check", "--quick", "--files", "2000", "--inodes", "2000", "--transactions", "500"];
    bench(&with(&[&check[..], &["--parts", "whole,memory,live,checksums", "--stream-size", "4M"]].concat()));
    match std::process::Command::new("strace").arg("-V").output() {
        Ok(_) => drop(bench(&with(&[&check[..], &["--parts", "slow", "--levels", "1"]].concat()))),
        Err(_) => skipped("what e2fsck reads is recorded by strace"),
    }
    bench(&with(&["mount-time", "--files", "2000", "--unsynced", "100"]));
    bench(&with(&["micro", "--files", "50", "--targets", "mount,memory-fuse"]));
}

/// The command reports what is not available, and what to do about it; a mistyped name lists the names.
#[test]
fn what_is_missing_is_said() {
    let message = fails(2, ["bench", "micro", "--targets", "zfs"]);
    assert!(message.contains("zfs") && message.contains("library-none"), "{message}");
    let message = fails(2, ["bench", "check", "--parts", "claim"]);
    assert!(message.contains("\"claim\"") && message.contains("claims, live"), "{message}");
    let message = fails(2, ["bench", "check", "--layout", "0"]);
    assert!(message.contains("no share"), "{message}");
    let message = fails(3, ["bench", "tree", "--sources", "/nonexistent"]);
    assert!(message.contains("fetch-sources.sh"), "{message}");
    let scratch = Scratch::empty();
    let dir = scratch.path("page.html");
    let arguments = ["bench", "memory", "--targets", "library", "--html", text(&dir)];
    let output = run(arguments);
    let message = common::error_text(&output);
    let reason = if is_root() { "library was not measured: no process serves it" } else { "needs? root" };
    assert!(message.contains(reason) || message.contains("need root"), "{message}");
    assert!(std::fs::read_to_string(&dir).unwrap().contains("Not measured"));
}
