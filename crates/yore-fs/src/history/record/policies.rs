//! The tree of policies. What they mean is in [`crate::history::policy`].

use super::past::{Past, CELL_BLOCKS};
use super::users::{Counted, User};
use crate::{Error, InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell};
use yore_core::Core;
use yore_format::{
    key_parts, policy_key, Corruption, EventNo, GroupNo, HistoryTree, Incarnation, Policy, PolicyRow,
    WriteFeatures,
};
use yore_meta::Meta;

/// Blocks that setting a policy may need: a cell, and the first time the block of roots.
const POLICY_BLOCKS: u32 = CELL_BLOCKS + 1;

impl Past {
    /// Whether any inode has a policy.
    pub(crate) fn has_policies(&self) -> bool {
        self.any_policy.load(Ordering::Acquire)
    }

    /// Changes with each change of a policy.
    pub(crate) fn policy_epoch(&self) -> u64 {
        self.policy_epoch.load(Ordering::Acquire)
    }

    /// An inode's own policy. O(log policies).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn policy(
        &self,
        meta: &Meta,
        no: InodeNo,
        incarnation: Incarnation,
    ) -> Result<Option<Policy>> {
        Ok(self.policy_row(meta, no, incarnation)?.map(|row| row.policy))
    }

    /// An inode's own policy with everything else in its row.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(super) fn policy_row(
        &self,
        meta: &Meta,
        no: InodeNo,
        incarnation: Incarnation,
    ) -> Result<Option<PolicyRow>> {
        let _policies = self.policies.read();
        let row = self
            .tree(HistoryTree::Policies)
            .get(meta, &policy_key(no), |value| value.map(PolicyRow::decode).transpose())??;
        Ok(row.filter(|row| row.incarnation == incarnation))
    }

    /// Calls `each` with all policies, by inode number. Some may belong to inodes that are gone.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn each_policy(
        &self,
        meta: &Meta,
        each: &mut dyn FnMut(InodeNo, PolicyRow) -> Result<bool>,
    ) -> Result<()> {
        let _policies = self.policies.read();
        self.tree(HistoryTree::Policies).scan(meta, &policy_key(InodeNo(0)), &mut |key, value| {
            let [no] = key_parts::<1>(key)?;
            each(InodeNo(no), PolicyRow::decode(value)?)
        })
    }

    /// Gives an inode another policy of its own, on behalf of a user; the default policy removes it. Not
    /// durable by itself. Some policies need [`yore_format::WriteFeatures::EXTENDED_PAST`]. False if an event
    /// of a directory was taken or a directory was moved since `epoch` was read, or a policy was changed
    /// since `policies` was read ([`Past::policy_epoch`]; `None`: that does not matter): then nothing was
    /// done.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the inode is gone; [`Error::LimitReached`]; [`Error::NoSpace`]; damage and
    /// device errors.
    pub(crate) fn set_policy(
        &self,
        store: &Core,
        cell: &InodeCell,
        policy: &Policy,
        user: Option<&User>,
        (epoch, policies): (u64, Option<u64>),
    ) -> Result<bool> {
        self.set_policy_anew(store, cell, policy, user, Some((epoch, policies)))
    }

    /// As [`Past::set_policy`]. Without epochs it does not matter which events were taken meanwhile, and
    /// the patterns count as excluding from now on ([`crate::history::exclude`], E2), as changed patterns
    /// always do.
    ///
    /// # Errors
    /// As [`Past::set_policy`].
    pub(super) fn set_policy_anew(
        &self,
        store: &Core,
        cell: &InodeCell,
        policy: &Policy,
        user: Option<&User>,
        epochs: Option<(u64, Option<u64>)>,
    ) -> Result<bool> {
        let meta = &store.meta;
        // Whoever changes a policy holds this lock.
        let _events = self.events.write();
        let is_past = |(epoch, policies): (u64, Option<u64>)| {
            epoch != self.epoch() || policies.is_some_and(|policies| policies != self.policy_epoch())
        };
        if epochs.is_some_and(is_past) {
            return Ok(false);
        }
        let reserved = store.reserve(GroupNo(0), POLICY_BLOCKS)?;
        let mut state = cell.state.write();
        if state.gone || state.inode.links == 0 {
            return Err(Error::NotFound);
        }
        let _policies = self.policies.write();
        let key = policy_key(cell.no);
        let mut tree = self.tree(HistoryTree::Policies);
        if tree.blocks_for_inserts(1) > CELL_BLOCKS {
            let expected = format!("at most {}", CELL_BLOCKS - 2);
            return Err(Corruption::new("policies", "level", expected, tree.level).into());
        }
        let was = tree.get(meta, &key, |found| found.map(PolicyRow::decode).transpose())??;
        let is_there = was.is_some();
        let was = was.filter(|was| was.incarnation == cell.incarnation);
        let mut pins = Pins::new();
        tree.prepare(meta, &key, &key, &mut pins)?;
        let is_one = *policy != Policy::default();
        let owner = User { uid: state.inode.uid, limits: user.and_then(|user| user.limits) };
        if is_one && !state.inode.has_policy {
            self.users.check(Some(&owner), Counted::Policies, 1)?;
        }
        let excluded = was.as_ref().and_then(|was| was.policy.exclude.as_ref());
        let excludes_others = epochs.is_none() || excluded != policy.exclude.as_ref();
        let excluding_since = self.excluding_since(meta, policy, was.as_ref(), excludes_others);
        let row = PolicyRow { incarnation: cell.incarnation, policy: policy.clone(), excluding_since };
        let bytes = row.encode();
        let mut op = meta.begin(reserved);
        op.be_whole();
        self.make_roots(&mut op, meta.has_features(WriteFeatures::ANNALS));
        let delta = match (is_one, is_there) {
            (true, true) => Some(tree.replace(&mut op, &key, &bytes)),
            (true, false) => Some(tree.insert(&mut op, &key, &bytes, EventNo(0))),
            (false, true) => Some(tree.remove(&mut op, &key)),
            (false, false) => None,
        };
        if let Some(delta) = delta {
            self.store(&mut op, HistoryTree::Policies, &tree, delta);
        }
        if state.inode.has_policy != is_one {
            self.users.policy(owner.uid, is_one);
        }
        state.inode.has_policy = is_one;
        store_inode(&mut op, cell, &state);
        cell.cover.follow(&state.inode);
        self.any_policy.store(!tree.is_empty(), Ordering::Release);
        self.policy_epoch.fetch_add(1, Ordering::AcqRel);
        self.exclusions.note(cell.no, is_one.then_some(&row));
        if excludes_others {
            self.exclusions.changed();
        }
        drop(op);
        Ok(true)
    }

    /// The number since which the patterns of a policy exclude, given the row that it replaces. The caller
    /// holds the lock of the events.
    fn excluding_since(&self, meta: &Meta, policy: &Policy, was: Option<&PolicyRow>, anew: bool) -> EventNo {
        match &policy.exclude {
            // No event is taken meanwhile, because that needs the lock of the events.
            Some(_) if anew && self.is_any() => meta.number(),
            Some(_) => was.map_or(EventNo(0), |was| was.excluding_since),
            None => EventNo(0),
        }
    }

    /// Removes the policy of an inode number that no inode has, or that another inode has now.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn sweep_policy(&self, store: &Core, no: InodeNo, incarnation: Incarnation) -> Result<()> {
        let meta = &store.meta;
        let reserved = store.reserve_freely(GroupNo(0), 0)?;
        let _policies = self.policies.write();
        let key = policy_key(no);
        let mut tree = self.tree(HistoryTree::Policies);
        let row = tree.get(meta, &key, |value| value.map(PolicyRow::decode).transpose())??;
        if row.is_none_or(|row| row.incarnation != incarnation) {
            return Ok(());
        }
        let mut pins = Pins::new();
        tree.prepare(meta, &key, &key, &mut pins)?;
        let mut op = meta.begin(reserved);
        op.be_whole();
        let delta = tree.remove(&mut op, &key);
        self.store(&mut op, HistoryTree::Policies, &tree, delta);
        self.any_policy.store(!tree.is_empty(), Ordering::Release);
        self.exclusions.note(no, None);
        drop(op);
        Ok(())
    }
}
