//! Volumes for tests: made, opened and checked, always the same way.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use yore_check::{check, CheckOptions, Report};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_fs::{Durability, Engine, MkfsOptions, MountOptions, Policy, View};

/// Bytes of a volume in crash tests.
pub const VOLUME_SIZE: u64 = 32 << 20;
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
    let make = || {
        let device = MemoryDevice::new(VOLUME_SIZE);
        let mut block = [0; BLOCK_SIZE];
        for number in 0..VOLUME_SIZE / BLOCK_SIZE as u64 {
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&(0xdead_0000_dead_0000 | number).to_le_bytes());
            }
            match device.write_at(number * BLOCK_SIZE as u64, &block) {
                Ok(()) => {}
                Err(error) => unreachable!("memory can be written: {error}"),
            }
        }
        device
    };
    USED.get_or_init(make).snapshot()
}

/// Makes a volume; all that is random by default comes from `seed`.
///
/// # Errors
/// If it cannot be made.
pub fn make(device: &Arc<dyn Device>, engine: Engine, seed: u64) -> Result<(), Wrong> {
    make_with(device, engine, seed, None, Policy::default())
}

/// The same with a log of this many blocks, and a policy from the beginning.
///
/// # Errors
/// As [`make`].
pub fn make_with(
    device: &Arc<dyn Device>,
    engine: Engine,
    seed: u64,
    log: Option<u64>,
    policy: Policy,
) -> Result<(), Wrong> {
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
        force: false,
    };
    View::mkfs(device, &options).map(|_| ()).map_err(|error| Wrong::new("mkfs", error))
}

/// The age of changes at which generations begin where only explicit ones are wanted.
pub const NEVER: Duration = Duration::from_secs(3600);

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
    let options = MountOptions {
        commit_interval,
        durability,
        metadata_cache: CACHE,
        data_cache: CACHE,
        access_times: false,
        // The sequences decide what is forgotten, and what moves.
        keep_history: true,
        backlog: BACKLOG,
        discard: discard.then_some(1),
        defragment_after: None,
        ..MountOptions::default()
    };
    View::open(device, &options)
}

/// Checks a volume; nothing at all may be found.
///
/// # Errors
/// The report, if there are findings.
pub fn must_be_clean(device: &dyn Device, when: &str) -> Result<Report, Wrong> {
    let report = check(device, &CheckOptions::default())
        .map_err(|error| Wrong::new("check", format!("{when}: {error}")))?;
    match report.is_clean() {
        true => Ok(report),
        false => Err(Wrong::new("check", format!("{when} the check finds:\n    {report}"))),
    }
}
