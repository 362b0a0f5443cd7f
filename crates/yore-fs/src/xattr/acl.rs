//! POSIX ACLs (POSIX.1e draft 17) in the encoding of Linux's `system.posix_acl_*` attributes: version 2 in
//! four bytes, then eight bytes per entry: tag, permissions, id.
//!
//! An access ACL and the mode are two views of one thing. The mode's bits for owner and others are those of
//! the ACL's entries for them; its group bits are the mask, or the group's entry where there is no mask.
//! Setting either changes the other. An ACL that says no more than a mode can (owner, group, others and no
//! mask) is not stored at all.
//!
//! A file that is made in a directory with a default ACL gets that ACL as its access ACL, reduced to the mode
//! that the caller gives; the umask plays no part then. A directory also gets it as its own default ACL.

use crate::types::Asking;
use crate::{Error, FileKind, Result};

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The most entries: a directory made under a default ACL gets two copies, which must fit one Op.
const ENTRIES_MAX: usize = 1000;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

/// For whom an entry is, with the numbers of the encoding, in the order that entries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    Group = 0x04,
    NamedGroup = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

impl Tag {
    fn from_u16(tag: u16) -> Option<Tag> {
        use Tag::*;
        [Owner, User, Group, NamedGroup, Mask, Others].into_iter().find(|t| *t as u16 == tag)
    }

    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::NamedGroup)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// Read 4, write 2, execute 1.
    permissions: u32,
    /// The user or group of a named entry.
    id: u32,
}

/// A valid ACL: owner, group and others once each; a mask at most once, and exactly once if users or groups
/// are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Decodes an attribute's value. No entries at all (or no value) means that the file is to have no ACL:
    /// `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not an ACL; [`Error::AttributeTooLarge`] above 1,000 entries.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Acl>> {
        if value.is_empty() {
            return Ok(None);
        }
        let Some((version, entries)) = value.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::Invalid { what: "an ACL is at least 4 bytes" });
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported { what: "ACLs of another version than 2" });
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(Error::Invalid { what: "an ACL's entries take 8 bytes each" });
        }
        if entries.len() / ENTRY_BYTES > ENTRIES_MAX {
            return Err(Error::AttributeTooLarge);
        }
        let acl = Acl(entries.chunks_exact(ENTRY_BYTES).map(Entry::decode).collect::<Result<_>>()?);
        if acl.0.is_empty() {
            return Ok(None);
        }
        acl.validate()?;
        Ok(Some(acl))
    }

    fn validate(&self) -> Result<()> {
        if !self.0.is_sorted_by_key(|e| e.tag) {
            return Err(Error::Invalid { what: "an ACL's entries come in the order of their tags" });
        }
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        if [Tag::Owner, Tag::Group, Tag::Others].map(count) != [1; 3] || count(Tag::Mask) > 1 {
            return Err(Error::Invalid {
                what: "an ACL has one owner, group and others, and one mask at most",
            });
        }
        if self.0.iter().any(|e| e.tag.is_named()) && count(Tag::Mask) == 0 {
            return Err(Error::Invalid { what: "an ACL that names users or groups has a mask" });
        }
        Ok(())
    }

    /// The value of the attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.0.len());
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            out.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            out.extend_from_slice(&(entry.permissions as u16).to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// The nine bits of a mode that correspond to the ACL.
    pub(crate) fn permissions(&self) -> u32 {
        self.class(Tag::Owner) << 6 | self.class(self.group_class()) << 3 | self.class(Tag::Others)
    }

    /// Whether its permissions say everything that it says.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The entry that a mode's group bits stand for.
    fn group_class(&self) -> Tag {
        if self.0.iter().any(|e| e.tag == Tag::Mask) {
            Tag::Mask
        } else {
            Tag::Group
        }
    }

    /// Whether it gives a user who is not the owner these permissions, by the rules of the kernel.
    pub(crate) fn permits(&self, group: u32, asking: &Asking, want: u32) -> bool {
        let masked = |entry: &Entry| {
            let mask = self.0.iter().find(|e| e.tag == Tag::Mask).map_or(7, |e| e.permissions);
            entry.permissions & mask & want == want
        };
        if let Some(user) = self.0.iter().find(|e| e.tag == Tag::User && e.id == asking.uid) {
            return masked(user);
        }
        let of_group = |e: &&Entry| match e.tag {
            Tag::Group => Some(group),
            Tag::NamedGroup => Some(e.id),
            _ => None,
        };
        let mut groups = self.0.iter().filter(|e| of_group(e).is_some());
        let is_mine = |e: &&Entry| of_group(e).is_some_and(|group| asking.groups.contains(&group));
        if groups.clone().any(|e| is_mine(&e)) {
            return groups.any(|e| is_mine(&e) && masked(e));
        }
        let others = self.class(Tag::Others) & want == want;
        others && (asking.knows_groups || groups.all(masked))
    }

    fn class(&self, tag: Tag) -> u32 {
        self.0.iter().find(|e| e.tag == tag).map_or(0, |e| e.permissions)
    }

    /// Changes the entries that correspond to the mode: `permissions` computes each from the old one and from
    /// the mode.
    fn map_classes(&mut self, permissions: impl Fn(u32, u32) -> u32, mode: u32) {
        let group = self.group_class();
        for entry in &mut self.0 {
            let bits = match entry.tag {
                Tag::Owner => mode >> 6 & 7,
                Tag::Others => mode & 7,
                tag if tag == group => mode >> 3 & 7,
                _ => continue,
            };
            entry.permissions = permissions(entry.permissions, bits);
        }
    }

    /// Changes the ACL after the mode was changed to `mode`.
    pub(crate) fn chmod(&mut self, mode: u32) {
        self.map_classes(|_, bits| bits, mode);
    }

    /// Reduces the ACL for a new file that must have no more than `mode`.
    fn restrict(&mut self, mode: u32) {
        self.map_classes(|has, bits| has & bits, mode);
    }
}

impl Entry {
    fn decode(bytes: &[u8]) -> Result<Entry> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let Some(tag) = Tag::from_u16(half(0)) else {
            return Err(Error::Invalid { what: "an ACL's entry is for nobody known" });
        };
        let permissions = u32::from(half(2));
        if permissions > 7 {
            return Err(Error::Invalid { what: "an ACL's permissions are read, write and execute" });
        }
        let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if tag.is_named() && id == NO_ID {
            return Err(Error::Invalid { what: "an ACL's entry for a user or group says which" });
        }
        Ok(Entry { tag, permissions, id: if tag.is_named() { id } else { NO_ID } })
    }
}

/// What a new inode gets from its directory's default ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Permissions, and set-id and sticky bits as the caller gives them.
    pub mode: u32,
    /// Its access ACL, encoded, if the ACL says more than the mode.
    pub access: Option<Vec<u8>>,
    /// A directory's default ACL, encoded.
    pub default: Option<Vec<u8>>,
}

/// What a new file gets in a directory with this default ACL, if the caller gives the 12 bits `permissions`.
pub(crate) fn inherit_from(default: Option<Acl>, umask: u32, kind: FileKind, permissions: u32) -> Inherited {
    let Some(default) = default else {
        return Inherited { mode: permissions & 0o7777 & !(umask & 0o777), ..Inherited::default() };
    };
    let mut access = default.clone();
    access.restrict(permissions);
    Inherited {
        mode: permissions & 0o7000 | access.permissions(),
        access: (!access.is_minimal()).then(|| access.encode()),
        default: (kind == FileKind::Directory).then(|| default.encode()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u32, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    fn full() -> Acl {
        acl(&[
            (Tag::Owner, 7, NO_ID),
            (Tag::User, 6, 1000),
            (Tag::User, 5, 1001),
            (Tag::Group, 5, NO_ID),
            (Tag::NamedGroup, 7, 50),
            (Tag::Mask, 6, NO_ID),
            (Tag::Others, 4, NO_ID),
        ])
    }

    fn minimal() -> Acl {
        acl(&[(Tag::Owner, 6, NO_ID), (Tag::Group, 4, NO_ID), (Tag::Others, 0, NO_ID)])
    }

    #[test]
    fn valid_acls_come_back_and_correspond_to_modes() {
        for (acl, mode, is_minimal) in [(full(), 0o764, false), (minimal(), 0o640, true)] {
            assert_eq!(Acl::decode(&acl.encode()).unwrap().unwrap(), acl);
            assert_eq!((acl.permissions(), acl.is_minimal()), (mode, is_minimal));
        }
        assert_eq!(Acl::decode(&[]).unwrap(), None);
        assert_eq!(Acl::decode(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn the_encoding_is_that_of_linux() {
        let bytes = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255,
            255, 255, 255,
        ];
        assert_eq!(minimal().encode(), bytes);
    }

    #[test]
    fn impossible_acls_are_refused() {
        let good = full().0;
        let without = |tag| Acl(good.iter().copied().filter(|e| e.tag != tag).collect());
        let twice = |i: usize| Acl([&good[..=i], &good[i..]].concat());
        let mut unsorted = full();
        unsorted.0.swap(0, 3);
        let mut nameless = full();
        nameless.0[1].id = NO_ID;
        let mut beyond = full();
        beyond.0[1].permissions = 8;
        let bad = [
            without(Tag::Owner),
            without(Tag::Group),
            without(Tag::Others),
            without(Tag::Mask),
            twice(0),
            twice(3),
            twice(5),
            twice(6),
            unsorted,
            nameless,
            beyond,
        ];
        for acl in bad {
            assert!(matches!(Acl::decode(&acl.encode()), Err(Error::Invalid { .. })), "{acl:?}");
        }
        let bytes = full().encode();
        assert!(matches!(Acl::decode(&bytes[..bytes.len() - 1]), Err(Error::Invalid { .. })));
        assert!(matches!(Acl::decode(&bytes[..3]), Err(Error::Invalid { .. })));
        assert!(matches!(Acl::decode(&[&[1][..], &bytes[1..]].concat()), Err(Error::Unsupported { .. })));
        let many = [&bytes[..4], &[0; ENTRY_BYTES * (ENTRIES_MAX + 1)]].concat();
        assert!(matches!(Acl::decode(&many), Err(Error::AttributeTooLarge)));
    }

    /// POSIX.1e 23.1.5: chmod changes the mask if there is one, and otherwise the group's entry; named
    /// entries stay.
    #[test]
    fn chmod_changes_the_entries_that_correspond() {
        let mut acl = full();
        acl.chmod(0o351);
        assert_eq!(acl.permissions(), 0o351);
        assert_eq!((acl.class(Tag::Group), acl.class(Tag::NamedGroup), acl.0[1].permissions), (5, 7, 6));
        let mut acl = minimal();
        acl.chmod(0o777);
        assert_eq!(acl.class(Tag::Group), 7);
    }

    /// POSIX.1e 23.1.6: the new file has the permissions that both the default ACL and the caller give; the
    /// umask counts only without a default ACL.
    #[test]
    fn new_files_inherit() {
        let plain = inherit_from(None, 0o027, FileKind::Regular, 0o4777);
        assert_eq!(plain, Inherited { mode: 0o4750, access: None, default: None });
        let file = inherit_from(Some(full()), 0o077, FileKind::Regular, 0o1640);
        assert_eq!((file.mode, &file.default), (0o1640, &None));
        let access = Acl::decode(file.access.as_deref().unwrap()).unwrap().unwrap();
        assert_eq!((access.class(Tag::Mask), access.class(Tag::Group), access.0[1].permissions), (4, 5, 6));
        let dir = inherit_from(Some(full()), 0o077, FileKind::Directory, 0o777);
        assert_eq!((dir.mode, dir.default), (0o764, Some(full().encode())));
        let dir = inherit_from(Some(minimal()), 0o077, FileKind::Directory, 0o777);
        assert_eq!(dir, Inherited { mode: 0o640, access: None, default: Some(minimal().encode()) });
    }
}
