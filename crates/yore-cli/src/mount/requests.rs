//! Requests to a daemon beside files and ioctls: to mount a snapshot beside what it serves, to say when a
//! mount has ended and whether writing has stopped, and to check or scrub the volume or to lay files
//! together, which would keep a mount busy if it was asked for through an open directory (`beside.rs`).
//!
//! They come through a socket beside the file that announces the daemon. The socket works whether or not the
//! present is mounted, is open to the daemon's user and root only, and occupies no thread that serves files.
//! One line of JSON goes each way. The daemon itself mounts, with its own rights, so it can also unmount.

use super::conversation::{connect, Conversation};
use super::options::Options;
use super::patience::{Patience, SLICE};
use super::plan::Plan;
use super::sessions::{Refused, Sessions};
use super::snapshot::At;
use crate::live::{self, Daemon};
use crate::status::{self, Ended};
use anyhow::Context as _;
use rustix::event::{poll, PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_control::Stopped;
use yore_fs::InodeNo;

/// The longest request, in bytes; paths are far shorter.
const LINE_MAX: u64 = 64 << 10;
/// The longest answer: a check tells many findings.
const ANSWER_MAX: u64 = 256 << 20;
/// How long each end may take to say or to take something, all of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a daemon may take to say whether it still writes, which it knows without any work.
const STOPPED: Duration = Duration::from_secs(5);
/// How long a daemon may take to mount a snapshot.
const MOUNTING: Duration = Duration::from_secs(120);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Mount a snapshot on a directory (bytes of an absolute path), with these mount options.
    Mount { at: At, directory: Vec<u8>, options: String },
    /// Answer when the mount on this directory has ended.
    WaitFor { directory: Vec<u8> },
    /// Break off checks and scrubs, which keep the mount in use.
    BreakOff,
    /// What commands ask of a whole volume: to check or to scrub it, and how far that is.
    Ask(yore_control::Request),
    /// What commands ask of a file or directory of the present, which has this number: to lay it together.
    AskAbout { inode: u64, request: yore_control::Request },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Mounted,
    /// The mount has ended; `last` says whether the daemon ends with it.
    Over {
        last: bool,
    },
    /// The daemon is about to end.
    Ending,
    /// So many checks and scrubs end soon.
    BrokenOff {
        under_way: usize,
    },
    /// The answer to what a command asked.
    Said(Box<yore_fs::Result<yore_control::Answer>>),
    Failed {
        message: String,
        status: u8,
    },
}

/// The daemon's socket, which is removed on drop.
pub struct Listener(PathBuf);

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the socket for requests");
        }
    }
}

impl Listener {
    /// Answers requests from now on, each in its own thread.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(sessions: &Arc<Sessions>) -> anyhow::Result<Listener> {
        let path = live::own_socket(live::runtime_directory()?);
        // An earlier process with this number may have left one.
        let _ = fs::remove_file(&path);
        let cannot = || format!("cannot listen on {}", path.display());
        let socket = UnixListener::bind(&path).with_context(cannot)?;
        let listener = Listener(path.clone());
        // A process that connected before this line gains nothing: `hear` checks the sender.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).with_context(cannot)?;
        let sessions = sessions.clone();
        let serve = move || {
            for stream in socket.incoming() {
                let sessions = sessions.clone();
                let started = stream.and_then(|stream| {
                    let thread = std::thread::Builder::new().name("yore-request".into());
                    thread.spawn(move || answer(&sessions, stream))
                });
                if let Err(error) = started {
                    tracing::warn!(%error, "a request was not heard");
                    // Memory or descriptors have run out, which passes.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        };
        std::thread::Builder::new().name("yore-requests".into()).spawn(serve).with_context(cannot)?;
        Ok(listener)
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The daemon's half of a conversation.
fn answer(sessions: &Arc<Sessions>, stream: UnixStream) {
    let heard = hear(&stream);
    // The daemon does not end before the answer is there. It does not wait for whoever has asked nothing.
    let _asked = sessions.asked();
    let answered = heard.map(|(request, uid)| match request {
        Request::Ask(request) => Answer::Said(Box::new(sessions.answer(uid, None, &request))),
        Request::AskAbout { inode, request } => {
            Answer::Said(Box::new(sessions.answer(uid, Some(InodeNo(inode)), &request)))
        }
        Request::WaitFor { directory } => Answer::Over { last: sessions.wait_for(&path_of(directory)) },
        Request::BreakOff => Answer::BrokenOff { under_way: sessions.break_off() },
        Request::Mount { at, directory, options } => {
            let mounted = Options::parse(&[options.into()], true)
                .map_err(Refused::Failed)
                .and_then(|options| sessions.mount(&at, &path_of(directory), &options));
            match mounted {
                Ok(()) => Answer::Mounted,
                Err(Refused::Ending) => Answer::Ending,
                Err(Refused::Failed(error)) => {
                    Answer::Failed { message: status::message(&error), status: status::of(&error) }
                }
            }
        }
    });
    let told = answered.and_then(|answer| {
        let line = serde_json::to_string(&answer)? + "\n";
        // The daemon's end must not wait for somebody who takes no answer.
        Ok(Conversation::within(&stream, PATIENCE).write_all(line.as_bytes())?)
    });
    if let Err(error) = told {
        tracing::warn!("a request came to nothing: {error:#}");
    }
}

/// A request, if its sender may make one, and who that is.
fn hear(stream: &UnixStream) -> anyhow::Result<(Request, u32)> {
    let peer = rustix::net::sockopt::socket_peercred(stream).context("cannot tell who asks")?;
    anyhow::ensure!(
        peer.uid.is_root() || peer.uid == rustix::process::geteuid(),
        "user {} may not ask this daemon",
        peer.uid.as_raw()
    );
    let mut line = String::new();
    BufReader::new(Conversation::within(stream, PATIENCE).take(LINE_MAX)).read_line(&mut line)?;
    let request = serde_json::from_str(&line).context("the request is not understood")?;
    Ok((request, peer.uid.as_raw()))
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn bytes_of(path: &Path) -> Vec<u8> {
    OsStr::as_bytes(path.as_os_str()).to_vec()
}

/// Asks a daemon; `None` if it ended before it answered. `wait_on` is called again and again, and fails when
/// the wait has been too long.
pub(super) fn ask(
    daemon: &Daemon,
    request: &Request,
    wait_on: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Answer>> {
    let pid = daemon.pid;
    let Some(socket) = &daemon.socket else {
        anyhow::bail!(
            "process {pid}, which has {} mounted, takes no requests (its log may say why): unmount it first (yore umount {})",
            daemon.volume.display(),
            daemon.directory.display()
        );
    };
    let stream = match connect(socket, PATIENCE) {
        Ok(stream) => stream,
        Err(_) if !daemon.lives() => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot ask process {pid}")),
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    anyhow::ensure!(
        u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(pid),
        "{} is not the socket of process {pid}",
        socket.display()
    );
    let line = serde_json::to_string(request)? + "\n";
    let mut reply = String::new();
    let mut spoken = Conversation::within(&stream, PATIENCE).write_all(line.as_bytes()).map(|()| 0);
    if spoken.is_ok() {
        while !has_answered(&stream)? {
            wait_on()?;
        }
        let answer = Conversation::within(&stream, PATIENCE).take(ANSWER_MAX);
        spoken = BufReader::new(answer).read_line(&mut reply);
    }
    match spoken {
        Ok(0) | Err(_) if ends(pid)? => Ok(None),
        Ok(0) => anyhow::bail!("process {pid} refused to answer; its log says why"),
        Ok(_) => Ok(Some(serde_json::from_str(&reply).context("the daemon's answer is not understood")?)),
        Err(error) => Err(error).with_context(|| format!("cannot ask process {pid}")),
    }
}

/// Waits a moment; returns whether there is anything to read or the other end is closed.
fn has_answered(stream: &UnixStream) -> anyhow::Result<bool> {
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: SLICE.subsec_nanos().into() };
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&moment)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("cannot wait for an answer"),
    }
}

/// Whether a process that has stopped answering ends soon.
fn ends(pid: u32) -> anyhow::Result<bool> {
    match live::Process::hold(pid)? {
        None => Ok(true),
        Some(process) => Ok(process.wait(Some(PATIENCE))?),
    }
}

/// Makes the daemon that has the volume mount a snapshot; false if no daemon has it, or the one that had it
/// is ending.
///
/// # Errors
/// Why the daemon does not mount it.
pub fn mount_beside(plan: &Plan, at: &At) -> anyhow::Result<bool> {
    let Some(daemon) = live::daemon_of_volume(&plan.volume) else { return Ok(false) };
    if !daemon.is_mounted() {
        return Ok(false);
    }
    let directory = bytes_of(&plan.directory);
    let request = Request::Mount { at: at.clone(), directory, options: plan.options.text.clone() };
    let begun = Instant::now();
    let mut wait_on = || {
        let (pid, volume) = (daemon.pid, daemon.volume.display());
        let goes_on = begun.elapsed() < MOUNTING;
        anyhow::ensure!(
            goes_on,
            "process {pid}, which has {volume} mounted, does not answer; its log may say why"
        );
        Ok(())
    };
    match ask(&daemon, &request, &mut wait_on)? {
        Some(Answer::Mounted) => Ok(true),
        Some(Answer::Failed { message, status }) => Err(Ended { message, status }.into()),
        Some(Answer::Ending) | None => Ok(false),
        Some(Answer::Over { .. } | Answer::BrokenOff { .. } | Answer::Said(_)) => {
            anyhow::bail!("the daemon's answer is not understood")
        }
    }
}

/// Waits until a daemon's mount on a directory has ended; returns whether the daemon ends with it.
///
/// # Errors
/// The daemon cannot be asked; the wait has been too long.
pub fn wait_for(daemon: &Daemon, directory: &Path, patience: &mut Patience<'_>) -> anyhow::Result<bool> {
    match ask(daemon, &Request::WaitFor { directory: bytes_of(directory) }, &mut || patience.wait_on())? {
        Some(Answer::Over { last }) => Ok(last),
        Some(Answer::Failed { message, status }) => Err(Ended { message, status }.into()),
        Some(Answer::Mounted | Answer::Ending | Answer::BrokenOff { .. } | Answer::Said(_)) | None => {
            Ok(true)
        }
    }
}

/// Has a daemon break off checks, scrubs and other long work on its volume. Returns how much is under way.
///
/// # Errors
/// The daemon cannot be asked, or does not answer.
pub fn break_off(daemon: &Daemon) -> anyhow::Result<usize> {
    match ask(daemon, &Request::BreakOff, &mut at_most(PATIENCE, daemon.pid))? {
        Some(Answer::BrokenOff { under_way }) => Ok(under_way),
        Some(Answer::Failed { message, status }) => Err(Ended { message, status }.into()),
        _ => Ok(0),
    }
}

/// Whether writing to a daemon's volume has stopped. Nothing of the mount is opened for it: where the daemon
/// hangs, whoever opens something there hangs with it, and cannot even be killed.
///
/// # Errors
/// The daemon cannot be asked, or does not answer soon.
pub fn stopped(daemon: &Daemon) -> anyhow::Result<Option<Stopped>> {
    let request = Request::Ask(yore_control::Request::Stopped);
    match ask(daemon, &request, &mut at_most(STOPPED, daemon.pid))? {
        Some(Answer::Said(said)) => match *said {
            Ok(yore_control::Answer::Stopped(stopped)) => Ok(stopped),
            Ok(_) => anyhow::bail!("the answer of process {} is not understood", daemon.pid),
            Err(error) => Err(error.into()),
        },
        Some(Answer::Failed { message, status }) => Err(Ended { message, status }.into()),
        // It has ended. If it ended badly, it has left word.
        _ => Ok(None),
    }
}

/// A wait that fails when it takes longer than this.
fn at_most(limit: Duration, pid: u32) -> impl FnMut() -> anyhow::Result<()> {
    let begun = Instant::now();
    move || {
        anyhow::ensure!(begun.elapsed() < limit, "process {pid} does not answer");
        Ok(())
    }
}
