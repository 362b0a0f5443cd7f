//! Inodes: 252 bytes each, sixteen to a block.

use crate::header::HEADER_BYTES;
use crate::{Block, Corruption, EventNo, Incarnation, InodeNo, MetaAddr, INODES_PER_BLOCK};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an inode.
pub const INODE_BYTES: usize = 252;
/// Bytes of content that live in the inode.
pub const INLINE_BYTES: usize = 108;
/// Bytes of an extent in an inode: its key in 4, then its value.
pub const EXTENT_INLINE_BYTES: usize = 24;

const _: () = assert!(HEADER_BYTES + INODES_PER_BLOCK * INODE_BYTES == crate::BLOCK_SIZE);
const _: () = assert!(size_of::<RawInode>() == INODE_BYTES);

/// A point in time as kept in inodes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "(i64, u32)")]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nanos: u32,
}

/// What comes from elsewhere has no more nanoseconds than a second has.
impl TryFrom<(i64, u32)> for Timestamp {
    type Error = &'static str;

    fn try_from((seconds, nanos): (i64, u32)) -> Result<Timestamp, &'static str> {
        match nanos < 1_000_000_000 {
            true => Ok(Timestamp { seconds, nanos }),
            false => Err("a time with more nanoseconds than a second has"),
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTime {
    seconds: I64,
    nanos: U32,
}

impl From<RawTime> for Timestamp {
    fn from(t: RawTime) -> Timestamp {
        Timestamp { seconds: t.seconds.get(), nanos: t.nanos.get() }
    }
}

impl From<Timestamp> for RawTime {
    fn from(t: Timestamp) -> RawTime {
        RawTime { seconds: I64::new(t.seconds), nanos: U32::new(t.nanos) }
    }
}

/// The inode as it lies on the medium. FORMAT.md "Inode".
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInode {
    mode: U32,
    links: U32,
    uid: U32,
    gid: U32,
    size: U64,
    blocks: U64,
    incarnation: U32,
    flags: U32,
    atime: RawTime,
    mtime: RawTime,
    ctime: RawTime,
    btime: RawTime,
    parent: U64,
    parent_incarnation: U32,
    parent_cookie: U64,
    own_event: U64,
    born: U64,
    policy: U32,
    rdev: U32,
    xattr_root: U64,
    content_kind: u8,
    content_count: u8,
    content_level: u8,
    reserved: u8,
    content: [u8; INLINE_BYTES],
}

/// The layout of an inode.
pub(crate) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Inode", RawInode: mode, links, uid, gid, size, blocks, incarnation, flags, atime, mtime, ctime, btime, parent, parent_incarnation, parent_cookie, own_event, born, policy, rdev, xattr_root, content_kind, content_count, content_level, reserved, content)
}

/// The layout of a point in time.
pub(crate) fn time_layout() -> crate::StructLayout {
    crate::tables::layout!("Timestamp", RawTime: seconds, nanos)
}

/// What an inode's content area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContentKind {
    /// Nothing: an empty file or directory, or a file without content.
    Empty = 0,
    /// The content itself: a small file's bytes, a short symbolic link, a small directory's entries.
    Inline = 1,
    /// Up to four extents (24 bytes each, with their keys).
    Extents = 2,
    /// The address of a tree's root: of extents, of entries, or of a long symbolic link's chunks.
    Tree = 3,
}

bitflags::bitflags! {
    /// What is to be known about an inode without reading further.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct InodeFlags: u32 {
        /// It has a POSIX access ACL beyond its mode.
        const ACCESS_ACL = 1;
        /// It has a POSIX default ACL (directories).
        const DEFAULT_ACL = 2;
        /// It has `security.capability`.
        const CAPABILITY = 4;
        /// Nothing of it changes (`chattr +i`). Like those below only with
        /// [`crate::WriteFeatures::INODE_FLAGS`], and only of files and directories.
        const IMMUTABLE = 8;
        /// It can only be appended to; a directory only gets names (`chattr +a`).
        const APPEND_ONLY = 16;
        /// Reading it does not change its time of access (`chattr +A`).
        const NO_ACCESS_TIMES = 32;
        /// Backups are to leave it out (`chattr +d`).
        const NO_DUMP = 64;
        /// Those that people choose; the others say what is among its extended attributes.
        const CHOSEN = 8 | 16 | 32 | 64;
        /// Those that protect it.
        const PROTECTED = 8 | 16;
    }
}

/// An inode, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions as in `st_mode`. 0: the slot is free.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; for directories the number of entries (without `.` and `..`).
    pub size: u64,
    /// Blocks that only this inode uses: data, extent, directory and xattr nodes.
    pub blocks: u64,
    /// Tells reuses of the number apart.
    pub incarnation: Incarnation,
    /// Hints kept with the inode.
    pub flags: InodeFlags,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The directory that holds its (latest) name; itself for the root, [`InodeNo::NONE`] when it has none.
    pub parent: InodeNo,
    /// That directory's incarnation.
    pub parent_incarnation: Incarnation,
    /// The cookie of the entry there.
    pub parent_cookie: u64,
    /// The greatest event of its own (VERSIONING V4).
    pub own_event: EventNo,
    /// The number since which the inode is as it is (VERSIONING V7).
    pub born: EventNo,
    /// Whether it has a policy of its own, in the tree of policies. Of versions, whether it had.
    pub has_policy: bool,
    /// Device number of device files, as `dev_t` of Linux in 32 bits.
    pub rdev: u32,
    /// Root of its extended attributes, or none.
    pub xattr_root: MetaAddr,
    /// What `content` holds.
    pub content_kind: ContentKind,
    /// Bytes used (inline) or number of extents.
    pub content_count: u8,
    /// Level of the tree's root node.
    pub content_level: u8,
    /// The content area.
    pub content: [u8; INLINE_BYTES],
}

impl Inode {
    /// A free slot.
    pub fn free() -> Inode {
        const THEN: Timestamp = Timestamp { seconds: 0, nanos: 0 };
        Inode {
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            incarnation: Incarnation(0),
            flags: InodeFlags::empty(),
            atime: THEN,
            mtime: THEN,
            ctime: THEN,
            btime: THEN,
            parent: InodeNo::NONE,
            parent_incarnation: Incarnation(0),
            parent_cookie: 0,
            own_event: EventNo(0),
            born: EventNo(0),
            has_policy: false,
            rdev: 0,
            xattr_root: MetaAddr::NONE,
            content_kind: ContentKind::Empty,
            content_count: 0,
            content_level: 0,
            content: [0; INLINE_BYTES],
        }
    }

    /// Makes a slot what a free inode leaves: zeros, and the incarnation that the number had last.
    pub fn encode_free(incarnation: Incarnation, bytes: &mut [u8; INODE_BYTES]) {
        bytes.fill(0);
        bytes[32..36].copy_from_slice(&incarnation.0.to_le_bytes());
    }

    /// Decodes the slot.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8; INODE_BYTES]) -> Result<Inode, Box<Corruption>> {
        let r = RawInode::ref_from_bytes(&bytes[..]).expect("the sizes are equal");
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("inode", field, expected, found));
        let content_kind = match r.content_kind {
            0 => ContentKind::Empty,
            1 => ContentKind::Inline,
            2 => ContentKind::Extents,
            3 => ContentKind::Tree,
            k => return bad("content kind", "0 to 3", k.to_string()),
        };
        let most = match content_kind {
            ContentKind::Empty | ContentKind::Tree => 0,
            ContentKind::Inline => INLINE_BYTES,
            ContentKind::Extents => INLINE_BYTES / EXTENT_INLINE_BYTES,
        };
        if usize::from(r.content_count) > most {
            return bad("content count", "no more than fits", r.content_count.to_string());
        }
        if r.reserved != 0 {
            return bad("reserved byte", "0", r.reserved.to_string());
        }
        for t in [r.atime, r.mtime, r.ctime, r.btime] {
            if t.nanos.get() >= 1_000_000_000 {
                return bad("nanoseconds", "below 10^9", t.nanos.to_string());
            }
        }
        let Some(flags) = InodeFlags::from_bits(r.flags.get()) else {
            return bad("flags", "known flags", format!("{:#x}", r.flags));
        };
        if r.mode.get() & !0o177_777 != 0 {
            return bad("mode", "16 bits", format!("{:#o}", r.mode));
        }
        if r.policy.get() > 1 {
            return bad("policy", "0 or 1", r.policy.to_string());
        }
        if r.mode.get() == 0 && bytes.iter().enumerate().any(|(i, b)| *b != 0 && !(32..36).contains(&i)) {
            return bad("free slot", "zeros", "something else".into());
        }
        let inode = Inode {
            mode: r.mode.get(),
            links: r.links.get(),
            uid: r.uid.get(),
            gid: r.gid.get(),
            size: r.size.get(),
            blocks: r.blocks.get(),
            incarnation: Incarnation(r.incarnation.get()),
            flags,
            atime: r.atime.into(),
            mtime: r.mtime.into(),
            ctime: r.ctime.into(),
            btime: r.btime.into(),
            parent: InodeNo(r.parent.get()),
            parent_incarnation: Incarnation(r.parent_incarnation.get()),
            parent_cookie: r.parent_cookie.get(),
            own_event: EventNo(r.own_event.get()),
            born: EventNo(r.born.get()),
            has_policy: r.policy.get() == 1,
            rdev: r.rdev.get(),
            xattr_root: MetaAddr(r.xattr_root.get()),
            content_kind,
            content_count: r.content_count,
            content_level: r.content_level,
            content: r.content,
        };
        inode.verify()?;
        Ok(inode)
    }

    /// Checks what fields say together.
    pub(crate) fn verify(&self) -> Result<(), Box<Corruption>> {
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("inode", field, expected, found));
        if self.mode != 0
            && !matches!(
                self.file_type(),
                0o10000 | 0o20000 | 0o40000 | 0o60000 | 0o100000 | 0o120000 | 0o140000
            )
        {
            return bad("file type", "one of the seven", format!("{:#o}", self.mode));
        }
        if self.mode != 0 && self.incarnation.0 == 0 {
            return bad("incarnation", "not 0", "0".into());
        }
        if !self.xattr_root.is_plausible() || self.xattr_root.zone().is_root() {
            return bad("xattr root", "a metadata address", self.xattr_root.to_string());
        }
        let used = match self.content_kind {
            ContentKind::Empty => 0,
            ContentKind::Inline => usize::from(self.content_count),
            ContentKind::Extents => usize::from(self.content_count) * EXTENT_INLINE_BYTES,
            ContentKind::Tree => 8,
        };
        // All bytes are looked at, many at a time: in a sound inode they are zeros anyway.
        if self.content[used..].iter().fold(0, |all, b| all | b) != 0 {
            return bad("content area", "zeros after the content", "something else".into());
        }
        if self.content_kind == ContentKind::Tree {
            let root = self.tree_root();
            if !root.is_plausible() || root.is_none() || root.zone().is_root() {
                return bad("tree root", "a metadata address", root.to_string());
            }
        } else if self.content_level != 0 {
            return bad("content level", "0 without a tree", self.content_level.to_string());
        }
        if self.is_regular() && self.size > crate::layout::FILE_SIZE_MAX {
            return bad("size", "at most 2^32 − 1 blocks", self.size.to_string());
        }
        Ok(())
    }

    /// Encodes into a slot.
    pub fn encode(&self, bytes: &mut [u8; INODE_BYTES]) {
        let raw = RawInode {
            mode: self.mode.into(),
            links: self.links.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            incarnation: self.incarnation.0.into(),
            flags: self.flags.bits().into(),
            atime: self.atime.into(),
            mtime: self.mtime.into(),
            ctime: self.ctime.into(),
            btime: self.btime.into(),
            parent: self.parent.0.into(),
            parent_incarnation: self.parent_incarnation.0.into(),
            parent_cookie: self.parent_cookie.into(),
            own_event: self.own_event.0.into(),
            born: self.born.0.into(),
            policy: u32::from(self.has_policy).into(),
            rdev: self.rdev.into(),
            xattr_root: self.xattr_root.0.into(),
            content_kind: self.content_kind as u8,
            content_count: self.content_count,
            content_level: self.content_level,
            reserved: 0,
            content: self.content,
        };
        bytes.copy_from_slice(raw.as_bytes());
    }

    /// The bytes of slot `slot` in an inode block.
    pub fn slot(block: &Block, slot: usize) -> &[u8; INODE_BYTES] {
        let at = HEADER_BYTES + slot * INODE_BYTES;
        block[at..at + INODE_BYTES].try_into().expect("sixteen slots fill a block")
    }

    /// The same, to change, with the range it takes in the block.
    pub fn slot_mut(block: &mut Block, slot: usize) -> (&mut [u8; INODE_BYTES], std::ops::Range<usize>) {
        let at = HEADER_BYTES + slot * INODE_BYTES;
        let range = at..at + INODE_BYTES;
        ((&mut block[range.clone()]).try_into().expect("sixteen slots fill a block"), range)
    }

    /// Whether the slot is free, without decoding it.
    pub fn slot_is_free(block: &Block, slot: usize) -> bool {
        Inode::slot(block, slot)[..4] == [0; 4]
    }

    /// The incarnation kept in a slot, also after the inode is gone.
    pub fn slot_incarnation(block: &Block, slot: usize) -> Incarnation {
        let s = Inode::slot(block, slot);
        Incarnation(u32::from_le_bytes(s[32..36].try_into().expect("four bytes")))
    }

    /// The verifier of an inode block.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible field.
    pub fn verify_block(block: &Block) -> Result<(), Box<Corruption>> {
        let addr = MetaAddr(crate::BlockHeader::of(block).addr.get());
        if !addr.is_plausible() {
            return Err(Corruption::new("inode block", "own address", "a metadata address", addr));
        }
        for slot in 0..INODES_PER_BLOCK {
            Inode::decode(Inode::slot(block, slot)).map_err(|c| c.of(InodeNo::new(addr, slot as u8)))?;
        }
        Ok(())
    }

    /// The type bits of the mode.
    pub fn file_type(&self) -> u32 {
        self.mode & 0o170_000
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == 0o040_000
    }

    /// Whether this is a regular file.
    pub fn is_regular(&self) -> bool {
        self.file_type() == 0o100_000
    }

    /// Whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == 0o120_000
    }

    /// The root of the content's tree, if `content_kind` is [`ContentKind::Tree`].
    pub fn tree_root(&self) -> MetaAddr {
        MetaAddr(u64::from_le_bytes(self.content[..8].try_into().expect("eight bytes")))
    }

    /// Makes the content a tree with this root.
    pub fn set_tree_root(&mut self, root: MetaAddr, level: u8) {
        self.content = [0; INLINE_BYTES];
        self.content[..8].copy_from_slice(&root.0.to_le_bytes());
        self.content_kind = ContentKind::Tree;
        self.content_count = 0;
        self.content_level = level;
    }

    /// The inline content.
    pub fn inline(&self) -> &[u8] {
        match self.content_kind {
            ContentKind::Inline => &self.content[..usize::from(self.content_count)],
            _ => &[],
        }
    }

    /// Makes the content these bytes.
    ///
    /// # Panics
    /// If there are more than [`INLINE_BYTES`].
    pub fn set_inline(&mut self, bytes: &[u8]) {
        self.content = [0; INLINE_BYTES];
        self.content[..bytes.len()].copy_from_slice(bytes);
        self.content_kind = if bytes.is_empty() { ContentKind::Empty } else { ContentKind::Inline };
        self.content_count = bytes.len() as u8;
        self.content_level = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros decode to a free inode, and a freed slot keeps nothing but its incarnation.
    #[test]
    fn a_free_inode_is_zeros_but_for_its_incarnation() {
        assert_eq!(Inode::decode(&[0; INODE_BYTES]).unwrap(), Inode::free());
        let (mut expected, mut slot) = ([0; INODE_BYTES], [0xff; INODE_BYTES]);
        Inode { incarnation: Incarnation(77), ..Inode::free() }.encode(&mut expected);
        Inode::encode_free(Incarnation(77), &mut slot);
        assert_eq!(slot, expected);
    }
}
