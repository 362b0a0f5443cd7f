//! Promises of a check of a volume in use that looks to it as a crash would have left it: what it reads
//! before it compares anything can be broken off, and the log counts.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use yore_check::CheckOptions;
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice, BLOCK_SIZE};
use yore_format::Engine;
use yore_fs::{LogDevice, LogPlace, MkfsOptions, MountOptions, Volume};
use yore_online::{check, OnlineError, OnlineOptions};

/// A device that counts reads, and the blocks that they read.
#[derive(Debug, Default)]
struct Reads {
    requests: AtomicU64,
    blocks: AtomicU64,
}

impl Hook for Reads {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if matches!(request, Request::Read { .. }) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.blocks.fetch_add(request.len() / BLOCK_SIZE as u64, Ordering::Relaxed);
        }
        request.pass(below)
    }
}

/// Under an engine that orders changes a check first settles all zones. It read each block by itself for
/// that, and asked nobody meanwhile; so on a large volume a mount could not be ended for minutes. Promises
/// that it reads in large requests, and ends within a zone of the first time that it is told to.
#[test]
fn a_check_is_broken_off_while_it_settles() {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(256 << 20), Reads::default()));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options =
        MountOptions { engine: Some(Engine::SoftUpdates), defragment_after: None, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    // Each has a node of its own.
    let target = "t".repeat(300);
    for i in 0..1500 {
        volume.symlink(&target, format!("{i}")).unwrap();
    }
    volume.sync().unwrap();
    let read = || device.hook.blocks.load(Ordering::Relaxed);
    let requests = device.hook.requests.load(Ordering::Relaxed);
    let options = OnlineOptions::default();
    let whole = check(volume.view(), &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let requests = device.hook.requests.load(Ordering::Relaxed) - requests;
    let counts = whole.report.counts;
    assert!(whole.is_clean() && counts.zones >= 4, "{}", whole.report);
    assert!(requests < counts.metadata_blocks, "{requests} requests for {counts:?}");
    let (before, mut first) = (read(), None);
    let broken_off = check(volume.view(), &options, &mut |at| {
        first.get_or_insert((read(), at.left));
        ControlFlow::Break(())
    });
    assert!(matches!(broken_off, Err(OnlineError::BrokenOff)), "{broken_off:?}");
    let (first, left) = first.expect("somebody is told");
    assert!(left.is_none(), "nobody can know");
    let (until, behind) = (first - before, read() - first);
    assert!(until < counts.metadata_blocks / 2, "{until} blocks before anybody was told");
    assert!(behind < counts.metadata_blocks / counts.zones, "{behind} blocks behind the end");
    volume.close().unwrap();
}

/// A volume and its log, each on a device of its own.
type Pair = (Arc<MemoryDevice>, Arc<MemoryDevice>);

fn log_on(log: &Arc<MemoryDevice>) -> LogDevice {
    LogDevice { device: log.clone(), path: Vec::new() }
}

/// A device in front of a volume that keeps what volume and log have before each write to the volume.
#[derive(Debug)]
struct States {
    of: Pair,
    kept: Mutex<Vec<Pair>>,
}

impl Hook for States {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if matches!(request, Request::Write { .. }) {
            let state = (Arc::new(self.of.0.snapshot()), Arc::new(self.of.1.snapshot()));
            self.kept.lock().unwrap().push(state);
        }
        request.pass(below)
    }
}

/// A volume with files under `journal`, and a log elsewhere, as crashes could leave them while another mount
/// overwrites metadata in place.
fn states() -> Vec<Pair> {
    let (raw, log) = (Arc::new(MemoryDevice::new(64 << 20)), Arc::new(MemoryDevice::new(1 << 20)));
    let made = MkfsOptions { engine: Engine::Journal, journal: Some(log_on(&log)), ..MkfsOptions::default() };
    let volume = Volume::create(raw.clone(), &made).unwrap();
    for i in 0..60 {
        volume.write(format!("{i}"), [1; 500]).unwrap();
    }
    volume.close().unwrap();
    let kept = States { of: (raw.clone(), log.clone()), kept: Mutex::default() };
    let device = Arc::new(Wrapped::new(raw, kept));
    let options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        journal: LogPlace::On(log_on(&log)),
        ..MountOptions::default()
    };
    let volume = Volume::open(device.clone(), &options).unwrap();
    for i in 0..60 {
        volume.rename(format!("{i}"), format!("another name {i}")).unwrap();
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    let mut kept = device.hook.kept.lock().unwrap();
    std::mem::take(&mut *kept)
}

/// A mount for reading only of a volume that had crashed, with its log on another device, was checked without
/// that log: blocks that had been overwritten in place looked damaged, and nothing was. Promises that the log
/// counts that the mount was opened with.
#[test]
fn a_mount_for_reading_is_checked_with_its_log() {
    let mut checked = 0;
    for (volume, log) in states() {
        let without = CheckOptions { log: LogPlace::Without, ..CheckOptions::default() };
        if yore_check::check(&*volume, &without).unwrap().is_clean() {
            continue;
        }
        checked += 1;
        if checked > 8 {
            break;
        }
        let options =
            MountOptions { read_only: true, journal: LogPlace::On(log_on(&log)), ..MountOptions::default() };
        let volume = Volume::open(volume, &options).unwrap();
        let found = check(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
        let found = found.unwrap();
        assert!(found.is_clean() && !found.recorded, "{}", found.report);
        volume.close().unwrap();
    }
    assert!(checked > 0, "a crash left blocks that only the log makes right");
}
