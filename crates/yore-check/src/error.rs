//! Why a volume could not be checked at all.

use yore_device::DeviceError;
use yore_format::Corruption;

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
    /// Neither superblock can be used, and what another one must say is nowhere.
    #[error("neither superblock of {device} can be used ({reason}), and no other can be made: {missing}")]
    SuperblockMissing {
        /// The device, for people.
        device: String,
        /// What is wrong with the superblock that would count.
        reason: Box<Corruption>,
        /// What cannot be known without it.
        missing: String,
    },
    /// The log has a device of its own, and is not there, or is another one.
    #[error("{0}")]
    Log(String),
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
    /// The log has what the last superblock does not, and a repair has no room for it.
    #[error(
        "{device} was left as it is: the log holds {records} records with file data, and no block is free for that in the \
         groups in use; mount the volume once, which finds room, and repair it then"
    )]
    LogNotReplayed {
        /// The device, for people.
        device: String,
        /// How many.
        records: u64,
    },
    /// The log has file data, and something stays that cannot be read.
    #[error(
        "{device} was left as it is: the log holds {records} records with file data, which cannot be written as long as \
         something stays that cannot be read, because that may have the blocks that look free; repair that, too"
    )]
    LogNeedsAll {
        /// The device, for people.
        device: String,
        /// How many.
        records: u64,
    },
    /// What does not fit into memory cannot be kept in a temporary file.
    #[error(
        "the check was given up: it keeps in a temporary file in {directory} what does not fit into its memory, and \
         that file cannot be used: {reason}; make room there, name another directory in TMPDIR, or give the check \
         more --memory"
    )]
    TemporaryFile {
        /// Where the file is.
        directory: String,
        /// Why.
        reason: String,
    },
    /// The undo file cannot be used.
    #[error("the undo file {path} cannot be used: {reason}")]
    UndoFile {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// There is more to repair than can be repaired.
    #[error("{device} was left as it is: {findings} findings have no repair yet; copy what can be read to another volume")]
    NotRepairable {
        /// The device, for people.
        device: String,
        /// How many findings would remain.
        findings: u64,
    },
    /// The volume is not as the repair left it.
    #[error("{device} was left as it is: {reason}")]
    UndoRefused {
        /// The device, for people.
        device: String,
        /// Why.
        reason: String,
    },
}
