//! When past names ended last, by directory and name, and by directory and cookie.

use crate::spill::{Cursor, Room, Sorted, Sorter};
use crate::CheckError;
use yore_format::{EventNo, InodeNo};

/// Which of the two a key is by.
const BY_COOKIE: u8 = 0;
const BY_NAME: u8 = 1;

/// The ends of past names.
pub(crate) struct Deaths {
    gathered: Sorter,
    count: usize,
    /// Values are death and birth, the greatest last.
    all: Sorted,
}

impl Deaths {
    pub(crate) fn new(room: Room) -> Deaths {
        Deaths { gathered: Sorter::new(room.list()), count: 0, all: Sorted::default() }
    }

    /// Takes a past name of a directory.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], as for all that follow.
    pub(crate) fn push(
        &mut self,
        directory: InodeNo,
        (name, cookie): (&[u8], u64),
        (death, birth): (EventNo, EventNo),
    ) -> Result<(), CheckError> {
        self.count += 1;
        let value = [death.0.to_be_bytes(), birth.0.to_be_bytes()].concat();
        self.gathered.push(&key(directory, BY_COOKIE, &cookie.to_be_bytes()), &value)?;
        self.gathered.push(&key(directory, BY_NAME, name), &value)
    }

    /// From now on they are asked for.
    pub(crate) fn are_gathered(&mut self) -> Result<(), CheckError> {
        let gathered = std::mem::replace(&mut self.gathered, Sorter::new(0));
        self.all = gathered.into_sorted()?;
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All of them, by directory and cookie.
    pub(crate) fn by_cookie(&self) -> Result<ByCookie<'_>, CheckError> {
        Ok(ByCookie(self.all.all()?))
    }

    /// The last death of this name or this cookie, with the birth that went before it.
    pub(crate) fn last(
        &self,
        directory: InodeNo,
        name: &[u8],
        cookie: u64,
    ) -> Result<Option<(EventNo, EventNo)>, CheckError> {
        if self.count == 0 {
            return Ok(None);
        }
        let of_cookie = key(directory, BY_COOKIE, &cookie.to_be_bytes());
        // Both lists of a directory follow each other, so most directories are known to have neither by one
        // look.
        let next = self.all.from(&of_cookie)?;
        if !next.get().is_some_and(|(key, _)| key.starts_with(&directory.0.to_be_bytes())) {
            return Ok(None);
        }
        let by_cookie = next.last_of(&of_cookie)?;
        let by_name = self.all.last_of(&key(directory, BY_NAME, name))?;
        let decoded = |value: Vec<u8>| {
            let (death, rest) = value.split_first_chunk::<8>()?;
            let birth = rest.first_chunk::<8>()?;
            Some((EventNo(u64::from_be_bytes(*death)), EventNo(u64::from_be_bytes(*birth))))
        };
        Ok(by_cookie.max(by_name).and_then(decoded))
    }
}

/// Goes through past names, each with its directory and cookie.
pub(crate) struct ByCookie<'d>(Cursor<'d>);

impl ByCookie<'_> {
    /// The next one; `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<(InodeNo, u64)>, CheckError> {
        while let Some((key, _)) = self.0.get() {
            let found = parts(key);
            self.0.advance()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Directory and cookie of a key that is by cookie.
fn parts(key: &[u8]) -> Option<(InodeNo, u64)> {
    let (directory, rest) = key.split_first_chunk()?;
    let cookie = rest.strip_prefix(&[BY_COOKIE])?.first_chunk()?;
    Some((InodeNo(u64::from_be_bytes(*directory)), u64::from_be_bytes(*cookie)))
}

fn key(directory: InodeNo, by: u8, rest: &[u8]) -> Vec<u8> {
    [&directory.0.to_be_bytes()[..], &[by], rest].concat()
}
