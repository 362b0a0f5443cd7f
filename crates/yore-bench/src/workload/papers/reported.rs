//! What the papers found, beside what is measured here. Their disks and processors were others, so a figure
//! is to be compared with those beside it and not with ours; what can be compared is which is ahead, and by
//! how much.
//!
//! Sources: metadata snapshotting is "Meta-data Snapshotting: A Simple Mechanism for File System Consistency"
//! (KFS, the K42 file system; tables I and II, section V). Journaling and soft updates are "Journaling versus
//! Soft Updates: Asynchronous Meta-data Protection in File Systems" (USENIX 2000, section 8).

use super::experiment::Experiment;
use crate::report::{Cell, Column, Row, Table};

const SNAPSHOTTING: &str = "metadata snapshotting, reported";
const JOURNALING: &str = "journaling versus soft updates, reported";

/// The figures that a paper has of an experiment.
pub(super) fn tables(experiment: Experiment) -> Vec<Table> {
    let table = |paper: &str, columns: Vec<Column>, rows: &[(&str, &[f64])]| {
        let row = |(target, figures): &(&str, &[f64])| Row {
            target: (*target).into(),
            cells: figures.iter().map(|figure| Cell::new(vec![*figure])).collect(),
        };
        let title = format!("{}: {paper}", experiment.name());
        Table { title, columns, rows: rows.iter().map(row).collect() }
    };
    let of_best = || vec![Column::count("share of the rate without any order")];
    match experiment {
        Experiment::Files => vec![table(
            SNAPSHOTTING,
            vec![Column::count("time, of that without any order")],
            &[("KFS with snapshots / KFS without", &[1.036]), ("ext3 / ext2", &[1.09])],
        )],
        Experiment::PostmarkMedium => vec![table(
            SNAPSHOTTING,
            vec![Column::rate("transactions")],
            &[("ext2", &[369.0]), ("ext3", &[192.0]), ("KFS", &[626.0]), ("KFS with snapshots", &[629.0])],
        )],
        Experiment::Dbench => vec![table(
            SNAPSHOTTING,
            ["1 client", "4", "8", "16", "32"].map(Column::throughput).to_vec(),
            &[
                ("ext2", &[323e6, 329e6, 330e6, 323e6, 282e6]),
                ("ext3", &[251e6, 187e6, 204e6, 178e6, 111e6]),
                ("KFS", &[291e6, 288e6, 291e6, 272e6, 241e6]),
                ("KFS with snapshots", &[280e6, 278e6, 278e6, 262e6, 233e6]),
            ],
        )],
        Experiment::Netnews => vec![table(
            JOURNALING,
            of_best(),
            &[
                ("soft updates", &[0.87]),
                ("journaling, asynchronous (at least)", &[0.95]),
                ("journaling, synchronous, log on the same disk (less than)", &[0.6]),
                ("FFS, synchronous (about)", &[0.5]),
            ],
        )],
        Experiment::Ssh => vec![table(
            JOURNALING,
            of_best(),
            &[
                ("soft updates, unpacking (about)", &[1.0]),
                ("journaling, asynchronous, unpacking (about)", &[0.9]),
                ("FFS, synchronous, all phases (about)", &[0.75]),
            ],
        )],
        Experiment::Empty => vec![table(
            JOURNALING,
            of_best(),
            &[
                ("soft updates (nearly)", &[1.0]),
                ("journaling, asynchronous, log service (less than)", &[0.5]),
            ],
        )],
        _ => Vec::new(),
    }
}

/// What they found in words.
pub(super) fn notes() -> Vec<String> {
    [
        "Rows that are called “reported” are the papers' own figures, on their machines: compare them with each other.",
        "Figures on simulated disks are of the device alone and computed: the same parameters give the same figures on \
         every machine, but for the order in which the library writes back files of different sizes. They do not have \
         the time of a processor.",
        "No compiler runs in ssh, sdet and andrew: their scripts have its calls.",
    ]
    .map(String::from)
    .to_vec()
}
