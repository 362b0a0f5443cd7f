//! Promises of a log that many threads use at once: every acknowledged record is there, and threads that wait
//! together share a flush.

mod common;

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use common::contents;
use parking_lot::{Condvar, Mutex};
use yore_device::simulated::{CrashPlan, SimulatedDevice, TraceEntry};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice, BLOCK_SIZE};
use yore_log::{recover, End, Log, LogError, LogId, Lsn, Position, Region};

const ID: LogId = LogId(4711);

/// A device whose flush returns only when as many records as expected have been appended.
type Gated = Wrapped<MemoryDevice, Gate>;

#[derive(Debug)]
struct Gate {
    expected: u64,
    appended: Mutex<u64>,
    changed: Condvar,
    flushes: Mutex<u64>,
    /// Whether its flush panics.
    broken: bool,
}

impl Gate {
    fn sound(expected: u64) -> Gate {
        let (appended, flushes) = (Mutex::new(0), Mutex::new(0));
        Gate { expected, appended, changed: Condvar::new(), flushes, broken: false }
    }

    fn device(self) -> Arc<Gated> {
        Arc::new(Gated::new(MemoryDevice::new(1 << 20), self))
    }
}

impl Hook for Gate {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if !matches!(request, Request::Flush) {
            return request.pass(below);
        }
        let mut appended = self.appended.lock();
        while *appended < self.expected {
            self.changed.wait(&mut appended);
        }
        *self.flushes.lock() += 1;
        drop(appended);
        assert!(!self.broken, "the device has a bug");
        Ok(())
    }
}

/// While one flush runs, everybody else appends, and the next flush covers them all. So 64 forces take at
/// most three flushes, one of them for the start of the session.
#[test]
fn those_who_wait_together_share_a_flush() {
    const THREADS: u64 = 64;
    for _ in 0..10 {
        let device = Gate::sound(THREADS).device();
        let region = Region::whole(&*device);
        let log = Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let number = log.append(&[b"record"]).unwrap();
                    *device.hook.appended.lock() += 1;
                    device.hook.changed.notify_all();
                    log.force(number).unwrap();
                });
            }
        });
        let flushes = *device.hook.flushes.lock();
        assert!(flushes <= 3, "{flushes} flushes");
    }
}

/// When the thread that writes panics, the threads that wait for it get an error, and so does every later
/// one. Once they waited for ever.
#[test]
fn those_who_wait_for_a_panic_are_told() {
    const THREADS: u64 = 8;
    let device = Gate { broken: true, ..Gate::sound(THREADS) }.device();
    let region = Region::whole(&*device);
    let log = Arc::new(Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap());
    let (told, results) = mpsc::channel();
    for _ in 0..THREADS {
        let (log, device, told) = (log.clone(), device.clone(), told.clone());
        thread::spawn(move || {
            let number = log.append(&[b"record"]).unwrap();
            *device.hook.appended.lock() += 1;
            device.hook.changed.notify_all();
            let forced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.force(number)));
            told.send(forced.ok()).unwrap();
        });
    }
    let all: Vec<_> = (0..THREADS)
        .map(|_| results.recv_timeout(Duration::from_secs(60)).expect("somebody waits for ever"))
        .collect();
    assert_eq!(all.iter().filter(|result| result.is_none()).count(), 1, "one of them led");
    assert!(all.iter().flatten().all(|result| *result == Err(LogError::Panicked)), "{all:?}");
    assert_eq!(log.append(&[b"later"]), Err(LogError::Panicked));
    assert_eq!(log.check(), Err(LogError::Panicked));
}

/// Threads append, force, read and release at once. Whatever was acknowledged before a crash is found after
/// it.
#[test]
fn what_was_acknowledged_is_there() {
    const THREADS: u64 = 4;
    const EACH: u64 = 60;
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(200 * BLOCK_SIZE as u64)));
    let region = Region { first_block: 0, blocks: 200 };
    let start = Position::start(ID);
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, device) = (&log, &device);
            scope.spawn(move || {
                for n in 0..EACH {
                    let data = contents(thread << 32 | n, (n * 31 % 2000) as usize);
                    let number = log.append(&[&thread.to_le_bytes(), &data]).unwrap();
                    assert_eq!(log.read(number).unwrap().contents[8..], data);
                    if n % 3 == 0 {
                        log.force(number).unwrap();
                        device.mark(number.0);
                    }
                    let earlier = log.read(Lsn(1 + number.0 / 2)).unwrap();
                    assert_eq!(earlier.number.0, 1 + number.0 / 2);
                }
            });
        }
    });
    log.force_all().unwrap();
    assert_eq!(log.next_number(), Lsn(1 + THREADS * EACH));
    let trace = device.trace();
    let flushes = trace.entries().iter().filter(|entry| **entry == TraceEntry::Flush).count() as u64;
    assert!(flushes <= 2 + THREADS * EACH.div_ceil(3), "{flushes} flushes");
    let plan = CrashPlan { exhaustive_max: 8, samples: 6, ..CrashPlan::default() };
    for case in trace.crash_states(&plan) {
        let promised = trace.marks_before(case.after_entry()).max().unwrap_or(0);
        let end = recover(Arc::new(case.materialise()), region, ID, start).unwrap().end().unwrap();
        assert!(end.position.number.0 > promised, "{} of {promised}, {}", end.position.number, case.state());
    }
}

/// Threads that read a small ring, while others append and release, get the record or learn that it is
/// forgotten.
#[test]
fn readers_get_the_record_or_are_told() {
    let device = Arc::new(MemoryDevice::new(12 * BLOCK_SIZE as u64));
    let region = Region::whole(&*device);
    let log = Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap();
    let done = Mutex::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !*done.lock() || seen == 0 {
                    let oldest = log.oldest().number;
                    match log.read(oldest) {
                        Ok(record) => {
                            assert_eq!(record.contents, contents(oldest.0, 1500));
                            seen += 1;
                        }
                        Err(LogError::Forgotten { .. } | LogError::NotAppended { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    match log.position_of(oldest) {
                        Ok(position) => assert_eq!(position.number, oldest),
                        Err(LogError::Forgotten { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        for n in 1..2000 {
            while let Err(error) = log.append(&[&contents(n, 1500)]) {
                assert!(matches!(error, LogError::Full { .. }), "{error}");
                let upto = Lsn(log.oldest().number.0 + 2);
                log.release(log.position_of(upto).unwrap()).unwrap();
            }
            log.force_all().unwrap();
        }
        *done.lock() = true;
    });
}

/// Everybody who waits for a flush learns that it failed.
#[test]
fn a_failed_flush_is_told_to_all() {
    use yore_device::simulated::Fault;
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(1 << 20)));
    let region = Region::whole(&*device);
    let log = Log::open(device.clone(), region, ID, 1, End::at(Position::start(ID))).unwrap();
    device.fail(Fault::FlushError { nth: 6 }.into());
    let told: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| loop {
                    let error = match log.append(&[b"record"]).and_then(|number| log.force(number)) {
                        Ok(()) => continue,
                        Err(error) => error,
                    };
                    assert!(matches!(error, LogError::Device(_)));
                    return 1;
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(told, 8);
}
