//! What can be made anew of the past from the rest of it: indexes, counts, and watermarks.
//!
//! The check knows what each index should hold, if it could read all that it is an index of. Rows are not
//! changed here: they are the past itself.

use super::round::{Once, Round};
use crate::{CheckError, Finding, Problem, Value};
use yore_format::{
    AnnalsCounts, AnnalsKey, Block, BlockHeader, BlockKind, HistoryGrowth, HistoryRoots, HistoryTree,
    InodeNo, HISTORY_SHARDS,
};

impl Round<'_> {
    /// The block of the roots of the past.
    fn roots(&self) -> Result<Option<Box<Block>>, CheckError> {
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
            return self.new_indexes(|tree| Some(tree.kind()) == kind);
        }
        if !is_of_past || self.has_new_indexes {
            return Ok(false);
        }
        self.has_new_indexes = true;
        self.new_indexes(|_| true)
    }

    /// Makes those indexes anew for which this is true, as far as it is known what they should hold. Their
    /// old nodes are freed when nothing leads to them.
    fn new_indexes(&mut self, which: impl Fn(HistoryTree) -> bool) -> Result<bool, CheckError> {
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
        let Value::Text(text) = &finding.found else { return Ok(false) };
        let shard = text.rsplit(' ').next().and_then(|shard| shard.parse::<usize>().ok());
        let (Some(shard), Some(mut roots)) = (shard.filter(|s| *s < HISTORY_SHARDS), self.roots()?) else {
            return Ok(false);
        };
        HistoryRoots::set_watermark(&mut roots, shard, AnnalsKey::default());
        Ok(self.volume.put(self.volume.sb.history_root, roots))
    }
}
