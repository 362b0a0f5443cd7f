//! Trees, steps to their nodes, and what each node must be.

use crate::chain::Holder;
use crate::checker::Checker;
use crate::key::{key, Key, KEY_WIDTH};
use crate::{Finding, Problem, Recount};
use yore_format::{BlockKind, Expect, Incarnation, InodeNo, MetaAddr, NodeRef, Superblock};

/// The highest level of a root: of any tree, of the trees of the past, and of the orphans.
const LEVEL_MAX: u8 = 12;
const LEVEL_MAX_PAST: u8 = 6;
const LEVEL_MAX_ORPHANS: u8 = 2;

/// A tree, and what its nodes must say about themselves.
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
    /// A newer state of the chain met that branch, and so came here too.
    pub(crate) again: bool,
}

impl Step {
    /// The node's holder in the current state of an inode.
    pub(crate) fn holder(&self, state: usize) -> Holder {
        self.parent.map_or(Holder::State(state), Holder::Node)
    }
}

impl Tree {
    /// The tree of the volume's orphans, if it has any.
    pub(crate) fn of_orphans(sb: &Superblock) -> Option<Tree> {
        (!sb.orphan_root.is_none()).then_some(Tree {
            kind: BlockKind::Orphans,
            owner: InodeNo::ORPHANS,
            incarnation: Incarnation(0),
            root: sb.orphan_root,
            level: Some(sb.orphan_level),
            key_width: KEY_WIDTH,
        })
    }

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
            InodeNo::EVENTS | InodeNo::HISTORY => LEVEL_MAX_PAST,
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
        let is_above = step.high.is_some_and(|high| last >= high);
        if first < step.low || is_above {
            let shown = |key: Key| key.shown(self.key_width);
            let high = step.high.map_or("the end".to_string(), shown);
            let expected = format!("keys from {} to below {high}", shown(step.low));
            let found = format!("keys from {} to {}", shown(first), shown(last));
            let finding = Finding::new(Problem::TreeBounds, expected, found);
            let recount = Recount::Beyond {
                kind: self.kind,
                owner: self.owner,
                incarnation: self.incarnation,
                low: step.low.bytes(self.key_width).to_vec(),
            };
            let finding = match first < step.low {
                true => finding,
                false => finding.may_be_left().recounted(recount),
            };
            checker.add(finding.at(step.addr).of(self.owner));
        }
    }

    /// How many cells of a node count: those with keys below its upper bound, which are the first ones.
    pub(crate) fn cells_that_count(step: &Step, node: NodeRef<'_>) -> usize {
        let below = |i: &usize| step.high.is_none_or(|high| key(node, *i) < high);
        (0..node.count()).rfind(below).map_or(0, |last| last + 1)
    }

    /// The steps to the children of a branch, last first, and whether all of them can be made. Child i holds
    /// the keys from cell i's to the next cell's; the first also those from the node's own bound on.
    pub(crate) fn children(
        &self,
        checker: &mut Checker<'_>,
        step: &Step,
        node: NodeRef<'_>,
    ) -> (Vec<Step>, bool) {
        let count = Tree::cells_that_count(step, node);
        let (mut steps, mut complete) = (Vec::with_capacity(count), true);
        for i in (0..count).rev() {
            match node.child(i) {
                Ok(addr) => steps.push(Step {
                    addr,
                    level: Some(node.level() - 1),
                    low: if i == 0 { step.low } else { key(node, i) },
                    high: if i + 1 < count { Some(key(node, i + 1)) } else { step.high },
                    parent: Some(step.addr),
                    again: false,
                }),
                Err(c) => {
                    // The verifier sees this first. This stays here so that it does not go unseen if the
                    // verifier changes.
                    checker.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                    complete = false;
                }
            }
        }
        (steps, complete)
    }
}
