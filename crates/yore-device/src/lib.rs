//! Block devices for Yore: files, memory, and a simulated device that records and replays crashes.
//!
//! A [`Device`] is a number of 4096-byte blocks. Everything above this crate reaches its medium
//! through that one trait, so that the same file system runs on a disk, on an image file, in memory, and on
//! a device that lies, fails and loses power on demand.
//!
//! # The contract, in five rules
//!
//! 1. **Whole blocks.** Offsets and lengths are in bytes and multiples of [`BLOCK_SIZE`], each buffer of a
//!    vectored call included. A caller that violates this has a bug, and the call panics with the numbers.
//!    A range outside the device may come from a corrupt pointer on the medium, so it is an error
//!    ([`DeviceError::OutOfRange`]) and never a panic. Empty ranges are allowed and do nothing.
//! 2. **A write that returned is visible** to every later read, through every handle of the device, and
//!    nothing more: it may be lost, or torn between its 512-byte sectors, until a flush.
//! 3. **Flush is the only order.** Everything whose write *returned* before [`Device::flush`] was called is
//!    durable when it returns `Ok`. Among writes without a flush between them there is no order at all,
//!    neither inside a batch nor between calls.
//! 4. **An error says nothing about the medium.** After a failed write its range holds old bytes, new bytes
//!    or, at sector boundaries, both. After a failed flush nothing written since the last good one may be
//!    believed durable, and a later successful flush does not change that.
//! 5. **Concurrent calls** are allowed from any thread. Overlapping ones, at least one of which writes, end
//!    with each block being one of the possible values, not a mixture; callers that care keep them apart.
//!
//! | device | for |
//! |---|---|
//! | [`FileDevice`] | image files and block devices of the host |
//! | [`MemoryDevice`] | tests and scratch volumes; sparse, with cheap snapshots |
//! | [`SimulatedDevice`] | crashes and faults; records what is done and produces what a crash could leave |
//! | [`Part`] | a part of another device, which several of them share |
//! | [`Overlay`] | a device in front of another, which is only read: what is written stays in memory |
//! | [`wrapped::Wrapped`] | tests: a device in front of another, which counts, delays, changes or refuses requests |

#![warn(missing_docs)]

mod block;
mod buffer;
mod device;
mod error;
mod file;
mod host_error;
mod memory;
pub mod mounts;
mod overlay;
mod part;
mod platters;
mod pool;
mod runs;
pub mod simulated;
pub mod travel;
pub mod wrapped;

pub use block::BLOCK_SIZE;
pub use buffer::{AlignedBuf, SharedBuf};
pub use device::{Device, ReadRequest, WriteRequest};
pub use error::{DeviceError, Holder, Operation};
pub use file::{CreateOptions, Direct, FileDevice, OpenOptions};
pub use host_error::HostError;
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use part::Part;
pub use platters::blocks_gone_by;
pub use runs::{near, write_blocks};
pub use simulated::SimulatedDevice;
