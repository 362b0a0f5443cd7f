//! The progress of a long campaign: kept in a file so that it can go on another day, and printed at the end.
//!
//! The file is text, one `word value` to a line; failures are their replay lines. After each part of the
//! campaign it is written whole, first under another name, so that an interrupted campaign goes on with the
//! part in which it was.

use crate::campaign::{Count, Kind, Kinds, Summary};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The sums of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{line}` is no line of a campaign's file; name another file to begin a new one")]
pub struct ParseTotalsError {
    /// The line.
    pub line: String,
}

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
        let mut totals = Totals::default();
        for line in text.lines() {
            totals.parse_line(line).ok_or_else(|| ParseTotalsError { line: line.to_string() })?;
        }
        Ok(totals)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (word, value) = line.split_once(' ')?;
        match word {
            "seed" => self.seed = value.parse().ok()?,
            "next" => self.next = value.parse().ok()?,
            "milliseconds" => self.time = Duration::from_millis(value.parse().ok()?),
            "failure" => self.failures.push(value.to_string()),
            name => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
                let (sequences, states) = value.split_once(' ')?;
                let count = Count { sequences: sequences.parse().ok()?, states: states.parse().ok()? };
                self.kinds.insert(kind, count);
            }
        }
        Some(())
    }

    fn to_text(&self) -> String {
        let mut text =
            format!("seed {}\nnext {}\nmilliseconds {}\n", self.seed, self.next, self.time.as_millis());
        for (kind, count) in &self.kinds {
            text.push_str(&format!("{} {} {}\n", kind.name(), count.sequences, count.states));
        }
        for line in &self.failures {
            text.push_str(&format!("failure {line}\n"));
        }
        text
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of the host.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut name = path.as_os_str().to_os_string();
        name.push(".new");
        let mut file = std::fs::File::create(&name)?;
        file.write_all(self.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&name, path)
    }

    /// The same as JSON, for other programs.
    pub fn json(&self) -> String {
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|(kind, count)| {
                let (name, sequences, states) = (kind.name(), count.sequences, count.states);
                format!("\"{name}\": {{\"sequences\": {sequences}, \"states\": {states}}}")
            })
            .collect();
        // Replay lines consist of words, numbers and `=:,-`: nothing to escape.
        let failures: Vec<String> = self.failures.iter().map(|line| format!("\"{line}\"")).collect();
        format!(
            "{{\"seed\": {}, \"next\": {}, \"seconds\": {:.1}, \"states\": {}, \"kinds\": {{{}}}, \"failures\": [{}]}}\n",
            self.seed,
            self.next,
            self.time.as_secs_f64(),
            self.states(),
            kinds.join(", "),
            failures.join(", ")
        )
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let (seed, next, states) = (self.seed, self.next, self.states());
        write!(f, "totals: seed {seed}, sequences 0 to {next}, {states} crash states in {seconds:.1} s")?;
        for (kind, count) in &self.kinds {
            write!(f, "; {} {} ({} states)", count.sequences, kind.name(), count.states)?;
        }
        write!(f, "; {} failures", self.failures.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is read back as the totals that wrote it, and nothing else is taken for one.
    #[test]
    fn files_are_read_back() {
        let mut totals = Totals::new(7);
        totals.next = 400;
        totals.time = Duration::from_millis(1234);
        totals.kinds.insert(Kind::Systematic, Count { sequences: 200, states: 30_000 });
        totals.kinds.insert(Kind::Threads, Count { sequences: 50, states: 9_000 });
        totals.failures.push("seed=3 ops=60 crash=4:all".into());
        assert_eq!(Totals::parse(&totals.to_text()).as_ref(), Ok(&totals));
        assert_eq!(totals.states(), 39_000);
        for text in ["seed", "seed x", "fast 1 2", "random 1"] {
            assert!(Totals::parse(text).is_err(), "{text}");
        }
    }
}
