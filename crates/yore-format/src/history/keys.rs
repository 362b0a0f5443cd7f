//! The keys of the trees of the past. They are big-endian, so that they sort as bytes.

use crate::{Corruption, EventNo, InodeNo};

/// Set in the first half of a key of the index that begins with the hash of a name.
const NAME_HASH: u64 = 1 << 63;

/// The key of an event in the index of its root.
pub fn event_index_by_root(root: InodeNo, number: EventNo) -> [u8; 16] {
    pair(root.0, number.0)
}

/// The key of an event in the index of its name: 63 bits of SipHash-2-4 of the name.
pub fn event_index_by_name(seed: &[u8; 16], name: &str, number: EventNo) -> [u8; 16] {
    let hash = siphasher::sip::SipHasher24::new_with_key(seed).hash(name.as_bytes());
    pair(hash | NAME_HASH, number.0)
}

/// The key of a version.
pub fn version_key(inode: InodeNo, born: EventNo) -> [u8; 16] {
    pair(inode.0, born.0)
}

/// The key in a tree of changes for a version of an inode that ended at this number.
pub fn version_end_key(end: EventNo, inode: InodeNo) -> [u8; 24] {
    triple(end.0, inode.0, 0)
}

/// The key in a tree of changes for the name with this cookie in a directory that ended at this number.
pub fn name_end_key(death: EventNo, directory: InodeNo, cookie: u64) -> [u8; 24] {
    triple(death.0, directory.0, cookie)
}

/// The key of a past name.
pub fn name_key(directory: InodeNo, cookie: u64, birth: EventNo) -> [u8; 24] {
    triple(directory.0, cookie, birth.0)
}

fn triple(first: u64, second: u64, third: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&pair(first, second));
    key[16..].copy_from_slice(&third.to_be_bytes());
    key
}

pub(super) fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// The numbers in a key, most significant first.
///
/// # Errors
/// [`Corruption`] if the key does not have that many.
pub fn key_parts<const N: usize>(key: &[u8]) -> Result<[u64; N], Box<Corruption>> {
    if key.len() != 8 * N {
        return Err(Corruption::new("key of the history", "length", 8 * N, key.len()));
    }
    let mut parts = [0; N];
    for (part, bytes) in parts.iter_mut().zip(key.chunks_exact(8)) {
        *part = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(parts)
}
