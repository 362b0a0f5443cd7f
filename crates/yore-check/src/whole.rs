//! A check from its first step to its last.
//!
//! Whoever repairs needs more than the findings: which inodes there are, and who owns which data block. So
//! what the check learned on the way comes back with the report, and the fast pass, which learns less, is
//! left out.

use crate::checker::Checker;
use crate::claims::Claimant;
use crate::known::History;
use crate::pace::{How, Step, Watcher};
use crate::report::{CheckOptions, Lost, Report};
use crate::superblock::{read_superblock, Found};
use crate::CheckError;
use yore_device::Device;

/// Which way a check goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// First the fast pass, and the walk if that has a doubt.
    Quick,
    /// The walk at once.
    Walk,
}

/// Checks a volume. Returns what was found, and what was learned on the way.
pub(crate) fn run<'a>(
    device: &'a dyn Device,
    options: &CheckOptions,
    watcher: Option<Watcher<'a>>,
    way: Way,
) -> Result<(Report, Checker<'a>), CheckError> {
    let found = read_superblock(device)?;
    let mut checker = Checker::new(device, &found, options, watcher);
    checker.history.keeps_indexes = way == Way::Walk;
    checker.superblock(&found);
    checker.log(&options.log)?;
    let (mut is_found, mut doubt) = (false, "");
    if found.superblock.metadata_blocks >= options.scan_from {
        (is_found, doubt) = match way {
            Way::Walk => {
                let how = How::walk(&checker.sb);
                scan(&mut checker, how);
                (false, "a repair")
            }
            Way::Quick => prove(&mut checker)?,
        };
    }
    if !is_found {
        checker.pace.how = How::walk(&checker.sb);
        compare(&mut checker)?;
        first_owners(&mut checker, &found, options)?;
    }
    let is_proved = is_found && checker.findings.is_empty();
    if is_found && !is_proved {
        doubt = "owners of blocks, bitmaps or totals; all else is proved";
    }
    let lost = if is_proved { Lost::default() } else { checker.paths()? };
    checker.pace.end();
    let counted = (checker.counts, checker.reading);
    let findings = std::mem::take(&mut checker.findings);
    let outcome = (is_proved, doubt);
    Ok((findings.into_report(lost, counted, outcome, &found.superblock, found.slot), checker))
}

/// Tries to prove that there is nothing to find but owners of blocks, bitmaps and totals that are wrong,
/// which are found. Returns whether that was done, and why not. If not, what is to be compared is held.
fn prove(checker: &mut Checker<'_>) -> Result<(bool, &'static str), CheckError> {
    let doubt = match checker.prove()? {
        Ok(()) => return Ok((true, "")),
        Err(doubt) => doubt,
    };
    if !Checker::needs_to_know(doubt) {
        scan(checker, How::walk(&checker.sb));
        return Ok((false, doubt.0));
    }
    scan(checker, How::ProofWithPast);
    Ok(match checker.prove_with_past()? {
        Ok(()) => (true, ""),
        Err(doubt) => (false, doubt.0),
    })
}

/// Reads all metadata, and holds what of it is sound and fits. It will be compared so.
fn scan(checker: &mut Checker<'_>, how: How) {
    checker.pace.how = how;
    checker.scan();
}

/// Finds out who had the blocks first that two have. It was noted in which zones their owners are
/// ([`crate::claims`]): the inodes of these are walked once more, with their versions, and asked for just
/// these blocks.
fn first_owners(checker: &mut Checker<'_>, found: &Found, options: &CheckOptions) -> Result<(), CheckError> {
    let asked = checker.findings.owned_twice();
    if asked.is_empty() {
        return Ok(());
    }
    let only = checker.claims.first_of(&asked)?;
    let are_inodes_asked = only.iter().any(|by| *by != Claimant::Volume);
    let mut other = Checker::new(checker.device, found, options, None);
    (other.asked, other.only) = (asked, Some(only));
    // What was read so far serves here, too.
    other.held = std::mem::take(&mut checker.held);
    other.redone = std::mem::take(&mut checker.redone);
    other.zones = std::mem::take(&mut checker.zones);
    let reached: Vec<_> = other.zones.iter_mut().map(|zone| std::mem::take(&mut zone.reached)).collect();
    other.sb = checker.sb.clone();
    other.zones_lost = checker.zones_lost;
    other.begin_owners();
    let past_references = checker.history.past_references;
    let mut walk = || -> Result<(), CheckError> {
        other.claim_fixed();
        if are_inodes_asked {
            other.load_tables()?;
            // Only files claim blocks, and walking them changes no inode, and nothing of the past but a
            // count.
            std::mem::swap(&mut other.inodes, &mut checker.inodes);
            std::mem::swap(&mut other.history, &mut checker.history);
            other.contents()?;
        }
        Ok(())
    };
    let walked = walk();
    if are_inodes_asked {
        checker.inodes = other.inodes;
        checker.history = History { past_references, ..other.history };
    }
    checker.held = other.held;
    checker.redone = other.redone;
    checker.zones = other.zones;
    for (zone, reached) in checker.zones.iter_mut().zip(reached) {
        zone.reached = reached;
    }
    checker.reading.add(&other.reading);
    walked?;
    checker.findings.set_first(&other.first_owners);
    Ok(())
}

/// Compares all metadata with each other, from inode to inode and from node to node.
fn compare(checker: &mut Checker<'_>) -> Result<(), CheckError> {
    checker.pace.begin_compare();
    checker.load_zones()?;
    checker.redo()?;
    checker.claim_fixed();
    checker.load_tables()?;
    checker.begin_walk();
    checker.census()?;
    checker.pace.begin_step(Step::Past);
    checker.history()?;
    checker.policies_of_inodes()?;
    checker.pace.begin_step(Step::Contents);
    checker.contents()?;
    checker.orphans()?;
    checker.unreached()?;
    checker.pace.begin_step(Step::Links);
    checker.links()?;
    checker.shared_counts();
    checker.bitmaps()?;
    checker.totals();
    Ok(())
}
