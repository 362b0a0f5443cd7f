//! Blocks as they arrive: inodes here, nodes in [`super::leaves`].

use super::digest::{check_listing, Digest};
use super::doubt::{ensure, sound, Certain, Doubt};
use super::node::InodeWithTrees;
use super::places::Told;
use crate::inline::{InlineEntries, InlineEntry};
use yore_format::{
    Block, BlockHeader, BlockKind, ContentKind, EventNo, Expect, ExtentValue, FileKind, Inode, InodeFlags,
    InodeNo, MetaAddr, WriteFeatures, ZoneHeader, INODES_PER_BLOCK, NOT_INODES,
};

/// What was found of an inode's content.
#[derive(Default)]
struct Content {
    /// Data blocks that the inode itself names.
    blocks: u64,
    /// The kind of its tree, if that is where the rest is.
    tree: Option<BlockKind>,
}

/// Entries of a directory that lie in its inode, and how many of them are directories.
struct Listed {
    entries: u64,
    subdirectories: u64,
}

impl Digest<'_> {
    /// Takes the block at an index of a zone. False if it is of a kind that is to be held.
    pub(crate) fn take(&mut self, header: &ZoneHeader, index: u16, block: &Block) -> bool {
        let taken = self.block(header, index, block);
        self.teller.pause();
        taken.unwrap_or_else(|doubt| {
            self.ground.say(doubt);
            true
        })
    }

    fn block(&mut self, header: &ZoneHeader, index: u16, block: &Block) -> Certain<bool> {
        let own = BlockHeader::of(block);
        let is_bitmap = index == 0 && header.zone.is_primary();
        let free = header.inode_free[usize::from(index)];
        let kind = BlockKind::from_repr(own.kind);
        let is_taken = match kind {
            _ if !is_bitmap && free != NOT_INODES => {
                self.inode_block(MetaAddr::new(header.zone, index), u32::from(free), block)?;
                true
            }
            // No version of a directory has nodes with entries.
            Some(BlockKind::Directory) => {
                self.node(block)?;
                true
            }
            Some(BlockKind::Extents | BlockKind::Xattrs | BlockKind::Symlink) => {
                let is_past = self.ground.is_past(InodeNo(own.owner.get()));
                if !is_past {
                    self.node(block)?;
                }
                !is_past
            }
            // Nothing leads to inodes of which the header does not say that they are there.
            Some(BlockKind::Inodes) => {
                return Err(Doubt("inodes that the header of their zone does not know"))
            }
            _ => false,
        };
        if is_taken {
            let generation = own.generation.get() <= self.ground.sb.generation.0;
            ensure(generation, "a block of a later generation")?;
            self.ground.number(EventNo(own.birth.get()))?;
            self.summary.tally.blocks += 1;
        }
        Ok(is_taken)
    }

    fn inode_block(&mut self, addr: MetaAddr, free: u32, block: &Block) -> Certain {
        sound(Expect::volume(BlockKind::Inodes).check(block), "no inodes where they should be")?;
        let (mut found, mut told) = (0, Told::default());
        let with_versions = self.ground.with_versions(addr);
        for slot in 0..INODES_PER_BLOCK {
            let number = InodeNo::new(addr, slot as u8);
            self.ground.incarnation(Inode::slot_incarnation(block, slot))?;
            // A free slot may be wrong, too.
            let inode = sound(Inode::decode(Inode::slot(block, slot)), "an inode that cannot be decoded")?;
            if Inode::slot_is_free(block, slot) {
                found += 1;
                continue;
            }
            let kind = FileKind::from_mode(inode.mode).ok_or(Doubt("an inode of no type"))?;
            let has_versions = with_versions >> slot & 1 != 0;
            self.inode(number, &inode, (kind, has_versions), &mut told)?;
        }
        self.teller.inodes_tell(addr, &told)?;
        self.summary.tally.inode_blocks += 1;
        ensure(found == free, "another number of free inodes")
    }

    /// An inode of this type, and whether it has versions. What one with versions holds is compared with
    /// theirs, but for the entries of a directory.
    fn inode(
        &mut self,
        number: InodeNo,
        inode: &Inode,
        (kind, has_versions): (FileKind, bool),
        told: &mut Told,
    ) -> Certain {
        self.summary.tally.inodes += 1;
        self.ground.number(inode.born)?;
        self.ground.number(inode.own_event)?;
        if inode.has_policy {
            ensure(self.ground.may_have_past(), "a policy, on a volume without a past")?;
            self.ground.kept(self.summary.with_policy(number.0, inode.incarnation.0))?;
        }
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        ensure(inode.rdev == 0 || is_device, "a device number on what is no device")?;
        if !(inode.flags & InodeFlags::CHOSEN).is_empty() {
            let known = self.ground.sb.features.contains(WriteFeatures::INODE_FLAGS);
            let may_have = matches!(kind, FileKind::Directory | FileKind::Regular);
            ensure(known && may_have, "flags that the inode cannot have")?;
        }
        self.names(number, inode, kind, told)?;
        if has_versions {
            self.ground.kept(self.summary.with_versions(number.0))?;
            return match kind {
                FileKind::Directory => self.directory_with_versions(number, inode),
                _ => Ok(()),
            };
        }
        let content = match kind {
            FileKind::Directory => self.directory(number, inode)?,
            FileKind::Regular => self.regular(number, inode)?,
            FileKind::Symlink => symlink(inode)?,
            _ => {
                ensure(inode.content_kind == ContentKind::Empty, "content of a special file")?;
                Content::default()
            }
        };
        let left = inode.blocks.checked_sub(content.blocks).ok_or(Doubt("too few blocks of an inode"))?;
        let has = inode.flags - InodeFlags::CHOSEN;
        if inode.xattr_root.is_none() {
            ensure(has.is_empty() || inode.links == 0, "flags of attributes that are not there")?;
        }
        if content.tree.is_none() && inode.xattr_root.is_none() {
            return ensure(left == 0, "too many blocks of an inode");
        }
        let inode = InodeWithTrees {
            number: number.0,
            incarnation: inode.incarnation.0,
            links: inode.links,
            has_versions: false,
            content: content.tree.map(|kind| (kind, inode.tree_root(), inode.content_level)),
            xattrs: inode.xattr_root,
            flags: has,
            size: inode.size,
            blocks: left,
        };
        self.ground.kept(self.summary.with_trees(&inode))
    }

    /// What an inode says of its names. It has as many as it has links; a directory has one, the root none.
    fn names(&mut self, number: InodeNo, inode: &Inode, kind: FileKind, told: &mut Told) -> Certain {
        let (is_root, is_directory) = (number == InodeNo::ROOT, kind == FileKind::Directory);
        let parent = (inode.parent, inode.parent_incarnation);
        if is_root {
            let is_own_parent = parent == (InodeNo::ROOT, inode.incarnation);
            ensure(is_directory && inode.links > 0 && is_own_parent, "no proper root directory")?;
            self.summary.tally.root_directories += 1;
            return Ok(());
        }
        if inode.links == 0 {
            return self.ground.kept(self.summary.unlinked(number.0, inode.incarnation.0));
        }
        let named = (number, inode.incarnation, kind);
        if is_directory {
            self.ground.kept(self.summary.directory(number.0, inode.parent.0))?;
        } else if inode.links != 1 || inode.parent == InodeNo::NONE {
            told.does_not_tell(number, self.ground.keys.name(named), inode.links);
            return Ok(());
        }
        told.tells(number, self.ground.keys.place(named, parent, inode.parent_cookie));
        Ok(())
    }

    fn directory(&mut self, number: InodeNo, inode: &Inode) -> Certain<Content> {
        self.summary.tally.directories += 1;
        let listed = match inode.content_kind {
            ContentKind::Empty => Listed { entries: 0, subdirectories: 0 },
            ContentKind::Inline => self.inline_entries(number, inode)?,
            ContentKind::Extents => return Err(Doubt("a directory with extents")),
            ContentKind::Tree => {
                return Ok(Content { tree: Some(BlockKind::Directory), ..Content::default() })
            }
        };
        check_listing(inode.links, inode.size, listed.entries, listed.subdirectories)?;
        Ok(Content::default())
    }

    /// Keeps of a directory with versions what its entries must agree with.
    fn directory_with_versions(&mut self, number: InodeNo, inode: &Inode) -> Certain {
        let Some(kind) = self.directory(number, inode)?.tree else { return Ok(()) };
        let inode = InodeWithTrees {
            number: number.0,
            incarnation: inode.incarnation.0,
            links: inode.links,
            has_versions: true,
            content: Some((kind, inode.tree_root(), inode.content_level)),
            xattrs: MetaAddr::NONE,
            flags: InodeFlags::empty(),
            size: inode.size,
            blocks: 0,
        };
        self.ground.kept(self.summary.with_trees(&inode))
    }

    fn inline_entries(&mut self, number: InodeNo, inode: &Inode) -> Certain<Listed> {
        let mut listed = Listed { entries: 0, subdirectories: 0 };
        let (mut after, mut base_before) = (None, None);
        for item in InlineEntries::new(inode.inline()) {
            let InlineEntry { cookie, entry, .. } =
                item.map_err(|_| Doubt("entries in an inode that cannot be decoded"))?;
            ensure(after.is_none_or(|after| cookie > after), "entries in an inode out of order")?;
            let (base, is_directory) = self.entry((number, inode.incarnation), cookie, &entry)?;
            ensure(base_before != Some(base), "names of one hash")?;
            (after, base_before) = (Some(cookie), Some(base));
            listed.entries += 1;
            listed.subdirectories += u64::from(is_directory);
        }
        Ok(listed)
    }

    fn regular(&mut self, number: InodeNo, inode: &Inode) -> Certain<Content> {
        match inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Inline => {
                ensure(inode.inline().len() as u64 <= inode.size, "more content than the size says")?;
            }
            ContentKind::Extents => return self.inline_extents(number, inode),
            ContentKind::Tree => return Ok(Content { tree: Some(BlockKind::Extents), ..Content::default() }),
        }
        Ok(Content::default())
    }

    fn inline_extents(&mut self, number: InodeNo, inode: &Inode) -> Certain<Content> {
        let (mut end, mut blocks) = (0, 0);
        for extent in ExtentValue::inline(inode) {
            let (key, extent) = sound(extent, "an extent that cannot be decoded")?;
            end = self.extent((number, number.addr()), key, &extent, end)?;
            blocks += u64::from(extent.len);
        }
        Ok(Content { blocks, tree: None })
    }
}

fn symlink(inode: &Inode) -> Certain<Content> {
    match inode.content_kind {
        ContentKind::Inline => {
            ensure(inode.inline().len() as u64 == inode.size, "a symbolic link of another size")?;
            Ok(Content::default())
        }
        ContentKind::Tree => Ok(Content { tree: Some(BlockKind::Symlink), ..Content::default() }),
        _ => Err(Doubt("a symbolic link without a target")),
    }
}
