//! Blocks that two files have, and counts of blocks that several files share.
//!
//! Which of two owners a block belongs to is not known in general. So the file that was met second gets
//! copies of the blocks, if there is room, and both have the data; it is named, for it may have the other's.
//! Blocks of zones and of the log are never a file's.

use super::content::{Extents, FILE_END};
use super::round::{numbers, Copied, Round};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    BlockCount, BlockHeader, BlockKind, BlockNo, CountTableMut, ExtentValue, FileKind, InodeNo, TableNo,
    BLOCK_SIZE, TABLE_ENTRIES,
};

impl Round<'_> {
    /// Remembers which files have blocks as well as others, so that each of them is written once, however
    /// many such blocks it has.
    pub(super) fn note_twice(&mut self, findings: &[Finding]) {
        let is_it = |finding: &&Finding| finding.problem == Problem::SpaceOwnedTwice && finding.row.is_none();
        for finding in findings.iter().filter(is_it) {
            if let (Some(number), Some(block)) = (finding.inode, finding.block) {
                *self.twice.entry(number).or_default().entry(block).or_default() += 1;
            }
        }
    }

    /// Gives the second owner of blocks copies of them.
    pub(super) fn share_out(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        if finding.inode.is_none() && self.is_log_misplaced(finding) {
            return self.forget_log(finding);
        }
        let (Some(number), Some(block)) = (finding.inode, finding.block) else { return Ok(false) };
        // Blocks that are taken here have an owner from now on, but those of unread inodes have none.
        if self.seen.incomplete || !number.is_file() {
            return Ok(false);
        }
        if let Some(blocks) = self.twice.remove(&number) {
            self.copy_all(number, blocks)?;
        }
        let copied = self.copies.get_mut(&(number, block)).and_then(Vec::pop);
        let Some(Copied { from, to, is_whole }) = copied else { return Ok(false) };
        let first = finding.first.as_ref();
        let whose = match first.map(|first| (&first.path, first.inode, &first.what)) {
            Some((Some(path), ..)) => format!("those of {path}"),
            Some((None, Some(inode), _)) => format!("those of inode {inode}"),
            Some((None, None, what)) => format!("those of {what}"),
            None => "another's".to_string(),
        };
        let what = match is_whole {
            true => format!(
                "bytes {from} to {to} were in blocks that are {whose}, too, and may not be this file's"
            ),
            false => {
                format!("of bytes {from} to {to}, what was in blocks that are {whose}, too, is lost in part")
            }
        };
        self.lose(number, what)?;
        Ok(true)
    }

    /// Gives a file copies of these blocks, and of what is behind them in their extents. An extent answers
    /// for each block as often as once.
    fn copy_all(&mut self, number: InodeNo, mut blocks: BTreeMap<BlockNo, u32>) -> Result<(), CheckError> {
        let Some(mut inode) = self.volume.inode(number)? else { return Ok(()) };
        if FileKind::from_mode(inode.mode) != Some(FileKind::Regular) {
            return Ok(());
        }
        let (extents, old, is_lossy) = self.extents(number, &inode)?;
        if is_lossy || old.is_ragged {
            return Ok(());
        }
        let (mut changed, mut copies) = (Extents::with_capacity(extents.len()), Vec::new());
        for (key, extent) in extents {
            let end = BlockNo(extent.start.0.saturating_add(u64::from(extent.len)));
            let first = blocks.range(extent.start..end).next().map(|(block, _)| *block);
            let Some(first) = first.filter(|_| key < FILE_END) else {
                changed.push((key, extent));
                continue;
            };
            let kept = (first.0 - extent.start.0) as u32;
            let at = key + u64::from(kept);
            let rest = ExtentValue { start: first, len: extent.len - kept, birth: inode.born, ..extent };
            let Some(copied) = self.copies_of(at, rest)? else {
                changed.push((key, extent));
                continue;
            };
            if let Some(left @ 2..) = blocks.remove(&first) {
                blocks.insert(first, left - 1);
            }
            if kept > 0 {
                changed.push((key, ExtentValue { len: kept, ..extent }));
            }
            let had: u64 = copied.iter().map(|(_, extent)| u64::from(extent.len)).sum();
            let (from, to) = (at * BLOCK_SIZE as u64, (at + u64::from(rest.len)) * BLOCK_SIZE as u64);
            copies.push((first, Copied { from, to, is_whole: had == u64::from(rest.len) }));
            changed.extend(copied);
        }
        if !copies.is_empty() && self.set_extents(number, &mut inode, &old, &changed)? {
            // The first of several is told first.
            for (first, copied) in copies.into_iter().rev() {
                self.copies.entry((number, first)).or_default().push(copied);
            }
        }
        Ok(())
    }

    /// Whether a finding is that the log lies where a zone is.
    fn is_log_misplaced(&self, finding: &Finding) -> bool {
        let sb = &self.volume.sb;
        let is_in_log = |block: BlockNo| block >= sb.log_start && block.0 - sb.log_start.0 < sb.log_blocks;
        finding.block.is_some_and(|block| is_in_log(block) && self.volume.is_in_zone(block))
    }

    /// Copies of the blocks of an extent, of its birth, but for those of zones and of the log, and as far as
    /// there is room. `None` as long as leaks take that room: their bitmaps are put right in this round.
    fn copies_of(&mut self, key: u64, extent: ExtentValue) -> Result<Option<Extents>, CheckError> {
        let blocks = (0..extent.len).map(|n| (n, BlockNo(extent.start.0 + u64::from(n))));
        let wanted: Vec<(u32, BlockNo)> = blocks.filter(|(_, from)| !self.is_of_volume(*from)).collect();
        if self.free_left.is_some_and(|left| left < wanted.len()) {
            return Ok(None);
        }
        let mut free = Vec::with_capacity(wanted.len());
        while free.len() < wanted.len() {
            let Some(to) = self.free_block()? else { break };
            free.push(to);
        }
        if free.len() < wanted.len() && self.is_some_leaked()? {
            // Whoever wants as many need not search all groups again.
            self.free_left = Some(free.len());
            self.give_back(&free);
            return Ok(None);
        }
        self.free_left = self.free_left.map(|left| left.saturating_sub(free.len()));
        let mut copied = Extents::new();
        for ((n, from), to) in wanted.into_iter().zip(free) {
            if !extent.unwritten {
                let Some(bytes) = self.volume.bytes(from)? else { continue };
                self.volume.disk.write(to, &bytes);
            }
            let key = key + u64::from(n);
            match copied.last_mut() {
                Some((at, last))
                    if *at + u64::from(last.len) == key && last.start.0 + u64::from(last.len) == to.0 =>
                {
                    last.len += 1;
                }
                _ => copied.push((key, ExtentValue { start: to, len: 1, ..extent })),
            }
        }
        Ok(Some(copied))
    }

    /// Whether a block is of a zone or of the log.
    fn is_of_volume(&self, block: BlockNo) -> bool {
        let sb = &self.volume.sb;
        let is_in_log = block >= sb.log_start && block.0 - sb.log_start.0 < sb.log_blocks;
        is_in_log || self.volume.is_in_zone(block)
    }

    /// Sets the count of a shared block to the references that were found.
    pub(super) fn mend_shared_count(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let (Some(addr), Some(block_no)) = (finding.addr, finding.block) else { return Ok(false) };
        let mut counts = numbers(&finding.expected).map(|count| count.try_into().ok());
        let (Some(Some(references)), Some(Some(in_use))) = (counts.next(), counts.next()) else {
            return Ok(false);
        };
        let Some(mut block) = self.volume.read_kind(addr, BlockKind::CountTable)? else { return Ok(false) };
        let table = TableNo::from_owner(InodeNo(BlockHeader::of(&block).owner.get()));
        let place = self.volume.geometry.bit_of(block_no);
        let Some(((_, bit), table)) = place.zip(table) else { return Ok(false) };
        let Some(entry) = (bit as usize).checked_sub(usize::from(table.number()) * TABLE_ENTRIES) else {
            return Ok(false);
        };
        if entry >= TABLE_ENTRIES {
            return Ok(false);
        }
        // One reference needs no count.
        let count = BlockCount { references, in_use };
        CountTableMut::new(&mut block).set(entry, (references > 1).then_some(count));
        Ok(self.volume.put(addr, block))
    }
}
