//! Progress for whoever waits: a bar with the time left on a terminal, JSON lines on a file descriptor on
//! request, otherwise nothing. This module also notices when the user wants the command to stop.

use crate::args;
use crate::output::printable;
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use yore_control::{Client, Mounted, Until, Watch};

/// How often a line goes to the file descriptor.
const EVERY: Duration = Duration::from_millis(200);

/// Returns a flag that is set by the first signal that asks this program to end. A second signal ends it at
/// once. Every call returns the same flag, not set.
///
/// # Errors
/// What the host says.
pub fn stop_wanted() -> anyhow::Result<Arc<AtomicBool>> {
    static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        stop.store(false, Ordering::Relaxed);
        return Ok(stop.clone());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot wait for signals")?;
    }
    *known = Some(stop.clone());
    Ok(stop)
}

/// Asks what may take long. A signal that asks this program to end breaks that off, so that a mount does not
/// go on with it for nobody.
///
/// # Errors
/// A signal came, whatever the answer was; what the host says about signals.
pub fn until_stopped<T>(client: &dyn Client, ask: impl FnOnce(&dyn Client) -> T) -> anyhow::Result<T> {
    let stop = stop_wanted()?;
    let answer = ask(&Until::new(client, &stop));
    // From now on a signal ends the program at once, as it does without this.
    anyhow::ensure!(!stop.swap(true, Ordering::Relaxed), "stopped by a signal");
    Ok(answer)
}

/// Parts into which the bar of a check is divided.
const CHECK_PARTS: u64 = 1000;

/// The progress of one command, in bytes.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: Option<File>,
    last: Option<Instant>,
    done: u64,
    /// `None` if nobody knows.
    total: Option<u64>,
}

impl Progress {
    /// Progress as the command line asks for it.
    ///
    /// # Errors
    /// The file descriptor is not open for writing.
    pub fn new(wanted: args::Progress) -> anyhow::Result<Progress> {
        let style =
            "{wide_msg} {bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left";
        Progress::styled(wanted, style, Some(0))
    }

    /// Progress, as the command line asks for it, of work whose amount nobody knows beforehand.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub fn without_end(wanted: args::Progress) -> anyhow::Result<Progress> {
        Progress::styled(wanted, "{wide_msg} {binary_bytes} after {elapsed}", None)
    }

    /// Progress, as the command line asks for it, of a query, which has no unit.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub fn of_search(wanted: args::Progress) -> anyhow::Result<Progress> {
        Progress::styled(wanted, "{wide_msg} {bar:24} {percent}%, {eta} left", Some(0))
    }

    /// Progress, as the command line asks for it, of a check, which says itself how long it will take.
    ///
    /// # Errors
    /// As [`Progress::new`].
    pub fn of_check(wanted: args::Progress) -> anyhow::Result<Progress> {
        Progress::styled(wanted, "{wide_msg} {bar:24} {percent}%", Some(CHECK_PARTS))
    }

    /// Shows how far a check is. A line has its part (`scan` or `compare`), what of it is done, the seconds
    /// since the check began and the seconds left, which are null as long as nobody knows.
    pub fn check(&mut self, at: &yore_check::Progress) {
        if let Some(bar) = &self.bar {
            let doing = match at.part {
                yore_check::Part::Scan => "reading metadata",
                yore_check::Part::Compare => "comparing",
            };
            bar.set_position((at.share() * CHECK_PARTS as f64) as u64);
            bar.set_message(match at.left {
                Some(left) => format!("{doing}, {} s left", left.as_secs_f64().ceil()),
                None => doing.to_string(),
            });
        }
        let is_due = self.last.is_none_or(|last| last.elapsed() >= EVERY) || at.left == Some(Duration::ZERO);
        if is_due {
            self.write(&json!({
                "part": at.part, "done": at.done, "total": at.total,
                "elapsed": at.elapsed.as_secs_f64(), "left": at.left.map(|left| left.as_secs_f64()),
            }));
        }
    }

    /// Shows how far the check of a volume in use is: milliseconds that it has taken, and that it takes in
    /// all.
    pub fn online(&mut self, done: u64, total: u64) {
        let (elapsed, left) = (done as f64 / 1e3, total.saturating_sub(done) as f64 / 1e3);
        if let Some(bar) = &self.bar {
            bar.set_position((done * CHECK_PARTS).checked_div(total).unwrap_or(0));
            bar.set_message(format!("checking, {} s left", left.ceil()));
        }
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.write(&json!({
                "part": "online", "done": done, "total": total, "elapsed": elapsed, "left": left,
            }));
        }
    }

    fn styled(wanted: args::Progress, style: &str, total: Option<u64>) -> anyhow::Result<Progress> {
        let lines = match wanted.progress_fd {
            None => None,
            Some(fd) => {
                // SAFETY: the number is used for this one call, which fails with EBADF if it is not open.
                let given = unsafe { BorrowedFd::borrow_raw(fd) };
                // A copy, and not a file opened again: the caller shares the position of the next line.
                let copy = rustix::io::fcntl_dupfd_cloexec(given, 3);
                let copy =
                    copy.with_context(|| format!("file descriptor {fd} (--progress-fd) is not open"))?;
                Some(File::from(copy))
            }
        };
        let terminal = std::io::stderr().is_terminal() && !wanted.quiet && lines.is_none();
        let bar =
            terminal.then(|| ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10)));
        if let Some(bar) = &bar {
            bar.set_style(ProgressStyle::with_template(style).context("the progress bar's template")?);
        }
        Ok(Progress { bar, lines, last: None, done: 0, total })
    }

    /// Whether anybody will see it. Only then is the total worth computing.
    pub fn is_shown(&self) -> bool {
        self.bar.is_some() || self.lines.is_some()
    }

    /// How much there is to do.
    pub fn set_total(&mut self, total: u64) {
        self.total = Some(total);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// Sets how much is done, of how much.
    pub fn set(&mut self, done: u64, total: u64) {
        self.set_total(total);
        self.done = done;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        self.line();
    }

    /// Says what is being done now.
    pub fn now(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(printable(what.as_bytes()));
        }
    }

    /// Adds to what is done.
    pub fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.line();
        }
    }

    /// Prints a line of text without disturbing the bar.
    pub fn warn(&self, message: &str) {
        self.aside(|| crate::status::warn(message));
    }

    /// Does something that prints, without disturbing the bar.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn line(&mut self) {
        self.write(&json!({"done": self.done, "total": self.total}));
    }

    fn write(&mut self, line: &serde_json::Value) {
        if let Some(lines) = &mut self.lines {
            self.last = Some(Instant::now());
            // If nobody reads the progress any more, the work must go on.
            if writeln!(lines, "{line}").is_err() {
                self.lines = None;
            }
        }
    }

    /// Ends the progress.
    pub fn finish(mut self) {
        self.line();
        self.clear();
    }

    /// Takes away the bar, without a last line.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far the daemon of a mount has got with freeing space, until it is done. The daemon goes on
/// whether or not anybody watches.
///
/// # Errors
/// As [`Progress::new`].
pub fn while_given_back(dir: &File, wanted: args::Progress) -> anyhow::Result<()> {
    let mut shown = Progress::of_search(wanted)?;
    if shown.is_shown() {
        shown.now("giving back space (Ctrl-C leaves that to the daemon)");
        // If the daemon cannot be asked, that does not matter: it does the work all the same.
        while let Ok(Some((done, total))) = Mounted(dir).forgetting() {
            shown.set(done, total);
            std::thread::sleep(EVERY);
        }
        shown.finish();
    }
    Ok(())
}

/// Does work that reports its progress, and shows the progress meanwhile.
///
/// # Errors
/// Those of the progress, as [`Progress::new`].
pub fn while_searching<T>(
    wanted: args::Progress,
    what: &str,
    work: impl FnOnce(Watch<'_>) -> T,
) -> anyhow::Result<T> {
    let mut shown = Progress::of_search(wanted)?;
    if !shown.is_shown() {
        return Ok(work(None));
    }
    shown.now(what);
    let done = work(Some(&mut |done, total| shown.set(done, total)));
    shown.finish();
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_control::{Answer, Request};

    /// Answers; before that, somebody may ask the program to end.
    struct Asked {
        signal: bool,
    }

    impl Client for Asked {
        fn ask(&self, _: &Request) -> yore_fs::Result<Answer> {
            if self.signal {
                signal_hook::low_level::raise(SIGINT).unwrap();
            }
            Ok(Answer::Done)
        }
    }

    /// A signal came while a question was answered. The answer was good, so the command went on: `expunge`
    /// gave up what the user had stopped it from giving up.
    #[test]
    fn an_answer_behind_a_signal_is_none() {
        let ask = |signal| until_stopped(&Asked { signal }, |client| client.ask(&Request::Pin));
        assert!(ask(false).unwrap().is_ok());
        assert!(ask(true).is_err());
        assert!(ask(false).unwrap().is_ok());
    }
}
