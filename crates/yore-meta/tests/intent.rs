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
    BlockKind, Engine, EventNo, Expect, GroupNo, Incarnation, InodeNo, IntentNote, MetaAddr, NodeMut,
    Timestamp,
};
use yore_meta::{mkfs, Durability, Meta, MetaError, MetaOptions, MkfsOptions, NewBlock};

const OWNER: InodeNo = InodeNo(16);
const INCARNATION: Incarnation = Incarnation(1);
const EXPECT: Expect =
    Expect { kind: BlockKind::Symlink, owner: OWNER, incarnation: INCARNATION, level: Some(0) };

fn make(device: &dyn Device, log_blocks: u64) {
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks,
        log_device: None,
        data_checksums: false,
        force: false,
    };
    mkfs(device, &options).unwrap();
}

/// Opens a volume that writes no generation unless a caller or the log needs one.
fn open(device: Arc<dyn Device>) -> Arc<Meta> {
    let commit_interval = Duration::from_secs(3600);
    let durability = Durability::Async;
    let options = MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 8 << 20,
        commit_interval,
        durability,
        log: yore_meta::LogPlace::Recorded,
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

/// Notes a page of a file; returns false if that is too much.
fn note_page(meta: &Meta, file: u64, byte: u8) -> bool {
    let mut bytes = AlignedBuf::zeroed(1);
    bytes.fill(byte);
    meta.note_data((InodeNo(file), INCARNATION), BLOCK_SIZE as u64, &[(0, SharedBuf::new(bytes))])
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
    let is_superblock = |entry: &TraceEntry| {
        let at = |block: &yore_format::BlockNo| block.0 * BLOCK_SIZE as u64;
        matches!(entry, TraceEntry::Write { offset, .. } if SUPERBLOCKS.iter().any(|block| at(block) == *offset))
    };
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
