//! Blocks that exist and to which nothing led.
//!
//! Whether they are told is known when the last one was read. Until then they are in a list, some ten bytes
//! for each ([`crate::varint`]). What of it does not fit into memory is in a temporary file.

use crate::checker::Checker;
use crate::spill::Stream;
use crate::varint::{get, put};
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{BlockKind, BlockNo, Incarnation, InodeNo, MetaAddr};

impl Checker<'_> {
    /// Reports blocks that exist and to which nothing led.
    pub(crate) fn unreached(&mut self) -> Result<(), CheckError> {
        let (mut unreached, mut bytes) = (Stream::new(self.room.list()), Vec::new());
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
                    let incarnation = header.owner_incarnation.get();
                    bytes.clear();
                    for number in [addr.0, copy.block.0, header.kind.into(), owner.0, incarnation.into()] {
                        put(&mut bytes, number);
                    }
                    unreached.write(&bytes)?;
                }
            }
        }
        if self.incomplete {
            // Inodes that were met last may lead to what was met before.
            return Ok(());
        }
        let mut list = unreached.reader();
        let mut next = || get(|| list.byte());
        while let Some(addr) = next()? {
            let (Some(block), Some(kind), Some(owner), Some(incarnation)) =
                (next()?, next()?, next()?, next()?)
            else {
                break;
            };
            let (addr, block, owner) = (MetaAddr(addr), BlockNo(block), InodeNo(owner));
            let (kind, incarnation) = (BlockKind::from_repr(kind as u8), Incarnation(incarnation as u32));
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
