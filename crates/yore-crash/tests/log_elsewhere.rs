//! Promises of a log on a device of its own: what was fsynced is there after a crash; the log of another
//! volume, an older copy of either side, a log that is missing or not whole is refused by name, and nothing
//! is changed; a log moves while the volume is in use.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use yore_check::{check, CheckError, CheckOptions};
use yore_device::simulated::{Fault, FaultPlan, SimulatedDevice};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_fs::{
    Caller, Durability, Engine, Error, FileKind, InodeNo, LogDevice, LogPlace, MkfsOptions, MountOptions,
    MoveLog, View, WriteMode,
};

const MIB: u64 = 1 << 20;

/// A volume and its log, each on a device of its own.
#[derive(Clone)]
struct Pair {
    volume: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
}

fn on(device: &Arc<MemoryDevice>) -> LogDevice {
    LogDevice { device: device.clone(), path: Vec::new() }
}

impl Pair {
    fn make(engine: Engine) -> Pair {
        let pair =
            Pair { volume: Arc::new(MemoryDevice::new(64 * MIB)), log: Arc::new(MemoryDevice::new(MIB)) };
        let volume: Arc<dyn Device> = pair.volume.clone();
        let journal = Some(on(&pair.log));
        View::mkfs(&volume, &MkfsOptions { engine, journal, ..MkfsOptions::default() }).unwrap();
        pair
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            commit_interval: Duration::from_secs(3600),
            access_times: false,
            journal: LogPlace::On(on(&self.log)),
            ..MountOptions::default()
        }
    }

    fn open(&self) -> View {
        View::open(self.volume.clone(), &self.options()).unwrap()
    }

    /// What both devices hold now, as after the end of the process.
    fn snapshot(&self) -> Pair {
        Pair { volume: Arc::new(self.volume.snapshot()), log: Arc::new(self.log.snapshot()) }
    }

    fn must_be_sound(&self) {
        let options = CheckOptions { log: LogPlace::On(on(&self.log)), ..CheckOptions::default() };
        let report = check(&*self.volume, &options).unwrap();
        assert!(report.is_clean(), "{report}");
    }

    /// Why it is refused, for writing and for reading. Neither device is changed.
    fn refusal(&self) -> String {
        let before = self.bytes();
        let mut texts = Vec::new();
        for read_only in [false, true] {
            let options = MountOptions { read_only, ..self.options() };
            match View::open(self.volume.clone(), &options) {
                Err(Error::Refused(text)) => texts.push(text),
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("it is opened"),
            }
        }
        let options = CheckOptions { log: LogPlace::On(on(&self.log)), ..CheckOptions::default() };
        match check(&*self.volume, &options) {
            Err(CheckError::Log(text)) => assert_eq!(text, texts[1]),
            other => panic!("{other:?}"),
        }
        assert!(self.bytes() == before, "a refusal changes nothing");
        assert_eq!(texts[0], texts[1]);
        texts.swap_remove(0)
    }

    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let read = |device: &MemoryDevice| {
            let mut bytes = vec![0; device.size() as usize];
            device.read_at(0, &mut bytes).unwrap();
            bytes
        };
        (read(&self.volume), read(&self.log))
    }
}

fn create(view: &View, name: &str, content: &[u8]) -> InodeNo {
    let caller = Caller::superuser();
    let no = view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap().inode();
    write(view, no, content);
    no
}

fn write(view: &View, no: InodeNo, content: &[u8]) {
    view.write(no, 0, content, WriteMode { append: false, kill_set_id: false }).unwrap();
}

fn read(view: &View, name: &str) -> Vec<u8> {
    let no = view.lookup(view.root(), name.as_bytes()).unwrap().inode();
    let mut content = vec![0; view.getattr(no).unwrap().size as usize];
    assert_eq!(view.read(no, 0, &mut content).unwrap(), content.len());
    content
}

#[test]
fn what_was_fsynced_is_there_after_a_crash() {
    for engine in [Engine::Snapshot, Engine::Journal] {
        let mut pair = Pair::make(engine);
        for round in 0..4u8 {
            let view = pair.open();
            let no = create(&view, &format!("a{round}"), &[round; 10_000]);
            view.fsync(no, false).unwrap();
            if round == 2 {
                view.checkpoint().unwrap();
            }
            let other = create(&view, &format!("b{round}"), &vec![round; 300_000]);
            view.fsync(other, false).unwrap();
            pair = pair.snapshot();
            pair.must_be_sound();
            drop(view);
            let view = pair.open();
            assert!(view.log_status().replayed > 0, "{engine:?}");
            for before in 0..=round {
                assert_eq!(read(&view, &format!("a{before}")), [before; 10_000]);
                assert_eq!(read(&view, &format!("b{before}")), vec![before; 300_000]);
            }
            let info = view.info();
            assert_eq!((info.log_size, info.log_path), (MIB - 2 * 4096, Some("".into())));
            view.close().unwrap();
            pair.must_be_sound();
        }
        // Reading alone replays too, and changes nothing.
        let view = pair.open();
        let no = create(&view, "last", b"word");
        view.fsync(no, false).unwrap();
        let crashed = pair.snapshot();
        let before = crashed.bytes();
        let options = MountOptions { read_only: true, ..crashed.options() };
        let reader = View::open(crashed.volume.clone(), &options).unwrap();
        assert_eq!(read(&reader, "last"), b"word");
        drop(reader);
        assert!(crashed.bytes() == before);
        // And without its log the volume is as its last superblock left it.
        let options = MountOptions { journal: LogPlace::Without, ..options };
        let reader = View::open(crashed.volume.clone(), &options).unwrap();
        assert!(reader.lookup(reader.root(), b"last").is_err());
        assert_eq!(read(&reader, "a1"), [1; 10_000]);
        let options = MountOptions { read_only: false, ..options };
        assert!(matches!(View::open(crashed.volume, &options), Err(Error::Refused(_))));
    }
}

#[test]
fn calls_are_durable_when_they_return() {
    for durability in [Durability::Sync, Durability::Group] {
        let pair = Pair::make(Engine::Journal);
        let view = View::open(pair.volume.clone(), &MountOptions { durability, ..pair.options() }).unwrap();
        create(&view, "at once", b"");
        let crashed = pair.snapshot();
        assert_eq!(read(&crashed.open(), "at once"), b"");
    }
}

#[test]
fn the_log_of_another_volume_is_refused() {
    let (ours, theirs) = (Pair::make(Engine::Snapshot), Pair::make(Engine::Snapshot));
    let mixed = Pair { volume: ours.volume.clone(), log: theirs.log.clone() };
    let text = mixed.refusal();
    assert!(text.contains("has the log of the volume"), "{text}");
    // Nor does a second volume get it.
    let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    let options = MkfsOptions { journal: Some(on(&theirs.log)), ..MkfsOptions::default() };
    let text = View::mkfs(&volume, &options).unwrap_err().to_string();
    assert!(text.contains("two volumes cannot share one"), "{text}");
    let view = ours.open();
    let to = MoveLog::Elsewhere { on: on(&theirs.log), force: false };
    let text = view.move_log(&to).unwrap_err().to_string();
    assert!(text.contains("two volumes cannot share one"), "{text}");
    let to = MoveLog::Elsewhere { on: on(&theirs.volume), force: false };
    let text = view.move_log(&to).unwrap_err().to_string();
    assert!(text.contains("holds a Yore volume"), "{text}");
    create(&view, "goes on", b"with its own");
    view.close().unwrap();
    ours.must_be_sound();
    theirs.open().close().unwrap();
}

#[test]
fn older_copies_are_refused() {
    let pair = Pair::make(Engine::Journal);
    let older = pair.snapshot();
    let view = pair.open();
    create(&view, "since", b"");
    view.close().unwrap();
    let text = Pair { volume: pair.volume.clone(), log: older.log.clone() }.refusal();
    assert!(text.contains("older copy of the log"), "{text}");
    let text = Pair { volume: older.volume.clone(), log: pair.log.clone() }.refusal();
    assert!(text.contains("another copy of the volume"), "{text}");
    // Both together are as good as ever.
    older.open().close().unwrap();
    pair.open().close().unwrap();
}

#[test]
fn a_log_that_is_not_there_is_refused() {
    let pair = Pair::make(Engine::Snapshot);
    let with = |log: MemoryDevice| Pair { volume: pair.volume.clone(), log: Arc::new(log) }.refusal();
    for log in [MemoryDevice::new(MIB), MemoryDevice::new(2 * 4096), MemoryDevice::new(64 * MIB)] {
        let text = with(log);
        assert!(text.contains("has no log of a volume"), "{text}");
    }
    // One that lost its end, or got longer.
    for size in [MIB / 2, 2 * MIB] {
        let log = MemoryDevice::new(size);
        let mut bytes = vec![0; (size as usize).min(MIB as usize)];
        pair.log.read_at(0, &mut bytes).unwrap();
        log.write_at(0, &bytes).unwrap();
        let text = with(log);
        assert!(text.contains("another length"), "{text}");
    }
    // The volume does not say where it is, or it is not there.
    let options = |journal| MountOptions { journal, ..MountOptions::default() };
    let text =
        View::open(pair.volume.clone(), &options(LogPlace::Recorded)).err().expect("refused").to_string();
    assert!(text.contains("does not say on which") && text.contains("--give-up"), "{text}");
    let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    let path = b"/nowhere/a log".to_vec();
    let journal = Some(LogDevice { path, ..on(&Arc::new(MemoryDevice::new(MIB))) });
    View::mkfs(&volume, &MkfsOptions { journal, ..MkfsOptions::default() }).unwrap();
    let text = View::open(volume.clone(), &MountOptions::default()).err().expect("refused").to_string();
    assert!(text.contains("/nowhere/a log") && text.contains("journal=PATH"), "{text}");
    // And a volume with its log inside has none elsewhere.
    let inside: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    View::mkfs(&inside, &MkfsOptions::default()).unwrap();
    let text = View::open(inside, &options(LogPlace::On(on(&pair.log)))).err().expect("refused").to_string();
    assert!(text.contains("has its log inside"), "{text}");
}

#[test]
fn too_small_a_log_is_refused() {
    let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    for blocks in [2, 5] {
        let journal = Some(on(&Arc::new(MemoryDevice::new(blocks * 4096))));
        let text =
            View::mkfs(&volume, &MkfsOptions { journal, ..MkfsOptions::default() }).unwrap_err().to_string();
        assert!(text.contains("no room for a log"), "{text}");
    }
    View::mkfs(&volume, &MkfsOptions::default()).unwrap();
    let view = View::open(volume, &MountOptions::default()).unwrap();
    for to in [MoveLog::Inside(3), MoveLog::Inside(40_000), MoveLog::Inside(20_000)] {
        view.move_log(&to).unwrap_err();
    }
    let to = MoveLog::Elsewhere { on: on(&Arc::new(MemoryDevice::new(5 * 4096))), force: true };
    view.move_log(&to).unwrap_err();
    create(&view, "goes on", b"");
    view.close().unwrap();
}

#[test]
fn a_log_moves_while_the_volume_is_in_use() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::None] {
        let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
        let options = MkfsOptions { engine, log_size: Some(MIB), ..MkfsOptions::default() };
        View::mkfs(&volume, &options).unwrap();
        let logs: Vec<_> = (0..2).map(|_| Arc::new(MemoryDevice::new(2 * MIB))).collect();
        let mut place = LogPlace::Recorded;
        let (mut size, mut files) = (MIB, Vec::new());
        let elsewhere = |i: usize| MoveLog::Elsewhere { on: on(&logs[i]), force: false };
        let steps = [
            MoveLog::Inside(1024),
            elsewhere(0),
            elsewhere(1),
            MoveLog::Inside(512),
            MoveLog::Inside(64),
            elsewhere(0),
            MoveLog::Inside(256),
        ];
        for (step, to) in steps.iter().enumerate() {
            let options = MountOptions { journal: place, access_times: false, ..MountOptions::default() };
            let view = View::open(volume.clone(), &options).unwrap();
            let no = create(&view, &format!("before {step}"), &[step as u8; 5000]);
            view.fsync(no, false).unwrap();
            view.checkpoint().unwrap();
            let free = view.info().free_blocks;
            view.move_log(to).unwrap();
            let inside = |size: u64, is: bool| if is { size / 4096 } else { 0 };
            let was_inside = matches!(options.journal, LogPlace::Recorded);
            let old = inside(size, was_inside);
            place = match to {
                MoveLog::Inside(_) => LogPlace::Recorded,
                MoveLog::Elsewhere { on, .. } => LogPlace::On(on.clone()),
            };
            let is_inside = matches!(place, LogPlace::Recorded);
            size = match to {
                MoveLog::Inside(blocks) => blocks * 4096,
                MoveLog::Elsewhere { .. } => 2 * MIB - 2 * 4096,
            };
            let info = view.info();
            assert_eq!((info.log_size, info.log_path.is_none()), (size, is_inside));
            assert_eq!(view.log_status().blocks, size / 4096);
            assert_eq!(info.free_blocks, free + old - inside(size, is_inside), "step {step}");
            let no = create(&view, &format!("behind {step}"), &[step as u8; 5000]);
            view.fsync(no, false).unwrap();
            files.push(step as u8);
            if engine == Engine::None {
                view.close().unwrap();
            }
            let report =
                check(&*volume, &CheckOptions { log: place.clone(), ..CheckOptions::default() }).unwrap();
            assert!(report.is_clean(), "{engine:?}, step {step}: {report}");
            // As if the process had ended here. The device stays as it is.
            let (volume_now, place_now) = (copy(&*volume), frozen(&place));
            let options = MountOptions { journal: place_now, ..MountOptions::default() };
            let again = View::open(volume_now, &options).unwrap();
            for step in &files {
                assert_eq!(read(&again, &format!("before {step}")), [*step; 5000]);
                assert_eq!(read(&again, &format!("behind {step}")), [*step; 5000]);
            }
            again.close().unwrap();
            view.close().unwrap();
        }
        // What lay elsewhere is nobody's any more. `none` has no use for a log, and leaves the old one alone.
        for log in logs {
            let other: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
            let force = engine == Engine::None;
            let options = MkfsOptions { journal: Some(on(&log)), force, ..MkfsOptions::default() };
            View::mkfs(&other, &options).unwrap();
        }
    }
}

/// A copy of a device as it is now.
fn copy(device: &dyn Device) -> Arc<MemoryDevice> {
    let copy = MemoryDevice::new(device.size());
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    Arc::new(copy)
}

fn frozen(place: &LogPlace) -> LogPlace {
    match place {
        LogPlace::On(at) => LogPlace::On(LogDevice { device: copy(&*at.device), path: at.path.clone() }),
        other => other.clone(),
    }
}

/// If the log's disk is gone, calls that must be durable fail, and go on failing; reads do not. With the log
/// back, the volume is whole, and has all that was durable.
#[test]
fn the_logs_disk_vanishes() {
    for engine in [Engine::Snapshot, Engine::Journal] {
        for after_writes in 0..12 {
            let pair = Pair::make(engine);
            let log = Arc::new(SimulatedDevice::new(pair.log.snapshot()));
            let journal = LogPlace::On(LogDevice { device: log.clone(), path: Vec::new() });
            let view = View::open(pair.volume.clone(), &MountOptions { journal, ..pair.options() }).unwrap();
            let first = create(&view, "first", b"word");
            view.fsync(first, false).unwrap();
            log.fail(FaultPlan { faults: vec![Fault::Dead { after_writes }] });
            let (mut kept, mut failed) = (Vec::new(), None);
            for n in 0..20u8 {
                let caller = Caller::superuser();
                let name = format!("f{n}");
                let made = view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0);
                let durable = made.and_then(|made| {
                    let mode = WriteMode { append: false, kill_set_id: false };
                    view.write(made.inode(), 0, &[n; 9000], mode)?;
                    view.fsync(made.inode(), false)?;
                    if n % 4 == 3 {
                        view.checkpoint()?;
                    }
                    Ok(())
                });
                match durable {
                    Ok(()) => {
                        assert!(failed.is_none(), "an error is for ever");
                        kept.push(n);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let failed = failed.expect("the log's disk is gone");
            assert!(view.stopped().is_some(), "{failed}");
            assert_eq!(read(&view, "first"), b"word");
            assert!(view.close().is_err());
            drop(view);
            log.fail(FaultPlan::none());
            let back = Pair { volume: pair.volume.clone(), log: Arc::new(log.snapshot()) };
            back.must_be_sound();
            let view = back.open();
            for n in kept {
                assert_eq!(read(&view, &format!("f{n}")), [n; 9000], "{engine:?}, {after_writes}");
            }
            view.close().unwrap();
            back.must_be_sound();
        }
    }
}

/// Counts reads by where they are.
#[derive(Debug, Default)]
struct Reads(Mutex<Vec<(u64, u64)>>);

impl Hook for Reads {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let Request::Read { offset, .. } = &request {
            self.0.lock().unwrap().push((*offset / 4096, request.len() / 4096));
        }
        request.pass(below)
    }
}

/// What a mount reads does not depend on how long the log is, unless there is something in it.
#[test]
fn an_empty_log_costs_one_block() {
    const BIG: u64 = 512 * MIB;
    for engine in [Engine::Snapshot, Engine::Journal] {
        let memory = MemoryDevice::new(BIG);
        let raw: Arc<dyn Device> = Arc::new(memory.snapshot());
        let options = MkfsOptions { engine, log_size: Some(32 * MIB), ..MkfsOptions::default() };
        View::mkfs(&raw, &options).unwrap();
        let open = |device: Arc<dyn Device>| {
            let view = View::open(device, &MountOptions::default()).unwrap();
            (view.log_status(), view)
        };
        let (_, view) = open(raw.clone());
        for n in 0..100 {
            let no = create(&view, &format!("f{n}"), b"some content");
            view.fsync(no, false).unwrap();
        }
        view.close().unwrap();
        let counted = Arc::new(Wrapped::new(raw.clone(), Reads::default()));
        let (_, view) = open(counted.clone());
        let reads = counted.hook.0.lock().unwrap().clone();
        let blocks: u64 = reads.iter().map(|(_, blocks)| blocks).sum();
        println!("{engine:?}: {reads:?}");
        // Two superblocks, a block of the log, the root zone's header; and the root directory's way.
        assert_eq!(reads.iter().filter(|(at, _)| *at < 2).count(), 2);
        let log = 2048..2048 + 32 * MIB / 4096;
        let of_log: Vec<_> = reads.iter().filter(|(at, _)| log.contains(at)).collect();
        assert_eq!(of_log.iter().map(|(_, blocks)| blocks).sum::<u64>(), 1, "{of_log:?}");
        assert!(blocks <= 8, "{blocks} blocks: {reads:?}");
        view.close().unwrap();
    }
}
