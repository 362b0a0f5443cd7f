//! Keeping versions and names at the first change after an event: prepared where that may fail
//! ([`Past::prepare`]), entered in the Op that changes them ([`Recording`]).

use super::annals::{AnnalsRecording, PreparedRows};
use super::old::{OldName, OldVersion};
use super::past::Past;
use crate::{InodeNo, Result};
use smallvec::SmallVec;
use yore_core::inode::InodeState;
use yore_core::Core;
use yore_format::EventNo;
use yore_meta::{Change, Op};

impl Past {
    /// Prepares keeping inodes as they are, and names that will be removed or will mean something else from
    /// `number` on. All get the same number. The states of the inodes are locked for writing, and their data
    /// is written back. The states of the names' directories are locked for writing. Of the names, this keeps
    /// only those that an event has seen before. An event that is taken meanwhile has `number` itself; a name
    /// that was made with that number ends with it, too, and no event has seen it.
    ///
    /// In its Op the caller ends all that it has prepared.
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn prepare(
        &self,
        store: &Core,
        number: EventNo,
        versions: &[OldVersion<'_>],
        old_names: &[OldName<'_>],
    ) -> Result<Prepared<'_>> {
        let nothing = Ok(Prepared::Ready(Recording { number, rows: None }));
        if !self.is_any() {
            return nothing;
        }
        let mut names = SmallVec::<[_; 2]>::new();
        for name in old_names {
            if self.is_seen(store, name, number)? {
                names.push(name);
            }
        }
        if versions.is_empty() && names.is_empty() {
            return nothing;
        }
        if self.annals().is_none() {
            return Ok(Prepared::NeedNumber);
        }
        match AnnalsRecording::prepare(self, &store.meta, number, versions, &names)? {
            PreparedRows::Ready(rows) => Ok(Prepared::Ready(Recording { number, rows: Some(rows) })),
            PreparedRows::Late => Ok(Prepared::Again),
            PreparedRows::Full => Ok(Prepared::NeedNumber),
        }
    }

    /// Whether an event has seen a name before `number`.
    fn is_seen(&self, store: &Core, name: &OldName<'_>, number: EventNo) -> Result<bool> {
        let OldName { directory, inode, entry, cover, excluded, .. } = name;
        let of_directory = match excluded {
            true => self.cover_of_names(store, directory, inode)?,
            false => self.cover(store, directory, inode)?,
        };
        let cover = (*cover).max(of_directory);
        Ok(entry.birth <= cover && entry.birth < number)
    }
}

/// What comes of preparing.
#[expect(
    clippy::large_enum_variant,
    reason = "made once a call and taken apart at once: a box would be an allocation"
)]
pub(crate) enum Prepared<'p> {
    Ready(Recording<'p>),
    /// The number is one of the past by now: the caller looks at everything again.
    Again,
    /// The volume has no annals yet, or a shard is full of rows of one end. The caller lets go of its locks,
    /// calls [`Past::pass_number`], and looks at everything again.
    NeedNumber,
}

/// Versions and names that are ready to be kept.
pub(crate) struct Recording<'p> {
    /// When they end.
    number: EventNo,
    /// `None`: there is nothing to keep.
    rows: Option<AnnalsRecording<'p>>,
}

impl Recording<'_> {
    /// Whether there is nothing to keep.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_none()
    }

    /// Called inside an Op, when no event of a directory was taken since the preparation. If a version was
    /// prepared, the inode as it is becomes that version, and the inode in use is born anew. The caller
    /// stores the inode in use after the change that is returned.
    pub(crate) fn inode(&mut self, op: &mut Op<'_>, no: InodeNo, state: &mut InodeState) -> Option<Change> {
        let born = state.inode.born;
        let recorded = self.rows.as_mut()?.state(op, no, born)?;
        state.inode.born = self.number;
        state.set_recorded(EventNo(self.number.0 - 1));
        Some(recorded)
    }

    /// Called inside an Op, before the entry changes: keeps the entry if an event has seen it.
    pub(crate) fn name(&mut self, op: &mut Op<'_>, directory: InodeNo, cookie: u64, birth: EventNo) {
        if let Some(rows) = &mut self.rows {
            rows.name(op, directory, cookie, birth);
        }
    }
}
