//! Promises of a log whose owner keeps the position: its anchor names the log, the owner and the last
//! session; nobody else reads it; after it was given up there is none.

use std::sync::Arc;

use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_log::{
    recover, recover_closed, End, KeptLog, Log, LogError, LogFile, LogId, LogOwner, LogReader, Position,
    Region,
};

const OURS: LogOwner = LogOwner([7; 16]);

fn memory(blocks: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(blocks * BLOCK_SIZE as u64))
}

#[test]
fn the_anchor_says_which_log_this_is() {
    let device = memory(40);
    let region = Region { first_block: 3, blocks: 30 };
    let mut log = KeptLog::create(device.clone(), region, LogId(9), OURS).unwrap();
    let ring = log.ring();
    assert_eq!((log.id(), log.owner(), log.session()), (LogId(9), OURS, 1));
    assert_eq!(ring, Region { first_block: 5, blocks: 28 });
    log.begin(4).unwrap();
    let writer = Log::open(device.clone(), ring, log.id(), 4, End::at(Position::start(log.id()))).unwrap();
    let number = writer.append(&[b"ours"]).unwrap();
    writer.force(number).unwrap();

    let mut again = KeptLog::find(device.clone(), region).unwrap();
    assert_eq!((again.id(), again.owner(), again.session(), again.ring()), (LogId(9), OURS, 4, ring));
    again.begin(4).unwrap();
    assert!(matches!(again.begin(3), Err(LogError::SessionNotNew { session: 3, last: 4 })));
    let start = Position::start(LogId(9));
    let mut found = recover(device.clone(), ring, LogId(9), start).unwrap();
    assert_eq!(found.next_record().unwrap().unwrap().contents, b"ours");
    // A closed log is read in the same way, as far as it goes.
    let mut found = recover_closed(device.clone(), ring, LogId(9), start).unwrap();
    assert_eq!(found.next_record().unwrap().unwrap().contents, b"ours");
    assert!(found.next_record().unwrap().is_none());

    let shorter = Region { blocks: 29, ..region };
    assert!(matches!(KeptLog::find(device.clone(), shorter), Err(LogError::NotALog { .. })));
    again.give_up().unwrap();
    assert!(matches!(KeptLog::find(device, region), Err(LogError::NotALog { .. })));
}

#[test]
fn nobody_else_reads_it() {
    let device = memory(40);
    let region = Region::whole(&*device);
    KeptLog::create(device.clone(), region, LogId(9), OURS).unwrap();
    for refused in [
        LogFile::mount(device.clone(), region).map(drop),
        LogFile::mount_for(device.clone(), region, Some(OURS)).map(drop),
        LogReader::open(device.clone(), region).map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, LogError::Kept { owner: OURS, .. }), "{refused}");
        assert!(refused.to_string().contains("07070707-0707-0707-0707-070707070707"), "{refused}");
    }
    // And a log that somebody else keeps is none for an owner who keeps the position.
    LogFile::create_for(device.clone(), region, Some(OURS)).unwrap().unmount().unwrap();
    assert!(matches!(KeptLog::find(device, region), Err(LogError::NotALog { .. })));
}

/// An anchor that says more than such a log has is none, although its checksum fits.
#[test]
fn other_fields_are_zero() {
    for at in [48, 56, 64, 72, 80, 104, 4095] {
        let device = memory(40);
        let region = Region::whole(&*device);
        KeptLog::create(device.clone(), region, LogId(9), OURS).unwrap();
        let mut block = vec![0; BLOCK_SIZE];
        device.read_at(BLOCK_SIZE as u64, &mut block).unwrap();
        block[at] = 1;
        block[12..16].fill(0);
        let crc = crc32c::crc32c(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        device.write_at(BLOCK_SIZE as u64, &block).unwrap();
        assert!(matches!(KeptLog::find(device, region), Err(LogError::NotALog { .. })), "byte {at}");
    }
}

/// A log is not made where it has no room.
#[test]
fn too_short_a_device_is_refused() {
    let device = memory(5);
    let whole = Region::whole(&*device);
    let refused = KeptLog::create(device.clone(), whole, LogId(1), OURS).unwrap_err();
    assert!(matches!(refused, LogError::BadRegion { .. }), "{refused}");
    KeptLog::create(memory(6), Region { first_block: 0, blocks: 6 }, LogId(1), OURS).unwrap();
}
