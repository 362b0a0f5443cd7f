//! The trees of the past, compared with each other: events, forgotten events and the index of the others;
//! versions, past names, and the changes, which are the ends of both; the annals and their indexes.
//!
//! This step gathers the versions; [`crate::states`] checks with the inodes what the versions name. Memory is
//! in proportion to the history: an inode for each version, a name and a number for each name that a
//! directory once had, and, until these trees are done, a time or a key for each of their cells.

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
use crate::CheckError;
use std::collections::BTreeMap;
use versions::Ends;
use yore_format::{HistoryRoots, HISTORY_SHARDS};

impl Checker<'_> {
    /// Walks the trees of the past.
    pub(crate) fn history(&mut self) -> Result<(), CheckError> {
        let Some(roots) = self.history_roots()? else {
            if self.sb.history_root.is_none() {
                self.policies_of_inodes(&BTreeMap::new(), true);
            }
            return Ok(());
        };
        self.history.annals_from = HistoryRoots::annals_counts(&roots).annals_from;
        self.events(&roots)?;
        let mut ends = Ends { keys: vec![Vec::new(); HISTORY_SHARDS], complete: true };
        for shard in 0..HISTORY_SHARDS {
            self.versions(&roots, shard, &mut ends)?;
            self.past_names(&roots, shard, &mut ends)?;
        }
        self.annals(&roots)?;
        self.hint(&HistoryRoots::annals_counts(&roots))?;
        for versions in self.history.versions.values_mut() {
            versions.sort_by_key(|version| version.inode.born);
        }
        self.changes(&roots, ends)?;
        self.policies(&roots)?;
        self.operations(&roots)
    }
}
