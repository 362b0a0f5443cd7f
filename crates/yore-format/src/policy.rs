//! Policies: how often versions are made, and how long they are kept, of a directory with all that is below it or of a file.
//!
//! An inode that has one says so in itself; what it is stands in a tree of the past, by the inode's number.

use crate::{Corruption, Incarnation, InodeNo};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// When versions are made, beside snapshots that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Versioning {
    /// Never: only at snapshots.
    Snapshots,
    /// When a file that was changed is closed.
    Close,
    /// So many nanoseconds after the first change since the last one.
    Interval(u64),
}

/// The shortest interval, in nanoseconds: 1 s.
pub const INTERVAL_MIN: u64 = 1_000_000_000;

/// How many snapshots or versions are kept of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepRules {
    /// The last ones.
    pub last: u32,
    /// Of each hour the last one, for so many hours that have one.
    pub hourly: u32,
    /// So of days.
    pub daily: u32,
    /// So of weeks.
    pub weekly: u32,
    /// So of months.
    pub monthly: u32,
    /// So of years.
    pub yearly: u32,
    /// All that are at most so much older than the last one: a duration as `3days`, or nothing.
    pub within: String,
}

/// How long what was is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until somebody forgets it, or there is no room.
    Everything,
    /// What no rule keeps is forgotten.
    Rules(KeepRules),
}

/// What an inode's own policy says; the rest is that of the directory above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// When versions are made.
    pub versioning: Option<Versioning>,
    /// How long they are kept.
    pub retention: Option<Retention>,
}

/// A policy with whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRow {
    /// The inode's incarnation: under the number of another one it means nothing.
    pub incarnation: Incarnation,
    /// What it says.
    pub policy: Policy,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPolicy {
    incarnation: U32,
    versioning: u8,
    retention: u8,
    within_length: u8,
    reserved: u8,
    interval: U64,
    last: U32,
    hourly: U32,
    daily: U32,
    weekly: U32,
    monthly: U32,
    yearly: U32,
}

/// The longest duration of a rule, in bytes.
pub const WITHIN_MAX: usize = 64;

/// The key of an inode's policy.
pub fn policy_key(inode: InodeNo) -> [u8; 8] {
    inode.0.to_be_bytes()
}

impl PolicyRow {
    /// The row as a value.
    ///
    /// # Panics
    /// For a duration of more than [`WITHIN_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (versioning, interval) = match self.policy.versioning {
            None => (0, 0),
            Some(Versioning::Snapshots) => (1, 0),
            Some(Versioning::Close) => (2, 0),
            Some(Versioning::Interval(nanos)) => (3, nanos),
        };
        let none = KeepRules::default();
        let (retention, rules) = match &self.policy.retention {
            None => (0, &none),
            Some(Retention::Everything) => (1, &none),
            Some(Retention::Rules(rules)) => (2, rules),
        };
        assert!(rules.within.len() <= WITHIN_MAX, "a duration of at most {WITHIN_MAX} bytes");
        let raw = RawPolicy {
            incarnation: self.incarnation.0.into(),
            versioning,
            retention,
            within_length: rules.within.len() as u8,
            reserved: 0,
            interval: interval.into(),
            last: rules.last.into(),
            hourly: rules.hourly.into(),
            daily: rules.daily.into(),
            weekly: rules.weekly.into(),
            monthly: rules.monthly.into(),
            yearly: rules.yearly.into(),
        };
        [raw.as_bytes(), rules.within.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<PolicyRow, Box<Corruption>> {
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("policy", field, expected, found));
        let Ok((raw, within)) = RawPolicy::ref_from_prefix(bytes) else {
            return bad("length", "at least 40 bytes", bytes.len().to_string());
        };
        if raw.reserved != 0 {
            return bad("reserved byte", "zero", raw.reserved.to_string());
        }
        let interval = raw.interval.get();
        let versioning = match (raw.versioning, interval) {
            (0, 0) => None,
            (1, 0) => Some(Versioning::Snapshots),
            (2, 0) => Some(Versioning::Close),
            (3, INTERVAL_MIN..) => Some(Versioning::Interval(interval)),
            (0..=3, _) => return bad("interval", "0, or of kind 3 at least 1 s", interval.to_string()),
            (kind, _) => return bad("versioning", "0 to 3", kind.to_string()),
        };
        if within.len() != usize::from(raw.within_length) || within.len() > WITHIN_MAX {
            return bad("length of a duration", "the rest of the row", raw.within_length.to_string());
        }
        let Some(within) = std::str::from_utf8(within).ok().filter(|text| !text.contains(char::is_control))
        else {
            return bad("duration", "a text", String::from_utf8_lossy(within).into_owned());
        };
        let rules = KeepRules {
            last: raw.last.get(),
            hourly: raw.hourly.get(),
            daily: raw.daily.get(),
            weekly: raw.weekly.get(),
            monthly: raw.monthly.get(),
            yearly: raw.yearly.get(),
            within: within.to_string(),
        };
        let retention = match raw.retention {
            2 => Some(Retention::Rules(rules)),
            0 | 1 if rules != KeepRules::default() => {
                return bad("rules", "none without retention by rules", format!("{rules:?}"));
            }
            0 => None,
            1 => Some(Retention::Everything),
            kind => return bad("retention", "0 to 2", kind.to_string()),
        };
        let policy = Policy { versioning, retention };
        Ok(PolicyRow { incarnation: Incarnation(raw.incarnation.get()), policy })
    }
}

/// The layouts of what has a fixed size.
pub(crate) fn layouts() -> Vec<crate::StructLayout> {
    vec![
        crate::tables::layout!("Policy", RawPolicy: incarnation, versioning, retention, within_length, reserved, interval, last, hourly, daily, weekly, monthly, yearly),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<PolicyRow> {
        let rules = KeepRules {
            last: 3,
            hourly: 24,
            yearly: u32::MAX,
            within: "3days".into(),
            ..KeepRules::default()
        };
        let retentions = [
            None,
            Some(Retention::Everything),
            Some(Retention::Rules(KeepRules::default())),
            Some(Retention::Rules(rules)),
        ];
        let versionings = [
            None,
            Some(Versioning::Snapshots),
            Some(Versioning::Close),
            Some(Versioning::Interval(600_000_000_000)),
        ];
        let mut rows = Vec::new();
        for retention in &retentions {
            for versioning in versionings {
                let policy = Policy { versioning, retention: retention.clone() };
                rows.push(PolicyRow { incarnation: Incarnation(7), policy });
            }
        }
        rows
    }

    /// Promises that what is stored is read again.
    #[test]
    fn round_trip() {
        for row in rows() {
            assert_eq!(PolicyRow::decode(&row.encode()).unwrap(), row);
        }
    }

    /// Promises that no byte can be changed into something that is encoded otherwise, and that nothing panics.
    #[test]
    fn each_byte_counts() {
        for row in rows() {
            let bytes = row.encode();
            for at in 0..bytes.len() {
                for flip in [1u8, 0x80, 0xff] {
                    let mut other = bytes.clone();
                    other[at] ^= flip;
                    if let Ok(read) = PolicyRow::decode(&other) {
                        assert_eq!(read.encode(), other, "byte {at}");
                    }
                }
            }
            for length in 0..bytes.len() {
                assert!(PolicyRow::decode(&bytes[..length]).is_err(), "{length} bytes of {row:?}");
            }
        }
    }
}
