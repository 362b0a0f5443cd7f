//! Patterns of policies, compiled, and what is remembered of whom they exclude. What that means is in [`crate::history::exclude`].

use super::Past;
use crate::core::inode::InodeCell;
use crate::core::memo::{builder, Patterns};
use crate::core::Core;
use crate::{Error, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{Inode, Number, PolicyRow, EXCLUDE_MAX};
use yore_meta::Meta;

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

/// Says why a policy cannot exclude by these patterns.
///
/// # Errors
/// The pattern and the reason, for people.
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
    any: AtomicBool,
    /// Counts what changes whom they exclude: changes of patterns, and renames of directories.
    epoch: AtomicU64,
    /// The greatest number of those that their rows have: snapshots of policies that were taken before count as all others. Of one row it may
    /// be less, and then too much is kept.
    since: AtomicU64,
    /// Whose policies have patterns. Lock order: after all states, before `compiled`.
    deciding: Mutex<HashSet<InodeNo>>,
    /// Compiled ones, as of an epoch of policies.
    compiled: Mutex<(u64, HashMap<InodeNo, Arc<Patterns>>)>,
    /// How many inodes were born anew without a version, and how many of these are durable.
    renewed: AtomicU64,
    durable: AtomicU64,
}

impl Exclusions {
    /// A row of the tree of policies is this now.
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

    /// Whom they exclude has changed.
    pub(super) fn changed(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

impl Past {
    /// Whether any policy excludes anything.
    pub(crate) fn has_exclusions(&self) -> bool {
        self.exclusions.any.load(Ordering::Acquire)
    }

    /// Changes with whom policies exclude, but for renames of what is no directory.
    pub(crate) fn exclusion_epoch(&self) -> u64 {
        self.exclusions.epoch.load(Ordering::Acquire)
    }

    /// A directory has another name. Inside the Op that gives it.
    pub(crate) fn note_renamed_directory(&self) {
        if self.has_exclusions() {
            self.exclusions.changed();
        }
    }

    /// The patterns of the policy of this inode's own; `None` if it says nothing of them.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn patterns(&self, meta: &Meta, cell: &InodeCell) -> Result<Option<Arc<Patterns>>> {
        if !cell.cover.has_policy.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let epoch = self.policy_epoch();
        {
            let mut compiled = self.exclusions.compiled.lock();
            if compiled.0 != epoch {
                *compiled = (epoch, HashMap::new());
            }
            if let Some(known) = compiled.1.get(&cell.no) {
                return Ok(Some(known.clone()));
            }
        }
        let Some(own) = self.policy(meta, cell.no, cell.incarnation)?.and_then(|own| own.exclude) else {
            return Ok(None);
        };
        let patterns = Arc::new(Patterns::new(cell.no, &own));
        let mut compiled = self.exclusions.compiled.lock();
        if compiled.0 == epoch {
            compiled.1.insert(cell.no, patterns.clone());
        }
        Ok(Some(patterns))
    }

    /// Reads which policies exclude something.
    pub(super) fn load_exclusions(&self, meta: &Meta) -> Result<()> {
        self.each_policy(meta, &mut |no, row| {
            self.exclusions.note(no, Some(&row));
            Ok(true)
        })
    }

    /// The last kept cut up to this one that sees what is excluded, too: one that somebody asked for, or of before it was excluded.
    fn round_asked(&self, cut: Number) -> Number {
        let since = self.exclusions.since.load(Ordering::Acquire);
        let numbers = self.numbers.read();
        let asked = numbers.asked.range(..=cut).next_back().copied();
        let before = since.checked_sub(1).map(|last| Number(last).min(cut));
        let before = before.and_then(|last| numbers.directories.range(..=last).next_back().copied());
        asked.max(before).unwrap_or_default()
    }

    /// What covers an inode that is excluded: as [`Past::cover`], but of the cuts that cover it with all that is below a directory only those
    /// that see what is excluded.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn cover_asked(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<Number> {
        if !self.is_any() {
            return Ok(Number(0));
        }
        let above = self.cover_above(store, cell, inode, self.epoch())?;
        Ok(self.round_own(cell.no, inode.own_cut).max(self.round_asked(above)))
    }

    /// The same of a name in a directory.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(super) fn cover_of_names(
        &self,
        store: &Core,
        directory: &InodeCell,
        inode: &Inode,
    ) -> Result<Number> {
        Ok(self.round_asked(self.cover(store, directory, inode)?))
    }

    /// Whether inodes and names may be missing as of a kept cut, though directories name them: a policy took it, and one may have excluded
    /// them.
    pub(crate) fn may_miss(&self, meta: &Meta, cut: Number) -> bool {
        // Who gives a policy patterns gives the volume this before.
        if !meta.has_features(yore_format::WriteFeatures::EXTENDED_PAST) {
            return false;
        }
        let numbers = self.numbers.read();
        numbers.directories.contains(&cut) && !numbers.asked.contains(&cut)
    }

    /// Whether policies have taken a cut of a directory at this number or later.
    pub(super) fn any_unasked_since(&self, number: Number) -> bool {
        let numbers = self.numbers.read();
        numbers.directories.range(number..).any(|cut| !numbers.asked.contains(cut))
    }

    /// Before what makes the patterns of a directory's policy exclude more than they did: what policies took until now has seen what they
    /// exclude. If there is such a cut that they did not know of.
    ///
    /// # Errors
    /// As [`Past::set_policy`].
    pub(crate) fn exclude_anew(&self, store: &Core, cell: &InodeCell) -> Result<()> {
        let row = self.policy_row(&store.meta, cell.no, cell.incarnation)?;
        let Some(row) = row.filter(|row| row.policy.exclude.is_some()) else { return Ok(()) };
        if !self.any_unasked_since(row.excluding_since) {
            return Ok(());
        }
        match self.set_policy_anew(store, cell, &row.policy, None, None) {
            // It is gone, and with it what it excluded.
            Err(Error::NotFound) => Ok(()),
            set => set.map(drop),
        }
    }

    /// Inside the Op in which an inode is born anew without a version.
    pub(crate) fn note_renewed(&self, cell: &InodeCell) {
        let renewed = self.exclusions.renewed.fetch_add(1, Ordering::AcqRel) + 1;
        cell.cover.excluded.renewed.store(renewed, Ordering::Release);
    }

    /// Before blocks of inodes are overwritten of which this is the greatest place ([`ExcludedMemo::renewed`]): that they were born anew is
    /// durable. Else a crash could leave an inode that says that
    /// it was so as of a cut, with data of later.
    ///
    /// # Errors
    /// Those of making it durable.
    pub(crate) fn settle_renewed(&self, meta: &Meta, newest: u64) -> Result<()> {
        if newest <= self.exclusions.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let upto = self.exclusions.renewed.load(Ordering::Acquire);
        meta.force()?;
        self.exclusions.durable.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }
}
