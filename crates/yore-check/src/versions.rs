//! The versions of all inodes, which are gathered from the trees of the past in any order, and asked for
//! inode by inode.
//!
//! A version is kept as the trees of versions have it, which is a third of what it is when it is decoded.

use crate::spill::{Room, Sorted, Sorter};
use crate::CheckError;
use yore_format::{EventNo, Inode, InodeNo, MetaAddr, Version};

/// A version, with where it stands.
pub(crate) struct Past {
    pub(crate) end: EventNo,
    pub(crate) inode: Inode,
    pub(crate) addr: MetaAddr,
}

/// All versions.
pub(crate) struct Versions {
    gathered: Sorter,
    count: u64,
    /// By inode, birth and when they came.
    all: Sorted,
}

impl Versions {
    pub(crate) fn new(room: Room) -> Versions {
        Versions { gathered: Sorter::new(room.versions()), count: 0, all: Sorted::default() }
    }

    /// Takes a version that ended at `end` and stands at `addr`.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], as for all that follow.
    pub(crate) fn push(
        &mut self,
        number: InodeNo,
        end: EventNo,
        inode: Inode,
        addr: MetaAddr,
    ) -> Result<(), CheckError> {
        let mut key = [0; 24];
        key[..8].copy_from_slice(&number.0.to_be_bytes());
        key[8..16].copy_from_slice(&inode.born.0.to_be_bytes());
        key[16..].copy_from_slice(&self.count.to_be_bytes());
        self.count += 1;
        let mut value = [end.0.to_le_bytes(), addr.0.to_le_bytes()].concat();
        // Its own end comes beside it, for that may be one that cannot be.
        value.extend(Version { end: EventNo(u64::MAX), inode }.encode());
        self.gathered.push(&key, &value)
    }

    /// From now on they are asked for.
    pub(crate) fn are_gathered(&mut self) -> Result<(), CheckError> {
        let gathered = std::mem::replace(&mut self.gathered, Sorter::new(0));
        self.all = gathered.into_sorted()?;
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// All of them in order. Their keys begin with the inode.
    pub(crate) fn all(&self) -> &Sorted {
        &self.all
    }

    /// The versions of an inode, from the oldest to the newest.
    pub(crate) fn of(&self, number: InodeNo) -> Result<Vec<Past>, CheckError> {
        let mut versions = Vec::new();
        if self.count == 0 {
            return Ok(versions);
        }
        let of = number.0.to_be_bytes();
        let mut cursor = self.all.from(&of)?;
        while let Some((key, value)) = cursor.get().filter(|(key, _)| key.starts_with(&of)) {
            let numbers = [&key[8..16], &value[..8], &value[8..16]];
            let [born, end, addr] = numbers.map(|bytes| <[u8; 8]>::try_from(bytes).expect("8 bytes"));
            let born = EventNo(u64::from_be_bytes(born));
            let version = Version::decode(number, born, &value[16..]);
            // It was decoded before, and then encoded here.
            let inode = version.expect("a version that was decoded before").inode;
            let (end, addr) = (EventNo(u64::from_le_bytes(end)), MetaAddr(u64::from_le_bytes(addr)));
            versions.push(Past { end, inode, addr });
            cursor.advance()?;
        }
        Ok(versions)
    }

    /// The first inode from this number on that has versions.
    pub(crate) fn first_from(&self, number: InodeNo) -> Result<Option<InodeNo>, CheckError> {
        let cursor = self.all.from(&number.0.to_be_bytes())?;
        let number = cursor.get().and_then(|(key, _)| key.first_chunk::<8>().copied());
        Ok(number.map(|number| InodeNo(u64::from_be_bytes(number))))
    }
}
