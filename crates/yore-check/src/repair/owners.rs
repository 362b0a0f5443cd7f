//! Blocks that two files have, and counts of blocks that several files share.
//!
//! Which of two owners a block belongs to is not known in general. So the file that was met second gets
//! copies of the blocks, if there is room, and both have the data; it is named, for it may have the other's.
//! Blocks of zones and of the log are never a file's.

use super::content::Extents;
use super::round::{numbers, Round};
use crate::{CheckError, Finding};
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{
    BlockCount, BlockHeader, BlockKind, BlockNo, CountTableMut, ExtentValue, FileKind, InodeNo, TableNo,
    BLOCK_SIZE, TABLE_ENTRIES,
};

impl Round<'_> {
    /// Gives the second owner of blocks copies of them.
    pub(super) fn share_out(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        if finding.inode.is_none() && self.is_log_misplaced(finding) {
            return self.forget_log(finding);
        }
        let (Some(number), Some(first)) = (finding.inode, finding.block) else { return Ok(false) };
        // Blocks that are taken here have an owner from now on, but those of unread inodes have none.
        if self.seen.incomplete || !number.is_file() {
            return Ok(false);
        }
        let Some(mut inode) = self.volume.inode(number)? else { return Ok(false) };
        if FileKind::from_mode(inode.mode) != Some(FileKind::Regular) {
            return Ok(false);
        }
        let (extents, old, is_lossy) = self.extents(number, &inode)?;
        if is_lossy || old.is_ragged {
            return Ok(false);
        }
        let end = |extent: &ExtentValue| extent.start.0 + u64::from(extent.len);
        let has_first = |extent: &ExtentValue| extent.start <= first && first.0 < end(extent);
        let Some(at) = extents.iter().position(|(_, extent)| has_first(extent)) else { return Ok(false) };
        let (key, extent) = extents[at];
        let mut changed: Extents = extents[..at].to_vec();
        let kept = (first.0 - extent.start.0) as u32;
        if kept > 0 {
            changed.push((key, ExtentValue { len: kept, ..extent }));
        }
        let rest = ExtentValue { start: first, len: extent.len - kept, ..extent };
        let copied = self.copied(key + u64::from(kept), ExtentValue { birth: inode.born, ..rest })?;
        let Some(copied) = copied else { return Ok(false) };
        let bytes = |blocks: u64| (key + u64::from(kept) + blocks) * BLOCK_SIZE as u64;
        let (from, to) = (bytes(0), bytes(u64::from(rest.len)));
        let had: u64 = copied.iter().map(|(_, extent)| u64::from(extent.len)).sum();
        let first = finding.first.as_ref();
        let whose = match first.map(|first| (&first.path, first.inode, &first.what)) {
            Some((Some(path), ..)) => format!("those of {path}"),
            Some((None, Some(inode), _)) => format!("those of inode {inode}"),
            Some((None, None, what)) => format!("those of {what}"),
            None => "another's".to_string(),
        };
        let what = match had == u64::from(rest.len) {
            true => format!(
                "bytes {from} to {to} were in blocks that are {whose}, too, and may not be this file's"
            ),
            false => {
                format!("of bytes {from} to {to}, what was in blocks that are {whose}, too, is lost in part")
            }
        };
        self.lose(number, what)?;
        changed.extend(copied);
        changed.extend_from_slice(&extents[at + 1..]);
        self.set_extents(number, &mut inode, &old, &changed)
    }

    /// Whether a finding is that the log lies where a zone is.
    fn is_log_misplaced(&self, finding: &Finding) -> bool {
        let sb = &self.volume.sb;
        let is_in_log = |block: BlockNo| block >= sb.log_start && block.0 - sb.log_start.0 < sb.log_blocks;
        let is_in = |start: BlockNo, block: BlockNo| (start.0..start.0 + ZONE_BLOCKS).contains(&block.0);
        let is_zone = |block| self.volume.zones.values().any(|zone| is_in(zone.header.start, block));
        finding.block.is_some_and(|block| is_in_log(block) && is_zone(block))
    }

    /// Copies of the blocks of an extent, of its birth, but for those of zones and of the log, and as far as
    /// there is room. `None` as long as leaks take that room: their bitmaps are put right in this round.
    fn copied(&mut self, key: u64, extent: ExtentValue) -> Result<Option<Extents>, CheckError> {
        let blocks = (0..extent.len).map(|n| (n, BlockNo(extent.start.0 + u64::from(n))));
        let wanted: Vec<(u32, BlockNo)> = blocks.filter(|(_, from)| !self.is_of_volume(*from)).collect();
        let mut free = Vec::with_capacity(wanted.len());
        while free.len() < wanted.len() {
            let Some(to) = self.free_block()? else { break };
            free.push(to);
        }
        if free.len() < wanted.len() && self.is_some_leaked()? {
            self.give_back(&free);
            return Ok(None);
        }
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
        let is_in = |start: BlockNo| (start.0..start.0 + ZONE_BLOCKS).contains(&block.0);
        is_in_log || self.volume.zones.values().any(|zone| is_in(zone.header.start))
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
