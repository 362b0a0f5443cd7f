//! Work on a volume that takes long: who may ask for how much of it, and how it ends early.

use super::who::{Host, Who};
use crate::ongoing::{too_long, Asked};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use yore_fs::{Error, Inspection, Progress, Result, View};

/// Questions of one user that are answered at a time, unless the user may do everything.
pub(super) const QUESTIONS_MOST: usize = 4;

/// Work on a volume that takes long. It ends early if the volume is unmounted, or if whoever asked for it
/// does not wait any longer; and if it collects more than any answer may be long.
pub(super) struct Long<'a> {
    host: &'a dyn Host,
    inspection: Inspection,
    asked: Asked<'a>,
    collected: AtomicUsize,
}

impl<'a> Long<'a> {
    /// Begins what a user asks for under a name; 0: it has none.
    ///
    /// # Errors
    /// [`Error::Refused`] if the volume is being unmounted, or if the user asks for too much at once.
    pub(super) fn begin(view: &View, who: &Who<'a>, question: u64) -> Result<Long<'a>> {
        let inspection = view.inspect();
        if inspection.is_broken_off() {
            return Err(Error::Refused("the volume is being unmounted".into()));
        }
        let most = (!who.may_all).then_some(QUESTIONS_MOST);
        let asked = who.host.ongoing().begin(who.uid, question, most)?;
        Ok(Long { host: who.host, inspection, asked, collected: AtomicUsize::new(0) })
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.asked.progress
    }

    pub(super) fn goes_on(&self) -> ControlFlow<()> {
        let is_over = self.host.is_over() || self.asked.is_broken_off() || self.inspection.is_broken_off();
        match is_over {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// As [`Long::goes_on`], after so many more bytes were collected.
    pub(super) fn collects(&self, bytes: usize) -> ControlFlow<()> {
        self.collected.fetch_add(bytes, Ordering::Relaxed);
        match self.is_too_long() {
            true => ControlFlow::Break(()),
            false => self.goes_on(),
        }
    }

    /// The outcome of work that was told to end by [`Long::collects`]: an error says why.
    pub(super) fn outcome<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(_) if self.is_too_long() => Err(too_long()),
            outcome => outcome,
        }
    }

    fn is_too_long(&self) -> bool {
        self.collected.load(Ordering::Relaxed) > self.host.ongoing().collected_most()
    }
}
