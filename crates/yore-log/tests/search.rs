//! Promises of finding the position of a log whose owner has lost it: what counts is given again, all of it
//! and in order; what was torn at the end is not; and a log in which nothing counts is empty.

use std::sync::Arc;

use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_log::{find_position, recover, End, Log, LogId, Position, Record, Region, Searched};

const ID: LogId = LogId(9);
const RING: Region = Region { first_block: 5, blocks: 28 };

fn numbers(device: &Arc<dyn Device>, from: Position) -> Vec<u64> {
    let mut log = recover(device.clone(), RING, ID, from).unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = log.next_record().unwrap() {
        numbers.push(record.number.0);
    }
    numbers
}

fn search(device: &Arc<dyn Device>, above: u64) -> Vec<u64> {
    let position = find_position(device.clone(), RING, ID, |record: &Record<'_>| record.number.0 > above);
    numbers(device, position.unwrap().position)
}

fn append(log: &Log, count: u64) {
    for n in 0..count {
        let number = log.append(&[&vec![n as u8; 900 * (n as usize % 9)]]).unwrap();
        log.force(number).unwrap();
    }
}

#[test]
fn what_counts_is_given_again() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(40 * BLOCK_SIZE as u64));
    let nothing = Searched { position: Position::start(ID), session: None };
    assert_eq!(find_position(device.clone(), RING, ID, |_| true).unwrap(), nothing);
    let log = Log::open(device.clone(), RING, ID, 1, End::at(Position::start(ID))).unwrap();
    // Several laps.
    for _ in 0..20 {
        append(&log, 5);
        log.release(log.position()).unwrap();
    }
    append(&log, 4);
    let end = log.position();
    assert_eq!(search(&device, 100), [101, 102, 103, 104]);
    assert_eq!(search(&device, 102), [103, 104]);
    let none_counts = Searched { position: end, session: Some(1) };
    assert_eq!(find_position(device.clone(), RING, ID, |_| false).unwrap(), none_counts);
    drop(log);

    // What was torn at the end is not there, and what is before it is.
    let last = (RING.first_block + (end.block + RING.blocks - 1) % RING.blocks) * BLOCK_SIZE as u64;
    let flip = || {
        let mut block = vec![0; BLOCK_SIZE];
        device.read_at(last, &mut block).unwrap();
        block[BLOCK_SIZE - 1] ^= 1;
        device.write_at(last, &block).unwrap();
    };
    flip();
    assert_eq!(search(&device, 100), [101, 102, 103]);
    flip();

    // A session that has records that count makes those before it count no longer.
    let mut found = recover(device.clone(), RING, ID, end).unwrap();
    assert!(found.next_record().unwrap().is_none());
    let log = Log::open(device.clone(), RING, ID, 2, found.end().unwrap()).unwrap();
    assert_eq!(search(&device, 100), [101, 102, 103, 104]);
    append(&log, 2);
    assert_eq!(search(&device, 100), [105, 106]);
    assert_eq!(search(&device, 105), [106]);
}
