//! What each type of file may hold, and whether it adds up: extents, symbolic links, sizes and counts of
//! blocks.

use crate::chain::Chain;
use crate::checker::Checker;
use crate::tree::{Tree, Walk, KEY_WIDTH};
use crate::{CheckError, Finding, Problem};
use yore_format::{
    decode_symlink_chunk, BlockKind, ContentKind, FileKind, Inode, InodeNo, MetaAddr, Number,
    SYMLINK_CHUNK_BYTES, SYMLINK_MAX,
};

/// An inode as it is, or as it was: a version.
pub(crate) struct State<'a> {
    pub(crate) number: InodeNo,
    pub(crate) inode: &'a Inode,
    /// Where it stands: the inode's block, or a leaf with versions.
    pub(crate) place: MetaAddr,
    /// What other states hold of the same; `None` for an inode without a past.
    pub(crate) chain: Option<&'a mut Chain>,
    /// Data blocks and nodes that were found.
    pub(crate) blocks: u64,
    /// Whether all of it could be read.
    pub(crate) complete: bool,
}

impl<'a> State<'a> {
    pub(crate) fn new(
        number: InodeNo,
        inode: &'a Inode,
        place: MetaAddr,
        chain: Option<&'a mut Chain>,
    ) -> State<'a> {
        State { number, inode, place, chain, blocks: 0, complete: true }
    }

    /// When a version ended.
    pub(crate) fn end(&self) -> Option<Number> {
        self.chain.as_ref().and_then(|chain| chain.end())
    }

    /// Whether this is a version.
    pub(crate) fn is_past(&self) -> bool {
        self.end().is_some()
    }

    /// The content's tree.
    pub(crate) fn content_tree(&self, kind: BlockKind) -> Tree {
        Tree {
            kind,
            owner: self.number,
            incarnation: self.inode.incarnation,
            root: self.inode.tree_root(),
            level: Some(self.inode.content_level),
            key_width: KEY_WIDTH,
        }
    }
}

impl Checker<'_> {
    /// Checks content and attributes of an inode in use, which is `at` in `inodes`, or of a version.
    pub(crate) fn content(
        &mut self,
        at: Option<usize>,
        kind: FileKind,
        state: &mut State<'_>,
    ) -> Result<(), CheckError> {
        let (number, inode, place) = (state.number, state.inode, state.place);
        self.check_number("the number since which the inode is as it is", inode.born, place, number);
        self.check_number("the inode's own cut", inode.own_cut, place, number);
        if at.is_some() && inode.links > 0 {
            self.check_expunged((number, inode.incarnation), inode.born, "an inode", place);
        }
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if inode.rdev != 0 && !is_device {
            self.add(Finding::new(Problem::DeviceNumber, 0u64, inode.rdev).at(place).of(number));
        }
        match (kind, at) {
            (FileKind::Directory, Some(at)) => self.directory(at, state)?,
            (FileKind::Regular, _) => self.regular(state)?,
            (FileKind::Symlink, _) => self.symlink(state)?,
            _ if inode.content_kind == ContentKind::Empty => {}
            _ => self.wrong_content(state, "empty"),
        }
        self.xattrs(state)?;
        // The nodes of a directory are not kept with what it was.
        let has_all = at.is_some() || kind != FileKind::Directory;
        if state.complete && has_all && state.blocks != inode.blocks {
            let finding = Finding::new(Problem::InodeBlocks, state.blocks, inode.blocks);
            self.add(finding.at(place).of(number));
        }
        Ok(())
    }

    /// Content of a kind that the type cannot have; what it refers to is not followed.
    pub(crate) fn wrong_content(&mut self, state: &mut State<'_>, expected: &str) {
        state.complete = false;
        let found = format!("{:?}", state.inode.content_kind).to_lowercase();
        let finding = Finding::new(Problem::ContentKind, expected, found);
        self.add_incomplete(finding.at(state.place).of(state.number));
    }

    fn regular(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        match state.inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Inline => {
                let count = state.inode.inline().len() as u64;
                if count > state.inode.size {
                    let expected = format!("at least the {count} bytes in the inode");
                    let finding = Finding::new(Problem::InodeSize, expected, state.inode.size);
                    self.add(finding.at(state.place).of(state.number));
                }
            }
            ContentKind::Extents => self.inline_extents(state),
            ContentKind::Tree => self.extent_tree(state)?,
        }
        Ok(())
    }

    fn symlink(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        let inode = state.inode;
        match inode.content_kind {
            ContentKind::Inline => {
                let count = inode.inline().len() as u64;
                if count != inode.size {
                    let finding = Finding::new(Problem::InodeSize, count, inode.size);
                    self.add(finding.at(state.place).of(state.number));
                }
                Ok(())
            }
            ContentKind::Tree => self.long_symlink(state),
            _ => {
                self.wrong_content(state, "inline or a tree");
                Ok(())
            }
        }
    }

    /// Chunks are numbered from 0 without a gap, all but the last are full, and together they are the size.
    fn long_symlink(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        let (number, inode) = (state.number, state.inode);
        let mut walk = Walk::new(state.content_tree(BlockKind::Symlink));
        let (mut chunks, mut total, mut readable) = (0u64, 0u64, true);
        while let Some(leaf) = walk.next_leaf_of(self, state.chain.as_deref_mut())? {
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
        state.blocks += walk.nodes;
        state.complete &= walk.complete;
        if readable && walk.complete && (total != inode.size || inode.size > SYMLINK_MAX as u64) {
            let expected = format!("{total} bytes, at most {SYMLINK_MAX}");
            let finding = Finding::new(Problem::InodeSize, expected, inode.size);
            self.add(finding.at(state.place).of(number));
        }
        Ok(())
    }
}
