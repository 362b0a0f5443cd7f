//! Expunging: all that history knows of a file is given up, in all events at once.
//!
//! A row in the table of events says so, and the same Op detaches the present (`loose.rs`): the inode in use
//! and its name get a new birth, so no earlier event has seen them. From then on nobody sees any version or
//! name of that inode and incarnation that is older than the row. Afterwards these are given up, one name or
//! version at a time, each in one Op with everything that it alone holds; then the row goes. All this can
//! stop at any point, even in a crash, and goes on where it stopped, because what is left shows what is still
//! to be done:
//!
//! **X1 Names first.** A name that an event has seen is the place of the version that the same event has
//! seen, so the versions say where the names are. They are kept until all names are gone: a lookup never
//! finds a name without an inode.
//!
//! **X2 Files of several names** remember one at most. If a state says that there were others, a walk goes
//! through all present directories and all past names, once for all such files. An entry that it finds gets
//! the row's number as its birth. An entry that ends meanwhile gets that birth at once: with it, the state
//! that says that there were others may disappear. An entry escapes only in a directory that is moved behind
//! the walk, so if any was moved, the walk is repeated. Names are entries before they are past names, so the
//! walk visits the past ones second.
//!
//! **X3 What must stay.** Held and pinned events lose nothing: if one has seen the file, nothing is given up.
//! No event becomes held or pinned between the check and the row (`record/expunge.rs`). A user may be one who
//! takes nothing from events of others, and these need not be held. So that check is true for the number that
//! was the next one: if an event was taken since, the row is not entered, and the check is made again.
//!
//! **X4 Nobody reads what goes.** The events stay, so P6 does not keep their readers away. A reader of a
//! version holds the lock that is needed to expunge a file; after that nobody finds a version of the file.
//!
//! **X5 Events of the file itself** have seen nothing else, and are forgotten before the row is entered:
//! after it they would show nothing. An event that is taken between the two is forgotten after the row, if
//! need be together with the rest.

mod loose;
mod remembered;
mod states;

pub(crate) use remembered::{history_of, remembered, remembered_below};
pub use remembered::{HistoryScope, Remembered};

use crate::history::read::at_time;
use crate::history::reclaim::alone::give_up_version;
use crate::history::reclaim::needed::Needed;
use crate::history::reclaim::whose::Owners;
use crate::history::record::{self, Ask, Expunge, Forgetting, NamesWalk, PastEntry};
use crate::store::Store;
use crate::{dir, Error, FileKind, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use states::{each_version, in_use_as};
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_format::{EventKind, EventNo, EventState, Incarnation, Inode, Version};

/// How many entries and names are looked at before the caller is asked again whether to go on.
const BATCH: usize = 256;

/// How often a file is examined again because somebody has taken an event meanwhile.
const TRIES: u32 = 1000;

/// Gives up the history of files: on return all of it is out of sight, durably. `forget::finish` does the
/// rest. With `only` it takes nothing from events that another user took.
///
/// # Errors
/// [`Error::Held`] and [`Error::Pinned`] if an event that must stay has seen one of the files, and
/// [`Error::TakenByOthers`] if another user's has: then nothing is given up. `Invalid` for the root
/// directory. After other errors, or if that event was taken just now, the history of some of the files may
/// be given up, and so may be events of single files among them.
pub(crate) fn begin(store: &Arc<Store>, files: &[(InodeNo, Incarnation)], only: Option<u32>) -> Result<()> {
    store.check_writable()?;
    if files.iter().any(|(no, _)| *no == InodeNo::ROOT) {
        return Err(Error::Invalid {
            what: "the history of the root directory: forget its snapshots instead",
        });
    }
    if !store.past.is_any() {
        return Ok(());
    }
    let mut files = files.to_vec();
    files.sort_unstable();
    files.dedup();
    {
        let _still = store.past.expunging.hold_still();
        let mut checked = only.map(|uid| check_taken_by(store, &files, uid, EventNo(0))).transpose()?;
        check_free(store, &files)?;
        for (no, incarnation) in &files {
            forget_own(store, *no, *incarnation, EventNo(u64::MAX))?;
        }
        for (no, incarnation) in &files {
            let (file, again) = enter(store, (*no, *incarnation), only.zip(checked))?;
            // The row has taken the number that was the next one. Of events that were taken meanwhile only
            // this file is known.
            checked = if again { checked } else { checked.map(|_| EventNo(file.number.0 + 1)) };
            forget_own(store, *no, *incarnation, file.number)?;
        }
    }
    store.force()
}

/// Enters that a file is expunged, and says whether it had to be examined again. With a user and a number: no
/// event before the number keeps him from that, and others may be taken at any time.
fn enter(
    store: &Arc<Store>,
    file: (InodeNo, Incarnation),
    checked: Option<(u32, EventNo)>,
) -> Result<(Expunge, bool)> {
    let (mut since, mut again) = (checked.map(|(_, since)| since), false);
    for _ in 0..TRIES {
        if let Some(entered) = loose::expunge(store, file.0, file.1, since)? {
            return Ok((entered, again));
        }
        if let Some((uid, from)) = checked.map(|(uid, _)| uid).zip(since) {
            since = Some(check_taken_by(store, &[file], uid, from)?);
            again = true;
        }
    }
    Err(Error::Refused(
        "others take snapshots all the time: what is left was not expunged; do it again".into(),
    ))
}

/// Forgets the events of a file or directory itself up to a number (X5).
fn forget_own(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation, before: EventNo) -> Result<()> {
    let mut own = Vec::new();
    store.past.each_of(&store.meta, no, EventNo(0), &mut |event| {
        let row = &event.row;
        let is_it = row.state == EventState::Kept && row.root_incarnation == incarnation;
        own.extend((is_it && event.number < before).then_some(event.number));
        Ok(true)
    })?;
    for event in own {
        match store.past.mark_dying(store, &[event]) {
            // It was forgotten meanwhile; or it is held or pinned, and shows nothing any more.
            Ok(())
            | Err(Error::NotFound | Error::Held { .. } | Error::HeldUntil { .. } | Error::Pinned { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fails if an event that must stay has seen one of the files (X3).
fn check_free(store: &Arc<Store>, files: &[(InodeNo, Incarnation)]) -> Result<()> {
    let (mut stay, mut held) = (Vec::new(), HashMap::new());
    store.past.each_event(&store.meta, EventNo(0), &mut |event| {
        let why = record::held(&event);
        if event.row.state == EventState::Kept && (why.is_some() || store.past.is_pinned(event.number)) {
            stay.push(event.number);
            held.extend(why.map(|why| (event.number, why)));
        }
        Ok(true)
    })?;
    match one_that_sees(store, files, &stay)? {
        Some(event) => Err(held.remove(&event).unwrap_or(Error::Pinned { event: event.0 })),
        None => Ok(()),
    }
}

/// Fails if an event from this number on that another user took has seen one of the files. Returns the number
/// up to which that is known: the next one.
fn check_taken_by(
    store: &Arc<Store>,
    files: &[(InodeNo, Incarnation)],
    uid: u32,
    from: EventNo,
) -> Result<EventNo> {
    let next = store.number();
    let (owners, mut others) = (Owners::new(store), Vec::new());
    for event in at_time::kept_from(store, from, usize::MAX)? {
        let row = &event.row;
        let of = (row.root, row.root_incarnation);
        // Of the file itself nobody else has anything. A snapshot of which nobody knows who took it may be
        // somebody else's.
        let is_his = match row.more.by {
            None if files.contains(&of) => true,
            None if row.kind == EventKind::Snapshot => false,
            _ => owners.is_of(uid, row)?,
        };
        others.extend((!is_his).then_some(event.number));
    }
    match one_that_sees(store, files, &others)? {
        Some(event) => Err(Error::TakenByOthers { event: event.0 }),
        None => Ok(next),
    }
}

/// One of these events that has seen one of the files.
fn one_that_sees(
    store: &Arc<Store>,
    files: &[(InodeNo, Incarnation)],
    events: &[EventNo],
) -> Result<Option<EventNo>> {
    if events.is_empty() {
        return Ok(None);
    }
    let of = |events: &[EventNo]| {
        let events: HashSet<EventNo> = events.iter().copied().collect();
        Needed::of(store, |event| events.contains(&event.number))
    };
    let needed = of(events)?;
    for (no, incarnation) in files {
        let mut states = Vec::new();
        each_version(store, *no, *incarnation, &mut |version| {
            states.push(version.clone());
            Ok(())
        })?;
        let in_use = in_use_as(store, *no, *incarnation)?.filter(|inode| inode.links > 0);
        states.extend(in_use.map(|inode| Version {
            end: store.number().max(EventNo(inode.born.0.saturating_add(1))),
            inode,
        }));
        for state in states {
            if !needed.version(*no, &state)? {
                continue;
            }
            // All of them together have seen it; bisection finds which one.
            let mut among = events;
            while among.len() > 1 {
                let (first, rest) = among.split_at(among.len() / 2);
                among = if of(first)?.version(*no, &state)? { first } else { rest };
            }
            return Ok(among.first().copied());
        }
    }
    Ok(None)
}

/// Gives up what is left of the files that were passed to [`begin`], until nothing is left or `ask` breaks.
/// The caller holds the `forgetting` lock.
///
/// # Errors
/// Damage and device errors. The next call gives up what this one did not.
pub(crate) fn go_on(store: &Arc<Store>, so_far: &mut Forgetting, ask: Ask<'_>) -> Result<ControlFlow<()>> {
    let files = store.past.expunging.all();
    let mut work = Work { store, so_far, ask };
    let mut scattered: HashMap<InodeNo, Vec<Expunge>> = HashMap::new();
    for file in &files {
        if (work.ask)(work.so_far).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        match work.names(file)? {
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            ControlFlow::Continue(true) => scattered.entry(file.inode).or_default().push(*file),
            ControlFlow::Continue(false) => {}
        }
    }
    if !scattered.is_empty()
        && (work.entries(&scattered)?.is_break() || work.past_names(&scattered)?.is_break())
    {
        return Ok(ControlFlow::Break(()));
    }
    for file in &files {
        if (work.ask)(work.so_far).is_break() || work.versions(file)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        forget_own(store, file.inode, file.incarnation, file.number)?;
        store.past.end_expunge(store, file)?;
        work.so_far.expunged += 1;
        work.so_far.expunging = work.so_far.expunging.saturating_sub(1);
    }
    Ok(ControlFlow::Continue(()))
}

struct Work<'w> {
    store: &'w Arc<Store>,
    so_far: &'w mut Forgetting,
    ask: Ask<'w>,
}

impl Work<'_> {
    /// Asks every so often whether to go on.
    fn examined(&mut self) -> ControlFlow<()> {
        self.so_far.examined += 1;
        match self.so_far.examined % BATCH as u64 {
            0 => (self.ask)(self.so_far),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Gives up the names that the file's states say they had (X1). Returns whether there were others (X2).
    fn names(&mut self, file: &Expunge) -> Result<ControlFlow<(), bool>> {
        let store = self.store;
        let mut scattered =
            in_use_as(store, file.inode, file.incarnation)?.is_some_and(|i| has_more_names(&i));
        let mut from = EventNo(0);
        while let Some(version) = store.past.version_after(&store.meta, file.inode, from)? {
            let Version { end, inode } = version;
            from = end;
            if !file.takes(file.inode, inode.incarnation, inode.born) {
                continue;
            }
            scattered |= has_more_names(&inode);
            if inode.parent != InodeNo::NONE {
                self.names_at(file, inode.parent, inode.parent_cookie, (inode.born, end))?;
            }
            if self.examined().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(scattered))
    }

    /// Gives up what a cookie meant in a span, as far as that is the file.
    fn names_at(
        &mut self,
        file: &Expunge,
        directory: InodeNo,
        cookie: u64,
        (from, to): (EventNo, EventNo),
    ) -> Result<()> {
        let (past, meta) = (&self.store.past, &self.store.meta);
        let mut before = to;
        while let Some(most) = before.0.checked_sub(1) {
            let Some(name) = past.name_until(meta, directory, cookie, EventNo(most))? else { break };
            if name.death <= from {
                break;
            }
            before = name.birth;
            self.name(file, &name)?;
        }
        Ok(())
    }

    fn name(&mut self, file: &Expunge, name: &PastEntry) -> Result<()> {
        if file.takes(name.inode, name.incarnation, name.birth) {
            let _work = self.store.past.annals_work();
            self.store.past.expunge_name(self.store, name, file.number)?;
            self.so_far.given_up += 1;
        }
        Ok(())
    }

    /// Walks through all present directories for entries of the files that are older than the rows (X2).
    fn entries(&mut self, files: &HashMap<InodeNo, Vec<Expunge>>) -> Result<ControlFlow<()>> {
        loop {
            let moves = self.store.past.expunging.moves();
            if self.entries_once(files)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if self.store.past.expunging.moves() == moves {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    fn entries_once(&mut self, files: &HashMap<InodeNo, Vec<Expunge>>) -> Result<ControlFlow<()>> {
        let (mut left, mut met) = (vec![InodeNo::ROOT], HashSet::new());
        while let Some(no) = left.pop() {
            // Otherwise it was removed meanwhile.
            let Some(cell) = self.store.cell_if_used(no)? else { continue };
            let mut after = 0;
            loop {
                let (mut found, mut count) = (Vec::new(), 0);
                let state = cell.state.read();
                if state.check_directory().is_err() {
                    break;
                }
                dir::list(self.store, &state, no, after, &mut |cookie, entry| {
                    (after, count) = (cookie, count + 1);
                    let of_file = files.get(&entry.inode).into_iter().flatten();
                    let taken = |file: &&Expunge| file.takes(entry.inode, entry.incarnation, entry.birth);
                    found.extend(of_file.filter(taken).map(|file| (cookie, *file)));
                    if entry.kind == FileKind::Directory && met.insert(entry.inode) {
                        left.push(entry.inode);
                    }
                    Ok(count < BATCH)
                })?;
                drop(state);
                // If several rows take an entry, it ends up with the number of the latest: what was before
                // that is out of sight for all.
                for (cookie, file) in found {
                    loose::detach_entry(self.store, &cell, cookie, file)?;
                }
                for _ in 0..count {
                    if self.examined().is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                if count < BATCH {
                    break;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Looks through all past names for those of the files (X2).
    fn past_names(&mut self, files: &HashMap<InodeNo, Vec<Expunge>>) -> Result<ControlFlow<()>> {
        let store = self.store;
        let (mut walk, mut more) = (NamesWalk::default(), true);
        while more {
            let mut found = Vec::new();
            more = store.past.next_names(&store.meta, &mut walk, BATCH, &mut |name| {
                // If one file has several rows, the latest one counts: a name that lasts beyond it began
                // with it.
                let of_file = files.get(&name.inode).into_iter().flatten();
                let last = of_file
                    .filter(|file| file.takes(name.inode, name.incarnation, name.birth))
                    .max_by_key(|file| file.number);
                found.extend(last.map(|file| (*file, name)));
            })?;
            for (file, name) in found {
                self.name(&file, &name)?;
            }
            self.so_far.examined += BATCH as u64;
            if (self.ask)(self.so_far).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Gives up the file's versions, the oldest first.
    fn versions(&mut self, file: &Expunge) -> Result<ControlFlow<()>> {
        let store = self.store;
        let mut from = EventNo(0);
        while let Some(version) = store.past.version_after(&store.meta, file.inode, from)? {
            from = version.end;
            if !file.takes(file.inode, version.inode.incarnation, version.inode.born) {
                continue;
            }
            // Events that stay have it.
            store.spans.drop_later();
            self.so_far.blocks += give_up_version(store, file.inode, &version)?;
            self.so_far.given_up += 1;
            if self.examined().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Whether an inode had names that it does not remember.
fn has_more_names(inode: &Inode) -> bool {
    !inode.is_directory() && inode.links > 0 && (inode.links > 1 || inode.parent == InodeNo::NONE)
}
