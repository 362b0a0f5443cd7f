//! Promises: a sound volume has no findings, and the counts are right. A check writes nothing, so the device
//! may be read-only. Volumes that the metadata layer itself makes are sound.

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckError, CheckOptions, Counts};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_format::layout::{GROUP_BLOCKS, ZONE_BLOCKS};
use yore_format::*;

/// A device that panics when it is written to. Each request may cost a movement.
#[derive(Debug)]
struct Untouchable {
    of: MemoryDevice,
    is_slow: bool,
}

impl Untouchable {
    fn new(of: MemoryDevice) -> Untouchable {
        Untouchable { of, is_slow: false }
    }
}

impl Device for Untouchable {
    fn size(&self) -> u64 {
        self.of.size()
    }
    fn read_only(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "a device held read-only".into()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_slow {
            let blocks = (buf.len() / BLOCK_SIZE) as u32;
            std::thread::sleep(Duration::from_millis(2) + Duration::from_micros(20) * blocks);
        }
        self.of.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, _: &[u8]) -> Result<(), DeviceError> {
        panic!("written to at {offset}")
    }
    fn flush(&self) -> Result<(), DeviceError> {
        panic!("flushed")
    }
    fn discard(&self, offset: u64, _: u64) -> Result<(), DeviceError> {
        panic!("discarded at {offset}")
    }
}

/// Promises no findings, and right counts, for a volume with something of everything.
#[test]
fn a_sound_volume_is_clean() {
    let device = Untouchable::new(sound().finish());
    let report = check(&device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean() && report.only_leaks(), "{report}");
    let data = 7 + 6 * 65 + 4 + 6 + 8;
    let zones = ZONE_BLOCKS * 3;
    let usable = 2 * (GROUP_BLOCKS - ZONE_BLOCKS) + 3 * ZONE_BLOCKS;
    let expected = Counts {
        groups_used: 2,
        zones: 5,
        metadata_blocks: 2 + 2 + 3 + 3 + 3,
        tree_nodes: 9,
        inodes: 15,
        directories: 4,
        entries: 13,
        extents: 2 + 6 + 3,
        data_blocks: data,
        shared_blocks: 0,
        free_blocks: usable - zones - data,
        xattrs: 4,
        orphans: 3,
        log_records: 0,
        events: 0,
        rollbacks: 0,
        forgotten: 0,
        versions: 0,
        past_names: 0,
        history_data_blocks: 0,
        history_nodes: 0,
        history_trees: 0,
    };
    assert_eq!(report.counts, expected);
    assert_eq!(report.to_string().lines().count(), 1);
    assert_eq!(report.generation, GENERATION);
    assert_eq!(report.superblock_slot, 1);
    assert_eq!(report.engine, Engine::Snapshot);
    assert_eq!(report.state, VolumeState::Clean);
}

/// Promises no findings for a volume with a past in which several states of a file name the same nodes and
/// blocks. Each of these is counted once.
#[test]
fn a_sound_volume_with_a_past_is_clean() {
    let present = check(&sound().finish(), &CheckOptions::default()).unwrap().counts;
    let report = check(&Untouchable::new(past::past().finish()), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let data = (10 + 5 + 8 + 6 + 2 + 4) + (3 + 4) + 2;
    let counts = report.counts;
    let of_the_past = counts.metadata_blocks - present.metadata_blocks - 9 - 5 - 1 - 1;
    let expected = Counts {
        metadata_blocks: counts.metadata_blocks,
        // All nodes of the past itself, but not the block of roots.
        tree_nodes: present.tree_nodes + 9 + 5 + 1 + of_the_past,
        inodes: present.inodes + 2,
        entries: present.entries + 2,
        extents: present.extents + 6,
        data_blocks: present.data_blocks + data,
        free_blocks: present.free_blocks - data,
        xattrs: present.xattrs + 3,
        events: 5,
        rollbacks: 0,
        forgotten: 2,
        versions: 3 + 2 + 2 + 4,
        past_names: 4,
        history_data_blocks: 2 + 5 + (3 + 4) + 2,
        history_nodes: 8 + 1,
        history_trees: of_the_past + 1,
        ..present
    };
    assert_eq!(counts, expected);
    let text = report.to_string();
    assert_eq!(
        text.lines().last(),
        Some("of the past: 5 events, 2 forgotten, 11 versions, 4 names"),
        "{text}"
    );
}

/// Promises that the same past in annals is clean, in whole or in part, and is as much.
#[test]
fn a_sound_volume_with_annals_is_clean() {
    let counts = |b: Builder| {
        let report = check(&Untouchable::new(b.finish()), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        let Counts { versions, past_names, history_data_blocks, history_nodes, .. } = report.counts;
        (versions, past_names, history_data_blocks, history_nodes)
    };
    let first = counts(past::past());
    for from in 1..9 {
        let mut b = past::annals();
        b.past.annals_from = from;
        assert_eq!(counts(b), first, "annals from {from}");
    }
    // Rows that no longer have a name that they had, and rows whose keys somebody else will enter.
    let mut b = past::annals();
    b.past.reclaimed = true;
    assert_eq!(counts(b), (first.0, first.1 - 1, first.2, first.3));
    let mut b = past::annals();
    b.past.unindexed = true;
    assert_eq!(counts(b), first);
}

/// Promises that a file may be gone while all its history is being given up.
#[test]
fn what_is_being_expunged_may_be_gone() {
    let mut b = past::past();
    let row = past::event(50, past::GONE, 60, "");
    b.past.events.insert(8, EventRow { kind: EventKind::Expunge, state: EventState::Dying, ..row });
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises that what no kept event has seen may still be there: forgetting removes it later, step by step.
#[test]
fn the_past_may_outlast_its_events() {
    for state in [EventState::Dying, EventState::Forgotten] {
        let mut b = past::past();
        b.past.events.values_mut().for_each(|event| event.state = state);
        let report = check(&b.finish(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        let (events, forgotten) = if state == EventState::Dying { (7, 0) } else { (0, 7) };
        assert_eq!((report.counts.events, report.counts.forgotten), (events, forgotten));
    }
}

/// Promises that the history of a file may be half given up: an event that says so is dying, and any of its
/// versions and names are gone. The file in use and its name are then born at that event.
#[test]
fn expunging_may_be_under_way() {
    let mut b = past::past();
    let row = b.past.events.get_mut(&6).unwrap();
    assert_eq!(row.state, EventState::Dying);
    row.kind = yore_format::EventKind::Expunge;
    past::big_since(&mut b, 6);
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises that a rollback may be under way, or given up with its directory gone: the report says so, and it
/// is not a finding.
#[test]
fn rolling_back_may_be_under_way() {
    for stopped in [false, true] {
        let mut b = past::past();
        let root = b.past.events[&4].root;
        let incarnation = b.past.events[&4].root_incarnation.0 + u32::from(stopped);
        let mut row = past::event(99, root.0, incarnation, "4 2");
        row.kind = yore_format::EventKind::Rollback;
        row.state = EventState::Dying;
        row.held = stopped;
        b.past.events.get_mut(&4).unwrap().kind = EventKind::Undo;
        b.past.events.insert(8, row);
        let report = check(&b.finish(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.counts.rollbacks, 1);
        assert!(report.to_string().contains("a rollback is not finished"), "{report}");
    }
}

/// Promises that any versions of a file may be forgotten: the first ones, those in the middle, the last ones.
/// Here nobody has freed what they alone had; these leaks are found, and nothing else.
#[test]
fn any_versions_of_a_file_may_be_forgotten() {
    for forgotten in 0..8 {
        let mut b = past::past();
        for (bit, born) in [(1, 1), (2, 3), (4, 5)] {
            if forgotten & bit != 0 {
                b.past.versions.remove(&(past::VERSIONED, born)).unwrap();
            }
        }
        let report = check(&b.finish(), &CheckOptions::default()).unwrap();
        assert!(report.only_leaks(), "{forgotten:#b}: {report}");
        assert_eq!(report.is_clean(), forgotten == 0, "{report}");
    }
}

/// Promises that an unwritten extent of a version counts as a hole: by now its blocks may belong to another
/// file.
#[test]
fn blocks_never_written_are_not_those_of_the_past() {
    let mut b = past::past();
    let start = ExtentValue::decode_inline(&b.inodes[&InodeNo(FAR)]).unwrap()[0].1.start;
    let was = past::file_of(&[(0, extent(start, 8, true))], 60, 6);
    b.version(past::GONE, 7, was);
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises that such an extent may lie beyond the end of a volume that was made shorter.
#[test]
fn blocks_never_written_may_lie_where_the_volume_was() {
    let mut b = past::past();
    b.sb.features |= WriteFeatures::RESIZED;
    let was = past::file_of(&[(0, extent(BlockNo(b.sb.volume_blocks), 8, true))], 60, 6);
    b.version(past::GONE, 7, was);
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises that a torn newer superblock is not a finding: the older one counts, as it does for a mount.
#[test]
fn a_torn_superblock_is_not_a_finding() {
    let device = sound().finish();
    let newer = {
        let SlotState::Valid(sb) = Superblock::decode(&read(&device, 1), 1) else { panic!() };
        Superblock { generation: Generation(sb.generation.0 + 1), ..*sb }
    };
    let mut torn = read(&device, 0);
    torn[512..].copy_from_slice(&newer.encode(0)[512..]);
    write(&device, 0, &torn);
    let report = check(&device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.superblock_slot, report.generation), (1, GENERATION));
}

/// Promises that the log's blocks have an owner.
#[test]
fn a_log_within_the_volume_owns_its_blocks() {
    let mut b = sound();
    (b.sb.log_start, b.sb.log_blocks) = (b.data(200), 200);
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises that an inode that is losing its attributes is sound at every step. They are freed from the end,
/// one part in each generation, and the last part goes a generation before the inode. After a crash in
/// between, the check once complained about flags of attributes that were gone.
#[test]
fn what_is_being_freed_has_lost_a_part_of_its_attributes() {
    let flags = InodeFlags::ACCESS_ACL | InodeFlags::CAPABILITY;
    let all = attribute_cells();
    for left in 0..=all.len() {
        let mut b = sound();
        let owner = (InodeNo(REMOVED), b.inodes[&InodeNo(REMOVED)].incarnation.0);
        b.inode(REMOVED).flags = flags;
        if left > 0 {
            let (root, _, nodes) = b.tree(0, BlockKind::Xattrs, owner, &[all[..left].to_vec()]);
            let inode = b.inode(REMOVED);
            (inode.xattr_root, inode.blocks) = (root, inode.blocks + nodes);
        }
        let report = check(&b.finish(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{left} cells are left: {report}");
    }
    let mut b = sound();
    let owner = (InodeNo(REMOVED), b.inodes[&InodeNo(REMOVED)].incarnation.0);
    let (root, _, nodes) = b.tree(0, BlockKind::Xattrs, owner, &[all]);
    let inode = b.inode(REMOVED);
    (inode.xattr_root, inode.blocks) = (root, inode.blocks + nodes);
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(!report.is_clean(), "attributes that no flag speaks of are none that are left over");
}

/// Promises that flags of `chattr` are not taken for flags of extended attributes, on files and directories
/// of a volume that has them.
#[test]
fn chosen_flags_are_sound() {
    let mut b = sound();
    b.sb.features = yore_format::WriteFeatures::INODE_FLAGS;
    b.inode(INLINE).flags = InodeFlags::CHOSEN;
    b.inode(DIRECTORY).flags = InodeFlags::APPEND_ONLY;
    b.inode(ATTRS).flags |= InodeFlags::NO_DUMP;
    let report = check(&b.finish(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Promises an error, not findings, if there is nothing to check.
#[test]
fn what_is_no_volume_is_an_error() {
    let options = CheckOptions::default();
    for size in [0, 4096, 8192, 16 << 20] {
        let e = check(&MemoryDevice::new(size), &options).unwrap_err();
        assert!(matches!(e, CheckError::NotAVolume { .. }), "{e}");
    }
    let device = sound().finish();
    // A superblock of a program that knows more is not damaged.
    let mut newer = read(&device, 1);
    newer[8] += 1;
    write(&device, 1, &newer);
    let e = check(&device, &options).unwrap_err();
    assert!(matches!(e, CheckError::Superblock { .. }), "{e}");
}

/// Promises that whatever the metadata layer makes and writes is sound, from the smallest volume on.
#[test]
fn a_volume_just_made_is_clean() {
    for blocks in [4096, 5000, GROUP_BLOCKS + 1, GROUP_BLOCKS * 3 + 2 * ZONE_BLOCKS + 5] {
        let device = Arc::new(MemoryDevice::new(blocks * 4096));
        let options = yore_meta::MkfsOptions {
            uuid: *b"0123456789abcdef",
            hash_seed: [3; 16],
            label: "new".into(),
            engine: Engine::Snapshot,
            owner: (0, 0),
            permissions: 0o755,
            now: Timestamp { seconds: 1, nanos: 2 },
            log_blocks: yore_meta::default_log_blocks(4096),
            log_device: None,
            data_checksums: false,
            force: false,
        };
        yore_meta::mkfs(&*device, &options).unwrap();
        let report = check(&*device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{blocks} blocks: {report}");
        assert_eq!((report.counts.inodes, report.counts.metadata_blocks), (1, 2));
    }
}

/// Promises that a scan reads each block once, in fewer and larger requests than a walk, and that nothing is
/// left to be read after it.
#[test]
fn a_scan_leaves_nothing_to_read() {
    let (device, _) = past::past().finish_with_written();
    let with = |scan_from, memory| {
        check(&device, &CheckOptions { scan_from, memory, ..CheckOptions::default() }).unwrap().reading
    };
    let (scanned, walked) = (with(0, 1 << 30), with(u64::MAX, 1 << 30));
    assert_eq!((scanned.requests, scanned.bytes), (scanned.scan_requests, scanned.scan_bytes));
    assert!(scanned.requests * 4 < walked.requests, "{scanned:?}, and a walk {walked:?}");
    // Without memory, inode blocks come zone by zone, and the rest one by one.
    let little = with(0, 0);
    assert!(little.requests > little.scan_requests, "{little:?}");
}

/// Promises that a slow device, on which zones are read to their ends one after the other, makes no
/// difference to what is found and counted, with and without a past, and with and without memory; and that no
/// more requests are needed on it.
#[test]
fn a_slow_device_makes_no_difference() {
    for make in [sound as fn() -> Builder, past::past] {
        for memory in [1 << 30, 0] {
            let options = CheckOptions { scan_from: 0, memory, ..CheckOptions::default() };
            let quick = check(&make().finish(), &options).unwrap();
            let slow = check(&Untouchable { of: make().finish(), is_slow: true }, &options).unwrap();
            assert!(slow.is_clean(), "{slow}");
            assert_eq!((slow.counts, slow.proved), (quick.counts, quick.proved));
            let (slow, quick) = (slow.reading, quick.reading);
            assert!(slow.scan_requests <= quick.scan_requests, "{slow:?}, and quick {quick:?}");
        }
    }
}

/// Promises that a watcher learns of both parts, and at the end that nothing is left, with and without a
/// past.
#[test]
fn a_check_says_how_far_it_is() {
    for make in [sound as fn() -> Builder, past::past] {
        let device = make().finish();
        let options = CheckOptions { scan_from: 0, ..CheckOptions::default() };
        let mut told = Vec::new();
        let mut watcher = |progress: &yore_check::Progress| told.push(*progress);
        yore_check::check_watched(&device, &options, &mut watcher).unwrap();
        let last = told.pop().expect("the end is told");
        assert_eq!((last.part, last.done), (yore_check::Part::Compare, last.total));
        assert!(last.left.is_some_and(|left| left.is_zero()) && last.share() == 1.0, "{last:?}");
        let is_over = |progress: &yore_check::Progress| progress.left.is_some_and(|left| left.is_zero());
        assert!(!told.iter().any(is_over), "before the end: {told:?}");
        let estimate = yore_check::estimate(&device, &options).unwrap();
        assert!(estimate.zones >= 1 && estimate.blocks > 0 && estimate.sampled == estimate.zones);
    }
}
