//! What the metadata layer promises to callers that note file data in the intent log. Notes that were taken
//! back do not come back, there is room for notes that are carried over, and flushes come in order. Nobody
//! waits for a writer that panicked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use yore_device::simulated::{Choice, SimulatedDevice, Tearing, TraceEntry};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{AlignedBuf, Device, DeviceError, MemoryDevice, SharedBuf, BLOCK_SIZE};
use yore_format::layout::{HEADER_SLOTS, SUPERBLOCKS};
use yore_format::{
    BlockKind, BlockNo, Engine, EventNo, Expect, GroupNo, Incarnation, InodeNo, IntentNote, MetaAddr,
    NodeMut, NodeRef, Timestamp,
};
use yore_meta::{
    mkfs, Durability, LogDevice, LogPlace, Meta, MetaError, MetaOptions, MkfsOptions, NewBlock, Reserved,
};

const OWNER: InodeNo = InodeNo(16);
const INCARNATION: Incarnation = Incarnation(1);
const EXPECT: Expect =
    Expect { kind: BlockKind::Symlink, owner: OWNER, incarnation: INCARNATION, level: Some(0) };

fn make(device: &dyn Device, log_blocks: u64) {
    make_with(device, log_blocks, None);
}

fn make_with(device: &dyn Device, log_blocks: u64, log_device: Option<LogDevice>) {
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks,
        log_device,
        data_checksums: false,
        force: false,
    };
    mkfs(device, &options).unwrap();
}

/// Opens a volume that writes no generation unless a caller or the log needs one.
fn open(device: Arc<dyn Device>) -> Arc<Meta> {
    open_with(device, None, LogPlace::Recorded)
}

fn open_with(device: Arc<dyn Device>, engine: Option<Engine>, log: LogPlace) -> Arc<Meta> {
    let commit_interval = Duration::from_secs(3600);
    let durability = Durability::Async;
    let options = MetaOptions {
        read_only: false,
        engine,
        cache_bytes: 8 << 20,
        commit_interval,
        durability,
        log,
        part_leaves: 0,
    };
    Meta::open(device, options).unwrap()
}

fn new_block(meta: &Meta) -> MetaAddr {
    let mut op = meta.begin(meta.reserve(GroupNo(0), 1).unwrap());
    let (kind, birth) = (BlockKind::Symlink, EventNo(1));
    let (frame, _) = op.allocate(NewBlock { kind, level: 0, owner: OWNER, incarnation: INCARNATION, birth });
    op.change(&frame, |page| {
        page.apply(|b| {
            NodeMut::init(b, 8);
            NodeMut::new(b).insert(0, &[0; 8], &[0; 8])
        })
    });
    frame.addr()
}

fn change(meta: &Meta, addr: MetaAddr, value: u64) {
    let frame = meta.read(addr, &EXPECT).unwrap();
    let mut op = meta.begin(meta.reserve(GroupNo(0), 0).unwrap());
    op.change(&frame, |page| page.apply(|b| NodeMut::new(b).replace(0, &value.to_le_bytes())));
}

fn value(meta: &Meta, addr: MetaAddr) -> u64 {
    let frame = meta.read(addr, &EXPECT).unwrap();
    let block = frame.read();
    u64::from_le_bytes(NodeRef::new(&block).value(0).try_into().unwrap())
}

/// Notes a page of a file; returns false if that is too much.
fn note_page(meta: &Meta, file: u64, byte: u8) -> bool {
    let mut bytes = AlignedBuf::zeroed(1);
    bytes.fill(byte);
    meta.note_data((InodeNo(file), INCARNATION), BLOCK_SIZE as u64, &[(0, SharedBuf::new(bytes))])
}

/// Notes pages of files from `first` on, one of each, until no more may be outstanding; returns how many.
fn note_many(meta: &Meta, first: u64) -> u64 {
    (first..100_000).take_while(|file| note_page(meta, *file, 1)).count() as u64
}

fn is_superblock(entry: &TraceEntry) -> bool {
    let at = |block: &BlockNo| block.0 * BLOCK_SIZE as u64;
    matches!(entry, TraceEntry::Write { offset, .. } if SUPERBLOCKS.iter().any(|block| at(block) == *offset))
}

fn event(meta: &Meta, file: u64) {
    meta.note(&IntentNote::Truncated { inode: InodeNo(file), incarnation: INCARNATION, size: 0 });
}

/// A page was noted, and carried over into a generation; then it went home, nothing else changed, and
/// somebody synced. The sync did nothing, because nothing had changed. So a crash brought the page back, over
/// the data that was at home.
#[test]
fn a_sync_makes_durable_that_data_is_at_home() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, 64);
    let meta = open(device.clone());
    let addr = new_block(&meta);
    assert!(note_page(&meta, 100, 1) && note_page(&meta, 101, 2));
    meta.force().unwrap();
    change(&meta, addr, 1);
    meta.sync().unwrap();
    let outstanding = |device: &MemoryDevice| {
        let recovered = open(Arc::new(device.snapshot())).take_recovered();
        recovered.map_or(Vec::new(), |r| r.files.keys().map(|(inode, _)| inode.0).collect())
    };
    assert_eq!(outstanding(&device), [100, 101], "they are carried over");
    event(&meta, 100);
    meta.sync().unwrap();
    assert_eq!(outstanding(&device), [101]);
    event(&meta, 101);
    meta.force().unwrap();
    assert_eq!(outstanding(&device), [0; 0]);
}

/// Notes that a generation carries over belong to that generation alone: if its superblock never arrives, the
/// next mount leaves the notes out, and so does the one after that. The second mount once believed them,
/// because the first took the number of that generation.
#[test]
fn what_was_carried_over_for_a_superblock_that_never_arrived_does_not_come_back() {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
    make(&*device, 64);
    let meta = open(device.clone());
    device.restart_trace();
    new_block(&meta);
    assert!(note_page(&meta, 100, 1));
    meta.sync().unwrap();
    let trace = device.trace();
    let before = trace.entries().iter().position(is_superblock).expect("the generation has one");
    let crash = trace.crash_point(before).unwrap();
    let mut medium = crash.materialise(Choice::All, Tearing::Blocks).unwrap();
    for mount in 1..4 {
        let device = Arc::new(medium);
        let meta = open(device.clone());
        assert_eq!(meta.take_recovered(), None, "mount {mount}");
        // The next crash comes as soon as the volume is open.
        medium = device.snapshot();
    }
}

/// However full the log is, a generation finds room in it for everything that may be outstanding. Once there
/// was room only for what had been outstanding when the last record was appended, and notes after that
/// stopped the volume.
#[test]
fn what_is_carried_over_fits_the_log_however_full_it_is() {
    for log_blocks in [20, 24, 64, 200] {
        for records in 0..2 * log_blocks {
            let device = Arc::new(MemoryDevice::new(64 << 20));
            make(&*device, log_blocks);
            let meta = open(device.clone());
            let addr = new_block(&meta);
            for value in 0..records {
                change(&meta, addr, value);
                meta.force().unwrap();
            }
            let noted = (100..10_000).take_while(|file| note_page(&meta, *file, 1)).count() as u64;
            assert!(noted >= log_blocks / 5, "{noted} pages in a log of {log_blocks} blocks");
            let story = format!("a log of {log_blocks} blocks with {records} records");
            change(&meta, addr, records);
            meta.force().unwrap_or_else(|e| panic!("{story}: {e}"));
            change(&meta, addr, records + 1);
            meta.sync().unwrap_or_else(|e| panic!("{story}: {e}"));
            let recovered = open(Arc::new(device.snapshot())).take_recovered();
            assert_eq!(recovered.map(|r| r.files.len() as u64), Some(noted), "{story}");
        }
    }
}

/// All noted pages of a file were truncated. The file is still noted with its size, which nothing else may
/// have, and that takes room in the log, too. Once this room was not counted. Enough such files, synced and
/// truncated within the seconds before they are written back, left a generation without room for them: it
/// stopped the volume.
#[test]
fn files_noted_with_their_size_alone_are_counted() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, 64);
    let meta = open(device.clone());
    let addr = new_block(&meta);
    let page = SharedBuf::new(AlignedBuf::zeroed(1));
    let size = BLOCK_SIZE as u64;
    let noted = (100..20_000u64).take_while(|file| {
        let inode = InodeNo(*file);
        let is_noted = meta.note_data((inode, INCARNATION), size + 1, &[(1, page.clone())]);
        if is_noted {
            meta.note(&IntentNote::Truncated { inode, incarnation: INCARNATION, size });
            meta.force().unwrap();
        }
        is_noted
    });
    let noted = noted.count();
    assert!(noted > 100, "{noted} files");
    assert!(meta.notes_press());
    change(&meta, addr, 1);
    meta.sync().unwrap();
    let recovered = open(Arc::new(device.snapshot())).take_recovered();
    assert_eq!(recovered.map(|r| r.files.len()), Some(noted));
    (100..100 + noted as u64).for_each(|file| event(&meta, file));
    assert!(!meta.notes_press());
    assert!(note_page(&meta, 100, 1));
}

/// A log of 64 MiB or more took no record at all, for the longest record has 16 MiB and a quarter of the log
/// was to be free in one piece: each fsync wrote a generation. And what may be outstanding in such a log,
/// which is longer than any record, fits it.
#[test]
fn a_long_log_takes_records() {
    for mib in [8, 64, 128] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let log = Arc::new(MemoryDevice::new(mib << 20));
        let on = |log: Arc<MemoryDevice>| LogDevice { device: log, path: Vec::new() };
        make_with(&*device, 0, Some(on(log.clone())));
        let meta = open_with(device.clone(), None, LogPlace::On(on(log.clone())));
        let addr = new_block(&meta);
        let generation = meta.completed_generation();
        for value in 1..4 {
            change(&meta, addr, value);
            meta.force().unwrap();
            assert_eq!(meta.log_status().records, value, "a log of {mib} MiB");
        }
        assert!(note_page(&meta, 100, 1));
        meta.force().unwrap();
        assert_eq!(meta.log_status().records, 4, "a log of {mib} MiB");
        assert_eq!(meta.completed_generation(), generation, "a log of {mib} MiB");
        let noted = 1 + note_many(&meta, 101);
        assert!(noted > mib * 50, "{noted} pages in a log of {mib} MiB");
        for value in 4..7 {
            change(&meta, addr, value);
            meta.force().unwrap();
            change(&meta, addr, value + 10);
            meta.sync().unwrap();
        }
        let after = LogPlace::On(on(Arc::new(log.snapshot())));
        let meta = open_with(Arc::new(device.snapshot()), None, after);
        assert_eq!(meta.take_recovered().map(|r| r.files.len() as u64), Some(noted), "a log of {mib} MiB");
        assert_eq!(value(&meta, addr), 16);
    }
}

/// A shorter log was made, with room for what was outstanding at that time. More was noted before it took the
/// place of the longer one. The generation that was to carry all of that over found no room, and the volume
/// stopped.
#[test]
fn what_is_noted_has_room_in_a_shorter_log_that_was_made() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    make(&*device, 2000);
    let meta = open(device.clone());
    let addr = new_block(&meta);
    let make_shorter = || meta.make_log_inside(BlockNo(8192), 64);
    let shorter = make_shorter().unwrap();
    let noted = note_many(&meta, 100);
    assert!((10..16).contains(&noted), "{noted} pages in a log of 64 blocks");
    // It is not used, so there is room for more; then for such a log there is not.
    drop(shorter);
    assert!(note_page(&meta, 50, 1));
    assert!(matches!(make_shorter(), Err(MetaError::Refused(_))));
    event(&meta, 50);
    let shorter = make_shorter().unwrap();
    assert!(!note_page(&meta, 50, 1));
    let old = meta.begin_alone(Reserved::none()).move_log(shorter);
    assert!(!note_page(&meta, 50, 1));
    meta.sync().unwrap();
    old.give_up().unwrap();
    assert!(!note_page(&meta, 50, 1));
    assert_eq!(meta.log_status().blocks, 64);
    change(&meta, addr, 1);
    meta.force().unwrap();
    let meta = open(Arc::new(device.snapshot()));
    assert_eq!(meta.take_recovered().map(|r| r.files.len() as u64), Some(noted));
    assert_eq!(value(&meta, addr), 1);
}

/// The log was replayed, and the thread that writes generations appended a record before the first generation
/// of the mount. If the next crash came then, the volume was refused: the record did not follow those before.
#[test]
fn no_record_comes_between_a_replay_and_its_generation() {
    let open = |device: Arc<dyn Device>| open_with(device, Some(Engine::Journal), LogPlace::Recorded);
    let first = Arc::new(MemoryDevice::new(64 << 20));
    make(&*first, 64);
    let meta = open(first.clone());
    let addr = new_block(&meta);
    change(&meta, addr, 1);
    meta.force().unwrap();
    assert_eq!(meta.log_status().records, 1);

    let device = Arc::new(first.snapshot());
    let meta = open(device.clone());
    assert!(meta.take_recovered().is_some());
    change(&meta, addr, 2);
    assert!(!meta.pass_intervals(1).unwrap());
    assert_eq!(meta.log_status().records, 0);
    let again = open(Arc::new(device.snapshot()));
    assert!(again.take_recovered().is_some());
    assert_eq!(value(&again, addr), 1);

    meta.finish_recovery().unwrap();
    assert_eq!(value(&open(Arc::new(device.snapshot())), addr), 2);
    change(&meta, addr, 3);
    meta.force().unwrap();
    assert_eq!(meta.log_status().records, 1, "records follow that generation");
    assert_eq!(value(&open(Arc::new(device.snapshot())), addr), 3);
}

/// A mount writes its superblock over the older one. The newer one may be in the device's cache alone, if
/// the process that wrote it was killed before its flush: then a crash could leave neither. A volume without
/// a log was not flushed first.
#[test]
fn a_mount_flushes_before_it_writes_over_a_superblock() {
    for log_blocks in [0, 64] {
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
        make(&*device, log_blocks);
        device.restart_trace();
        let meta = open(device.clone());
        let trace = device.trace();
        let superblock = trace.entries().iter().position(is_superblock).expect("the mount's own");
        assert!(trace.entries()[..superblock].contains(&TraceEntry::Flush), "a log of {log_blocks} blocks");
        meta.close().unwrap();
    }
}

/// Whether a flush came between the write of data at `elsewhere` and the next record of the log.
fn is_flushed_before_the_record(take_back: impl Fn(&Meta)) -> bool {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
    make(&*device, 64);
    let meta = open(device.clone());
    new_block(&meta);
    assert!(note_page(&meta, 100, 1));
    meta.force().unwrap();
    device.restart_trace();
    let elsewhere = (16_000 * BLOCK_SIZE) as u64;
    device.write_at(elsewhere, &[1; BLOCK_SIZE]).unwrap();
    take_back(&meta);
    meta.force().unwrap();
    let trace = device.trace();
    let is_log =
        |entry: &TraceEntry| matches!(entry, TraceEntry::Write { offset, .. } if *offset != elsewhere);
    let record = trace.entries().iter().position(is_log).expect("what was taken back is in a record");
    trace.entries()[..record].contains(&TraceEntry::Flush)
}

/// A record that takes noted data back comes after a flush of what was overwritten in place (R4). Otherwise a
/// crash could leave neither. This holds whether an Op takes the data back, or no Op is needed.
#[test]
fn data_is_flushed_before_the_record_that_says_that_it_is_at_home() {
    let by_itself = |meta: &Meta| {
        meta.note_data_written();
        event(meta, 100);
    };
    let in_an_op = |meta: &Meta| {
        meta.note_data_written();
        let mut op = meta.begin(meta.reserve(GroupNo(0), 0).unwrap());
        op.note(&IntentNote::Truncated { inode: InodeNo(100), incarnation: INCARNATION, size: 0 });
    };
    assert!(is_flushed_before_the_record(by_itself));
    assert!(is_flushed_before_the_record(in_an_op));
    #[cfg(feature = "mutations")]
    {
        use yore_meta::mutation::{set, Mutation};
        set(Mutation::HomeTooEarly);
        let flushed = [is_flushed_before_the_record(by_itself), is_flushed_before_the_record(in_an_op)];
        set(Mutation::None);
        assert_eq!(flushed, [false; 2], "the wrong engine is not found");
    }
}

/// How a device that is told to panic does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fatal {
    /// A write to a superblock or a zone's header panics.
    Generations,
    /// Any write panics.
    Writes,
    /// A flush panics.
    Flushes,
}

/// A device that panics once it is told to.
#[derive(Debug)]
struct Panics {
    fatal: Fatal,
    armed: AtomicBool,
}

impl Panics {
    fn at(fatal: Fatal) -> Arc<Wrapped<MemoryDevice, Panics>> {
        Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), Panics { fatal, armed: AtomicBool::new(false) }))
    }
}

impl Hook for Panics {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let fatal = match (self.fatal, &request) {
            (Fatal::Generations, Request::Write { offset, .. }) => {
                let block = offset / BLOCK_SIZE as u64;
                SUPERBLOCKS.iter().any(|at| at.0 == block) || HEADER_SLOTS.contains(&block)
            }
            (Fatal::Writes, Request::Write { .. }) | (Fatal::Flushes, Request::Flush) => true,
            _ => false,
        };
        assert!(!(fatal && self.armed.load(Ordering::SeqCst)), "the device has a bug");
        request.pass(below)
    }
}

/// When the thread that writes a generation panics, callers that wait for it get an error, and so do callers
/// that come later; what is in memory can still be read. Once they waited for ever.
#[test]
fn nobody_waits_for_a_writer_that_panicked() {
    let device = Panics::at(Fatal::Generations);
    make(&*device, 64);
    let meta = open(device.clone());
    let addr = new_block(&meta);
    meta.sync().unwrap();
    change(&meta, addr, 1);
    device.hook.armed.store(true, Ordering::SeqCst);
    let (told, results) = mpsc::channel();
    for _ in 0..3 {
        let (meta, told) = (meta.clone(), told.clone());
        std::thread::spawn(move || told.send(meta.sync()).unwrap());
    }
    for _ in 0..3 {
        let result = results.recv_timeout(Duration::from_secs(60)).expect("somebody waits for ever");
        assert!(matches!(result, Err(MetaError::Stopped { .. })), "{result:?}");
    }
    assert!(matches!(meta.force(), Err(MetaError::Stopped { .. })));
    assert!(matches!(meta.check_writable(), Err(MetaError::Stopped { .. })));
    assert!(meta.read(addr, &EXPECT).is_ok());
    assert!(matches!(meta.close(), Err(MetaError::Stopped { .. })));
}

/// The same happens when a caller's own thread panics while it writes or flushes a record. Other callers that
/// want their records durable get an error, whether they waited for that record or come later. So do callers
/// that want a generation, which has data to carry over in the log. Once they waited for ever.
#[test]
fn nobody_waits_for_a_leader_that_panicked() {
    for fatal in [Fatal::Writes, Fatal::Flushes] {
        let device = Panics::at(fatal);
        make(&*device, 64);
        let meta = open(device.clone());
        let addr = new_block(&meta);
        assert!(note_page(&meta, 100, 1));
        meta.sync().unwrap();
        change(&meta, addr, 1);
        device.hook.armed.store(true, Ordering::SeqCst);
        let (told, results) = mpsc::channel();
        for _ in 0..4 {
            let (meta, told) = (meta.clone(), told.clone());
            std::thread::spawn(move || {
                let forced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meta.force()));
                told.send(forced.ok()).unwrap();
            });
        }
        let mut panicked = 0;
        for _ in 0..4 {
            match results.recv_timeout(Duration::from_secs(60)).expect("somebody waits for ever") {
                None => panicked += 1,
                Some(result) => assert!(matches!(result, Err(MetaError::Stopped { .. })), "{result:?}"),
            }
        }
        assert_eq!(panicked, 1, "{fatal:?}");
        device.hook.armed.store(false, Ordering::SeqCst);
        assert!(matches!(meta.force(), Err(MetaError::Stopped { .. })));
        assert!(matches!(meta.sync(), Err(MetaError::Stopped { .. })));
        assert!(meta.read(addr, &EXPECT).is_ok());
        assert!(matches!(meta.close(), Err(MetaError::Stopped { .. })));
    }
}
