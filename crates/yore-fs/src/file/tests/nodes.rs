//! The nodes of a file's extents: the room for those that must be copied, and who waits while they are read.

use super::super::defrag::tests::{scattered, BLOCKS};
use super::*;
use crate::file::flush::{flush_to, When};
use crate::history::read::at_time;
use crate::history::record::Taking;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use yore_core::alloc::LEAF_EXTENTS;
use yore_device::DeviceError;
use yore_format::EventMore;

/// Behind a snapshot, a file that always had a dirty page kept the room for nodes that it had long copied,
/// until a volume with little room for metadata seemed to be full. It comes back with the Op that copies
/// them.
#[test]
fn room_for_nodes_comes_back_when_they_are_copied() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let (kind, more) = (EventKind::Snapshot, EventMore::default());
    let taking = Taking { kind, name: "", held: false, more, time: None, user: None };
    at_time::take(&store, InodeNo::ROOT, taking, false).unwrap();
    let dirty = |page: u64| {
        write(&*store, &file.cell, page * PAGE, &[9; PAGE as usize], false, &mut touch).unwrap();
        store.alloc.promised_extents()
    };
    // On the way to either page are the root and a leaf.
    let nodes = |count: u64| (count * LEAF_EXTENTS) as i64;
    assert!(dirty(1) >= nodes(2));
    let both = dirty(BLOCKS - 1);
    assert!(both >= nodes(3));
    {
        let _io = file.cell.io.lock();
        flush_to(&*store, &file.cell, 2 * PAGE, When::Now).unwrap();
    }
    let left = store.alloc.promised_extents();
    assert!(left <= both - nodes(2) && left >= nodes(1), "{both}, then {left}: one leaf is not copied yet");
    assert_eq!(dirty(1), left, "the present has these nodes alone now");
    flush_all(&*store).unwrap();
    store.meta.sync().unwrap();
    check_counts(&store);
    drop(file);
    store.close().unwrap();
}

/// A device that knows whether a thread reads while it holds the state of a file.
struct Watching {
    device: MemoryDevice,
    watched: Mutex<Option<(ThreadId, Arc<InodeCell>)>>,
    reads: AtomicU64,
    with_state: AtomicU64,
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watching")
    }
}

impl Device for Watching {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.device.describe()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), DeviceError> {
        let watched = self.watched.lock().clone();
        if let Some((_, cell)) = watched.filter(|(thread, _)| *thread == std::thread::current().id()) {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let is_held = cell.state.try_write().is_none();
            self.with_state.fetch_add(u64::from(is_held), Ordering::Relaxed);
        }
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> std::result::Result<(), DeviceError> {
        self.device.write_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), DeviceError> {
        self.device.discard(offset, len)
    }
    fn flush(&self) -> std::result::Result<(), DeviceError> {
        self.device.flush()
    }
}

/// Whoever punched a hole into a file of many extents read their nodes with the file's state locked, and
/// everybody who wrote to the file waited for the device.
#[test]
fn a_hole_is_prepared_without_the_state() {
    let watching = Arc::new(Watching {
        device: MemoryDevice::new(64 * MIB),
        watched: Mutex::new(None),
        reads: AtomicU64::new(0),
        with_state: AtomicU64::new(0),
    });
    let device: Arc<dyn Device> = watching.clone();
    format(&device);
    for mode in [FallocateMode::PunchHole, FallocateMode::ZeroRange { keep_size: true }] {
        let store = open(&device, 16 * MIB);
        let file = scattered(&store, if mode == FallocateMode::PunchHole { "punched" } else { "zeroed" });
        let no = file.cell.no;
        drop(file);
        store.close().unwrap();
        let store = open(&device, 16 * MIB);
        let cell = store.cell(no).unwrap();
        *watching.watched.lock() = Some((std::thread::current().id(), cell.clone()));
        watching.reads.store(0, Ordering::Relaxed);
        fallocate(&*store, &cell, 10 * PAGE, 500 * PAGE, mode, &mut touch).unwrap();
        *watching.watched.lock() = None;
        assert!(watching.reads.load(Ordering::Relaxed) > 0, "{mode:?}");
        assert_eq!(watching.with_state.load(Ordering::Relaxed), 0, "{mode:?}");
        let expected: Vec<bool> = (0..BLOCKS).map(|page| (10..510).contains(&page)).collect();
        let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        let found: Vec<bool> = contents(&store, &cell).chunks(PAGE as usize).map(is_zero).collect();
        assert!(found == expected, "{mode:?}");
        drop(cell);
        store.close().unwrap();
    }
}
