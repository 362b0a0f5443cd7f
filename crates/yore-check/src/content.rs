//! What each type of file may hold, and whether it adds up: extents, symbolic links, sizes and counts of
//! blocks.

use crate::checker::Checker;
use crate::state::{InUse, State};
use crate::walk::Walk;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{decode_symlink_chunk, BlockKind, ContentKind, FileKind, SYMLINK_CHUNK_BYTES, SYMLINK_MAX};

/// The most chunks that a symbolic link has.
const CHUNKS_MAX: u64 = SYMLINK_MAX.div_ceil(SYMLINK_CHUNK_BYTES) as u64;

impl Checker<'_> {
    /// Checks content and attributes of an inode in use, of which so much is known, or of a version.
    pub(crate) fn content(
        &mut self,
        in_use: Option<InUse>,
        kind: FileKind,
        state: &mut State<'_>,
    ) -> Result<(), CheckError> {
        let (number, inode, addr) = (state.number, state.inode, state.addr);
        self.check_number("the number since which the inode is as it is", inode.born, addr, number);
        self.check_number("the inode's own event", inode.own_event, addr, number);
        if in_use.is_some() && inode.links > 0 {
            self.check_expunged((number, inode.incarnation), inode.born, "an inode", addr);
        }
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if inode.rdev != 0 && !is_device {
            self.add(Finding::new(Problem::DeviceNumber, 0u64, inode.rdev).at(addr).of(number));
        }
        match (kind, in_use) {
            // A walk for the first owners of data blocks needs no directories, which have none.
            (FileKind::Directory, _) if self.only.is_some() => {}
            (FileKind::Directory, Some(InUse::Listed(at))) => self.directory(at, state)?,
            (FileKind::Directory, Some(InUse::Summed(nodes))) => state.blocks += nodes,
            (FileKind::Regular, _) => self.regular(state)?,
            (FileKind::Symlink, _) => self.symlink(state)?,
            _ if inode.content_kind == ContentKind::Empty => {}
            _ => self.wrong_content(state, "empty"),
        }
        self.xattrs(state)?;
        // A version of a directory does not keep the directory's nodes.
        let has_all = in_use.is_some() || kind != FileKind::Directory;
        if state.complete && has_all && state.blocks != inode.blocks {
            let finding = Finding::new(Problem::InodeBlocks, state.blocks, inode.blocks);
            let recount = Recount::Counts {
                inode: number,
                incarnation: inode.incarnation,
                size: 0,
                blocks: state.blocks.wrapping_sub(inode.blocks) as i64,
            };
            self.add(finding.at(addr).of(number).recounted(recount));
        }
        Ok(())
    }

    fn regular(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        match state.inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Inline => {
                let count = state.inode.inline().len() as u64;
                if count > state.inode.size {
                    let expected = format!("at least the {count} bytes in the inode");
                    let finding = Finding::new(Problem::InodeSize, expected, state.inode.size);
                    self.add(finding.at(state.addr).of(state.number));
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
                    self.add(finding.at(state.addr).of(state.number));
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

    /// Chunks are numbered from 0 without a gap, all but the last are full, and together they are the size. A
    /// tree that has more of them than a symbolic link can have is not walked to its end.
    fn long_symlink(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        let (number, inode) = (state.number, state.inode);
        let mut walk = Walk::of_state(state.content_tree(BlockKind::Symlink), state.chain.as_deref());
        let (mut chunks, mut total, mut readable) = (0u64, 0u64, true);
        let (mut leaves, mut cells) = (0u64, 0u64);
        while let Some(leaf) = walk.next_leaf_of(self, state.chain.as_deref_mut())? {
            leaves += 1;
            cells += leaf.count() as u64;
            if leaves.max(cells) > CHUNKS_MAX {
                let expected = format!("at most {CHUNKS_MAX} chunks");
                let finding = Finding::new(Problem::SymlinkChunk, expected, "more");
                self.add_incomplete(finding.at(leaf.addr).of(number));
                walk.complete = false;
                break;
            }
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
            self.add(finding.at(state.addr).of(number));
        }
        Ok(())
    }
}
