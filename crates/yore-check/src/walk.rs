//! Walking a B+tree of any kind, leaves in ascending order of their keys.
//!
//! The walk keeps its own stack. A child is entered only at the level below its parent's and only if no
//! reference led to it before, so the walk ends after at most as many steps as there are metadata blocks. A
//! node that several states of one inode hold together ([`Chain`]) is entered once for each of these states,
//! until many nodes of the chain were read again. From then on only nodes are entered that no newer state
//! has; what lies below the others was checked with that state, and what leads to them is.

use crate::chain::Chain;
use crate::checker::Checker;
use crate::follow::Followed;
use crate::key::key;
use crate::tree::{Step, Tree};
use crate::CheckError;
use std::sync::Arc;
use yore_format::{Block, MetaAddr, NodeRef};

/// How many nodes are read again for the states of one inode before that is enough.
const READ_AGAIN_MAX: u64 = 1 << 16;

/// A leaf and its address.
pub(crate) struct Leaf {
    pub(crate) addr: MetaAddr,
    block: Arc<Block>,
    count: usize,
}

impl Leaf {
    /// Number of cells that count.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Key, as a number, and value of cell `i` of a tree with keys of eight bytes.
    pub(crate) fn cell(&self, i: usize) -> (u64, &[u8]) {
        let node = NodeRef::new(&self.block);
        (key(node, i).number(), node.value(i))
    }

    /// Key and value of cell `i`.
    pub(crate) fn wide_cell(&self, i: usize) -> (&[u8], &[u8]) {
        let node = NodeRef::new(&self.block);
        (node.key(i), node.value(i))
    }
}

/// A walk under way.
pub(crate) struct Walk {
    tree: Tree,
    stack: Vec<Step>,
    /// Whether nodes that a newer state of the chain has are passed over. Then they count as not read.
    pub(crate) is_of_new: bool,
    /// Nodes that were read.
    pub(crate) nodes: u64,
    /// Whether every node could be read.
    pub(crate) complete: bool,
}

impl Walk {
    pub(crate) fn new(tree: Tree) -> Walk {
        Walk { tree, stack: vec![tree.step()], is_of_new: false, nodes: 0, complete: true }
    }

    /// Of a tree of one of the states of a chain.
    pub(crate) fn of_state(tree: Tree, chain: Option<&Chain>) -> Walk {
        let is_of_new = chain.is_some_and(|chain| chain.read_again >= READ_AGAIN_MAX);
        Walk { is_of_new, ..Walk::new(tree) }
    }

    /// The next leaf of a tree that nothing else names, or `None` after the last.
    pub(crate) fn next_leaf(&mut self, checker: &mut Checker<'_>) -> Result<Option<Leaf>, CheckError> {
        self.next_leaf_of(checker, None)
    }

    /// The next leaf of a tree whose nodes other states of the same inode may name too.
    pub(crate) fn next_leaf_of(
        &mut self,
        checker: &mut Checker<'_>,
        mut chain: Option<&mut Chain>,
    ) -> Result<Option<Leaf>, CheckError> {
        while let Some(step) = self.stack.pop() {
            let followed = checker.follow(&self.tree, &step, chain.as_deref_mut())?;
            let again = matches!(followed, Followed::Known(_));
            let block = match followed {
                Followed::New(block) => Some(block),
                Followed::Known(_) if !self.is_of_new => {
                    if let Some(chain) = chain.as_deref_mut() {
                        chain.read_again += 1;
                    }
                    checker.read_again(step.addr, &self.tree.expect(step.level))?
                }
                Followed::Known(_) | Followed::Nothing => None,
            };
            let Some(block) = block else {
                self.complete = false;
                continue;
            };
            self.nodes += 1;
            let node = NodeRef::new(&block);
            if !self.tree.check_node(checker, &step, node) {
                if let Some(chain) = chain.as_deref_mut() {
                    chain.give_up(step.addr);
                }
                self.complete = false;
                continue;
            }
            if node.level() > 0 {
                let (steps, complete) = self.tree.children(checker, &step, node);
                self.stack.extend(steps.into_iter().map(|step| Step { again, ..step }));
                self.complete &= complete;
                continue;
            }
            let count = Tree::cells_that_count(&step, node);
            return Ok(Some(Leaf { addr: step.addr, block, count }));
        }
        Ok(None)
    }
}
