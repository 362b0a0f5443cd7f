//! The one line that replays a run: parsing and printing.
//!
//! `seed=42 ops=60 crash=117:seed=9` means: the 60 operations of seed 42 on a fresh volume, and a crash after
//! entry 117 of which state `seed=9` remained. Further words:
//!
//! - `keep=0,3-7`: only these of the operations.
//! - `engine=journal`: the engine of the volume.
//! - `durability=group`: when calls return.
//! - `profile=model`: compare with the model, no crash.
//! - `profile=full`: the same on a volume that is too small.
//! - `disturb`: another thread syncs all the time. The schedule then decides what happens, so a replay tries
//!   many times.
//! - `use`: the volume was used after the mount.
//! - `repair`: it was repaired behind that (engines that order changes).
//! - `recount`: what the crash has left was recounted while the volume was in use (the same).
//! - `change`: the engine `snapshot` mounted it after the crash.
//! - `again=7`: a second crash, drawn by seed 7, while the volume was mounted after the first.
//! - `third=8`: a third crash, while it was mounted after the second.
//! - `more=9`: after the first crash the sequence of seed 9 was carried out, and the power failed again at
//!   some moments of that.
//! - `profile=systematic`: case number `seed` of [`crate::systematic`].
//! - `threads=3`: this many threads, see [`crate::together`]; the schedule decides here too.
//! - `profile=fsync`: mostly small writes with an fsync.
//! - `profile=shared`: files are copied, so that they share blocks, and changed.
//! - `profile=part`: files and directories are fsynced beside others that leave their changes pending.
//! - `log=16`: a log of this many blocks; the schedule decides when its data is written home.
//! - `elsewhere`: the log is on another disk.
//! - `commits`: generations begin by themselves all the time; the schedule decides when.
//! - `stalled`: syncs stall halfway: see the module `stalled`.
//! - `nearly-full`: hardly any room is left on the volume before the first operation ([`crate::fill`]).
//! - `profile=across`: case number `seed` of [`crate::systematic::across`].
//! - `discard`: freed blocks are discarded, behind every other operation.
//! - `closes`: files are closed after each change, under a policy that makes versions then.
//! - `usual`: the volume has the policy of volumes that `yore mkfs` makes, and with it a snapshot from before
//!   the first operation.
//! - `checksums`: the volume keeps checksums of file data.
//! - `events`: snapshots are taken between the operations ([`crate::past`]); they count as operations.
//! - `expunges`: also, files are expunged from the snapshots.

use crate::fill;
use crate::generate::{sequence, Profile};
use crate::op::Op;
use crate::past::{weave, weave_defragments, weave_expunges, weave_indexing};
use crate::trial::Trial;
use std::fmt;
use std::str::FromStr;
use yore_device::simulated::CrashState;
use yore_fs::{Durability, Engine};

/// A run, or one crash of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Seed of the sequence.
    pub seed: u64,
    /// How many operations are drawn.
    pub ops: usize,
    /// Which of them run; `None`: all.
    pub only: Option<Vec<usize>>,
    /// The purpose for which they are drawn.
    pub profile: Profile,
    /// The engine of the volume.
    pub engine: Engine,
    /// When calls return.
    pub durability: Durability,
    /// Whether another thread syncs all the time.
    pub disturb: bool,
    /// How many threads run sequences; a single thread runs just this one.
    pub threads: usize,
    /// Blocks of the log; `None`: what mkfs makes.
    pub log: Option<u64>,
    /// Whether the log is on another disk.
    pub elsewhere: bool,
    /// Whether age begins generations, at once.
    pub commits: bool,
    /// Whether syncs stall while the sequence goes on.
    pub stalled: bool,
    /// Whether the device is told of freed blocks.
    pub discard: bool,
    /// Whether snapshots are taken.
    pub events: bool,
    /// Whether files are expunged from these.
    pub expunges: bool,
    /// Whether a policy makes versions of files that are closed. Every file is closed after a change.
    pub closes: bool,
    /// Whether the volume is made with the usual policy: a snapshot from before the first operation, and
    /// another each minute.
    pub usual: bool,
    /// Whether the volume keeps checksums of file data.
    pub checksums: bool,
    /// Whether hardly any room is left on the volume.
    pub nearly_full: bool,
    /// The crash.
    pub crash: Option<CrashState>,
    /// What the trial does with the state that the crash left.
    pub trial: Trial,
}

impl Case {
    /// A case of [`crate::systematic`].
    pub fn systematic(number: u64) -> Case {
        let ops = crate::systematic::case(number).len();
        Case::new(number, ops, Profile::Systematic)
    }

    /// Whether another run of it may behave differently.
    pub fn depends_on_schedule(&self) -> bool {
        self.disturb || self.threads > 1 || self.commits || self.log.is_some()
    }

    /// A case of [`crate::systematic::across`].
    pub fn across(number: u64) -> Case {
        let ops = crate::systematic::across(number).len();
        Case { stalled: true, ..Case::new(number, ops, Profile::Across) }
    }

    /// The same with snapshots. A sequence by number keeps all of its operations; in others snapshots replace
    /// the last operations.
    pub fn with_events(self) -> Case {
        let mut case = Case { events: true, ..self };
        if case.is_by_number() {
            case.ops = case.drawn(usize::MAX).len();
        }
        case
    }

    /// The same with snapshots from which files are expunged.
    pub fn with_expunges(self) -> Case {
        Case { expunges: true, ..self }.with_events()
    }

    /// All operations, up to this many.
    fn drawn(&self, count: usize) -> Vec<Op> {
        // Sequences by number end by themselves.
        let ops = sequence(self.seed, if self.is_by_number() { usize::MAX } else { count }, self.profile);
        let mut ops = match self.events {
            true => weave(ops, self.seed, if self.is_by_number() { 2 } else { 8 }, "event"),
            false => ops,
        };
        if self.expunges {
            ops = weave_expunges(ops, self.seed, if self.is_by_number() { 1 } else { 6 });
        }
        if self.events {
            ops = weave_indexing(ops, self.seed, 5);
        }
        if self.events {
            ops = weave_defragments(ops, self.seed, if self.is_by_number() { 3 } else { 8 });
        }
        ops.truncate(count);
        ops
    }

    /// Whether it is a short sequence by number, of which every moment is tried.
    pub(crate) fn is_by_number(&self) -> bool {
        matches!(self.profile, Profile::Systematic | Profile::Across)
    }

    /// A run of a whole sequence with the default engine.
    pub fn new(seed: u64, ops: usize, profile: Profile) -> Case {
        Case {
            seed,
            ops,
            only: None,
            profile,
            engine: Engine::Snapshot,
            durability: Durability::Async,
            disturb: false,
            threads: 1,
            log: None,
            elsewhere: false,
            commits: false,
            stalled: false,
            discard: false,
            events: false,
            expunges: false,
            closes: false,
            usual: false,
            checksums: false,
            nearly_full: false,
            crash: None,
            trial: Trial::default(),
        }
    }

    /// Whether calls that change names or attributes return when that is durable.
    pub(crate) fn settles(&self) -> bool {
        self.durability != Durability::Async || self.engine == Engine::Sync
    }

    /// The words that stand for themselves, with what each switches on. (`use` is about the crash, and stands
    /// behind it.)
    fn switches(&mut self) -> [(&'static str, &mut bool); 11] {
        [
            ("disturb", &mut self.disturb),
            ("elsewhere", &mut self.elsewhere),
            ("commits", &mut self.commits),
            ("stalled", &mut self.stalled),
            ("discard", &mut self.discard),
            ("closes", &mut self.closes),
            ("usual", &mut self.usual),
            ("checksums", &mut self.checksums),
            ("nearly-full", &mut self.nearly_full),
            ("events", &mut self.events),
            ("expunges", &mut self.expunges),
        ]
    }

    /// The operations to carry out.
    pub fn operations(&self) -> Vec<Op> {
        let all = self.drawn(self.ops);
        let mut ops = match &self.only {
            None => all,
            Some(only) => only.iter().filter_map(|number| all.get(*number).cloned()).collect(),
        };
        ops.retain(|op| !self.nearly_full || fill::is_all_or_nothing(op));
        ops
    }

    /// The same run with only these of the drawn operations.
    pub fn with_only(&self, only: &[usize]) -> Case {
        Case { only: Some(only.to_vec()), crash: None, trial: Trial::default(), ..self.clone() }
    }

    /// The numbers of the operations that are carried out.
    pub fn numbers(&self) -> Vec<usize> {
        self.only.clone().unwrap_or_else(|| (0..self.ops).collect())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={} ops={}", self.seed, self.ops)?;
        if let Some(only) = &self.only {
            write!(f, " keep={}", show_ranges(only))?;
        }
        if self.profile != Profile::Crash {
            write!(f, " profile={}", self.profile)?;
        }
        if self.engine != Engine::Snapshot {
            write!(f, " engine={}", self.engine.name())?;
        }
        if self.durability != Durability::Async {
            write!(f, " durability={}", self.durability.name())?;
        }
        if self.threads != 1 {
            write!(f, " threads={}", self.threads)?;
        }
        if let Some(blocks) = self.log {
            write!(f, " log={blocks}")?;
        }
        for (word, _) in self.clone().switches().into_iter().filter(|(_, on)| **on) {
            write!(f, " {word}")?;
        }
        if let Some(crash) = &self.crash {
            write!(f, " {crash}")?;
        }
        if self.trial.use_it {
            write!(f, " use")?;
        }
        if self.trial.repair {
            write!(f, " repair")?;
        }
        if self.trial.recount {
            write!(f, " recount")?;
        }
        if self.trial.change {
            write!(f, " change")?;
        }
        let seeds = [("again", self.trial.again), ("third", self.trial.third), ("more", self.trial.more)];
        for (word, seed) in seeds {
            if let Some(seed) = seed {
                write!(f, " {word}={seed}")?;
            }
        }
        Ok(())
    }
}

fn show_ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let show = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(",")
}

/// A word of a line that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no part of a replay line; one looks like: seed=42 ops=60 crash=117:seed=9")]
pub struct ParseCaseError {
    /// The word.
    pub word: String,
}

impl FromStr for Case {
    type Err = ParseCaseError;

    fn from_str(line: &str) -> Result<Case, ParseCaseError> {
        let mut case = Case::new(0, 60, Profile::Crash);
        for word in line.split_whitespace() {
            parse_word(&mut case, word).ok_or_else(|| ParseCaseError { word: word.to_string() })?;
        }
        Ok(case)
    }
}

fn parse_word(case: &mut Case, word: &str) -> Option<()> {
    if let Some((_, on)) = case.switches().into_iter().find(|(name, _)| *name == word) {
        *on = true;
        return Some(());
    }
    let trials = [
        ("use", &mut case.trial.use_it),
        ("repair", &mut case.trial.repair),
        ("recount", &mut case.trial.recount),
        ("change", &mut case.trial.change),
    ];
    if let Some((_, on)) = trials.into_iter().find(|(name, _)| *name == word) {
        *on = true;
        return Some(());
    }
    let (key, value) = word.split_once('=')?;
    match key {
        "seed" => case.seed = value.parse().ok()?,
        "ops" => case.ops = value.parse().ok()?,
        "keep" => case.only = Some(parse_ranges(value)?),
        "engine" => case.engine = Engine::from_name(value)?,
        "durability" => case.durability = Durability::from_name(value)?,
        "profile" => case.profile = value.parse().ok()?,
        "log" => case.log = Some(value.parse().ok()?),
        "crash" => case.crash = Some(word.parse().ok()?),
        "threads" => case.threads = value.parse().ok().filter(|threads| (1..=16).contains(threads))?,
        "again" => case.trial.again = Some(value.parse().ok()?),
        "third" => case.trial.third = Some(value.parse().ok()?),
        "more" => case.trial.more = Some(value.parse().ok()?),
        _ => return None,
    }
    Some(())
}

fn parse_ranges(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed is read back as the same.
    #[test]
    fn lines_are_read_back() {
        for line in [
            "seed=42 ops=60 crash=117:seed=9",
            "seed=1 ops=200 profile=model",
            "seed=1 ops=200 profile=full engine=none",
            "seed=18446744073709551615 ops=60 keep=0,3-7,9 engine=journal disturb crash=4:all-but=2 use again=3",
            "seed=7 ops=10 keep= crash=0:none:blocks",
            "seed=7 ops=4 profile=systematic crash=3:index=5:blocks again=1 third=2",
            "seed=7 ops=40 threads=3 crash=3:all use more=4",
            "seed=7 ops=40 engine=soft-updates crash=3:all use repair change more=4",
            "seed=7 ops=40 engine=soft-updates crash=3:all recount change",
            "seed=7 ops=60 profile=fsync log=16 commits stalled crash=3:all",
            "seed=7 ops=4 profile=across stalled",
            "seed=7 ops=60 stalled discard events crash=3:all",
            "seed=7 ops=60 checksums events crash=3:all",
            "seed=7 ops=60 nearly-full events crash=3:all",
            "seed=7 ops=60 engine=journal durability=group crash=3:all",
        ] {
            let case: Case = line.parse().expect("it is a line");
            assert_eq!(case.to_string(), line);
        }
        for line in ["seed=x", "ops", "crash=1", "keep=1-x", "engine=fast", "threads=0"] {
            assert!(line.parse::<Case>().is_err(), "{line}");
        }
    }
}
