//! What is asked of the table of cuts beside changing it: lists, and who needs a cut to stay.

use super::cut::{decode_cut, Cut};
use super::past::Past;
use crate::types::PinnedBy;
use crate::{InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_format::{cut_index_by_root, key_parts, CutState, HistoryTree, Number, Timestamp};
use yore_meta::Meta;

impl Past {
    /// Keeps a cut from being forgotten, until as many [`Past::unpin`].
    ///
    /// # Errors
    /// `NotFound` if it is not kept; damage and device errors.
    pub(crate) fn pin(&self, meta: &Meta, cut: Number, by: PinnedBy) -> Result<()> {
        let _still = self.expunging.hold_still();
        let _cuts = self.cuts.read();
        self.in_state_locked(meta, cut, CutState::Kept)?;
        self.pin_for(cut, by);
        Ok(())
    }

    /// As [`Past::pin`], a cut that is known to be kept.
    pub(super) fn pin_for(&self, cut: Number, by: PinnedBy) {
        self.rule_epoch.fetch_add(1, Ordering::AcqRel);
        *self.pinned.lock().entry(cut).or_default().by(by) += 1;
    }

    /// Takes one pin back.
    pub(crate) fn unpin(&self, cut: Number, by: PinnedBy) {
        let mut pinned = self.pinned.lock();
        let of_cut = pinned.get_mut(&cut).expect("who unpins has pinned");
        *of_cut.by(by) -= 1;
        if of_cut.mounts + of_cut.work == 0 {
            pinned.remove(&cut);
        }
    }

    /// Whether somebody needs a cut to stay.
    pub(crate) fn is_pinned(&self, cut: Number) -> bool {
        self.pinned.lock().contains_key(&cut)
    }

    /// Whether a cut is mounted by itself.
    pub(crate) fn is_mounted(&self, cut: Number) -> bool {
        self.pinned.lock().get(&cut).is_some_and(|pinned| pinned.mounts > 0)
    }

    /// Calls `each` with the cuts of a directory itself from this number on, kept or dying, in ascending order, until it returns false.
    pub(crate) fn each_of(
        &self,
        meta: &Meta,
        root: InodeNo,
        from: Number,
        each: &mut dyn FnMut(Cut) -> Result<bool>,
    ) -> Result<()> {
        let _cuts = self.cuts.read();
        self.tree(HistoryTree::CutIndex).scan(meta, &cut_index_by_root(root, from), &mut |key, _| {
            match key_parts::<2>(key)? {
                [of, number] if of == root.0 => each(self.indexed(meta, Number(number))?),
                _ => Ok(false),
            }
        })
    }

    /// What changes whenever a cut is taken or becomes invisible: the last number, and how many are kept.
    pub(crate) fn stamp(&self) -> (Number, usize) {
        let numbers = self.numbers.read();
        (Number(self.last.load(Ordering::Acquire)), numbers.kept.len())
    }

    /// When the first cut behind a number was taken, whether it is kept or was forgotten. O(log cuts).
    pub(crate) fn time_after(&self, meta: &Meta, number: Number) -> Result<Option<Timestamp>> {
        let _cuts = self.cuts.read();
        let mut first: Option<Cut> = None;
        let Some(next) = number.0.checked_add(1) else { return Ok(None) };
        for tree in [HistoryTree::Cuts, HistoryTree::Forgotten] {
            self.tree(tree).scan(meta, &next.to_be_bytes(), &mut |key, value| {
                let cut = decode_cut(key, value)?;
                if first.as_ref().is_none_or(|first| cut.number < first.number) {
                    first = Some(cut);
                }
                Ok(false)
            })?;
        }
        Ok(first.map(|cut| cut.row.time))
    }
}
