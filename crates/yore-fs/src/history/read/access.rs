//! Who may come to a file, now and as of an event: the permissions, owners, groups and ACLs of all
//! directories on the way.
//!
//! A view checks nothing by itself. The kernel checks a mount's present. It also checks a node of the past,
//! but it comes to one by a name with a time, and has then walked the directories of *now*. What those were
//! *then* only the volume knows, so a server asks here. The history that is told in lists (what is gone, what
//! differs, what a name meant) never passes the kernel's checks, so the same is asked there, for each name
//! that is told.
//!
//! **What nobody has seen.** An event of a directory keeps what is below it, and not what is above; a version
//! of a single file keeps no directory at all. A state that a directory has had since before such a number
//! may have changed without leaving a version. So where the event does not cover a directory, the states that
//! are known next before and next after it must both allow it. Where nothing is known of a directory, the way
//! ends: whoever came by the present was checked there.

use crate::core::inode::DEPTH_MAX;
use crate::history::read::at_time::{covers, with, PRESENT};
use crate::store::Store;
use crate::types::Asking;
use crate::{xattr, Error, InodeNo, Result, View};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use yore_format::{EventNo, EventState, Incarnation};

/// The right to look a name up in a directory, and to open what it means.
const SEARCH: u32 = 1;
/// The right to learn what names there are.
const READ: u32 = 4;

/// What one user may come to. Remembers what it has found, so it is for one question and not to be kept.
pub struct Access {
    store: Arc<Store>,
    /// `None`: who may all.
    asking: Option<Asking>,
    /// Where the way begins.
    top: InodeNo,
    reached: Mutex<HashMap<(InodeNo, EventNo), bool>>,
}

/// What is known of a directory.
struct Known {
    /// Whether all that is known allows it.
    allows: bool,
    /// What was above.
    parent: (InodeNo, Incarnation),
    /// Since when it was so, or may have been.
    born: EventNo,
}

/// How a number sees directories.
#[derive(Clone, Copy)]
enum Sight {
    /// All as they were.
    All,
    /// Those below a directory, with that itself.
    Below(InodeNo),
    /// None.
    Nothing,
}

impl View {
    /// What a user may come to who begins at a directory; `None`: who may all.
    pub fn access(&self, asking: Option<Asking>, top: InodeNo) -> Access {
        let asking = asking.filter(|asking| asking.uid != 0);
        Access { store: self.store().clone(), asking, top, reached: Mutex::default() }
    }
}

impl Access {
    /// Whether a directory as of an event (`None`: the present), and all above it then, may be searched: so
    /// what was in it could be opened by who knew the name. O(depth · log versions).
    ///
    /// # Errors
    /// [`Error::Stale`] if the event is not kept; damage and device errors.
    pub fn reaches(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        self.reaches_at(directory, event.unwrap_or(PRESENT))
    }

    /// Whether it may also be listed: so its names could be learned.
    ///
    /// # Errors
    /// As [`Access::reaches`].
    pub fn lists(&self, directory: InodeNo, event: Option<EventNo>) -> Result<bool> {
        self.lists_at(directory, event.unwrap_or(PRESENT))
    }

    /// Whether it is told everything.
    pub fn is_all(&self) -> bool {
        self.asking.is_none()
    }

    /// Whether the way to what is now, or was then, an inode may be gone: that is all directories above it. A
    /// file that has, or had, several names was found in the directory `found_in`; of one that was found by
    /// its number alone nobody knows.
    ///
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

    /// Whether the name of such an inode could be learned: the directory that it is in, or was in then, may
    /// also be listed.
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
                // Nobody knows more, or there is no more; or damage made a circle, which others will tell.
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

    /// Keeps the event from being forgotten meanwhile.
    fn during<R>(&self, at: EventNo, look: impl FnOnce() -> Result<R>) -> Result<R> {
        let _seeing = (at != PRESENT).then(|| self.store.past.see(at)).transpose()?;
        look()
    }

    /// What is sure to be known, of a directory and those above it, as of an event. Not for who keeps the
    /// event from being forgotten: it waits for who changes the list of events, who may wait for that.
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

    /// What is known of a directory at a number; `None` if nothing is.
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
    use crate::{Caller, SetAttr, SetXattrMode, Volume};

    fn asking(uid: u32) -> Asking {
        Asking { uid, groups: vec![uid], knows_groups: true }
    }

    fn set(volume: &Volume, path: &str, uid: u32, permissions: u32) {
        let set = SetAttr { uid: Some(uid), permissions: Some(permissions), ..SetAttr::default() };
        let inode = volume.node(path).unwrap().inode();
        volume.view().setattr(&Caller::superuser(), inode, &set).unwrap();
    }

    /// What a directory is now says nothing of what it was; each on the way counts, as it was then.
    #[test]
    fn the_way_as_it_was() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        volume.create_dir("a").unwrap();
        volume.create_dir("a/b").unwrap();
        volume.write("a/b/f", "x").unwrap();
        set(&volume, "a", 7, 0o700);
        set(&volume, "a/b", 7, 0o755);
        let first = view.snapshot(view.root(), "first", false, false).unwrap().number;
        set(&volume, "a", 7, 0o711);
        let second = view.snapshot(view.root(), "second", false, false).unwrap().number;
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
        // Who is let in by an ACL of then, and by a group.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in [(1u16, 7u16, u32::MAX), (2, 1, 9), (4, 0, !0), (16, 1, !0), (32, 0, !0)] {
            acl.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        view.setxattr(b, b"system.posix_acl_access", &acl, SetXattrMode::Any).unwrap();
        let third = view.snapshot(view.root(), "third", false, false).unwrap().number;
        view.removexattr(b, b"system.posix_acl_access").unwrap();
        assert_eq!([None, Some(third)].map(|event| reaches(9, b, event)), [false, true]);
        assert!(!reaches(10, b, Some(third)));
    }

    /// An event of a directory does not keep what is above: then what is known before it and behind it
    /// counts.
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
        view.snapshot(view.root(), "", false, false).unwrap();
        volume.write("a/new", "").unwrap();
        let of_b = view.snapshot(b, "", false, false).unwrap().number;
        volume.write("a/newer", "").unwrap();
        set(&volume, "a", 7, 0o755);
        let reaches = |uid, event| view.access(Some(asking(uid)), view.root()).reaches(b, event).unwrap();
        assert!(reaches(9, None) && !reaches(9, Some(of_b)) && reaches(7, Some(of_b)));
    }

    /// A group whose members may less than others; and who may be in it, for all that is known.
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
