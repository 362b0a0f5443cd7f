//! The last version of a name that can be seen. The list of deleted names, the log of a name that means
//! nothing any more, and so everything that is brought back, ask here, and therefore agree.
//!
//! A name has meant one inode after another. A meaning can be seen if a kept event has seen the directory
//! while it lasted, or if a kept event is of the very inode, like a version of a single file. The last
//! meaning that can be seen counts. A later meaning that no event has seen does not hide it.

use super::kept::{join_spans, KeptEvents, Span};
use crate::history::read::at_time::{self, with, PRESENT};
use crate::history::record::PastEntry;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{EventNo, Incarnation, WriteFeatures};

/// The last meaning of a name that can be seen.
pub(super) struct Last {
    pub(super) entry: PastEntry,
    /// The last event that has seen it.
    pub(super) event: EventNo,
}

impl KeptEvents<'_> {
    /// The last meaning that can be seen, among the meanings of one name in a directory, which come latest
    /// first.
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

    /// The last of the events in `first..=last` as of which a name leads to its inode: an excluded inode is
    /// missing as of some events that policies took ([`crate::history::exclude`]). O(depth · log) if the last
    /// event shows it, and as much again for each event as of which it is missing.
    fn last_whole(&self, entry: &PastEntry, first: EventNo, last: EventNo) -> Result<Option<EventNo>> {
        for event in self.back_from(first, last) {
            let number = event.number;
            if !self.store.past.may_miss(&self.store.meta, number) {
                // As of other events nothing is missing. The search has already established that `last` has
                // seen the directory.
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
        // A file that is being expunged counts as never there, though its names exist until the background
        // reaches them.
        let birth = self.store.past.expunging.began(entry.inode, entry.incarnation, entry.birth);
        if birth >= entry.death {
            return Ok(None);
        }
        let of_directory = self.of_directory(directory, birth, entry.death)?;
        Ok(join_spans(of_directory, self.own((entry.inode, entry.incarnation), birth, entry.death)))
    }
}

/// The meanings that a name had in a directory before a number and no longer has, the latest first.
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

/// Whether the inode of a name had another name after this one went, and is still in use, or a kept event has
/// seen it so: then it was renamed, whatever happened to it later. States that no event has seen do not
/// count, though their versions may exist until the background reaches them.
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
            // An inode of several names does not remember them: any event may have seen it.
            InodeNo::NONE => kept.any(from, to),
            _ => kept.of_directory(above, from, to)?,
        };
        if seen.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this program gives such a name to a file that is not finished: one that is being put back, before
/// the rename to its proper place. Nobody looks for these.
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

    /// Names of users that only look alike are not left out.
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
