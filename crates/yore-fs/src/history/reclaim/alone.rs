//! What one version holds and no other state of its chain, and how it is given up.
//!
//! **What only this version holds.** The chain consists of the states of one incarnation. What was born
//! before the end of the preceding version, that one holds, too. What the next state (a version or the inode
//! in use) has in the same place, that one holds, too. And what two states hold, all states between them
//! hold. So two walks suffice: one over the next state, as far as it is newer than the end of the preceding
//! version; and one over this version, as far as neither the preceding nor the next state holds it. They read
//! only the differences.
//!
//! **F1 No change meanwhile.** While its io lock is held, the inode in use keeps its extents, and a regular
//! file does not become a version. While its state is locked, it keeps its other trees, and what it takes for
//! kept ([`Store::kept`]), and it does not become a version, whatever it is. So which state comes next is
//! known under the state of an inode that is no regular file, and under the io lock of one that is. Both are
//! held until the Op has ended; from then on, what the version shared with the inode in use, and with no
//! version before it, belongs to that inode alone.

use crate::store::Store;
use crate::{symlink, xattr, InodeNo, Result};
use hashbrown::HashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_core::alloc::{LetGo, PinnedGroups, Run};
use yore_core::btree::Tree;
use yore_core::extent::{self, Extent};
use yore_core::inode::InodeState;
use yore_core::retained;
use yore_format::{BlockHeader, ContentKind, Corruption, EventNo, Inode, MetaAddr, Version};
use yore_meta::{Change, EdgeKind, Frame, LeftBlocks, Op};

#[cfg(test)]
mod tests;

/// Gives up a version with everything that it alone holds, and returns the number of blocks freed.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn give_up_version(store: &Arc<Store>, no: InodeNo, version: &Version) -> Result<u64> {
    give_up(store, (no, version), &|| store.past.version_after(&store.meta, no, version.end))
}

/// As [`give_up_version`], for a version whose end has not come (docs/EDGES.md): the state after it was born
/// when it was.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn give_up_double(store: &Arc<Store>, no: InodeNo, version: &Version) -> Result<u64> {
    give_up(store, (no, version), &|| store.past.version_ending_behind(&store.meta, no, version.end))
}

/// Gives a version up; `later` says which one comes after it. It is called when that cannot change (F1).
fn give_up(
    store: &Arc<Store>,
    (no, version): (InodeNo, &Version),
    later: &dyn Fn() -> Result<Option<Version>>,
) -> Result<u64> {
    // Before all locks of the inode: what holds it never waits for one of these.
    let _work = store.past.annals_work();
    let cell = store.cell_if_used(no)?;
    // F1.
    let _io = cell.as_ref().map(|cell| cell.io.lock());
    let mut alone = Alone::new(store, no, version)?;
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let locked = cell.as_ref().filter(|_| !version.inode.is_regular()).map(|cell| cell.state.write());
    let later = later()?;
    let is_newest = later.is_none();
    let later = later.filter(|later| later.inode.incarnation == version.inode.incarnation);
    let next = later.as_ref().map(|later| &later.inode);
    match (next, &locked) {
        (Some(next), _) => alone.content(Some(next))?,
        (None, Some(state)) => alone.content(in_chain(version, state))?,
        (None, None) => {
            let state = cell.as_ref().map(|cell| cell.state.read());
            alone.content(state.as_ref().and_then(|state| in_chain(version, state)))?;
        }
    }
    alone.prepare()?;
    let mut state = locked.or_else(|| cell.as_ref().map(|cell| cell.state.write()));
    let in_use = state.as_ref().and_then(|state| in_chain(version, state));
    alone.attributes(next.or(in_use))?;
    alone.enter_nodes(&mut HashSet::new())?;
    let removal = store.past.prepare_removal(store, no, version)?;
    let mut op = store.meta.begin(reserved);
    let removed = removal.apply(&mut op);
    let freed = alone.free(&mut op, removed);
    freed.count(&mut op);
    store.past.note_given_up();
    drop(op);
    if let Some(state) = state.as_mut().filter(|_| is_newest) {
        state.ask_recorded_anew();
    }
    store.versions.forget(no, version.inode.born);
    Ok(freed.blocks)
}

/// The inode in use, if it is the last state of a version's chain.
fn in_chain<'s>(version: &Version, state: &'s InodeState) -> Option<&'s Inode> {
    Some(&state.inode).filter(|inode| !state.gone && inode.incarnation == version.inode.incarnation)
}

/// What giving up versions frees.
#[derive(Clone, Copy, Default)]
pub(super) struct Freed {
    /// How many blocks this frees.
    pub(super) blocks: u64,
    /// By how many data blocks what only the past holds grows.
    data: i64,
    /// By how many the references grow that only the past has.
    references: i64,
    nodes: u64,
}

impl Freed {
    pub(super) fn add(&mut self, other: Freed) {
        self.blocks += other.blocks;
        self.data += other.data;
        self.references += other.references;
        self.nodes += other.nodes;
    }

    pub(super) fn count(&self, op: &mut Op<'_>) {
        retained::give_up(op, self.data, self.references, self.nodes);
    }
}

/// What one version holds and no other state of its chain.
pub(crate) struct Alone<'s> {
    store: &'s Store,
    pub(super) no: InodeNo,
    pub(super) version: &'s Version,
    /// The preceding version holds what was born earlier.
    from: EventNo,
    nodes: Vec<Frame>,
    /// With their births, and how many of the blocks other files or places share: these are not freed.
    runs: Vec<(Run, EventNo, u32)>,
    /// What [`Alone::prepare`] keeps in memory, and its claims on `runs`.
    groups: PinnedGroups,
}

/// Called with each cell of a leaf: key and value.
type Cells<'c> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'c;

/// What the next state holds, as far as it matters.
#[derive(Default)]
struct Next {
    /// Nodes that the version has, too, with everything below them.
    nodes: HashSet<MetaAddr>,
    /// Extents by their first file block.
    extents: BTreeMap<u64, Extent>,
}

impl<'s> Alone<'s> {
    /// Begins with nothing. Where several versions in a row count as one, this is the first of them; the
    /// others begin with [`Alone::since`].
    pub(crate) fn new(store: &'s Store, no: InodeNo, version: &'s Version) -> Result<Alone<'s>> {
        let before = store.past.version_before(&store.meta, no, version)?;
        let before = before.filter(|before| before.inode.incarnation == version.inode.incarnation);
        let from = before.map_or(EventNo(0), |before| before.end);
        Ok(Alone {
            store,
            no,
            version,
            from,
            nodes: Vec::new(),
            runs: Vec::new(),
            groups: PinnedGroups::default(),
        })
    }

    /// Counts what was born at this number or later, even if preceding versions hold it.
    pub(crate) fn since(self, from: EventNo) -> Alone<'s> {
        Alone { from, ..self }
    }

    /// The preceding version does not hold what was born at this number or later.
    pub(crate) fn from(&self) -> EventNo {
        self.from
    }

    /// How many blocks giving up what was found would free: data blocks, and nodes.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        let data: u64 = self.runs.iter().map(|(run, _, shared)| u64::from(run.len - shared)).sum();
        (data, self.nodes.len() as u64)
    }

    /// What was found, by birth.
    fn by_birth(&self) -> BTreeMap<EventNo, LetGoBlocks> {
        let mut found: BTreeMap<EventNo, LetGoBlocks> = BTreeMap::new();
        for (run, birth, shared) in &self.runs {
            let of_birth = found.entry(*birth).or_default();
            of_birth.left += LeftBlocks { data: u64::from(run.len), nodes: 0 };
            of_birth.shared += u64::from(*shared);
        }
        for node in &self.nodes {
            let birth = EventNo(BlockHeader::of(&node.read()).birth.get());
            found.entry(birth).or_default().left += LeftBlocks { data: 0, nodes: 1 };
        }
        found
    }

    /// Finds which content only the version holds, given the next state of its chain, if there is one.
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
            self.examine_next(inode, &mut known)?;
        }
        let mut extents: Vec<Extent> = Vec::new();
        let no = self.no;
        if inode.content_kind == ContentKind::Tree {
            let tree = extent::tree(no, inode, EventNo(0));
            self.own_nodes(&tree, &known.nodes, &mut |key, value| {
                extents.push(extent::of_cell(key, value, no)?);
                Ok(())
            })?;
        } else {
            extents = extent::in_inode(no, inode).collect::<Result<_>>()?;
        }
        for extent in extents {
            // Blocks that were never written do not belong to a version.
            if extent.1.unwritten || extent.1.shared || extent.1.birth < self.from {
                continue;
            }
            for run in without(&extent, &known.extents) {
                let sole = self.store.alloc.count_sole(&self.store.meta, run)?;
                let shared = u64::from(run.len).saturating_sub(sole) as u32;
                self.runs.push((run, extent.1.birth, shared));
            }
        }
        Ok(())
    }

    fn examine_next(&self, inode: &Inode, known: &mut Next) -> Result<()> {
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
        let tree = extent::tree(no, inode, EventNo(0));
        self.shared_nodes(&tree, &mut known.nodes, &mut |key, value| {
            enter(extent::of_cell(key, value, no)?);
            Ok(())
        })
    }

    /// Finds which attributes only the version holds.
    pub(crate) fn attributes(&mut self, next: Option<&Inode>) -> Result<()> {
        let inode = &self.version.inode;
        if next.is_some_and(|next| next.xattr_root == inode.xattr_root) {
            return Ok(());
        }
        let meta = &self.store.meta;
        let next = next.map(|next| xattr::tree(meta, next, self.no)).transpose()?;
        self.trees(Some(xattr::tree(meta, inode, self.no)?), next)
    }

    /// The same for trees that hold nothing but nodes.
    fn trees(&mut self, tree: Option<Tree>, next: Option<Tree>) -> Result<()> {
        let Some(tree) = tree else { return Ok(()) };
        let mut shared = HashSet::new();
        if let Some(next) = next {
            self.shared_nodes(&next, &mut shared, &mut |_, _| Ok(()))?;
        }
        self.own_nodes(&tree, &shared, &mut |_, _| Ok(()))
    }

    /// The uppermost nodes of the next state's tree that the version has, too, and the cells of leaves that
    /// it does not have.
    fn shared_nodes(&self, next: &Tree, shared: &mut HashSet<MetaAddr>, cells: &mut Cells<'_>) -> Result<()> {
        next.visit(&self.store.meta, &mut |node| {
            if node.birth < self.version.end {
                shared.insert(node.frame.addr());
                return Ok(false);
            }
            node.cells().try_for_each(|(key, value)| cells(key, value)).map(|()| true)
        })
    }

    /// Nodes of the version's tree that no other state has, and the cells of such leaves.
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

    /// Enters the nodes that were found in `seen`. What is given up in one Op must have each node once; on a
    /// damaged medium two trees can lead to the same one.
    ///
    /// # Errors
    /// Damage, if a node is there.
    pub(super) fn enter_nodes(&self, seen: &mut HashSet<MetaAddr>) -> Result<()> {
        for node in &self.nodes {
            if !seen.insert(node.addr()) {
                let found = "two of them";
                return Err(Corruption::new("version", "nodes", "one tree that has a node", found)
                    .at(node.addr())
                    .of(self.no)
                    .into());
            }
        }
        Ok(())
    }

    /// Brings into memory, and keeps there, what freeing the blocks changes.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let (meta, alloc) = (&self.store.meta, &self.store.alloc);
        self.runs.sort_unstable_by_key(|(run, ..)| run.start);
        for (run, ..) in &self.runs {
            extent::check_run(meta, alloc, self.no, *run)?;
            alloc.prepare_free(meta, *run, &mut self.groups)?;
        }
        Ok(())
    }

    /// Called inside the Op whose change `removed` took the version away. Returns how many blocks this frees,
    /// and by how much history grows, which the caller counts.
    pub(super) fn free(self, op: &mut Op<'_>, removed: Change) -> Freed {
        let nodes = self.nodes.len() as u64;
        for node in self.nodes {
            let freed = op.free(node);
            op.edge(EdgeKind::Freed, removed, freed);
        }
        let runs = self.runs.into_iter().map(|(run, ..)| run).collect();
        let gone = self.store.alloc.let_go(op, runs, LetGo::Past, removed, self.groups);
        let (data, references) = (gone.retained, gone.references);
        Freed { blocks: nodes + gone.freed, data, references, nodes }
    }
}

/// The number of blocks, data and nodes, that a version has, that the next state of its inode does not have,
/// and that were born at `from` or later (`None`: that the preceding version does not have either). The
/// caller holds forgetting back.
pub(crate) fn let_go(
    store: &Arc<Store>,
    no: InodeNo,
    version: &Version,
    from: Option<EventNo>,
) -> Result<(u64, u64)> {
    with_let_go(store, no, version, from, |alone, _| alone.blocks())
}

/// What was born together, of what a version has and the next state of its inode does not.
#[derive(Clone, Copy, Default)]
pub(crate) struct LetGoBlocks {
    /// References to data blocks, and nodes.
    pub left: LeftBlocks,
    /// How many of the data blocks are shared, and stay when the version goes.
    pub shared: u64,
}

impl LetGoBlocks {
    /// Data blocks that go with the version, and nodes.
    pub(crate) fn go(&self) -> (u64, u64) {
        (self.left.data.saturating_sub(self.shared), self.left.nodes)
    }

    /// The same.
    pub(crate) fn goes(&self) -> LeftBlocks {
        let (data, nodes) = self.go();
        LeftBlocks { data, nodes }
    }
}

/// What a version has, and the next state of its inode does not.
pub(crate) struct LetGoByBirth {
    /// References and nodes, by birth.
    pub by_birth: BTreeMap<EventNo, LetGoBlocks>,
    /// As [`let_go`] counts them: data blocks that nobody else shares, and nodes.
    pub blocks: (u64, u64),
}

/// The same as [`let_go`], by birth. While nothing of it can change, `then` is called with the end of the
/// next version, if there is one.
pub(crate) fn let_go_by_birth(
    store: &Arc<Store>,
    no: InodeNo,
    version: &Version,
    then: impl FnOnce(Option<EventNo>),
) -> Result<LetGoByBirth> {
    with_let_go(store, no, version, Some(EventNo(0)), |alone, later| {
        then(later);
        LetGoByBirth { by_birth: alone.by_birth(), blocks: alone.blocks() }
    })
}

/// Finds what a version holds alone, and calls `found` with it and with the end of the next version of its
/// chain, while nothing of it can change.
fn with_let_go<T>(
    store: &Arc<Store>,
    no: InodeNo,
    version: &Version,
    from: Option<EventNo>,
    found: impl FnOnce(&Alone<'_>, Option<EventNo>) -> T,
) -> Result<T> {
    let cell = store.cell_if_used(no)?;
    // While both are held, the content of the inode in use does not change, and the inode does not become a
    // version.
    let _io = cell.as_ref().map(|cell| cell.io.lock());
    let state = cell.as_ref().map(|cell| cell.state.read());
    let in_use = state.as_ref().and_then(|state| in_chain(version, state));
    let later = store.past.version_after(&store.meta, no, version.end)?;
    let later = later.filter(|later| later.inode.incarnation == version.inode.incarnation);
    let next = later.as_ref().map(|later| &later.inode).or(in_use);
    let mut alone = Alone::new(store, no, version)?;
    if let Some(from) = from {
        alone = alone.since(from);
    }
    alone.content(next)?;
    alone.attributes(next)?;
    Ok(found(&alone, later.map(|later| later.end)))
}

/// The parts of an extent that none of `others` has in the same place, born at the same number. The same
/// block that came back to its place with a later birth is another reference to it ([`yore_core::alloc`]).
fn without(extent: &Extent, others: &BTreeMap<u64, Extent>) -> Vec<Run> {
    let (first, end) = (extent.0, extent.0 + u64::from(extent.1.len));
    let shift = |extent: &Extent| extent.1.start.0.wrapping_sub(extent.0);
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
        if from < to && shift(other) == shift(extent) && other.1.birth == extent.1.birth {
            add(at, from);
            at = to;
        }
    }
    add(at, end);
    runs
}
