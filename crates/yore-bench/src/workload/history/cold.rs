//! The past on a cold disk: how many requests a look at a small file takes, however far back; and how long a
//! tree of many files takes as it was before all of them changed.
//!
//! The disk is a simulated one ([`crate::simulated`]), so a figure is the same on every machine. Each look
//! begins on a volume that was just opened, with empty caches, and requests of opening do not count.

use super::back::{write_versions, BYTES, DISTANCES, NAME};
use super::run::{Goal, Line, Run};
use super::volume::PER_DIRECTORY;
use crate::report::Unit;
use crate::rival::library::mkfs;
use crate::simulated::{HardDisk, TimedDevice, Usage};
use crate::target::LibraryTarget;
use crate::workload::steps::{check_size, noise};
use crate::{BenchError, Result, Target as _};
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Engine, EventNo, MountOptions, NewSnapshot, Node, View};

/// Bytes of the volume with the small file.
const SMALL_VOLUME: u64 = 1 << 30;
/// Names beside it in its directory.
const NEIGHBOURS: usize = 1000;
/// The most requests that the past may take beside those of the present.
const REQUESTS_MORE: f64 = 3.0;
/// Bytes of each file of the tree.
const TREE_BYTES: usize = 100;

/// A volume on a simulated disk, in memory.
struct Disk {
    device: Arc<TimedDevice>,
}

impl Disk {
    fn make(bytes: u64) -> Result<Disk> {
        let device = Arc::new(TimedDevice::new(MemoryDevice::new(bytes), Box::new(HardDisk::new())));
        let disk = Disk { device };
        mkfs(&disk.shared(), Engine::Snapshot, Some(7))?;
        Ok(disk)
    }

    fn shared(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Opens the volume, has something done, and closes it. Returns the outcome, and what the disk did.
    fn during<T>(&self, work: impl FnOnce(&LibraryTarget) -> Result<T>) -> Result<(T, Usage)> {
        let options = MountOptions {
            // Another thread would decide what is repeatable otherwise.
            commit_interval: Duration::from_secs(24 * 3600),
            access_times: false,
            ..MountOptions::default()
        };
        let view = View::open(self.shared(), &options).map_err(BenchError::library("opening the volume"))?;
        let target = LibraryTarget::new(view.clone());
        let before = self.device.usage();
        let done = work(&target)?;
        let usage = self.device.usage().since(&before);
        drop(target);
        view.close().map_err(BenchError::library("closing the volume"))?;
        Ok((done, usage))
    }
}

fn snapshot(target: &LibraryTarget) -> Result<EventNo> {
    let view = target.view();
    let event = view.take_snapshot(view.root(), &NewSnapshot::default());
    event.map(|event| event.number).map_err(BenchError::library("taking a snapshot"))
}

/// Requests of a look at the small file.
pub(super) fn requests(run: &Run<'_>) -> Result<Vec<Line>> {
    let disk = Disk::make(SMALL_VOLUME)?;
    let (events, _) = disk.during(|target| {
        let root = target.root()?;
        for i in 0..NEIGHBOURS {
            target.create(&root, &format!("neighbour{i}"))?;
        }
        let snapshot = &mut || snapshot(target);
        write_versions(target, run.history.snapshots.max(1), snapshot)
    })?;
    let query = |event: Option<EventNo>| -> Result<f64> {
        let ((), usage) = disk.during(|target| {
            let view = event.map_or_else(|| target.view().clone(), |event| target.view().as_of(event));
            read_small(&view)
        })?;
        Ok(usage.reads as f64)
    };
    let live = query(None)?;
    let mut lines = Vec::new();
    for back in DISTANCES.into_iter().filter(|back| *back <= events.len()) {
        let versions = if back == 1 { "version" } else { "versions" };
        let measure =
            format!("requests of opening and reading 4 KiB, cold disk, {back} {versions} back / live");
        let mut line = Line::new(measure, Unit::Count, Goal::Most(live + REQUESTS_MORE));
        for round in run.rounds() {
            round?;
            line.push([query(Some(events[events.len() - back]))?, query(None)?]);
        }
        lines.push(line);
    }
    Ok(lines)
}

fn read_small(view: &View) -> Result<()> {
    let node =
        view.lookup(view.root(), NAME.as_bytes()).map_err(BenchError::library("looking up a version"))?;
    let mut buffer = [0; BYTES];
    let count = node.read(0, &mut buffer).map_err(BenchError::library("reading a version"))?;
    check_size(count as u64, BYTES as u64)
}

/// Seconds of the disk for listing all directories of a tree and reading all its files.
pub(super) fn tree(run: &Run<'_>) -> Result<Line> {
    let files = run.history.files.max(1);
    let disk = Disk::make(run.options.volume_bytes)?;
    let (event, _) = disk.during(|target| {
        let names: Vec<String> = (0..files.div_ceil(PER_DIRECTORY)).map(|d| format!("d{d}")).collect();
        let dirs = target.new_dirs(&target.root()?, &names)?;
        fill(run, target, &dirs, files, 1)?;
        target.sync()?;
        let event = snapshot(target)?;
        fill(run, target, &dirs, files, 2)?;
        Ok(event)
    })?;
    let measure =
        format!("listing and reading {files} files, all changed since, cold disk, as of before / live");
    let mut line = Line::new(measure, Unit::Seconds, Goal::Ratio(0.5));
    for round in run.rounds() {
        round?;
        let walk = |event: Option<EventNo>| -> Result<f64> {
            let (count, usage) = disk.during(|target| {
                let view = event.map_or_else(|| target.view().clone(), |event| target.view().as_of(event));
                read_tree(&view)
            })?;
            check_size(count, files as u64)?;
            Ok(usage.busy as f64 / 1e9)
        };
        line.push([walk(Some(event))?, walk(None)?]);
    }
    Ok(line)
}

/// Creates all files, or overwrites them, in the order of their directories' turns, as many programs would
/// together: neighbours in a directory do not change one after the other.
fn fill(run: &Run<'_>, target: &LibraryTarget, dirs: &[Node], files: usize, pass: u64) -> Result<()> {
    let data = noise(TREE_BYTES, pass);
    for i in 0..files {
        if i % PER_DIRECTORY == 0 {
            run.options.check_stop()?;
        }
        let (dir, name) = match pass {
            // All of a directory together, as when a tree is unpacked.
            1 => (i / PER_DIRECTORY, i % PER_DIRECTORY),
            _ => (i % dirs.len(), i / dirs.len()),
        };
        let name = name.to_string();
        let dir = &dirs[dir];
        let file = match pass {
            1 => target.create(dir, &name)?,
            _ => target.open(dir, &name)?,
        };
        target.write_at(&file, 0, &data)?;
    }
    Ok(())
}

/// As `tar` does: a directory is listed, then each file is opened and read. Returns the number of files.
fn read_tree(view: &View) -> Result<u64> {
    let mut buffer = [0; TREE_BYTES];
    let mut count = 0;
    for dir in names(view, view.root())? {
        let dir = view.lookup(view.root(), &dir).map_err(BenchError::library("looking up a directory"))?;
        for name in names(view, dir.inode())? {
            let file = view.lookup(dir.inode(), &name).map_err(BenchError::library("looking up a file"))?;
            let read = file.read(0, &mut buffer).map_err(BenchError::library("reading a file"))?;
            check_size(read as u64, TREE_BYTES as u64)?;
            count += 1;
        }
    }
    Ok(count)
}

fn names(view: &View, directory: yore_fs::InodeNo) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let listed = view.readdir(directory, 0, &mut |item| {
        if !matches!(item.name, b"." | b"..") {
            names.push(item.name.to_vec());
        }
        true
    });
    listed.map_err(BenchError::library("listing a directory"))?;
    Ok(names)
}
