//! Encodes and decodes requests and answers.

use crate::{Answer, Request};
use rustix::ioctl::{opcode, Opcode};
use serde::de::DeserializeOwned;
use serde::Serialize;
use yore_fs::{Error, Result};

/// The version of the protocol. It grows with each change of the encoding.
pub const VERSION: u32 = 12;
/// Bytes of the buffer. An ioctl's number can express at most 16,383.
pub const BYTES: usize = 16_376;
/// The number of the ioctl.
pub const OPCODE: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 100);

const MAGIC: [u8; 4] = *b"yore";
const HEAD: usize = 16;
/// Bytes left for rows in an answer that is a page. The rest is for the variants, the number of rows, sums,
/// and the place to go on from.
pub(crate) const ROWS: usize = BYTES - HEAD - 64;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another version of the protocol wrote them.
    Version(u32),
    /// They cannot be decoded.
    Meaning,
}

/// How many bytes a value takes.
pub(crate) fn size<T: Serialize>(value: &T) -> Option<usize> {
    postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default()).ok()
}

/// `None` if it does not fit.
fn encode<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    with_its_length(postcard::to_extend(value, head(0)).ok()?).ok()
}

/// What follows a head, with its length in the head; if it does not fit, what follows alone.
fn with_its_length(mut bytes: Vec<u8>) -> std::result::Result<Vec<u8>, Vec<u8>> {
    match u32::try_from(bytes.len() - HEAD) {
        Ok(length) if bytes.len() <= BYTES => Ok(with_length(bytes, length)),
        _ => Err(bytes.split_off(HEAD)),
    }
}

fn head(length: u32) -> Vec<u8> {
    with_length([&MAGIC[..], &VERSION.to_le_bytes(), &[0; 8]].concat(), length)
}

fn with_length(mut bytes: Vec<u8>, length: u32) -> Vec<u8> {
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, Wrong> {
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(Wrong::Meaning)?;
        Ok(u32::from_le_bytes(bytes))
    };
    if bytes.get(..4) != Some(&MAGIC) {
        return Err(Wrong::Meaning);
    }
    match word(4)? {
        VERSION => {}
        other => return Err(Wrong::Version(other)),
    }
    let length = usize::try_from(word(8)?).ok().filter(|length| *length <= BYTES - HEAD);
    let content = length.and_then(|length| bytes.get(HEAD..HEAD + length)).ok_or(Wrong::Meaning)?;
    decode_content(content)
}

/// What stands behind a head, or came in parts.
fn decode_content<T: DeserializeOwned>(content: &[u8]) -> std::result::Result<T, Wrong> {
    match postcard::take_from_bytes(content) {
        Ok((value, [])) => Ok(value),
        _ => Err(Wrong::Meaning),
    }
}

/// Encodes a request.
///
/// # Errors
/// [`Error::Invalid`]: it does not fit into the buffer.
pub(crate) fn encode_request(request: &Request) -> Result<Vec<u8>> {
    encode(request).ok_or(Error::Invalid { what: "a request to a mount has at most 16 KiB" })
}

/// Decodes a request.
///
/// # Errors
/// Why the bytes are none.
pub fn decode_request(bytes: &[u8]) -> std::result::Result<Request, Wrong> {
    decode(bytes)
}

/// Encodes an answer so that it fits into the buffer. `Err`: the bytes of one that does not, without a head.
pub(crate) fn encode_or_content(answer: &Result<Answer>) -> std::result::Result<Vec<u8>, Vec<u8>> {
    match postcard::to_extend(answer, head(0)) {
        Ok(bytes) => with_its_length(bytes),
        Err(_) => Ok(encode_answer(answer)),
    }
}

/// Encodes an answer so that it fits into the buffer. One that does not is an error that says so.
pub(crate) fn encode_answer(answer: &Result<Answer>) -> Vec<u8> {
    encode(answer).unwrap_or_else(|| {
        let text = match answer {
            Ok(_) => "the answer is too long for one request; ask for less".to_string(),
            Err(error) => error.to_string().chars().take(1024).collect(),
        };
        encode(&Err::<Answer, Error>(Error::Refused(text))).unwrap_or_else(encode_nothing)
    })
}

/// The answer to a request of another version: only the version.
pub fn encode_nothing() -> Vec<u8> {
    head(0)
}

/// Decodes an answer.
///
/// # Errors
/// Why the bytes are none.
pub(crate) fn decode_answer(bytes: &[u8]) -> std::result::Result<Result<Answer>, Wrong> {
    decode(bytes)
}

/// The answer that the bytes of all its parts are.
///
/// # Errors
/// Why they are none.
pub(crate) fn decode_parts(bytes: &[u8]) -> std::result::Result<Result<Answer>, Wrong> {
    decode_content(bytes)
}

#[cfg(test)]
mod tests;
