//! Everything a program can do with a volume, on one that may be damaged anywhere.
//!
//! The results do not matter, as long as they come: a call returns a result or an error of a class that fits,
//! in bounded time and memory. A sound device gives no device errors, so one here means that a number from
//! the medium went to the device unchecked.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    Caller, Error, FallocateMode, FileKind, InodeNo, MountOptions, NewSnapshot, RenameMode, Result, SeekTo,
    SetAttr, SetXattrMode, Timestamp, View, Volume, WriteMode,
};

/// Most names examined on one volume: a loop of directories has no end, and neither has a walk that follows
/// it.
const NAMES_MAX: usize = 3000;
/// Most stretches of data examined in one file.
const STRETCHES_MAX: usize = 48;
/// Most snapshots examined on one volume.
const SNAPSHOTS_MAX: usize = 8;
const WRITE: WriteMode = WriteMode { append: false, kill_set_id: false };

/// The outcome of an exercise.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The volume could be opened: read-only, and for writing.
    pub opened: [bool; 2],
    /// Names found.
    pub names: usize,
    /// Calls that failed.
    pub errors: usize,
    /// Findings of the checker, before and after writing; `None`: it could not begin.
    pub findings: [Option<u64>; 2],
}

/// Opens, walks, reads, writes, empties, closes and checks the volume on a copy of the device.
///
/// # Panics
/// If a call gives an impossible error: one of the device, which is sound.
pub fn all(image: &MemoryDevice) -> Seen {
    let mut seen = Seen::default();
    seen.findings[0] = findings(image);
    let options = MountOptions { read_only: true, ..options() };
    match Volume::open(Arc::new(image.snapshot()), &options) {
        Ok(volume) => {
            seen.opened[0] = true;
            let found = read_tree(volume.view(), &mut seen);
            drop(found);
            lookup_at(volume.view(), &mut seen);
            note(volume.close(), &mut seen);
        }
        Err(error) => drop(note::<()>(Err(error), &mut seen)),
    }
    let device = Arc::new(image.snapshot());
    match Volume::open(device.clone(), &self::options()) {
        Ok(volume) => {
            seen.opened[1] = true;
            work(&volume, &mut seen);
            note(
                volume.view().take_snapshot(
                    volume.view().root(),
                    &NewSnapshot { wait: true, ..NewSnapshot::default() },
                ),
                &mut seen,
            );
            note(volume.sync(), &mut seen);
            empty(volume.view(), &mut seen);
            lookup_at(volume.view(), &mut seen);
            forget(volume.view(), &mut seen);
            note(volume.sync(), &mut seen);
            note(volume.close(), &mut seen);
        }
        Err(error) => drop(note::<()>(Err(error), &mut seen)),
    }
    seen.findings[1] = findings(&device);
    seen
}

/// The smallest caches, and no generations except explicit ones.
pub fn options() -> MountOptions {
    MountOptions { metadata_cache: 0, data_cache: 0, ..crate::sample::mount_options() }
}

fn findings(device: &MemoryDevice) -> Option<u64> {
    check(device, &CheckOptions { findings_max: 50, ..CheckOptions::default() })
        .ok()
        .map(|report| report.findings_count)
}

/// Counts an error, and asserts that damage can cause it.
fn note<T>(result: Result<T>, seen: &mut Seen) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    seen.errors += 1;
    let mut cause = error.root();
    while let Error::Stopped { first } = cause {
        cause = first.root();
    }
    assert!(!matches!(cause, Error::Device(_)), "an error of a device that is sound: {error}");
    None
}

/// A name that was found.
struct Name {
    directory: InodeNo,
    name: Vec<u8>,
    inode: InodeNo,
    kind: FileKind,
}

/// Walks the tree and reads everything; returns the names, directories before their content.
fn read_tree(view: &View, seen: &mut Seen) -> Vec<Name> {
    let mut names = Vec::new();
    let mut directories = vec![view.root()];
    let mut known: HashSet<InodeNo> = directories.iter().copied().collect();
    while let Some(directory) = directories.pop() {
        read_inode(view, directory, seen);
        let mut listed = Vec::new();
        let result = view.readdir(directory, 0, &mut |item| {
            listed.push((item.name.to_vec(), item.kind));
            listed.len() < NAMES_MAX
        });
        note(result, seen);
        note(view.readdir_plus(directory, 0, &mut |item, _| item.cookie < u64::MAX / 4), seen);
        note(view.parent(directory), seen);
        for (name, kind) in listed {
            if name == b"." || name == b".." || names.len() >= NAMES_MAX {
                continue;
            }
            seen.names += 1;
            let Some(node) = note(view.lookup(directory, &name), seen) else {
                names.push(Name { directory, name, inode: InodeNo(0), kind });
                continue;
            };
            let (inode, kind) = (node.inode(), node.attr().kind);
            if known.insert(inode) {
                match kind {
                    FileKind::Directory => directories.push(inode),
                    _ => read_inode(view, inode, seen),
                }
            }
            names.push(Name { directory, name, inode, kind });
        }
    }
    names
}

/// Walks the past as of each snapshot; if there are many, of the first ones.
fn lookup_at(view: &View, seen: &mut Seen) {
    let events = note(view.events(), seen).unwrap_or_default();
    let now = Timestamp { seconds: 4_000_000_000, nanos: 0 };
    note_expected(view.lookup_at(view.root(), b".", &When::At(now)), seen);
    for event in events.iter().take(SNAPSHOTS_MAX) {
        read_tree(&view.as_of(event.number), seen);
    }
}

/// Forgets every second snapshot, then all.
fn forget(view: &View, seen: &mut Seen) {
    for every in [2, 1] {
        let events = note(view.events(), seen).unwrap_or_default();
        for event in events.iter().step_by(every).take(SNAPSHOTS_MAX) {
            note(view.hold(event.number, false), seen);
            note(view.forget(&[event.number]), seen);
        }
        note(view.finish_forgetting(&mut |_| ControlFlow::Continue(())), seen);
    }
}

/// Reads everything of an inode; of large files only some data.
fn read_inode(view: &View, inode: InodeNo, seen: &mut Seen) {
    let Some(attr) = note(view.getattr(inode), seen) else { return };
    for name in note(view.listxattr(inode), seen).unwrap_or_default() {
        note(view.getxattr(inode, &name), seen);
    }
    note_expected(view.getxattr(inode, b"user.none"), seen);
    match attr.kind {
        FileKind::Symlink => drop(note(view.readlink(inode), seen)),
        FileKind::Regular => read(view, inode, attr.size, seen),
        _ => {}
    }
}

/// As [`note`] where an error is an answer.
fn note_expected<T>(result: Result<T>, seen: &mut Seen) {
    let before = seen.errors;
    note(result, seen);
    seen.errors = before;
}

fn read(view: &View, inode: InodeNo, size: u64, seen: &mut Seen) {
    let mut buf = vec![0; 16_384];
    for offset in [0, size / 2, size.saturating_sub(100), size, u64::MAX - 5000] {
        note(view.read(inode, offset, &mut buf), seen);
    }
    let mut at = 0;
    for _ in 0..STRETCHES_MAX {
        let Ok(data) = view.seek(inode, at, SeekTo::Data) else { break };
        note(view.read(inode, data, &mut buf), seen);
        let Some(hole) = note(view.seek(inode, data, SeekTo::Hole), seen) else { break };
        if hole <= at {
            break;
        }
        at = hole;
    }
    note_expected(view.seek(inode, at, SeekTo::Data), seen);
}

/// Changes everything that exists, in all ways, and creates new files.
fn work(volume: &Volume, seen: &mut Seen) {
    let view = volume.view();
    let names = read_tree(view, seen);
    let root = view.root();
    let caller = Caller::superuser();
    for n in 0..3u64 {
        let name = format!("made {n}");
        if let Some(node) =
            note(view.create(&caller, root, name.as_bytes(), FileKind::Regular, 0o644, 0), seen)
        {
            note(view.write(node.inode(), n * 5000, &crate::sample::content(n, 9000), WRITE), seen);
            note(view.setxattr(node.inode(), b"user.new", &[7; 3000], SetXattrMode::Any), seen);
            note(view.fsync(node.inode(), n == 1), seen);
        }
    }
    note(view.mkdir(&caller, root, b"made directory", 0o755), seen);
    note(view.symlink(&caller, root, b"made link", &[b'l'; 2000]), seen);
    // Changes each existing file or directory in one way or another.
    for (n, name) in names.iter().enumerate().filter(|(n, _)| *n < 24 || n % 16 == 0) {
        let inode = name.inode;
        match (name.kind, n % 6) {
            (FileKind::Regular, 0) => {
                note(view.write(inode, 100, &[1; 5000], WRITE), seen);
            }
            (FileKind::Regular, 1) => {
                let set = SetAttr { size: Some(50), ..SetAttr::default() };
                note(view.setattr(&caller, inode, &set), seen);
            }
            (FileKind::Regular, 2) => {
                note(view.write(inode, 0, &[2; 300], WriteMode { append: true, ..WRITE }), seen);
            }
            (FileKind::Regular, 3) => {
                note(view.fallocate(inode, 4096, 12_288, FallocateMode::PunchHole), seen);
                note(view.fallocate(inode, 0, 8192, FallocateMode::ZeroRange { keep_size: true }), seen);
            }
            (FileKind::Directory, 0..=2) => {
                note(view.create(&caller, inode, b"inside", FileKind::Regular, 0o600, 0), seen);
            }
            (_, 4) => {
                note(view.rename(name.directory, &name.name, root, b"moved", RenameMode::Replace), seen);
            }
            _ => {
                let set = SetAttr { permissions: Some(0o700), uid: Some(5), ..SetAttr::default() };
                note(view.setattr(&caller, inode, &set), seen);
                note(view.setxattr(inode, b"user.small", b"changed", SetXattrMode::Any), seen);
                note(view.link(inode, root, format!("link {n}").as_bytes()), seen);
            }
        }
        if n % 8 == 7 {
            note(view.fsync(inode, false), seen);
        }
    }
}

/// Removes whatever can be removed.
fn empty(view: &View, seen: &mut Seen) {
    for _ in 0..2 {
        for name in read_tree(view, seen).into_iter().rev() {
            match view.unlink(name.directory, &name.name) {
                Err(Error::IsADirectory | Error::NotPermitted { .. }) => {
                    note(view.rmdir(name.directory, &name.name), seen);
                }
                other => drop(note(other, seen)),
            }
        }
    }
}

/// Whether `device` holds a volume that opens and that the checker finds sound; for tests of the samples.
pub fn is_sound(device: &dyn Device) -> bool {
    check(device, &CheckOptions::default()).is_ok_and(|report| report.is_clean())
}
