//! Looking at history through a mount: differences, logs, what is gone, and ([`usage`]) what it takes. More
//! of the requests that [`super`] describes.
//!
//! Answers may be of any length and come in parts. The first request asks; if not all fits, the daemon keeps
//! the rest of the answer under a *key* and gives it to whoever comes with that, for the same user, until the
//! last part is read. It keeps at most 8 answers, 64 MiB in all, and those that nobody asked for in a minute
//! only until somebody asks anything of this kind: ESTALE if an answer is not there any more, and one asks
//! anew. No answer is longer: EOVERFLOW.
//!
//! How far the daemon is with one that takes long is asked beside it: see [`progress`].
//!
//! # The parts: `_IOWR('Y', 5 | 6 | 7 | 10, 16376 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | the key; 0 to ask |
//! | 8..16 | where to go on in the answer; to ask a name for the question, or 0 |
//! | 16.. | the question if the key is 0, as below; then zeros |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | the key to go on with, or 0 if this was the last part |
//! | 8..16 | bytes of the whole answer |
//! | 16.. | the part |
//!
//! # Differences: number 5
//!
//! | bytes | of the question |
//! |---|---|
//! | 0..8, 8..16 | the snapshots between which the directory differs, 0 for the present |
//! | 16..20 | flags: 1 only which directory is asked; 2 what took the place of another of its name and type is compared with that |
//!
//! The answer has the inode (8 bytes) and incarnation (4) of the directory and the snapshot as of which it
//! was asked (8, 0 for the present); then the differences, each of
//!
//! | bytes | |
//! |---|---|
//! | 1 | 1 added, 2 removed, 3 modified, 4 renamed |
//! | 1 | flags: 1 has an old path, 2 was there before, 4 is there after |
//! | 2 | type bits of the mode, shifted right by 12 |
//! | 4 | what changed: 1 content, 2 metadata, 4 extended attributes, 8 time, 16 links |
//! | 8, 4 | inode, incarnation |
//! | 4, … | length of the path, the path; if it has one, the same of the old path |
//! | 36 | facts before, if it was there; and after, likewise |
//!
//! *Facts* are mode, user, group, links (4 bytes each), size (8), and the time of the last change of content
//! (12).
//!
//! # Log: number 6
//!
//! | bytes | of the question |
//! |---|---|
//! | 0..4 | length of the name |
//! | 4..8 | the most states that are wanted, 0 for all |
//! | 8.. | the name in the directory asked; of length 0 for the directory itself. Or a path from there, by directories that may be gone |
//!
//! The answer has the states, latest first, each of
//!
//! | bytes | |
//! |---|---|
//! | 2 | type |
//! | 2 | flags: 1 first and last snapshot follow, 2 current, 4 has a path, 8 renamed, 16 replaced, 32 oldest, 64 the name is gone, 128 a first snapshot without it follows, 256 it was moved, 512 its path now follows |
//! | 4 | what changed |
//! | 8, 4 | inode, incarnation |
//! | 4, … | the name; and its path, if it has one, likewise |
//! | 36 | facts |
//! | … | the first and the last snapshot, if they follow: as in the list of snapshots, without a path; so the first without the name |
//! | 4, … | the path that what was moved has now |
//!
//! # What is gone: number 7
//!
//! | bytes | of the question |
//! |---|---|
//! | 0..4 | flags: 1 in all directories below, too |
//!
//! The answer has the names, each of: type (2 bytes) and two zero bytes, inode (8), incarnation (4), path (4,
//! …), facts (36), the last snapshot that has it.
//!
//! For root, the daemon's user, and the owner of the directory, of differences at both times; EPERM for
//! others. An owner is told names only that he could have learned: of directories that he may list as of when
//! they were there, and what is gone of such that he may list now, too. ENOENT: a snapshot has not seen the
//! directory, or the name is unknown. Which directory is asked, everybody may ask.

pub mod progress;
pub mod usage;

use progress::{watched, Running, Watch, PROGRESS};
use yore_control::told::Told;

use super::{call, decode_record, encode_record, malformed, may_all, may_snapshot, put, u64_at, Failure};
use fuser::Errno;
use parking_lot::Mutex;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use yore_fs::{
    Access, Change, Deleted, Difference, EventNo, Facts, FileKind, Gone, Incarnation, InodeNo, ListedEvent,
    Logged, Progress, SeenBy, Timestamp, View, What,
};

/// Bytes of each of the requests.
const PART_BYTES: usize = 16_376;
const DIFF: Opcode = opcode::read_write::<[u8; PART_BYTES]>(b'Y', 5);
const LOG: Opcode = opcode::read_write::<[u8; PART_BYTES]>(b'Y', 6);
const DELETED: Opcode = opcode::read_write::<[u8; PART_BYTES]>(b'Y', 7);

/// Where the question and the part begin.
const BODY_AT: usize = 16;
/// Bytes of the longest name that can be asked for.
const NAME_MOST: usize = PART_BYTES - BODY_AT - 8;
/// Bytes of the longest answer, and of all that are kept.
const ANSWER_MOST: usize = 64 << 20;
/// Answers kept.
const KEPT_MOST: usize = 8;
/// How long nobody asks for an answer that is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often a question is asked whose answer is lost.
const TRIES: usize = 5;

const IDENTITY: u32 = 1;
const COMPARED: u32 = 2;
const RECURSIVE: u32 = 1;

const OLD_PATH: u8 = 1;
const BEFORE: u8 = 2;
const AFTER: u8 = 4;

const SEEN: u16 = 1;
const CURRENT: u16 = 2;
const PATH: u16 = 4;
const RENAMED: u16 = 8;
const REPLACED: u16 = 16;
const OLDEST: u16 = 32;
const GONE: u16 = 64;
const GONE_BY: u16 = 128;
const MOVED: u16 = 256;
const MOVED_TO: u16 = 512;

/// Which directory a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its inode on the volume.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The snapshot as of which it is seen; `None`: the present.
    pub event: Option<EventNo>,
}

/// Which directory of the volume an open directory of a mount is, and of what time.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves; `InvalidData` for an answer that is none.
pub fn identity(dir: &File) -> io::Result<Identity> {
    let mut question = vec![0; 20];
    put(&mut question, 16, &IDENTITY.to_le_bytes());
    let answer = ask::<DIFF>(dir, &question, 0)?;
    Reader(&answer).identity().ok_or_else(malformed)
}

/// What differs below an open directory of a mount between two snapshots, or one and the present; as
/// [`View::diff`].
///
/// # Errors
/// As [`identity`], and the table above.
pub fn diff(dir: &File, from: Option<EventNo>, to: Option<EventNo>) -> io::Result<Vec<Difference>> {
    differences(ask::<DIFF>(dir, &between(from, to, 0), 0)?)
}

/// The same as [`View::compare`] tells it.
///
/// # Errors
/// As [`diff`]; EINVAL if the daemon is of an older version.
pub fn compare(
    dir: &File,
    from: Option<EventNo>,
    to: Option<EventNo>,
    watch: Watch<'_>,
) -> io::Result<Vec<Difference>> {
    let question = between(from, to, COMPARED);
    differences(watched(dir, watch, |name| ask::<DIFF>(dir, &question, name))?)
}

fn between(from: Option<EventNo>, to: Option<EventNo>, flags: u32) -> Vec<u8> {
    let number = |side: Option<EventNo>| side.unwrap_or_default().0.to_le_bytes();
    [&number(from)[..], &number(to), &flags.to_le_bytes()].concat()
}

fn differences(answer: Vec<u8>) -> io::Result<Vec<Difference>> {
    let mut reader = Reader(&answer);
    reader.identity().ok_or_else(malformed)?;
    reader.all(Reader::difference)
}

/// What a name in an open directory of a mount meant over time, the latest first, at most so many states; as
/// [`View::log`].
///
/// # Errors
/// As [`diff`].
pub fn log(dir: &File, name: &[u8], most: Option<u32>) -> io::Result<Vec<Logged>> {
    let len = u32::try_from(name.len()).ok().filter(|len| *len as usize <= NAME_MOST);
    let len = len.ok_or(rustix::io::Errno::NAMETOOLONG)?;
    let question = [&len.to_le_bytes()[..], &most.unwrap_or(0).to_le_bytes(), name].concat();
    Reader(&ask::<LOG>(dir, &question, 0)?).all(Reader::logged)
}

/// What is gone from an open directory of a mount, the latest first; as [`View::deleted`].
///
/// # Errors
/// As [`diff`].
pub fn deleted(dir: &File, recursive: bool, watch: Watch<'_>) -> io::Result<Vec<Deleted>> {
    let flags = if recursive { RECURSIVE } else { 0 };
    let answer = watched(dir, watch, |name| ask::<DELETED>(dir, &flags.to_le_bytes(), name))?;
    Reader(&answer).all(Reader::deleted)
}

/// Asks until the whole answer is there, under a name, or 0.
fn ask<const OPCODE: Opcode>(dir: &File, question: &[u8], name: u64) -> io::Result<Vec<u8>> {
    let mut tries = 0;
    loop {
        tries += 1;
        match ask_once::<OPCODE>(dir, question, name) {
            // Others asked so much meanwhile that the answer was pushed out.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) && tries < TRIES => {}
            answer => return answer,
        }
    }
}

fn ask_once<const OPCODE: Opcode>(dir: &File, question: &[u8], name: u64) -> io::Result<Vec<u8>> {
    let mut buffer = Box::new([0; PART_BYTES]);
    put(&mut *buffer, 8, &name.to_le_bytes());
    put(&mut *buffer, BODY_AT, question);
    let mut answer = Vec::new();
    loop {
        call::<OPCODE, PART_BYTES>(dir, &mut buffer)?;
        let (key, len) = u64_at(&*buffer, 0).zip(u64_at(&*buffer, 8)).ok_or_else(malformed)?;
        let left = usize::try_from(len).ok().and_then(|len| len.checked_sub(answer.len()));
        let left = left.filter(|_| len <= ANSWER_MOST as u64).ok_or_else(malformed)?;
        let part = left.min(PART_BYTES - BODY_AT);
        answer.extend_from_slice(&buffer[BODY_AT..BODY_AT + part]);
        if part == left {
            return Ok(answer);
        }
        if key == 0 {
            return Err(malformed());
        }
        buffer.fill(0);
        put(&mut *buffer, 0, &key.to_le_bytes());
        put(&mut *buffer, 8, &(answer.len() as u64).to_le_bytes());
    }
}

/// Whether a number is one of these.
pub(crate) fn is_known(number: Opcode) -> bool {
    [DIFF, LOG, DELETED, usage::USAGE, PROGRESS].contains(&number)
}

struct Kept {
    key: u64,
    uid: u32,
    number: Opcode,
    bytes: Vec<u8>,
    asked: Instant,
}

/// Answers of which parts are still to be read.
#[derive(Default)]
pub(crate) struct Answers(Mutex<(u64, Vec<Kept>)>, Running);

impl Answers {
    /// As [`Answers::answer_for`], for who may come everywhere.
    #[cfg(test)]
    pub(crate) fn answer(
        &self,
        view: &View,
        inode: InodeNo,
        uid: u32,
        number: Opcode,
        request: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        self.answer_for(view, inode, (uid, &view.access(None, view.root())), number, request)
    }

    /// The daemon's half: the next part of the answer to a request of this number on an inode, with what a
    /// user may come to.
    pub(crate) fn answer_for(
        &self,
        view: &View,
        inode: InodeNo,
        (uid, access): (u32, &Access),
        number: Opcode,
        request: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        if !is_known(number) || view.getattr(inode)?.kind != FileKind::Directory {
            return Err(Failure::EventNo(Errno::ENOTTY));
        }
        if number == PROGRESS {
            return self.1.answer(view, uid, request);
        }
        let refused = Failure::EventNo(Errno::EINVAL);
        let head = u64_at(request, 0).zip(u64_at(request, 8)).filter(|_| request.len() == PART_BYTES);
        let Some((key, at)) = head else { return Err(refused) };
        let question = &request[BODY_AT..];
        if key != 0 {
            return match question.iter().all(|b| *b == 0) {
                true => self.go_on(key, at, uid, number),
                false => Err(refused),
            };
        }
        let question = Question::decode(number, question).ok_or(refused)?;
        let watched = self.1.begin(uid, at);
        let bytes = question.answer(view, inode, (uid, access), &watched.progress)?;
        drop(watched);
        let part = part_of(&bytes, 0);
        if bytes.len() <= part.len() {
            return Ok(encode_part(0, bytes.len(), part));
        }
        let mut kept = self.0.lock();
        let (last_key, kept) = &mut *kept;
        *last_key += 1;
        let answer = encode_part(*last_key, bytes.len(), part);
        kept.retain(|kept| kept.asked.elapsed() < KEPT_FOR);
        kept.push(Kept { key: *last_key, uid, number, bytes, asked: Instant::now() });
        let size = |kept: &[Kept]| kept.iter().map(|kept| kept.bytes.len()).sum::<usize>();
        while kept.len() > KEPT_MOST || (size(kept) > ANSWER_MOST && kept.len() > 1) {
            kept.remove(0);
        }
        Ok(answer)
    }

    fn go_on(&self, key: u64, at: u64, uid: u32, number: Opcode) -> Result<Vec<u8>, Failure> {
        let mut kept = self.0.lock();
        let same = |kept: &Kept| (kept.key, kept.uid, kept.number) == (key, uid, number);
        let Some(i) = kept.1.iter().position(same) else { return Err(Failure::EventNo(Errno::ESTALE)) };
        let found = &mut kept.1[i];
        found.asked = Instant::now();
        let Some(at) = usize::try_from(at).ok().filter(|at| *at < found.bytes.len()) else {
            return Err(Failure::EventNo(Errno::EINVAL));
        };
        let part = part_of(&found.bytes, at);
        let is_last = at + part.len() == found.bytes.len();
        let answer = encode_part(if is_last { 0 } else { key }, found.bytes.len(), part);
        if is_last {
            kept.1.remove(i);
        }
        Ok(answer)
    }
}

fn part_of(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + PART_BYTES - BODY_AT)]
}

fn encode_part(key: u64, len: usize, part: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; PART_BYTES];
    put(&mut bytes, 0, &key.to_le_bytes());
    put(&mut bytes, 8, &(len as u64).to_le_bytes());
    put(&mut bytes, BODY_AT, part);
    bytes
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
enum Question<'a> {
    Identity,
    Diff { from: Option<EventNo>, to: Option<EventNo>, compared: bool },
    Log { name: &'a [u8], most: Option<u32> },
    Deleted { recursive: bool },
    Usage(usage::Of<'a>),
}

impl Question<'_> {
    fn decode(number: Opcode, bytes: &[u8]) -> Option<Question<'_>> {
        let mut reader = Reader(bytes);
        let question = match number {
            DIFF => {
                let mut side = || Some(Some(EventNo(reader.u64()?)).filter(|number| number.0 != 0));
                let (from, to) = (side()?, side()?);
                match (reader.u32()?, from, to) {
                    (flags @ (0 | COMPARED), ..) => Question::Diff { from, to, compared: flags == COMPARED },
                    (IDENTITY, None, None) => Question::Identity,
                    _ => return None,
                }
            }
            LOG => {
                let (len, most) = (reader.u32()?, Some(reader.u32()?).filter(|most| *most > 0));
                Question::Log { name: reader.take(usize::try_from(len).ok()?)?, most }
            }
            usage::USAGE => Question::Usage(usage::Of::decode(&mut reader)?),
            _ => match reader.u32()? {
                flags @ (0 | RECURSIVE) => Question::Deleted { recursive: flags == RECURSIVE },
                _ => return None,
            },
        };
        reader.0.iter().all(|b| *b == 0).then_some(question)
    }

    fn answer(
        &self,
        view: &View,
        inode: InodeNo,
        (uid, access): (u32, &Access),
        progress: &Progress,
    ) -> Result<Vec<u8>, Failure> {
        let mut writer = Writer { bytes: Vec::new(), is_full: false };
        if matches!(self, Question::Identity | Question::Diff { .. }) {
            writer.u64(inode.0);
            writer.u32(view.getattr(inode)?.incarnation);
            writer.u64(view.event().unwrap_or_default().0);
        }
        let check = |view: &View| match may_snapshot(view, inode, None, uid)? {
            true => Ok(()),
            false => Err(Failure::EventNo(Errno::EPERM)),
        };
        let mut told = Told::new(view, access, inode);
        match self {
            Question::Identity => {}
            Question::Diff { from, to, compared } => {
                for side in [from, to] {
                    check(&side.map_or(view.present(), |event| view.as_of(event)))?;
                }
                let mut all = Vec::new();
                let each = &mut |found: Difference| {
                    all.push(found);
                    ControlFlow::Continue(())
                };
                match compared {
                    true => view.compare(inode, *from, *to, progress, each)?,
                    false => view.diff(inode, *from, *to, each)?,
                }
                for found in all {
                    if let Some(found) = told.difference(found, (*from, *to))? {
                        if writer.record(|w| w.difference(&found)).is_break() {
                            break;
                        }
                    }
                }
            }
            Question::Log { name, most } => {
                check(view)?;
                let (mut left, mut failed) = (most.unwrap_or(u32::MAX), None);
                // Who is gone cannot be asked for permissions any more: below the directories of others
                // nothing is told.
                let mut pass = |above: &Facts| match may_all(uid) || above.uid == uid {
                    true => Ok(()),
                    false => Err(yore_fs::Error::NotPermitted { what: "the directory was somebody else's" }),
                };
                view.log_below(inode, name, &mut pass, &mut |found| {
                    let found = match told.logged(found, name) {
                        Ok(Some(found)) => found,
                        Ok(None) => return ControlFlow::Continue(()),
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    };
                    left -= 1;
                    match writer.record(|w| w.logged(&found)) {
                        ControlFlow::Continue(()) if left > 0 => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                })?;
                failed.map_or(Ok(()), Err)?;
                if writer.bytes.is_empty() {
                    return Err(yore_fs::Error::NotFound.into());
                }
            }
            Question::Usage(of) => {
                if *of != usage::Of::Volume {
                    check(view)?;
                }
                of.answer(view, inode, &told, &mut writer)?;
            }
            Question::Deleted { recursive } => {
                check(view)?;
                let mut all = Vec::new();
                view.deleted_in_steps(inode, *recursive, progress, &mut |found| {
                    all.push(found);
                    ControlFlow::Continue(())
                })?;
                for found in all {
                    if told.deleted(&found)? && writer.record(|w| w.deleted(&found)).is_break() {
                        break;
                    }
                }
            }
        }
        match writer.is_full {
            true => Err(Failure::EventNo(Errno::EOVERFLOW)),
            false => Ok(writer.bytes),
        }
    }
}

/// An answer being written.
struct Writer {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Writer {
    fn record(&mut self, write: impl FnOnce(&mut Writer)) -> ControlFlow<()> {
        write(self);
        self.is_full = self.bytes.len() > ANSWER_MOST;
        match self.is_full {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.bytes.extend_from_slice(text);
    }

    fn kind(&mut self, kind: FileKind) {
        self.u16((kind.mode() >> 12) as u16);
    }

    fn facts(&mut self, facts: &Facts) {
        for value in [facts.mode, facts.uid, facts.gid, facts.links] {
            self.u32(value);
        }
        self.u64(facts.size);
        self.bytes.extend_from_slice(&facts.mtime.seconds.to_le_bytes());
        self.u32(facts.mtime.nanos);
    }

    fn seen_by(&mut self, seen: &SeenBy) {
        let SeenBy { event, next } = seen.clone();
        let listed =
            ListedEvent { event, next, covers: true, own: false, pinned: false, mounted: false, path: None };
        let record = encode_record(&listed);
        self.bytes.extend_from_slice(&record);
    }

    fn difference(&mut self, found: &Difference) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(found.old_path.is_some(), OLD_PATH)
            | flag(found.before.is_some(), BEFORE)
            | flag(found.after.is_some(), AFTER);
        self.bytes.extend_from_slice(&[found.change as u8, flags]);
        self.kind(found.kind);
        self.u32(found.what.bits());
        self.u64(found.inode.0);
        self.u32(found.incarnation.0);
        self.text(&found.path);
        found.old_path.iter().for_each(|path| self.text(path));
        found.before.iter().chain(&found.after).for_each(|facts| self.facts(facts));
    }

    fn logged(&mut self, found: &Logged) {
        let (seen, gone) = (found.first.as_ref().zip(found.last.as_ref()), found.gone.as_ref());
        let flag = |is: bool, flag: u16| if is { flag } else { 0 };
        self.kind(found.kind);
        self.u16(
            flag(seen.is_some(), SEEN)
                | flag(found.current, CURRENT)
                | flag(found.path.is_some(), PATH)
                | flag(found.renamed, RENAMED)
                | flag(found.replaced, REPLACED)
                | flag(found.oldest, OLDEST)
                | flag(gone.is_some(), GONE)
                | flag(gone.is_some_and(|gone| gone.by.is_some()), GONE_BY)
                | flag(gone.is_some_and(|gone| gone.moved), MOVED)
                | flag(gone.is_some_and(|gone| gone.path.is_some()), MOVED_TO),
        );
        self.u32(found.what.bits());
        self.u64(found.inode.0);
        self.u32(found.incarnation.0);
        self.text(&found.name);
        found.path.iter().for_each(|path| self.text(path));
        self.facts(&found.facts);
        if let Some((first, last)) = seen {
            self.seen_by(first);
            self.seen_by(last);
        }
        if let Some(gone) = gone {
            gone.by.iter().for_each(|by| self.seen_by(by));
            gone.path.iter().for_each(|path| self.text(path));
        }
    }

    fn deleted(&mut self, found: &Deleted) {
        self.kind(found.kind);
        self.u16(0);
        self.u64(found.inode.0);
        self.u32(found.incarnation.0);
        self.text(&found.path);
        self.facts(&found.facts);
        self.seen_by(&found.last);
    }
}

/// An answer being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// All records up to the end.
    fn all<T>(&mut self, mut read: impl FnMut(&mut Reader<'a>) -> Option<T>) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(read(self).ok_or_else(malformed)?);
        }
        Ok(all)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn kind(&mut self) -> Option<FileKind> {
        FileKind::from_mode(u32::from(self.u16()?).checked_shl(12)?)
    }

    fn identity(&mut self) -> Option<Identity> {
        let (inode, incarnation) = (InodeNo(self.u64()?), Incarnation(self.u32()?));
        let event = Some(EventNo(self.u64()?)).filter(|event| event.0 != 0);
        Some(Identity { inode, incarnation, event })
    }

    fn facts(&mut self) -> Option<Facts> {
        let (mode, uid, gid, links) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let size = self.u64()?;
        let seconds = self.array().map(i64::from_le_bytes)?;
        let nanos = self.u32().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Facts { mode, uid, gid, links, size, mtime: Timestamp { seconds, nanos } })
    }

    fn seen_by(&mut self) -> Option<SeenBy> {
        let (listed, len) = decode_record(self.0)?;
        self.take(len)?;
        Some(SeenBy { event: listed.event, next: listed.next })
    }

    fn difference(&mut self) -> Option<Difference> {
        let [change, flags] = self.array()?;
        let (change, kind, what) = (Change::from_u8(change)?, self.kind()?, What::from_bits(self.u32()?)?);
        let (inode, incarnation, path) = (InodeNo(self.u64()?), Incarnation(self.u32()?), self.text()?);
        let old_path = if flags & OLD_PATH != 0 { Some(self.text()?) } else { None };
        let before = if flags & BEFORE != 0 { Some(self.facts()?) } else { None };
        let after = if flags & AFTER != 0 { Some(self.facts()?) } else { None };
        Some(Difference { change, kind, inode, incarnation, path, old_path, what, before, after })
    }

    fn logged(&mut self) -> Option<Logged> {
        let (kind, flags, what) = (self.kind()?, self.u16()?, What::from_bits(self.u32()?)?);
        let (inode, incarnation, name) = (InodeNo(self.u64()?), Incarnation(self.u32()?), self.text()?);
        let path = if flags & PATH != 0 { Some(self.text()?) } else { None };
        let facts = self.facts()?;
        let mut seen = || if flags & SEEN != 0 { self.seen_by().map(Some) } else { Some(None) };
        let (first, last) = (seen()?, seen()?);
        let by = if flags & GONE_BY != 0 { Some(self.seen_by()?) } else { None };
        let moved_to = if flags & MOVED_TO != 0 { Some(self.text()?) } else { None };
        let gone = (flags & GONE != 0).then_some(Gone { by, moved: flags & MOVED != 0, path: moved_to });
        Some(Logged {
            first,
            last,
            current: flags & CURRENT != 0,
            name,
            path,
            kind,
            inode,
            incarnation,
            facts,
            what,
            renamed: flags & RENAMED != 0,
            replaced: flags & REPLACED != 0,
            oldest: flags & OLDEST != 0,
            gone,
        })
    }

    fn deleted(&mut self) -> Option<Deleted> {
        let kind = self.kind()?;
        self.u16()?;
        let (inode, incarnation, path) = (InodeNo(self.u64()?), Incarnation(self.u32()?), self.text()?);
        Some(Deleted { path, kind, inode, incarnation, facts: self.facts()?, last: self.seen_by()? })
    }
}

#[cfg(test)]
mod tests;
