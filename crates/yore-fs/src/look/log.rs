//! What a name meant over time.
//!
//! The log is made of *stretches*: as long as one inode was under one name. Before that it was under another name, which the inode
//! as of then tells; that is the next stretch. If it was not there before, the name may have meant another inode (an editor writes a
//! new file and renames it over the old one): then that is the next, of the latest of the names gone through that meant something.
//! In a stretch each version of the inode is a state, if a kept cut has seen the directory while it was so.

use super::changes::changes;
use super::kept::{KeptCuts, Span};
use super::{Each, Facts, Logged, What};
use crate::history::{self, with, PRESENT};
use crate::inode::DEPTH_MAX;
use crate::past::{Cut, PastEntry, Seeing};
use crate::store::Store;
use crate::{Error, FileKind, InodeNo, Result};
use std::sync::Arc;
use yore_format::{Incarnation, Number};

/// As long as one inode was under one name, `entry.birth..end`.
struct Stretch {
    /// The name; of the root directory an empty one.
    entry: PastEntry,
    directory_incarnation: Incarnation,
    end: Number,
}

/// A state in a stretch, not yet compared with the one before.
struct State {
    from: Number,
    to: Number,
    span: Span,
    current: bool,
}

/// Calls `each` with the states of what a name means in a directory as of `cut`, latest first.
///
/// # Errors
/// As [`crate::View::log`].
pub(super) fn log(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    cut: Number,
    each: Each<'_, Logged>,
) -> Result<()> {
    let kept = KeptCuts::load(store)?;
    let (first, at) = begin(store, directory, name, cut)?;
    let mut log = Log { store, kept, at, waiting: None, is_any: false, each };
    let mut gone_through: Vec<PastEntry> = Vec::new();
    let mut next = Some((first, false));
    while let Some((stretch, replaced)) = next {
        if log.stretch(&stretch, replaced)? {
            return Ok(());
        }
        gone_through.push(stretch.entry.clone());
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

/// Where the log begins: the first stretch, and the number as of which the first state is current.
fn begin(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    cut: Number,
) -> Result<(Stretch, Option<Number>)> {
    if name.is_empty() || name == b"." {
        return of_itself(store, directory, cut).map(|stretch| (stretch, Some(cut)));
    }
    if name == b".." || name.len() > yore_format::NAME_MAX {
        return Err(Error::NotFound);
    }
    let end = |entry: &PastEntry| if cut == PRESENT { PRESENT } else { Number(cut.0 + 1).min(entry.death) };
    if let Some(entry) = history::entry_named(store, directory, name, cut)? {
        let end = end(&entry);
        return Ok((stretch(store, entry, end)?, Some(cut)));
    }
    if let Some((of, when)) = history::split_time(name) {
        let from = (cut != PRESENT).then_some(cut);
        match history::look_back(store, directory, from, of, &when) {
            Ok((cut, _)) if of == b"." => return of_itself(store, directory, cut).map(|s| (s, Some(cut))),
            Ok((cut, _)) => {
                let entry = history::entry_named(store, directory, of, cut)?.ok_or(Error::NotFound)?;
                let end = Number(cut.0 + 1).min(entry.death);
                return Ok((stretch(store, entry, end)?, Some(cut)));
            }
            Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    // What is gone.
    let entry = store.past.name_before(store, directory, name, cut)?.ok_or(Error::NotFound)?;
    let end = entry.death;
    Ok((stretch(store, entry, end)?, None))
}

fn of_itself(store: &Arc<Store>, directory: InodeNo, cut: Number) -> Result<Stretch> {
    let end = if cut == PRESENT { PRESENT } else { Number(cut.0 + 1) };
    if let Some(entry) = history::place(store, directory, cut)? {
        return stretch(store, entry, end);
    }
    // The root directory, or the one that was cut.
    let (incarnation, kind) = with(store, directory, cut, |_, state| {
        Ok((state.inode.incarnation, FileKind::from_mode(state.inode.mode).unwrap_or(FileKind::Directory)))
    })?;
    let entry = PastEntry {
        directory,
        cookie: 0,
        birth: Number(0),
        death: PRESENT,
        inode: directory,
        incarnation,
        kind,
        name: Vec::new(),
    };
    Ok(Stretch { entry, directory_incarnation: incarnation, end })
}

/// A stretch up to `end` under an entry.
fn stretch(store: &Arc<Store>, entry: PastEntry, end: Number) -> Result<Stretch> {
    let at = if end == PRESENT { PRESENT } else { Number(end.0.saturating_sub(1)) };
    let directory_incarnation = with(store, entry.directory, at, |_, state| Ok(state.inode.incarnation))?;
    Ok(Stretch { entry, directory_incarnation, end })
}

/// Where the inode of an entry was before it was there; `None` if it was not, or nobody knows.
fn earlier_name(store: &Arc<Store>, entry: &PastEntry) -> Result<Option<Stretch>> {
    let Some(before) = entry.birth.0.checked_sub(1).map(Number).filter(|n| n.0 > 0) else { return Ok(None) };
    let place = history::place(store, entry.inode, before)?;
    let Some(place) = place.filter(|place| place.incarnation == entry.incarnation) else { return Ok(None) };
    stretch(store, place, entry.birth).map(Some).or_else(unknown)
}

/// What the first of these names meant before, or the first after it under which the inode took another one's place at once: of names that
/// were free in between, as temporary ones are, nobody knows that they belong together.
fn earlier_meaning(store: &Arc<Store>, names: &[PastEntry]) -> Result<Option<Stretch>> {
    for (i, entry) in names.iter().enumerate().filter(|(_, entry)| !entry.name.is_empty()) {
        let before = store.past.name_before(store, entry.directory, &entry.name, entry.birth)?;
        if let Some(before) = before.filter(|before| i == 0 || before.death == entry.birth) {
            let end = before.death;
            return stretch(store, before, end).map(Some).or_else(unknown);
        }
    }
    Ok(None)
}

fn unknown<T>(error: Error) -> Result<Option<T>> {
    match error {
        // A cut was forgotten, or the present has changed.
        Error::NotFound | Error::Stale => Ok(None),
        error => Err(error),
    }
}

struct Log<'s, 'e> {
    store: &'s Arc<Store>,
    kept: KeptCuts<'s>,
    /// As of which the state is current that has it.
    at: Option<Number>,
    /// The last state found, which waits for the one before it; with the number of who has seen it, and the directory.
    waiting: Option<(Logged, Number, InodeNo)>,
    is_any: bool,
    each: Each<'e, Logged>,
}

impl Log<'_, '_> {
    /// The states of a stretch. True if nobody wants more.
    fn stretch(&mut self, stretch: &Stretch, replaced: bool) -> Result<bool> {
        let entry = &stretch.entry;
        let mut states = Vec::new();
        let last = self.at.take();
        history::each_state(self.store, entry.inode, entry.birth, stretch.end, &mut |inode, from, to| {
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
            state.span = match (own, of_directory) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (own, of_directory) => own.or(of_directory),
            };
            let Some(logged) = self.describe(entry, &state)? else { continue };
            let seen = (state.span.map_or(PRESENT, |span| span.0), entry.directory);
            if self.add(logged, seen, is_new)? {
                return Ok(true);
            }
            is_new = false;
        }
        Ok(false)
    }

    /// `None` if nobody has seen it.
    fn describe(&self, entry: &PastEntry, state: &State) -> Result<Option<Logged>> {
        let (first, last) = match state.span {
            Some((first, last)) => (Some(self.kept.seen_by(first)?), Some(self.kept.seen_by(last)?)),
            None if state.current => (None, None),
            None => return Ok(None),
        };
        let at = last.as_ref().map_or(PRESENT, |last| last.cut.number);
        let at = if state.current && state.to == PRESENT { PRESENT } else { at };
        let Some(_seeing) = self.see(&[at]).map(Some).or_else(unknown)? else { return Ok(None) };
        let found = with(self.store, entry.inode, at, |_, state| Ok(Facts::of(&state.inode)));
        let Some(facts) = found.map(Some).or_else(unknown)? else { return Ok(None) };
        let cut = last.as_ref().filter(|_| at != PRESENT).map(|last| &last.cut);
        Ok(Some(Logged {
            path: self.path(entry, cut)?,
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
        }))
    }

    /// Keeps those that are cuts from becoming invisible.
    fn see(&self, times: &[Number]) -> Result<Seeing<'_>> {
        let cuts: Vec<Number> = times.iter().copied().filter(|time| *time != PRESENT).collect();
        self.store.past.see_all(&cuts)
    }

    /// The next older state, seen by a cut of this number or by the present, in this directory. True if nobody wants more.
    fn add(&mut self, older: Logged, (at, directory): (Number, InodeNo), replaced: bool) -> Result<bool> {
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
            let (path, facts) = (newer.path, newer.facts);
            let merged = Logged { last, current: newer.current, path, facts, ..older };
            self.waiting = Some((merged, at, directory));
            return Ok(false);
        }
        self.waiting = Some((older, at, directory));
        Ok((self.each)(newer).is_break())
    }

    /// The oldest state is told, if there is any.
    fn finish(mut self) -> Result<bool> {
        if let Some((oldest, ..)) = self.waiting.take() {
            // Whether anybody wants more does not matter any more.
            let _ = (self.each)(oldest);
        }
        Ok(self.is_any)
    }

    /// The path that a name had: as of the cut from what was cut downwards, above as it is now. `None` if that is gone.
    fn path(&self, entry: &PastEntry, cut: Option<&Cut>) -> Result<Option<Vec<u8>>> {
        let mut names = vec![entry.name.clone()];
        let (mut at, mut cut) = (entry.directory, cut);
        if cut.is_some_and(|cut| cut.row.root == entry.inode) {
            cut = None;
        }
        for _ in 0..DEPTH_MAX {
            if cut.is_some_and(|cut| cut.row.root == at) {
                cut = None;
            }
            if at == InodeNo::ROOT {
                names.reverse();
                names.retain(|name| !name.is_empty());
                return Ok(Some([b"/".as_slice(), &names.join(&b"/"[..])].concat()));
            }
            match history::place(self.store, at, cut.map_or(PRESENT, |cut| cut.number))? {
                Some(place) => {
                    names.push(place.name);
                    at = place.directory;
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}
