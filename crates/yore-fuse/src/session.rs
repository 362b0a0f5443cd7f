//! A mounted view from its first request to its last.
//!
//! ```text
//!   mount ──► serving ──► ended ──► view closed ──► End or SessionError told to whoever waits
//!                 │  ▲
//!   unmounted by anybody (SessionHandle, umount, fusermount3): the kernel ends the connection
//!   aborted (SessionHandle, /sys/fs/fuse): likewise, users get errors
//!   a thread panicked: the connection is aborted, the view is NOT closed
//! ```
//!
//! # The end
//! One thread per session runs fuser's loop. However the loop ends, this thread then removes what is left of
//! the mount (a connection that broke leaves a dead mount point), closes the view, and keeps the outcome for
//! whoever waits. No other place closes the view, so no way of ending skips it.
//!
//! # Panics
//! A panic is a contradiction in memory. Writing anything afterwards could carry it to the medium, so the
//! view is then *not* closed: it is leaked, because dropping it would close it. The volume is as after a
//! crash, and opening it recovers it.
//!
//! The panic reaches the session in two ways. A panic in the code that serves a request is seen by a guard
//! around that code. The guard aborts the connection at once, so that no further request reaches a view in
//! doubt. A panic in fuser itself ends a thread outside any guard. (fuser 0.18 overflows when it decodes a
//! time of -2^63 seconds and some nanoseconds.) Each thread therefore has a value whose destructor runs when
//! the thread ends. It aborts the connection unless that was already over, because a connection with too few
//! readers hangs its users. Mounts that share a volume share its memory, so a panic in one ends them all
//! ([`Siblings`]). `connection` has the guard, the destructor and what the threads share.
//!
//! # Snapshots
//! A mount of a snapshot ([`mount_snapshot`]) has its own connection and threads. Its end releases the
//! snapshot and closes nothing: the mount of the present closes the volume. If there is no such mount, the
//! volume is closed when its last owner drops it.

use crate::attach::{attach, Watcher};
use crate::connection::{Shared, Siblings};
use crate::mountpoint::{self, abort, detach, identity_at, prepare, unmount_idle};
use crate::serve::Server;
use crate::stores::write_stores;
use crate::{tuning, MountConfig, MountError, Notices, SessionError, UnmountError};
use fuser::{Filesystem, SessionACL};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use yore_fs::{InodeNo, Pin, View};

/// How a session ended, if it ended well: the view is closed, and the mount point is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody unmounted it.
    Unmounted,
    /// The connection was aborted; programs that had files open got errors.
    Aborted,
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountHow {
    /// Only if nobody uses it.
    Idle,
    /// Gone from the tree at once. Programs that use it go on until they are done, and only then does the
    /// session end.
    Lazy,
    /// The session ends now. Programs that use it get errors from here on; what they had written is kept.
    Abort,
}

/// How often, and how far apart, to try a busy mount again: a process that is just starting keeps what its
/// parent had open until its program is loaded.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

fn unmount_when_idle(path: &std::path::Path) -> Result<(), UnmountError> {
    for _ in 1..BUSY_TRIES {
        match unmount_idle(path) {
            Err(UnmountError::Busy { .. }) => std::thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    unmount_idle(path)
}

/// A mounted view. Dropping it without [`Session::wait`] aborts the connection and closes the view.
pub struct Session {
    handle: SessionHandle,
    notices: Option<Notices>,
    thread: Option<JoinHandle<Result<End, SessionError>>>,
}

/// Unmounts a session from any thread. Cheap to clone.
#[derive(Clone)]
pub struct SessionHandle {
    shared: Arc<Shared>,
}

impl SessionHandle {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.shared.mountpoint
    }

    /// Unmounts, several times if the mount was bound over itself (`mount --bind`). The view is closed when
    /// the session ends, which [`Session::wait`] reports. If the session has already ended, or somebody else
    /// removed its mount, this does nothing and returns `Ok`. Errors: `Busy` for `Idle` with users.
    pub fn unmount(&self, how: UnmountHow) -> Result<(), UnmountError> {
        let path = &self.shared.mountpoint;
        let failed = |reason: String| UnmountError::Failed { mountpoint: path.clone(), reason };
        let unmount_top = || match how {
            UnmountHow::Idle => unmount_when_idle(path),
            UnmountHow::Lazy => detach(path).map_err(failed),
            UnmountHow::Abort => {
                self.shared.aborted.store(true, Ordering::SeqCst);
                abort(path, self.shared.device()).map_err(failed)
            }
        };
        let were_ours = self.shared.unmount_ours(|error| failed(error.to_string()), unmount_top)?;
        // The mount may have been detached before and still be in use: an abort must reach it all the same.
        if !were_ours && how == UnmountHow::Abort {
            return self.abort_detached().map_err(failed);
        }
        Ok(())
    }

    /// Aborts a connection whose mount is out of the tree.
    fn abort_detached(&self) -> Result<(), String> {
        if self.has_ended() {
            return Ok(());
        }
        let there = mountpoint::abort_connection(self.shared.device().1)
            .map_err(|reason| format!("{reason}; end the programs that use the mount"))?;
        if there {
            self.shared.aborted.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Whether the connection is over: nobody can use the mount any more, in any namespace. The view may not
    /// be closed yet.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::SeqCst)
    }

    /// Has the kernel hand over what programs have written, or stored through mappings, and it still keeps to
    /// itself. This waits for the threads that serve the mount, so none of them may call it. If somebody else
    /// has mounted there by now, it does nothing.
    ///
    /// # Errors
    /// The kernel could not hand over all of it.
    pub fn sync(&self) -> io::Result<()> {
        if !self.shared.ours()? {
            return Ok(());
        }
        // The kernel does not wait in syncfs for pages of mappings.
        let notices = self.shared.notices.lock().clone();
        write_stores(&self.shared, notices.as_ref());
        let root = std::fs::File::open(&self.shared.mountpoint)?;
        Ok(rustix::fs::syncfs(&root)?)
    }
}

impl Session {
    /// A handle to unmount from other threads, for example from a signal handler.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Notifies the kernel of changes behind its back. `None` if the mount does not show the present.
    pub fn notices(&self) -> Option<Notices> {
        self.notices.clone()
    }

    /// Waits for the end, and returns how the session ended. The view is closed and the mount point is free
    /// when this returns.
    pub fn wait(mut self) -> Result<End, SessionError> {
        self.join()
    }

    /// Unmounts and waits. On `Busy` the session goes on, and comes back with the error.
    pub fn unmount(self, how: UnmountHow) -> Result<Result<End, SessionError>, (Session, UnmountError)> {
        match self.handle.unmount(how) {
            Ok(()) => Ok(self.wait()),
            Err(error) => Err((self, error)),
        }
    }

    fn join(&mut self) -> Result<End, SessionError> {
        let panicked = || SessionError::Panicked { mountpoint: self.handle.shared.mountpoint.clone() };
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            // The session's own thread does nothing that panics unless memory is in doubt.
            Some(Err(_)) => Err(panicked()),
            None => unreachable!("a session is waited for once: waiting consumes it"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        if let Err(error) = self.handle.unmount(UnmountHow::Abort) {
            tracing::error!(%error, "a dropped session stays mounted");
            return;
        }
        if let Err(error) = self.join() {
            tracing::error!(%error, "the end of a dropped session");
        }
    }
}

/// Mounts `view` as `config` says and serves it in the background. On an error the view is unchanged and
/// still open.
pub fn mount(view: View, config: &MountConfig) -> Result<Session, MountError> {
    let mut config = config.clone();
    config.read_only |= view.read_only();
    let root = view.root();
    let closing = view.clone();
    let close = move |in_order: bool| {
        if in_order {
            closing.close()
        } else {
            // Dropping the last clone would close it; see "Panics" above.
            let _kept = std::mem::ManuallyDrop::new(closing);
            Ok(())
        }
    };
    let told = Arc::<OnceLock<Notices>>::default();
    let server = |shared: &Arc<Shared>| Server::new(view, root, &config, shared.clone(), told.clone());
    let session = start(&config, server, close, Some(root), Arc::default())?;
    if let Some(notices) = session.notices() {
        let _ = told.set(notices);
    }
    Ok(session)
}

/// Mounts a directory as of a snapshot, read-only, and serves it in the background. The snapshot is pinned
/// until the session has ended. `beside` is any one of the other sessions of the same open volume.
///
/// # Errors
/// As [`mount`].
pub fn mount_snapshot(
    pin: Pin,
    root: InodeNo,
    config: &MountConfig,
    beside: Option<&SessionHandle>,
) -> Result<Session, MountError> {
    let config = MountConfig { read_only: true, snapdir: None, ..config.clone() };
    let view = pin.view().clone();
    let close = move |in_order: bool| {
        if !in_order {
            // The pin has the volume, and dropping the last owner closes it; see "Panics" above.
            let _kept = std::mem::ManuallyDrop::new(pin);
        }
        Ok(())
    };
    let server = |shared: &Arc<Shared>| Server::new(view, root, &config, shared.clone(), Arc::default());
    let siblings = beside.map_or_else(Arc::default, |beside| beside.shared.siblings.clone());
    start(&config, server, close, None, siblings)
}

/// Mounts `view` and serves it until somebody unmounts it.
pub fn serve(view: View, config: &MountConfig) -> Result<Result<End, SessionError>, MountError> {
    Ok(mount(view, config)?.wait())
}

/// Mounts any FUSE file system with the same connection as a view, to measure the cost of the transport
/// alone.
pub fn mount_filesystem<F: Filesystem>(filesystem: F, config: &MountConfig) -> Result<Session, MountError> {
    start(config, |_| filesystem, |_| Ok(()), None, Arc::default())
}

fn start<F: Filesystem>(
    config: &MountConfig,
    filesystem: impl FnOnce(&Arc<Shared>) -> F,
    close: impl FnOnce(bool) -> yore_fs::Result<()> + Send + 'static,
    root: Option<InodeNo>,
    siblings: Arc<Siblings>,
) -> Result<Session, MountError> {
    let path = prepare(&config.mountpoint)?;
    let attached = attach(&path, config)?;
    let mut undo = Undo { path: &path, armed: true };
    let handshake = |source| MountError::Handshake { mountpoint: path.clone(), source };
    let mount = identity_at(&path).map_err(handshake)?.ok_or_else(|| {
        handshake(io::Error::new(io::ErrorKind::NotFound, "the mount vanished from the table of mounts"))
    })?;
    let shared = Arc::new(Shared::new(path.clone(), mount, siblings));
    shared.siblings.join(&shared);
    if shared.siblings.have_panicked() {
        return Err(handshake(io::Error::other(
            "another mount of the volume found a contradiction in memory",
        )));
    }
    let mut settings = fuser::Config::default();
    settings.n_threads = Some(config.threads.max(1));
    settings.clone_fd = true;
    let filesystem = filesystem(&shared);
    let session = fuser::Session::from_fd(filesystem, attached.descriptor, SessionACL::All, settings)
        .map_err(handshake)?;
    tuning::tune(shared.device(), config);
    let notices = root.map(|root| Notices::new(session.notifier(), root));
    *shared.notices.lock() = notices.clone();
    let for_thread = shared.clone();
    let watcher = attached.watcher;
    let thread = std::thread::Builder::new()
        .name("yore-session".into())
        .spawn(move || run(session, for_thread, close, watcher))
        .map_err(|source| MountError::Threads { mountpoint: path.clone(), source })?;
    undo.armed = false;
    tracing::info!(mountpoint = %path.display(), source = config.fs_name, "mounted");
    Ok(Session { handle: SessionHandle { shared }, notices, thread: Some(thread) })
}

/// Removes the mount again if setting the session up fails.
struct Undo<'a> {
    path: &'a Path,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            if let Err(reason) = mountpoint::detach(self.path) {
                tracing::error!(mountpoint = %self.path.display(), reason, "a mount that failed stays");
            }
        }
    }
}

/// The session's thread: the loop, then the end.
fn run<F: Filesystem>(
    session: fuser::Session<F>,
    shared: Arc<Shared>,
    close: impl FnOnce(bool) -> yore_fs::Result<()>,
    watcher: Option<Watcher>,
) -> Result<End, SessionError> {
    // This consumes the session and closes its descriptors, so a mount that is still there afterwards is
    // dead. The kernel says the same to the threads (ENODEV) whether somebody unmounted it or aborted its
    // connection.
    let outcome = session.run();
    drop(shared.notices.lock().take());
    let mountpoint = shared.mountpoint.clone();
    let left_over = shared.detach_ours();
    shared.ended.store(true, Ordering::SeqCst);
    let dead_mount = left_over.unwrap_or_else(|reason| {
        tracing::error!(mountpoint = %mountpoint.display(), reason, "the dead mount cannot be taken away");
        true
    });
    drop(watcher);
    if shared.siblings.have_panicked() {
        // A close that is not orderly cannot fail.
        let _ = close(false);
        return Err(SessionError::Panicked { mountpoint });
    }
    let closed = close(true);
    // A damaged or failing volume explains more than a broken connection does.
    closed.map_err(|source| SessionError::Close { mountpoint: mountpoint.clone(), source })?;
    outcome.map_err(|source| SessionError::Connection { mountpoint, source })?;
    let aborted = dead_mount || shared.aborted.load(Ordering::SeqCst);
    Ok(if aborted { End::Aborted } else { End::Unmounted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountpoint::{mounted_at, Identity};
    use yore_device::{Device, MemoryDevice};
    use yore_fs::{MkfsOptions, MountOptions, NewSnapshot, PinnedBy};

    fn can_mount() -> bool {
        if Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
            return true;
        }
        eprintln!("SKIPPED: mounting needs root and /dev/fuse here");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"));
        false
    }

    fn view() -> View {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        View::mkfs(&device, &MkfsOptions::default()).unwrap();
        View::open(device, &MountOptions::default()).unwrap()
    }

    /// The kernel uses minor numbers again, and a daemon knew its mount by the number and the place: after an
    /// unmount, a daemon that was ending detached what somebody had just mounted there.
    #[test]
    fn another_mount_at_the_same_place_is_not_ours() {
        if !can_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mounted = |source: &str| mount(view(), &MountConfig::new(dir.path(), source)).unwrap();
        let first = mounted("one");
        let was = first.handle().shared.mount.clone();
        first.unmount(UnmountHow::Idle).map_err(|(_, error)| error).unwrap().unwrap();
        let second = mounted("two");
        let is = second.handle().shared.mount.clone();
        assert!(second.handle().shared.ours().unwrap());
        assert!(was.number.is_none() || was.number != is.number, "{was:?} {is:?}");
        // As if the second had got the first one's minor number.
        let mut ending = vec![Identity { device: is.device, ..was.clone() }];
        if was.number.is_some() {
            // Somebody has mounted the same volume again.
            ending.push(Identity { number: was.number, ..is });
        }
        for mount in ending {
            let shared = Shared::new(dir.path().to_path_buf(), mount, Arc::default());
            assert!(!shared.ours().unwrap(), "{:?}", shared.mount);
        }
        second.unmount(UnmountHow::Idle).map_err(|(_, error)| error).unwrap().unwrap();
    }

    /// A contradiction that one session finds ends all sessions of the volume. The volume is not closed, and
    /// no new session begins.
    #[test]
    fn a_panic_ends_all_sessions_of_a_volume() {
        if !can_mount() {
            return;
        }
        let view = view();
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let config = |i: usize| MountConfig::new(dirs[i].path(), "memory");
        let present = mount(view.clone(), &config(0)).unwrap();
        let handle = present.handle();
        let beside = |i| {
            mount_snapshot(view.pin(event, PinnedBy::Mount).unwrap(), view.root(), &config(i), Some(&handle))
        };
        let snapshot = beside(1).unwrap();
        snapshot.handle().shared.note_panic();
        assert!(matches!(snapshot.wait(), Err(SessionError::Panicked { .. })));
        assert!(matches!(present.wait(), Err(SessionError::Panicked { .. })));
        assert!(matches!(beside(2), Err(MountError::Handshake { .. })));
        for dir in &dirs {
            assert!(mounted_at(dir.path()).unwrap().is_none());
        }
        assert!(view.take_snapshot(view.root(), &NewSnapshot::default()).is_ok(), "it was not closed");
        std::mem::forget(view);
    }
}
