//! Promises: of a volume that the file system has made, with a past and with shared blocks, and so large that
//! several threads sum it up, the fast pass of a check proves what the comparison finds sound, and counts the
//! same; and whatever bytes change behind right checksums, both find the same.
//!
//! The seed of the changes is printed. `YORE_SEED=<seed>` replays it, `YORE_ROUNDS=<n>` makes it longer.

mod common;

use common::*;
use rand::{Rng as _, SeedableRng as _};
use std::sync::Arc;
use yore_check::{check, CheckOptions, Report};
use yore_device::MemoryDevice;
use yore_format::*;
use yore_fs::{MkfsOptions, NewSnapshot, SetXattrMode, Volume};

const DIRECTORIES: usize = 30;
const FILES: usize = 900;

/// Files in directories, some with attributes or several names, of which some changed after each of three
/// snapshots, some have come to other names, and some share blocks.
fn aged() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let view = volume.view();
    let path = |d: usize, f: usize| format!("{d}/file {f}");
    for d in 0..DIRECTORIES {
        volume.create_dir(format!("{d}")).unwrap();
        for f in 0..FILES {
            volume.write(path(d, f), vec![f as u8; f * 37 % 6000]).unwrap();
        }
        let attributes = vec![1; 500 + 300 * d];
        volume.set_xattr(path(d, 3), "user.long", attributes, SetXattrMode::Any).unwrap();
        volume.hard_link(path(d, 4), format!("{d}/another name")).unwrap();
        volume.symlink("x".repeat(100 * d + 1), format!("{d}/link")).unwrap();
        volume.write(format!("{d}/large"), vec![7; 300_000]).unwrap();
    }
    // Only what has its blocks can be shared.
    volume.sync().unwrap();
    for d in 0..DIRECTORIES {
        volume.copy(format!("{d}/large"), format!("{d}/copy")).unwrap();
    }
    let policy = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    view.set_policy(volume.node("5").unwrap().inode(), &policy).unwrap();
    for round in 0..3 {
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap();
        for d in (round..DIRECTORIES).step_by(2) {
            for f in (0..FILES).step_by(3 + round) {
                volume.write(path(d, f), vec![round as u8; f * 53 % 9000]).unwrap();
            }
            for f in (1..FILES).step_by(20) {
                volume.rename(path(d, f), path(d, f + 5)).unwrap();
                volume.write(path(d, f), [1; 10]).unwrap();
            }
            volume.set_xattr(format!("{d}"), "user.round", [round as u8], SetXattrMode::Any).unwrap();
            volume.remove_file(format!("{d}/copy")).unwrap();
            volume.copy(format!("{d}/large"), format!("{d}/copy")).unwrap();
        }
    }
    volume.remove_dir_all("7").unwrap();
    volume.close().unwrap();
    device
}

/// What the fast pass finds with so many threads and so much memory, and what the comparison does.
fn both_ways(device: &MemoryDevice, threads: usize, memory: u64) -> [Report; 2] {
    let fast = CheckOptions { scan_from: 0, threads, memory, ..CheckOptions::default() };
    let walk = CheckOptions { scan_from: u64::MAX, ..CheckOptions::default() };
    [fast, walk].map(|options| check(device, &options).unwrap())
}

#[test]
fn what_was_made_is_proved_by_several_threads() {
    let device = aged();
    // With little memory most blocks are read by several threads, and lists are searched in files.
    for (threads, memory) in [(1, 1 << 30), (3, 1 << 30), (8, 1 << 20), (3, 0)] {
        let [fast, walked] = both_ways(&device, threads, memory);
        assert!(walked.is_clean() && fast.is_clean(), "{walked}\n{fast}");
        assert!(fast.proved, "{}", fast.doubt);
        assert_eq!(fast.counts, walked.counts);
        let counts = walked.counts;
        assert!(counts.metadata_blocks > 2 * 1024 && counts.versions > 5000, "{counts:?}");
        assert!(counts.past_names > 1000 && counts.shared_blocks > 500, "{counts:?}");
    }
    let seed = std::env::var("YORE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("replay with YORE_SEED={seed}");
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
    let rounds = std::env::var("YORE_ROUNDS").map_or(16, |rounds| rounds.parse().unwrap());
    let blocks = addresses(&device);
    let mut damaged = 0;
    for round in 0..rounds {
        let device = device.snapshot();
        let addr = blocks[rng.random_range(0..blocks.len())];
        let (byte, bit) = (rng.random_range(64..BLOCK_SIZE), rng.random_range(0..8));
        plant(&device, addr, 0, |block| block[byte] ^= 1 << bit);
        let memory = if round % 4 == 0 { 1 << 20 } else { 1 << 30 };
        let [fast, walked] = both_ways(&device, 4, memory);
        assert_eq!(fast.findings, walked.findings, "{addr}, byte {byte}, bit {bit}: {}", fast.doubt);
        assert_eq!(fast.counts, walked.counts, "{addr}, byte {byte}, bit {bit}: {}", fast.doubt);
        damaged += u32::from(!walked.is_clean());
    }
    println!("{damaged} of {rounds} were found");
}
