//! Annals for a volume that shares blocks already, and has a past in old trees alone.
//!
//! A volume counts the references that its past has ([`yore_format::AnnalsCounts`]) from the first row of its
//! annals on. A past in old trees has as many as it has retained blocks, as long as nothing is shared; so
//! annals begin before the first shared block is made. Some programs did not do that while format 2.3 was
//! made. On what they left, the references are counted when the volume is opened for writing, by one walk
//! over all versions, before anybody can change anything.

use crate::history::reclaim::alone::let_go_by_birth;
use crate::history::record::VersionsWalk;
use crate::store::Store;
use crate::Result;
use std::sync::Arc;

/// How many versions are looked at together.
const BATCH: usize = 64;

/// Begins annals on such a volume. The caller opens it, and nobody else uses it yet.
///
/// # Errors
/// Damage and device errors; those of writing a generation.
pub(crate) fn begin_annals(store: &Arc<Store>) -> Result<()> {
    if !store.past.shares_without_annals(&store.meta) {
        return Ok(());
    }
    let mut references = 0;
    let mut walk = VersionsWalk::default();
    while let Some(found) = store.past.next_versions(&store.meta, &mut walk, BATCH)? {
        for (no, version) in &found {
            // What the next state of the chain does not have any more, nobody in use has at that place.
            let let_go = let_go_by_birth(store, *no, version, |_| ())?;
            references += let_go.by_birth.values().map(|blocks| blocks.left.data).sum::<u64>();
        }
    }
    store.past.begin_annals_with(store, references)
}
