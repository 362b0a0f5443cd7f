//! Reads something of many processes, and waits for none of them for ever.
//!
//! The kernel may keep whoever reads a process's table of mappings waiting as long as that process changes
//! it. A process can make that last for ever: its change waits for a file system whose daemon is dead, or is
//! the process itself. So a thread of its own reads. If it does not get on with one process in time, the
//! caller leaves it behind, and another thread goes on with the next process. The thread that was left ends
//! when it gets its answer, or with this daemon; until then nobody asks that process again. Only a few
//! threads are left behind: while there are that many, nothing is read.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The most threads that are left behind.
pub(crate) const MOST_LEFT: usize = 8;

/// The processes for which threads that were left behind still wait.
pub(crate) struct Stuck(Mutex<Vec<u32>>);

impl Stuck {
    pub(crate) const fn new() -> Stuck {
        Stuck(Mutex::new(Vec::new()))
    }

    fn has(&self, process: u32) -> bool {
        self.0.lock().contains(&process)
    }

    fn are_many(&self) -> bool {
        self.0.lock().len() >= MOST_LEFT
    }

    fn is_left(&self, process: u32) {
        self.0.lock().push(process);
    }

    fn is_back(&self, process: u32) {
        self.0.lock().retain(|other| *other != process);
    }
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// In all processes that could be read.
    pub(crate) files: HashSet<u64>,
    /// Processes that could not be read in time.
    pub(crate) unread: Vec<u32>,
}

#[derive(Default)]
struct State {
    /// Processes that nobody has begun to read.
    left: Vec<u32>,
    /// The process that the thread reads for which the caller waits.
    reading: Option<u32>,
    /// How many processes were read.
    done: usize,
    files: HashSet<u64>,
    /// There is nothing left to read.
    ended: bool,
}

struct Work<R> {
    stuck: &'static Stuck,
    read: R,
    state: Mutex<State>,
    woken: Condvar,
}

impl<R: Fn(u32) -> HashSet<u64> + Send + Sync + 'static> Work<R> {
    /// The body of a thread: reads one process after another, until none is left or this thread is.
    fn attend(&self) {
        let mut state = self.state.lock();
        while let Some(process) = state.left.pop() {
            state.reading = Some(process);
            let files = MutexGuard::unlocked(&mut state, || (self.read)(process));
            if state.reading != Some(process) {
                drop(state);
                return self.stuck.is_back(process);
            }
            state.reading = None;
            state.files.extend(files);
            state.done += 1;
            self.woken.notify_one();
        }
        state.ended = true;
        self.woken.notify_one();
    }

    fn begin(self: &Arc<Self>) -> io::Result<()> {
        let work = self.clone();
        let begun = std::thread::Builder::new().name("yore-mappings".into()).spawn(move || work.attend());
        begun.map(drop)
    }

    /// Waits until everything is read, for no process longer than this.
    fn wait(self: &Arc<Self>, patience: Duration, unread: &mut Vec<u32>) -> io::Result<()> {
        let mut state = self.state.lock();
        while !state.ended {
            let before = state.done;
            let is_slow = |state: &mut State| !state.ended && state.done == before;
            let waited = self.woken.wait_while_for(&mut state, is_slow, patience);
            // A thread that reads nothing has not been given a processor yet.
            let is_late = waited.timed_out() && !state.ended && state.done == before;
            let Some(process) = state.reading.filter(|_| is_late) else { continue };
            state.reading = None;
            self.stuck.is_left(process);
            unread.push(process);
            if state.left.is_empty() {
                return Ok(());
            }
            if self.stuck.are_many() {
                unread.append(&mut state.left);
                return Ok(());
            }
            self.begin()?;
        }
        Ok(())
    }
}

/// Reads something of these processes by `read`, and waits for none of them longer than this.
///
/// # Errors
/// No thread can be started.
pub(crate) fn read_all(
    processes: Vec<u32>,
    stuck: &'static Stuck,
    patience: Duration,
    read: impl Fn(u32) -> HashSet<u64> + Send + Sync + 'static,
) -> io::Result<Found> {
    let (mut unread, left): (Vec<u32>, Vec<u32>) =
        processes.into_iter().partition(|process| stuck.has(*process));
    if stuck.are_many() {
        unread.extend(left);
        return Ok(Found { files: HashSet::new(), unread });
    }
    let state = Mutex::new(State { left, ..State::default() });
    let work = Arc::new(Work { stuck, read, state, woken: Condvar::new() });
    work.begin()?;
    work.wait(patience, &mut unread)?;
    let files = std::mem::take(&mut work.state.lock().files);
    Ok(Found { files, unread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// Longer than a busy machine takes to give a thread a processor.
    const PATIENCE: Duration = Duration::from_millis(400);

    fn number(process: u32) -> HashSet<u64> {
        HashSet::from([u64::from(process)])
    }

    /// A process that waited for its own dead file system hung each snapshot that root took. It is left out,
    /// and said to be; the others are read. Nobody waits for it a second time, until it answers.
    #[test]
    fn one_that_does_not_answer_is_left_out() {
        static STUCK: Stuck = Stuck::new();
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let read = move |process: u32| {
            if process == 7 {
                let _ = gate.lock().recv();
            }
            number(process)
        };
        let found = read_all((1..=20).collect(), &STUCK, PATIENCE, read).unwrap();
        assert_eq!(found.unread, [7]);
        let others: HashSet<u64> = (1..=20).filter(|process| *process != 7).collect();
        assert_eq!(found.files, others);

        let again = read_all(vec![7, 8], &STUCK, Duration::from_secs(600), number).unwrap();
        assert_eq!(again, Found { files: number(8), unread: vec![7] });

        go.send(()).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while STUCK.has(7) {
            assert!(Instant::now() < end, "the thread that was left behind is not back");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(read_all(vec![7], &STUCK, PATIENCE, number).unwrap().unread.is_empty());
    }

    /// However many do not answer, only a few threads wait for them.
    #[test]
    fn a_few_threads_are_left_behind_at_most() {
        static STUCK: Stuck = Stuck::new();
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let read = move |process: u32| {
            let _ = gate.lock().recv();
            number(process)
        };
        let all: Vec<u32> = (1..=20).collect();
        let mut unread = read_all(all.clone(), &STUCK, Duration::from_millis(2), read).unwrap().unread;
        unread.sort_unstable();
        assert_eq!(unread, all);
        assert_eq!(STUCK.0.lock().len(), MOST_LEFT);
        assert_eq!(read_all(vec![30], &STUCK, PATIENCE, number).unwrap().unread, [30]);
        drop(go);
    }
}
