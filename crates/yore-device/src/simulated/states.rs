//! Going through a trace from crash point to crash point, and the states to try at each.
//!
//! The durable image moves forward with the trace: a step costs what the entry wrote, and a point costs a
//! snapshot and a reference count per pending write.

use std::collections::VecDeque;
use std::sync::Arc;

use super::crash::{apply, CrashPoint, Pending};
use super::state::{CrashPlan, CrashState, CrashStateError};
use super::trace::{Trace, TraceEntry};
use crate::MemoryDevice;

impl Trace {
    /// The crash points from after entry `first` on, in order. Moving on costs what the entry wrote; only the
    /// first step has to go through the entries before it.
    pub fn crash_points(&self, first: usize) -> CrashPoints<'_> {
        CrashPoints::new(self, first)
    }

    /// The states that crashes could leave, as `plan` selects them: at each point all of them if they are
    /// few, otherwise samples.
    pub fn crash_states(&self, plan: &CrashPlan) -> CrashStates<'_> {
        CrashStates::new(self, plan)
    }

    /// Produces one state again, from its printed form, say.
    ///
    /// # Errors
    /// If the state cannot be one of this trace.
    pub fn materialise(&self, state: &CrashState) -> Result<MemoryDevice, CrashStateError> {
        self.crash_point(state.after_entry)?.materialise(state.choice, state.tearing)
    }

    /// The crash point after the first `after_entry` entries.
    ///
    /// # Errors
    /// If the trace is shorter.
    pub fn crash_point(&self, after_entry: usize) -> Result<Arc<CrashPoint>, CrashStateError> {
        let no_such_event = CrashStateError::NoSuchEntry { after_entry, entries: self.len() };
        self.crash_points(after_entry).next().ok_or(no_such_event)
    }
}

/// The crash points of a trace, in order.
#[derive(Debug)]
pub struct CrashPoints<'t> {
    trace: &'t Trace,
    /// The next point, or beyond the end of the trace.
    after_entry: usize,
    /// How many entries `durable` and `pending` stand for.
    taken: usize,
    durable: MemoryDevice,
    pending: Vec<Pending>,
}

impl<'t> CrashPoints<'t> {
    pub(super) fn new(trace: &'t Trace, first: usize) -> Self {
        CrashPoints {
            trace,
            after_entry: first,
            taken: 0,
            durable: trace.initial().snapshot(),
            pending: Vec::new(),
        }
    }

    fn take_event(&mut self) {
        match &self.trace.entries()[self.taken] {
            TraceEntry::Write { offset, data } => {
                self.pending.push(Pending::Write { offset: *offset, data: data.clone() })
            }
            TraceEntry::Discard { offset, len } => {
                self.pending.push(Pending::Discard { offset: *offset, len: *len })
            }
            TraceEntry::Flush => {
                for pending in self.pending.drain(..) {
                    apply(&pending, &self.durable);
                }
            }
            TraceEntry::FlushRange { offset, len } => {
                let range = *offset..offset + len;
                let (durable, pending) =
                    std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.is_in(&range));
                self.pending = pending;
                let durable: Vec<Pending> = durable;
                for pending in &durable {
                    apply(pending, &self.durable);
                }
            }
            TraceEntry::Mark(_) => {}
        }
        self.taken += 1;
    }
}

impl Iterator for CrashPoints<'_> {
    type Item = Arc<CrashPoint>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.after_entry > self.trace.len() {
            return None;
        }
        while self.taken < self.after_entry {
            self.take_event();
        }
        self.after_entry += 1;
        let durable = self.durable.snapshot();
        Some(Arc::new(CrashPoint::new(self.taken, durable, self.pending.clone())))
    }
}

/// One state that a crash could leave. Independent of the trace and of the iterator it came from, so it can
/// be tried in another thread.
#[derive(Debug, Clone)]
pub struct CrashCase {
    point: Arc<CrashPoint>,
    state: CrashState,
}

impl CrashCase {
    /// Its name, to be printed when something is wrong with it.
    pub fn state(&self) -> CrashState {
        self.state
    }

    /// How many entries had happened.
    pub fn after_entry(&self) -> usize {
        self.state.after_entry
    }

    /// The medium as the crash left it. Costs what was pending.
    pub fn materialise(&self) -> MemoryDevice {
        match self.point.materialise(self.state.choice, self.state.tearing) {
            Ok(medium) => medium,
            Err(error) => unreachable!("a state chosen for this point does not exist: {error}"),
        }
    }
}

/// The states that crashes could leave, in order of the entries.
#[derive(Debug)]
pub struct CrashStates<'t> {
    points: CrashPoints<'t>,
    plan: CrashPlan,
    waiting: VecDeque<CrashCase>,
}

impl<'t> CrashStates<'t> {
    pub(super) fn new(trace: &'t Trace, plan: &CrashPlan) -> Self {
        let first = plan.after_events.as_ref().map_or(0, |range| *range.start());
        CrashStates { points: CrashPoints::new(trace, first), plan: plan.clone(), waiting: VecDeque::new() }
    }

    /// Whether the states after this many entries are wanted.
    fn wanted(&self, after_entry: usize) -> bool {
        let last = after_entry.checked_sub(1).map(|last| &self.points.trace.entries()[last]);
        self.plan.at_marks
            || !matches!(last, Some(TraceEntry::Mark(_) | TraceEntry::Flush | TraceEntry::FlushRange { .. }))
    }
}

impl Iterator for CrashStates<'_> {
    type Item = CrashCase;

    fn next(&mut self) -> Option<CrashCase> {
        loop {
            if let Some(case) = self.waiting.pop_front() {
                return Some(case);
            }
            let point = self.points.next()?;
            let after_entry = point.after_entry();
            let range = self.plan.after_events.as_ref();
            if range.is_some_and(|range| after_entry > *range.end()) {
                return None;
            }
            if self.wanted(after_entry) {
                let tearing = self.plan.tearing;
                self.waiting.extend(point.choices(&self.plan).into_iter().map(|choice| CrashCase {
                    point: point.clone(),
                    state: CrashState { after_entry, choice, tearing },
                }));
            }
        }
    }
}
