//! Promises (R15, R16). In a workload of all kinds of calls any single request of the device may fail, be
//! lost, go elsewhere or return a wrong bit. Errors are typed. After a write error nothing more is written,
//! and reads go on. What was promised is there when the device works again. Wrong metadata is never believed.
//!
//! File data has no checksums, so contents are not judged if the medium lies.

use std::sync::{Arc, Mutex};
use yore_check::{check, CheckOptions};
use yore_device::simulated::{Fault, FaultPlan, SimulatedDevice};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_faults::watch::{Counting, Watch};
use yore_faults::workload::{observe, run, steps, History};
use yore_faults::{exercise, sample, survey, Chance};
use yore_fs::{Error, MountOptions, Volume};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMORY: usize = 256 << 20;

/// A simulated device that remembers where its writes went.
type Recorder = Wrapped<SimulatedDevice, Writes>;

#[derive(Debug, Default)]
struct Writes(Mutex<Vec<u64>>);

impl Writes {
    /// The place of the n-th write, counted from 1.
    fn nth(&self, nth: u64) -> Option<u64> {
        self.0.lock().unwrap().get(nth as usize - 1).copied()
    }
}

impl Hook for Writes {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let Request::Write { offset, .. } = request else { return request.pass(below) };
        // Locked over the write, so that both counts agree.
        let mut writes = self.0.lock().unwrap();
        writes.push(offset);
        request.pass(below)
    }
}

fn recorder(image: &MemoryDevice, plan: FaultPlan) -> Arc<Recorder> {
    let device = SimulatedDevice::new(image.snapshot());
    device.fail(plan);
    Arc::new(Recorder::new(device, Writes::default()))
}

fn start() -> (MemoryDevice, History) {
    let image = sample::with_old_trees_and_annals().unwrap();
    let options = MountOptions { read_only: true, ..exercise::options() };
    let history = History::of(&Volume::open(Arc::new(image.snapshot()), &options).unwrap()).unwrap();
    (image, history)
}

/// The device works again: everything promised is there, and the checker finds nothing, before and after
/// opening.
fn recover(device: &Recorder, history: &History) {
    let image = Arc::new(device.below.snapshot());
    let report = check(&*image, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "after the fault: {report}");
    let volume = Volume::open(image.clone(), &exercise::options()).unwrap();
    history.judge(&observe(&volume)).unwrap();
    history.judge_past(&volume, true).unwrap();
    volume.write("after", "the fault").unwrap();
    volume.close().unwrap();
    let report = check(&*image, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "after opening: {report}");
}

/// Whether this is an error of the device, or that of an earlier one.
fn is_devices(error: &Error) -> bool {
    matches!(error.root(), Error::Device(_) | Error::Stopped { .. })
}

fn is_absent(error: &Error) -> bool {
    matches!(error.root(), Error::NotFound | Error::Exists)
}

fn is_stopped(error: &Error) -> bool {
    matches!(error.root(), Error::Stopped { .. })
}

/// Runs the workload with a fault; returns whether the fault struck.
fn with_write_error(image: &MemoryDevice, mut history: History, plan: FaultPlan) -> bool {
    let device = recorder(image, plan.clone());
    let volume = match Volume::open(device.clone(), &exercise::options()) {
        Ok(volume) => volume,
        Err(error) => {
            assert!(is_devices(&error), "{error}");
            recover(&device, &history);
            return true;
        }
    };
    let dead = plan.faults.iter().any(|fault| matches!(fault, Fault::Dead { .. }));
    let mut stopped = false;
    for step in steps() {
        match run(&volume, &step, Some(history.now())) {
            Ok(()) if stopped && !step.only_reads() => panic!("{step:?} after an error of the device"),
            Ok(()) => history.done(&step),
            // An earlier step may have failed to create the file.
            Err(error) if stopped => assert!(is_stopped(&error) || is_absent(&error), "{step:?}: {error}"),
            Err(error) => {
                assert!(is_devices(&error), "{step:?}: {error}");
                let seen = observe(&volume);
                let judged = history.failed(&step, &seen.model);
                // A dead device cannot be read completely, so the changes of the call cannot be determined.
                assert!(judged.is_ok() || dead, "{step:?}: {error}; {judged:?}");
            }
        }
        if !stopped && !device.below.struck().is_empty() {
            let error = volume.sync().expect_err("a sync after a write failed");
            assert!(is_devices(&error), "{error}");
            if !dead {
                history.compare(&observe(&volume)).unwrap();
                history.judge_past(&volume, true).unwrap();
            }
            device.below.restart_trace();
            stopped = true;
            if dead {
                break;
            }
        }
    }
    let closed = volume.close();
    drop(volume);
    let struck = !device.below.struck().is_empty() || stopped;
    if stopped {
        assert_eq!(device.below.entries(), 0, "something was written after the error");
        assert!(is_devices(&closed.unwrap_err()));
    } else if struck {
        assert!(is_devices(&closed.expect_err("closing, and the device failed")));
    } else {
        closed.unwrap();
        history.done(&yore_faults::workload::Step::Sync);
    }
    device.below.fail(FaultPlan::none());
    recover(&device, &history);
    struck
}

/// Runs `case` for n = 1, 2, ... until the fault no longer strikes.
fn for_every(watch: &mut Watch, what: &str, least: u64, mut case: impl FnMut(u64) -> bool) {
    let mut n = 1;
    loop {
        let mut struck = true;
        let failed = watch.failures().len();
        watch.case(format!("{what} {n}"), || struck = case(n));
        if !struck || watch.failures().len() > failed + 3 || watch.failures().len() > 20 {
            break;
        }
        n += 1;
    }
    println!("{what}: {} cases", n - 1);
    assert!(n > least || !watch.failures().is_empty(), "{what} struck {} times only", n - 1);
}

/// Without a fault the workload does what its model says.
#[test]
fn without_a_fault() {
    let (image, history) = start();
    let mut watch = Watch::new(MEMORY);
    watch.case("none", || assert!(!with_write_error(&image, history, FaultPlan::none())));
    watch.finish();
}

/// An error of the n-th write or flush, for every n.
#[test]
fn errors_of_writes_and_flushes() {
    let (image, history) = start();
    let mut watch = Watch::new(MEMORY);
    for_every(&mut watch, "write", 30, |nth| {
        with_write_error(&image, history.clone(), Fault::WriteError { nth }.into())
    });
    for_every(&mut watch, "flush", 15, |nth| {
        with_write_error(&image, history.clone(), Fault::FlushError { nth }.into())
    });
    watch.finish();
}

/// No request works from the n-th write on, or the host has no space from there on.
#[test]
fn devices_that_die_or_fill_up() {
    let (image, history) = start();
    let mut watch = Watch::new(MEMORY);
    for_every(&mut watch, "full after writes", 30, |n| {
        with_write_error(&image, history.clone(), Fault::Full { after_writes: n - 1 }.into())
    });
    for_every(&mut watch, "dead after writes", 30, |n| {
        with_write_error(&image, history.clone(), Fault::Dead { after_writes: n - 1 }.into())
    });
    watch.finish();
}

/// An error of the n-th read: the call fails and changes nothing, and later calls work.
#[test]
fn errors_of_reads() {
    let (image, history) = start();
    let mut watch = Watch::new(MEMORY);
    for_every(&mut watch, "read", 30, |nth| {
        with_read_fault(&image, history.clone(), Fault::ReadError { nth }, true)
    });
    watch.finish();
}

/// A wrong bit in the n-th read: if it is in metadata, the call reports damage. Later writes are sound.
#[test]
fn flipped_bits() {
    let (image, history) = start();
    let mut chance = Chance::seeded(1);
    let mut watch = Watch::new(MEMORY);
    for_every(&mut watch, "bit in read", 30, |nth| {
        let fault = Fault::FlippedBit { nth, bit: chance.number() };
        with_read_fault(&image, history.clone(), fault, false)
    });
    watch.finish();
}

fn with_read_fault(image: &MemoryDevice, mut history: History, fault: Fault, data: bool) -> bool {
    let device = recorder(image, fault.into());
    let typed = |error: &Error| is_devices(error) || matches!(error.root(), Error::Corruption(_));
    let volume = match Volume::open(device.clone(), &exercise::options()) {
        Ok(volume) => volume,
        Err(error) => {
            assert!(typed(&error), "{error}");
            recover(&device, &history);
            return true;
        }
    };
    let mut stopped = false;
    for step in steps() {
        match run(&volume, &step, Some(history.now()).filter(|_| data)) {
            Ok(()) if stopped && !step.only_reads() => panic!("{step:?} after writing had stopped"),
            Ok(()) => history.done(&step),
            Err(error) => {
                assert!(
                    typed(&error) || (is_absent(&error) && !device.below.struck().is_empty()),
                    "{step:?}: {error}"
                );
                let seen = observe(&volume);
                assert!(seen.errors.is_empty(), "{step:?}: {error}; then {:?}", seen.errors);
                history.failed(&step, &seen.model).unwrap();
                // A write may need a read; if that read fails, writing stops.
                stopped |= is_stopped(&error);
            }
        }
    }
    let closed = volume.close();
    drop(volume);
    let struck = !device.below.struck().is_empty();
    match closed {
        Ok(()) => history.done(&yore_faults::workload::Step::Sync),
        Err(error) => assert!(struck && typed(&error), "{error}"),
    }
    device.below.fail(FaultPlan::none());
    if data {
        recover(&device, &history);
    } else {
        let image = device.below.snapshot();
        let report = check(&image, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        let volume = Volume::open(Arc::new(image), &exercise::options()).unwrap();
        let seen = observe(&volume);
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
        history.judge_damaged(&seen, false).unwrap();
        history.judge_damaged_past(&volume, true).unwrap();
    }
    struck
}

/// The n-th write is lost, or lands on another block. Metadata is right, or an error says that it is not; and
/// the checker finds the fault.
#[test]
fn lost_and_misdirected_writes() {
    let (image, history) = start();
    let sites = survey::sites(&image);
    let mut watch = Watch::new(MEMORY);
    for_every(&mut watch, "lost write", 30, |nth| {
        with_lie(&image, history.clone(), nth, Fault::LostWrite { nth }, None)
    });
    let mut chance = Chance::seeded(2);
    for round in 0..2 {
        for_every(&mut watch, &format!("round {round}, misdirected write"), 30, |nth| {
            let to = match chance.below(3) {
                0 => chance.below((sample::SIZE / 4096) as usize) as u64 * 4096,
                _ => chance.pick(&sites).block.0 * 4096,
            };
            with_lie(&image, history.clone(), nth, Fault::MisdirectedWrite { nth, to }, Some(to))
        });
    }
    watch.finish();
}

fn with_lie(image: &MemoryDevice, mut history: History, nth: u64, fault: Fault, to: Option<u64>) -> bool {
    let device = recorder(image, fault.into());
    let damaged = |error: &Error| matches!(error.root(), Error::Corruption(_) | Error::Stopped { .. });
    if let Ok(volume) = Volume::open(device.clone(), &exercise::options()) {
        for step in steps() {
            match run(&volume, &step, None) {
                Ok(()) => history.done(&step),
                Err(error) => {
                    assert!(damaged(&error) || is_absent(&error), "{step:?}: {error}");
                    let seen = observe(&volume);
                    if seen.errors.is_empty() {
                        history.failed(&step, &seen.model).unwrap();
                    } else {
                        drop(history.failed(&step, &seen.model));
                    }
                }
            }
        }
        drop(volume.close().inspect_err(|error| assert!(damaged(error), "{error}")));
        history.done(&yore_faults::workload::Step::Sync);
    }
    let struck = !device.below.struck().is_empty();
    let left = device.below.snapshot();
    let clean = check(&left, &CheckOptions::default()).is_ok_and(|report| report.is_clean());
    let options = MountOptions { read_only: true, ..exercise::options() };
    match Volume::open(Arc::new(left.snapshot()), &options) {
        Ok(volume) => {
            let seen = observe(&volume);
            assert!(seen.errors.is_empty() || !clean, "the checker does not see {:?}", seen.errors);
            // Nothing refers to the superblocks: if one is lost, the volume is as of the generation before.
            let superblock = [device.hook.nth(nth), to].into_iter().flatten().any(|offset| offset < 8192);
            history.judge_damaged(&seen, superblock).unwrap();
            history.judge_damaged_past(&volume, clean && !superblock).unwrap();
        }
        Err(error) => {
            assert!(matches!(error.root(), Error::Corruption(_) | Error::Refused(_)), "{error}");
            assert!(!clean, "the checker does not see: {error}");
        }
    }
    if nth.is_multiple_of(4) {
        exercise::all(&left);
    }
    struck
}

/// One wrong bit on the medium, in any metadata block: nothing wrong is believed, and the checker finds it.
#[test]
fn stored_bits() {
    let (image, history) = start();
    let mut watch = Watch::new(MEMORY);
    let mut chance = Chance::seeded(3);
    for site in survey::sites(&image) {
        for _ in 0..2 {
            let bit = chance.below(4096 * 8);
            // Damage to a superblock's stamps makes it torn, and then the other one counts.
            if site.kind.is_none() && bit / 8 % 512 >= 504 {
                continue;
            }
            watch.case(format!("{} at {}, bit {bit}", site.name(), site.block), || {
                let device = image.snapshot();
                let mut block = survey::read(&device, site.block);
                block[bit / 8] ^= 1 << (bit % 8);
                device.write_at(site.block.0 * 4096, &block[..]).unwrap();
                let clean = check(&device, &CheckOptions::default()).is_ok_and(|report| report.is_clean());
                assert!(!clean, "the checker does not see it");
                match Volume::open(Arc::new(device), &exercise::options()) {
                    Ok(volume) => {
                        history.judge_damaged(&observe(&volume), false).unwrap();
                        history.judge_damaged_past(&volume, false).unwrap();
                    }
                    Err(error) => assert!(matches!(error.root(), Error::Corruption(_)), "{error}"),
                }
            });
        }
    }
    watch.finish();
}
