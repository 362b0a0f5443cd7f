//! Volumes for tests: made, opened and checked, always the same way.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use yore_check::{check, CheckError, CheckOptions, Finding, Problem, Report};
use yore_device::{Device, MemoryDevice, Part, BLOCK_SIZE};
use yore_fs::{Durability, Engine, LogDevice, LogPlace, MkfsOptions, MountOptions, Policy, View};

/// Bytes of a volume in crash tests.
pub const VOLUME_SIZE: u64 = 32 << 20;
/// Bytes of the log of a volume that has it elsewhere.
const LOG_SIZE: u64 = 1 << 20;
/// Bytes of a device that is two disks in one order of time: a volume, and behind a gap its log. No other
/// device of the tests is as long, so the length says what it is.
const PAIR_SIZE: u64 = VOLUME_SIZE + LOG_SIZE + 7 * BLOCK_SIZE as u64;
/// Cache sizes: small enough to make thousands of mounts cheap.
const CACHE: u64 = 8 << 20;
/// Rows of history without keys: few enough for calls to meet the bound.
const BACKLOG: u64 = 24;

/// An error, classified by where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// One word for the broken promise; a shortened sequence must break the same promise.
    pub class: &'static str,
    /// The story.
    pub message: String,
}

impl Wrong {
    /// A message of a class.
    pub fn new(class: &'static str, message: impl ToString) -> Wrong {
        Wrong { class, message: message.to_string() }
    }
}

/// A device that was used before: no block of it holds zeros, or the content of another. If a file system
/// refers to blocks that were not written yet, as if they held zeros, it shows bytes that nobody stored.
pub fn used_device() -> MemoryDevice {
    static USED: OnceLock<MemoryDevice> = OnceLock::new();
    USED.get_or_init(|| used(VOLUME_SIZE)).snapshot()
}

/// The same for a volume whose log is on another disk ([`sides`]).
pub fn used_pair() -> MemoryDevice {
    static USED: OnceLock<MemoryDevice> = OnceLock::new();
    USED.get_or_init(|| used(PAIR_SIZE)).snapshot()
}

/// The device of the volume on a device of the tests, and where its log is. If there are two disks, they are
/// its parts.
pub fn sides(device: &Arc<dyn Device>) -> (Arc<dyn Device>, LogPlace) {
    if device.size() != PAIR_SIZE {
        return (device.clone(), LogPlace::Recorded);
    }
    let volume: Arc<dyn Device> = Arc::new(Part::new(device.clone(), 0, VOLUME_SIZE));
    let log = Part::new(device.clone(), PAIR_SIZE - LOG_SIZE, log_size(&**device));
    (volume, LogPlace::On(LogDevice { device: Arc::new(log), path: Vec::new() }))
}

/// Bytes of the log's disk: as many as its anchors say; all that there are before it has any.
fn log_size(device: &dyn Device) -> u64 {
    const ANCHOR_BLOCKS: u64 = 2;
    let mut anchors = [0; ANCHOR_BLOCKS as usize * BLOCK_SIZE];
    match device.read_at(PAIR_SIZE - LOG_SIZE, &mut anchors) {
        Ok(()) => {}
        Err(error) => unreachable!("memory can be read: {error}"),
    }
    let anchors = anchors.chunks(BLOCK_SIZE).filter(|block| block.starts_with(b"YORE\x89LA\n"));
    let blocks = anchors.map(|block| u64::from_le_bytes(std::array::from_fn(|i| block[32 + i]))).next();
    blocks.map_or(LOG_SIZE, |blocks| (blocks + ANCHOR_BLOCKS) * BLOCK_SIZE as u64)
}

fn used(size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(size);
    let mut block = [0; BLOCK_SIZE];
    for number in 0..size / BLOCK_SIZE as u64 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&(0xdead_0000_dead_0000 | number).to_le_bytes());
        }
        match device.write_at(number * BLOCK_SIZE as u64, &block) {
            Ok(()) => {}
            Err(error) => unreachable!("memory can be written: {error}"),
        }
    }
    device
}

/// Makes a volume; all that is random by default comes from `seed`.
///
/// # Errors
/// If it cannot be made.
pub fn make(device: &Arc<dyn Device>, engine: Engine, seed: u64) -> Result<(), Wrong> {
    make_with(device, (engine, false), seed, None, Policy::default())
}

/// The same with a log of this many blocks, perhaps with checksums of file data, and a policy from the
/// beginning.
///
/// # Errors
/// As [`make`].
pub fn make_with(
    device: &Arc<dyn Device>,
    (engine, data_checksums): (Engine, bool),
    seed: u64,
    log: Option<u64>,
    policy: Policy,
) -> Result<(), Wrong> {
    let journal = match sides(device).1 {
        LogPlace::On(_) => {
            let size = log.map_or(LOG_SIZE, |blocks| (blocks + 2) * BLOCK_SIZE as u64);
            let log = Part::new(device.clone(), PAIR_SIZE - LOG_SIZE, size);
            Some(LogDevice { device: Arc::new(log), path: Vec::new() })
        }
        _ => None,
    };
    let device = sides(device).0;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key[8..].copy_from_slice(&(seed ^ 0x5555).to_le_bytes());
    let options = MkfsOptions {
        uuid: key,
        hash_seed: key,
        label: "crash".into(),
        engine,
        owner: (0, 0),
        permissions: 0o755,
        log_size: log.map(|blocks| blocks * BLOCK_SIZE as u64),
        policy,
        journal,
        data_checksums,
        force: true,
    };
    View::mkfs(&device, &options).map(|_| ()).map_err(|error| Wrong::new("mkfs", error))
}

/// The age of changes at which generations begin where only explicit ones are wanted.
pub const NEVER: Duration = Duration::from_secs(3600);

/// Options of a volume that does nothing by itself, with small caches.
pub fn quiet(engine: Option<Engine>, read_only: bool) -> MountOptions {
    MountOptions {
        engine,
        read_only,
        commit_interval: NEVER,
        access_times: false,
        metadata_cache: 16 << 20,
        data_cache: 8 << 20,
        part_leaves: 0,
        ..MountOptions::default()
    }
}

/// Opens a volume without access times, and with no generations except explicit ones.
///
/// # Errors
/// If it is refused.
pub fn open(device: Arc<dyn Device>) -> Result<View, yore_fs::Error> {
    open_with(device, NEVER, Durability::Async, false)
}

/// The same with a generation whenever changes are this old, and perhaps with freed blocks discarded, in
/// whatever runs.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    device: Arc<dyn Device>,
    commit_interval: Duration,
    durability: Durability,
    discard: bool,
) -> Result<View, yore_fs::Error> {
    open_as(device, None, commit_interval, durability, discard)
}

/// The same with another engine.
///
/// # Errors
/// As [`open`].
pub fn open_as(
    device: Arc<dyn Device>,
    engine: Option<Engine>,
    commit_interval: Duration,
    durability: Durability,
    discard: bool,
) -> Result<View, yore_fs::Error> {
    let (device, journal) = sides(&device);
    let options = MountOptions {
        journal,
        engine,
        commit_interval,
        durability,
        metadata_cache: CACHE,
        data_cache: CACHE,
        access_times: false,
        // The sequences decide what is forgotten, and what moves.
        keep_history: true,
        backlog: BACKLOG,
        part_leaves: 0,
        discard: discard.then_some(1),
        defragment_after: None,
        ..MountOptions::default()
    };
    View::open(device, &options)
}

fn check_sides(device: &dyn Device) -> Result<Report, CheckError> {
    if device.size() != PAIR_SIZE {
        return check(device, &CheckOptions::default());
    }
    // The checker keeps the log's device, so that gets a copy of it.
    let size = log_size(device);
    let log = MemoryDevice::new(size);
    let mut bytes = vec![0; size as usize];
    device.read_at(PAIR_SIZE - LOG_SIZE, &mut bytes)?;
    log.write_at(0, &bytes)?;
    let log = LogPlace::On(LogDevice { device: Arc::new(log), path: Vec::new() });
    check(&Part::new(device, 0, VOLUME_SIZE), &CheckOptions { log, ..CheckOptions::default() })
}

/// Whether an engine writes metadata where it is, one change behind the other (docs/EDGES.md).
pub fn orders(engine: Engine) -> bool {
    matches!(engine, Engine::SoftUpdates | Engine::Sync)
}

/// What a check may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// Nothing at all.
    None,
    /// What an engine that orders changes may leave on a volume that was sound before.
    Ordered,
    /// What several crashes under such an engine may leave, one upon the other.
    OrderedTwice,
}

impl Findings {
    /// What one crash under an engine may leave on a volume that was sound before.
    pub fn behind_a_crash_under(engine: Engine) -> Findings {
        match orders(engine) {
            true => Findings::Ordered,
            false => Findings::None,
        }
    }

    /// The first finding of a report that may not be there. An orphan is unlisted only behind a second crash.
    pub fn wrong_of(self, report: &Report) -> Option<&Finding> {
        report.findings.iter().find(|finding| match self {
            Findings::None => true,
            Findings::Ordered => !finding.is_tolerated() || finding.problem == Problem::OrphanUnlisted,
            Findings::OrderedTwice => !finding.is_tolerated(),
        })
    }
}

/// Checks a volume; nothing else may be found.
///
/// # Errors
/// The finding that may not be there.
pub fn must_be_sound(device: &dyn Device, may: Findings, when: &str) -> Result<(), Wrong> {
    if may == Findings::None {
        return must_be_clean(device, when).map(|_| ());
    }
    let report = check_sides(device).map_err(|error| Wrong::new("check", format!("{when}: {error}")))?;
    match may.wrong_of(&report) {
        None => Ok(()),
        Some(finding) => Err(Wrong::new("check", format!("{when} the check finds:\n    {finding}"))),
    }
}

/// Checks a volume; nothing at all may be found.
///
/// # Errors
/// The report, if there are findings.
pub fn must_be_clean(device: &dyn Device, when: &str) -> Result<Report, Wrong> {
    let report = check_sides(device).map_err(|error| Wrong::new("check", format!("{when}: {error}")))?;
    match report.is_clean() {
        true => Ok(report),
        false => Err(Wrong::new("check", format!("{when} the check finds:\n    {report}"))),
    }
}
