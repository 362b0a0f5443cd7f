//! What the states of one inode hold together: the inode in use and what is kept of what it was.
//!
//! The states of one incarnation are a *chain*, walked from the newest to the oldest. They may name the same
//! nodes and the same blocks, which then have one owner, the chain. What a state names that was not met
//! before in the chain is reached and claimed as for any inode; what was met before is not read again, but
//! must be the same thing in the same place. Two rules say which states name it, given its birth:
//!
//! - a version names nothing that was born at its end or later ([`Problem::VersionBirth`]);
//! - what a state names that was born before the end of the version next to it in the past, that version
//!   names too ([`Problem::VersionGap`]).
//!
//! So what is named by two states is named by all between them. A node that is met again passes for all that
//! is below it: for that, what holds a node or a run of blocks is remembered as the branch or leaf through
//! which the oldest state so far comes to it, and the state is found by following these up to a root.
//!
//! Memory grows with the nodes and extents of one chain, and is given back after each.

use crate::checker::Checker;
use crate::tree::{Key, Step, Tree};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    Block, BlockHeader, BlockKind, BlockNo, ExtentValue, InodeFlags, InodeNo, MetaAddr, Number,
};

/// Through what a state comes to a node or to blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The inode itself, in the n-th state of the chain.
    State(usize),
    /// A branch or leaf.
    Node(MetaAddr),
}

/// What lies below a node of a tree of extents, the node included.
#[derive(Clone, Copy)]
pub(crate) struct Below {
    /// The least and the greatest key; `None` without extents.
    pub(crate) keys: Option<(u64, u64)>,
    /// The file block after the last one.
    pub(crate) end: u64,
    /// Data blocks and nodes.
    pub(crate) blocks: u64,
    /// The latest birth.
    pub(crate) latest: Number,
    /// Whether all of it could be read.
    pub(crate) complete: bool,
}

impl Below {
    /// Nothing, of which all was read.
    pub(crate) const NOTHING: Below =
        Below { keys: None, end: 0, blocks: 0, latest: Number(0), complete: true };

    /// Adds what comes next in the order of keys.
    pub(crate) fn add(&mut self, next: &Below) {
        self.keys = match (self.keys, next.keys) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (keys, other) => keys.or(other),
        };
        self.end = self.end.max(next.end);
        self.blocks = self.blocks.saturating_add(next.blocks);
        self.latest = self.latest.max(next.latest);
        self.complete &= next.complete;
    }
}

/// A node that some state of the chain names.
struct Held {
    kind: BlockKind,
    level: u8,
    birth: Number,
    holder: Holder,
    /// The state that led to it last.
    passed: usize,
    /// Whether it could be read and is what was expected; else this was reported.
    usable: bool,
    below: Below,
}

/// Blocks that some state of the chain names.
#[derive(Clone, Copy)]
struct Piece {
    len: u64,
    /// The file block that the first one is.
    key: u64,
    birth: Number,
    unwritten: bool,
    holder: Holder,
}

/// One state: the inode in use, or a version.
struct State {
    /// When a version ended.
    end: Option<Number>,
    /// Whether all that it names could be read. Known after its walk.
    complete: bool,
}

/// What a tree of attributes was found to hold: of states that name one root, the first walks it.
#[derive(Clone, Copy)]
pub(crate) struct SeenXattrs {
    pub(crate) root: MetaAddr,
    /// Whether the tree might lack its end.
    pub(crate) is_going: bool,
    /// The flags that an inode with these attributes has; `None` if not all of them could be read.
    pub(crate) flags: Option<InodeFlags>,
    pub(crate) nodes: u64,
    /// Whether all nodes could be read.
    pub(crate) complete: bool,
}

/// What became of following a reference to a node.
pub(crate) enum Followed {
    /// Nothing led to it before.
    New(Box<Block>),
    /// A newer state of the chain names it too.
    Known(Below),
    /// It cannot be used, which was reported.
    Nothing,
}

/// The states of one incarnation of an inode, and what they hold.
pub(crate) struct Chain {
    /// From the newest to the oldest.
    states: Vec<State>,
    /// Which of them is under way.
    state: usize,
    /// The end of the version before the oldest one, of another incarnation.
    before: Option<Number>,
    nodes: BTreeMap<MetaAddr, Held>,
    /// By their first blocks; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
    /// Of the last state with attributes.
    pub(crate) xattrs: Option<SeenXattrs>,
}

impl Chain {
    /// A chain of states that ended then, from the newest to the oldest, after the version that ended at
    /// `before`.
    pub(crate) fn new(ends: impl Iterator<Item = Option<Number>>, before: Option<Number>) -> Chain {
        Chain {
            states: ends.map(|end| State { end, complete: false }).collect(),
            state: 0,
            before,
            nodes: BTreeMap::new(),
            pieces: BTreeMap::new(),
            xattrs: None,
        }
    }

    /// The state under way.
    pub(crate) fn state(&self) -> usize {
        self.state
    }

    /// Goes on to the next older state.
    pub(crate) fn next(&mut self, complete: bool) {
        self.states[self.state].complete = complete;
        self.state += 1;
    }

    /// When the state under way ended; `None` if it is the one in use.
    pub(crate) fn end(&self) -> Option<Number> {
        self.states[self.state].end
    }

    /// The oldest state so far that comes to something through `holder`. Takes as many steps as a tree has
    /// levels.
    fn last(&self, mut holder: Holder) -> usize {
        loop {
            match holder {
                Holder::State(state) => return state,
                // A branch is entered here before its children, and is of a higher level.
                Holder::Node(addr) => match self.nodes.get(&addr) {
                    Some(held) => holder = held.holder,
                    None => return self.state,
                },
            }
        }
    }

    /// Whether the state after `last`, which is newer than the one under way, should name what both of these
    /// do.
    fn is_gap(&self, last: usize) -> bool {
        last + 1 < self.state && self.states[self.state - 1].complete
    }

    /// Remembers that a node cannot be used, which was reported.
    pub(crate) fn give_up(&mut self, addr: MetaAddr) {
        if let Some(held) = self.nodes.get_mut(&addr) {
            held.usable = false;
        }
    }

    /// Remembers what lies below a node.
    pub(crate) fn set_below(&mut self, addr: MetaAddr, below: Below) {
        if let Some(held) = self.nodes.get_mut(&addr) {
            held.below = below;
        }
    }

    /// The birth of a node, which counts as one of what is below it.
    pub(crate) fn birth(&self, addr: MetaAddr) -> Number {
        self.nodes.get(&addr).map_or(Number(0), |held| held.birth)
    }

    /// Makes the blocks `start..start + piece.len` be as `piece` says. Returns the runs of them that the
    /// chain did not have, and what is wrong with how it had the others.
    fn take(&mut self, start: u64, piece: Piece) -> (Vec<(u64, u64)>, Vec<Finding>) {
        let end = start + piece.len;
        let (mut fresh, mut findings, mut at) = (Vec::new(), Vec::new(), start);
        for (first, old) in self.overlapping(start, end) {
            let (from, to) = (first.max(start), (first + old.len).min(end));
            if from > at {
                fresh.push((at, from - at));
            }
            at = to;
            findings.extend(self.compare((first, &old), (start, &piece), from, to - from));
            self.pieces.remove(&first);
            if first < start {
                self.pieces.insert(first, Piece { len: start - first, ..old });
            }
            if first + old.len > end {
                let key = old.key.saturating_add(end - first);
                self.pieces.insert(end, Piece { len: first + old.len - end, key, ..old });
            }
        }
        if at < end {
            fresh.push((at, end - at));
        }
        self.pieces.insert(start, piece);
        (fresh, findings)
    }

    /// The pieces that have any of the blocks `start..end`.
    fn overlapping(&self, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let before = self.pieces.range(..start).next_back().filter(|(first, p)| **first + p.len > start);
        before.into_iter().chain(self.pieces.range(start..end)).map(|(first, p)| (*first, *p)).collect()
    }

    /// What is wrong if the state under way has the `len` blocks from `from` as `new` says, and a newer one
    /// as `old`.
    fn compare(
        &self,
        (old_start, old): (u64, &Piece),
        (new_start, new): (u64, &Piece),
        from: u64,
        len: u64,
    ) -> Option<Finding> {
        let key = |start: u64, piece: &Piece| piece.key.saturating_add(from - start);
        let last = self.last(old.holder);
        let same = key(old_start, old) == key(new_start, new)
            && old.birth == new.birth
            && old.unwritten == new.unwritten
            && last != self.state;
        if !same {
            let text = |start: u64, piece: &Piece| {
                let unwritten = if piece.unwritten { ", unwritten" } else { "" };
                format!("{len} blocks as file block {}, birth {}{unwritten}", key(start, piece), piece.birth)
            };
            let finding = Finding::new(Problem::SpaceOwnedTwice, text(old_start, old), text(new_start, new));
            return Some(finding.on(BlockNo(from)));
        }
        self.is_gap(last).then(|| gap(format!("{len} blocks"), new.birth).on(BlockNo(from)))
    }

    /// What is named by no version that it should be named by: of everything, the oldest state that names it.
    pub(crate) fn lacking(&self, owner: InodeNo) -> Vec<Finding> {
        let lacks = |last: usize, birth: Number| {
            let (end, complete) = match self.states.get(last + 1) {
                Some(older) => (older.end, older.complete),
                None => (self.before, true),
            };
            end.filter(|end| complete && birth < *end)
        };
        // Of what hangs on something that is lacking itself, that says enough.
        let holder_lacks = |last: usize, holder: Holder| match holder {
            Holder::State(_) => false,
            Holder::Node(addr) => lacks(last, self.birth(addr)).is_some(),
        };
        let finding = |what: String, birth: Number, end: Number| {
            let expected = format!("named by the version that ended at {end}");
            Finding::new(Problem::VersionGap, expected, format!("{what}, born at {birth}")).of(owner)
        };
        let mut findings = Vec::new();
        for (addr, held) in self.nodes.iter().filter(|(_, held)| held.usable) {
            let last = self.last(held.holder);
            if let Some(end) = lacks(last, held.birth).filter(|_| !holder_lacks(last, held.holder)) {
                findings.push(finding(held.kind.name().to_string(), held.birth, end).at(*addr));
            }
        }
        for (start, piece) in self.pieces.iter().filter(|(_, piece)| !piece.unwritten) {
            let last = self.last(piece.holder);
            if let Some(end) = lacks(last, piece.birth).filter(|_| !holder_lacks(last, piece.holder)) {
                findings.push(finding(format!("{} blocks", piece.len), piece.birth, end).on(BlockNo(*start)));
            }
        }
        findings
    }
}

/// Something is named by a newer and by an older state, and not by a version between them.
fn gap(what: String, birth: Number) -> Finding {
    let expected = "named by all versions between two states that name it";
    Finding::new(Problem::VersionGap, expected, format!("{what}, born at {birth}"))
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
            let birth = Number(header.map_or(0, |h| h.birth.get()));
            let held = Held {
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
            // The newest state comes first: what is met in a version first, no inode in use names.
            self.counts.history_nodes += u64::from(chain.end().is_some() && block.is_some());
            return Ok(self.followed(block));
        }
        let block = self.reach(step.addr, &expect)?;
        let is_past = matches!(tree.owner, InodeNo::HISTORY | InodeNo::CUTS);
        self.counts.history_trees += u64::from(is_past && block.is_some());
        Ok(self.followed(block))
    }

    fn followed(&mut self, block: Option<Box<Block>>) -> Followed {
        let Some(block) = block else { return Followed::Nothing };
        self.counts.tree_nodes += 1;
        Followed::New(block)
    }

    /// A reference to a node that was met in the chain.
    fn follow_known(&mut self, tree: &Tree, step: &Step, chain: &mut Chain) -> Followed {
        let (last, end) = (chain.last(Holder::Node(step.addr)), chain.end());
        // What is below a node that is walked again is where it was, and was looked at with it.
        let is_gap = !step.again && chain.is_gap(last);
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
            self.add(gap(tree.kind.name().to_string(), birth).at(step.addr).of(tree.owner));
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
        end: Option<Number>,
        birth: Number,
        place: MetaAddr,
        owner: InodeNo,
    ) {
        if let Some(end) = end.filter(|end| birth >= *end) {
            let expected = format!("born before the version's end at {end}");
            self.add(Finding::new(Problem::VersionBirth, expected, birth.0).at(place).of(owner));
        }
    }

    /// Gives the blocks of an extent to a chain. `place` is where the extent stands.
    pub(crate) fn claim_in(
        &mut self,
        chain: &mut Chain,
        owner: InodeNo,
        (place, holder): (MetaAddr, Holder),
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
            self.add(finding.at(place).of(owner));
        }
        for (start, len) in fresh {
            if self.claim(BlockNo(start), len, "a file", Some(place), Some(owner)) {
                self.counts.data_blocks += len;
                if chain.end().is_some() {
                    self.counts.history_data_blocks += len;
                }
            }
        }
    }
}
