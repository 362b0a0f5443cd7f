//! Promises: on a volume that several threads keep full, so that history is given up for most of what they
//! write, no call fails except for want of room, and what says that it cannot fail for that does not: sync,
//! fsync, and reads. What was accepted reads as it was written, each snapshot that is still kept shows what
//! was, and the checker finds nothing.
//!
//! If the power fails while they work, the volume is sound, what was synced and was not touched since is as
//! it was, all else can be read, and each snapshot that is still kept shows what was. What an engine that
//! orders changes may leave is put right while the volume is in use, and nothing of it is left.
//!
//! Beside the threads an administrator checks, scrubs, expunges and changes policies.
//!
//! Every second seed keeps checksums of the data, every third makes a version of each file that is closed,
//! and options of the mount depend on the seed, too. `YORE_SEED` and `YORE_ROUNDS` ask for other cases and
//! for more of them, `YORE_MOMENTS` for more moments of a run at which the power fails.

mod administrator;
mod promises;
mod work;

use administrator::{Administrator, Secret};
use promises::Files;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use work::{common, same, Taken, Work, COMMON};
use yore_check::{check, CheckOptions};
use yore_device::simulated::{CrashPlan, SimulatedDevice, Tearing};
use yore_device::{Device, MemoryDevice};
use yore_format::{Engine, EventNo};
use yore_fs::{Durability, Error, MkfsOptions, MountOptions, Policy, Versioning, Volume};
use yore_online::OnlineOptions;

const THREADS: u64 = 3;

/// What the background does when nobody asks for anything, while everybody does.
fn keep_house(volume: &Volume, is_done: &AtomicBool) {
    let ask = || match is_done.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    while !is_done.load(Ordering::Acquire) {
        let view = volume.view();
        match view.lay_metadata_together(&mut || ask()) {
            // A check is under way.
            Err(Error::Refused(_)) => {}
            result => drop(result.unwrap()),
        }
        view.finish_forgetting(&mut |_| ask()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn make(device: &Arc<dyn Device>, engine: Engine, seed: u64) -> Volume {
    let data_checksums = seed.is_multiple_of(2) && engine != Engine::None;
    let versioning = seed.is_multiple_of(3).then_some(Versioning::Close);
    let policy = Policy { versioning, ..Policy::default() };
    let options = MkfsOptions { data_checksums, policy, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &mount_options(engine, seed)).unwrap();
    volume.create_dir("common").unwrap();
    (0..COMMON).for_each(|n| volume.write(format!("common/{n}"), common(n)).unwrap());
    volume
}

fn mount_options(engine: Engine, seed: u64) -> MountOptions {
    let durability = match engine {
        Engine::Journal => [Durability::Async, Durability::Group, Durability::Sync][seed as usize % 3],
        _ => Durability::Async,
    };
    MountOptions {
        durability,
        discard: (seed % 4 < 2).then_some(1),
        backlog: if seed.is_multiple_of(2) { 64 } else { MountOptions::default().backlog },
        engine: Some(engine),
        commit_interval: Duration::from_millis(20),
        ..MountOptions::default()
    }
}

fn works(volume: &Volume, engine: Engine, seed: u64) -> Vec<Work<'_>> {
    (0..THREADS).map(|thread| Work::new(volume, engine, seed * THREADS + thread)).collect()
}

/// All threads take so many steps, while the administrator works.
fn work(volume: &Volume, administrator: &mut Administrator<'_>, works: &mut [Work<'_>], steps: u64) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let house = scope.spawn(|| keep_house(volume, &is_done));
        let administrator = scope.spawn(|| administrator.work(&is_done));
        let threads: Vec<_> =
            works.iter_mut().map(|work| scope.spawn(move || (0..steps).for_each(|_| work.step()))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Ordering::Release);
        house.join().unwrap();
        administrator.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
}

fn pressed(engine: Engine, seed: u64, steps: u64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let volume = make(&device, engine, seed);
    let mut administrator = Administrator::new(&volume, engine, seed);
    let mut works = works(&volume, engine, seed);
    work(&volume, &mut administrator, &mut works, steps);
    works.iter().for_each(|work| work.files.keys().for_each(|name| work.compare(name)));
    let files: Vec<(String, Files)> = works.into_iter().map(|work| (work.dir, work.files)).collect();
    volume.close().unwrap();
    drop(volume);
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{engine:?}, seed {seed}: {report}");
    let volume = Volume::open(device, &mount_options(engine, seed)).unwrap();
    for (dir, files) in files {
        for (name, bytes) in files {
            let is = volume.read(format!("{dir}/{name}")).unwrap();
            same(&format!("{engine:?}, seed {seed}, {dir}/{name} when mounted again"), &is, &bytes);
        }
    }
}

/// What a thread leaves for the judge.
struct Left {
    dir: String,
    notes: promises::Notes,
    taken: Vec<Taken>,
}

/// Fills a volume, goes on for some steps, and lets the power fail at so many moments within these.
fn crashed(engine: Engine, seed: u64, steps: u64, moments: usize) {
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(24 << 20)));
    let device: Arc<dyn Device> = simulated.clone();
    let volume = make(&device, engine, seed);
    let mut administrator = Administrator::new(&volume, engine, seed);
    let mut works = works(&volume, engine, seed);
    work(&volume, &mut administrator, &mut works, 3 * steps);
    works.iter_mut().for_each(Work::sync);
    let what = format!("{engine:?}, seed {seed}");
    works.iter().for_each(|work| compare_past(&what, &volume, &work.dir, &work.taken, 0));
    simulated.restart_trace();
    works.iter_mut().for_each(|work| work.notes.begin(&simulated, &work.files));
    administrator.begin(&simulated);
    work(&volume, &mut administrator, &mut works, steps);
    let trace = simulated.trace();
    let left: Vec<Left> =
        works.into_iter().map(|Work { dir, notes, taken, .. }| Left { dir, notes, taken }).collect();
    let secrets = administrator.secrets;
    volume.close().unwrap();
    drop(volume);
    let tearing = if orders(engine) { Tearing::Blocks } else { Tearing::Sectors };
    let plan = CrashPlan { exhaustive_max: 1, samples: 1, seed, tearing, ..CrashPlan::default() };
    let each = (trace.len() / moments).max(1);
    let first = (seed as usize * 7) % each;
    for point in trace.crash_points(first).step_by(each) {
        let entries = point.after_entry();
        for choice in point.choices(&plan) {
            let what =
                format!("{engine:?}, seed {seed}, after entry {entries} of {}, {choice:?}", trace.len());
            let medium: Arc<dyn Device> = Arc::new(point.materialise(choice, tearing).unwrap());
            judge(&what, (engine, seed), medium, (&left, &secrets), entries);
        }
    }
}

/// Whether an engine writes metadata where it is, one change behind the other (docs/EDGES.md).
fn orders(engine: Engine) -> bool {
    matches!(engine, Engine::SoftUpdates | Engine::Sync)
}

/// Each of these snapshots that was durable, and is still kept, shows what was. (Another one may have got the
/// number of one that was not durable.)
fn compare_past(what: &str, volume: &Volume, dir: &str, taken: &[Taken], entries: usize) {
    let kept: HashSet<EventNo> = volume.view().events().unwrap().iter().map(|event| event.number).collect();
    let is_sure = |taken: &&Taken| {
        kept.contains(&taken.event) && taken.durable.is_some_and(|durable| durable <= entries)
    };
    for Taken { event, files, .. } in taken.iter().filter(is_sure) {
        let past = Volume::from_view(volume.view().as_of(*event));
        for (name, bytes) in files {
            match past.read(format!("{dir}/{name}")) {
                Ok(is) => same(&format!("{what}: {dir}/{name} as of {event:?}"), &is, bytes),
                Err(error) if matches!(error.root(), Error::Stale) => {}
                Err(error) => panic!("{what}: {dir}/{name} as of {event:?}: {error}"),
            }
        }
    }
}

/// Judges what a crash left.
fn judge(
    what: &str,
    (engine, seed): (Engine, u64),
    medium: Arc<dyn Device>,
    (left, secrets): (&[Left], &[Secret]),
    entries: usize,
) {
    let report = check(&*medium, &CheckOptions::default()).unwrap();
    let wrong = report.findings.iter().find(|finding| !orders(engine) || !finding.is_tolerated());
    assert!(wrong.is_none(), "{what}: {}", wrong.unwrap());
    let volume = Volume::open(medium.clone(), &mount_options(engine, seed)).unwrap();
    (0..COMMON).for_each(|n| {
        same(&format!("{what}: common {n}"), &volume.read(format!("common/{n}")).unwrap(), &common(n))
    });
    for Left { dir, notes, taken } in left {
        let promised = notes.promised(entries);
        for (name, bytes) in &promised.files {
            let is = volume.read(format!("{dir}/{name}"));
            let is = is.unwrap_or_else(|error| panic!("{what}: {dir}/{name}: {error}"));
            same(&format!("{what}: {dir}/{name}"), &is, bytes);
        }
        for entry in volume.read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            if name.starts_with(".yore-rollback-") {
                continue; // A rollback did not end, for want of room.
            }
            let may_be = promised.files.contains_key(&name) || promised.unsure.contains(&name);
            assert!(may_be || promised.is_all_unsure, "{what}: {dir}/{name} should not be there");
            let read = volume.read(format!("{dir}/{name}"));
            read.unwrap_or_else(|error| panic!("{what}: {dir}/{name}: {error}"));
        }
        compare_past(what, &volume, dir, taken, entries);
    }
    secrets.iter().for_each(|secret| secret.must_be_gone(what, &volume, entries));
    // A mount does this in the background.
    let recounted =
        yore_online::recount(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
    let report = recounted.unwrap_or_else(|error| panic!("{what}, recount: {error}")).report;
    assert!(!volume.view().leaks_pending(), "{what}: leaks are pending behind a recount of {report}");
    secrets.iter().for_each(|secret| secret.must_be_gone(what, &volume, entries));
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    let report = check(&*medium, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{what}, closed again: {report}");
}

fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

fn seeds() -> std::ops::Range<u64> {
    let (first, rounds) = (from_environment("YORE_SEED", 1), from_environment("YORE_ROUNDS", 1));
    first..first + rounds
}

/// What this found: a claim to free blocks outlived its Op, so the next owner was told that the volume is
/// damaged; a sync was told that there is no room, because others got what its generation had freed; and
/// under `soft-updates` two rounds took more into a node than there is room for, which stopped the volume.
#[test]
fn threads_keep_a_volume_full() {
    for seed in seeds() {
        for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync, Engine::None] {
            pressed(engine, seed, 3000);
        }
    }
}

/// What this found: a row in a new leaf of the annals was taken for durable before the pointer to that leaf
/// was, so that soft updates lost a version; and a rollback that found nothing to change left data in memory.
#[test]
fn the_power_fails_while_threads_keep_a_volume_full() {
    let moments = from_environment("YORE_MOMENTS", 4);
    for seed in seeds() {
        for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync] {
            crashed(engine, seed, 400, moments as usize);
        }
    }
}
