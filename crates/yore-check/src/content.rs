//! What each type of file may hold, and whether it adds up: extents, symbolic links, sizes and counts of blocks.

use crate::checker::Checker;
use crate::tree::{Tree, Walk};
use crate::{CheckError, Finding, Problem};
use yore_format::{
    decode_symlink_chunk, BlockKind, ContentKind, ExtentValue, FileKind, Inode, InodeNo, MetaAddr,
    SYMLINK_CHUNK_BYTES, SYMLINK_MAX,
};

/// What an inode turned out to have.
pub(crate) struct Holdings {
    /// Data blocks and nodes of its own.
    pub(crate) blocks: u64,
    /// Whether all of it could be read.
    pub(crate) complete: bool,
}

/// The file block after the last extent.
struct FileEnd(u64);

impl Checker<'_> {
    /// Checks content and attributes of the inode that is `at` in `inodes`.
    pub(crate) fn content(&mut self, at: usize, number: InodeNo, inode: &Inode) -> Result<(), CheckError> {
        let addr = number.addr();
        self.check_number("the number since which the inode is as it is", inode.born, addr, number);
        self.check_number("the inode's own cut", inode.own_cut, addr, number);
        let kind = self.inodes[at].kind;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if inode.rdev != 0 && !is_device {
            self.add(Finding::new(Problem::DeviceNumber, 0u64, inode.rdev).at(addr).of(number));
        }
        let mut holdings = Holdings { blocks: 0, complete: true };
        match kind {
            FileKind::Directory => self.directory(at, number, inode, &mut holdings)?,
            FileKind::Regular => self.regular(number, inode, &mut holdings)?,
            FileKind::Symlink => self.symlink(number, inode, &mut holdings)?,
            _ if inode.content_kind == ContentKind::Empty => {}
            _ => self.wrong_content(number, inode, "empty", &mut holdings),
        }
        self.xattrs(number, inode, &mut holdings)?;
        if holdings.complete && holdings.blocks != inode.blocks {
            let finding = Finding::new(Problem::InodeBlocks, holdings.blocks, inode.blocks);
            self.add(finding.at(addr).of(number));
        }
        Ok(())
    }

    /// Content of a kind that the type cannot have; what it refers to is not followed.
    pub(crate) fn wrong_content(
        &mut self,
        number: InodeNo,
        inode: &Inode,
        expected: &str,
        holdings: &mut Holdings,
    ) {
        holdings.complete = false;
        let found = format!("{:?}", inode.content_kind).to_lowercase();
        let finding = Finding::new(Problem::ContentKind, expected, found);
        self.add_incomplete(finding.at(number.addr()).of(number));
    }

    /// A walk over the content's tree.
    pub(crate) fn content_tree(kind: BlockKind, number: InodeNo, inode: &Inode) -> Walk {
        Walk::new(Tree {
            kind,
            owner: number,
            incarnation: inode.incarnation,
            root: inode.tree_root(),
            level: Some(inode.content_level),
        })
    }

    fn regular(&mut self, number: InodeNo, inode: &Inode, holdings: &mut Holdings) -> Result<(), CheckError> {
        let mut end = FileEnd(0);
        match inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Inline => {
                let count = inode.inline().len() as u64;
                if count > inode.size {
                    let expected = format!("at least the {count} bytes in the inode");
                    let finding = Finding::new(Problem::InodeSize, expected, inode.size);
                    self.add(finding.at(number.addr()).of(number));
                }
            }
            ContentKind::Extents => match ExtentValue::decode_inline(inode) {
                Ok(extents) => {
                    for (key, extent) in extents {
                        self.extent(number, number.addr(), key, &extent, &mut end, holdings);
                    }
                }
                Err(c) => {
                    let c = c.at(number.addr()).of(number);
                    self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                    holdings.complete = false;
                }
            },
            ContentKind::Tree => {
                let mut walk = Self::content_tree(BlockKind::Extents, number, inode);
                while let Some(leaf) = walk.next_leaf(self)? {
                    for i in 0..leaf.count() {
                        let (key, value) = leaf.cell(i);
                        match ExtentValue::decode(value) {
                            Ok(extent) => self.extent(number, leaf.addr, key, &extent, &mut end, holdings),
                            Err(c) => {
                                let c = c.at(leaf.addr).of(number);
                                self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                                holdings.complete = false;
                            }
                        }
                    }
                }
                holdings.complete &= walk.complete;
                holdings.blocks += walk.nodes;
            }
        }
        Ok(())
    }

    /// One extent, in ascending order of file blocks.
    fn extent(
        &mut self,
        number: InodeNo,
        place: MetaAddr,
        key: u64,
        extent: &ExtentValue,
        end: &mut FileEnd,
        holdings: &mut Holdings,
    ) {
        self.counts.extents += 1;
        let len = u64::from(extent.len);
        let after = key.saturating_add(len);
        if key < end.0 || after > u64::from(u32::MAX) {
            let expected = format!("file blocks from {} to at most {}", end.0, u32::MAX);
            let finding = Finding::new(Problem::ExtentOrder, expected, format!("{len} from {key}"));
            self.add(finding.at(place).on(extent.start).of(number));
        }
        end.0 = end.0.max(after);
        self.check_number("birth of an extent", extent.birth, place, number);
        holdings.blocks = holdings.blocks.saturating_add(len);
        if self.claim(extent.start, len, "a file", Some(place), Some(number)) {
            self.counts.data_blocks += len;
        }
    }

    fn symlink(&mut self, number: InodeNo, inode: &Inode, holdings: &mut Holdings) -> Result<(), CheckError> {
        match inode.content_kind {
            ContentKind::Inline => {
                let count = inode.inline().len() as u64;
                if count != inode.size {
                    let finding = Finding::new(Problem::InodeSize, count, inode.size);
                    self.add(finding.at(number.addr()).of(number));
                }
                Ok(())
            }
            ContentKind::Tree => self.long_symlink(number, inode, holdings),
            _ => {
                self.wrong_content(number, inode, "inline or a tree", holdings);
                Ok(())
            }
        }
    }

    /// Chunks are numbered from 0 without a gap, all but the last are full, and together they are the size.
    fn long_symlink(
        &mut self,
        number: InodeNo,
        inode: &Inode,
        holdings: &mut Holdings,
    ) -> Result<(), CheckError> {
        let mut walk = Self::content_tree(BlockKind::Symlink, number, inode);
        let (mut chunks, mut total, mut readable) = (0u64, 0u64, true);
        while let Some(leaf) = walk.next_leaf(self)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.cell(i);
                let chunk = match decode_symlink_chunk(value) {
                    Ok(chunk) => chunk,
                    Err(c) => {
                        let c = c.at(leaf.addr).of(number);
                        self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                        readable = false;
                        continue;
                    }
                };
                let in_sequence = key == chunks && total == chunks * SYMLINK_CHUNK_BYTES as u64;
                if readable && walk.complete && !in_sequence {
                    let expected = format!("chunk {chunks} after full ones");
                    let found = format!("chunk {key} after {total} bytes");
                    let finding = Finding::new(Problem::SymlinkChunk, expected, found);
                    self.add(finding.at(leaf.addr).of(number));
                }
                chunks += 1;
                total += chunk.len() as u64;
            }
        }
        holdings.blocks += walk.nodes;
        holdings.complete &= walk.complete;
        if readable && walk.complete && (total != inode.size || inode.size > SYMLINK_MAX as u64) {
            let expected = format!("{total} bytes, at most {SYMLINK_MAX}");
            let finding = Finding::new(Problem::InodeSize, expected, inode.size);
            self.add(finding.at(number.addr()).of(number));
        }
        Ok(())
    }
}
