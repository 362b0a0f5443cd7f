//! How many of a session's threads take requests.
//!
//! The kernel hands a request to whichever thread has waited longest for one. With many threads they take
//! turns, each with cold caches and on another processor, although one would do; with few, threads that wait
//! for the device leave requests lying. So a thread that has answered its request and is not needed **rests**
//! before it asks for the next one, and comes back when those at work wait.
//!
//! Of a session's threads that have served before, `awake` do not rest, `serving` of these have a request,
//! and `waiting` of those wait for something. The others are asking the kernel for a request. Three rules:
//!
//! - *Call* (W1): if nobody is asking, and fewer than `wanted` are at work without waiting, one that rests is
//!   called. Whoever takes a request or begins to wait looks after that.
//! - *Rest* (W2): who has answered rests if another is asking, and more than `wanted` do not wait.
//! - *Watch* (W3): what waits without saying so (for a lock, or where a full cache slows writers down) is
//!   found by a thread that looks every [`TICK`], and only while nobody is asking. A request that was there
//!   at its last look counts as waiting.
//!
//! **How many are wanted** follows the load (W4): one, until the watching thread finds nobody asking at
//! nearly every look; then one more, and so on; and fewer again when there is nearly always somebody asking.
//! At most half of the processors are wanted, since whoever sends a request takes about as long for it as
//! Yore does.
//!
//! **No request is left lying while a thread rests**, but for two ticks. W1 and W2 look at the same counters
//! in opposite order, each after its own change: who takes the last place counts itself, then looks who is
//! awake; who rests first counts itself out, then looks who serves. So at least one of them sees the other.
//! If all are at work and do not wait, each comes back by itself; if they wait, W3 sees it.
//!
//! **At least one thread that does not rest is there**, as `wanted` is: it learns from the kernel that the
//! connection is over, and ends. A thread that ends wakes all, and nobody rests after that.
//!
//! A thread that rests has sent its answer and holds nothing. Threads that never had a request are not
//! counted: they ask the kernel, and the kernel comes to them in turn.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use yore_fs::waits::Waits;

/// How often the watching thread looks. Requests are served in a hundredth of this.
const TICK: Duration = Duration::from_millis(1);
/// After so many looks at which somebody was asking, the thread no longer looks.
const QUIET_TICKS: u32 = 50;
/// After so many looks it is decided how many servers are wanted.
const SPAN_TICKS: u32 = 32;

const IDLE: u64 = 0;
const SERVING: u64 = 1;
const WAITING: u64 = 2;
/// The lowest bits of [`Place::state`] are one of the above; those above count requests.
const STATES: u64 = 4;

/// One thread: which request it serves, and whether it waits meanwhile. Only the thread itself begins and
/// ends a request; the watching thread may say that it waits.
#[derive(Default)]
struct Place {
    state: AtomicU64,
}

impl Place {
    /// Changes what the thread does during its request, if it does `from`.
    fn turn(&self, seen: u64, from: u64, to: u64) -> bool {
        let request = seen - seen % STATES;
        self.state.compare_exchange(request + from, request + to, SeqCst, SeqCst).is_ok()
    }
}

#[derive(Default)]
struct Room {
    places: Vec<Arc<Place>>,
    resting: usize,
    /// How many of those that rest are called and have not woken up yet.
    called: usize,
    ended: bool,
}

/// The threads of a session that serve.
pub(crate) struct Servers {
    /// How many should be at work without waiting.
    wanted: AtomicUsize,
    /// The most that may ever be wanted.
    most: usize,
    awake: AtomicUsize,
    serving: AtomicUsize,
    waiting: AtomicUsize,
    /// As in the room, to look at without its lock.
    resting: AtomicUsize,
    room: Mutex<Room>,
    call: Condvar,
    watched: AtomicBool,
    watch: Condvar,
}

impl Default for Servers {
    fn default() -> Servers {
        Servers::new(std::thread::available_parallelism().map_or(1, |n| n.get() / 2))
    }
}

impl Servers {
    fn new(most: usize) -> Servers {
        Servers {
            wanted: AtomicUsize::new(1),
            most: most.max(1),
            awake: AtomicUsize::new(0),
            serving: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            resting: AtomicUsize::new(0),
            room: Mutex::default(),
            call: Condvar::new(),
            watched: AtomicBool::new(false),
            watch: Condvar::new(),
        }
    }

    /// Whether nobody is asking the kernel for a request.
    fn nobody_asks(&self) -> bool {
        self.serving.load(SeqCst) >= self.awake.load(SeqCst)
    }

    /// How many have a request and do not wait.
    fn at_work(&self) -> usize {
        self.serving.load(SeqCst).saturating_sub(self.waiting.load(SeqCst))
    }

    /// Rule W1.
    fn see_to_askers(&self) {
        if !self.nobody_asks() || self.resting.load(SeqCst) == 0 {
            return;
        }
        if self.at_work() < self.wanted.load(SeqCst) {
            let mut room = self.room.lock();
            if room.called < room.resting {
                room.called += 1;
                self.awake.fetch_add(1, SeqCst);
                self.call.notify_one();
            }
        } else if !self.watched.load(SeqCst) && !self.watched.swap(true, SeqCst) {
            let _room = self.room.lock();
            self.watch.notify_one();
        }
    }

    /// Rule W2.
    fn rest_if_spare(&self) {
        let asking = |awake: usize| awake.saturating_sub(self.serving.load(SeqCst));
        let spare = |awake: usize| awake.saturating_sub(self.waiting.load(SeqCst)) > self.wanted.load(SeqCst);
        let awake = self.awake.load(SeqCst);
        if asking(awake) < 2 || !spare(awake) {
            return;
        }
        let mut room = self.room.lock();
        if room.ended || !spare(self.awake.load(SeqCst)) {
            return;
        }
        room.resting += 1;
        self.resting.store(room.resting, SeqCst);
        self.awake.fetch_sub(1, SeqCst);
        if self.nobody_asks() {
            // The other one has got a request meanwhile.
            self.awake.fetch_add(1, SeqCst);
        } else {
            while room.called == 0 && !room.ended {
                self.call.wait(&mut room);
            }
            match room.called {
                // The session is over; nobody counted this one in.
                0 => _ = self.awake.fetch_add(1, SeqCst),
                _ => room.called -= 1,
            }
        }
        room.resting -= 1;
        self.resting.store(room.resting, SeqCst);
    }

    /// Nobody rests from now on, and the watching thread ends.
    pub(crate) fn end(&self) {
        let mut room = self.room.lock();
        room.ended = true;
        self.call.notify_all();
        self.watch.notify_all();
    }

    /// Starts the thread of rule W3. It ends after [`Servers::end`].
    pub(crate) fn start_watch(self: &Arc<Servers>) -> std::io::Result<JoinHandle<()>> {
        let servers = self.clone();
        std::thread::Builder::new().name("yore-watch".into()).spawn(move || servers.keep_watch())
    }

    fn keep_watch(&self) {
        let mut seen: Vec<(Arc<Place>, u64)> = Vec::new();
        let mut quiet = 0;
        let mut load = Load::default();
        let mut room = self.room.lock();
        while !room.ended {
            if !self.watched.load(SeqCst) {
                self.watch.wait(&mut room);
                quiet = 0;
                continue;
            }
            self.watch.wait_for(&mut room, TICK);
            for (place, before) in &seen {
                if place.turn(*before, SERVING, WAITING) {
                    self.waiting.fetch_add(1, SeqCst);
                }
            }
            seen.clear();
            let now = |place: &Arc<Place>| (place.clone(), place.state.load(SeqCst));
            seen.extend(room.places.iter().map(now).filter(|(_, state)| state % STATES == SERVING));
            let nobody_asks = self.nobody_asks();
            self.wanted.store(load.add(nobody_asks, self.wanted.load(SeqCst), self.most), SeqCst);
            quiet = if nobody_asks { 0 } else { quiet + 1 };
            if quiet > QUIET_TICKS {
                self.watched.store(false, SeqCst);
                // Who has taken the last place meanwhile may have found it watched.
                self.watched.fetch_or(self.nobody_asks(), SeqCst);
                self.wanted.store(1, SeqCst);
            }
            parking_lot::MutexGuard::unlocked(&mut room, || self.see_to_askers());
        }
    }
}

/// What the watching thread has seen in a span (W4).
#[derive(Default)]
struct Load {
    ticks: u32,
    /// At how many of them nobody was asking.
    busy: u32,
}

impl Load {
    /// One more tick; returns how many servers are wanted from now on.
    fn add(&mut self, nobody_asks: bool, wanted: usize, most: usize) -> usize {
        self.ticks += 1;
        self.busy += u32::from(nobody_asks);
        if self.ticks < SPAN_TICKS {
            return wanted;
        }
        let Load { busy, .. } = std::mem::take(self);
        if busy + 1 >= SPAN_TICKS {
            (wanted + 1).min(most)
        } else if busy <= SPAN_TICKS / 4 {
            (wanted - 1).max(1)
        } else {
            wanted
        }
    }
}

/// A thread of the session, from its first request to its end.
pub(crate) struct Seat {
    servers: Arc<Servers>,
    place: Arc<Place>,
}

impl Seat {
    /// The calling thread, which has just got its first request.
    pub(crate) fn new(servers: &Arc<Servers>) -> Seat {
        let place = Arc::<Place>::default();
        servers.room.lock().places.push(place.clone());
        servers.awake.fetch_add(1, SeqCst);
        Seat { servers: servers.clone(), place }
    }

    /// A request is served from here on.
    pub(crate) fn begin(&self) {
        let request = self.place.state.load(SeqCst) + STATES;
        self.place.state.store(request + SERVING, SeqCst);
        self.servers.serving.fetch_add(1, SeqCst);
        self.servers.see_to_askers();
    }

    /// The request is answered.
    pub(crate) fn end(&self) {
        let request = self.place.state.load(SeqCst) / STATES * STATES;
        if self.place.state.swap(request + IDLE, SeqCst) % STATES == WAITING {
            self.servers.waiting.fetch_sub(1, SeqCst);
        }
        self.servers.serving.fetch_sub(1, SeqCst);
    }

    /// Returns when the thread is needed. It must hold nothing that anybody waits for.
    pub(crate) fn rest_if_spare(&self) {
        self.servers.rest_if_spare();
    }

    /// What tells of the thread's waits.
    pub(crate) fn waits(&self) -> Arc<dyn Waits> {
        Arc::new(Waiting { servers: self.servers.clone(), place: self.place.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.servers.end();
        self.servers.room.lock().places.retain(|place| !Arc::ptr_eq(place, &self.place));
        self.servers.awake.fetch_sub(1, SeqCst);
    }
}

struct Waiting {
    servers: Arc<Servers>,
    place: Arc<Place>,
}

impl Waits for Waiting {
    fn begin(&self) -> bool {
        let begun = self.place.turn(self.place.state.load(SeqCst), SERVING, WAITING);
        if begun {
            self.servers.waiting.fetch_add(1, SeqCst);
            self.servers.see_to_askers();
        }
        begun
    }

    fn end(&self) {
        if self.place.turn(self.place.state.load(SeqCst), WAITING, SERVING) {
            self.servers.waiting.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Sender};
    use std::sync::{mpsc::Receiver, Barrier};
    use yore_fs::waits;

    type Job = Box<dyn FnOnce() + Send>;

    /// A session without a kernel: `threads` of them serve what is sent.
    struct Session {
        servers: Arc<Servers>,
        requests: Option<Sender<Job>>,
        threads: Vec<JoinHandle<()>>,
    }

    fn serve(servers: &Arc<Servers>, requests: &Mutex<Receiver<Job>>) {
        let mut seat = None;
        loop {
            let request = requests.lock().recv();
            let Ok(request) = request else { return };
            let seat = seat.get_or_insert_with(|| {
                let seat = Seat::new(servers);
                waits::tell(seat.waits());
                seat
            });
            seat.begin();
            request();
            seat.end();
            seat.rest_if_spare();
        }
    }

    impl Session {
        /// All but one of the threads rest when this returns.
        fn resting(threads: usize) -> Session {
            let servers = Arc::new(Servers::new(1));
            let watch = servers.start_watch().unwrap();
            let (requests, served) = channel::<Job>();
            let served = Arc::new(Mutex::new(served));
            let mut all = vec![watch];
            for _ in 0..threads {
                let (servers, served) = (servers.clone(), served.clone());
                all.push(std::thread::spawn(move || serve(&servers, &served)));
            }
            while servers.resting.load(SeqCst) < threads - 1 {
                requests.send(Box::new(std::thread::yield_now)).unwrap();
                std::thread::yield_now();
            }
            Session { servers, requests: Some(requests), threads: all }
        }

        fn send(&self, request: impl FnOnce() + Send + 'static) {
            self.requests.as_ref().unwrap().send(Box::new(request)).unwrap();
        }

        fn end(mut self) {
            drop(self.requests.take());
            self.threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((self.servers.awake.load(SeqCst), self.servers.waiting.load(SeqCst)), (0, 0));
            assert_eq!((self.servers.serving.load(SeqCst), self.servers.resting.load(SeqCst)), (0, 0));
        }
    }

    /// Requests that wait for each other are all served, although one thread is wanted, whether they say that
    /// they wait or not. Afterwards the threads rest again; the end of one ends all.
    #[test]
    fn requests_that_wait_for_each_other_are_served() {
        for tell in [true, false] {
            let session = Session::resting(5);
            for _ in 0..3 {
                let all = Arc::new(Barrier::new(6));
                for _ in 0..5 {
                    let all = all.clone();
                    session.send(move || match tell {
                        true => _ = waits::waiting(|| all.wait()),
                        false => _ = all.wait(),
                    });
                }
                all.wait();
                while session.servers.resting.load(SeqCst) < 4 {
                    session.send(|| ());
                    std::thread::yield_now();
                }
            }
            session.end();
        }
    }

    /// Four clients, each of which sends its next request when the last is answered: none is left lying.
    #[test]
    fn no_request_is_left_lying() {
        let session = Session::resting(4);
        std::thread::scope(|scope| {
            for client in 0..4 {
                let session = &session;
                scope.spawn(move || {
                    for i in 0..500 {
                        let (answer, answered) = channel();
                        session.send(move || {
                            if (i + client) % 7 == 0 {
                                waits::waiting(std::thread::yield_now);
                            }
                            answer.send(()).unwrap();
                        });
                        answered.recv().unwrap();
                    }
                });
            }
        });
        session.end();
    }

    /// One more is wanted when nobody was asking all the time, up to the most; one less when somebody nearly
    /// always was, down to one.
    #[test]
    fn how_many_are_wanted_follows_the_load() {
        let span = |wanted, most, busy: u32| {
            let mut load = Load::default();
            (0..SPAN_TICKS).fold(wanted, |wanted, tick| load.add(tick < busy, wanted, most))
        };
        assert_eq!([span(1, 4, 32), span(1, 4, 31), span(1, 4, 20), span(1, 4, 0)], [2, 2, 1, 1]);
        assert_eq!([span(4, 4, 32), span(1, 1, 32), span(3, 4, 8), span(3, 4, 9)], [4, 1, 2, 3]);
    }
}
