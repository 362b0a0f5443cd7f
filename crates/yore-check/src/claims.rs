//! Which data blocks the inodes of each zone have claimed, so that the first of two owners can be found.
//!
//! The bit sets of owners say that a block has an owner, and not which. So for each zone the walk notes the
//! runs of blocks that its inodes claim, in the order in which they do. If a block has two owners, the notes
//! say in which zone the first one is. Then only the inodes of that zone are walked once more, of all such
//! zones together.
//!
//! A run takes as many bytes as its length and the distance from the one before need ([`crate::varint`]):
//! mostly two to four for each extent. What does not fit into memory is in a temporary file.

use crate::spill::{Room, Stream};
use crate::varint::{get, put};
use crate::CheckError;
use std::collections::BTreeSet;
use yore_format::ZoneNo;

/// An owner that claims blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claimant {
    /// Zones and the log.
    Volume,
    /// The inodes in use of a zone, with their versions.
    Inodes(ZoneNo),
    /// The versions of inodes of a zone that are gone.
    Gone(ZoneNo),
}

/// All claims, in the order in which they are made: of each run its length and its distance from the one
/// before. In place of a length 0 says that another one claims from there on.
pub(crate) struct Claims {
    runs: Stream,
    by: Claimant,
    /// Where the last run began.
    last: u64,
    /// What is written next.
    bytes: Vec<u8>,
    /// Why some claims could not be noted, until somebody is told.
    failed: Option<CheckError>,
}

impl Claims {
    /// None, in so much room. The volume itself is the first to claim.
    pub(crate) fn new(room: Room) -> Claims {
        Claims {
            runs: Stream::new(room.list()),
            by: Claimant::Volume,
            last: 0,
            bytes: Vec::new(),
            failed: None,
        }
    }

    /// From now on this one claims.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], also if a claim before could not be noted.
    pub(crate) fn begin(&mut self, by: Claimant) -> Result<(), CheckError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if by == self.by {
            return Ok(());
        }
        (self.by, self.last) = (by, 0);
        let (kind, zone) = match by {
            Claimant::Volume => (0, 0),
            Claimant::Inodes(zone) => (1, zone.0),
            Claimant::Gone(zone) => (2, zone.0),
        };
        self.bytes.clear();
        self.bytes.extend([0, kind]);
        put(&mut self.bytes, zone.into());
        self.runs.write(&self.bytes)
    }

    /// Notes a run of blocks.
    pub(crate) fn note(&mut self, start: u64, len: u64) {
        if len == 0 || self.failed.is_some() {
            return;
        }
        let distance = start.wrapping_sub(self.last) as i64;
        self.bytes.clear();
        put(&mut self.bytes, len);
        // The sign comes last, so that small distances stay small numbers.
        put(&mut self.bytes, (distance << 1 ^ distance >> 63) as u64);
        self.failed = self.runs.write(&self.bytes).err();
        self.last = start;
    }

    /// The claimants who were the first to claim one of these blocks.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], also if a claim could not be noted.
    pub(crate) fn first_of(&self, blocks: &BTreeSet<u64>) -> Result<BTreeSet<Claimant>, CheckError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let (mut left, mut first) = (blocks.clone(), BTreeSet::new());
        let (mut by, mut last) = (Claimant::Volume, 0u64);
        let mut runs = self.runs.reader();
        let mut next = || get(|| runs.byte());
        while let Some(len) = next()? {
            if left.is_empty() {
                break;
            }
            if len == 0 {
                let (Some(kind), Some(zone)) = (next()?, next()?) else { break };
                let zone = ZoneNo(zone as u32);
                by = match kind {
                    0 => Claimant::Volume,
                    1 => Claimant::Inodes(zone),
                    _ => Claimant::Gone(zone),
                };
                last = 0;
                continue;
            }
            let Some(distance) = next()? else { break };
            last = last.wrapping_add((distance >> 1) ^ (distance & 1).wrapping_neg());
            let found: Vec<u64> = left.range(last..last.saturating_add(len)).copied().collect();
            for block in found {
                left.remove(&block);
                first.insert(by);
            }
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that the first of several claimants is found for each block, whatever the order and the
    /// distance of runs.
    #[test]
    fn the_first_claimant_is_found() {
        let mut claims = Claims::new(Room::new(0));
        claims.note(0, 1024);
        claims.begin(Claimant::Inodes(ZoneNo(0))).unwrap();
        claims.note(1 << 50, 3);
        claims.note(5000, 1);
        claims.note(4990, 10);
        claims.begin(Claimant::Inodes(ZoneNo(0))).unwrap();
        claims.note(7000, 1 << 20);
        claims.begin(Claimant::Inodes(ZoneNo(4))).unwrap();
        claims.note(4999, 4);
        claims.note(2_000_000, 1);
        claims.begin(Claimant::Gone(ZoneNo(4))).unwrap();
        claims.note(5001, 2);
        let first = |blocks: &[u64]| {
            let first = claims.first_of(&blocks.iter().copied().collect()).unwrap();
            first.into_iter().collect::<Vec<_>>()
        };
        let (zone0, zone4) = (Claimant::Inodes(ZoneNo(0)), Claimant::Inodes(ZoneNo(4)));
        assert_eq!(first(&[1023]), [Claimant::Volume]);
        assert_eq!(first(&[4999]), [zone0]);
        assert_eq!(first(&[(1 << 50) + 2, 5000]), [zone0]);
        assert_eq!(first(&[5002]), [zone4]);
        assert_eq!(first(&[2_000_000, 4990]), [zone0, zone4]);
        assert!(first(&[1024]).is_empty());
    }
}
