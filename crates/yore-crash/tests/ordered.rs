//! The engines that order changes leave what the order lets them leave, wherever the power fails
//! (docs/EDGES.md, docs/ENGINES.md).
//!
//! `ORDERED_STATES=n` tries n states of each sequence, `ORDERED_SEED=n` other ones, `ORDERED_NAME=name` one
//! sequence.

use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_crash::edges::crashes::{run, Run, Tried};
use yore_crash::edges::sequences;
use yore_crash::volume::{make, quiet, used_device, Wrong};
use yore_device::simulated::{Choice, CrashPlan, SimulatedDevice, Tearing};
use yore_device::{Device, MemoryDevice};
use yore_fs::{Engine, File, MountOptions, OpenOptions, Volume};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn every_crash_under(
    engine: Engine,
    states: usize,
    tries: impl Fn(&Run, usize, u64) -> Result<Tried, Wrong>,
) {
    let (states, seed) =
        (number("ORDERED_STATES").map_or(states, |n| n as usize), number("ORDERED_SEED").unwrap_or(1));
    let only = std::env::var("ORDERED_NAME").ok();
    let (mut wrong, mut tried, mut tolerated) = (Vec::new(), 0, 0);
    for name in sequences().into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)) {
        let outcome = run(name, engine, seed).and_then(|run| tries(&run, states, seed));
        match outcome {
            Ok(found) => {
                tried += found.states;
                tolerated += found.tolerated;
            }
            Err(error) => wrong.push(format!("{name}: [{}] {}", error.class, error.message)),
        }
    }
    println!("{tried} states under {}, with {tolerated} findings that may be left", engine.name());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_crash_under_soft_updates_leaves_what_was_promised() {
    every_crash_under(Engine::SoftUpdates, 60, Run::try_states);
}

#[test]
fn every_crash_under_sync_leaves_what_was_promised() {
    every_crash_under(Engine::Sync, 60, Run::try_states);
}

/// What a crash has left is put right while the volume is in use, beside work, and the volume says so.
#[test]
fn every_crash_is_recounted() {
    every_crash_under(Engine::SoftUpdates, 16, Run::try_recounts);
    every_crash_under(Engine::Sync, 6, Run::try_recounts);
}

fn options(engine: Engine, read_only: bool) -> MountOptions {
    quiet((!read_only).then_some(engine), read_only)
}

/// Bytes of the blocks that [`with_tree`] writes, holes included.
const END: usize = 11 * 4096;

/// An open volume with a file that has a tree of extents, 100 bytes in a last block, and what the file has.
/// All of it is durable, behind a superblock that covers passes to come.
fn with_tree(engine: Engine) -> (Arc<SimulatedDevice>, Volume, File, Vec<u8>) {
    let device = Arc::new(SimulatedDevice::new(used_device()));
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, engine, 1).unwrap_or_else(|wrong| panic!("{}", wrong.message));
    let volume = Volume::open(shared, &options(engine, false)).unwrap();
    volume.write("a", "").unwrap();
    volume.write("b", "").unwrap();
    let write_to = |path: &str| OpenOptions::new().write(true).open(&volume, path).unwrap();
    let (a, b) = (write_to("a"), write_to("b"));
    let mut content = vec![0; END + 100];
    for (number, block) in content.chunks_mut(2 * 4096).enumerate() {
        let len = block.len().min(4096);
        block[..len].fill(number as u8 + 1);
        for file in [&a, &b] {
            file.write_at(&block[..len], number as u64 * 2 * 4096).unwrap();
            file.sync_all().unwrap();
        }
    }
    content[END..].fill(90);
    a.write_at(&content[END..], END as u64).unwrap();
    a.sync_all().unwrap();
    device.restart_trace();
    (device, volume, a, content)
}

/// What the file has behind each crash, with the number of the last mark before it.
fn behind_crashes(device: &SimulatedDevice, engine: Engine, judge: impl Fn(u64, Vec<u8>)) {
    let plan = CrashPlan { exhaustive_max: 16, samples: 8, tearing: Tearing::Blocks, ..CrashPlan::default() };
    let trace = device.trace();
    let mut states = 0;
    for case in trace.crash_states(&plan) {
        let mark = trace.marks_before(case.after_entry()).last().unwrap_or(0);
        let volume = Volume::open(Arc::new(case.materialise()), &options(engine, true)).unwrap();
        judge(mark, volume.read("a").unwrap());
        states += 1;
    }
    assert!(states > 10, "only {states} states");
}

/// The inode of a file with a tree of extents named no data, as it seemed, so its size went to the medium
/// before the first flush, and so before bytes that had just been written to its last block. A crash between
/// showed zeros in their place.
#[test]
fn a_size_comes_behind_its_bytes() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let (device, _volume, file, mut content) = with_tree(engine);
        let mut sizes = vec![content.len()];
        for round in 1..4 {
            file.write_at(&[90 + round; 10], content.len() as u64).unwrap();
            content.extend([90 + round; 10]);
            file.sync_all().unwrap();
            sizes.push(content.len());
            device.mark(u64::from(round));
        }
        behind_crashes(&device, engine, |mark, has| {
            assert!(has.len() >= sizes[mark as usize], "{} bytes behind mark {mark}", has.len());
            assert!(content.starts_with(&has), "{} bytes end with {:?}", has.len(), &has[has.len() - 12..]);
        });
    }
}

/// The same with a size that grows behind one that fell: what the truncation removed does not come back.
#[test]
fn what_a_truncation_removed_does_not_come_back() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let (device, _volume, file, mut content) = with_tree(engine);
        file.set_len(END as u64 + 50).unwrap();
        file.sync_all().unwrap();
        device.mark(1);
        file.set_len(END as u64 + 90).unwrap();
        file.sync_all().unwrap();
        device.mark(2);
        content.truncate(END + 50);
        content.resize(END + 90, 0);
        behind_crashes(&device, engine, |mark, has| {
            let sizes: [&[usize]; 3] = [&[100, 50], &[50, 90], &[90]];
            let may_be = sizes[mark as usize].iter().any(|size| END + size == has.len());
            assert!(may_be, "{} bytes behind mark {mark}", has.len());
            if mark > 0 {
                assert!(content.starts_with(&has), "old bytes: {:?}", &has[has.len() - 50..]);
            }
        });
    }
}

/// What the power failing now leaves, without anything that was not flushed.
fn crashed(device: &SimulatedDevice) -> MemoryDevice {
    let trace = device.trace();
    trace.crash_point(trace.len()).unwrap().materialise(Choice::None, Tearing::Blocks).unwrap()
}

/// Makes files, of which nothing is synced, beside one that is fsynced, and crashes. The fsync writes fewer
/// than so many blocks in at most so many rounds.
fn fsync_beside(make_others: &dyn Fn(&Volume), directory: &str, blocks: u64, rounds: u64) {
    const BYTES: &[u8] = b"a few bytes";
    let device = Arc::new(SimulatedDevice::new(used_device()));
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, Engine::SoftUpdates, 1).unwrap_or_else(|wrong| panic!("{}", wrong.message));
    let volume = Volume::open(shared, &options(Engine::SoftUpdates, false)).unwrap();
    // A superblock covers what is to come.
    volume.write("first", "").unwrap();
    volume.sync().unwrap();
    device.restart_trace();
    make_others(&volume);
    if volume.metadata(directory).is_err() {
        volume.create_dir(directory).unwrap();
    }
    let before = volume.view().pass_counts().unwrap();
    let path = format!("{directory}/file");
    volume.write(&path, BYTES).unwrap();
    File::open(&volume, &path).unwrap().sync_all().unwrap();
    let cost = volume.view().pass_counts().unwrap().since(before);
    println!("{directory}: {cost:?}");
    assert_eq!((cost.passes, cost.wholes, cost.parts), (0, 0, 1), "{cost:?}");
    assert!(cost.blocks < blocks && cost.rounds <= rounds, "{cost:?}");
    let left = crashed(&device);
    let report = check(&left, &CheckOptions::default()).unwrap();
    assert!(report.findings.iter().all(|finding| finding.is_tolerated()), "{report}");
    let then = Volume::open(Arc::new(left), &options(Engine::SoftUpdates, false)).unwrap();
    assert_eq!(then.read(&path).unwrap(), BYTES);
    then.close().unwrap();
    // What the part has left out is written later, and all of it.
    let count = |volume: &Volume| volume.read_dir(directory).unwrap().count();
    let files = count(&volume);
    volume.sync().unwrap();
    let then = Volume::open(Arc::new(crashed(&device)), &options(Engine::SoftUpdates, true)).unwrap();
    assert_eq!(count(&then), files);
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// An fsync of a new file in a new directory does not write what others have changed.
#[test]
fn an_fsync_writes_what_its_file_needs() {
    let in_many = |volume: &Volume| {
        for directory in 0..40 {
            volume.create_dir(format!("d{directory}")).unwrap();
            (0..10).for_each(|file| volume.write(format!("d{directory}/{file}"), "").unwrap());
        }
    };
    fsync_beside(&in_many, "new", 12, 4);
    // The leaves of the directory are new, and so are the inodes of which they have the names.
    let in_one = |volume: &Volume| {
        volume.create_dir("one").unwrap();
        (0..300).for_each(|file| volume.write(format!("one/{file}"), "").unwrap());
    };
    fsync_beside(&in_one, "one", 60, 12);
}

/// A file that gets other names again and again within one generation made as many edges as the square of
/// that, under the lock that every change takes. What is left is written, and sound.
#[test]
fn many_names_within_a_generation_are_sound() {
    const RENAMES: usize = 6000;
    let device: Arc<dyn Device> = Arc::new(used_device());
    make(&device, Engine::SoftUpdates, 1).unwrap_or_else(|wrong| panic!("{}", wrong.message));
    let volume = Volume::open(device.clone(), &options(Engine::SoftUpdates, false)).unwrap();
    volume.write("0", "content").unwrap();
    volume.create_dir("d0").unwrap();
    volume.sync().unwrap();
    for number in 0..RENAMES {
        let (from, to) = (number % 2, (number + 1) % 2);
        volume.rename(from.to_string(), to.to_string()).unwrap();
        if number % 8 < 2 {
            volume.rename(format!("d{from}"), format!("d{to}")).unwrap();
            volume.hard_link(to.to_string(), "link").unwrap();
            volume.remove_file("link").unwrap();
        }
    }
    volume.sync().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.iter().all(|finding| finding.is_tolerated()), "{report}");
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    let volume = Volume::open(device, &options(Engine::SoftUpdates, true)).unwrap();
    assert_eq!(volume.read("0").unwrap(), b"content");
    volume.metadata("d0").unwrap();
}
