//! Erasing what nothing on a volume names any more, by ioctl(2) on a directory of a mount. The form of requests is that of [`super`].
//!
//! # Erase it: `_IOWR('Y', 61, 16 bytes)`
//!
//! The request is zeros. The answer has, in bytes 0..8, how many free blocks had to be left out, because all that is free was promised to
//! writers; they are erased by asking again later.
//!
//! What is being given up is given up before. It is answered when all is durable; others go on meanwhile. For root and the daemon's
//! user; EPERM for others. EINTR: the mount ends. EROFS, EIO as elsewhere.

use super::{call, check_writable, malformed, may_all, put, u64_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use yore_fs::{Error, View};

const BYTES: usize = 16;
const SHRED: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 61);

/// Erases what nothing names any more on the volume of an open directory of a mount; how many free blocks were left out.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon cannot do that; else as the text above.
pub fn shred(dir: &File) -> io::Result<u64> {
    check_writable(dir)?;
    // What programs wrote and the kernel still has would come to the volume afterwards.
    rustix::fs::syncfs(dir)?;
    let mut buffer = [0; BYTES];
    call::<SHRED, BYTES>(dir, &mut buffer)?;
    u64_at(&buffer, 0).ok_or_else(malformed)
}

/// Whether a request is one for [`answer`].
pub(crate) fn is_ours(number: Opcode) -> bool {
    number == SHRED
}

/// The daemon's half, for a thread that serves no requests. `is_over` says that the mount ends.
pub(crate) fn answer(
    view: &View,
    uid: u32,
    read_only: bool,
    request: &[u8],
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<u8>, Failure> {
    if request.len() != BYTES || request.iter().any(|b| *b != 0) {
        return Err(Failure::Number(Errno::EINVAL));
    }
    if !may_all(uid) {
        return Err(Failure::Number(Errno::EPERM));
    }
    if read_only {
        return Err(Error::ReadOnly.into());
    }
    let view = view.present();
    let done =
        view.shred(&mut || if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })?;
    if done.broken_off {
        return Err(Failure::Number(Errno::EINTR));
    }
    let mut bytes = vec![0; BYTES];
    put(&mut bytes, 0, &done.blocks_left_out.to_le_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::Volume;

    /// Root and the daemon's user may; nobody where nothing may be written; and a mount that ends does not wait.
    #[test]
    fn who_may() {
        let volume = Volume::memory(32 << 20).unwrap();
        let ask = |uid, read_only, request: &[u8], over: bool| {
            answer(volume.view(), uid, read_only, request, &|| over).map_err(|e| e.errno().code())
        };
        assert_eq!(ask(0, false, &[0; BYTES], false), Ok(vec![0; BYTES]));
        assert_eq!(ask(9, false, &[0; BYTES], false), Err(libc::EPERM));
        assert_eq!(ask(0, true, &[0; BYTES], false), Err(libc::EROFS));
        assert_eq!(ask(0, false, &[1; BYTES], false), Err(libc::EINVAL));
        assert_eq!(ask(0, false, &[0; BYTES], true), Err(libc::EINTR));
    }
}
