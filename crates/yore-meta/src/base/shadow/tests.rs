//! A shadow shows what its generation had, by the letters of the essay.

use super::{Shadows, ZoneBlocks};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{AlignedBuf, Device, DeviceError, MemoryDevice, ReadRequest, WriteRequest, BLOCK_SIZE};

const BYTES: u64 = BLOCK_SIZE as u64;
const ZONE: u64 = 1024;

/// A device that does something between reading and returning what was read.
#[derive(Debug, Default)]
struct Below {
    after_reading: Mutex<Option<fn(&Shadows)>>,
    of: OnceLock<Weak<Shadows>>,
    refuses_reads: AtomicBool,
}

impl Hook for Below {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let reads = matches!(request, Request::Read { .. });
        if reads && self.refuses_reads.load(Ordering::SeqCst) {
            return Err(DeviceError::NotFound { device: "memory".into() });
        }
        request.pass(below)?;
        if reads {
            let then = self.after_reading.lock().take();
            if let Some(then) = then {
                then(&self.of.get().and_then(Weak::upgrade).expect("set at first"));
            }
        }
        Ok(())
    }
}

fn shadows(blocks: u64) -> (Arc<Wrapped<MemoryDevice, Below>>, Arc<Shadows>) {
    let below = Arc::new(Wrapped::new(MemoryDevice::new(blocks * BYTES), Below::default()));
    let shadows = Arc::new(Shadows::new(below.clone()));
    below.hook.of.set(Arc::downgrade(&shadows)).unwrap();
    (below, shadows)
}

fn block(fill: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(1);
    buf.fill(fill);
    buf
}

fn read(device: &dyn Device, at: u64) -> u8 {
    let mut buf = block(255);
    device.read_at(at * BYTES, &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]), "block {at} is torn");
    buf[0]
}

/// W1: whatever overwrites, and however often, zones, superblocks and the log read as they were; other blocks
/// as they are. When the shadow has ended, all is as it is.
#[test]
fn what_was_is_shown() {
    let (_, shadows) = shadows(8 * ZONE);
    let all = [0, 1, ZONE, ZONE + 7, 3 * ZONE, 4 * ZONE + 1023, 5 * ZONE, 6 * ZONE];
    all.iter().for_each(|at| shadows.write_at(at * BYTES, &block(1)).unwrap());
    let shadow = shadows.begin(vec![4 * ZONE, ZONE], 5 * ZONE..5 * ZONE + 64, 1 << 20).unwrap();
    assert!(shadows.begin(vec![], 0..0, 1).is_none(), "one at a time");
    for turn in 2..4 {
        let bytes = block(turn);
        shadows.write_at(0, &bytes).unwrap();
        shadows.write_vectored_at(BYTES, &[std::io::IoSlice::new(&bytes)]).unwrap();
        let writes = [ZONE, ZONE + 7, 3 * ZONE].map(|at| WriteRequest { offset: at * BYTES, data: &bytes });
        shadows.write_batch(&writes).unwrap();
        shadows.discard((4 * ZONE + 1000) * BYTES, 24 * BYTES).unwrap();
        shadows.erase(5 * ZONE * BYTES, 2 * ZONE * BYTES).unwrap();
    }
    for at in all {
        let expected = if [3 * ZONE, 6 * ZONE].contains(&at) { read(&*shadows, at) } else { 1 };
        assert_eq!(read(&shadow, at), expected, "block {at}");
        let mut buf = block(9);
        shadow.read_batch(&mut [ReadRequest { offset: at * BYTES, buf: &mut buf }]).unwrap();
        assert_eq!(buf[0], expected, "block {at}");
    }
    assert_eq!((read(&*shadows, ZONE), read(&*shadows, 5 * ZONE)), (3, 0));
    // Both superblocks, two blocks of the first zone, 24 of the other one, and the log.
    assert_eq!((shadow.saved().blocks, shadow.saved().in_file), (2 + 2 + 24 + 64, 0));
    assert!(shadow.write_at(0, &block(9)).is_err());
    drop(shadow);
    let shadow = shadows.begin(vec![ZONE], 0..0, 1).unwrap();
    assert_eq!((read(&shadow, ZONE), shadow.saved().blocks), (3, 0));
}

/// W2: the write that comes between a reader's reading and its look at the table is not seen.
#[test]
fn a_write_between_reading_and_looking_is_not_seen() {
    let (below, shadows) = shadows(2 * ZONE);
    shadows.write_at(ZONE * BYTES, &block(1)).unwrap();
    let shadow = shadows.begin(vec![ZONE], 0..0, 8).unwrap();
    // The first reading is the saving one, of a write that comes while it is under way.
    *below.hook.after_reading.lock() = Some(|shadows| shadows.write_at(ZONE * BYTES, &block(2)).unwrap());
    assert_eq!(read(&shadow, ZONE), 1);
    assert_eq!((read(&*shadows, ZONE), read(&shadow, ZONE)), (2, 1));
}

/// W4: slots that the generation does not use are not saved; a zone that was removed is saved whole, whoever
/// has its place by then.
#[test]
fn only_what_is_used_is_saved() {
    let (_, shadows) = shadows(4 * ZONE);
    let shadow = shadows.begin(vec![ZONE, 2 * ZONE], 0..0, 4096).unwrap();
    let mut used: ZoneBlocks = [0; 16];
    used[0] = 0b11_0100;
    shadows.zone_is_written(ZONE, || Some(used));
    shadows.zone_is_written(ZONE, || panic!("the first one counts"));
    shadows.zone_is_written(2 * ZONE, || None);
    shadows.zone_is_written(2 * ZONE, || Some([0; 16]));
    shadows.zone_is_written(3 * ZONE, || panic!("no zone of this shadow"));
    shadows.erase(ZONE * BYTES, ZONE * BYTES).unwrap();
    assert_eq!(shadow.saved().blocks, 3);
    shadows.erase(2 * ZONE * BYTES, 2 * ZONE * BYTES).unwrap();
    assert_eq!(shadow.saved().blocks, 3 + ZONE);
}

/// What does not fit into memory goes to a file, and reads the same.
#[test]
fn more_than_memory_goes_to_a_file() {
    let (_, shadows) = shadows(3 * ZONE);
    (ZONE..2 * ZONE).for_each(|at| shadows.write_at(at * BYTES, &block(at as u8)).unwrap());
    let shadow = shadows.begin(vec![ZONE], 0..0, 100).unwrap();
    shadows.erase(ZONE * BYTES, ZONE * BYTES).unwrap();
    assert_eq!((shadow.saved().blocks, shadow.saved().in_file), (ZONE, ZONE - 100));
    (ZONE..2 * ZONE).for_each(|at| assert_eq!(read(&shadow, at), at as u8));
    assert_eq!(read(&*shadows, ZONE + 500), 0);
}

/// W5: if old contents cannot be read, the write goes on, and the shadow says so. One that is broken off says
/// so, too.
#[test]
fn a_lost_shadow_says_so() {
    let (below, shadows) = shadows(3 * ZONE);
    let shadow = shadows.begin(vec![ZONE], 0..0, 100).unwrap();
    below.hook.refuses_reads.store(true, Ordering::SeqCst);
    shadows.write_at(ZONE * BYTES, &block(7)).unwrap();
    below.hook.refuses_reads.store(false, Ordering::SeqCst);
    assert_eq!(read(&*shadows, ZONE), 7);
    let mut buf = block(0);
    assert!(matches!(shadow.read_at(2 * ZONE * BYTES, &mut buf), Err(DeviceError::NotFound { .. })));
    drop(shadow);
    let shadow = shadows.begin(vec![ZONE], 0..0, 100).unwrap();
    read(&shadow, ZONE);
    shadow.break_off();
    assert!(matches!(shadow.read_at(0, &mut buf), Err(DeviceError::Io { .. })));
}

/// W1 and W2 with threads: while one overwrites blocks again and again, two readers see the first contents.
#[test]
fn readers_and_writers_at_once() {
    let (_, shadows) = shadows(2 * ZONE);
    (ZONE..ZONE + 64).for_each(|at| shadows.write_at(at * BYTES, &block(1)).unwrap());
    for seed in 0..20 {
        let first = read(&*shadows, ZONE);
        let shadow = shadows.begin(vec![ZONE], 0..0, 16).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..4u8 {
                    for at in ZONE..ZONE + 64 {
                        shadows.write_at(at * BYTES, &block(first.wrapping_add(1 + turn))).unwrap();
                    }
                }
            });
            for reader in 0..2 {
                let (shadow, mut rng) =
                    (&shadow, rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed * 2 + reader));
                scope.spawn(move || {
                    for _ in 0..400 {
                        assert_eq!(read(shadow, ZONE + rng.random_range(0..64)), first, "seed {seed}");
                    }
                });
            }
        });
    }
}
