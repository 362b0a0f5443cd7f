//! Blocks with two owners, if the fast pass has no other doubt: who the owners are, and what their paths are.
//!
//! The spans that may have the first owners are read once more ([`super::claim`]), and no others. Then all
//! claims of such blocks are made again in the order of the walk, by the code of the walk. No other claim
//! overlaps with one. So the findings are those of the walk.

use super::claim::{Claim, Part, Span, Twice};
use super::doubt::{ensure, Certain, Stop, ODD, TWO_OWNERS};
use super::ground::Ground;
use super::summary::InOrder;
use crate::checker::Checker;
use crate::key::key;
use crate::known::Known;
use crate::report::Findings;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    Block, BlockHeader, BlockKind, BlockNo, ContentKind, Expect, ExtentValue, FileKind, Inode, InodeNo,
    MetaAddr, NodeRef, INODES_PER_BLOCK,
};

impl Checker<'_> {
    /// Finds all claims of the blocks that have several. Zones and the log must have claimed their blocks
    /// before.
    pub(super) fn claims_of_twice(&mut self, ground: &Ground, summary: &InOrder) -> Result<Twice, Stop> {
        let mut twice = ground.twice();
        self.also_fixed(ground, &mut twice)?;
        if ground.may_have_past() {
            ensure(twice.blocks.is_empty(), TWO_OWNERS.0)?;
            return Ok(twice);
        }
        let mut parts = BTreeMap::new();
        for block in &twice.blocks {
            let (group, bit) = self.geometry.bit_of(BlockNo(*block)).ok_or(ODD)?;
            *parts.entry(group).or_default() |= Part::of(group, bit, 1).bits;
        }
        let mut spans = BTreeSet::new();
        for (group, bits) in parts {
            summary.spans(Part { group, bits }, &mut spans)?;
        }
        let mut spans = spans.into_iter().peekable();
        while let Some(first) = spans.next() {
            let mut of_zone: Vec<Span> = vec![first];
            of_zone.extend(std::iter::from_fn(|| spans.next_if(|next| next.zone == first.zone)));
            self.read_spans(&of_zone, &mut twice)?;
        }
        self.all_are_known(&twice)?;
        Ok(twice)
    }

    /// Whether at least two owners are known of each of the blocks.
    fn all_are_known(&self, twice: &Twice) -> Certain {
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        let mut met = 0;
        for claim in &twice.claims {
            for block in twice.blocks.range(claim.start.0..claim.start.0 + claim.len) {
                met += 1;
                ensure(met <= twice.met_most(), "many blocks with two owners")?;
                *owners.entry(*block).or_default() += 1;
            }
        }
        for block in &twice.blocks {
            let (group, bit) = self.geometry.bit_of(BlockNo(*block)).ok_or(ODD)?;
            let fixed = self.owned.get(group.0 as usize).and_then(Option::as_ref);
            let fixed = fixed.is_some_and(|owned| owned[bit as usize / 64] >> (bit % 64) & 1 != 0);
            let owners = owners.get(block).copied().unwrap_or_default() + u32::from(fixed);
            ensure(owners >= 2, ODD.0)?;
        }
        Ok(())
    }

    /// Adds the blocks of files that belong to zones or to the log as well.
    fn also_fixed(&self, ground: &Ground, twice: &mut Twice) -> Certain {
        for (group, owned) in (0..).zip(&self.owned) {
            let (Some(owned), Some(found)) = (owned, ground.owners(group as usize)) else { continue };
            for (word, (owned, found)) in (0..).zip(owned.iter().zip(found)) {
                let both = owned & found;
                if both != 0 {
                    let bits = (0..u64::BITS).filter(|bit| both >> bit & 1 != 0);
                    let block = |bit| self.geometry.block_of(yore_format::GroupNo(group), word * 64 + bit).0;
                    twice.blocks.extend(bits.map(block));
                    twice.is_few()?;
                }
            }
        }
        Ok(())
    }

    /// Reads spans of a zone, and gathers the claims of such blocks in them.
    fn read_spans(&mut self, spans: &[Span], twice: &mut Twice) -> Certain {
        let Some(first) = spans.first() else { return Ok(()) };
        let zone = self.zones.binary_search_by_key(&first.zone, |zone| zone.number).map_err(|_| ODD)?;
        let is_wanted = |index| spans.iter().any(|span| span.has(index));
        let (blocks, reading) = self.scan.blocks(&self.zones[zone].header, is_wanted);
        self.reading.add(&reading);
        for held in blocks {
            let addr = MetaAddr::new(first.zone, held.index);
            let is_inodes = self.is_inode_block(zone, held.index);
            claims_in(&held.bytes, addr, is_inodes, twice)?;
        }
        twice.is_few()
    }

    /// Makes the claims that were found, in the order of the walk. All other blocks have their owners
    /// already.
    pub(super) fn claim_twice(&mut self, twice: &Twice) {
        if twice.blocks.is_empty() {
            return;
        }
        self.asked.clone_from(&twice.blocks);
        // Zones and the log have claimed their blocks before. They claim them again only to be named as
        // owners, so the findings of that do not count.
        let findings = std::mem::replace(&mut self.findings, Findings::new(0));
        self.claim_fixed();
        self.findings = findings;
        self.counts.data_blocks -= twice.claims.iter().map(|claim| claim.len).sum::<u64>();
        for claim in &twice.claims {
            self.claim_data((claim.start, claim.len), (claim.addr, claim.inode), true);
        }
        let first = std::mem::take(&mut self.first_owners);
        self.findings.set_first(&first);
        self.asked.clear();
    }

    /// Remembers where the names are of the inodes that findings are about, and of the directories above
    /// them. The inodes say it themselves, and the fast pass has compared that with the entries. A file with
    /// several names does not say it: there is a doubt, and the walk finds its names.
    pub(super) fn names_of_found(&mut self) -> Result<(), Stop> {
        let mut wanted: Vec<InodeNo> = self.findings.inodes().filter(|number| number.is_file()).collect();
        let mut known = BTreeMap::new();
        while let Some(number) = wanted.pop() {
            if number == InodeNo::ROOT || known.contains_key(&number) {
                continue;
            }
            let block = self.read_alone(number.addr(), &Expect::volume(BlockKind::Inodes))?.ok_or(ODD)?;
            let inode = Inode::decode(Inode::slot(&block, number.slot())).map_err(|_| ODD)?;
            let kind = FileKind::from_mode(inode.mode).ok_or(ODD)?;
            let mut own = Known::new(number, &inode, kind);
            if own.links > 0 {
                let tells = own.is_directory() || own.links == 1 && own.parent != InodeNo::NONE;
                ensure(tells, "a block with two owners, of a file that does not say where its names are")?;
                (own.names, own.named_in, own.named_at) = (1, own.parent, own.parent_cookie);
                wanted.push(own.parent);
            }
            known.insert(number, own);
        }
        for own in known.into_values() {
            self.inodes.push(own)?;
        }
        Ok(())
    }
}

/// Gathers the claims of such blocks that stand in a block of metadata.
fn claims_in(block: &Block, addr: MetaAddr, is_inodes: bool, twice: &mut Twice) -> Certain {
    let mut claim = |inode: InodeNo, key: u64, extent: &ExtentValue| {
        let (start, len) = (extent.start, u64::from(extent.len));
        if twice.concerns(start, len) {
            twice.claims.insert(Claim { inode, key, start, len, addr });
        }
    };
    if is_inodes {
        for slot in 0..INODES_PER_BLOCK {
            let inode = Inode::decode(Inode::slot(block, slot)).map_err(|_| ODD)?;
            let is_file = FileKind::from_mode(inode.mode) == Some(FileKind::Regular);
            if is_file && inode.content_kind == ContentKind::Extents {
                for extent in ExtentValue::inline(&inode) {
                    let (key, extent) = extent.map_err(|_| ODD)?;
                    claim(InodeNo::new(addr, slot as u8), key, &extent);
                }
            }
        }
        return Ok(());
    }
    let (header, node) = (BlockHeader::of(block), NodeRef::new(block));
    if header.kind == BlockKind::Extents as u8 && node.level() == 0 {
        for i in 0..node.count() {
            let extent = ExtentValue::decode(node.value(i)).map_err(|_| ODD)?;
            claim(InodeNo(header.owner.get()), key(node, i).number(), &extent);
        }
    }
    Ok(())
}
