//! What each engine promises, one test for each promise: docs/ENGINES.md names them, and this file holds it
//! to that. The random campaigns try the same promises at random; here each is shown by what it is about.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_check::{check, mark_checked, CheckOptions};
use yore_crash::campaign::try_case;
use yore_crash::case::Case;
use yore_crash::record::record;
use yore_crash::trial::Trial;
use yore_crash::volume::{orders, used_device, NEVER};
use yore_device::simulated::{Choice, CrashState, SimulatedDevice, Tearing};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_format::{BlockHeader, BlockKind};
use yore_fs::{
    Durability, Engine, Error, File, MkfsOptions, MountOptions, OpenOptions, SetXattrMode, Volume,
};

fn options(engine: Engine, durability: Durability) -> MountOptions {
    MountOptions {
        engine: Some(engine),
        durability,
        commit_interval: NEVER,
        access_times: false,
        ..MountOptions::default()
    }
}

fn volume(engine: Engine) -> Arc<SimulatedDevice> {
    let device = Arc::new(SimulatedDevice::new(used_device()));
    let shared: Arc<dyn Device> = device.clone();
    let made = MkfsOptions { engine, force: true, ..MkfsOptions::default() };
    Volume::create(shared, &made).unwrap().close().unwrap();
    device.restart_trace();
    device
}

fn opened(device: &Arc<SimulatedDevice>, engine: Engine, durability: Durability) -> Volume {
    Volume::open(device.clone(), &options(engine, durability)).unwrap()
}

/// What a crash leaves that takes everything which is not flushed.
fn crashed(device: &SimulatedDevice, engine: Engine) -> Volume {
    let trace = device.trace();
    let point = trace.crash_point(trace.len()).unwrap();
    let medium = Arc::new(point.materialise(Choice::None, Tearing::Blocks).unwrap());
    if engine == Engine::None {
        mark_checked(&*medium).unwrap();
    }
    Volume::open(medium, &options(engine, Durability::Async)).unwrap()
}

fn content(n: u8) -> Vec<u8> {
    (0..9000u32).map(|i| (i as u8).wrapping_add(n) | 1).collect()
}

/// fsync under engines that leave one moment: the file with its content, and all names. sync: everything.
fn fsync_and_sync_are_durable(engine: Engine) {
    let device = volume(engine);
    let volume = opened(&device, engine, Durability::Async);
    volume.create_dir("d").unwrap();
    volume.write("d/a", content(1)).unwrap();
    volume.write("d/b", content(2)).unwrap();
    File::open(&volume, "d/a").unwrap().sync_all().unwrap();
    let then = crashed(&device, engine);
    assert_eq!(then.read("d/a").unwrap(), content(1));
    then.metadata("d/b").unwrap();
    volume.write("d/a", content(3)).unwrap();
    volume.sync().unwrap();
    let then = crashed(&device, engine);
    assert_eq!(then.read("d/a").unwrap(), content(3));
    assert_eq!(then.read("d/b").unwrap(), content(2));
}

#[test]
fn fsync_and_sync_are_durable_under_snapshot() {
    fsync_and_sync_are_durable(Engine::Snapshot);
}

#[test]
fn fsync_and_sync_are_durable_under_journal() {
    fsync_and_sync_are_durable(Engine::Journal);
}

/// fsync under engines that order changes: the file with its content, its attributes and its names, the
/// entries of a directory, and the new directories above it. sync: everything.
fn a_file_and_all_are_durable(engine: Engine) {
    let device = volume(engine);
    let volume = opened(&device, engine, Durability::Async);
    let fsync = |path: &str| {
        let node = volume.symlink_node(path).unwrap();
        volume.view().fsync(node.inode(), false).unwrap();
    };
    // The directories above it are new.
    volume.create_dir("d").unwrap();
    volume.create_dir("d/e").unwrap();
    volume.write("d/b", content(2)).unwrap();
    volume.write("d/e/a", content(1)).unwrap();
    volume.set_permissions("d/e/a", 0o600).unwrap();
    volume.set_xattr("d/e/a", "user.a", vec![7; 3000], SetXattrMode::Any).unwrap();
    File::open(&volume, "d/e/a").unwrap().sync_all().unwrap();
    let then = crashed(&device, engine);
    assert_eq!(then.read("d/e/a").unwrap(), content(1));
    assert_eq!(then.metadata("d/e/a").unwrap().permissions() & 0o777, 0o600);
    let node = then.symlink_node("d/e/a").unwrap();
    assert_eq!(then.view().getxattr(node.inode(), b"user.a").unwrap(), vec![7; 3000]);
    // All its names, and none that it has lost.
    volume.create_dir("f").unwrap();
    volume.hard_link("d/e/a", "f/l").unwrap();
    volume.write("f/other", content(4)).unwrap();
    volume.rename("d/e/a", "d/e/c").unwrap();
    fsync("f/l");
    let then = crashed(&device, engine);
    assert_eq!(then.read("f/l").unwrap(), content(1));
    assert_eq!(then.read("d/e/c").unwrap(), content(1));
    assert!(then.metadata("d/e/a").is_err());
    // The entries of a directory.
    volume.write("d/e/n", "").unwrap();
    volume.remove_file("d/e/c").unwrap();
    fsync("d/e");
    let then = crashed(&device, engine);
    then.metadata("d/e/n").unwrap();
    assert!(then.metadata("d/e/c").is_err());
    // A directory above it that has another name has this one or the old one.
    volume.rename("d", "x").unwrap();
    volume.write("x/e/n", content(5)).unwrap();
    fsync("x/e/n");
    let then = crashed(&device, engine);
    let found = then.read("x/e/n").or_else(|_| then.read("d/e/n"));
    assert_eq!(found.unwrap(), content(5));
    volume.write("x/e/n", content(3)).unwrap();
    volume.sync().unwrap();
    let then = crashed(&device, engine);
    assert_eq!(then.read("x/e/n").unwrap(), content(3));
    assert_eq!(then.read("x/b").unwrap(), content(2));
    assert_eq!(then.read("f/other").unwrap(), content(4));
}

#[test]
fn fsync_and_sync_are_durable_under_soft_updates() {
    a_file_and_all_are_durable(Engine::SoftUpdates);
}

#[test]
fn fsync_and_sync_are_durable_under_sync() {
    a_file_and_all_are_durable(Engine::Sync);
}

/// Under `none` a sync makes everything durable, and an fsync the data of a file that was there.
#[test]
fn a_sync_and_the_data_of_an_fsync_are_durable_under_none() {
    let device = volume(Engine::None);
    let volume = opened(&device, Engine::None, Durability::Async);
    volume.write("a", content(1)).unwrap();
    volume.sync().unwrap();
    assert_eq!(crashed(&device, Engine::None).read("a").unwrap(), content(1));
    let file = OpenOptions::new().write(true).open(&volume, "a").unwrap();
    file.write_at(&content(2), 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(crashed(&device, Engine::None).read("a").unwrap(), content(2));
}

/// Each call that changes names or attributes is durable when it has returned.
fn calls_are_durable(engine: Engine, durability: Durability) {
    let device = volume(engine);
    let volume = opened(&device, engine, durability);
    volume.create_dir("d").unwrap();
    crashed(&device, engine).metadata("d").unwrap();
    volume.write("d/a", "").unwrap();
    crashed(&device, engine).metadata("d/a").unwrap();
    volume.hard_link("d/a", "b").unwrap();
    assert_eq!(crashed(&device, engine).metadata("b").unwrap().nlink(), 2);
    volume.rename("d/a", "c").unwrap();
    let then = crashed(&device, engine);
    assert!(then.metadata("d/a").is_err() && then.metadata("c").is_ok());
    volume.set_permissions("c", 0o600).unwrap();
    assert_eq!(crashed(&device, engine).metadata("c").unwrap().permissions() & 0o777, 0o600);
    volume.remove_file("b").unwrap();
    assert!(crashed(&device, engine).metadata("b").is_err());
}

#[test]
fn calls_are_durable_under_journal_with_sync_and_group() {
    calls_are_durable(Engine::Journal, Durability::Sync);
    calls_are_durable(Engine::Journal, Durability::Group);
}

#[test]
fn calls_are_durable_under_sync() {
    calls_are_durable(Engine::Sync, Durability::Async);
}

/// What nobody syncs becomes durable by itself.
fn changes_become_durable_by_themselves(engine: Engine) {
    let device = volume(engine);
    let soon =
        MountOptions { commit_interval: Duration::from_millis(5), ..options(engine, Durability::Async) };
    let volume = Volume::open(device.clone(), &soon).unwrap();
    volume.create_dir("d").unwrap();
    // So that a test that fails comes to an end.
    let end = Instant::now() + Duration::from_secs(60);
    while crashed(&device, engine).metadata("d").is_err() {
        assert!(Instant::now() < end, "{}: after a minute the change is not durable", engine.name());
        std::thread::yield_now();
    }
}

#[test]
fn changes_become_durable_by_themselves_under_snapshot() {
    changes_become_durable_by_themselves(Engine::Snapshot);
}

#[test]
fn changes_become_durable_by_themselves_under_journal() {
    changes_become_durable_by_themselves(Engine::Journal);
}

#[test]
fn changes_become_durable_by_themselves_under_soft_updates() {
    changes_become_durable_by_themselves(Engine::SoftUpdates);
}

#[test]
fn changes_become_durable_by_themselves_under_sync() {
    changes_become_durable_by_themselves(Engine::Sync);
}

/// Sequences of which each crash is tried: an exchange, renames over a file and between directories, and a
/// file saved over another one ([`yore_crash::systematic`]).
const CALLS: [u64; 3] = [208_223, 155_241, 128_071];
/// The same for writes: appended, overwriting, sparse, and truncated ([`yore_crash::systematic`]).
const WRITES: [u64; 3] = [72_619, 99_789, 203_283];

fn every_crash(engine: Engine, cases: &[u64]) {
    for number in cases {
        let case = Case { engine, ..Case::systematic(*number) };
        if let Err(failure) = try_case(&case, 0, &mut |_| true) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_call_is_whole_or_not_there_under_snapshot() {
    every_crash(Engine::Snapshot, &CALLS);
}

#[test]
fn a_call_is_whole_or_not_there_under_journal() {
    every_crash(Engine::Journal, &CALLS);
}

/// Perhaps in part, as far as the order lets it (`judge/ordered.rs` has what each name and inode may be).
#[test]
fn a_call_is_there_in_order_under_soft_updates() {
    every_crash(Engine::SoftUpdates, &CALLS);
}

#[test]
fn a_call_is_there_in_order_under_sync() {
    every_crash(Engine::Sync, &CALLS);
}

/// The device held something else before, and each block of it something of its own: a pointer that comes
/// before its data shows that.
#[test]
fn data_comes_before_the_pointer_to_it_under_snapshot() {
    every_crash(Engine::Snapshot, &WRITES);
}

#[test]
fn data_comes_before_the_pointer_to_it_under_journal() {
    every_crash(Engine::Journal, &WRITES);
}

#[test]
fn data_comes_before_the_pointer_to_it_under_soft_updates() {
    every_crash(Engine::SoftUpdates, &WRITES);
}

#[test]
fn data_comes_before_the_pointer_to_it_under_sync() {
    every_crash(Engine::Sync, &WRITES);
}

/// All that is written last is torn between sectors, at each moment.
fn torn_blocks_are_survived(engine: Engine) {
    let case = Case { engine, ..Case::systematic(CALLS[0]) };
    let recorded = record(&case).unwrap_or_else(|wrong| panic!("{case}: {}", wrong.message));
    for after_entry in 0..=recorded.entries() {
        for seed in 0..3 {
            let state = CrashState { after_entry, choice: Choice::Seed(seed), tearing: Tearing::Sectors };
            let tried = recorded.try_state(state, Trial::default());
            tried.unwrap_or_else(|wrong| panic!("{case} {state}: [{}] {}", wrong.class, wrong.message));
        }
    }
}

#[test]
fn torn_blocks_are_survived_under_snapshot() {
    torn_blocks_are_survived(Engine::Snapshot);
}

#[test]
fn torn_blocks_are_survived_under_journal() {
    torn_blocks_are_survived(Engine::Journal);
}

/// A block of inodes that is half old and half new is damage, which a check and a reader notice.
fn a_torn_block_is_damage(engine: Engine) {
    let device = volume(engine);
    let volume = opened(&device, engine, Durability::Async);
    for n in 0..8 {
        volume.write(format!("{n}"), "").unwrap();
    }
    volume.sync().unwrap();
    let before = device.snapshot();
    for n in 0..8 {
        volume.set_permissions(format!("{n}"), 0o600).unwrap();
    }
    volume.sync().unwrap();
    let after = device.snapshot();
    let block = |device: &MemoryDevice, number: u64| {
        let mut block = [0; BLOCK_SIZE];
        device.read_at(number * BLOCK_SIZE as u64, &mut block).unwrap();
        block
    };
    let mut torn = 0;
    for number in 2..after.size() / BLOCK_SIZE as u64 {
        let (old, new) = (block(&before, number), block(&after, number));
        let is_inodes = |block| BlockHeader::of(block).kind == BlockKind::Inodes as u8;
        if old == new || !is_inodes(&old) || !is_inodes(&new) {
            continue;
        }
        let medium = after.snapshot();
        let mut half = new;
        half[..BLOCK_SIZE / 2].copy_from_slice(&old[..BLOCK_SIZE / 2]);
        medium.write_at(number * BLOCK_SIZE as u64, &half).unwrap();
        let report = check(&medium, &CheckOptions::default()).unwrap();
        assert!(report.findings.iter().any(|finding| !finding.is_tolerated()), "block {number}: {report}");
        torn += 1;
    }
    assert!(torn > 0, "no block of inodes was written over");
}

#[test]
fn a_torn_block_is_damage_under_soft_updates() {
    a_torn_block_is_damage(Engine::SoftUpdates);
}

#[test]
fn a_torn_block_is_damage_under_sync() {
    a_torn_block_is_damage(Engine::Sync);
}

#[test]
fn a_torn_block_is_damage_under_none() {
    a_torn_block_is_damage(Engine::None);
}

/// Under `none` a crash may leave anything, so a mount refuses the volume until a check has found nothing.
#[test]
fn a_crash_under_none_is_not_mounted() {
    let device = volume(Engine::None);
    let volume = opened(&device, Engine::None, Durability::Async);
    volume.create_dir("d").unwrap();
    volume.sync().unwrap();
    let left: Arc<dyn Device> = Arc::new(device.snapshot());
    let refused = Volume::open(left.clone(), &options(Engine::None, Durability::Async));
    assert!(matches!(refused, Err(Error::Refused(_))));
    mark_checked(&*left).unwrap();
    Volume::open(left, &options(Engine::None, Durability::Async)).unwrap().metadata("d").unwrap();
}

/// Whether an engine orders changes is what decides which judge its crashes have.
#[test]
fn each_engine_has_its_judge() {
    let ordered = [Engine::SoftUpdates, Engine::Sync];
    for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync, Engine::None] {
        assert_eq!(orders(engine), ordered.contains(&engine));
    }
}

/// The table "Tests" of docs/ENGINES.md has a test in each cell, and these tests exist.
#[test]
fn each_promise_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/ENGINES.md")).unwrap();
    let table = text.split("**Tests.**").nth(1).expect("the table of tests");
    let rows: Vec<&str> = table.lines().skip_while(|line| !line.starts_with('|')).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 6, "{} rows", rows.len());
    for row in &rows[2..] {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        for cell in &cells[1..] {
            let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty() || *cell == "–", "{}: a cell without a test: {cell}", cells[0]);
            for test in tests {
                let (path, name) =
                    test.split_once("::").unwrap_or_else(|| panic!("{test} names no function"));
                let source = std::fs::read_to_string(root.join("crates").join(path))
                    .unwrap_or_else(|error| panic!("{path}: {error}"));
                let at =
                    source.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{path} has no {name}"));
                assert!(source[..at].trim_end().ends_with("#[test]"), "{test} is no test");
            }
        }
    }
}
