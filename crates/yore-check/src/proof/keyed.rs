//! Sums of keyed hashes, by which two multisets are compared that never are in memory.
//!
//! A hash is that of SipHash-1-3 under keys that each check draws anew and tells nobody. So the values of
//! different inputs are as good as random numbers that were drawn independently, even if somebody made the
//! volume to deceive the check. A sum of such values, each as often as its input occurs, modulo 2^128, is the
//! same for two different multisets with a probability of 2^-128 (of 2^-64 for sums of 64 bits): whatever the
//! other inputs are, only one value of the one that makes the difference would hide it. (If its factor is
//! even, of 2^-128 times the power of two in it; a factor is a count of links and below 2^32.) The checksum
//! of a block lets random damage pass with a probability of 2^-32.

use siphasher::{sip, sip128};
use std::hash::{BuildHasher as _, RandomState};
use yore_format::{FileKind, Incarnation, InodeNo};

/// The keys of one check.
pub(crate) struct Keys {
    names: sip128::SipHasher13,
    places: sip::SipHasher13,
}

impl Keys {
    /// New ones.
    pub(crate) fn draw() -> Keys {
        // The standard library draws the keys of a `RandomState` from the system.
        let draw = || RandomState::new().hash_one(0u64);
        Keys {
            names: sip128::SipHasher13::new_with_keys(draw(), draw()),
            places: sip::SipHasher13::new_with_keys(draw(), draw()),
        }
    }

    /// That there is a name of this inode.
    #[inline]
    pub(crate) fn name(&self, inode: InodeNo, incarnation: Incarnation, kind: FileKind) -> u128 {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&inode.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&incarnation.0.to_le_bytes());
        bytes[12] = kind as u8;
        self.names.hash(&bytes).as_u128()
    }

    /// That a name is in this directory, under this cookie.
    #[inline]
    pub(crate) fn place(&self, directory: InodeNo, incarnation: Incarnation, cookie: u64) -> u64 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&directory.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&incarnation.0.to_le_bytes());
        bytes[12..].copy_from_slice(&cookie.to_le_bytes());
        self.places.hash(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that each part of a name and of a place counts, and that no two checks have the same keys.
    #[test]
    fn every_part_counts() {
        let keys = Keys::draw();
        let name = |n, i, k| keys.name(InodeNo(n), Incarnation(i), k);
        let base = name(16, 1, FileKind::Regular);
        assert_eq!(base, name(16, 1, FileKind::Regular));
        for other in
            [name(17, 1, FileKind::Regular), name(16, 2, FileKind::Regular), name(16, 1, FileKind::Fifo)]
        {
            assert_ne!(base, other);
        }
        let place = |n, i, c| keys.place(InodeNo(n), Incarnation(i), c);
        let base = place(16, 1, 256);
        assert_eq!(base, place(16, 1, 256));
        for other in [place(17, 1, 256), place(16, 2, 256), place(16, 1, 257)] {
            assert_ne!(base, other);
        }
        assert_ne!(base, Keys::draw().place(InodeNo(16), Incarnation(1), 256));
    }
}
