//! What differs below a directory between two times.
//!
//! **What is looked at.** An inode that both times have seen and that differs has a version that ended
//! between the two. So the trees of changes, read from the earlier number to the later, name all such inodes,
//! and among them the directories whose names came or went. An inode that only one of the two has seen came
//! into the tree, or left it, by a name in such a directory, or below such a name.
//!
//! **Names.** The directories that changed yield the names *lost* and *gained*. A directory that was not
//! below the root before (or is not any more) yields all its names, and so on downwards. The names are then
//! grouped by inode: one lost and one gained is a rename. The remaining inodes that changed kept their names.
//!
//! **Damage.** What changed may be anywhere on the volume, and damage elsewhere is no concern of this
//! directory. An inode that cannot be read does not say where it is. So what cannot be read is left out, and
//! looked for afterwards: it fails the question if one of the two trees has it ([`Diff::check_damaged`]).

use super::answer::{Change, Difference, Facts, What};
use super::changes::changes;
use super::tree::{order, Tree};
use crate::go_on::{goes_on, GoOn, GO_ON, ROW_COST};
use crate::history::exclude;
use crate::history::read::at_time::{self, with, PRESENT};
use crate::history::record::{EndsWalk, PastEntry};
use crate::progress::Progress;
use crate::store::Store;
use crate::{Error, FileKind, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use yore_format::{EventNo, EventState, Incarnation};

/// What looking at one inode counts in the progress.
const PAIR_COST: u64 = 4096;
/// How many ends of versions are looked up at a time.
const BATCH: usize = 256;

type Identity = (InodeNo, Incarnation);

/// The differences in the order of paths.
///
/// # Errors
/// As [`crate::View::diff_while`].
pub(super) fn diff(
    store: &Arc<Store>,
    directory: InodeNo,
    times: (EventNo, EventNo),
    progress: &Progress,
    go_on: GoOn<'_>,
) -> Result<Vec<Difference>> {
    let (known, _unknown) = find(store, directory, times, false, progress, go_on)?;
    Ok(known)
}

/// The differences in the order of paths, together with inodes that have the same path at both times, but in
/// another directory of that path. No user needs to see such a move, but whoever moves the directories must
/// know of it. It is a rename whose old path equals the new one. The second list has the changes of which
/// nobody can say whether they are differences: the inode is excluded, and exists or is missing as of a
/// snapshot that a policy took.
///
/// # Errors
/// As [`crate::View::diff`].
pub(crate) fn with_moved(
    store: &Arc<Store>,
    directory: InodeNo,
    from: EventNo,
    to: EventNo,
) -> Result<(Vec<Difference>, Vec<Difference>)> {
    find(store, directory, (from, to), true, &Progress::default(), GO_ON)
}

fn find(
    store: &Arc<Store>,
    directory: InodeNo,
    (from, to): (EventNo, EventNo),
    with_moved: bool,
    progress: &Progress,
    go_on: GoOn<'_>,
) -> Result<(Vec<Difference>, Vec<Difference>)> {
    let mut diff = Diff::new(store, directory, (from, to), go_on)?;
    if from == to {
        return Ok((Vec::new(), Vec::new()));
    }
    let changed = diff.changed()?;
    progress.expect(changed.len() as u64 * PAIR_COST);
    for no in changed {
        goes_on(go_on, 0)?;
        let compared = skip_gone(diff.compare_inode(no));
        diff.unless_damaged(no, compared)?;
        progress.add(PAIR_COST);
    }
    diff.follow_names()?;
    let mut found = diff.finish(with_moved)?;
    diff.check_damaged()?;
    found.sort_by_cached_key(|difference| (order(&difference.path), difference.change as u8));
    let (mut known, mut unknown) = (Vec::with_capacity(found.len()), Vec::new());
    for one in found {
        let list = if diff.is_unknown(&one)? { &mut unknown } else { &mut known };
        list.push(one);
    }
    Ok((known, unknown))
}

/// Ignores that something vanished before it was compared.
fn skip_gone(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NotFound | Error::NotADirectory) => Ok(()),
        result => result,
    }
}

/// One of two times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    From,
    To,
}

/// The paths that an inode no longer has, and those that it has now.
struct Names {
    lost: Vec<Vec<u8>>,
    gained: Vec<Vec<u8>>,
    kind: FileKind,
}

/// Which name an inode has kept.
enum Kept {
    /// The only one, with this path.
    Name(FileKind, Vec<u8>),
    /// One of several, which is to be found.
    OfSeveral,
    /// None in the tree.
    No,
}

struct Diff<'s> {
    store: &'s Arc<Store>,
    directory: InodeNo,
    from: Tree<'s>,
    to: Tree<'s>,
    /// Those of the two times that are events; they must not become invisible during a look.
    events: Vec<EventNo>,
    lost: Vec<PastEntry>,
    gained: Vec<PastEntry>,
    /// Inodes of both times that differ in something that is shown.
    modified: HashMap<Identity, What>,
    /// Inodes that could not be compared, and why.
    damaged: HashMap<InodeNo, Error>,
    go_on: GoOn<'s>,
}

impl<'s> Diff<'s> {
    fn new(
        store: &'s Arc<Store>,
        directory: InodeNo,
        (from, to): (EventNo, EventNo),
        go_on: GoOn<'s>,
    ) -> Result<Diff<'s>> {
        let events: Vec<EventNo> = [from, to].into_iter().filter(|event| *event != PRESENT).collect();
        let mut identities = Vec::new();
        for side in [from, to] {
            let (incarnation, is_directory) = with(store, directory, side, |_, state| {
                Ok((state.inode.incarnation, state.inode.is_directory()))
            })?;
            if !is_directory {
                return Err(Error::NotADirectory);
            }
            if side != PRESENT {
                let event =
                    store.past.in_state(&store.meta, side, EventState::Kept).map_err(|e| match e {
                        Error::NotFound => Error::Stale,
                        e => e,
                    })?;
                if !at_time::covers(store, &event, directory)? {
                    return Err(Error::NotFound);
                }
            }
            identities.push(incarnation);
        }
        if identities[0] != identities[1] {
            return Err(Error::NotFound);
        }
        Ok(Diff {
            store,
            directory,
            from: Tree::new(store, directory, from),
            to: Tree::new(store, directory, to),
            events,
            lost: Vec::new(),
            gained: Vec::new(),
            modified: HashMap::new(),
            damaged: HashMap::new(),
            go_on,
        })
    }

    fn tree(&mut self, side: Side) -> &mut Tree<'s> {
        match side {
            Side::From => &mut self.from,
            Side::To => &mut self.to,
        }
    }

    /// What was found out about an inode; `None`, and a note for [`Diff::check_damaged`], if damage keeps
    /// that from being known.
    fn unless_damaged<T>(&mut self, no: InodeNo, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.is_damage() => {
                self.damaged.entry(no).or_insert(error);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Fails with the damage of an inode that is below the directory at one of the two times, or that is the
    /// directory. O(entries below), if anything is damaged.
    fn check_damaged(&mut self) -> Result<()> {
        if let Some(error) = self.damaged.remove(&self.directory) {
            return Err(error);
        }
        if self.damaged.is_empty() {
            return Ok(());
        }
        for event in [self.from.event, self.to.event] {
            let (mut left, mut met) = (vec![self.directory], HashSet::new());
            while let Some(directory) = left.pop() {
                if !met.insert(directory) {
                    continue;
                }
                goes_on(self.go_on, 0)?;
                let _seeing = self.store.past.see_all(&self.events)?;
                for entry in at_time::entries(self.store, directory, event)? {
                    if let Some(error) = self.damaged.remove(&entry.inode) {
                        return Err(error);
                    }
                    if entry.kind == FileKind::Directory {
                        left.push(entry.inode);
                    }
                }
            }
        }
        for (no, error) in &self.damaged {
            tracing::warn!("inode {no}, which is elsewhere, cannot be compared: {error}");
        }
        Ok(())
    }

    /// The inodes of which a version ended between the two times, and a few more. O(versions and names that
    /// ended then).
    fn changed(&self) -> Result<BTreeSet<InodeNo>> {
        let (after, last) = (self.from.event.min(self.to.event), self.from.event.max(self.to.event));
        let mut changed = BTreeSet::from([self.directory]);
        let mut walk = EndsWalk::of(after, last);
        while let Some(ended) = self.store.past.next_ended(&self.store.meta, &mut walk, BATCH)? {
            goes_on(self.go_on, 0)?;
            changed.extend(ended.iter().filter(|one| one.cookie == 0).map(|one| one.inode));
        }
        Ok(changed)
    }

    /// The inode as of one of the two times; `None` if there was none.
    fn facts(&self, no: InodeNo, event: EventNo) -> Result<Option<(Incarnation, Facts)>> {
        match with(self.store, no, event, |_, state| Ok((state.inode.incarnation, Facts::of(&state.inode)))) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Enters how an inode that may have changed differs.
    fn compare_inode(&mut self, no: InodeNo) -> Result<()> {
        let _seeing = self.store.past.see_all(&self.events)?;
        let (Some(was), Some(is)) = (self.facts(no, self.from.event)?, self.facts(no, self.to.event)?) else {
            return Ok(());
        };
        if was.0 != is.0 {
            return Ok(());
        }
        let is_directory = FileKind::from_mode(is.1.mode) == Some(FileKind::Directory);
        if is_directory && !(self.from.has(no)? && self.to.has(no)?) {
            return Ok(());
        }
        // An inode that exists, but that no way leads to, is below something that is missing (E1 of what
        // policies exclude).
        for side in [Side::From, Side::To] {
            if !is_directory && self.may_miss(side) && !self.is_reached(no, side)? {
                return Ok(());
            }
        }
        let (older, newer) = (self.from.event.min(self.to.event), self.from.event.max(self.to.event));
        let what = changes(self.store, no, older, newer)?;
        if is_directory {
            self.compare_names(no)?;
        }
        let shown = match is_directory {
            true => what & (What::METADATA | What::XATTRS),
            false => what,
        };
        if !(shown - What::LINKS).is_empty() {
            self.modified.insert((no, is.0), shown);
        }
        Ok(())
    }

    /// Whether excluded inodes may be missing at one of the two times.
    fn may_miss(&self, side: Side) -> bool {
        let event = if side == Side::From { self.from.event } else { self.to.event };
        event != PRESENT && self.store.past.may_miss(&self.store.meta, event)
    }

    /// Whether a file that has one name can be reached by it.
    fn is_reached(&mut self, no: InodeNo, side: Side) -> Result<bool> {
        let event = self.tree(side).event;
        match at_time::name_of(self.store, no, event)? {
            Some(entry_then) => self.tree(side).has(entry_then.directory),
            None => Ok(true),
        }
    }

    /// Whether an inode of both times had, at the first, a name that it has at the second. An inode whose
    /// names did not change had it, unless a directory may be missing: then nobody has compared its names.
    fn had_name(&mut self, of: Identity, directory: InodeNo, name: &[u8]) -> Result<bool> {
        if !self.may_miss(Side::From) && !self.may_miss(Side::To) {
            return Ok(true);
        }
        if !self.from.has(directory)? {
            return Ok(false);
        }
        let entry = at_time::entry_named(self.store, directory, name, self.from.event)?;
        Ok(entry.is_some_and(|entry| (entry.inode, entry.incarnation) == of))
    }

    /// Whether one of the two times cannot tell about what exists at the other: a policy took that event, and
    /// what came or went is excluded now.
    fn is_unknown(&self, one: &Difference) -> Result<bool> {
        let lacks = match one.change {
            Change::Added => Side::From,
            Change::Removed => Side::To,
            Change::Modified | Change::Renamed => return Ok(false),
        };
        if !self.may_miss(lacks) {
            return Ok(false);
        }
        match self.store.cell_if_used(one.inode)? {
            Some(cell) if cell.incarnation == one.incarnation => exclude::is_excluded(self.store, &cell),
            _ => Ok(false),
        }
    }

    /// Enters the names that a directory, which is in the tree at both times, has lost and gained.
    fn compare_names(&mut self, directory: InodeNo) -> Result<()> {
        let from = at_time::entries(self.store, directory, self.from.event)?;
        let to = at_time::entries(self.store, directory, self.to.event)?;
        let (mut from, mut to) = (from.into_iter().peekable(), to.into_iter().peekable());
        // Both lists are in the order of cookies. A name may have come back under another cookie of its hash;
        // that is sorted out later.
        loop {
            let order = match (from.peek(), to.peek()) {
                (Some(a), Some(b)) => a.cookie.cmp(&b.cookie),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return Ok(()),
            };
            let a = if order.is_le() { from.next() } else { None };
            let b = if order.is_ge() { to.next() } else { None };
            let same = |a: &PastEntry, b: &PastEntry| {
                (a.inode, a.incarnation, &a.name) == (b.inode, b.incarnation, &b.name)
            };
            if a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| same(a, b)) {
                continue;
            }
            for (side, name) in [(Side::From, a), (Side::To, b)] {
                name.map_or(Ok(()), |name| self.note(side, name))?;
            }
        }
    }

    /// Enters a name that was lost, or that was gained.
    fn note(&mut self, side: Side, name: PastEntry) -> Result<()> {
        goes_on(self.go_on, ROW_COST + name.name.len())?;
        match side {
            Side::From => self.lost.push(name),
            Side::To => self.gained.push(name),
        }
        Ok(())
    }

    /// Enters all names below directories that came into the tree or left it.
    fn follow_names(&mut self) -> Result<()> {
        for side in [Side::From, Side::To] {
            let names = if side == Side::From { &self.lost } else { &self.gained };
            let directories = |names: &[PastEntry]| -> Vec<Identity> {
                let directories = names.iter().filter(|name| name.kind == FileKind::Directory);
                directories.map(|name| (name.inode, name.incarnation)).collect()
            };
            let mut left = directories(names);
            let mut met = HashSet::new();
            while let Some((no, incarnation)) = left.pop() {
                if !met.insert(no) {
                    continue;
                }
                let other = if side == Side::From { Side::To } else { Side::From };
                let _seeing = self.store.past.see_all(&self.events)?;
                let event = self.tree(other).event;
                let is_same = self.facts(no, event)?.is_some_and(|(found, _)| found == incarnation);
                if is_same && self.tree(other).has(no)? {
                    continue;
                }
                let event = self.tree(side).event;
                let entries = at_time::entries(self.store, no, event)?;
                left.extend(directories(&entries));
                entries.into_iter().try_for_each(|name| self.note(side, name))?;
            }
        }
        Ok(())
    }

    /// All differences, and with `with_moved` also what moved to the same path.
    fn finish(&mut self, with_moved: bool) -> Result<Vec<Difference>> {
        let (mut found, mut new_paths) = (Vec::new(), HashMap::new());
        for (of, mut names) in self.names_by_inode()? {
            names.lost.sort_unstable();
            names.gained.sort_unstable();
            // The same path under another cookie, or in another directory of that path: nothing has changed.
            let kept: HashSet<Vec<u8>> =
                names.lost.iter().filter(|path| names.gained.binary_search(path).is_ok()).cloned().collect();
            names.lost.retain(|path| !kept.contains(path));
            names.gained.retain(|path| !kept.contains(path));
            let moved: Vec<Vec<u8>> = if with_moved { kept.into_iter().collect() } else { Vec::new() };
            if self.modified.contains_key(&of) {
                new_paths.insert(of, names.gained.iter().chain(&moved).cloned().collect());
            }
            for path in moved {
                let old = Some(path.clone());
                found.extend(self.difference(Change::Renamed, of, names.kind, path, old)?);
            }
            let (mut lost, mut gained) = (names.lost.into_iter(), names.gained.into_iter());
            loop {
                let (change, path, old_path) = match (lost.next(), gained.next()) {
                    (Some(old), Some(new)) => (Change::Renamed, new, Some(old)),
                    (Some(old), None) => (Change::Removed, old, None),
                    (None, Some(new)) => (Change::Added, new, None),
                    (None, None) => break,
                };
                found.extend(self.difference(change, of, names.kind, path, old_path)?);
            }
        }
        self.add_modified(&new_paths, &mut found)?;
        Ok(found)
    }

    /// The paths of all names that were lost and gained.
    fn names_by_inode(&mut self) -> Result<HashMap<Identity, Names>> {
        let mut by_inode: HashMap<Identity, Names> = HashMap::new();
        let (lost, gained) = (std::mem::take(&mut self.lost), std::mem::take(&mut self.gained));
        for (side, names) in [(Side::From, lost), (Side::To, gained)] {
            let _seeing = self.store.past.see_all(&self.events)?;
            for entry in names {
                let Some(path) = self.tree(side).path_of(entry.directory, &entry.name)? else { continue };
                goes_on(self.go_on, path.len())?;
                let new = || Names { lost: Vec::new(), gained: Vec::new(), kind: entry.kind };
                let of = by_inode.entry((entry.inode, entry.incarnation)).or_insert_with(new);
                match side {
                    Side::From => of.lost.push(path),
                    Side::To => of.gained.push(path),
                }
            }
        }
        Ok(by_inode)
    }

    /// Adds modified inodes that have kept their names.
    fn add_modified(
        &mut self,
        new_paths: &HashMap<Identity, HashSet<Vec<u8>>>,
        found: &mut Vec<Difference>,
    ) -> Result<()> {
        let modified: Vec<Identity> = self.modified.keys().copied().collect();
        let (mut named, mut of_several_names) = (Vec::new(), HashSet::new());
        for of in modified {
            goes_on(self.go_on, 0)?;
            let kept = self.name_kept(of);
            match self.unless_damaged(of.0, kept)? {
                Some(Kept::Name(kind, path)) => {
                    goes_on(self.go_on, ROW_COST + path.len())?;
                    named.push((of, kind, path));
                }
                Some(Kept::OfSeveral) => drop(of_several_names.insert(of)),
                Some(Kept::No) | None => {}
            }
        }
        if !of_several_names.is_empty() {
            named.extend(self.names_of(&of_several_names)?);
        }
        for (of, kind, path) in named {
            if new_paths.get(&of).is_none_or(|paths| !paths.contains(&path)) {
                let _seeing = self.store.past.see_all(&self.events)?;
                found.extend(self.difference(Change::Modified, of, kind, path, None)?);
            }
        }
        Ok(())
    }

    /// Under which name a modified inode is in the tree at both times.
    fn name_kept(&mut self, of: Identity) -> Result<Kept> {
        let _seeing = self.store.past.see_all(&self.events)?;
        let Some((_, facts)) = self.facts(of.0, self.to.event)? else { return Ok(Kept::No) };
        let kind = FileKind::from_mode(facts.mode).unwrap_or(FileKind::Regular);
        if of.0 == self.directory {
            return Ok(Kept::Name(kind, Vec::new()));
        }
        match at_time::name_of(self.store, of.0, self.to.event)? {
            Some(entry_then) if kind == FileKind::Directory || facts.links == 1 => {
                let had = self.had_name(of, entry_then.directory, &entry_then.name)?;
                let path = self.to.path_of(entry_then.directory, &entry_then.name)?.filter(|_| had);
                Ok(path.map_or(Kept::No, |path| Kept::Name(kind, path)))
            }
            _ => Ok(Kept::OfSeveral),
        }
    }

    /// All paths that some files have below the directory, as of the second time. O(entries below).
    fn names_of(&mut self, wanted: &HashSet<Identity>) -> Result<Vec<(Identity, FileKind, Vec<u8>)>> {
        let (mut left, mut met, mut found) = (vec![self.directory], HashSet::new(), Vec::new());
        while let Some(directory) = left.pop() {
            if !met.insert(directory) {
                continue;
            }
            goes_on(self.go_on, 0)?;
            let _seeing = self.store.past.see_all(&self.events)?;
            for entry in at_time::entries(self.store, directory, self.to.event)? {
                let of = (entry.inode, entry.incarnation);
                if entry.kind == FileKind::Directory {
                    left.push(entry.inode);
                } else if wanted.contains(&of) && self.had_name(of, directory, &entry.name)? {
                    let path = self.to.path_of(directory, &entry.name)?;
                    goes_on(self.go_on, ROW_COST + path.as_ref().map_or(0, Vec::len))?;
                    found.extend(path.map(|path| (of, entry.kind, path)));
                }
            }
        }
        Ok(found)
    }

    /// A difference; `None` if its inode has vanished meanwhile.
    fn difference(
        &self,
        change: Change,
        of: Identity,
        kind: FileKind,
        path: Vec<u8>,
        old_path: Option<Vec<u8>>,
    ) -> Result<Option<Difference>> {
        let at = |event: EventNo, is_wanted: bool| -> Result<Option<Facts>> {
            let found = if is_wanted { self.facts(of.0, event)? } else { None };
            Ok(found.filter(|(incarnation, _)| *incarnation == of.1).map(|(_, facts)| facts))
        };
        let before = at(self.from.event, change != Change::Added)?;
        let after = at(self.to.event, change != Change::Removed)?;
        // If an inode is missing under its old name, it is new to the user.
        let is_new = change == Change::Renamed && before.is_none() && self.may_miss(Side::From);
        let (change, old_path) = if is_new { (Change::Added, None) } else { (change, old_path) };
        let is_there = match change {
            Change::Added => after.is_some(),
            Change::Removed => before.is_some(),
            Change::Modified | Change::Renamed => before.is_some() && after.is_some(),
        };
        let what = match change {
            Change::Modified | Change::Renamed => self.modified.get(&of).copied().unwrap_or_default(),
            Change::Added | Change::Removed => What::empty(),
        };
        let (inode, incarnation) = of;
        Ok(is_there.then_some(Difference {
            change,
            kind,
            inode,
            incarnation,
            path,
            old_path,
            what,
            before,
            after,
        }))
    }
}
