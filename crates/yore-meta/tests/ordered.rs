//! What engines that order changes do behind a crash with blocks that cannot be read, and how often they
//! close; and, under all engines, what goes on beside blocks that are damaged, and that a change which
//! panicked half-way is not written.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, HostError, MemoryDevice, Operation};
use yore_format::layout::HEADER_SLOTS;
use yore_format::{
    BlockHeader, BlockKind, Engine, EventNo, Expect, GroupNo, Incarnation, InodeNo, MetaAddr, NodeMut,
    NodeRef, Timestamp, ZoneNo, BLOCK_SIZE, INODES_PER_BLOCK,
};
use yore_meta::{mkfs, Durability, LogPlace, Meta, MetaError, MetaOptions, MkfsOptions, NewBlock, Reserved};

const OWNER: InodeNo = InodeNo(16);
const EXPECT: Expect =
    Expect { kind: BlockKind::Symlink, owner: OWNER, incarnation: Incarnation(1), level: Some(0) };
const NEW: NewBlock = NewBlock {
    kind: BlockKind::Symlink,
    level: 0,
    owner: OWNER,
    incarnation: Incarnation(1),
    birth: EventNo(1),
};
const GROUP_BYTES: u64 = 128 << 20;

/// A volume of this length that was made and opened, and that writes no generation unless somebody wants one.
fn made(bytes: u64, engine: Engine) -> (Arc<MemoryDevice>, Arc<Meta>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        engine,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks: 64,
        log_device: None,
        data_checksums: false,
        force: false,
    };
    mkfs(&*device, &options).unwrap();
    let meta = open(device.clone());
    (device, meta)
}

fn open(device: Arc<dyn Device>) -> Arc<Meta> {
    let options = MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 8 << 20,
        commit_interval: Duration::from_secs(3600),
        durability: Durability::Async,
        log: LogPlace::Recorded,
        part_leaves: 0,
    };
    Meta::open(device, options).unwrap()
}

fn new_block(meta: &Meta, group: GroupNo, value: u64) -> MetaAddr {
    let reserved = meta.reserve_in_group(group, 1).unwrap().expect("the group has room");
    let mut op = meta.begin(reserved);
    let (frame, _) = op.allocate(NEW);
    op.change(&frame, |page| {
        page.apply(|b| {
            NodeMut::init(b, 8);
            NodeMut::new(b).insert(0, &[0; 8], &value.to_le_bytes())
        })
    });
    frame.addr()
}

fn set_all(meta: &Meta, addrs: &[MetaAddr], value: u64) {
    let frames: Vec<_> = addrs.iter().map(|addr| meta.read(*addr, &EXPECT).unwrap()).collect();
    let mut op = meta.begin(Reserved::none());
    for frame in &frames {
        op.change(frame, |page| page.apply(|b| NodeMut::new(b).replace(0, &value.to_le_bytes())));
    }
}

fn get(meta: &Meta, addr: MetaAddr) -> Result<u64, MetaError> {
    let frame = meta.read(addr, &EXPECT)?;
    let block = frame.read();
    Ok(u64::from_le_bytes(NodeRef::new(&block).value(0).try_into().unwrap()))
}

/// A device that cannot read these blocks.
#[derive(Debug, Default)]
struct Unreadable(Mutex<Vec<u64>>);

impl Hook for Unreadable {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let Request::Read { offset, buf } = &request {
            let (offset, len) = (*offset, buf.len() as u64);
            let blocks = offset / BLOCK_SIZE as u64..(offset + len).div_ceil(BLOCK_SIZE as u64);
            if self.0.lock().unwrap().iter().any(|block| blocks.contains(block)) {
                let (device, source) = (below.describe(), HostError::from_errno(5));
                return Err(DeviceError::Io { operation: Operation::Read, offset, len, device, source });
            }
        }
        request.pass(below)
    }
}

/// The device as a crash leaves it, with these blocks unreadable.
fn crashed(device: &MemoryDevice, unreadable: Vec<u64>) -> Arc<Wrapped<MemoryDevice, Unreadable>> {
    Arc::new(Wrapped::new(device.snapshot(), Unreadable(Mutex::new(unreadable))))
}

/// The device with these blocks damaged: they cannot be read, or something else is there.
fn damaged(
    device: &MemoryDevice,
    blocks: &[u64],
    can_be_read: bool,
) -> Arc<Wrapped<MemoryDevice, Unreadable>> {
    let device = crashed(device, if can_be_read { Vec::new() } else { blocks.to_vec() });
    for at in blocks.iter().filter(|_| can_be_read) {
        device.below.write_at(at * BLOCK_SIZE as u64, &[7; BLOCK_SIZE]).unwrap();
    }
    device
}

/// Where a device has copies of these blocks, which are of one kind.
fn places(device: &MemoryDevice, kind: BlockKind, addrs: &[MetaAddr]) -> Vec<u64> {
    let has_one = |at: &u64| {
        let mut block = [0; BLOCK_SIZE];
        device.read_at(at * BLOCK_SIZE as u64, &mut block).unwrap();
        let header = BlockHeader::of(&block);
        header.kind == kind as u8 && addrs.iter().any(|addr| addr.0 == header.addr.get())
    };
    (0..device.size() / BLOCK_SIZE as u64).filter(has_one).collect()
}

fn make_group(meta: &Meta, group: GroupNo) {
    meta.prepare_group(group).unwrap();
    meta.begin(Reserved::none()).create_primary_zone(group);
}

/// Blocks that were made and then written over where they are, without a header that says so.
fn written_over(engine: Engine) -> (Arc<MemoryDevice>, Vec<MetaAddr>) {
    let (device, meta) = made(16 << 20, engine);
    let addrs: Vec<_> = (0..40).map(|_| new_block(&meta, GroupNo(0), 1)).collect();
    meta.sync().unwrap();
    set_all(&meta, &addrs, 5);
    meta.sync().unwrap();
    let left = Arc::new(device.snapshot());
    meta.close().unwrap();
    (left, addrs)
}

/// Behind a crash one block that could not be read made all of its zone unreadable.
#[test]
fn one_unreadable_block_leaves_the_others_of_its_zone() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let (left, addrs) = written_over(engine);
        let device = crashed(&left, places(&left, BlockKind::Symlink, &addrs[..1]));
        let meta = open(device.clone());
        assert!(matches!(get(&meta, addrs[0]), Err(MetaError::Device(_))));
        assert!(addrs[1..].iter().all(|addr| get(&meta, *addr).unwrap() == 5));
        set_all(&meta, &addrs[1..], 6);
        meta.close().unwrap();
        let meta = open(device);
        assert!(addrs[1..].iter().all(|addr| get(&meta, *addr).unwrap() == 6));
    }
}

/// A device that reads many blocks of a zone not at all is taken for one that is out of reach: nothing is
/// believed of the zone that could be wrong later.
#[test]
fn a_zone_waits_for_a_device_that_is_out_of_reach() {
    let (left, addrs) = written_over(Engine::SoftUpdates);
    let device = crashed(&left, places(&left, BlockKind::Symlink, &addrs[..20]));
    let meta = open(device.clone());
    assert!(matches!(get(&meta, addrs[30]), Err(MetaError::Device(_))));
    device.hook.0.lock().unwrap().clear();
    assert!(addrs.iter().all(|addr| get(&meta, *addr).unwrap() == 5));
    meta.close().unwrap();
    let meta = open(device);
    assert!(addrs.iter().all(|addr| get(&meta, *addr).unwrap() == 5));
}

/// If a zone could not be read when the volume was closed, the last generation was not written, at each
/// unmount. It is now, and the volume stays in use until the zone can be read.
#[test]
fn a_zone_that_cannot_be_read_costs_no_changes() {
    let (device, meta) = made(2 * GROUP_BYTES, Engine::SoftUpdates);
    let other = GroupNo(1);
    make_group(&meta, other);
    let addr = new_block(&meta, GroupNo(0), 1);
    meta.sync().unwrap();
    let start = meta.geometry().primary_zone_start(other).0;
    let device = crashed(&device, HEADER_SLOTS.iter().map(|slot| start + slot).collect());
    for value in 2..4 {
        let meta = open(device.clone());
        assert_eq!(get(&meta, addr).unwrap(), value - 1);
        set_all(&meta, &[addr], value);
        assert!(matches!(meta.close(), Err(MetaError::Device(_))));
    }
    device.hook.0.lock().unwrap().clear();
    let meta = open(device);
    assert_eq!(get(&meta, addr).unwrap(), 3);
    meta.close().unwrap();
}

/// A scrub kept generations back until it had read 64 blocks, however long the device tried with each that it
/// could not read. Now one can be written behind each of these.
#[test]
fn generations_are_written_between_blocks_that_a_scrub_cannot_read() {
    let (device, meta) = made(2 * GROUP_BYTES, Engine::Snapshot);
    let other = GroupNo(1);
    make_group(&meta, other);
    let addrs: Vec<_> = (0..40).map(|_| new_block(&meta, other, 1)).collect();
    meta.close().unwrap();
    let meta = open(crashed(&device, places(&device, BlockKind::Symlink, &addrs)));
    let (wrong, together) = (Cell::new(0), Cell::new(0));
    let ended = meta.scrub_metadata(ZoneNo(0), &mut |_| together.set(together.get() + 1), &mut |_, _| {
        assert!(together.get() <= 1, "{} blocks in one piece", together.get());
        wrong.set(wrong.get() + together.take());
        // This would wait for ever if the scrub kept generations back here.
        new_block(&meta, GroupNo(0), 2);
        meta.sync().unwrap();
        ControlFlow::Continue(())
    });
    assert!(ended.unwrap().is_continue());
    assert_eq!(wrong.get(), addrs.len());
    meta.close().unwrap();
}

/// A block of inodes that was damaged, or could not be read, failed each create near it, as long as its zone
/// counted free inodes in it. It is passed over, until the volume is opened again.
#[test]
fn a_damaged_block_of_inodes_fails_no_create() {
    let (device, meta) = made(16 << 20, Engine::Snapshot);
    meta.close().unwrap();
    let (near, first) = (GroupNo(0), InodeNo::ROOT.addr());
    let copies = places(&device, BlockKind::Inodes, &[first]);
    for can_be_read in [true, false] {
        let device = damaged(&device, &copies, can_be_read);
        let meta = open(device.clone());
        assert!(meta.reserve_inode(near).unwrap().is_none(), "there is no other block of inodes");
        meta.begin(meta.reserve(near, 1).unwrap()).add_inode_block();
        let new: Vec<_> = std::iter::from_fn(|| meta.reserve_inode(near).unwrap()).collect();
        assert_eq!(new.len(), INODES_PER_BLOCK);
        assert!(new.iter().all(|inode| inode.inode().addr() != first));
        // Whoever wants one of the inodes there is told.
        assert!(meta.read(first, &Expect::volume(BlockKind::Inodes)).is_err());
        drop(new);
        meta.close().unwrap();
        device.hook.0.lock().unwrap().clear();
        let meta = open(device);
        let found = meta.reserve_inode(near).unwrap().expect("both blocks have free inodes");
        assert_eq!(found.inode().addr() == first, !can_be_read);
    }
}

/// A thread that panicked with an Op open let go of the gate, and nothing stopped the writer: a change that
/// was done by half became durable.
#[test]
fn a_change_that_panicked_is_not_written() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates] {
        let (device, meta) = made(64 << 20, engine);
        let addr = new_block(&meta, GroupNo(0), 1);
        meta.sync().unwrap();
        let (opened, is_open) = mpsc::channel();
        let (by, opened) = (meta.clone(), opened);
        let panics = std::thread::spawn(move || {
            let frame = by.read(addr, &EXPECT).unwrap();
            let mut op = by.begin(Reserved::none());
            op.change(&frame, |page| page.apply(|b| NodeMut::new(b).replace(0, &9u64.to_le_bytes())));
            opened.send(()).unwrap();
            // Meanwhile the other thread waits for the gate.
            std::thread::sleep(Duration::from_millis(50));
            panic!("the call has a bug");
        });
        is_open.recv().unwrap();
        let forced = meta.force();
        assert!(matches!(forced, Err(MetaError::Stopped { .. })), "{engine:?}: {forced:?}");
        assert!(panics.join().is_err());
        assert!(matches!(meta.sync(), Err(MetaError::Stopped { .. })));
        assert!(matches!(meta.close(), Err(MetaError::Stopped { .. })));
        let meta = open(Arc::new(device.snapshot()));
        assert_eq!(get(&meta, addr).unwrap(), 1, "{engine:?}");
    }
}

/// Each pass copied what every zone has that any pass has changed since the last one that closed, with the
/// gate held alone. Now a pass that nobody waits for closes when they are many.
#[test]
fn a_pass_closes_when_many_zones_have_changed() {
    const GROUPS: u32 = 262;
    let (_device, meta) = made(u64::from(GROUPS) * GROUP_BYTES, Engine::SoftUpdates);
    (1..GROUPS).for_each(|group| make_group(&meta, GroupNo(group)));
    let addrs: Vec<_> = (0..GROUPS).map(|group| new_block(&meta, GroupNo(group), 0)).collect();
    meta.sync().unwrap();
    let mut counts = meta.pass_counts();
    let mut pass = |addrs: &[MetaAddr], value| {
        set_all(&meta, addrs, value);
        assert!(meta.pass_intervals(1).unwrap());
        let before = std::mem::replace(&mut counts, meta.pass_counts());
        let cost = counts.since(before);
        (cost.passes, cost.wholes)
    };
    assert_eq!(pass(&addrs, 1), (1, 0), "all zones");
    assert_eq!(pass(&addrs[..1], 2), (0, 1), "it closes");
    assert_eq!(pass(&addrs[..1], 3), (1, 0));
    meta.close().unwrap();
}
