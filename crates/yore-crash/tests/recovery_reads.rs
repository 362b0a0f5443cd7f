//! What a mount reads behind a crash, counted on the device, for each engine (docs/ENGINES.md, "Reads of a
//! mount"). What it reads must not depend on how large the volume is, only on what the log has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use yore_device::{Device, DeviceError, MemoryDevice, BLOCK_SIZE};
use yore_format::{decode_slots, BlockHeader, BlockKind};
use yore_fs::{Durability, Engine, MkfsOptions, MountOptions, Volume};

/// A device that notes which blocks are read.
#[derive(Debug)]
struct Noting(MemoryDevice, Mutex<BTreeSet<u64>>);

impl Device for Noting {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (first, end) =
            (offset / BLOCK_SIZE as u64, (offset + buf.len() as u64).div_ceil(BLOCK_SIZE as u64));
        self.1.lock().unwrap().extend(first..end);
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
}

fn options(engine: Engine, durability: Durability) -> MountOptions {
    MountOptions {
        engine: Some(engine),
        durability,
        commit_interval: Duration::from_secs(3600),
        access_times: false,
        keep_history: true,
        ..MountOptions::default()
    }
}

/// How a crash leaves a volume of so many files, all of which were synced, and so many that were made behind
/// that.
fn left(engine: Engine, files: usize, later: usize) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let shared: Arc<dyn Device> = device.clone();
    let made = MkfsOptions { engine, log_size: Some(2 << 20), ..MkfsOptions::default() };
    Volume::create(shared.clone(), &made).unwrap().close().unwrap();
    let durability = if engine == Engine::Journal { Durability::Group } else { Durability::Async };
    let before = Volume::open(shared.clone(), &options(engine, Durability::Async)).unwrap();
    for i in 0..files {
        if i % 100 == 0 {
            before.create_dir(format!("d{}", i / 100)).unwrap();
        }
        before.write(format!("d{}/{i}", i / 100), vec![7; 300]).unwrap();
    }
    before.close().unwrap();
    let volume = Volume::open(shared, &options(engine, durability)).unwrap();
    volume.create_dir("later").unwrap();
    volume.view().checkpoint().unwrap();
    for i in 0..later {
        volume.write(format!("later/{i}"), "").unwrap();
    }
    if later > 0 && engine != Engine::Journal {
        volume.sync().unwrap();
    }
    device.snapshot()
}

/// The blocks that a mount of it reads until it serves, by what they are.
fn reads(engine: Engine, left: &MemoryDevice) -> BTreeMap<&'static str, u64> {
    let block = |number: u64| {
        let mut block = [0; BLOCK_SIZE];
        left.read_at(number * BLOCK_SIZE as u64, &mut block).unwrap();
        block
    };
    let (superblock, _, _) = decode_slots([&block(0), &block(1)]).unwrap();
    let log = superblock.log_start.0..superblock.log_start.0 + superblock.log_blocks;
    let device = Arc::new(Noting(left.snapshot(), Mutex::default()));
    let shared: Arc<dyn Device> = device.clone();
    let volume = Volume::open(shared, &options(engine, Durability::Async)).unwrap();
    let read = std::mem::take(&mut *device.1.lock().unwrap());
    drop(volume);
    let mut kinds = BTreeMap::new();
    for number in read {
        let block = block(number);
        let header = BlockHeader::of(&block);
        let kind = match number {
            0 | 1 => "superblock",
            1024 | 1025 => "spare superblock",
            _ if log.contains(&number) => "log",
            _ => BlockKind::from_repr(header.kind).map_or("other", BlockKind::name),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

/// Blocks of the log of these volumes. One that was in use is searched to its end.
const LOG: u64 = 512;

/// A mount reads these blocks and no other, however many files there are.
fn must_read(engine: Engine, later: usize, expected: &[(&'static str, u64)]) {
    for files in [300, 3000] {
        let found = reads(engine, &left(engine, files, later));
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(found, expected, "{}, {files} files, {later} later", engine.name());
    }
}

/// The superblocks, the log, and the header of the root zone, with an empty log and with one that has
/// records. The spare superblocks are read when the mount says on the medium that the volume is in use.
#[test]
fn snapshot_reads_superblocks_and_the_log() {
    for later in [0, 20] {
        let expected = [("superblock", 2), ("spare superblock", 2), ("log", LOG), ("zone header", 1)];
        must_read(Engine::Snapshot, later, &expected);
    }
}

/// With nothing behind the checkpoint the same. Then also the blocks that the records change, and what leads
/// to them: here a block of inodes, which has all the files, its zone's header, and a block of the zone
/// table.
#[test]
fn journal_reads_the_log_and_what_it_names() {
    must_read(
        Engine::Journal,
        0,
        &[("superblock", 2), ("spare superblock", 2), ("log", LOG), ("zone header", 1)],
    );
    for later in [20, 200] {
        let log = [("superblock", 2), ("spare superblock", 2), ("log", LOG)];
        let named = [("inode block", 1), ("zone header", 2), ("zone table block", 1)];
        must_read(Engine::Journal, later, &[&log[..], &named[..]].concat());
    }
}

/// The superblocks and the header of the root zone: no block of any zone before the volume serves.
#[test]
fn engines_that_order_changes_read_no_zone() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        for later in [0, 20] {
            must_read(engine, later, &[("superblock", 2), ("spare superblock", 2), ("zone header", 1)]);
        }
    }
}
