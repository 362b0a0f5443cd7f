//! Tells whoever runs a thread when that thread waits: for the device, or for another thread that does.
//!
//! What has few threads for many requests (a mount) lets another one take the next request meanwhile. It
//! cannot know by itself where a call waits, far below. So each of its threads names who is to be told
//! ([`tell`]), and code that may wait for long does so inside [`waiting`]. On threads that named nobody this
//! costs a look at a variable of the thread.
//!
//! Locks that are held for a short time are not such waits. Forgetting one costs speed, never correctness.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Is told of the waits of one thread, on that thread.
pub trait Waits {
    /// The thread is about to wait. Returns whether to tell of the end of it, too.
    fn begin(&self) -> bool;
    /// The thread has waited.
    fn end(&self);
}

thread_local! {
    static NAMED: Cell<bool> = const { Cell::new(false) };
    static TOLD: RefCell<Option<Arc<dyn Waits>>> = const { RefCell::new(None) };
}

/// Has `waits` told of the waits of the calling thread, for as long as that lives.
pub fn tell(waits: Arc<dyn Waits>) {
    TOLD.with_borrow_mut(|told| *told = Some(waits));
    NAMED.set(true);
}

/// Runs what may wait. A wait within a wait is told once.
#[inline]
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let _told = if NAMED.get() { Told::begin() } else { None };
    wait()
}

/// Tells of the end, after a panic, too.
struct Told(Arc<dyn Waits>);

impl Told {
    #[cold]
    fn begin() -> Option<Told> {
        // In the destructors of a thread there may be nobody left.
        let told = TOLD.try_with(|told| told.borrow().clone()).ok().flatten()?;
        told.begin().then(|| Told(told))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    #[derive(Default)]
    struct Counts {
        waits: AtomicBool,
        begun: AtomicUsize,
        ended: AtomicUsize,
    }

    impl Waits for Counts {
        fn begin(&self) -> bool {
            self.begun.fetch_add(1, SeqCst);
            !self.waits.swap(true, SeqCst)
        }

        fn end(&self) {
            self.waits.store(false, SeqCst);
            self.ended.fetch_add(1, SeqCst);
        }
    }

    /// A wait within a wait ends with the outer one; a panic ends it, too; other threads tell nobody.
    #[test]
    fn each_wait_is_told_once() {
        let counts = Arc::<Counts>::default();
        let told = counts.clone();
        let thread = std::thread::spawn(move || {
            tell(told.clone());
            assert_eq!(waiting(|| waiting(|| told.ended.load(SeqCst))), 0);
            assert!(std::panic::catch_unwind(|| waiting(|| panic!("planted"))).is_err());
        });
        thread.join().unwrap();
        waiting(|| ());
        assert_eq!((counts.begun.load(SeqCst), counts.ended.load(SeqCst)), (3, 2));
    }
}
