//! The sums over a mount: a hint that a clean close leaves on the medium ([`yore_format::SpanHint`]), and
//! that the next mount begins with.
//!
//! **H1 Of exactly one generation.** The hint is of what the last generation of a mount has. It is written
//! before the superblock of that generation, and believed only where that superblock is found, clean, with
//! nothing to replay behind it, and the hint names the same generation and the same mount. So whatever else
//! a mount for writing does, and whatever program it is of: it has another generation, and is another mount.
//!
//! **H2 Of exactly that state.** What inodes in use leave to their versions is noted in the Op in which they
//! do (S2). The table is locked from before the notes are taken out until the generation is frozen, so nobody
//! else takes any out; and if there is one when no Op is open and the generation is frozen, or the sums have
//! become wrong (S4), the hint is withdrawn ([`yore_meta::Beside`]). Otherwise the generation has exactly
//! what the hint is of.
//!
//! **H3 In free blocks**, which the bitmap has as free, and which nobody else gets before the volume is
//! opened again. So it leaks nothing, a volume without room for it has none, and programs that do not know it
//! need not. It is read before anything is written. Its own checksum says whether it is whole.
//!
//! **H4 No more than there is.** Sums that exceed what the roots of the history count are not believed, as
//! everywhere.
//!
//! What cannot be used costs a walk, and is no error. What can: notes begin where the hint is read, before
//! the first change. Closing makes no sums: it writes those that are there.

use super::{add_noted, drop_if_wrong, end};
use crate::history::record::{SpanTable, Table};
use crate::store::Store;
use crate::Result;
use std::sync::Arc;
use std::time::Duration;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, Generation, HintPlace, SpanHint, VolumeState, BLOCK_SIZE, HINT_BLOCKS_MOST};
use yore_meta::{Beside, Closing, Reserved};

/// So many notes are looked up when a volume is closed: some 0.1 s. With more there is no hint.
const NOTES_MOST: usize = 1 << 14;

/// Takes over what the hint says, if there is one for what was opened. Called before the first change, and
/// only if nothing was recovered.
pub(crate) fn load(store: &Store) {
    let found = match find(store) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(e) => {
            tracing::warn!(
                "what snapshots hold is not known from the last mount, and is found out anew: {e}"
            );
            return;
        }
    };
    let Some(sums) = SpanTable::of_hint(found) else { return };
    let mut table = store.spans.table.lock();
    store.spans.begin();
    store.meta.left().begin();
    *table = Table::Known(Box::new(sums));
}

/// The hint, if it is one of the state that was opened.
fn find(store: &Store) -> Result<Option<SpanHint>> {
    let (meta, past) = (&store.meta, &store.past);
    let (Some(place), Some(references)) = (past.hint(), past.references(meta)) else { return Ok(None) };
    let found = meta.found();
    if !is_of(place.generation, found.mount_id, (found.generation, found.mount_id, found.state)) {
        return Ok(None);
    }
    let blocks = usize::from(place.blocks);
    let end = place.start.0.saturating_add(place.blocks.into());
    if blocks > HINT_BLOCKS_MOST || end > meta.geometry().blocks {
        tracing::warn!("the hint of what snapshots hold cannot be {blocks} blocks from {}", place.start);
        return Ok(None);
    }
    let mut bytes = AlignedBuf::zeroed(blocks);
    meta.device().read_at(place.start.0 * BLOCK_SIZE as u64, &mut bytes)?;
    let Some(hint) = SpanHint::decode(&bytes)? else { return Ok(None) };
    let (data, nodes) = hint.all();
    let is_it = hint.uuid == found.uuid
        && is_of(hint.generation, hint.mount_id, (found.generation, found.mount_id, found.state));
    if is_it && (data > references || nodes > past.space().nodes) {
        tracing::warn!("a hint has {data} and {nodes} blocks, and history has fewer: they are counted anew");
        return Ok(None);
    }
    Ok(Some(hint).filter(|_| is_it))
}

/// Whether a hint of this generation and mount is of what was found (H1).
fn is_of(generation: Generation, mount_id: u64, found: (Generation, u64, VolumeState)) -> bool {
    #[cfg(feature = "mutations")]
    if yore_meta::mutation::is(yore_meta::mutation::Mutation::OldHintBelieved) {
        return true;
    }
    (generation, mount_id, VolumeState::Clean) == found
}

/// Writes the last generation with a hint of what is known, and marks the volume clean.
///
/// # Errors
/// Those of writing a generation.
pub(crate) fn close(store: &Arc<Store>) -> Result<()> {
    // If another thread holds the lock, it is in the middle of a walk.
    let mut table = store.spans.table.try_lock();
    let prepare = &mut |closing: Closing| {
        let prepared = match table.as_deref_mut().map(|table| prepare(store, table, closing)) {
            Some(Ok(prepared)) => prepared,
            Some(Err(e)) => {
                tracing::warn!("what snapshots hold is not written down for the next mount: {e}");
                None
            }
            None => None,
        };
        let place = prepared.as_ref().map(|(place, _)| *place);
        name(store, place);
        prepared.map(|(place, bytes)| Beside { at: place.start, bytes, holds: Box::new(|| holds(store)) })
    };
    Ok(store.meta.close_with(prepare)?)
}

/// Whether everything that inodes in use have left to their versions is in the sums (H2).
fn holds(store: &Store) -> bool {
    #[cfg(feature = "mutations")]
    if yore_meta::mutation::is(yore_meta::mutation::Mutation::HintUnasked) {
        return true;
    }
    store.meta.left().is_empty() && !store.spans.is_to_drop()
}

/// Says in the roots of the history where the hint is; or that there is none, if they say otherwise.
fn name(store: &Store, place: Option<HintPlace>) {
    if store.past.hint() != place {
        let mut op = store.meta.begin(Reserved::none());
        store.past.set_hint(&mut op, place);
    }
}

/// The hint, and room for it, if sums are known that can be completed soon.
fn prepare(
    store: &Arc<Store>,
    table: &mut Table,
    Closing { generation, mount_id }: Closing,
) -> Result<Option<(HintPlace, AlignedBuf)>> {
    let (past, meta) = (&store.past, &store.meta);
    drop_if_wrong(store, table);
    let Table::Known(sums) = &mut *table else { return Ok(None) };
    let Some(still) = past.forgetting.try_lock().filter(|_| meta.left().count() <= NOTES_MOST) else {
        return Ok(None);
    };
    let Some(references) = past.references(meta).filter(|_| past.has_annals()) else { return Ok(None) };
    let added = add_noted(store, sums);
    if !matches!(added, Ok(true)) {
        end(store, table, Duration::ZERO);
        return added.map(|_| None);
    }
    let hint = SpanHint {
        uuid: meta.found().uuid,
        generation,
        mount_id,
        versions: sums.versions,
        sharing: sums.sharing.iter().copied().collect(),
        sums: sums.for_hint(&past.kept()),
    };
    drop(still);
    let (data, nodes) = hint.all();
    if data > references || nodes > past.space().nodes {
        store.spans.refute();
        return Ok(None);
    }
    let Some(encoded) = hint.encode() else { return Ok(None) };
    let blocks = encoded.len() / BLOCK_SIZE;
    let goal = past.hint().map_or(BlockNo(0), |place| place.start);
    let Some(run) = store.alloc.take_beside(meta, goal, blocks as u32)? else { return Ok(None) };
    let mut bytes = AlignedBuf::zeroed(blocks);
    bytes.copy_from_slice(&encoded);
    Ok(Some((HintPlace { start: run.start, blocks: blocks as u16, generation }, bytes)))
}
