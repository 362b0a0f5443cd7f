//! Promise: past views do not change while several threads change the present, while snapshots are forgotten,
//! and while versions are made of single files.

use crate::common::copies;

use copies::{copy, Seen};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    EventNo, MkfsOptions, NewSnapshot, OpenOptions, Policy, RenameMode, SetXattrMode, Timestamp, Versioning,
    Volume,
};

/// Tells threads to stop.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Past views do not change, and are consistent, while threads change the present. Each thread writes a
/// number to two files, the first before the second, and moves a file to and fro between two names, so that
/// it is never under both or neither.
#[test]
fn past_views_stand_still_while_threads_work() {
    let volume = Volume::memory(256 << 20).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    for t in 0..4 {
        volume.create_dir_all(format!("t{t}/d")).unwrap();
        volume.write(format!("t{t}/moves"), "x".repeat(5000)).unwrap();
        for name in ["first", "d/second"] {
            volume.write(format!("t{t}/{name}"), 0u64.to_le_bytes()).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (volume, stopped) = (&volume, &stopped);
            scope.spawn(move || {
                let at = |name: &str| format!("t{t}/{name}");
                let file = |name: &str| OpenOptions::new().write(true).open(volume, at(name)).unwrap();
                let (first, second) = (file("first"), file("d/second"));
                for round in 1u64.. {
                    if stopped() {
                        break;
                    }
                    first.write_at(&round.to_le_bytes(), 0).unwrap();
                    second.write_at(&round.to_le_bytes(), 0).unwrap();
                    volume.rename(at("moves"), at("d/moved")).unwrap();
                    volume.append(at("d/moved"), "y").unwrap();
                    volume.rename(at("d/moved"), at("moves")).unwrap();
                    volume.write(at("new"), vec![round as u8; 9000]).unwrap();
                    volume.set_xattr(at("new"), "user.n", round.to_le_bytes(), SetXattrMode::Any).unwrap();
                    volume.remove_file(at("new")).unwrap();
                }
            });
        }
        // This also stops them if something is wrong.
        let _stop = Stop(&stop);
        let mut seen: Vec<Seen> = Vec::new();
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(10));
            let view = volume.view();
            let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
            let tree = copy(&view.as_of(event), view.root());
            for t in 0..4 {
                let at = |name: &str| PathBuf::from(format!("t{t}/{name}"));
                let number = |name: &str| u64::from_le_bytes(tree[&at(name)].4[..].try_into().unwrap());
                let (first, second) = (number("first"), number("d/second"));
                assert!(first == second || first == second + 1, "{first} and {second}");
                assert!(tree.contains_key(&at("moves")) != tree.contains_key(&at("d/moved")), "one name");
            }
            seen.push(Seen { event, root: view.root(), copy: tree, named: None });
            let old = &seen[seen.len() / 2];
            old.compare(&volume, "while threads work");
        }
        seen.iter().for_each(|seen| seen.compare(&volume, "in the end"));
    });
}

/// The same holds while snapshots are forgotten. A thread forgets every other snapshot as they come, mostly
/// while the next ones are taken and the present changes. The others stay, including a snapshot that was
/// taken while forgetting was under way. In the end nothing is left of the forgotten ones.
#[test]
fn past_views_stand_still_while_others_are_forgotten() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    for t in 0..3 {
        volume.create_dir_all(format!("t{t}/d")).unwrap();
        for n in 0..20 {
            volume.write(format!("t{t}/{n}"), vec![n as u8; 6000]).unwrap();
        }
    }
    let (to_forget, forgotten) = std::sync::mpsc::channel::<EventNo>();
    let kept = std::thread::scope(|scope| {
        for t in 0..3 {
            let (volume, stopped) = (&volume, &stopped);
            scope.spawn(move || {
                for round in 0u32.. {
                    if stopped() {
                        break;
                    }
                    let file = format!("t{t}/{}", round % 20);
                    volume.append(&file, vec![round as u8; 300]).unwrap();
                    volume.rename(&file, format!("t{t}/d/x")).unwrap();
                    volume
                        .set_xattr(format!("t{t}/d/x"), "user.n", round.to_le_bytes(), SetXattrMode::Any)
                        .unwrap();
                    volume.rename(format!("t{t}/d/x"), &file).unwrap();
                    // Each file is truncated at some time: a full volume would forget snapshots by itself.
                    if round % 49 == 0 {
                        volume.truncate(&file, 100).unwrap();
                    }
                }
            });
        }
        let view = volume.view();
        scope.spawn(move || {
            for number in forgotten {
                view.forget(&[number]).unwrap();
                view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
            }
        });
        let _stop = Stop(&stop);
        let mut seen: Vec<Seen> = Vec::new();
        for round in 0..120 {
            std::thread::sleep(Duration::from_millis(4));
            let directory = if round % 3 == 0 { "t0" } else { "/" };
            let root = volume.node(directory).unwrap().inode();
            let event = view.take_snapshot(root, &NewSnapshot::default()).unwrap().number;
            if round % 2 == 0 {
                to_forget.send(event).unwrap();
            } else {
                seen.push(Seen { event, root, copy: copy(&view.as_of(event), root), named: None });
                seen[seen.len() / 2].compare(&volume, "while others are forgotten");
            }
        }
        drop(to_forget);
        seen
    });
    kept.iter().for_each(|seen| seen.compare(&volume, "in the end"));
    let numbers: Vec<EventNo> = kept.iter().map(|seen| seen.event).collect();
    volume.view().forget(&numbers).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counts.versions, report.counts.past_names), (0, 0), "{report}");
}

/// Versions of single files are made beside everything else, and take numbers while other changes are under
/// way. Once a name ended at another number than the one with which it was looked up. Threads save as editors
/// do, each in its own way, in one directory; snapshots are taken and some versions forgotten meanwhile. Each
/// save is found under its name at its time, and the volume is sound.
#[test]
fn versions_are_made_beside_other_changes() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let view = volume.view().clone();
    let root = view.root();
    view.set_policy(root, &Policy { versioning: Some(Versioning::Close), ..Policy::default() }).unwrap();
    let saved: Vec<Vec<(String, Timestamp)>> = std::thread::scope(|scope| {
        let work = |t: usize| {
            let volume = &volume;
            move || {
                let mut saved = Vec::new();
                for round in 0..150 {
                    let (text, name) = (format!("thread {t} round {round}"), format!("doc{t}"));
                    if round % 3 == 0 {
                        volume.write(&name, &text).unwrap();
                    } else {
                        volume.write(format!("tmp{t}"), &text).unwrap();
                        volume.rename(format!("tmp{t}"), &name).unwrap();
                    }
                    // The policy makes versions of this file alone, so the last event is its own.
                    let inode = volume.node(&name).unwrap().inode();
                    let events = volume.view().events().unwrap();
                    let last = events.iter().rev().find(|event| event.row.root == inode).unwrap();
                    saved.push((text, last.row.time));
                    if round % 20 == 7 {
                        volume.remove_file(&name).unwrap();
                    }
                    if round % 10 == 3 {
                        volume.rename_with(&name, format!("doc{}", t + 10), RenameMode::Replace).unwrap();
                        volume.rename(format!("doc{}", t + 10), &name).unwrap();
                    }
                }
                saved
            }
        };
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(work(t))).collect();
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(5));
            let event = view.take_snapshot(root, &NewSnapshot::default()).unwrap().number;
            view.forget(&[event]).unwrap();
            view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (t, saved) in saved.iter().enumerate() {
        for (text, time) in saved {
            let found = view.lookup_at(root, format!("doc{t}").as_bytes(), &When::At(*time));
            let node = found.unwrap_or_else(|e| panic!("{text}: {e}"));
            let mut bytes = vec![0; 100];
            let n = node.read(0, &mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes[..n]), *text);
        }
    }
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}
