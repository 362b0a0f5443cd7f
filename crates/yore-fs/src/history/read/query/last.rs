//! The last version of a name that can be seen. What is listed as gone, where the log of a name begins that
//! means nothing any more, and so what is brought back: all of them ask here, and agree.
//!
//! A name has meant one inode after another. A meaning can be seen if a kept event has seen the directory
//! while it lasted, or if one is of the very inode, as a version of a single file is. The last meaning that
//! can be seen is the one that counts; what the name meant after that, and nobody has seen, does not hide it.

use super::kept::{join_spans, KeptEvents, Span};
use crate::history::read::at_time::{self, with, PRESENT};
use crate::history::record::PastEntry;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{EventNo, Incarnation, WriteFeatures};

/// What a name meant last of what can be seen.
pub(super) struct Last {
    pub(super) entry: PastEntry,
    /// The last event that has seen it so.
    pub(super) event: EventNo,
}

impl KeptEvents<'_> {
    /// The last meaning that can be seen of the meanings of one name in a directory, which come latest first.
    ///
    /// # Errors
    /// Damage and device errors; those of the iterator.
    pub(super) fn last_seen(
        &self,
        directory: (InodeNo, Incarnation),
        meanings: impl IntoIterator<Item = Result<PastEntry>>,
    ) -> Result<Option<Last>> {
        for entry in meanings {
            let entry = entry?;
            let Some((first, last)) = self.of_meaning(directory, &entry)? else { continue };
            let seen = match self.store.meta.has_features(WriteFeatures::EXTENDED_PAST) {
                true => self.last_whole(&entry, first, last)?,
                false => Some(last),
            };
            if let Some(event) = seen {
                return Ok(Some(Last { entry, event }));
            }
        }
        Ok(None)
    }

    /// The last of the events in `first..=last` as of which a name leads to what it meant: what is excluded
    /// is missing as of some that policies took ([`crate::history::exclude`]). O(depth · log) if that is the
    /// last of all, and so for each that it is missing from.
    fn last_whole(&self, entry: &PastEntry, first: EventNo, last: EventNo) -> Result<Option<EventNo>> {
        for event in self.back_from(first, last) {
            let number = event.number;
            if !self.store.past.may_miss(&self.store.meta, number) {
                // Others see all; that this one has seen it was looked at if it is the last.
                if number == last || at_time::covers(self.store, event, entry.directory)? {
                    return Ok(Some(number));
                }
                continue;
            }
            let is_there = with(self.store, entry.inode, number, |_, state| {
                Ok(state.inode.incarnation == entry.incarnation)
            });
            match is_there {
                Ok(true) if at_time::covers(self.store, event, entry.directory)? => return Ok(Some(number)),
                Ok(_) | Err(Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The first and last event that have seen a name with this meaning, up to its end.
    fn of_meaning(&self, directory: (InodeNo, Incarnation), entry: &PastEntry) -> Result<Span> {
        // What is being expunged was never there, though its names are until the background has come to them.
        let birth = self.store.past.expunging.began(entry.inode, entry.incarnation, entry.birth);
        if birth >= entry.death {
            return Ok(None);
        }
        let of_directory = self.of_directory(directory, birth, entry.death)?;
        Ok(join_spans(of_directory, self.own((entry.inode, entry.incarnation), birth, entry.death)))
    }
}

/// The meanings that a name had in a directory before a number and has no longer, the latest first.
pub(super) fn meanings<'a>(
    store: &'a Arc<Store>,
    directory: InodeNo,
    name: &'a [u8],
    before: EventNo,
) -> impl Iterator<Item = Result<PastEntry>> + 'a {
    let mut before = Some(before);
    std::iter::from_fn(move || {
        let found = store.past.name_before(store, directory, name, before?).transpose();
        before = match &found {
            Some(Ok(entry)) => Some(entry.birth),
            _ => None,
        };
        found
    })
}

/// Whether what a name meant had another one when that was gone, and it is in use still, or a kept event has
/// seen it so: then it was renamed, whatever has become of it since. What nobody has seen does not count,
/// though its versions may be there until the background has come to them.
///
/// # Errors
/// Damage and device errors.
pub(super) fn lived_on(kept: &KeptEvents<'_>, entry: &PastEntry) -> Result<bool> {
    let mut states = Vec::new();
    at_time::each_state(kept.store, entry.inode, entry.death, PRESENT, &mut |inode, from, to| {
        let is_it = inode.incarnation == entry.incarnation && inode.links > 0;
        if is_it {
            states.push(((inode.parent, inode.parent_incarnation), from, to));
        }
        // The inode in use comes first, and is enough.
        !(is_it && to == PRESENT)
    })?;
    for (above, from, to) in states {
        if to == PRESENT || kept.own((entry.inode, entry.incarnation), from, to).is_some() {
            return Ok(true);
        }
        let seen = match above.0 {
            // Of several names it remembers none: whoever has seen anything may have seen it.
            InodeNo::NONE => kept.any(from, to),
            _ => kept.of_directory(above, from, to)?,
        };
        if seen.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a name is one that this program gives to what is not finished: a file that is put back, before it
/// is renamed to where it belongs. Nobody looks for these.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let Some(rest) = name.strip_prefix(b".yore-") else { return false };
    let mut parts = rest.splitn(2, |b| *b == b'-');
    match (parts.next(), parts.next()) {
        (Some(first), Some(number)) => (is_number(first) || first == b"rollback") && is_number(number),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_temporary;

    /// Names that look alike, and are somebody's, are not left out.
    #[test]
    fn temporary_names_are_told_from_others() {
        for name in [".yore-1234-0", ".yore-rollback-17"] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in [
            ".yore",
            ".yore-",
            ".yore-1234",
            ".yore-notes-1",
            ".yore-1-a",
            ".yore-1-",
            "yore-1-0",
            ".yore-1-0-",
        ] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
