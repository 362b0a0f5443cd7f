//! Batches through io_uring: many requests in flight with few system calls.
//!
//! A batch takes a ring out of the pool, or makes one, and puts it back when done, so that concurrent batches
//! do not wait for each other. Where the host refuses io_uring (an old kernel, a container's filter) this is
//! found out once, and every batch uses plain calls.
//!
//! The one invariant that memory safety rests on: [`Batch::run`] does not return, and does not panic, while
//! the kernel may still touch a buffer. Every entry that the kernel has taken is waited for, after errors
//! too. If the ring itself fails, entries that the kernel has not taken go down with the ring, the others are
//! waited for by looking at the completion queue, which the kernel fills without being asked.
//!
//! Rings do not survive a fork: a ring that another process made is dropped and replaced.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::{opcode, types, IoUring};
use parking_lot::Mutex;

use super::host::{Direction, Transfer};
use crate::HostError;

/// Requests in flight at most, per batch.
const DEPTH: usize = 128;
/// Rings that are kept for later.
const KEPT_MAX: usize = 4;
/// The most bytes of one entry; the rest of a longer request follows when that much is done.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// A ring, and the process that made it.
struct Ring {
    ring: IoUring,
    process: u32,
}

/// The idle rings of a device.
pub(super) struct RingPool {
    idle: Mutex<Vec<Ring>>,
    /// The host refused to make one.
    refused: AtomicBool,
}

impl std::fmt::Debug for RingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let idle = self.idle.lock().len();
        write!(f, "RingPool({idle} idle, refused: {:?})", self.refused)
    }
}

impl RingPool {
    pub(super) fn new() -> Self {
        RingPool { idle: Mutex::new(Vec::new()), refused: AtomicBool::new(false) }
    }

    /// Pretends that the host has no io_uring, for tests of the plain calls.
    #[cfg(test)]
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether this process has made a ring and used it, and uses no other process's.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> bool {
        let idle = self.idle.lock();
        let own = |ring: &Ring| ring.process == std::process::id();
        !idle.is_empty() && idle.iter().all(own)
    }

    /// Moves as much as a ring can move. What is unfinished afterwards and has no error (all of it, if there
    /// is no ring) is for the caller to finish with plain calls.
    pub(super) fn run(
        &self,
        file: &File,
        direction: Direction,
        direct_io: bool,
        transfers: &mut [Transfer<'_>],
    ) {
        let Some(mut ring) = self.take() else {
            return;
        };
        let mut batch = Batch {
            ring: &mut ring.ring,
            descriptor: types::Fd(file.as_raw_fd()),
            direction,
            direct_io,
            transfers,
            waiting: Vec::new(),
            lengths: Vec::new(),
            in_flight: 0,
        };
        if batch.run().is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < KEPT_MAX {
                idle.push(ring);
            }
        }
    }

    fn take(&self) -> Option<Ring> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let process = std::process::id();
        {
            let mut idle = self.idle.lock();
            idle.retain(|ring| ring.process == process);
            if let Some(ring) = idle.pop() {
                return Some(ring);
            }
        }
        match IoUring::new(DEPTH as u32) {
            Ok(ring) => Some(Ring { ring, process }),
            Err(error) => {
                // Being out of memory or descriptors passes; being forbidden does not.
                let passing = [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EAGAIN];
                if !passing.contains(&error.raw_os_error().unwrap_or(0)) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

/// One batch on its way through a ring.
struct Batch<'r, 't, 'a> {
    ring: &'r mut IoUring,
    descriptor: types::Fd,
    direction: Direction,
    direct_io: bool,
    transfers: &'t mut [Transfer<'a>],
    /// Transfers to be queued, by number.
    waiting: Vec<usize>,
    /// What each transfer's latest entry asked for, in bytes.
    lengths: Vec<usize>,
    /// Entries queued whose completion has not been seen.
    in_flight: usize,
}

impl Batch<'_, '_, '_> {
    /// Runs until everything is done, or something failed and nothing is in flight. An error means that the
    /// ring is unusable.
    fn run(&mut self) -> io::Result<()> {
        self.waiting =
            (0..self.transfers.len()).rev().filter(|&index| self.transfers[index].unfinished()).collect();
        self.lengths = vec![0; self.transfers.len()];
        let mut failed = false;
        loop {
            if !failed {
                self.fill();
            }
            if self.in_flight == 0 {
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    // Interrupted, or the completion queue must be emptied first, which comes next.
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                    _ => {
                        self.wait_without_ring();
                        return Err(error);
                    }
                },
            }
            failed |= self.reap();
        }
    }

    /// Queues waiting transfers up to the depth.
    fn fill(&mut self) {
        while self.in_flight < DEPTH {
            let Some(&index) = self.waiting.last() else {
                return;
            };
            let (offset, pointer, rest) = self.transfers[index].rest();
            let len = rest.min(ENTRY_BYTES_MAX);
            let entry = match self.direction {
                Direction::Read => {
                    opcode::Read::new(self.descriptor, pointer, len as u32).offset(offset).build()
                }
                Direction::Write => {
                    opcode::Write::new(self.descriptor, pointer, len as u32).offset(offset).build()
                }
            };
            let entry = entry.user_data(index as u64);
            // SAFETY: the memory belongs to a slice that stays borrowed by the transfer, and `run` does not
            // return before the completion of every entry that the kernel has taken. The descriptor is open
            // as long as the device is borrowed.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.lengths[index] = len;
            self.in_flight += 1;
            self.waiting.pop();
        }
    }

    /// Takes in what has completed; true if something failed.
    fn reap(&mut self) -> bool {
        let mut failed = false;
        for completion in self.ring.completion() {
            self.in_flight -= 1;
            let index = completion.user_data() as usize;
            let transfer = &mut self.transfers[index];
            match completion.result() {
                error if error < 0 => match -error {
                    // The ring failed, not this request. A plain call will tell.
                    libc::EINTR | libc::EAGAIN | libc::EINVAL | libc::EOPNOTSUPP => continue,
                    errno => transfer.set_error(HostError::from_errno(errno)),
                },
                moved => {
                    let wanted = self.lengths[index];
                    transfer.advance(self.direction, self.direct_io, moved as usize, wanted);
                }
            }
            failed |= transfer.failed();
            if transfer.unfinished() {
                self.waiting.push(index);
            }
        }
        failed
    }

    /// Waits for what the kernel has taken when the ring no longer takes calls. Entries still in the
    /// submission queue were never taken and never will be: the ring is dropped after this.
    fn wait_without_ring(&mut self) {
        let untaken = self.ring.submission().len();
        while self.in_flight > untaken {
            self.reap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
