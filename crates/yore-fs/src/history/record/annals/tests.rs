//! Promises of the annals that their callers cannot see.

use super::trees::Annals;
use crate::history::record::states::VersionsWalk;
use crate::history::record::{EndsWalk, OldName, PastEntry, Prepared};
use crate::store::Store;
use crate::{dir, InodeNo, MkfsOptions, MountOptions, NewSnapshot, Policy, Versioning, Volume};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use yore_core::btree::Pins;
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_format::{AnnalsKey, EventNo, HistoryRoots, HistoryTree, Version, WriteFeatures, HISTORY_SHARDS};

#[path = "../../../../tests/golden/blocks.rs"]
mod blocks;

fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), &MountOptions::default()).unwrap()
}

/// A snapshot whose name is `s` and its number.
fn event(volume: &Volume) -> EventNo {
    let view = volume.view();
    let name = format!("s{}", view.store().number());
    view.take_snapshot(view.root(), &NewSnapshot::named(&name)).unwrap().number
}

fn annals(store: &Store) -> Annals<'_> {
    store.past.annals().expect("it has annals")
}

/// The rows of all shards: which, the inode, and whether they have a version and a name.
fn rows(store: &Store) -> Vec<(usize, AnnalsKey, InodeNo, bool, bool)> {
    let mut all = Vec::new();
    for shard in 0..HISTORY_SHARDS {
        let mut add = |row: &yore_format::AnnalsRow<'_>, key| {
            let has_name = row.name.is_some() && !row.name_is_reclaimed;
            all.push((shard, key, row.inode, row.version.is_some(), has_name));
        };
        let tree = store.past.tree(HistoryTree::Annals(shard));
        tree.scan(&store.meta, &[0; 10], &mut |key, value| {
            let key = AnnalsKey::decode(key)?;
            let row = yore_format::AnnalsRow::decode(key.end, value, &store.hash_seed)?;
            add(&row, key);
            Ok(true)
        })
        .unwrap();
    }
    all.sort_by_key(|(shard, key, ..)| (key.end, *shard, key.sequence));
    all
}

fn in_old_trees(store: &Store) -> usize {
    let trees = (0..HISTORY_SHARDS)
        .flat_map(|s| [HistoryTree::Versions(s), HistoryTree::Names(s), HistoryTree::Changes(s)]);
    trees.filter(|tree| !store.past.tree(*tree).is_empty()).count()
}

/// A policy is the first of a past, too: annals begin with it. They once did not, and the first change behind
/// an event of the policy waited for a generation.
#[test]
fn annals_begin_with_a_policy() {
    let volume = open(&device());
    let view = volume.view();
    volume.write("a", "one").unwrap();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    view.set_policy(view.root(), &close).unwrap();
    let before = view.store().past.annals_from.load(Ordering::Acquire);
    assert!(before > 0 && view.store().past.annals().is_some());
    view.closed(volume.node("a").unwrap().inode()).unwrap();
    volume.write("a", "two").unwrap();
    assert_eq!(in_old_trees(view.store()), 0);
    assert!(!rows(view.store()).is_empty());
}

/// On a new volume all that ends is in rows; what one unlink ends of a file is in one; and the watermarks are
/// at the last rows once these are indexed.
#[test]
fn what_ends_is_in_rows() {
    let device = device();
    let volume = open(&device);
    volume.write("a", "one").unwrap();
    // Else the version is made before the unlink.
    volume.sync().unwrap();
    event(&volume);
    volume.remove_file("a").unwrap();
    let store = volume.view().store().clone();
    assert!(store.meta.has_features(WriteFeatures::ANNALS));
    assert_eq!(in_old_trees(&store), 0);
    let found: Vec<_> =
        rows(&store).into_iter().map(|(_, key, no, version, name)| (key.end, no, version, name)).collect();
    let both = |of: &&(EventNo, InodeNo, bool, bool)| of.2 && of.3;
    assert_eq!(found.len(), 2, "the file and its directory: {found:?}");
    assert_eq!(found.iter().filter(both).count(), 1);
    assert!(found.contains(&(EventNo(2), InodeNo::ROOT, true, false)), "{found:?}");
    store.past.index_all(&store, &|| false).unwrap();
    assert_eq!(store.past.backlog(), 0);
    for shard in 0..HISTORY_SHARDS {
        let last = annals(&store).last_row(&store.meta, shard).unwrap();
        let watermark = HistoryRoots::watermark(&store.past.roots().read(), shard);
        let none = AnnalsKey { end: EventNo(0), sequence: u32::MAX };
        assert_eq!(watermark, last.unwrap_or(none), "shard {shard}");
    }
}

/// A volume that has a past in old trees gets annals when something is recorded, and not before; what it had
/// is read beside them, and forgotten like the rest.
#[test]
fn a_volume_with_a_past_gets_annals() {
    let image = include_bytes!("../../../../tests/golden/volume-2.2-past.blocks");
    let device: Arc<dyn Device> = Arc::new(blocks::unpack(image));
    let volume = open(&device);
    let store = volume.view().store().clone();
    let mut events: Vec<EventNo> = volume.view().events().unwrap().iter().map(|event| event.number).collect();
    let number = store.number();
    let list = |time: &str| -> Vec<String> {
        let entries = volume.read_dir(format!("d0{time}")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let read = |time: &str| volume.read(format!("d0/f1{time}")).unwrap();
    let times = ["@s0", "@s4", "@s9"];
    let before = times.map(|time| (list(time), read(time)));
    assert!(before[0].1 != before[2].1 && before[0].0 != before[2].0, "they differ");
    volume.create_dir("new").unwrap();
    volume.write("new/e", "so nothing ends but the root directory").unwrap();
    let from = store.past.annals_from.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(from, number.0 + 1, "a number was passed");
    assert!(in_old_trees(&store) > 0);
    let now = volume.read("d0/f1").unwrap();
    volume.write("d0/f1", "third").unwrap();
    volume.write("d0/another", "new").unwrap();
    let last = event(&volume);
    let then = format!("@s{last}");
    for name in list("") {
        let path = format!("d0/{name}");
        match volume.metadata(&path).unwrap().is_dir() {
            true => volume.remove_dir_all(path).unwrap(),
            false => volume.remove_file(path).unwrap(),
        }
    }
    volume.write("d0/f1", "fourth").unwrap();
    assert!(now != b"third");
    assert!(times.map(|time| (list(time), read(time))) == before);
    assert_eq!(read(&then), b"third");
    assert!(list(&then).contains(&"another".to_string()));
    // A walk over all versions has each once, those of an inode together and in order, in any steps.
    let mut whole = Vec::new();
    for most in [1, 2, 3, 256] {
        let (mut walk, mut all) = (VersionsWalk::default(), Vec::new());
        while let Some(found) = store.past.next_versions(&store.meta, &mut walk, most).unwrap() {
            all.extend(found.into_iter().map(|(no, version)| (no, version.inode.born, version.end)));
        }
        for pair in all.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[0].2 <= pair[1].1, "{pair:?}");
        }
        let mut inodes: Vec<_> = all.iter().map(|(no, ..)| *no).collect();
        inodes.dedup();
        let runs = inodes.len();
        inodes.sort();
        inodes.dedup();
        assert_eq!(runs, inodes.len(), "those of one inode come together: {all:?}");
        all.sort();
        if whole.is_empty() {
            whole.clone_from(&all);
        }
        assert_eq!(all, whole, "{most} at a time");
    }
    let mut ends = Vec::new();
    let mut walk = EndsWalk::of(EventNo(0), EventNo(u64::MAX));
    while let Some(found) = store.past.next_ended(&store.meta, &mut walk, 2).unwrap() {
        ends.extend(
            found.into_iter().filter(|ended| ended.cookie == 0).map(|ended| (ended.inode, ended.end)),
        );
    }
    ends.sort();
    let mut expected: Vec<_> = whole.iter().map(|(no, _, end)| (*no, *end)).collect();
    expected.sort();
    assert_eq!(ends, expected);

    events.push(last);
    volume.view().forget(&events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((in_old_trees(&store), rows(&store).len()), (0, 0));
    let trees = [HistoryTree::InodeIndex, HistoryTree::NameIndex];
    assert!(trees.into_iter().all(|tree| store.past.tree(tree).is_empty()));
}

/// Who comes with a number that is earlier than the last row's end begins anew; the row would have a key that
/// comes before it (A2).
#[test]
fn a_number_that_has_passed_is_noticed() {
    let volume = open(&device());
    volume.write("a", "one").unwrap();
    event(&volume);
    let store = volume.view().store().clone();
    let number = store.number();
    let name_of = |state: &yore_core::inode::InodeState| {
        let mut pins = Pins::new();
        let found = dir::lookup_to_change(&store, state, InodeNo::ROOT, b"a", &mut pins).unwrap();
        let dir::Lookup::Taken(found, _) = found else { panic!("it is there") };
        found
    };
    let root = store.cell(InodeNo::ROOT).unwrap();
    let prepare = |number| {
        let state = root.state.write();
        let found = name_of(&state);
        let old_name = OldName {
            excluded: false,
            directory: &root,
            inode: &state.inode,
            cookie: found.cookie,
            entry: found.entry(b"a"),
            cover: EventNo(1),
        };
        store.past.prepare(&store, number, &[], &[old_name]).map(|prepared| match prepared {
            Prepared::Ready(_) => "ready",
            Prepared::Again => "again",
            Prepared::NeedNumber => "number",
        })
    };
    assert_eq!(prepare(number).unwrap(), "ready");
    // Somebody else's row in the same shard, with a later number.
    event(&volume);
    volume.write("a", "two").unwrap();
    assert_eq!(prepare(number).unwrap(), "again");
    assert_eq!(prepare(store.number()).unwrap(), "ready");
    // A shard is full of rows of one end.
    let shard = yore_format::version_shard(store.cell(volume.node("a").unwrap().inode()).unwrap().no);
    let greatest = AnnalsKey { end: store.number(), sequence: u32::MAX };
    store.past.shards[shard].write().greatest = Some(greatest);
    assert_eq!(prepare(store.number()).unwrap(), "number");
    let before = store.number();
    store.past.pass_number(&store).unwrap();
    assert_eq!(store.number().0, before.0 + 1);
    assert_eq!(prepare(store.number()).unwrap(), "ready");
    // A last row that is later than all numbers that were given is damage, not a reason to wait.
    store.past.shards[shard].write().greatest = Some(AnnalsKey { end: EventNo(999), sequence: 0 });
    assert!(prepare(store.number()).is_err());
}

/// A row that is removed leaves its key to nobody (A2): the next one comes behind it, also after opening.
#[test]
fn no_key_comes_back() {
    let device = device();
    let mut volume = open(&device);
    volume.write("a", "one").unwrap();
    volume.write("b", "one").unwrap();
    event(&volume);
    volume.write("a", "two").unwrap();
    let of_a = rows(volume.view().store());
    let attr = *volume.node("a").unwrap().attr();
    volume.view().expunge(&[(attr.inode, attr.incarnation)]).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    for again in [false, true] {
        if again {
            volume.close().unwrap();
            volume = open(&device);
        }
        let known = rows(volume.view().store());
        volume.write(if again { "b" } else { "a" }, "three").unwrap();
        event(&volume);
        volume.write("b", "four").unwrap();
        for row in rows(volume.view().store()) {
            let is_new = !known.contains(&row);
            let comes_back = of_a.iter().any(|(shard, key, ..)| (*shard, *key) == (row.0, row.1));
            assert!(!(is_new && comes_back), "{row:?}");
        }
    }
}

/// A damaged cell of an old tree may say any end, and be of any inode: no key is made of that.
#[test]
fn numbers_that_no_key_can_have_are_damage() {
    let volume = open(&device());
    volume.write("a", "one").unwrap();
    event(&volume);
    let store = volume.view().store().clone();
    let (past, meta) = (&store.past, &store.meta);
    let mut inode = store.cell(InodeNo::ROOT).unwrap().state.read().inode.clone();
    inode.born = EventNo(1);
    for (no, end) in [(InodeNo::ROOT, u64::MAX), (InodeNo(u64::MAX), 5), (InodeNo::ROOT, 1 << 48)] {
        let version = Version { end: EventNo(end), inode: inode.clone() };
        assert!(past.prepare_removal(&store, no, &version).is_err());
        let name = PastEntry {
            directory: no,
            cookie: 0x500,
            birth: EventNo(1),
            death: EventNo(end),
            inode: no,
            incarnation: inode.incarnation,
            kind: crate::FileKind::Regular,
            name: b"a".to_vec(),
        };
        assert!(past.expunge_name(&store, &name, EventNo(3)).is_err());
        assert!(past.expunge_name(&store, &name, EventNo(u64::MAX)).is_err());
        past.version(meta, no, EventNo(end)).unwrap();
        past.version_after(meta, no, EventNo(end)).unwrap();
        past.recorded_until(meta, no).unwrap();
        past.name_until(meta, no, u64::MAX, EventNo(end)).unwrap();
        past.last_meaning(&store, no, b"a", EventNo(end)).unwrap();
        past.names_as_of(meta, (no, 0), EventNo(end), 8, &|_| true).unwrap();
        past.each_past_name(meta, no, &mut |_| Ok(true)).unwrap();
        past.is_changed_since(meta, EventNo(end)).unwrap();
        let mut walk = EndsWalk::of(EventNo(end), EventNo(u64::MAX));
        while past.next_ended(meta, &mut walk, 8).unwrap().is_some() {}
    }
}

/// At the bound of the backlog calls index what others have recorded; on a full volume, too: there the blocks
/// that only removing may take are enough. So files can always be removed, and memory has no more rows than
/// the bound.
#[test]
fn a_full_volume_at_the_bound_lets_files_go() {
    const BOUND: u64 = 24;
    let device = device();
    let options = MountOptions { backlog: BOUND, keep_history: true, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    let names: Vec<_> = (0..1500).map(|n| format!("f{n}")).collect();
    for name in &names {
        volume.write(name, "a few bytes").unwrap();
    }
    volume.sync().unwrap();
    let then = event(&volume);
    for step in [1 << 20, 4096] {
        for n in 0.. {
            if volume.write(format!("full {step} {n}"), vec![7; step]).is_err() {
                break;
            }
        }
    }
    let store = volume.view().store();
    for name in &names {
        volume.remove_file(name).unwrap();
        let rows = store.past.backlog();
        assert!(rows <= BOUND + 4, "{rows} rows");
    }
    volume.view().index_history(u64::MAX).unwrap();
    for name in &names {
        let then = format!("{name}@s{then}");
        assert_eq!(volume.read(&then).unwrap(), b"a few bytes", "{then}");
    }
    volume.close().unwrap();
    let volume = open(&device);
    let seen = names.iter().filter(|name| volume.read(format!("{name}@s{then}")).is_ok()).count();
    assert_eq!(seen, names.len(), "opened again");
}

/// Whatever is asked of the past has the same answer before rows have their keys, when some have, after
/// opening with and without them, and when all have; and forgetting leaves nothing of any.
#[test]
fn answers_are_the_same_before_and_after_indexing() {
    for seed in 1..7 {
        let mut random = yore_core::testing::Random(seed);
        let device = device();
        let mut volume = open(&device);
        let mut events = Vec::new();
        for round in 0..30 {
            events.push(event(&volume));
            for _ in 0..12 {
                let (dir, name) = (random.below(4), random.below(9));
                let _ = volume.create_dir(format!("d{dir}"));
                let path = format!("d{dir}/f{name}");
                let to = format!("d{}/f{}", random.below(4), random.below(9));
                match random.below(4) {
                    0 => drop(volume.remove_file(&path)),
                    1 => drop(volume.rename(&path, &to)),
                    _ => volume.write(&path, format!("{round} {path}")).unwrap(),
                }
            }
            if round == 15 {
                volume.view().index_history(40).unwrap();
            }
        }
        let rows = |volume: &Volume| volume.view().store().past.backlog();
        assert!(rows(&volume) > 0, "seed {seed}");
        let before = everything(&volume, &events);
        for some in [1, 64, 3, 100] {
            volume.view().index_history(some).unwrap();
            assert!(everything(&volume, &events) == before, "seed {seed}, {some} rows more");
        }
        if seed % 2 == 0 {
            volume.close().unwrap();
            volume = open(&device);
            assert!(everything(&volume, &events) == before, "seed {seed}, opened again");
            assert_eq!(rows(&volume), 0, "a volume that was closed has none");
        }
        volume.view().index_history(u64::MAX).unwrap();
        assert_eq!(rows(&volume), 0);
        assert!(everything(&volume, &events) == before, "seed {seed}, all indexed");
        // Some rows with keys and some without are forgotten.
        events.push(event(&volume));
        for dir in 0..4 {
            for name in 0..9 {
                let _ = volume.remove_file(format!("d{dir}/f{name}"));
            }
        }
        let kept = events.split_off(events.len() / 2);
        let before = everything(&volume, &kept);
        volume.view().forget(&events).unwrap();
        volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        assert!(everything(&volume, &kept) == before, "seed {seed}, forgotten");
        volume.view().index_history(5).unwrap();
        volume.view().forget(&kept).unwrap();
        volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        let store = volume.view().store().clone();
        assert_eq!((rows(&volume), self::rows(&store).len()), (0, 0), "seed {seed}");
        let trees = [HistoryTree::InodeIndex, HistoryTree::NameIndex];
        assert!(trees.into_iter().all(|tree| store.past.tree(tree).is_empty()), "seed {seed}");
    }
}

/// What can be seen as of each event, and what ended.
fn everything(volume: &Volume, events: &[EventNo]) -> Vec<String> {
    let mut seen = Vec::new();
    for event in events {
        let entries = volume.read_dir(format!(".@s{event}")).unwrap();
        let mut dirs: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        dirs.sort();
        for dir in dirs.into_iter().filter(|name| name.starts_with('d')) {
            let entries = volume.read_dir(format!("{dir}@s{event}")).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            for name in names {
                let bytes = volume.read(format!("{dir}/{name}@s{event}")).unwrap();
                seen.push(format!("{event} {dir}/{name} {}", String::from_utf8_lossy(&bytes)));
            }
        }
    }
    let store = volume.view().store();
    let mut walk = VersionsWalk::default();
    while let Some(found) = store.past.next_versions(&store.meta, &mut walk, 7).unwrap() {
        let wanted = |end: EventNo| events.iter().any(|event| *event < end);
        let found = found.into_iter().filter(|(_, version)| wanted(version.end) && events.len() > 25);
        seen.extend(found.map(|(no, version)| format!("{no} {} {}", version.inode.born, version.end)));
    }
    seen
}

/// A device that counts what is read.
#[derive(Debug)]
struct Counted(MemoryDevice, AtomicU64);

impl Device for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
}

/// A look at the past with nothing in memory takes at most three requests more than one at the present, at
/// every depth (A7b). It once read the inode in use, which had changed since, and the last rows of the shard,
/// to find out which have no keys; to look for a name that is gone it read the last rows of all shards.
#[test]
fn a_cold_look_back_reads_few_blocks() {
    let device = Arc::new(Counted(MemoryDevice::new(256 << 20), AtomicU64::new(0)));
    let shared: Arc<dyn Device> = device.clone();
    Volume::create(shared.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    // Nothing works in the background.
    let options = MountOptions {
        commit_interval: std::time::Duration::from_secs(24 * 3600),
        access_times: false,
        ..MountOptions::default()
    };
    let volume = Volume::open(shared.clone(), &options).unwrap();
    volume.create_dir("d").unwrap();
    for i in 0..1000 {
        volume.write(format!("d/{i}"), "").unwrap();
    }
    let mut events = Vec::new();
    for i in 0..300 {
        volume.write("file", [i as u8; 4096]).unwrap();
        events.push(event(&volume));
    }
    volume.write("file", [0xff; 4096]).unwrap();
    for i in 0..1000 {
        volume.remove_file(format!("d/{i}")).unwrap();
    }
    volume.close().unwrap();
    let reads = |path: &[&str], event: Option<EventNo>, byte: Option<u8>| {
        let volume = Volume::open(shared.clone(), &options).unwrap();
        let view = volume.view();
        let before = device.1.load(Ordering::Relaxed);
        let view = event.map_or_else(|| view.clone(), |event| view.as_of(event));
        let mut node = view.lookup(view.root(), path[0].as_bytes()).unwrap();
        for name in &path[1..] {
            node = view.lookup(node.inode(), name.as_bytes()).unwrap();
        }
        let mut buffer = [0; 4096];
        let count = node.read(0, &mut buffer).unwrap();
        let reads = device.1.load(Ordering::Relaxed) - before;
        assert!(byte.is_none_or(|byte| buffer[..count] == [byte; 4096]), "as of {event:?}");
        volume.close().unwrap();
        reads
    };
    let live = reads(&["file"], None, Some(0xff));
    for back in [1, 10, 100, 299] {
        let at = events.len() - back;
        let then = reads(&["file"], Some(events[at]), Some(at as u8));
        assert!(then <= live + 3, "{back} back: {then} requests, {live} for the present");
    }
    // The root and the directory, two levels of both indexes and of the rows of two shards, and nothing of
    // the other shards.
    let gone = reads(&["d", "500"], Some(events[200]), None);
    assert!(gone <= 12, "{gone} requests for a name that is gone");
}
