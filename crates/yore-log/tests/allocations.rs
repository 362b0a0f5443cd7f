//! Promises that appending and forcing allocate no memory once the buffers have grown.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use yore_device::{Device, DeviceError};
use yore_log::{End, Log, LogError, LogId, Position, Region};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of allocations for each thread.
struct Counting;

// SAFETY: everything is passed on to the system's allocator unchanged; by default, growing and zeroing use
// these two functions.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending no longer counts.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout, so from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A device that stores nothing and allocates nothing.
#[derive(Debug)]
struct Nothing;

impl Device for Nothing {
    fn size(&self) -> u64 {
        8 << 20
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "nothing".to_string()
    }
    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        buf.fill(0);
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn a_force_allocates_nothing() {
    let device = Arc::new(Nothing);
    let region = Region::whole(&*device);
    let id = LogId(1);
    let log = Log::open(device, region, id, 1, End::at(Position::start(id))).unwrap();
    let data = vec![5; 200 << 10];
    let round = |count: u64| {
        for n in 0..count {
            let length = [100, 6 << 10, 200 << 10][n as usize % 3];
            let number = match log.append(&[&data[..length]]) {
                Err(LogError::Full { .. }) => {
                    log.release(log.position()).unwrap();
                    log.append(&[&data[..length]]).unwrap()
                }
                other => other.unwrap(),
            };
            log.force(number).unwrap();
        }
        ALLOCATIONS.get()
    };
    let before = round(2000);
    assert!(before > 0);
    assert_eq!(round(2000), before);
}
