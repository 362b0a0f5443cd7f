//! The tree of policies, and the inodes that have one.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{Block, HistoryTree, Incarnation, InodeNo, MetaAddr, PolicyRow, WriteFeatures};

impl Checker<'_> {
    /// Walks the tree. A policy under the number of an inode that is gone means nothing, and is removed at
    /// some time.
    pub(super) fn policies(&mut self, roots: &Block) -> Result<(), CheckError> {
        let mut rows: BTreeMap<InodeNo, (Incarnation, MetaAddr)> = BTreeMap::new();
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
                        rows.insert(InodeNo(number), (row.incarnation, leaf.addr));
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        complete = false;
                    }
                }
            }
        }
        complete &= walk.is_none_or(|walk| walk.complete);
        self.policies_of_inodes(&rows, complete);
        Ok(())
    }

    /// Compares what inodes say with the policies found. If these are `complete`, there are no others.
    pub(super) fn policies_of_inodes(
        &mut self,
        rows: &BTreeMap<InodeNo, (Incarnation, MetaAddr)>,
        complete: bool,
    ) {
        let mut findings = Vec::new();
        for known in &self.inodes {
            let row = rows.get(&known.number).filter(|(incarnation, _)| *incarnation == known.incarnation);
            match (known.has_policy, row) {
                (false, Some((_, addr))) => {
                    let finding =
                        Finding::new(Problem::Policy, "an inode that says that it has one", "it has none");
                    findings.push(finding.at(*addr).of(known.number));
                }
                (true, None) if complete => {
                    let finding = Finding::new(Problem::Policy, "a policy of the inode", "none");
                    findings.push(finding.at(known.number.addr()).of(known.number));
                }
                _ => {}
            }
        }
        for finding in findings {
            self.add(finding);
        }
    }
}
