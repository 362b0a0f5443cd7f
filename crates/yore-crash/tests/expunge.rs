//! Promise: wherever the power fails while the history of files is given up, the volume is sound, nothing is
//! visible that was promised to be gone, and everything else is what it was. When the work is finished later,
//! nothing of the files is left.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::simulated::{CrashPlan, SimulatedDevice};
use yore_device::{Device, MemoryDevice};
use yore_fs::{EventNo, InodeNo, MkfsOptions, MountOptions, NewSnapshot, Volume};

const SIZE: u64 = 48 << 20;
/// The promise that the history is gone.
const GONE: u64 = 1;

/// What files hold as of each event, and now (number 0), by path.
type Shown = BTreeMap<(u64, PathBuf), Vec<u8>>;

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn show(volume: &Volume) -> Shown {
    let mut shown = Shown::new();
    let events = volume.view().events().unwrap();
    let views = events.iter().map(|event| (event.number.0, volume.view().as_of(event.number)));
    for (number, view) in views.chain([(0, volume.view().clone())]) {
        let volume = Volume::from_view(view);
        let mut left = vec![PathBuf::from("/")];
        while let Some(directory) = left.pop() {
            for entry in volume.read_dir(&directory).unwrap() {
                let path = directory.join(entry.unwrap().file_name());
                let is_directory = volume.metadata(&path).unwrap().is_dir();
                let content = if is_directory { b"d".to_vec() } else { volume.read(&path).unwrap() };
                if is_directory {
                    left.push(path.clone());
                }
                shown.insert((number, path), content);
            }
        }
    }
    shown
}

fn event(volume: &Volume) -> EventNo {
    volume
        .view()
        .take_snapshot(volume.view().root(), &NewSnapshot { wait: true, ..NewSnapshot::default() })
        .unwrap()
        .number
}

fn file(volume: &Volume, path: &Path) -> (InodeNo, u32) {
    let attr = *volume.node(path).unwrap().attr();
    (attr.inode, attr.incarnation)
}

/// Creates files and changes them between events. In the end some are gone. Returns the first event.
fn change_much(volume: &Volume) -> EventNo {
    let write = |path: &str, byte: u8, len: usize| volume.write(path, vec![byte; len]).unwrap();
    for directory in ["d", "d/e", "other"] {
        volume.create_dir(directory).unwrap();
    }
    write("secret", 1, 90_000);
    write("linked", 2, 30_000);
    write("d/e/in", 3, 20_000);
    write("kept", 4, 50_000);
    volume.hard_link("linked", "other/link").unwrap();
    let first = event(volume);
    for n in 0..6 {
        for path in ["secret", "linked", "d/e/in", "kept"] {
            write(path, n + 5, 40_000 + 1000 * usize::from(n));
        }
        volume.rename("d/e/in", "d/in").unwrap();
        event(volume);
        volume.rename("d/in", "d/e/in").unwrap();
        volume.write(format!("d/{n}"), "small").unwrap();
        volume.rename("kept", "moved").unwrap();
        event(volume);
        volume.rename("moved", "kept").unwrap();
    }
    volume.remove_file("secret").unwrap();
    volume.remove_file("other/link").unwrap();
    first
}

/// Gives up a file that is gone, one that has several names, and a directory with its content; crashes after
/// each of many writes.
#[test]
fn a_crash_at_any_write() {
    let memory = MemoryDevice::new(SIZE);
    let device = Arc::new(SimulatedDevice::new(memory));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let first = change_much(&volume);
    let before = show(&volume);
    let then = Volume::from_view(volume.view().as_of(first));
    let directory = file(&volume, Path::new("d"));
    let mut to_expunge = vec![file(&then, Path::new("secret")), file(&volume, Path::new("linked"))];
    let below = volume.view().remembered_below(directory.0, directory.1).unwrap();
    to_expunge.extend(below.iter().map(|one| (one.inode, one.incarnation)));
    volume.sync().unwrap();
    device.restart_trace();
    volume.view().expunge(&to_expunge).unwrap();
    device.mark(GONE);
    // Generations are completed between the steps.
    let mut sync = |_: &_| {
        volume.sync().unwrap();
        ControlFlow::Continue(())
    };
    let done = volume.view().finish_forgetting(&mut sync).unwrap();
    assert_eq!(done.expunged, to_expunge.len() as u64);
    let after = show(&volume);
    volume.close().unwrap();
    let is_expunged =
        |path: &Path| ["/secret", "/linked", "/other/link", "/d"].iter().any(|gone| path.starts_with(gone));
    let mut expected = before.clone();
    expected.retain(|(number, path), _| *number == 0 || !is_expunged(path));
    assert_eq!(after, expected);
    let trace = device.trace();
    let mut cases = 0;
    for case in trace.crash_states(&CrashPlan::default()) {
        let promised = trace.marks_before(case.after_entry()).any(|mark| mark == GONE);
        let state = case.state();
        let medium = Arc::new(case.materialise());
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{state}: {report}");
        let volume = Volume::open(medium.clone(), &options()).unwrap();
        let shown = show(&volume);
        for (key, content) in &expected {
            assert!(shown.get(key) == Some(content), "{state}: {key:?} is not what it was");
        }
        for (key, content) in &shown {
            assert!(before.get(key) == Some(content), "{state}: {key:?} was never so");
            assert!(!promised || expected.contains_key(key), "{state}: {key:?} is seen again");
        }
        volume.view().expunge(&to_expunge).unwrap();
        volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        assert!(show(&volume) == expected, "{state}: when it has gone on");
        for (inode, incarnation) in &to_expunge {
            let left = volume.view().remembered(*inode, *incarnation).map_or(0, |left| left.versions);
            assert_eq!(left, 0, "{state}: {inode}");
        }
        volume.close().unwrap();
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{state}: {report}");
        cases += 1;
    }
    assert!(cases > 20, "{cases}");
    println!("{cases} states");
}

/// Files are expunged while threads write, link, rename and remove them, snapshots are taken, held and
/// forgotten, and the past is read. Nothing waits for ever, readers get the past or nothing, and the volume
/// is sound.
#[test]
fn files_are_expunged_while_threads_work() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    for t in 0..3 {
        volume.create_dir_all(format!("t{t}/d")).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (volume, stop) = (&volume, &stop);
        for t in 0..3u8 {
            scope.spawn(move || {
                for round in 0u8..=255 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (file, moved) = (format!("t{t}/f{}", round % 4), format!("t{t}/d/f{}", round % 4));
                    volume.write(&file, vec![t + 1; 20_000 + usize::from(round) * 10]).unwrap();
                    volume.hard_link(&file, &moved).unwrap();
                    volume.remove_file(&file).unwrap();
                    volume.rename(&moved, &file).unwrap();
                    volume.rename(format!("t{t}/d"), format!("t{t}/e")).unwrap();
                    volume.rename(format!("t{t}/e"), format!("t{t}/d")).unwrap();
                    if round % 7 == 0 {
                        volume.remove_file(&file).unwrap();
                    }
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for event in volume.view().events().unwrap() {
                    let then = Volume::from_view(volume.view().as_of(event.number));
                    for (t, file) in (0..3u8).flat_map(|t| (0..4).map(move |n| (t, format!("t{t}/f{n}")))) {
                        if let Ok(bytes) = then.read(&file) {
                            assert!(
                                bytes.iter().all(|byte| *byte == t + 1),
                                "{file}: what is somebody else's"
                            );
                        }
                    }
                }
            }
        });
        let view = volume.view();
        for round in 0..60usize {
            std::thread::sleep(Duration::from_millis(3));
            let one = event(volume);
            view.hold(one, round % 5 == 0).unwrap();
            let (path, then) = (format!("t{}/f{}", round % 3, round % 4), view.as_of(one));
            if let Ok(node) = Volume::from_view(then).node(&path) {
                match view.expunge(&[(node.inode(), node.attr().incarnation)]) {
                    Ok(()) | Err(yore_fs::Error::Held { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
                view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
            }
            view.hold(one, false).unwrap();
            if round % 3 == 0 {
                view.forget(&[one]).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}
