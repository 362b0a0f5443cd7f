//! Scrubbing: everything is read from the device, and compared with its checksums.
//!
//! First all metadata, whatever memory has of it; then all data that has checksums, in the order of the
//! medium ([`yore_core::alloc::Alloc::scrub`]). A block that the device cannot read is damaged, like one that
//! is not what was written; only if the device seems to be gone the scrub ends with its error.
//!
//! Others use the volume meanwhile, so what seems wrong is only a candidate. If there are any, a walk over
//! all files, as they are and as they were, finds who has these blocks, and each is read again under the lock
//! that keeps it the file's. At the end another walk counts the data that has no checksum.
//!
//! How far a scrub is stands on the volume ([`yore_format::ScrubRecord`]), so one that was broken off, or
//! whose process was killed, goes on by itself. Candidates stand there, too, as many as there is room for,
//! and the position is not beyond them; so what was found before is told at the end. Of metadata it only
//! stands there whether any is damaged; then it is read again. Blocks that are known to be damaged when a
//! scrub begins, by the last one or by reading, are candidates from its beginning.

use crate::api::inodes::{each_state, State};
use crate::store::Store;
use crate::{Error, EventNo, InodeNo, Progress, Result, View};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use yore_core::extent;
use yore_core::inode::InodeCell;
use yore_device::Device;
use yore_format::{
    BlockNo, ContentKind, ExtentValue, Incarnation, Inode, ScrubEnded, ScrubPosition, ScrubRecord,
    ScrubUnderWay, WithoutChecksums, ZoneNo, BLOCK_SIZE, SCRUB_CANDIDATES,
};

/// So many findings are told one by one.
const FINDINGS_MOST: usize = 200;
/// Behind so many states of inodes is asked whether a walk over all of them goes on.
const STATES: u32 = 64;
/// The longest pause between two looks at whether to go on.
const PAUSE: Duration = Duration::from_millis(200);

/// Where a scrub begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ScrubFrom {
    /// Where the last one was broken off; if it came to its end, at the beginning.
    #[default]
    GoOn,
    /// At the beginning, whatever is recorded.
    Anew,
    /// With the data at this block, as a scrub that was broken off has told. Nothing is recorded.
    Block(u64),
}

impl ScrubFrom {
    fn is_behind_metadata(self) -> bool {
        matches!(self, ScrubFrom::Block(1..))
    }
}

/// How to scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scrub {
    /// Read no more than so many bytes in a second; 0 for as many as there are.
    pub rate: u64,
    /// Where to begin.
    pub begin: ScrubFrom,
    /// How often it is recorded how far the scrub is.
    pub every: Duration,
}

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub { rate: 0, begin: ScrubFrom::GoOn, every: Duration::from_secs(10) }
    }
}

/// A block of a file that does not hold what was written to it, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DamagedBlock {
    /// The file.
    pub inode: InodeNo,
    /// A path of it, if it has one now; bytes.
    pub path: Option<Vec<u8>>,
    /// Where in the file the block begins.
    pub offset: u64,
    /// The block on the device.
    pub block: u64,
    /// The file has it no longer: it had it in the state that ended with this event.
    pub until: Option<EventNo>,
    /// The file as it was until this event has another block there, which is sound.
    pub sound_until: Option<EventNo>,
}

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scrubbed {
    /// Metadata blocks that were read.
    pub metadata_blocks: u64,
    /// Data blocks that were read.
    pub data_blocks: u64,
    /// Whether data of the volume has checksums; if not, only metadata was read.
    pub keeps_checksums: bool,
    /// Metadata that is damaged, in words.
    pub metadata: Vec<String>,
    /// Data that is damaged: as many as one answer has.
    pub data: Vec<DamagedBlock>,
    /// Data that has no checksum, and so was not verified. `None`: the scrub was broken off before it counted
    /// that, or damage of metadata kept it from counting.
    pub without: Option<WithoutChecksums>,
    /// How many findings there are beyond those that are told.
    pub further: u64,
    /// It was broken off: the block where the data goes on.
    pub goes_on: Option<u64>,
    /// It was broken off, and that is recorded: the next one goes on there. Data that seems damaged is only
    /// counted, in `further`.
    pub is_noted: bool,
    /// It went on: when it began at first, in seconds since 1970. What was read then is counted, and what
    /// was found then is told.
    pub since: Option<u64>,
}

impl Scrubbed {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.metadata.is_empty() && self.data.is_empty() && self.further == 0
    }
}

/// There is one scrub of an open volume at a time.
struct Scrubbing<'a>(&'a Store);

impl Scrubbing<'_> {
    fn begin(store: &Store) -> Result<Scrubbing<'_>> {
        match store.scrubbing.swap(true, Ordering::AcqRel) {
            false => Ok(Scrubbing(store)),
            true => Err(Error::Refused(
                "the volume is being scrubbed already; `yore info` says how far that is".into(),
            )),
        }
    }
}

impl Drop for Scrubbing<'_> {
    fn drop(&mut self) {
        self.0.scrubbing.store(false, Ordering::Release);
    }
}

/// What the volume is told of a scrub.
struct Notes<'a> {
    store: &'a Store,
    through: Option<&'a dyn Device>,
    /// Whether anything can be recorded, and shall be.
    keeps: bool,
    /// How the last one ended.
    last: Option<ScrubEnded>,
    /// Blocks that are known to be damaged since before it began.
    known: BTreeSet<u64>,
    /// Those of them that were recorded.
    recorded: BTreeSet<u64>,
    /// This scrub.
    at: ScrubUnderWay,
    /// It is one that was broken off.
    goes_on: bool,
    every: Duration,
    noted: Instant,
}

impl<'a> Notes<'a> {
    fn begin(store: &'a Store, how: Scrub) -> Result<Notes<'a>> {
        let through = store.writes_scrubs.get().map(|device| &**device);
        let record = store.meta.scrubs()?;
        // Whoever says where to begin is told only what is found from there on.
        let (recorded, met) = match how.begin {
            ScrubFrom::Block(_) => (BTreeSet::new(), BTreeSet::new()),
            ScrubFrom::GoOn | ScrubFrom::Anew => {
                (record.known_damaged().iter().copied().collect(), store.met.all())
            }
        };
        let anew = ScrubUnderWay {
            began: now(),
            position: ScrubPosition::Metadata(0),
            metadata_blocks: 0,
            data_blocks: 0,
            damaged_metadata: 0,
            candidates: recorded.iter().copied().collect(),
        };
        let known = recorded.union(&met).copied().collect();
        let ScrubRecord { under_way, last, .. } = record;
        let (at, goes_on) = match (how.begin, under_way) {
            (ScrubFrom::GoOn, Some(at)) => (at, true),
            (ScrubFrom::Block(block @ 1..), _) => {
                (ScrubUnderWay { position: ScrubPosition::Data(block), ..anew }, false)
            }
            _ => (anew, false),
        };
        let keeps = !matches!(how.begin, ScrubFrom::Block(_))
            && (store.check_writable().is_ok() || (store.read_only && through.is_some()));
        let (every, noted) = (how.every, Instant::now());
        Ok(Notes { store, through, keeps, last, known, recorded, at, goes_on, every, noted })
    }

    fn note_sometimes(&mut self) {
        if self.noted.elapsed() >= self.every {
            self.note(false);
            self.noted = Instant::now();
        }
    }

    /// Records where the scrub is. Returns whether it is recorded.
    fn note(&mut self, flush: bool) -> bool {
        let (under_way, last) = (Some(self.at.clone()), self.last);
        self.write(ScrubRecord { under_way, last, ..ScrubRecord::default() }, flush)
    }

    /// Records that the scrub has come to its end, and which blocks of data are damaged. What was known
    /// before is known better now.
    fn end(&mut self, found: &Scrubbed, damaged: &BTreeSet<u64>) {
        self.store.met.forget(&self.known);
        damaged.iter().for_each(|block| self.store.met.note(*block));
        let further = found.further;
        let last = ScrubEnded {
            began: self.at.began,
            ended: now(),
            metadata_blocks: found.metadata_blocks,
            data_blocks: found.data_blocks,
            damaged_metadata: self.at.damaged_metadata,
            damaged_data: (found.metadata.len() as u64 + found.data.len() as u64 + further)
                .saturating_sub(self.at.damaged_metadata),
            without: found.without,
        };
        let damaged = damaged.intersection(&self.recorded).copied().collect();
        self.write(ScrubRecord { last: Some(last), damaged, ..ScrubRecord::default() }, true);
    }

    /// Writes a record, with what was met damaged, as far as it has room. The scrub has its use without a
    /// record, so it goes on if that cannot be written.
    fn write(&mut self, mut record: ScrubRecord, flush: bool) -> bool {
        if self.keeps {
            record.add_damaged(self.store.met.all());
            let written = self.store.meta.record_scrubs(&record, self.through, flush);
            if let Err(error) = written {
                tracing::warn!(%error, "how far the scrub is cannot be recorded");
                self.keeps = false;
            }
        }
        self.keeps
    }
}

/// Whether an error is damage of a place, of which reading the metadata has told: the rest can be done.
fn is_of_place(error: &Error) -> bool {
    match error {
        Error::Corruption(_) => true,
        Error::Device(error) => yore_meta::is_of_place(error),
        _ => false,
    }
}

/// In seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Waits so long that no more than `rate` bytes are read in a second.
struct Pace<'a> {
    rate: u64,
    begun: Instant,
    read: u64,
    ask: &'a mut dyn FnMut() -> ControlFlow<()>,
    progress: &'a Progress,
}

impl Pace<'_> {
    fn read(&mut self, blocks: u64) -> ControlFlow<()> {
        self.progress.add(blocks);
        self.read += blocks * BLOCK_SIZE as u64;
        loop {
            (self.ask)()?;
            let due = match self.rate {
                0 => Duration::ZERO,
                rate => Duration::from_secs_f64(self.read as f64 / rate as f64),
            };
            let early = due.saturating_sub(self.begun.elapsed());
            if early.is_zero() {
                return ControlFlow::Continue(());
            }
            std::thread::sleep(early.min(PAUSE));
        }
    }
}

/// Reads the data from where the notes say on. Returns which blocks seem damaged, those that are noted
/// included.
fn scrub_data(
    store: &Arc<Store>,
    found: &mut Scrubbed,
    notes: &mut Notes<'_>,
    pace: &mut Pace<'_>,
) -> Result<BTreeSet<u64>> {
    let from = match notes.at.position {
        ScrubPosition::Data(block) => block,
        ScrubPosition::Metadata(_) => 0,
    };
    let candidates = RefCell::new(notes.at.candidates.iter().copied().collect::<BTreeSet<u64>>());
    let (mut at, mut read) = (from, notes.at.data_blocks);
    let mut wrong = |block: BlockNo| {
        candidates.borrow_mut().insert(block.0);
    };
    let ended = store.alloc.scrub(&store.meta, BlockNo(from), &mut wrong, &mut |block, blocks| {
        read += blocks;
        at = block.0;
        let candidates = candidates.borrow();
        if candidates.len() <= SCRUB_CANDIDATES {
            (notes.at.position, notes.at.data_blocks) = (ScrubPosition::Data(at.max(1)), read);
            if candidates.len() > notes.at.candidates.len() {
                notes.at.candidates = candidates.iter().copied().collect();
            }
        }
        notes.note_sometimes();
        pace.read(blocks)
    })?;
    found.data_blocks = read;
    found.goes_on = ended.is_break().then_some(at);
    let mut candidates = candidates.into_inner();
    candidates.extend(&notes.known);
    Ok(candidates)
}

impl View {
    /// Whether a scrub is under way in this process.
    pub fn is_scrubbing(&self) -> bool {
        self.store().scrubbing.load(Ordering::Acquire)
    }

    /// How far a scrub is or was when it was broken off, and how the last one ended.
    ///
    /// # Errors
    /// Those of the device.
    pub fn scrubs(&self) -> Result<ScrubRecord> {
        Ok(self.store().meta.scrubs()?)
    }

    /// The volume is open for reading only, and the record of scrubs is written all the same, to this device:
    /// one of the same volume, which nobody has open for anything else but reading.
    pub fn write_scrubs_to(&self, device: Arc<dyn Device>) {
        self.store().writes_scrubs.get_or_init(|| device);
    }

    /// Reads all metadata of the volume, and all data that has checksums, from the device, and tells what is
    /// not what was written. Changes nothing but the record of scrubs, which says where a scrub that ends
    /// before its time goes on. `progress` counts blocks; `ask` is called now and then, and says whether to
    /// go on: if not, the result says where to.
    ///
    /// O(metadata + data), and O(extents of all files, and of their versions) for the data without checksums;
    /// if data is damaged, these once more. Memory as [`View::data_without_checksums`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past; [`Error::Refused`] if a scrub is under way; damage of what
    /// says which blocks are in use; device errors, but not those of single blocks, which are damage.
    pub fn scrub(
        &self,
        how: Scrub,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scrubbed> {
        let store = self.live()?;
        let _alone = Scrubbing::begin(store)?;
        let mut notes = Notes::begin(store, how)?;
        notes.note(false);
        let mut found = Scrubbed {
            keeps_checksums: store.alloc.keeps_checksums(&store.meta),
            since: notes.goes_on.then_some(notes.at.began),
            ..Scrubbed::default()
        };
        let totals = &store.meta.totals;
        let in_use = store.meta.geometry().blocks.saturating_sub(totals.free_blocks.get());
        progress.restart(if found.keeps_checksums { in_use } else { totals.metadata_blocks.get() });
        progress.add(notes.at.metadata_blocks + notes.at.data_blocks);
        let mut pace = Pace { rate: how.rate, begun: Instant::now(), read: 0, ask, progress };
        let is_read =
            how.begin.is_behind_metadata() || self.scrub_metadata(&mut found, &mut notes, &mut pace)?;
        let mut candidates = BTreeSet::new();
        if is_read && found.keeps_checksums {
            candidates = scrub_data(store, &mut found, &mut notes, &mut pace)?;
        }
        if found.goes_on.is_some() && notes.note(true) {
            found.is_noted = true;
            // Whoever goes on reads these again, and tells what they are of.
            found.further += candidates.len() as u64;
            return Ok(found);
        }
        let mut damaged = BTreeSet::new();
        if !candidates.is_empty() {
            match self.find_owners(&candidates, &mut found, pace.ask) {
                Ok(Some(of_files)) => damaged = of_files,
                Ok(None) => {
                    found.further += candidates.len() as u64;
                    found.is_noted = notes.note(true);
                    found.goes_on = match notes.at.position {
                        ScrubPosition::Data(at) if found.is_noted => Some(at),
                        // Whoever goes on must find them once more.
                        _ => candidates.first().copied(),
                    };
                    return Ok(found);
                }
                Err(error) if is_of_place(&error) => {
                    tracing::warn!(%error, "which files have the damaged blocks cannot be found out");
                    found.further += candidates.len() as u64;
                    damaged = candidates;
                }
                Err(error) => return Err(error),
            }
        }
        if found.goes_on.is_none() {
            found.without = match self.data_without_checksums(pace.ask) {
                Ok(without) => without,
                // That is told otherwise.
                Err(error) if is_of_place(&error) => {
                    tracing::warn!(%error, "the data that has no checksum cannot be counted");
                    None
                }
                Err(error) => return Err(error),
            };
            notes.end(&found, &damaged);
        }
        Ok(found)
    }

    /// Reads the metadata from where the notes say on. Returns whether it came to its end.
    fn scrub_metadata(
        &self,
        found: &mut Scrubbed,
        notes: &mut Notes<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<bool> {
        let store = self.live()?;
        let from = match notes.at.position {
            ScrubPosition::Metadata(zone) => ZoneNo(zone),
            ScrubPosition::Data(_) if notes.at.damaged_metadata == 0 => {
                found.metadata_blocks = notes.at.metadata_blocks;
                return Ok(true);
            }
            // Nobody has noted what is damaged.
            ScrubPosition::Data(_) => ZoneNo(0),
        };
        let is_again = matches!(notes.at.position, ScrubPosition::Data(_));
        let mut read = if from.0 == 0 { 0 } else { notes.at.metadata_blocks };
        let (damaged, mut zone) = (Cell::new(0), None);
        let Scrubbed { metadata, further, .. } = found;
        let mut wrong = |c: Box<yore_format::Corruption>| {
            tracing::error!("{c}");
            damaged.set(damaged.get() + 1);
            match metadata.len() < FINDINGS_MOST {
                true => metadata.push(c.to_string()),
                false => *further += 1,
            }
        };
        let ended = store.meta.scrub_metadata(from, &mut wrong, &mut |no, blocks| {
            if zone != Some(no) && !is_again && damaged.get() == 0 {
                (notes.at.position, notes.at.metadata_blocks) = (ScrubPosition::Metadata(no.0), read);
            }
            zone = Some(no);
            read += blocks;
            if damaged.get() > 0 && !is_again {
                (notes.at.position, notes.at.metadata_blocks) = (ScrubPosition::Metadata(0), 0);
            }
            notes.note_sometimes();
            pace.read(blocks)
        })?;
        found.metadata_blocks = read;
        if ended.is_break() {
            found.goes_on = Some(0);
            if !is_again {
                notes.at.damaged_metadata = damaged.get();
            }
            return Ok(false);
        }
        (notes.at.metadata_blocks, notes.at.damaged_metadata) = (read, damaged.get());
        if !is_again {
            notes.at.position = ScrubPosition::Data(1);
        }
        Ok(true)
    }

    /// Tells which files have damaged blocks, and returns these blocks; `None` if `ask` breaks it off.
    fn find_owners(
        &self,
        candidates: &BTreeSet<u64>,
        found: &mut Scrubbed,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<BTreeSet<u64>>> {
        let store = self.live()?;
        let mut owners = Owners { store, candidates, damaged: BTreeMap::new() };
        let mut states = 0;
        let walk = each_state(self, &mut |seen| {
            states += 1;
            if states == STATES {
                states = 0;
                if ask().is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match seen {
                State::Present(cell) => owners.present(cell)?,
                State::Version(no, version) => owners.version(no, &version.inode, version.end)?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if walk.is_break() {
            return Ok(None);
        }
        let blocks = owners.damaged.keys().map(|(.., block)| *block).collect();
        for ((inode, incarnation, block), mut damaged) in owners.damaged {
            if found.data.len() == FINDINGS_MOST {
                found.further += 1;
                continue;
            }
            let is_same = store.cell(inode).is_ok_and(|cell| cell.incarnation == incarnation);
            damaged.path = match is_same {
                true => match self.path_now(inode) {
                    Ok(path) => path.map(|path| path.into_os_string().into_vec()),
                    Err(error) if is_of_place(&error) => None,
                    Err(error) => return Err(error),
                },
                false => None,
            };
            tracing::error!(
                "file data at block {block} of inode {inode} is damaged: offset {} of the file",
                damaged.offset
            );
            found.data.push(damaged);
        }
        Ok(Some(blocks))
    }
}

/// A walk over all files that finds out which of them have the candidates.
struct Owners<'a> {
    store: &'a Arc<Store>,
    candidates: &'a BTreeSet<u64>,
    /// By inode, incarnation and block.
    damaged: BTreeMap<(InodeNo, Incarnation, u64), DamagedBlock>,
}

impl Owners<'_> {
    fn present(&mut self, cell: &Arc<InodeCell>) -> Result<()> {
        let state = cell.state.read();
        if state.gone || state.inode.content_kind == ContentKind::Inline || !state.inode.is_regular() {
            return Ok(());
        }
        self.inode(cell.no, &state.inode, None)
    }

    /// A state that ended then: perhaps it has damaged blocks, or sound ones where the file has damaged ones.
    fn version(&mut self, no: InodeNo, inode: &Inode, end: EventNo) -> Result<()> {
        if inode.content_kind == ContentKind::Inline || !inode.is_regular() {
            return Ok(());
        }
        self.inode(no, inode, Some(end))?;
        let all = (no, inode.incarnation, 0)..=(no, inode.incarnation, u64::MAX);
        let present = self.damaged.range(all).filter(|(_, damaged)| damaged.until.is_none());
        let keys: Vec<_> = present.map(|(key, damaged)| (*key, damaged.offset)).collect();
        for (key, offset) in keys {
            let at = offset / BLOCK_SIZE as u64;
            let mapping = extent::mapping(&self.store.meta, &self.store.alloc, no, inode, at)?;
            let Some(extent) = mapping.extent.filter(|e| !e.unwritten && e.start.0 != key.2) else {
                continue;
            };
            if !self.store.alloc.verify_block(&self.store.meta, extent.start)? {
                let damaged = self.damaged.get_mut(&key).expect("it was just found");
                damaged.sound_until = damaged.sound_until.max(Some(end));
            }
        }
        Ok(())
    }

    fn inode(&mut self, no: InodeNo, inode: &Inode, until: Option<EventNo>) -> Result<()> {
        let Owners { store, candidates, damaged } = self;
        extent::each(&store.meta, no, inode, 0, &mut |(first, value)| {
            let ExtentValue { start, len, unwritten, .. } = value;
            if unwritten {
                return Ok(true);
            }
            for block in candidates.range(start.0..start.0 + u64::from(len)) {
                let key = (no, inode.incarnation, *block);
                if damaged.contains_key(&key) {
                    continue;
                }
                if store.alloc.verify_block(&store.meta, BlockNo(*block))? {
                    let offset = (first + (block - start.0)) * BLOCK_SIZE as u64;
                    let found = DamagedBlock {
                        inode: no,
                        path: None,
                        offset,
                        block: *block,
                        until,
                        sound_until: None,
                    };
                    damaged.insert(key, found);
                }
            }
            Ok(true)
        })
    }
}
