//! The bodies of the fuzzers, and their input.
//!
//! `format` takes blocks as they are, [`mount`] takes decisions that change a sound volume, and [`log`] takes
//! changes to the bytes of a log. All three promise to end without a panic (R15).

use crate::{damage, exercise, mend, sample, survey, Chance};
use std::sync::{Arc, OnceLock};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_format::*;
use yore_log::{recover, End, Log, LogFile, LogId, Position, Region};

/// A fuzzer: its name, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// The fuzzers.
pub const TARGETS: [Target; 3] = [("format", format), ("mount", mount), ("log", log)];

/// Every decoder and verifier of the format, on a block as it is and sealed as if it were sound.
pub fn format(bytes: &[u8]) {
    let mut block = Box::new(ZERO_BLOCK);
    let len = bytes.len().min(BLOCK_SIZE);
    block[..len].copy_from_slice(&bytes[..len]);
    decode(&block);
    let generation = Generation(BlockHeader::of(&block).generation.get());
    seal(&mut block, generation);
    decode(&block);
    let crc = checksum_except(&block[..], 16);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    for slot in [0, 1] {
        drop(Superblock::decode(&block, slot));
        drop(Superblock::decode_with(&block, slot, Features::all()));
    }
    drop(decode_slots([&block, &ZERO_BLOCK]));
    cells(bytes);
    intent(bytes);
}

/// A record of the intent log: as it is, and behind a right magic.
fn intent(bytes: &[u8]) {
    drop(Intent::decode(bytes));
    if bytes.len() > 8 {
        let mut record = bytes.to_vec();
        record[..8].copy_from_slice(b"YOREint1");
        drop(Intent::decode(&record));
    }
}

/// Errors are expected; whatever decodes without one must encode again.
fn decode(block: &Block) {
    let header = BlockHeader::of(block);
    let addr = MetaAddr(header.addr.get());
    drop(verify_checksum(block));
    drop(verify_header(block, addr, header.volume.get(), BlockNo(7)));
    drop(verify_header_with(block, addr, header.volume.get(), BlockNo(7), Features::all()));
    for features in [Features::SUPPORTED, Features::all()] {
        if let Ok(header) = ZoneHeader::decode_with(block, features) {
            let again = ZoneHeader::decode_with(&header.encode(header.generation).0, features);
            assert!(again.is_ok(), "a zone header that encodes to one that does not verify");
        }
        drop(HistoryRoots::verify_with(block, features));
    }
    drop(CountTableRef::new(block).verify());
    drop(ChecksumTableRef::new(block).verify());
    drop(ZoneTableRef::new(block).verify());
    drop(BitmapRef::new(block).verify());
    if Inode::verify_block(block).is_ok() {
        for slot in 0..INODES_PER_BLOCK {
            if let Ok(inode) = Inode::decode(Inode::slot(block, slot)) {
                drop(ExtentValue::decode_inline(&inode));
            }
        }
    }
    let node = NodeRef::new(block);
    if node.verify().is_ok() {
        for i in 0..node.count() {
            cells(node.value(i));
            index_cells(node.key(i), node.value(i));
            if node.level() > 0 {
                drop(node.child(i));
            }
        }
    }
}

fn cells(bytes: &[u8]) {
    drop(DirEntry::decode(bytes));
    drop(DirEntry::decode_prefix(bytes));
    drop(ExtentValue::decode(bytes));
    drop(XattrCell::decode(bytes));
    drop(decode_symlink_chunk(bytes));
    drop(EventRow::decode(bytes));
    drop(Version::decode(InodeNo(16), EventNo(5), bytes));
    drop(PastName::decode(EventNo(5), bytes));
    if let Ok(row) = AnnalsRow::decode(EventNo(1 << 20), bytes, &[7; 16]) {
        assert_eq!(&row.encode()[..], bytes, "a row with two encodings");
    }
    if let Ok(row) = EventRow::decode_with(bytes, Features::ANNALS) {
        if bytes.len() < EVENT_FIXED_BYTES {
            assert_eq!(row.encode_with(Features::ANNALS), bytes, "a short event with two encodings");
        }
    }
    for width in [10, 11, 17, 19] {
        if let Some((key, value)) = bytes.split_at_checked(width) {
            index_cells(key, value);
        }
    }
}

/// Cells of the indexes of the annals and of the span table: what decodes has one encoding.
fn index_cells(key: &[u8], value: &[u8]) {
    drop(AnnalsKey::decode(key).map(|k| assert_eq!(k.encode(), key)));
    if let Ok(cell) = InodeIndexCell::decode(key, value) {
        assert_eq!((&InodeIndexCell::key(cell.inode, cell.end)[..], &cell.value()[..]), (key, value));
    }
    if let Ok(cell) = NameIndexCell::decode(key, value) {
        let again = NameIndexCell::key(cell.directory, cell.cookie, cell.death);
        assert_eq!((&again[..], &cell.value()[..]), (key, value));
    }
    if let Ok(cell) = SpanCell::decode(key, value) {
        let again = SpanCell::key(cell.class, cell.first, cell.last);
        assert_eq!((&again[..], &cell.value()[..]), (key, value));
    }
}

/// A sound volume with a few changes, each block sealed, used in all ways. The first byte selects the volume,
/// and whether the chain of checksums is repaired.
pub fn mount(bytes: &[u8]) {
    let mut chance = Chance::of(bytes);
    let choice = chance.below(256);
    let number = if choice & 4 == 4 { 2 } else { choice & 1 };
    let (sound, sites) = &volumes()[number];
    let device = sound.snapshot();
    for _ in 0..4 {
        if chance.is_spent() {
            break;
        }
        let site = chance.pick(sites);
        let mut block = survey::read(&device, site.block);
        damage::any(&mut chance, &device, sites, site, &mut block);
        damage::write(&device, site, &mut block);
    }
    if choice & 2 == 0 {
        mend(&device);
    }
    exercise::all(&device);
}

type Sample = (MemoryDevice, Vec<survey::Site>);

fn volumes() -> &'static [Sample; 3] {
    static VOLUMES: OnceLock<[Sample; 3]> = OnceLock::new();
    VOLUMES.get_or_init(|| {
        [sample::small(), sample::with_further_zones(), Ok(sample::with_old_trees())].map(|made| {
            let device = made.expect("a sample volume can be made in memory");
            let sites = survey::sites(&device);
            (device, sites)
        })
    })
}

const LOG_BLOCKS: u64 = 24;

/// A log with some records and a few changed bytes: recovered as an embedded log, and mounted as a separate
/// one.
pub fn log(bytes: &[u8]) {
    let mut chance = Chance::of(bytes);
    let (embedded, alone, position) = logs();
    for (number, sound) in [embedded, alone].into_iter().enumerate() {
        let device = sound.snapshot();
        let mut changes = chance.clone();
        for _ in 0..6 {
            if changes.is_spent() {
                break;
            }
            change_log(&mut changes, &device);
        }
        let region = Region::whole(&device);
        let device: Arc<dyn Device> = Arc::new(device);
        match number {
            0 => drop(replay(device, region, *position)),
            _ => use_log(device, region),
        }
    }
    // A position of any bytes.
    let mut raw = [0; 32];
    raw.iter_mut().for_each(|byte| *byte = chance.below(256) as u8);
    let device: Arc<dyn Device> = Arc::new(embedded.snapshot());
    let region = Region::whole(&*device);
    let block = position.block;
    let [n, sequence, _, chain] =
        [0, 8, 16, 24].map(|at| u64::from_le_bytes(raw[at..at + 8].try_into().expect("8")));
    drop(replay(device, region, Position { number: yore_log::Lsn(n), sequence, block, chain }));
}

const LOG: LogId = LogId(0x1234_5678);

fn replay(device: Arc<dyn Device>, region: Region, from: Position) -> Option<End> {
    let mut recovered = recover(device, region, LOG, from).ok()?;
    while let Some(record) = recovered.next_record().ok()? {
        assert!(record.contents.len() <= yore_log::BATCH_BYTES_MAX);
    }
    recovered.end().ok()
}

fn use_log(device: Arc<dyn Device>, region: Region) {
    let Ok(log) = LogFile::mount(device, region) else { return };
    let mut count = 0;
    for record in log.iter() {
        let Ok(record) = record else { break };
        drop(log.read(record.number));
        count += 1;
        assert!(count <= 4096 * LOG_BLOCKS, "more records than the region has room for");
    }
    drop(log.append_sync(&[b"after the damage"]));
    drop(log.unmount());
}

/// Changes bytes of a block, or puts another block in its place; sometimes seals it again as a batch.
fn change_log(chance: &mut Chance<'_>, device: &MemoryDevice) {
    let at = chance.below(LOG_BLOCKS as usize) as u64 * BLOCK_SIZE as u64;
    let mut block = [0; BLOCK_SIZE];
    drop(device.read_at(at, &mut block));
    match chance.below(4) {
        0 => block[chance.below(BLOCK_SIZE)] = chance.number() as u8,
        1 => {
            let other = chance.below(LOG_BLOCKS as usize) as u64 * BLOCK_SIZE as u64;
            drop(device.read_at(other, &mut block));
        }
        _ => {
            let field =
                *chance.pick(&[0usize, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88, 96, 100]);
            let value = match chance.below(3) {
                0 => chance.number(),
                1 => u64::MAX >> chance.below(64),
                _ => chance.below(64) as u64,
            };
            let size = if chance.below(2) == 0 { 4 } else { 8 };
            block[field..field + size].copy_from_slice(&value.to_le_bytes()[..size]);
            // The checksums of a batch of one block: its body, then its header of 80 bytes with both in it.
            let body = checksum(&block[80..]);
            block[16..20].copy_from_slice(&body.to_le_bytes());
            let header = checksum_except(&block[..80], 12);
            block[12..16].copy_from_slice(&header.to_le_bytes());
        }
    }
    drop(device.write_at(at, &block));
}

fn logs() -> (&'static MemoryDevice, &'static MemoryDevice, &'static Position) {
    static LOGS: OnceLock<(MemoryDevice, MemoryDevice, Position)> = OnceLock::new();
    let (embedded, alone, position) = LOGS.get_or_init(|| make_logs().expect("logs can be made in memory"));
    (embedded, alone, position)
}

fn make_logs() -> std::result::Result<(MemoryDevice, MemoryDevice, Position), yore_log::LogError> {
    let new = || Arc::new(MemoryDevice::new(LOG_BLOCKS * BLOCK_SIZE as u64));
    let embedded = new();
    let region = Region::whole(&*embedded);
    let start = Position { block: 15, ..Position::start(LOG) };
    let log = Log::open(embedded.clone(), region, LOG, 1, End::at(start))?;
    let alone = new();
    let file = LogFile::create(alone.clone(), region)?;
    for (n, len) in [100usize, 5000, 30, 4096, 9000, 1].into_iter().enumerate() {
        let bytes = sample::content(n as u64, len);
        log.append(&[&bytes])?;
        log.append(&[b"small"])?;
        log.force_all()?;
        file.append_sync(&[&bytes])?;
    }
    drop((log, file));
    Ok((embedded.snapshot(), alone.snapshot(), start))
}
