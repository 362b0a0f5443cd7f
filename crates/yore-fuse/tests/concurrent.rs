//! Calls of many threads at once on one mount.

mod common;

use common::Mounted;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Many threads at once, each with its own files, and all in one directory.
#[test]
fn many_at_once() {
    let Some(m) = Mounted::new() else { return };
    std::thread::scope(|scope| {
        for t in 0..8 {
            let m = &m;
            scope.spawn(move || {
                for i in 0..100 {
                    let (a, b) = (m.path(&format!("{t}-{i}")), m.path(&format!("{t}-{i}-renamed")));
                    fs::write(&a, format!("{t} {i}")).unwrap();
                    fs::rename(&a, &b).unwrap();
                    assert_eq!(fs::read_to_string(&b).unwrap(), format!("{t} {i}"));
                    if i % 2 == 0 {
                        fs::remove_file(&b).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(m.root()).unwrap().count(), 400);
    m.end();
}

/// Files that are removed while open free their inode numbers on the last close, when the kernel forgets
/// them, while other threads create files and take the numbers again. An inode table that dropped a number's
/// old inode only after the number was free found a new file's number taken, and stopped the daemon.
#[test]
fn numbers_freed_by_forgetting_are_taken_again() {
    let Some(m) = Mounted::new() else { return };
    std::thread::scope(|scope| {
        for t in 0..4 {
            let m = &m;
            scope.spawn(move || {
                for round in 0..20 {
                    let dir = m.path(&format!("{t} {round}"));
                    fs::create_dir(&dir).unwrap();
                    for i in 0..100 {
                        let path = dir.join(format!("{i}"));
                        let mut file = File::create_new(&path).unwrap();
                        file.write_all(b"x").unwrap();
                        if i % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                            assert_eq!(file.metadata().unwrap().nlink(), 0);
                        }
                    }
                    fs::remove_dir_all(&dir).unwrap();
                }
            });
        }
    });
    m.end();
}
