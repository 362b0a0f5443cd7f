//! Promise: a volume grows while it is used, and nothing is lost wherever the power fails. It has the old
//! length or the new one, and the new one once that was promised. Its content is whole, and the checker finds
//! nothing. It can shrink if nothing lies beyond the new end; otherwise it stays as it was.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::simulated::{CrashPlan, SimulatedDevice};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_fs::{Error, File, MkfsOptions, MountOptions, Progress, Scrub, Volume};

const MIB: u64 = 1 << 20;
const DONE: u64 = 1;

/// The beginning of a device, which can grow up to the whole device.
type Part = Wrapped<Arc<dyn Device>, Size>;

#[derive(Debug)]
struct Size(AtomicU64);

impl Hook for Size {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let Request::Read { offset, .. } | Request::Write { offset, .. } = request {
            assert!(offset + request.len() <= self.size(below));
        }
        request.pass(below)
    }
    fn size(&self, _: &dyn Device) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn grow(&self, size: u64, below: &dyn Device) -> Result<u64, DeviceError> {
        self.0.fetch_max(size.min(below.size()), Ordering::AcqRel);
        Ok(self.size(below))
    }
}

fn part(of: Arc<dyn Device>, size: u64) -> Arc<Part> {
    Arc::new(Part::new(of, Size(AtomicU64::new(size))))
}

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn made(of: Arc<dyn Device>, size: u64) -> Arc<Part> {
    let device = part(of, size);
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    device
}

fn content(n: usize) -> Vec<u8> {
    (0..200_000 + n).map(|i| (i * 7 + n) as u8).collect()
}

fn sound(device: &dyn Device) {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

fn whole(volume: &Volume, files: usize) {
    for n in 0..files {
        assert_eq!(volume.read(format!("f{n}")).unwrap(), content(n), "f{n}");
    }
}

/// Fills the volume completely; returns how many bytes there was room for.
fn fill(volume: &Volume) -> u64 {
    let (chunk, mut n) = (vec![1; 1 << 20], 0);
    loop {
        match volume.write(format!("fill{n}"), &chunk) {
            Ok(()) => n += 1,
            Err(e) if matches!(e.root(), Error::NoSpace) => return n * MIB,
            Err(e) => panic!("{e}"),
        }
    }
}

/// A volume grows within the first group, to the group's end, and into others. All of the space can be used,
/// and is still there when the volume is opened again.
#[test]
fn all_of_a_longer_volume_can_be_used() {
    for (from, to) in [(20, 40), (20, 128), (40, 128 + 8), (100, 400), (128 + 8, 128 + 100), (256, 300)] {
        let device = made(Arc::new(MemoryDevice::new(to * MIB)), from * MIB);
        let volume = Volume::open(device.clone(), &options()).unwrap();
        (0..8).for_each(|n| volume.write(format!("f{n}"), content(n)).unwrap());
        let before = fill(&volume);
        assert!(volume.view().lengthen(to * MIB).unwrap(), "{from} to {to}");
        assert!(!volume.view().lengthen(to * MIB).unwrap());
        assert!(!volume.view().lengthen(from * MIB).unwrap());
        assert_eq!(volume.info().size, to * MIB);
        volume.write("f", "found room").unwrap();
        let chunk = vec![2; 1 << 20];
        let mut more = 0;
        while volume.write(format!("more{more}"), &chunk).is_ok() {
            more += 1;
        }
        // Each group begins with its first zone, and some metadata comes along.
        assert!(more * MIB + 16 * MIB > (to - from) * MIB, "{from} to {to}: {before} and {more} MiB");
        whole(&volume, 8);
        volume.close().unwrap();
        sound(&*device);
        let volume = Volume::open(device.clone(), &options()).unwrap();
        assert_eq!(volume.info().size, to * MIB);
        whole(&volume, 8);
        assert_eq!(volume.read("more0").unwrap(), chunk);
        for name in volume.read_dir("/").unwrap().map(|entry| entry.unwrap().path()) {
            volume.remove_file(name).unwrap();
        }
        volume.close().unwrap();
        sound(&*device);
    }
}

/// If the device cannot grow, the volume is open for reading only, or no volume can have that length, nothing
/// changes.
#[test]
fn what_is_refused() {
    let device = made(Arc::new(MemoryDevice::new(64 * MIB)), 32 * MIB);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    for size in [65 * MIB, 200 << 40] {
        assert!(matches!(volume.view().lengthen(size), Err(Error::Refused(_))), "{size}");
    }
    assert!(matches!(volume.view().shorten(MIB, &mut |_, _| ()), Err(Error::Refused(_))));
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions { read_only: true, ..options() }).unwrap();
    assert!(volume.view().lengthen(64 * MIB).is_err());
    assert!(volume.view().shorten(16 * MIB, &mut |_, _| ()).is_err());
    assert_eq!(volume.info().size, 32 * MIB);
    sound(&*device);
}

/// Others write, remove and sync while the volume grows step by step.
#[test]
fn others_go_on_meanwhile() {
    let device = made(Arc::new(MemoryDevice::new(600 * MIB)), 24 * MIB);
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (volume, done) = (&volume, &done);
            scope.spawn(move || {
                let mut n = 0;
                while done.load(Ordering::Acquire) == 0 || n < 20 {
                    let name = format!("t{thread}-{}", n % 30);
                    match volume.write(&name, vec![n as u8; 300_000]) {
                        Ok(()) => {}
                        Err(e) => assert!(matches!(e.root(), Error::NoSpace), "{e}"),
                    }
                    if n % 7 == 0 {
                        File::open(volume, &name).unwrap().sync_all().unwrap();
                    }
                    n += 1;
                }
            });
        }
        for size in [25, 60, 127, 128, 136, 250, 256, 257, 600] {
            volume.view().lengthen(size * MIB).unwrap();
        }
        done.store(1, Ordering::Release);
    });
    assert_eq!(volume.info().size, 600 * MIB);
    volume.close().unwrap();
    sound(&*device);
}

/// A volume that grew too far shrinks again, even if the space beyond was used and is free again. Data that
/// still lies there prevents it, and stays.
#[test]
fn a_shorter_volume() {
    let device = made(Arc::new(MemoryDevice::new(400 * MIB)), 100 * MIB);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    (0..8).for_each(|n| volume.write(format!("f{n}"), content(n)).unwrap());
    volume.view().lengthen(400 * MIB).unwrap();
    // The volume was never used beyond 100 MiB.
    assert!(volume.view().shorten(300 * MIB, &mut |_, _| ()).unwrap());
    assert!(!volume.view().shorten(300 * MIB, &mut |_, _| ()).unwrap());
    volume.close().unwrap();
    sound(&*device);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    assert_eq!(volume.info().size, 300 * MIB);
    let before = volume.statfs();
    fill(&volume);
    let Err(Error::Refused(why)) = volume.view().shorten(200 * MIB, &mut |_, _| ()) else {
        panic!("something is there")
    };
    assert!(why.contains("beyond the new end") && why.contains("bytes long"), "{why}");
    assert_eq!(volume.info().size, 300 * MIB);
    // After a refusal everything goes on.
    volume.remove_file("fill0").unwrap();
    volume.sync().unwrap();
    volume.write("fill0", vec![3; 500_000]).unwrap();
    for entry in volume.read_dir("/").unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name().to_string_lossy().starts_with("fill") {
            volume.remove_file(entry.path()).unwrap();
        }
    }
    volume.sync().unwrap();
    assert!(volume.statfs().blocks_free + 4096 > before.blocks_free);
    assert!(volume.view().shorten(40 * MIB, &mut |_, _| ()).unwrap());
    whole(&volume, 8);
    volume.close().unwrap();
    sound(&*device);
    // The rest of the device is not read any more.
    let short = part(device.below.clone(), 40 * MIB);
    sound(&*short);
    let volume = Volume::open(short.clone(), &options()).unwrap();
    assert_eq!(volume.info().size, 40 * MIB);
    whole(&volume, 8);
    fill(&volume);
    volume.close().unwrap();
    sound(&*short);
    // It grows again, to where older zones lie.
    let volume = Volume::open(device.clone(), &options()).unwrap();
    volume.view().lengthen(400 * MIB).unwrap();
    fill(&volume);
    whole(&volume, 8);
    volume.close().unwrap();
    sound(&*device);
}

fn crashes(from: u64, to: u64) -> usize {
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(from.max(to) * MIB)));
    made(simulated.clone(), from * MIB);
    let volume = Volume::open(simulated.clone(), &options()).unwrap();
    (0..4).for_each(|n| volume.write(format!("f{n}"), content(n)).unwrap());
    volume.sync().unwrap();
    // Something that is in the log only, and in no generation yet.
    volume.write("logged", "logged").unwrap();
    File::open(&volume, "logged").unwrap().sync_all().unwrap();
    simulated.restart_trace();
    match to > from {
        true => assert!(volume.view().lengthen(to * MIB).unwrap()),
        false => assert!(volume.view().shorten(to * MIB, &mut |_, _| ()).unwrap()),
    }
    simulated.mark(DONE);
    volume.write("behind", vec![9; 700_000]).unwrap();
    File::open(&volume, "behind").unwrap().sync_all().unwrap();
    volume.sync().unwrap();
    let trace = simulated.trace();
    let mut states = 0;
    for case in trace.crash_states(&CrashPlan::default()) {
        let promised = trace.marks_before(case.after_entry()).any(|mark| mark == DONE);
        let state = format!("{from} to {to}: {}", case.state());
        let medium = Arc::new(case.materialise());
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{state}: {report}");
        let again = Volume::open(medium.clone(), &options()).unwrap();
        let size = again.info().size;
        assert!(size == to * MIB || (size == from * MIB && !promised), "{state}: {size}");
        whole(&again, 4);
        assert_eq!(again.read_to_string("logged").unwrap(), "logged", "{state}");
        again.write("after", vec![8; 2 << 20]).unwrap();
        again.close().unwrap();
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{state}: {report}");
        states += 1;
    }
    states
}

/// The power fails anywhere while files move away from the new end, two of which share blocks: they are
/// whole, at either length. If the volume keeps checksums, all data has one, and it is right.
#[test]
fn a_crash_while_files_move() {
    [false, true].into_iter().for_each(crash_while_files_move);
}

fn crash_while_files_move(data_checksums: bool) {
    let (from, to) = (40, 24);
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(from * MIB)));
    let mkfs = MkfsOptions { data_checksums, ..MkfsOptions::default() };
    Volume::create(simulated.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(simulated.clone(), &options()).unwrap();
    volume.write("filler", vec![1; 18 << 20]).unwrap();
    volume.sync().unwrap();
    (0..6).for_each(|n| volume.write(format!("f{n}"), content(n)).unwrap());
    volume.copy("f0", "copy").unwrap();
    volume.sync().unwrap();
    volume.remove_file("filler").unwrap();
    // Something that is in the log only, and in no generation yet.
    let file = yore_fs::OpenOptions::new().write(true).open(&volume, "f5").unwrap();
    file.write_at(&content(5)[..9000], 0).unwrap();
    file.sync_all().unwrap();
    simulated.restart_trace();
    let mut moved = 0;
    assert!(volume.view().shorten(to * MIB, &mut |done, _| moved = done).unwrap());
    assert!(moved > MIB, "{moved}");
    simulated.mark(DONE);
    volume.sync().unwrap();
    let trace = simulated.trace();
    let (mut states, mut old) = (0, 0);
    for case in trace.crash_states(&CrashPlan::default()) {
        let promised = trace.marks_before(case.after_entry()).any(|mark| mark == DONE);
        let medium = Arc::new(case.materialise());
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{}: {report}", case.state());
        let again = Volume::open(medium.clone(), &options()).unwrap();
        let size = again.info().size;
        assert!(size == to * MIB || (size == from * MIB && !promised), "{}: {size}", case.state());
        old += u32::from(size == from * MIB);
        whole(&again, 6);
        assert!(again.read("copy").unwrap() == content(0), "{}", case.state());
        if data_checksums {
            let go_on = || ControlFlow::Continue(());
            let found = again.view().scrub(Scrub::default(), &Progress::default(), &mut go_on.clone());
            assert!(found.unwrap().is_clean(), "{}", case.state());
            let without = again
                .view()
                .data_without_checksums(&mut go_on.clone())
                .unwrap()
                .map(|without| without.blocks);
            assert_eq!(without, Some(0), "{}", case.state());
        }
        again.close().unwrap();
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{}: {report}", case.state());
        states += 1;
    }
    println!("{states} states, {old} of the old length");
    assert!(states > 20 && old > 10);
}

#[test]
fn a_crash_leaves_the_old_length_or_the_new() {
    for (from, to) in [(24, 40), (60, 140), (140, 300), (140, 60), (60, 40)] {
        let states = crashes(from, to);
        println!("{from} to {to}: {states} states");
        assert!(states > 10, "{from} to {to}: {states} states");
    }
}
