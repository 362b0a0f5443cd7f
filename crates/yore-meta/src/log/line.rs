//! Those that have asked for a record of the intent log, and who writes it.
//!
//! Whoever asks gets a number, its *arrival*. Of those that ask at the same time one **leads**: it writes a
//! record that serves all arrivals so far. The others wait together; were they queued for a lock, each would
//! be woken by the one before it, and the next record would begin with the first of them alone.
//!
//! Some do not wait on a thread of theirs: they leave an **answer** behind, a function that is called with
//! the outcome. So a thread that serves a mount takes the next request meanwhile, and eight programs that
//! fsync need one thread that waits and not eight. If nobody leads, whoever leaves an answer leads itself and
//! nothing is handed to another thread, which would cost more than a request does. Otherwise a thread that
//! is there for nothing else leads for the answers that are left, and goes on leading as long as more come.
//! It starts with the first answer that is left, and ends when the volume is closed.
//!
//! **No answer is lost or called twice.** An answer is left under the lock under which it is seen that
//! somebody leads. Whoever ceases to lead takes the same lock, and wakes the thread if an answer is left. The
//! thread takes an answer out before it calls it. If the thread panics, it calls all that are left with the
//! error that this makes, and later callers wait themselves.
//!
//! The lock is a leaf, and no answer is called under it.

use crate::error::{MetaError, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use yore_device::waits::waiting;

/// What is called with the outcome of a record that its caller does not wait for.
pub type Answer = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
struct State {
    leads: bool,
    /// The answers that are left, by arrival.
    left: Vec<(u64, Answer)>,
    thread: Option<JoinHandle<()>>,
    /// No thread leads for the answers that are left, and none is started any more.
    ended: bool,
}

/// Those that have asked for a record.
#[derive(Default)]
pub(crate) struct Line {
    /// Smaller arrivals are served: by a record that was forced, or by a generation that is complete.
    served: AtomicU64,
    state: Mutex<State>,
    /// A leader is done: waited for by those that wait themselves.
    led: Condvar,
    /// The same, and an answer is left: waited for by the thread.
    left: Condvar,
}

/// The right to lead.
pub(crate) struct Lead<'a>(&'a Line);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.leads = false;
        let any_left = !state.left.is_empty();
        drop(state);
        self.0.led.notify_all();
        if any_left {
            self.0.left.notify_one();
        }
    }
}

/// What whoever comes without waiting is to do.
pub(crate) enum Turn<'a> {
    /// Lead, and call the answer.
    Lead(Lead<'a>, Answer),
    /// Nothing: the answer will be called.
    Left,
    /// Wait, and call the answer.
    Wait(Answer),
}

/// What the thread is to do.
pub(crate) enum Task<'a> {
    /// Call these: they are served.
    Call(Vec<Answer>),
    /// Lead for this arrival.
    Lead(Lead<'a>, u64),
    /// End.
    End,
}

impl Line {
    /// What smaller arrivals asked for is durable.
    pub(crate) fn note_served(&self, arrival: u64) {
        self.served.fetch_max(arrival, Ordering::SeqCst);
    }

    /// Whether what an arrival asked for is durable.
    pub(crate) fn has_served(&self, arrival: u64) -> bool {
        self.served.load(Ordering::SeqCst) > arrival
    }

    /// Waits until the arrival is served, or is the one to lead.
    pub(crate) fn await_turn(&self, arrival: u64) -> Option<Lead<'_>> {
        let mut state = self.state.lock();
        while !self.has_served(arrival) {
            if !std::mem::replace(&mut state.leads, true) {
                return Some(Lead(self));
            }
            waiting(|| self.led.wait(&mut state));
        }
        None
    }

    /// Leaves an answer if somebody leads. `start` starts the thread that [`Line::await_task`] is for.
    pub(crate) fn leave(
        &self,
        arrival: u64,
        answer: Answer,
        start: impl FnOnce() -> std::io::Result<JoinHandle<()>>,
    ) -> Turn<'_> {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.leads, true) {
            return Turn::Lead(Lead(self), answer);
        }
        if !state.ended && state.thread.is_none() {
            match start() {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    tracing::warn!(%error, "cannot start the log's thread: fsyncs wait by themselves")
                }
            }
        }
        if state.ended || state.thread.is_none() {
            return Turn::Wait(answer);
        }
        state.left.push((arrival, answer));
        Turn::Left
    }

    /// Waits for something that the thread is to do. Arrivals that are served come first.
    pub(crate) fn await_task(&self) -> Task<'_> {
        let mut state = self.state.lock();
        loop {
            let served = state.left.extract_if(.., |(arrival, _)| self.has_served(*arrival));
            let served: Vec<Answer> = served.map(|(_, answer)| answer).collect();
            if !served.is_empty() {
                return Task::Call(served);
            }
            match state.left.first().map(|(arrival, _)| *arrival) {
                Some(first) if !std::mem::replace(&mut state.leads, true) => {
                    return Task::Lead(Lead(self), first)
                }
                None if state.ended => return Task::End,
                _ => self.left.wait(&mut state),
            }
        }
    }

    /// The thread has led for `arrival`: takes out its answer, and those of others that are served, which
    /// are called after this. Wakes those that wait themselves; they may be served, too.
    pub(crate) fn take_led(&self, arrival: u64) -> (Option<Answer>, Vec<Answer>) {
        let mut state = self.state.lock();
        let at = state.left.iter().position(|(of, _)| *of == arrival);
        let own = at.map(|at| state.left.remove(at).1);
        let served = state.left.extract_if(.., |(arrival, _)| self.has_served(*arrival));
        let served = served.map(|(_, answer)| answer).collect();
        drop(state);
        self.led.notify_all();
        (own, served)
    }

    /// The thread has led and called what was served: it goes on with the first that has come meanwhile, or
    /// ceases to lead.
    pub(crate) fn go_on<'l>(&self, lead: Lead<'l>) -> Option<(Lead<'l>, u64)> {
        let first = self.state.lock().left.first().map(|(arrival, _)| *arrival);
        // If one is left just now, the end of the lead wakes the thread.
        first.map(|first| (lead, first))
    }

    /// All that are left are called with an error: the thread has panicked, or its volume is gone.
    pub(crate) fn fail(&self, error: &MetaError) {
        let left = {
            let mut state = self.state.lock();
            state.ended = true;
            std::mem::take(&mut state.left)
        };
        left.into_iter().for_each(|(_, answer)| answer(Err(error.clone())));
    }

    /// Ends the thread when it has called all that are left, and waits for that.
    pub(crate) fn end(self: &Arc<Line>) {
        let thread = {
            let mut state = self.state.lock();
            state.ended = true;
            state.thread.take()
        };
        self.left.notify_one();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            if thread.join().is_err() {
                tracing::error!("the log's thread panicked");
            }
        }
    }
}
