//! The asker of a request, and what the asking process provides: all that answers depend on besides the
//! volume.

use crate::Ongoing;
use yore_fs::rollback::Changed;
use yore_fs::{
    Access, Doing, Error, EventNo, Incarnation, InodeNo, Pin, Remembered, Result, User, UserLimits, View,
};

/// The user who asks, and the properties of the mount that matter to the answer.
pub struct Who<'a> {
    /// The user.
    pub uid: u32,
    /// The user may do everything: root, the daemon's user, and whoever opened the volume directly.
    pub may_all: bool,
    /// The user may also do what only root may do on a mount: shorten holds, release what a policy holds, and
    /// change what is immutable. Root, and whoever opened the volume directly.
    pub as_root: bool,
    /// The groups of a user who may not do everything.
    pub groups: &'a [u32],
    /// How much of the history the user may learn.
    pub access: &'a Access,
    /// Nothing can be changed on the mount.
    pub read_only: bool,
    /// Limits for each user who may not do everything.
    pub limits: UserLimits,
    /// Owners may also give up history that others' snapshots have seen.
    pub expunges_others: bool,
    /// Services that only the serving process can provide.
    pub host: &'a dyn Host,
}

/// Pins a snapshot when it is taken.
pub type Pinning<'a> = Box<dyn FnOnce(Pin) -> Result<()> + 'a>;

/// Services that only the serving process can provide.
pub trait Host: Sync {
    /// Reserves room to pin one more snapshot as long as the asking process lives.
    ///
    /// # Errors
    /// There is no room. Then nothing has been taken yet.
    fn room(&self) -> Result<Pinning<'_>>;

    /// As [`Host::room`], for a snapshot that the process only reads. It goes on without the pin if there is
    /// no room, so it leaves some for snapshots that must stay.
    ///
    /// # Errors
    /// As [`Host::room`].
    fn room_to_read(&self) -> Result<Pinning<'_>> {
        self.room()
    }

    /// Takes back what processes of users who may not do everything have pinned of a snapshot. Returns
    /// whether there was any.
    fn release(&self, _event: EventNo) -> bool {
        false
    }

    /// Whether the host is about to end, so that long work is broken off.
    fn is_over(&self) -> bool;

    /// What is remembered between requests.
    fn ongoing(&self) -> &Ongoing;

    /// Detects closes of files from now on, if the host does not yet.
    ///
    /// # Errors
    /// The host cannot detect closes.
    fn want_closes(&self) -> Result<()> {
        Ok(())
    }

    /// Tells all who cache the volume's contents that these have changed.
    fn changed(&self, _changed: Changed) {}

    /// The same for files whose history was given up in these events, which ascend.
    fn gone(&self, _files: &[Remembered], _events: &[EventNo]) {}
}

impl Who<'_> {
    pub(super) fn user(&self) -> User {
        User { uid: self.uid, limits: (!self.may_all).then_some(self.limits) }
    }

    pub(super) fn doing<'a>(&self, view: &'a View) -> Doing<'a> {
        Doing { view, uid: self.uid }
    }

    /// Whether the user may take snapshots of a directory. With `incarnation`, the answer is for that one
    /// only, and it is no if that one is gone.
    pub(super) fn may_take(
        &self,
        view: &View,
        inode: InodeNo,
        incarnation: Option<Incarnation>,
    ) -> Result<bool> {
        if self.may_all {
            return Ok(true);
        }
        match view.getattr(inode) {
            Ok(attr) => Ok(attr.uid == self.uid && incarnation.is_none_or(|i| i.0 == attr.incarnation)),
            Err(Error::Stale) if incarnation.is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn check_everything(&self) -> Result<()> {
        match self.may_all {
            true => Ok(()),
            false => {
                Err(Error::NotPermitted { what: "only root and the user who mounted the volume may do that" })
            }
        }
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }
}
