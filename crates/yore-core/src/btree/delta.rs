//! What the owner of a tree's root must know of a change: how many nodes came or went, and what is done with
//! the pointer to the root. Nodes that the tree loses with another root are freed behind that pointer.

use yore_format::MetaAddr;
use yore_meta::{Change, EdgeKind, Frame, Op};

/// What a change of a tree did. The owner stores the root, and calls [`TreeDelta::stored`].
#[must_use]
#[derive(Debug)]
pub struct TreeDelta {
    /// Nodes gained, or lost if negative.
    pub nodes: i32,
    /// Nodes that the past has, too, and the tree no longer: it has a copy, or nothing.
    left: Vec<MetaAddr>,
    change: Option<Change>,
    counts: Option<Change>,
    /// What is done with the pointer to another root.
    roots: Option<Box<Roots>>,
}

/// What a change of a tree means for others: a cell that it has entered, replaced or removed.
#[derive(Clone, Copy, Debug)]
pub struct CellChange {
    /// The change of the cell.
    pub change: Change,
    /// The change from which on it counts: this one, or one that makes its node count.
    pub counts: Change,
}

impl From<Change> for CellChange {
    fn from(change: Change) -> CellChange {
        CellChange { change, counts: change }
    }
}

/// What a change did around the cell that it meant.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) nodes: i32,
    /// Nodes that are left to the past.
    pub(super) left: Vec<MetaAddr>,
    /// What is done with the pointer to another root.
    roots: Option<Box<Roots>>,
}

/// What is done once the root is stored, by the change that has stored it.
type Rest = Box<dyn FnOnce(&mut Op<'_>, Change) + Send>;

/// What changes with the pointer to the root.
#[derive(Default)]
struct Roots {
    /// New roots.
    new: Vec<MetaAddr>,
    /// Nodes of which the tree has a copy elsewhere, or nothing. What waits in them comes first.
    moved: Vec<MetaAddr>,
    /// Those of them that are free behind it.
    leaving: Vec<Frame>,
    /// What is left to be done of a batch of inserts.
    rest: Option<Rest>,
}

impl std::fmt::Debug for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "roots {:?}, {:?} moved, {} to be freed", self.new, self.moved, self.leaving.len())
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        debug_assert!(
            (self.leaving.is_empty() && self.rest.is_none()) || std::thread::panicking(),
            "nodes that nobody frees"
        );
    }
}

impl Roots {
    #[cold]
    fn stored(&mut self, op: &mut Op<'_>, pointer: Change) {
        for new in &self.new {
            op.linked(*new, pointer);
        }
        if let Some(rest) = self.rest.take() {
            rest(op, pointer);
        }
        for moved in &self.moved {
            op.moved(*moved, pointer);
        }
        for leaving in self.leaving.drain(..) {
            let freed = op.free(leaving);
            op.edge(EdgeKind::Freed, pointer, freed);
        }
    }
}

impl Links {
    fn roots(&mut self) -> &mut Roots {
        self.roots.get_or_insert_default()
    }

    /// The tree has this new node for its root.
    pub(super) fn add_root(&mut self, root: MetaAddr) {
        self.roots().new.push(root);
    }

    /// What this node had the tree has elsewhere, or no longer, from the pointer on. `leaving`: and the node
    /// is free then.
    pub(super) fn add_moved(&mut self, node: MetaAddr, leaving: Option<Frame>) {
        self.roots().moved.push(node);
        self.roots().leaving.extend(leaving);
    }

    /// This is left to be done of a batch of inserts, which has made the root.
    pub(super) fn add_rest(&mut self, rest: Rest) {
        self.roots().rest = Some(rest);
    }

    /// Around a change, which counts at once if the tree has the root that its owner has stored.
    #[inline]
    pub(super) fn around(self, change: Change) -> TreeDelta {
        let counts = (!is_new(&self.roots)).then_some(change);
        TreeDelta { change: Some(change), counts, nodes: self.nodes, left: self.left, roots: self.roots }
    }

    /// Around a change of a cell that counts from another change on; `None`: from the pointer on.
    #[inline]
    pub(super) fn around_cell(self, change: Change, counts: Option<Change>) -> TreeDelta {
        let counts = counts.filter(|_| !is_new(&self.roots));
        TreeDelta { change: Some(change), counts, nodes: self.nodes, left: self.left, roots: self.roots }
    }

    /// Around nothing but nodes that go.
    pub(super) fn alone(self) -> TreeDelta {
        TreeDelta { change: None, counts: None, nodes: self.nodes, left: self.left, roots: self.roots }
    }
}

/// Whether what the tree has counts only from the pointer on.
#[inline]
fn is_new(roots: &Option<Box<Roots>>) -> bool {
    roots.as_ref().is_some_and(|roots| !roots.new.is_empty())
}

impl TreeDelta {
    /// The change that the call meant: the cell inserted, replaced or removed.
    ///
    /// # Panics
    /// If the call did not mean a cell.
    pub fn change(&self) -> Change {
        self.change.expect("a change of a cell")
    }

    /// The same with the change from which on it counts, for an owner who orders its next change of the root
    /// behind both. With another root all of it counts from that change on.
    ///
    /// # Panics
    /// As [`TreeDelta::change`].
    pub(crate) fn cell(&self) -> CellChange {
        let change = self.change();
        CellChange { change, counts: self.counts.unwrap_or(change) }
    }

    /// This delta and then `next`, on the same tree in the same Op; the change is that of `next`.
    pub(crate) fn then(mut self, mut next: TreeDelta) -> TreeDelta {
        let is_new = is_new(&self.roots);
        self.nodes += next.nodes;
        self.left.append(&mut next.left);
        self.change = next.change;
        self.counts = next.counts.filter(|_| !is_new);
        if let Some(mut roots) = next.roots {
            let all = self.roots.get_or_insert_default();
            all.new.append(&mut roots.new);
            all.moved.append(&mut roots.moved);
            all.leaving.append(&mut roots.leaving);
            assert!(roots.rest.is_none(), "a batch is stored before the tree changes again");
        }
        self
    }

    /// As `then` in the other order, where there may be no earlier delta.
    pub fn after(self, earlier: Option<TreeDelta>) -> TreeDelta {
        match earlier {
            Some(earlier) => earlier.then(self),
            None => self,
        }
    }

    /// The nodes that the tree has left to the past.
    pub(crate) fn left(&self) -> &[MetaAddr] {
        &self.left
    }

    /// Whether the tree has another root, or nodes that go with the pointer to it.
    pub fn moves_root(&self) -> bool {
        self.roots.is_some()
    }

    /// What was meant, for an owner whose root is the same as before; `None`: not a single cell.
    pub fn unmoved(self) -> Option<CellChange> {
        debug_assert!(!self.moves_root(), "the tree has another root");
        // Also below the same root the cell may lie in a new node, and counts from the pointer to that on.
        self.change.map(|_| self.cell())
    }

    /// Call this with the change by which the owner has stored the root's address. Does what comes behind
    /// that, and frees the nodes that the tree has no longer. Returns the change of the cell.
    #[inline]
    pub fn stored(self, op: &mut Op<'_>, pointer: Change) -> CellChange {
        let change = self.change.unwrap_or(pointer);
        let cell = CellChange { change, counts: self.counts.unwrap_or(pointer) };
        if let Some(mut roots) = self.roots {
            roots.stored(op, pointer);
        }
        cell
    }
}

/// A change of something that lies in an inode, or in a tree whose root the inode keeps, until the inode is
/// stored.
#[must_use]
#[derive(Debug)]
pub enum Unstored {
    /// It lies in the inode.
    Inside,
    /// It lies in the tree.
    InTree(TreeDelta),
}

impl Unstored {
    /// Call this with the change that stored the inode. Returns the change that carries what was meant.
    #[inline]
    pub fn stored(self, op: &mut Op<'_>, inode: Change) -> CellChange {
        match self {
            Unstored::Inside => inode.into(),
            Unstored::InTree(delta) => delta.stored(op, inode),
        }
    }

    /// This was changed after `earlier`, in the same content, which is stored once for both.
    pub fn behind(mut self, earlier: &Unstored) -> Unstored {
        if let (Unstored::InTree(delta), Unstored::InTree(earlier)) = (&mut self, earlier) {
            delta.counts = delta.counts.filter(|_| !is_new(&earlier.roots));
        }
        self
    }
}
