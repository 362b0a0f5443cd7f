//! Walking a B+tree of any kind, leaves in ascending order of their keys.
//!
//! The walk keeps its own stack. A child is entered only at the level below its parent's and only if no
//! reference led to it before, so the walk ends after at most as many steps as there are metadata blocks.
//! Nodes that several states of one inode hold together ([`Chain`]) are entered once for each of these
//! states.

use crate::chain::{Chain, Followed, Holder};
use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use yore_format::{Block, BlockKind, Expect, Incarnation, InodeNo, MetaAddr, NodeRef};

/// The highest level of a root: of any tree, of the trees of the past, and of the orphans.
const LEVEL_MAX: u8 = 12;
const LEVEL_MAX_PAST: u8 = 6;
const LEVEL_MAX_ORPHANS: u8 = 2;
/// Bytes of the longest keys.
const KEY_BYTES: usize = 24;
/// Bytes of the keys of all trees but those of the past.
pub(crate) const KEY_WIDTH: usize = 8;

/// A key, and zeros after it. Keys of one tree have one width, so these compare as the keys do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Before or equal to every key.
    pub(crate) const FIRST: Key = Key([0; KEY_BYTES]);

    fn of(bytes: &[u8]) -> Key {
        let mut key = Key::FIRST;
        key.0[..bytes.len()].copy_from_slice(bytes);
        key
    }

    /// The first eight bytes, which are all of most keys.
    pub(crate) fn number(self) -> u64 {
        self.0[..KEY_WIDTH].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The key for people, in parts of eight bytes.
    fn shown(self, width: usize) -> String {
        let part = |bytes: &[u8]| Key::of(bytes).number();
        let parts: Vec<String> =
            self.0[..width].chunks(KEY_WIDTH).map(|bytes| format!("{:#x}", part(bytes))).collect();
        parts.join(":")
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Key {
        Key::of(&number.to_be_bytes())
    }
}

/// Which tree, and what its nodes must say.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub(crate) kind: BlockKind,
    pub(crate) owner: InodeNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) root: MetaAddr,
    /// The root's level, where something outside the tree says it.
    pub(crate) level: Option<u8>,
    /// Bytes of its keys.
    pub(crate) key_width: usize,
}

/// A node still to be entered.
pub(crate) struct Step {
    pub(crate) addr: MetaAddr,
    pub(crate) level: Option<u8>,
    /// Keys of the node must be at least this …
    pub(crate) low: Key,
    /// … and below this.
    pub(crate) high: Option<Key>,
    /// The branch that names it; `None` for a root.
    pub(crate) parent: Option<MetaAddr>,
    /// That branch was met in a newer state of the chain, which led here, too.
    pub(crate) again: bool,
}

impl Step {
    /// What holds the node in the state under way of an inode.
    pub(crate) fn holder(&self, state: usize) -> Holder {
        self.parent.map_or(Holder::State(state), Holder::Node)
    }
}

impl Tree {
    /// The step to the root.
    pub(crate) fn step(&self) -> Step {
        Step { addr: self.root, level: self.level, low: Key::FIRST, high: None, parent: None, again: false }
    }

    /// What a node must be.
    pub(crate) fn expect(&self, level: Option<u8>) -> Expect {
        Expect { kind: self.kind, owner: self.owner, incarnation: self.incarnation, level }
    }

    /// Checks what each node must be beside its cells. False if its keys cannot be used.
    pub(crate) fn check_node(&self, checker: &mut Checker<'_>, step: &Step, node: NodeRef<'_>) -> bool {
        if node.key_width() != self.key_width {
            let finding = Finding::new(Problem::TreeKeyWidth, self.key_width as u64, node.key_width() as u64);
            checker.add_incomplete(finding.at(step.addr).of(self.owner));
            return false;
        }
        let most = match self.owner {
            InodeNo::ORPHANS => LEVEL_MAX_ORPHANS,
            InodeNo::CUTS | InodeNo::HISTORY => LEVEL_MAX_PAST,
            _ => LEVEL_MAX,
        };
        if step.parent.is_none() && node.level() > most {
            let expected = format!("at most {most}");
            let finding = Finding::new(Problem::TreeLevel, expected, u64::from(node.level()));
            checker.add(finding.at(step.addr).of(self.owner));
        }
        if node.count() > 0 {
            // The keys ascend, as the verifier saw, so the first and the last stand for all.
            self.check_bounds(checker, step, key(node, 0), key(node, node.count() - 1));
        } else if step.parent.is_some() {
            let finding = Finding::new(Problem::TreeEmptyLeaf, "at least one cell", "none");
            checker.add(finding.at(step.addr).of(self.owner));
        }
        true
    }

    /// Checks the least and the greatest key below a node.
    pub(crate) fn check_bounds(&self, checker: &mut Checker<'_>, step: &Step, first: Key, last: Key) {
        if first < step.low || step.high.is_some_and(|high| last >= high) {
            let shown = |key: Key| key.shown(self.key_width);
            let high = step.high.map_or("the end".to_string(), shown);
            let expected = format!("keys from {} to below {high}", shown(step.low));
            let found = format!("keys from {} to {}", shown(first), shown(last));
            let finding = Finding::new(Problem::TreeBounds, expected, found);
            checker.add(finding.at(step.addr).of(self.owner));
        }
    }

    /// The steps to the children of a branch, last first, and whether all of them can be made. Child i holds
    /// the keys from cell i's to the next cell's; the first also those from the node's own bound on.
    pub(crate) fn children(
        &self,
        checker: &mut Checker<'_>,
        step: &Step,
        node: NodeRef<'_>,
    ) -> (Vec<Step>, bool) {
        let (mut steps, mut complete) = (Vec::with_capacity(node.count()), true);
        for i in (0..node.count()).rev() {
            match node.child(i) {
                Ok(addr) => steps.push(Step {
                    addr,
                    level: Some(node.level() - 1),
                    low: if i == 0 { step.low } else { key(node, i) },
                    high: if i + 1 < node.count() { Some(key(node, i + 1)) } else { step.high },
                    parent: Some(step.addr),
                    again: false,
                }),
                Err(c) => {
                    // The verifier sees this first; kept so that no change there makes it go unseen.
                    checker.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                    complete = false;
                }
            }
        }
        (steps, complete)
    }
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
    /// Nodes that were read.
    pub(crate) nodes: u64,
    /// Whether every node could be read.
    pub(crate) complete: bool,
}

impl Walk {
    pub(crate) fn new(tree: Tree) -> Walk {
        Walk { tree, stack: vec![tree.step()], nodes: 0, complete: true }
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
                Followed::Known(_) => checker.read_again(step.addr, &self.tree.expect(step.level))?,
                Followed::Nothing => None,
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
            return Ok(Some(Leaf { addr: step.addr, block }));
        }
        Ok(None)
    }
}

/// Key of cell `i`.
pub(crate) fn key(node: NodeRef<'_>, i: usize) -> Key {
    // The width was compared before, and the verifier knows none above 24.
    Key::of(node.key(i))
}
