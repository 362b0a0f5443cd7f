//! Promises: whatever the bytes, a check ends with a report or an error, in bounded time and memory, and
//! never panics. No byte of a block in use can change unseen.
//!
//! Each run prints its seed; `YORE_SEED=<seed>` replays it, `YORE_ROUNDS=<n>` makes it longer.

mod common;

use common::*;
use yore_check::{check, CheckError, CheckOptions, Report};
use yore_device::MemoryDevice;
use yore_format::*;

/// xorshift64*, which is good enough to choose damages.
struct Random(u64);

impl Random {
    fn new(test: &str) -> Random {
        let seed = match std::env::var("YORE_SEED") {
            Ok(seed) => seed.parse().expect("YORE_SEED is a number"),
            Err(_) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.expect("the clock is after 1970").as_nanos() as u64 | 1
            }
        };
        println!("{test}: replay with YORE_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn rounds(usual: usize) -> usize {
    std::env::var("YORE_ROUNDS").map_or(usual, |n| n.parse().expect("YORE_ROUNDS is a number"))
}

/// A volume with something of everything and with a past, and the physical blocks in use on it.
fn volume() -> (MemoryDevice, Vec<u64>) {
    past::past().finish_with_written()
}

/// Makes the checksum right again, so that the check looks at the damage behind it.
fn reseal(device: &MemoryDevice, block: u64, bytes: &mut Block) {
    if block < 2 {
        let crc = checksum_except(bytes, 16);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    } else {
        let generation = Generation(BlockHeader::of(bytes).generation.get());
        seal(bytes, generation);
    }
    write(device, block, bytes);
}

fn checked(device: &MemoryDevice) -> Result<Report, CheckError> {
    let result = check(device, &CheckOptions { findings_max: 50, ..CheckOptions::default() });
    if let Ok(report) = &result {
        assert!(report.findings.len() <= 50 && report.lost.paths.len() <= 50);
        // Printing the report must not fail either. Lost names have a line each, and one for those not kept.
        let lost = report.lost.paths.len() + usize::from(report.lost.count > 0);
        assert!(report.to_string().lines().count() <= 53 + lost);
    }
    result
}

/// Promises that every byte of every block in use is covered: a change is found, or makes the superblock
/// unusable.
#[test]
fn no_byte_in_use_changes_unseen() {
    let mut random = Random::new("no_byte_in_use_changes_unseen");
    let (sound, blocks) = volume();
    for block in blocks {
        for _ in 0..20 {
            let device = sound.snapshot();
            let mut bytes = read(&device, block);
            let at = random.below(4096);
            bytes[at] ^= 1 + random.below(255) as u8;
            write(&device, block, &bytes);
            // A different stamp makes the superblock torn, which is not damage: the other one counts then.
            if block < 2 && at % 512 >= 504 {
                let _ = checked(&device);
                continue;
            }
            assert!(!checked(&device).is_ok_and(|r| r.is_clean()), "block {block}, byte {at}");
        }
    }
}

/// Promises that the check ends, without a panic, after several random changes anywhere with right checksums.
#[test]
fn random_damage_never_panics() {
    let mut random = Random::new("random_damage_never_panics");
    let (sound, blocks) = volume();
    for _ in 0..rounds(6000) {
        let device = sound.snapshot();
        for _ in 0..1 + random.below(4) {
            let block = blocks[random.below(blocks.len())];
            let mut bytes = read(&device, block);
            damage(&mut random, &mut bytes, &device, &blocks);
            reseal(&device, block, &mut bytes);
        }
        if random.below(4) > 0 {
            chain::mend(&device);
        }
        let _ = checked(&device);
    }
}

/// Promises that the fast pass proves nothing about a volume on which the walk finds something, whatever
/// bytes changed behind right checksums; and that it counts what the walk counts where there is nothing.
#[test]
fn the_fast_pass_finds_what_the_walk_finds() {
    let mut random = Random::new("the_fast_pass_finds_what_the_walk_finds");
    let volumes = [sound(), past::past(), past::annals(), shared::shared()];
    let volumes = volumes.map(|volume: Builder| volume.finish_with_written());
    let mut outcomes = [(0, 0); 4];
    for round in 0..rounds(3000) {
        let ((of, blocks), (damaged, proved)) = (&volumes[round / 3 % 4], &mut outcomes[round / 3 % 4]);
        let device = of.snapshot();
        for _ in 0..random.below(3) {
            let block = blocks[random.below(blocks.len())];
            let mut bytes = read(&device, block);
            match round % 3 {
                // Single bits are where two things that should agree are most likely to differ in one only.
                0 => bytes[64 + random.below(4032)] ^= 1 << random.below(8),
                _ => damage(&mut random, &mut bytes, &device, blocks),
            }
            reseal(&device, block, &mut bytes);
        }
        chain::mend(&device);
        let with = |scan_from| check(&device, &CheckOptions { scan_from, ..CheckOptions::default() });
        match (with(u64::MAX), with(0)) {
            (Ok(walked), Ok(scanned)) => {
                assert_eq!(scanned.findings, walked.findings, "{}", scanned.doubt);
                assert_eq!(scanned.counts, walked.counts, "{}", scanned.doubt);
                *damaged += u32::from(!walked.is_clean());
                *proved += u32::from(scanned.proved);
            }
            (walked, scanned) => assert_eq!(walked.is_err(), scanned.is_err()),
        }
    }
    println!("damaged and proved, without a past, with the old trees, with annals, with shared blocks: {outcomes:?}");
    let are_both = outcomes.iter().all(|(damaged, proved)| *damaged > 0 && *proved > 0);
    assert!(are_both || rounds(3000) < 1000, "{outcomes:?}");
}

/// Changes some bytes in ways that the check is likely to meet.
fn damage(random: &mut Random, bytes: &mut Block, device: &MemoryDevice, blocks: &[u64]) {
    let at = match random.below(3) {
        0 => random.below(4088),
        1 => random.below(400),
        _ => 64 + random.below(504) * 8,
    };
    let at = at.min(4088);
    match random.below(6) {
        0 => bytes[at] = random.next() as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => {
            let edge = [0, 1, 0xff, 0x7fff, 0xffff, u64::from(u32::MAX), u64::MAX, i64::MAX as u64, !1023];
            bytes[at..at + 8].copy_from_slice(&edge[random.below(edge.len())].to_le_bytes());
        }
        3 => {
            // An existing address, perhaps in place of another one.
            let addr = MetaAddr::new(ZoneNo(random.below(4) as u32), random.below(24) as u16);
            bytes[at..at + 8].copy_from_slice(&addr.0.to_le_bytes());
        }
        4 => {
            // The content of another block under the identity of this one.
            let other = read(device, blocks[random.below(blocks.len())]);
            bytes[64..].copy_from_slice(&other[64..]);
        }
        _ => {
            let len = random.below(4096 - at);
            bytes[at..at + len].iter_mut().for_each(|b| *b = random.next() as u8);
        }
    }
}

/// Promises that the check ends, without a panic, if everything but the superblock is noise.
#[test]
fn noise_never_panics() {
    let mut random = Random::new("noise_never_panics");
    let (sound, blocks) = volume();
    for _ in 0..rounds(300) {
        let device = sound.snapshot();
        for block in blocks.iter().copied().skip(2) {
            if random.below(3) == 0 {
                let mut bytes = read(&device, block);
                let from = [0, 64, 128][random.below(3)];
                bytes[from..].iter_mut().for_each(|b| *b = random.next() as u8);
                reseal(&device, block, &mut bytes);
            }
        }
        chain::mend(&device);
        let _ = checked(&device);
    }
}

/// Promises that the check ends on a tree of the greatest height, in which each node names the next one, and
/// on branches full of one address.
#[test]
fn deep_trees_and_loops_end() {
    let mut b = sound();
    let owner = b.inodes[&InodeNo(LONG)].incarnation.0;
    // A chain of branches from level 255 down to 0, over the indexes of zone 2.
    let addr = |level: u8| MetaAddr::new(ZoneNo(2), 10 + u16::from(level));
    for level in (1..=255).rev() {
        let node = block(BlockKind::Symlink, level, addr(level), InodeNo(LONG), owner);
        let next = addr(level - 1).0.to_le_bytes().to_vec();
        let own = addr(level).0.to_le_bytes().to_vec();
        // Within the bounds that the branch above gives: what is beyond does not count, and is not followed.
        let key = 2 * u64::from(level);
        b.node(addr(level), node, &[(0, next.clone()), (key + 1, own), (key + 2, next)]);
    }
    let leaf = block(BlockKind::Symlink, 0, addr(0), InodeNo(LONG), owner);
    b.node(addr(0), leaf, &[(0, b"target".to_vec())]);
    b.inode(LONG).set_tree_root(addr(255), 255);
    let report = checked(&b.finish()).unwrap();
    assert_eq!(report.counts.tree_nodes, 9 - 1 + 256);
    assert!(report.findings_count >= 2 * 255, "{report}");
}

/// Promises that the check ends if many versions share a tree of the greatest height, begin at every level of
/// it, and each of its branches names the next one twice. For each state, it visits each node once.
#[test]
fn deep_trees_of_many_versions_end() {
    let addr = |level: u8| MetaAddr::new(ZoneNo(2), 10 + u16::from(level));
    let owner = InodeNo(past::GONE);
    for kind in [BlockKind::Extents, BlockKind::Xattrs] {
        let mut b = past::past();
        for level in (1..=255).rev() {
            let next = addr(level - 1).0.to_le_bytes().to_vec();
            let node = block(kind, level, addr(level), owner, 60);
            b.node(addr(level), node, &[(0, next.clone()), (5, next)]);
        }
        b.node(addr(0), block(kind, 0, addr(0), owner, 60), &[]);
        for level in 1..=255 {
            let born = 10 + u64::from(level);
            let mut inode = past::file_of(&[], 60, born);
            match kind {
                BlockKind::Xattrs => inode.xattr_root = addr(level),
                _ => inode.set_tree_root(addr(level), level),
            }
            b.version(past::GONE, born + 1, inode);
        }
        b.sb.next_number = EventNo(500);
        let report = checked(&b.finish()).unwrap();
        assert_eq!(report.counts.versions, 11 + 255, "{report}");
        assert!(report.findings_count >= 255, "{report}");
    }
}
