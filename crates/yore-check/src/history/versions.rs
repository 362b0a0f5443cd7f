//! Versions, and the changes, which are the ends of versions and past names.

use super::index::Index;
use super::walk::inode_of;
use crate::checker::Checker;
use crate::spill::Sorter;
use crate::{CheckError, Finding, Problem};
use yore_format::{
    key_parts, version_end_key, version_shard, Block, Corruption, EventNo, HistoryTree, Incarnation, InodeNo,
    MetaAddr, Version, HISTORY_SHARDS,
};

/// The keys that the trees of changes should have, each behind a byte for its shard.
pub(super) struct Ends {
    pub(super) keys: Sorter,
    /// Whether these are all.
    pub(super) complete: bool,
}

impl Ends {
    /// Takes the key of an end in a shard.
    pub(super) fn push(&mut self, shard: usize, key: &[u8; 24]) -> Result<(), CheckError> {
        self.keys.push(&[&[shard as u8], &key[..]].concat(), &[])
    }
}

const _: () = assert!(HISTORY_SHARDS <= 256);

impl Checker<'_> {
    /// Gathers the versions of a shard, and their ends.
    pub(super) fn versions(
        &mut self,
        roots: &Block,
        shard: usize,
        ends: &mut Ends,
    ) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, HistoryTree::Versions(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.versions += 1;
                match decode_version(key, value) {
                    Ok((inode, version)) => {
                        self.version(inode, &version, shard, leaf.addr);
                        let Version { end, inode: was } = version;
                        ends.push(version_shard(inode), &version_end_key(end, inode))?;
                        self.history.versions.push(inode, end, was, leaf.addr)?;
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        ends.complete = false;
                    }
                }
            }
        }
        ends.complete &= walk.is_none_or(|walk| walk.complete);
        Ok(())
    }

    fn version(&mut self, inode: InodeNo, version: &Version, shard: usize, addr: MetaAddr) {
        self.check_shard(inode, version_shard, shard, addr);
        self.check_number("end of a version", version.end, addr, inode);
        self.check_before_annals("a version", version.end, inode, addr);
        self.check_incarnation(version.inode.incarnation, inode, addr);
    }

    /// Checks that what is in an old tree ended before the annals began.
    pub(super) fn check_before_annals(&mut self, what: &str, end: EventNo, inode: InodeNo, addr: MetaAddr) {
        let from = self.history.annals_from;
        if from > EventNo(0) && end >= from {
            let expected = format!("{what} that ended before {from}, where the annals begin");
            self.add(Finding::new(Problem::AnnalsBegin, expected, end.0).at(addr).of(inode));
        }
    }

    /// Compares the trees of changes with the ends of versions and past names.
    pub(super) fn changes(&mut self, roots: &Block, ends: Ends) -> Result<(), CheckError> {
        let keys = ends.keys.into_sorted()?;
        for shard in 0..HISTORY_SHARDS {
            let index = Index {
                keys: &keys,
                first: &[shard as u8],
                complete: ends.complete,
                problem: Problem::ChangeIndex,
                shown: |key| match key_parts(key) {
                    Ok([end, inode, 0]) => format!("the end of a version of inode {inode} at {end}"),
                    Ok([death, directory, cookie]) => {
                        format!("the end of a name {cookie:#x} of inode {directory} at {death}")
                    }
                    Err(c) => c.to_string(),
                },
            };
            self.compare_index((HistoryTree::Changes(shard), roots), Some(shard), index)?;
        }
        Ok(())
    }

    /// Checks that what a file still uses began no earlier than the expunge of its history.
    pub(crate) fn check_expunged(
        &mut self,
        of: (InodeNo, Incarnation),
        birth: EventNo,
        what: &str,
        addr: MetaAddr,
    ) {
        let since = self.history.expunged.get(&of).copied();
        if let Some(since) = since.filter(|since| birth < *since) {
            let expected = format!("{what} born at {since} or later");
            self.add(Finding::new(Problem::Expunged, expected, birth.0).at(addr).of(of.0));
        }
    }
}

fn decode_version(key: &[u8], value: &[u8]) -> Result<(InodeNo, Version), Box<Corruption>> {
    let [inode, born] = key_parts(key)?;
    let inode = inode_of(inode)?;
    Ok((inode, Version::decode(inode, EventNo(born), value)?))
}
