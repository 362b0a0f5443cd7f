//! Newtypes for everything that is counted or addressed, so that one cannot be taken for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number!(
    /// A physical block's place on the device, in units of [`crate::BLOCK_SIZE`]. 0 is the first superblock
    /// slot and so never data: it stands for "none".
    BlockNo,
    u64
);
number!(
    /// An allocation group: 128 MiB of blocks with one bitmap.
    GroupNo,
    u32
);
number!(
    /// One crash-consistent commit of all metadata. Never reused on a volume, also across crashes.
    Generation,
    u64
);
number!(
    /// Tells reuses of one inode number apart; from one counter for the volume. 0 is no incarnation.
    Incarnation,
    u32
);
number!(
    /// A place in the global order of versioning events (VERSIONING: "number").
    EventNo,
    u64
);
number!(
    /// A zone's number. Even: the first zone of group n/2. Odd: a further zone, wherever its table entry
    /// says. With [`ZoneNo::ROOT_FLAG`]: a root zone, which holds nothing but zone table blocks.
    ZoneNo,
    u32
);

impl ZoneNo {
    /// Set in the numbers of root zones.
    pub const ROOT_FLAG: u32 = 1 << 30;

    /// The first zone of a group.
    pub fn primary(group: GroupNo) -> ZoneNo {
        ZoneNo(group.0 * 2)
    }

    /// The n-th root zone.
    pub fn root(n: u32) -> ZoneNo {
        ZoneNo(n | Self::ROOT_FLAG)
    }

    /// Whether this is a root zone.
    pub fn is_root(self) -> bool {
        self.0 & Self::ROOT_FLAG != 0
    }

    /// Whether this is the first zone of a group, whose index 0 is the group's bitmap.
    pub fn is_primary(self) -> bool {
        !self.is_root() && self.0 & 1 == 0
    }
}

/// The logical name of a metadata block: zone and index. It never changes while the block lives, whichever
/// slot holds it. Index 0 of zone 0 is a bitmap that nothing points to, so 0 stands for "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MetaAddr(pub u64);

impl MetaAddr {
    /// No block.
    pub const NONE: MetaAddr = MetaAddr(0);
    const INDEX_BITS: u32 = 9;

    /// The block with `index` in `zone`.
    pub fn new(zone: ZoneNo, index: u16) -> MetaAddr {
        assert!(index < 1 << Self::INDEX_BITS);
        MetaAddr(u64::from(zone.0) << Self::INDEX_BITS | u64::from(index))
    }

    /// The zone.
    pub fn zone(self) -> ZoneNo {
        ZoneNo((self.0 >> Self::INDEX_BITS) as u32)
    }

    /// The index within the zone.
    pub fn index(self) -> u16 {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as u16
    }

    /// Whether this names no block.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the bits can be an address at all: zone number within 31 bits and an index that a zone has.
    pub fn is_plausible(self) -> bool {
        self.0 >> Self::INDEX_BITS <= u64::from(u32::MAX >> 1)
            && u32::from(self.index()) < crate::units::ZONE_INDEXES
    }
}

impl fmt::Display for MetaAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.zone().is_root() {
            write!(f, "root{}:{}", self.zone().0 & !ZoneNo::ROOT_FLAG, self.index())
        } else {
            write!(f, "{}:{}", self.zone().0, self.index())
        }
    }
}

impl fmt::Debug for MetaAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetaAddr({self})")
    }
}

/// An inode's number, which is its address: (zone, index, slot in block). 1 to 15 are owners that are not
/// inodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct InodeNo(pub u64);

impl InodeNo {
    /// Nobody: owner of bitmaps, zone headers and table blocks, which belong to the volume.
    pub const NONE: InodeNo = InodeNo(0);
    /// Owner of the tree of orphans.
    pub const ORPHANS: InodeNo = InodeNo(1);
    /// Owner of the table of events.
    pub const EVENTS: InodeNo = InodeNo(2);
    /// Owner of the history trees.
    pub const HISTORY: InodeNo = InodeNo(3);
    /// The root directory, the first inode of the first inode block.
    pub const ROOT: InodeNo = InodeNo(16);

    /// The inode in `slot` of the inode block at `addr`.
    pub fn new(addr: MetaAddr, slot: u8) -> InodeNo {
        assert!(slot < crate::INODES_PER_BLOCK as u8);
        InodeNo(addr.0 << 4 | u64::from(slot))
    }

    /// The inode block.
    pub fn addr(self) -> MetaAddr {
        MetaAddr(self.0 >> 4)
    }

    /// The slot in the block.
    pub fn slot(self) -> usize {
        (self.0 & 15) as usize
    }

    /// Whether this can be a file's number (not one of the reserved owners, and a plausible address).
    pub fn is_file(self) -> bool {
        self.0 >= 16 && self.addr().is_plausible() && !self.addr().zone().is_root()
    }
}

impl fmt::Display for InodeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for InodeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InodeNo({})", self.0)
    }
}
