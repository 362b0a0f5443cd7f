//! Cells that a crash may not separate.
//!
//! Under an engine that writes changes in their order (docs/EDGES.md) each change may reach the medium by
//! itself, also where two of them lie in one leaf. An extent that gives way to two others would lose blocks
//! if a crash came between them, and an attribute of several cells would be a part of itself. So such cells
//! are *one* change where one leaf has them all. Where several leaves have them, or one has no room, nothing
//! is done here: the caller has its Op done as a whole ([`Op::be_whole`]), and changes them one by one.

use super::delta::{Links, TreeDelta};
use super::nodes::with_node;
use super::path::Step;
use super::tree::Tree;
use yore_format::{NodeMut, NodeRef};
use yore_meta::Op;

impl Tree {
    /// Inside an Op: gives each of these keys its value, or removes its cell, all in one change. They are in
    /// ascending order and at least one. Returns whether it did; if not, no cell is another.
    ///
    /// # Panics
    /// If there is no cell to change, or the keys were not prepared.
    pub fn change_together<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        op: &mut Op<'_>,
        cells: &[(K, Option<V>)],
    ) -> (TreeDelta, bool) {
        let mut links = Links::default();
        let (first, last) = (&cells.first().expect("a cell").0, &cells.last().expect("a cell").0);
        let path = self.follow(op, None, first.as_ref(), &mut links);
        let Step { frame, position, .. } = path.at(0);
        let is_here = position.is_below_upper(last.as_ref());
        if !is_here || !with_node(frame, |node| has_room(node, cells)) {
            return (links.alone(), false);
        }
        let ((), change) = op.change(frame, |page| {
            for (key, value) in cells {
                let node = NodeRef::new(page.block());
                let Ok(i) = node.search(key.as_ref()) else { continue };
                match value.as_ref().map(AsRef::as_ref) {
                    Some(value) if value.len() == node.value(i).len() => {
                        page.apply(|b| NodeMut::new(b).replace(i, value));
                    }
                    _ => page.apply(|b| NodeMut::new(b).remove(i)),
                }
            }
            for (key, value) in cells {
                let (Some(value), Err(i)) = (value, NodeRef::new(page.block()).search(key.as_ref())) else {
                    continue;
                };
                page.apply(|b| NodeMut::new(b).insert(i, key.as_ref(), value.as_ref()));
            }
        });
        (links.around(change), true)
    }
}

/// Whether a leaf can have these cells, and is not empty then.
fn has_room<K: AsRef<[u8]>, V: AsRef<[u8]>>(node: NodeRef<'_>, cells: &[(K, Option<V>)]) -> bool {
    let (mut count, mut had, mut has) = (node.count(), 0, 0);
    for (key, value) in cells {
        if let Ok(i) = node.search(key.as_ref()) {
            had += node.cell_size(i);
            count -= 1;
        }
        if let Some(value) = value {
            has += NodeRef::cell_bytes(key.as_ref().len(), value.as_ref().len());
            count += 1;
        }
    }
    count > 0 && has <= node.free_bytes() + had
}
