//! What two processes say over a socket, within a time. The process at the other end may be a stranger's, and
//! may take in nobody, or say one byte after the other for ever.

use rustix::net::{sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to a socket. A process that listens and takes in nobody is waited for at most this long.
///
/// # Errors
/// Nobody listens there; the time is over; what the host says.
pub fn connect(socket: &Path, at_most: Duration) -> io::Result<UnixStream> {
    let stream =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // For a socket of this kind, connecting counts as sending.
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(at_most))?;
    let connected = rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?);
    connected.map_err(|error| of_time(error.into()))?;
    Ok(UnixStream::from(stream))
}

/// One half of a conversation: all that is read, or all that is written, takes no longer than it may.
pub struct Conversation<'s> {
    stream: &'s UnixStream,
    end: Instant,
}

impl Conversation<'_> {
    /// It begins now.
    pub fn within(stream: &UnixStream, at_most: Duration) -> Conversation<'_> {
        Conversation { stream, end: Instant::now() + at_most }
    }

    /// The time that is left, which is not zero.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(no_answer());
        }
        Ok(left)
    }
}

impl Read for Conversation<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buf).map_err(of_time)
    }
}

impl Write for Conversation<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buf).map_err(of_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel calls the end of a time "try again".
fn of_time(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => no_answer(),
        _ => error,
    }
}

fn no_answer() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Promises that whoever connects waits no longer than he wants to for somebody who takes in nobody. He
    /// waited for ever.
    #[test]
    fn nobody_is_taken_in() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("socket");
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&socket, LIMIT) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(listener);
        assert_eq!(connect(&socket, LIMIT).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    /// Promises that the time counts for all that is read. It counted for each byte, so whoever said one from
    /// time to time could go on for ever.
    #[test]
    fn one_byte_after_the_other() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let speaker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"x").is_ok() {
                thread::sleep(LIMIT / 20);
            }
        });
        let stream = connect(&socket, LIMIT).unwrap();
        let mut line = String::new();
        let error = BufReader::new(Conversation::within(&stream, LIMIT)).read_line(&mut line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        drop(stream);
        speaker.join().unwrap();
    }

    /// Promises that whoever takes nothing is not waited for.
    #[test]
    fn nothing_is_taken() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let error = Conversation::within(&stream, LIMIT).write_all(&vec![0; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}
