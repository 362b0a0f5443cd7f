//! Checks a volume that is in use.
//!
//! The checker reads one generation of the volume as a whole, through a [`yore_fs::Shadow`], while calls go
//! on and later generations are written. It is the same check as that of a volume that nobody uses, and finds
//! the same.
//!
//! # What is repaired at once
//!
//! What was found is of the past when the check ends. So only that is repaired which no call can have changed
//! since, and where a repair takes nothing away from anybody:
//!
//! - **O1** *Blocks that are marked used and belong to nobody* stay so, because calls take what is free, and
//!   free what somebody has. They are freed, if their bits are still set.
//! - **O2** *Links beyond the names* of an inode: calls change links and names together, so the difference
//!   stays. The links are lowered by it, if one is left.
//!
//! If there is anything but leaks among the findings, nothing is repaired at once. Somebody may own the
//! blocks, in what cannot be read. Damage is never repaired while the volume is in use.
//!
//! # What is recorded
//!
//! Whatever is found and left goes into the volume's record of findings ([`yore_fs::FindingsRecord`]), in
//! place of what was there. A check that leaves nothing empties the record. On a mount for reading only,
//! nothing is repaired and nothing recorded.
//!
//! [`recount`] is the part without the record. An engine that leaves leaks after a crash has it run in the
//! background of a mount.

use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use yore_check::{CheckError, CheckOptions, Finding, Problem, Progress, Report};
use yore_fs::{FindingsRecord, LogPlace, RecordedFinding, Saved, Shadow, View};

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
    let Counted { mut online, left, shadow } = count(view, options, told)?;
    if view.may_write() {
        let record = FindingsRecord {
            sequence: 0,
            generation: online.report.generation,
            seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            count: online.left_count,
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

/// As [`check`], but records nothing: for an engine that leaves leaks after a crash, in the background of a
/// mount. What is left is in the report.
///
/// # Errors
/// As [`check`].
pub fn recount(view: &View, options: &OnlineOptions, told: Told<'_>) -> Result<OnlineReport, OnlineError> {
    Ok(count(view, options, told)?.online)
}

/// Learns how far a check is, and says whether to go on.
pub type Told<'t> = &'t mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send);

fn count(view: &View, options: &OnlineOptions, told: Told<'_>) -> Result<Counted, OnlineError> {
    let view = view.present();
    let shadow = view.shadow(options.shadow_memory)?;
    let check = CheckOptions {
        findings_max: options.findings_max.max(FINDINGS),
        // Everything that the generation has is in place without it, and nothing of it is kept.
        log: if shadow.log_is_elsewhere { LogPlace::Without } else { LogPlace::Recorded },
        memory: options.memory,
        scan_from: options.scan_from,
        ..CheckOptions::default()
    };
    let is_over = AtomicBool::new(false);
    let mut watch = |at: &Progress| {
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
    let repairs = options.repairs && report.only_leaks() && view.may_write();
    for finding in &report.findings {
        match repairs && repair(&view, finding)? {
            true => repaired.push(finding.clone()),
            false => left.push(finding.clone()),
        }
    }
    if !repaired.is_empty() {
        view.sync()?;
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
    Ok(Counted { online, left, shadow })
}

/// Repairs one finding, if that can be done while the volume is in use. Returns whether it was.
fn repair(view: &View, finding: &Finding) -> Result<bool, yore_fs::Error> {
    match finding.problem {
        // O1.
        Problem::SpaceLeaked => match finding.leaked_blocks() {
            Some((start, len)) => Ok(view.free_leaked(start, len)? == u64::from(len)),
            None => Ok(false),
        },
        // O2.
        Problem::LinksTooMany => match (finding.inode, finding.links_too_many()) {
            (Some(inode), Some(by)) => view.lower_links(inode, by),
            _ => Ok(false),
        },
        _ => Ok(false),
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
