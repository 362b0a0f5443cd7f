//! Writing back what is promised, for callers that find no room: dirty pages need less than they may need.

use crate::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What came of writing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It was done.
    Here,
    /// Somebody else has done it since the caller asked how often.
    Meanwhile,
    /// There was nothing to write back that was not tried before.
    Nothing,
}

/// How often room for more extents was promised, and when what had been promised was last written back by
/// somebody who found no room.
#[derive(Default)]
pub(super) struct Spending {
    /// How often it was promised.
    promised: AtomicU64,
    /// What `promised` was when somebody last began to write back. Held while somebody does: the first lock
    /// that is taken.
    begun_at: Mutex<u64>,
    /// How often somebody did.
    times: AtomicU64,
}

impl Spending {
    /// Room for more extents was promised.
    pub(super) fn note_promised(&self) {
        self.promised.fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody has written back.
    pub(super) fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// Has `write_back` write back, unless nothing was promised since it last began, or `is_any` says that
    /// nothing is, or it was done since [`Spending::times`] was `times`.
    pub(super) fn spend(
        &self,
        times: u64,
        is_any: impl FnOnce() -> bool,
        write_back: impl FnOnce() -> Result<()>,
    ) -> Result<Spent> {
        let mut begun_at = self.begun_at.lock();
        if self.times() != times {
            return Ok(Spent::Meanwhile);
        }
        let promised = self.promised.load(Ordering::Relaxed);
        if *begun_at == promised || !is_any() {
            return Ok(Spent::Nothing);
        }
        *begun_at = promised;
        write_back()?;
        self.times.fetch_add(1, Ordering::AcqRel);
        Ok(Spent::Here)
    }
}
