//! One test for each defect that random sequences have found, with its story and the shortest sequence that
//! shows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_crash::op::payload;
use yore_crash::volume;
use yore_device::simulated::{Choice, SimulatedDevice, Tearing, TraceEntry};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Caller, Engine, Error, FallocateMode, FileKind, InodeNo, Node, SetAttr, SetXattrMode, View, WriteMode,
};

const PLAIN: WriteMode = WriteMode { append: false, kill_set_id: false };
const KILLING: WriteMode = WriteMode { append: false, kill_set_id: true };

/// A new volume on a device that records.
fn fresh() -> (Arc<SimulatedDevice>, View) {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(volume::VOLUME_SIZE)));
    let shared: Arc<dyn Device> = device.clone();
    volume::make(&shared, Engine::Snapshot, 1).expect("a new volume");
    device.restart_trace();
    let view = volume::open(shared).expect("it was never used");
    (device, view)
}

fn file(view: &View, name: &[u8], permissions: u32) -> Node {
    let caller = Caller { umask: 0, ..Caller::superuser() };
    view.create(&caller, view.root(), name, FileKind::Regular, permissions, 0).expect("there is room")
}

/// The volume as a crash now leaves it, without anything that is not flushed.
fn crash(device: &SimulatedDevice) -> View {
    let trace = device.trace();
    let point = trace.crash_point(trace.len()).expect("the last entry");
    let medium = point.materialise(Choice::None, Tearing::Sectors).expect("nothing is the simplest choice");
    volume::open(Arc::new(medium)).expect("a crash needs no repair")
}

fn read(view: &View, inode: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; view.getattr(inode).expect("it exists").size as usize];
    let count = view.read(inode, 0, &mut bytes).expect("it can be read");
    bytes.truncate(count);
    bytes
}

/// A file that lives in its inode was overwritten; a change of attributes then stored the inode, with the old
/// content, and marked it as stored; the sync after it found nothing to store. What the sync had promised was
/// lost in a crash.
#[test]
fn small_content_overwritten_before_a_change_of_attributes_is_synced() {
    type Change = (&'static str, fn(&View, InodeNo));
    let changes: [Change; 2] = [
        ("write", |view, inode| {
            view.write(inode, 0, &payload(2, 48), PLAIN).expect("there is room");
        }),
        ("punch", |view, inode| {
            view.fallocate(inode, 0, 48, FallocateMode::PunchHole).expect("there is room");
        }),
    ];
    for (what, change) in changes {
        let (device, view) = fresh();
        let node = file(&view, b"a", 0o600);
        view.write(node.inode(), 0, &payload(1, 108), PLAIN).expect("there is room");
        view.fsync(node.inode(), false).expect("the device works");
        change(&view, node.inode());
        let set = SetAttr { permissions: Some(0o644), ..SetAttr::default() };
        view.setattr(&Caller::superuser(), node.inode(), &set).expect("it exists");
        view.sync().expect("the device works");
        let expected = read(&view, node.inode());
        assert_eq!(read(&crash(&device), node.inode()), expected, "after a {what}");
    }
}

/// A write that drops set-id bits changes an attribute. That must not wait for the data; otherwise a crash
/// brings the bits back although later operations survive it (and, if data is written in place, with the new
/// content).
#[test]
fn set_id_bits_dropped_by_a_write_do_not_come_back() {
    let (device, view) = fresh();
    let node = file(&view, b"program", 0o6755);
    let other = file(&view, b"other", 0o644);
    view.write(node.inode(), 0, &payload(1, 20_000), KILLING).expect("there is room");
    file(&view, b"later", 0o644);
    view.fsync(other.inode(), false).expect("the device works");
    let after = crash(&device);
    assert!(after.lookup(after.root(), b"later").is_ok(), "the fsync made a later operation durable");
    let permissions = after.getattr(node.inode()).expect("it exists").permissions;
    assert_eq!(permissions, 0o755, "{permissions:o}");
}

/// Truncating a file dropped its capability in a separate Op before the truncation. A generation that was
/// frozen in between showed the old file without the capability. Both are attributes of one moment, so they
/// belong in one Op.
#[test]
fn a_truncation_and_the_capability_that_it_takes_are_one() {
    // The schedule of the threads decides when generations are frozen; three of four rounds met the defect.
    (0..20).for_each(|_| truncate_files_with_capabilities_while_another_syncs());
}

fn truncate_files_with_capabilities_while_another_syncs() {
    const FILES: usize = 40;
    const NAME: &[u8] = b"security.capability";
    let (device, view) = fresh();
    let name = |n: usize| format!("program {n}").into_bytes();
    // The content is in the inode or in blocks, and some files have another attribute, which stays.
    let nodes: Vec<Node> = (0..FILES).map(|n| file(&view, &name(n), 0o755)).collect();
    for (n, node) in nodes.iter().enumerate() {
        view.write(node.inode(), 0, &payload(1, 100 + n % 2 * 9000), PLAIN).expect("there is room");
        view.setxattr(node.inode(), NAME, b"value", SetXattrMode::Any).expect("there is room");
        if n % 3 == 0 {
            view.setxattr(node.inode(), b"user.a", b"value", SetXattrMode::Any).expect("there is room");
        }
    }
    view.sync().expect("the device works");
    device.restart_trace();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                view.sync().expect("the device works");
            }
        });
        let set = SetAttr { size: Some(7), kill_set_id: true, ..SetAttr::default() };
        let event = |node: &Node| view.setattr(&Caller::superuser(), node.inode(), &set).is_ok();
        let all = nodes.iter().all(event);
        done.store(true, Ordering::Relaxed);
        assert!(all, "there is room");
    });
    let trace = device.trace();
    let flushes = (1..=trace.len()).filter(|n| {
        matches!(trace.entries()[..*n].last_chunk(), Some([TraceEntry::Write { .. }, TraceEntry::Flush]))
    });
    for after_entry in flushes {
        let point = trace.crash_point(after_entry).expect("an entry of the trace");
        let medium =
            point.materialise(Choice::None, Tearing::Sectors).expect("nothing is the simplest choice");
        let found = volume::open(Arc::new(medium)).expect("a crash needs no repair");
        for n in 0..FILES {
            let node = found.lookup(found.root(), &name(n)).expect("it was synced");
            let has = found.getxattr(node.inode(), NAME).is_ok();
            assert_eq!(
                has,
                node.attr().size != 7,
                "file {n} of {} bytes, after entry {after_entry}",
                node.attr().size
            );
        }
    }
}

/// A write that writes nothing, or fails, must not drop capabilities or set-id bits.
#[test]
fn a_write_of_nothing_changes_nothing() {
    let (_device, view) = fresh();
    let node = file(&view, b"program", 0o6755);
    let name = b"security.capability";
    view.setxattr(node.inode(), name, b"value", SetXattrMode::Any).expect("there is room");
    let before = view.getattr(node.inode()).expect("it exists");
    view.write(node.inode(), 0, b"", KILLING).expect("nothing to write");
    assert_eq!(view.getattr(node.inode()).expect("it exists"), before, "after a write of no bytes");
    assert!(view.getxattr(node.inode(), name).is_ok(), "after a write of no bytes");
    let far = view.write(node.inode(), u64::MAX / 2, b"x", KILLING);
    assert!(matches!(far, Err(Error::FileTooLarge)), "{far:?}");
    assert_eq!(view.getattr(node.inode()).expect("it exists"), before, "after a write that failed");
    assert!(view.getxattr(node.inode(), name).is_ok(), "after a write that failed");
}

/// When a file's end is copied beyond its end, the copy must not continue with what it has itself appended.
#[test]
fn a_copy_within_a_file_ends_where_the_file_ended() {
    let (_device, view) = fresh();
    let node = file(&view, b"a", 0o600);
    view.write(node.inode(), 0, &payload(1, 5000), PLAIN).expect("there is room");
    let count = view.copy_file_range(node.inode(), 0, node.inode(), 20_000, 15_000);
    assert_eq!(count.ok(), Some(5000));
    assert_eq!(view.getattr(node.inode()).expect("it exists").size, 25_000);
}

/// A user who is not in a file's group and may not keep set-id bits must not get the group's, neither by
/// chmod nor by creating a program in a set-group-id directory.
#[test]
fn an_ordinary_user_does_not_set_another_groups_bit() {
    let (_device, view) = fresh();
    let ordinary = Caller { uid: 1000, gid: 1000, umask: 0, keeps_set_id: false };
    let node = file(&view, b"a", 0o755);
    let set = SetAttr { permissions: Some(0o2755), ..SetAttr::default() };
    let attr = view.setattr(&ordinary, node.inode(), &set).expect("it exists");
    assert_eq!(attr.permissions, 0o755, "{:o}", attr.permissions);
    view.setattr(&Caller::superuser(), view.root(), &set).expect("it exists");
    let made =
        view.create(&ordinary, view.root(), b"b", FileKind::Regular, 0o2755, 0).expect("there is room");
    assert_eq!((made.attr().gid, made.attr().permissions), (0, 0o755), "{:o}", made.attr().permissions);
}

/// The blocks of a file were shared by a second one, which went; then all but the last by a third one, which
/// let go of them in the next generation. Memory knew both by their first block, and took the last one to be
/// shared again. Data had been accepted for it by then, and writing it back said that the volume was damaged.
#[test]
fn what_was_lowered_in_two_generations_is_known_by_each() {
    let (_, view) = fresh();
    let [one, two, three] = [b"1", b"2", b"3"].map(|name| file(&view, name, 0o644).inode());
    view.write(two, 0, &payload(1, 24_337), PLAIN).expect("there is room");
    view.write(three, 0, &payload(2, 40_960), PLAIN).expect("there is room");
    view.sync().expect("sync");
    assert_eq!(view.copy_file_range(two, 0, one, 0, 24_337).expect("a copy"), 24_337);
    view.sync().expect("sync");
    view.unlink(view.root(), b"2").expect("it is there");
    assert_eq!(view.copy_file_range(one, 0, three, 0, 24_337).expect("a copy"), 24_337);
    view.sync().expect("sync");
    view.write(one, 20_480, &payload(3, 8192), PLAIN).expect("there is room");
    view.write(three, 0, &payload(4, 40_960), PLAIN).expect("there is room");
    view.fsync(three, false).expect("what was shared is let go of");
    view.fsync(one, false).expect("nothing is damaged");
    view.sync().expect("nothing is damaged");
    assert_eq!(read(&view, one)[20_480..], payload(3, 8192));
}
