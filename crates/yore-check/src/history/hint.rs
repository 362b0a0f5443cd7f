//! The hint of what each event holds: what a mount would believe must be whole, and no more than there is.
//! Whether it is what a walk would find, only a walk knows.

use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use yore_format::{
    AnnalsCounts, BitmapRef, BlockKind, BlockNo, Corruption, Expect, HintPlace, MetaAddr, SpanHint,
    VolumeState, ZoneNo, BLOCK_SIZE, HINT_BLOCKS_MOST,
};

impl Checker<'_> {
    /// Checks the hint, if there is one of the very generation that the volume was closed with. The blocks of
    /// any other belong to nobody.
    pub(super) fn hint(&mut self, counts: &AnnalsCounts) -> Result<(), CheckError> {
        let is_of = |place: &HintPlace| place.generation == self.sb.generation;
        let Some(place) = counts.hint.filter(is_of).filter(|_| self.sb.state == VolumeState::Clean) else {
            return Ok(());
        };
        let (start, len) = (place.start, u64::from(place.blocks));
        let area = self.area(start, len).filter(|_| usize::from(place.blocks) <= HINT_BLOCKS_MOST);
        let Some((group, bit)) = area else {
            let expected = format!("at most {HINT_BLOCKS_MOST} blocks of one group's data area");
            self.wrong_hint(start, expected, format!("{len} blocks"));
            return Ok(());
        };
        let addr = MetaAddr::new(ZoneNo::primary(group), 0);
        if self.locate(addr).is_some() && !self.damaged_bitmaps.contains(&addr) {
            let block = self.read_again(addr, &Expect::volume(BlockKind::Bitmap))?;
            let is_used = |bit: &u32| block.as_ref().is_some_and(|block| BitmapRef::new(block).get(*bit));
            if let Some(used) = (bit..bit + u32::from(place.blocks)).find(is_used) {
                self.wrong_hint(self.geometry.block_of(group, used), "a free block", "one marked used");
                return Ok(());
            }
        }
        let mut bytes = Vec::with_capacity(usize::from(place.blocks) * BLOCK_SIZE);
        for block in (start.0..start.0 + len).map(BlockNo) {
            // That the device ends before the volume is reported elsewhere.
            let Some(block) = self.read(block)? else { return Ok(()) };
            bytes.extend_from_slice(&block[..]);
        }
        match SpanHint::decode(&bytes) {
            Ok(Some(hint)) => self.hint_says(&hint, counts, start),
            // It was withdrawn.
            Ok(None) => {}
            Err(c) => self.damaged_hint(&c, start),
        }
        Ok(())
    }

    /// Checks what a whole hint says.
    fn hint_says(&mut self, hint: &SpanHint, counts: &AnnalsCounts, start: BlockNo) {
        if hint.uuid != self.sb.uuid {
            return self.wrong_hint(start, "the uuid of the volume", "another one");
        }
        if (hint.generation, hint.mount_id) != (self.sb.generation, self.sb.mount_id) {
            // It is of a mount that did not come to its end, and no program believes it.
            return;
        }
        let (most, (data, nodes)) = (self.history.space.nodes, hint.all());
        if data > counts.references || nodes > most {
            let expected = format!("at most {} references and {most} nodes", counts.references);
            return self.wrong_hint(start, expected, format!("{data} and {nodes}"));
        }
        let last = self.sb.next_number.0.saturating_add(1);
        let spans = hint.sums.iter().flat_map(|sum| &sum.spans);
        if let Some(span) = spans.map(|span| span.to.0).find(|to| *to > last) {
            return self.wrong_hint(start, format!("numbers up to {last}"), span);
        }
        let limit = self.sb.next_incarnation;
        let incarnations = hint.sharing.iter().map(|(_, incarnation)| u64::from(incarnation.0));
        if let Some(incarnation) = incarnations.filter(|one| *one >= limit).max() {
            self.wrong_hint(start, format!("incarnations below {limit}"), incarnation);
        }
    }

    fn damaged_hint(&mut self, c: &Corruption, start: BlockNo) {
        self.wrong_hint(start, format!("{}: {}", c.field, c.expected), c.found.clone());
    }

    fn wrong_hint(&mut self, block: BlockNo, expected: impl ToString, found: impl ToString) {
        let finding = Finding::new(Problem::Hint, expected.to_string(), found.to_string());
        self.add(finding.at(self.sb.history_root).on(block));
    }
}
