//! The calls of a view that concern the past: taking events, looking back at them, forgetting, holding,
//! expunging, and policies.

use crate::api::view::{Node, View};
use crate::go_on::{GoOn, GO_ON};
use crate::history::policy::{self, PolicyInForce};
use crate::history::read::at_time::{self, NewSnapshot};
use crate::history::reclaim::expunge::{self, HistoryScope, Remembered};
use crate::history::reclaim::forget;
use crate::history::reclaim::room::{self, WouldFree};
use crate::history::record::{Event, Forgetting, MissedVersions, Taking, User};
use crate::time::When;
use crate::{Error, InodeNo, Result};
use std::ops::ControlFlow;
use yore_format::{
    EventKind, EventMore, EventNo, EventRow, EventState, Incarnation, OperationRow, Policy, RowClass,
    SpaceRules, DESCRIPTION_MAX, HOLD_REASON_MAX,
};

impl View {
    /// Takes a snapshot of a directory with everything below it, in constant time: from now on anybody can
    /// see it as it is now. With [`NewSnapshot::wait`] the snapshot and all that it holds are durable when
    /// this returns; without, it is as durable as everything else done now.
    ///
    /// ```
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// volume.write("a", "once")?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::named("before"))?;
    /// volume.write("a", "now")?;
    ///
    /// let then = view.as_of(event.number);
    /// let mut buf = [0; 8];
    /// let n = then.lookup(then.root(), b"a")?.read(0, &mut buf)?;
    /// assert_eq!(&buf[..n], b"once");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::Exists`] for a name that another kept snapshot has;
    /// [`Error::Invalid`] for a name that could be taken for a time, for a time with another directory than
    /// the root, and for texts that cannot be stored; [`Error::OutOfOrder`] for a time that is in the future,
    /// or not later than that of the last snapshot or version; [`Error::LimitReached`] for a user who has a
    /// limit; [`Error::NoSpace`], [`Error::ReadOnly`].
    pub fn take_snapshot(&self, directory: InodeNo, new: &NewSnapshot<'_>) -> Result<Event> {
        let _passage = self.enter_around(directory)?;
        check_name(new.name)?;
        check_text(new.description, DESCRIPTION_MAX)?;
        check_text(new.hold_reason, HOLD_REASON_MAX)?;
        let more = EventMore {
            description: new.description.to_string(),
            hold_reason: if new.held { new.hold_reason.to_string() } else { String::new() },
            ..EventMore::default()
        };
        let kind = if new.undo { EventKind::Undo } else { EventKind::Snapshot };
        self.change(|store| {
            let taking = Taking {
                kind,
                name: new.name,
                held: new.held,
                more: more.clone(),
                time: new.time,
                user: new.user,
            };
            at_time::take(store, directory, taking, new.wait)
        })
    }

    /// Gives a kept event another name (an empty one: none) or another description. What is `None` stays. The
    /// change is durable when this returns. Returns the event as it is then.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not kept; [`Error::Exists`] for a name that another kept event of the
    /// directory has; [`Error::Invalid`] for a name that could be taken for a time, or a text that cannot be
    /// stored; [`Error::ReadOnly`].
    pub fn describe(&self, event: EventNo, name: Option<&str>, description: Option<&str>) -> Result<Event> {
        check_name(name.unwrap_or_default())?;
        check_text(description.unwrap_or_default(), DESCRIPTION_MAX)?;
        let store = self.live()?;
        store.check_writable()?;
        if name.is_some() && self.kept_event(event)?.row.kind == EventKind::Undo {
            return Err(Error::Invalid {
                what: "the name of what can be undone says what it was, and stays",
            });
        }
        let (_, row) = store.past.describe(store, event, |row| {
            if let Some(name) = name {
                row.name = name.to_string();
            }
            if let Some(description) = description {
                row.more.description = description.to_string();
            }
        })?;
        store.force()?;
        Ok(Event { number: event, row })
    }

    /// All events that are kept, in ascending order.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn events(&self) -> Result<Vec<Event>> {
        at_time::events(self.store())
    }

    /// The kept event with this number. O(log events).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, or if it is forgotten; damage and device errors.
    pub fn kept_event(&self, number: EventNo) -> Result<Event> {
        self.store().past.in_state(&self.store().meta, number, EventState::Kept)
    }

    /// Forgets events, or none if one of them cannot be forgotten. When this returns, nobody sees them any
    /// more, and that is durable. A crash meanwhile may leave some of them. [`View::finish_forgetting`] gives
    /// up what only they have seen.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// volume.write("a", vec![1; 1_000_000])?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::default())?;
    /// volume.remove_file("a")?;
    ///
    /// view.forget(&[event.number])?;
    /// let done = view.finish_forgetting(&mut |_| ControlFlow::Continue(()))?;
    /// assert_eq!((done.forgotten, done.blocks), (1, 245));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if one is not kept, [`Error::Held`] if one is held, [`Error::Pinned`] if one is
    /// pinned; [`Error::ReadOnly`].
    pub fn forget(&self, events: &[EventNo]) -> Result<()> {
        forget::begin(self.live()?, events)
    }

    /// Gives up what only forgotten events have seen, in small steps, until everything is done or `ask` stops
    /// it; `ask` is called every few hundred versions. The next call gives up what is left, also after a
    /// crash. Others can work meanwhile; a second caller waits.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn finish_forgetting(
        &self,
        ask: &mut dyn FnMut(&Forgetting) -> ControlFlow<()>,
    ) -> Result<Forgetting> {
        forget::finish(self.live()?, ask)
    }

    /// Gives rows of the history their keys, at most so many, and returns how many got them: those of each
    /// shard in the order in which they were recorded. An open volume does this by itself, in the background
    /// and when it is closed; nothing that can be seen depends on it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`]; damage and device errors.
    pub fn index_history(&self, most: u64) -> Result<u64> {
        let store = self.live()?;
        store.check_writable()?;
        store.past.index_some(store, most)
    }

    /// How many rows of the history are known to have no keys: for tests.
    #[doc(hidden)]
    pub fn rows_without_keys(&self) -> u64 {
        self.store().past.backlog()
    }

    /// How far forgetting is, in the background or in another call: how much is done, and how much there is
    /// to do. `None`: nothing is left.
    pub fn forgetting(&self) -> Option<(u64, u64)> {
        let store = self.store();
        store.past.is_forgetting().then(|| store.giving_up.get())
    }

    /// Gives up all that the history knows of files, each named by inode and incarnation. When this returns,
    /// nobody sees any of it in any event, and that is durable. The present state of a file stays, as if the
    /// file had been made now. [`View::finish_forgetting`] gives the space back. Other files that were below
    /// a directory are not affected.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// volume.write("secret", vec![1; 1_000_000])?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::default())?;
    /// volume.remove_file("secret")?;
    ///
    /// let then = view.as_of(event.number);
    /// let secret = *then.lookup(then.root(), b"secret")?.attr();
    /// view.expunge(&[(secret.inode, secret.incarnation)])?;
    /// assert!(then.lookup(then.root(), b"secret").is_err());
    /// let done = view.finish_forgetting(&mut |_| ControlFlow::Continue(()))?;
    /// assert_eq!((done.expunged, done.blocks), (1, 245));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Held`] or [`Error::Pinned`] if an event that is held or pinned has seen one of them: then
    /// nothing was changed. [`Error::Invalid`] for the root directory; [`Error::ReadOnly`].
    pub fn expunge(&self, files: &[(InodeNo, u32)]) -> Result<()> {
        let files: Vec<_> = files.iter().map(|(inode, of)| (*inode, Incarnation(*of))).collect();
        expunge::begin(self.live()?, &files, None)
    }

    /// As [`View::expunge`], if only events that a user took have seen these files. These events count as the
    /// user's: those that the user is known to have taken; those of one of the files itself; and, of
    /// directories that the user owns, those that nobody took, but a policy did, or a command that can be
    /// undone. O(versions · events).
    ///
    /// # Errors
    /// As [`View::expunge`]; [`Error::TakenByOthers`] if another event has seen one of them: then nothing was
    /// changed. But if that event was taken while this call was at work, some of the files may be expunged,
    /// which the event has seen as they are from then on.
    pub fn expunge_taken_by(&self, files: &[(InodeNo, u32)], uid: u32) -> Result<()> {
        let files: Vec<_> = files.iter().map(|(inode, of)| (*inode, Incarnation(*of))).collect();
        expunge::begin(self.live()?, &files, Some(uid))
    }

    /// What a name means in a directory of this view that may have a time ([`crate::resolve_name`]).
    ///
    /// # Errors
    /// As [`View::lookup`] and [`View::lookup_at`].
    pub fn named(&self, directory: InodeNo, name: &[u8]) -> Result<Node> {
        let literal = || self.lookup(directory, name);
        at_time::resolve_name(name, literal, |of, when| self.lookup_at(directory, of, when))?.found()
    }

    /// What the history knows of a file. O(versions).
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such file and never was one.
    pub fn remembered(&self, inode: InodeNo, incarnation: u32) -> Result<Remembered> {
        expunge::remembered(self.store(), inode, Incarnation(incarnation))
    }

    /// As [`View::remembered`], for a directory and all that was ever named in it, at any time and at any
    /// depth, each once.
    ///
    /// # Errors
    /// As [`View::remembered`].
    pub fn remembered_below(&self, inode: InodeNo, incarnation: u32) -> Result<Vec<Remembered>> {
        expunge::remembered_below(self.store(), inode, Incarnation(incarnation), GO_ON)
    }

    /// What the history knows of a name in a directory of this view; the name may have a time behind an `@`.
    /// It covers the file that the name means, and what the scope adds. Also returns how many other files the
    /// name has meant that are left out.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IsADirectory`] for a directory without [`HistoryScope::below`].
    pub fn history_of(
        &self,
        directory: InodeNo,
        name: &[u8],
        scope: HistoryScope,
    ) -> Result<(Vec<Remembered>, usize)> {
        self.history_of_while(directory, name, scope, GO_ON)
    }

    /// As [`View::history_of`], and asks for each file whether to go on, as [`View::diff_while`] does.
    ///
    /// # Errors
    /// As [`View::history_of`]; [`Error::Refused`] if `go_on` breaks.
    pub fn history_of_while(
        &self,
        directory: InodeNo,
        name: &[u8],
        scope: HistoryScope,
        go_on: GoOn<'_>,
    ) -> Result<(Vec<Remembered>, usize)> {
        expunge::history_of(self, directory, name, scope, go_on)
    }

    /// Holds an event, so that it is not forgotten, or releases it. The change is durable when this returns.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is not kept; [`Error::ReadOnly`].
    pub fn hold(&self, event: EventNo, held: bool) -> Result<()> {
        self.set_held(event, (held, ""), None, &|_| Ok(()))
    }

    /// As [`View::hold`], on behalf of a user: the event records the user, who may have a limit. Only root
    /// can release an event that is held by the policy under which it was taken.
    ///
    /// # Errors
    /// As [`View::hold`]; [`Error::HeldUntil`], [`Error::LimitReached`].
    pub fn hold_for(&self, user: &User, event: EventNo, held: bool) -> Result<()> {
        self.set_held(event, (held, ""), Some(user), &|_| Ok(()))
    }

    /// As [`View::hold_for`], with a reason; an empty reason leaves the one there is. Releasing removes the
    /// reason.
    ///
    /// # Errors
    /// As [`View::hold_for`]; [`Error::Invalid`] for a reason that cannot be stored.
    pub fn hold_because(&self, user: Option<&User>, event: EventNo, held: bool, reason: &str) -> Result<()> {
        self.set_held(event, (held, reason), user, &|_| Ok(()))
    }

    /// As [`View::hold_because`], on behalf of a user, if `may` allows it. It gets the event as it is at that
    /// moment, and nobody changes the event until this has. It must not call the view.
    ///
    /// # Errors
    /// As [`View::hold_because`]; those of `may`.
    pub fn hold_if(
        &self,
        user: &User,
        event: EventNo,
        (held, reason): (bool, &str),
        may: &dyn Fn(&EventRow) -> Result<()>,
    ) -> Result<()> {
        self.set_held(event, (held, reason), Some(user), may)
    }

    fn set_held(
        &self,
        event: EventNo,
        (held, reason): (bool, &str),
        user: Option<&User>,
        may: &dyn Fn(&EventRow) -> Result<()>,
    ) -> Result<()> {
        check_text(reason, HOLD_REASON_MAX)?;
        let store = self.live()?;
        store.check_writable()?;
        store.past.set_held(store, event, (held, reason), user, may)?;
        store.force()
    }

    /// Gives a directory (for everything below it) or a file a policy of its own, or another one. An empty
    /// policy is no policy: those above count. The change is durable when this returns.
    ///
    /// ```
    /// use yore_fs::{Policy, Versioning, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    /// view.set_policy(view.root(), &close)?;
    /// volume.write("a", "once")?;
    /// volume.write("a", "twice")?;
    /// assert_eq!(view.events()?.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything but a directory or a regular file, for an interval below a second, and
    /// for a duration that cannot be read; [`Error::NotFound`], [`Error::NoSpace`], [`Error::ReadOnly`].
    pub fn set_policy(&self, inode: InodeNo, policy: &Policy) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| policy::set(store, inode, policy, None, None))
    }

    /// As [`View::set_policy`], on behalf of a user. The policy belongs to the owner of the inode, who may
    /// have a limit.
    ///
    /// # Errors
    /// As [`View::set_policy`]; [`Error::LimitReached`].
    pub fn set_policy_for(&self, user: &User, inode: InodeNo, policy: &Policy) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| policy::set(store, inode, policy, Some(user), None))
    }

    /// As [`View::set_policy_for`], if `may` allows it. It may look at policies: if one is changed before
    /// this policy is set, `may` is asked again.
    ///
    /// # Errors
    /// As [`View::set_policy_for`]; those of `may`.
    pub fn set_policy_if(
        &self,
        user: &User,
        inode: InodeNo,
        policy: &Policy,
        may: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| policy::set(store, inode, policy, Some(user), Some(may)))
    }

    /// Whether this policy, as an inode's own, would shorten the time for which events are held that policies
    /// take of the inode and below it.
    ///
    /// # Errors
    /// [`Error::Stale`]; damage and device errors.
    pub fn shortens_hold(&self, inode: InodeNo, policy: &Policy) -> Result<bool> {
        policy::shortens_hold(self.store(), inode, policy)
    }

    /// An inode's own policy; an empty one if it has none.
    ///
    /// # Errors
    /// [`Error::Stale`]; damage and device errors.
    pub fn policy(&self, inode: InodeNo) -> Result<Policy> {
        policy::own(self.store(), inode)
    }

    /// What applies to an inode, and whose policy each rule comes from. O(depth · log policies).
    ///
    /// # Errors
    /// [`Error::Stale`]; damage and device errors.
    pub fn policy_in_force(&self, inode: InodeNo) -> Result<PolicyInForce> {
        policy::in_force(self.store(), inode)
    }

    /// All policies, by inode number.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn policies(&self) -> Result<Vec<(InodeNo, Policy)>> {
        policy::all(self.store())
    }

    /// Whether a policy makes a version of this file when it is closed. For servers that find out when a file
    /// is closed. Constant time.
    ///
    /// # Errors
    /// [`Error::Stale`]; damage and device errors.
    pub fn makes_versions_at_close(&self, inode: InodeNo) -> Result<bool> {
        Ok(self.event().is_none() && policy::is_versioned_at_close(self.store(), &self.store().cell(inode)?)?)
    }

    /// Tells the volume that a server's client, or a program, has closed a file that it could write to. If a
    /// policy then makes a version of the file, and the file was changed since the last one, this takes the
    /// version before it returns. Constant time.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage and device errors.
    pub fn closed(&self, inode: InodeNo) -> Result<Option<Event>> {
        let _passage = self.enter(inode)?;
        if !self.store().past.has_policies() || self.event().is_some() {
            return Ok(None);
        }
        match self.store().cell_if_used(inode)? {
            Some(cell) => policy::closed(self.store(), &cell, self.behalf()),
            None => Ok(None),
        }
    }

    /// Forgets now the events that policies no longer keep; a thread does the same every few minutes. Returns
    /// how many events. What only they have seen is given up in the background, or by
    /// [`View::finish_forgetting`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn retain(&self) -> Result<usize> {
        policy::retain(self.live()?)
    }

    /// Records who did what to the past, for people ([`View::operations`]). The record is not durable by
    /// itself. O(log rows).
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`]; damage and device errors.
    pub fn note_operation(&self, class: RowClass, row: &OperationRow) -> Result<()> {
        let store = self.live()?;
        store.past.note_operation(store, class, row)
    }

    /// The last rows of a class (a few thousand at most), the oldest first, each with its place in the order
    /// of all rows.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn operations(&self, class: RowClass) -> Result<Vec<(u64, OperationRow)>> {
        self.store().past.operations(&self.store().meta, class)
    }

    /// How much history a full volume keeps.
    pub fn space_rules(&self) -> SpaceRules {
        self.store().space_rules()
    }

    /// What a full volume gives up by itself for this view's requests, and what else would free more.
    /// O(versions).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn what_would_free(&self) -> Result<WouldFree> {
        room::what_would_free(self.store(), self.behalf())
    }

    /// The versions that policies wanted and that were not made because the volume is full, since it became
    /// full; `None`: there are none.
    pub fn missed_versions(&self) -> Option<MissedVersions> {
        self.store().missed.now()
    }

    /// Sets how much history a full volume keeps. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a share above a hundred; [`Error::ReadOnly`]; device errors.
    pub fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        if rules.share_percent > 100 {
            return Err(Error::Invalid { what: "a share of the volume is 0 to 100 percent" });
        }
        self.live()?.set_space_rules(rules)
    }

    /// The event that a time means in a directory of this view: the last event up to then that has seen the
    /// directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none.
    pub fn event_for(&self, directory: InodeNo, when: &When) -> Result<EventNo> {
        at_time::event_for(self.store(), directory, self.event(), when)
    }
}

fn check_name(name: &str) -> Result<()> {
    match !name.is_empty() && crate::time::check_snapshot_name(name).is_err() {
        true => Err(Error::Invalid { what: "a snapshot's name must not be one that could be a time" }),
        false => Ok(()),
    }
}

fn check_text(text: &str, most: usize) -> Result<()> {
    match text.len() <= most && !text.contains(char::is_control) {
        true => Ok(()),
        false => Err(Error::Invalid {
            what: "a description has at most 512 bytes, a reason 255, and neither has control characters",
        }),
    }
}
