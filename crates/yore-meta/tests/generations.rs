//! Generations, through the public API of the layer. What was synced is there, what was not is wholly absent,
//! and a crash at any moment leaves exactly one generation (rules 1, 2, 11).

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use yore_device::simulated::{CrashPlan, Fault, FaultPlan};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice, SimulatedDevice};
use yore_format::layout::{FIRST_SLOT, ZONE_BLOCKS};
use yore_format::{
    decode_slots, verify_checksum, Block, BlockHeader, BlockKind, Engine, EventNo, Expect, GroupNo,
    Incarnation, InodeNo, MetaAddr, NodeMut, NodeRef, Superblock, Timestamp, VolumeState, ZoneHeader, ZoneNo,
    BLOCK_SIZE,
};
use yore_meta::{mkfs, Durability, Meta, MetaError, MetaOptions, MkfsOptions, NewBlock, Reserved, ZonesLaid};

/// What a device does, once.
type Once = Mutex<Option<Box<dyn FnOnce() + Send>>>;

const OWNER: InodeNo = InodeNo(16);
const EXPECT: Expect =
    Expect { kind: BlockKind::Symlink, owner: OWNER, incarnation: Incarnation(1), level: Some(0) };

fn options() -> MetaOptions {
    MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 8 << 20,
        commit_interval: Duration::from_secs(3600),
        durability: Durability::Async,
        log: yore_meta::LogPlace::Recorded,
        part_leaves: 0,
    }
}

fn make(device: &dyn Device, engine: Engine) {
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        engine,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks: yore_meta::default_log_blocks(4096),
        log_device: None,
        data_checksums: false,
        force: false,
    };
    mkfs(device, &options).unwrap();
}

fn new_block(meta: &Meta, value: u64) -> MetaAddr {
    let mut op = meta.begin(meta.reserve(GroupNo(0), 1).unwrap());
    let new = NewBlock {
        kind: BlockKind::Symlink,
        level: 0,
        owner: OWNER,
        incarnation: Incarnation(1),
        birth: EventNo(1),
    };
    let (frame, _) = op.allocate(new);
    op.change(&frame, |page| {
        page.apply(|b| {
            NodeMut::init(b, 8);
            NodeMut::new(b).insert(0, &[0; 8], &value.to_le_bytes())
        })
    });
    frame.addr()
}

fn set_all(meta: &Meta, addrs: &[MetaAddr], value: u64) {
    let frames: Vec<_> = addrs.iter().map(|a| meta.read(*a, &EXPECT).unwrap()).collect();
    let mut op = meta.begin(meta.reserve(GroupNo(0), 0).unwrap());
    for frame in &frames {
        op.change(frame, |page| page.apply(|b| NodeMut::new(b).replace(0, &value.to_le_bytes())));
    }
}

fn get(meta: &Meta, addr: MetaAddr) -> Result<u64, MetaError> {
    let frame = meta.read(addr, &EXPECT)?;
    let block = frame.read();
    Ok(u64::from_le_bytes(NodeRef::new(&block).value(0).try_into().unwrap()))
}

#[test]
fn what_was_closed_is_there_when_opened_again() {
    for engine in [Engine::Snapshot, Engine::None] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        make(&*device, engine);
        let meta = Meta::open(device.clone(), options()).unwrap();
        let addrs: Vec<_> = (0..300).map(|i| new_block(&meta, i)).collect();
        meta.sync().unwrap();
        set_all(&meta, &addrs[..100], 1000);
        meta.close().unwrap();
        drop(meta);
        let meta = Meta::open(device, options()).unwrap();
        for (i, addr) in addrs.iter().enumerate() {
            assert_eq!(get(&meta, *addr).unwrap(), if i < 100 { 1000 } else { i as u64 });
        }
    }
}

#[test]
fn a_volume_left_open_under_none_is_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, Engine::None);
    let meta = Meta::open(device.clone(), options()).unwrap();
    assert!(matches!(Meta::open(device.clone(), options()), Err(MetaError::Refused(_))));
    meta.close().unwrap();
    Meta::open(device, options()).unwrap();
}

#[test]
fn a_freed_block_is_gone_and_its_index_is_used_again() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device.clone(), options()).unwrap();
    for round in 0..20 {
        let addrs: Vec<_> = (0..400).map(|i| new_block(&meta, i)).collect();
        if round % 3 == 0 {
            meta.sync().unwrap();
        }
        let frames: Vec<_> = addrs.iter().map(|a| meta.read(*a, &EXPECT).unwrap()).collect();
        for frame in frames {
            meta.begin(meta.reserve(GroupNo(0), 0).unwrap()).free(frame);
        }
        assert!(get(&meta, addrs[7]).is_err());
    }
    assert_eq!(meta.totals.metadata_blocks.get(), 2);
}

/// The first zone of a group was found by others before its bitmap had its place there, which is the first
/// one. Whoever reserved in the zone just then got that place, or lost what it had reserved to the bitmap.
#[test]
fn nobody_finds_a_zone_before_it_has_its_bitmap() {
    const GROUPS: u32 = 60;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(u64::from(GROUPS) * (128 << 20)));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device, options()).unwrap();
    let new = NewBlock {
        kind: BlockKind::Symlink,
        level: 0,
        owner: OWNER,
        incarnation: Incarnation(1),
        birth: EventNo(1),
    };
    for group in (1..GROUPS).map(GroupNo) {
        meta.prepare_group(group).unwrap();
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                begin.wait();
                loop {
                    if let Some(reserved) = meta.reserve_in_group(group, 1).unwrap() {
                        let (frame, _) = meta.begin(reserved).allocate(new);
                        break frame.addr();
                    }
                    std::hint::spin_loop();
                }
            });
            begin.wait();
            let bitmap = meta.begin(Reserved::none()).create_primary_zone(group);
            assert_eq!(bitmap.addr(), MetaAddr::new(ZoneNo::primary(group), 0));
            assert_eq!(other.join().unwrap(), MetaAddr::new(ZoneNo::primary(group), 1));
        });
    }
    meta.sync().unwrap();
    assert_eq!(meta.totals.metadata_blocks.get(), 2 + 2 * u64::from(GROUPS - 1));
}

/// Every generation gives all blocks one value; some also make and free blocks. Whatever a crash leaves of
/// the writes since the last flush, the volume opens, all blocks have one value, and the value is no older
/// than the last sync.
#[test]
fn a_crash_leaves_exactly_one_generation() {
    let seed: u64 = std::env::var("YORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(42);
    println!("replay with YORE_SEED={seed}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
    make(&*simulated, Engine::Snapshot);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    let addrs: Vec<_> = (0..40).map(|_| new_block(&meta, 0)).collect();
    meta.sync().unwrap();
    simulated.restart_trace();
    for value in 1..12u64 {
        set_all(&meta, &addrs, value);
        for _ in 0..rng.random_range(0..5) {
            let extra = new_block(&meta, 77);
            if rng.random_bool(0.5) {
                let frame = meta.read(extra, &EXPECT).unwrap();
                meta.begin(meta.reserve(GroupNo(0), 0).unwrap()).free(frame);
            }
        }
        meta.sync().unwrap();
        simulated.mark(value);
    }
    let trace = simulated.trace();
    let plan = yore_device::simulated::CrashPlan { seed, ..Default::default() };
    let mut states = 0;
    for case in trace.crash_states(&plan) {
        states += 1;
        let synced = trace.marks_before(case.after_entry()).last().unwrap_or(0);
        let device: Arc<dyn Device> = Arc::new(case.materialise());
        let meta = Meta::open(device, options()).unwrap_or_else(|e| panic!("{}: {e}", case.state()));
        let first = get(&meta, addrs[0]).unwrap_or_else(|e| panic!("{}: {e}", case.state()));
        assert!(first >= synced && first <= synced + 1, "{}: {first} after {synced}", case.state());
        for addr in &addrs {
            assert_eq!(get(&meta, *addr).unwrap(), first, "{}", case.state());
        }
    }
    assert!(states > 100, "only {states} states");
    println!("{states} crash states");
}

/// Gives so many blocks, drawn at random, a new value, and adds what all have then to `values`. Returns which
/// they were.
fn set_some(
    meta: &Meta,
    addrs: &[MetaAddr],
    (count, value): (usize, u64),
    rng: &mut Xoshiro256PlusPlus,
    values: &mut Vec<Vec<u64>>,
) -> Vec<usize> {
    let some = rand::seq::index::sample(rng, addrs.len(), count).into_vec();
    set_all(meta, &some.iter().map(|at| addrs[*at]).collect::<Vec<_>>(), value);
    let mut now = values.last().unwrap().clone();
    some.iter().for_each(|at| now[*at] = value);
    values.push(now);
    some
}

/// Whatever a crash leaves of the writes since the last flush, the blocks have the values of one generation,
/// no older than the last sync: that with the number of the last mark, or the next one.
fn crashes_leave_one_of(simulated: &SimulatedDevice, seed: u64, addrs: &[MetaAddr], values: &[Vec<u64>]) {
    let trace = simulated.trace();
    let mut states = 0;
    for case in trace.crash_states(&CrashPlan { seed, ..Default::default() }) {
        states += 1;
        let synced = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
        let device: Arc<dyn Device> = Arc::new(case.materialise());
        let meta = Meta::open(device, options()).unwrap_or_else(|e| panic!("{}: {e}", case.state()));
        let found: Vec<u64> = addrs
            .iter()
            .map(|addr| get(&meta, *addr).unwrap_or_else(|e| panic!("{}: {e}", case.state())))
            .collect();
        let may_be = &values[synced..(synced + 2).min(values.len())];
        assert!(may_be.contains(&found), "{}: {found:?} after {synced}", case.state());
    }
    assert!(states > 100, "only {states} states");
}

/// Each generation gives the greater part of a zone's blocks a new value. The others go to other slots with
/// them. Whatever a crash leaves of the writes since the last flush, all blocks have the values of one
/// generation, no older than the last sync; and all lie together.
#[test]
fn blocks_that_go_along_are_whole_after_a_crash() {
    let seed: u64 = std::env::var("YORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("replay with YORE_SEED={seed}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
    make(&*simulated, Engine::Snapshot);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    let addrs: Vec<_> = (0..120).map(|_| new_block(&meta, 0)).collect();
    meta.sync().unwrap();
    simulated.restart_trace();
    let mut values = vec![vec![0; addrs.len()]];
    let mut along = 0;
    for value in 1..6u64 {
        let before = slots(&simulated.snapshot());
        let dirty = set_some(&meta, &addrs, (72, value), &mut rng, &mut values);
        meta.sync().unwrap();
        simulated.mark(value);
        let after = slots(&simulated.snapshot());
        let (first, last) = (after.values().min().unwrap(), after.values().max().unwrap());
        assert!(usize::from(last - first) < after.len() * 5 / 4 + 64, "{} to {}", first, last);
        let has_moved = |at: &usize| before[&addrs[*at].index()] != after[&addrs[*at].index()];
        along += (0..addrs.len()).filter(|at| !dirty.contains(at)).filter(has_moved).count();
    }
    assert!(along > 50, "only {along} blocks went along");
    crashes_leave_one_of(&simulated, seed, &addrs, &values);
}

/// Makes a volume with a zone that lies apart: 400 blocks are made, and three of four freed. Returns what is
/// left, block by block with its value.
fn lie_apart(meta: &Meta) -> Vec<(MetaAddr, u64)> {
    let addrs: Vec<_> = (0..400).map(|i| new_block(meta, i)).collect();
    meta.sync().unwrap();
    let mut left = Vec::new();
    for (i, addr) in addrs.into_iter().enumerate() {
        if i % 4 == 3 {
            left.push((addr, i as u64));
            continue;
        }
        let frame = meta.read(addr, &EXPECT).unwrap();
        meta.begin(meta.reserve(GroupNo(0), 0).unwrap()).free(frame);
    }
    meta.sync().unwrap();
    left
}

/// Behind the last block of the zone, from its first slot on; and how many it has.
fn lies(device: &MemoryDevice) -> (usize, usize) {
    let slots = slots(device);
    (usize::from(*slots.values().max().unwrap()) + 1 - FIRST_SLOT as usize, slots.len())
}

/// Calls [`Meta::lay_zones_together`] until there is nothing to do; returns how many zones and blocks moved.
fn lay_all(meta: &Meta) -> (usize, usize) {
    let (mut zones, mut blocks) = (0, 0);
    loop {
        match meta.lay_zones_together(&|| false).unwrap() {
            ZonesLaid::Nothing => return (zones, blocks),
            ZonesLaid::Examined => {}
            ZonesLaid::Zones { zones: some, blocks: moved } => {
                (zones, blocks) = (zones + some, blocks + moved)
            }
            ZonesLaid::Busy => panic!("nobody asks for anything"),
        }
    }
}

/// A zone that lies apart is laid together, behind its headers, by one generation that changes nothing else,
/// and is left alone from then on. A request, or a check of the volume, comes before it.
#[test]
fn a_zone_that_lies_apart_is_laid_together_once() {
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
    make(&*simulated, Engine::Snapshot);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    assert!(!meta.zones_may_lie_apart(), "nothing was written");
    let left = lie_apart(&meta);
    let (until, count) = lies(&simulated.snapshot());
    assert!(until > 2 * count, "{count} blocks in {until} slots");
    assert!(meta.zones_may_lie_apart());

    let written = || (meta.completed_generation(), simulated.trace().len());
    let before = written();
    assert_eq!(meta.lay_zones_together(&|| true).unwrap(), ZonesLaid::Busy);
    assert_eq!(before, written());
    let shadow = meta.shadow(1 << 20).unwrap();
    let of_shadow = written();
    assert_eq!(meta.lay_zones_together(&|| false).unwrap(), ZonesLaid::Busy);
    assert_eq!(of_shadow, written());
    drop(shadow);

    let (generation, totals) = (meta.completed_generation(), meta.totals.metadata_blocks.get());
    let (zones, moved) = lay_all(&meta);
    assert_eq!((zones, meta.completed_generation()), (1, generation + 1));
    assert!(moved <= count && moved > count / 2, "{moved} of {count}");
    assert_eq!(lies(&simulated.snapshot()), (count, count));
    assert_eq!(meta.totals.metadata_blocks.get(), totals);
    left.iter().for_each(|(addr, value)| assert_eq!(get(&meta, *addr).unwrap(), *value));

    let after = written();
    assert!(!meta.zones_may_lie_apart());
    assert_eq!(lay_all(&meta), (0, 0));
    assert_eq!(after, written(), "an idle volume goes on writing");
    // What little changes leave is not worth it; and what is changed is found.
    set_all(&meta, &[left[0].0], 1000);
    meta.sync().unwrap();
    assert!(!meta.zones_may_lie_apart());
    meta.close().unwrap();
    drop(meta);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    assert_eq!(get(&meta, left[0].0).unwrap(), 1000);
    left[1..].iter().for_each(|(addr, value)| assert_eq!(get(&meta, *addr).unwrap(), *value));
}

/// What a volume has had from before it was opened is found by its headers, and what moves is read in few
/// requests. Nobody else's blocks leave memory for it, and it leaves again.
#[test]
fn zones_that_are_not_in_memory_are_laid_together() {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), Counts::default()));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device.clone(), options()).unwrap();
    let left = lie_apart(&meta);
    meta.close().unwrap();
    drop(meta);
    let meta = Meta::open(device.clone(), options()).unwrap();
    assert!(!meta.zones_may_lie_apart(), "nothing was written since");
    let before = device.hook.reads();
    let (zones, moved) = lay_all(&meta);
    assert!(zones == 1 && moved > left.len() / 2, "{zones} zones, {moved} blocks");
    let reads = device.hook.reads() - before;
    assert!(reads < 12, "{reads} requests for {moved} blocks");
    let (until, count) = lies(&device.below.snapshot());
    assert_eq!(until, count);
    assert!(left.iter().all(|(addr, _)| !meta.is_in_memory(*addr)), "it filled the cache");
    left.iter().for_each(|(addr, value)| assert_eq!(get(&meta, *addr).unwrap(), *value));
}

/// Engines that write blocks where they are leave them there.
#[test]
fn in_place_engines_lay_nothing_together() {
    for engine in [Engine::Journal, Engine::SoftUpdates, Engine::Sync, Engine::None] {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        make(&*device, engine);
        let meta = Meta::open(device.clone(), options()).unwrap();
        lie_apart(&meta);
        let before = (lies(&device), meta.completed_generation());
        assert!(!meta.zones_may_lie_apart());
        assert_eq!(meta.lay_zones_together(&|| false).unwrap(), ZonesLaid::Nothing);
        assert_eq!((lies(&device), meta.completed_generation()), before, "{engine:?}");
    }
}

/// A zone of which a block that would move is damaged stays as it is, and is not tried again and again. Its
/// reader is told.
#[test]
fn a_zone_with_a_damaged_block_stays_as_it_is() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device.clone(), options()).unwrap();
    let left = lie_apart(&meta);
    meta.close().unwrap();
    drop(meta);
    let (addr, _) = *left.last().unwrap();
    let lie = slots(&device);
    let meta = Meta::open(device.clone(), options()).unwrap();
    let at = ZONE_BLOCKS + u64::from(lie[&addr.index()]);
    device.write_at(at * BLOCK_SIZE as u64, &yore_device::AlignedBuf::zeroed(1)).unwrap();
    assert_eq!(lay_all(&meta), (0, 0));
    assert_eq!(slots(&device), lie);
    assert!(matches!(get(&meta, addr), Err(MetaError::Corruption(_))));
    left[..left.len() - 1].iter().for_each(|(addr, value)| assert_eq!(get(&meta, *addr).unwrap(), *value));
}

/// Changes, and zones that are laid together, by turns and at once. Whatever a crash leaves of the writes
/// since the last flush, the blocks have the values of one generation, no older than the last sync, whether
/// they have moved or not.
#[test]
fn a_zone_that_is_laid_together_is_whole_after_a_crash() {
    let seed: u64 = std::env::var("YORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("replay with YORE_SEED={seed}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
    make(&*simulated, Engine::Snapshot);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    let (addrs, first): (Vec<_>, Vec<_>) = lie_apart(&meta).into_iter().unzip();
    simulated.restart_trace();
    let (mut values, mut moved, mut mark) = (vec![first], 0, 0);
    for value in 1001..1007u64 {
        // Some blocks come and go, so that the zone comes to lie apart again.
        let more: Vec<_> = (0..200).map(|_| new_block(&meta, 5)).collect();
        set_some(&meta, &addrs, (10, value), &mut rng, &mut values);
        if value % 2 == 0 {
            // With what has been changed.
            moved += lay_all(&meta).1;
        }
        meta.sync().unwrap();
        mark += 1;
        simulated.mark(mark);
        for addr in more {
            let frame = meta.read(addr, &EXPECT).unwrap();
            meta.begin(meta.reserve(GroupNo(0), 0).unwrap()).free(frame);
        }
        meta.sync().unwrap();
        moved += lay_all(&meta).1;
    }
    assert!(moved > 100, "only {moved} blocks moved");
    crashes_leave_one_of(&simulated, seed, &addrs, &values);
}

/// Others change blocks, make some and free some while zones are laid together: nothing is lost, and when
/// they are done the zones come to lie together.
#[test]
fn zones_are_laid_together_beside_changes() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device.clone(), MetaOptions { cache_bytes: 0, ..options() }).unwrap();
    let left = lie_apart(&meta);
    std::thread::scope(|scope| {
        let (meta, left) = (&meta, &left);
        let changer = scope.spawn(move || {
            for round in 1..60 {
                let some: Vec<_> = (0..300).map(|_| new_block(meta, round)).collect();
                set_all(meta, &left.iter().step_by(7).map(|(addr, _)| *addr).collect::<Vec<_>>(), round);
                if round % 3 == 0 {
                    meta.sync().unwrap();
                }
                for addr in some {
                    assert_eq!(get(meta, addr).unwrap(), round);
                    let frame = meta.read(addr, &EXPECT).unwrap();
                    meta.begin(meta.reserve(GroupNo(0), 0).unwrap()).free(frame);
                }
            }
        });
        while !changer.is_finished() {
            meta.lay_zones_together(&|| false).unwrap();
            for (i, (addr, value)) in left.iter().enumerate() {
                let found = get(meta, *addr).unwrap();
                assert!(found == *value || (i % 7 == 0 && found < 60));
            }
        }
    });
    meta.sync().unwrap();
    lay_all(&meta);
    let (until, count) = lies(&device);
    assert!(until <= count + count / 4 + 16, "{count} blocks in {until} slots");
    meta.close().unwrap();
    drop(meta);
    let meta = Meta::open(device, options()).unwrap();
    for (i, (addr, value)) in left.iter().enumerate() {
        assert_eq!(get(&meta, *addr).unwrap(), if i % 7 == 0 { 59 } else { *value });
    }
}

/// Counts requests to read.
#[derive(Debug, Default)]
struct Counts(std::sync::atomic::AtomicUsize);

impl Counts {
    fn reads(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Hook for Counts {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if matches!(request, Request::Read { .. }) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        request.pass(below)
    }
}

/// The slot of each index of the group's first zone, as its newest header says.
fn slots(device: &MemoryDevice) -> BTreeMap<u16, u16> {
    let mut newest: Option<ZoneHeader> = None;
    for at in 0..device.size() / BLOCK_SIZE as u64 {
        let mut block = [0; BLOCK_SIZE];
        device.read_at(at * BLOCK_SIZE as u64, &mut block).unwrap();
        if BlockHeader::of(&block).kind != BlockKind::ZoneHeader as u8 || verify_checksum(&block).is_err() {
            continue;
        }
        let Ok(header) = ZoneHeader::decode(&block) else { continue };
        let is_newer = newest.as_ref().is_none_or(|found| found.generation < header.generation);
        if header.zone == ZoneNo::primary(GroupNo(0)) && is_newer {
            newest = Some(header);
        }
    }
    let map = newest.expect("the group has a zone").map;
    let there = map.iter().enumerate().filter(|(_, slot)| **slot != 0);
    there.map(|(index, slot)| (index as u16, *slot)).collect()
}

/// The story: SQLite deleted its journal, synced the directory, reported the transaction as committed, and
/// after a kill the journal was back and took the transaction with it. The sync had read the number of the
/// running generation just before another thread froze it; then nothing was dirty, and the generation that
/// was only about to be written was taken for one in which nothing had changed.
#[test]
fn a_sync_waits_for_a_generation_that_was_frozen_meanwhile() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    make(&*device, Engine::Snapshot);
    let meta = Meta::open(device.clone(), options()).unwrap();
    let addrs = vec![new_block(&meta, 0)];
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    meta.sync().unwrap();
                }
            });
        }
        for value in 1..3_000 {
            set_all(&meta, &addrs, value);
            meta.sync().unwrap();
            let killed: Arc<dyn Device> = Arc::new(device.snapshot());
            let after = Meta::open(killed, MetaOptions { read_only: true, ..options() }).unwrap();
            let found = get(&after, addrs[0]).unwrap();
            if found != value {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            assert_eq!(found, value, "synced, and not there");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Whoever needs a part of a generation that the device has lost finds that it is lost. Block, zone header,
/// table block and root header are each written where an older, sound copy of the same block lies, and none
/// of these copies is taken for the newest.
#[test]
fn a_lost_write_is_an_error_and_not_old_data() {
    for engine in [Engine::Snapshot, Engine::None] {
        for lost in 0..=4 {
            let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
            make(&*device, engine);
            let meta = Meta::open(device.clone(), options()).unwrap();
            let addr = new_block(&meta, 1);
            meta.sync().unwrap();
            set_all(&meta, &[addr], 2);
            meta.close().unwrap();
            drop(meta);
            // After each opening, slots are taken from the beginning of the zone, so the next copy goes where
            // the copy of value 1 is.
            let meta = Meta::open(device.clone(), options()).unwrap();
            set_all(&meta, &[addr], 3);
            if lost > 0 {
                device.fail(Fault::LostWrite { nth: lost }.into());
            }
            meta.sync().unwrap();
            assert_eq!(device.struck().len(), usize::from(lost > 0), "{engine:?}, write {lost}");
            device.fail(FaultPlan::none());
            meta.close().unwrap();
            drop(meta);
            let found = Meta::open(device.clone(), options()).and_then(|meta| get(&meta, addr));
            if lost == 0 {
                assert_eq!(found.unwrap(), 3);
                continue;
            }
            let Err(MetaError::Corruption(c)) = found else { panic!("{engine:?}, write {lost}: {found:?}") };
            let field = match lost {
                1 | 3 => "checksum in the zone map",
                _ => "header",
            };
            assert_eq!(c.field, field, "{engine:?}, write {lost}: {c}");
            if lost == 1 {
                assert_eq!((c.structure, c.addr, c.owner), ("metadata block", Some(addr), Some(OWNER)));
            }
            // The bytes that are there instead are sound in themselves; only the checksum above them reveals
            // the loss.
            let mut there = [0; BLOCK_SIZE];
            device.read_at(c.block.unwrap().0 * BLOCK_SIZE as u64, &mut there).unwrap();
            verify_checksum(&there).unwrap();
            let older = if engine == Engine::Snapshot { 1u64 } else { 2 };
            assert!(lost != 1 || NodeRef::new(&there).value(0) == older.to_le_bytes());
        }
    }
}

/// Under `none` a crash leaves any mixture of blocks and headers. Even if somebody marks such a volume as
/// clean, it gives values or typed errors, for reading and for changing.
#[test]
fn any_mixture_under_none_gives_errors_and_no_panic() {
    let seed: u64 = std::env::var("YORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(42);
    println!("replay with YORE_SEED={seed}");
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 << 20)));
    make(&*simulated, Engine::None);
    let meta = Meta::open(simulated.clone(), options()).unwrap();
    let addrs: Vec<_> = (0..10).map(|_| new_block(&meta, 0)).collect();
    meta.sync().unwrap();
    simulated.restart_trace();
    for value in 1..4u64 {
        set_all(&meta, &addrs[value as usize..], value);
        meta.sync().unwrap();
    }
    let (mut values, mut errors) = (0, 0);
    for case in simulated.trace().crash_states(&CrashPlan { seed, ..Default::default() }) {
        let device = Arc::new(case.materialise());
        let slots: [Block; 2] = [0, 1].map(|slot| {
            let mut bytes = [0; BLOCK_SIZE];
            device.read_at(slot * BLOCK_SIZE as u64, &mut bytes).unwrap();
            bytes
        });
        let Ok((found, slot, _)) = decode_slots([&slots[0], &slots[1]]) else { continue };
        let clean = Superblock { state: VolumeState::Clean, ..found };
        device.write_at(u64::from(slot) * BLOCK_SIZE as u64, &clean.encode(slot)[..]).unwrap();
        let Ok(meta) = Meta::open(device, options()) else {
            errors += 1;
            continue;
        };
        for addr in &addrs {
            match get(&meta, *addr) {
                Ok(_) => {
                    values += 1;
                    set_all(&meta, &[*addr], 9);
                }
                Err(MetaError::Corruption(_)) => errors += 1,
                Err(other) => panic!("{}: {other}", case.state()),
            }
        }
        if values > 0 {
            meta.close().unwrap_or_else(|e| assert!(matches!(e, MetaError::Corruption(_)), "{e}"));
        }
    }
    assert!(values > 0 && errors > 0, "{values} values, {errors} errors");
}

/// Does something, once, when a superblock is about to be written.
#[derive(Default)]
struct BeforeSuperblock(Once);

impl std::fmt::Debug for BeforeSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeSuperblock")
    }
}

impl Hook for BeforeSuperblock {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let Request::Write { offset, .. } = &request {
            let what = self.0.lock().unwrap().take_if(|_| *offset <= BLOCK_SIZE as u64);
            if let Some(what) = what {
                std::thread::spawn(what).join().unwrap();
            }
        }
        request.pass(below)
    }
}

/// Under `journal` a record may follow a checkpoint that is being written (R9). What it says is durable, also
/// if the checkpoint's superblock never arrives.
#[test]
fn what_is_forced_while_a_checkpoint_is_written_is_durable() {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), BeforeSuperblock::default()));
    make(&*device, Engine::Journal);
    let meta = Meta::open(device.clone(), options()).unwrap();
    let addrs: Vec<_> = (0..20).map(|i| new_block(&meta, i)).collect();
    meta.sync().unwrap();
    set_all(&meta, &addrs, 100);
    let left = Arc::new(Mutex::new(None));
    let during = {
        let (meta, device, left, addrs) = (meta.clone(), device.clone(), left.clone(), addrs.clone());
        move || {
            set_all(&meta, &addrs[..10], 200);
            meta.force().unwrap();
            *left.lock().unwrap() = Some(device.below.snapshot());
        }
    };
    *device.hook.0.lock().unwrap() = Some(Box::new(during));
    meta.sync().unwrap();
    let crashed: MemoryDevice = left.lock().unwrap().take().expect("a superblock was written");
    let found = Meta::open(Arc::new(crashed), MetaOptions { read_only: true, ..options() }).unwrap();
    for (i, addr) in addrs.iter().enumerate() {
        assert_eq!(get(&found, *addr).unwrap(), if i < 10 { 200 } else { 100 });
    }
    meta.close().unwrap();
}

/// Does something, once, when a zone's header is about to be read.
#[derive(Default)]
struct BeforeHeader(Once);

impl std::fmt::Debug for BeforeHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeHeader")
    }
}

impl Hook for BeforeHeader {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let Request::Read { offset, buf } = request {
            below.read_at(offset, buf)?;
            let kind = BlockHeader::of(buf[..BLOCK_SIZE].try_into().unwrap()).kind;
            let what = self.0.lock().unwrap().take_if(|_| kind == BlockKind::ZoneHeader as u8);
            let Some(what) = what else { return Ok(()) };
            std::thread::spawn(what).join().unwrap();
            // The request came before that, and is served behind it.
            return below.read_at(offset, buf);
        }
        request.pass(below)
    }
}

/// While one thread reads a zone for the first time another one reads it too, changes it, and writes it. The
/// first one then finds a header that the table did not name when it asked: that is no damage.
#[test]
fn a_zone_that_is_written_while_it_is_read_is_no_damage() {
    for engine in [Engine::Snapshot, Engine::None, Engine::Journal, Engine::SoftUpdates] {
        let device = Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), BeforeHeader::default()));
        make(&*device, engine);
        let meta = Meta::open(device.clone(), options()).unwrap();
        let addr = new_block(&meta, 1);
        meta.close().unwrap();
        drop(meta);
        let meta = Meta::open(device.clone(), options()).unwrap();
        let other = meta.clone();
        let during = move || {
            // Both of the header's places are written.
            for value in 2..4 {
                set_all(&other, &[addr], value);
                other.sync().unwrap();
            }
        };
        *device.hook.0.lock().unwrap() = Some(Box::new(during));
        assert_eq!(get(&meta, addr).unwrap(), 3, "{engine:?}");
        assert!(device.hook.0.lock().unwrap().is_none(), "{engine:?}: the header was read");
        meta.close().unwrap();
    }
}
