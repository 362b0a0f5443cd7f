//! Repair: rules that put right what a check found, tried in memory first.
//!
//! A repair is a [`Plan`]. It changes blocks in front of the device ([`overlay`]), in rounds: the whole check
//! reads what the last round would leave, and the rule of each finding ([`rules`]) changes what it must. So
//! whatever a rule brings about is judged by the same check as the volume itself, and a rule may leave what
//! follows from it (a total, a count of blocks) to the round after it. The rounds end when nothing is found,
//! when no rule changes anything, or after [`ROUNDS_MAX`].
//!
//! # All or nothing
//!
//! A plan is applied only if its last check found nothing. A volume with a finding that has no rule is left
//! as it is: half a repair could destroy what somebody might still read. Before the first block is written,
//! what the repair overwrites is on stable storage in the undo file ([`undo`]).
//!
//! The past comes after the present: if a repair cannot be made otherwise, and [`CheckOptions::give_up_past`]
//! says so, all of the past is given up, and the rounds go on.
//!
//! # Where changes go
//!
//! Metadata is written as a generation writes it: a changed block into a slot of its zone that nothing used
//! before, then the zone's other header slot, the table, and last the superblock slot that did not count
//! ([`volume`]). A crash while a plan is applied leaves the volume as it was, but for blocks that found no
//! free slot; and the undo file makes those whole, too.
//!
//! # The log
//!
//! A log with records that no mount has put in place is newer than everything else. So its records are put in
//! place first, as a mount would do it, and the superblock of the repair leaves the log empty ([`log`]).

mod content;
mod facts;
mod found;
mod log;
mod names;
mod owners;
mod past;
mod round;
mod rows;
mod rules;
mod shorten;
mod superblocks;
mod tree;
mod undo;
mod volume;
mod zones;

pub use round::Loss;
pub(crate) use superblocks::{found_first, make_superblock};

use crate::finding::{FindingPlace, PastRow};
use crate::overlay::Overlay;
use crate::settle::settle;
use crate::superblock::{is_ended_by_check, read_superblock};
use crate::whole::{self, Way};
use crate::{CheckError, CheckOptions, Class, Finding, Problem, Report};
use log::Notes;
use round::Round;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use volume::Volume;
use yore_device::Device;
use yore_format::{FindingsRecord, Superblock, VolumeState, ZoneNo};

/// Most rounds of a repair.
const ROUNDS_MAX: u32 = 40;
/// Findings that one round looks at; the round after it sees the others.
const FINDINGS_OF_A_ROUND: usize = 100_000;

/// A finding that a rule put right.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What the repair does about it.
    pub repair: &'static str,
    /// What is lost by that.
    pub lost: Vec<Loss>,
    /// In which round; what is found in later rounds mostly follows from earlier ones.
    pub round: u32,
}

/// What a repair would do, and how the volume would be after it.
pub struct Plan<'a> {
    device: &'a dyn Device,
    overlay: Overlay<'a>,
    /// The superblock before, and the slot that the repair writes.
    superblock: Superblock,
    slot: u32,
    /// What was found on the volume.
    pub before: Report,
    /// What would be found after the repair.
    pub after: Report,
    /// What was done, in this order.
    pub done: Vec<Done>,
    /// What is lost.
    pub lost: Vec<Loss>,
    /// Records of the log that were put in place, before anything else.
    pub log_records: u64,
    /// What is to be left as it is.
    left: Vec<Finding>,
}

impl std::fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (done, lost) = (&self.done, &self.lost);
        f.debug_struct("Plan").field("done", done).field("lost", lost).finish_non_exhaustive()
    }
}

/// What the repair of a finding does, in words; `None` if it has no repair yet.
pub fn repair_of(problem: Problem) -> Option<&'static str> {
    rules::of(problem).map(|rule| rule.words)
}

/// Finds out what a repair would do. Writes nothing.
///
/// Takes a check for each round: two at least, and mostly three or four. Memory: as a check, and the blocks
/// that change.
///
/// # Errors
/// As [`crate::check`]; [`CheckError::LogNotReplayed`] if the log has file data for which no block is free;
/// [`CheckError::GenerationsUsedUp`].
pub fn plan_repair<'a>(device: &'a dyn Device, options: &CheckOptions) -> Result<Plan<'a>, CheckError> {
    plan_repair_leaving(device, options, &[])
}

/// As [`plan_repair`], of all but these findings, which stay as they are. The plan is complete if nothing
/// else would be found.
///
/// # Errors
/// As [`plan_repair`]; [`CheckError::LogNeedsAll`] if the log has file data, and what is left cannot be read.
pub fn plan_repair_leaving<'a>(
    device: &'a dyn Device,
    options: &CheckOptions,
    left: &[Finding],
) -> Result<Plan<'a>, CheckError> {
    let places = places_of(left);
    let is_left = |finding: &Finding| places.contains(&finding.place());
    let is_done = |report: &Report| {
        report.findings_count == report.findings.len() as u64 && report.findings.iter().all(is_left)
    };
    let overlay = Overlay::new(device);
    let made = make_superblock(&overlay, options)?;
    let found = read_superblock(&overlay)?;
    let is_settled = settle(&overlay, &found)?;
    let first = found_first(made.as_ref(), &found, is_settled);
    let options = CheckOptions { findings_max: FINDINGS_OF_A_ROUND, ..options.clone() };
    let (mut before, mut done, mut lost): (Option<Report>, Vec<Done>, Vec<Loss>) =
        (None, Vec::new(), Vec::new());
    let mut slot = if made.is_some() { found.slot } else { 1 - found.slot };
    if let Some(first) = &first {
        let repair = repair_of(first.problem).unwrap_or_default();
        let of_it = made.as_ref().map_or_else(Vec::new, |made| made.lost.clone());
        done.push(Done { finding: first.clone(), repair, lost: of_it.clone(), round: 0 });
        lost.extend(of_it);
    }
    let (mut round, mut has_new_indexes) = (0, false);
    let (mut log_records, mut is_log_read, mut notes) = (0, false, Notes::default());
    let after = loop {
        let (report, seen) = whole::run(&overlay, &options, None, Way::Walk)?;
        let before = before.get_or_insert_with(|| {
            let mut before = report.clone();
            first.iter().for_each(|first| before.begin_with(first.clone(), options.findings_max));
            before
        });
        if made.iter().any(|made| is_left(&made.finding)) {
            // All else was found with the superblock that is not to be made.
            break before.clone();
        }
        if is_done(&report) && !notes.is_empty() {
            let mut now = Round::new(Volume::open(&overlay)?, seen);
            now.restore(std::mem::take(&mut notes), log_records)?;
            lost.append(&mut now.lost);
            now.volume.flush()?;
            round += 1;
            continue;
        }
        if is_done(&report) || round >= ROUNDS_MAX {
            Round::new(Volume::open(&overlay)?, seen).name(&mut lost)?;
            break report;
        }
        round += 1;
        let mut volume = Volume::open(&overlay)?;
        volume.reached = seen.zones.iter().map(|zone| (zone.number, zone.reached)).collect();
        slot = volume.superblock_slot();
        let findings: Vec<Finding> = report.findings.iter().filter(|f| !is_left(f)).cloned().collect();
        if let Some(geometry) = volume.shorter().filter(|_| options.shorten) {
            let of_end =
                |f: &&Finding| matches!(f.problem, Problem::DeviceTooShort | Problem::BlockBeyondDevice);
            let mut given_up = volume.shorten(geometry)?;
            lost.extend(given_up.iter().cloned());
            // All of it is said of the first of them, the length of the device.
            done.extend(findings.iter().filter(of_end).map(|finding| Done {
                finding: finding.clone(),
                repair: repair_of(finding.problem).unwrap_or_default(),
                lost: std::mem::take(&mut given_up),
                round,
            }));
            volume.flush()?;
            continue;
        }
        // Zones and the log come first, or nothing does.
        let is_first = |f: &&Finding| f.problem.class() == Class::Zone || f.problem == Problem::LogDamaged;
        let is_first_left = report.findings.iter().filter(is_first).any(is_left);
        if is_first_left && (seen.log_is_damaged || !volume.is_whole()) {
            break report;
        }
        let has_log = report.counts.log_records > 0 || seen.log_is_damaged;
        if has_log && !is_log_read && volume.is_whole() {
            // Once: the superblock says from now on that there is nothing in it.
            is_log_read = true;
            let contents = seen.log_contents(&options.log)?;
            log_records = contents.records.len() as u64;
            notes = volume.empty_log(&contents, &mut lost)?;
            let of_log = report.findings.iter().filter(|finding| finding.problem == Problem::LogDamaged);
            let words = repair_of(Problem::LogDamaged).unwrap_or_default();
            let of_log: Vec<&Finding> = of_log.collect();
            done.extend(of_log.into_iter().map(|finding| Done {
                finding: finding.clone(),
                repair: words,
                lost: lost.clone(),
                round,
            }));
            volume.flush()?;
            continue;
        }
        let mut now = Round { has_new_indexes, ..Round::new(volume, seen) };
        let changed = now.all(&findings, round, &mut done)?;
        lost.append(&mut now.lost);
        has_new_indexes = now.has_new_indexes;
        let mut is_changed = changed && now.volume.flush()?;
        if !is_changed && options.give_up_past && now.volume.give_up_past() {
            let what = "everything that snapshots and other events of the past have seen is given up";
            lost.push(Loss { path: "the past".into(), what: what.into(), unnamed: None });
            is_changed = now.volume.flush()?;
        }
        if !is_changed {
            break report;
        }
    };
    if after.is_clean() {
        let mut volume = Volume::open(&overlay)?;
        // Nobody reads the log of a clean volume. If it has records, a mount goes through them, and recounts.
        let is_logged = volume.sb.state == VolumeState::LeaksPending && after.counts.log_records > 0;
        if !done.is_empty() && !is_logged && is_ended_by_check(&volume.sb) {
            volume.sb.state = VolumeState::Clean;
        }
        volume.flush()?;
        let none = FindingsRecord { generation: volume.sb.generation, ..FindingsRecord::default() };
        if let Some((at, block)) =
            yore_meta::next_findings(&overlay, volume.sb.uuid, &none)?.filter(|_| left.is_empty())
        {
            // Nothing would be found any more, so nothing is recorded.
            overlay.write(at, &block);
        }
    }
    let before = before.unwrap_or_else(|| after.clone());
    Ok(Plan {
        device,
        overlay,
        superblock: found.superblock,
        slot,
        before,
        after,
        done,
        lost,
        log_records,
        left: left.to_vec(),
    })
}

/// What identifies these findings: with `--repair=ask` there may be as many as a round looks at.
fn places_of(findings: &[Finding]) -> BTreeSet<FindingPlace<'_>> {
    findings.iter().map(Finding::place).collect()
}

impl Round<'_> {
    /// Applies the rule of each finding. True if anything changed.
    fn all(&mut self, findings: &[Finding], round: u32, done: &mut Vec<Done>) -> Result<bool, CheckError> {
        let mut changed = false;
        if !self.volume.is_whole() {
            return self.find_zones(findings, round, done);
        }
        let mut of_rows = Vec::new();
        self.note_twice(findings);
        for finding in findings {
            // What the past has is put right in the past: other rules are about the present.
            if let Some(repair) = self.mend_row(finding) {
                of_rows.push(Done { finding: finding.clone(), repair, lost: Vec::new(), round });
                continue;
            }
            let is_of_past = matches!(finding.row, Some(PastRow::Version { .. } | PastRow::Name { .. }));
            if is_of_past
                && finding.problem.class() != Class::History
                && !rules::is_of_volume(finding.problem)
            {
                continue;
            }
            let Some(rule) = rules::of(finding.problem) else { continue };
            let before = self.lost.len();
            if (rule.mend)(self, finding)? {
                changed = true;
                let lost = self.lost.get(before..).unwrap_or_default().to_vec();
                done.push(Done { finding: finding.clone(), repair: rule.words, lost, round });
            }
        }
        if self.edit_rows()? || self.volume.is_superblock_changed() {
            for step in &mut of_rows {
                let lost = step.finding.row.as_ref().and_then(|row| self.lost_rows.get(row));
                step.lost.extend(lost.into_iter().flatten().cloned());
            }
            done.append(&mut of_rows);
            changed = true;
        }
        Ok(changed)
    }

    /// Brings back zones that table and headers do not lead to. Everything else waits for the round after it:
    /// what cannot be read is not judged.
    fn find_zones(
        &mut self,
        findings: &[Finding],
        round: u32,
        done: &mut Vec<Done>,
    ) -> Result<bool, CheckError> {
        let found = self.volume.find_zones()?;
        if found.is_empty() || !self.volume.is_whole() {
            return Ok(false);
        }
        for (number, what) in found.iter().filter(|(_, what)| !what.is_empty()) {
            let path = format!("zone {number}");
            self.lost.push(Loss { path, what: (*what).into(), unnamed: None });
        }
        let numbers: BTreeSet<ZoneNo> = found.iter().map(|(number, _)| *number).collect();
        let mut lost_of: BTreeMap<&str, Vec<&Loss>> = BTreeMap::new();
        for loss in &self.lost {
            lost_of.entry(&loss.path).or_default().push(loss);
        }
        for finding in findings {
            let is_of_zones =
                |addr: yore_format::MetaAddr| addr.zone().is_root() || numbers.contains(&addr.zone());
            let is_done = finding.problem == Problem::RootZoneZero
                || (finding.addr.is_some_and(is_of_zones) && finding.problem.class() == Class::Zone)
                || (finding.addr.is_some_and(|addr| addr.zone().is_root())
                    && finding.problem == Problem::BlockStale);
            let rule = rules::of(finding.problem).filter(|_| is_done);
            if let Some(rule) = rule {
                let path = finding.addr.map(|addr| format!("zone {}", addr.zone()));
                let lost = path.and_then(|path| lost_of.get(&path[..]));
                let lost = lost.into_iter().flatten().copied().cloned().collect();
                done.push(Done { finding: finding.clone(), repair: rule.words, lost, round });
            }
        }
        Ok(true)
    }
}

impl Plan<'_> {
    /// Whether nothing would be found after the repair but what is to be left. Only then can it be applied.
    pub fn is_complete(&self) -> bool {
        self.after.findings_count == self.after.findings.len() as u64 && self.remaining().next().is_none()
    }

    /// What would still be found, and was not to be left.
    pub fn remaining(&self) -> impl Iterator<Item = &Finding> {
        let places = places_of(&self.left);
        self.after.findings.iter().filter(move |finding| !places.contains(&finding.place()))
    }

    /// What is to be left as it is.
    pub fn left(&self) -> &[Finding] {
        &self.left
    }

    /// Whether the repair changes anything.
    pub fn is_empty(&self) -> bool {
        self.overlay.len() == 0
    }

    /// Carries the repair out: writes the undo file, which must not exist yet, then the volume. Returns how
    /// many blocks of the volume were written.
    ///
    /// # Errors
    /// [`CheckError::NotRepairable`] if findings would remain, and [`CheckError::UndoFile`] if the undo file
    /// cannot be written: then the volume is as it was. [`CheckError::Device`]: then some blocks may be
    /// written, and [`undo_repair`] takes that back.
    pub fn apply(&self, undo_file: &Path) -> Result<u64, CheckError> {
        if !self.is_complete() {
            let findings = self.after.findings_count.saturating_sub(self.left.len() as u64).max(1);
            let device = self.device.describe();
            return Err(CheckError::NotRepairable { device, findings });
        }
        undo::apply(self.device, &self.overlay, &self.superblock, self.slot, undo_file)
    }
}

/// Takes a repair back, or what an interrupted one has written: the volume is then byte for byte as it was
/// before. Returns how many blocks were written. Can be interrupted and repeated.
///
/// # Errors
/// [`CheckError::UndoFile`] if the file cannot be used, [`CheckError::UndoRefused`] if the volume was written
/// to since, by a mount or another repair, or is another one; then nothing was written.
/// [`CheckError::Device`].
pub fn undo_repair(device: &dyn Device, undo_file: &Path) -> Result<u64, CheckError> {
    undo::take_back(device, undo_file)
}
