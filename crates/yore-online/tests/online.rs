//! Promises: a check of a volume in use finds what the same check of the volume at rest finds, whatever is
//! done meanwhile. What it finds is repaired at once if calls cannot change it, and recorded if not.

mod common;

use common::*;
use rand::{Rng as _, SeedableRng as _};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_check::{CheckOptions, Problem, Report};
use yore_device::simulated::{Choice, SimulatedDevice, Tearing};
use yore_device::{Device as _, MemoryDevice};
use yore_format::*;
use yore_fs::{Behalf, Caller, FileKind, MkfsOptions, MountOptions, NewSnapshot, Volume, WriteMode};
use yore_online::{check, recount, recount_beside, OnlineError, OnlineOptions, OnlineReport};

fn mount(device: &Arc<MemoryDevice>, engine: Engine) -> Volume {
    let options = MountOptions {
        engine: Some(engine),
        commit_interval: Duration::from_millis(20),
        ..MountOptions::default()
    };
    Volume::open(device.clone(), &options).unwrap()
}

fn made(bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    device
}

/// A small volume that is closed again.
fn sample() -> Arc<MemoryDevice> {
    let device = made(64 << 20);
    let volume = mount(&device, Engine::Snapshot);
    volume.create_dir("d").unwrap();
    for i in 0..40 {
        volume.write(format!("d/file {i}"), vec![i as u8; 5000 + 3000 * i]).unwrap();
    }
    volume.close().unwrap();
    assert!(at_rest(&device).is_clean());
    device
}

fn at_rest(device: &MemoryDevice) -> Report {
    yore_check::check(device, &CheckOptions::default()).unwrap()
}

fn online(volume: &Volume, options: &OnlineOptions) -> OnlineReport {
    check(volume.view(), options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn codes(report: &Report) -> Vec<String> {
    let mut codes: Vec<String> = report.findings.iter().map(|f| f.problem.code()).collect();
    codes.sort();
    codes
}

/// One thread's work until it is told to stop: files come, grow, move, and go, and now and then all is synced
/// or a snapshot is taken.
fn work(volume: &Volume, seed: u64, stop: &AtomicBool, steps: &AtomicU64) {
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    let dir = format!("work {seed}");
    volume.create_dir(&dir).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{dir}/{}", rng.random_range(0..60));
        match rng.random_range(0..12) {
            0..5 => volume.write(&path, vec![1; rng.random_range(0..60_000)]).unwrap(),
            5..8 => drop(volume.remove_file(&path)),
            8 => drop(volume.rename(&path, format!("{dir}/{}", rng.random_range(0..60)))),
            9 => drop(volume.truncate(&path, rng.random_range(0..20_000))),
            10 => volume.sync().unwrap(),
            _ => {
                let view = volume.view();
                match rng.random_range(0..4) {
                    0 => drop(view.take_snapshot(view.root(), &NewSnapshot::default())),
                    _ => drop(volume.create_dir(format!("{path} directory"))),
                }
            }
        }
        steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Under each engine: whatever is done meanwhile, no check finds anything, with little memory and with much.
#[test]
fn work_goes_on_and_nothing_is_found() {
    for (engine, seed) in
        [(Engine::Snapshot, 1), (Engine::Journal, 11), (Engine::SoftUpdates, 31), (Engine::None, 21)]
    {
        let device = made(256 << 20);
        let volume = mount(&device, engine);
        let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (volume, stop, steps) = (&volume, &stop, &steps);
                scope.spawn(move || work(volume, seed + thread, stop, steps));
            }
            for round in 0..12 {
                let options = OnlineOptions {
                    memory: if round % 2 == 0 { 0 } else { 64 << 20 },
                    shadow_memory: if round % 3 == 0 { 0 } else { 1 << 20 },
                    scan_from: if round % 4 == 0 { 0 } else { 128 },
                    ..OnlineOptions::default()
                };
                let found = check(volume.view(), &options, &mut |_| ControlFlow::Continue(()));
                if !found.as_ref().is_ok_and(OnlineReport::is_clean) {
                    stop.store(true, Ordering::Relaxed);
                }
                let found = found.unwrap();
                assert!(found.is_clean(), "{engine:?}, seed {seed}, round {round}: {}", found.report);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(steps.load(Ordering::Relaxed) > 0);
        volume.close().unwrap();
        let report = at_rest(&device);
        assert!(report.is_clean(), "{engine:?}: {report}");
    }
}

/// What was there when the shadow began is what the check counts, though all of it is removed and its zones
/// are written over and given back; what does not fit into memory comes from the file.
#[test]
fn the_generation_stays_as_it_was() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::None] {
        let device = made(128 << 20);
        let volume = mount(&device, engine);
        for i in 0..3000 {
            volume.write(format!("{i}"), [7; 10]).unwrap();
        }
        volume.sync().unwrap();
        let before = online(&volume, &OnlineOptions::default()).report.counts;
        let shadow = volume.view().shadow(40 << 12).unwrap();
        for i in 0..3000 {
            volume.remove_file(format!("{i}")).unwrap();
            if i % 500 == 0 {
                volume.sync().unwrap();
            }
        }
        volume.sync().unwrap();
        let view = volume.view();
        view.shred(&mut || ControlFlow::Continue(())).unwrap();
        for i in 0..60 {
            volume.write(format!("large {i}"), vec![1; 1 << 20]).unwrap();
        }
        volume.sync().unwrap();
        // The superblock of a volume in use does not count all free blocks under an engine that orders
        // changes.
        let options = CheckOptions { unpromised: shadow.unpromised, ..CheckOptions::default() };
        let report = yore_check::check(&shadow, &options).unwrap();
        assert!(report.is_clean(), "{engine:?}: {report}");
        assert_eq!(report.counts.inodes, before.inodes, "{engine:?}");
        assert_eq!(report.counts.entries, before.entries, "{engine:?}");
        assert!(shadow.saved().in_file > 0, "{engine:?}: {shadow:?}");
        drop(shadow);
        assert_eq!(online(&volume, &OnlineOptions::default()).report.counts.inodes, 61);
        volume.close().unwrap();
    }
}

/// O1 and O2: leaks are repaired while the volume is in use, exactly they, and what is free then can be used.
#[test]
fn leaks_are_repaired_at_once() {
    let device = sample();
    let (linked, once) = {
        let volume = mount(&device, Engine::Snapshot);
        volume.hard_link("d/file 3", "d/other name").unwrap();
        let inodes = ["d/file 3", "d/file 9"].map(|path| volume.node(path).unwrap().inode());
        volume.close().unwrap();
        (inodes[0], inodes[1])
    };
    plant_leak(&device, 300);
    plant_inode(&device, linked, |inode| inode.links += 5);
    // A second name of it has gone, and nothing else of that has arrived.
    plant_inode(&device, once, |inode| (inode.links, inode.parent_cookie) = (2, 7));
    let found = at_rest(&device);
    assert!(found.only_leaks() && found.has(Problem::SpaceLeaked) && found.has(Problem::LinksTooMany));
    let volume = mount(&device, Engine::Snapshot);
    let free = volume.info().free_blocks;
    // Names come and go between the finding and the repair, as well.
    let mut names = 0;
    let view = volume.view();
    let report = check(view, &OnlineOptions::default(), &mut |_| {
        names += 1;
        volume.hard_link("d/file 3", format!("d/name {names}")).unwrap();
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert_eq!(codes(&report.report), codes(&found));
    assert!(report.is_clean() && report.recorded && report.repaired.len() == found.findings.len());
    assert_eq!(volume.info().free_blocks, free + 300);
    assert_eq!(view.getattr(linked).unwrap().links, 2 + names);
    assert_eq!(view.getattr(once).unwrap().links, 1);
    assert_eq!(view.findings().unwrap(), None);
    let again = recount(view, &OnlineOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(again.report.is_clean(), "{}", again.report);
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean(), "{report}");
}

/// Damage is found with the codes of a check at rest, recorded, and left; leaks beside it are left, too. The
/// repair of a volume at rest empties the record, and taking that back brings it back.
#[test]
fn damage_is_recorded_and_left() {
    let device = sample();
    let volume = mount(&device, Engine::Snapshot);
    let (file, dir) = (volume.node("d/file 7").unwrap().inode(), volume.node("d").unwrap().inode());
    volume.close().unwrap();
    plant_leak(&device, 10);
    plant_inode(&device, file, |inode| inode.blocks += 3);
    plant_inode(&device, dir, |inode| inode.size += 1);
    let found = at_rest(&device);
    assert_eq!(codes(&found), ["directory-size", "inode-blocks", "space-leaked"]);
    let volume = mount(&device, Engine::Snapshot);
    for round in 0..3 {
        let report = online(&volume, &OnlineOptions::default());
        assert_eq!(codes(&report.report), codes(&found));
        assert!(report.repaired.is_empty() && report.left_count == 3 && report.recorded);
        let record = volume.view().findings().unwrap().unwrap();
        assert_eq!((record.count, record.sequence), (3, round + 1));
        let of_file = record.findings.iter().find(|f| f.code == "inode-blocks").unwrap();
        assert_eq!((of_file.inode, of_file.path.as_deref()), (Some(file), Some("/d/file 7")));
        assert!(of_file.is_damage);
        let leak = record.findings.iter().find(|f| f.code == "space-leaked").unwrap();
        assert!(!leak.is_damage && leak.block.is_some());
    }
    volume.close().unwrap();
    // It outlives the mount, and one for reading only shows it, checks, and leaves it.
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    let report = online(&volume, &OnlineOptions::default());
    assert!(!report.recorded && report.left_count == 3);
    assert_eq!(volume.view().findings().unwrap().unwrap().count, 3);
    volume.close().unwrap();
    let before = device.snapshot();
    let undo = std::env::temp_dir().join(format!("yore-online-{}.undo", std::process::id()));
    let plan = yore_check::plan_repair(&*device, &CheckOptions::default()).unwrap();
    assert!(plan.is_complete());
    plan.apply(&undo).unwrap();
    let volume = Volume::open(device.clone(), &options).unwrap();
    assert_eq!(volume.view().findings().unwrap(), None);
    volume.close().unwrap();
    yore_check::undo_repair(&*device, &undo).unwrap();
    std::fs::remove_file(&undo).unwrap();
    assert_eq!(device.first_difference(&before), None);
    // A check of a volume in use that finds nothing empties it as well.
    plan_again(&device, &undo);
}

/// Repairs what was planted without the record, and has a check in use empty that.
fn plan_again(device: &Arc<MemoryDevice>, undo: &std::path::Path) {
    let record = [0, 1].map(|i| read(device, FINDINGS_BLOCKS[i].0));
    let plan = yore_check::plan_repair(&**device, &CheckOptions::default()).unwrap();
    plan.apply(undo).unwrap();
    std::fs::remove_file(undo).unwrap();
    for (at, bytes) in FINDINGS_BLOCKS.iter().zip(&record) {
        device.write_at(at.0 * BLOCK_SIZE as u64, &bytes[..]).unwrap();
    }
    let volume = mount(device, Engine::Snapshot);
    assert_eq!(volume.view().findings().unwrap().unwrap().count, 3);
    assert!(online(&volume, &OnlineOptions::default()).is_clean());
    assert_eq!(volume.view().findings().unwrap(), None);
    volume.close().unwrap();
}

/// Two checks at once: the second is refused. One that is told to stop ends without a result, and leaves
/// nothing. None can be begun when the volume is closed.
#[test]
fn one_check_at_a_time() {
    let device = sample();
    let volume = mount(&device, Engine::Snapshot);
    let view = volume.view();
    let mut refused = 0;
    let report = check(view, &OnlineOptions { scan_from: 0, ..OnlineOptions::default() }, &mut |_| {
        let other = check(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(other, Err(OnlineError::Volume(yore_fs::Error::Refused(_)))), "{other:?}");
        refused += 1;
        ControlFlow::Continue(())
    });
    assert!(report.unwrap().is_clean() && refused > 0);
    let broken_off = check(view, &OnlineOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(broken_off, Err(OnlineError::BrokenOff)), "{broken_off:?}");
    assert!(online(&volume, &OnlineOptions::default()).is_clean());
    volume.close().unwrap();
    let closed = check(view, &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(closed, Err(OnlineError::Volume(_))), "{closed:?}");
}

/// A full volume has room for what is found on it.
#[test]
fn a_full_volume_keeps_its_findings() {
    let device = sample();
    let volume = mount(&device, Engine::Snapshot);
    let file = volume.node("d/file 7").unwrap().inode();
    volume.close().unwrap();
    plant_inode(&device, file, |inode| inode.blocks += 3);
    let volume = mount(&device, Engine::Snapshot);
    for (i, len) in [1 << 20, 1 << 14, 4096].into_iter().enumerate() {
        let mut n = 0;
        while volume.write(format!("fills {i} {n}"), vec![1; len]).is_ok() {
            n += 1;
        }
    }
    assert_eq!(online(&volume, &OnlineOptions::default()).left_count, 1);
    assert_eq!(volume.view().findings().unwrap().unwrap().count, 1);
    volume.close().unwrap();
}

/// A shadow writes nothing to the medium: a crash in its middle is a crash like any other.
#[test]
fn a_crash_during_a_check() {
    let device = sample();
    let volume = mount(&device, Engine::Snapshot);
    let shadow = volume.view().shadow(0).unwrap();
    for i in 0..20 {
        volume.write(format!("d/file {i}"), vec![9; 9000]).unwrap();
        volume.remove_file(format!("d/file {}", 20 + i)).unwrap();
        volume.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        let report = at_rest(&crashed);
        assert!(report.is_clean(), "{report}");
        let again = mount(&crashed, Engine::Snapshot);
        assert_eq!(again.read(format!("d/file {i}")).unwrap(), vec![9; 9000]);
        assert!(online(&again, &OnlineOptions::default()).is_clean());
    }
    assert!(yore_check::check(&shadow, &CheckOptions::default()).unwrap().is_clean());
    drop(shadow);
    volume.close().unwrap();
}

/// A volume as the power failed while it was in use under an engine that orders changes, with leaks.
fn crashed() -> Arc<MemoryDevice> {
    let device = made(64 << 20);
    let volume = mount(&device, Engine::SoftUpdates);
    for i in 0..400 {
        volume.write(format!("{i}"), vec![1; 100 + 20 * i]).unwrap();
    }
    volume.sync().unwrap();
    for i in 0..200 {
        volume.remove_file(format!("{i}")).unwrap();
    }
    let device = Arc::new(device.snapshot());
    drop(volume);
    let volume = mount(&device, Engine::SoftUpdates);
    volume.sync().unwrap();
    volume.close().unwrap();
    assert_eq!(at_rest(&device).state, VolumeState::LeaksPending);
    plant_leak(&device, 40);
    device
}

/// What a crash has left is put right in the background of an open volume, and the volume says so at once,
/// and when it is closed.
#[test]
fn leaks_are_recounted_in_the_background() {
    let device = crashed();
    let volume = mount(&device, Engine::SoftUpdates);
    assert!(volume.view().leaks_pending());
    recount_beside(volume.view()).unwrap().unwrap().wait();
    assert!(!volume.view().leaks_pending() && volume.view().recounting().is_none());
    assert!(recount_beside(volume.view()).unwrap().is_none());
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
}

/// A volume that is closed while it is recounted is closed soon, leaks are still pending, and the next one
/// who opens it recounts.
#[test]
fn closing_ends_the_recount() {
    let device = crashed();
    let volume = mount(&device, Engine::SoftUpdates);
    let broken_off = recount(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(broken_off, Err(OnlineError::BrokenOff)), "{broken_off:?}");
    // Somebody else checks, so the recount in the background waits.
    let shadow = volume.view().shadow(1 << 20).unwrap();
    let recounting = recount_beside(volume.view()).unwrap().unwrap();
    volume.close().unwrap();
    recounting.wait();
    drop(shadow);
    assert_eq!(at_rest(&device).state, VolumeState::LeaksPending);
    assert!(at_rest(&device).has(Problem::SpaceLeaked));
    let volume = mount(&device, Engine::SoftUpdates);
    recount_beside(volume.view()).unwrap().unwrap().wait();
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
}

/// Beside damage only that is put right which was counted from what one inode alone has, and leaks stay
/// pending.
#[test]
fn beside_damage_only_counts_of_sound_inodes_are_put_right() {
    let device = crashed();
    let inodes = {
        let volume = mount(&device, Engine::SoftUpdates);
        let inodes = ["300", "301"].map(|path| volume.node(path).unwrap().inode());
        volume.close().unwrap();
        inodes
    };
    plant_inode(&device, inodes[0], |inode| inode.blocks += 5);
    plant_inode(&device, inodes[1], |inode| (inode.blocks, inode.rdev) = (inode.blocks + 3, 9));
    let volume = mount(&device, Engine::SoftUpdates);
    let report = online(&volume, &OnlineOptions::default());
    let repaired: Vec<_> = report.repaired.iter().map(|f| (f.problem, f.inode)).collect();
    assert_eq!(repaired, [(Problem::InodeBlocks, Some(inodes[0]))], "{}", report.report);
    assert!(volume.view().leaks_pending() && volume.view().findings().unwrap().is_some());
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.has(Problem::DeviceNumber) && report.has(Problem::SpaceLeaked), "{report}");
    assert_eq!(report.findings.iter().filter(|f| f.problem == Problem::InodeBlocks).count(), 1);
}

/// A finding that could not be put right, because something forbade it, ended the recount, and left all
/// others for good. Promises that only that one is left: here a directory without a name has entries, and the
/// root directory is immutable, so nobody can make lost+found.
#[test]
fn one_finding_that_cannot_be_put_right_leaves_no_others() {
    let device = crashed();
    let [root, above, lost] = {
        let volume = mount(&device, Engine::SoftUpdates);
        volume.create_dir("d").unwrap();
        volume.create_dir("d/lost").unwrap();
        volume.write("d/lost/file", [1; 10]).unwrap();
        let inodes = ["/", "d", "d/lost"].map(|path| volume.node(path).unwrap().inode());
        volume.view().set_flags(inodes[0], InodeFlags::IMMUTABLE).unwrap();
        volume.close().unwrap();
        inodes
    };
    plant_inode(&device, above, |inode| {
        inode.set_inline(&[]);
        (inode.size, inode.links) = (0, 2);
    });
    let volume = mount(&device, Engine::SoftUpdates);
    let report = recount(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
    let report = report.unwrap();
    assert!(report.repaired.iter().any(|f| f.problem == Problem::SpaceLeaked), "{}", report.report);
    assert!(report.left_count == 1 && volume.view().leaks_pending(), "{}", report.report);
    volume.close().unwrap();
    assert_eq!(codes(&at_rest(&device)), ["inode-unnamed"]);
    let volume = mount(&device, Engine::SoftUpdates);
    volume.view().set_flags(root, InodeFlags::empty()).unwrap();
    recount_beside(volume.view()).unwrap().unwrap().wait();
    assert_eq!(volume.read(format!("lost+found/#{lost}/file")).unwrap(), [1; 10]);
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
}

/// A directory without a name went to lost+found, whoever had made that: there everybody could read what only
/// the way to it had kept from him. Promises that such a directory is left alone, and another one is made.
#[test]
fn a_lost_and_found_of_somebody_else_gets_nothing() {
    let device = crashed();
    let [above, lost] = {
        let volume = mount(&device, Engine::SoftUpdates);
        volume.create_dir_mode("lost+found", 0o777).unwrap();
        volume.chown("lost+found", Some(1000), Some(1000)).unwrap();
        volume.create_dir("d").unwrap();
        volume.create_dir("d/lost").unwrap();
        volume.write("d/lost/file", [1; 10]).unwrap();
        let inodes = ["d", "d/lost"].map(|path| volume.node(path).unwrap().inode());
        volume.close().unwrap();
        inodes
    };
    plant_inode(&device, above, |inode| {
        inode.set_inline(&[]);
        (inode.size, inode.links) = (0, 2);
    });
    let volume = mount(&device, Engine::SoftUpdates);
    recount_beside(volume.view()).unwrap().unwrap().wait();
    assert_eq!(volume.read(format!("lost+found+/#{lost}/file")).unwrap(), [1; 10]);
    assert_eq!(volume.node("lost+found+").unwrap().attr().permissions, 0o700);
    assert!(volume.read(format!("lost+found/#{lost}/file")).is_err());
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
}

/// A volume behind a crash that has freed a file and not its blocks: many of its blocks are leaks, and little
/// else is free. Returns how many blocks leaked.
fn full_of_leaks() -> (Arc<MemoryDevice>, u64) {
    let device = Arc::new(SimulatedDevice::new(made(64 << 20).snapshot()));
    let options = MountOptions {
        engine: Some(Engine::SoftUpdates),
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    };
    let volume = Volume::open(device.clone(), &options).unwrap();
    volume.write("goes", vec![1; 16 << 20]).unwrap();
    for n in 0.. {
        if volume.view().statfs().blocks_available < 300 {
            break;
        }
        volume.write(format!("stays {n}"), vec![2; 1 << 20]).unwrap();
    }
    volume.sync().unwrap();
    device.restart_trace();
    volume.truncate("goes", 0).unwrap();
    volume.sync().unwrap();
    let trace = device.trace();
    let leaked = |device: &MemoryDevice| {
        let report = at_rest(device);
        assert!(report.findings.iter().all(|f| f.is_tolerated()), "{report}");
        let leaks = report.findings.iter().filter(|f| f.problem == Problem::SpaceLeaked);
        leaks.map(|f| u64::from(f.blocks.unwrap_or(0))).sum::<u64>()
    };
    let states = (0..=trace.len()).map(|entries| {
        let point = trace.crash_point(entries).unwrap();
        point.materialise(Choice::All, Tearing::Blocks).unwrap()
    });
    let (most, crashed) =
        states.map(|state| (leaked(&state), state)).max_by_key(|(leaked, _)| *leaked).unwrap();
    (Arc::new(crashed), most)
}

/// A nearly full volume whose leaks are being recounted fails no call for lack of room: a write that fits
/// only behind the recount waits for it. It used to fail, and the same write a second later did not. Nobody
/// waits who works on behalf of nobody.
#[test]
fn a_write_without_room_waits_for_the_recount() {
    let (device, leaked) = full_of_leaks();
    assert!(leaked > 1000, "{leaked} blocks leaked");
    let volume = mount(&device, Engine::SoftUpdates);
    let available = volume.view().statfs().blocks_available;
    let data = vec![3; ((available + leaked / 2) * BLOCK_SIZE as u64) as usize];
    let nobody = volume.view().on_behalf_of(Behalf::Nobody);
    let file =
        nobody.create(&Caller::superuser(), nobody.root(), b"new", FileKind::Regular, 0o600, 0).unwrap();
    let mode = WriteMode { append: false, kill_set_id: false };
    std::thread::scope(|scope| {
        let mut writes = None;
        let report = recount(volume.view(), &OnlineOptions::default(), &mut |_| {
            if writes.is_none() {
                let refused = nobody.write(file.inode(), 0, &data, mode);
                assert!(matches!(refused, Err(yore_fs::Error::NoSpace)), "{refused:?}");
                let (ends, ended) = std::sync::mpsc::channel();
                let (volume, data) = (&volume, &data);
                writes = Some(scope.spawn(move || {
                    let written = volume.write("new", data);
                    let _ = ends.send(());
                    written
                }));
                // The check does not go on, so nothing is freed, and the write does not end.
                assert!(ended.recv_timeout(Duration::from_millis(50)).is_err());
            }
            ControlFlow::Continue(())
        });
        assert!(report.unwrap().is_clean());
        writes.unwrap().join().unwrap().unwrap();
    });
    assert_eq!(volume.read("new").unwrap(), data);
    volume.close().unwrap();
    let report = at_rest(&device);
    assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
}

/// Leaks that a crash under an engine that orders changes has left stay pending through a crash under another
/// engine. The superblock of a volume in use used to say so only under an engine that orders changes; so the
/// volume forgot them, if it had been closed in between, and nobody counted again.
#[test]
fn leaks_stay_pending_through_a_crash_under_another_engine() {
    for engine in [Engine::Snapshot, Engine::Journal] {
        let device = crashed();
        let volume = mount(&device, engine);
        let node = volume.node("300").unwrap();
        volume.write("300", "promised").unwrap();
        volume.view().fsync(node.inode(), false).unwrap();
        drop(node);
        let device = Arc::new(device.snapshot());
        drop(volume);
        // The log has what was promised, so no check ends that.
        let before = device.snapshot();
        assert!(yore_check::mark_checked(&*device).is_err());
        assert_eq!(device.first_difference(&before), None);
        let volume = mount(&device, engine);
        assert!(volume.view().leaks_pending(), "{engine:?}");
        assert_eq!(volume.read("300").unwrap(), b"promised");
        recount_beside(volume.view()).unwrap().unwrap().wait();
        assert!(!volume.view().leaks_pending(), "{engine:?}");
        volume.close().unwrap();
        let report = at_rest(&device);
        assert!(report.is_clean() && report.state == VolumeState::Clean, "{engine:?}: {report}");
    }
}
