//! Patterns of policies, and what memory knows of whom they exclude.

use crate::InodeNo;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_core::memo::{builder, Patterns};
use yore_format::{PolicyRow, EXCLUDE_MAX};

/// Why a policy cannot exclude by this pattern.
fn check_pattern(pattern: &str) -> std::result::Result<(), String> {
    if pattern.contains(char::is_control) {
        return Err("it has a control character".into());
    }
    let mut one = builder();
    match one.add_line(None, pattern) {
        Err(ignore::Error::Glob { err, .. }) => return Err(err),
        Err(error) => return Err(error.to_string()),
        Ok(_) => {}
    }
    let compiled = one.build().map_err(|error| error.to_string())?;
    match compiled.len() {
        0 => {
            Err("it is a comment or empty, and excludes nothing (a name that begins with # is \\#...)".into())
        }
        _ => Ok(()),
    }
}

/// Checks whether a policy can exclude by these patterns.
///
/// # Errors
/// The first pattern that it cannot use and the reason, for people.
pub fn check_patterns(patterns: &[String]) -> std::result::Result<(), String> {
    for pattern in patterns {
        check_pattern(pattern)
            .map_err(|why| format!("nothing can be excluded by the pattern {pattern:?}: {why}"))?;
    }
    let bytes = patterns.iter().map(|pattern| pattern.len() + 1).sum::<usize>();
    match bytes > EXCLUDE_MAX {
        true => Err(format!(
            "the patterns of one policy have at most {EXCLUDE_MAX} bytes, with one more for each; these have {bytes}"
        )),
        false => Ok(()),
    }
}

/// All policies that exclude something.
#[derive(Default)]
pub(super) struct Exclusions {
    /// There are some.
    pub(super) any: AtomicBool,
    /// Counts changes of what they exclude: changes of patterns, and renames of directories.
    pub(super) epoch: AtomicU64,
    /// The greatest `excluding_since` of all rows: events that policies took before it see everything, like
    /// all other events. A single row may have a smaller number; then too much is kept.
    pub(super) since: AtomicU64,
    /// The inodes whose policies have patterns. Lock order: after all states, before `compiled`.
    deciding: Mutex<HashSet<InodeNo>>,
    /// Compiled patterns, as of an epoch of policies.
    pub(super) compiled: Mutex<(u64, HashMap<InodeNo, Arc<Patterns>>)>,
    /// How many inodes were born anew without a version, and how many of these are durable.
    pub(super) renewed: AtomicU64,
    pub(super) durable: AtomicU64,
}

impl Exclusions {
    /// A row of the tree of policies was set to this.
    pub(super) fn note(&self, no: InodeNo, row: Option<&PolicyRow>) {
        let mut deciding = self.deciding.lock();
        let patterns = row.and_then(|row| row.policy.exclude.as_ref());
        match patterns.is_some_and(|patterns| !patterns.is_empty()) {
            true => deciding.insert(no),
            false => deciding.remove(&no),
        };
        self.any.store(!deciding.is_empty(), Ordering::Release);
        self.since.fetch_max(row.map_or(0, |row| row.excluding_since.0), Ordering::AcqRel);
    }

    /// What the patterns exclude has changed.
    pub(super) fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}
