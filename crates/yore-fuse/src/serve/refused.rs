//! Pages that the kernel must not believe any more, because the view has refused to take them.
//!
//! The kernel asks nobody whether a program may store to a page of a shared mapping. It writes the page some
//! time later, and if that is refused, it tells the program and keeps the page as it is. Everybody who reads
//! the file would then read what is nowhere on the volume: what was stored into a file of the past, or into
//! an immutable file. So the daemon has the kernel drop the pages of that node. One thread does it for all
//! nodes, one after the other, while there are any.

use crate::notices::Notices;
use fuser::INodeNo;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

#[derive(Default)]
struct State {
    /// Nodes whose turn comes, in this order.
    queue: VecDeque<INodeNo>,
    queued: HashSet<INodeNo>,
    /// A thread is at work.
    runs: bool,
}

/// The nodes of which the kernel has refused pages.
#[derive(Default)]
pub(super) struct Refused(Mutex<State>);

/// What the thread does.
pub(super) struct Dropping {
    refused: Arc<Refused>,
    /// No node was left.
    ended: bool,
}

impl Refused {
    /// The view has refused pages of this node. If no thread is at work, the caller has to start one.
    pub(super) fn add(self: &Arc<Self>, node: INodeNo) -> Option<Dropping> {
        let mut state = self.0.lock();
        if state.queued.insert(node) {
            state.queue.push_back(node);
        }
        let runs = std::mem::replace(&mut state.runs, true);
        (!runs).then(|| Dropping { refused: self.clone(), ended: false })
    }
}

impl Dropping {
    /// The next node. Pages of it that are refused from now on count anew.
    fn next(&mut self) -> Option<INodeNo> {
        let mut state = self.refused.0.lock();
        let node = state.queue.pop_front();
        match node {
            Some(node) => {
                state.queued.remove(&node);
            }
            None => (state.runs, self.ended) = (false, true),
        }
        node
    }

    /// Has the kernel drop the pages of all nodes. A thread that serves must not call this.
    pub(super) fn run(mut self, notices: &Notices) {
        while let Some(node) = self.next() {
            if let Err(error) = notices.node_changed(node) {
                tracing::debug!(node = node.0, %error, "a notice was not taken");
            }
        }
    }
}

impl Drop for Dropping {
    /// If it could not begin, or broke off, the next refusal starts another thread.
    fn drop(&mut self) {
        if !self.ended {
            self.refused.0.lock().runs = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node has its turn, however often pages of another one are refused, and none is forgotten when a
    /// thread ends or cannot be started.
    #[test]
    fn each_node_has_its_turn() {
        let refused = Arc::new(Refused::default());
        drop(refused.add(INodeNo(7)).expect("nobody is at work"));
        let mut work = refused.add(INodeNo(8)).expect("the thread could not be started");
        assert!(refused.add(INodeNo(8)).is_none());
        assert_eq!(work.next(), Some(INodeNo(7)));
        assert!(refused.add(INodeNo(7)).is_none(), "somebody is at work");
        assert_eq!([work.next(), work.next(), work.next()], [Some(INodeNo(8)), Some(INodeNo(7)), None]);
        let mut next = refused.add(INodeNo(9)).expect("it has ended");
        drop(work);
        assert!(refused.add(INodeNo(10)).is_none());
        assert_eq!([next.next(), next.next(), next.next()], [Some(INodeNo(9)), Some(INodeNo(10)), None]);
    }
}
