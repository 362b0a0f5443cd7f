//! Making the volume of a mount longer by ioctl(2) on a directory of it. The form of requests is that of [`super`].
//!
//! # Make it longer: `_IOWR('Y', 60, 1,024 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | how many bytes the volume shall have; its image file is made as long, a block device must be |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | how many it has now |
//! | 8..12 | 0 it was shorter; 1 it was not, and nothing was done; 2 it is refused |
//! | 12..16 | with 2, length of a text |
//! | 16.. | the text: why |
//!
//! It is durable when it is answered. For root and the daemon's user; EPERM for others. EROFS, ENOSPC, EIO as elsewhere: nothing was done.

use super::{call, check_writable, malformed, may_all, put, u32_at, u64_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::{Doing, Error, View};

const BYTES: usize = 1_024;
const LENGTHEN: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 60);
const DONE: u32 = 0;
const NOTHING: u32 = 1;
const REFUSED: u32 = 2;
const TEXT_AT: usize = 16;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lengthened {
    /// The volume has so many bytes now, and had fewer.
    To(u64),
    /// It has so many already.
    Has(u64),
    /// Why not.
    Refused(String),
}

/// Makes the volume of an open directory of a mount longer.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon cannot do that; else as the text above.
pub fn lengthen(dir: &File, bytes: u64) -> io::Result<Lengthened> {
    check_writable(dir)?;
    let mut buffer = Box::new([0; BYTES]);
    put(&mut *buffer, 0, &bytes.to_le_bytes());
    call::<LENGTHEN, BYTES>(dir, &mut buffer)?;
    decode(&*buffer).ok_or_else(malformed)
}

/// Whether a request is one for [`answer`].
pub(crate) fn is_ours(number: Opcode) -> bool {
    number == LENGTHEN
}

/// The daemon's half.
pub(crate) fn answer(view: &View, uid: u32, read_only: bool, request: &[u8]) -> Result<Vec<u8>, Failure> {
    let bytes = u64_at(request, 0).ok_or(Failure::Number(Errno::EINVAL))?;
    if request.len() != BYTES || request[8..].iter().any(|b| *b != 0) {
        return Err(Failure::Number(Errno::EINVAL));
    }
    if !may_all(uid) {
        return Err(Failure::Number(Errno::EPERM));
    }
    if read_only {
        return Err(Error::ReadOnly.into());
    }
    let view = view.present();
    let before = view.info().size;
    let (what, why) = match view.lengthen(bytes) {
        Ok(true) => (DONE, String::new()),
        Ok(false) => (NOTHING, String::new()),
        Err(Error::Refused(why)) => (REFUSED, why),
        Err(error) => return Err(error.into()),
    };
    if what == DONE {
        let doing = Doing { view: &view, uid };
        doing.note([doing.resizing(before)?]);
    }
    Ok(encode(view.info().size, what, &why))
}

fn encode(size: u64, what: u32, why: &str) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    // What would not fit is cut short; it is for people.
    let most = why.len().min(BYTES - TEXT_AT);
    let end = (0..=most).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
    put(&mut bytes, 0, &size.to_le_bytes());
    put(&mut bytes, 8, &what.to_le_bytes());
    put(&mut bytes, 12, &(end as u32).to_le_bytes());
    put(&mut bytes, TEXT_AT, &why.as_bytes()[..end]);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Lengthened> {
    let length = usize::try_from(u32_at(bytes, 12)?).ok()?;
    let why = bytes.get(TEXT_AT..TEXT_AT.checked_add(length)?)?;
    match u32_at(bytes, 8)? {
        DONE => Some(Lengthened::To(u64_at(bytes, 0)?)),
        NOTHING => Some(Lengthened::Has(u64_at(bytes, 0)?)),
        REFUSED => Some(Lengthened::Refused(String::from_utf8_lossy(why).into_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::Volume;

    /// Answers are read as they were meant; others than root and the daemon's user are refused.
    #[test]
    fn requests_and_answers() {
        let long = "\u{fc}".repeat(BYTES);
        for (what, why, read) in [
            (DONE, "", Lengthened::To(7)),
            (NOTHING, "", Lengthened::Has(7)),
            (REFUSED, "no", Lengthened::Refused("no".into())),
            (REFUSED, &long, Lengthened::Refused("\u{fc}".repeat((BYTES - TEXT_AT) / 2))),
        ] {
            assert_eq!(decode(&encode(7, what, why)), Some(read));
        }
        assert_eq!(decode(&encode(7, 3, "")), None);
        let volume = Volume::memory(32 << 20).unwrap();
        let mut request = vec![0; BYTES];
        put(&mut request, 0, &(16u64 << 20).to_le_bytes());
        let ask = |uid, read_only, request: &[u8]| {
            let answer = answer(volume.view(), uid, read_only, request);
            answer.map(|bytes| decode(&bytes)).map_err(|e| e.errno().code())
        };
        assert_eq!(ask(0, false, &request), Ok(Some(Lengthened::Has(32 << 20))));
        assert_eq!(ask(9, false, &request), Err(libc::EPERM));
        assert_eq!(ask(0, true, &request), Err(libc::EROFS));
        request[9] = 1;
        assert_eq!(ask(0, false, &request), Err(libc::EINVAL));
        assert_eq!(ask(0, false, &[]), Err(libc::EINVAL));
        put(&mut request, 0, &(1u64 << 30).to_le_bytes());
        request[9] = 0;
        assert!(matches!(ask(0, false, &request), Ok(Some(Lengthened::Refused(_)))));
    }
}
