//! The names of crash states, and the plan that says which to produce.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::BLOCK_SIZE;

/// The size of a sector: the unit that no device tears, in bytes.
const SECTOR_SIZE: usize = 512;

/// The unit within which a write that was under way is stored wholly or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tearing {
    /// Writes tear between 512-byte sectors.
    #[default]
    Sectors,
    /// Writes tear between 4096-byte blocks.
    Blocks,
}

impl Tearing {
    /// The size of a cell in bytes.
    pub(super) fn cell_size(self) -> usize {
        match self {
            Tearing::Sectors => SECTOR_SIZE,
            Tearing::Blocks => BLOCK_SIZE,
        }
    }
}

/// What became of the pending writes and discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// None of them reached the medium.
    None,
    /// All of them did, in order.
    All,
    /// All of them did, in order, but the one of this number among the pending (from 0).
    AllBut(usize),
    /// The state of this number in the enumeration of all states.
    Index(u64),
    /// A sample drawn with this seed.
    Seed(u64),
}

/// The name of a state: prints as, and is parsed from, `crash=117:seed=42`, `crash=117:none`,
/// `crash=117:all`, `crash=117:all-but=3` or `crash=117:index=5`, with `:blocks` at the end if only whole
/// blocks are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CrashState {
    /// How many entries happened before the crash.
    pub after_entry: usize,
    /// What became of those that were pending.
    pub choice: Choice,
    /// How their writes may be torn.
    pub tearing: Tearing,
}

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash={}:", self.after_entry)?;
        match self.choice {
            Choice::None => write!(f, "none"),
            Choice::All => write!(f, "all"),
            Choice::AllBut(number) => write!(f, "all-but={number}"),
            Choice::Index(index) => write!(f, "index={index}"),
            Choice::Seed(seed) => write!(f, "seed={seed}"),
        }?;
        match self.tearing {
            Tearing::Sectors => Ok(()),
            Tearing::Blocks => write!(f, ":blocks"),
        }
    }
}

/// A line that does not name a crash state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not name a crash state; it should look like crash=117:seed=42")]
pub struct ParseCrashStateError {
    /// What was given.
    pub text: String,
}

impl FromStr for CrashState {
    type Err = ParseCrashStateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).ok_or_else(|| ParseCrashStateError { text: text.to_string() })
    }
}

fn parse(text: &str) -> Option<CrashState> {
    let mut parts = text.strip_prefix("crash=")?.split(':');
    let after_entry = parts.next()?.parse().ok()?;
    let choice = parts.next()?;
    let choice = match choice.split_once('=').unwrap_or((choice, "")) {
        ("none", "") => Choice::None,
        ("all", "") => Choice::All,
        ("all-but", number) => Choice::AllBut(number.parse().ok()?),
        ("index", index) => Choice::Index(index.parse().ok()?),
        ("seed", seed) => Choice::Seed(seed.parse().ok()?),
        _ => return None,
    };
    let tearing = match (parts.next(), parts.next()) {
        (None, None) => Tearing::Sectors,
        (Some("blocks"), None) => Tearing::Blocks,
        _ => return None,
    };
    Some(CrashState { after_entry, choice, tearing })
}

/// A state that the trace at hand does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrashStateError {
    /// The trace is too short.
    #[error("there is no crash after entry {after_entry}: the trace has {entries} entries; was it recorded by the same run?")]
    NoSuchEntry {
        /// The point asked for.
        after_entry: usize,
        /// The length of the trace.
        entries: usize,
    },
    /// Fewer writes and discards are pending.
    #[error("there is no pending write {number} after entry {after_entry}: {pending} are pending; was the trace recorded by the same run?")]
    NoSuchPending {
        /// The point asked for.
        after_entry: usize,
        /// The number asked for.
        number: usize,
        /// How many are pending.
        pending: usize,
    },
    /// There are fewer states.
    #[error("there is no state {index} after entry {after_entry}; was the trace recorded by the same run?")]
    NoSuchIndex {
        /// The point asked for.
        after_entry: usize,
        /// The number asked for.
        index: u64,
    },
}

/// Which states to produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashPlan {
    /// Produce all states of a point that has at most this many.
    pub exhaustive_max: u64,
    /// At a point with more states: none of the pending writes, all of them, all but one (each, up to this
    /// many), and this many samples.
    pub samples: u64,
    /// The seed of the first sample of each point; the next ones count up from it.
    pub seed: u64,
    /// How writes may be torn.
    pub tearing: Tearing,
    /// After which entries to crash; `None` is after each, and before the first.
    pub after_events: Option<RangeInclusive<usize>>,
    /// Also crash after marks and flushes, which leave no new states but change what was promised.
    pub at_marks: bool,
}

impl Default for CrashPlan {
    /// Up to 64 states or 16 samples for every point, torn sectors, seed 0.
    fn default() -> Self {
        CrashPlan {
            exhaustive_max: 64,
            samples: 16,
            seed: 0,
            tearing: Tearing::Sectors,
            after_events: None,
            at_marks: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that every printed name is read back as the state it names, and that nothing else is taken
    /// for a name.
    #[test]
    fn names_are_read_back() {
        let choices = [
            (Choice::None, "crash=117:none"),
            (Choice::All, "crash=117:all"),
            (Choice::AllBut(3), "crash=117:all-but=3"),
            (Choice::Index(5), "crash=117:index=5"),
            (Choice::Seed(u64::MAX), "crash=117:seed=18446744073709551615"),
        ];
        for (choice, text) in choices {
            for (tearing, end) in [(Tearing::Sectors, ""), (Tearing::Blocks, ":blocks")] {
                let state = CrashState { after_entry: 117, choice, tearing };
                let text = format!("{text}{end}");
                assert_eq!(state.to_string(), text);
                assert_eq!(text.parse(), Ok(state));
            }
        }
        let nonsense = [
            "",
            "crash=",
            "crash=1",
            "crash=1:",
            "crash=1:some",
            "crash=1:seed",
            "crash=1:seed=x",
            "crash=1:all:none",
            "crash=1:all:blocks:",
            "crash=-1:all",
            "crush=1:all",
        ];
        for text in nonsense {
            assert!(text.parse::<CrashState>().is_err(), "{text}");
        }
    }
}
