//! Buffers that every device can use without copying.
//!
//! Direct I/O wants the user's memory aligned to the device's sectors. An [`AlignedBuf`] begins at a page
//! boundary and is whole blocks long, which satisfies every device this crate opens; any other memory works
//! too but is copied through such a buffer on the way. Invariant: `pointer` is an allocation of exactly
//! `blocks * BLOCK_SIZE` initialised bytes, aligned to [`BLOCK_SIZE`]: from the pool, at `home`, if `blocks` is 1; from the
//! system if it is more; dangling if it is 0.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::{pool, BLOCK_SIZE};

/// A heap buffer of whole blocks that begins at a multiple of [`BLOCK_SIZE`] in memory.
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    blocks: u32,
    home: u8,
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
            0 => AlignedBuf { pointer: NonNull::dangling(), blocks, home: 0 },
            1 => {
                let (pointer, home) = pool::take();
                // SAFETY: the block is ours alone, and this long.
                unsafe { pointer.write_bytes(0, BLOCK_SIZE) };
                AlignedBuf { pointer, blocks, home }
            }
            _ => {
                let layout = Self::layout(blocks);
                // SAFETY: the layout has a size above zero, since `blocks` is not 0.
                let pointer = unsafe { alloc_zeroed(layout) };
                match NonNull::new(pointer) {
                    Some(pointer) => AlignedBuf { pointer, blocks, home: 0 },
                    None => handle_alloc_error(layout),
                }
            }
        }
    }

    /// A buffer with a copy of `bytes`, filled up with zeros to a whole number of blocks.
    pub fn from_slice(bytes: &[u8]) -> Self {
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
            .and_then(|bytes| Layout::from_size_align(bytes, BLOCK_SIZE).ok())
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
            1 => unsafe { pool::give_back(self.pointer, self.home) },
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
        let mut copy = Self::zeroed(self.blocks());
        copy.copy_from_slice(self);
        copy
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
}
