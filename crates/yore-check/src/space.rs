//! Data blocks: each has at most one owner, and the bitmaps mark those that have one and no others.

use crate::checker::{Checker, GROUP_WORDS};
use crate::finding::FirstOwner;
use crate::words::for_words;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{
    BitmapRef, BlockKind, BlockNo, Expect, ExtentValue, GroupNo, HistoryGrowth, InodeNo, MetaAddr,
    ZoneHeader, ZoneNo, BITS_PER_GROUP,
};

impl Checker<'_> {
    /// Whether an extent lies where extents can.
    pub(crate) fn check_area(&mut self, extent: &ExtentValue, addr: MetaAddr, inode: InodeNo) {
        let (start, len) = (extent.start, u64::from(extent.len));
        if self.area(start, len).is_none() {
            let found = format!("{len} blocks from {start} for a file");
            let finding = Finding::new(Problem::SpacePlace, "blocks of one group's data area", found);
            self.add(finding.at(addr).on(start).of(inode));
        }
    }

    /// Group and first bit of blocks that lie within one data area.
    pub(crate) fn area(&self, start: BlockNo, len: u64) -> Option<(GroupNo, u32)> {
        let area = self.geometry.bit_of(start);
        area.filter(|(group, bit)| u64::from(*bit) + len <= self.geometry.data_blocks(*group))
    }

    /// Gives `len` blocks from `start` an owner. Reports blocks that cannot have one, or have one already.
    /// Returns how many of them had no owner. Constant time for each 64 blocks, at most a group.
    pub(crate) fn claim(
        &mut self,
        start: BlockNo,
        len: u64,
        what: &str,
        addr: Option<MetaAddr>,
        inode: Option<InodeNo>,
    ) -> u64 {
        let inode = inode.unwrap_or(InodeNo::NONE);
        let located = |f: Finding| match addr {
            Some(addr) => f.at(addr).on(start).of(inode),
            None => f.on(start).of(inode),
        };
        let found = format!("{len} blocks from {start} for {what}");
        let Some((group, bit)) = self.area(start, len) else {
            self.add(located(Finding::new(Problem::SpacePlace, "blocks of one group's data area", found)));
            return 0;
        };
        let Some(owned) = self.owned.get_mut(group.0 as usize).and_then(Option::as_mut) else {
            let expected = format!("no blocks of group {group}, whose first zone does not exist");
            if !self.incomplete {
                self.add(located(Finding::new(Problem::SpacePlace, expected, found)));
            }
            return 0;
        };
        let (mut first, mut count) = (None, 0u64);
        for_words(bit, bit + len as u32, |word, mask| {
            let both = owned[word] & mask;
            if both != 0 {
                first.get_or_insert(word as u32 * 64 + both.trailing_zeros());
                count += u64::from(both.count_ones());
            }
            owned[word] |= mask;
        });
        self.note_claim(start, len, what, inode);
        if let Some(first) = first {
            let block = self.geometry.block_of(group, first);
            let expected = format!("one owner of the {len} blocks from {start}");
            let found = format!("{count} of them belong to {what} and to another");
            self.add(located(Finding::new(Problem::SpaceOwnedTwice, expected, found)).on(block));
        }
        len - count
    }

    /// Notes who claims blocks, as far as somebody asks, or will ask, who had them first.
    pub(crate) fn note_claim(&mut self, start: BlockNo, len: u64, what: &str, inode: InodeNo) {
        if self.only.is_none() {
            self.claims.note(start.0, len);
        }
        // Whoever comes behind the first is not asked for, however many there are.
        let met: Vec<u64> = self.asked.range(start.0..start.0 + len).copied().collect();
        for block in met {
            let inode = Some(inode).filter(|inode| *inode != InodeNo::NONE);
            self.asked.remove(&block);
            self.first_owners.insert(block, FirstOwner { what: what.into(), inode, path: None });
        }
    }

    /// Counts the free blocks of a group by its bitmap, and compares with the zone table's count.
    pub(crate) fn count_bitmap(&mut self, zone: usize, bitmap: BitmapRef<'_>) {
        let free = u64::from(BITS_PER_GROUP - bitmap.used());
        self.counts.free_blocks += free;
        let (number, found) = (self.zones[zone].number, self.zones[zone].entry.free_blocks.get());
        if free != u64::from(found) {
            let finding = Finding::new(Problem::ZoneCounts, free, format!("{found} free blocks"));
            self.add(finding.at(ZoneHeader::addr(number)));
        }
    }

    /// Compares each bitmap with the owners that were found.
    pub(crate) fn bitmaps(&mut self) -> Result<(), CheckError> {
        for group in (0..self.geometry.groups()).map(GroupNo) {
            let Some(mut owned) = self.owned[group.0 as usize].clone() else { continue };
            let addr = MetaAddr::new(ZoneNo::primary(group), 0);
            if self.locate(addr).is_none() || self.damaged_bitmaps.contains(&addr) {
                // Reported by the census.
                continue;
            }
            // What lies beyond the end of the volume belongs to nobody and is marked used.
            let end = self.geometry.data_blocks(group) as u32;
            for_words(end, BITS_PER_GROUP, |word, mask| owned[word] |= mask);
            let bitmap = self.read_again(addr, &Expect::volume(BlockKind::Bitmap))?;
            let Some(block) = bitmap else { continue };
            let bitmap = BitmapRef::new(&block);
            let mut runs = Runs { checker: self, group, addr, run: None };
            for (i, owned) in owned.iter().enumerate().take(GROUP_WORDS) {
                let used = bitmap.word(i);
                let differing = used ^ owned;
                if differing == 0 {
                    runs.end();
                    continue;
                }
                for b in 0..64 {
                    match differing >> b & 1 {
                        0 => runs.end(),
                        _ => runs.add(i as u32 * 64 + b, used >> b & 1 != 0),
                    }
                }
            }
            runs.end();
        }
        Ok(())
    }

    /// Compares the superblock's totals, unless something could not be read: the counts are incomplete then.
    pub(crate) fn totals(&mut self) {
        for group in (0..self.geometry.groups()).map(GroupNo) {
            if self.zones.binary_search_by_key(&ZoneNo::primary(group), |z| z.number).is_err() {
                self.counts.free_blocks += self.geometry.data_blocks(group);
            }
        }
        if self.incomplete {
            return;
        }
        let (sb, counts) = (&self.sb, &self.counts);
        let totals = [
            (Problem::TotalFreeBlocks, counts.free_blocks, sb.free_blocks.saturating_add(self.unpromised)),
            (Problem::TotalInodes, counts.inodes, sb.inodes),
            (Problem::TotalMetadataBlocks, counts.metadata_blocks, sb.metadata_blocks),
            (Problem::TotalZones, counts.zones, u64::from(sb.zones)),
        ];
        // Nobody knows who owned what is lost.
        if !self.findings.any_leak() {
            let space = self.history.space;
            type Growth = fn(i64) -> HistoryGrowth;
            let mut of_the_past: Vec<(_, _, _, Growth)> = vec![
                ("data blocks", counts.history_data_blocks, space.data, |data| HistoryGrowth {
                    data,
                    ..HistoryGrowth::default()
                }),
                ("nodes of inodes", counts.history_nodes, space.nodes, |nodes| HistoryGrowth {
                    nodes,
                    ..HistoryGrowth::default()
                }),
                ("nodes of its own trees", counts.history_trees, space.trees, |trees| HistoryGrowth {
                    trees,
                    ..HistoryGrowth::default()
                }),
            ];
            let past = self.history.past_references;
            let growth: Growth = |references| HistoryGrowth { references, ..HistoryGrowth::default() };
            of_the_past.extend(self.history.references.map(|found| ("references", past, found, growth)));
            for (what, expected, found, of) in of_the_past.into_iter().filter(|(_, a, b, _)| a != b) {
                let finding = Finding::new(Problem::HistorySpace, format!("{expected} {what}"), found);
                let finding = finding.recounted(Recount::PastSpace(of(expected.wrapping_sub(found) as i64)));
                self.findings.add(finding.at(self.sb.history_root));
            }
        }
        for (problem, expected, found) in totals {
            if expected != found {
                let by = expected.wrapping_sub(found) as i64;
                let of = |total| if total == problem { by } else { 0 };
                let finding = Finding::new(problem, expected, found);
                self.add(match problem {
                    // Zones come and go with a whole generation, so no crash leaves this.
                    Problem::TotalZones => finding,
                    _ => finding.recounted(Recount::Totals {
                        free_blocks: of(Problem::TotalFreeBlocks),
                        inodes: of(Problem::TotalInodes),
                        metadata_blocks: of(Problem::TotalMetadataBlocks),
                    }),
                });
            }
        }
    }
}

/// Puts neighbouring bits that are wrong in the same way together into one finding.
struct Runs<'c, 'd> {
    checker: &'c mut Checker<'d>,
    group: GroupNo,
    addr: MetaAddr,
    /// First bit, length, and whether the bits are marked used.
    run: Option<(u32, u32, bool)>,
}

impl Runs<'_, '_> {
    fn add(&mut self, bit: u32, used: bool) {
        match &mut self.run {
            Some((first, len, kind)) if *kind == used && *first + *len == bit => *len += 1,
            _ => {
                self.end();
                self.run = Some((bit, 1, used));
            }
        }
    }

    fn end(&mut self) {
        let Some((first, len, used)) = self.run.take() else { return };
        let block = self.checker.geometry.block_of(self.group, first);
        let finding = match used {
            true if self.checker.incomplete => return,
            true => Finding::new(Problem::SpaceLeaked, "free", format!("{len} blocks marked used")),
            false => {
                Finding::new(Problem::SpaceMarkedFree, "marked used", format!("{len} blocks marked free"))
            }
        };
        self.checker.add(finding.at(self.addr).on(block).blocks(len));
    }
}
