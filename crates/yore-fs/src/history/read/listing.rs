//! Lists of events for people: the events that concern a directory, and where their roots are now.
//!
//! An event concerns a directory that can be seen as of it, and every directory that now contains the root of
//! the event. So the list of the root directory has all events, and the list of any other directory has those
//! that can stand after an `@` there or below. Events of single files, of which policies make one at each
//! close, are left out: each file has a list of its own ([`View::list_versions`]).

use crate::history::read::at_time;
use crate::history::read::at_time::{Resolved, PRESENT};
use crate::history::record::{is_held, Event};
use crate::time::When;
use crate::types::absolute;
use crate::{Error, InodeNo, Result, View};
use hashbrown::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use yore_core::inode::DEPTH_MAX;
use yore_format::{EventKind, EventNo, EventState, Incarnation, Timestamp};

/// How many events one call looks at.
const PAGE: usize = 256;

/// A kept event, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ListedEvent {
    /// The event.
    pub event: Event,
    /// When the next event of any directory was taken. A text that names this event must end before that. The
    /// next event may have been forgotten; a time that could be its name leads nowhere.
    pub next: Option<Timestamp>,
    /// As of the event, the directory whose list this is can be seen.
    pub covers: bool,
    /// The event is of this very directory.
    pub own: bool,
    /// The event is pinned, and so cannot be forgotten.
    pub pinned: bool,
    /// The event is mounted by itself, which pins it.
    pub mounted: bool,
    /// The present path of the event's root, from the root directory; `None` if it is gone. In the list of a
    /// directory, `None` also if the root of the event is no directory.
    #[serde(with = "crate::travel::path")]
    pub path: Option<PathBuf>,
}

/// Where a directory is: its path, and itself with all directories that it is in.
type Ancestry = Option<(PathBuf, Vec<InodeNo>)>;

/// Lists show an event that a policy holds for a time as held.
fn shown(mut event: Event) -> Event {
    event.row.held = is_held(&event.row);
    event
}

impl View {
    /// The kept events that concern a directory of this view, numbered `from` or above, in ascending order,
    /// and the number to go on from if there may be more. One call looks at up to 256 events, so it may find
    /// none before the end. O(depth) for each event; for each directory that events are of, once the entries
    /// of the directories above it.
    /// # Errors
    /// Damage and device errors.
    pub fn list_events(
        &self,
        directory: InodeNo,
        from: EventNo,
    ) -> Result<(Vec<ListedEvent>, Option<EventNo>)> {
        let mut events = at_time::kept_from(self.store(), from, PAGE + 1)?;
        let beyond = events.get(PAGE).map(|event| event.number);
        events.truncate(PAGE);
        let this = (directory, Incarnation(self.getattr(directory)?.incarnation));
        let (mut ancestries, mut listed) = (HashMap::new(), Vec::new());
        for event in events {
            if event.row.kind.is_of_file() {
                continue;
            }
            let covers = at_time::covers(self.store(), &event, directory)?;
            let of = (event.row.root, event.row.root_incarnation);
            if !ancestries.contains_key(&of) {
                ancestries.insert(of, self.ancestry_of(of.0, of.1)?);
            }
            let ancestry: &Ancestry = &ancestries[&of];
            let inside = ancestry.as_ref().is_some_and(|(_, inside)| inside.contains(&directory));
            if covers || inside || directory == self.root() {
                let next = self.store().past.time_after(&self.store().meta, event.number)?;
                let path = ancestry.as_ref().map(|(path, _)| path.clone());
                let (pinned, mounted) = self.uses(event.number);
                let event = shown(event);
                listed.push(ListedEvent { event, next, covers, own: of == this, pinned, mounted, path });
            }
        }
        Ok((listed, beyond))
    }

    /// The kept events of a directory itself, numbered `from` or above, in ascending order, at most so many.
    /// Each comes with its [`ListedEvent::next`]. O(log events) for each.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn events_of(
        &self,
        directory: InodeNo,
        from: EventNo,
        most: usize,
    ) -> Result<Vec<(Event, Option<Timestamp>)>> {
        let (meta, past) = (&self.store().meta, &self.store().past);
        let mut events = Vec::new();
        past.each_of(meta, directory, from, &mut |event| {
            if event.row.state == EventState::Kept {
                events.push(event);
            }
            Ok(events.len() < most)
        })?;
        events
            .into_iter()
            .map(|event| {
                let next = past.time_after(meta, event.number)?;
                Ok((event, next))
            })
            .collect()
    }

    /// The kept events of a file itself (a policy makes one at each close), numbered `from` or above, in
    /// ascending order, and the number to go on from if there may be more. The file is the one that the name
    /// means in a directory of this view. A name with a time means what it did then, and a name that is gone
    /// means what it meant last. Tombstones are left out, because the file cannot be seen as of them. O(log
    /// events) for each event, and once the entries of the directories that the file is in.
    ///
    /// ```
    /// use yore_fs::{EventNo, Policy, Versioning, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    /// view.set_policy(view.root(), &close)?;
    /// volume.write("letter", "Dear Anna,")?;
    /// volume.write("letter", "Dear Anton,")?;
    /// let (versions, _) = view.list_versions(view.root(), b"letter", EventNo(0))?;
    /// assert_eq!(versions.len(), 2);
    /// view.forget(&[versions[0].event.number])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name means nothing and never did; damage and device errors.
    pub fn list_versions(
        &self,
        directory: InodeNo,
        name: &[u8],
        from: EventNo,
    ) -> Result<(Vec<ListedEvent>, Option<EventNo>)> {
        let (inode, incarnation, _) = self.inode_of_name(directory, name)?;
        let path = self.path_as(inode, incarnation)?;
        let mut events = self.events_of(inode, from, PAGE + 1)?;
        let beyond = events.get(PAGE).map(|(event, _)| event.number);
        events.truncate(PAGE);
        events.retain(|(event, _)| {
            event.row.root_incarnation == incarnation && event.row.kind != EventKind::Removed
        });
        let listed = events.into_iter().map(|(event, next)| {
            let (pinned, mounted) = self.uses(event.number);
            let event = shown(event);
            ListedEvent { event, next, covers: true, own: true, pinned, mounted, path: path.clone() }
        });
        Ok((listed.collect(), beyond))
    }

    /// The kept event that shows a file under this name, which may have a time; `None` if the name means a
    /// file of the present. [`ListedEvent::own`] says whether the event is of the file itself, and
    /// [`ListedEvent::path`] where the root of the event is now.
    ///
    /// # Errors
    /// As [`View::list_versions`].
    pub fn version_seen(&self, directory: InodeNo, name: &[u8]) -> Result<Option<ListedEvent>> {
        let (inode, incarnation, Some(number)) = self.inode_of_name(directory, name)? else {
            return Ok(None);
        };
        let event = shown(self.kept_event(number)?);
        let next = self.store().past.time_after(&self.store().meta, number)?;
        let of = (event.row.root, event.row.root_incarnation);
        let path = self.path_as(of.0, of.1)?;
        let (own, (pinned, mounted)) = (of == (inode, incarnation), self.uses(number));
        Ok(Some(ListedEvent { event, next, covers: true, own, pinned, mounted, path }))
    }

    /// Whether an event is pinned, and whether it is mounted.
    fn uses(&self, event: EventNo) -> (bool, bool) {
        let past = &self.store().past;
        (past.is_pinned(event), past.is_mounted(event))
    }

    /// What a name means in a directory of this view, and as of which event (`None`: the present).
    fn inode_of_name(
        &self,
        directory: InodeNo,
        name: &[u8],
    ) -> Result<(InodeNo, Incarnation, Option<EventNo>)> {
        let (store, event) = (self.store(), self.event());
        let at = event.unwrap_or(PRESENT);
        let literal = || {
            let entry = at_time::entry_named(store, directory, name, at)?.ok_or(Error::NotFound)?;
            Ok((entry.inode, entry.incarnation, event))
        };
        let then = |of: &[u8], when: &When| {
            let (event, found) = at_time::lookup_at(store, directory, event, of, when)?;
            Ok((found.attr.inode, Incarnation(found.attr.incarnation), Some(event)))
        };
        if let Resolved::Literal(found) | Resolved::AtTime(found) =
            at_time::resolve_name(name, literal, then)?
        {
            return Ok(found);
        }
        let gone = store.past.name_before(store, directory, name, at)?.ok_or(Error::NotFound)?;
        Ok((gone.inode, gone.incarnation, event))
    }

    /// As [`View::path_now`], for the inode with this number and incarnation.
    fn path_as(&self, inode: InodeNo, incarnation: Incarnation) -> Result<Option<PathBuf>> {
        match self.present().node(inode, Some(incarnation.0)) {
            Ok(_held) => self.path_now(inode),
            Err(Error::Stale) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A value that changes whenever an event is taken or forgotten, for callers that cache which events
    /// there are.
    pub fn events_stamp(&self) -> (EventNo, usize) {
        self.store().past.stamp()
    }

    /// Where an inode is now: its path on the volume; for a file, the path of its latest name. `None` if the
    /// inode or that name is gone. O(entries of the directories on the way).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn path_now(&self, inode: InodeNo) -> Result<Option<PathBuf>> {
        let present = self.present();
        let attr = match present.getattr(inode) {
            Ok(attr) => attr,
            Err(Error::Stale) => return Ok(None),
            Err(e) => return Err(e),
        };
        if attr.kind == crate::FileKind::Directory {
            return Ok(self.ancestry_of(inode, Incarnation(attr.incarnation))?.map(|(path, _)| path));
        }
        let directory = self.store().cell(inode)?.state.read().inode.parent;
        if directory == InodeNo::NONE {
            return Ok(None);
        }
        let above = self.store().cell(directory)?.incarnation;
        let (above, name) = (self.ancestry_of(directory, above)?, present.name_in(directory, inode)?);
        let path = above.zip(name);
        Ok(path.map(|((above, _), name)| above.join(std::ffi::OsStr::from_bytes(&name))))
    }

    /// Where a directory is now; `None` if it is gone, is being moved just now, or is no directory.
    fn ancestry_of(&self, directory: InodeNo, incarnation: Incarnation) -> Result<Ancestry> {
        let present = self.present();
        let gone = |e: Error| match e {
            Error::Stale | Error::NotADirectory => Ok(None),
            e => Err(e),
        };
        // While this is held, no other inode gets its number.
        let _held = match present.node(directory, Some(incarnation.0)) {
            Ok(node) => node,
            Err(e) => return gone(e),
        };
        let (mut names, mut path, mut at) = (Vec::new(), vec![directory], directory);
        while at != present.root() && path.len() <= DEPTH_MAX {
            let step = present.parent(at).and_then(|up| Ok((up, present.name_in(up, at)?)));
            match step {
                Ok((up, Some(name))) => {
                    names.push(name);
                    path.push(up);
                    at = up;
                }
                Ok((_, None)) => return Ok(None),
                Err(e) => return gone(e),
            }
        }
        names.reverse();
        Ok(Some((absolute(&names), path)))
    }

    /// The name of an inode in a directory. O(entries).
    fn name_in(&self, directory: InodeNo, inode: InodeNo) -> Result<Option<Vec<u8>>> {
        let mut name = None;
        self.readdir(directory, 0, &mut |item| {
            if item.inode == inode && !matches!(item.name, b"." | b"..") {
                name = Some(item.name.to_vec());
            }
            name.is_none()
        })?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewSnapshot, Volume};
    use std::path::Path;

    fn list(volume: &Volume, path: &str) -> Vec<ListedEvent> {
        let node = volume.node(path).unwrap();
        let (mut all, mut from) = (Vec::new(), Some(EventNo(0)));
        while let Some(at) = from {
            let (page, next) = volume.view().list_events(node.inode(), at).unwrap();
            all.extend(page);
            from = next;
        }
        all
    }

    fn event(volume: &Volume, path: &str, name: &str) -> EventNo {
        let node = volume.node(path).unwrap();
        volume.view().take_snapshot(node.inode(), &NewSnapshot::named(name)).unwrap().number
    }

    /// The list of a directory has the events that show it and those of roots below it, and nothing else. The
    /// list of the root has all.
    #[test]
    fn a_directory_lists_what_concerns_it() {
        let volume = Volume::memory(64 << 20).unwrap();
        volume.create_dir_all("a/b/c").unwrap();
        volume.create_dir_all("other").unwrap();
        let all = [
            event(&volume, "/", ""),
            event(&volume, "a", "x"),
            event(&volume, "a/b/c", ""),
            event(&volume, "other", ""),
        ];
        let numbers = |path: &str| -> Vec<(EventNo, bool)> {
            list(&volume, path).iter().map(|listed| (listed.event.number, listed.covers)).collect()
        };
        assert_eq!(numbers("/"), [(all[0], true), (all[1], false), (all[2], false), (all[3], false)]);
        assert_eq!(numbers("a/b"), [(all[0], true), (all[1], true), (all[2], false)]);
        assert_eq!(numbers("a/b/c"), [(all[0], true), (all[1], true), (all[2], true)]);
        assert_eq!(numbers("other"), [(all[0], true), (all[3], true)]);
        let listed = list(&volume, "a/b");
        assert_eq!(listed[1].path.as_deref(), Some(Path::new("/a")));
        assert_eq!(listed[2].path.as_deref(), Some(Path::new("/a/b/c")));
        let own = |path: &str| -> Vec<EventNo> {
            list(&volume, path).iter().filter(|listed| listed.own).map(|listed| listed.event.number).collect()
        };
        assert_eq!(own("/"), all[..1]);
        assert_eq!(own("a"), all[1..2]);
        assert_eq!(own("a/b"), []);
        let of_root = volume.view().events_of(volume.view().root(), EventNo(0), 9).unwrap();
        assert_eq!(
            of_root.iter().map(|(event, next)| (event.number, *next)).collect::<Vec<_>>(),
            [(all[0], list(&volume, "/")[0].next)]
        );
        // The next event is the next one of the whole volume.
        let root = list(&volume, "/");
        assert_eq!(listed[2].next, Some(root[3].event.row.time));
        assert_eq!(root[3].next, None);
    }

    /// Lists show the root of an event where it is now. A root that is gone has no path, and only the list of
    /// the root directory has its events.
    #[test]
    fn paths_are_those_of_the_present() {
        let volume = Volume::memory(64 << 20).unwrap();
        volume.create_dir_all("a/b").unwrap();
        volume.create_dir_all("to").unwrap();
        event(&volume, "a/b", "");
        volume.rename("a/b", "to/c").unwrap();
        assert_eq!(list(&volume, "to")[0].path.as_deref(), Some(Path::new("/to/c")));
        assert!(list(&volume, "a").is_empty());
        volume.remove_dir_all("to/c").unwrap();
        volume.create_dir("to/c").unwrap();
        assert_eq!(list(&volume, "/")[0].path, None);
        assert!(list(&volume, "to").is_empty());
        // A directory that has the number of one that is gone is another directory.
        assert!(list(&volume, "to/c").iter().all(|listed| !listed.own));
    }

    /// The time that tells a snapshot from the next one still does so when the next one has been forgotten.
    /// It used to become so short that it could mean the forgotten one, and then led nowhere.
    #[test]
    fn a_listed_time_leads_there_when_the_next_one_is_forgotten() {
        use crate::time::{parse, print, TimeZone};
        let volume = Volume::memory(64 << 20).unwrap();
        let taken = [event(&volume, "/", ""), event(&volume, "/", ""), event(&volume, "/", "")];
        let view = volume.view();
        view.forget(&taken[1..]).unwrap();
        for _ in 0..2 {
            let listed = &list(&volume, "/")[0];
            let text = print(listed.event.row.time, listed.next, &TimeZone::UTC);
            let when = parse(&text, listed.event.row.time, &TimeZone::UTC).unwrap();
            assert_eq!(view.event_for(view.root(), &when).unwrap(), taken[0], "{text}");
            // Then these events are no longer dying, but forgotten.
            view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        }
    }

    /// Long lists come in pages, with each snapshot exactly once.
    #[test]
    fn long_lists_come_in_pages() {
        let volume = Volume::memory(64 << 20).unwrap();
        let taken: Vec<EventNo> = (0..600).map(|_| event(&volume, "/", "")).collect();
        let listed = list(&volume, "/");
        assert!(listed.iter().map(|listed| listed.event.number).eq(taken));
        assert!(listed.windows(2).all(|pair| pair[0].next == Some(pair[1].event.row.time)));
    }
}
