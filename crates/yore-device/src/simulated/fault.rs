//! Faults on demand while the device runs.
//!
//! Requests are counted per kind from 1, beginning when a plan is set. Each buffer of a vectored read and
//! each request of a batch is a request; a vectored write is one. The first fault of the plan that fits a
//! request strikes it. The other faults do not see the request, but it counts for them too.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::Operation;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The n-th read fails.
    ReadError {
        /// Which read, from 1.
        nth: u64,
    },
    /// The n-th write fails, and stores nothing.
    WriteError {
        /// Which write, from 1.
        nth: u64,
    },
    /// The n-th flush fails; pending writes stay pending.
    FlushError {
        /// Which flush, from 1.
        nth: u64,
    },
    /// The n-th write is reported as done and never stored.
    LostWrite {
        /// Which write, from 1.
        nth: u64,
    },
    /// The n-th write is stored somewhere else; beyond the end of the device means lost.
    MisdirectedWrite {
        /// Which write, from 1.
        nth: u64,
        /// Where it goes, in bytes; a multiple of the block size.
        to: u64,
    },
    /// The n-th read returns one wrong bit; the medium is not changed.
    FlippedBit {
        /// Which read, from 1.
        nth: u64,
        /// Which bit of what is read, modulo its length.
        bit: u64,
    },
    /// Every read that touches this range fails.
    UnreadableRange {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// After this many writes every write fails for want of space.
    Full {
        /// How many writes succeed.
        after_writes: u64,
    },
    /// After this many writes every request of any kind fails: the device is gone.
    Dead {
        /// How many writes succeed.
        after_writes: u64,
    },
}

/// A list of faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// What goes wrong; of several that fit one request the first.
    pub faults: Vec<Fault>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// This plan, and one fault more.
    pub fn and(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
}

impl From<Fault> for FaultPlan {
    fn from(fault: Fault) -> Self {
        Self::none().and(fault)
    }
}

/// A plan being carried out.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Whether there is a plan, so that a truthful device does not take the lock.
    armed: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    plan: FaultPlan,
    reads: u64,
    writes: u64,
    flushes: u64,
    struck: Vec<Fault>,
}

impl Faults {
    pub(super) fn set(&self, plan: FaultPlan) {
        let mut progress = self.progress.lock();
        self.armed.store(!plan.faults.is_empty(), Ordering::Release);
        *progress = Progress { plan, ..Progress::default() };
    }

    pub(super) fn struck(&self) -> Vec<Fault> {
        self.progress.lock().struck.clone()
    }

    /// Counts a request and finds what goes wrong with it.
    pub(super) fn strike(&self, operation: Operation, offset: u64, len: u64) -> Option<Fault> {
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut progress = self.progress.lock();
        match operation {
            Operation::Read => progress.reads += 1,
            Operation::Write => progress.writes += 1,
            Operation::Flush => progress.flushes += 1,
            Operation::Discard | Operation::Open | Operation::Create => {}
        }
        let faults = progress.plan.faults.iter();
        let fault = faults.copied().find(|fault| progress.fits(fault, operation, offset, len))?;
        progress.struck.push(fault);
        Some(fault)
    }
}

impl Progress {
    fn fits(&self, fault: &Fault, operation: Operation, offset: u64, len: u64) -> bool {
        match (*fault, operation) {
            (Fault::ReadError { nth }, Operation::Read)
            | (Fault::FlippedBit { nth, .. }, Operation::Read) => nth == self.reads,
            (Fault::WriteError { nth }, Operation::Write)
            | (Fault::LostWrite { nth }, Operation::Write)
            | (Fault::MisdirectedWrite { nth, .. }, Operation::Write) => nth == self.writes,
            (Fault::FlushError { nth }, Operation::Flush) => nth == self.flushes,
            (Fault::UnreadableRange { offset: bad, len: bad_len }, Operation::Read) => {
                offset < bad.saturating_add(bad_len) && bad < offset.saturating_add(len)
            }
            (Fault::Full { after_writes }, Operation::Write) => self.writes > after_writes,
            (Fault::Dead { after_writes }, Operation::Write) => self.writes > after_writes,
            // The write that finds the device gone is the first sign; from then on nothing works, and a
            // device that is to have no successful write at all is gone at once.
            (Fault::Dead { after_writes }, _) => self.writes >= after_writes,
            _ => false,
        }
    }
}
