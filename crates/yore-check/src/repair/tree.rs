//! Trees that a repair reads as far as they go, and writes anew.
//!
//! [`Volume::gather`] takes every cell that a reader finds, in nodes that are sound and that say that they
//! are of this tree. If a branch is lost, its leaves are looked for: every block says which tree it belongs
//! to, so the leaves that nothing led to are found among all blocks in use, the newest first. A cell that was
//! met already counts. So what a tree has lost is what stood in lost leaves, and nothing else.
//!
//! [`Volume::write_tree`] makes a tree of cells from the leaves up, if all of it finds room. The old nodes
//! are freed before, but for volumes with a past, whose versions may name them: what nothing names then is
//! freed by a later round.

use super::volume::{Leaves, Volume};
use crate::CheckError;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    Block, BlockHeader, BlockKind, EventNo, HistoryTree, Incarnation, InodeNo, MetaAddr, NodeMut, NodeRef,
    ZoneNo, NODE_PAYLOAD_BYTES,
};

/// The highest level at which a root is believed.
const LEVEL_MAX: u8 = 12;
/// Bytes that are left free in a new node, so that it does not have to be split at once.
const SLACK: usize = NODE_PAYLOAD_BYTES / 8;

/// The kinds of nodes that an inode's content may have.
const CONTENT: [BlockKind; 3] = [BlockKind::Directory, BlockKind::Symlink, BlockKind::Extents];

/// Which tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub(super) kind: BlockKind,
    pub(super) owner: InodeNo,
    pub(super) incarnation: Incarnation,
}

impl Which {
    /// The key of its leaves among those of all trees.
    fn key(&self) -> (u8, u64, u32) {
        (self.kind as u8, self.owner.0, self.incarnation.0)
    }
}

/// The cells of a tree with keys of eight bytes.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) cells: BTreeMap<u64, Vec<u8>>,
    /// The nodes that were read.
    pub(super) nodes: BTreeSet<MetaAddr>,
    /// Nodes could not be used, lie out of their bounds, or are empty.
    pub(super) is_ragged: bool,
    /// A node could not be used, so cells may be lost.
    pub(super) is_lossy: bool,
    /// The bounds of the keys in nodes that could not be used.
    pub(super) lost: Vec<(u64, Option<u64>)>,
}

/// Key and value of a cell.
type Cell = (Vec<u8>, Vec<u8>);

/// What all nodes of a tree have in common.
struct Form {
    kind: BlockKind,
    owner: (InodeNo, Incarnation),
    birth: EventNo,
    /// Of the keys.
    width: usize,
}

/// A new tree.
#[derive(Clone, Copy)]
pub(super) struct NewTree {
    pub(super) root: MetaAddr,
    pub(super) level: u8,
}

/// A node to read: its address, level, and bounds.
struct Step {
    addr: MetaAddr,
    level: Option<u8>,
    low: u64,
    high: Option<u64>,
}

impl Volume<'_> {
    /// A node of a tree, if it is sound and of this tree.
    fn node(
        &self,
        which: Which,
        addr: MetaAddr,
        level: Option<u8>,
    ) -> Result<Option<Box<Block>>, CheckError> {
        let Some(block) = self.read_kind(addr, which.kind)? else { return Ok(None) };
        let header = BlockHeader::of(&block);
        let is_it = header.owner.get() == which.owner.0
            && header.owner_incarnation.get() == which.incarnation.0
            && level.is_none_or(|level| level == header.level)
            && header.level <= LEVEL_MAX
            && NodeRef::new(&block).key_width() == 8;
        Ok(is_it.then_some(block))
    }

    /// The value under a key, if the way to it can be read.
    pub(super) fn value_under(
        &self,
        which: Which,
        root: MetaAddr,
        level: u8,
        key: u64,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let (mut addr, mut level) = (root, level);
        loop {
            let Some(block) = self.node(which, addr, Some(level))? else { return Ok(None) };
            let node = NodeRef::new(&block);
            if level == 0 {
                return Ok(node.search(&key.to_be_bytes()).ok().map(|i| node.value(i).to_vec()));
            }
            if node.count() == 0 {
                return Ok(None);
            }
            let Ok(child) = node.child(node.child_for(&key.to_be_bytes())) else { return Ok(None) };
            (addr, level) = (child, level - 1);
        }
    }

    /// All cells of a tree that can be had.
    pub(super) fn gather(
        &mut self,
        which: Which,
        root: MetaAddr,
        level: Option<u8>,
    ) -> Result<Gathered, CheckError> {
        let mut got = Gathered::default();
        let mut stack = vec![Step { addr: root, level, low: 0, high: None }];
        while let Some(step) = stack.pop() {
            let block = match got.nodes.contains(&step.addr) {
                true => None,
                false => self.node(which, step.addr, step.level)?,
            };
            let Some(block) = block else {
                (got.is_ragged, got.is_lossy) = (true, true);
                got.lost.push((step.low, step.high));
                continue;
            };
            got.nodes.insert(step.addr);
            let node = NodeRef::new(&block);
            got.is_ragged |= node.count() == 0 && step.addr != root;
            stack.extend(take(&mut got, &step, node));
        }
        if got.is_lossy {
            for addr in self.leaves_of(which)? {
                // With a past, a leaf that something led to may be one of a version, and hold what was then.
                let is_elsewhere = which.kind != BlockKind::Directory && self.is_of_past(addr);
                if is_elsewhere || got.nodes.contains(&addr) {
                    continue;
                }
                let Some(block) = self.node(which, addr, Some(0))? else { continue };
                got.nodes.insert(addr);
                take(&mut got, &Step { addr, level: None, low: 0, high: None }, NodeRef::new(&block));
            }
        }
        Ok(got)
    }

    /// Whether the volume has a past, and the check came to this block.
    fn is_of_past(&self, addr: MetaAddr) -> bool {
        !self.sb.history_root.is_none() && self.was_reached(addr) == Some(true)
    }

    /// The kind of an inode's content and its last incarnation, as the leaves say that are of it.
    pub(super) fn last_content_of(
        &mut self,
        number: InodeNo,
    ) -> Result<Option<(BlockKind, Incarnation)>, CheckError> {
        self.find_leaves()?;
        let Some(all) = &self.leaves else { return Ok(None) };
        let of_number = |kind: BlockKind| {
            let (first, last) = ((kind as u8, number.0, 0), (kind as u8, number.0, u32::MAX));
            all.range(first..=last).map(move |((.., incarnation), leaves)| (kind, *incarnation, leaves))
        };
        let newest = CONTENT.into_iter().flat_map(of_number).filter_map(|(kind, incarnation, leaves)| {
            let counts = |addr: MetaAddr| kind == BlockKind::Directory || !self.is_of_past(addr);
            let newest =
                leaves.iter().filter(|(_, addr)| counts(*addr)).map(|(generation, _)| *generation).max()?;
            Some((incarnation, newest, kind))
        });
        let last = newest.max_by_key(|(incarnation, newest, kind)| (*incarnation, *newest, *kind as u8));
        Ok(last.map(|(incarnation, _, kind)| (kind, Incarnation(incarnation))))
    }

    /// All leaves that say that they are of this tree, the newest first.
    fn leaves_of(&mut self, which: Which) -> Result<Vec<MetaAddr>, CheckError> {
        self.find_leaves()?;
        let found = self.leaves.as_ref().and_then(|all| all.get(&which.key()));
        let mut found = found.cloned().unwrap_or_default();
        found.sort_by_key(|(generation, addr)| (std::cmp::Reverse(*generation), *addr));
        Ok(found.into_iter().map(|(_, addr)| addr).collect())
    }

    /// Finds the leaves of all trees, once.
    fn find_leaves(&mut self) -> Result<(), CheckError> {
        if self.leaves.is_none() {
            let mut all = Leaves::new();
            let zones: Vec<ZoneNo> = self.zones.keys().copied().filter(|zone| !zone.is_root()).collect();
            for zone in zones {
                for index in 0..yore_format::layout::ZONE_INDEXES as u16 {
                    let addr = MetaAddr::new(zone, index);
                    let Some(block) = self.read(addr)? else { continue };
                    let header = BlockHeader::of(&block);
                    let Some(kind) = BlockKind::from_repr(header.kind).filter(|kind| kind.is_tree()) else {
                        continue;
                    };
                    if header.level == 0 {
                        let which = Which {
                            kind,
                            owner: InodeNo(header.owner.get()),
                            incarnation: Incarnation(header.owner_incarnation.get()),
                        };
                        all.entry(which.key()).or_default().push((header.generation.get(), addr));
                    }
                }
            }
            self.leaves = Some(all);
        }
        Ok(())
    }

    /// Writes a tree of these cells in place of `old`, near `zone`. `None` if there is no room; then nothing
    /// is changed.
    pub(super) fn write_tree(
        &mut self,
        which: Which,
        zone: ZoneNo,
        old: &Gathered,
        cells: &BTreeMap<u64, Vec<u8>>,
    ) -> Result<Option<NewTree>, CheckError> {
        let is_of_present = which.owner == InodeNo::ORPHANS || self.sb.history_root.is_none();
        let row: Vec<Cell> =
            cells.iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value.clone())).collect();
        let freed = match is_of_present {
            true => old.nodes.iter().filter(|addr| self.place(**addr).is_some()).count(),
            false => 0,
        };
        if !self.has_room(nodes_of(&row, 8).saturating_sub(freed)) {
            return Ok(None);
        }
        if is_of_present {
            for addr in &old.nodes {
                self.remove(*addr);
            }
        }
        let birth = match which.owner {
            InodeNo::ORPHANS => EventNo(1),
            // What an event has seen of the inode, a version will have.
            owner if owner.is_file() => {
                self.inode(owner)?.map_or(self.sb.next_number, |inode| inode.born.max(EventNo(1)))
            }
            _ => EventNo(0),
        };
        let form = Form { kind: which.kind, owner: (which.owner, which.incarnation), birth, width: 8 };
        self.write_levels(form, zone, row)
    }

    /// Writes a tree of the past of these cells. `None` if there is no room.
    pub(super) fn write_past_tree(
        &mut self,
        tree: HistoryTree,
        near: ZoneNo,
        cells: BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Option<NewTree>, CheckError> {
        if cells.is_empty() {
            return Ok(Some(NewTree { root: MetaAddr::NONE, level: 0 }));
        }
        let (owner, width) = ((tree.owner(), Incarnation(0)), tree.key_width());
        let form = Form { kind: tree.kind(), owner, birth: EventNo(1), width };
        self.write_levels(form, near, cells.into_iter().collect())
    }

    /// Writes a tree of the cells in `row`, which are in order, from its leaves up. `None` if there is no
    /// room.
    fn write_levels(
        &mut self,
        Form { kind, owner, birth, width }: Form,
        near: ZoneNo,
        mut row: Vec<Cell>,
    ) -> Result<Option<NewTree>, CheckError> {
        let mut level = 0;
        loop {
            let mut above = Vec::new();
            for cells in pack(&row, width) {
                let Some(addr) = self.free_address(near) else { return Ok(None) };
                let mut block = self.empty(kind, level, addr, owner, birth);
                let mut node = NodeMut::init(&mut block, width);
                for (i, (key, value)) in cells.iter().enumerate() {
                    node.insert(i, key, value);
                }
                if !self.put(addr, block) {
                    return Ok(None);
                }
                let first = cells.first().map_or_else(Vec::new, |cell| cell.0.clone());
                above.push((first, addr));
            }
            if let [(_, root)] = above[..] {
                return Ok(Some(NewTree { root, level }));
            }
            row = above.into_iter().map(|(key, addr)| (key, addr.0.to_le_bytes().to_vec())).collect();
            level += 1;
        }
    }
}

/// How many nodes a tree of these cells has.
fn nodes_of(row: &[Cell], width: usize) -> usize {
    let mut level = pack(row, width).len();
    let mut nodes = level;
    while level > 1 {
        let above: Vec<Cell> = vec![(vec![0; width], vec![0; size_of::<MetaAddr>()]); level];
        level = pack(&above, width).len();
        nodes += level;
    }
    nodes
}

/// Takes the cells of a leaf, or the steps to the children of a branch. What lies at a node's upper bound or
/// beyond it does not count: the node after it has that.
fn take(got: &mut Gathered, step: &Step, node: NodeRef<'_>) -> Vec<Step> {
    let key = |i: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(node.key(i));
        u64::from_be_bytes(bytes)
    };
    let count = (0..node.count()).take_while(|i| step.high.is_none_or(|high| key(*i) < high)).count();
    got.is_ragged |= count < node.count() || (count > 0 && key(0) < step.low);
    if node.level() == 0 {
        for i in 0..count {
            got.cells.entry(key(i)).or_insert_with(|| node.value(i).to_vec());
        }
        return Vec::new();
    }
    let mut steps = Vec::with_capacity(count);
    for i in (0..count).rev() {
        match node.child(i) {
            Ok(addr) => steps.push(Step {
                addr,
                level: Some(node.level() - 1),
                low: if i == 0 { step.low } else { key(i) },
                high: if i + 1 < count { Some(key(i + 1)) } else { step.high },
            }),
            Err(_) => (got.is_ragged, got.is_lossy) = (true, true),
        }
    }
    steps
}

/// Splits cells into those of one node each; at least one node, which may be empty.
fn pack(cells: &[Cell], key_width: usize) -> Vec<&[Cell]> {
    let mut nodes = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (i, (_, value)) in cells.iter().enumerate() {
        // Two bytes of the index come with each cell.
        let more = NodeRef::cell_bytes(key_width, value.len()) + 2;
        if i > first && bytes + more > NODE_PAYLOAD_BYTES - SLACK {
            nodes.push(&cells[first..i]);
            (first, bytes) = (i, 0);
        }
        bytes += more;
    }
    nodes.push(&cells[first..]);
    nodes
}
