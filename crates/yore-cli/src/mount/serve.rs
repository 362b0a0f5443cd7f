//! The daemon. It opens the volume and mounts it, or a snapshot of it. It serves that, and what is mounted
//! beside it, until everything is unmounted or a signal ends it. Then it closes the volume.

use super::log::Destination;
use super::options::Journal;
use super::plan::{Plan, Word};
use super::remount;
use super::requests::Listener;
use super::sessions::{mount_snapshot, Sessions};
use crate::live::{self, Daemon};
use crate::status::{self, Ended, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use yore_fs::{Policy, Versioning, View};
use yore_fuse::Session;

/// What a daemon serves.
struct Mounted {
    sessions: Arc<Sessions>,
    listener: Option<Listener>,
    signals: Signals,
    /// A warning for whoever mounts.
    warning: Option<String>,
}

/// Serves in this very process.
pub fn foreground(plan: Plan) -> Outcome {
    let log = match &plan.options.log {
        Some(path) => Destination::file(path.clone())?,
        None => Destination::StandardError,
    };
    let log_name = log.describe();
    log.install();
    let mounted = mount(&plan, log_name)?;
    if let Some(warning) = &mounted.warning {
        tracing::warn!("{warning}");
    }
    mounted.wait()
}

/// Serves in a separate process, which tells the one that started it how the mount went.
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
            // If nobody listens any more, the log has the message.
            let _ = tell(&Word::Failed { message, status });
            return Err(Ended { message: String::new(), status }.into());
        }
    };
    if let Err(error) =
        tell(&Word::Ready { warning: mounted.warning.clone() }).and_then(|()| let_go(log_file))
    {
        tracing::warn!("{error:#}; unmounting again");
        mounted.sessions.end();
    }
    mounted.wait()
}

/// Gives the process its own session, no working directory, and a name that lists of processes show.
fn detach() -> anyhow::Result<()> {
    rustix::process::setsid().context("cannot begin a session")?;
    rustix::process::chdir("/").context("cannot leave the working directory")?;
    Ok(rustix::thread::set_name(c"yore")?)
}

/// Writes a line to the process that started this one.
fn tell(word: &Word) -> anyhow::Result<()> {
    let line = serde_json::to_string(word)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("whoever asked for the mount is gone")
}

/// Closes the standard files, because somebody may wait for their end.
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
    // This comes before anything else: a signal that arrives during the mount must lead to an unmount.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
    let access = if options.read_only { Access::Read } else { Access::Write };
    let device = volume::open_device(&plan.volume, access)?;
    if options.journal == Journal::Internal {
        let found = crate::inspect::superblock::usable(&plan.volume, device.as_ref())?;
        anyhow::ensure!(
            found.external_log.is_none(),
            "{} has its log on a device of its own; move it with `yore journal {0} --inside`, or leave journal=internal out",
            plan.volume.display()
        );
    }
    let opened = volume::open_on(&plan.volume, device, &options.on_volume()?)?;
    let view = opened.view().clone();
    let mounted = match &plan.at {
        None => mount_present(plan, &view).map(|session| (session, None)),
        Some(at) => mount_snapshot(&view, &plan.volume, at, &plan.directory, options, None)
            .map(|(session, snapshot)| (session, Some(snapshot))),
    };
    let (session, snapshot) = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            view.close().with_context(|| format!("cannot close {}", plan.volume.display()))?;
            return Err(error);
        }
    };
    if !options.access_times && rustix::process::geteuid().is_root() {
        // The volume records no access times in any case; this is for readers of the table of mounts.
        let flags = remount::flags(options) | rustix::mount::MountFlags::BIND;
        if let Err(error) = rustix::mount::mount_remount(&plan.directory, flags, c"") {
            tracing::warn!(%error, "the table of mounts will not show noatime");
        }
    }
    let warning = options.snapdir.as_ref().filter(|name| view.lookup(view.root(), name.as_bytes()).is_ok());
    let warning = warning.map(|name| {
        let name = name.display();
        format!(
            "the volume has a file named {name} in its root directory, which is shown instead of the snapshots: rename it, or \
             choose another name for snapdir"
        )
    });
    // After a crash under an engine that orders changes. Nobody waits for it, and it ends with the volume.
    if let Err(error) = yore_online::recount_beside(&view) {
        tracing::warn!(%error, "leaks of a crash stay pending until the next mount");
    }
    let sessions = Sessions::begin(view, &plan.volume, session, snapshot)?;
    let listener = Listener::start(&sessions)
        .inspect_err(|error| tracing::warn!("no snapshots can be mounted beside this: {error:#}"))
        .ok();
    let daemon = describe(plan, &opened, log, listener.as_ref());
    match daemon.and_then(|daemon| Ok((live::announce(&daemon)?, daemon))) {
        Ok((announcement, daemon)) => sessions.announce(daemon, announcement),
        Err(error) => tracing::warn!("`yore info` will know little of this mount: {error:#}"),
    }
    Ok(Mounted { sessions, listener, signals, warning })
}

fn mount_present(plan: &Plan, view: &View) -> anyhow::Result<Session> {
    let mut config = plan.options.for_mount(&plan.directory, plan.volume.to_string_lossy().into_owned());
    // Reports of closes cost extra requests for each file, so only volumes that need them ask for them.
    let at_close = |(_, policy): &(_, Policy)| policy.versioning == Some(Versioning::Close);
    config.close_events = plan.options.close_events || view.policies()?.iter().any(at_close);
    Ok(yore_fuse::mount(view.clone(), &config)?)
}

/// What other commands may know about this daemon.
fn describe(
    plan: &Plan,
    opened: &yore_fs::Volume,
    log: String,
    listener: Option<&Listener>,
) -> anyhow::Result<Daemon> {
    let info = opened.info();
    let pid = std::process::id();
    Ok(Daemon {
        pid,
        process_start: live::process_start(pid).context("cannot find out when this process started")?,
        identity: live::identity(&plan.volume)
            .with_context(|| format!("cannot look at {}", plan.volume.display()))?,
        volume: plan.volume.clone(),
        directory: plan.directory.clone(),
        has_present: plan.at.is_none(),
        snapshots: Vec::new(),
        socket: listener.map(|listener| listener.path().to_path_buf()),
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
        intent_log: info.log_size,
        known: live::Known::default(),
    })
}

impl Mounted {
    /// Serves until the end.
    fn wait(self) -> Outcome {
        let Mounted { sessions, listener, mut signals, .. } = self;
        let stop = signals.handle();
        let for_signals = sessions.clone();
        let on_signal = move |signal| {
            tracing::info!(signal, "unmounting");
            for_signals.end();
        };
        let waiter = std::thread::Builder::new()
            .name("yore-signals".into())
            .spawn(move || signals.forever().for_each(on_signal))
            .context("cannot start the thread that waits for signals")?;
        let ended = sessions.wait();
        stop.close();
        if waiter.join().is_err() {
            tracing::error!("the thread that waits for signals panicked");
        }
        drop(listener);
        match ended {
            Ok(()) => {
                tracing::info!("the volume is closed");
                live::remove_own_log();
                sessions.withdraw();
                live::leave_directory();
                Ok(status::OK)
            }
            Err(message) => {
                sessions.leave_word(&message);
                sessions.withdraw();
                live::leave_directory();
                Err(Ended { message, status: status::NOT_CLOSED }.into())
            }
        }
    }
}
