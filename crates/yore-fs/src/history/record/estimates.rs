//! Recent answers to the question what giving up history would free, for each user's requests.

use crate::types::Behalf;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How many users' answers are remembered.
const ANSWERS: usize = 64;

/// How much giving up all that may go frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Most {
    /// Data blocks, at least.
    pub data: u64,
    /// Whether there is an event that may go.
    pub any: bool,
}

/// Answers that are valid for some time.
#[derive(Default)]
pub(crate) struct Estimates(Mutex<HashMap<Behalf, Answer>>);

/// An answer.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    /// What would be freed.
    pub most: Most,
    /// Whether the survey looked at everything.
    pub is_whole: bool,
    /// The epoch of the rules at the time of the survey.
    pub epoch: u64,
    /// How many data blocks history had.
    pub history: u64,
    /// When the survey was made.
    pub asked: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Estimates {
    /// The last answer for a user's requests, if the rules have not changed since.
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
