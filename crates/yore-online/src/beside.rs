//! The recount in the background of an open volume, after a crash that may have left leaks.

use crate::check::{recount, OnlineError, OnlineOptions};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use yore_check::Progress;
use yore_fs::{Error, Result, View};

/// How long to wait for another check, which may do the same.
const OTHER: Duration = Duration::from_millis(200);

/// A recount that was started in the background. It goes on if this is dropped, and ends with the volume.
#[derive(Debug)]
pub struct Recounting(mpsc::Receiver<()>);

impl Recounting {
    /// Waits for its end. [`View::leaks_pending`] says what came of it.
    pub fn wait(self) {
        // Nothing is sent: the other half goes when the recount ends.
        let _ = self.0.recv();
    }
}

/// Starts a recount in the background, if the volume says that leaks may be pending and can be changed. It
/// yields to everything else, holds nobody up, and ends soon when the volume is closed; then leaks stay
/// pending, and whoever opens the volume next starts it again. [`View::recounting`] says how far it is. The
/// volume stays open until it ends, or until it is closed by a call.
///
/// # Errors
/// The thread cannot be started.
pub fn recount_beside(view: &View) -> Result<Option<Recounting>> {
    if !view.leaks_pending() || !view.may_write() {
        return Ok(None);
    }
    let view = view.present();
    let is_over = Arc::new(AtomicBool::new(false));
    let thread = Arc::new(Mutex::new(None::<JoinHandle<()>>));
    let end = {
        let (is_over, thread) = (is_over.clone(), thread.clone());
        move || {
            is_over.store(true, Ordering::Relaxed);
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            // It may be this thread that closes the volume, since nobody else has it any more.
            if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id())
            {
                if thread.join().is_err() {
                    tracing::error!("the recount panicked");
                }
            }
        }
    };
    // Held until the thread is there, so that whoever closes the volume meanwhile waits for it.
    let mut place = thread.lock().unwrap_or_else(PoisonError::into_inner);
    if !view.before_close(Box::new(end)) {
        return Ok(None);
    }
    // From now on, so that nobody fails for lack of room before the thread runs.
    let under_way = view.begin_recount();
    let (ends, ended) = mpsc::channel::<()>();
    let work = move || {
        let _ends = ends;
        run(&view, &is_over);
        view.tell_recounting(None);
        drop(under_way);
    };
    let started = std::thread::Builder::new().name("yore-recount".into()).spawn(work);
    let started = started.map_err(|error| Error::Refused(format!("cannot start the recount: {error}")))?;
    *place = Some(started);
    Ok(Some(Recounting(ended)))
}

fn run(view: &View, is_over: &AtomicBool) {
    let mut told = |at: &Progress| {
        if let Some(left) = at.left {
            let (done, all) = (at.elapsed.as_millis(), (at.elapsed + left).as_millis());
            view.tell_recounting(Some((done * 100 / all.max(1)) as u8));
        }
        match is_over.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    view.tell_recounting(Some(0));
    while !is_over.load(Ordering::Relaxed) && view.leaks_pending() {
        match recount(view, &OnlineOptions::default(), &mut told) {
            Ok(report) if report.is_clean() => {
                tracing::info!(findings = report.repaired.len(), "no leaks are pending any more");
            }
            Ok(report) => {
                tracing::warn!(
                    left = report.left_count,
                    "leaks stay pending; run `yore check --online` to see what is left"
                );
                return;
            }
            Err(OnlineError::BrokenOff) => return,
            // A check that somebody asked for is under way. It recounts, too.
            Err(OnlineError::Volume(Error::Refused(_))) => std::thread::sleep(OTHER),
            Err(error) => {
                tracing::warn!(%error, "leaks stay pending; the next mount recounts again");
                return;
            }
        }
    }
}
