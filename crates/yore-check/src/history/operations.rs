//! The tree of operations.

use crate::checker::Checker;
use crate::CheckError;
use yore_format::{
    key_parts, Block, Corruption, HistoryTree, InodeNo, OperationRow, RowClass, WriteFeatures,
};

impl Checker<'_> {
    /// Walks the tree. Its rows are for people, so each is checked by itself.
    pub(super) fn operations(&mut self, roots: &Block) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, HistoryTree::Operations);
        let mut is_first = true;
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            if std::mem::take(&mut is_first) {
                let what = "a tree of operations";
                self.needs(WriteFeatures::EXTENDED_PAST, what, leaf.addr, InodeNo::HISTORY);
            }
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                let checked = check_key(key).and_then(|()| OperationRow::decode(value).map(drop));
                if let Err(c) = checked {
                    self.damaged_cell(c, leaf.addr);
                }
            }
        }
        Ok(())
    }
}

fn check_key(key: &[u8]) -> Result<(), Box<Corruption>> {
    let [class, sequence] = key_parts::<2>(key)?;
    if RowClass::from_u64(class).is_none() {
        return Err(Corruption::new("operation", "class", "1 or 2", class));
    }
    match sequence {
        0 => Err(Corruption::new("operation", "sequence", "at least 1", sequence)),
        _ => Ok(()),
    }
}
