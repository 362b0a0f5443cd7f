//! Promises of a repair of a volume whose log has records: everything that an fsync promised is there
//! afterwards, nothing is replayed onto what was repaired, and taking the repair back leaves the volume as it
//! was. Of a damaged log, what is before the damage is there, and the volume can be used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, plan_repair, plan_repair_leaving, undo_repair, CheckError, CheckOptions, Problem};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_format::layout::HEADER_SLOTS;
use yore_format::{decode_slots, Superblock, ZoneHeader, ZoneTableEntry, ZoneTableRef};
use yore_fs::{
    Caller, Engine, FileKind, LogDevice, LogPlace, MkfsOptions, MountOptions, NewSnapshot, Node, View,
    WriteMode,
};

const MIB: u64 = 1 << 20;

/// A volume, and the device of its log if it has one of its own.
pub(crate) struct Volume {
    pub(crate) device: Arc<MemoryDevice>,
    log: Option<Arc<MemoryDevice>>,
    engine: Engine,
}

impl Volume {
    pub(crate) fn make(engine: Engine, has_own_log: bool) -> Volume {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let log = has_own_log.then(|| Arc::new(MemoryDevice::new(MIB)));
        let shared: Arc<dyn Device> = device.clone();
        let journal = log.clone().map(|device| LogDevice { device, path: Vec::new() });
        View::mkfs(&shared, &MkfsOptions { engine, journal, ..MkfsOptions::default() }).unwrap();
        Volume { device, log, engine }
    }

    fn place(&self) -> LogPlace {
        match &self.log {
            Some(device) => LogPlace::On(LogDevice { device: device.clone(), path: Vec::new() }),
            None => LogPlace::Recorded,
        }
    }

    pub(crate) fn open(&self) -> View {
        let options = MountOptions {
            commit_interval: Duration::from_secs(3600),
            access_times: false,
            journal: self.place(),
            ..MountOptions::default()
        };
        View::open(self.device.clone(), &options).unwrap()
    }

    pub(crate) fn options(&self) -> CheckOptions {
        CheckOptions { log: self.place(), ..CheckOptions::default() }
    }

    /// As after the end of the process.
    pub(crate) fn crashed(&self) -> Volume {
        let log = self.log.as_ref().map(|log| Arc::new(log.snapshot()));
        Volume { device: Arc::new(self.device.snapshot()), log, engine: self.engine }
    }

    fn story(&self) -> String {
        format!("{}, log {}", self.engine.name(), if self.log.is_some() { "elsewhere" } else { "inside" })
    }

    pub(crate) fn block(&self, at: u64) -> [u8; BLOCK_SIZE] {
        let mut block = [0; BLOCK_SIZE];
        self.device.read_at(at * BLOCK_SIZE as u64, &mut block).unwrap();
        block
    }

    /// Changes a byte of a block.
    pub(crate) fn flip(&self, at: u64) {
        let mut block = self.block(at);
        block[3000] ^= 1;
        self.device.write_at(at * BLOCK_SIZE as u64, &block).unwrap();
    }

    pub(crate) fn superblock(&self) -> (u32, Superblock) {
        let (superblock, slot, _) = decode_slots([&self.block(0), &self.block(1)]).unwrap();
        (slot, superblock)
    }

    /// The block of the zone table, and what it says of a zone.
    pub(crate) fn table(&self, zone: u32) -> (u64, ZoneTableEntry) {
        let root = self.superblock().1.root_zones[0].unwrap();
        let header = self.block(root.start.0 + HEADER_SLOTS[usize::from(root.header_slot)]);
        let table = root.start.0 + u64::from(ZoneHeader::decode(&header).unwrap().map[0]);
        (table, ZoneTableRef::new(&self.block(table)).entry(zone as usize))
    }

    /// Makes a total of the superblock wrong that no record has.
    pub(crate) fn damage(&self) {
        let (slot, mut sb) = self.superblock();
        sb.zones += 1;
        self.device.write_at(u64::from(slot) * BLOCK_SIZE as u64, &sb.encode(slot)[..]).unwrap();
    }
}

/// A path for an undo file that goes with the test.
pub(crate) struct UndoFile(pub(crate) PathBuf);

impl UndoFile {
    pub(crate) fn new(name: &str) -> UndoFile {
        let path = std::env::temp_dir().join(format!("yore-undo-log-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        UndoFile(path)
    }
}

impl Drop for UndoFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) const PLAIN: WriteMode = WriteMode { append: false, kill_set_id: false };

pub(crate) fn create(view: &View, name: &str) -> Node {
    let caller = Caller::superuser();
    view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap()
}

pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + i / 251 + seed * 131) % 255) as u8 + 1).collect()
}

pub(crate) fn content(view: &View, name: &str) -> Option<Vec<u8>> {
    content_in(view, view.root(), name)
}

pub(crate) fn content_in(view: &View, directory: yore_fs::InodeNo, name: &str) -> Option<Vec<u8>> {
    let node = view.lookup(directory, name.as_bytes()).ok()?;
    let mut found = vec![0; node.attr().size as usize + 1];
    let len = view.read(node.attr().inode, 0, &mut found).unwrap();
    found.truncate(len);
    Some(found)
}

const NAMES: [&str; 9] = ["small", "grown", "pages", "part", "over", "shorter", "removed", "sparse", "moved"];

/// Makes files of all kinds, syncs, changes each of them, and fsyncs it.
fn work(view: &View) {
    let fsync = |node: &Node| view.fsync(node.inode(), false).unwrap();
    let write = |node: &Node, at, bytes: &[u8]| {
        view.write(node.inode(), at, bytes, PLAIN).unwrap();
    };
    for (n, name) in NAMES.iter().enumerate() {
        let node = create(view, name);
        let len = [40, 60, 0, 5000, 12 * 4096, 20 * 4096 + 77, 9000, 100, 6000][n];
        write(&node, 0, &bytes(n, len));
    }
    view.sync().unwrap();
    view.take_snapshot(view.root(), &NewSnapshot { name: "before", wait: true, ..NewSnapshot::default() })
        .unwrap();
    let node = |name: &str| view.lookup(view.root(), name.as_bytes()).unwrap();
    let all: Vec<Node> = NAMES.iter().map(|name| node(name)).collect();
    write(&all[0], 10, &bytes(20, 50));
    write(&all[1], 30, &bytes(21, 3 * 4096));
    write(&all[2], 0, &bytes(22, 4 * 4096 + 9));
    write(&all[3], 4900, &bytes(23, 3000));
    write(&all[4], 4096 + 100, &bytes(24, 5000));
    for at in [0, 1, 2, 3] {
        fsync(&all[at]);
    }
    view.truncate_for_test(all[5].inode(), 4096 + 5);
    fsync(&all[5]);
    write(&all[5], 3 * 4096 + 1, &bytes(25, 10));
    fsync(&all[5]);
    view.unlink(view.root(), b"removed").unwrap();
    write(&all[7], 900 * 4096, &bytes(26, 4097));
    fsync(&all[4]);
    fsync(&all[7]);
    view.rename_for_test("moved", "elsewhere");
    let late = create(view, "late");
    write(&late, 0, &bytes(27, 2 * 4096));
    fsync(&late);
}

fn all(view: &View) -> Vec<(String, Option<Vec<u8>>)> {
    let names = NAMES.iter().chain(&["elsewhere", "late"]);
    names.map(|name| (name.to_string(), content(view, name))).collect()
}

/// What a test needs of a view, in one line.
trait ForTest {
    fn truncate_for_test(&self, inode: yore_fs::InodeNo, size: u64);
    fn rename_for_test(&self, from: &str, to: &str);
}

impl ForTest for View {
    fn truncate_for_test(&self, inode: yore_fs::InodeNo, size: u64) {
        let set = yore_fs::SetAttr { size: Some(size), ..yore_fs::SetAttr::default() };
        self.setattr(&Caller::superuser(), inode, &set).unwrap();
    }
    fn rename_for_test(&self, from: &str, to: &str) {
        let mode = yore_fs::RenameMode::Replace;
        self.rename(self.root(), from.as_bytes(), self.root(), to.as_bytes(), mode).unwrap();
    }
}

fn all_volumes() -> Vec<Volume> {
    let kinds = [Engine::Snapshot, Engine::Journal].into_iter().flat_map(|e| [(e, false), (e, true)]);
    kinds.map(|(engine, has_own_log)| Volume::make(engine, has_own_log)).collect()
}

/// Promises that a repair puts the records of the log in place as a mount does, and leaves the log empty.
#[test]
fn what_the_log_has_is_there_after_a_repair() {
    for volume in all_volumes() {
        let story = volume.story();
        let view = volume.open();
        work(&view);
        let left = volume.crashed();
        let mounted = volume.crashed().open();
        let expected = all(&mounted);
        mounted.close().unwrap();
        assert!(expected.iter().any(|(name, found)| name == "late" && found.is_some()));

        left.damage();
        let before = left.device.snapshot();
        let plan = plan_repair(&*left.device, &left.options()).unwrap();
        assert!(plan.is_complete() && plan.log_records > 3, "{story}: {}", plan.after);
        assert!(plan.before.has(Problem::TotalZones) && plan.lost.is_empty(), "{story}: {:?}", plan.lost);
        assert_eq!(left.device.first_difference(&before), None, "a plan writes nothing");
        let undo_file = UndoFile::new(&story.replace(' ', "-"));
        plan.apply(&undo_file.0).unwrap();
        let report = check(&*left.device, &left.options()).unwrap();
        assert!(report.is_clean() && report.counts.log_records == 0, "{story}: {report}");

        let repaired = left.crashed();
        let view = repaired.open();
        assert!(all(&view) == expected, "{story}: as a mount would have left it");
        // The past goes on, too: what a snapshot has seen is recorded before it changes.
        for name in ["pages", "over", "grown"] {
            let node = view.lookup(view.root(), name.as_bytes()).unwrap();
            view.write(node.inode(), 5, &bytes(40, 9000), PLAIN).unwrap();
            view.fsync(node.inode(), false).unwrap();
        }
        view.close().unwrap();
        let report = check(&*repaired.device, &repaired.options()).unwrap();
        assert!(report.is_clean(), "{story}, changed after the repair: {report}");

        undo_repair(&*left.device, &undo_file.0).unwrap();
        assert_eq!(left.device.first_difference(&before), None, "{story}: as before, byte for byte");
    }
}

/// Promises that a volume that lost its superblocks, the newer one or both, in use or closed, is made whole
/// under each engine, with all that an fsync promised; and that this can be taken back.
#[test]
fn lost_superblocks_lose_nothing() {
    let engines = [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync];
    let cases =
        engines.into_iter().flat_map(|engine| [(engine, false, 0), (engine, false, 1), (engine, true, 2)]);
    for (engine, is_closed, loses) in cases {
        let volume = Volume::make(engine, false);
        let story = format!("{}, closed: {is_closed}, loses {loses}", volume.story());
        let view = volume.open();
        work(&view);
        if yore_crash::volume::orders(engine) {
            // There an fsync is about its file; of a directory, about the names in it.
            view.fsync(view.root(), false).unwrap();
        }
        let left = match is_closed {
            true => {
                view.close().unwrap();
                volume
            }
            false => volume.crashed(),
        };
        let mounted = left.crashed().open();
        let expected = all(&mounted);
        mounted.close().unwrap();

        let newer = left.superblock().0;
        for slot in (0..2).filter(|slot| *slot == newer || loses > 0) {
            let mut block = vec![0x77; BLOCK_SIZE];
            if loses < 2 {
                left.device.read_at(u64::from(slot) * BLOCK_SIZE as u64, &mut block).unwrap();
                block[130] ^= 4;
            }
            left.device.write_at(u64::from(slot) * BLOCK_SIZE as u64, &block).unwrap();
        }
        let before = left.device.snapshot();
        let plan = plan_repair(&*left.device, &left.options()).unwrap();
        assert!(plan.is_complete() && plan.before.has(Problem::SuperblockDamaged), "{story}: {}", plan.after);
        assert_eq!(plan.before.findings_count, 1, "{story}: {}", plan.before);
        assert!(plan.lost.is_empty(), "{story}: {:?}", plan.lost);
        let undo_file = UndoFile::new(&format!("lost-{}", story.replace(' ', "-")));
        plan.apply(&undo_file.0).unwrap();
        let repaired = left.crashed();
        let view = repaired.open();
        assert!(all(&view) == expected, "{story}: as a mount would have left it");
        let node = view.lookup(view.root(), b"pages").unwrap();
        view.write(node.inode(), 5, &bytes(40, 9000), PLAIN).unwrap();
        view.close().unwrap();
        let report = check(&*repaired.device, &repaired.options()).unwrap();
        assert!(report.is_clean(), "{story}, changed after the repair: {report}");
        undo_repair(&*left.device, &undo_file.0).unwrap();
        assert_eq!(left.device.first_difference(&before), None, "{story}: as before, byte for byte");
    }
}

/// Promises that a snapshot that was taken after data was logged, and before the crash, has that data also
/// after a repair and further changes.
#[test]
fn a_snapshot_behind_the_logged_data_keeps_it() {
    for volume in all_volumes() {
        let story = volume.story();
        let view = volume.open();
        let node = create(&view, "seen");
        view.sync().unwrap();
        view.write(node.inode(), 0, &bytes(1, 9000), PLAIN).unwrap();
        view.fsync(node.inode(), false).unwrap();
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        let other = create(&view, "other");
        view.write(other.inode(), 0, &bytes(2, 3), PLAIN).unwrap();
        view.fsync(other.inode(), false).unwrap();
        let left = volume.crashed();
        left.damage();
        let undo_file = UndoFile::new(&format!("behind-{}", story.replace(' ', "-")));
        plan_repair(&*left.device, &left.options()).unwrap().apply(&undo_file.0).unwrap();
        let view = left.open();
        assert_eq!(content(&view, "seen"), Some(bytes(1, 9000)), "{story}");
        let node = view.lookup(view.root(), b"seen").unwrap();
        view.write(node.inode(), 0, &bytes(3, 9000), PLAIN).unwrap();
        view.close().unwrap();
        let report = check(&*left.device, &left.options()).unwrap();
        assert!(report.is_clean(), "{story}: {report}");
        let view = left.open();
        assert_eq!(content(&view.as_of(event), "seen"), Some(bytes(1, 9000)), "{story}: as of the snapshot");
        assert_eq!(content(&view, "seen"), Some(bytes(3, 9000)), "{story}");
        view.close().unwrap();
    }
}

/// Promises that of a log that is damaged in the middle the records before the damage are put in place, that
/// the loss is said, and that the volume is sound and in use again afterwards.
#[test]
fn a_damaged_log_gives_what_is_before_the_damage() {
    for volume in all_volumes() {
        let story = volume.story();
        let view = volume.open();
        let kept = create(&view, "kept");
        view.sync().unwrap();
        view.write(kept.inode(), 0, &bytes(1, 5000), PLAIN).unwrap();
        view.fsync(kept.inode(), false).unwrap();
        let until = volume.crashed();
        for n in 0..8 {
            let node = create(&view, &format!("behind-{n}"));
            view.write(node.inode(), 0, &bytes(n, 3000), PLAIN).unwrap();
            view.fsync(node.inode(), false).unwrap();
        }
        let left = volume.crashed();
        // The first block of the ring that the later records wrote.
        let (ring, before) = match (&left.log, &until.log) {
            (Some(log), Some(before)) => (log, before),
            _ => (&left.device, &until.device),
        };
        let first = match &left.log {
            Some(_) => 2,
            None => left.superblock().1.log_start.0,
        };
        let blocks = if left.log.is_some() { MIB / 4096 - 2 } else { left.superblock().1.log_blocks };
        let read = |device: &MemoryDevice, block: u64| {
            let mut bytes = vec![0; BLOCK_SIZE];
            device.read_at(block * 4096, &mut bytes).unwrap();
            bytes
        };
        let written = (first..first + blocks).find(|block| read(ring, *block) != read(before, *block));
        let written = written.expect("records were written");
        ring.write_at(written * 4096, &[0x5a; BLOCK_SIZE]).unwrap();
        let report = check(&*left.device, &left.options()).unwrap();
        assert!(report.has(Problem::LogDamaged), "{story}: {report}");
        let plan = plan_repair(&*left.device, &left.options()).unwrap();
        assert!(plan.is_complete(), "{story}: {}", plan.after);
        let said = plan.lost.iter().find(|lost| lost.path == "the log").expect("the loss is said");
        assert!(said.what.contains("cannot be read behind the first"), "{story}: {said:?}");
        let undo_file = UndoFile::new(&format!("damaged-{}", story.replace(' ', "-")));
        plan.apply(&undo_file.0).unwrap();
        let now = match left.log.is_some() {
            true => Volume { log: None, ..left },
            false => left,
        };
        let report = check(&*now.device, &now.options()).unwrap();
        assert!(report.is_clean() && report.counts.log_records == 0, "{story}: {report}");
        let view = now.open();
        assert_eq!(content(&view, "kept"), Some(bytes(1, 5000)), "{story}");
        let node = create(&view, "again");
        view.write(node.inode(), 0, &bytes(7, 5000), PLAIN).unwrap();
        view.fsync(node.inode(), false).unwrap();
        let again = now.crashed();
        view.close().unwrap();
        let view = again.open();
        assert_eq!(content(&view, "again"), Some(bytes(7, 5000)), "{story}: the log works again");
        view.close().unwrap();
        let report = check(&*again.device, &again.options()).unwrap();
        assert!(report.is_clean(), "{story}: {report}");
    }
}

/// Where something was to be left that could not be read, data from the log was written to blocks that only
/// looked free, because whoever had them could not be read; and was forgotten if its file could not be.
/// Promises that the repair is refused then, and that the volume stays as it was.
#[test]
fn data_of_the_log_is_not_written_beside_what_cannot_be_read() {
    let volume = Volume::make(Engine::Snapshot, false);
    let view = volume.open();
    // In other blocks of inodes than the root directory, and than each other.
    let nodes: Vec<Node> = (0..60).map(|n| create(&view, &format!("{n}"))).collect();
    let (kept, late) = (nodes[25].inode(), nodes[59].inode());
    assert!(kept.addr() != view.root().addr() && kept.addr() != late.addr());
    view.write(kept, 0, &bytes(1, 9000), PLAIN).unwrap();
    view.sync().unwrap();
    view.write(late, 0, &bytes(2, 9000), PLAIN).unwrap();
    view.fsync(late, false).unwrap();
    let left = volume.crashed();
    let entry = left.table(kept.addr().zone().0).1;
    let header = left.block(entry.start.get() + HEADER_SLOTS[usize::from(entry.header_slot)]);
    let slot = ZoneHeader::decode(&header).unwrap().map[usize::from(kept.addr().index())];
    left.flip(entry.start.get() + u64::from(slot));
    let (slot, mut sb) = left.superblock();
    assert!(sb.orphan_root.is_none());
    sb.orphan_level = 1;
    left.device.write_at(u64::from(slot) * BLOCK_SIZE as u64, &sb.encode(slot)[..]).unwrap();

    let before = left.device.snapshot();
    let report = check(&*left.device, &left.options()).unwrap();
    assert!(report.has(Problem::ReservedRoot) && report.counts.log_records > 0, "{report}");
    let damaged = report.findings.into_iter().filter(|found| found.problem == Problem::BlockDamaged);
    let damaged: Vec<_> = damaged.collect();
    assert_eq!(damaged.len(), 1);
    let e = plan_repair_leaving(&*left.device, &left.options(), &damaged).unwrap_err();
    assert!(matches!(e, CheckError::LogNeedsAll { .. }), "{e}");
    assert_eq!(left.device.first_difference(&before), None);
    let plan = plan_repair(&*left.device, &left.options()).unwrap();
    assert!(plan.is_complete(), "{}", plan.after);
}
