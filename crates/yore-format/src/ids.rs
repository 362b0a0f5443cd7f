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
/// Keys of the annals have 6 bytes for a number of an event, so volumes with annals give no number from this
/// one on.
pub const EVENT_LIMIT: u64 = 1 << 48;
/// Keys of the annals have 5 bytes for a number of an inode. Root zones name fewer than 2^22 zones, so the
/// number of no inode comes near it.
pub const INODE_LIMIT: u64 = 1 << 40;

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
    /// Owner of the tree of findings.
    pub const FINDINGS: InodeNo = InodeNo(4);
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

/// Which table of a group a table is: each describes some blocks of the group's data area, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableNo {
    group: GroupNo,
    number: u8,
}

impl TableNo {
    pub(crate) const NUMBER_BITS: u32 = 5;
    /// Set in the owner of a table, so that no owner is taken for an inode's number.
    const OWNER_FLAG: u64 = 1 << 63;
    /// Bits of an owner below the group. One more than numbers need.
    const OWNER_BITS: u32 = 6;

    /// Table `number` of a group.
    ///
    /// # Panics
    /// If no group has so many.
    pub fn new(group: GroupNo, number: u8) -> TableNo {
        assert!(number < 1 << Self::NUMBER_BITS, "table {number} of a group");
        TableNo { group, number }
    }

    /// The group.
    pub fn group(self) -> GroupNo {
        self.group
    }

    /// Its number among the tables of its kind.
    pub fn number(self) -> u8 {
        self.number
    }

    /// The owner in its block header.
    pub fn owner(self) -> InodeNo {
        InodeNo(Self::OWNER_FLAG | u64::from(self.group.0) << Self::OWNER_BITS | u64::from(self.number))
    }

    /// The table with this owner, if it is one of a table.
    pub fn from_owner(owner: InodeNo) -> Option<TableNo> {
        let rest = owner.0.checked_sub(Self::OWNER_FLAG)?;
        let number = rest & ((1 << Self::OWNER_BITS) - 1);
        let group = u32::try_from(rest >> Self::OWNER_BITS).ok()?;
        (number < 1 << Self::NUMBER_BITS).then_some(TableNo { group: GroupNo(group), number: number as u8 })
    }
}
