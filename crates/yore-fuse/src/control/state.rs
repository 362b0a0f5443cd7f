//! Whether the volume of a mount is still written, by ioctl(2) on an open directory or file of it. The form of requests is that of
//! [`super`].
//!
//! # The state: `_IOWR('Y', 70, 1,024 bytes)`
//!
//! The request is zeros.
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..4 | 0 in use; 1 an error has stopped all writing |
//! | 4..8 | with 1, length of a text |
//! | 8..16 | with 1, when that was, in seconds since 1970 |
//! | 16.. | the text: the error that came first, UTF-8 |
//!
//! For everybody.

use super::{call, malformed, put, u32_at, u64_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::View;

const BYTES: usize = 1_024;
const STATE: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 70);
const STOPPED: u32 = 1;
const TEXT_AT: usize = 16;

/// An error has stopped all writing to the volume of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The error, for people.
    pub why: String,
    /// When it came, in seconds since 1970.
    pub since_seconds: u64,
}

/// Whether writing to the volume of an open directory or file of a mount has stopped.
///
/// # Errors
/// ENOTTY from what is on no mount that Yore serves, or if its daemon does not know the question; `InvalidData` for an answer that is none.
pub fn stopped(of: &File) -> io::Result<Option<Stopped>> {
    let mut buffer = Box::new([0; BYTES]);
    call::<STATE, BYTES>(of, &mut buffer)?;
    decode(&*buffer).ok_or_else(malformed)
}

fn decode(bytes: &[u8]) -> Option<Option<Stopped>> {
    match u32_at(bytes, 0)? {
        0 => Some(None),
        STOPPED => {
            let text = bytes.get(TEXT_AT..)?.get(..u32_at(bytes, 4)? as usize)?;
            let why = String::from_utf8(text.to_vec()).ok()?;
            Some(Some(Stopped { why, since_seconds: u64_at(bytes, 8)? }))
        }
        _ => None,
    }
}

fn encode(stopped: Option<&Stopped>) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    if let Some(Stopped { why, since_seconds }) = stopped {
        // What would not fit is cut short; it is for people.
        let most = why.len().min(BYTES - TEXT_AT);
        let end = (0..=most).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        put(&mut bytes, 0, &STOPPED.to_le_bytes());
        put(&mut bytes, 4, &(end as u32).to_le_bytes());
        put(&mut bytes, 8, &since_seconds.to_le_bytes());
        put(&mut bytes, TEXT_AT, &why.as_bytes()[..end]);
    }
    bytes
}

/// Whether a request is one for [`answer`].
pub(crate) fn is_ours(number: Opcode) -> bool {
    number == STATE
}

/// The daemon's half.
pub(crate) fn answer(view: &View, request: &[u8]) -> Result<Vec<u8>, Failure> {
    if request != [0; BYTES] {
        return Err(Failure::Number(Errno::EINVAL));
    }
    let stopped = view.stopped();
    let stopped = stopped
        .map(|stopped| Stopped { why: stopped.first.to_string(), since_seconds: stopped.since_seconds });
    Ok(encode(stopped.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said arrives, cut short between letters if it is long; other bytes are refused.
    #[test]
    fn answers_arrive() {
        assert_eq!(decode(&encode(None)), Some(None));
        let stopped = Stopped { why: "no space left on the host".into(), since_seconds: 17 };
        assert_eq!(decode(&encode(Some(&stopped))), Some(Some(stopped.clone())));
        let long = Stopped { why: "ä".repeat(BYTES), ..stopped };
        let found = decode(&encode(Some(&long))).unwrap().unwrap();
        assert_eq!(found.why, "ä".repeat((BYTES - TEXT_AT) / 2));
        assert_eq!(decode(&[2; BYTES]), None);
        let mut beyond = encode(Some(&found));
        put(&mut beyond, 4, &u32::MAX.to_le_bytes());
        assert_eq!(decode(&beyond), None);
    }
}
