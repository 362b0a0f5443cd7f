//! Blocks that a generation has not changed, and that go to other slots with those that it has.
//!
//! A zone of which each generation writes a good part aside would come to lie all over its slots: what is
//! written and what it replaces need one slot each, and whoever reads the zone reads both. So blocks that lie
//! apart go along ([`Slots::place`]). Of a zone that is written as a whole this makes one half of its slots,
//! and then the other.
//!
//! **N1** Hardly anything is read for it. A block goes along if nobody has changed it since the last complete
//! generation: then its bytes in memory are those on the medium. What the running generation has changed or
//! freed already stays where it is, for the next generation writes it anyway. Blocks that are not in memory
//! are read if they are at most one in [`MISSING`]. If there are more, if one cannot be read, or if too many
//! stay, none goes along.
//!
//! **N2** The old copy is untouched. The block goes to a slot that the last complete generation does not use,
//! as changed blocks do, so a crash finds either copy (R2); the copy is sealed anew, and the header has its
//! checksum. Its frame stays in memory until the generation is complete, and nobody looks for it on the
//! medium before.
//!
//! **N3** Engines that write in place leave blocks where they are.
//!
//! **N4** *A zone that is laid together.* While nobody asks for anything, zones whose blocks lie apart are
//! written although nothing in them has changed (`meta/together.rs`). What lies beyond as many slots as the
//! zone has blocks goes along into the free ones before ([`Slots::together`]): in one generation, whatever
//! the zone looks like, for there are as many of the ones as of the others. N1 and N2 hold as they are, but
//! for reading: all blocks that go may be read, and the caller has read them before and holds them, so the
//! writer finds them in memory. If one cannot be read the zone is written where it is. The generation says
//! the same as the one before it, by another map; so a crash finds the old map with the old copies, which no
//! write has touched (R2), or the new map with the new ones, which were flushed before the superblock that
//! leads to them (R1). What a call changes meanwhile stays, and the zone may still lie apart.

use crate::blocks::Blocks;
use crate::engine::Place;
use crate::rooms::Rooms;
use crate::zones::slots::Slots;
use crate::zones::zone::{Copies, Frame, FrozenZone, Zone};
use std::sync::Arc;
use yore_format::{Block, MetaAddr};

/// One block in so many may have to be read.
const MISSING: usize = 8;

/// One block in so many may stay.
const STAY: usize = 8;

/// A block that goes along, and its bytes.
pub(super) type Along = (Frame, Arc<Block>);

/// Whether blocks may go along with others that go there.
pub(super) fn may_move(rooms: &Rooms, place: Place) -> bool {
    place == Place::Aside && !rooms.blocks.base.medium.strategy().in_place()
}

/// The slots of the blocks at the indexes `written`, which are written anyway, followed by those of the
/// others that go along; and these. `copies` is where blocks are that exist, and `used` are the slots that
/// the last complete generation uses.
pub(super) fn place(
    rooms: &Rooms,
    z: &FrozenZone,
    used: &Slots,
    written: &[u16],
    copies: &Copies,
) -> (Vec<u16>, Vec<Along>) {
    let (blocks, zone) = (&rooms.blocks, &z.zone);
    let mut others = copies.map.clone();
    written.iter().for_each(|index| others[usize::from(*index)] = 0);
    let lie = Slots::of(&others[..]);
    let placement = match z.together {
        true => used.together(written.len(), &lie),
        false => used.place(written.len(), &lie),
    };
    let goes = |slot: u16| slot != 0 && !placement.among.contains(&u64::from(slot));
    let indexes = (0..others.len() as u16).filter(|index| goes(others[usize::from(*index)]));
    let along = match z.together {
        true => all_unchanged(blocks, zone, indexes),
        false => unchanged(blocks, zone, indexes),
    };
    match along {
        Some(along) => (placement.slots, along),
        None => (used.free_for(written.len()), Vec::new()),
    }
}

/// Those of these blocks that nobody has changed; `None` if one cannot be read.
fn all_unchanged(blocks: &Blocks, zone: &Zone, indexes: impl Iterator<Item = u16>) -> Option<Vec<Along>> {
    let mut along = Vec::new();
    for index in indexes {
        let addr = MetaAddr::new(zone.no, index);
        let frame = match blocks.cache.peek(addr) {
            Some(frame) => frame,
            // It was freed since.
            None if !zone.has(index) => continue,
            None => blocks.read_any(addr).ok()?,
        };
        if let Some(block) = frame.unchanged() {
            along.push((frame, block));
        }
    }
    Some(along)
}

/// Those of these blocks that nobody has changed; `None` if it is not most of them, or if too many are not in
/// memory.
fn unchanged(blocks: &Blocks, zone: &Zone, indexes: impl Iterator<Item = u16>) -> Option<Vec<Along>> {
    let (mut along, mut missing, mut stay) = (Vec::new(), Vec::new(), 0);
    let mut take = |frame: Frame, along: &mut Vec<Along>| match frame.unchanged() {
        Some(block) => along.push((frame, block)),
        None => stay += 1,
    };
    for index in indexes {
        let addr = MetaAddr::new(zone.no, index);
        match blocks.cache.peek(addr) {
            Some(frame) => take(frame, &mut along),
            None => missing.push(addr),
        }
    }
    // What was freed since is not in memory either.
    let before = missing.len();
    missing.retain(|addr| zone.has(addr.index()));
    let freed = before - missing.len();
    if missing.len() * MISSING > along.len() {
        return None;
    }
    blocks.read_together(missing.iter().copied());
    for addr in missing {
        // A damaged block does not fail the generation; its next reader reports it.
        take(blocks.read_any(addr).ok()?, &mut along);
    }
    ((stay + freed) * STAY <= along.len()).then_some(along)
}
