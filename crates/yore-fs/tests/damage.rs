//! Promises: metadata that contradicts itself, with each block sealed as if it were sound, gives a typed
//! error that names the block and its owner to a caller that needs the damaged part, and does not matter to
//! any other caller. It never causes a panic, and never frees or overwrites what belongs to somebody else.

#[path = "../../yore-check/tests/common/chain.rs"]
mod chain;
mod elsewhere;
mod entries;
mod forgotten;

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_format::layout::{Geometry, GROUP_BLOCKS};
use yore_format::{
    seal, verify_checksum, BitmapMut, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, ContentKind,
    Corruption, DirEntry, EventNo, EventRow, ExtentValue, Generation, GroupNo, HistoryRoots, HistoryTree,
    Inode, InodeNo, MetaAddr, NodeMut, NodeRef, Timestamp, ZoneNo, BLOCK_SIZE,
};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::time::When;
use yore_fs::{
    Error, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Policy, Retention,
    RetentionRules, SetXattrMode, Versioning, Volume,
};

const SIZE: u64 = 32 << 20;

/// A volume with files `a` and `b` of three blocks each, closed.
fn volume() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    for name in ["a", "b"] {
        volume.write(name, name.repeat(3 * BLOCK_SIZE)).unwrap();
    }
    volume.close().unwrap();
    device.snapshot()
}

fn open(device: MemoryDevice) -> Result<Volume, Error> {
    Volume::open(Arc::new(device), &MountOptions::default())
}

fn open_read_only(device: MemoryDevice) -> Volume {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    Volume::open(Arc::new(device), &options).unwrap()
}

fn inode_of(device: &MemoryDevice, name: &str) -> InodeNo {
    InodeNo(open_read_only(device.snapshot()).metadata(name).unwrap().ino())
}

/// The newest copy of a metadata block, and where it is.
fn find(device: &MemoryDevice, addr: MetaAddr, kind: BlockKind) -> (u64, Box<Block>) {
    let mut block = Box::new([0; BLOCK_SIZE]);
    let mut found: Option<(u64, u64, Box<Block>)> = None;
    for at in (0..SIZE).step_by(BLOCK_SIZE) {
        device.read_at(at, &mut block[..]).unwrap();
        let header = BlockHeader::of(&block);
        let generation = header.generation.get();
        let is_it =
            header.addr.get() == addr.0 && header.kind == kind as u8 && verify_checksum(&block).is_ok();
        if is_it && found.as_ref().is_none_or(|(newest, ..)| *newest < generation) {
            found = Some((generation, at, block.clone()));
        }
    }
    let (_, at, block) = found.expect("the block is on the device");
    (at, block)
}

/// Changes a metadata block and makes all checksums valid again.
fn plant(device: &MemoryDevice, addr: MetaAddr, kind: BlockKind, change: impl FnOnce(&mut Block)) {
    let (at, mut block) = find(device, addr, kind);
    change(&mut block);
    let generation = BlockHeader::of(&block).generation.get();
    seal(&mut block, Generation(generation));
    device.write_at(at, &block[..]).unwrap();
    chain::mend(device);
}

/// Damages a metadata block, so that its checksum is wrong.
fn spoil(device: &MemoryDevice, addr: MetaAddr, kind: BlockKind) {
    let (at, mut block) = find(device, addr, kind);
    block[1000] ^= 1;
    device.write_at(at, &block[..]).unwrap();
}

fn read_inode(device: &MemoryDevice, no: InodeNo) -> Inode {
    let (_, block) = find(device, no.addr(), BlockKind::Inodes);
    Inode::decode(Inode::slot(&block, no.slot())).unwrap()
}

fn plant_inode(device: &MemoryDevice, no: InodeNo, change: impl FnOnce(&mut Inode)) {
    plant(device, no.addr(), BlockKind::Inodes, |block| {
        let mut inode = Inode::decode(Inode::slot(block, no.slot())).unwrap();
        change(&mut inode);
        inode.encode(Inode::slot_mut(block, no.slot()).0);
    });
}

fn bitmap() -> MetaAddr {
    MetaAddr::new(ZoneNo::primary(GroupNo(0)), 0)
}

fn first_free(block: &Block) -> u32 {
    (0..).find(|bit| !BitmapRef::new(block).get(*bit)).unwrap()
}

/// The file's only extent, and the bit of its first block in group 0.
fn extent_of(device: &MemoryDevice, no: InodeNo) -> (ExtentValue, u32) {
    let extents = ExtentValue::decode_inline(&read_inode(device, no)).unwrap();
    assert_eq!(extents.len(), 1);
    let (group, bit) = Geometry::new(SIZE / BLOCK_SIZE as u64).bit_of(extents[0].1.start).unwrap();
    assert_eq!(group, GroupNo(0));
    (extents[0].1, bit)
}

/// Marks a block of the file as free in the bitmap, and another one as used, so that the counts stay right.
fn plant_free_block(device: &MemoryDevice, bit: u32) {
    plant(device, bitmap(), BlockKind::Bitmap, |block| {
        let free = first_free(block);
        BitmapMut::new(block).set(bit, 1, false);
        BitmapMut::new(block).set(free, 1, true);
    });
}

/// A volume with directories `a/b/c` and files `a/b/c/deep` and `a/high`, where `c` is `a` once more.
fn circle() -> MemoryDevice {
    circle_of(|_| ())
}

/// As `circle`, after `fill` has changed the volume.
fn circle_of(fill: impl FnOnce(&Volume)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    volume.create_dir_all("a/b/c").unwrap();
    volume.write("a/b/c/deep", "deep").unwrap();
    volume.write("a/high", "high").unwrap();
    fill(&volume);
    volume.close().unwrap();
    let a = inode_of(&device, "a");
    let incarnation = read_inode(&device, a).incarnation;
    plant_inode(&device, inode_of(&device, "a/b"), |b| {
        let (cookie, entry) = b.inline().split_at(8);
        let (entry, _) = DirEntry::decode_prefix(entry).unwrap();
        assert_eq!(entry.name, b"c");
        let mut content = cookie.to_vec();
        DirEntry { inode: a, incarnation, ..entry }.encode(&mut content);
        b.set_inline(&content);
    });
    device.snapshot()
}

fn corruption(error: Error) -> Box<Corruption> {
    match error.root() {
        Error::Corruption(c) => c.clone(),
        other => panic!("{other}"),
    }
}

/// Damage made a tree a circle. A walk ends where the tree comes back, wherever the walk begins; what lies
/// beside the circle is still shown.
#[test]
fn a_walk_in_a_circle_ends() {
    let device = circle();
    let volume = open_read_only(device.snapshot());
    for (start, expected) in [("", 4), ("a", 3), ("a/b", 3)] {
        let (shown, errors): (Vec<_>, Vec<_>) =
            volume.walk(format!("/{start}")).take(1000).partition(Result::is_ok);
        assert_eq!((shown.len(), errors.len()), (expected, 1), "from {start}");
        let error = errors.into_iter().next().unwrap().unwrap_err();
        let c = corruption(error);
        assert_eq!((c.structure, c.field), ("directory", "entry"), "from {start}");
    }
    volume.close().unwrap();
    let volume = open(device).unwrap();
    let error = volume.remove_dir_all("a").unwrap_err();
    assert!(error.to_string().contains("a/b/c"), "{error}");
    assert_eq!(corruption(error).owner, Some(InodeNo(volume.metadata("a/b").unwrap().ino())));
    volume.close().unwrap();
}

/// The sum of what is below a directory went round a circle for ever, and so did the search for other names
/// of a file that a rollback brings back.
#[test]
fn the_past_of_a_circle_is_looked_through_once() {
    let device = circle_of(|volume| {
        volume.write("a/one", "of two names").unwrap();
        volume.hard_link("a/one", "a/two").unwrap();
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named("then") }).unwrap();
        volume.remove_file("a/one").unwrap();
        volume.remove_file("a/two").unwrap();
    });
    let volume = open(device).unwrap();
    let view = volume.view();
    let a = volume.node("a").unwrap().inode();
    let totals = view.usage(a, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(totals.live < SIZE, "{totals:?}");
    let target = view.event_for(a, &When::Named("then".into())).unwrap();
    let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
    // Any result will do.
    let _ = view.rollback(&Rights::All, a, &plan, &mut |_| ());
}

/// A rollback was stopped on a full volume, and the inode of its directory is damaged since. The volume could
/// not be opened for writing any more, and every later rollback of another directory began and did not end.
/// Now the stopped one stays as it is.
#[test]
fn a_stopped_rollback_of_a_damaged_directory_is_left_alone() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    volume.create_dir("other").unwrap();
    volume.write("other/file", "sound").unwrap();
    // So that the directory has no inode block in common with these.
    (0..40).for_each(|n| volume.write(format!("file {n}"), "").unwrap());
    volume.create_dir("d").unwrap();
    for n in 0..60 {
        volume.write(format!("d/{n}"), "small").unwrap();
        volume.set_xattr(format!("d/{n}"), "user.large", [7; 60_000], SetXattrMode::Any).unwrap();
    }
    let view = volume.view();
    let [other, d] = ["other", "d"].map(|name| volume.node(name).unwrap().inode());
    assert!(d.addr() != other.addr() && d.addr() != InodeNo::ROOT.addr());
    let held = |inode| {
        let event = view.take_snapshot(inode, &NewSnapshot::default()).unwrap().number;
        view.hold(event, true).unwrap();
        Plan { verb: Verb::Rollback, of: None, target: event, others: None }
    };
    let of_d = held(d);
    (0..60).for_each(|n| volume.remove_file(format!("d/{n}")).unwrap());
    let fill = |n: u32| volume.write(format!("fill {n}"), vec![1; 1 << 20]).is_ok();
    let filled = (0..).take_while(|n| fill(*n)).count();
    volume.remove_file("fill 0").unwrap();
    let failed = view.rollback(&Rights::All, d, &of_d, &mut |_| ());
    assert!(matches!(failed, Err(Error::Unfinished { .. })), "{failed:?}");
    (1..filled).for_each(|n| volume.remove_file(format!("fill {n}")).unwrap());
    // New inodes would come into the block that is about to be damaged.
    (0..200).for_each(|n| volume.write(format!("later {n}"), "").unwrap());
    let of_other = held(other);
    volume.set_permissions("other/file", 0o600).unwrap();
    volume.close().unwrap();

    let device = device.snapshot();
    spoil(&device, d.addr(), BlockKind::Inodes);
    let volume = open(device).unwrap();
    let view = volume.view();
    corruption(volume.metadata("d").unwrap_err());
    assert_eq!(view.unfinished_rollbacks().unwrap().len(), 1);
    view.rollback(&Rights::All, other, &of_other, &mut |_| ()).unwrap();
    assert_ne!(volume.metadata("other/file").unwrap().permissions() & 0o777, 0o600);
    assert_eq!(view.unfinished_rollbacks().unwrap().len(), 1);
    volume.close().unwrap();
}

/// An extent cannot be freed if the bitmap has its blocks as free. Other files in the group can be freed.
#[test]
fn an_extent_of_free_blocks_is_not_freed() {
    let device = volume();
    let no = inode_of(&device, "a");
    let (extent, bit) = extent_of(&device, no);
    plant_free_block(&device, bit + 1);
    let volume = open(device).unwrap();
    let c = corruption(volume.truncate("a", 0).unwrap_err());
    assert_eq!((c.structure, c.addr, c.owner), ("bitmap", Some(bitmap()), Some(no)));
    assert_eq!(c.block, Some(BlockNo(extent.start.0 + 1)));
    assert_eq!(volume.read("a").unwrap(), "a".repeat(3 * BLOCK_SIZE).as_bytes(), "nothing was changed");
    volume.remove_file("b").unwrap();
    volume.write("c", vec![7; 40 * BLOCK_SIZE]).unwrap();
    volume.close().unwrap();
}

/// If a file cannot be freed when the volume is closed, everything else is still written, and the file is not
/// forgotten.
#[test]
fn closing_writes_what_it_can() {
    let device = volume();
    let (_, bit) = extent_of(&device, inode_of(&device, "a"));
    plant_free_block(&device, bit);
    let device = Arc::new(device);
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    volume.remove_file("a").unwrap();
    volume.write("c", "written last").unwrap();
    assert_eq!(corruption(volume.close().unwrap_err()).structure, "bitmap");
    drop(volume);
    let again = open(device.snapshot()).unwrap();
    assert_eq!(again.info().inodes, 4, "root, b and c, and still the one that cannot be freed");
    again.close().unwrap();
    assert_eq!(open_read_only(device.snapshot()).read("c").unwrap(), b"written last");
}

/// If a bitmap and its group's summary count differently, that is reported before anything is written there.
#[test]
fn a_bitmap_and_its_summary_count_the_same() {
    for used in [false, true] {
        let device = volume();
        let (_, bit) = extent_of(&device, inode_of(&device, "a"));
        plant(&device, bitmap(), BlockKind::Bitmap, |block| {
            let bit = if used { first_free(block) } else { bit };
            BitmapMut::new(block).set(bit, 1, used);
        });
        let volume = open(device).unwrap();
        let writing = volume.write("c", vec![1; BLOCK_SIZE]).and_then(|()| volume.sync());
        for result in [volume.truncate("b", 0), writing] {
            let c = corruption(result.unwrap_err());
            assert_eq!((c.structure, c.field, c.addr), ("bitmap", "counts", Some(bitmap())));
        }
        assert_eq!(volume.read("a").unwrap().len(), 3 * BLOCK_SIZE);
    }
}

/// Blocks that two files name are freed once; the other file keeps its extent.
#[test]
fn blocks_of_two_files_are_freed_once() {
    let device = volume();
    let (a, b) = (inode_of(&device, "a"), inode_of(&device, "b"));
    let (extent, _) = extent_of(&device, a);
    plant_inode(&device, b, |inode| ExtentValue::encode_inline(inode, &[(0, extent)]));
    let volume = open(device).unwrap();
    volume.truncate("a", 0).unwrap();
    let c = corruption(volume.truncate("b", 0).unwrap_err());
    assert_eq!((c.structure, c.block, c.owner), ("bitmap", Some(extent.start), Some(b)));
}

/// Blocks that one file names twice are not freed at all: one Op would free them twice.
#[test]
fn blocks_named_twice_by_one_file_are_not_freed() {
    let device = volume();
    let no = inode_of(&device, "a");
    let (extent, _) = extent_of(&device, no);
    plant_inode(&device, no, |inode| ExtentValue::encode_inline(inode, &[(0, extent), (8, extent)]));
    let volume = open(device).unwrap();
    let c = corruption(volume.truncate("a", 0).unwrap_err());
    assert_eq!((c.structure, c.block, c.owner), ("extent", Some(extent.start), Some(no)));
}

/// Extents that lie beyond the volume, across a group's end, in a zone's place, beyond the largest file, or
/// over one another.
#[test]
fn impossible_extents_are_errors() {
    type Make = fn(ExtentValue) -> Vec<(u64, ExtentValue)>;
    let stories: [(&str, Make); 5] = [
        ("beyond the volume", |e| vec![(0, ExtentValue { start: BlockNo(SIZE), ..e })]),
        ("across a group's end", |e| vec![(0, ExtentValue { start: BlockNo(GROUP_BLOCKS - 1), ..e })]),
        ("in the first zone", |e| vec![(0, ExtentValue { start: BlockNo(70), ..e })]),
        ("beyond the largest file", |e| vec![(u64::from(u32::MAX) - 1, e)]),
        ("over one another", |e| vec![(0, e), (1, ExtentValue { start: BlockNo(e.start.0 + 100), ..e })]),
    ];
    for (what, make) in stories {
        let device = volume();
        let no = inode_of(&device, "a");
        let (extent, _) = extent_of(&device, no);
        plant_inode(&device, no, |inode| ExtentValue::encode_inline(inode, &make(extent)));
        let volume = open(device).unwrap();
        let c = corruption(volume.truncate("a", 0).expect_err(what));
        assert_eq!((c.structure, c.owner), ("extent", Some(no)), "{what}");
        if let Err(e) = volume.read("a") {
            assert_eq!(corruption(e).owner, Some(no), "{what}");
        }
        volume.write("b", "well").unwrap();
        volume.close().unwrap();
    }
}

/// A wrong count of blocks is for the checker to find: everybody can still read the file's attributes and
/// delete the file.
#[test]
fn wrong_counts_of_blocks_do_not_matter() {
    for blocks in [0, 1, u64::MAX / 4, u64::MAX] {
        let device = volume();
        let no = inode_of(&device, "a");
        plant_inode(&device, no, |inode| inode.blocks = blocks);
        let volume = open(device).unwrap();
        assert!(volume.metadata("a").unwrap().blocks() >= blocks);
        volume.append("a", vec![1; 5 * BLOCK_SIZE]).unwrap();
        volume.sync().unwrap();
        volume.remove_file("a").unwrap();
        volume.close().unwrap();
    }
}

/// An inode says that it has no names, but has one. Reading its attributes does not free it; removing the
/// name does.
#[test]
fn a_file_without_links_but_with_a_name() {
    let device = volume();
    plant_inode(&device, inode_of(&device, "a"), |inode| inode.links = 0);
    let device = Arc::new(device);
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    assert_eq!(volume.metadata("a").unwrap().nlink(), 0);
    assert_eq!(volume.read("a").unwrap().len(), 3 * BLOCK_SIZE);
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    assert_eq!(volume.read("a").unwrap().len(), 3 * BLOCK_SIZE, "still there");
    let free = volume.statfs().blocks_free;
    volume.remove_file("a").unwrap();
    assert_eq!(volume.statfs().blocks_free, free + 3);
    volume.close().unwrap();
}

/// A list of orphans contains an inode that is free, or another inode. In spite of this damage everybody can
/// open and use the volume; what is listed stays.
#[test]
fn orphans_that_are_none() {
    let changes: [fn(&mut Inode); 2] = [
        |inode| *inode = Inode { incarnation: inode.incarnation, ..Inode::free() },
        |inode| inode.incarnation.0 += 1,
    ];
    for change in changes {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
        volume.write("a", "a").unwrap();
        let node = volume.node("a").unwrap();
        volume.remove_file("a").unwrap();
        volume.sync().unwrap();
        let crashed = device.snapshot();
        open(crashed.snapshot()).unwrap().close().unwrap();
        plant_inode(&crashed, node.inode(), change);
        let crashed = Arc::new(crashed);
        for round in 0..2 {
            let volume = Volume::open(crashed.clone(), &MountOptions::default()).unwrap();
            volume.write(format!("b{round}"), "b").unwrap();
            volume.close().unwrap();
        }
    }
}

/// Extents that continue one another and were never merged are no damage, however many there are: a write to
/// more of them than one Op takes is split into several Ops.
#[test]
fn extents_that_nobody_merged() {
    const BLOCKS: u64 = 150;
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let file = File::create(&volume, "a").unwrap();
    let no = file.inode();
    for block in 0..BLOCKS {
        let mode = FallocateMode::Allocate { keep_size: false };
        volume.view().fallocate(no, 2 * block * BLOCK_SIZE as u64, BLOCK_SIZE as u64, mode).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    let device = device.snapshot();
    let inode = read_inode(&device, no);
    assert_eq!((inode.content_kind, inode.content_level), (ContentKind::Tree, 1));
    let (_, root) = find(&device, inode.tree_root(), BlockKind::Extents);
    let mut moved = 0;
    plant(&device, NodeRef::new(&root).child(0).unwrap(), BlockKind::Extents, |block| {
        let old = *block;
        let old = NodeRef::new(&old);
        let mut new = NodeMut::init(block, 8);
        for i in 0..old.count() {
            new.insert(i, &(i as u64).to_be_bytes(), old.value(i));
        }
        moved = old.count();
    });
    assert!(moved > 64, "more than two windows");
    let volume = open(device).unwrap();
    let content = vec![5; moved * BLOCK_SIZE];
    let file = OpenOptions::new().write(true).open(&volume, "a").unwrap();
    file.write_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    assert!(volume.read("a").unwrap()[..content.len()] == content);
    volume.remove_file("a").unwrap();
    drop(file);
    volume.close().unwrap();
}

/// An extent that points into a zone that is not its group's first, into the first zone of group 0, or into
/// the log, is recognised wherever it is used: what lies there is not read as data, not overwritten, and not
/// freed.
#[test]
fn extents_in_zones_and_the_log() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    volume.write("a", "a".repeat(3 * BLOCK_SIZE)).unwrap();
    for n in 0..28 {
        let name = format!("attributes {n}");
        volume.write(&name, "").unwrap();
        volume.set_xattr(&name, "user.large", vec![n; 65_536], SetXattrMode::Any).unwrap();
    }
    volume.close().unwrap();
    let device = device.snapshot();
    let no = inode_of(&device, "a");
    let superblock = chain_superblock(&device);
    let further = further_zone(&device);
    let mut starts = vec![("the group's first zone", 1024 + 10), ("a further zone", further + 20)];
    if superblock.log_blocks > 0 {
        starts.push(("the log", superblock.log_start.0));
    }
    for (what, start) in starts {
        let device = device.snapshot();
        let (extent, _) = extent_of(&device, no);
        plant_inode(&device, no, |inode| {
            ExtentValue::encode_inline(inode, &[(0, ExtentValue { start: BlockNo(start), ..extent })])
        });
        let device = Arc::new(device);
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        let file = OpenOptions::new().write(true).open(&volume, "a").unwrap();
        let written = file.write_at(&[9; BLOCK_SIZE], 0).map(drop).and_then(|()| file.sync_all());
        for result in [volume.read("a").map(drop), volume.truncate("a", 0), written] {
            let c = corruption(result.expect_err(what));
            assert_eq!((c.structure, c.owner, c.block), ("extent", Some(no), Some(BlockNo(start))), "{what}");
        }
        drop(file);
        drop(volume.close());
        for n in 0..28 {
            let value = open_read_only(device.snapshot()).get_xattr(format!("attributes {n}"), "user.large");
            assert_eq!(value.unwrap().unwrap(), vec![n; 65_536], "{what}");
        }
    }
}

/// The table of events and the superblock may contradict each other, so that the next number would be that of
/// an existing event, or no number at all. An event may also have a time after which no other can come.
/// Writers would make it worse, so they are refused; readers need neither number nor time.
#[test]
fn the_next_number_and_time_come_after_all_events() {
    let device = Arc::new(volume());
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    let event = view
        .take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named("s") })
        .unwrap()
        .number;
    volume.close().unwrap();
    let refused = |damaged: &MemoryDevice, what: &str| {
        let c = corruption(open(damaged.snapshot()).unwrap_err());
        assert!(c.field.contains(what), "{c}");
        assert_eq!(open_read_only(damaged.snapshot()).read_to_string("a").unwrap().len(), 3 * BLOCK_SIZE);
    };
    for next in [0, event.0] {
        let damaged = device.snapshot();
        let mut superblock = chain_superblock(&damaged);
        superblock.next_number = EventNo(next);
        for slot in 0..2 {
            let at = u64::from(slot) * BLOCK_SIZE as u64;
            damaged.write_at(at, &superblock.encode(slot)[..]).unwrap();
        }
        refused(&damaged, "number");
    }
    let damaged = device.snapshot();
    let (_, roots) = find(&damaged, chain_superblock(&damaged).history_root, BlockKind::HistoryRoots);
    let (root, _) = HistoryRoots::get(&roots, HistoryTree::Events);
    plant(&damaged, root, BlockKind::Events, |block| {
        let row = EventRow::decode(NodeRef::new(block).value(0)).unwrap();
        let time = Timestamp { seconds: i64::MAX, nanos: 999_999_999 };
        NodeMut::new(block).replace(0, &EventRow { time, ..row }.encode());
    });
    refused(&damaged, "time");
}

/// The list of snapshots cannot be read: a row, a node, or the block of roots is damaged. That used to be the
/// end of the present, too.
#[test]
fn the_present_is_read_without_the_list_of_snapshots() {
    let device = Arc::new(volume());
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    let events = ["one", "two", "three"].map(|name| {
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
            .unwrap()
            .number
    });
    volume.write("a", "later").unwrap();
    volume.close().unwrap();
    let roots_at = chain_superblock(&device).history_root;
    let (_, roots) = find(&device, roots_at, BlockKind::HistoryRoots);
    let (events_at, _) = HistoryRoots::get(&roots, HistoryTree::Events);
    let opened = |damaged: &MemoryDevice, readable: &[EventNo]| {
        corruption(open(damaged.snapshot()).unwrap_err());
        let volume = open_read_only(damaged.snapshot());
        assert_eq!(volume.read("a").unwrap(), b"later");
        for event in events {
            let then = Volume::from_view(volume.view().as_of(event));
            assert_eq!(then.read("a").is_ok(), readable.contains(&event), "{event}");
        }
        for name in ["a@one", "b@three", "a@1min"] {
            drop(volume.read(name));
        }
        drop(volume.view().events());
    };
    // Only the second row: the rows before it are there.
    let damaged = device.snapshot();
    plant(&damaged, events_at, BlockKind::Events, |block| {
        NodeMut::new(block).replace(1, &[0; 32]);
    });
    opened(&damaged, &events[..1]);
    for (addr, kind) in [(events_at, BlockKind::Events), (roots_at, BlockKind::HistoryRoots)] {
        let damaged = device.snapshot();
        let (at, _) = find(&damaged, addr, kind);
        damaged.write_at(at, &[0xa5; BLOCK_SIZE]).unwrap();
        opened(&damaged, &[]);
    }
}

fn chain_superblock(device: &MemoryDevice) -> yore_format::Superblock {
    let mut slots = [[0; BLOCK_SIZE]; 2];
    for (n, slot) in slots.iter_mut().enumerate() {
        device.read_at((n * BLOCK_SIZE) as u64, slot).unwrap();
    }
    yore_format::decode_slots([&slots[0], &slots[1]]).unwrap().0
}

/// A zone that is neither a root zone nor a group's first.
fn further_zone(device: &MemoryDevice) -> u64 {
    let mut block = Box::new([0; BLOCK_SIZE]);
    let starts = (2 * 1024..SIZE / BLOCK_SIZE as u64).step_by(1024);
    let mut zones = starts.filter(|start| {
        [2, 3].iter().any(|slot| {
            device.read_at((start + slot) * BLOCK_SIZE as u64, &mut block[..]).unwrap();
            BlockHeader::of(&block).kind == BlockKind::ZoneHeader as u8 && verify_checksum(&block).is_ok()
        })
    });
    zones.next().expect("the group has a further zone")
}

/// One directory with a policy was damaged, and the volume could not be opened for writing any more. Nor did
/// any rules apply on a volume that was open. Now the others' intervals go on, and the rules apply to them.
#[test]
fn a_damaged_directory_with_a_policy() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let hourly = Versioning::Interval(3_600_000_000_000);
    let mut directories = Vec::new();
    for i in 0..40 {
        let name = format!("d{i}");
        volume.create_dir(&name).unwrap();
        let no = volume.node(&name).unwrap().inode();
        let policy = Policy { versioning: Some(hourly), ..Policy::default() };
        volume.view().set_policy(no, &policy).unwrap();
        for _ in 0..2 {
            volume.view().take_snapshot(no, &NewSnapshot::default()).unwrap();
        }
        directories.push(no);
    }
    volume.close().unwrap();
    let device = device.snapshot();
    let one = *directories.iter().find(|no| no.addr() != InodeNo::ROOT.addr()).unwrap();
    plant(&device, one.addr(), BlockKind::Inodes, |block| {
        Inode::slot_mut(block, one.slot()).0.fill(0xff);
    });
    // Those in the block of the damaged one cannot be read, either.
    let (damaged, mut sound): (Vec<InodeNo>, Vec<InodeNo>) =
        directories.into_iter().partition(|no| no.addr() == one.addr());
    sound.sort_unstable();
    assert!(!sound.is_empty());
    let volume = open(device).unwrap();
    let view = volume.view();
    let with_policy: Vec<InodeNo> = view.policies().unwrap().into_iter().map(|(no, _)| no).collect();
    assert_eq!(with_policy, sound);
    let last = RetentionRules { last: 1, ..RetentionRules::default() };
    let policy = Policy { retention: Some(Retention::Rules(last)), ..Policy::default() };
    view.set_policy(view.root(), &policy).unwrap();
    view.retain().unwrap();
    let events = view.events().unwrap();
    let of = |no: &InodeNo| events.iter().filter(|event| event.row.root == *no).count();
    assert!(sound.iter().all(|no| of(no) == 1), "{events:?}");
    assert!(damaged.iter().all(|no| of(no) == 3), "{events:?}");
}
