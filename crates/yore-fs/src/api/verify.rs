//! Which states of a file are whole: their data is read from the device and compared with its checksums.
//!
//! A scrub and whoever reads leave behind the blocks that they have met damaged
//! ([`View::damaged_blocks`]). Where a state of a file has one of them, and it is damaged still, the states
//! before it are read one after the other, until one is whole. Blocks that several states share are read
//! once.
//!
//! What memory has of a file is not read: a page that is newer than the medium replaces what is damaged
//! there. A block that the device cannot read is damaged.

use crate::api::block_set::BlockSet;
use crate::history::read::at_time::{with, PRESENT};
use crate::store::Store;
use crate::{DataState, Error, EventNo, InodeNo, Logged, Progress, Result, View};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use yore_core::alloc::Run;
use yore_core::extent;
use yore_core::inode::InodeState;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, ContentKind, DataChecksum, Incarnation, BLOCK_SIZE};
use yore_meta::Patience;

/// Blocks that are read under one hold of a file's lock: 1 MiB.
const TOGETHER: u32 = 256;

/// Which states are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum VerifyStates {
    /// None.
    #[default]
    No,
    /// Those that have a block which is known to be damaged, and those before one of them, up to one that is
    /// whole.
    WhereDamaged,
    /// From the first one on, up to one that is whole.
    Yes,
}

/// A state of a file.
#[derive(Clone, Copy)]
struct Of {
    no: InodeNo,
    incarnation: Incarnation,
    at: EventNo,
}

/// What became of the next blocks of a file.
enum Step {
    Damaged(DataState),
    /// The file goes on at this block. So many of those before it have no checksum.
    GoOn {
        next: u64,
        without: u64,
    },
    End,
}

impl View {
    /// Blocks of file data that are known to be damaged: those that the last scrub has found, as many as the
    /// volume has room for, and those that were met by reading. They may be others' by now, or free.
    ///
    /// # Errors
    /// Those of the device.
    pub fn damaged_blocks(&self) -> Result<BTreeSet<u64>> {
        let store = self.store();
        let mut all = store.met.all();
        all.extend(store.meta.scrubs()?.known_damaged());
        Ok(all)
    }

    /// Verifies the data of states of a log, which come latest first, and says in them what it found. Those
    /// of directories and other files without data stay as they are, and so do those that nobody can see any
    /// more. Others use the volume meanwhile. `progress` counts blocks; `ask` says whether to go on.
    ///
    /// O(data of the states that are verified); with [`VerifyStates::WhereDamaged`] O(extents of all states)
    /// if a block of the volume is known to be damaged, and nothing otherwise.
    ///
    /// # Errors
    /// Damage of metadata, and device errors.
    pub fn verify_states(
        &self,
        states: &mut [Logged],
        which: VerifyStates,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<()> {
        let mut reads = match which {
            VerifyStates::No => return Ok(()),
            VerifyStates::WhereDamaged => false,
            VerifyStates::Yes => true,
        };
        let known = self.damaged_blocks()?;
        if known.is_empty() && !reads {
            return Ok(());
        }
        let view = self.present();
        let mut verifier = Verifier { view: &view, known: &known, whole: BlockSet::default() };
        let bytes: u64 = states.iter().map(|state| state.facts.size).fold(0, u64::saturating_add);
        progress.restart(bytes / BLOCK_SIZE as u64);
        for state in states.iter_mut().filter(|state| state.kind == crate::FileKind::Regular) {
            let at = state.last.as_ref().map_or(PRESENT, |last| last.event.number);
            let of = Of { no: state.inode, incarnation: state.incarnation, at };
            let verified = match verifier.known_damage(of) {
                Ok(None) if reads => verifier.read(of, progress, ask),
                other => other,
            };
            state.data = match verified {
                Ok(found) => found,
                // It was forgotten, or is gone.
                Err(Error::Stale | Error::NotFound) => None,
                Err(error) => return Err(error),
            };
            match state.data {
                Some(DataState::Whole) => break,
                Some(DataState::Damaged { .. }) => reads = true,
                Some(DataState::Unknown { .. }) | None => {}
            }
            if ask().is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct Verifier<'a> {
    view: &'a View,
    /// Blocks that are known to be damaged.
    known: &'a BTreeSet<u64>,
    /// Blocks that were verified.
    whole: BlockSet,
}

impl Verifier<'_> {
    /// Does something with a state, which stays what it is meanwhile, and its blocks with it.
    fn with_state<R>(&self, of: Of, mut work: impl FnMut(&InodeState) -> Result<R>) -> Result<R> {
        let store = self.view.store();
        let _passage = self.view.enter(of.no)?;
        let _seeing = (of.at != PRESENT).then(|| store.past.see(of.at)).transpose()?;
        with(store, of.no, of.at, |_, state| {
            match state.gone || state.inode.incarnation != of.incarnation || !state.inode.is_regular() {
                true => Err(Error::Stale),
                false => work(state),
            }
        })
    }

    /// Whether a state has a block that is known to be damaged, and that is damaged still.
    fn known_damage(&self, of: Of) -> Result<Option<DataState>> {
        if self.known.is_empty() {
            return Ok(None);
        }
        let (store, known) = (self.view.store(), self.known);
        self.with_state(of, |state| {
            let mut found = None;
            each_written(store, of.no, state, 0, &mut |first, run| {
                for block in known.range(run.start.0..run.end()) {
                    let at = first + (block - run.start.0);
                    let is_damaged = store.alloc.verify_block(&store.meta, BlockNo(*block))?;
                    if is_damaged && !is_replaced(state, at) {
                        found = Some(DataState::Damaged { offset: at * BLOCK_SIZE as u64, block: *block });
                        return Ok(false);
                    }
                }
                Ok(true)
            })?;
            Ok(found)
        })
    }

    /// Reads all of a state, up to what is damaged. `None`: it was broken off.
    fn read(
        &mut self,
        of: Of,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<DataState>> {
        let store = self.view.store();
        let (mut at, mut unknown) = (0, 0);
        let mut whole = std::mem::take(&mut self.whole);
        let found = loop {
            match self.with_state(of, |state| step(store, of.no, state, at, &mut whole)) {
                Err(error) => break Err(error),
                Ok(Step::Damaged(found)) => break Ok(Some(found)),
                Ok(Step::End) if unknown > 0 => break Ok(Some(DataState::Unknown { blocks: unknown })),
                Ok(Step::End) => break Ok(Some(DataState::Whole)),
                Ok(Step::GoOn { next, without }) => {
                    progress.add(next - at);
                    (at, unknown) = (next, unknown + without);
                }
            }
            if ask().is_break() {
                break Ok(None);
            }
        };
        self.whole = whole;
        found
    }
}

/// Reads the next blocks of a file from file block `at` on. `whole` gets those that are what was written.
fn step(store: &Store, no: InodeNo, state: &InodeState, at: u64, whole: &mut BlockSet) -> Result<Step> {
    let mut next = None;
    each_written(store, no, state, at, &mut |first, run| {
        next = Some((first, run));
        Ok(false)
    })?;
    let Some((first, run)) = next else { return Ok(Step::End) };
    let (len, mut without) = (u64::from(run.len), 0);
    let next = first + len;
    if !whole.has(run.start.0, len) {
        let checksums = store.alloc.checksums(&store.meta, run)?;
        if (0..run.len as usize).all(|i| checksums.get(i).is_none()) {
            return Ok(Step::GoOn { next, without: len });
        }
        let (mut bytes, mut unreadable) = (AlignedBuf::zeroed(run.len as usize), BTreeSet::new());
        Patience::default().read(&**store.meta.device(), run.start, &mut bytes, &mut |i, _| {
            unreadable.insert(i);
        })?;
        for (i, bytes) in bytes.chunks(BLOCK_SIZE).enumerate() {
            let (at, block) = (first + i as u64, run.start.0 + i as u64);
            let is_readable = !unreadable.contains(&i);
            match checksums.get(i) {
                None if is_readable => without += 1,
                Some(expected) if is_readable && expected == DataChecksum::of(bytes) => whole.note(block, 1),
                _ if is_replaced(state, at) => {}
                _ => {
                    store.met.note(block);
                    let offset = at * BLOCK_SIZE as u64;
                    return Ok(Step::Damaged(DataState::Damaged { offset, block }));
                }
            }
        }
    }
    Ok(Step::GoOn { next, without })
}

/// Calls `each` with the blocks of a file that are written, from file block `at` on, in runs of up to 1 MiB:
/// the place of the first one in the file, and where they are. Ends when `each` says so.
fn each_written(
    store: &Store,
    no: InodeNo,
    state: &InodeState,
    at: u64,
    each: &mut dyn FnMut(u64, Run) -> Result<bool>,
) -> Result<()> {
    if !matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree) {
        return Ok(());
    }
    extent::each(&store.meta, no, &state.inode, at, &mut |(first, value)| {
        let mut skip = at.saturating_sub(first) as u32;
        while !value.unwritten && skip < value.len {
            let len = (value.len - skip).min(TOGETHER);
            let run = Run { start: BlockNo(value.start.0 + u64::from(skip)), len };
            extent::check_run(&store.meta, &store.alloc, no, run)?;
            if !each(first + u64::from(skip), run)? {
                return Ok(false);
            }
            skip += len;
        }
        Ok(true)
    })
}

/// Whether nobody reads the block that the medium has there: memory has a newer page, or the file is being
/// truncated.
fn is_replaced(state: &InodeState, at: u64) -> bool {
    let is_newer = |page| state.data.cached().is_some_and(|pages| pages.is_unstable(page));
    state.data.doomed.as_ref().is_some_and(|doomed| doomed.contains(&at))
        || u32::try_from(at).is_ok_and(is_newer)
}
