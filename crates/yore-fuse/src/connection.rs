//! What the threads and handles of a session share: whether its connection was aborted or has ended, and
//! whether a thread found a contradiction in memory. The head of `session` says what follows from that.

use crate::mountpoint::{abort, detach, identity_at, Identity};
use crate::notices::Notices;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The most mounts of ours on each other that are unmounted.
const MOST_BOUND: usize = 64;

/// What a session's threads and its handles share.
pub(crate) struct Shared {
    pub(crate) mountpoint: PathBuf,
    pub(crate) mount: Identity,
    pub(crate) siblings: Arc<Siblings>,
    pub(crate) aborted: AtomicBool,
    pub(crate) ended: AtomicBool,
    /// Notifies the kernel, if the mount shows the present and its connection is not over: this keeps the
    /// connection open.
    pub(crate) notices: Mutex<Option<Notices>>,
}

/// The sessions of one volume.
#[derive(Default)]
pub(crate) struct Siblings {
    panicked: AtomicBool,
    /// The sessions that may still live.
    members: Mutex<Vec<Weak<Shared>>>,
}

impl Siblings {
    pub(crate) fn join(&self, shared: &Arc<Shared>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(shared));
    }

    pub(crate) fn have_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// What a new mount's threads and handles share.
    pub(crate) fn new(mountpoint: PathBuf, mount: Identity, siblings: Arc<Siblings>) -> Shared {
        let (aborted, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Shared { mountpoint, mount, siblings, aborted, ended, notices: Mutex::new(None) }
    }

    /// The mount's device number, major and minor.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.mount.device
    }

    /// A thread that serves is unwinding.
    pub(crate) fn note_panic(&self) {
        self.siblings.panicked.store(true, Ordering::SeqCst);
        let members: Vec<Arc<Shared>> =
            self.siblings.members.lock().iter().filter_map(Weak::upgrade).collect();
        for member in members {
            member.abort_connection();
        }
    }

    /// Whether memory is in doubt: nothing may be written any more.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.siblings.have_panicked()
    }

    /// Whether the session has ended, or has been told to.
    pub(crate) fn is_over(&self) -> bool {
        self.aborted.load(Ordering::SeqCst) || self.ended.load(Ordering::SeqCst)
    }

    fn abort_connection(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        if let Err(reason) = self.abort_if_ours() {
            tracing::error!(mountpoint = %self.mountpoint.display(), reason, "cannot abort the connection");
        }
    }

    fn abort_if_ours(&self) -> Result<(), String> {
        match self.ours() {
            Ok(true) => abort(&self.mountpoint, self.device()),
            Ok(false) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether our mount is still the one at the mount point, or what was bound over it there shows the same.
    pub(crate) fn ours(&self) -> io::Result<bool> {
        Ok(identity_at(&self.mountpoint)?.is_some_and(|there| self.mount.is_shown_by(&there)))
    }

    /// Unmounts what is ours at the mount point by `unmount`: our mount may have been bound over itself
    /// several times. Returns whether there was anything.
    pub(crate) fn unmount_ours<E>(
        &self,
        failed: impl Fn(io::Error) -> E,
        mut unmount: impl FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut were = 0;
        // Somebody may go on binding.
        while were < MOST_BOUND && self.ours().map_err(&failed)? {
            match unmount() {
                // The session's own thread may unmount at the same moment.
                Err(error) if self.ours().map_err(&failed)? => return Err(error),
                _ => were += 1,
            }
        }
        Ok(were > 0)
    }

    /// Takes what is left of our mount out of the tree. Returns whether there was anything.
    pub(crate) fn detach_ours(&self) -> Result<bool, String> {
        self.unmount_ours(|error| error.to_string(), || detach(&self.mountpoint))
    }

    fn abort_connection_after_thread(&self) {
        match self.ours() {
            // The mount is still there although its reader is gone: no unmount ended this thread.
            Ok(true) => self.abort_connection(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "cannot read the table of mounts"),
        }
    }
}

/// Runs when a thread that serves ends; see the head of `session`.
struct ThreadEnd(Arc<Shared>);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        // In an orderly end the connection ends first. After that the mount point has nothing on it any more,
        // or something dead, or something new that is not ours.
        if !self.0.ended.load(Ordering::SeqCst) {
            self.0.abort_connection_after_thread();
        }
    }
}

thread_local! {
    static THREAD_END: RefCell<Option<ThreadEnd>> = const { RefCell::new(None) };
}

/// Called with each request: registers the thread the first time.
pub(crate) fn register_thread(shared: &Arc<Shared>) {
    THREAD_END.with_borrow_mut(|end| {
        if end.is_none() {
            *end = Some(ThreadEnd(shared.clone()));
        }
    });
}

/// A contradiction in memory ends all sessions, wherever it is found.
pub(crate) struct Watched(pub(crate) Arc<Shared>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panic();
        }
    }
}
