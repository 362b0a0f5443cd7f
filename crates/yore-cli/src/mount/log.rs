//! Where the daemon logs: to the file it was given; in the foreground, to standard error; otherwise to the
//! system's log. If there is no system log, it logs to a file beside the one that announces the mount.
//! `YORE_LOG` says how much it logs (`debug`, `yore_fs=trace`); the default is `info`.

use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::EnvFilter;

/// Where log lines go.
#[derive(Debug)]
pub enum Destination {
    StandardError,
    File(File, PathBuf),
    System(UnixDatagram),
}

impl Destination {
    /// The destination for a daemon without a terminal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn of_daemon(file: Option<&PathBuf>) -> anyhow::Result<Destination> {
        if let Some(path) = file {
            return Destination::file(path.clone());
        }
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect("/dev/log")?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => Ok(Destination::System(socket)),
            Err(_) => Destination::file(crate::live::own_log(crate::live::runtime_directory()?)),
        }
    }

    /// A file. If it exists, lines are appended.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(path: PathBuf) -> anyhow::Result<Destination> {
        let file = File::options().append(true).create(true).open(&path);
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        Ok(Destination::File(file, path))
    }

    /// What to tell people who look for the log.
    pub fn describe(&self) -> String {
        match self {
            Destination::StandardError => "standard error".to_string(),
            Destination::File(_, path) => path.display().to_string(),
            Destination::System(_) => "the system's log".to_string(),
        }
    }

    /// From now on the process writes all its messages there, panics included.
    pub fn install(self) {
        let filter = EnvFilter::try_from_env("YORE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        let system = matches!(self, Destination::System(_));
        // It would tell of a line that cannot be written on standard error, and panic if that fails, too.
        let builder = tracing_subscriber::fmt().log_internal_errors(false);
        let builder = builder.with_env_filter(filter).with_ansi(false).with_writer(self);
        // This is set once per process. A second call is a mistake, but changes nothing.
        let _ = match system {
            // The system's log has times and levels of its own.
            true => builder.without_time().with_level(false).try_init(),
            false => builder.try_init(),
        };
        std::panic::set_hook(Box::new(|panic| {
            let trace = std::backtrace::Backtrace::capture();
            tracing::error!("{panic}\n{trace}");
        }));
    }
}

/// Writes one line.
pub struct Line<'a> {
    destination: &'a Destination,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.destination {
            Destination::StandardError => io::stderr().write_all(event)?,
            // One write for each line, at the end of the file: lines of several threads do not mix.
            Destination::File(file, _) => (&mut &*file).write_all(event)?,
            Destination::System(socket) => {
                // Facility 3 (daemons), severity by level, as RFC 3164 has it.
                let severity = match self.level {
                    Level::ERROR => 3,
                    Level::WARN => 4,
                    Level::INFO => 6,
                    _ => 7,
                };
                let mut line = format!("<{}>yore[{}]: ", 3 * 8 + severity, std::process::id()).into_bytes();
                line.extend_from_slice(event.trim_ascii_end());
                socket.send(&line)?;
            }
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { destination: self, level: Level::INFO }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        Line { destination: self, level: *meta.level() }
    }
}
