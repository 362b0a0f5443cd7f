//! Where a file's blocks are: extents, up to four in the inode, more in a tree.
//!
//! Reading is [`mapping`] (one place) and [`each`] (in order). A change has three steps, because an Op must
//! not fail (R7). First, [`Edit::load`] reads the extents around a range of file blocks into a list in
//! memory. Second, edits change that list: they carve out the old extents, put in the new ones, and merge
//! neighbours that continue one another. Third, [`Edit::prepare`] keeps in memory what the difference between
//! the list before and after touches, and [`Edit::apply`] carries the difference over in the Op. A window
//! holds a bounded number of extents; longer ranges take several Ops, and [`Edit::limit`] says how far this
//! one reaches.
//!
//! Invariants, for one file:
//! - **E1** Extents do not overlap, and lie in the data area of one group each (groups begin with a zone, so
//!   none can run into the next).
//! - **E2** Neighbours that continue one another with the same flags and birth are one extent, if one edit
//!   has seen both.
//! - **E3** `inode.blocks` is the sum of the extents' lengths and the number of tree nodes (also the nodes of
//!   the inode's other trees, which their modules count).
//! - **E4** All changes are made with the inode's io mutex held; the state lock is taken on top for the Op
//!   itself. So whoever holds either may rely on the extents.
//!
//! What reaches the medium when: bits set → extents → the inode's pointer → bits clear.

use crate::alloc::{Alloc, PinnedGroups, Run};
use crate::btree::{Pins, Tree, TreeDelta};
use crate::retained;
use crate::{Error, Result};
use yore_format::{
    BlockKind, BlockNo, ContentKind, Corruption, EventNo, ExtentValue, HistoryGrowth, Inode, InodeNo,
    EXTENT_INLINE_BYTES, EXTENT_LEN_MAX, INLINE_BYTES,
};
use yore_meta::{Change, Meta, Op};

#[cfg(test)]
mod tests;

/// Extents in an inode.
const INLINE_MOST: usize = INLINE_BYTES / EXTENT_INLINE_BYTES;
/// A tree left with this few extents gives way to extents in the inode. The number is smaller than the one
/// that fits, so that the file does not go back and forth.
const INLINE_AGAIN: usize = 2;
/// Extents in a window of a tree that is higher than a leaf.
const WINDOW: usize = 32;
/// More than a leaf has.
const LEAF: usize = 256;

/// An extent with its first file block.
pub type Extent = (u64, ExtentValue);

/// What is at a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// For how many blocks this holds, from the requested one on; `u64::MAX` for the hole behind everything.
    pub len: u64,
    /// Where the requested block is, and the flags and birth; `None` in a hole.
    pub extent: Option<ExtentValue>,
}

impl Mapping {
    /// A hole of this many blocks.
    pub fn hole(len: u64) -> Mapping {
        Mapping { len, extent: None }
    }

    /// Whether the medium has content for it.
    pub fn is_written(&self) -> bool {
        self.extent.is_some_and(|e| !e.unwritten)
    }
}

/// The birth of new extents and nodes of an inode, whose content belongs to the past too as far as it was
/// born at `recorded_until` or before. It is the next number, so that neighbours merge (V8).
pub fn birth(recorded_until: EventNo) -> EventNo {
    EventNo(recorded_until.0 + 1)
}

/// Whether these blocks belong to the present alone: then data may be written over what they hold, and they
/// may be freed (V8). The past has no use for blocks that were never written.
pub fn is_own(recorded_until: EventNo, extent: &ExtentValue) -> bool {
    #[cfg(feature = "mutations")]
    let recorded_until = match yore_meta::mutation::is(yore_meta::mutation::Mutation::RecordedReused) {
        true => EventNo(0),
        false => recorded_until,
    };
    (extent.birth > recorded_until || extent.unwritten) && !extent.shared
}

/// The tree of an inode's extents; empty if they are in the inode. Nodes born at `recorded_until` or before
/// belong to the past, too.
pub fn tree(no: InodeNo, inode: &Inode, recorded_until: EventNo) -> Tree {
    let mut tree = Tree::empty(BlockKind::Extents, no, inode.incarnation).with_recorded(recorded_until);
    if inode.content_kind == ContentKind::Tree {
        (tree.root, tree.level) = (inode.tree_root(), inode.content_level);
    }
    tree
}

/// The extents that are in the inode.
pub fn in_inode(no: InodeNo, inode: &Inode) -> impl Iterator<Item = Result<Extent>> + '_ {
    let count = match inode.content_kind {
        ContentKind::Extents => usize::from(inode.content_count),
        _ => 0,
    };
    inode.content.chunks_exact(EXTENT_INLINE_BYTES).take(count).map(move |bytes| {
        let key = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        decode_value(u64::from(key), &bytes[4..], no)
    })
}

/// The extent in a leaf's cell.
pub fn of_cell(key: &[u8], value: &[u8], no: InodeNo) -> Result<Extent> {
    let key = u64::from_be_bytes(key.try_into().expect("keys of extents have eight bytes"));
    decode_value(key, value, no)
}

fn decode_value(key: u64, value: &[u8], no: InodeNo) -> Result<Extent> {
    let value = ExtentValue::decode(value).map_err(|c| c.of(no))?;
    if key + u64::from(value.len) > u64::from(u32::MAX) {
        return Err(Corruption::new("extent", "file block", "below 2^32 - 1", key).of(no).into());
    }
    Ok((key, value))
}

/// Adds the owner's name to damage that was found in its extents.
fn owned<T>(result: Result<T>, no: InodeNo) -> Result<T> {
    result.map_err(|e| match e {
        Error::Corruption(c) => c.of(no).into(),
        other => other,
    })
}

/// Fails unless data can be in these blocks: they must lie in one group, and neither in a zone nor in the
/// log. Callers check this before they read, write or free them.
pub fn check_run(meta: &Meta, alloc: &Alloc, no: InodeNo, run: Run) -> Result<()> {
    let (group, _) = owned(alloc.group_and_bit(run), no)?;
    match meta.taken_block(group, run.start, run.len)? {
        None => Ok(()),
        Some(block) => {
            let found = "a block of a zone or of the log";
            Err(Corruption::new("extent", "blocks", "blocks of data", found).on(block).of(no).into())
        }
    }
}

fn end(extent: &Extent) -> u64 {
    extent.0 + u64::from(extent.1.len)
}

/// The part of an extent in `from..to`, which it overlaps.
fn part(extent: &Extent, from: u64, to: u64) -> Extent {
    let (first, last) = (extent.0.max(from), end(extent).min(to));
    let start = BlockNo(extent.1.start.0 + (first - extent.0));
    (first, ExtentValue { start, len: (last - first) as u32, ..extent.1 })
}

/// What is at `block` of the file. O(log extents).
///
/// # Errors
/// Reading the tree may fail; `Corruption` for impossible extents.
pub fn mapping(meta: &Meta, alloc: &Alloc, no: InodeNo, inode: &Inode, block: u64) -> Result<Mapping> {
    let mut below = None;
    let mut above = u64::MAX;
    if inode.content_kind == ContentKind::Tree {
        let tree = tree(no, inode, EventNo(0));
        below = tree
            .floor(meta, &block.to_be_bytes(), |cell| cell.map(|(k, v)| of_cell(k, v, no)))?
            .transpose()?;
        if below.as_ref().is_none_or(|e| end(e) <= block) {
            tree.scan(meta, &(block + 1).to_be_bytes(), &mut |key, value| {
                above = of_cell(key, value, no)?.0;
                Ok(false)
            })?;
        }
    } else {
        for extent in in_inode(no, inode) {
            let extent = extent?;
            if extent.0 <= block {
                below = Some(extent);
            } else {
                above = above.min(extent.0);
            }
        }
    }
    match below {
        Some(extent) if block < end(&extent) => {
            let (_, value) = part(&extent, block, u64::MAX);
            // Blocks that a version names and that nobody ever wrote are a hole to the version. They may lie
            // beyond the end of a volume that became shorter.
            if value.unwritten && value.start.0 + u64::from(value.len) > meta.geometry().blocks {
                return Ok(Mapping::hole(u64::from(value.len)));
            }
            check_run(meta, alloc, no, Run { start: value.start, len: value.len })?;
            Ok(Mapping { len: u64::from(value.len), extent: Some(value) })
        }
        _ => Ok(Mapping::hole(if above == u64::MAX { above } else { above - block })),
    }
}

/// Calls `each` with the extents that end after `from`, in order, until it returns `Ok(false)`.
///
/// # Errors
/// As [`mapping`], and those of `each`.
pub fn each(
    meta: &Meta,
    no: InodeNo,
    inode: &Inode,
    from: u64,
    each: &mut dyn FnMut(Extent) -> Result<bool>,
) -> Result<()> {
    if inode.content_kind != ContentKind::Tree {
        for extent in in_inode(no, inode) {
            let extent = extent?;
            if end(&extent) > from && !each(extent)? {
                break;
            }
        }
        return Ok(());
    }
    let tree = tree(no, inode, EventNo(0));
    let below =
        tree.floor(meta, &from.to_be_bytes(), |cell| cell.map(|(k, v)| of_cell(k, v, no)))?.transpose()?;
    if let Some(extent) = below.filter(|e| end(e) > from) {
        if !each(extent)? {
            return Ok(());
        }
    }
    tree.scan(meta, &(from + 1).to_be_bytes(), &mut |key, value| each(of_cell(key, value, no)?))
}

/// A change of a file's extents in a window of its blocks.
pub struct Edit {
    no: InodeNo,
    tree: Tree,
    in_tree: bool,
    before: Vec<Extent>,
    after: Vec<Extent>,
    /// Whether the window has all extents of the file.
    whole: bool,
    limit: u64,
    /// Content that was born at this number or before belongs to the past, too.
    recorded_until: EventNo,
    birth: EventNo,
    /// Blocks that the file has no longer, whether they are freed or not.
    lost: u64,
    freed: Vec<Run>,
    taken: Vec<Run>,
}

/// What an Op has changed, to be ordered against the inode's own change.
#[must_use]
pub struct Applied {
    delta: Option<TreeDelta>,
    allocated: Option<Change>,
    freed: Option<Change>,
}

impl Applied {
    /// Orders the change that stored the inode against the others.
    pub fn stored(&self, op: &mut Op<'_>, inode: Change) {
        if let Some(delta) = &self.delta {
            delta.stored(op, inode);
        }
        if let Some(allocated) = self.allocated {
            op.before(allocated, inode);
        }
        if let Some(freed) = self.freed {
            op.before(inode, freed);
        }
    }
}

impl Edit {
    /// Reads the extents that overlap or touch `from..to`, from the front, as many as fit a window. The past
    /// holds those born at `recorded_until` or before.
    ///
    /// # Errors
    /// As [`mapping`].
    pub fn load(
        meta: &Meta,
        no: InodeNo,
        inode: &Inode,
        recorded_until: EventNo,
        from: u64,
        to: u64,
    ) -> Result<Edit> {
        let tree = tree(no, inode, recorded_until);
        let in_tree = !tree.is_empty();
        let mut edit = Edit {
            no,
            tree,
            in_tree,
            before: Vec::new(),
            after: Vec::new(),
            whole: !in_tree || tree.level == 0,
            limit: to,
            recorded_until,
            birth: birth(recorded_until),
            lost: 0,
            freed: Vec::new(),
            taken: Vec::new(),
        };
        if !in_tree {
            edit.before = in_inode(no, inode).collect::<Result<_>>()?;
        } else {
            edit.load_tree(meta, if edit.whole { 0 } else { from }, to)?;
        }
        for pair in edit.before.windows(2) {
            if end(&pair[0]) > pair[1].0 {
                let expected = format!("below block {}, where the next begins", pair[1].0);
                let c = Corruption::new("extent", "end", expected, end(&pair[0]));
                return Err(c.of(no).into());
            }
        }
        edit.after = edit.before.clone();
        Ok(edit)
    }

    fn load_tree(&mut self, meta: &Meta, from: u64, to: u64) -> Result<()> {
        let (no, whole, most) = (self.no, self.whole, if self.whole { LEAF } else { WINDOW });
        let (before, limit) = (&mut self.before, &mut self.limit);
        if from > 0 {
            let key = (from - 1).to_be_bytes();
            let cell = self.tree.floor(meta, &key, |cell| cell.map(|(k, v)| of_cell(k, v, no)))?;
            before.extend(cell.transpose()?);
        }
        self.tree.scan(meta, &from.to_be_bytes(), &mut |key, value| {
            let extent = of_cell(key, value, no)?;
            if extent.0 > to && !whole {
                return Ok(false);
            }
            if before.len() >= most {
                *limit = extent.0.min(*limit);
                return Ok(false);
            }
            before.push(extent);
            Ok(true)
        })
    }

    /// The end of the range that may be edited: the `to` of [`Edit::load`], or less if the window became full
    /// before.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Puts blocks taken from the allocator at `first`. Frees the blocks that were there.
    pub fn put(&mut self, first: u64, run: Run, unwritten: bool) {
        self.remove(first, first + u64::from(run.len));
        let value =
            ExtentValue { start: run.start, len: run.len, unwritten, shared: false, birth: self.birth };
        self.insert((first, value));
        self.taken.push(run);
        self.merge();
    }

    /// Removes the extents in `from..to` and frees their blocks, except for those that the past holds.
    pub fn remove(&mut self, from: u64, to: u64) {
        for (_, value) in self.carve(from, to) {
            self.lose(value);
        }
    }

    fn lose(&mut self, value: ExtentValue) {
        self.lost += u64::from(value.len);
        if is_own(self.recorded_until, &value) {
            self.freed.push(Run { start: value.start, len: value.len });
        }
    }

    /// Marks the unwritten blocks in `from..to` as written.
    pub fn set_written(&mut self, from: u64, to: u64) {
        self.set_flag(from, to, false);
    }

    /// Makes the blocks in `from..to` read as zeros from now on. Blocks that the past holds no longer belong
    /// to the file.
    pub fn set_unwritten(&mut self, from: u64, to: u64) {
        self.set_flag(from, to, true);
    }

    fn set_flag(&mut self, from: u64, to: u64, unwritten: bool) {
        let birth = self.birth;
        for (first, value) in self.carve(from, to) {
            if value.unwritten == unwritten {
                self.insert((first, value));
            } else if is_own(self.recorded_until, &value) {
                self.insert((first, ExtentValue { unwritten, birth, ..value }));
            } else {
                self.lose(value);
            }
        }
        self.merge();
    }

    /// How many extents the window would gain. This bounds how much one Op may do.
    pub fn growth(&self) -> usize {
        self.after.iter().filter(|e| self.find_before(e.0).is_none()).count()
    }

    fn find_before(&self, key: u64) -> Option<&ExtentValue> {
        self.before.binary_search_by_key(&key, |e| e.0).ok().map(|i| &self.before[i].1)
    }

    /// Takes out the extents in `from..to`, and splits the extents at its ends.
    fn carve(&mut self, from: u64, to: u64) -> Vec<Extent> {
        assert!(to <= self.limit || !self.in_tree, "an edit beyond its window");
        let first = self.after.partition_point(|e| end(e) <= from);
        let last = self.after.partition_point(|e| e.0 < to);
        if first >= last {
            return Vec::new();
        }
        let mut keep = Vec::with_capacity(2);
        let (head, tail) = (self.after[first], self.after[last - 1]);
        if head.0 < from {
            keep.push(part(&head, head.0, from));
        }
        if end(&tail) > to {
            keep.push(part(&tail, to, end(&tail)));
        }
        self.after.splice(first..last, keep).map(|e| part(&e, from, to)).collect()
    }

    fn insert(&mut self, extent: Extent) {
        let at = self.after.partition_point(|e| e.0 < extent.0);
        self.after.insert(at, extent);
    }

    fn merge(&mut self) {
        self.after.dedup_by(|next, previous| {
            let (a, b) = (&mut previous.1, &next.1);
            let one = previous.0 + u64::from(a.len) == next.0
                && a.start.0 + u64::from(a.len) == b.start.0
                && (a.unwritten, a.shared, a.birth) == (b.unwritten, b.shared, b.birth)
                && a.len.checked_add(b.len).is_some_and(|len| len <= EXTENT_LEN_MAX);
            if one {
                a.len += b.len;
            }
            one
        });
    }

    fn ends_inline(&self) -> bool {
        match self.in_tree {
            true => self.whole && self.after.len() <= INLINE_AGAIN,
            false => self.after.len() <= INLINE_MOST,
        }
    }

    /// How many metadata blocks to reserve for the Op.
    pub fn blocks(&self) -> u32 {
        match self.ends_inline() {
            _ if self.before == self.after => 0,
            true => self.tree.blocks_for_copies(1),
            false if self.in_tree => {
                let gone =
                    self.before.iter().filter(|e| self.after.binary_search_by_key(&e.0, |a| a.0).is_err());
                let changed =
                    self.after.iter().filter(|e| self.find_before(e.0).is_some_and(|old| *old != e.1));
                let copies = self.tree.blocks_for_copies((gone.count() + changed.count()) as u32);
                self.tree.blocks_for_inserts(self.growth() as u32) + copies
            }
            // All extents fit in the tree's first leaf.
            false => 1,
        }
    }

    /// Keeps in memory what the Op changes.
    ///
    /// # Errors
    /// Reading it may fail; `Corruption` for extents whose blocks are no data blocks, or are not the file's
    /// according to the bitmaps.
    pub fn prepare(
        &self,
        meta: &Meta,
        alloc: &Alloc,
        pins: &mut Pins,
        pinned: &mut PinnedGroups,
    ) -> Result<()> {
        let no = self.no;
        self.taken.iter().try_for_each(|run| owned(alloc.prepare_commit(meta, *run, pinned), no))?;
        for run in &self.freed {
            check_run(meta, alloc, no, *run)?;
            owned(alloc.prepare_free(meta, *run, pinned), no)?;
        }
        let keys = self.before.iter().chain(&self.after).map(|e| e.0);
        if let (true, Some(first), Some(last)) = (self.in_tree, keys.clone().min(), keys.max()) {
            self.tree.prepare(meta, &first.to_be_bytes(), &last.to_be_bytes(), pins)?;
        }
        Ok(())
    }

    /// Inside an Op: changes bitmaps, the tree, and the content of `inode`, which the caller stores.
    pub fn apply(self, op: &mut Op<'_>, alloc: &Alloc, inode: &mut Inode) -> Applied {
        let mut allocated: Option<Change> = None;
        for run in &self.taken {
            let change = alloc.commit(op, *run);
            if let Some(earlier) = allocated {
                op.before(earlier, change);
            }
            allocated = Some(change);
            inode.blocks = inode.blocks.saturating_add(u64::from(run.len));
        }
        let mut cells = Vec::new();
        let delta = match self.ends_inline() {
            // Nothing changes; the content may be the bytes of a small file.
            _ if self.before == self.after => None,
            true => {
                let delta = self.empty_tree(op, &mut cells);
                ExtentValue::encode_inline(inode, &self.after);
                self.count_nodes(inode, delta.as_ref());
                delta
            }
            false => self.change_tree(op, inode, &mut cells),
        };
        for cell in &cells {
            if let Some(allocated) = allocated {
                op.before(allocated, *cell);
            }
        }
        let freed: u64 = self.freed.iter().map(|run| u64::from(run.len)).sum();
        let held = self.lost.saturating_sub(freed);
        retained::count(op, HistoryGrowth { data: held as i64, ..HistoryGrowth::default() });
        let mut first_freed = None;
        let mut last = None;
        for run in &self.freed {
            let change = alloc.free(op, *run);
            match last {
                Some(earlier) => op.before(earlier, change),
                None => cells.iter().for_each(|cell| op.before(*cell, change)),
            }
            first_freed = first_freed.or(Some(change));
            last = Some(change);
        }
        // A wrong count is for the checker to find. It must not keep anybody from freeing the blocks.
        inode.blocks = inode.blocks.saturating_sub(self.lost);
        Applied { delta, allocated, freed: first_freed }
    }

    fn count_nodes(&self, inode: &mut Inode, delta: Option<&TreeDelta>) {
        let nodes = delta.map_or(0, |d| i64::from(d.nodes));
        inode.blocks = inode.blocks.saturating_add_signed(nodes);
    }

    /// Removes all cells, if there is a tree: the extents go back to the inode.
    fn empty_tree(&self, op: &mut Op<'_>, cells: &mut Vec<Change>) -> Option<TreeDelta> {
        if !self.in_tree {
            return None;
        }
        let (mut tree, mut all) = (self.tree, None);
        for (key, _) in &self.before {
            let delta = tree.remove(op, &key.to_be_bytes());
            cells.push(delta.change);
            all = Some(then(op, all, delta));
        }
        assert!(tree.is_empty(), "the window had all cells of the tree");
        all
    }

    fn change_tree(&self, op: &mut Op<'_>, inode: &mut Inode, cells: &mut Vec<Change>) -> Option<TreeDelta> {
        let (mut tree, mut all) = (self.tree, None);
        if self.in_tree {
            for (key, _) in &self.before {
                if self.after.binary_search_by_key(key, |e| e.0).is_err() {
                    let delta = tree.remove(op, &key.to_be_bytes());
                    cells.push(delta.change);
                    all = Some(then(op, all, delta));
                }
            }
        }
        for (key, value) in &self.after {
            let (key_bytes, bytes) = (key.to_be_bytes(), value.encode());
            let delta = match self.find_before(*key).filter(|_| self.in_tree) {
                Some(old) if old == value => continue,
                Some(_) => tree.replace(op, &key_bytes, &bytes),
                None => tree.insert(op, &key_bytes, &bytes, self.birth),
            };
            cells.push(delta.change);
            all = Some(then(op, all, delta));
        }
        self.count_nodes(inode, all.as_ref());
        match tree.is_empty() {
            true => inode.set_inline(&[]),
            false => inode.set_tree_root(tree.root, tree.level),
        }
        all
    }
}

fn then(op: &mut Op<'_>, all: Option<TreeDelta>, delta: TreeDelta) -> TreeDelta {
    match all {
        Some(all) => all.then(op, delta),
        None => delta,
    }
}
