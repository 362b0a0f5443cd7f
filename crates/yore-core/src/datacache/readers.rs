//! Threads that read ahead, and how a run of pages is read (`file/ahead.rs` says why).

use crate::alloc::{Checksums, Mismatch};
use crate::pages::{Arriving, PageCache};
use crate::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::thread::JoinHandle;
use yore_device::{AlignedBuf, Device};
use yore_format::{BlockNo, Corruption, BLOCK_SIZE};

/// Bytes of a page.
const PAGE: u64 = BLOCK_SIZE as u64;
/// Threads that read: while one waits for the device, the other enters the pages that it has read.
const THREADS: usize = 2;
/// How many stretches may wait to be read. Beyond that, readers read for themselves.
const QUEUE_MOST: usize = 64;

/// A stretch of a file to be read.
pub struct Job {
    /// The pages that wait for the data.
    pub to: Arriving,
    /// The first block.
    pub start: BlockNo,
    /// Up to where the medium had the file's bytes.
    pub valid: u64,
    /// What the blocks should hold.
    pub checksums: Checksums,
    /// The cache that the pages belong to.
    pub cache: Arc<PageCache>,
    /// The device that the thread reads.
    pub device: Arc<dyn Device>,
}

impl Job {
    fn run(self) {
        let range = self.to.range();
        self.cache.make_room(range.len());
        match read_run(
            &*self.device,
            self.start,
            range.start,
            range.len() as u32,
            self.valid,
            &self.checksums,
        ) {
            Ok(pages) => self.to.arrive(pages),
            Err(error) => tracing::debug!(%error, "reading ahead"),
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for something to do.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The threads that read ahead.
#[derive(Default)]
pub struct Readers {
    shared: Arc<Shared>,
}

impl Readers {
    /// Hands over a stretch. Returns false if no thread can read it now.
    pub fn take(&self, job: Job) -> bool {
        let mut queue = self.shared.queue.lock();
        if queue.stopped || queue.jobs.len() >= QUEUE_MOST {
            drop(queue);
            return false; // The job ends here, and with it the stretch.
        }
        if queue.idle <= queue.jobs.len() && queue.threads.len() < THREADS {
            let shared = self.shared.clone();
            let started =
                std::thread::Builder::new().name("yore-readahead".into()).spawn(move || serve(&shared));
            match started {
                Ok(thread) => queue.threads.push(thread),
                Err(_) if queue.threads.is_empty() => {
                    drop(queue);
                    return false;
                }
                Err(_) => {}
            }
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
        true
    }

    /// Ends the threads. Readers read for themselves what was not read yet. Nothing is taken afterwards.
    pub(crate) fn stop(&self) {
        let (jobs, threads) = {
            let mut queue = self.shared.queue.lock();
            queue.stopped = true;
            (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.threads))
        };
        self.shared.wake.notify_all();
        drop(jobs);
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that reads ahead panicked");
            }
        }
    }
}

fn serve(shared: &Shared) {
    loop {
        let job = {
            let mut queue = shared.queue.lock();
            loop {
                if queue.stopped {
                    return;
                }
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                queue.idle += 1;
                shared.wake.wait(&mut queue);
                queue.idle -= 1;
            }
        };
        job.run();
    }
}

/// Reads up to `count` pages; the page of the file that is at `start` is `first`. Zeros what lies beyond
/// `valid` bytes (F1). If a block cannot be read, or its bytes are not what its checksum says, the pages
/// before it are all that is returned.
///
/// # Errors
/// The device's, if the first block cannot be read; `Corruption` if it is not what its checksum says.
pub fn read_run(
    device: &dyn Device,
    start: BlockNo,
    first: u32,
    count: u32,
    valid: u64,
    checksums: &Checksums,
) -> Result<Vec<AlignedBuf>> {
    let mut pages: Vec<AlignedBuf> = (0..count).map(|_| AlignedBuf::zeroed(1)).collect();
    let mut slices: Vec<IoSliceMut<'_>> = pages.iter_mut().map(|p| IoSliceMut::new(p)).collect();
    if let Err(error) = device.read_vectored_at(start.0 * PAGE, &mut slices) {
        // The pages before the one that cannot be read may have been asked for, and that one perhaps not.
        let is_read = |(i, page): (u64, &mut AlignedBuf)| device.read_at((start.0 + i) * PAGE, page).is_ok();
        let sound = (0..).zip(pages.iter_mut()).map(is_read).take_while(|is_read| *is_read).count();
        if sound == 0 {
            return Err(error.into());
        }
        pages.truncate(sound);
    }
    if let Some(wrong) = checksums.first_wrong(pages.iter().map(|page| &page[..])) {
        if wrong.at == 0 {
            return Err(damaged(u64::from(first), start, wrong).into());
        }
        pages.truncate(wrong.at);
    }
    for (i, page) in pages.iter_mut().enumerate().rev() {
        let at = (u64::from(first) + i as u64) * PAGE;
        if at + PAGE <= valid {
            break;
        }
        page[valid.saturating_sub(at) as usize..].fill(0);
    }
    Ok(pages)
}

/// The damage of a block of a file, which is at file block `at`.
pub fn damaged(at: u64, block: BlockNo, wrong: Mismatch) -> Box<Corruption> {
    let found = format!(
        "{:#010x} at offset {} of the file (`yore log --verify FILE` names the last state that is whole)",
        wrong.found.get(),
        at * PAGE
    );
    Corruption::new("file data", "checksum", format!("{:#010x}", wrong.expected.get()), found).on(block)
}
