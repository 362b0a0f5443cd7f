//! Threads that write data for fsyncs when few threads are left to serve.
//!
//! An fsync that has more data than the log takes writes it to its blocks, and an fsync of the root has all
//! data written. While enough threads read requests, the thread that serves such a request waits for the
//! device itself: a hand-over costs a wake-up. When hardly any is left, it hands the request over to these
//! threads and goes on to serve, so that a `stat` does not wait for somebody else's gigabyte.
//!
//! They start when there is work that nobody takes, up to [`Flushers::new`]'s bound, and end when they have
//! had none for [`IDLE`]. Dropping waits until all that was handed over is done, so no answer is lost with an
//! unmount. If memory is in doubt, work is dropped and not done.

use crate::connection::{Shared, Watched};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread waits for more work before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// What no thread has taken yet, the oldest first.
    work: VecDeque<Work>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    ended: bool,
}

/// What the threads share.
struct Inner {
    shared: Arc<Shared>,
    most: usize,
    state: Mutex<State>,
    /// There is work, or the end.
    woken: Condvar,
    /// A thread has ended.
    left: Condvar,
}

/// A pool of threads that grows and shrinks with need.
pub(super) struct Flushers {
    inner: Arc<Inner>,
}

/// Counts a thread of the pool, however it ends.
struct Member(Arc<Inner>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.left.notify_all();
    }
}

impl Inner {
    /// The body of a thread.
    fn attend(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.work.pop_front() {
                MutexGuard::unlocked(&mut state, || match self.shared.is_in_doubt() {
                    true => drop(work),
                    false => work(),
                });
                continue;
            }
            if state.ended {
                return;
            }
            state.idle += 1;
            let waited = self.woken.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.work.is_empty() {
                return;
            }
        }
    }
}

impl Flushers {
    /// At most `most` threads; none yet.
    pub(super) fn new(shared: Arc<Shared>, most: usize) -> Flushers {
        let (woken, left) = (Condvar::new(), Condvar::new());
        Flushers {
            inner: Arc::new(Inner { shared, most: most.max(1), state: Mutex::default(), woken, left }),
        }
    }

    /// Has `work` done by one of the threads. If none can be started, and none is there, this thread does it.
    pub(super) fn hand_over(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.inner.state.lock();
        state.work.push_back(Box::new(work));
        if state.idle >= state.work.len() || state.threads >= self.inner.most {
            drop(state);
            self.inner.woken.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let member = Member(self.inner.clone());
        let body = move || {
            let _watched = Watched(member.0.shared.clone());
            member.0.attend();
        };
        if let Err(error) = std::thread::Builder::new().name("yore-flusher".into()).spawn(body) {
            tracing::warn!(%error, "cannot start a thread that writes data");
            let mut state = self.inner.state.lock();
            let alone = if state.threads == 0 { std::mem::take(&mut state.work) } else { VecDeque::new() };
            drop(state);
            alone.into_iter().for_each(|work| work());
        }
    }
}

impl Drop for Flushers {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.ended = true;
        self.inner.woken.notify_all();
        while state.threads > 0 {
            self.inner.left.wait(&mut state);
        }
    }
}
