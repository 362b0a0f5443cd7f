//! What a check returns, and the list of findings that grows while it runs.

use crate::finding::{FirstOwner, PastRow};
use crate::scan::Reading;
use crate::{Finding, Problem};
use serde::ser::SerializeMap;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use yore_format::{Generation, InodeNo, Superblock};
use yore_meta::LogPlace;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// How many findings to keep; further ones are only counted. 1,000 unless set.
    pub findings_max: usize,
    /// Where the log is, if it has a device of its own: by default where the volume says. Without it, the
    /// volume is checked as its last superblock left it.
    pub log: LogPlace,
    /// Bytes of memory for what grows with the volume, 1 GiB unless set. Metadata blocks that do not fit are
    /// read again when they are needed, and what else does not fit is kept in temporary files, in the
    /// directory that `TMPDIR` names or in `/tmp`. Both take longer.
    pub memory: u64,
    /// From how many metadata blocks on they are read in the order of the disk, 128 unless set. Fewer are
    /// read one by one when a walk comes to them: then threads and large requests cost more than they save.
    pub scan_from: u64,
    /// How many threads read and parse at most; never more than 8, and one unless there is much to read. One
    /// more than there are processors unless set, for some of them wait for the device.
    pub threads: usize,
    /// How many free blocks the superblock does not count: whoever has the volume open knows
    /// ([`yore_meta::Shadow::unpromised`]).
    pub unpromised: u64,
    /// Only for a repair: if it cannot be made otherwise, all of the past is given up, and the present
    /// repaired.
    pub give_up_past: bool,
    /// Only for a repair: if the device ends before the volume does, the volume gets the length of the
    /// device, and what lay beyond is given up.
    pub shorten: bool,
}

/// From how many blocks on a check scans unless it is told.
const SCAN_FROM: u64 = 128;
/// What a check holds at most unless it is told.
const MEMORY: u64 = 1 << 30;

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions {
            findings_max: 1000,
            log: LogPlace::Recorded,
            memory: MEMORY,
            scan_from: SCAN_FROM,
            threads: std::thread::available_parallelism().map_or(1, usize::from) + 1,
            unpromised: 0,
            give_up_past: false,
            shorten: false,
        }
    }
}

/// How much there is of everything, as counted by the check itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Allocation groups that have been used.
    pub groups_used: u64,
    /// Zones, root zones included.
    pub zones: u64,
    /// Metadata blocks beside zone table and headers.
    pub metadata_blocks: u64,
    /// Nodes of trees that were reached.
    pub tree_nodes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Entries in directories.
    pub entries: u64,
    /// Extents of files in use.
    pub extents: u64,
    /// Data blocks of files, those that only the past holds included.
    pub data_blocks: u64,
    /// Those of them that have several references: other files or states share them.
    pub shared_blocks: u64,
    /// Free data blocks, those of groups never used included.
    pub free_blocks: u64,
    /// Extended attributes of inodes in use.
    pub xattrs: u64,
    /// Inodes without names, or with blocks beyond their size.
    pub orphans: u64,
    /// Records in the log, which the next mount replays. Everything else is counted as the generation has it.
    pub log_records: u64,
    /// Events that are kept or being forgotten.
    pub events: u64,
    /// Rollbacks that are not finished, which are among the events.
    pub rollbacks: u64,
    /// Events that were forgotten.
    pub forgotten: u64,
    /// Versions of inodes.
    pub versions: u64,
    /// Entries that directories no longer have.
    pub past_names: u64,
    /// Data blocks that versions name and no inode in use.
    pub history_data_blocks: u64,
    /// Nodes of inodes' trees that versions name and no inode in use.
    pub history_nodes: u64,
    /// Nodes of the trees of the past, and the block of their roots.
    pub history_trees: u64,
}

/// What names lead to and cannot be read, because the block of its inode is damaged or its zone is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Paths of them, at most [`crate::CheckOptions::findings_max`], in ascending order.
    pub paths: Vec<String>,
    /// How many names there are, those without a path here included.
    pub count: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was found, in the order of the check, at most [`crate::CheckOptions::findings_max`].
    pub findings: Vec<Finding>,
    /// How many findings there are, those not kept included.
    pub findings_count: u64,
    /// How many of them are leaks ([`Problem::is_leak`]).
    pub leaks_count: u64,
    /// What names lead to and cannot be read.
    #[serde(flatten, serialize_with = "lost_names")]
    pub lost: Lost,
    /// How much there is of everything.
    pub counts: Counts,
    /// How much was read, and in how many requests.
    pub reading: Reading,
    /// Whether the fast pass proved that there is nothing to find, so that no walk was needed. Then `doubt`
    /// is empty; otherwise it says why not.
    pub proved: bool,
    /// Why the fast pass proved nothing. Empty if there was none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub doubt: &'static str,
    /// The generation that was checked.
    #[serde(serialize_with = "generation_number")]
    pub generation: Generation,
    /// The volume's state: `clean`, `in use`, `must be checked`, `leaks pending`.
    #[serde(serialize_with = "state_text")]
    pub state: yore_format::VolumeState,
    /// The engine that wrote the volume last.
    #[serde(serialize_with = "engine_name")]
    pub engine: yore_format::Engine,
    /// Which superblock slot was believed: 0 or 1.
    pub superblock_slot: u32,
}

impl Report {
    /// Whether nothing at all was found.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    /// Whether nothing was found but leaks (true of a clean volume too).
    pub fn only_leaks(&self) -> bool {
        self.findings_count == self.leaks_count
    }

    /// Whether there are findings, and all are of the kinds that the engine may leave behind a crash.
    pub fn may_be_left(&self) -> bool {
        use yore_format::{Engine, VolumeState};
        matches!(self.engine, Engine::Sync | Engine::SoftUpdates)
            && self.state != VolumeState::Clean
            && !self.findings.is_empty()
            && self.findings.len() as u64 == self.findings_count
            && self.findings.iter().all(Finding::is_tolerated)
    }

    /// Adds what was found before anything else could be.
    pub(crate) fn begin_with(&mut self, first: Finding, findings_max: usize) {
        if std::mem::take(&mut self.proved) {
            self.doubt = "a superblock; all else is proved";
        }
        self.findings_count += 1;
        self.findings.insert(0, first);
        self.findings.truncate(findings_max);
    }

    /// Whether a finding of this problem was kept.
    pub fn has(&self, problem: Problem) -> bool {
        self.findings.iter().any(|f| f.problem == problem)
    }
}

impl fmt::Display for Report {
    /// One line for each finding kept, then a summary, a line for the past if there is any, and one for
    /// unfinished rollbacks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let left = self.findings_count - self.findings.len() as u64;
        if left > 0 {
            writeln!(f, "and {left} more")?;
        }
        for path in &self.lost.paths {
            writeln!(f, "cannot be read: {path:?}")?;
        }
        let left = self.lost.count - self.lost.paths.len() as u64;
        if left > 0 {
            writeln!(f, "and {left} more names lead to what cannot be read")?;
        }
        let c = &self.counts;
        write!(
            f,
            "generation {}, {}, engine {}: {} inodes, {} metadata blocks in {} zones, {} data blocks, {} free; {} \
             findings, {} of them leaks",
            self.generation,
            state_name(self.state),
            self.engine.name(),
            c.inodes,
            c.metadata_blocks,
            c.zones,
            c.data_blocks,
            c.free_blocks,
            self.findings_count,
            self.leaks_count,
        )?;
        if self.may_be_left() {
            write!(
                f,
                "\nthis is what the engine {} may leave behind a crash: no file is damaged; `yore check --repair` puts it \
                 right",
                self.engine.name()
            )?;
        }
        let Counts { events, forgotten, versions, past_names, .. } = c;
        if [events, forgotten, versions, past_names] != [&0; 4] {
            write!(
                f,
                "\nof the past: {events} events, {forgotten} forgotten, {versions} versions, {past_names} names"
            )?;
        }
        if c.rollbacks > 0 {
            write!(
                f,
                "\n{} not finished, which is no damage: mounting the volume finishes what was interrupted; `yore info` \
                 tells what was given up",
                if c.rollbacks == 1 { "a rollback is".to_string() } else { format!("{} rollbacks are", c.rollbacks) }
            )?;
        }
        Ok(())
    }
}

/// The name of a state as people read it.
pub(crate) fn state_name(state: yore_format::VolumeState) -> &'static str {
    use yore_format::VolumeState::*;
    match state {
        Clean => "clean",
        InUse => "in use",
        MustBeChecked => "must be checked",
        LeaksPending => "leaks pending",
    }
}

fn lost_names<S: serde::Serializer>(lost: &Lost, s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(2))?;
    map.serialize_entry("lost", &lost.paths)?;
    map.serialize_entry("lost_count", &lost.count)?;
    map.end()
}

fn generation_number<S: serde::Serializer>(g: &Generation, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(g.0)
}

fn state_text<S: serde::Serializer>(state: &yore_format::VolumeState, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(state_name(*state))
}

fn engine_name<S: serde::Serializer>(engine: &yore_format::Engine, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(engine.name())
}

/// The findings so far. Beyond its limit they are counted and dropped: a volume of nothing but damage must
/// not exhaust memory.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: Vec<Finding>,
    limit: usize,
    count: u64,
    leaks: u64,
}

impl Findings {
    pub(crate) fn new(limit: usize) -> Findings {
        Findings { kept: Vec::new(), limit, count: 0, leaks: 0 }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.count += 1;
        self.leaks += u64::from(finding.problem.is_leak());
        if self.kept.len() < self.limit {
            self.kept.push(finding);
        }
    }

    /// How many are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Says of those that were kept since there were `from` which row of the past they are about.
    pub(crate) fn set_row(&mut self, from: usize, row: &PastRow) {
        for finding in self.kept.iter_mut().skip(from).filter(|finding| finding.row.is_none()) {
            finding.row = Some(row.clone());
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many are kept at most.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The inodes that those concern which are kept.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = InodeNo> + '_ {
        let first = |finding: &Finding| finding.first.as_ref().and_then(|first| first.inode);
        self.kept.iter().flat_map(move |finding| finding.inode.into_iter().chain(first(finding)))
    }

    /// Gives each finding the path of its inode, if there is one.
    pub(crate) fn set_paths(&mut self, paths: &BTreeMap<InodeNo, String>) {
        for finding in &mut self.kept {
            finding.path = finding.inode.and_then(|inode| paths.get(&inode).cloned());
            if let Some(first) = &mut finding.first {
                first.path = first.inode.and_then(|inode| paths.get(&inode).cloned());
            }
        }
    }

    /// The blocks that two have, as far as those findings are kept.
    pub(crate) fn owned_twice(&self) -> BTreeSet<u64> {
        let is_it = |finding: &&Finding| finding.problem == Problem::SpaceOwnedTwice;
        self.kept.iter().filter(is_it).filter_map(|finding| finding.block).map(|block| block.0).collect()
    }

    /// Says who had such a block first.
    pub(crate) fn set_first(&mut self, first: &BTreeMap<u64, FirstOwner>) {
        for finding in self.kept.iter_mut().filter(|finding| finding.problem == Problem::SpaceOwnedTwice) {
            finding.first = finding.block.and_then(|block| first.get(&block.0)).cloned();
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Findings::new(self.limit);
    }

    /// Whether some findings are leaks.
    pub(crate) fn any_leak(&self) -> bool {
        self.leaks > 0
    }

    pub(crate) fn into_report(
        self,
        lost: Lost,
        (counts, reading): (Counts, Reading),
        (proved, doubt): (bool, &'static str),
        sb: &Superblock,
        superblock_slot: u32,
    ) -> Report {
        Report {
            findings: self.kept,
            findings_count: self.count,
            leaks_count: self.leaks,
            lost,
            counts,
            reading,
            proved,
            doubt,
            generation: sb.generation,
            state: sb.state,
            engine: sb.engine,
            superblock_slot,
        }
    }
}
