//! Past names: what names meant.

use crate::{Corruption, DirEntry, EventNo};

/// Bytes of a past name before its entry.
const DEATH_BYTES: usize = 8;

/// What a name meant until it was removed or came to mean something else. The birth is in the key and in the
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastName<'a> {
    /// The number from which the name no longer meant this.
    pub death: EventNo,
    /// The entry.
    pub entry: DirEntry<'a>,
}

impl<'a> PastName<'a> {
    /// The name as a value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.death.0.to_le_bytes().to_vec();
        self.entry.encode(&mut bytes);
        bytes
    }

    /// Decodes the name born at `birth`.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value, or one that is not of this key.
    pub fn decode(birth: EventNo, bytes: &'a [u8]) -> Result<PastName<'a>, Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("past name", field, expected, found))
        };
        let Some((death, entry)) = bytes.split_first_chunk::<DEATH_BYTES>() else {
            return bad("length", "at least 8 bytes".into(), bytes.len().to_string());
        };
        let death = EventNo(u64::from_le_bytes(*death));
        let entry = DirEntry::decode(entry)?;
        if entry.birth != birth {
            return bad("birth", format!("{} as in its key", birth.0), entry.birth.0.to_string());
        }
        if death <= birth {
            return bad("death", format!("after its birth at {}", birth.0), death.0.to_string());
        }
        Ok(PastName { death, entry })
    }
}
