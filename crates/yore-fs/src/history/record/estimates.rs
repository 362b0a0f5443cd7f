//! What giving up history would free, as it was found out lately for each user's requests.

use crate::types::Behalf;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Users whose answers are remembered.
const ANSWERS: usize = 64;

/// What giving up all that may go frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Most {
    /// Data blocks, at least.
    pub data: u64,
    /// Whether there is an event that may go.
    pub any: bool,
}

/// Answers that are good for some time.
#[derive(Default)]
pub(crate) struct Estimates(Mutex<HashMap<Behalf, Answer>>);

/// An answer.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    /// What would be freed.
    pub most: Most,
    /// Whether all was looked at.
    pub is_whole: bool,
    /// The epoch of the rules that it was asked for with.
    pub epoch: u64,
    /// The data blocks that history had.
    pub history: u64,
    /// When it was asked for.
    pub asked: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Estimates {
    /// The last answer for a user's requests, if the rules are those of then.
    pub(crate) fn known(&self, behalf: Behalf, epoch: u64) -> Option<Answer> {
        self.0.lock().get(&behalf).copied().filter(|answer| answer.epoch == epoch)
    }

    /// Remembers an answer.
    pub(crate) fn put(&self, behalf: Behalf, answer: Answer) {
        let mut answers = self.0.lock();
        if answers.len() >= ANSWERS {
            answers.clear();
        }
        answers.insert(behalf, answer);
    }
}
