//! Decides on whose behalf a full volume gives up history. Root and the user who mounted the volume may fill
//! it at the cost of all history that need not stay. Others may do so only at the cost of history that they
//! could forget by a command ([`Behalf`]).

use super::server::Server;
use fuser::Request;
use std::borrow::Cow;
use yore_fs::{Behalf, InodeNo, View};

/// Permission bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

impl Server {
    /// Whether everybody who can reach the mount may have history given up.
    fn is_everybodys(&self) -> bool {
        !self.config.allow_other || self.config.others_give_up_history
    }

    fn behalf_of(&self, uid: u32) -> Behalf {
        match self.is_everybodys() || crate::privilege::may_all(uid) {
            true => Behalf::Owner,
            false => Behalf::User(uid),
        }
    }

    /// The view for the changes of a request.
    pub(super) fn for_request<'v>(&self, view: Cow<'v, View>, request: &Request) -> Cow<'v, View> {
        match self.behalf_of(request.uid()) {
            Behalf::Owner => view,
            other => Cow::Owned(view.on_behalf_of(other)),
        }
    }

    /// The view for writes that the kernel sends by itself: collected writes, or stores through mappings. The
    /// kernel does not say whose they are. They count as the file owner's, if nobody else can write to the
    /// file.
    pub(super) fn for_kernel<'v>(
        &self,
        view: Cow<'v, View>,
        inode: InodeNo,
    ) -> yore_fs::Result<Cow<'v, View>> {
        if self.is_everybodys() {
            return Ok(view);
        }
        let attr = view.getattr(inode)?;
        let behalf = match attr.permissions & OTHERS_WRITE {
            0 => self.behalf_of(attr.uid),
            _ => Behalf::Nobody,
        };
        Ok(Cow::Owned(view.on_behalf_of(behalf)))
    }
}
