//! Syncs that are held up halfway, so that operations meet a generation that is being written.
//!
//! A sequence by one thread waits for each of its syncs, so it never changes anything between the freezing of a generation
//! and its superblock. Here another thread syncs, and a [`Gate`] stops the flush that comes first (or second) after it has
//! begun: what the generation consists of is written, and is not durable. The sequence goes on, and what it writes then is
//! as pending as the generation. An operation that would wait for the generation, or the end of the sequence, opens the
//! gate. So the schedule is the same in each run.
//!
//! When the sync has returned, a mark says up to which moment all is durable; until then nothing is promised.

use crate::record::mark;
use crate::volume::Wrong;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{JoinHandle, ThreadId};
use yore_device::simulated::SimulatedDevice;
use yore_device::{Device, DeviceError};
use yore_fs::{Error, View};

/// The thread in marks that say that a held sync has returned.
pub(crate) const HELD: usize = 0xffff;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Flushes pass.
    Open,
    /// This many flushes by other threads than this one pass; the next is held.
    Armed(ThreadId, u32),
    /// A flush is held.
    Holding,
}

/// A device of which a flush can be held up.
pub(crate) struct Gate {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Gate {
        Gate { inner, state: Mutex::new(State::Open), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        write!(f, "Gate({})", self.inner.describe())
    }
}

impl Device for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[std::io::IoSlice<'_>]) -> Result<(), DeviceError> {
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        match *state {
            State::Armed(thread, _) if thread == std::thread::current().id() => {}
            State::Armed(thread, first @ 1..) => *state = State::Armed(thread, first - 1),
            State::Armed(_, 0) => {
                *state = State::Holding;
                self.changed.notify_all();
                self.wait_while(state, |state| state == State::Holding);
                return self.inner.flush();
            }
            State::Open | State::Holding => {}
        }
        drop(state);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

/// A sync under way. Dropping it lets it go on, and waits for it.
pub(crate) struct HeldSync {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// The moment that is durable when it has returned.
    moment: usize,
    /// Operations that it is still held for.
    pub(crate) left: usize,
}

impl HeldSync {
    /// Begins a sync of what was done until `moment`, which is held at its first flush, or the one after `first` others,
    /// for `left` operations.
    pub(crate) fn begin(
        gate: &Arc<Gate>,
        view: &View,
        moment: usize,
        first: u32,
        left: usize,
    ) -> Result<HeldSync, Wrong> {
        gate.set(State::Armed(std::thread::current().id(), first));
        let (its_gate, its_view) = (gate.clone(), view.clone());
        let sync = move || {
            let result = its_view.sync();
            // It may have had nothing to write.
            its_gate.set(State::Open);
            result
        };
        let thread = std::thread::Builder::new()
            .spawn(sync)
            .map_err(|error| Wrong::new("result", format!("no thread for a sync: {error}")))?;
        let held = HeldSync { gate: gate.clone(), thread: Some(thread), moment, left };
        gate.wait_while(gate.lock(), |state| matches!(state, State::Armed(..)));
        Ok(held)
    }

    /// Lets it return.
    pub(crate) fn end(mut self, device: &SimulatedDevice) -> Result<(), Wrong> {
        self.gate.set(State::Open);
        let result = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => return Err(Wrong::new("panic", "a sync panicked")),
            None => Ok(()),
        };
        result.map_err(|error| Wrong::new("result", format!("a held sync: {error}")))?;
        device.mark(mark(HELD, self.moment, true));
        Ok(())
    }
}

impl Drop for HeldSync {
    fn drop(&mut self) {
        self.gate.set(State::Open);
        if let Some(thread) = self.thread.take() {
            // What it says is of no interest any more: something else went wrong.
            let _ = thread.join();
        }
    }
}
