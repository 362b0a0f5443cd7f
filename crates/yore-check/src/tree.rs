//! Walking a B+tree of any kind, leaves in ascending order of their keys.
//!
//! The walk keeps its own stack. A child is entered only at the level below its parent's and only if no reference led
//! to it before, so the walk ends after at most as many steps as there are metadata blocks.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use yore_format::{Block, BlockKind, Expect, Incarnation, InodeNo, MetaAddr, NodeRef};

/// Bytes of the keys of all trees.
const KEY_WIDTH: usize = 8;

/// Which tree, and what its nodes must say.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub(crate) kind: BlockKind,
    pub(crate) owner: InodeNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) root: MetaAddr,
    /// The root's level, where something outside the tree says it.
    pub(crate) level: Option<u8>,
}

/// A node still to be entered.
struct Step {
    addr: MetaAddr,
    level: Option<u8>,
    /// Keys of the node must be at least this …
    low: u64,
    /// … and below this.
    high: Option<u64>,
    is_root: bool,
}

/// A leaf and its address.
pub(crate) struct Leaf {
    pub(crate) addr: MetaAddr,
    block: Box<Block>,
}

impl Leaf {
    /// Number of cells.
    pub(crate) fn count(&self) -> usize {
        NodeRef::new(&self.block).count()
    }

    /// Key and value of cell `i`.
    pub(crate) fn cell(&self, i: usize) -> (u64, &[u8]) {
        let node = NodeRef::new(&self.block);
        (key(node, i), node.value(i))
    }
}

/// A walk under way.
pub(crate) struct Walk {
    tree: Tree,
    stack: Vec<Step>,
    /// Nodes that were read.
    pub(crate) nodes: u64,
    /// Whether every node could be read.
    pub(crate) complete: bool,
}

impl Walk {
    pub(crate) fn new(tree: Tree) -> Walk {
        let root = Step { addr: tree.root, level: tree.level, low: 0, high: None, is_root: true };
        Walk { tree, stack: vec![root], nodes: 0, complete: true }
    }

    /// The next leaf, or `None` after the last.
    pub(crate) fn next_leaf(&mut self, checker: &mut Checker<'_>) -> Result<Option<Leaf>, CheckError> {
        while let Some(step) = self.stack.pop() {
            let Tree { kind, owner, incarnation, .. } = self.tree;
            let expect = Expect { kind, owner, incarnation, level: step.level };
            let Some(block) = checker.reach(step.addr, &expect)? else {
                self.complete = false;
                continue;
            };
            self.nodes += 1;
            checker.counts.tree_nodes += 1;
            let node = NodeRef::new(&block);
            if node.key_width() != KEY_WIDTH {
                let finding = Finding::new(Problem::TreeKeyWidth, KEY_WIDTH as u64, node.key_width() as u64);
                checker.add_incomplete(finding.at(step.addr).of(owner));
                self.complete = false;
                continue;
            }
            self.check_bounds(checker, &step, node);
            if node.level() > 0 {
                self.push_children(checker, &step, node);
                continue;
            }
            if node.count() == 0 && !step.is_root {
                let finding = Finding::new(Problem::TreeEmptyLeaf, "at least one cell", "none");
                checker.add(finding.at(step.addr).of(owner));
            }
            return Ok(Some(Leaf { addr: step.addr, block }));
        }
        Ok(None)
    }

    /// The keys ascend, as the verifier saw, so the first and the last stand for all.
    fn check_bounds(&self, checker: &mut Checker<'_>, step: &Step, node: NodeRef<'_>) {
        if node.count() == 0 {
            return;
        }
        let (first, last) = (key(node, 0), key(node, node.count() - 1));
        if first < step.low || step.high.is_some_and(|high| last >= high) {
            let high = step.high.map_or("the end".to_string(), |high| format!("{high:#x}"));
            let expected = format!("keys from {:#x} to below {high}", step.low);
            let found = format!("keys from {first:#x} to {last:#x}");
            let finding = Finding::new(Problem::TreeBounds, expected, found);
            checker.add(finding.at(step.addr).of(self.tree.owner));
        }
    }

    /// Child i holds the keys from cell i's to the next cell's; the first also those from the node's own bound on.
    fn push_children(&mut self, checker: &mut Checker<'_>, step: &Step, node: NodeRef<'_>) {
        for i in (0..node.count()).rev() {
            match node.child(i) {
                Ok(addr) => self.stack.push(Step {
                    addr,
                    level: Some(node.level() - 1),
                    low: if i == 0 { step.low } else { key(node, i) },
                    high: if i + 1 < node.count() { Some(key(node, i + 1)) } else { step.high },
                    is_root: false,
                }),
                Err(c) => {
                    // The verifier sees this first; kept so that no change there makes it go unseen.
                    checker.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                    self.complete = false;
                }
            }
        }
    }
}

fn key(node: NodeRef<'_>, i: usize) -> u64 {
    // The width was compared before.
    node.key(i).iter().fold(0, |key, byte| key << 8 | u64::from(*byte))
}
