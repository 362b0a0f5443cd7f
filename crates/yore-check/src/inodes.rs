//! The census of inodes: what every later step must know of each of them.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use yore_format::{
    BitmapRef, BlockKind, Expect, FileKind, Incarnation, Inode, InodeNo, MetaAddr, INODES_PER_BLOCK,
    NOT_INODES,
};

/// What is kept of an inode in use, and what is learned of its names.
pub(crate) struct Known {
    pub(crate) number: InodeNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: FileKind,
    pub(crate) links: u32,
    pub(crate) parent: InodeNo,
    pub(crate) parent_incarnation: Incarnation,
    pub(crate) parent_cookie: u64,
    /// Entries that name it.
    pub(crate) names: u64,
    /// The directory and cookie of the last of them.
    pub(crate) named_in: InodeNo,
    pub(crate) named_at: u64,
    /// Directories: entries that are directories.
    pub(crate) subdirectories: u64,
    /// Directories: entries.
    pub(crate) entries: u64,
    /// Whether it says that it has a policy of its own.
    pub(crate) has_policy: bool,
    /// Whether the tree of orphans names it.
    pub(crate) orphan: bool,
    /// Directories: whether it is known to be below the root, or known not to be.
    pub(crate) below_root: Option<bool>,
}

impl Known {
    fn new(number: InodeNo, inode: &Inode, kind: FileKind) -> Known {
        Known {
            number,
            incarnation: inode.incarnation,
            kind,
            links: inode.links,
            parent: inode.parent,
            parent_incarnation: inode.parent_incarnation,
            parent_cookie: inode.parent_cookie,
            names: 0,
            named_in: InodeNo::NONE,
            named_at: 0,
            subdirectories: 0,
            entries: 0,
            has_policy: inode.has_policy,
            orphan: false,
            below_root: None,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl Checker<'_> {
    /// Where an inode is in `inodes`.
    pub(crate) fn known(&self, number: InodeNo) -> Option<usize> {
        self.inodes.binary_search_by_key(&number, |k| k.number).ok()
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
        Ok(())
    }

    /// Whether the zone's header says that there are inodes at an existing index.
    pub(crate) fn is_inode_block(&self, zone: usize, index: u16) -> bool {
        let zone = &self.zones[zone];
        let bitmap = index == 0 && zone.number.is_primary();
        !bitmap && zone.header.inode_free[usize::from(index)] != NOT_INODES
    }

    fn census_bitmap(&mut self, zone: usize) -> Result<(), CheckError> {
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
                (Ok(inode), Some(kind)) => self.inodes.push(Known::new(number, &inode, kind)),
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

    /// Reports an incarnation beyond those given.
    pub(crate) fn check_incarnation(&mut self, incarnation: Incarnation, inode: InodeNo, addr: MetaAddr) {
        if u64::from(incarnation.0) >= self.sb.next_incarnation && incarnation.0 != 0 {
            let expected = format!("below {}", self.sb.next_incarnation);
            let finding = Finding::new(Problem::FutureIncarnation, expected, incarnation.0);
            self.add(finding.at(addr).of(inode));
        }
    }

    /// Walks the content of every inode, with what is kept of what it was, and of inodes that are gone.
    pub(crate) fn contents(&mut self) -> Result<(), CheckError> {
        let mut next = 0;
        while let Some(addr) = self.inodes.get(next).map(|k| k.number.addr()) {
            // What is wrong with the block has been reported by the census, and then none of its inodes is
            // known.
            let block = self.read_again(addr, &Expect::volume(BlockKind::Inodes))?;
            while let Some(number) = self.inodes.get(next).map(|k| k.number).filter(|n| n.addr() == addr) {
                let inode = block.as_ref().map(|b| Inode::decode(Inode::slot(b, number.slot())));
                if let Some(Ok(inode)) = inode {
                    self.states(number, Some((next, &inode)))?;
                }
                next += 1;
            }
        }
        // What is left are versions of inodes that are gone.
        while let Some(number) = self.history.first_inode() {
            self.states(number, None)?;
        }
        Ok(())
    }

    /// Reports blocks that exist and to which nothing led.
    pub(crate) fn unreached(&mut self) -> Result<(), CheckError> {
        for zone in 0..self.zones.len() {
            let number = self.zones[zone].number;
            for index in self.zones[zone].indexes() {
                if self.zones[zone].reached[usize::from(index) / 64] & (1 << (index % 64)) != 0 {
                    continue;
                }
                let addr = MetaAddr::new(number, index);
                let Some((_, place)) = self.locate(addr) else { continue };
                let Some(block) = self.read_at(addr, place, Problem::BlockDamaged)? else { continue };
                let header = yore_format::BlockHeader::of(&block);
                let kind = BlockKind::from_u8(header.kind).map_or("unknown kind", BlockKind::name);
                let owner = InodeNo(header.owner.get());
                if header.kind == BlockKind::Inodes as u8 {
                    let finding = Finding::new(Problem::InodeFree, "a count of free inodes", "no inodes");
                    self.add_incomplete(finding.at(addr));
                } else if !self.incomplete {
                    let finding = Finding::new(Problem::BlockUnreachable, "a reference", kind);
                    self.add(finding.at(addr).on(place.block).of(owner));
                }
            }
        }
        Ok(())
    }
}
