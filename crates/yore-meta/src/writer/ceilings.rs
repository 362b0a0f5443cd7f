//! What superblocks say ahead of time under an engine that orders changes, so that not every pass needs one.
//!
//! Such an engine finds its blocks without a superblock: headers of zones and the blocks themselves say what
//! counts. A mount needs three numbers from it, and for each of them it is enough to know a bound. So a
//! superblock of a volume in use does not say what is, but how far passes may go without another one:
//!
//! - *Its generation* is the last one of which blocks may be on the medium. A mount begins behind it (R5).
//! - *The next incarnation* is greater than all that are given until then.
//! - *Free blocks* are no more than there are until then: nobody is promised a block that is not free.
//!
//! All other numbers in it either change only in generations that go aside, and close, or are hints, which a
//! recount after a crash sets right ([`covers`] has the list). So a pass that stays within the bounds, and
//! that somebody waits for, writes no superblock. One that the background begins writes one, which keeps the
//! hints fresh.
//!
//! When the volume is closed its superblock says what is.

use yore_format::{Generation, Superblock};

/// How many generations a superblock is ahead.
const GENERATIONS: u64 = 1 << 10;
/// How many incarnations.
const INCARNATIONS: u64 = 1 << 12;
/// How many free blocks it holds back at most: 16 MiB.
const BLOCKS_MOST: u64 = 1 << 12;
/// What part of the free blocks it holds back at most.
const BLOCKS_SHARE: u64 = 64;

/// The number of a superblock that is written for `generation` behind `last`, and says what is.
pub(super) fn number(last: &Superblock, generation: Generation) -> Generation {
    generation.max(Generation(last.generation.0 + 1))
}

/// Makes a superblock that says what is in `generation` say how far passes may go. Returns how many free
/// blocks it does not count that there are.
pub(super) fn raise(superblock: &mut Superblock, generation: Generation) -> u64 {
    superblock.generation = superblock.generation.max(Generation(generation.0 + GENERATIONS));
    superblock.next_incarnation += INCARNATIONS;
    let held_back = (superblock.free_blocks / BLOCKS_SHARE).min(BLOCKS_MOST);
    superblock.free_blocks -= held_back;
    held_back
}

/// Whether the superblock that was written last holds for `generation`, too, which would have `next`. Of its
/// free blocks a crash may leave `freed` marked as used.
pub(super) fn covers(last: &Superblock, next: &Superblock, generation: Generation, freed: u64) -> bool {
    let as_last = Superblock {
        generation: last.generation,
        next_incarnation: last.next_incarnation,
        free_blocks: last.free_blocks,
        inodes: last.inodes,
        metadata_blocks: last.metadata_blocks,
        written_seconds: last.written_seconds,
        step: last.step,
        ..next.clone()
    };
    generation <= last.generation
        && next.next_incarnation <= last.next_incarnation
        && last.free_blocks <= next.free_blocks.saturating_sub(freed)
        && as_last == *last
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_device::MemoryDevice;
    use yore_format::{Engine, Timestamp};

    fn made() -> Superblock {
        let options = crate::MkfsOptions {
            uuid: [7; 16],
            hash_seed: [9; 16],
            label: String::new(),
            engine: Engine::SoftUpdates,
            owner: (0, 0),
            permissions: 0o755,
            now: Timestamp::default(),
            log_blocks: 0,
            log_device: None,
            data_checksums: false,
            force: false,
        };
        crate::mkfs(&MemoryDevice::new(16 << 20), &options).unwrap()
    }

    /// A superblock covers what stays within its bounds, whatever the hints say, and nothing that changes
    /// another number.
    #[test]
    fn a_superblock_covers_what_stays_within_its_bounds() {
        let is =
            Superblock { generation: Generation(10), next_incarnation: 100, free_blocks: 6400, ..made() };
        let mut last = is.clone();
        assert_eq!(raise(&mut last, Generation(10)), 100);
        assert_eq!(
            (last.generation, last.next_incarnation, last.free_blocks),
            (Generation(1034), 4196, 6300)
        );
        assert_eq!(number(&last, Generation(11)), Generation(1035));
        let next = Superblock { inodes: is.inodes + 7, written_seconds: 5, ..is.clone() };
        let is_covered =
            |next: &Superblock, generation: u64, freed| covers(&last, next, Generation(generation), freed);
        assert!(is_covered(&next, 11, 0) && is_covered(&next, 1034, 100));
        assert!(!is_covered(&next, 1035, 0), "a generation beyond it");
        assert!(!is_covered(&next, 11, 101), "fewer free blocks");
        assert!(!is_covered(&Superblock { next_incarnation: 4197, ..next.clone() }, 11, 0));
        assert!(!is_covered(&Superblock { mount_id: is.mount_id + 1, ..next }, 11, 0));
    }
}
