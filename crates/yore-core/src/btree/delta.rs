//! What the owner of a tree's root must know of a change: how many nodes came or went, and what must reach
//! the medium before or after the pointer to the root. Everything that waits for the pointer is chained, so
//! two edges order all of it.

use yore_meta::{Change, Op};

/// What a change of a tree did.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct TreeDelta {
    /// The change that the call meant: the cell inserted, replaced or removed.
    pub change: Change,
    /// Nodes gained, or lost if negative.
    pub nodes: i32,
    links: Links,
}

/// What a change did around the cell that it meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    pub(super) nodes: i32,
    /// The new root's image. It must reach the medium before the pointer to it.
    image: Option<Change>,
    /// What must reach the medium after the pointer to the new root.
    after: Option<Change>,
}

impl Links {
    /// Chains the image to the earlier one, so that one edge to the pointer orders all.
    pub(super) fn add_image(&mut self, op: &mut Op<'_>, image: Change) {
        if let Some(earlier) = self.image {
            op.before(earlier, image);
        }
        self.image = Some(image);
    }

    pub(super) fn add_after(&mut self, op: &mut Op<'_>, after: Change) {
        match self.after {
            Some(first) => op.before(first, after),
            None => self.after = Some(after),
        }
    }

    pub(super) fn around(self, change: Change) -> TreeDelta {
        TreeDelta { change, nodes: self.nodes, links: self }
    }
}

impl TreeDelta {
    /// This delta and then `next`, on the same tree in the same Op; the change is that of `next`.
    pub(crate) fn then(self, op: &mut Op<'_>, next: TreeDelta) -> TreeDelta {
        let mut links = self.links;
        links.nodes += next.nodes;
        if let Some(image) = next.links.image {
            links.add_image(op, image);
        }
        if let Some(after) = next.links.after {
            links.add_after(op, after);
        }
        links.around(next.change)
    }

    /// As `then` in the other order, where there may be no earlier delta.
    pub fn after(self, op: &mut Op<'_>, earlier: Option<TreeDelta>) -> TreeDelta {
        match earlier {
            Some(earlier) => earlier.then(op, self),
            None => self,
        }
    }

    /// Orders the change with which the owner stored the root's address against the changes of the nodes.
    /// Call it once that address is stored.
    pub fn stored(&self, op: &mut Op<'_>, pointer: Change) {
        if let Some(image) = self.links.image {
            op.before(image, pointer);
        }
        if let Some(after) = self.links.after {
            op.before(pointer, after);
        }
    }
}

/// A change of something that lies in an inode, or in a tree whose root the inode keeps, until the inode is
/// stored.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub enum Unstored {
    /// It lies in the inode.
    Inside,
    /// It lies in the tree.
    InTree(TreeDelta),
}

impl Unstored {
    /// Call this with the change that stored the inode. Returns the change that carries what was meant.
    pub fn stored(self, op: &mut Op<'_>, inode: Change) -> Change {
        match self {
            Unstored::Inside => inode,
            Unstored::InTree(delta) => {
                delta.stored(op, inode);
                delta.change
            }
        }
    }
}
