//! Trees whose cells are keys alone, and the shards of the past.

use crate::checker::Checker;
use crate::known::IndexCells;
use crate::spill::{Cursor, Room, Sorted, Sorter};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{key_parts, name_shard, version_shard, Block, Corruption, HistoryTree, InodeNo, MetaAddr};

/// What a tree whose cells are keys alone should hold.
pub(super) struct Index<'s> {
    /// Its keys are those of the list that begin with `first`, without that. One may be there twice.
    pub(super) keys: &'s Sorted,
    pub(super) first: &'s [u8],
    /// Whether these are all.
    pub(super) complete: bool,
    pub(super) problem: Problem,
    pub(super) shown: fn(&[u8]) -> String,
}

impl<'s> Index<'s> {
    fn wanted(&self) -> Result<Wanted<'s>, CheckError> {
        Ok(Wanted { cursor: self.keys.from(self.first)?, first: self.first })
    }
}

/// Goes through the keys of an index.
struct Wanted<'s> {
    cursor: Cursor<'s>,
    first: &'s [u8],
}

impl Wanted<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.cursor.get().and_then(|(key, _)| key.strip_prefix(self.first))
    }

    /// Goes on to another key.
    fn advance(&mut self) -> Result<(), CheckError> {
        let Some(key) = self.key().map(<[u8]>::to_vec) else { return Ok(()) };
        while self.key() == Some(&key) {
            self.cursor.advance()?;
        }
        Ok(())
    }
}

/// What an index lacks. It is reported when all of it could be read.
pub(super) struct Missing {
    /// Each key, with the address of the leaf that should have it.
    keys: Sorter,
}

impl Missing {
    pub(super) fn new(room: Room) -> Missing {
        Missing { keys: Sorter::new(room.list()) }
    }

    pub(super) fn push(&mut self, key: &[u8], addr: MetaAddr) -> Result<(), CheckError> {
        self.keys.push(key, &addr.0.to_le_bytes())
    }

    pub(super) fn report(
        self,
        checker: &mut Checker<'_>,
        problem: Problem,
        shown: impl Fn(&[u8]) -> String,
    ) -> Result<(), CheckError> {
        let missing = self.keys.into_sorted()?;
        let mut cursor = missing.all()?;
        while let Some((key, addr)) = cursor.get() {
            let mut finding = Finding::new(problem, shown(key), "no such key");
            let addr = <[u8; 8]>::try_from(addr).ok().map(|addr| MetaAddr(u64::from_le_bytes(addr)));
            finding.addr = addr.filter(|addr| !addr.is_none());
            checker.add(finding);
            cursor.advance()?;
        }
        Ok(())
    }
}

impl Checker<'_> {
    /// Compares a tree whose cells are keys alone with the keys that it should have. In a `shard` the keys
    /// are changes, of inodes and directories of that shard.
    pub(super) fn compare_index(
        &mut self,
        (tree, roots): (HistoryTree, &Block),
        shard: Option<usize>,
        index: Index<'_>,
    ) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, tree);
        let Index { complete, problem, shown, .. } = index;
        if self.history.keeps_indexes && complete {
            let (mut cells, mut wanted) = (BTreeMap::new(), index.wanted()?);
            while let Some(key) = wanted.key() {
                cells.insert(key.to_vec(), Vec::new());
                wanted.advance()?;
            }
            self.history.indexes.push(IndexCells { tree, cells });
        }
        let mut wanted = index.wanted()?;
        let mut missing = Missing::new(self.room);
        let mut addr = MetaAddr::NONE;
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            addr = leaf.addr;
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                if !value.is_empty() {
                    let c = Corruption::new("cell of an index", "length", 0, value.len());
                    self.damaged_cell(c, leaf.addr);
                }
                while let Some(wanting) = wanted.key().filter(|wanting| *wanting < key) {
                    missing.push(wanting, leaf.addr)?;
                    wanted.advance()?;
                }
                if wanted.key() == Some(key) {
                    wanted.advance()?;
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
        while let Some(wanting) = wanted.key() {
            missing.push(wanting, addr)?;
            wanted.advance()?;
        }
        missing.report(self, problem, shown)
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
