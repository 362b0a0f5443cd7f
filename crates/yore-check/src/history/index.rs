//! Trees whose cells are keys alone, and the shards of the past.

use crate::checker::Checker;
use crate::known::IndexCells;
use crate::{CheckError, Finding, Problem};
use yore_format::{key_parts, name_shard, version_shard, Block, Corruption, HistoryTree, InodeNo, MetaAddr};

/// What a tree whose cells are keys alone should hold.
pub(super) struct Index<const BYTES: usize> {
    pub(super) keys: Vec<[u8; BYTES]>,
    /// Whether these are all.
    pub(super) complete: bool,
    pub(super) problem: Problem,
    pub(super) shown: fn(&[u8]) -> String,
}

impl Checker<'_> {
    /// Compares a tree whose cells are keys alone with the keys that it should have. In a `shard` the keys
    /// are changes, of inodes and directories of that shard.
    pub(super) fn compare_index<const BYTES: usize>(
        &mut self,
        (tree, roots): (HistoryTree, &Block),
        shard: Option<usize>,
        index: Index<BYTES>,
    ) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, tree);
        let Index { mut keys, complete, problem, shown } = index;
        keys.sort_unstable();
        keys.dedup();
        if self.history.keeps_indexes && complete {
            let cells = keys.iter().map(|key| (key.to_vec(), Vec::new())).collect();
            self.history.indexes.push(IndexCells { tree, cells });
        }
        let mut wanted = keys.into_iter().peekable();
        let mut missing = Vec::new();
        let mut addr = MetaAddr::NONE;
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            addr = leaf.addr;
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                if !value.is_empty() {
                    let c = Corruption::new("cell of an index", "length", 0, value.len());
                    self.damaged_cell(c, leaf.addr);
                }
                while let Some(key) = wanted.next_if(|wanted| wanted[..] < *key) {
                    missing.push((key, leaf.addr));
                }
                if wanted.next_if(|wanted| wanted[..] == *key).is_some() {
                    continue;
                }
                if !self.is_in_shard(key, shard, leaf.addr) {
                    continue;
                }
                if complete {
                    let finding = Finding::new(problem, "no such key", shown(key));
                    self.add(finding.at(leaf.addr));
                }
            }
        }
        if walk.is_some_and(|walk| !walk.complete) {
            return Ok(());
        }
        missing.extend(wanted.map(|key| (key, addr)));
        for (key, addr) in missing {
            let mut finding = Finding::new(problem, shown(&key), "no such key");
            finding.addr = (!addr.is_none()).then_some(addr);
            self.add(finding);
        }
        Ok(())
    }

    /// Whether the inode or directory of a change belongs to this shard. In a tree without shards any does.
    fn is_in_shard(&mut self, key: &[u8], shard: Option<usize>, addr: MetaAddr) -> bool {
        let (Some(shard), Ok([_, inode, cookie])) = (shard, key_parts(key)) else { return true };
        let right = if cookie == 0 { version_shard } else { name_shard };
        self.check_shard(InodeNo(inode), right, shard, addr)
    }

    pub(super) fn check_shard(
        &mut self,
        inode: InodeNo,
        right: fn(InodeNo) -> usize,
        shard: usize,
        addr: MetaAddr,
    ) -> bool {
        let right = right(inode);
        if right != shard {
            let (expected, found) = (format!("in shard {right}"), format!("in shard {shard}"));
            self.add(Finding::new(Problem::HistoryShard, expected, found).at(addr).of(inode));
        }
        right == shard
    }
}
