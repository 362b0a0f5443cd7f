//! Promises: every damage that the checker knows is found by name and in its place, and nothing is reported
//! that the damage does not itself bring about. Each plant changes one structure of a sound volume. It leaves
//! the checksums right, unless it is about checksums.

#[path = "damage/annals.rs"]
mod annals_damage;
mod common;
#[path = "damage/costs.rs"]
mod costs;
#[path = "damage/in_use.rs"]
mod in_use;
#[path = "damage/owners.rs"]
mod owners;
#[path = "damage/past.rs"]
mod past_damage;
#[path = "damage/present.rs"]
mod present_damage;
#[path = "damage/remade.rs"]
mod remade;
#[path = "damage/repaired.rs"]
mod repaired;
#[path = "damage/rows.rs"]
mod rows;
#[path = "damage/shared.rs"]
mod shared_damage;
#[path = "damage/undone.rs"]
mod undone;

use annals_damage::{ANNALS, HINTS};
use common::*;
use past_damage::{EVENTS, EXTENDED, PAST_NAMES, PAST_TREES, POLICIES, SHARING, VERSIONS};
use present_damage::{BLOCKS_AND_TREES, INODES, NAMES, SPACE, SUPERBLOCKS_AND_ZONES};
use shared_damage::SHARED_BLOCKS;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use yore_check::{check, CheckOptions, Class, Problem, Report, Value};
use yore_device::MemoryDevice;
use yore_format::layout::*;
use yore_format::*;
use Problem::*;

/// A damage: its story, the problems that it must show (all of them, and no others), and how to plant it.
type Plant = (&'static str, &'static [Problem], fn(&mut Builder));

fn checked(device: &MemoryDevice) -> Report {
    check(device, &CheckOptions::default()).expect("the volume can be checked")
}

fn superblock(b: &mut Builder, change: fn(&mut Superblock)) {
    b.on_superblock.push(Box::new(change));
}

fn header(b: &mut Builder, zone: u32, change: fn(&mut ZoneHeader)) {
    b.on_header.push((zone, Box::new(change)));
}

fn entry(b: &mut Builder, zone: u32, change: fn(&mut ZoneTableEntry)) {
    b.on_entry.push((zone, Box::new(change)));
}

fn on_block(b: &mut Builder, addr: MetaAddr, change: fn(&mut Block)) {
    b.on_block.push((addr, Box::new(change)));
}

fn root0() -> u32 {
    ZoneNo::root(0).0
}

fn bitmap0() -> MetaAddr {
    MetaAddr::new(ZoneNo(0), 0)
}

fn inodes0() -> MetaAddr {
    InodeNo::ROOT.addr()
}

/// The branch of the root directory, or another tree of two levels.
fn tree_of(b: &Builder, inode: u64) -> MetaAddr {
    b.inodes[&InodeNo(inode)].tree_root()
}

fn child_of(b: &Builder, branch: MetaAddr, i: usize) -> MetaAddr {
    NodeRef::new(&b.zones[&branch.zone().0].blocks[&branch.index()]).child(i).unwrap()
}

fn new_root(b: &mut Builder, change: impl Fn(&mut Vec<(u64, Vec<u8>)>)) {
    b.forget(ROOT);
    let mut cells = root_cells(b);
    change(&mut cells);
    set_root(b, &[cells]);
}

fn new_attributes(b: &mut Builder, change: impl Fn(&mut Vec<(u64, Vec<u8>)>)) {
    b.forget_tree(b.inodes[&InodeNo(ATTRS)].xattr_root);
    let mut cells = attribute_cells();
    change(&mut cells);
    cells.sort();
    set_attributes(b, &cells);
}

fn new_orphans(b: &mut Builder, change: impl Fn(&mut Vec<(u64, Vec<u8>)>)) {
    let root = b.sb.orphan_root;
    let block = &b.zones[&0].blocks[&root.index()];
    let node = NodeRef::new(block);
    let mut cells: Vec<(u64, Vec<u8>)> = (0..node.count())
        .map(|i| (u64::from_be_bytes(node.key(i).try_into().unwrap()), node.value(i).to_vec()))
        .collect();
    change(&mut cells);
    let empty = block.clone();
    b.node(root, empty, &cells);
}

/// Changes bytes of a block of the finished volume; nothing is put right afterwards.
fn raw(b: &mut Builder, block: u64, change: fn(&mut Block)) {
    b.after.push(Box::new(move |device| {
        let mut bytes = read(device, block);
        change(&mut bytes);
        write(device, block, &bytes);
    }));
}

/// Has the spare superblocks say what the newer superblock says.
fn spare(b: &mut Builder) {
    b.after.push(Box::new(|device| {
        let SlotState::Valid(sb) = Superblock::decode(&read(device, 1), 1) else { panic!() };
        for at in FINDINGS_BLOCKS {
            let mut block = read(device, at.0);
            Spare::of(&sb).put(&mut block);
            write(device, at.0, &block);
        }
    }));
}

/// Puts a sound copy of the same block, of the generation before, where the newest copy should be.
fn lost_write(b: &mut Builder, block: u64) {
    b.after.push(Box::new(move |device| {
        let mut bytes = read(device, block);
        seal(&mut bytes, Generation(GENERATION.0 - 1));
        write(device, block, &bytes);
    }));
}

/// A volume, and the damages to plant on it.
type Plants = (fn() -> Builder, Vec<&'static Plant>);

/// The damages of the sound volume, of the one with a past, and of the one with annals.
fn volumes() -> [Plants; 3] {
    let present = [SUPERBLOCKS_AND_ZONES, BLOCKS_AND_TREES, INODES, NAMES, SPACE, SHARED_BLOCKS];
    let past = [PAST_TREES, EVENTS, VERSIONS, PAST_NAMES, POLICIES, EXTENDED, SHARING];
    [
        (sound, present.into_iter().flatten().collect()),
        (common::past::past, past.into_iter().flatten().collect()),
        (common::past::annals, ANNALS.iter().chain(HINTS).collect()),
    ]
}

/// Promises that each damage shows as its own problems, and as no others.
#[test]
fn every_damage_is_found_and_nothing_else() {
    let mut failures = vec![];
    let plants = volumes().into_iter().flat_map(|(of, plants)| plants.into_iter().map(move |p| (of, p)));
    for (volume, (story, problems, plant)) in plants {
        let mut b = volume();
        plant(&mut b);
        let report = checked(&b.finish());
        let found: BTreeSet<Problem> = report.findings.iter().map(|f| f.problem).collect();
        let expected: BTreeSet<Problem> = problems.iter().copied().collect();
        if found != expected {
            failures.push(format!("{story}: expected {expected:?}, found {found:?}\n{report}\n"));
        }
    }
    assert!(failures.is_empty(), "{} plants fail:\n{}", failures.len(), failures.join("\n"));
}

/// Promises that the same is found, in the same order, whether metadata is read in the order of the disk or
/// as a walk comes to it, and however little memory there is.
#[test]
fn a_scan_changes_no_finding() {
    let plants = volumes().into_iter().flat_map(|(of, plants)| plants.into_iter().map(move |p| (of, p)));
    for (volume, (story, _, plant)) in plants {
        let mut b = volume();
        plant(&mut b);
        let device = b.finish();
        let with = |scan_from, memory| {
            let options = CheckOptions { scan_from, memory, ..CheckOptions::default() };
            check(&device, &options).expect("there is a superblock")
        };
        let walked = with(u64::MAX, 0);
        assert_eq!(walked.reading.scan_requests, 0);
        for memory in [1 << 30, 16 << 12, 0] {
            let scanned = with(0, memory);
            assert!(scanned.reading.scan_requests > 0, "{story}");
            assert_eq!(scanned.findings, walked.findings, "{story}, with {memory} bytes of memory");
            assert_eq!(scanned.counts, walked.counts, "{story}, with {memory} bytes of memory");
        }
    }
}

/// Promises that the fast pass proves the volumes sound that damages are planted on, and one with shared
/// blocks, and counts on them what the walk counts; where all blocks are to be held first, also if there is
/// no memory for them. So a damage on them is what gives the fast pass a doubt.
#[test]
fn the_fast_pass_proves_what_is_sound() {
    let volumes: [fn() -> Builder; 4] =
        [sound, common::past::past, common::past::annals, common::shared::shared];
    for (i, volume) in volumes.into_iter().enumerate() {
        let device = volume().finish();
        let with = |scan_from, memory| {
            let options = CheckOptions { scan_from, memory, ..CheckOptions::default() };
            check(&device, &options).expect("there is a superblock")
        };
        let walked = with(u64::MAX, 1 << 30);
        assert!(walked.is_clean() && !walked.proved, "volume {i}: {walked}");
        let memory = if i == 0 { &[1 << 30][..] } else { &[1 << 30, 16 << 12, 0] };
        for memory in memory.iter().copied() {
            let proved = with(0, memory);
            assert!(proved.is_clean() && proved.proved, "volume {i}: {}: {proved}", proved.doubt);
            assert_eq!(proved.counts, walked.counts, "volume {i}");
        }
    }
}

/// Promises that a leak and a wrong total are found by the fast pass itself, with and without a past and with
/// shared blocks: the comparison need not go through all that is sound.
#[test]
fn leaks_and_totals_need_no_comparison() {
    let volumes: [fn() -> Builder; 4] =
        [sound, common::past::past, common::past::annals, common::shared::shared];
    for (i, volume) in volumes.into_iter().enumerate() {
        let mut b = volume();
        b.data(1);
        superblock(&mut b, |sb| sb.inodes += 1);
        let options = CheckOptions { scan_from: 0, ..CheckOptions::default() };
        let report = check(&b.finish(), &options).unwrap();
        let found: Vec<Problem> = report.findings.iter().map(|f| f.problem).collect();
        assert_eq!(found, [SpaceLeaked, TotalInodes], "volume {i}: {report}");
        assert!(
            !report.proved && report.doubt.contains("all else is proved"),
            "volume {i}: {}",
            report.doubt
        );
    }
}

/// Promises that for each problem there is a damage that shows it. A device that lost its end has a test of
/// its own below.
#[test]
fn every_problem_is_planted() {
    let mut left: BTreeSet<Problem> = Problem::ALL.iter().copied().collect();
    for (_, problems, _) in volumes().into_iter().flat_map(|(_, plants)| plants) {
        for problem in *problems {
            left.remove(problem);
        }
    }
    left.remove(&DeviceTooShort);
    left.remove(&BlockBeyondDevice);
    assert!(left.is_empty(), "never planted: {left:?}");
}

/// Promises that the last group's bitmap must mark as used what lies beyond the end of the volume.
#[test]
fn the_bitmap_ends_with_the_volume() {
    let volume = || {
        let mut b = Builder::empty(5000);
        b.add_zone(0, ZONE_BLOCKS, 0);
        let mut root = empty_inode(DIR, 2, 1);
        (root.parent, root.parent_incarnation) = (InodeNo::ROOT, Incarnation(1));
        b.inodes.insert(InodeNo::ROOT, root);
        b
    };
    let report = checked(&volume().finish());
    assert!(report.is_clean(), "{report}");
    let mut b = volume();
    on_block(&mut b, bitmap0(), |block| {
        BitmapMut::new(block).set(5000 - ZONE_BLOCKS as u32, 1, false);
    });
    entry(&mut b, 0, |e| e.free_blocks = (e.free_blocks.get() + 1).into());
    superblock(&mut b, |sb| sb.free_blocks += 1);
    let report = checked(&b.finish());
    let [finding] = &report.findings[..] else { panic!("{report}") };
    assert_eq!((finding.problem, finding.block), (SpaceMarkedFree, Some(BlockNo(5000))));
}

/// Promises findings, not an error, for a volume whose device lost its end.
#[test]
fn a_truncated_device_is_a_finding() {
    let whole = sound().finish();
    let short = MemoryDevice::new(GROUP_BLOCKS * 4096);
    for block in 0..GROUP_BLOCKS {
        let bytes = read(&whole, block);
        if bytes.iter().any(|b| *b != 0) {
            write(&short, block, &bytes);
        }
    }
    let report = checked(&short);
    assert!(report.has(DeviceTooShort) && report.has(BlockBeyondDevice), "{report}");
}

/// Promises that a finding, and its serialised form, has the place, the inode, and numbers as numbers.
#[test]
fn a_finding_says_where_and_what() {
    let mut b = sound();
    b.inode(BIG).blocks += 1;
    let report = checked(&b.finish());
    let [finding] = &report.findings[..] else { panic!("{report}") };
    assert_eq!(finding.problem, InodeBlocks);
    assert_eq!(finding.class, Class::Inode);
    assert_eq!(finding.inode, Some(InodeNo(BIG)));
    assert_eq!(finding.addr, Some(InodeNo(BIG).addr()));
    assert_eq!((&finding.expected, &finding.found), (&Value::EventNo(393), &Value::EventNo(394)));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["problem"], "inode-blocks");
    assert_eq!(json["findings"][0]["place"], "0:1");
    assert_eq!(json["findings"][0]["expected"], 393);
    assert_eq!(json["state"], "clean");
    assert_eq!(finding.to_string().lines().count(), 1);
}

/// Promises that a finding has a path of its inode, through directories of any content, and none where no
/// name leads to the inode.
#[test]
fn a_finding_has_a_path() {
    let mut b = sound();
    for n in [BIG, SUB, DIRECTORY, REMOVED] {
        b.inode(n).blocks += 1;
    }
    let report = checked(&b.finish());
    let paths: Vec<_> = report.findings.iter().map(|f| (f.inode.unwrap().0, f.path.as_deref())).collect();
    let expected = [
        (BIG, Some("/big")),
        (DIRECTORY, Some("/directory")),
        (SUB, Some("/directory/sub")),
        (REMOVED, None),
    ];
    assert_eq!(paths, expected, "{report}");
    assert!(report.to_string().contains("inode 19 (\"/big\")"), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["findings"][0]["path"], &json["lost_count"]), (&"/big".into(), &0.into()));
}

/// Promises that a damaged inode block says by path what is lost with it, and that a damaged leaf of a
/// directory does not hide the names in the others.
#[test]
fn what_is_lost_is_named() {
    let mut b = sound();
    raw(&mut b, GROUP_BLOCKS + 6, |block| block[900] ^= 1);
    let report = checked(&b.finish());
    assert!(report.has(BlockDamaged), "{report}");
    assert_eq!((&report.lost.paths[..], report.lost.count), (&["/far".to_string()][..], 1), "{report}");
    assert!(report.to_string().contains("cannot be read: \"/far\""), "{report}");
    let mut b = sound();
    let leaf = child_of(&b, tree_of(&b, ROOT), 0);
    b.inode(SUB).blocks += 1;
    on_block(&mut b, leaf, |n| {
        NodeMut::init(n, 16);
    });
    let report = checked(&b.finish());
    let of_sub = report.findings.iter().find(|f| f.inode == Some(InodeNo(SUB))).expect("a finding");
    assert_eq!(of_sub.path.as_deref(), Some("/directory/sub"), "{report}");
    let of_root = report.findings.iter().find(|f| f.problem == TreeKeyWidth).expect("the leaf is damaged");
    assert_eq!(of_root.path.as_deref(), Some("/"), "{report}");
}

/// Promises that a directory that is its own ancestor has no path, and that the search for one ends.
#[test]
fn a_cycle_has_no_path() {
    let (_, _, plant) =
        NAMES.iter().find(|(_, problems, _)| problems.contains(&DirectoryCycle)).expect("a cycle is planted");
    let mut b = sound();
    plant(&mut b);
    let report = checked(&b.finish());
    let cycle = report.findings.iter().find(|f| f.problem == DirectoryCycle).expect("a cycle");
    assert_eq!(cycle.path, None, "{report}");
}

/// Promises that a block whose write was lost is named, with the generation that is there and the one that
/// should be.
#[test]
fn a_lost_write_is_told_from_damage() {
    let mut b = sound();
    lost_write(&mut b, GROUP_BLOCKS + 6);
    let report = checked(&b.finish());
    let [finding] = &report.findings[..] else { panic!("{report}") };
    assert_eq!((finding.problem, finding.class), (BlockStale, Class::Block));
    assert_eq!((finding.addr, finding.block), (Some(InodeNo(FAR).addr()), Some(BlockNo(GROUP_BLOCKS + 6))));
    assert!(finding.to_string().contains("a copy of generation 6"), "{finding}");
}

/// Promises that findings beyond the limit are counted but not kept, and that leaks are told from damage.
#[test]
fn findings_are_limited_and_leaks_are_told_apart() {
    let mut b = sound();
    for _ in 0..50 {
        b.data(1);
    }
    let device = b.finish();
    let report = check(&device, &CheckOptions { findings_max: 7, ..CheckOptions::default() }).unwrap();
    assert_eq!((report.findings.len(), report.findings_count), (7, 50));
    assert!(report.only_leaks() && !report.is_clean());
    assert!(report.to_string().contains("and 43 more"));
}
