//! Questions that take long, and how far they are in the meantime.

use crate::{Answer, Request};
use std::sync::atomic::{AtomicU32, Ordering};
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
fn new_name() -> u64 {
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
    let Some(watch) = watch else { return ask(&question(0)) };
    let (name, (end, ended)) = (new_name(), mpsc::channel::<()>());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                // The question may have ended just now. Errors reach the caller with the answer.
                if let Ok(Answer::HowFar(Some((done, total)))) =
                    ask(&Request::HowFar { question: Some(name) })
                {
                    watch(done, total);
                }
            }
        });
        let answer = ask(&question(name));
        drop(end);
        answer
    })
}
