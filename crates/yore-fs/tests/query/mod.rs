//! What queries promise: a difference applied to the earlier tree gives the later one; a log has each state
//! that a snapshot has seen, under whatever name; a file that is gone is listed with the snapshot that still
//! has it.

mod broken_off;
mod diff;
mod log;
mod random;

use std::ops::ControlFlow;
use yore_fs::{Change, Deleted, Difference, EventNo, Logged, NewSnapshot, Result, Volume, What};

fn small() -> Volume {
    Volume::memory(128 << 20).unwrap()
}

fn event(volume: &Volume, path: &str) -> EventNo {
    let node = volume.node(path).unwrap();
    volume.view().take_snapshot(node.inode(), &NewSnapshot::default()).unwrap().number
}

fn diff_of(
    volume: &Volume,
    path: &str,
    from: Option<EventNo>,
    to: Option<EventNo>,
) -> Result<Vec<Difference>> {
    let (mut found, node) = (Vec::new(), volume.node(path)?);
    volume.view().diff(node.inode(), from, to, &mut |difference| {
        found.push(difference);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// `+ path`, `M path CONTENT`, `R old path`.
fn lines(found: &[Difference]) -> Vec<String> {
    let line = |d: &Difference| {
        let letter = match d.change {
            Change::Added => "+",
            Change::Removed => "-",
            Change::Modified => "M",
            Change::Renamed => "R",
        };
        let old = d.old_path.as_deref().map(|old| format!("{} ", text(old))).unwrap_or_default();
        let what: Vec<&str> =
            (d.what - What::TIME - What::LINKS).iter_names().map(|(name, _)| name).collect();
        format!("{letter} {old}{} {}", text(&d.path), what.join(",")).trim_end().to_string()
    };
    found.iter().map(line).collect()
}

#[track_caller]
fn same(found: Vec<String>, expected: &[&str]) {
    assert_eq!(found, expected);
}

fn log_of(volume: &Volume, directory: &str, name: &str) -> Result<Vec<Logged>> {
    let (mut found, node) = (Vec::new(), volume.node(directory)?);
    let view = volume.view().of(&node).into_owned();
    view.log(node.inode(), name.as_bytes(), &mut |logged| {
        found.push(logged);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn deleted_of(volume: &Volume, path: &str, recursive: bool) -> Vec<Deleted> {
    let (mut found, node) = (Vec::new(), volume.node(path).unwrap());
    volume
        .view()
        .deleted(node.inode(), recursive, &mut |deleted| {
            found.push(deleted);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// Names that are gone are listed with the last snapshot that has them, the latest first. Names that no
/// snapshot has seen, that mean something again, or whose file was renamed are not listed.
#[test]
fn what_is_gone_is_listed() {
    let volume = small();
    volume.create_dir_all("d/sub").unwrap();
    volume.create_dir_all("d/whole").unwrap();
    for name in ["first", "second", "again", "renamed", "sub/below", "whole/in-it"] {
        volume.write(format!("d/{name}"), name).unwrap();
    }
    event(&volume, "d");
    let two = event(&volume, "/");
    volume.remove_file("d/first").unwrap();
    volume.remove_file("d/again").unwrap();
    volume.write("d/unseen", "").unwrap();
    volume.remove_file("d/unseen").unwrap();
    let three = event(&volume, "d");
    volume.remove_file("d/second").unwrap();
    volume.write("d/again", "another").unwrap();
    volume.rename("d/renamed", "elsewhere").unwrap();
    volume.remove_file("d/sub/below").unwrap();
    volume.remove_dir_all("d/whole").unwrap();
    let list = |recursive| -> Vec<(String, EventNo, u64)> {
        let found = deleted_of(&volume, "d", recursive);
        found.iter().map(|d| (text(&d.path), d.last.event.number, d.facts.size)).collect()
    };
    let entry = |path: &str, number, size| (path.to_string(), number, size);
    let expected = [entry("second", three, 6), entry("whole", three, 1), entry("first", two, 5)];
    assert_eq!(list(false), expected);
    let mut all = expected.to_vec();
    all.insert(1, entry("sub/below", three, 9));
    assert_eq!(list(true), all);
    volume.view().forget(&[two]).unwrap();
    assert_eq!(list(false)[2].0, "first", "the first snapshot has it still");
    assert!(list(false)[2].1 < two);
    assert!(deleted_of(&volume, "/", false).is_empty());
}

/// Tells threads to stop.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A difference from the present ends and does not fail while threads change the present.
#[test]
fn the_present_changes_meanwhile() {
    let volume = small();
    for i in 0..4 {
        volume.create_dir_all(format!("t{i}/d/e")).unwrap();
    }
    let first = event(&volume, "/");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for t in 0..2 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                for round in 0u32.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let file = format!("t{t}/d/{}", round % 30);
                    volume.write(&file, vec![1; 5000]).unwrap();
                    volume.rename(format!("t{t}/d"), format!("t{}/x", t + 2)).unwrap();
                    volume.rename(format!("t{}/x", t + 2), format!("t{t}/d")).unwrap();
                    if round % 3 == 0 {
                        volume.remove_file(&file).unwrap();
                    }
                }
            });
        }
        // This also stops them if an assertion fails.
        let _stop = Stop(&stop);
        for _ in 0..150 {
            diff_of(&volume, "/", Some(first), None).unwrap();
            deleted_of(&volume, "/", true);
            log_of(&volume, "/", "t0").unwrap();
        }
    });
}
