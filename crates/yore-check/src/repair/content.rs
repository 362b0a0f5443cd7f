//! The content of an inode made anew: extents, symbolic links, attributes, and the root directory.
//!
//! Whatever is wrong with a tree, what is sound in it is gathered ([`super::tree`]), put in order, and
//! written as a new tree. What does not come back is said by path. Only the inode in use is changed, no
//! version.

use super::facts::{close_to_group, ACL_LOST};
use super::round::{Once, Round, Search};
use super::tree::{Gathered, Which};
use crate::checker::Owned;
use crate::{CheckError, Finding, Problem};
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    decode_symlink_chunk, xattr_key, BitmapRef, BlockHeader, BlockKind, BlockNo, ContentKind, EventNo,
    ExtentValue, FileKind, GroupNo, Inode, InodeFlags, InodeNo, MetaAddr, XattrCell, XattrNamespace, ZoneNo,
    BLOCK_SIZE, SYMLINK_CHUNK_BYTES, SYMLINK_MAX, XATTR_CHUNK_BYTES,
};

/// Extents that an inode has room for.
const INLINE_EXTENTS: usize = 4;
/// The parts of an attribute's key: chunk, and chunk with collision.
const CHUNK: u64 = 0xffff;
const COLLISION: u64 = 1 << 16;
/// The attribute that is a file's access ACL.
const ACCESS_ACL: (XattrNamespace, &[u8]) = (XattrNamespace::System, b"posix_acl_access");
/// The file block after the last one that a file can have.
pub(super) const FILE_END: u64 = u32::MAX as u64;

/// The extents of a file, in ascending order.
pub(super) type Extents = Vec<(u64, ExtentValue)>;

impl Round<'_> {
    /// Makes anew what the inode of a finding holds.
    pub(super) fn mend_content(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let block = finding.addr.map_or(Ok(None), |addr| self.volume.read(addr))?;
        let header = block.filter(|_| finding.problem == Problem::CellDamaged);
        let header = header.map(|block| *BlockHeader::of(&block));
        if header.is_some_and(|header| header.kind == BlockKind::Orphans as u8) {
            return self.new_orphans(finding);
        }
        let is_past = |owner: u64| owner == InodeNo::EVENTS.0 || owner == InodeNo::HISTORY.0;
        if header.is_some_and(|header| is_past(header.owner.get())) {
            // A row may be of a file, and is not in it.
            return self.mend_index_nodes(finding);
        }
        match finding.inode {
            Some(InodeNo::ORPHANS) => self.new_orphans(finding),
            Some(number) if number.is_file() => self.remake(number),
            _ => self.mend_index_nodes(finding),
        }
    }

    /// Makes anew what an inode in use holds. False if nothing of it had to change.
    pub(super) fn remake(&mut self, number: InodeNo) -> Result<bool, CheckError> {
        if !self.is_first(Once::Content(number)) {
            return Ok(self.volume.is_written(number.addr()));
        }
        let Some(mut inode) = self.volume.inode(number)? else { return Ok(false) };
        let mut changed = match FileKind::from_mode(inode.mode) {
            Some(FileKind::Directory) => self.mend_entries(number)?,
            Some(FileKind::Regular) => self.remake_file(number)?,
            Some(FileKind::Symlink) => self.remake_symlink(number)?,
            _ if inode.content_kind != ContentKind::Empty => {
                inode.set_inline(&[]);
                self.volume.set_inode(number, Some(&inode))?
            }
            _ => false,
        };
        changed |= self.remake_attributes(number)?;
        Ok(changed)
    }

    /// The extents of a file as far as they can be had, what was gathered of its tree, and whether anything
    /// was lost.
    pub(super) fn extents(
        &mut self,
        number: InodeNo,
        inode: &Inode,
    ) -> Result<(Extents, Gathered, bool), CheckError> {
        let (mut found, mut old, mut is_lossy) = (Extents::new(), Gathered::default(), false);
        match inode.content_kind {
            ContentKind::Extents => {
                for extent in ExtentValue::inline(inode) {
                    match extent {
                        Ok(extent) => found.push(extent),
                        Err(_) => is_lossy = true,
                    }
                }
            }
            ContentKind::Tree => {
                let which = tree_of(BlockKind::Extents, number, inode);
                old = self.volume.gather(which, inode.tree_root(), Some(inode.content_level))?;
                for (key, value) in &old.cells {
                    match ExtentValue::decode(value) {
                        Ok(extent) => found.push((*key, extent)),
                        Err(_) => is_lossy = true,
                    }
                }
            }
            ContentKind::Empty | ContentKind::Inline => {}
        }
        Ok((found, old, is_lossy))
    }

    fn remake_file(&mut self, number: InodeNo) -> Result<bool, CheckError> {
        let Some(mut inode) = self.volume.inode(number)? else { return Ok(false) };
        let (found, old, is_lossy) = self.extents(number, &inode)?;
        if is_lossy {
            self.lose(number, "an extent of this file could not be read: its bytes read as zeros")?;
        }
        for (low, high) in &old.lost {
            let (from, to) = (low.saturating_mul(BLOCK_SIZE as u64), high.unwrap_or(FILE_END));
            let to = to.saturating_mul(BLOCK_SIZE as u64).min(inode.size);
            if from < to {
                let what = format!("a node of its tree is lost: bytes {from} to {to} may read as zeros");
                self.lose(number, what)?;
            }
        }
        let mut kept = Extents::new();
        let mut end = 0;
        for (key, extent) in &found {
            let after = key + u64::from(extent.len);
            let bytes = |from: u64, to: u64| {
                format!("bytes {} to {}", from * BLOCK_SIZE as u64, to * BLOCK_SIZE as u64)
            };
            let is_possible = *key < FILE_END && after <= FILE_END && self.is_data(extent);
            if !is_possible || after <= end {
                let what = format!("{}: their blocks cannot be this file's", bytes(*key, after));
                self.lose(number, what)?;
                continue;
            }
            let skip = end.saturating_sub(*key);
            if skip > 0 {
                let what = format!("{} were said to be in two places", bytes(*key, end));
                self.lose(number, what)?;
            }
            let (start, len) = (BlockNo(extent.start.0 + skip), extent.len - skip as u32);
            kept.push((key + skip, ExtentValue { start, len, ..*extent }));
            end = after;
        }
        if !is_lossy && !old.is_ragged && kept == found {
            return Ok(false);
        }
        self.set_extents(number, &mut inode, &old, &kept)
    }

    /// Whether an extent lies where data can be.
    fn is_data(&self, extent: &ExtentValue) -> bool {
        self.seen
            .area(extent.start, u64::from(extent.len))
            .is_some_and(|(group, _)| self.seen.owned.get(group.0 as usize).is_some_and(Option::is_some))
    }

    /// A data block that nobody has, and that a bitmap that can be read says to be free. It has an owner from
    /// now on.
    pub(super) fn free_block(&mut self) -> Result<Option<BlockNo>, CheckError> {
        while self.search.group < self.volume.geometry.groups() {
            let group = GroupNo(self.search.group);
            if self.search.bitmap.is_none() {
                let addr = MetaAddr::new(ZoneNo::primary(group), 0);
                self.search.bitmap = self.volume.read_kind(addr, BlockKind::Bitmap)?;
            }
            let owned = self.seen.owned.get_mut(group.0 as usize).and_then(Option::as_mut);
            if let (Some(block), Some(owned)) = (&self.search.bitmap, owned) {
                let (bitmap, end) = (BitmapRef::new(block), self.volume.geometry.data_blocks(group) as u32);
                let found = (self.search.bit..end).find(|bit| is_unowned(owned, *bit) && !bitmap.get(*bit));
                if let Some(bit) = found {
                    owned[bit as usize / 64] |= 1 << (bit % 64);
                    self.search.bit = bit + 1;
                    return Ok(Some(self.volume.geometry.block_of(group, bit)));
                }
            }
            self.search = Search { group: group.0 + 1, ..Search::default() };
        }
        Ok(None)
    }

    /// Says of blocks that were free that nobody has them after all.
    pub(super) fn give_back(&mut self, blocks: &[BlockNo]) {
        for block in blocks {
            let Some((group, bit)) = self.volume.geometry.bit_of(*block) else { continue };
            if let Some(owned) = self.seen.owned.get_mut(group.0 as usize).and_then(Option::as_mut) {
                owned[bit as usize / 64] &= !(1 << (bit % 64));
            }
        }
        self.search = Search::default();
    }

    /// Whether some block is marked used that nobody has.
    pub(super) fn is_some_leaked(&mut self) -> Result<bool, CheckError> {
        if let Some(known) = self.has_leaks {
            return Ok(known);
        }
        let mut found = false;
        for group in (0..self.volume.geometry.groups()).map(GroupNo) {
            let Some(owned) = self.seen.owned.get(group.0 as usize).and_then(Option::as_ref) else {
                continue;
            };
            let addr = MetaAddr::new(ZoneNo::primary(group), 0);
            let Some(block) = self.volume.read_kind(addr, BlockKind::Bitmap)? else { continue };
            let (bitmap, end) = (BitmapRef::new(&block), self.volume.geometry.data_blocks(group) as u32);
            if (0..end).any(|bit| is_unowned(owned, bit) && bitmap.get(bit)) {
                found = true;
                break;
            }
        }
        self.has_leaks = Some(found);
        Ok(found)
    }

    /// Gives a file these extents.
    pub(super) fn set_extents(
        &mut self,
        number: InodeNo,
        inode: &mut Inode,
        old: &Gathered,
        extents: &[(u64, ExtentValue)],
    ) -> Result<bool, CheckError> {
        if extents.len() <= INLINE_EXTENTS {
            ExtentValue::encode_inline(inode, extents);
        } else {
            let cells = extents.iter().map(|(key, extent)| (*key, extent.encode().to_vec())).collect();
            let which = tree_of(BlockKind::Extents, number, inode);
            let tree = self.volume.write_tree(which, number.addr().zone(), old, &cells)?;
            let Some(tree) = tree else { return Ok(false) };
            inode.set_tree_root(tree.root, tree.level);
        }
        self.volume.set_inode(number, Some(inode))
    }

    /// A symbolic link is whole or it is removed: half a target would lead elsewhere.
    fn remake_symlink(&mut self, number: InodeNo) -> Result<bool, CheckError> {
        let Some(mut inode) = self.volume.inode(number)? else { return Ok(false) };
        let (mut target, mut is_ragged, mut is_whole) = (Vec::new(), false, false);
        match inode.content_kind {
            ContentKind::Inline => return Ok(false),
            ContentKind::Empty | ContentKind::Extents => {}
            ContentKind::Tree => {
                let which = tree_of(BlockKind::Symlink, number, &inode);
                let old = self.volume.gather(which, inode.tree_root(), Some(inode.content_level))?;
                is_ragged = old.is_ragged;
                is_whole = true;
                for (n, (key, value)) in old.cells.iter().enumerate() {
                    match decode_symlink_chunk(value) {
                        Ok(chunk) if *key == n as u64 && target.len() == n * SYMLINK_CHUNK_BYTES => {
                            target.extend_from_slice(chunk);
                        }
                        _ => {
                            is_whole = false;
                            break;
                        }
                    }
                }
                is_whole &= target.len() as u64 == inode.size && (1..=SYMLINK_MAX).contains(&target.len());
                if is_whole && is_ragged {
                    let near = number.addr().zone();
                    let tree = self.volume.write_tree(which, near, &old, &old.cells)?;
                    let Some(tree) = tree else { return Ok(false) };
                    inode.set_tree_root(tree.root, tree.level);
                }
            }
        }
        if is_whole {
            return match is_ragged {
                true => self.volume.set_inode(number, Some(&inode)),
                false => Ok(false),
            };
        }
        let left = String::from_utf8_lossy(&target);
        self.lose(number, format!("this symbolic link is removed: of its target only {left:?} can be read"))?;
        self.volume.set_inode(number, None)
    }

    /// Keeps the attributes that are whole.
    fn remake_attributes(&mut self, number: InodeNo) -> Result<bool, CheckError> {
        let Some(mut inode) = self.volume.inode(number)?.filter(|inode| !inode.xattr_root.is_none()) else {
            return Ok(false);
        };
        let which = tree_of(BlockKind::Xattrs, number, &inode);
        let old = self.volume.gather(which, inode.xattr_root, None)?;
        if !old.lost.is_empty() {
            self.lose(number, "attributes of this file could not be read")?;
        }
        let mut kept: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut names: BTreeSet<(u8, Vec<u8>)> = BTreeSet::new();
        // The inode says whether it has an ACL, and changes together with it. So what else is lost was none.
        let mut may_lack_acl = inode.flags.contains(InodeFlags::ACCESS_ACL);
        let mut has_acl = false;
        let mut cells = old.cells.iter().peekable();
        while let Some((key, value)) = cells.next() {
            let Ok(XattrCell::First { namespace, name, value_len, chunk }) = XattrCell::decode(value) else {
                self.lose(number, "a part of an attribute could not be used")?;
                continue;
            };
            let is_acl = (namespace, name) == ACCESS_ACL;
            let mut left = (value_len as usize).saturating_sub(chunk.len());
            let mut parts = vec![value.clone()];
            while left > 0 {
                let due = left.min(XATTR_CHUNK_BYTES);
                let next = cells.next_if(|(at, value)| {
                    let is_rest =
                        matches!(XattrCell::decode(value), Ok(XattrCell::Rest(bytes)) if bytes.len() == due);
                    is_rest && **at == key.wrapping_add(parts.len() as u64)
                });
                let Some((_, value)) = next else { break };
                parts.push(value.clone());
                left -= due;
            }
            let is_known = match namespace {
                XattrNamespace::System => matches!(name, b"posix_acl_access" | b"posix_acl_default"),
                _ => !name.contains(&0),
            };
            // Of what has no name the attributes are freed from the end.
            let is_whole = left == 0 || inode.links == 0;
            if !is_whole || !is_known || !names.insert((namespace as u8, name.to_vec())) {
                may_lack_acl |= is_acl;
                let shown = format!("{}{}", namespace.prefix(), String::from_utf8_lossy(name));
                self.lose(number, format!("the attribute {shown:?} is lost"))?;
                continue;
            }
            let hash = xattr_key(&self.volume.sb.hash_seed, namespace, name);
            let is_free = |key: &u64| !kept.contains_key(key);
            let own = Some(*key).filter(|key| key & !(255 * COLLISION) == hash && is_free(key));
            let Some(key) = own.or_else(|| (0..256).map(|n| hash + n * COLLISION).find(is_free)) else {
                self.lose(number, "an attribute has no key left")?;
                may_lack_acl |= is_acl;
                continue;
            };
            has_acl |= is_acl;
            debug_assert_eq!(key & CHUNK, 0, "the hash has no chunk");
            kept.extend(parts.into_iter().enumerate().map(|(n, value)| (key + n as u64, value)));
        }
        if !old.is_ragged && kept == old.cells {
            return Ok(false);
        }
        inode.xattr_root = match kept.is_empty() {
            true => MetaAddr::NONE,
            false => match self.volume.write_tree(which, number.addr().zone(), &old, &kept)? {
                Some(tree) => tree.root,
                None => return Ok(false),
            },
        };
        if may_lack_acl && !has_acl && close_to_group(&mut inode) {
            self.lose(number, ACL_LOST)?;
        }
        self.volume.set_inode(number, Some(&inode))
    }

    /// A root directory again: what is there becomes one, or a new one finds what says that it belongs to it.
    pub(super) fn new_root(&mut self, _: &Finding) -> Result<bool, CheckError> {
        let number = InodeNo::ROOT;
        if let Some(mut inode) = self.volume.inode(number)? {
            inode.mode = inode.mode & 0o7777 | FileKind::Directory.mode();
            return self.volume.set_inode(number, Some(&inode));
        }
        if self.volume.place(number.addr()).is_none() {
            let nobody = (InodeNo::NONE, yore_format::Incarnation(0));
            let block = self.volume.empty(BlockKind::Inodes, 0, number.addr(), nobody, EventNo(0));
            if !self.volume.put(number.addr(), block) {
                return Ok(false);
            }
        }
        let made = self.made_from_nodes(number)?;
        let inode = match made {
            Some(inode) => Some(inode),
            None => self.new_inode(number, FileKind::Directory)?,
        };
        self.lose(number, "the root directory is lost: what had a name in it goes to lost+found")?;
        self.volume.set_inode(number, inode.as_ref())
    }

    /// An inode of a kind, of a new incarnation. `None` if none can be given.
    fn new_inode(&mut self, number: InodeNo, kind: FileKind) -> Result<Option<Inode>, CheckError> {
        let next = self.volume.sb.next_incarnation;
        let Some(incarnation) = u32::try_from(next).ok().filter(|next| *next < u32::MAX) else {
            return Ok(None);
        };
        self.volume.sb.next_incarnation += 1;
        Ok(Some(self.bare_inode(number, kind, yore_format::Incarnation(incarnation))))
    }

    fn bare_inode(&self, number: InodeNo, kind: FileKind, incarnation: yore_format::Incarnation) -> Inode {
        let mut inode = Inode::free();
        let rights = if number == InodeNo::ROOT { 0o755 } else { 0o700 };
        inode.mode = kind.mode() | if kind == FileKind::Regular { 0o600 } else { rights };
        inode.links = if kind == FileKind::Directory { 2 } else { 1 };
        (inode.incarnation, inode.born) = (incarnation, self.volume.sb.next_number);
        inode.mtime.seconds = self.volume.sb.written_seconds as i64;
        (inode.atime, inode.ctime, inode.btime) = (inode.mtime, inode.mtime, inode.mtime);
        // A guess, which a later round puts right by the name that is found.
        (inode.parent, inode.parent_incarnation) = (InodeNo::ROOT, incarnation);
        inode
    }

    /// An inode made of the nodes that say that they are of it: those of its last incarnation. `None` if
    /// there are none.
    pub(super) fn made_from_nodes(&mut self, number: InodeNo) -> Result<Option<Inode>, CheckError> {
        let Some((kind, incarnation)) = self.volume.last_content_of(number)? else { return Ok(None) };
        let file_kind = match kind {
            BlockKind::Directory => FileKind::Directory,
            BlockKind::Symlink => FileKind::Symlink,
            _ => FileKind::Regular,
        };
        let mut inode = self.bare_inode(number, file_kind, incarnation);
        let which = Which { kind, owner: number, incarnation };
        let old = self.volume.gather(which, MetaAddr::NONE, None)?;
        let near = number.addr().zone();
        let Some(tree) = self.volume.write_tree(which, near, &old, &old.cells)? else { return Ok(None) };
        inode.set_tree_root(tree.root, tree.level);
        inode.size = match file_kind {
            FileKind::Directory => old.cells.len() as u64,
            FileKind::Symlink => old.cells.values().map(|chunk| chunk.len() as u64).sum(),
            _ => old.cells.iter().next_back().map_or(0, |(key, value)| {
                let len = ExtentValue::decode(value).map_or(0, |extent| u64::from(extent.len));
                (key + len).min(FILE_END) * BLOCK_SIZE as u64
            }),
        };
        let which = Which { kind: BlockKind::Xattrs, owner: number, incarnation };
        let old = self.volume.gather(which, MetaAddr::NONE, None)?;
        if !old.cells.is_empty() {
            let Some(tree) = self.volume.write_tree(which, near, &old, &old.cells)? else { return Ok(None) };
            inode.xattr_root = tree.root;
        }
        inode.flags = InodeFlags::empty();
        Ok(Some(inode))
    }

    /// A block of inodes that does not verify, or is an older copy. Inodes in it that can be decoded are
    /// kept, with the blocks that nobody else has and that are still in use; others are made of their trees;
    /// of the rest only the names are left, which go with the next round.
    pub(super) fn remake_inodes(&mut self, addr: MetaAddr) -> Result<bool, CheckError> {
        let salvaged = self.salvaged_inodes(addr)?;
        let nobody = (InodeNo::NONE, yore_format::Incarnation(0));
        let block = self.volume.empty(BlockKind::Inodes, 0, addr, nobody, EventNo(0));
        if !self.volume.put(addr, block) {
            return Ok(false);
        }
        for slot in 0..yore_format::INODES_PER_BLOCK {
            let number = InodeNo::new(addr, slot as u8);
            if let Some(inode) = salvaged.get(&number) {
                self.lose(number, "what is said of it, and where its blocks are, may be wrong or of before")?;
                self.volume.set_inode(number, Some(inode))?;
            } else if let Some(inode) = self.made_from_nodes(number)? {
                let what = "owner, rights, times and flags are lost; the size is that of the blocks found";
                self.lose(number, what)?;
                self.volume.set_inode(number, Some(&inode))?;
            }
        }
        Ok(true)
    }

    /// The inodes of a block that cannot be used as it is, if it says that it is this block.
    fn salvaged_inodes(&mut self, addr: MetaAddr) -> Result<BTreeMap<InodeNo, Inode>, CheckError> {
        let mut salvaged = BTreeMap::new();
        let place = self.volume.place(addr);
        let Some(block) = place.map_or(Ok(None), |place| self.volume.bytes(place))? else {
            return Ok(salvaged);
        };
        let header = BlockHeader::of(&block);
        let is_it = header.kind == BlockKind::Inodes as u8
            && header.addr.get() == addr.0
            && header.volume.get() == self.volume.sb.volume_tag();
        if !is_it {
            return Ok(salvaged);
        }
        for slot in 0..yore_format::INODES_PER_BLOCK {
            let number = InodeNo::new(addr, slot as u8);
            let decoded = Inode::decode(Inode::slot(&block, slot)).ok();
            let is_possible = |inode: &Inode| {
                let incarnation = u64::from(inode.incarnation.0);
                FileKind::from_mode(inode.mode).is_some()
                    && incarnation != 0
                    && incarnation < self.volume.sb.next_incarnation
                    && inode.born <= self.volume.sb.next_number
                    && inode.own_event <= self.volume.sb.next_number
            };
            let Some(mut inode) = decoded.filter(is_possible) else { continue };
            if inode.content_kind == ContentKind::Extents {
                let mut extents = Extents::new();
                for extent in ExtentValue::inline(&inode).flatten() {
                    if self.is_left_alone(&extent.1)? {
                        extents.push(extent);
                    }
                }
                ExtentValue::encode_inline(&mut inode, &extents);
            }
            // Rights to be somebody else are not given on a guess.
            inode.mode &= !0o6000;
            salvaged.insert(number, inode);
        }
        Ok(salvaged)
    }

    /// Whether all blocks of an extent are marked used, and have no owner that can be read.
    fn is_left_alone(&self, extent: &ExtentValue) -> Result<bool, CheckError> {
        let len = extent.len;
        let Some((group, bit)) = self.seen.area(extent.start, u64::from(len)) else { return Ok(false) };
        let Some(owned) = self.seen.owned.get(group.0 as usize).and_then(Option::as_ref) else {
            return Ok(false);
        };
        let addr = MetaAddr::new(ZoneNo::primary(group), 0);
        let Some(block) = self.volume.read_kind(addr, BlockKind::Bitmap)? else { return Ok(false) };
        let bitmap = BitmapRef::new(&block);
        Ok((bit..bit + len).all(|bit| bitmap.get(bit) && is_unowned(owned, bit)))
    }
}

/// Whether nobody has a block of a group.
fn is_unowned(owned: &Owned, bit: u32) -> bool {
    owned[bit as usize / 64] >> (bit % 64) & 1 == 0
}

fn tree_of(kind: BlockKind, owner: InodeNo, inode: &Inode) -> Which {
    Which { kind, owner, incarnation: inode.incarnation }
}
