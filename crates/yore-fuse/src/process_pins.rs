//! Pins snapshots as long as a process lives.
//!
//! `restore` may have to go back to a snapshot, so the space that `restore` itself takes must not cause that
//! snapshot to be forgotten. The kernel does not tell a daemon that a directory was closed, because it opens
//! directories without asking. So a thread watches the process and waits for its end.

use crate::privilege::process_of;
use fuser::Errno;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::io::{pipe, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use yore_fs::Pin;

/// Most snapshots pinned at a time. Each takes a thread, and anybody who may take a snapshot could ask for
/// any number of them.
const MOST: usize = 64;

/// Pins snapshots. It releases them all when it is dropped.
#[derive(Default)]
pub(crate) struct ProcessPins {
    /// Each thread holds a clone of this.
    count: Arc<()>,
    /// The reading end hangs up when the writing end goes, which is when this is dropped.
    end: OnceLock<(PipeReader, PipeWriter)>,
}

/// Room to pin one snapshot as long as a process lives.
pub(crate) struct PinSlot {
    /// The process; `None` if it cannot be seen, and so cannot be watched.
    process: Option<OwnedFd>,
    end: PipeReader,
    count: Arc<()>,
}

impl ProcessPins {
    /// Reserves room for one more snapshot, for the process of this thread, which waits for the answer.
    /// EAGAIN if there is no room.
    pub(crate) fn slot(&self, thread: u32) -> Result<PinSlot, Errno> {
        let count = self.count.clone();
        if Arc::strong_count(&count) > MOST + 1 {
            return Err(Errno::EAGAIN);
        }
        let end = match self.end.get() {
            Some((end, _)) => end,
            None => {
                let new = pipe().map_err(|_| Errno::EAGAIN)?;
                &self.end.get_or_init(|| new).0
            }
        };
        let process = process_of(thread).and_then(|process| Pid::from_raw(process as i32));
        let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        Ok(PinSlot { process, end: end.try_clone().map_err(|_| Errno::EAGAIN)?, count })
    }
}

impl PinSlot {
    /// Keeps the pin. EAGAIN if no thread can be started for it.
    pub(crate) fn put(self, pin: Pin) -> Result<(), Errno> {
        let PinSlot { process: Some(process), end, count } = self else { return Ok(()) };
        let work = move || {
            let mut ends = [PollFd::new(&process, PollFlags::IN), PollFd::new(&end, PollFlags::empty())];
            while let Err(rustix::io::Errno::INTR) = poll(&mut ends, None) {}
            drop((pin, count));
        };
        match std::thread::Builder::new().name("yore-keep".into()).spawn(work) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::EAGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};
    use yore_fs::{Error, EventNo, NewSnapshot, PinnedBy, View, Volume};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn kept(process_pins: &ProcessPins, view: &View, by: &Child) -> EventNo {
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        process_pins.slot(by.id()).unwrap().put(view.pin(event, PinnedBy::Work).unwrap()).unwrap();
        assert!(matches!(view.forget(&[event]), Err(Error::Pinned { .. })));
        event
    }

    #[track_caller]
    fn is_forgotten_soon(view: &View, event: EventNo) {
        let start = Instant::now();
        while let Err(error) = view.forget(&[event]) {
            assert!(matches!(error, Error::Pinned { .. }), "{error}");
            assert!(start.elapsed() < Duration::from_secs(20), "it is still pinned");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A pin lasts as long as both the process and the [`ProcessPins`] live, and the number of pins is
    /// limited.
    #[test]
    fn what_a_process_wants_stays_until_it_ends() {
        let volume = Volume::memory(64 << 20).unwrap();
        let (view, process_pins) = (volume.view(), ProcessPins::default());
        let mut process = sleeper();
        let event = kept(&process_pins, view, &process);
        process.kill().unwrap();
        process.wait().unwrap();
        is_forgotten_soon(view, event);

        let mut process = sleeper();
        let event = kept(&process_pins, view, &process);
        drop(process_pins);
        is_forgotten_soon(view, event);

        let process_pins = ProcessPins::default();
        let slots: Vec<PinSlot> = (0..MOST).map(|_| process_pins.slot(process.id()).unwrap()).collect();
        assert_eq!(process_pins.slot(process.id()).err().map(|e| e.code()), Some(libc::EAGAIN));
        drop(slots);
        assert!(process_pins.slot(process.id()).is_ok());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Nothing waits for a process that cannot be seen.
    #[test]
    fn what_nobody_to_be_seen_wants_does_not_stay() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        let process_pins = ProcessPins::default();
        process_pins.slot(0).unwrap().put(view.pin(event, PinnedBy::Work).unwrap()).unwrap();
        view.forget(&[event]).unwrap();
    }
}
