//! Memory for buffers of one block, which a cache of file data has by the hundred thousand.
//!
//! The system's allocator gives a block aligned to its own size at the price of nearly two: its bookkeeping lies in
//! front of each. Here slabs of 2 MiB are cut into blocks without anything between them, and what is free is known
//! beside them.
//!
//! A slab belongs to one of a few *homes*, each with a lock of its own; a thread takes blocks from always the same home,
//! and a block remembers its home, to which any thread may give it back. A block is taken from the slab with the lowest
//! address that has one, so that the others run empty; an empty slab goes back to the system unless it is the only one of
//! its home with room. Invariants of a home: a slab is in `open` if and only if it has a free block; a bit in `free` is
//! set if and only if nobody has the block.
//!
//! **Forks.** Daemons open a volume and then fork, and the child goes on with it, so a lock that another thread held at
//! that moment must not stay locked in the child for ever. As the system's allocator does, a fork takes all locks first
//! and lets go of them on both sides. (So they are the standard library's, which keep nothing but a word: waiters that
//! do not exist in the child do it no harm.)

use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::BLOCK_SIZE;

const SLAB_BYTES: usize = 2 << 20;
const SLAB_BLOCKS: usize = SLAB_BYTES / BLOCK_SIZE;
const WORDS: usize = SLAB_BLOCKS / 64;
const HOMES: usize = 8;

/// Aligned to its size, so that a block's address tells its slab.
const SLAB: Layout = match Layout::from_size_align(SLAB_BYTES, SLAB_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

struct Slab {
    start: NonNull<u8>,
    free: [u64; WORDS],
}

// SAFETY: a slab owns its memory, but for the blocks it has handed out, which it does not touch.
unsafe impl Send for Slab {}

#[derive(Default)]
struct Home {
    /// By address.
    slabs: BTreeMap<usize, Slab>,
    open: BTreeSet<usize>,
}

static POOL: [Mutex<Home>; HOMES] =
    [const { Mutex::new(Home { slabs: BTreeMap::new(), open: BTreeSet::new() }) }; HOMES];

thread_local! {
    static MINE: u8 = {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        survive_forks();
        NEXT.fetch_add(1, Ordering::Relaxed) % HOMES as u8
    };
    /// All homes, locked, in a thread that is forking.
    static HELD: RefCell<[Option<MutexGuard<'static, Home>>; HOMES]> = const { RefCell::new([const { None }; HOMES]) };
}

fn lock(home: u8) -> MutexGuard<'static, Home> {
    // A panic here is an assertion before anything was changed.
    POOL[usize::from(home)].lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before_fork() {
    HELD.with_borrow_mut(|held| held.iter_mut().zip(0..).for_each(|(held, home)| *held = Some(lock(home))));
}

extern "C" fn after_fork() {
    HELD.with_borrow_mut(|held| held.iter_mut().for_each(|held| *held = None));
}

fn survive_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the functions live as long as the program, and may run in any thread: they lock and unlock, no more.
        let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
        assert_eq!(failed, 0, "no memory to register what a fork needs");
    });
}

/// A block of memory that nobody else has, aligned to its size, with anything in it; and its home, for [`give_back`].
pub(crate) fn take() -> (NonNull<u8>, u8) {
    let home = MINE.with(|home| *home);
    (lock(home).take(), home)
}

/// Gives back a block.
///
/// # Panics
/// If it was not taken, or already given back.
///
/// # Safety
/// Nobody uses the block any more.
pub(crate) unsafe fn give_back(block: NonNull<u8>, home: u8) {
    let emptied = lock(home).give_back(block.addr().get());
    if let Some(slab) = emptied {
        // SAFETY: allocated in `Home::take` with this layout; all its blocks are back, and it is in no home any more.
        unsafe { dealloc(slab.start.as_ptr(), SLAB) }
    }
}

impl Home {
    fn take(&mut self) -> NonNull<u8> {
        let at = match self.open.first() {
            Some(at) => *at,
            None => {
                // SAFETY: the layout has a size above zero.
                let Some(start) = NonNull::new(unsafe { alloc(SLAB) }) else { handle_alloc_error(SLAB) };
                let at = start.addr().get();
                self.slabs.insert(at, Slab { start, free: [u64::MAX; WORDS] });
                self.open.insert(at);
                at
            }
        };
        let slab = self.slabs.get_mut(&at).expect("an open slab is there");
        let word = slab.free.iter().position(|w| *w != 0).expect("an open slab has a free block");
        let bit = slab.free[word].trailing_zeros() as usize;
        slab.free[word] &= slab.free[word] - 1;
        if slab.free == [0; WORDS] {
            self.open.remove(&at);
        }
        // SAFETY: word and bit are below what makes up a slab, so this stays inside the slab's allocation.
        unsafe { slab.start.add((word * 64 + bit) * BLOCK_SIZE) }
    }

    /// The slab, if it is wholly free now and not needed.
    fn give_back(&mut self, address: usize) -> Option<Slab> {
        let at = address & !(SLAB_BYTES - 1);
        let slab = self.slabs.get_mut(&at).expect("a block's slab is in its home");
        let block = (address - at) / BLOCK_SIZE;
        let bit = 1 << (block % 64);
        assert_eq!(slab.free[block / 64] & bit, 0, "a block of memory given back twice");
        slab.free[block / 64] |= bit;
        self.open.insert(at);
        if slab.free == [u64::MAX; WORDS] && self.open.len() > 1 {
            self.open.remove(&at);
            return self.slabs.remove(&at);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks do not overlap; what is given back is taken again; empty slabs go, but for one.
    #[test]
    fn blocks_are_apart_and_slabs_go() {
        let mut home = Home::default();
        let taken: Vec<usize> = (0..3 * SLAB_BLOCKS + 1).map(|_| home.take().addr().get()).collect();
        let distinct: BTreeSet<usize> = taken.iter().copied().collect();
        assert_eq!(distinct.len(), taken.len());
        assert!(taken.iter().all(|block| block % BLOCK_SIZE == 0));
        assert_eq!((home.slabs.len(), home.open.len()), (4, 1));
        assert!(home.give_back(taken[9]).is_none());
        let again = home.take().addr().get();
        assert!(again == taken[9] || again > taken[3 * SLAB_BLOCKS], "the lowest slab with room");
        let mut gone = Vec::new();
        for block in distinct.into_iter().filter(|b| *b != taken[9] || again == *b) {
            gone.extend(home.give_back(block));
        }
        if again != taken[9] {
            gone.extend(home.give_back(again));
        }
        assert_eq!((gone.len(), home.slabs.len(), home.open.len()), (3, 1, 1));
        gone.extend(home.slabs.into_values());
        for slab in gone {
            // SAFETY: allocated by `take` with this layout, and out of its home.
            unsafe { dealloc(slab.start.as_ptr(), SLAB) }
        }
    }

    /// Threads that pass blocks to one another never have one at the same time.
    #[test]
    fn threads_pass_blocks_on() {
        use crate::AlignedBuf;
        let (send, receive) = std::sync::mpsc::channel::<(u8, AlignedBuf)>();
        std::thread::scope(|scope| {
            for mark in 1..=4 {
                let send = send.clone();
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let mut block = AlignedBuf::zeroed(1);
                        assert!(block.iter().all(|byte| *byte == 0));
                        block.fill(mark);
                        send.send((mark, block)).unwrap();
                    }
                });
            }
            drop(send);
            for (mark, block) in receive {
                assert!(block.iter().all(|byte| *byte == mark));
            }
        });
    }

    /// A child forked while other threads take and give back can do so, too.
    #[test]
    fn forks_find_no_lock_held() {
        use crate::AlignedBuf;
        use std::sync::atomic::AtomicBool;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(AlignedBuf::zeroed(1))
                    }
                });
            }
            for _ in 0..10 {
                let kept = AlignedBuf::zeroed(1);
                // SAFETY: the child uses nothing but this pool, and ends at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    drop(kept);
                    for home in 0..HOMES as u8 {
                        let block = lock(home).take();
                        // SAFETY: just taken, and used by nobody.
                        unsafe { give_back(block, home) };
                    }
                    // SAFETY: ends the child at once; nothing of the test harness runs in it.
                    unsafe { libc::_exit(0) };
                }
                let mut status = -1;
                // SAFETY: `status` is valid for the call, and the child is ours.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "the child failed");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
