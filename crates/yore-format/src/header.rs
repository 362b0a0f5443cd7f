//! The header at the start of every metadata block. It makes the block self-identifying (rext3's
//! back-pointers and more): a block that was read from the wrong place, or belongs to another volume or to
//! another owner than the reader expects, is an error, not data.

use crate::{
    checksum_except, Block, BlockNo, Corruption, EventNo, Features, Generation, Incarnation, InodeNo,
    MetaAddr, TableNo,
};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x4552_4f59; // "YORE"
const CRC_OFFSET: usize = 48;
/// Bytes of a key of the annals: end 6, sequence 4.
pub(crate) const ANNALS_KEY_BYTES: usize = 10;
/// Bytes of a key of the index by inode: inode 5, end 6.
pub(crate) const INODE_INDEX_KEY_BYTES: usize = 11;
/// Bytes of a key of the index by name: directory 5, cookie 8, death 6.
pub(crate) const NAME_INDEX_KEY_BYTES: usize = 19;
/// Bytes of a key of the span table: class 5, first 6, last 6.
pub(crate) const SPAN_KEY_BYTES: usize = 17;

/// What a metadata block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr)]
#[repr(u8)]
pub enum BlockKind {
    /// A zone's header.
    ZoneHeader = 1,
    /// Part of the zone table.
    ZoneTable = 2,
    /// A group's bitmap.
    Bitmap = 3,
    /// Sixteen inodes.
    Inodes = 4,
    /// A node of a directory's tree of entries.
    Directory = 5,
    /// A node of a file's tree of extents.
    Extents = 6,
    /// A node of an inode's tree of extended attributes.
    Xattrs = 7,
    /// A node of a long symbolic link's tree of chunks.
    Symlink = 8,
    /// A node of the volume's tree of orphans.
    Orphans = 9,
    /// A node of the table of events.
    Events = 10,
    /// A node of the index of events.
    EventIndex = 11,
    /// A node of a tree of versions.
    Versions = 12,
    /// A node of a tree of past names.
    Names = 13,
    /// A node of a tree of changes.
    Changes = 14,
    /// A node of the tree of policies.
    Policies = 15,
    /// The roots of the trees of the past.
    HistoryRoots = 16,
    /// A node of the tree of operations.
    Operations = 17,
    /// A node of the annals: rows of what ended.
    Annals = 18,
    /// A node of the index of the annals by inode.
    InodeIndex = 19,
    /// A node of the index of the annals by directory and name.
    NameIndex = 20,
    /// A node of the span table.
    Spans = 21,
    /// A node of the tree of findings.
    Findings = 22,
    /// Counts of the references to blocks of a group.
    CountTable = 23,
    /// Checksums of the data in blocks of a group.
    ChecksumTable = 24,
}

impl BlockKind {
    /// Whether blocks of this kind are nodes of B+trees.
    pub fn is_tree(self) -> bool {
        let kind = self as u8;
        (BlockKind::Directory as u8..BlockKind::HistoryRoots as u8).contains(&kind)
            || (BlockKind::Operations as u8..=BlockKind::Findings as u8).contains(&kind)
    }

    /// Whether blocks of this kind are tables of a group ([`crate::TableNo`]).
    pub fn is_table(self) -> bool {
        matches!(self, BlockKind::CountTable | BlockKind::ChecksumTable)
    }

    /// The feature without which no volume has such blocks; none for those that any volume may have.
    pub fn feature(self) -> Features {
        use BlockKind::*;
        match self {
            Annals | InodeIndex | NameIndex | Spans => Features::ANNALS,
            Findings => Features::FINDINGS,
            CountTable => Features::TABLES,
            ChecksumTable => Features::CHECKSUMS,
            _ => Features::empty(),
        }
    }

    /// Bytes of the keys in nodes of this kind, where the kind alone says it.
    pub fn key_width(self) -> Option<usize> {
        use BlockKind::*;
        match self {
            Annals => Some(ANNALS_KEY_BYTES),
            InodeIndex => Some(INODE_INDEX_KEY_BYTES),
            NameIndex => Some(NAME_INDEX_KEY_BYTES),
            Spans => Some(SPAN_KEY_BYTES),
            Findings => Some(8),
            _ => None,
        }
    }

    /// The name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::ZoneHeader => "zone header",
            BlockKind::ZoneTable => "zone table block",
            BlockKind::Bitmap => "bitmap",
            BlockKind::Inodes => "inode block",
            BlockKind::Directory => "directory node",
            BlockKind::Extents => "extent node",
            BlockKind::Xattrs => "xattr node",
            BlockKind::Symlink => "symlink node",
            BlockKind::Orphans => "orphan node",
            BlockKind::Events => "events node",
            BlockKind::EventIndex => "event index node",
            BlockKind::Versions => "version node",
            BlockKind::Names => "past name node",
            BlockKind::Changes => "change node",
            BlockKind::Policies => "policy node",
            BlockKind::HistoryRoots => "roots of the history",
            BlockKind::Operations => "operation node",
            BlockKind::Annals => "annals node",
            BlockKind::InodeIndex => "inode index node",
            BlockKind::NameIndex => "name index node",
            BlockKind::Spans => "span node",
            BlockKind::Findings => "findings node",
            BlockKind::CountTable => "count table",
            BlockKind::ChecksumTable => "checksum table",
        }
    }
}

/// The first 64 bytes of every metadata block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// "YORE".
    pub magic: U32,
    /// A [`BlockKind`].
    pub kind: u8,
    /// Level in a tree, 0 for leaves and for everything that is not a tree node.
    pub level: u8,
    /// Zero.
    pub reserved0: [u8; 2],
    /// The block's own [`MetaAddr`]. A zone header has index 511.
    pub addr: U64,
    /// The inode that the block belongs to; 0 for the volume. Of a table of a group, which one it is
    /// ([`TableNo::owner`]).
    pub owner: U64,
    /// The owner's incarnation; 0 where the owner is no inode, and in inode blocks.
    pub owner_incarnation: U32,
    /// The volume's identity: the first four bytes of its uuid.
    pub volume: U32,
    /// The number at which a tree node was born (VERSIONING V8); 0 elsewhere.
    pub birth: U64,
    /// The generation that wrote this copy.
    pub generation: U64,
    /// crc32c of the block with this field as zero.
    pub crc: U32,
    /// Zero.
    pub reserved1: [u8; 12],
}

const _: () = assert!(size_of::<BlockHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(BlockHeader, crc) == CRC_OFFSET);

impl BlockHeader {
    /// The header of `block`, unverified.
    pub fn of(block: &Block) -> &BlockHeader {
        // A prefix of an array of fixed size: cannot fail for any content.
        BlockHeader::ref_from_prefix(&block[..]).map(|(h, _)| h).expect("a block is longer than its header")
    }

    /// The header of `block`, to change.
    pub fn of_mut(block: &mut Block) -> &mut BlockHeader {
        BlockHeader::mut_from_prefix(&mut block[..])
            .map(|(h, _)| h)
            .expect("a block is longer than its header")
    }

    /// The inode that the block belongs to. `None` for blocks of the volume and of groups.
    pub fn owner_inode(&self) -> Option<InodeNo> {
        let owner = InodeNo(self.owner.get());
        (owner != InodeNo::NONE && TableNo::from_owner(owner).is_none()).then_some(owner)
    }

    /// Writes a new header over the start of `block`.
    #[allow(clippy::too_many_arguments)]
    pub fn init(
        block: &mut Block,
        kind: BlockKind,
        level: u8,
        addr: MetaAddr,
        owner: InodeNo,
        owner_incarnation: Incarnation,
        volume: u32,
        birth: EventNo,
    ) {
        *Self::of_mut(block) = BlockHeader {
            magic: U32::new(MAGIC),
            kind: kind as u8,
            level,
            reserved0: [0; 2],
            addr: U64::new(addr.0),
            owner: U64::new(owner.0),
            owner_incarnation: U32::new(owner_incarnation.0),
            volume: U32::new(volume),
            birth: U64::new(birth.0),
            generation: U64::new(0),
            crc: U32::new(0),
            reserved1: [0; 12],
        };
    }
}

/// The layout of the header.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Block header", BlockHeader: magic, kind, level, reserved0, addr, owner, owner_incarnation,
        volume, birth, generation, crc, reserved1)
}

/// What the reader of a block knows about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    /// What it must be.
    pub kind: BlockKind,
    /// Whom it must belong to.
    pub owner: InodeNo,
    /// The owner's incarnation.
    pub incarnation: Incarnation,
    /// The level, where the reader knows it (a tree's root may have any).
    pub level: Option<u8>,
}

impl Expect {
    /// A block that belongs to the volume and has no level.
    pub fn volume(kind: BlockKind) -> Expect {
        Expect { kind, owner: InodeNo::NONE, incarnation: Incarnation(0), level: Some(0) }
    }

    /// Checks kind, owner and level of a block already known to be whole.
    ///
    /// # Errors
    /// [`Corruption`] naming the field that differs.
    pub fn check(&self, block: &Block) -> Result<(), Box<Corruption>> {
        let h = BlockHeader::of(block);
        let addr = MetaAddr(h.addr.get());
        let fail = |field, expected: String, found: String| {
            Err(Corruption::new(self.kind.name(), field, expected, found).at(addr).of(self.owner))
        };
        if h.kind != self.kind as u8 {
            let found = BlockKind::from_repr(h.kind).map_or("unknown kind", BlockKind::name);
            return fail("kind", self.kind.name().into(), format!("{found} ({})", h.kind));
        }
        if h.owner.get() != self.owner.0 {
            return fail("owner", self.owner.to_string(), h.owner.to_string());
        }
        if h.owner_incarnation.get() != self.incarnation.0 {
            return fail(
                "incarnation of its owner",
                self.incarnation.to_string(),
                h.owner_incarnation.to_string(),
            );
        }
        match self.level {
            Some(level) if level != h.level => fail("level", level.to_string(), h.level.to_string()),
            _ => Ok(()),
        }
    }
}

/// Stamps the generation and the checksum into a copy about to be written. Everything else must be in place.
pub fn seal(block: &mut Block, generation: Generation) -> u32 {
    BlockHeader::of_mut(block).generation = U64::new(generation.0);
    let crc = checksum_except(&block[..], CRC_OFFSET);
    BlockHeader::of_mut(block).crc = U32::new(crc);
    crc
}

/// Whether two blocks are the same but for what [`seal`] stamps.
pub fn is_same_but_for_seal(one: &Block, other: &Block) -> bool {
    const SEAL: std::ops::Range<usize> = std::mem::offset_of!(BlockHeader, generation)..CRC_OFFSET + 4;
    one[..SEAL.start] == other[..SEAL.start] && one[SEAL.end..] == other[SEAL.end..]
}

/// Checks only the magic and the checksum.
///
/// # Errors
/// [`Corruption`] with both checksums.
pub fn verify_checksum(block: &Block) -> Result<(), Box<Corruption>> {
    let h = BlockHeader::of(block);
    if h.magic.get() != MAGIC {
        return Err(Corruption::new(
            "metadata block",
            "magic",
            format!("{MAGIC:#010x}"),
            format!("{:#010x}", h.magic.get()),
        ));
    }
    let crc = checksum_except(&block[..], CRC_OFFSET);
    if crc != h.crc.get() {
        let name = BlockKind::from_repr(h.kind).map_or("metadata block", BlockKind::name);
        return Err(Corruption::new(
            name,
            "checksum",
            format!("{:#010x} (stored)", h.crc.get()),
            format!("{crc:#010x} (computed)"),
        ));
    }
    Ok(())
}

/// Checks that a block, verified already, is the version that its zone's map names: `check` is what the
/// zone's header has for it. A sound older copy of the same block, left in the slot by a write that was lost,
/// is told by nothing else.
///
/// # Errors
/// [`Corruption`] with both checksums and the generation of the copy, address, block and owner filled in.
pub fn verify_version(
    block: &Block,
    check: u32,
    addr: MetaAddr,
    block_no: BlockNo,
) -> Result<(), Box<Corruption>> {
    let h = BlockHeader::of(block);
    let stored = h.crc.get();
    if stored == check {
        return Ok(());
    }
    let found = format!("{stored:#010x}, a copy of generation {}", h.generation);
    let c = Corruption::new("metadata block", "checksum in the zone map", format!("{check:#010x}"), found);
    let c = c.at(addr).on(block_no);
    Err(match h.owner_inode() {
        Some(owner) => c.of(owner),
        None => c,
    })
}
