//! A change of a file's extents: read into a list, changed there, and carried over in an Op.

use super::mapping::{birth, check_run, end, in_inode, is_own, of_cell, owned, part, tree, Extent};
use crate::alloc::{Alloc, LetGo, PinnedGroups, Run};
use crate::btree::{CellChange, PastNodes, Pins, Tree, TreeDelta};
use crate::retained;
use crate::Result;
use yore_format::{
    Corruption, DataChecksum, EventNo, ExtentValue, Inode, InodeNo, MetaAddr, EXTENT_INLINE_BYTES,
    EXTENT_LEN_MAX, INLINE_BYTES,
};
use yore_meta::{Change, EdgeKind, Meta, Op};

#[cfg(test)]
mod tests;

/// Extents in an inode.
pub const INLINE_MOST: usize = INLINE_BYTES / EXTENT_INLINE_BYTES;
/// A tree left with this few extents gives way to extents in the inode. The number is smaller than the one
/// that fits, so that the file does not go back and forth.
const INLINE_AGAIN: usize = 2;
/// Extents in a window of a tree that is higher than a leaf.
const WINDOW: usize = 32;
/// How many pieces one edit makes unwritten at most, or lets go of. So the window grows by little.
const PIECES_MOST: usize = 8;
/// More than a leaf has.
const LEAF: usize = 256;

/// Fails if an extent reaches into the next one.
fn check_apart(no: InodeNo, extent: &Extent, next: &Extent) -> Result<()> {
    if end(extent) <= next.0 {
        return Ok(());
    }
    let expected = format!("below block {}, where the next begins", next.0);
    Err(Corruption::new("extent", "end", expected, end(extent)).of(no).into())
}

/// A change of a file's extents in a window of its blocks.
pub struct Edit {
    no: InodeNo,
    tree: Tree,
    in_tree: bool,
    /// The tree's nodes with keys in the window that the past has, too.
    past: PastNodes,
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
    /// Blocks that the past has, and the file no longer, and when they were born.
    left: Vec<(EventNo, Run)>,
    taken: Vec<Run>,
    /// Blocks that are written from now on, and their checksums.
    checksums: Vec<(Run, Vec<Option<DataChecksum>>)>,
    /// Blocks that another reference has, too. If only versions have it, also where their inode lies.
    gained: Vec<(Run, Option<MetaAddr>)>,
    /// What [`Edit::prepare`] keeps in memory, and what it claims.
    groups: PinnedGroups,
}

/// What an Op has changed, and what it does once the inode is stored.
#[must_use]
pub struct Applied<'a> {
    alloc: &'a Alloc,
    leaves: retained::Leaves,
    delta: Option<TreeDelta>,
    /// Changes of cells in the tree.
    cells: Vec<CellChange>,
    allocated: Option<Change>,
    retained: i64,
    freed: Vec<Run>,
    left: Vec<(EventNo, Run)>,
    /// Has the claims on `freed`.
    groups: PinnedGroups,
}

impl Applied<'_> {
    /// Nodes that the past has, too, and the file no longer: it has copies of them, or has no need of them.
    pub fn nodes_left(&self) -> &[MetaAddr] {
        match &self.delta {
            Some(delta) => delta.left(),
            None => &[],
        }
    }

    /// The cells change behind this change, too.
    pub fn behind(&self, op: &mut Op<'_>, first: Change) {
        self.cells.iter().for_each(|cell| op.edge(EdgeKind::Entered, first, cell.change));
    }

    /// Call this with the change that stored the inode. Only then the blocks that it has no longer are free.
    pub fn stored(self, op: &mut Op<'_>, inode: Change) {
        if let Some(allocated) = self.allocated {
            op.edge(EdgeKind::Taken, allocated, inode);
        }
        self.cells.iter().for_each(|cell| op.edge(EdgeKind::Entered, cell.counts, inode));
        if let Some(delta) = self.delta {
            delta.stored(op, inode);
        }
        let mut retained = self.retained;
        let left: Vec<Run> = self.left.iter().map(|(_, run)| *run).collect();
        let to_past = self.alloc.leave_to_past(op, left, inode);
        let gone = self.alloc.let_go(op, self.freed, LetGo::InUse, inode, self.groups);
        retained += to_past.retained + gone.retained;
        let runs = self.left.iter().map(|(birth, run)| (*birth, run.len));
        retained::leave_data(op, &self.leaves, runs, retained);
        if to_past.shared {
            self.leaves.note_sharing(op);
        }
    }
}

impl Edit {
    /// Reads the extents that overlap or touch `from..to`, from the front, as many as fit a window. The past
    /// holds those born at `recorded_until` or before.
    ///
    /// # Errors
    /// As [`mapping`](super::mapping::mapping).
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
            past: PastNodes::default(),
            before: Vec::new(),
            after: Vec::new(),
            whole: !in_tree || tree.level == 0,
            limit: to,
            recorded_until,
            birth: birth(recorded_until),
            lost: 0,
            freed: Vec::new(),
            left: Vec::new(),
            taken: Vec::new(),
            checksums: Vec::new(),
            gained: Vec::new(),
            groups: PinnedGroups::default(),
        };
        if !in_tree {
            edit.before = in_inode(no, inode).collect::<Result<_>>()?;
        } else {
            edit.load_tree(meta, if edit.whole { 0 } else { from }, to)?;
        }
        edit.before.windows(2).try_for_each(|pair| check_apart(no, &pair[0], &pair[1]))?;
        let (first, last) = (edit.first_key(from).to_be_bytes(), edit.limit.to_be_bytes());
        edit.past = tree.past_nodes(meta, &first, &last)?;
        edit.after = edit.before.clone();
        Ok(edit)
    }

    /// The least key of a cell that a change of the blocks from `from` on may concern.
    fn first_key(&self, from: u64) -> u64 {
        self.before.first().map_or(from, |first| first.0.min(from))
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
                before.last().map_or(Ok(()), |last| check_apart(no, last, &extent))?;
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

    /// The Op enters checksums of blocks that become written ones of the file with it.
    pub fn note_checksums(&mut self, run: Run, checksums: Vec<Option<DataChecksum>>) {
        assert_eq!(run.len as usize, checksums.len(), "one for each block");
        self.checksums.push((run, checksums));
    }

    /// Puts blocks at `first` that other references have, too. `left_by`: those with a single one are not in
    /// use, since only versions of this inode have them. [`Alloc::prepare_gain`] has prepared them. Lets go
    /// of the blocks that were there.
    pub fn put_shared(&mut self, first: u64, run: Run, left_by: Option<InodeNo>) {
        self.remove(first, first + u64::from(run.len));
        let value = ExtentValue {
            start: run.start,
            len: run.len,
            unwritten: false,
            shared: false,
            birth: self.birth,
        };
        self.insert((first, value));
        self.gained.push((run, left_by.map(InodeNo::addr)));
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
        let run = Run { start: value.start, len: value.len };
        match is_own(self.recorded_until, &value) {
            true => self.freed.push(run),
            false => self.left.push((value.birth, run)),
        }
    }

    /// Marks the unwritten blocks in `from..to` as written.
    pub fn set_written(&mut self, from: u64, to: u64) {
        let birth = self.birth;
        for (first, value) in self.carve(from, to) {
            if !value.unwritten {
                self.insert((first, value));
            } else if is_own(self.recorded_until, &value) {
                self.insert((first, ExtentValue { unwritten: false, birth, ..value }));
            } else {
                self.lose(value);
            }
        }
        self.merge();
    }

    /// Makes the blocks in `from..to` read as zeros from now on. Blocks that the past or another file has no
    /// longer belong to the file. `sole_part` is [`Alloc::sole_part`]. Each part of an extent that only this
    /// file has is a piece, and so is each other part; after `PIECES_MOST` of them the rest stays as it is.
    /// Returns where that begins, or `to`.
    ///
    /// # Errors
    /// Those of `sole_part`; then the edit is of no use.
    pub fn set_unwritten(
        &mut self,
        from: u64,
        to: u64,
        sole_part: impl Fn(Run) -> Result<(bool, u32)>,
    ) -> Result<u64> {
        let birth = self.birth;
        let (mut pieces, mut rest) = (0, None);
        for (mut first, mut value) in self.carve(from, to) {
            if value.unwritten {
                self.insert((first, value));
                continue;
            }
            while value.len > 0 {
                if pieces == PIECES_MOST {
                    rest.get_or_insert(first);
                    self.insert((first, value));
                    break;
                }
                pieces += 1;
                let (is_sole, len) = match is_own(self.recorded_until, &value) {
                    true => sole_part(Run { start: value.start, len: value.len })?,
                    false => (false, value.len),
                };
                let part = ExtentValue { len, ..value };
                match is_sole {
                    true => self.insert((first, ExtentValue { unwritten: true, birth, ..part })),
                    false => self.lose(part),
                }
                first += u64::from(len);
                (value.start.0, value.len) = (value.start.0 + u64::from(len), value.len - len);
            }
        }
        self.merge();
        Ok(rest.unwrap_or(to))
    }

    /// Where the first so many extents of the window end that reach beyond `from`, or the window. That is
    /// beyond `from`, if `extents` is not 0.
    pub fn limit_of(&self, from: u64, extents: usize) -> u64 {
        let first = self.before.partition_point(|e| end(e) <= from);
        self.before.get(first + extents).map_or(self.limit, |next| next.0.min(self.limit))
    }

    /// How many blocks the extents in `from..to` would have.
    pub fn blocks_in(&self, from: u64, to: u64) -> u64 {
        let within = |(first, value): &Extent| {
            (first + u64::from(value.len)).min(to).saturating_sub((*first).max(from))
        };
        self.after.iter().map(within).sum()
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
                // All cells are of one size, so only new ones split a node.
                let splits = match self.growth() {
                    0 => 0,
                    growth => self.tree.blocks_for_splits(growth as u32),
                };
                splits + self.blocks_for_copies()
            }
            // All extents fit in the tree's first leaf.
            false => 1,
        }
    }

    /// The part of [`Edit::blocks`] for nodes that the past has, too.
    fn blocks_for_copies(&self) -> u32 {
        let keys = self.changed().map(|(key, _)| key);
        match (keys.clone().min(), keys.max()) {
            (Some(first), Some(last)) => {
                self.past.blocks_for_copies(&first.to_be_bytes(), &last.to_be_bytes())
            }
            _ => 0,
        }
    }

    /// How many metadata blocks copies of nodes take at most, if all extents in `from..to` change, in as many
    /// edits as that takes. This one is the first of them. O(nodes with these extents).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn blocks_for_all_copies(&self, meta: &Meta, from: u64, to: u64) -> Result<u32> {
        let (first, last) = (self.first_key(from).to_be_bytes(), to.to_be_bytes());
        Ok(self.tree.past_nodes(meta, &first, &last)?.blocks_for_copies(&first, &last))
    }

    /// How many metadata blocks it takes at most to remove all extents in `from..to`, in as many edits as
    /// that takes. This one is the first of them, and has changed nothing.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn blocks_to_remove(mut self, meta: &Meta, from: u64, to: u64) -> Result<u32> {
        if to <= self.limit {
            self.remove(from, to);
            return Ok(self.blocks());
        }
        // One extent at most has a new key: what is left of the last one.
        Ok(self.tree.blocks_for_splits(1) + self.blocks_for_all_copies(meta, from, to)?)
    }

    /// Keeps in memory what the Op changes.
    ///
    /// # Errors
    /// Reading it may fail; `Corruption` for extents whose blocks are no data blocks, or are not the file's
    /// according to the bitmaps.
    pub fn prepare(&mut self, meta: &Meta, alloc: &Alloc, pins: &mut Pins) -> Result<()> {
        let (no, pinned) = (self.no, &mut self.groups);
        self.taken.iter().try_for_each(|run| owned(alloc.prepare_commit(meta, *run, pinned), no))?;
        for (run, _) in &self.checksums {
            owned(alloc.prepare_checksums(meta, *run, pinned), no)?;
        }
        for run in &self.freed {
            check_run(meta, alloc, no, *run)?;
            owned(alloc.prepare_free(meta, *run, pinned), no)?;
        }
        for (_, run) in &self.left {
            owned(alloc.prepare_to_past(meta, *run, pinned), no)?;
        }
        let keys = self.before.iter().chain(&self.after).map(|e| e.0);
        if let (true, Some(first), Some(last)) = (self.in_tree, keys.clone().min(), keys.max()) {
            self.tree.prepare(meta, &first.to_be_bytes(), &last.to_be_bytes(), pins)?;
        }
        Ok(())
    }

    /// Inside an Op: changes bitmaps, the tree, and the content of `inode`, which the caller stores; then it
    /// calls [`Applied::stored`].
    pub fn apply<'a>(self, op: &mut Op<'_>, alloc: &'a Alloc, inode: &mut Inode) -> Applied<'a> {
        let mut allocated: Option<Change> = None;
        for run in &self.taken {
            let change = alloc.commit(op, *run);
            if let Some(earlier) = allocated {
                op.edge(EdgeKind::Taken, earlier, change);
            }
            allocated = Some(change);
            inode.blocks = inode.blocks.saturating_add(u64::from(run.len));
        }
        for (run, checksums) in &self.checksums {
            let change = alloc.enter_checksums(op, *run, checksums);
            if let (Some(earlier), Some(change)) = (allocated, change) {
                op.edge(EdgeKind::Taken, earlier, change);
            }
            allocated = change.or(allocated);
        }
        let mut retained = 0;
        for (run, left_by) in &self.gained {
            let (growth, change) = alloc.gain(op, *run, *left_by);
            if let (Some(earlier), Some(change)) = (allocated, change) {
                op.edge(EdgeKind::Taken, earlier, change);
            }
            allocated = change.or(allocated);
            retained += growth;
            inode.blocks = inode.blocks.saturating_add(u64::from(run.len));
        }
        let mut cells = Vec::new();
        let delta = match self.ends_inline() {
            // Nothing changes; the content may be the bytes of a small file.
            _ if self.before == self.after => None,
            true => {
                let delta = self.empty_tree(op);
                ExtentValue::encode_inline(inode, &self.after);
                self.count_nodes(inode, delta.as_ref());
                delta
            }
            false => self.change_tree(op, inode, allocated, &mut cells),
        };
        // A wrong count is for the checker to find. It must not keep anybody from freeing the blocks.
        inode.blocks = inode.blocks.saturating_sub(self.lost);
        let leaves = retained::Leaves {
            inode: self.no,
            incarnation: inode.incarnation,
            recorded_until: self.recorded_until,
        };
        let (freed, left, groups) = (self.freed, self.left, self.groups);
        Applied { alloc, leaves, delta, cells, allocated, retained, freed, left, groups }
    }

    fn count_nodes(&self, inode: &mut Inode, delta: Option<&TreeDelta>) {
        let nodes = delta.map_or(0, |d| i64::from(d.nodes));
        inode.blocks = inode.blocks.saturating_add_signed(nodes);
    }

    /// Lets go of the tree, if there is one: the extents go back to the inode.
    fn empty_tree(&self, op: &mut Op<'_>) -> Option<TreeDelta> {
        let mut tree = self.tree;
        tree.free_all(op)
    }

    /// A cell of the tree has changed: what it may do to the places of other extents.
    #[cold]
    fn tell_places(&self, op: &mut Op<'_>, cell: CellChange) {
        if !(self.taken.is_empty() && self.gained.is_empty()) {
            op.occupied(self.no, cell.change);
        }
        if self.lost > 0 {
            op.vacated(self.no, cell.counts);
        }
    }

    /// Whether blocks go from the cell of one key to that of another: a crash between the two would lose
    /// them, or name them twice.
    fn separates(&self) -> bool {
        self.after.iter().filter(|new| self.find_before(new.0) != Some(&new.1)).any(|new| {
            let from = self.before.partition_point(|old| end(old) <= new.0);
            self.before[from..].iter().take_while(|old| old.0 < end(new)).any(|old| old.0 != new.0)
        })
    }

    /// The extents that change: those that go, and those that are new or become others, with what they
    /// become.
    fn changed(&self) -> impl Iterator<Item = (u64, Option<&ExtentValue>)> + Clone {
        let is_gone = move |old: &&Extent| self.after.binary_search_by_key(&old.0, |a| a.0).is_err();
        let is_new = move |new: &&Extent| self.find_before(new.0) != Some(&new.1);
        let gone = self.before.iter().filter(is_gone).map(|old| (old.0, None));
        gone.chain(self.after.iter().filter(is_new).map(|new| (new.0, Some(&new.1))))
    }

    /// The cells that change, by key; `None`: it goes.
    fn changed_cells(&self) -> Vec<([u8; 8], Option<Vec<u8>>)> {
        let cell = |(key, value): (u64, Option<&ExtentValue>)| {
            (key.to_be_bytes(), value.map(|value| value.encode()[..].to_vec()))
        };
        let mut cells: Vec<_> = self.changed().map(cell).collect();
        cells.sort_unstable_by_key(|cell| cell.0);
        cells
    }

    fn change_tree(
        &self,
        op: &mut Op<'_>,
        inode: &mut Inode,
        allocated: Option<Change>,
        cells: &mut Vec<CellChange>,
    ) -> Option<TreeDelta> {
        let (mut tree, mut all) = (self.tree, None);
        let mut entered = |op: &mut Op<'_>, delta: TreeDelta, all: Option<TreeDelta>| {
            let cell = delta.cell();
            if let Some(allocated) = allocated {
                op.edge(EdgeKind::Taken, allocated, cell.change);
            }
            if op.wants_order() {
                self.tell_places(op, cell);
            }
            cells.push(cell);
            Some(delta.after(all))
        };
        let mut is_done = false;
        if self.in_tree && op.wants_order() && self.separates() {
            let (delta, together) = tree.change_together(op, &self.changed_cells());
            if together {
                all = entered(op, delta, None);
            } else {
                op.be_whole();
                all = Some(delta);
            }
            is_done = together;
        }
        if self.in_tree && !is_done {
            for (key, _) in &self.before {
                if self.after.binary_search_by_key(key, |e| e.0).is_err() {
                    let delta = tree.remove(op, &key.to_be_bytes());
                    all = entered(op, delta, all);
                }
            }
        }
        for (key, value) in self.after.iter().filter(|_| !is_done) {
            let (key_bytes, bytes) = (key.to_be_bytes(), value.encode());
            let delta = match self.find_before(*key).filter(|_| self.in_tree) {
                Some(old) if old == value => continue,
                Some(_) => tree.replace(op, &key_bytes, &bytes),
                None => tree.insert(op, &key_bytes, &bytes, self.birth),
            };
            all = entered(op, delta, all);
        }
        self.count_nodes(inode, all.as_ref());
        match tree.is_empty() {
            true => inode.set_inline(&[]),
            false => inode.set_tree_root(tree.root, tree.level),
        }
        all
    }
}
