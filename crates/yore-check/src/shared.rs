//! Blocks that several files share: each is named as often as its group's table says.
//!
//! A *reference* is a place in the states of one incarnation, together with a birth: a run that a chain names
//! anew ([`crate::chain::Chain::take`]) is one for each of its blocks. A block without an entry has at most
//! one, so a second claim to it is reported as ever. What belongs to a zone or to the log is nobody's to
//! share, whatever a table counts.
//!
//! Memory: 12 KiB for each table.

use crate::checker::Checker;
use crate::known::CountTable;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{
    table_of, BlockKind, BlockNo, Expect, GroupNo, Incarnation, InodeNo, MetaAddr, TableNo, WriteFeatures,
    ZoneHeader, TABLES_PER_GROUP, TABLE_ENTRIES,
};

impl Checker<'_> {
    /// Reads all tables of groups, and keeps the count tables. What is in a sound checksum table contradicts
    /// nothing else in the volume's metadata: an entry of a block that no file has means nothing.
    pub(crate) fn load_tables(&mut self) -> Result<(), CheckError> {
        self.load_tables_of(BlockKind::CountTable, WriteFeatures::TABLES)?;
        self.load_tables_of(BlockKind::ChecksumTable, WriteFeatures::CHECKSUMS)
    }

    fn load_tables_of(&mut self, kind: BlockKind, feature: WriteFeatures) -> Result<(), CheckError> {
        for i in 0..self.zones.len() {
            let (number, group) = (self.zones[i].number, self.zones[i].header.group);
            if !number.is_primary() {
                continue;
            }
            for n in 0..TABLES_PER_GROUP as u8 {
                let Some(addr) = self.zones[i].header.table(kind, n) else { continue };
                self.needs(feature, kind.name(), ZoneHeader::addr(number), InodeNo::NONE);
                let table = TableNo::new(group, n);
                let (owner, incarnation) = (table.owner(), Incarnation(0));
                let expect = Expect { kind, owner, incarnation, level: Some(0) };
                let Some(block) = self.reach(addr, &expect)? else { continue };
                if kind == BlockKind::CountTable {
                    self.tables.insert(table, CountTable { addr, block, found: vec![(0, 0); TABLE_ENTRIES] });
                }
            }
        }
        Ok(())
    }

    /// Counts a reference to each of these blocks of a file; `in_use`: by an inode in use. Reports blocks
    /// that cannot be data, and those that have another owner and are not counted as shared.
    pub(crate) fn claim_data(
        &mut self,
        (start, len): (BlockNo, u64),
        (addr, owner): (MetaAddr, InodeNo),
        in_use: bool,
    ) {
        self.history.past_references += if in_use { 0 } else { len };
        let area = if self.tables.is_empty() { None } else { self.area(start, len) };
        let Some((group, bit)) = area else {
            self.claim_sole((start, len), (addr, owner), in_use);
            return;
        };
        let is_counted = |checker: &Self, bit: u32| {
            let (table, entry) = table_of(group, bit);
            checker.tables.get(&table).is_some_and(|table| table.count(entry).is_some())
        };
        let (mut at, end) = (bit, bit + len as u32);
        while at < end {
            let counted = is_counted(self, at);
            let next = (at..end).find(|bit| is_counted(self, *bit) != counted).unwrap_or(end);
            match counted {
                true => self.claim_counted(group, at..next, (addr, owner), in_use),
                false => {
                    let run = (self.geometry.block_of(group, at), u64::from(next - at));
                    self.claim_sole(run, (addr, owner), in_use);
                }
            }
            at = next;
        }
    }

    fn claim_sole(&mut self, (start, len): (BlockNo, u64), (addr, owner): (MetaAddr, InodeNo), in_use: bool) {
        let claimed = self.claim(start, len, "a file", Some(addr), Some(owner));
        self.counts.data_blocks += claimed;
        if !in_use {
            self.counts.history_data_blocks += claimed;
        }
    }

    /// The same for blocks that are counted as shared. Reports those that had an owner before the first
    /// reference to them: the volume itself.
    fn claim_counted(
        &mut self,
        group: GroupNo,
        bits: std::ops::Range<u32>,
        (addr, owner): (MetaAddr, InodeNo),
        in_use: bool,
    ) {
        let (start, len) = (self.geometry.block_of(group, bits.start), u64::from(bits.end - bits.start));
        let (mut first, mut count) = (None, 0u64);
        for bit in bits {
            let (table, entry) = table_of(group, bit);
            let mut is_first = true;
            if let Some(table) = self.tables.get_mut(&table) {
                let (references, used) = &mut table.found[entry];
                is_first = *references == 0;
                *references = references.saturating_add(1);
                *used = used.saturating_add(in_use.into());
            }
            if let Some(owned) = self.owned.get_mut(group.0 as usize).and_then(Option::as_mut) {
                let (word, mask) = (bit as usize / 64, 1 << (bit % 64));
                match owned[word] & mask {
                    0 => self.counts.data_blocks += 1,
                    _ if is_first => {
                        first.get_or_insert(bit);
                        count += 1;
                    }
                    _ => {}
                }
                owned[word] |= mask;
            }
        }
        self.note_claim(start, len, "a file", owner);
        if let Some(first) = first {
            let expected = format!("one owner of the {len} blocks from {start}");
            let found = format!("{count} of them belong to a file and to another");
            let finding = Finding::new(Problem::SpaceOwnedTwice, expected, found);
            self.add(finding.at(addr).on(self.geometry.block_of(group, first)).of(owner));
        }
    }

    /// Compares the tables with the references that were found.
    pub(crate) fn shared_counts(&mut self) {
        for (no, table) in std::mem::take(&mut self.tables) {
            for entry in 0..TABLE_ENTRIES {
                let Some(count) = table.count(entry) else { continue };
                let (references, in_use) = table.found[entry];
                let counted = (u32::from(count.references), u32::from(count.in_use));
                self.counts.history_data_blocks += u64::from(references > 0 && in_use == 0);
                self.counts.shared_blocks += 1;
                let is_less = references <= counted.0 && in_use <= counted.1;
                if (references, in_use) == counted || (self.incomplete && is_less) {
                    continue;
                }
                let bit = u32::from(no.number()) * TABLE_ENTRIES as u32 + entry as u32;
                let expected = format!("{references} references, {in_use} in use");
                let found = format!("{} references, {} in use", counted.0, counted.1);
                let block = self.geometry.block_of(no.group(), bit);
                let finding = Finding::new(Problem::SharedCount, expected, found).at(table.addr).on(block);
                let recount = Recount::References {
                    block,
                    references: counted.0.saturating_sub(references) as u16,
                    in_use: counted.1.saturating_sub(in_use) as u16,
                };
                self.add(if is_less { finding.may_be_left().recounted(recount) } else { finding });
            }
        }
    }
}
