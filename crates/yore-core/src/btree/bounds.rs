//! Removing what an interrupted split or merge has left above the bounds of nodes (T1), where no change of
//! the tree comes by.

use super::nodes::{trim, with_node};
use super::tree::Tree;
use crate::Result;
use yore_format::MetaAddr;
use yore_meta::{EdgeKind, Frame, Meta, Op};

/// A node with cells that do not count.
struct Node {
    frame: Frame,
    parent: MetaAddr,
    /// How many of its cells count, which are the first ones.
    sound: usize,
}

/// Nodes of a tree with cells that do not count, on the way to a key.
pub struct Beyond(Vec<Node>);

impl Tree {
    /// Finds the nodes on the way to `key` that have keys above their bounds, and belong to the present
    /// alone. The tree does not change until [`Beyond::remove`].
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn beyond_bounds(&self, meta: &Meta, key: &[u8]) -> Result<Beyond> {
        let mut found = Vec::new();
        if self.is_empty() {
            return Ok(Beyond(found));
        }
        self.check_level()?;
        let mut position = self.root_position(key.len());
        let mut parent = MetaAddr::NONE;
        loop {
            let frame = meta.read_any(position.addr)?;
            let (count, sound, next) = {
                let page = frame.read();
                let node = self.checked(&page, &position, key.len())?;
                let next = match position.level {
                    0 => None,
                    _ => Some(position.child(node, node.child_for(key))?),
                };
                (node.count(), position.cells_that_count(node), next)
            };
            let addr = frame.addr();
            if sound < count && !self.is_recorded(&frame) {
                found.push(Node { frame, parent, sound });
            }
            match next {
                Some(next) => (parent, position) = (addr, next),
                None => return Ok(Beyond(found)),
            }
        }
    }
}

impl Beyond {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Inside an Op: removes the cells that do not count.
    pub fn remove(self, op: &mut Op<'_>) {
        for Node { frame, parent, sound } in self.0 {
            if sound < with_node(&frame, |node| node.count()) {
                let trimmed = trim(op, &frame, sound);
                // What gives the node its bound is there first.
                op.all_before(EdgeKind::Trimmed, parent, trimmed);
            }
        }
    }
}
