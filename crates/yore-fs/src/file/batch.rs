//! A batch of a file's dirty pages: which pages, their bytes as of one instant, and where each goes.

use super::history::History;
use super::map::{map_to_write, PAGE};
use crate::Result;
use std::sync::OnceLock;
use yore_core::alloc::Run;
use yore_core::extent::{is_own, Mapping};
use yore_core::inode::{InodeCell, InodeState};
use yore_core::pages::Bytes;
use yore_core::Core;
use yore_format::{BlockNo, DataChecksum, ExtentValue};

/// Pages in a batch: 4 MiB.
pub(super) const BATCH: usize = 1024;

/// Where the pages of a segment go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Over the data that is there.
    InPlace(BlockNo),
    /// Into blocks that were allocated and never written.
    Unwritten(BlockNo),
    /// Into blocks that are yet to be taken.
    New,
}

/// Consecutive pages that go to one kind of destination.
pub(super) struct Segment {
    pub(super) first: u32,
    pub(super) to: Destination,
    pub(super) bytes: Vec<Bytes>,
    /// Which of the pages brought a promise.
    pub(super) promised: Vec<bool>,
    /// The checksums of the pages, once somebody has asked for them.
    checksums: OnceLock<Vec<Option<DataChecksum>>>,
}

/// A snapshot of dirty pages under write-back.
pub(super) struct Batch {
    pub(super) segments: Vec<Segment>,
    /// The page where the pass goes on.
    pub(super) next: u32,
    /// Up to where the medium has the file's bytes once everything is written.
    pub(super) size: u64,
    /// The size to be stored then, if this is the last batch of the pass.
    pub(super) stored: Option<u64>,
}

/// What a pass writes back.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// Dirty pages before this one.
    pub(super) end: u32,
    /// The size that is stored when they are written: a size that the file had (F7).
    pub(super) size: u64,
}

/// Takes a snapshot of the next dirty pages.
pub(super) fn collect(store: &impl History, cell: &InodeCell, from: u32, pass: Pass) -> Result<Batch> {
    let state = cell.state.read();
    let size = state.inode.size;
    let mut batch = Batch { segments: Vec::new(), next: pass.end, size, stored: None };
    let Some(pages) = state.data.cached() else { return Ok(batch) };
    let dirty = pages.dirty_in(from, pass.end, BATCH);
    drop(pages);
    let destinations = destinations(store, cell, &state, &dirty)?;
    // No page has become dirty or clean since: the first needs the state lock, the second io.
    let mut pages = state.data.pages(&store.files.pages);
    for (index, to) in dirty.iter().zip(destinations) {
        let (bytes, promised) = pages.start_writing(*index);
        match batch.segments.last_mut() {
            Some(last) if last.continues(*index, to) => {
                last.bytes.push(bytes);
                last.promised.push(promised);
            }
            _ => batch.segments.push(Segment {
                first: *index,
                to,
                bytes: vec![bytes],
                promised: vec![promised],
                checksums: OnceLock::new(),
            }),
        }
    }
    if let Some(last) = dirty.last() {
        batch.next = last + 1;
        if let Some(next) = pages.next_dirty(last + 1) {
            batch.size = size.min(u64::from(next) * PAGE);
        }
        batch.stored = pages.next_dirty(last + 1).is_none_or(|next| next >= pass.end).then_some(pass.size);
    }
    Ok(batch)
}

impl Batch {
    /// Whether no page was dirty.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether some of the pages go over data that is there.
    pub(super) fn is_in_place(&self) -> bool {
        self.segments.iter().any(|segment| matches!(segment.to, Destination::InPlace(_)))
    }

    /// Computes the checksums of the pages that get blocks which were never written, or that are new.
    pub(super) fn compute_checksums(&self) {
        let is_new = |segment: &&Segment| !matches!(segment.to, Destination::InPlace(_));
        self.segments.iter().filter(is_new).for_each(|segment| {
            segment.checksums();
        });
    }

    /// The checksums of some of its pages, which follow one another and are of one segment.
    pub(super) fn checksums(&self, first: u64, count: u32) -> Vec<Option<DataChecksum>> {
        let behind = self.segments.partition_point(|segment| u64::from(segment.first) <= first);
        let segment = &self.segments[behind.checked_sub(1).expect("the pages are of the batch")];
        let from = (first - u64::from(segment.first)) as usize;
        segment.checksums()[from..from + count as usize].to_vec()
    }

    /// How many pages it has.
    pub(super) fn pages(&self) -> usize {
        self.segments.iter().map(|s| s.bytes.len()).sum()
    }
}

impl Segment {
    /// The checksums of the pages, which are computed once.
    fn checksums(&self) -> &[Option<DataChecksum>] {
        self.checksums.get_or_init(|| self.bytes.iter().map(|bytes| Some(DataChecksum::of(bytes))).collect())
    }

    fn continues(&self, index: u32, to: Destination) -> bool {
        let len = self.bytes.len() as u64;
        u64::from(self.first) + len == u64::from(index)
            && match (self.to, to) {
                (Destination::New, Destination::New) => true,
                (Destination::InPlace(a), Destination::InPlace(b))
                | (Destination::Unwritten(a), Destination::Unwritten(b)) => a.0 + len == b.0,
                _ => false,
            }
    }
}

/// Where each of the pages goes.
pub(super) fn destinations(
    store: &impl History,
    cell: &InodeCell,
    state: &InodeState,
    pages: &[u32],
) -> Result<Vec<Destination>> {
    let mut known: Option<(u64, Mapping)> = None;
    let mut found = Vec::with_capacity(pages.len());
    let recorded_until = store.recorded_until(state, cell.no)?;
    let moves = store.alloc.keeps_checksums(&store.meta);
    for block in pages.iter().map(|p| u64::from(*p)) {
        if known.is_none_or(|(first, m)| block - first >= m.len) {
            known = Some((block, map_to_write(store, cell.no, state, block)?));
        }
        let (first, mapping) = known.expect("just looked up");
        found.push(match mapping.extent {
            Some(e) if e.unwritten => Destination::Unwritten(BlockNo(e.start.0 + block - first)),
            Some(e) if moves && !is_promised(state, block) => {
                let start = BlockNo(e.start.0 + block - first);
                let is_own = is_own(recorded_until, &ExtentValue { shared: false, ..e });
                match is_own && may_still_be_in_place(store, start)? {
                    true => Destination::InPlace(start),
                    false => Destination::New,
                }
            }
            Some(e) if is_own(recorded_until, &e) => Destination::InPlace(BlockNo(e.start.0 + block - first)),
            _ => Destination::New,
        });
    }
    Ok(found)
}

/// Whether data that was accepted before the volume kept checksums may be written over this block: it has
/// none yet, and one reference.
fn may_still_be_in_place(store: &Core, start: BlockNo) -> Result<bool> {
    let run = Run { start, len: 1 };
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::ChecksummedInPlace) {
        return Ok(true);
    }
    let is_unknown = store.alloc.checksums(&store.meta, run)?.get(0).is_none();
    Ok(is_unknown && store.alloc.sole_part(&store.meta, run)?.0)
}

/// Whether a block is promised for the page.
fn is_promised(state: &InodeState, page: u64) -> bool {
    state.data.cached().is_some_and(|pages| pages.promised_in(page as u32, page as u32 + 1) > 0)
}
