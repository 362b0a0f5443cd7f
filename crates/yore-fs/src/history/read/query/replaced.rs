//! Files that took the place of another one of the same name and type, compared with that one as if both were
//! states of one file.
//!
//! Programs save a file by putting another one in its place, and putting back makes files anew. In history
//! these are one file that is gone and one that is new. A user who asks for differences wants to know in what
//! the new one differs from the old: often in nothing.
//!
//! The comparison looks at the inodes first: type, size, owner. Only where these leave it open does it read
//! data, of several files at once: most of the time goes into waiting for the device, and into comparing what
//! is in memory already.

use super::answer::{Change, Difference, What};
use super::changes::xattrs;
use crate::go_on::{goes_on, GoOn};
use crate::history::read::at_time::{self, with, PRESENT};
use crate::progress::Progress;
use crate::store::Store;
use crate::{Error, FileKind, Result, SeekTo};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use yore_format::{EventNo, Inode, InodeNo, MetaAddr};

/// Bytes compared at a time.
const CHUNK: usize = 256 << 10;
/// Files read at once, at most.
const READERS: usize = 8;
/// What looking at one file without reading it counts in [`Progress`].
const PAIR_COST: u64 = 4096;

/// A name that meant one inode and means another of the same type.
struct Pair<'d> {
    old: &'d Difference,
    new: &'d Difference,
}

/// Two times; pairs are compared between them.
struct Sides<'s> {
    store: &'s Arc<Store>,
    from: EventNo,
    to: EventNo,
    go_on: GoOn<'s>,
}

/// Joins the difference of a name that is gone, and that of the same name and type that came, into one
/// difference or none.
///
/// # Errors
/// `Stale` if one of the events is no longer kept; `Refused` if `go_on` breaks; damage and device errors.
pub(super) fn join(
    store: &Arc<Store>,
    (from, to): (EventNo, EventNo),
    found: Vec<Difference>,
    progress: &Progress,
    go_on: GoOn<'_>,
) -> Result<Vec<Difference>> {
    let mut joined = joined(&Sides { store, from, to, go_on }, &pairs(&found), progress)?;
    let of = |one: Difference| match (one.change, joined.get_mut(&one.path)) {
        (Change::Added, Some(joined)) => joined.take(),
        (Change::Removed, Some(_)) => None,
        _ => Some(one),
    };
    Ok(found.into_iter().filter_map(of).collect())
}

/// The names that are gone, each with what came in its place.
fn pairs(found: &[Difference]) -> Vec<Pair<'_>> {
    let gone = found.iter().filter(|one| one.change == Change::Removed);
    let gone: HashMap<&[u8], &Difference> = gone.map(|one| (&one.path[..], one)).collect();
    let came = found.iter().filter(|one| one.change == Change::Added);
    let pairs = came.filter_map(|new| Some(Pair { old: gone.get(&new.path[..])?, new }));
    pairs.filter(|pair| pair.old.kind == pair.new.kind).collect()
}

/// What becomes of each pair, by its path: a difference, or none.
fn joined(
    sides: &Sides<'_>,
    pairs: &[Pair<'_>],
    progress: &Progress,
) -> Result<HashMap<Vec<u8>, Option<Difference>>> {
    let mut joined = HashMap::with_capacity(pairs.len());
    for (pair, what) in pairs.iter().zip(sides.compare_all(pairs, progress)?) {
        // If one of the two has vanished meanwhile, the differences stay as history has them.
        let Some(what) = what else { continue };
        let before = pair.old.before;
        let one = Difference { change: Change::Modified, what, before, ..pair.new.clone() };
        joined.insert(one.path.clone(), (!what.is_empty()).then_some(one));
    }
    Ok(joined)
}

impl Sides<'_> {
    /// In what each pair differs, computed by several threads if there is much to read; `None` if one of the
    /// pair no longer exists.
    fn compare_all(&self, pairs: &[Pair<'_>], progress: &Progress) -> Result<Vec<Option<What>>> {
        let reads = |pair: &Pair<'_>| match (pair.old.before, pair.new.after) {
            (Some(was), Some(is)) if pair.new.kind == FileKind::Regular && was.size == is.size => is.size,
            _ => 0,
        };
        progress.expect(pairs.iter().map(|pair| PAIR_COST + reads(pair)).sum());
        let (next, all) = (AtomicUsize::new(0), Mutex::new(vec![None; pairs.len()]));
        let work = || -> Result<()> {
            let mut buffers = Buffers::default();
            // Each thread takes several pairs at a time, and none waits for another's.
            while let Some(first) = Some(next.fetch_add(16, Ordering::Relaxed)).filter(|at| *at < pairs.len())
            {
                for (at, pair) in pairs.iter().enumerate().skip(first).take(16) {
                    goes_on(self.go_on, 0)?;
                    let what = match self.compare(pair, &mut buffers) {
                        Ok(what) => Some(what),
                        Err(Error::NotFound) => None,
                        Err(e) => return Err(e),
                    };
                    all.lock()[at] = what;
                    progress.add(PAIR_COST + reads(pair));
                }
            }
            Ok(())
        };
        let readers = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, READERS);
        match pairs.len() {
            1..=16 => work()?,
            _ => std::thread::scope(|scope| {
                let readers: Vec<_> = (0..readers).map(|_| scope.spawn(work)).collect();
                let done = readers.into_iter().map(|reader| reader.join());
                // A panic of one of the threads is a panic here.
                let mut done = done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                done.try_for_each(|done| done)
            })?,
        }
        Ok(all.into_inner())
    }

    fn inode(&self, no: InodeNo, event: EventNo) -> Result<Inode> {
        let _seeing = self.see(event)?;
        with(self.store, no, event, |_, state| Ok(state.inode.clone()))
    }

    /// Keeps an event from becoming invisible.
    fn see(&self, event: EventNo) -> Result<Option<crate::history::record::Seeing<'_>>> {
        (event != PRESENT).then(|| self.store.past.see(event)).transpose()
    }

    fn compare(&self, pair: &Pair<'_>, buffers: &mut Buffers) -> Result<What> {
        let (old, new) = (pair.old.inode, pair.new.inode);
        let (was, is) = (self.inode(old, self.from)?, self.inode(new, self.to)?);
        if (was.incarnation, is.incarnation) != (pair.old.incarnation, pair.new.incarnation) {
            return Err(Error::NotFound);
        }
        let mut what = What::empty();
        // Putting back does not restore set-id bits, and the past does not show them.
        let metadata = |inode: &Inode| (inode.mode & !0o6000, inode.uid, inode.gid, inode.rdev);
        what.set(What::METADATA, metadata(&was) != metadata(&is));
        if [was.xattr_root, is.xattr_root].iter().any(|root| *root != MetaAddr::NONE) {
            what.set(What::XATTRS, self.xattrs(old, self.from)? != self.xattrs(new, self.to)?);
        }
        if was.is_directory() {
            return Ok(what);
        }
        what.set(What::TIME, was.mtime != is.mtime);
        let same = match pair.new.kind {
            FileKind::Regular => was.size == is.size && self.same_data((old, new), was.size, buffers)?,
            FileKind::Symlink => self.readlink(old, self.from)? == self.readlink(new, self.to)?,
            _ => true,
        };
        what.set(What::CONTENT, !same);
        Ok(what)
    }

    fn xattrs(&self, no: InodeNo, event: EventNo) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let _seeing = self.see(event)?;
        xattrs(self.store, no, event)
    }

    fn readlink(&self, no: InodeNo, event: EventNo) -> Result<Vec<u8>> {
        let _seeing = self.see(event)?;
        at_time::readlink(self.store, no, event)
    }

    /// Whether two files of one size have the same content. Takes time for the data of both, not for holes.
    fn same_data(&self, (old, new): (InodeNo, InodeNo), size: u64, buffers: &mut Buffers) -> Result<bool> {
        let mut at = 0;
        // The search for holes only pays for long files.
        let is_long = size > CHUNK as u64;
        let most = usize::try_from(size).unwrap_or(CHUNK).min(CHUNK);
        let (a, b) = buffers.of(most);
        while at < size {
            if is_long {
                goes_on(self.go_on, 0)?;
                at = self.data_from(old, self.from, at)?.min(self.data_from(new, self.to, at)?).min(size);
            }
            let (n, m) = (self.read(old, self.from, at, a)?, self.read(new, self.to, at, b)?);
            if a[..n] != b[..m] {
                return Ok(false);
            }
            if n == 0 {
                break;
            }
            at += n as u64;
        }
        Ok(true)
    }

    fn data_from(&self, no: InodeNo, event: EventNo, at: u64) -> Result<u64> {
        let _seeing = self.see(event)?;
        match at_time::seek(self.store, no, event, at, SeekTo::Data) {
            Err(Error::NoDataThere) => Ok(u64::MAX),
            found => found,
        }
    }

    fn read(&self, no: InodeNo, event: EventNo, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let _seeing = self.see(event)?;
        at_time::read(self.store, no, event, at, buffer)
    }
}

/// The buffers of one thread.
#[derive(Default)]
struct Buffers([Vec<u8>; 2]);

impl Buffers {
    /// Two buffers of this length.
    fn of(&mut self, len: usize) -> (&mut [u8], &mut [u8]) {
        let [a, b] = &mut self.0;
        for buffer in [&mut *a, &mut *b] {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
        }
        (&mut a[..len], &mut b[..len])
    }
}
