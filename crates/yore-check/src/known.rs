//! What a check keeps of what it has read: zones, inodes, and the past.

use crate::deaths::Deaths;
use crate::spill::{Record, Room, Sorted};
use crate::versions::Versions;
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{
    Block, BlockCount, BlockNo, CountTableRef, EventNo, FileKind, HistorySpace, HistoryTree, Incarnation,
    Inode, InodeNo, MetaAddr, TableNo, ZoneHeader, ZoneNo, ZoneTableEntry,
};

/// Where a zone's header has a block: the physical block, and the checksum of the current copy.
#[derive(Clone, Copy)]
pub(crate) struct CurrentCopy {
    pub(crate) block: BlockNo,
    /// `None` for zone headers, which are compared with their table entries.
    pub(crate) check: Option<u32>,
}

impl CurrentCopy {
    /// The place of an index of a zone; `None` if nothing exists there, or no zone has such an index.
    pub(crate) fn of(header: &ZoneHeader, index: u16) -> Option<CurrentCopy> {
        // An address from the medium may have an index that no zone has.
        let slot = *header.map.get(usize::from(index))?;
        let check = Some(header.checks[usize::from(index)]);
        (slot != 0).then(|| CurrentCopy { block: BlockNo(header.start.0 + u64::from(slot)), check })
    }
}

/// A zone whose header could be read.
pub(crate) struct Zone {
    pub(crate) number: ZoneNo,
    pub(crate) entry: ZoneTableEntry,
    pub(crate) header: ZoneHeader,
    /// Bit i: index i has been reached from what it belongs to.
    pub(crate) reached: [u64; 8],
    /// Further zones: how many lists of their group's first zone name this one.
    pub(crate) listed: u32,
}

impl Zone {
    /// The indexes that exist, ascending.
    pub(crate) fn indexes(&self) -> Vec<u16> {
        (0..ZONE_INDEXES as u16).filter(|i| self.header.has(*i)).collect()
    }
}

/// What later steps must know of an inode in use, and what the check learns about its names.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) number: InodeNo,
    pub(crate) incarnation: Incarnation,
    pub(crate) kind: FileKind,
    pub(crate) links: u32,
    pub(crate) parent: InodeNo,
    pub(crate) parent_incarnation: Incarnation,
    pub(crate) parent_cookie: u64,
    /// Entries that name it.
    pub(crate) names: u64,
    /// The directory and cookie of the last of them.
    pub(crate) named_in: InodeNo,
    pub(crate) named_at: u64,
    /// Whether one of them is where the inode says that its name is.
    pub(crate) is_remembered: bool,
    /// Directories: entries that are directories.
    pub(crate) subdirectories: u64,
    /// Directories: entries.
    pub(crate) entries: u64,
    /// Whether it says that it has a policy of its own.
    pub(crate) has_policy: bool,
    /// Whether the tree of orphans names it.
    pub(crate) orphan: bool,
    /// Directories: whether it is known to be below the root, or known not to be.
    pub(crate) below_root: Option<bool>,
}

impl Known {
    pub(crate) fn new(number: InodeNo, inode: &Inode, kind: FileKind) -> Known {
        Known {
            number,
            incarnation: inode.incarnation,
            kind,
            links: inode.links,
            parent: inode.parent,
            parent_incarnation: inode.parent_incarnation,
            parent_cookie: inode.parent_cookie,
            names: 0,
            named_in: InodeNo::NONE,
            named_at: 0,
            is_remembered: false,
            subdirectories: 0,
            entries: 0,
            has_policy: inode.has_policy,
            orphan: false,
            below_root: None,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl Record for Known {
    const BYTES: usize = 78;

    fn key(&self) -> u64 {
        self.number.0
    }

    fn put(&self, to: &mut [u8]) {
        let longs = [
            self.number.0,
            self.parent.0,
            self.parent_cookie,
            self.names,
            self.named_in.0,
            self.named_at,
            self.subdirectories,
            self.entries,
        ];
        let words = [self.incarnation.0, self.links, self.parent_incarnation.0];
        let flags = [
            self.has_policy,
            self.orphan,
            self.below_root.is_some(),
            self.below_root.is_some_and(|is_below| is_below),
            self.is_remembered,
        ];
        let bits = flags.iter().enumerate().map(|(i, flag)| u8::from(*flag) << i).sum::<u8>();
        let bytes = longs.iter().flat_map(|long| long.to_le_bytes());
        let bytes = bytes.chain(words.iter().flat_map(|word| word.to_le_bytes()));
        let bytes = bytes.chain([self.kind as u8, bits]);
        to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    }

    fn get(from: &[u8]) -> Known {
        let long = |i: usize| u64::from_le_bytes(from[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
        let word = |i: usize| u32::from_le_bytes(from[64 + i * 4..68 + i * 4].try_into().expect("4 bytes"));
        let flag = |i: usize| from[77] >> i & 1 != 0;
        Known {
            number: InodeNo(long(0)),
            parent: InodeNo(long(1)),
            parent_cookie: long(2),
            names: long(3),
            named_in: InodeNo(long(4)),
            named_at: long(5),
            subdirectories: long(6),
            entries: long(7),
            incarnation: Incarnation(word(0)),
            links: word(1),
            parent_incarnation: Incarnation(word(2)),
            kind: FileKind::from_repr(from[76]).expect("the byte of a type"),
            has_policy: flag(0),
            orphan: flag(1),
            below_root: flag(2).then(|| flag(3)),
            is_remembered: flag(4),
        }
    }
}

/// What the walk over the inodes needs from the trees of the past.
pub(crate) struct History {
    pub(crate) versions: Versions,
    /// When past names ended last, of the old trees.
    pub(crate) deaths: Deaths,
    /// The same of the annals.
    pub(crate) annals_deaths: Deaths,
    /// Files whose history is being expunged, and up to which number.
    pub(crate) expunged: BTreeMap<(InodeNo, Incarnation), EventNo>,
    /// Whether a directory is being rolled back, so that it must exist.
    pub(crate) rolls_back: bool,
    /// The rows of policies, until they are compared with the inodes.
    pub(crate) policies: Policies,
    /// How many blocks only the past holds, as its roots say.
    pub(crate) space: HistorySpace,
    /// The least end of what is in the annals; 0: there are none.
    pub(crate) annals_from: EventNo,
    /// How many references to data blocks only the past has, as the roots of a volume with annals say.
    pub(crate) references: Option<u64>,
    /// How many were found.
    pub(crate) past_references: u64,
    /// Whether the cells that indexes should have are kept, for a repair.
    pub(crate) keeps_indexes: bool,
    /// The cells of each index, if all that it is an index of could be read.
    pub(crate) indexes: Vec<IndexCells>,
}

/// The rows of policies.
pub(crate) struct Policies {
    /// Under the number of each inode: its incarnation, and where the row stands.
    pub(crate) rows: Sorted,
    /// Whether these are all.
    pub(crate) complete: bool,
}

/// What a tree of the past should hold.
pub(crate) struct IndexCells {
    pub(crate) tree: HistoryTree,
    pub(crate) cells: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl History {
    /// With nothing in it, in so much room.
    pub(crate) fn new(room: Room, keeps_indexes: bool) -> History {
        History {
            versions: Versions::new(room),
            deaths: Deaths::new(room),
            annals_deaths: Deaths::new(room),
            expunged: BTreeMap::new(),
            rolls_back: false,
            policies: Policies { rows: Sorted::default(), complete: true },
            space: HistorySpace::default(),
            annals_from: EventNo(0),
            references: None,
            past_references: 0,
            keeps_indexes,
            indexes: Vec::new(),
        }
    }
}

/// A count table of a group, and what was found of each block that it describes: references, and those in
/// use.
pub(crate) struct CountTable {
    pub(crate) addr: MetaAddr,
    pub(crate) block: Arc<Block>,
    pub(crate) found: Vec<(u32, u32)>,
}

impl CountTable {
    pub(crate) fn count(&self, entry: usize) -> Option<BlockCount> {
        CountTableRef::new(&self.block).get(entry)
    }
}

/// All count tables.
pub(crate) type CountTables = BTreeMap<TableNo, CountTable>;
