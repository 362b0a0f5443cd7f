//! Promises of a log without crashes: what is appended is read back by number, in sequence and by recovery,
//! over many laps and in little space. Errors of the device stop the log.

mod common;

use std::sync::Arc;

use common::{contents, Random};
use yore_device::simulated::{Fault, SimulatedDevice};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_log::{
    find_position, format, recover, End, Log, LogError, LogFile, LogId, LogOwner, Lsn, OwnedRecord, Position,
    Region, BATCH_BYTES_MAX,
};

const ID: LogId = LogId(77);

fn memory(blocks: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(blocks * BLOCK_SIZE as u64))
}

fn all(device: Arc<dyn Device>, region: Region, from: Position) -> (Vec<OwnedRecord>, End) {
    let mut recovered = recover(device, region, ID, from).unwrap();
    let mut records = Vec::new();
    while let Some(record) = recovered.next_record().unwrap() {
        records.push(record.to_owned());
    }
    (records, recovered.end().unwrap())
}

/// Recovery from any position that was noted on the way gives the records whole and in the order of their
/// numbers.
#[test]
fn records_come_back_from_any_position() {
    let device = memory(200);
    let region = Region { first_block: 30, blocks: 150 };
    format(device.clone(), region).unwrap();
    let start = Position::start(ID);
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    let mut positions = vec![start];
    for n in 1..=60u64 {
        let data = contents(n, (n * 37 % 9000) as usize);
        let (a, b) = data.split_at(data.len() / 3);
        assert_eq!(log.append(&[a, b, &[]]).unwrap(), Lsn(n));
        positions.push(log.position());
        if n % 7 == 0 {
            log.force(Lsn(n - 2)).unwrap();
        }
    }
    // Not everything is durable, but all of it can be read.
    for n in 1..=60u64 {
        let record = log.read(Lsn(n)).unwrap();
        assert_eq!(record.contents, contents(n, (n * 37 % 9000) as usize));
        assert_eq!(log.position_of(Lsn(n)).unwrap().number, Lsn(n));
    }
    assert!(log.records(Lsn(0)).map(|r| r.unwrap().number).eq((1..=60).map(Lsn)));
    let next = Lsn(61);
    assert_eq!(log.read(next), Err(LogError::NotAppended { number: next, next }));
    assert_eq!(log.force(next), Err(LogError::NotAppended { number: next, next }));
    log.force_all().unwrap();
    for (n, from) in positions.iter().enumerate() {
        let (records, end) = all(device.clone(), region, *from);
        assert!(records.iter().map(|r| r.number).eq((n as u64 + 1..=60).map(Lsn)), "from {from:?}");
        assert_eq!(end.position, log.position());
        assert!(records.iter().all(|r| r.time_ns > 0));
    }
    for n in 1..=60 {
        let (records, _) = all(device.clone(), region, log.position_of(Lsn(n)).unwrap());
        assert_eq!(records[0].number, Lsn(n));
    }
    // Nothing outside of the region was touched.
    let bytes = device.to_bytes();
    assert!(bytes[..30 * BLOCK_SIZE].iter().chain(&bytes[180 * BLOCK_SIZE..]).all(|&b| b == 0));
}

/// A small ring is filled hundreds of times over, in many sessions, and keeps exactly what was not released.
#[test]
fn the_ring_goes_round() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let blocks = 4 + random.below(20);
        let device = Arc::new(MemoryDevice::new(blocks * BLOCK_SIZE as u64).turning(seed % 3));
        let region = Region::whole(&*device);
        format(device.clone(), region).unwrap();
        let mut end = End::at(Position::start(ID));
        let mut next = 1;
        let mut laps = 0;
        for session in 1..40 {
            let log = Log::open(device.clone(), region, ID, session, end).unwrap();
            log.leave_gaps();
            for _ in 0..30 {
                let length = random.below(3 * BLOCK_SIZE as u64) as usize;
                match log.append(&[&contents(next, length)]) {
                    Ok(number) => {
                        assert_eq!(number, Lsn(next));
                        next += 1;
                    }
                    Err(LogError::Full { needed, free }) => {
                        assert!(needed > free);
                        laps += 1;
                        log.force_all().unwrap();
                        // Release about half, or all.
                        let oldest = log.oldest().number.0;
                        let upto = oldest + (next - oldest).div_ceil(2) + random.below(2) * next;
                        log.release(log.position_of(Lsn(upto.min(next))).unwrap()).unwrap();
                    }
                    Err(LogError::TooLong { length: found, max }) => {
                        assert!(found == length as u64 && max < found, "{max} {found}");
                    }
                    Err(other) => panic!("seed {seed}: {other}"),
                }
                if random.below(3) == 0 {
                    log.force_all().unwrap();
                }
            }
            log.force_all().unwrap();
            let oldest = log.oldest();
            let kept: Vec<_> = log.records(Lsn(0)).map(Result::unwrap).collect();
            let (records, found) = all(device.clone(), region, oldest);
            assert_eq!(records, kept, "seed {seed} session {session}");
            assert!(records.iter().map(|r| r.number.0).eq(oldest.number.0..next));
            assert!(records.iter().all(|r| r.contents == contents(r.number.0, r.contents.len())));
            assert_eq!(found.position, log.position(), "seed {seed} session {session}");
            end = found;
        }
        assert!(laps > 20, "seed {seed}: only {laps}");
    }
}

/// On a disk with platters, what is forced has a gap behind it, until a third of the ring is left. Recovery
/// and searches find their way, and what an older lap has left in gaps is erased like everything else that is
/// not kept.
#[test]
fn a_gap_follows_what_is_forced() {
    let device = Arc::new(MemoryDevice::new(64 * BLOCK_SIZE as u64).turning(3));
    let region = Region::whole(&*device);
    device.write_at(0, &vec![0xee; 64 * BLOCK_SIZE]).unwrap();
    // It goes around the end of the ring.
    let start = Position { block: 40, ..Position::start(ID) };
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    log.leave_gaps();
    let mut steps = Vec::new();
    for n in 1..=14u64 {
        // The start of the session is one block.
        let before = if n == 1 { 41 } else { log.position().block };
        log.append(&[b"first of two"]).unwrap();
        log.append(&[&contents(n, 3000)]).unwrap();
        log.force_all().unwrap();
        steps.push((log.position().block + 64 - before) % 64);
    }
    assert_eq!(steps, [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 1, 1, 1], "1 + 10 * 4 of 42 blocks");
    let end = log.position();
    for from in [start, log.position_of(Lsn(6)).unwrap(), log.position_of(Lsn(27)).unwrap(), end] {
        let (records, found) = all(device.clone(), region, from);
        assert!(records.iter().map(|record| record.number.0).eq(from.number.0..29), "from {from:?}");
        assert_eq!(found.position, end);
    }
    let searched = find_position(device.clone(), region, ID, |record| record.number.0 >= 9).unwrap();
    assert_eq!(searched.position, log.position_of(Lsn(9)).unwrap());

    log.release(log.position_of(Lsn(9)).unwrap()).unwrap();
    log.erase_released().unwrap();
    let bytes = device.to_bytes();
    let has_something = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    assert_eq!(bytes.chunks(BLOCK_SIZE).filter(has_something).count(), 10, "the batches that are kept");
    let (records, found) = all(device.clone(), region, log.oldest());
    assert_eq!((records.len(), found.position), (20, end));
    // There is room for gaps again.
    log.append(&[b"more"]).unwrap();
    log.force_all().unwrap();
    assert_eq!(log.position().block, (end.block + 4) % 64);
}

/// Exactly what is free fits: a record of `free_bytes` is accepted, one of 8 bytes more is not.
#[test]
fn free_bytes_are_exact() {
    for seed in 0..300 {
        let device = memory(4 + seed % 12);
        let region = Region::whole(&*device);
        let log = Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..random.below(6) {
            match log.append(&[&contents(1, random.below(9000) as usize)]) {
                Ok(_) | Err(LogError::Full { .. } | LogError::TooLong { .. }) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
            if random.below(2) == 0 {
                log.force_all().unwrap();
            }
        }
        let free = log.free_bytes();
        let more = log.append(&[&vec![1; free + 8]]);
        assert!(
            matches!(more, Err(LogError::Full { .. } | LogError::TooLong { .. })),
            "seed {seed}: {free} {more:?}"
        );
        if free > 0 {
            log.append(&[&vec![1; free]]).unwrap();
            assert_eq!(log.free_blocks(), 0, "seed {seed}");
        }
    }
}

/// What is too much for a batch becomes several batches, each flushed before the next; records up to the
/// limit are accepted.
#[test]
fn large_batches_are_split() {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(80 << 20)));
    let region = Region::whole(&*device);
    let start = Position::start(ID);
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    let max = log.record_bytes_max();
    assert!(max < BATCH_BYTES_MAX && max > BATCH_BYTES_MAX - 200);
    assert!(matches!(log.append(&[&vec![0; max], &[1]]), Err(LogError::TooLong { .. })));
    let sizes = [max, 10, max, 5 << 20, 5 << 20, 7 << 20];
    for (n, size) in sizes.iter().enumerate() {
        log.append(&[&contents(n as u64, *size)]).unwrap();
    }
    log.force_all().unwrap();
    assert_eq!(log.position().sequence, 1 + 1 + 5);
    let (records, _) = all(device, region, start);
    assert_eq!(records.len(), sizes.len());
    for (n, record) in records.iter().enumerate() {
        assert!(record.contents == contents(n as u64, sizes[n]), "record {n}");
        assert!(log.read(record.number).unwrap() == *record);
    }
}

/// After an error of a write or a flush, this and every later append and force gets that error. Reads go on,
/// and what was durable before stays so. Nothing is written any more.
#[test]
fn errors_of_the_device_stick() {
    for fault in [Fault::WriteError { nth: 1 }, Fault::FlushError { nth: 1 }] {
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(1 << 20)));
        let region = Region::whole(&*device);
        let start = Position::start(ID);
        let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
        let good = log.append(&[b"good"]).unwrap();
        log.force(good).unwrap();
        let bad = log.append(&[b"bad"]).unwrap();
        device.fail(fault.into());
        let error = log.force(bad).unwrap_err();
        assert!(matches!(error, LogError::Device(_)), "{error}");
        let entries = device.entries();
        for _ in 0..2 {
            assert_eq!(log.force(bad), Err(error.clone()));
            assert_eq!(log.append(&[b"more"]), Err(error.clone()));
            assert_eq!(log.check(), Err(error.clone()));
        }
        assert_eq!(device.entries(), entries, "something was written after {fault:?}");
        log.force(good).unwrap();
        assert_eq!(log.read(good).unwrap().contents, b"good");
        assert_eq!(log.read(bad).unwrap().contents, b"bad");
        device.fail(Default::default());
        let (records, _) = all(device, region, start);
        assert_eq!(records[0].contents, b"good");
    }
}

/// A caller's mistake gives an error and changes nothing.
#[test]
fn mistakes_are_errors() {
    let device = memory(16);
    let bad = |region| Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap_err();
    for (first_block, blocks) in [(0, 17), (16, 4), (0, 3), (0, 0), (u64::MAX, 8), (8, u64::MAX)] {
        assert!(matches!(bad(Region { first_block, blocks }), LogError::BadRegion { .. }));
    }
    let region = Region::whole(&*device);
    let outside = Position { block: 16, ..Position::start(ID) };
    let refused = recover(device.clone(), region, ID, outside).unwrap_err();
    assert!(matches!(refused, LogError::BadPosition { .. }));
    let log = Log::open(device.clone(), region, ID, 5, End::at(Position::start(ID))).unwrap();
    let first = log.position();
    log.append(&[b"x"]).unwrap();
    log.force_all().unwrap();
    let after = log.position();
    for wrong in [
        Position { number: Lsn(3), ..after },
        Position { sequence: after.sequence + 1, ..after },
        Position { block: after.block + 1, ..after },
        Position { block: 99, ..after },
    ] {
        assert!(matches!(log.release(wrong), Err(LogError::BadPosition { .. })), "{wrong:?}");
    }
    log.release(first).unwrap();
    assert_eq!(log.free_blocks(), 14);
    log.release(after).unwrap();
    log.release(first).unwrap();
    assert_eq!(log.free_blocks(), 16);
    assert!(matches!(log.read(Lsn(1)), Err(LogError::Forgotten { oldest: Lsn(2), .. })));
    let (_, end) = all(device.clone(), region, first);
    let stale = Log::open(device, region, ID, 5, end).unwrap_err();
    assert_eq!(stale, LogError::SessionNotNew { session: 5, last: 5 });
}

/// A stand-alone log keeps its records over mounts, forgets what is trimmed, and goes on numbering.
#[test]
fn a_log_file_is_mounted_and_unmounted() {
    let device = memory(40);
    let region = Region { first_block: 3, blocks: 30 };
    let none = LogFile::mount(device.clone(), region).unwrap_err();
    assert!(matches!(none, LogError::NotALog { block: 3, .. }));
    let mut log = LogFile::create(device.clone(), region).unwrap();
    let mut next = 1;
    for round in 0..50 {
        for _ in 0..4 {
            assert_eq!(log.append(&[&contents(next, 5000)]).unwrap(), Lsn(next));
            next += 1;
        }
        log.append_sync(&[b"sync"]).unwrap();
        next += 1;
        log.trim(Lsn(next - 3)).unwrap();
        log.trim(Lsn(1)).unwrap();
        if round % 2 == 0 {
            log.unmount().unwrap();
        } else {
            drop(log);
        }
        log = LogFile::mount(device.clone(), region).unwrap();
        let records: Vec<_> = log.iter().map(Result::unwrap).collect();
        assert!(records.iter().map(|r| r.number.0).eq(next - 3..next), "round {round}");
        assert_eq!(log.read(Lsn(next - 1)).unwrap().contents, b"sync");
        assert_eq!(log.read(Lsn(next - 2)).unwrap().contents, contents(next - 2, 5000));
        assert!(matches!(log.read(Lsn(next - 4)), Err(LogError::Forgotten { .. })));
    }
    log.trim(Lsn(next)).unwrap();
    assert!(matches!(log.trim(Lsn(next + 1)), Err(LogError::NotAppended { .. })));
    let log = LogFile::mount(device.clone(), region).unwrap();
    assert_eq!(log.iter().count(), 0);
    assert_eq!(log.append_sync(&[b"on"]).unwrap(), Lsn(next));
    let other = Region { blocks: 29, ..region };
    assert!(matches!(LogFile::mount(device, other), Err(LogError::NotALog { .. })));
}

/// A log is mounted for the owner that it was made for and for nobody else, so two volumes cannot share one.
/// The refusal changes nothing.
#[test]
fn a_log_file_has_one_owner() {
    let device = memory(40);
    let region = Region { first_block: 3, blocks: 30 };
    let (ours, theirs) = (LogOwner([7; 16]), LogOwner([8; 16]));
    let mount = |owner| LogFile::mount_for(device.clone(), region, owner);
    let log = LogFile::create_for(device.clone(), region, Some(ours)).unwrap();
    assert_eq!(log.append_sync(&[b"ours"]).unwrap(), Lsn(1));
    log.trim(Lsn(1)).unwrap();
    log.unmount().unwrap();
    for wanted in [Some(theirs), None] {
        let refused = mount(wanted).unwrap_err();
        assert!(matches!(&refused, LogError::Foreign { found, .. } if *found == Some(ours)), "{refused}");
        assert!(refused.to_string().contains("07070707-0707-0707-0707-070707070707"), "{refused}");
    }
    let log = mount(Some(ours)).unwrap();
    assert_eq!((log.owner(), log.read(Lsn(1)).unwrap().contents), (Some(ours), b"ours".to_vec()));
    drop(log);
    // Made anew it is nobody's, and no owner's.
    LogFile::create(device.clone(), region).unwrap().unmount().unwrap();
    assert!(matches!(mount(Some(ours)), Err(LogError::Foreign { found: None, .. })));
    assert_eq!(mount(Some(LogOwner([0; 16]))).unwrap().owner(), None, "zeros are nobody");
}

/// A log that is full can be mounted again and again, and trimmed.
#[test]
fn a_full_log_file_can_be_mounted_and_emptied() {
    let device = memory(8);
    let region = Region::whole(&*device);
    let log = LogFile::create(device.clone(), region).unwrap();
    let mut last = Lsn(0);
    while let Ok(number) = log.append_sync(&[&[7; 3000]]) {
        last = number;
    }
    assert_eq!(last, Lsn(5));
    drop(log);
    for _ in 0..20 {
        let log = LogFile::mount(device.clone(), region).unwrap();
        assert!(matches!(log.append(&[b"x"]), Err(LogError::Full { .. })));
        assert_eq!(log.iter().count(), 5);
    }
    let log = LogFile::mount(device.clone(), region).unwrap();
    log.trim(Lsn(4)).unwrap();
    log.append_sync(&[b"x"]).unwrap();
    log.unmount().unwrap();
    assert_eq!(LogFile::mount(device, region).unwrap().iter().count(), 3);
}
