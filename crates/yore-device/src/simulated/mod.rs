//! A device that records everything, loses power at any instant, and fails on demand.
//!
//! # The fault model
//!
//! What a crash may leave, and what it may not. A crash happens *after entry k* of the trace: the first k
//! entries have been issued, nothing after them has.
//!
//! 1. Everything written before the last flush that completed within those k entries is durable and whole. Of
//!    several writes to one place the last one is what remains.
//! 2. Each write after that flush is *pending*. Any subset of the pending writes may have reached the medium,
//!    in any order, whatever order they were issued in and whether or not their callers had been told that
//!    they were done.
//! 3. A pending write may be torn: any subset of its 512-byte sectors may have reached the medium
//!    ([`Tearing::Sectors`]), or any subset of its 4096-byte blocks ([`Tearing::Blocks`], for what is
//!    designed for devices that write blocks atomically). A sector itself is never torn.
//! 4. Where several pending writes hit one sector, any one of them or the durable contents may remain.
//! 5. A pending discard as a whole has happened or not. If it has, its range holds zeros or garbage, except
//!    where a pending write remains. Discards that happened keep their order among themselves. A discard that
//!    was flushed holds zeros.
//! 6. Nothing else changes: no sector that was not written, nothing that was durable.
//! 7. A flush is atomic in the trace. A write that another thread has issued while a flush was under way is
//!    recorded before it (and is covered) or after it (and is pending); callers may rely on neither, and
//!    different schedules show both.
//!
//! Several disks whose requests have one order of time are parts of one device ([`Part`](crate::Part)): a
//! flush of a part makes durable what was written there, and leaves pending what was written elsewhere.
//!
//! While the device runs it is truthful unless told otherwise by a [`FaultPlan`]: errors, lost writes
//! (reported as done, never stored), misdirected writes (stored in the wrong place), bits that flip while
//! reading, and a device that is full. A write that a fault kept from being stored is not in the trace. A
//! misdirected write is in the trace where it went. A flush that failed is not in the trace: pending writes
//! stay pending. Unlike a `FileDevice`, this device goes on after an error: it exists to show whether the
//! layers above stop by themselves.
//!
//! Time does not pass here yet. Every request goes through `SimulatedDevice::admit`, the one place where a
//! virtual clock would charge it to a timing model of a disk.
//!
//! # Use
//!
//! ```
//! use yore_device::simulated::{CrashPlan, SimulatedDevice};
//! use yore_device::{Device, MemoryDevice};
//!
//! let device = SimulatedDevice::new(MemoryDevice::new(1 << 20));
//! device.write_at(0, &[1; 4096]).unwrap();
//! device.flush().unwrap();
//! device.mark(1); // "the first block was promised"
//! device.write_at(4096, &[2; 4096]).unwrap();
//! let trace = device.trace();
//! for case in trace.crash_states(&CrashPlan::default()) {
//!     let medium = case.materialise();
//!     let mut block = [0; 4096];
//!     medium.read_at(0, &mut block).unwrap();
//!     let promised = trace.marks_before(case.after_entry()).any(|mark| mark == 1);
//!     assert!(!promised || block == [1; 4096], "replay with {}", case.state());
//! }
//! ```

mod crash;
mod fault;
mod state;
mod states;
mod trace;

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::{check_range, checked_len};
use crate::{Device, DeviceError, HostError, MemoryDevice, Operation, BLOCK_SIZE};
use fault::Faults;

pub use crash::CrashPoint;
pub use fault::{Fault, FaultPlan};
pub use state::{Choice, CrashPlan, CrashState, CrashStateError, ParseCrashStateError, Tearing};
pub use states::{CrashCase, CrashPoints, CrashStates};
pub use trace::{Trace, TraceEntry};

/// A memory device with a trace, crash states and faults. See the module's documentation for what it
/// simulates.
pub struct SimulatedDevice {
    /// What a read sees. Changed only with `trace` locked, so that the trace has the order of the changes.
    image: MemoryDevice,
    /// Never held together with the lock inside `faults`.
    trace: Mutex<Trace>,
    faults: Faults,
}

impl SimulatedDevice {
    /// A device that begins with the contents of `image`, all of it durable, and an empty trace.
    pub fn new(image: MemoryDevice) -> Self {
        SimulatedDevice { trace: Mutex::new(Trace::new(image.snapshot())), image, faults: Faults::default() }
    }

    /// Annotates the trace: the client did, or was promised, whatever it means by `mark`.
    pub fn mark(&self, mark: u64) {
        self.trace.lock().push(TraceEntry::Mark(mark));
    }

    /// The number of entries so far.
    pub fn entries(&self) -> usize {
        self.trace.lock().len()
    }

    /// A copy of the trace so far. The data of the entries is shared, not copied.
    pub fn trace(&self) -> Trace {
        self.trace.lock().clone()
    }

    /// Forgets the trace: everything written so far counts as durable, and entry numbers begin at 0 again.
    /// For steps that need no crashes, such as making a volume. Returns the trace up to now.
    pub fn restart_trace(&self) -> Trace {
        let mut trace = self.trace.lock();
        std::mem::replace(&mut trace, Trace::new(self.image.snapshot()))
    }

    /// An independent copy of what reads see now.
    pub fn snapshot(&self) -> MemoryDevice {
        self.image.snapshot()
    }

    /// Makes the device fail as planned from now on. Replaces the current plan, and counts requests from 1
    /// again. The empty plan makes the device truthful.
    pub fn fail(&self, plan: FaultPlan) {
        self.faults.set(plan);
    }

    /// The faults of the current plan that have struck, in that order. One that can strike many times is
    /// listed each time.
    pub fn struck(&self) -> Vec<Fault> {
        self.faults.struck()
    }

    /// Lets one request in: counts it and says what is to go wrong with it. A timing model belongs here.
    fn admit(&self, operation: Operation, offset: u64, len: u64) -> Result<Option<Fault>, DeviceError> {
        let Some(fault) = self.faults.strike(operation, offset, len) else {
            return Ok(None);
        };
        let errno = match fault {
            Fault::ReadError { .. }
            | Fault::WriteError { .. }
            | Fault::FlushError { .. }
            | Fault::UnreadableRange { .. }
            | Fault::Dead { .. } => libc::EIO,
            Fault::Full { .. } => libc::ENOSPC,
            Fault::LostWrite { .. } | Fault::MisdirectedWrite { .. } | Fault::FlippedBit { .. } => {
                return Ok(Some(fault));
            }
        };
        let source = HostError::from_errno(errno);
        Err(DeviceError::from_host(operation, offset, len, &self.describe(), source))
    }

    /// Stores one admitted write.
    fn store(&self, offset: u64, data: Arc<[u8]>) -> Result<(), DeviceError> {
        let actual = match self.admit(Operation::Write, offset, data.len() as u64)? {
            None => offset,
            Some(Fault::MisdirectedWrite { to, .. }) => to,
            // Lost: reported as done, never stored.
            Some(_) => return Ok(()),
        };
        if actual.checked_add(data.len() as u64).is_none_or(|end| end > self.size()) {
            // Misdirected beyond the end: lost.
            return Ok(());
        }
        let mut trace = self.trace.lock();
        self.image.write_at(actual, &data)?;
        trace.push(TraceEntry::Write { offset: actual, data });
        Ok(())
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedDevice({} bytes, {} entries)", self.size(), self.entries())
    }
}

impl Device for SimulatedDevice {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "simulated device".to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = checked_len(buf);
        check_range(self, Operation::Read, offset, len)?;
        let fault = self.admit(Operation::Read, offset, len)?;
        self.image.read_at(offset, buf)?;
        if let (Some(Fault::FlippedBit { bit, .. }), false) = (fault, buf.is_empty()) {
            let bit = bit % (len * 8);
            buf[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, checked_len(buf))?;
        self.store(offset, Arc::from(buf))
    }

    /// One request, and one entry of the trace, however many buffers it has.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        check_range(self, Operation::Write, offset, len)?;
        let mut data = Vec::with_capacity(len as usize);
        for buf in bufs {
            data.extend_from_slice(buf);
        }
        self.store(offset, Arc::from(data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.admit(Operation::Flush, 0, self.size())?;
        self.trace.lock().push(TraceEntry::Flush);
        Ok(())
    }

    fn flush_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self, Operation::Flush, offset, len)?;
        self.admit(Operation::Flush, offset, len)?;
        self.trace.lock().push(TraceEntry::FlushRange { offset, len });
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self, Operation::Discard, offset, len)?;
        self.admit(Operation::Discard, offset, len)?;
        if len < BLOCK_SIZE as u64 {
            return Ok(());
        }
        let mut trace = self.trace.lock();
        self.image.discard(offset, len)?;
        trace.push(TraceEntry::Discard { offset, len });
        Ok(())
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.image.blocks_gone_by(next)
    }
}
