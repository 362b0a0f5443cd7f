//! Buffers that every device can use without copying.
//!
//! Direct I/O wants the user's memory aligned to the device's sectors. An [`AlignedBuf`] begins at a page
//! boundary and is whole blocks long, which satisfies every device this crate opens; any other memory works
//! too but is copied through such a buffer on the way. Invariant: `pointer` is an allocation of exactly
//! `blocks * BLOCK_SIZE` initialised bytes, aligned to [`BLOCK_SIZE`]: from the pool if `blocks` is 1; from
//! the system if it is more; dangling if it is 0.
//!
//! A buffer of 2 MiB or more is made of huge pages where there are any. Each piece of memory that lies apart
//! is a piece of work for whoever carries out a request, and a small page is such a piece: a virtual disk
//! gave 1.2 GB/s into small pages, and 3.2 GB/s into a huge one (docs/PERFORMANCE.md).

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, Ordering};

use crate::pool::{self, want_huge_pages, HUGE_PAGE};
use crate::BLOCK_SIZE;

/// A heap buffer of whole blocks that begins at a multiple of [`BLOCK_SIZE`] in memory.
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    blocks: u32,
}

const _: () = assert!(size_of::<AlignedBuf>() == 16);

// SAFETY: the buffer owns its allocation alone, as `Box<[u8]>` does, and bytes may move between threads.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads the bytes; writing needs `&mut`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `blocks` blocks of zeros; 0 blocks is allowed and takes no memory.
    ///
    /// # Panics
    /// If the size in bytes does not fit the address space. Aborts, as every allocation, if there is no
    /// memory.
    pub fn zeroed(blocks: usize) -> Self {
        let blocks = u32::try_from(blocks).unwrap_or_else(|_| too_large(blocks));
        match blocks {
            0 => AlignedBuf { pointer: NonNull::dangling(), blocks },
            1 => {
                let pointer = pool::take();
                // SAFETY: the block is ours alone, and this long.
                unsafe { pointer.write_bytes(0, BLOCK_SIZE) };
                AlignedBuf { pointer, blocks }
            }
            _ => {
                let layout = Self::layout(blocks);
                // SAFETY: the layout has a size above zero, since `blocks` is not 0.
                let pointer = unsafe { alloc_zeroed(layout) };
                let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
                if layout.align() == HUGE_PAGE {
                    want_huge_pages(pointer, layout.size());
                }
                AlignedBuf { pointer, blocks }
            }
        }
    }

    /// A buffer with a copy of `bytes`, filled up with zeros to a whole number of blocks.
    pub fn from_slice(bytes: &[u8]) -> Self {
        if (1..=BLOCK_SIZE).contains(&bytes.len()) {
            let pointer = pool::take();
            // SAFETY: the block is ours alone, so it does not overlap `bytes`, and both parts lie within it.
            unsafe {
                pointer.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
                pointer.add(bytes.len()).write_bytes(0, BLOCK_SIZE - bytes.len());
            }
            return AlignedBuf { pointer, blocks: 1 };
        }
        let mut buf = Self::zeroed(bytes.len().div_ceil(BLOCK_SIZE));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    fn layout(blocks: u32) -> Layout {
        let blocks = blocks as usize;
        blocks
            .checked_mul(BLOCK_SIZE)
            .and_then(|bytes| {
                let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { BLOCK_SIZE };
                Layout::from_size_align(bytes, align).ok()
            })
            .unwrap_or_else(|| too_large(blocks))
    }
}

fn too_large(blocks: usize) -> ! {
    panic!("a buffer of {blocks} blocks does not fit the address space")
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match self.blocks {
            0 => (),
            // SAFETY: taken in `zeroed`, and given back only here.
            1 => unsafe { pool::give_back(self.pointer) },
            // SAFETY: allocated in `zeroed` with this same layout, and freed only here.
            blocks => unsafe { dealloc(self.pointer.as_ptr(), Self::layout(blocks)) },
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant of the type the pointer has this many initialised bytes, and they are
        // borrowed as long as `self` is. For 0 blocks any non-null pointer will do.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.blocks() * BLOCK_SIZE) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.blocks() * BLOCK_SIZE) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl PartialEq for AlignedBuf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuf {}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} blocks)", self.blocks)
    }
}

/// One block that several owners share, as an `Arc` of it would be, but in 8 bytes and without memory beside
/// the block: the pool counts the owners. A sole owner may change the block ([`SharedBuf::make_mut`]).
pub struct SharedBuf {
    pointer: NonNull<u8>,
}

// SAFETY: owners only read the bytes. A sole owner may write them, through `&mut`. The count is atomic.
unsafe impl Send for SharedBuf {}
// SAFETY: as above.
unsafe impl Sync for SharedBuf {}

impl SharedBuf {
    /// Shares a buffer of one block, which is not copied.
    ///
    /// # Panics
    /// If it has another number of blocks.
    pub fn new(buf: AlignedBuf) -> SharedBuf {
        assert_eq!(buf.blocks, 1, "one block is what can be shared");
        let buf = std::mem::ManuallyDrop::new(buf);
        let shared = SharedBuf { pointer: buf.pointer };
        shared.count().store(1, Ordering::Relaxed);
        shared
    }

    /// The bytes, to change. If there are other owners, this value becomes a copy first.
    pub fn make_mut(&mut self) -> &mut [u8] {
        // As in `Arc`: what other owners read happened before they let go.
        if self.count().load(Ordering::Acquire) != 1 {
            *self = SharedBuf::new(AlignedBuf::from_slice(self));
        }
        // SAFETY: the block is initialised and has no other owner, and there can be none as long as `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), BLOCK_SIZE) }
    }

    fn count(&self) -> &AtomicU32 {
        // SAFETY: the block came from the pool, and goes back when its last owner goes.
        unsafe { pool::shares(self.pointer) }
    }
}

impl Clone for SharedBuf {
    fn clone(&self) -> Self {
        let before = self.count().fetch_add(1, Ordering::Relaxed);
        // As in `Arc`: a count that could overflow is a leak, and there is no sound way to go on.
        if before > u32::MAX / 2 {
            std::process::abort();
        }
        SharedBuf { pointer: self.pointer }
    }
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: taken from the pool by the buffer that `new` was given, and this was the last owner.
            unsafe { pool::give_back(self.pointer) }
        }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block is initialised, and only a sole owner changes it, through `&mut`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), BLOCK_SIZE) }
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} owners)", self.count().load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises alignment, zeros, independence of clones, and padding to whole blocks.
    #[test]
    fn buffers_are_aligned_zeroed_and_independent() {
        let mut buf = AlignedBuf::zeroed(3);
        assert_eq!(buf.len(), 3 * BLOCK_SIZE);
        assert_eq!(buf.as_ptr() as usize % BLOCK_SIZE, 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        let copy = buf.clone();
        buf[0] = 1;
        assert_eq!(copy[0], 0);
        assert_ne!(buf, copy);
        let padded = AlignedBuf::from_slice(&[7; BLOCK_SIZE + 1]);
        assert_eq!(padded.blocks(), 2);
        assert_eq!((padded[BLOCK_SIZE], padded[BLOCK_SIZE + 1]), (7, 0));
        assert!(AlignedBuf::zeroed(0).is_empty());
    }

    /// Owners see the same bytes until one of them changes its own. These are then a copy, unless it was the
    /// only owner. After the last owner the block is used again.
    #[test]
    fn shared_buffers_are_copied_when_changed() {
        let mut one = SharedBuf::new(AlignedBuf::from_slice(&[1; 10]));
        let at = one.as_ptr();
        one.make_mut()[0] = 2;
        assert_eq!(one.as_ptr(), at);
        let mut other = one.clone();
        assert_eq!(other.as_ptr(), at);
        other.make_mut()[0] = 3;
        assert_ne!(other.as_ptr(), at);
        assert_eq!((one[0], other[0], other[1], one.len()), (2, 3, 1, BLOCK_SIZE));
        drop(other);
        let kept = one.clone();
        drop(one);
        assert_eq!((kept.as_ptr(), kept[0]), (at, 2));
    }

    /// Threads that clone and drop never see a block that somebody else has changed, and the last one gives
    /// it back once.
    #[test]
    fn threads_share_buffers() {
        let shared = SharedBuf::new(AlignedBuf::from_slice(&[9; BLOCK_SIZE]));
        std::thread::scope(|scope| {
            for mark in 0..4 {
                let mut mine = shared.clone();
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let kept = mine.clone();
                        mine.make_mut().fill(mark);
                        assert!(kept.iter().all(|byte| *byte == kept[0]));
                        assert!(mine.iter().all(|byte| *byte == mark));
                    }
                });
            }
        });
        assert!(shared.iter().all(|byte| *byte == 9));
    }
}
