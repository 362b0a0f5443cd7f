//! Following the references of a chain's states to nodes and blocks.

use crate::chain::{gap, Below, Chain, Holder, NamedNode, Piece};
use crate::checker::Checker;
use crate::key::Key;
use crate::tree::{Step, Tree};
use crate::{CheckError, Finding, Problem};
use std::sync::Arc;
use yore_format::{Block, BlockHeader, BlockNo, EventNo, ExtentValue, InodeNo, MetaAddr};

/// The outcome of following a reference to a node.
pub(crate) enum Followed {
    /// Nothing led to it before.
    New(Arc<Block>),
    /// A newer state of the chain names it too.
    Known(Below),
    /// It cannot be used, which was reported.
    Nothing,
}

impl Checker<'_> {
    /// Follows a reference to a node: one that only this state can have, or one that other states of the
    /// chain may have too.
    pub(crate) fn follow(
        &mut self,
        tree: &Tree,
        step: &Step,
        chain: Option<&mut Chain>,
    ) -> Result<Followed, CheckError> {
        let expect = tree.expect(step.level);
        if let Some(chain) = chain {
            if chain.nodes.contains_key(&step.addr) {
                return Ok(self.follow_known(tree, step, chain));
            }
            let block = self.reach(step.addr, &expect)?;
            let header = block.as_ref().map(|block| *BlockHeader::of(block));
            let birth = EventNo(header.map_or(0, |h| h.birth.get()));
            let held = NamedNode {
                kind: tree.kind,
                level: header.map_or(0, |h| h.level),
                birth,
                holder: step.holder(chain.state),
                passed: chain.state,
                usable: block.is_some(),
                below: Below { latest: birth, ..Below::NOTHING },
            };
            chain.nodes.insert(step.addr, held);
            self.check_birth(chain.end(), birth, step.addr, tree.owner);
            // The newest state comes first. So no inode in use names a node that is first met in a version.
            self.counts.history_nodes += u64::from(chain.end().is_some() && block.is_some());
            return Ok(self.followed(block));
        }
        let block = self.reach(step.addr, &expect)?;
        let is_past = matches!(tree.owner, InodeNo::HISTORY | InodeNo::EVENTS);
        self.counts.history_trees += u64::from(is_past && block.is_some());
        Ok(self.followed(block))
    }

    fn followed(&mut self, block: Option<Arc<Block>>) -> Followed {
        let Some(block) = block else { return Followed::Nothing };
        self.counts.tree_nodes += 1;
        Followed::New(block)
    }

    /// A reference to a node that was met in the chain.
    fn follow_known(&mut self, tree: &Tree, step: &Step, chain: &mut Chain) -> Followed {
        let (last, end) = (chain.last(Holder::Node(step.addr)), chain.end());
        // If the parent was walked again, what is below it is where it was, and was checked with it.
        let is_gap = !step.again && chain.is_gap(last);
        let newer = chain.newer();
        let Some(held) = chain.nodes.get_mut(&step.addr).filter(|held| held.usable) else {
            return Followed::Nothing;
        };
        if held.kind != tree.kind || step.level.is_some_and(|level| level != held.level) {
            let expected = format!("{} of level {}", tree.kind.name(), step.level.unwrap_or(held.level));
            let found = format!("{} of level {}", held.kind.name(), held.level);
            let finding = Finding::new(Problem::BlockWrong, expected, found);
            self.add_incomplete(finding.at(step.addr).of(tree.owner));
            return Followed::Nothing;
        }
        // Each state passes each node once, so a walk ends.
        if held.passed == chain.state || (last == chain.state && !step.again) {
            let finding = Finding::new(Problem::BlockReachedTwice, "one reference", "another");
            self.add_incomplete(finding.at(step.addr).of(tree.owner));
            return Followed::Nothing;
        }
        (held.holder, held.passed) = (step.holder(chain.state), chain.state);
        let (below, birth) = (held.below, held.birth);
        if is_gap {
            let finding = gap(tree.kind.name().to_string(), birth).at(step.addr).of(tree.owner);
            self.add(finding.of_row(newer));
        }
        self.check_birth(end, below.latest, step.addr, tree.owner);
        Followed::Known(below)
    }

    /// Whether the keys below a node that is not read again lie within the bounds of the reference to it.
    pub(crate) fn check_known_bounds(&mut self, tree: &Tree, step: &Step, below: &Below) {
        if let Some((first, last)) = below.keys {
            tree.check_bounds(self, step, Key::from(first), Key::from(last));
        }
    }

    /// A version that ended at `end` names nothing that was born then or later.
    pub(crate) fn check_birth(
        &mut self,
        end: Option<EventNo>,
        birth: EventNo,
        addr: MetaAddr,
        owner: InodeNo,
    ) {
        if let Some(end) = end.filter(|end| birth >= *end) {
            let expected = format!("born before the version's end at {end}");
            self.add(Finding::new(Problem::VersionBirth, expected, birth.0).at(addr).of(owner));
        }
    }

    /// Gives the blocks of an extent to a chain. `addr` is where the extent stands.
    pub(crate) fn claim_in(
        &mut self,
        chain: &mut Chain,
        owner: InodeNo,
        (addr, holder): (MetaAddr, Holder),
        key: u64,
        extent: &ExtentValue,
    ) {
        let piece = Piece {
            len: u64::from(extent.len),
            key,
            birth: extent.birth,
            unwritten: extent.unwritten,
            holder,
        };
        let (fresh, findings) = chain.take(extent.start.0, piece);
        for finding in findings {
            self.add(finding.at(addr).of(owner));
        }
        for (start, len) in fresh {
            // The newest state comes first. So no inode in use names a run that is first met in a version.
            self.claim_data((BlockNo(start), len), (addr, owner), chain.end().is_none());
        }
    }
}
