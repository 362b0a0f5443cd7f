//! Sums of keyed hashes, by which two multisets are compared that never are in memory.
//!
//! A hash is that of SipHash-1-3 under keys that each check draws anew and tells nobody. So the values of
//! different inputs are as good as random numbers that were drawn independently, even if somebody made the
//! volume to deceive the check. A sum of such values, each as often as its input occurs, modulo 2^64, is the
//! same for two different multisets with a probability of 2^-64: whatever the other inputs are, only one
//! value of the one that makes the difference would hide it. (If it occurs an even number of times more often
//! in one of them, of 2^-64 times the power of two in that number.) The checksum of a block lets random
//! damage pass with a probability of 2^-32.

use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher as _, RandomState};
use yore_format::{FileKind, Incarnation, InodeNo};

/// The keys of one check.
pub(crate) struct Keys {
    names: SipHasher13,
    places: SipHasher13,
}

impl Keys {
    /// New ones.
    pub(crate) fn draw() -> Keys {
        // The standard library draws the keys of a `RandomState` from the system.
        let draw = || RandomState::new().hash_one(0u64);
        Keys {
            names: SipHasher13::new_with_keys(draw(), draw()),
            places: SipHasher13::new_with_keys(draw(), draw()),
        }
    }

    /// That there is a name of this inode, wherever it is.
    #[inline]
    pub(crate) fn name(&self, (inode, incarnation, kind): Named) -> u64 {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&inode.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&incarnation.0.to_le_bytes());
        bytes[12] = kind as u8;
        self.names.hash(&bytes)
    }

    /// That there is a name of this inode in this directory, under this cookie.
    #[inline]
    pub(crate) fn place(
        &self,
        (inode, incarnation, kind): Named,
        (directory, of_directory): (InodeNo, Incarnation),
        cookie: u64,
    ) -> u64 {
        let mut bytes = [0; 33];
        bytes[..8].copy_from_slice(&inode.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&directory.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&cookie.to_le_bytes());
        bytes[24..28].copy_from_slice(&incarnation.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&of_directory.0.to_le_bytes());
        bytes[32] = kind as u8;
        self.places.hash(&bytes)
    }
}

/// What has a name: an inode, of which incarnation, and of which type.
pub(crate) type Named = (InodeNo, Incarnation, FileKind);

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that each part of a name and of a place counts, and that no two checks have the same keys.
    #[test]
    fn every_part_counts() {
        let keys = Keys::draw();
        let name = |n, i, k| keys.name((InodeNo(n), Incarnation(i), k));
        let base = name(16, 1, FileKind::Regular);
        assert_eq!(base, name(16, 1, FileKind::Regular));
        for other in
            [name(17, 1, FileKind::Regular), name(16, 2, FileKind::Regular), name(16, 1, FileKind::Fifo)]
        {
            assert_ne!(base, other);
        }
        let place =
            |k, of, n, i, c| keys.place((InodeNo(of), Incarnation(7), k), (InodeNo(n), Incarnation(i)), c);
        let kind = FileKind::Regular;
        let base = place(kind, 32, 16, 1, 256);
        assert_eq!(base, place(kind, 32, 16, 1, 256));
        for other in [
            place(FileKind::Fifo, 32, 16, 1, 256),
            place(kind, 33, 16, 1, 256),
            place(kind, 32, 17, 1, 256),
            place(kind, 32, 16, 2, 256),
            place(kind, 32, 16, 1, 257),
            keys.place((InodeNo(32), Incarnation(8), kind), (InodeNo(16), Incarnation(1)), 256),
            Keys::draw().place((InodeNo(32), Incarnation(7), kind), (InodeNo(16), Incarnation(1)), 256),
        ] {
            assert_ne!(base, other);
        }
    }
}
