//! Numbers of as many bytes as they need: 7 bits a byte, the lowest first, and the upper bit of each byte
//! says whether another one follows.
//!
//! Signed numbers are zigzag (0, −1, 1, −2, … are 0, 1, 2, 3, …). A number has one encoding: one with zeros
//! at its end is corruption, so that rows can be compared as bytes.

use crate::Corruption;

/// Bytes of the greatest number.
const NUMBER_BYTES_MAX: usize = 10;

/// A short value, on the stack: what is encoded in a call is not allocated.
#[derive(Clone)]
pub struct ShortBytes<const MOST: usize> {
    bytes: [u8; MOST],
    len: usize,
}

impl<const MOST: usize> std::ops::Deref for ShortBytes<MOST> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const MOST: usize> Default for ShortBytes<MOST> {
    fn default() -> Self {
        ShortBytes::new()
    }
}

impl<const MOST: usize> std::fmt::Debug for ShortBytes<MOST> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}", &self[..])
    }
}

impl<const MOST: usize> ShortBytes<MOST> {
    pub(crate) fn new() -> Self {
        ShortBytes { bytes: [0; MOST], len: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    pub(crate) fn number(&mut self, n: u64) {
        match u8::try_from(n) {
            Ok(byte @ 0..0x80) => self.byte(byte), // Most are so small.
            _ => self.long_number(n),
        }
    }

    /// A number that takes more than a byte.
    fn long_number(&mut self, mut n: u64) {
        // The bytes that any number needs are checked for once, where they are there.
        let Some(to) = self.bytes[self.len..].first_chunk_mut::<NUMBER_BYTES_MAX>() else {
            while n >= 0x80 {
                self.byte(n as u8 | 0x80);
                n >>= 7;
            }
            return self.byte(n as u8);
        };
        for (i, byte) in to.iter_mut().enumerate() {
            if n < 0x80 {
                *byte = n as u8;
                self.len += i + 1;
                return;
            }
            *byte = n as u8 | 0x80;
            n >>= 7;
        }
        unreachable!("64 bits are ten times seven, and less");
    }

    /// A signed number, given as what two's complement makes of it.
    pub(crate) fn signed(&mut self, n: u64) {
        self.number(n << 1 ^ (n as i64 >> 63) as u64);
    }

    /// The same of 32 bits.
    pub(crate) fn signed32(&mut self, n: u32) {
        self.number((n << 1 ^ (n as i32 >> 31) as u32).into());
    }
}

/// Takes numbers off the front of a value.
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

type Read<T> = Result<T, Box<Corruption>>;

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, rest: bytes }
    }

    pub(crate) fn bad<T>(
        &self,
        field: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Read<T> {
        Err(Corruption::new(self.what, field, expected, found))
    }

    pub(crate) fn bytes(&mut self, field: &'static str, len: usize) -> Read<&'a [u8]> {
        match self.rest.split_at_checked(len) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => self.bad(field, format!("{len} bytes"), self.rest.len()),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Read<[u8; N]> {
        Ok(self.bytes(field, N)?.try_into().expect("as many bytes as were asked for"))
    }

    pub(crate) fn byte(&mut self, field: &'static str) -> Read<u8> {
        let [byte] = self.array(field)?;
        Ok(byte)
    }

    pub(crate) fn number(&mut self, field: &'static str) -> Read<u64> {
        let mut n = 0u64;
        for shift in (0..).step_by(7) {
            let byte = self.byte(field)?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || bits << shift >> shift != bits {
                return self.bad(field, "a number of 64 bits", "more");
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return self.bad(field, "the shortest form of a number", "a longer one");
                }
                break;
            }
        }
        Ok(n)
    }

    pub(crate) fn number32(&mut self, field: &'static str) -> Read<u32> {
        let n = self.number(field)?;
        n.try_into().or_else(|_| self.bad(field, "a number of 32 bits", n))
    }

    /// A signed number, as what two's complement makes of it.
    pub(crate) fn signed(&mut self, field: &'static str) -> Read<u64> {
        let n = self.number(field)?;
        Ok(n >> 1 ^ (n & 1).wrapping_neg())
    }

    /// The same of 32 bits.
    pub(crate) fn signed32(&mut self, field: &'static str) -> Read<u32> {
        let n = self.number32(field)?;
        Ok(n >> 1 ^ (n & 1).wrapping_neg())
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Read<()> {
        match self.rest {
            [] => Ok(()),
            rest => self.bad("length", "nothing behind the last field", format!("{} bytes", rest.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut ShortBytes<16>)) -> Vec<u8> {
        let mut out = ShortBytes::new();
        write(&mut out);
        out.to_vec()
    }

    #[test]
    fn known_numbers_have_known_bytes() {
        assert_eq!(written(|w| w.number(0)), [0]);
        assert_eq!(written(|w| w.number(127)), [127]);
        assert_eq!(written(|w| w.number(300)), [0xac, 2]);
        assert_eq!(written(|w| w.number(u64::MAX)), [[0xff; 9].to_vec(), vec![1]].concat());
        assert_eq!(written(|w| w.signed(-1i64 as u64)), [1]);
        assert_eq!(written(|w| w.signed(1)), [2]);
        assert_eq!(written(|w| w.signed32(i32::MIN as u32)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn longer_forms_are_refused() {
        for bytes in [&[0x80, 0][..], &[0xac, 0x82, 0], &[0xff; 10], &[0x80; 11], &[0xff; 3], &[]] {
            assert!(Reader::new("test", bytes).number("n").is_err(), "{bytes:02x?}");
        }
        let over = [[0xff; 9].to_vec(), vec![2]].concat();
        assert!(Reader::new("test", &over).number("n").is_err(), "65 bits");
        assert!(Reader::new("test", &[0xff, 0xff, 0xff, 0xff, 0x1f]).number32("n").is_err(), "33 bits");
    }

    proptest! {
        #[test]
        fn numbers_come_back(n in any::<u64>(), shift in 0u32..64, small in any::<u32>()) {
            let n = n >> shift;
            let bytes = written(|w| w.number(n));
            prop_assert_eq!(bytes.len(), (64 - n.leading_zeros()).div_ceil(7).max(1) as usize);
            let mut reader = Reader::new("test", &bytes);
            prop_assert_eq!(reader.number("n").unwrap(), n);
            reader.end().unwrap();
            let signed = written(|w| w.signed(n));
            prop_assert_eq!(Reader::new("test", &signed).signed("n").unwrap(), n);
            let signed = written(|w| w.signed32(small));
            prop_assert!(signed.len() <= 5);
            prop_assert_eq!(Reader::new("test", &signed).signed32("n").unwrap(), small);
        }

        /// Bytes that decode to a number are what encoding that number gives: a number has one encoding.
        #[test]
        fn any_bytes_are_one_number_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new("test", &bytes);
            if let Ok(n) = reader.number("n") {
                let again = written(|w| w.number(n));
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }
    }
}
