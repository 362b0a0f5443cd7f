//! The progress of a long campaign: kept in a file so that it can go on another day, and printed at the end.
//!
//! The file is JSON; failures are their replay lines. After each part of the campaign it is written whole,
//! first under another name, so that an interrupted campaign goes on with the part in which it was.

use crate::campaign::{Kinds, Summary};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The sums of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// The seed of its first sequence.
    pub seed: u64,
    /// The number of the sequence that comes next.
    pub next: u64,
    /// How much of each kind was tried.
    pub kinds: Kinds,
    /// Replay lines.
    pub failures: Vec<String>,
    /// How long it ran.
    pub time: Duration,
}

/// A file that holds no totals.
#[derive(Debug, thiserror::Error)]
#[error("it is no campaign's file ({0}); name another file to begin a new one")]
pub struct ParseTotalsError(#[from] serde_json::Error);

impl Totals {
    /// A campaign that has not begun.
    pub fn new(seed: u64) -> Totals {
        Totals { seed, ..Totals::default() }
    }

    /// Crash states tried.
    pub fn states(&self) -> u64 {
        self.kinds.values().map(|count| count.states).sum()
    }

    /// Adds a part.
    pub fn add(&mut self, part: &Summary) {
        self.next += part.sequences;
        for (kind, count) in &part.kinds {
            let sum = self.kinds.entry(*kind).or_default();
            sum.sequences += count.sequences;
            sum.states += count.states;
        }
        self.failures.extend(part.failures.iter().map(|failure| failure.case.to_string()));
        self.time += part.time;
    }

    /// Reads what [`Totals::save`] wrote.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(text: &str) -> Result<Totals, ParseTotalsError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of the host.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut name = path.as_os_str().to_os_string();
        name.push(".new");
        let mut file = std::fs::File::create(&name)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&name, path)
    }

    /// The sums as JSON, for other programs.
    pub fn json(&self) -> String {
        let seconds = (self.time.as_secs_f64() * 10.0).round() / 10.0;
        let sums = serde_json::json!({
            "seed": self.seed, "next": self.next, "seconds": seconds, "states": self.states(),
            "kinds": self.kinds, "failures": self.failures,
        });
        format!("{sums}\n")
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let (seed, next, states) = (self.seed, self.next, self.states());
        write!(f, "totals: seed {seed}, sequences 0 to {next}, {states} crash states in {seconds:.1} s")?;
        for (kind, count) in &self.kinds {
            write!(f, "; {} {} ({} states)", count.sequences, kind, count.states)?;
        }
        write!(f, "; {} failures", self.failures.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Count, Kind};

    /// A file is read back as the totals that wrote it, and nothing else is taken for one.
    #[test]
    fn files_are_read_back() {
        let mut totals = Totals::new(7);
        totals.next = 400;
        totals.time = Duration::from_millis(1234);
        totals.kinds.insert(Kind::Systematic, Count { sequences: 200, states: 30_000 });
        totals.kinds.insert(Kind::Threads, Count { sequences: 50, states: 9_000 });
        totals.failures.push("seed=3 ops=60 crash=4:all".into());
        let text = serde_json::to_string(&totals).unwrap();
        assert_eq!(Totals::parse(&text).unwrap(), totals);
        assert_eq!(totals.states(), 39_000);
        for text in ["seed", "seed 7", "{\"seed\": 7}", &text.replace("threads", "fast")] {
            assert!(Totals::parse(text).is_err(), "{text}");
        }
    }
}
