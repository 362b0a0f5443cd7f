//! Promise: fsync through the intent log. The tests show what it costs, what a crash right after it leaves,
//! and that data which is only in the log survives whatever comes next: generations, more records than the
//! log holds, readers, another engine.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_format::layout::SUPERBLOCKS;
use yore_format::BLOCK_SIZE;
use yore_fs::{Caller, Engine, FileKind, InodeNo, MkfsOptions, MountOptions, View, WriteMode};

const MIB: u64 = 1 << 20;
/// For so long a test waits for what the background does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device in memory that counts, and does something once during a long write.
type CountingDevice = Wrapped<MemoryDevice, Counting>;

#[derive(Default)]
struct Counting {
    writes: AtomicU64,
    flushes: AtomicU64,
    superblocks: AtomicU64,
    during: Mutex<Option<During>>,
}

/// What to do during a write of many pages.
struct During {
    /// How many such writes come before.
    skipped: u32,
    what: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

impl Counting {
    /// Has another thread do `what` when the write of many pages, after `skipped` others, reaches the device:
    /// the writing thread holds locks.
    fn during_long_write(&self, skipped: u32, what: impl FnOnce() + Send + 'static) {
        *self.during.lock().unwrap() = Some(During { skipped, what: Box::new(what) });
    }

    fn long_write(&self) {
        let mut during = self.during.lock().unwrap();
        match during.take() {
            Some(During { skipped: 0, what }) => {
                drop(during);
                std::thread::spawn(what).join().unwrap();
            }
            Some(later) => *during = Some(During { skipped: later.skipped - 1, ..later }),
            None => {}
        }
    }

    /// Writes and flushes since the last call.
    fn count(&self) -> (u64, u64) {
        (self.writes.swap(0, Ordering::SeqCst), self.flushes.swap(0, Ordering::SeqCst))
    }
}

impl Hook for Counting {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        match &request {
            Request::Write { offset, bufs } => {
                let is_superblock = SUPERBLOCKS.iter().any(|at| at.0 * BLOCK_SIZE as u64 == *offset);
                self.superblocks.fetch_add(u64::from(is_superblock), Ordering::SeqCst);
                if bufs.len() >= 256 {
                    self.long_write();
                }
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            Request::Flush => {
                self.flushes.fetch_add(1, Ordering::SeqCst);
            }
            Request::Read { .. } | Request::Discard { .. } => {}
        }
        request.pass(below)
    }
}

/// No generations except those that a caller or the log needs.
fn options() -> MountOptions {
    MountOptions {
        commit_interval: Duration::from_secs(3600),
        access_times: false,
        part_leaves: 0,
        ..MountOptions::default()
    }
}

/// Makes a volume and opens it.
fn mkfs(device: Arc<dyn Device>, log_size: Option<u64>) -> View {
    View::mkfs(&device, &MkfsOptions { log_size, ..MkfsOptions::default() }).unwrap();
    View::open(device, &options()).unwrap()
}

fn volume(log_size: Option<u64>) -> (Arc<MemoryDevice>, View) {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    (device.clone(), mkfs(device, log_size))
}

fn counted_volume(bytes: u64, log_size: Option<u64>) -> (Arc<CountingDevice>, View) {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(bytes), Counting::default()));
    (device.clone(), mkfs(device, log_size))
}

/// What a crash left of a volume where the content of a file, 10,000 times 1, was only in the log.
fn crashed_with_logged_file() -> Arc<MemoryDevice> {
    let (device, view) = volume(None);
    let no = create(&view, "logged");
    write(&view, no, 0, &[1; 10_000]);
    view.fsync(no, false).unwrap();
    Arc::new(device.snapshot())
}

fn caller() -> Caller {
    Caller::superuser()
}

fn create(view: &View, name: &str) -> InodeNo {
    view.create(&caller(), view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap().inode()
}

fn write(view: &View, no: InodeNo, offset: u64, bytes: &[u8]) {
    view.write(no, offset, bytes, WriteMode { append: false, kill_set_id: false }).unwrap();
}

fn read(view: &View, name: &str) -> Vec<u8> {
    let no = view.lookup(view.root(), name.as_bytes()).unwrap().inode();
    let mut content = vec![0; view.getattr(no).unwrap().size as usize];
    assert_eq!(view.read(no, 0, &mut content).unwrap(), content.len());
    content
}

/// What a crash now leaves if nothing is lost, opened again.
fn crash(device: &MemoryDevice) -> (Arc<MemoryDevice>, View) {
    let left = Arc::new(device.snapshot());
    let view = View::open(left.clone(), &options()).unwrap();
    (left, view)
}

#[test]
fn a_small_file_is_durable_with_one_write_and_one_flush() {
    let (device, view) = counted_volume(64 * MIB, Some(8 * MIB));
    // A flush comes before the first record of a session.
    let first = create(&view, "first");
    view.fsync(first, false).unwrap();
    device.hook.count();
    for i in 0..20 {
        let no = create(&view, &format!("file {i}"));
        write(&view, no, 0, &[i; 4096]);
        view.fsync(no, false).unwrap();
        assert_eq!(device.hook.count(), (1, 1), "file {i}");
    }
    // The content is in the inode; then only attributes change.
    let tiny = create(&view, "tiny");
    write(&view, tiny, 0, b"tiny");
    view.fsync(tiny, false).unwrap();
    assert_eq!(device.hook.count(), (1, 1));
    // There is nothing to do.
    view.fsync(tiny, false).unwrap();
    assert_eq!(device.hook.count(), (0, 0));
    // Pages that are to be overwritten in place go into the record, too.
    view.sync().unwrap();
    write(&view, first, 0, &[7; 8192]);
    view.fsync(first, false).unwrap();
    view.sync().unwrap();
    device.hook.count();
    write(&view, first, 0, &[8; 8192]);
    view.fsync(first, true).unwrap();
    assert_eq!(device.hook.count(), (1, 1));
    // More than the log takes at once: data, flush, record, flush.
    let large = create(&view, "large");
    write(&view, large, 0, &vec![9; 1 << 20]);
    view.fsync(large, false).unwrap();
    let (_, flushes) = device.hook.count();
    assert_eq!(flushes, 2);
    let (_, again) = crash(&device.below);
    assert_eq!(read(&again, "first"), [8; 8192]);
    assert_eq!(read(&again, "large"), vec![9; 1 << 20]);
    assert_eq!(read(&again, "tiny"), b"tiny");
    assert_eq!(read(&again, "file 7"), [7; 4096]);
}

/// Under an engine that orders changes an fsync of a file that got blocks takes two flushes, whether the file
/// is new or not, and whatever was removed since the last: the bits of what was removed are put off, and go
/// with those of the next file. No superblock is written until the last one covers no more.
#[test]
fn a_file_is_durable_with_two_flushes_under_an_engine_that_orders_changes() {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(64 * MIB), Counting::default()));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &MkfsOptions { engine: Engine::SoftUpdates, ..MkfsOptions::default() }).unwrap();
    let view = View::open(shared, &options()).unwrap();
    let first = create(&view, "first");
    write(&view, first, 0, &[1; 4096]);
    view.fsync(first, false).unwrap();
    device.hook.count();
    device.hook.superblocks.store(0, Ordering::SeqCst);
    let free = view.info().free_blocks;
    for i in 0..6 {
        let no = create(&view, &format!("file {i}"));
        write(&view, no, 0, &[i; 8192]);
        view.fsync(no, false).unwrap();
        assert_eq!(device.hook.count().1, 2, "new file {i}");
        write(&view, no, 8192, &[i; 4096]);
        view.fsync(no, false).unwrap();
        assert_eq!(device.hook.count().1, 2, "longer file {i}");
        if i > 0 {
            view.unlink(view.root(), format!("file {}", i - 1).as_bytes()).unwrap();
        }
    }
    // An fsync of another file does not need that something was removed; one of the directory does. Entry and
    // inode are in one block, and the bits are put off.
    view.fsync(first, false).unwrap();
    assert_eq!(device.hook.count(), (0, 1));
    view.fsync(view.root(), false).unwrap();
    assert_eq!(device.hook.count().1, 1, "something was removed");
    // There is nothing to do but what was put off, and nobody waits for that.
    view.fsync(first, false).unwrap();
    assert_eq!(device.hook.count(), (0, 1));
    assert_eq!(device.hook.superblocks.load(Ordering::SeqCst), 0);
    let (_, again) = crash(&device.below);
    assert_eq!(read(&again, "first"), [1; 4096]);
    assert_eq!(read(&again, "file 5"), [5; 12_288]);
    assert!(again.lookup(again.root(), b"file 4").is_err());
    assert!(again.info().free_blocks <= free - 3, "nobody is promised what was put off");
    // A sync puts nothing off.
    view.sync().unwrap();
    assert_eq!(view.info().free_blocks, free - 3);
}

/// A file that loses its name while somebody has it open changes the list of such files, which only
/// superblocks name. An fsync of another file does not need that, and still writes what its own file needs
/// alone.
#[test]
fn files_that_lost_their_names_do_not_concern_an_fsync() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    View::mkfs(&device, &MkfsOptions { engine: Engine::SoftUpdates, ..MkfsOptions::default() }).unwrap();
    let view = View::open(device, &options()).unwrap();
    let (used, other) = (create(&view, "used"), create(&view, "other"));
    view.sync().unwrap();
    let held = view.lookup(view.root(), b"used").unwrap();
    view.unlink(view.root(), b"used").unwrap();
    write(&view, other, 0, &[1; 4096]);
    let before = view.pass_counts().unwrap();
    view.fsync(other, false).unwrap();
    let cost = view.pass_counts().unwrap().since(before);
    assert_eq!((cost.parts, cost.passes, cost.wholes), (1, 0, 0));
    // What is needed of the list itself takes the generation.
    view.fsync(used, false).unwrap();
    let cost = view.pass_counts().unwrap().since(before);
    assert_eq!((cost.parts, cost.passes + cost.wholes), (1, 1));
    drop(held);
}

/// An fsync takes along what others have changed, as long as that is little, for later it would take flushes
/// of its own. If it is much, it stays for the next generation.
#[test]
fn an_fsync_takes_little_along_and_leaves_much() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 * MIB));
    View::mkfs(&device, &MkfsOptions { engine: Engine::SoftUpdates, ..MkfsOptions::default() }).unwrap();
    let part_leaves = MountOptions::default().part_leaves;
    let view = View::open(device, &MountOptions { part_leaves, ..options() }).unwrap();
    let file = create(&view, "file");
    view.sync().unwrap();
    for (others, parts) in [(10, 0), (3500, 1), (0, 0)] {
        for n in 0..others {
            create(&view, &format!("{others} {n}"));
        }
        write(&view, file, 0, &[1; 4096]);
        let before = view.pass_counts().unwrap();
        view.fsync(file, false).unwrap();
        let cost = view.pass_counts().unwrap().since(before);
        assert_eq!((cost.parts, cost.passes + cost.wholes), (parts, 1 - parts), "{others}: {cost:?}");
        view.sync().unwrap();
    }
}

#[test]
fn what_is_only_in_the_log_survives_generations_and_further_crashes() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let shared: Arc<dyn Device> = device.clone();
    let view = {
        View::mkfs(&shared, &MkfsOptions::default()).unwrap();
        let options = MountOptions { commit_interval: Duration::from_millis(20), ..options() };
        View::open(shared, &options).unwrap()
    };
    let no = create(&view, "logged");
    write(&view, no, 0, &[1; 10_000]);
    view.fsync(no, false).unwrap();
    // Generations that do not write the file back, because it is not old enough for that.
    let records = view.log_status().records;
    let start = view.info().generation;
    let begun = Instant::now();
    while view.info().generation < start + 3 {
        assert!(begun.elapsed() < PATIENCE, "no three generations were written in a minute");
        view.setattr(
            &caller(),
            view.root(),
            &yore_fs::SetAttr { permissions: Some(0o700), ..Default::default() },
        )
        .unwrap();
        std::thread::yield_now();
    }
    assert_eq!(view.log_status().records, records, "no fsync since");
    let (left, again) = crash(&device);
    assert_eq!(read(&again, "logged"), [1; 10_000]);
    assert!(again.log_status().replayed > 0);
    // A crash of the mount that has just recovered: its generation has everything.
    let (_, third) = crash(&left);
    assert_eq!(read(&third, "logged"), [1; 10_000]);
    assert_eq!(third.log_status().replayed, 0);
}

/// A file was noted in the log, appended to, and written home in the background up to the size that was
/// noted; its last page of that size went home whole. The next fsync noted only the pages behind it. The
/// replay extended the file from the smaller size, and zeroed the bytes behind that size in the page that was
/// at home.
#[test]
fn a_page_that_went_home_before_its_size_is_kept() {
    let (device, view) = volume(Some(20 * 4096));
    let (no, other) = (create(&view, "file"), create(&view, "other"));
    write(&view, no, 0, &[1; 443]);
    view.fsync(no, false).unwrap();
    write(&view, no, 443, &[2; 3863]);
    // Now more than an eighth of the log is noted, so the write-back thread brings it home.
    write(&view, other, 0, &[3; 7553]);
    view.fsync(other, false).unwrap();
    let page = [vec![1; 443], vec![2; 3653]].concat();
    let is_home = || device.to_bytes().chunks(4096).any(|block| block == page);
    let begun = Instant::now();
    while !is_home() {
        assert!(begun.elapsed() < PATIENCE, "the page did not go home in a minute");
        std::thread::yield_now();
    }
    view.fsync(no, false).unwrap();
    let (_, again) = crash(&device);
    assert!(read(&again, "file") == [vec![1; 443], vec![2; 3863]].concat(), "something of it is lost");
    assert_eq!(read(&again, "other"), [3; 7553]);
}

/// The volume is full except for what was just removed, and data that will go there is only in the log. The
/// replay used to keep blocks that records freed from use until the next generation, and that generation was
/// written only when the data had its blocks: no mount succeeded any more.
#[test]
fn what_was_logged_finds_its_blocks_in_a_full_volume() {
    let (device, view) = volume(None);
    let (room, other) = (create(&view, "room"), create(&view, "other"));
    write(&view, room, 0, &[1; 64 << 10]);
    view.sync().unwrap();
    let filler = create(&view, "filler");
    let mut end = 0;
    for len in [MIB as usize, 64 << 10, 4 << 10] {
        let mode = WriteMode { append: false, kill_set_id: false };
        while view.write(filler, end, &vec![2; len], mode).is_ok() {
            end += len as u64;
        }
    }
    view.sync().unwrap();
    view.unlink(view.root(), b"room").unwrap();
    write(&view, other, 0, &[3; 60 << 10]);
    view.fsync(other, false).unwrap();
    let (left, again) = crash(&device);
    assert!(again.log_status().replayed > 0);
    assert!(read(&again, "other") == [3; 60 << 10]);
    assert!(again.lookup(again.root(), b"room").is_err());
    let (_, third) = crash(&left);
    assert!(read(&third, "other") == [3; 60 << 10]);
}

#[test]
fn later_changes_take_back_what_was_logged() {
    let (device, view) = volume(None);
    let synced = |name: &str, content: &[u8]| {
        let no = create(&view, name);
        write(&view, no, 0, content);
        view.fsync(no, false).unwrap();
        no
    };
    let set_size = |no, size| {
        view.setattr(&caller(), no, &yore_fs::SetAttr { size: Some(size), ..Default::default() }).unwrap();
    };
    let event = synced("event", &[1; 9000]);
    set_size(event, 5000);
    set_size(event, 7000);
    view.fsync(event, false).unwrap();
    let again = synced("again", &[2; 5000]);
    write(&view, again, 4500, &[3; 1000]);
    view.fsync(again, false).unwrap();
    let emptied = synced("emptied", &[4; 5000]);
    set_size(emptied, 0);
    view.fsync(emptied, false).unwrap();
    synced("removed", &[5; 5000]);
    view.unlink(view.root(), b"removed").unwrap();
    let other = synced("other", &[6; 5000]);
    let (_, after) = crash(&device);
    let mut expected = vec![1; 5000];
    expected.resize(7000, 0);
    assert_eq!(read(&after, "event"), expected);
    let mut expected = vec![2; 4500];
    expected.resize(5500, 3);
    assert_eq!(read(&after, "again"), expected);
    assert_eq!(read(&after, "emptied"), b"");
    assert!(after.lookup(after.root(), b"removed").is_err());
    assert_eq!(read(&after, "other"), [6; 5000]);
    // The data is at home, overwritten there and synced: the earlier record does not come back.
    view.sync().unwrap();
    write(&view, other, 0, &[7; 5000]);
    view.fsync(other, true).unwrap();
    let (_, after) = crash(&device);
    assert_eq!(read(&after, "other"), [7; 5000]);
}

/// Pages that have blocks are noted in the log and overwritten in place later. Whatever of the two is newer
/// counts after a crash: what an fsync has noted, and what another one has had written to the blocks since.
#[test]
fn what_is_overwritten_in_place_goes_through_the_log() {
    let (device, view) = counted_volume(64 * MIB, Some(8 * MIB));
    let no = create(&view, "overwritten");
    write(&view, no, 0, &vec![1; 1 << 20]);
    view.sync().unwrap();
    write(&view, no, 8192, &[2; 8192]);
    view.fsync(no, true).unwrap();
    let mut expected = vec![1; 1 << 20];
    expected[8192..16_384].fill(2);
    let (left, after) = crash(&device.below);
    assert!(read(&after, "overwritten") == expected);
    // What was replayed is at home when the volume is closed, and has not changed anything else.
    after.close().unwrap();
    assert!(read(&View::open(left, &options()).unwrap(), "overwritten") == expected);
    // More than the log takes goes home, and takes the notes back.
    write(&view, no, 0, &vec![3; 1 << 20]);
    view.fsync(no, true).unwrap();
    let (_, after) = crash(&device.below);
    assert!(read(&after, "overwritten") == [3; 1 << 20]);
    // A truncation takes back what lies behind it.
    write(&view, no, 4096, &[4; 8192]);
    view.fsync(no, true).unwrap();
    view.setattr(&caller(), no, &yore_fs::SetAttr { size: Some(6000), ..Default::default() }).unwrap();
    view.fsync(no, true).unwrap();
    let (_, after) = crash(&device.below);
    let content = read(&after, "overwritten");
    assert!(content.len() == 6000 && content[..4096] == [3; 4096] && content[4096..] == [4; 1904]);
}

/// Bytes beyond the old end of a page were logged. The page was overwritten in place, and the log was told at
/// once that it is at home. A record that came before the size was stored then left the page to a replay,
/// which took those bytes for stale and showed zeros.
#[test]
fn the_log_keeps_what_is_at_home_until_the_size_is_stored() {
    let (device, view) = counted_volume(64 * MIB, None);
    let view = Arc::new(view);
    let no = create(&view, "growing");
    write(&view, no, 0, &[1; 4000]);
    view.sync().unwrap();
    write(&view, no, 4000, &[2; 1000]);
    view.fsync(no, false).unwrap();
    // Two batches more, so that the write-back of the file takes a while.
    write(&view, no, 5000, &vec![3; 7 << 20]);
    let left = Arc::new(Mutex::new(None));
    let leave = {
        let (device, view, left) = (device.clone(), view.clone(), left.clone());
        move || {
            let other = create(&view, "other");
            view.fsync(other, false).unwrap();
            *left.lock().unwrap() = Some(device.below.snapshot());
        }
    };
    device.hook.during_long_write(1, leave);
    view.sync().unwrap();
    let left = left.lock().unwrap().take().expect("the second batch was written");
    let (_, after) = crash(&left);
    let content = read(&after, "growing");
    assert!(content[..4000] == [1; 4000] && content[4000..5000] == [2; 1000]);
    read(&after, "other");
}

/// A crash in the middle of a long write-back leaves blocks beyond the stored size, with the data that was to
/// be there. A file that grows again over them shows zeros there, also when it is read from the medium.
#[test]
fn what_lies_beyond_the_size_stored_does_not_come_back() {
    let (device, view) = counted_volume(64 * MIB, None);
    let view = Arc::new(view);
    let no = create(&view, "growing");
    write(&view, no, 0, &vec![3; 7 << 20]);
    let left = Arc::new(Mutex::new(None));
    let leave = {
        let (device, view, left) = (device.clone(), view.clone(), left.clone());
        move || {
            let other = create(&view, "other");
            view.fsync(other, false).unwrap();
            *left.lock().unwrap() = Some(device.below.snapshot());
        }
    };
    device.hook.during_long_write(1, leave);
    view.sync().unwrap();
    let left = left.lock().unwrap().take().expect("the second batch was written");
    for is_written in [false, true] {
        let (medium, after) = crash(&left);
        let no = after.lookup(after.root(), b"growing").unwrap().inode();
        assert_eq!(after.getattr(no).unwrap().size, 0);
        let size = if is_written {
            write(&after, no, 2 * MIB, &[4; 4096]);
            2 * MIB as usize + 4096
        } else {
            let set = yore_fs::SetAttr { size: Some(3 * MIB), ..Default::default() };
            after.setattr(&caller(), no, &set).unwrap();
            3 * MIB as usize
        };
        after.sync().unwrap();
        let (_, again) = crash(&medium);
        for view in [after, again] {
            let content = read(&view, "growing");
            assert_eq!(content.len(), size);
            assert!(content[..2 << 20].iter().all(|b| *b == 0), "stale bytes, written: {is_written}");
        }
    }
}

#[test]
fn a_log_holds_more_than_fits_it() {
    let (device, view) = volume(Some(256 << 10));
    for i in 0..400u64 {
        let no = create(&view, &format!("{i}"));
        write(&view, no, 0, &i.to_le_bytes().repeat(512));
        view.fsync(no, false).unwrap();
        if i % 97 == 0 {
            let (_, after) = crash(&device);
            for j in 0..=i {
                assert_eq!(read(&after, &format!("{j}")), j.to_le_bytes().repeat(512), "{j} of {i}");
            }
        }
    }
    assert!(view.info().generation > 3, "generations made room");
}

#[test]
fn readers_see_the_log_and_change_nothing() {
    let left = crashed_with_logged_file();
    let before = left.to_bytes();
    let reader = View::open(left.clone(), &MountOptions { read_only: true, ..options() }).unwrap();
    assert_eq!(read(&reader, "logged"), [1; 10_000]);
    reader.close().unwrap();
    assert!(left.to_bytes() == before);
}

#[test]
fn another_engine_finds_what_was_logged() {
    let left: Arc<dyn Device> = crashed_with_logged_file();
    let other = View::open(left.clone(), &MountOptions { engine: Some(Engine::None), ..options() }).unwrap();
    assert_eq!(read(&other, "logged"), [1; 10_000]);
    other.close().unwrap();
    let back = View::open(left, &MountOptions { engine: Some(Engine::Snapshot), ..options() }).unwrap();
    assert_eq!(read(&back, "logged"), [1; 10_000]);
    assert_eq!(back.log_status().replayed, 0);
}

#[test]
fn a_volume_without_a_log_commits_generations() {
    let (device, view) = counted_volume(64 * MIB, Some(0));
    let no = create(&view, "a");
    write(&view, no, 0, &[1; 10_000]);
    device.hook.count();
    view.fsync(no, false).unwrap();
    assert_eq!(device.hook.count().1, 2);
    let (_, after) = crash(&device.below);
    assert_eq!(read(&after, "a"), [1; 10_000]);
}

#[test]
fn many_threads_share_records() {
    let (device, view) = counted_volume(256 * MIB, None);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let view = &view;
            scope.spawn(move || {
                for i in 0..100u64 {
                    let no = create(view, &format!("{t} {i}"));
                    write(view, no, 0, &(t * 1000 + i).to_le_bytes().repeat(512));
                    view.fsync(no, false).unwrap();
                }
            });
        }
    });
    let (_, after) = crash(&device.below);
    for (t, i) in (0..8).flat_map(|t| (0..100u64).map(move |i| (t, i))) {
        assert_eq!(read(&after, &format!("{t} {i}")), (t * 1000 + i).to_le_bytes().repeat(512));
    }
    assert!(view.log_status().records <= 801, "{} records", view.log_status().records);
}
