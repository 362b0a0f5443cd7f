//! Rows of the annals as values.

use super::keys::put_age;
use super::row::{has, type_bits, usual_links, AnnalsRow, RowName, RowValue};
use super::row::{COLLIDED, NAME, RECLAIMED, VERSION};
use crate::{ContentKind, Inode, InodeNo, Timestamp, EXTENT_INLINE_BYTES};

impl AnnalsRow<'_> {
    /// The row as a value, but for its end, which is in the key. O(bytes), without an allocation.
    ///
    /// # Panics
    /// For a row without both facts, and for a name longer than any.
    pub fn encode(&self) -> RowValue {
        let mut value = RowValue::default();
        self.encode_to(&mut value);
        value
    }

    /// The same, in place of what `out` has.
    ///
    /// # Panics
    /// As [`AnnalsRow::encode`].
    pub fn encode_to(&self, out: &mut RowValue) {
        let version = self.version.as_deref();
        let mut head = 0;
        if version.is_some() {
            head |= VERSION;
        }
        if let Some(name) = &self.name {
            head |= NAME | type_bits(name.kind, version);
            head |= if name.cookie as u8 == 0 { 0 } else { COLLIDED };
        }
        if self.name_is_reclaimed {
            head |= RECLAIMED;
        }
        out.clear();
        out.byte(head);
        out.number(self.inode.0);
        out.number(self.incarnation.0.into());
        if let Some(name) = &self.name {
            self.put_name(out, name);
        }
        match version {
            Some(inode) => self.put_version(out, inode),
            None => assert!(self.name.is_some(), "a row without version and name"),
        }
    }

    fn put_name(&self, out: &mut RowValue, name: &RowName<'_>) {
        out.signed(name.directory.0.wrapping_sub(self.inode.0));
        put_age(out, self.end, name.birth);
        let low = name.cookie as u8;
        if low != 0 {
            out.byte(low);
        }
        out.byte(u8::try_from(name.name.len()).expect("a name has 1 to 255 bytes"));
        out.bytes(name.name);
    }

    fn put_version(&self, out: &mut RowValue, inode: &Inode) {
        let has = self.fields_of(inode);
        let there = |field| has & field != 0;
        out.number(has.into());
        put_age(out, self.end, inode.born);
        out.bytes(&(inode.mode as u16).to_le_bytes());
        out.number(inode.uid.into());
        out.signed32(inode.gid.wrapping_sub(inode.uid));
        out.number(inode.size);
        out.number(inode.blocks);
        put_time(out, inode.mtime.seconds as u64, inode.mtime);
        let mut put_other = |time: Timestamp| {
            put_time(out, (inode.mtime.seconds as u64).wrapping_sub(time.seconds as u64), time);
        };
        if there(has::BTIME) {
            put_other(inode.btime);
        }
        if there(has::CTIME) {
            put_other(inode.ctime);
        }
        if there(has::LINKS) {
            out.number(inode.links.into());
        }
        if there(has::PLACE) {
            out.signed(inode.parent.0.wrapping_sub(self.inode.0));
        }
        if !there(has::NO_PLACE) {
            out.signed32(inode.parent_incarnation.0.wrapping_sub(self.incarnation.0));
        }
        if there(has::PLACE) {
            out.bytes(&inode.parent_cookie.to_le_bytes());
        }
        if there(has::XATTRS) {
            out.number(inode.xattr_root.0);
        }
        if there(has::FLAGS) {
            out.number(inode.flags.bits().into());
        }
        if there(has::DEVICE) {
            out.number(inode.rdev.into());
        }
        put_content(out, inode);
    }

    /// Which of the fields are there that few versions have.
    fn fields_of(&self, inode: &Inode) -> u32 {
        let is_of_name =
            |name: &RowName<'_>| (name.directory, name.cookie) == (inode.parent, inode.parent_cookie);
        let start = (inode.parent, inode.parent_incarnation.0, inode.parent_cookie);
        let start = match self.name.as_ref().is_some_and(is_of_name) {
            true => 0,
            false if start == (InodeNo::NONE, 0, 0) => has::NO_PLACE,
            false => has::PLACE,
        };
        let fields = [
            (has::CTIME, inode.ctime != inode.mtime),
            (has::BTIME, inode.btime != inode.mtime),
            (has::LINKS, inode.links != usual_links(inode.mode)),
            (has::XATTRS, !inode.xattr_root.is_none()),
            (has::FLAGS, !inode.flags.is_empty()),
            (has::DEVICE, inode.rdev != 0),
            (has::POLICY, inode.has_policy),
        ];
        fields.into_iter().filter(|(_, there)| *there).fold(start, |all, (field, _)| all | field)
    }
}

fn put_time(out: &mut RowValue, seconds: u64, time: Timestamp) {
    out.signed(seconds);
    out.bytes(&time.nanos.to_le_bytes());
}

fn put_content(out: &mut RowValue, inode: &Inode) {
    if inode.is_directory() {
        return out.number(ContentKind::Empty as u64);
    }
    let count = match inode.content_kind {
        ContentKind::Empty => 0,
        ContentKind::Inline | ContentKind::Extents => inode.content_count,
        ContentKind::Tree => inode.content_level,
    };
    out.number(inode.content_kind as u64 | u64::from(count) << 2);
    match inode.content_kind {
        ContentKind::Empty => {}
        ContentKind::Inline => out.bytes(inode.inline()),
        ContentKind::Extents => put_extents(out, inode),
        ContentKind::Tree => out.number(inode.tree_root().0),
    }
}

/// The extents as the inode has them, sound or not.
fn put_extents(out: &mut RowValue, inode: &Inode) {
    let count = usize::from(inode.content_count);
    let mut end = 0u32;
    for extent in inode.content.chunks_exact(EXTENT_INLINE_BYTES).take(count) {
        let word = |at: usize| u32::from_le_bytes(extent[at..at + 4].try_into().expect("four bytes"));
        let double = |at: usize| u64::from_le_bytes(extent[at..at + 8].try_into().expect("eight bytes"));
        let (first, start, length, birth) = (word(0), double(4), word(12), double(16));
        out.number(first.wrapping_sub(end).into());
        out.number(start);
        out.number(turned(length).into());
        out.signed(inode.born.0.wrapping_sub(birth));
        end = first.wrapping_add(length & crate::EXTENT_LEN_MAX);
    }
}

/// Length and flags of an extent with the flag for unwritten blocks below the length, so that short extents
/// are small numbers.
pub(super) fn turned(length_and_flags: u32) -> u32 {
    const UNWRITTEN: u32 = 1 << 30;
    const SHARED: u32 = 1 << 31;
    let length = length_and_flags & crate::EXTENT_LEN_MAX;
    length_and_flags & SHARED | length << 1 | u32::from(length_and_flags & UNWRITTEN != 0)
}

/// The reverse of [`turned`].
pub(super) fn turned_back(n: u32) -> u32 {
    n & 1 << 31 | (n & 1) << 30 | n >> 1 & crate::EXTENT_LEN_MAX
}
