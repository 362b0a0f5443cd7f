//! Checking a volume that is in use.

use super::who::Who;
use crate::{Answer, Checked};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use yore_fs::{Error, Result, View};
use yore_online::{OnlineError, OnlineOptions, OnlineReport};

/// How often the host is asked whether it is about to end.
const EVERY: Duration = Duration::from_millis(100);

/// Checks the volume for a user. Ends soon, without a result, if the host is about to end or somebody
/// wants to unmount the volume.
pub(super) fn check(
    view: &View,
    who: &Who<'_>,
    (findings_max, memory): (u64, u64),
    question: u64,
) -> Result<Answer> {
    who.check_everything()?;
    let options = OnlineOptions {
        findings_max: usize::try_from(findings_max).unwrap_or(usize::MAX),
        memory,
        repairs: !who.read_only,
        ..OnlineOptions::default()
    };
    let inspection = view.inspect();
    if inspection.is_broken_off() {
        return Ok(Answer::CheckBrokenOff);
    }
    let asked = who.host.ongoing().begin(who.uid, question, None)?;
    let (is_over, progress) = (AtomicBool::new(false), &asked.progress);
    let mut told = |at: &yore_check::Progress| {
        if let Some(left) = at.left {
            progress.set(at.elapsed.as_millis() as u64, (at.elapsed + left).as_millis() as u64);
        }
        match is_over.load(Ordering::Relaxed) || inspection.is_broken_off() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let (end, ended) = mpsc::channel::<()>();
    let done = std::thread::scope(|scope| {
        let check = scope.spawn(|| {
            // Dropped at the end, also by a panic.
            let _end = end;
            yore_online::check(view, &options, &mut told)
        });
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
            is_over.store(who.host.is_over(), Ordering::Relaxed);
        }
        check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    match done {
        Ok(report) => Ok(Answer::Checked(checked(&report)?)),
        Err(OnlineError::BrokenOff) => Ok(Answer::CheckBrokenOff),
        Err(OnlineError::Volume(error)) => Err(error),
        Err(other) => Err(Error::Refused(other.to_string())),
    }
}

/// The report as JSON and for people.
fn checked(found: &OnlineReport) -> Result<Checked> {
    let json = serde_json::to_string(found);
    let json = json.map_err(|e| Error::Refused(format!("the report cannot be written as JSON: {e}")))?;
    let mut text = found.report.to_string();
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing into a string does not fail.
        let _ = write!(text, "\n{words}");
    };
    match found.repaired.len() {
        0 => {}
        n => line(format_args!("{n} of the findings were repaired at once")),
    }
    match (found.left_count, found.recorded) {
        (0, _) => {}
        (left, true) => line(format_args!(
            "{left} findings are recorded on the volume; unmount it and run `yore check --repair`"
        )),
        (left, false) => {
            line(format_args!("{left} findings are left, and not recorded: the mount is read-only"))
        }
    }
    Ok(Checked { is_clean: found.is_clean(), json, text })
}
