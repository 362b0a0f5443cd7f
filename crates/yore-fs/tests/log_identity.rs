//! The identity of a log is random, and the log's secret. What users write goes through the log, so nobody
//! may know how to write what looks like a part of it.

use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_format::{decode_slots, Superblock, BLOCK_SIZE};
use yore_fs::{Engine, File, MkfsOptions, MountOptions, Volume};

/// Everybody can ask for a volume's uuid.
const UUID: [u8; 16] = *b"what users know.";

/// A new volume whose changes go through a log, as like any other as can be.
fn volume() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let options =
        MkfsOptions { uuid: UUID, hash_seed: UUID, engine: Engine::Journal, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    device
}

/// Opens it; nothing leaves the log by itself.
fn open(device: Arc<MemoryDevice>) -> Volume {
    let options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        access_times: false,
        defragment_after: None,
        ..MountOptions::default()
    };
    Volume::open(device, &options).unwrap()
}

fn save(volume: &Volume, path: &str, content: &[u8]) {
    volume.write(path, content).unwrap();
    File::open(volume, path).unwrap().sync_all().unwrap();
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut slots = [[0; BLOCK_SIZE]; 2];
    for (n, slot) in slots.iter_mut().enumerate() {
        device.read_at((n * BLOCK_SIZE) as u64, slot).unwrap();
    }
    decode_slots([&slots[0], &slots[1]]).unwrap().0
}

/// The blocks of a volume's log, each with its offset.
fn log_of(device: &MemoryDevice) -> Vec<(u64, [u8; BLOCK_SIZE])> {
    let found = superblock(device);
    let read = |block: u64| {
        let mut content = [0; BLOCK_SIZE];
        device.read_at(block * BLOCK_SIZE as u64, &mut content).unwrap();
        (block * BLOCK_SIZE as u64, content)
    };
    (found.log_start.0..found.log_start.0 + found.log_blocks).map(read).collect()
}

/// What one log has comes into the blocks of another where that has nothing yet, each at its own place.
/// Returns how many blocks came.
fn lay(log: &[(u64, [u8; BLOCK_SIZE])], on: &MemoryDevice) -> usize {
    let is_empty = |block: &[u8; BLOCK_SIZE]| block.iter().all(|byte| *byte == 0);
    let there = log_of(on);
    let mut laid = 0;
    for ((offset, content), (_, old)) in log.iter().zip(&there) {
        if is_empty(old) && !is_empty(content) {
            on.write_at(*offset, content).unwrap();
            laid += 1;
        }
    }
    laid
}

/// The identity of a log was a half of the uuid, which users know. Whoever had the log of a volume with the
/// same uuid, or made one, could write its batches to a file: when they came to lie behind the end of the
/// log, a mount behind a crash said that the log was damaged.
#[test]
fn what_another_log_has_is_no_part_of_this_one() {
    let (one, other) = (volume(), volume());
    let (first, second) = (superblock(&one), superblock(&other));
    assert_eq!(
        (first.uuid, first.log_start, first.log_blocks),
        (second.uuid, second.log_start, second.log_blocks)
    );
    let from = open(one.clone());
    save(&from, "a", b"content 0");
    let early = one.snapshot();
    (1..20).for_each(|n| save(&from, "a", format!("content {n}").as_bytes()));
    let log = log_of(&one);
    // These blocks are what a mount looks at: behind the end of its own log they are the rest of it.
    assert!(lay(&log, &early) > 0);
    assert_eq!(open(Arc::new(early)).read("a").unwrap(), b"content 19");

    let to = open(other.clone());
    save(&to, "a", b"of the other");
    let crashed = other.snapshot();
    assert!(lay(&log, &crashed) > 10);
    assert_eq!(open(Arc::new(crashed)).read("a").unwrap(), b"of the other");

    // Somebody saves them as a file.
    let used: Vec<u8> =
        log.iter().map(|(_, block)| block).filter(|block| block[0] != 0).flatten().copied().collect();
    save(&to, "copy", &used);
    save(&to, "a", b"later");
    let volume = open(Arc::new(other.snapshot()));
    assert_eq!(volume.read("a").unwrap(), b"later");
    assert_eq!(volume.read("copy").unwrap(), used);
}

/// Volumes of one uuid have logs of different identities, which the uuid does not tell.
#[test]
fn each_new_log_has_an_identity_of_its_own() {
    let mut identities: Vec<u64> = (0..8).map(|_| superblock(&volume()).log_id).collect();
    let halves = UUID.chunks(8).map(|half| u64::from_le_bytes(half.try_into().unwrap()));
    identities.extend(halves);
    let all = identities.len();
    identities.sort_unstable();
    identities.dedup();
    assert_eq!(identities.len(), all);
}
