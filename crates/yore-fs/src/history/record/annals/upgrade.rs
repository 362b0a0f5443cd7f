//! How a volume gets annals, and a new number where one is full of rows.
//!
//! A volume with a past of old trees alone gets annals when something is first recorded there, or just before
//! its first shared block; one without a past, with its first event or policy.

use crate::history::record::past::Past;
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use yore_core::Core;
use yore_format::{GroupNo, WriteFeatures, EVENT_LIMIT};
use yore_meta::Meta;

impl Past {
    /// Whether this volume has no annals, and can have some.
    pub(crate) fn wants_annals(&self, meta: &Meta) -> bool {
        self.annals_from.load(Ordering::Acquire) == 0 && has_numbers_left(meta)
    }

    /// Numbers of events end where the keys of annals do.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are none left.
    pub(in crate::history::record) fn check_numbers_left(&self, meta: &Meta) -> Result<()> {
        match has_numbers_left(meta) {
            true => Ok(()),
            false => Err(Error::Refused(
                "the volume has used up the numbers of its snapshots: copy its files to a new volume".into(),
            )),
        }
    }

    /// If the volume has no past yet, annals begin with it: with the first event, policy or row of an
    /// operation. The caller holds no lock.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; those of writing a generation.
    pub(crate) fn extend_for_annals(&self, meta: &Meta) -> Result<()> {
        match self.roots.get().is_none() && self.wants_annals(meta) {
            true => Ok(meta.extend(WriteFeatures::ANNALS)?),
            false => Ok(()),
        }
    }

    /// If a volume has a past in old trees alone, annals begin now: its first shared block is about to be
    /// made, and until then the references of its past are as many as its retained blocks. The caller holds
    /// no lock.
    ///
    /// # Errors
    /// As [`Past::pass_number`].
    pub(crate) fn begin_annals_before_sharing(&self, store: &Core) -> Result<()> {
        match self.roots.get().is_some() && self.wants_annals(&store.meta) {
            true => self.pass_number(store),
            false => Ok(()),
        }
    }

    /// Whether the volume has a past in old trees alone, and shares blocks. Some programs left it so while
    /// format 2.3 was made.
    pub(crate) fn shares_without_annals(&self, meta: &Meta) -> bool {
        self.roots.get().is_some() && meta.has_features(WriteFeatures::TABLES) && self.wants_annals(meta)
    }

    /// Takes a number that no event has. What is recorded from then on ends at a later number. If the volume
    /// has no annals, they begin behind the number; it shares no blocks then. The caller holds no lock of a
    /// state, and no Op.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Refused`] if there are no numbers left; those of writing a generation;
    /// damage and device errors.
    pub(crate) fn pass_number(&self, store: &Core) -> Result<()> {
        self.pass_number_with(store, |past| past.space().data)
    }

    /// The same on a volume of which [`Past::shares_without_annals`] holds, and whose past has so many
    /// references.
    ///
    /// # Errors
    /// As [`Past::pass_number`].
    pub(crate) fn begin_annals_with(&self, store: &Core, references: u64) -> Result<()> {
        self.pass_number_with(store, |_| references)
    }

    fn pass_number_with(&self, store: &Core, references: impl FnOnce(&Past) -> u64) -> Result<()> {
        let meta = &store.meta;
        self.check_numbers_left(meta)?;
        meta.extend(WriteFeatures::ANNALS)?;
        let _events = self.events.write();
        self.check_numbers_left(meta)?;
        let reserved = store.reserve_freely(GroupNo(0), 0)?;
        let mut op = meta.begin_alone(reserved);
        let number = op.take_number();
        if self.annals_from.load(Ordering::Acquire) == 0 {
            self.begin_annals(&mut op, number, references(self));
            tracing::info!(
                "history is recorded in annals from now on: older versions of Yore cannot open the volume"
            );
        }
        // A caller that has prepared with this number begins anew (P2).
        self.epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// Whether the next number of an event, and the one behind it, can be in a key.
fn has_numbers_left(meta: &Meta) -> bool {
    meta.number().0 < EVENT_LIMIT - 1
}
