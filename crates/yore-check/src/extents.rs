//! Extents of regular files, in the inode or in a tree, and the blocks that they name.
//!
//! The walk keeps a stack of open branches, so it knows afterwards what lies below each node ([`Below`]). An
//! older state of the file that names the same node then need not be walked there again: a version costs as
//! much as it differs from the state after it.

use crate::chain::{Below, Holder};
use crate::checker::Checker;
use crate::follow::Followed;
use crate::state::State;
use crate::tree::{Step, Tree};
use crate::{CheckError, Finding, Problem};
use yore_format::{
    Block, BlockHeader, BlockKind, BlockNo, EventNo, ExtentValue, MetaAddr, NodeRef, WriteFeatures,
};

/// The file block after the last extent.
struct FileEnd(u64);

/// A branch whose children the walk has not all entered yet.
struct Frame {
    /// `None` above the root.
    addr: Option<MetaAddr>,
    /// To its children, last first.
    steps: Vec<Step>,
    below: Below,
}

/// What a step led to.
enum Entered {
    Branch(Frame),
    Done(Below),
}

impl Checker<'_> {
    /// Checks the extents in an inode.
    pub(crate) fn inline_extents(&mut self, state: &mut State<'_>) {
        match ExtentValue::decode_inline(state.inode) {
            Ok(extents) => {
                let holder = Holder::State(state.chain.as_ref().map_or(0, |chain| chain.state()));
                let mut end = FileEnd(0);
                for (key, extent) in extents {
                    self.extent(state, (state.addr, holder), key, &extent, &mut end);
                    state.blocks = state.blocks.saturating_add(u64::from(extent.len));
                }
            }
            Err(c) => {
                let c = c.at(state.addr).of(state.number);
                self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                state.complete = false;
            }
        }
    }

    /// Checks the extents in an inode's tree.
    pub(crate) fn extent_tree(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        let tree = state.content_tree(BlockKind::Extents);
        let mut end = FileEnd(0);
        let mut frames = vec![Frame { addr: None, steps: vec![tree.step()], below: Below::NOTHING }];
        while let Some(top) = frames.last_mut() {
            if let Some(step) = top.steps.pop() {
                match self.enter(state, &tree, &step, &mut end)? {
                    Entered::Branch(frame) => frames.push(frame),
                    Entered::Done(below) => top.below.add(&below),
                }
                continue;
            }
            let Frame { addr, below, .. } = *top;
            frames.pop();
            if let (Some(chain), Some(addr)) = (state.chain.as_deref_mut(), addr) {
                chain.set_below(addr, below);
            }
            match frames.last_mut() {
                Some(parent) => parent.below.add(&below),
                None => {
                    state.blocks = state.blocks.saturating_add(below.blocks);
                    state.complete &= below.complete;
                }
            }
        }
        Ok(())
    }

    /// Enters a node, or passes over one whose extents the chain has seen before.
    fn enter(
        &mut self,
        state: &mut State<'_>,
        tree: &Tree,
        step: &Step,
        end: &mut FileEnd,
    ) -> Result<Entered, CheckError> {
        let nothing = Below { complete: false, ..Below::NOTHING };
        let block = match self.follow(tree, step, state.chain.as_deref_mut())? {
            Followed::New(block) => block,
            Followed::Known(below) => {
                self.check_known_bounds(tree, step, &below);
                if let Some((first, _)) = below.keys {
                    self.check_order(state, (step.addr, None), end, first, below.end);
                }
                return Ok(Entered::Done(below));
            }
            Followed::Nothing => return Ok(Entered::Done(nothing)),
        };
        let node = NodeRef::new(&block);
        if !tree.check_node(self, step, node) {
            if let Some(chain) = state.chain.as_deref_mut() {
                chain.give_up(step.addr);
            }
            return Ok(Entered::Done(nothing));
        }
        let latest = EventNo(BlockHeader::of(&block).birth.get());
        let below = Below { blocks: 1, latest, ..Below::NOTHING };
        if node.level() > 0 {
            let (steps, complete) = tree.children(self, step, node);
            let below = Below { complete, ..below };
            return Ok(Entered::Branch(Frame { addr: Some(step.addr), steps, below }));
        }
        let below = self.extent_leaf(state, step, &block, below, end);
        if let Some(chain) = state.chain.as_deref_mut() {
            chain.set_below(step.addr, below);
        }
        Ok(Entered::Done(below))
    }

    /// The extents of a leaf. Returns what lies below it, of which `below` is the leaf itself.
    fn extent_leaf(
        &mut self,
        state: &mut State<'_>,
        step: &Step,
        block: &Block,
        mut below: Below,
        end: &mut FileEnd,
    ) -> Below {
        let (node, addr) = (NodeRef::new(block), step.addr);
        for i in 0..Tree::cells_that_count(step, node) {
            let key = crate::key::key(node, i).number();
            match ExtentValue::decode(node.value(i)) {
                Ok(extent) => {
                    self.extent(state, (addr, Holder::Node(addr)), key, &extent, end);
                    let len = u64::from(extent.len);
                    below.add(&Below {
                        keys: Some((key, key)),
                        end: key.saturating_add(len),
                        blocks: len,
                        latest: extent.birth,
                        complete: true,
                    });
                }
                Err(c) => {
                    let c = c.at(addr).of(state.number);
                    self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                    below.complete = false;
                }
            }
        }
        below
    }

    /// Checks that the file blocks from `key` to below `after` come next, in ascending order.
    fn check_order(
        &mut self,
        state: &State<'_>,
        (addr, block): (MetaAddr, Option<BlockNo>),
        end: &mut FileEnd,
        key: u64,
        after: u64,
    ) {
        if key < end.0 || after > u64::from(u32::MAX) {
            let expected = format!("file blocks from {} to at most {}", end.0, u32::MAX);
            let found = format!("{} from {key}", after.saturating_sub(key));
            let mut finding = Finding::new(Problem::ExtentOrder, expected, found).at(addr).of(state.number);
            finding.block = block;
            self.add(finding);
        }
        end.0 = end.0.max(after);
    }

    /// One extent, which stands at `addr`.
    fn extent(
        &mut self,
        state: &mut State<'_>,
        (addr, holder): (MetaAddr, Holder),
        key: u64,
        extent: &ExtentValue,
        end: &mut FileEnd,
    ) {
        let (number, len) = (state.number, u64::from(extent.len));
        self.check_order(state, (addr, Some(extent.start)), end, key, key.saturating_add(len));
        self.check_number("birth of an extent", extent.birth, addr, number);
        if state.is_past() {
            self.check_birth(state.end(), extent.birth, addr, number);
            if extent.unwritten {
                // A hole: the blocks belong to the inode in use, or by now to somebody else, or are gone
                // because the volume was made shorter.
                let is_resized = self.sb.write_features().contains(WriteFeatures::RESIZED);
                if !is_resized || extent.start.0 + len <= self.geometry.blocks {
                    self.check_area(extent, addr, number);
                }
                return;
            }
        } else {
            self.counts.extents += 1;
        }
        match state.chain.as_deref_mut() {
            Some(chain) => self.claim_in(chain, number, (addr, holder), key, extent),
            None => self.claim_data((extent.start, len), (addr, number), true),
        }
    }
}
