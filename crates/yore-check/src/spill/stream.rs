//! A stream of bytes that is written once and read from its beginning.

use super::overflow::Overflow;
use crate::CheckError;

/// The least share.
const LEAST: usize = 4 << 10;

/// A stream. The bytes that were written last are in memory.
pub(crate) struct Stream {
    share: usize,
    last: Vec<u8>,
    file: Option<Overflow>,
}

impl Stream {
    /// An empty one that may use so much memory.
    pub(crate) fn new(share: usize) -> Stream {
        Stream { share: share.max(LEAST), last: Vec::new(), file: None }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), CheckError> {
        if self.last.len() + bytes.len() > self.share {
            Overflow::of(&mut self.file)?.append(&self.last)?;
            self.last.clear();
        }
        self.last.extend_from_slice(bytes);
        Ok(())
    }

    /// A reader at the beginning.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { of: self, buffer: Vec::new(), at: 0, next: 0 }
    }
}

/// Reads a stream from its beginning.
pub(crate) struct Reader<'s> {
    of: &'s Stream,
    /// A part of the file.
    buffer: Vec<u8>,
    at: usize,
    /// Where the next part begins.
    next: u64,
}

impl Reader<'_> {
    /// The next byte; `None` after the last one.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`].
    pub(crate) fn byte(&mut self) -> Result<Option<u8>, CheckError> {
        if self.at == self.buffer.len() && !self.more()? {
            return Ok(None);
        }
        self.at += 1;
        Ok(self.buffer.get(self.at - 1).copied())
    }

    fn more(&mut self) -> Result<bool, CheckError> {
        let in_file = self.of.file.as_ref().map_or(0, |file| file.end);
        let all = in_file + self.of.last.len() as u64;
        let (from, until) = match self.next < in_file {
            true => (self.next, in_file.min(self.next + LEAST as u64)),
            false => (self.next, all.min(self.next + LEAST as u64)),
        };
        self.buffer.resize((until - from) as usize, 0);
        match &self.of.file {
            Some(file) if from < in_file => file.read(from, &mut self.buffer)?,
            _ => {
                let at = (from - in_file) as usize;
                self.buffer.copy_from_slice(&self.of.last[at..at + (until - from) as usize]);
            }
        }
        (self.at, self.next) = (0, until);
        Ok(until > from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that what was written is read, in memory or not, and while more is to come.
    #[test]
    fn what_was_written_is_read() {
        for count in [0, 1, 1000, 30_000] {
            let mut stream = Stream::new(0);
            for i in 0..count {
                stream.write(&u32::to_le_bytes(i)[..1 + i as usize % 4]).unwrap();
            }
            let written: Vec<u8> =
                (0..count).flat_map(|i| u32::to_le_bytes(i)[..1 + i as usize % 4].to_vec()).collect();
            let (mut reader, mut read) = (stream.reader(), Vec::new());
            while let Some(byte) = reader.byte().unwrap() {
                read.push(byte);
            }
            assert_eq!(read, written);
            assert_eq!(stream.file.is_some(), count > 2000);
        }
    }
}
