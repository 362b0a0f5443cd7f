//! Who has files open to write, for versions at each close: the last of them makes one.

use fuser::INodeNo;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

/// How many open files each node has that can be written to, where the kernel tells of opens.
#[derive(Default)]
pub(super) struct Writers([Mutex<HashMap<INodeNo, usize>>; 16]);

impl Writers {
    fn of(&self, node: INodeNo) -> MutexGuard<'_, HashMap<INodeNo, usize>> {
        self.0[node.0 as usize % self.0.len()].lock()
    }

    /// One more is open.
    pub(super) fn enter(&self, node: INodeNo) {
        *self.of(node).entry(node).or_default() += 1;
    }

    /// One is done. If it was the last, `last` comes before anybody opens the file to write again.
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
