//! The fast pass: proves, without a walk, that a volume is sound.
//!
//! The scan gives each block to a worker's [`digest::Digest`] when it arrives. That checks what the block can
//! break by itself, claims data blocks in bit sets, adds names to sums of keyed hashes, and keeps a few
//! numbers of each tree node ([`node`]). When all is in, the numbers and sums are compared. The rest (zones,
//! bitmaps, the tree of orphans, totals) goes through the same code as without a fast pass.
//!
//! The pass says *sound* or nothing. Whatever it cannot tell (a difference anywhere, a hash that two names
//! share, a past, shared blocks, records of the log that must be put in place first) is a [`doubt::Doubt`]:
//! then all is forgotten, and the walk checks the volume as if there were no fast pass. So the findings are
//! those of the walk. What must be argued is that the walk finds nothing where the fast pass has no doubt;
//! CHECK.md does that rule by rule.
//!
//! Memory: half a byte for each inode number, or 16 ([`places`] says when); 80 for each tree node, 80 for
//! each inode with trees, 16 for each directory; a bit for each data block; and the blocks that are held,
//! which are headers, bitmaps and the tree of orphans.

mod blocks;
pub(crate) mod digest;
pub(crate) mod doubt;
pub(crate) mod ground;
mod keyed;
mod leaves;
pub(crate) mod node;
pub(crate) mod places;
mod trees;

use crate::checker::Checker;
use crate::pace::How;
use crate::tree::Tree;
use crate::walk::Walk;
use crate::CheckError;
use doubt::{ensure, Certain, Doubt};
use ground::Ground;
use node::Summary;
use std::collections::BTreeMap;
use yore_format::{BlockKind, Engine, Expect, FileKind, Inode, InodeNo, NOT_INODES};

/// Why the fast pass ends early.
enum Stop {
    Doubt(Doubt),
    Failed(CheckError),
}

impl From<Doubt> for Stop {
    fn from(doubt: Doubt) -> Stop {
        Stop::Doubt(doubt)
    }
}

impl From<CheckError> for Stop {
    fn from(error: CheckError) -> Stop {
        Stop::Failed(error)
    }
}

impl Checker<'_> {
    /// Tries to prove that the volume is sound. If that cannot be done, returns why, and everything is as it
    /// was before, but for what was read.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn prove(&mut self) -> Result<Certain, CheckError> {
        if let Err(doubt) = self.may_be_proved() {
            return Ok(Err(doubt));
        }
        let counts = self.counts;
        match self.try_to_prove() {
            Ok(()) => Ok(Ok(())),
            Err(Stop::Doubt(doubt)) => {
                self.forget_all();
                self.pace.how = How::Walk;
                self.counts = counts;
                Ok(Err(doubt))
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Whether the volume has nothing that the fast pass does not know.
    pub(crate) fn may_be_proved(&self) -> Certain {
        ensure(self.findings.is_empty(), "something was found before")?;
        ensure(self.sb.history_root.is_none(), "a past")?;
        let is_redone = self.sb.engine == Engine::Journal && !self.records.is_empty();
        ensure(!is_redone, "records of the log that must be put in place")
    }

    fn try_to_prove(&mut self) -> Result<(), Stop> {
        self.pace.how = How::Proof;
        let jobs = self.jobs();
        let ground = Ground::new(&self.sb, jobs.iter().map(|job| job.number));
        let mut summary = self.digest(jobs, &ground);
        ground.doubt()?;
        self.pace.begin_compare();
        self.load_zones()?;
        let zones = self.zones.len() as u64;
        ensure(summary.tally.zones == zones, "a zone that was not read")?;
        self.certain()?;
        trees::compare(&mut summary)?;
        ensure(summary.tally.root_directories == 1, "no root directory")?;
        ground.places.are_right()?;
        all_below_root(std::mem::take(&mut summary.directories))?;
        self.take_owners(&ground)?;
        drop(ground);
        self.claim_fixed();
        self.load_tables()?;
        ensure(self.tables.is_empty(), "shared blocks")?;
        for zone in 0..self.zones.len() {
            if self.zones[zone].number.is_primary() {
                self.census_bitmap(zone)?;
            }
        }
        self.orphans_among(&summary.unlinked)?;
        self.count_reached(&summary)?;
        self.bitmaps()?;
        self.take_tally(&summary);
        self.totals();
        self.certain()
    }

    /// Nothing was found so far.
    fn certain(&self) -> Result<(), Stop> {
        ensure(self.findings.is_empty() && !self.incomplete, "something was found")?;
        Ok(())
    }

    /// Takes over the owners of data blocks.
    fn take_owners(&mut self, ground: &Ground) -> Certain {
        for (group, owned) in self.owned.iter_mut().enumerate() {
            let found = ground.owners(group);
            ensure(owned.is_some() == found.is_some(), "a group that was not in the zone table")?;
            if let (Some(owned), Some(found)) = (owned, found) {
                owned.iter_mut().zip(found).for_each(|(word, found)| *word = found);
            }
        }
        Ok(())
    }

    /// Reads the tree of orphans. All inodes without links must be there, and otherwise only files.
    fn orphans_among(&mut self, unlinked: &[(u64, u32)]) -> Result<(), Stop> {
        let unlinked: BTreeMap<u64, u32> = unlinked.iter().copied().collect();
        let mut listed = 0;
        if let Some(tree) = Tree::of_orphans(&self.sb) {
            let mut walk = Walk::new(tree);
            while let Some(leaf) = walk.next_leaf(self)? {
                for i in 0..leaf.count() {
                    let (key, value) = leaf.cell(i);
                    self.counts.orphans += 1;
                    let incarnation = <[u8; 4]>::try_from(value).map(u32::from_le_bytes);
                    let incarnation = incarnation.map_err(|_| Doubt("an orphan that cannot be decoded"))?;
                    match unlinked.get(&key) {
                        Some(own) => {
                            ensure(*own == incarnation, "an orphan of another incarnation")?;
                            listed += 1;
                        }
                        None => self.shrinking_file(InodeNo(key), incarnation)?,
                    }
                }
            }
        }
        self.certain()?;
        ensure(listed == unlinked.len(), "an inode without links that is no orphan")?;
        Ok(())
    }

    /// An orphan with links is a file that is losing blocks.
    fn shrinking_file(&mut self, number: InodeNo, incarnation: u32) -> Result<(), Stop> {
        ensure(number.is_file(), "an orphan that is no file")?;
        let block = self.read_again(number.addr(), &Expect::volume(BlockKind::Inodes))?;
        let inode = block.and_then(|block| Inode::decode(Inode::slot(&block, number.slot())).ok());
        let is_file = inode.is_some_and(|inode| {
            let kind = FileKind::from_mode(inode.mode);
            inode.links > 0 && inode.incarnation.0 == incarnation && kind == Some(FileKind::Regular)
        });
        ensure(is_file, "an orphan that is no orphan")?;
        Ok(())
    }

    /// Whether something led to every block: the digest knows inode blocks by their headers and has found
    /// nodes in their trees; the bits of the others were set.
    fn count_reached(&self, summary: &Summary) -> Certain {
        let (mut exist, mut reached, mut inodes) = (0, 0, 0);
        for zone in &self.zones {
            let bits = |words: &[u64; 8]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            exist += bits(&zone.header.exists);
            reached += bits(&zone.reached);
            let is_bitmap = |index: usize| index == 0 && zone.number.is_primary();
            let free = zone.header.inode_free.iter().enumerate();
            inodes += free.filter(|(i, free)| **free != NOT_INODES && !is_bitmap(*i)).count() as u64;
        }
        ensure(summary.tally.inode_blocks == inodes, "inodes that were not read")?;
        let digested = summary.nodes.len() as u64 + inodes;
        ensure(digested == summary.tally.blocks, "a block that is neither node nor inodes")?;
        ensure(reached + digested == exist, "a block to which nothing leads")
    }

    fn take_tally(&mut self, summary: &Summary) {
        let (tally, counts) = (&summary.tally, &mut self.counts);
        counts.tree_nodes += summary.nodes.len() as u64;
        counts.inodes = tally.inodes;
        counts.directories = tally.directories;
        counts.entries = tally.entries;
        counts.extents = tally.extents;
        counts.data_blocks = tally.data_blocks;
        counts.xattrs = tally.xattrs;
    }
}

/// Whether every directory is below the root: the path up by parents ends there. Each directory is passed
/// once, for it is then known to be below the root; one that is met again before that is below itself.
fn all_below_root(mut directories: Vec<(u64, u64)>) -> Certain {
    directories.sort_unstable();
    let find = |number: u64| directories.binary_search_by_key(&number, |(number, _)| *number);
    let (mut is_below, mut is_passed) = (vec![false; directories.len()], vec![false; directories.len()]);
    let mut path = Vec::new();
    for start in 0..directories.len() {
        let mut at = start;
        while !is_below[at] {
            ensure(!std::mem::replace(&mut is_passed[at], true), "a directory below itself")?;
            path.push(at);
            let parent = directories[at].1;
            if parent == InodeNo::ROOT.0 {
                break;
            }
            at = find(parent).map_err(|_| Doubt("a directory in none"))?;
        }
        path.drain(..).for_each(|at| is_below[at] = true);
    }
    Ok(())
}
