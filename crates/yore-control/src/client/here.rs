//! The client of a volume that this process has open.

use super::methods::Client;
use crate::{answer, Answer, Host, Ongoing, Pinning, Request, Who};
use parking_lot::Mutex;
use yore_fs::{Access, InodeNo, Pin, Result, UserLimits, View};

/// A directory of a volume that this process has open. A process that has opened the volume may do
/// everything.
pub struct Here {
    view: View,
    directory: InodeNo,
    access: Access,
    pins: Pins,
}

/// Snapshots that are pinned as long as the client lives, and what it is asked.
struct Pins {
    pins: Mutex<Vec<Pin>>,
    ongoing: Ongoing,
}

impl Host for Pins {
    fn room(&self) -> Result<Pinning<'_>> {
        Ok(Box::new(|pin| {
            self.pins.lock().push(pin);
            Ok(())
        }))
    }

    fn is_over(&self) -> bool {
        false
    }

    fn ongoing(&self) -> &Ongoing {
        &self.ongoing
    }
}

impl Here {
    /// A directory as a view sees it.
    pub fn new(view: &View, directory: InodeNo) -> Here {
        let access = view.access(None, view.root());
        let pins = Pins { pins: Mutex::default(), ongoing: Ongoing::here() };
        Here { view: view.clone(), directory, access, pins }
    }
}

impl Client for Here {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let who = Who {
            uid: rustix::process::getuid().as_raw(),
            may_all: true,
            as_root: true,
            groups: &[],
            access: &self.access,
            read_only: false,
            limits: UserLimits::default(),
            expunges_others: true,
            host: &self.pins,
        };
        answer(&self.view, self.directory, &who, request)
    }
}
