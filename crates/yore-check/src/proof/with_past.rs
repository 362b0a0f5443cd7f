//! What the fast pass compares of a volume with a past, or with shared blocks, when all else is summed up.
//!
//! The workers have passed over what inodes with versions hold, but for their names and the entries of
//! directories ([`super::past`]). That is walked here with the versions, from inode to inode, by the code of
//! the walk. So are the claims of shared blocks. Whatever is found is a doubt.

use super::doubt::{ensure, Stop, ODD};
use super::summary::{number_of, InOrder};
use crate::checker::Checker;
use crate::claims::Claimant;
use crate::spill::{Cursor, Sorted};
use crate::state::InUse;
use std::sync::Arc;
use yore_format::{Block, BlockKind, Expect, Inode, InodeNo, MetaAddr};

impl Checker<'_> {
    /// Nothing was found so far.
    pub(super) fn certain(&self) -> Result<(), Stop> {
        ensure(self.findings.is_empty() && !self.incomplete, "something was found")?;
        Ok(())
    }

    /// Compares what inodes with versions hold with what their versions hold, and the claims of shared blocks
    /// with their tables. `nodes` says how many nodes the entries of each directory with versions have.
    pub(super) fn compare_past(&mut self, summary: &InOrder, nodes: &Sorted) -> Result<(), Stop> {
        self.pace.walks_versions();
        let mut shared = summary.shared()?;
        while let Some(claim) = shared.next()? {
            self.claim_data((claim.start, claim.len), (claim.addr, claim.inode), true);
            self.certain()?;
        }
        self.states_in_use(summary, nodes)?;
        self.states_of_gone(summary)?;
        self.shared_counts();
        self.policies_among(summary)?;
        self.certain()
    }

    /// Walks the inodes in use that have versions, with these.
    fn states_in_use(&mut self, summary: &InOrder, nodes: &Sorted) -> Result<(), Stop> {
        let (mut inodes, mut nodes) = (summary.with_versions.all()?, nodes.all()?);
        let mut block: Option<(MetaAddr, Arc<Block>)> = None;
        while let Some(number) = numbered(&inodes) {
            let addr = number.addr();
            let held = match block.take().filter(|(of, _)| *of == addr) {
                Some((_, block)) => block,
                None => self.read_again(addr, &Expect::volume(BlockKind::Inodes))?.ok_or(ODD)?,
            };
            let inode = Inode::decode(Inode::slot(&held, number.slot())).map_err(|_| ODD)?;
            while numbered(&nodes).is_some_and(|of| of < number) {
                nodes.advance()?;
            }
            let own = nodes.get().filter(|_| numbered(&nodes) == Some(number));
            let known = InUse::Summed(own.map_or(0, |(_, nodes)| number_of(nodes)));
            self.begin_claims(Claimant::Inodes(addr.zone()))?;
            self.states(number, Some((known, &inode)))?;
            self.certain()?;
            block = Some((addr, held));
            inodes.advance()?;
        }
        Ok(())
    }

    /// Walks the versions of inodes that are gone.
    fn states_of_gone(&mut self, summary: &InOrder) -> Result<(), Stop> {
        let (mut in_use, mut from) = (summary.with_versions.all()?, InodeNo(0));
        while let Some(number) = self.history.versions.first_from(from)? {
            while numbered(&in_use).is_some_and(|of| of < number) {
                in_use.advance()?;
            }
            if numbered(&in_use) != Some(number) {
                self.begin_claims(Claimant::Gone(number.addr().zone()))?;
                self.states(number, None)?;
                self.certain()?;
            }
            let Some(next) = number.0.checked_add(1) else { break };
            from = InodeNo(next);
        }
        Ok(())
    }

    /// Whether the inodes that say that they have a policy are those that have one.
    fn policies_among(&mut self, summary: &InOrder) -> Result<(), Stop> {
        let rows = std::mem::take(&mut self.history.policies.rows);
        let (mut row, mut inodes) = (rows.all()?, summary.with_policies.all()?);
        while let Some((key, value)) = row.get() {
            let number = InodeNo(number_of(key));
            // Inodes before the next row would have none.
            ensure(numbered(&inodes).is_none_or(|of| of >= number), "an inode without its policy")?;
            let incarnation = value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(ODD)?;
            match inodes.get().filter(|(of, _)| *of == key) {
                Some((_, own)) => {
                    ensure(*own == incarnation.to_le_bytes(), "an inode with a policy of another one")?;
                    inodes.advance()?;
                }
                None => {
                    let is_of = self.is_in_use(number, incarnation)?;
                    ensure(!is_of, "a policy of an inode that does not say so")?;
                }
            }
            row.advance()?;
        }
        ensure(inodes.get().is_none(), "an inode without its policy")?;
        Ok(())
    }

    /// Whether an inode of this incarnation is in use.
    fn is_in_use(&mut self, number: InodeNo, incarnation: u32) -> Result<bool, Stop> {
        let addr = number.addr();
        let Some((zone, _)) = self.locate(addr).filter(|(zone, _)| self.is_inode_block(*zone, addr.index()))
        else {
            return Ok(false);
        };
        debug_assert_eq!(self.zones[zone].number, addr.zone());
        let block = self.read_again(addr, &Expect::volume(BlockKind::Inodes))?.ok_or(ODD)?;
        if Inode::slot_is_free(&block, number.slot()) {
            return Ok(false);
        }
        let inode = Inode::decode(Inode::slot(&block, number.slot())).map_err(|_| ODD)?;
        Ok(inode.incarnation.0 == incarnation)
    }
}

/// The number that is the key of the record here.
fn numbered(cursor: &Cursor<'_>) -> Option<InodeNo> {
    cursor.get().map(|(key, _)| InodeNo(number_of(key)))
}
