//! Promises of a log in a real file: a process that is killed loses nothing that it acknowledged.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::contents;
use yore_device::{CreateOptions, FileDevice, OpenOptions};
use yore_log::{LogError, LogFile, Lsn, Region};

const CHILD: &str = "YORE_LOG_TEST_KILL_CHILD";

/// The child's work: it appends for ever, keeps 50 records, and prints the number of each one that is
/// durable.
fn child(path: &str) {
    let device = Arc::new(FileDevice::open(path, OpenOptions::default()).unwrap());
    let region = Region::whole(&*device);
    let log = LogFile::mount(device, region).unwrap();
    let mut out = std::io::stdout();
    loop {
        let next = log.log().next_number().0;
        match log.append_sync(&[&contents(next, (next * 91 % 9000) as usize)]) {
            Ok(number) => writeln!(out, "acknowledged {number}").unwrap(),
            Err(LogError::Full { .. }) => log.trim(Lsn(next - 10)).unwrap(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// The process is killed again and again at arbitrary instants, each time after a different number of
/// acknowledgements. The log has, whole, every acknowledged record that it still keeps.
#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    if let Ok(path) = std::env::var(CHILD) {
        return child(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let device = Arc::new(FileDevice::create(&path, 400 << 10, CreateOptions::default()).unwrap());
    let region = Region::whole(&*device);
    LogFile::create(device, region).unwrap().unmount().unwrap();
    let mut acknowledged = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "a_killed_process_loses_nothing_acknowledged"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 5 + round * 17;
        // The test harness prints words of its own, even on the same line.
        let mut note = |line: std::io::Result<String>| {
            let line = line.unwrap();
            let number = line.split_once("acknowledged ").map(|(_, number)| number.parse::<u64>());
            // The last line may be truncated.
            if let Some(Ok(number)) = number {
                acknowledged = acknowledged.max(number);
            }
        };
        while left > 0 {
            note(lines.next().expect("the child goes on for ever"));
            left -= 1;
        }
        child.kill().unwrap();
        lines.for_each(note);
        child.wait().unwrap();
        let device = Arc::new(FileDevice::open(&path, OpenOptions::default()).unwrap());
        let log = LogFile::mount(device, region).unwrap();
        let next = log.log().next_number().0;
        assert!(next > acknowledged, "round {round}: {acknowledged} was acknowledged, {next} is next");
        let records: Vec<_> = log.iter().map(Result::unwrap).collect();
        assert!(records.iter().map(|r| r.number.0).eq(log.log().oldest().number.0..next));
        assert!(records
            .iter()
            .all(|r| r.contents == contents(r.number.0, (r.number.0 * 91 % 9000) as usize)));
    }
    assert!(acknowledged > 100, "only {acknowledged}");
}
