//! Laying the pieces of a file together: what random writes behind events have scattered is read in one go
//! again.
//!
//! A *stretch* is 4 MiB of a file. Its *pieces* are the runs of consecutive blocks in which it lies on the
//! medium. A stretch of too many pieces is copied to a run of free blocks, and Ops enter the new blocks in
//! place of the old ones, in the order that write-back and [`super::relocate`] have: blocks taken, data, then
//! the Op (R4). The content does not change, nor any time, nor what is born when.
//!
//! **Why a crash is harmless.** Each of these Ops leaves the same bytes at the same places of the file, so it
//! does not matter which of them a crash keeps. What an old block held stays there until the generation of
//! the Op is complete (R3). Blocks that no Op has entered were only taken in memory.
//!
//! **What the past has** stays where it is: the file lets go of such blocks, and they become history's. So
//! history grows by what versions have of a stretch that moves; what the present alone has is freed. An event
//! that has seen the file and made no version of it yet sees the new blocks. Blocks that another file uses in
//! the present stay, too: a copy of them would undo the sharing.
//!
//! **Who else is there.** The io of the file is held, so its extents stay as they are (E4), nobody writes
//! over blocks in place, and nobody clones it. Writers may make pages dirty: these count on a promise or on a
//! block that is the file's own (F4), and a moved block is its own. Readers hold the state while they read.
//! *Reading ahead holds nothing* (`ahead.rs`): a thread may be reading an old block while the Op gives it up,
//! and somebody else's data may be in it before the thread gets to it. So stretches that are on their way are
//! taken back under the lock under which the Op is opened.
//!
//! Somebody asks for this (`api/defrag.rs`), or it happens in the background ([`super::tidy`]).

use super::extents::{apply_reserved, finish_doomed, load};
use super::flush::{flush_locked, is_written, write_data};
use super::history::History;
use super::map::{pages_for, PAGE};
use super::relocate::{goal, moved_checksums};
use crate::Result;
use std::sync::Arc;
use yore_core::alloc::{Others, Promise, Run};
use yore_core::extent::{self, check_run, is_own};
use yore_core::inode::InodeCell;
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, ContentKind, DataChecksum};

/// Blocks of a stretch: 4 MiB.
pub(crate) const STRETCH: u64 = 1024;
/// A stretch may lie in so many pieces before it counts as scattered.
pub(crate) const PIECES: u32 = 8;
/// A shorter one, in one for so many blocks, but no fewer than four.
const PIECE_BLOCKS: u64 = 128;
const PIECES_LEAST: u64 = 4;

/// Consecutive blocks of a file that lie together on the medium.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The first block in the file.
    at: u64,
    run: Run,
    unwritten: bool,
    /// Whether it moves: no other file uses it.
    moves: bool,
    /// Whether the past has it when the file has let go of it.
    stays: bool,
}

/// A part of a file, and how it lies.
#[derive(Debug)]
pub(crate) struct Stretch {
    parts: Vec<Part>,
    /// The first block of it.
    pub(crate) first: u64,
    /// Where the next one begins.
    pub(crate) next: u64,
}

/// What became of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Laid {
    /// It lies as it did: it is not scattered, nothing is gained, or the volume has just begun to keep
    /// checksums.
    Left,
    /// So many blocks have moved.
    Moved(u64),
    /// There is no run that is long enough.
    NoRoom,
    /// `stop` said so, and nothing has moved.
    Stopped,
}

impl Stretch {
    /// In how many pieces it lies.
    pub(crate) fn pieces(&self) -> u64 {
        let breaks = self.parts.windows(2).filter(|pair| pair[0].run.end() != pair[1].run.start.0);
        breaks.count() as u64 + u64::from(!self.parts.is_empty())
    }

    /// In how many it would lie if what moves went into one run.
    fn pieces_then(&self) -> u64 {
        let follows = |pair: &[Part]| match (pair[0].moves, pair[1].moves) {
            (true, true) => true,
            (false, false) => pair[0].run.end() == pair[1].run.start.0,
            _ => false,
        };
        let breaks = self.parts.windows(2).filter(|pair| !follows(pair));
        breaks.count() as u64 + u64::from(!self.parts.is_empty())
    }

    /// How many blocks would move.
    pub(crate) fn moves(&self) -> u64 {
        self.parts.iter().filter(|part| part.moves).map(|part| u64::from(part.run.len)).sum()
    }

    /// By how many blocks history would grow.
    pub(crate) fn history(&self) -> u64 {
        let stays = self.parts.iter().filter(|part| part.moves && part.stays);
        stays.map(|part| u64::from(part.run.len)).sum()
    }

    /// Whether it lies in more pieces than it should, and in half as many once it is laid together. `most`:
    /// in so many a stretch may lie.
    pub(crate) fn is_scattered(&self, most: u32) -> bool {
        let blocks: u64 = self.parts.iter().map(|part| u64::from(part.run.len)).sum();
        let most = u64::from(most).min((blocks / PIECE_BLOCKS).max(PIECES_LEAST));
        let pieces = self.pieces();
        pieces > most && self.pieces_then() * 2 <= pieces
    }
}

/// The first stretch of a file at or after block `from` that has any blocks; `None` if there is none.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn stretch(store: &impl History, cell: &InodeCell, from: u64) -> Result<Option<Stretch>> {
    let state = cell.state.read();
    let has_extents = matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree);
    if state.gone || !state.inode.is_regular() || !has_extents {
        return Ok(None);
    }
    let recorded_until = store.recorded_until(&state, cell.no)?;
    let file_end = u64::from(pages_for(state.inode.size));
    let (mut parts, mut end) = (Vec::new(), None);
    extent::each(&store.meta, cell.no, &state.inode, from, &mut |(first, value)| {
        let mut at = first.max(from);
        let end = *end.get_or_insert((at - at % STRETCH + STRETCH).min(file_end));
        let until = end.min(first + u64::from(value.len));
        while at < until {
            let run = Run { start: BlockNo(value.start.0 + (at - first)), len: (until - at) as u32 };
            let (others, len) = match value.unwritten {
                true => (Others::Nobody, run.len),
                false => store.alloc.others(&store.meta, run)?,
            };
            parts.push(Part {
                at,
                run: Run { len, ..run },
                unwritten: value.unwritten,
                moves: others != Others::InUse,
                stays: others != Others::Nobody || !is_own(recorded_until, &value),
            });
            at += u64::from(len);
        }
        Ok(first + u64::from(value.len) < end)
    })?;
    let first = parts.first().map(|part: &Part| part.at);
    Ok(first.zip(end).map(|(first, next)| Stretch { parts, first, next }))
}

/// Lays the stretch that begins at `from` together, if it is scattered. Takes the blocks out of `promise`.
/// The caller holds io. `stop` is asked now and then while nothing has moved.
///
/// # Errors
/// `NoSpace` for metadata; damage and device errors. What has moved stays moved.
pub(crate) fn lay_together(
    store: &impl History,
    cell: &Arc<InodeCell>,
    (from, most): (u64, u32),
    promise: &mut Promise<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<Laid> {
    finish_doomed(store, cell)?;
    if !is_written(&cell.state.read()) {
        flush_locked(store, cell)?;
    }
    let Some(stretch) = stretch(store, cell, from)?.filter(|stretch| stretch.is_scattered(most)) else {
        return Ok(Laid::Left);
    };
    let Some(runs) = take_runs(store, cell, &stretch, promise)? else { return Ok(Laid::NoRoom) };
    let mut pieces = targets(&stretch, &runs);
    let keeps = store.alloc.keeps_checksums(&store.meta);
    let laid = match copy(store, cell, &stretch, (&runs, keeps), stop) {
        // The volume has begun to keep checksums meanwhile: of what was read before none is known.
        Ok(Some(_)) if store.alloc.keeps_checksums(&store.meta) != keeps => Ok(Laid::Left),
        Ok(Some(checksums)) => {
            enter(store, cell, &mut pieces, &checksums).map(|()| Laid::Moved(stretch.moves()))
        }
        Ok(None) => Ok(Laid::Stopped),
        Err(e) => Err(e),
    };
    // What no Op has entered goes back.
    for piece in &pieces {
        store.alloc.untake(piece.run);
        store.alloc.release(u64::from(piece.run.len));
    }
    laid
}

/// Takes blocks for what moves: one run, or a few if it is still worth it. `None`: there are none.
fn take_runs(
    store: &impl History,
    cell: &InodeCell,
    stretch: &Stretch,
    promise: &mut Promise<'_>,
) -> Result<Option<Vec<Run>>> {
    let mut goal = goal(store, cell, stretch.first, BlockNo(u64::MAX))?;
    let mut left = stretch.moves();
    if left > promise.left() {
        return Ok(None);
    }
    let runs_most = (stretch.pieces() / 2).saturating_sub(stretch.pieces_then() - 1).max(1) as usize;
    let (mut runs, mut len): (Vec<Run>, u64) = (Vec::new(), left);
    let found = loop {
        if left == 0 {
            break Ok(true);
        }
        len = len.min(left);
        if runs.len() == runs_most {
            break Ok(false);
        }
        match store.alloc.take_whole(&store.meta, goal, len as u32) {
            Ok(Some(run)) => {
                promise.take_out(u64::from(run.len));
                left -= u64::from(run.len);
                goal = BlockNo(run.end());
                runs.push(run);
            }
            Ok(None) if len > 1 && left.div_ceil(len / 2) <= (runs_most - runs.len()) as u64 => len /= 2,
            Ok(None) => break Ok(false),
            Err(e) => break Err(e),
        }
    };
    match found {
        Ok(true) => Ok(Some(runs)),
        ref short => {
            for run in runs {
                store.alloc.untake(run);
                store.alloc.release(u64::from(run.len));
            }
            short.clone().map(|_| None)
        }
    }
}

/// Blocks of a file, and where they go.
#[derive(Clone, Copy, Debug)]
struct Target {
    at: u64,
    run: Run,
    unwritten: bool,
}

/// Where the parts that move go. What follows in the file and on the medium is one.
fn targets(stretch: &Stretch, runs: &[Run]) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut runs = runs.iter().copied();
    let mut room = Run { start: BlockNo(0), len: 0 };
    for part in stretch.parts.iter().filter(|part| part.moves) {
        let mut at = part.at;
        let end = part.at + u64::from(part.run.len);
        while at < end {
            if room.len == 0 {
                room = runs.next().expect("as many blocks were taken as move");
            }
            let run = Run { len: room.len.min((end - at) as u32), ..room };
            room = Run { start: BlockNo(run.end()), len: room.len - run.len };
            match targets.last_mut() {
                Some(last)
                    if last.at + u64::from(last.run.len) == at
                        && last.run.end() == run.start.0
                        && last.unwritten == part.unwritten =>
                {
                    last.run.len += run.len;
                }
                _ => targets.push(Target { at, run, unwritten: part.unwritten }),
            }
            at += u64::from(run.len);
        }
    }
    targets
}

/// The checksums of blocks of a file that move, by block of the file, in ascending order; none if the volume
/// keeps none.
type Moved = Vec<(u64, Option<DataChecksum>)>;

/// Copies what moves, with the checksums of all of it or of none, as `keeps` says. `None`: `stop` has ended
/// it. An error of writing stops all writing to the volume (R16).
fn copy(
    store: &impl History,
    cell: &InodeCell,
    stretch: &Stretch,
    (runs, keeps): (&[Run], bool),
    stop: &dyn Fn() -> bool,
) -> Result<Option<Moved>> {
    let (device, mut reads, mut at) = (store.meta.device(), Vec::new(), 0);
    for part in stretch.parts.iter().filter(|part| part.moves) {
        if !part.unwritten {
            check_run(&store.meta, &store.alloc, cell.no, part.run)?;
            reads.push((part.run, at, part.at));
        }
        at += part.run.len as usize;
    }
    // A disk goes over them once.
    reads.sort_unstable_by_key(|(run, ..)| run.start);
    let mut checksums = Moved::new();
    let mut bytes = AlignedBuf::zeroed(at);
    let block = |n: usize| n * PAGE as usize;
    for (run, at, first) in reads {
        if stop() {
            return Ok(None);
        }
        let bytes = &mut bytes[block(at)..block(at + run.len as usize)];
        device.read_at(run.start.0 * PAGE, bytes)?;
        if keeps {
            let moved = moved_checksums(store, run, bytes)?.unwrap_or_default();
            checksums.extend((first..).zip(moved));
        }
    }
    checksums.sort_unstable_by_key(|(block, _)| *block);
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::MovedUncopied) {
        return Ok(Some(checksums));
    }
    for run in runs {
        store.alloc.make_checksum_tables(&store.meta, *run)?;
    }
    write(store, &bytes, runs)?;
    Ok(Some(checksums))
}

fn write(store: &Core, mut bytes: &[u8], runs: &[Run]) -> Result<()> {
    store.check_writable()?;
    write_data(store, "laying file data together", |device| {
        for run in runs {
            let (these, rest) = bytes.split_at(run.len as usize * PAGE as usize);
            bytes = rest;
            device.write_at(run.start.0 * PAGE, these)?;
        }
        Ok(())
    })
}

/// Enters the new blocks, in as many Ops as that takes; leaves in `targets` what no Op has entered.
fn enter(store: &impl History, cell: &InodeCell, targets: &mut Vec<Target>, checksums: &Moved) -> Result<()> {
    while let Some(Target { at, run, unwritten }) = targets.last().copied() {
        let mut edit = load(store, cell, at..at + u64::from(run.len))?;
        // One Op changes as many old extents as its window has.
        let len = (edit.limit() - at).min(u64::from(run.len)) as u32;
        edit.put(at, Run { len, ..run }, unwritten);
        if !unwritten && !checksums.is_empty() {
            let first = checksums.partition_point(|(block, _)| *block < at);
            let these = checksums[first..].iter().take(len as usize);
            edit.note_checksums(Run { len, ..run }, these.map(|(_, checksum)| *checksum).collect());
        }
        let reserved = store.reserve(store.near(cell.no), edit.blocks())?;
        apply_reserved(store, cell, edit, reserved, |state| {
            if let Some(mut pages) = state.data.cached() {
                pages.cancel_arriving(at as u32, (at + u64::from(len)) as u32);
            }
            store.meta.note_data_named();
        })?;
        match run.len - len {
            0 => drop(targets.pop()),
            left => {
                let run = Run { start: BlockNo(run.start.0 + u64::from(len)), len: left };
                *targets.last_mut().expect("it is there") =
                    Target { at: at + u64::from(len), run, unwritten };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
