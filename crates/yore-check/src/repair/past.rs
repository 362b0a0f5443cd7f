//! What can be made anew of the past from the rest of it: indexes, counts, and watermarks.
//!
//! The check knows what each index should hold, if it could read all that it is an index of. Rows are the
//! past itself: those that can be read are kept as they are, and the others are given up and named.

use super::round::{numbers, Loss, Once, Round};
use crate::{CheckError, Finding, Problem, Value};
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    key_parts, AnnalsCounts, AnnalsKey, AnnalsRow, Block, BlockHeader, BlockKind, EventKind, EventNo,
    EventRow, Features, HistoryGrowth, HistoryRoots, HistoryTree, InodeNo, MetaAddr, NodeRef, OperationRow,
    PastName, PolicyRow, RollbackIntent, RowClass, Version, WriteFeatures, HISTORY_SHARDS,
};

impl Round<'_> {
    /// The block of the roots of the past.
    pub(super) fn roots(&self) -> Result<Option<Box<Block>>, CheckError> {
        let root = self.volume.sb.history_root;
        match root.is_none() {
            true => Ok(None),
            false => self.volume.read_kind(root, BlockKind::HistoryRoots),
        }
    }

    /// Makes the index of a finding anew.
    pub(super) fn mend_index(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        self.new_indexes(|tree| match tree {
            HistoryTree::EventIndex => finding.problem == Problem::EventIndex,
            HistoryTree::Changes(_) => finding.problem == Problem::ChangeIndex,
            HistoryTree::InodeIndex => finding.problem == Problem::InodeIndex,
            HistoryTree::NameIndex => finding.problem == Problem::NameIndex,
            _ => false,
        })
    }

    /// Makes indexes anew where a node or a cell of one is damaged. All of them, where the node does not say
    /// of which it is, and once in a repair, for the node may be of another tree of the past.
    pub(super) fn mend_index_nodes(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let block = finding.addr.map_or(Ok(None), |addr| self.volume.read(addr))?;
        let kind = block.and_then(|block| BlockKind::from_repr(BlockHeader::of(&block).kind));
        let is_of_past = matches!(finding.inode, Some(InodeNo::EVENTS | InodeNo::HISTORY));
        if finding.problem == Problem::CellDamaged {
            let is_it = |tree: HistoryTree| Some(tree.kind()) == kind;
            return Ok(self.new_indexes(is_it)? | self.new_past_trees(is_it)?);
        }
        if !is_of_past {
            return Ok(false);
        }
        let changed = self.new_past_trees(|tree| Some(tree.owner()) == finding.inode)?;
        if self.has_new_indexes {
            return Ok(changed);
        }
        self.has_new_indexes = true;
        Ok(self.new_indexes(|_| true)? | changed)
    }

    /// Makes those indexes anew for which this is true, as far as it is known what they should hold. Their
    /// old nodes are freed when nothing leads to them.
    pub(super) fn new_indexes(&mut self, which: impl Fn(HistoryTree) -> bool) -> Result<bool, CheckError> {
        let mut changed = false;
        for i in 0..self.seen.history.indexes.len() {
            let index = &self.seen.history.indexes[i];
            let tree = index.tree;
            if !which(tree) {
                continue;
            }
            if !self.is_first(Once::Index(tree.index())) {
                changed = true;
                continue;
            }
            let cells = std::mem::take(&mut self.seen.history.indexes[i].cells);
            let near = self.volume.sb.history_root.zone();
            let Some(made) = self.volume.write_past_tree(tree, near, cells)? else { continue };
            let Some(mut roots) = self.roots()? else { return Ok(false) };
            HistoryRoots::set(&mut roots, tree, made.root, made.level);
            changed |= self.volume.put(self.volume.sb.history_root, roots);
        }
        Ok(changed)
    }

    /// Sets a count of what the past alone holds.
    pub(super) fn mend_history_space(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Value::Text(text) = &finding.expected else { return Ok(false) };
        let Some((counted, what)) = text.split_once(' ') else { return Ok(false) };
        let (Ok(counted), Some(mut roots)) = (counted.parse::<u64>(), self.roots()?) else {
            return Ok(false);
        };
        let space = HistoryRoots::space(&roots);
        let more = |now: u64| i64::try_from(i128::from(counted) - i128::from(now)).unwrap_or(i64::MAX);
        let mut growth = HistoryGrowth::default();
        match what {
            "data blocks" => growth.data = more(space.data),
            "nodes of inodes" => growth.nodes = more(space.nodes),
            "nodes of its own trees" => growth.trees = more(space.trees),
            _ => {
                let counts = HistoryRoots::annals_counts(&roots);
                let counts = AnnalsCounts { references: counted, ..counts };
                HistoryRoots::set_annals_counts(&mut roots, counts);
            }
        }
        HistoryRoots::count(&mut roots, growth);
        Ok(self.volume.put(self.volume.sb.history_root, roots))
    }

    /// Sets a watermark back: the indexes then have no keys of this shard, and a mount gives its rows keys.
    pub(super) fn mend_watermark(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let shard = numbers(&finding.found).last().map(|shard| shard as usize);
        let (Some(shard), Some(mut roots)) = (shard.filter(|s| *s < HISTORY_SHARDS), self.roots()?) else {
            return Ok(false);
        };
        HistoryRoots::set_watermark(&mut roots, shard, AnnalsKey::default());
        Ok(self.volume.put(self.volume.sb.history_root, roots))
    }
}

/// The highest level at which a root is believed.
const LEVEL_MAX: u8 = 6;

/// A node of a tree of the past to read: its address, level, and bounds.
struct Step {
    addr: MetaAddr,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// What can be read of a tree of the past.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) cells: BTreeMap<Vec<u8>, Vec<u8>>,
    seen: BTreeSet<MetaAddr>,
    /// Nodes that could not be used.
    lost_nodes: u64,
    /// Rows that mean nothing.
    lost_rows: u64,
    /// Nodes lie out of their bounds, are of another level, or are empty.
    is_ragged: bool,
    /// More than single leaves is lost.
    is_beyond_leaves: bool,
}

impl Rows {
    /// Whether all of the tree could be read.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_ragged && self.lost_nodes == 0 && self.lost_rows == 0
    }
}

impl Round<'_> {
    /// Makes the trees of the past anew in which nodes or rows cannot be read, from the rows that can.
    fn new_past_trees(&mut self, which: impl Fn(HistoryTree) -> bool) -> Result<bool, CheckError> {
        let mut changed = false;
        for tree in HistoryTree::all().filter(|tree| which(*tree)) {
            let Some(roots) = self.roots()? else { return Ok(false) };
            let (root, level) = HistoryRoots::get(&roots, tree);
            let is_index = matches!(
                tree,
                HistoryTree::EventIndex
                    | HistoryTree::Changes(_)
                    | HistoryTree::InodeIndex
                    | HistoryTree::NameIndex
                    | HistoryTree::Spans
            );
            if root.is_none() || is_index || !self.is_first(Once::Index(tree.index())) {
                continue;
            }
            let rows = self.rows_of(tree, root, level)?;
            // So much of the past is given up only if that is asked for.
            if rows.is_whole() || rows.is_beyond_leaves {
                continue;
            }
            if rows.lost_nodes > 0 || rows.lost_rows > 0 {
                let what = format!(
                    "{} rows and {} blocks of rows cannot be read, and are given up",
                    rows.lost_rows, rows.lost_nodes
                );
                let path = format!("the past, {tree:?}");
                self.lost.push(Loss { path, what, unnamed: None });
            }
            let near = self.volume.sb.history_root.zone();
            let Some(made) = self.volume.write_past_tree(tree, near, rows.cells)? else { return Ok(changed) };
            let Some(mut roots) = self.roots()? else { return Ok(false) };
            HistoryRoots::set(&mut roots, tree, made.root, made.level);
            changed |= self.volume.put(self.volume.sb.history_root, roots);
        }
        Ok(changed)
    }

    /// The rows of a tree that can be read, in nodes that are where they should be.
    pub(super) fn rows_of(&self, tree: HistoryTree, root: MetaAddr, level: u8) -> Result<Rows, CheckError> {
        let mut rows = Rows::default();
        let mut stack = vec![Step { addr: root, level, low: Vec::new(), high: None }];
        while let Some(step) = stack.pop() {
            let is_new = rows.seen.insert(step.addr);
            let block = if is_new { self.volume.read_kind(step.addr, tree.kind())? } else { None };
            let is_it = |block: &Block| {
                let header = BlockHeader::of(block);
                header.owner.get() == tree.owner().0
                    && header.owner_incarnation.get() == 0
                    && (header.level == step.level || (step.addr == root && header.level <= LEVEL_MAX))
                    && NodeRef::new(block).key_width() == tree.key_width()
            };
            let Some(block) = block.filter(|block| is_it(block)) else {
                rows.lost_nodes += 1;
                rows.is_beyond_leaves |= step.level > 0 || step.addr == root;
                continue;
            };
            let node = NodeRef::new(&block);
            rows.is_ragged |= node.level() != step.level;
            let is_below = |i: &usize| step.high.as_ref().is_none_or(|high| node.key(*i) < &high[..]);
            let count = (0..node.count()).take_while(is_below).count();
            rows.is_ragged |= count < node.count()
                || (count > 0 && node.key(0) < &step.low[..])
                || (node.count() == 0 && step.addr != root);
            for i in 0..count {
                if node.level() == 0 {
                    match self.is_row(tree, node.key(i), node.value(i)) {
                        true => drop(rows.cells.insert(node.key(i).to_vec(), node.value(i).to_vec())),
                        false => rows.lost_rows += 1,
                    }
                    continue;
                }
                let Ok(addr) = node.child(i) else {
                    (rows.lost_nodes, rows.is_beyond_leaves) = (rows.lost_nodes + 1, true);
                    continue;
                };
                stack.push(Step {
                    addr,
                    level: node.level() - 1,
                    low: if i == 0 { step.low.clone() } else { node.key(i).to_vec() },
                    high: if i + 1 < count { Some(node.key(i + 1).to_vec()) } else { step.high.clone() },
                });
            }
        }
        Ok(rows)
    }

    /// Whether a row of a tree of the past means something.
    fn is_row(&self, tree: HistoryTree, key: &[u8], value: &[u8]) -> bool {
        let sb = &self.volume.sb;
        match tree {
            HistoryTree::Events | HistoryTree::Forgotten => {
                let features = match sb.features.contains(WriteFeatures::ANNALS) {
                    true => Features::ANNALS,
                    false => Features::empty(),
                };
                EventRow::decode_with(value, features).is_ok_and(|row| {
                    row.kind != EventKind::Rollback || RollbackIntent::decode(&row.name).is_ok()
                })
            }
            HistoryTree::Versions(_) => key_parts(key).is_ok_and(|[inode, born]| {
                let inode = InodeNo(inode);
                inode.is_file() && Version::decode(inode, EventNo(born), value).is_ok()
            }),
            HistoryTree::Names(_) => key_parts(key).is_ok_and(|[directory, _, birth]| {
                InodeNo(directory).is_file() && PastName::decode(EventNo(birth), value).is_ok()
            }),
            HistoryTree::Policies => PolicyRow::decode(value).is_ok(),
            HistoryTree::Operations => key_parts(key).is_ok_and(|[class, sequence]| {
                RowClass::from_u64(class).is_some() && sequence > 0 && OperationRow::decode(value).is_ok()
            }),
            HistoryTree::Annals(_) => AnnalsKey::decode(key)
                .is_ok_and(|key| AnnalsRow::decode(key.end, value, &sb.hash_seed).is_ok()),
            _ => true,
        }
    }
}
