//! The locks that [`crate::inode`] orders. Debug builds check that threads take them in that order.
//!
//! Each thread keeps a list of the locks that it holds. Before it waits for another, it asserts the rules
//! below against the list, so every test in a debug build looks for lock cycles, also for those that it does
//! not run into. A thread that only tries a lock does not wait, so nothing is asserted; a lock that it gets
//! this way counts like the others.
//!
//! | waiting for | holding |
//! |---|---|
//! | rename lock | nothing |
//! | orphans lock | no state, no other orphans lock |
//! | a directory's state | no file's state, no io but its own; not itself |
//! | a file's io | no file's state; no io with the same or a greater number |
//! | a file's state | no file's state with the same or a greater number |
//!
//! The check cannot see that a directory comes after its parents: both are directories, and only names say
//! which is above.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use yore_format::InodeNo;

/// The place of a lock in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Keeps the tree's shape still.
    Rename,
    /// Guards the tree of orphans.
    Orphans,
    /// A directory's state.
    Directory(InodeNo),
    /// A file's io.
    Io(InodeNo),
    /// The state of anything but a directory.
    File(InodeNo),
}

#[cfg(debug_assertions)]
mod held {
    use crate::locks::Rank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    impl Rank {
        /// Whether a thread that holds `self` may wait for `next`.
        pub(super) fn may_precede(self, next: Rank) -> bool {
            use Rank::*;
            match (self, next) {
                (_, Rename) => false,
                (Rename, _) => true,
                (Io(_), Orphans) => true,
                (_, Orphans) => false,
                (Orphans, _) => true,
                (Directory(a), Directory(b)) => a != b,
                (Io(a), Directory(b)) => a == b,
                (File(_), Directory(_)) => false,
                (Directory(_), _) => true,
                (Io(a), Io(b)) => a < b,
                (File(_), Io(_)) => false,
                (Io(_), File(_)) => true,
                (File(a), File(b)) => a < b,
            }
        }
    }

    /// What a lock stores of its rank.
    pub(super) type StoredRank = Rank;

    /// A lock on its thread's list.
    pub(crate) struct Held(Rank);

    pub(super) fn stored_rank(rank: Rank) -> StoredRank {
        rank
    }

    /// Called when the thread is about to wait for a lock.
    pub(super) fn waits_for(next: StoredRank) {
        HELD.with_borrow(|held| {
            for rank in held {
                assert!(rank.may_precede(next), "waiting for {next:?} while holding {held:?}");
            }
        });
    }

    pub(super) fn holds(rank: StoredRank) -> Held {
        HELD.with_borrow_mut(|held| held.push(rank));
        Held(rank)
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let at =
                    held.iter().rposition(|rank| *rank == self.0).expect("a guard stays with its thread");
                held.remove(at);
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use crate::locks::Rank;

    /// Nothing: locks are as small as those of the library.
    #[derive(Clone, Copy)]
    pub(super) struct StoredRank;

    pub(crate) struct Held;

    pub(super) fn stored_rank(_: Rank) -> StoredRank {
        StoredRank
    }

    pub(super) fn waits_for(_: StoredRank) {}

    pub(super) fn holds(_: StoredRank) -> Held {
        Held
    }
}

use held::{holds, stored_rank, waits_for, Held, StoredRank};

/// A lock's guard. It is on its thread's list as long as it lives.
pub struct Guard<G> {
    // Dropped before `_held`: the lock is free before it leaves the list.
    guard: G,
    _held: Held,
}

impl<G> Guard<G> {
    fn wait(rank: StoredRank, lock: impl FnOnce() -> G) -> Guard<G> {
        waits_for(rank);
        let guard = lock();
        Guard { guard, _held: holds(rank) }
    }

    fn tried(rank: StoredRank, guard: Option<G>) -> Option<Guard<G>> {
        guard.map(|guard| Guard { guard, _held: holds(rank) })
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A held [`OrderedMutex`].
pub type Locked<'a> = Guard<MutexGuard<'a, ()>>;
/// An [`OrderedRwLock`] held for reading.
pub(crate) type Reading<'a, T> = Guard<RwLockReadGuard<'a, T>>;
/// An [`OrderedRwLock`] held for writing.
pub type Writing<'a, T> = Guard<RwLockWriteGuard<'a, T>>;

/// A mutex that has its place in the order.
pub struct OrderedMutex {
    rank: StoredRank,
    lock: Mutex<()>,
}

impl OrderedMutex {
    pub(crate) fn new(rank: Rank) -> OrderedMutex {
        OrderedMutex { rank: stored_rank(rank), lock: Mutex::new(()) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Locked<'_> {
        Guard::wait(self.rank, || self.lock.lock())
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        Guard::tried(self.rank, self.lock.try_lock())
    }
}

/// A lock for many readers or one writer that has its place in the order.
pub struct OrderedRwLock<T> {
    rank: StoredRank,
    lock: RwLock<T>,
}

impl<T> OrderedRwLock<T> {
    pub(crate) fn new(rank: Rank, value: T) -> OrderedRwLock<T> {
        OrderedRwLock { rank: stored_rank(rank), lock: RwLock::new(value) }
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> Reading<'_, T> {
        Guard::wait(self.rank, || self.lock.read())
    }

    /// Waits until nobody else has it.
    pub fn write(&self) -> Writing<'_, T> {
        Guard::wait(self.rank, || self.lock.write())
    }

    /// Takes the lock if nobody has it.
    pub fn try_write(&self) -> Option<Writing<'_, T>> {
        Guard::tried(self.rank, self.lock.try_write())
    }

    /// The value, if nobody writes.
    pub fn try_read(&self) -> Option<Reading<'_, T>> {
        Guard::tried(self.rank, self.lock.try_read())
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use crate::locks::*;

    fn waits(holding: Rank, next: Rank) -> bool {
        holding.may_precede(next)
    }

    /// The order of the table above, in both directions.
    #[test]
    fn locks_have_one_order() {
        use Rank::*;
        let (a, b) = (InodeNo(16), InodeNo(17));
        let order = [Rename, Orphans, Directory(a), Io(a), File(a), File(b)];
        for (i, first) in order.into_iter().enumerate() {
            assert!(!waits(first, first), "{first:?} by a thread that has it");
            for second in order.into_iter().skip(i + 1) {
                assert!(waits(first, second), "{first:?} before {second:?}");
                // A thread with io may wait for the orphans lock, and for its own inode's state, also if that
                // inode is a directory (whose io serves only freeing).
                let exempt = second == Io(a) && matches!(first, Orphans | Directory(_));
                assert_eq!(waits(second, first), exempt, "{second:?} before {first:?}");
            }
        }
        assert!(waits(Directory(b), Directory(a)) && waits(Directory(a), Directory(b)), "a tree says which");
    }

    /// A dropped guard leaves the list, in whatever order guards are dropped. A lock that was only tried is
    /// on the list.
    #[test]
    fn what_is_held_is_known() {
        let (orphans, io) = (OrderedMutex::new(Rank::Orphans), OrderedMutex::new(Rank::Io(InodeNo(16))));
        let (file, other) = [16, 17].map(|n| OrderedRwLock::new(Rank::File(InodeNo(n)), n)).into();
        let held = orphans.lock();
        let tried = io.try_lock().expect("nobody else has it");
        drop(held);
        let held = orphans.lock();
        let state = file.write();
        drop((tried, held));
        assert_eq!(*other.read() + *state, 33);
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(io.lock())));
        assert!(waited.is_err(), "io after state");
    }
}
