//! The tree of policies, and the inodes that have one.

use crate::checker::Checker;
use crate::known::Policies;
use crate::spill::Sorter;
use crate::{CheckError, Finding, Problem};
use yore_format::{Block, HistoryTree, InodeNo, MetaAddr, PolicyRow, WriteFeatures};

impl Checker<'_> {
    /// Walks the tree, and keeps its rows. A policy under the number of an inode that is gone means nothing,
    /// and is removed at some time.
    pub(super) fn policies(&mut self, roots: &Block) -> Result<(), CheckError> {
        // Under the number of each inode: incarnation, and where the row is.
        let mut rows = Sorter::new(self.room.list());
        let mut complete = true;
        let mut walk = Self::past_walk(roots, HistoryTree::Policies);
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (number, value) = leaf.cell(i);
                match PolicyRow::decode(value) {
                    Ok(row) => {
                        if row.policy.is_extended() {
                            let what = "a policy with further fields";
                            self.needs(WriteFeatures::EXTENDED_PAST, what, leaf.addr, InodeNo(number));
                        }
                        let value =
                            [&row.incarnation.0.to_le_bytes()[..], &leaf.addr.0.to_le_bytes()].concat();
                        rows.push(&number.to_be_bytes(), &value)?;
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        complete = false;
                    }
                }
            }
        }
        complete &= walk.is_none_or(|walk| walk.complete);
        self.history.policies = Policies { rows: rows.into_sorted()?, complete };
        Ok(())
    }

    /// Compares what inodes say with the policies found.
    pub(crate) fn policies_of_inodes(&mut self) -> Result<(), CheckError> {
        let Policies { rows, complete } = &mut self.history.policies;
        let (rows, complete) = (std::mem::take(rows), *complete);
        let mut row = rows.all()?;
        for at in 0..self.inodes.len() {
            let known = self.inodes.get(at)?;
            let key = known.number.0.to_be_bytes();
            while row.get().is_some_and(|(number, _)| *number < key[..]) {
                row.advance()?;
            }
            let addr = row.get().filter(|(number, _)| **number == key[..]).and_then(|(_, value)| {
                let addr = value.strip_prefix(&known.incarnation.0.to_le_bytes())?;
                Some(MetaAddr(u64::from_le_bytes(*addr.first_chunk()?)))
            });
            match (known.has_policy, addr) {
                (false, Some(addr)) => {
                    let finding =
                        Finding::new(Problem::Policy, "an inode that says that it has one", "it has none");
                    self.add(finding.at(addr).of(known.number));
                }
                (true, None) if complete => {
                    let finding = Finding::new(Problem::Policy, "a policy of the inode", "none");
                    self.add(finding.at(known.number.addr()).of(known.number));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
