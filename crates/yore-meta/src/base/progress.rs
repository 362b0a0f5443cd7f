//! How far the writer of generations is, and waiting for it. Also whether anything may be written at all: a
//! volume may be read-only, closed, or stopped by an error (R16).

use crate::engine::Due;
use crate::error::{MetaError, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use yore_format::Generation;

/// The writer wakes up this often, so that a volume whose last user is gone without closing it ends its
/// thread.
const WRITER_WAKES: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    /// Write all generations up to this one.
    wanted: u64,
    /// Somebody waits for all generations up to this one.
    awaited: u64,
    /// Somebody wants that a generation up to this one puts nothing off.
    wanted_whole: u64,
    /// Append to the log what it does not have.
    record_wanted: bool,
    /// When the last record was appended.
    recorded: Option<Instant>,
    /// All generations up to this one are complete.
    completed: u64,
    /// The last generation that a mount finds. Not every engine closes each.
    closed_up_to: u64,
    /// When the running generation got its first change.
    dirty_since: Option<Instant>,
    stop: bool,
    /// The last generation was written, or not: no other follows.
    closed: bool,
    /// The error that stopped all writing (R16).
    error: Option<MetaError>,
    /// When that was.
    stopped_at: Option<SystemTime>,
    writing: bool,
    /// How many threads wait here for a generation.
    waiting: usize,
}

impl State {
    fn stopped(&self) -> Option<MetaError> {
        self.error.as_ref().map(|e| MetaError::Stopped { first: Box::new(e.clone()) })
    }
}

/// Where the writer is: one mutex with a condition.
pub(crate) struct Progress {
    state: Mutex<State>,
    moved: Condvar,
    stopped: AtomicBool,
    read_only: bool,
    /// The volume is being recovered: no generation is written, and nobody waits for one.
    recovering: AtomicBool,
}

/// What the writer's thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Write a generation.
    Write,
    /// Append a record to the log.
    Record,
    /// Ask again.
    Wait,
    /// End.
    Stop,
}

impl Progress {
    /// For a volume whose first generation is `first`.
    pub(crate) fn new(first: Generation, read_only: bool) -> Progress {
        let before = first.0 - 1;
        Progress {
            state: Mutex::new(State {
                completed: before,
                closed_up_to: before,
                wanted: before,
                awaited: before,
                ..State::default()
            }),
            moved: Condvar::new(),
            stopped: AtomicBool::new(false),
            read_only,
            recovering: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Fails if nothing may be changed (any more).
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(MetaError::ReadOnly);
        }
        if self.stopped.load(Ordering::Acquire) {
            return Err(self.why_stopped());
        }
        Ok(())
    }

    #[cold]
    fn why_stopped(&self) -> MetaError {
        let closed =
            || MetaError::Stopped { first: Box::new(MetaError::Refused("the volume is closed".into())) };
        self.state.lock().stopped().unwrap_or_else(closed)
    }

    /// Stops all writing for good after an error of the device (R16). The first error is kept.
    pub(crate) fn stop(&self, error: MetaError) {
        let mut s = self.state.lock();
        if s.error.is_none() {
            tracing::error!("writing stops: {error}");
            s.error = Some(error);
            s.stopped_at = Some(SystemTime::now());
        }
        self.stopped.store(true, Ordering::Release);
        self.moved.notify_all();
    }

    /// The error that stopped all writing, and when that was, in seconds since 1970.
    pub(crate) fn first_error(&self) -> Option<(MetaError, u64)> {
        let s = self.state.lock();
        let since = s.stopped_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        s.error.clone().map(|error| (error, since.unwrap_or_default().as_secs()))
    }

    /// If `what` panics while the guard lives, all writing stops as after an error.
    pub(crate) fn stop_at_panic(&self, what: &'static str) -> StopAtPanic<'_> {
        StopAtPanic { progress: self, what }
    }

    /// The running generation has its first change.
    #[cold]
    pub(crate) fn note_first_change(&self) {
        self.state.lock().dirty_since.get_or_insert_with(Instant::now);
    }

    /// Waits for something to do, for a while, and for no longer than `interval`. `due` says what it is time
    /// for when the oldest change is so old, and no record was appended for so long since then.
    pub(crate) fn await_task(&self, interval: Duration, due: impl FnOnce(Duration, Duration) -> Due) -> Task {
        let mut s = self.state.lock();
        if s.stop || s.error.is_some() {
            return Task::Stop;
        }
        if s.wanted > s.completed {
            return Task::Write;
        }
        if std::mem::take(&mut s.record_wanted) {
            return Task::Record;
        }
        let due = s.dirty_since.map_or(Due::Nothing(interval), |since| {
            let age = since.elapsed();
            due(age, s.recorded.map_or(age, |at| at.elapsed().min(age)))
        });
        match due {
            Due::Generation => {
                // The next generation is to put nothing off.
                s.wanted_whole = s.wanted_whole.max(s.completed + 1);
                return Task::Write;
            }
            Due::Record => return Task::Record,
            Due::Nothing(wait) => self.moved.wait_for(&mut s, wait.min(WRITER_WAKES)),
        };
        Task::Wait
    }

    /// A generation is being frozen, with the gate held alone. This must come before anything looks
    /// unchanged: a caller that sees neither changes nor a writer takes everything to be on the medium.
    /// Returns whether the generation may put off what nobody waits for.
    pub(crate) fn begin_writing(&self, generation: Generation) -> bool {
        let mut s = self.state.lock();
        s.dirty_since = None;
        s.writing = true;
        s.wanted_whole < generation.0
    }

    /// Whether a generation is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().writing
    }

    /// How many threads wait for generations to be complete.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Waits until the writer has come further, or has stopped.
    fn await_move(&self, s: &mut MutexGuard<'_, State>) {
        s.waiting += 1;
        self.moved.wait(s);
        s.waiting -= 1;
    }

    /// Whether somebody waits for the generation.
    pub(crate) fn is_awaited(&self, generation: Generation) -> bool {
        self.state.lock().awaited >= generation.0
    }

    /// Has the generation written; waits for nothing.
    pub(crate) fn want(&self, generation: Generation) {
        let mut s = self.state.lock();
        if s.wanted < generation.0 {
            s.wanted = generation.0;
            self.moved.notify_all();
        }
    }

    /// Has a record appended to the log; waits for nothing.
    pub(crate) fn want_record(&self) {
        let mut s = self.state.lock();
        if !std::mem::replace(&mut s.record_wanted, true) {
            self.moved.notify_all();
        }
    }

    /// The log has all that was changed until now.
    pub(crate) fn note_recorded(&self) {
        self.state.lock().recorded = Some(Instant::now());
    }

    /// The generation could not be written.
    pub(crate) fn fail(&self, error: MetaError) {
        self.state.lock().writing = false;
        self.stop(error);
    }

    /// The generation is complete, and `closed` if a mount finds it. `has_changes` tells whether the running
    /// one has something to write.
    pub(crate) fn complete(&self, generation: Generation, closed: bool, has_changes: impl FnOnce() -> bool) {
        let mut s = self.state.lock();
        s.completed = generation.0;
        if closed {
            s.closed_up_to = generation.0;
        }
        s.writing = false;
        if s.dirty_since.is_none() && has_changes() {
            s.dirty_since = Some(Instant::now());
        }
        self.moved.notify_all();
    }

    /// The last generation that is complete on the medium (counting those in which nothing changed).
    pub(crate) fn completed(&self) -> Generation {
        Generation(self.state.lock().completed)
    }

    /// Whether all but perhaps file data is on the medium: nothing is being written, `has_changes` says that
    /// nothing is to be, and `running`, which was the running generation a moment ago, still is.
    pub(crate) fn is_settled(&self, running: Generation, has_changes: impl FnOnce() -> bool) -> bool {
        let s = self.state.lock();
        // The generation that the caller read may have been frozen since: then nothing is dirty any more, and
        // it is being written.
        let unchanged = !has_changes();
        !s.writing && unchanged && s.closed_up_to + 1 == running.0
    }

    /// Has the generation written as the background does, and waits until that is done. Whether its
    /// superblock is on the medium then is up to the engine.
    pub(crate) fn await_background(&self, generation: Generation) -> Result<()> {
        let mut s = self.state.lock();
        s.wanted = s.wanted.max(generation.0);
        s.wanted_whole = s.wanted_whole.max(generation.0);
        self.moved.notify_all();
        while s.completed < generation.0 {
            if let Some(e) = s.stopped() {
                return Err(e);
            }
            if s.closed {
                return Err(MetaError::Refused("the volume is closed".into()));
            }
            self.await_move(&mut s);
        }
        Ok(())
    }

    /// Has the generation written, and waits until it is complete. Unless it is wanted `whole`, it may put
    /// off what nobody waits for.
    pub(crate) fn sync(&self, generation: Generation, whole: bool) -> Result<()> {
        let mut s = self.state.lock();
        s.wanted = s.wanted.max(generation.0);
        s.awaited = s.awaited.max(generation.0);
        if whole {
            s.wanted_whole = s.wanted_whole.max(generation.0);
        }
        self.moved.notify_all();
        while s.closed_up_to < generation.0 {
            if let Some(e) = s.stopped() {
                return Err(e);
            }
            if s.closed {
                return Err(MetaError::Refused("the volume is closed".into()));
            }
            if s.completed >= generation.0 && s.wanted <= s.completed {
                // It was written before anybody waited for it, and not closed: the next one closes it.
                s.wanted = s.completed + 1;
                s.awaited = s.wanted;
                self.moved.notify_all();
            }
            self.await_move(&mut s);
        }
        Ok(())
    }

    /// Waits until no generation is being written. One that panicked never ends.
    pub(crate) fn await_writer(&self) -> Result<()> {
        let mut s = self.state.lock();
        while s.writing && s.error.is_none() {
            self.await_move(&mut s);
        }
        s.stopped().map_or(Ok(()), Err)
    }

    /// Slows the caller down because `dirty` blocks are to be written, of which `soft` are many and `hard`
    /// are too many. Has the generation written.
    pub(crate) fn slow_down(
        &self,
        generation: Generation,
        dirty: impl Fn() -> usize,
        soft: usize,
        hard: usize,
    ) {
        let many = dirty();
        let mut s = self.state.lock();
        if s.wanted < generation.0 {
            s.wanted = generation.0;
            self.moved.notify_all();
        }
        if s.writing && many < hard {
            // From nothing at the soft limit to 2 ms a call near the hard one.
            let share = many.saturating_sub(soft) as u64 * 2_000 / (hard - soft).max(1) as u64;
            self.moved.wait_for(&mut s, Duration::from_micros(share));
        }
        while dirty() >= hard && s.error.is_none() && !s.stop {
            self.moved.wait_for(&mut s, Duration::from_millis(10));
        }
    }

    /// Whether one may wait for a generation: none is written while the volume is being recovered.
    #[inline]
    pub(crate) fn may_wait(&self) -> bool {
        !self.recovering.load(Ordering::Acquire)
    }

    /// Begins or ends recovery; returns whether the volume was being recovered.
    pub(crate) fn set_recovering(&self, recovering: bool) -> bool {
        self.recovering.swap(recovering, Ordering::AcqRel)
    }

    /// Asks the writer's thread to end.
    pub(crate) fn ask_to_stop(&self) {
        self.state.lock().stop = true;
        self.moved.notify_all();
    }

    /// No generation follows, and nothing may be changed. Whoever waits for one that will never be written
    /// goes on.
    pub(crate) fn close(&self) {
        self.stopped.store(true, Ordering::Release);
        self.state.lock().closed = true;
        self.moved.notify_all();
    }
}

/// Stops all writing if a panic drops it: what was under way will not complete, so nobody must wait for it,
/// and what memory says of the medium may be wrong.
pub struct StopAtPanic<'m> {
    progress: &'m Progress,
    /// What panicked, for the error.
    what: &'static str,
}

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.progress.stop(MetaError::Refused(format!("{} panicked, which is a bug", self.what)));
        }
    }
}
