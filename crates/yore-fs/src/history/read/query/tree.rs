//! Paths below a directory as of a number, from the bottom up.
//!
//! An inode says where its name is, and the entry there says whether that was so: an inode that no event has
//! seen may have been elsewhere then, without a version that says so ([`at_time::entry_then`]). So a way that
//! leads up to a directory that an event has seen is also one that leads down from it, and everything on it
//! was as it is found.

use crate::history::read::at_time;
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use std::sync::Arc;
use yore_core::inode::DEPTH_MAX;
use yore_format::EventNo;

/// The tree below a directory as of a number. It remembers the paths of directories.
pub(super) struct Tree<'s> {
    store: &'s Arc<Store>,
    pub(super) event: EventNo,
    paths: HashMap<InodeNo, Option<Vec<u8>>>,
}

impl<'s> Tree<'s> {
    pub(super) fn new(store: &'s Arc<Store>, root: InodeNo, event: EventNo) -> Tree<'s> {
        Tree { store, event, paths: HashMap::from([(root, Some(Vec::new()))]) }
    }

    /// The path of a directory from the root of this tree; `None` if it was not in the tree. O(depth · log)
    /// the first time.
    pub(super) fn path(&mut self, directory: InodeNo) -> Result<Option<&[u8]>> {
        let (mut steps, mut at) = (Vec::new(), directory);
        let mut path = loop {
            if let Some(known) = self.paths.get(&at) {
                break known.clone();
            }
            // In the present a way may become a circle while the search follows it.
            let entry_then = match steps.len() < DEPTH_MAX {
                true => at_time::name_of(self.store, at, self.event)?,
                false => None,
            };
            // The root directory of the volume is its own parent, but has no entry.
            let Some(entry_then) = entry_then else {
                self.paths.insert(at, None);
                break None;
            };
            steps.push((at, entry_then.name));
            at = entry_then.directory;
        };
        for (at, name) in steps.into_iter().rev() {
            path = path.map(|above| join(&above, &name));
            self.paths.insert(at, path.clone());
        }
        Ok(self.paths.get(&directory).and_then(Option::as_deref))
    }

    /// Whether a directory was in the tree.
    pub(super) fn has(&mut self, directory: InodeNo) -> Result<bool> {
        Ok(self.path(directory)?.is_some())
    }

    /// The path of a name in a directory, from the root of this tree.
    pub(super) fn path_of(&mut self, directory: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.path(directory)?.map(|above| join(above, name)))
    }
}

/// Appends a name to a path.
pub(super) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        b"" => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}

/// The sort key of a path: what is in a directory comes right after it.
pub(super) fn order(path: &[u8]) -> Vec<u8> {
    path.iter().map(|b| if *b == b'/' { 0 } else { *b }).collect()
}
