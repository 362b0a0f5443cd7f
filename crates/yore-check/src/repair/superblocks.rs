//! A volume of which neither superblock can be used: another one is made of what identifies itself.
//!
//! What only a superblock says (the key of the hash of names, features, the length, the log's place) is in
//! the other superblock, if that is an older one, or in the spare superblock. The rest is found:
//!
//! - *The generation.* The two headers of root zone 0 are those of the two generations that were written
//!   last. A generation that was never complete may have left one, so both are tried, the newer one first.
//!   The whole check decides: the first counts with which nothing is found, or the one with which the least
//!   is. A newer generation of which all has arrived has everything that was promised, whether its superblock
//!   was written or not.
//! - *Roots.* The block of the roots of the past, and the root of the tree of orphans, say what they are. All
//!   blocks that exist are read for them, and counted.
//! - *Numbers to give next* are above all that are found, and not below those of the spare superblock.
//! - *The log's position.* Records of later generations than the one found count (`yore_meta::find_log`).
//!
//! What cannot be found is no guess: then the volume is left alone, and the error says what is missing.

use super::round::Loss;
use super::volume::Volume;
use crate::overlay::Overlay;
use crate::report::CheckOptions;
use crate::settle::settle;
use crate::superblock::{read_superblock, Found};
use crate::whole::{self, Way};
use crate::{CheckError, Finding, Problem};
use yore_device::Device as _;
use yore_format::layout::{FIRST_SLOT, HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{
    checksum_except, verify_header, Block, BlockHeader, BlockKind, BlockNo, Corruption, Engine, EventNo,
    Generation, GroupNo, Inode, MetaAddr, NodeRef, RootZone, SlotState, Spare, Superblock, VolumeState,
    ZoneHeader, ZoneNo, BITS_PER_GROUP, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES, ZERO_BLOCK,
};
use yore_meta::MetaError;

/// Where the checksum of a slot stands, and its length.
const CRC_AT: usize = 16;

/// What a superblock cannot be made with.
const LOG_ELSEWHERE: &str = "which session of the log on its own device is the last cannot be known: what an fsync has made \
                             durable since the last generation may be lost; the volume has no log any more: give it one \
                             with `yore journal`";

/// A superblock was made in front of the volume.
pub(crate) struct Made {
    /// What was found before that.
    pub(crate) finding: Finding,
    /// What is lost in any case.
    pub(crate) lost: Vec<Loss>,
}

/// What was found before the check itself, which does not see it any more: that a superblock was made, or
/// what was in the slot that settling the volume has put another superblock into.
pub(crate) fn found_first(made: Option<&Made>, found: &Found, is_settled: bool) -> Option<Finding> {
    match made {
        // Settling leaves the slot beside a superblock that was made.
        Some(made) => Some(made.finding.clone()),
        None if is_settled => found.wrong_other(),
        None => None,
    }
}

/// What is known without the zones.
struct Constants {
    superblock: Superblock,
    /// The slot of the superblock that is made; the other one has an older superblock or nothing.
    slot: u32,
    is_other_kept: bool,
    has_log_elsewhere: bool,
    /// The greatest generation that anything has said.
    newest: Generation,
    reason: Box<Corruption>,
}

/// Makes a superblock in front of a volume of which neither can be used, and returns what was found. `None`:
/// one of them can be used.
///
/// # Errors
/// [`CheckError::NotAVolume`]; [`CheckError::Superblock`] for one that a newer program may know, or if what
/// only a superblock says is nowhere; errors of the device.
pub(crate) fn make_superblock(
    disk: &Overlay<'_>,
    options: &CheckOptions,
) -> Result<Option<Made>, CheckError> {
    let reason = match read_superblock(disk) {
        Ok(_) => return Ok(None),
        Err(e @ (CheckError::NotAVolume { .. } | CheckError::Superblock { .. })) => e,
        Err(e) => return Err(e),
    };
    let constants = constants(disk, reason)?;
    let candidates = root_headers(disk, ZoneNo::root(0), BlockNo(0), &constants.superblock)?;
    let mut best: Option<(u64, [Box<Block>; 2])> = None;
    let tried: Vec<Option<RootZone>> = match candidates.is_empty() {
        true => vec![None],
        false => candidates.into_iter().map(Some).collect(),
    };
    let mut missing = None;
    for root in tried {
        let trial = Overlay::new(disk);
        match with_root(&trial, &constants, root)? {
            Ok(()) => {}
            Err(what) => {
                missing = Some(what);
                continue;
            }
        }
        let found = findings(&trial, options)?;
        if best.as_ref().is_none_or(|(least, _)| found < *least) {
            best = Some((found, [trial.read(SUPERBLOCKS[0])?, trial.read(SUPERBLOCKS[1])?]));
        }
        if found == 0 {
            break;
        }
    }
    let Some((_, slots)) = best else {
        let device = disk.describe();
        let missing = missing.unwrap_or_default();
        return Err(CheckError::SuperblockMissing { device, reason: constants.reason, missing });
    };
    for (at, block) in SUPERBLOCKS.into_iter().zip(slots) {
        if disk.read(at)?[..] != block[..] {
            disk.write(at, &block);
        }
    }
    let expected = "a superblock that counts in one of the two slots";
    let finding = Finding::new(Problem::SuperblockDamaged, expected, constants.reason.to_string());
    Ok(Some(Made {
        finding: finding.on(SUPERBLOCKS[constants.slot as usize]),
        lost: match constants.has_log_elsewhere {
            true => vec![Loss { path: "the log".into(), what: LOG_ELSEWHERE.into(), unnamed: None }],
            false => Vec::new(),
        },
    }))
}

/// Finds what only superblocks say.
fn constants(disk: &Overlay<'_>, error: CheckError) -> Result<Constants, CheckError> {
    let reason = match &error {
        CheckError::NotAVolume { reason, .. } | CheckError::Superblock { reason, .. } => reason.clone(),
        _ => return Err(error),
    };
    if disk.size() < 2 * BLOCK_SIZE as u64 {
        return Err(error);
    }
    let mut newest = Generation(0);
    let mut older: Option<(u32, Superblock)> = None;
    let mut is_ours = false;
    for slot in 0..2u32 {
        let block = disk.read(SUPERBLOCKS[slot as usize])?;
        match Superblock::decode(&block, slot) {
            SlotState::Valid(sb) => {
                newest = newest.max(sb.generation);
                older = Some((slot, *sb));
            }
            SlotState::Corrupt(generation, c) => {
                // What is whole, or of another version, is for a program that knows it.
                let stored = u32::from_le_bytes([block[16], block[17], block[18], block[19]]);
                if c.field == "format version" || stored == checksum_except(&block[..], CRC_AT) {
                    return Err(error);
                }
                is_ours = true;
                newest = newest.max(generation);
            }
            SlotState::Torn(_) => is_ours = true,
            SlotState::Foreign => {}
        }
    }
    let spare = match yore_meta::spare_superblock(disk)? {
        Ok(spare) => spare,
        Err(reason) => return Err(CheckError::Superblock { device: disk.describe(), reason }),
    };
    let is_of_us = |spare: &Spare| older.as_ref().is_none_or(|(_, sb)| sb.uuid == spare.superblock().uuid);
    let spare = spare.filter(is_of_us);
    let (mut superblock, slot) = match (&older, &spare) {
        (Some((slot, older)), spare) => {
            let is_newer = |spare: &&Spare| spare.superblock().generation > older.generation;
            let said = spare.as_ref().filter(is_newer).cloned().unwrap_or_else(|| Spare::of(older));
            let superblock = Superblock {
                mount_id: older.mount_id,
                scrub: older.scrub,
                next_number: older.next_number.max(said.superblock().next_number),
                ..said.superblock().clone()
            };
            (superblock, 1 - *slot)
        }
        (None, Some(spare)) => (spare.superblock().clone(), 0),
        (None, None) if is_ours => {
            let missing =
                "there is no spare superblock, as programs before format 2.3 wrote none, and without it the \
                           key of the hash of names cannot be known"
                    .to_string();
            return Err(CheckError::SuperblockMissing { device: disk.describe(), reason, missing });
        }
        (None, None) => return Err(error),
    };
    newest = newest.max(superblock.generation);
    superblock.state = VolumeState::InUse;
    let has_log_elsewhere = superblock.external_log.is_some();
    if has_log_elsewhere {
        yore_meta::forget_log(&mut superblock);
    }
    let is_other_kept = older.is_some();
    Ok(Constants { superblock, slot, is_other_kept, has_log_elsewhere, newest, reason })
}

/// The whole headers of a root zone, as a superblock names them; the newest first.
fn root_headers(
    disk: &Overlay<'_>,
    number: ZoneNo,
    start: BlockNo,
    sb: &Superblock,
) -> Result<Vec<RootZone>, CheckError> {
    let mut found = Vec::new();
    if start.0 + ZONE_BLOCKS > disk.size() / BLOCK_SIZE as u64 {
        return Ok(found);
    }
    for (header_slot, at) in (0u8..).zip(HEADER_SLOTS) {
        let at = BlockNo(start.0 + at);
        let block = disk.read(at)?;
        if verify_header(&block, ZoneHeader::addr(number), sb.volume_tag(), at).is_err() {
            continue;
        }
        let Ok(header) = ZoneHeader::decode(&block) else { continue };
        if header.uuid == sb.uuid && header.zone == number && header.start == start {
            let crc = BlockHeader::of(&block).crc.get();
            found.push(RootZone { start, generation: header.generation, crc, header_slot });
        }
    }
    found.sort_by_key(|root| std::cmp::Reverse(root.generation));
    Ok(found)
}

/// The greatest generation of a sound block in root zone 0.
fn newest_of_root(disk: &Overlay<'_>, sb: &Superblock) -> Result<Generation, CheckError> {
    let mut newest = Generation(0);
    for slot in HEADER_SLOTS.into_iter().chain(FIRST_SLOT..ZONE_BLOCKS) {
        let block = disk.read(BlockNo(slot))?;
        let header = BlockHeader::of(&block);
        let addr = MetaAddr(header.addr.get());
        let is_sound = addr.zone() == ZoneNo::root(0)
            && verify_header(&block, addr, sb.volume_tag(), BlockNo(slot)).is_ok();
        if is_sound {
            newest = newest.max(Generation(header.generation.get()));
        }
    }
    Ok(newest)
}

/// Puts a superblock with this header of root zone 0 in front of the volume; within, what is missing for it.
fn with_root(
    disk: &Overlay<'_>,
    constants: &Constants,
    root: Option<RootZone>,
) -> Result<Result<(), String>, CheckError> {
    let mut sb = constants.superblock.clone();
    let newest = newest_of_root(disk, &sb)?.max(constants.newest);
    if newest.0 > u64::MAX / 2 {
        return Err(CheckError::GenerationsUsedUp { device: disk.describe(), generation: newest.0 });
    }
    sb.generation = Generation(newest.0 + 1);
    let lost = |start| RootZone { start, generation: Generation(0), crc: 0, header_slot: 0 };
    let closed = root.map_or(Generation(0), |root| root.generation);
    if sb.root_zones.is_empty() {
        sb.root_zones.push(None);
    }
    sb.root_zones[0] = Some(root.unwrap_or(lost(BlockNo(0))));
    for n in 1..sb.root_zones.len() {
        let Some(RootZone { start, .. }) = sb.root_zones[n] else { continue };
        let headers = root_headers(disk, ZoneNo::root(n as u32), start, &sb)?;
        let of_then = headers.iter().find(|header| root.is_none() || header.generation <= closed);
        sb.root_zones[n] = Some(of_then.copied().unwrap_or(lost(start)));
    }
    if matches!(sb.engine, Engine::Sync | Engine::SoftUpdates) {
        sb.set_in_place_since(closed);
    }
    yore_meta::find_log(disk, &mut sb, closed).map_err(|e| match e {
        MetaError::Device(e) => e.into(),
        other => CheckError::Log(other.to_string()),
    })?;
    let (slot, other) = (constants.slot as usize, 1 - constants.slot as usize);
    if !constants.is_other_kept && disk.read(SUPERBLOCKS[other])?.iter().any(|byte| *byte != 0) {
        disk.write(SUPERBLOCKS[other], &ZERO_BLOCK);
    }
    disk.write(SUPERBLOCKS[slot], &sb.encode(constants.slot));
    if let Err(missing) = find_roots(disk, &mut sb)? {
        return Ok(Err(missing));
    }
    disk.write(SUPERBLOCKS[slot], &sb.encode(constants.slot));
    Ok(Ok(()))
}

/// How many findings there are with the superblock that was made.
fn findings(disk: &Overlay<'_>, options: &CheckOptions) -> Result<u64, CheckError> {
    let settled = Overlay::new(disk);
    settle(&settled, &read_superblock(disk)?)?;
    Ok(whole::run(&settled, options, None, Way::Walk)?.0.findings_count)
}

/// What is learned from all blocks that exist.
#[derive(Default)]
struct Learned {
    roots_of_past: Vec<MetaAddr>,
    has_past: bool,
    /// Nodes of the tree of orphans, with their levels.
    orphans: Vec<(u8, MetaAddr)>,
    unreadable: Vec<MetaAddr>,
    incarnation: u32,
    birth: u64,
    event: u64,
}

impl Learned {
    fn learn(&mut self, addr: MetaAddr, block: &Block) {
        let header = BlockHeader::of(block);
        let Some(kind) = BlockKind::from_repr(header.kind) else { return };
        match kind {
            BlockKind::HistoryRoots => self.roots_of_past.push(addr),
            BlockKind::Orphans => self.orphans.push((header.level, addr)),
            BlockKind::Inodes => {
                for slot in 0..INODES_PER_BLOCK {
                    self.incarnation = self.incarnation.max(Inode::slot_incarnation(block, slot).0);
                    let inode = Inode::decode(Inode::slot(block, slot)).ok().filter(|inode| inode.mode != 0);
                    self.birth = self.birth.max(inode.map_or(0, |inode| inode.born.0));
                }
            }
            _ if kind.is_tree() => {
                self.birth = self.birth.max(header.birth.get());
                self.has_past |=
                    kind as u8 >= BlockKind::Events as u8 && kind as u8 != BlockKind::Findings as u8;
                if kind == BlockKind::Events {
                    let node = NodeRef::new(block);
                    let last = node.count().checked_sub(1).map(|last| node.key(last));
                    let number = last.and_then(|key| key.try_into().ok()).map_or(0, u64::from_be_bytes);
                    self.event = self.event.max(number);
                }
            }
            _ => {}
        }
    }
}

/// Enters roots, totals and the numbers to give next; within, what is missing.
fn find_roots(disk: &Overlay<'_>, sb: &mut Superblock) -> Result<Result<(), String>, CheckError> {
    // What finding zones or settling would write is not kept: the rounds of a repair do that, and say so.
    let scratch = Overlay::new(disk);
    settle(&scratch, &read_superblock(disk)?)?;
    let mut volume = Volume::open(&scratch)?;
    if !volume.is_whole() {
        volume.find_zones()?;
    }
    if !volume.is_whole() {
        return Ok(Err("zones of it cannot be found, and what leads to the past may be in them".into()));
    }
    let mut learned = Learned::default();
    let zones: Vec<ZoneNo> = volume.zones.keys().copied().filter(|number| !number.is_root()).collect();
    for number in &zones {
        for index in 0..ZONE_INDEXES as u16 {
            let addr = MetaAddr::new(*number, index);
            if volume.place(addr).is_none() {
                continue;
            }
            match volume.read(addr)? {
                Some(block) => learned.learn(addr, &block),
                None if index == 0 && number.is_primary() => {}
                None => learned.unreadable.push(addr),
            }
        }
    }
    match (&learned.roots_of_past[..], learned.has_past, learned.unreadable.first()) {
        ([root], ..) => sb.history_root = *root,
        ([], false, _) => {}
        // It must be one of these; the check says that it cannot be read.
        ([], true, Some(unreadable)) => sb.history_root = *unreadable,
        ([], true, None) => return Ok(Err("the roots of the past cannot be found".into())),
        ([first, second, ..], ..) => {
            return Ok(Err(format!("there are roots of the past at {first} and at {second}")));
        }
    }
    let top = learned.orphans.iter().map(|(level, _)| *level).max();
    let mut roots = learned.orphans.iter().filter(|(level, _)| Some(*level) == top);
    if let (Some((level, root)), None) = (roots.next(), roots.next()) {
        (sb.orphan_root, sb.orphan_level) = (*root, *level);
    }
    if sb.incarnation_rounds() == 0 {
        sb.next_incarnation = sb.next_incarnation.max(u64::from(learned.incarnation) + 1);
    }
    sb.next_number = sb.next_number.max(EventNo(learned.birth)).max(EventNo(learned.event + 1));
    count(&volume, &zones, sb);
    Ok(Ok(()))
}

/// Enters the totals, as headers and bitmaps say them.
fn count(volume: &Volume<'_>, zones: &[ZoneNo], sb: &mut Superblock) {
    sb.zones = volume.zones.len() as u32;
    sb.zone_number_limit = zones.last().map_or(0, |last| last.0 + 1);
    (sb.metadata_blocks, sb.inodes, sb.free_blocks) = (0, 0, 0);
    for number in zones {
        let Some(zone) = volume.zones.get(number) else { continue };
        let exists: u32 = zone.header.exists.iter().map(|word| word.count_ones()).sum();
        sb.metadata_blocks += u64::from(exists);
        let free = zone.header.inode_free.iter().filter(|free| **free != NOT_INODES);
        let used = |free: &u8| (INODES_PER_BLOCK as u64).saturating_sub(u64::from(*free));
        sb.inodes += free.map(used).sum::<u64>();
    }
    for group in 0..volume.geometry.groups() {
        let zone = volume.zones.get(&ZoneNo::primary(GroupNo(group)));
        sb.free_blocks += match zone {
            Some(zone) => u64::from(zone.entry.free_blocks.get()).min(u64::from(BITS_PER_GROUP)),
            None => volume.geometry.data_blocks(GroupNo(group)),
        };
    }
}
