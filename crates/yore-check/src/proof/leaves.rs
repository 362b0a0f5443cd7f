//! Nodes of the trees of inodes, each by itself.

use super::digest::Digest;
use super::doubt::{ensure, sound, Certain, Doubt};
use super::node::{Body, DirectoryLeaf, ExtentsLeaf, Head, Node, SymlinkLeaf, XattrsLeaf};
use crate::key::{key, KEY_WIDTH};
use yore_format::{
    decode_symlink_chunk, xattr_key, Block, BlockHeader, BlockKind, DirEntry, ExtentValue, Incarnation,
    InodeFlags, InodeNo, MetaAddr, NodeRef, XattrCell, XattrNamespace, SYMLINK_CHUNK_BYTES,
    XATTR_CHUNK_BYTES,
};

/// The part of an attribute's key that is the hash.
const HASH: u64 = !0xff_ffff;
/// The part of it that is the chunk's number.
const CHUNK: u64 = 0xffff;

impl Digest<'_> {
    /// A node of a tree of an inode.
    pub(super) fn node(&mut self, block: &Block) -> Certain {
        let (header, node) = (BlockHeader::of(block), NodeRef::new(block));
        ensure(node.key_width() == KEY_WIDTH, "keys of the wrong width")?;
        let count = node.count();
        let at = |i: usize| key(node, i).number();
        let body = match BlockKind::from_repr(header.kind) {
            _ if node.level() > 0 => Self::branch(node)?,
            Some(BlockKind::Extents) => Body::Extents(self.extents_leaf(header, node)?),
            Some(BlockKind::Directory) => Body::Directory(self.directory_leaf(header, node)?),
            Some(BlockKind::Symlink) => Body::Symlink(symlink_leaf(node)?),
            Some(BlockKind::Xattrs) => Body::Xattrs(Box::new(self.xattrs_leaf(node)?)),
            _ => return Err(Doubt("a node of another kind")),
        };
        let node = Node {
            addr: MetaAddr(header.addr.get()),
            owner: header.owner.get(),
            incarnation: header.owner_incarnation.get(),
            kind: header.kind,
            level: node.level(),
            // A block has no room for more.
            count: count as u16,
            first: if count == 0 { 0 } else { at(0) },
            last: if count == 0 { 0 } else { at(count - 1) },
            body,
        };
        self.ground.kept(self.summary.node(&node))
    }

    fn branch(node: NodeRef<'_>) -> Certain<Body> {
        let cell = |i| Ok((key(node, i).number(), sound(node.child(i), "a child that cannot be")?));
        Ok(Body::Branch((0..node.count()).map(cell).collect::<Certain<_>>()?))
    }

    fn extents_leaf(&mut self, header: &BlockHeader, node: NodeRef<'_>) -> Certain<ExtentsLeaf> {
        let of = (InodeNo(header.owner.get()), MetaAddr(header.addr.get()));
        let mut leaf = ExtentsLeaf::default();
        for i in 0..node.count() {
            let extent = sound(ExtentValue::decode(node.value(i)), "an extent that cannot be decoded")?;
            leaf.end = self.extent(of, key(node, i).number(), &extent, leaf.end)?;
            leaf.blocks += u64::from(extent.len);
        }
        Ok(leaf)
    }

    fn directory_leaf(&mut self, header: &BlockHeader, node: NodeRef<'_>) -> Certain<DirectoryLeaf> {
        let of = (InodeNo(header.owner.get()), Incarnation(header.owner_incarnation.get()));
        let mut leaf = DirectoryLeaf::default();
        for i in 0..node.count() {
            let entry = sound(DirEntry::decode(node.value(i)), "an entry that cannot be decoded")?;
            let (base, is_directory) = self.entry(of, key(node, i).number(), &entry)?;
            let first = leaf.bases.map_or(base, |(first, _)| first);
            // One of 2^55 pairs of names shares its hash. Whether the names differ, the walk finds out.
            ensure(leaf.bases.is_none_or(|(_, last)| last != base), "names of one hash")?;
            leaf.bases = Some((first, base));
            leaf.subdirectories += u16::from(is_directory);
        }
        Ok(leaf)
    }

    fn xattrs_leaf(&mut self, node: NodeRef<'_>) -> Certain<XattrsLeaf> {
        let mut leaf = XattrsLeaf::default();
        for i in 0..node.count() {
            let key = key(node, i).number();
            let cell = sound(XattrCell::decode(node.value(i)), "an attribute that cannot be decoded")?;
            match (cell, leaf.hashes) {
                (XattrCell::First { namespace, name, value_len, chunk }, _) => {
                    self.attribute(&mut leaf, key, (namespace, name))?;
                    let left = (value_len as usize).saturating_sub(chunk.len());
                    leaf.tail = (key.wrapping_add(1), left);
                }
                (XattrCell::Rest(bytes), None) => head(&mut leaf.head, key, bytes.len())?,
                (XattrCell::Rest(bytes), Some(_)) => {
                    leaf.tail = Head { key, count: 1, last: bytes.len() }.follow(leaf.tail)?;
                }
            }
        }
        Ok(leaf)
    }

    fn attribute(
        &mut self,
        leaf: &mut XattrsLeaf,
        key: u64,
        (namespace, name): (XattrNamespace, &[u8]),
    ) -> Certain {
        ensure(leaf.tail.1 == 0, "an attribute without its end")?;
        let hash = xattr_key(&self.ground.sb.hash_seed, namespace, name);
        ensure(key & HASH == hash && key & CHUNK == 0, "an attribute under another key")?;
        let first = leaf.hashes.map_or(hash, |(first, _)| first);
        ensure(leaf.hashes.is_none_or(|(_, last)| last != hash), "attributes of one hash")?;
        leaf.hashes = Some((first, hash));
        match (namespace, name) {
            (XattrNamespace::System, b"posix_acl_access") => leaf.flags |= InodeFlags::ACCESS_ACL,
            (XattrNamespace::System, b"posix_acl_default") => leaf.flags |= InodeFlags::DEFAULT_ACL,
            (XattrNamespace::System, _) => return Err(Doubt("an attribute of an unknown name")),
            (XattrNamespace::Security, b"capability") => leaf.flags |= InodeFlags::CAPABILITY,
            _ => ensure(!name.contains(&0), "an attribute of an impossible name")?,
        }
        self.summary.tally.xattrs += 1;
        Ok(())
    }
}

/// A chunk before the first attribute of a leaf.
fn head(head: &mut Option<Head>, key: u64, bytes: usize) -> Certain {
    match head {
        None => *head = Some(Head { key, count: 1, last: bytes }),
        Some(head) => {
            let follows = key == head.key.wrapping_add(head.count as u64) && head.last == XATTR_CHUNK_BYTES;
            ensure(follows, "chunks that do not fit together")?;
            (head.count, head.last) = (head.count + 1, bytes);
        }
    }
    Ok(())
}

fn symlink_leaf(node: NodeRef<'_>) -> Certain<SymlinkLeaf> {
    let mut leaf = SymlinkLeaf { bytes: 0, last_is_full: true };
    let first = if node.count() > 0 { key(node, 0).number() } else { 0 };
    for i in 0..node.count() {
        let chunk = sound(decode_symlink_chunk(node.value(i)), "a chunk that cannot be decoded")?;
        let follows = key(node, i).number() == first.wrapping_add(i as u64) && leaf.last_is_full;
        ensure(follows, "chunks of a symbolic link that do not fit together")?;
        leaf.last_is_full = chunk.len() == SYMLINK_CHUNK_BYTES;
        leaf.bytes += chunk.len() as u64;
    }
    Ok(leaf)
}
