//! What a name meant over time.
//!
//! The log consists of *stretches*: a stretch lasts as long as one inode has one name. Before that, the inode
//! had another name, which the inode as of that time tells: that is the next stretch. If the inode did not
//! exist before, the name may have meant another inode (an editor writes a new file and renames it over the
//! old one). The next stretch is then that inode's, under the latest of the names visited so far that meant
//! something. In a stretch, each version of the inode is a state if a kept event has seen the directory
//! during it.

use super::answer::{Each, Facts, Gone, Logged, What};
use super::changes::changes;
use super::kept::{join_spans, KeptEvents, Span};
use super::last::{self, is_temporary};
use crate::history::read::at_time::{self, with, Resolved, PRESENT};
use crate::history::record::{Event, PastEntry, Seeing};
use crate::store::Store;
use crate::time::When;
use crate::{Error, FileKind, InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::DEPTH_MAX;
use yore_format::{EventNo, Incarnation};

/// A stretch in which one inode had one name, `entry.birth..end`.
struct Stretch {
    /// The name; empty for the root directory.
    entry: PastEntry,
    directory_incarnation: Incarnation,
    end: EventNo,
}

/// A state in a stretch, not yet compared with the older one.
struct State {
    from: EventNo,
    to: EventNo,
    span: Span,
    current: bool,
}

/// Calls `each` with the states of what a path from a directory meant as of `event`, latest first.
///
/// # Errors
/// As [`crate::View::log_below`].
pub(super) fn log(
    store: &Arc<Store>,
    directory: InodeNo,
    path: &[u8],
    event: EventNo,
    pass: Pass<'_>,
    each: Each<'_, Logged>,
) -> Result<()> {
    let kept = KeptEvents::load(store)?;
    let (above, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    let end = if event == PRESENT { PRESENT } else { EventNo(event.0 + 1) };
    let found = directory_of(&kept, directory, above, end, pass)?;
    let begin = match found.gone {
        true => begin_gone(&kept, &found, name)?,
        false => begin(&kept, &found, name)?,
    };
    let mut log =
        Log { store, kept, at: begin.current, gone: begin.gone, waiting: None, is_any: false, each };
    let mut gone_through: Vec<(PastEntry, Incarnation)> = Vec::new();
    let mut next = Some((begin.first, false));
    let mut is_first = true;
    while let Some((stretch, replaced)) = next {
        // A file that is being put back has one of our temporary names for a moment.
        if (is_first || !is_temporary(&stretch.entry.name)) && log.stretch(&stretch, replaced)? {
            return Ok(());
        }
        is_first = false;
        gone_through.push((stretch.entry.clone(), stretch.directory_incarnation));
        next = match earlier_name(store, &stretch.entry)? {
            Some(earlier) => Some((earlier, false)),
            None => {
                let before = earlier_meaning(store, &gone_through)?;
                gone_through.clear();
                before.map(|earlier| (earlier, true))
            }
        };
    }
    match log.finish()? {
        true => Ok(()),
        false => Err(Error::NotFound),
    }
}

/// A directory that a path leads to.
struct Found {
    inode: InodeNo,
    incarnation: Incarnation,
    /// When it stopped being that.
    end: EventNo,
    /// The path no longer leads there.
    gone: bool,
}

/// The directory that a path leads to from another one. If a directory on the way is gone, the path goes on
/// in the last one that can be seen under its name.
fn directory_of(
    kept: &KeptEvents<'_>,
    directory: InodeNo,
    path: &[u8],
    end: EventNo,
    pass: Pass<'_>,
) -> Result<Found> {
    let store = kept.store;
    let incarnation = with(store, directory, before(end), |_, state| Ok(state.inode.incarnation))?;
    let mut found = Found { inode: directory, incarnation, end, gone: false };
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".") {
        let in_use = match found.gone {
            false => at_time::entry_named(store, found.inode, name, before(found.end))?,
            true => None,
        };
        let (entry, seen) = match in_use {
            Some(entry) => (entry, before(found.end)),
            None => {
                found.gone = true;
                let last = last_of(kept, &found, name)?.ok_or(Error::NotFound)?;
                (last.entry, last.event)
            }
        };
        if entry.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let end = found.end.min(entry.death);
        found = Found { inode: entry.inode, incarnation: entry.incarnation, end, gone: found.gone };
        pass(&with(store, entry.inode, seen, |_, state| Ok(Facts::of(&state.inode)))?)?;
    }
    Ok(found)
}

/// The last number before an end.
fn before(end: EventNo) -> EventNo {
    if end == PRESENT {
        PRESENT
    } else {
        EventNo(end.0.saturating_sub(1))
    }
}

/// The last meaning of a name that can be seen, up to an end: in a directory that is gone, or of a name that
/// means nothing any more.
fn last_of(kept: &KeptEvents<'_>, directory: &Found, name: &[u8]) -> Result<Option<last::Last>> {
    let (store, no, end) = (kept.store, directory.inode, directory.end);
    // An entry that the directory still had when it went has no end of its own, or a later one.
    let at_the_end = at_time::entry_named(store, no, name, before(end))?;
    let at_the_end = at_the_end.map(|entry| PastEntry { death: entry.death.min(end), ..entry });
    let earlier = last::meanings(store, no, name, at_the_end.as_ref().map_or(end, |entry| entry.birth));
    kept.last_seen((no, directory.incarnation), at_the_end.map(Ok).into_iter().chain(earlier))
}

/// Where a log begins.
struct Begin {
    first: Stretch,
    /// The first state is current as of this number.
    current: Option<EventNo>,
    gone: Option<Gone>,
}

fn begin(kept: &KeptEvents<'_>, above: &Found, name: &[u8]) -> Result<Begin> {
    let (store, directory, end, event) = (kept.store, above.inode, above.end, before(above.end));
    if name.is_empty() || name == b"." {
        return of_itself(store, directory, event);
    }
    if name == b".." || name.len() > yore_format::NAME_MAX {
        return Err(Error::NotFound);
    }
    let entry_at =
        |of: &[u8], event| at_time::entry_named(store, directory, of, event)?.ok_or(Error::NotFound);
    let from = (event != PRESENT).then_some(event);
    let literal = || Ok((name, event, Some(entry_at(name, event)?)));
    let then = |of, when: &When| Ok((of, at_time::lookup_at(store, directory, from, of, when)?.0, None));
    match at_time::resolve_name(name, literal, then)? {
        Resolved::Literal((.., Some(entry))) => {
            let first = stretch(store, entry.clone(), end.min(entry.death))?;
            Ok(Begin { first, current: Some(event), gone: None })
        }
        Resolved::AtTime((b".", event, _)) => of_itself(store, directory, event),
        Resolved::Literal((of, event, None)) | Resolved::AtTime((of, event, _)) => {
            let entry = entry_at(of, event)?;
            let first = stretch(store, entry.clone(), EventNo(event.0 + 1).min(entry.death))?;
            Ok(Begin { first, current: Some(event), gone: None })
        }
        Resolved::NothingThen | Resolved::Nothing => begin_gone(kept, above, name),
    }
}

fn begin_gone(kept: &KeptEvents<'_>, above: &Found, name: &[u8]) -> Result<Begin> {
    let entry = last_of(kept, above, name)?.ok_or(Error::NotFound)?.entry;
    let end = entry.death;
    let first = Stretch { entry, directory_incarnation: above.incarnation, end };
    let gone = what_went(kept, &first)?;
    Ok(Begin { first, current: None, gone: Some(gone) })
}

/// What is known about how a name went; this was its last stretch.
fn what_went(kept: &KeptEvents<'_>, last: &Stretch) -> Result<Gone> {
    let entry = &last.entry;
    let directory = (entry.directory, last.directory_incarnation);
    let without = join_spans(
        kept.of_directory(directory, entry.death, PRESENT)?,
        kept.own((entry.inode, entry.incarnation), entry.death, PRESENT),
    );
    let by = without.map(|(first, _)| kept.seen_by(first)).transpose()?;
    let moved = last::lived_on(kept, entry)?;
    let path = match moved {
        true => {
            let entry_then = at_time::name_of(kept.store, entry.inode, PRESENT)?;
            let entry_then = entry_then.filter(|entry_then| entry_then.incarnation == entry.incarnation);
            entry_then.map(|entry_then| path_of(kept.store, &entry_then, None)).transpose()?.flatten()
        }
        false => None,
    };
    Ok(Gone { by, moved, path })
}

fn of_itself(store: &Arc<Store>, directory: InodeNo, event: EventNo) -> Result<Begin> {
    let end = if event == PRESENT { PRESENT } else { EventNo(event.0 + 1) };
    let begin = |first| Begin { first, current: Some(event), gone: None };
    if let Some(entry) = at_time::name_of(store, directory, event)? {
        return stretch(store, entry, end).map(begin);
    }
    // The root directory, or the root of the event.
    let (incarnation, kind) = with(store, directory, event, |_, state| {
        Ok((state.inode.incarnation, FileKind::from_mode(state.inode.mode).unwrap_or(FileKind::Directory)))
    })?;
    let entry = PastEntry {
        directory,
        cookie: 0,
        birth: EventNo(0),
        death: PRESENT,
        inode: directory,
        incarnation,
        kind,
        name: Vec::new(),
    };
    Ok(begin(Stretch { entry, directory_incarnation: incarnation, end }))
}

/// The stretch of an entry, up to `end`.
fn stretch(store: &Arc<Store>, entry: PastEntry, end: EventNo) -> Result<Stretch> {
    let at = if end == PRESENT { PRESENT } else { EventNo(end.0.saturating_sub(1)) };
    let directory_incarnation = with(store, entry.directory, at, |_, state| Ok(state.inode.incarnation))?;
    Ok(Stretch { entry, directory_incarnation, end })
}

/// Where the inode of an entry was before the entry existed; `None` if the inode did not exist then, or if
/// nothing is known.
fn earlier_name(store: &Arc<Store>, entry: &PastEntry) -> Result<Option<Stretch>> {
    let Some(before) = entry.birth.0.checked_sub(1).map(EventNo).filter(|n| n.0 > 0) else { return Ok(None) };
    let entry_then = at_time::name_of(store, entry.inode, before)?;
    let Some(entry_then) = entry_then.filter(|entry_then| entry_then.incarnation == entry.incarnation) else {
        return Ok(None);
    };
    stretch(store, entry_then, entry.birth).map(Some).or_else(unknown)
}

/// What the first of these names meant before. If it meant nothing: what a later one of them meant, if the
/// inode replaced another one under that name at once. If a name was free in between, as temporary names are,
/// nobody knows whether its meanings belong together.
fn earlier_meaning(store: &Arc<Store>, names: &[(PastEntry, Incarnation)]) -> Result<Option<Stretch>> {
    for (i, (entry, of)) in names.iter().enumerate().filter(|(_, (entry, _))| !entry.name.is_empty()) {
        let before = store.past.name_before(store, entry.directory, &entry.name, entry.birth)?;
        if let Some(before) = before.filter(|before| i == 0 || before.death == entry.birth) {
            let end = before.death;
            return Ok(Some(Stretch { entry: before, directory_incarnation: *of, end }));
        }
    }
    Ok(None)
}

fn unknown<T>(error: Error) -> Result<Option<T>> {
    match error {
        // An event was forgotten, or the present has changed.
        Error::NotFound | Error::Stale => Ok(None),
        error => Err(error),
    }
}

/// Called with each directory on the way.
type Pass<'p> = &'p mut dyn FnMut(&Facts) -> Result<()>;

struct Log<'s, 'e> {
    store: &'s Arc<Store>,
    kept: KeptEvents<'s>,
    /// The state as of this number is the current one.
    at: Option<EventNo>,
    /// How the name of the log went, for the first state.
    gone: Option<Gone>,
    /// The last state found, which waits for the older one, with the number of the event that has seen it,
    /// and the directory.
    waiting: Option<(Logged, EventNo, InodeNo)>,
    is_any: bool,
    each: Each<'e, Logged>,
}

impl Log<'_, '_> {
    /// Adds the states of a stretch. Returns true if the caller wants no more.
    fn stretch(&mut self, stretch: &Stretch, replaced: bool) -> Result<bool> {
        let entry = &stretch.entry;
        let mut states = Vec::new();
        let last = self.at.take();
        at_time::each_state(self.store, entry.inode, entry.birth, stretch.end, &mut |inode, from, to| {
            if inode.incarnation == entry.incarnation {
                let current = last.is_some_and(|at| at == PRESENT && to == PRESENT || from <= at && at < to);
                states.push(State { from, to, span: None, current });
            }
            true
        })?;
        let mut is_new = replaced;
        for mut state in states {
            let directory = (entry.directory, stretch.directory_incarnation);
            let own = self.kept.own((entry.inode, entry.incarnation), state.from, state.to);
            let of_directory = self.kept.of_directory(directory, state.from, state.to)?;
            state.span = join_spans(own, of_directory);
            let Some(mut logged) = self.describe(entry, &state)? else { continue };
            logged.gone = self.gone.take();
            let seen = (state.span.map_or(PRESENT, |span| span.0), entry.directory);
            if self.add(logged, seen, is_new)? {
                return Ok(true);
            }
            is_new = false;
        }
        Ok(false)
    }

    /// `None` if no event has seen it.
    fn describe(&self, entry: &PastEntry, state: &State) -> Result<Option<Logged>> {
        let (first, last) = match state.span {
            Some((first, last)) => (Some(self.kept.seen_by(first)?), Some(self.kept.seen_by(last)?)),
            None if state.current => (None, None),
            None => return Ok(None),
        };
        let at = last.as_ref().map_or(PRESENT, |last| last.event.number);
        let at = if state.current && state.to == PRESENT { PRESENT } else { at };
        let Some(_seeing) = self.see(&[at]).map(Some).or_else(unknown)? else { return Ok(None) };
        let found = with(self.store, entry.inode, at, |_, state| Ok(Facts::of(&state.inode)));
        let Some(facts) = found.map(Some).or_else(unknown)? else { return Ok(None) };
        let event = last.as_ref().filter(|_| at != PRESENT).map(|last| &last.event);
        Ok(Some(Logged {
            path: path_of(self.store, entry, event)?,
            first,
            last,
            current: state.current,
            name: entry.name.clone(),
            kind: entry.kind,
            inode: entry.inode,
            incarnation: entry.incarnation,
            facts,
            what: What::empty(),
            renamed: false,
            replaced: false,
            oldest: true,
            gone: None,
            data: None,
        }))
    }

    /// Keeps those of these times that are events from becoming invisible.
    fn see(&self, times: &[EventNo]) -> Result<Seeing<'_>> {
        let events: Vec<EventNo> = times.iter().copied().filter(|time| *time != PRESENT).collect();
        self.store.past.see_all(&events)
    }

    /// Adds the next older state, which the event of this number, or the present, has seen in this directory.
    /// Returns true if the caller wants no more.
    fn add(&mut self, older: Logged, (at, directory): (EventNo, InodeNo), replaced: bool) -> Result<bool> {
        self.is_any = true;
        let Some((mut newer, newer_at, newer_directory)) = self.waiting.take() else {
            self.waiting = Some((older, at, directory));
            return Ok(false);
        };
        newer.oldest = false;
        newer.replaced = replaced;
        if !replaced {
            newer.renamed = (&newer.name, newer_directory) != (&older.name, directory);
            let seeing = self.see(&[at, newer_at]);
            let found = seeing.and_then(|_seeing| changes(self.store, newer.inode, at, newer_at));
            newer.what = found.map(Some).or_else(unknown)?.unwrap_or_default();
        }
        let is_same = !replaced && !newer.renamed && (newer.what - What::LINKS).is_empty();
        if is_same {
            let last = newer.last.or_else(|| older.last.clone());
            let (path, facts, gone) = (newer.path, newer.facts, newer.gone);
            let merged = Logged { last, current: newer.current, path, facts, gone, ..older };
            self.waiting = Some((merged, at, directory));
            return Ok(false);
        }
        self.waiting = Some((older, at, directory));
        Ok((self.each)(newer).is_break())
    }

    /// Reports the oldest state, if there is any.
    fn finish(mut self) -> Result<bool> {
        if let Some((oldest, ..)) = self.waiting.take() {
            // At the end it no longer matters whether the caller wants more.
            let _ = (self.each)(oldest);
        }
        Ok(self.is_any)
    }
}

/// The path that a name had: from the root of the event downwards as of the event, and above as it is now.
/// `None` if the root of the event is gone.
fn path_of(store: &Arc<Store>, entry: &PastEntry, event: Option<&Event>) -> Result<Option<Vec<u8>>> {
    let mut names = vec![entry.name.clone()];
    let (mut at, mut event) = (entry.directory, event);
    if event.is_some_and(|event| event.row.root == entry.inode) {
        event = None;
    }
    for _ in 0..DEPTH_MAX {
        if event.is_some_and(|event| event.row.root == at) {
            event = None;
        }
        if at == InodeNo::ROOT {
            names.reverse();
            names.retain(|name| !name.is_empty());
            return Ok(Some([b"/".as_slice(), &names.join(&b"/"[..])].concat()));
        }
        match at_time::name_of(store, at, event.map_or(PRESENT, |event| event.number))? {
            Some(entry_then) => {
                names.push(entry_then.name);
                at = entry_then.directory;
            }
            None => return Ok(None),
        }
    }
    Ok(None)
}
