//! What can go wrong with a log.
//!
//! Like the errors of devices, these can be cloned and compared: one failed flush is told to everyone who
//! waited for it, and again to everyone who comes later. Classes: damage (`Damaged`, `UnknownVersion`,
//! `NotALog`), the device (`Device`), no space (`Full`), a bug (`Panicked`), and the caller's mistake (the
//! rest).

use yore_device::DeviceError;

use crate::{LogOwner, Lsn};

/// What went wrong, with which log, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The device below the log failed. A log that could not write or flush accepts nothing more.
    #[error(transparent)]
    Device(#[from] DeviceError),

    /// Whoever was writing the log panicked, which is a bug. What it wrote is not known, so nothing more is
    /// accepted.
    #[error("writing the log panicked, which is a bug; what was made durable before is unharmed: open the log anew")]
    Panicked,

    /// The medium does not hold what had been made durable. Records before `number` are unharmed.
    #[error("the log on {device} is damaged at block {block}, where record {number} belongs: {what}; what was logged from there on is lost, so restore a copy or give up these records and make the log anew")]
    Damaged {
        /// The device, for people.
        device: String,
        /// The block of the device at which the damaged batch begins.
        block: u64,
        /// The first record that cannot be given.
        number: Lsn,
        /// What is wrong there.
        what: &'static str,
    },

    /// A batch was written by a program that knows another version of the format.
    #[error("the log on {device} has version {found} at block {block}, which this program does not know: use a newer program")]
    UnknownVersion {
        /// The device, for people.
        device: String,
        /// The block of the device.
        block: u64,
        /// The version found there.
        found: u32,
    },

    /// Neither of the two anchors of a stand-alone log is valid.
    #[error("there is no log on {device} at block {block}: neither of its two anchors is valid; was it created, and is this the right place?")]
    NotALog {
        /// The device, for people.
        device: String,
        /// The first block of the region.
        block: u64,
    },

    /// A stand-alone log belongs to another owner than the one who asks for it. Nothing was changed.
    #[error("the log on {device} at block {block} belongs to {}, and was to be used for {}: name the log of this one, or make one for it elsewhere", shown(.found), shown(.wanted))]
    Foreign {
        /// The device, for people.
        device: String,
        /// The first block of the region.
        block: u64,
        /// Whose it is; `None`: nobody's.
        found: Option<LogOwner>,
        /// For whom it was to be used.
        wanted: Option<LogOwner>,
    },

    /// The owner of a stand-alone log keeps the position of what it holds. So nobody else can read it.
    #[error(
        "the log on {device} is that of the volume {owner}, which alone knows what it holds: ask the volume"
    )]
    Kept {
        /// The device, for people.
        device: String,
        /// Whose it is.
        owner: LogOwner,
    },

    /// The record does not fit in what is free now. Nothing was appended.
    #[error("the log is full: the record needs {needed} blocks and {free} are free; release records that are no longer needed")]
    Full {
        /// Blocks needed beyond those that the batch being gathered already takes.
        needed: u64,
        /// Blocks that are free.
        free: u64,
    },

    /// The record would not even fit in an empty log. Nothing was appended.
    #[error("a record of {length} bytes is too long for this log, which takes at most {max}; split it or use a larger log")]
    TooLong {
        /// Bytes of the record.
        length: u64,
        /// The longest record in bytes.
        max: u64,
    },

    /// The record was released.
    #[error("record {number} is no longer kept: the oldest one is {oldest}")]
    Forgotten {
        /// The record asked for.
        number: Lsn,
        /// The oldest record that is kept, or the next to be appended if there is none.
        oldest: Lsn,
    },

    /// There is no such record yet.
    #[error("record {number} was never appended: the next one will be {next}")]
    NotAppended {
        /// The record asked for.
        number: Lsn,
        /// The number that the next record gets.
        next: Lsn,
    },

    /// The region cannot hold a log.
    #[error("a log cannot have {blocks} blocks from block {first_block} of {device}, which has {device_blocks}: it needs {min} to {max} blocks and must end within the device", min = crate::REGION_BLOCKS_MIN, max = crate::REGION_BLOCKS_MAX)]
    BadRegion {
        /// The device, for people.
        device: String,
        /// First block of the region.
        first_block: u64,
        /// Blocks of the region.
        blocks: u64,
        /// Blocks of the device.
        device_blocks: u64,
    },

    /// A position that this log cannot have: of another log, or damaged where it was kept.
    #[error("record {number} in block {block} of the log is not a position of this log, which has {blocks} blocks; it may come from another log, or be damaged where it was kept")]
    BadPosition {
        /// The number in the position.
        number: Lsn,
        /// The block in the position, counted from the region's first.
        block: u64,
        /// Blocks of the log.
        blocks: u64,
    },

    /// Each opening of a log needs a session number greater than all before.
    #[error(
        "session {session} of the log is not new: {last} was used before; take a number that was never used"
    )]
    SessionNotNew {
        /// The number given.
        session: u64,
        /// The last one found in the log.
        last: u64,
    },
}

fn shown(owner: &Option<LogOwner>) -> String {
    owner.map_or_else(|| "nobody".into(), |owner| owner.to_string())
}
