//! Brings requests of [`yore_control`] to the one function that answers them, with who asks by the kernel's word.

use super::background::{write_stores, Watched};
use super::Server;
use crate::control;
use crate::errno::worth_logging;
use crate::keeper::Keeper;
use crate::session::Shared;
use fuser::{Errno, ReplyIoctl, Request};
use yore_control::{Host, Kept, Who, Wrong};
use yore_fs::{Access, Error, InodeNo, UserLimits, View};

/// Who asks, owned, so that a thread of its own can answer.
struct Asker {
    uid: u32,
    /// The thread that waits for the answer.
    thread: u32,
    access: Access,
    read_only: bool,
    limits: UserLimits,
}

/// What a mount can do for a thread that asks.
struct Mount<'a> {
    keeper: &'a Keeper,
    thread: u32,
    shared: &'a Shared,
}

impl Host for Mount<'_> {
    fn room(&self) -> yore_fs::Result<Kept<'_>> {
        let too_many = |_: Errno| {
            Error::Refused("too many programs want a snapshot to stay; try again when some have ended".into())
        };
        let place = self.keeper.place(self.thread).map_err(too_many)?;
        Ok(Box::new(move |pin| place.keep(pin).map_err(too_many)))
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }
}

impl Asker {
    fn answer(
        &self,
        (keeper, shared): (&Keeper, &Shared),
        (view, inode): (&View, InodeNo),
        asked: &yore_control::Request,
        prepare: impl FnOnce(),
    ) -> Vec<u8> {
        let host = Mount { keeper, thread: self.thread, shared };
        let who = Who {
            uid: self.uid,
            may_all: control::may_all(self.uid),
            access: &self.access,
            read_only: self.read_only,
            limits: self.limits,
            host: &host,
        };
        // Who may not is told so without anybody being disturbed.
        if matches!(asked, yore_control::Request::Take(_)) && yore_control::may_take(view, inode, &who) {
            prepare();
        }
        let answer = yore_control::answer(view, inode, &who, asked);
        if let Some(error) = answer.as_ref().err().filter(|error| worth_logging(error)) {
            tracing::error!(call = "ioctl", inode = inode.0, %error, "a request failed");
        }
        yore_control::encode_answer(&answer)
    }
}

impl Server {
    /// Answers what is asked in the protocol.
    pub(super) fn asked(
        &self,
        request: &Request,
        (view, inode): (View, InodeNo),
        data: &[u8],
        reply: ReplyIoctl,
    ) {
        let asked = match yore_control::decode_request(data) {
            Ok(asked) => asked,
            Err(Wrong::Version(_)) => return reply.ioctl(0, &yore_control::encode_nothing()),
            Err(Wrong::Meaning) => return reply.error(Errno::EINVAL),
        };
        let asker = Asker {
            uid: request.uid(),
            thread: request.pid(),
            access: self.access_to_history(request),
            read_only: self.config.read_only,
            limits: self.config.limits,
        };
        if !asked.waits() {
            let serving = (&*self.keeper, &*self.shared);
            return reply.ioctl(0, &asker.answer(serving, (&view, inode), &asked, || ()));
        }
        let (shared, notices, keeper) =
            (self.shared.clone(), self.notices.get().cloned(), self.keeper.clone());
        self.in_background("yore-asked", move || {
            let _watched = Watched(shared.clone());
            let stores = || write_stores(&shared, notices.as_ref());
            reply.ioctl(0, &asker.answer((&*keeper, &*shared), (&view, inode), &asked, stores));
        });
    }
}
