//! Allocation bitmaps: one block for each group's data area, a set bit for a block in use.

use crate::header::HEADER_BYTES;
use crate::{Block, Corruption, Touched};

/// Where the bits start in the block.
pub const BITMAP_OFFSET: usize = 128;
/// Bits in a bitmap: the blocks of a group beside its first zone.
pub const BITS_PER_GROUP: u32 = ((crate::BLOCK_SIZE - BITMAP_OFFSET) * 8) as u32;
const USED: usize = HEADER_BYTES;

const _: () = assert!(BITS_PER_GROUP as u64 == crate::layout::GROUP_BLOCKS - crate::layout::ZONE_BLOCKS);

/// The layout of a bitmap, the block header included.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout_of_offsets(
        "Bitmap",
        crate::BLOCK_SIZE,
        &[("header", 0), ("used", USED), ("reserved", USED + 4), ("bits", BITMAP_OFFSET)],
    )
}

/// A bitmap to read.
#[derive(Clone, Copy)]
pub struct BitmapRef<'a>(&'a Block);

impl<'a> BitmapRef<'a> {
    /// `block` as a bitmap.
    pub fn new(block: &'a Block) -> Self {
        BitmapRef(block)
    }

    /// Whether block `bit` of the group's data area is in use.
    pub fn get(self, bit: u32) -> bool {
        self.0[BITMAP_OFFSET + bit as usize / 8] & (1 << (bit % 8)) != 0
    }

    /// Word `i` of 496, little-endian bit order: bit b of word i is block 64·i + b.
    pub fn word(self, i: usize) -> u64 {
        let at = BITMAP_OFFSET + i * 8;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// The stored count of set bits.
    pub fn used(self) -> u32 {
        u32::from_le_bytes(self.0[USED..USED + 4].try_into().expect("four bytes"))
    }

    /// Checks the count and the reserved bytes.
    ///
    /// # Errors
    /// [`Corruption`] naming the field.
    pub fn verify(self) -> Result<(), Box<Corruption>> {
        if self.0[USED + 4..BITMAP_OFFSET].iter().any(|b| *b != 0) {
            return Err(Corruption::new("bitmap", "reserved bytes", "zero", "something else"));
        }
        let counted: u32 = (0..BITS_PER_GROUP as usize / 64).map(|i| self.word(i).count_ones()).sum();
        if counted != self.used() {
            return Err(Corruption::new("bitmap", "count of used blocks", self.used(), counted));
        }
        Ok(())
    }
}

/// A bitmap to change.
pub struct BitmapMut<'a>(&'a mut Block);

impl<'a> BitmapMut<'a> {
    /// `block`, already a bitmap, to change.
    pub fn new(block: &'a mut Block) -> Self {
        BitmapMut(block)
    }

    /// Makes `block`, whose header is in place, a bitmap in which the bits from `usable` on are in use.
    pub fn init(block: &'a mut Block, usable: u32) -> Self {
        block[HEADER_BYTES..].fill(0);
        let mut map = BitmapMut(block);
        map.set(usable, BITS_PER_GROUP - usable, true);
        map
    }

    /// Marks `len` blocks from `bit` on as used or free; each must have been the other.
    ///
    /// # Panics
    /// If a block already is in the new state: one block would have two owners, which must never reach the
    /// medium.
    pub fn set(&mut self, bit: u32, len: u32, used: bool) -> Touched {
        if len == 0 {
            return Touched::derived(0..0);
        }
        let mut at = bit;
        while at < bit + len {
            let n = (8 - at % 8).min(bit + len - at);
            let byte = &mut self.0[BITMAP_OFFSET + at as usize / 8];
            let mask = (0xff >> (8 - n)) << (at % 8);
            let wrong = (*byte ^ if used { 0 } else { mask }) & mask;
            assert!(
                wrong == 0,
                "block {} of the group is already {}",
                at / 8 * 8 + wrong.trailing_zeros(),
                if used { "used" } else { "free" }
            );
            *byte ^= mask;
            at += n;
        }
        let count = BitmapRef(self.0).used();
        let count = if used { count + len } else { count - len };
        self.0[USED..USED + 4].copy_from_slice(&count.to_le_bytes());
        let end = bit + len - 1;
        let bytes = BITMAP_OFFSET + bit as usize / 8..BITMAP_OFFSET + end as usize / 8 + 1;
        Touched { meaning: bit as usize..end as usize + 1, ..Touched::derived(bytes) }.and(USED..USED + 4)
    }
}
