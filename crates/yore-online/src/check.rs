//! The check, what is put right at once, and what is recorded.

use serde::Serialize;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use yore_check::{CheckError, CheckOptions, Finding, Problem, Progress, Recount, Report};
use yore_fs::{Behalf, FindingsRecord, Incarnation, RecordedFinding, RecountUnderWay, Saved, Shadow, View};

/// How to check.
#[derive(Clone, Debug)]
pub struct OnlineOptions {
    /// How many findings to keep for the caller; further ones are only counted. 1,000 unless set.
    pub findings_max: usize,
    /// Bytes of metadata that the check holds at most, 256 MiB unless set.
    pub memory: u64,
    /// Bytes of overwritten metadata that are kept in memory, 64 MiB unless set. More of it goes to a
    /// temporary file.
    pub shadow_memory: u64,
    /// Whether what can be repaired at once is.
    pub repairs: bool,
    /// From how many metadata blocks on they are read in the order of the disk, 128 unless set.
    pub scan_from: u64,
}

impl Default for OnlineOptions {
    fn default() -> OnlineOptions {
        OnlineOptions {
            findings_max: 1000,
            memory: 256 << 20,
            shadow_memory: 64 << 20,
            repairs: true,
            scan_from: CheckOptions::default().scan_from,
        }
    }
}

/// Findings that are worked on; further ones are counted, and the next check sees them.
const FINDINGS: usize = 100_000;
/// How often is checked at most, where repairs lead to others.
const ROUNDS: usize = 8;
/// Behind so many findings is asked whether to go on.
const ASKED: usize = 64;
/// By how much the threads of a check yield to others, as nice(1) says it.
const NICE: i32 = 10;

/// What was found, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct OnlineReport {
    /// What the check found.
    #[serde(flatten)]
    pub report: Report,
    /// Those of the findings that were repaired at once.
    pub repaired: Vec<Finding>,
    /// How many findings are left.
    pub left_count: u64,
    /// Whether they are recorded on the volume; always, but on a mount for reading only.
    pub recorded: bool,
    /// Blocks of metadata that were overwritten during the check, and kept for it.
    pub kept_blocks: u64,
    /// Those of them that were in a temporary file.
    pub kept_in_file: u64,
}

impl OnlineReport {
    /// Whether nothing that was found is left.
    pub fn is_clean(&self) -> bool {
        self.left_count == 0
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum OnlineError {
    /// The volume cannot be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The volume cannot be worked with; [`yore_fs::Error::Refused`] if it is being checked already.
    #[error(transparent)]
    Volume(#[from] yore_fs::Error),
    /// It was broken off.
    #[error("the check was broken off, because the volume is being unmounted; nothing was recorded")]
    BrokenOff,
}

/// What became of a check, before anything is recorded.
struct Counted {
    online: OnlineReport,
    left: Vec<Finding>,
    /// As of the generation that was checked.
    next_incarnation: Option<Incarnation>,
    shadow: Shadow,
}

/// Checks a volume that is in use, repairs what can be repaired at once, and records the rest. `told` learns
/// how far it is, and says whether to go on; it is called by any thread of the check, about ten times a
/// second.
///
/// # Errors
/// [`OnlineError::BrokenOff`] if `told` says so. [`yore_fs::Error::Refused`] if another check is under way.
/// What was repaired stays so.
pub fn check(view: &View, options: &OnlineOptions, told: Told<'_>) -> Result<OnlineReport, OnlineError> {
    let Counted { mut online, left, next_incarnation, shadow } = rounds(view, options, told)?;
    if view.may_write() {
        let record = FindingsRecord {
            sequence: 0,
            generation: online.report.generation,
            seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            count: online.left_count,
            next_incarnation,
            findings: left.iter().map(recorded).collect(),
        };
        view.record_findings(&record)?;
        online.recorded = true;
    }
    // Until here nobody else could record.
    drop(shadow);
    online.report.findings.truncate(options.findings_max);
    Ok(online)
}

/// As [`check`], but records nothing: for what an engine that orders changes has left behind a crash, in the
/// background of a mount. What is left is in the report.
///
/// # Errors
/// As [`check`].
pub fn recount(view: &View, options: &OnlineOptions, told: Told<'_>) -> Result<OnlineReport, OnlineError> {
    Ok(rounds(view, options, told)?.online)
}

/// Checks, and puts right what can be. Where leaks are pending that is repeated: what is left by one repair
/// is found by the next check; and only a check that finds nothing says that none are pending any more.
fn rounds(view: &View, options: &OnlineOptions, told: Told<'_>) -> Result<Counted, OnlineError> {
    // Whatever is done here nobody has asked for: no history is given up for it, and it waits for no recount.
    let view = &view.on_behalf_of(Behalf::Nobody);
    let repairs = options.repairs && view.may_write() && view.leaks_pending();
    let under_way = repairs.then(|| view.begin_recount());
    let under_way = under_way.as_ref();
    if repairs {
        // Otherwise the first change beside the check takes away what the check has found, and nothing is
        // left to be put right here: no further check would say that nothing is left.
        view.end_rows()?;
    }
    let mut counted = count(view, options, under_way, &mut *told)?;
    if !repairs {
        return Ok(counted);
    }
    let (mut is_clean, mut goes_on) = (counted.online.report.is_clean(), !counted.online.repaired.is_empty());
    for _ in 1..ROUNDS {
        if is_clean || !goes_on {
            break;
        }
        // There is one at a time.
        let Counted { online, shadow, .. } = counted;
        drop(shadow);
        let next = count(view, options, under_way, &mut *told)?;
        (is_clean, goes_on) = (next.online.report.is_clean(), !next.online.repaired.is_empty());
        let mut online = OnlineReport { left_count: next.online.left_count, ..online };
        online.repaired.extend(next.online.repaired);
        online.kept_blocks += next.online.kept_blocks;
        online.kept_in_file += next.online.kept_in_file;
        counted = Counted { online, ..next };
    }
    if is_clean {
        view.leaks_are_gone()?;
    }
    Ok(counted)
}

/// Learns how far a check is, and says whether to go on.
pub type Told<'t> = &'t mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send);

fn count(
    view: &View,
    options: &OnlineOptions,
    under_way: Option<&RecountUnderWay>,
    told: Told<'_>,
) -> Result<Counted, OnlineError> {
    let view = view.present();
    // What is made between these two lines is not told apart from what comes later.
    let next_incarnation = view.incarnations_end();
    let shadow = view.shadow(options.shadow_memory)?;
    let check = CheckOptions {
        findings_max: options.findings_max.max(FINDINGS),
        log: view.log_of(&shadow),
        unpromised: shadow.unpromised,
        memory: options.memory,
        scan_from: options.scan_from,
        threads: threads(),
        ..CheckOptions::default()
    };
    let is_over = AtomicBool::new(false);
    let mut last = None;
    let mut watch = |at: &Progress| {
        last = Some(*at);
        if told(at).is_break() {
            is_over.store(true, Ordering::Relaxed);
            shadow.break_off();
        }
    };
    let report = std::thread::scope(|scope| {
        let run = || {
            // Of this thread and those that it starts. A check is as right without it.
            if let Err(error) = rustix::process::nice(NICE) {
                tracing::debug!(%error, "the check runs as fast as everything else");
            }
            yore_check::check_watched(&shadow, &check, &mut watch)
        };
        let thread = std::thread::Builder::new().name("yore-check".into()).spawn_scoped(scope, run);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(report)) => report.map_err(OnlineError::Check),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => {
                let why = format!("cannot start the thread that checks: {error}");
                Err(OnlineError::Volume(yore_fs::Error::Refused(why)))
            }
        }
    });
    if is_over.load(Ordering::Relaxed) {
        return Err(OnlineError::BrokenOff);
    }
    let report = report?;
    let (mut repaired, mut left) = (Vec::new(), Vec::new());
    let rule = (options.repairs && view.may_write()).then(|| Rule::of(&report, &view));
    for (number, finding) in report.findings.iter().enumerate() {
        if number % ASKED == 0 && last.as_ref().is_some_and(|last| told(last).is_break()) {
            return Err(OnlineError::BrokenOff);
        }
        let is_allowed = rule.as_ref().is_some_and(|rule| rule.allows(finding));
        let done = match is_allowed {
            true => put_right(&view, finding),
            false => Ok(false),
        };
        match done {
            Ok(true) => repaired.push(finding.clone()),
            Ok(false) => left.push(finding.clone()),
            Err(error) if is_of_one(&error) => {
                tracing::warn!(%finding, %error, "it stays as it is");
                left.push(finding.clone());
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !repaired.is_empty() {
        view.sync()?;
        if let Some(under_way) = under_way {
            under_way.freed();
        }
    }
    let Saved { blocks, in_file } = shadow.saved();
    let left_count = report.findings_count - repaired.len() as u64;
    let online = OnlineReport {
        report,
        repaired,
        left_count,
        recorded: false,
        kept_blocks: blocks,
        kept_in_file: in_file,
    };
    Ok(Counted { online, left, next_incarnation, shadow })
}

/// How many threads read: of two processors, one is left to others. Two nice threads on two processors made
/// PostMark on a mount a quarter slower, one makes it a twelfth: calls there pass from process to process,
/// and wait for a processor each time.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

/// Whether an error is about one finding alone: others can be put right all the same, and make room. Calls
/// that go on meanwhile, limits and flags of files lead to such errors.
fn is_of_one(error: &yore_fs::Error) -> bool {
    use yore_fs::Error as E;
    matches!(
        error,
        E::Corruption(_)
            | E::Exists
            | E::HashFull { .. }
            | E::IsADirectory
            | E::NeverFits { .. }
            | E::NoSpace
            | E::NotADirectory
            | E::NotEmpty
            | E::NotFound
            | E::NotPermitted { .. }
            | E::Stale
            | E::TooManyLinks
    )
}

/// Puts one finding right, if that can be done while the volume is in use. Returns whether it was.
fn put_right(view: &View, finding: &Finding) -> Result<bool, yore_fs::Error> {
    let Some(recount) = finding.recount() else { return Ok(false) };
    match recount {
        Recount::Blocks { start, len } => Ok(view.free_leaked(start, len)? == u64::from(len)),
        Recount::Links { inode, incarnation, by, is_remembered } => {
            view.lower_links(inode, incarnation, by, is_remembered)
        }
        Recount::Parent { inode, incarnation, directory, cookie } => {
            view.correct_parent(inode, incarnation, (directory, cookie))
        }
        Recount::NamedTwice { inode, incarnation, kept, others } => {
            view.end_further_names(inode, incarnation, kept, &others)
        }
        Recount::Flags { inode, incarnation } => view.correct_flags(inode, incarnation),
        Recount::Unnamed { inode, incarnation, links } => view.end_unnamed(inode, incarnation, links),
        Recount::Counts { inode, incarnation, size, blocks } => {
            view.correct_counts(inode, incarnation, (size, blocks))
        }
        Recount::Totals { free_blocks, inodes, metadata_blocks } => {
            view.correct_totals(free_blocks, inodes, metadata_blocks)?;
            Ok(true)
        }
        Recount::References { block, references, in_use } => view.lower_references(block, references, in_use),
        Recount::PastSpace(growth) => {
            view.correct_past_space(growth)?;
            Ok(true)
        }
        Recount::Node { addr, kind, owner, incarnation } => {
            view.free_unreachable(addr, kind, (owner, incarnation))
        }
        Recount::Beyond { kind, owner, incarnation, low } => {
            view.trim_nodes(kind, (owner, incarnation), &low)
        }
        Recount::Version { inode, born, end } => view.give_up_double_version(inode, born, end),
        Recount::PastName { directory, cookie, birth, end } => {
            view.give_up_double_name(directory, cookie, birth, end)
        }
    }
}

/// Whether a finding is put right at once, given all of them.
struct Rule {
    /// Nothing was found but leaks.
    only_leaks: bool,
    /// Nothing was found but what an engine that orders changes may leave, and the volume may have that.
    after_crash: bool,
    /// The volume may have what such an engine leaves, and these inodes are damaged.
    damaged: Option<HashSet<u64>>,
}

impl Rule {
    fn of(report: &Report, view: &View) -> Rule {
        let pending = view.leaks_pending();
        let is_all = report.findings.len() as u64 == report.findings_count;
        let damaged = report.findings.iter().filter(|f| !f.is_tolerated());
        Rule {
            only_leaks: report.only_leaks(),
            after_crash: pending && is_all && report.findings.iter().all(Finding::is_tolerated),
            damaged: (pending && is_all).then(|| damaged.filter_map(|f| Some(f.inode?.0)).collect()),
        }
    }

    fn allows(&self, finding: &Finding) -> bool {
        if self.after_crash {
            return true;
        }
        match finding.problem {
            // O1, O2.
            Problem::SpaceLeaked | Problem::LinksTooMany => self.only_leaks,
            // O4.
            Problem::InodeBlocks | Problem::DirectorySize => {
                let is_damaged =
                    |damaged: &HashSet<u64>| finding.inode.is_none_or(|no| damaged.contains(&no.0));
                self.damaged.as_ref().is_some_and(|damaged| !is_damaged(damaged))
            }
            _ => false,
        }
    }
}

/// A finding as the volume keeps it.
pub fn recorded(finding: &Finding) -> RecordedFinding {
    RecordedFinding {
        code: finding.problem.code(),
        is_damage: !finding.problem.is_leak(),
        addr: finding.addr,
        block: finding.block,
        inode: finding.inode,
        path: finding.path.clone(),
    }
}
