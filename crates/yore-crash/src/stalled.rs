//! Syncs that stall halfway, so that operations meet a generation that is being written.
//!
//! A sequence by one thread waits for each of its syncs, so it never changes anything between the freezing of
//! a generation and its superblock. Here another thread syncs, and a [`Gate`] stops one of the first flushes
//! after its begin: the blocks of the generation are written, and are not durable. The sequence goes
//! on, and its writes are then as pending as the generation. An operation that waits for the generation, or
//! the end of the sequence, opens the gate. So the schedule is the same in each run: what an operation does
//! before it waits, it does while the sync stalls. Under `sync` nearly every operation waits.
//!
//! When the sync has returned, a mark says up to which moment everything is durable; until then nothing is
//! promised.

use crate::marks::{mark, STALLED};
use crate::volume::Wrong;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;
use yore_device::simulated::SimulatedDevice;
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError};
use yore_fs::{Error, View};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Flushes pass.
    Open,
    /// This many flushes by other threads than this one pass; the next is stalled.
    Armed(ThreadId, u32),
    /// A flush is stalled.
    Stalling,
}

/// A device of which a flush can be stalled.
pub(crate) type Gated = Wrapped<Arc<dyn Device>, Gate>;

/// How often a flush that is stalled asks whether an operation waits for it.
const PAUSE: Duration = Duration::from_micros(200);

/// The state that stalls it.
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// The volume of the sync that stalls.
    view: Mutex<Option<View>>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { state: Mutex::new(State::Open), changed: Condvar::new(), view: Mutex::new(None) }
    }

    /// Whether somebody else waits beside the sync. That can only be the sequence.
    fn is_waited_for(&self) -> bool {
        self.view().as_ref().is_some_and(|view| view.threads_waiting().is_ok_and(|threads| threads > 1))
    }

    /// Stalls until the gate is opened.
    fn stall(&self, mut state: MutexGuard<'_, State>) {
        while *state == State::Stalling {
            let waited = self.changed.wait_timeout(state, PAUSE);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            if *state == State::Stalling && self.is_waited_for() {
                *state = State::Open;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn view(&self) -> MutexGuard<'_, Option<View>> {
        self.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    fn wait_while(&self, mut state: MutexGuard<'_, State>, waits: impl Fn(State) -> bool) {
        while waits(*state) {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Hook for Gate {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if matches!(request, Request::Flush) {
            let mut state = self.lock();
            match *state {
                State::Armed(thread, _) if thread == std::thread::current().id() => {}
                State::Armed(thread, first @ 1..) => *state = State::Armed(thread, first - 1),
                State::Armed(_, 0) => {
                    *state = State::Stalling;
                    self.changed.notify_all();
                    self.stall(state);
                }
                State::Open | State::Stalling => {}
            }
        }
        request.pass(below)
    }
}

/// A sync under way. Dropping it lets it go on, and waits for it.
pub(crate) struct StalledSync {
    device: Arc<Gated>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// The moment that is durable when it has returned.
    moment: usize,
    /// For how many more operations it stalls.
    pub(crate) left: usize,
}

impl StalledSync {
    /// Begins a sync of everything done until `moment`. It stalls at its first flush, or at the one after
    /// `first` others, for `left` operations.
    pub(crate) fn begin(
        device: &Arc<Gated>,
        view: &View,
        moment: usize,
        first: u32,
        left: usize,
    ) -> Result<StalledSync, Wrong> {
        let gate = &device.hook;
        *gate.view() = Some(view.clone());
        gate.set(State::Armed(std::thread::current().id(), first));
        let (its_device, its_view) = (device.clone(), view.clone());
        let sync = move || {
            let result = its_view.checkpoint();
            // It may have had nothing to write.
            its_device.hook.set(State::Open);
            result
        };
        let thread = std::thread::Builder::new()
            .spawn(sync)
            .map_err(|error| Wrong::new("result", format!("no thread for a sync: {error}")))?;
        let stalled = StalledSync { device: device.clone(), thread: Some(thread), moment, left };
        gate.wait_while(gate.lock(), |state| matches!(state, State::Armed(..)));
        Ok(stalled)
    }

    /// Lets it return.
    pub(crate) fn end(mut self, device: &SimulatedDevice) -> Result<(), Wrong> {
        self.open();
        let result = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => return Err(Wrong::new("panic", "a sync panicked")),
            None => Ok(()),
        };
        result.map_err(|error| Wrong::new("result", format!("a stalled sync: {error}")))?;
        device.mark(mark(STALLED, self.moment, true));
        Ok(())
    }
}

impl StalledSync {
    /// Lets it go on. The device does not keep the volume open.
    fn open(&self) {
        let gate = &self.device.hook;
        gate.set(State::Open);
        drop(gate.view().take());
    }
}

impl Drop for StalledSync {
    fn drop(&mut self) {
        self.open();
        if let Some(thread) = self.thread.take() {
            // Its result does not matter any more: something else went wrong.
            let _ = thread.join();
        }
    }
}
