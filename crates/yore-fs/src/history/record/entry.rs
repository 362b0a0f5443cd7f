//! What a name meant.

use crate::InodeNo;
use yore_format::{key_parts, Corruption, DirEntry, EventNo, Incarnation, PastName};

/// The last of the cookies that names of one hash take.
pub(super) const RUN: u64 = 0xff;

/// What a name meant.
#[derive(Clone, Debug)]
pub(crate) struct PastEntry {
    /// The directory.
    pub directory: InodeNo,
    /// The entry's cookie.
    pub cookie: u64,
    /// The first number as of which it meant this.
    pub birth: EventNo,
    /// The first number as of which it no longer did.
    pub death: EventNo,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its type.
    pub kind: crate::FileKind,
    /// The name.
    pub name: Vec<u8>,
}

impl PastEntry {
    /// An entry that is in use.
    pub(crate) fn in_use(directory: InodeNo, cookie: u64, entry: &DirEntry<'_>) -> PastEntry {
        let DirEntry { inode, incarnation, birth, kind, name } = *entry;
        let death = EventNo(u64::MAX);
        PastEntry { directory, cookie, birth, death, inode, incarnation, kind, name: name.to_vec() }
    }

    pub(super) fn decode(key: &[u8], value: &[u8]) -> std::result::Result<PastEntry, Box<Corruption>> {
        let [directory, cookie, birth] = key_parts::<3>(key)?;
        let (directory, birth) = (InodeNo(directory), EventNo(birth));
        let PastName { death, entry } = PastName::decode(birth, value).map_err(|c| c.of(directory))?;
        let DirEntry { inode, incarnation, kind, name, .. } = entry;
        Ok(PastEntry { directory, cookie, birth, death, inode, incarnation, kind, name: name.to_vec() })
    }
}
