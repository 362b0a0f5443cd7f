//! Rows of the annals from values. Any bytes are a row or an error, and a row that is encoded again has the
//! same bytes.

use super::encode::turned_back;
use super::keys::take_age;
use super::row::{has, type_bits, usual_links, AnnalsRow, RowName};
use super::row::{COLLIDED, NAME, RECLAIMED, TYPE_SHIFT, VERSION};
use crate::varint::Reader;
use crate::{
    name_cookie, ContentKind, Corruption, DirEntry, EventNo, FileKind, Incarnation, Inode, InodeFlags,
    InodeNo, MetaAddr, Timestamp, EXTENT_INLINE_BYTES, INLINE_BYTES, INODE_LIMIT,
};
use std::borrow::Cow;

type Read<T> = Result<T, Box<Corruption>>;

impl<'a> AnnalsRow<'a> {
    /// Decodes the row that ended at `end` in a volume with this `hash_seed`, on which cookies depend.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value, or one that is not how such a row is encoded.
    pub fn decode(end: EventNo, bytes: &'a [u8], hash_seed: &[u8; 16]) -> Read<AnnalsRow<'a>> {
        let mut reader = Reader::new("row of the annals", bytes);
        let head = reader.byte("head")?;
        let (has_name, has_version) = (head & NAME != 0, head & VERSION != 0);
        let name_is_reclaimed = head & RECLAIMED != 0;
        let is_form = has_name && has_version || (has_name || has_version) && !name_is_reclaimed;
        if !is_form || (!has_name && (head & COLLIDED != 0 || head >> TYPE_SHIFT != 0)) {
            return reader.bad("head", "a form, and what goes with it", format!("{head:#04x}"));
        }
        let inode = file(&mut reader, "inode", 0)?;
        let incarnation = Incarnation(reader.number32("incarnation")?);
        let mut row = AnnalsRow { end, inode, incarnation, name: None, name_is_reclaimed, version: None };
        if has_name {
            row.name = Some(take_name(&mut reader, &row, head, hash_seed)?);
        }
        if has_version {
            let version = take_version(&mut reader, &row)?;
            if let Some(name) = &mut row.name {
                complete_kind(&reader, name, head, &version)?;
            }
            row.version = Some(Cow::Owned(version));
        }
        reader.end().map_err(|c| c.of(inode))?;
        Ok(row)
    }
}

/// The number of an inode, given as the difference to another one, or as it is to 0.
fn file(reader: &mut Reader<'_>, field: &'static str, to: u64) -> Read<InodeNo> {
    let no = match to {
        0 => InodeNo(reader.number(field)?),
        to => InodeNo(reader.signed(field)?.wrapping_add(to)),
    };
    match no.is_file() && no.0 < INODE_LIMIT {
        true => Ok(no),
        false => reader.bad(field, "a file's number", no),
    }
}

/// A name. Its type, where the version says it, is completed later.
fn take_name<'a>(
    reader: &mut Reader<'a>,
    row: &AnnalsRow<'_>,
    head: u8,
    hash_seed: &[u8; 16],
) -> Read<RowName<'a>> {
    let directory = file(reader, "directory", row.inode.0)?;
    let birth = take_age(reader, "birth of the name", row.end)?;
    let low = match head & COLLIDED {
        0 => 0,
        _ => match reader.byte("low byte of the cookie")? {
            0 => return reader.bad("low byte of the cookie", "left out", 0),
            low => low,
        },
    };
    let length = reader.byte("length of the name")?;
    let name = reader.bytes("name", length.into())?;
    if !DirEntry::is_name(name) {
        let expected = "1 to 255 bytes without / and NUL";
        return reader.bad("name", expected, format!("{:?}", String::from_utf8_lossy(name)));
    }
    let kind = match (head >> TYPE_SHIFT, head & VERSION) {
        // The mode says it.
        (0, VERSION) => FileKind::Regular,
        (kind, _) => match FileKind::from_repr(kind) {
            Some(kind) => kind,
            None => return reader.bad("type of the name", "one of the seven", kind),
        },
    };
    let cookie = name_cookie(hash_seed, name) | u64::from(low);
    Ok(RowName { directory, birth, cookie, kind, name })
}

/// Gives a name the type that the mode says, unless the head says another one.
fn complete_kind(reader: &Reader<'_>, name: &mut RowName<'_>, head: u8, version: &Inode) -> Read<()> {
    if head >> TYPE_SHIFT == 0 {
        if let Some(kind) = FileKind::from_mode(version.mode) {
            name.kind = kind;
        }
    } else if type_bits(name.kind, Some(version)) == 0 {
        return reader.bad("type of the name", "left out, as the mode says it", head >> TYPE_SHIFT);
    }
    Ok(())
}

fn take_version(reader: &mut Reader<'_>, row: &AnnalsRow<'_>) -> Read<Inode> {
    let fields = reader.number32("fields")?;
    let there = |field| fields & field != 0;
    let one_place = match fields & (has::PLACE | has::NO_PLACE) {
        0 => row.name.is_some(),
        start => start != has::PLACE | has::NO_PLACE,
    };
    if fields & !has::ALL != 0 || !one_place {
        return reader.bad("fields", "known ones, and one place", format!("{fields:#x}"));
    }
    let born = take_age(reader, "birth", row.end)?;
    let mode = u32::from(u16::from_le_bytes(reader.array("mode")?));
    let uid = reader.number32("owner")?;
    let gid = reader.signed32("group")?.wrapping_add(uid);
    let (size, blocks) = (reader.number("size")?, reader.number("blocks")?);
    let mtime = take_time(reader, "time of modification", |seconds| seconds)?;
    let mut inode = Inode {
        mode,
        links: usual_links(mode),
        uid,
        gid,
        size,
        blocks,
        incarnation: row.incarnation,
        atime: mtime,
        mtime,
        ctime: mtime,
        btime: mtime,
        born,
        has_policy: there(has::POLICY),
        ..Inode::free()
    };
    let before = |seconds: u64| (mtime.seconds as u64).wrapping_sub(seconds);
    if there(has::BTIME) {
        inode.btime = take_time(reader, "time of creation", before)?;
        must_differ(reader, "time of creation", inode.btime != mtime)?;
    }
    if there(has::CTIME) {
        inode.ctime = take_time(reader, "time of change", before)?;
        must_differ(reader, "time of change", inode.ctime != mtime)?;
    }
    if there(has::LINKS) {
        inode.links = reader.number32("number of names")?;
        must_differ(reader, "number of names", inode.links != usual_links(mode))?;
    }
    take_place(reader, row, &mut inode, fields)?;
    take_rest(reader, &mut inode, fields)?;
    take_content(reader, &mut inode)?;
    let sound = if inode.mode == 0 { reader.bad("mode", "that of a file", 0) } else { inode.verify() };
    sound.map_err(|c| c.of(row.inode))?;
    Ok(inode)
}

/// A field that is there says something.
fn must_differ(reader: &Reader<'_>, field: &'static str, differs: bool) -> Read<()> {
    match differs {
        true => Ok(()),
        false => reader.bad(field, "left out, as it is the usual", "there"),
    }
}

fn take_time(
    reader: &mut Reader<'_>,
    field: &'static str,
    absolute: impl FnOnce(u64) -> u64,
) -> Read<Timestamp> {
    let seconds = absolute(reader.signed(field)?) as i64;
    match u32::from_le_bytes(reader.array(field)?) {
        nanos @ 0..1_000_000_000 => Ok(Timestamp { seconds, nanos }),
        nanos => reader.bad(field, "less than 10^9 nanoseconds", nanos),
    }
}

/// Where the inode's latest name was.
fn take_place(reader: &mut Reader<'_>, row: &AnnalsRow<'_>, inode: &mut Inode, fields: u32) -> Read<()> {
    const FIELD: &str = "place";
    if fields & has::NO_PLACE != 0 {
        return Ok(());
    }
    let in_name = row.name.as_ref().map(|name| (name.directory, name.cookie));
    if fields & has::PLACE != 0 {
        inode.parent = InodeNo(reader.signed(FIELD)?.wrapping_add(row.inode.0));
    }
    inode.parent_incarnation = Incarnation(reader.signed32(FIELD)?.wrapping_add(row.incarnation.0));
    if fields & has::PLACE != 0 {
        inode.parent_cookie = u64::from_le_bytes(reader.array(FIELD)?);
        let start = (inode.parent, inode.parent_cookie);
        let is_none = (start, inode.parent_incarnation.0) == ((InodeNo::NONE, 0), 0);
        must_differ(reader, FIELD, !is_none && in_name != Some(start))?;
    } else if let Some(start) = in_name {
        (inode.parent, inode.parent_cookie) = start;
    }
    Ok(())
}

/// Fields that few versions have.
fn take_rest(reader: &mut Reader<'_>, inode: &mut Inode, fields: u32) -> Read<()> {
    if fields & has::XATTRS != 0 {
        inode.xattr_root = MetaAddr(reader.number("root of the attributes")?);
        must_differ(reader, "root of the attributes", !inode.xattr_root.is_none())?;
    }
    if fields & has::FLAGS != 0 {
        let bits = reader.number32("flags")?;
        must_differ(reader, "flags", bits != 0)?;
        inode.flags = match InodeFlags::from_bits(bits) {
            Some(flags) => flags,
            None => return reader.bad("flags", "known flags", format!("{bits:#x}")),
        };
    }
    if fields & has::DEVICE != 0 {
        inode.rdev = reader.number32("device number")?;
        must_differ(reader, "device number", inode.rdev != 0)?;
    }
    Ok(())
}

fn take_content(reader: &mut Reader<'_>, inode: &mut Inode) -> Read<()> {
    const FIELD: &str = "content";
    let word = reader.number32(FIELD)?;
    let (kind, count) = (word & 3, word >> 2);
    let most = match kind {
        0 => 0,
        _ if inode.is_directory() => return reader.bad(FIELD, "none of a directory", kind),
        1 => INLINE_BYTES as u32,
        2 => (INLINE_BYTES / EXTENT_INLINE_BYTES) as u32,
        _ => u8::MAX.into(),
    };
    if count > most {
        return reader.bad(FIELD, format!("a count of at most {most}"), count);
    }
    match kind {
        1 => {
            let bytes = reader.bytes(FIELD, count as usize)?;
            inode.content[..bytes.len()].copy_from_slice(bytes);
            inode.content_kind = ContentKind::Inline;
            inode.content_count = count as u8;
        }
        2 => {
            inode.content_kind = ContentKind::Extents;
            inode.content_count = count as u8;
            take_extents(reader, inode)?;
        }
        3 => inode.set_tree_root(MetaAddr(reader.number("root of the content")?), count as u8),
        _ => {}
    }
    Ok(())
}

fn take_extents(reader: &mut Reader<'_>, inode: &mut Inode) -> Read<()> {
    const FIELD: &str = "extents";
    let (count, born) = (usize::from(inode.content_count), inode.born.0);
    let mut end = 0u32;
    for extent in inode.content.chunks_exact_mut(EXTENT_INLINE_BYTES).take(count) {
        let first = reader.number32(FIELD)?.wrapping_add(end);
        let start = reader.number(FIELD)?;
        let length = turned_back(reader.number32(FIELD)?);
        let birth = born.wrapping_sub(reader.signed(FIELD)?);
        extent[..4].copy_from_slice(&first.to_le_bytes());
        extent[4..12].copy_from_slice(&start.to_le_bytes());
        extent[12..16].copy_from_slice(&length.to_le_bytes());
        extent[16..].copy_from_slice(&birth.to_le_bytes());
        end = first.wrapping_add(length & crate::EXTENT_LEN_MAX);
    }
    Ok(())
}
