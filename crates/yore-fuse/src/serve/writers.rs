//! Counts who has files open for writing, for versions at each close: the last close makes one.

use fuser::INodeNo;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

/// How many open files each node has that can be written to, if the kernel reports opens.
#[derive(Default)]
pub(super) struct Writers([Mutex<HashMap<INodeNo, usize>>; 16]);

impl Writers {
    fn of(&self, node: INodeNo) -> MutexGuard<'_, HashMap<INodeNo, usize>> {
        self.0[node.0 as usize % self.0.len()].lock()
    }

    /// One more file is open.
    pub(super) fn enter(&self, node: INodeNo) {
        *self.of(node).entry(node).or_default() += 1;
    }

    /// One file is closed. If it was the last, `last` runs before anybody opens the file for writing again.
    pub(super) fn leave<R>(&self, node: INodeNo, last: impl FnOnce() -> R) -> Option<R> {
        let mut open = self.of(node);
        let count = open.get(&node).map_or(0, |count| count.saturating_sub(1));
        if count > 0 {
            open.insert(node, count);
            return None;
        }
        open.remove(&node);
        Some(last())
    }
}
