//! What the daemon remembers between requests: long answers that have not been read to their end, and
//! questions that it is still answering.
//!
//! An answer that does not fit into one buffer is kept under a *key*. The user who asked reads it in parts,
//! and it is dropped after the last one. At most 8 answers are kept, 64 MiB in all. An answer of which nobody
//! has read a part for a minute is dropped when the next long answer comes. A client that finds its answer
//! gone asks again.
//!
//! A question that takes long may have a *name*, a number that the client chooses. While the question is
//! being answered, another request of the same user learns how far it is, or breaks it off. A user may have
//! only so many of them answered at a time.

use crate::wire::{encode_answer, encode_or_content, ROWS};
use crate::Answer;
use parking_lot::Mutex;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_fs::{Error, Progress, Result};

/// The longest answer, and all kept answers together, in bytes.
pub(crate) const ANSWER_MOST: usize = 64 << 20;
/// So many times the longest answer is collected for one.
const COLLECTED_FOR_ONE: usize = 4;
/// How many answers are kept.
const STORED_MOST: usize = 8;
/// How long an answer is kept from the time when a part of it was last read.
const STORED_FOR: Duration = Duration::from_secs(60);

/// An answer that is kept.
struct StoredAnswer {
    key: u64,
    uid: u32,
    content: Vec<u8>,
    asked: Instant,
}

/// The kept answers, the oldest first.
#[derive(Default)]
struct Answers {
    last_key: u64,
    stored: Vec<StoredAnswer>,
}

/// A question that is being answered.
struct Question {
    uid: u32,
    /// 0: it has none.
    name: u64,
    progress: Arc<Progress>,
    /// Whoever asked wants it to be broken off.
    broken_off: Arc<AtomicBool>,
}

/// What the daemon remembers between requests.
pub struct Ongoing {
    most: usize,
    answers: Mutex<Answers>,
    questions: Mutex<Vec<Question>>,
}

impl Default for Ongoing {
    fn default() -> Ongoing {
        Ongoing { most: ANSWER_MOST, answers: Mutex::default(), questions: Mutex::default() }
    }
}

/// A question that is being answered. It ends when this is dropped.
pub(crate) struct Asked<'o> {
    questions: &'o Mutex<Vec<Question>>,
    pub(crate) progress: Arc<Progress>,
    broken_off: Arc<AtomicBool>,
}

impl Asked<'_> {
    /// Whether whoever asked wants it to be broken off.
    pub(crate) fn is_broken_off(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.questions.lock().retain(|question| !Arc::ptr_eq(&question.progress, &self.progress));
    }
}

impl Ongoing {
    /// For answers that need not fit into buffers of the kernel, and so may be of any length.
    pub fn here() -> Ongoing {
        Ongoing { most: usize::MAX, ..Ongoing::default() }
    }

    /// For answers of so many bytes at most.
    #[cfg(test)]
    pub(crate) fn short(most: usize) -> Ongoing {
        Ongoing { most, ..Ongoing::default() }
    }

    /// Encodes an answer for a user into bytes that fit into the buffer: all of it, or its first part.
    pub fn encode(&self, uid: u32, answer: &Result<Answer>) -> Vec<u8> {
        let content = match encode_or_content(answer) {
            Ok(bytes) => return bytes,
            Err(content) => content,
        };
        // `encode_answer` shortens an error that does not fit.
        if answer.is_err() {
            return encode_answer(answer);
        }
        if content.len() > self.most {
            return encode_answer(&Err(too_long()));
        }
        let mut answers = self.answers.lock();
        let Answers { last_key, stored } = &mut *answers;
        *last_key += 1;
        let first = part_of(*last_key, &content, 0);
        stored.retain(|stored| stored.asked.elapsed() < STORED_FOR);
        stored.push(StoredAnswer { key: *last_key, uid, content, asked: Instant::now() });
        let size = |stored: &[StoredAnswer]| stored.iter().map(|stored| stored.content.len()).sum::<usize>();
        while stored.len() > STORED_MOST || (size(stored) > self.most && stored.len() > 1) {
            stored.remove(0);
        }
        encode_answer(&Ok(first))
    }

    /// The part of a user's answer that begins at byte `at`. The last part can be read only once.
    ///
    /// # Errors
    /// [`Error::Stale`] if the answer is not kept any more; [`Error::Invalid`] beyond its end.
    pub(crate) fn part(&self, uid: u32, key: u64, at: u64) -> Result<Answer> {
        let mut answers = self.answers.lock();
        let found = answers.stored.iter().position(|stored| (stored.key, stored.uid) == (key, uid));
        let index = found.ok_or(Error::Stale)?;
        let StoredAnswer { content, asked, .. } = &mut answers.stored[index];
        *asked = Instant::now();
        let at = usize::try_from(at).ok().filter(|at| *at < content.len());
        let at = at.ok_or(Error::Invalid { what: "an answer has no part beyond its end" })?;
        let part = part_of(key, content, at);
        if at + ROWS >= content.len() {
            answers.stored.remove(index);
        }
        Ok(part)
    }

    /// Notes that a user's question is being answered. If its name is 0, it has none. `most` is how many the
    /// user may have.
    ///
    /// # Errors
    /// [`Error::Refused`] if the user has as many already.
    pub(crate) fn begin(&self, uid: u32, name: u64, most: Option<usize>) -> Result<Asked<'_>> {
        let mut questions = self.questions.lock();
        let others = questions.iter().filter(|question| question.uid == uid).count();
        if let Some(most) = most.filter(|most| others >= *most) {
            return Err(Error::Refused(format!(
                "{most} questions of user {uid} that take long are being answered already; ask again when one of them is"
            )));
        }
        let (progress, broken_off) = (Arc::new(Progress::default()), Arc::new(AtomicBool::new(false)));
        questions.push(Question { uid, name, progress: progress.clone(), broken_off: broken_off.clone() });
        drop(questions);
        Ok(Asked { questions: &self.questions, progress, broken_off })
    }

    /// The question of a user with a name, if it is being answered.
    fn with_name<R>(&self, uid: u32, name: u64, work: impl Fn(&Question) -> R) -> Option<R> {
        let questions = self.questions.lock();
        let is_it = |question: &&Question| name != 0 && (question.uid, question.name) == (uid, name);
        questions.iter().find(is_it).map(work)
    }

    /// How far a question is: what is done, and all there is to do. `None` if it is not being answered.
    pub(crate) fn how_far(&self, uid: u32, name: u64) -> Option<(u64, u64)> {
        self.with_name(uid, name, |question| question.progress.get())
    }

    /// Asks for a question of a user to be broken off, if it is being answered.
    pub(crate) fn break_off(&self, uid: u32, name: u64) {
        // There may be none any more.
        let _ = self.with_name(uid, name, |question| question.broken_off.store(true, Ordering::Relaxed));
    }

    /// How many bytes are collected for an answer at most. Not all of them become part of it: a user does not
    /// learn every name, and what took the place of something else may be no difference at all.
    pub(crate) fn collected_most(&self) -> usize {
        self.most.saturating_mul(COLLECTED_FOR_ONE)
    }

    /// An empty list of rows for an answer.
    pub(crate) fn rows<T: Serialize>(&self) -> Rows<T> {
        Rows { rows: Vec::new(), bytes: 0, most: self.most }
    }
}

fn part_of(key: u64, content: &[u8], at: usize) -> Answer {
    let end = content.len().min(at + ROWS);
    Answer::Part { key, length: content.len() as u64, bytes: content[at..end].to_vec() }
}

pub(crate) fn too_long() -> Error {
    Error::Refused(
        "that is more than a mount tells at once (64 MiB); ask for a directory below, or unmount the volume and ask that"
            .into(),
    )
}

/// The rows of an answer. There may be no more than fit into the longest answer.
pub(crate) struct Rows<T> {
    rows: Vec<T>,
    bytes: usize,
    most: usize,
}

impl<T: Serialize> Rows<T> {
    /// Adds a row, and breaks if there is no room for more.
    pub(crate) fn push(&mut self, row: T) -> ControlFlow<()> {
        self.bytes = self.bytes.saturating_add(crate::wire::size(&row).unwrap_or(usize::MAX));
        self.rows.push(row);
        match self.bytes > self.most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// All of them.
    ///
    /// # Errors
    /// There were too many.
    pub(crate) fn all(self) -> Result<Vec<T>> {
        match self.bytes > self.most {
            true => Err(too_long()),
            false => Ok(self.rows),
        }
    }
}

#[cfg(test)]
mod tests;
