//! Where the changes that wait are found by what an fsync knows: the inode, the Op, the block, and the change
//! that waits for others. Nobody keeps this up to date while changes are made; an fsync enters what has come
//! since the last one, so each change and edge of a generation is entered once, and none without an fsync.

use super::order::EdgeKind;
use super::waits::{HasPlace, Waits, Where, NO_OP};
use hashbrown::HashMap;
use yore_format::{InodeNo, MetaAddr};

/// What was entered of the changes that wait.
#[derive(Default)]
pub(crate) struct Index {
    /// Of each change the last edge that leads to it: its place in the edges and 1 more; 0: none does.
    last_edge: Vec<u32>,
    /// Of each edge the one before it that leads to the same change, said in the same way.
    edge_before: Vec<u32>,
    /// The first and the last change of each Op.
    spans: HashMap<u64, (usize, usize)>,
    /// The Ops that have changed an inode.
    by_inode: HashMap<InodeNo, Vec<u64>>,
    /// The changes of a block that are not durable, ascending.
    by_block: HashMap<MetaAddr, Vec<usize>>,
    /// The change that has made a block, if that is not durable.
    made: HashMap<MetaAddr, usize>,
}

impl Index {
    /// Enters what has come since this was called last.
    pub(super) fn enter<P: HasPlace>(&mut self, waits: &Waits<P>) {
        for at in self.last_edge.len()..waits.changes.len() {
            let (op, kept) = &waits.changes[at];
            self.last_edge.push(0);
            if *op != NO_OP {
                let span = self.spans.entry(*op).or_insert((at, at));
                span.1 = at;
            }
            match kept.place() {
                Where::Block(addr) => {
                    self.by_block.entry(addr).or_default().push(at);
                    kept.each_slot(&mut |slot| {
                        let ops = self.by_inode.entry(InodeNo::new(addr, slot as u8)).or_default();
                        if ops.last() != Some(op) {
                            ops.push(*op);
                        }
                    });
                }
                Where::Made(addr) => drop(self.made.insert(addr, at)),
                Where::Freed(_) | Where::Superblock => {}
            }
        }
        for (edge, (_, _, then)) in waits.edges.iter().enumerate().skip(self.edge_before.len()) {
            let last = &mut self.last_edge[*then];
            self.edge_before.push(std::mem::replace(last, edge as u32 + 1));
        }
    }

    /// The changes that a change waits for, each with the kind of its edge.
    pub(crate) fn firsts<'i, P>(
        &'i self,
        waits: &'i Waits<P>,
        change: usize,
    ) -> impl Iterator<Item = (EdgeKind, usize)> + 'i {
        let mut next = self.last_edge[change];
        std::iter::from_fn(move || {
            let edge = next.checked_sub(1)? as usize;
            next = self.edge_before[edge];
            let (kind, first, _) = waits.edges[edge];
            Some((kind, first))
        })
    }

    /// The Ops that have changed an inode; some may be there twice.
    pub(crate) fn changed(&self, inode: InodeNo) -> &[u64] {
        self.by_inode.get(&inode).map_or(&[], |ops| ops)
    }

    /// The changes of an Op.
    pub(crate) fn of_op<'i, P>(
        &self,
        waits: &'i Waits<P>,
        op: u64,
    ) -> impl Iterator<Item = usize> + use<'i, P> {
        let span = self.spans.get(&op).copied();
        let all = span.into_iter().flat_map(|(first, last)| first..=last);
        all.filter(move |at| waits.changes[*at].0 == op)
    }

    /// The changes of a block that are not durable, ascending.
    pub(crate) fn of_block(&self, addr: MetaAddr) -> &[usize] {
        self.by_block.get(&addr).map_or(&[], |changes| changes)
    }

    /// How many blocks have changes that are not durable.
    pub(crate) fn blocks(&self) -> usize {
        self.by_block.len()
    }

    /// The change that has made a block, if that is not durable.
    pub(crate) fn made(&self, addr: MetaAddr) -> Option<usize> {
        self.made.get(&addr).copied()
    }

    /// What the Ops so far have changed of an inode is durable.
    pub(crate) fn forget_inode(&mut self, inode: InodeNo) {
        self.by_inode.remove(&inode);
    }

    /// Changes of a block are durable.
    pub(crate) fn forget_changes(&mut self, addr: MetaAddr, is_durable: impl Fn(usize) -> bool) {
        if self.made.get(&addr).is_some_and(|made| is_durable(*made)) {
            self.made.remove(&addr);
        }
        if let Some(changes) = self.by_block.get_mut(&addr) {
            changes.retain(|change| !is_durable(*change));
            if changes.is_empty() {
                self.by_block.remove(&addr);
            }
        }
    }
}
