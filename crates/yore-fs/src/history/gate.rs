//! The gate: while a directory is being made what it was, calls that concern it, or what is below it, wait.
//!
//! **G1 Nobody is inside.** Who closes the gate goes on only when every call that began before has ended, so
//! none of them sees or changes anything between the states before and after. Each thread counts its calls in
//! a place of its own (a *slot*): odd while it is at one. Who enters makes his slot odd and then looks
//! whether the gate is closed; who closes it says so and then looks at all slots. One of the two sees the
//! other, if neither's look comes before what it has said. For who closes, and for all threads at once, the
//! kernel sees to that (membarrier(2)), so a call costs a load and two stores of the thread's own; where
//! there is no such thing, a fence as well.
//!
//! **G2 Who waits holds nothing**: calls come here first of all, before any lock, and a call that is to wait
//! is not counted while it does. A call from within another one of the same thread does not wait for a gate
//! that waits for the outer one.
//!
//! **G3 Who is concerned** is asked only while the gate is closed. What leads out of the directory or into it
//! concerns it on either side.

use crate::{InodeNo, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{membarrier, membarrier_query, MembarrierCommand};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{compiler_fence, fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long who closes the gate sleeps between two looks at a slot.
const PAUSE: Duration = Duration::from_micros(50);

/// The gate of a volume.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    closed: Mutex<Option<Closed>>,
    opened: Condvar,
    /// Held by who rolls back: one at a time.
    turn: Mutex<()>,
    /// How often it was closed.
    times: AtomicU64,
}

/// Where the gate is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Closed {
    directory: InodeNo,
    /// How many times it was closed before.
    time: u64,
    /// It is still waited for those who began before.
    waiting: bool,
}

/// Held by who may close the gate.
pub(crate) struct Turn<'g> {
    gate: &'g Gate,
    _turn: MutexGuard<'g, ()>,
}

/// The gate is closed as long as this lives.
pub(crate) struct Closing<'g>(&'g Gate);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gate {
    /// A gate that nobody passes until [`Gate::open`].
    pub(crate) fn closed_at(directory: InodeNo) -> Gate {
        let gate = Gate::default();
        *gate.closed.lock() = Some(Closed { directory, time: 0, waiting: false });
        gate.is_closed.store(true, Ordering::SeqCst);
        gate
    }

    /// Whoever waits goes on.
    pub(crate) fn open(&self) {
        let mut closed = self.closed.lock();
        *closed = None;
        self.is_closed.store(false, Ordering::SeqCst);
        self.opened.notify_all();
    }

    /// Waits until nobody else rolls back.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { gate: self, _turn: self.turn.lock() }
    }

    /// Enters, unless the gate is closed and `concerns` the directory where it is: then waits first.
    ///
    /// # Errors
    /// Those of `concerns`.
    #[inline]
    pub(crate) fn enter(&self, concerns: impl Fn(InodeNo) -> Result<bool>) -> Result<Passage> {
        let passage = Passage::new();
        match self.is_closed.load(Ordering::Acquire) {
            false => Ok(passage),
            true => self.enter_closed(passage, &concerns),
        }
    }

    /// The same for who does not wait: `None`.
    ///
    /// # Errors
    /// Those of `concerns`.
    pub(crate) fn try_enter(&self, concerns: impl Fn(InodeNo) -> Result<bool>) -> Result<Option<Passage>> {
        let passage = Passage::new();
        let closed = *self.closed.lock();
        match closed {
            Some(closed) if concerns(closed.directory)? => Ok(None),
            _ => Ok(Some(passage)),
        }
    }

    #[cold]
    fn enter_closed(
        &self,
        mut passage: Passage,
        concerns: &dyn Fn(InodeNo) -> Result<bool>,
    ) -> Result<Passage> {
        loop {
            let Some(at) = *self.closed.lock() else { return Ok(passage) };
            let is_waited_for = at.waiting && passage.is_inner();
            if is_waited_for || !concerns(at.directory)? {
                return Ok(passage);
            }
            drop(passage);
            let mut closed = self.closed.lock();
            while closed.is_some_and(|now| now.time == at.time) {
                self.opened.wait(&mut closed);
            }
            drop(closed);
            passage = Passage::new();
        }
    }
}

impl<'g> Turn<'g> {
    /// Closes the gate at a directory, and waits until all others who have entered before are done.
    pub(crate) fn close(&self, directory: InodeNo) -> Closing<'g> {
        let gate = self.gate;
        let time = gate.times.fetch_add(1, Ordering::Relaxed) + 1;
        let mut closed = gate.closed.lock();
        *closed = Some(Closed { directory, time, waiting: true });
        gate.is_closed.store(true, Ordering::SeqCst);
        drop(closed);
        let closing = Closing(gate);
        wait_for_all();
        if let Some(closed) = &mut *gate.closed.lock() {
            closed.waiting = false;
        }
        closing
    }
}

/// Counts the calls of one thread.
type Slot = Arc<AtomicU64>;

/// The slots of all threads that are there.
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// What a thread has.
struct Thread {
    slot: Slot,
    /// Calls within calls.
    depth: Cell<u32>,
    fences: bool,
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

impl Thread {
    fn new() -> Thread {
        let slot = Slot::default();
        SLOTS.lock().push(slot.clone());
        Thread { slot, depth: Cell::new(0), fences: !has_barrier() }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        SLOTS.lock().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// Whether the kernel makes all threads of this process see what was said.
fn has_barrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// Waits until each thread that is at a call is at another one, or at none.
fn wait_for_all() {
    fence(Ordering::SeqCst);
    if has_barrier() {
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        assert!(done.is_ok(), "a barrier that the kernel had: {done:?}");
    }
    let own = THREAD.try_with(|thread| thread.slot.clone()).ok();
    let slots: Vec<Slot> = SLOTS.lock().clone();
    for slot in slots {
        // Who calls from within another call of his own knows what he does.
        if own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &slot)) {
            continue;
        }
        let then = slot.load(Ordering::SeqCst);
        while then % 2 == 1 && slot.load(Ordering::Acquire) == then {
            std::thread::sleep(PAUSE);
        }
    }
}

/// A call that is under way.
pub(crate) struct Passage {
    /// Of a thread that is ending, which has no slot any more.
    own: Option<Slot>,
    /// Of this thread.
    _here: PhantomData<*const ()>,
}

impl Passage {
    #[inline]
    fn new() -> Passage {
        let own = THREAD.try_with(|thread| {
            let depth = thread.depth.get();
            thread.depth.set(depth + 1);
            if depth == 0 {
                let count = thread.slot.load(Ordering::Relaxed);
                thread.slot.store(count + 1, Ordering::Relaxed);
                match thread.fences {
                    true => fence(Ordering::SeqCst),
                    false => compiler_fence(Ordering::SeqCst),
                }
            }
        });
        Passage { own: own.err().map(|_| Passage::slot_of_its_own()), _here: PhantomData }
    }

    #[cold]
    fn slot_of_its_own() -> Slot {
        let slot = Slot::new(AtomicU64::new(1));
        SLOTS.lock().push(slot.clone());
        fence(Ordering::SeqCst);
        slot
    }

    /// Whether this is a call from within another one.
    fn is_inner(&self) -> bool {
        THREAD.try_with(|thread| thread.depth.get() > 1).unwrap_or(false)
    }
}

impl Drop for Passage {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.own.take() {
            slot.store(2, Ordering::Release);
            SLOTS.lock().retain(|other| !Arc::ptr_eq(other, &slot));
            return;
        }
        // Who has entered with the thread's slot leaves before the thread gives it up, or it is not there any
        // more.
        let _ = THREAD.try_with(|thread| {
            let depth = thread.depth.get() - 1;
            thread.depth.set(depth);
            if depth == 0 {
                let count = thread.slot.load(Ordering::Relaxed);
                thread.slot.store(count + 1, Ordering::Release);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    /// Many threads enter all the time, and none of them is inside while the gate is closed; those who are
    /// not concerned go on.
    #[test]
    fn nobody_is_inside() {
        let (gate, inside, done) = (Gate::default(), AtomicUsize::new(0), AtomicBool::new(false));
        let (here, there) = (InodeNo(7), InodeNo(8));
        let passed = [AtomicUsize::new(0), AtomicUsize::new(0)];
        std::thread::scope(|threads| {
            for n in 0..4 {
                let (gate, inside, done, passed) = (&gate, &inside, &done, &passed);
                threads.spawn(move || {
                    let at = if n == 3 { there } else { here };
                    while !done.load(Ordering::Relaxed) {
                        let _outer = gate.enter(|closed| Ok(closed == at)).unwrap();
                        // A call within, which must not wait for a gate that waits for the outer one.
                        let _inner = gate.enter(|closed| Ok(closed == at)).unwrap();
                        if at == here {
                            inside.fetch_add(1, Ordering::SeqCst);
                            std::hint::spin_loop();
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        passed[usize::from(at == there)].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2000 {
                let turn = gate.turn();
                let _closing = turn.close(here);
                for _ in 0..20 {
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                }
            }
            // On a busy machine the threads may have begun only now.
            while passed.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// Who is told to wait comes through when the gate opens, and who does not want to wait is told.
    #[test]
    fn waiting_ends() {
        let gate = Arc::new(Gate::closed_at(InodeNo::ROOT));
        assert!(gate.try_enter(|_| Ok(true)).unwrap().is_none());
        assert!(gate.try_enter(|_| Ok(false)).unwrap().is_some());
        let (told, hears) = mpsc::channel();
        let waits = gate.clone();
        let thread = std::thread::spawn(move || {
            drop(waits.enter(|_| Ok(true)).unwrap());
            told.send(()).unwrap();
        });
        assert!(hears.recv_timeout(Duration::from_millis(20)).is_err());
        gate.open();
        hears.recv().unwrap();
        thread.join().unwrap();
        assert!(gate.enter(|_| panic!("nobody is asked")).is_ok());
    }
}
