//! Commit intervals that pass when somebody says so: `View::pass_intervals` does what an engine's background
//! would have done by then, and no more. Measurements with a computed clock rely on it.

use std::sync::Arc;
use std::time::Duration;
use yore_device::simulated::TraceEntry;
use yore_device::{Device, MemoryDevice, SimulatedDevice};
use yore_fs::{Caller, Engine, FileKind, InodeNo, MkfsOptions, MountOptions, View};

const MIB: u64 = 1 << 20;

/// A new volume on a device that records, opened with a clock that never reaches a commit interval. What only
/// the first record and the first generation of a mount cost is behind it.
fn volume(engine: Engine) -> (Arc<SimulatedDevice>, View) {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 * MIB)));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &MkfsOptions { engine, ..MkfsOptions::default() }).unwrap();
    let idle = MountOptions { commit_interval: Duration::from_secs(24 * 3600), ..MountOptions::default() };
    let view = View::open(shared, &idle).unwrap();
    create(&view, "first");
    view.pass_intervals(1).unwrap();
    view.sync().unwrap();
    view.checkpoint().unwrap();
    device.restart_trace();
    (device, view)
}

fn create(view: &View, name: &str) {
    view.create(&Caller::superuser(), InodeNo::ROOT, name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
}

/// Writes and flushes since the last call.
fn count(device: &SimulatedDevice) -> (usize, usize) {
    let trace = device.restart_trace();
    let is_flush = |entry: &&TraceEntry| matches!(entry, TraceEntry::Flush);
    let flushes = trace.entries().iter().filter(is_flush).count();
    (trace.len() - flushes, flushes)
}

/// Without changes nothing is written, whatever passes; a change waits for its interval.
#[test]
fn nothing_is_written_before_it_is_due() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::None] {
        let (device, view) = volume(engine);
        assert!(!view.pass_intervals(1000).unwrap(), "{engine:?}");
        create(&view, "a");
        assert!(!view.pass_intervals(0).unwrap(), "{engine:?}");
        let (writes, flushes) = count(&device);
        let records = usize::from(engine == Engine::Journal);
        assert!(
            writes <= 2 * records && flushes <= records,
            "{engine:?}: {writes} writes, {flushes} flushes"
        );
        view.close().unwrap();
    }
}

/// A generation when an interval has passed; under `journal` a record then, and a checkpoint after six.
/// `none` flushes nothing.
#[test]
fn what_is_due_is_done() {
    for (engine, intervals) in [(Engine::Snapshot, 1), (Engine::Journal, 6), (Engine::None, 1)] {
        let (device, view) = volume(engine);
        create(&view, "a");
        for passed in 1..intervals {
            assert!(!view.pass_intervals(passed).unwrap(), "{engine:?}: no checkpoint after {passed}");
        }
        if intervals > 1 {
            assert_eq!(count(&device), (1, 1), "{engine:?}: one record has all, and the next nothing");
        }
        assert!(view.pass_intervals(intervals).unwrap(), "{engine:?}");
        let (writes, flushes) = count(&device);
        assert!(writes > 0, "{engine:?}");
        assert_eq!(flushes > 0, engine != Engine::None, "{engine:?}: {flushes} flushes");
        assert!(!view.pass_intervals(1000).unwrap(), "{engine:?}: nothing is left");
        view.close().unwrap();
    }
}
