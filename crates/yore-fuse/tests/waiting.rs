//! A request that waits for the device leaves a thread for those that do not.

mod common;

use common::{can_mount, new_device, Mounted};
use std::fs::{self, File};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError};

/// Requests for the device that are not carried out before somebody opens the gate.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    waiting: usize,
}

/// A device of which flushes, and writes of data that is not small, wait at a gate.
#[derive(Debug)]
struct Slow(Arc<Gate>);

impl Hook for Slow {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let large = matches!(request, Request::Write { .. }) && request.len() >= 64 << 10;
        if large || matches!(request, Request::Flush) {
            let mut state = self.0.state.lock().unwrap();
            state.waiting += 1;
            self.0.changed.notify_all();
            state = self.0.changed.wait_while(state, |state| state.is_closed).unwrap();
            state.waiting -= 1;
        }
        request.pass(below)
    }
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        self.state.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    /// Opens the gate when something has waited there for so long that only a mount that hangs can be the
    /// reason, and says whether it had to.
    fn open_if_nobody_does(&self) -> bool {
        let state = self.state.lock().unwrap();
        let outcome =
            self.changed.wait_timeout_while(state, Duration::from_secs(60), |s| s.is_closed).unwrap();
        let hangs = outcome.1.timed_out();
        drop(outcome);
        self.set_closed(false);
        hangs
    }
}

/// Twelve callers make files durable on a device that has stopped to answer, of a mount with three threads:
/// as many small files, which wait for a record, as large ones, which wait for their blocks. Somebody else
/// asks for names all the while. All threads used to wait for the device then, and nobody was served.
#[test]
fn names_are_served_while_the_device_is_waited_for() {
    if !can_mount() {
        return;
    }
    let gate = Arc::new(Gate::default());
    let device = Arc::new(Wrapped::new(new_device(512 << 20), Slow(gate.clone())));
    let m = Mounted::on(device, |config| config.threads = 3);
    let files: Vec<File> = (0..12)
        .map(|i| {
            let mut file = File::create_new(m.path(&format!("file {i}"))).unwrap();
            let len = if i % 2 == 0 { 100 } else { 8 << 20 };
            file.write_all(&vec![i as u8; len]).unwrap();
            file
        })
        .collect();
    gate.set_closed(true);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| gate.open_if_nobody_does());
        let durable: Vec<_> = files.iter().map(|file| scope.spawn(|| file.sync_all())).collect();
        let state = gate.state.lock().unwrap();
        drop(gate.changed.wait_while(state, |state| state.is_closed && state.waiting == 0).unwrap());
        for i in 0..500 {
            assert!(fs::metadata(m.path(&format!("no file {i}"))).is_err());
        }
        gate.set_closed(false);
        assert!(!watch.join().unwrap(), "nobody was served before the device went on");
        for outcome in durable {
            outcome.join().unwrap().unwrap();
        }
    });
    drop(files);
    m.end();
}
