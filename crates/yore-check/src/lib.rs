//! The complete structural check of a Yore volume, independent of the file system code.
//!
//! The checker reads a volume through [`Device`] and the definitions of `yore-format` alone, so that a
//! mistake in the code that writes volumes cannot hide itself. It is the judge in all tests: it must find
//! every contradiction that the format can express, and nothing on a sound volume.
//!
//! # How it works
//!
//! 1. *Zones*: superblock → root zones → zone table → zone headers. What they say of each other is compared.
//! 2. *Census*: every bitmap and inode block is read once; what later steps must know of each inode is kept.
//! 3. *Past*: the trees of cuts, forgotten cuts, versions, past names and changes are walked and compared
//!    with each other; versions and the deaths of names are kept for the next step.
//! 4. *Contents*: each inode's content and attributes, and the tree of orphans, are walked. Metadata blocks
//!    that are reached are marked in a bit set for each zone, data blocks in one for each group in use. An
//!    inode's versions are walked with it, from the newest to the oldest, and may name what it names; those
//!    of inodes that are gone come last.
//! 5. *Rest*: blocks that exist and were not reached; names against links; orphans; bitmaps against owners;
//!    totals.
//!
//! # Why any bytes are safe
//!
//! Every block is verified by the format's verifiers before it is looked into, and entered at most once,
//! because the bit of its address is set before; only nodes that several states of one inode name are met
//! again, once by each. Trees are walked with an explicit stack and descend by one level at each step. So
//! time is bounded by what exists on the medium, each version counted as one more inode, and memory by its
//! metadata; findings are kept up to a limit. Where something cannot be read, what would follow only from its
//! absence (leaks, missing names, totals) is not reported: that is noise until the cause is repaired, and the
//! cause has been reported.
//!
//! Nothing is ever written by [`check`]; the only writer here is [`mark_checked`].

mod chain;
mod checker;
mod content;
mod directory;
mod extents;
mod finding;
mod history;
mod inodes;
mod links;
mod operations;
mod policies;
mod report;
mod space;
mod states;
mod tree;
mod xattrs;
mod zones;

pub use finding::{Class, Finding, Problem, Value};
pub use report::{Counts, Report};

use checker::Checker;
use report::state_name;
use yore_device::{Device, DeviceError};
use yore_format::layout::SUPERBLOCKS;
use yore_format::{Block, Corruption, Engine, Generation, SlotState, Superblock, VolumeState, BLOCK_SIZE};

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// How many findings to keep; further ones are only counted. 1,000 unless set.
    pub findings_max: usize,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { findings_max: 1000 }
    }
}

/// Why a volume could not be checked, or not marked as checked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Neither superblock slot holds a superblock.
    #[error("{device} holds no Yore volume: {reason}; check the path, or create a volume there first")]
    NotAVolume {
        /// The device, for people.
        device: String,
        /// What the slots hold.
        reason: Box<Corruption>,
    },
    /// The superblock that counts is damaged, or of a format that this program does not know.
    #[error("the superblock of {device} cannot be used: {reason}; use a newer program if the version is not known to this one")]
    Superblock {
        /// The device, for people.
        device: String,
        /// What is wrong with it.
        reason: Box<Corruption>,
    },
    /// The device failed.
    #[error("the check was given up: {0}")]
    Device(#[from] DeviceError),
    /// The volume has findings, so it is not marked clean.
    #[error("{device} is not marked clean because the check has {findings} findings; repair it first")]
    NotClean {
        /// The device, for people.
        device: String,
        /// How many.
        findings: u64,
    },
    /// The volume is in a state that a check does not end.
    #[error("{device} is {state} under the engine {engine}, which a check does not end; mount it, which recovers it")]
    NotMarkable {
        /// The device, for people.
        device: String,
        /// The state.
        state: &'static str,
        /// The engine.
        engine: &'static str,
    },
    /// The generations are used up, which only damage can bring about.
    #[error(
        "{device} has generation {generation}, after which there is none; the superblock must be rebuilt"
    )]
    GenerationsUsedUp {
        /// The device, for people.
        device: String,
        /// The greatest generation in either slot.
        generation: u64,
    },
}

/// The superblock that counts, and what stands beside it.
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    pub(crate) slot: u32,
    pub(crate) newest: Generation,
    pub(crate) other: SlotState,
    pub(crate) other_is_zero: bool,
}

/// Reads both slots and chooses as mount does.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<Found, CheckError> {
    let mut bytes = [[0u8; BLOCK_SIZE]; 2];
    if device.size() < 2 * BLOCK_SIZE as u64 {
        let reason = Corruption::new("superblock", "size of the device", "at least 16 MiB", device.size());
        return Err(CheckError::NotAVolume { device: device.describe(), reason });
    }
    for (place, block) in SUPERBLOCKS.iter().zip(&mut bytes) {
        device.read_at(place.0 * BLOCK_SIZE as u64, block)?;
    }
    let [first, second]: &[Block; 2] = &bytes;
    let (superblock, slot, newest) = yore_format::decode_slots([first, second]).map_err(|reason| {
        let device = device.describe();
        match [Superblock::decode(first, 0), Superblock::decode(second, 1)] {
            [SlotState::Foreign, SlotState::Foreign] => CheckError::NotAVolume { device, reason },
            _ => CheckError::Superblock { device, reason },
        }
    })?;
    let other_slot = 1 - slot as usize;
    Ok(Found {
        superblock,
        slot,
        newest,
        other: Superblock::decode(&bytes[other_slot], other_slot as u32),
        other_is_zero: bytes[other_slot].iter().all(|b| *b == 0),
    })
}

/// Checks a whole volume. Changes nothing; the device may be open for reading only. The volume must not be
/// written to meanwhile, or findings will be of moments that never were.
///
/// Takes time in proportion to the metadata that exists and memory in proportion to inodes, zones and groups
/// in use, to the cuts, versions and past names that are kept, and to the tree nodes and extents of the one
/// file whose states name most.
///
/// # Errors
/// [`CheckError::NotAVolume`] and [`CheckError::Superblock`] if there is nothing to start from,
/// [`CheckError::Device`] if the device fails. Everything else that is wrong is a finding.
pub fn check(device: &dyn Device, options: &CheckOptions) -> Result<Report, CheckError> {
    let found = read_superblock(device)?;
    let mut checker = Checker::new(device, &found, options);
    checker.superblock(&found);
    checker.log()?;
    checker.load_zones()?;
    checker.claim_fixed();
    checker.census()?;
    checker.history()?;
    checker.contents()?;
    checker.orphans()?;
    checker.unreached()?;
    checker.links();
    checker.bitmaps()?;
    checker.totals();
    Ok(checker.findings.into_report(checker.counts, &found.superblock, found.slot))
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
    let markable = match sb.state {
        VolumeState::Clean => return Ok(()),
        VolumeState::MustBeChecked | VolumeState::LeaksPending => true,
        VolumeState::InUse => matches!(sb.engine, Engine::None | Engine::Sync | Engine::SoftUpdates),
    };
    if !markable {
        let (state, engine) = (state_name(sb.state), sb.engine.name());
        return Err(CheckError::NotMarkable { device: device.describe(), state, engine });
    }
    let report = check(device, &CheckOptions { findings_max: 0 })?;
    if !report.is_clean() {
        return Err(CheckError::NotClean { device: device.describe(), findings: report.findings_count });
    }
    if found.newest.0 > u64::MAX - 2 {
        return Err(CheckError::GenerationsUsedUp { device: device.describe(), generation: found.newest.0 });
    }
    let mut marked = found.superblock.clone();
    marked.state = VolumeState::Clean;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    marked.written_seconds = now.map_or(marked.written_seconds, |d| d.as_secs());
    // The slot that does not count goes first: until its flush returns, the other one is whole and says what
    // it said.
    for (step, slot) in [1 - found.slot, found.slot].into_iter().enumerate() {
        marked.generation = Generation(found.newest.0 + 1 + step as u64);
        device.write_at(SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64, &marked.encode(slot)[..])?;
        device.flush()?;
    }
    Ok(())
}
