//! Expunging by ioctl(2) on any open directory of a mount, of any time. The form of requests is that of [`super`].
//!
//! # What the history knows of a name: `_IOWR('Y', 20, 16376 bytes)`, and giving it up: `_IOWR('Y', 21, 16376 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | where to go on in the list; 0 at first, and in number 21 |
//! | 8..12 | flags: 1 of a directory also all that was ever named in it, and so on; 2 also the other files that the name has meant; 4, in number 20, tell what forbids to give it up |
//! | 12..16 | length of the name, 1 to 255 |
//! | 16..271 | the name, which may have a time; then zeros |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | where to go on, or 0 at the end of the list |
//! | 8..16 | how many files there are in all |
//! | 16..24, 24..32 | their versions, and the sizes of these added up |
//! | 32..40 | how many other files the name has meant, which are not among them |
//! | 40..44 | records that follow; none in number 21 |
//! | 48..56 | with flag 4, the number of a snapshot that has seen one of them and must stay, or 0 |
//! | 56..60 | why: 1 it is held, 2 it is mounted by itself, 3 somebody else took it |
//! | 64.. | the records |
//!
//! | bytes | of a record |
//! |---|---|
//! | 0..8, 8..12 | inode and incarnation |
//! | 12..16 | type bits of the mode, shifted right by 12; 256 is added if it is still there |
//! | 16..24, 24..32 | its versions, and their sizes added up |
//! | 32..36 | length of the path |
//! | 36.. | the path, from the file that was named; none for itself |
//!
//! For root, the daemon's user, and who owns all of them, now and in every version; EPERM for others, who learn nothing of names in
//! directories that are not theirs. Who owns them gives them up in snapshots that others took only on a mount that allows it: EPERM. ENOENT: the name means nothing.
//! EISDIR: a directory without flag 1. EBUSY: a snapshot that is held or mounted has seen one of them, and nothing is given
//! up. EINVAL: the root directory. Each part of the list is made anew.

use super::{call, check_writable, malformed, may_all, put, u32_at, u64_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::{Access, Doing, Error, FileKind, InodeNo, Number, Remembered, View};

const BYTES: usize = 16_376;
const LOOK: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 20);
const EXPUNGE: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 21);
const BELOW: u32 = 1;
const OTHERS: u32 = 2;
const FORBIDDEN: u32 = 4;
const IS_HELD: u32 = 1;
const IS_PINNED: u32 = 2;
const IS_OTHERS: u32 = 3;
const NAME_AT: usize = 16;
const NAME_MAX: usize = 255;
const FORBIDDEN_AT: usize = 48;
const RECORDS_AT: usize = 64;
const RECORD_BYTES: usize = 36;
const IN_USE: u32 = 256;

/// A name, and what else is meant with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The name, which may have a time.
    pub name: &'a [u8],
    /// Of a directory also all that was ever named in it, and so on.
    pub below: bool,
    /// Also the other files that the name has meant.
    pub others: bool,
}

/// What the history knows of the files that are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// How many there are.
    pub files: u64,
    /// Their versions.
    pub versions: u64,
    /// The sizes of these, added up.
    pub bytes: u64,
    /// How many others the name has meant, which are not among them.
    pub others: u64,
}

/// A file that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path from the one that was named; empty for itself.
    pub path: Vec<u8>,
    /// Inode and incarnation.
    pub inode: (InodeNo, u32),
    /// What it is.
    pub kind: FileKind,
    /// Its versions.
    pub versions: u64,
    /// Their sizes, added up.
    pub bytes: u64,
    /// It is still there.
    pub in_use: bool,
}

impl From<&Remembered> for Entry {
    fn from(of: &Remembered) -> Entry {
        let Remembered { path, inode, incarnation, kind, versions, bytes, in_use, .. } = of;
        let (inode, path) = ((*inode, *incarnation), path.clone());
        Entry { path, inode, kind: *kind, versions: *versions, bytes: *bytes, in_use: *in_use }
    }
}

/// The sums over files.
impl Known {
    /// Of these, and so many others.
    pub fn of(files: &[Remembered], others: usize) -> Known {
        let mut known = Known { files: files.len() as u64, others: others as u64, ..Known::default() };
        for file in files {
            known.versions += file.versions;
            known.bytes = known.bytes.saturating_add(file.bytes);
        }
        known
    }
}

/// What the history knows of a name in an open directory of a mount.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves; else as the text above.
pub fn look(dir: &File, wanted: &Wanted<'_>) -> io::Result<(Known, Vec<Entry>)> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let mut buffer = request(wanted, from, 0)?;
        call::<LOOK, BYTES>(dir, &mut buffer)?;
        let (next, known) = decode_head(&*buffer).ok_or_else(malformed)?;
        all.extend(decode_records(&*buffer).ok_or_else(malformed)?);
        if next == 0 {
            return Ok((known, all));
        }
        if next <= from {
            return Err(malformed());
        }
        from = next;
    }
}

/// What forbids to give it up: [`Error::Held`], [`Error::Pinned`] or [`Error::TakenByOthers`] with a snapshot that has seen some of it.
///
/// # Errors
/// As [`look`]; EINVAL from a daemon that cannot say.
pub fn forbidden(dir: &File, wanted: &Wanted<'_>) -> io::Result<Option<Error>> {
    let mut buffer = request(wanted, 0, FORBIDDEN)?;
    call::<LOOK, BYTES>(dir, &mut buffer)?;
    decode_forbidden(&*buffer).ok_or_else(malformed)
}

/// Gives it up; how much that is. Nobody sees any of it when this returns, and that is durable.
///
/// # Errors
/// As [`look`].
pub fn expunge(dir: &File, wanted: &Wanted<'_>) -> io::Result<Known> {
    check_writable(dir)?;
    let mut buffer = request(wanted, 0, 0)?;
    call::<EXPUNGE, BYTES>(dir, &mut buffer)?;
    decode_head(&*buffer).map(|(_, known)| known).ok_or_else(malformed)
}

/// Whether a request is one of these.
pub(crate) fn is_ours(number: Opcode) -> bool {
    [LOOK, EXPUNGE].contains(&number)
}

/// Who asks.
pub(crate) struct By<'a> {
    /// The user.
    pub uid: u32,
    /// What of the history he may be told.
    pub access: &'a Access,
    /// Nothing can be changed on the mount.
    pub read_only: bool,
    /// Owners may give up what others' snapshots have seen, too.
    pub from_others: bool,
}

/// What the history knows of a name, if the user may give it up. To others it is told of no name whether it was there, unless the directory is
/// theirs and they may look into it; and of what is not theirs nothing is looked for below it.
fn of_owner(
    view: &View,
    directory: InodeNo,
    by: &By<'_>,
    wanted: &Wanted<'_>,
) -> Result<(Vec<Remembered>, usize), Failure> {
    let look = |below| view.history_of(directory, wanted.name, below, wanted.others);
    if may_all(by.uid) {
        return Ok(look(wanted.below)?);
    }
    let refused = Failure::Number(Errno::EPERM);
    let is_owner = |found: &(Vec<Remembered>, usize)| found.0.iter().all(|file| file.owners == [by.uid]);
    let is_mine = |node: &yore_fs::Node| node.attr().uid == by.uid;
    let found = match (wanted.below, view.named(directory, wanted.name)) {
        (true, Ok(node)) if !is_mine(&node) => return Err(refused),
        (_, Ok(_)) => look(wanted.below),
        (_, Err(error)) => Err(error),
    };
    match found {
        Ok(found) if is_owner(&found) => Ok(found),
        Ok(_) => Err(refused),
        Err(error) => {
            let is_theirs = view.getattr(directory)?.uid == by.uid;
            match is_theirs && by.access.lists(directory, view.cut())? {
                true => Err(error.into()),
                false => Err(refused),
            }
        }
    }
}

/// The daemon's half. `gone` is told of what was given up, and of the cuts that there were.
pub(crate) fn answer(
    view: &View,
    directory: InodeNo,
    by: &By<'_>,
    (number, request): (Opcode, &[u8]),
    gone: impl FnOnce(&[Remembered], &[Number]),
) -> Result<Vec<u8>, Failure> {
    if view.getattr(directory)?.kind != FileKind::Directory {
        return Err(Failure::Number(Errno::ENOTTY));
    }
    let (wanted, from, asks) = decode(request).ok_or(Failure::Number(Errno::EINVAL))?;
    if asks && number != LOOK {
        return Err(Failure::Number(Errno::EINVAL));
    }
    let (files, others) = of_owner(view, directory, by, &wanted)?;
    let known = Known::of(&files, others);
    let numbers: Vec<_> = files.iter().map(|file| (file.inode, file.incarnation)).collect();
    let check_others = || match by.from_others || may_all(by.uid) {
        true => Ok(()),
        false => view.check_taken_by(&numbers, by.uid),
    };
    if number == LOOK {
        let mut bytes = encode(&known, &files, from);
        if asks {
            put_forbidden(&mut bytes, view.check_expunge(&numbers).and_then(|()| check_others()))?;
        }
        return Ok(bytes);
    }
    if by.read_only {
        return Err(Error::ReadOnly.into());
    }
    check_others()?;
    let view = view.present();
    let cuts: Vec<Number> = view.cuts()?.iter().map(|cut| cut.number).collect();
    view.expunge(&numbers)?;
    let doing = Doing { view: &view, uid: by.uid };
    doing.note([doing.expunging(directory, numbers.len())?]);
    gone(&files, &cuts);
    Ok(encode(&known, &[], 0))
}

fn put_forbidden(bytes: &mut [u8], outcome: yore_fs::Result<()>) -> yore_fs::Result<()> {
    let (cut, why) = match outcome {
        Ok(()) => (0, 0),
        Err(Error::Held { cut } | Error::HeldUntil { cut, .. }) => (cut, IS_HELD),
        Err(Error::Pinned { cut }) => (cut, IS_PINNED),
        Err(Error::TakenByOthers { cut }) => (cut, IS_OTHERS),
        Err(e) => return Err(e),
    };
    put(bytes, FORBIDDEN_AT, &cut.to_le_bytes());
    put(bytes, FORBIDDEN_AT + 8, &why.to_le_bytes());
    Ok(())
}

fn decode_forbidden(bytes: &[u8]) -> Option<Option<Error>> {
    let cut = u64_at(bytes, FORBIDDEN_AT)?;
    match u32_at(bytes, FORBIDDEN_AT + 8)? {
        0 => Some(None),
        IS_HELD => Some(Some(Error::Held { cut })),
        IS_PINNED => Some(Some(Error::Pinned { cut })),
        IS_OTHERS => Some(Some(Error::TakenByOthers { cut })),
        _ => None,
    }
}

fn request(wanted: &Wanted<'_>, from: u64, more: u32) -> io::Result<Box<[u8; BYTES]>> {
    if !(1..=NAME_MAX).contains(&wanted.name.len()) {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let mut buffer = Box::new([0; BYTES]);
    put(&mut *buffer, 0, &from.to_le_bytes());
    let flags = flag(wanted.below, BELOW) | flag(wanted.others, OTHERS) | more;
    put(&mut *buffer, 8, &flags.to_le_bytes());
    put(&mut *buffer, 12, &(wanted.name.len() as u32).to_le_bytes());
    put(&mut *buffer, NAME_AT, wanted.name);
    Ok(buffer)
}

/// What is wanted, where to go on, and whether it is asked what forbids to give it up.
fn decode(bytes: &[u8]) -> Option<(Wanted<'_>, u64, bool)> {
    let (from, flags) = (u64_at(bytes, 0)?, u32_at(bytes, 8)?);
    let len = usize::try_from(u32_at(bytes, 12)?).ok().filter(|len| (1..=NAME_MAX).contains(len))?;
    let name = bytes.get(NAME_AT..NAME_AT + len)?;
    let clear = bytes.len() == BYTES && bytes.iter().skip(NAME_AT + len).all(|b| *b == 0);
    let known = flags & !(BELOW | OTHERS | FORBIDDEN) == 0 && !name.contains(&b'/') && !name.contains(&0);
    let wanted = Wanted { name, below: flags & BELOW != 0, others: flags & OTHERS != 0 };
    (clear && known).then_some((wanted, from, flags & FORBIDDEN != 0))
}

fn encode(known: &Known, files: &[Remembered], from: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECORDS_AT];
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let (mut count, mut next) = (0u32, 0u64);
    for (at, file) in files.iter().enumerate().skip(from) {
        // A path that would not fit into any answer is left out.
        let path = Some(&file.path[..]).filter(|path| path.len() <= BYTES - RECORDS_AT - RECORD_BYTES);
        let path = path.unwrap_or_default();
        if bytes.len() + RECORD_BYTES + path.len() > BYTES {
            next = at as u64;
            break;
        }
        let in_use = if file.in_use { IN_USE } else { 0 };
        bytes.extend(file.inode.0.to_le_bytes());
        bytes.extend(file.incarnation.to_le_bytes());
        bytes.extend((file.kind as u32 | in_use).to_le_bytes());
        bytes.extend(file.versions.to_le_bytes());
        bytes.extend(file.bytes.to_le_bytes());
        bytes.extend((path.len() as u32).to_le_bytes());
        bytes.extend(path);
        count += 1;
    }
    for (at, value) in
        [(0, next), (8, known.files), (16, known.versions), (24, known.bytes), (32, known.others)]
    {
        put(&mut bytes, at, &value.to_le_bytes());
    }
    put(&mut bytes, 40, &count.to_le_bytes());
    bytes.resize(BYTES, 0);
    bytes
}

fn decode_head(bytes: &[u8]) -> Option<(u64, Known)> {
    let [files, versions, sizes, others] = [8, 16, 24, 32].map(|at| u64_at(bytes, at));
    Some((u64_at(bytes, 0)?, Known { files: files?, versions: versions?, bytes: sizes?, others: others? }))
}

fn decode_records(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (mut entries, mut at) = (Vec::new(), RECORDS_AT);
    for _ in 0..u32_at(bytes, 40)? {
        let kind = u32_at(bytes, at + 12)?;
        let len = usize::try_from(u32_at(bytes, at + 32)?).ok()?;
        let path = bytes.get(at + RECORD_BYTES..)?.get(..len)?.to_vec();
        entries.push(Entry {
            path,
            inode: (InodeNo(u64_at(bytes, at)?), u32_at(bytes, at + 8)?),
            kind: FileKind::from_mode((kind & !IN_USE) << 12)?,
            versions: u64_at(bytes, at + 16)?,
            bytes: u64_at(bytes, at + 24)?,
            in_use: kind & IN_USE != 0,
        });
        at += RECORD_BYTES + len;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::{Caller, SetAttr, Volume};

    /// Requests and answers are read as they were meant, in parts too; anything else is refused.
    #[test]
    fn requests_and_answers() {
        let wanted = Wanted { name: b"a@yesterday", below: true, others: false };
        assert_eq!(decode(&*request(&wanted, 7, FORBIDDEN).unwrap()), Some((wanted, 7, true)));
        let bytes = request(&wanted, 7, 0).unwrap();
        assert_eq!(decode(&*bytes), Some((wanted, 7, false)));
        for (at, value) in [(8, 8), (12, 0), (13, 1), (16, b'/'), (17, 0), (40, 1), (BYTES - 1, 1)] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert_eq!(decode(&*changed), None, "{at}");
        }
        assert_eq!(decode(&bytes[1..]), None);
        for name in [&b""[..], &[b'a'; 256]] {
            assert!(request(&Wanted { name, ..wanted }, 0, 0).is_err());
        }
        let volume = Volume::memory(64 << 20).unwrap();
        volume.create_dir("d").unwrap();
        let view = volume.view();
        for n in 0..700 {
            volume.write(format!("d/{n}"), "x").unwrap();
        }
        view.snapshot(view.root(), "", false, false).unwrap();
        let (files, others) = view.history_of(view.root(), b"d", true, false).unwrap();
        let known = Known::of(&files, others);
        assert_eq!((known.files, known.versions), (701, 0));
        let (mut found, mut from, mut parts) = (Vec::new(), 0, 0);
        loop {
            let answer = encode(&known, &files, from);
            let (next, head) = decode_head(&answer).unwrap();
            assert_eq!((answer.len(), &head), (BYTES, &known));
            found.extend(decode_records(&answer).unwrap());
            parts += 1;
            from = next;
            if next == 0 {
                break;
            }
        }
        assert!(parts > 1);
        assert_eq!(found, files.iter().map(Entry::from).collect::<Vec<_>>());
    }

    /// Root, and who owns all states; nobody else, and not through a mount that is read-only.
    #[test]
    fn who_may() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view().clone();
        let owner = |uid| {
            let set = SetAttr { uid: Some(uid), ..SetAttr::default() };
            let inode = volume.node("a").unwrap().inode();
            view.setattr(&Caller::superuser(), inode, &set).unwrap();
        };
        volume.write("a", "1").unwrap();
        owner(9);
        view.snapshot(view.root(), "one", false, false).unwrap();
        owner(4711);
        let ask = |uid, read_only, number| {
            let request = request(&Wanted { name: b"a", below: false, others: false }, 0, 0).unwrap();
            let access = view.access(None, view.root());
            let by = By { uid, access: &access, read_only, from_others: false };
            let outcome = answer(&view, view.root(), &by, (number, &request[..]), |_, _| ());
            outcome.map(|bytes| decode_head(&bytes).unwrap().1.versions).map_err(|e| e.errno().code())
        };
        for uid in [9, 4711] {
            assert_eq!(ask(uid, false, LOOK), Err(libc::EPERM));
            assert_eq!(ask(uid, false, EXPUNGE), Err(libc::EPERM));
        }
        assert_eq!(ask(0, false, LOOK), Ok(1));
        assert_eq!(ask(0, true, EXPUNGE), Err(libc::EROFS));
        assert_eq!(ask(0, false, EXPUNGE), Ok(1));
        view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(ask(4711, false, LOOK), Ok(0));
    }
}
