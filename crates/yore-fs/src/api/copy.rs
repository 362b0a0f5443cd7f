//! Copying between files of a volume. The source may be a file as it was. Blocks are shared where that can
//! be, and what is left is read and written.

use crate::file::{self, clone_step, Cloned, Source};
use crate::history::read::at_time;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState};
use yore_format::{EventNo, WriteFeatures, BLOCK_SIZE};

/// Bytes copied at a time.
const COPY: u64 = 1 << 20;
/// Copies of fewer bytes share nothing: the block that counts references would take as much as is saved.
pub const SHARED_LEAST: u64 = 4 * BLOCK_SIZE as u64;

/// What is copied: the file, and as of which event; `None`: as it is.
#[derive(Clone, Copy)]
pub(crate) struct From {
    pub inode: InodeNo,
    pub event: Option<EventNo>,
    pub offset: u64,
}

impl From {
    /// The state itself. The caller keeps the event from becoming invisible.
    fn find(&self, store: &Arc<Store>) -> Result<Source> {
        let in_use = match store.cell(self.inode) {
            Ok(cell) => Some(cell),
            Err(Error::Stale) if self.event.is_some() => None,
            Err(e) => return Err(e),
        };
        let version = match self.event {
            Some(event) => at_time::inode(store, self.inode, event)?.version,
            None => None,
        };
        match (version, in_use) {
            (Some(cell), in_use) => Ok(Source { cell, in_use, as_of: None }),
            (None, Some(cell)) => Ok(Source { cell, in_use: None, as_of: self.event }),
            (None, None) => Err(Error::Stale),
        }
    }

    /// Calls `f` with the state, which does not go meanwhile.
    fn during<R>(&self, store: &Arc<Store>, f: impl FnOnce(Source) -> Result<R>) -> Result<R> {
        // Before all locks of inodes: an event that is to become invisible stands between this and them.
        let _seeing = self.event.map(|event| store.past.see(event)).transpose()?;
        f(self.find(store)?)
    }

    fn read(&self, store: &Arc<Store>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(event) = self.event else {
            return file::read(store, &*store.cell(self.inode)?, offset, buf);
        };
        let _seeing = store.past.see(event)?;
        at_time::read(store, self.inode, event, offset, buf)
    }
}

/// Whether blocks of the source can be blocks of a target in which the copy begins at this offset.
pub(crate) fn may_be_shared(from: From, to: u64) -> bool {
    from.offset % BLOCK_SIZE as u64 == to % BLOCK_SIZE as u64
}

/// How many blocks the source has, or is about to get.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn blocks(store: &Arc<Store>, from: From) -> Result<u64> {
    from.during(store, |source| {
        let state = source.cell.state.read();
        Ok(state.inode.blocks.saturating_add(state.data.delayed_blocks()))
    })
}

/// How many bytes there are from the offset to the end.
///
/// # Errors
/// [`Error::IsADirectory`] and [`Error::Invalid`] for what is no regular file; damage and device errors.
pub(crate) fn length(store: &Arc<Store>, from: From) -> Result<u64> {
    from.during(store, |source| {
        let state = source.cell.state.read();
        state.check_regular()?;
        Ok(state.inode.size.saturating_sub(from.offset))
    })
}

/// Copies up to `len` bytes to an offset of another file, or of the same, if the ranges are apart; of these
/// at most `most` bytes are read and written. Returns the count, which is smaller at the source's end.
///
/// # Errors
/// Those of reading and writing, if nothing was copied; [`Error::Invalid`] if the ranges overlap.
pub(crate) fn copy(
    store: &Arc<Store>,
    from: From,
    target: &Arc<InodeCell>,
    to: u64,
    (len, most): (u64, u64),
) -> Result<u64> {
    let is_one = from.event.is_none() && from.inode == target.no;
    if is_one && from.offset.abs_diff(to) < len {
        return Err(Error::Invalid { what: "source and target of a copy overlap" });
    }
    // Up to the end as it is now: what the copy itself appends is not copied again.
    let len = len.min(length(store, from)?);
    let shares = len >= SHARED_LEAST && may_share(store, from)?;
    let (mut done, mut left) = (0, most);
    let mut buf = Vec::new();
    // One time for all parts, so that a crash between two of them leaves no other.
    let now = crate::clock::now();
    let touch = &mut |state: &mut InodeState| state.change_content(now);
    while done < len {
        let range = (from.offset + done, to.checked_add(done).ok_or(Error::FileTooLarge)?, len - done);
        let step = match shares {
            true => share(store, from, range, target, touch),
            false => Ok(Cloned::Copy(len - done)),
        };
        let copied = step.and_then(|step| match step {
            Cloned::Shared(n) => Ok(Some(n)),
            Cloned::Changed => Ok(None),
            Cloned::Copy(_) if left == 0 => Ok(Some(0)),
            Cloned::Copy(n) => {
                let n = n.min(len - done).min(left).min(COPY);
                left -= n;
                buf.resize(n as usize, 0);
                let n = from.read(store, range.0, &mut buf)?;
                if n > 0 {
                    file::write(&**store, target, range.1, &buf[..n], false, touch)?;
                }
                Ok(Some(n as u64))
            }
        });
        match copied {
            Ok(Some(0)) => break,
            Ok(Some(n)) => done += n,
            Ok(None) => {}
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Whether sharing is worth a try. Gives the volume the feature that it needs, which is durable then (E1).
fn may_share(store: &Arc<Store>, from: From) -> Result<bool> {
    let in_blocks = from.during(store, |source| Ok(file::is_in_blocks(&source.cell)))?;
    if !in_blocks || (!store.meta.has_features(WriteFeatures::TABLES) && !store.meta.may_wait()) {
        return Ok(false);
    }
    store.past.begin_annals_before_sharing(store)?;
    store.meta.extend(WriteFeatures::TABLES)?;
    Ok(true)
}

fn share(
    store: &Arc<Store>,
    from: From,
    range: (u64, u64, u64),
    target: &Arc<InodeCell>,
    touch: &mut dyn FnMut(&mut InodeState),
) -> Result<Cloned> {
    file::prepare_clone(&**store, target)?;
    from.during(store, |source| clone_step(&**store, &source, range, target, touch))
}

/// Whether all of a file could be shared, so that a copy of it needs no data block.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn needs_no_data(store: &Arc<Store>, inode: InodeNo, event: Option<EventNo>) -> Result<bool> {
    let from = From { inode, event, offset: 0 };
    if store.read_only || !may_share(store, from)? {
        return Ok(false);
    }
    from.during(store, |source| file::make_tables(&**store, &source.cell))
}
