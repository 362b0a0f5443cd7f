//! Memory for buffers of one block. A cache of file data has hundreds of thousands of them.
//!
//! The system's allocator gives a block aligned to its own size at the price of nearly two: its bookkeeping
//! lies in front of each. Here slabs of 2 MiB are divided into blocks with nothing between them, and a slab's
//! first block says which others are free.
//!
//! A slab belongs to one of a few *homes*, each with a lock of its own. A thread always takes blocks from the
//! same home, and any thread may give a block back. A block is taken from the slab with the lowest address
//! that has one, so that the others run empty; an empty slab goes back to the system unless it is the only
//! one of its home with room. The first block of a slab is the slab's own: it names the home, the free
//! blocks, and for each shared block the number of its owners. So a block's address leads to all of this, and
//! sharing a block takes no further memory. Invariants of a home: a slab is in `open` if and only if it has a
//! free block; a bit in `free` is set if and only if nobody has the block.
//!
//! **Forks.** Daemons open a volume and then fork, and the child goes on with it. A lock that another thread
//! held at that moment must not stay locked in the child for ever. So a fork takes all locks first and
//! releases them on both sides, as the system's allocator does. (The locks are the standard library's, which
//! keep nothing but a word: waiters that do not exist in the child do no harm.)

use rustix::mm::{madvise, Advice};
use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::BLOCK_SIZE;

/// The size of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

const SLAB_BYTES: usize = HUGE_PAGE;
const SLAB_BLOCKS: usize = SLAB_BYTES / BLOCK_SIZE;
const WORDS: usize = SLAB_BLOCKS / 64;
const HOMES: usize = 8;

/// Aligned to its size, so that a block's address tells its slab.
const SLAB: Layout = match Layout::from_size_align(SLAB_BYTES, SLAB_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

/// What the first block of a slab holds.
struct Header {
    home: u8,
    /// How many owners share each block. Zero unless a [`crate::SharedBuf`] owns it.
    shares: [AtomicU32; SLAB_BLOCKS],
    /// Guarded by the home's lock.
    free: UnsafeCell<[u64; WORDS]>,
}

const _: () = assert!(size_of::<Header>() <= BLOCK_SIZE);

/// All blocks of a slab are free but the first.
const ALL_FREE: [u64; WORDS] = {
    let mut words = [u64::MAX; WORDS];
    words[0] -= 1;
    words
};

#[derive(Default)]
struct Home {
    /// Addresses of the slabs with free blocks.
    open: BTreeSet<usize>,
}

static POOL: [Mutex<Home>; HOMES] = [const { Mutex::new(Home { open: BTreeSet::new() }) }; HOMES];

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
        // SAFETY: the functions live as long as the program, and may run in any thread: they lock and unlock,
        // no more.
        let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
        assert_eq!(failed, 0, "no memory to register what a fork needs");
    });
}

/// A block of memory that nobody else has, aligned to its size, with anything in it.
pub(crate) fn take() -> NonNull<u8> {
    let home = MINE.with(|home| *home);
    lock(home).take(home)
}

/// Gives back a block.
///
/// # Panics
/// If it was already given back.
///
/// # Safety
/// It was taken from here, and nobody uses it any more.
pub(crate) unsafe fn give_back(block: NonNull<u8>) {
    // SAFETY: the block was taken, so its slab is there.
    let header = unsafe { header(block) };
    let emptied = lock(header.home).give_back(header, block);
    if emptied {
        // SAFETY: allocated in `Home::take` with this layout; all its blocks are back, and it is in no home
        // any more.
        unsafe { dealloc(slab_of(block).as_ptr(), SLAB) }
    }
}

/// How many owners share the block.
///
/// # Safety
/// It was taken from here and not given back as long as the result lives.
pub(crate) unsafe fn shares<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: as the caller promises.
    unsafe { &header(block).shares[index(block)] }
}

fn slab_of(block: NonNull<u8>) -> NonNull<u8> {
    block.map_addr(|at| NonZero::new(at.get() & !(SLAB_BYTES - 1)).expect("no slab begins at zero"))
}

fn index(block: NonNull<u8>) -> usize {
    block.addr().get() % SLAB_BYTES / BLOCK_SIZE
}

/// # Safety
/// The block is one of a slab that lives as long as the result.
unsafe fn header<'a>(block: NonNull<u8>) -> &'a Header {
    // SAFETY: a slab begins with its header, which was written before any of its blocks was handed out, and
    // all of which but `free` is changed by atomics only.
    unsafe { slab_of(block).cast().as_ref() }
}

/// Asks for the memory to be huge pages where the system leaves that to programs. Parts that were touched
/// before stay as they are: where the allocator has zeroed them, as the C library's does.
pub(crate) fn want_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the range is the caller's own memory, and what is advised changes none of it. A system without
    // huge pages refuses, and all stays as it was.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
}

impl Home {
    fn take(&mut self, home: u8) -> NonNull<u8> {
        let start = match self.open.first() {
            Some(at) => {
                NonNull::new(std::ptr::with_exposed_provenance_mut(*at)).expect("no slab begins at zero")
            }
            None => self.add_slab(home),
        };
        // SAFETY: slabs that are open live.
        let header = unsafe { header(start) };
        // SAFETY: this is under the home's lock, as all that reads or writes `free`.
        let free = unsafe { &mut *header.free.get() };
        let word = free.iter().position(|w| *w != 0).expect("an open slab has a free block");
        let bit = free[word].trailing_zeros() as usize;
        free[word] &= free[word] - 1;
        if *free == [0; WORDS] {
            self.open.remove(&start.addr().get());
        }
        // SAFETY: word and bit are below what makes up a slab, so this stays inside the slab's allocation.
        unsafe { start.add((word * 64 + bit) * BLOCK_SIZE) }
    }

    fn add_slab(&mut self, home: u8) -> NonNull<u8> {
        // SAFETY: the layout has a size above zero.
        let Some(start) = NonNull::new(unsafe { alloc(SLAB) }) else { handle_alloc_error(SLAB) };
        // Blocks are used at random, and with small pages nearly each use misses the processor's table of
        // translations.
        want_huge_pages(start, SLAB_BYTES);
        let shares = [const { AtomicU32::new(0) }; SLAB_BLOCKS];
        let header = Header { home, shares, free: UnsafeCell::new(ALL_FREE) };
        // SAFETY: the memory is ours alone, aligned, and long enough.
        unsafe { start.cast().write(header) };
        self.open.insert(start.as_ptr().expose_provenance());
        start
    }

    /// True if the slab is now wholly free and not needed. The home has then forgotten it.
    fn give_back(&mut self, header: &Header, block: NonNull<u8>) -> bool {
        // SAFETY: this is under the home's lock, as all that reads or writes `free`.
        let free = unsafe { &mut *header.free.get() };
        let (word, bit) = (index(block) / 64, 1 << (index(block) % 64));
        assert_eq!(free[word] & bit, 0, "a block of memory given back twice");
        if *free == [0; WORDS] {
            self.open.insert(slab_of(block).addr().get());
        }
        free[word] |= bit;
        *free == ALL_FREE && self.open.len() > 1 && self.open.remove(&slab_of(block).addr().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks do not overlap, returned blocks are used again, and all empty slabs but one are freed.
    #[test]
    fn blocks_are_apart_and_slabs_go() {
        const OWN: usize = SLAB_BLOCKS - 1;
        let mut home = Home::default();
        let give_back = |home: &mut Home, block: NonNull<u8>| {
            // SAFETY: taken from this home, and not used.
            let emptied = home.give_back(unsafe { header(block) }, block);
            if emptied {
                // SAFETY: allocated by `take` with this layout, and out of its home.
                unsafe { dealloc(slab_of(block).as_ptr(), SLAB) }
            }
            emptied
        };
        let mut taken: Vec<NonNull<u8>> = (0..3 * OWN + 1).map(|_| home.take(0)).collect();
        let distinct: BTreeSet<usize> = taken.iter().map(|block| block.addr().get()).collect();
        assert_eq!(distinct.len(), taken.len());
        assert!(distinct.iter().all(|block| block % BLOCK_SIZE == 0 && block % SLAB_BYTES != 0));
        let slabs: BTreeSet<usize> = taken.iter().map(|block| slab_of(*block).addr().get()).collect();
        assert_eq!((slabs.len(), home.open.len()), (4, 1));
        let one = taken.swap_remove(9);
        assert!(!give_back(&mut home, one));
        let again = home.take(0);
        assert!(again == one || slab_of(again) < slab_of(one), "the lowest slab with room");
        taken.push(again);
        if again != one {
            assert_eq!(home.open.len(), 2);
        }
        let gone = taken.into_iter().filter(|block| give_back(&mut home, *block)).count();
        assert_eq!((gone, home.open.len()), (3, 1));
        let last = home.take(0);
        home.open.clear();
        // SAFETY: allocated by `take` with this layout, and out of its home.
        unsafe { dealloc(slab_of(last).as_ptr(), SLAB) }
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

    /// A child that was forked while other threads took and gave back blocks can do so too.
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
                        let block = lock(home).take(home);
                        // SAFETY: just taken, and used by nobody.
                        unsafe { give_back(block) };
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
