//! What serves a view: the state of a mount, and what every request needs of it. Files beside this one add
//! what a kind of requests needs.

use super::flushers::Flushers;
use super::refused::Refused;
use super::saves::Saves;
use super::syncs::Syncs;
use super::waiting::Waiting;
use super::writers::Writers;
use crate::config::Granted;
use crate::connection::{register_thread, Shared};
use crate::errno::{errno, worth_logging};
use crate::notices::{set_serving, Notices};
use crate::past::PastNodes;
use crate::process_pins::ProcessPins;
use crate::snapdir::SnapDir;
use crate::MountConfig;
use fuser::{Errno, ReplyEmpty, Request};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use yore_fs::{Behalf, Caller, Error, InodeNo, View};

/// Serves a view.
pub(crate) struct Server {
    /// A view of the mount's own time: the present, or a snapshot.
    pub(super) view: View,
    /// The directory that is mounted.
    pub(super) root: InodeNo,
    pub(super) config: MountConfig,
    pub(super) granted: Granted,
    pub(super) shared: Arc<Shared>,
    pub(super) past: Arc<PastNodes>,
    pub(super) writers: Writers,
    pub(super) saves: Saves,
    pub(super) refused: Arc<Refused>,
    /// Dropping these waits for requests that they have: see [`super::fsync`].
    pub(super) flushers: Flushers,
    pub(super) syncs: Arc<Syncs<Waiting>>,
    /// Threads that serve a request now.
    busy: AtomicUsize,
    /// What [`yore_control`] remembers between requests.
    pub(super) ongoing: Arc<yore_control::Ongoing>,
    pub(super) process_pins: Arc<ProcessPins>,
    pub(super) snapdir: Option<SnapDir>,
    /// Notifies the kernel of what it must not believe any more; set once the session exists.
    pub(super) notices: Arc<OnceLock<Notices>>,
}

/// Lives while a request is served; see `session` on panics.
pub(super) struct Serving<'a>(&'a Server);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shared.note_panic();
        }
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        set_serving(false);
    }
}

impl Server {
    pub(crate) fn new(
        view: View,
        root: InodeNo,
        config: &MountConfig,
        shared: Arc<Shared>,
        notices: Arc<OnceLock<Notices>>,
    ) -> Server {
        // The view does not know who made a change.
        let of_anybody = match config.allow_other && !config.others_give_up_history {
            true => view.on_behalf_of(Behalf::Nobody),
            false => view.clone(),
        };
        let saves = Saves::new(of_anybody, shared.clone());
        Server {
            view,
            root,
            config: config.clone(),
            granted: Granted::default(),
            flushers: Flushers::new(shared.clone(), config.threads),
            syncs: Arc::default(),
            busy: AtomicUsize::new(0),
            shared,
            writers: Writers::default(),
            saves,
            refused: Arc::default(),
            past: Arc::default(),
            ongoing: Arc::default(),
            process_pins: Arc::default(),
            snapdir: config.snapdir.as_ref().map(|name| SnapDir::new(name.as_bytes().to_vec())),
            notices,
        }
    }

    pub(super) fn serving(&self) -> Serving<'_> {
        register_thread(&self.shared);
        set_serving(true);
        self.busy.fetch_add(1, Ordering::Relaxed);
        Serving(self)
    }

    /// Threads that read requests, or are about to.
    pub(super) fn free_threads(&self) -> usize {
        self.config.threads.max(1).saturating_sub(self.busy.load(Ordering::Relaxed))
    }

    pub(super) fn caller(&self, request: &Request, umask: u32) -> Caller {
        Caller { uid: request.uid(), gid: request.gid(), umask, keeps_set_id: true }
    }

    /// The number for `error`. Errors that the caller's program cannot explain go to the log, with the inode
    /// concerned.
    pub(super) fn number(&self, call: &'static str, inode: InodeNo, error: Error) -> Errno {
        if worth_logging(&error) {
            tracing::error!(call, inode = inode.0, %error, "a request failed");
        }
        errno(&error)
    }

    pub(super) fn done(
        &self,
        call: &'static str,
        at: InodeNo,
        outcome: yore_fs::Result<()>,
        reply: ReplyEmpty,
    ) {
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.number(call, at, error)),
        }
    }

    /// As [`Saves::before`], for a node.
    pub(super) fn before_change(&self, view: &View, inode: InodeNo, thread: u32, is_emptied: bool) {
        if view.event().is_none() {
            self.saves.before(inode, thread, is_emptied);
        }
    }
}
