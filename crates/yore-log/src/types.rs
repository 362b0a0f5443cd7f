//! What programs name when they use a log: regions, identities, numbers, records.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use yore_device::{Device, BLOCK_SIZE};

/// Fewest blocks of a region: the start of a session and one batch must fit, and then there should be a ring.
pub const REGION_BLOCKS_MIN: u64 = 4;
/// Most blocks of a region: the index in memory has 32 bits for each.
pub const REGION_BLOCKS_MAX: u64 = u32::MAX as u64;

/// Which blocks of a device a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first one.
    pub first_block: u64,
    /// How many: [`REGION_BLOCKS_MIN`] to [`REGION_BLOCKS_MAX`].
    pub blocks: u64,
}

impl Region {
    /// All of a device.
    pub fn whole(device: &dyn Device) -> Region {
        Region { first_block: 0, blocks: device.size() / BLOCK_SIZE as u64 }
    }
}

/// The identity of a log. A log that is made anew in the same place needs another one: only the identity
/// tells old records from new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub u64);

impl LogId {
    /// An identity that most probably was never used before.
    pub fn random() -> LogId {
        // The standard library seeds each process's hashers from the system's source of randomness.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(now_ns());
        hasher.write_u32(std::process::id());
        LogId(hasher.finish())
    }
}

/// The user of a stand-alone log: the uuid of a volume whose log lies on another device, for example. Zeros
/// are nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogOwner(pub [u8; 16]);

impl LogOwner {
    pub(crate) fn is_any(&self) -> bool {
        self.0 != [0; 16]
    }
}

impl fmt::Display for LogOwner {
    /// As a uuid.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for LogOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogOwner({self})")
    }
}

/// The number of a record (log sequence number): the first record of a log is 1, and each gets the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The number after this one.
    ///
    /// # Panics
    /// After 2^64 − 1.
    pub fn next(self) -> Lsn {
        Lsn(self.0.checked_add(1).expect("there are fewer than 2^64 records"))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record as it was read, in memory that belongs to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'b> {
    /// Its number.
    pub number: Lsn,
    /// When it was appended: nanoseconds since 1970, by the clock of the host, which may go backwards.
    pub time_ns: u64,
    /// What was appended, its parts one after the other.
    pub contents: &'b [u8],
}

impl Record<'_> {
    /// A copy that owns its contents.
    pub fn to_owned(&self) -> OwnedRecord {
        OwnedRecord { number: self.number, time_ns: self.time_ns, contents: self.contents.to_vec() }
    }
}

/// A record that owns its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Its number.
    pub number: Lsn,
    /// When it was appended: nanoseconds since 1970, by the clock of the host, which may go backwards.
    pub time_ns: u64,
    /// What was appended, its parts one after the other.
    pub contents: Vec<u8>,
}

/// Nanoseconds since 1970; 0 before.
pub(crate) fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
