//! A volume changes its engine at any mount, also behind a crash; and what an engine cannot do it says.

use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_check::{check, CheckOptions};
use yore_crash::volume::{orders, Findings};
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Durability, Engine, Error, FileKind, MkfsOptions, MountOptions, View, WriteMode};

const ENGINES: [Engine; 5] =
    [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync, Engine::None];

fn options(engine: Engine) -> MountOptions {
    MountOptions {
        engine: Some(engine),
        commit_interval: Duration::from_secs(3600),
        access_times: false,
        ..MountOptions::default()
    }
}

fn volume(engine: Engine) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &MkfsOptions { engine, ..MkfsOptions::default() }).unwrap();
    device
}

fn create(view: &View, name: &str) {
    let caller = Caller::superuser();
    let node = view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    view.write(
        node.attr().inode,
        0,
        &name.as_bytes().repeat(5000),
        WriteMode { append: false, kill_set_id: false },
    )
    .unwrap();
}

fn has(view: &View, name: &str) {
    let node = view.lookup(view.root(), name.as_bytes()).unwrap();
    let mut found = vec![0; 5000 * name.len()];
    assert_eq!(view.read(node.attr().inode, 0, &mut found).unwrap(), found.len(), "{name}");
    assert!(found == name.as_bytes().repeat(5000), "{name}");
}

fn must_be_clean(device: &MemoryDevice, when: &str) {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{when}: {report}");
}

/// From each engine to each other one, at clean mounts: what was written stays, and the volume is clean.
#[test]
fn a_volume_changes_its_engine_at_any_clean_mount() {
    let device = volume(Engine::Snapshot);
    let mut names: Vec<String> = Vec::new();
    for (n, engine) in ENGINES.into_iter().flat_map(|a| ENGINES.map(|b| [a, b])).flatten().enumerate() {
        let view = View::open(device.clone(), &options(engine)).unwrap();
        assert_eq!(view.info().engine, engine);
        names.iter().for_each(|name| has(&view, name));
        names.push(format!("file-{n}"));
        create(&view, &names[names.len() - 1]);
        if n % 3 == 2 {
            view.unlink(view.root(), names.remove(n / 3).as_bytes()).unwrap();
        }
        view.close().unwrap();
        must_be_clean(&device, &format!("after {n}, {}", engine.name()));
    }
}

/// A crash under any engine but `none`: every engine opens the volume and finds what was fsynced. The
/// recorded one comes first, and replays the log, or counts what it finds.
#[test]
fn a_volume_changes_its_engine_behind_a_crash() {
    for (crashed, next) in ENGINES[..4].iter().flat_map(|a| ENGINES.map(|b| (*a, b))) {
        let device = volume(crashed);
        let view = View::open(device.clone(), &options(crashed)).unwrap();
        create(&view, "old");
        view.sync().unwrap();
        create(&view, "logged");
        let node = view.lookup(view.root(), b"logged").unwrap();
        view.fsync(node.attr().inode, false).unwrap();
        let left = Arc::new(device.snapshot());
        // An engine that orders changes writes no superblock for each fsync: totals may be of an earlier one.
        let may = Findings::behind_a_crash_under(crashed);
        let must_be_good = |when: &str| {
            let report = check(&*left, &CheckOptions::default()).unwrap();
            assert!(may.wrong_of(&report).is_none(), "{when}: {report}");
        };
        must_be_good("as the crash left it");
        let view = View::open(left.clone(), &options(next)).unwrap();
        assert_eq!(view.info().engine, next);
        has(&view, "old");
        has(&view, "logged");
        view.close().unwrap();
        must_be_good(&format!("from {} to {}", crashed.name(), next.name()));
    }
}

/// Under `none` a generation that nobody asked for leaves headers, table and superblock as they are; a sync
/// brings them up to date, also if nothing has changed since that generation.
#[test]
fn none_writes_no_superblock_unless_somebody_asks() {
    let device = volume(Engine::None);
    let soon = MountOptions { commit_interval: Duration::from_millis(10), ..options(Engine::None) };
    let view = View::open(device.clone(), &soon).unwrap();
    let slots = |device: &MemoryDevice| device.to_bytes()[..2 * 4096].to_vec();
    let before = slots(&device);
    let generation = view.info().generation;
    create(&view, "a");
    // So that a test that fails comes to an end.
    let end = Instant::now() + Duration::from_secs(60);
    while view.info().generation < generation + 2 {
        let reached = view.info().generation;
        assert!(Instant::now() < end, "after a minute it is at generation {reached}, from {generation}");
        std::thread::yield_now();
    }
    assert!(slots(&device) == before, "a superblock was written in the background");
    let node = view.lookup(view.root(), b"a").unwrap();
    view.fsync(node.attr().inode, false).unwrap();
    assert!(slots(&device) == before, "an fsync is for data alone");
    view.sync().unwrap();
    assert!(slots(&device) != before, "a sync writes the superblock");
    let left = Arc::new(device.snapshot());
    yore_check::mark_checked(&*left).expect("all was synced");
    has(&View::open(left, &options(Engine::None)).unwrap(), "a");
    view.close().unwrap();
    must_be_clean(&device, "after the unmount");
}

/// What is asked of an engine that it cannot do is refused, with what to do instead.
#[test]
fn what_an_engine_cannot_do_is_refused() {
    let refused =
        |device: &Arc<MemoryDevice>, options: &MountOptions| match View::open(device.clone(), options) {
            Err(Error::Refused(message)) => message,
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("it was opened"),
        };
    let device = volume(Engine::Snapshot);
    let group = MountOptions { durability: Durability::Group, ..options(Engine::Snapshot) };
    assert!(refused(&device, &group).contains("engine=journal"));
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &MkfsOptions { log_size: Some(0), ..MkfsOptions::default() }).unwrap();
    assert!(refused(&device, &options(Engine::Journal)).contains("has no log"));
}

/// Under `durability=sync` and `group`, and under `sync`, a call that changes names returns when that is
/// durable: a crash right behind it shows the name.
#[test]
fn what_a_call_has_changed_is_durable_when_it_returns() {
    for (engine, durability) in [
        (Engine::Journal, Durability::Sync),
        (Engine::Journal, Durability::Group),
        (Engine::Sync, Durability::Async),
    ] {
        let device = volume(engine);
        let view = View::open(device.clone(), &MountOptions { durability, ..options(engine) }).unwrap();
        for n in 0..300 {
            let name = format!("d{n}");
            view.mkdir(&Caller::superuser(), view.root(), name.as_bytes(), 0o755).unwrap();
            if n % 50 == 0 {
                let left = View::open(Arc::new(device.snapshot()), &options(engine)).unwrap();
                left.lookup(left.root(), name.as_bytes()).unwrap();
            }
        }
    }
}

/// A volume of any size can be made with a journal: its log fits the first group. (It once was longer than
/// that allows, and no volume above 6 GiB could be made.)
#[test]
fn a_journal_fits_volumes_of_all_sizes() {
    for size in [16 << 20, 64 << 20, 1 << 30, 6 << 30, 16 << 30, 1 << 40] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
        let options = MkfsOptions { engine: Engine::Journal, ..MkfsOptions::default() };
        View::mkfs(&device, &options).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        let view = View::open(device, &MountOptions::default()).unwrap();
        create(&view, "a");
        view.close().unwrap();
    }
}

/// An engine that orders changes counts what its generations cost, and others have nothing to count.
#[test]
fn what_passes_cost_is_counted() {
    for engine in ENGINES {
        let view = View::open(volume(engine), &options(engine)).unwrap();
        let root = Caller::superuser();
        // A new directory, its first name, and the count of links above it wait for each other.
        for n in 0..50 {
            let made = view.mkdir(&root, view.root(), format!("d{n}").as_bytes(), 0o755);
            let inode = made.unwrap().attr().inode;
            view.create(&root, inode, b"file", FileKind::Regular, 0o644, 0).unwrap();
        }
        view.sync().unwrap();
        let counts = view.pass_counts().unwrap();
        assert_eq!(counts.passes > 0 && counts.rounds > 0 && counts.blocks > 0, orders(engine), "{engine:?}");
        assert!(counts.rollbacks <= counts.blocks, "{engine:?}: {counts:?}");
        if engine == Engine::SoftUpdates {
            assert!(counts.rollbacks > 0, "{counts:?}");
            assert!(counts.rounds <= 24 * counts.passes, "{counts:?}");
        }
        view.close().unwrap();
    }
}
