//! Forgetting: cuts are given up, and with them what nobody else has seen.
//!
//! A cut that is to be forgotten becomes *dying*: nobody sees it any more, and it still counts as a cut for whoever asks what
//! covers an inode ([`crate::past`]), for it may not have died on the medium yet. When it has, nothing is kept for it any more (P5),
//! and what only dying cuts have seen is given up, a version or a name at a time, each in one Op with all that it alone holds. When none is left, the cut is
//! *forgotten*: its row goes to a tree of its own and holds nothing. All of this can stop at any point, in a crash too, and
//! goes on where it was: what was given up is not found again.
//!
//! **What is needed** ([`Needed`], V9). A version [b, e) is needed exactly if a kept cut with a number in that span covers the
//! inode as it was then: a cut of itself, or of a directory above it at that moment. So the way upwards is followed through
//! what the directories were in that span. A name is needed if a kept cut of its span covers its directory. Of what is
//! not known (files of several names, and without a name) any kept cut of a directory in the span will do. To need too much costs space.
//!
//! **What only this version holds** ([`Alone`]). Of its chain (the states of one incarnation) the version before it holds what was
//! born before that one's end; what the next state, a version or the inode in use, has in the same place is that one's, too; and
//! what is held by two states is held by all between them. So two walks tell: that of the next state as far as it was made
//! since, and that of the version as far as it is neither of the one before nor of the next. They read what differs.
//!
//! **F1 No change meanwhile.** The inode in use keeps its extents while its io lock is held, and its other trees and what it takes for
//! kept ([`InodeState::kept`]) while its state is. Both are held until the Op has ended; then what the version shared with it
//! and with nobody before is its own.
//!
//! **F2 What others do meanwhile does not count.** Cuts that are taken while this goes on have numbers from that on which was the next when it
//! began; so nothing that ended later is looked at: it may be what they have seen. Nothing that ends earlier comes to be for
//! the cuts that are dying. A directory that was looked at as it is, and becomes a version then, is met again as that.
//!
//! **F3 Which are looked at.** The tree of changes has an entry at the end of each version and name. What a dying cut has seen
//! ended behind it; what ended behind the next kept cut of the same directory, or of the volume, is seen by that one, unless
//! something above it was moved in between. That is found when the later cut is forgotten.

use crate::alloc::{KeptGroups, Run};
use crate::btree::Tree;
use crate::extent::{self, Extent};
use crate::history::each_state;
use crate::past::{Cut, Ended};
use crate::store::Store;
use crate::{expunge, held, symlink, xattr, Error, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_format::{ContentKind, CutState, HistoryGrowth, Inode, MetaAddr, Number, Version, HISTORY_SHARDS};
use yore_meta::{Frame, Op};

/// Ends of versions and names looked up at a time.
const BATCH: usize = 256;

/// How far forgetting has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgetting {
    /// Versions and names looked at.
    pub looked_at: u64,
    /// Versions and names given up.
    pub given_up: u64,
    /// Blocks freed, of data and of metadata.
    pub blocks: u64,
    /// Cuts forgotten.
    pub forgotten: u64,
    /// Cuts still dying.
    pub dying: u64,
    /// Files whose history is given up, all of it.
    pub expunged: u64,
    /// And of which some is left.
    pub expunging: u64,
}

/// What asks how far it has come, and whether to go on.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(&Forgetting) -> ControlFlow<()>;

/// Marks cuts, unless one of them cannot be; durable when it returns. [`finish`] does the rest.
///
/// # Errors
/// [`Error::NotFound`] if one is not kept, [`Error::Held`], [`Error::Pinned`]; damage and device errors.
pub(crate) fn begin(store: &Arc<Store>, cuts: &[Number]) -> Result<()> {
    store.check_writable()?;
    let cuts: BTreeSet<Number> = cuts.iter().copied().collect();
    store.past.mark_dying(store, &cuts.into_iter().collect::<Vec<_>>())?;
    force(store)
}

/// What is marked is so on the medium, too, when this returns.
fn force(store: &Store) -> Result<()> {
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::ForgottenUnforced) {
        return Ok(());
    }
    store.force()
}

/// Gives up what dying cuts alone have seen, until none is left or `ask` breaks. One caller at a time; others wait.
///
/// # Errors
/// Damage and device errors. What was not given up is next time.
pub(crate) fn finish(store: &Arc<Store>, ask: Ask<'_>) -> Result<Forgetting> {
    store.check_writable()?;
    let _alone = store.past.forgetting.lock();
    let mut so_far = Forgetting::default();
    loop {
        let dying = store.past.dying();
        so_far.dying = dying.len() as u64;
        so_far.expunging = store.past.expunging.count() as u64;
        if (so_far.dying, so_far.expunging) == (0, 0) || ask(&so_far).is_break() {
            return Ok(so_far);
        }
        if expunge::go_on(store, &mut so_far, ask)?.is_break() {
            return Ok(so_far);
        }
        // They may have been marked by who could not wait for it.
        force(store)?;
        store.past.note_dead(&dying);
        let mut work = Work { store, needed: Needed::load(store)?, so_far };
        let done = work.give_up(&dying, ask)?;
        so_far = work.so_far;
        if done.is_break() {
            return Ok(so_far);
        }
        for cut in dying {
            store.past.mark_forgotten(store, cut)?;
            so_far.forgotten += 1;
            so_far.dying -= 1;
        }
    }
}

struct Work<'s> {
    store: &'s Arc<Store>,
    needed: Needed<'s>,
    so_far: Forgetting,
}

impl Work<'_> {
    fn give_up(&mut self, dying: &[Number], ask: Ask<'_>) -> Result<ControlFlow<()>> {
        let mut others = Vec::new();
        let progress = &self.store.giving_up;
        progress.restart(dying.len() as u64);
        for (i, cut) in dying.iter().enumerate() {
            let found = self.store.past.in_state(&self.store.meta, *cut, CutState::Dying)?;
            if !found.row.kind.is_of_file() || !self.seen_by(found.row.root, *cut)? {
                others.push(*cut);
            }
            progress.add(1);
            if i % BATCH == BATCH - 1 && ask(&self.so_far).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let spans = self.needed.spans(&others)?;
        // What ended is spread over the numbers.
        let numbers = |(after, last): &(Number, Number)| last.0.saturating_sub(after.0);
        progress.expect(spans.iter().map(numbers).sum::<u64>().saturating_mul(HISTORY_SHARDS as u64));
        for (after, last) in spans {
            for shard in 0..HISTORY_SHARDS {
                let mut at = Ended { end: after, inode: InodeNo(u64::MAX), cookie: u64::MAX };
                loop {
                    let ended = self.store.past.ended(&self.store.meta, shard, at, last, BATCH)?;
                    for one in &ended {
                        self.look_at(one)?;
                        self.so_far.looked_at += 1;
                    }
                    let Some(end) = ended.last().filter(|_| ended.len() == BATCH) else {
                        progress.add(last.0.saturating_sub(at.end.0));
                        break;
                    };
                    progress.add(end.end.0.saturating_sub(at.end.0));
                    at = *end;
                    if ask(&self.so_far).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Looks at what a cut of a single file has seen: one version, and its name. False if it may have had others, or nothing is known.
    fn seen_by(&mut self, file: InodeNo, cut: Number) -> Result<bool> {
        let (past, meta) = (&self.store.past, &self.store.meta);
        let version = past.version(meta, file, cut)?.filter(|version| cut < version.end);
        let place = |inode: &Inode| has_one_name(inode).then_some((inode.parent, inode.parent_cookie));
        let name = match &version {
            Some(version) => place(&version.inode),
            None => match self.store.cell(file) {
                Ok(cell) => {
                    Some(cell.state.read()).filter(|s| s.inode.born <= cut).and_then(|s| place(&s.inode))
                }
                Err(Error::Stale) => None,
                Err(e) => return Err(e),
            },
        };
        let death = match name {
            Some((directory, cookie)) => {
                past.name_as_of(meta, directory, cookie, cut)?.map(|name| name.death)
            }
            None => None,
        };
        let ended = version.map(|version| Ended { end: version.end, inode: file, cookie: 0 });
        let named = name.zip(death).map(|((inode, cookie), end)| Ended { end, inode, cookie });
        let next = self.needed.next;
        for ended in ended.into_iter().chain(named).filter(|ended| ended.end <= next) {
            self.look_at(&ended)?;
            self.so_far.looked_at += 1;
        }
        Ok(name.is_some())
    }

    fn look_at(&mut self, ended: &Ended) -> Result<()> {
        let freed = match ended.cookie {
            0 => self.version(ended)?,
            _ => self.name(ended)?,
        };
        if let Some(blocks) = freed {
            self.so_far.given_up += 1;
            self.so_far.blocks += blocks;
        }
        Ok(())
    }

    /// Gives up a name if it is not needed.
    fn name(&mut self, ended: &Ended) -> Result<Option<u64>> {
        let Some(name) = self.store.past.name_that_ended(&self.store.meta, ended)? else { return Ok(None) };
        let birth = name.birth;
        if self.needed.has_cut(name.inode, birth, ended.end)
            || self.needed.in_directory(ended.inode, birth, ended.end)?
        {
            return Ok(None);
        }
        self.store.past.remove_name(self.store, ended, birth)?;
        Ok(Some(0))
    }

    /// Gives up a version if it is not needed; the blocks that this freed.
    fn version(&mut self, ended: &Ended) -> Result<Option<u64>> {
        let store = self.store;
        let version = store.past.version(&store.meta, ended.inode, Number(ended.end.0 - 1))?;
        let Some(version) = version.filter(|version| version.end == ended.end) else { return Ok(None) };
        let is_needed = self.needed.version(ended.inode, &version)?;
        #[cfg(feature = "mutations")]
        let is_needed = is_needed && !crate::mutation::is(crate::mutation::Mutation::ForgottenNeeded);
        if is_needed {
            return Ok(None);
        }
        give_up_version(store, ended.inode, &version).map(Some)
    }
}

/// Gives up a version with all that it alone holds; the blocks that this freed.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn give_up_version(store: &Arc<Store>, no: InodeNo, version: &Version) -> Result<u64> {
    let cell = match store.cell(no) {
        Ok(cell) => Some(cell),
        Err(Error::Stale) => None,
        Err(e) => return Err(e),
    };
    // F1.
    let _io = cell.as_ref().map(|cell| cell.io.lock());
    let same =
        cell.as_ref().filter(|cell| cell.incarnation == version.inode.incarnation && !cell.state.read().gone);
    let mut alone = Alone::new(store, no, version)?;
    let later = store.past.version_after(&store.meta, no, version.end)?;
    let is_newest = later.is_none();
    let later = later.filter(|later| later.inode.incarnation == version.inode.incarnation);
    let reserved = store.reserve_freely(store.near(no), 0)?;
    match (&later, same) {
        (Some(later), _) => alone.content(Some(&later.inode))?,
        (None, Some(cell)) => alone.content(Some(&cell.state.read().inode))?,
        (None, None) => alone.content(None)?,
    }
    let mut groups = KeptGroups::default();
    alone.prepare(&mut groups)?;
    let mut state = cell.as_ref().map(|cell| cell.state.write());
    let in_use = state.as_ref().filter(|_| same.is_some()).map(|state| &state.inode);
    alone.attributes(later.as_ref().map(|later| &later.inode).or(in_use))?;
    let removal = store.past.prepare_removal(store, no, version)?;
    let mut op = store.meta.begin(reserved);
    let removed = removal.apply(&mut op);
    let blocks = alone.free(&mut op, removed);
    drop(op);
    if let Some(state) = state.as_mut().filter(|_| is_newest) {
        state.ask_kept_anew();
    }
    store.versions.forget(no, version.inode.born);
    Ok(blocks)
}

/// Says what kept cuts need.
pub(crate) struct Needed<'s> {
    store: &'s Arc<Store>,
    /// The next number when it was loaded: what ended later is not for it to say (F2).
    next: Number,
    /// Kept cuts that cover more than one file.
    of_directories: Vec<u64>,
    /// Of each directory or file that was cut; in ascending order.
    by_root: HashMap<InodeNo, Vec<u64>>,
    /// A cut that is taken to be forgotten.
    without: Option<Number>,
}

impl<'s> Needed<'s> {
    /// By the cuts that are kept now.
    pub(crate) fn load(store: &'s Arc<Store>) -> Result<Needed<'s>> {
        Needed::of(store, |_| true)
    }

    /// By those of them that are `wanted`.
    pub(crate) fn of(store: &'s Arc<Store>, wanted: impl Fn(&Cut) -> bool) -> Result<Needed<'s>> {
        let next = store.number();
        let mut needed =
            Needed { store, next, of_directories: Vec::new(), by_root: HashMap::new(), without: None };
        store.past.each_cut(&store.meta, Number(0), &mut |cut| {
            if cut.row.state == CutState::Kept && wanted(&cut) {
                if !cut.row.kind.is_of_file() {
                    needed.of_directories.push(cut.number.0);
                }
                needed.by_root.entry(cut.row.root).or_default().push(cut.number.0);
            }
            Ok(true)
        })?;
        Ok(needed)
    }

    /// Where what these cuts alone have seen may have ended: behind the first number of each span, up to the second (F2, F3).
    fn spans(&self, dying: &[Number]) -> Result<Vec<(Number, Number)>> {
        let mut spans: Vec<(Number, Number)> = Vec::new();
        for cut in dying {
            let found = self.store.past.in_state(&self.store.meta, *cut, CutState::Dying)?;
            let last = self.last_of(found.row.root, *cut);
            match spans.last_mut().filter(|(_, end)| *end >= *cut) {
                Some((_, end)) => *end = last.max(*end),
                None => spans.push((*cut, last)),
            }
        }
        Ok(spans)
    }

    /// The next number when the cuts were looked at: what ended later is not for them to say (F2).
    pub(crate) fn next(&self) -> Number {
        self.next
    }

    /// Up to where what a cut alone has seen may have ended: the next of these of the same directory, or of the volume (F3).
    pub(crate) fn next_of(&self, cut: &Cut) -> Number {
        self.last_of(cut.row.root, cut.number)
    }

    fn last_of(&self, root: InodeNo, cut: Number) -> Number {
        let next = |root: InodeNo| {
            let numbers = self.by_root.get(&root).map_or(&[][..], Vec::as_slice);
            numbers.get(numbers.partition_point(|number| *number <= cut.0)).copied()
        };
        let last = next(root).into_iter().chain(next(InodeNo::ROOT)).min();
        last.map_or(self.next, |last| Number(last).min(self.next))
    }

    /// Whether this kept cut alone needs a version: it would go with the cut.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn only_by(&mut self, cut: Number, no: InodeNo, version: &Version) -> Result<bool> {
        self.without = Some(cut);
        let needed = self.version(no, version);
        self.without = None;
        Ok(!needed?)
    }

    /// Whether one of the numbers, which ascend, is in `from..to`.
    fn any_in(&self, numbers: &[u64], from: Number, to: Number) -> bool {
        let first = numbers.partition_point(|number| *number < from.0);
        let without = self.without.map(|number| number.0);
        let found = numbers[first..].iter().find(|number| Some(**number) != without);
        found.is_some_and(|number| *number < to.0)
    }

    /// Whether a kept cut has seen this version.
    pub(crate) fn version(&self, no: InodeNo, version: &Version) -> Result<bool> {
        match self.seen(no, &version.inode, version.inode.born, version.end) {
            Seen::Yes => Ok(true),
            Seen::No => Ok(false),
            Seen::With(directory) => self.in_directory(directory, version.inode.born, version.end),
        }
    }

    /// Whether a kept cut in `from..to` is of this very directory or file.
    fn has_cut(&self, root: InodeNo, from: Number, to: Number) -> bool {
        self.by_root.get(&root).is_some_and(|numbers| self.any_in(numbers, from, to))
    }

    /// What is known of an inode that was so in `from..to`.
    fn seen(&self, no: InodeNo, inode: &Inode, from: Number, to: Number) -> Seen {
        if self.has_cut(no, from, to) {
            Seen::Yes
        } else if !self.any_in(&self.of_directories, from, to) {
            Seen::No
        } else if !has_one_name(inode) || self.has_cut(InodeNo::ROOT, from, to) {
            Seen::Yes
        } else if no == InodeNo::ROOT {
            Seen::No
        } else {
            Seen::With(inode.parent)
        }
    }

    /// Whether a kept cut in `from..to` covers a directory. O(states of the directories above it in that span), if there
    /// are cuts of directories in it; else O(log cuts).
    fn in_directory(&self, directory: InodeNo, from: Number, to: Number) -> Result<bool> {
        let (mut left, mut met) = (vec![(directory, from, to)], HashSet::new());
        while let Some((directory, from, to)) = left.pop() {
            // Also where damage makes a circle.
            if !met.insert((directory, from, to)) {
                continue;
            }
            let mut seen = false;
            each_state(self.store, directory, from, to, &mut |inode, from, to| {
                match self.seen(directory, inode, from, to) {
                    Seen::Yes => seen = true,
                    Seen::No => {}
                    Seen::With(above) => left.push((above, from, to)),
                }
                !seen
            })?;
            if seen {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an inode had a single name, and where that was is known.
pub(crate) fn has_one_name(inode: &Inode) -> bool {
    inode.links > 0 && (inode.is_directory() || (inode.links == 1 && inode.parent != InodeNo::NONE))
}

/// Whether kept cuts have seen something.
enum Seen {
    Yes,
    No,
    /// If they have seen this directory.
    With(InodeNo),
}

/// What one version holds and no other state of its chain.
pub(crate) struct Alone<'s> {
    store: &'s Store,
    no: InodeNo,
    version: &'s Version,
    /// What was born earlier is held by the version before it.
    from: Number,
    nodes: Vec<Frame>,
    runs: Vec<Run>,
}

/// Called with each cell of a leaf: key and value.
type Cells<'c> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'c;

/// What the next state holds, as far as it is in question.
#[derive(Default)]
struct Next {
    /// Nodes that the version has, too, with all that is below them.
    nodes: HashSet<MetaAddr>,
    /// Extents by their first file block.
    extents: BTreeMap<u64, Extent>,
}

impl<'s> Alone<'s> {
    /// Nothing yet; the version may be the first of several that are taken as one.
    pub(crate) fn new(store: &'s Store, no: InodeNo, version: &'s Version) -> Result<Alone<'s>> {
        let before = match version.inode.born.0.checked_sub(1) {
            Some(most) => store.past.version(&store.meta, no, Number(most))?,
            None => None,
        };
        let before = before.filter(|before| before.inode.incarnation == version.inode.incarnation);
        let from = before.map_or(Number(0), |before| before.end);
        Ok(Alone { store, no, version, from, nodes: Vec::new(), runs: Vec::new() })
    }

    /// Counts what was born at this number or later, whoever held it before.
    pub(crate) fn since(self, from: Number) -> Alone<'s> {
        Alone { from, ..self }
    }

    /// The number since which what the version has is not held by the one before it.
    pub(crate) fn from(&self) -> Number {
        self.from
    }

    /// How many blocks were found: of data, and nodes.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        (self.runs.iter().map(|run| u64::from(run.len)).sum(), self.nodes.len() as u64)
    }

    /// Finds what of the content is the version's alone, given the next state of its chain, if there is one.
    pub(crate) fn content(&mut self, next: Option<&Inode>) -> Result<()> {
        #[cfg(feature = "mutations")]
        let next = next.filter(|_| !crate::mutation::is(crate::mutation::Mutation::ForgottenShared));
        let inode = &self.version.inode;
        if inode.is_symlink() {
            let next = next.and_then(|next| symlink::tree(next, self.no));
            return self.trees(symlink::tree(inode, self.no), next);
        }
        if !inode.is_regular() {
            return Ok(());
        }
        let mut known = Next::default();
        if let Some(inode) = next {
            self.look_at_next(inode, &mut known)?;
        }
        let mut extents: Vec<Extent> = Vec::new();
        let no = self.no;
        if inode.content_kind == ContentKind::Tree {
            let tree = extent::tree(no, inode, Number(0));
            self.own_nodes(&tree, &known.nodes, &mut |key, value| {
                extents.push(extent::of_cell(key, value, no)?);
                Ok(())
            })?;
        } else {
            extents = extent::in_inode(no, inode).collect::<Result<_>>()?;
        }
        for extent in extents {
            // What was never written is not a version's.
            if !extent.1.unwritten && !extent.1.shared && extent.1.birth >= self.from {
                self.runs.extend(without(&extent, &known.extents));
            }
        }
        Ok(())
    }

    fn look_at_next(&self, inode: &Inode, known: &mut Next) -> Result<()> {
        let (no, end) = (self.no, self.version.end);
        let extents = &mut known.extents;
        let mut enter = |extent: Extent| {
            if extent.1.birth < end && !extent.1.unwritten {
                extents.insert(extent.0, extent);
            }
        };
        if inode.content_kind != ContentKind::Tree {
            return extent::in_inode(no, inode).try_for_each(|extent| extent.map(&mut enter));
        }
        let tree = extent::tree(no, inode, Number(0));
        self.shared_nodes(&tree, &mut known.nodes, &mut |key, value| {
            enter(extent::of_cell(key, value, no)?);
            Ok(())
        })
    }

    /// Finds what of the attributes is the version's alone.
    pub(crate) fn attributes(&mut self, next: Option<&Inode>) -> Result<()> {
        let inode = &self.version.inode;
        if next.is_some_and(|next| next.xattr_root == inode.xattr_root) {
            return Ok(());
        }
        let meta = &self.store.meta;
        let next = next.map(|next| xattr::tree(meta, next, self.no)).transpose()?;
        self.trees(Some(xattr::tree(meta, inode, self.no)?), next)
    }

    /// The same for trees of which nothing but nodes is held.
    fn trees(&mut self, tree: Option<Tree>, next: Option<Tree>) -> Result<()> {
        let Some(tree) = tree else { return Ok(()) };
        let mut shared = HashSet::new();
        if let Some(next) = next {
            self.shared_nodes(&next, &mut shared, &mut |_, _| Ok(()))?;
        }
        self.own_nodes(&tree, &shared, &mut |_, _| Ok(()))
    }

    /// The uppermost nodes of the next state's tree that the version has, too, and the cells of leaves that it has not.
    fn shared_nodes(&self, next: &Tree, shared: &mut HashSet<MetaAddr>, cells: &mut Cells<'_>) -> Result<()> {
        next.visit(&self.store.meta, &mut |node| {
            if node.birth < self.version.end {
                shared.insert(node.frame.addr());
                return Ok(false);
            }
            node.cells().try_for_each(|(key, value)| cells(key, value)).map(|()| true)
        })
    }

    /// Nodes of the version's tree that nobody else has, and the cells of such leaves.
    fn own_nodes(&mut self, tree: &Tree, shared: &HashSet<MetaAddr>, cells: &mut Cells<'_>) -> Result<()> {
        let (nodes, from) = (&mut self.nodes, self.from);
        tree.visit(&self.store.meta, &mut |node| {
            if node.birth < from || shared.contains(&node.frame.addr()) {
                return Ok(false);
            }
            nodes.push(node.frame.clone());
            node.cells().try_for_each(|(key, value)| cells(key, value)).map(|()| true)
        })
    }

    /// Keeps in memory what freeing the blocks changes.
    fn prepare(&mut self, groups: &mut KeptGroups) -> Result<()> {
        let (meta, alloc) = (&self.store.meta, &self.store.alloc);
        self.runs.sort_unstable_by_key(|run| run.start);
        for run in &self.runs {
            extent::check_run(meta, alloc, self.no, *run)?;
            alloc.prepare_free(meta, *run, groups)?;
        }
        Ok(())
    }

    /// Inside the Op whose change `removed` took the version away. Returns how many blocks this frees.
    fn free(self, op: &mut Op<'_>, removed: yore_meta::Change) -> u64 {
        let (data, nodes) = self.blocks();
        held::count(op, HistoryGrowth { data: -(data as i64), nodes: -(nodes as i64), trees: 0 });
        let mut last = removed;
        for node in self.nodes {
            let freed = op.free(node);
            op.before(last, freed);
            last = freed;
        }
        for run in self.runs {
            let freed = self.store.alloc.free(op, run);
            op.before(last, freed);
            last = freed;
        }
        nodes + data
    }
}

/// Blocks that a version has and the next state of its inode has not, and that were born at `from` or later (`None`: that the version
/// before it has not either): of data, and nodes. The caller holds forgetting back.
pub(crate) fn let_go(
    store: &Arc<Store>,
    no: InodeNo,
    version: &Version,
    from: Option<Number>,
) -> Result<(u64, u64)> {
    let cell = match store.cell(no) {
        Ok(cell) => Some(cell),
        Err(Error::Stale) => None,
        Err(e) => return Err(e),
    };
    // With both held neither the content of the inode in use changes, nor does it become a version.
    let _io = cell.as_ref().map(|cell| cell.io.lock());
    let state = cell.as_ref().map(|cell| cell.state.read());
    let incarnation = version.inode.incarnation;
    let in_use = state.as_ref().filter(|state| state.inode.incarnation == incarnation && !state.gone);
    let later = store.past.version_after(&store.meta, no, version.end)?;
    let later = later.filter(|later| later.inode.incarnation == incarnation);
    let next = later.as_ref().map(|later| &later.inode).or(in_use.map(|state| &state.inode));
    let mut alone = Alone::new(store, no, version)?;
    if let Some(from) = from {
        alone = alone.since(from);
    }
    alone.content(next)?;
    alone.attributes(next)?;
    Ok(alone.blocks())
}

/// The blocks of an extent that none of `others` has in the same place.
fn without(extent: &Extent, others: &BTreeMap<u64, Extent>) -> Vec<Run> {
    let (first, end) = (extent.0, extent.0 + u64::from(extent.1.len));
    let place = |extent: &Extent| extent.1.start.0.wrapping_sub(extent.0);
    let (mut runs, mut at) = (Vec::new(), first);
    let mut add = |from: u64, to: u64| {
        if from < to {
            let start = yore_format::BlockNo(extent.1.start.0 + (from - first));
            runs.push(Run { start, len: (to - from) as u32 });
        }
    };
    let before = others.range(..first).next_back();
    for (_, other) in before.into_iter().chain(others.range(first..end)) {
        let (from, to) = (other.0.max(at), (other.0 + u64::from(other.1.len)).min(end));
        if from < to && place(other) == place(extent) {
            add(at, from);
            at = to;
        }
    }
    add(at, end);
    runs
}
