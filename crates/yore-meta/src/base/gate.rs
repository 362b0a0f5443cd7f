//! The generation gate. An open Op holds it shared; freezing a generation takes it alone for an instant, so
//! no Op is split across two generations.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use yore_format::Generation;

/// Guards the number of the running generation.
pub(crate) struct Gate(RwLock<u64>);

/// The gate as an Op holds it.
pub(crate) enum GateGuard<'m> {
    /// Other Ops may be open, too.
    Shared { _gate: RwLockReadGuard<'m, u64> },
    /// No other is.
    Alone { _gate: RwLockWriteGuard<'m, u64> },
}

/// The gate, held by one thread while no Op is open.
pub(crate) struct GateAlone<'m>(RwLockWriteGuard<'m, u64>);

impl GateAlone<'_> {
    pub(crate) fn running(&self) -> Generation {
        Generation(*self.0)
    }

    /// Ops belong to the next generation from now on.
    pub(crate) fn advance(&mut self) {
        *self.0 += 1;
    }
}

impl Gate {
    pub(crate) fn new(first: Generation) -> Gate {
        Gate(RwLock::new(first.0))
    }

    /// For an Op beside others.
    #[inline]
    pub(crate) fn share(&self) -> (GateGuard<'_>, Generation) {
        let gate = self.0.read();
        let generation = Generation(*gate);
        (GateGuard::Shared { _gate: gate }, generation)
    }

    /// For an Op that no other is beside.
    pub(crate) fn enter_alone(&self) -> (GateGuard<'_>, Generation) {
        let gate = self.0.write();
        let generation = Generation(*gate);
        (GateGuard::Alone { _gate: gate }, generation)
    }

    /// For an instant between Ops.
    pub(crate) fn hold(&self) -> GateAlone<'_> {
        GateAlone(self.0.write())
    }

    /// The running generation. It may be frozen by the time the caller looks at it.
    pub(crate) fn running(&self) -> Generation {
        Generation(*self.0.read())
    }
}

thread_local! {
    static OPS_OPEN: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn op_opened() {
    OPS_OPEN.with(|n| {
        assert_eq!(n.get(), 0, "an Op opened inside an Op");
        n.set(1);
    });
}

pub(crate) fn op_closed() {
    OPS_OPEN.with(|n| n.set(0));
}

pub(crate) fn assert_no_op() {
    OPS_OPEN.with(|n| debug_assert_eq!(n.get(), 0, "an open Op must not wait (R7)"));
}
