//! What metadata stands on: the medium, what the next superblock says beside the zones, the generation gate,
//! and how far the writer is. Nothing here knows of blocks of metadata.
//!
//! **Locks of the whole crate**, in the order in which a thread may take one while it holds another: the
//! superblock's mutex (`writer`, held for the length of a commit) → the leader of the intent log → the
//! generation gate → cache shards → zones → frames. All other locks are leaves, with two exceptions: under
//! the lock of [`Progress`] a thread may look at the list of dirty zones and at the log's notes, and under
//! that of the zones in memory it may look at the zone table and note that one lies apart.

pub(crate) mod features;
pub(crate) mod freed;
pub(crate) mod gate;
pub(crate) mod index;
pub(crate) mod late;
pub(crate) mod ledger;
pub(crate) mod left;
pub(crate) mod limits;
pub(crate) mod medium;
pub(crate) mod order;
pub(crate) mod orders;
pub(crate) mod pending;
pub(crate) mod progress;
pub(crate) mod recorder;
pub(crate) mod shadow;
pub(crate) mod units;
pub(crate) mod waits;

use features::Features;
use freed::Freed;
use gate::Gate;
use ledger::Ledger;
use left::LeftNotes;
use medium::Medium;
use orders::Orders;
use progress::Progress;
use yore_format::{Generation, WriteFeatures};

/// The rooms that all others stand on.
pub(crate) struct Base {
    pub(crate) medium: Medium,
    pub(crate) ledger: Ledger,
    pub(crate) features: Features,
    pub(crate) freed: Freed,
    pub(crate) left: LeftNotes,
    pub(crate) gate: Gate,
    pub(crate) order: Orders,
    pub(crate) progress: Progress,
}

impl Base {
    /// For a volume whose first generation is `first`.
    pub(crate) fn new(medium: Medium, first: Generation, read_only: bool) -> Base {
        let found = medium.found();
        Base {
            ledger: Ledger::new(found),
            features: Features::new(found),
            freed: Freed::default(),
            left: LeftNotes::default(),
            gate: Gate::new(first),
            order: Orders::default(),
            progress: Progress::new(first, read_only),
            medium,
        }
    }

    /// Whether the header of a zone may say that the volume has this length. A volume that was resized has
    /// headers from before.
    pub(crate) fn may_have_been_long(&self, blocks: u64) -> bool {
        self.medium.may_have_length(blocks, self.features.wanted().contains(WriteFeatures::RESIZED))
    }

    /// Flushes the device. A failure stops all writing.
    pub(crate) fn flush(&self) -> crate::error::Result<()> {
        self.medium.device().flush().map_err(|e| {
            self.progress.stop(e.clone().into());
            e.into()
        })
    }
}
