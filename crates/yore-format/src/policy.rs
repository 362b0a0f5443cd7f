//! Policies: how often versions of a file, or of a directory with all that is below it, are made, and how
//! long they are kept.
//!
//! An inode says whether it has a policy. The policy itself is in a tree of the past, under the inode's
//! number.

use crate::{tagged, Corruption, EventNo, Incarnation, InodeNo};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// When versions are made, beside snapshots that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Versioning {
    /// Never: only at snapshots.
    Snapshots,
    /// When a file that was changed is closed.
    Close,
    /// This many nanoseconds after the first change since the last version.
    Interval(u64),
}

/// The shortest interval, in nanoseconds: 1 s.
pub const INTERVAL_MIN: u64 = 1_000_000_000;

/// Rules for which snapshots or versions are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionRules {
    /// The last ones.
    pub last: u32,
    /// The last one of each hour, for this many hours that have one.
    pub hourly: u32,
    /// The same for days.
    pub daily: u32,
    /// The same for weeks.
    pub weekly: u32,
    /// The same for months.
    pub monthly: u32,
    /// The same for years.
    pub yearly: u32,
    /// All that are older than the last one by at most this duration, such as `3days`; or nothing.
    pub within: String,
}

impl RetentionRules {
    /// The number of a rule that keeps one of each of its periods, however many there are.
    pub const ALL: u32 = u32::MAX;
}

/// How long history is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// Until somebody forgets it, or the volume is full.
    Everything,
    /// As long as a rule keeps it.
    Rules(RetentionRules),
}

/// What an inode's own policy says. The policy of the directory above says the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// When versions are made.
    pub versioning: Option<Versioning>,
    /// How long they are kept.
    pub retention: Option<Retention>,
    /// Patterns for files of which neither intervals nor closes make versions. An empty list excludes
    /// nothing.
    pub exclude: Option<Vec<String>>,
    /// How long only root may forget what is taken under the policy, in nanoseconds; 0: anybody may at once.
    pub hold: Option<u64>,
}

/// A policy, and the inode that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRow {
    /// The inode's incarnation. For another incarnation of that inode the policy means nothing.
    pub incarnation: Incarnation,
    /// What it says.
    pub policy: Policy,
    /// Snapshots that policies took before this number also cover the files that the patterns exclude; 0:
    /// there is no such snapshot. Without patterns it is 0.
    pub excluding_since: EventNo,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPolicy {
    incarnation: U32,
    versioning: u8,
    retention: u8,
    within_length: u8,
    fields: u8,
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

/// The longest list of patterns, in bytes, with an end of line behind each.
pub const EXCLUDE_MAX: usize = 1024;
const EXCLUDE: u8 = 1;
const HOLD: u8 = 2;
const EXCLUDING_SINCE: u8 = 3;

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
        let more = self.encode_more();
        let none = RetentionRules::default();
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
            fields: self.fields(),
            interval: interval.into(),
            last: rules.last.into(),
            hourly: rules.hourly.into(),
            daily: rules.daily.into(),
            weekly: rules.weekly.into(),
            monthly: rules.monthly.into(),
            yearly: rules.yearly.into(),
        };
        [raw.as_bytes(), rules.within.as_bytes(), &more].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<PolicyRow, Box<Corruption>> {
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("policy", field, expected, found));
        let Ok((raw, rest)) = RawPolicy::ref_from_prefix(bytes) else {
            return bad("length", "at least 40 bytes", bytes.len().to_string());
        };
        let interval = raw.interval.get();
        let versioning = match (raw.versioning, interval) {
            (0, 0) => None,
            (1, 0) => Some(Versioning::Snapshots),
            (2, 0) => Some(Versioning::Close),
            (3, INTERVAL_MIN..) => Some(Versioning::Interval(interval)),
            (0..=3, _) => return bad("interval", "0, or of kind 3 at least 1 s", interval.to_string()),
            (kind, _) => return bad("versioning", "0 to 3", kind.to_string()),
        };
        let within_length = usize::from(raw.within_length);
        let (within, more) = rest.split_at(within_length.min(rest.len()));
        if within.len() != within_length || within.len() > WITHIN_MAX {
            return bad("length of a duration", "the rest of the row", raw.within_length.to_string());
        }
        let Some(within) = std::str::from_utf8(within).ok().filter(|text| !text.contains(char::is_control))
        else {
            return bad("duration", "a text", String::from_utf8_lossy(within).into_owned());
        };
        let rules = RetentionRules {
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
            0 | 1 if rules != RetentionRules::default() => {
                return bad("rules", "none without retention by rules", format!("{rules:?}"));
            }
            0 => None,
            1 => Some(Retention::Everything),
            kind => return bad("retention", "0 to 2", kind.to_string()),
        };
        let policy = Policy { versioning, retention, ..Policy::default() };
        let incarnation = Incarnation(raw.incarnation.get());
        let mut row = PolicyRow { incarnation, policy, excluding_since: EventNo(0) };
        row.decode_more(more)?;
        if raw.fields != row.fields() {
            return bad("further fields", "how many there are", raw.fields.to_string());
        }
        Ok(row)
    }

    /// How many tagged fields it takes.
    fn fields(&self) -> u8 {
        let Policy { exclude, hold, .. } = &self.policy;
        u8::from(exclude.is_some()) + u8::from(hold.is_some()) + u8::from(self.excluding_since.0 > 0)
    }

    fn encode_more(&self) -> Vec<u8> {
        let mut fields = tagged::Writer::default();
        assert!(self.policy.exclude.is_some() || self.excluding_since.0 == 0, "it excludes nothing");
        if let Some(patterns) = &self.policy.exclude {
            let fits = patterns.iter().all(|pattern| !pattern.is_empty() && !pattern.contains('\n'));
            // An empty list is one line without a pattern.
            let text = patterns.join("\n") + "\n";
            assert!(fits && tagged::is_storable_text(&text, EXCLUDE_MAX), "patterns: {patterns:?}");
            fields.add(EXCLUDE, text.as_bytes());
        }
        fields.add(HOLD, self.policy.hold.map(u64::to_le_bytes).as_ref().map_or(&[], |b| &b[..]));
        if self.excluding_since.0 > 0 {
            fields.add(EXCLUDING_SINCE, &self.excluding_since.0.to_le_bytes());
        }
        fields.finish()
    }

    fn decode_more(&mut self, bytes: &[u8]) -> Result<(), Box<Corruption>> {
        const WHAT: &str = "policy";
        tagged::read(WHAT, bytes, |tag, field| {
            match tag {
                EXCLUDE => {
                    let text = tagged::text(WHAT, "patterns", EXCLUDE_MAX, field)?;
                    let lines: Option<Vec<String>> = match &text[..] {
                        "\n" => Some(Vec::new()),
                        text => text.strip_suffix('\n').map(|t| t.split('\n').map(String::from).collect()),
                    };
                    let lines = lines.filter(|lines| lines.iter().all(|line| !line.is_empty()));
                    let wrong = || Corruption::new(WHAT, "patterns", "lines, none of them empty", &text);
                    self.policy.exclude = Some(lines.ok_or_else(wrong)?);
                }
                HOLD => self.policy.hold = Some(u64::from_le_bytes(tagged::number(WHAT, "hold", field)?)),
                EXCLUDING_SINCE => {
                    let since = u64::from_le_bytes(tagged::number(WHAT, "excluding since", field)?);
                    if since == 0 || self.policy.exclude.is_none() {
                        let expected = "at least 1, behind patterns";
                        return Err(Corruption::new(WHAT, "excluding since", expected, since));
                    }
                    self.excluding_since = EventNo(since);
                }
                unknown => return Err(Corruption::new(WHAT, "tag", "1 to 3", unknown)),
            }
            Ok(())
        })
    }
}

impl Policy {
    /// Whether the row needs [`crate::WriteFeatures::EXTENDED_PAST`].
    pub fn is_extended(&self) -> bool {
        self.exclude.is_some() || self.hold.is_some()
    }
}

/// The layouts of what has a fixed size.
pub(crate) fn layouts() -> Vec<crate::StructLayout> {
    vec![
        crate::tables::layout!("Policy", RawPolicy: incarnation, versioning, retention, within_length, fields, interval, last, hourly, daily, weekly, monthly, yearly),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<PolicyRow> {
        let rules = RetentionRules {
            last: 3,
            hourly: 24,
            yearly: u32::MAX,
            within: "3days".into(),
            ..RetentionRules::default()
        };
        let retentions = [
            None,
            Some(Retention::Everything),
            Some(Retention::Rules(RetentionRules::default())),
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
                let retention = retention.clone();
                let policy = Policy { versioning, retention, ..Policy::default() };
                let of = |policy, since| PolicyRow {
                    incarnation: Incarnation(7),
                    policy,
                    excluding_since: EventNo(since),
                };
                rows.push(of(policy.clone(), 0));
                let exclude = Some(vec!["*.swp".to_string(), "target/".to_string()]);
                let hold = Some(86_400_000_000_000);
                let both = Policy { exclude, hold, ..policy.clone() };
                rows.push(of(both.clone(), 0));
                rows.push(of(both, 4711));
                let none = Policy { exclude: Some(Vec::new()), ..policy };
                rows.push(of(none, u64::MAX));
            }
        }
        rows
    }

    /// Promises that a stored policy comes back.
    #[test]
    fn round_trip() {
        for row in rows() {
            assert_eq!(PolicyRow::decode(&row.encode()).unwrap(), row);
        }
    }

    /// Promises that no changed byte gives another encoding of the same policy, and that nothing panics.
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
