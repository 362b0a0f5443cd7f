//! The geometry of a volume: where things are, all of it arithmetic on the volume's size.
//!
//! A volume is a row of allocation groups of 32,768 blocks (128 MiB). The first 1,024 blocks (4 MiB) of each
//! group are set aside for a zone and are not in the group's bitmap; the bitmap covers the other 31,744. In
//! group 0 that place holds root zone 0, whose blocks 0 and 1 are the superblock slots; group 0's own first
//! zone is the next 1,024 blocks, marked used in its bitmap. The last group may be short; its tail is marked
//! used.

pub use crate::units::ZONE_INDEXES;
use crate::{BlockNo, GroupNo, ZoneNo};

/// Blocks in an allocation group.
pub const GROUP_BLOCKS: u64 = 32_768;
/// Blocks in a zone.
pub const ZONE_BLOCKS: u64 = 1_024;
/// The first block of a zone that is a slot; 0 and 1 are superblock slots in root zone 0 and unused
/// elsewhere.
pub const FIRST_SLOT: u64 = 4;
/// Where in a zone its two header slots are.
pub const HEADER_SLOTS: [u64; 2] = [2, 3];
/// Where the superblock's slots are.
pub const SUPERBLOCKS: [BlockNo; 2] = [BlockNo(0), BlockNo(1)];
/// The smallest volume: 16 MiB.
pub const VOLUME_BLOCKS_MIN: u64 = 4_096;
/// The largest volume: 128 TiB.
pub const VOLUME_BLOCKS_MAX: u64 = GROUP_BLOCKS << 20;
/// Zones that one group can have beside its first.
pub const EXTRA_ZONES_PER_GROUP: usize = 31;
/// The largest file: 2^32 blocks (16 TiB) less one block, so that every end is a block number too.
pub const FILE_SIZE_MAX: u64 = (u32::MAX as u64) * 4096;

/// A volume's shape, derived from its length alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Length of the volume in blocks.
    pub blocks: u64,
}

impl Geometry {
    /// The geometry of a volume of `blocks` blocks. A last group too short to hold a zone and some data is
    /// left out.
    pub fn new(blocks: u64) -> Geometry {
        let tail = blocks % GROUP_BLOCKS;
        let usable = if blocks > GROUP_BLOCKS && tail < 2 * ZONE_BLOCKS { blocks - tail } else { blocks };
        Geometry { blocks: usable }
    }

    /// Number of allocation groups.
    pub fn groups(self) -> u32 {
        self.blocks.div_ceil(GROUP_BLOCKS) as u32
    }

    /// The first block of the group's data area, which is the first block its bitmap describes.
    pub fn data_start(self, group: GroupNo) -> BlockNo {
        BlockNo(u64::from(group.0) * GROUP_BLOCKS + ZONE_BLOCKS)
    }

    /// Blocks in the group's data area: 31,744, fewer in the last group.
    pub fn data_blocks(self, group: GroupNo) -> u64 {
        let start = self.data_start(group).0;
        let end = (u64::from(group.0) + 1) * GROUP_BLOCKS;
        end.min(self.blocks).saturating_sub(start)
    }

    /// Where the group's first zone is.
    pub fn primary_zone_start(self, group: GroupNo) -> BlockNo {
        if group.0 == 0 {
            BlockNo(ZONE_BLOCKS)
        } else {
            BlockNo(u64::from(group.0) * GROUP_BLOCKS)
        }
    }

    /// The group that a block lies in.
    pub fn group_of(self, block: BlockNo) -> GroupNo {
        GroupNo((block.0 / GROUP_BLOCKS) as u32)
    }

    /// The bit that describes `block` in its group's bitmap, or `None` for the group's first 1,024 blocks and
    /// whatever is outside the volume.
    pub fn bit_of(self, block: BlockNo) -> Option<(GroupNo, u32)> {
        let within = block.0 % GROUP_BLOCKS;
        (block.0 < self.blocks && within >= ZONE_BLOCKS)
            .then(|| (self.group_of(block), (within - ZONE_BLOCKS) as u32))
    }

    /// The block that bit `bit` of the group's bitmap describes.
    pub fn block_of(self, group: GroupNo, bit: u32) -> BlockNo {
        BlockNo(self.data_start(group).0 + u64::from(bit))
    }

    /// Whether a zone may start at `start`: aligned, whole within the volume, not root zone 0.
    pub fn is_zone_start(self, start: BlockNo) -> bool {
        start.0.is_multiple_of(ZONE_BLOCKS)
            && start.0 >= ZONE_BLOCKS
            && start.0.checked_add(ZONE_BLOCKS).is_some_and(|end| end <= self.blocks)
    }

    /// Which table block, and which entry of it, describes a zone.
    pub fn table_position(self, zone: ZoneNo) -> (u32, usize) {
        (zone.0 / ZONE_TABLE_ENTRIES as u32, (zone.0 as usize) % ZONE_TABLE_ENTRIES)
    }

    /// Which root zone, and which index of it, holds table block `table`.
    pub fn table_home(self, table: u32) -> (u32, u16) {
        (table / ZONE_INDEXES, (table % ZONE_INDEXES) as u16)
    }
}

/// Entries in a zone table block.
pub const ZONE_TABLE_ENTRIES: usize = 144;
