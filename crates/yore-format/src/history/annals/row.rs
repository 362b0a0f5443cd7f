//! A row of the annals: one thing that ended. An inode was so, or a name meant it, or both until one call
//! ended both.
//!
//! A row stands on its own: no other row is needed to read it, and none that is forgotten changes what it
//! says. What it says of a state is what anybody can be shown of it; so it has no time of access (that of a
//! state of the past is its time of modification), not `own_event`, and no content of directories (entries
//! say by their births and deaths when they were there).
//!
//! ```text
//! head: form, and what the name has
//! inode, incarnation
//! name:      directory, birth, low byte of the cookie where it is not 0, length, bytes
//! version:   which of the fields follow that few have, birth, mode, owner, group, size, blocks, times, …
//! content:   kind and count; bytes, or extents, or the root of a tree
//! ```
//!
//! Numbers have as many bytes as they need ([`crate::varint`]). Most are stored as a difference to another
//! one of the row, as things that belong together were made together and lie together. **A row has one
//! encoding**: a field that few rows have is there exactly if it differs from what it is taken to be without
//! it. So a row that is decoded and encoded again has the same bytes, and the checker compares bytes.
//!
//! **Encoding cannot fail**, whatever a damaged inode says, since what is damaged must still be removable:
//! differences wrap around, and every field has as many bytes as its type can need. [`ROW_BYTES_MAX`] is
//! above the sum of all. A state that is born at its end or later is written like any other; it cannot be
//! decoded, as a version with such numbers never could.

use crate::varint::ShortBytes;
use crate::{EventNo, FileKind, Incarnation, Inode, InodeNo, NAME_MAX};
use std::borrow::Cow;

/// No row has more bytes.
pub const ROW_BYTES_MAX: usize = 640;

/// A row's value.
pub type RowValue = ShortBytes<ROW_BYTES_MAX>;

/// Which facts a row has: the two lowest bits of its head.
pub(super) const VERSION: u8 = 1;
pub(super) const NAME: u8 = 2;
/// In the head of a row with both facts: the name was reclaimed.
pub(super) const RECLAIMED: u8 = 4;
/// In the head of a row with a name: the low byte of its cookie is not 0, and follows.
pub(super) const COLLIDED: u8 = 8;
/// Where the head has the type of the entry.
pub(super) const TYPE_SHIFT: u32 = 4;

/// Which of the fields are there that few versions have. The first seven fit the first byte.
pub(super) mod has {
    /// Time of the last change of the inode, where it is not that of its content.
    pub const CTIME: u32 = 1;
    /// Time of creation, where it is not that of the last change of content.
    pub const BTIME: u32 = 2;
    /// The number of names, where it is not 1 of a file, or 2 of a directory.
    pub const LINKS: u32 = 4;
    /// The place of its latest name, where it is not that of the row's name.
    pub const PLACE: u32 = 8;
    /// It has no such place.
    pub const NO_PLACE: u32 = 16;
    /// Root of the extended attributes.
    pub const XATTRS: u32 = 32;
    /// Flags.
    pub const FLAGS: u32 = 64;
    /// Device number.
    pub const DEVICE: u32 = 128;
    /// It had a policy of its own; no field follows.
    pub const POLICY: u32 = 256;
    /// All there are.
    pub const ALL: u32 = 511;
}

/// A name that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowName<'a> {
    /// The directory.
    pub directory: InodeNo,
    /// The number since which the name meant the inode.
    pub birth: EventNo,
    /// The key of the entry in its directory. All but the low byte follows from the name.
    pub cookie: u64,
    /// The type of the inode, as the entry has it.
    pub kind: FileKind,
    /// The name: 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
}

/// A row of the annals. It has a name, a version, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnalsRow<'a> {
    /// The number from which on it no longer held.
    pub end: EventNo,
    /// The inode that the row is about.
    pub inode: InodeNo,
    /// Its incarnation, then.
    pub incarnation: Incarnation,
    /// A name that meant it.
    pub name: Option<RowName<'a>>,
    /// No event needs the name any more. It remains as the place of the version, which is there.
    pub name_is_reclaimed: bool,
    /// What the inode was since its `born`. Of a directory, without content.
    pub version: Option<Cow<'a, Inode>>,
}

impl AnnalsRow<'_> {
    /// The row without its version: what is left of a row of both when no event needs that. Its value is
    /// shorter.
    ///
    /// # Panics
    /// If nothing would be left.
    #[must_use]
    pub fn without_version(self) -> Self {
        assert!(self.name.is_some() && !self.name_is_reclaimed, "a row without version and name");
        AnnalsRow { version: None, ..self }
    }
}

/// How many names an inode of this mode has, unless a row says otherwise.
pub(super) fn usual_links(mode: u32) -> u32 {
    match FileKind::from_mode(mode) {
        Some(FileKind::Directory) => 2,
        _ => 1,
    }
}

/// The bits that a head has for the type of an entry: none where the mode of the row's version says it.
pub(super) fn type_bits(kind: FileKind, version: Option<&Inode>) -> u8 {
    match version.and_then(|inode| FileKind::from_mode(inode.mode)) {
        Some(of_mode) if of_mode == kind => 0,
        _ => (kind as u8) << TYPE_SHIFT,
    }
}

/// The most that each part of a row takes.
const NUMBER: usize = 10;
const NUMBER32: usize = 5;
const TIME: usize = NUMBER + 4;
const HEAD: usize = 1 + NUMBER + NUMBER32;
const NAME_PART: usize = 2 * NUMBER + 2 + NAME_MAX;
const FEW: usize = TIME + NUMBER32 + (NUMBER + NUMBER32 + 8) + 2 * NUMBER32 + NUMBER;
const VERSION_PART: usize = 2 + NUMBER + 2 + 2 * NUMBER32 + 2 * NUMBER + 2 * TIME + FEW;
const EXTENTS: usize = 4 * (2 * NUMBER32 + 2 * NUMBER);
const _: () = assert!(HEAD + NAME_PART + VERSION_PART + 2 + EXTENTS <= ROW_BYTES_MAX);
