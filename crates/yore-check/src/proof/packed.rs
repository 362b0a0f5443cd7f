//! What is kept of nodes and inodes as bytes: as few as the numbers need, for there may be many.

use super::node::{Body, DirectoryLeaf, ExtentsLeaf, Head, InodeWithTrees, Node, SymlinkLeaf, XattrsLeaf};
use crate::varint;
use std::convert::Infallible;
use yore_format::{BlockKind, InodeFlags, MetaAddr};

/// Which kind of body a node has.
const BRANCH: u8 = 0;
const EXTENTS: u8 = 1;
const DIRECTORY: u8 = 2;
const SYMLINK: u8 = 3;
const XATTRS: u8 = 4;

/// Writes numbers.
#[derive(Default)]
struct Packing(Vec<u8>);

impl Packing {
    /// A number that is mostly small.
    fn number(&mut self, number: u64) {
        varint::put(&mut self.0, number);
    }

    /// A number that may be any, like a hash.
    fn long(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// A pair of numbers that may not be there.
    fn pair(&mut self, pair: Option<(u64, u64)>) {
        self.number(pair.is_some().into());
        if let Some((first, second)) = pair {
            self.long(first);
            self.long(second);
        }
    }
}

/// Reads what [`Packing`] has written.
struct Packed<'b>(&'b [u8]);

impl Packed<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("as many bytes as were written");
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let Ok(number) = varint::get(|| Ok::<_, Infallible>(Some(self.byte())));
        number.expect("as many bytes as were written")
    }

    fn long(&mut self) -> u64 {
        let (first, rest) = self.0.split_first_chunk().expect("as many bytes as were written");
        self.0 = rest;
        u64::from_le_bytes(*first)
    }

    fn pair(&mut self) -> Option<(u64, u64)> {
        (self.number() != 0).then(|| (self.long(), self.long()))
    }
}

impl Node {
    /// All but the address.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut to = Packing(Vec::with_capacity(64));
        let body = match &self.body {
            Body::Branch(_) => BRANCH,
            Body::Extents(_) => EXTENTS,
            Body::Directory(_) => DIRECTORY,
            Body::Symlink(_) => SYMLINK,
            Body::Xattrs(_) => XATTRS,
        };
        to.0.extend([body, self.kind, self.level]);
        for number in [self.owner, self.incarnation.into(), self.count.into()] {
            to.number(number);
        }
        match body {
            // Keys are hashes there.
            DIRECTORY | XATTRS => [self.first, self.last].into_iter().for_each(|key| to.long(key)),
            _ => [self.first, self.last].into_iter().for_each(|key| to.number(key)),
        }
        match &self.body {
            Body::Branch(cells) => {
                for (key, child) in cells {
                    to.long(*key);
                    to.long(child.0);
                }
            }
            Body::Extents(leaf) => [leaf.end, leaf.blocks].into_iter().for_each(|number| to.number(number)),
            Body::Directory(leaf) => {
                // The key of a name is its hash, or a little more.
                let more = leaf.bases.map(|(first, last)| [self.first - first, self.last - last]);
                to.number(more.is_some().into());
                more.into_iter().flatten().for_each(|more| to.number(more));
                to.number(leaf.subdirectories.into());
            }
            Body::Symlink(leaf) => {
                to.number(leaf.bytes);
                to.number(leaf.last_is_full.into());
            }
            Body::Xattrs(leaf) => {
                let head = leaf.head.as_ref();
                to.number(head.is_some().into());
                if let Some(Head { key, count, last }) = head {
                    to.long(*key);
                    to.number(*count as u64);
                    to.number(*last as u64);
                }
                to.pair(leaf.hashes);
                to.long(leaf.tail.0);
                to.number(leaf.tail.1 as u64);
                to.number(leaf.flags.bits().into());
            }
        }
        to.0
    }

    /// The node at an address from what was packed.
    pub(super) fn of(addr: MetaAddr, bytes: &[u8]) -> Node {
        let mut from = Packed(bytes);
        let [body, kind, level] = [(); 3].map(|()| from.byte());
        let [owner, incarnation, count] = [(); 3].map(|()| from.number());
        let (incarnation, count) = (incarnation as u32, count as u16);
        let [first, last] = match body {
            DIRECTORY | XATTRS => [(); 2].map(|()| from.long()),
            _ => [(); 2].map(|()| from.number()),
        };
        let body = match body {
            BRANCH => Body::Branch((0..count).map(|_| (from.long(), MetaAddr(from.long()))).collect()),
            EXTENTS => Body::Extents(ExtentsLeaf { end: from.number(), blocks: from.number() }),
            DIRECTORY => {
                let bases = match from.number() {
                    0 => None,
                    _ => Some((first - from.number(), last - from.number())),
                };
                Body::Directory(DirectoryLeaf { bases, subdirectories: from.number() as u16 })
            }
            SYMLINK => Body::Symlink(SymlinkLeaf { bytes: from.number(), last_is_full: from.number() != 0 }),
            _ => {
                let head = (from.number() != 0).then(|| Head {
                    key: from.long(),
                    count: from.number() as usize,
                    last: from.number() as usize,
                });
                Body::Xattrs(Box::new(XattrsLeaf {
                    head,
                    hashes: from.pair(),
                    tail: (from.long(), from.number() as usize),
                    flags: InodeFlags::from_bits_retain(from.number() as u32),
                }))
            }
        };
        Node { addr, owner, incarnation, kind, level, count, first, last, body }
    }
}

impl InodeWithTrees {
    /// All but the number.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut to = Packing(Vec::with_capacity(32));
        for number in [self.incarnation, self.links, self.has_versions.into(), self.flags.bits()] {
            to.number(number.into());
        }
        for number in [self.size, self.blocks, self.xattrs.0] {
            to.number(number);
        }
        if let Some((kind, root, level)) = self.content {
            to.0.extend([kind as u8, level]);
            to.number(root.0);
        }
        to.0
    }

    /// The inode of a number from what was packed.
    pub(super) fn of(number: u64, bytes: &[u8]) -> InodeWithTrees {
        let mut from = Packed(bytes);
        let [incarnation, links, has_versions, flags] = [(); 4].map(|()| from.number() as u32);
        let [size, blocks, xattrs] = [(); 3].map(|()| from.number());
        let content = (!from.0.is_empty()).then(|| {
            let kind = BlockKind::from_repr(from.byte()).expect("the byte of a kind");
            let level = from.byte();
            (kind, MetaAddr(from.number()), level)
        });
        let (xattrs, flags) = (MetaAddr(xattrs), InodeFlags::from_bits_retain(flags));
        let has_versions = has_versions != 0;
        InodeWithTrees { number, incarnation, links, has_versions, content, xattrs, flags, size, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that every kind of node, and an inode, comes back as it was.
    #[test]
    fn what_is_packed_comes_back() {
        let hash = 0xfedc_ba98_7654_3200;
        let bodies = [
            Body::Branch(vec![(0, MetaAddr(7)), (hash, MetaAddr(u64::MAX))]),
            Body::Extents(ExtentsLeaf { end: 1 << 31, blocks: 300 }),
            Body::Directory(DirectoryLeaf { bases: Some((hash, hash + 512)), subdirectories: 2 }),
            Body::Directory(DirectoryLeaf { bases: None, subdirectories: 0 }),
            Body::Symlink(SymlinkLeaf { bytes: 4000, last_is_full: true }),
            Body::Xattrs(Box::new(XattrsLeaf {
                head: Some(Head { key: hash, count: 3, last: 17 }),
                hashes: Some((hash, hash + 1)),
                tail: (hash + 5, 70_000),
                flags: InodeFlags::ACCESS_ACL,
            })),
            Body::Xattrs(Box::default()),
        ];
        for body in bodies {
            let (addr, owner, incarnation) = (MetaAddr(900), 1 << 40, 77);
            let node = Node {
                addr,
                owner,
                incarnation,
                kind: 5,
                level: 1,
                count: 2,
                first: hash + 1,
                last: hash + 520,
                body,
            };
            assert_eq!(format!("{:?}", Node::of(addr, &node.packed())), format!("{node:?}"));
        }
        for content in [None, Some((BlockKind::Extents, MetaAddr(1 << 33), 2))] {
            let (xattrs, flags) = (MetaAddr(12), InodeFlags::CAPABILITY);
            let inode = InodeWithTrees {
                number: 1600,
                incarnation: 9,
                links: 300,
                has_versions: content.is_some(),
                content,
                xattrs,
                flags,
                size: 1 << 50,
                blocks: 1000,
            };
            assert_eq!(format!("{:?}", InodeWithTrees::of(1600, &inode.packed())), format!("{inode:?}"));
        }
    }
}
