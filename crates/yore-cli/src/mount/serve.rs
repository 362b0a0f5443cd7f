//! The daemon: opens the volume, mounts it, serves it until somebody unmounts it or a signal ends it, closes it.

use super::log::Destination;
use super::{remount, Plan, Word};
use crate::command::Outcome;
use crate::live::{self, Announcement, Daemon};
use crate::status::{self, Ended};
use crate::volume::{self, Access};
use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use yore_fs::{Policy, Versioning};
use yore_fuse::{MountConfig, Session, SessionHandle, UnmountError, UnmountHow};

/// A mount that is served.
struct Mounted {
    session: Session,
    announcement: Option<Announcement>,
    signals: Signals,
}

/// Serves in the process that was called.
pub fn foreground(plan: Plan) -> Outcome {
    let log = match &plan.options.log {
        Some(path) => Destination::file(path.clone())?,
        None => Destination::StandardError,
    };
    let log_name = log.describe();
    log.install();
    let mounted = mount(&plan, log_name)?;
    mounted.wait()
}

/// Serves in a process of its own, telling the one that started it how it went.
pub fn daemon(plan: Plan) -> Outcome {
    let mounted = detach().and_then(|()| {
        let log = Destination::of_daemon(plan.options.log.as_ref())?;
        let log_name = log.describe();
        let log_file = match &log {
            Destination::File(_, path) => Some(path.clone()),
            _ => None,
        };
        log.install();
        Ok((mount(&plan, log_name)?, log_file))
    });
    let (mounted, log_file) = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            let (message, status) = (status::message(&error), status::of(&error));
            tracing::error!("{message}");
            live::remove_own_log();
            // If nobody hears it any more, the log has it.
            let _ = tell(&Word::Failed { message, status });
            return Err(Ended { message: String::new(), status }.into());
        }
    };
    if let Err(error) = tell(&Word::Ready).and_then(|()| let_go(log_file)) {
        tracing::warn!("{error:#}; unmounting again");
        if let Err(error) = mounted.session.handle().unmount(UnmountHow::Abort) {
            tracing::error!("{error}");
        }
    }
    mounted.wait()
}

/// A session of its own, no working directory, a name that lists of processes show.
fn detach() -> anyhow::Result<()> {
    rustix::process::setsid().context("cannot begin a session")?;
    rustix::process::chdir("/").context("cannot leave the working directory")?;
    Ok(rustix::thread::set_name(c"yore")?)
}

/// A line for the process that started this one.
fn tell(word: &Word) -> anyhow::Result<()> {
    let line = serde_json::to_string(word)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("whoever asked for the mount is gone")
}

/// Gives back the standard files, of which somebody may wait for the end.
fn let_go(log: Option<PathBuf>) -> anyhow::Result<()> {
    let null = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    match log {
        Some(path) => {
            let log = File::options().append(true).open(&path);
            rustix::stdio::dup2_stderr(log.with_context(|| format!("cannot open {}", path.display()))?)?;
        }
        None => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}

/// Opens and mounts.
fn mount(plan: &Plan, log: String) -> anyhow::Result<Mounted> {
    let options = &plan.options;
    // Before anything else: a signal that comes while mounting must find somebody who unmounts.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
    let access = if options.read_only { Access::Read } else { Access::Write };
    let device = volume::open_device(&plan.volume, access)?;
    let opened = volume::open_on(&plan.volume, device, &options.for_volume())?;
    let view = opened.view().clone();
    // Being told of closes costs requests for each file: only for who wants them.
    let at_close = |(_, policy): &(_, Policy)| policy.versioning == Some(Versioning::Close);
    let policies = view.policies().with_context(|| format!("cannot read {}", plan.volume.display()))?;
    let config = MountConfig {
        close_events: options.close_events || policies.iter().any(at_close),
        read_only: options.read_only,
        allow_other: options.allow_other,
        auto_unmount: options.auto_unmount,
        dev: options.dev,
        suid: options.suid,
        no_exec: options.no_exec,
        ..MountConfig::new(&plan.directory, plan.volume.to_string_lossy())
    };
    let session = match yore_fuse::mount(view.clone(), &config) {
        Ok(session) => session,
        Err(error) => {
            view.close().with_context(|| format!("cannot close {}", plan.volume.display()))?;
            return Err(error.into());
        }
    };
    if !options.access_times && rustix::process::geteuid().is_root() {
        // The volume records none in any case; this is for those who look at the table of mounts.
        let flags = remount::flags(options) | rustix::mount::MountFlags::BIND;
        if let Err(error) = rustix::mount::mount_remount(&plan.directory, flags, c"") {
            tracing::warn!(%error, "the table of mounts will not show noatime");
        }
    }
    let announcement = match describe(plan, &opened, log).and_then(|daemon| live::announce(&daemon)) {
        Ok(announcement) => Some(announcement),
        Err(error) => {
            tracing::warn!("`yore info` will know little of this mount: {error:#}");
            None
        }
    };
    Ok(Mounted { session, announcement, signals })
}

/// What other commands may know of this daemon.
fn describe(plan: &Plan, opened: &yore_fs::Volume, log: String) -> anyhow::Result<Daemon> {
    let info = opened.info();
    let pid = std::process::id();
    Ok(Daemon {
        pid,
        process_start: live::process_start(pid).context("cannot find out when this process started")?,
        identity: live::identity(&plan.volume)
            .with_context(|| format!("cannot look at {}", plan.volume.display()))?,
        volume: plan.volume.clone(),
        directory: plan.directory.clone(),
        engine: info.engine.name().to_string(),
        read_only: plan.options.read_only,
        uuid: uuid::Uuid::from_bytes(info.uuid).to_string(),
        label: info.label,
        options: plan.options.text.clone(),
        log,
        mounted_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        state_found: info.state.to_string(),
        format: info.format,
        mount_id: info.mount_id,
    })
}

impl Mounted {
    /// Serves until the end.
    fn wait(self) -> Outcome {
        let Mounted { session, announcement, mut signals } = self;
        let handle = session.handle();
        let stop = signals.handle();
        let waiter = std::thread::Builder::new()
            .name("yore-signals".into())
            .spawn(move || signals.forever().for_each(|signal| on_signal(signal, &handle)))
            .context("cannot start the thread that waits for signals")?;
        let ended = session.wait();
        stop.close();
        if waiter.join().is_err() {
            tracing::error!("the thread that waits for signals panicked");
        }
        match ended {
            Ok(end) => {
                tracing::info!(?end, "unmounted; the volume is closed");
                live::remove_own_log();
                drop(announcement);
                Ok(status::OK)
            }
            Err(error) => {
                let message = error.to_string();
                tracing::error!("{message}");
                live::leave_word(&message);
                drop(announcement);
                Err(Ended { message, status: status::NOT_CLOSED }.into())
            }
        }
    }
}

/// Unmounts; programs that still use the mount get errors from here on, since whoever sends signals wants an end.
fn on_signal(signal: i32, handle: &SessionHandle) {
    tracing::info!(signal, "unmounting");
    let unmounted = match handle.unmount(UnmountHow::Idle) {
        Err(UnmountError::Busy { .. }) => {
            tracing::warn!("the mount is in use; whoever uses it gets errors from here on");
            handle.unmount(UnmountHow::Abort)
        }
        other => other,
    };
    if let Err(error) = unmounted {
        tracing::error!("{error}");
    }
}
