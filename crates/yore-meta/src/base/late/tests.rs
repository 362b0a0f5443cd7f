//! Late data is part of the device's cache, by the letters of the essay.

use super::{Late, LEAST, MOST};
use crate::error::MetaError;
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{
    AlignedBuf, Device, DeviceError, MemoryDevice, Operation, ReadRequest, SharedBuf, WriteRequest,
    BLOCK_SIZE,
};

const BYTES: u64 = BLOCK_SIZE as u64;

/// What a device below is to do, and what it was asked for.
#[derive(Debug, Default)]
struct Below {
    writes: AtomicU64,
    /// Blocks written since the last flush, and how many there were at each flush.
    unflushed: AtomicU64,
    refuses: AtomicBool,
    /// Runs once, when the device has read, and before the caller has the bytes.
    after_reading: Mutex<Option<fn(&Late)>>,
    late: OnceLock<Weak<Late>>,
}

impl Hook for Below {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let reads = matches!(request, Request::Read { .. });
        match &request {
            Request::Write { .. } => {
                if self.refuses.load(Ordering::SeqCst) {
                    return Err(DeviceError::ReadOnly {
                        operation: Operation::Write,
                        device: "memory".into(),
                    });
                }
                self.writes.fetch_add(1, Ordering::SeqCst);
                self.unflushed.fetch_add(request.len() / BYTES, Ordering::SeqCst);
            }
            Request::Flush => drop(self.unflushed.swap(0, Ordering::SeqCst)),
            _ => {}
        }
        request.pass(below)?;
        if reads {
            let after = self.after_reading.lock().take();
            if let (Some(after), Some(late)) = (after, self.late.get().and_then(Weak::upgrade)) {
                after(&late);
            }
        }
        Ok(())
    }
}

type Medium = Wrapped<MemoryDevice, Below>;

fn late() -> (Arc<Medium>, Arc<Late>) {
    let below = Arc::new(Wrapped::new(MemoryDevice::new(16 << 20), Below::default()));
    let late = Arc::new(Late::new(below.clone()));
    below.hook.late.set(Arc::downgrade(&late)).unwrap();
    (below, late)
}

fn block(byte: u8) -> SharedBuf {
    SharedBuf::new(AlignedBuf::from_slice(&[byte; BLOCK_SIZE]))
}

fn accept(late: &Late, blocks: &[(u64, u8)]) -> bool {
    let bytes: Vec<(u64, SharedBuf)> = blocks.iter().map(|(no, byte)| (*no, block(*byte))).collect();
    let blocks: Vec<(u64, &SharedBuf)> = bytes.iter().map(|(no, bytes)| (*no, bytes)).collect();
    late.accept(&blocks).unwrap()
}

fn read(device: &dyn Device, no: u64) -> u8 {
    let mut buf = AlignedBuf::zeroed(1);
    device.read_at(no * BYTES, &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]), "a mixture");
    buf[0]
}

/// What was accepted is not on the device, and every kind of read shows it (L1).
#[test]
fn what_is_late_is_read_and_not_written() {
    let (below, late) = late();
    for no in 60..70 {
        late.write_at(no * BYTES, &block(9)).unwrap();
    }
    let writes = below.hook.writes.load(Ordering::SeqCst);
    assert!(accept(&late, &[(62, 1), (63, 2), (64, 3), (69, 4)]));
    assert_eq!(below.hook.writes.load(Ordering::SeqCst), writes);
    assert_eq!((read(&*below, 63), read(&*late, 63), read(&*late, 65)), (9, 2, 9));

    let expected = [9, 9, 1, 2, 3, 9, 9, 9, 9, 4];
    let mut bufs: Vec<AlignedBuf> = [3, 1, 4, 2].map(AlignedBuf::zeroed).into();
    let mut slices: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
    late.read_vectored_at(60 * BYTES, &mut slices).unwrap();
    let found: Vec<u8> = bufs.iter().flat_map(|buf| buf.chunks(BLOCK_SIZE).map(|b| b[0])).collect();
    assert_eq!(found, expected);

    let (mut first, mut second) = (AlignedBuf::zeroed(5), AlignedBuf::zeroed(5));
    late.read_batch(&mut [
        ReadRequest { offset: 65 * BYTES, buf: &mut second },
        ReadRequest { offset: 60 * BYTES, buf: &mut first },
    ])
    .unwrap();
    let found: Vec<u8> = first.chunks(BLOCK_SIZE).chain(second.chunks(BLOCK_SIZE)).map(|b| b[0]).collect();
    assert_eq!(found, expected);
}

/// A flush writes what was accepted before, and flushes behind that (L2).
#[test]
fn a_flush_writes_first() {
    let (below, late) = late();
    assert!(accept(&late, &[(5, 1), (6, 2), (700, 3)]));
    late.flush().unwrap();
    assert_eq!((read(&*below, 5), read(&*below, 6), read(&*below, 700)), (1, 2, 3));
    assert_eq!(below.hook.unflushed.load(Ordering::SeqCst), 0, "written behind the flush");
    assert!(late.is_empty());
    // With nothing late, a flush is one of the device.
    let writes = below.hook.writes.load(Ordering::SeqCst);
    late.flush().unwrap();
    assert_eq!(below.hook.writes.load(Ordering::SeqCst), writes);
}

/// An entry that goes while somebody reads was taken before the device was read (L1). A reader that asked the
/// table behind the device would have the old bytes from the device, and find no entry.
#[test]
fn an_entry_that_goes_meanwhile_is_not_missed() {
    let (below, late) = late();
    late.write_at(8 * BYTES, &block(1)).unwrap();
    assert!(accept(&late, &[(8, 2)]));
    *below.hook.after_reading.lock() = Some(|late| while late.write_some().unwrap() {});
    assert_eq!(read(&*late, 8), 2);
    assert!(late.is_empty(), "the hook has written it");
    assert_eq!(read(&*late, 8), 2);
}

/// Whoever writes a block directly writes behind what is late of it, whichever call it uses; so do erasing
/// and discarding (L3).
#[test]
fn newer_bytes_stay_on_top() {
    type Writer = fn(&Late, u64, &SharedBuf);
    let writers: [(Writer, u8); 6] = [
        (|late, no, bytes| late.write_at(no * BYTES, bytes).unwrap(), 2),
        (|late, no, bytes| late.write_vectored_at(no * BYTES, &[IoSlice::new(bytes)]).unwrap(), 2),
        (|late, no, bytes| late.write_batch(&[WriteRequest { offset: no * BYTES, data: bytes }]).unwrap(), 2),
        (|late, no, bytes| assert!(late.accept(&[(no, bytes)]).unwrap()), 2),
        (|late, no, _| late.erase(no * BYTES, BYTES).unwrap(), 0),
        (|late, no, _| late.discard(no * BYTES, BYTES).unwrap(), 0),
    ];
    for (no, (write, expected)) in writers.into_iter().enumerate() {
        let (below, late) = late();
        assert!(accept(&late, &[(no as u64, 1), (900, 3)]));
        write(&late, no as u64, &block(2));
        assert_eq!(read(&*late, no as u64), expected, "writer {no}");
        late.flush().unwrap();
        assert_eq!(read(&*below, no as u64), expected, "writer {no}, flushed");
        assert_eq!(read(&*below, 900), 3);
    }
}

/// The table takes what fits and nothing of what does not; and never more than it is said to.
#[test]
fn the_table_is_bounded() {
    let (below, late) = late();
    late.set_most(10 * MOST);
    assert!(late.has_room(MOST) && !late.has_room(MOST + 1));
    late.set_most(6);
    assert!(accept(&late, &[(1, 1), (2, 1), (3, 1), (4, 1)]));
    assert!(late.is_pressing());
    assert!(!accept(&late, &[(5, 1), (6, 1), (7, 1)]));
    assert_eq!(read(&*late, 5), 0, "a part was accepted");
    assert!(accept(&late, &[(5, 1), (6, 1)]));
    assert!(!late.has_room(1));
    assert!(late.write_some().unwrap());
    assert!(late.has_room(6) && !late.is_pressing());
    assert!(!late.write_some().unwrap());
    assert_eq!(read(&*below, 6), 1);
    // However slow the device is, some fits.
    late.set_most(MOST);
    late.pace.store(u64::MAX, Ordering::SeqCst);
    assert!(late.has_room(LEAST) && !late.has_room(LEAST + 1));
}

/// After an error each flush fails, also when the device would work again; so does writing directly over
/// what could not be written. What was accepted can still be read (L4).
#[test]
fn an_error_is_for_ever() {
    let (below, late) = late();
    assert!(accept(&late, &[(1, 7), (2, 8)]));
    below.hook.refuses.store(true, Ordering::SeqCst);
    assert!(matches!(late.write_some(), Err(MetaError::Device(_))));
    below.hook.refuses.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        assert!(late.flush().is_err());
    }
    assert!(late.write_at(BYTES, &block(1)).is_err());
    assert!(late.accept(&[(4, &block(1))]).is_err());
    assert!(late.write_some().is_err());
    assert_eq!((read(&*late, 1), read(&*late, 2)), (7, 8));
    late.write_at(3 * BYTES, &block(1)).unwrap();
}

/// Threads that accept, write, flush and read: a reader sees what was written last, and after a flush the
/// device has what was accepted before it.
#[test]
fn threads_see_one_device() {
    let (below, late) = late();
    late.set_most(40);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let (late, below) = (&late, &below);
                scope.spawn(move || {
                    // Blocks of one stripe lie in one shard; here those of the threads alternate.
                    let mine: Vec<u64> = (0..12).map(|i| i * 3 + thread).collect();
                    for round in 1..=200u8 {
                        let bytes = block(round);
                        let blocks: Vec<(u64, &SharedBuf)> = mine.iter().map(|no| (*no, &bytes)).collect();
                        if !late.accept(&blocks).unwrap() {
                            mine.iter().for_each(|no| late.write_at(no * BYTES, &bytes).unwrap());
                        }
                        mine.iter().for_each(|no| assert_eq!(read(&**late, *no), round));
                        if round % 7 == thread as u8 {
                            late.flush().unwrap();
                            mine.iter().for_each(|no| assert_eq!(read(&**below, *no), round));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                late.write_some().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
    });
    late.flush().unwrap();
    assert!(late.is_empty());
    (0..36).for_each(|no| assert_eq!(read(&*below, no), 200));
}
