//! Blocks that exist and to which nothing led.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{BlockKind, Incarnation, InodeNo, MetaAddr};

impl Checker<'_> {
    /// Reports blocks that exist and to which nothing led.
    pub(crate) fn unreached(&mut self) -> Result<(), CheckError> {
        let mut unreached = Vec::new();
        for zone in 0..self.zones.len() {
            let number = self.zones[zone].number;
            for index in self.zones[zone].indexes() {
                if self.zones[zone].reached[usize::from(index) / 64] & (1 << (index % 64)) != 0 {
                    continue;
                }
                let addr = MetaAddr::new(number, index);
                let Some((_, copy)) = self.locate(addr) else { continue };
                let Some(block) = self.read_at(addr, copy, Problem::BlockDamaged, InodeNo::NONE)? else {
                    continue;
                };
                let header = yore_format::BlockHeader::of(&block);
                let (kind, owner) = (BlockKind::from_repr(header.kind), InodeNo(header.owner.get()));
                if kind == Some(BlockKind::Inodes) {
                    let finding = Finding::new(Problem::InodeFree, "a count of free inodes", "no inodes");
                    self.add_incomplete(finding.at(addr));
                } else if !self.incomplete {
                    let incarnation = Incarnation(header.owner_incarnation.get());
                    unreached.push((addr, copy.block, kind, owner, incarnation));
                }
            }
        }
        if self.incomplete {
            // Inodes that were met last may lead to what was met before.
            return Ok(());
        }
        for (addr, block, kind, owner, incarnation) in unreached {
            let name = kind.map_or("unknown kind", BlockKind::name);
            let finding = Finding::new(Problem::BlockUnreachable, "a reference", name);
            let finding = finding.at(addr).on(block).of(owner);
            self.add(match kind.filter(|kind| is_node(*kind)) {
                Some(kind) => finding.recounted(Recount::Node { addr, kind, owner, incarnation }),
                None => finding,
            });
        }
        Ok(())
    }
}

/// Whether blocks of this kind are nodes of trees, to which their parents or the owner of the root lead.
fn is_node(kind: BlockKind) -> bool {
    use BlockKind::*;
    match kind {
        ZoneHeader | ZoneTable | Bitmap | Inodes | HistoryRoots | Spans | Findings | CountTable
        | ChecksumTable => false,
        Directory | Extents | Xattrs | Symlink | Orphans | Events | EventIndex | Versions | Names
        | Changes | Policies | Operations | Annals | InodeIndex | NameIndex => true,
    }
}
