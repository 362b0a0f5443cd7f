//! Fields that only some rows have: each is a tag (1 byte), a length (2 bytes) and as many bytes.
//!
//! The tags of a row ascend, so each occurs once at most, and a row has one encoding. A tag that the program
//! does not know is corruption: a feature of the superblock says that there may be such fields, and programs
//! that know the feature know all of them.

use crate::Corruption;

/// Bytes in front of a field's own.
const FIXED: usize = 3;

/// Writes fields, in ascending order of their tags.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    last: u8,
}

impl Writer {
    /// Adds a field, unless it has no bytes.
    ///
    /// # Panics
    /// For tags that do not ascend, and for more than 65,535 bytes.
    pub(crate) fn add(&mut self, tag: u8, field: &[u8]) {
        if field.is_empty() {
            return;
        }
        assert!(tag > self.last, "tag {tag} follows tag {}", self.last);
        let length = u16::try_from(field.len()).expect("a field of a row is short");
        self.last = tag;
        self.bytes.push(tag);
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(field);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Calls `each` with the tag and the bytes of each field.
///
/// # Errors
/// [`Corruption`] for fields that no [`Writer`] wrote, and the errors of `each`.
pub(crate) fn read(
    what: &'static str,
    mut bytes: &[u8],
    mut each: impl FnMut(u8, &[u8]) -> Result<(), Box<Corruption>>,
) -> Result<(), Box<Corruption>> {
    let mut last = 0;
    while let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() {
        let [tag, low, high] = *fixed;
        let length = usize::from(u16::from_le_bytes([low, high]));
        if tag <= last {
            return Err(Corruption::new(what, "tag", format!("above {last}"), tag));
        }
        if length == 0 || length > rest.len() {
            return Err(Corruption::new(what, "length", format!("1 to {}", rest.len()), length));
        }
        let (field, after) = rest.split_at(length);
        each(tag, field)?;
        (last, bytes) = (tag, after);
    }
    match bytes {
        [] => Ok(()),
        _ => Err(Corruption::new(what, "length", "whole fields", "a part of one")),
    }
}

/// A field that is one number.
pub(crate) fn number<const N: usize>(
    what: &'static str,
    field: &'static str,
    bytes: &[u8],
) -> Result<[u8; N], Box<Corruption>> {
    bytes.try_into().map_err(|_| Corruption::new(what, field, format!("{N} bytes"), bytes.len()))
}

/// A field that is a text for people: UTF-8 of at most so many bytes, without control characters but the end
/// of a line.
pub(crate) fn text(
    what: &'static str,
    field: &'static str,
    most: usize,
    bytes: &[u8],
) -> Result<String, Box<Corruption>> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= most && !text.contains(is_unwanted) => Ok(text.to_string()),
        _ => {
            let expected = format!("at most {most} bytes of UTF-8 without control characters");
            Err(Corruption::new(what, field, expected, String::from_utf8_lossy(bytes)))
        }
    }
}

/// Whether a text for people must not have this character.
pub(crate) fn is_unwanted(c: char) -> bool {
    c.is_control() && c != '\n'
}

/// Whether a text can be stored in a field of at most so many bytes.
pub fn is_storable_text(text: &str, most: usize) -> bool {
    text.len() <= most && !text.contains(is_unwanted)
}
