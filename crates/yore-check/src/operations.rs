//! The tree of operations, and features that must be there for what is.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use yore_format::{
    key_parts, Block, Corruption, HistoryTree, InodeNo, MetaAddr, OperationRow, RowClass, WriteFeatures,
};

impl Checker<'_> {
    /// Walks the tree. Its rows are for people, so each is looked at by itself.
    pub(crate) fn operations(&mut self, roots: &Block) -> Result<(), CheckError> {
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

    /// Reports what a program that does not know a feature would take for damage, if the superblock does not
    /// say that it is there.
    pub(crate) fn needs(&mut self, feature: WriteFeatures, what: &str, place: MetaAddr, of: InodeNo) {
        if !self.sb.features.contains(feature) {
            let expected = format!("feature {} in the superblock", feature.bits());
            self.add(Finding::new(Problem::Feature, expected, what).at(place).of(of));
        }
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
