//! The fast pass: proves, without a walk, that a volume is sound.
//!
//! The scan gives each block to a worker's [`digest::Digest`] when it arrives. That checks what the block can
//! break by itself, claims data blocks in bit sets, adds names to sums of keyed hashes, and keeps a few
//! numbers of each tree node ([`node`]). When all is in, the numbers and sums are compared. The rest (zones,
//! bitmaps, the tree of orphans, totals) goes through the same code as without a fast pass.
//!
//! The pass says *sound*, or *sound but for owners, bitmaps and totals*, or nothing. Of these three it finds
//! what the walk would ([`twice`] says how, of two owners of a block). Whatever else it cannot tell (a
//! difference anywhere, a hash that two names share, records of the log that must be put in place first) is a
//! [`doubt::Doubt`]: then all is forgotten, and the walk checks the volume as if there were no fast pass. So
//! the findings are those of the walk. What must be argued is that the walk finds nothing where the fast pass
//! has no doubt; CHECK.md does that rule by rule.
//!
//! On a volume with a past or with shared blocks, something must be known before blocks are summed up. There
//! all blocks are held first. What is known of the past then decides what is summed up ([`past`]); the rest
//! is walked ([`with_past`]).
//!
//! Memory: half a byte for each inode number, or 16 ([`places`] says when); a bit for each data block; and
//! the blocks that are held, which are headers, bitmaps and the tree of orphans, or with a past all that fit.
//! What is kept of nodes, of inodes with trees and of directories goes to temporary files when there is more
//! than memory may be used.

mod blocks;
mod claim;
pub(crate) mod digest;
pub(crate) mod doubt;
pub(crate) mod ground;
mod keyed;
mod leaves;
mod node;
mod packed;
pub(crate) mod past;
pub(crate) mod places;
pub(crate) mod summary;
mod trees;
mod twice;
mod with_past;

use crate::checker::Checker;
use crate::deaths::Deaths;
use crate::held::Held;
use crate::pace::How;
use crate::scan::WORKERS_MAX;
use crate::spill::{Paged, Record, Room, Sorted};
use crate::tree::Tree;
use crate::walk::Walk;
use crate::CheckError;
use doubt::{ensure, Certain, Doubt, Stop, A_PAST, SHARED};
use ground::Ground;
use past::Past;
use summary::{number_of, InOrder, Summary};
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{BlockKind, Engine, Expect, FileKind, Inode, InodeNo, WriteFeatures, ZoneNo, NOT_INODES};

impl Checker<'_> {
    /// Tries to prove that the volume is sound, but for owners of blocks, bitmaps and totals, of which it
    /// finds all that there is to find. If that cannot be done, returns why, and everything is as it was
    /// before, but for what was read.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn prove(&mut self) -> Result<Certain, CheckError> {
        if let Err(doubt) = self.may_be_proved() {
            return Ok(Err(doubt));
        }
        let proved = self.prove_by(Checker::try_to_prove)?;
        if proved.is_err() {
            self.held = Held::default();
        }
        Ok(proved)
    }

    /// The same of a volume of which [`Checker::prove`] has said that something must be known beforehand, and
    /// whose blocks are held. If there is a doubt, they are held still.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn prove_with_past(&mut self) -> Result<Certain, CheckError> {
        self.prove_by(Checker::try_to_prove_with_past)
    }

    fn prove_by(&mut self, prove: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<Certain, CheckError> {
        let counts = self.counts;
        match prove(self) {
            Ok(()) => Ok(Ok(())),
            Err(Stop::Doubt(doubt)) => {
                self.forget_all();
                self.counts = counts;
                Ok(Err(doubt))
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Whether a doubt only says that something must be known before blocks are summed up.
    pub(crate) fn needs_to_know(doubt: Doubt) -> bool {
        [A_PAST, SHARED].contains(&doubt)
    }

    /// Whether blocks may be summed up as they arrive.
    pub(crate) fn may_be_proved(&self) -> Certain {
        ensure(self.findings.is_empty(), "something was found before")?;
        let is_redone = self.sb.engine == Engine::Journal && !self.records.is_empty();
        ensure(!is_redone, "records of the log that must be put in place")?;
        ensure(self.sb.history_root.is_none(), A_PAST.0)?;
        // Where count tables are, this feature is.
        ensure(!self.sb.features.contains(WriteFeatures::TABLES), SHARED.0)
    }

    fn try_to_prove(&mut self) -> Result<(), Stop> {
        self.pace.how = How::Proof;
        let jobs = self.jobs();
        let room = self.geometry.blocks / ZONE_BLOCKS;
        ensure(jobs.len() as u64 <= room, "more zones than the volume has room for")?;
        let share = self.room.list_of_worker(WORKERS_MAX);
        let ground = Ground::new(&self.sb, jobs.iter().map(|job| job.number), None, share);
        let summary = self.digest(jobs, &ground);
        ground.failed()?;
        ground.doubt()?;
        self.pace.begin_compare();
        self.load_zones()?;
        self.load_tables()?;
        ensure(self.tables.is_empty(), "shared blocks that the superblock does not know")?;
        self.compare_summed(ground, summary)
    }

    /// Compares the trees of the past, and sums up what is held, and what is not held as it is read again.
    fn try_to_prove_with_past(&mut self) -> Result<(), Stop> {
        self.pace.begin_compare();
        self.load_zones()?;
        self.load_tables()?;
        self.certain()?;
        self.history()?;
        ensure(!self.history.rolls_back, "a directory that is being rolled back")?;
        self.certain()?;
        ensure(self.history.expunged.is_empty(), "a history that is being expunged")?;
        let zones: Vec<ZoneNo> = self.zones.iter().map(|zone| zone.number).collect();
        let deaths = [&mut self.history.deaths, &mut self.history.annals_deaths]
            .map(|deaths| std::mem::replace(deaths, Deaths::new(self.room)));
        let past = Past::new(&zones, &self.history.versions, deaths, &self.tables)?;
        self.pace.sums_up(self.history.versions.count());
        let share = self.room.list_beside_held(self.scan.threads.min(WORKERS_MAX));
        let ground = Ground::new(&self.sb, zones.into_iter(), Some(past), share);
        let (reading, summary) = self.scan.digest_held(&self.zones, &self.held, &self.pace, &ground);
        self.reading.add(&reading);
        self.compare_summed(ground, summary)
    }

    /// Compares what the workers have summed up.
    fn compare_summed(&mut self, ground: Ground, summary: Summary) -> Result<(), Stop> {
        ground.failed()?;
        ground.doubt()?;
        let zones = self.zones.len() as u64;
        ensure(summary.tally.zones == zones, "a zone that was not read")?;
        self.certain()?;
        let summary = summary.in_order()?;
        let nodes = trees::compare(&summary, self.room.list())?;
        ensure(summary.tally.root_directories == 1, "no root directory")?;
        ground.places.are_right()?;
        all_below_root(&summary.directories, self.room)?;
        self.claim_fixed();
        self.certain()?;
        let twice = self.claims_of_twice(&ground, &summary)?;
        let has_past = ground.may_have_past();
        twice.claims.iter().for_each(|claim| ground.release(claim.start, claim.len));
        self.take_owners(&ground)?;
        drop(ground);
        self.take_tally(&summary);
        for zone in 0..self.zones.len() {
            if self.zones[zone].number.is_primary() {
                self.census_bitmap(zone)?;
            }
        }
        self.orphans_among(&summary)?;
        if has_past {
            self.compare_past(&summary, &nodes)?;
        }
        self.count_reached(&summary)?;
        // From here on what is found is what the walk would find.
        self.claim_twice(&twice);
        self.bitmaps()?;
        self.totals();
        self.names_of_found()
    }

    /// Takes over the owners of data blocks.
    fn take_owners(&mut self, ground: &Ground) -> Certain {
        for (group, owned) in self.owned.iter_mut().enumerate() {
            let found = ground.owners(group);
            ensure(owned.is_some() == found.is_some(), "a group that was not in the zone table")?;
            if let (Some(owned), Some(found)) = (owned, found) {
                owned.iter_mut().zip(found).for_each(|(word, found)| *word |= found);
            }
        }
        Ok(())
    }

    /// Reads the tree of orphans. All inodes without links must be there, and otherwise only files.
    fn orphans_among(&mut self, summary: &InOrder) -> Result<(), Stop> {
        let mut listed = 0;
        if let Some(tree) = Tree::of_orphans(&self.sb) {
            let mut walk = Walk::new(tree);
            while let Some(leaf) = walk.next_leaf(self)? {
                for i in 0..leaf.count() {
                    let (key, value) = leaf.cell(i);
                    self.counts.orphans += 1;
                    let incarnation = <[u8; 4]>::try_from(value).map(u32::from_le_bytes);
                    let incarnation = incarnation.map_err(|_| Doubt("an orphan that cannot be decoded"))?;
                    match summary.unlinked(key)? {
                        Some(own) => {
                            ensure(own == incarnation, "an orphan of another incarnation")?;
                            listed += 1;
                        }
                        None => self.shrinking_file(InodeNo(key), incarnation)?,
                    }
                }
            }
        }
        self.certain()?;
        ensure(listed == summary.tally.unlinked, "an inode without links that is no orphan")?;
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
    fn count_reached(&self, summary: &InOrder) -> Certain {
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
        let digested = summary.tally.nodes + inodes;
        ensure(digested == summary.tally.blocks, "a block that is neither node nor inodes")?;
        ensure(reached + digested == exist, "a block to which nothing leads")
    }

    fn take_tally(&mut self, summary: &InOrder) {
        let (tally, counts) = (&summary.tally, &mut self.counts);
        counts.tree_nodes += summary.tally.nodes;
        counts.inodes = tally.inodes;
        counts.directories = tally.directories;
        counts.entries = tally.entries;
        counts.extents = tally.extents;
        counts.data_blocks = tally.data_blocks;
        counts.xattrs = tally.xattrs;
    }
}

/// A directory on the way up to the root.
#[derive(Clone)]
struct Below {
    number: u64,
    parent: u64,
    is_below: bool,
    is_passed: bool,
}

impl Record for Below {
    const BYTES: usize = 17;

    fn key(&self) -> u64 {
        self.number
    }

    fn put(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.number.to_be_bytes());
        to[8..16].copy_from_slice(&self.parent.to_be_bytes());
        to[16] = u8::from(self.is_below) | u8::from(self.is_passed) << 1;
    }

    fn get(from: &[u8]) -> Below {
        let (number, parent) = (number_of(from), number_of(&from[8..]));
        Below { number, parent, is_below: from[16] & 1 != 0, is_passed: from[16] & 2 != 0 }
    }
}

/// Whether every directory is below the root: the path up by parents ends there. Each directory is passed
/// once, for it is then known to be below the root; one that is met again before that is below itself.
fn all_below_root(of: &Sorted, room: Room) -> Result<(), Stop> {
    let (mut directories, mut cursor) = (Paged::new(room.inodes()), of.all()?);
    while let Some((number, parent)) = cursor.get() {
        let (number, parent) = (number_of(number), number_of(parent));
        directories.push(Below { number, parent, is_below: false, is_passed: false })?;
        cursor.advance()?;
    }
    for start in 0..directories.len() {
        let (mut at, mut steps) = (start, 0u64);
        while !directories.get(at)?.is_below {
            let was = directories.update(at, |here| std::mem::replace(&mut here.is_passed, true))?;
            ensure(!was, "a directory below itself")?;
            steps += 1;
            let parent = directories.get(at)?.parent;
            if parent == InodeNo::ROOT.0 {
                break;
            }
            at = directories.find(parent)?.ok_or(Doubt("a directory in none"))?;
        }
        // The same way once more, for it may be as long as there are directories.
        let mut at = Some(start);
        for _ in 0..steps {
            let Some(here) = at else { break };
            let parent = directories.update(here, |here| {
                here.is_below = true;
                here.parent
            })?;
            at = directories.find(parent)?;
        }
    }
    Ok(())
}
