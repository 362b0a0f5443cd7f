//! What the states of one inode hold together: the inode in use and its versions.
//!
//! The states of one incarnation are a *chain*, walked from the newest to the oldest. They may name the same
//! nodes and the same blocks, which then have one owner, the chain. The first time the walk meets a node or
//! block in the chain, it reaches and claims it as for any inode. What it met before it does not read again,
//! but that must be the same thing in the same place. Given the birth of a node or block, two rules say which
//! states name it:
//!
//! - a version names nothing that was born at its end or later ([`Problem::VersionBirth`]);
//! - if a state names something that was born before the end of the next older version, that version names it
//!   too ([`Problem::VersionGap`]).
//!
//! So if two states name something, all states between them do. A node that is met again stands for
//! everything below it. For this, each node and each run of blocks has a holder: the branch or leaf through
//! which the oldest state so far comes to it. Following holders up to a root finds that state.
//!
//! Memory grows with the nodes and extents of one chain, and is given back after each.

use crate::finding::PastRow;
use crate::{Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{BlockKind, BlockNo, EventNo, InodeFlags, InodeNo, MetaAddr};

/// What leads a state to a node or to blocks.
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
    pub(crate) latest: EventNo,
    /// Whether all of it could be read.
    pub(crate) complete: bool,
}

impl Below {
    /// Nothing, of which all was read.
    pub(crate) const NOTHING: Below =
        Below { keys: None, end: 0, blocks: 0, latest: EventNo(0), complete: true };

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
pub(crate) struct NamedNode {
    pub(crate) kind: BlockKind,
    pub(crate) level: u8,
    pub(crate) birth: EventNo,
    pub(crate) holder: Holder,
    /// The state that led to it last.
    pub(crate) passed: usize,
    /// Whether it could be read and is what was expected. If not, that was reported.
    pub(crate) usable: bool,
    pub(crate) below: Below,
}

/// Blocks that some state of the chain names.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) len: u64,
    /// The file block that the first one is.
    pub(crate) key: u64,
    pub(crate) birth: EventNo,
    pub(crate) unwritten: bool,
    pub(crate) holder: Holder,
}

/// What the blocks of a reference have in common: how far their numbers are from those of the file blocks
/// (modulo 2^64), and their birth. A block that comes to two places of a file, or comes back to one with a
/// later birth, has two references ([`crate::shared`]).
type Line = (u64, EventNo);

/// One state: the inode in use, or a version.
struct State {
    /// Of a version.
    row: Option<PastRow>,
    /// Whether all that it names could be read. Known after its walk.
    complete: bool,
}

/// What a tree of attributes was found to hold: of states that name one root, the first walks it.
#[derive(Clone, Copy)]
pub(crate) struct SeenXattrs {
    /// The flags that an inode with these attributes has; `None` if not all of them could be read.
    pub(crate) flags: Option<InodeFlags>,
    pub(crate) nodes: u64,
    /// Whether all nodes could be read.
    pub(crate) complete: bool,
}

/// The states of one incarnation of an inode, and what they hold.
pub(crate) struct Chain {
    /// From the newest to the oldest.
    states: Vec<State>,
    /// Which of them is under way.
    pub(crate) state: usize,
    /// The version before the oldest one, of another incarnation.
    before: Option<PastRow>,
    pub(crate) nodes: BTreeMap<MetaAddr, NamedNode>,
    /// Those of a line by their first blocks; they do not overlap.
    pieces: BTreeMap<Line, BTreeMap<u64, Piece>>,
    /// Of trees of attributes, by their roots and whether they might lack their ends.
    pub(crate) xattrs: BTreeMap<(MetaAddr, bool), SeenXattrs>,
    /// How many nodes of attributes and symbolic links were read again, because another state names them.
    pub(crate) read_again: u64,
}

impl Chain {
    /// A chain of states, from the newest to the oldest: the rows of versions, and none of the inode in use.
    /// `before` is the version before the oldest one.
    pub(crate) fn new(rows: impl Iterator<Item = Option<PastRow>>, before: Option<PastRow>) -> Chain {
        Chain {
            states: rows.map(|row| State { row, complete: false }).collect(),
            state: 0,
            before,
            nodes: BTreeMap::new(),
            pieces: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            read_again: 0,
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
    pub(crate) fn end(&self) -> Option<EventNo> {
        self.states[self.state].row.as_ref().and_then(end_of)
    }

    /// The version between the state under way and the newer one next to it, or the newer one itself.
    pub(crate) fn newer(&self) -> Option<PastRow> {
        self.states.get(self.state.wrapping_sub(1)).and_then(|state| state.row.clone())
    }

    /// The oldest state so far that comes to something through `holder`. Takes as many steps as a tree has
    /// levels.
    pub(crate) fn last(&self, mut holder: Holder) -> usize {
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

    /// Whether there is a state between `last` and the older one under way. It should name what both of them
    /// name.
    pub(crate) fn is_gap(&self, last: usize) -> bool {
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

    /// The birth of a node. It counts among the births below the node.
    pub(crate) fn birth(&self, addr: MetaAddr) -> EventNo {
        self.nodes.get(&addr).map_or(EventNo(0), |held| held.birth)
    }

    /// Makes the blocks `start..start + piece.len` be as `piece` says. Returns the runs of them that the
    /// chain did not have, and what is wrong with how it had the others.
    pub(crate) fn take(&mut self, start: u64, piece: Piece) -> (Vec<(u64, u64)>, Vec<Finding>) {
        let end = start + piece.len;
        let line = (start.wrapping_sub(piece.key), piece.birth);
        let (mut fresh, mut findings, mut at) = (Vec::new(), Vec::new(), start);
        for (first, old) in self.overlapping(line, start, end) {
            let (from, to) = (first.max(start), (first + old.len).min(end));
            if from > at {
                fresh.push((at, from - at));
            }
            at = to;
            findings.extend(self.compare((first, &old), (start, &piece), from, to - from));
            let pieces = self.pieces.entry(line).or_default();
            pieces.remove(&first);
            if first < start {
                pieces.insert(first, Piece { len: start - first, ..old });
            }
            if first + old.len > end {
                let key = old.key.saturating_add(end - first);
                pieces.insert(end, Piece { len: first + old.len - end, key, ..old });
            }
        }
        if at < end {
            fresh.push((at, end - at));
        }
        self.pieces.entry(line).or_default().insert(start, piece);
        (fresh, findings)
    }

    /// The pieces of a line that have any of the blocks `start..end`.
    fn overlapping(&self, line: Line, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let Some(pieces) = self.pieces.get(&line) else { return Vec::new() };
        let before = pieces.range(..start).next_back().filter(|(first, p)| **first + p.len > start);
        before.into_iter().chain(pieces.range(start..end)).map(|(first, p)| (*first, *p)).collect()
    }

    /// What is wrong if the state under way has the `len` blocks from `from` as `new` says, and a newer state
    /// has them in the same place, with the same birth, as `old` says.
    fn compare(
        &self,
        (old_start, old): (u64, &Piece),
        (new_start, new): (u64, &Piece),
        from: u64,
        len: u64,
    ) -> Option<Finding> {
        let last = self.last(old.holder);
        if old.unwritten != new.unwritten || last == self.state {
            let text = |start: u64, piece: &Piece| {
                let unwritten = if piece.unwritten { ", unwritten" } else { "" };
                let key = piece.key.saturating_add(from - start);
                format!("{len} blocks as file block {key}, birth {}{unwritten}", piece.birth)
            };
            let finding = Finding::new(Problem::SpaceOwnedTwice, text(old_start, old), text(new_start, new));
            return Some(finding.on(BlockNo(from)));
        }
        let found = || gap(format!("{len} blocks"), new.birth).on(BlockNo(from)).of_row(self.newer());
        self.is_gap(last).then(found)
    }

    /// Reports what a version should name and does not: for each node and piece, this looks at the oldest
    /// state that names it.
    pub(crate) fn lacking(&self, owner: InodeNo) -> Vec<Finding> {
        let lacks = |last: usize, birth: EventNo| {
            let (row, complete) = match self.states.get(last + 1) {
                Some(older) => (&older.row, older.complete),
                None => (&self.before, true),
            };
            row.as_ref().filter(|row| complete && end_of(row).is_some_and(|end| birth < end))
        };
        // If the holder is lacking too, reporting that is enough.
        let holder_lacks = |last: usize, holder: Holder| match holder {
            Holder::State(_) => false,
            Holder::Node(addr) => lacks(last, self.birth(addr)).is_some(),
        };
        let finding = |what: String, birth: EventNo, row: &PastRow| {
            let expected = format!("named by the version that ended at {}", end_of(row).unwrap_or_default());
            let finding = Finding::new(Problem::VersionGap, expected, format!("{what}, born at {birth}"));
            finding.of(owner).of_row(Some(row.clone()))
        };
        let mut findings = Vec::new();
        for (addr, held) in self.nodes.iter().filter(|(_, held)| held.usable) {
            let last = self.last(held.holder);
            if let Some(row) = lacks(last, held.birth).filter(|_| !holder_lacks(last, held.holder)) {
                findings.push(finding(held.kind.name().to_string(), held.birth, row).at(*addr));
            }
        }
        let pieces = self.pieces.values().flatten();
        for (start, piece) in pieces.filter(|(_, piece)| !piece.unwritten) {
            let last = self.last(piece.holder);
            if let Some(row) = lacks(last, piece.birth).filter(|_| !holder_lacks(last, piece.holder)) {
                findings.push(finding(format!("{} blocks", piece.len), piece.birth, row).on(BlockNo(*start)));
            }
        }
        findings
    }
}

/// When a version ended.
fn end_of(row: &PastRow) -> Option<EventNo> {
    match row {
        PastRow::Version { end, .. } => Some(*end),
        _ => None,
    }
}

/// A newer and an older state name something, and a version between them does not.
pub(crate) fn gap(what: String, birth: EventNo) -> Finding {
    let expected = "named by all versions between two states that name it";
    Finding::new(Problem::VersionGap, expected, format!("{what}, born at {birth}"))
}
