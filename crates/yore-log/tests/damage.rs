//! Promises of a log whose medium is bad. If something durable is no longer there, the error names it, and
//! the records before it are given. No bytes make recovery panic, run for ever, or take more memory than a
//! batch needs.

mod common;

use std::sync::Arc;

use common::{contents, Random};
use proptest::prelude::*;
use yore_device::simulated::{Fault, SimulatedDevice};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_log::{recover, End, Log, LogError, LogFile, LogId, Lsn, Position, Region};

const ID: LogId = LogId(0xdada);

/// Goes through a log; returns how many records come before the end or the error.
fn walk(device: Arc<dyn Device>, region: Region, from: Position) -> (u64, Result<End, LogError>) {
    let mut recovered = match recover(device, region, ID, from) {
        Ok(recovered) => recovered,
        Err(error) => return (0, Err(error)),
    };
    let mut count = 0;
    loop {
        match recovered.next_record() {
            Ok(Some(record)) => {
                assert!(record.number.0 >= from.number.0);
                count += 1;
            }
            Ok(None) => return (count, recovered.end()),
            Err(error) => {
                // The error stays.
                assert_eq!(recovered.next_record().unwrap_err(), error);
                return (count, Err(error));
            }
        }
    }
}

/// A log of several batches of several records, and where each batch begins: (block of the device, first
/// record).
fn written(device: Arc<dyn Device>, region: Region, start: Position, batches: u64) -> (Log, Vec<(u64, u64)>) {
    let log = Log::open(device, region, ID, 1, End::at(start)).unwrap();
    // The start of the session.
    let mut written_at = vec![(region.first_block + start.block, 1)];
    for n in 0..batches {
        let length = [100, 5000, 4096, 30, 9000][n as usize % 5];
        log.append(&[&contents(n, length)]).unwrap();
        log.append(&[b"small"]).unwrap();
        let at = log.position();
        written_at.push((region.first_block + at.block, at.number.0 - 2));
        log.force_all().unwrap();
    }
    (log, written_at)
}

/// Any flipped bit in any batch but the last is damage at that batch, and the records before it are given. In
/// the last batch it is taken for the end, as it must be.
#[test]
fn a_flipped_bit_is_damage() {
    let region = Region { first_block: 3, blocks: 16 };
    let device = Arc::new(MemoryDevice::new(20 * BLOCK_SIZE as u64));
    // The log goes around the end of the ring.
    let start = Position { block: 12, ..Position::start(ID) };
    let (log, written_at) = written(device.clone(), region, start, 5);
    let end_block = region.first_block + log.position().block;
    for (n, &(block, number)) in written_at.iter().enumerate() {
        let next = written_at.get(n + 1).map_or(end_block, |position| position.0);
        let length = (next + region.blocks - block) % region.blocks;
        for byte in (0..length * BLOCK_SIZE as u64).step_by(7) {
            let position = (block - region.first_block + byte / BLOCK_SIZE as u64) % region.blocks;
            let offset = (position + region.first_block) * BLOCK_SIZE as u64;
            let damaged = device.snapshot();
            let mut bytes = [0; BLOCK_SIZE];
            damaged.read_at(offset, &mut bytes).unwrap();
            bytes[byte as usize % BLOCK_SIZE] ^= 1 << (byte % 8);
            damaged.write_at(offset, &bytes).unwrap();
            let (count, end) = walk(Arc::new(damaged), region, start);
            assert_eq!(count, number - 1, "batch {n} byte {byte}");
            match end {
                Ok(end) => {
                    assert_eq!(n, written_at.len() - 1, "batch {n} byte {byte}");
                    assert_eq!(end.position.number, Lsn(number));
                }
                Err(LogError::Damaged { block: found, number: at, .. }) => {
                    assert!(n < written_at.len() - 1);
                    assert_eq!((found, at), (block, Lsn(number)), "batch {n} byte {byte}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// A write that the device never stored, or stored elsewhere, is damage as soon as another batch follows.
/// This holds in the first lap, where zeros are in its place, and in later laps, where older batches are.
#[test]
fn a_lost_write_is_damage() {
    for lost in 1..60 {
        for fault in [
            Fault::LostWrite { nth: lost },
            Fault::MisdirectedWrite { nth: lost, to: 14 * BLOCK_SIZE as u64 },
        ] {
            let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 * BLOCK_SIZE as u64)));
            let region = Region { first_block: 0, blocks: 14 };
            let log = Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap();
            device.fail(fault.into());
            while device.struck().is_empty() {
                let from = log.position();
                log.append(&[&contents(lost, 3000)]).unwrap();
                if log.force_all().is_err() {
                    unreachable!("a lost write is reported as done");
                }
                if device.struck().is_empty() {
                    log.release(from).unwrap();
                }
            }
            let from = log.oldest();
            let bad = log.next_number().0 - 1;
            for more in 0..4 {
                let (_, end) = walk(device.clone(), region, from);
                let first_start = lost == 1;
                match end {
                    // The lost batch is the last one.
                    Ok(_) => assert!(more == 0 && !first_start, "{fault:?} after {more}"),
                    Err(LogError::Damaged { number, .. }) => {
                        assert!(more > 0 || first_start);
                        assert_eq!(number, Lsn(bad), "{fault:?} after {more}");
                    }
                    Err(other) => panic!("{other}"),
                }
                log.append(&[b"more"]).unwrap();
                log.force_all().unwrap();
            }
        }
    }
}

/// A later batch need not be whole to prove that the one before it was durable.
#[test]
fn a_torn_batch_after_a_damaged_one_is_damage() {
    let region = Region { first_block: 0, blocks: 16 };
    let device = Arc::new(MemoryDevice::new(16 * BLOCK_SIZE as u64));
    let start = Position::start(ID);
    let (log, written_at) = written(device.clone(), region, start, 3);
    drop(log);
    let mut block = [0; BLOCK_SIZE];
    for (block_number, byte) in [(written_at[2].0, 600), (written_at[3].0, 600)] {
        device.read_at(block_number * BLOCK_SIZE as u64, &mut block).unwrap();
        block[byte] ^= 1;
        device.write_at(block_number * BLOCK_SIZE as u64, &block).unwrap();
    }
    let (_, end) = walk(device, region, start);
    assert!(matches!(end, Err(LogError::Damaged { number: Lsn(3), .. })), "{end:?}");
}

/// If the ring has overwritten a position since, or the position belongs to another log, it is not taken for
/// the end as long as the log goes on.
#[test]
fn a_stale_position_is_damage() {
    let region = Region { first_block: 0, blocks: 9 };
    let device = Arc::new(MemoryDevice::new(9 * BLOCK_SIZE as u64));
    let start = Position::start(ID);
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    let mut positions = vec![];
    for n in 0..30 {
        positions.push(log.position());
        log.append(&[&contents(n, 2000)]).unwrap();
        log.force_all().unwrap();
        log.release(log.position()).unwrap();
    }
    for (n, position) in positions.iter().enumerate() {
        let (count, end) = walk(device.clone(), region, *position);
        match end {
            Ok(end) => assert!(n >= 21 && end.position.number == Lsn(31) && count == 30 - n as u64, "{n}"),
            Err(LogError::Damaged { .. }) => assert!(n < 21 && count == 0, "{n} {count}"),
            Err(other) => panic!("{other}"),
        }
    }
    let wrong_chain = Position { chain: 1, ..positions[25] };
    assert!(matches!(walk(device, region, wrong_chain).1, Err(LogError::Damaged { .. })));
}

/// A read by number reports a bad batch, too, and others can still be read.
#[test]
fn reading_by_number_verifies() {
    let region = Region { first_block: 0, blocks: 16 };
    let device = Arc::new(MemoryDevice::new(16 * BLOCK_SIZE as u64));
    let (log, written_at) = written(device.clone(), region, Position::start(ID), 4);
    let (block, number) = written_at[2];
    let mut bytes = [0; BLOCK_SIZE];
    device.read_at(block * BLOCK_SIZE as u64, &mut bytes).unwrap();
    bytes[200] ^= 4;
    device.write_at(block * BLOCK_SIZE as u64, &bytes).unwrap();
    for n in 1..=8 {
        match log.read(Lsn(n)) {
            Ok(record) => assert!(record.number == Lsn(n) && !(number..number + 2).contains(&n)),
            Err(LogError::Damaged { block: found, number: at, .. }) => {
                assert!(found == block && at == Lsn(n) && (number..number + 2).contains(&n));
            }
            Err(other) => panic!("{other}"),
        }
    }
    let read: Vec<_> = log.records(Lsn(1)).collect();
    assert_eq!(read.len() as u64, number);
    assert!(read.last().is_some_and(|last| last.is_err()));
}

/// An unmounted stand-alone log knows how far it reached: even its last batch cannot be lost unseen. If one
/// anchor is damaged, the other one stands in for it as long as it can.
#[test]
fn an_unmounted_log_file_knows_its_end() {
    let device = Arc::new(MemoryDevice::new(16 * BLOCK_SIZE as u64));
    let region = Region::whole(&*device);
    let log = LogFile::create(device.clone(), region).unwrap();
    log.append_sync(&[b"one"]).unwrap();
    log.append_sync(&[b"two"]).unwrap();
    let crashed = device.snapshot();
    let last = 2 + log.log().position().block - 1;
    log.unmount().unwrap();
    let flip = |device: MemoryDevice, block: u64| {
        let mut bytes = [0; BLOCK_SIZE];
        device.read_at(block * BLOCK_SIZE as u64, &mut bytes).unwrap();
        bytes[90] ^= 1;
        device.write_at(block * BLOCK_SIZE as u64, &bytes).unwrap();
        Arc::new(device)
    };
    let found = LogFile::mount(flip(device.snapshot(), last), region).unwrap_err();
    assert!(matches!(found, LogError::Damaged { number: Lsn(2), .. }), "{found}");
    // Without the unmount it was just the end.
    assert_eq!(LogFile::mount(flip(crashed, last), region).unwrap().iter().count(), 1);
    for anchor in 0..2 {
        let log = LogFile::mount(flip(device.snapshot(), anchor), region).unwrap();
        assert_eq!(log.iter().count(), 2);
        assert_eq!(log.append_sync(&[b"three"]).unwrap(), Lsn(3));
    }
    let none = flip(Arc::into_inner(flip(device.snapshot(), 0)).unwrap(), 1);
    assert!(matches!(LogFile::mount(none, region), Err(LogError::NotALog { .. })));
}

/// Makes the checksums of a batch header right again, as somebody who forges bytes could.
fn reseal(bytes: &mut [u8], block: usize) {
    let start = block * BLOCK_SIZE;
    let length = u32::from_le_bytes(bytes[start + 24..start + 28].try_into().unwrap()) as usize;
    let blocks = length.div_ceil(BLOCK_SIZE).max(1);
    let end = (start + blocks * BLOCK_SIZE).min(bytes.len());
    let body = crc32c::crc32c(&bytes[start + 80..end]);
    bytes[start + 16..start + 20].copy_from_slice(&body.to_le_bytes());
    bytes[start + 12..start + 16].fill(0);
    let header = crc32c::crc32c(&bytes[start..start + 80]);
    bytes[start + 12..start + 16].copy_from_slice(&header.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Reading ends with an end or an error, and gives no more records than there can be. The logs are real
    /// ones with wild changes and right checksums, read from real and from wild positions, and bytes that are
    /// not a log at all.
    #[test]
    fn any_bytes_end_in_an_end_or_an_error(
        seed in any::<u64>(),
        changes in 0..12u64,
        position in proptest::option::of(any::<[u8; 32]>()),
        extreme in any::<bool>(),
    ) {
        let mut random = Random::new(seed);
        let region = Region { first_block: 0, blocks: 12 };
        let device = Arc::new(MemoryDevice::new(12 * BLOCK_SIZE as u64));
        let start = Position { block: random.below(12), ..Position::start(ID) };
        let (log, written_at) = written(device.clone(), region, start, 1 + random.below(4));
        drop(log);
        let mut bytes = device.to_bytes();
        for _ in 0..changes {
            let block = written_at[random.below(written_at.len() as u64) as usize].0 as usize;
            // A byte of the batch's header, or of the first record's.
            let at = block * BLOCK_SIZE + random.below(104) as usize;
            bytes[at] = match extreme { true => 0xff * random.below(2) as u8, false => random.next() as u8 };
            if random.below(4) > 0 {
                reseal(&mut bytes, block);
            }
        }
        if random.below(10) == 0 {
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        let from = position.map_or(start, |bytes| {
            let position = Position::from_bytes(&bytes);
            Position { block: position.block % 16, number: Lsn(position.number.0 % 4), ..position }
        });
        let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let (count, end) = walk(device.clone(), region, from);
        prop_assert!(count <= 12 * BLOCK_SIZE as u64 / 24);
        if let Ok(end) = end {
            // An accepted log can be appended to, and read.
            let log = match Log::open(device.clone(), region, ID, u64::MAX, end) {
                Ok(log) => log,
                Err(LogError::SessionNotNew { .. } | LogError::BadPosition { .. }) => return Ok(()),
                Err(other) => panic!("{other}"),
            };
            for record in log.records(Lsn(0)) {
                record.unwrap();
            }
            match log.append(&[b"more"]) {
                Ok(number) => log.force(number).unwrap(),
                Err(LogError::Full { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        // As a stand-alone log it is refused or not; it must not panic.
        let _ = LogFile::mount(device, region);
    }
}
