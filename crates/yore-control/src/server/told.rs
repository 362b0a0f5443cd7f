//! What of the history is told to whom. Who owns a directory may ask for its history; but below it may be
//! directories of others, and those that he could not list then, or that the file was in before it came here.
//! A name is told only to who could have listed the directory that it was in, at the time at which it was
//! there; what is gone, also now.
//!
//! All this is asked after the history was computed and before any of it is told. Whether a user may ask at
//! all is decided before anything is looked at.

use std::collections::HashMap;
use yore_fs::{Access, Change, Deleted, Difference, Error, EventNo, InodeNo, Logged, Result, View};

/// Decides for one answer.
pub struct Told<'a> {
    view: View,
    access: &'a Access,
    /// The directory that is asked.
    directory: InodeNo,
    /// The directories that paths lead to from there.
    found: HashMap<(Option<EventNo>, Vec<u8>), Option<InodeNo>>,
}

impl<'a> Told<'a> {
    /// For who asks about a directory.
    pub fn new(view: &View, access: &'a Access, directory: InodeNo) -> Told<'a> {
        Told { view: view.present(), access, directory, found: HashMap::new() }
    }

    /// The directory that a path leads to as of an event, from the one that is asked.
    fn find(&mut self, path: &[u8], event: Option<EventNo>) -> Result<Option<InodeNo>> {
        let (mut at, mut from) = (self.directory, 0);
        let view = event.map_or_else(|| self.view.clone(), |event| self.view.as_of(event));
        while from < path.len() {
            let end = path[from..].iter().position(|b| *b == b'/').map_or(path.len(), |len| from + len);
            let key = (event, path[..end].to_vec());
            let known = match self.found.get(&key) {
                Some(known) => *known,
                None => {
                    let found = match view.lookup(at, &path[from..end]) {
                        Ok(node) => Some(node.inode()),
                        // Gone just now, or forgotten.
                        Err(Error::NotFound | Error::NotADirectory | Error::Stale) => None,
                        Err(error) => return Err(error),
                    };
                    self.found.insert(key, found);
                    found
                }
            };
            match known {
                Some(found) => at = found,
                None => return Ok(None),
            }
            from = end + 1;
        }
        Ok(Some(at))
    }

    /// The directory that a path's last name is in, if it may be listed as of an event.
    fn lists(&mut self, path: &[u8], event: Option<EventNo>) -> Result<Option<InodeNo>> {
        if path.is_empty() {
            // The directory that is asked, of which it was decided before.
            return Ok(Some(self.directory));
        }
        let Some(directory) = self.find(parent(path), event)? else { return Ok(None) };
        Ok(self.listed(directory, event)?.then_some(directory))
    }

    /// What was forgotten just now nobody may list.
    fn listed(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        match self.access.lists(directory, event) {
            Err(Error::Stale) => Ok(false),
            listed => listed,
        }
    }

    /// What is told of a difference between two times: all, the half that may be known, or nothing.
    ///
    /// # Errors
    /// Damage and device errors; so all others here.
    pub fn difference(
        &mut self,
        found: Difference,
        (from, to): (Option<EventNo>, Option<EventNo>),
    ) -> Result<Option<Difference>> {
        if self.access.is_all() {
            return Ok(Some(found));
        }
        // As of the second time all paths are but those of what was removed, and old ones.
        let was = match (&found.change, &found.old_path) {
            (Change::Added, _) => false,
            (Change::Renamed, Some(old)) => self.lists(&old.clone(), from)?.is_some(),
            (Change::Modified, _) => match self.find(parent(&found.path), to)? {
                Some(directory) => found.path.is_empty() || self.listed(directory, from)?,
                None => false,
            },
            _ => self.lists(&found.path, from)?.is_some(),
        };
        let is = found.change != Change::Removed && self.lists(&found.path, to)?.is_some();
        Ok(match (found.change, was, is) {
            (Change::Added, _, true) | (Change::Removed, true, _) | (_, true, true) => Some(found),
            (Change::Renamed, false, true) => {
                Some(Difference { change: Change::Added, old_path: None, before: None, ..found })
            }
            (Change::Renamed, true, false) => {
                let path = found.old_path.clone().unwrap_or_default();
                Some(Difference { change: Change::Removed, old_path: None, path, after: None, ..found })
            }
            _ => None,
        })
    }

    /// Whether a name that is gone is told.
    ///
    /// # Errors
    /// As [`Told::difference`].
    pub fn deleted(&mut self, found: &Deleted) -> Result<bool> {
        if self.access.is_all() {
            return Ok(true);
        }
        match self.lists(&found.path, None)? {
            Some(directory) => self.listed(directory, Some(found.last.event.number)),
            None => Ok(false),
        }
    }

    /// A state in the log of a name, if it is told; without the place that the file was moved to, if that is
    /// not.
    ///
    /// # Errors
    /// As [`Told::difference`].
    pub fn logged(&self, mut found: Logged, name: &[u8]) -> Result<Option<Logged>> {
        if self.access.is_all() {
            return Ok(Some(found));
        }
        // Of a file with several names it is not known where they were, but for the one that was asked in
        // this directory.
        let of = yore_fs::split_time(name).map_or(name, |(of, _)| of);
        let is_asked = [name, of].contains(&&found.name[..]);
        let found_in = is_asked.then_some(self.directory);
        let at = found.last.as_ref().map(|last| last.event.number);
        if !self.names(found.inode, found_in, at)? {
            return Ok(None);
        }
        if let Some(gone) = found.gone.as_mut().filter(|gone| gone.path.is_some()) {
            if !self.names(found.inode, None, None)? {
                gone.path = None;
            }
        }
        Ok(Some(found))
    }

    /// Whether a name of an inode may be learned. What was forgotten just now nobody learns.
    fn names(&self, inode: InodeNo, found_in: Option<InodeNo>, at: Option<EventNo>) -> Result<bool> {
        match self.access.lists_inode(inode, found_in, at) {
            Err(Error::Stale) => Ok(false),
            listed => listed,
        }
    }
}

/// The path of the directory that a path's last name is in.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&path[..0], |at| &path[..at])
}

/// Of a path that is not told, as much as may be: down to the first name in a directory that may not be
/// listed, neither now nor as of a event, wherever it is there.
///
/// # Errors
/// Damage and device errors.
pub fn visible_part(
    view: &View,
    access: &Access,
    directory: InodeNo,
    event: EventNo,
    path: &str,
) -> Result<String> {
    if access.is_all() {
        return Ok(path.to_string());
    }
    let mut told = Told::new(view, access, directory);
    let mut end = 0;
    loop {
        let next = path[end..].trim_start_matches('/');
        let from = path.len() - next.len();
        let to = next.find('/').map_or(path.len(), |len| from + len);
        let (mut listed, mut is_there) = (from < to, false);
        for time in [None, Some(event)] {
            if let Some(above) = told.find(&path.as_bytes()[..end], time)? {
                is_there = true;
                listed &= told.listed(above, time)?;
            }
        }
        if !listed || !is_there {
            return Ok(if end == 0 { ".".to_string() } else { path[..end].to_string() });
        }
        end = to;
        if end == path.len() {
            return Ok(path.to_string());
        }
    }
}
