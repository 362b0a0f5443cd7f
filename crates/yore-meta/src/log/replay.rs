//! Replaying the intent log: from the last generation to the instant of the last record.
//!
//! Replay applies records in memory and writes nothing: blocks that they change become dirty blocks of the
//! running generation, as if their Ops had just been carried out, and the medium moves forward with the next
//! generation. So a read-only mount can replay, too, and a mount after another crash repeats the replay and
//! finds the same.
//!
//! Replay keeps all records in memory (the log's length bounds them), so that it can read the blocks that
//! they start from in large batches. It verifies the results as if they came from the medium: the last record
//! of a block says what its body is then, and in the end every block must be what its kind demands, exist in
//! its zone, and belong there.
//!
//! **What a block starts from** is the copy that the superblock's generation has of it. An engine that writes
//! in place once the log has a change (`engine/journal.rs`) may have overwritten that copy, or torn it; the
//! chunks that the records have cover every difference, so such a block starts from whatever is there.
//!
//! **Data blocks that the records free** may be used at once (R3), though the superblock's generation still
//! names them. The state of the volume is that generation *and* the records: they are durable, for the
//! mount's own superblock is flushed after they were read and before anything else is written; that
//! superblock keeps the position, and so does the other slot. So until the next generation is complete every
//! mount, also after another crash, goes through the same records before it looks at any file. And it must be
//! so: on a full volume just these blocks may be promised to the data noted in the log, and no generation is
//! written before that data is home.
//!
//! File data noted in records ([`NotedFile`]) is for the store.

use super::notes::{NotedFile, NotedFiles};
use super::place::{self, FoundLog, LogPlace};
use super::region::{forget_log, position_of, region_of, set_position};
use crate::base::limits::check_counts;
use crate::blocks::Blocks;
use crate::cache::new_frame;
use crate::engine::strategy;
use crate::error::{MetaError, Result};
use crate::zones::zone::{Counted, Zone};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_device::{AlignedBuf, Device, ReadRequest};
use yore_format::{
    seal, verify_header, Block, BlockNo, Corruption, Generation, Incarnation, InodeNo, Intent, IntentHead,
    IntentNote, MetaAddr, Superblock, VolumeState, ZoneNo, BLOCK_SIZE, ZERO_BLOCK,
};
use yore_log::{End, LogId, Position, REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};

/// Blocks read together.
const BATCH: usize = 256;

/// What replay found for the store to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// By inode and incarnation. If the inode has another incarnation now, or is free, the file is gone.
    pub files: BTreeMap<(InodeNo, Incarnation), NotedFile<Vec<u8>>>,
    /// Records replayed.
    pub records: u64,
}

/// The state that records lead to, before replay installs it.
#[derive(Default)]
struct Staged {
    head: Option<IntentHead>,
    zones: BTreeMap<ZoneNo, [u64; 8]>,
    blocks: BTreeMap<MetaAddr, Box<Block>>,
    files: NotedFiles<Vec<u8>>,
    recovered: Recovered,
}

/// Reads the records after the superblock's generation from the log, which is on `device`; calls `each` with
/// every one. Returns where the log ends.
fn read_records(
    device: &dyn Device,
    found: &FoundLog,
    superblock: &Superblock,
    each: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<End> {
    let (region, id, position) = (found.region, found.id, position_of(superblock));
    let mut log = match superblock.state {
        // Nothing was logged since, but for what may have been carried over.
        VolumeState::Clean => yore_log::recover_closed(device, region, id, position)?,
        _ => yore_log::recover(device, region, id, position)?,
    };
    while let Some(record) = log.next_record()? {
        each(record.contents.to_vec())?;
    }
    Ok(log.end()?)
}

/// Decodes a record. `None` if it belongs to the generation after the one that was running behind this
/// superblock, and does not continue it: then the superblock that it was appended for never arrived, and
/// neither it nor what follows counts.
fn decode<'r>(superblock: &Superblock, record: &'r [u8]) -> Result<Option<Intent<'r>>> {
    let intent = Intent::decode(record).map_err(|c| c.on(superblock.log_start))?;
    let running = superblock.log_generation;
    if intent.head.generation == running {
        return Ok(Some(intent));
    }
    if Some(intent.head.generation.0) == running.0.checked_add(1) {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::ContinuedIgnored) {
            return Ok(None);
        }
        return Ok(Some(intent).filter(|intent| intent.head.continues));
    }
    let c = Corruption::new("intent record", "generation", running, intent.head.generation);
    Err(c.on(superblock.log_start).into())
}

/// The records of the log of a volume that is not open for writing, as far as the next mount replays them.
/// All decode, and follow the superblock's generation. `place` says where a log is that is not inside.
///
/// # Errors
/// [`crate::MetaError::Refused`] for a log that is not where it should be, or another one; damage of the log
/// or a record; errors of the device.
pub fn log_records(device: &dyn Device, superblock: &Superblock, place: &LogPlace) -> Result<Vec<Vec<u8>>> {
    let found = log_contents(device, superblock, place)?;
    found.damage.map_or(Ok(found.records), Err)
}

/// What a log has for the next mount, as far as it can be read.
#[derive(Debug, Default)]
pub struct LogContents {
    /// The records up to the damage. All decode, and follow the superblock's generation.
    pub records: Vec<Vec<u8>>,
    /// Why what follows cannot be read, if it cannot.
    pub damage: Option<MetaError>,
    /// Where the log ends, unless it is damaged.
    end: Option<Position>,
}

impl LogContents {
    /// Makes a superblock of `generation` say that the log is empty: replay begins behind all that is there.
    /// A damaged log becomes another one in the same place, whose identity nothing there has. Only if that
    /// cannot be done the volume has no log any more: one on a device of its own, whose anchor says what it
    /// is, and one of a length that no log has. Returns whether there is a log.
    pub fn leave_empty(&self, superblock: &mut Superblock, generation: Generation) -> bool {
        let running = Generation(generation.0.saturating_add(1));
        if let (Some(end), None) = (self.end, &self.damage) {
            set_position(superblock, end, running);
            return true;
        }
        let is_possible = (REGION_BLOCKS_MIN..=REGION_BLOCKS_MAX).contains(&superblock.log_blocks);
        if superblock.external_log.is_some() || !is_possible {
            forget_log(superblock);
            return false;
        }
        let id = LogId::random();
        superblock.log_id = id.0;
        set_position(superblock, Position::start(id), running);
        true
    }
}

/// Makes a superblock that has lost the position of the log within the volume say where replay starts:
/// `after` is the last complete generation, and records of later ones count. Its `mount_id` becomes no less
/// than the last session. Whatever is wrong with the log then shows when it is read.
///
/// # Errors
/// Those of the device.
pub fn find_log(device: &dyn Device, superblock: &mut Superblock, after: Generation) -> Result<()> {
    let Some((region, id)) = region_of(superblock) else { return Ok(()) };
    let mut later = BTreeMap::new();
    let found = yore_log::find_position(device, region, id, |record| {
        let generation = Intent::decode(record.contents).map(|intent| intent.head.generation);
        let generation = generation.ok().filter(|generation| *generation > after);
        later.extend(generation.map(|generation| (record.number, generation)));
        generation.is_some()
    });
    let position = match found {
        Ok(found) => {
            // A mount gives its own number to its session.
            superblock.mount_id = superblock.mount_id.max(found.session.unwrap_or(0));
            found.position
        }
        Err(yore_log::LogError::Device(e)) => return Err(e.into()),
        Err(_) => Position::start(id),
    };
    let empty = Generation(superblock.generation.0.saturating_add(1));
    let running = later.get(&position.number).copied().unwrap_or(empty);
    set_position(superblock, position, running);
    Ok(())
}

/// As [`log_records`], of a log that may be damaged: gives what is before the damage.
///
/// # Errors
/// [`crate::MetaError::Refused`] for a log that is not where it should be, or another one; errors of the
/// device.
pub fn log_contents(device: &dyn Device, superblock: &Superblock, place: &LogPlace) -> Result<LogContents> {
    let (mut contents, mut is_over) = (LogContents::default(), false);
    let Some(found) = place::find(device, superblock, place, true)? else { return Ok(contents) };
    let own = found.kept.as_ref().map(|kept| kept.device().clone());
    let read = read_records(own.as_deref().unwrap_or(device), &found, superblock, &mut |record| {
        is_over = is_over || decode(superblock, &record)?.is_none();
        if !is_over {
            contents.records.push(record);
        }
        Ok(())
    });
    match read {
        Ok(end) => contents.end = Some(end.position),
        Err(e @ MetaError::Device(_)) => return Err(e),
        Err(e) => contents.damage = Some(e),
    }
    Ok(contents)
}

/// Replays records into the blocks of a volume.
pub(crate) struct Replay<'m> {
    pub(crate) blocks: &'m Blocks,
    pub(crate) log: &'m FoundLog,
}

impl Replay<'_> {
    /// Replays the log in memory. Returns what is left for the store, and where the log ends.
    pub(crate) fn run(&self) -> Result<(Option<Recovered>, End)> {
        let medium = &self.blocks.base.medium;
        let superblock = medium.found();
        let mut records = Vec::new();
        let device = self.log.device(medium.device());
        let end = read_records(&**device, self.log, superblock, &mut |record| {
            records.push(record);
            Ok(())
        })?;
        if records.is_empty() {
            return Ok((None, end));
        }
        let mut staged = Staged::default();
        let mut intents = Vec::with_capacity(records.len());
        for record in &records {
            match decode(superblock, record)? {
                Some(intent) => intents.push(intent),
                None => break,
            }
        }
        if intents.is_empty() {
            return Ok((None, end));
        }
        self.read_bases(&intents, &mut staged)?;
        let mut last: BTreeMap<MetaAddr, usize> = BTreeMap::new();
        for (n, intent) in intents.iter().enumerate() {
            last.extend(intent.blocks.iter().map(|block| (block.addr, n)));
        }
        #[cfg(feature = "mutations")]
        swap_if_wrong(&mut intents);
        for (n, intent) in intents.iter().enumerate() {
            staged.apply(intent, |addr| last.get(&addr) == Some(&n))?;
        }
        staged.recovered.records = intents.len() as u64;
        self.install(staged).map(|recovered| (Some(recovered), end))
    }

    /// Reads the blocks that the records start from.
    fn read_bases(&self, intents: &[Intent<'_>], staged: &mut Staged) -> Result<()> {
        let medium = &self.blocks.base.medium;
        let overwrites = strategy(medium.found().engine).logs_first();
        let mut first: BTreeMap<MetaAddr, u64> = BTreeMap::new();
        for block in intents.iter().flat_map(|i| &i.blocks) {
            first.entry(block.addr).or_insert(block.chunks);
        }
        let mut targets: Vec<(BlockNo, MetaAddr, u32)> = Vec::new();
        for addr in first.iter().filter(|(_, chunks)| **chunks != u64::MAX).map(|(addr, _)| *addr) {
            let missing = || Corruption::new("intent record", "block", "one that exists", "none").at(addr);
            let zone = self.blocks.zones.get(&self.blocks.base, addr.zone())?.ok_or_else(missing)?;
            let (slot, check) =
                zone.copy_of(addr.index()).filter(|(slot, _)| *slot != 0).ok_or_else(missing)?;
            targets.push((BlockNo(zone.start.0 + u64::from(slot)), addr, check));
        }
        targets.sort_unstable();
        for targets in targets.chunks(BATCH) {
            let mut buffers: Vec<AlignedBuf> = targets.iter().map(|_| AlignedBuf::zeroed(1)).collect();
            let mut reads: Vec<ReadRequest<'_>> = targets
                .iter()
                .zip(&mut buffers)
                .map(|((at, ..), buf)| ReadRequest { offset: at.0 * BLOCK_SIZE as u64, buf })
                .collect();
            medium.device().read_batch(&mut reads)?;
            for ((at, addr, check), buffer) in targets.iter().zip(&buffers) {
                let mut block = Box::new(ZERO_BLOCK);
                block.copy_from_slice(buffer);
                if !overwrites {
                    medium.verify_copy(&block, *check, *addr, *at)?;
                }
                staged.blocks.insert(*addr, block);
            }
        }
        Ok(())
    }

    /// Makes the state that the records lead to that of the running generation.
    fn install(&self, mut staged: Staged) -> Result<Recovered> {
        let base = &self.blocks.base;
        let generation = base.gate.running();
        let head = staged.head.expect("at least one record");
        if !base.progress.read_only() {
            check_counts(&Superblock {
                next_number: head.next_number,
                zone_number_limit: head.zone_number_limit,
                free_blocks: head.free_blocks,
                metadata_blocks: head.metadata_blocks,
                ..base.medium.found().clone()
            })?;
        }
        for (no, exists) in &staged.zones {
            let missing = || Corruption::new("intent record", "zone", "one that exists", no);
            let zone = self.blocks.zones.get(&self.blocks.base, *no)?.ok_or_else(missing)?;
            let mut blocks = staged.blocks.split_off(&MetaAddr::new(*no, 0));
            let mut rest = blocks.split_off(&MetaAddr::new(ZoneNo(no.0 + 1), 0));
            staged.blocks.append(&mut rest);
            self.install_zone(&zone, exists, blocks, generation)?;
        }
        if let Some(addr) = staged.blocks.keys().next() {
            let c =
                Corruption::new("intent record", "block", "of a zone that the record names", addr).at(*addr);
            return Err(c.into());
        }
        base.ledger.install(&head);
        self.blocks.zones.raise_limit(head.zone_number_limit);
        staged.recovered.files = staged.files.into_map();
        Ok(staged.recovered)
    }

    fn install_zone(
        &self,
        zone: &Arc<Zone>,
        exists: &[u64; 8],
        blocks: BTreeMap<MetaAddr, Box<Block>>,
        generation: Generation,
    ) -> Result<()> {
        let is_in = |index: u16| exists[usize::from(index) / 64] & (1 << (index % 64)) != 0;
        let medium = &self.blocks.base.medium;
        let (mut frames, mut kinds) = (Vec::new(), BTreeMap::new());
        for (addr, mut block) in blocks.into_iter().filter(|(addr, _)| is_in(addr.index())) {
            seal(&mut block, generation);
            verify_header(&block, addr, medium.volume_tag(), zone.start)?;
            kinds.insert(addr.index(), self.count(zone, &block));
            frames.push(new_frame(addr, zone.clone(), *block, generation));
        }
        if let Err(index) = zone.install(&self.blocks.zones.changes, generation, exists, &kinds) {
            let addr = MetaAddr::new(zone.no, index);
            let c = Corruption::new("intent record", "block", "its content", "a block without any");
            return Err(c.at(addr).into());
        }
        for frame in frames {
            self.blocks.insert_new(zone, generation, &frame);
        }
        Ok(())
    }

    /// What a zone counts of one of its blocks.
    fn count(&self, zone: &Zone, block: &Block) -> Counted {
        Counted::of(block, self.blocks.base.medium.geometry().data_blocks(zone.group) as u32)
    }
}

/// Puts the last record but one behind the last, but for what each says the body of a block is then.
#[cfg(feature = "mutations")]
fn swap_if_wrong(intents: &mut [Intent<'_>]) {
    let [.., older, newest] = intents else { return };
    if crate::mutation::is(crate::mutation::Mutation::RecordsSwapped) {
        std::mem::swap(older, newest);
        for block in older.blocks.iter_mut().chain(&mut newest.blocks) {
            block.body_crc = 0;
        }
    }
}

impl Staged {
    /// `is_last` says whether no later record changes a block: only then is what the record says of it
    /// compared, since what it started from may have had later changes already.
    fn apply(&mut self, intent: &Intent<'_>, is_last: impl Fn(MetaAddr) -> bool) -> Result<()> {
        self.head = Some(intent.head);
        for zone in &intent.zones {
            self.zones.insert(zone.zone, zone.exists);
        }
        for change in &intent.blocks {
            let block = match self.blocks.get_mut(&change.addr) {
                Some(block) => block,
                None if change.chunks == u64::MAX => {
                    self.blocks.entry(change.addr).or_insert_with(|| Box::new(ZERO_BLOCK))
                }
                None => {
                    let c = Corruption::new("intent record", "block", "all of a new block", "a part of it");
                    return Err(c.at(change.addr).into());
                }
            };
            change.put(block);
            #[cfg(feature = "mutations")]
            let is_last = |addr| is_last(addr) && change.body_crc != 0;
            if is_last(change.addr) {
                change.verify(block)?;
            }
        }
        for note in &intent.notes {
            self.note(note);
        }
        Ok(())
    }

    fn note(&mut self, note: &IntentNote<'_>) {
        match *note {
            IntentNote::Data { inode, incarnation, size, bytes: [], .. } => {
                self.files.size((inode, incarnation), size);
            }
            IntentNote::Data { inode, incarnation, size, page, bytes } => {
                self.files.data((inode, incarnation), size, page, bytes.to_vec());
            }
            IntentNote::Truncated { inode, incarnation, size } => {
                self.files.truncate((inode, incarnation), size);
            }
        }
    }
}
