//! The complete structural check of a Yore volume, independent of the file system code.
//!
//! The checker reads a volume through [`Device`] and the definitions of `yore-format` alone, so that a
//! mistake in the code that writes volumes cannot hide itself. It is the judge in all tests: it must find
//! every contradiction that the format can express, and nothing on a sound volume.
//!
//! # How it works
//!
//! 0. *Scan*: all metadata is read in the order of the disk; sound blocks are held for the steps below. What
//!    is not held they read themselves. Small volumes are not scanned.
//!    The first scan is the *fast pass* (`proof`): it sums blocks up as they arrive, and mostly proves that
//!    there is nothing to find. (With a past or shared blocks they are held, and summed up behind the scan.)
//!    Then the steps below are left out.
//! 1. *Zones*: superblock → root zones → zone table → zone headers. They are compared with each other. Under
//!    an engine that writes in place behind its log, the log's records are then put in place in memory.
//! 2. *Census*: reads every bitmap and inode block once, and keeps what later steps must know of each inode.
//! 3. *Past*: the trees of events, forgotten events, versions, past names and changes are walked and compared
//!    with each other; versions and the deaths of names are kept for the next step.
//! 4. *Contents*: each inode's content and attributes, and the tree of orphans, are walked. Metadata blocks
//!    that are reached are marked in a bit set for each zone, data blocks in one for each group in use. An
//!    inode's versions are walked with it, from the newest to the oldest, and may name what it names.
//!    Versions of inodes that are gone come last.
//! 5. *Rest*: blocks that exist and were not reached; names against links; orphans; bitmaps against owners;
//!    totals.
//! 6. *Paths*: findings get the paths of their inodes, and what cannot be read is named.
//!
//! # Why any bytes are safe
//!
//! The format's verifiers check every block before the checker looks into it. A block is entered at most
//! once, because the bit of its address is set before. Only nodes that several states of one inode name are
//! met again, once by each, and only so many times for one inode (`walk.rs`). Trees are walked with an
//! explicit stack and descend by one level at each step. So time is bounded by what exists on the medium,
//! each version counted as one more inode, and memory as [`check`] says; findings are kept up to a limit. If
//! something cannot be read, that is reported. What would only follow from its absence (leaks, missing names,
//! totals) is not: that is noise until the cause is repaired.
//!
//! Nothing is ever written by [`check`]. The writers here are [`mark_checked`], and [`Plan::apply`] and
//! [`undo_repair`], which repair a volume and take a repair back (`repair.rs`).

mod chain;
mod checker;
mod claims;
mod content;
mod deaths;
mod directory;
mod error;
mod estimate;
mod extents;
mod finding;
mod follow;
mod held;
mod history;
mod inline;
mod inodes;
mod jobs;
mod key;
mod known;
mod links;
mod overlay;
mod pace;
mod paths;
mod proof;
mod redo;
mod repair;
mod report;
mod scan;
mod settle;
mod shared;
mod space;
mod spill;
mod state;
mod states;
mod superblock;
mod tree;
mod unreached;
mod varint;
mod versions;
mod walk;
mod whole;
mod words;
mod xattrs;
mod zones;

pub use error::CheckError;
pub use estimate::Estimate;
pub use finding::{Class, Finding, FirstOwner, Problem, Recount, Severity, Value};
pub use pace::{Part, Progress, Watcher};
pub use repair::{plan_repair, plan_repair_leaving, repair_of, undo_repair, Done, Loss, Plan};
pub use report::{CheckOptions, Counts, Lost, Report};
pub use scan::Reading;

use checker::Checker;
use overlay::Overlay;
use pace::Pace;
use report::state_name;
use settle::settle_watched;
use std::time::Instant;
use superblock::{is_ended_by_check, read_superblock, Found};
use whole::Way;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::SUPERBLOCKS;
use yore_format::{FindingsRecord, Generation, VolumeState, BLOCK_SIZE};

/// Checks a whole volume. Changes nothing; the device may be open for reading only. Nobody may write to the
/// volume meanwhile, or findings will be about moments that never existed.
///
/// Takes time in proportion to the metadata that exists. Memory: what [`CheckOptions::memory`] says, beyond
/// which inodes, versions, past names and nodes go to temporary files; and in proportion to zones and groups
/// in use, to the events, to the log, to the past lives of one name, and to the versions, tree nodes and
/// extents of one file.
///
/// # Errors
/// [`CheckError::NotAVolume`], [`CheckError::Superblock`] and [`CheckError::SuperblockMissing`] if there is
/// nothing to start from,
/// [`CheckError::Log`] if the log is not where it should be, [`CheckError::Device`] if the device fails.
/// Everything else that is wrong is a finding.
pub fn check(device: &dyn Device, options: &CheckOptions) -> Result<Report, CheckError> {
    run(device, options, None)
}

/// As [`check`], and says meanwhile how far it is: about ten times a second, from whichever thread has got
/// further.
///
/// # Errors
/// As [`check`].
pub fn check_watched(
    device: &dyn Device,
    options: &CheckOptions,
    watcher: Watcher<'_>,
) -> Result<Report, CheckError> {
    run(device, options, Some(watcher))
}

/// Says how long a check would take, after reading a small part of what it would read.
///
/// # Errors
/// As [`check`], for what it reads.
pub fn estimate(device: &dyn Device, options: &CheckOptions) -> Result<Estimate, CheckError> {
    let found = read_superblock(device)?;
    let mut checker = Checker::new(device, &found, options, None);
    checker.pace.is_measured = true;
    Ok(checker.estimate())
}

/// Checks a volume whose chain of checksums is whole.
fn closed<'a>(
    device: &'a dyn Device,
    options: &CheckOptions,
    watcher: Option<&'a mut (dyn FnMut(&Progress) + Send + '_)>,
) -> Result<Report, CheckError> {
    let watcher = watcher.map(|watcher| watcher as Watcher<'a>);
    Ok(whole::run(device, options, watcher, Way::Quick)?.0)
}

/// Settles a volume that was not closed, and says before each zone that nobody knows yet how long the check
/// takes. Returns whether it had to be settled.
fn settled(overlay: &Overlay<'_>, found: &Found, watcher: Option<Watcher<'_>>) -> Result<bool, CheckError> {
    let mut pace = Pace::new(watcher);
    pace.begin_scan(0, found.superblock.metadata_blocks);
    settle_watched(overlay, found, &|| pace.settles_zone())
}

/// A watcher for a part of the check.
fn lent<'s>(watcher: &'s mut Option<Watcher<'_>>) -> Option<Watcher<'s>> {
    watcher.as_mut().map(|watcher| &mut **watcher as Watcher<'s>)
}

fn run(
    device: &dyn Device,
    options: &CheckOptions,
    mut watcher: Option<Watcher<'_>>,
) -> Result<Report, CheckError> {
    let began = Instant::now();
    let overlay = Overlay::new(device);
    let made = repair::make_superblock(&overlay, options)?;
    let found = read_superblock(&overlay)?;
    let is_settled = settled(&overlay, &found, lent(&mut watcher))?;
    let first = repair::found_first(made.as_ref(), &found, is_settled);
    let before = began.elapsed();
    let mut watch = watcher
        .map(|watcher| move |at: &Progress| watcher(&Progress { elapsed: before + at.elapsed, ..*at }));
    let watch = watch.as_mut().map(|watch| watch as &mut (dyn FnMut(&Progress) + Send));
    let mut report = match is_settled || made.is_some() {
        true => closed(&overlay, options, watch)?,
        false => closed(device, options, watch)?,
    };
    report.superblock_slot = found.slot;
    if let Some(first) = first {
        report.begin_with(first, options.findings_max);
    }
    Ok(report)
}

/// Empties the record of findings, after a check of the whole volume that found nothing. Returns whether
/// anything was recorded.
///
/// # Errors
/// [`CheckError::NotAVolume`], [`CheckError::Superblock`], [`CheckError::Device`].
pub fn forget_findings(device: &dyn Device) -> Result<bool, CheckError> {
    let superblock = read_superblock(device)?.superblock;
    let none = FindingsRecord { generation: superblock.generation, ..FindingsRecord::default() };
    let Some((at, block)) = yore_meta::next_findings(device, superblock.uuid, &none)? else {
        return Ok(false);
    };
    device.write_at(at.0 * BLOCK_SIZE as u64, &AlignedBuf::from_slice(&block[..]))?;
    device.flush()?;
    Ok(true)
}

/// What a check of the volume in use has recorded; `None` if nothing is.
///
/// # Errors
/// As [`forget_findings`].
pub fn recorded_findings(device: &dyn Device) -> Result<Option<FindingsRecord>, CheckError> {
    let superblock = read_superblock(device)?.superblock;
    Ok(yore_meta::read_findings(device, superblock.uuid)?.filter(|record| record.count > 0))
}

/// Checks a volume that its engine left in need of a check and, if nothing at all is found, marks it clean:
/// both superblocks are written under new generations, with a flush after each, so that a crash at any moment
/// leaves one of them whole. A volume that is clean already is left as it is.
///
/// # Errors
/// As [`check`]; [`CheckError::NotClean`] if there are findings; [`CheckError::NotMarkable`] if the state is
/// one that only a mount ends: in use under the `snapshot` engine or, because the log holds what was promised
/// since, under `journal`. A device that is read-only fails with [`CheckError::Device`].
pub fn mark_checked(device: &dyn Device) -> Result<(), CheckError> {
    let found = read_superblock(device)?;
    let sb = &found.superblock;
    if sb.state == VolumeState::Clean {
        return Ok(());
    }
    if !is_ended_by_check(sb) {
        let (state, engine) = (state_name(sb.state), sb.engine.name());
        return Err(CheckError::NotMarkable { device: device.describe(), state, engine });
    }
    let report = check(device, &CheckOptions { findings_max: 0, ..CheckOptions::default() })?;
    if !report.is_clean() {
        return Err(CheckError::NotClean { device: device.describe(), findings: report.findings_count });
    }
    if sb.state == VolumeState::LeaksPending && report.counts.log_records > 0 {
        // It was in use. The log holds what was promised since, and nobody reads the log of a clean volume.
        let (state, engine) = (state_name(sb.state), sb.engine.name());
        return Err(CheckError::NotMarkable { device: device.describe(), state, engine });
    }
    if found.newest.0 > u64::MAX - 2 {
        return Err(CheckError::GenerationsUsedUp { device: device.describe(), generation: found.newest.0 });
    }
    let mut marked = found.superblock.clone();
    marked.state = VolumeState::Clean;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    marked.written_seconds = now.map_or(marked.written_seconds, |d| d.as_secs());
    // The slot that does not count goes first: until its flush returns, the other slot is whole and
    // unchanged.
    for (step, slot) in [1 - found.slot, found.slot].into_iter().enumerate() {
        marked.generation = Generation(found.newest.0 + 1 + step as u64);
        device.write_at(SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64, &marked.encode(slot)[..])?;
        device.flush()?;
    }
    Ok(())
}
