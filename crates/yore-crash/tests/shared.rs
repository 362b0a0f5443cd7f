//! Promise: a copy within a volume shares blocks, and nobody can tell: whatever is written, truncated,
//! removed, snapshot, forgotten or copied afterwards, each file and each state of the past has what a full
//! copy of it has, and each block is counted as often as it is named.
//!
//! Half of the random sequences begin with a past in old trees.
//!
//! `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs that many.

use crate::common::old_trees;
use crate::common::seeds;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions, Report};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Error, EventNo, FallocateMode, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, View, Volume,
    WriteMode,
};

const BLOCK: u64 = 4096;

type Tree = BTreeMap<String, Vec<u8>>;

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn sound(device: &dyn Device) -> Report {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    report
}

fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    (device, volume)
}

fn snapshot(volume: &Volume) -> EventNo {
    let view = volume.view();
    view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

fn forget(volume: &Volume, events: &[EventNo]) {
    volume.view().forget(events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

/// A file and its copy have the same blocks, and each keeps its own content when the other changes. What is
/// left when one goes is written in place again, and nothing is left in the end.
#[test]
fn a_copy_takes_no_data_blocks() {
    let (device, volume) = volume(512 << 20);
    let content = bytes(40 << 20, 1);
    volume.write("a", &content).unwrap();
    volume.sync().unwrap();
    let before = volume.statfs();
    assert_eq!(volume.copy("a", "b").unwrap(), content.len() as u64);
    let after = volume.statfs();
    assert_eq!(before.blocks_free, after.blocks_free, "no data block");
    volume.sync().unwrap();
    assert_eq!(sound(&*device).counts.shared_blocks, 40 << 8);
    assert_eq!(volume.read("b").unwrap(), content);
    let mut file = OpenOptions::new().write(true).open(&volume, "b").unwrap();
    std::io::Write::write_all(&mut file, &[7; 5000]).unwrap();
    drop(file);
    volume.sync().unwrap();
    assert_eq!(volume.read("a").unwrap(), content);
    let mut changed = content.clone();
    changed[..5000].fill(7);
    assert_eq!(volume.read("b").unwrap(), changed);
    assert_eq!(sound(&*device).counts.shared_blocks, (40 << 8) - 2);
    volume.remove_file("a").unwrap();
    volume.sync().unwrap();
    assert_eq!(sound(&*device).counts.shared_blocks, 0);
    assert_eq!(volume.read("b").unwrap(), changed);
    volume.remove_file("b").unwrap();
    volume.close().unwrap();
    let report = sound(&*device);
    assert_eq!((report.counts.data_blocks, report.counts.shared_blocks), (0, 0));
}

/// What was removed comes back from the past without copying, on a full volume, too.
#[test]
fn the_past_is_shared() {
    let (device, volume) = volume(256 << 20);
    let content = bytes(100 << 20, 2);
    volume.write("f", &content).unwrap();
    let event = snapshot(&volume);
    volume.remove_file("f").unwrap();
    volume.sync().unwrap();
    let history = volume.statfs().history_data_blocks;
    assert_eq!(history, 100 << 8);
    volume.write("filler", vec![1; 130 << 20]).unwrap();
    let then = volume.view().as_of(event);
    let was = then.lookup(then.root(), b"f").unwrap().inode();
    OpenOptions::new().write(true).create(true).open(&volume, "back").unwrap();
    let back = volume.node("back").unwrap().inode();
    let view = volume.view();
    let copied = view.copy_from(&then, (was, 0), (back, 0), (u64::MAX, 0)).unwrap();
    assert_eq!(copied, content.len() as u64, "nothing was read and written");
    volume.sync().unwrap();
    assert_eq!(volume.statfs().history_data_blocks, 0, "it is in use again");
    assert!(volume.read("back").unwrap() == content);
    assert_eq!(sound(&*device).counts.shared_blocks, 100 << 8);
    volume.remove_file("back").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.statfs().history_data_blocks, history);
    sound(&*device);
    forget(&volume, &[event]);
    volume.close().unwrap();
    let report = sound(&*device);
    assert_eq!((report.counts.data_blocks, report.counts.shared_blocks), (130 << 8, 0));
}

struct Run {
    rng: Xoshiro256PlusPlus,
    device: Arc<dyn Device>,
    volume: Volume,
    now: Tree,
    then: Vec<(EventNo, Tree)>,
    log: Vec<String>,
}

impl Run {
    fn pick(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    fn name(&mut self) -> String {
        format!("f{}", self.pick(6))
    }

    /// An offset and a length: small or large, whole blocks or not.
    fn range(&mut self) -> (u64, u64) {
        let (offset, len) = match self.pick(3) {
            0 => (self.pick(40), 1 + self.pick(60)),
            1 => (self.pick(300), 1 + self.pick(600)),
            _ => (0, 1 + self.pick(1500)),
        };
        match self.pick(3) {
            0 => (offset * BLOCK + self.pick(BLOCK), len * BLOCK + self.pick(BLOCK)),
            _ => (offset * BLOCK, len * BLOCK),
        }
    }

    fn inode(&self, name: &str) -> yore_fs::InodeNo {
        drop(OpenOptions::new().write(true).create(true).open(&self.volume, name).unwrap());
        self.volume.node(name).unwrap().inode()
    }

    fn write(&mut self, name: &str, at: u64, data: &[u8]) {
        let inode = self.inode(name);
        let mode = WriteMode { append: false, kill_set_id: false };
        self.volume.view().write(inode, at, data, mode).unwrap();
        put(self.now.entry(name.into()).or_default(), at, data);
    }

    fn copy(&mut self) {
        let (to, (from_at, len)) = (self.name(), self.range());
        let to_at = match self.pick(3) {
            0 => from_at,
            1 => from_at % BLOCK + self.pick(400) * BLOCK,
            _ => self.pick(400 * BLOCK),
        };
        let past = (!self.then.is_empty() && self.pick(2) == 0).then(|| self.pick(self.then.len() as u64));
        let (source, tree) = match past {
            Some(i) => {
                let (event, tree) = &self.then[i as usize];
                (self.volume.view().as_of(*event), tree.clone())
            }
            None => (self.volume.view().clone(), self.now.clone()),
        };
        let Some((name, content)) = tree.iter().nth(self.pick(6) as usize) else { return };
        let from = source.lookup(source.root(), name.as_bytes()).unwrap().inode();
        let into = self.inode(&to);
        self.now.entry(to.clone()).or_default();
        let copied = self.volume.view().copy_from(&source, (from, from_at), (into, to_at), (len, u64::MAX));
        self.log.push(format!("copy {past:?} {name} {from_at}+{len} to {to} {to_at}: {copied:?}"));
        let is_one = past.is_none() && *name == to && from_at.abs_diff(to_at) < len;
        match copied {
            Err(Error::Invalid { .. }) if is_one => {}
            Err(e) => panic!("{e}"),
            Ok(n) => {
                let end = (from_at + len).min(content.len() as u64);
                assert_eq!(n, end.saturating_sub(from_at));
                if n > 0 {
                    put(self.now.get_mut(&to).unwrap(), to_at, &content[from_at as usize..end as usize]);
                }
            }
        }
    }

    fn step(&mut self) {
        let name = self.name();
        match self.pick(16) {
            0..=2 => {
                let ((at, len), seed) = (self.range(), self.pick(u64::MAX));
                self.log.push(format!("write {name} {at}+{len}"));
                self.write(&name, at, &bytes(len as usize, seed));
            }
            3..=8 => self.copy(),
            9 => {
                let size = self.pick(2000) * BLOCK + self.pick(2) * self.pick(BLOCK);
                if let Some(content) = self.now.get_mut(&name) {
                    content.resize(size as usize, 0);
                    self.log.push(format!("truncate {name} {size}"));
                    self.volume.truncate(&name, size).unwrap();
                }
            }
            10 => {
                if self.now.remove(&name).is_some() {
                    self.log.push(format!("remove {name}"));
                    self.volume.remove_file(&name).unwrap();
                }
            }
            11 => {
                let (at, len) = self.range();
                let mode = [FallocateMode::PunchHole, FallocateMode::ZeroRange { keep_size: true }];
                let mode = mode[self.pick(2) as usize];
                if let Some(content) = self.now.get_mut(&name) {
                    let end = (at + len).min(content.len() as u64);
                    self.log.push(format!("{mode:?} {name} {at}+{len}"));
                    if at < end {
                        content[at as usize..end as usize].fill(0);
                    }
                    let inode = self.inode(&name);
                    self.volume.view().fallocate(inode, at, len, mode).unwrap();
                }
            }
            12 => {
                let event = snapshot(&self.volume);
                self.log.push(format!("snapshot {event}"));
                self.then.push((event, self.now.clone()));
            }
            13 if !self.then.is_empty() => {
                let i = self.pick(self.then.len() as u64) as usize;
                let (event, _) = self.then.swap_remove(i);
                self.log.push(format!("forget {event}"));
                forget(&self.volume, &[event]);
            }
            14 => {
                self.log.push("sync".into());
                self.volume.sync().unwrap();
            }
            _ => {
                let inode = self.inode(&name);
                self.now.entry(name).or_default();
                self.volume.view().fsync(inode, false).unwrap();
            }
        }
    }

    fn compare(&mut self) {
        for (name, content) in &self.now {
            assert!(self.volume.read(name).unwrap() == *content, "{name} now: {:#?}", self.log);
        }
        for (event, tree) in &self.then {
            let then = self.volume.view().as_of(*event);
            for (name, content) in tree {
                let inode = then.lookup(then.root(), name.as_bytes()).unwrap().inode();
                let mut found = vec![0; content.len() + 1];
                let n = then.read(inode, 0, &mut found).unwrap();
                assert!(found[..n] == content[..], "{name} as of {event}: {:#?}", self.log);
            }
        }
        self.volume.sync().unwrap();
        let report = check(&*self.device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}\n{:#?}", self.log);
    }
}

fn put(content: &mut Vec<u8>, at: u64, data: &[u8]) {
    let (at, end) = (at as usize, at as usize + data.len());
    content.resize(content.len().max(end), 0);
    content[at..end].copy_from_slice(data);
}

/// A volume whose past was recorded before there were annals gets them before its first shared block, when
/// the references of its past are still as many as its retained blocks. So they are counted right from then
/// on.
#[test]
fn annals_begin_before_the_first_shared_block() {
    let device: Arc<dyn Device> = Arc::new(old_trees::device());
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let mut events: Vec<EventNo> = volume.view().events().unwrap().iter().map(|e| e.number).collect();
    let (first, last) = (events[0], *events.last().unwrap());
    let blocks = |content: &[u8]| content.len().div_ceil(BLOCK as usize) as u64;
    let content = volume.read("scattered@s0").unwrap();
    assert_eq!(volume.copy("scattered@s0", "back").unwrap(), content.len() as u64);
    volume.sync().unwrap();
    assert_eq!(sound(&*device).counts.shared_blocks, blocks(&content));
    let next = snapshot(&volume);
    // On the image, expunging a file took the number after the last event.
    assert_eq!(next.0, last.0 + 3, "annals begin behind a number of their own");
    volume.write("back", "other").unwrap();
    volume.remove_file("scattered").unwrap();
    volume.sync().unwrap();
    sound(&*device);
    let back = |volume: &Volume| Volume::from_view(volume.view().as_of(next)).read("back").unwrap();
    assert!(back(&volume) == content);
    forget(&volume, &[first]);
    volume.sync().unwrap();
    sound(&*device);
    assert!(back(&volume) == content);
    events.push(next);
    forget(&volume, &events[1..]);
    volume.close().unwrap();
    assert_eq!(sound(&*device).counts.history_data_blocks, 0);
}

/// While format 2.3 was made, some programs let volumes with old trees share blocks and did not begin annals.
/// Opening such a volume for writing counts the references of its past and begins them. The checker compares
/// the count, and what the volume had is as it was.
#[test]
fn annals_begin_where_blocks_are_shared_already() {
    let image = include_bytes!("../../yore-fs/tests/golden/volume-2.3-shared.blocks");
    let device: Arc<dyn Device> = Arc::new(old_trees::unpack(image));
    let read_only = MountOptions { read_only: true, ..options() };
    let was = Volume::open(device.clone(), &read_only).unwrap();
    let (event, names) = (was.view().events().unwrap()[0].number, ["copy", "gone", "original"]);
    let read = |volume: &Volume| {
        let then = Volume::from_view(volume.view().as_of(event));
        let then = names.map(|name| then.read(name).unwrap());
        (then, ["copy", "changed", "part", "back"].map(|name| volume.read(name).unwrap()))
    };
    let before = read(&was);
    drop(was);
    for _ in 0..2 {
        let volume = Volume::open(device.clone(), &options()).unwrap();
        assert!(read(&volume) == before);
        volume.close().unwrap();
        // All blocks of the past are in use besides, so there are references and no retained blocks.
        let counts = sound(&*device).counts;
        assert!(counts.shared_blocks > 0 && counts.history_data_blocks == 0);
    }
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let next = snapshot(&volume);
    assert_eq!(next.0, event.0 + 2, "annals began behind a number of their own, and once");
    for name in ["copy", "part", "back"] {
        volume.write(name, "changed").unwrap();
    }
    volume.sync().unwrap();
    sound(&*device);
    forget(&volume, &[event]);
    volume.sync().unwrap();
    sound(&*device);
    forget(&volume, &[next]);
    volume.close().unwrap();
    assert_eq!(sound(&*device).counts.history_data_blocks, 0);
}

/// The files of the root directory that the sequences change.
fn files_of(view: &View) -> Tree {
    let mut files = Tree::new();
    let volume = Volume::from_view(view.clone());
    for name in (0..6).map(|i| format!("f{i}")) {
        if volume.exists(&name).unwrap() {
            files.insert(name.clone(), volume.read(&name).unwrap());
        }
    }
    files
}

/// Random sequences against full copies, with the checker as the judge of counts.
#[test]
fn random_sequences() {
    for seed in seeds(12) {
        let (device, volume) = match seed % 2 {
            0 => volume(512 << 20),
            _ => {
                let device: Arc<dyn Device> = Arc::new(old_trees::device_of(512 << 20));
                let volume = Volume::open(device.clone(), &options()).unwrap();
                volume.view().lengthen(512 << 20).unwrap();
                (device, volume)
            }
        };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let view = volume.view().clone();
        let events = view.events().unwrap().into_iter().filter(|event| event.row.root == view.root());
        let then = events.map(|event| (event.number, files_of(&view.as_of(event.number)))).collect();
        let mut run = Run { rng, device, volume, now: files_of(&view), then, log: Vec::new() };
        for n in 0..120 {
            run.step();
            if n % 20 == 19 {
                run.compare();
            }
            if n % 50 == 49 {
                run.volume.close().unwrap();
                run.volume = Volume::open(run.device.clone(), &options()).unwrap();
            }
        }
        run.compare();
        let names: Vec<_> =
            run.volume.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        for name in names {
            match run.volume.symlink_metadata(&name).unwrap().is_dir() {
                true => run.volume.remove_dir_all(&name).unwrap(),
                false => run.volume.remove_file(&name).unwrap(),
            }
        }
        let events: Vec<EventNo> = run.volume.view().events().unwrap().iter().map(|e| e.number).collect();
        forget(&run.volume, &events);
        run.volume.close().unwrap();
        let report = sound(&*run.device);
        let left = (report.counts.data_blocks, report.counts.shared_blocks);
        assert_eq!(left, (0, 0), "{:#?}", run.log);
    }
}
