//! Promises about what each snapshot holds, as it is known without a walk: after each step of random
//! sequences the answer is that of a walk over all versions, and so is what giving up snapshots would free.
//! What is known when a volume is closed is known, and right, when it is opened again; what a crash leaves of
//! it is not believed. Half of the sequences begin with a past in old trees, and a quarter has files that
//! share blocks with the past and with one another.
//!
//! And what the volume says is in use is what the checker counts.

#[path = "common/old_trees.rs"]
mod old_trees;
#[path = "../../yore-fs/tests/common/seeds.rs"]
mod seeds;
#[path = "common/steps.rs"]
mod steps;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use steps::{expunge, forget, snapshot, Steps, BLOCK, PLAIN};
use yore_device::simulated::{CrashPlan, SimulatedDevice};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Engine, EventUsage, FallocateMode, File, MkfsOptions, MountOptions, UsageTotals, View, Volume, WouldFree,
};

/// A volume with room to spare: how much of what the tests overwrite is still pinned when they write again
/// depends on how far the threads of the background have come.
fn device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(512 << 20));
    let made: Arc<dyn Device> = device.clone();
    View::mkfs(&made, &MkfsOptions::default()).unwrap();
    device
}

fn open(device: &Arc<impl Device + 'static>) -> Volume {
    let options = MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    Volume::open(device.clone(), &options).unwrap()
}

type Answer = (Vec<EventUsage>, UsageTotals, WouldFree);

fn ask(volume: &Volume) -> Answer {
    let mut all = Vec::new();
    let totals = volume.view().usage(volume.view().root(), &mut |event| {
        all.push(event);
        ControlFlow::Continue(())
    });
    (all, totals.unwrap(), volume.view().what_would_free().unwrap())
}

fn ask_by_walk(volume: &Volume) -> Answer {
    volume.view().find_usage_by_walk(true);
    let answer = ask(volume);
    volume.view().find_usage_by_walk(false);
    answer
}

/// Asks both ways: whether the answers are the same, and whether the next one will need no walk.
fn compare(volume: &Volume, what: &str) -> Result<bool, String> {
    if volume.view().refuted_usage() > 0 {
        return Err(format!("{what}: snapshots seem to hold more than there is"));
    }
    loop {
        let (by_walk, known) = (ask_by_walk(volume), ask(volume));
        if known == by_walk {
            return Ok(volume.view().knows_usage());
        }
        // Data may have been written back meanwhile.
        if ask_by_walk(volume) == by_walk {
            return Err(format!("{what}: known {}, and by a walk {}", short(&known), short(&by_walk)));
        }
    }
}

fn short((events, totals, would_free): &Answer) -> String {
    let one =
        |event: &EventUsage| (event.seen.event.number.0, event.exclusive, event.with_older, event.shared);
    format!("{totals:?} {would_free:?} {:?}", events.iter().map(one).collect::<Vec<_>>())
}

/// block twice.
fn sequences(seeds: impl Iterator<Item = u64>, many_roots: bool) -> Result<(u64, u64), String> {
    let (mut known, mut shared) = (0, 0);
    for seed in seeds {
        let mut device = match (seed % 2, many_roots) {
            (0, _) => device(),
            (_, true) => old_trees::without_many(),
            (_, false) => old_trees::of_root_alone(old_trees::without_many()),
        };
        let mut volume = open(&device);
        for directory in ["d0", "d1", "d0/e"] {
            volume.create_dir_all(directory).unwrap();
        }
        let mut steps = Steps {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            events: volume.view().events().unwrap().iter().map(|event| event.number).collect(),
            excludes: seed % 3 == 0,
            shares: seed % 4 == 1,
            many_roots,
        };
        for n in 0..250 {
            let what = steps.step(&volume, n);
            let is_known = compare(&volume, &format!("seed {seed}, step {n}, {what}"))?;
            known += u64::from(is_known);
            shared += u64::from(is_known && volume.view().history_shares());
            match n % 50 {
                49 => {
                    volume.close().unwrap();
                    volume = open(&device);
                    if is_known && !volume.view().knows_usage() {
                        return Err(format!("seed {seed}, step {n}: what was known was lost by closing"));
                    }
                }
                // A crash, not long after what was known has been read.
                3 if n > 50 => {
                    volume.sync().unwrap();
                    device = Arc::new(device.snapshot());
                    volume = open(&device);
                    compare(&volume, &format!("seed {seed}, step {n}, after a crash"))?;
                }
                _ => {}
            }
        }
        for event in volume.view().events().unwrap().into_iter().map(|event| event.number) {
            forget(&volume, event);
            compare(&volume, &format!("seed {seed}, forgotten {event}"))?;
        }
        volume.close().unwrap();
    }
    Ok((known, shared))
}

#[test]
fn every_answer_is_that_of_a_walk() {
    #[cfg(feature = "mutations")]
    let _alone = mutated::ALONE.lock();
    let (known, shared) = sequences(seeds(12), false).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{known} answers were known, {shared} with shared blocks");
    assert!(known > 0 && shared > 0);
}

/// Directories that have events are moved into one another and out; files have events of their own, and
/// several names.
#[test]
fn events_of_many_roots_are_known_too() {
    #[cfg(feature = "mutations")]
    let _alone = mutated::ALONE.lock();
    let (known, shared) = sequences(seeds(8), true).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{known} answers were known, {shared} with shared blocks");
    assert!(known > 0 && shared > 0);
}

/// What the checker finds in use on a volume that was closed, without what is history's.
fn in_use_by_check(device: &Arc<MemoryDevice>) -> (u64, yore_check::Counts) {
    let report = yore_check::check(&**device, &yore_check::CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let counts = report.counts;
    let data = counts.data_blocks - counts.history_data_blocks;
    let metadata = counts.metadata_blocks - counts.history_nodes - counts.history_trees;
    ((data + metadata) * BLOCK, counts)
}

/// What du(1) says of all files of the present: a sum over files, each once.
fn in_use_by_walk(volume: &Volume) -> u64 {
    let view = volume.view().present();
    let (mut left, mut met, mut sum) = (vec![view.root()], std::collections::HashSet::new(), 0);
    while let Some(directory) = left.pop() {
        let mut add = |item: yore_fs::DirItem<'_>, node: Option<yore_fs::Node>| {
            let attr = node.as_ref().map(yore_fs::Node::attr).filter(|_| !matches!(item.name, b"." | b".."));
            if let Some(attr) = attr.filter(|attr| met.insert(attr.inode)) {
                sum += attr.blocks_512 * 512;
                left.extend((attr.kind == yore_fs::FileKind::Directory).then_some(attr.inode));
            }
            true
        };
        view.readdir_plus(directory, 0, &mut add).unwrap();
    }
    sum
}

/// What is in use on the volume follows from its totals: blocks that files share count once, allocated ones
/// and those of removed files that are open count, holes do not. The checker, which looks at everything,
/// finds the same, and a walk over files does not find more, unless they share blocks.
#[test]
fn what_is_in_use_is_what_the_checker_counts() {
    let mut shared = 0;
    for seed in seeds(10) {
        let device = device();
        let mut volume = open(&device);
        for directory in ["d0", "d1", "d0/e"] {
            volume.create_dir_all(directory).unwrap();
        }
        let shares = seed % 2 == 0;
        let mut steps = Steps {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            events: Vec::new(),
            excludes: false,
            shares,
            many_roots: seed % 3 == 0,
        };
        for round in 0..6 {
            for n in 0..40 {
                steps.step(&volume, n);
                if let Ok(node) = volume.node(steps.file()) {
                    let (at, len) = (steps.rng.random_range(0..200), steps.rng.random_range(1..100));
                    let mode = FallocateMode::Allocate { keep_size: steps.rng.random_bool(0.5) };
                    volume.view().fallocate(node.inode(), at * BLOCK, len * BLOCK, mode).unwrap();
                }
            }
            // One file is removed, and in use until the volume is closed.
            volume.write("open", vec![3; 30 * 4096]).unwrap();
            let open_file = File::open(&volume, "open").unwrap();
            volume.remove_file("open").unwrap();
            volume.sync().unwrap();
            let live = |volume: &Volume| {
                let root = volume.view().root();
                volume.view().usage(root, &mut |_| ControlFlow::Break(())).unwrap().live
            };
            let with_open = live(&volume);
            drop(open_file);
            volume.sync().unwrap();
            let said = live(&volume);
            assert!(with_open >= said + 30 * BLOCK, "seed {seed}, round {round}: {with_open} and {said}");
            assert!(shares || in_use_by_walk(&volume) <= said, "seed {seed}, round {round}");
            volume.close().unwrap();
            let (counted, counts) = in_use_by_check(&device);
            shared += counts.shared_blocks;
            volume = open(&device);
            // Closing gives back what is empty and keeps no more than it needs.
            assert_eq!(live(&volume), counted, "seed {seed}, round {round}, said before closing {said}");
        }
        volume.close().unwrap();
    }
    assert!(shared > 0);
}

const FILES: usize = 300;

/// Sums are begun while other threads change files, take snapshots and forget them. Returns how often they
/// were known afterwards.
fn threads(rounds: u64) -> Result<u64, String> {
    let volume = open(&device());
    let mut known = 0;
    let name = |n: usize| format!("f{n}");
    for n in 0..FILES {
        volume.write(name(n), vec![1; 20 * 4096]).unwrap();
    }
    volume.write("secret", vec![1; 4096]).unwrap();
    for round in 0..rounds {
        volume.sync().unwrap();
        let event = snapshot(&volume, "/");
        std::thread::scope(|threads| {
            for thread in 0..2 {
                let (volume, mut rng) = (&volume, Xoshiro256PlusPlus::seed_from_u64(round * 2 + thread));
                threads.spawn(move || {
                    for _ in 0..FILES {
                        // Each thread has its own files.
                        let file = name(rng.random_range(0..FILES / 2) * 2 + thread as usize);
                        match rng.random_range(0..8) {
                            0 => {
                                volume.remove_file(&file).unwrap();
                                volume.write(&file, vec![2; 20 * 4096]).unwrap();
                            }
                            1 => volume.truncate(&file, rng.random_range(10..30) * BLOCK).unwrap(),
                            _ => {
                                let node = volume.node(&file).unwrap();
                                let at = rng.random_range(0..20) * BLOCK;
                                node.write(at, &[round as u8; 3 * 4096], PLAIN).unwrap();
                                volume.view().fsync(node.inode(), true).unwrap();
                            }
                        }
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..3 {
                    snapshot(&volume, "/");
                }
                if round % 3 == 2 {
                    forget(&volume, event);
                }
            });
            for n in 0..6 {
                if n % 2 == 0 {
                    // The next answer needs a walk: something goes that events have seen.
                    volume.write("secret", [n; 4096]).unwrap();
                    volume.sync().unwrap();
                    expunge(&volume, "secret");
                }
                ask(&volume);
            }
        });
        known += u64::from(volume.view().knows_usage());
        compare(&volume, &format!("round {round}"))?;
    }
    volume.close().unwrap();
    Ok(known)
}

/// Closes volumes while other threads change files. Returns how often the next mount knew at once.
fn closes(rounds: u64) -> Result<u64, String> {
    let (device, mut known) = (device(), 0);
    let name = |n: u64| format!("f{n}");
    for round in 0..rounds {
        let volume = open(&device);
        for n in 0..200 {
            volume.write(name(n), vec![1; 8 * 4096]).unwrap();
        }
        volume.sync().unwrap();
        snapshot(&volume, "/");
        for n in 0..200 {
            volume.truncate(name(n), 7 * BLOCK).unwrap();
        }
        ask(&volume);
        std::thread::scope(|threads| {
            for thread in 0..2 {
                let volume = &volume;
                threads.spawn(move || {
                    // Until it is refused.
                    for blocks in (0..7).rev() {
                        let own = (0..200).filter(|n| n % 2 == thread);
                        for n in own {
                            if volume.truncate(name(n), blocks * BLOCK).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(200 * (round % 8)));
            // What is dirty by then may be refused.
            drop(volume.close());
        });
        drop(volume);
        let volume = open(&device);
        known += u64::from(volume.view().knows_usage());
        compare(&volume, &format!("round {round}"))?;
        volume.close().unwrap();
        in_use_by_check(&device);
    }
    Ok(known)
}

/// What is written down at a close is what the last generation has, whatever others do meanwhile; or it is
/// withdrawn.
#[test]
fn volumes_are_closed_beside_others() {
    #[cfg(feature = "mutations")]
    let _alone = mutated::ALONE.lock();
    let known = closes(16).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("known after {known} closes");
}

/// The power fails while a volume is closed that knows what snapshots hold, or while it is opened and closed
/// again. Whatever is left is sound, and what the next mount knows is right.
#[test]
fn a_crash_while_closing_leaves_no_wrong_answer() {
    #[cfg(feature = "mutations")]
    let _alone = mutated::ALONE.lock();
    for engine in [Engine::Snapshot, Engine::Journal] {
        let image = Arc::new(MemoryDevice::new(64 << 20));
        let made: Arc<dyn Device> = image.clone();
        View::mkfs(&made, &MkfsOptions { engine, ..MkfsOptions::default() }).unwrap();
        let device = Arc::new(SimulatedDevice::new(image.snapshot()));
        let volume = open(&device);
        volume.write("file", vec![1; 20 * 4096]).unwrap();
        for n in 0..20 {
            snapshot(&volume, "/");
            volume.write(format!("file{}", n % 7), vec![n; 5000]).unwrap();
            volume.truncate("file", (20 - u64::from(n)) * BLOCK).unwrap();
        }
        volume.sync().unwrap();
        ask(&volume);
        device.restart_trace();
        volume.remove_file("file").unwrap();
        volume.close().unwrap();
        let volume = open(&device);
        assert!(volume.view().knows_usage());
        volume.remove_file("file3").unwrap();
        volume.sync().unwrap();
        volume.remove_file("file4").unwrap();
        volume.close().unwrap();
        let (mut states, mut known) = (0, 0);
        let plan = CrashPlan { exhaustive_max: 16, samples: 8, ..CrashPlan::default() };
        for case in device.trace().crash_states(&plan) {
            let image = Arc::new(case.materialise());
            let report = yore_check::check(&*image, &yore_check::CheckOptions::default()).unwrap();
            assert!(report.findings.is_empty(), "{engine:?} {}: {:?}", case.state(), report.findings);
            let volume = open(&image);
            states += 1;
            known += u64::from(volume.view().knows_usage());
            compare(&volume, &format!("{engine:?} {}", case.state()))
                .unwrap_or_else(|wrong| panic!("{wrong}"));
            volume.close().unwrap();
        }
        println!("{engine:?}: {states} states, {known} of them with what was known");
        assert!(known > 0 && known < states);
    }
}

#[test]
fn sums_are_begun_beside_others() {
    #[cfg(feature = "mutations")]
    let _alone = mutated::ALONE.lock();
    let known = threads(30).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("known after {known} rounds");
    assert!(known > 0);
}

/// The tests find sums that are wrong on purpose.
#[cfg(feature = "mutations")]
mod mutated {
    use std::sync::{Mutex, PoisonError};
    use yore_fs::mutation::{set, Mutation};

    pub static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn wrong_sums_are_found() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        set(Mutation::SpanLeftOut);
        let left_out = super::sequences(1..9, false);
        set(Mutation::SpanTwice);
        let twice = super::threads(60);
        set(Mutation::SharingUnnoted);
        let unnoted = super::sequences((1..40).step_by(4), false);
        set(Mutation::OldHintBelieved);
        let old_hint = super::sequences(1..20, false);
        set(Mutation::HintUnasked);
        let unasked = super::closes(200);
        set(Mutation::None);
        assert!(old_hint.is_err(), "OldHintBelieved");
        assert!(unasked.is_err(), "HintUnasked");
        assert!(left_out.is_err(), "SpanLeftOut");
        assert!(twice.is_err(), "SpanTwice");
        assert!(unnoted.is_err(), "SharingUnnoted");
    }
}
