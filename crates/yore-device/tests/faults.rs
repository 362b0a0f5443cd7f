//! Promises that each fault strikes the request it names, and does what it says and nothing more.

mod common;

use common::{at, pattern, read};
use yore_device::simulated::{CrashPlan, Fault, FaultPlan, SimulatedDevice};
use yore_device::{AlignedBuf, Device, DeviceError, MemoryDevice, WriteRequest};

fn device() -> SimulatedDevice {
    SimulatedDevice::new(MemoryDevice::from_bytes(&pattern(1, 16)))
}

fn is_io(result: Result<(), DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Io { source, .. }) if source.errno == libc::EIO)
}

#[test]
fn errors_strike_the_nth_request() {
    let device = device();
    let plan = FaultPlan::none()
        .and(Fault::ReadError { nth: 2 })
        .and(Fault::WriteError { nth: 1 })
        .and(Fault::FlushError { nth: 2 });
    device.fail(plan.clone());
    let mut block = AlignedBuf::zeroed(1);
    device.read_at(0, &mut block).unwrap();
    assert!(is_io(device.read_at(0, &mut block)));
    device.read_at(0, &mut block).unwrap();
    assert!(is_io(device.write_at(0, &pattern(2, 1))));
    assert_eq!(read(&device, 0, 1), block, "a failed write stored nothing");
    device.write_at(0, &pattern(2, 1)).unwrap();
    device.flush().unwrap();
    device.write_at(at(1), &pattern(3, 1)).unwrap();
    assert!(is_io(device.flush()));
    // The failed flush made nothing durable: a crash can still lose what came after the good one.
    let trace = device.trace();
    let lost = trace
        .crash_states(&CrashPlan::default())
        .any(|case| case.after_entry() == trace.len() && read(&case.materialise(), 1, 1) != pattern(3, 1));
    assert!(lost);
    assert_eq!(device.struck(), [plan.faults[0], plan.faults[1], plan.faults[2]]);
    device.fail(FaultPlan::none());
    device.flush().unwrap();
    assert!(device.struck().is_empty());
}

/// The requests of a batch are counted one by one, and those before the fault are stored.
#[test]
fn a_write_of_a_batch_fails() {
    let device = device();
    device.fail(Fault::WriteError { nth: 3 }.into());
    let data: Vec<_> = (0..4).map(|seed| pattern(seed + 50, 1)).collect();
    let writes: Vec<_> =
        (0..4).map(|block| WriteRequest { offset: at(block), data: &data[block as usize] }).collect();
    assert!(is_io(device.write_batch(&writes)));
    assert_eq!(device.struck().len(), 1);
    assert_eq!(device.entries(), 2);
}

#[test]
fn lost_and_misdirected_writes_are_reported_as_done() {
    let device = device();
    let plan = FaultPlan::none()
        .and(Fault::LostWrite { nth: 1 })
        .and(Fault::MisdirectedWrite { nth: 2, to: at(9) })
        .and(Fault::MisdirectedWrite { nth: 3, to: at(16) });
    device.fail(plan);
    let before = device.snapshot();
    device.write_at(0, &pattern(2, 1)).unwrap();
    assert_eq!(device.snapshot().first_difference(&before), None);
    device.write_at(at(1), &pattern(3, 1)).unwrap();
    assert_eq!(device.snapshot().first_difference(&before), Some(at(9)));
    assert_eq!(read(&device, 9, 1), pattern(3, 1));
    device.write_at(at(2), &pattern(4, 1)).unwrap();
    assert_eq!(device.entries(), 1, "only the misdirected one that landed is in the trace");
    assert_eq!(device.struck().len(), 3);
    // No crash brings a lost write back.
    device.flush().unwrap();
    let trace = device.trace();
    for case in trace.crash_states(&CrashPlan::default()) {
        assert_eq!(read(&case.materialise(), 0, 1), read(&before, 0, 1));
    }
}

#[test]
fn a_flipped_bit_is_in_the_answer_only() {
    let device = device();
    let good = read(&device, 0, 2);
    device.fail(Fault::FlippedBit { nth: 1, bit: 8 * 4096 + 3 }.into());
    let mut wrong = read(&device, 0, 2);
    assert_eq!(wrong[4096] ^ good[4096], 1 << 3);
    wrong[4096] ^= 1 << 3;
    assert_eq!(wrong, good);
    assert_eq!(read(&device, 0, 2), good);
}

#[test]
fn ranges_that_cannot_be_read() {
    let device = device();
    device.fail(Fault::UnreadableRange { offset: at(4) + 512, len: 512 }.into());
    for block in 0..16 {
        let failed = is_io(device.read_at(at(block), &mut AlignedBuf::zeroed(1)));
        assert_eq!(failed, block == 4);
    }
    assert!(is_io(device.read_at(at(3), &mut AlignedBuf::zeroed(2))));
    assert!(is_io(device.read_at(at(4), &mut AlignedBuf::zeroed(2))));
    device.read_at(at(2), &mut AlignedBuf::zeroed(2)).unwrap();
}

#[test]
fn full_and_dead_devices() {
    let device = device();
    let block = pattern(2, 1);
    device.fail(Fault::Full { after_writes: 2 }.into());
    device.write_at(0, &block).unwrap();
    device.write_at(at(1), &block).unwrap();
    for _ in 0..2 {
        let result = device.write_at(at(2), &block);
        assert!(matches!(result, Err(DeviceError::NoSpace { .. })));
    }
    device.read_at(0, &mut AlignedBuf::zeroed(1)).unwrap();
    device.flush().unwrap();
    device.fail(Fault::Dead { after_writes: 1 }.into());
    device.read_at(0, &mut AlignedBuf::zeroed(1)).unwrap();
    device.write_at(0, &block).unwrap();
    assert!(is_io(device.write_at(0, &block)));
    assert!(is_io(device.read_at(0, &mut AlignedBuf::zeroed(1))));
    assert!(is_io(device.flush()));
    assert!(is_io(device.discard(0, 4096)));
}
