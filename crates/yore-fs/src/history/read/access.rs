//! Which files a user may reach, now and as of an event: by the permissions, owners, groups and ACLs of all
//! directories on the way.
//!
//! A view checks nothing by itself. The kernel checks a mount's present. It also checks a node of the past,
//! but it reaches one by a name with a time, and has then walked the directories of *now*. Only the volume
//! knows what those were *then*, so a server asks here. Lists of history (what is gone, what differs, what a
//! name meant) never pass the kernel's checks, so a server asks the same here for each name that it lists.
//!
//! **What nobody has seen.** An event of a directory keeps what is below it, and not what is above; an event
//! of a single file keeps no directory at all. A state that a directory has had since before such an event
//! may have changed without leaving a version. So where the event does not cover a directory, both the
//! nearest known state before it and the nearest after it must allow access. Where nothing is known of a
//! directory, the way ends: a user who came by the present was checked there.

use crate::history::read::at_time::{covers, with, PRESENT};
use crate::store::Store;
use crate::types::Asking;
use crate::{xattr, Error, InodeNo, Result, View};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use yore_core::inode::DEPTH_MAX;
use yore_format::{EventNo, EventState, Incarnation};

/// The right to look a name up in a directory, and to open what it means.
const SEARCH: u32 = 1;
/// The right to learn what names there are.
const READ: u32 = 4;

/// What one user may reach. It remembers what it has found, so it serves one question and is not kept.
pub struct Access {
    store: Arc<Store>,
    /// `None`: may reach everything.
    asking: Option<Asking>,
    /// Where the way begins.
    top: InodeNo,
    reached: Mutex<HashMap<(InodeNo, EventNo), bool>>,
}

/// What is known of a directory.
struct Known {
    /// Whether all known states allow it.
    allows: bool,
    /// The directory above.
    parent: (InodeNo, Incarnation),
    /// Since when it was so, or may have been so.
    born: EventNo,
}

/// Which directories an event is sure to see as they were.
#[derive(Clone, Copy)]
enum Sight {
    /// All.
    All,
    /// This directory and those below it.
    Below(InodeNo),
    /// None.
    Nothing,
}

impl View {
    /// What a user may reach, beginning at the directory `top`; `None`: a user who may reach everything.
    pub fn access(&self, asking: Option<Asking>, top: InodeNo) -> Access {
        let asking = asking.filter(|asking| asking.uid != 0);
        Access { store: self.store().clone(), asking, top, reached: Mutex::default() }
    }
}

impl Access {
    /// Whether a directory as of an event (`None`: the present), and all above it then, may be searched: the
    /// user could then open anything in it whose name he knew. O(depth · log versions).
    ///
    /// # Errors
    /// [`Error::Stale`] if the event is not kept; damage and device errors.
    pub fn reaches(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        self.reaches_at(directory, event.unwrap_or(PRESENT))
    }

    /// Whether the directory may also be listed, so that the user could learn its names.
    ///
    /// # Errors
    /// As [`Access::reaches`].
    pub fn lists(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        self.lists_at(directory, event.unwrap_or(PRESENT))
    }

    /// Whether everything is allowed.
    pub fn is_all(&self) -> bool {
        self.asking.is_none()
    }

    /// Whether the user may walk the way to an inode, now or as of an event: all directories above it. A file
    /// that has, or had, several names was found in the directory `found_in`. Nothing is known about the way
    /// to a file that was found by its number alone.
    /// # Errors
    /// As [`Access::reaches`].
    pub fn reaches_inode(
        &self,
        no: InodeNo,
        found_in: Option<InodeNo>,
        event: Option<EventNo>,
    ) -> Result<bool> {
        self.above(no, found_in, event, &|above, at| self.reaches_at(above, at))
    }

    /// Whether the user could learn the name of such an inode: the directory that it is in, or was in then,
    /// may also be listed.
    ///
    /// # Errors
    /// As [`Access::reaches`].
    pub fn lists_inode(
        &self,
        no: InodeNo,
        found_in: Option<InodeNo>,
        event: Option<EventNo>,
    ) -> Result<bool> {
        self.above(no, found_in, event, &|above, at| self.lists_at(above, at))
    }

    fn above(
        &self,
        no: InodeNo,
        found_in: Option<InodeNo>,
        event: Option<EventNo>,
        allows: &dyn Fn(InodeNo, EventNo) -> Result<bool>,
    ) -> Result<bool> {
        if self.asking.is_none() || no == self.top {
            return Ok(true);
        }
        let at = event.unwrap_or(PRESENT);
        let above =
            self.during(at, || match with(&self.store, no, at, |_, state| Ok(state.inode.parent)) {
                Ok(parent) if parent == no => Ok(None),
                Ok(InodeNo::NONE) | Err(Error::NotFound) => Ok(Some(found_in)),
                parent => parent.map(|parent| Some(Some(parent))),
            })?;
        match above {
            Some(Some(above)) => allows(above, at),
            Some(None) => Ok(false),
            None => Ok(true),
        }
    }

    pub(crate) fn lists_at(&self, directory: InodeNo, at: EventNo) -> Result<bool> {
        let Some(asking) = &self.asking else { return Ok(true) };
        let sight = self.sight(directory, at)?;
        let want = SEARCH | READ;
        let known = self.during(at, || self.known(asking, (directory, None), (at, sight), want))?;
        Ok(known.is_none_or(|known| known.allows) && self.reaches_at(directory, at)?)
    }

    fn reaches_at(&self, directory: InodeNo, at: EventNo) -> Result<bool> {
        let Some(asking) = &self.asking else { return Ok(true) };
        let (mut path, mut no, mut of) = (Vec::new(), directory, None);
        let mut sight = self.sight(directory, at)?;
        let reached = loop {
            if let Some(known) = self.reached.lock().get(&(no, at)) {
                break *known;
            }
            path.push(no);
            let known = self.during(at, || self.known(asking, (no, of), (at, sight), SEARCH))?;
            if matches!(sight, Sight::Below(root) if root == no) {
                sight = Sight::Nothing;
            }
            match known {
                Some(Known { allows: false, .. }) => break false,
                // Nothing more is known, or there is nothing more. A circle would be damage, which other
                // checks report.
                None => break true,
                Some(_) if no == self.top || path.len() > DEPTH_MAX => break true,
                Some(Known { parent: (parent, _), .. }) if parent == no || parent == InodeNo::NONE => {
                    break true
                }
                Some(Known { parent: (parent, incarnation), .. }) => (no, of) = (parent, Some(incarnation)),
            }
        };
        let mut all = self.reached.lock();
        all.extend(path.into_iter().map(|no| ((no, at), reached)));
        Ok(reached)
    }

    /// Keeps the event from being forgotten during the look.
    fn during<R>(&self, at: EventNo, read: impl FnOnce() -> Result<R>) -> Result<R> {
        let _seeing = (at != PRESENT).then(|| self.store.past.see(at)).transpose()?;
        read()
    }

    /// Which of a directory and those above it an event is sure to know. Not for callers that keep the event
    /// from being forgotten: this waits for whoever changes the list of events, and that thread may wait for
    /// such a caller.
    fn sight(&self, directory: InodeNo, at: EventNo) -> Result<Sight> {
        if at == PRESENT {
            return Ok(Sight::All);
        }
        let (past, meta) = (&self.store.past, &self.store.meta);
        let event = past.in_state(meta, at, EventState::Kept).map_err(|error| match error {
            Error::NotFound => Error::Stale,
            error => error,
        })?;
        Ok(match event.row.root {
            _ if event.row.kind.is_of_file() => Sight::Nothing,
            InodeNo::ROOT => Sight::All,
            root if covers(&self.store, &event, directory)? => Sight::Below(root),
            _ => Sight::Nothing,
        })
    }

    /// What is known of a directory at an event number; `None` if nothing is.
    fn known(
        &self,
        asking: &Asking,
        (no, of): (InodeNo, Option<Incarnation>),
        (at, sight): (EventNo, Sight),
        want: u32,
    ) -> Result<Option<Known>> {
        let state = |at: EventNo| {
            let found = with(&self.store, no, at, |_, state| {
                let inode = &state.inode;
                if !inode.is_directory() || of.is_some_and(|of| of != inode.incarnation) {
                    return Ok(None);
                }
                let allows = xattr::permits(&self.store, state, no, asking, want)?;
                let parent = (inode.parent, inode.parent_incarnation);
                Ok(Some(Known { allows, parent, born: inode.born }))
            });
            match found {
                Err(Error::NotFound) => Ok(None),
                found => found,
            }
        };
        let found = state(at)?;
        if !matches!(sight, Sight::Nothing) && found.is_some() {
            return Ok(found);
        }
        let (past, meta) = (&self.store.past, &self.store.meta);
        let (until, after) = match found {
            Some(found) => (found.born.0.checked_sub(1), Some(found)),
            None => {
                let after = past.version_after(meta, no, at)?.map_or(PRESENT, |version| version.inode.born);
                (Some(at.0), state(after)?)
            }
        };
        let before = until.map(|until| past.version(meta, no, EventNo(until))).transpose()?.flatten();
        let before = before.map(|version| state(version.inode.born)).transpose()?.flatten();
        Ok(match (before, after) {
            (Some(before), Some(after)) => Some(Known { allows: before.allows && after.allows, ..after }),
            (before, after) => after.or(before),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, NewSnapshot, SetAttr, SetXattrMode, Volume};

    fn asking(uid: u32) -> Asking {
        Asking { uid, groups: vec![uid], knows_groups: true }
    }

    fn set(volume: &Volume, path: &str, uid: u32, permissions: u32) {
        let set = SetAttr { uid: Some(uid), permissions: Some(permissions), ..SetAttr::default() };
        let inode = volume.node(path).unwrap().inode();
        volume.view().setattr(&Caller::superuser(), inode, &set).unwrap();
    }

    /// The present state of a directory says nothing about its past. Each directory on the way counts as it
    /// was then.
    #[test]
    fn the_way_as_it_was() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        volume.create_dir("a").unwrap();
        volume.create_dir("a/b").unwrap();
        volume.write("a/b/f", "x").unwrap();
        set(&volume, "a", 7, 0o700);
        set(&volume, "a/b", 7, 0o755);
        let first = view.take_snapshot(view.root(), &NewSnapshot::named("first")).unwrap().number;
        set(&volume, "a", 7, 0o711);
        let second = view.take_snapshot(view.root(), &NewSnapshot::named("second")).unwrap().number;
        set(&volume, "a/b", 8, 0o700);
        let (a, b) = (volume.node("a").unwrap().inode(), volume.node("a/b").unwrap().inode());
        let f = volume.node("a/b/f").unwrap().inode();
        let reaches =
            |uid, no, event| view.access(Some(asking(uid)), view.root()).reaches(no, event).unwrap();
        assert_eq!([None, Some(first), Some(second)].map(|event| reaches(9, b, event)), [false, false, true]);
        assert_eq!([None, Some(first), Some(second)].map(|event| reaches(7, b, event)), [false, true, true]);
        assert_eq!([None, Some(first), Some(second)].map(|event| reaches(8, b, event)), [true, false, true]);
        assert_eq!([None, Some(first), Some(second)].map(|event| reaches(0, b, event)), [true; 3]);
        let access = view.access(Some(asking(9)), view.root());
        assert!(!access.lists(a, Some(second)).unwrap() && access.reaches(a, Some(second)).unwrap());
        assert!(access.lists(b, Some(second)).unwrap());
        assert!(access.reaches_inode(f, Some(b), Some(second)).unwrap());
        assert!(!access.reaches_inode(f, Some(b), Some(first)).unwrap());
        assert!(access.reaches_inode(a, None, Some(first)).unwrap(), "itself does not count");
        // An ACL of then, and a group, give access.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in [(1u16, 7u16, u32::MAX), (2, 1, 9), (4, 0, !0), (16, 1, !0), (32, 0, !0)] {
            acl.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        view.setxattr(b, b"system.posix_acl_access", &acl, SetXattrMode::Any).unwrap();
        let third = view.take_snapshot(view.root(), &NewSnapshot::named("third")).unwrap().number;
        view.removexattr(b, b"system.posix_acl_access").unwrap();
        assert_eq!([None, Some(third)].map(|event| reaches(9, b, event)), [false, true]);
        assert!(!reaches(10, b, Some(third)));
    }

    /// An event of a directory does not keep the directories above it. For those, the known states before and
    /// after it count.
    #[test]
    fn what_no_event_has_seen() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        for path in ["a", "a/b"] {
            volume.create_dir(path).unwrap();
            set(&volume, path, 7, 0o755);
        }
        let b = volume.node("a/b").unwrap().inode();
        set(&volume, "a", 7, 0o700);
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap();
        volume.write("a/new", "").unwrap();
        let of_b = view.take_snapshot(b, &NewSnapshot::default()).unwrap().number;
        volume.write("a/newer", "").unwrap();
        set(&volume, "a", 7, 0o755);
        let reaches = |uid, event| view.access(Some(asking(uid)), view.root()).reaches(b, event).unwrap();
        assert!(reaches(9, None) && !reaches(9, Some(of_b)) && reaches(7, Some(of_b)));
    }

    /// A group whose members have fewer rights than others, for a user all of whose groups are known, and for
    /// one whose groups are not.
    #[test]
    fn groups() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        volume.create_dir("a").unwrap();
        set(&volume, "a", 7, 0o705);
        let a = volume.node("a").unwrap().inode();
        let gid = view.getattr(a).unwrap().gid;
        let reaches = |groups: &[u32], knows_groups| {
            let asking = Asking { uid: 9, groups: groups.to_vec(), knows_groups };
            view.access(Some(asking), view.root()).reaches(a, None).unwrap()
        };
        assert!(reaches(&[gid + 1], true));
        assert!(!reaches(&[gid + 1, gid], true));
        assert!(!reaches(&[gid + 1], false));
    }
}
