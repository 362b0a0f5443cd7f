//! How calls on the present pass the gate ([`crate::history::gate`]): which inodes each of them concerns.

use super::below::{inode_named, is_around, is_below};
use super::handle::View;
use crate::go_on::GoOn;
use crate::history::gate::Passage;
use crate::store::Store;
use crate::{InodeNo, Result};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// How often a long question begins anew at most because a directory was rolled back meanwhile.
const ANEW_MOST: u32 = 3;

/// How many bytes a question has said that it has collected.
#[derive(Default)]
struct Collected {
    /// Since it last began.
    now: AtomicUsize,
    /// The most, whenever it began.
    most: AtomicUsize,
}

impl Collected {
    /// The question begins, perhaps anew.
    fn begin(&self) {
        self.now.store(0, Ordering::Relaxed);
    }

    /// It has collected so many more. Returns by how much that is more than ever before: what it had
    /// collected before it began anew is thrown away.
    fn add(&self, bytes: usize) -> usize {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        now.saturating_sub(self.most.fetch_max(now, Ordering::Relaxed))
    }
}

impl View {
    #[inline]
    fn pass(&self, concerns: impl Fn(&Arc<Store>, InodeNo) -> Result<bool>) -> Result<Option<Passage>> {
        match self.at.is_some() || self.inside {
            true => Ok(None),
            false => self.store().gate.enter(|directory| concerns(self.store(), directory)).map(Some),
        }
    }

    /// For a call on an inode: waits while the inode is rolled back.
    #[inline]
    pub(crate) fn enter(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| is_below(store, no, directory))
    }

    /// For a call on two inodes.
    #[inline]
    pub(crate) fn enter_both(&self, a: InodeNo, b: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| Ok(is_below(store, a, directory)? || is_below(store, b, directory)?))
    }

    /// For a call on names, which also concerns the inodes that they mean.
    #[inline]
    pub(crate) fn enter_names(&self, names: &[(InodeNo, &[u8])]) -> Result<Option<Passage>> {
        self.pass(|store, directory| {
            for (no, name) in names {
                if is_below(store, *no, directory)? {
                    return Ok(true);
                }
                if let Some(found) = inode_named(store, *no, name)? {
                    if is_below(store, found, directory)? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
    }

    /// For a call on the names of a directory and on all that they mean.
    #[inline]
    pub(crate) fn enter_listing(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| {
            // A file with several names may be in any directory, so nothing more is known than that the
            // entries of this directory may change.
            Ok(is_below(store, no, directory)? || store.cell(directory)?.state.read().inode.parent == no)
        })
    }

    /// For a call on an inode and everything below it.
    #[inline]
    pub(crate) fn enter_around(&self, no: InodeNo) -> Result<Option<Passage>> {
        self.pass(|store, directory| is_around(store, no, directory))
    }

    /// Asks a long question about an inode and everything below it, which changes nothing. Rollbacks do not
    /// wait for it: if one concerns it, it begins anew when that is over. Only if that has happened
    /// [`ANEW_MOST`] times, they wait.
    pub(crate) fn ask_around<T>(
        &self,
        no: InodeNo,
        go_on: GoOn<'_>,
        question: &dyn Fn(GoOn<'_>) -> Result<T>,
    ) -> Result<T> {
        let collected = Collected::default();
        for _ in 0..ANEW_MOST {
            let Some(passage) = self.enter_around(no)? else { return question(go_on) };
            let watch = self.store().gate.watch(no);
            drop(passage);
            collected.begin();
            let answer = question(&|bytes| match watch.is_disturbed() {
                true => ControlFlow::Break(()),
                false => go_on(collected.add(bytes)),
            });
            if !watch.is_disturbed() {
                return answer;
            }
        }
        let _passage = self.enter_around(no)?;
        collected.begin();
        question(&|bytes| go_on(collected.add(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a question had collected before it began anew does not count twice towards the bound of an
    /// answer.
    #[test]
    fn what_is_thrown_away_does_not_count() {
        let collected = Collected::default();
        assert_eq!([3, 4].map(|bytes| collected.add(bytes)), [3, 4]);
        collected.begin();
        assert_eq!([5, 1, 2].map(|bytes| collected.add(bytes)), [0, 0, 1]);
    }
}
