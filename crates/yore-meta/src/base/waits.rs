//! Changes and the edges between them: what the order says of blocks, whatever their changes are, becomes
//! edges between changes. The recorder and the engines that order changes both use it.
//!
//! Changes are numbered in the order in which they are made. All before [`Waits::first`] are durable: an edge
//! from one of them says nothing.

use super::order::{Change, EdgeKind};
use hashbrown::HashMap;
use yore_format::{InodeNo, MetaAddr};

/// Where a change lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In a block.
    Block(MetaAddr),
    /// It makes a block.
    Made(MetaAddr),
    /// It frees one.
    Freed(MetaAddr),
    /// In the superblock.
    Superblock,
}

/// What is kept of a change.
pub(crate) trait HasPlace {
    /// Where it lies.
    fn place(&self) -> Where;
}

/// Changes that wait, with their Ops, and the edges between them.
pub(crate) struct Waits<P> {
    /// The number of the first change.
    first: u64,
    pub(crate) changes: Vec<(u64, P)>,
    /// Which change waits for which, by their places in `changes`: the first is never behind the second.
    pub(crate) edges: Vec<(EdgeKind, usize, usize)>,
    ops: u64,
    /// What each block has changed since it was made.
    by_block: HashMap<MetaAddr, Vec<usize>>,
    /// The changes that made what a block has count.
    links: HashMap<MetaAddr, Vec<usize>>,
    /// The blocks that changes of a block have made count.
    below: HashMap<MetaAddr, Vec<MetaAddr>>,
    /// The change that made a block.
    made: HashMap<MetaAddr, usize>,
    /// What the later changes of an Op come behind: rows of the past, for example.
    ahead: HashMap<u64, Vec<(EdgeKind, usize)>>,
    /// From which changes on names of an inode count, and in which directories.
    names: HashMap<InodeNo, Vec<(usize, InodeNo)>>,
    /// The changes with which extents of an inode went.
    vacated: HashMap<InodeNo, Vec<usize>>,
    /// The change with which an inode was born anew, because an event has seen it.
    reborn: HashMap<InodeNo, usize>,
}

impl<P> Default for Waits<P> {
    fn default() -> Self {
        Waits::from(0)
    }
}

impl<P> Waits<P> {
    fn from(first: u64) -> Self {
        Waits {
            first,
            changes: Vec::new(),
            edges: Vec::new(),
            ops: 0,
            by_block: HashMap::new(),
            links: HashMap::new(),
            below: HashMap::new(),
            made: HashMap::new(),
            ahead: HashMap::new(),
            names: HashMap::new(),
            vacated: HashMap::new(),
            reborn: HashMap::new(),
        }
    }

    /// Everything that waits, with no Op open; what follows waits for nothing of it.
    pub(crate) fn take(&mut self) -> Waits<P> {
        let next = Waits { ops: self.ops, ..Waits::from(self.first + self.changes.len() as u64) };
        std::mem::replace(self, next)
    }

    /// Whether a change that waits has made this block.
    pub(crate) fn has_made(&self, addr: MetaAddr) -> bool {
        self.made.contains_key(&addr)
    }

    /// An Op opens; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.ops += 1;
        self.ops
    }

    /// The place of a change among those that wait; `None`: it is durable.
    fn at(&self, change: Change) -> Option<usize> {
        change.number().checked_sub(self.first).map(|at| at as usize)
    }

    pub(crate) fn edge(&mut self, kind: EdgeKind, first: Change, then: Change) {
        if let (Some(first), Some(then)) = (self.at(first), self.at(then)) {
            self.add(kind, first, then);
        }
    }

    fn add(&mut self, kind: EdgeKind, first: usize, then: usize) {
        if first != then {
            self.edges.push((kind, first, then));
        }
    }

    /// All later changes of this Op come behind `first`.
    pub(crate) fn ahead(&mut self, kind: EdgeKind, op: u64, first: Change) {
        if let Some(first) = self.at(first) {
            self.ahead.entry(op).or_default().push((kind, first));
        }
    }

    /// A name of an inode, in this directory, counts from `by` on.
    pub(crate) fn named(&mut self, inode: InodeNo, directory: InodeNo, by: Change) {
        if let Some(by) = self.at(by) {
            self.names.entry(inode).or_default().push((by, directory));
        }
    }

    /// A name of an inode goes with the change `gone`. Its other names that wait come before that, with the
    /// names of the directories that lead to them.
    pub(crate) fn unnamed(&mut self, inode: InodeNo, gone: Change) {
        let Some(gone) = self.at(gone) else { return };
        let (mut inodes, mut next) = (vec![inode], 0);
        while let Some(inode) = inodes.get(next) {
            for (name, directory) in self.names.get(inode).cloned().unwrap_or_default() {
                if name < gone {
                    self.add(EdgeKind::Kept, name, gone);
                    if !inodes.contains(&directory) {
                        inodes.push(directory);
                    }
                }
            }
            next += 1;
        }
    }

    /// An inode that an event has seen is born anew with the change `by`.
    pub(crate) fn reborn(&mut self, inode: InodeNo, by: Change) {
        if let Some(by) = self.at(by) {
            self.reborn.insert(inode, by);
        }
    }

    /// All later changes of this Op come behind the new birth of an inode, if that waits.
    pub(crate) fn behind_birth(&mut self, op: u64, inode: InodeNo) {
        if let Some(by) = self.reborn.get(&inode).copied() {
            self.ahead.entry(op).or_default().push((EdgeKind::Recorded, by));
        }
    }

    /// Extents of an inode go with the change `gone`.
    pub(crate) fn vacated(&mut self, inode: InodeNo, gone: Change) {
        if let Some(gone) = self.at(gone) {
            self.vacated.entry(inode).or_default().push(gone);
        }
    }

    /// Blocks come to an inode with the change `by`.
    pub(crate) fn occupied(&mut self, inode: InodeNo, by: Change) {
        let Some(by) = self.at(by) else { return };
        for gone in self.vacated.get(&inode).cloned().unwrap_or_default() {
            self.add(EdgeKind::Vacated, gone, by);
        }
    }
}

impl<P: HasPlace> Waits<P> {
    /// A change was made. Of a block: with its lock held, so that numbers ascend as its changes do.
    pub(crate) fn change(&mut self, op: u64, kept: P) -> Change {
        let at = self.changes.len();
        match kept.place() {
            Where::Made(addr) => {
                self.by_block.remove(&addr);
                self.links.remove(&addr);
                self.below.remove(&addr);
                self.made.insert(addr, at);
            }
            Where::Block(addr) => {
                if let Some(made) = self.made.get(&addr).copied() {
                    self.add(EdgeKind::Made, made, at);
                }
                self.reached(addr, at);
                self.by_block.entry(addr).or_default().push(at);
            }
            Where::Freed(_) | Where::Superblock => {}
        }
        for (kind, first) in self.ahead.get(&op).cloned().unwrap_or_default() {
            self.add(kind, first, at);
        }
        self.changes.push((op, kept));
        Change::from_number(self.first + at as u64)
    }

    /// The changes of a block, ascending.
    pub(crate) fn changes_of(&self, block: MetaAddr) -> impl Iterator<Item = &P> {
        let changes = self.by_block.get(&block).into_iter().flatten();
        changes.map(|change| &self.changes[*change].1)
    }

    /// The block that a change lies in.
    fn block_of(&self, change: usize) -> Option<MetaAddr> {
        match self.changes[change].1.place() {
            Where::Block(addr) => Some(addr),
            _ => None,
        }
    }

    /// A later change of a block comes behind what made the block count, and behind what made that count.
    fn reached(&mut self, mut addr: MetaAddr, change: usize) {
        let mut links = self.links.get(&addr).cloned().unwrap_or_default();
        while let Some(by) = links.pop() {
            if by >= change {
                continue;
            }
            self.add(EdgeKind::Reached, by, change);
            if let Some(above) = self.block_of(by) {
                addr = above;
                links.extend(self.links.get(&addr).into_iter().flatten().filter(|later| **later > by));
            }
        }
    }

    /// All changes of a block so far come before `by`.
    pub(crate) fn all_before(&mut self, kind: EdgeKind, block: MetaAddr, by: Change) {
        if let Some(by) = self.at(by) {
            self.all_of(kind, block, by);
        }
    }

    fn all_of(&mut self, kind: EdgeKind, block: MetaAddr, by: usize) {
        for change in self.by_block.get(&block).cloned().unwrap_or_default() {
            if change < by {
                self.add(kind, change, by);
            }
        }
    }

    /// What a block has counts from the change `by` on.
    pub(crate) fn linked(&mut self, block: MetaAddr, by: Change) {
        let Some(by) = self.at(by) else { return };
        self.contents(block, by);
        self.links.entry(block).or_default().push(by);
        if let Some(above) = self.block_of(by) {
            self.below.entry(above).or_default().push(block);
        }
        let later: Vec<usize> = self.by_block.get(&block).into_iter().flatten().copied().collect();
        for change in later.into_iter().filter(|change| *change > by) {
            self.add(EdgeKind::Reached, by, change);
        }
    }

    /// All that was put into a block comes before `by`; and if the block did not count before, so does all
    /// that was put into blocks that it has made count.
    fn contents(&mut self, block: MetaAddr, by: usize) {
        self.all_of(EdgeKind::Contents, block, by);
        if self.made.contains_key(&block) && !self.links.contains_key(&block) {
            for below in self.below.get(&block).cloned().unwrap_or_default() {
                self.all_of(EdgeKind::Contents, below, by);
                self.contents_below(below, by);
            }
        }
    }

    fn contents_below(&mut self, block: MetaAddr, by: usize) {
        for below in self.below.get(&block).cloned().unwrap_or_default() {
            self.all_of(EdgeKind::Contents, below, by);
            self.contents_below(below, by);
        }
    }
}
