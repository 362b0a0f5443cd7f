//! Numbers that are mostly small, in as few bytes as they need: seven bits to a byte, the lowest first. The
//! highest bit of a byte says that there are more.

/// Writes a number.
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put`] has written. `None` if the bytes end before.
///
/// # Errors
/// Those of `next`.
pub(crate) fn get<E>(mut next: impl FnMut() -> Result<Option<u8>, E>) -> Result<Option<u64>, E> {
    let (mut number, mut shift) = (0, 0);
    while let Some(byte) = next()? {
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(Some(number));
        }
        shift += 7;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Promises that every number comes back, one behind the other, and that nothing follows the last.
    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 63, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put(&mut bytes, *number));
        let mut left = bytes.into_iter();
        let mut next = || get(|| Ok::<_, Infallible>(left.next()));
        for number in numbers {
            assert_eq!(next(), Ok(Some(number)));
        }
        assert_eq!(next(), Ok(None));
    }
}
