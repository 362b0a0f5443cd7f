//! Callers that have files made durable: those that come while a part of a generation is written share the
//! next one.
//!
//! A batch collects files until somebody takes it. Each caller adds its files to the batch that collects, and
//! then waits for the right to write, which one thread has at a time. Whoever gets it and finds that nobody
//! has taken its batch takes it, and writes for all in it; the others find the outcome when they get the
//! right. So what is written was looked for after all callers of the batch had come, each is told the outcome
//! of its own batch, and nobody waits for a thread that is not writing.

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use yore_format::InodeNo;

/// Callers that wait, each for an outcome of type `O`.
pub(super) struct Callers<O> {
    /// The batch that collects.
    next: Mutex<Arc<Batch<O>>>,
}

/// Files of callers that share an outcome.
pub(super) struct Batch<O> {
    files: Mutex<Vec<InodeNo>>,
    outcome: OnceLock<O>,
}

impl<O> Batch<O> {
    fn new() -> Arc<Batch<O>> {
        Arc::new(Batch { files: Mutex::default(), outcome: OnceLock::new() })
    }
}

impl<O> Default for Callers<O> {
    fn default() -> Callers<O> {
        Callers { next: Mutex::new(Batch::new()) }
    }
}

impl<O: Clone> Callers<O> {
    /// Adds files to the batch that collects.
    pub(super) fn join(&self, files: &[InodeNo]) -> Arc<Batch<O>> {
        let next = self.next.lock();
        next.files.lock().extend_from_slice(files);
        next.clone()
    }

    /// The outcome of a batch that was joined. The caller has the right to write; if nobody has written for
    /// the batch, it does so now.
    pub(super) fn serve(&self, batch: &Batch<O>, write: impl FnOnce(&[InodeNo]) -> O) -> O {
        if let Some(outcome) = batch.outcome.get() {
            return outcome.clone();
        }
        // Nobody has taken it, so it is the one that collects. Whoever comes from here on is in another.
        *self.next.lock() = Batch::new();
        let files = std::mem::take(&mut *batch.files.lock());
        let outcome = write(&files);
        batch.outcome.get_or_init(|| outcome).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Two who come before anybody has the right share what is written; who comes later does not.
    #[test]
    fn callers_share_what_is_written_after_they_came() {
        let callers = Callers::<usize>::default();
        let (first, second) = (callers.join(&[InodeNo(20)]), callers.join(&[InodeNo(21)]));
        let write = |files: &[InodeNo]| files.len();
        assert_eq!(callers.serve(&second, write), 2);
        let third = callers.join(&[InodeNo(22), InodeNo(23), InodeNo(24)]);
        assert_eq!(callers.serve(&first, |_| unreachable!("it was written")), 2);
        assert_eq!(callers.serve(&third, write), 3);
    }

    /// Many threads: each file is in what is written once, and each caller is told of a batch with its file.
    #[test]
    fn each_file_is_written_once() {
        let callers = Callers::<Arc<Vec<InodeNo>>>::default();
        let (right, written) = (Mutex::new(()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (callers, right, written) = (&callers, &right, &written);
                scope.spawn(move || {
                    for i in 0..200 {
                        let file = InodeNo(16 + thread * 1000 + i);
                        let batch = callers.join(&[file]);
                        let _right = right.lock();
                        let outcome = callers.serve(&batch, |files| {
                            written.fetch_add(files.len(), SeqCst);
                            Arc::new(files.to_vec())
                        });
                        assert!(outcome.contains(&file));
                    }
                });
            }
        });
        assert_eq!(written.load(SeqCst), 1600);
    }
}
