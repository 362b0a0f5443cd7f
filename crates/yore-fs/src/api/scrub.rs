//! Scrubbing: everything is read from the device, and compared with its checksums.
//!
//! First all metadata, whatever memory has of it; then all data that has checksums, in the order of the
//! medium ([`yore_core::alloc::Alloc::scrub`]). Others use the volume meanwhile, so what seems wrong is only
//! a candidate. If there are any, a walk over all files, as they are and as they were, finds who has these
//! blocks, and each is read again under the lock that keeps it the file's. Without candidates no file is
//! looked at.

use crate::api::checksums::BATCH;
use crate::api::inodes::each_below;
use crate::history::record::VersionsWalk;
use crate::store::Store;
use crate::{EventNo, InodeNo, Progress, Result, View};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_core::extent;
use yore_core::inode::InodeCell;
use yore_format::{BlockNo, ContentKind, ExtentValue, Incarnation, Inode, BLOCK_SIZE};

/// So many findings are told one by one.
const FINDINGS_MOST: usize = 200;
/// The longest pause between two looks at whether to go on.
const PAUSE: Duration = Duration::from_millis(200);

/// How to scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scrub {
    /// Read no more than so many bytes in a second; 0 for as many as there are.
    pub rate: u64,
    /// Begin with the data at this block, as a scrub that was broken off has told; 0 for the beginning, with
    /// the metadata.
    pub from: u64,
}

/// A block of a file that does not hold what was written to it.
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
    /// How many findings there are beyond those that are told.
    pub further: u64,
    /// It was broken off: the block where the data goes on.
    pub goes_on: Option<u64>,
}

impl Scrubbed {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.metadata.is_empty() && self.data.is_empty() && self.further == 0
    }
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

impl View {
    /// Reads all metadata of the volume, and all data that has checksums, from the device, and tells what is
    /// not what was written. Changes nothing. `progress` counts blocks; `ask` is called now and then, and
    /// says whether to go on: if not, the result says where to.
    ///
    /// O(metadata + data); if data is damaged, also O(extents of all files, and of their versions).
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past; damage of what says which blocks are in use, and
    /// device errors.
    pub fn scrub(
        &self,
        how: Scrub,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scrubbed> {
        let store = self.live()?;
        let mut found =
            Scrubbed { keeps_checksums: store.alloc.keeps_checksums(&store.meta), ..Scrubbed::default() };
        let totals = &store.meta.totals;
        let in_use = store.meta.geometry().blocks.saturating_sub(totals.free_blocks.get());
        progress.restart(if found.keeps_checksums { in_use } else { totals.metadata_blocks.get() });
        let mut pace = Pace { rate: how.rate, begun: Instant::now(), read: 0, ask, progress };
        if how.from == 0 {
            let Scrubbed { metadata, further, .. } = &mut found;
            let mut wrong = |c: Box<yore_format::Corruption>| {
                tracing::error!("{c}");
                match metadata.len() < FINDINGS_MOST {
                    true => metadata.push(c.to_string()),
                    false => *further += 1,
                }
            };
            let read = store.meta.scrub_metadata(&mut wrong, &mut |blocks| pace.read(blocks))?;
            match read {
                ControlFlow::Continue(read) => found.metadata_blocks = read,
                ControlFlow::Break(read) => {
                    found.metadata_blocks = read;
                    found.goes_on = Some(0);
                    return Ok(found);
                }
            }
        }
        if !found.keeps_checksums {
            return Ok(found);
        }
        let (mut candidates, mut at) = (BTreeSet::new(), how.from);
        let ended = store.alloc.scrub(
            &store.meta,
            BlockNo(how.from),
            &mut |block| {
                candidates.insert(block.0);
            },
            &mut |block, read| {
                found.data_blocks += read;
                at = block.0;
                pace.read(read)
            },
        )?;
        found.goes_on = ended.is_break().then_some(at);
        if !candidates.is_empty() {
            self.find_owners(&candidates, &mut found)?;
        }
        Ok(found)
    }

    /// Tells which files have damaged blocks.
    fn find_owners(&self, candidates: &BTreeSet<u64>, found: &mut Scrubbed) -> Result<()> {
        let store = self.live()?;
        let mut owners = Owners { store, candidates, damaged: BTreeMap::new() };
        each_below(self, self.root(), &mut |cell| owners.present(cell))?;
        for cell in store.inodes.select(|cell| cell.unlinked.load(Ordering::Acquire)) {
            owners.present(&cell)?;
        }
        let mut walk = VersionsWalk::default();
        loop {
            let _still = store.past.forgetting.lock();
            let Some(versions) = store.past.next_versions(&store.meta, &mut walk, BATCH)? else { break };
            for (no, version) in &versions {
                owners.version(*no, &version.inode, version.end)?;
            }
        }
        for ((inode, incarnation, block), mut damaged) in owners.damaged {
            if found.data.len() == FINDINGS_MOST {
                found.further += 1;
                continue;
            }
            let is_same = store.cell(inode).is_ok_and(|cell| cell.incarnation == incarnation);
            damaged.path = match is_same {
                true => self.path_now(inode)?.map(|path| {
                    use std::os::unix::ffi::OsStringExt as _;
                    path.into_os_string().into_vec()
                }),
                false => None,
            };
            tracing::error!(
                "file data at block {block} of inode {inode} is damaged: offset {} of the file",
                damaged.offset
            );
            found.data.push(damaged);
        }
        Ok(())
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
            if self.store.alloc.verify_block(&self.store.meta, extent.start)?.is_none() {
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
                if store.alloc.verify_block(&store.meta, BlockNo(*block))?.is_some() {
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
