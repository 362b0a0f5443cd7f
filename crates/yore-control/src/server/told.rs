//! Decides who learns which part of the history. The owner of a directory may ask for its history. But the
//! answer may involve directories of others below it, directories that the owner could not list at that time,
//! or directories that held the file before it came here. A user learns a name only if the user could have
//! listed its directory at the time at which the name was there; for a name that is gone, also now.
//!
//! These checks run after the history was computed and before any of it is returned. Whether a user may ask
//! at all is decided before anything is read.

use std::collections::HashMap;
use yore_fs::{
    Access, Change, Deleted, Difference, Error, EventNo, InodeNo, ListedEvent, Logged, Result, View,
};

/// Decides for one answer.
pub(super) struct Told<'a> {
    view: View,
    access: &'a Access,
    /// The directory that is asked.
    directory: InodeNo,
    /// The directories to which paths lead from there.
    found: HashMap<(Option<EventNo>, Vec<u8>), Option<InodeNo>>,
}

impl<'a> Told<'a> {
    /// For a user who asks about a directory.
    pub(super) fn new(view: &View, access: &'a Access, directory: InodeNo) -> Told<'a> {
        Told { view: view.present(), access, directory, found: HashMap::new() }
    }

    /// The directory to which a path leads as of an event, starting from the one that is asked.
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
                        // It was removed just now, or forgotten.
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

    /// The directory that contains a path's last name, if the user may list it as of an event.
    fn lists(&mut self, path: &[u8], event: Option<EventNo>) -> Result<Option<InodeNo>> {
        if path.is_empty() {
            // The directory that is asked; that was decided before.
            return Ok(Some(self.directory));
        }
        let Some(directory) = self.find(parent(path), event)? else { return Ok(None) };
        Ok(self.listed(directory, event)?.then_some(directory))
    }

    /// Whether the user may list a directory. Nobody may list one that was forgotten just now.
    fn listed(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        match self.access.lists(directory, event) {
            Err(Error::Stale) => Ok(false),
            listed => listed,
        }
    }

    /// The part of a difference between two times that the user may learn: all of it, one half, or nothing.
    ///
    /// # Errors
    /// Damage and device errors; so all others here.
    pub(super) fn difference(
        &mut self,
        found: Difference,
        (from, to): (Option<EventNo>, Option<EventNo>),
    ) -> Result<Option<Difference>> {
        if self.access.is_all() {
            return Ok(Some(found));
        }
        // All paths are as of the second time, except old paths and those of removed files.
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

    /// Whether the user may learn a name that is gone.
    ///
    /// # Errors
    /// As [`Told::difference`].
    pub(super) fn deleted(&mut self, found: &Deleted) -> Result<bool> {
        if self.access.is_all() {
            return Ok(true);
        }
        match self.lists(&found.path, None)? {
            Some(directory) => self.listed(directory, Some(found.last.event.number)),
            None => Ok(false),
        }
    }

    /// A state in the log of a name, if the user may learn it. It leaves out the place to which the file was
    /// moved if the user may not learn that.
    ///
    /// # Errors
    /// As [`Told::difference`].
    pub(super) fn logged(&self, mut found: Logged, name: &[u8]) -> Result<Option<Logged>> {
        if self.access.is_all() {
            return Ok(Some(found));
        }
        // If a file has several names, it is not known which directories they were in, except for the name in
        // this directory that the request gives.
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

    /// Whether the user may learn a name of an inode. Nobody may if it was forgotten just now.
    fn names(&self, inode: InodeNo, found_in: Option<InodeNo>, at: Option<EventNo>) -> Result<bool> {
        match self.access.lists_inode(inode, found_in, at) {
            Err(Error::Stale) => Ok(false),
            listed => listed,
        }
    }
}

/// The path of the directory that contains a path's last name.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&path[..0], |at| &path[..at])
}

/// The part of a hidden path that the user may learn. It ends before the first name whose directory the user
/// may not list, both now and as of an event, wherever that directory exists.
///
/// # Errors
/// Damage and device errors.
pub(super) fn visible_part(
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

/// Keeps those rows of a file's list that the user may learn: all if the user may look the name up, otherwise
/// those as of which the user might have done so. If none are left, the answer is as if the name had never
/// existed.
pub(super) fn leave_reachable(
    view: &View,
    directory: InodeNo,
    access: &Access,
    name: &[u8],
    rows: &mut Vec<ListedEvent>,
) -> Result<()> {
    if access.is_all() {
        return Ok(());
    }
    match view.lookup(directory, name) {
        Ok(_) if access.reaches(directory, view.event())? => return Ok(()),
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    let mut told = Vec::new();
    for row in rows.drain(..) {
        if access.reaches(directory, Some(row.event.number))? {
            told.push(row);
        }
    }
    *rows = told;
    match rows.is_empty() {
        true => Err(Error::NotFound),
        false => Ok(()),
    }
}
