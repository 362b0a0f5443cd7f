//! Promise: the first change of a file that is dirty and that an event has seen does not wait for the device.
//! What the event has seen is late data then (`yore-meta/src/base/late.rs`), and nobody can tell: present and
//! past read as ever, a sync and an fsync leave all of it on the medium, and an error stops the volume.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice, Operation};
use yore_fs::{EventNo, FallocateMode, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Volume};

/// Counts what one thread asks of a device, and refuses writes if it is told to.
#[derive(Debug, Default)]
struct Watch {
    of: Mutex<Option<ThreadId>>,
    asked: AtomicU64,
    refuses: AtomicBool,
}

impl Hook for Watch {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if !matches!(request, Request::Read { .. }) {
            let is_it = *self.of.lock().unwrap() == Some(std::thread::current().id());
            self.asked.fetch_add(u64::from(is_it), Ordering::SeqCst);
            if self.refuses.load(Ordering::SeqCst) {
                return Err(DeviceError::ReadOnly { operation: Operation::Write, device: "memory".into() });
            }
        }
        request.pass(below)
    }
}

impl Watch {
    /// The writes and flushes that this thread has asked for while it did `what`.
    fn asked_by(&self, what: impl FnOnce()) -> u64 {
        *self.of.lock().unwrap() = Some(std::thread::current().id());
        let before = self.asked.load(Ordering::SeqCst);
        what();
        *self.of.lock().unwrap() = None;
        self.asked.load(Ordering::SeqCst) - before
    }
}

type Watched = Arc<Wrapped<MemoryDevice, Watch>>;

fn options(data_cache: u64) -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), data_cache, ..MountOptions::default() }
}

fn volume(data_cache: u64) -> (Watched, Volume) {
    let device: Watched = Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), Watch::default()));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options(data_cache)).unwrap();
    (device, volume)
}

fn event(volume: &Volume) -> EventNo {
    let view = volume.view();
    view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number
}

fn as_of(volume: &Volume, event: EventNo) -> Volume {
    Volume::from_view(volume.view().as_of(event))
}

fn overwrite(volume: &Volume, path: &str, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(volume, path).unwrap();
    file.write_at(bytes, at).unwrap();
}

fn must_be_sound(device: &Watched) {
    let report = check(&**device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

const LEN: usize = 3 * 4096 + 100;

/// Each kind of first change: the calling thread neither writes nor flushes. Afterwards the past is what it
/// was, at once and when the volume was closed and opened again.
#[test]
fn no_call_waits() {
    type Change = fn(&Volume, &str);
    let changes: [(&str, Change); 9] = [
        ("over all", |volume, path| overwrite(volume, path, 0, &[2; LEN])),
        ("over a part", |volume, path| overwrite(volume, path, 5000, &[2; 10])),
        ("behind", |volume, path| overwrite(volume, path, LEN as u64, &[2; 9000])),
        ("shorter", |volume, path| volume.truncate(path, 4100).unwrap()),
        ("longer", |volume, path| volume.truncate(path, 40_000).unwrap()),
        ("removed", |volume, path| volume.remove_file(path).unwrap()),
        ("renamed", |volume, path| volume.rename(path, format!("{path} away")).unwrap()),
        ("mode", |volume, path| volume.set_permissions(path, 0o600).unwrap()),
        ("punched", |volume, path| {
            let node = volume.node(path).unwrap();
            volume.view().fallocate(node.inode(), 4096, 4096, FallocateMode::PunchHole).unwrap();
        }),
    ];
    let (device, mut volume) = volume(64 << 20);
    let first = event(&volume);
    let mut seen = Vec::new();
    for (number, (name, change)) in changes.iter().enumerate() {
        let content = vec![100 + number as u8; LEN];
        volume.write(name, &content).unwrap();
        // The second of them finds blocks that are its own: what is dirty goes over these.
        for pass in 0..2 {
            let bytes = [50 + pass; 3000];
            overwrite(&volume, name, 1000, &bytes);
            let before = volume.read(name).unwrap();
            let event = event(&volume);
            if pass == 0 {
                let asked = device.hook.asked_by(|| overwrite(&volume, name, 6000, &[7; 200]));
                assert_eq!(asked, 0, "{name}: writes or flushes in the call");
                // A generation in between, so that the blocks are on the medium.
                volume.sync().unwrap();
                overwrite(&volume, name, 7000, &[8; 200]);
                volume.sync().unwrap();
            } else {
                let asked = device.hook.asked_by(|| change(&volume, name));
                assert_eq!(asked, 0, "{name}: writes or flushes in the call");
            }
            seen.push((name, event, before));
        }
        for (name, event, before) in &seen {
            assert!(as_of(&volume, *event).read(name).unwrap() == *before, "{name} as of {event}");
        }
    }
    assert!(as_of(&volume, first).read_dir("/").unwrap().next().is_none());
    for _ in 0..2 {
        volume.close().unwrap();
        must_be_sound(&device);
        volume = Volume::open(device.clone(), &options(64 << 20)).unwrap();
        for (name, event, before) in &seen {
            assert!(as_of(&volume, *event).read(name).unwrap() == *before, "{name} as of {event}, again");
        }
    }
}

/// With a cache so small that its pages are evicted and the table fills at once, files change again and
/// again, each time behind a snapshot. Snapshots are forgotten on the way, so files get blocks back, and
/// blocks that are late are freed. Present and past stay what they are.
#[test]
fn a_small_table_tells_nobody() {
    let (device, volume) = volume(1 << 20);
    let name = |file: usize| format!("file {file}");
    let content = |file: usize, round: u8| vec![round.wrapping_mul(16) + file as u8 + 1; 6 * 4096 + 77];
    let mut kept: Vec<(EventNo, u8)> = Vec::new();
    for round in 0..14u8 {
        for file in 0..12 {
            overwrite_or_make(&volume, &name(file), &content(file, round));
            if round % 3 == 2 && file % 4 == 1 {
                let file = OpenOptions::new().write(true).open(&volume, name(file)).unwrap();
                file.sync_data().unwrap();
            }
        }
        kept.push((event(&volume), round));
        if kept.len() > 3 {
            let (gone, _) = kept.remove(usize::from(round) % 3);
            volume.view().forget(&[gone]).unwrap();
            volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        }
        if round % 2 == 0 {
            volume.view().write_late().unwrap();
        }
        for (event, round) in &kept {
            for file in 0..12 {
                let found = as_of(&volume, *event).read(name(file)).unwrap();
                assert!(found == content(file, *round), "file {file} of round {round} as of {event}");
            }
        }
    }
    volume.close().unwrap();
    must_be_sound(&device);
}

fn overwrite_or_make(volume: &Volume, path: &str, bytes: &[u8]) {
    match volume.exists(path).unwrap() {
        true => overwrite(volume, path, 0, bytes),
        false => volume.write(path, bytes).unwrap(),
    }
}

/// What is late is on the medium when a sync, or an fsync of another file, has returned: after the power
/// fails, the version is whole.
#[test]
fn a_sync_and_an_fsync_bring_it_home() {
    type Wait = fn(&Volume);
    let waits: [Wait; 2] = [
        |volume| volume.sync().unwrap(),
        |volume| {
            let file = OpenOptions::new().write(true).create(true).open(volume, "other").unwrap();
            file.write_at(b"something", 0).unwrap();
            file.sync_all().unwrap();
        },
    ];
    for wait in waits {
        let (device, volume) = volume(64 << 20);
        event(&volume);
        volume.sync().unwrap();
        volume.write("file", [1; LEN]).unwrap();
        let seen = event(&volume);
        overwrite(&volume, "file", 0, &[2; LEN]);
        wait(&volume);
        let left: Arc<dyn Device> = Arc::new(device.below.snapshot());
        let after = Volume::open(left, &MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
        assert!(as_of(&after, seen).read("file").unwrap() == [1; LEN]);
    }
}

/// The device refuses late data, which the call that changed the file could not know. From then on nothing
/// is written, each sync and fsync fails, and both present and past can be read as they are in memory.
#[test]
fn an_error_stops_the_volume() {
    let (device, volume) = volume(64 << 20);
    event(&volume);
    volume.write("file", [1; LEN]).unwrap();
    let seen = event(&volume);
    device.hook.refuses.store(true, Ordering::SeqCst);
    overwrite(&volume, "file", 0, &[2; LEN]);
    assert!(volume.view().write_late().is_err());
    device.hook.refuses.store(false, Ordering::SeqCst);
    assert!(volume.view().stopped().is_some());
    assert!(volume.sync().is_err());
    let file = OpenOptions::new().read(true).write(true).open(&volume, "file").unwrap();
    assert!(file.sync_all().is_err());
    assert!(volume.write("another", [1; 10]).is_err());
    assert!(as_of(&volume, seen).read("file").unwrap() == [1; LEN]);
    assert!(volume.read("file").unwrap() == [2; LEN]);
    assert!(volume.close().is_err());
}
