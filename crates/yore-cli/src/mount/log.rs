//! Where the daemon logs: to the file it was given; in the foreground, to standard error; otherwise to the
//! system's log. If there is no system log, it logs to a file beside the one that announces the mount. A
//! system log that is started anew has another socket in the same place, so a line that does not arrive is
//! sent there. `YORE_LOG` says how much it logs (`debug`, `yore_fs=trace`); the default is `info`.

use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::EnvFilter;

/// Where the system's log takes lines.
const SYSTEM: &str = "/dev/log";

/// Where log lines go.
#[derive(Debug)]
pub enum Destination {
    StandardError,
    File(File, PathBuf),
    /// A socket that was connected to the one in this place.
    System(UnixDatagram, PathBuf),
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
        match Destination::system(Path::new(SYSTEM)) {
            Ok(system) => Ok(system),
            Err(_) => Destination::file(crate::live::own_log(crate::live::runtime_directory()?)),
        }
    }

    /// The log of the system, which listens there.
    fn system(path: &Path) -> io::Result<Destination> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Destination::System(socket, path.to_path_buf()))
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
            Destination::System(..) => "the system's log".to_string(),
        }
    }

    /// From now on the process writes all its messages there, panics included.
    pub fn install(self) {
        let filter = EnvFilter::try_from_env("YORE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        let system = matches!(self, Destination::System(..));
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
            Destination::System(socket, path) => {
                // Facility 3 (daemons), severity by level, as RFC 3164 has it.
                let severity = match self.level {
                    Level::ERROR => 3,
                    Level::WARN => 4,
                    Level::INFO => 6,
                    _ => 7,
                };
                let mut line = format!("<{}>yore[{}]: ", 3 * 8 + severity, std::process::id()).into_bytes();
                line.extend_from_slice(event.trim_ascii_end());
                if socket.send(&line).is_err() {
                    socket.connect(path)?;
                    socket.send(&line)?;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn listen(path: &Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut line = [0; 200];
        let count = socket.recv(&mut line).unwrap();
        String::from_utf8_lossy(&line[..count]).into_owned()
    }

    /// The system's logger was started anew, and from then on the log had nothing of the daemon, not even
    /// that writing had stopped. A line that is lost because no logger is there ends nothing, either.
    #[test]
    fn a_restarted_logger_gets_the_lines() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        let first = listen(&path);
        let destination = Destination::system(&path).unwrap();
        let write = |text: &str| {
            Line { destination: &destination, level: Level::WARN }.write(text.as_bytes()).map(drop)
        };
        write("one\n").unwrap();
        assert!(heard(&first).starts_with("<28>yore["));
        drop(first);
        write("lost").unwrap_err();
        std::fs::remove_file(&path).unwrap();
        write("lost").unwrap_err();
        let second = listen(&path);
        for text in ["two", "three"] {
            write(text).unwrap();
            assert!(heard(&second).ends_with(&format!("]: {text}")));
        }
    }
}
