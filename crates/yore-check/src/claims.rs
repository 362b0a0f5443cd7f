//! Which data blocks the inodes of each zone have claimed, so that the first of two owners can be found.
//!
//! The bit sets of owners say that a block has an owner, and not which. So for each zone the walk notes the
//! runs of blocks that its inodes claim, in the order in which they do. If a block has two owners, the notes
//! say in which zone the first one is. Then only the inodes of that zone are walked once more, of all such
//! zones together.
//!
//! Memory: a run takes as many bytes as its length and the distance from the one before need, seven bits to a
//! byte; mostly two to four for each extent.

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

/// The claims of one claimant.
struct Claimed {
    by: Claimant,
    /// Distance and length of each run.
    runs: Vec<u8>,
    /// Where the last run began.
    last: u64,
}

/// All claims, in the order in which they are made.
#[derive(Default)]
pub(crate) struct Claims(Vec<Claimed>);

impl Claims {
    /// From now on this one claims.
    pub(crate) fn begin(&mut self, by: Claimant) {
        if self.0.last().is_some_and(|last| last.by == by) {
            return;
        }
        if let Some(last) = self.0.last_mut() {
            last.runs.shrink_to_fit();
        }
        self.0.push(Claimed { by, runs: Vec::new(), last: 0 });
    }

    /// Notes a run of blocks.
    pub(crate) fn note(&mut self, start: u64, len: u64) {
        if self.0.is_empty() {
            self.begin(Claimant::Volume);
        }
        let Some(claimed) = self.0.last_mut() else { return };
        let distance = start.wrapping_sub(claimed.last) as i64;
        // The sign comes last, so that small distances stay small numbers.
        put(&mut claimed.runs, (distance << 1 ^ distance >> 63) as u64);
        put(&mut claimed.runs, len);
        claimed.last = start;
    }

    /// The claimants who were the first to claim one of these blocks.
    pub(crate) fn first_of(&self, blocks: &BTreeSet<u64>) -> BTreeSet<Claimant> {
        let (mut left, mut first) = (blocks.clone(), BTreeSet::new());
        for claimed in &self.0 {
            let mut found: BTreeSet<u64> = BTreeSet::new();
            for (start, len) in claimed.runs() {
                found.extend(left.range(start..start.saturating_add(len)));
            }
            if !found.is_empty() {
                first.insert(claimed.by);
            }
            left.retain(|block| !found.contains(block));
            if left.is_empty() {
                break;
            }
        }
        first
    }
}

impl Claimed {
    /// Start and length of each run.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut bytes, mut last) = (self.runs.iter().copied(), 0u64);
        std::iter::from_fn(move || {
            let (distance, len) = (get(&mut bytes)?, get(&mut bytes)?);
            last = last.wrapping_add((distance >> 1) ^ (distance & 1).wrapping_neg());
            Some((last, len))
        })
    }
}

/// Seven bits to a byte, the lowest first; the highest bit of a byte says that there are more.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that the first of several claimants is found for each block, whatever the order and the
    /// distance of runs.
    #[test]
    fn the_first_claimant_is_found() {
        let mut claims = Claims::default();
        claims.note(0, 1024);
        claims.begin(Claimant::Inodes(ZoneNo(0)));
        claims.note(1 << 50, 3);
        claims.note(5000, 1);
        claims.note(4990, 10);
        claims.begin(Claimant::Inodes(ZoneNo(0)));
        claims.note(7000, 1 << 20);
        claims.begin(Claimant::Inodes(ZoneNo(4)));
        claims.note(4999, 4);
        claims.note(2_000_000, 1);
        claims.begin(Claimant::Gone(ZoneNo(4)));
        claims.note(5001, 2);
        let first = |blocks: &[u64]| {
            let first = claims.first_of(&blocks.iter().copied().collect());
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
