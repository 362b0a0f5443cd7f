//! Keys of trees, of any width.

use yore_format::NodeRef;

/// Bytes of the longest keys.
const KEY_BYTES: usize = 24;
/// Bytes of the keys of all trees but those of the past.
pub(crate) const KEY_WIDTH: usize = 8;
/// Cookies that one hash of a name can have: those with the same upper bits.
pub(crate) const COLLISIONS: u64 = 256;

/// A key, and zeros after it. Keys of one tree have one width, so these compare as the keys do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Before or equal to every key.
    pub(crate) const FIRST: Key = Key([0; KEY_BYTES]);

    fn of(bytes: &[u8]) -> Key {
        let mut key = Key::FIRST;
        key.0[..bytes.len()].copy_from_slice(bytes);
        key
    }

    /// The first eight bytes, which are all of most keys.
    pub(crate) fn number(self) -> u64 {
        self.0[..KEY_WIDTH].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The bytes of a key of this width.
    pub(crate) fn bytes(&self, width: usize) -> &[u8] {
        &self.0[..width]
    }

    /// The key for people, in parts of eight bytes.
    pub(crate) fn shown(self, width: usize) -> String {
        let part = |bytes: &[u8]| Key::of(bytes).number();
        let parts: Vec<String> =
            self.0[..width].chunks(KEY_WIDTH).map(|bytes| format!("{:#x}", part(bytes))).collect();
        parts.join(":")
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Key {
        Key::of(&number.to_be_bytes())
    }
}

/// Key of cell `i`.
pub(crate) fn key(node: NodeRef<'_>, i: usize) -> Key {
    // The width was compared before, and the verifier knows none above 24.
    Key::of(node.key(i))
}
