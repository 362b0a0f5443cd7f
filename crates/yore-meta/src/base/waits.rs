//! Changes and the edges between them: what the order says of blocks, whatever their changes are, becomes
//! edges between changes. The recorder and the engines that order changes both use it.
//!
//! Changes are numbered in the order in which they are made. All before [`Waits::first`] are durable: an edge
//! from one of them says nothing.
//!
//! **What edges cost.** Whoever comes behind everything of some kind so far (what a block has, names of an
//! inode, extents that went) would get an edge from each such change; then edges grow with the square of the
//! calls. So the latest that came behind many stands for them: who comes later waits for that one, and for
//! what has come since ([`Joins`]).

use super::order::{Change, EdgeKind};
use hashbrown::{HashMap, HashSet};
use yore_format::{InodeNo, MetaAddr};

/// A change that comes behind more others than this stands for them from then on.
const EACH_MOST: usize = 16;

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

    /// Gives the slots of a block of inodes that it changes.
    fn each_slot(&self, _each: &mut dyn FnMut(u16)) {}
}

/// The number of no Op. Changes that a generation has left to the next one have it.
pub(crate) const NO_OP: u64 = 0;

/// Which change waits for which, by their places in [`Waits::changes`]: the first is never behind the second.
type Edges = Vec<(EdgeKind, usize, usize)>;

/// Which changes stand for how many of a list, from its front: the number, and the change. Each has come
/// behind all of these, so what comes behind it comes behind them, too. Both ascend.
#[derive(Default)]
struct Joins(Vec<(usize, usize)>);

/// The changes of a list that got edges of their own to a change, by their places.
struct Each {
    from: usize,
    to: usize,
    /// No change that is later than this one stands for any of the list.
    is_latest: bool,
}

impl Each {
    /// Whether they are so many that the change is to stand for them.
    fn is_many(&self) -> bool {
        self.is_latest && self.to - self.from > EACH_MOST
    }
}

impl Joins {
    /// Brings `then` behind all changes of the list that are before it.
    fn bring_behind(&self, edges: &mut Edges, kind: EdgeKind, list: &[usize], then: usize) -> Each {
        // Ops beside each other may come in another order than their changes.
        let usable = self.0.partition_point(|(_, last)| *last <= then);
        let join = usable.checked_sub(1).map(|i| self.0[i]);
        let from = join.map_or(0, |(count, _)| count);
        edges.extend(join.filter(|(_, last)| *last != then).map(|(_, last)| (kind, last, then)));
        let each = list[from..].iter().filter(|first| **first < then);
        edges.extend(each.map(|first| (kind, *first, then)));
        let count = list[from..].iter().take_while(|first| **first < then).count();
        Each { from, to: from + count, is_latest: usable == self.0.len() }
    }

    /// From now on `then` stands for all of the list up to these, which it has come behind.
    fn stand_for(&mut self, each: &Each, then: usize) {
        self.0.push((each.to, then));
    }
}

/// Names of an inode that wait: from which changes on they count, and in which directories they are.
#[derive(Default)]
struct Names {
    counts: Vec<usize>,
    directories: Vec<InodeNo>,
    joins: Joins,
    /// The directories of those for which another change stands, each once.
    joined: Vec<InodeNo>,
}

impl Names {
    /// Brings `gone` behind all names that wait. Returns the directories that lead to them.
    fn bring_behind(&mut self, edges: &mut Edges, gone: usize) -> Vec<InodeNo> {
        let Names { counts, directories, joins, joined } = self;
        let each = joins.bring_behind(edges, EdgeKind::Kept, counts, gone);
        let own = counts[each.from..].iter().zip(&directories[each.from..]);
        let own = own.filter(|(counts, _)| **counts < gone).map(|(_, directory)| *directory);
        let leading = joined.iter().copied().chain(own).collect();
        if each.is_many() {
            let mut all = joined.clone();
            for directory in &directories[each.from..each.to] {
                if !all.contains(directory) {
                    all.push(*directory);
                }
                if all.len() > EACH_MOST {
                    // Names in as many directories stay as they are: all of these must be gone through.
                    return leading;
                }
            }
            *joined = all;
            joins.stand_for(&each, gone);
        }
        leading
    }
}

/// The changes with which extents of an inode went.
#[derive(Default)]
struct Vacated {
    gone: Vec<usize>,
    joins: Joins,
}

/// Changes that wait, with their Ops, and the edges between them.
pub(crate) struct Waits<P> {
    /// The number of the first change.
    first: u64,
    pub(crate) changes: Vec<(u64, P)>,
    pub(crate) edges: Edges,
    /// All changes reach the medium together, so none waits for another.
    together: bool,
    ops: u64,
    /// What each block has changed since it was made.
    by_block: HashMap<MetaAddr, Vec<usize>>,
    /// The changes that stand for these, by the kind of edge with which they came behind them.
    joins: HashMap<MetaAddr, Vec<(EdgeKind, Joins)>>,
    /// The changes that made what a block has count.
    links: HashMap<MetaAddr, Vec<usize>>,
    /// The blocks that changes of a block have made count.
    below: HashMap<MetaAddr, Vec<MetaAddr>>,
    /// The change that made a block.
    made: HashMap<MetaAddr, usize>,
    /// What the later changes of an Op come behind: rows of the past, for example.
    ahead: HashMap<u64, Vec<(EdgeKind, usize)>>,
    names: HashMap<InodeNo, Names>,
    vacated: HashMap<InodeNo, Vacated>,
    /// The change with which an inode was born anew, because an event has seen it.
    reborn: HashMap<InodeNo, usize>,
    /// The Ops that have changed names or extents of an inode.
    told: HashMap<InodeNo, Vec<u64>>,
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
            together: false,
            ops: 0,
            by_block: HashMap::new(),
            joins: HashMap::new(),
            links: HashMap::new(),
            below: HashMap::new(),
            made: HashMap::new(),
            ahead: HashMap::new(),
            names: HashMap::new(),
            vacated: HashMap::new(),
            reborn: HashMap::new(),
            told: HashMap::new(),
        }
    }

    /// Changes that are a part of what waits, with the edges between these.
    pub(crate) fn part(changes: Vec<(u64, P)>, edges: Edges) -> Waits<P> {
        Waits { changes, edges, ..Waits::from(0) }
    }

    /// Everything that waits, with no Op open; what follows waits for nothing of it.
    pub(crate) fn take(&mut self) -> Waits<P> {
        let next = Waits { ops: self.ops, ..Waits::from(self.first + self.changes.len() as u64) };
        std::mem::replace(self, next)
    }

    /// All that waits reaches the medium together, and so does what comes until it is taken.
    pub(crate) fn come_together(&mut self) {
        self.together = true;
        self.edges = Vec::new();
        self.joins = HashMap::new();
        self.links = HashMap::new();
        self.below = HashMap::new();
        self.ahead = HashMap::new();
        self.names = HashMap::new();
        self.vacated = HashMap::new();
        self.reborn = HashMap::new();
        self.told = HashMap::new();
    }

    /// The Op of a change has changed names or extents of this inode.
    fn tell(&mut self, inode: InodeNo, change: usize) {
        let op = self.changes[change].0;
        let ops = self.told.entry(inode).or_default();
        if ops.last() != Some(&op) {
            ops.push(op);
        }
    }

    /// The Ops that have changed names or extents of an inode; some may be there twice.
    pub(crate) fn told(&self, inode: InodeNo) -> &[u64] {
        self.told.get(&inode).map_or(&[], |ops| ops)
    }

    /// What these Ops have changed is durable.
    pub(crate) fn forget_told(&mut self, inode: InodeNo) {
        self.told.remove(&inode);
    }

    /// The changes from which on names of an inode count, each with the directory of the name.
    pub(crate) fn namings(&self, inode: InodeNo) -> impl Iterator<Item = (usize, InodeNo)> + '_ {
        let names = self.names.get(&inode).into_iter();
        names.flat_map(|names| names.counts.iter().copied().zip(names.directories.iter().copied()))
    }

    /// The change that made a block is durable.
    pub(crate) fn forget_made(&mut self, addr: MetaAddr) {
        self.made.remove(&addr);
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

    /// The place of a change among those that wait for each other; `None`: it is durable, or all of them come
    /// together.
    fn at(&self, change: Change) -> Option<usize> {
        let at = change.number().checked_sub(self.first).map(|at| at as usize);
        at.filter(|_| !self.together)
    }

    pub(crate) fn edge(&mut self, kind: EdgeKind, first: Change, then: Change) {
        if let (Some(first), Some(then)) = (self.at(first), self.at(then)) {
            self.add(kind, first, then);
        }
    }

    fn add(&mut self, kind: EdgeKind, first: usize, then: usize) {
        if first != then && !self.together {
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
            let names = self.names.entry(inode).or_default();
            names.counts.push(by);
            names.directories.push(directory);
            self.tell(inode, by);
        }
    }

    /// A name of an inode goes with the change `gone`. Its other names that wait come before that, with the
    /// names of the directories that lead to them.
    pub(crate) fn unnamed(&mut self, inode: InodeNo, gone: Change) {
        let Some(gone) = self.at(gone) else { return };
        self.tell(inode, gone);
        let (mut inodes, mut next) = (vec![inode], 0);
        let mut seen = HashSet::new();
        seen.insert(inode);
        while let Some(inode) = inodes.get(next).copied() {
            next += 1;
            let Some(names) = self.names.get_mut(&inode) else { continue };
            let leading = names.bring_behind(&mut self.edges, gone);
            inodes.extend(leading.into_iter().filter(|directory| seen.insert(*directory)));
        }
    }

    /// An inode that an event has seen is born anew with the change `by`.
    pub(crate) fn reborn(&mut self, inode: InodeNo, by: Change) {
        if let Some(by) = self.at(by) {
            self.reborn.insert(inode, by);
            self.tell(inode, by);
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
            self.vacated.entry(inode).or_default().gone.push(gone);
            self.tell(inode, gone);
        }
    }

    /// Blocks come to an inode with the change `by`.
    pub(crate) fn occupied(&mut self, inode: InodeNo, by: Change) {
        let Some(by) = self.at(by) else { return };
        self.tell(inode, by);
        if let Some(Vacated { gone, joins }) = self.vacated.get_mut(&inode) {
            let each = joins.bring_behind(&mut self.edges, EdgeKind::Vacated, gone, by);
            if each.is_many() {
                joins.stand_for(&each, by);
            }
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
                self.joins.remove(&addr);
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
        let Some(changes) = self.by_block.get(&block) else { return };
        // One that stands for others has the same kind, so a kind of edge that is missed is missed by itself.
        let of_block = self.joins.entry(block).or_default();
        let place = of_block.iter().position(|(of, _)| *of == kind).unwrap_or_else(|| {
            of_block.push((kind, Joins::default()));
            of_block.len() - 1
        });
        let joins = &mut of_block[place].1;
        let each = joins.bring_behind(&mut self.edges, kind, changes, by);
        if each.is_many() {
            joins.stand_for(&each, by);
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
        if let Some(changes) = self.by_block.get(&block) {
            let later = &changes[changes.partition_point(|change| *change <= by)..];
            self.edges.extend(later.iter().map(|change| (EdgeKind::Reached, by, *change)));
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

#[cfg(test)]
mod tests;
