//! The census of inodes: what every later step must know of each of them.

use crate::checker::Checker;
use crate::known::Known;
use crate::{CheckError, Finding, Problem};
use yore_format::{BitmapRef, BlockKind, Expect, FileKind, Inode, InodeNo, MetaAddr, INODES_PER_BLOCK};

impl Checker<'_> {
    /// Says how much is before the comparison.
    pub(crate) fn begin_walk(&self) {
        let (mut inode_blocks, mut all) = (0, 0);
        for (i, zone) in self.zones.iter().enumerate() {
            let indexes = zone.indexes();
            all += indexes.len() as u64;
            inode_blocks += indexes.iter().filter(|index| self.is_inode_block(i, **index)).count() as u64;
        }
        self.pace.begin_walk(inode_blocks, all - inode_blocks);
    }

    /// Reads every bitmap and every inode block. Zones, indexes and slots ascend, so the inodes do.
    pub(crate) fn census(&mut self) -> Result<(), CheckError> {
        for zone in 0..self.zones.len() {
            let number = self.zones[zone].number;
            if number.is_primary() {
                self.census_bitmap(zone)?;
            }
            for index in self.zones[zone].indexes() {
                if self.is_inode_block(zone, index) {
                    self.census_inodes(zone, index)?;
                }
            }
        }
        self.counts.inodes = self.inodes.len() as u64;
        Ok(())
    }

    pub(crate) fn census_bitmap(&mut self, zone: usize) -> Result<(), CheckError> {
        let addr = MetaAddr::new(self.zones[zone].number, 0);
        if !self.zones[zone].header.has(0) {
            self.add_incomplete(Finding::new(Problem::BitmapMissing, "a bitmap", "no block").at(addr));
            return Ok(());
        }
        match self.reach(addr, &Expect::volume(BlockKind::Bitmap))? {
            Some(block) => self.count_bitmap(zone, BitmapRef::new(&block)),
            None => self.damaged_bitmaps.push(addr),
        }
        Ok(())
    }

    fn census_inodes(&mut self, zone: usize, index: u16) -> Result<(), CheckError> {
        let addr = MetaAddr::new(self.zones[zone].number, index);
        let Some(block) = self.reach(addr, &Expect::volume(BlockKind::Inodes))? else {
            return Ok(());
        };
        let mut free = 0u32;
        for slot in 0..INODES_PER_BLOCK {
            let number = InodeNo::new(addr, slot as u8);
            self.check_incarnation(Inode::slot_incarnation(&block, slot), number, addr);
            if Inode::slot_is_free(&block, slot) {
                free += 1;
                continue;
            }
            // The block's verifier has decoded every slot; an error here would be a disagreement with itself.
            let decoded = Inode::decode(Inode::slot(&block, slot));
            let kind = decoded.as_ref().ok().and_then(|inode| FileKind::from_mode(inode.mode));
            match (decoded, kind) {
                (Ok(inode), Some(kind)) => self.inodes.push(Known::new(number, &inode, kind))?,
                (Ok(inode), None) => {
                    let found = format!("mode {:#o}", inode.mode);
                    self.add_incomplete(
                        Finding::new(Problem::BlockDamaged, "a file type", found).at(addr).of(number),
                    );
                }
                (Err(c), _) => {
                    self.add_incomplete(Finding::corruption(Problem::BlockDamaged, &c.at(addr).of(number)))
                }
            }
        }
        let found = u32::from(self.zones[zone].header.inode_free[usize::from(index)]);
        if free != found {
            self.add(Finding::new(Problem::InodeFree, free, found).at(addr));
        }
        Ok(())
    }
}
