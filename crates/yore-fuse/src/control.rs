//! What a mount can be asked for beside files: snapshots, taken, listed, held and forgotten by ioctl(2) on any directory of it.
//!
//! An ioctl carries who asks, arrives at the right daemon whatever the mount is called, and needs no socket that has to be found.
//! These are *restricted* ones: the number says how many bytes go in and come back, so the kernel copies a buffer of that size
//! in both directions and nothing else. One buffer holds first the request and then the answer. All numbers in it are
//! little-endian; bytes without a meaning are zero, and a request in which they are not is EINVAL.
//!
//! # Take a snapshot: `_IOWR('Y', 1, 264 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..4 | flags: 1 hold it, 2 be durable when it returns, 4 it is taken before (or after) something that can be undone: of kind 4; 8 it is not forgotten as long as the process that asks lives |
//! | 4..8 | length of the name, 0 to 255 |
//! | 8..263 | the name, UTF-8; then zeros |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | the snapshot's number |
//! | 8..16 | its time, seconds since 1970 (signed) |
//! | 16..20 | and nanoseconds |
//!
//! For root, the daemon's user and the directory's owner; EPERM for others. EEXIST: a kept snapshot has the name. EINVAL: the name
//! is none. EDQUOT: the user has as many snapshots, or holds, as one may. EROFS, ENOSPC, EIO as elsewhere. EAGAIN: too many processes want a snapshot to stay; none was taken. A process that the
//! daemon cannot see, in another namespace of processes, takes one that can be forgotten like others.
//!
//! # List snapshots: `_IOWR('Y', 2, 16376 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | the least number to list |
//! | 8..12 | flags: 1 only that snapshot as of which the directory asked is seen, none in the present; then the number is 0; 2 of a file in it; 4 with what people say of it |
//! | 12..16 | with flag 2, length of the file's name, 1 to 255 |
//! | 16..271 | and the name, which may have a time; then zeros |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | the number to go on from, or 0 at the end of the list |
//! | 8..12 | records that follow; 0 does not mean the end |
//! | 16.. | the records, each as long as a multiple of 8 |
//!
//! | bytes | of a record |
//! |---|---|
//! | 0..8 | number |
//! | 8..16, 16..20 | time, as above |
//! | 20 | kind: 1 snapshot, 2 close, 3 interval, 4 undo, 5 removed |
//! | 21 | flags: 1 held, 2 the directory asked can be seen as of it, 4 has a path, 8 has a next one, 16 of that very directory, 32 mounted by itself, 64 pinned (mounted, or something under way needs it) |
//! | 22..24 | length of the name |
//! | 24..32, 32..36 | inode and incarnation of what was cut |
//! | 36..40 | length of the path |
//! | 40..48, 48..52 | time of the next one on the volume, whatever it is of |
//! | 52..56 | with flag 4 of the request: how many bytes say more |
//! | 56.. | the name, behind it the path on the volume as it is now, from `/`, and behind that what says more |
//!
//! | bytes | of what says more |
//! |---|---|
//! | 0..4, 4..8 | the users who took it and who hold it, or all ones |
//! | 8..16 | until when it is held, seconds since 1970, or the least number that there is |
//! | 16..18, 18..20 | lengths of the description and of the reason for which it is held |
//! | 24.. | both |
//!
//! For everybody who may open the directory. It has those snapshots in which the directory can be seen, and those of
//! directories below of which the caller could take one himself: of what is above or beside nobody learns anything that
//! `name@TIME` would not tell.
//!
//! Of a file it has those of the file itself, the versions that a policy made; with flag 1 the one that is seen under the name,
//! whatever it is of. The path is then that of what was cut, a file too. ENOENT: the name means nothing, and never did.
//!
//! # Forget snapshots: `_IOWR('Y', 3, 2056 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..4 | how many, 1 to 256 |
//! | 8..2056 | their numbers, 8 bytes each; then zeros |
//!
//! All of them, or none if one cannot be; wherever they are of: it does not matter which directory is asked, and it may be one
//! of the past. When it returns they are forgotten for good; the space that they alone held is given back in the background.
//! The answer means nothing.
//!
//! Of each, for root, the daemon's user, and the owner of the directory that was cut, unless somebody else took the snapshot; if the
//! directory is gone, not for owners any more.
//! ENOENT: there is no such snapshot (any more). EPERM: one is somebody else's. EBUSY: one is held, by somebody or by a policy, or mounted by itself. EROFS, ENOSPC, EIO as
//! elsewhere.
//!
//! # Hold a snapshot, or release it: `_IOWR('Y', 4, 16 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | its number |
//! | 8..12 | 1: from now on it is held and not forgotten, 0: no longer |
//!
//! To hold: for root, the daemon's user, and the owner of the directory, unless somebody else holds it already. To release: for the same,
//! unless somebody else holds it (of a hold by nobody known: took it). Errors as above. Durable when it returns. To hold what is held changes nothing. The answer means nothing.
//!
//! # Look at history: numbers 5 to 7, and 10; policies: 8 and 9
//!
//! See [`look`], and [`policy`], which regular files answer, too.
//!
//! # Expunge: numbers 20 and 21; roll back: 22 and 23; say more of snapshots: 32 and 33; who did what: 34
//!
//! See [`expunge`], [`rollback`], [`names`] and [`operations`].
//!
//! # Make the volume longer: number 60; erase what nothing names: 61
//!
//! See [`resize`] and [`shred`].
//!
//! # What a full volume keeps: numbers 40 to 43
//!
//! See [`space`], which regular files answer, too.
//!
//! Any other number, and these on what is no directory, are ENOTTY, as the kernel answers for file systems that have none.

pub mod expunge;
pub mod look;
pub mod names;
pub mod operations;
pub mod policy;
pub mod resize;
pub mod rollback;
pub mod shred;
pub mod space;
pub mod state;

use crate::keeper::Keeper;
use fuser::Errno;
use rustix::fs::StatVfsMountFlags;
use rustix::ioctl::{ioctl, opcode, Opcode, Updater};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use yore_fs::{
    Access, Cut, CutKind, CutMore, CutRow, CutState, Doing, FileKind, Incarnation, InodeNo, ListedCut,
    NewSnapshot, Number, PinnedBy, Timestamp, User, UserLimits, View,
};

/// Bytes of the first request.
const SNAPSHOT_BYTES: usize = 264;
/// Bytes of the second one; the most that a number can say is 16,383.
const LIST_BYTES: usize = 16_376;
/// Bytes of the third one.
const FORGET_BYTES: usize = 8 + 8 * FORGET_MAX;
/// Bytes of the fourth one.
const HOLD_BYTES: usize = 16;
const SNAPSHOT: Opcode = opcode::read_write::<[u8; SNAPSHOT_BYTES]>(b'Y', 1);
const LIST: Opcode = opcode::read_write::<[u8; LIST_BYTES]>(b'Y', 2);
const FORGET: Opcode = opcode::read_write::<[u8; FORGET_BYTES]>(b'Y', 3);
const HOLD: Opcode = opcode::read_write::<[u8; HOLD_BYTES]>(b'Y', 4);

/// Most snapshots that [`forget`] takes at a time.
pub const FORGET_MAX: usize = 256;

const TAKE_HELD: u32 = 1;
const WAIT: u32 = 2;
const UNDO: u32 = 4;
const WHILE_ASKER_LIVES: u32 = 8;
const SEEN: u32 = 1;
const OF_FILE: u32 = 2;
const MORE: u32 = 4;
const MORE_BYTES: usize = 24;
/// Nobody, where a user is named.
const NOBODY: u32 = u32::MAX;
/// Never, where a second is.
const NEVER: i64 = i64::MIN;
const FILE_AT: usize = 16;
const FILE_MAX: usize = 255;
const NAME_AT: usize = 8;
const NAME_MAX: usize = yore_fs::time::SNAPSHOT_NAME_MAX;

const RECORDS_AT: usize = 16;
const RECORD_BYTES: usize = 56;
const HELD: u8 = 1;
const COVERS: u8 = 2;
const PATH: u8 = 4;
const NEXT: u8 = 8;
const OWN: u8 = 16;
const MOUNTED: u8 = 32;
const PINNED: u8 = 64;

/// Takes a snapshot of an open directory of a mount, with all that is below it and all that was written to the mount before. If
/// `wait`, it is durable when this returns.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves; else as the table above.
pub fn snapshot(dir: &File, name: &str, held: bool, wait: bool) -> io::Result<(Number, Timestamp)> {
    take_on(dir, name, if held { TAKE_HELD } else { 0 } | if wait { WAIT } else { 0 })
}

/// As [`snapshot`], of the kind that is taken before, or after, something that can be undone. Durable when it returns. If
/// `while_asker_lives`, it is not forgotten before this process ends, not even for want of room.
///
/// # Errors
/// As [`snapshot`]; EINVAL from a daemon that knows no such kind; EAGAIN if too many processes want one to stay.
pub fn undo_point(dir: &File, name: &str, while_asker_lives: bool) -> io::Result<(Number, Timestamp)> {
    take_on(dir, name, WAIT | UNDO | if while_asker_lives { WHILE_ASKER_LIVES } else { 0 })
}

fn take_on(dir: &File, name: &str, flags: u32) -> io::Result<(Number, Timestamp)> {
    check_writable(dir)?;
    let mut buffer = [0; SNAPSHOT_BYTES];
    put(&mut buffer, 0, &flags.to_le_bytes());
    put(&mut buffer, 4, &(name.len() as u32).to_le_bytes());
    if name.len() > NAME_MAX {
        return Err(rustix::io::Errno::INVAL.into());
    }
    put(&mut buffer, NAME_AT, name.as_bytes());
    // What was stored through mappings goes to the daemon first, which sees to it for the processes that it can see; with a kernel
    // that waits here it does so for all. The daemon is not told of syncfs, so that nothing is made durable.
    rustix::fs::syncfs(dir)?;
    call::<SNAPSHOT, SNAPSHOT_BYTES>(dir, &mut buffer)?;
    let (number, time) = (u64_at(&buffer, 0), time_at(&buffer, 8));
    number.zip(time).map(|(number, time)| (Number(number), time)).ok_or_else(malformed)
}

/// A part of the list of snapshots of an open directory of a mount, those numbered `from` or above in ascending order; and the
/// number to go on from if there may be more.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves; `InvalidData` for an answer that is none.
pub fn snapshots(dir: &File, from: Number) -> io::Result<(Vec<ListedCut>, Option<Number>)> {
    let mut buffer = Box::new([0; LIST_BYTES]);
    put(&mut *buffer, 0, &from.0.to_le_bytes());
    ask_list(dir, buffer)
}

/// Asks for a list with all that is said of each; of a daemon that does not know what that is, for one without.
fn ask_list(dir: &File, mut buffer: Box<[u8; LIST_BYTES]>) -> io::Result<(Vec<ListedCut>, Option<Number>)> {
    let without = buffer.clone();
    let flags = u32_at(&*buffer, 8).unwrap_or_default();
    put(&mut *buffer, 8, &(flags | MORE).to_le_bytes());
    match call::<LIST, LIST_BYTES>(dir, &mut buffer) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            buffer = without;
            call::<LIST, LIST_BYTES>(dir, &mut buffer)?;
        }
        other => other?,
    }
    decode_list(&*buffer).ok_or_else(malformed)
}

/// As [`snapshots`], those of a file itself that a name in the directory means; a name with a time means what it did then.
///
/// # Errors
/// As [`snapshots`]; ENOENT for a name that never meant anything; EINVAL from a daemon that knows no such lists.
pub fn versions(dir: &File, name: &[u8], from: Number) -> io::Result<(Vec<ListedCut>, Option<Number>)> {
    let mut buffer = of_file(name, 0)?;
    put(&mut *buffer, 0, &from.0.to_le_bytes());
    ask_list(dir, buffer)
}

/// The snapshot or version as of which a file is seen under a name in an open directory; `None` if it is one of the present.
///
/// # Errors
/// As [`versions`].
pub fn version_seen(dir: &File, name: &[u8]) -> io::Result<Option<ListedCut>> {
    ask_seen(dir, of_file(name, SEEN)?)
}

fn of_file(name: &[u8], flags: u32) -> io::Result<Box<[u8; LIST_BYTES]>> {
    if !(1..=FILE_MAX).contains(&name.len()) {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let mut buffer = Box::new([0; LIST_BYTES]);
    put(&mut *buffer, 8, &(flags | OF_FILE).to_le_bytes());
    put(&mut *buffer, 12, &(name.len() as u32).to_le_bytes());
    put(&mut *buffer, FILE_AT, name);
    Ok(buffer)
}

/// The snapshot as of which an open directory of a mount is seen; `None` if it is one of the present.
///
/// # Errors
/// As [`snapshots`].
pub fn seen(dir: &File) -> io::Result<Option<ListedCut>> {
    let mut buffer = Box::new([0; LIST_BYTES]);
    put(&mut *buffer, 8, &SEEN.to_le_bytes());
    ask_seen(dir, buffer)
}

fn ask_seen(dir: &File, buffer: Box<[u8; LIST_BYTES]>) -> io::Result<Option<ListedCut>> {
    let (listed, _) = ask_list(dir, buffer)?;
    Ok(listed.into_iter().next())
}

/// Forgets snapshots, all of these or none, through any open directory of the mount. At most [`FORGET_MAX`].
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves; EINVAL for none and for too many; else as the table above.
pub fn forget(dir: &File, numbers: &[Number]) -> io::Result<()> {
    check_writable(dir)?;
    let mut buffer = encode_forget(numbers).ok_or(rustix::io::Errno::INVAL)?;
    call::<FORGET, FORGET_BYTES>(dir, &mut buffer)
}

/// Holds a snapshot, so that it is not forgotten, or releases it, through any open directory of the mount.
///
/// # Errors
/// As [`forget`].
pub fn hold(dir: &File, number: Number, held: bool) -> io::Result<()> {
    check_writable(dir)?;
    call::<HOLD, HOLD_BYTES>(dir, &mut encode_hold(number, held))
}

/// The daemon does not know all the ways in which a mount can be read-only.
fn check_writable(dir: &File) -> io::Result<()> {
    match rustix::fs::fstatvfs(dir)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(rustix::io::Errno::ROFS.into()),
        false => Ok(()),
    }
}

fn call<const OPCODE: Opcode, const BYTES: usize>(dir: &File, buffer: &mut [u8; BYTES]) -> io::Result<()> {
    // SAFETY: this number has the size of the buffer in it. By the kernel's rules for such numbers whoever knows it reads and
    // writes no more, and any bytes are a valid buffer afterwards.
    unsafe { ioctl(dir, Updater::<OPCODE, [u8; BYTES]>::new(buffer)) }?;
    Ok(())
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the mount's answer is not understood; is its daemon of another version?",
    )
}

/// Who asks, of what kind of mount.
pub(crate) struct Asker<'a> {
    /// The user.
    pub uid: u32,
    /// What of the history he may be told.
    pub access: &'a Access,
    /// The thread that waits for the answer.
    pub thread: u32,
    /// Nothing can be changed on the mount.
    pub read_only: bool,
    /// What is kept for processes.
    pub keeper: &'a Keeper,
    /// What each user may have.
    pub limits: UserLimits,
}

/// A user, whose limits are these unless he is root or the daemon's user.
pub(crate) fn user(uid: u32, limits: UserLimits) -> User {
    User { uid, limits: (!may_all(uid)).then_some(limits) }
}

/// The daemon's half: the answer to a request of this number on an inode.
pub(crate) fn answer(
    view: &View,
    inode: InodeNo,
    asker: &Asker<'_>,
    number: Opcode,
    request: &[u8],
) -> Result<Vec<u8>, Failure> {
    let Asker { uid, read_only, .. } = *asker;
    let known =
        [SNAPSHOT, LIST, FORGET, HOLD, names::TAKE, names::DESCRIBE, operations::LIST].contains(&number);
    if !known || view.getattr(inode)?.kind != FileKind::Directory {
        return Err(Failure::Number(Errno::ENOTTY));
    }
    let refused = Failure::Number(Errno::EINVAL);
    match number {
        LIST => {
            let (wanted, more) = Wanted::decode(request).ok_or(refused)?;
            list(view, inode, asker, wanted, more)
        }
        FORGET => {
            let numbers = decode_forget(request).ok_or(refused)?;
            let view = changing(view, uid, read_only, &numbers, &[To::ForgetOrRename])?;
            let doing = Doing { view: &view, uid };
            let rows = doing.forgetting(&numbers)?;
            view.forget(&numbers)?;
            doing.note(rows);
            Ok(vec![0; FORGET_BYTES])
        }
        HOLD => {
            let (number, held) = decode_hold(request).ok_or(refused)?;
            let hold = Some(held.then_some(""));
            describe(view, asker, number, &names::Saying { hold, ..Default::default() })?;
            Ok(vec![0; HOLD_BYTES])
        }
        names::TAKE => {
            let new = names::decode_take(request).ok_or(refused)?;
            let cut = take(view, inode, asker, &new, false)?;
            Ok(names::answer_of(cut.number, cut.row.time))
        }
        names::DESCRIBE => {
            let (number, saying) = names::decode_describe(request).ok_or(refused)?;
            describe(view, asker, number, &saying)?;
            Ok(names::answer_of(number, Timestamp { seconds: 0, nanos: 0 }))
        }
        operations::LIST => {
            let wanted = operations::decode_request(request).ok_or(refused)?;
            let seen_by = (!may_all(uid)).then_some(uid);
            operations::list(&view.present(), seen_by, wanted)
        }
        _ => {
            let Asked { name, held, wait, undo, while_asker_lives } =
                Asked::decode(request).ok_or(refused)?;
            let new = NewSnapshot { name, held, wait, undo, ..NewSnapshot::default() };
            let cut = take(view, inode, asker, &new, while_asker_lives)?;
            let mut bytes = vec![0; SNAPSHOT_BYTES];
            put(&mut bytes, 0, &cut.number.0.to_le_bytes());
            put_time(&mut bytes, 8, cut.row.time);
            Ok(bytes)
        }
    }
}

/// Whether a request takes a snapshot.
pub(crate) fn takes_snapshot(number: Opcode) -> bool {
    number == SNAPSHOT || number == names::TAKE
}

/// Whether a user may take one of this directory.
pub(crate) fn may_take(view: &View, inode: InodeNo, uid: u32) -> bool {
    matches!(may_snapshot(view, inode, None, uid), Ok(true))
}

/// Changes what is said of a snapshot, and records who did it.
fn describe(
    view: &View,
    asker: &Asker<'_>,
    number: Number,
    saying: &names::Saying<'_>,
) -> Result<(), Failure> {
    let says = (saying.name.is_some() || saying.description.is_some()).then_some(To::ForgetOrRename);
    let holds = saying.hold.map(|hold| if hold.is_some() { To::Hold } else { To::Release });
    let all = says.into_iter().chain(holds).collect::<Vec<_>>();
    let view = changing(view, asker.uid, asker.read_only, &[number], &all)?;
    let was = view.kept_cut(number)?;
    let doing = Doing { view: &view, uid: asker.uid };
    if saying.name.is_some() || saying.description.is_some() {
        view.describe(number, saying.name, saying.description)?;
        doing.note([doing.renaming(&was, saying.name)?]);
    }
    if let Some(hold) = saying.hold {
        let by = user(asker.uid, asker.limits);
        view.hold_because(Some(&by), number, hold.is_some(), hold.unwrap_or_default())?;
        doing.note([doing.holding(&was, hold)?]);
    }
    Ok(())
}

fn take(
    view: &View,
    inode: InodeNo,
    asker: &Asker<'_>,
    new: &NewSnapshot<'_>,
    while_asker_lives: bool,
) -> Result<Cut, Failure> {
    if !may_snapshot(view, inode, None, asker.uid)? {
        return Err(Failure::Number(Errno::EPERM));
    }
    if asker.read_only {
        return Err(yore_fs::Error::ReadOnly.into());
    }
    let place = match while_asker_lives {
        true => Some(asker.keeper.place(asker.thread).map_err(Failure::Number)?),
        false => None,
    };
    let by = user(asker.uid, asker.limits);
    let cut = view.take_snapshot(inode, &NewSnapshot { user: Some(&by), ..*new })?;
    if let Some(place) = place {
        place.keep(view.pin(cut.number, PinnedBy::Work)?).map_err(Failure::Number)?;
    }
    let doing = Doing { view, uid: asker.uid };
    doing.note(doing.taking(&cut)?);
    Ok(cut)
}

/// What is to be done with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// It stays from now on.
    Hold,
    /// It need not stay any longer.
    Release,
    /// It goes, or loses its name, without which a full volume may give it up.
    ForgetOrRename,
}

impl To {
    /// Whether a user who owns the directory may do that to its snapshot, by who took it and who holds it. Of what earlier versions of
    /// Yore took, nobody knows that.
    fn is_allowed(self, row: &CutRow, uid: u32) -> bool {
        let is_own = |by: Option<u32>| by.is_none_or(|by| by == uid);
        match self {
            To::Hold => !row.held || is_own(row.more.held_by),
            To::Release => is_own(row.more.held_by.or(row.more.by)),
            To::ForgetOrRename => is_own(row.more.by),
        }
    }
}

/// The view to change these snapshots with, if the user may. Root and the daemon's user may do everything. The owner of the directory
/// may hold its snapshots, and forget, rename and release what nobody else took and holds: so what root keeps is safe from programs that
/// run with the owner's rights.
fn changing(view: &View, uid: u32, read_only: bool, numbers: &[Number], to: &[To]) -> Result<View, Failure> {
    // They are the volume's, whatever time the directory asked is of.
    let view = view.present();
    for number in numbers {
        let row = view.kept_cut(*number)?.row;
        let may_take = may_snapshot(&view, row.root, Some(row.root_incarnation), uid)?;
        if !may_take || !(may_all(uid) || to.iter().all(|to| to.is_allowed(&row, uid))) {
            return Err(Failure::Number(Errno::EPERM));
        }
    }
    match read_only {
        true => Err(yore_fs::Error::ReadOnly.into()),
        false => Ok(view),
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request's own fault.
    Number(Errno),
    /// The view's.
    View(yore_fs::Error),
}

impl From<yore_fs::Error> for Failure {
    fn from(error: yore_fs::Error) -> Failure {
        Failure::View(error)
    }
}

impl Failure {
    /// As the caller is told it.
    #[cfg(test)]
    fn errno(&self) -> Errno {
        match self {
            Failure::Number(number) => *number,
            Failure::View(error) => crate::errno::errno(error),
        }
    }
}

/// Whether a user may do what is anybody's: root and the daemon's user.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a user may take snapshots of a directory: root, the daemon's user, its owner. With an incarnation, of that one
/// only, and not of what is gone.
fn may_snapshot(
    view: &View,
    inode: InodeNo,
    incarnation: Option<Incarnation>,
    uid: u32,
) -> Result<bool, Failure> {
    if may_all(uid) {
        return Ok(true);
    }
    match view.getattr(inode) {
        Ok(attr) => Ok(attr.uid == uid && incarnation.is_none_or(|i| i.0 == attr.incarnation)),
        Err(yore_fs::Error::Stale) if incarnation.is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Leaves those rows of a file's list that a user may be told: all if he may look the name up, else those as of which he might have. Without
/// any it is as if there never was such a name.
fn leave_reachable(
    view: &View,
    directory: InodeNo,
    access: &Access,
    name: &[u8],
    listed: &mut Vec<ListedCut>,
) -> Result<(), Failure> {
    if access.is_all() {
        return Ok(());
    }
    match view.lookup(directory, name) {
        Ok(_) if access.reaches(directory, view.cut())? => return Ok(()),
        Ok(_) | Err(yore_fs::Error::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    let mut told = Vec::new();
    for row in listed.drain(..) {
        if access.reaches(directory, Some(row.cut.number))? {
            told.push(row);
        }
    }
    *listed = told;
    match listed.is_empty() {
        true => Err(yore_fs::Error::NotFound.into()),
        false => Ok(()),
    }
}

/// A page of the list.
fn list(
    view: &View,
    directory: InodeNo,
    asker: &Asker<'_>,
    wanted: Wanted<'_>,
    more: bool,
) -> Result<Vec<u8>, Failure> {
    let uid = asker.uid;
    let (mut listed, mut next) = match (wanted, view.cut()) {
        (Wanted::From(from), _) => view.list_cuts(directory, from)?,
        (Wanted::OfFile(name, from), _) => view.list_versions(directory, name, from)?,
        (Wanted::FileSeen(name), _) => (view.version_seen(directory, name)?.into_iter().collect(), None),
        (Wanted::Seen, Some(cut)) => {
            let (mut listed, _) = view.list_cuts(directory, cut)?;
            listed.retain(|listed| listed.cut.number == cut);
            (listed, None)
        }
        (Wanted::Seen, None) => (Vec::new(), None),
    };
    if let Wanted::OfFile(name, _) | Wanted::FileSeen(name) = wanted {
        leave_reachable(view, directory, asker.access, name, &mut listed)?;
    }
    let present = view.present();
    let mut bytes = vec![0; RECORDS_AT];
    let mut count = 0u32;
    for row in &listed {
        let CutRow { root, root_incarnation, .. } = row.cut.row;
        if !row.covers && !may_snapshot(&present, root, Some(root_incarnation), uid)? {
            continue;
        }
        let record = encode_record(row, more);
        if bytes.len() + record.len() > LIST_BYTES {
            next = Some(row.cut.number);
            break;
        }
        bytes.extend_from_slice(&record);
        count += 1;
    }
    put(&mut bytes, 0, &next.unwrap_or_default().0.to_le_bytes());
    put(&mut bytes, 8, &count.to_le_bytes());
    bytes.resize(LIST_BYTES, 0);
    Ok(bytes)
}

/// A request for a snapshot.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    name: &'a str,
    held: bool,
    wait: bool,
    undo: bool,
    while_asker_lives: bool,
}

impl Asked<'_> {
    fn decode(bytes: &[u8]) -> Option<Asked<'_>> {
        let flags = u32_at(bytes, 0)?;
        let len = usize::try_from(u32_at(bytes, 4)?).ok().filter(|len| *len <= NAME_MAX)?;
        let name = std::str::from_utf8(bytes.get(NAME_AT..NAME_AT + len)?).ok()?;
        let rest = bytes.get(NAME_AT + len..)?;
        let known = flags & !(TAKE_HELD | WAIT | UNDO | WHILE_ASKER_LIVES) == 0;
        let clear = bytes.len() == SNAPSHOT_BYTES && known && rest.iter().all(|b| *b == 0);
        let is = |flag: u32| flags & flag != 0;
        clear.then_some(Asked {
            name,
            held: is(TAKE_HELD),
            wait: is(WAIT),
            undo: is(UNDO),
            while_asker_lives: is(WHILE_ASKER_LIVES),
        })
    }
}

/// Which part of the list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// A page.
    From(Number),
    /// That as of which the directory asked is seen.
    Seen,
    /// A page of those of a file itself.
    OfFile(&'a [u8], Number),
    /// That as of which a file is seen.
    FileSeen(&'a [u8]),
}

impl Wanted<'_> {
    /// And whether what people say of them is wanted, too.
    fn decode(bytes: &[u8]) -> Option<(Wanted<'_>, bool)> {
        let (from, flags) = (u64_at(bytes, 0)?, u32_at(bytes, 8)?);
        let (flags, more) = (flags & !MORE, flags & MORE != 0);
        let len = usize::try_from(u32_at(bytes, 12)?).ok().filter(|len| *len <= FILE_MAX)?;
        let name = bytes.get(FILE_AT..FILE_AT + len)?;
        let is_name =
            (flags & OF_FILE != 0) != name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
        let clear = bytes.len() == LIST_BYTES && bytes.iter().skip(FILE_AT + len).all(|b| *b == 0) && is_name;
        let wanted = match (from, flags) {
            (from, 0) => Wanted::From(Number(from)),
            (0, SEEN) => Wanted::Seen,
            (from, OF_FILE) => Wanted::OfFile(name, Number(from)),
            (0, flags) if flags == OF_FILE | SEEN => Wanted::FileSeen(name),
            _ => return None,
        };
        clear.then_some((wanted, more))
    }
}

/// `None` for no numbers and for too many.
fn encode_forget(numbers: &[Number]) -> Option<[u8; FORGET_BYTES]> {
    let mut bytes = [0; FORGET_BYTES];
    let count = u32::try_from(numbers.len()).ok().filter(|_| (1..=FORGET_MAX).contains(&numbers.len()))?;
    put(&mut bytes, 0, &count.to_le_bytes());
    for (i, number) in numbers.iter().enumerate() {
        put(&mut bytes, 8 + 8 * i, &number.0.to_le_bytes());
    }
    Some(bytes)
}

/// Each of the numbers once, in ascending order.
fn decode_forget(bytes: &[u8]) -> Option<Vec<Number>> {
    let count = usize::try_from(u32_at(bytes, 0)?).ok().filter(|count| (1..=FORGET_MAX).contains(count))?;
    let (head, rest) = (bytes.get(4..8)?, bytes.get(8 + 8 * count..)?);
    let clear = bytes.len() == FORGET_BYTES && head.iter().chain(rest).all(|b| *b == 0);
    let numbers: Option<BTreeSet<u64>> = (0..count).map(|i| u64_at(bytes, 8 + 8 * i)).collect();
    clear.then_some(numbers?.into_iter().map(Number).collect())
}

fn encode_hold(number: Number, held: bool) -> [u8; HOLD_BYTES] {
    let mut bytes = [0; HOLD_BYTES];
    put(&mut bytes, 0, &number.0.to_le_bytes());
    put(&mut bytes, 8, &u32::from(held).to_le_bytes());
    bytes
}

fn decode_hold(bytes: &[u8]) -> Option<(Number, bool)> {
    let (held, rest) = (u32_at(bytes, 8)?, u32_at(bytes, 12)?);
    let clear = bytes.len() == HOLD_BYTES && held <= 1 && rest == 0;
    clear.then_some((Number(u64_at(bytes, 0)?), held == 1))
}

fn encode_record(listed: &ListedCut, more: bool) -> Vec<u8> {
    let row = &listed.cut.row;
    // A path that would not fit into any answer, four times as long as any that a call takes, is left out.
    let most = LIST_BYTES - RECORDS_AT - RECORD_BYTES - NAME_MAX - MORE_BYTES - 1024 - 8;
    let path =
        listed.path.as_deref().map(|path| path.as_os_str().as_bytes()).filter(|path| path.len() <= most);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let mut bytes = vec![0; RECORD_BYTES];
    put(&mut bytes, 0, &listed.cut.number.0.to_le_bytes());
    put_time(&mut bytes, 8, row.time);
    bytes[20] = row.kind as u8;
    bytes[21] = flag(row.held, HELD)
        | flag(listed.covers, COVERS)
        | flag(path.is_some(), PATH)
        | flag(listed.next.is_some(), NEXT)
        | flag(listed.own, OWN)
        | flag(listed.pinned, PINNED)
        | flag(listed.mounted, MOUNTED);
    put(&mut bytes, 22, &(row.name.len() as u16).to_le_bytes());
    put(&mut bytes, 24, &row.root.0.to_le_bytes());
    put(&mut bytes, 32, &row.root_incarnation.0.to_le_bytes());
    put(&mut bytes, 36, &(path.map_or(0, <[u8]>::len) as u32).to_le_bytes());
    put_time(&mut bytes, 40, listed.next.unwrap_or(Timestamp { seconds: 0, nanos: 0 }));
    bytes.extend_from_slice(row.name.as_bytes());
    bytes.extend_from_slice(path.unwrap_or_default());
    if more && !row.more.is_empty() {
        let more = encode_more(&row.more);
        put(&mut bytes, 52, &(more.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&more);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn encode_more(more: &CutMore) -> Vec<u8> {
    let mut bytes = vec![0; MORE_BYTES];
    put(&mut bytes, 0, &more.by.unwrap_or(NOBODY).to_le_bytes());
    put(&mut bytes, 4, &more.held_by.unwrap_or(NOBODY).to_le_bytes());
    put(&mut bytes, 8, &more.held_until.unwrap_or(NEVER).to_le_bytes());
    put(&mut bytes, 16, &(more.description.len() as u16).to_le_bytes());
    put(&mut bytes, 18, &(more.hold_reason.len() as u16).to_le_bytes());
    bytes.extend_from_slice(more.description.as_bytes());
    bytes.extend_from_slice(more.hold_reason.as_bytes());
    bytes
}

fn decode_more(bytes: &[u8]) -> Option<CutMore> {
    if bytes.is_empty() {
        return Some(CutMore::default());
    }
    let length = |at: usize| Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let reason_at = MORE_BYTES + length(16)?;
    let text = |from: usize, to: usize| Some(std::str::from_utf8(bytes.get(from..to)?).ok()?.to_string());
    let until = i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(CutMore {
        by: Some(u32_at(bytes, 0)?).filter(|by| *by != NOBODY),
        description: text(MORE_BYTES, reason_at)?,
        hold_reason: text(reason_at, reason_at + length(18)?)?,
        held_by: Some(u32_at(bytes, 4)?).filter(|by| *by != NOBODY),
        held_until: Some(until).filter(|until| *until != NEVER),
        ..CutMore::default()
    })
}

fn decode_list(bytes: &[u8]) -> Option<(Vec<ListedCut>, Option<Number>)> {
    let next = Some(Number(u64_at(bytes, 0)?)).filter(|next| next.0 != 0);
    let mut rest = bytes.get(RECORDS_AT..)?;
    let mut listed = Vec::new();
    for _ in 0..u32_at(bytes, 8)? {
        let (row, len) = decode_record(rest)?;
        listed.push(row);
        rest = rest.get(len..)?;
    }
    Some((listed, next))
}

/// A record, and how long it is.
fn decode_record(bytes: &[u8]) -> Option<(ListedCut, usize)> {
    let flags = *bytes.get(21)?;
    let name_len = usize::from(u16::from_le_bytes(bytes.get(22..24)?.try_into().ok()?));
    let path_at = RECORD_BYTES + name_len;
    let end = path_at.checked_add(usize::try_from(u32_at(bytes, 36)?).ok()?)?;
    let path = bytes.get(path_at..end)?;
    let more_end = end.checked_add(usize::try_from(u32_at(bytes, 52)?).ok()?)?;
    let row = CutRow {
        time: time_at(bytes, 8)?,
        kind: CutKind::from_u8(*bytes.get(20)?)?,
        state: CutState::Kept,
        held: flags & HELD != 0,
        root: InodeNo(u64_at(bytes, 24)?),
        root_incarnation: Incarnation(u32_at(bytes, 32)?),
        name: std::str::from_utf8(bytes.get(RECORD_BYTES..path_at)?).ok()?.to_owned(),
        more: decode_more(bytes.get(end..more_end)?)?,
    };
    let listed = ListedCut {
        cut: Cut { number: Number(u64_at(bytes, 0)?), row },
        next: if flags & NEXT != 0 { Some(time_at(bytes, 40)?) } else { None },
        covers: flags & COVERS != 0,
        own: flags & OWN != 0,
        pinned: flags & PINNED != 0,
        mounted: flags & MOUNTED != 0,
        path: (flags & PATH != 0).then(|| PathBuf::from(OsString::from_vec(path.to_vec()))),
    };
    Some((listed, more_end.next_multiple_of(8)))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn put_time(bytes: &mut [u8], at: usize, time: Timestamp) {
    put(bytes, at, &time.seconds.to_le_bytes());
    put(bytes, at + 8, &time.nanos.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn time_at(bytes: &[u8], at: usize) -> Option<Timestamp> {
    let seconds = i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
    let nanos = u32_at(bytes, at + 8).filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Timestamp { seconds, nanos })
}

#[cfg(test)]
mod tests;
