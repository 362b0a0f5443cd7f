//! Reads something of many processes, and waits for none of them for ever.
//!
//! The kernel may keep whoever reads of a process waiting as long as that process likes. Its table of
//! mappings cannot be read while the process changes it, and such a change may wait for a file system whose
//! daemon is dead, or is the process itself. If the process dies or closes a file at that moment, the reader
//! is the last who has the table or the file, has to put it away, and waits for the same file system.
//!
//! So a thread of its own reads, one process after the other. If it does not get on with one, another thread
//! goes on with the next, and the first is left to that process. It ends when it gets its answer, or with
//! this daemon. As long as the caller waits, an answer that comes late still counts. After that nobody asks
//! that process again until the thread is back.
//!
//! - **P1** A user's processes hold up his own. Each user has a few places for processes that do not answer.
//!   When he has no more, the rest of his are not read, and those of others are. Once one of a user's does
//!   not answer, all others come before the rest of his.
//! - **P2** Ordinary users together do not have all places, because one who commands many user numbers could
//!   otherwise start threads without end.
//! - **P3** The caller's wait has an end, however many processes do not answer. It learns which were not
//!   read.

use crate::privilege::may_all;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::Hash;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most threads that are left to processes of one user.
const EACH_MOST: usize = 8;
/// The most that are left to processes of all ordinary users together.
const ORDINARY_MOST: usize = 48;

/// A process, and the user with whose rights it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) user: u32,
}

impl Process {
    /// `None`: there is no such process any more.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn find(number: u32) -> io::Result<Option<Process>> {
        // The kernel answers this without taking hold of anything of the process.
        match fs::metadata(format!("/proc/{number}")) {
            Ok(found) => Ok(Some(Process { number, user: found.uid() })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// How long to wait.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// For a process before others are read beside it.
    pub(crate) alone: Duration,
    /// For a process.
    pub(crate) each: Duration,
    /// For all of them together, once one of them is slow.
    pub(crate) all: Duration,
}

/// The processes for which threads that were left behind still wait, one entry for each thread.
pub(crate) struct Stuck(Mutex<Vec<Process>>);

impl Stuck {
    pub(crate) const fn new() -> Stuck {
        Stuck(Mutex::new(Vec::new()))
    }

    fn all(&self) -> Vec<Process> {
        self.0.lock().clone()
    }

    /// Whether one more thread may be left to this user's processes.
    fn has_room(&self, user: u32) -> bool {
        let stuck = self.0.lock();
        let of_user = stuck.iter().filter(|process| process.user == user).count();
        let of_ordinary = stuck.iter().filter(|process| !may_all(process.user)).count();
        of_user < EACH_MOST && (of_ordinary < ORDINARY_MOST || may_all(user))
    }

    fn is_left(&self, process: Process) {
        self.0.lock().push(process);
    }

    fn is_back(&self, process: Process) {
        let mut stuck = self.0.lock();
        if let Some(at) = stuck.iter().position(|other| *other == process) {
            stuck.swap_remove(at);
        }
    }
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found<T: Eq + Hash> {
    /// In all processes that could be read.
    pub(crate) files: HashSet<T>,
    /// Processes that could not be read, or not in time, in the order of their numbers.
    pub(crate) unread: Vec<u32>,
}

/// A process that a thread has begun to read.
#[derive(Clone, Copy)]
struct Begun {
    process: Process,
    at: Instant,
}

struct State<T> {
    /// Processes that nobody has begun to read, the next one last.
    left: Vec<Process>,
    /// The process that the thread reads that goes on with the next one.
    reading: Option<Begun>,
    /// Those of threads that do not go on and are still waited for, the one that was begun first comes first.
    slow: Vec<Begun>,
    files: HashSet<T>,
    unread: Vec<u32>,
    /// There is nothing left to begin with.
    ended: bool,
}

struct Work<T, R> {
    stuck: &'static Stuck,
    read: R,
    state: Mutex<State<T>>,
    woken: Condvar,
}

impl<T, R> Work<T, R>
where
    T: Eq + Hash + Send + 'static,
    R: Fn(u32) -> io::Result<HashSet<T>> + Send + Sync + 'static,
{
    /// The body of a thread: reads one process after another, until none is left or this thread is.
    fn attend(&self) {
        let mut state = self.state.lock();
        while let Some(process) = self.next(&mut state) {
            state.reading = Some(Begun { process, at: Instant::now() });
            let outcome = MutexGuard::unlocked(&mut state, || (self.read)(process.number));
            match outcome {
                Ok(files) => state.files.extend(files),
                Err(error) => {
                    tracing::debug!(process = process.number, %error, "a process cannot be read");
                    state.unread.push(process.number);
                }
            }
            if state.reading.is_none_or(|begun| begun.process != process) {
                state.slow.retain(|begun| begun.process != process);
                self.woken.notify_one();
                drop(state);
                return self.stuck.is_back(process);
            }
            state.reading = None;
        }
        state.ended = true;
        self.woken.notify_one();
    }

    /// The next process that may be read.
    fn next(&self, state: &mut State<T>) -> Option<Process> {
        while let Some(process) = state.left.pop() {
            if self.stuck.has_room(process.user) {
                return Some(process);
            }
            state.unread.push(process.number);
        }
        None
    }

    fn begin(self: &Arc<Self>) -> io::Result<()> {
        let work = self.clone();
        let begun = std::thread::Builder::new().name("yore-processes".into()).spawn(move || work.attend());
        begun.map(drop)
    }

    /// Leaves a thread to the process that it reads; another goes on with the others.
    fn set_aside(self: &Arc<Self>, state: &mut State<T>, begun: Begun) -> io::Result<()> {
        state.reading = None;
        self.stuck.is_left(begun.process);
        state.slow.push(begun);
        let is_his = |process: &Process| process.user == begun.process.user;
        let (his, others): (Vec<Process>, Vec<Process>) =
            std::mem::take(&mut state.left).into_iter().partition(is_his);
        state.left = his;
        state.left.extend(others);
        state.ended = state.left.is_empty();
        if state.ended {
            return Ok(());
        }
        self.begin()
    }

    /// Waits until everything is read that can be.
    fn wait(self: &Arc<Self>, patience: Patience) -> io::Result<Found<T>> {
        let mut state = self.state.lock();
        // As long as all answer there is no end: many of them take their time.
        let mut end = None;
        loop {
            let now = Instant::now();
            let late = state.slow.partition_point(|begun| begun.at + patience.each <= now);
            let late: Vec<Begun> = state.slow.drain(..late).collect();
            state.unread.extend(late.iter().map(|begun| begun.process.number));
            if end.is_some_and(|end| now >= end) || (state.ended && state.slow.is_empty()) {
                break;
            }
            let slow = state.slow.first().map(|begun| begun.at + patience.each);
            let mut until = slow.into_iter().chain(end).min();
            if !state.ended {
                // A thread that reads nothing has not been given a processor yet.
                let since = state.reading.map_or(now, |begun| begun.at);
                if let Some(begun) = state.reading.filter(|_| since + patience.alone <= now) {
                    end.get_or_insert(now + patience.all);
                    self.set_aside(&mut state, begun)?;
                    continue;
                }
                until = until.into_iter().chain([since + patience.alone]).min();
            }
            match until {
                Some(until) => drop(self.woken.wait_until(&mut state, until)),
                None => self.woken.wait(&mut state),
            }
        }
        let reading = state.reading.take();
        if let Some(begun) = reading {
            self.stuck.is_left(begun.process);
        }
        let slow = std::mem::take(&mut state.slow).into_iter().chain(reading).map(|begun| begun.process);
        let left = std::mem::take(&mut state.left);
        let mut unread = std::mem::take(&mut state.unread);
        unread.extend(slow.chain(left).map(|process| process.number));
        Ok(Found { files: std::mem::take(&mut state.files), unread })
    }
}

/// Reads something of these processes by `read`, and waits no longer than this.
///
/// # Errors
/// No thread can be started.
pub(crate) fn read_all<T: Eq + Hash + Send + 'static>(
    processes: Vec<Process>,
    stuck: &'static Stuck,
    patience: Patience,
    read: impl Fn(u32) -> io::Result<HashSet<T>> + Send + Sync + 'static,
) -> io::Result<Found<T>> {
    let before = stuck.all();
    let numbers: HashSet<u32> = before.iter().map(|process| process.number).collect();
    let users: HashSet<u32> = before.iter().map(|process| process.user).collect();
    let is_stuck = |process: &Process| numbers.contains(&process.number);
    let (skipped, mut left): (Vec<Process>, Vec<Process>) = processes.into_iter().partition(is_stuck);
    let unread = skipped.into_iter().map(|process| process.number).collect();
    // The last one is read first: those of root, then one of each user, then a second one of each.
    let mut counts: HashMap<u32, usize> = HashMap::new();
    left.sort_by_cached_key(|process| {
        let count = counts.entry(process.user).or_default();
        *count += 1;
        let turn = if may_all(process.user) { 0 } else { *count };
        (!users.contains(&process.user), Reverse(turn))
    });
    let ended = left.is_empty();
    let (reading, slow, files) = (None, Vec::new(), HashSet::new());
    let state = Mutex::new(State { left, reading, slow, files, unread, ended });
    let work = Arc::new(Work { stuck, read, state, woken: Condvar::new() });
    if !ended {
        work.begin()?;
    }
    let mut found = work.wait(patience)?;
    found.unread.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Sender};

    /// Longer than a busy machine takes to give a thread a processor.
    const EACH: Duration = Duration::from_millis(400);
    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(600);
    const PATIENCE: Patience = Patience { alone: Duration::from_millis(2), each: EACH, all: LONG };

    const MALLORY: u32 = 60_001;
    const ALICE: u32 = 60_002;

    fn of(user: u32, numbers: impl IntoIterator<Item = u32>) -> Vec<Process> {
        numbers.into_iter().map(|number| Process { number, user }).collect()
    }

    fn number(process: u32) -> io::Result<HashSet<u64>> {
        Ok(HashSet::from([u64::from(process)]))
    }

    fn numbers(all: impl IntoIterator<Item = u32>) -> HashSet<u64> {
        all.into_iter().map(u64::from).collect()
    }

    /// What reads processes, of which those that hang answer only when something is sent for each of them, or
    /// the sender is dropped.
    fn hanging(
        hangs: impl Fn(u32) -> bool + Send + Sync + 'static,
    ) -> (Sender<()>, impl Fn(u32) -> io::Result<HashSet<u64>> + Send + Sync + 'static) {
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let read = move |process: u32| {
            if hangs(process) {
                let _ = gate.lock().recv();
            }
            number(process)
        };
        (go, read)
    }

    fn wait_until_back(stuck: &Stuck) {
        let end = Instant::now() + Duration::from_secs(60);
        while !stuck.all().is_empty() {
            assert!(Instant::now() < end, "the threads that were left behind are not back");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A process that waited for its own dead file system hung each snapshot that root took. It is left out,
    /// and said to be; the others are read. Nobody waits for it a second time, until it answers.
    #[test]
    fn one_that_does_not_answer_is_left_out() {
        static STUCK: Stuck = Stuck::new();
        let (go, read) = hanging(|process| process == 7);
        let found = read_all(of(ALICE, 1..=20), &STUCK, PATIENCE, read).unwrap();
        assert_eq!(found.unread, [7]);
        assert_eq!(found.files, numbers((1..=20).filter(|process| *process != 7)));

        let patient = Patience { each: LONG, ..PATIENCE };
        let again = read_all(of(ALICE, [7, 8]), &STUCK, patient, number).unwrap();
        assert_eq!(again, Found { files: numbers([8]), unread: vec![7] });

        go.send(()).unwrap();
        wait_until_back(&STUCK);
        assert!(read_all(of(ALICE, [7]), &STUCK, PATIENCE, number).unwrap().unread.is_empty());
    }

    /// A process that is slow does not hold up the others, and counts if it answers while the caller still
    /// waits.
    #[test]
    fn a_late_answer_counts() {
        static STUCK: Stuck = Stuck::new();
        let (go, gate) = channel::<()>();
        let (go, gate) = (Mutex::new(go), Mutex::new(gate));
        let read = move |process: u32| {
            match process {
                // The second one is read before the first has answered.
                1 => gate.lock().recv().unwrap(),
                _ => go.lock().send(()).unwrap(),
            }
            number(process)
        };
        let patient = Patience { each: LONG, ..PATIENCE };
        let found = read_all(of(ALICE, [2, 1]), &STUCK, patient, read).unwrap();
        assert_eq!(found, Found { files: numbers([1, 2]), unread: vec![] });
        wait_until_back(&STUCK);
    }

    /// Eight processes of one user that did not answer took all places: no snapshot had anybody's recent
    /// stores through mappings any more. A user's processes take his own places only.
    #[test]
    fn a_user_takes_his_own_places_only() {
        static STUCK: Stuck = Stuck::new();
        let (go, read) = hanging(|process| process <= 20);
        let all = [of(ALICE, 21..=40), of(MALLORY, 1..=20), of(0, 41..=50)].concat();
        let found = read_all(all, &STUCK, PATIENCE, read).unwrap();
        assert_eq!(found.unread, Vec::from_iter(1..=20));
        assert_eq!(found.files, numbers(21..=50));
        assert_eq!(STUCK.all().iter().filter(|process| process.user == MALLORY).count(), EACH_MOST);

        let again = [of(MALLORY, [60]), of(ALICE, [61]), of(0, [62])].concat();
        let found = read_all(again, &STUCK, PATIENCE, number).unwrap();
        assert_eq!(found, Found { files: numbers([61, 62]), unread: vec![60] });
        drop(go);
        wait_until_back(&STUCK);
    }

    /// However many ordinary users have processes that do not answer, a number of threads is left to these
    /// at most, and root's processes are still read.
    #[test]
    fn all_users_together_have_an_end() {
        static STUCK: Stuck = Stuck::new();
        let (go, read) = hanging(|process| process <= 70);
        let mut all: Vec<Process> = (1..=70).flat_map(|number| of(60_000 + number, [number])).collect();
        all.extend(of(0, [71]));
        let patience = Patience { each: Duration::from_millis(1), ..PATIENCE };
        let found = read_all(all, &STUCK, patience, read).unwrap();
        assert!(found.unread.starts_with(&Vec::from_iter(1..=70)), "{:?}", found.unread);
        assert_eq!(STUCK.all().iter().filter(|process| process.user != 0).count(), ORDINARY_MOST);
        let found = read_all(of(0, [72]), &STUCK, PATIENCE, number).unwrap();
        assert_eq!(found, Found { files: numbers([72]), unread: vec![] });
        drop(go);
        wait_until_back(&STUCK);
    }

    /// The wait for all of them has an end, also if that for each of them would come later. Those that nobody
    /// has begun to read by then are named, too, and not counted as stuck.
    #[test]
    fn the_wait_for_all_has_an_end() {
        static STUCK: Stuck = Stuck::new();
        let (go, read) = hanging(|_| true);
        let all: Vec<Process> = (1..=30).flat_map(|number| of(60_000 + number, [number])).collect();
        let patience = Patience { alone: Duration::from_millis(100), each: LONG, all: EACH };
        let found = read_all(all, &STUCK, patience, read).unwrap();
        assert_eq!(found, Found { files: HashSet::new(), unread: Vec::from_iter(1..=30) });
        let left = STUCK.all().len();
        assert!(left <= 5, "{left}");
        drop(go);
        wait_until_back(&STUCK);
    }

    /// A process that cannot be read is named, and nothing is said of one that is not there.
    #[test]
    fn errors_are_named() {
        static STUCK: Stuck = Stuck::new();
        let read = |process| match process {
            1 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            _ => number(process),
        };
        let found = read_all(of(0, [1, 2]), &STUCK, PATIENCE, read).unwrap();
        assert_eq!(found, Found { files: numbers([2]), unread: vec![1] });
        let nothing = read_all(Vec::new(), &STUCK, PATIENCE, number).unwrap();
        assert_eq!(nothing, Found { files: HashSet::new(), unread: vec![] });
        let me = Process::find(std::process::id()).unwrap().unwrap();
        assert_eq!(me.user, rustix::process::geteuid().as_raw());
        assert_eq!(Process::find(u32::MAX).unwrap(), None);
    }
}
