//! Marks in the trace of a device: which operation of which thread had begun, and which had returned.

use crate::judge::Bounds;
use yore_device::simulated::{Trace, TraceEntry};

/// The thread in marks that say that a stalled sync has returned.
pub(crate) const STALLED: usize = 0xffff;

/// The mark of the begin or return of a thread's operation.
pub(crate) fn mark(thread: usize, number: usize, returned: bool) -> u64 {
    (thread as u64) << 32 | (number as u64) << 1 | u64::from(returned)
}

/// What a mark says: thread, operation, whether it returned.
pub(crate) fn read_mark(mark: u64) -> (usize, usize, bool) {
    ((mark >> 32) as usize, (mark as u32 >> 1) as usize, mark & 1 != 0)
}

/// For each number of entries, how far a thread's operations had come, of which `before` preceded all
/// entries.
pub(crate) fn bounds_of(trace: &Trace, thread: usize, before: usize) -> Vec<Bounds> {
    let mut now = Bounds::new(before, before);
    let mut bounds = vec![now];
    for entry in trace.entries() {
        if let TraceEntry::Mark(mark) = entry {
            match read_mark(*mark) {
                (of, number, false) if of == thread => now.begun = number + 1,
                (of, number, true) if of == thread => now.returned = number + 1,
                (STALLED, moment, true) => now.synced = now.synced.max(moment),
                _ => {}
            }
        }
        bounds.push(now);
    }
    bounds
}
