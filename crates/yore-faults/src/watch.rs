//! Fails a test that panics in any thread, hangs, or takes too much memory.
//!
//! A case runs between [`Watch::case`] and the next one. A hook sees *panics*, in whichever thread they
//! happen: a volume has threads of its own, and one that dies does not fail a test by itself. A thread sees
//! *hangs*, and ends the process with the case's name, because nothing else ends a loop. The limit is far
//! above what any case takes, so that a busy machine does not count as a hang. [`Counting`], which a test
//! binary installs, counts *memory*.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long one case may take before it counts as hanging.
pub const HANG: Duration = Duration::from_secs(60);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The case that runs, for the hook: a panic within a panic ends the process before anything else can report
/// the case.
static CASE: Mutex<String> = Mutex::new(String::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts live bytes; install it with `#[global_allocator]`.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grew(by: usize) {
    let live = LIVE.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; whatever was allocated came from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grew(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Bytes allocated now, if [`Counting`] is installed; else 0.
pub fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at once since [`restart_peak`].
pub fn peak_bytes() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Restarts the measurement of the peak.
pub fn restart_peak() {
    PEAK.store(live_bytes(), Ordering::Relaxed);
}

/// Runs cases one after the other. Only one exists in a process at a time, so that a panic belongs to one
/// case.
pub struct Watch {
    memory: usize,
    running: Arc<(Mutex<Running>, Condvar)>,
    failures: Vec<String>,
    cases: usize,
    _alone: MutexGuard<'static, ()>,
}

#[derive(Default)]
struct Running {
    number: usize,
    name: Option<String>,
    over: bool,
}

impl Watch {
    /// Begins; cases may take `memory` bytes beyond what there was before each.
    pub fn new(memory: usize) -> Watch {
        static ALONE: Mutex<()> = Mutex::new(());
        static HOOK: OnceLock<()> = OnceLock::new();
        let alone = locked(&ALONE);
        HOOK.get_or_init(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                locked(&PANICS).push(info.to_string());
                eprintln!("in the case \"{}\":", locked(&CASE));
                before(info);
            }));
        });
        locked(&PANICS).clear();
        let running: Arc<(Mutex<Running>, Condvar)> = Arc::default();
        let watched = running.clone();
        std::thread::spawn(move || watch(&watched));
        Watch { memory, running, failures: Vec::new(), cases: 0, _alone: alone }
    }

    /// Runs one case, and keeps its failures for [`Watch::finish`].
    pub fn case(&mut self, name: impl Into<String>, run: impl FnOnce()) {
        let name = name.into();
        self.cases += 1;
        {
            let mut running = locked(&self.running.0);
            running.number += 1;
            running.name = Some(name.clone());
            self.running.1.notify_all();
        }
        locked(&CASE).clone_from(&name);
        restart_peak();
        let before = live_bytes();
        let result = catch_unwind(AssertUnwindSafe(run));
        locked(&self.running.0).name = None;
        let taken = peak_bytes().saturating_sub(before);
        let panics = std::mem::take(&mut *locked(&PANICS));
        for panic in &panics {
            self.failures.push(format!("{name}: {panic}"));
        }
        if result.is_err() && panics.is_empty() {
            self.failures.push(format!("{name}: unwound without a panic"));
        }
        if taken > self.memory {
            self.failures.push(format!("{name}: took {taken} bytes, more than {}", self.memory));
        }
    }

    /// Cases run so far.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// What went wrong so far.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Fails if a case has failed.
    ///
    /// # Panics
    /// With all failures; that is its purpose.
    pub fn finish(self) {
        let failures = &self.failures;
        let shown = failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(failures.is_empty(), "{} failures in {} cases:\n  {shown}", failures.len(), self.cases);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        locked(&self.running.0).over = true;
        self.running.1.notify_all();
    }
}

/// Ends the process if one case runs for longer than [`HANG`].
fn watch(running: &(Mutex<Running>, Condvar)) {
    let mut seen = locked(&running.0);
    while !seen.over {
        let number = seen.number;
        let waited = running.1.wait_timeout(seen, HANG).unwrap_or_else(PoisonError::into_inner);
        seen = waited.0;
        if waited.1.timed_out() && seen.number == number && !seen.over {
            if let Some(name) = &seen.name {
                eprintln!("{name}: hangs");
                std::process::abort();
            }
        }
    }
}
