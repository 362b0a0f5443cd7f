//! How far a long look at history has come, for whoever waits for it.
//!
//! # Number 44
//!
//! Who asks one of the questions of [`super`] may give it a name: a number that is not 0, in the place where
//! one would go on (bytes 8..16 with the key 0). As long as the daemon looks for the answer, another request
//! tells how far it is:
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | the name, of a question of the same user |
//! | 8..16 | of the answer: what is done |
//! | 16..24 | of the answer: all that there is to do, as far as that is known |
//!
//! In no unit, but in proportion to time. ENOENT: nobody asks such a question now. The name 0 is how far the
//! daemon is with giving up what forgotten snapshots have held, whoever has forgotten them; ENOENT: nothing
//! is left.

use super::{call, put, u64_at, Failure};
use crate::control::malformed;
use fuser::Errno;
use parking_lot::Mutex;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use yore_fs::{Progress, View};

const BYTES: usize = 24;
pub(super) const PROGRESS: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 44);
/// How often it is asked.
const EVERY: Duration = Duration::from_millis(200);

/// Told how much is done, and of how much.
pub type Watch<'w> = &'w mut dyn FnMut(u64, u64);

/// The questions that are being answered.
#[derive(Default)]
pub(super) struct Running(Mutex<Vec<(u32, u64, Arc<Progress>)>>);

/// A question that is being answered.
pub(super) struct Watched<'r> {
    running: &'r Running,
    pub(super) progress: Arc<Progress>,
}

impl Running {
    /// A user's question of this name, or of none (0).
    pub(super) fn begin(&self, uid: u32, name: u64) -> Watched<'_> {
        let progress = Arc::new(Progress::default());
        if name != 0 {
            self.0.lock().push((uid, name, progress.clone()));
        }
        Watched { running: self, progress }
    }

    pub(super) fn answer(&self, view: &View, uid: u32, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let name = u64_at(request, 0).filter(|_| request.len() == BYTES);
        let name = name.ok_or(Failure::EventNo(Errno::EINVAL))?;
        let found = match name {
            0 => view.forgetting(),
            _ => {
                let running = self.0.lock();
                let found = running.iter().find(|(of, named, _)| (*of, *named) == (uid, name));
                found.map(|(_, _, progress)| progress.get())
            }
        };
        let (done, total) = found.ok_or(Failure::EventNo(Errno::ENOENT))?;
        let mut bytes = request.to_vec();
        put(&mut bytes, 8, &done.to_le_bytes());
        put(&mut bytes, 16, &total.to_le_bytes());
        Ok(bytes)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.running.0.lock().retain(|(_, _, progress)| !Arc::ptr_eq(progress, &self.progress));
    }
}

/// How far the daemon of an open directory of a mount is with giving back the space of what was forgotten:
/// what is done, and how much there is to do. `None`: nothing is left.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon is older.
pub fn forgetting(dir: &File) -> io::Result<Option<(u64, u64)>> {
    let mut buffer = [0; BYTES];
    match call::<PROGRESS, BYTES>(dir, &mut buffer) {
        Ok(()) => u64_at(&buffer, 8).zip(u64_at(&buffer, 16)).ok_or_else(malformed).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name that no other question has now, but by a coincidence that would do no harm.
fn new_name() -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = u64::from(COUNT.fetch_add(1, Ordering::Relaxed)) + 1;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).rotate_left(16) ^ u64::from(std::process::id()) << 20 ^ count | 1
}

/// Asks something under a name, and tells how far the daemon is until the answer is there.
pub(super) fn watched<T: Send>(
    dir: &File,
    watch: Watch<'_>,
    ask: impl FnOnce(u64) -> io::Result<T> + Send,
) -> io::Result<T> {
    let (name, (tell, told)) = (new_name(), mpsc::channel());
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let answer = ask(name);
            // Who waits has gone only with a panic.
            let _ = tell.send(());
            answer
        });
        while let Err(RecvTimeoutError::Timeout) = told.recv_timeout(EVERY) {
            let mut buffer = [0; BYTES];
            put(&mut buffer, 0, &name.to_le_bytes());
            // It may have ended just now.
            if call::<PROGRESS, BYTES>(dir, &mut buffer).is_ok() {
                let (done, total) = u64_at(&buffer, 8).zip(u64_at(&buffer, 16)).ok_or_else(malformed)?;
                watch(done, total);
            }
        }
        asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
