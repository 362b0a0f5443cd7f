//! The gate: while a directory is rolled back, calls that concern it, or anything below it, wait.
//!
//! **G1 Nobody is inside.** The thread that closes the gate goes on only when every call that began before
//! has ended. So no call sees or changes anything between the states before and after. Each thread counts its
//! calls in a *slot* of its own, which is odd during a call. A thread that enters makes its slot odd, and
//! then looks whether the gate is closed. The thread that closes the gate marks it closed, and then looks at
//! all slots. One of the two sees the other, provided that neither's look is ordered before its own store.
//! The kernel sees to that order on behalf of the closing thread, for all threads at once (membarrier(2)), so
//! a call costs a load and two stores to the thread's own slot. Where the kernel has no membarrier(2), a call
//! costs a fence as well.
//!
//! **G2 Whoever waits holds nothing.** Calls come here first of all, before any lock, and a call does not
//! count while it waits. A call from within another call of the same thread does not wait for a gate that
//! waits for the outer one.
//!
//! **G3 Which calls wait** is computed only while the gate is closed. A call that leads out of the directory
//! or into it is concerned on either side.
//!
//! **G4 A long question keeps nobody waiting.** It changes nothing, so it need not be inside: while it is, it
//! says where it reads ([`Gate::watch`]), and leaves. Whoever closes the gate tells those questions that are
//! concerned before the first change. What such a question has found is thrown away, and it begins anew,
//! behind the gate.

use crate::{InodeNo, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::{membarrier, membarrier_query, MembarrierCommand};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{compiler_fence, fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the thread that closes the gate sleeps between two looks at a slot.
const PAUSE: Duration = Duration::from_micros(50);

/// The gate of a volume.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    closed: Mutex<Option<Closed>>,
    opened: Condvar,
    /// Held by the thread that rolls back: one at a time.
    turn: Mutex<()>,
    /// How often the gate was closed.
    times: AtomicU64,
    /// Questions that read without being inside. This lock is a leaf.
    watches: Mutex<Vec<Arc<Watched>>>,
}

/// Where a question reads that is not inside.
struct Watched {
    inode: InodeNo,
    /// The gate was closed there meanwhile.
    is_disturbed: AtomicBool,
}

/// A question that reads without being inside, as long as this lives.
pub(crate) struct Watch<'g> {
    gate: &'g Gate,
    watched: Arc<Watched>,
}

impl Watch<'_> {
    /// Whether what was read may lie between the states before and after: the gate was closed where this
    /// reads, since [`Gate::watch`].
    pub(crate) fn is_disturbed(&self) -> bool {
        self.watched.is_disturbed.load(Ordering::Acquire)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.gate.watches.lock().retain(|other| !Arc::ptr_eq(other, &self.watched));
    }
}

/// Where the gate is closed, and for which time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Closed {
    directory: InodeNo,
    /// Which closing this is: the gate's count of closings.
    time: u64,
    /// The gate still waits for calls that began before.
    waiting: bool,
}

/// Permission to close the gate; only one thread has it at a time.
pub(crate) struct Turn<'g> {
    gate: &'g Gate,
    _turn: MutexGuard<'g, ()>,
}

/// Keeps the gate closed as long as this lives.
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

    /// Opens the gate; whoever waits goes on.
    pub(crate) fn open(&self) {
        let mut closed = self.closed.lock();
        *closed = None;
        self.is_closed.store(false, Ordering::SeqCst);
        self.opened.notify_all();
    }

    /// Whether it is closed now, for whatever directory.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until no other thread rolls back.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { gate: self, _turn: self.turn.lock() }
    }

    /// Enters. If the gate is closed, and `concerns` holds for the directory where it is closed, waits first.
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

    /// Says that somebody reads this inode and what is around it. The caller is inside, and may leave then.
    pub(crate) fn watch(&self, inode: InodeNo) -> Watch<'_> {
        let watched = Arc::new(Watched { inode, is_disturbed: AtomicBool::new(false) });
        self.watches.lock().push(watched.clone());
        Watch { gate: self, watched }
    }

    /// As [`Gate::enter`], but `None` instead of waiting.
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
    /// Closes the gate at a directory, and waits until all other threads that entered before have left. Tells
    /// the questions that are not inside and read an inode that `concerns` holds for.
    pub(crate) fn close(&self, directory: InodeNo, concerns: impl Fn(InodeNo) -> bool) -> Closing<'g> {
        let gate = self.gate;
        let time = gate.times.fetch_add(1, Ordering::Relaxed) + 1;
        let mut closed = gate.closed.lock();
        *closed = Some(Closed { directory, time, waiting: true });
        gate.is_closed.store(true, Ordering::SeqCst);
        drop(closed);
        let closing = Closing(gate);
        wait_for_all();
        // Whoever comes from now on and is concerned waits.
        let watches = gate.watches.lock().clone();
        for watched in watches.iter().filter(|watched| concerns(watched.inode)) {
            watched.is_disturbed.store(true, Ordering::Release);
        }
        if let Some(closed) = &mut *gate.closed.lock() {
            closed.waiting = false;
        }
        closing
    }
}

/// Counts the calls of one thread.
type Slot = Arc<AtomicU64>;

/// The slots of all living threads.
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// What each thread has.
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

/// Whether membarrier(2) can order the memory accesses of all threads of this process.
fn has_barrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// Waits until each thread that is inside a call has left that call.
fn wait_for_all() {
    fence(Ordering::SeqCst);
    if has_barrier() {
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        assert!(done.is_ok(), "a barrier that the kernel had: {done:?}");
    }
    let own = THREAD.try_with(|thread| thread.slot.clone()).ok();
    let slots: Vec<Slot> = SLOTS.lock().clone();
    for slot in slots {
        // A thread that rolls back from within a call of its own knows what it does.
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
    /// The slot of a thread that is ending and has no slot of its own any more.
    own: Option<Slot>,
    /// A passage belongs to its thread.
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
        // A call that entered with the thread's slot leaves before the thread gives the slot up; otherwise
        // the slot does not matter any more.
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
    use std::time::Instant;

    /// For so long a test waits for another thread.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Many threads enter all the time, and none of them is inside while the gate is closed. Threads that are
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
                        // An inner call, which must not wait for a gate that waits for the outer one.
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
                let _closing = turn.close(here, |_| false);
                for _ in 0..20 {
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                }
            }
            // On a busy machine the threads may not have begun before now.
            let begun = Instant::now();
            let all_passed = || passed.iter().all(|count| count.load(Ordering::Relaxed) > 0);
            while !all_passed() && begun.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
            assert!(all_passed(), "no thread of one kind has entered in a minute");
        });
    }

    /// A waiting call goes through when the gate opens; a call that does not want to wait gets `None`.
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
        hears.recv_timeout(PATIENCE).expect("the call went on within a minute");
        thread.join().unwrap();
        assert!(gate.enter(|_| panic!("nobody is asked")).is_ok());
    }

    /// Closing does not wait for a question, and tells it if it is concerned.
    #[test]
    fn questions_are_told() {
        let gate = Gate::default();
        let (here, there) = (gate.watch(InodeNo(7)), gate.watch(InodeNo(8)));
        let gone = gate.watch(InodeNo(7));
        drop(gone);
        drop(gate.turn().close(InodeNo(7), |no| no == InodeNo(7)));
        assert!(here.is_disturbed() && !there.is_disturbed());
        assert!(!gate.watch(InodeNo(7)).is_disturbed(), "it begins behind that");
        drop((here, there));
        assert!(gate.watches.lock().is_empty());
    }
}
