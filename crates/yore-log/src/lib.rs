//! A write-ahead log: append, force, read in sequence, read by number.
//!
//! The log is a service of its own, as in the *write-ahead file system* of "Journaling versus Soft Updates"
//! (§5.2, LFFS-wafs): it keeps records whose contents mean nothing to it, for a file system or for any other
//! program. It is used in three ways.
//!
//! - **On its own** ([`LogFile`]): on a device or a file, mounted and unmounted. Two anchor blocks of its own
//!   say which records are kept. A [`LogReader`] shows it without mounting it.
//! - **Embedded** ([`recover`], [`Log`]): in a [`Region`] of a device that belongs to somebody else, who
//!   keeps a [`Position`] of 32 bytes in its own superblock. The log then has no block of its own but those
//!   with records.
//!
//! - **On its own, for an owner who keeps the position** ([`KeptLog`]): the log of a volume that lies on
//!   another device. Its anchors say whose it is, and which session was begun last; the ring is used like an
//!   embedded one.
//!
//! # Words
//!
//! A *record* is a string of bytes with a number ([`Lsn`]): 1, 2, 3, ... without a gap, for ever. The records
//! that one force makes durable are a *batch*: whole blocks, written at once, with a header and checksums.
//! The blocks of the region are a *ring* (`ring.rs`): batches follow each other, go on at the start after the
//! end, and overwrite what was released. Behind a batch there may be blocks that are left out (`log.rs`,
//! "Gaps"). A *session* is one opening of the log, with a number greater than all before.
//!
//! # Why recovery finds exactly what was promised
//!
//! Four things are true of all that is ever written. `log.rs` keeps them, `recover.rs` relies on them:
//!
//! 1. **One at a time.** Batch k + 1 is written only after the flush that followed the writing of batch k
//!    returned, also where they belong to different sessions, because recovery begins with a flush.
//! 2. **Chained.** A batch carries its sequence number and its predecessor's chain value, 64 bits made of
//!    that one's own chain value and checksums. It also carries its own block, the log's identity, its
//!    session and the number of its first record, and all must fit.
//! 3. **A session begins with a batch of its own**: one block without records, each of whose sectors is
//!    filled with bytes that nothing else holds, made durable before the session's first record is written.
//! 4. **Nothing is overwritten before it is released**, and the owner releases only what its own durable
//!    anchor no longer needs.
//!
//! **The end.** A batch that is torn, or of which nothing arrived, fails its checksums, and by (1) its force
//! had not returned. What an earlier lap or session left in the ring does not fit the chain. So recovery from
//! the owner's position gives every record that was forced, possibly followed by some that were not: those of
//! one batch, which was complete but for the return of its flush. Never others, never with a gap.
//!
//! **Damage.** If a batch is not good, and the header of one with a greater sequence number stands anywhere
//! in the rest of the ring, then by (1) the bad one had been durable: that is damage ([`LogError::Damaged`]),
//! not the end. The header of the later one suffices, it need not be complete: it would not have been begun.
//! No header that is left over can cause a false alarm. A header of sequence number k + 1 was written only
//! after some batch k had been durable, where the chain has its k-th. The contents of a record can look like
//! a header only to whoever knows the log's identity, which is random and secret ([`LogId::random`]). What
//! cannot be told apart from the end is the loss of the very last batch; a `LogFile` that was unmounted
//! recognises even that, since its anchor says how far it reached.
//!
//! **Twice.** Recovery writes nothing, so it may crash and be repeated, and finds the same again. The torn
//! batch T that ended session A stays torn: the next write to the ring is the start of session B in the very
//! place where T's header is. While that write is under way, T cannot become whole from it, since T's missing
//! sectors hold nothing that is written now (3). This is what the filling is for: were the first batch of B
//! written over T directly, with the same contents as T in the sectors that T lacks, as it is with a caller
//! who tries the same again, then a second crash could leave T complete, and give records that the caller was
//! told had been lost. Once B's start is durable T's header is gone, and what follows is chained to B's
//! start. If B's start is torn itself, the log ends where it ended before.
//!
//! **What is read is checked before it is used.** Lengths are compared with what is left of the ring and with
//! [`BATCH_BYTES_MAX`] before memory is taken; the ring is walked once around at most; everything
//! contradictory is [`LogError::Damaged`].
//!
//! The bytes are described in `docs/FORMAT.md`, "The log".
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use yore_device::MemoryDevice;
//! use yore_log::{LogFile, Region};
//!
//! let device = Arc::new(MemoryDevice::new(1 << 20));
//! let region = Region::whole(&*device);
//! let log = LogFile::create(device.clone(), region)?;
//! let first = log.append(&[b"debit 5;", b"credit 5"])?;
//! let second = log.append_sync(&[b"debit 3"])?; // durable on return, and the first one too
//! drop(log); // as good as a crash
//!
//! let log = LogFile::mount(device, region)?;
//! assert_eq!(log.read(first)?.contents, b"debit 5;credit 5");
//! let all: Result<Vec<_>, _> = log.iter().collect();
//! assert_eq!(all?.len(), 2);
//! log.trim(second)?; // the first record is no longer needed
//! log.unmount()?;
//! # Ok::<(), yore_log::LogError>(())
//! ```

#![warn(missing_docs)]

mod error;
mod file;
mod kept;
mod layout;
mod log;
#[cfg(feature = "mutations")]
pub mod mutation;
mod read;
mod reader;
mod recover;
mod ring;
mod search;
mod types;

pub use error::LogError;
pub use file::LogFile;
pub use kept::KeptLog;
pub use layout::{Position, BATCH_BYTES_MAX, RECORD_HEADER_BYTES};
pub use log::Log;
pub use read::Records;
pub use reader::{LogEnd, LogReader};
pub use recover::{recover, recover_closed, End, Recovered};
pub use ring::format;
pub use search::{find_position, Searched};
pub use types::{LogId, LogOwner, Lsn, OwnedRecord, Record, Region, REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};
