//! Rolling back by ioctl(2) on an open directory of a mount: it becomes what it was, in one operation of the daemon. The form of requests is
//! that of [`super`].
//!
//! # Make a directory what it was: `_IOWR('Y', 22, 4,608 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | the snapshot as of which it becomes what it was |
//! | 8..16, 16..24 | what others changed between these two snapshots is left alone; 0 and 0: nothing is; the second one 0: until now |
//! | 24..32 | the number of the operation that is undone |
//! | 32..36 | what it is called: 1 a rollback, 2 an undo, 3 a redo |
//! | 36..40 | flags: 1 it undoes the operation of that number |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..4 | 0 it is done; 1 it is done, and cannot be undone by itself, for another snapshot has the name; 2 nothing differed, and nothing was done; 3 something is not the caller's, and nothing was done; 4 it is refused; 5 it did not end; 6 something is immutable or append-only, and nothing was done; 7 there is no room for all that comes back, and nothing was done |
//! | 4..8 | with 5, the number of the error |
//! | 8..12, 12..16 | lengths of two texts |
//! | 16.. | the texts: the operation's name as in `rollback-3`, and with 5 why it did not end; with 3 and 6 the path, with 4 why, with 7 in digits how many bytes are missing |
//!
//! It is answered when all is durable and the kernel has been told what it must not believe any more. Requests that concern the directory wait
//! meanwhile, behind it.
//!
//! For root and the daemon's user; for the directory's owner if all that is changed, removed or brought back is his. EPERM for others.
//! ENOENT: one of the snapshots is not kept, or has not seen the directory. EROFS, ENOSPC, EIO as elsewhere: nothing was done.
//!
//! # What is not finished: `_IOWR('Y', 23, 16376 bytes)`
//!
//! The request is zeros. The answer has the number of records (4 bytes), and from byte 8 on the records, each as long as its texts make it:
//!
//! | bytes | of a record |
//! |---|---|
//! | 0..8, 8..12 | inode and incarnation of the directory |
//! | 12..16 | flags: 1 it was given up, 2 has a path |
//! | 16..24, 24..32 | the snapshot as of which it was to become what it was; the one before it |
//! | 32..36, 36..40 | lengths of two texts |
//! | 40.. | the operation's name, and the directory's path on the volume as it is now |
//!
//! For root and the daemon's user all of them; for others those of their own directories.

use super::look::told::visible_part;
use super::{call, check_writable, malformed, may_all, put, u32_at, u64_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use yore_fs::rollback::{Changed, Plan, Rights, RolledBack, UnfinishedRollback, Verb};
use yore_fs::{Access, Doing, Error, FileKind, InodeNo, Number, User, View};

const BYTES: usize = 4_608;
const LIST_BYTES: usize = 16_376;
pub(crate) const ROLL_BACK: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 22);
const UNFINISHED: Opcode = opcode::read_write::<[u8; LIST_BYTES]>(b'Y', 23);

const IS_OF: u32 = 1;
const VERBS: [Verb; 3] = [Verb::Rollback, Verb::Undo, Verb::Redo];
const DONE: u32 = 0;
const WITHOUT_END: u32 = 1;
const NOTHING: u32 = 2;
const NOT_YOURS: u32 = 3;
const REFUSED: u32 = 4;
const NOT_ENDED: u32 = 5;
const PROTECTED: u32 = 6;
const NEVER_FITS: u32 = 7;
const TEXTS_AT: usize = 16;
const LIST_AT: usize = 8;
const RECORD_BYTES: usize = 40;
const STOPPED: u32 = 1;
const HAS_PATH: u32 = 2;

/// What came of it.
pub type Outcome = Result<RolledBack, Error>;

/// Makes an open directory of a mount what it was; returns when that is durable, with what the daemon said of it.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon cannot do that; else as the text above.
pub fn roll_back(dir: &File, plan: &Plan) -> io::Result<Outcome> {
    check_writable(dir)?;
    let mut buffer = Box::new(encode(plan).ok_or(rustix::io::Errno::INVAL)?);
    // What programs wrote and the kernel still has belongs before it.
    rustix::fs::syncfs(dir)?;
    call::<ROLL_BACK, BYTES>(dir, &mut buffer)?;
    decode_outcome(&*buffer).ok_or_else(malformed)
}

/// The rollbacks that are not finished, on the volume of an open directory of a mount.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves.
pub fn unfinished(dir: &File) -> io::Result<Vec<UnfinishedRollback>> {
    Ok(unfinished_with_paths(dir)?.into_iter().map(|(one, _)| one).collect())
}

/// The same with the paths on the volume of the directories, where they are still there.
///
/// # Errors
/// As [`unfinished`].
pub fn unfinished_with_paths(dir: &File) -> io::Result<Vec<(UnfinishedRollback, Option<PathBuf>)>> {
    let mut buffer = Box::new([0; LIST_BYTES]);
    call::<UNFINISHED, LIST_BYTES>(dir, &mut buffer)?;
    decode_list(&*buffer).ok_or_else(malformed)
}

/// Whether a request is one for [`list`].
pub(crate) fn is_list(number: Opcode) -> bool {
    number == UNFINISHED
}

/// The daemon's half of a rollback, for a thread that serves no requests. `changed` tells the kernel.
pub(crate) fn answer(
    view: &View,
    directory: InodeNo,
    (user, groups, access): (&User, &[u32], &Access),
    read_only: bool,
    request: &[u8],
    changed: &mut dyn FnMut(Changed),
) -> Result<Vec<u8>, Failure> {
    let uid = user.uid;
    let plan = decode(request).ok_or(Failure::Number(Errno::EINVAL))?;
    let attr = view.getattr(directory)?;
    if attr.kind != FileKind::Directory {
        return Err(Failure::Number(Errno::ENOTTY));
    }
    let rights = match may_all(uid) {
        // As for taking such flags away.
        true if uid == 0 => Rights::All,
        true => Rights::Unprotected,
        false if attr.uid == uid => Rights::Owner { uid, groups: groups.to_vec() },
        false => return Err(Failure::Number(Errno::EPERM)),
    };
    if read_only || view.cut().is_some() {
        return Err(Error::ReadOnly.into());
    }
    let outcome = match view.rollback_for(Some(user), &rights, directory, &plan, changed) {
        // What is not the caller's may be where he may not look.
        Err(Error::NotYours { path }) => {
            Err(Error::NotYours { path: visible_part(view, access, directory, plan.target, &path)? })
        }
        Err(Error::Protected { path }) => {
            Err(Error::Protected { path: visible_part(view, access, directory, plan.target, &path)? })
        }
        outcome => outcome,
    };
    let name = match &outcome {
        Ok(done) => &done.name,
        Err(Error::Unfinished { name, .. }) => name,
        Err(_) => "",
    };
    let doing = Doing { view, uid };
    doing.note(doing.rolling(directory, name)?);
    encode_outcome(outcome)
}

/// The daemon's half of the list.
pub(crate) fn list(view: &View, uid: u32, request: &[u8]) -> Result<Vec<u8>, Failure> {
    if request.len() != LIST_BYTES || request.iter().any(|b| *b != 0) {
        return Err(Failure::Number(Errno::EINVAL));
    }
    let view = view.present();
    let (mut bytes, mut count) = (vec![0; LIST_AT], 0u32);
    for one in view.unfinished_rollbacks()? {
        let is_owner = || match view.node(one.directory, Some(one.incarnation)) {
            Ok(node) => Ok(node.attr().uid == uid),
            Err(Error::Stale) => Ok(false),
            Err(e) => Err(e),
        };
        if !may_all(uid) && !is_owner()? {
            continue;
        }
        let record = encode_record(&one, view.path_now(one.directory)?);
        if bytes.len() + record.len() > LIST_BYTES {
            break;
        }
        bytes.extend(record);
        count += 1;
    }
    put(&mut bytes, 0, &count.to_le_bytes());
    bytes.resize(LIST_BYTES, 0);
    Ok(bytes)
}

/// `None` for what is no rollback, undo or redo.
fn encode(plan: &Plan) -> Option<[u8; BYTES]> {
    let verb = VERBS.iter().position(|verb| *verb == plan.verb)? as u32 + 1;
    let (from, to) = plan.others.map_or((0, 0), |(from, to)| (from.0, to.unwrap_or_default().0));
    let mut bytes = [0; BYTES];
    for (at, number) in [(0, plan.target.0), (8, from), (16, to), (24, plan.of.unwrap_or_default())] {
        put(&mut bytes, at, &number.to_le_bytes());
    }
    put(&mut bytes, 32, &verb.to_le_bytes());
    put(&mut bytes, 36, &(if plan.of.is_some() { IS_OF } else { 0 }).to_le_bytes());
    Some(bytes)
}

fn decode(bytes: &[u8]) -> Option<Plan> {
    let [target, from, to, of] = [0, 8, 16, 24].map(|at| u64_at(bytes, at));
    let (target, from, to, of) = (target?, from?, to?, of?);
    let verb = *VERBS.get(usize::try_from(u32_at(bytes, 32)?).ok()?.checked_sub(1)?)?;
    let flags = u32_at(bytes, 36)?;
    let clear = bytes.len() == BYTES && bytes.iter().skip(40).all(|b| *b == 0) && flags & !IS_OF == 0;
    let of = match (flags & IS_OF != 0, of) {
        (true, of) => Some(of),
        (false, 0) => None,
        (false, _) => return None,
    };
    let others = match (from, to) {
        (0, 0) => None,
        (0, _) => return None,
        (from, to) => Some((Number(from), Some(Number(to)).filter(|to| to.0 > 0))),
    };
    (clear && target > 0).then_some(Plan { verb, of, target: Number(target), others })
}

fn encode_outcome(outcome: Outcome) -> Result<Vec<u8>, Failure> {
    let (what, errno, texts) = match outcome {
        Ok(RolledBack { name, .. }) if name.is_empty() => (NOTHING, 0, [name, String::new()]),
        Ok(RolledBack { name, has_end: true }) => (DONE, 0, [name, String::new()]),
        Ok(RolledBack { name, has_end: false }) => (WITHOUT_END, 0, [name, String::new()]),
        Err(Error::NotYours { path }) => (NOT_YOURS, 0, [path, String::new()]),
        Err(Error::Protected { path }) => (PROTECTED, 0, [path, String::new()]),
        Err(Error::NeverFits { missing }) => (NEVER_FITS, 0, [missing.to_string(), String::new()]),
        Err(Error::Refused(why)) => (REFUSED, 0, [why, String::new()]),
        Err(Error::Unfinished { name, source }) => {
            tracing::error!(%source, "{name} did not end");
            (NOT_ENDED, crate::errno::errno(&source).code(), [name, source.to_string()])
        }
        Err(error) => return Err(error.into()),
    };
    let mut bytes = vec![0; TEXTS_AT];
    put(&mut bytes, 0, &what.to_le_bytes());
    put(&mut bytes, 4, &errno.to_le_bytes());
    let mut room = BYTES - TEXTS_AT;
    for (n, text) in texts.iter().enumerate() {
        // What would not fit is cut short; it is for people.
        let end = (0..=text.len().min(room)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        put(&mut bytes, 8 + 4 * n, &(end as u32).to_le_bytes());
        bytes.extend(&text.as_bytes()[..end]);
        room -= end;
    }
    bytes.resize(BYTES, 0);
    Ok(bytes)
}

fn decode_outcome(bytes: &[u8]) -> Option<Outcome> {
    let [first, second] = texts(bytes, 8, TEXTS_AT)?;
    let [first, second] = [first, second].map(|text| String::from_utf8_lossy(text).into_owned());
    Some(match u32_at(bytes, 0)? {
        DONE => Ok(RolledBack { name: first, has_end: true }),
        WITHOUT_END => Ok(RolledBack { name: first, has_end: false }),
        NOTHING => Ok(RolledBack::default()),
        NOT_YOURS => Err(Error::NotYours { path: first }),
        PROTECTED => Err(Error::Protected { path: first }),
        REFUSED => Err(Error::Refused(first)),
        NEVER_FITS => Err(Error::NeverFits { missing: first.parse().ok()? }),
        NOT_ENDED => {
            let source = match u32_at(bytes, 4)? as i32 {
                libc::ENOSPC => Error::NoSpace,
                _ => Error::Refused(second),
            };
            Err(Error::Unfinished { name: first, source: Box::new(source) })
        }
        _ => return None,
    })
}

/// Two texts, whose lengths are at one place and which themselves are at another one.
fn texts(bytes: &[u8], lengths: usize, at: usize) -> Option<[&[u8]; 2]> {
    let length = |at| usize::try_from(u32_at(bytes, at)?).ok();
    let (first, second) = (length(lengths)?, length(lengths + 4)?);
    let rest = bytes.get(at..)?;
    Some([rest.get(..first)?, rest.get(first..first.checked_add(second)?)?])
}

fn encode_record(one: &UnfinishedRollback, path: Option<PathBuf>) -> Vec<u8> {
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let path_bytes = path.as_ref().map(|path| path.as_os_str().as_bytes()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    bytes.extend(one.directory.0.to_le_bytes());
    bytes.extend(one.incarnation.to_le_bytes());
    bytes.extend((flag(one.stopped, STOPPED) | flag(path.is_some(), HAS_PATH)).to_le_bytes());
    bytes.extend(one.target.0.to_le_bytes());
    bytes.extend(one.before.0.to_le_bytes());
    bytes.extend((one.name.len() as u32).to_le_bytes());
    bytes.extend((path_bytes.len() as u32).to_le_bytes());
    bytes.extend(one.name.as_bytes());
    bytes.extend(path_bytes);
    bytes
}

fn decode_list(bytes: &[u8]) -> Option<Vec<(UnfinishedRollback, Option<PathBuf>)>> {
    let (mut all, mut at) = (Vec::new(), LIST_AT);
    for _ in 0..u32_at(bytes, 0)? {
        let [name, path] = texts(bytes, at + 32, at + RECORD_BYTES)?;
        let flags = u32_at(bytes, at + 12)?;
        let one = UnfinishedRollback {
            name: String::from_utf8_lossy(name).into_owned(),
            directory: InodeNo(u64_at(bytes, at)?),
            incarnation: u32_at(bytes, at + 8)?,
            target: Number(u64_at(bytes, at + 16)?),
            before: Number(u64_at(bytes, at + 24)?),
            stopped: flags & STOPPED != 0,
        };
        let found = PathBuf::from(OsString::from_vec(path.to_vec()));
        all.push((one, (flags & HAS_PATH != 0).then_some(found)));
        at += RECORD_BYTES + name.len() + path.len();
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::{SetAttr, Volume};

    /// Requests and answers are read as they were meant; anything else is refused.
    #[test]
    fn requests_and_answers() {
        let others = [None, Some((Number(3), None)), Some((Number(3), Some(Number(9))))];
        for (verb, others) in VERBS.into_iter().zip(others) {
            let plan = Plan { verb, of: others.map(|_| 0), target: Number(7), others };
            assert_eq!(decode(&encode(&plan).unwrap()), Some(plan));
        }
        let plan = Plan { verb: Verb::Rollback, of: None, target: Number(7), others: None };
        assert!(encode(&Plan { verb: Verb::Restore, ..plan }).is_none());
        let bytes = encode(&plan).unwrap();
        for (at, value) in [(0, 0), (16, 1), (24, 1), (32, 0), (32, 4), (36, 2), (40, 1), (BYTES - 1, 1)] {
            let mut changed = bytes;
            changed[at] = value;
            assert_eq!(decode(&changed), None, "{at}");
        }
        assert_eq!(decode(&bytes[1..]), None);
        let done = |name: &str, has_end| Ok(RolledBack { name: name.into(), has_end });
        for outcome in [done("rollback-1", true), done("undo-2-of-1", false), done("", false)] {
            let bytes = encode_outcome(outcome.clone()).unwrap();
            assert_eq!(bytes.len(), BYTES);
            assert_eq!(decode_outcome(&bytes).unwrap().unwrap(), outcome.unwrap());
        }
        let long = "ü".repeat(BYTES);
        for error in [
            Error::NotYours { path: "a/b".into() },
            Error::Protected { path: "a/b".into() },
            Error::NeverFits { missing: 4_711 },
            Error::Refused(long),
            Error::Unfinished { name: "rollback-1".into(), source: Box::new(Error::NoSpace) },
        ] {
            let text = error.to_string();
            let bytes = encode_outcome(Err(error)).unwrap();
            assert_eq!(bytes.len(), BYTES);
            let found = decode_outcome(&bytes).unwrap().unwrap_err().to_string();
            assert!(text.starts_with(&found) && !found.is_empty(), "{found}");
        }
        assert!(encode_outcome(Err(Error::NotFound)).is_err());
    }

    /// Root may all, owners what is theirs, others nothing; and not where the mount is read-only.
    #[test]
    fn who_may() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view().clone();
        volume.create_dir("d").unwrap();
        volume.write("d/a", "1").unwrap();
        for path in ["d", "d/a"] {
            let set = SetAttr { uid: Some(4711), gid: Some(4711), ..SetAttr::default() };
            volume.set_symlink_attributes(path, &set).unwrap();
        }
        let dir = volume.node("d").unwrap().inode();
        let then = view.snapshot(dir, "", false, false).unwrap().number;
        let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
        let request = encode(&plan).unwrap();
        let ask = |uid, read_only| {
            let user = User { uid, limits: None };
            let access = view.access(None, view.root());
            let outcome = answer(&view, dir, (&user, &[uid], &access), read_only, &request, &mut |_| ());
            outcome.map(|bytes| u32_at(&bytes, 0).unwrap()).map_err(|e| e.errno().code())
        };
        volume.write("d/a", "2").unwrap();
        assert_eq!(ask(9, false), Err(libc::EPERM));
        assert_eq!(ask(0, true), Err(libc::EROFS));
        assert_eq!(ask(4711, false), Ok(DONE));
        assert_eq!(ask(4711, false), Ok(NOTHING));
        volume.write("d/by-root", "").unwrap();
        assert_eq!(ask(4711, false), Ok(NOT_YOURS));
        assert_eq!(ask(0, false), Ok(DONE));
        assert_eq!(decode_list(&list(&view, 4711, &[0; LIST_BYTES]).unwrap()), Some(vec![]));
        assert!(list(&view, 0, &[1; LIST_BYTES]).is_err());
    }
}
