//! What the cells of the trees hold: directory entries, extents, extended attributes, symbolic link chunks.

use crate::{BlockNo, Corruption, EventNo, Incarnation, InodeNo, EXTENT_INLINE_BYTES};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of an entry before its name.
pub const DIRENT_FIXED_BYTES: usize = 22;
/// Bytes of an extent's value.
pub const EXTENT_VALUE_BYTES: usize = 20;
/// The longest extent, in blocks.
pub const EXTENT_LEN_MAX: u32 = (1 << 30) - 1;
/// Bytes of a symbolic link's target in one cell.
pub const SYMLINK_CHUNK_BYTES: usize = 1024;
/// The longest symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Bytes of an attribute's value in one cell.
pub const XATTR_CHUNK_BYTES: usize = 1024;
/// The longest value of an extended attribute.
pub const XATTR_VALUE_MAX: usize = 65_536;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The type of a file as entries keep it: the type bits of its mode, shifted right by 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, strum::FromRepr)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FileKind {
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

impl FileKind {
    /// The kind that a mode's type bits say.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Self::from_repr((mode >> 12) as u8)
    }

    /// The type bits for a mode.
    pub fn mode(self) -> u32 {
        (self as u32) << 12
    }
}

/// A directory entry. In a tree its key is the cookie, in 8 bytes, big-endian; in an inode's content area
/// entries lie one after another in cookie order, each preceded by its cookie in 8 bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation, by which an entry that outlived its inode is recognised.
    pub incarnation: Incarnation,
    /// The number since which the name means this inode.
    pub birth: EventNo,
    /// The inode's type.
    pub kind: FileKind,
    /// The name: 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
}

impl<'a> DirEntry<'a> {
    /// Whether these bytes, at most [`NAME_MAX`], can be a name.
    pub(crate) fn is_name(name: &[u8]) -> bool {
        let is_dots = matches!(name, b"." | b"..");
        !name.is_empty() && !is_dots && !name.iter().any(|b| matches!(b, 0 | b'/'))
    }

    /// Bytes that the entry takes as a value.
    pub fn encoded_len(&self) -> usize {
        DIRENT_FIXED_BYTES + self.name.len()
    }

    /// Appends the encoded entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.encoded_len(), 0);
        self.encode_into(&mut out[start..]);
    }

    /// Encodes the entry over `out`, which has [`DirEntry::encoded_len`] bytes.
    pub fn encode_into(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.inode.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.incarnation.0.to_le_bytes());
        out[12..20].copy_from_slice(&self.birth.0.to_le_bytes());
        out[20] = self.kind as u8;
        out[21] = self.name.len() as u8;
        out[DIRENT_FIXED_BYTES..].copy_from_slice(self.name);
    }

    /// Decodes an entry from the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// [`Corruption`] for a short cell, an impossible name, kind or inode number.
    pub fn decode_prefix(bytes: &'a [u8]) -> Result<(DirEntry<'a>, usize), Box<Corruption>> {
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("directory entry", field, expected, found))
        };
        if bytes.len() < DIRENT_FIXED_BYTES {
            return bad("length", "at least 22 bytes", bytes.len().to_string());
        }
        let len = usize::from(bytes[21]);
        let Some(name) = bytes.get(DIRENT_FIXED_BYTES..DIRENT_FIXED_BYTES + len) else {
            return bad("name length", "within the cell", len.to_string());
        };
        if !DirEntry::is_name(name) {
            return bad(
                "name",
                "1 to 255 bytes without / and NUL",
                format!("{:?}", String::from_utf8_lossy(name)),
            );
        }
        let Some(kind) = FileKind::from_repr(bytes[20]) else {
            return bad("file kind", "one of the seven", bytes[20].to_string());
        };
        let inode = InodeNo(u64_at(bytes, 0));
        if !inode.is_file() {
            return bad("inode", "a file's number", inode.to_string());
        }
        let incarnation = Incarnation(u32_at(bytes, 8));
        let entry = DirEntry { inode, incarnation, birth: EventNo(u64_at(bytes, 12)), kind, name };
        Ok((entry, DIRENT_FIXED_BYTES + len))
    }

    /// Decodes a whole cell's value if its name is `name`, which is a possible one. Any other gives `None`,
    /// or the error that [`DirEntry::decode`] finds.
    ///
    /// # Errors
    /// As [`DirEntry::decode`].
    pub fn decode_named(bytes: &'a [u8], name: &[u8]) -> Result<Option<DirEntry<'a>>, Box<Corruption>> {
        // The name equals a possible one, so its bytes need no check.
        let same = bytes.len() == DIRENT_FIXED_BYTES + name.len()
            && usize::from(bytes[21]) == name.len()
            && bytes[DIRENT_FIXED_BYTES..] == *name;
        if !same {
            return DirEntry::decode(bytes).map(|entry| (entry.name == name).then_some(entry));
        }
        let (Some(kind), inode) = (FileKind::from_repr(bytes[20]), InodeNo(u64_at(bytes, 0))) else {
            return DirEntry::decode(bytes).map(Some);
        };
        if !inode.is_file() {
            return DirEntry::decode(bytes).map(Some);
        }
        let (incarnation, birth) = (Incarnation(u32_at(bytes, 8)), EventNo(u64_at(bytes, 12)));
        Ok(Some(DirEntry { inode, incarnation, birth, kind, name: &bytes[DIRENT_FIXED_BYTES..] }))
    }

    /// Decodes a whole cell's value.
    ///
    /// # Errors
    /// As [`DirEntry::decode_prefix`], and for bytes left over.
    pub fn decode(bytes: &'a [u8]) -> Result<DirEntry<'a>, Box<Corruption>> {
        let (entry, used) = DirEntry::decode_prefix(bytes)?;
        if used != bytes.len() {
            return Err(Corruption::new("directory entry", "length", used, bytes.len()));
        }
        Ok(entry)
    }
}

/// An extent: where a run of a file's blocks lies. Its key is the first file block, in a tree in 8 bytes
/// big-endian, in an inode in 4 bytes little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentValue {
    /// The first block on the device.
    pub start: BlockNo,
    /// Blocks; 1 to [`EXTENT_LEN_MAX`].
    pub len: u32,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
    /// Also named by another chain (VERSIONING V8): never overwritten in place, freed by reference count.
    pub shared: bool,
    /// The number since which the file has these blocks here.
    pub birth: EventNo,
}

impl ExtentValue {
    /// Encodes as a cell's value.
    pub fn encode(&self) -> [u8; EXTENT_VALUE_BYTES] {
        assert!(self.len >= 1 && self.len <= EXTENT_LEN_MAX);
        let mut out = [0; EXTENT_VALUE_BYTES];
        out[..8].copy_from_slice(&self.start.0.to_le_bytes());
        let flags = u32::from(self.unwritten) << 30 | u32::from(self.shared) << 31;
        out[8..12].copy_from_slice(&(self.len | flags).to_le_bytes());
        out[12..].copy_from_slice(&self.birth.0.to_le_bytes());
        out
    }

    /// Decodes a cell's value.
    ///
    /// # Errors
    /// [`Corruption`] for a wrong length or an empty extent.
    pub fn decode(bytes: &[u8]) -> Result<ExtentValue, Box<Corruption>> {
        if bytes.len() != EXTENT_VALUE_BYTES {
            return Err(Corruption::new("extent", "length", EXTENT_VALUE_BYTES, bytes.len()));
        }
        let word = u32_at(bytes, 8);
        let extent = ExtentValue {
            start: BlockNo(u64_at(bytes, 0)),
            len: word & EXTENT_LEN_MAX,
            unwritten: word & (1 << 30) != 0,
            shared: word & (1 << 31) != 0,
            birth: EventNo(u64_at(bytes, 12)),
        };
        if extent.len == 0
            || extent.start.0 == 0
            || extent.start.0.checked_add(u64::from(extent.len)).is_none()
        {
            return Err(Corruption::new("extent", "range", "a run of blocks", format!("{extent:?}")));
        }
        Ok(extent)
    }

    /// The extents in an inode's content area, with their first file blocks.
    ///
    /// # Errors
    /// [`Corruption`] for impossible ones.
    pub fn decode_inline(inode: &crate::Inode) -> Result<Vec<(u64, ExtentValue)>, Box<Corruption>> {
        ExtentValue::inline(inode).collect()
    }

    /// The same one by one, each with an error of its own.
    pub fn inline(
        inode: &crate::Inode,
    ) -> impl Iterator<Item = Result<(u64, ExtentValue), Box<Corruption>>> + '_ {
        (0..usize::from(inode.content_count)).map(|i| {
            let bytes = &inode.content[i * EXTENT_INLINE_BYTES..(i + 1) * EXTENT_INLINE_BYTES];
            Ok((u64::from(u32_at(bytes, 0)), ExtentValue::decode(&bytes[4..])?))
        })
    }

    /// Puts up to four extents into an inode's content area.
    ///
    /// # Panics
    /// If there are more than fit.
    pub fn encode_inline(inode: &mut crate::Inode, extents: &[(u64, ExtentValue)]) {
        let mut bytes = Vec::with_capacity(crate::INLINE_BYTES);
        for (key, extent) in extents {
            bytes.extend_from_slice(&(*key as u32).to_le_bytes());
            bytes.extend_from_slice(&extent.encode());
        }
        inode.set_inline(&bytes);
        if !extents.is_empty() {
            inode.content_kind = crate::ContentKind::Extents;
            inode.content_count = extents.len() as u8;
        }
    }
}

/// Which namespace an extended attribute's name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum XattrNamespace {
    User = 1,
    Trusted = 2,
    Security = 3,
    /// `system.posix_acl_access` and `system.posix_acl_default` only.
    System = 4,
}

impl XattrNamespace {
    /// The prefix of names in it, with its dot.
    pub fn prefix(self) -> &'static str {
        match self {
            XattrNamespace::User => "user.",
            XattrNamespace::Trusted => "trusted.",
            XattrNamespace::Security => "security.",
            XattrNamespace::System => "system.",
        }
    }
}

/// A cell of an attribute tree. Its key is 8 bytes, big-endian: 40 bits of hash of namespace and name, 8 bits
/// that tell collisions apart, 16 bits chunk number. The first chunk (number 0) holds the name and the length
/// of the whole value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrCell<'a> {
    /// Chunk 0: `1, namespace, name length, 0, value length u32, name, up to 1,024 bytes of the value`.
    First {
        /// Namespace.
        namespace: XattrNamespace,
        /// Name without the namespace's prefix; 1 to 255 bytes.
        name: &'a [u8],
        /// Length of the whole value in bytes.
        value_len: u32,
        /// The first 1,024 bytes of the value, or all.
        chunk: &'a [u8],
    },
    /// Further chunks: `0, bytes`.
    Rest(&'a [u8]),
}

impl<'a> XattrCell<'a> {
    /// Encodes as a cell's value.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            XattrCell::First { namespace, name, value_len, chunk } => {
                let mut out = vec![1, *namespace as u8, name.len() as u8, 0];
                out.extend_from_slice(&value_len.to_le_bytes());
                out.extend_from_slice(name);
                out.extend_from_slice(chunk);
                out
            }
            XattrCell::Rest(bytes) => [&[0u8][..], bytes].concat(),
        }
    }

    /// Decodes a cell's value.
    ///
    /// # Errors
    /// [`Corruption`] for impossible lengths, namespace or kind.
    pub fn decode(bytes: &'a [u8]) -> Result<XattrCell<'a>, Box<Corruption>> {
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("xattr cell", field, expected, found));
        match bytes.first() {
            Some(0) if bytes.len() <= 1 + XATTR_CHUNK_BYTES => Ok(XattrCell::Rest(&bytes[1..])),
            Some(1) if bytes.len() >= 8 => {
                let len = usize::from(bytes[2]);
                if bytes[3] != 0 {
                    return bad("reserved byte", "0", bytes[3].to_string());
                }
                let Some(namespace) = XattrNamespace::from_repr(bytes[1]) else {
                    return bad("namespace", "1 to 4", bytes[1].to_string());
                };
                let value_len = u32_at(bytes, 4);
                if len == 0 || bytes.len() < 8 + len || value_len as usize > XATTR_VALUE_MAX {
                    return bad("lengths", "within the cell", format!("name {len}, value {value_len}"));
                }
                let (name, chunk) = bytes[8..].split_at(len);
                if chunk.len() != (value_len as usize).min(XATTR_CHUNK_BYTES) {
                    return bad("first chunk", "full or the whole value", chunk.len().to_string());
                }
                Ok(XattrCell::First { namespace, name, value_len, chunk })
            }
            other => bad("kind", "0 or 1", format!("{other:?}, {} bytes", bytes.len())),
        }
    }
}

/// A chunk of a long symbolic link: key 8 bytes big-endian, the chunk's number; value the bytes.
///
/// # Errors
/// [`Corruption`] for an empty or too long one.
pub fn decode_symlink_chunk(bytes: &[u8]) -> Result<&[u8], Box<Corruption>> {
    if bytes.is_empty() || bytes.len() > SYMLINK_CHUNK_BYTES {
        return Err(Corruption::new("symlink chunk", "length", "1 to 1024", bytes.len()));
    }
    Ok(bytes)
}

/// Where in a directory a name's entry is looked for first: SipHash-2-4 of the name under the volume's seed,
/// as 55 bits above 8 zero bits, top bit clear, at least 256. Names that collide take the following cookies,
/// up to 255 more.
pub fn name_cookie(seed: &[u8; 16], name: &[u8]) -> u64 {
    let hash = siphasher::sip::SipHasher24::new_with_key(seed).hash(name);
    ((hash >> 1) & !0xff).max(256)
}

/// The first key under which an attribute is looked for: 40 bits of SipHash-2-4 of the namespace's number and
/// the name, then 8 bits that tell collisions apart, then 16 bits of chunk number, all zero here.
pub fn xattr_key(seed: &[u8; 16], namespace: XattrNamespace, name: &[u8]) -> u64 {
    let mut bytes = Vec::with_capacity(1 + name.len());
    bytes.push(namespace as u8);
    bytes.extend_from_slice(name);
    siphasher::sip::SipHasher24::new_with_key(seed).hash(&bytes) & !0xff_ffff
}

/// The value of a cell in the tree of orphans, whose key is the inode's number (8 bytes, big-endian): the
/// incarnation. An inode there has no name and is to be freed, or has one and is to lose its blocks beyond
/// its size.
pub fn orphan_value(incarnation: Incarnation) -> [u8; 4] {
    incarnation.0.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search for a name finds the same entry as decoding does, or the same error, whatever one byte of the
    /// cell was changed to.
    #[test]
    fn an_entry_looked_for_by_name_is_the_one_decoded() {
        let entry = DirEntry {
            inode: InodeNo(0x4321),
            incarnation: Incarnation(9),
            birth: EventNo(5),
            kind: FileKind::Regular,
            name: b"a name",
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                for name in [&b"a name"[..], b"another", b"a"] {
                    let decoded = DirEntry::decode(&changed).map(|e| (e.name == name).then_some(e));
                    match (decoded, DirEntry::decode_named(&changed, name)) {
                        (Ok(decoded), Ok(named)) => assert_eq!(decoded, named),
                        (Err(decoded), Err(named)) => assert_eq!(decoded.to_string(), named.to_string()),
                        (decoded, named) => panic!("byte {at} as {value}: {decoded:?} and {named:?}"),
                    }
                }
            }
        }
    }
}
