//! Patterns of policies, compiled, and what is remembered of whom they exclude. What that means is in [`crate::history::exclude`].

use super::Past;
use crate::core::inode::InodeCell;
use crate::core::Core;
use crate::{Error, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{Inode, Number, PolicyRow, EXCLUDE_MAX};
use yore_meta::Meta;

/// The patterns of one policy.
#[derive(Debug)]
pub(crate) struct Patterns(Gitignore);

impl Patterns {
    /// Compiles patterns. What cannot be compiled excludes nothing: no other program of this format takes such a pattern, so it is damage,
    /// and too many versions harm nobody.
    fn new(of: InodeNo, patterns: &[String]) -> Patterns {
        let mut builder = builder();
        for pattern in patterns {
            if let Err(error) = builder.add_line(None, pattern) {
                tracing::warn!("the policy of inode {of} has a pattern that excludes nothing: {error}");
            }
        }
        Patterns(builder.build().unwrap_or_else(|error| {
            tracing::warn!("the patterns of the policy of inode {of} exclude nothing: {error}");
            Gitignore::empty()
        }))
    }

    /// Whether a path below the directory of the policy is excluded by itself, whatever is above.
    fn exclude(&self, path: &[u8], is_directory: bool) -> bool {
        self.0.matched(OsStr::from_bytes(path), is_directory).is_ignore()
    }
}

fn builder() -> GitignoreBuilder {
    let mut builder = GitignoreBuilder::new(".");
    builder.allow_unclosed_class(false);
    builder
}

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

/// Where a directory is, as patterns see it.
#[derive(Debug)]
pub(crate) struct Place {
    /// The nearest policy upwards that says what is excluded, with whose it is.
    decides: Option<(InodeNo, Arc<Patterns>)>,
    /// The path from there.
    path: Vec<u8>,
    /// The directory is excluded, and so is what is below it.
    pub(crate) excluded: bool,
}

impl Place {
    /// Of the root directory of a volume whose policy says nothing of this.
    pub(crate) fn undecided() -> Place {
        Place { decides: None, path: Vec::new(), excluded: false }
    }

    /// Of a directory whose own policy says what is excluded below it.
    pub(crate) fn deciding(by: InodeNo, patterns: Arc<Patterns>) -> Place {
        Place { decides: Some((by, patterns)), path: Vec::new(), excluded: false }
    }

    /// Of a directory in this one.
    pub(crate) fn of_directory(&self, name: &[u8]) -> Place {
        let excluded = self.excludes(name, true);
        Place { decides: self.decides.clone(), path: self.path_of(name), excluded }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match self.path.is_empty() {
            true => name.to_vec(),
            false => [&self.path[..], b"/", name].concat(),
        }
    }

    /// Whose policy says what is excluded in it.
    pub(crate) fn decided_by(&self) -> Option<InodeNo> {
        self.decides.as_ref().map(|(by, _)| *by)
    }

    /// Whether what has this name in the directory is excluded.
    pub(crate) fn excludes(&self, name: &[u8], is_directory: bool) -> bool {
        let Some((_, patterns)) = &self.decides else { return false };
        self.excluded || patterns.exclude(&self.path_of(name), is_directory)
    }
}

/// What is known of an inode.
#[derive(Clone)]
pub(crate) enum Known {
    /// Of a directory.
    Directory(Arc<Place>),
    /// Of anything else: whether its name is excluded.
    Other(bool),
}

impl Known {
    /// Whether it is excluded.
    pub(crate) fn excluded(&self) -> bool {
        match self {
            Known::Directory(place) => place.excluded,
            Known::Other(excluded) => *excluded,
        }
    }
}

/// What a cell remembers of it.
#[derive(Default)]
pub(crate) struct ExcludedMemo {
    /// The cookie of its name.
    pub(super) cookie: AtomicU64,
    /// Counts its names and policies.
    followed: AtomicU64,
    /// With the epoch as of which it is known.
    known: Mutex<Option<(u64, Known)>>,
    /// The place in the order of those that were born anew without a version; 0: it was not.
    renewed: AtomicU64,
}

impl ExcludedMemo {
    /// The inode has another name, or another policy.
    pub(super) fn follow(&self, inode: &Inode) {
        self.cookie.store(inode.parent_cookie, Ordering::Relaxed);
        self.followed.fetch_add(1, Ordering::AcqRel);
        *self.known.lock() = None;
    }

    /// What is compared by [`ExcludedMemo::set`].
    pub(crate) fn followed(&self) -> u64 {
        self.followed.load(Ordering::Acquire)
    }

    /// Its place in the order of those that were born anew without a version; 0: it was not.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Acquire)
    }

    /// The cookie of its name.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// What is known as of an epoch.
    pub(crate) fn get(&self, epoch: u64) -> Option<Known> {
        self.known.lock().as_ref().filter(|(of, _)| *of == epoch).map(|(_, known)| known.clone())
    }

    /// Remembers what was found out since `followed` was read, unless it has another name since.
    pub(crate) fn set(&self, epoch: u64, followed: u64, known: Known) {
        let mut memo = self.known.lock();
        if self.followed() == followed {
            *memo = Some((epoch, known));
        }
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
