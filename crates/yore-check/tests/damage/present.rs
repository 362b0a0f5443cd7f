//! Damages of the sound volume, which has no past, each with the problems that it must show.

use super::*;

pub(super) const SUPERBLOCKS_AND_ZONES: &[Plant] = &[
    ("the newer slot is complete and wrong", &[SuperblockDamaged], |b| raw(b, 1, |s| s[200] ^= 1)),
    ("the newer slot is torn and the older one something else", &[SuperblockDamaged], |b| {
        spare(b);
        raw(b, 0, |s| s.fill(7));
        raw(b, 1, |s| s[1023] ^= 1);
    }),
    ("neither slot is a superblock", &[SuperblockDamaged], |b| {
        spare(b);
        raw(b, 0, |s| s.fill(7));
        raw(b, 1, |s| s.fill(0));
    }),
    (
        "neither slot is a superblock, and the first zone is zeros",
        &[SuperblockDamaged, ZoneHeaderDamaged],
        |b| {
            spare(b);
            for block in 0..ZONE_BLOCKS {
                raw(b, block, |s| s.fill(0));
            }
        },
    ),
    ("the older slot is complete and wrong", &[OtherSuperblock], |b| raw(b, 0, |s| s[200] ^= 1)),
    ("the older slot is something else", &[OtherSuperblock], |b| raw(b, 0, |s| s.fill(7))),
    ("the older slot is of another volume", &[OtherSuperblock], |b| {
        b.after.push(Box::new(|device| {
            let SlotState::Valid(mut sb) = Superblock::decode(&read(device, 0), 0) else { panic!() };
            sb.uuid = *b"another volume's";
            write(device, 0, &sb.encode(0));
        }))
    }),
    ("a root of the events", &[ReservedRoot], |b| superblock(b, |sb| sb.events_root = MetaAddr(9))),
    ("the orphans have a level but no root", &[ReservedRoot, BlockUnreachable, OrphanUnlisted], |b| {
        superblock(b, |sb| (sb.orphan_root, sb.orphan_level) = (MetaAddr::NONE, 1))
    }),
    ("the log ends beyond the volume", &[LogRange], |b| {
        superblock(b, |sb| (sb.log_start, sb.log_blocks) = (BlockNo(5000), BLOCKS))
    }),
    ("the log's position is none", &[LogDamaged, SpaceMarkedFree], |b| {
        superblock(b, |sb| (sb.log_start, sb.log_blocks, sb.log_number) = (BlockNo(5000), 8, 0))
    }),
    ("the log has a start and no blocks", &[LogRange], |b| superblock(b, |sb| sb.log_start = BlockNo(5000))),
    ("the log lies on a zone", &[SpaceOwnedTwice], |b| {
        superblock(b, |sb| (sb.log_start, sb.log_blocks) = (BlockNo(ZONE_BLOCKS + 8), 4))
    }),
    ("root zone 0 is absent", &[RootZoneZero], |b| superblock(b, |sb| sb.root_zones[0] = None)),
    ("root zone 0 is elsewhere", &[RootZoneZero, ZoneHeaderDamaged], |b| {
        superblock(b, |sb| sb.root_zones[0].as_mut().unwrap().start = BlockNo(2 * ZONE_BLOCKS))
    }),
    ("the superblock has another checksum for root zone 0", &[ZoneHeaderStale], |b| {
        superblock(b, |sb| sb.root_zones[0].as_mut().unwrap().crc ^= 1)
    }),
    ("the table has an older generation for a zone", &[ZoneHeaderStale], |b| {
        entry(b, 1, |e| e.generation = 6.into())
    }),
    ("the table names the header slot that was never written", &[ZoneHeaderDamaged], |b| {
        entry(b, 0, |e| e.header_slot = 0)
    }),
    ("a zone header is damaged", &[ZoneHeaderDamaged], |b| raw(b, GROUP_BLOCKS + 3, |h| h[900] ^= 4)),
    ("a zone's place is not aligned to zones", &[ZonePlace], |b| {
        entry(b, 1, |e| e.start = (BLOCKS - 1024 + 1024).into())
    }),
    ("a zone's place is at the end of all numbers", &[ZonePlace], |b| {
        entry(b, 1, |e| e.start = (!1023).into())
    }),
    ("a first zone is not at its group's start", &[ZonePlace], |b| {
        entry(b, 2, |e| e.start = (GROUP_BLOCKS + ZONE_BLOCKS).into())
    }),
    ("a first zone of a group beyond the volume", &[ZonePlace], |b| {
        b.on_table.push(Box::new(|t| {
            let entry = ZoneTableRef::new(t).entry(0);
            ZoneTableMut::new(t).set(6, entry);
        }));
        superblock(b, |sb| (sb.zone_number_limit, sb.zones) = (10, 6))
    }),
    ("a header says another place", &[ZoneHeaderField], |b| header(b, 2, |h| h.start.0 += 1024)),
    ("a header says another volume", &[ZoneHeaderField], |b| header(b, 2, |h| h.uuid[8] ^= 1)),
    ("a header says another size of the volume", &[ZoneHeaderField], |b| {
        header(b, 2, |h| h.volume_blocks -= 1)
    }),
    ("a root zone's header says another size of the volume", &[ZoneHeaderField], |b| {
        header(b, root0(), |h| h.volume_blocks -= 1)
    }),
    ("a first zone's header says another group", &[ZoneHeaderField], |b| {
        header(b, 2, |h| h.group = GroupNo(0))
    }),
    (
        "a further zone's header says a group beyond the volume",
        &[ZoneHeaderField, ZoneExtras, ZoneListing],
        |b| header(b, 1, |h| h.group = GroupNo(77)),
    ),
    ("a further zone does not lie in its group", &[ZoneHeaderField], |b| {
        header(b, 0, |h| h.extras = [0; 31]);
        header(b, 1, |h| h.group = GroupNo(1));
        header(b, 2, |h| h.extras[0] = 1);
    }),
    ("a further zone is not listed", &[ZoneListing], |b| header(b, 0, |h| h.extras = [0; 31])),
    ("a further zone is listed twice", &[ZoneListing], |b| header(b, 0, |h| h.extras[9] = 1)),
    ("a further zone is listed by another group too", &[ZoneExtras], |b| header(b, 2, |h| h.extras[0] = 1)),
    ("a zone that does not exist is listed", &[ZoneExtras], |b| header(b, 0, |h| h.extras[1] = 3)),
    ("a first zone is listed", &[ZoneExtras], |b| header(b, 0, |h| h.extras[1] = 2)),
    ("a root zone lists one", &[ZoneExtras], |b| header(b, root0(), |h| h.extras[0] = 1)),
    ("a further zone lists one", &[ZoneExtras], |b| header(b, 1, |h| h.extras[1] = 1)),
    ("two further zones in one place", &[ZoneHeaderDamaged], |b| {
        // The entry is copied from zone 1, so the header that is found there is that of zone 1.
        b.on_table.push(Box::new(|t| {
            let entry = ZoneTableRef::new(t).entry(1);
            ZoneTableMut::new(t).set(3, entry);
        }));
        superblock(b, |sb| (sb.zone_number_limit, sb.zones) = (10, 6))
    }),
    ("a table block is damaged", &[ZoneTableDamaged], |b| raw(b, 10, |t| t[70] ^= 1)),
    ("a table block is something else", &[ZoneTableDamaged], |b| {
        b.on_table.push(Box::new(|t| {
            BlockHeader::of_mut(t).kind = BlockKind::Bitmap as u8;
            t[64..].fill(0);
        }))
    }),
    ("the table's count of free blocks", &[ZoneCounts], |b| {
        entry(b, 0, |e| e.free_blocks = (e.free_blocks.get() - 1).into())
    }),
    ("the table's count of free blocks of a further zone", &[ZoneCounts], |b| {
        entry(b, 1, |e| e.free_blocks = 1.into())
    }),
    ("the table's count of free indexes", &[ZoneCounts], |b| {
        entry(b, 1, |e| e.free_indexes = (e.free_indexes.get() - 1).into())
    }),
    ("the table's count of free inodes", &[ZoneCounts], |b| {
        entry(b, 0, |e| e.free_inodes = (e.free_inodes.get() + 1).into())
    }),
    ("a header's count of free inodes", &[InodeFree, ZoneCounts], |b| header(b, 0, |h| h.inode_free[1] += 1)),
    ("free inodes at an index that does not exist", &[InodeFree], |b| {
        header(b, 0, |h| h.inode_free[400] = 0)
    }),
    ("free inodes in a bitmap", &[InodeFree], |b| header(b, 0, |h| h.inode_free[0] = 0)),
    ("free inodes in a root zone", &[InodeFree], |b| header(b, root0(), |h| h.inode_free[0] = 0)),
    ("a tree node is taken for inodes", &[BlockWrong], |b| {
        // The header says that the block, an orphan node, is an inode block with no free inode.
        let index = usize::from(b.sb.orphan_root.index());
        b.on_header.push((0, Box::new(move |h| h.inode_free[index] = 0)));
    }),
    ("inodes are not taken for inodes", &[InodeFree, ZoneCounts, EntryDangling], |b| {
        header(b, 2, |h| h.inode_free[1] = NOT_INODES)
    }),
    ("a group's bitmap does not exist", &[BitmapMissing], |b| {
        b.zones.get_mut(&2).unwrap().blocks.remove(&0);
    }),
    ("a bitmap has an owner", &[BlockWrong], |b| {
        on_block(b, bitmap0(), |block| BlockHeader::of_mut(block).owner = 16.into())
    }),
    ("a zone number at the limit", &[ZoneNumberLimit], |b| superblock(b, |sb| sb.zone_number_limit = 2)),
    ("free blocks in total", &[TotalFreeBlocks], |b| superblock(b, |sb| sb.free_blocks += 1)),
    ("inodes in total", &[TotalInodes], |b| superblock(b, |sb| sb.inodes -= 1)),
    ("metadata blocks in total", &[TotalMetadataBlocks], |b| superblock(b, |sb| sb.metadata_blocks += 1)),
    ("zones in total", &[TotalZones], |b| superblock(b, |sb| sb.zones += 1)),
];

pub(super) const BLOCKS_AND_TREES: &[Plant] = &[
    // The builder gives the n-th existing index slot 4 + 2n.
    ("an inode block is damaged", &[BlockDamaged], |b| raw(b, GROUP_BLOCKS + 6, |n| n[500] ^= 1)),
    ("an inode block with the root is damaged", &[BlockDamaged], |b| {
        raw(b, ZONE_BLOCKS + 6, |n| n[500] ^= 1)
    }),
    ("a bitmap's count is wrong", &[BlockDamaged], |b| on_block(b, bitmap0(), |m| m[64] ^= 1)),
    ("the write of an inode block was lost", &[BlockStale], |b| lost_write(b, GROUP_BLOCKS + 6)),
    ("the write of a bitmap was lost", &[BlockStale], |b| lost_write(b, ZONE_BLOCKS + FIRST_SLOT)),
    ("the write of a tree node was lost", &[BlockStale], |b| lost_write(b, ZONE_BLOCKS + FIRST_SLOT + 2 * 3)),
    ("the write of a table block was lost", &[BlockStale], |b| lost_write(b, 10)),
    ("a header has another checksum for a block", &[BlockStale], |b| header(b, 2, |h| h.checks[1] ^= 1)),
    ("a root header has another checksum for a table block", &[BlockStale], |b| {
        header(b, root0(), |h| h.checks[0] ^= 1)
    }),
    ("a header has a checksum without a slot", &[ZoneHeaderDamaged], |b| header(b, 2, |h| h.checks[400] = 1)),
    ("a leaf is that of another address", &[BlockDamaged], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 1);
        on_block(b, leaf, |n| BlockHeader::of_mut(n).addr = 77.into())
    }),
    ("a block of a later generation", &[FutureGeneration], |b| {
        on_block(b, inodes0(), |n| BlockHeader::of_mut(n).generation = 8.into())
    }),
    ("a header of a later generation", &[FutureGeneration], |b| {
        superblock(b, |sb| {
            // Everything is of generation 7; only the superblock goes back to 6.
            sb.generation = Generation(6);
            sb.root_zones.iter_mut().flatten().for_each(|r| r.generation = GENERATION);
        })
    }),
    ("an inode's tree does not exist", &[BlockMissing], |b| b.inode(LONG).set_tree_root(MetaAddr(400), 0)),
    ("an inode's tree is in a zone that does not exist", &[BlockMissing], |b| {
        b.inode(LONG).set_tree_root(MetaAddr::new(ZoneNo(9), 4), 0)
    }),
    ("a tree's root is the root of another's", &[BlockWrong], |b| {
        let other = tree_of(b, LONG);
        let big = b.inode(BIG);
        big.set_tree_root(other, 0);
    }),
    ("a branch names a child twice", &[BlockReachedTwice], |b| {
        let branch = tree_of(b, BIG);
        let first = child_of(b, branch, 0).0.to_le_bytes();
        b.on_block.push((
            branch,
            Box::new(move |n| {
                NodeMut::new(n).replace(1, &first);
            }),
        ));
    }),
    ("a branch names itself", &[BlockReachedTwice], |b| {
        let branch = tree_of(b, BIG);
        let own = branch.0.to_le_bytes();
        b.on_block.push((
            branch,
            Box::new(move |n| {
                NodeMut::new(n).replace(0, &own);
            }),
        ));
    }),
    ("nothing refers to a node", &[BlockUnreachable], |b| {
        let addr = b.address(1);
        b.node(addr, block(BlockKind::Directory, 0, addr, InodeNo(ROOT), 17), &[]);
    }),
    ("a second bitmap in a group", &[BlockUnreachable], |b| {
        let addr = b.address(2);
        let block = block(BlockKind::Bitmap, 0, addr, InodeNo::NONE, 0);
        b.zones.get_mut(&2).unwrap().blocks.insert(addr.index(), block);
    }),
    ("a node is of another kind", &[BlockWrong], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| BlockHeader::of_mut(n).kind = BlockKind::Xattrs as u8)
    }),
    ("a node is another inode's", &[BlockWrong], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| BlockHeader::of_mut(n).owner = BIG.into())
    }),
    ("a node is of another incarnation of its owner", &[BlockWrong], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| BlockHeader::of_mut(n).owner_incarnation = 99.into())
    }),
    ("the orphans' node has an incarnation", &[BlockWrong], |b| {
        let root = b.sb.orphan_root;
        on_block(b, root, |n| BlockHeader::of_mut(n).owner_incarnation = 1.into())
    }),
    ("a tree's root is of another level than its inode says", &[BlockWrong], |b| {
        b.inode(BIG).content_level = 2
    }),
    ("the orphans' root is of another level than the superblock says", &[BlockWrong], |b| {
        b.sb.orphan_level = 1
    }),
    ("a child is of the level of its parent", &[BlockWrong], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 1);
        on_block(b, leaf, |n| {
            NodeMut::init(n, 8).insert(0, &210u64.to_be_bytes(), &999u64.to_le_bytes());
            BlockHeader::of_mut(n).level = 1;
        })
    }),
    ("a node was born in the future", &[FutureNumber], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| BlockHeader::of_mut(n).birth = 6.into())
    }),
    ("keys of another width", &[TreeKeyWidth], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| {
            NodeMut::init(n, 16);
        })
    }),
    ("the first key of a leaf is below its bound", &[TreeBounds], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 1);
        on_block(b, leaf, |n| {
            NodeMut::new(n).set_key(0, &205u64.to_be_bytes());
        })
    }),
    (
        "the last key of a leaf is at the next one's bound, so it does not count",
        &[TreeBounds, InodeBlocks, SpaceLeaked],
        |b| {
            let branch = tree_of(b, BIG);
            on_block(b, branch, |n| {
                NodeMut::new(n).set_key(1, &140u64.to_be_bytes());
            })
        },
    ),
    ("an empty leaf under a branch", &[TreeEmptyLeaf, InodeBlocks, SpaceLeaked], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 1);
        on_block(b, leaf, |n| {
            NodeMut::init(n, 8);
        })
    }),
    ("an extent's cell is short", &[CellDamaged], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 0);
        on_block(b, leaf, |n| {
            NodeMut::new(n).replace(0, &[1; 19]);
        })
    }),
    ("an entry's cell has bytes left over", &[CellDamaged], |b| new_root(b, |cells| cells[4].1.push(b'x'))),
    ("an attribute's cell is of no kind", &[CellDamaged], |b| new_attributes(b, |cells| cells[0].1[0] = 7)),
    ("a symlink's chunk is empty", &[CellDamaged], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| {
            NodeMut::new(n).replace(1, &[]);
        })
    }),
    ("the tree of orphans has too many levels", &[TreeLevel], |b| {
        let mut root = b.sb.orphan_root;
        for level in 1..=3 {
            let branch = b.address(0);
            let node = block(BlockKind::Orphans, level, branch, InodeNo::ORPHANS, 0);
            b.node(branch, node, &[(0, root.0.to_le_bytes().to_vec())]);
            root = branch;
        }
        (b.sb.orphan_root, b.sb.orphan_level) = (root, 3);
    }),
    ("an orphan's cell is long", &[CellDamaged], |b| new_orphans(b, |cells| cells[0].1.push(0))),
    ("an extent in an inode has no length", &[CellDamaged], |b| {
        b.on_inode_slot.push((InodeNo(EXTENTS), Box::new(|slot| slot[144 + 12..144 + 16].fill(0))))
    }),
];

pub(super) const INODES: &[Plant] = &[
    ("an incarnation not given yet", &[FutureIncarnation], |b| b.sb.next_incarnation = 50),
    ("an inode says that it has a policy, where there was never an event", &[Policy], |b| {
        b.inode(BIG).has_policy = true
    }),
    ("an inode changed in the future", &[FutureNumber], |b| b.inode(FIFO).born = EventNo(6)),
    ("an inode's own event is in the future", &[FutureNumber], |b| b.inode(FIFO).own_event = EventNo(6)),
    ("an extent born in the future", &[FutureNumber], |b| {
        let start = ExtentValue::decode_inline(b.inode(FAR)).unwrap()[0].1.start;
        let late = ExtentValue { birth: EventNo(6), ..extent(start, 8, false) };
        ExtentValue::encode_inline(b.inode(FAR), &[(0, late)]);
    }),
    ("a fifo with content", &[ContentKind], |b| b.inode(FIFO).set_inline(b"no")),
    ("a symlink without content", &[ContentKind], |b| {
        b.inode(SHORT).set_inline(b"");
        b.inode(SHORT).size = 0;
    }),
    ("a directory of extents", &[ContentKind], |b| {
        b.inode(SUB).content_kind = yore_format::ContentKind::Extents
    }),
    ("more inline bytes than the size", &[InodeSize], |b| b.inode(INLINE).size = 17),
    ("a short symlink's size", &[InodeSize], |b| b.inode(SHORT).size = 11),
    ("a long symlink's size", &[InodeSize], |b| b.inode(LONG).size = 2349),
    ("a file's count of blocks", &[InodeBlocks], |b| b.inode(BIG).blocks += 1),
    ("an inline file's count of blocks", &[InodeBlocks], |b| b.inode(INLINE).blocks = 1),
    ("a directory's count of blocks", &[InodeBlocks], |b| b.inode(ROOT).blocks -= 1),
    ("an attributed file's count of blocks", &[InodeBlocks], |b| b.inode(ATTRS).blocks = 0),
    ("a device number on a file", &[DeviceNumber], |b| b.inode(FAR).rdev = 5),
    ("a symlink's chunk is missing", &[SymlinkChunk, InodeSize], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| {
            NodeMut::new(n).remove(1);
        })
    }),
    ("a symlink's chunk in the middle is short", &[SymlinkChunk, InodeSize], |b| {
        let root = tree_of(b, LONG);
        on_block(b, root, |n| {
            NodeMut::new(n).replace(1, &[b'x'; 1023]);
        })
    }),
    ("an attribute under another's key", &[XattrKey], |b| new_attributes(b, |cells| cells[0].0 ^= 1 << 60)),
    ("an attribute's first chunk is not number 0", &[XattrKey], |b| {
        new_attributes(b, |cells| cells.iter_mut().find(|c| c.1.ends_with(b"caps")).unwrap().0 += 1)
    }),
    ("an attribute's last chunk is missing", &[XattrChunk], |b| {
        new_attributes(b, |cells| {
            let last = cells.iter().position(|c| c.1.len() == 1 + 452).unwrap();
            cells.remove(last);
        })
    }),
    ("an attribute's last chunk is short", &[XattrChunk], |b| {
        new_attributes(b, |cells| {
            cells.iter_mut().find(|c| c.1.len() == 1 + 452).unwrap().1.pop();
        })
    }),
    ("an attribute's chunk in the middle is missing", &[XattrChunk], |b| {
        new_attributes(b, |cells| {
            let middle = cells.iter().position(|c| c.1.len() == 1 + 1024).unwrap();
            cells.remove(middle);
        })
    }),
    ("a chunk without an attribute", &[XattrChunk], |b| {
        new_attributes(b, |cells| cells.push((5, XattrCell::Rest(b"x").encode())))
    }),
    ("two attributes of one name", &[XattrName], |b| {
        new_attributes(b, |cells| {
            let mut second = cells.iter().find(|c| c.1.ends_with(b"caps")).unwrap().clone();
            second.0 += 1 << 16;
            cells.push(second);
        })
    }),
    ("a system attribute of no known name", &[XattrName], |b| {
        new_attributes(b, |cells| cells.extend(attribute(XattrNamespace::System, "other", b"")))
    }),
    ("an attribute's name with a NUL", &[XattrName], |b| {
        new_attributes(b, |cells| cells.extend(attribute(XattrNamespace::User, "a\0b", b"")))
    }),
    ("no flag for an ACL", &[XattrFlags], |b| b.inode(ATTRS).flags = InodeFlags::CAPABILITY),
    ("a flag for an ACL that is not there", &[XattrFlags], |b| b.inode(SUB).flags = InodeFlags::DEFAULT_ACL),
    ("an immutable file without the feature", &[Feature], |b| b.inode(INLINE).flags = InodeFlags::IMMUTABLE),
    ("an immutable device", &[ChosenFlags], |b| {
        b.sb.features = WriteFeatures::INODE_FLAGS;
        b.inode(DEVICE).flags = InodeFlags::IMMUTABLE
    }),
];

pub(super) const NAMES: &[Plant] = &[
    ("there is no root", &[RootMissing, BlockUnreachable], |b| {
        b.inodes.remove(&InodeNo(ROOT));
        b.left_incarnations.insert(InodeNo(ROOT), 17);
    }),
    ("the root is a file", &[RootMissing, ContentKind], |b| {
        b.inode(ROOT).mode = 0o010_644;
    }),
    ("an inline directory breaks off", &[EntryInline], |b| {
        b.inode(DIRECTORY).content_count -= 1;
        let n = usize::from(b.inode(DIRECTORY).content_count);
        b.inode(DIRECTORY).content[n] = 0;
    }),
    ("an inline directory ends in half a cookie", &[EntryInline], |b| {
        let bytes = [b.inode(DIRECTORY).inline(), &[1, 2, 3]].concat();
        b.inode(DIRECTORY).set_inline(&bytes);
    }),
    ("an inline directory is not in order", &[EntryInline], |b| {
        let mut cells = directory_cells(b);
        cells.reverse();
        set_directory(b, &cells);
    }),
    ("an entry's key is not its name's hash", &[EntryKey], |b| {
        let mut cells = directory_cells(b);
        cells[1].0 += 256;
        set_directory(b, &cells);
    }),
    ("a name twice", &[EntryDuplicate, LinksTooFew], |b| {
        let mut cells = directory_cells(b);
        let mut again = b.entry("hard", INLINE);
        again.0 += 1;
        cells.push(again);
        cells.sort();
        set_directory(b, &cells);
    }),
    ("a name of an inode that does not exist", &[EntryDangling], |b| {
        let mut cells = directory_cells(b);
        let hard = cells.iter_mut().find(|c| c.1.ends_with(b"hard")).unwrap();
        hard.1[..8].copy_from_slice(&FREE_SLOT.to_le_bytes());
        set_directory(b, &cells);
        b.inode(INLINE).links = 1;
    }),
    ("a name of another incarnation", &[EntryIncarnation], |b| new_root(b, |cells| cells[3].1[8] ^= 0x40)),
    ("a name of another type", &[EntryKind], |b| {
        new_root(b, |cells| {
            let at = cells.iter().position(|c| c.1.ends_with(b"fifo")).unwrap();
            cells[at].1[20] = FileKind::Socket as u8;
        })
    }),
    ("a name born in the future", &[FutureNumber], |b| new_root(b, |cells| cells[2].1[12] = 6)),
    ("a directory's size", &[DirectorySize], |b| b.inode(ROOT).size += 1),
    ("an empty directory's size", &[DirectorySize], |b| b.inode(SUB).size = 1),
    ("a directory with two names", &[DirectoryNamedTwice], |b| {
        let second = b.entry("second", SUB);
        new_root(b, move |cells| {
            cells.push(second.clone());
            cells.sort();
        });
        b.inode(ROOT).links += 1;
    }),
    ("the root has a name", &[DirectoryNamedTwice], |b| {
        let up = b.entry("up", ROOT);
        new_root(b, move |cells| {
            cells.push(up.clone());
            cells.sort();
        });
        b.inode(ROOT).links += 1;
    }),
    ("two directories are below each other", &[DirectoryCycle], |b| {
        // `directory` leaves the root and is now in its own `sub`.
        new_root(b, |cells| cells.retain(|c| !c.1.ends_with(b"directory")));
        b.inode(ROOT).links = 2;
        let cell = b.entry("directory", DIRECTORY);
        b.set_parents(SUB, std::slice::from_ref(&cell));
        let bytes = [&cell.0.to_be_bytes()[..], &cell.1].concat();
        b.inode(SUB).set_inline(&bytes);
        (b.inode(SUB).size, b.inode(SUB).links) = (1, 3);
    }),
    ("a file with a link and no name", &[InodeUnnamed], |b| {
        new_root(b, |cells| cells.retain(|c| !c.1.ends_with(b"far")))
    }),
    ("a directory without a name", &[InodeUnnamed, LinksTooMany], |b| {
        let cells = [b.entry("hard", INLINE)];
        set_directory(b, &cells);
    }),
    ("a link too few", &[LinksTooFew], |b| b.inode(INLINE).links = 1),
    ("a link too many", &[LinksTooMany], |b| b.inode(FAR).links = 2),
    ("a directory's link too few", &[LinksTooFew], |b| b.inode(ROOT).links = 2),
    ("a directory's link too many", &[LinksTooMany], |b| b.inode(SUB).links = 3),
    ("a file's parent is another directory", &[Parent], |b| b.inode(FAR).parent = InodeNo(SUB)),
    ("a file's parent has another incarnation", &[Parent], |b| {
        b.inode(FAR).parent_incarnation = Incarnation(90)
    }),
    ("a file's parent has it elsewhere", &[Parent], |b| b.inode(FAR).parent_cookie += 1),
    ("a directory has no parent", &[Parent], |b| b.inode(SUB).parent = InodeNo::NONE),
    ("the root's parent is another", &[Parent], |b| b.inode(ROOT).parent = InodeNo(SUB)),
    ("the orphans name nothing", &[OrphanEntry], |b| {
        new_orphans(b, |cells| cells.push((FREE_SLOT, vec![1, 0, 0, 0])))
    }),
    ("the orphans name another incarnation", &[OrphanEntry, OrphanUnlisted], |b| {
        new_orphans(b, |cells| cells[0].1[0] ^= 0x40)
    }),
    ("the orphans name a directory that has a name", &[OrphanEntry], |b| {
        let value = orphan_value(b.inodes[&InodeNo(SUB)].incarnation).to_vec();
        new_orphans(b, move |cells| cells.insert(0, (SUB, value.clone())))
    }),
    ("an inode without links is no orphan", &[OrphanUnlisted], |b| {
        new_orphans(b, |cells| {
            cells.remove(0);
        })
    }),
    ("a removed directory has an entry", &[OrphanNotEmpty, LinksTooFew], |b| {
        let cell = b.entry("far", FAR);
        b.inode(FAR).links = 2;
        let bytes = [&cell.0.to_be_bytes()[..], &cell.1].concat();
        b.inode(REMOVED_DIR).set_inline(&bytes);
        b.inode(REMOVED_DIR).size = 1;
        b.inode(REMOVED_DIR).links = 0;
        // It also has a name, so that it does not count as merely removed.
        let named = b.entry("removed", REMOVED_DIR);
        let at = b.inodes[&InodeNo(ROOT)].incarnation;
        (b.inode(REMOVED_DIR).parent, b.inode(REMOVED_DIR).parent_incarnation) = (InodeNo(ROOT), at);
        b.inode(REMOVED_DIR).parent_cookie = named.0;
        new_root(b, move |cells| {
            cells.push(named.clone());
            cells.sort();
        });
        b.inode(ROOT).links += 1;
    }),
];

pub(super) const SPACE: &[Plant] = &[
    ("extents overlap in the file", &[ExtentOrder], |b| {
        let mut extents = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap();
        extents[1].0 = 4;
        ExtentValue::encode_inline(b.inode(EXTENTS), &extents);
    }),
    ("extents overlap across leaves", &[ExtentOrder], |b| {
        let leaf = child_of(b, tree_of(b, BIG), 0);
        on_block(b, leaf, |n| {
            NodeMut::new(n).set_key(2, &150u64.to_be_bytes());
        })
    }),
    ("an extent reaches beyond the largest file", &[ExtentOrder], |b| {
        let mut extents = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap();
        extents[1].0 = u64::from(u32::MAX) - 1;
        ExtentValue::encode_inline(b.inode(EXTENTS), &extents);
    }),
    ("an extent lies in a zone", &[SpacePlace, SpaceLeaked], |b| move_extent(b, GROUP_BLOCKS + 8)),
    ("an extent lies beyond the volume", &[SpacePlace, SpaceLeaked], |b| move_extent(b, BLOCKS - 7)),
    ("an extent reaches into the next group", &[SpacePlace, SpaceLeaked], |b| {
        move_extent(b, GROUP_BLOCKS - 7)
    }),
    ("an extent lies in a group never used", &[SpacePlace, SpaceLeaked], |b| {
        move_extent(b, 2 * GROUP_BLOCKS + ZONE_BLOCKS + 8)
    }),
    ("an extent is longer than any group", &[SpacePlace, SpaceLeaked], |b| {
        ExtentValue::encode_inline(b.inode(FAR), &[(0, extent(BlockNo(5000), EXTENT_LEN_MAX, false))]);
        b.inode(FAR).blocks = u64::from(EXTENT_LEN_MAX);
    }),
    ("a file has another file's block", &[SpaceOwnedTwice, SpaceLeaked], |b| {
        let start = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
        move_extent(b, start.0);
        b.used.push((BlockNo(start.0 + 5), 3));
    }),
    ("a file has blocks of a zone", &[SpaceOwnedTwice, SpaceLeaked], |b| move_extent(b, 3 * ZONE_BLOCKS)),
    ("a file has blocks of a root zone", &[SpaceOwnedTwice, SpaceLeaked], |b| {
        move_extent(b, GROUP_BLOCKS + 2 * ZONE_BLOCKS)
    }),
    ("a file's block is marked free", &[SpaceMarkedFree], |b| {
        b.used.retain(|(start, len)| start.0 < GROUP_BLOCKS || *len != 8);
        b.used.push((BlockNo(GROUP_BLOCKS + 5 * ZONE_BLOCKS), 7));
    }),
    ("a further zone is marked free", &[SpaceMarkedFree], |b| {
        b.used.retain(|(start, _)| start.0 != 3 * ZONE_BLOCKS)
    }),
    ("group 0's first zone is marked free", &[SpaceMarkedFree], |b| {
        b.used.retain(|(start, _)| start.0 != ZONE_BLOCKS)
    }),
    ("a root zone is marked free", &[SpaceMarkedFree], |b| {
        b.used.retain(|(start, _)| start.0 != GROUP_BLOCKS + 2 * ZONE_BLOCKS)
    }),
    ("blocks marked used that nobody has", &[SpaceLeaked], |b| {
        b.data(1);
        b.data(200);
    }),
];

/// Moves the 8 blocks of the file in group 1.
fn move_extent(b: &mut Builder, start: u64) {
    ExtentValue::encode_inline(b.inode(FAR), &[(0, extent(BlockNo(start), 8, false))]);
}
