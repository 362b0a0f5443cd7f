//! Versions: what inodes were.

use crate::{Corruption, EventNo, Inode, InodeNo, INODE_BYTES};

/// Bytes of a version before the words of its inode.
pub const VERSION_FIXED_BYTES: usize = 16;

/// The state of an inode from the number in the key until it changed or the inode ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The number from which this state no longer held.
    pub end: EventNo,
    /// The inode. The content of a directory is empty: births and deaths of the entries say when they
    /// existed.
    pub inode: Inode,
}

/// Bytes of a word of an inode.
const WORD: usize = 4;
/// Words of an inode.
const WORDS: usize = INODE_BYTES / WORD;
const _: () = assert!(INODE_BYTES.is_multiple_of(WORD) && WORDS < 64);

impl Version {
    /// The version as a value: its end, a bit for each word of the inode that is not zero, and these words.
    /// Half of most inodes is zeros.
    pub fn encode(&self) -> Vec<u8> {
        let mut slot = [0; INODE_BYTES];
        self.inode.encode(&mut slot);
        let mut bytes = Vec::with_capacity(VERSION_FIXED_BYTES + INODE_BYTES);
        bytes.extend(self.end.0.to_le_bytes());
        bytes.extend([0; 8]);
        let mut there = 0u64;
        for (i, word) in slot.chunks_exact(WORD).enumerate().filter(|(_, word)| *word != [0; WORD]) {
            there |= 1 << i;
            bytes.extend(word);
        }
        bytes[8..VERSION_FIXED_BYTES].copy_from_slice(&there.to_le_bytes());
        bytes
    }

    /// Decodes the version of `inode` that was born at `born`.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value, or one that is not of this key.
    pub fn decode(no: InodeNo, born: EventNo, bytes: &[u8]) -> Result<Version, Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("version", field, expected, found).of(no))
        };
        let Some((end, rest)) = bytes.split_first_chunk::<8>() else {
            return bad("length", format!("at least {VERSION_FIXED_BYTES}"), bytes.len().to_string());
        };
        let Some((there, words)) = rest.split_first_chunk::<8>() else {
            return bad("length", format!("at least {VERSION_FIXED_BYTES}"), bytes.len().to_string());
        };
        let there = u64::from_le_bytes(*there);
        if there >> WORDS != 0 {
            return bad("words", format!("of the first {WORDS}"), format!("{there:#x}"));
        }
        let expected = VERSION_FIXED_BYTES + WORD * there.count_ones() as usize;
        if bytes.len() != expected {
            return bad("length", expected.to_string(), bytes.len().to_string());
        }
        let mut slot = [0; INODE_BYTES];
        let targets = slot.chunks_exact_mut(WORD).enumerate().filter(|(i, _)| there & (1 << i) != 0);
        for ((_, target), word) in targets.zip(words.chunks_exact(WORD)) {
            if word == [0; WORD] {
                return bad("words", "none that is zero".into(), "one".into());
            }
            target.copy_from_slice(word);
        }
        let end = EventNo(u64::from_le_bytes(*end));
        let inode = Inode::decode(&slot).map_err(|c| c.of(no))?;
        if inode.mode == 0 {
            return bad("mode", "that of a file".into(), "0".into());
        }
        if inode.born != born {
            return bad("birth", format!("{} as in its key", born.0), inode.born.0.to_string());
        }
        if end <= born {
            return bad("end", format!("after its birth at {}", born.0), end.0.to_string());
        }
        Ok(Version { end, inode })
    }
}
