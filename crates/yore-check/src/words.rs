//! Bits of a bit set, word by word.

/// Calls `each` with word number and mask for the bits `from..to`.
pub(crate) fn for_words(from: u32, to: u32, mut each: impl FnMut(usize, u64)) {
    let mut at = from;
    while at < to {
        let end = ((at / 64 + 1) * 64).min(to);
        let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
        each(at as usize / 64, mask);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::for_words;

    /// Promises that masks cover exactly the bits asked for, even at and across word boundaries.
    #[test]
    fn masks_cover_exactly_the_bits() {
        for (from, to) in [(0, 0), (0, 1), (63, 65), (0, 64), (64, 128), (5, 200), (127, 128)] {
            let mut bits = [0u64; 4];
            for_words(from, to, |word, mask| {
                assert_eq!(bits[word] & mask, 0);
                bits[word] |= mask;
            });
            for bit in 0..256u32 {
                let set = bits[bit as usize / 64] >> (bit % 64) & 1 != 0;
                assert_eq!(set, (from..to).contains(&bit), "bit {bit} of {from}..{to}");
            }
        }
    }
}
