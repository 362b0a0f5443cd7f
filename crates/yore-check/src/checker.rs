//! The state of a check under way, and the reading of blocks that all steps share.
//!
//! Invariant: a block handed out by [`Checker::reach`], `read_at` or `read_again` has passed the format's
//! verifier, so the accessors of `yore-format` that rely on it may be used; and it is the version that its
//! zone's header records. An older copy is of no more use than a damaged block: what it names may long belong
//! to others.

use crate::claims::{Claimant, Claims};
use crate::finding::FirstOwner;
use crate::held::Held;
use crate::known::{CountTables, CurrentCopy, History, Known, Zone};
use crate::pace::{Pace, Watcher};
use crate::report::Findings;
use crate::scan::{Reading as HowMuch, Scan, Speed};
use crate::spill::{Paged, Room};
use crate::superblock::Found;
use crate::{CheckError, CheckOptions, Counts, Finding, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU32;
use std::sync::Arc;
use yore_device::Device;
use yore_format::layout::Geometry;
use yore_format::{
    verify_header, verify_version, Block, BlockHeader, BlockNo, EventNo, Expect, Incarnation, InodeNo,
    MetaAddr, Superblock, WriteFeatures, BITS_PER_GROUP, BLOCK_SIZE, NOT_INODES, ZERO_BLOCK,
};

/// Words of a bit set over a group's data area.
pub(crate) const GROUP_WORDS: usize = BITS_PER_GROUP as usize / 64;
/// The blocks of a group that have an owner.
pub(crate) type Owned = [u64; GROUP_WORDS];

/// Which reading of a block it is.
#[derive(Clone, Copy)]
enum When {
    /// The first.
    First,
    /// A later one, of blocks in their order.
    Again,
    /// A later one, of one block here and one there.
    Alone,
}

/// The outcome of reading a block. Anything but the first was reported.
enum Reading {
    Sound(Arc<Block>),
    /// Sound, but not what was expected of it.
    SomebodyElses,
    /// Damaged, or not there.
    Unusable,
}

impl Reading {
    fn sound(self) -> Option<Arc<Block>> {
        match self {
            Reading::Sound(block) => Some(block),
            Reading::SomebodyElses | Reading::Unusable => None,
        }
    }
}

/// A check under way.
pub(crate) struct Checker<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) sb: Superblock,
    /// Free blocks that it does not count.
    pub(crate) unpromised: u64,
    pub(crate) geometry: Geometry,
    pub(crate) findings: Findings,
    pub(crate) counts: Counts,
    /// All zones but root zones whose header could be read, in ascending order of their numbers.
    pub(crate) zones: Vec<Zone>,
    /// For each group in use: which of its data blocks have been found to have an owner.
    pub(crate) owned: Vec<Option<Box<Owned>>>,
    /// The claims on them, in the order in which the walk met them.
    pub(crate) claims: Claims,
    /// If only some of those who claim blocks are walked: these.
    pub(crate) only: Option<BTreeSet<Claimant>>,
    /// Blocks of which it is asked who had them first, as long as that is not known, and the answers.
    pub(crate) asked: BTreeSet<u64>,
    pub(crate) first_owners: BTreeMap<u64, FirstOwner>,
    /// The tables of shared blocks.
    pub(crate) tables: CountTables,
    /// All inodes in use, in ascending order of their numbers.
    pub(crate) inodes: Paged<Known>,
    /// The past of inodes, as far as later steps need it.
    pub(crate) history: History,
    /// Directories with several names: each name but the last that was met, by its directory and cookie.
    pub(crate) further_names: BTreeMap<InodeNo, Vec<(InodeNo, u64)>>,
    /// The bitmaps that could not be read, which was reported.
    pub(crate) damaged_bitmaps: Vec<MetaAddr>,
    /// Something could not be read, which was reported. So things that are not found may exist.
    pub(crate) incomplete: bool,
    /// The header of some zone could not be read. So addresses in unknown zones may be right.
    pub(crate) zones_lost: bool,
    /// The records of the log, until they are put in place or of no use.
    pub(crate) records: Vec<Vec<u8>>,
    /// The log could not be read through, which was reported.
    pub(crate) log_is_damaged: bool,
    /// Blocks as the records of the log make them; they count instead of those on the medium.
    pub(crate) redone: BTreeMap<MetaAddr, Arc<Block>>,
    /// What was read in the order of the disk.
    pub(crate) held: Held,
    pub(crate) scan: Scan<'a>,
    /// How much memory all of this may take.
    pub(crate) room: Room,
    pub(crate) pace: Pace<'a>,
    pub(crate) reading: HowMuch,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(
        device: &'a dyn Device,
        found: &Found,
        options: &CheckOptions,
        watcher: Option<Watcher<'a>>,
    ) -> Checker<'a> {
        let sb = found.superblock.clone();
        let (geometry, room) = (sb.geometry(), Room::new(options.memory));
        Checker {
            device,
            geometry,
            findings: Findings::new(options.findings_max),
            counts: Counts::default(),
            zones: Vec::new(),
            owned: vec![None; geometry.groups() as usize],
            claims: Claims::new(room),
            only: None,
            asked: BTreeSet::new(),
            first_owners: BTreeMap::new(),
            tables: CountTables::new(),
            inodes: Paged::new(room.inodes()),
            history: History::new(room, false),
            further_names: BTreeMap::new(),
            damaged_bitmaps: Vec::new(),
            incomplete: false,
            unpromised: options.unpromised,
            zones_lost: false,
            records: Vec::new(),
            log_is_damaged: false,
            redone: BTreeMap::new(),
            held: Held::default(),
            scan: Scan {
                device,
                device_blocks: device.size() / BLOCK_SIZE as u64,
                volume_tag: sb.volume_tag(),
                memory_blocks: room.blocks() / BLOCK_SIZE as u64,
                threads: options.threads,
                speed: Speed::default(),
                behind_headers: AtomicU32::new(0),
            },
            room,
            pace: Pace::new(watcher),
            reading: HowMuch::default(),
            sb,
        }
    }

    /// Forgets all that was found and learned since the log was read, but not what is held.
    pub(crate) fn forget_all(&mut self) {
        self.findings.clear();
        self.zones.clear();
        self.owned.iter_mut().for_each(|owned| *owned = None);
        self.claims = Claims::new(self.room);
        self.tables.clear();
        self.inodes = Paged::new(self.room.inodes());
        self.history = History::new(self.room, self.history.keeps_indexes);
        self.further_names.clear();
        self.damaged_bitmaps.clear();
        (self.incomplete, self.zones_lost) = (false, false);
        self.redone.clear();
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.add(finding);
    }

    /// Reports a finding, and remembers that things that are not found may exist.
    pub(crate) fn add_incomplete(&mut self, finding: Finding) {
        self.incomplete = true;
        self.findings.add(finding);
    }

    /// Checks the superblock by itself.
    pub(crate) fn superblock(&mut self, found: &Found) {
        if let Some(wrong) = found.wrong_other() {
            self.add(wrong);
        }
        if self.scan.device_blocks < self.sb.volume_blocks {
            self.add(Finding::new(Problem::DeviceTooShort, self.sb.volume_blocks, self.scan.device_blocks));
        }
        if !self.sb.events_root.is_none() {
            let found = format!("a root of the events: {}", self.sb.events_root);
            self.add(Finding::new(Problem::ReservedRoot, "none", found));
        }
        if self.sb.orphan_root.is_none() && self.sb.orphan_level != 0 {
            let found = format!("level {} without a root of the orphans", self.sb.orphan_level);
            self.add(Finding::new(Problem::ReservedRoot, "level 0", found));
        }
    }

    /// A block's bytes, or `None` if the device ends before it.
    pub(crate) fn read(&mut self, block: BlockNo) -> Result<Option<Arc<Block>>, CheckError> {
        if block.0 >= self.scan.device_blocks {
            return Ok(None);
        }
        self.reading.requests += 1;
        self.reading.bytes += BLOCK_SIZE as u64;
        let mut bytes = Arc::new(ZERO_BLOCK);
        // Nobody else has it yet, so this makes no copy.
        self.device.read_at(block.0 * BLOCK_SIZE as u64, &mut Arc::make_mut(&mut bytes)[..])?;
        Ok(Some(bytes))
    }

    /// Reads and verifies the current copy of a block, which must be the one of `addr`. Reports `problem` of
    /// `owner` if it is not sound. As this is the first reading of the block, also reports numbers in its
    /// header that were not given yet.
    pub(crate) fn read_at(
        &mut self,
        addr: MetaAddr,
        copy: CurrentCopy,
        problem: Problem,
        owner: InodeNo,
    ) -> Result<Option<Arc<Block>>, CheckError> {
        self.pace.compared();
        let block = self.read_quietly(addr, copy, problem, owner, true)?;
        if let Some(block) = &block {
            let header = BlockHeader::of(block);
            let (generation, birth) = (header.generation.get(), header.birth.get());
            if generation > self.sb.generation.0 {
                let expected = format!("at most {}", self.sb.generation);
                self.add(
                    Finding::new(Problem::FutureGeneration, expected, generation).at(addr).on(copy.block),
                );
            }
            self.check_number("birth of a node", EventNo(birth), addr, InodeNo(header.owner.get()));
        }
        Ok(block)
    }

    fn read_quietly(
        &mut self,
        addr: MetaAddr,
        copy: CurrentCopy,
        problem: Problem,
        owner: InodeNo,
        in_order: bool,
    ) -> Result<Option<Arc<Block>>, CheckError> {
        let block_no = copy.block;
        if let Some(block) = self.redone.get(&addr) {
            if let Err(c) = verify_header(block, addr, self.scan.volume_tag, block_no) {
                self.add_incomplete(Finding::corruption(problem, &c).of(owner));
                return Ok(None);
            }
            return Ok(Some(block.clone()));
        }
        if let Some(block) = self.held(addr, copy, in_order) {
            return Ok(Some(block));
        }
        let Some(block) = self.read(block_no)? else {
            let limit = format!("a block below {}", self.scan.device_blocks);
            let finding = Finding::new(Problem::BlockBeyondDevice, limit, block_no.0).at(addr).on(block_no);
            self.add_incomplete(finding.of(owner));
            return Ok(None);
        };
        if let Err(c) = verify_header(&block, addr, self.scan.volume_tag, block_no) {
            self.add_incomplete(Finding::corruption(problem, &c).of(owner));
            return Ok(None);
        }
        if let Some(Err(c)) = copy.check.map(|check| verify_version(&block, check, addr, block_no)) {
            self.add_incomplete(Finding::corruption(Problem::BlockStale, &c).of(owner));
            return Ok(None);
        }
        Ok(Some(block))
    }

    /// A block that was read in the order of the disk. If memory did not suffice for the inode blocks of all
    /// zones, reads those of this one, if whoever wants them comes to one zone after the other.
    fn held(&mut self, addr: MetaAddr, copy: CurrentCopy, in_order: bool) -> Option<Arc<Block>> {
        if let Some(block) = self.held.get(addr, copy) {
            return Some(block);
        }
        if !in_order {
            return None;
        }
        let (zone, _) = self.locate(addr)?;
        if self.held.is_window(addr.zone()) || !self.is_inode_block(zone, addr.index()) {
            return None;
        }
        let (blocks, reading) = self.scan.inode_blocks(&self.zones[zone].header);
        self.reading.add(&reading);
        self.held.set_window(addr.zone(), blocks);
        self.held.get(addr, copy)
    }

    /// Where the block at `addr` is: the zone's index in `zones`, and the block's place. `None` if it does
    /// not exist.
    pub(crate) fn locate(&self, addr: MetaAddr) -> Option<(usize, CurrentCopy)> {
        let zone = self.zones.binary_search_by_key(&addr.zone(), |z| z.number).ok()?;
        Some((zone, CurrentCopy::of(&self.zones[zone].header, addr.index())?))
    }

    /// Whether the zone of `addr` may be one that could not be read.
    pub(crate) fn is_in_lost_zone(&self, addr: MetaAddr) -> bool {
        self.zones_lost && self.zones.binary_search_by_key(&addr.zone(), |z| z.number).is_err()
    }

    /// Reads the block at `addr`. Reports whatever is wrong with it.
    fn read_verified(&mut self, addr: MetaAddr, expect: &Expect, when: When) -> Result<Reading, CheckError> {
        let Some((_, copy)) = self.locate(addr) else {
            if !self.is_in_lost_zone(addr) {
                let found = "no block of this address";
                let finding = Finding::new(Problem::BlockMissing, expect.kind.name(), found);
                self.add_incomplete(finding.at(addr).of(expect.owner));
            }
            return Ok(Reading::Unusable);
        };
        let (problem, owner) = (Problem::BlockDamaged, expect.owner);
        let block = match when {
            When::First => self.read_at(addr, copy, problem, owner)?,
            When::Again => self.read_quietly(addr, copy, problem, owner, true)?,
            When::Alone => self.read_quietly(addr, copy, problem, owner, false)?,
        };
        let Some(block) = block else { return Ok(Reading::Unusable) };
        if let Err(c) = expect.check(&block) {
            self.add_incomplete(
                Finding::corruption(Problem::BlockWrong, &c.at(addr).on(copy.block)).of(expect.owner),
            );
            return Ok(Reading::SomebodyElses);
        }
        Ok(Reading::Sound(block))
    }

    /// A block that was reached and found sound before.
    pub(crate) fn read_again(
        &mut self,
        addr: MetaAddr,
        expect: &Expect,
    ) -> Result<Option<Arc<Block>>, CheckError> {
        Ok(self.read_verified(addr, expect, When::Again)?.sound())
    }

    /// As [`Checker::read_again`], for a caller that wants single blocks of many zones. It reads no other
    /// block of the zone.
    pub(crate) fn read_alone(
        &mut self,
        addr: MetaAddr,
        expect: &Expect,
    ) -> Result<Option<Arc<Block>>, CheckError> {
        Ok(self.read_verified(addr, expect, When::Alone)?.sound())
    }

    /// Follows a reference to the block at `addr`, to which there may be only one.
    pub(crate) fn reach(
        &mut self,
        addr: MetaAddr,
        expect: &Expect,
    ) -> Result<Option<Arc<Block>>, CheckError> {
        let located = self.locate(addr);
        let (index, bit) = (usize::from(addr.index()) / 64, 1 << (addr.index() % 64));
        if let Some((zone, copy)) = located {
            let word = &mut self.zones[zone].reached[index];
            if *word & bit != 0 {
                let finding = Finding::new(Problem::BlockReachedTwice, "one reference", "another");
                self.add_incomplete(finding.at(addr).on(copy.block).of(expect.owner));
                return Ok(None);
            }
            *word |= bit;
        }
        let reading = self.read_verified(addr, expect, When::First)?;
        if let (Reading::SomebodyElses, Some((zone, _))) = (&reading, located) {
            // The owner's reference may still come.
            self.zones[zone].reached[index] &= !bit;
        }
        Ok(reading.sound())
    }

    /// Reports a number that was not given yet.
    pub(crate) fn check_number(&mut self, what: &str, number: EventNo, addr: MetaAddr, inode: InodeNo) {
        if number > self.sb.next_number {
            let (expected, found) =
                (format!("at most {}", self.sb.next_number), format!("{number} ({what})"));
            self.add(Finding::new(Problem::FutureNumber, expected, found).at(addr).of(inode));
        }
    }

    /// Reports an incarnation that was not given yet.
    pub(crate) fn check_incarnation(&mut self, incarnation: Incarnation, inode: InodeNo, addr: MetaAddr) {
        if u64::from(incarnation.0) >= self.sb.next_incarnation && incarnation.0 != 0 {
            let expected = format!("below {}", self.sb.next_incarnation);
            let finding = Finding::new(Problem::FutureIncarnation, expected, incarnation.0);
            self.add(finding.at(addr).of(inode));
        }
    }

    /// Reports something that a program without this feature would take for damage, if the superblock does
    /// not name the feature.
    pub(crate) fn needs(&mut self, feature: WriteFeatures, what: &str, addr: MetaAddr, of: InodeNo) {
        if !self.sb.features.contains(feature) {
            let expected = format!("feature {} in the superblock", feature.bits());
            self.add(Finding::new(Problem::Feature, expected, what).at(addr).of(of));
        }
    }

    /// Where an inode is in `inodes`.
    pub(crate) fn known(&self, number: InodeNo) -> Result<Option<usize>, CheckError> {
        self.inodes.find(number.0)
    }

    /// An inode in use.
    pub(crate) fn known_inode(&self, number: InodeNo) -> Result<Option<Known>, CheckError> {
        self.known(number)?.map(|at| self.inodes.get(at)).transpose()
    }

    /// Whether an inode may exist in a block or zone that could not be read, which was reported.
    pub(crate) fn is_hidden(&self, inode: InodeNo) -> Result<bool, CheckError> {
        if !self.incomplete {
            return Ok(false);
        }
        Ok(match self.locate(inode.addr()) {
            // The block was read, or at least reported, unless no inode of it is known at all.
            Some((zone, _)) if self.is_inode_block(zone, inode.addr().index()) => {
                let at = self.inodes.count_below(InodeNo::new(inode.addr(), 0).0)?;
                at == self.inodes.len() || self.inodes.get(at)?.number.addr() != inode.addr()
            }
            Some(_) => false,
            None => self.is_in_lost_zone(inode.addr()),
        })
    }

    /// Whether the zone's header says that there are inodes at an existing index.
    pub(crate) fn is_inode_block(&self, zone: usize, index: u16) -> bool {
        let zone = &self.zones[zone];
        let bitmap = index == 0 && zone.number.is_primary();
        !bitmap && zone.header.inode_free[usize::from(index)] != NOT_INODES
    }
}
