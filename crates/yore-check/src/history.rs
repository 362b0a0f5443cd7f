//! The trees of the past, compared with each other: events, forgotten events and the index of the others;
//! versions, past names, and the changes, which are the ends of both; the annals and their indexes.
//!
//! This step gathers the versions; [`crate::states`] checks with the inodes what the versions name. What is
//! gathered of versions, past names and indexes goes to temporary files if there is more of it than memory.
//! In memory is a time, a name and a number for each event.

mod annals;
mod events;
mod hint;
mod index;
mod names;
mod operations;
mod policies;
mod versions;
mod walk;

use crate::checker::Checker;
use crate::spill::Sorter;
use crate::CheckError;
use versions::Ends;
use yore_format::{HistoryRoots, HISTORY_SHARDS};

impl Checker<'_> {
    /// Walks the trees of the past.
    pub(crate) fn history(&mut self) -> Result<(), CheckError> {
        let Some(roots) = self.history_roots()? else {
            self.history.policies.complete = self.sb.history_root.is_none();
            return Ok(());
        };
        self.history.annals_from = HistoryRoots::annals_counts(&roots).annals_from;
        self.events(&roots)?;
        let mut ends = Ends { keys: Sorter::new(self.room.list()), complete: true };
        for shard in 0..HISTORY_SHARDS {
            self.versions(&roots, shard, &mut ends)?;
            self.past_names(&roots, shard, &mut ends)?;
        }
        self.history.deaths.are_gathered()?;
        self.annals(&roots)?;
        self.history.annals_deaths.are_gathered()?;
        self.hint(&HistoryRoots::annals_counts(&roots))?;
        self.history.versions.are_gathered()?;
        self.changes(&roots, ends)?;
        self.policies(&roots)?;
        self.operations(&roots)
    }
}
