//! Brings requests of [`yore_control`] to the one function that answers them. The kernel says who asks.

use super::background::write_stores;
use super::gone::tell_gone;
use super::rollback::tell;
use super::server::Server;
use crate::connection::{Shared, Watched};
use crate::errno::worth_logging;
use crate::notices::Notices;
use crate::past::PastNodes;
use crate::privilege;
use crate::process_pins::{ProcessPins, Wanting};
use fuser::{Errno, ReplyIoctl, Request};
use std::sync::Arc;
use yore_control::{Host, Ongoing, Pinning, Who, Wrong};
use yore_fs::rollback::Changed;
use yore_fs::{Access, Error, EventNo, InodeNo, Remembered, UserLimits, View};

/// The asker, owned, so that a thread of its own can answer.
struct Asker {
    uid: u32,
    groups: Vec<u32>,
    access: Access,
    read_only: bool,
    limits: UserLimits,
    expunges_others: bool,
}

/// Answers at once, on a thread that serves; with the snapshot that the asker would have stay.
struct AtOnce<'a>(&'a Server, Wanting);

/// Answers on a thread that serves nobody else; with the snapshot that the asker would have stay.
struct InBackground {
    process_pins: Arc<ProcessPins>,
    shared: Arc<Shared>,
    ongoing: Arc<Ongoing>,
    past: Arc<PastNodes>,
    notices: Option<Notices>,
    wanting: Wanting,
}

/// Reserves room to pin a snapshot.
fn room(process_pins: &ProcessPins, wanting: Wanting) -> yore_fs::Result<Pinning<'_>> {
    let slot = process_pins.slot(&wanting)?;
    Ok(Box::new(move |pin| slot.put(pin)))
}

impl Host for AtOnce<'_> {
    fn room(&self) -> yore_fs::Result<Pinning<'_>> {
        room(&self.0.process_pins, self.1)
    }

    fn room_to_read(&self) -> yore_fs::Result<Pinning<'_>> {
        room(&self.0.process_pins, Wanting { only_reads: true, ..self.1 })
    }

    fn release(&self, event: EventNo) -> bool {
        self.0.process_pins.release(event)
    }

    fn is_over(&self) -> bool {
        self.0.shared.is_over()
    }

    fn ongoing(&self) -> &Ongoing {
        &self.0.ongoing
    }

    fn want_closes(&self) -> yore_fs::Result<()> {
        if self.0.config.close_events {
            return Ok(());
        }
        let cannot =
            |error| format!("the thread that finds out when files are closed cannot be started: {error}");
        self.0.saves.want().map_err(|error| Error::Refused(cannot(error)))
    }

    fn gone(&self, files: &[Remembered], events: &[EventNo]) {
        tell_gone(self.0.notices.get(), &self.0.past, files, events);
    }
}

impl Host for InBackground {
    fn room(&self) -> yore_fs::Result<Pinning<'_>> {
        room(&self.process_pins, self.wanting)
    }

    fn room_to_read(&self) -> yore_fs::Result<Pinning<'_>> {
        room(&self.process_pins, Wanting { only_reads: true, ..self.wanting })
    }

    fn release(&self, event: EventNo) -> bool {
        self.process_pins.release(event)
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn ongoing(&self) -> &Ongoing {
        &self.ongoing
    }

    fn changed(&self, changed: Changed) {
        tell(self.notices.as_ref(), &changed);
    }

    fn gone(&self, files: &[Remembered], events: &[EventNo]) {
        tell_gone(self.notices.as_ref(), &self.past, files, events);
    }
}

impl Asker {
    fn answer(
        &self,
        host: &dyn Host,
        (view, inode): (&View, InodeNo),
        asked: &yore_control::Request,
        prepare: impl FnOnce(),
    ) -> Vec<u8> {
        let who = Who {
            uid: self.uid,
            may_all: privilege::may_all(self.uid),
            as_root: self.uid == 0,
            groups: &self.groups,
            access: &self.access,
            read_only: self.read_only,
            limits: self.limits,
            expunges_others: self.expunges_others,
            host,
        };
        // A user without the right is refused before anybody is disturbed.
        if asked.needs_stores() && yore_control::may_take(view, inode, &who) {
            prepare();
        }
        let answer = yore_control::answer(view, inode, &who, asked);
        if let Some(error) = answer.as_ref().err().filter(|error| worth_logging(error)) {
            tracing::error!(call = "ioctl", inode = inode.0, %error, "a request failed");
        }
        host.ongoing().encode(self.uid, &answer)
    }
}

impl Server {
    /// Answers a request of the protocol.
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
        let asking = privilege::asking(request);
        let asker = Asker {
            uid: asking.uid,
            groups: asking.groups.clone(),
            access: self.access_of(asking),
            read_only: self.config.read_only,
            limits: self.config.limits,
            expunges_others: self.config.expunge_others,
        };
        let wanting = Wanting { uid: asker.uid, thread: request.pid(), only_reads: false };
        if !asked.waits() {
            let host = AtOnce(self, wanting);
            return reply.ioctl(0, &asker.answer(&host, (&view, inode), &asked, || ()));
        }
        let host = InBackground {
            process_pins: self.process_pins.clone(),
            shared: self.shared.clone(),
            ongoing: self.ongoing.clone(),
            past: self.past.clone(),
            notices: self.notices.get().cloned(),
            wanting,
        };
        self.in_background("yore-asked", move || {
            let _watched = Watched(host.shared.clone());
            let stores = || write_stores(&host.shared, host.notices.as_ref());
            reply.ioctl(0, &asker.answer(&host, (&view, inode), &asked, stores));
        });
    }
}
