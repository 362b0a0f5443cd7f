//! The mounts that a daemon serves: of a volume's present, and of snapshots beside it.
//!
//! Each ends on its own; the daemon ends with the last one. When the mount of the present ends, it closes the
//! volume. Snapshots that are still mounted then read from a closed volume, which nothing changes any more.

use super::options::Options;
use super::snapshot::At;
use crate::live::{Announcement, Daemon, MountedSnapshot};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use yore_control::{Answer, Host, Ongoing, Pinning, Request, Who};
use yore_fs::{InodeNo, UserLimits, View};
use yore_fuse::{MountConfig, Session, SessionHandle, UnmountError, UnmountHow};

/// The sessions of one volume.
pub struct Sessions {
    view: View,
    volume: PathBuf,
    /// The first session of the volume, whether it has ended or not: later ones are made beside it.
    first: SessionHandle,
    state: Mutex<State>,
    changed: Condvar,
    /// What is remembered between requests of commands.
    ongoing: Ongoing,
}

#[derive(Default)]
struct State {
    open: Vec<Open>,
    /// Sessions that are being made.
    coming: usize,
    /// Requests that are being answered.
    asked: usize,
    /// Numbers given to sessions so far.
    numbered: u64,
    /// Whether the last session has ended.
    over: bool,
    /// Whether connections stay that nobody can end. The volume is closed, and the end of the process ends
    /// them.
    abandoned: bool,
    /// What a session that ended badly said.
    failed: Option<String>,
    announced: Option<(Daemon, Announcement)>,
}

struct Open {
    number: u64,
    handle: SessionHandle,
    snapshot: Option<MountedSnapshot>,
}

/// A session that is being made; the daemon does not end in the meantime.
struct Coming<'s>(&'s Sessions);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
        self.0.changed.notify_all();
    }
}

/// A request that is being answered; the daemon does not end in the meantime.
pub struct AskedSession<'s>(&'s Sessions);

impl Drop for AskedSession<'_> {
    fn drop(&mut self) {
        self.0.lock().asked -= 1;
        self.0.changed.notify_all();
    }
}

/// For commands that check or scrub the whole volume, or lay files together. These end with the volume:
/// whoever closes it breaks them off. Nobody closes it before they end where only snapshots are mounted; so
/// they end with the last mount, too.
impl Host for Sessions {
    fn room(&self) -> yore_fs::Result<Pinning<'_>> {
        Err(yore_fs::Error::Refused("snapshots are pinned through a directory of the mount".into()))
    }

    fn is_over(&self) -> bool {
        self.lock().has_no_mount()
    }

    fn ongoing(&self) -> &Ongoing {
        &self.ongoing
    }
}

/// Why a snapshot was not mounted.
pub enum Refused {
    /// The daemon is about to end: another one can be started.
    Ending,
    /// Asking again is no use.
    Failed(anyhow::Error),
}

impl Sessions {
    /// Begins with the daemon's first session. `snapshot` says which snapshot it is of, if it is not of the
    /// present.
    pub fn begin(
        view: View,
        volume: &Path,
        session: Session,
        snapshot: Option<MountedSnapshot>,
    ) -> anyhow::Result<Arc<Sessions>> {
        let sessions = Arc::new(Sessions {
            view,
            volume: volume.to_path_buf(),
            first: session.handle(),
            state: Mutex::default(),
            changed: Condvar::new(),
            ongoing: Ongoing::here(),
        });
        sessions.add(session, snapshot)?;
        Ok(sessions)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panics with the lock held leaves the state as it was before or after a step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on other commands can find out what is mounted.
    pub fn announce(&self, daemon: Daemon, announcement: Announcement) {
        let mut state = self.lock();
        state.announced = Some((daemon, announcement));
        state.announce_anew();
    }

    fn add(self: &Arc<Self>, session: Session, snapshot: Option<MountedSnapshot>) -> anyhow::Result<()> {
        let number = {
            let mut state = self.lock();
            state.numbered += 1;
            let number = state.numbered;
            state.open.push(Open { number, handle: session.handle(), snapshot });
            state.announce_anew();
            number
        };
        let sessions = self.clone();
        let wait = move || {
            let directory = session.handle().mountpoint().to_path_buf();
            let ended = session.wait();
            let mut state = sessions.lock();
            match ended {
                Ok(end) => tracing::info!(?end, directory = %directory.display(), "unmounted"),
                Err(error) => {
                    tracing::error!("{error}");
                    state.failed.get_or_insert(error.to_string());
                }
            }
            state.open.retain(|open| open.number != number);
            state.announce_anew();
            sessions.changed.notify_all();
        };
        let started = std::thread::Builder::new().name("yore-mount".into()).spawn(wait);
        started.map(drop).map_err(|error| {
            // The session was dropped with the closure, and that unmounted it.
            self.lock().open.retain(|open| open.number != number);
            anyhow::anyhow!("cannot start the thread that waits for a mount: {error}")
        })
    }

    /// Mounts a snapshot beside what is mounted.
    ///
    /// # Errors
    /// There is no such snapshot; it cannot be mounted there; the daemon is ending.
    pub fn mount(self: &Arc<Self>, at: &At, directory: &Path, options: &Options) -> Result<(), Refused> {
        let _coming = {
            let mut state = self.lock();
            if state.over {
                return Err(Refused::Ending);
            }
            state.coming += 1;
            Coming(self)
        };
        let (session, snapshot) =
            mount_snapshot(&self.view, &self.volume, at, directory, options, Some(&self.first))
                .map_err(Refused::Failed)?;
        self.add(session, Some(snapshot)).map_err(Refused::Failed)
    }

    /// Notes that a request is being answered.
    pub fn asked(&self) -> AskedSession<'_> {
        self.lock().asked += 1;
        AskedSession(self)
    }

    /// Answers what a command asks of the whole volume, or `about` a file or directory of the present, on
    /// behalf of root or the daemon's user.
    ///
    /// # Errors
    /// Those of the request; `Refused` for one that needs a directory of the mount.
    pub fn answer(&self, uid: u32, about: Option<InodeNo>, request: &Request) -> yore_fs::Result<Answer> {
        use Request::{BreakOff, Check, Checksums, Defragment, HowFar, Scrub, Scrubs, Stopped};
        let inode = match (about, request) {
            (Some(inode), Defragment { .. }) => inode,
            (None, Check { .. } | Scrub { .. } | Scrubs | Checksums { .. } | Stopped)
            | (_, HowFar { question: Some(_) } | BreakOff { .. }) => self.view.root(),
            _ => {
                return Err(yore_fs::Error::Refused("that is asked through a directory of the mount".into()))
            }
        };
        let who = Who {
            uid,
            may_all: true,
            as_root: uid == 0,
            groups: &[],
            access: &self.view.access(None, self.view.root()),
            read_only: self.view.read_only(),
            limits: UserLimits::default(),
            expunges_others: false,
            host: self,
        };
        yore_control::answer(&self.view, inode, &who, request)
    }

    /// Has checks, scrubs and other long work on the volume end soon; returns how much is under way.
    pub fn break_off(&self) -> usize {
        self.view.break_off_inspections()
    }

    /// Waits until the latest mount on a directory has ended; returns whether it was the last one of all.
    pub fn wait_for(&self, directory: &Path) -> bool {
        let mut state = self.lock();
        let of = |open: &&Open| open.handle.mountpoint() == directory;
        if let Some(number) = state.open.iter().filter(of).map(|open| open.number).max() {
            while state.open.iter().any(|open| open.number == number) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.has_no_mount()
    }

    /// Waits until the last mount has ended, and all requests are answered.
    ///
    /// # Errors
    /// What a mount that ended badly said.
    pub fn wait(&self) -> Result<(), String> {
        let mut state = self.lock();
        while (!state.has_no_mount() || state.asked > 0) && !state.abandoned {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.over = true;
        state.failed.take().map_or(Ok(()), Err)
    }

    /// Tells whoever waits for the daemon that it ended badly.
    pub fn leave_word(&self, message: &str) {
        if let Some((_, announcement)) = &mut self.lock().announced {
            announcement.leave_word(message);
        }
    }

    /// From now on nobody finds this daemon.
    pub fn withdraw(&self) {
        self.lock().announced = None;
    }

    /// Ends all mounts. Programs that still use one get errors from now on: whoever sends the signal wants an
    /// end.
    ///
    /// A mount that is gone here may live on in another mount namespace, where nobody here can unmount it.
    /// Then its connection is aborted. If even that is not allowed, the volume is closed, and the connection
    /// ends with the process.
    pub fn end(&self) {
        // Snapshots come first: the volume is closed with the present.
        let mut open: Vec<_> =
            self.lock().open.iter().map(|open| (open.snapshot.is_none(), open.handle.clone())).collect();
        open.sort_by_key(|(is_present, _)| *is_present);
        let open: Vec<SessionHandle> = open.into_iter().map(|(_, handle)| handle).collect();
        sync_all(&open);
        for handle in &open {
            let unmounted = match handle.unmount(UnmountHow::Idle) {
                Err(UnmountError::Busy { .. }) => {
                    let directory = handle.mountpoint().display();
                    tracing::warn!(%directory, "the mount is in use; whoever uses it gets errors from here on");
                    handle.unmount(UnmountHow::Abort)
                }
                other => other,
            };
            if let Err(error) = unmounted {
                tracing::error!("{error}");
            }
        }
        for handle in self.lasting() {
            let directory = handle.mountpoint().display();
            tracing::warn!(
                %directory,
                "the mount is gone, and somebody keeps it in a namespace of his own: whoever uses it gets errors from here on"
            );
            if let Err(error) = handle.unmount(UnmountHow::Abort) {
                tracing::error!("{error}");
            }
        }
        if !self.lasting().is_empty() {
            self.abandon();
        }
    }

    /// The sessions whose connections do not soon end by themselves.
    fn lasting(&self) -> Vec<SessionHandle> {
        let end = Instant::now() + LASTING;
        let mut state = self.lock();
        loop {
            let lasting: Vec<SessionHandle> = state
                .open
                .iter()
                .map(|open| open.handle.clone())
                .filter(|handle| !handle.has_ended())
                .collect();
            let left = end.saturating_duration_since(Instant::now());
            if lasting.is_empty() || left.is_zero() {
                return lasting;
            }
            // A session that has ended reports it only when its volume is closed, so this thread checks from
            // time to time.
            let left = left.min(Duration::from_millis(50));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the volume under connections that cannot be ended.
    fn abandon(&self) {
        tracing::warn!("the volume is closed under mounts that cannot be ended; they end with this process");
        let closed = self.view.close();
        let mut state = self.lock();
        if let Err(error) = closed {
            state.failed.get_or_insert(format!("cannot close {}: {error}", self.volume.display()));
        }
        state.abandoned = true;
        self.changed.notify_all();
    }
}

/// How long a connection may last after its mount was removed, before it is aborted.
const LASTING: Duration = Duration::from_secs(3);
/// How long to wait for file data that only the kernel has.
const SYNCING: Duration = Duration::from_secs(60);

/// Makes the kernel hand over what programs have written. It may wait for something that never comes, so a
/// separate thread makes the calls.
fn sync_all(handles: &[SessionHandle]) {
    let handles = handles.to_vec();
    let (done, is_done) = std::sync::mpsc::channel();
    let sync = move || {
        for handle in handles {
            if let Err(error) = handle.sync() {
                tracing::warn!(directory = %handle.mountpoint().display(), %error, "not all files could be synced");
            }
        }
        let _ = done.send(());
    };
    let started = std::thread::Builder::new().name("yore-sync".into()).spawn(sync);
    if let Err(error) = started.map(drop) {
        tracing::warn!(%error, "files are not synced before the end");
    } else if is_done.recv_timeout(SYNCING).is_err() {
        tracing::warn!("files are still being synced; the end does not wait for it any longer");
    }
}

impl State {
    /// Whether nothing is mounted, or about to be.
    fn has_no_mount(&self) -> bool {
        self.open.is_empty() && self.coming == 0
    }

    /// Tells other commands what is mounted now.
    fn announce_anew(&mut self) {
        let Some((daemon, announcement)) = &mut self.announced else { return };
        daemon.snapshots = self.open.iter().filter_map(|open| open.snapshot.clone()).collect();
        let present = self.open.iter().find(|open| open.snapshot.is_none());
        daemon.has_present = present.is_some();
        // At the end the directory stays what it was, which shows others that the daemon is ending.
        if let Some(open) = present.or(self.open.first()) {
            daemon.directory = open.handle.mountpoint().to_path_buf();
        }
        if let Err(error) = announcement.renew(daemon) {
            tracing::warn!("other commands do not know what is mounted: {error:#}");
        }
    }
}

/// Mounts a directory as of a time, from an open volume.
///
/// # Errors
/// There is no such snapshot; it cannot be mounted there.
pub fn mount_snapshot(
    view: &View,
    volume: &Path,
    at: &At,
    directory: &Path,
    options: &Options,
    beside: Option<&SessionHandle>,
) -> anyhow::Result<(Session, MountedSnapshot)> {
    let found = at.find(view)?;
    let snapshot = MountedSnapshot {
        directory: directory.to_path_buf(),
        number: found.pin.event().0,
        at: found.name.rsplit('@').next().unwrap_or_default().to_string(),
    };
    let config = MountConfig {
        read_only: true,
        ..options.for_mount(directory, format!("{}{}", volume.display(), found.name))
    };
    Ok((yore_fuse::mount_snapshot(found.pin, found.root, &config, beside)?, snapshot))
}
