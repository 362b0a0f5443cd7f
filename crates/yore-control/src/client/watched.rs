//! Questions that take long, and how far they are in the meantime.

use crate::{Answer, Request};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};
use yore_fs::Result;

/// How often the client asks how far a question is.
const EVERY: Duration = Duration::from_millis(200);

/// A function that another thread calls with how much is done and how much there is to do; `None` if nobody
/// wants to know.
pub type Watch<'w> = Option<&'w mut (dyn FnMut(u64, u64) + Send)>;

/// A name for a question. Another question of the user could have the same name only by coincidence, and
/// then only the progress shown would be wrong.
pub(super) fn new_name() -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = u64::from(COUNT.fetch_add(1, Ordering::Relaxed)) + 1;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).rotate_left(16) ^ u64::from(std::process::id()) << 20 ^ count | 1
}

/// Asks a question, which `question` makes from a name, and reports its progress until the answer is there.
pub(super) fn ask(
    ask: &(dyn Fn(&Request) -> Result<Answer> + Sync),
    watch: Watch<'_>,
    question: &dyn Fn(u64) -> Request,
) -> Result<Answer> {
    match watch {
        None => ask(&question(0)),
        watch => ask_until(ask, watch, &AtomicBool::new(false), question),
    }
}

/// The same. Once `stop` is true the question is broken off, and its answer soon comes.
///
/// Another thread waits for the answer. The kernel gives a signal to the first thread of a process, and one
/// that waits for a mount's answer takes it only when the answer is there, so nobody would set `stop`.
pub(super) fn ask_until(
    ask: &(dyn Fn(&Request) -> Result<Answer> + Sync),
    watch: Watch<'_>,
    stop: &AtomicBool,
    question: &dyn Fn(u64) -> Request,
) -> Result<Answer> {
    let name = new_name();
    named(ask, watch, stop, (name, &question(name)))
}

/// The same for a request that has its name.
pub(super) fn named(
    ask: &(dyn Fn(&Request) -> Result<Answer> + Sync),
    mut watch: Watch<'_>,
    stop: &AtomicBool,
    (name, request): (u64, &Request),
) -> Result<Answer> {
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let answer = scope.spawn(move || {
            // Dropped with the answer, also by a panic.
            let _end = end;
            ask(request)
        });
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
            // The question may have ended just now, or not have begun. Errors reach the caller with the
            // answer.
            if stop.load(Ordering::Relaxed) {
                let _ = ask(&Request::BreakOff { question: name });
            }
            let Some(watch) = watch.as_mut() else { continue };
            if let Ok(Answer::HowFar(Some((done, total)))) = ask(&Request::HowFar { question: Some(name) }) {
                watch(done, total);
            }
        }
        answer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
